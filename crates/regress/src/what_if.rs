//! What capacity would be if part of the work cost less, or nothing.
//!
//! `X*(f) = (cap − a + f·a_g) / (b − f·b_g)` for removing the fraction f of group g, or with the
//! group's cost replaced by another. First-order: it takes the other work's cost as it is, and
//! says nothing of what fewer sleeps, warmer caches or shorter queues would add.

use serde::Serialize;

use crate::Unfit;

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
