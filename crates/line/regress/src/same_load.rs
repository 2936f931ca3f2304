//! Two trials at the same load: the cost of a request after a change, relative to before.
//!
//! What a request costs depends on the rate (a busy server sleeps less), and no two trials have the
//! same rates. So the trials are compared over the rates that both cover, by one fit of the rows of
//! both:
//!
//! ```text
//! ln C = p(ln x) + δ·after + e
//! ```
//!
//! Rates below [`BUSY_PART`] of the highest common rate are left out. At these rates a request
//! costs several times as much, because the server wakes up for it, so that a change of the server
//! is only a small part of the cost.
//!
//! p is a cubic, which follows any smooth cost over the common range. `after` is 1 in the rows of
//! the second trial. `R = exp(δ)` is the ratio of the cost at the same rate. Logarithms are taken
//! because the noise of CPU time grows with CPU time. Weights and errors are computed as in
//! [`mod@crate::costs`]: MM, and the largest of three autocorrelation-robust variances.
//!
//! **Two runs of one server differ** by more than the residuals of either run show. The sd of this
//! difference is estimated from the two trials together: from the means of blocks of their
//! residuals, minus what the autocorrelated residuals explain. A constant difference between runs
//! is in no residual, so the sd is at least [`BETWEEN_RUN_MIN`]. A trial of fewer than
//! [`BLOCKS_MIN`] blocks does not count; if neither trial counts, the sd is
//! [`BETWEEN_RUN_DEFAULT`].
//!
//! **The rate is not all of the load.** With more connections at the same rate, more requests share
//! a wake, and each request is cheaper although the server is the same. Within a trial the wakes
//! are almost a function of the rate, so the cost of a wake cannot be estimated well. The bounds of
//! this cost are known: it is not negative, and wakes are at most [`WAKES_SHARE_MAX`] of a
//! request's cost. So the result has the largest change that the difference in wakes can explain.
//! This change is zero if the wakes are equal, and never points in the opposite direction of the
//! wakes. For example, a server that sleeps more often and costs less has improved.

use serde::Serialize;

use crate::capacity::{Autocorrelation, BETWEEN_RUN_DEFAULT, weighted};
use crate::costs::costs;
use crate::dist::t_critical;
use crate::linear::{Design, least_squares};
use crate::robust::mm;
use crate::{Coefficient, Estimate, Interval, Unfit};

/// Fewest rows of each trial in the common range.
pub const ROWS_MIN: usize = 8;
/// The common range spans at least this factor, unless it has half of the rows of both trials.
pub const SPAN_MIN: f64 = 1.3;
/// Lower rates than this part of the highest in common are left out.
pub const BUSY_PART: f64 = 0.3;
/// Least sd between runs of one server, if it is estimated.
pub const BETWEEN_RUN_MIN: f64 = 0.0175;
/// Fewest blocks for an estimate of the sd between runs: three more than the coefficients of the
/// fit whose residuals they are.
pub const BLOCKS_MIN: usize = 6;
/// A block has at least this many rows, and takes at least this many seconds.
const BLOCK_MIN: f64 = 8.0;
/// Largest share of a request's cost that is the cost of wakes. An event loop that wakes for each
/// request spends a half to two thirds of its time on waking and sleeping.
pub const WAKES_SHARE_MAX: f64 = 0.75;
/// Largest cost of a wake, CPU seconds. It matters for servers that hardly ever sleep.
const WAKE_COST_MAX: f64 = 100e-6;

/// One of the trials. Rows are in time order.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Requests per second.
    pub rate: &'a [f64],
    /// CPU seconds per second.
    pub cost: &'a [f64],
    /// Wakes per second, if known.
    pub wakes: Option<&'a [f64]>,
    /// Length of a row, seconds.
    pub seconds: f64,
}

/// Parameters of the comparison.
#[derive(Clone, Copy, Debug)]
pub struct SameLoadTerms {
    /// Level of the intervals.
    pub level: f64,
    /// Sd of the level between runs, as a share. `None`: it is estimated from the trials.
    pub between_run: Option<f64>,
    /// Seed of the robust fit.
    pub seed: u64,
}

/// The ratio of two trials at the same load.
#[derive(Clone, Debug, Serialize)]
pub struct SameLoad {
    /// The lowest and the highest rate that both trials cover.
    pub rates: (f64, f64),
    /// Rows in that range, before and after.
    pub n: [usize; 2],
    /// Cost of a request in the (geometric) middle of the range, before and after.
    pub cost: [f64; 2],
    /// Cost after over before, for these two runs alone.
    pub ratio: Estimate,
    /// The same, with the sd between runs.
    pub ratio_of_runs: Estimate,
    /// The sd between runs, as a share.
    pub between_run: f64,
    /// Wakes per request in the middle of the range, before and after.
    pub wakes: Option<[f64; 2]>,
    /// The ratio of costs that the difference in wakes explains at most; 1 if they are equal or not
    /// known.
    pub wakes_explain: f64,
}

/// Why two trials are not comparable at the same load.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NotAlike {
    /// They have too few rates in common.
    Ranges {
        /// Lowest and highest rate before.
        before: (f64, f64),
        /// The same after.
        after: (f64, f64),
        /// Rows in the common range, before and after.
        n: [usize; 2],
    },
    /// The rows cannot be fitted.
    Unfit(Unfit),
}

impl From<Unfit> for NotAlike {
    fn from(unfit: Unfit) -> NotAlike {
        NotAlike::Unfit(unfit)
    }
}

/// Compares two trials at the same load.
///
/// # Errors
/// [`NotAlike::Ranges`] if they have too few rates in common; lengths that differ, values not
/// finite, a level out of range, or no row with a rate and a cost.
pub fn same_load(
    before: &Run<'_>,
    after: &Run<'_>,
    terms: &SameLoadTerms,
) -> Result<SameLoad, NotAlike> {
    let runs = [Rows::of(before)?, Rows::of(after)?];
    let (low, high) = common(&runs)?;
    let parts = [runs[0].within(low, high), runs[1].within(low, high)];
    let rates = joined(&parts, |rows| &rows.rate);
    let design = design(&rates, &[parts[0].rate.len(), parts[1].rate.len()])?;
    let logs = |of: fn(&Rows) -> &Vec<f64>| -> Vec<f64> {
        joined(&parts, of).iter().map(|value| value.ln()).collect()
    };
    let none: [&[f64]; 0] = [];
    let fit = costs(&design, &logs(|rows| &rows.cost), &none, terms.level, terms.seed)?;
    let fit = fit.whole.coefficients;
    let between_run = match terms.between_run {
        Some(known) => known,
        None => between_run(&runs, terms.seed),
    };
    let middle = 0.5 * (low.ln() + high.ln());
    let per_request = |intercept: f64, change: f64| {
        let before = (intercept - middle).exp();
        [before, before * change.exp()]
    };
    let cost = per_request(fit[0].value, fit[1].value);
    let wakes = match parts.iter().all(|rows| !rows.wakes.is_empty()) {
        true => {
            let wakes = logs(|rows| &rows.wakes);
            let fit = least_squares(&design, &wakes, None)?.coefficients;
            Some(per_request(fit[0], fit[1]))
        }
        false => None,
    };
    Ok(SameLoad {
        rates: (low, high),
        n: [parts[0].rate.len(), parts[1].rate.len()],
        cost,
        ratio: estimate(&fit[1], 0.0, terms.level),
        ratio_of_runs: estimate(&fit[1], between_run, terms.level),
        between_run,
        wakes_explain: wakes.map_or(1.0, |wakes| explained(wakes, cost)),
        wakes,
    })
}

/// The rows with a rate and a cost.
struct Rows {
    rate: Vec<f64>,
    cost: Vec<f64>,
    /// Empty if they are not known.
    wakes: Vec<f64>,
    seconds: f64,
}

impl Rows {
    fn of(run: &Run<'_>) -> Result<Rows, Unfit> {
        Design::new(&[run.rate, run.cost, run.wakes.unwrap_or(run.rate)])?;
        if run.seconds.is_nan() || run.seconds <= 0.0 {
            return Err(Unfit::NotPositive { what: "the length of an interval" });
        }
        let usable = (0..run.rate.len()).filter(|&row| run.rate[row] > 0.0 && run.cost[row] > 0.0);
        let rows = Rows {
            rate: run.rate.to_vec(),
            cost: run.cost.to_vec(),
            // An interval without a wake counts as one with half a wake.
            wakes: run.wakes.map_or_else(Vec::new, |wakes| {
                wakes.iter().map(|wakes| wakes.max(0.5 / run.seconds)).collect()
            }),
            seconds: run.seconds,
        };
        Ok(rows.chosen(&usable.collect::<Vec<usize>>()))
    }

    fn chosen(&self, rows: &[usize]) -> Rows {
        let of = |values: &[f64]| match values.is_empty() {
            true => Vec::new(),
            false => rows.iter().map(|&row| values[row]).collect(),
        };
        let (rate, cost, wakes) = (of(&self.rate), of(&self.cost), of(&self.wakes));
        Rows { rate, cost, wakes, seconds: self.seconds }
    }

    fn within(&self, low: f64, high: f64) -> Rows {
        let inside = |&row: &usize| (low..=high).contains(&self.rate[row]);
        self.chosen(&(0..self.rate.len()).filter(inside).collect::<Vec<usize>>())
    }

    fn range(&self) -> (f64, f64) {
        let low = self.rate.iter().copied().fold(f64::INFINITY, f64::min);
        (low, self.rate.iter().copied().fold(0.0, f64::max))
    }

    /// The variance of the means of blocks, beyond what residuals with the observed autocorrelation
    /// explain; it may be below zero by chance. `None` if there are too few blocks.
    fn excess(&self, seed: u64) -> Option<f64> {
        let rows = BLOCK_MIN.max((BLOCK_MIN / self.seconds).ceil()) as usize;
        if self.rate.len() / rows < BLOCKS_MIN {
            return None;
        }
        let scaled = scaled_logs(&self.rate);
        let squares: Vec<f64> = scaled.iter().map(|z| z * z).collect();
        let design = Design::new(&[&scaled, &squares]).ok()?;
        let logs: Vec<f64> = self.cost.iter().map(|cost| cost.ln()).collect();
        let fit = mm(&design, &logs, seed).ok()?;
        let p = design.coefficients();
        let scores = weighted(&design.residuals(&logs, &fit.coefficients), Some(&fit.weights));
        let power: f64 = scores.iter().map(|score| score * score).sum();
        let variance = power / (scores.len() - p) as f64;
        let rho = Autocorrelation::of(&scores, p).rho;
        let means: Vec<f64> = scores.chunks_exact(rows).map(crate::dist::mean).collect();
        // The fit takes from the means what its columns vary between blocks.
        let taken = 1.0 + between_blocks(&scaled, rows) + between_blocks(&squares, rows);
        let free = means.len() as f64 - taken;
        let of_means = means.iter().map(|mean| mean * mean).sum::<f64>() / free;
        // The variance of a block's mean under AR(1), as a share of that of a row.
        let pairs = (1..rows).map(|lag| (rows - lag) as f64 * rho.powi(lag as i32)).sum::<f64>();
        let share = (rows as f64 + 2.0 * pairs) / (rows * rows) as f64;
        Some(of_means - variance * share)
    }
}

/// The sd of the level between runs; see the module documentation.
fn between_run(runs: &[Rows; 2], seed: u64) -> f64 {
    let known: Vec<f64> = runs.iter().filter_map(|rows| rows.excess(seed)).collect();
    match known.is_empty() {
        true => BETWEEN_RUN_DEFAULT,
        false => crate::dist::mean(&known).max(BETWEEN_RUN_MIN.powi(2)).sqrt(),
    }
}

/// The share of a column's variance that is between blocks of this many rows.
fn between_blocks(column: &[f64], rows: usize) -> f64 {
    let blocks: Vec<f64> = column.chunks_exact(rows).map(crate::dist::mean).collect();
    let variance = |values: &[f64]| {
        let mean = crate::dist::mean(values);
        values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64
    };
    let whole = variance(&column[..blocks.len() * rows]);
    if whole > 0.0 { variance(&blocks) / whole } else { 0.0 }
}

/// The range of rates that both trials cover, without its quietest part.
fn common(runs: &[Rows; 2]) -> Result<(f64, f64), NotAlike> {
    let [before, after] = [runs[0].range(), runs[1].range()];
    let (low, high) = (before.0.max(after.0), before.1.min(after.1));
    let parts = [runs[0].within(low, high), runs[1].within(low, high)];
    if !enough(&parts, runs) {
        return Err(NotAlike::Ranges { before, after, n: parts.map(|rows| rows.rate.len()) });
    }
    let busier = [0, 1].map(|run| runs[run].within(low.max(BUSY_PART * high), high));
    match enough(&busier, runs) {
        true => Ok((busier[0].range().0.min(busier[1].range().0), high)),
        false => Ok((low, high)),
    }
}

/// Whether these rows of the runs are enough to compare them.
fn enough(parts: &[Rows; 2], runs: &[Rows; 2]) -> bool {
    let (one, other) = (parts[0].range(), parts[1].range());
    let spans = one.1.max(other.1) >= SPAN_MIN * one.0.min(other.0);
    let most = (0..2).all(|run| 2 * parts[run].rate.len() >= runs[run].rate.len());
    parts.iter().all(|rows| rows.rate.len() >= ROWS_MIN) && (spans || most)
}

fn joined(parts: &[Rows; 2], of: impl Fn(&Rows) -> &Vec<f64>) -> Vec<f64> {
    parts.iter().flat_map(of).copied().collect()
}

/// The second trial, and powers of the logarithm of the rate: up to the third if they can be
/// separated.
fn design(rates: &[f64], n: &[usize; 2]) -> Result<Design, Unfit> {
    let after: Vec<f64> = (0..n[0] + n[1]).map(|row| f64::from(row >= n[0])).collect();
    let scaled = scaled_logs(rates);
    let power = |k: i32| -> Vec<f64> { scaled.iter().map(|z| z.powi(k)).collect() };
    let powers = [power(1), power(2), power(3)];
    for highest in (1..=3).rev() {
        let mut columns: Vec<&[f64]> = vec![&after];
        columns.extend(powers[..highest].iter().map(Vec::as_slice));
        let design = Design::new(&columns)?;
        match least_squares(&design, rates, None) {
            Err(Unfit::Singular) => {}
            _ => return Ok(design),
        }
    }
    Design::new(&[&after])
}

/// The logarithms, shifted and scaled to [−1, 1]; zeros if they are all equal.
fn scaled_logs(values: &[f64]) -> Vec<f64> {
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let low = logs.iter().copied().fold(f64::INFINITY, f64::min);
    let high = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let half = if high > low { (high - low) / 2.0 } else { 1.0 };
    logs.iter().map(|log| (log - (low + high) / 2.0) / half).collect()
}

fn estimate(change: &Coefficient, between_run: f64, level: f64) -> Estimate {
    let runs = t_critical(level, 1e6) * between_run * std::f64::consts::SQRT_2;
    let half = ((change.high - change.low) / 2.0).hypot(runs);
    let (low, high) = ((change.value - half).exp(), (change.value + half).exp());
    let interval = match low.is_finite() && high.is_finite() {
        true => Interval::Bounded { low, high },
        false => Interval::not_identifiable(),
    };
    let method = match runs > 0.0 {
        true => {
            let percent = 100.0 * between_run;
            format!("joint fit at the same rate, with an sd of {percent:.1} % between runs")
        }
        false => "joint fit at the same rate, errors robust to autocorrelation".to_owned(),
    };
    Estimate { value: change.value.exp(), interval, level, method }
}

/// The ratio of costs if wakes have their largest share in the trial with more of them, given wakes
/// and cost per request.
fn explained(wakes: [f64; 2], cost: [f64; 2]) -> f64 {
    let fewer = |more: usize, less: usize| {
        let share = (WAKE_COST_MAX * wakes[more] / cost[more]).min(WAKES_SHARE_MAX);
        1.0 - share * (1.0 - wakes[less] / wakes[more])
    };
    if wakes[1] <= wakes[0] { fewer(0, 1) } else { 1.0 / fewer(1, 0) }
}
