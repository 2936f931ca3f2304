//! The shape of a day, from the published figures of one.
//!
//! The papers show the samples by their rates, not by the hour. Two figures determine a wave: the
//! number of requests of the whole day, and the mean rate of one hour, from 11:00 to 12:00. The
//! time of the highest rate was not published; half past one is assumed. Both days of 1998 give the
//! same wave within 2 %, and its highest rate is where their scatter plots end.

use std::f64::consts::TAU;

use serde::Serialize;

use crate::published::{Facts, SQUID};

/// A sample every quarter of an hour, as in 1998.
pub(super) const SAMPLES_AN_HOUR: u32 = 4;
/// Samples below this rate were left out for Table 5, requests a second.
const QUIET_1998: f64 = 20.0;
/// The time of the highest rate, in hours: an assumption.
const HIGHEST_AT: f64 = 13.5;
/// The middle of the hour whose rate was published.
const HOUR_PUBLISHED: f64 = 11.5;
/// The largest swing: a wave that touches zero would have samples without a request.
const SWING_MAX: f64 = 0.98;

/// A wave around the day's mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Shape {
    /// Mean rate of the published day, requests a second.
    mean_1998: f64,
    /// The amplitude, relative to the mean.
    pub(super) swing: f64,
}

impl Shape {
    /// The shape of the day with the old kernel.
    pub(super) fn of_1998(facts: &Facts) -> Shape {
        let requests = facts.day(SQUID, "old").and_then(|day| day.requests).unwrap_or(0.0);
        let at_hour = facts.profile(SQUID, "old").map_or(0.0, |profile| profile.rate_mean);
        let mean_1998 = requests / 86_400.0;
        let swing =
            (at_hour / mean_1998 - 1.0) / (TAU * (HOUR_PUBLISHED - HIGHEST_AT) / 24.0).cos();
        Shape { mean_1998, swing: swing.clamp(0.0, SWING_MAX) }
    }

    /// The rate at an hour of the day, relative to the highest.
    pub(super) fn at(&self, hour: f64) -> f64 {
        let wave = (TAU * (hour - HIGHEST_AT) / 24.0).cos();
        (1.0 + self.swing * wave) / (1.0 + self.swing)
    }

    /// The middle of a sample, in hours of the day. The first sample begins at the quietest time.
    pub(super) fn hour_of(&self, sample: u32) -> f64 {
        let since = (f64::from(sample) + 0.5) / f64::from(SAMPLES_AN_HOUR);
        (HIGHEST_AT - 12.0 + since).rem_euclid(24.0)
    }

    /// The highest rate of the published day by this shape.
    pub(super) fn highest_1998(&self) -> f64 {
        self.mean_1998 * (1.0 + self.swing)
    }

    /// The lowest rate in Table 5, relative to the highest rate.
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
        let at_noon = shape.at(HOUR_PUBLISHED) * shape.highest_1998();
        assert!((at_noon - 48.0).abs() < 0.1, "{at_noon}");
        assert!(all.iter().all(|part| *part > 0.0 && *part <= 1.0));
        assert!(all[0] < 0.02 && all[47] > 0.99, "from the quietest to the highest");
    }

    #[test]
    fn both_days_of_1998_give_the_same_wave() {
        let facts = Facts::read();
        let requests = facts.day(SQUID, "new").unwrap().requests.unwrap();
        let at_hour = facts.profile(SQUID, "new").unwrap().rate_mean;
        let unbounded = (at_hour / (requests / 86_400.0) - 1.0)
            / (TAU * (HOUR_PUBLISHED - HIGHEST_AT) / 24.0).cos();
        let old = Shape::of_1998(&facts);
        assert!((unbounded / old.swing - 1.0).abs() < 0.03, "{unbounded} {old:?}");
    }
}
