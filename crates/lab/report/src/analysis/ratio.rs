//! The options of a comparison of two trials, and the form of its results.

use regress::Estimate;
use regress::compare::equivalent;
use serde::Serialize;

use super::Options;

/// Options of a comparison.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// Options of the analysis of each trial.
    pub analysis: Options,
    /// Changes within this share count as no change, if the interval is within it too.
    pub margin: f64,
    /// Sd of the level between runs of one server, as a share; 0 if the two runs were interleaved.
    /// `None`: it is estimated from the trials.
    pub between_run: Option<f64>,
    /// Accepted rate of false positives among the groups and procedures marked significant.
    pub false_alarms: f64,
}

impl Default for CompareOptions {
    fn default() -> CompareOptions {
        CompareOptions {
            analysis: Options::default(),
            margin: 0.10,
            between_run: None,
            false_alarms: 0.05,
        }
    }
}

/// The verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A request costs more at the same load, or the measured saturation is lower.
    Regression,
    /// A request costs less or the saturation is higher, and neither is worse.
    Improvement,
    /// The cost at the same load is within the margin, including its interval.
    NoChange,
    /// None of these can be shown.
    Inconclusive,
}

/// A ratio with two intervals.
#[derive(Clone, Debug, Serialize)]
pub struct Ratio {
    /// After over before.
    pub value: f64,
    /// Lower end by these two trials alone.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Lower end including the sd between runs.
    pub runs_low: Option<f64>,
    /// Upper end.
    pub runs_high: Option<f64>,
    /// Whether it is within the margin, including its interval.
    pub equivalent: bool,
}

impl Ratio {
    pub(super) fn of(own: &Estimate, of_runs: &Estimate, margin: f64) -> Ratio {
        let (low, high) = own.interval.bounds().unzip();
        let (runs_low, runs_high) = of_runs.interval.bounds().unzip();
        let equivalent = equivalent(&of_runs.interval, margin);
        Ratio { value: own.value, low, high, runs_low, runs_high, equivalent }
    }
}
