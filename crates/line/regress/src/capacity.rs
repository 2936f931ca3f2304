//! The capacity of a fitted line, with its three intervals.
//!
//! **The interval** of a capacity is for a *future saturated interval*: Fieller's inverse
//! prediction (see [`crate::interval`]) with
//!
//! ```text
//! v = s² + (r · cap)²
//! ```
//!
//! s is the expected residual sd at the cap: the larger of the pooled sd, and the relative sd of
//! the busier half of the intervals times the cap, because CPU noise grows with CPU use. r is the
//! between-run sd as a share of the cap. Two runs of one server differ in level (memory layout,
//! frequency, other processes) by more than the residuals of either run show, and a single run
//! cannot measure this difference. So r is an argument: [`BETWEEN_RUN_DEFAULT`] unless the caller
//! has measured r over several runs. Columns other than the rate are zero at the cap, so that their
//! coefficients do not matter.
//!
//! **Neighbouring intervals are correlated**, most of all under a schedule of steps. With a minute
//! of one-second intervals the Newey–West errors account for only part of this correlation. So the
//! lag-one correlation ρ of the residuals is computed (with Kendall's correction for its bias in
//! short series), and `f = (1 + ρ)/(1 − ρ)` intervals count as one. Three covariances are computed:
//! plain times f, heteroscedasticity-robust times f, and Newey–West. The covariance that gives the
//! capacity the largest variance is used. t has `n/f − p` degrees of freedom, and the residual
//! variance is corrected for the p coefficients fitted to so few effective intervals. The residuals
//! of a straight line through a curve are correlated, too. If no capacity remains with this
//! correlation, the correlation is computed again from the residuals of the curve.

use serde::Serialize;

use crate::bootstrap::{block_length, bootstrap_blocks};
use crate::interval::{Fieller, Interval, fieller};
use crate::linear::{Design, hac_cov, hac_lags, lag_one_correlation, least_squares};
use crate::small::Moments;
use crate::why::Why;

/// Sd of the level between runs, as a share of the cap: the root mean square of the differences
/// between lines with wakes and the measured saturation (null server 2.7 %, nginx 3.5 %, Squid
/// 2.1 %).
pub const BETWEEN_RUN_DEFAULT: f64 = 0.03;
/// Upper bound of the correlation, which limits `f` to 19.
pub const AUTOCORRELATION_MAX: f64 = 0.9;
/// Lower bound of the degrees of freedom of t.
pub(crate) const EFFECTIVE_DOF_MIN: f64 = 3.0;
/// An interval whose ends are a larger factor apart has only a lower end, see [`at_least`].
const BOUND_FOLDS: f64 = 4.0;
/// Resamples of the bootstrap.
pub const RESAMPLES: usize = 1_000;

/// The rate at which a line meets the cap.
#[derive(Clone, Debug, Serialize)]
pub struct Capacity {
    /// The point estimate: `(cap − a) / b`.
    pub value: f64,
    /// The interval for a future saturated interval.
    pub interval: Interval,
    /// The interval of the line itself (Fieller's).
    pub line_interval: Interval,
    /// The interval of the line by the circular block bootstrap.
    pub bootstrap: Interval,
    /// Rows in a block of the bootstrap.
    pub block_length: usize,
    /// Level of the three intervals.
    pub level: f64,
    /// Residual sd of a future interval at the cap, in units of the cost.
    pub residual_sd: f64,
    /// Sd of the level between runs, in units of the cost.
    pub between_run_sd: f64,
    /// Lag-one correlation of the residuals, corrected for its bias; at least 0.
    pub autocorrelation: f64,
    /// The effective number of independent intervals.
    pub effective_n: f64,
    /// Whether the data identify a capacity.
    pub identifiable: Result<(), Why>,
}

impl Capacity {
    /// Takes the capacity back, unless there is none already.
    pub(crate) fn refuse(&mut self, why: Why) {
        if self.identifiable.is_ok() {
            let none = Interval::Unbounded { reason: why.to_string() };
            self.interval = none.clone();
            self.line_interval = none.clone();
            self.bootstrap = none;
            self.identifiable = Err(why);
        }
    }
}

/// What a server carries at least, if the interval of its capacity is so wide that only its lower
/// end says something, or not bounded. It has carried the highest rate that was seen.
#[must_use]
pub fn at_least(low: Option<f64>, high: Option<f64>, seen: f64) -> Option<f64> {
    let is_narrow = low.zip(high).is_some_and(|(low, high)| high <= BOUND_FOLDS * low);
    (!is_narrow).then(|| low.map_or(seen, |low| low.max(seen)))
}

/// The parameters of a capacity.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    pub(crate) cap: f64,
    pub(crate) level: f64,
    pub(crate) between_run: f64,
    pub(crate) seed: u64,
}

/// The covariance of a fit's coefficients under three assumptions about its errors.
pub(crate) struct Errors {
    /// Independent errors with equal variance.
    pub(crate) plain: Vec<Vec<f64>>,
    /// Independent errors with unequal variance (White).
    pub(crate) unequal: Vec<Vec<f64>>,
    /// Autocorrelated errors with unequal variance (Newey–West).
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

/// A fit with everything that its capacity and intervals need.
pub(crate) struct Reading<'a> {
    /// The design of the measured regressors, for the residuals.
    pub(crate) design: &'a Design,
    pub(crate) coefficients: &'a [f64],
    pub(crate) errors: &'a Errors,
    pub(crate) residuals: &'a [f64],
    pub(crate) weights: Option<&'a [f64]>,
    pub(crate) residual_sd: f64,
    pub(crate) dof: usize,
}

impl Reading<'_> {
    /// The capacity. The moments are those of the same fit, for the bootstrap.
    pub(crate) fn capacity(&self, question: Question, moments: &Moments) -> Capacity {
        let Question { cap, level, between_run, seed } = question;
        let (a, b) = (self.coefficients[0], self.coefficients[1]);
        let value = (cap - a) / b;
        let scores = weighted(self.residuals, self.weights);
        let correlation = self.correlation(&scores, value, question);
        let residual_sd = self.residual_sd_at(cap, &correlation);
        let between_run_sd = between_run * cap;
        let base = Fieller {
            cap,
            intercept: a,
            slope: b,
            cov: self.line_cov(value, correlation.per_one),
            extra_variance: 0.0,
            dof: correlation.dof,
            level,
        };
        let line_interval = fieller(&base);
        let effective_n = self.residuals.len() as f64 / correlation.per_one;
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
        let identifiable = if let Err(why) = crate::variation::check(self.design.column(1)) {
            Err(why)
        } else if b.is_nan() || b <= 0.0 {
            Err(Why::CostDoesNotRise)
        } else if a >= cap {
            Err(Why::NoRoomUnderCap)
        } else if line_interval.bounds().is_none() {
            match if_independent().bounds() {
                Some(_) if correlation.rho > 0.0 => {
                    Err(Why::NeighboursAlike { rho: correlation.rho, effective_n })
                }
                _ => Err(Why::RateDidNotVary),
            }
        } else {
            Ok(())
        };
        // Without a capacity, the roots are numbers but not its interval.
        let if_identifiable = |interval: Interval| match &identifiable {
            Ok(()) => interval,
            Err(why) => Interval::Unbounded { reason: why.to_string() },
        };
        Capacity {
            value,
            interval: if_identifiable(interval),
            line_interval: if_identifiable(line_interval),
            bootstrap: if_identifiable(bootstrap.interval(level)),
            block_length: bootstrap.block_length,
            level,
            residual_sd,
            between_run_sd,
            autocorrelation: correlation.rho,
            effective_n,
            identifiable,
        }
    }

    /// The correlation of neighbouring rows: that of the line, or if that leaves no capacity, that
    /// of the curve.
    fn correlation(&self, scores: &[f64], value: f64, question: Question) -> Autocorrelation {
        let of_line = Autocorrelation::of(scores, self.design.coefficients());
        let has_capacity = |correlation: &Autocorrelation| {
            let interval = fieller(&Fieller {
                cap: question.cap,
                intercept: self.coefficients[0],
                slope: self.coefficients[1],
                cov: self.line_cov(value, correlation.per_one),
                extra_variance: 0.0,
                dof: correlation.dof,
                level: question.level,
            });
            interval.bounds().is_some()
        };
        if of_line.rho <= 0.0 || has_capacity(&of_line) {
            return of_line;
        }
        let squares: Vec<f64> = self.design.column(1).iter().map(|x| x * x).collect();
        let curve = self.design.with_column(squares);
        // The residuals of the line on the wider design leave the residuals of the curve.
        let of_curve = least_squares(&curve, self.residuals, self.weights).map(|fit| {
            Autocorrelation::of(&weighted(&fit.residuals, self.weights), curve.coefficients())
        });
        match of_curve {
            Ok(of_curve) if has_capacity(&of_curve) => of_curve,
            _ => of_line,
        }
    }

    /// The covariance of (intercept, slope); see the module documentation. Variances of the
    /// capacity are compared by the delta method.
    fn line_cov(&self, capacity: f64, per_one: f64) -> [[f64; 2]; 2] {
        let corner = |m: &[Vec<f64>], factor: f64| {
            [[m[0][0] * factor, m[0][1] * factor], [m[1][0] * factor, m[1][1] * factor]]
        };
        let variance = |m: &[[f64; 2]; 2]| variance_at(m, capacity);
        let Errors { plain, unequal, hac } = self.errors;
        [corner(plain, per_one), corner(unequal, per_one), corner(hac, 1.0)]
            .into_iter()
            .max_by(|a, b| variance(a).total_cmp(&variance(b)))
            .expect("there are three of them")
    }

    /// The expected residual sd at the cap; see the module documentation.
    fn residual_sd_at(&self, cap: f64, correlation: &Autocorrelation) -> f64 {
        let n = self.residuals.len();
        let fitted: Vec<f64> = (0..n).map(|i| self.design.fitted(i, self.coefficients)).collect();
        let middle = crate::dist::median(&mut fitted.clone());
        let (mut sum, mut weight) = (0.0, 0.0);
        for i in (0..n).filter(|&i| fitted[i] >= middle && fitted[i] > 0.0) {
            let w = self.weights.map_or(1.0, |weights| weights[i]);
            sum += w * (self.residuals[i] / fitted[i]).powi(2);
            weight += w;
        }
        let left = (correlation.dof * correlation.per_one).min(self.dof as f64) / n as f64;
        let relative = if weight > 0.0 { (sum / weight / left).sqrt() } else { 0.0 };
        let pooled = self.residual_sd * (self.dof as f64 / n as f64 / left).sqrt();
        pooled.max(relative * cap)
    }
}

/// The variance of a line at a rate, from the covariance of (intercept, slope).
pub(crate) fn variance_at(cov: &[[f64; 2]; 2], rate: f64) -> f64 {
    cov[0][0] + 2.0 * rate * cov[0][1] + rate.powi(2) * cov[1][1]
}

/// The autocorrelation of rows, and its effect on the number of independent rows.
pub(crate) struct Autocorrelation {
    /// The lag-one correlation, corrected for its bias; at least zero.
    pub(crate) rho: f64,
    /// The number of rows that count as one.
    pub(crate) per_one: f64,
    /// The remaining degrees of freedom.
    pub(crate) dof: f64,
}

impl Autocorrelation {
    /// Computes it from the residuals (or scores) of a fit of `p` coefficients, with Kendall's
    /// correction (1954) for p coefficients. A negative correlation counts as white noise.
    pub(crate) fn of(residuals: &[f64], p: usize) -> Autocorrelation {
        let (n, p) = (residuals.len() as f64, p as f64);
        let raw = lag_one_correlation(residuals);
        let rho = (raw + (p + (p + 2.0) * raw) / n).clamp(0.0, AUTOCORRELATION_MAX);
        let per_one = (1.0 + rho) / (1.0 - rho);
        Autocorrelation { rho, per_one, dof: (n / per_one - p).max(EFFECTIVE_DOF_MIN) }
    }
}

/// Residuals times their weights, as the normal equations sum them.
pub(crate) fn weighted(residuals: &[f64], weights: Option<&[f64]>) -> Vec<f64> {
    match weights {
        Some(weights) => residuals.iter().zip(weights).map(|(r, w)| r * w).collect(),
        None => residuals.to_vec(),
    }
}
