//! Latency at rates that the recording did not reach, from the recorded latencies and the capacity
//! (see [`regress::to_come`]).

use regress::{AtRate, LatencyCurve, MetUpTo, PredictedLatency, Queue, rates_to_come};
use serde::Serialize;
use trial::{Histogram, LatencySource};

use super::figures::CapacityFigure;
use super::latency::{add, empty};

/// Latency at rates that were not reached.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LatencyToCome {
    /// Why nothing is predicted.
    pub why_not: Option<String>,
    /// Whether the recorded latencies contain the time that a request waits for the server. If
    /// not, this time is added.
    pub is_wait_seen: bool,
    /// Rates beyond the highest recorded rate, ascending.
    pub rates: Vec<LatencyAtRate>,
    /// The rates up to which the objective is met, if it was met at all recorded rates.
    pub objective: Option<MetUpTo>,
    /// Median and 99th percentile by rate.
    #[serde(skip)]
    curves: Option<[LatencyCurve; 2]>,
}

/// The predicted latency at a rate.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LatencyAtRate {
    /// Requests per second.
    pub rate: f64,
    /// The same, percent of the capacity.
    pub percent_of_capacity: f64,
    /// Median.
    pub median: PredictedLatency,
    /// 99th percentile.
    pub p99: PredictedLatency,
}

/// Latencies beyond a quantile without which it is not known.
const BEYOND_MIN: f64 = 10.0;

impl LatencyToCome {
    /// From the histograms of the fitted intervals with their rates, in microseconds. `bound` is
    /// the objective, if it was met at all recorded rates: its quantile, and the bound in
    /// microseconds.
    pub(super) fn of(
        fitted: &[(f64, &Histogram<u64>)],
        source: LatencySource,
        capacity: &CapacityFigure,
        bound: Option<(f64, f64)>,
    ) -> LatencyToCome {
        let is_wait_seen = source == LatencySource::Generator;
        let predicted = || {
            let queue = queue(capacity, is_wait_seen)?;
            let curve = |quantile: f64| {
                LatencyCurve::new(&rows(fitted, quantile), quantile, queue)
                    .map_err(|unfit| unfit.to_string())
            };
            let highest = fitted.iter().map(|(rate, _)| *rate).fold(0.0, f64::max);
            let curves = [curve(0.5)?, curve(0.99)?];
            let met = |(quantile, us)| curve(quantile).map(|at| at.met_up_to(us, highest));
            let objective = bound.map(met).transpose()?;
            let at = |rate: f64| LatencyAtRate {
                rate,
                percent_of_capacity: 100.0 * rate / queue.capacity,
                median: curves[0].at(rate),
                p99: curves[1].at(rate),
            };
            let rates = rates_to_come(highest, queue.capacity).into_iter().map(at).collect();
            Ok(LatencyToCome {
                why_not: None,
                is_wait_seen,
                rates,
                objective,
                curves: Some(curves),
            })
        };
        predicted().unwrap_or_else(|why: String| LatencyToCome {
            why_not: Some(why),
            is_wait_seen,
            ..LatencyToCome::default()
        })
    }

    /// The 99th percentile at any rate.
    #[must_use]
    pub fn p99_at(&self, rate: f64) -> Option<PredictedLatency> {
        self.curves.as_ref().map(|[_, p99]| p99.at(rate))
    }
}

/// The server as a queue, or why it is none.
fn queue(capacity: &CapacityFigure, is_wait_seen: bool) -> Result<Queue, String> {
    let CapacityFigure { value, low, high, highest_rate, level, cap, .. } = *capacity;
    let Some(value) = value else { return Err("the capacity is not known".to_string()) };
    if !capacity.resource.is_cpu_time() {
        return Err(format!("{} limits, and not CPU time", capacity.resource_name));
    }
    let is_bound = regress::capacity::at_least(low, high, highest_rate).is_some();
    match low.zip(high).filter(|_| !is_bound) {
        Some(ends) => {
            let servers = cap.round().max(1.0) as u32;
            Ok(Queue { capacity: value, ends, level, servers, is_wait_seen })
        }
        None => Err("only a lower end of the capacity is known".to_string()),
    }
}

/// A quantile by rate. Neighbours are merged until the quantile is known.
fn rows(fitted: &[(f64, &Histogram<u64>)], quantile: f64) -> Vec<AtRate> {
    let mut sorted = fitted.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let needed = BEYOND_MIN / (1.0 - quantile);
    let mut groups: Vec<(f64, Histogram<u64>)> = Vec::new();
    for (rate, histogram) in sorted {
        if groups.last().is_none_or(|(_, all)| all.len() as f64 >= needed) {
            groups.push((0.0, empty()));
        }
        if let Some((ended, all)) = groups.last_mut()
            && add(all, histogram).is_some()
        {
            *ended += rate * histogram.len() as f64;
        }
    }
    if groups.len() > 1 {
        groups.pop_if(|(_, all)| (all.len() as f64) < needed);
    }
    let row = |(ended, all): &(f64, Histogram<u64>)| AtRate {
        rate: ended / all.len() as f64,
        // A log in milliseconds has 0 for a request that took less.
        us: all.value_at_quantile(quantile).max(1) as f64,
        count: all.len() as f64,
    };
    groups.iter().filter(|(_, all)| !all.is_empty()).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::ResourceKind;

    fn capacity(ends: (f64, f64)) -> CapacityFigure {
        let (low, high) = (Some(ends.0), Some(ends.1));
        let name = "disk sda".to_string();
        CapacityFigure {
            value: Some(1e4),
            low,
            high,
            level: 0.95,
            cap: 2.2,
            resource_name: name,
            ..CapacityFigure::default()
        }
    }

    /// So many latencies of this length.
    fn all(us: u64, count: u64) -> Histogram<u64> {
        let mut histogram = empty();
        histogram.record_n(us, count).unwrap();
        histogram
    }

    #[test]
    fn only_a_known_capacity_of_cpu_time_is_a_queue() {
        let found = queue(&capacity((8e3, 12e3)), true).unwrap();
        assert_eq!((found.capacity, found.ends, found.servers), (1e4, (8e3, 12e3), 2));
        let why = |figure: CapacityFigure| queue(&figure, true).unwrap_err();
        let known = || capacity((8e3, 12e3));
        let disk = CapacityFigure { resource: ResourceKind::Disk, ..known() };
        assert_eq!(why(disk), "disk sda limits, and not CPU time");
        assert_eq!(why(CapacityFigure { value: None, ..known() }), "the capacity is not known");
        assert_eq!(why(capacity((2e3, 12e3))), "only a lower end of the capacity is known");
    }

    #[test]
    fn neighbours_are_merged_until_the_quantile_is_known() {
        let (slow, fast, few) = (all(900, 1_500), all(300, 600), all(5_000, 3));
        let fitted = [(20.0, &slow), (10.0, &fast), (12.0, &fast), (30.0, &few)];
        let found = rows(&fitted, 0.99);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!((found[0].rate, found[0].us, found[0].count), (11.0, 300.0, 1_200.0));
        assert_eq!((found[1].rate, found[1].us, found[1].count), (20.0, 900.0, 1_500.0));
        let alone = rows(&[(30.0, &few)], 0.99);
        assert_eq!(alone.len(), 1, "too few are better than none");
        let none = rows(&[(30.0, &all(0, 2_000))], 0.99);
        assert_eq!(none[0].us, 1.0, "a log in milliseconds has 0");
    }
}
