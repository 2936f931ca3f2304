//! The results as text and as a figure.

use harness::rounds::digits;
use report::sheet::{Panel, Rows, Sheet, Stroke, Ticks, Tone};

use super::judge::{CallCost, Part};
use super::{Load, Outcome, Row, Sharing};
use crate::published::{Facts, NETCACHE, SQUID};
use crate::show::{NONE, curve, fact, panel, table};

/// The group of procedures in the papers.
const SELECT: &str = "all select functions";

/// The results: sentences and tables.
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
/// The legend of a panel has room for six ways.
#[must_use]
pub fn figure(outcome: &Outcome) -> String {
    let mut panels = Vec::new();
    for load in Load::ALL {
        let mut put = |what: &str, unit: &str, left_out: Sharing, value: fn(&Row) -> f64| {
            panels.push(load_panel(outcome, (load, left_out), (what, unit), value));
        };
        // poll() costs so much that it would flatten the other curves.
        put("CPU time an event", "µs", Sharing::Poll, |row| row.cpu_us.value);
        put("Wakes an event", "", Sharing::Poll, |row| row.wakes.value);
        put("Waits an event", "", Sharing::Edge, |row| row.waits.value);
        put("Waits in vain", "%", Sharing::Edge, |row| 100.0 * row.vain.mean);
    }
    let description = "CPU time, waits in vain, waits and wakes for each event of work, by the \
                       number of workers, for seven ways in which they share descriptors.";
    crate::show::figure("Who is woken", &outcome.conditions.ground, description, &panels)
}

/// Name in the legend, colour and line: two curves of one colour have different lines.
fn look(sharing: Sharing) -> (&'static str, (Tone, Stroke)) {
    match sharing {
        Sharing::Poll => ("poll() (- -)", (Tone::Second, Stroke::Dashed)),
        Sharing::OneSet => ("one set", (Tone::Second, Stroke::Joined)),
        Sharing::Edge => ("edge (- -)", (Tone::Third, Stroke::Dashed)),
        Sharing::OneShot => ("oneshot", (Tone::Third, Stroke::Joined)),
        Sharing::OwnSets => ("own sets", (Tone::Fourth, Stroke::Joined)),
        Sharing::Exclusive => ("exclusive (- -)", (Tone::Fourth, Stroke::Dashed)),
        Sharing::ReusePort => ("reuse port", (Tone::First, Stroke::Joined)),
    }
}

fn load_panel(
    outcome: &Outcome,
    (load, left_out): (Load, Sharing),
    (what, unit): (&str, &str),
    value: fn(&Row) -> f64,
) -> Panel {
    let shown = Sharing::ALL.into_iter().filter(|one| *one != left_out);
    let curves = shown.map(|sharing| {
        let (name, look) = look(sharing);
        let rows = outcome.rows.iter().filter(|row| (row.load, row.sharing) == (load, sharing));
        let points = rows.map(|row| {
            let value = value(row);
            (f64::from(row.workers), value, format!("{} workers: {}", row.workers, digits(value)))
        });
        curve(name, look, points)
    });
    panel(format!("{what}: {}", load.label()), ("workers", Ticks::Binary), unit, curves)
}

fn facts(outcome: &Outcome) -> Vec<(String, String)> {
    let measuring = outcome.rows.iter().map(|row| row.measuring).fold(0.0, f64::max);
    let mut facts = outcome.conditions.facts(", including this study");
    facts.extend([
        fact(
            "Load",
            format!(
                "{} clients with one request each in flight, on one CPU; {} silent connections; \
                 {} rounds; seed {}",
                outcome.clients, outcome.cold, outcome.rounds, outcome.conditions.seed
            ),
        ),
        fact("Event", "a connection accepted, a request answered, or an end seen"),
        fact(
            "Measuring",
            format!(
                "all calls are counted; one in {} is timed by its thread's CPU clock, which shows \
                 {} ns for an empty call (subtracted) and took at most {:.1} % of the CPU time \
                 (subtracted)",
                outcome.sample_every,
                outcome.clock_ns,
                100.0 * measuring
            ),
        ),
    ]);
    facts
}

fn spread(part: &Part) -> String {
    format!("{:.1} ({:.1} to {:.1})", 100.0 * part.mean, 100.0 * part.least, 100.0 * part.most)
}

fn waits(outcome: &Outcome, load: Load) -> Rows {
    let rows = outcome.rows.iter().filter(|row| row.load == load).map(|row| {
        [
            row.workers.to_string(),
            row.sharing.label().to_owned(),
            digits(row.waits.value),
            digits(row.reported.value),
            spread(&row.vain),
            digits(row.wakes.value),
        ]
    });
    table(
        format!("Waits: {}", load.label()),
        &["workers", "<shared", "waits", "reported", "<in vain, %", "wakes"],
        rows,
        "Waits and wakes for each event; reported: events that a wait reports; in vain: waits that \
         gave no work, with the least and the most of a round.",
    )
}

fn cpu(outcome: &Outcome, load: Load) -> Rows {
    let rows = outcome.rows.iter().filter(|row| row.load == load).map(|row| {
        [
            row.workers.to_string(),
            row.sharing.label().to_owned(),
            digits(row.cpu_us.value),
            row.to_ours.text(),
            digits(row.busiest.value),
        ]
    });
    table(
        format!("CPU time an event: {}", load.label()),
        &["workers", "<shared", "µs", "<to reuse port (ours)", "busiest"],
        rows,
        "Of the workers. Ratios within a round, 95 % intervals; busiest: the events of the busiest \
         worker relative to an equal share.",
    )
}

fn called_more(outcome: &Outcome) -> Rows {
    let published = Facts::read().netcache_profile.select_calls_new_over_old;
    let mut rows = vec![[(); 7].map(|()| NONE.to_owned())];
    rows[0][0] = format!("{NETCACHE} (1998)");
    rows[0][2] = format!("about {published:.0}");
    rows.extend(outcome.called_more.iter().map(|more| {
        [
            more.load.label().to_owned(),
            more.workers.to_string(),
            more.ratio.text(),
            digits(more.wait_us.0),
            digits(more.wait_us.1),
            digits(more.reported.0.value),
            digits(more.reported.1.value),
        ]
    }));
    table(
        "How much more often a fast wait is called than a slow one",
        &[
            "~what",
            "workers",
            "<times as often",
            "slow, µs",
            "fast, µs",
            "slow events",
            "fast events",
        ],
        rows,
        "In 1998 the new select() against the old; here one epoll set against poll(), with all \
         workers on all descriptors in both. CPU time of one wait, and events that it reports.",
    )
}

/// For the most workers: CPU time of the calls for an event, their number, CPU time of one.
fn breakdown(outcome: &Outcome) -> [Rows; 3] {
    let most = most_workers(outcome).unwrap_or(0);
    let by_call = |title: &str, note: &str, value: fn(&CallCost) -> f64| {
        let rows = outcome.rows.iter().filter(|row| row.workers == most).map(|row| {
            let mut cells = vec![row.load.short().to_owned(), row.sharing.label().to_owned()];
            cells.extend(row.calls.iter().map(|cost| match cost.per_event > 0.0 {
                true => digits(value(cost)),
                false => NONE.to_owned(),
            }));
            cells
        });
        let columns = ["<load", "<shared", "wait", "epoll_ctl", "accept", "read", "write"];
        table(format!("{title}, {most} workers"), &columns, rows, note)
    };
    let mut times = by_call(
        "CPU time an event by system call, µs",
        "Counted calls times the sampled cost of one. The rest is the difference to the whole, \
         with the error of all of them.",
        |cost| cost.us,
    );
    times.columns.push("the rest".to_owned());
    let rest = outcome.rows.iter().filter(|row| row.workers == most).map(|row| row.rest_us);
    times.rows.iter_mut().zip(rest).for_each(|(row, rest)| row.push(digits(rest)));
    [
        times,
        by_call("System calls an event", "Counted.", |cost| cost.per_event),
        by_call(
            "CPU time of one call, µs",
            "The mean of the timed calls. A wait includes going to sleep and waking up.",
            |cost| cost.us_each,
        ),
    ]
}

/// The part of the CPU time that waits take, published and here.
fn wait_parts(outcome: &Outcome) -> Rows {
    let facts = Facts::read();
    let netcache = &facts.netcache_profile;
    let squid = |kernel: &str| {
        let part = facts.profile(SQUID, kernel).and_then(|profile| profile.percent_busy(SELECT));
        part.map_or(NONE.to_owned(), |part| format!("{part:.2} %"))
    };
    let row = |server: &str, select: &str, part: String| {
        vec![format!("{server}, {select} select()"), NONE.to_owned(), part]
    };
    let (one_process, threads) = (format!("{SQUID}, one process"), format!("{NETCACHE}, threads"));
    let mut rows = vec![
        row(&one_process, "old", squid("old")),
        row(&one_process, "new", squid("new")),
        row(&threads, "old", format!("{} %", netcache.select_old_kernel)),
        row(&threads, "new", format!("{} %", netcache.select_new_kernel)),
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
    table(
        "The part of the CPU time that waits take",
        &["<server", "workers", "<part"],
        rows,
        "Published: all select functions, of all time that was not idle, on live proxies. Here: of \
         the workers' CPU time, requests on kept connections, without the kernel's work for them \
         elsewhere; in brackets the least and the most of a round.",
    )
}

fn most_workers(outcome: &Outcome) -> Option<u32> {
    outcome.rows.iter().map(|row| row.workers).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_of_sharing_look_different_and_their_names_fit_the_legend() {
        for (at, one) in Sharing::ALL.iter().enumerate() {
            assert!(look(*one).0.chars().count() <= 16, "{one:?}");
            for other in &Sharing::ALL[at + 1..] {
                assert_ne!(look(*one).1, look(*other).1, "{one:?} {other:?}");
                assert_ne!(one.label(), other.label());
            }
        }
    }

    #[test]
    fn a_part_is_shown_with_its_least_and_most() {
        let part = Part { mean: 0.5, least: 0.0, most: 1.0 };
        assert_eq!(spread(&part), "50.0 (0.0 to 100.0)");
    }
}
