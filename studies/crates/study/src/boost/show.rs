//! The results in sentences, tables and a figure.

use harness::rounds::{Figure, digits};
use report::format::thousands;
use report::sheet::{Panel, Rows, Sheet, Stroke, Ticks, Tone};

use super::servers::{NATIVE, Server};
use super::{Outcome, Row};
use crate::show::{NONE, curve, fact, number, panel, table};

/// The bound of a boosted wait relative to epoll with silent connections, and relative to the plain
/// call without them.
const TO_NATIVE_MAX: f64 = 1.25;
const TO_PLAIN_MAX: f64 = 1.05;

/// The results: sentences and tables.
#[must_use]
pub fn shown(outcome: &Outcome) -> Sheet {
    let title = "poll() and select() answered from an epoll set, in unmodified programs".to_owned();
    let mut tables = vec![costs(outcome), library(outcome), differences(outcome)];
    tables.retain(|table| !table.rows.is_empty());
    Sheet { title, facts: facts(outcome), tables }
}

/// The figure: CPU time a request by number of cold connections, a panel for each server.
#[must_use]
pub fn figure(outcome: &Outcome) -> String {
    let panels: Vec<Panel> =
        Server::ALL.iter().map(|server| server_panel(outcome, *server)).collect();
    let description = "CPU time a request of servers that wait by poll or select, plain and with \
                       the preloaded library, and by epoll, by the number of cold connections.";
    crate::show::figure("Boosted waits", &outcome.conditions.ground, description, &panels)
}

fn server_panel(outcome: &Outcome, server: Server) -> Panel {
    let looks = [
        (NATIVE, false, "epoll", (Tone::First, Stroke::Joined)),
        ("poll", false, "poll", (Tone::Second, Stroke::Joined)),
        ("poll", true, "poll, boosted (- -)", (Tone::Second, Stroke::Dashed)),
        ("select", false, "select", (Tone::Third, Stroke::Joined)),
        ("select", true, "select, boosted (- -)", (Tone::Third, Stroke::Dashed)),
    ];
    let curves = looks.into_iter().map(|(wait, boosted, name, look)| {
        let points = of(outcome, server, wait, boosted).map(|row| {
            let label = format!("{name}, {} cold: {} µs", row.cold, row.us.text());
            (f64::from(row.cold), row.us.value, label)
        });
        curve(name, look, points)
    });
    let title = format!("{}: CPU time a request", server.name());
    panel(title, ("cold connections", Ticks::Decimal), "µs", curves)
}

fn of<'o>(
    outcome: &'o Outcome,
    server: Server,
    wait: &'o str,
    boosted: bool,
) -> impl Iterator<Item = &'o Row> {
    let wanted =
        move |row: &&Row| row.server == server.name() && row.wait == wait && row.boosted == boosted;
    outcome.rows.iter().filter(wanted)
}

fn facts(outcome: &Outcome) -> Vec<(String, String)> {
    let requests: u64 = outcome.rows.iter().map(|row| row.requests).sum();
    let errors: u64 = outcome.rows.iter().map(|row| row.errors).sum();
    let mut facts = outcome.conditions.facts("");
    facts.extend([
        fact(
            "Measured",
            format!(
                "{} rounds, visits of {:.1} s, {} requests in a closed loop, {} failed",
                outcome.rounds,
                outcome.visit_s,
                thousands(requests as f64),
                thousands(errors as f64)
            ),
        ),
        fact(
            "Responses",
            format!(
                "{} compared, boosted with plain: {} differ",
                thousands(outcome.compared as f64),
                outcome.differences.len()
            ),
        ),
    ]);
    for server in Server::ALL {
        let bounds = ["poll", "select"].into_iter().filter_map(|w| bounds(outcome, server, w));
        facts.extend(bounds.map(|text| fact(server.name(), text)));
    }
    let missing = outcome.missing.iter();
    facts.extend(missing.map(|one| fact("Not here", format!("{}: {}", one.what, one.why))));
    facts
}

/// The cost of one call of one server with the library, and its bound.
fn bounds(outcome: &Outcome, server: Server, wait: &str) -> Option<String> {
    let boosted: Vec<&Row> = of(outcome, server, wait, true).collect();
    let (first, last) = (boosted.first()?, boosted.last()?);
    let plain = of(outcome, server, wait, false).last()?;
    let mut text = format!(
        "on {wait} with {} cold {} times epoll's cost, boosted {} (at most {TO_NATIVE_MAX}: {})",
        number(last.cold),
        digits(plain.to_native.value),
        last.to_native.text(),
        verdict(&last.to_native, TO_NATIVE_MAX)
    );
    if let Some(to_plain) = first.to_plain.as_ref().filter(|_| first.cold == 0) {
        text.push_str(&format!(
            "; with none, boosted {} times plain (at most {TO_PLAIN_MAX}: {})",
            to_plain.text(),
            verdict(to_plain, TO_PLAIN_MAX)
        ));
    }
    Some(text)
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

fn costs(outcome: &Outcome) -> Rows {
    let rows = outcome.rows.iter().map(|row| {
        [
            row.server.clone(),
            format!("{}{}", row.wait, if row.boosted { ", boosted" } else { "" }),
            number(row.cold),
            row.us.text(),
            row.to_native.text(),
            row.to_plain.as_ref().map_or(NONE.into(), Figure::text),
            thousands(row.rate.value),
            thousands(row.errors as f64),
        ]
    });
    table(
        "CPU time of a request",
        &["<server", "<waits by", "cold", "µs", "to epoll", "to plain", "1/s", "failed"],
        rows,
        "Ratios are taken within a round: to the same server on epoll, and to the same call \
         without the library, with as many cold connections. Intervals of 95 %.",
    )
}

fn library(outcome: &Outcome) -> Rows {
    let rows = outcome.library.iter().map(|stats| {
        let counts = &stats.counts;
        let numbers = [
            counts.calls,
            counts.plain,
            counts.fallbacks,
            counts.probes,
            counts.hits,
            counts.audits,
            counts.audit_differences,
        ];
        let numbers = numbers.map(|number| thousands(number as f64));
        [&[stats.of.clone()][..], &numbers].concat()
    });
    table(
        "Statistics of the library",
        &["<server", "calls", "plain", "fallbacks", "probes", "hits", "audits", "differ"],
        rows,
        "Plain: calls with few descriptors, which go straight to the original. Probes: descriptors \
         that were checked one by one; hits: the ready ones. Audits: plain polls of everything, \
         compared with the epoll set. A program that ends by a signal, as HAProxy does, writes no \
         statistics.",
    )
}

fn differences(outcome: &Outcome) -> Rows {
    let rows = outcome.differences.iter().map(|one| {
        let [plain, boosted] = one.answers.clone();
        [one.of.clone(), one.asked.clone(), plain, boosted]
    });
    table("Responses that differ", &["<server", "<request", "~plain", "~boosted"], rows, "")
}

#[cfg(test)]
mod tests {
    use super::*;

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
