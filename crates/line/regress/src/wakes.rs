//! The line with wakes, `C = a + b·x + w·wakes`, in two stages.
//!
//! Wakes are not only a cause of the cost but also an effect: an interval in which requests
//! happened to cost more has less time to sleep, and so fewer wakes. The residual and the wakes of
//! such an interval are then correlated, and a plain fit attributes part of the noise to cheaper
//! wakes: w comes out too small, b too large and the capacity too low (by 4 % at 5 % of noise). The
//! rate does not have this problem, because clients decide it. So wakes are first fitted by a cubic
//! in the rate, and the fitted wakes replace the measured wakes in the line: two-stage least
//! squares, with powers of the rate as instruments.
//!
//! The weights come from the MM-estimate of the second stage and are then used in both stages.
//! Residuals and all intervals are computed with the measured wakes.

use serde::Serialize;

use crate::capacity::{Capacity, Errors, Question, Reading, weighted};
use crate::curvature::{Curvature, curvature_of};
use crate::dist::t_upper_p;
use crate::linear::{Design, least_squares, scaled, two_stage};
use crate::robust::{Robust, mean_psi_slope, mm};
use crate::small::Moments;
use crate::{Unfit, ols};

/// The line with wakes: `C = a + b·x + w·wakes`, by two-stage MM-estimation.
#[derive(Clone, Debug, Serialize)]
pub struct WakesFit {
    /// Fixed cost.
    pub a: f64,
    /// Marginal cost of a request without wakes.
    pub b: f64,
    /// Cost of a wake.
    pub w: f64,
    /// Newey–West standard errors of (a, b, w).
    pub hac_se: [f64; 3],
    /// w over the larger of its two standard errors (Newey–West's and the plain one).
    pub w_t: f64,
    /// One-sided p of w being above zero.
    pub w_p: f64,
    /// The MM-estimate of the second stage, with the rows that it set aside.
    pub robust: Robust,
    /// Share of the (weighted) variance explained.
    pub r_squared: f64,
    /// Whether rate and wakes can be separated.
    pub collinearity: Collinearity,
    /// The capacity at wakes = 0.
    pub capacity: Capacity,
    /// The capacity by a fit in one stage, which shows the effect of the second.
    pub one_stage_capacity: f64,
    /// The curvature test of this line; `None` if the squared rate cannot be separated from the
    /// rest.
    pub curvature: Option<Curvature>,
}

/// How close the wakes, as fitted by the rate, are to a linear function of it.
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
    let Stages { instruments, measured, mut robust } = stages(rate, wakes, cost, question.seed)?;
    let weights = robust.weights.clone();

    // The fit is repeated with the final weights in both stages: only then is the projection
    // orthogonal to its residuals, and the covariance that of the textbooks.
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

/// The designs and weights of a line, for any response.
pub(crate) struct Shape {
    /// The instruments; the same as the regressors if the fit has one stage.
    pub(crate) instruments: Design,
    /// The measured regressors, for the residuals.
    pub(crate) measured: Design,
    /// The regressors projected on the instruments, for the fit.
    pub(crate) design: Design,
    pub(crate) weights: Vec<f64>,
}

/// The designs and the weights of the line with wakes, to which any response can be fitted: a part
/// of the cost goes through the same stages with the same weights as the total.
pub(crate) fn shape(rate: &[f64], wakes: &[f64], cost: &[f64], seed: u64) -> Result<Shape, Unfit> {
    let Stages { instruments, measured, robust } = stages(rate, wakes, cost, seed)?;
    let weights = robust.weights;
    let design = two_stage(&instruments, &measured, cost, Some(&weights))?.projected;
    Ok(Shape { instruments, measured, design, weights })
}

/// The two designs, and the MM-estimate on the rate and the wakes as fitted by the instruments.
struct Stages {
    instruments: Design,
    measured: Design,
    robust: Robust,
}

fn stages(rate: &[f64], wakes: &[f64], cost: &[f64], seed: u64) -> Result<Stages, Unfit> {
    let instruments = instruments(rate)?;
    let measured = Design::new(&[rate, wakes])?;
    let smooth = mm(&instruments, wakes, seed)?;
    let fitted: Vec<f64> =
        (0..rate.len()).map(|i| instruments.fitted(i, &smooth.coefficients)).collect();
    let robust = mm(&Design::new(&[rate, &fitted])?, cost, seed)?;
    Ok(Stages { instruments, measured, robust })
}

/// The powers of the rate up to the third, or to the second if it took only three values. The rate
/// is shifted and scaled to [−1, 1], so that the powers are well separated.
pub(crate) fn instruments(rate: &[f64]) -> Result<Design, Unfit> {
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
