//! The straight line of 1998: least squares of a cost on the rate, with the correlation, and
//! Theil–Sen as a cross-check.

use serde::Serialize;

use crate::dist::{median, t_critical};
use crate::linear::{Design, LinearFit, least_squares};
use crate::{Unfit, linear};

/// A fitted straight line `y = intercept + slope · x`.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Fixed cost: `y` at rate zero.
    pub intercept: f64,
    /// Marginal cost: `y` per unit of rate.
    pub slope: f64,
    /// Standard error of the intercept.
    pub se_intercept: f64,
    /// Standard error of the slope.
    pub se_slope: f64,
    /// Covariance of (intercept, slope).
    pub cov: [[f64; 2]; 2],
    /// Pearson's correlation of `x` and `y` (weighted if the fit was).
    pub correlation: f64,
    /// The square of the correlation.
    pub r_squared: f64,
    /// Residual standard deviation, `n − 2` degrees of freedom.
    pub residual_sd: f64,
    /// Rows with a positive weight.
    pub n: usize,
    /// `n − 2`.
    pub dof: usize,
}

impl Line {
    /// The line's value at `x`.
    #[must_use]
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }

    /// The confidence band of the line itself at `x`.
    #[must_use]
    pub fn band(&self, x: f64, level: f64) -> (f64, f64) {
        let half = t_critical(level, self.dof as f64) * self.variance_at(x).sqrt();
        (self.at(x) - half, self.at(x) + half)
    }

    /// The band for one more interval at `x`: from the line's variance and the residual variance.
    #[must_use]
    pub fn prediction_band(&self, x: f64, level: f64) -> (f64, f64) {
        let variance = self.variance_at(x) + self.residual_sd.powi(2);
        let half = t_critical(level, self.dof as f64) * variance.sqrt();
        (self.at(x) - half, self.at(x) + half)
    }

    /// The `x` at which the line meets `y`: the capacity if `y` is the cap (or 0 for an idle line).
    #[must_use]
    pub fn reaches(&self, y: f64) -> f64 {
        (y - self.intercept) / self.slope
    }

    fn variance_at(&self, x: f64) -> f64 {
        (self.cov[0][0] + 2.0 * x * self.cov[0][1] + x * x * self.cov[1][1]).max(0.0)
    }

    pub(crate) fn from_fit(fit: &LinearFit) -> Line {
        let (intercept, slope) = (fit.coefficients[0], fit.coefficients[1]);
        let cov = [[fit.cov[0][0], fit.cov[0][1]], [fit.cov[1][0], fit.cov[1][1]]];
        Line {
            intercept,
            slope,
            se_intercept: fit.se(0),
            se_slope: fit.se(1),
            cov,
            correlation: fit.r_squared.max(0.0).sqrt().copysign(slope),
            r_squared: fit.r_squared,
            residual_sd: fit.residual_sd,
            n: fit.n,
            dof: fit.dof,
        }
    }
}

/// Ordinary least squares of `y` on `x`.
///
/// # Errors
/// Fewer than three rows, lengths that differ, values not finite, an `x` that does not vary.
pub fn ols(x: &[f64], y: &[f64]) -> Result<Line, Unfit> {
    let design = Design::new(&[x])?;
    Ok(Line::from_fit(&least_squares(&design, y, None)?))
}

/// Weighted least squares of `y` on `x`. Rows with weight zero do not count.
///
/// # Errors
/// Those of [`ols`], and a negative weight.
pub fn wls(x: &[f64], y: &[f64], weights: &[f64]) -> Result<Line, Unfit> {
    let design = Design::new(&[x])?;
    Ok(Line::from_fit(&least_squares(&design, y, Some(weights))?))
}

/// The line of Theil (1950) and Sen (1968): the median of the slopes of all pairs, with a
/// rank-based interval. Up to 29 % of outliers do not move it far.
#[derive(Clone, Debug, Serialize)]
pub struct TheilSen {
    /// Median of the pairs' slopes.
    pub slope: f64,
    /// `median(y) − slope · median(x)`.
    pub intercept: f64,
    /// Lower end of the slope's interval (Kendall's distribution, normal approximation).
    pub slope_low: f64,
    /// Upper end.
    pub slope_high: f64,
    /// Pairs used; a sample of them above [`THEIL_SEN_PAIRS_MAX`].
    pub pairs: usize,
}

/// Above this many pairs (about 1,400 rows), only pairs at evenly spaced time distances are used.
pub const THEIL_SEN_PAIRS_MAX: usize = 1_000_000;

/// Theil–Sen of `y` on `x`, with the interval of the slope at `level`.
///
/// # Errors
/// Fewer than three rows, lengths that differ, values not finite, an `x` that does not vary.
pub fn theil_sen(x: &[f64], y: &[f64], level: f64) -> Result<TheilSen, Unfit> {
    let n = x.len();
    if n < 3 {
        return Err(Unfit::TooFew { needed: 3, found: n });
    }
    linear::check_column(x, n)?;
    linear::check_column(y, n)?;
    let distances = n - 1;
    let stride = (n * distances / 2).div_ceil(THEIL_SEN_PAIRS_MAX);
    let mut slopes = Vec::with_capacity((n * distances / 2).min(THEIL_SEN_PAIRS_MAX + n));
    for distance in (1..n).step_by(stride.max(1)) {
        for i in 0..n - distance {
            let run = x[i + distance] - x[i];
            if run != 0.0 {
                slopes.push((y[i + distance] - y[i]) / run);
            }
        }
    }
    if slopes.is_empty() {
        return Err(Unfit::Singular);
    }
    let slope = median(&mut slopes);
    let intercept = median(&mut y.to_vec()) - slope * median(&mut x.to_vec());
    let (slope_low, slope_high) = sen_interval(x, y, &mut slopes, level, stride.max(1));
    Ok(TheilSen { slope, intercept, slope_low, slope_high, pairs: slopes.len() })
}

/// The value at `rank`, from zero. Sorting all of a million slopes would take five times as long as
/// selecting a few of them.
fn order_statistic(values: &mut [f64], rank: usize) -> f64 {
    *values.select_nth_unstable_by(rank, f64::total_cmp).1
}

/// Sen's interval (1968, equation 2.6) as scipy computes it: the slopes at ranks `(N ± z σ)/2`,
/// where σ² accounts for ties in `x` and `y`.
fn sen_interval(x: &[f64], y: &[f64], slopes: &mut [f64], level: f64, stride: usize) -> (f64, f64) {
    use statrs::distribution::{ContinuousCDF, Normal};
    let z = Normal::standard().inverse_cdf(0.5 - level / 2.0);
    let n = x.len() as f64;
    let ties = |values: &[f64]| -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted
            .chunk_by(|a, b| a == b)
            .map(|run| run.len() as f64)
            .map(|k| k * (k - 1.0) * (2.0 * k + 5.0))
            .sum()
    };
    let variance = (n * (n - 1.0) * (2.0 * n + 5.0) - ties(x) - ties(y)) / 18.0;
    // With a sample of the pairs, ranks are scaled in proportion.
    let sigma = variance.max(0.0).sqrt() / stride as f64;
    let count = slopes.len() as f64;
    let last = slopes.len() - 1;
    let upper = ((count - z * sigma) / 2.0).round_ties_even().max(0.0) as usize;
    let lower = ((count + z * sigma) / 2.0).round_ties_even() - 1.0;
    let lower = (lower.max(0.0) as usize).min(last);
    (order_statistic(slopes, lower), order_statistic(slopes, upper.min(last)))
}
