//! Measures the time for a report of an hour with everything in the trial: generates the trial,
//! opens it and shows it. `cargo run --release -p report --example hour [FILE]` opens FILE if it
//! exists.

// An example that cannot generate its trial must fail.
#![allow(clippy::unwrap_used)]

#[path = "../tests/made/hour.rs"]
mod hour;

use std::path::PathBuf;
use std::time::Instant;

use report::{Options, analyse, html, terminal};
use trial::Trial;

const INTERVALS: u64 = 3_600;

fn main() {
    let file = std::env::args_os().nth(1).map(PathBuf::from);
    let path = file.unwrap_or_else(|| std::env::temp_dir().join("hour.trial"));
    if !path.exists() {
        hour::write(&path, INTERVALS);
    }
    println!("{}: {} bytes", path.display(), std::fs::metadata(&path).unwrap().len());
    let begun = Instant::now();
    let said = |what: &str| println!("{what:<9} {:>6.3} s", begun.elapsed().as_secs_f64());
    let trial = Trial::open(&path).unwrap();
    said("opened");
    let analysis = analyse(&trial, &Options::default()).unwrap();
    said("analysed");
    let text = terminal(&analysis, 100);
    said("as text");
    let page = html(&analysis);
    said("as a page");
    println!("{} bytes of text, {} of page", text.len(), page.len());
}
