//! The cost of a request, as a ratio of two sums, and the change of this cost at the same rate.
//!
//! Windows of time are the clusters, because neighbouring intervals resemble each other. The
//! variance is the variance of the ratio estimator (Cochran 1977, 6.3), from sums over the windows
//! of squares and products.

use crate::bins::Bin;

/// Rates below this part of the highest in common are left out, as in [`mod@crate::same_load`].
pub use crate::same_load::BUSY_PART;
/// Fewest windows in a bin, on each side.
pub const WINDOWS_MIN: f64 = 3.0;

/// Sums over windows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Clusters {
    /// Number of windows.
    pub n: f64,
    /// Sum of x.
    pub x: f64,
    /// Sum of c.
    pub c: f64,
    /// Sum of the square of each window's x.
    pub xx: f64,
    /// Sum of the product of each window's x and c.
    pub xc: f64,
    /// Sum of the square of each window's c.
    pub cc: f64,
}

impl From<&Bin> for Clusters {
    /// The windows of a bin, not its intervals: some of these are in windows of other bins. The
    /// sums over the windows follow from products with their lengths, exactly if these are equal.
    fn from(bin: &Bin) -> Clusters {
        let per_length = bin.window_s / bin.window_ss;
        Clusters {
            n: bin.windows,
            x: per_length * bin.window_sx,
            c: per_length * bin.window_sc,
            xx: bin.window_xx,
            xc: bin.window_xc,
            cc: bin.window_cc,
        }
    }
}

/// The logarithm of c over x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LogRatio {
    /// Its value.
    pub value: f64,
    /// Its variance.
    pub variance: f64,
    /// Degrees of freedom of the variance.
    pub dof: f64,
    /// The number of windows of the same size that would have as large a variance.
    pub effective_n: f64,
}

/// The ratio of sums; `None` with fewer than two windows, or without requests or cost.
#[must_use]
pub fn log_ratio(sums: &Clusters) -> Option<LogRatio> {
    let Clusters { n, x, c, xx, xc, cc } = *sums;
    if !(n >= 2.0 && x > 0.0 && c > 0.0 && xx > 0.0) {
        return None;
    }
    let value = c / x;
    let squares = (cc - 2.0 * value * xc + value * value * xx).max(0.0);
    let variance = n / (n - 1.0) * squares / (c * c);
    let found = LogRatio { value: value.ln(), variance, dof: n - 1.0, effective_n: x * x / xx };
    [found.value, variance, found.effective_n].iter().all(|v| v.is_finite()).then_some(found)
}

/// The change of the cost of a request at the same rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SameRate {
    /// ln of the cost after over before.
    pub value: f64,
    /// Its variance, by the windows.
    pub variance: f64,
    /// Degrees of freedom of the variance (Satterthwaite).
    pub dof: f64,
    /// Number of bins.
    pub bins: usize,
    /// The lowest and the highest of them.
    pub range: (i32, i32),
    /// Number of intervals in them, before and after.
    pub n: [f64; 2],
}

/// Compares two lists of bins, each lowest first. In each bin that both have, the cost after is
/// divided by the cost before, and the ratios are averaged in the logarithm. Weights are the
/// effective numbers of windows. Estimated variances of bins with few windows would not do: the bin
/// with the least by chance would have the largest weight. `None` if no bin has [`WINDOWS_MIN`]
/// windows on both sides.
#[must_use]
pub fn same_rate(before: &[(i32, Bin)], after: &[(i32, Bin)]) -> Option<SameRate> {
    let common: Vec<(i32, &Bin, &Bin)> = before
        .iter()
        .filter_map(|(bin, old)| {
            let at = after.binary_search_by_key(bin, |(other, _)| *other).ok()?;
            let new = &after[at].1;
            (old.windows >= WINDOWS_MIN && new.windows >= WINDOWS_MIN).then_some((*bin, old, new))
        })
        .collect();
    let highest = common.last()?.0;
    let lowest = f64::from(highest) + crate::bins::BINS_PER_OCTAVE * BUSY_PART.log2();
    let parts: Vec<(i32, [&Bin; 2], [LogRatio; 2])> = common
        .into_iter()
        .filter(|(bin, ..)| f64::from(*bin) >= lowest)
        .filter_map(|(bin, old, new)| {
            Some((bin, [old, new], [log_ratio(&old.into())?, log_ratio(&new.into())?]))
        })
        .collect();
    let weight =
        |sides: &[LogRatio; 2]| 1.0 / sides.map(|s| 1.0 / s.effective_n).iter().sum::<f64>();
    let all: f64 = parts.iter().map(|(.., sides)| weight(sides)).sum();
    let (mut value, mut variance, mut by_dof) = (0.0, 0.0, 0.0);
    for (.., sides) in &parts {
        let share = weight(sides) / all;
        value += share * (sides[1].value - sides[0].value);
        for side in sides {
            let part = share * share * side.variance;
            variance += part;
            by_dof += part * part / side.dof;
        }
    }
    let sum = |side: usize| parts.iter().map(|(_, bins, _)| bins[side].n).sum();
    Some(SameRate {
        value,
        variance,
        dof: if by_dof > 0.0 { variance * variance / by_dof } else { f64::INFINITY },
        bins: parts.len(),
        range: (parts.first()?.0, parts.last()?.0),
        n: [sum(0), sum(1)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use crate::bins::bin_of;
    use std::collections::BTreeMap;

    /// Windows of four intervals at rates around 1,000, whose costs are `cost` of the rate.
    fn bins(rng: &mut Rng, windows: usize, cost: impl Fn(f64) -> f64) -> Vec<(i32, Bin)> {
        let mut all: BTreeMap<i32, Bin> = BTreeMap::new();
        for _ in 0..windows {
            let level = 1.0 + 0.05 * rng.normal();
            let mut window: BTreeMap<i32, Bin> = BTreeMap::new();
            let middle = 1000.0 * (0.6 * (rng.uniform() - 0.5)).exp();
            for _ in 0..4 {
                let rate = middle * (1.0 + 0.01 * rng.normal());
                let bin = window.entry(bin_of(rate)).or_default();
                *bin = *bin + Bin::of(rate, rate * cost(rate) * level, 0.0);
            }
            for (bin, sums) in window {
                let whole = all.entry(bin).or_default();
                *whole = *whole + sums.as_window();
            }
        }
        all.into_iter().collect()
    }

    #[test]
    fn the_ratio_has_the_variance_of_its_windows() {
        let mut rng = Rng::new(5);
        let (mut values, mut variances) = (Vec::new(), Vec::new());
        for _ in 0..400 {
            let mut sums = Clusters::default();
            for _ in 0..20 {
                let x = 100.0 * (1.0 + rng.uniform());
                let c = 3.0 * x * (1.0 + 0.1 * rng.normal());
                sums.n += 1.0;
                (sums.x, sums.c) = (sums.x + x, sums.c + c);
                (sums.xx, sums.xc, sums.cc) = (sums.xx + x * x, sums.xc + x * c, sums.cc + c * c);
            }
            let ratio = log_ratio(&sums).unwrap();
            values.push(ratio.value - 3.0_f64.ln());
            variances.push(ratio.variance);
        }
        let of_values = values.iter().map(|v| v * v).sum::<f64>() / 400.0;
        let expected = variances.iter().sum::<f64>() / 400.0;
        assert!((of_values / expected - 1.0).abs() < 0.25, "{of_values} {expected}");
    }

    #[test]
    fn a_change_is_found_although_the_rates_differ() {
        let mut rng = Rng::new(7);
        let falls = |rate: f64| 50e-6 * (rate / 1000.0).powf(-0.4);
        let before = bins(&mut rng, 300, falls);
        let after = bins(&mut rng, 300, |rate| 1.08 * falls(rate));
        // The same server, busier: a plain ratio of costs would be lower.
        let busier: Vec<(i32, Bin)> = after.iter().filter(|b| b.0 >= 158).copied().collect();
        for after in [after, busier] {
            let found = same_rate(&before, &after).unwrap();
            let off = (found.value - 1.08_f64.ln()) / found.variance.sqrt();
            assert!(off.abs() < 3.0 && found.variance.sqrt() < 0.01, "{found:?}");
        }
    }

    #[test]
    fn nothing_in_common_is_no_comparison() {
        let mut rng = Rng::new(9);
        let all = bins(&mut rng, 100, |_| 1e-5);
        let (low, high) = all.split_at(all.len() / 2);
        assert_eq!(same_rate(low, high), None);
        assert_eq!(same_rate(&[], &all), None);
        assert_eq!(log_ratio(&Clusters::default()), None);
        assert_eq!(same_rate(&all, &all).unwrap().value, 0.0);
    }
}
