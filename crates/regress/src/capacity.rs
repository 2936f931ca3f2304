//! The capacity read off a fitted line, with its three intervals.
//!
//! **The interval** of a capacity is for a *future saturated interval*: Fieller's inverse
//! prediction (see [`crate::interval`]) with
//!
//! ```text
//! v = s² + (r · cap)²
//! ```
//!
//! s is the residual sd to expect at the cap: the larger of the pooled one and the relative one of
//! the busier half of the intervals times the cap, for CPU noise grows with CPU use. r is the
//! between-run sd as a share of the cap: two runs of one server differ in level (memory layout,
//! frequency, neighbours) by more than either run's residuals show, and no single run can tell by
//! how much, so it is an argument, [`BETWEEN_RUN_DEFAULT`] unless the caller has several runs to
//! take it from. Columns beyond the rate are zero at the cap, so that their coefficients do not
//! enter.
//!
//! **Neighbouring intervals resemble each other**, and a schedule of steps makes the most of it. In
//! a minute of seconds the Newey–West errors see only part of that. So the lag-one correlation ρ of
//! the residuals is taken (with Kendall's correction for its bias in short series), and
//! `f = (1 + ρ)/(1 − ρ)` intervals count as one: of the three covariances (plain times f, the
//! heteroscedasticity-robust one times f, Newey–West) the one that gives the capacity the largest
//! variance is used, t has `n/f − p` degrees of freedom, and the residual variance is enlarged by
//! what p coefficients soak up of so few.

use serde::Serialize;

use crate::bootstrap::{block_length, bootstrap_blocks};
use crate::interval::{Fieller, Interval, fieller};
use crate::linear::{Design, hac_cov, hac_lags, lag_one_correlation};
use crate::small::Moments;

/// Sd of the level between runs, as a share of the cap: the root mean square by which lines with
/// wakes missed the saturation then measured (null server 2.7 %, nginx 3.5 %, Squid 2.1 %).
pub const BETWEEN_RUN_DEFAULT: f64 = 0.03;
/// Intervals more alike than this are hardly more than one; the bound keeps `f` at 19.
pub const AUTOCORRELATION_MAX: f64 = 0.9;
/// However few independent intervals there are, t is no wider than with these.
const EFFECTIVE_DOF_MIN: f64 = 3.0;
/// Resamples of the bootstrap.
pub const RESAMPLES: usize = 1_000;

/// Where a line meets the cap.
#[derive(Clone, Debug, Serialize)]
pub struct Capacity {
    /// The point: `(cap − a) / b`.
    pub value: f64,
    /// Where a future saturated interval will lie.
    pub interval: Interval,
    /// Where the line itself meets the cap (Fieller's).
    pub line_interval: Interval,
    /// The same by the circular block bootstrap.
    pub bootstrap: Interval,
    /// Rows in a block of that.
    pub block_length: usize,
    /// Level of the three intervals.
    pub level: f64,
    /// Sd of one future interval about the line at the cap, in units of the cost.
    pub residual_sd: f64,
    /// Sd of the level between runs, in units of the cost.
    pub between_run_sd: f64,
    /// Correlation of a residual with the next one's, corrected for its bias; not below 0.
    pub autocorrelation: f64,
    /// How many independent intervals the intervals are worth.
    pub effective_n: f64,
    /// Can a capacity be read off these data at all?
    pub identifiable: Result<(), Why>,
}

/// Why no capacity can be read off.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The slope cannot be told from zero.
    RateDidNotVary,
    /// The slope could be told from zero if the intervals were independent, and they are not: on a
    /// load that only rises, what drifts with time cannot be told from what grows with the rate.
    NeighboursAlike {
        /// The lag-one correlation of the residuals.
        rho: f64,
        /// So many independent intervals they are worth.
        effective_n: f64,
    },
    /// The slope is zero or negative.
    CostDoesNotRise,
    /// The line's fixed cost is at or above the cap.
    NoRoomUnderCap,
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Why::RateDidNotVary => f.write_str(Interval::NOT_IDENTIFIABLE),
            Why::NeighboursAlike { rho, effective_n } => write!(
                f,
                "not identifiable: neighbouring intervals are alike (correlation {rho:.2}), all of \
                 them are worth {effective_n:.1}; let the rate rise and fall, or record longer"
            ),
            Why::CostDoesNotRise => {
                f.write_str("not identifiable: the cost does not rise with the rate")
            }
            Why::NoRoomUnderCap => {
                f.write_str("not identifiable: the fixed cost alone is above the cap")
            }
        }
    }
}

/// What a capacity is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    pub(crate) cap: f64,
    pub(crate) level: f64,
    pub(crate) between_run: f64,
    pub(crate) seed: u64,
}

/// The covariance of a fit's coefficients under three beliefs about its errors.
pub(crate) struct Errors {
    /// Independent and equal.
    pub(crate) plain: Vec<Vec<f64>>,
    /// Independent, not equal (White).
    pub(crate) unequal: Vec<Vec<f64>>,
    /// Neither (Newey–West).
    pub(crate) hac: Vec<Vec<f64>>,
}

impl Errors {
    pub(crate) fn new(
        design: &Design,
        scores: &[f64],
        bread: &[Vec<f64>],
        plain: Vec<Vec<f64>>,
    ) -> Errors {
        Errors {
            plain,
            unequal: hac_cov(design, scores, bread, 0),
            hac: hac_cov(design, scores, bread, hac_lags(scores)),
        }
    }
}

/// A fit from which a capacity is read, all that its intervals need in one place.
pub(crate) struct Reading<'a> {
    /// The design of what was measured: residuals are taken from it.
    pub(crate) design: &'a Design,
    pub(crate) coefficients: &'a [f64],
    pub(crate) errors: &'a Errors,
    pub(crate) residuals: &'a [f64],
    pub(crate) weights: Option<&'a [f64]>,
    pub(crate) residual_sd: f64,
    pub(crate) dof: usize,
}

impl Reading<'_> {
    /// The capacity; the moments are those of the same fit, for the bootstrap.
    pub(crate) fn capacity(&self, question: Question, moments: &Moments) -> Capacity {
        let Question { cap, level, between_run, seed } = question;
        let (a, b) = (self.coefficients[0], self.coefficients[1]);
        let value = (cap - a) / b;
        let scores = weighted(self.residuals, self.weights);
        let alike = Autocorrelation::of(&scores, self.design.coefficients());
        let residual_sd = self.residual_sd_at(cap, &alike);
        let between_run_sd = between_run * cap;
        let base = Fieller {
            cap,
            intercept: a,
            slope: b,
            cov: self.line_cov(value, alike.per_one),
            extra_variance: 0.0,
            dof: alike.dof,
            level,
        };
        let line_interval = fieller(&base);
        let effective_n = self.residuals.len() as f64 / alike.per_one;
        let if_independent = || {
            let plain = &self.errors.plain;
            let cov = [[plain[0][0], plain[0][1]], [plain[1][0], plain[1][1]]];
            fieller(&Fieller { cov, dof: self.dof as f64, ..base })
        };
        let extra_variance = residual_sd.powi(2) + between_run_sd.powi(2);
        let interval = fieller(&Fieller { extra_variance, ..base });
        let block = block_length(&scores).ceil() as usize;
        let bootstrap = bootstrap_blocks(moments.rows(), block, RESAMPLES, seed, |blocks| {
            let fit = moments.fit(blocks)?;
            (fit[1] > 0.0).then(|| (cap - fit[0]) / fit[1])
        });
        let identifiable = if b.is_nan() || b <= 0.0 {
            Err(Why::CostDoesNotRise)
        } else if a >= cap {
            Err(Why::NoRoomUnderCap)
        } else if line_interval.bounds().is_none() {
            match if_independent().bounds() {
                Some(_) if alike.rho > 0.0 => {
                    Err(Why::NeighboursAlike { rho: alike.rho, effective_n })
                }
                _ => Err(Why::RateDidNotVary),
            }
        } else {
            Ok(())
        };
        // Roots of a line that has no capacity are numbers, but not an interval of it.
        let honest = |interval: Interval| match &identifiable {
            Ok(()) => interval,
            Err(why) => Interval::Unbounded { reason: why.to_string() },
        };
        Capacity {
            value,
            interval: honest(interval),
            line_interval: honest(line_interval),
            bootstrap: honest(bootstrap.interval(level)),
            block_length: bootstrap.block_length,
            level,
            residual_sd,
            between_run_sd,
            autocorrelation: alike.rho,
            effective_n,
            identifiable,
        }
    }

    /// The covariance of (intercept, slope), see the module's head; variances of the capacity are
    /// compared by the delta method.
    fn line_cov(&self, capacity: f64, per_one: f64) -> [[f64; 2]; 2] {
        let corner = |m: &[Vec<f64>], factor: f64| {
            [[m[0][0] * factor, m[0][1] * factor], [m[1][0] * factor, m[1][1] * factor]]
        };
        let variance =
            |m: &[[f64; 2]; 2]| m[0][0] + 2.0 * capacity * m[0][1] + capacity.powi(2) * m[1][1];
        let Errors { plain, unequal, hac } = self.errors;
        [corner(plain, per_one), corner(unequal, per_one), corner(hac, 1.0)]
            .into_iter()
            .max_by(|a, b| variance(a).total_cmp(&variance(b)))
            .expect("there are three of them")
    }

    /// The residual sd to expect at the cap, see the module's head.
    fn residual_sd_at(&self, cap: f64, alike: &Autocorrelation) -> f64 {
        let n = self.residuals.len();
        let fitted: Vec<f64> = (0..n).map(|i| self.design.fitted(i, self.coefficients)).collect();
        let middle = crate::dist::median(&mut fitted.clone());
        let (mut sum, mut weight) = (0.0, 0.0);
        for i in (0..n).filter(|&i| fitted[i] >= middle && fitted[i] > 0.0) {
            let w = self.weights.map_or(1.0, |weights| weights[i]);
            sum += w * (self.residuals[i] / fitted[i]).powi(2);
            weight += w;
        }
        let left = (alike.dof * alike.per_one).min(self.dof as f64) / n as f64;
        let relative = if weight > 0.0 { (sum / weight / left).sqrt() } else { 0.0 };
        let pooled = self.residual_sd * (self.dof as f64 / n as f64 / left).sqrt();
        pooled.max(relative * cap)
    }
}

/// How much neighbouring rows resemble each other, and what that costs.
pub(crate) struct Autocorrelation {
    /// The lag-one correlation, corrected for its bias, not below zero.
    pub(crate) rho: f64,
    /// Rows that are worth one.
    pub(crate) per_one: f64,
    /// Degrees of freedom that are left.
    pub(crate) dof: f64,
}

impl Autocorrelation {
    /// Of the residuals (or scores) of a fit of `p` coefficients. Kendall's correction (1954) in
    /// its form for p of them; what is below zero counts as white noise.
    pub(crate) fn of(residuals: &[f64], p: usize) -> Autocorrelation {
        let (n, p) = (residuals.len() as f64, p as f64);
        let raw = lag_one_correlation(residuals);
        let rho = (raw + (p + (p + 2.0) * raw) / n).clamp(0.0, AUTOCORRELATION_MAX);
        let per_one = (1.0 + rho) / (1.0 - rho);
        Autocorrelation { rho, per_one, dof: (n / per_one - p).max(EFFECTIVE_DOF_MIN) }
    }
}

/// Residuals times their weights: what the normal equations sum.
pub(crate) fn weighted(residuals: &[f64], weights: Option<&[f64]>) -> Vec<f64> {
    match weights {
        Some(weights) => residuals.iter().zip(weights).map(|(r, w)| r * w).collect(),
        None => residuals.to_vec(),
    }
}
