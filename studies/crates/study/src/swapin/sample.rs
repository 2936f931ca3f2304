//! One object, read or written once, and the samples of all rounds.

use std::time::Duration;

use serde::Serialize;

use super::bins::{Bin, binned, median};
use super::patterns::Object;

/// The system calls that one object took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Took {
    /// Reads.
    pub(super) reads: u32,
    /// Reads that gave nothing.
    pub(super) zero: u32,
    /// Reads that gave only a part, because the page cache had no more.
    pub(super) short: u32,
    /// Reads that would have blocked and went to the pool.
    pub(super) would_block: u32,
}

/// One object, once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    first_us: f64,
    total_us: f64,
    pub(super) took: Took,
}

impl Sample {
    pub(super) fn new(first: Duration, total: Duration, took: Took) -> Sample {
        let us = |duration: Duration| duration.as_secs_f64() * 1e6;
        Sample { first_us: us(first), total_us: us(total), took }
    }
}

/// Reads, counted exactly.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Reads {
    /// Objects read in all rounds.
    objects: u64,
    /// Their blocks, which have to be read.
    blocks: u64,
    /// Reads that were made.
    reads: u64,
    /// Reads at the end of a file, which gave nothing.
    zero: u64,
    /// Reads that gave a part of the requested bytes, because the page cache had no more; another
    /// read gave the rest.
    short: u64,
    /// Reads that would have blocked the core and were made by the pool.
    would_block: u64,
    /// Objects with exactly one read for each block, not counting short ones.
    exact: u64,
    /// Objects with one more read, which gave nothing.
    one_more: u64,
}

/// The samples of one reader in one direction with the cache in one state: a row for each object, a
/// sample for each round.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    sizes: Vec<(u64, u32)>,
    samples: Vec<Vec<Sample>>,
}

impl Rows {
    /// For objects of these sizes and blocks.
    pub(super) fn new(sizes: Vec<(u64, u32)>) -> Rows {
        let samples = vec![Vec::new(); sizes.len()];
        Rows { sizes, samples }
    }

    pub(super) fn add(&mut self, object: usize, sample: Sample) {
        self.samples[object].push(sample);
    }

    /// Objects with the medians of their samples.
    pub(super) fn objects(&self) -> Vec<Object> {
        let with = self.sizes.iter().zip(&self.samples).filter(|(_, samples)| !samples.is_empty());
        with.map(|((size, blocks), samples)| Object {
            size: *size,
            blocks: *blocks,
            first_us: median(samples.iter().map(|sample| sample.first_us)),
            total_us: median(samples.iter().map(|sample| sample.total_us)),
        })
        .collect()
    }

    /// The plot: medians by bin of all samples.
    pub(super) fn bins(&self) -> Vec<Bin> {
        let mut all = Vec::new();
        for ((size, _), samples) in self.sizes.iter().zip(&self.samples) {
            all.extend(samples.iter().map(|sample| (*size, sample.first_us, sample.total_us)));
        }
        binned(&all)
    }

    /// The highest number of samples of an object.
    pub(super) fn rounds(&self) -> usize {
        self.samples.iter().map(Vec::len).max().unwrap_or(0)
    }

    pub(super) fn reads(&self) -> Reads {
        let mut reads = Reads::default();
        for ((_, blocks), samples) in self.sizes.iter().zip(&self.samples) {
            for took in samples.iter().map(|sample| sample.took) {
                let Took { reads: made, zero, short, would_block } = took;
                reads.objects += 1;
                reads.blocks += u64::from(*blocks);
                reads.reads += u64::from(made);
                reads.zero += u64::from(zero);
                reads.would_block += u64::from(would_block);
                reads.short += u64::from(short);
                reads.exact += u64::from(made == blocks + short && zero == 0);
                reads.one_more += u64::from(made == blocks + short + 1 && zero == 1);
            }
        }
        reads
    }

    /// Each object of these rows, with the median of how much longer it takes in `other`, compared
    /// round by round.
    pub(super) fn longer_in(&self, other: &Rows) -> Vec<(Object, f64)> {
        let differences = self.samples.iter().zip(&other.samples).map(|(fixed, broken)| {
            median(fixed.iter().zip(broken).map(|(fixed, broken)| broken.total_us - fixed.total_us))
        });
        self.objects().into_iter().zip(differences).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(first: u64, total: u64, reads: u32, zero: u32) -> Sample {
        let took = Took { reads, zero, ..Took::default() };
        Sample::new(Duration::from_micros(first), Duration::from_micros(total), took)
    }

    #[test]
    fn an_object_has_the_medians_of_its_samples_and_reads_are_counted_exactly() {
        let mut fixed = Rows::new(vec![(100, 1), (9000, 2)]);
        let mut broken = fixed.clone();
        for round in 0..3 {
            fixed.add(0, sample(10 + round, 10 + round, 1, 0));
            fixed.add(1, sample(10, 20, 2, 0));
            broken.add(0, sample(15 + round, 15 + round, 2, 1));
            broken.add(1, sample(10, 24 + 10 * round, 3, 1));
        }
        let object = Object { size: 100, blocks: 1, first_us: 11.0, total_us: 11.0 };
        assert_eq!(fixed.objects()[0], object);
        let all = Reads { objects: 6, blocks: 9, ..Reads::default() };
        assert_eq!(fixed.reads(), Reads { reads: 9, exact: 6, ..all.clone() });
        assert_eq!(broken.reads(), Reads { reads: 15, zero: 6, one_more: 6, ..all });
        let longer = fixed.longer_in(&broken);
        assert_eq!([longer[0].1, longer[1].1], [5.0, 14.0]);
        assert_eq!(fixed.bins().len(), 2);
    }
}
