//! The content of an event. Names of fields are those that the page reads.

use regress::{LoadLine, Trust};
use serde::Serialize;

/// What there is to show. A part that is absent does not exist in this source, or has not changed
/// since the last event.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Snapshot {
    /// What is watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The load now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<Now>,
    /// How much it can carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// The load line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<Line>,
    /// New samples, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
    /// What other sizes of the memory would give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// What requests cost in each group of procedures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub costs: Option<Costs>,
    /// The URLs with most requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub urls: Option<Urls>,
    /// The servers of the upstream groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstreams: Option<Upstreams>,
    /// The servers of a fleet, nearest to its capacity first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<Vec<FleetServer>>,
}

/// What is watched.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Source {
    /// `server`, `recording` or `fleet`.
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Its file, folder, address or process.
    pub detail: String,
    /// Nothing new will come: a recording that has ended.
    pub ended: bool,
    /// Nothing new has come for longer than it should.
    pub stale: Option<Stale>,
    /// What is missing, and how to get it.
    pub notes: Vec<String>,
}

/// Figures that are out of date.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stale {
    /// The time of the newest ones, seconds since the Unix epoch.
    pub since_s: f64,
    /// Why there are no newer ones.
    pub why: String,
}

/// The load now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Now {
    /// Requests per second; `None` if it is not known.
    pub rate: Option<f64>,
    /// The time over which it is a mean, seconds.
    pub seconds: f64,
}

/// How much it can carry.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Capacity {
    /// Requests per second; `None` if the data do not identify it.
    pub value: Option<f64>,
    /// Lower end of its interval.
    pub low: Option<f64>,
    /// Upper end of its interval.
    pub high: Option<f64>,
    /// What it carries at least, if the interval says no more.
    pub at_least: Option<f64>,
    /// Level of the interval.
    pub level: f64,
    /// The resource that is exhausted first.
    pub resource: String,
    /// Intervals in the fit.
    pub fitted: usize,
    /// Highest use in the fit, percent of the cap.
    pub reach_percent: f64,
    /// Why there is no value, or why it is unreliable.
    pub remark: Option<String>,
    /// The same without statistics.
    pub plain: Option<&'static str>,
}

impl Capacity {
    /// Of a fitted line.
    #[must_use]
    pub fn of(line: &LoadLine, resource: &str) -> Capacity {
        let capacity = line.capacity();
        let (low, high) = capacity.interval.bounds().unzip();
        let remark = match (&capacity.identifiable, &line.trusted) {
            (Err(why), _) => Some(why.to_string()),
            (Ok(()), Trust::Unreliable { statistic, why }) => Some(format!("{statistic}: {why}")),
            (Ok(()), Trust::Yes) => None,
        };
        let plain = match (&capacity.identifiable, &line.trusted) {
            (Err(why), _) => Some(why.plain()),
            (Ok(()), Trust::Unreliable { .. }) => {
                Some("the true capacity may lie outside this range.")
            }
            (Ok(()), Trust::Yes) => None,
        };
        Capacity {
            value: capacity.identifiable.is_ok().then_some(capacity.value),
            low,
            high,
            at_least: capacity
                .identifiable
                .is_ok()
                .then(|| regress::capacity::at_least(low, high, line.highest_rate))
                .flatten(),
            level: capacity.level,
            resource: resource.to_owned(),
            fitted: line.n,
            reach_percent: 100.0 * line.reach,
            remark,
            plain,
        }
    }

    /// There is no line yet.
    #[must_use]
    pub fn unknown(why: String, resource: &str) -> Capacity {
        let resource = resource.to_owned();
        Capacity { remark: Some(why), resource, level: 0.95, ..Capacity::default() }
    }
}

/// A load line: use of a resource against the rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Line {
    /// What is used, such as "one CPU".
    pub percent_of: String,
    /// The end of the last interval in the fit, seconds since the Unix epoch.
    pub until: f64,
    /// The intervals: rate and percent of the cap.
    pub points: Vec<(f64, f64)>,
    /// The line over the data.
    pub fitted: Vec<(f64, f64)>,
    /// The line from there to the cap; empty if it is not identifiable.
    pub beyond: Vec<(f64, f64)>,
}

/// Points in a figure. With more, they hide each other.
const POINTS_MAX: usize = 600;
/// Points of a curve.
const STEPS: usize = 24;

impl Line {
    /// Of a fitted line. `points` have percents of the cap.
    #[must_use]
    pub fn of(line: &LoadLine, points: &[(f64, f64)], percent_of: &str, until: f64) -> Line {
        let percent = |cost: f64| 100.0 * cost / line.cap;
        let at = |rate: f64| match &line.busy {
            Some(busy) => (rate, percent(busy.at(rate))),
            None => (rate, percent(line.straight.line.at(rate))),
        };
        let lowest = points.iter().map(|point| point.0).fold(line.highest_rate, f64::min);
        let curve = |from: f64, to: f64| -> Vec<(f64, f64)> {
            (0..=STEPS).map(|k| at(from + (to - from) * k as f64 / STEPS as f64)).collect()
        };
        let fitted = curve(lowest, line.highest_rate);
        let capacity = line.capacity();
        let is_beyond = capacity.identifiable.is_ok() && capacity.value > line.highest_rate;
        // The line with wakes is not straight in the rate: its last stretch is drawn as a chord.
        let beyond = match (is_beyond, &line.busy) {
            (false, _) => Vec::new(),
            (true, Some(_)) => curve(line.highest_rate, capacity.value),
            (true, None) => vec![at(line.highest_rate), (capacity.value, 100.0)],
        };
        Line { percent_of: percent_of.to_owned(), until, points: thinned(points), fitted, beyond }
    }
}

/// At most [`POINTS_MAX`] of the points, evenly spread over time; of the newest, all.
#[must_use]
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let stride = points.len().div_ceil(POINTS_MAX).max(1);
    let skipped = points.len().saturating_sub(1) % stride;
    points.iter().skip(skipped).step_by(stride).copied().collect()
}

/// One interval of the recent past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// Its end, seconds since the Unix epoch.
    pub t: f64,
    /// Requests per second; `None` if it is not known.
    pub rate: Option<f64>,
    /// Percent of the cap of the limiting resource.
    pub used: Option<f64>,
    /// Median latency, milliseconds.
    pub p50: Option<f64>,
    /// 99th percentile of latency, milliseconds.
    pub p99: Option<f64>,
    /// Percent of requests answered from the store.
    pub hits: Option<f64>,
}

/// What other sizes of the memory would give.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    /// By size, the smallest first.
    pub sizes: Vec<MemorySize>,
    /// Accesses behind the figures.
    pub accesses: f64,
}

/// One size.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemorySize {
    /// Multiple of the current memory.
    pub times: f64,
    /// In bytes.
    pub bytes: u64,
    /// Predicted percent of requests that hit.
    pub hits: Option<f64>,
}

/// What requests cost in each group of procedures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Costs {
    /// What the figures are: "CPU time of one more request" or "share of the CPU time".
    pub what: String,
    /// Their unit: "µs" or "%".
    pub unit: String,
    /// The groups, the largest first.
    pub groups: Vec<CostGroup>,
}

/// One group of procedures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CostGroup {
    /// Its name.
    pub name: String,
    /// What it costs.
    pub value: f64,
    /// The ends of its interval.
    pub interval: Option<(f64, f64)>,
}

/// The URLs with most misses and most requests, by a sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Urls {
    /// Requests in the sample.
    pub sampled: u64,
    /// Requests that they stand for.
    pub requests: u64,
    /// Why requests were not answered from the store, with percent of all requests.
    pub why: Vec<(String, f64)>,
    /// The URLs that missed most often and those that were requested most often.
    pub top: Vec<Url>,
}

/// One URL.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Url {
    /// The URL, perhaps cut.
    pub url: String,
    /// Percent of all requests.
    pub share: f64,
    /// Percent of its requests that were answered from the store.
    pub hits: f64,
    /// Why the others were not, the most frequent reason first, with percent of its requests.
    pub why: Vec<(String, f64)>,
}

/// The servers of the upstream groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Upstreams {
    /// Those that need attention first.
    pub servers: Vec<Upstream>,
    /// Others that are up.
    pub more_up: usize,
    /// Others that are not.
    pub more_not_up: usize,
}

/// A server of an upstream group.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Upstream {
    /// Its group.
    pub group: String,
    /// Its address.
    pub server: String,
    /// `up`, `down`, `ejected`, `draining` or `disabled`.
    pub state: &'static str,
    /// Requests in flight.
    pub outstanding: u64,
    /// Requests so far.
    pub requests: u64,
    /// Requests that failed because of it.
    pub failures: u64,
}

/// A server of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FleetServer {
    /// Its name.
    pub server: String,
    /// Its highest rate, requests/s.
    pub peak: f64,
    /// Its capacity.
    pub capacity: Option<f64>,
    /// Lower end of the interval.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high: Option<f64>,
    /// The resource that is exhausted first.
    pub resource: String,
    /// Why there is no capacity, or why it is unreliable.
    pub remark: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_drawn_over_its_data_and_on_to_the_cap() {
        let rates: Vec<f64> = (0..40).map(|k| 100.0 + 10.0 * f64::from(k % 20)).collect();
        let noise = |k: usize| if k.is_multiple_of(3) { 0.003 } else { -0.001 };
        let cost: Vec<f64> =
            rates.iter().enumerate().map(|(k, x)| 0.1 + 0.001 * x + noise(k)).collect();
        let line = regress::load_line(&regress::LoadLineInput::new(&rates, &cost, 1.0))
            .expect("a line can be fitted");
        let points: Vec<_> = rates.iter().zip(&cost).map(|(x, c)| (*x, 100.0 * c)).collect();
        let drawn = Line::of(&line, &points, "one CPU", 7.0);
        assert_eq!((drawn.fitted[0].0, drawn.fitted[STEPS].0), (100.0, 290.0));
        let end = drawn.beyond.last().expect("the capacity is identifiable");
        let capacity = Capacity::of(&line, "the hottest core");
        assert_eq!(Some(end.0), capacity.value);
        assert!((end.0 - 900.0).abs() < 20.0 && end.1 == 100.0, "{end:?}");
        assert!(capacity.low < capacity.value && capacity.value < capacity.high);
    }

    #[test]
    fn many_points_are_thinned_and_the_newest_stays() {
        for n in [0, 1, 600, 601, 1799, 5000] {
            let points: Vec<_> = (0..n).map(|k| (f64::from(k), 0.0)).collect();
            let thin = thinned(&points);
            assert!(thin.len() <= POINTS_MAX, "{n}");
            assert_eq!(thin.last(), points.last());
        }
    }
}
