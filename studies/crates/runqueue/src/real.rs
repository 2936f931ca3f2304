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
use crate::{Facts, Gain, Held, Layout, Plan, PublishedLock};
use harness::Error;
use harness::rounds::Figure;

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

/// The timed figures of a workload.
type Timed = (Vec<Gain>, Vec<Held>);

/// Times all cells in interleaved rounds. Gives the figures of each of [`Driver::ALL`].
pub(super) fn measure(
    plan: &Plan,
    cpus: &[u32],
    arena: &Arena,
    facts: &Facts,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<[Timed; 2], Error> {
    let cells: Vec<(Driver, u32, u32)> = Driver::ALL
        .into_iter()
        .flat_map(|driver| cpus.iter().map(move |cpus| (driver, *cpus)))
        .flat_map(|(driver, cpus)| plan.runnable.iter().map(move |many| (driver, cpus, *many)))
        .collect();
    let mut runs = vec![[const { Vec::new() }; LAYOUTS.len()]; cells.len()];
    let machine = Machine::of_today();
    for round in 0..plan.rounds.max(1) {
        for (cell, &(driver, cpus, runnable)) in cells.iter().enumerate() {
            say(&format!("round {}: {driver}, {runnable} on {cpus} processors", round + 1));
            for step in 0..LAYOUTS.len() {
                // A different layout comes first in each round.
                let at = (step + round) % LAYOUTS.len();
                let palette = Palette::of(LAYOUTS[at], &machine);
                let seed = plan.seed + round as u64;
                let what = (driver, LAYOUTS[at]);
                let workload =
                    Workload::new(arena, what, (runnable, cpus), &palette, &u64::from, seed);
                runs[cell][at].push(run_once(&workload, plan.visit, stop)?);
            }
        }
    }
    Ok(Driver::ALL.map(|driver| {
        let (mut gains, mut locks) = (Vec::new(), Vec::new());
        for (&(_, cpus, runnable), runs) in
            cells.iter().zip(&runs).filter(|(cell, _)| cell.0 == driver)
        {
            let comparable = Facts::comparable(driver, runnable);
            for (at, layout) in LAYOUTS.into_iter().enumerate() {
                let place = (cpus, runnable, layout);
                let known = facts.gain(driver, cpus, layout).filter(|_| comparable);
                gains.push(gain(place, &runs[at], &runs[0], known));
                let known = facts.lock(driver, cpus, layout).filter(|_| comparable);
                locks.push(held(place, &runs[at], known));
            }
        }
        (gains, locks)
    }))
}

fn gain(
    (cpus, runnable, layout): (u32, u32, Layout),
    runs: &[Run],
    vanilla: &[Run],
    published_percent: Option<f64>,
) -> Gain {
    let ratio = |value: fn(&Run) -> f64| {
        let pairs = runs.iter().zip(vanilla);
        Figure::of(pairs.map(|(run, vanilla)| value(run) / value(vanilla)))
    };
    let each = |value: fn(&Run) -> f64| Figure::of(runs.iter().map(value));
    Gain {
        cpus,
        runnable,
        layout,
        by_clock: ratio(|run| run.done / run.wall_s),
        by_cpu_time: ratio(|run| run.done / run.cpu_s),
        a_second: each(|run| run.done / run.wall_s),
        cpu_us: each(|run| 1e6 * run.cpu_s / run.done),
        published_percent,
    }
}

fn held(
    (cpus, runnable, layout): (u32, u32, Layout),
    runs: &[Run],
    published: Option<PublishedLock>,
) -> Held {
    let each = |value: fn(&Run) -> f64| Figure::of(runs.iter().map(value));
    let sum = |value: fn(&Run) -> u64| runs.iter().map(value).sum::<u64>();
    let attempts = sum(|run| run.lock.attempts);
    Held {
        cpus,
        runnable,
        layout,
        attempts,
        contended: sum(|run| run.lock.contended),
        contention_percent: each(|run| {
            100.0 * run.lock.contended as f64 / run.lock.attempts as f64
        }),
        hold_mean_us: each(|run| run.lock.held_ns as f64 / 1e3 / run.lock.holds as f64),
        hold_max_us: runs.iter().map(|run| run.lock.held_ns_max).max().unwrap_or(0) as f64 / 1e3,
        tasks_a_walk: each(|run| run.tasks as f64 / run.walks as f64),
        published,
    }
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
            program: "unused".into(),
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
        for (gains, locks) in &timed {
            assert_eq!((gains.len(), locks.len()), (cells, cells));
        }
        let gains = timed.iter().flat_map(|(gains, _)| gains);
        for gain in gains {
            assert!(gain.cpu_us.value > 0.0, "{gain:?}");
            assert!(gain.layout != Layout::Vanilla || gain.by_cpu_time.value == 1.0, "{gain:?}");
        }
        let locks = Driver::ALL.into_iter().zip(&timed);
        for (driver, held) in
            locks.flat_map(|(d, (_, locks))| locks.iter().map(move |one| (d, one)))
        {
            assert!(held.attempts > 0 && held.contended <= held.attempts, "{driver} {held:?}");
            assert!(held.hold_max_us >= held.hold_mean_us.value, "{driver} {held:?}");
            if driver == Driver::WebBench && held.layout != Layout::MultiQueue {
                assert!(held.tasks_a_walk.value > 90.0, "{held:?}");
            }
            // A single processor never waits.
            assert!(held.cpus > 1 || held.contended == 0, "{held:?}");
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
