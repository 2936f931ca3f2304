//! Why the data identify no capacity: a sentence with the statistics, and a plain sentence.

use std::fmt;

use serde::Serialize;

use crate::interval::Interval;

/// Why the data do not identify a capacity.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The slope is not significantly different from zero.
    RateDidNotVary,
    /// The rate was nearly constant.
    ConstantRate {
        /// By which factor it varied ([`crate::variation::folds`]).
        folds: f64,
    },
    /// The line would stand on so few intervals that differ in rate from all others.
    FewIntervals {
        /// Their number.
        carrying: usize,
        /// All intervals.
        n: usize,
    },
    /// The slope would differ significantly from zero if the intervals were independent, but they
    /// are correlated: under a load that only rises, drift over time cannot be separated from
    /// growth with the rate.
    NeighboursAlike {
        /// The lag-one correlation of the residuals.
        rho: f64,
        /// The effective number of independent intervals.
        effective_n: f64,
    },
    /// The slope is zero or negative.
    CostDoesNotRise,
    /// The line's fixed cost is at or above the cap.
    NoRoomUnderCap,
    /// The resource was hardly used: a capacity would be extrapolated from next to nothing.
    TooQuiet {
        /// The highest use seen, as a share of the cap.
        reach: f64,
    },
}

impl Why {
    /// The same without statistics, in full sentences.
    #[must_use]
    pub fn plain(&self) -> &'static str {
        match self {
            Why::RateDidNotVary | Why::ConstantRate { .. } | Why::FewIntervals { .. } => {
                "the load has not varied enough. The capacity becomes known when it rises and \
                 falls."
            }
            Why::NeighboursAlike { .. } => {
                "the load has changed too slowly. The capacity becomes known when the load has \
                 risen and fallen a few times."
            }
            Why::CostDoesNotRise => "more requests did not use more of the server.",
            Why::NoRoomUnderCap => "by the line, the server would be full even without requests.",
            Why::TooQuiet { .. } => {
                "it is hardly used. The capacity becomes known when the load rises."
            }
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::RateDidNotVary => f.write_str(Interval::NOT_IDENTIFIABLE),
            Why::ConstantRate { folds } => write!(
                f,
                "the rate was nearly constant ({folds:.1}-fold): a line needs a rate that at least \
                 doubles; record while the load rises or falls"
            ),
            Why::FewIntervals { carrying, n } => write!(
                f,
                "the rate was nearly constant, but for {carrying} of {n} intervals: a line needs \
                 more of them at other rates; record while the load rises or falls"
            ),
            Why::NeighboursAlike { rho, effective_n } => write!(
                f,
                "not identifiable: neighbouring intervals are correlated ({rho:.2}) and count as \
                 only {effective_n:.1}; let the rate rise and fall, or record for longer"
            ),
            Why::CostDoesNotRise => {
                f.write_str("not identifiable: the cost does not rise with the rate")
            }
            Why::NoRoomUnderCap => {
                f.write_str("not identifiable: the fixed cost alone is above the cap")
            }
            Why::TooQuiet { reach } => write!(
                f,
                "not known yet: only {:.1} % of the resource was used; record while it is busier, \
                 or with a load",
                100.0 * reach
            ),
        }
    }
}
