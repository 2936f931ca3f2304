//! Two lines beside each other: what changed, as ratios, and is it more than chance?
//!
//! Ratios come with block-bootstrap intervals, each trial resampled on its own. The interaction
//! test asks whether the slopes differ: their difference over its Newey–West error, the trials
//! being independent of each other. "No change" is not the absence of a difference but an interval
//! that lies within the margin that matters ([`Comparison::equivalent`]).

use serde::Serialize;

use crate::bootstrap::{Bootstrap, block_length, bootstrap_blocks};
use crate::capacity::RESAMPLES;
use crate::curvature::Test;
use crate::dist::student_t_two_sided_p;
use crate::line::{Line, ols};
use crate::linear::{Design, hac_cov, hac_lags, least_squares};
use crate::small::Moments;
use crate::{Estimate, Unfit};

/// What changed from one trial to another.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The straight line before.
    pub before: Line,
    /// The straight line after.
    pub after: Line,
    /// Marginal cost after over before.
    pub slope_ratio: Estimate,
    /// Capacity after over before.
    pub capacity_ratio: Estimate,
    /// Do the slopes differ?
    pub interaction: Test,
}

impl Comparison {
    /// Is the capacity the same to within `margin` (0.05: five percent), at the interval's level?
    #[must_use]
    pub fn equivalent(&self, margin: f64) -> bool {
        let bounds = self.capacity_ratio.interval.bounds();
        bounds.is_some_and(|(low, high)| low >= 1.0 / (1.0 + margin) && high <= 1.0 + margin)
    }
}

/// Compares the straight lines of two trials: `(rate, cost)` of each, one cap for both.
///
/// # Errors
/// As [`ols`], for either trial.
pub fn compare(
    before: (&[f64], &[f64]),
    after: (&[f64], &[f64]),
    cap: f64,
    level: f64,
    seed: u64,
) -> Result<Comparison, Unfit> {
    let (line_before, line_after) = (ols(before.0, before.1)?, ols(after.0, after.1)?);
    let old = bootstrap_lines(before, seed)?;
    let new = bootstrap_lines(after, seed.wrapping_add(1))?;
    let ratio = |of: fn(&[f64; 2], f64) -> Option<f64>| {
        let mut values: Vec<f64> = old
            .iter()
            .zip(&new)
            .filter_map(|(o, n)| Some(of(n, cap)? / of(o, cap)?))
            .filter(|v| v.is_finite())
            .collect();
        values.sort_unstable_by(f64::total_cmp);
        let failed = RESAMPLES - values.len();
        // Each trial has blocks of its own length; an interval needs neither.
        let drawn = Bootstrap { values, failed, resamples: RESAMPLES, block_length: 0, seed };
        drawn.interval(level)
    };
    let method = "circular block bootstrap of each trial".to_owned();
    Ok(Comparison {
        slope_ratio: Estimate {
            value: line_after.slope / line_before.slope,
            interval: ratio(|line, _| (line[1] > 0.0).then_some(line[1])),
            level,
            method: method.clone(),
        },
        capacity_ratio: Estimate {
            value: line_after.reaches(cap) / line_before.reaches(cap),
            interval: ratio(|line, cap| (line[1] > 0.0).then(|| (cap - line[0]) / line[1])),
            level,
            method,
        },
        interaction: interaction(before, after)?,
        before: line_before,
        after: line_after,
    })
}

/// Intercept and slope of each resample; NaN where there was no line.
fn bootstrap_lines(trial: (&[f64], &[f64]), seed: u64) -> Result<Vec<[f64; 2]>, Unfit> {
    let design = Design::new(&[trial.0])?;
    let fit = least_squares(&design, trial.1, None)?;
    let length = block_length(&fit.residuals).ceil() as usize;
    let mut lines = Vec::with_capacity(RESAMPLES);
    let moments = Moments::new(&design, &design, trial.1, None);
    bootstrap_blocks(design.rows(), length, RESAMPLES, seed, |blocks| {
        lines.push(moments.fit(blocks).map_or([f64::NAN; 2], |c| [c[0], c[1]]));
        None
    });
    Ok(lines)
}

/// The t of the difference of the slopes, with Newey–West errors over each trial on its own.
fn interaction(before: (&[f64], &[f64]), after: (&[f64], &[f64])) -> Result<Test, Unfit> {
    let slope = |(rate, cost): (&[f64], &[f64])| -> Result<(f64, f64, usize), Unfit> {
        let design = Design::new(&[rate])?;
        let fit = least_squares(&design, cost, None)?;
        let lags = hac_lags(&fit.residuals);
        let cov = hac_cov(&design, &fit.residuals, &fit.unscaled_cov, lags);
        Ok((fit.coefficients[1], cov[1][1], fit.dof))
    };
    let (old, old_variance, old_dof) = slope(before)?;
    let (new, new_variance, new_dof) = slope(after)?;
    let statistic = (new - old) / (old_variance + new_variance).sqrt();
    // Welch and Satterthwaite: the trials need not be equally noisy.
    let dof = (old_variance + new_variance).powi(2)
        / (old_variance.powi(2) / old_dof as f64 + new_variance.powi(2) / new_dof as f64);
    Ok(Test {
        statistic_name: "t of the difference of slopes (Newey–West)".to_owned(),
        statistic,
        p: student_t_two_sided_p(statistic, dof),
        dof,
    })
}
