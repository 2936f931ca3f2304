//! The disk store against a plain model, on a simulated disk with every kind of fault.
//!
//! A failure prints its seed; `cargo xtask simulate --seed N` runs it again. Seeds that failed once
//! are in `seeds.txt` and run here each time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod driver;
mod model;

use driver::Report;
use model::Pattern;

/// Seeds of former failures, one per line; a comment after `#` says what each found.
const SAVED: &str = include_str!("seeds.txt");

fn saved() -> Vec<u64> {
    let numbers = SAVED.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    numbers.filter(|text| !text.is_empty()).map(|text| text.parse().unwrap()).collect()
}

fn run_all(seeds: impl IntoIterator<Item = u64>) -> Report {
    let pattern = Pattern::new();
    let mut all = Report::default();
    runtime::sim::check(seeds, |seed| all.add(&driver::run(seed, &pattern)));
    println!("{all:?}");
    all
}

#[test]
fn seeds_that_failed_before() {
    run_all(saved());
}

#[test]
fn fresh_seeds() {
    let all = run_all(0..2000);
    assert!(all.operations > 100_000 && all.hits > 20_000, "{all:?}");
    assert!(all.crashes > 500 && all.kills > 500 && all.faults > 1000, "{all:?}");
    assert!(all.moved > 500 && all.saves > 100, "{all:?}");
}
