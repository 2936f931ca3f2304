//! The study of the run queue (2002): its flags, and its results as text and as a figure. The crate
//! `runqueue` simulates and measures.

use std::time::Duration;

use ::runqueue::{BOUND_COLOURS, Driver, Facts, L2_KIB, Layout, ROOM_TASKS, TASKS_A_USER, USERS};
use clap::Args;
use command::flags::number_within;
use harness::Error;
use serde_json::{Value, json};

use crate::flags::{Given, ascending, count};
use crate::found::{Found, Steps, with};
use crate::show::NONE;

/// The most processors in the paper.
const PUBLISHED_CPUS: u32 = 8;
const COLOURS: Layout = Layout::Colours(32);

/// What to do.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Numbers of processors [default: all, from one to those of this machine]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = count(1..=1024))]
    cpus: Vec<u32>,
    /// Numbers of runnable tasks
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', default_value = "256,1024",
        value_parser = count(16..=8192))]
    runnable: Vec<u32>,
    /// Rounds of the timed program
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = count(1..=1000))]
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
pub(crate) fn run(plan: &Plan, steps: &mut Steps<'_>) -> Result<Found, Error> {
    let (rounds, visit) = match plan.quick {
        true => (2, Duration::from_millis(30)),
        false => (plan.rounds as usize, Duration::from_secs_f64(plan.seconds)),
    };
    let plan = ::runqueue::Plan {
        cpus: plan.cpus.clone(),
        runnable: ascending(&plan.runnable, &[]),
        rounds,
        visit,
        seed: plan.given.seed,
    };
    let outcome = ::runqueue::run(&plan, steps.stop, steps.say)?;
    Ok(Found::of("runqueue", page!(runqueue), &outcome, for_page(&outcome)))
}

/// Results for the page.
fn for_page(outcome: &Value) -> Value {
    let known = Facts::read();
    let left_out: Vec<String> = rows(outcome, "left_out").iter().map(Value::to_string).collect();
    let bound = rows(outcome, "bound");
    let mut points = misses_points(outcome, &known);
    points.extend(processor_points(outcome, &known));
    json!({
        "source": known.text("source", "title"),
        "webbench": known.text("machine", "webbench"),
        "chat": known.text("machine", "chat"),
        "users": USERS,
        "tasks_a_user": TASKS_A_USER,
        "room_tasks": ROOM_TASKS,
        "without": (!left_out.is_empty()).then(|| left_out.join(", ")),
        "bound_held": bound.iter().filter(|cell| cell["holds"] == true).count(),
        "bound_cells": bound.len(),
        "bound_names": BOUND_COLOURS.map(|colours| format!("c={colours}")).to_vec(),
        "bound_rows": bound.chunks(BOUND_COLOURS.len()).map(bound_row).collect::<Vec<_>>(),
        "gains": gains(rows(outcome, "table4")),
        "gains_chat": gains(rows(outcome, "chat_gains")),
        "locks": rows(outcome, "table6").iter().map(lock).collect::<Vec<_>>(),
        "locks_chat": rows(outcome, "table8").iter().map(lock).collect::<Vec<_>>(),
        "most_tasks": most(outcome, "runnable"),
        "most_cpus": most(outcome, "cpus"),
        "points": points,
    })
}

fn rows<'o>(outcome: &'o Value, table: &str) -> &'o [Value] {
    outcome[table].as_array().map_or(&[], Vec::as_slice)
}

/// The highest value of a key of the locks' rows.
fn most(outcome: &Value, key: &str) -> u64 {
    rows(outcome, "table6").iter().filter_map(|row| row[key].as_u64()).max().unwrap_or(0)
}

/// The cells of the bound for one size of the cache and number of tasks.
fn bound_row(cells: &[Value]) -> Value {
    let percent = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let texts = cells.iter().map(|cell| {
        let [dense, random] = ["dense_percent", "random_percent"].map(|key| percent(&cell[key]));
        format!("{dense:.0}/{random:.0}{}", if cell["holds"] == true { "" } else { " !" })
    });
    let of = |key: &str| cells[0][key].as_u64().unwrap_or(0);
    let needed = (8 * of("runnable")).div_ceil(of("l2_kib").max(1));
    with(&cells[0], json!({"needed": needed, "cells": texts.collect::<Vec<_>>()}))
}

/// The gains of all layouts but the one with which they are compared.
fn gains(rows: &[Value]) -> Vec<&Value> {
    rows.iter().filter(|gain| gain["layout"] != json!(Layout::Vanilla)).collect()
}

/// The use of a lock, with the published one in words.
fn lock(held: &Value) -> Value {
    let published = &held["published"];
    let known = published["hold_mean_us"].as_f64().map(|mean| {
        let max = &published["hold_max_us"];
        let max = max.as_f64().map_or(NONE.to_owned(), |max| format!("{max:.0}"));
        format!(
            "{:.1} %, {mean:.0}, {max}",
            published["contention_percent"].as_f64().unwrap_or(0.0)
        )
    });
    with(held, json!({"contention": contention(held), "known": known}))
}

/// Attempts that found the lock held, percent.
fn contention(held: &Value) -> f64 {
    let of_rounds = held["contention_percent"]["value"].as_f64();
    if held["contended"] == 0 { 0.0 } else { of_rounds.unwrap_or(f64::NAN) }
}

/// A point of the figure: its panel, its curve, its place, and its text. Curves of published
/// figures have names that begin with `published`.
fn point(panel: &str, curve: &str, x: u64, y: f64, text: String) -> Value {
    json!({"panel": panel, "curve": curve, "x": x, "y": y, "text": text})
}

/// Misses in a walk over the most tasks, by size of the cache.
fn misses_points(outcome: &Value, facts: &Facts) -> Vec<Value> {
    let of = |curve: &str, kib: u64, share: f64| {
        point("misses", curve, kib, share, format!("{share:.1} %"))
    };
    let curves = [
        ("vanilla", Layout::Vanilla, "dense_percent"),
        ("random frames", COLOURS, "random_percent"),
        ("by set index", Layout::ColoursBySetIndex(32), "dense_percent"),
        ("dense frames", COLOURS, "dense_percent"),
    ];
    let most = most(outcome, "runnable");
    let walks = rows(outcome, "table2").iter();
    let walks = walks.filter(|walk| walk["of_2002"] == true && walk["runnable"] == most);
    let here = walks.flat_map(|walk| {
        let curves = curves.iter().filter(|curve| walk["layout"] == json!(curve.1));
        curves.filter_map(move |(name, _, frames)| {
            Some(of(name, walk["l2_kib"].as_u64()?, walk[*frames].as_f64()?))
        })
    });
    let known = L2_KIB.into_iter();
    let known = known.filter_map(|kib| Some(of("published", kib, facts.by_size(kib, COLOURS)?)));
    here.chain(known).collect()
}

/// Throughput over vanilla in percent and contention by the number of processors, measured and
/// published; and how long the lock is held by the number of tasks.
fn processor_points(outcome: &Value, facts: &Facts) -> Vec<Value> {
    let (most_tasks, most_cpus) = (most(outcome, "runnable"), most(outcome, "cpus"));
    let percent = |panel: &str, curve: &str, cpus: u64, share: f64| {
        point(panel, curve, cpus, share, format!("{cpus} processors: {share:.1} %"))
    };
    let mut points = Vec::new();
    for held in rows(outcome, "table6") {
        let (layout, cpus) = (held["layout"].as_str().unwrap_or(NONE), held["cpus"].as_u64());
        let tasks = held["runnable"].as_u64().unwrap_or(0);
        if let Some(us) = held["hold_mean_us"]["value"].as_f64().filter(|_| cpus == Some(most_cpus))
        {
            points.push(point("holds", layout, tasks, us, format!("{tasks} tasks: {us:.2} µs")));
        }
        if let Some(cpus) = cpus.filter(|_| tasks == most_tasks) {
            points.push(percent("contention", layout, cpus, contention(held)));
        }
    }
    for gain in rows(outcome, "table4").iter().filter(|gain| gain["runnable"] == most_tasks) {
        let (layout, cpus) = (gain["layout"].as_str().unwrap_or(NONE), gain["cpus"].as_u64());
        if let Some((cpus, ratio)) = cpus.zip(gain["by_cpu_time"]["value"].as_f64()) {
            points.push(percent("gains", layout, cpus, 100.0 * ratio));
        }
    }
    for layout in [Layout::Vanilla, COLOURS, Layout::MultiQueue] {
        let curve = format!("published {layout}");
        for cpus in 1..=PUBLISHED_CPUS {
            let gain = facts.gain(Driver::WebBench, cpus, layout).map(|gain| 100.0 + gain);
            let lock = facts.lock(Driver::WebBench, cpus, layout);
            let lock = lock.map(|lock| lock.contention_percent);
            for (panel, share) in [("gains", gain), ("contention", lock)] {
                points.extend(share.map(|share| percent(panel, &curve, cpus.into(), share)));
            }
        }
    }
    points
}
