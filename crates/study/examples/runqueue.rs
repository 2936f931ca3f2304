//! The study of the run queue alone, without the command around it: `runqueue PLIMSOLL
//! DIRECTORY` runs it with the defaults of the command, the walker of that program, and leaves
//! text, figure and JSON in the directory.

#![allow(clippy::unwrap_used, reason = "a program that cannot go on says so by panicking")]

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use study::runqueue::{Plan, figure, run, text};

const COLUMNS: usize = 120;

fn main() {
    let arguments: Vec<PathBuf> = std::env::args().skip(1).map(PathBuf::from).collect();
    let [program, out] = arguments.as_slice() else {
        eprintln!("usage: runqueue PLIMSOLL DIRECTORY");
        std::process::exit(2);
    };
    let plan = Plan {
        program: program.clone(),
        cpus: Vec::new(),
        runnable: vec![256, 1024],
        rounds: 6,
        visit: Duration::from_millis(300),
        seed: 1,
    };
    let outcome = run(&plan, &AtomicBool::new(false), &mut |step| eprintln!("{step}")).unwrap();
    std::fs::write(out.join("runqueue.svg"), figure(&outcome)).unwrap();
    let json = serde_json::to_string(&outcome).unwrap();
    std::fs::write(out.join("runqueue.json"), json + "\n").unwrap();
    print!("{}", text(&outcome, COLUMNS));
}
