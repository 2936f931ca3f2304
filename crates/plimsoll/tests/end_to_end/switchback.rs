//! `plimsoll switchback` from outside: servers and settings that alternate; and `plimsoll join`:
//! the latencies of a load in the trial of a server.

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use trial::{Interval, Manifest, ProcessTimes, Writer};

use crate::PLIMSOLL;
use crate::support::{
    CommandOutput, Home, OurServer, Running, SOON, free_port, plimsoll, run, wait_for,
};

/// Timeout of an experiment with a dozen periods on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// Runs an experiment with short periods and a generated load.
fn turns(a: &str, b: &str, port: u16, rounds: &str, more: &[&str]) -> CommandOutput {
    let url = format!("http://127.0.0.1:{port}/obj/1");
    let mut command = Command::new(PLIMSOLL);
    command.args(["switchback", "--a", a, "--b", b, "--url", &url, "--rate", "300"]);
    command.args(["--period", "1200ms", "--settle", "200ms", "--connections", "8"]);
    command.args(["--rounds", rounds]).args(more);
    run(command, PATIENCE)
}

fn null_server(port: u16) -> String {
    format!("{PLIMSOLL} null-server --listen 127.0.0.1:{port}")
}

#[test]
fn nightly_alone_a_server_that_costs_more_is_found_and_ended_with_its_period() {
    let _home = Home::alone();
    let port = free_port();
    // A thousand times the bytes cost several times as much, however busy the machine is.
    let expensive = format!("{} --size 1M", null_server(port));
    let output = turns(&null_server(port), &expensive, port, "6", &["--json"]);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("B costs more: a request costs"), "{output:?}");
    let found = output.json();
    assert_eq!(found["cost"]["verdict"], "more", "{found:#}");
    assert!(found["cost"]["low"].as_f64().unwrap() > 1.0, "{found:#}");
    let rounds = found["rounds"].as_array().unwrap();
    let first = |round: &Value| round["first"].as_str().unwrap().to_owned();
    let order: Vec<String> = rounds.iter().map(first).collect();
    assert_eq!(order, ["A", "B", "A", "B", "A", "B"]);
    for round in rounds {
        for side in ["a", "b"] {
            assert!(round[side]["requests"].as_f64().unwrap() > 10.0, "{round:#}");
            assert!(round[side]["cpu_s"].as_f64().unwrap() > 0.0, "{round:#}");
        }
    }
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "a server still runs");
}

/// With four rounds no p-value is small enough for a change, so the result cannot be a false
/// positive.
#[test]
fn nightly_alone_equal_commands_are_no_change_and_the_setting_of_a_is_restored() {
    let home = Home::alone();
    let server = OurServer::null_server();
    let (pid, port) = (server.child.pid(), server.address().port());
    let set = |to: &str| format!("echo {to} >> {}", home.at("settings"));
    let output = turns(&set("a"), &set("b"), port, "4", &["--pid", &pid]);
    assert!(matches!(output.code, Some(0 | 2)), "{output:?}");
    let answered =
        output.stdout.contains("no change: ") || output.stdout.contains("inconclusive: ");
    assert!(answered, "{output:?}");
    assert!(output.stdout.contains("fewer than 6 rounds cannot show a change"), "{output:?}");
    assert_eq!(home.read("settings"), "a\nb\nb\na\na\nb\nb\na\n");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok(), "the server must not be ended");
}

#[test]
fn alone_an_interrupt_ends_the_servers_and_restores_the_setting() {
    let home = Home::alone();
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/");
    let flags = ["switchback", "--url", &url, "--rate", "50", "--settle", "100ms"];
    let mut child = Command::new(PLIMSOLL);
    child.args(flags).args(["--a", &null_server(port), "--b", &null_server(port)]);
    let mut child = Running::start(child.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let listens = || TcpStream::connect(("127.0.0.1", port)).ok().map(drop);
    wait_for("the first server", SOON, listens);
    child.signal("INT");
    assert_eq!(child.ended(SOON).code(), Some(2));
    let (_, err) = child.remaining_output();
    assert!(err.contains("only 0 complete rounds of at least 4"), "{err}");
    assert!(listens().is_none(), "a server still runs");

    let server = OurServer::null_server();
    let (pid, url) = (server.child.pid(), server.url());
    let set = |to: &str| format!("echo {to} >> {}", home.at("settings"));
    let flags = ["switchback", "--pid", &pid, "--url", &url, "--rate", "50"];
    let mut child = Command::new(PLIMSOLL);
    child.args(flags).args(["--a", &set("a"), "--b", &set("b"), "--period", "2s"]);
    child.args(["--settle", "900ms"]);
    let mut child = Running::start(child.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let settings = || if home.has("settings") { home.read("settings") } else { String::new() };
    wait_for("the first B", 4 * SOON, || settings().contains('b').then_some(()));
    child.signal("INT");
    child.ended(SOON);
    assert_eq!(settings(), "a\nb\na\n");
}

#[test]
fn invalid_experiments_are_refused() {
    let _home = Home::new();
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/");
    let refused = |more: &[&str], words: &[&str]| {
        let base = ["switchback", "--a", "echo it is broken >&2; exit 4", "--b", "true"];
        plimsoll(&[&base[..], more].concat()).refused(words);
    };
    let driven = ["--url", &url, "--rate", "10"];
    refused(&driven, &["exit 4", "exit status: 4", "it is broken"]);
    refused(
        &[&driven[..], &["--rounds", "5"]].concat(),
        &["\"5\" is not an even number of at least 4"],
    );
    refused(&[&driven[..], &["--period", "3s"]].concat(), &["--settle"]);
    refused(&[&driven[..], &["--margin", "0"]].concat(), &["--margin"]);
    let short = [&driven[..], &["--hold", "--period", "15s"]].concat();
    refused(&short, &["of each period, 12s is too short for two holds", "--hold-every 3s"]);
    refused(&["--url", &url], &["--rate"]);
    refused(&["--access-log", "none"], &["exit 4"]);
    let server = OurServer::null_server();
    let url = server.url();
    let flags = ["switchback", "--a", "true", "--b", "true", "--url", &url, "--rate", "10"];
    plimsoll(&[&flags[..], &["--settle", "100ms"]].concat())
        .refused(&["without --name and --pid", "running server"]);
}

/// The trial of a server under a load, with an interval for each second of the load.
fn trial_of(home: &Home, load: &Value) -> String {
    let path = home.at("joined.trial");
    let mut writer = Writer::create(&path, &Manifest::default()).unwrap();
    for (index, row) in load["rows"].as_array().unwrap().iter().enumerate() {
        let completed = row["completed"].as_f64().unwrap();
        let total_ns = 10_000_000 + (completed * 50_000.0) as i64 + (index as i64 * 7 % 5) * 50_000;
        let interval = Interval {
            index: index as u64,
            start_ns: row["start_ns"].as_i64().unwrap(),
            length_ns: row["length_ns"].as_i64().unwrap(),
            server: Some(ProcessTimes { kernel_ns: total_ns, total_ns, ..Default::default() }),
            requests: completed,
            requests_ended: completed as u64,
            rate_valid: true,
            ..Interval::default()
        };
        writer.append(&interval).unwrap();
    }
    writer.finish().unwrap();
    path
}

#[test]
fn a_load_is_joined_to_its_trial_once() {
    let home = Home::new();
    let server = OurServer::null_server();
    let result = home.at("load.json");
    let flags = ["--rate", "50..400", "--for", "12s", "--connections", "4", "--output", &result];
    plimsoll(&[&["load", &server.url()][..], &flags].concat()).succeeded();
    let load: Value = serde_json::from_str(&home.read("load.json")).unwrap();
    let trial = trial_of(&home, &load);
    let before = plimsoll(&["report", &trial, "--json"]).succeeded().json();
    assert!(before["latency"].is_null(), "{:#}", before["latency"]);

    let joined = plimsoll(&["join", &trial, &result, "--json"]).succeeded().json();
    assert!(joined["rows_joined"].as_u64().unwrap() >= 11, "{joined:#}");
    assert!((joined["share_percent"].as_f64().unwrap() - 100.0).abs() < 0.1, "{joined:#}");
    assert!(joined["clocks"].as_str().unwrap().starts_with("both clocks"), "{joined:#}");
    let after = plimsoll(&["report", &trial, "--json"]).succeeded().json();
    assert_eq!(after["latency"]["source"], "generator", "{:#}", after["latency"]);
    assert_eq!(after["trial"]["complete"], true);
    let text = plimsoll(&["report", &trial]).succeeded().stdout;
    assert!(text.contains("latency is counted from the intended start"), "{text}");
    // On a busy machine the generator may have fallen behind all the time. Then the latencies count
    // that it did not change.
    let rows = load["rows"].as_array().unwrap();
    let valid = rows.iter().filter(|row| row["latency"]["count"] != 0).count();
    assert_eq!(after["latency"]["points"].as_array().unwrap().len(), valid, "{text}");
    let beside = text.contains("99 % within 10.0 ms");
    assert_eq!(beside, valid > 0, "capacity at an objective beside it: {text}");

    plimsoll(&["join", &trial, &result]).refused(&["already been joined"]);
    let cut = home.write("cut.json", &home.read("load.json")[..200]);
    plimsoll(&["join", &trial, &cut]).refused(&["cut.json", "not a result of plimsoll load"]);
    plimsoll(&["join", &trial, &home.at("none.json")]).refused(&["none.json", "cannot read"]);
    // With a clock that is a day off, no second of the load is in the trial.
    let other = home
        .write("other.json", home.read("load.json").replace("\"start_ns\": 1", "\"start_ns\": 2"));
    plimsoll(&["join", &trial, &other]).refused(&["no second of the load", "--offset"]);
}
