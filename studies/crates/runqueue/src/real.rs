//! The same program, timed: one thread per processor.
//!
//! What: runs of a [`Workload`] in rounds, interleaved over layouts, so that a disturbance affects
//! all layouts. All layouts use the same blocks, and so the same frames. Figures are ratios to
//! vanilla within a round, by the clock and by the CPU time of the threads. On a shared machine,
//! the second is more reliable.
//!
//! Ownership: threads end with their run. What never happens: two runs in one process at the same
//! time, because locks are counted per process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use runtime::sync::{LockKind, LockUse};

use crate::arena::{Arena, Palette};
use crate::cache::Machine;
use crate::drivers::{Cpu, Driver, Workload};
use crate::queue::lock_use;
use crate::{Facts, Layout, Plan};
use harness::Error;
use harness::rounds::{Figures, To, Visits};
use serde_json::{Value, json};

/// The timed layouts. The others are compared with the first.
pub(super) const LAYOUTS: [Layout; 3] = [Layout::Vanilla, Layout::Colours(32), Layout::MultiQueue];
/// Steps between two checks of the flag that ends a run.
const STEPS: u32 = 16;
/// Longest sleep between two checks of the stop flag.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// Serialises runs, because lock counters are per process.
static EXCLUSIVE: Mutex<()> = Mutex::new(());

/// The result of one run.
#[derive(Clone, Copy, Debug)]
struct Run {
    done: f64,
    wall_s: f64,
    cpu_s: f64,
    lock: LockUse,
    walks: u64,
    tasks: u64,
}

/// A workload on a number of processors, its runnable tasks, and their layout.
type Cell = (Driver, u32, u32, Layout);

/// The timed figures of a workload: throughput relative to vanilla in the same round, and the use
/// of the run queue's locks.
pub(super) type Timed = [Vec<Value>; 2];

/// Times all cells in interleaved rounds. Gives the figures of each of [`Driver::ALL`].
pub(super) fn measure(
    plan: &Plan,
    cpus: &[u32],
    arena: &Arena,
    facts: &Facts,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<[Timed; 2], Error> {
    let machine = Machine::of_today();
    let mut visits = Visits(Vec::new());
    for round in 0..plan.rounds.max(1) {
        let mut made: Vec<(Cell, Run)> = Vec::new();
        for (driver, cpus, runnable) in cells(cpus, &plan.runnable) {
            say(&format!("round {}: {driver}, {runnable} on {cpus} processors", round + 1));
            for step in 0..LAYOUTS.len() {
                // A different layout comes first in each round.
                let layout = LAYOUTS[(step + round) % LAYOUTS.len()];
                let palette = Palette::of(layout, &machine);
                let (seed, what) = (plan.seed + round as u64, (driver, layout));
                let workload =
                    Workload::new(arena, what, (runnable, cpus), &palette, &u64::from, seed);
                let run = run_once(&workload, plan.visit, stop)?;
                made.push(((driver, cpus, runnable, layout), run));
            }
        }
        visits.0.push(made);
    }
    let cells = cells(cpus, &plan.runnable);
    Ok(Driver::ALL.map(|driver| {
        let cells =
            cells.iter().filter(|cell| cell.0 == driver).flat_map(|&(_, cpus, runnable)| {
                LAYOUTS.map(|layout| (driver, cpus, runnable, layout))
            });
        let (gains, locks) =
            cells.map(|cell| (gain(&visits, cell, facts), held(&visits, cell, facts))).unzip();
        [gains, locks]
    }))
}

/// All combinations of a workload with these numbers of processors and of tasks.
fn cells(cpus: &[u32], runnable: &[u32]) -> Vec<(Driver, u32, u32)> {
    let of = |driver| cpus.iter().map(move |cpus| (driver, *cpus));
    let all = Driver::ALL.into_iter().flat_map(of);
    all.flat_map(|(driver, cpus)| runnable.iter().map(move |many| (driver, cpus, *many))).collect()
}

/// Requests or messages a second relative to vanilla: by the clock, and by the CPU time of the
/// threads.
fn gain(visits: &Visits<Cell, Run>, cell: Cell, facts: &Facts) -> Value {
    let (driver, cpus, runnable, layout) = cell;
    let comparable = Facts::comparable(driver, runnable);
    let published = facts.gain(driver, cpus, layout).filter(|_| comparable);
    let names = json!({
        "cpus": cpus, "runnable": runnable, "layout": layout, "published_percent": published,
    });
    let vanilla = || To::Cell(Some((driver, cpus, runnable, Layout::Vanilla)));
    let figures: Figures<'_, _, Run> = &[
        ("by_clock", vanilla(), &|run| run.done / run.wall_s),
        ("by_cpu_time", vanilla(), &|run| run.done / run.cpu_s),
        ("a_second", To::Itself, &|run| run.done / run.wall_s),
        ("cpu_us", To::Itself, &|run| 1e6 * run.cpu_s / run.done),
    ];
    visits.row(cell, names, figures)
}

/// The use of the run queue's locks: how often a lock was requested and already held, how long it
/// was held, and the tasks of a walk.
fn held(visits: &Visits<Cell, Run>, cell: Cell, facts: &Facts) -> Value {
    let (driver, cpus, runnable, layout) = cell;
    let comparable = Facts::comparable(driver, runnable);
    let longest_ns = visits.of(cell).map(|run| run.lock.held_ns_max).max().unwrap_or(0);
    let names = json!({
        "cpus": cpus,
        "runnable": runnable,
        "layout": layout,
        "attempts": visits.sum(cell, |run| run.lock.attempts),
        "contended": visits.sum(cell, |run| run.lock.contended),
        "hold_max_us": longest_ns as f64 / 1e3,
        "published": facts.lock(driver, cpus, layout).filter(|_| comparable),
    });
    let contention = |run: &Run| 100.0 * run.lock.contended as f64 / run.lock.attempts as f64;
    let figures: Figures<'_, _, Run> = &[
        ("contention_percent", To::Itself, &contention),
        ("hold_mean_us", To::Itself, &|run| run.lock.held_ns as f64 / 1e3 / run.lock.holds as f64),
        ("tasks_a_walk", To::Itself, &|run| run.tasks as f64 / run.walks as f64),
    ];
    visits.row(cell, names, figures)
}

/// Lets the processors work for `time`.
fn run_once(workload: &Workload, time: Duration, stop: &AtomicBool) -> Result<Run, Error> {
    let _alone = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let cpus = workload.begin();
    let (ended, start) = (AtomicBool::new(false), Barrier::new(cpus.len() + 1));
    let (wall_s, played) = std::thread::scope(|scope| {
        let play = |cpu: Cpu| {
            let (ended, start) = (&ended, &start);
            scope.spawn(move || play(workload, cpu, ended, start))
        };
        let threads: Vec<_> = cpus.into_iter().map(play).collect();
        LockKind::measure_all(true);
        start.wait();
        let begun = Instant::now();
        while begun.elapsed() < time && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(SLEEP_MAX.min(time.saturating_sub(begun.elapsed())));
        }
        ended.store(true, Ordering::Relaxed);
        let wall_s = begun.elapsed().as_secs_f64();
        let played: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        (wall_s, played)
    });
    LockKind::measure_all(false);
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let (mut done, mut cpu_ns, mut walks, mut tasks) = (0, 0, 0, 0);
    for played in played {
        let (cpu, ns) = played.map_err(|_| Error::Thread("a processor of the study"))??;
        done += cpu.done;
        cpu_ns += ns;
        walks += cpu.walks.walks;
        tasks += cpu.walks.tasks;
    }
    let (done, cpu_s) = (done as f64, cpu_ns as f64 / 1e9);
    Ok(Run { done, wall_s, cpu_s, lock: lock_use(), walks, tasks })
}

/// Plays one processor. Returns its state and its CPU time in nanoseconds.
fn play(
    workload: &Workload,
    mut cpu: Cpu,
    ended: &AtomicBool,
    start: &Barrier,
) -> Result<(Cpu, u64), Error> {
    let pinned = load::sys::pin_to_cpu(cpu.number());
    start.wait();
    pinned.map_err(|error| {
        Error::System("a processor cannot be used; leave it out of --cpus", error)
    })?;
    let before = load::sys::thread_cpu_ns();
    // At least a few steps: on a busy machine, the time may be over before the thread gets to run.
    loop {
        for _ in 0..STEPS {
            let woken = workload.woken();
            if !workload.step(&mut cpu, &mut ()) {
                // Like the original idle task, it polls a word and not the lock.
                while workload.woken() == woken && !ended.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                break;
            }
        }
        if ended.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok((cpu, load::sys::thread_cpu_ns() - before))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan {
            cpus: vec![1, 2],
            runnable: vec![100],
            rounds: 2,
            visit: Duration::from_millis(15),
            seed: 1,
        }
    }

    #[test]
    fn every_cell_is_timed_and_compared_with_vanilla() {
        let arena = Arena::new(Driver::blocks(100, 2));
        let cpus = if std::thread::available_parallelism().is_ok_and(|n| n.get() > 1) {
            vec![1, 2]
        } else {
            vec![1]
        };
        let stop = AtomicBool::new(false);
        let facts = Facts::read();
        let timed = measure(&plan(), &cpus, &arena, &facts, &stop, &mut |_| {}).unwrap();
        let cells = cpus.len() * LAYOUTS.len();
        for [gains, locks] in &timed {
            assert_eq!((gains.len(), locks.len()), (cells, cells));
        }
        let of = |row: &Value, figure: &str| row[figure]["value"].as_f64().unwrap();
        for gain in timed.iter().flat_map(|[gains, _]| gains) {
            assert!(of(gain, "cpu_us") > 0.0, "{gain:?}");
            assert!(gain["layout"] != "vanilla" || of(gain, "by_cpu_time") == 1.0, "{gain:?}");
        }
        for (driver, [_, locks]) in Driver::ALL.into_iter().zip(&timed) {
            for held in locks {
                let count = |name: &str| held[name].as_u64().unwrap();
                assert!(count("attempts") > 0, "{driver} {held:?}");
                assert!(count("contended") <= count("attempts"), "{driver} {held:?}");
                let longest = held["hold_max_us"].as_f64().unwrap();
                assert!(longest >= of(held, "hold_mean_us"), "{driver} {held:?}");
                if driver == Driver::WebBench && held["layout"] != "multi-queue" {
                    assert!(of(held, "tasks_a_walk") > 90.0, "{held:?}");
                }
                // A single processor never waits.
                assert!(count("cpus") > 1 || count("contended") == 0, "{held:?}");
            }
        }
    }

    #[test]
    fn it_ends_when_it_is_stopped() {
        let arena = Arena::new(Driver::blocks(100, 2));
        let stopped =
            measure(&plan(), &[1], &arena, &Facts::read(), &AtomicBool::new(true), &mut |_| {});
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }
}
