//! Latency against the rate: less queueing may matter more than the highest throughput.
//!
//! Points are quantiles of single intervals. Bins merge the histograms of intervals with similar
//! rates, so that the quantiles of a bin are quantiles of all its requests and not averages of
//! quantiles. Latencies that the generator marked invalid (it had fallen behind) are counted but
//! not used.

use std::collections::BTreeMap;

use regress::AtObjective;
use serde::Serialize;
use trial::{Histogram, Interval, LatencyRow, LatencySource};

use super::figures::CapacityFigure;
use super::to_come::LatencyToCome;
use super::{IntervalRow, Standing};

/// The latencies of a trial.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Their source.
    pub source: LatencySource,
    /// What latency is counted from: "the intended start", "the log's elapsed time".
    pub counted_from: String,
    /// One point per interval, in time order.
    pub points: Vec<LatencyPoint>,
    /// Bins of intervals with similar rates, in the order of the rate.
    pub bins: Vec<LatencyBin>,
    /// The measured saturation, if there is one.
    pub saturation: Option<LatencyBin>,
    /// Latencies that their source marked invalid, which are not used.
    pub invalid: u64,
    /// Rows that could not be read.
    pub unreadable: u64,
    /// The capacity at the latency objective, if there is one.
    pub objective: Option<Objective>,
    /// Latency at rates that were not reached.
    pub to_come: LatencyToCome,
}

/// Latency of one interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LatencyPoint {
    /// The interval's number.
    pub interval: u64,
    /// Requests per second in it.
    pub rate: f64,
    /// Whether the interval is part of the measured saturation.
    pub saturated: bool,
    /// Latencies in it.
    pub count: u64,
    /// Median, microseconds.
    pub median_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
    /// The longest, microseconds.
    pub max_us: f64,
}

/// Latency of several intervals.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LatencyBin {
    /// The lowest rate in it.
    pub rate_low: f64,
    /// The highest rate in it.
    pub rate_high: f64,
    /// Intervals in it.
    pub intervals: usize,
    /// Latencies in it.
    pub count: u64,
    /// Median, microseconds.
    pub median_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
    /// The longest, microseconds.
    pub max_us: f64,
}

/// The rate up to which the latency objective is met.
#[derive(Clone, Debug, Serialize)]
pub struct Objective {
    /// The quantile that is bounded, 0 to 1.
    pub quantile: f64,
    /// Its bound, milliseconds.
    pub ms: f64,
    /// The rates at which it is met; `None` if no interval has latencies.
    pub at: Option<AtObjective>,
}

const BINS_MAX: usize = 8;

/// Joins the rows of one source (the generator, if it has any) with the intervals.
pub(super) fn latency_of(
    rows: &[LatencyRow],
    intervals: &[IntervalRow],
    objective: Option<(f64, f64)>,
    capacity: &CapacityFigure,
) -> Option<Latency> {
    let source = rows.iter().map(|row| row.source).min()?;
    let by_index: BTreeMap<u64, &IntervalRow> = intervals.iter().map(|i| (i.index, i)).collect();
    let Merged { histograms: merged, invalid, unreadable } = Merged::of(rows, source);
    let mut fitted: Vec<(f64, &Histogram<u64>)> = Vec::new();
    let mut saturated: Vec<(f64, &Histogram<u64>)> = Vec::new();
    let mut points = Vec::new();
    for (index, histogram) in &merged {
        let Some(row) = by_index.get(index).filter(|_| !histogram.is_empty()) else { continue };
        match row.standing {
            Standing::Fit | Standing::SetAside => fitted.push((row.rate, histogram)),
            Standing::Saturation => saturated.push((row.rate, histogram)),
            _ => continue,
        }
        points.push(point(row, histogram));
    }
    if points.is_empty() && invalid == 0 && unreadable == 0 {
        return None;
    }
    let objective = objective.map(|(quantile, ms)| Objective {
        quantile,
        ms,
        at: at_objective(&fitted, quantile, ms),
    });
    let bound = objective.as_ref().and_then(|objective| match objective.at {
        Some(AtObjective::NotReached { .. }) => Some((objective.quantile, 1e3 * objective.ms)),
        _ => None,
    });
    Some(Latency {
        source,
        counted_from: match source {
            LatencySource::Generator => "the intended start of the request".to_string(),
            LatencySource::Log => "the access log's elapsed time".to_string(),
            LatencySource::Sockets => "the server's first read of the request".to_string(),
        },
        points,
        to_come: LatencyToCome::of(&fitted, source, capacity, bound),
        bins: bins(fitted),
        saturation: bin(&saturated),
        invalid,
        unreadable,
        objective,
    })
}

/// All latencies of these intervals in one bin, from one source: the generator, if it has any.
pub(super) fn together(rows: &[LatencyRow], intervals: &[Interval]) -> Option<LatencyBin> {
    let source = rows.iter().map(|row| row.source).min()?;
    let rates: BTreeMap<u64, f64> = intervals.iter().map(|i| (i.index, i.rate())).collect();
    let merged = Merged::of(rows, source).histograms;
    let members: Vec<(f64, &Histogram<u64>)> =
        merged.iter().filter_map(|(index, all)| Some((*rates.get(index)?, all))).collect();
    bin(&members)
}

/// The latencies of each of these intervals, from one source, by the interval's number.
pub(super) fn each(rows: &[LatencyRow], intervals: &[Interval]) -> BTreeMap<u64, LatencyBin> {
    let Some(source) = rows.iter().map(|row| row.source).min() else { return BTreeMap::new() };
    let merged = Merged::of(rows, source).histograms;
    let of = |interval: &Interval| {
        let histogram = merged.get(&interval.index)?;
        Some((interval.index, bin(&[(interval.rate(), histogram)])?))
    };
    intervals.iter().filter_map(of).collect()
}

/// The rows of one source, by interval.
#[derive(Default)]
struct Merged {
    histograms: BTreeMap<u64, Histogram<u64>>,
    /// Latencies marked invalid, which are not used.
    invalid: u64,
    /// Rows that could not be read.
    unreadable: u64,
}

impl Merged {
    fn of(rows: &[LatencyRow], source: LatencySource) -> Merged {
        let mut merged = Merged::default();
        for row in rows.iter().filter(|row| row.source == source) {
            if row.invalid {
                merged.invalid += row.count;
                continue;
            }
            let into = merged.histograms.entry(row.interval).or_insert_with(empty);
            if row.histogram_us().is_none_or(|histogram| add(into, &histogram).is_none()) {
                merged.unreadable += 1;
            }
        }
        merged
    }
}

fn at_objective(fitted: &[(f64, &Histogram<u64>)], quantile: f64, ms: f64) -> Option<AtObjective> {
    let rates: Vec<f64> = fitted.iter().map(|(rate, _)| *rate).collect();
    let at = |h: &Histogram<u64>| h.value_at_quantile(quantile) as f64 / 1e3;
    let latencies: Vec<f64> = fitted.iter().map(|(_, histogram)| at(histogram)).collect();
    regress::capacity_at_objective(&rates, &latencies, ms).ok()
}

fn point(row: &IntervalRow, histogram: &Histogram<u64>) -> LatencyPoint {
    LatencyPoint {
        interval: row.index,
        rate: row.rate,
        saturated: row.standing == Standing::Saturation,
        count: histogram.len(),
        median_us: histogram.value_at_quantile(0.5) as f64,
        p99_us: histogram.value_at_quantile(0.99) as f64,
        max_us: histogram.max() as f64,
    }
}

/// Bins of equally many intervals, in the order of the rate.
fn bins(mut fitted: Vec<(f64, &Histogram<u64>)>) -> Vec<LatencyBin> {
    fitted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let size = fitted.len().div_ceil(BINS_MAX).max(1);
    fitted.chunks(size).filter_map(bin).collect()
}

fn bin(members: &[(f64, &Histogram<u64>)]) -> Option<LatencyBin> {
    let mut all = empty();
    for (_, histogram) in members {
        add(&mut all, histogram)?;
    }
    let rates = members.iter().map(|(rate, _)| *rate);
    (!all.is_empty()).then(|| LatencyBin {
        rate_low: rates.clone().fold(f64::INFINITY, f64::min),
        rate_high: rates.fold(0.0, f64::max),
        intervals: members.len(),
        count: all.len(),
        median_us: all.value_at_quantile(0.5) as f64,
        p99_us: all.value_at_quantile(0.99) as f64,
        max_us: all.max() as f64,
    })
}

pub(super) fn empty() -> Histogram<u64> {
    Histogram::new(3).expect("three significant digits are allowed")
}

/// `None` if a value of `more` does not fit, which cannot happen in a histogram that resizes.
pub(super) fn add(into: &mut Histogram<u64>, more: &Histogram<u64>) -> Option<()> {
    into.add(more).ok()
}
