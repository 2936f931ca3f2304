//! The same, timed: a thread plays each processor.
//!
//! What: visits of [`Stand`]s in rounds, interleaved over layouts, so that what disturbs one
//! disturbs the others. All layouts use the same blocks, and so the same frames. Figures are ratios
//! to vanilla within a round, by the clock and by the CPU time of the threads: where others use the
//! machine, the second says more.
//!
//! Who owns: threads end with their visit. What never happens: two visits of a process at once,
//! since locks are counted for all of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use runtime::sync::{LockKind, LockUse};

use crate::arena::{Arena, Palette};
use crate::cache::Machine;
use crate::drivers::{Cpu, Driver, Stand};
use crate::queue::lock_use;
use crate::{Gain, Held, Layout, Plan};
use harness::Error;
use harness::rounds::Figure;

/// The layouts that are timed; the first is what the others are compared with.
pub(super) const LAYOUTS: [Layout; 3] = [Layout::Vanilla, Layout::Colours(32), Layout::MultiQueue];
/// Steps between two looks at the flag that ends a visit.
const STEPS: u32 = 16;
/// How long a sleep is at most before it is looked whether the user has had enough.
const NAP: Duration = Duration::from_millis(20);

/// One visit at a time: the counting of locks is the process's.
static ALONE: Mutex<()> = Mutex::new(());

/// What came of a visit.
#[derive(Clone, Copy, Debug)]
struct Visit {
    done: f64,
    wall_s: f64,
    cpu_s: f64,
    lock: LockUse,
    walks: u64,
    tasks: u64,
}

/// Where the timed figures go.
#[derive(Default)]
pub(super) struct Timed {
    pub(super) gains: Vec<(Driver, Gain)>,
    pub(super) held: Vec<(Driver, Held)>,
}

/// Times all cells in interleaved rounds.
pub(super) fn measure(
    plan: &Plan,
    cpus: &[u32],
    arena: &Arena,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<Timed, Error> {
    let cells: Vec<(Driver, u32, u32)> = Driver::ALL
        .into_iter()
        .flat_map(|driver| cpus.iter().map(move |cpus| (driver, *cpus)))
        .flat_map(|(driver, cpus)| plan.runnable.iter().map(move |many| (driver, cpus, *many)))
        .collect();
    let mut visits = vec![[const { Vec::new() }; LAYOUTS.len()]; cells.len()];
    let machine = Machine::of_today();
    for round in 0..plan.rounds.max(1) {
        for (cell, &(driver, cpus, runnable)) in cells.iter().enumerate() {
            say(&format!("round {}: {driver}, {runnable} on {cpus} processors", round + 1));
            for step in 0..LAYOUTS.len() {
                // Another is the first in each round.
                let at = (step + round) % LAYOUTS.len();
                let palette = Palette::of(LAYOUTS[at], &machine);
                let seed = plan.seed + round as u64;
                let what = (driver, LAYOUTS[at]);
                let stand = Stand::new(arena, what, (runnable, cpus), &palette, &u64::from, seed);
                visits[cell][at].push(visit(&stand, plan.visit, stop)?);
            }
        }
    }
    let mut timed = Timed::default();
    for (&(driver, cpus, runnable), visits) in cells.iter().zip(&visits) {
        for (at, layout) in LAYOUTS.into_iter().enumerate() {
            let place = (cpus, runnable, layout);
            timed.gains.push((driver, gain(place, &visits[at], &visits[0])));
            timed.held.push((driver, held(place, &visits[at])));
        }
    }
    Ok(timed)
}

fn gain((cpus, runnable, layout): (u32, u32, Layout), visits: &[Visit], vanilla: &[Visit]) -> Gain {
    let ratio = |value: fn(&Visit) -> f64| {
        let pairs = visits.iter().zip(vanilla);
        Figure::of(pairs.map(|(visit, vanilla)| value(visit) / value(vanilla)))
    };
    let each = |value: fn(&Visit) -> f64| Figure::of(visits.iter().map(value));
    Gain {
        cpus,
        runnable,
        layout,
        by_clock: ratio(|visit| visit.done / visit.wall_s),
        by_cpu_time: ratio(|visit| visit.done / visit.cpu_s),
        a_second: each(|visit| visit.done / visit.wall_s),
        cpu_us: each(|visit| 1e6 * visit.cpu_s / visit.done),
        published_percent: None,
    }
}

fn held((cpus, runnable, layout): (u32, u32, Layout), visits: &[Visit]) -> Held {
    let each = |value: fn(&Visit) -> f64| Figure::of(visits.iter().map(value));
    let sum = |value: fn(&Visit) -> u64| visits.iter().map(value).sum::<u64>();
    let attempts = sum(|visit| visit.lock.attempts);
    Held {
        cpus,
        runnable,
        layout,
        attempts,
        contended: sum(|visit| visit.lock.contended),
        contention_percent: each(|visit| {
            100.0 * visit.lock.contended as f64 / visit.lock.attempts as f64
        }),
        hold_mean_us: each(|visit| visit.lock.held_ns as f64 / 1e3 / visit.lock.holds as f64),
        hold_max_us: visits.iter().map(|v| v.lock.held_ns_max).max().unwrap_or(0) as f64 / 1e3,
        tasks_a_walk: each(|visit| visit.tasks as f64 / visit.walks as f64),
        published: None,
    }
}

/// Lets the processors work for so long.
fn visit(stand: &Stand, time: Duration, stop: &AtomicBool) -> Result<Visit, Error> {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cpus = stand.begin();
    let (enough, start) = (AtomicBool::new(false), Barrier::new(cpus.len() + 1));
    let (wall_s, played) = std::thread::scope(|scope| {
        let play = |cpu: Cpu| {
            let (enough, start) = (&enough, &start);
            scope.spawn(move || play(stand, cpu, enough, start))
        };
        let threads: Vec<_> = cpus.into_iter().map(play).collect();
        LockKind::measure_all(true);
        start.wait();
        let begun = Instant::now();
        while begun.elapsed() < time && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(NAP.min(time.saturating_sub(begun.elapsed())));
        }
        enough.store(true, Ordering::Relaxed);
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
    Ok(Visit { done, wall_s, cpu_s, lock: lock_use(), walks, tasks })
}

/// One processor: what it did, and its CPU time in nanoseconds.
fn play(
    stand: &Stand,
    mut cpu: Cpu,
    enough: &AtomicBool,
    start: &Barrier,
) -> Result<(Cpu, u64), Error> {
    let pinned = load::sys::pin_to_cpu(cpu.number());
    start.wait();
    pinned.map_err(|error| {
        Error::System("a processor cannot be used; leave it out of --cpus", error)
    })?;
    let before = load::sys::thread_cpu_ns();
    // A few steps at least: on a busy machine the time may be over before the thread gets to run.
    loop {
        for _ in 0..STEPS {
            let woken = stand.woken();
            if !stand.step(&mut cpu, &mut ()) {
                // As the idle task did: it looks at a word, not at the lock.
                while stand.woken() == woken && !enough.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
                break;
            }
        }
        if enough.load(Ordering::Relaxed) {
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
    fn every_cell_is_timed_and_what_is_compared_is_compared_with_vanilla() {
        let arena = Arena::new(Driver::blocks(100, 2));
        let cpus = if std::thread::available_parallelism().is_ok_and(|n| n.get() > 1) {
            vec![1, 2]
        } else {
            vec![1]
        };
        let stop = AtomicBool::new(false);
        let timed = measure(&plan(), &cpus, &arena, &stop, &mut |_| {}).unwrap();
        let cells = Driver::ALL.len() * cpus.len() * LAYOUTS.len();
        assert_eq!((timed.gains.len(), timed.held.len()), (cells, cells));
        for (driver, gain) in &timed.gains {
            assert!(gain.cpu_us.value > 0.0, "{driver} {gain:?}");
            assert!(gain.layout != Layout::Vanilla || gain.by_cpu_time.value == 1.0, "{gain:?}");
        }
        for (driver, held) in &timed.held {
            assert!(held.attempts > 0 && held.contended <= held.attempts, "{driver} {held:?}");
            assert!(held.hold_max_us >= held.hold_mean_us.value, "{driver} {held:?}");
            if *driver == Driver::WebBench && held.layout != Layout::MultiQueue {
                assert!(held.tasks_a_walk.value > 90.0, "{held:?}");
            }
            // One processor alone waits for nobody.
            assert!(held.cpus > 1 || held.contended == 0, "{held:?}");
        }
    }

    #[test]
    fn it_ends_when_it_is_told_to() {
        let arena = Arena::new(Driver::blocks(100, 2));
        let stopped = measure(&plan(), &[1], &arena, &AtomicBool::new(true), &mut |_| {});
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }
}
