//! The load line of one resource: both lines, their capacities, and how far to trust them.
//!
//! Two lines are drawn. The straight one of 1998, `C = a + b·x`, by least squares (with the MM fit
//! beside it). And, where the wakes of the serving thread are known, `C = a + b·x + w·wakes` by
//! the MM-estimator, read at wakes = 0: a busy server sleeps less, pays for fewer wakes, and so
//! costs less a request than a straight line through its quieter hours promises; when it is
//! saturated it does not sleep at all.
//!
//! **The headline** is the line with wakes if (1) rate and wakes can be told apart: variance
//! inflation at most [`VIF_MAX`]; (2) the cost of a wake is positive, one-sided p below
//! [`WAKE_P_MAX`] with Newey–West errors; (3) the data reach [`REACH_MIN`] of the cap; and (4) its
//! capacity is identifiable. Otherwise it is the straight line, and which condition failed is said.
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
//! take it from. The line's own covariance is the Newey–West one where that is the larger for the
//! capacity. Columns beyond the rate are zero there, so that their coefficients do not enter.

use serde::Serialize;

use crate::Unfit;
use crate::bootstrap::{block_bootstrap, block_length};
use crate::curvature::{Curvature, curvature};
use crate::dist::t_upper_p;
use crate::interval::{Fieller, Interval, fieller};
use crate::line::{Line, TheilSen, theil_sen};
use crate::linear::{Design, LinearFit, check_column, hac_cov, hac_lags, least_squares};
use crate::robust::{Normal, Robust, mm};

/// Level of intervals unless another is asked for.
pub const LEVEL_DEFAULT: f64 = 0.95;
/// Sd of the level between runs, as a share of the cap: the root mean square by which lines with
/// wakes missed the saturation then measured (null server 2.7 %, nginx 3.5 %, Squid 2.1 %).
pub const BETWEEN_RUN_DEFAULT: f64 = 0.03;
/// Data that end below this share of the cap are too far from saturation.
pub const REACH_MIN: f64 = 0.6;
/// Largest variance inflation at which rate and wakes count as told apart.
pub const VIF_MAX: f64 = 30.0;
/// Largest one-sided p at which the cost of a wake counts as positive.
pub const WAKE_P_MAX: f64 = 0.05;
/// Largest p at which a curve is believed.
pub const CURVATURE_P_MAX: f64 = 0.01;
/// More than this share of intervals set aside, and the rest no longer stands for the trial.
pub const SET_ASIDE_MAX: f64 = 0.2;
/// Fewer intervals than this carry no line.
pub const INTERVALS_MIN: usize = 8;
/// Resamples of the bootstrap.
pub const RESAMPLES: usize = 1_000;

/// What a load line is drawn from; rows are intervals in time order.
#[derive(Clone, Copy, Debug)]
pub struct LoadLineInput<'a> {
    /// Requests per second.
    pub rate: &'a [f64],
    /// Use of the resource, such as CPU seconds per second.
    pub cost: &'a [f64],
    /// Wakes per second of the serving thread (its voluntary context switches), if known.
    pub wakes: Option<&'a [f64]>,
    /// The use at which the resource is used up: 1.0 for one CPU.
    pub cap: f64,
    /// Level of the intervals.
    pub level: f64,
    /// Seed of the robust fit and of the bootstrap.
    pub seed: u64,
    /// Sd of the level between runs as a share of the cap.
    pub between_run: f64,
}

impl<'a> LoadLineInput<'a> {
    /// An input with the default level, seed and between-run sd, and no wakes.
    #[must_use]
    pub fn new(rate: &'a [f64], cost: &'a [f64], cap: f64) -> LoadLineInput<'a> {
        LoadLineInput {
            rate,
            cost,
            wakes: None,
            cap,
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
    /// The line with wakes, where it could be fitted.
    pub with_wakes: Option<WakesFit>,
    /// Which of the two is the headline, and why.
    pub headline: Headline,
    /// Intervals fitted.
    pub n: usize,
    /// The cap it was read at.
    pub cap: f64,
    /// Highest rate seen.
    pub highest_rate: f64,
    /// Highest use seen as a share of the cap, wild intervals left out.
    pub reach: f64,
    /// The headline's capacity over the highest rate seen.
    pub extrapolation: f64,
    /// The headline's curvature test; none when the rate took too few values to ask.
    pub curvature: Option<Curvature>,
    /// Is the headline to be trusted?
    pub trusted: Trust,
}

impl LoadLine {
    /// The headline's capacity.
    #[must_use]
    pub fn capacity(&self) -> &Capacity {
        match (&self.headline, &self.with_wakes) {
            (Headline::WithWakes { .. }, Some(fit)) => &fit.capacity,
            _ => &self.straight.capacity,
        }
    }
}

/// Which line the capacity is read off.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Headline {
    /// The straight line of 1998.
    Straight {
        /// Why not the one with wakes.
        why: String,
    },
    /// The line with wakes.
    WithWakes {
        /// The figures that met the rule.
        why: String,
    },
}

/// Whether the headline may be relied on.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Nothing speaks against it.
    Yes,
    /// Something does.
    NotToBeTrusted {
        /// The statistic with its value, fit to print.
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
    /// Standard errors of (intercept, slope) that stand autocorrelation (Newey–West).
    pub hac_se: [f64; 2],
    /// The MM-estimate beside it, with what it set aside.
    pub robust: Robust,
    /// Theil–Sen, the cross-check of both.
    pub theil_sen: TheilSen,
    /// Capacity by least squares.
    pub capacity: Capacity,
    /// Capacity by the MM-estimate.
    pub robust_capacity: Capacity,
    /// The curvature test; none when the rate took too few values to ask.
    pub curvature: Option<Curvature>,
}

/// The line with wakes: `C = a + b·x + w·wakes`, by the MM-estimator.
#[derive(Clone, Debug, Serialize)]
pub struct WakesFit {
    /// Fixed cost.
    pub a: f64,
    /// Marginal cost of a request, wakes apart.
    pub b: f64,
    /// Cost of a wake.
    pub w: f64,
    /// Newey–West standard errors of (a, b, w).
    pub hac_se: [f64; 3],
    /// w over its standard error.
    pub w_t: f64,
    /// One-sided p of w being above zero.
    pub w_p: f64,
    /// The MM-estimate, with what it set aside.
    pub robust: Robust,
    /// Share of the variance explained, by the weighted fit.
    pub r_squared: f64,
    /// Can rate and wakes be told apart?
    pub collinearity: Collinearity,
    /// Capacity, read at wakes = 0.
    pub capacity: Capacity,
    /// The curvature test of this line; none where the squared rate cannot be told from the rest.
    pub curvature: Option<Curvature>,
}

/// How nearly the wakes are a line of the rate.
#[derive(Clone, Debug, Serialize)]
pub struct Collinearity {
    /// Variance inflation factor of rate and wakes: `1/(1 − r²)`.
    pub vif: f64,
    /// Condition number of the design, columns scaled to unit length.
    pub condition_number: f64,
}

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
    /// Can a capacity be read off these data at all?
    pub identifiable: Result<(), Why>,
}

/// Why no capacity can be read off.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The slope cannot be told from zero.
    RateDidNotVary,
    /// The line's fixed cost is at or above the cap.
    NoRoomUnderCap,
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Why::RateDidNotVary => Interval::NOT_IDENTIFIABLE,
            Why::NoRoomUnderCap => "not identifiable: the fixed cost alone is above the cap",
        })
    }
}

/// Draws the load line of one resource.
///
/// # Errors
/// Fewer than [`INTERVALS_MIN`] intervals, lengths that differ, values not finite, a rate that did
/// not vary at all, a cap or level out of range.
pub fn load_line(input: &LoadLineInput<'_>) -> Result<LoadLine, Unfit> {
    check(input)?;
    let design = Design::new(&[input.rate])?;
    let straight = fit_straight(input, &design)?;
    let reach = reach(input, &straight.robust);
    let (with_wakes, refused) = match input.wakes.map(|wakes| fit_wakes(input, wakes)) {
        None => (None, "the wakes were not recorded".to_owned()),
        Some(Err(Unfit::Singular)) => {
            (None, "wakes are not identifiable: they are a line of the rate".to_owned())
        }
        Some(Err(unfit)) => (None, format!("no line with wakes: {unfit}")),
        Some(Ok(fit)) => (Some(fit), String::new()),
    };
    let headline = match &with_wakes {
        None => Headline::Straight { why: refused },
        Some(fit) => choose(fit, reach),
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
        n: input.rate.len(),
        cap: input.cap,
        highest_rate,
        reach,
        extrapolation: f64::NAN,
        trusted: Trust::Yes,
    };
    line.extrapolation = line.capacity().value / highest_rate;
    line.trusted = trust(&line);
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
    if !(input.cap.is_finite() && input.cap > 0.0) {
        return Err(Unfit::NotPositive { what: "the cap" });
    }
    if !(input.level > 0.0 && input.level < 1.0) {
        return Err(Unfit::NotPositive { what: "the level, or one less it," });
    }
    if !(input.between_run.is_finite() && input.between_run >= 0.0) {
        return Err(Unfit::NotPositive { what: "the between-run sd" });
    }
    Ok(())
}

fn fit_straight(input: &LoadLineInput<'_>, design: &Design) -> Result<Fit, Unfit> {
    let least = least_squares(design, input.cost, None)?;
    let line = Line::from_fit(&least);
    let lags = hac_lags(&least.residuals);
    let hac = hac_cov(design, &least.residuals, &least.unscaled_cov, lags);
    let robust = mm(design, input.cost, input.seed)?;
    Ok(Fit {
        hac_se: [hac[0][0].sqrt(), hac[1][1].sqrt()],
        capacity: Reading::of_least_squares(input, design, &least, hac).capacity(),
        robust_capacity: Reading::of_robust(input, design, &robust)?.capacity(),
        theil_sen: theil_sen(input.rate, input.cost, input.level)?,
        curvature: curvature(design, input.cost, None, input.cap).ok(),
        line,
        robust,
    })
}

fn fit_wakes(input: &LoadLineInput<'_>, wakes: &[f64]) -> Result<WakesFit, Unfit> {
    let design = Design::new(&[input.rate, wakes])?;
    let robust = mm(&design, input.cost, input.seed)?;
    let reading = Reading::of_robust(input, &design, &robust)?;
    let se = [0, 1, 2].map(|j| reading.cov[j][j].max(0.0).sqrt());
    let w_t = robust.coefficients[2] / se[2];
    let weighted = least_squares(&design, input.cost, Some(&robust.weights))?;
    let vif = 1.0 / (1.0 - crate::line::ols(input.rate, wakes)?.r_squared);
    Ok(WakesFit {
        a: robust.coefficients[0],
        b: robust.coefficients[1],
        w: robust.coefficients[2],
        hac_se: se,
        w_t,
        w_p: t_upper_p(w_t, robust.dof as f64),
        r_squared: weighted.r_squared,
        collinearity: Collinearity { vif, condition_number: design.condition_number() },
        capacity: reading.capacity(),
        curvature: curvature(&design, input.cost, Some(&robust.weights), input.cap).ok(),
        robust,
    })
}

/// The highest share of the cap seen in an interval that the robust fit heeds.
fn reach(input: &LoadLineInput<'_>, robust: &Robust) -> f64 {
    let heeded = (0..input.cost.len()).filter(|i| !robust.set_aside.contains(i));
    heeded.map(|i| input.cost[i] / input.cap).fold(0.0, f64::max)
}

fn choose(fit: &WakesFit, reach: f64) -> Headline {
    let vif = fit.collinearity.vif;
    let why = if vif.is_nan() || vif > VIF_MAX {
        format!("rate and wakes cannot be told apart (variance inflation {vif:.0})")
    } else if fit.w_p.is_nan() || fit.w_p >= WAKE_P_MAX {
        format!("a wake's cost is not above zero (t = {:.1}, p = {:.2})", fit.w_t, fit.w_p)
    } else if reach < REACH_MIN {
        format!("the data reach only {:.0} % of the cap", reach * 100.0)
    } else if let Err(why) = &fit.capacity.identifiable {
        why.to_string()
    } else {
        return Headline::WithWakes {
            why: format!("a wake costs (t = {:.1}), variance inflation {vif:.1}", fit.w_t),
        };
    };
    Headline::Straight { why }
}

fn trust(line: &LoadLine) -> Trust {
    let capacity = line.capacity();
    let not =
        |statistic: String, why: &str| Trust::NotToBeTrusted { statistic, why: why.to_owned() };
    if let Err(why) = &capacity.identifiable {
        let t = line.straight.line.slope / line.straight.line.se_slope;
        return not(format!("t of the slope = {t:.1}"), &why.to_string());
    }
    if line.reach < REACH_MIN {
        let statistic = format!("reach = {:.0} % of the cap", line.reach * 100.0);
        return not(statistic, "the data end too far below saturation");
    }
    let set_aside = match (&line.headline, &line.with_wakes) {
        (Headline::WithWakes { .. }, Some(fit)) => fit.robust.set_aside.len(),
        _ => line.straight.robust.set_aside.len(),
    };
    if set_aside as f64 > SET_ASIDE_MAX * line.n as f64 {
        let statistic = format!("{set_aside} of {} intervals set aside", line.n);
        return not(statistic, "too many intervals do not follow the line");
    }
    match &line.curvature {
        Some(curve) if curve.test.p < CURVATURE_P_MAX => {
            let told = curve.capacity.is_none_or(|c| !capacity.interval.holds(c));
            if !told {
                return Trust::Yes;
            }
            let Curvature { test, .. } = curve;
            let statistic =
                format!("{} = {:.1}, p = {:.2e}", test.statistic_name, test.statistic, test.p);
            not(statistic, "the line is curved, and the curve's capacity lies outside the interval")
        }
        _ => Trust::Yes,
    }
}

/// A fit from which a capacity is read, all that its intervals need in one place.
struct Reading<'a> {
    input: &'a LoadLineInput<'a>,
    design: &'a Design,
    coefficients: Vec<f64>,
    /// Newey–West.
    cov: Vec<Vec<f64>>,
    /// Under independent errors.
    plain_cov: Vec<Vec<f64>>,
    residuals: Vec<f64>,
    weights: Option<&'a [f64]>,
    residual_sd: f64,
    dof: usize,
}

impl<'a> Reading<'a> {
    fn of_least_squares(
        input: &'a LoadLineInput<'a>,
        design: &'a Design,
        fit: &LinearFit,
        hac: Vec<Vec<f64>>,
    ) -> Reading<'a> {
        Reading {
            input,
            design,
            coefficients: fit.coefficients.clone(),
            cov: hac,
            plain_cov: fit.cov.clone(),
            residuals: fit.residuals.clone(),
            weights: None,
            residual_sd: fit.residual_sd,
            dof: fit.dof,
        }
    }

    fn of_robust(
        input: &'a LoadLineInput<'a>,
        design: &'a Design,
        fit: &'a Robust,
    ) -> Result<Reading<'a>, Unfit> {
        let scores = fit.scores(design, input.cost);
        let bread = fit.bread(design, input.cost)?;
        Ok(Reading {
            input,
            design,
            coefficients: fit.coefficients.clone(),
            cov: hac_cov(design, &scores, &bread, hac_lags(&scores)),
            plain_cov: fit.cov.clone(),
            residuals: design.residuals(input.cost, &fit.coefficients),
            weights: Some(&fit.weights),
            residual_sd: fit.scale,
            dof: fit.dof,
        })
    }

    fn capacity(&self) -> Capacity {
        let LoadLineInput { cap, level, between_run, seed, .. } = *self.input;
        let (a, b) = (self.coefficients[0], self.coefficients[1]);
        let value = (cap - a) / b;
        let residual_sd = self.residual_sd_at_cap();
        let between_run_sd = between_run * cap;
        let base = Fieller {
            cap,
            intercept: a,
            slope: b,
            cov: self.line_cov(value),
            extra_variance: 0.0,
            dof: self.dof as f64,
            level,
        };
        let line_interval = fieller(&base);
        let extra_variance = residual_sd.powi(2) + between_run_sd.powi(2);
        let interval = fieller(&Fieller { extra_variance, ..base });
        let block = block_length(&self.scores()).ceil() as usize;
        let bootstrap = block_bootstrap(self.design.rows(), block, RESAMPLES, seed, |rows| {
            let fit = resampled_fit(self.design, self.input.cost, self.weights, rows)?;
            (fit[1] > 0.0).then(|| (cap - fit[0]) / fit[1])
        });
        let identifiable = if line_interval.bounds().is_none() {
            Err(Why::RateDidNotVary)
        } else if a >= cap {
            Err(Why::NoRoomUnderCap)
        } else {
            Ok(())
        };
        Capacity {
            value,
            interval,
            line_interval,
            bootstrap: bootstrap.interval(level),
            block_length: bootstrap.block_length,
            level,
            residual_sd,
            between_run_sd,
            identifiable,
        }
    }

    fn scores(&self) -> Vec<f64> {
        match self.weights {
            Some(weights) => self.residuals.iter().zip(weights).map(|(r, w)| r * w).collect(),
            None => self.residuals.clone(),
        }
    }

    /// The covariance of (intercept, slope): the one of the two that gives the capacity the larger
    /// variance (by the delta method), for Newey–West errors are too small in short series.
    fn line_cov(&self, capacity: f64) -> [[f64; 2]; 2] {
        let corner = |m: &[Vec<f64>]| [[m[0][0], m[0][1]], [m[1][0], m[1][1]]];
        let variance =
            |m: [[f64; 2]; 2]| m[0][0] + 2.0 * capacity * m[0][1] + capacity.powi(2) * m[1][1];
        let (plain, robust) = (corner(&self.plain_cov), corner(&self.cov));
        if variance(robust) > variance(plain) { robust } else { plain }
    }

    /// The residual sd to expect at the cap, see the module's head.
    fn residual_sd_at_cap(&self) -> f64 {
        let n = self.residuals.len();
        let fitted: Vec<f64> = (0..n).map(|i| self.design.fitted(i, &self.coefficients)).collect();
        let middle = crate::dist::median(&mut fitted.clone());
        let (mut sum, mut weight) = (0.0, 0.0);
        for i in (0..n).filter(|&i| fitted[i] >= middle && fitted[i] > 0.0) {
            let w = self.weights.map_or(1.0, |weights| weights[i]);
            sum += w * (self.residuals[i] / fitted[i]).powi(2);
            weight += w;
        }
        let correction = n as f64 / self.dof as f64;
        let relative = if weight > 0.0 { (sum / weight * correction).sqrt() } else { 0.0 };
        self.residual_sd.max(relative * self.input.cap)
    }
}

/// (Weighted) least squares over the rows drawn; weights go with their rows. None when the rows
/// drawn do not determine a fit.
pub(crate) fn resampled_fit(
    design: &Design,
    y: &[f64],
    weights: Option<&[f64]>,
    rows: &[usize],
) -> Option<Vec<f64>> {
    let p = design.coefficients();
    let scales = design.scales();
    let mut system = Normal::new(p);
    let mut row = vec![0.0; p];
    for &i in rows {
        for (j, value) in row.iter_mut().enumerate() {
            *value = design.column(j)[i] / scales[j];
        }
        system.add(&row, y[i], weights.map_or(1.0, |weights| weights[i]));
    }
    let solved = system.solve()?;
    Some(solved.iter().zip(&scales).map(|(c, s)| c / s).collect())
}
