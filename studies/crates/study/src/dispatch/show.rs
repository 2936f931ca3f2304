//! The results in sentences, tables and a figure.

use harness::rounds::digits;
use report::sheet::{Panel, Rows, Sheet, Stroke, Ticks, Tone};

use super::{Outcome, Simulated, Strategy, Timed};
use crate::published::{Facts, SQUID};
use crate::show::{NONE, Point, curve, distinct, fact, number, panel, table, with_interval};

/// The procedure in the papers.
const PROCEDURE: &str = "comm_select";
/// The server before the fix.
const UNFIXED: &str = "Squid 1.1.20";

/// The results: sentences and tables.
#[must_use]
pub fn shown(outcome: &Outcome) -> Sheet {
    let title = "The table walk of comm_select (1998) on this machine".to_owned();
    let tables = vec![shares(outcome), times(outcome), misses(outcome)];
    Sheet { title, facts: facts(outcome), tables }
}

/// The figure: time and misses a request, by the number of ready connections.
#[must_use]
pub fn figure(outcome: &Outcome) -> String {
    let mut panels = Vec::new();
    for descriptors in distinct(outcome.timed.iter().map(|timed| timed.descriptors)) {
        for backend in distinct(outcome.timed.iter().map(|timed| &timed.backend)) {
            panels.push(time_panel(outcome, descriptors, backend));
        }
        for machine in &outcome.machines {
            panels.push(miss_panel(outcome, descriptors, &machine.name));
        }
    }
    let description = "CPU time of a request, and cache misses outside of the dispatch, by the \
                       number of connections that are ready at a wait.";
    crate::show::figure("The table walk", &outcome.conditions.ground, description, &panels)
}

fn ready_panel(title: String, unit: &str, points: impl Fn(Strategy) -> Vec<Point>) -> Panel {
    let curves = Strategy::ALL.map(|strategy| {
        let tone = match strategy {
            Strategy::Walk => Tone::Second,
            Strategy::Bitmaps => Tone::Third,
            Strategy::Tokens => Tone::First,
        };
        curve(strategy.label(), (tone, Stroke::Joined), points(strategy))
    });
    panel(title, ("ready at a wait", Ticks::Binary), unit, curves)
}

fn time_panel(outcome: &Outcome, descriptors: u32, backend: &str) -> Panel {
    let title = format!("{} descriptors, {backend}: a request", number(descriptors));
    ready_panel(title, "µs", |strategy| {
        let of = |timed: &&Timed| {
            let cell = (timed.strategy, timed.descriptors, timed.backend.as_str());
            cell == (strategy, descriptors, backend)
        };
        let point = |timed: &Timed| {
            let us = timed.dispatch_us.value + timed.wait_us.value + timed.rest_us.value;
            (f64::from(timed.ready), us, format!("{} ready: {us:.2} µs", timed.ready))
        };
        outcome.timed.iter().filter(of).map(point).collect()
    })
}

fn miss_panel(outcome: &Outcome, descriptors: u32, machine: &str) -> Panel {
    let title = format!("{} descriptors, {machine}: misses elsewhere", number(descriptors));
    ready_panel(title, "second-level misses a request", |strategy| {
        let of = |found: &&Simulated| {
            let cell = (found.strategy, found.descriptors, found.machine.as_str());
            cell == (strategy, descriptors, machine)
        };
        let point = |found: &Simulated| {
            let [_, (_, l2)] = found.per_request();
            (f64::from(found.ready), l2, format!("{} ready: {l2:.1}", found.ready))
        };
        outcome.simulated.iter().filter(of).map(point).collect()
    })
}

fn facts(outcome: &Outcome) -> Vec<(String, String)> {
    let mut facts = outcome.conditions.facts("; medians of turns");
    facts.push(fact(
        "Table",
        format!(
            "{} bytes an entry (assumed: the papers say \"large\"); seed {}",
            outcome.entry_bytes, outcome.conditions.seed
        ),
    ));
    for machine in &outcome.machines {
        let levels = format!("{}; {}", machine.l1.text(), machine.l2.text());
        facts.push(fact("Cache", format!("{}: {levels}", machine.name)));
    }
    facts.extend(outcome.missing.iter().map(|why| fact("Backend", why)));
    facts
}

/// The procedure's part of the CPU time: published, and here.
fn shares(outcome: &Outcome) -> Rows {
    let facts = Facts::read();
    let published = [
        ("Squid 1.1.20, new kernel", UNFIXED, "new", Strategy::Walk),
        ("1.1.20Mod, new kernel", SQUID, "new", Strategy::Bitmaps),
        ("1.1.20Mod, old kernel", SQUID, "old", Strategy::Bitmaps),
    ];
    let published = published.into_iter().filter_map(|(name, server, kernel, strategy)| {
        let profile = facts.profile(server, kernel)?;
        let (rate, part) = (profile.rate_mean, profile.percent_busy(PROCEDURE)?);
        let text = format!("{part:.2} % at {rate:.0} requests/s");
        Some([strategy.label().to_owned(), name.to_owned(), NONE.to_owned(), text])
    });
    let here = outcome.timed.iter().map(|timed| {
        [
            timed.strategy.label().to_owned(),
            format!("here, {}, {} open", timed.backend, number(timed.descriptors)),
            timed.ready.to_string(),
            with_interval(&timed.share, |part| format!("{:.2} %", 100.0 * part)),
        ]
    });
    table(
        "The part of the CPU time that the dispatch takes",
        &["<strategy", "<where", "ready", "<part"],
        published.chain(here),
        "Published: comm_select in percent of all time that is not idle. Here: the work before and \
         after the wait, in percent of the turn including its sockets; 95 % intervals over rounds.",
    )
}

fn times(outcome: &Outcome) -> Rows {
    let rows = outcome.timed.iter().map(|timed| {
        [
            timed.strategy.label().to_owned(),
            timed.backend.clone(),
            number(timed.descriptors),
            timed.ready.to_string(),
            digits(timed.dispatch_us.value),
            digits(timed.wait_us.value),
            digits(timed.rest_us.value),
            timed.rest_ratio.text(),
        ]
    });
    let columns =
        ["<strategy", "<backend", "open", "ready", "dispatch", "wait", "rest", "<rest, to tokens"];
    table(
        "A request, µs",
        &columns,
        rows,
        "The rest: read, look up, copy, respond, log. Its ratio is within a round, on the same \
         backend: above 1 is the cost of the data that the dispatch evicted from the caches.",
    )
}

fn misses(outcome: &Outcome) -> Rows {
    let rows = outcome.simulated.iter().map(|found| {
        let [dispatch, rest] = found.per_request();
        let tokens = outcome.simulated.iter().find(|other| {
            other.strategy == Strategy::Tokens
                && (&other.machine, other.descriptors, other.ready)
                    == (&found.machine, found.descriptors, found.ready)
        });
        let ratio = tokens.map_or((f64::NAN, f64::NAN), |tokens| {
            let [_, base] = tokens.per_request();
            (rest.0 / base.0, rest.1 / base.1)
        });
        [
            found.machine.clone(),
            found.strategy.label().to_owned(),
            number(found.descriptors),
            found.ready.to_string(),
            format!("{:.1} / {:.1}", dispatch.0, dispatch.1),
            format!("{:.1} / {:.1}", rest.0, rest.1),
            format!("{:.2} / {:.2}", ratio.0, ratio.1),
        ]
    });
    table(
        "Simulated misses a request, first level / second",
        &["<cache", "<strategy", "open", "ready", "<dispatch", "<rest", "<to tokens"],
        rows,
        "To tokens: misses of the rest relative to those with tokens. The counts never \
         change; instructions, prefetching and the kernel are left out.",
    )
}
