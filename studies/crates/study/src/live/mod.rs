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
use serde_json::json;

use crate::conditions::{Conditions, keep, working_directory};
use crate::flags::{Given, count};
use crate::found::{Found, Steps, with};
use crate::published::{Facts, SQUID};
use day::Sample;
use lines::Lines;
use shape::Shape;

/// How long an hour takes: each quarter has to contain at least one interval of the recorder.
const HOUR: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);

/// What to do.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Hours of the day, beginning at the quietest one: four samples an hour
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = count(1..=24))]
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
    #[arg(long, value_name = "N", value_parser = count(..=100_000))]
    cold: Option<u32>,
    #[command(flatten)]
    pub(crate) given: Given,
}

/// One of the two days.
#[derive(Clone, Debug, Serialize)]
struct Side {
    /// The backend.
    backend: String,
    /// The samples, by the hour.
    samples: Vec<Sample>,
    /// Requests answered, in samples and between them.
    requests: u64,
    /// Requests that failed.
    errors: u64,
    /// Responses from the cache: none, because caching is off.
    hits: u64,
    /// The highest number of descriptors that the proxy had open.
    descriptors_max: Option<u64>,
    /// The highest rate of an interval of the recorder.
    rate_peak: f64,
    /// The lines through all samples.
    all: Lines,
    /// The lines without the quiet samples, as in Table 5; none if too few samples remain.
    above: Option<Lines>,
}

/// CPU use of the old backend at the day's highest rate. The busiest hour of 1998 had 89 %, and a
/// sample beyond 100 % would be useless.
const USE_TOP: f64 = 0.85;

/// Measures.
///
/// # Errors
/// A backend does not work here; a server does not start or does not answer; the directory cannot
/// be used; too few samples for a line; interrupted.
pub(crate) fn run(plan: &Plan, steps: &mut Steps<'_>) -> Result<Found, Error> {
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
    let (sides, above, paths) = lines::sides(&day, raw)?;
    let comparison = lines::compared(&paths).map_err(|why| why.to_string());
    for path in &paths {
        keep(path, plan.given.out.as_ref())?;
    }
    let ground = conditions.ground.clone();
    let outcome = conditions.outcome(json!({
        "shape": shape,
        "hours": plan.hours,
        "sample_s": day.sample().as_secs_f64(),
        "interval_s": day.interval().as_secs_f64(),
        "rate_top": rate_top,
        // Samples below this rate are left out for Table 5.
        "rate_above": above,
        "cold_top": cold_top,
        "sides": sides,
        "comparison": comparison.as_ref().ok(),
        "comparison_why": comparison.as_ref().err(),
    }));
    let compared = match &comparison {
        Ok(comparison) => show::compared(comparison),
        Err(why) => format!("not possible: {why}"),
    };
    let more = with(
        &show::for_page(&sides, above),
        json!({
            "swing_percent": 100.0 * shape.swing,
            "highest_1998": shape.highest_1998(),
            "compared": compared,
        }),
    );
    let found = Found::of("live", page!(live), &outcome, more);
    Ok(found.with("live.svg", Some(show::figure(&sides, &ground))))
}
