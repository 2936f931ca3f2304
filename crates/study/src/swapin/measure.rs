//! The rounds: objects are written, then read by all readers in turn, from a warm page cache and
//! from a cold one.
//!
//! What is compared is measured side by side: each object by each reader, the order of objects and
//! of readers drawn anew, so that what drifts with time or warms up meets all alike. Warm: all was
//! read once before the round. Cold: before each single read, its file (of the store: all segments)
//! is taken out of the page cache; whether that worked is told by the bytes that the kernel fetched
//! from the device. Names and inodes stay in memory, and what the device itself keeps is not known.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use regress::Rng;
use runtime::Runtime;
use store::disk::BLOCK_BYTES;

use super::files::{self, Files, forget_cached};
use super::ours::{self, Ours};
use super::sample::{Rows, Sample};
use super::{Error, Plan, bins};
use harness::environment::fetched_bytes;
use harness::rounds::shuffle;

/// How often each object is written.
const WRITES: usize = 3;
/// Of the bytes that were read in the cold, so many must have come from the device.
const COLD_PART_MIN: f64 = 0.9;

/// Objects, and the blocks they are read by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set {
    pub(super) name: &'static str,
    pub(super) block_bytes: u64,
    pub(super) size_kib_max: u64,
    /// Our store is among the readers: its blocks are so long.
    pub(super) ours: bool,
}

impl Set {
    /// Up to four blocks of our store.
    pub(super) const OURS: Set = Set {
        name: "blocks of 32 KiB",
        block_bytes: BLOCK_BYTES as u64,
        size_kib_max: 4 * BLOCK_BYTES as u64 / 1024,
        ours: true,
    };
    /// Up to four blocks of the Squid of 1997.
    pub(super) const OF_1997: Set =
        Set { name: "blocks of 8 KiB", block_bytes: 8192, size_kib_max: 32, ours: false };
}

/// A reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Store,
    Exact,
    Again,
    Scheduled,
}

impl Way {
    const ALL: [Way; 4] = [Way::Store, Way::Exact, Way::Again, Way::Scheduled];

    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Store => "store",
            Way::Exact => "exact",
            Way::Again => "again",
            Way::Scheduled => "scheduled",
        }
    }
}

/// What was measured of a set.
pub(super) struct Found {
    pub(super) warm: Vec<(Way, Rows)>,
    pub(super) cold: Vec<(Way, Rows)>,
    pub(super) out: Vec<(Way, Rows)>,
    pub(super) cold_asked_bytes: u64,
    pub(super) cold_fetched_bytes: Option<u64>,
}

impl Found {
    pub(super) fn was_cold(&self) -> bool {
        let asked = self.cold_asked_bytes as f64;
        self.cold_fetched_bytes.is_some_and(|fetched| fetched as f64 >= COLD_PART_MIN * asked)
    }
}

/// Measures a set on a runtime of its own.
pub(super) fn measure(
    set: &Set,
    home: &Path,
    plan: &Plan,
    until: Instant,
    rng: &mut Rng,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<Found, Error> {
    let mut runtime = Runtime::new(runtime::Options::default())?;
    runtime.block_on(async {
        let mut bench = Bench::new(set, home, plan.objects, rng).await?;
        say(&format!("{}: writing {} objects", set.name, plan.objects));
        bench.write_all(rng, stop).await?;
        for round in 1..=plan.rounds {
            if round > 1 && Instant::now() > until {
                say(&format!("{}: the time is up after {} rounds", set.name, round - 1));
                break;
            }
            say(&format!("{}: round {round} of {}", set.name, plan.rounds));
            bench.warm_round(rng, stop).await?;
            bench.cold_round(rng, stop).await?;
        }
        Ok(bench.finish().await)
    })
}

struct Bench {
    ways: Vec<Way>,
    sizes: Vec<u64>,
    /// The bodies are beginnings of it.
    content: Vec<u8>,
    ours: Option<Ours>,
    files: Files,
    buffer: Vec<u8>,
    found: Found,
}

impl Bench {
    async fn new(set: &Set, home: &Path, objects: usize, rng: &mut Rng) -> Result<Bench, Error> {
        let sizes = bins::sizes(objects, set.size_kib_max, rng);
        let home = home.join(format!("blocks-of-{}", set.block_bytes));
        std::fs::create_dir(&home)?;
        let block_bytes = usize::try_from(set.block_bytes).unwrap_or(usize::MAX);
        let files = Files::new(home.join("files"), block_bytes)?;
        let ours = match set.ours {
            true => Some(Ours::open(&home.join("store"), sizes.iter().sum()).await?),
            false => None,
        };
        let ways: Vec<Way> =
            Way::ALL.into_iter().filter(|way| set.ours || *way != Way::Store).collect();
        let rows = |way: &Way| {
            let blocks = |size: u64| match way {
                Way::Store => ours::blocks(size),
                _ => files.blocks(size),
            };
            (*way, Rows::new(sizes.iter().map(|size| (*size, blocks(*size))).collect()))
        };
        let written = |way: &&Way| matches!(way, Way::Store | Way::Exact);
        let found = Found {
            warm: ways.iter().map(rows).collect(),
            cold: ways.iter().map(rows).collect(),
            out: ways.iter().filter(written).map(rows).collect(),
            cold_asked_bytes: 0,
            cold_fetched_bytes: fetched_bytes().map(|_| 0),
        };
        let content = (0..set.size_kib_max * 1024).map(|_| rng.next_u64() as u8).collect();
        let buffer = vec![0; block_bytes];
        Ok(Bench { ways, sizes, content, ours, files, buffer, found })
    }

    async fn write_all(&mut self, rng: &mut Rng, stop: &AtomicBool) -> Result<(), Error> {
        for _ in 0..WRITES {
            for object in shuffled(self.sizes.len(), rng) {
                go_on(stop)?;
                let body = &self.content[..self.sizes[object] as usize];
                for (way, rows) in &mut self.found.out {
                    let sample = match (*way, &self.ours) {
                        (Way::Store, Some(ours)) => ours.write(object, body).await?,
                        _ => self.files.write(object, body)?,
                    };
                    rows.add(object, sample);
                }
            }
        }
        if let Some(ours) = &self.ours {
            ours.sync().await?;
        }
        for object in 0..self.sizes.len() {
            // Only what is on the disk can be taken out of the page cache.
            std::fs::File::open(self.files.path(object))?.sync_data()?;
        }
        Ok(())
    }

    async fn warm_round(&mut self, rng: &mut Rng, stop: &AtomicBool) -> Result<(), Error> {
        for object in 0..self.sizes.len() {
            for at in 0..self.ways.len() {
                self.read(self.ways[at], object).await?;
            }
        }
        for object in shuffled(self.sizes.len(), rng) {
            go_on(stop)?;
            for at in shuffled(self.ways.len(), rng) {
                let sample = self.read(self.ways[at], object).await?;
                self.found.warm[at].1.add(object, sample);
            }
        }
        Ok(())
    }

    async fn cold_round(&mut self, rng: &mut Rng, stop: &AtomicBool) -> Result<(), Error> {
        let before = fetched_bytes();
        for object in shuffled(self.sizes.len(), rng) {
            go_on(stop)?;
            for at in shuffled(self.ways.len(), rng) {
                match (self.ways[at], &self.ours) {
                    (Way::Store, Some(ours)) => forget_cached(ours.segments())?,
                    _ => forget_cached(&self.files.path(object))?,
                }
                let sample = self.read(self.ways[at], object).await?;
                self.found.cold[at].1.add(object, sample);
                self.found.cold_asked_bytes += self.sizes[object];
            }
        }
        let fetched = fetched_bytes().zip(before).map(|(after, before)| after - before);
        let sum = self.found.cold_fetched_bytes.zip(fetched).map(|(sum, more)| sum + more);
        self.found.cold_fetched_bytes = sum;
        Ok(())
    }

    async fn read(&mut self, way: Way, object: usize) -> Result<Sample, Error> {
        let len = self.sizes[object];
        let before = runtime::counters().file_reads_would_block;
        let way = match (way, &self.ours) {
            (Way::Store, Some(ours)) => Err(ours.read(object, len).await?),
            (Way::Again, _) => Ok(files::Way::Again),
            (Way::Scheduled, _) => Ok(files::Way::Scheduled),
            (Way::Store | Way::Exact, _) => Ok(files::Way::Exact),
        };
        let mut sample = match way {
            Err(of_store) => of_store,
            Ok(way) => self.files.read(object, len as usize, way, &mut self.buffer).await?,
        };
        let would_block = runtime::counters().file_reads_would_block - before;
        sample.took.would_block = u32::try_from(would_block).unwrap_or(u32::MAX);
        Ok(sample)
    }

    async fn finish(self) -> Found {
        if let Some(ours) = self.ours {
            ours.close().await;
        }
        self.found
    }
}

fn go_on(stop: &AtomicBool) -> Result<(), Error> {
    if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(()) }
}

/// The numbers below `count`, in an order that is drawn.
pub(super) fn shuffled(count: usize, rng: &mut Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    shuffle(&mut order, rng);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_is_drawn_has_each_once() {
        let mut order = shuffled(100, &mut Rng::new(3));
        assert_ne!(order, (0..100).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }
}
