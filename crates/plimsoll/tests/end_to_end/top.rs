//! `plimsoll top` from outside: text, JSON, and the screen in a pseudo-terminal.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, Command, Stdio};

use serde_json::Value;
use trial::{Interval, Manifest, ProcessTimes, Trial, Writer};

use crate::PLIMSOLL;
use crate::lab::made;
use crate::support::{Home, Running, SOON, plimsoll, run};

/// An interval of 0.1 s, with a rising rate.
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
    let output = plimsoll(&["top", &trial, "--once"]).succeeded().stdout;
    assert!(output.starts_with("Capacity  16,"), "{output}");
    assert!(output.contains("limited by the hottest thread"), "{output}");
    for word in ["finished", "all TCP functions", "rest of made", "answer"] {
        assert!(output.contains(word), "no {word:?}: {output}");
    }
    let line = plimsoll(&["top", &trial, "--json"]).succeeded();
    assert_eq!(line.stdout.lines().count(), 1, "a finished trial prints one line");
    let answer = line.json();
    let value = answer["fit"]["line"]["capacity"]["value"].as_f64().unwrap();
    assert!((value / (1e6 / 60.0) - 1.0).abs() < 0.01, "{value}");
    // Exactly the figures of the report.
    let report = plimsoll(&["report", &trial, "--json"]).succeeded().json();
    assert_eq!(answer["fit"]["line"]["capacity"], report["capacity"]);
    assert_eq!(answer["fit"]["line"]["costs"], report["costs"]);
    let few = plimsoll(&["top", &trial, "--json", "--last", "5"]).succeeded().json();
    assert_eq!((&few["intervals"], &few["interval"]), (&Value::from(5), &Value::from(59)));
}

#[test]
fn a_growing_trial_is_followed_to_its_end_without_blocking_the_writer() {
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
    // Each interval is printed before the next is written, so that none is skipped.
    for index in 1..=12 {
        writer.append(&interval(index)).unwrap();
        assert_eq!(next().unwrap()["interval"], index);
    }
    let finished = writer.finish().unwrap();
    assert!(finished.complete && finished.one_file, "the reader does not block the writer");
    let last = next().unwrap();
    assert_eq!((&last["interval"], &last["complete"]), (&Value::from(12), &Value::from(true)));
    assert!(last["fit"]["line"].is_object(), "the end is always fitted: {last}");
    assert_eq!(next(), None);
    assert!(watching.wait().unwrap().success());
}

#[test]
fn without_a_trial_top_records_and_keeps_the_recording_only_with_output() {
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
    let output = run(command, SOON).succeeded().stdout;
    assert!(output.contains("Capacity  not yet: ") && output.contains("sleep"), "{output}");
    let left: Vec<_> =
        std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(left.len(), 1, "only the log is there: {left:?}");

    let out = home.at("kept.trial");
    plimsoll(&[&flags[..], &["-o", &out]].concat()).succeeded();
    let kept = Trial::open(&out).unwrap();
    // Beside other load, a recorder takes several intervals at once.
    assert!(kept.complete() && !kept.intervals().is_empty());
    plimsoll(&[&flags[..], &["-o", &out]].concat()).refused(&["kept.trial", "--force"]);
    // An older trial of that name is not shown.
    made(&home, "old.trial", 20.0, 40.0);
    let old = home.at("old.trial");
    let output = plimsoll(&[&flags[..], &["-o", &old, "--force"]].concat()).succeeded().stdout;
    assert!(output.contains("sleep") && !output.contains("made"), "{output}");
}

#[test]
fn invalid_arguments_are_refused_with_a_fix() {
    let home = Home::new();
    let trial = made(&home, "made.trial", 20.0, 40.0);
    plimsoll(&["top"]).refused(&["--pid", "TRIAL"]);
    plimsoll(&["top", &home.at("none.trial")]).refused(&["none.trial"]);
    let text = home.write("text", "no trial");
    plimsoll(&["top", &text]).refused(&["text", "not a trial"]);
    plimsoll(&["top", &trial, "--locks"]).refused(&["--locks"]);
    plimsoll(&["top", &trial, "--last", "2"]).refused(&["--last", "5..=3600"]);
    let empty = home.at("empty.trial");
    let writer = Writer::create(&empty, &Manifest::default()).unwrap();
    plimsoll(&["top", &empty, "--once"]).refused(&["empty.trial", "no complete interval"]);
    drop(writer);
}

/// The beginning of the capacity of the made recording, which `top` draws last: when its line has
/// been fitted.
const FITTED: &str = "16,";

/// Runs a shell command in a pseudo-terminal of 80 x 24, and returns its output. When the page
/// is complete, `then` is called with the keyboard.
fn in_a_terminal(line: &str, then: impl FnOnce(&mut ChildStdin)) -> String {
    let mut child = Command::new("script")
        .args(["-qec", &format!("stty rows 24 cols 80; {line}; stty -a"), "/dev/null"])
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut output, mut buffer, mut then) = (Vec::new(), [0; 4096], Some(then));
    loop {
        match screen.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(count) => output.extend_from_slice(&buffer[..count]),
        }
        if String::from_utf8_lossy(&output).contains(FITTED)
            && let Some(then) = then.take()
        {
            then(&mut keys);
        }
    }
    child.wait().unwrap();
    String::from_utf8_lossy(&output).into_owned()
}

/// Asserts that the alternate screen was entered and left, and the terminal settings restored.
#[track_caller]
fn given_back(output: &str) {
    let entered = output.find("\u{1b}[?1049h").unwrap_or_else(|| panic!("never entered: {output}"));
    let left = output.rfind("\u{1b}[?1049l").unwrap_or_else(|| panic!("never left: {output}"));
    assert!(entered < left, "{output}");
    let settings = &output[left..];
    assert!(settings.contains(" icanon") && settings.contains(" echo "), "{settings}");
    assert!(output.contains("\u{1b}[?25h"), "the cursor is visible again: {output}");
}

/// A signal before the first drawing was taken for a cursor that stays hidden.
#[test]
fn the_terminal_is_restored_after_q_and_after_a_signal() {
    let home = Home::new();
    let trial = made(&home, "made.trial", 20.0, 40.0);
    let typed = |keys: &'static str| move |to: &mut ChildStdin| write!(to, "{keys}").unwrap();
    let output = in_a_terminal(&format!("{PLIMSOLL} top {trial}"), typed("q"));
    given_back(&output);
    assert!(output.contains("Capacity") && output.contains(FITTED), "{output}");
    assert!(output.contains("\u{1b}[38;5;6"), "in colours: {output}");

    let output = in_a_terminal(&format!("NO_COLOR=1 {PLIMSOLL} top {trial}"), typed("\u{3}"));
    given_back(&output);
    assert!(!output.contains("\u{1b}[38;5;"), "{output}");

    for signal in ["TERM", "HUP"] {
        let drawn = home.at(signal);
        let line = format!(
            "{PLIMSOLL} top {trial} & p=$!; until [ -e {drawn} ]; do sleep 0.1; done; \
             kill -{signal} $p; wait $p; echo $?="
        );
        let output = in_a_terminal(&line, |_| drop(home.write(signal, "")));
        given_back(&output);
        assert!(output.contains("0="), "a signal quits: {output}");
    }
}
