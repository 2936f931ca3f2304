//! A static tree of files under a closed loop, as in WebBench: our server and its peers.
//!
//! The study of 2002 measured its scheduler under WebBench: 256 processes of a web server, files of
//! many sizes, clients that send the next request as soon as the last is answered, 1 to 8
//! processors. It published what another kernel gains. This study puts the same kind of load on
//! today's servers: how many requests they answer, what a request costs, and how both change with
//! the number of workers.
//!
//! ```text
//!  tree of files ------> nginx, lighttpd -------.
//!    same bytes                                  >--- closed loop of 1 to 256 connections
//!  origin --filled once--> ours, HAProxy, Varnish'
//! ```
//!
//! | module | what it owns |
//! | --- | --- |
//! | `tree` | the files, which are also the origin's objects |
//! | `servers` | our server and the peers as processes |
//!
//! What never happens: a response of another length counts; a server is compared with ours by
//! measurements of different rounds; two servers are loaded at once.

mod servers;
mod tree;

use std::time::Duration;

use clap::Args;
use command::flags::duration_within;
use harness::rounds::{Figures, To};
use harness::{Cpus, Error, Source};
use load::Schedule;
use serde_json::{Value, json};

use crate::conditions::{Conditions, working_directory};
use crate::experiment::{ServerVisits, Servers, Visit, cells, server_row};
use crate::flags::{Given, Repeat, VISIT, ascending, count};
use crate::found::{Found, Steps, with};
use servers::{Id, OURS, Setup};
use tree::Tree;

/// The first part of a visit does not count, because connections are still being accepted.
const SETTLE_S: f64 = 0.1;

/// What to do.
#[derive(Clone, Debug, Args)]
pub struct Plan {
    /// Numbers of workers [default: 1, 2, 4 and so on, up to all CPUs]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',',
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Vec<u16>,
    /// Numbers of clients in a closed loop [default: 1,4,16,64,256]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = count(1..=1024))]
    clients: Vec<u32>,
    /// Files of the tree
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = count(1..=10_000))]
    files: u32,
    #[command(flatten)]
    repeat: Repeat,
    /// Length of a visit: one server with one number of clients
    #[arg(long, value_name = "TIME", default_value = "500ms",
        value_parser = duration_within(VISIT))]
    visit: Duration,
    /// Seconds: two rounds, short visits, 1 and 32 clients unless others are named
    #[arg(long, conflicts_with_all = ["rounds", "duration", "visit"])]
    quick: bool,
    #[command(flatten)]
    pub(crate) given: Given,
}

/// Measures.
///
/// # Errors
/// Our own server does not start or does not answer; the directory cannot be used; interrupted.
pub(crate) fn run(plan: &Plan, steps: &mut Steps<'_>) -> Result<Found, Error> {
    let Given { out, seed, .. } = &plan.given;
    let home = working_directory(out.as_ref(), "webbench")?;
    let conditions = Conditions::at_start(home.path(), *seed);
    let clients =
        ascending(&plan.clients, if plan.quick { &[1, 32] } else { &[1, 4, 16, 64, 256] });
    let time = if plan.quick { *VISIT.start() } else { plan.visit };
    load::sys::raise_descriptor_limit()
        .map_err(|error| Error::System("the limit of descriptors cannot be read", error))?;
    steps.say("writing the tree");
    let (tree, files) = (Tree::of(plan.files, *seed), home.path().join("tree"));
    tree.write(&files).map_err(|error| Error::Directory(files.clone(), error))?;
    let cpus = conditions.ground.processors;
    let others = (cpus > 1).then(|| cpus - 1);
    let source = Source::start(steps.plimsoll, Cpus { server: None, others })?;
    let setup = Setup {
        program: steps.plimsoll,
        home: home.path(),
        files: &files,
        tree: &tree,
        origin: source.address(),
        cpus,
    };
    let (mut running, mut missing) = (Vec::new(), Vec::new());
    // All of them start before the first load, which pins this thread, and its children, to a CPU.
    for workers in ascending(&plan.workers, &up_to(cpus)) {
        steps.say(&format!("starting servers with {workers} workers"));
        running.extend(servers::start(&setup, workers, &mut missing)?);
    }
    missing.dedup();
    let load = |at: usize, clients: u32, _| {
        let mut load = running[at].1.load(tree::PATH, Schedule::ClosedLoop, time);
        load.connections = clients;
        load.population = tree::population(plan.files);
        // The sizes are drawn from the seed too, so that it has to be the tree's.
        load.seed = *seed;
        load.pin_cpu = others;
        load
    };
    let name = |id: &Id| format!("{}, {} workers", id.name, id.workers);
    let servers = Servers {
        all: running.iter().map(|(id, server)| (name(id), server.pid())).collect(),
        numbers: (&clients, "clients"),
        load: &load,
        spans: &[(SETTLE_S, time.as_secs_f64())],
    };
    let visits = servers.visit(&plan.repeat.rounds(plan.quick.then_some(2), *seed), steps)?;
    let ids: Vec<Id> = running.iter().map(|(id, _)| *id).collect();
    let rows = rows(&ids, &clients, &visits);
    let versions = servers::versions();
    let outcome = conditions.outcome(json!({
        "rows": rows,
        "tree": tree,
        "versions": versions,
        "missing": missing,
        "rounds": visits.rounds(),
        "visit_s": time.as_secs_f64(),
    }));
    let mut more = for_page(&ids, &clients, &rows);
    more["peers"] = (!versions.is_empty()).then(|| versions.join(", ")).into();
    Ok(Found::of("webbench", page!(webbench), &outcome, more))
}

/// 1, 2, 4 and so on below the number of CPUs, and that number.
fn up_to(cpus: usize) -> Vec<u16> {
    let all = u16::try_from(cpus).unwrap_or(u16::MAX);
    let powers = (0..).map_while(|bit| 1u16.checked_shl(bit));
    powers.take_while(|number| *number < all).chain([all]).collect()
}

fn rows(ids: &[Id], clients: &[u32], visits: &ServerVisits) -> Vec<Value> {
    let index = |name: &str, workers: u16| {
        ids.iter().position(|other| (other.name, other.workers) == (name, workers))
    };
    let rate = |visit: &Visit| visit.spans[0].rate;
    let us = |visit: &Visit| visit.spans[0].us;
    let megabytes =
        |visit: &Visit| visit.body_bytes as f64 / visit.requests as f64 * visit.spans[0].rate / 1e6;
    let row = |cell @ (at, clients): (usize, u32)| {
        let Id { name, from, workers } = ids[at];
        let same = ids.iter().filter(|other| other.name == name);
        let fewest = same.map(|other| other.workers).min().and_then(|workers| index(name, workers));
        let base = fewest.map(|at| (at, clients));
        let ours = index(OURS, workers).map(|ours| (ours, clients));
        let figures: Figures<'_, _, Visit> = &[
            ("rate", To::Itself, &rate),
            ("megabytes", To::Itself, &megabytes),
            ("us", To::Itself, &us),
            ("us_to_ours", To::Cell(ours), &us),
            ("scaling", To::Cell(base), &rate),
            ("us_scaling", To::Cell(base), &us),
            ("busy", To::Itself, &|visit| us(visit) * rate(visit) / 1e6),
        ];
        let names = json!({"server": name, "from": from, "workers": workers, "clients": clients});
        server_row(visits, cell, names, figures)
    };
    cells(ids.len(), clients).into_iter().map(row).collect()
}

/// Results for the page: the rows by clients, and those for the fewest and the most clients.
fn for_page(ids: &[Id], clients: &[u32], rows: &[Value]) -> Value {
    let workers = |row: &Value| row["workers"].as_u64();
    let fewest = rows.iter().filter_map(workers).min().unwrap_or(1);
    let ends = [clients.first(), clients.last()].map(|clients| json!(clients));
    let at_the_ends = |wanted: &dyn Fn(&Value) -> bool| -> Vec<&Value> {
        rows.iter().filter(|row| ends.contains(&row["clients"]) && wanted(row)).collect()
    };
    let named = rows.iter().map(|row| {
        let plural = if row["workers"] == 1 { "" } else { "s" };
        with(row, json!({"workers_named": format!("{} worker{plural}", row["workers"])}))
    });
    let failed: Vec<String> = rows.iter().filter_map(failures).collect();
    // The rows of a server follow one another: one for each number of clients.
    let mut by_clients: Vec<Value> = (ids.iter().zip(rows.chunks(clients.len())))
        .map(|(Id { name, from, workers }, cells)| {
            json!({"server": name, "from": from, "workers": workers, "cells": cells})
        })
        .collect();
    by_clients.sort_by_key(workers);
    json!({
        "rows": named.collect::<Vec<_>>(),
        "clients": clients.iter().map(|clients| match clients {
            1 => "1 client".to_owned(),
            _ => clients.to_string(),
        }).collect::<Vec<_>>(),
        "by_clients": by_clients,
        "ratios": at_the_ends(&|row| row["server"] != OURS),
        "scaled": at_the_ends(&|row| workers(row) != Some(fewest)),
        "base": match fewest {
            1 => "one worker on one processor".to_owned(),
            _ => format!("{fewest} workers"),
        },
        "failures": (!failed.is_empty()).then(|| failed.join("; ")),
    })
}

/// The failed requests of a row, if there are any.
fn failures(row: &Value) -> Option<String> {
    (row["errors"] != 0).then(|| {
        format!(
            "{}, {} workers, {} clients: {} of {} requests",
            row["server"].as_str().unwrap_or_default(),
            row["workers"],
            row["clients"],
            row["errors"],
            row["requests"]
        )
    })
}

#[cfg(test)]
mod tests {
    use report::sheet::sheet;

    use super::servers::From;
    use super::*;
    use crate::experiment::{assert_constant, visit_of};
    use harness::rounds::Visits;

    fn id(name: &'static str, workers: u16) -> Id {
        Id { name, from: From::Files, workers }
    }

    #[test]
    fn ratios_are_relative_to_ours_and_to_the_fewest_workers_in_the_same_round() {
        let all = [id(OURS, 1), id("nginx", 1), id(OURS, 2), id("nginx", 2)];
        // The second round is half as fast throughout. The rate is the inverse of the cost.
        let round = |slow: f64| {
            let costs = [10.0, 5.0, 11.0, 22.0].iter().enumerate();
            costs.map(|(at, us)| ((at, 16), visit_of(&[us * slow]))).collect()
        };
        let rows = rows(&all, &[16], &Visits(vec![round(1.0), round(2.0)]));
        assert_constant(&rows[1]["us_to_ours"], 0.5);
        assert_constant(&rows[3]["us_to_ours"], 2.0);
        assert_constant(&rows[2]["scaling"], 1.0 / 1.1);
        assert_constant(&rows[3]["us_scaling"], 4.4);
        assert_constant(&rows[0]["scaling"], 1.0);
        assert_constant(&rows[1]["busy"], 1.0);
        let counts = ["requests", "errors", "hits"].map(|count| rows[1][count].as_u64());
        assert_eq!(counts, [Some(20), Some(2), Some(10)]);
    }

    #[test]
    fn failures_are_reported_and_a_visit_without_responses_is_a_dash() {
        let ids = [id(OURS, 1), id(OURS, 2), id("nginx", 1)];
        let shown = |errors: u64| {
            let clients = [1, 8];
            let visit = |cell: (usize, u32)| {
                let us = if cell == (2, 8) { f64::NAN } else { 2.0 };
                (cell, Visit { errors: if cell.0 == 2 { errors } else { 0 }, ..visit_of(&[us]) })
            };
            let round = || cells(3, &clients).into_iter().map(visit).collect();
            let rows = rows(&ids, &clients, &Visits(vec![round(), round()]));
            let conditions = Conditions::at_start(std::path::Path::new("/"), 1);
            let tree = Tree::of(3, 1);
            let outcome =
                json!({"rows": rows, "tree": tree, "missing": [], "rounds": 2, "visit_s": 0.5});
            let more = with(&for_page(&ids, &clients, &rows), json!({"peers": null}));
            Found::of("webbench", page!(webbench), &conditions.outcome(outcome), more).sheet
        };
        let table = &shown(2).tables[2];
        assert_eq!(table.columns.len(), 5);
        let cells: Vec<&[String]> = table.rows.iter().map(|row| &row[3..]).collect();
        assert_eq!(cells, [["2.00", "2.00"], ["2.00", "-"], ["2.00", "2.00"]]);
        let text = "nginx, 1 workers, 8 clients: 4 of 20 requests";
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&sheet(&shown(2), 100)).contains(text));
        assert!(!sheet(&shown(0), 100).contains("Failures"));
        let tables = shown(0).tables;
        let scaling = tables.iter().find(|table| table.title.starts_with("Scaling")).unwrap();
        assert_eq!(scaling.rows.len(), 2);
    }
}
