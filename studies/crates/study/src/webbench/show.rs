//! What the page shows in addition to the rows: the rows by clients, and those for the fewest and
//! the most clients.

use serde_json::{Value, json};

use super::{From, OURS, Outcome, Row};
use crate::found::{row_with, value};
use crate::show::distinct;

/// Results for the page.
pub(crate) fn for_page(outcome: &Outcome) -> Value {
    let clients = ascending(outcome, |row| row.clients);
    let fewest = ascending(outcome, |row| row.workers).first().copied().unwrap_or(1);
    let ends = [clients.first(), clients.last()];
    let at_the_ends = |wanted: &dyn Fn(&Row) -> bool| {
        let rows = outcome.rows.iter().filter(|row| ends.contains(&Some(&row.clients)));
        rows.filter(|row| wanted(row)).map(value).collect::<Vec<_>>()
    };
    let failed: Vec<String> = outcome.rows.iter().filter_map(failures).collect();
    let named = outcome.rows.iter().map(|row| {
        let plural = if row.workers == 1 { "" } else { "s" };
        row_with(row, [("workers_named", format!("{} worker{plural}", row.workers).into())])
    });
    json!({
        "rows": named.collect::<Vec<_>>(),
        "clients": clients.iter().map(|clients| match clients {
            1 => "1 client".to_owned(),
            _ => clients.to_string(),
        }).collect::<Vec<_>>(),
        "by_clients": by_clients(outcome, &clients),
        "ratios": at_the_ends(&|row| row.server != OURS),
        "scaled": at_the_ends(&|row| row.workers != fewest),
        "base": match fewest {
            1 => "one worker on one processor".to_owned(),
            _ => format!("{fewest} workers"),
        },
        "peers": (!outcome.versions.is_empty()).then(|| outcome.versions.join(", ")),
        "failures": (!failed.is_empty()).then(|| failed.join("; ")),
    })
}

/// The numbers that occur in the rows.
fn ascending<T: Ord>(outcome: &Outcome, number: impl Fn(&Row) -> T) -> Vec<T> {
    let mut numbers: Vec<T> = outcome.rows.iter().map(number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// The failed requests of a row, if there are any.
fn failures(row: &Row) -> Option<String> {
    let Row { server, workers, clients, errors, requests, .. } = row;
    (*errors > 0).then(|| {
        format!("{server}, {workers} workers, {clients} clients: {errors} of {requests} requests")
    })
}

/// For each number of workers and each server, its rows by clients; null if there is none.
fn by_clients(outcome: &Outcome, clients: &[u32]) -> Vec<Value> {
    let mut rows = Vec::new();
    for workers in ascending(outcome, |row| row.workers) {
        for server in distinct(outcome.rows.iter().map(|row| row.server)) {
            let of = || {
                let wanted = move |row: &&Row| (row.server, row.workers) == (server, workers);
                outcome.rows.iter().filter(wanted)
            };
            let Some(first) = of().next() else { continue };
            let from = if first.from == From::Files { "files" } else { "cache" };
            let cell = |clients: &u32| value(&of().find(|row| row.clients == *clients));
            let cells: Vec<Value> = clients.iter().map(cell).collect();
            rows.push(json!({"server": server, "from": from, "workers": workers, "cells": cells}));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use harness::rounds::Figure;
    use report::sheet::sheet;

    use super::*;
    use crate::{Conditions, Found};

    fn row(server: &'static str, workers: u16, clients: u32, errors: u64) -> Row {
        let one = Figure { value: 2.0, interval: Some((1.5, 2.5)), rounds: 2 };
        Row {
            server,
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
        let shown = |outcome: &Outcome| {
            Found::of("webbench", page!(webbench), outcome, for_page(outcome)).sheet
        };
        let table = &shown(&with).tables[2];
        assert_eq!(table.columns.len(), 5);
        assert_eq!(table.rows.len(), 3, "nginx has no 2 workers: {:?}", table.rows);
        assert_eq!(table.rows[0][3..], ["2.00", "-"]);
        assert!(sheet(&shown(&with), 100).contains("2 of 100 requests"));
        assert!(!sheet(&shown(&outcome), 100).contains("Failures"));
        let tables = shown(&outcome).tables;
        let scaling = tables.iter().find(|table| table.title.starts_with("Scaling")).unwrap();
        assert_eq!(scaling.rows.len(), 1);
    }
}
