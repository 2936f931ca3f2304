//! Latency to come: a quantile of latency at rates that were not reached.
//!
//! At saturation a request takes `s = c/C` of CPU time, with the capacity C and c CPUs that serve
//! side by side. At the rate x the CPUs are busy for the share ρ = x/C of the time. Requests come
//! at random instants, so that some of them wait. The tail of the wait is taken as exponential,
//! which is exact for M/M/c and the usual approximation for M/G/c (Lee and Longton 1959):
//!
//! ```text
//! P(W > t) = P_w(ρ) · exp(−t · (1 − ρ)/m)      m = (1 + v²)/2 · 1/C
//! ```
//!
//! P_w is Erlang's probability of a wait (ρ for one CPU), and v is the coefficient of variation of
//! the service times. So the mean of the wait is `m · P_w/(1 − ρ)`, and its p-quantile is `m ·
//! ln(P_w/(1 − p))/(1 − ρ)`, or 0 if fewer than 1 − p of the requests wait. The other parts of a
//! latency vary, too. So a wait that few requests have moves even the median, by about its mean.
//! Hence the larger of the two is the wait, `m · k(ρ)`. The latency is
//!
//! ```text
//! L(ρ) = F + m · k(ρ) + B · (1 − ρ)
//! ```
//!
//! F does not depend on the rate (the service, the network, the client, disturbances). B is what an
//! idle server adds: a share 1 − ρ of the requests has to wake it. So the latency of some servers
//! falls before it rises.
//!
//! **What the data decide.** If the rates of the recording differ, F, m and B are known to some
//! extent. If they do not differ, the same latency may be mostly wait or not. So nothing is fitted:
//! the prediction is an average over many combinations of C, m and B, and for each of them F is the
//! robust remainder. A combination weighs as much as it fits (residuals with Laplace's
//! distribution, whose scale is not known) times its weight before the data:
//!
//! - C has the normal distribution on its logarithm, by the interval of the capacity.
//! - Each doubling of m beyond that of equal service times (v = 0) is half as likely. Each halving
//!   below it is a quarter as likely, because it needs requests that come more evenly than at
//!   random.
//! - B is rather a small part of the remainder than a large one.
//!
//! The prediction is the median over the combinations. Its interval has their quantiles and the
//! scatter of single intervals.
//!
//! **Latencies of the server's side** have no part of the wait in the socket. There the wait is not
//! subtracted from the recorded latencies, but added to them.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal};

use crate::Unfit;
use crate::dist::{median, weighted_median};
use crate::linear::check_level;

/// Capacities are tried up to this many sd from the estimate, and this many on each side of it.
const CAPACITY_SDS: f64 = 2.0;
/// See [`CAPACITY_SDS`].
const CAPACITIES: i32 = 4;
/// `1 + v²` is tried from the first power of √2 to the second.
const WAITS: (i32, i32) = (-6, 12);
/// Steps of the share of B in the remainder, from 0 to 1.
const SHARES: u32 = 5;
/// Combinations that weigh less than this, relative to the heaviest, change nothing.
const WEIGHT_MIN: f64 = 1e-4;
/// No more groups of intervals count as independent: neighbours share what disturbs them.
const INDEPENDENT_MAX: f64 = 8.0;
/// The latencies do not follow the formula more closely than this: the mean of the absolute
/// logarithms.
const SCATTER_MIN: f64 = 0.05;
/// The same, between two runs: they differ by more than the intervals of one run.
const BETWEEN_RUNS_MIN: f64 = 0.1;
/// Multiples of the highest recorded rate, and shares of the capacity, to predict a latency at.
const OF_HIGHEST: [f64; 2] = [1.5, 2.0];
/// See [`OF_HIGHEST`].
const OF_CAPACITY: [f64; 4] = [0.5, 0.7, 0.8, 0.9];
/// No prediction beyond this share of the capacity: there the wait is almost without bounds.
const OF_CAPACITY_MAX: f64 = 0.95;
/// Two rates differ by this factor at least.
const APART: f64 = 1.04;
/// Rows that a curve is made from.
const ROWS_MAX: usize = 64;
/// For the normal distribution, the sd in units of the mean absolute deviation: √(π/2).
const SD_OF_MEAN_ABS: f64 = 1.253_314_137_315_5;

/// A quantile of latency in intervals with similar rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AtRate {
    /// Requests per second.
    pub rate: f64,
    /// The quantile, microseconds.
    pub us: f64,
    /// Number of latencies.
    pub count: f64,
}

/// The server as a queue.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// Requests per second at which the CPU time is exhausted.
    pub capacity: f64,
    /// The interval of the capacity.
    pub ends: (f64, f64),
    /// Level of this interval, and of the predictions.
    pub level: f64,
    /// CPUs that serve side by side.
    pub servers: u32,
    /// Whether the recorded latencies contain the wait.
    pub is_wait_seen: bool,
}

/// A predicted latency, microseconds; infinite where the rate may be above the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PredictedLatency {
    /// The prediction.
    pub us: f64,
    /// The lower end of its interval.
    pub low_us: f64,
    /// The upper end.
    pub high_us: f64,
}

/// The rates up to which a bound on a latency is met.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MetUpTo {
    /// Requests per second.
    pub rate: f64,
    /// The lower end of its interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// A quantile of latency by rate.
#[derive(Clone, Debug)]
pub struct LatencyCurve {
    quantile: f64,
    queue: Queue,
    combinations: Vec<Combination>,
    /// Half the width of the interval by scatter alone, on the logarithm.
    half_width: f64,
}

/// `fixed_us + wait_us · k(ρ) + idle_us · (1 − ρ)` for one capacity.
#[derive(Clone, Copy, Debug)]
struct Combination {
    capacity: f64,
    fixed_us: f64,
    wait_us: f64,
    idle_us: f64,
    /// How far the data are away: the mean of the absolute logarithms.
    scatter: f64,
    weight: f64,
}

/// Rates beyond the highest recorded one and below the capacity, ascending.
#[must_use]
pub fn rates_to_come(highest: f64, capacity: f64) -> Vec<f64> {
    let of_highest = OF_HIGHEST.map(|times| times * highest);
    let of_capacity = OF_CAPACITY.map(|share| share * capacity);
    let mut rates: Vec<f64> = of_highest.into_iter().chain(of_capacity).collect();
    rates.retain(|rate| *rate > APART * highest && *rate <= OF_CAPACITY_MAX * capacity);
    rates.sort_unstable_by(f64::total_cmp);
    rates.dedup_by(|next, before| *next < APART * *before);
    rates
}

impl LatencyCurve {
    /// Averages over all combinations that the rows do not exclude.
    ///
    /// # Errors
    /// No rows; a quantile outside of 0 to 1; a rate or latency that is not positive; no
    /// combination that leaves a remainder.
    pub fn new(rows: &[AtRate], quantile: f64, queue: Queue) -> Result<LatencyCurve, Unfit> {
        check_level(queue.level)?;
        let positive = |value: f64| value.is_finite() && value > 0.0;
        check_level(quantile)?;
        if rows.is_empty() {
            return Err(Unfit::TooFew { needed: 1, found: 0 });
        }
        if !rows.iter().all(|row| positive(row.rate) && positive(row.us) && positive(row.count)) {
            return Err(Unfit::NotPositive { what: "a rate, a latency or a count" });
        }
        let rows = &thinned(rows);
        let (low, high) = queue.ends;
        if !(positive(low) && positive(high) && low <= queue.capacity && queue.capacity <= high) {
            return Err(Unfit::NotPositive { what: "the capacity" });
        }
        let z = Normal::standard().inverse_cdf(0.5 + queue.level / 2.0);
        let sd = (high / low).ln() / (2.0 * z);
        let highest = rows.iter().map(|row| row.rate).fold(0.0, f64::max);
        let mut combinations = Vec::new();
        for step in -CAPACITIES..=CAPACITIES {
            let sds = CAPACITY_SDS * f64::from(step) / f64::from(CAPACITIES);
            let capacity = queue.capacity * (sd * sds).exp();
            if capacity > highest {
                let prior = (-sds * sds / 2.0).exp();
                let data = Data::new(rows, quantile, capacity, queue);
                combinations.extend(
                    data.combinations()
                        .map(|one| Combination { weight: prior * one.weight, ..one }),
                );
            }
        }
        let least = combinations.iter().map(|one| one.scatter).fold(f64::INFINITY, f64::min);
        if !least.is_finite() {
            return Err(Unfit::NotPositive { what: "the latency without the wait" });
        }
        let least = least.max(SCATTER_MIN);
        let independent = (rows.len() as f64).min(INDEPENDENT_MAX);
        for one in &mut combinations {
            one.weight *= (one.scatter.max(SCATTER_MIN) / least).powf(-independent);
        }
        let heaviest = combinations.iter().map(|one| one.weight).fold(0.0, f64::max);
        combinations.retain(|one| one.weight >= WEIGHT_MIN * heaviest);
        let half_width = z * SD_OF_MEAN_ABS * least.max(BETWEEN_RUNS_MIN);
        Ok(LatencyCurve { quantile, queue, combinations, half_width })
    }

    /// The quantile at a rate.
    #[must_use]
    pub fn at(&self, rate: f64) -> PredictedLatency {
        let latencies = self.combinations.iter().map(|one| {
            let us = one.us(rate, self.quantile, self.queue.servers);
            (us.max(f64::MIN_POSITIVE), one.weight)
        });
        let mut latencies: Vec<(f64, f64)> = latencies.collect();
        latencies.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let tail = (1.0 - self.queue.level) / 2.0;
        let [low, us, high] =
            [tail, 0.5, 1.0 - tail].map(|share| weighted_quantile(&latencies, share));
        // Infinite minus infinite is not a number.
        let log_ratio = |a: f64, b: f64| if a < b { (b / a).ln() } else { 0.0 };
        let widened = |by: f64| by.hypot(self.half_width).exp();
        PredictedLatency {
            us,
            low_us: if us.is_finite() { us / widened(log_ratio(low, us)) } else { low },
            high_us: us * widened(log_ratio(us, high)),
        }
    }

    /// The rates up to which the quantile stays within a bound, from a rate at which it was met.
    #[must_use]
    pub fn met_up_to(&self, bound_us: f64, from: f64) -> MetUpTo {
        const STEPS: u32 = 100;
        let to = self.queue.ends.1.max(from);
        let until = |of: fn(&PredictedLatency) -> f64| {
            let rates =
                (0..=STEPS).map(|step| from + (to - from) * f64::from(step) / f64::from(STEPS));
            rates.take_while(|rate| of(&self.at(*rate)) <= bound_us).last().unwrap_or(from)
        };
        MetUpTo {
            rate: until(|at| at.us),
            low: until(|at| at.high_us),
            high: until(|at| at.low_us),
        }
    }
}

/// Of many rows, the medians of neighbours by rate. A disturbance of one interval does not move
/// them.
fn thinned(rows: &[AtRate]) -> Vec<AtRate> {
    let mut sorted = rows.to_vec();
    sorted.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let middle = |chunk: &[AtRate]| {
        let of =
            |value: fn(&AtRate) -> f64| median(&mut chunk.iter().map(value).collect::<Vec<_>>());
        let count = chunk.iter().map(|row| row.count).sum();
        AtRate { rate: of(|row| row.rate), us: of(|row| row.us), count }
    };
    sorted.chunks(sorted.len().div_ceil(ROWS_MAX)).map(middle).collect()
}

impl Combination {
    fn us(&self, rate: f64, quantile: f64, servers: u32) -> f64 {
        let use_ = rate / self.capacity;
        if use_ >= 1.0 {
            return f64::INFINITY;
        }
        self.fixed_us + self.wait_us * waits(use_, quantile, servers) + self.idle_us * (1.0 - use_)
    }
}

/// The rows, seen with one capacity.
struct Data {
    capacity: f64,
    rows: Vec<Row>,
    is_wait_seen: bool,
    /// The idle share in the middle of the recorded rates.
    idle_middle: f64,
}

struct Row {
    us: f64,
    k: f64,
    idle: f64,
    /// The chance error of a quantile falls with the root of the number of latencies.
    weight: f64,
}

impl Data {
    fn new(rows: &[AtRate], quantile: f64, capacity: f64, queue: Queue) -> Data {
        let row = |row: &AtRate| {
            let use_ = row.rate / capacity;
            let (k, weight) = (waits(use_, quantile, queue.servers), row.count.sqrt());
            Row { us: row.us, k, idle: 1.0 - use_, weight }
        };
        let rows: Vec<Row> = rows.iter().map(row).collect();
        let idle_middle = weighted_median(rows.iter().map(|row| (row.idle, row.weight)).collect());
        Data { capacity, is_wait_seen: queue.is_wait_seen, idle_middle, rows }
    }

    /// All waits with all shares of what an idle server adds. The weights are those before the
    /// data.
    fn combinations(&self) -> impl Iterator<Item = Combination> {
        let waits = (WAITS.0..=WAITS.1).map(|power| {
            let times = 2f64.sqrt().powi(power);
            (1e6 / (2.0 * self.capacity) * times, times.powi(2).min(1.0 / times))
        });
        let shares = (0..=SHARES).map(|step| f64::from(step) / f64::from(SHARES));
        let pairs = waits.flat_map(move |wait| shares.clone().map(move |share| (wait, share)));
        pairs.filter_map(|((wait_us, weight), share)| {
            let one = self.combination(wait_us, share)?;
            Some(Combination { weight: weight * (1.0 - share), ..one })
        })
    }

    /// `None` if the wait leaves no remainder.
    fn combination(&self, wait_us: f64, share: f64) -> Option<Combination> {
        let seen_us = if self.is_wait_seen { wait_us } else { 0.0 };
        let shape = |row: &Row| 1.0 - share + share * row.idle / self.idle_middle;
        let left = |row: &Row| ((row.us - seen_us * row.k) / shape(row), row.weight);
        let left_us = weighted_median(self.rows.iter().map(left).collect());
        if left_us <= 0.0 {
            return None;
        }
        let away = |row: &Row| {
            let us = left_us * shape(row) + seen_us * row.k;
            row.weight * (row.us / us).ln().abs()
        };
        let weights: f64 = self.rows.iter().map(|row| row.weight).sum();
        Some(Combination {
            capacity: self.capacity,
            fixed_us: left_us * (1.0 - share),
            wait_us,
            idle_us: left_us * share / self.idle_middle,
            scatter: self.rows.iter().map(away).sum::<f64>() / weights,
            weight: 1.0,
        })
    }
}

/// The p-quantile of the wait, or its mean if that is larger, in units of m, at a use below 1.
fn waits(use_: f64, quantile: f64, servers: u32) -> f64 {
    debug_assert!((0.0..1.0).contains(&use_), "{use_}");
    // Erlang's recursion for the probability that all servers are busy and none queues.
    let offered = use_ * f64::from(servers);
    let blocked = (1..=servers).fold(1.0, |before, n| {
        let met = offered * before;
        met / (f64::from(n) + met)
    });
    let wait = blocked / (1.0 - use_ * (1.0 - blocked));
    (wait / (1.0 - quantile)).ln().max(wait) / (1.0 - use_)
}

/// The value at a share of the weights, of sorted values with weights.
fn weighted_quantile(sorted: &[(f64, f64)], share: f64) -> f64 {
    let mut left = share * sorted.iter().map(|(_, weight)| weight).sum::<f64>();
    for (value, weight) in sorted {
        left -= weight;
        if left <= 0.0 {
            return *value;
        }
    }
    sorted.last().map_or(f64::NAN, |(value, _)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use crate::dist::quantile_sorted;

    fn queue(capacity: f64, folds: f64) -> Queue {
        let ends = (capacity / folds, capacity * folds);
        Queue { capacity, ends, level: 0.95, servers: 1, is_wait_seen: true }
    }

    /// Rows of a formula, at these shares of a capacity of 10,000/s.
    fn rows(shares: &[f64], mut us: impl FnMut(f64) -> f64) -> Vec<AtRate> {
        shares.iter().map(|at| AtRate { rate: 1e4 * at, us: us(*at), count: 1e4 }).collect()
    }

    #[test]
    fn the_wait_is_that_of_the_textbook() {
        let near = |found: f64, wanted: f64| assert!((found - wanted).abs() < 1e-9, "{found}");
        near(waits(0.5, 0.99, 1), 50f64.ln() / 0.5);
        // Erlang's C for two servers and an offered load of 1 is a third.
        near(waits(0.5, 0.99, 2), (100.0 / 3.0f64).ln() / 0.5);
        // Fewer than half of the requests wait: the mean.
        near(waits(0.4, 0.5, 1), 0.4 / 0.6);
        assert!(waits(0.5, 0.99, 8) < waits(0.5, 0.99, 2));
    }

    #[test]
    fn rates_that_differ_show_how_much_is_wait() {
        for (wait, idle) in [(300.0, 0.0), (70.0, 400.0), (60.0, 0.0)] {
            let us = |at: f64| 200.0 + wait * waits(at, 0.99, 1) + idle * (1.0 - at);
            let shares: Vec<f64> = (1..=20).map(|k| 0.02 * f64::from(k)).collect();
            let curve = LatencyCurve::new(&rows(&shares, us), 0.99, queue(1e4, 1.1)).unwrap();
            let (found, wanted) = (curve.at(8e3), us(0.8));
            assert!((found.us / wanted).ln().abs() < 0.15, "{found:?}, not {wanted}");
            assert!(found.low_us < wanted && wanted < found.high_us, "{found:?}, not {wanted}");
        }
    }

    #[test]
    fn at_one_rate_all_or_nothing_may_be_wait() {
        let curve = LatencyCurve::new(&rows(&[0.3; 12], |_| 900.0), 0.99, queue(1e4, 1.05));
        let found = curve.unwrap().at(6e3);
        let more = waits(0.6, 0.99, 1) - waits(0.3, 0.99, 1);
        let (least, most) = (900.0 + 50.0 * more, 900.0 * (1.0 + more / waits(0.3, 0.99, 1)));
        assert!(found.low_us < least && found.high_us > 0.8 * most, "{found:?}");
        assert!((least * 0.9..most).contains(&found.us), "{found:?}");
    }

    #[test]
    fn the_wait_is_added_to_latencies_of_the_server_side() {
        let at = |us: f64, is_wait_seen: bool| {
            let queue = Queue { is_wait_seen, ..queue(1e4, 1.05) };
            Some(LatencyCurve::new(&rows(&[0.3; 12], |_| us), 0.99, queue).ok()?.at(3e3).us)
        };
        let wait_us = 50.0 * waits(0.3, 0.99, 1);
        assert!((at(2.0 * wait_us, true).unwrap() / wait_us - 2.0).abs() < 0.1, "as recorded");
        assert!(at(10.0, false).unwrap() > 10.0 + wait_us, "the wait is added");
        assert_eq!(at(10.0, true), None, "it is shorter than the wait that it contains");
    }

    #[test]
    fn near_the_capacity_there_is_no_upper_end() {
        let us = |at: f64| 100.0 + 90.0 * waits(at, 0.99, 1);
        let curve = LatencyCurve::new(&rows(&[0.2, 0.3, 0.4], us), 0.99, queue(1e4, 1.4)).unwrap();
        let near = curve.at(9.5e3);
        assert!(near.us.is_finite() && near.high_us.is_infinite(), "{near:?}");
        let beyond = curve.at(2e4);
        assert!(beyond.us.is_infinite() && beyond.low_us.is_infinite(), "{beyond:?}");
        let met = curve.met_up_to(us(0.7), 4e3);
        assert!(4e3 <= met.low && met.low < met.rate && met.rate < met.high, "{met:?}");
        assert!(met.low < 7e3 && met.high > 7e3 && met.high <= 1.4e4, "{met:?}");
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        let one = rows(&[0.3], |_| 100.0);
        let fails = |rows: &[AtRate], quantile: f64, queue: Queue| {
            LatencyCurve::new(rows, quantile, queue).is_err()
        };
        assert!(!fails(&one, 0.99, queue(1e4, 1.1)));
        assert!(fails(&[], 0.99, queue(1e4, 1.1)) && fails(&one, 1.0, queue(1e4, 1.1)));
        assert!(fails(&rows(&[0.3], |_| 0.0), 0.99, queue(1e4, 1.1)));
        assert!(fails(&one, 0.99, queue(0.0, 1.1)) && fails(&one, 0.99, queue(1e3, 1.1)));
    }

    #[test]
    fn rates_are_beyond_the_recording_and_below_the_capacity() {
        assert_eq!(rates_to_come(2e3, 1e4), [3e3, 4e3, 5e3, 7e3, 8e3, 9e3]);
        // 4,950 is about 5,000, and 9,900 is too near to the capacity.
        assert_eq!(rates_to_come(3.3e3, 1e4), [4.95e3, 6.6e3, 7e3, 8e3, 9e3]);
        assert_eq!(rates_to_come(4.95e3, 1e4), [7e3, 7.425e3, 8e3, 9e3]);
        assert!(rates_to_come(9.4e3, 1e4).is_empty());
    }

    /// One interval of four was disturbed.
    #[test]
    fn a_disturbed_interval_does_not_move_a_group() {
        let us = |at: u32| if at.is_multiple_of(4) { 40_000.0 } else { 300.0 };
        let row = |at: u32| AtRate { rate: 1e3 + f64::from(at), us: us(at), count: 2e3 };
        let found = thinned(&(0..400).map(row).collect::<Vec<_>>());
        assert!(found.len() <= ROWS_MAX && found.len() > ROWS_MAX / 2);
        assert!(found.iter().all(|row| row.us == 300.0), "{found:?}");
    }

    /// A request comes at a random instant, waits for those before it, and is served. What it takes
    /// besides is the same at any rate.
    #[test]
    fn a_simulated_queue_is_predicted_at_twice_its_rate() {
        let service_us = 100.0;
        let mut rng = Rng::new(7);
        let mut exponential = |mean: f64| -mean * (1.0 - rng.uniform()).ln();
        let mut p99 = |at: f64| {
            let (mut now, mut free, mut latencies) = (0.0, 0.0f64, Vec::new());
            for _ in 0..20_000 {
                now += exponential(service_us / at);
                free = free.max(now) + service_us;
                latencies.push(free - now + 60.0 + exponential(20.0));
            }
            latencies.sort_unstable_by(f64::total_cmp);
            quantile_sorted(&latencies, 0.99)
        };
        for (from, to) in [(0.1, 0.2), (0.2, 0.4), (0.3, 0.6), (0.4, 0.8)] {
            let shares: Vec<f64> = (1..=10).map(|k| from * f64::from(k) / 10.0).collect();
            let recorded = rows(&shares, &mut p99);
            let found = LatencyCurve::new(&recorded, 0.99, queue(1e4, 1.1)).unwrap().at(1e4 * to);
            let wanted = p99(to);
            assert!((found.us / wanted).ln().abs() < 1.5f64.ln(), "{found:?}, not {wanted}");
            assert!(found.low_us < wanted && wanted < found.high_us, "{found:?}, not {wanted}");
        }
    }
}
