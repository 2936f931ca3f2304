//! The load line of one resource: its models, their capacities, and how reliable they are.
//!
//! Two lines explain the data. The straight line of 1998, `C = a + b·x`, is fitted by least
//! squares, and by MM as a check. If the wakes of the serving thread are known, `C = a + b·x +
//! w·wakes` is fitted by two-stage MM-estimation (see [`crate::wakes`]), and its capacity is
//! taken at wakes = 0: a busy server sleeps less and pays for fewer wakes, so that a request
//! costs less than a straight line through its quieter hours predicts. A saturated server does
//! not sleep at all.
//!
//! **The headline** is the line with wakes if (1) rate and wakes can be separated: variance
//! inflation at most [`VIF_MAX`]; (2) the cost of a wake is positive, with a one-sided p below
//! [`WAKE_P_MAX`] by the larger of plain and Newey–West errors; and (3) its capacity is
//! identifiable. Otherwise it is the straight line, and the failed condition is reported.
//!
//! **The capacity** is the capacity of the headline's line if the data reach [`BUSY_BELOW`] of the
//! cap. If the data end below this, the two lines differ most where nothing was measured, and miss
//! the saturation of real servers by a third and more. In this case, CPU time is extrapolated by
//! the line of a busy CPU (see [`crate::busy`]), whose interval gets wider the further the data are
//! from the cap. Below [`SEEN_MIN`], and beyond [`SEEN_FOLDS_MAX`] times the highest rate, there is
//! no capacity. Intervals are explained in [`crate::capacity`].

use serde::Serialize;

use crate::busy::{BusyFit, Known, fit_busy};
use crate::capacity::{
    BETWEEN_RUN_DEFAULT, Capacity, EFFECTIVE_DOF_MIN, Errors, Question, Reading, weighted,
};
use crate::curvature::{Curvature, curvature};
use crate::dist::t_critical;
use crate::line::{Line, TheilSen, theil_sen};
use crate::linear::{Design, check_column, check_level, least_squares, scaled};
use crate::marginal::Marginal;
use crate::robust::{Robust, SET_ASIDE_WEIGHT, mean_psi_slope, mm};
use crate::small::Moments;
use crate::wakes::{WakesFit, fit_wakes};
use crate::why::Why;
use crate::{Unfit, variation};

/// Default level of intervals.
pub const LEVEL_DEFAULT: f64 = 0.95;
/// Data that do not reach this share of the cap are too far from saturation for a straight line.
pub const REACH_MIN: f64 = 0.6;
/// CPU time that does not reach this share of the cap gives no capacity: what a request costs a CPU
/// that is idle all the time says little about a busy one.
pub const SEEN_MIN: f64 = 0.05;
/// A capacity that is a larger multiple of the highest rate is not known, either.
pub const SEEN_FOLDS_MAX: f64 = 50.0;
/// If the data do not reach this share of the cap, the line of a busy CPU gives the capacity.
pub const BUSY_BELOW: f64 = 0.9;
/// Largest variance inflation at which rate and wakes count as separated.
pub const VIF_MAX: f64 = 30.0;
/// Largest one-sided p at which the cost of a wake counts as positive. It is not strict: using the
/// line with wakes needlessly only widens the interval, but dropping it wrongly makes the capacity
/// too low.
pub const WAKE_P_MAX: f64 = 0.1;
/// Largest p at which curvature counts as significant.
pub const CURVATURE_P_MAX: f64 = 0.01;
/// If more than this share of the intervals is set aside, the rest does not represent the trial.
pub const SET_ASIDE_MAX: f64 = 0.2;
/// Fewest intervals for a line.
pub const INTERVALS_MIN: usize = 8;

/// The input of a load line. Rows are intervals in time order.
#[derive(Clone, Copy, Debug)]
pub struct LoadLineInput<'a> {
    /// Requests per second.
    pub rate: &'a [f64],
    /// Use of the resource, such as CPU seconds per second.
    pub cost: &'a [f64],
    /// Wakes per second of the serving thread (its voluntary context switches), if known.
    pub wakes: Option<&'a [f64]>,
    /// Whether the cost is CPU time, which falls per request as the CPU gets busy.
    pub cpu_time: bool,
    /// Whether many processes take turns on the resource, as with a process for each connection.
    pub processes_alternate: bool,
    /// What a request costs at the cap, if turns and busy periods show it.
    pub marginal: Option<Marginal>,
    /// The use at which the resource counts as exhausted: 1.0 for one CPU.
    pub cap: f64,
    /// All of the resource, which is more than the cap if the user chose a lower one.
    pub full: f64,
    /// Level of the intervals.
    pub level: f64,
    /// Seed of the robust fit and of the bootstrap.
    pub seed: u64,
    /// Sd of the level between runs as a share of the cap.
    pub between_run: f64,
}

impl<'a> LoadLineInput<'a> {
    /// An input with the default level, seed and between-run sd, no wakes, and a cost that is not
    /// CPU time.
    #[must_use]
    pub fn new(rate: &'a [f64], cost: &'a [f64], cap: f64) -> LoadLineInput<'a> {
        LoadLineInput {
            rate,
            cost,
            wakes: None,
            cpu_time: false,
            processes_alternate: false,
            marginal: None,
            cap,
            full: cap,
            level: LEVEL_DEFAULT,
            seed: 1998,
            between_run: BETWEEN_RUN_DEFAULT,
        }
    }
}

/// The load line of one resource.
#[derive(Clone, Debug, Serialize)]
pub struct LoadLine {
    /// The straight line.
    pub straight: Fit,
    /// The line with wakes, if it could be fitted.
    pub with_wakes: Option<WakesFit>,
    /// Which of the two is the headline, and why.
    pub headline: Headline,
    /// The line of a busy CPU, if it gives the capacity.
    pub busy: Option<BusyFit>,
    /// Intervals fitted.
    pub n: usize,
    /// The cap.
    pub cap: f64,
    /// Highest rate seen.
    pub highest_rate: f64,
    /// Highest use seen as a share of the cap, without outliers.
    pub reach: f64,
    /// The capacity over the highest rate seen.
    pub extrapolation: f64,
    /// The headline's curvature test; `None` if the rate took too few values.
    pub curvature: Option<Curvature>,
    /// Whether the capacity is reliable.
    pub trusted: Trust,
}

impl LoadLine {
    /// The capacity: the headline's, or that of a busy CPU if the data end too early.
    #[must_use]
    pub fn capacity(&self) -> &Capacity {
        self.busy.as_ref().map_or_else(|| self.headline_capacity(), |busy| &busy.capacity)
    }

    /// Takes all capacities back.
    fn refuse(&mut self, why: &Why) {
        self.busy = None;
        let straight = &mut self.straight;
        let with_wakes = self.with_wakes.as_mut().map(|fit| &mut fit.capacity);
        let all = [&mut straight.capacity, &mut straight.robust_capacity];
        all.into_iter().chain(with_wakes).for_each(|capacity| capacity.refuse(why.clone()));
    }

    fn headline_capacity(&self) -> &Capacity {
        match (&self.headline, &self.with_wakes) {
            (Headline::WithWakes { .. }, Some(fit)) => &fit.capacity,
            _ => &self.straight.capacity,
        }
    }
}

/// The line that gives the capacity.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Headline {
    /// The straight line of 1998.
    Straight {
        /// Why it is not the line with wakes.
        why: String,
    },
    /// The line with wakes.
    WithWakes {
        /// The statistics that met the conditions.
        why: String,
    },
}

/// Whether the headline is reliable.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// No check failed.
    Yes,
    /// A check failed.
    Unreliable {
        /// The statistic with its value, as text.
        statistic: String,
        /// What it means.
        why: String,
    },
}

/// The straight line.
#[derive(Clone, Debug, Serialize)]
pub struct Fit {
    /// Least squares, with the correlation as published in 1998.
    pub line: Line,
    /// Standard errors of (intercept, slope) robust to autocorrelation (Newey–West).
    pub hac_se: [f64; 2],
    /// The MM-estimate, with the rows that it set aside.
    pub robust: Robust,
    /// Theil–Sen, as a cross-check of both.
    pub theil_sen: TheilSen,
    /// Capacity by least squares.
    pub capacity: Capacity,
    /// Capacity by the MM-estimate.
    pub robust_capacity: Capacity,
    /// The curvature test; `None` if the rate took too few values.
    pub curvature: Option<Curvature>,
}

/// Fits the load line of one resource.
///
/// # Errors
/// Fewer than [`INTERVALS_MIN`] intervals, lengths that differ, values not finite, a rate that did
/// not vary at all, a cap or level out of range.
pub fn load_line(input: &LoadLineInput<'_>) -> Result<LoadLine, Unfit> {
    check(input)?;
    let design = Design::new(&[input.rate])?;
    let LoadLineInput { cap, level, between_run, seed, .. } = *input;
    let question = Question { cap, level, between_run, seed };
    let straight = fit_straight(input, &design, question)?;
    let reach = reach(input, &straight.robust);
    let (with_wakes, refused) =
        match input.wakes.map(|wakes| fit_wakes(input.rate, wakes, input.cost, question)) {
            None => (None, "the wakes were not recorded".to_owned()),
            Some(Err(Unfit::Singular)) => (
                None,
                "wakes are not identifiable: they are a linear function of the rate".to_owned(),
            ),
            Some(Err(unfit)) => (None, format!("no line with wakes: {unfit}")),
            Some(Ok(fit)) => (Some(fit), String::new()),
        };
    let headline = match &with_wakes {
        None => Headline::Straight { why: refused },
        Some(fit) => choose(fit),
    };
    let highest_rate = input.rate.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut line = LoadLine {
        curvature: match (&headline, &with_wakes) {
            (Headline::WithWakes { .. }, Some(fit)) => fit.curvature.clone(),
            _ => straight.curvature.clone(),
        },
        straight,
        with_wakes,
        headline,
        busy: None,
        n: input.rate.len(),
        cap: input.cap,
        highest_rate,
        reach,
        extrapolation: f64::NAN,
        trusted: Trust::Yes,
    };
    line.busy = busy(input, &line, question);
    let is_far = line.capacity().value > SEEN_FOLDS_MAX * highest_rate;
    if input.cpu_time && (reach < SEEN_MIN || is_far) {
        line.refuse(&Why::TooQuiet { reach });
    }
    line.extrapolation = line.capacity().value / highest_rate;
    let set_aside = match (&line.headline, &line.with_wakes) {
        (Headline::WithWakes { .. }, Some(fit)) => fit.robust.set_aside.len(),
        _ => line.straight.robust.set_aside.len(),
    };
    line.trusted = trust(&Checks {
        capacity: line.capacity(),
        slope_t: line.straight.line.slope / line.straight.line.se_slope,
        reach,
        is_busy: line.busy.is_some(),
        has_marginal: input.marginal.is_some(),
        set_aside: (set_aside, line.n),
        curvature: line.curvature.as_ref(),
        folds: variation::folds(input.rate),
    });
    Ok(line)
}

fn check(input: &LoadLineInput<'_>) -> Result<(), Unfit> {
    let n = input.rate.len();
    if n < INTERVALS_MIN {
        return Err(Unfit::TooFew { needed: INTERVALS_MIN, found: n });
    }
    check_column(input.rate, n)?;
    check_column(input.cost, n)?;
    if let Some(wakes) = input.wakes {
        check_column(wakes, n)?;
    }
    check_terms(input.cap, input.level, input.between_run)
}

pub(crate) fn check_terms(cap: f64, level: f64, between_run: f64) -> Result<(), Unfit> {
    if !(cap.is_finite() && cap > 0.0) {
        return Err(Unfit::NotPositive { what: "the cap" });
    }
    check_level(level)?;
    if !(between_run.is_finite() && between_run >= 0.0) {
        return Err(Unfit::NotPositive { what: "the between-run sd" });
    }
    Ok(())
}

fn fit_straight(
    input: &LoadLineInput<'_>,
    design: &Design,
    question: Question,
) -> Result<Fit, Unfit> {
    let least = least_squares(design, input.cost, None)?;
    let line = Line::from_fit(&least);
    let errors = Errors::new(design, &least.residuals, &least.unscaled_cov, least.cov.clone());
    let reading = Reading {
        design,
        coefficients: &least.coefficients,
        errors: &errors,
        residuals: &least.residuals,
        weights: None,
        residual_sd: least.residual_sd,
        dof: least.dof,
    };
    let capacity = reading.capacity(question, &Moments::new(design, design, input.cost, None));
    let robust = mm(design, input.cost, input.seed)?;
    Ok(Fit {
        hac_se: [errors.hac[0][0].sqrt(), errors.hac[1][1].sqrt()],
        capacity,
        robust_capacity: robust_capacity(input, design, &robust, question)?,
        theil_sen: theil_sen(input.rate, input.cost, input.level)?,
        curvature: curvature(design, input.cost, None, input.cap).ok(),
        line,
        robust,
    })
}

fn robust_capacity(
    input: &LoadLineInput<'_>,
    design: &Design,
    robust: &Robust,
    question: Question,
) -> Result<Capacity, Unfit> {
    let residuals = design.residuals(input.cost, &robust.coefficients);
    let weights = Some(robust.weights.as_slice());
    let scores = weighted(&residuals, weights);
    let plain = least_squares(design, input.cost, None)?;
    let bread = scaled(&plain.unscaled_cov, 1.0 / mean_psi_slope(&robust.weights));
    let errors = Errors::new(design, &scores, &bread, robust.cov.clone());
    let reading = Reading {
        design,
        coefficients: &robust.coefficients,
        errors: &errors,
        residuals: &residuals,
        weights,
        residual_sd: robust.scale,
        dof: robust.dof,
    };
    Ok(reading.capacity(question, &Moments::new(design, design, input.cost, weights)))
}

/// The highest share of the cap in an interval that the robust fit did not set aside.
fn reach(input: &LoadLineInput<'_>, robust: &Robust) -> f64 {
    let kept = input.cost.iter().zip(&robust.weights).filter(|(_, w)| **w >= SET_ASIDE_WEIGHT);
    kept.map(|(cost, _)| cost / input.cap).fold(0.0, f64::max)
}

/// What the line of a busy CPU needs from the data, besides what it always needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: the straight line gives a capacity, or turns show what a request costs at the cap.
    Nothing,
    /// The use has to rise with the rate. Residuals that are correlated because the line is
    /// straight say nothing against this line.
    Rise,
    /// Rates that differ.
    AnotherRate,
}

impl Needs {
    pub(crate) fn of(straight: &Result<(), Why>, has_marginal: bool) -> Needs {
        match straight {
            _ if has_marginal => Needs::Nothing,
            Ok(()) => Needs::Nothing,
            Err(Why::NeighboursAlike { .. }) => Needs::Rise,
            Err(_) => Needs::AnotherRate,
        }
    }
}

/// The line of a busy CPU, if the data end too early for the headline.
fn busy(input: &LoadLineInput<'_>, line: &LoadLine, question: Question) -> Option<BusyFit> {
    // A server that never sleeps spends its CPU time waiting.
    let sleeps = input.wakes.is_none_or(|wakes| wakes.iter().any(|each| *each > 0.0));
    let asked = input.cpu_time && sleeps && line.reach < BUSY_BELOW;
    let needs = Needs::of(&line.headline_capacity().identifiable, input.marginal.is_some());
    if !asked || needs == Needs::AnotherRate {
        return None;
    }
    let LoadLineInput { rate, cost, wakes, processes_alternate, marginal, .. } = *input;
    // The rows above the reach, which something else than the rate made busy.
    let above = |&&row: &&usize| cost[row] > line.reach * line.cap;
    let set_aside: Vec<usize> =
        line.straight.robust.set_aside.iter().filter(above).copied().collect();
    let known = Known {
        wakes,
        processes_alternate,
        marginal,
        is_constant: line.headline_capacity().identifiable.is_err() && needs == Needs::Nothing,
        set_aside: &set_aside,
        asked_at: Some(line.cap),
        means_of: None,
    };
    let fit = fit_busy(rate, cost, known, Question { cap: input.full, ..question }).ok()?;
    let rises = || rises_beyond_neighbours(&line.straight.line, &fit, input.level);
    let usable = fit.capacity.identifiable.is_ok() && (needs == Needs::Nothing || rises());
    usable.then_some(fit)
}

/// Whether the use rises with the rate, if neighbouring intervals are as correlated as they are
/// around the line of a busy CPU.
fn rises_beyond_neighbours(line: &Line, fit: &BusyFit, level: f64) -> bool {
    let rho = fit.capacity.autocorrelation;
    let per_one = (1.0 + rho) / (1.0 - rho);
    let dof = (line.n as f64 / per_one - 2.0).max(EFFECTIVE_DOF_MIN);
    line.slope / line.se_slope / per_one.sqrt() > t_critical(level, dof)
}

fn choose(fit: &WakesFit) -> Headline {
    let vif = fit.collinearity.vif;
    match why_not_wakes(vif, fit.w_t, fit.w_p, &fit.capacity) {
        Some(why) => Headline::Straight { why },
        None => Headline::WithWakes {
            why: format!("a wake has a cost (t = {:.1}), variance inflation {vif:.1}", fit.w_t),
        },
    }
}

/// The condition of the line with wakes that does not hold.
pub(crate) fn why_not_wakes(vif: f64, t: f64, p: f64, capacity: &Capacity) -> Option<String> {
    if vif.is_nan() || vif > VIF_MAX {
        Some(format!("rate and wakes cannot be separated (variance inflation {vif:.0})"))
    } else if p.is_nan() || p >= WAKE_P_MAX {
        Some(format!("the cost of a wake is not above zero (t = {t:.1}, p = {p:.2})"))
    } else {
        capacity.identifiable.as_ref().err().map(ToString::to_string)
    }
}

/// What decides whether a line is reliable.
pub(crate) struct Checks<'a> {
    pub(crate) capacity: &'a Capacity,
    /// t of the straight line's slope.
    pub(crate) slope_t: f64,
    pub(crate) reach: f64,
    /// Whether the capacity is that of the line of a busy CPU.
    pub(crate) is_busy: bool,
    /// Whether turns show what a request costs at the cap.
    pub(crate) has_marginal: bool,
    /// Intervals set aside, and all intervals.
    pub(crate) set_aside: (usize, usize),
    pub(crate) curvature: Option<&'a Curvature>,
    /// By which factor the rate varied.
    pub(crate) folds: f64,
}

pub(crate) fn trust(checks: &Checks<'_>) -> Trust {
    let Checks { capacity, slope_t, reach, is_busy, has_marginal, set_aside, curvature, folds } =
        *checks;
    let not = |statistic: String, why: &str| Trust::Unreliable { statistic, why: why.to_owned() };
    if let Err(why) = &capacity.identifiable {
        return not(format!("t of the slope = {slope_t:.1}"), &why.to_string());
    }
    if folds < variation::FOLDS_MIN && !(is_busy && has_marginal) {
        let statistic = format!("the rate varied {folds:.1}-fold");
        return not(statistic, "a line needs a rate that at least doubles");
    }
    if reach < REACH_MIN && !is_busy {
        let statistic = format!("reach = {:.0} % of the cap", reach * 100.0);
        return not(statistic, "the data stay too far below saturation");
    }
    let (set_aside, n) = set_aside;
    if set_aside as f64 > SET_ASIDE_MAX * n as f64 {
        let statistic = format!("{set_aside} of {n} intervals set aside");
        return not(statistic, "too many intervals do not follow the line");
    }
    match curvature {
        Some(curve) if curve.test.p < CURVATURE_P_MAX => {
            if is_busy || curve.capacity.is_some_and(|c| capacity.interval.holds(c)) {
                return Trust::Yes;
            }
            let Curvature { test, .. } = curve;
            let statistic =
                format!("{} = {:.1}, p = {:.2e}", test.statistic_name, test.statistic, test.p);
            not(
                statistic,
                "the line is curved, and the capacity of the curve is outside the interval",
            )
        }
        _ => Trust::Yes,
    }
}
