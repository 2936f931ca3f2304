//! Whether the rate varied enough for a line, and in enough intervals.
//!
//! A line through a constant rate is noise. A line that depends on one interval says no more than
//! that interval. A test of significance finds neither fault: under a constant load that begins
//! within the first interval, the one low rate gives the slope a t of ten and more. So both faults
//! are looked for in the rates alone, before any line is fitted:
//!
//! - **ratio**: a high rate over a low one, leaving out the extremes at both ends, which may be
//!   intervals in which a load began or ended;
//! - **leverage**: the number of intervals that carry the slope, `(Σ d²)² / Σ d⁴`, where d is the
//!   distance of a rate from the median. n equal distances count as n intervals, one outlier as 1.

use crate::why::Why;

/// The rate must vary this much for a capacity that is reliable.
pub const FOLDS_MIN: f64 = 2.0;
/// Below this, the rate counts as constant: independent arrivals alone vary as much.
pub const CONSTANT_BELOW: f64 = 1.5;
/// Fewest intervals that carry a slope.
pub const CARRYING_MIN: f64 = 2.5;
/// Intervals that are left out at each end of the rates: at least this number, and at least one of
/// this many.
const LEFT_OUT: (usize, usize) = (2, 30);

const _: () = assert!(CONSTANT_BELOW < FOLDS_MIN);

/// By which factor the rate varied; infinite if the low one is zero.
#[must_use]
pub fn folds(rates: &[f64]) -> f64 {
    folds_of(&sorted(rates.iter().map(|rate| (*rate, 1.0))))
}

/// The same of groups of intervals: the mean rate of each, and how many intervals it has. The
/// lowest come first.
pub(crate) fn folds_of(groups: &[(f64, f64)]) -> f64 {
    let n = count(groups);
    let left_out = (LEFT_OUT.0 as f64).max((n / LEFT_OUT.1 as f64).floor());
    if n <= 2.0 * left_out {
        return 1.0;
    }
    let low = after(groups.iter(), left_out);
    let high = after(groups.iter().rev(), left_out);
    if high <= 0.0 { 1.0 } else { high / low.max(0.0) }
}

/// The number of intervals that carry the slope of a line.
#[must_use]
pub fn carrying(rates: &[f64]) -> f64 {
    carrying_of(&sorted(rates.iter().map(|rate| (*rate, 1.0))))
}

fn carrying_of(groups: &[(f64, f64)]) -> f64 {
    // Between the two middle intervals, as the median of an even number.
    let half = 0.5 * count(groups) - 0.5;
    let middle = 0.5 * (after(groups.iter(), half) + after(groups.iter().rev(), half));
    let squares = || groups.iter().map(|(rate, n)| (n, (rate - middle).powi(2)));
    let fourths: f64 = squares().map(|(n, square)| n * square * square).sum();
    let sum: f64 = squares().map(|(n, square)| n * square).sum();
    if fourths > 0.0 { sum.powi(2) / fourths } else { 0.0 }
}

fn sorted(groups: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut sorted: Vec<(f64, f64)> = groups.collect();
    sorted.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    sorted
}

fn count(groups: &[(f64, f64)]) -> f64 {
    groups.iter().map(|(_, n)| n).sum()
}

/// The rate of the interval that comes after `skipped` others. There is at least one group.
fn after<'g>(groups: impl Iterator<Item = &'g (f64, f64)>, skipped: f64) -> f64 {
    let (mut passed, mut last) = (0.0, f64::NAN);
    for (rate, n) in groups {
        (passed, last) = (passed + n, *rate);
        if passed > skipped {
            break;
        }
    }
    last
}

/// Why no line can stand on these rates.
pub(crate) fn check(rates: &[f64]) -> Result<(), Why> {
    check_groups(&sorted(rates.iter().map(|rate| (*rate, 1.0))))
}

/// The same of groups of intervals; see [`folds_of`].
pub(crate) fn check_groups(groups: &[(f64, f64)]) -> Result<(), Why> {
    debug_assert!(groups.is_sorted_by(|a, b| a.0 <= b.0));
    let (folds, carrying) = (folds_of(groups), carrying_of(groups));
    let ends = groups.first().zip(groups.last());
    let all_alike = ends.is_some_and(|(low, high)| high.0 < CONSTANT_BELOW * low.0);
    if carrying < CARRYING_MIN && !all_alike {
        let (carrying, n) = (carrying.round().max(1.0), count(groups).round());
        Err(Why::FewIntervals { carrying: carrying as usize, n: n as usize })
    } else if folds < CONSTANT_BELOW || all_alike {
        Err(Why::ConstantRate { folds })
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bins::{Bin, bin_of, close_window};
    use crate::{BinLineInput, LoadLineInput, Rng, line_of, load_line};

    #[test]
    fn a_ramp_varies_and_one_interval_does_not_count() {
        let ramp: Vec<f64> = (1..=20).map(f64::from).collect();
        assert_eq!(check(&ramp), Ok(()));
        assert_eq!(folds(&ramp), 6.0);
        let mut constant = vec![1_000.0; 12];
        assert!(check(&constant).is_err());
        constant[0] = 480.0;
        assert_eq!(check(&constant), Err(Why::FewIntervals { carrying: 1, n: 12 }));
        constant[11] = 430.0;
        assert_eq!(check(&constant), Err(Why::FewIntervals { carrying: 2, n: 12 }));
        // Steps: a few intervals at another rate are enough.
        assert_eq!(check(&[[1_000.0; 8].as_slice(), &[4_000.0; 4]].concat()), Ok(()));
        assert_eq!(check(&[0.0; 12]), Err(Why::FewIntervals { carrying: 1, n: 12 }));
        let quiet = [[0.0; 8].as_slice(), &[4_000.0; 4]].concat();
        assert_eq!((folds(&quiet), check(&quiet)), (f64::INFINITY, Ok(())));
    }

    /// One outlier gave a "trusted" capacity of 81,000 to 95,000 where 58,000 was implied.
    #[test]
    fn a_constant_load_that_begins_within_an_interval_has_no_capacity() {
        for seed in 0..30 {
            let mut rng = Rng::new(seed);
            let first = rng.uniform();
            let rate: Vec<f64> = (0..12)
                .map(|at| if at == 0 { first } else { 1.0 } * 2_000.0)
                .map(|rate| rate * (1.0 + 0.005 * rng.normal()))
                .collect();
            let cost: Vec<f64> =
                rate.iter().map(|x| 17e-6 * x * (1.0 + 0.03 * rng.normal())).collect();
            let mut input = LoadLineInput::new(&rate, &cost, 1.0);
            input.cpu_time = true;
            let line = load_line(&input).unwrap();
            assert!(line.capacity().identifiable.is_err(), "{seed}: {:?}", line.capacity());
        }
    }

    /// A ramp that only rises, over a server that gets cheaper per request: the residuals of a
    /// straight line through that curve are correlated, and nothing else.
    #[test]
    fn a_curve_is_no_correlation_of_neighbours() {
        for seed in 0..30 {
            let mut rng = Rng::new(seed);
            let rate: Vec<f64> = (1..=36).map(|at| 500.0 * f64::from(at)).collect();
            let cost: Vec<f64> = rate
                .iter()
                .map(|x| 0.3 * (x / 18_000.0).powf(0.6) * (1.0 + 0.01 * rng.normal()))
                .collect();
            let mut input = LoadLineInput::new(&rate, &cost, 1.0);
            input.cpu_time = true;
            let line = load_line(&input).unwrap();
            let capacity = line.capacity();
            assert!(capacity.identifiable.is_ok(), "{seed}: {:?}", capacity.identifiable);
        }
    }

    /// The sums of the rates and costs of one window.
    fn sums(window: &[(f64, f64)]) -> Vec<(i32, Bin)> {
        let mut bins: BTreeMap<i32, Bin> = BTreeMap::new();
        let mut before = None;
        for &(rate, cost) in window {
            let one = Bin::of(rate, cost, 0.0);
            let pair = before.map_or(Bin::default(), |before| Bin::pair(&before, &one));
            let bin = bins.entry(bin_of(rate)).or_default();
            *bin = *bin + one + pair;
            before = Some(one);
        }
        close_window(&mut bins);
        bins.into_iter().collect()
    }

    /// Sums had no test of how much the rate varied: a constant load that began within an interval
    /// had a capacity in a fleet, and none in a report.
    #[test]
    fn sums_refuse_the_rates_that_intervals_refuse() {
        let mut rng = Rng::new(15);
        let mut refused = [0; 2];
        for k in 0..60 {
            // A constant rate, with outliers in some cases, or steps.
            let other = [0.2, 0.5, 1.0, 3.0, 8.0][k % 5];
            let others = [1, 2, 3, 12][k % 4];
            let mut interval = |at: i32| {
                let rate = if at < others { other } else { 1.0 } * 2_000.0;
                let rate = rate * (1.0 + 0.005 * rng.normal());
                (rate, 0.02 + 40e-6 * rate * (1.0 + 0.01 * rng.normal()))
            };
            let window: Vec<(f64, f64)> = (0..40).map(&mut interval).collect();
            let (rate, cost): (Vec<f64>, Vec<f64>) = window.iter().copied().unzip();
            let of_intervals = load_line(&LoadLineInput::new(&rate, &cost, 1.0)).unwrap();
            let of_sums = line_of(&BinLineInput {
                bins: &sums(&window),
                cap: 1.0,
                wakes_known: false,
                processes_alternate: false,
                marginal: None,
                level: 0.95,
                between_run: 0.03,
            })
            .unwrap();
            let why = of_intervals.capacity().identifiable.clone().err().map(|why| why.to_string());
            assert_eq!(of_sums.reason, why, "{k}");
            refused[usize::from(why.is_some())] += 1;
        }
        assert!(refused.iter().all(|count| *count > 10), "{refused:?}");
    }
}
