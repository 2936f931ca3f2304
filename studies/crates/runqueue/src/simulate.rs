//! Misses in the walk, on a simulated cache.
//!
//! Three questions: how often a walk over this many tasks misses on caches of 256, 512 and 1,024
//! KiB (Table 2 of the paper); where the bound `c >= 8 p / s` lies; and how often the walk misses
//! while the two workloads run on one or more processors (Tables 5 and 7). For the last question,
//! the timed program runs step by step. Each processor has its own cache, which loses lines that
//! another processor writes.
//!
//! What never happens: the first walks are counted, in which everything is new to the cache.

use regress::Rng;
use serde::Serialize;
use serde_json::{Value, json};

use crate::arena::{Arena, HAS_CPU, Palette, Task};
use crate::cache::{Cache, Machine, Misses};
use crate::drivers::{Driver, Workload, walkable};
use crate::frames::Frames;
use crate::queue::Watch;
use crate::{Facts, Layout};

/// Walks before the counted ones, and counted walks.
const WARM_WALKS: u32 = 3;
const WALKS: u32 = 3;
/// Steps of each processor before the counted ones, and counted steps.
const WARM_STEPS: u32 = 300;
const STEPS: u32 = 300;
/// How often random frames are drawn.
const DRAWS: u64 = 8;
/// Sizes of the second levels of 2002, KiB.
pub const L2_KIB: [u64; 3] = [256, 512, 1024];
/// The tested cells of the bound: colours.
pub const BOUND_COLOURS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// The tested cells of the bound: runnable tasks.
const BOUND_RUNNABLE: [u32; 6] = [32, 64, 128, 256, 512, 1024];

/// One cell of the test of the bound.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Bound {
    /// Size of the second level, KiB.
    l2_kib: u64,
    /// Tasks on the list.
    runnable: u32,
    /// Colours.
    colours: u32,
    /// Whether the number of colours satisfies the bound.
    enough: bool,
    /// Misses per 100 tasks walked over, with dense frames.
    dense_percent: f64,
    /// With random frames.
    random_percent: f64,
    /// Whether, with dense frames, the walk has no misses if the bound is satisfied, and some
    /// otherwise.
    holds: bool,
}

/// Simulates the caches of all processors.
struct SimulatedCaches<'f> {
    caches: Vec<Cache>,
    cpu: usize,
    frames: &'f Frames,
    walk: Misses,
    rest: Misses,
}

impl SimulatedCaches<'_> {
    fn new<'f>(machine: &Machine, cpus: u32, frames: &'f Frames) -> SimulatedCaches<'f> {
        let caches = (0..cpus).map(|_| Cache::new(machine)).collect();
        SimulatedCaches { caches, cpu: 0, frames, walk: Misses::default(), rest: Misses::default() }
    }
}

impl Watch for SimulatedCaches<'_> {
    fn walked(&mut self, task: Task) {
        let address = self.frames.address(task.word(HAS_CPU));
        self.caches[self.cpu].touch(address, 8, &mut self.walk);
    }

    fn read(&mut self, word: u32, bytes: u32) {
        // No piece that is read or written crosses a page boundary.
        let address = self.frames.address(word);
        self.caches[self.cpu].touch(address, u64::from(bytes), &mut self.rest);
    }

    fn wrote(&mut self, word: u32, bytes: u32) {
        self.read(word, bytes);
        let address = self.frames.address(word);
        for (cpu, cache) in self.caches.iter_mut().enumerate() {
            if cpu != self.cpu {
                cache.forget(address, u64::from(bytes));
            }
        }
    }
}

/// Misses of the second level in a walk over this many tasks, percent of the tasks.
fn walk(
    arena: &Arena,
    machine: &Machine,
    (layout, runnable): (Layout, u32),
    frames: &Frames,
    seed: u64,
) -> f64 {
    let palette = Palette::of(layout, machine);
    let queue = walkable(arena, &palette, runnable, &|block| frames.number(block), seed);
    let mut seen = SimulatedCaches::new(machine, 1, frames);
    for turn in 0..WARM_WALKS + WALKS {
        if turn == WARM_WALKS {
            seen.walk = Misses::default();
        }
        queue.only_walk(&mut seen);
    }
    seen.walk.l2_percent()
}

/// The mean over draws of random frames.
fn walk_at_random(arena: &Arena, machine: &Machine, what: (Layout, u32), seed: u64) -> f64 {
    let one = |draw: u64| {
        let mut rng = Rng::new(seed + draw);
        walk(arena, machine, what, &Frames::random(arena.blocks(), &mut rng), seed + draw)
    };
    (0..DRAWS).map(one).sum::<f64>() / DRAWS as f64
}

/// Walks alone, on the caches of 2002 and on this machine's: tasks walked over that were not in the
/// second level, with dense and with random frames.
pub(super) fn walks(arena: &Arena, runnable: &[u32], facts: &Facts, seed: u64) -> Vec<Value> {
    let mut machines: Vec<Machine> = L2_KIB.map(Machine::of_2002).to_vec();
    machines.push(Machine::of_today());
    let dense = Frames::dense(arena.blocks());
    let mut walked = Vec::new();
    for (at, machine) in machines.iter().enumerate() {
        let (l2_kib, of_2002) = (machine.l2.bytes / 1024, at < L2_KIB.len());
        for &runnable in runnable {
            for layout in [Layout::Vanilla, Layout::Colours(32), Layout::ColoursBySetIndex(32)] {
                let (what, known) = ((layout, runnable), of_2002 && runnable == PUBLISHED_RUNNABLE);
                walked.push(json!({
                    "machine": machine.name,
                    "cache": machine.short(),
                    "of_2002": of_2002,
                    "l2_kib": l2_kib,
                    "runnable": runnable,
                    "layout": layout,
                    "dense_percent": walk(arena, machine, what, &dense, seed),
                    "random_percent": walk_at_random(arena, machine, what, seed),
                    "published_percent": known.then(|| facts.by_size(l2_kib, layout)).flatten(),
                }));
            }
        }
    }
    walked
}

/// The number of tasks in Table 2.
const PUBLISHED_RUNNABLE: u32 = 1024;

/// Tests the bound in every cell.
pub(super) fn bound(seed: u64) -> Vec<Bound> {
    let mut cells = Vec::new();
    let arena = Arena::new(BOUND_RUNNABLE.into_iter().max().unwrap_or(0));
    let dense = Frames::dense(arena.blocks());
    for l2_kib in L2_KIB {
        let machine = Machine::of_2002(l2_kib);
        for runnable in BOUND_RUNNABLE {
            for colours in BOUND_COLOURS {
                let what = (Layout::Colours(colours), runnable);
                let enough = u64::from(colours) * l2_kib >= 8 * u64::from(runnable);
                let dense_percent = walk(&arena, &machine, what, &dense, seed);
                cells.push(Bound {
                    l2_kib,
                    runnable,
                    colours,
                    enough,
                    dense_percent,
                    random_percent: walk_at_random(&arena, &machine, what, seed),
                    holds: enough == (dense_percent == 0.0),
                });
            }
        }
    }
    cells
}

/// What a workload did on simulated caches.
pub(super) struct Driven {
    /// Tasks per walk.
    pub(super) tasks_a_walk: f64,
    /// Accesses and misses of the walk.
    pub(super) walk: Misses,
    /// Accesses and misses of everything else.
    pub(super) rest: Misses,
}

/// Runs a workload on simulated caches.
pub(super) fn driven(
    arena: &Arena,
    machine: &Machine,
    (driver, layout): (Driver, Layout),
    (runnable, cpus): (u32, u32),
    seed: u64,
) -> Driven {
    let frames = Frames::dense(arena.blocks());
    let palette = Palette::of(layout, machine);
    let number = |block| frames.number(block);
    let what = (driver, layout);
    let workload = Workload::new(arena, what, (runnable, cpus), &palette, &number, seed);
    let mut seen = SimulatedCaches::new(machine, cpus, &frames);
    let mut each = workload.begin();
    let mut before = (0, 0);
    for step in 0..WARM_STEPS + STEPS {
        if step == WARM_STEPS {
            (seen.walk, seen.rest) = (Misses::default(), Misses::default());
            before = walked(&each);
        }
        for (number, cpu) in each.iter_mut().enumerate() {
            seen.cpu = number;
            workload.step(cpu, &mut seen);
        }
    }
    let (walks, tasks) = walked(&each);
    let tasks_a_walk = (tasks - before.1) as f64 / (walks - before.0).max(1) as f64;
    Driven { tasks_a_walk, walk: seen.walk, rest: seen.rest }
}

fn walked(cpus: &[crate::drivers::Cpu]) -> (u64, u64) {
    cpus.iter().fold((0, 0), |sum, cpu| (sum.0 + cpu.walks.walks, sum.1 + cpu.walks.tasks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_dense_frames_vanilla_always_misses_and_32_colours_almost_never() {
        let machine = Machine::of_2002(1024);
        let arena = Arena::new(Driver::blocks(1024, 2));
        let dense = Frames::dense(arena.blocks());
        for runnable in [256, 1024] {
            let of = |layout| walk(&arena, &machine, (layout, runnable), &dense, 1);
            assert!((of(Layout::Vanilla) - 99.0).abs() <= 5.0, "{}", of(Layout::Vanilla));
            assert!(of(Layout::Colours(32)) < 10.0, "{}", of(Layout::Colours(32)));
            // A colour that follows the set index gains nothing.
            assert_eq!(of(Layout::ColoursBySetIndex(32)), of(Layout::Vanilla));
            // The same holds while a workload runs.
            let driven = |layout| {
                let what = (Driver::WebBench, layout);
                driven(&arena, &machine, what, (runnable, 1), 1).walk.l2_percent()
            };
            assert!((driven(Layout::Vanilla) - 99.0).abs() <= 5.0, "{}", driven(Layout::Vanilla));
            assert!(driven(Layout::Colours(32)) < 10.0, "{}", driven(Layout::Colours(32)));
            let by_set = driven(Layout::ColoursBySetIndex(32));
            assert!(by_set > 90.0, "{by_set}");
        }
    }

    #[test]
    fn the_bound_of_colours_holds_in_every_dense_cell() {
        let cells = bound(1);
        assert_eq!(cells.len(), 3 * 6 * 6);
        for cell in &cells {
            assert!(cell.holds, "{cell:?}");
            // With these powers of two, either all tasks miss or none.
            let expected = if cell.enough { 0.0 } else { 100.0 };
            assert_eq!(cell.dense_percent, expected, "{cell:?}");
            assert!(cell.enough || cell.random_percent > 0.0, "{cell:?}");
        }
        assert!(cells.iter().any(|cell| cell.enough) && cells.iter().any(|cell| !cell.enough));
    }

    #[test]
    fn random_frames_are_worse_than_dense_ones_and_better_with_a_larger_cache() {
        let arena = Arena::new(1024);
        let what = (Layout::Colours(32), 1024);
        let [small, middle, large] =
            L2_KIB.map(|kib| walk_at_random(&arena, &Machine::of_2002(kib), what, 1));
        // A program that walked under cachegrind had 57, 14 and 2 percent.
        assert!((small - 57.0).abs() < 5.0, "{small}");
        assert!((middle - 14.0).abs() < 4.0, "{middle}");
        assert!((large - 2.0).abs() < 2.0 && large > 0.0, "{large}");
    }

    #[test]
    fn lines_that_another_processor_writes_are_missed() {
        let machine = Machine::of_2002(1024);
        let arena = Arena::new(Driver::blocks(64, 2));
        let of =
            |cpus| driven(&arena, &machine, (Driver::WebBench, Layout::Colours(32)), (64, cpus), 1);
        assert_eq!(of(1).walk.l2, 0, "64 tasks fit");
        assert!(of(2).walk.l2 > 0, "the lines that the other processor took");
        assert!(of(2).tasks_a_walk > 60.0);
    }
}
