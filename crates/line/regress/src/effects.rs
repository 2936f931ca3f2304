//! Effects of many servers: their mean, and how far the servers differ by more than the error of
//! each effect.
//!
//! The mean is the mean of a random-effects model: the effect of each server differs from the mean
//! by more than its own error. The variance between servers is estimated by the method of
//! DerSimonian and Laird (1986). The interval is computed by the method of Hartung and Knapp
//! (2001), whose coverage is right with few servers too. The factor of Hartung and Knapp is at
//! least 1 here, so that effects that agree by chance do not make the interval too narrow.
//!
//! [`spread`] is for the question which servers differ from the others. [`spread`] leaves out the
//! servers that differ.

use serde::Serialize;

use crate::Interval;
use crate::dist::{student_t_quantile, t_critical};

/// The mean of the effects.
#[derive(Clone, Debug, Serialize)]
pub struct Pooled {
    /// The mean.
    pub value: f64,
    /// Its standard error.
    pub se: f64,
    /// Its interval, with `n − 1` degrees of freedom.
    pub interval: Interval,
    /// Sd of the effects between servers.
    pub between_sd: f64,
    /// Number of effects.
    pub n: usize,
}

/// The mean of effects, each with its variance; `None` with fewer than two, or if a variance is not
/// positive.
#[must_use]
pub fn pooled(effects: &[(f64, f64)], level: f64) -> Option<Pooled> {
    let n = effects.len();
    if n < 2 || !effects.iter().all(|(y, v)| y.is_finite() && v.is_finite() && *v > 0.0) {
        return None;
    }
    let free = n as f64 - 1.0;
    let fixed = Weighted::of(effects, 0.0);
    let squares: f64 = effects.iter().map(|(_, v)| v.powi(-2)).sum();
    let tau2 = ((fixed.q - free) / (fixed.weight - squares / fixed.weight)).max(0.0);
    let random = Weighted::of(effects, tau2);
    let se = ((random.q / free).max(1.0) / random.weight).sqrt();
    let half = t_critical(level, free) * se;
    Some(Pooled {
        value: random.mean,
        se,
        interval: Interval::Bounded { low: random.mean - half, high: random.mean + half },
        between_sd: tau2.sqrt(),
        n,
    })
}

/// The mean weighted by the inverse of variances, to which `more` is added.
struct Weighted {
    mean: f64,
    /// Sum of the weights.
    weight: f64,
    /// Weighted sum of the squares of the deviations.
    q: f64,
}

impl Weighted {
    fn of(effects: &[(f64, f64)], more: f64) -> Weighted {
        let sum = |of: &dyn Fn(f64) -> f64| -> f64 {
            effects.iter().map(|(y, v)| of(*y) / (v + more)).sum()
        };
        let weight = sum(&|_| 1.0);
        let mean = sum(&|y| y) / weight;
        Weighted { mean, weight, q: sum(&|y| (y - mean).powi(2)) }
    }
}

/// Where most effects are, and how far they differ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The centre.
    pub centre: f64,
    /// Variance of the centre.
    pub centre_variance: f64,
    /// Sd between the servers, without the errors of each.
    pub between_sd: f64,
    /// Degrees of freedom of that sd.
    pub dof: f64,
    /// Number of effects that are too far off to count.
    pub set_aside: usize,
}

/// Probability that any of a group of healthy servers is set aside.
const SET_ASIDE: f64 = 0.05;

/// The centre and spread of effects, each with its variance, without those that are too far off.
/// These are found by the generalised extreme Studentised deviate (Rosner 1983): the effect that is
/// furthest off is removed, up to half of them, and the largest number of them is set aside of
/// which the last was further off than chance allows. Several that mask each other are found so.
/// The variance between servers is that of Paule and Mandel (1982), and its root at least
/// `between_min`. `None` with fewer than three effects.
#[must_use]
pub fn spread(effects: &[(f64, f64)], between_min: f64) -> Option<Spread> {
    if effects.len() < 3 || !effects.iter().all(|(y, v)| y.is_finite() && v.is_finite()) {
        return None;
    }
    let mut kept: Vec<(f64, f64)> = effects.to_vec();
    let mut found = Spread::of(&kept, between_min, 0);
    for removed in 1..=effects.len() / 2 {
        let Spread { centre, between_sd, .. } = Spread::of(&kept, between_min, 0);
        let off = |(y, v): (f64, f64)| (y - centre).abs() / (v + between_sd * between_sd).sqrt();
        let furthest = (0..kept.len()).max_by(|a, b| off(kept[*a]).total_cmp(&off(kept[*b])))?;
        let m = kept.len() as f64;
        let t = student_t_quantile(1.0 - SET_ASIDE / (2.0 * m), m - 2.0);
        let too_far = off(kept[furthest]) > (m - 1.0) * t / ((m - 2.0 + t * t) * m).sqrt();
        kept.swap_remove(furthest);
        if too_far {
            found = Spread::of(&kept, between_min, removed);
        }
    }
    Some(found)
}

impl Spread {
    fn of(kept: &[(f64, f64)], between_min: f64, set_aside: usize) -> Spread {
        let free = kept.len() as f64 - 1.0;
        let least = between_min.max(1e-9).powi(2);
        let largest =
            kept.iter().map(|(y, _)| (y - kept[0].0).powi(2)).fold(least, f64::max) * 10.0;
        let between = solve(least, largest, |more| Weighted::of(kept, more).q > free);
        let weighted = Weighted::of(kept, between);
        Spread {
            centre: weighted.mean,
            centre_variance: 1.0 / weighted.weight,
            between_sd: between.sqrt(),
            dof: free.max(1.0),
            set_aside,
        }
    }
}

/// The value between the ends at which a condition ends, which holds below it.
fn solve(mut low: f64, mut high: f64, holds: impl Fn(f64) -> bool) -> f64 {
    if !holds(low) {
        return low;
    }
    for _ in 0..40 {
        let middle = (low * high).sqrt();
        *(if holds(middle) { &mut low } else { &mut high }) = middle;
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// statsmodels 0.15, `combine_effects(method_re="dl", use_t=True)`: mean, tau², HKSJ interval.
    #[test]
    fn the_mean_is_that_of_dersimonian_laird_hartung_knapp() {
        let effects = [0.061, 0.130, 0.022, 0.094, 0.180, -0.015].into_iter();
        let variances = [0.0009, 0.0025, 0.0016, 0.0004, 0.0049, 0.0012];
        let found = pooled(&effects.zip(variances).collect::<Vec<_>>(), 0.95).unwrap();
        let (low, high) = found.interval.bounds().unwrap();
        let ours = [found.value, found.between_sd.powi(2), found.se, low, high];
        let theirs = [
            0.067_708_486_872_720_2,
            0.001_913_213_387_424_753_5,
            0.025_703_096_530_865_187,
            0.001_636_573_810_871_372_3,
            0.133_780_399_934_569_03,
        ];
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert!((ours - theirs).abs() < 1e-9, "{ours} and {theirs}");
        }
    }

    #[test]
    fn effects_that_agree_by_chance_do_not_make_the_interval_too_narrow() {
        let found = pooled(&[(0.05, 0.01); 4], 0.95).unwrap();
        assert!((found.se - 0.05).abs() < 1e-12 && found.between_sd == 0.0);
        assert!(pooled(&[(0.05, 0.01)], 0.95).is_none());
        assert!(pooled(&[(0.05, 0.0), (0.04, 0.01)], 0.95).is_none());
    }

    #[test]
    fn the_spread_is_found_with_a_third_of_outliers_and_without() {
        let mut rng = Rng::new(3);
        for outliers in [0, 3, 30] {
            let (mut sds, mut centres) = (0.0, 0.0);
            for _ in 0..50 {
                let mut draw = |at: i32| {
                    let error = 0.01 * f64::from(1 + at % 3);
                    let off = if at < outliers { 0.4 } else { 0.0 };
                    (off + 0.03 * rng.normal() + error * rng.normal(), error * error)
                };
                let found = spread(&(0..100).map(&mut draw).collect::<Vec<_>>(), 0.0).unwrap();
                sds += found.between_sd / 50.0;
                centres += found.centre / 50.0;
                assert!(found.set_aside >= outliers as usize, "{found:?}");
            }
            assert!((sds / 0.03 - 1.0).abs() < 0.1, "{outliers}: {sds}");
            assert!(centres.abs() < 0.003, "{outliers}: {centres}");
        }
    }

    #[test]
    fn equal_effects_have_the_least_spread() {
        let found = spread(&[(0.1, 0.0); 10], 0.02).unwrap();
        assert!((found.between_sd - 0.02).abs() < 1e-12 && (found.centre - 0.1).abs() < 1e-12);
        assert!(spread(&[(0.1, 0.0); 2], 0.02).is_none());
    }
}
