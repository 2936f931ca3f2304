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
use crate::linear::{Design, least_squares, scaled, two_stage};
use crate::robust::{Robust, mean_psi_slope, mm};
use crate::small::Moments;
use crate::what_if::Shape;
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
    /// The point a plain fit in one stage would have given: how much the second stage matters.
    pub one_stage_capacity: f64,
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
    let measured = Design::new(&[rate, wakes])?;
    let smooth = mm(&instruments, wakes, question.seed)?;
    let told: Vec<f64> =
        (0..rate.len()).map(|i| instruments.fitted(i, &smooth.coefficients)).collect();
    let mut robust = mm(&Design::new(&[rate, &told])?, cost, question.seed)?;
    let weights = robust.weights.clone();

    // Once more with the final weights in both stages: only then is the projection orthogonal to
    // what it leaves, and the covariance that of the textbook.
    let fit = two_stage(&instruments, &measured, cost, Some(&weights))?;
    let power = |r: &[f64]| r.iter().zip(&weights).map(|(r, w)| w * r * r).sum::<f64>();
    let reduced = fit.projected.residuals(cost, &fit.coefficients);
    let inflation = power(&fit.residuals) / power(&reduced);
    let inflation = if inflation.is_finite() { inflation } else { 1.0 };
    let bread = scaled(&fit.unscaled_cov, crate::dist::mean(&weights) / mean_psi_slope(&weights));
    let scores = weighted(&fit.residuals, Some(&weights));
    let plain = scaled(&robust.cov, inflation);
    let errors = Errors::new(&fit.projected, &scores, &bread, plain);
    robust.coefficients.clone_from(&fit.coefficients);

    let reading = Reading {
        design: &measured,
        coefficients: &fit.coefficients,
        errors: &errors,
        residuals: &fit.residuals,
        weights: Some(&weights),
        residual_sd: robust.scale * inflation.sqrt(),
        dof: robust.dof,
    };
    let moments = Moments::new(&instruments, &measured, cost, Some(&weights));
    let capacity = reading.capacity(question, &moments);
    let [a, b, w] = [0, 1, 2].map(|j| fit.coefficients[j]);
    let w_t = w / errors.hac[2][2].max(errors.plain[2][2]).sqrt();
    let spread = power(&fit.residuals) / total_power(cost, &weights);
    Ok(WakesFit {
        a,
        b,
        w,
        hac_se: [0, 1, 2].map(|j| errors.hac[j][j].max(0.0).sqrt()),
        w_t,
        w_p: t_upper_p(w_t, robust.dof as f64),
        r_squared: 1.0 - spread,
        collinearity: Collinearity {
            vif: 1.0 / (1.0 - ols(rate, fit.projected.column(2))?.r_squared),
            condition_number: fit.projected.condition_number(),
        },
        capacity,
        one_stage_capacity: one_stage(&measured, cost, question)?,
        curvature: curvature_of(&fit.projected, &measured, cost, Some(&weights), question.cap).ok(),
        robust,
    })
}

/// The line with wakes as a form to fit any response to: the part of a cost goes through the same
/// stages with the same weights as the whole of it.
pub(crate) fn shape(rate: &[f64], wakes: &[f64], cost: &[f64], seed: u64) -> Result<Shape, Unfit> {
    let instruments = instruments(rate)?;
    let measured = Design::new(&[rate, wakes])?;
    let smooth = mm(&instruments, wakes, seed)?;
    let told: Vec<f64> =
        (0..rate.len()).map(|i| instruments.fitted(i, &smooth.coefficients)).collect();
    let weights = mm(&Design::new(&[rate, &told])?, cost, seed)?.weights;
    let design = two_stage(&instruments, &measured, cost, Some(&weights))?.projected;
    Ok(Shape { instruments, measured, design, weights })
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

fn one_stage(measured: &Design, cost: &[f64], question: Question) -> Result<f64, Unfit> {
    let plain = mm(measured, cost, question.seed)?.coefficients;
    Ok((question.cap - plain[0]) / plain[1])
}

/// The (weighted) sum of squares about the mean.
fn total_power(y: &[f64], weights: &[f64]) -> f64 {
    let sum: f64 = weights.iter().sum();
    let mean = y.iter().zip(weights).map(|(y, w)| w * y).sum::<f64>() / sum;
    y.iter().zip(weights).map(|(y, w)| w * (y - mean).powi(2)).sum()
}
