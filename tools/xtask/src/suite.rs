//! `cargo xtask test`: lints and builds everything in one pass, then runs every test.
//!
//! `cargo clippy` would check each dependency again in a form that no build can use. Here clippy's
//! compiler builds the workspace for the tests and lints it in the same pass, so that each
//! dependency is compiled once. This program runs the compiler for cargo and decides how: see
//! [`rustc`]. The documentation is built in the same way, with the libraries that were built for
//! the tests.
//!
//! Then these tests run side by side. The documentation and the simulation run at the same time,
//! the simulation at the lowest priority:
//!
//! - the end-to-end tests, three at a time, because they mostly wait for other programs;
//! - the end-to-end tests that drive a load (their names begin with `alone_`), one after another,
//!   and then the studies;
//! - all other test programs, two at a time, the longest first: some of them wait, too, or use one
//!   thread.
//!
//! [`nightly`] has the tests that take too long for each run: tests whose names begin with
//! `nightly_`, expensive random tests with all their seeds, histories of the cache with fresh
//! seeds, a longer simulation, `unsafe` code under Miri, what cores share under loom, the bugs
//! planted on purpose, lints of benchmarks, and each half of the product without the other.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::Mutex;
use std::time::Instant;
use std::{iter, slice, thread};

/// Makes every warning an error, in the form that `cargo clippy` passes to its compiler.
const DENY: (&str, &str) = ("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
const LINTER: &str = "clippy-driver";
/// Programs of tests, by the names of their crates, that compute so much themselves that optimising
/// them saves more than it costs.
const OPTIMISED: [&str; 3] = ["regress", "runqueue", "store"];
/// The end-to-end tests of the server.
const END_TO_END: &str = "plimsoll end_to_end";
/// What the names of those begin with that drive a load, so that they run one after another.
const ALONE: &str = "alone_";
/// What the names of those begin with that [`nightly`] runs, one after another.
const NIGHTLY: &str = "nightly_";
/// How many of the others run at a time: most of their time they wait for other programs.
const END_TO_END_THREADS: &str = "3";
/// The other test program that takes long. It comes first, so that both lanes end at about the same
/// time.
const TWIN: &str = "server twin";
/// Programs that each run gives a third of their seeds or fewer, and [`nightly`] all of them.
const ALL_SEEDS: [&str; 4] = [TWIN, "http2 model", "fleet planted", "interpose differential"];
/// The end-to-end tests of the studies.
const STUDIES: &str = "studies end_to_end";
/// The example that simulates the disk store.
const SIMULATE: &str = "simulate";
const SIMULATION_SECONDS: &str = "60";
const NIGHTLY_SIMULATION_SECONDS: &str = "600";
/// The test that runs random histories of the cache, and how many seeds [`nightly`] gives it.
const HISTORIES: (&str, &str) = (TWIN, "histories");
const HISTORIES_SEEDS: u64 = 100;
/// Tests of `runtime` that Miri runs: those of its `unsafe` code, as far as Miri knows the system
/// calls of the test.
const MIRI: [&[&str]; 2] = [
    &[
        "--lib",
        "--",
        "allocations::",
        "boxed::",
        "waker::",
        "sync::",
        "sys::address",
        "fs::page_buffer",
    ],
    &["--test", "suite", "--", "on_the_twin::a", "on_the_twin::yielding", "--skip", "addresses"],
];

/// Where the models of what cores share are: the mutexes and atomics of these crates are those of
/// `runtime::sync::primitives`.
const MODELLED: [&str; 4] = ["runtime", "store", "cache", "policy"];
/// The name of the modules that have them.
const MODELS: &str = "models::";
/// loom runs every order with at most so many preemptions. A mistake that needs more is rare, and
/// each more takes ten times as long.
const PREEMPTIONS_MAX: &str = "3";

/// One test program.
struct Program {
    path: PathBuf,
    /// The folder of its package: the directory it runs in.
    folder: PathBuf,
    /// `package target`.
    name: String,
}

/// The results of all programs.
#[derive(Default)]
struct Totals {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// Names of programs and steps that failed.
    broken: Vec<String>,
}

/// Runs every test but those of [`nightly`].
pub(crate) fn run(root: &Path) -> ExitCode {
    summed_up(tested(root))
}

/// Runs what takes too long for each run.
pub(crate) fn nightly(root: &Path) -> ExitCode {
    summed_up(tested_nightly(root))
}

fn summed_up(tested: io::Result<Totals>) -> ExitCode {
    match tested {
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
    report_time("linted and built", since);
    let mut programs = programs_in(&messages);
    let simulation = super::example_in(&messages, SIMULATE)?;
    let end_to_end = taken(&mut programs, END_TO_END)?;
    let studies = taken(&mut programs, STUDIES)?;
    programs.sort_by_key(|program| program.name != TWIN);
    let queue = Mutex::new(programs.iter());
    let lane = || queued(&queue);
    let mut totals = Totals::default();
    thread::scope(|scope| {
        let together = ["--skip", ALONE, "--skip", NIGHTLY, "--test-threads", END_TO_END_THREADS];
        let alone = [ALONE, "--skip", NIGHTLY, "--test-threads=1"];
        let end_to_end = &end_to_end;
        let many = scope.spawn(move || {
            let result = end_to_end.run(&together);
            report_time("end-to-end tests, three at a time", since);
            result
        });
        let loads = scope.spawn(move || {
            let results = (end_to_end.run(&alone), studies.run(&EACH_RUN));
            report_time("end-to-end tests with a load, and the studies", since);
            results
        });
        let simulated = scope.spawn(|| simulated(root, &simulation, SIMULATION_SECONDS));
        let documented = scope.spawn(|| documented(root));
        let other = scope.spawn(lane);
        let join = "the thread only waits for a process";
        for (name, result) in lane().into_iter().chain(other.join().expect(join)) {
            totals.add(name, result);
        }
        report_time("all other test programs", since);
        totals.add(END_TO_END, many.join().expect(join));
        let (alone, studies) = loads.join().expect(join);
        totals.add(END_TO_END, alone);
        totals.add(STUDIES, studies);
        totals.add_step("simulation of the disk store", simulated.join().expect(join));
        totals.add_step("documentation", documented.join().expect(join));
    });
    report_time("all tests", since);
    Ok(totals)
}

/// The arguments of a program that leave out the tests of [`nightly`].
const EACH_RUN: [&str; 2] = ["--skip", NIGHTLY];

fn tested_nightly(root: &Path) -> io::Result<Totals> {
    let since = Instant::now();
    let messages = built(root)?;
    report_time("linted and built", since);
    let programs = programs_in(&messages);
    let mut totals = Totals::default();
    for program in programs.iter().filter(|program| program.has_tests(NIGHTLY)) {
        totals.add(&program.name, program.run(&[NIGHTLY, "--test-threads=1"]));
        report_time(&program.name, since);
    }
    let named = |name: &str| {
        let found = programs.iter().find(|program| program.name == name);
        found.ok_or_else(|| io::Error::other(format!("cargo does not name the program {name}")))
    };
    for name in ALL_SEEDS {
        let mut command = named(name)?.command(&EACH_RUN);
        totals.add(name, printed(command.env("PLIMSOLL_ALL_SEEDS", "1")));
    }
    report_time("tests with all their seeds", since);
    let (twin, histories) = HISTORIES;
    let twin = named(twin)?;
    let first = u64::from(std::process::id()) * HISTORIES_SEEDS;
    let seeds = format!("{first}..{}", first + HISTORIES_SEEDS);
    println!("histories with PLIMSOLL_SEEDS={seeds}");
    let mut command = twin.command(&[histories]);
    totals.add(&twin.name, printed(command.env("PLIMSOLL_SEEDS", &seeds)));
    report_time("histories", since);
    let simulation = super::example_in(&messages, SIMULATE)?;
    let simulated = simulated(root, &simulation, NIGHTLY_SIMULATION_SECONDS);
    totals.add_step("simulation of the disk store", simulated);
    report_time("simulation", since);
    for tests in MIRI {
        totals.add("runtime under Miri", printed(&mut under_miri(root, tests)));
    }
    report_time("Miri", since);
    totals.add("models of what cores share", printed(&mut under_loom(root)));
    report_time("loom", since);
    let mut lint = super::cargo();
    lint.current_dir(root).args(["clippy", "--workspace", "--benches", "--locked"]);
    totals.add_step("lints of benchmarks", lint.args(["--", "-Dwarnings"]).output());
    report_time("lints", since);
    if super::planted::run(root, &[]) != ExitCode::SUCCESS {
        totals.broken.push("bugs planted on purpose".into());
    }
    report_time("bugs planted on purpose", since);
    if super::halves::run(root) != ExitCode::SUCCESS {
        totals.broken.push("halves".into());
    }
    report_time("all of it", since);
    Ok(totals)
}

/// Miri finds undefined behaviour, which a test may survive. It needs a nightly compiler, whose
/// absence is a failure of the command.
fn under_miri(root: &Path, tests: &[&str]) -> Command {
    // By its name: a path would be that of one compiler's cargo, which takes no other compiler.
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["+nightly", "miri", "test", "--quiet", "-p", "runtime"]);
    cargo.args(tests).env("MIRIFLAGS", "-Zmiri-disable-isolation");
    cargo.env("CARGO_TARGET_DIR", root.join("target/miri"));
    cargo
}

/// loom finds an order of steps in which a model fails, which a test meets once in a million runs.
fn under_loom(root: &Path) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["test", "--quiet", "--locked", "--lib"]);
    cargo.args(MODELLED.iter().flat_map(|name| ["-p", name])).args(["--", MODELS]);
    cargo.env("RUSTFLAGS", "--cfg loom").env("LOOM_MAX_PREEMPTIONS", PREEMPTIONS_MAX);
    cargo.env("CARGO_TARGET_DIR", root.join("target/loom"));
    cargo
}

fn programs_in(messages: &str) -> Vec<Program> {
    messages.lines().filter_map(Program::of).collect()
}

/// Runs the programs that are left until there are none.
fn queued<'p>(left: &Mutex<slice::Iter<'p, Program>>) -> Vec<(&'p str, io::Result<Output>)> {
    let next = || left.lock().expect("nothing panics with it").next();
    iter::from_fn(next).map(|program| (&*program.name, program.run(&EACH_RUN))).collect()
}

/// Takes the program of that name out of the list.
fn taken(programs: &mut Vec<Program>, name: &str) -> io::Result<Program> {
    let at = programs.iter().position(|program| program.name == name);
    at.map(|at| programs.remove(at))
        .ok_or_else(|| io::Error::other(format!("cargo does not name the test program {name}")))
}

fn report_time(what: &str, since: Instant) {
    eprintln!("test: {what} after {} s", since.elapsed().as_secs());
}

/// Checks that the linter refuses a mistake. Its interface is not stable, and a change in it could
/// turn all lints off unnoticed.
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
        false => Err(io::Error::other(format!("{LINTER} does not report what clippy warns about"))),
    }
}

/// A `cargo test` of the workspace with this program as its compiler. What is built so is separate
/// from what other calls of cargo build, and not incremental, which takes a fifth less in a fresh
/// clone. Nor has it line tables, which take a sixth: a panic names its line without them.
///
/// Cargo's hash of a crate includes the path of this program as it is given, and the hash decides
/// whose copy of a generic function is used. So that two clones get the same programs, the path is
/// only a name, which is looked up in `PATH`.
fn cargo_test(root: &Path) -> io::Result<Command> {
    let mut cargo = super::cargo();
    cargo.current_dir(root).args(["test", "--workspace", "--locked"]);
    let own = std::env::current_exe()?;
    let (dir, name) = own.parent().zip(own.file_name()).expect("a program is in a directory");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = iter::once(dir.to_owned()).chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path).map_err(io::Error::other)?;
    cargo.env("PATH", path).env("RUSTC_WORKSPACE_WRAPPER", name).env(COMPILING, "1");
    cargo.env(DENY.0, DENY.1).env("CARGO_INCREMENTAL", "0").env("CARGO_PROFILE_DEV_DEBUG", "false");
    Ok(cargo)
}

/// Lints and builds the workspace. Returns cargo's messages.
fn built(root: &Path) -> io::Result<String> {
    let mut cargo = cargo_test(root)?;
    cargo.args(["--no-run", "--message-format", "json-render-diagnostics"]);
    let output = cargo.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other("lints or build failed: see above"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Set when cargo runs this program in place of the compiler.
const COMPILING: &str = "PLIMSOLL_COMPILING";

/// What the compiler is to do if cargo runs this program in its place. Warnings of a library are
/// errors, but clippy lints it together with its unit tests, so not here. All else is compiled by
/// clippy's compiler, and most tests are not optimised, even if their crate is.
pub(crate) fn rustc() -> Option<ExitCode> {
    std::env::var_os(COMPILING)?;
    let asked: Vec<String> = std::env::args().skip(1).collect();
    // In `cargo test --doc` this program runs in place of rustdoc, too.
    asked.first().filter(|compiler| compiler.ends_with("rustc"))?;
    let status = compiler(&asked).status();
    Some(ExitCode::from(u8::from(!status.is_ok_and(|status| status.success()))))
}

fn compiler(asked: &[String]) -> Command {
    let value = |flag| asked.iter().skip_while(|argument| *argument != flag).nth(1);
    let is_test = asked.iter().any(|argument| argument == "--test");
    let is_library = !is_test && value("--crate-type").is_some_and(|kind| kind == "lib");
    let mut command = Command::new(if is_library { &asked[0] } else { LINTER });
    command.args(&asked[usize::from(is_library)..]);
    if is_library {
        command.arg("-Dwarnings");
    }
    if is_test && value("--crate-name").is_some_and(|name| !OPTIMISED.contains(&&**name)) {
        command.arg("-Copt-level=0");
    }
    command
}

/// The string value of a key in a line of JSON. It must have no escapes.
fn text_of<'l>(line: &'l str, key: &str) -> Option<&'l str> {
    let (_, after) = line.split_once(&format!("\"{key}\":\""))?;
    after.split('"').next()
}

impl Program {
    /// Reads a message of cargo. `None` if it is not about a test program that is to run.
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

    /// Runs it. Its output is printed as it comes, and returned.
    fn run(&self, arguments: &[&str]) -> io::Result<Output> {
        printed(&mut self.command(arguments))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }

    /// Whether a test has this in its name.
    fn has_tests(&self, name: &str) -> bool {
        let listed = self.command(&["--list", name]).stderr(Stdio::null()).output();
        listed.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(": test"))
    }
}

/// Runs a command. Its output is printed as it comes, and returned.
fn printed(command: &mut Command) -> io::Result<Output> {
    let mut running = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut reader = io::BufReader::new(running.stdout.take().expect("it is piped"));
    let mut stdout = Vec::new();
    while io::BufRead::read_until(&mut reader, b'\n', &mut stdout)? > 0 {
        let line = stdout[..stdout.len() - 1].iter().rposition(|&b| b == b'\n');
        io::stdout().write_all(&stdout[line.map_or(0, |at| at + 1)..])?;
    }
    Ok(Output { status: running.wait()?, stdout, stderr: Vec::new() })
}

/// A command that gets the processor time that nothing else wants.
fn in_background(program: &Path) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(program).stdin(Stdio::null());
    command
}

fn simulated(root: &Path, program: &Path, seconds: &str) -> io::Result<Output> {
    let mut command = in_background(program);
    command.args(["--seconds", seconds]).current_dir(root).output()
}

/// Builds the documentation of all libraries with warnings as errors, and runs its examples.
///
/// `cargo doc` would check each dependency again. `cargo test --doc` uses the libraries that are
/// built already, and runs this program instead of rustdoc: see [`rustdoc`].
fn documented(root: &Path) -> io::Result<Output> {
    let mut cargo = cargo_test(root)?;
    cargo.args(["--doc", "--quiet", "--no-fail-fast"]).stdin(Stdio::null());
    cargo.env("RUSTDOC", std::env::current_exe()?).env(DOCUMENTATION, root.join("target/doc"));
    cargo.output()
}

/// Set when cargo runs this program instead of rustdoc: where the documentation goes.
const DOCUMENTATION: &str = "PLIMSOLL_DOCUMENTATION";

/// What rustdoc is to do if cargo runs this program in its place: build the documentation of the
/// library, then do what cargo asked for, which is to run its examples.
pub(crate) fn rustdoc() -> Option<ExitCode> {
    let out = std::env::var_os(DOCUMENTATION)?;
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let mut build = Command::new("rustdoc");
    build.args(without_examples(&asked)).args(["--document-private-items", "-D", "warnings", "-o"]);
    let steps = [build.arg(out), Command::new("rustdoc").args(&asked)]
        .into_iter()
        .map(|step| step.status().is_ok_and(|status| status.success()))
        .collect::<Vec<bool>>();
    Some(if steps == [true, true] { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The arguments of rustdoc without those that make it run examples.
fn without_examples(asked: &[String]) -> Vec<&String> {
    let mut kept = Vec::new();
    let mut arguments = asked.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--test" => {}
            "--test-run-directory" | "--test-args" => drop(arguments.next()),
            _ => kept.push(argument),
        }
    }
    kept
}

impl Totals {
    /// Adds the results of a test program.
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

    /// Adds a step that counts no tests.
    fn add_step(&mut self, name: &str, result: io::Result<Output>) {
        if let Ok(output) = &result {
            let text = String::from_utf8_lossy(&output.stdout);
            println!("{name}: {}", text.trim_end().lines().next_back().unwrap_or("ran"));
        }
        self.check(name, &result);
    }

    /// Records a failure and prints everything that the program or step wrote.
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
    fn a_test_program_is_read_from_cargos_message() {
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

    #[test]
    fn a_library_is_compiled_and_everything_else_is_linted() {
        let run_by = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(|argument| (*argument).to_owned()).collect();
            let command = compiler(&asked);
            let arguments = command.get_args().map(|of| of.to_str().unwrap().to_owned());
            (command.get_program().to_owned(), arguments.collect::<Vec<_>>().join(" "))
        };
        let library = ["rustc", "--crate-name", "x", "--crate-type", "lib"];
        assert_eq!(run_by(&library).0, "rustc");
        assert_eq!(run_by(&library).1, "--crate-name x --crate-type lib -Dwarnings");
        let test = ["rustc", "--crate-name", "x", "--test"];
        assert_eq!(run_by(&test).0, LINTER);
        assert_eq!(run_by(&test).1, "rustc --crate-name x --test -Copt-level=0");
        assert_eq!(
            run_by(&["rustc", "--crate-name", "store", "--test"]).1,
            "rustc --crate-name store --test"
        );
        assert_eq!(run_by(&["rustc", "--crate-type", "bin"]).0, LINTER);
    }

    #[test]
    fn rustdoc_builds_documentation_from_the_arguments_for_examples() {
        let asked =
            ["--crate-name", "x", "--test", "src/lib.rs", "--test-run-directory", "/a", "-L"]
                .map(str::to_string);
        assert_eq!(without_examples(&asked), ["--crate-name", "x", "src/lib.rs", "-L"]);
    }
}
