//! A test of whether a straight line is wrong, and whether it matters.
//!
//! The squared rate is added to the fit. Neighbouring intervals are correlated, so plain errors
//! would give false alarms, and with a minute of one-second intervals Newey–West errors still give
//! some false alarms. So t uses the larger of Newey–West's variance and White's times the `f` of
//! [`crate::capacity`], with the degrees of freedom of the effective number of intervals. A small p
//! alone says little (with enough rows every line is curved), so the practical size is reported
//! too: the capacity according to the curve.

use serde::Serialize;

use crate::Unfit;
use crate::capacity::{Autocorrelation, weighted};
use crate::dist::student_t_two_sided_p;
use crate::linear::{Design, hac_cov, hac_lags, least_squares};

/// A named test with its result.
#[derive(Clone, Debug, Serialize)]
pub struct Test {
    /// The name of the statistic.
    pub statistic_name: String,
    /// Its value.
    pub statistic: f64,
    /// Two-sided probability of a statistic as large if there is no effect.
    pub p: f64,
    /// Degrees of freedom of the test.
    pub dof: f64,
}

/// Welch's t for the difference of two independent estimates, each given as value, variance and
/// degrees of freedom: the two need not be equally noisy.
pub(crate) fn welch(name: &str, before: (f64, f64, f64), after: (f64, f64, f64)) -> Test {
    let ((old, old_variance, old_dof), (new, new_variance, new_dof)) = (before, after);
    let variance = old_variance + new_variance;
    let statistic = (new - old) / variance.sqrt();
    let dof = variance.powi(2) / (old_variance.powi(2) / old_dof + new_variance.powi(2) / new_dof);
    let p = student_t_two_sided_p(statistic, dof);
    Test { statistic_name: name.to_owned(), statistic, p, dof }
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
    /// Lags of the Newey–West errors.
    pub lags: usize,
    /// The rate at which the curve reaches the cap; `None` if it never does.
    pub capacity: Option<f64>,
    /// That over the capacity of the straight line, minus one; `None` if there is none.
    pub capacity_change: Option<f64>,
}

/// Adds the square of column 1 (the rate) to the design and tests it. Capacities are those at the
/// cap, with every column other than the rate at zero.
///
/// # Errors
/// Those of [`least_squares`]; [`Unfit::Singular`] if the rate takes fewer than three values.
pub fn curvature(
    design: &Design,
    y: &[f64],
    weights: Option<&[f64]>,
    cap: f64,
) -> Result<Curvature, Unfit> {
    curvature_of(design, design, y, weights, cap)
}

/// [`curvature`] with the fit on one design (with the wakes as fitted by the rate) and the
/// residuals from another (with the measured wakes).
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
    let correlation = Autocorrelation::of(&scores, wider.coefficients());
    let last = wider.coefficients() - 1;
    let coefficient = fit.coefficients[last];
    let newey_west_t = coefficient / hac[last][last].sqrt();
    let variance = hac[last][last].max(unequal[last][last] * correlation.per_one);
    let statistic = coefficient / variance.sqrt();
    let dof = correlation.dof;
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

/// The smallest positive rate at which `a + b·x + q·x²` rises through the cap.
fn curve_reaches(a: f64, b: f64, q: f64, cap: f64) -> Option<f64> {
    let discriminant = b * b + 4.0 * q * (cap - a);
    if discriminant < 0.0 {
        return None;
    }
    // The rising root, in a form without cancellation that also works for q near zero.
    let rate = 2.0 * (cap - a) / (b + discriminant.sqrt());
    (rate.is_finite() && rate > 0.0).then_some(rate)
}
