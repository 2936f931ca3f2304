//! A recording while it goes on, from outside: text, JSON, and the screen in a pseudo terminal.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use trial::{Interval, Manifest, ProcessTimes, Trial, Writer};

use crate::PLIMSOLL;
use crate::lab::made;
use crate::support::{Home, Running, SOON, plimsoll, run};

/// An interval of a tenth of a second with a rate that rises.
fn interval(index: u64) -> Interval {
    let total_ns = 10_000_000 + 1_000_000 * index as i64;
    Interval {
        index,
        start_ns: index as i64 * 100_000_000,
        length_ns: 100_000_000,
        server: Some(ProcessTimes {
            user_ns: total_ns,
            total_ns,
            processes: 1,
            ..ProcessTimes::default()
        }),
        requests: 50.0 + 10.0 * index as f64,
        requests_ended: 50,
        rate_valid: true,
        ..Interval::default()
    }
}

#[test]
fn a_finished_trial_is_shown_once_as_text_and_as_json() {
    let home = Home::new();
    let trial = made(&home, "made.trial", 20.0, 40.0);
    let said = plimsoll(&["top", &trial, "--once"]).well().stdout;
    assert!(said.starts_with("Capacity  16,"), "{said}");
    assert!(said.contains("limited by the hottest thread"), "{said}");
    for word in ["finished", "all TCP functions", "rest of made", "answer"] {
        assert!(said.contains(word), "no {word:?}: {said}");
    }
    let line = plimsoll(&["top", &trial, "--json"]).well();
    assert_eq!(line.stdout.lines().count(), 1, "a finished trial has one line to tell");
    let told = line.json();
    let value = told["fit"]["line"]["capacity"]["value"].as_f64().unwrap();
    assert!((value / (1e6 / 60.0) - 1.0).abs() < 0.01, "{value}");
    // The figures of the report, to the digit.
    let report = plimsoll(&["report", &trial, "--json"]).well().json();
    assert_eq!(told["fit"]["line"]["capacity"], report["capacity"]);
    assert_eq!(told["fit"]["line"]["costs"], report["costs"]);
    let few = plimsoll(&["top", &trial, "--json", "--last", "5"]).well().json();
    assert_eq!((&few["intervals"], &few["interval"]), (&Value::from(5), &Value::from(59)));
}

#[test]
fn a_trial_that_grows_is_followed_to_its_end_and_not_held_up() {
    let home = Home::new();
    let path = home.at("growing.trial");
    let mut writer = Writer::create(&path, &Manifest::default()).unwrap();
    writer.append(&interval(0)).unwrap();
    let mut watching = Command::new(PLIMSOLL)
        .args(["top", &path, "--json"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut next =
        || -> Option<Value> { Some(serde_json::from_str(&lines.next()?.unwrap()).unwrap()) };
    let first = next().unwrap();
    assert_eq!((&first["interval"], &first["complete"]), (&Value::from(0), &Value::from(false)));
    assert!(first["fit"]["not_yet"].as_str().unwrap().contains("intervals"), "{first}");
    // Each is told before the next is written, so that none is passed over.
    for index in 1..=12 {
        writer.append(&interval(index)).unwrap();
        assert_eq!(next().unwrap()["interval"], index);
    }
    let finished = writer.finish().unwrap();
    assert!(finished.complete && finished.one_file, "whoever looks holds nothing");
    let last = next().unwrap();
    assert_eq!((&last["interval"], &last["complete"]), (&Value::from(12), &Value::from(true)));
    assert!(last["fit"]["line"].is_object(), "the end is always fitted: {last}");
    assert_eq!(next(), None);
    assert!(watching.wait().unwrap().success());
}

#[test]
fn without_a_trial_it_records_by_itself_and_keeps_nothing_unless_told() {
    let home = Home::new();
    let log = home.write("access.log", "");
    let server = Running::start(Command::new("sleep").arg("60"));
    let pid = server.pid();
    let flags = [
        "top",
        "--pid",
        &pid,
        "--access-log",
        &log,
        "--interval",
        "100ms",
        "--for",
        "1s",
        "--once",
    ];
    let mut command = Command::new(PLIMSOLL);
    command.args(flags).env("TMPDIR", home.path());
    let said = run(command, SOON).well().stdout;
    assert!(said.contains("Capacity  not yet: ") && said.contains("sleep"), "{said}");
    let left: Vec<_> =
        std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(left.len(), 1, "only the log is there: {left:?}");

    let out = home.at("kept.trial");
    plimsoll(&[&flags[..], &["-o", &out]].concat()).well();
    let kept = Trial::open(&out).unwrap();
    assert!(kept.complete() && kept.intervals().len() >= 5);
    plimsoll(&[&flags[..], &["-o", &out]].concat()).refused(&["kept.trial", "--force"]);
    // Of an older one of that name nothing is shown.
    made(&home, "old.trial", 20.0, 40.0);
    let old = home.at("old.trial");
    let said = plimsoll(&[&flags[..], &["-o", &old, "--force"]].concat()).well().stdout;
    assert!(said.contains("sleep") && !said.contains("made"), "{said}");
}

#[test]
fn what_cannot_be_watched_is_refused_with_the_mend() {
    let home = Home::new();
    let trial = made(&home, "made.trial", 20.0, 40.0);
    plimsoll(&["top"]).refused(&["--pid", "TRIAL"]);
    plimsoll(&["top", &home.at("none.trial")]).refused(&["none.trial"]);
    let text = home.write("text", "no trial");
    plimsoll(&["top", &text]).refused(&["text", "not a trial"]);
    plimsoll(&["top", &trial, "--locks"]).refused(&["--locks"]);
    plimsoll(&["top", &trial, "--last", "2"]).refused(&["--last", "5..=3600"]);
    plimsoll(&["top", "--pid", "1"]).refused(&["--access-log", "--requests-from"]);
    let empty = home.at("empty.trial");
    let writer = Writer::create(&empty, &Manifest::default()).unwrap();
    plimsoll(&["top", &empty, "--once"]).refused(&["empty.trial", "no interval"]);
    drop(writer);
}

/// Runs a line of shell in a pseudo terminal of 80 x 24; what it wrote.
fn in_a_terminal(line: &str, typed: &'static str) -> String {
    let mut child = Command::new("script")
        .args(["-qec", &format!("stty rows 24 cols 80; {line}; stty -a"), "/dev/null"])
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut keys = child.stdin.take().unwrap();
    let typing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(2));
        let _ = keys.write_all(typed.as_bytes());
        keys
    });
    let said = child.wait_with_output().unwrap();
    drop(typing.join());
    String::from_utf8_lossy(&said.stdout).into_owned()
}

/// The other screen was entered and left, and the terminal is as it was.
#[track_caller]
fn given_back(said: &str) {
    let entered = said.find("\u{1b}[?1049h").unwrap_or_else(|| panic!("never entered: {said}"));
    let left = said.rfind("\u{1b}[?1049l").unwrap_or_else(|| panic!("never left: {said}"));
    assert!(entered < left, "{said}");
    let settings = &said[left..];
    assert!(settings.contains(" icanon") && settings.contains(" echo "), "{settings}");
    assert!(said.contains("\u{1b}[?25h"), "the cursor is back: {said}");
}

#[test]
fn the_screen_gives_the_terminal_back_after_q_and_after_a_signal() {
    let home = Home::new();
    let trial = made(&home, "made.trial", 20.0, 40.0);
    let said = in_a_terminal(&format!("{PLIMSOLL} top {trial}"), "q");
    given_back(&said);
    assert!(said.contains("Capacity") && said.contains("16,"), "{said}");
    assert!(said.contains("\u{1b}[38;5;6"), "in colours: {said}");

    let said = in_a_terminal(&format!("NO_COLOR=1 {PLIMSOLL} top {trial}"), "\u{3}");
    given_back(&said);
    assert!(!said.contains("\u{1b}[38;5;"), "{said}");

    for signal in ["TERM", "HUP"] {
        let line =
            format!("{PLIMSOLL} top {trial} & p=$!; sleep 1; kill -{signal} $p; wait $p; echo $?=");
        let said = in_a_terminal(&line, "");
        given_back(&said);
        assert!(said.contains("0="), "a signal is a way to leave: {said}");
    }
}
