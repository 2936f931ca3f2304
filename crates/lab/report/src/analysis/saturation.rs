//! The measured saturation, and the capacity that every verb shows.
//!
//! If the server was saturated in several intervals, the capacity is the highest rate that the
//! server kept up, because a measured capacity is better than the capacity of a line. If an
//! experiment declares its saturated intervals, these intervals check the prediction of the line
//! instead, unless the line has no prediction.

use trial::{Interval, Trial};

use super::figures::{CapacityFigure, IntervalRow, MODEL_MEASURED, Saturation, Standing};
use super::fit::Fitted;
use super::{PHASE_SATURATION, causes, median};

/// Fewest saturated intervals that are a measured capacity.
pub(super) const SATURATED_MIN: usize = 3;
/// Saturated intervals with at least this part of the highest of their rates are the capacity. With
/// few connections a server that never sleeps still has less to do at once than with many.
const NEAR_HIGHEST: f64 = 0.85;
/// A resource that is exhausted at less than this part of the highest other rate is exhausted by
/// something else than requests.
const BELOW_HIGHEST: f64 = 0.9;

/// The capacity of a resource as every verb shows it, and the measured saturation.
pub(super) fn reported(
    fit: &Fitted,
    trial: &Trial,
    level: f64,
) -> (CapacityFigure, Option<Saturation>) {
    let intervals = trial.intervals();
    let mut line = fit.headline_capacity(level);
    if !line.identifiable && fit.series.kind.is_cpu_time() {
        let cause = causes::missing(trial, fit).map(|cause| cause.to_string());
        if cause.is_some() {
            (line.reason, line.plain) = (cause, None);
        }
    }
    let rows = super::rows(intervals, fit);
    let found = saturation(&rows, intervals, &line);
    let figure = match &found {
        Some(found) if is_capacity(found, &line) => measured(line, found),
        _ => line,
    };
    (figure, found)
}

fn is_capacity(found: &Saturation, line: &CapacityFigure) -> bool {
    let checks_the_line = found.declared && line.identifiable;
    let by_requests = found.rate >= BELOW_HIGHEST * line.highest_rate;
    !checks_the_line && by_requests && found.n >= SATURATED_MIN
}

/// The measured capacity, for a future saturated interval of another run.
fn measured(line: CapacityFigure, found: &Saturation) -> CapacityFigure {
    let (n, level) = (found.n as f64, line.level);
    let tail = 0.5 + 0.5 * level;
    let of_intervals =
        regress::student_t_quantile(tail, n - 1.0) * found.log_sd * (1.0 + 1.0 / n).sqrt();
    let of_runs = regress::student_t_quantile(tail, 1e6) * regress::capacity::BETWEEN_RUN_DEFAULT;
    let around = |own: f64| {
        let factor = own.exp();
        (Some(found.rate / factor), Some(found.rate * factor))
    };
    let (low, high) = around(of_intervals.hypot(of_runs));
    let (line_low, line_high) = around(of_intervals / (n + 1.0).sqrt());
    CapacityFigure {
        value: Some(found.rate),
        low,
        high,
        line_low,
        line_high,
        identifiable: true,
        reason: None,
        plain: None,
        model: MODEL_MEASURED,
        model_why: format!("the resource was exhausted in {} intervals", found.n),
        beyond_highest: None,
        trusted: true,
        distrust_statistic: None,
        distrust_why: None,
        bootstrap_low: None,
        bootstrap_high: None,
        n: found.n,
        ..line
    }
}

fn saturation(
    rows: &[IntervalRow],
    intervals: &[Interval],
    capacity: &CapacityFigure,
) -> Option<Saturation> {
    let named = |i: &Interval| i.phase.as_deref() == Some(PHASE_SATURATION);
    let is_declared = intervals.iter().any(named);
    // If the experiment declared its saturated intervals, only those count.
    let saturated: Vec<&IntervalRow> = rows
        .iter()
        .zip(intervals)
        .filter(|(row, interval)| {
            row.standing == Standing::Saturation && (!is_declared || named(interval))
        })
        .map(|(row, _)| row)
        .collect();
    let highest = saturated.iter().map(|row| row.rate).fold(0.0, f64::max);
    let near = |row: &&IntervalRow| is_declared || row.rate >= NEAR_HIGHEST * highest;
    let saturated: Vec<&IntervalRow> = saturated.into_iter().filter(near).collect();
    let rates: Vec<f64> = saturated.iter().map(|row| row.rate).collect();
    let rate = median(&rates)?;
    let uses: Vec<f64> = saturated.iter().filter_map(|row| Some(row.user? + row.kernel?)).collect();
    let mean_log = rates.iter().map(|rate| rate.ln()).sum::<f64>() / rates.len() as f64;
    let squares: f64 = rates.iter().map(|rate| (rate.ln() - mean_log).powi(2)).sum();
    Some(Saturation {
        log_sd: (squares / (rates.len() as f64 - 1.0).max(1.0)).sqrt(),
        declared: is_declared,
        rate,
        rate_min: rates.iter().copied().fold(f64::INFINITY, f64::min),
        rate_max: rates.iter().copied().fold(0.0, f64::max),
        n: rates.len(),
        use_percent: median(&uses).unwrap_or(f64::NAN),
        known_by: if is_declared { "the experiment" } else { "the resource was exhausted" },
        held: capacity.low.zip(capacity.high).map(|(low, high)| (low..=high).contains(&rate)),
    })
}
