//! The study `boost`: programs that wait by poll() or select(), plain and with the preloaded
//! library, and the same programs on epoll.
//!
//! ```text
//!  HAProxy -de, lighttpd, ours ----- plain ---------.
//!        the same under plimsoll boost -------------+-- load + cold connections (this process)
//!        the same on epoll -------------------------'
//! ```
//!
//! What: CPU time a request with 0, 1,000 and 8,000 silent connections, in one interleaved run, and
//! whether every response is the same. Debian's lighttpd has no select(), so select() is measured
//! on our own server, below and above FD_SETSIZE. Why: the algorithm that was put into the kernel
//! in 1998 must also pay off in user space, and must not change any result. Ownership: the servers
//! are child processes, each ended by its pid. What never happens: a ratio across rounds; a
//! response that differs and is not reported.

mod answers;
mod servers;

use std::time::Duration;

use clap::Args;
use command::flags::duration_within;
use harness::rounds::{Figure, Figures, To, digits};
use harness::{Cpus, Error, Source, cold_max};
use load::Schedule;
use serde_json::{Value, json};

use self::servers::{Started, Variant, variants};
use crate::conditions::{Conditions, working_directory};
use crate::experiment::{ServerVisits, Servers, Visit, cells, server_row, total};
use crate::flags::{Given, Repeat, VISIT, ascending, count};
use crate::found::{Found, Steps};
use crate::show::number;
use harness::recipe::Place;

/// The bound of a boosted wait relative to epoll with silent connections, and relative to the plain
/// call without them.
const TO_NATIVE_MAX: f64 = 1.25;
const TO_PLAIN_MAX: f64 = 1.05;
/// Connections that send requests, each the next as soon as the last is answered.
const CONNECTIONS: u32 = 32;
/// The first part of a visit does not count, because connections are still being accepted.
const SETTLE_S: f64 = 0.15;

/// What to do.
#[derive(Clone, Debug, Args)]
#[command(mut_arg("duration", |arg| arg.default_value("5m")))]
pub struct Plan {
    /// Numbers of cold connections [default: 0,1000,8000]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = count(..=100_000))]
    cold: Vec<u32>,
    #[command(flatten)]
    repeat: Repeat,
    /// Length of a visit: one server with one number of cold connections
    #[arg(long, value_name = "TIME", default_value = "700ms",
        value_parser = duration_within(VISIT))]
    visit: Duration,
    /// Under a minute: one round, short visits, 0 and 1000 cold connections unless others are named
    #[arg(long, conflicts_with_all = ["rounds", "duration", "visit"])]
    quick: bool,
    #[command(flatten)]
    pub(crate) given: Given,
}

/// Measures.
///
/// # Errors
/// Our own server does not start; the directory cannot be used; interrupted. A peer that is not
/// installed is listed as missing.
pub(crate) fn run(plan: &Plan, steps: &mut Steps<'_>) -> Result<Found, Error> {
    let Given { out, seed, .. } = &plan.given;
    let home = working_directory(out.as_ref(), "boost")?;
    let conditions = Conditions::at_start(home.path(), *seed);
    let visit = if plan.quick { Duration::from_secs(1) } else { plan.visit };
    let (most, descriptors) = cold_max()?;
    let cold = ascending(&plan.cold, if plan.quick { &[0, 1000] } else { &[0, 1000, 8000] });
    let (cold, beyond): (Vec<u32>, Vec<u32>) = cold.iter().partition(|cold| **cold <= most);
    let mut missing: Vec<Value> = Vec::new();
    missing.extend(beyond.into_iter().map(|cold| {
        let why = format!("a process may have {descriptors} descriptors; raise ulimit -n");
        json!({"what": format!("{cold} cold connections"), "why": why})
    }));
    let (cpus, _pinned) = Cpus::take()?;
    let source = Source::start(steps.plimsoll, cpus)?;
    let place = Place { home: home.path(), cpu: cpus.server, origin: source.address() };
    steps.say("starting the servers");
    let mut running: Vec<Started> = Vec::new();
    for variant in variants() {
        match servers::start(steps.plimsoll, place, most, variant)? {
            Ok(started) => running.push(started),
            Err(why) => missing.push(json!({"what": variant.name(), "why": why})),
        }
    }
    let (compared, differences) = answers::compare(&running)?;
    let load = |at: usize, cold: u32, _| {
        let Started { variant, server, .. } = &running[at];
        let mut load = server.load(variant.path(), Schedule::ClosedLoop, visit);
        (load.connections, load.cold) = (CONNECTIONS, cold);
        (load.pin_cpu, load.seed) = (cpus.others, *seed);
        load
    };
    let all = running.iter().map(|one| (one.variant.name(), one.server.pid()));
    let servers = Servers {
        all: all.collect(),
        numbers: (&cold, "cold connections"),
        load: &load,
        spans: &[(SETTLE_S, visit.as_secs_f64())],
    };
    let visits = servers.visit(&plan.repeat.rounds(plan.quick.then_some(1), *seed), steps)?;
    let variants: Vec<Variant> = running.iter().map(|one| one.variant).collect();
    let library: Vec<_> = running.into_iter().filter_map(Started::end).collect();
    let outcome = conditions.outcome(json!({
        "rounds": visits.rounds(),
        "visit_s": visit.as_secs_f64(),
        "rows": rows(&variants, &cold, &visits),
        "compared": compared,
        "differences": differences,
        "library": library,
        "missing": missing,
    }));
    let more = json!({
        "requests": total(&visits, |visit| visit.requests),
        "errors": total(&visits, |visit| visit.errors),
        "differ": differences.len(),
        "bounds": bounds(&variants, &cold, &visits),
    });
    let found = Found::of("boost", page!(boost), &outcome, more);
    Ok(found.failed(!differences.is_empty(), "a boosted server sent another response"))
}

fn us(visit: &Visit) -> f64 {
    visit.spans[0].us
}

fn rows(variants: &[Variant], cold: &[u32], visits: &ServerVisits) -> Vec<Value> {
    let row = |cell: (usize, u32)| {
        let variant = variants[cell.0];
        let names = json!({
            "server": variant.server_name(),
            "wait": variant.wait,
            "boosted": variant.boosted,
            "cold": cell.1,
        });
        let with = |other: Variant| Some((position(variants, other)?, cell.1));
        let plain = variant.boosted.then(|| with(variant.plain())).flatten();
        let figures: Figures<'_, _, Visit> = &[
            ("us", To::Itself, &us),
            ("to_native", To::Cell(with(variant.native())), &us),
            ("to_plain", To::Cell(plain), &us),
            ("rate", To::Itself, &|visit| visit.spans[0].rate),
        ];
        server_row(visits, cell, names, figures)
    };
    cells(variants.len(), cold).into_iter().map(row).collect()
}

fn position(variants: &[Variant], wanted: Variant) -> Option<usize> {
    variants.iter().position(|variant| *variant == wanted)
}

/// For each boosted server: what it costs, and its bounds.
fn bounds(variants: &[Variant], cold: &[u32], visits: &ServerVisits) -> Vec<Value> {
    let Some((first, last)) = cold.first().copied().zip(cold.last().copied()) else {
        return Vec::new();
    };
    let bound = |boosted: &Variant| {
        let [at, plain, native] = [*boosted, boosted.plain(), boosted.native()]
            .map(|variant| position(variants, variant));
        let (at, plain, native) = (at?, plain?, native?);
        let ratio = |one, other, cold| visits.ratio((one, cold), (other, cold), us);
        let to_native = ratio(at, native, last);
        let mut text = format!(
            "on {} with {} cold {} times epoll's cost, boosted {} (at most {TO_NATIVE_MAX}: {})",
            boosted.wait,
            number(last),
            digits(ratio(plain, native, last).value),
            to_native.text(),
            verdict(&to_native, TO_NATIVE_MAX)
        );
        if first == 0 {
            let to_plain = ratio(at, plain, first);
            text.push_str(&format!(
                "; with none, boosted {} times plain (at most {TO_PLAIN_MAX}: {})",
                to_plain.text(),
                verdict(&to_plain, TO_PLAIN_MAX)
            ));
        }
        Some(json!({"server": boosted.server_name(), "text": text}))
    };
    variants.iter().filter(|variant| variant.boosted).filter_map(bound).collect()
}

/// Whether a ratio is within its bound. One round is inconclusive, and so is none.
fn verdict(figure: &Figure, most: f64) -> &'static str {
    match figure.interval {
        None => "one round is inconclusive",
        _ if figure.value <= most => "held",
        Some((low, _)) if low <= most => "inconclusive",
        Some(_) => "NOT held",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{assert_constant, visit_of};
    use harness::rounds::Visits;

    #[test]
    fn a_ratio_is_within_a_server_a_number_of_cold_connections_and_a_round() {
        let variant = |wait, boosted| Variant { server: 0, wait, boosted };
        let other = Variant { server: 1, ..variant("poll", true) };
        let variants =
            [variant("epoll", false), variant("poll", false), variant("poll", true), other];
        // The second round is twice as slow throughout.
        let round = |slow: f64| {
            let costs = [[10.0, 11.0], [20.0, 88.0], [21.0, 22.0], [5.0, 5.0]];
            let each = costs.iter().enumerate().flat_map(|(at, [none, many])| {
                [((at, 0), visit_of(&[none * slow])), ((at, 8000), visit_of(&[many * slow]))]
            });
            each.collect()
        };
        let rows = rows(&variants, &[0, 8000], &Visits(vec![round(1.0), round(2.0)]));
        assert_eq!(rows.len(), 8);
        let poll = &rows[3];
        assert_eq!((&poll["wait"], &poll["cold"]), (&"poll".into(), &8000.into()));
        assert_constant(&poll["to_native"], 8.0);
        assert!(poll["to_plain"].is_null() && poll["boosted"] == false);
        let boosted = &rows[5];
        assert_constant(&boosted["to_native"], 2.0);
        assert_constant(&boosted["to_plain"], 0.25);
        assert_eq!((&boosted["requests"], &boosted["errors"]), (&20.into(), &2.into()));
        let alone = &rows[7];
        assert!(alone["to_native"].is_null(), "nothing to compare with: {alone:?}");
        assert!(alone["to_plain"].is_null());
    }

    #[test]
    fn a_bound_is_held_missed_or_inconclusive() {
        let of = |values: &[f64]| verdict(&Figure::of(values.iter().copied()), TO_NATIVE_MAX);
        assert_eq!(of(&[1.0, 1.1, 1.05]), "held");
        assert_eq!(of(&[1.0, 1.3, 1.9]), "inconclusive");
        assert_eq!(of(&[1.9, 2.0, 2.1]), "NOT held");
        assert_eq!(of(&[0.9]), "one round is inconclusive");
        assert_eq!(of(&[]), "one round is inconclusive");
    }
}
