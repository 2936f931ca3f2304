//! The shape of a day, from what was published of one.
//!
//! The papers show the samples by their rates, not by the hour. Two figures tell a wave: the
//! requests of the whole day, and the mean rate of one hour, from 11:00 to 12:00. Where it is
//! highest is not told, and taken to be half past one. Both days of 1998 give the same wave within
//! 2 %, and its highest rate is where their scatter ends.

use std::f64::consts::TAU;

use serde::Serialize;

use crate::published::{Facts, SQUID};

/// One each quarter of an hour, as in 1998.
pub const SAMPLES_AN_HOUR: u32 = 4;
/// Samples below this rate were left out for Table 5, requests a second.
const QUIET_1998: f64 = 20.0;
/// When the rate is highest, in hours: an assumption.
const HIGHEST_AT: f64 = 13.5;
/// The middle of the hour whose rate was published.
const HOUR_TOLD: f64 = 11.5;
/// A wave that touches zero would have samples without a request.
const SWING_MAX: f64 = 0.98;

/// A wave about the day's mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Shape {
    /// Mean rate of the published day, requests a second.
    pub mean_1998: f64,
    /// How far the rate swings, in parts of the mean.
    pub swing: f64,
}

impl Shape {
    /// That of the day with the old kernel.
    pub(crate) fn of_1998(facts: &Facts) -> Shape {
        Shape::of_day(facts, "old")
    }

    fn of_day(facts: &Facts, kernel: &str) -> Shape {
        let requests = facts.day(SQUID, kernel).and_then(|day| day.requests).unwrap_or(0.0);
        let told = facts.profile(SQUID, kernel).map_or(0.0, |profile| profile.rate_mean);
        let mean_1998 = requests / 86_400.0;
        let swing = (told / mean_1998 - 1.0) / (TAU * (HOUR_TOLD - HIGHEST_AT) / 24.0).cos();
        Shape { mean_1998, swing: swing.clamp(0.0, SWING_MAX) }
    }

    /// The rate at an hour of the day, in parts of the highest.
    #[must_use]
    pub fn at(&self, hour: f64) -> f64 {
        let wave = (TAU * (hour - HIGHEST_AT) / 24.0).cos();
        (1.0 + self.swing * wave) / (1.0 + self.swing)
    }

    /// The middle of a sample, in hours of the day: the first begins where it is quietest.
    #[must_use]
    pub fn hour_of(&self, sample: u32) -> f64 {
        let since = (f64::from(sample) + 0.5) / f64::from(SAMPLES_AN_HOUR);
        (HIGHEST_AT - 12.0 + since).rem_euclid(24.0)
    }

    /// The highest rate of the published day by this shape.
    #[must_use]
    pub fn highest_1998(&self) -> f64 {
        self.mean_1998 * (1.0 + self.swing)
    }

    /// The bound of Table 5, in parts of the highest rate.
    pub(super) fn above_20(&self) -> f64 {
        QUIET_1998 / self.highest_1998()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wave_has_the_published_mean_and_hour() {
        let shape = Shape::of_1998(&Facts::read());
        assert!((shape.mean_1998 - 25.95).abs() < 0.01, "{shape:?}");
        let all: Vec<f64> = (0..96).map(|at| shape.at(shape.hour_of(at))).collect();
        let mean = all.iter().sum::<f64>() / 96.0 * shape.highest_1998();
        assert!((mean - shape.mean_1998).abs() < 1e-6, "{mean}");
        let at_noon = shape.at(HOUR_TOLD) * shape.highest_1998();
        assert!((at_noon - 48.0).abs() < 0.1, "{at_noon}");
        assert!(all.iter().all(|part| *part > 0.0 && *part <= 1.0));
        assert!(all[0] < 0.02 && all[47] > 0.99, "from the quietest to the highest");
    }

    #[test]
    fn both_days_of_1998_tell_the_same_wave() {
        let facts = Facts::read();
        let requests = facts.day(SQUID, "new").unwrap().requests.unwrap();
        let told = facts.profile(SQUID, "new").unwrap().rate_mean;
        let unbounded =
            (told / (requests / 86_400.0) - 1.0) / (TAU * (HOUR_TOLD - HIGHEST_AT) / 24.0).cos();
        let old = Shape::of_1998(&facts);
        assert!((unbounded / old.swing - 1.0).abs() < 0.03, "{unbounded} {old:?}");
    }
}
