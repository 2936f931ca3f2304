//! What the server works off in a row: turns of its event loop, and busy periods; and what a
//! request costs at saturation, by their sizes.

use regress::{ByKind, Counting, Evidence, Marginal, OfSize, Seen};
use serde::Serialize;
use trial::Trial;
use trial::stretches::{SIZES, StretchKind, StretchRow, TurnRow};

use super::median;
use super::waits::lost;

/// Stretches of intervals in which the server used less than this part of its highest use are cold.
const USE_MIN: f64 = 0.5;
/// With fewer differences it is not known what counting costs.
const DIFFERENCES_MIN: usize = 4;

/// Turns and busy periods.
#[derive(Clone, Debug, Serialize)]
pub struct Stretches {
    /// Time in which they were counted, seconds.
    pub seconds: f64,
    /// Turns in that time, those of unfinished stretches included.
    pub turns: u64,
    /// Turns per second.
    pub turns_per_s: f64,
    /// Receives of data from clients.
    pub clients: u64,
    /// Receives of data from others.
    pub upstreams: u64,
    /// Receives of a request; `None` if no requests are known.
    pub receives_per_request: Option<f64>,
    /// By number of receives.
    pub by_size: Vec<StretchesOfSize>,
    /// What was lost, in one sentence.
    pub lost: String,
}

/// The stretches with a number of receives.
#[derive(Clone, Debug, Serialize)]
pub struct StretchesOfSize {
    /// The least number of receives.
    pub receives_from: u32,
    /// The largest number; `None` without a bound.
    pub receives_to: Option<u32>,
    /// Turns that follow another turn.
    pub turns: Counted,
    /// Busy periods.
    pub periods: Counted,
    /// Turns after holds, or busy periods if there are no turns.
    pub held: Counted,
}

/// Stretches, and what they cost.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Counted {
    /// Number.
    pub count: u64,
    /// CPU time of a receive, microseconds. `None` without receives.
    pub receive_us: Option<f64>,
}

/// The turns and busy periods of a trial; `None` if they were not counted.
pub(crate) fn stretches(trial: &Trial) -> Option<Stretches> {
    let sampled = trial.turns();
    if sampled.is_empty() {
        return None;
    }
    let seconds = sampled.iter().map(|row| row.sampled_ns).sum::<i64>() as f64 / 1e9;
    let sum = |of: fn(&TurnRow) -> u64| sampled.iter().map(of).sum::<u64>();
    let all: Vec<usize> = (0..trial.intervals().len()).collect();
    let requests: f64 = counted(trial, &all).iter().map(|one| one.requests).sum();
    let receives = sum(TurnRow::receives);
    let has_turns = trial.stretches().iter().any(|row| row.held && is_turn(row));
    // A server whose ports are not known has no clients.
    let only_others = trial.stretches().iter().all(|row| !row.served);
    let bounds = SIZES.into_iter().zip(SIZES.into_iter().skip(1).map(Some).chain([None]));
    let by_size = bounds.filter_map(|(from, below)| {
        let of = |which: &dyn Fn(&StretchRow) -> bool| {
            let all = from == 0 || only_others;
            let shown = |row: &&StretchRow| row.size == from && (row.served || all);
            Counted::of(trial.stretches().iter().filter(shown).filter(|row| which(row)))
        };
        let row = StretchesOfSize {
            receives_from: from,
            receives_to: below.map(|below| below - 1),
            turns: of(&|row| !row.held && row.kind == StretchKind::Turn),
            periods: of(&|row| !row.held && row.kind == StretchKind::Period),
            held: of(&|row| row.held && is_turn(row) == has_turns),
        };
        (row.turns.count + row.periods.count + row.held.count > 0).then_some(row)
    });
    Some(Stretches {
        seconds,
        turns: sum(|row| row.turns),
        turns_per_s: sum(|row| row.turns) as f64 / seconds,
        clients: sum(|row| row.clients),
        upstreams: sum(|row| row.upstreams),
        receives_per_request: (requests > 0.0).then(|| receives as f64 / requests),
        by_size: by_size.collect(),
        lost: lost(trial, "turns: "),
    })
}

impl Counted {
    fn of<'r>(rows: impl Iterator<Item = &'r StretchRow>) -> Counted {
        // A trial may be damaged, and no number in it must stop the report.
        let (mut count, mut receives, mut cpu_ns) = (0u64, 0u64, 0i64);
        for row in rows {
            count = count.saturating_add(row.stretches);
            receives = receives.saturating_add(row.receives());
            cpu_ns = cpu_ns.saturating_add(row.cpu_ns);
        }
        let receive_us = (receives > 0).then(|| cpu_ns as f64 / 1e3 / receives as f64);
        Counted { count, receive_us }
    }
}

/// An interval in which stretches were counted.
struct Sampled {
    turns: TurnRow,
    /// CPU seconds per second.
    used: f64,
    /// Requests in the time in which stretches were counted.
    requests: f64,
}

/// Those of these intervals in which stretches were counted.
fn counted(trial: &Trial, rows: &[usize]) -> Vec<Sampled> {
    let counted = |&row: &usize| {
        let interval = &trial.intervals()[row];
        let at =
            trial.turns().binary_search_by_key(&interval.index, |turns| turns.interval).ok()?;
        let turns = trial.turns()[at];
        let seconds = interval.length_ns as f64 / 1e9;
        let used = interval.server?.total_ns as f64 / 1e9 / seconds;
        let requests = interval.requests / seconds * turns.sampled_ns as f64 / 1e9;
        (seconds > 0.0).then_some(Sampled { turns, used, requests })
    };
    rows.iter().filter_map(counted).collect()
}

/// What a request costs the server at saturation by turns, and by what follows holds, in the
/// intervals whose requests are known: to compare two recordings.
#[must_use]
pub fn at_saturation(trial: &Trial) -> ByKind {
    let known = trial.intervals().iter().enumerate().filter(|(_, interval)| interval.rate_valid);
    let known: Vec<usize> = known.map(|(row, _)| row).collect();
    by_kind(trial, &known)
}

/// The same in these intervals.
pub(super) fn by_kind(trial: &Trial, rows: &[usize]) -> ByKind {
    let (intervals, _) = seen(trial, rows);
    ByKind::of(&Evidence { intervals, counting: None })
}

/// What a request costs the server at saturation, CPU seconds, by the stretches in the busier of
/// these intervals. `None` if stretches were not counted, or if they say nothing.
pub(super) fn marginal(trial: &Trial, rows: &[usize]) -> Option<Marginal> {
    let (intervals, highest) = seen(trial, rows);
    Marginal::of(&Evidence { intervals, counting: counting(trial, rows, USE_MIN * highest) })
}

/// What was seen in the busier of these intervals, and the highest use of them all.
fn seen(trial: &Trial, rows: &[usize]) -> (Vec<Seen>, f64) {
    let counted = counted(trial, rows);
    let highest = counted.iter().map(|one| one.used).fold(0.0, f64::max);
    let busier = counted.iter().filter(|one| one.used >= USE_MIN * highest);
    let seen = busier.map(|one| {
        let rows = of_interval(trial.stretches(), one.turns.interval);
        let sizes = |which: &dyn Fn(&StretchRow) -> bool| -> Vec<OfSize> {
            rows.iter().filter(|row| which(row)).map(of_size).collect()
        };
        let (turn, period) = (StretchKind::Turn, StretchKind::Period);
        Seen {
            turns: sizes(&|row| row.served && !row.held && row.kind == turn),
            periods: sizes(&|row| row.served && !row.held && row.kind == period),
            other_periods: sizes(&|row| !row.served && !row.held && row.kind == period),
            held_turns: sizes(&|row| row.served && row.held && is_turn(row)),
            held_periods: sizes(&|row| row.served && row.held && row.kind == period),
            held_others: sizes(&|row| !row.served && row.held && row.kind == period),
            requests: one.requests,
            receives: one.turns.receives() as f64,
        }
    });
    (seen.collect(), highest)
}

/// What counting costs the server: each interval in which stretches were counted, or were not, is
/// compared with the mean of its neighbours, if these are of the other kind. So a rate that
/// changes evenly does not matter.
fn counting(trial: &Trial, rows: &[usize], used_min: f64) -> Option<Counting> {
    let each = |&row: &usize| {
        let interval = &trial.intervals()[row];
        let used = interval.server?.total_ns as f64 / 1e9;
        let busy = used * 1e9 >= used_min * interval.length_ns as f64 && interval.requests > 0.0;
        let turns = trial.turns();
        let is_counted = turns.binary_search_by_key(&interval.index, |one| one.interval).is_ok();
        busy.then(|| (interval.index, is_counted, used / interval.requests))
    };
    let each: Vec<_> = rows.iter().filter_map(each).collect();
    let differences = each.windows(3).filter_map(|three| {
        let [before, at, after] = [three[0], three[1], three[2]];
        let in_a_row = before.0 + 1 == at.0 && at.0 + 1 == after.0;
        let alone = before.1 != at.1 && at.1 != after.1;
        let more = at.2 - 0.5 * (before.2 + after.2);
        (in_a_row && alone).then_some(if at.1 { more } else { -more })
    });
    let differences: Vec<f64> = differences.collect();
    if differences.len() < DIFFERENCES_MIN {
        return None;
    }
    let cost = median(&differences)?;
    let away: Vec<f64> = differences.iter().map(|one| (one - cost).abs()).collect();
    // The standard error of the median of normal differences, by their median deviation.
    let se = 1.2533 * 1.4826 * median(&away)? / (differences.len() as f64).sqrt();
    Some(Counting { cost, se })
}

fn is_turn(row: &StretchRow) -> bool {
    row.kind != StretchKind::Period
}

fn of_size(row: &StretchRow) -> OfSize {
    OfSize {
        stretches: row.stretches as f64,
        receives: row.receives() as f64,
        cost: row.cpu_ns as f64 / 1e9,
    }
}

/// The rows of one interval.
fn of_interval(rows: &[StretchRow], interval: u64) -> &[StretchRow] {
    let from = rows.partition_point(|row| row.interval < interval);
    let to = rows.partition_point(|row| row.interval <= interval);
    &rows[from..to]
}
