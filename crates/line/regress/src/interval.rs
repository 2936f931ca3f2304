//! Intervals, and Fieller's interval (1954), which capacities need.
//!
//! The capacity `X* = (cap − a) / b` is a ratio of two correlated estimates. The interval of the
//! capacity at level 1 − α contains every rate X at which the data do not exclude that the line
//! meets the cap:
//!
//! ```text
//! (cap − a − b·X)²  <=  t² · ( v + V_aa + 2·X·V_ab + X²·V_bb )
//! ```
//!
//! where t is the two-sided quantile of Student's t at the fit's degrees of freedom. With v = 0,
//! the set of these rates is the interval of the line itself. If v is the variance of one more
//! observation, the set is an inverse prediction (calibration). A future interval that runs at the
//! cap satisfies `cap = a + b·X + e + u`, where e is its residual and u the difference in level
//! between that run and this one, so v = Var(e) + Var(u). The inequality is quadratic in X with the
//! leading coefficient `b² − t²·V_bb`. If this coefficient is not positive, the slope does not
//! differ significantly from zero, no rate can be excluded, and the interval is unbounded.

use serde::Serialize;

use crate::dist::t_critical;

/// The interval of a quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Interval {
    /// Between two ends.
    Bounded {
        /// Lower end.
        low: f64,
        /// Upper end.
        high: f64,
    },
    /// The data do not bound it.
    Unbounded {
        /// Why, as a message.
        reason: String,
    },
}

impl Interval {
    /// The message for a slope that is not significantly different from zero.
    pub const NOT_IDENTIFIABLE: &'static str = "not identifiable: the rate did not vary enough";

    /// Whether `value` is inside. An unbounded interval contains everything.
    #[must_use]
    pub fn holds(&self, value: f64) -> bool {
        match self {
            Interval::Bounded { low, high } => (*low..=*high).contains(&value),
            Interval::Unbounded { .. } => true,
        }
    }

    /// Both ends, if it is bounded.
    #[must_use]
    pub fn bounds(&self) -> Option<(f64, f64)> {
        match self {
            Interval::Bounded { low, high } => Some((*low, *high)),
            Interval::Unbounded { .. } => None,
        }
    }

    pub(crate) fn not_identifiable() -> Interval {
        Interval::Unbounded { reason: Interval::NOT_IDENTIFIABLE.to_owned() }
    }
}

impl std::fmt::Display for Interval {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Interval::Bounded { low, high } => write!(f, "{low}..{high}"),
            Interval::Unbounded { reason } => f.write_str(reason),
        }
    }
}

/// A value with its interval.
#[derive(Clone, Debug, Serialize)]
pub struct Estimate {
    /// The point estimate.
    pub value: f64,
    /// Its interval.
    pub interval: Interval,
    /// The interval's level, such as 0.95.
    pub level: f64,
    /// How the interval was computed.
    pub method: String,
}

/// The input of Fieller's interval.
#[derive(Clone, Debug)]
pub struct Fieller {
    /// The value that the line must reach.
    pub cap: f64,
    /// The line's intercept.
    pub intercept: f64,
    /// The line's slope.
    pub slope: f64,
    /// Covariance of (intercept, slope).
    pub cov: [[f64; 2]; 2],
    /// Variance of a future observation in addition to the line's; 0 for the line alone.
    pub extra_variance: f64,
    /// Degrees of freedom of the residual variance.
    pub dof: f64,
    /// Level of the interval.
    pub level: f64,
}

/// Fieller's interval for the rate at which the line reaches the cap; see the module documentation.
/// The lower end is never below zero, because a rate is not.
#[must_use]
pub fn fieller(input: &Fieller) -> Interval {
    let Fieller { cap, intercept, slope, cov, extra_variance, dof, level } = input;
    let t2 = t_critical(*level, *dof).powi(2);
    let distance = cap - intercept;
    let leading = slope * slope - t2 * cov[1][1];
    let middle = distance * slope + t2 * cov[0][1];
    let last = distance * distance - t2 * (cov[0][0] + extra_variance);
    let discriminant = middle * middle - leading * last;
    if slope.is_nan() || *slope <= 0.0 || !(leading > 0.0 && discriminant >= 0.0) {
        return Interval::not_identifiable();
    }
    let root = discriminant.sqrt();
    // The root of larger magnitude first, then the other by the product of the roots, which avoids
    // cancellation.
    let far = if middle >= 0.0 { (middle + root) / leading } else { (middle - root) / leading };
    let near = if far == 0.0 { 0.0 } else { last / leading / far };
    Interval::Bounded { low: near.min(far).max(0.0), high: near.max(far).max(0.0) }
}
