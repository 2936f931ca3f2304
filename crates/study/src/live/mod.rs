//! The live days of 1998 in minutes: load lines of an old and a new event notification.
//!
//! Banga and Mogul ran a proxy for a day with the old kernel and for a day with the new one, logged
//! the CPU modes every 15 minutes, and drew lines through the 96 samples: where the line of idle
//! time meets zero is the capacity. Here our own proxy does the same on two of its backends: 96
//! samples each, the rate following a day's shape, caching off, as many cold connections as the
//! rate brings with it. The two take turns, sample by sample, so that what else the machine does
//! touches both alike.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `shape` | the day's shape, from what was published of it |
//! | `day` | the samples: load, recordings, intervals gathered into samples |
//! | `lines` | the lines through them, by the report's own code |
//! | `show` | the tables of 1998 beside ours, and the scatter |
//!
//! What never happens: a sample of an interval in which the other proxy was loaded; a line that is
//! not the report's.

mod day;
mod lines;
mod shape;
mod show;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use readiness::{Choice, Kind, Poller};
use serde::Serialize;

pub use day::Sample;
pub use harness::Environment;
pub use harness::Error;
pub use lines::{Lines, ModeOf};
pub use shape::{SAMPLES_AN_HOUR, Shape};
pub use show::{figure, shown};

use crate::published::{Facts, SQUID};
use harness::environment::{Temporary, load_average};
use harness::{Caching, Cpus, Server, Source, cold_max};

/// What is to be done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program whose verbs `serve` and `origin` are run: plimsoll itself.
    pub program: PathBuf,
    /// Where the two trials of samples are left; they are removed with all else without it.
    pub out: Option<PathBuf>,
    /// Hours of the day, from where it is quietest on.
    pub hours: u32,
    /// How long an hour takes here, for each of the two.
    pub compressed: Duration,
    /// The event notification in the place of the old `select()`.
    pub old: Kind,
    /// And of the new.
    pub new: Kind,
    /// Cold connections at the day's highest rate; as many as were published without it.
    pub cold: Option<u32>,
    /// Seed of the arrivals.
    pub seed: u64,
}

/// One of the two days.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// The backend.
    pub backend: String,
    /// The samples, by the hour.
    pub samples: Vec<Sample>,
    /// Requests answered, in samples and between them.
    pub requests: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Answers from what was stored: none, for caching is off.
    pub hits: u64,
    /// The most descriptors that the proxy had open.
    pub descriptors_max: Option<u64>,
    /// The highest rate of an interval of the recorder.
    pub rate_peak: f64,
    /// The lines through all samples.
    pub all: Lines,
    /// The lines without the quiet samples, as in Table 5; none if too few are left.
    pub above: Option<Lines>,
}

/// All that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Where.
    pub ground: Environment,
    /// Processes that wanted to run, at the beginning and in the end.
    pub load_average: (Option<f64>, Option<f64>),
    /// The day's shape.
    pub shape: Shape,
    /// Hours that were replayed.
    pub hours: u32,
    /// Seconds of a sample.
    pub sample_s: f64,
    /// Seconds of an interval of the recorder.
    pub interval_s: f64,
    /// The highest rate that was offered.
    pub rate_top: f64,
    /// Samples below this rate are left out for Table 5.
    pub rate_above: f64,
    /// Cold connections at the highest rate.
    pub cold_top: u32,
    /// The old and the new.
    pub sides: [Side; 2],
    /// Everything that `plimsoll compare` says of the two trials.
    pub comparison: Option<report::Comparison>,
    /// Why it says nothing.
    pub comparison_why: Option<String>,
    /// Seed of the arrivals.
    pub seed: u64,
}

/// Use of its CPU at which the old one's day has its highest rate: the busiest hour of 1998 had
/// 89 %, and a sample beyond 100 % is none.
const USE_TOP: f64 = 0.85;

/// Measures. `say` is told what is being done.
///
/// # Errors
/// A backend does not work here; a server does not start or does not answer; the directory cannot
/// be used; too few samples for a line; interrupted.
pub fn run(plan: &Plan, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<Outcome, Error> {
    for kind in [plan.old, plan.new] {
        drop(Poller::open(Choice::Named(kind))?);
    }
    let facts = Facts::read();
    let parent = plan.out.clone().unwrap_or_else(std::env::temp_dir);
    let home = Temporary::new(&parent, "live").map_err(|e| Error::Directory(parent, e))?;
    let ground = Environment::of(home.path());
    let loaded = load_average();
    let (cold_bound, _) = cold_max()?;
    let of_1998 = facts.day(SQUID, "old").and_then(|day| day.descriptors_max);
    let cold_top = plan.cold.unwrap_or(of_1998.unwrap_or(0.0) as u32).min(cold_bound);
    let (cpus, _pinned) = Cpus::take()?;
    let source = Source::start(&plan.program, cpus)?;
    let start = |kind, name: &str| {
        let log = home.path().join(name);
        std::fs::create_dir(&log).map_err(|error| Error::Directory(log.clone(), error))?;
        let server = Server::start(&plan.program, kind, &source, Some(&log), cpus)?;
        Ok::<_, Error>(server)
    };
    let servers = [start(plan.old, "old")?, start(plan.new, "new")?];
    say("how much the old one bears");
    let rate_top = servers[0].rate_at(USE_TOP, Caching::Off, cold_top, stop)?;
    let shape = Shape::of_1998(&facts);
    let day = day::Day { plan, shape, rate_top, cold_top, home: home.path() };
    let raw = day.replay(&servers, stop, say)?;
    drop(servers);
    let (sides, paths) = lines::sides(&day, raw)?;
    let (comparison, comparison_why) = match lines::compared(&paths) {
        Ok(comparison) => (Some(comparison), None),
        Err(why) => (None, Some(why.to_string())),
    };
    if let Some(out) = &plan.out {
        for path in &paths {
            let name = path.file_name().unwrap_or(path.as_os_str());
            std::fs::copy(path, out.join(name))
                .map_err(|error| Error::Directory(out.clone(), error))?;
        }
    }
    Ok(Outcome {
        ground,
        load_average: (loaded, load_average()),
        shape,
        hours: plan.hours,
        sample_s: day.sample().as_secs_f64(),
        interval_s: day.interval().as_secs_f64(),
        rate_top,
        rate_above: sides.above,
        cold_top,
        sides: sides.both,
        comparison,
        comparison_why,
        seed: plan.seed,
    })
}
