//! The capacity if part of the work cost less, or nothing.
//!
//! `X*(f) = (cap − a + f·a_g) / (b − f·b_g)` if the fraction f of group g is removed, or the same
//! with the group's cost replaced by another cost. The result is a first-order prediction: the
//! costs of the other work do not change, and the effects of fewer sleeps, warmer caches or shorter
//! queues are ignored.
//!
//! **A cost is never negative.** The line of a group that gets cheaper per request as the rate
//! rises may be below zero at the capacity. Such a group counts as nothing there. So removing a
//! group, or a part of it, never lowers the capacity.
//!
//! [`what_if`] is only the formula, for published figures. [`predict`] has the intervals of a
//! trial, and so gives an interval too: the group's cost is removed from (or replaced in) every
//! interval, and the line is fitted to the result with the weights of the total. By linearity, the
//! new line gives the same capacity as the formula. The new fit also has the residuals that a
//! future saturated interval will have. The interval of the ratio is narrower, because errors
//! common to both lines cancel.

use serde::Serialize;

use crate::bootstrap::{block_length, bootstrap_blocks};
use crate::capacity::{Capacity, Errors, Question, RESAMPLES, Reading, weighted};
use crate::interval::Estimate;
use crate::linear::{Design, check_column, least_squares};
use crate::load_line::LoadLineInput;
use crate::small::Moments;
use crate::wakes::{self, Shape};
use crate::{Unfit, mm};

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
    let whole = [intercept, slope];
    let before = capacity(cap, whole)?;
    let group = at_least_nothing(before, [group.intercept, group.slope]);
    let after = capacity(cap, changed(whole, group, change))?;
    Ok(WhatIf { before, after, ratio: after / before, note: FIRST_ORDER })
}

/// The line of a group, or that of nothing if it is below zero at this rate.
fn at_least_nothing(rate: f64, group: [f64; 2]) -> [f64; 2] {
    if group[0] + group[1] * rate < 0.0 { [0.0; 2] } else { group }
}

/// The line of the whole after a change of the group.
fn changed(whole: [f64; 2], group: [f64; 2], change: Change) -> [f64; 2] {
    let each = |at: usize| match change {
        Change::Remove { fraction } => whole[at] - fraction * group[at],
        Change::Replace { intercept, slope } => whole[at] - group[at] + [intercept, slope][at],
    };
    [each(0), each(1)]
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
    /// Whether the group's line is below zero at the capacity, so that it counts as nothing there.
    pub group_is_nothing: bool,
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
    let shape = match input.wakes {
        Some(wakes) => wakes::shape(rate, wakes, input.cost, input.seed)?,
        None => {
            let design = Design::new(&[rate])?;
            let weights = mm(&design, input.cost, input.seed)?.weights;
            Shape { instruments: design.clone(), measured: design.clone(), design, weights }
        }
    };
    let line = |y: &[f64]| shape.coefficients(y).map(|c| [c[0], c[1]]);
    let whole = line(input.cost)?;
    let before = capacity(input.cap, whole)?;
    let of_group = line(group)?;
    let group_is_nothing = at_least_nothing(before, of_group) != of_group;
    let row = |i: usize| {
        let part = if group_is_nothing { 0.0 } else { group[i] };
        let [row, _] = changed([input.cost[i], 0.0], [part, 0.0], change);
        match change {
            Change::Remove { .. } => row,
            Change::Replace { slope, .. } => row + slope * rate[i],
        }
    };
    let remains: Vec<f64> = (0..rate.len()).map(row).collect();
    check_column(&remains, rate.len())?;
    let after = shape.coefficients(&remains)?;
    let value = capacity(input.cap, [after[0], after[1]])?;
    Ok(Predicted {
        before,
        after: shape.capacity(input, &remains, &after)?,
        ratio: shape.ratio(input, group, change, value / before),
        marginal_before: whole[1],
        marginal_after: after[1],
        group_is_nothing,
        note: FIRST_ORDER,
    })
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
    fn ratio(
        &self,
        input: &LoadLineInput<'_>,
        group: &[f64],
        change: Change,
        value: f64,
    ) -> Estimate {
        let (whole, part) = (self.moments(input.cost), self.moments(group));
        let residuals = match self.coefficients(input.cost) {
            Ok(coefficients) => self.measured.residuals(input.cost, &coefficients),
            Err(_) => Vec::new(),
        };
        let length = block_length(&weighted(&residuals, Some(&self.weights))).ceil() as usize;
        let drawn = bootstrap_blocks(whole.rows(), length, RESAMPLES, input.seed, |blocks| {
            let line = |fit: Vec<f64>| [fit[0], fit[1]];
            let (whole, part) = (line(whole.fit(blocks)?), line(part.fit(blocks)?));
            let before = capacity(input.cap, whole).ok()?;
            let part = at_least_nothing(before, part);
            Some(capacity(input.cap, changed(whole, part, change)).ok()? / before)
        });
        Estimate {
            value,
            interval: drawn.interval(input.level),
            level: input.level,
            method: "circular block bootstrap of both lines together".to_owned(),
        }
    }
}

fn capacity(cap: f64, [intercept, slope]: [f64; 2]) -> Result<f64, Unfit> {
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
