//! One object, read or written once; and all of that over the rounds.

use std::time::Duration;

use serde::Serialize;

use super::bins::{Bin, binned, median};
use super::patterns::Object;

/// The system calls that one object took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Took {
    /// Reads.
    pub(super) reads: u32,
    /// Of these, such as gave nothing.
    pub(super) zero: u32,
    /// Of these, such as gave a part only, because no more was in the page cache.
    pub(super) short: u32,
    /// Of these, such as would have blocked and went to the pool.
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
        Sample { first_us: us(first), total_us: us(total), took }
    }

    pub(super) fn total_us(&self) -> f64 {
        self.total_us
    }
}

fn us(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Reads, counted exactly.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Reads {
    /// Objects that were read, in all rounds.
    pub objects: u64,
    /// Blocks they have: what must be read.
    pub blocks: u64,
    /// Reads that were made.
    pub reads: u64,
    /// Of these, such as gave nothing: the end of the file was passed.
    pub zero: u64,
    /// Of these, such as gave a part of what was asked for, because the page cache had no more;
    /// another brought the rest.
    pub short: u64,
    /// Reads that would have blocked the core, and were made by the pool.
    pub would_block: u64,
    /// Objects for which one read a block was made, short ones not counted, and none more.
    pub exact: u64,
    /// Objects for which one read more was made, that gave nothing.
    pub one_more: u64,
}

/// One way of one direction through the cache in one state: an object a row, a sample a round.
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

    /// The most samples that an object has.
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

    /// Each object as it is read well, with the median of what it takes longer in `other`, round
    /// by round.
    pub(super) fn longer_in(&self, other: &Rows) -> Vec<(Object, f64)> {
        let differences = self.samples.iter().zip(&other.samples).map(|(well, ill)| {
            median(well.iter().zip(ill).map(|(well, ill)| ill.total_us() - well.total_us()))
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
    fn an_object_is_its_medians_and_reads_are_counted_exactly() {
        let mut well = Rows::new(vec![(100, 1), (9000, 2)]);
        let mut ill = well.clone();
        for round in 0..3 {
            well.add(0, sample(10 + round, 10 + round, 1, 0));
            well.add(1, sample(10, 20, 2, 0));
            ill.add(0, sample(15 + round, 15 + round, 2, 1));
            ill.add(1, sample(10, 24 + 10 * round, 3, 1));
        }
        let object = Object { size: 100, blocks: 1, first_us: 11.0, total_us: 11.0 };
        assert_eq!(well.objects()[0], object);
        let all = Reads { objects: 6, blocks: 9, ..Reads::default() };
        assert_eq!(well.reads(), Reads { reads: 9, exact: 6, ..all.clone() });
        assert_eq!(ill.reads(), Reads { reads: 15, zero: 6, one_more: 6, ..all });
        let longer = well.longer_in(&ill);
        assert_eq!([longer[0].1, longer[1].1], [5.0, 14.0]);
        assert_eq!(well.bins().len(), 2);
    }
}
