//! What parts of the work cost: one fit of the whole, and the same fit of every part.
//!
//! In each interval the parts (procedure groups, procedures, modes, what is left over) add up to
//! the whole. They go through one design matrix with one vector of weights, that of the
//! MM-estimate of the whole, and with the same columns: none is dropped for one part alone. The
//! fit is then one linear map, and the coefficients of the parts add up to those of the whole, to
//! rounding; [`PartsClosure`] says by how much they do not. Fitting each part robustly on its own
//! would give each a set of intervals of its own, and a sum that means nothing.
//!
//! Intervals of the coefficients are Student's, with the largest of the three errors of
//! [`crate::capacity`] and as many degrees of freedom as the intervals are worth. The weights were
//! chosen by the residuals of the whole, which moves its estimate more than weights given
//! beforehand would (the slope of psi in the place of the weight: Huber 1981, 7.6). So a residual
//! of a part counts for more as far as it goes along with the whole's, and as it is where it does
//! not.

use serde::Serialize;

use crate::capacity::{Autocorrelation, Errors};
use crate::curvature::Test;
use crate::dist::{mean, student_t_two_sided_p, t_critical};
use crate::linear::{Design, LinearFit, Solver, scaled};
use crate::robust::mean_psi_slope;
use crate::{Robust, Unfit, mm, shared_fit};

/// A coefficient with its interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Coefficient {
    /// The estimate.
    pub value: f64,
    /// Its standard error, which stands autocorrelation and unequal variance.
    pub se: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// Degrees of freedom of the interval.
    pub dof: f64,
}

impl Coefficient {
    /// Is it told from `value`?
    #[must_use]
    pub fn differs_from(&self, value: f64) -> bool {
        value < self.low || self.high < value
    }
}

/// What a part, or the whole, costs: the fixed cost first, then one cost a column of the design.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// The coefficients, the intercept first.
    pub coefficients: Vec<Coefficient>,
}

impl Cost {
    /// What is paid when nobody asks.
    #[must_use]
    pub fn fixed(&self) -> Coefficient {
        self.coefficients[0]
    }

    /// What one more request costs: the coefficient of the first column.
    #[must_use]
    pub fn marginal(&self) -> Coefficient {
        self.coefficients[1]
    }
}

/// Do the parts add up? Each is the sum over the parts less the whole's.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PartsClosure {
    /// Of the fixed costs.
    pub fixed_gap: f64,
    /// The largest over the other coefficients.
    pub marginal_gap: f64,
}

/// The costs of the whole and of its parts.
#[derive(Clone, Debug, Serialize)]
pub struct Costs {
    /// Of the whole.
    pub whole: Cost,
    /// Of the parts, in the order they were given.
    pub parts: Vec<Cost>,
    /// Do they add up?
    pub closure: PartsClosure,
    /// Rows that the weights set aside.
    pub set_aside: Vec<usize>,
    /// Rows.
    pub n: usize,
    /// Level of the intervals.
    pub level: f64,
    /// What all were fitted with.
    #[serde(skip)]
    chosen_by: ChosenBy,
}

/// The weights of a fit, and the residuals by which they were chosen.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChosenBy {
    pub(crate) weights: Vec<f64>,
    pub(crate) residuals: Vec<f64>,
}

impl ChosenBy {
    /// The scores of a response with these residuals: its weighted residuals, larger by the share
    /// of them that goes along with what chose the weights.
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

/// Fits the whole and its parts on one design. The parts are to add up to the whole in each row;
/// if they do not, the closure says so. Coefficients of `extra` responses, which are no parts (a
/// procedure inside a group), come by [`Costs::of`].
///
/// # Errors
/// As [`mm`]; a part that is not as long as the whole or not finite.
pub fn costs(
    design: &Design,
    whole: &[f64],
    parts: &[&[f64]],
    level: f64,
    seed: u64,
) -> Result<Costs, Unfit> {
    if !(level > 0.0 && level < 1.0) {
        return Err(Unfit::NotPositive { what: "the level, or one less it," });
    }
    if design.coefficients() < 2 {
        return Err(Unfit::Singular);
    }
    let Robust { weights, set_aside, .. } = mm(design, whole, seed)?;
    let mut responses = vec![whole];
    responses.extend_from_slice(parts);
    let fits = shared_fit(design, &responses, &weights)?;
    let n = weights.len();
    let chosen_by = ChosenBy { weights, residuals: fits[0].residuals.clone() };
    let mut fitted: Vec<Cost> =
        fits.iter().map(|fit| cost(design, fit, &chosen_by, level)).collect();
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
    Ok(Costs { whole, parts, closure, set_aside, n, level, chosen_by })
}

impl Costs {
    /// The costs of further responses by the same fit, such as the procedures of a group: they
    /// add up to the group's as the groups do to the whole.
    ///
    /// # Errors
    /// A response that is not as long as the whole or not finite.
    pub fn of(&self, design: &Design, responses: &[&[f64]]) -> Result<Vec<Cost>, Unfit> {
        let fits = shared_fit(design, responses, &self.chosen_by.weights)?;
        Ok(fits.iter().map(|fit| cost(design, fit, &self.chosen_by, self.level)).collect())
    }

    /// What a unit of cost in each row adds to the marginal cost, by the same fit. The marginal
    /// cost of any part is the sum of its costs times these, with no error of its own: for parts so
    /// many that a fit of each says nothing, such as the stacks of a profile.
    ///
    /// # Errors
    /// A design that is not the one that was fitted.
    pub fn influence(&self, design: &Design) -> Result<Vec<f64>, Unfit> {
        if design.rows() != self.n {
            return Err(Unfit::LengthsDiffer { expected: self.n, found: design.rows() });
        }
        let weights = Some(self.chosen_by.weights.as_slice());
        Ok(Solver::new(design, weights)?.influence(1, weights))
    }
}

/// Do two estimates of independent trials differ? Welch's t: the trials need not be equally noisy.
#[must_use]
pub fn difference(before: &Coefficient, after: &Coefficient) -> Test {
    let (old, new) = (before.se.powi(2), after.se.powi(2));
    let statistic = (after.value - before.value) / (old + new).sqrt();
    let dof = (old + new).powi(2) / (old.powi(2) / before.dof + new.powi(2) / after.dof);
    Test {
        statistic_name: "t of the difference (errors robust to autocorrelation)".to_owned(),
        statistic,
        p: student_t_two_sided_p(statistic, dof),
        dof,
    }
}

pub(crate) fn cost(design: &Design, fit: &LinearFit, chosen_by: &ChosenBy, level: f64) -> Cost {
    let scores = chosen_by.scores(&fit.residuals);
    let power: f64 = scores.iter().map(|score| score * score).sum();
    let variance = power / fit.dof as f64 / mean(&chosen_by.weights);
    let plain = scaled(&fit.unscaled_cov, variance);
    // A row that the fit leans on has a residual smaller than its error, by its leverage; of so few
    // rows the largest do (MacKinnon and White 1985, HC3).
    let leverage = design.leverages(&fit.unscaled_cov, &chosen_by.weights);
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

    /// In how many of the runs the interval of the marginal cost holds the truth, of the whole and
    /// of a part that is a third of it.
    fn held(sd_at: impl Fn(f64) -> f64) -> [u64; 2] {
        let mut held = [0; 2];
        for seed in 0..RUNS {
            let mut rng = Rng::new(seed);
            // Three rises over the range, as a generator would drive them.
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
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let equal = held(|_| 0.02);
        assert!(equal.iter().all(|&times| times >= RUNS * 94 / 100), "{equal:?} of {RUNS}");
        // A mix of requests that changes is noise in proportion to the rate. With so few rows the
        // high rates are then what tells the slope, and what looks wild: nine of ten is as far as
        // it goes.
        let growing = held(|rate| 1e-4 * rate);
        assert!(growing.iter().all(|&times| times >= RUNS * 90 / 100), "{growing:?} of {RUNS}");
    }
}
