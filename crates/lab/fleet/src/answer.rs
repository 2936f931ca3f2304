//! What the answers have in common.

use report::format::change;
use serde::Serialize;

use crate::home::{ResourceCosts, ServerCosts, ServerId};

/// Level of the intervals.
pub const LEVEL: f64 = 0.95;
/// Expected share of false alarms among the alarms.
pub const Q: f64 = 0.05;

/// A figure with its interval at [`LEVEL`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// Its value.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Figure {
    /// A ratio, from its logarithm, the variance of that, and its degrees of freedom.
    pub(crate) fn ratio(log: f64, variance: f64, dof: f64) -> Figure {
        Figure::linear(log, variance, dof).map(f64::exp)
    }

    pub(crate) fn linear(value: f64, variance: f64, dof: f64) -> Figure {
        let half = regress::student_t_quantile(0.5 + LEVEL / 2.0, dof.min(1e6)) * variance.sqrt();
        Figure { value, low: value - half, high: value + half }
    }

    pub(crate) fn map(self, one: impl Fn(f64) -> f64) -> Figure {
        Figure { value: one(self.value), low: one(self.low), high: one(self.high) }
    }

    /// The interval of a ratio, as regress has it.
    pub(crate) fn interval(&self) -> regress::Interval {
        regress::Interval::Bounded { low: self.low, high: self.high }
    }

    /// A ratio as a change in percent: `+8.1 (+7.0 to +9.2)`.
    pub(crate) fn as_change(&self) -> String {
        format!("{} ({} to {})", change(self.value), change(self.low), change(self.high))
    }
}

/// A server that is not part of an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LeftOut {
    /// The server.
    pub server: ServerId,
    /// The reason.
    pub why: String,
}

/// Variances that are added, each with its degrees of freedom: their sum, and the degrees of
/// freedom of that (Satterthwaite).
pub(crate) fn sum_of_variances(parts: &[(f64, f64)]) -> (f64, f64) {
    let sum: f64 = parts.iter().map(|(variance, _)| variance).sum();
    let by_dof: f64 = parts.iter().map(|(variance, dof)| variance * variance / dof).sum();
    (sum, if by_dof > 0.0 { sum * sum / by_dof } else { f64::INFINITY })
}

/// The two-sided probability of a deviation at least as large.
pub(crate) fn p_value(deviation: f64, variance: f64, dof: f64) -> f64 {
    regress::student_t_two_sided_p(deviation / variance.sqrt(), dof.min(1e6))
}

/// The resource that requests are charged to: all threads of the server, if they are known.
pub(crate) fn charged(costs: &ServerCosts) -> Option<&ResourceCosts> {
    ["all threads", "hottest thread", "machine"]
        .iter()
        .find_map(|kind| costs.resources.iter().find(|r| r.kind == *kind && !r.bins.is_empty()))
}

/// The rates of a bin, requests/s: the lowest and the first above it.
pub(crate) fn rates(bin: i32) -> (f64, f64) {
    let from = |bin: i32| (f64::from(bin) / regress::bins::BINS_PER_OCTAVE).exp2();
    (from(bin), from(bin + 1))
}

pub(crate) fn fact(label: &str, text: impl Into<String>) -> (String, String) {
    (label.to_owned(), text.into())
}

/// The servers that were left out, as a sentence: how many for each reason, with the first names.
pub(crate) fn left_out(servers: &[LeftOut]) -> Option<(String, String)> {
    const NAMES: usize = 3;
    let mut reasons: Vec<&str> = servers.iter().map(|one| one.why.as_str()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    let of = |why: &str| {
        let of_it: Vec<String> =
            servers.iter().filter(|one| one.why == why).map(|one| one.server.to_string()).collect();
        let more = if of_it.len() > NAMES { ", …" } else { "" };
        format!("{}: {why} ({}{more})", of_it.len(), of_it[..of_it.len().min(NAMES)].join(", "))
    };
    let text = reasons.into_iter().map(of).collect::<Vec<String>>().join("; ");
    (!text.is_empty()).then(|| fact("Left out", text))
}
