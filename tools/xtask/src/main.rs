//! Development tasks.
//!
//! - `cargo xtask tidy` checks what rustc, rustfmt and clippy do not.
//! - `cargo xtask halves` builds and tests each half of the product without the other.
//! - `cargo xtask map` draws the pictures of ARCHITECTURE.md from the code, and counts the lines of
//!   code.
//! - `cargo xtask test` lints, builds and runs every test.
//! - `cargo xtask nightly` runs the tests that take too long for each run.
//! - `cargo xtask planted` checks that the tests find the bugs planted on purpose.
//! - `cargo xtask site` turns the documentation into a site, target/site/index.html.
//! - `cargo xtask simulate` runs fresh seeds of the simulation of the disk store.
//! - `cargo xtask soak` runs the server for hours under mixed load and troubles.
//! - `cargo xtask dist` builds the release and packs it.
//!
//! xtask uses only two crates, one that packs and one that reads Markdown, so xtask builds in
//! seconds. `tidy` never changes a file: each finding says what is wrong and how to fix it.

#![forbid(unsafe_code)]

mod dist;
mod halves;
mod manual;
mod map;
mod planted;
mod rust;
mod suite;
mod tidy;
mod tree;

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const USAGE: &str = "usage: cargo xtask tidy | cargo xtask map | cargo xtask test \
                     | cargo xtask nightly | cargo xtask halves | cargo xtask planted [BUG...] \
                     | cargo xtask simulate [--seconds N] [--seed S] \
                     | cargo xtask soak [--hours N] | cargo xtask site [--source URL] \
                     | cargo xtask dist [DIR]";

fn main() -> ExitCode {
    if let Some(code) = suite::rustc().or_else(suite::rustdoc) {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => run_tidy(),
        ["halves"] => halves::run(&root()),
        ["map"] => map::run(&root()),
        ["test"] => suite::run(&root()),
        ["nightly"] => suite::nightly(&root()),
        ["planted", bugs @ ..] => planted::run(&root(), bugs),
        ["site"] => manual::run(&root(), None),
        ["site", "--source", url] => manual::run(&root(), Some(url)),
        ["simulate", flags @ ..] => simulate(flags),
        ["soak", flags @ ..] => soak(flags),
        ["dist", arguments @ ..] => dist::run(&root(), arguments),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// xtask is directly below it; the manifest's directory is known when it is built.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Builds the simulation and runs it; its last line holds `N operations`.
fn simulate(flags: &[&str]) -> ExitCode {
    let run = |program: &Path| Command::new(program).current_dir(root()).args(flags).status();
    match built_example("simulate").and_then(|program| run(&program)) {
        Ok(status) => ExitCode::from(status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("simulate: {error}");
            ExitCode::from(2)
        }
    }
}

/// Builds the server and the bench, and runs its soak.
fn soak(flags: &[&str]) -> ExitCode {
    let build = ["build", "--release", "--locked", "-p", "plimsoll", "-p", "bench"];
    let run = ["run", "--release", "--locked", "-p", "bench", "--", "soak"];
    for arguments in [&build[..], &[&run[..], flags].concat()] {
        match cargo().current_dir(root()).args(arguments).status() {
            Ok(status) if status.success() => {}
            Ok(_) => return ExitCode::FAILURE,
            Err(error) => {
                eprintln!("soak: cargo: {error}");
                return ExitCode::from(2);
            }
        }
    }
    ExitCode::SUCCESS
}

fn cargo() -> Command {
    Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()))
}

/// Builds an example and says where it is. It is built as one of the whole workspace: alone, the
/// crates that it needs would have fewer features and be compiled once more for the tests.
fn built_example(name: &str) -> io::Result<PathBuf> {
    let mut cargo = cargo();
    cargo.current_dir(root()).args(["build", "--quiet", "--locked", "--workspace"]);
    cargo.args(["--example", name, "--message-format", "json-render-diagnostics"]);
    let output = cargo.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other("it was not built: see above"));
    }
    example_in(&String::from_utf8_lossy(&output.stdout), name)
}

/// Where cargo's messages say that it built an example.
fn example_in(messages: &str, name: &str) -> io::Result<PathBuf> {
    let ends = format!("/examples/{name}");
    messages
        .split("\"executable\":\"")
        .skip(1)
        .filter_map(|after| after.split('"').next())
        .find(|path| path.ends_with(&ends))
        .map(PathBuf::from)
        .ok_or_else(|| io::Error::other("cargo does not say where it built it"))
}

fn run_tidy() -> ExitCode {
    let tree = match tree::Tree::read(&root()) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("tidy: the repository cannot be read: {error}");
            return ExitCode::from(2);
        }
    };
    let findings = tidy::check(&tree);
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, nothing to fix", tree.len());
        ExitCode::SUCCESS
    } else {
        println!("tidy: {} to fix", findings.len());
        ExitCode::FAILURE
    }
}
