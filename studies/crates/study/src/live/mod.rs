//! The live days of 1998 in minutes: load lines of an old and a new event notification.
//!
//! Banga and Mogul ran a proxy for a day with the old kernel and for a day with the new one, logged
//! the CPU modes every 15 minutes, and fitted lines to the 96 samples: the capacity is where the
//! line of idle time meets zero. Here our own proxy does the same on two of its backends: 96
//! samples each, with caching off. The rate follows the shape of a day, and the number of cold
//! connections follows the rate. The two take turns, sample by sample, so that other work on the
//! machine affects both alike.
//!
//! | module | what it owns |
//! | --- | --- |
//! | `shape` | the shape of the day, from the published figures |
//! | `day` | the samples: load, recordings, intervals gathered into samples |
//! | `lines` | the lines through them, computed by the report's own code |
//! | `show` | what the page shows in addition to the outcome, and the figure |
//!
//! What never happens: a sample contains an interval in which the other proxy was loaded; a line is
//! computed by code other than the report's.

mod day;
mod lines;
mod shape;
mod show;

use std::ops::RangeInclusive;
use std::time::Duration;

use clap::Args;
use command::flags::{duration_within, parse_backend};
use harness::{Caching, Cpus, Error, Server, Source, cold_max};
use readiness::{Choice, Kind, Poller};
use serde::Serialize;

pub use day::Sample;
pub use lines::Lines;
pub use shape::Shape;
pub(crate) use show::{figure, for_page};

use crate::conditions::{Conditions, keep, working_directory};
use crate::flags::Given;
use crate::found::Steps;
use crate::published::{Facts, SQUID};

/// How long an hour takes: each quarter has to contain at least one interval of the recorder.
const HOUR: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// What to do.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Hours of the day, beginning at the quietest one: four samples an hour
    #[arg(long, value_name = "N", default_value_t = 24,
        value_parser = clap::value_parser!(u32).range(1..=24))]
    hours: u32,
    /// How long an hour takes, for each of the two proxies: 24 hours take 48 times as long
    #[arg(long, value_name = "TIME", default_value = "6s", value_parser = duration_within(HOUR))]
    compressed: Duration,
    /// The backend that represents the old select()
    #[arg(long, value_name = "NAME", default_value = "select", value_parser = parse_backend)]
    old: Kind,
    /// The backend that represents the new select()
    #[arg(long, value_name = "NAME", default_value = "scalable_select",
        value_parser = parse_backend)]
    new: Kind,
    /// Cold connections at the day's highest rate, fewer at lower rates [default: 1581, as in 1998]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=100_000))]
    cold: Option<u32>,
    #[command(flatten)]
    pub(crate) given: Given,
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
    /// Responses from the cache: none, because caching is off.
    pub hits: u64,
    /// The highest number of descriptors that the proxy had open.
    pub descriptors_max: Option<u64>,
    /// The highest rate of an interval of the recorder.
    pub rate_peak: f64,
    /// The lines through all samples.
    pub all: Lines,
    /// The lines without the quiet samples, as in Table 5; none if too few samples remain.
    pub above: Option<Lines>,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Where it was measured.
    #[serde(flatten)]
    pub conditions: Conditions,
    /// The day's shape.
    pub shape: Shape,
    /// Hours that were replayed.
    pub hours: u32,
    /// Seconds of a sample.
    pub sample_s: f64,
    /// Seconds of an interval of the recorder.
    pub interval_s: f64,
    /// The highest offered rate.
    pub rate_top: f64,
    /// Samples below this rate are left out for Table 5.
    pub rate_above: f64,
    /// Cold connections at the highest rate.
    pub cold_top: u32,
    /// The old and the new.
    pub sides: [Side; 2],
    /// The comparison of the two trials by `plimsoll compare`.
    pub comparison: Option<report::Comparison>,
    /// The reason if there is no comparison.
    pub comparison_why: Option<String>,
}

/// CPU use of the old backend at the day's highest rate. The busiest hour of 1998 had 89 %, and a
/// sample beyond 100 % would be useless.
const USE_TOP: f64 = 0.85;

/// Measures.
///
/// # Errors
/// A backend does not work here; a server does not start or does not answer; the directory cannot
/// be used; too few samples for a line; interrupted.
pub fn run(plan: &Plan, steps: &mut Steps<'_>) -> Result<Outcome, Error> {
    for kind in [plan.old, plan.new] {
        drop(Poller::open(Choice::Named(kind))?);
    }
    let facts = Facts::read();
    let home = working_directory(plan.given.out.as_ref(), "live")?;
    let conditions = Conditions::at_start(home.path(), plan.given.seed);
    let (cold_bound, _) = cold_max()?;
    let of_1998 = facts.day(SQUID, "old").and_then(|day| day.descriptors_max);
    let cold_top = plan.cold.unwrap_or(of_1998.unwrap_or(0.0) as u32).min(cold_bound);
    let (cpus, _pinned) = Cpus::take()?;
    let source = Source::start(steps.plimsoll, cpus)?;
    let plimsoll = steps.plimsoll;
    let start = |kind, name: &str| {
        let log = home.path().join(name);
        std::fs::create_dir(&log).map_err(|error| Error::Directory(log.clone(), error))?;
        let server = Server::start(plimsoll, kind, &source, Some(&log), cpus)?;
        Ok::<_, Error>(server)
    };
    let servers = [start(plan.old, "old")?, start(plan.new, "new")?];
    steps.say("finding the capacity of the old backend");
    let rate_top = servers[0].rate_at(USE_TOP, Caching::Off, cold_top, steps.stop)?;
    let shape = Shape::of_1998(&facts);
    let day = day::Day { plan, shape, rate_top, cold_top, home: home.path() };
    let raw = day.replay(&servers, steps)?;
    drop(servers);
    let (sides, paths) = lines::sides(&day, raw)?;
    let (comparison, comparison_why) = match lines::compared(&paths) {
        Ok(comparison) => (Some(comparison), None),
        Err(why) => (None, Some(why.to_string())),
    };
    for path in &paths {
        keep(path, plan.given.out.as_ref())?;
    }
    Ok(Outcome {
        conditions: conditions.at_end(),
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
    })
}
