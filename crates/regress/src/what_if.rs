//! The capacity if part of the work cost less, or nothing.
//!
//! `X*(f) = (cap − a + f·a_g) / (b − f·b_g)` if the fraction f of group g is removed, or the same
//! with the group's cost replaced by another. It is a first-order prediction: the costs of the
//! other work do not change, and the effects of fewer sleeps, warmer caches or shorter queues are
//! ignored.
//!
//! [`what_if`] is only the formula, for published figures. [`predict`] has the intervals of a
//! trial, and so gives an interval too: the group's cost is removed from (or replaced in) every
//! interval, and the line is fitted to the result with the weights of the total. By linearity that
//! is the formula, and the result has the residuals that a future saturated interval will have. The
//! interval of the ratio is narrower, because errors common to both lines cancel.

use serde::Serialize;

use crate::bootstrap::{block_length, bootstrap_blocks};
use crate::capacity::{Capacity, Errors, Question, RESAMPLES, Reading, weighted};
use crate::interval::Estimate;
use crate::linear::{Design, check_column, least_squares};
use crate::load_line::LoadLineInput;
use crate::small::Moments;
use crate::{Unfit, mm, wakes};

/// A group's share of the line: its fixed and marginal cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Group {
    /// The group's fixed cost, `a_g`.
    pub intercept: f64,
    /// The group's marginal cost, `b_g`.
    pub slope: f64,
}

/// The change of the group's cost.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// This fraction of its cost is removed: 1 makes it free, 0.5 halves it, −1 doubles it.
    Remove {
        /// The fraction.
        fraction: f64,
    },
    /// All of its cost is replaced by this one.
    Replace {
        /// The new fixed cost.
        intercept: f64,
        /// The new marginal cost.
        slope: f64,
    },
}

/// The result of [`what_if`].
#[derive(Clone, Debug, Serialize)]
pub struct WhatIf {
    /// Current capacity.
    pub before: f64,
    /// Capacity with the change.
    pub after: f64,
    /// `after / before`.
    pub ratio: f64,
    /// The caveat to print with it.
    pub note: &'static str,
}

/// The caveat of every what-if.
pub const FIRST_ORDER: &str = "first-order: all other costs are assumed not to change";

/// Capacity if `group` of the line `intercept + slope · x` changed.
///
/// # Errors [`Unfit::NotPositive`] if the remaining marginal cost, or the room under the cap, is
/// not positive, so that there is no capacity.
pub fn what_if(
    cap: f64,
    intercept: f64,
    slope: f64,
    group: Group,
    change: Change,
) -> Result<WhatIf, Unfit> {
    let (intercept_after, slope_after) = match change {
        Change::Remove { fraction } => {
            (intercept - fraction * group.intercept, slope - fraction * group.slope)
        }
        Change::Replace { intercept: fixed, slope: marginal } => {
            (intercept - group.intercept + fixed, slope - group.slope + marginal)
        }
    };
    let before = capacity(cap, intercept, slope)?;
    let after = capacity(cap, intercept_after, slope_after)?;
    Ok(WhatIf { before, after, ratio: after / before, note: FIRST_ORDER })
}

/// The prediction for a trial.
#[derive(Clone, Debug, Serialize)]
pub struct Predicted {
    /// Current capacity, by the same line and weights.
    pub before: f64,
    /// Capacity with the change; its interval is for a future saturated interval.
    pub after: Capacity,
    /// `after / before`.
    pub ratio: Estimate,
    /// Current marginal cost of the same line.
    pub marginal_before: f64,
    /// Marginal cost with the change.
    pub marginal_after: f64,
    /// The caveat to print with it.
    pub note: &'static str,
}

/// Predicts the capacity if `group` (its cost in each interval of `input`) changed. If `input` has
/// wakes, the capacity is that of the line with wakes at wakes = 0, otherwise that of the straight
/// line. Both use the weights of the MM-estimate of the total.
///
/// # Errors
/// Those of [`crate::load_line()`]; [`Unfit::NotPositive`] if the remaining marginal cost, or the
/// room under the cap, is not positive.
pub fn predict(
    input: &LoadLineInput<'_>,
    group: &[f64],
    change: Change,
) -> Result<Predicted, Unfit> {
    let rate = input.rate;
    check_column(group, rate.len())?;
    check_column(input.cost, rate.len())?;
    let row = |i: usize| match change {
        Change::Remove { fraction } => input.cost[i] - fraction * group[i],
        Change::Replace { intercept, slope } => {
            input.cost[i] - group[i] + intercept + slope * rate[i]
        }
    };
    let changed: Vec<f64> = (0..rate.len()).map(row).collect();
    check_column(&changed, rate.len())?;
    let shape = match input.wakes {
        Some(wakes) => wakes::shape(rate, wakes, input.cost, input.seed)?,
        None => {
            let design = Design::new(&[rate])?;
            let weights = mm(&design, input.cost, input.seed)?.weights;
            Shape { instruments: design.clone(), measured: design.clone(), design, weights }
        }
    };
    let before = shape.coefficients(input.cost)?;
    let after = shape.coefficients(&changed)?;
    let capacity_before = capacity(input.cap, before[0], before[1])?;
    capacity(input.cap, after[0], after[1])?;
    let after_capacity = shape.capacity(input, &changed, &after)?;
    let ratio = shape.ratio(input, &changed, after_capacity.value / capacity_before);
    Ok(Predicted {
        before: capacity_before,
        after: after_capacity,
        ratio,
        marginal_before: before[1],
        marginal_after: after[1],
        note: FIRST_ORDER,
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

impl Shape {
    fn coefficients(&self, y: &[f64]) -> Result<Vec<f64>, Unfit> {
        Ok(least_squares(&self.design, y, Some(&self.weights))?.coefficients)
    }

    fn moments(&self, y: &[f64]) -> Moments {
        Moments::new(&self.instruments, &self.measured, y, Some(&self.weights))
    }

    fn capacity(
        &self,
        input: &LoadLineInput<'_>,
        y: &[f64],
        coefficients: &[f64],
    ) -> Result<Capacity, Unfit> {
        let weights = self.weights.as_slice();
        let fit = least_squares(&self.design, y, Some(weights))?;
        let residuals = self.measured.residuals(y, coefficients);
        let power: f64 = residuals.iter().zip(weights).map(|(r, w)| w * r * r).sum();
        let variance = power / fit.dof as f64;
        let plain = crate::linear::scaled(&fit.unscaled_cov, variance);
        let scores = weighted(&residuals, Some(weights));
        let errors = Errors::new(&self.design, &scores, &fit.unscaled_cov, plain);
        let reading = Reading {
            design: &self.measured,
            coefficients,
            errors: &errors,
            residuals: &residuals,
            weights: Some(weights),
            residual_sd: variance.sqrt(),
            dof: fit.dof,
        };
        let LoadLineInput { cap, level, between_run, seed, .. } = *input;
        Ok(reading.capacity(Question { cap, level, between_run, seed }, &self.moments(y)))
    }

    /// The ratio of the capacities, with both lines fitted to the same blocks.
    fn ratio(&self, input: &LoadLineInput<'_>, changed: &[f64], value: f64) -> Estimate {
        let (old, new) = (self.moments(input.cost), self.moments(changed));
        let residuals = match self.coefficients(changed) {
            Ok(coefficients) => self.measured.residuals(changed, &coefficients),
            Err(_) => Vec::new(),
        };
        let length = block_length(&weighted(&residuals, Some(&self.weights))).ceil() as usize;
        let meets = |fit: Vec<f64>| (fit[1] > 0.0).then(|| (input.cap - fit[0]) / fit[1]);
        let drawn = bootstrap_blocks(old.rows(), length, RESAMPLES, input.seed, |blocks| {
            Some(meets(new.fit(blocks)?)? / meets(old.fit(blocks)?)?)
        });
        Estimate {
            value,
            interval: drawn.interval(input.level),
            level: input.level,
            method: "circular block bootstrap of both lines together".to_owned(),
        }
    }
}

fn capacity(cap: f64, intercept: f64, slope: f64) -> Result<f64, Unfit> {
    if [cap, intercept, slope].iter().any(|v| !v.is_finite()) {
        return Err(Unfit::NotFinite);
    }
    if slope <= 0.0 {
        return Err(Unfit::NotPositive { what: "the remaining marginal cost" });
    }
    if cap <= intercept {
        return Err(Unfit::NotPositive { what: "the room between fixed cost and cap" });
    }
    Ok((cap - intercept) / slope)
}
