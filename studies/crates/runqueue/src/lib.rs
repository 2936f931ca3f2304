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
//! | `frames` | physical addresses of the blocks, simulated or reported by the kernel |
//! | `queue` | list, lock, walk, wake |
//! | `drivers` | the two workloads, and the order of their steps |
//! | `simulate` | misses in the walk, the bound of colours |
//! | `real` | the same, timed |
//! | `counters` | the processor's own counters during the walk |
//! | `facts` | the published figures |
//!
//! What never happens: a figure for more processors than the machine has; a guess about the
//! physical memory.
#![forbid(unsafe_code)]

mod arena;
pub mod cache;
mod counters;
mod drivers;
mod facts;
mod frames;
mod queue;
mod real;
mod simulate;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Serialize, Serializer};

pub use crate::cache::{Machine, Misses};
pub use counters::{CountedWalk, Counters, Walker};
pub use drivers::{Driver, ROOM_TASKS, TASKS_A_USER, USERS};
pub use facts::{Facts, PublishedLock};
pub use frames::Given;
pub use harness::Environment;
pub use harness::Error;
pub use harness::rounds::Figure;
pub use simulate::{BOUND_COLOURS, Bound, L2_KIB, Walked};

use arena::Arena;
use frames::Frames;
use harness::environment::load_average;

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
    /// The program whose hidden verb `runqueue-walker` is [`Walker::walk`].
    pub program: PathBuf,
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

/// Throughput of a layout relative to vanilla in the same round.
#[derive(Clone, Debug, Serialize)]
pub struct Gain {
    /// Processors.
    pub cpus: u32,
    /// Runnable tasks.
    pub runnable: u32,
    /// The layout.
    pub layout: Layout,
    /// Requests or messages per second, relative to vanilla.
    pub by_clock: Figure,
    /// Requests or messages per second of CPU time, relative to vanilla.
    pub by_cpu_time: Figure,
    /// Requests or messages per second.
    pub a_second: Figure,
    /// CPU time per request or message, microseconds.
    pub cpu_us: Figure,
    /// Published throughput over vanilla, percent.
    pub published_percent: Option<f64>,
}

/// The use of the run queue's locks.
#[derive(Clone, Debug, Serialize)]
pub struct Held {
    /// Processors.
    pub cpus: u32,
    /// Runnable tasks.
    pub runnable: u32,
    /// The layout.
    pub layout: Layout,
    /// How often a lock was requested.
    pub attempts: u64,
    /// How often it was already held, included in `attempts`.
    pub contended: u64,
    /// The same in percent, over the rounds that have any.
    pub contention_percent: Figure,
    /// Mean hold time, microseconds.
    pub hold_mean_us: Figure,
    /// The longest hold of all rounds.
    pub hold_max_us: f64,
    /// Tasks per walk.
    pub tasks_a_walk: Figure,
    /// The published figures.
    pub published: Option<PublishedLock>,
}

/// Misses in the walk while a workload runs on a simulated cache.
#[derive(Clone, Debug, Serialize)]
pub struct Missed {
    /// The machine of the cache.
    pub machine: String,
    /// Size of its second level, KiB.
    pub l2_kib: u64,
    /// Processors, each with such a cache.
    pub cpus: u32,
    /// Runnable tasks.
    pub runnable: u32,
    /// The layout.
    pub layout: Layout,
    /// Tasks per walk.
    pub tasks_a_walk: f64,
    /// Accesses and misses of the walk.
    pub walk: Misses,
    /// Accesses and misses of everything else.
    pub rest: Misses,
    /// Tasks walked over that were not in the second level, percent.
    pub missed_percent: f64,
    /// The published figure.
    pub published_percent: Option<f64>,
}

/// What is known about the blocks' physical addresses.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Physical {
    /// The kernel reports them.
    Known {
        /// Pages whose successor is also next in physical memory, percent.
        together_percent: f64,
    },
    /// The kernel does not report them; the reason.
    Unknown(String),
}

/// All results.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The machine.
    pub ground: Environment,
    /// Runnable processes at the beginning and at the end.
    pub load_average: (Option<f64>, Option<f64>),
    /// Requested numbers of processors that exceed this machine's.
    pub left_out: Vec<u32>,
    /// The simulated caches of Tables 5 and 7.
    pub machines: Vec<Machine>,
    /// What is known about the frames.
    pub physical: Physical,
    /// Misses of a walk alone, by cache size.
    pub table2: Vec<Walked>,
    /// The bound of colours, cell by cell.
    pub bound: Vec<Bound>,
    /// Throughput over vanilla, WebBench-like.
    pub table4: Vec<Gain>,
    /// The same, Chat-like, for which nothing was published.
    pub chat_gains: Vec<Gain>,
    /// Misses in the walk, WebBench-like.
    pub table5: Vec<Missed>,
    /// The lock, WebBench-like.
    pub table6: Vec<Held>,
    /// Misses in the walk, Chat-like.
    pub table7: Vec<Missed>,
    /// The lock, Chat-like.
    pub table8: Vec<Held>,
    /// The results of the processor's counters.
    pub counters: Counters,
    /// Rounds of the timed program.
    pub rounds: usize,
    /// Duration of a cell in a round, seconds.
    pub visit_s: f64,
    /// Seed of orders, objects and frames.
    pub seed: u64,
}

/// Simulates and measures. `say` gets progress messages.
///
/// # Errors
/// A processor cannot be used; a thread cannot be started; interrupted.
pub fn run(plan: &Plan, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<Outcome, Error> {
    let loaded = load_average();
    let facts = Facts::read();
    let (cpus, left_out) = processors(&plan.cpus);
    let most = (plan.runnable.iter().max(), cpus.iter().max());
    let arena = Arena::new(match most {
        (Some(runnable), Some(cpus)) => Driver::blocks(*runnable, *cpus),
        _ => 0,
    });
    let here = Frames::here(&arena);
    let physical = match &here {
        Ok(frames) => Physical::Known { together_percent: 100.0 * frames.together() },
        Err(why) => Physical::Unknown(why.clone()),
    };
    say("walking on simulated caches");
    let by_size = |kib, layout| facts.by_size(kib, layout);
    let table2 = simulate::walks(&arena, &plan.runnable, here.as_ref().ok(), &by_size, plan.seed);
    let bound = simulate::bound(plan.seed);
    let machines = vec![Machine::of_2002(L2_KIB_2002), Machine::of_today()];
    let [table5, table7] = [Driver::WebBench, Driver::Chat].map(|driver| {
        say(&format!("{driver} on simulated caches"));
        missed(driver, &arena, &machines, &cpus, plan, &facts)
    });
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let timed = real::measure(plan, &cpus, &arena, &facts, stop, say)?;
    say("counting");
    let most = plan.runnable.iter().copied().max().unwrap_or(1);
    let counters = counters::count(&plan.program, most, plan.seed, stop)?;
    let [(table4, table6), (chat_gains, table8)] = timed;
    Ok(Outcome {
        ground: Environment::of(&std::env::temp_dir()),
        load_average: (loaded, load_average()),
        left_out,
        machines,
        physical,
        table2,
        bound,
        table4,
        chat_gains,
        table5,
        table6,
        table7,
        table8,
        counters,
        rounds: plan.rounds,
        visit_s: plan.visit.as_secs_f64(),
        seed: plan.seed,
    })
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
) -> Vec<Missed> {
    let mut rows = Vec::new();
    for (at, machine) in machines.iter().enumerate() {
        for &cpus in cpus {
            for &runnable in &plan.runnable {
                for layout in [Layout::Vanilla, Layout::Colours(32), Layout::ColoursBySetIndex(32)]
                {
                    let place = (runnable, cpus);
                    let mut row =
                        simulate::driven(arena, machine, (driver, layout), place, plan.seed);
                    // The published figures are for the first machine.
                    let known = at == 0 && Facts::comparable(driver, runnable);
                    let known = known.then(|| facts.missed(driver, cpus, layout));
                    row.published_percent = known.flatten();
                    rows.push(row);
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
