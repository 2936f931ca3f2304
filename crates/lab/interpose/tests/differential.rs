//! The differential test: runs the same programs with and without the preloaded library; no result
//! may differ.
//!
//! `PLIMSOLL_BOOST_PROGRAMS=100000 cargo test -p interpose --test differential` runs that many
//! random programs; `PLIMSOLL_BOOST_SEED` is the first seed. A failure prints the command that
//! reproduces it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAMS: &str = env!("CARGO_BIN_EXE_boost_programs");
/// Random programs of an ordinary run, and of one with `PLIMSOLL_ALL_SEEDS`, as by `make nightly`.
const COUNT: u64 = 1000;
const COUNT_OF_ALL: u64 = 3000;
/// This many share a process.
const BATCH: u64 = 250;
/// A program that takes longer hangs and is killed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Cargo puts the library next to the tests in every profile.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let library = test.with_file_name("libplimsoll_boost.so");
    assert!(
        library.is_file(),
        "{} is not there: cargo builds it with this crate (crate-type cdylib)",
        library.display()
    );
    library
}

/// How to boost a run.
struct Boost {
    /// The least number of descriptors of a boosted call.
    least: u32,
    stats: PathBuf,
}

impl Boost {
    fn new(least: u32, name: &str) -> Boost {
        let name = format!("boost-{}-{name}.json", std::process::id());
        Boost { least, stats: std::env::temp_dir().join(name) }
    }

    /// The sum of a count over all processes of the run.
    fn count(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(&self.stats).unwrap_or_default();
        let key = format!("\"{name}\":");
        let of = |line: &str| {
            let (_, rest) = line.split_once(&key)?;
            rest.split([',', '}']).next()?.parse::<u64>().ok()
        };
        text.lines().map(|line| of(line).expect("every line has every count")).sum()
    }
}

impl Drop for Boost {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.stats);
    }
}

/// Runs the programs and returns their output, with a note if the run hangs or fails.
fn run(arguments: &[&str], boost: Option<&Boost>) -> String {
    let out = tempfile::tempfile().expect("there is room for the results");
    let mut command = Command::new(PROGRAMS);
    command.args(arguments).stdin(Stdio::null()).env_remove("LD_PRELOAD");
    command.stdout(out.try_clone().expect("a descriptor"));
    if let Some(boost) = boost {
        command
            .env("LD_PRELOAD", library())
            .env("PLIMSOLL_BOOST_LEAST", boost.least.to_string())
            .env("PLIMSOLL_BOOST_STATS", &boost.stats);
    }
    let mut child = command.spawn().expect("the programs start");
    let until = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().expect("a child can be waited for") {
            Some(status) => break status.to_string(),
            None if Instant::now() > until => {
                child.kill().expect("a child can be ended");
                child.wait().expect("a child can be waited for");
                break "hung, and was killed".to_owned();
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let mut out = out;
    let mut text = String::new();
    std::io::Seek::rewind(&mut out).expect("a file");
    std::io::Read::read_to_string(&mut out, &mut text).expect("the results are text");
    if status == "exit status: 0" { text } else { format!("{text}{status}\n") }
}

/// Fails with the first line that differs, the lines before it, and the command that reproduces it.
fn assert_same(plain: &str, boosted: &str, arguments: &[&str], least: u32) {
    if plain == boosted {
        return;
    }
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let (plain, boosted) = (lines(plain), lines(boosted));
    let at = (0..).find(|&at| plain.get(at) != boosted.get(at)).expect("they differ");
    // The whole program up to there: it has at most about fifty steps.
    let program = plain.iter().take(at).rposition(|line| line.starts_with("program "));
    let before = plain[program.unwrap_or(0)..at.min(plain.len())].join("\n");
    let none = "(the end)".to_owned();
    panic!(
        "a result differs from the original's\n{before}\nplain:   {}\nboosted: {}\n\
         again: LD_PRELOAD={} PLIMSOLL_BOOST_LEAST={least} {PROGRAMS} {}\n",
        plain.get(at).unwrap_or(&none),
        boosted.get(at).unwrap_or(&none),
        Path::new(&library()).display(),
        arguments.join(" ")
    );
}

fn of_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}"))
    })
}

#[test]
fn random_programs_do_the_same_boosted() {
    let all = std::env::var_os("PLIMSOLL_ALL_SEEDS").is_some();
    let count = if all { COUNT_OF_ALL } else { COUNT };
    let count = of_environment("PLIMSOLL_BOOST_PROGRAMS", count);
    let first = of_environment("PLIMSOLL_BOOST_SEED", 1);
    let (mut calls, mut plain_calls, mut differences) = (0, 0, 0);
    for from in (first..first + count).step_by(BATCH as usize) {
        let batch = BATCH.min(first + count - from);
        // In most batches every call is boosted; in the others only those that would be in real
        // programs.
        let least = if from / BATCH % 4 == 3 { 16 } else { 1 };
        let boost = Boost::new(least, "random");
        let arguments = ["random", &from.to_string(), &batch.to_string()];
        let (plain, boosted) = (run(&arguments, None), run(&arguments, Some(&boost)));
        assert_same(&plain, &boosted, &arguments, least);
        if least == 1 {
            calls += boost.count("calls");
            plain_calls += boost.count("plain");
        }
        differences += boost.count("audit_differences");
    }
    println!("{count} random programs, {calls} calls, {plain_calls} of them plain, no difference");
    assert_eq!(differences, 0, "every close was seen");
    assert!(plain_calls * 5 < calls, "{plain_calls} of {calls} were plain: that tests nothing");
}

/// Runs a scene plain and boosted, and returns the boosted run for its counts.
fn same_scene(name: &str) -> Boost {
    let boost = Boost::new(16, name);
    let arguments = ["scene", name];
    assert_same(&run(&arguments, None), &run(&arguments, Some(&boost)), &arguments, 16);
    boost
}

#[test]
fn an_unseen_close_does_not_hang() {
    for scene in ["unseen-close", "unseen-replacement"] {
        let boost = same_scene(scene);
        assert_eq!(boost.count("audit_differences"), 1, "{scene}: the audit has found it");
    }
}

#[test]
fn scenes_are_the_same_boosted() {
    let scenes = run(&["scenes"], None);
    assert!(scenes.lines().count() >= 10, "{scenes}");
    for scene in scenes.lines().filter(|scene| !scene.starts_with("unseen")) {
        let boost = same_scene(scene);
        let (calls, plain) = (boost.count("calls"), boost.count("plain"));
        assert!(plain < calls, "{scene}: {plain} of {calls} calls were plain");
        assert_eq!(boost.count("audit_differences"), 0, "{scene}");
    }
}

#[test]
fn what_is_ready_costs_a_probe_and_what_is_silent_none() {
    let boost = same_scene("many");
    let (calls, probes, hits) = (boost.count("calls"), boost.count("probes"), boost.count("hits"));
    // 60, and one by the standard library before the program.
    assert!((60..65).contains(&calls), "{calls}");
    // The written bytes stay unread, so each call finds at most one more ready descriptor.
    assert!(hits <= probes && probes <= 60 * 61, "{probes} probes, {hits} hits");
    assert!(boost.count("epoll_ctl") < 1500 + 60 * 6, "only differences reach epoll");
    assert_eq!((boost.count("fallbacks"), boost.count("rebuilds")), (0, 0));
    assert!(boost.count("audits") < 60 && boost.count("nanoseconds") > 0);
}
