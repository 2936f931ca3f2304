//! The results as text and as a figure.

use harness::rounds::{Figure, digits};
use report::format::thousands;
use report::sheet::{Panel, Rows, Sheet, Stroke, Ticks, Tone};

use super::servers::OURS;
use super::{From, Outcome, Row};
use crate::show::{NONE, curve, distinct, fact, number, panel, table};

/// The results: sentences and tables.
#[must_use]
pub fn shown(outcome: &Outcome) -> Sheet {
    let title = "A static tree and clients in a closed loop".to_owned();
    let tables = vec![
        by_clients(
            outcome,
            ("Requests a second", "All servers send bodies of the same lengths; each is checked."),
            |row| thousands(row.rate.value),
        ),
        by_clients(outcome, ("Megabytes a second", "Of bodies, 10^6 bytes each."), |row| {
            digits(row.megabytes.value)
        }),
        by_clients(
            outcome,
            ("CPU time a request, µs", "Of all processes of the server, user and kernel."),
            |row| digits(row.us.value),
        ),
        by_clients(
            outcome,
            (
                "Processors used",
                "CPU time per second of wall time. If there are two processors, the generator has \
                 one: a server with as many workers as processors shares it.",
            ),
            |row| digits(row.busy.value),
        ),
        ratios(outcome),
        scaling(outcome),
    ];
    Sheet { title, facts: facts(outcome), tables }
}

/// The figure: requests a second and CPU time a request by clients, for each number of workers.
#[must_use]
pub fn figure(outcome: &Outcome) -> String {
    let mut panels = Vec::new();
    for workers in ascending(outcome, |row| row.workers) {
        let title = |what: &str| match workers {
            1 => format!("{what}: 1 worker"),
            _ => format!("{what}: {workers} workers"),
        };
        let rate = |row: &Row| row.rate.value;
        panels.push(workers_panel(outcome, workers, (title("Requests a second"), "1/s"), rate));
        let us = |row: &Row| row.us.value;
        panels.push(workers_panel(outcome, workers, (title("CPU time a request"), "µs"), us));
    }
    let description = "Requests a second and CPU time a request of each server, by the number of \
                       clients in a closed loop and by the number of workers.";
    crate::show::figure("A static tree", &outcome.conditions.ground, description, &panels)
}

/// The colours and lines, in the order of the servers.
const LOOKS: [(Tone, Stroke); 5] = [
    (Tone::First, Stroke::Joined),
    (Tone::Second, Stroke::Joined),
    (Tone::Second, Stroke::Dashed),
    (Tone::Third, Stroke::Joined),
    (Tone::Fourth, Stroke::Joined),
];

fn workers_panel(
    outcome: &Outcome,
    workers: u16,
    (title, unit): (String, &str),
    value: impl Fn(&Row) -> f64,
) -> Panel {
    let servers = servers(outcome);
    let curves = servers.iter().zip(LOOKS.into_iter().cycle()).map(|(server, look)| {
        let wanted = |row: &&Row| (row.server.as_str(), row.workers) == (server, workers);
        let points = outcome.rows.iter().filter(wanted).map(|row| {
            let value = value(row);
            (f64::from(row.clients), value, format!("{} clients: {}", row.clients, digits(value)))
        });
        let name = match look.1 {
            Stroke::Dashed => format!("{server} (- -)"),
            _ => (*server).to_owned(),
        };
        curve(&name, look, points)
    });
    panel(title, ("clients", Ticks::Binary), unit, curves)
}

fn servers(outcome: &Outcome) -> Vec<&str> {
    distinct(outcome.rows.iter().map(|row| row.server.as_str()))
}

/// The numbers that occur in the rows.
fn ascending<T: Ord>(outcome: &Outcome, number: impl Fn(&Row) -> T) -> Vec<T> {
    let mut numbers: Vec<T> = outcome.rows.iter().map(number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn clients(outcome: &Outcome) -> Vec<u32> {
    ascending(outcome, |row| row.clients)
}

fn facts(outcome: &Outcome) -> Vec<(String, String)> {
    let tree = &outcome.tree;
    let mut facts = outcome.conditions.facts(", including this study");
    facts.extend([
        fact(
            "Tree",
            format!(
                "{} files, the median {} bytes, the longest {}, {} in all; seed {}",
                number(tree.files),
                thousands(tree.median_bytes as f64),
                thousands(tree.longest_bytes as f64),
                thousands(tree.bytes as f64),
                outcome.conditions.seed
            ),
        ),
        fact(
            "Bodies",
            format!(
                "files: sent from the page cache by sendfile; cache: {OURS} and the others are \
                 proxies, filled once from an origin, and answer from their own memory"
            ),
        ),
        fact("Visits", format!("{} rounds of {} s each visit", outcome.rounds, outcome.visit_s)),
    ]);
    if !outcome.versions.is_empty() {
        facts.push(fact("Peers", outcome.versions.join(", ")));
    }
    let missing = outcome.missing.iter();
    facts.extend(missing.map(|one| fact("Not here", format!("{}: {}", one.server, one.why))));
    let failed: Vec<String> = outcome.rows.iter().filter_map(failures).collect();
    if !failed.is_empty() {
        facts.push(fact("Failures", failed.join("; ")));
    }
    facts
}

/// The failed requests of a row, if there are any.
fn failures(row: &Row) -> Option<String> {
    let Row { server, workers, clients, errors, requests, .. } = row;
    (*errors > 0).then(|| {
        format!("{server}, {workers} workers, {clients} clients: {errors} of {requests} requests")
    })
}

/// A table with a column for each number of clients.
fn by_clients(
    outcome: &Outcome,
    (title, note): (&str, &str),
    value: impl Fn(&Row) -> String,
) -> Rows {
    let clients = clients(outcome);
    let mut rows = Vec::new();
    for workers in ascending(outcome, |row| row.workers) {
        for server in servers(outcome) {
            let of = |clients: u32| {
                let wanted = (server, workers, clients);
                outcome
                    .rows
                    .iter()
                    .find(|row| (row.server.as_str(), row.workers, row.clients) == wanted)
            };
            let Some(first) = clients.iter().find_map(|clients| of(*clients)) else { continue };
            let from = match first.from {
                From::Files => "files",
                From::Cache => "cache",
            };
            let mut row = vec![server.to_owned(), from.to_owned(), workers.to_string()];
            row.extend(clients.iter().map(|clients| of(*clients).map_or(NONE.into(), &value)));
            rows.push(row);
        }
    }
    let mut table = table(title, &["<server", "<from", "workers"], rows, note);
    table.columns.extend(clients.iter().map(|clients| match clients {
        1 => "1 client".to_owned(),
        _ => clients.to_string(),
    }));
    table
}

/// Figures with their intervals, for the fewest and the most clients.
fn at_the_ends(
    outcome: &Outcome,
    figures: &[fn(&Row) -> Figure],
    wanted: impl Fn(&Row) -> bool,
) -> Vec<Vec<String>> {
    let clients = clients(outcome);
    let ends = [clients.first(), clients.last()];
    let rows = outcome.rows.iter().filter(|row| ends.contains(&Some(&row.clients)) && wanted(row));
    let cells = |row: &Row| {
        let mut cells = vec![row.server.clone(), row.workers.to_string(), row.clients.to_string()];
        cells.extend(figures.iter().map(|figure| figure(row).text()));
        cells
    };
    rows.map(cells).collect()
}

fn ratios(outcome: &Outcome) -> Rows {
    table(
        "CPU time a request, relative to ours",
        &["<server", "workers", "clients", "<times ours"],
        at_the_ends(outcome, &[|row| row.us_to_ours], |row| row.server != OURS),
        "Within a round, as many workers and clients; 95 % intervals.",
    )
}

fn scaling(outcome: &Outcome) -> Rows {
    let fewest = ascending(outcome, |row| row.workers).first().copied().unwrap_or(1);
    let title = match fewest {
        1 => "Scaling, relative to one worker on one processor".to_owned(),
        _ => format!("Scaling, relative to {fewest} workers"),
    };
    let more = |row: &Row| row.workers != fewest;
    table(
        title,
        &["<server", "workers", "clients", "<requests a second", "<µs a request"],
        at_the_ends(outcome, &[|row| row.scaling, |row| row.us_scaling], more),
        "Within a round, as many clients; 95 % intervals. Where the generator shares a processor \
         with the server, the CPU time shows the cost of more workers, but the rate does not show \
         their gain.",
    )
}

#[cfg(test)]
mod tests {
    use report::sheet::sheet;

    use super::*;
    use crate::Conditions;

    fn row(server: &str, workers: u16, clients: u32, errors: u64) -> Row {
        let one = Figure { value: 2.0, interval: Some((1.5, 2.5)), rounds: 2 };
        Row {
            server: server.into(),
            from: From::Files,
            workers,
            clients,
            rate: one,
            megabytes: one,
            us: one,
            us_to_ours: one,
            scaling: one,
            us_scaling: one,
            busy: one,
            requests: 100,
            errors,
            hits: 0,
        }
    }

    #[test]
    fn failures_are_reported_and_a_missing_cell_is_a_dash() {
        assert_eq!(failures(&row("nginx", 1, 4, 0)), None);
        let text = failures(&row("nginx", 1, 4, 3)).unwrap();
        assert_eq!(text, "nginx, 1 workers, 4 clients: 3 of 100 requests");
        let outcome = Outcome {
            conditions: Conditions::at_start(std::path::Path::new("/"), 1),
            tree: super::super::Tree::of(3, 1),
            versions: Vec::new(),
            missing: Vec::new(),
            rounds: 2,
            visit_s: 0.5,
            rows: vec![row(OURS, 1, 1, 0), row(OURS, 2, 1, 0), row("nginx", 1, 1, 0)],
        };
        let mut with = outcome.clone();
        with.rows.push(row("nginx", 1, 8, 2));
        let table = by_clients(&with, ("t", "n"), |row| digits(row.us.value));
        assert_eq!(table.columns.len(), 5);
        assert_eq!(table.rows.len(), 3, "nginx has no 2 workers: {:?}", table.rows);
        assert_eq!(table.rows[0][3..], ["2.00", "-"]);
        assert!(sheet(&shown(&with), 100).contains("2 of 100 requests"));
        assert!(!sheet(&shown(&outcome), 100).contains("Failures"));
        assert_eq!(scaling(&outcome).rows.len(), 1);
    }
}
