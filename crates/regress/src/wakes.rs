//! The line with wakes, `C = a + b·x + w·wakes`, in two stages.
//!
//! Wakes are not a cause alone but an effect too: an interval in which every request happened to
//! cost more leaves less time to sleep, so it has fewer wakes. Its residual and its wakes are then
//! correlated, and a plain fit takes part of the noise for a cheaper wake: w comes out too small,
//! b too large and the capacity too low (by 4 % at 5 % of noise). The rate is not so tainted,
//! for clients decide it. So wakes are first fitted by a cubic in the rate, and that fit stands
//! for them in the line: two-stage least squares, with the powers of the rate for instruments.
//!
//! Weights come from the MM-estimate of the second stage and are then used in both. Residuals,
//! and all intervals, are of the cost less the line at the wakes that were measured.

use serde::Serialize;

use crate::capacity::{Capacity, Errors, Question, Reading, weighted};
use crate::curvature::{Curvature, curvature_of};
use crate::dist::t_upper_p;
use crate::linear::{Design, least_squares, scaled};
use crate::robust::{Robust, mean_psi_slope, mm};
use crate::small::Moments;
use crate::{Unfit, ols};

/// The line with wakes: `C = a + b·x + w·wakes`, by two-stage MM-estimation.
#[derive(Clone, Debug, Serialize)]
pub struct WakesFit {
    /// Fixed cost.
    pub a: f64,
    /// Marginal cost of a request, wakes apart.
    pub b: f64,
    /// Cost of a wake.
    pub w: f64,
    /// Newey–West standard errors of (a, b, w).
    pub hac_se: [f64; 3],
    /// w over the larger of its two standard errors (Newey–West's and the plain one).
    pub w_t: f64,
    /// One-sided p of w being above zero.
    pub w_p: f64,
    /// The MM-estimate of the second stage, with what it set aside.
    pub robust: Robust,
    /// Share of the (weighted) variance explained.
    pub r_squared: f64,
    /// Can rate and wakes be told apart?
    pub collinearity: Collinearity,
    /// Capacity, read at wakes = 0.
    pub capacity: Capacity,
    /// The curvature test of this line; none where the squared rate cannot be told from the rest.
    pub curvature: Option<Curvature>,
}

/// How nearly the wakes, as fitted by the rate, are a straight line of it.
#[derive(Clone, Debug, Serialize)]
pub struct Collinearity {
    /// Variance inflation factor of rate and wakes: `1/(1 − r²)`.
    pub vif: f64,
    /// Condition number of the design, columns scaled to unit length.
    pub condition_number: f64,
}

pub(crate) fn fit_wakes(
    rate: &[f64],
    wakes: &[f64],
    cost: &[f64],
    question: Question,
) -> Result<WakesFit, Unfit> {
    let instruments = instruments(rate)?;
    let smooth = mm(&instruments, wakes, question.seed)?;
    let projected = Design::new(&[rate, &project(&instruments, &smooth.coefficients)])?;
    let mut robust = mm(&projected, cost, question.seed)?;
    let weights = robust.weights.clone();

    // Once more with the final weights in both stages: only then is the projection orthogonal to
    // what it leaves, and the covariance that of the textbook.
    let smooth = least_squares(&instruments, wakes, Some(&weights))?;
    let projected = Design::new(&[rate, &project(&instruments, &smooth.coefficients)])?;
    let reduced = least_squares(&projected, cost, Some(&weights))?;
    let measured = Design::new(&[rate, wakes])?;
    let residuals = measured.residuals(cost, &reduced.coefficients);

    let power = |r: &[f64]| r.iter().zip(&weights).map(|(r, w)| w * r * r).sum::<f64>();
    let inflation = power(&residuals) / power(&reduced.residuals);
    let residual_sd = robust.scale * if inflation.is_finite() { inflation.sqrt() } else { 1.0 };
    let bread =
        scaled(&reduced.unscaled_cov, crate::dist::mean(&weights) / mean_psi_slope(&robust));
    let scores = weighted(&residuals, Some(&weights));
    let plain = scaled(&robust.cov, if inflation.is_finite() { inflation } else { 1.0 });
    let errors = Errors::new(&projected, &scores, &bread, plain);
    robust.coefficients.clone_from(&reduced.coefficients);

    let reading = Reading {
        design: &measured,
        coefficients: &reduced.coefficients,
        errors: &errors,
        residuals: &residuals,
        weights: Some(&weights),
        residual_sd,
        dof: reduced.dof,
    };
    let moments = Moments::new(&instruments, &measured, cost, Some(&weights));
    let capacity = reading.capacity(question, &moments);
    let [a, b, w] = [0, 1, 2].map(|j| reduced.coefficients[j]);
    let w_t = w / errors.hac[2][2].max(errors.plain[2][2]).sqrt();
    let spread = power(&residuals) / total_power(cost, &weights);
    Ok(WakesFit {
        a,
        b,
        w,
        hac_se: [0, 1, 2].map(|j| errors.hac[j][j].max(0.0).sqrt()),
        w_t,
        w_p: t_upper_p(w_t, reduced.dof as f64),
        r_squared: 1.0 - spread,
        collinearity: Collinearity {
            vif: 1.0 / (1.0 - ols(rate, projected.column(2))?.r_squared),
            condition_number: projected.condition_number(),
        },
        capacity,
        curvature: curvature_of(&projected, &measured, cost, Some(&weights), question.cap).ok(),
        robust,
    })
}

/// The rate's powers up to the third, or second where it took only three values, of the rate
/// moved and scaled to [−1, 1] so that they are well apart.
fn instruments(rate: &[f64]) -> Result<Design, Unfit> {
    let low = rate.iter().copied().fold(f64::INFINITY, f64::min);
    let high = rate.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if low.is_nan() || high <= low {
        return Err(Unfit::Singular);
    }
    let power = |k: i32| -> Vec<f64> {
        rate.iter().map(|x| (2.0 * (x - low) / (high - low) - 1.0).powi(k)).collect()
    };
    let cubic = Design::new(&[&power(1), &power(2), &power(3)])?;
    match least_squares(&cubic, rate, None) {
        Ok(_) => Ok(cubic),
        Err(_) => Design::new(&[&power(1), &power(2)]),
    }
}

fn project(instruments: &Design, coefficients: &[f64]) -> Vec<f64> {
    (0..instruments.rows()).map(|i| instruments.fitted(i, coefficients)).collect()
}

/// The (weighted) sum of squares about the mean.
fn total_power(y: &[f64], weights: &[f64]) -> f64 {
    let sum: f64 = weights.iter().sum();
    let mean = y.iter().zip(weights).map(|(y, w)| w * y).sum::<f64>() / sum;
    y.iter().zip(weights).map(|(y, w)| w * (y - mean).powi(2)).sum()
}
