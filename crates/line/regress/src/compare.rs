//! The comparison of two slopes, and what "no change" means.
//!
//! The interaction test checks whether the slopes of two independent trials differ. The statistic
//! is the difference of the slopes divided by its Newey–West error. "No change" is not the absence
//! of a significant difference but an interval within the relevant margin ([`equivalent`]). The
//! costs of a request in the two trials are compared in [`mod@crate::same_load`].

use crate::curvature::{Test, welch};
use crate::linear::{Design, hac_cov, hac_lags, least_squares};
use crate::{Interval, Unfit};

/// Whether the interval of a ratio is within `margin` of one (0.05: five percent). That, and not
/// the absence of a significant difference, is "no change".
#[must_use]
pub fn equivalent(ratio: &Interval, margin: f64) -> bool {
    ratio.bounds().is_some_and(|(low, high)| low >= 1.0 / (1.0 + margin) && high <= 1.0 + margin)
}

/// The t of the difference of the slopes, with separate Newey–West errors for each trial.
///
/// # Errors
/// Those of [`crate::ols`], for either trial.
pub fn interaction(before: (&[f64], &[f64]), after: (&[f64], &[f64])) -> Result<Test, Unfit> {
    let slope = |(rate, cost): (&[f64], &[f64])| -> Result<(f64, f64, f64), Unfit> {
        let design = Design::new(&[rate])?;
        let fit = least_squares(&design, cost, None)?;
        let lags = hac_lags(&fit.residuals);
        let cov = hac_cov(&design, &fit.residuals, &fit.unscaled_cov, lags);
        Ok((fit.coefficients[1], cov[1][1], fit.dof as f64))
    };
    Ok(welch("t of the difference of slopes (Newey–West)", slope(before)?, slope(after)?))
}
