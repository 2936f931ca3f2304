//! What was found, as text and as a figure.

use report::format::thousands;
use report::sheet::{Curve, Panel, Rows, Sheet, Stroke, Ticks, Tone, svg_curves};

use super::servers::OURS;
use super::{From, Outcome, Row};
use harness::environment::load_averages;
use harness::rounds::{Figure, digits};

/// What is said of it: sentences and tables.
#[must_use]
pub fn shown(outcome: &Outcome) -> Sheet {
    let title = "A static tree and clients in a closed loop".to_owned();
    let tables = vec![
        by_clients(
            outcome,
            ("Requests a second", "Bodies of the same lengths to all; every length is checked."),
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
                "CPU time a second of the clock. The generator has one processor for itself, if \
                 there are two: a server of as many workers as processors shares it.",
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
    for workers in workers(outcome) {
        let title = |what: &str| match workers {
            1 => format!("{what}: 1 worker"),
            _ => format!("{what}: {workers} workers"),
        };
        let rate = |row: &Row| row.rate.value;
        panels.push(panel(outcome, workers, (title("Requests a second"), "1/s"), rate));
        let us = |row: &Row| row.us.value;
        panels.push(panel(outcome, workers, (title("CPU time a request"), "µs"), us));
    }
    let ground = &outcome.ground;
    let title = format!("A static tree: {}, Linux {}", ground.processor, ground.kernel);
    let description = "Requests a second and CPU time a request of each server, by the number of \
                       clients in a closed loop and by the number of workers.";
    svg_curves(&title, description, &panels)
}

/// By place in the list.
const LOOKS: [(Tone, Stroke); 5] = [
    (Tone::First, Stroke::Joined),
    (Tone::Second, Stroke::Joined),
    (Tone::Second, Stroke::Dashed),
    (Tone::Third, Stroke::Joined),
    (Tone::Fourth, Stroke::Joined),
];

fn panel(
    outcome: &Outcome,
    workers: u16,
    (title, unit): (String, &str),
    value: impl Fn(&Row) -> f64,
) -> Panel {
    let curve = |(at, server): (usize, &String)| {
        let (tone, stroke) = LOOKS[at % LOOKS.len()];
        let rows =
            outcome.rows.iter().filter(|row| (&row.server, row.workers) == (server, workers));
        let point = |row: &Row| {
            let value = value(row);
            (f64::from(row.clients), value, format!("{} clients: {}", row.clients, digits(value)))
        };
        let name = match stroke {
            Stroke::Dashed => format!("{server} (- -)"),
            _ => server.clone(),
        };
        Curve { name, tone, stroke, points: rows.map(point).collect() }
    };
    Panel {
        title,
        x: "clients".into(),
        ticks: Ticks::Binary,
        y: unit.to_owned(),
        marks: Vec::new(),
        curves: servers(outcome).iter().enumerate().map(curve).collect(),
        note: "not measured".into(),
    }
}

fn servers(outcome: &Outcome) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for row in &outcome.rows {
        if !names.contains(&row.server) {
            names.push(row.server.clone());
        }
    }
    names
}

fn workers(outcome: &Outcome) -> Vec<u16> {
    let mut numbers: Vec<u16> = outcome.rows.iter().map(|row| row.workers).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn clients(outcome: &Outcome) -> Vec<u32> {
    let mut numbers: Vec<u32> = outcome.rows.iter().map(|row| row.clients).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn from(from: From) -> &'static str {
    match from {
        From::Files => "files",
        From::Cache => "cache",
    }
}

fn facts(outcome: &Outcome) -> Vec<(String, String)> {
    let fact = |label: &str, text: String| (label.to_owned(), text);
    let tree = &outcome.tree;
    let mut facts = vec![
        fact("Environment", outcome.ground.machine()),
        fact("Others", format!("{}, this study's own in it", load_averages(outcome.load_average))),
        fact(
            "Tree",
            format!(
                "{} files, the median {} bytes, the longest {}, {} in all; seed {}",
                thousands(f64::from(tree.files)),
                thousands(tree.median_bytes as f64),
                thousands(tree.longest_bytes as f64),
                thousands(tree.bytes as f64),
                outcome.seed
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
    ];
    if !outcome.versions.is_empty() {
        facts.push(fact("Peers", outcome.versions.join(", ")));
    }
    let missing = &outcome.missing;
    facts
        .extend(missing.iter().map(|one| fact("Not here", format!("{}: {}", one.server, one.why))));
    let failed: Vec<String> = outcome.rows.iter().filter_map(failures).collect();
    if !failed.is_empty() {
        facts.push(fact("Failures", failed.join("; ")));
    }
    facts
}

/// What a row is told with, if requests of it failed.
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
    let mut columns: Vec<String> = ["<server", "<from", "workers"].map(String::from).to_vec();
    columns.extend(clients.iter().map(|clients| match clients {
        1 => "1 client".to_owned(),
        _ => clients.to_string(),
    }));
    let mut rows = Vec::new();
    for workers in workers(outcome) {
        for server in servers(outcome) {
            let of = |clients: u32| {
                let wanted = (&server, workers, clients);
                outcome.rows.iter().find(|row| (&row.server, row.workers, row.clients) == wanted)
            };
            let Some(first) = clients.iter().find_map(|clients| of(*clients)) else { continue };
            let mut row = vec![server.clone(), from(first.from).to_owned(), workers.to_string()];
            row.extend(clients.iter().map(|clients| of(*clients).map_or("-".into(), &value)));
            rows.push(row);
        }
    }
    Rows { title: title.into(), columns, rows, note: note.into() }
}

/// Figures with their intervals, of the fewest and the most clients.
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

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn ratios(outcome: &Outcome) -> Rows {
    Rows {
        title: "CPU time a request, to ours".into(),
        columns: columns(&["<server", "workers", "clients", "<times ours"]),
        rows: at_the_ends(outcome, &[|row| row.us_to_ours], |row| row.server != OURS),
        note: "Within a round, as many workers and clients; 95 % intervals.".into(),
    }
}

fn scaling(outcome: &Outcome) -> Rows {
    let fewest = workers(outcome).first().copied().unwrap_or(1);
    let more = |row: &Row| row.workers != fewest;
    Rows {
        title: match fewest {
            1 => "Scaling, to one worker on one processor".to_owned(),
            _ => format!("Scaling, to {fewest} workers"),
        },
        columns: columns(&["<server", "workers", "clients", "<requests a second", "<µs a request"]),
        rows: at_the_ends(outcome, &[|row| row.scaling, |row| row.us_scaling], more),
        note: "Within a round, as many clients; 95 % intervals. Where the generator has no \
               processor of its own, the CPU time tells what more workers cost, and the rate does \
               not tell what they give."
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use report::sheet::sheet;

    use super::*;

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
    fn failures_are_told_and_a_lack_is_a_dash() {
        assert_eq!(failures(&row("nginx", 1, 4, 0)), None);
        let told = failures(&row("nginx", 1, 4, 3)).unwrap();
        assert_eq!(told, "nginx, 1 workers, 4 clients: 3 of 100 requests");
        let outcome = Outcome {
            ground: harness::Environment::of(std::path::Path::new("/")),
            load_average: (None, None),
            tree: super::super::Tree::of(3, 1),
            versions: Vec::new(),
            missing: Vec::new(),
            rounds: 2,
            visit_s: 0.5,
            rows: vec![row(OURS, 1, 1, 0), row(OURS, 2, 1, 0), row("nginx", 1, 1, 0)],
            seed: 1,
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
