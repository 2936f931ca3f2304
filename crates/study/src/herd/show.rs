//! What was found, as text and as a figure.

use report::sheet::{Curve, Panel, Rows, Sheet, Stroke, Ticks, Tone, svg_curves};

use super::judge::{CallCost, Part};
use super::{Load, Outcome, Row, Sharing};
use crate::published::{Facts, NETCACHE, SQUID};
use harness::environment::load_averages;
use harness::rounds::digits;

/// The group of the papers.
const SELECT: &str = "all select functions";

/// What is said of it: sentences and tables.
#[must_use]
pub fn shown(outcome: &Outcome) -> Sheet {
    let title = "Workers that wait for the same descriptors".to_owned();
    let mut tables: Vec<Rows> = Load::ALL.map(|load| waits(outcome, load)).into();
    tables.extend(Load::ALL.map(|load| cpu(outcome, load)));
    tables.push(called_more(outcome));
    tables.extend(breakdown(outcome));
    tables.push(wait_parts(outcome));
    Sheet { title, facts: facts(outcome), tables }
}

/// The figure: waits, waits in vain, wakes and CPU time for each event, by the number of workers.
/// Six ways in a panel are what its legend holds.
#[must_use]
pub fn figure(outcome: &Outcome) -> String {
    let mut panels = Vec::new();
    for load in Load::ALL {
        let name = load.label();
        let mut put = |what: &str, unit: &str, left_out: Sharing, value: fn(&Row) -> f64| {
            panels.push(panel(outcome, (load, left_out), (what, name, unit), value));
        };
        // poll() costs so much that it would flatten the others.
        put("CPU time an event", "µs", Sharing::Poll, |row| row.cpu_us.value);
        put("Wakes an event", "", Sharing::Poll, |row| row.wakes.value);
        put("Waits an event", "", Sharing::Edge, |row| row.waits.value);
        put("Waits in vain", "%", Sharing::Edge, |row| 100.0 * row.vain.mean);
    }
    let ground = &outcome.ground;
    let title = format!("Who is woken: {}, Linux {}", ground.processor, ground.kernel);
    let description = "CPU time, waits in vain, waits and wakes for each event of work, by the \
                       number of workers, for seven ways in which they share descriptors.";
    svg_curves(&title, description, &panels)
}

/// Name in the legend, colour, line: two of a colour are told apart by their lines.
fn look(sharing: Sharing) -> (&'static str, Tone, Stroke) {
    match sharing {
        Sharing::Poll => ("poll() (- -)", Tone::Second, Stroke::Dashed),
        Sharing::OneSet => ("one set", Tone::Second, Stroke::Joined),
        Sharing::Edge => ("edge (- -)", Tone::Third, Stroke::Dashed),
        Sharing::OneShot => ("oneshot", Tone::Third, Stroke::Joined),
        Sharing::OwnSets => ("own sets", Tone::Fourth, Stroke::Joined),
        Sharing::Exclusive => ("exclusive (- -)", Tone::Fourth, Stroke::Dashed),
        Sharing::ReusePort => ("reuse port", Tone::First, Stroke::Joined),
    }
}

fn panel(
    outcome: &Outcome,
    (load, left_out): (Load, Sharing),
    (what, name, unit): (&str, &str, &str),
    value: fn(&Row) -> f64,
) -> Panel {
    let curve = |sharing: Sharing| {
        let (name, tone, stroke) = look(sharing);
        let rows = outcome.rows.iter().filter(|row| (row.load, row.sharing) == (load, sharing));
        let point = |row: &Row| {
            let value = value(row);
            (f64::from(row.workers), value, format!("{} workers: {}", row.workers, digits(value)))
        };
        Curve { name: name.to_owned(), tone, stroke, points: rows.map(point).collect() }
    };
    Panel {
        title: format!("{what}: {name}"),
        x: "workers".into(),
        ticks: Ticks::Binary,
        y: unit.to_owned(),
        marks: Vec::new(),
        curves: Sharing::ALL.into_iter().filter(|one| *one != left_out).map(curve).collect(),
        note: "not measured".into(),
    }
}

fn facts(outcome: &Outcome) -> Vec<(String, String)> {
    let fact = |label: &str, text: String| (label.to_owned(), text);
    let measuring = outcome.rows.iter().map(|row| row.measuring).fold(0.0, f64::max);
    vec![
        fact("Environment", outcome.ground.machine()),
        fact("Others", format!("{}, this study's own in it", load_averages(outcome.load_average))),
        fact(
            "Load",
            format!(
                "{} clients with one request each under way, on one CPU; {} silent connections; \
                 {} rounds; seed {}",
                outcome.clients, outcome.cold, outcome.rounds, outcome.seed
            ),
        ),
        fact("Event", "a connection accepted, a request answered, or an end seen".to_owned()),
        fact(
            "Measuring",
            format!(
                "all calls are counted; one in {} is timed by its thread's CPU clock, which shows \
                 {} ns of nothing (taken off) and took {:.1} % of the CPU time at most (taken off)",
                outcome.sample_every,
                outcome.clock_ns,
                100.0 * measuring
            ),
        ),
    ]
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn spread(part: &Part) -> String {
    format!("{:.1} ({:.1} to {:.1})", 100.0 * part.mean, 100.0 * part.least, 100.0 * part.most)
}

fn waits(outcome: &Outcome, load: Load) -> Rows {
    let rows = outcome.rows.iter().filter(|row| row.load == load).map(|row| {
        vec![
            row.workers.to_string(),
            row.sharing.label().to_owned(),
            digits(row.waits.value),
            digits(row.told.value),
            spread(&row.vain),
            digits(row.wakes.value),
        ]
    });
    Rows {
        title: format!("Waits: {}", load.label()),
        columns: columns(&["workers", "<shared", "waits", "told", "<in vain, %", "wakes"]),
        rows: rows.collect(),
        note: "Waits and wakes for each event; told: events a wait tells of; in vain: waits that \
               gave no work, with the least and the most of a round."
            .into(),
    }
}

fn cpu(outcome: &Outcome, load: Load) -> Rows {
    let rows = outcome.rows.iter().filter(|row| row.load == load).map(|row| {
        vec![
            row.workers.to_string(),
            row.sharing.label().to_owned(),
            digits(row.cpu_us.value),
            row.to_ours.text(),
            digits(row.busiest.value),
        ]
    });
    Rows {
        title: format!("CPU time an event: {}", load.label()),
        columns: columns(&["workers", "<shared", "µs", "<to reuse port (ours)", "busiest"]),
        rows: rows.collect(),
        note: "Of the workers. Ratios within a round, 95 % intervals; busiest: the events of the \
               worker with the most, in times of an equal share."
            .into(),
    }
}

fn called_more(outcome: &Outcome) -> Rows {
    let published = Facts::read().netcache_profile.select_calls_new_over_old;
    let mut rows = vec![vec![
        format!("{NETCACHE} (1998)"),
        "-".into(),
        format!("about {published:.0}"),
        "-".into(),
        "-".into(),
        "-".into(),
        "-".into(),
    ]];
    rows.extend(outcome.called_more.iter().map(|more| {
        vec![
            more.load.label().to_owned(),
            more.workers.to_string(),
            more.ratio.text(),
            digits(more.wait_us.0),
            digits(more.wait_us.1),
            digits(more.told.0.value),
            digits(more.told.1.value),
        ]
    }));
    Rows {
        title: "How much more often a fast wait is called than a slow one".into(),
        columns: columns(&[
            "~what",
            "workers",
            "<times as often",
            "slow, µs",
            "fast, µs",
            "it tells",
            "fast tells",
        ]),
        rows,
        note: "In 1998 the new select() against the old; here one epoll set against poll(), all \
               workers on all descriptors in both. CPU time of one wait, and events it tells of."
            .into(),
    }
}

/// With the most workers: what the calls take for an event, how many there are, what one takes.
fn breakdown(outcome: &Outcome) -> [Rows; 3] {
    let most = most_workers(outcome).unwrap_or(0);
    let table = |title: &str, note: &str, value: fn(&CallCost) -> f64, rest: bool| {
        let rows = outcome.rows.iter().filter(|row| row.workers == most).map(|row| {
            let mut cells = vec![row.load.short().to_owned(), row.sharing.label().to_owned()];
            let made = |cost: &CallCost| cost.per_event > 0.0;
            cells.extend(
                row.calls
                    .iter()
                    .map(|cost| if made(cost) { digits(value(cost)) } else { "-".to_owned() }),
            );
            if rest {
                cells.push(digits(row.rest_us));
            }
            cells
        });
        let mut names =
            columns(&["<load", "<shared", "wait", "epoll_ctl", "accept", "read", "write"]);
        names.extend(rest.then(|| "the rest".to_owned()));
        let title = format!("{title}, {most} workers");
        Rows { title, columns: names, rows: rows.collect(), note: note.into() }
    };
    [
        table(
            "CPU time an event by system call, µs",
            "Calls, which are counted, times what one costs, which is sampled; the rest is what is \
             left, with the error of all of them.",
            |cost| cost.us,
            true,
        ),
        table("System calls an event", "Counted.", |cost| cost.per_event, false),
        table(
            "CPU time of one call, µs",
            "The mean of those that were timed. A wait has the way to sleep and back in it.",
            |cost| cost.us_each,
            false,
        ),
    ]
}

/// The wait's part, published and here.
fn wait_parts(outcome: &Outcome) -> Rows {
    let facts = Facts::read();
    let netcache = &facts.netcache_profile;
    let squid = |kernel: &str| {
        let part = facts.profile(SQUID, kernel).and_then(|profile| profile.percent_busy(SELECT));
        part.map_or("-".to_owned(), |part| format!("{part:.2} %"))
    };
    let row = |who: String, part: String| vec![who, "-".to_owned(), part];
    let mut rows = vec![
        row(format!("{SQUID}, one process, old select()"), squid("old")),
        row(format!("{SQUID}, one process, new select()"), squid("new")),
        row(
            format!("{NETCACHE}, threads, old select()"),
            format!("{} %", netcache.select_old_kernel),
        ),
        row(
            format!("{NETCACHE}, threads, new select()"),
            format!("{} %", netcache.select_new_kernel),
        ),
    ];
    let ends = [outcome.rows.iter().map(|row| row.workers).min(), most_workers(outcome)];
    for sharing in Sharing::ALL {
        let wanted = |row: &&Row| {
            row.sharing == sharing && row.load == Load::Kept && ends.contains(&Some(row.workers))
        };
        rows.extend(outcome.rows.iter().filter(wanted).map(|row| {
            let text = format!("{} %", spread(&row.wait_part));
            vec![format!("here, {}", sharing.label()), row.workers.to_string(), text]
        }));
    }
    Rows {
        title: "The wait's part of the CPU time".into(),
        columns: columns(&["<who", "workers", "<part"]),
        rows,
        note: "Published: all select functions, of what was not idle, on live proxies. Here: of \
               the workers' CPU time, requests on kept connections, without what the kernel does \
               for them elsewhere; in brackets the least and the most of a round."
            .into(),
    }
}

fn most_workers(outcome: &Outcome) -> Option<u32> {
    outcome.rows.iter().map(|row| row.workers).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_ways_look_alike_and_names_fit_the_legend() {
        for (at, one) in Sharing::ALL.iter().enumerate() {
            assert!(look(*one).0.chars().count() <= 16, "{one:?}");
            for other in &Sharing::ALL[at + 1..] {
                assert_ne!(
                    (look(*one).1, look(*one).2),
                    (look(*other).1, look(*other).2),
                    "{one:?} {other:?}"
                );
                assert_ne!(one.label(), other.label());
            }
        }
    }

    #[test]
    fn a_part_is_told_with_its_ends() {
        let part = Part { mean: 0.5, least: 0.0, most: 1.0 };
        assert_eq!(spread(&part), "50.0 (0.0 to 100.0)");
    }
}
