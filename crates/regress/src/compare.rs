//! The comparison of two capacities and of two slopes.
//!
//! The ratio of the capacities has a block-bootstrap interval for which each trial is resampled
//! separately. Two runs of one server differ by more than that (see [`crate::capacity`]), so a
//! wider interval adds the sd between runs for each of the two. The interaction test checks whether
//! the slopes differ: their difference over its Newey–West error, for independent trials. "No
//! change" is not the absence of a significant difference but an interval within the relevant
//! margin ([`equivalent`]).
//!
//! Both lines are read outside of the rates that were seen, so they depend on how far each trial
//! reached. What a request costs in both is compared in [`mod@crate::same_load`].

use serde::Serialize;

use crate::bootstrap::{Bootstrap, block_length, bootstrap_blocks};
use crate::capacity::{RESAMPLES, weighted};
use crate::curvature::{Test, welch};
use crate::linear::{Design, hac_cov, hac_lags, least_squares};
use crate::small::Moments;
use crate::{Estimate, Interval, Unfit, wakes};

/// One of the trials.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Requests per second.
    pub rate: &'a [f64],
    /// Use of the resource.
    pub cost: &'a [f64],
    /// Wakes per second, if its capacity is that of the line with wakes.
    pub wakes: Option<&'a [f64]>,
    /// The use at which the resource is exhausted.
    pub cap: f64,
}

/// Parameters of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Level of the intervals.
    pub level: f64,
    /// Sd of the level between runs, as a share; 0 if the two alternated.
    pub between_run: f64,
    /// Seed of the bootstrap.
    pub seed: u64,
}

/// The changes from one trial to another.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Capacity after over before.
    pub capacity_ratio: Estimate,
    /// The same, with the sd between runs.
    pub capacity_ratio_of_runs: Estimate,
    /// Whether the capacities are those of the lines with wakes.
    pub with_wakes: bool,
    /// The test of whether the slopes differ.
    pub interaction: Test,
}

/// Whether the interval of a ratio is within `margin` of one (0.05: five percent). That, and not
/// the absence of a significant difference, is "no change".
#[must_use]
pub fn equivalent(ratio: &Interval, margin: f64) -> bool {
    ratio.bounds().is_some_and(|(low, high)| low >= 1.0 / (1.0 + margin) && high <= 1.0 + margin)
}

/// Compares two trials. Capacities are those of the lines with wakes if both trials have wakes, and
/// those of the straight lines otherwise. Both use the same model, or the ratio would be one of
/// models.
///
/// # Errors
/// Those of [`crate::ols`], for either trial.
pub fn compare(
    before: &Subject<'_>,
    after: &Subject<'_>,
    terms: &Terms,
) -> Result<Comparison, Unfit> {
    let with_wakes = before.wakes.is_some() && after.wakes.is_some();
    let old = Lines::draw(before, with_wakes, terms.seed)?;
    let new = Lines::draw(after, with_wakes, terms.seed.wrapping_add(1))?;
    let meets = |line: &[f64; 2], cap: f64| (line[1] > 0.0).then(|| (cap - line[0]) / line[1]);
    let value = |lines: &Lines, cap: f64| (cap - lines.whole[0]) / lines.whole[1];
    let capacity_ratio = ratio(
        (value(&old, before.cap), value(&new, after.cap)),
        (&old, before.cap),
        (&new, after.cap),
        meets,
        terms.level,
    );
    Ok(Comparison {
        capacity_ratio_of_runs: widened(&capacity_ratio, terms),
        capacity_ratio,
        with_wakes,
        interaction: interaction((before.rate, before.cost), (after.rate, after.cost))?,
    })
}

/// The intercept and slope of a trial's line, and of each resample; NaN if there is no line.
struct Lines {
    whole: [f64; 2],
    drawn: Vec<[f64; 2]>,
}

impl Lines {
    fn draw(trial: &Subject<'_>, with_wakes: bool, seed: u64) -> Result<Lines, Unfit> {
        let (moments, whole, length) = match trial.wakes.filter(|_| with_wakes) {
            Some(measured) => {
                let shape = wakes::shape(trial.rate, measured, trial.cost, seed)?;
                let fit = least_squares(&shape.design, trial.cost, Some(&shape.weights))?;
                let residuals = shape.measured.residuals(trial.cost, &fit.coefficients);
                let length = block_length(&weighted(&residuals, Some(&shape.weights)));
                let (z, x, w) = (&shape.instruments, &shape.measured, &shape.weights);
                (Moments::new(z, x, trial.cost, Some(w)), fit.coefficients, length)
            }
            None => {
                let design = Design::new(&[trial.rate])?;
                let fit = least_squares(&design, trial.cost, None)?;
                let length = block_length(&fit.residuals);
                (Moments::new(&design, &design, trial.cost, None), fit.coefficients, length)
            }
        };
        let mut drawn = Vec::with_capacity(RESAMPLES);
        bootstrap_blocks(moments.rows(), length.ceil() as usize, RESAMPLES, seed, |blocks| {
            drawn.push(moments.fit(blocks).map_or([f64::NAN; 2], |c| [c[0], c[1]]));
            None
        });
        Ok(Lines { whole: [whole[0], whole[1]], drawn })
    }
}

fn ratio(
    (before, after): (f64, f64),
    old: (&Lines, f64),
    new: (&Lines, f64),
    of: impl Fn(&[f64; 2], f64) -> Option<f64>,
    level: f64,
) -> Estimate {
    let mut values: Vec<f64> = old
        .0
        .drawn
        .iter()
        .zip(&new.0.drawn)
        .filter_map(|(o, n)| Some(of(n, new.1)? / of(o, old.1)?))
        .filter(|v| v.is_finite())
        .collect();
    values.sort_unstable_by(f64::total_cmp);
    let failed = RESAMPLES - values.len();
    // The trials have different block lengths, which the interval does not need.
    let drawn = Bootstrap { values, failed, resamples: RESAMPLES, block_length: 0, seed: 0 };
    Estimate {
        value: after / before,
        interval: drawn.interval(level),
        level,
        method: "circular block bootstrap of each trial".to_owned(),
    }
}

/// Adds the sd between runs for each of the two to the interval, on a logarithmic scale.
fn widened(ratio: &Estimate, terms: &Terms) -> Estimate {
    let normal = crate::dist::t_critical(terms.level, 1e6);
    let runs = normal * terms.between_run * std::f64::consts::SQRT_2;
    let interval = match ratio.interval.bounds() {
        Some((low, high)) if low > 0.0 && ratio.value > 0.0 => {
            let reach = |end: f64| (ratio.value / end).ln().hypot(runs).exp();
            Interval::Bounded { low: ratio.value / reach(low), high: ratio.value * reach(high) }
        }
        _ => ratio.interval.clone(),
    };
    let percent = 100.0 * terms.between_run;
    let method = format!("{}, with an sd of {percent:.1} % between runs", ratio.method);
    Estimate { interval, method, ..ratio.clone() }
}

/// The t of the difference of the slopes, with separate Newey–West errors for each trial.
///
/// # Errors
/// Those of [`crate::ols`], for either trial.
pub fn interaction(before: (&[f64], &[f64]), after: (&[f64], &[f64])) -> Result<Test, Unfit> {
    let slope = |(rate, cost): (&[f64], &[f64])| -> Result<(f64, f64, f64), Unfit> {
        let design = Design::new(&[rate])?;
        let fit = least_squares(&design, cost, None)?;
        let lags = hac_lags(&fit.residuals);
        let cov = hac_cov(&design, &fit.residuals, &fit.unscaled_cov, lags);
        Ok((fit.coefficients[1], cov[1][1], fit.dof as f64))
    };
    Ok(welch("t of the difference of slopes (Newey–West)", slope(before)?, slope(after)?))
}
