//! The run queue of Linux 2.4.4 in user space, and the effect of colours in 2002.
//!
//! The scheduler of that time walked over all runnable tasks under one lock. Task structures were
//! aligned to 8 KiB, so the fields that the walk reads fell into few sets of the cache, and nearly
//! every task was a miss. Yamamura et al. moved each structure inside its block by a *colour*: the
//! walk then hit the cache, the lock was held for a third of the time, and eight processors served
//! 23 % more.
//!
//! What: the original blocks, list, lock and walk; the layouts `vanilla`, `colours N`,
//! `colours-by-set-index N` (the same colours taken from the wrong address bits) and `multi-queue`;
//! misses on a simulated cache with the geometry of 2002 and on one with this machine's; and the
//! same program timed, with threads in the role of processors. The results are compared with Tables
//! 2 and 4 to 8 of the paper.
//!
//! | module | responsibility |
//! | --- | --- |
//! | `arena` | task blocks, the fields of a task structure, colours |
//! | `frames` | simulated physical addresses of the blocks |
//! | `queue` | list, lock, walk, wake |
//! | `drivers` | the two workloads, and the order of their steps |
//! | `simulate` | misses in the walk, the bound of colours |
//! | `real` | the same, timed |
//! | `facts` | the published figures |
//!
//! What never happens: a figure for more processors than the machine has.
#![forbid(unsafe_code)]

mod arena;
pub mod cache;
mod drivers;
mod facts;
mod frames;
mod queue;
mod real;
mod simulate;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

pub use crate::cache::{Machine, Misses};
pub use drivers::{Driver, ROOM_TASKS, TASKS_A_USER, USERS};
pub use facts::{Facts, PublishedLock};
pub use simulate::{BOUND_COLOURS, L2_KIB};

use arena::Arena;
use harness::environment::load_average;
use harness::{Environment, Error};

/// Size of the second-level cache of the paper's machine for the workloads, KiB.
const L2_KIB_2002: u64 = 1024;

/// Where task structures are in their blocks, and how many lists there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All at the beginning of their blocks; one list.
    Vanilla,
    /// Moved by this many colours, taken from address bits above those that select the set.
    Colours(u32),
    /// Moved by this many colours, taken from the bits that select the set.
    ColoursBySetIndex(u32),
    /// As vanilla, with a list and a lock per processor.
    MultiQueue,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::Vanilla => f.pad("vanilla"),
            Layout::Colours(colours) => write!(f, "colours {colours}"),
            Layout::ColoursBySetIndex(colours) => write!(f, "colours-by-set-index {colours}"),
            Layout::MultiQueue => f.pad("multi-queue"),
        }
    }
}

impl Serialize for Layout {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The parameters of the study.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Numbers of processors. If empty, all numbers up to those of the machine.
    pub cpus: Vec<u32>,
    /// Numbers of runnable tasks.
    pub runnable: Vec<u32>,
    /// Rounds of the timed program.
    pub rounds: usize,
    /// Duration of each cell in a round.
    pub visit: Duration,
    /// Seed of orders, objects and frames.
    pub seed: u64,
}

/// Simulates and measures. `say` gets progress messages. Tables 2 and 4 to 8, and the gains in the
/// chat, for which nothing was published, are lists of rows.
///
/// # Errors
/// A processor cannot be used; a thread cannot be started; interrupted.
pub fn run(plan: &Plan, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<Value, Error> {
    let loaded = load_average();
    let facts = Facts::read();
    let (cpus, left_out) = processors(&plan.cpus);
    let most = (plan.runnable.iter().max(), cpus.iter().max());
    let arena = Arena::new(match most {
        (Some(runnable), Some(cpus)) => Driver::blocks(*runnable, *cpus),
        _ => 0,
    });
    say("walking on simulated caches");
    let table2 = simulate::walks(&arena, &plan.runnable, &facts, plan.seed);
    let bound = simulate::bound(plan.seed);
    let machines = [Machine::of_2002(L2_KIB_2002), Machine::of_today()];
    let [table5, table7] = [Driver::WebBench, Driver::Chat].map(|driver| {
        say(&format!("{driver} on simulated caches"));
        missed(driver, &arena, &machines, &cpus, plan, &facts)
    });
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let timed = real::measure(plan, &cpus, &arena, &facts, stop, say)?;
    let [[table4, table6], [chat_gains, table8]] = timed;
    Ok(json!({
        "ground": Environment::of(&std::env::temp_dir()),
        "load_average": (loaded, load_average()),
        "left_out": left_out,
        "machines": machines,
        "table2": table2,
        "bound": bound,
        "table4": table4,
        "chat_gains": chat_gains,
        "table5": table5,
        "table6": table6,
        "table7": table7,
        "table8": table8,
        "rounds": plan.rounds,
        "visit_s": plan.visit.as_secs_f64(),
        "seed": plan.seed,
        "caches": machines.each_ref().map(Machine::text).to_vec(),
    }))
}

/// The requested numbers of processors that this machine has, and the others.
fn processors(requested: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let most = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    let mut wanted = requested.to_vec();
    if wanted.is_empty() {
        wanted = (1..=most).collect();
    }
    wanted.sort_unstable();
    wanted.dedup();
    let (cpus, beyond): (Vec<u32>, Vec<u32>) = wanted.into_iter().partition(|n| *n <= most);
    (if cpus.is_empty() { vec![1] } else { cpus }, beyond)
}

fn missed(
    driver: Driver,
    arena: &Arena,
    machines: &[Machine],
    cpus: &[u32],
    plan: &Plan,
    facts: &Facts,
) -> Vec<Value> {
    let mut rows = Vec::new();
    for (at, machine) in machines.iter().enumerate() {
        for &cpus in cpus {
            for &runnable in &plan.runnable {
                for layout in [Layout::Vanilla, Layout::Colours(32), Layout::ColoursBySetIndex(32)]
                {
                    let what = (driver, layout);
                    let driven =
                        simulate::driven(arena, machine, what, (runnable, cpus), plan.seed);
                    // The published figures are for the first machine.
                    let known = at == 0 && Facts::comparable(driver, runnable);
                    let known = known.then(|| facts.missed(driver, cpus, layout)).flatten();
                    rows.push(json!({
                        "machine": machine.name,
                        "cache": machine.short(),
                        "l2_kib": machine.l2.bytes / 1024,
                        "cpus": cpus,
                        "runnable": runnable,
                        "layout": layout,
                        "tasks_a_walk": driven.tasks_a_walk,
                        "walk": driven.walk,
                        "rest": driven.rest,
                        "missed_percent": driven.walk.l2_percent(),
                        "published_percent": known,
                    }));
                }
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_processors_are_left_out_and_named() {
        let most = std::thread::available_parallelism().unwrap().get() as u32;
        let all: Vec<u32> = (1..=most).collect();
        assert_eq!(processors(&[]), (all, vec![]));
        assert_eq!(processors(&[most + 1, 1, 1]), (vec![1], vec![most + 1]));
        assert_eq!(processors(&[most + 1]), (vec![1], vec![most + 1]));
    }
}
