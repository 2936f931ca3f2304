//! Is a straight line wrong, and does it matter?
//!
//! The rate squared is added to the fit. Neighbouring intervals resemble each other, and plain
//! errors would cry wolf; in a minute of seconds Newey–West errors still do, a little. So t uses
//! the larger of Newey–West's variance and White's times the `f` of [`crate::capacity`], and the
//! degrees of freedom of as many intervals as these are worth. A small p alone says little (with
//! enough rows everything is curved), so the practical size stands beside it: where the capacity
//! would be if the curve were believed.

use serde::Serialize;

use crate::Unfit;
use crate::capacity::{Autocorrelation, weighted};
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
    /// t of the squared rate, with the larger of two autocorrelation-robust errors.
    pub test: Test,
    /// Coefficient of the squared rate.
    pub coefficient: f64,
    /// t with Newey–West errors alone.
    pub newey_west_t: f64,
    /// Lags those sum over.
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
    curvature_of(design, design, y, weights, cap)
}

/// The same where the fit is made on one design (with wakes as the rate tells them) and residuals
/// are taken from another (with wakes as they were).
pub(crate) fn curvature_of(
    design: &Design,
    measured: &Design,
    y: &[f64],
    weights: Option<&[f64]>,
    cap: f64,
) -> Result<Curvature, Unfit> {
    let without = least_squares(design, y, weights)?;
    let squares: Vec<f64> = design.column(1).iter().map(|x| x * x).collect();
    let wider = design.with_column(squares.clone());
    let fit = least_squares(&wider, y, weights)?;
    let residuals = measured.with_column(squares).residuals(y, &fit.coefficients);
    let scores = weighted(&residuals, weights);
    let lags = hac_lags(&scores);
    let hac = hac_cov(&wider, &scores, &fit.unscaled_cov, lags);
    let unequal = hac_cov(&wider, &scores, &fit.unscaled_cov, 0);
    let alike = Autocorrelation::of(&scores, wider.coefficients());
    let last = wider.coefficients() - 1;
    let coefficient = fit.coefficients[last];
    let newey_west_t = coefficient / hac[last][last].sqrt();
    let variance = hac[last][last].max(unequal[last][last] * alike.per_one);
    let statistic = coefficient / variance.sqrt();
    let dof = alike.dof;
    let straight = (cap - without.coefficients[0]) / without.coefficients[1];
    let capacity = curve_reaches(fit.coefficients[0], fit.coefficients[1], coefficient, cap);
    Ok(Curvature {
        test: Test {
            statistic_name: "t of rate²".to_owned(),
            statistic,
            p: student_t_two_sided_p(statistic, dof),
            dof,
        },
        coefficient,
        newey_west_t,
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
