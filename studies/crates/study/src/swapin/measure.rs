//! The rounds: objects are written, then read by all readers in turn, from a warm page cache and
//! from a cold one.
//!
//! Results that are compared are measured side by side: each object by each reader, in a random
//! order of objects and readers, so that drift and warming up affect all alike. Warm: everything
//! was read once before the round. Cold: before each read, its file (for the store: all segments)
//! is removed from the page cache. The number of bytes that the kernel fetched from the device
//! shows whether that worked. Names and inodes stay in memory, and the device's own cache is
//! unknown.

use std::io;
use std::path::Path;
use std::time::Instant;

use regress::Rng;
use runtime::Runtime;
use store::disk::BLOCK_BYTES;

use super::files::{Files, Reader, forget_cached};
use super::ours::{self, Ours};
use super::sample::{Rows, Sample};
use super::{Plan, bins};
use crate::found::Steps;
use harness::environment::fetched_bytes;
use harness::rounds::shuffle;

/// How often each object is written.
const WRITES: usize = 3;
/// The part of the bytes read in the cold rounds that must have come from the device.
const COLD_PART_MIN: f64 = 0.9;

/// A set of objects, and the size of the blocks in which they are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Set {
    pub(super) name: &'static str,
    pub(super) block_bytes: u64,
    pub(super) size_kib_max: u64,
    /// Whether our store is one of the readers: its blocks have this length.
    pub(super) ours: bool,
}

impl Set {
    /// Objects of up to four blocks of our store.
    pub(super) const OURS: Set = Set {
        name: "blocks of 32 KiB",
        block_bytes: BLOCK_BYTES as u64,
        size_kib_max: 4 * BLOCK_BYTES as u64 / 1024,
        ours: true,
    };
    /// Objects of up to four blocks of the Squid of 1997.
    pub(super) const OF_1997: Set =
        Set { name: "blocks of 8 KiB", block_bytes: 8192, size_kib_max: 32, ours: false };
}

/// The measurements of a set.
pub(super) struct Found {
    pub(super) warm: Vec<(Reader, Rows)>,
    pub(super) cold: Vec<(Reader, Rows)>,
    pub(super) out: Vec<(Reader, Rows)>,
    pub(super) cold_asked_bytes: u64,
    pub(super) cold_fetched_bytes: Option<u64>,
}

impl Found {
    pub(super) fn was_cold(&self) -> bool {
        let asked = self.cold_asked_bytes as f64;
        self.cold_fetched_bytes.is_some_and(|fetched| fetched as f64 >= COLD_PART_MIN * asked)
    }
}

/// Measures a set on a new runtime.
pub(super) fn measure(
    set: &Set,
    home: &Path,
    plan: &Plan,
    until: Instant,
    rng: &mut Rng,
    steps: &mut Steps<'_>,
) -> io::Result<Found> {
    let mut runtime = Runtime::new(runtime::Options::default())?;
    runtime.block_on(async {
        let mut bench = Bench::new(set, home, plan.objects as usize, rng).await?;
        steps.say(&format!("{}: writing {} objects", set.name, plan.objects));
        bench.write_all(rng, steps).await?;
        for round in 1..=plan.repeat.rounds {
            if round > 1 && Instant::now() > until {
                steps.say(&format!("{}: the time is up after {} rounds", set.name, round - 1));
                break;
            }
            steps.say(&format!("{}: round {round} of {}", set.name, plan.repeat.rounds));
            bench.warm_round(rng, steps).await?;
            bench.cold_round(rng, steps).await?;
        }
        Ok(bench.finish().await)
    })
}

struct Bench {
    readers: Vec<Reader>,
    sizes: Vec<u64>,
    /// All bodies are prefixes of it.
    content: Vec<u8>,
    ours: Option<Ours>,
    files: Files,
    buffer: Vec<u8>,
    found: Found,
}

impl Bench {
    async fn new(set: &Set, home: &Path, objects: usize, rng: &mut Rng) -> io::Result<Bench> {
        let sizes = bins::sizes(objects, set.size_kib_max, rng);
        let home = home.join(format!("blocks-of-{}", set.block_bytes));
        std::fs::create_dir(&home)?;
        let block_bytes = usize::try_from(set.block_bytes).unwrap_or(usize::MAX);
        let files = Files::new(home.join("files"), block_bytes)?;
        let ours = match set.ours {
            true => Some(Ours::open(&home.join("store"), sizes.iter().sum()).await?),
            false => None,
        };
        let all = Reader::ALL.into_iter();
        let readers: Vec<Reader> = all.filter(|r| set.ours || *r != Reader::Store).collect();
        let rows = |reader: &Reader| {
            let blocks = |size: u64| match reader {
                Reader::Store => ours::blocks(size),
                _ => files.blocks(size),
            };
            (*reader, Rows::new(sizes.iter().map(|size| (*size, blocks(*size))).collect()))
        };
        let writes = |reader: &&Reader| matches!(reader, Reader::Store | Reader::Exact);
        let found = Found {
            warm: readers.iter().map(rows).collect(),
            cold: readers.iter().map(rows).collect(),
            out: readers.iter().filter(writes).map(rows).collect(),
            cold_asked_bytes: 0,
            cold_fetched_bytes: fetched_bytes().map(|_| 0),
        };
        let content = (0..set.size_kib_max * 1024).map(|_| rng.next_u64() as u8).collect();
        let buffer = vec![0; block_bytes];
        Ok(Bench { readers, sizes, content, ours, files, buffer, found })
    }

    async fn write_all(&mut self, rng: &mut Rng, steps: &Steps<'_>) -> io::Result<()> {
        for _ in 0..WRITES {
            for object in shuffled(self.sizes.len(), rng) {
                check(steps)?;
                let body = &self.content[..self.sizes[object] as usize];
                for (reader, rows) in &mut self.found.out {
                    let sample = match (*reader, &self.ours) {
                        (Reader::Store, Some(ours)) => ours.write(object, body).await?,
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
            // Only data that is on the disk can be removed from the page cache.
            std::fs::File::open(self.files.path(object))?.sync_data()?;
        }
        Ok(())
    }

    async fn warm_round(&mut self, rng: &mut Rng, steps: &Steps<'_>) -> io::Result<()> {
        for object in 0..self.sizes.len() {
            for at in 0..self.readers.len() {
                self.read(self.readers[at], object).await?;
            }
        }
        for object in shuffled(self.sizes.len(), rng) {
            check(steps)?;
            for at in shuffled(self.readers.len(), rng) {
                let sample = self.read(self.readers[at], object).await?;
                self.found.warm[at].1.add(object, sample);
            }
        }
        Ok(())
    }

    async fn cold_round(&mut self, rng: &mut Rng, steps: &Steps<'_>) -> io::Result<()> {
        let before = fetched_bytes();
        for object in shuffled(self.sizes.len(), rng) {
            check(steps)?;
            for at in shuffled(self.readers.len(), rng) {
                match (self.readers[at], &self.ours) {
                    (Reader::Store, Some(ours)) => forget_cached(ours.segments())?,
                    _ => forget_cached(&self.files.path(object))?,
                }
                let sample = self.read(self.readers[at], object).await?;
                self.found.cold[at].1.add(object, sample);
                self.found.cold_asked_bytes += self.sizes[object];
            }
        }
        let fetched = fetched_bytes().zip(before).map(|(after, before)| after - before);
        let sum = self.found.cold_fetched_bytes.zip(fetched).map(|(sum, more)| sum + more);
        self.found.cold_fetched_bytes = sum;
        Ok(())
    }

    async fn read(&mut self, reader: Reader, object: usize) -> io::Result<Sample> {
        let len = self.sizes[object];
        let before = runtime::counters().file_reads_would_block;
        let mut sample = match (reader, &self.ours) {
            (Reader::Store, Some(ours)) => ours.read(object, len).await?,
            _ => self.files.read(object, len as usize, reader, &mut self.buffer).await?,
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

fn check(steps: &Steps<'_>) -> io::Result<()> {
    steps.interrupted().map_err(io::Error::other)
}

/// The numbers below `count` in a random order.
pub(super) fn shuffled(count: usize, rng: &mut Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    shuffle(&mut order, rng);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_random_order_has_each_number_once() {
        let mut order = shuffled(100, &mut Rng::new(3));
        assert_ne!(order, (0..100).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..100).collect::<Vec<_>>());
    }
}
