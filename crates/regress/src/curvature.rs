//! Is a straight line wrong, and does it matter?
//!
//! The rate squared is added to the fit. Its t statistic uses the Newey–West covariance, because
//! neighbouring intervals resemble each other and plain errors would cry wolf. A small p alone
//! says little (with enough rows everything is curved), so the practical size stands beside it:
//! where the capacity would be if the curve were believed.

use serde::Serialize;

use crate::Unfit;
use crate::dist::student_t_two_sided_p;
use crate::linear::{Design, hac_cov, hac_lags, least_squares};

/// A named test with its figure.
#[derive(Clone, Debug, Serialize)]
pub struct Test {
    /// What the statistic is, fit to print.
    pub statistic_name: String,
    /// Its value.
    pub statistic: f64,
    /// Two-sided probability of one as large if there were nothing.
    pub p: f64,
    /// Degrees of freedom it is held against.
    pub dof: f64,
}

/// The curvature test and its practical size.
#[derive(Clone, Debug, Serialize)]
pub struct Curvature {
    /// t of the squared rate with Newey–West errors.
    pub test: Test,
    /// Coefficient of the squared rate.
    pub coefficient: f64,
    /// Lags the errors sum over.
    pub lags: usize,
    /// Where the curve reaches the cap; none when it never does.
    pub capacity: Option<f64>,
    /// That over the capacity without the curve, less one; none when the curve never gets there.
    pub capacity_change: Option<f64>,
}

/// Adds the square of column 1 (the rate) to the design and tests it. The cap is where capacity is
/// read, with every column beyond the rate at zero.
///
/// # Errors
/// As [`least_squares`]; also [`Unfit::Singular`] when the rate takes fewer than three values.
pub fn curvature(
    design: &Design,
    y: &[f64],
    weights: Option<&[f64]>,
    cap: f64,
) -> Result<Curvature, Unfit> {
    let without = least_squares(design, y, weights)?;
    let squares = design.column(1).iter().map(|x| x * x).collect();
    let wider = design.with_column(squares);
    let fit = least_squares(&wider, y, weights)?;
    let scores: Vec<f64> = match weights {
        Some(weights) => fit.residuals.iter().zip(weights).map(|(r, w)| r * w).collect(),
        None => fit.residuals.clone(),
    };
    let lags = hac_lags(&scores);
    let cov = hac_cov(&wider, &scores, &fit.unscaled_cov, lags);
    let last = wider.coefficients() - 1;
    let coefficient = fit.coefficients[last];
    let statistic = coefficient / cov[last][last].sqrt();
    let dof = fit.dof as f64;
    let straight = (cap - without.coefficients[0]) / without.coefficients[1];
    let capacity = curve_reaches(fit.coefficients[0], fit.coefficients[1], coefficient, cap);
    Ok(Curvature {
        test: Test {
            statistic_name: format!("t of rate² (Newey–West, {lags} lags)"),
            statistic,
            p: student_t_two_sided_p(statistic, dof),
            dof,
        },
        coefficient,
        lags,
        capacity,
        capacity_change: capacity.map(|c| c / straight - 1.0),
    })
}

/// The least positive rate at which `a + b·x + q·x²` rises through the cap.
fn curve_reaches(a: f64, b: f64, q: f64, cap: f64) -> Option<f64> {
    let discriminant = b * b + 4.0 * q * (cap - a);
    if discriminant < 0.0 {
        return None;
    }
    // The rising root in the form that does not cancel and holds for q near zero.
    let rate = 2.0 * (cap - a) / (b + discriminant.sqrt());
    (rate.is_finite() && rate > 0.0).then_some(rate)
}
