//! When requests are meant to start.
//!
//! What: a schedule (how the rate changes over the run) and arrivals (how requests are spaced at
//! that rate) define one increasing series of intended starts. Why: latency counts from the
//! intended start, so the series must not depend on the progress of the server or the generator.
//! What never happens: a clock is read; an instant is skipped or postponed.
//!
//! The k-th arrival is where the integral of the rate reaches k (deterministic), or the sum of k
//! exponential steps (Poisson: an inhomogeneous process by time change, Çınlar 1975).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::random::Random;

/// The highest rate of a schedule, requests per second.
pub const RATE_MAX: f64 = 10_000_000.0;
/// The most levels of a schedule with steps.
pub const LEVELS_MAX: usize = 10_000;

/// How the rate changes over the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// One rate, requests per second.
    Constant(f64),
    /// Levels of equal length, requests per second each.
    Steps(Vec<f64>),
    /// A straight line from the first rate to the second.
    Ramp {
        /// Requests per second at the start.
        from: f64,
        /// Requests per second at the end.
        to: f64,
    },
    /// No schedule: each connection sends its next request as soon as it has the response.
    ClosedLoop,
}

/// How requests are spaced at a given rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// At equal distances.
    Deterministic,
    /// Like requests of independent users.
    #[default]
    Poisson,
}

/// A rate that cannot be parsed (the operator's fault).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rate {typed:?}: {why}; give R, FROM..TO, FROM..TO/STEPS or \"closed\"")]
pub struct BadRate {
    typed: String,
    why: &'static str,
}

impl FromStr for Schedule {
    type Err = BadRate;

    /// `1000` is a constant rate, `1000..60000` a ramp, `1000..60000/12` twelve levels of equal
    /// length, `closed` a closed loop.
    fn from_str(typed: &str) -> Result<Schedule, BadRate> {
        let bad = |why| BadRate { typed: typed.to_owned(), why };
        let rate = |text: &str| {
            let value: f64 = text.parse().map_err(|_| bad("not a number"))?;
            check_rate(value).map_err(bad)?;
            Ok(value)
        };
        if typed == "closed" {
            return Ok(Schedule::ClosedLoop);
        }
        let Some((from, rest)) = typed.split_once("..") else {
            return Ok(Schedule::Constant(rate(typed)?));
        };
        let Some((to, steps)) = rest.split_once('/') else {
            return Ok(Schedule::Ramp { from: rate(from)?, to: rate(rest)? });
        };
        let steps: usize = steps.parse().map_err(|_| bad("the number of steps is not a number"))?;
        if !(2..=LEVELS_MAX).contains(&steps) {
            return Err(bad("the number of steps must be in 2..=10000"));
        }
        Ok(Schedule::steps(rate(from)?, rate(to)?, steps))
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Schedule::Constant(rate) => write!(f, "{rate}"),
            Schedule::Ramp { from, to } => write!(f, "{from}..{to}"),
            Schedule::Steps(levels) => match levels.as_slice() {
                [first, .., last] => write!(f, "{first}..{last}/{}", levels.len()),
                _ => write!(f, "{levels:?}"),
            },
            Schedule::ClosedLoop => f.write_str("closed"),
        }
    }
}

impl Schedule {
    /// `count` evenly spaced levels from `from` to `to`.
    pub fn steps(from: f64, to: f64, count: usize) -> Schedule {
        let gap = (to - from) / (count.max(2) - 1) as f64;
        Schedule::Steps((0..count).map(|k| from + gap * k as f64).collect())
    }

    /// A load that rises `times` times from a twentieth of `top` to `top`, with about one level per
    /// second. Each rise covers the whole range, and its levels lie between those of the others.
    /// Because there are several rises, a drift over time does not look like an effect of the rate.
    pub fn rises(top: f64, length: Duration, times: usize) -> Schedule {
        let times = times.max(1);
        let levels = (length.as_secs() as usize / times).max(4);
        let bottom = top / 20.0;
        let last = levels as f64 - 1.0 / times as f64;
        let at = |k: f64| bottom + (top - bottom) * k / last;
        let rise = |rise: usize| (0..levels).map(move |k| k as f64 + rise as f64 / times as f64);
        Schedule::Steps((0..times).flat_map(rise).map(at).collect())
    }

    /// Checks the rates.
    ///
    /// # Errors
    /// A rate is not finite, not above zero, or above `RATE_MAX`; there are no levels, or
    /// too many.
    pub fn check(&self) -> Result<(), &'static str> {
        match self {
            Schedule::Constant(rate) => check_rate(*rate),
            Schedule::Ramp { from, to } => check_rate(*from).and_then(|()| check_rate(*to)),
            Schedule::Steps(levels) if levels.is_empty() || levels.len() > LEVELS_MAX => {
                Err("the number of steps must be in 1..=10000")
            }
            Schedule::Steps(levels) => levels.iter().try_for_each(|rate| check_rate(*rate)),
            Schedule::ClosedLoop => Ok(()),
        }
    }

    /// The highest rate in the schedule; `None` for a closed loop.
    pub fn highest(&self) -> Option<f64> {
        match self {
            Schedule::Constant(rate) => Some(*rate),
            Schedule::Ramp { from, to } => Some(from.max(*to)),
            Schedule::Steps(levels) => levels.iter().copied().reduce(f64::max),
            Schedule::ClosedLoop => None,
        }
    }

    fn segments(&self, length: Duration) -> Vec<Segment> {
        let length_s = length.as_secs_f64();
        let line = |start_s, length_s, from, to| Segment { start_s, length_s, from, to };
        match self {
            Schedule::Constant(rate) => vec![line(0.0, length_s, *rate, *rate)],
            Schedule::Ramp { from, to } => vec![line(0.0, length_s, *from, *to)],
            Schedule::Steps(levels) => {
                let each = length_s / levels.len() as f64;
                let level = |(k, rate): (usize, &f64)| line(each * k as f64, each, *rate, *rate);
                levels.iter().enumerate().map(level).collect()
            }
            Schedule::ClosedLoop => Vec::new(),
        }
    }
}

fn check_rate(rate: f64) -> Result<(), &'static str> {
    if !rate.is_finite() || rate <= 0.0 {
        Err("a rate must be above zero")
    } else if rate > RATE_MAX {
        Err("a rate must be at most 10000000")
    } else {
        Ok(())
    }
}

/// A part of the run in which the rate changes linearly.
#[derive(Clone, Copy, Debug)]
struct Segment {
    start_s: f64,
    length_s: f64,
    from: f64,
    to: f64,
}

impl Segment {
    fn requests(&self) -> f64 {
        0.5 * (self.from + self.to) * self.length_s
    }

    /// When, in seconds after the segment's start, `count` requests have become due.
    fn instant_s(&self, count: f64) -> f64 {
        let slope = (self.to - self.from) / self.length_s;
        let root = (self.from * self.from + 2.0 * slope * count).max(0.0).sqrt();
        2.0 * count / (self.from + root)
    }
}

/// The intended starts of a run, in nanoseconds after its beginning. They never decrease.
///
/// Empty for a closed loop.
#[derive(Debug)]
pub struct Starts {
    segments: Vec<Segment>,
    at: usize,
    /// Requests due in the segments before `at`.
    before: f64,
    /// Requests due when the next one starts.
    due: f64,
    arrivals: Arrivals,
    random: Random,
}

impl Starts {
    /// The starts that `schedule` defines within `length`. Only Poisson arrivals use `seed`.
    pub fn new(schedule: &Schedule, arrivals: Arrivals, length: Duration, seed: u64) -> Starts {
        let mut random = Random::new(seed);
        let due = match arrivals {
            Arrivals::Deterministic => 0.0,
            Arrivals::Poisson => random.exponential(),
        };
        let segments = schedule.segments(length);
        Starts { segments, at: 0, before: 0.0, due, arrivals, random }
    }
}

impl Iterator for Starts {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        loop {
            let segment = self.segments.get(self.at)?;
            let within = self.due - self.before;
            let requests = segment.requests();
            // With this tolerance, rounding cannot yield a level's last instant twice.
            if within >= requests - 1e-9 {
                self.before += requests;
                self.due = self.due.max(self.before);
                self.at += 1;
                continue;
            }
            let at_s = segment.start_s + segment.instant_s(within);
            self.due += match self.arrivals {
                Arrivals::Deterministic => 1.0,
                Arrivals::Poisson => self.random.exponential(),
            };
            return Some((at_s * 1e9) as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(typed: &str, arrivals: Arrivals, seconds: u64) -> Vec<u64> {
        let schedule: Schedule = typed.parse().unwrap();
        Starts::new(&schedule, arrivals, Duration::from_secs(seconds), 1).collect()
    }

    fn in_second(starts: &[u64], second: u64) -> usize {
        starts.iter().filter(|at| *at / 1_000_000_000 == second).count()
    }

    #[test]
    fn a_constant_rate_ticks_like_a_clock() {
        let starts = starts("1000", Arrivals::Deterministic, 3);
        assert_eq!(starts.len(), 3000);
        assert_eq!(starts[0], 0);
        assert!((0..3).all(|second| in_second(&starts, second) == 1000));
        assert!(starts.windows(2).all(|pair| (pair[1] - pair[0]).abs_diff(1_000_000) <= 1));
    }

    #[test]
    fn a_ramp_rises_in_a_straight_line() {
        let starts = starts("1000..3000", Arrivals::Deterministic, 4);
        assert_eq!(starts.len(), 8000);
        // The mean rates of the seconds lie on the line: 1250, 1750, 2250, 2750.
        for (second, expected) in [1250, 1750, 2250, 2750].into_iter().enumerate() {
            assert!(in_second(&starts, second as u64).abs_diff(expected) <= 1);
        }
    }

    #[test]
    fn a_ramp_may_fall() {
        let starts = starts("3000..1000", Arrivals::Deterministic, 4);
        assert_eq!(starts.len(), 8000);
        assert!(in_second(&starts, 0).abs_diff(2750) <= 1);
    }

    #[test]
    fn each_rise_covers_the_range_between_the_levels_of_the_others() {
        let Schedule::Steps(levels) = Schedule::rises(1000.0, Duration::from_secs(30), 3) else {
            panic!("rises are steps");
        };
        assert_eq!(levels.len(), 30);
        assert_eq!(levels[0], 50.0);
        assert!((levels[29] - 1000.0).abs() < 1e-9, "{levels:?}");
        for rise in levels.chunks(10) {
            assert!(rise.windows(2).all(|pair| pair[0] < pair[1]), "{rise:?}");
        }
        let mut sorted = levels.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.dedup();
        assert_eq!(sorted.len(), 30, "no level comes twice");
    }

    #[test]
    fn steps_are_level_and_equally_long() {
        let starts = starts("100..500/5", Arrivals::Deterministic, 10);
        assert_eq!(starts.len(), 2 * (100 + 200 + 300 + 400 + 500));
        for second in 0..10 {
            let level = 100 * (second / 2 + 1);
            assert!(in_second(&starts, second).abs_diff(level as usize) <= 1);
        }
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_spread() {
        let starts = starts("2000", Arrivals::Poisson, 50);
        // Mean 100,000, standard deviation 316.
        assert!(starts.len().abs_diff(100_000) < 5 * 316, "{}", starts.len());
        assert!(starts.windows(2).all(|pair| pair[0] <= pair[1]));
        let counts: Vec<f64> = (0..5000)
            .map(|bin| {
                let at = bin * 10_000_000;
                let low = starts.partition_point(|s| *s < at);
                (starts.partition_point(|s| *s < at + 10_000_000) - low) as f64
            })
            .collect();
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        let squares = counts.iter().map(|c| (c - mean) * (c - mean)).sum::<f64>();
        let dispersion = squares / counts.len() as f64 / mean;
        assert!((0.9..1.1).contains(&dispersion), "{dispersion}");
    }

    #[test]
    fn the_same_seed_gives_the_same_starts() {
        let schedule = Schedule::Constant(1000.0);
        let of = |seed| -> Vec<u64> {
            Starts::new(&schedule, Arrivals::Poisson, Duration::from_secs(1), seed).collect()
        };
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
    }

    #[test]
    fn invalid_rates_are_refused() {
        for typed in [
            "",
            "x",
            "0",
            "-5",
            "NaN",
            "inf",
            "1e9",
            "1..",
            "..5",
            "1..0",
            "1..5/",
            "1..5/1",
            "1..5/x",
            "1..5/10001",
            "1..2..3",
            "1/3",
            "1..5/-2",
        ] {
            let error = typed.parse::<Schedule>().unwrap_err();
            assert!(error.to_string().contains(&format!("{typed:?}")), "{error}");
        }
    }

    #[test]
    fn a_schedule_survives_display_and_parsing() {
        for typed in ["1000", "1000..60000", "1000..60000/12", "closed", "0.5"] {
            let schedule: Schedule = typed.parse().unwrap();
            assert_eq!(schedule.to_string(), typed);
            assert_eq!(schedule.check(), Ok(()));
        }
    }

    #[test]
    fn a_closed_loop_has_no_intended_starts() {
        assert!(starts("closed", Arrivals::Poisson, 1).is_empty());
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(100))]

        #[test]
        fn starts_are_as_many_as_the_rate_asks_for_and_in_order(
            from in 1.0..3000.0f64,
            to in 1.0..3000.0f64,
            steps in 2usize..20,
            ramp in proptest::bool::ANY,
            length_ms in 10u64..3000,
        ) {
            let length = Duration::from_millis(length_ms);
            let schedule =
                if ramp { Schedule::Ramp { from, to } } else { Schedule::steps(from, to, steps) };
            let starts: Vec<u64> =
                Starts::new(&schedule, Arrivals::Deterministic, length, 0).collect();
            let due = 0.5 * (from + to) * length.as_secs_f64();
            assert!((starts.len() as f64 - due).abs() <= 1.0 + 1e-6, "{} {due}", starts.len());
            assert!(starts.windows(2).all(|pair| pair[0] <= pair[1]));
            assert!(starts.iter().all(|at| *at <= length.as_nanos() as u64));
        }
    }
}
