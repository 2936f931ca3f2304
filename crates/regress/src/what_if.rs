//! What capacity would be if part of the work cost less, or nothing.
//!
//! `X*(f) = (cap − a + f·a_g) / (b − f·b_g)` for removing the fraction f of group g, or with the
//! group's cost replaced by another. First-order: it takes the other work's cost as it is, and
//! says nothing of what fewer sleeps, warmer caches or shorter queues would add.
//!
//! [`what_if`] is the formula alone, for figures that were printed. [`foretell`] has the intervals
//! of a trial, and so an interval for its answer: the group's cost is taken out of (or exchanged
//! in) every interval, and the line is fitted to what remains, with the weights of the whole. By
//! linearity that is the formula, and what remains has the residuals that a future saturated
//! interval will have. The ratio has an interval of its own, narrower, for what both lines share
//! is not in it.

use serde::Serialize;

use crate::bootstrap::{block_length, bootstrap_blocks};
use crate::capacity::{Capacity, Errors, Question, RESAMPLES, Reading, weighted};
use crate::interval::Estimate;
use crate::linear::{Design, check_column, least_squares};
use crate::load_line::LoadLineInput;
use crate::small::Moments;
use crate::{Unfit, mm, wakes};

/// A group's share of the line: its own fixed and marginal cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Group {
    /// The group's fixed cost, `a_g`.
    pub intercept: f64,
    /// The group's marginal cost, `b_g`.
    pub slope: f64,
}

/// What is done to the group.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// This fraction of its cost goes: 1 makes it free, 0.5 halves it, −1 doubles it.
    Remove {
        /// The fraction.
        fraction: f64,
    },
    /// All of it goes and this cost comes in its place.
    Replace {
        /// Fixed cost of what comes.
        intercept: f64,
        /// Marginal cost of what comes.
        slope: f64,
    },
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIf {
    /// Capacity as it is.
    pub before: f64,
    /// Capacity with the change.
    pub after: f64,
    /// `after / before`.
    pub ratio: f64,
    /// The caveat that is to be printed beside it.
    pub note: &'static str,
}

/// The caveat of every what-if.
pub const FIRST_ORDER: &str = "first-order: all other costs are taken as they are";

/// Capacity if `group` of the line `intercept + slope · x` changed.
///
/// # Errors
/// [`Unfit::NotPositive`] when the marginal cost that remains, or the room under the cap, is not
/// positive: then there is no capacity to speak of.
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

/// What is foretold for a trial.
#[derive(Clone, Debug, Serialize)]
pub struct Foretold {
    /// Capacity as it is, by the same line and weights.
    pub before: f64,
    /// Capacity with the change; its interval is for a future saturated interval.
    pub after: Capacity,
    /// `after / before`.
    pub ratio: Estimate,
    /// Marginal cost as it is, of the same line.
    pub marginal_before: f64,
    /// Marginal cost with the change.
    pub marginal_after: f64,
    /// The caveat that is to be printed beside it.
    pub note: &'static str,
}

/// Capacity if `group` (its cost in each interval of `input`) changed. Where `input` has wakes, it
/// is read off the line with wakes, at wakes = 0; otherwise off the straight line. Either has the
/// weights of the MM-estimate of the whole.
///
/// # Errors
/// As [`crate::load_line()`]; [`Unfit::NotPositive`] when the marginal cost that remains, or the
/// room under the cap, is not positive.
pub fn foretell(
    input: &LoadLineInput<'_>,
    group: &[f64],
    change: Change,
) -> Result<Foretold, Unfit> {
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
    Ok(Foretold {
        before: capacity_before,
        after: after_capacity,
        ratio,
        marginal_before: before[1],
        marginal_after: after[1],
        note: FIRST_ORDER,
    })
}

/// A line's form: its designs and its weights, whatever the response.
pub(crate) struct Shape {
    /// What the regressors are told by; the same as they where the fit has one stage.
    pub(crate) instruments: Design,
    /// The regressors as they were measured: residuals are taken from them.
    pub(crate) measured: Design,
    /// The regressors as the instruments tell them: the fit is on them.
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

    /// The ratio of the capacities, both lines drawn from the same blocks.
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
        return Err(Unfit::NotPositive { what: "the marginal cost that remains" });
    }
    if cap <= intercept {
        return Err(Unfit::NotPositive { what: "the room between fixed cost and cap" });
    }
    Ok((cap - intercept) / slope)
}
