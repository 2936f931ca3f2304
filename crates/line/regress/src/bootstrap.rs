//! The circular block bootstrap (Politis and Romano 1992) with its automatic block length
//! (Politis and White 2004, as corrected by Patton, Politis and White 2009).
//!
//! Neighbouring intervals are correlated, and drawing single rows would ignore that. Blocks of
//! consecutive rows keep the correlation. The rows are on a circle, so that the ends count as much
//! as the middle. The bootstrap is the cross-check of Fieller's interval, because the bootstrap
//! assumes neither normal errors nor equal variances.

use serde::Serialize;

use crate::dist::quantile_sorted;
use crate::{Interval, Rng};

/// The values of a statistic over the resamples.
#[derive(Clone, Debug, Serialize)]
pub struct Bootstrap {
    /// The values, sorted.
    #[serde(skip)]
    pub values: Vec<f64>,
    /// Resamples in which the statistic did not exist.
    pub failed: usize,
    /// Resamples drawn.
    pub resamples: usize,
    /// Rows in a block.
    pub block_length: usize,
    /// The seed of the draws.
    pub seed: u64,
}

impl Bootstrap {
    /// The percentile interval. A resample without a value counts as beyond every bound, so that
    /// the interval is unbounded if there are more than `(1 − level)/2` of them.
    #[must_use]
    pub fn interval(&self, level: f64) -> Interval {
        let tail = (1.0 - level) / 2.0;
        if self.values.is_empty() || self.failed as f64 > tail * self.resamples as f64 {
            return Interval::not_identifiable();
        }
        let position = |p: f64| p * (self.resamples - 1) as f64 / (self.values.len() - 1) as f64;
        if self.values.len() == 1 {
            return Interval::Bounded { low: self.values[0], high: self.values[0] };
        }
        Interval::Bounded {
            low: quantile_sorted(&self.values, position(tail)),
            high: quantile_sorted(&self.values, position(1.0 - tail)),
        }
    }
}

/// Draws `resamples` of `rows` row numbers in circular blocks and computes the statistic of each,
/// which is `None` if it does not exist. The block length is clamped to `1..=rows`.
pub fn block_bootstrap(
    rows: usize,
    block_length: usize,
    resamples: usize,
    seed: u64,
    mut statistic: impl FnMut(&[usize]) -> Option<f64>,
) -> Bootstrap {
    let mut drawn = Vec::with_capacity(rows);
    bootstrap_blocks(rows, block_length, resamples, seed, |blocks| {
        drawn.clear();
        for &(start, length) in blocks {
            drawn.extend((start..start + length).map(|i| i % rows));
        }
        statistic(&drawn)
    })
}

/// [`block_bootstrap`] for a statistic that takes blocks, as (first row, length). The last block is
/// cut, so that all blocks together have `rows` rows.
pub(crate) fn bootstrap_blocks(
    rows: usize,
    block_length: usize,
    resamples: usize,
    seed: u64,
    mut statistic: impl FnMut(&[(usize, usize)]) -> Option<f64>,
) -> Bootstrap {
    let block_length = block_length.clamp(1, rows.max(1));
    let mut rng = Rng::new(seed);
    let mut blocks = Vec::with_capacity(rows.div_ceil(block_length));
    let mut values = Vec::with_capacity(resamples);
    for _ in 0..resamples {
        blocks.clear();
        let mut left = rows;
        while left > 0 {
            let length = block_length.min(left);
            blocks.push((rng.below(rows), length));
            left -= length;
        }
        values.extend(statistic(&blocks).filter(|v| v.is_finite()));
    }
    values.sort_unstable_by(f64::total_cmp);
    Bootstrap { failed: resamples - values.len(), values, resamples, block_length, seed }
}

/// The best block length of the circular bootstrap for the mean of such a series: at least 1, at
/// most `min(3·√n, n/3)` rounded up. Round it up before use.
#[must_use]
pub fn block_length(series: &[f64]) -> f64 {
    let n = series.len();
    if n < 8 {
        return 1.0;
    }
    let nobs = n as f64;
    let length_max = (3.0 * nobs.sqrt()).min(nobs / 3.0).ceil();
    let (covariances, m) = significant_lags(series);
    let mut spectral_slope = 0.0;
    let mut long_run = covariances[0];
    for (k, covariance) in covariances.iter().enumerate().take(m + 1).skip(1) {
        // The flat-top window: one up to half of m, then falling to zero.
        let share = k as f64 / m as f64;
        let window = if share <= 0.5 { 1.0 } else { 2.0 * (1.0 - share) };
        spectral_slope += 2.0 * window * k as f64 * covariance;
        long_run += 2.0 * window * covariance;
    }
    let d = 4.0 / 3.0 * long_run * long_run;
    let length = (2.0 * spectral_slope * spectral_slope / d).cbrt() * nobs.cbrt();
    if length.is_nan() { 1.0 } else { length.clamp(1.0, length_max) }
}

/// Autocovariances, and twice the lag after which `kn` correlations in a row are insignificant.
fn significant_lags(series: &[f64]) -> (Vec<f64>, usize) {
    let n = series.len();
    let nobs = n as f64;
    let mean = crate::dist::mean(series);
    let centred: Vec<f64> = series.iter().map(|v| v - mean).collect();
    let kn = 5.max(nobs.log10() as usize);
    let lag_max = (nobs.sqrt().ceil() as usize + kn).min(n - 2);
    let critical = 2.0 * (nobs.log10() / nobs).sqrt();
    let mut covariances = Vec::with_capacity(lag_max + 1);
    let mut correlations: Vec<f64> = Vec::with_capacity(lag_max + 1);
    let mut quiet_from = None;
    for lag in 0..=lag_max {
        let power = |part: &[f64]| part.iter().map(|v| v * v).sum::<f64>();
        let cross: f64 = centred[lag..].iter().zip(&centred).map(|(a, b)| a * b).sum();
        let norm = (power(&centred[lag + 1..]) * power(&centred[..n - lag - 1])).sqrt();
        covariances.push(cross / nobs);
        correlations.push(cross.abs() / norm);
        let quiet = lag >= kn && correlations[lag - kn..lag].iter().all(|c| *c < critical);
        if quiet && quiet_from.is_none() {
            quiet_from = Some(lag - kn);
        }
    }
    let m = quiet_from.map_or(lag_max, |lag| 2 * lag.max(1));
    (covariances, m.min(lag_max))
}
