//! The swap-in bug of 1997 and its fix, on this machine.
//!
//! In 1997 Rousskov and Soloviev plotted the median disk response time of Squid 1.1.15 by object
//! size: the delays of the first block and of the whole object, in and out. The first block of a
//! swap-in, and only that, came sooner for objects of more than one block. The reader requested a
//! whole block, got the shorter object, took that for an unfinished read, read again and got 0. Our
//! store requests the exact length.
//!
//! What: the same plot ([`Plot`]) for our store, and for readers of files with the old mistake and
//! with the fix, in blocks of our size and of the size of 1997. Reads are counted exactly, delays
//! are medians, and [`patterns`] says what holds today. `plimsoll record --files` counts the reads
//! of any other server, such as a Squid of today.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `bins` | the bins of the plot, medians, the sizes of the objects |
//! | `sample` | one object once, and over the rounds; reads, counted |
//! | `ours` | our store |
//! | `files` | the readers of 1997 |
//! | `measure` | the rounds: warm and cold, all readers in turn |
//! | `patterns` | what holds, what does not, what is inconclusive |
//! | `show` | what the page shows in addition to the outcome, and the figure |

mod bins;
mod files;
mod measure;
mod ours;
mod patterns;
mod sample;
mod show;

use std::io;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use harness::environment::Temporary;
use harness::{Environment, Error};
use regress::Rng;
use serde::Serialize;
use serde_json::{Value, json};

use crate::flags::{Given, Repeat, count};
use crate::found::{Found, Steps};
use bins::Bin;
use files::Reader;
use measure::Set;
use patterns::Pattern;
use sample::{Reads, Rows};

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
    #[arg(long, value_name = "N", default_value_t = 720, value_parser = count(1..=20_000))]
    objects: u32,
    #[command(flatten)]
    repeat: Repeat,
    #[command(flatten)]
    pub(crate) given: Given,
}

/// One plot: medians by size, the reads, and the patterns that hold.
#[derive(Clone, Debug, Serialize)]
struct Plot {
    who: Reader,
    /// `in` or `out`.
    direction: &'static str,
    /// `warm` or `cold`: the page cache.
    cache: &'static str,
    block_bytes: u64,
    /// Samples of each object.
    rounds: usize,
    /// System calls of swap-ins.
    reads: Option<Reads>,
    /// Medians by bin.
    bins: Vec<Bin>,
    patterns: Vec<Pattern>,
}

/// The results of both sets.
#[derive(Default)]
struct Results {
    plots: Vec<Plot>,
    /// The cost of the old mistake, relative to reading the same files without it in the same
    /// rounds.
    costs: Vec<Value>,
    /// Whether the page cache was really cold in the cold rounds.
    cold: Vec<Value>,
}

/// Measures.
///
/// # Errors
/// The directory cannot be used; the store fails; interrupted.
pub(crate) fn run(plan: &Plan, steps: &mut Steps<'_>) -> Result<Found, Error> {
    let begun = Instant::now();
    let path = plan.path.clone().unwrap_or_else(std::env::temp_dir);
    let home = Temporary::new(&path, "swapin").map_err(|error| {
        let why = format!("{} cannot be used: {error}; choose another directory", path.display());
        Error::System("--path", io::Error::other(why))
    })?;
    let ground = Environment::of(home.path());
    let mut results = Results::default();
    let mut rng = Rng::new(plan.given.seed);
    // The wider set has four times the bytes.
    for (set, part) in [(Set::OURS, 0.55), (Set::OF_1997, 0.8)] {
        let until = begun + plan.repeat.duration.mul_f64(part);
        let found = measure::measure(&set, home.path(), plan, until, &mut rng, steps);
        steps.interrupted()?;
        let found = found.map_err(|error| Error::System("the files of the study", error))?;
        results.add(&set, &found);
    }
    let outcome = json!({
        "ground": ground,
        "objects": plan.objects,
        "seed": plan.given.seed,
        "plots": results.plots,
        "costs": results.costs,
        "cold": results.cold,
    });
    let found = Found::of("swapin", page!(swapin), &outcome, show::for_page(&results));
    let found = found.with("swapin.svg", show::figure(&results, &ground, "warm"));
    Ok(found.with("swapin-cold.svg", show::figure(&results, &ground, "cold")))
}

impl Results {
    fn add(&mut self, set: &Set, found: &measure::Found) {
        let block_bytes = set.block_bytes;
        self.cold.push(json!({
            "block_bytes": block_bytes,
            "asked_bytes": found.cold_asked_bytes,
            "fetched_bytes": found.cold_fetched_bytes,
            "cold": found.was_cold(),
        }));
        let cold = found.was_cold().then_some(("cold", &found.cold));
        for (cache, rows) in [("warm", &found.warm)].into_iter().chain(cold) {
            for (reader, rows) in rows {
                self.plots.push(plot(*reader, "in", cache, block_bytes, rows));
            }
            let of = |wanted: Reader| rows.iter().find(|(r, _)| *r == wanted).map(|(_, rows)| rows);
            let Some(fixed) = of(Reader::Exact) else { continue };
            for reader in [Reader::Again, Reader::Scheduled] {
                let Some(broken) = of(reader) else { continue };
                let pairs = fixed.longer_in(broken);
                let (loss, verdict) = patterns::loss(&pairs);
                self.costs.push(json!({
                    "who": reader,
                    "cache": cache,
                    "block_bytes": block_bytes,
                    "us": patterns::cost(&pairs),
                    "loss": loss,
                    "verdict": verdict,
                    "named": reader.named(),
                    "each": patterns::in_us(&patterns::cost(&pairs)),
                    "held": verdict.label(),
                }));
            }
        }
        for (reader, rows) in &found.out {
            self.plots.push(plot(*reader, "out", "warm", block_bytes, rows));
        }
    }

    /// The plot of one reader in one direction.
    fn plot(&self, who: Reader, direction: &str, cache: &str, block_bytes: u64) -> Option<&Plot> {
        self.plots.iter().find(|plot| {
            (plot.who, plot.direction, plot.cache) == (who, direction, cache)
                && plot.block_bytes == block_bytes
        })
    }
}

fn plot(
    who: Reader,
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
