//! `cargo xtask planted`: does a test find each bug that is planted on purpose?
//!
//! The suites are built once with the switch of the crate `planted`. For each bug, the list names a
//! test. This test must fail with the bug and pass without the bug, so that the failure is due to
//! the bug. If the named test does not find the bug, all suites are run, the quickest first, until
//! a test fails. In this case the list names the wrong test, and this command fails. A suite that
//! does not end in time finds nothing.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Where the bugs are listed.
pub(crate) const LIST: &str = "crates/core/planted/src/lib.rs";

/// What is built: the crates with bugs in them and the command that serves.
const PACKAGES: [&str; 15] = [
    "planted",
    "coding",
    "http1",
    "http2",
    "caching",
    "store",
    "interpose",
    "upstream",
    "policy",
    "core_io",
    "cache",
    "exchange",
    "proxy",
    "server",
    "plimsoll",
];

/// Suites by package and target, in the order in which they are run when the named test does not
/// find a bug, with the tests that are run of each.
pub(crate) const SUITES: &[(&str, &str, &str)] = &[
    ("http1", "suite", ""),
    ("http1", "http1", ""),
    ("http2", "http2", ""),
    ("http2", "model", ""),
    ("caching", "caching", ""),
    ("caching", "model", ""),
    ("coding", "coding", ""),
    ("interpose", "differential", ""),
    ("store", "store", ""),
    ("store", "disk", ""),
    ("store", "simulation", ""),
    ("cache", "cache", ""),
    ("policy", "policy", ""),
    ("server", "twin", "caching_rules"),
    ("server", "twin", "bodies"),
    ("server", "twin", "faults"),
    ("server", "real", ""),
    ("plimsoll", "end_to_end", "smuggling"),
    ("server", "twin", ""),
];

/// For one suite; the twin takes minutes, and many on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// A bug as the list has it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bug {
    /// As the code calls it.
    pub(crate) variant: String,
    /// As the environment variable does.
    pub(crate) name: String,
    /// What it is, in words.
    pub(crate) what: String,
    /// The suite and the name of the test that finds it.
    pub(crate) found_by: String,
}

/// Reads the list: `Variant = "name", "what", "suite: test";`, broken where it is too long.
pub(crate) fn bugs_in(text: &str) -> Vec<Bug> {
    let bug = |statement: &str| {
        let texts: Vec<&str> = statement.split('"').collect();
        let [variant, name, ", ", what, between, found_by, ""] = texts[..] else { return None };
        let variant = variant.trim().strip_suffix(" =")?;
        (between.trim() == ",").then(|| Bug {
            variant: variant.to_owned(),
            name: name.to_owned(),
            what: what.to_owned(),
            found_by: found_by.to_owned(),
        })
    };
    let list = text.split_once("\nbugs! {").map_or("", |(_, list)| list);
    let list = list.split_once("\n}").map_or(list, |(list, _)| list);
    list.split(';').filter_map(bug).collect()
}

/// A suite that was built.
struct Suite {
    target: &'static str,
    filter: &'static str,
    executable: String,
    directory: String,
}

/// How a suite ended.
#[derive(Debug)]
enum Ended {
    Passed,
    Failed(String),
}

pub(crate) fn run(root: &Path, only: &[&str]) -> ExitCode {
    match check(root, only) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("planted: {error}");
            ExitCode::from(2)
        }
    }
}

fn check(root: &Path, only: &[&str]) -> Result<bool, String> {
    let list = std::fs::read_to_string(root.join(LIST)).map_err(|e| format!("{LIST}: {e}"))?;
    let mut bugs = bugs_in(&list);
    if let Some(unknown) = only.iter().find(|name| !bugs.iter().any(|bug| bug.name == **name)) {
        return Err(format!("no bug is called {unknown:?}; they are listed in {LIST}"));
    }
    bugs.retain(|bug| only.is_empty() || only.contains(&bug.name.as_str()));
    let suites = built(root)?;
    let mut found = 0;
    println!("{:<24} found by", "bug");
    for bug in &bugs {
        let by = found_by(&suites, bug).unwrap_or_else(|error| {
            eprintln!("planted: {}: {error}", bug.name);
            None
        });
        let is_named = by.as_ref() == Some(&bug.found_by);
        found += usize::from(is_named);
        let remark = if is_named { "" } else { ", and not by the test that the list names" };
        println!("{:<24} {}{remark}", bug.name, by.as_deref().unwrap_or("NOTHING"));
    }
    println!("planted: {found} of {} bugs found by the tests named for them", bugs.len());
    Ok(found == bugs.len())
}

/// The named test, or the first other one that finds the bug.
fn found_by(suites: &[Suite], bug: &Bug) -> Result<Option<String>, String> {
    let (target, test) = bug.found_by.split_once(": ").ok_or("the list names no suite")?;
    let suite = suites.iter().find(|suite| suite.target == target);
    let suite = suite.ok_or(format!("no suite is called {target:?}"))?;
    match run_suite(suite, &["--exact", test], &bug.name)? {
        Ended::Failed(test) => is_of_the_bug(suite, test, &bug.name),
        Ended::Passed => first_failure(suites, &bug.name),
    }
}

/// A test that failed is found to pass without the bug.
fn is_of_the_bug(suite: &Suite, test: String, bug: &str) -> Result<Option<String>, String> {
    match run_suite(suite, &["--exact", &test], "")? {
        Ended::Failed(_) => Err(format!("{test} fails without {bug} too")),
        Ended::Passed => Ok(Some(format!("{}: {test}", suite.target))),
    }
}

fn first_failure(suites: &[Suite], bug: &str) -> Result<Option<String>, String> {
    for suite in suites {
        let Ended::Failed(test) = run_suite(suite, &[suite.filter], bug)? else { continue };
        return is_of_the_bug(suite, test, bug);
    }
    Ok(None)
}

/// Builds the suites. Cargo reports where they are as lines of JSON.
fn built(root: &Path) -> Result<Vec<Suite>, String> {
    let mut cargo = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    cargo.current_dir(root).args(["test", "--no-run", "--locked", "--message-format=json"]);
    cargo.args(["--features", "planted/switch"]);
    for package in PACKAGES {
        cargo.args(["-p", package]);
    }
    let output = cargo.stderr(Stdio::inherit()).output().map_err(|e| format!("cargo: {e}"))?;
    if !output.status.success() {
        return Err("the suites cannot be built".into());
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let suite = |&(package, target, filter): &(&'static str, &'static str, &'static str)| {
        let manifest = format!("/{package}/Cargo.toml");
        let artifact = messages.lines().find(|line| {
            let is_test = text_of(line, "executable").is_some() && line.contains("\"test\":true}");
            let name = line.split("\"target\":").nth(1).and_then(|rest| text_of(rest, "name"));
            let of = text_of(line, "manifest_path");
            is_test && name == Some(target) && of.is_some_and(|path| path.ends_with(&manifest))
        });
        let not_built = || format!("no suite {target} of {package} was built");
        let artifact = artifact.ok_or_else(not_built)?;
        let executable = text_of(artifact, "executable").ok_or_else(not_built)?;
        let manifest = text_of(artifact, "manifest_path").ok_or_else(not_built)?;
        let directory = manifest.trim_end_matches("/Cargo.toml").to_owned();
        Ok(Suite { target, filter, executable: executable.to_owned(), directory })
    };
    SUITES.iter().map(suite).collect()
}

/// A string member of a line of JSON. Paths of this workspace need no escapes.
fn text_of<'l>(line: &'l str, member: &str) -> Option<&'l str> {
    let (_, rest) = line.split_once(&format!("\"{member}\":\""))?;
    rest.split('"').next()
}

/// Runs a suite up to its first failure.
fn run_suite(suite: &Suite, which: &[&str], bug: &str) -> Result<Ended, String> {
    let mut child = Command::new(&suite.executable)
        // An empty filter is none.
        .args(which.iter().filter(|argument| !argument.is_empty()))
        .current_dir(&suite.directory)
        .env("PLIMSOLL_PLANTED", bug)
        .env("PLIMSOLL_ALL_SEEDS", "1")
        // What was found by chance is not kept for the next bug.
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{}: {error}", suite.executable))?;
    let ended = watch(&mut child, Instant::now() + PATIENCE);
    // By its handle, whatever is left of it.
    let _ = child.kill();
    let status = child.wait().map_err(|error| format!("{}: {error}", suite.target))?;
    match ended? {
        Some(failure) => Ok(Ended::Failed(failure)),
        None if status.success() => Ok(Ended::Passed),
        None => Err(format!("{} ended with {status}, and reported no failure", suite.target)),
    }
}

/// The first test reported as failed; `None` when the output has ended.
fn watch(child: &mut Child, until: Instant) -> Result<Option<String>, String> {
    let stdout = BufReader::new(child.stdout.take().expect("it was asked for"));
    let (sender, lines) = mpsc::channel();
    // Ends with the child's output.
    std::thread::spawn(move || {
        for line in stdout.lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    loop {
        match lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                let failed = line.strip_prefix("test ").and_then(|l| l.strip_suffix(" ... FAILED"));
                if let Some(test) = failed {
                    return Ok(Some(test.to_owned()));
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Err(format!("a suite did not end within {PATIENCE:?}"));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                // It may have ended by itself; its status says how.
                while child.try_wait().is_ok_and(|status| status.is_none()) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read() {
        let text =
            "//! Text;\nbugs! {\n    One = \"one\", \"a bug\",\n        \"a: t\";\n    No;\n}\n";
        let bugs = bugs_in(text);
        assert_eq!(bugs.len(), 1);
        assert_eq!((bugs[0].variant.as_str(), bugs[0].name.as_str()), ("One", "one"));
        assert_eq!((bugs[0].what.as_str(), bugs[0].found_by.as_str()), ("a bug", "a: t"));
    }

    #[test]
    fn a_member_of_json_is_found() {
        let line = r#"{"target":{"name":"twin","test":true},"executable":"/x/twin-1"}"#;
        assert_eq!(text_of(line, "executable"), Some("/x/twin-1"));
        assert_eq!(text_of(line, "name"), Some("twin"));
        assert_eq!(text_of(line, "nothing"), None);
    }
}
