//! `cargo xtask simulate`: new seeds of the disk store's simulation for a given time.
//!
//! `--seconds N` runs seed after seed on every processor, starting with a random one. `--seed S`
//! starts there; without seconds it runs that seed only. The last line has `N operations`. A
//! failure prints its seed and the command that runs it again, and exits with 1.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "../tests/simulation/driver.rs"]
mod driver;
#[path = "../tests/simulation/model.rs"]
mod model;

use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use driver::Report;
use model::Pattern;

const USAGE: &str = "usage: simulate [--seconds N] [--seed S] [--threads N]";
const SECONDS: u64 = 120;

struct Wanted {
    seconds: Option<u64>,
    seed: Option<u64>,
    threads: Option<usize>,
}

fn wanted() -> Option<Wanted> {
    let mut wanted = Wanted { seconds: None, seed: None, threads: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(flag) = arguments.next() {
        let value = arguments.next()?;
        match flag.as_str() {
            "--seconds" => wanted.seconds = Some(value.parse().ok()?),
            "--seed" => wanted.seed = Some(value.parse().ok()?),
            "--threads" => wanted.threads = Some(value.parse().ok()?),
            _ => return None,
        }
    }
    Some(wanted)
}

fn main() -> ExitCode {
    let Some(wanted) = wanted() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    // Seeds are short, to be easy to type.
    let first = wanted.seed.unwrap_or_else(|| RandomState::new().hash_one(0) >> 24);
    let single = wanted.seed.is_some() && wanted.seconds.is_none();
    let time = Duration::from_secs(wanted.seconds.unwrap_or(SECONDS));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if single { 1 } else { wanted.threads.unwrap_or(processors).max(1) };
    // Printed first, in case the run does not end.
    println!("seeds from {first} on, {threads} at a time");
    let begun = Instant::now();
    let next = AtomicU64::new(first);
    let all = Mutex::new((Report::default(), 0_u64, None));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let pattern = Pattern::new();
                while begun.elapsed() < time && all.lock().unwrap().2.is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let run = catch_unwind(AssertUnwindSafe(|| driver::run(seed, &pattern)));
                    let mut all = all.lock().unwrap();
                    match run {
                        Ok(report) => {
                            all.0.add(&report);
                            all.1 += 1;
                        }
                        Err(_) => all.2 = Some(seed),
                    }
                    if single {
                        return;
                    }
                }
            });
        }
    });
    let (report, seeds, failed) = all.into_inner().unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    if let Some(seed) = failed {
        eprintln!("seed {seed} failed; to run it again: cargo xtask simulate --seed {seed}");
        println!("failed with seed {seed}, after {} operations", report.operations);
        return ExitCode::FAILURE;
    }
    let Report { hits, crashes, kills, restarts, faults, sectors_lost, bad_blocks, .. } = report;
    println!("seeds {first}..{}, {seconds:.0} s", first + seeds);
    println!("{hits} hits checked, {restarts} restarts, {kills} kills");
    println!("{crashes} power cuts, which took {sectors_lost} sectors");
    println!("{faults} faults of the disk, {bad_blocks} bad blocks found");
    println!("{} records moved, {} indexes saved", report.moved, report.saves);
    println!("{} operations, no wrong byte", report.operations);
    ExitCode::SUCCESS
}
