//! The study of the run queue (2002): its flags, and its results as text and as a figure. The crate
//! `runqueue` simulates and measures.

use std::time::Duration;

use ::runqueue::{
    BOUND_COLOURS, Bound, Counters, Driver, Error, Facts, Gain, Given as Frames, Held, L2_KIB,
    Layout, Machine, Missed, Outcome, Physical, ROOM_TASKS, TASKS_A_USER, USERS, Walked,
};
use clap::Args;
use command::flags::number_within;
use harness::rounds::Figure;
use serde_json::{Value, json};

use crate::flags::{Given, ascending};
use crate::found::{Steps, row_with};
use crate::show::{NONE, distinct, number};

/// The most processors in the paper.
const PUBLISHED_CPUS: u32 = 8;
const COLOURS: Layout = Layout::Colours(32);

/// What to do.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Numbers of processors [default: all, from one to those of this machine]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    cpus: Vec<u32>,
    /// Numbers of runnable tasks
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "256,1024",
        value_parser = clap::value_parser!(u32).range(16..=8192))]
    runnable: Vec<u32>,
    /// Rounds of the timed program
    #[arg(long, value_name = "N", default_value_t = 6,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of each cell in a round
    #[arg(long, value_name = "SECONDS", default_value_t = 0.3,
        value_parser = number_within(0.01..=60.0))]
    seconds: f64,
    /// A few seconds: two rounds of short cells
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    quick: bool,
    #[command(flatten)]
    pub(crate) given: Given,
}

/// Simulates and measures.
///
/// # Errors
/// Those of [`::runqueue::run`].
pub fn run(plan: &Plan, steps: &mut Steps<'_>) -> Result<Outcome, Error> {
    let (rounds, visit) = match plan.quick {
        true => (2, Duration::from_millis(30)),
        false => (plan.rounds as usize, Duration::from_secs_f64(plan.seconds)),
    };
    let plan = ::runqueue::Plan {
        program: steps.study.to_owned(),
        cpus: plan.cpus.clone(),
        runnable: ascending(&plan.runnable, &[]),
        rounds,
        visit,
        seed: plan.given.seed,
    };
    ::runqueue::run(&plan, steps.stop, steps.say)
}

/// Results for the page.
pub(crate) fn for_page(outcome: &Outcome) -> Value {
    let known = Facts::read();
    let frames = match &outcome.physical {
        Physical::Known { together_percent } => format!(
            "reported by the kernel: {} of the blocks' pages are followed by the next page in \
             physical memory; below a hypervisor the real memory may differ",
            percent(*together_percent)
        ),
        Physical::Unknown(why) => {
            format!("the physical addresses of the timed blocks are unknown: {why}")
        }
    };
    let (counted, uncounted) = match &outcome.counters {
        Counters::Counted(walks) => (walks.as_slice(), None),
        Counters::NotSupported(why) => (&[][..], Some(why)),
    };
    let counted = counted.iter().map(|walk| {
        let each = walk.misses.map(|misses| 100.0 * misses as f64 / walk.tasks.max(1) as f64);
        row_with(walk, [("each", published(each).into())])
    });
    let left_out: Vec<String> = outcome.left_out.iter().map(|n| number(*n)).collect();
    let points = misses_points(outcome, &known).into_iter();
    let points = points.chain(gain_points(outcome, &known)).chain(lock_points(outcome, &known));
    json!({
        "source": known.text("source", "title"),
        "webbench": known.text("machine", "webbench"),
        "chat": known.text("machine", "chat"),
        "users": USERS,
        "tasks_a_user": TASKS_A_USER,
        "room_tasks": ROOM_TASKS,
        "caches": outcome.machines.iter().map(Machine::text).collect::<Vec<_>>(),
        "frames": frames,
        "without": (!left_out.is_empty()).then(|| left_out.join(", ")),
        "bound_held": outcome.bound.iter().filter(|cell| cell.holds).count(),
        "bound_cells": outcome.bound.len(),
        "by_frames": walks(outcome),
        "bound_names": BOUND_COLOURS.map(|colours| format!("c={colours}")),
        "bound_rows": bound(outcome),
        "gains": gains(&outcome.table4),
        "gains_chat": gains(&outcome.chat_gains),
        "misses": misses(&outcome.table5),
        "misses_chat": misses(&outcome.table7),
        "locks": outcome.table6.iter().map(lock).collect::<Vec<_>>(),
        "locks_chat": outcome.table8.iter().map(lock).collect::<Vec<_>>(),
        "uncounted": uncounted,
        "counted": counted.collect::<Vec<_>>(),
        "most_tasks": most(outcome),
        "most_cpus": most_cpus(outcome),
        "points": points.collect::<Vec<_>>(),
    })
}

/// Misses by cache, tasks and layout, for each kind of frames.
fn walks(outcome: &Outcome) -> Vec<Vec<String>> {
    let key = |walked: &Walked| (walked.machine.clone(), walked.runnable, walked.layout);
    let rows = distinct(outcome.table2.iter().map(key)).into_iter().map(|wanted| {
        let of = || outcome.table2.iter().filter(|walked| key(walked) == wanted);
        let missed = [Frames::Dense, Frames::Random, Frames::Here].map(|frames| {
            let found = of().find(|walked| walked.frames == frames);
            found.map_or_else(String::new, |found| percent(found.missed_percent))
        });
        let known = published(of().find_map(|walked| walked.published_percent));
        let (machine, runnable, layout) = &wanted;
        let begin = [short(machine), number(*runnable), layout.to_string()];
        [&begin[..], &missed, &[known]].concat()
    });
    rows.collect()
}

/// Shortens `Pentium III Xeon (2002), 256 KiB` to `2002, 256 KiB`.
fn short(machine: &str) -> String {
    machine.replace("Pentium III Xeon (2002)", "2002")
}

/// The cells of the bound by size of the cache and tasks.
fn bound(outcome: &Outcome) -> Vec<Value> {
    let key = |cell: &Bound| (cell.l2_kib, cell.runnable);
    let rows = distinct(outcome.bound.iter().map(key)).into_iter().map(|wanted| {
        let cells = outcome.bound.iter().filter(|cell| key(cell) == wanted).map(|cell| {
            let Bound { dense_percent, random_percent, holds, .. } = cell;
            let mark = if *holds { "" } else { " !" };
            format!("{dense_percent:.0}/{random_percent:.0}{mark}")
        });
        let (l2_kib, runnable) = wanted;
        let needed = (8 * u64::from(runnable)).div_ceil(l2_kib);
        let cells: Vec<String> = cells.collect();
        json!({"l2_kib": l2_kib, "runnable": runnable, "needed": needed, "cells": cells})
    });
    rows.collect()
}

fn gains(gains: &[Gain]) -> Vec<Value> {
    let rows = gains.iter().filter(|gain| gain.layout != Layout::Vanilla).map(|gain| {
        let known = gain.published_percent.map_or_else(String::new, |p| format!("{p:+.1} %"));
        let [cpu_time, clock] = [&gain.by_cpu_time, &gain.by_clock].map(|ratio| over(ratio).into());
        row_with(gain, [("cpu_time", cpu_time), ("clock", clock), ("known", known.into())])
    });
    rows.collect()
}

fn misses(missed: &[Missed]) -> Vec<Value> {
    let rows = missed.iter().map(|row| {
        let (cache, known) = (short(&row.machine), published(row.published_percent));
        let missed = percent(row.missed_percent);
        row_with(row, [("cache", cache.into()), ("missed", missed.into()), ("known", known.into())])
    });
    rows.collect()
}

fn lock(held: &Held) -> Value {
    let known = held.published.map_or_else(String::new, |published| {
        let max = published.hold_max_us.map_or(NONE.to_owned(), |max| format!("{max:.0}"));
        let mean = published.hold_mean_us;
        format!("{:.1} %, {mean:.0}, {max}", published.contention_percent)
    });
    row_with(held, [("contention", percent(contention(held)).into()), ("known", known.into())])
}

/// Attempts that found the lock held, percent.
fn contention(held: &Held) -> f64 {
    if held.contended == 0 { 0.0 } else { held.contention_percent.value }
}

fn most_cpus(outcome: &Outcome) -> u32 {
    outcome.table6.iter().map(|row| row.cpus).max().unwrap_or(1)
}

fn most(outcome: &Outcome) -> u32 {
    outcome.table6.iter().map(|row| row.runnable).max().unwrap_or(0)
}

/// A point of the figure: its panel, its curve, its place, and its text. Curves of published
/// figures have names that begin with `published`.
fn point(panel: &str, curve: String, x: f64, y: f64, text: String) -> Value {
    json!({"panel": panel, "curve": curve, "x": x, "y": y, "text": text})
}

/// Misses in a walk by size of the cache.
fn misses_points(outcome: &Outcome, facts: &Facts) -> Vec<Value> {
    let of = |name: &str, kib: u64, share: f64| {
        point("misses", name.to_owned(), kib as f64, share, percent(share))
    };
    let curves = [
        ("vanilla", Layout::Vanilla, Frames::Dense),
        ("random frames", COLOURS, Frames::Random),
        ("by set index", Layout::ColoursBySetIndex(32), Frames::Dense),
        ("dense frames", COLOURS, Frames::Dense),
    ];
    let here = curves.into_iter().flat_map(|(name, layout, frames)| {
        let wanted = (most(outcome), layout, frames);
        let walks = outcome.table2.iter().filter(|walked| walked.machine.contains("2002"));
        let walks = walks.filter(move |w| (w.runnable, w.layout, w.frames) == wanted);
        walks.map(move |walked| of(name, walked.l2_kib, walked.missed_percent))
    });
    let known = L2_KIB
        .into_iter()
        .filter_map(|kib| Some(of("published", kib, facts.by_size(kib, COLOURS)?)));
    here.chain(known).collect()
}

/// Throughput over vanilla by the number of processors, in percent.
fn gain_points(outcome: &Outcome, facts: &Facts) -> Vec<Value> {
    let here = outcome.table4.iter().filter(|gain| gain.runnable == most(outcome));
    let here = here.map(|gain| (gain.layout, gain.cpus, 100.0 * gain.by_cpu_time.value));
    let known = |layout, cpus| Some(100.0 + facts.gain(Driver::WebBench, cpus, layout)?);
    by_processors("gains", here, known)
}

/// How long the lock is held by the number of tasks, and contention by that of processors.
fn lock_points(outcome: &Outcome, facts: &Facts) -> Vec<Value> {
    let holds = outcome.table6.iter().filter(|held| held.cpus == most_cpus(outcome)).map(|held| {
        let (us, tasks) = (held.hold_mean_us.value, held.runnable);
        let text = format!("{tasks} tasks: {us:.2} µs");
        point("holds", held.layout.to_string(), f64::from(tasks), us, text)
    });
    let here = outcome.table6.iter().filter(|held| held.runnable == most(outcome));
    let here = here.map(|held| (held.layout, held.cpus, contention(held)));
    let known = |layout, cpus| Some(facts.lock(Driver::WebBench, cpus, layout)?.contention_percent);
    holds.chain(by_processors("contention", here, known)).collect()
}

/// The measured points of a panel, and the published ones.
fn by_processors(
    panel: &str,
    here: impl Iterator<Item = (Layout, u32, f64)>,
    published: impl Fn(Layout, u32) -> Option<f64>,
) -> Vec<Value> {
    let of = |curve: String, cpus: u32, share: f64| {
        let text = format!("{cpus} processors: {share:.1} %");
        point(panel, curve, f64::from(cpus), share, text)
    };
    let mut points: Vec<Value> =
        here.map(|(layout, cpus, share)| of(layout.to_string(), cpus, share)).collect();
    for layout in [Layout::Vanilla, COLOURS, Layout::MultiQueue] {
        let known = (1..=PUBLISHED_CPUS).filter_map(|cpus| Some((cpus, published(layout, cpus)?)));
        points.extend(known.map(|(cpus, y)| of(format!("published {layout}"), cpus, y)));
    }
    points
}

fn percent(value: f64) -> String {
    match value {
        v if !v.is_finite() => "-".to_owned(),
        v if v > 0.0 && v < 0.05 => "<0.1 %".to_owned(),
        v => format!("{v:.1} %"),
    }
}

fn published(value: Option<f64>) -> String {
    value.map_or_else(String::new, percent)
}

/// A ratio as the difference from one: `+23.3 % (+20.1 to +26.4)`.
fn over(ratio: &Figure) -> String {
    let one = |ratio: f64| format!("{:+.1}", 100.0 * (ratio - 1.0));
    match ratio.interval {
        _ if !ratio.value.is_finite() => "-".to_owned(),
        Some((low, high)) => format!("{} % ({} to {})", one(ratio.value), one(low), one(high)),
        None => format!("{} % (one round)", one(ratio.value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_are_not_shown_as_zero() {
        assert_eq!([0.0, 0.01, 8.24, f64::NAN].map(percent), ["0.0 %", "<0.1 %", "8.2 %", "-"]);
        let ratio = Figure { value: 1.233, interval: Some((1.2, 0.97)), rounds: 3 };
        assert_eq!(over(&ratio), "+23.3 % (+20.0 to -3.0)");
        assert_eq!(over(&Figure::of([])), "-");
    }
}
