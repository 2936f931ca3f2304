//! The cost of requests by class: by outcome, by method, by size, by TLS, each in a separate fit.
//!
//! The name of a class in the log is four words (outcome, method, size, TLS). One fit of all
//! combinations of words would be imprecise for each combination. A fit by one word at a time shows
//! what this word explains, including everything that varies with the word. Classes that could not
//! be separated are reported as merged.

use std::collections::BTreeMap;

use regress::WhyMerged;
use serde::Serialize;
use trial::Trial;

use super::fit::Fitted;
use crate::parallel::in_parallel;

/// The words of a class, in their order.
pub(super) const WORDS: [&str; 4] = ["outcome", "method", "size", "tls"];

/// Largest share of requests without a class (log lines that were not understood, a log without
/// classes); with more, nothing is fitted.
const UNCLASSIFIED_SHARE_MAX: f64 = 0.05;

/// The costs by one word of the class.
#[derive(Clone, Debug, Serialize)]
pub struct ClassTable {
    /// The word: "outcome", "method", "size", "tls".
    pub by: &'static str,
    /// The classes, the most frequent first.
    pub rows: Vec<ClassCostRow>,
    /// The mean cost of a request by this fit, microseconds.
    pub mean_us: f64,
    /// The merged classes with the reason, one sentence each.
    pub merged: Vec<String>,
    /// Intervals fitted.
    pub n: usize,
    /// Level of the intervals.
    pub level: f64,
}

/// One class, or several merged classes.
#[derive(Clone, Debug, Serialize)]
pub struct ClassCostRow {
    /// Its name, "hit", or "hit + miss" if they were merged.
    pub name: String,
    /// Its share of the requests, percent.
    pub share_percent: f64,
    /// CPU time of one more request, microseconds; never below zero.
    pub us_per_request: f64,
    /// Lower end of its interval.
    pub us_low: f64,
    /// Upper end of it.
    pub us_high: f64,
    /// Whether the unconstrained fit would be below zero.
    pub at_zero: bool,
}

/// A table for each word that takes at least two values in this trial.
pub(super) fn classes(trial: &Trial, main: &Fitted, level: f64, seed: u64) -> Vec<ClassTable> {
    let words = WORDS.into_iter().enumerate().collect();
    let tables = in_parallel(words, |(word, by)| table(trial, main, word, by, (level, seed)));
    tables.into_iter().flatten().collect()
}

/// Requests per second by one word of the class, in each row of the fit; `None` if too many
/// requests have no class.
pub(super) fn rates_by_class(
    trial: &Trial,
    main: &Fitted,
    word: usize,
) -> Option<BTreeMap<String, Vec<f64>>> {
    let intervals = trial.intervals();
    let place: BTreeMap<u64, usize> =
        main.rows().iter().enumerate().map(|(at, &row)| (intervals[row].index, at)).collect();
    let mut rates: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in trial.classes() {
        let (Some(&at), Some(name)) = (place.get(&row.interval), row.class.split(' ').nth(word))
        else {
            continue;
        };
        let seconds = intervals[main.rows()[at]].length_ns as f64 / 1e9;
        let name = if name == "-" { "other" } else { name };
        if !rates.contains_key(name) {
            rates.insert(name.to_owned(), vec![0.0; place.len()]);
        }
        if let Some(class) = rates.get_mut(name) {
            class[at] += row.requests / seconds;
        }
    }
    let classified: f64 = rates.values().flatten().sum();
    let all: f64 = main.rates().iter().sum();
    (classified >= (1.0 - UNCLASSIFIED_SHARE_MAX) * all).then_some(rates)
}

fn table(
    trial: &Trial,
    main: &Fitted,
    word: usize,
    by: &'static str,
    (level, seed): (f64, u64),
) -> Option<ClassTable> {
    let rates = rates_by_class(trial, main, word).filter(|rates| rates.len() > 1)?;
    let names: Vec<&str> = rates.keys().map(String::as_str).collect();
    let series: Vec<&[f64]> = rates.values().map(Vec::as_slice).collect();
    let found = regress::class_costs(&series, &main.cost(), level, seed).ok()?;
    let joined = |members: &[usize]| {
        members.iter().map(|&member| names[member]).collect::<Vec<_>>().join(" + ")
    };
    let rows = found.classes.iter().map(|class| ClassCostRow {
        name: joined(&class.members),
        share_percent: 100.0 * class.share,
        us_per_request: 1e6 * class.cost.value,
        us_low: 1e6 * class.cost.low,
        us_high: 1e6 * class.cost.high,
        at_zero: class.at_zero,
    });
    let merged = found.merged.iter().map(|merged| {
        let (from, into) = (joined(&merged.from), joined(&merged.into));
        match merged.why {
            WhyMerged::Rare(share) => {
                format!("{from} counted with {into}: only {:.2} % of the requests", 100.0 * share)
            }
            WhyMerged::Alike(_) => {
                format!("{from} and {into} cannot be separated: they rise and fall together")
            }
        }
    });
    Some(ClassTable {
        by,
        rows: rows.collect(),
        mean_us: 1e6 * found.mean,
        merged: merged.collect(),
        n: found.n,
        level,
    })
}
