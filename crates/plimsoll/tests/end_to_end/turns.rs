//! switchback from outside: servers and settings that take turns; and join: a load's latencies in
//! the trial of a server.

use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use trial::{Interval, Manifest, ProcessTimes, Writer};

use crate::PLIMSOLL;
use crate::support::{Home, Ours, Running, SOON, Said, free_port, plimsoll, run, wait_for};

/// For an experiment of a dozen periods, on a machine that is busy otherwise.
const PATIENCE: Duration = Duration::from_secs(180);

/// What all experiments here have in common: short periods, a load that is driven.
fn turns(a: &str, b: &str, port: u16, rounds: &str, more: &[&str]) -> Said {
    let url = format!("http://127.0.0.1:{port}/obj/1");
    let mut command = Command::new(PLIMSOLL);
    command.args(["switchback", "--a", a, "--b", b, "--url", &url, "--rate", "300"]);
    command.args(["--period", "800ms", "--settle", "200ms", "--connections", "8"]);
    command.args(["--rounds", rounds]).args(more);
    run(command, PATIENCE)
}

fn null_server(port: u16) -> String {
    format!("{PLIMSOLL} null-server --listen 127.0.0.1:{port}")
}

#[test]
fn a_server_that_costs_more_is_found_and_ended_with_its_period() {
    let _home = Home::alone();
    let port = free_port();
    // A thousand times the bytes: several times the cost, however busy the machine is.
    let dearer = format!("{} --size 1M", null_server(port));
    let said = turns(&null_server(port), &dearer, port, "6", &["--json"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stderr.contains("B costs more: a request costs"), "{said:?}");
    let found = said.json();
    assert_eq!(found["cost"]["verdict"], "more", "{found:#}");
    assert!(found["cost"]["low"].as_f64().unwrap() > 1.0, "{found:#}");
    let rounds = found["rounds"].as_array().unwrap();
    let first = |round: &Value| round["first"].as_str().unwrap().to_owned();
    let order: Vec<String> = rounds.iter().map(first).collect();
    assert_eq!(order, ["A", "B", "A", "B", "A", "B"]);
    for round in rounds {
        for side in ["a", "b"] {
            assert!(round[side]["requests"].as_f64().unwrap() > 100.0, "{round:#}");
            assert!(round[side]["cpu_s"].as_f64().unwrap() > 0.0, "{round:#}");
        }
    }
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "a server goes on");
}

/// Of four rounds no p is small enough for a change, so that chance cannot make one here.
#[test]
fn what_is_the_same_is_not_called_a_change_and_a_setting_is_left_as_a_has_it() {
    let home = Home::alone();
    let server = Ours::null_server();
    let (pid, port) = (server.child.pid(), server.address().port());
    let set = |to: &str| format!("echo {to} >> {}", home.at("settings"));
    let said = turns(&set("a"), &set("b"), port, "4", &["--pid", &pid]);
    assert!(matches!(said.code, Some(0 | 2)), "{said:?}");
    let told = said.stdout.contains("no change: ") || said.stdout.contains("inconclusive: ");
    assert!(told, "{said:?}");
    assert!(said.stdout.contains("fewer than 6 rounds cannot show a change"), "{said:?}");
    assert_eq!(home.read("settings"), "a\nb\nb\na\na\nb\nb\na\n");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok(), "the server is not ours to end");
}

#[test]
fn an_interrupt_ends_the_servers_and_puts_a_setting_back() {
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
    let (_, err) = child.rest();
    assert!(err.contains("only 0 complete rounds of at least 4"), "{err}");
    assert!(listens().is_none(), "a server goes on");

    let server = Ours::null_server();
    let (pid, url) = (server.child.pid(), server.url());
    let set = |to: &str| format!("echo {to} >> {}", home.at("settings"));
    let flags = ["switchback", "--pid", &pid, "--url", &url, "--rate", "50"];
    let mut child = Command::new(PLIMSOLL);
    child.args(flags).args(["--a", &set("a"), "--b", &set("b"), "--period", "2s"]);
    child.args(["--settle", "900ms"]);
    let mut child = Running::start(child.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let settings = || if home.has("settings") { home.read("settings") } else { String::new() };
    wait_for("the first B", SOON, || settings().contains('b').then_some(()));
    child.signal("INT");
    child.ended(SOON);
    assert_eq!(settings(), "a\nb\na\n");
}

#[test]
fn what_cannot_take_turns_is_said() {
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
    refused(&["--url", &url], &["--rate"]);
    refused(&[], &["--access-log"]);
    let server = Ours::null_server();
    let url = server.url();
    let flags = ["switchback", "--a", "true", "--b", "true", "--url", &url, "--rate", "10"];
    plimsoll(&[&flags[..], &["--settle", "100ms"]].concat())
        .refused(&["without --name and --pid", "running server"]);
}

/// A trial of a server that a load was driven at: an interval for each second of the load.
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
    let server = Ours::null_server();
    let result = home.at("load.json");
    let flags = ["--rate", "50..400", "--for", "12s", "--connections", "4", "--output", &result];
    plimsoll(&[&["load", &server.url()][..], &flags].concat()).well();
    let load: Value = serde_json::from_str(&home.read("load.json")).unwrap();
    let trial = trial_of(&home, &load);
    let before = plimsoll(&["report", &trial, "--json"]).well().json();
    assert!(before["latency"].is_null(), "{:#}", before["latency"]);

    let joined = plimsoll(&["join", &trial, &result, "--json"]).well().json();
    assert!(joined["rows_joined"].as_u64().unwrap() >= 11, "{joined:#}");
    assert!((joined["share_percent"].as_f64().unwrap() - 100.0).abs() < 0.1, "{joined:#}");
    assert!(joined["clocks"].as_str().unwrap().starts_with("both clocks"), "{joined:#}");
    let after = plimsoll(&["report", &trial, "--json"]).well().json();
    assert_eq!(after["latency"]["source"], "generator", "{:#}", after["latency"]);
    assert_eq!(after["trial"]["complete"], true);
    let text = plimsoll(&["report", &trial]).well().stdout;
    assert!(text.contains("latency counts from the intended start"), "{text}");
    // On a machine that is busy otherwise the generator may have fallen behind all the while.
    let rows = load["rows"].as_array().unwrap();
    let valid = rows.iter().filter(|row| row["behind"] == false).count();
    assert_eq!(after["latency"]["points"].as_array().unwrap().len(), valid, "{text}");
    let beside = text.contains("99 % within 10.0 ms");
    assert_eq!(beside, valid > 0, "capacity at an objective beside it: {text}");

    plimsoll(&["join", &trial, &result]).refused(&["already been joined"]);
    let cut = home.write("cut.json", &home.read("load.json")[..200]);
    plimsoll(&["join", &trial, &cut]).refused(&["cut.json", "not a result of plimsoll load"]);
    plimsoll(&["join", &trial, &home.at("none.json")]).refused(&["none.json", "cannot read"]);
    // By a clock that is a day off, nothing of it lies in the trial.
    let other = home
        .write("other.json", home.read("load.json").replace("\"start_ns\": 1", "\"start_ns\": 2"));
    plimsoll(&["join", &trial, &other]).refused(&["no second of the load", "--offset"]);
}
