//! What was found, in sentences, tables and a figure.

use report::format::thousands;
use report::sheet::{Curve, Panel, Rows, Sheet, Stroke, Ticks, Tone, svg_curves};

use super::servers::{NATIVE, Server};
use super::{Outcome, Row};
use harness::environment::load_averages;
use harness::rounds::{Figure, digits};

/// With silent connections a boosted wait may cost at most so many times epoll's, and without them
/// so many times the plain call's.
const TO_NATIVE_MAX: f64 = 1.25;
const TO_PLAIN_MAX: f64 = 1.05;

/// What is said of it: sentences and tables.
#[must_use]
pub fn shown(outcome: &Outcome) -> Sheet {
    let title =
        "poll() and select() answered from an epoll set, in programs as they are".to_owned();
    let mut tables = vec![costs(outcome), library(outcome), differences(outcome)];
    tables.retain(|table| !table.rows.is_empty());
    Sheet { title, facts: facts(outcome), tables }
}

/// The figure: CPU time a request by number of cold connections, a panel for each server.
#[must_use]
pub fn figure(outcome: &Outcome) -> String {
    let ground = &outcome.ground;
    let title = format!("Boosted waits: {}, Linux {}", ground.processor, ground.kernel);
    let panels: Vec<Panel> = Server::ALL.iter().map(|server| panel(outcome, *server)).collect();
    let description = "CPU time a request of servers that wait by poll or select, plainly and with \
                       the preloaded library, and by epoll, by the number of cold connections.";
    svg_curves(&title, description, &panels)
}

fn panel(outcome: &Outcome, server: Server) -> Panel {
    let looks = [
        (NATIVE, false, "epoll", Tone::First, Stroke::Joined),
        ("poll", false, "poll", Tone::Second, Stroke::Joined),
        ("poll", true, "poll, boosted (- -)", Tone::Second, Stroke::Dashed),
        ("select", false, "select", Tone::Third, Stroke::Joined),
        ("select", true, "select, boosted (- -)", Tone::Third, Stroke::Dashed),
    ];
    let curves = looks.into_iter().map(|(wait, boosted, name, tone, stroke)| Curve {
        name: name.to_owned(),
        tone,
        stroke,
        points: of(outcome, server, wait, boosted)
            .map(|row| {
                let said = format!("{name}, {} cold: {} µs", row.cold, row.us.text());
                (f64::from(row.cold), row.us.value, said)
            })
            .collect(),
    });
    Panel {
        title: format!("{}: CPU time a request", server.name()),
        x: "cold connections".into(),
        ticks: Ticks::Decimal,
        y: "µs".into(),
        marks: Vec::new(),
        curves: curves.filter(|curve| !curve.points.is_empty()).collect(),
        note: "not measured".into(),
    }
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
    let fact = |label: &str, text: String| (label.to_owned(), text);
    let requests: u64 = outcome.rows.iter().map(|row| row.requests).sum();
    let errors: u64 = outcome.rows.iter().map(|row| row.errors).sum();
    let mut facts = vec![
        fact("Environment", outcome.ground.machine()),
        fact("Others", load_averages(outcome.load_average)),
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
            "Answers",
            format!(
                "{} compared, boosted with plain: {} differ",
                thousands(outcome.compared as f64),
                outcome.differences.len()
            ),
        ),
    ];
    for server in Server::ALL {
        for wait in ["poll", "select"] {
            if let Some(text) = bounds(outcome, server, wait) {
                facts.push(fact(server.name(), text));
            }
        }
    }
    let missing = outcome.missing.iter();
    facts.extend(
        missing.map(|missing| fact("Not here", format!("{}: {}", missing.what, missing.why))),
    );
    facts
}

/// What the library made of one call of one server, beside what it may.
fn bounds(outcome: &Outcome, server: Server, wait: &str) -> Option<String> {
    let boosted: Vec<&Row> = of(outcome, server, wait, true).collect();
    let (first, last) = (boosted.first()?, boosted.last()?);
    let plain = of(outcome, server, wait, false).last()?;
    let mut text = format!(
        "on {wait} with {} cold {} times epoll's cost, boosted {} (at most {TO_NATIVE_MAX}: {})",
        thousands(f64::from(last.cold)),
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

/// Whether a ratio is as it is to be: one round says nothing, and neither does none.
fn verdict(figure: &Figure, most: f64) -> &'static str {
    match figure.interval {
        None => "one round does not tell",
        _ if figure.value <= most => "held",
        Some((low, _)) if low <= most => "not told apart from it",
        Some(_) => "NOT held",
    }
}

fn costs(outcome: &Outcome) -> Rows {
    let row = |row: &Row| {
        vec![
            row.server.clone(),
            format!("{}{}", row.wait, if row.boosted { ", boosted" } else { "" }),
            thousands(f64::from(row.cold)),
            row.us.text(),
            row.to_native.text(),
            row.to_plain.as_ref().map_or("-".into(), Figure::text),
            thousands(row.rate.value),
            thousands(row.errors as f64),
        ]
    };
    Rows {
        title: "CPU time of a request".into(),
        columns: ["<server", "<waits by", "cold", "µs", "to epoll", "to plain", "1/s", "failed"]
            .map(String::from)
            .to_vec(),
        rows: outcome.rows.iter().map(row).collect(),
        note: "Ratios are taken within a round: to the same server on epoll, and to the same call \
               without the library, with as many cold connections. Intervals of 95 %."
            .into(),
    }
}

fn library(outcome: &Outcome) -> Rows {
    let row = |stats: &super::LibraryStats| {
        let counts = &stats.counts;
        let mut cells = vec![stats.of.clone()];
        let numbers = [
            counts.calls,
            counts.plain,
            counts.fallbacks,
            counts.probes,
            counts.hits,
            counts.audits,
            counts.audit_differences,
        ];
        cells.extend(numbers.map(|number| thousands(number as f64)));
        cells
    };
    Rows {
        title: "What the library did".into(),
        columns: ["<server", "calls", "plain", "fallbacks", "probes", "hits", "audits", "differ"]
            .map(String::from)
            .to_vec(),
        rows: outcome.library.iter().map(row).collect(),
        note: "Plain: calls with few descriptors, which go straight to the original. Probes: \
               descriptors asked about one by one, hits those that were ready. Audits: plain polls \
               of everything, held against what epoll said. A program that ends by a signal, as \
               HAProxy does, says nothing."
            .into(),
    }
}

fn differences(outcome: &Outcome) -> Rows {
    Rows {
        title: "Answers that differ".into(),
        columns: ["<server", "<asked", "~plain", "~boosted"].map(String::from).to_vec(),
        rows: outcome
            .differences
            .iter()
            .map(|one| {
                let [plain, boosted] = one.answers.clone();
                vec![one.of.clone(), one.asked.clone(), plain, boosted]
            })
            .collect(),
        note: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_held_missed_or_not_told() {
        let of = |values: &[f64]| verdict(&Figure::of(values.iter().copied()), TO_NATIVE_MAX);
        assert_eq!(of(&[1.0, 1.1, 1.05]), "held");
        assert_eq!(of(&[1.0, 1.3, 1.9]), "not told apart from it");
        assert_eq!(of(&[1.9, 2.0, 2.1]), "NOT held");
        assert_eq!(of(&[0.9]), "one round does not tell");
        assert_eq!(of(&[]), "one round does not tell");
    }
}
