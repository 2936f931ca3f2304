//! `cargo xtask test`: lints and builds everything in one pass, then runs every test.
//!
//! `cargo clippy` would check each dependency once more in a form that no build can use. Here
//! clippy's compiler builds the workspace for the tests and lints it on the way, so that each
//! dependency is compiled once.
//!
//! The programs of tests run one after the other, the end-to-end tests first. Beside other work,
//! also of a lower priority, those that replace a server under load fail.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

/// Makes every warning an error, in the form in which `cargo clippy` hands it to its compiler.
const DENY: (&str, &str) = ("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
const LINTER: &str = "clippy-driver";
/// The tests that run first, by the name of their target.
const FIRST: &str = "end_to_end";
const SIMULATION_SECONDS: &str = "120";

/// One program of tests.
struct Program {
    path: PathBuf,
    /// The folder of its package, where it runs.
    folder: PathBuf,
    /// `package target`.
    name: String,
}

/// What the programs reported.
#[derive(Default)]
struct Totals {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Programs and steps that failed, by name.
    broken: Vec<String>,
}

pub(crate) fn run(root: &Path) -> ExitCode {
    match tested(root) {
        Ok(totals) => {
            for name in &totals.broken {
                println!("failed: {name}");
            }
            let Totals { passed, failed, ignored, broken } = totals;
            println!("{passed} passed, {failed} failed, {ignored} skipped");
            if failed == 0 && broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("test: {error}");
            ExitCode::from(2)
        }
    }
}

fn tested(root: &Path) -> io::Result<Totals> {
    linter_refuses_a_mistake()?;
    let since = Instant::now();
    let messages = built(root)?;
    report_time("linted and built", since.elapsed());
    let programs: Vec<Program> = messages.lines().filter_map(Program::of).collect();
    let (first, others): (Vec<Program>, Vec<Program>) =
        programs.into_iter().partition(|program| program.name.ends_with(FIRST));
    let simulation = super::example_in(&messages, "simulate")?;
    if first.is_empty() || others.is_empty() {
        return Err(io::Error::other("cargo names too few programs of tests"));
    }
    let mut totals = Totals::default();
    for program in first.iter().chain(&others) {
        totals.add(&program.name, program.run());
    }
    report_time("tests", since.elapsed());
    totals.add_step("simulation of the disk store", simulated(root, &simulation));
    report_time("simulation", since.elapsed());
    totals.add_step("examples in documentation", documented(root));
    Ok(totals)
}

fn report_time(what: &str, elapsed: Duration) {
    eprintln!("test: {what} after {} s", elapsed.as_secs());
}

/// The linter's interface is not a stable one: what it would let pass is asked first.
fn linter_refuses_a_mistake() -> io::Result<()> {
    let mut linter = Command::new(LINTER);
    linter.args(["rustc", "--crate-type=lib", "--emit=metadata", "-o", "/dev/null", "-"]);
    linter.env(DENY.0, DENY.1).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut running = linter.spawn().map_err(|error| {
        io::Error::other(format!("{LINTER}: {error}; to fix this: rustup component add clippy"))
    })?;
    let mistake = b"//! x\n/// x\npub fn f(x: &[u8]) -> bool { x.len() == 0 }\n";
    running.stdin.take().expect("it is piped").write_all(mistake)?;
    let output = running.wait_with_output()?;
    match String::from_utf8_lossy(&output.stderr).contains("error: length comparison to zero") {
        true => Ok(()),
        false => Err(io::Error::other(format!("{LINTER} does not refuse what clippy warns of"))),
    }
}

/// Lints and builds the workspace and returns cargo's messages.
fn built(root: &Path) -> io::Result<String> {
    let mut cargo = super::cargo();
    cargo.current_dir(root).args(["test", "--workspace", "--no-run", "--locked"]);
    cargo.args(["--message-format", "json-render-diagnostics"]);
    cargo.env("RUSTC_WORKSPACE_WRAPPER", LINTER).env(DENY.0, DENY.1);
    let output = cargo.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other("lints or build failed: see above"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The value of a key in a line of JSON in which it is a string without escapes.
fn text_of<'l>(line: &'l str, key: &str) -> Option<&'l str> {
    let (_, after) = line.split_once(&format!("\"{key}\":\""))?;
    after.split('"').next()
}

impl Program {
    /// From a message of cargo, if it is about a program of tests that is to run.
    fn of(line: &str) -> Option<Program> {
        let is_benchmark = line.contains("\"kind\":[\"bench\"]");
        let is_example = line.contains("\"kind\":[\"example\"]");
        let (_, profile) = line.split_once("\"profile\":{")?;
        let (profile, _) = profile.split_once('}')?;
        if !profile.contains("\"test\":true") || is_benchmark || is_example {
            return None;
        }
        let path = PathBuf::from(text_of(line, "executable")?);
        let folder = Path::new(text_of(line, "manifest_path")?).parent()?.to_path_buf();
        let package = folder.file_name()?.to_string_lossy().into_owned();
        let (_, target) = line.split_once("\"target\":{")?;
        let name = format!("{package} {}", text_of(target, "name")?);
        Some(Program { path, folder, name })
    }

    /// With its output as it comes, which is returned too.
    fn run(&self) -> io::Result<Output> {
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command.stdin(Stdio::null());
        let mut running = command.stdout(Stdio::piped()).spawn()?;
        let mut reader = io::BufReader::new(running.stdout.take().expect("it is piped"));
        let mut stdout = Vec::new();
        while io::BufRead::read_until(&mut reader, b'\n', &mut stdout)? > 0 {
            let line = stdout[..stdout.len() - 1].iter().rposition(|&b| b == b'\n');
            io::stdout().write_all(&stdout[line.map_or(0, |at| at + 1)..])?;
        }
        Ok(Output { status: running.wait()?, stdout, stderr: Vec::new() })
    }
}

fn simulated(root: &Path, program: &Path) -> io::Result<Output> {
    let mut command = Command::new(program);
    command.args(["--seconds", SIMULATION_SECONDS]).current_dir(root).output()
}

fn documented(root: &Path) -> io::Result<Output> {
    let mut cargo = super::cargo();
    cargo.current_dir(root).args(["test", "--workspace", "--doc", "--locked", "--quiet"]);
    cargo.env("RUSTC_WORKSPACE_WRAPPER", LINTER).env(DENY.0, DENY.1).output()
}

impl Totals {
    /// Takes in what a program of tests reported.
    fn add(&mut self, name: &str, result: io::Result<Output>) {
        if let Ok(output) = &result {
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                if line.starts_with("test result: ") {
                    println!("{name}: {line}");
                    self.passed += count(line, "passed");
                    self.failed += count(line, "failed");
                    self.ignored += count(line, "ignored");
                }
            }
        }
        self.check(name, &result);
    }

    /// Takes in a step that counts no tests.
    fn add_step(&mut self, name: &str, result: io::Result<Output>) {
        if let Ok(output) = &result {
            let text = String::from_utf8_lossy(&output.stdout);
            println!("{name}: {}", text.trim_end().lines().next_back().unwrap_or("ran"));
        }
        self.check(name, &result);
    }

    /// Prints all that a failed program or step wrote.
    fn check(&mut self, name: &str, result: &io::Result<Output>) {
        match result {
            Ok(output) if output.status.success() => return,
            Ok(output) => {
                println!("---- {name}: {}", output.status);
                println!("{}", String::from_utf8_lossy(&output.stdout));
                println!("{}", String::from_utf8_lossy(&output.stderr));
            }
            Err(error) => println!("---- {name}: {error}"),
        }
        self.broken.push(name.to_string());
    }
}

/// The number before a word, as in `3 passed; 0 failed`.
fn count(line: &str, word: &str) -> u64 {
    let before = line.split_once(&format!(" {word}")).map_or("", |(before, _)| before);
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_tests_is_read_from_cargos_message() {
        let line = |kind: &str, test: bool| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"package_id\":\"x\",\
                 \"manifest_path\":\"/a/crates/x/Cargo.toml\",\"target\":{{\"kind\":[\"{kind}\"],\
                 \"name\":\"suite\",\"test\":true}},\
                 \"profile\":{{\"opt_level\":\"0\",\"test\":{test}}},\
                 \"executable\":\"/a/target/suite-1\",\"fresh\":true}}"
            )
        };
        let program = Program::of(&line("test", true)).unwrap();
        assert_eq!(program.name, "x suite");
        assert_eq!(program.path, Path::new("/a/target/suite-1"));
        assert_eq!(program.folder, Path::new("/a/crates/x"));
        assert!(Program::of(&line("test", false)).is_none());
        assert!(Program::of(&line("bench", true)).is_none());
    }

    #[test]
    fn results_are_added_up_and_a_failure_is_seen() {
        let output = |code: i32, text: &str| {
            use std::os::unix::process::ExitStatusExt;
            let status = std::process::ExitStatus::from_raw(code << 8);
            Ok(Output { status, stdout: text.as_bytes().to_vec(), stderr: Vec::new() })
        };
        let mut totals = Totals::default();
        let line = "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out";
        totals.add("a", output(0, &format!("x\n{line}\n")));
        assert!(totals.broken.is_empty());
        totals.add("b", output(101, "test result: FAILED. 3 passed; 2 failed; 0 ignored"));
        totals.add("c", Err(io::Error::other("gone")));
        assert_eq!((totals.passed, totals.failed, totals.ignored), (15, 2, 1));
        assert_eq!(totals.broken, ["b", "c"]);
    }
}
