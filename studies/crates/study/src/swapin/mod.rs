//! The swap-in bug of 1997 and its fix, on this machine.
//!
//! In 1997 Rousskov and Soloviev plotted the median disk response time of Squid 1.1.15 by object
//! size: the delays of the first block and of the whole object, in and out. The first block of a
//! swap-in, and only that, came sooner for objects of more than one block. The reader requested a
//! whole block, got the shorter object, took that for an unfinished read, read again and got 0. Our
//! store requests the exact length.
//!
//! What: the same plot ([`Plot`]) for our store; for readers of files with the old mistake and with
//! the fix, in blocks of our size and of the size of 1997; and for a real Squid, observed from
//! outside. Reads are counted exactly, delays are medians, and [`patterns`] says what holds today.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `bins` | the bins of the plot, medians, the sizes of the objects |
//! | `sample` | one object once, and over the rounds; reads, counted |
//! | `ours` | our store |
//! | `files` | the readers of 1997 |
//! | `measure` | the rounds: warm and cold, all readers in turn |
//! | `squid`, `trace` | a real Squid, and its trace by strace |
//! | [`patterns`] | what holds, what does not, what is inconclusive |
//! | `show` | what the page shows in addition to the outcome, and the figure |

mod bins;
mod files;
mod measure;
mod ours;
pub mod patterns;
mod sample;
mod show;
mod squid;
mod trace;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use harness::Error;
use regress::Rng;
use serde::Serialize;

pub use bins::Bin;
pub use harness::Environment;
pub use sample::Reads;
pub(crate) use show::{figure, for_page};

use crate::flags::{Given, Repeat};
use crate::found::Steps;
use files::Reader;
use harness::environment::Temporary;
use measure::Set;
use patterns::{Figure, Pattern};
use sample::{Rows, Sample, Took};

/// What to do.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("rounds", |arg| arg.default_value("20")))]
#[command(mut_arg("duration", |arg| arg.default_value("90s")))]
pub struct Plan {
    /// A directory on the file system to measure; the study removes its files again [default: the
    /// directory for temporary files]
    #[arg(long, value_name = "DIR")]
    path: Option<PathBuf>,
    /// Objects of each of the two sets (blocks of 32 KiB and of 8 KiB)
    #[arg(long, value_name = "N", default_value_t = 720,
        value_parser = clap::value_parser!(u32).range(1..=20_000))]
    objects: u32,
    #[command(flatten)]
    repeat: Repeat,
    /// Leave out the real Squid
    #[arg(long)]
    no_squid: bool,
    #[command(flatten)]
    pub(crate) given: Given,
}

/// One plot: medians by size, the reads, and the patterns that hold.
#[derive(Clone, Debug, Serialize)]
pub struct Plot {
    /// The reader: `store`, `exact`, `again`, `scheduled` or `squid`.
    pub who: &'static str,
    /// `in` or `out`.
    pub direction: &'static str,
    /// `warm` or `cold`: the page cache.
    pub cache: &'static str,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Samples of each object.
    pub rounds: usize,
    /// System calls of swap-ins.
    pub reads: Option<Reads>,
    /// Medians by bin.
    pub bins: Vec<Bin>,
    /// The patterns.
    pub patterns: Vec<Pattern>,
}

/// The cost of the old mistake, relative to reading the same files without it in the same rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Cost {
    /// `again` or `scheduled`.
    pub who: &'static str,
    /// `warm` or `cold`.
    pub cache: &'static str,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Microseconds an object, all sizes.
    pub us: Figure,
    /// In percent of the delay of an object of one block.
    pub loss: Pattern,
}

/// Whether the page cache was really cold in the cold rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Cold {
    /// Bytes of a block of the set.
    pub block_bytes: u64,
    /// Bytes of objects read in the cold rounds.
    pub asked_bytes: u64,
    /// Bytes that the kernel fetched from the device in these rounds, if it reports them.
    pub fetched_bytes: Option<u64>,
    /// Whether that is enough for the delays to be those of the device.
    pub cold: bool,
}

/// The result of observing a real Squid.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Peer {
    /// It was observed, and there are plots. The value is its version.
    Seen(String),
    /// It was not requested.
    LeftOut,
    /// It could not be observed, and why.
    NotSupported(String),
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Where it was measured.
    pub ground: Environment,
    /// Objects of each set.
    pub objects: usize,
    /// Seed of sizes and orders.
    pub seed: u64,
    /// The plots.
    pub plots: Vec<Plot>,
    /// The cost of the mistake.
    pub costs: Vec<Cost>,
    /// Whether the page cache was cold.
    pub cold: Vec<Cold>,
    /// The real Squid.
    pub squid: Peer,
}

/// The number of sizes requested from the real Squid, how often each is stored, and how often each
/// stored object is requested again. Under strace everything is slow.
const SQUID_SIZES_MAX: usize = 240;
const SQUID_WRITES: usize = 3;
const SQUID_ROUNDS_MAX: usize = 2;

/// Measures.
///
/// # Errors
/// The directory cannot be used; the store fails; interrupted.
pub fn run(plan: &Plan, steps: &mut Steps<'_>) -> Result<Outcome, Error> {
    let begun = Instant::now();
    let path = plan.path.clone().unwrap_or_else(std::env::temp_dir);
    let home = Temporary::new(&path, "swapin").map_err(|error| {
        let why = format!("{} cannot be used: {error}; choose another directory", path.display());
        Error::System("--path", io::Error::other(why))
    })?;
    let mut outcome = Outcome {
        ground: Environment::of(home.path()),
        objects: plan.objects as usize,
        seed: plan.given.seed,
        plots: Vec::new(),
        costs: Vec::new(),
        cold: Vec::new(),
        squid: Peer::LeftOut,
    };
    let mut rng = Rng::new(plan.given.seed);
    // The wider set has four times the bytes.
    for (set, part) in [(Set::OURS, 0.55), (Set::OF_1997, 0.8)] {
        let until = begun + plan.repeat.duration.mul_f64(part);
        let found = measure::measure(&set, home.path(), plan, until, &mut rng, steps);
        steps.interrupted()?;
        let found = found.map_err(|error| Error::System("the files of the study", error))?;
        outcome.add(&set, &found);
    }
    if !plan.no_squid {
        let until = begun + plan.repeat.duration.max(Duration::from_secs(10));
        outcome.observe_squid(plan, home.path(), until, &mut rng, steps);
    }
    steps.interrupted()?;
    Ok(outcome)
}

impl Outcome {
    fn add(&mut self, set: &Set, found: &measure::Found) {
        let cold = Cold {
            block_bytes: set.block_bytes,
            asked_bytes: found.cold_asked_bytes,
            fetched_bytes: found.cold_fetched_bytes,
            cold: found.was_cold(),
        };
        for (cache, rows) in [("warm", &found.warm), ("cold", &found.cold)] {
            if cache == "cold" && !cold.cold {
                continue;
            }
            for (reader, rows) in rows {
                self.plots.push(plot(reader.name(), "in", cache, set.block_bytes, rows));
            }
            let of = |wanted: Reader| rows.iter().find(|(r, _)| *r == wanted).map(|(_, rows)| rows);
            let Some(fixed) = of(Reader::Exact) else { continue };
            for reader in [Reader::Again, Reader::Scheduled] {
                let Some(broken) = of(reader) else { continue };
                let pairs = fixed.longer_in(broken);
                self.costs.push(Cost {
                    who: reader.name(),
                    cache,
                    block_bytes: set.block_bytes,
                    us: patterns::cost(&pairs),
                    loss: patterns::loss(&pairs),
                });
            }
        }
        for (reader, rows) in &found.out {
            self.plots.push(plot(reader.name(), "out", "warm", set.block_bytes, rows));
        }
        self.cold.push(cold);
    }

    fn observe_squid(
        &mut self,
        plan: &Plan,
        home: &Path,
        until: Instant,
        rng: &mut Rng,
        steps: &mut Steps<'_>,
    ) {
        steps.say("a real Squid with a ufs cache_dir, under strace");
        let sizes = bins::sizes(
            (plan.objects as usize).min(SQUID_SIZES_MAX),
            Set::OF_1997.size_kib_max,
            rng,
        );
        let order = measure::shuffled(SQUID_WRITES * sizes.len(), rng);
        let asked: Vec<u64> = order.iter().map(|at| sizes[at % sizes.len()]).collect();
        let directory = home.join("squid");
        let seen =
            std::fs::create_dir(&directory).map_err(|error| error.to_string()).and_then(|()| {
                let rounds = (plan.repeat.rounds as usize).min(SQUID_ROUNDS_MAX);
                squid::observe(&directory, &asked, rounds, until, steps.stop)
            });
        match seen {
            Err(why) => self.squid = Peer::NotSupported(why),
            Ok(seen) => {
                for (out, direction) in [(false, "in"), (true, "out")] {
                    let rows = rows_of(&sizes, &seen.swaps, out);
                    self.plots.push(plot("squid", direction, "warm", squid::PAGE_BYTES, &rows));
                }
                self.squid = Peer::Seen(seen.version);
            }
        }
    }

    /// The plot of one reader in one direction.
    #[must_use]
    pub fn plot(&self, who: &str, direction: &str, cache: &str, block_bytes: u64) -> Option<&Plot> {
        self.plots.iter().find(|plot| {
            (plot.who, plot.direction, plot.cache) == (who, direction, cache)
                && plot.block_bytes == block_bytes
        })
    }
}

fn plot(
    who: &'static str,
    direction: &'static str,
    cache: &'static str,
    block_bytes: u64,
    rows: &Rows,
) -> Plot {
    Plot {
        who,
        direction,
        cache,
        block_bytes,
        rounds: rows.rounds(),
        reads: (direction == "in").then(|| rows.reads()),
        bins: rows.bins(),
        patterns: patterns::patterns(&rows.objects(), block_bytes),
    }
}

/// The observations of Squid, a row for each object. Its files have a header before the response,
/// so the blocks are those of the file.
fn rows_of(sizes: &[u64], swaps: &[(u64, trace::Swap)], out: bool) -> Rows {
    let of_size = |size: u64| sizes.iter().position(|other| *other == size);
    let blocks = |size: u64| {
        let file = swaps.iter().find(|(of, _)| *of == size).map_or(size, |(_, swap)| swap.bytes());
        u32::try_from(file.div_ceil(squid::PAGE_BYTES)).unwrap_or(u32::MAX)
    };
    let mut rows = Rows::new(sizes.iter().map(|size| (*size, blocks(*size))).collect());
    for (size, swap) in swaps.iter().filter(|(_, swap)| swap.out == out) {
        let us = |us: f64| Duration::from_secs_f64(us.max(0.0) / 1e6);
        let took = Took {
            reads: u32::try_from(swap.calls.len()).unwrap_or(u32::MAX),
            zero: u32::try_from(swap.zero()).unwrap_or(u32::MAX),
            ..Took::default()
        };
        if let Some(object) = of_size(*size) {
            rows.add(object, Sample::new(us(swap.first_us), us(swap.total_us), took));
        }
    }
    rows
}
