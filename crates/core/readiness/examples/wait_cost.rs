//! `cargo run --release -p readiness --example wait_cost [-- --json]`: the cost of one wait with
//! one hot descriptor and increasing numbers of cold ones, for each backend, as a table or as JSON.
//!
//! Exit codes: 0 `scalable_select`, `epoll` and `io_uring` are within the bound, 1 one of them is
//! not, 2 nothing could be measured.

use std::process::ExitCode;

use readiness::Kind;
use readiness::wait_cost::{Plan, Row, measure};

/// A wait with the most cold descriptors may cost at most this many times one with none.
const RATIO_MAX: f64 = 1.2;

fn main() -> ExitCode {
    let json = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [flag] if flag == "--json" => true,
        _ => {
            eprintln!("usage: wait_cost [--json]");
            return ExitCode::from(2);
        }
    };
    let plan = Plan::default();
    let (rows, missing) = match measure(&plan) {
        Ok(measured) => measured,
        Err(error) => {
            eprintln!("wait_cost: {error}");
            return ExitCode::from(2);
        }
    };
    missing.iter().for_each(|error| eprintln!("left out: {error}"));
    if json {
        print_json(&rows, &plan)
    } else {
        print_table(&rows, &plan)
    }
    let mut within = true;
    for row in rows.iter().filter(|row| !is_stateless(row.kind) && row.ratio > RATIO_MAX) {
        eprintln!("{} with {} cold: {:.2} > {RATIO_MAX}", row.kind, row.cold, row.ratio);
        within = false;
    }
    if within { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Select and poll check everything each time, so their cost is expected to grow.
fn is_stateless(kind: Kind) -> bool {
    matches!(kind, Kind::Select | Kind::Poll)
}

fn print_table(rows: &[Row], plan: &Plan) {
    println!("One wait, 1 hot descriptor: CPU ns, median (quartiles) of {} rounds", plan.rounds);
    println!("Ratios are to 0 cold ones, and without the scan. Arriving: write, wait, read.\n");
    println!(
        "{:<16} {:>7} {:>9} {:>19} {:>7} {:>6} {:>9} {:>6} {:>6} {:>9}",
        "backend",
        "cold",
        "wait",
        "quartiles",
        "scan",
        "ratio",
        "arriving",
        "ratio",
        "calls",
        "waits"
    );
    for row in rows {
        let [low, high] = row.standing_quartiles_ns;
        let quartiles = format!("{low:.0}..{high:.0}");
        let scan = row.scan_ns.map_or("-".to_owned(), |scan| format!("{scan:.0}"));
        println!(
            "{:<16} {:>7} {:>9.0} {quartiles:>19} {scan:>7} {:>6.2} {:>9.0} {:>6.2} {:>6.1} {:>9}",
            row.kind,
            row.cold,
            row.standing_ns,
            row.ratio,
            row.arriving_ns,
            row.arriving_ratio,
            row.syscalls,
            row.waits,
        );
    }
}

fn print_json(rows: &[Row], plan: &Plan) {
    println!("{{\"rounds\": {}, \"ratio_max\": {RATIO_MAX}, \"rows\": [", plan.rounds);
    for (at, row) in rows.iter().enumerate() {
        let [low, high] = row.standing_quartiles_ns;
        let scan = row.scan_ns.map_or("null".to_owned(), |scan| format!("{scan:.1}"));
        print!("  {{\"backend\": \"{}\", \"cold\": {}, ", row.kind, row.cold);
        print!(
            "\"wait_ns\": {:.1}, \"wait_ns_quartiles\": [{low:.1}, {high:.1}], ",
            row.standing_ns
        );
        print!("\"wait_wall_ns\": {:.1}, \"scan_ns\": {scan}, ", row.standing_wall_ns);
        print!("\"ratio\": {:.4}, \"arriving_ns\": {:.1}, ", row.ratio, row.arriving_ns);
        print!("\"arriving_ratio\": {:.4}, ", row.arriving_ratio);
        print!("\"syscalls\": {:.2}, \"waits\": {}}}", row.syscalls, row.waits);
        println!("{}", if at + 1 < rows.len() { "," } else { "" });
    }
    println!("]}}");
}
