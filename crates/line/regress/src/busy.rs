//! The line of a busy CPU, `C = a + b·x + W·(w₀ + w₁·ln(1 + d/d₀))`, for data that end far below
//! the cap.
//!
//! A request costs more CPU time on a CPU that is mostly idle, because the server sleeps and wakes
//! more often, and because caches and the host's processor are colder the longer the server slept.
//! W is the number of wakes per second. d is the idle time of the CPU before each wake, `(cap −
//! C)/W`. W and d were measured in every interval, so that the cost of the wakes can be subtracted.
//!
//! **At the cap nothing is idle**, so d is zero. An event loop does not sleep there, so W is zero
//! too: its wakes per request fall as the CPU gets busy. Threads that block wake for every request,
//! however busy the CPU is. [`WakesByUse`] distinguishes event loops from threads that block, by
//! the straight line through the busier half of the intervals. If this line leaves the question
//! open, the interval covers both cases. If many processes block in turn, each process finds cold
//! caches, because others ran in between. The cost of the cold caches is not known: the capacity
//! assumes half of the cost in the busier intervals, and the interval covers the range from zero to
//! the whole cost.
//!
//! **Turns and busy periods**, if they were counted, are a second estimate that needs no
//! extrapolation ([`crate::marginal`]). The two estimates are averaged, weighted by their
//! variances, and the interval covers their difference. With this estimate the rate need not vary.
//!
//! **The lower end** of the interval is at most the rate at which the cap is reached if a request
//! costs as much at the cap as in the busiest interval, unless turns show what it costs. For some
//! servers a request gets no cheaper as the server gets busier: a proxy that connects to the origin
//! for each miss, or two hops in one process.
//!
//! **Priors.** The cost of a wake in microseconds is about the same for all measured servers and
//! machines ([`WAKE_COST`], [`COLD_COST`]). Data from low load determine this cost poorly, so that
//! the prior matters. Data that reach further outweigh the prior. The fit is the posterior mode by
//! Gauss–Newton on log residuals, because the noise of CPU time is in proportion to it, with
//! Huber's weights. Neighbouring intervals differ from the line in the same direction, because the
//! shape of the line is not exact. So no more than [`INDEPENDENT_MAX`] intervals count as
//! independent.
//!
//! If the wakes are not known, they are assumed: requests come at random instants, so the share `1
//! − C/cap` of the requests finds the CPU idle and wakes it.

use nalgebra::{SMatrix, SVector};
use serde::Serialize;

use crate::Unfit;
use crate::capacity::{Autocorrelation, Capacity, Question};
use crate::dist::{t_critical, t_upper_p, weighted_median};
use crate::interval::Interval;
use crate::linear::{Design, least_squares};
use crate::marginal::Marginal;
use crate::why::Why;

/// What a wake costs on a warm CPU, CPU seconds: the prior's median, and the sd of the logarithm.
/// The values of this constant and the next five come from trials of real servers, see
/// `studies/predict/README.md`.
pub const WAKE_COST: (f64, f64) = (8e-6, 0.7);
/// What it costs in addition for each unit of the logarithm of the idle time.
pub const COLD_COST: (f64, f64) = (6e-6, 0.4);
/// Idle time after which a CPU starts to be cold, seconds.
pub const COLD_AFTER_S: f64 = 20e-6;
/// Sd of the log of the capacity, because the cost does not fall exactly as in the model: at the
/// cap, and for each unit of the cap between the data and the cap.
pub const MODEL_SD: (f64, f64) = (0.10, 0.30);
/// Priors and interval are so many times wider if the wakes are assumed.
const ASSUMED_WIDER: f64 = 2.0;
/// The fixed use has a prior with mean 0 and this sd, as a share of the cap: a server that waits
/// for requests does little else.
const FIXED_SD: f64 = 0.005;
/// Wakes per request that fall to less than this part of their mean at the cap, by their line, are
/// those of an event loop.
const EVENT_LOOP_BELOW: f64 = 0.6;
/// Intervals with a rate below this part of the highest are left out: their cost per request is
/// mostly fixed cost and noise.
const RATE_MIN: f64 = 0.05;
/// What a request costs without wakes has a weak prior: the median as a part of the cheapest
/// interval's cost per request, and the sd of the logarithm. Without it, wakes that explain all of
/// the cost leave none for the request.
const REQUEST_COST: (f64, f64) = (0.5, 1.0);
/// The cheapest row has at least this part of the typical number of intervals.
const CHEAPEST_OF: f64 = 0.1;
/// Least sd of the residuals: the line is not more exact than that.
const RESIDUAL_MIN: f64 = 0.05;
/// With a larger sd, the intervals do not follow the line.
pub const RESIDUAL_MAX: f64 = 0.3;
/// Most intervals that count as independent.
pub const INDEPENDENT_MAX: f64 = 30.0;
/// Residuals beyond this multiple of their sd get a lower weight (Huber).
const HUBER: f64 = 1.5;
const ITERATIONS: usize = 200;
/// Part of each Gauss–Newton step that is taken. The weights change with each.
const STEP: f64 = 0.7;
/// Largest change of each coefficient in one step.
const STEP_MAX: [f64; P] = [0.3, 0.3, 0.3, 0.01];
const CONVERGED: f64 = 1e-6;
/// Coefficients: ln b, ln w₀, ln w₁, and a as a share of the cap.
const P: usize = 4;

type Vector = SVector<f64, P>;
type Matrix = SMatrix<f64, P, P>;

/// Wakes per request as the CPU gets busy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WakesByUse {
    /// Coefficients of the parabola on the use as a share of the cap, which the data follow.
    parabola: [f64; 3],
    /// Highest use in the data.
    reach: f64,
    /// At the cap.
    pub at_cap: f64,
    /// What they are at the cap if the server is of the other kind (event loop or blocking), and
    /// how probable that is.
    other: (f64, f64),
}

impl WakesByUse {
    fn of(rows: &[Row]) -> Result<WakesByUse, Unfit> {
        let used: Vec<f64> = rows.iter().map(|row| row.used).collect();
        let squares: Vec<f64> = used.iter().map(|used| used * used).collect();
        let each: Vec<f64> = rows.iter().map(|row| row.wakes).collect();
        let requests: Vec<f64> = rows.iter().map(|row| row.rate * row.n).collect();
        let middle = middle(rows, |row| row.used);
        let busier = |i: usize| if used[i] >= middle { requests[i] } else { 0.0 };
        let weights: Vec<f64> = (0..rows.len()).map(busier).collect();
        let mean = each.iter().zip(&requests).map(|(each, n)| each * n).sum::<f64>()
            / requests.iter().sum::<f64>();
        let line = least_squares(&Design::new(&[&used])?, &each, Some(&weights))?;
        let [fixed, slope] = [line.coefficients[0], line.coefficients[1]];
        let at_cap = (fixed + slope).clamp(0.0, mean);
        let variance = line.cov[0][0] + 2.0 * line.cov[0][1] + line.cov[1][1];
        // Neighbouring intervals are not independent.
        let se = (variance * (rows.len() as f64 / INDEPENDENT_MAX).max(1.0)).sqrt();
        let from_threshold = fixed + slope - EVENT_LOOP_BELOW * mean;
        let other = match se > 0.0 {
            true => t_upper_p(from_threshold.abs() / se, INDEPENDENT_MAX),
            false => 0.0,
        };
        let (at_cap, otherwise) =
            if from_threshold < 0.0 { (0.0, EVENT_LOOP_BELOW * mean) } else { (at_cap, 0.0) };
        let columns = Design::new(&[&used, &squares])?;
        let parabola = least_squares(&columns, &each, Some(&requests))?.coefficients;
        Ok(WakesByUse {
            parabola: [parabola[0], parabola[1], parabola[2]],
            reach: used.iter().copied().fold(0.0, f64::max),
            at_cap,
            other: (otherwise, other),
        })
    }

    /// Wakes per request at a use: by the parabola within the data, and from there on in a straight
    /// line to what they are at the cap.
    fn at(&self, used: f64) -> f64 {
        let [fixed, slope, bend] = self.parabola;
        let seen = used.clamp(0.0, self.reach);
        let within = (fixed + slope * seen + bend * seen * seen).max(0.0);
        if used <= self.reach {
            return within;
        }
        within + self.beyond(used) * (self.at_cap - within)
    }

    /// Which part of the way from the data to the cap a use is: 0 within them, 1 at the cap.
    fn beyond(&self, used: f64) -> f64 {
        let part = (used - self.reach) / (1.0 - self.reach);
        if used > self.reach { part.clamp(0.0, 1.0) } else { 0.0 }
    }
}

/// The line of a busy CPU.
#[derive(Clone, Debug, Serialize)]
pub struct BusyFit {
    /// Fixed use, in units of the cost.
    pub a: f64,
    /// Cost of a request without wakes.
    pub b: f64,
    /// The same at the cap, where turns and busy periods correct it.
    pub b_at_cap: f64,
    /// What turns and busy periods say, if they were counted.
    pub marginal: Option<Marginal>,
    /// The rate at the cap by the line alone, without what turns and busy periods say.
    pub alone: f64,
    /// Cost of a wake on a warm CPU.
    pub wake: f64,
    /// What a wake costs in addition for each unit of `ln(1 + d/d₀)`.
    pub cold: f64,
    /// Wakes per request.
    pub wakes: WakesByUse,
    /// `ln(1 + d/d₀)` of a wake at the cap: 0, unless processes take turns.
    pub cold_at_cap: f64,
    /// Whether the wakes were assumed.
    pub assumed: bool,
    /// Sd of the log residuals.
    pub residual_sd: f64,
    /// The rate at the cap, without a bootstrap.
    pub capacity: Capacity,
    cap: f64,
}

impl BusyFit {
    /// The use at a rate, in units of the cost: the solution of `use = of_use(use)`. Both the wakes
    /// per request and their cost mostly fall as the use rises, so there is one.
    #[must_use]
    pub fn at(&self, rate: f64) -> f64 {
        let of_use = |used: f64| {
            let share = used / self.cap;
            let b = self.b + self.wakes.beyond(share) * (self.b_at_cap - self.b);
            let wakes = rate * self.wakes.at(share);
            let cold = coldness((self.cap - used).max(0.0), wakes).max(self.cold_at_cap);
            self.a + b * rate + wakes * (self.wake + self.cold * cold)
        };
        let (mut low, mut high) = (0.0, of_use(0.0).max(of_use(self.cap)).max(self.cap));
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            *(if of_use(middle) > middle { &mut low } else { &mut high }) = middle;
        }
        0.5 * (low + high)
    }

    /// The same with the capacity at a lower use. Its interval keeps its relative width.
    fn up_to(mut self, used: f64) -> BusyFit {
        let (mut low, mut high) = (0.0, self.capacity.value);
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            *(if self.at(middle) < used { &mut low } else { &mut high }) = middle;
        }
        let part = low / self.capacity.value;
        self.alone *= part;
        self.capacity.value *= part;
        for interval in [&mut self.capacity.interval, &mut self.capacity.line_interval] {
            if let Interval::Bounded { low, high } = interval {
                (*low, *high) = (part * *low, part * *high);
            }
        }
        self
    }
}

/// `ln(1 + d/d₀)` if a CPU is idle for this part of the time and woken so often per second.
fn coldness(idle: f64, wakes: f64) -> f64 {
    if wakes > 0.0 { (idle / wakes / COLD_AFTER_S).ln_1p() } else { 0.0 }
}

/// An interval, or the mean of several with nearly the same rate.
#[derive(Clone, Copy)]
struct Row {
    /// Number of intervals.
    n: f64,
    /// Sum of squares of the intervals' costs about the mean, as parts of it.
    within: f64,
    rate: f64,
    /// Use as a share of the cap.
    used: f64,
    /// Wakes per request.
    wakes: f64,
    cold: f64,
}

/// The prior of the coefficients, in units of the cap.
struct Prior {
    means: Vector,
    precisions: Vector,
}

/// What is known of a resource beside its use.
#[derive(Clone, Copy, Default)]
pub(crate) struct Known<'k> {
    /// Wakes per second in each interval.
    pub(crate) wakes: Option<&'k [f64]>,
    /// Intervals that do not count, such as one in which something else used the resource.
    pub(crate) set_aside: &'k [usize],
    /// Below all of the resource if the user wants the rate at a lower use.
    pub(crate) asked_at: Option<f64>,
    pub(crate) processes_alternate: bool,
    pub(crate) marginal: Option<Marginal>,
    /// Whether the rate did not vary enough for a line. Then only the marginal cost counts.
    pub(crate) is_constant: bool,
    /// For rows that are means of several intervals: the number of intervals, and the sum of
    /// squares of their costs about the mean, as parts of it.
    pub(crate) means_of: Option<&'k [(f64, f64)]>,
}

pub(crate) fn fit_busy(
    rate: &[f64],
    cost: &[f64],
    known: Known<'_>,
    question: Question,
) -> Result<BusyFit, Unfit> {
    let wakes = known.wakes;
    let Question { cap, level, between_run, .. } = question;
    let highest = rate.iter().copied().fold(0.0, f64::max);
    let row = |i: usize| {
        let (rate, used) = (rate[i], cost[i] / cap);
        let idle = (1.0 - used).max(0.0);
        let wakes = wakes.map_or(rate * idle, |wakes| wakes[i]);
        let (n, within) = known.means_of.map_or((1.0, 0.0), |means_of| means_of[i]);
        Row { n, within, rate, used, wakes: wakes / rate, cold: coldness(cap * idle, wakes) }
    };
    let usable =
        |&i: &usize| rate[i] > RATE_MIN * highest && cost[i] > 0.0 && !known.set_aside.contains(&i);
    let rows: Vec<Row> = (0..rate.len()).filter(usable).map(row).collect();
    if rows.len() <= P {
        return Err(Unfit::TooFew { needed: P + 1, found: rows.len() });
    }
    let wider = if wakes.is_none() { ASSUMED_WIDER } else { 1.0 };
    // The mean of few intervals is low by chance.
    let many = CHEAPEST_OF * intervals(&rows) / rows.len() as f64;
    let of_many = rows.iter().filter(|row| row.n >= many);
    let cheapest = of_many.map(|row| row.used / row.rate).fold(f64::INFINITY, f64::min);
    let in_cap = |median: f64| (median / cap).ln();
    let precision = |sd: f64| (wider * sd).powi(-2);
    let (request, wake, cold) = ((REQUEST_COST.0 * cheapest).ln(), WAKE_COST, COLD_COST);
    let prior = Prior {
        means: Vector::new(request, in_cap(wake.0), in_cap(cold.0), 0.0),
        precisions: Vector::new(
            REQUEST_COST.1.powi(-2),
            precision(wake.1),
            precision(cold.1),
            FIXED_SD.powi(-2),
        ),
    };
    let of_wakes = WakesByUse::of(&rows)?;
    let (line, step) = search(&rows, &prior)?;
    let Step { residual_sd, cov, .. } = step;
    if residual_sd > RESIDUAL_MAX {
        return Err(Unfit::NotFollowed { residual_sd });
    }
    let independent = intervals(&rows).min(INDEPENDENT_MAX);
    let [b, wake, cold] = [line.at(0), line.at(1), line.at(2)];
    let cold_at_cap = if known.processes_alternate { 0.5 * cold_when_busy(&rows) } else { 0.0 };
    // What a request costs at the cap, and the parts of it that are for wakes.
    let (warm, of_cold) = (of_wakes.at_cap * wake, of_wakes.at_cap * cold * cold_at_cap);
    let at_cap = b + warm + of_cold;
    let free = 1.0 - line.0[P - 1];
    // The derivative of the log of the capacity.
    let towards = Vector::new(-b / at_cap, -warm / at_cap, -of_cold / at_cap, -1.0 / free);
    let of_line = (towards.transpose() * cov * towards)[0];
    let reached = rows.iter().map(|row| row.used).fold(0.0, f64::max);
    let of_model = wider * MODEL_SD.0.hypot(MODEL_SD.1 * (1.0 - reached).max(0.0));
    let (other, probability) = of_wakes.other;
    let of_kind = probability * ((b + other * wake) / (b + warm)).ln().powi(2);
    let of_model = of_model.powi(2) + (of_cold / at_cap).powi(2) + of_kind;
    let marginal = known.marginal;
    // The part of the marginal cost, and by how much it changes the log of the cost.
    let (part, change) = marginal.map_or((0.0, 0.0), |marginal| {
        let of_both = of_line + of_model + marginal.sd.powi(2);
        let part = if known.is_constant { 1.0 } else { (of_line + of_model) / of_both };
        (part, (marginal.at_cap / cap / at_cap).ln())
    });
    let of_marginal = marginal.map_or(0.0, |marginal| marginal.sd.powi(2));
    let alone = free / at_cap;
    let at_cap = at_cap * (part * change).exp();
    let value = free / at_cap;
    // The variance of a mean with weights by variances; the difference of both is an error, too.
    let of_line = (1.0 - part).powi(2) * of_line;
    let of_model = (1.0 - part).powi(2) * of_model
        + part.powi(2) * of_marginal
        + part * (1.0 - part) * change.powi(2);
    let stays = match marginal {
        Some(_) => f64::INFINITY,
        None => rate_if_cost_stays(&rows, &line),
    };
    let residuals: Vec<f64> = rows.iter().map(|row| (row.used / line.use_in(row).0).ln()).collect();
    let correlation = Autocorrelation::of(&residuals, P);
    // Only the line is known better with more intervals.
    let (critical, normal) = (t_critical(level, independent - P as f64), t_critical(level, 1e6));
    let around = |of_intervals: f64, of_runs: f64| {
        let factor = (critical * of_intervals.sqrt()).hypot(normal * of_runs.sqrt()).exp();
        Interval::Bounded { low: (value / factor).min(stays), high: value * factor }
    };
    let usable = value.is_finite() && value > 0.0 && of_line.is_finite();
    let fit = BusyFit {
        a: cap * line.0[P - 1],
        b: cap * b,
        b_at_cap: cap * (at_cap - warm - of_cold),
        marginal,
        alone,
        wake: cap * wake,
        cold: cap * cold,
        wakes: of_wakes,
        cold_at_cap,
        assumed: wakes.is_none(),
        residual_sd,
        capacity: Capacity {
            value,
            interval: around(of_line + residual_sd.powi(2), of_model + between_run.powi(2)),
            line_interval: around(of_line, of_model),
            bootstrap: Interval::Unbounded {
                reason: "the line of a busy CPU is not resampled".to_owned(),
            },
            block_length: 1,
            level,
            residual_sd: residual_sd * cap,
            between_run_sd: between_run * cap,
            autocorrelation: correlation.rho,
            effective_n: independent,
            identifiable: if usable { Ok(()) } else { Err(Why::CostDoesNotRise) },
        },
        cap,
    };
    Ok(match known.asked_at.filter(|used| usable && *used < cap) {
        Some(used) => fit.up_to(used),
        None => fit,
    })
}

fn intervals(rows: &[Row]) -> f64 {
    rows.iter().map(|row| row.n).sum()
}

/// The rate at the cap if a request costs there what it costs in the busiest interval.
fn rate_if_cost_stays(rows: &[Row], line: &Line) -> f64 {
    let busiest = rows.iter().max_by(|a, b| a.used.total_cmp(&b.used)).expect("there are rows");
    busiest.rate / line.use_in(busiest).0
}

/// The typical coldness in the busier half of the intervals.
fn cold_when_busy(rows: &[Row]) -> f64 {
    let half = middle(rows, |row| row.used);
    let busier: Vec<Row> = rows.iter().filter(|row| row.used >= half).copied().collect();
    middle(&busier, |row| row.cold)
}

/// The median over the intervals.
fn middle(rows: &[Row], of: impl Fn(&Row) -> f64) -> f64 {
    weighted_median(rows.iter().map(|row| (of(row), row.n)).collect())
}

/// The coefficients, with the use as a share of the cap, and the exponentials of the logarithms.
#[derive(Clone, Copy)]
struct Line(Vector, [f64; P - 1]);

impl Line {
    fn new(coefficients: Vector) -> Line {
        Line(coefficients, [0, 1, 2].map(|j: usize| coefficients[j].exp()))
    }

    fn at(&self, j: usize) -> f64 {
        self.1[j]
    }

    /// The use in an interval by the line, and its derivatives by the coefficients.
    fn use_in(&self, row: &Row) -> (f64, Vector) {
        let wakes = row.rate * row.wakes;
        let parts = Vector::new(
            row.rate * self.at(0),
            wakes * self.at(1),
            wakes * row.cold * self.at(2),
            1.0,
        );
        (parts[0] + parts[1] + parts[2] + self.0[P - 1], parts)
    }
}

/// The mode of the posterior. The variance of the residuals is that of each step.
fn search(rows: &[Row], prior: &Prior) -> Result<(Line, Step), Unfit> {
    let least_used = rows.iter().map(|row| row.used).fold(f64::INFINITY, f64::min);
    let mut line = Line::new(prior.means);
    let mut step = Step::of(rows, &line, prior)?;
    for _ in 0..ITERATIONS {
        let by = |j: usize| (STEP * step.towards[j]).clamp(-STEP_MAX[j], STEP_MAX[j]);
        let mut next = line.0 + Vector::from_fn(|j, _| by(j));
        next[P - 1] = next[P - 1].clamp(0.0, least_used);
        let moved = (next - line.0).amax();
        line = Line::new(next);
        step = Step::of(rows, &line, prior)?;
        if moved < CONVERGED {
            return Ok((line, step));
        }
    }
    Err(Unfit::NotConverged)
}

/// A Gauss–Newton step from a line, and what is known of the coefficients there.
struct Step {
    towards: Vector,
    cov: Matrix,
    residual_sd: f64,
}

impl Step {
    fn of(rows: &[Row], line: &Line, prior: &Prior) -> Result<Step, Unfit> {
        let n = intervals(rows);
        let mut residuals = Vec::with_capacity(rows.len());
        let mut slopes = Vec::with_capacity(rows.len());
        for row in rows {
            let (fitted, parts) = line.use_in(row);
            residuals.push((row.used / fitted).ln());
            slopes.push(parts / fitted);
        }
        let absolute = residuals.iter().map(|r| r.abs());
        let typical = weighted_median(absolute.zip(rows.iter().map(|row| row.n)).collect());
        let bound = HUBER * (1.4826 * typical).max(RESIDUAL_MIN);
        let weight = |(r, row): (&f64, &Row)| (bound / r.abs()).min(1.0) * row.n;
        let weights: Vec<f64> = residuals.iter().zip(rows).map(weight).collect();
        let squares: f64 = residuals.iter().zip(&weights).map(|(r, w)| w * r * r).sum();
        let squares = squares + rows.iter().map(|row| row.within).sum::<f64>();
        let residual_sd = (squares / (n - P as f64)).sqrt();
        let each_counts = (INDEPENDENT_MAX / n).min(1.0);
        let variance = residual_sd.max(RESIDUAL_MIN).powi(2) / each_counts;
        let mut normal = Matrix::from_diagonal(&prior.precisions);
        let mut right = prior.precisions.component_mul(&(prior.means - line.0));
        for ((slope, residual), weight) in slopes.iter().zip(&residuals).zip(&weights) {
            normal += slope * slope.transpose() * (weight / variance);
            right += slope * (weight / variance * residual);
        }
        let cov = normal.try_inverse().ok_or(Unfit::Singular)?;
        Ok(Step { towards: cov * right, cov, residual_sd })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    const QUESTION: Question = Question { cap: 1.0, level: 0.95, between_run: 0.03, seed: 1 };

    /// A server of which a request costs 20 us without wakes.
    struct Server {
        /// Wakes per request on an idle CPU, and the power of the idle part with which they fall.
        wakes: (f64, f64),
        wake: f64,
        cold: f64,
    }

    fn of(wakes: &[f64]) -> Known<'_> {
        Known { wakes: Some(wakes), ..Known::default() }
    }

    const LOOP: Server = Server { wakes: (1.5, 1.5), wake: 7e-6, cold: 7e-6 };
    const THREADS: Server = Server { wakes: (1.0, 0.0), ..LOOP };

    /// Rates, uses and wakes per second in sixty intervals.
    type Intervals = [Vec<f64>; 3];

    impl Server {
        fn capacity(&self) -> f64 {
            0.998 / (20e-6 + if self.wakes.1 > 0.0 { 0.0 } else { self.wakes.0 * self.wake })
        }

        fn intervals(&self, reach: f64, noise: f64) -> Intervals {
            let mut rng = Rng::new(7);
            let mut all = Intervals::default();
            for used in (1..=60).map(|i| reach * f64::from(i) / 60.0) {
                let each = self.wakes.0 * (1.0 - used).powf(self.wakes.1);
                let cost = |rate: f64| {
                    20e-6 + each * (self.wake + self.cold * coldness(1.0 - used, rate * each))
                };
                let rate = (0..200).fold(1e3, |rate, _| (used - 0.002) / cost(rate));
                if rate > 0.0 {
                    let noisy = used * (1.0 + noise * rng.normal());
                    all.iter_mut().zip([rate, noisy, rate * each]).for_each(|(c, v)| c.push(v));
                }
            }
            all
        }

        fn fit(&self, reach: f64, noise: f64) -> BusyFit {
            let [rate, cost, wakes] = self.intervals(reach, noise);
            fit_busy(&rate, &cost, of(&wakes), QUESTION).unwrap()
        }
    }

    #[test]
    fn the_capacity_is_found_from_a_third_of_the_use() {
        for server in [LOOP, THREADS] {
            for (reach, within) in [(0.35, 0.15), (0.7, 0.08)] {
                let fit = server.fit(reach, 0.04);
                let (value, true_one) = (fit.capacity.value, server.capacity());
                assert!((value / true_one - 1.0).abs() < within, "{true_one}: {fit:?}");
                assert!(fit.capacity.interval.holds(true_one), "{fit:?}");
                assert!((fit.at(value) - 1.0).abs() < 1e-3, "{} {fit:?}", fit.at(value));
            }
        }
    }

    #[test]
    fn an_event_loop_does_not_wake_at_the_cap_and_blocking_threads_do() {
        assert_eq!(LOOP.fit(0.5, 0.04).wakes.at_cap, 0.0);
        assert!((THREADS.fit(0.5, 0.04).wakes.at_cap - 1.0).abs() < 0.01);
    }

    #[test]
    fn processes_that_take_turns_stay_cold() {
        let [rate, cost, wakes] = THREADS.intervals(0.6, 0.04);
        let fit = |processes_alternate| {
            fit_busy(&rate, &cost, Known { processes_alternate, ..of(&wakes) }, QUESTION).unwrap()
        };
        let (threads, processes) = (fit(false).capacity, fit(true).capacity);
        assert!(processes.value < 0.95 * threads.value, "{processes:?}");
        let busiest = rate.last().unwrap() / cost.last().unwrap();
        assert!(processes.value > busiest, "{processes:?} {busiest}");
        assert!(processes.interval.holds(threads.value), "{processes:?}");
        let at_cap = fit(true).at(processes.value);
        assert!((at_cap - 1.0).abs() < 0.02, "{at_cap}");
    }

    #[test]
    fn turns_and_the_line_are_averaged_and_the_interval_covers_both() {
        let [rate, cost, wakes] = LOOP.intervals(0.5, 0.04);
        let fit = |at_cap: f64| {
            let marginal = Some(Marginal { at_cap, sd: 0.15, by_chance: 0.0, held: false });
            fit_busy(&rate, &cost, Known { marginal, ..of(&wakes) }, QUESTION).unwrap()
        };
        let width = |fit: &BusyFit| {
            let (low, high) = fit.capacity.interval.bounds().unwrap();
            (high / low).ln()
        };
        let (same, costlier) = (fit(20e-6), fit(30e-6));
        assert!((same.capacity.value / LOOP.capacity() - 1.0).abs() < 0.1, "{same:?}");
        assert!(width(&same) < 0.8 * width(&LOOP.fit(0.5, 0.04)), "{same:?}");
        assert!(width(&costlier) > 1.1 * width(&same));
        let value = costlier.capacity.value;
        assert!(value < 0.95 * same.capacity.value && value > 1.0 / 30e-6, "{costlier:?}");
        assert!((costlier.at(value) - 1.0).abs() < 1e-3, "{}", costlier.at(value));
    }

    #[test]
    fn the_line_follows_the_intervals() {
        let [rate, cost, wakes] = LOOP.intervals(0.6, 0.0);
        let fit = fit_busy(&rate, &cost, of(&wakes), QUESTION).unwrap();
        for (rate, cost) in rate.iter().zip(&cost).skip(5) {
            assert!((fit.at(*rate) / cost - 1.0).abs() < 0.05, "{rate} {cost} {}", fit.at(*rate));
        }
    }

    #[test]
    fn unknown_wakes_are_assumed_and_the_interval_is_wider() {
        let [rate, cost, _] = LOOP.intervals(0.4, 0.04);
        let fit = fit_busy(&rate, &cost, Known::default(), QUESTION).unwrap();
        assert!(fit.assumed && fit.capacity.interval.holds(LOOP.capacity()), "{fit:?}");
        let width = |fit: &BusyFit| {
            let (low, high) = fit.capacity.interval.bounds().unwrap();
            (high / low).ln()
        };
        assert!(width(&fit) > 1.1 * width(&LOOP.fit(0.4, 0.04)));
    }

    #[test]
    fn the_interval_narrows_as_the_data_reach_further() {
        let width = |reach: f64| {
            let (low, high) = LOOP.fit(reach, 0.05).capacity.interval.bounds().unwrap();
            (high / low).ln()
        };
        assert!(width(0.3) > 1.2 * width(0.5) && width(0.5) > 1.2 * width(0.8));
    }

    /// With wakes that cost almost nothing, a request had no cost, and the capacity was 1e31.
    #[test]
    fn wakes_that_are_cheaper_than_expected_leave_a_request_its_cost() {
        let cheap = Server { wakes: (8.0, 1.5), wake: 0.5e-6, cold: 0.1e-6 };
        for reach in [0.1, 0.4, 0.8] {
            let fit = cheap.fit(reach, 0.04);
            assert!(fit.b > 2e-6 && fit.b < 30e-6, "{fit:?}");
            assert!(fit.capacity.interval.holds(cheap.capacity()), "{fit:?}");
        }
    }

    #[test]
    fn intervals_that_do_not_follow_the_line_are_an_error() {
        let [rate, mut cost, wakes] = LOOP.intervals(0.6, 0.04);
        cost.iter_mut().step_by(2).for_each(|cost| *cost /= 4.0);
        let fit = fit_busy(&rate, &cost, of(&wakes), QUESTION);
        assert!(matches!(fit, Err(Unfit::NotFollowed { .. })), "{fit:?}");
    }

    #[test]
    fn several_cpus_are_filled_like_one() {
        let [rate, cost, wakes] = LOOP.intervals(0.5, 0.04);
        let four = |column: &[f64]| column.iter().map(|value| 4.0 * value).collect::<Vec<f64>>();
        let (rate, cost, wakes) = (four(&rate), four(&cost), four(&wakes));
        let question = Question { cap: 4.0, ..QUESTION };
        let fit = fit_busy(&rate, &cost, of(&wakes), question).unwrap();
        assert!((fit.capacity.value / LOOP.capacity() / 4.0 - 1.0).abs() < 0.12, "{fit:?}");
        assert!((fit.at(fit.capacity.value) / 4.0 - 1.0).abs() < 1e-3);
    }

    /// The rate at 60 % of a CPU was that of a CPU with no idle time, so it was too high.
    #[test]
    fn at_a_lower_use_the_cpu_is_not_yet_warm() {
        let [rate, cost, wakes] = LOOP.intervals(0.4, 0.02);
        let known = Known { asked_at: Some(0.6), ..of(&wakes) };
        let asked = fit_busy(&rate, &cost, known, QUESTION).unwrap().capacity;
        let [rates, uses, _] = LOOP.intervals(0.6, 0.0);
        let (true_one, used) = (rates[rates.len() - 1], uses[uses.len() - 1]);
        assert!((used - 0.6).abs() < 1e-9);
        assert!((asked.value / true_one - 1.0).abs() < 0.08, "{true_one} {asked:?}");
        assert!(asked.interval.holds(true_one), "{asked:?}");
    }

    #[test]
    fn the_interval_is_wider_if_the_wakes_do_not_say_whether_it_is_an_event_loop() {
        let [rate, cost, wakes] = Server { wakes: (1.0, 0.35), ..LOOP }.intervals(0.5, 0.04);
        let mut rng = Rng::new(3);
        let noisy: Vec<f64> = wakes.iter().map(|w| w * (1.0 + 0.15 * rng.normal())).collect();
        let fit = fit_busy(&rate, &cost, of(&noisy), QUESTION).unwrap();
        assert!(fit.wakes.other.1 > 0.05, "{fit:?}");
        assert!(LOOP.fit(0.5, 0.04).wakes.other.1 < 1e-3);
        let both = [20e-6, 20e-6 + 0.78 * LOOP.wake].map(|cost| 0.998 / cost);
        assert!(both.iter().all(|one| fit.capacity.interval.holds(*one)), "{fit:?}");
    }

    #[test]
    fn data_that_reach_far_outweigh_the_prior() {
        let server = Server { wake: 3e-6, cold: 15e-6, ..LOOP };
        let fit = server.fit(0.8, 0.01);
        assert!((fit.capacity.value / server.capacity() - 1.0).abs() < 0.05, "{fit:?}");
        assert!(fit.cold > 10e-6, "{fit:?}");
    }

    /// A bin with one interval at each of many rates was "the busier half", and the cheapest one
    /// of them moved the prior.
    #[test]
    fn means_of_few_intervals_do_not_outweigh_those_of_many() {
        let [mut rate, mut cost, mut wakes] = LOOP.intervals(0.7, 0.0);
        let mut means_of = vec![(200.0, 0.0); rate.len()];
        let undisturbed = {
            let known = Known { means_of: Some(&means_of), ..of(&wakes) };
            fit_busy(&rate, &cost, known, QUESTION).unwrap()
        };
        let few = rate.len() - 10..rate.len();
        for row in few.clone().cycle().take(60) {
            rate.push(rate[row]);
            cost.push(0.3 * cost[row]);
            wakes.push(wakes[row]);
            means_of.push((1.0, 0.0));
        }
        let known = Known { means_of: Some(&means_of), ..of(&wakes) };
        let fit = fit_busy(&rate, &cost, known, QUESTION).unwrap();
        let change = fit.capacity.value / undisturbed.capacity.value - 1.0;
        assert!(change.abs() < 0.02, "{change} {fit:?}");
    }

    #[test]
    fn too_few_intervals_are_an_error() {
        let fit = |rate: &[f64], cost: &[f64]| fit_busy(rate, cost, of(rate), QUESTION);
        assert!(fit(&[1.0, 2.0, 0.0], &[0.1, 0.2, 0.1]).is_err());
        assert!(fit(&[0.0; 20], &[0.1; 20]).is_err());
    }
}
