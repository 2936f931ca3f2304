//! The line of a busy CPU, `C = a + b·(x + τ·T)·exp(θ·(1 − C/cap))`, for data that end far below
//! the cap.
//!
//! A request costs more CPU time on a CPU that is mostly idle, for two reasons. A turn of the event
//! loop serves only one event, and a busy server's turns serve many: T is the turns per second, and
//! a turn costs τ requests. And caches and the host's processor are cold: what is done on an idle
//! CPU costs `exp(θ)` times as much as on a busy one. The use is on both sides: only the rate and
//! the turns are given.
//!
//! At the cap there are fewer turns per request than anywhere in the data. They fall faster the
//! busier the CPU is, so half of what their own straight line says is taken ([`Turns`]).
//!
//! Data from low load determine θ poorly, and the capacity depends on it. So θ has a prior: its
//! values on real servers ([`FALL_MEAN`], [`FALL_SD`]). A cold CPU adds microseconds rather than a
//! factor, so that it is lower for requests that cost much ([`FALL_BY_COST`]). Data that reach
//! further outweigh it. The fit is the posterior mode by Gauss–Newton on log residuals, because the
//! noise of CPU time is in proportion to it, with Huber's weights. Neighbouring intervals that are
//! correlated count for less, as in [`crate::capacity`].

use nalgebra::{Matrix3, Vector3};
use serde::Serialize;

use crate::Unfit;
use crate::capacity::{Autocorrelation, Capacity, Question, Why};
use crate::dist::{median, t_critical};
use crate::interval::Interval;
use crate::sums::Sums;

/// What a turn costs, in requests on a busy CPU. Chosen on real servers, as the next four; see
/// `studies/predict/README.md`.
pub const TURN_COST: f64 = 0.47;
/// Mean of the prior of θ, for requests that cost at most [`CHEAP_S`].
pub const FALL_MEAN: f64 = 0.72;
/// How much lower it is for each unit of the logarithm of the cost beyond that.
pub const FALL_BY_COST: f64 = 0.3;
/// CPU seconds of a cheap request.
pub const CHEAP_S: f64 = 20e-6;
/// The standard deviation of the prior of θ.
pub const FALL_SD: f64 = 0.15;
/// Mean and sd of the prior of θ if the turns were not counted: it has their part too.
const FALL_UNCOUNTED: (f64, f64) = (1.3, 0.4);
/// The part of the turns per request at the cap, by their straight line, that is taken.
const TURNS_AT_CAP: f64 = 0.5;
/// The fixed use has a prior with mean 0 and this sd, as a share of the cap: a server that waits
/// for requests does little else.
pub const FIXED_SD: f64 = 0.01;
/// Sd of the log of the capacity for each unit of the cap between the data and the cap, because the
/// cost does not fall exactly as in the model.
pub const MODEL_SD: f64 = 0.35;
/// Intervals with a rate below this part of the highest are left out: their cost per request is
/// mostly fixed cost and noise.
const RATE_MIN: f64 = 0.05;
/// Sd of θ's prior, and variance of the log residuals, in the fit that shows how noisy they are.
const FREE_SD: f64 = 1.0;
const FREE_VARIANCE: f64 = 0.01;
/// Largest θ.
const FALL_MAX: f64 = 4.0;
/// Residuals beyond this multiple of their sd get a lower weight (Huber).
const HUBER: f64 = 1.5;
/// Least sd of the residuals: CPU time is not measured better.
const RESIDUAL_MIN: f64 = 0.003;
const ITERATIONS: usize = 200;
/// Part of each Gauss–Newton step that is taken. The weights change with each.
const STEP: f64 = 0.7;
/// Largest change of (a/cap, ln b, θ) in one step.
const STEP_MAX: [f64; 3] = [0.01, 0.2, 0.3];
const CONVERGED: f64 = 1e-8;
/// Coefficients of the line.
const P: usize = 3;

/// Turns of the server's event loop per request, as a straight line on the use of the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Turns {
    /// On an idle CPU.
    pub idle: f64,
    /// By how much more at the cap; mostly negative.
    pub rise: f64,
}

impl Turns {
    /// The line through intervals: their use as a share of the cap, requests, and turns. `None`
    /// without any.
    #[must_use]
    pub fn of(intervals: &[(f64, f64, f64)]) -> Option<Turns> {
        // Each request is an observation. The error of the slope, which needs `yy`, is not used.
        let observed = |&(used, requests, turns): &(f64, f64, f64)| Sums {
            n: requests,
            x: used * requests,
            y: turns,
            xx: used * used * requests,
            xy: used * turns,
            yy: 0.0,
        };
        let sums = intervals.iter().map(observed).fold(Sums::default(), |all, sums| all + sums);
        let (idle, rise) =
            sums.line().map_or((sums.y / sums.n, 0.0), |line| (line.intercept, line.slope));
        (sums.n > 0.0 && sums.y > 0.0).then_some(Turns { idle, rise })
    }

    /// Requests that cost as much as one with its turns, at a use of the CPU, for data that end at
    /// `reach`.
    fn cost(&self, used: f64, reach: f64) -> f64 {
        let beyond = if used > reach { (used - reach) / (1.0 - reach) } else { 0.0 };
        let straight = (self.idle + self.rise * used).clamp(0.0, self.idle.max(0.0));
        1.0 + TURN_COST * straight * (1.0 - (1.0 - TURNS_AT_CAP) * beyond.min(1.0))
    }
}

/// The line of a busy CPU.
#[derive(Clone, Debug, Serialize)]
pub struct BusyFit {
    /// Fixed use, in units of the cost.
    pub a: f64,
    /// Cost of a request at the cap, without its turns.
    pub b: f64,
    /// θ: the log of what something costs on an idle CPU over what it costs on a busy one.
    pub fall: f64,
    /// Its standard error, with the prior.
    pub fall_se: f64,
    /// Turns per request, if they were counted.
    pub turns: Option<Turns>,
    /// Sd of the log residuals.
    pub residual_sd: f64,
    /// The rate at the cap, without a bootstrap.
    pub capacity: Capacity,
    reach: f64,
    cap: f64,
}

impl BusyFit {
    /// The use at a rate, in units of the cost.
    #[must_use]
    pub fn at(&self, rate: f64) -> f64 {
        let line = Line { a: self.a / self.cap, log_b: (self.b / self.cap).ln(), fall: self.fall };
        let mut used = line.at(rate).0;
        let Some(turns) = self.turns else { return self.cap * used };
        // The turns hardly change with the use, so that this converges fast.
        for _ in 0..50 {
            let moved = 0.5 * (line.at(rate * turns.cost(used, self.reach)).0 - used);
            used += moved;
            if moved.abs() < 1e-12 {
                break;
            }
        }
        self.cap * used
    }
}

/// The prior of θ.
#[derive(Clone, Copy)]
struct Prior {
    mean: f64,
    sd: f64,
    /// The logarithm of the use by one cheap request per second.
    log_cheap: f64,
}

impl Prior {
    fn of(turns: Option<Turns>, cap: f64) -> Prior {
        let (mean, sd) = match turns {
            Some(_) => (FALL_MEAN, FALL_SD),
            None => FALL_UNCOUNTED,
        };
        Prior { mean, sd, log_cheap: (CHEAP_S / cap).ln() }
    }

    /// θ minus its mean for a line, and the derivative of that by the log of the cost.
    fn deviation(&self, line: &Line) -> (f64, f64) {
        let beyond = line.log_b - self.log_cheap;
        let slope = if beyond > 0.0 { FALL_BY_COST } else { 0.0 };
        (line.fall - self.mean + slope * beyond, slope)
    }
}

/// The coefficients, with the use as a share of the cap.
#[derive(Clone, Copy)]
struct Line {
    a: f64,
    log_b: f64,
    fall: f64,
}

impl Line {
    /// The use at a rate, and the part of it that is for requests.
    fn at(&self, rate: f64) -> (f64, f64) {
        let of_requests = |used: f64| rate * (self.log_b + self.fall * (1.0 - used)).exp();
        // The difference is concave and rises, so that Newton's steps rise to its zero.
        let mut used = self.a + of_requests(1.0);
        for _ in 0..50 {
            let requests = of_requests(used);
            let step = (self.a + requests - used) / (1.0 + self.fall * requests);
            used = (used + step).max(0.0);
            if step.abs() < 1e-12 {
                break;
            }
        }
        (used, of_requests(used))
    }
}

pub(crate) fn fit_busy(
    rate: &[f64],
    cost: &[f64],
    turns: Option<Turns>,
    question: Question,
) -> Result<BusyFit, Unfit> {
    let prior = Prior::of(turns, question.cap);
    let Question { cap, level, between_run, .. } = question;
    let highest = rate.iter().copied().fold(0.0, f64::max);
    let rows: Vec<(f64, f64)> = rate
        .iter()
        .zip(cost)
        .map(|(rate, cost)| (*rate, cost / cap))
        .filter(|(rate, used)| *rate > RATE_MIN * highest && *used > 0.0)
        .collect();
    let reach = rows.iter().map(|(_, used)| *used).fold(0.0, f64::max);
    let with = |used| turns.map_or(1.0, |turns| turns.cost(used, reach));
    let rows: Vec<(f64, f64)> =
        rows.iter().map(|&(rate, used)| (rate * with(used), used)).collect();
    if rows.len() <= P {
        return Err(Unfit::TooFew { needed: P + 1, found: rows.len() });
    }
    // A fit that the prior hardly holds shows how noisy the data are: the residuals of a line that
    // the prior keeps from the data would count as noise, and confirm the prior.
    let hardly = Prior { sd: FREE_SD, ..prior };
    let (free, noise) = search(&rows, start(&rows, prior), hardly, FREE_VARIANCE)?;
    let Step { residual_sd, correlation, .. } = noise;
    let variance = residual_sd.powi(2) * correlation.per_one;
    let (line, step) = search(&rows, free, prior, variance)?;
    let value = (1.0 - line.a) / line.log_b.exp() / with(1.0);
    // The derivative of the log of the capacity.
    let towards = Vector3::new(-1.0 / (1.0 - line.a), -1.0, 0.0);
    let line_variance = (towards.transpose() * step.cov * towards)[0];
    let reached = rows.iter().map(|(rate, _)| line.at(*rate).0).fold(0.0, f64::max);
    let beyond = MODEL_SD * (1.0 - reached).max(0.0);
    let variance = line_variance + beyond.powi(2);
    let critical = t_critical(level, correlation.dof);
    let around = |variance: f64| {
        let factor = (critical * variance.sqrt()).exp();
        Interval::Bounded { low: value / factor, high: value * factor }
    };
    let usable = value.is_finite() && value > 0.0 && variance.is_finite();
    Ok(BusyFit {
        a: cap * line.a,
        b: cap * line.log_b.exp(),
        fall: line.fall,
        fall_se: step.cov[(2, 2)].sqrt(),
        turns,
        residual_sd,
        capacity: Capacity {
            value,
            interval: around(variance + residual_sd.powi(2) + between_run.powi(2)),
            line_interval: around(variance),
            bootstrap: Interval::Unbounded {
                reason: "the line of a busy CPU is not resampled".to_owned(),
            },
            block_length: 1,
            level,
            residual_sd: residual_sd * cap,
            between_run_sd: between_run * cap,
            autocorrelation: correlation.rho,
            effective_n: rows.len() as f64 / correlation.per_one,
            identifiable: if usable { Ok(()) } else { Err(Why::CostDoesNotRise) },
        },
        reach,
        cap,
    })
}

/// The mode of the posterior, with this prior of θ and this variance of the log residuals.
fn search(
    rows: &[(f64, f64)],
    mut line: Line,
    prior: Prior,
    variance: f64,
) -> Result<(Line, Step), Unfit> {
    let least_used = rows.iter().map(|(_, used)| *used).fold(f64::INFINITY, f64::min);
    let mut step = Step::of(rows, &line, prior, variance)?;
    for _ in 0..ITERATIONS {
        let by = |j: usize| (STEP * step.towards[j]).clamp(-STEP_MAX[j], STEP_MAX[j]);
        let next = Line {
            a: (line.a + by(0)).clamp(0.0, least_used),
            log_b: line.log_b + by(1),
            fall: (line.fall + by(2)).clamp(0.0, FALL_MAX),
        };
        let moved = (next.a - line.a).abs().max((next.log_b - line.log_b).abs());
        let moved = moved.max((next.fall - line.fall).abs());
        line = next;
        step = Step::of(rows, &line, prior, variance)?;
        if moved < CONVERGED {
            break;
        }
    }
    Ok((line, step))
}

/// The line through the busiest quarter of the intervals with θ as expected.
fn start(rows: &[(f64, f64)], prior: Prior) -> Line {
    let mut by_rate = rows.to_vec();
    by_rate.sort_by(|one, other| other.0.total_cmp(&one.0));
    let busiest = &by_rate[..(rows.len() / 4).max(P)];
    let (rates, uses) = busiest.iter().fold((0.0, 0.0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
    let idle = 1.0 - uses / busiest.len() as f64;
    Line { a: 0.0, log_b: (uses / rates).ln() - prior.mean * idle, fall: prior.mean }
}

/// A Gauss–Newton step from a line, and what is known of the coefficients there.
struct Step {
    towards: Vector3<f64>,
    cov: Matrix3<f64>,
    residual_sd: f64,
    correlation: Autocorrelation,
}

impl Step {
    fn of(rows: &[(f64, f64)], line: &Line, prior: Prior, variance: f64) -> Result<Step, Unfit> {
        let n = rows.len() as f64;
        let mut residuals = Vec::with_capacity(rows.len());
        let mut slopes = Vec::with_capacity(rows.len());
        for (rate, used) in rows {
            let (fitted, requests) = line.at(*rate);
            residuals.push((used / fitted).ln());
            let slope = Vector3::new(1.0, requests, requests * (1.0 - fitted));
            slopes.push(slope / ((1.0 + line.fall * requests) * fitted));
        }
        let typical = median(&mut residuals.iter().map(|r| r.abs()).collect::<Vec<f64>>());
        let bound = HUBER * (1.4826 * typical).max(RESIDUAL_MIN);
        let weights: Vec<f64> = residuals.iter().map(|r| (bound / r.abs()).min(1.0)).collect();
        let squares: f64 = residuals.iter().zip(&weights).map(|(r, w)| w * r * r).sum();
        let residual_sd = (squares / (n - P as f64)).sqrt().max(RESIDUAL_MIN);
        let scores: Vec<f64> = residuals.iter().zip(&weights).map(|(r, w)| w * r).collect();
        let correlation = Autocorrelation::of(&scores, P);
        let precision = 1.0 / variance;
        // The priors of a and θ.
        let of_a = FIXED_SD.powi(-2);
        let mut normal = Matrix3::from_diagonal(&Vector3::new(of_a, 0.0, 0.0));
        let mut right = Vector3::new(-of_a * line.a, 0.0, 0.0);
        let (deviation, by_cost) = prior.deviation(line);
        let of_fall = Vector3::new(0.0, by_cost, 1.0);
        normal += of_fall * of_fall.transpose() * prior.sd.powi(-2);
        right -= of_fall * (prior.sd.powi(-2) * deviation);
        for ((slope, residual), weight) in slopes.iter().zip(&residuals).zip(&weights) {
            normal += slope * slope.transpose() * (weight * precision);
            right += slope * (weight * precision * residual);
        }
        let cov = normal.try_inverse().ok_or(Unfit::Singular)?;
        Ok(Step { towards: cov * right, cov, residual_sd, correlation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    const QUESTION: Question = Question { cap: 1.0, level: 0.95, between_run: 0.03, seed: 1 };

    /// A server of which a request costs 20 us on a busy CPU, up to a part of its 49,900/s.
    fn server(fall: f64, reach: f64, noise: f64) -> (Vec<f64>, Vec<f64>) {
        let line = Line { a: 0.002, log_b: 20e-6_f64.ln(), fall };
        let mut rng = Rng::new(7);
        let rates = (1..=60).map(|i| reach * 49_900.0 * f64::from(i) / 60.0);
        rates.map(|rate| (rate, line.at(rate).0 * (1.0 + noise * rng.normal()))).unzip()
    }

    #[test]
    fn the_capacity_of_a_server_as_expected_is_found_from_a_fifth_of_the_load() {
        for (reach, within) in [(0.2, 0.15), (0.6, 0.08)] {
            let (rate, cost) = server(FALL_UNCOUNTED.0, reach, 0.05);
            let fit = fit_busy(&rate, &cost, None, QUESTION).unwrap();
            let value = fit.capacity.value;
            assert!((value / 49_900.0 - 1.0).abs() < within, "{fit:?}");
            assert!(fit.capacity.interval.holds(49_900.0), "{fit:?}");
            assert!((fit.at(value) - 1.0).abs() < 1e-6, "{fit:?}");
        }
    }

    #[test]
    fn turns_that_a_busy_server_saves_are_taken_off() {
        // Four turns a request on an idle CPU, and none at the cap: as in the model.
        let turns = Turns { idle: 4.0, rise: -4.0 };
        let line = Line { a: 0.002, log_b: 20e-6_f64.ln(), fall: FALL_MEAN };
        let mut rng = Rng::new(7);
        let of_use = |used: f64| {
            let load = (used - line.a) / (line.log_b + line.fall * (1.0 - used)).exp();
            (load / turns.cost(used, 1.0), used)
        };
        let rows = (1..=60).map(|i| of_use(0.006 * f64::from(i)));
        let noisy = rows.map(|(rate, used)| (rate, used * (1.0 + 0.05 * rng.normal())));
        let (rate, cost): (Vec<f64>, Vec<f64>) = noisy.unzip();
        let found = |turns| fit_busy(&rate, &cost, turns, QUESTION).unwrap();
        let counted = found(Some(turns));
        assert!((counted.capacity.value / 49_900.0 - 1.0).abs() < 0.1, "{counted:?}");
        assert!((counted.at(counted.capacity.value) - 1.0).abs() < 1e-6, "{counted:?}");
        assert!(found(None).capacity.value < 0.8 * counted.capacity.value);
    }

    #[test]
    fn the_turns_of_intervals_are_a_line_on_the_use() {
        let intervals = [(0.1, 100.0, 190.0), (0.3, 300.0, 510.0), (0.4, 400.0, 640.0)];
        let turns = Turns::of(&intervals).unwrap();
        assert!((turns.idle - 2.0).abs() < 1e-9 && (turns.rise + 1.0).abs() < 1e-9, "{turns:?}");
        // Beyond the data they bend: half of them are left at the cap.
        assert!((turns.cost(0.4, 0.4) - (1.0 + 1.6 * TURN_COST)).abs() < 1e-9);
        assert!((turns.cost(1.0, 0.4) - (1.0 + 0.5 * TURN_COST)).abs() < 1e-9);
        assert_eq!(Turns::of(&[]), None);
        assert_eq!(Turns::of(&[(0.1, 0.0, 0.0)]), None);
    }

    #[test]
    fn a_request_that_costs_much_gets_cheaper_by_less() {
        let fall = |scale: f64| {
            let (rate, cost) = server(FALL_MEAN, 0.2, 0.05);
            let rate: Vec<f64> = rate.iter().map(|rate| rate / scale).collect();
            let turns = Some(Turns { idle: 1e-9, rise: 0.0 });
            fit_busy(&rate, &cost, turns, QUESTION).unwrap().fall
        };
        assert!(fall(5.0) < fall(1.0) - 0.1, "{} and {}", fall(5.0), fall(1.0));
    }

    #[test]
    fn the_interval_narrows_as_the_data_reach_further() {
        let width = |reach: f64| {
            let (rate, cost) = server(FALL_UNCOUNTED.0, reach, 0.05);
            let fit = fit_busy(&rate, &cost, None, QUESTION).unwrap();
            let (low, high) = fit.capacity.interval.bounds().unwrap();
            (high / low).ln()
        };
        assert!(width(0.2) > width(0.5) && width(0.5) > 1.3 * width(0.8));
    }

    #[test]
    fn precise_data_outweigh_the_prior() {
        let (rate, cost) = server(0.3, 0.8, 0.002);
        let fit = fit_busy(&rate, &cost, None, QUESTION).unwrap();
        assert!((fit.capacity.value / 49_900.0 - 1.0).abs() < 0.03, "{fit:?}");
        assert!((fit.fall - 0.3).abs() < 0.1, "{fit:?}");
    }

    #[test]
    fn too_few_intervals_are_an_error() {
        assert!(fit_busy(&[1.0, 2.0, 0.0], &[0.1, 0.2, 0.1], None, QUESTION).is_err());
        assert!(fit_busy(&[0.0; 20], &[0.1; 20], None, QUESTION).is_err());
    }
}
