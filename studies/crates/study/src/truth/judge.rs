//! Compares estimates with the truth.

use std::io;
use std::path::Path;

use harness::Error;
use report::{CompareOptions, CostRow, Grade, Instead, Options};
use serde::Serialize;
use trial::{Trial, Writer};

use super::server::Spent;
use super::{REMOVED, Run};

/// A figure with its interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Side {
    /// The estimate.
    pub(super) value: f64,
    /// Lower end.
    pub(super) low: f64,
    /// Upper end.
    pub(super) high: f64,
}

/// One figure of one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Judged {
    /// Its name.
    pub(super) what: &'static str,
    /// The estimate; none if the report gave no such figure.
    pub(super) found: Option<Side>,
    /// The true value, in the same unit.
    pub(super) truth: f64,
    /// Whether the interval contains the truth.
    pub(super) held: bool,
}

/// One figure over all runs.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Tally {
    /// Its name.
    pub(super) what: &'static str,
    /// Runs.
    pub(super) runs: usize,
    /// Runs in which it held.
    pub(super) held: usize,
    /// Mean error of the estimates, percent of the truth.
    pub(super) error_percent: f64,
    /// Median half width of the intervals, percent of the truth.
    pub(super) width_percent: f64,
}

/// The figures of one trial, before the truth is known.
pub(super) struct Estimated(Vec<(Figure, Option<Side>)>);

/// A figure to judge: its name, and how its true value follows from the CPU time that was spent
/// with the group and without.
type Figure = (&'static str, fn(&[Spent; 2]) -> f64);

/// Microseconds for each of `count`.
fn each_us(ns: u64, count: u64) -> f64 {
    ns as f64 / 1e3 / count as f64
}

/// The cost of a request of either class.
fn request_us(spent: &Spent) -> f64 {
    each_us(spent.hits_ns + spent.misses_ns, spent.requests)
}

/// Requests a second that one CPU can serve.
fn capacity(spent: &Spent) -> f64 {
    let house = spent.house_ns as f64 / spent.length_ns as f64;
    1e6 * (1.0 - house) / request_us(spent)
}

const REQUEST: Figure = ("a request, us", |[with, _]| request_us(with));
const FIXED: Figure =
    ("fixed, % of the CPU", |[with, _]| 100.0 * with.house_ns as f64 / with.length_ns as f64);
const READING: Figure =
    ("group that reads, us", |[with, _]| each_us(with.request_ns, with.requests));
const TABLE: Figure = ("group that walks, us", |[with, _]| each_us(with.table_ns, with.requests));
const COPY: Figure = ("group that copies, us", |[with, _]| each_us(with.copy_ns, with.requests));
const HIT: Figure = ("a hit, us", |[with, _]| each_us(with.hits_ns, with.requests - with.misses));
const MISS: Figure = ("a miss, us", |[with, _]| each_us(with.misses_ns, with.misses));
const CAPACITY: Figure = ("capacity, requests/s", |[with, _]| capacity(with));
const WITHOUT: Figure = ("capacity without it, predicted", |[_, without]| capacity(without));

/// Analyses the first trial, and adds the prediction to its ledger.
pub(super) fn estimate(path: &Path, options: &Options) -> Result<Estimated, Error> {
    let trial = Trial::open(path)?;
    let analysis = report::analyse(&trial, options)?;
    let Some(costs) = &analysis.costs else {
        let refused = trial.manifest().capabilities.iter().find(|able| able.name == "profile");
        let why = refused.map_or("the report has no costs", |able| able.reason.as_str());
        return Err(Error::System("there is no profile", io::Error::other(why.to_owned())));
    };
    let marginal =
        |row: &CostRow| Side { value: row.us_per_request, low: row.us_low, high: row.us_high };
    let group = |name: &str| {
        let mut groups = costs.groups.iter().map(|group| &group.row);
        groups.find(|row| row.group == name).map(marginal)
    };
    let by_outcome = analysis.classes.iter().find(|table| table.by == "outcome");
    let class = |name: &str| {
        let row = by_outcome?.rows.iter().find(|row| row.name == name)?;
        Some(Side { value: row.us_per_request, low: row.us_low, high: row.us_high })
    };
    let whole = &costs.whole;
    let fixed = Side { value: whole.fixed_percent, low: whole.fixed_low, high: whole.fixed_high };
    let predicted = report::what_if(&trial, options, REMOVED, Instead::Scale(0.0))?;
    let mut writer = Writer::reopen(path)?;
    writer.prediction(&predicted.prediction(load::sys::wall_ns()))?;
    writer.finish()?;
    let capacity = &analysis.capacity;
    Ok(Estimated(vec![
        (REQUEST, Some(marginal(whole))),
        (FIXED, Some(fixed)),
        (READING, group("request")),
        (TABLE, group("table")),
        (COPY, group("copy")),
        (HIT, class("hit")),
        (MISS, class("miss")),
        (CAPACITY, side(capacity.value, capacity.low, capacity.high)),
        (WITHOUT, side(Some(predicted.value), predicted.low, predicted.high)),
    ]))
}

/// The grade that `compare` gives the prediction after the change.
pub(super) fn grade(before: &Path, after: &Path, options: &Options) -> Result<Grade, Error> {
    let options = CompareOptions { analysis: options.clone(), ..CompareOptions::default() };
    let compared = report::compare(&Trial::open(before)?, &Trial::open(after)?, &options)?;
    Ok(compared.graded.first().map_or(Grade::Inconclusive, |graded| graded.grade))
}

fn side(value: Option<f64>, low: Option<f64>, high: Option<f64>) -> Option<Side> {
    Some(Side { value: value?, low: low?, high: high? })
}

impl Estimated {
    /// Compares the estimates with the truth.
    pub(super) fn judge(self, spent: &[Spent; 2]) -> Vec<Judged> {
        let judged = |((what, truth), found): (Figure, Option<Side>)| {
            let truth = truth(spent);
            let held = found.is_some_and(|found| found.low <= truth && truth <= found.high);
            Judged { what, found, truth, held }
        };
        self.0.into_iter().map(judged).collect()
    }
}

/// The tally of each figure over the runs.
pub(super) fn tallies(runs: &[Run]) -> Vec<Tally> {
    let Some(first) = runs.first() else { return Vec::new() };
    let tally = |(at, figure): (usize, &Judged)| {
        let all: Vec<&Judged> = runs.iter().map(|run| &run.judged[at]).collect();
        let found: Vec<(Side, f64)> =
            all.iter().filter_map(|judged| Some((judged.found?, judged.truth))).collect();
        let errors = found.iter().map(|(side, truth)| 100.0 * (side.value / truth - 1.0));
        let mut widths: Vec<f64> =
            found.iter().map(|(side, truth)| 50.0 * (side.high - side.low) / truth).collect();
        widths.sort_by(f64::total_cmp);
        Tally {
            what: figure.what,
            runs: all.len(),
            held: all.iter().filter(|judged| judged.held).count(),
            error_percent: errors.sum::<f64>() / found.len() as f64,
            width_percent: widths.get(widths.len() / 2).copied().unwrap_or(f64::NAN),
        }
    };
    first.judged.iter().enumerate().map(tally).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent() -> Spent {
        Spent {
            requests: 1_000,
            misses: 400,
            hits_ns: 420_000_000,
            misses_ns: 580_000_000,
            request_ns: 200_000_000,
            table_ns: 300_000_000,
            copy_ns: 450_000_000,
            house_ns: 100_000_000,
            length_ns: 2_000_000_000,
        }
    }

    #[test]
    fn the_truth_of_each_figure_follows_from_the_cpu_time_spent() {
        let both = [spent(), Spent { misses_ns: 280_000_000, table_ns: 0, ..spent() }];
        let truth = |(_, truth): Figure| truth(&both);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9 * b, "{a} is not {b}");
        near(truth(REQUEST), 1_000.0);
        near(truth(FIXED), 5.0);
        near(truth(TABLE), 300.0);
        near(truth(HIT), 700.0);
        near(truth(MISS), 1_450.0);
        near(truth(CAPACITY), 1e6 * 0.95 / 1_000.0);
        near(truth(WITHOUT), 1e6 * 0.95 / 700.0);
        // The classes make up the whole.
        near(0.6 * truth(HIT) + 0.4 * truth(MISS), truth(REQUEST));
    }

    #[test]
    fn a_missing_figure_does_not_hold() {
        let judged = Estimated(vec![
            (HIT, None),
            (MISS, Some(Side { value: 1_400.0, low: 1_300.0, high: 1_500.0 })),
            (TABLE, Some(Side { value: 310.0, low: 305.0, high: 315.0 })),
        ])
        .judge(&[spent(), spent()]);
        let held: Vec<bool> = judged.iter().map(|judged| judged.held).collect();
        assert_eq!(held, [false, true, false]);
        let run = Run { seed: 1, spent: [spent(), spent()], judged, grade: Grade::Held };
        let tallies = tallies(&[run.clone(), run]);
        assert_eq!(tallies.iter().map(|tally| tally.held).collect::<Vec<_>>(), [0, 2, 0]);
        assert!((tallies[2].error_percent - 100.0 / 30.0).abs() < 1e-9);
    }
}
