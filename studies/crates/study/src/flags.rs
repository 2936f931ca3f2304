//! The flags that several studies have, each declared once with its help.

use std::ops::{RangeBounds, RangeInclusive};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::RangedI64ValueParser;
use command::flags::parse_duration;

/// The length of a visit: it has to be longer than its beginning, which does not count.
pub(crate) const VISIT: RangeInclusive<Duration> =
    Duration::from_millis(250)..=Duration::from_secs(600);

/// The flags of every study.
#[derive(Clone, Debug, Default, Args)]
pub struct Given {
    /// Write the result (NAME.json), its figures (SVG) and its trials to this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    /// Seed of everything that is random
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// How often a study measures everything.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Repeat {
    /// Rounds, each over all combinations
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count(1..=1000))]
    pub rounds: u32,
    /// No round begins after this time, even if more were requested
    #[arg(long = "for", value_name = "TIME", default_value = "3m", value_parser = parse_duration)]
    pub duration: Duration,
}

impl Repeat {
    /// Rounds that begin now. The short form has its own number of them.
    pub(crate) fn rounds(&self, quick: Option<usize>, seed: u64) -> harness::rounds::Rounds {
        let most = quick.unwrap_or(self.rounds as usize);
        harness::rounds::Rounds { most, begun: Instant::now(), time: self.duration, seed }
    }
}

/// Reads a number within bounds.
pub(crate) fn count(bounds: impl RangeBounds<i64>) -> RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(bounds)
}

/// The numbers, or the default ones, in ascending order and each once.
pub(crate) fn ascending<T: Ord + Copy>(numbers: &[T], default: &[T]) -> Vec<T> {
    let mut numbers = if numbers.is_empty() { default } else { numbers }.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
