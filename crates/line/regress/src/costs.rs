//! Costs of parts of the work: one fit of the total, and the same fit of every part.
//!
//! In each interval the parts (procedure groups, procedures, modes, the remainder) add up to the
//! total. All parts are fitted with one design matrix, with the same columns, and with one vector
//! of weights: the weights of the MM-estimate of the total. The fit is then one linear map, and the
//! coefficients of the parts add up to the coefficients of the total, within rounding;
//! [`PartsClosure`] gives the gap. A separate robust fit of each part would use different intervals
//! for each part, and the sum would be meaningless.
//!
//! Intervals of the coefficients are Student's, with the largest of the three errors of
//! [`crate::capacity`] and the degrees of freedom of the effective number of intervals. The weights
//! depend on the residuals of the total, so the estimate of the total varies more than with fixed
//! weights (the slope of psi in place of the weight: Huber 1981, 7.6). So the component of a part's
//! residual along the residual of the total is enlarged, and the remaining component is used as it
//! is.

use serde::Serialize;

use crate::capacity::{Autocorrelation, Errors};
use crate::curvature::{Test, welch};
use crate::dist::{mean, t_critical};
use crate::linear::{Design, LinearFit, Solver, check_level, scaled};
use crate::robust::mean_psi_slope;
use crate::{Robust, Unfit, mm, shared_fit};

/// A coefficient with its interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Coefficient {
    /// The estimate.
    pub value: f64,
    /// Its standard error, robust to autocorrelation and unequal variance.
    pub se: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// Degrees of freedom of the interval.
    pub dof: f64,
}

impl Coefficient {
    /// Whether it differs significantly from `value`.
    #[must_use]
    pub fn differs_from(&self, value: f64) -> bool {
        value < self.low || self.high < value
    }
}

/// The cost of a part or of the total: the fixed cost, then one cost for each column of the design.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// The coefficients, the intercept first.
    pub coefficients: Vec<Coefficient>,
}

impl Cost {
    /// The cost at zero load.
    #[must_use]
    pub fn fixed(&self) -> Coefficient {
        self.coefficients[0]
    }

    /// The cost of one more request: the coefficient of the first column.
    #[must_use]
    pub fn marginal(&self) -> Coefficient {
        self.coefficients[1]
    }
}

/// Whether the parts add up. Each gap is the sum over the parts minus the total.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PartsClosure {
    /// The gap of the fixed costs.
    pub fixed_gap: f64,
    /// The largest gap of the other coefficients.
    pub marginal_gap: f64,
}

/// The costs of the total and of its parts.
#[derive(Clone, Debug, Serialize)]
pub struct Costs {
    /// The cost of the total.
    pub whole: Cost,
    /// The costs of the parts, in the order of the input.
    pub parts: Vec<Cost>,
    /// Whether they add up.
    pub closure: PartsClosure,
    /// Rows that the weights set aside.
    pub set_aside: Vec<usize>,
    /// Rows.
    pub n: usize,
    /// Level of the intervals.
    pub level: f64,
    /// The weights of all fits.
    #[serde(skip)]
    weighting: Weighting,
}

/// The weights of a fit, and the residuals by which they were chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Weighting {
    pub(crate) weights: Vec<f64>,
    pub(crate) residuals: Vec<f64>,
}

impl Weighting {
    /// The scores of a response with these residuals: its weighted residuals, with the component
    /// along the residuals that chose the weights enlarged.
    fn scores(&self, residuals: &[f64]) -> Vec<f64> {
        let larger = mean(&self.weights) / mean_psi_slope(&self.weights) - 1.0;
        let power = |with: &[f64]| -> f64 {
            let rows = self.weights.iter().zip(&self.residuals).zip(with);
            rows.map(|((w, r), other)| w * w * r * other).sum()
        };
        let whole = power(&self.residuals);
        let along = if whole > 0.0 { power(residuals) / whole } else { 0.0 };
        let rows = self.weights.iter().zip(&self.residuals).zip(residuals);
        rows.map(|((w, whole), own)| w * (own + larger * along * whole)).collect()
    }
}

/// Fits the total and its parts on one design. The parts should add up to the total in each row; if
/// they do not, the closure shows it. [`Costs::of`] fits further responses that are not parts, such
/// as a procedure inside a group.
///
/// # Errors
/// Those of [`mm`]; a part with another length than the total, or not finite.
pub fn costs<R: AsRef<[f64]>>(
    design: &Design,
    whole: &[f64],
    parts: &[R],
    level: f64,
    seed: u64,
) -> Result<Costs, Unfit> {
    check_level(level)?;
    if design.coefficients() < 2 {
        return Err(Unfit::Singular);
    }
    let Robust { weights, set_aside, .. } = mm(design, whole, seed)?;
    let mut responses = vec![whole];
    responses.extend(parts.iter().map(AsRef::as_ref));
    let fits = shared_fit(design, &responses, &weights)?;
    let n = weights.len();
    let weighting = Weighting { weights, residuals: fits[0].residuals.clone() };
    let mut fitted: Vec<Cost> =
        fits.iter().map(|fit| cost(design, fit, &weighting, level)).collect();
    let parts = fitted.split_off(1);
    let whole = fitted.remove(0);
    let gap = |j: usize| {
        parts.iter().map(|part| part.coefficients[j].value).sum::<f64>()
            - whole.coefficients[j].value
    };
    let marginal_gap = (1..design.coefficients())
        .map(gap)
        .fold(0.0, |m: f64, g| if g.abs() > m.abs() { g } else { m });
    let closure = PartsClosure { fixed_gap: gap(0), marginal_gap };
    Ok(Costs { whole, parts, closure, set_aside, n, level, weighting })
}

impl Costs {
    /// The costs of further responses by the same fit, such as the procedures of a group, which add
    /// up to the cost of the group.
    ///
    /// # Errors
    /// A response with another length than the total, or not finite.
    pub fn of<R: AsRef<[f64]>>(
        &self,
        design: &Design,
        responses: &[R],
    ) -> Result<Vec<Cost>, Unfit> {
        let fits = shared_fit(design, responses, &self.weighting.weights)?;
        Ok(fits.iter().map(|fit| cost(design, fit, &self.weighting, self.level)).collect())
    }

    /// For each row, what a unit of cost adds to the marginal cost, by the same fit. The marginal
    /// cost of a part is the sum of its costs times these factors, without an error. It is for
    /// parts that are too many to fit each, such as the stacks of a profile.
    ///
    /// # Errors
    /// A design with another number of rows than the fitted one.
    pub fn influence(&self, design: &Design) -> Result<Vec<f64>, Unfit> {
        if design.rows() != self.n {
            return Err(Unfit::LengthsDiffer { expected: self.n, found: design.rows() });
        }
        let weights = Some(self.weighting.weights.as_slice());
        Ok(Solver::new(design, weights)?.influence(1, weights))
    }
}

/// Tests whether two estimates of independent trials differ, by Welch's t: the trials need not be
/// equally noisy.
#[must_use]
pub fn difference(before: &Coefficient, after: &Coefficient) -> Test {
    let name = "t of the difference (errors robust to autocorrelation)";
    let parts = |c: &Coefficient| (c.value, c.se.powi(2), c.dof);
    welch(name, parts(before), parts(after))
}

pub(crate) fn cost(design: &Design, fit: &LinearFit, weighting: &Weighting, level: f64) -> Cost {
    let scores = weighting.scores(&fit.residuals);
    let power: f64 = scores.iter().map(|score| score * score).sum();
    let variance = power / fit.dof as f64 / mean(&weighting.weights);
    let plain = scaled(&fit.unscaled_cov, variance);
    // A row with high leverage has a residual smaller than its error. With few rows, those with the
    // largest values do (MacKinnon and White 1985, HC3).
    let leverage = design.leverages(&fit.unscaled_cov, &weighting.weights);
    let outside: Vec<f64> = scores.iter().zip(&leverage).map(|(s, h)| s / (1.0 - h)).collect();
    let errors = Errors::new(design, &outside, &fit.unscaled_cov, plain);
    let alike = Autocorrelation::of(&scores, design.coefficients());
    let critical = t_critical(level, alike.dof);
    let coefficient = |j: usize| {
        let variance = [
            errors.plain[j][j] * alike.per_one,
            errors.unequal[j][j] * alike.per_one,
            errors.hac[j][j],
        ];
        let se = variance.into_iter().fold(0.0, f64::max).sqrt();
        let value = fit.coefficients[j];
        let half = critical * se;
        Coefficient { value, se, low: value - half, high: value + half, dof: alike.dof }
    };
    Cost { coefficients: (0..design.coefficients()).map(coefficient).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    const RUNS: u64 = 400;
    const ROWS: usize = 36;

    /// The number of runs in which the interval of the marginal cost contains the true value, for
    /// the total and for a part that is a third of it.
    fn held(sd_at: impl Fn(f64) -> f64) -> [u64; 2] {
        let mut held = [0; 2];
        for seed in 0..RUNS {
            let mut rng = Rng::new(seed);
            // Three ramps over the range, as a generator would drive them.
            let rate: Vec<f64> = (0..ROWS)
                .map(|row| 20.0 + 30.0 * (row % 12) as f64 + 30.0 * rng.uniform())
                .collect();
            let mut rows = |fixed: f64, cost: f64, part: f64| -> Vec<f64> {
                let one = |x: &f64| fixed + cost * x + part * sd_at(*x) * rng.normal();
                rate.iter().map(one).collect()
            };
            let part = rows(0.01, 0.5e-3, 0.6);
            let rest = rows(0.02, 1.0e-3, 0.8);
            let whole: Vec<f64> = part.iter().zip(&rest).map(|(a, b)| a + b).collect();
            let design = Design::new(&[&rate]).unwrap();
            let found = costs(&design, &whole, &[&part, &rest], 0.95, seed).unwrap();
            held[0] += u64::from(!found.whole.marginal().differs_from(1.5e-3));
            held[1] += u64::from(!found.parts[0].marginal().differs_from(0.5e-3));
        }
        held
    }

    #[test]
    fn intervals_contain_the_true_value_at_their_level() {
        let equal = held(|_| 0.02);
        assert!(equal.iter().all(|&times| times >= RUNS * 94 / 100), "{equal:?} of {RUNS}");
        // A changing mix of requests is noise in proportion to the rate. With so few rows the high
        // rates determine the slope and also look like outliers: nine of ten is the best possible.
        let growing = held(|rate| 1e-4 * rate);
        assert!(growing.iter().all(|&times| times >= RUNS * 90 / 100), "{growing:?} of {RUNS}");
    }
}
