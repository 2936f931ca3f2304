//! What was found, as text and as a figure.

use report::format::thousands;
use report::sheet::{Curve, Panel, Rows, Sheet, Stroke, Ticks, Tone, svg_curves};

use super::{Outcome, Simulated, Timed, Way};
use crate::published::{Facts, SQUID};
use harness::environment::load_averages;
use harness::rounds::{Figure, digits};

/// The procedure of the papers.
const PROCEDURE: &str = "comm_select";
/// The server before the cure.
const UNCURED: &str = "Squid 1.1.20";

/// What is said of it: sentences and tables.
#[must_use]
pub fn shown(outcome: &Outcome) -> Sheet {
    let title = "The table walk of comm_select (1998) on this machine".to_owned();
    let tables = vec![shares(outcome), times(outcome), misses(outcome)];
    Sheet { title, facts: facts(outcome), tables }
}

/// The figure: shares of the time and misses a request, by the number of ready ones.
#[must_use]
pub fn figure(outcome: &Outcome) -> String {
    let mut panels = Vec::new();
    for descriptors in numbers(outcome) {
        for backend in backends(outcome) {
            panels.push(time_panel(outcome, descriptors, &backend));
        }
        for machine in &outcome.machines {
            panels.push(miss_panel(outcome, descriptors, &machine.name));
        }
    }
    let ground = &outcome.ground;
    let title = format!("The table walk: {}, Linux {}", ground.processor, ground.kernel);
    let description = "CPU time of a request and cache misses of what is no dispatch, by the \
                       number of connections that are ready at a wait.";
    svg_curves(&title, description, &panels)
}

fn look(way: Way) -> Tone {
    match way {
        Way::Walk => Tone::Second,
        Way::Bitmaps => Tone::Third,
        Way::Tokens => Tone::First,
    }
}

fn numbers(outcome: &Outcome) -> Vec<u32> {
    let mut numbers: Vec<u32> = outcome.timed.iter().map(|timed| timed.descriptors).collect();
    numbers.dedup();
    numbers
}

fn backends(outcome: &Outcome) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for timed in &outcome.timed {
        if !names.contains(&timed.backend) {
            names.push(timed.backend.clone());
        }
    }
    names
}

fn panel(title: String, unit: &str, points: impl Fn(Way) -> Vec<(f64, f64, String)>) -> Panel {
    let curve = |way: Way| Curve {
        name: way.label().to_owned(),
        tone: look(way),
        stroke: Stroke::Joined,
        points: points(way),
    };
    Panel {
        title,
        x: "ready at a wait".into(),
        ticks: Ticks::Binary,
        y: unit.to_owned(),
        marks: Vec::new(),
        curves: Way::ALL.into_iter().map(curve).collect(),
        note: "not measured".into(),
    }
}

fn time_panel(outcome: &Outcome, descriptors: u32, backend: &str) -> Panel {
    let title = format!("{} descriptors, {backend}: a request", thousands(f64::from(descriptors)));
    panel(title, "µs", |way| {
        let of = |timed: &&Timed| {
            timed.way == way && timed.descriptors == descriptors && timed.backend == backend
        };
        let point = |timed: &Timed| {
            let us = timed.dispatch_us.value + timed.wait_us.value + timed.rest_us.value;
            (f64::from(timed.ready), us, format!("{} ready: {us:.2} µs", timed.ready))
        };
        outcome.timed.iter().filter(of).map(point).collect()
    })
}

fn miss_panel(outcome: &Outcome, descriptors: u32, machine: &str) -> Panel {
    let number = thousands(f64::from(descriptors));
    let title = format!("{number} descriptors, {machine}: misses elsewhere");
    panel(title, "second-level misses a request", |way| {
        let of = |found: &&Simulated| {
            found.way == way && found.descriptors == descriptors && found.machine == machine
        };
        let point = |found: &Simulated| {
            let [_, (_, l2)] = found.a_request();
            (f64::from(found.ready), l2, format!("{} ready: {l2:.1}", found.ready))
        };
        outcome.simulated.iter().filter(of).map(point).collect()
    })
}

fn facts(outcome: &Outcome) -> Vec<(String, String)> {
    let fact = |label: &str, text: String| (label.to_owned(), text);
    let mut facts = vec![
        fact("Environment", outcome.ground.machine()),
        fact("Others", format!("{}; medians of turns", load_averages(outcome.load_average))),
        fact(
            "Table",
            format!(
                "{} bytes an entry (assumed: the papers say \"large\"); seed {}",
                outcome.entry_bytes, outcome.seed
            ),
        ),
    ];
    for machine in &outcome.machines {
        let levels = format!("{}; {}", machine.l1.text(), machine.l2.text());
        facts.push(fact("Cache", format!("{}: {levels}", machine.name)));
    }
    facts.extend(outcome.missing.iter().map(|why| fact("Backend", why.clone())));
    facts
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn percent(share: &Figure) -> String {
    let digits = |part: f64| format!("{:.2} %", 100.0 * part);
    match share.interval {
        _ if !share.value.is_finite() => "-".to_owned(),
        Some((low, high)) => {
            format!("{} ({} to {})", digits(share.value), digits(low), digits(high))
        }
        None => digits(share.value),
    }
}

/// The procedure's part of the CPU time: published, and here.
fn shares(outcome: &Outcome) -> Rows {
    let facts = Facts::read();
    let of = |server: &str, kernel: &str| {
        let profile = facts.profile(server, kernel)?;
        Some((profile.rate_mean, profile.percent_busy(PROCEDURE)?))
    };
    let mut rows = Vec::new();
    let published = [
        ("Squid 1.1.20, new kernel", UNCURED, "new", Way::Walk),
        ("1.1.20Mod, new kernel", SQUID, "new", Way::Bitmaps),
        ("1.1.20Mod, old kernel", SQUID, "old", Way::Bitmaps),
    ];
    for (name, server, kernel, way) in published {
        let Some((rate, part)) = of(server, kernel) else { continue };
        let text = format!("{part:.2} % at {rate:.0} requests/s");
        rows.push(vec![way.label().to_owned(), name.to_owned(), "-".into(), text]);
    }
    for timed in &outcome.timed {
        rows.push(vec![
            timed.way.label().to_owned(),
            format!("here, {}, {} open", timed.backend, thousands(f64::from(timed.descriptors))),
            timed.ready.to_string(),
            percent(&timed.share),
        ]);
    }
    Rows {
        title: "The dispatch's part of the CPU time".into(),
        columns: columns(&["<way", "<where", "ready", "<part"]),
        rows,
        note: "Published: comm_select in percent of all time that is not idle. Here: what is done \
               before and after the wait, in percent of the turn, sockets and all; 95 % intervals \
               over rounds."
            .into(),
    }
}

fn times(outcome: &Outcome) -> Rows {
    let rows = outcome.timed.iter().map(|timed| {
        vec![
            timed.way.label().to_owned(),
            timed.backend.clone(),
            thousands(f64::from(timed.descriptors)),
            timed.ready.to_string(),
            digits(timed.dispatch_us.value),
            digits(timed.wait_us.value),
            digits(timed.rest_us.value),
            timed.rest_ratio.text(),
        ]
    });
    Rows {
        title: "A request, µs".into(),
        columns: columns(&[
            "<way",
            "<backend",
            "open",
            "ready",
            "dispatch",
            "wait",
            "the rest",
            "<the rest, to tokens",
        ]),
        rows: rows.collect(),
        note: "The rest: read, look up, copy, answer, log. Its ratio is within a round, the same \
               backend: above 1 is what the dispatch took from its caches."
            .into(),
    }
}

fn misses(outcome: &Outcome) -> Rows {
    let rows = outcome.simulated.iter().map(|found| {
        let [dispatch, rest] = found.a_request();
        let ours = outcome.simulated.iter().find(|other| {
            other.way == Way::Tokens
                && (&other.machine, other.descriptors, other.ready)
                    == (&found.machine, found.descriptors, found.ready)
        });
        let more = ours.map_or((f64::NAN, f64::NAN), |ours| {
            let [_, theirs] = ours.a_request();
            (rest.0 / theirs.0, rest.1 / theirs.1)
        });
        vec![
            found.machine.clone(),
            found.way.label().to_owned(),
            thousands(f64::from(found.descriptors)),
            found.ready.to_string(),
            format!("{:.1} / {:.1}", dispatch.0, dispatch.1),
            format!("{:.1} / {:.1}", rest.0, rest.1),
            format!("{:.2} / {:.2}", more.0, more.1),
        ]
    });
    Rows {
        title: "Simulated misses a request, first level / second".into(),
        columns: columns(&[
            "<cache",
            "<way",
            "open",
            "ready",
            "<dispatch",
            "<the rest",
            "<to tokens",
        ]),
        rows: rows.collect(),
        note: "To tokens: misses of the rest, in times of those with tokens. Counts, \
               the same every time; instructions, prefetching and the kernel are left out."
            .into(),
    }
}
