//! Trials in Debian's ClickHouse: sent while they are recorded, and afterwards, over kills of the
//! recorder, of the sender, and of the database.

#[path = "../../../lab/fleet/src/clickhouse/tests/node.rs"]
#[allow(dead_code, reason = "the tests of the crate fleet use the rest")]
mod node;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use fleet::clickhouse::{Address, Client};
use trial::{Host, Interval, Manifest, Server, Trial, Writer};

use crate::PLIMSOLL;
use crate::dashboard::{dashboard, events};
use crate::support::{Home, Running, SOON, free_port, output_file, plimsoll, wait_for};
use node::Node;

/// The numbers in an answer of the database.
fn numbers(node: &Node, sql: &str) -> Vec<u64> {
    let client = Client::new(Address::of(&node.url("fleet")).unwrap()).unwrap();
    let answer = client.run(&format!("{sql} FORMAT TabSeparated")).unwrap();
    let text = String::from_utf8(answer).unwrap();
    text.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

/// The flags of a recording of the process `pid`, with a log to which nothing is written.
fn record(home: &Home, pid: &str, name: &str, url: &str) -> Command {
    let log = home.write("access.log", "");
    let mut command = Command::new(PLIMSOLL);
    command
        .args(["record", "--pid", pid, "--no-profile", "--interval", "100ms"])
        .args(["--access-log", &log, "--log-format", "squid", "-o", &home.at(name)])
        .args(["--json", "--ship-to", url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

#[test]
fn what_a_recording_could_not_ship_is_shipped_by_the_next_one() {
    let home = Home::new();
    let mut node = Node::start(home.path());
    let url = node.url("fleet");
    plimsoll(&["fleet", "init", "--to", &url]).succeeded();
    let server = Running::start(Command::new("sleep").arg("600"));
    let pid = server.pid();

    // The database is away. The reason is printed, because there is no progress line.
    node.kill();
    let mut command = record(&home, &pid, "a.trial", &url);
    let mut away = Running::start(command.stderr(output_file(&home, "err")));
    wait_for("the reason", SOON, || home.read("err").contains("refused").then_some(()));
    away.signal("TERM");
    let (out, _) = away.remaining_output();
    let ended = away.ended(SOON);
    let err = home.read("err");
    assert!(ended.success(), "the recording itself is complete: {err}");
    let out: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(out.pointer("/shipped/complete").unwrap(), false, "{out}");
    assert!(err.contains("connection refused") && err.contains("plimsoll ship "), "{err}");
    assert!(err.contains("the recording goes on"), "there is no progress line: {err}");
    assert!(home.has("a.trial.unshipped"));

    // The recorder is killed.
    node.restart();
    let killed = Running::start(&mut record(&home, &pid, "b.trial", &url));
    wait_for("intervals of b", SOON, || {
        (numbers(&node, "SELECT count() FROM intervals") != [0]).then_some(())
    });
    killed.signal("KILL");
    drop(killed);
    assert!(home.has("b.trial.unshipped"));

    // The next one sends what remains of both. One of another database stays.
    home.write("other.trial", fs::read(home.path().join("a.trial")).unwrap());
    home.write("other.trial.unshipped", "{\"to\":\"http://other/db\",\"next\":0}");
    let mut next = Running::start(&mut record(&home, &pid, "c.trial", &url));
    wait_for("the end of the remainders", SOON, || {
        (!home.has("a.trial.unshipped") && !home.has("b.trial.unshipped")).then_some(())
    });
    next.signal("TERM");
    let (out, err) = next.remaining_output();
    assert!(next.ended(SOON).success(), "{err}");
    let out: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(out.pointer("/shipped/complete").unwrap(), true, "{out} {err}");
    assert!(!home.has("c.trial.unshipped") && home.has("other.trial.unshipped"));

    let intervals =
        |name: &str| Trial::open(home.path().join(name)).unwrap().intervals().len() as u64;
    let mut expected = ["a.trial", "b.trial", "c.trial"].map(intervals);
    expected.sort_unstable();
    let by_trial = "SELECT count() AS n FROM intervals FINAL GROUP BY trial ORDER BY n";
    assert_eq!(numbers(&node, by_trial), expected);
    assert_eq!(numbers(&node, "SELECT sum(complete), count() FROM runs FINAL"), [2, 3]);

    // The dashboard shows the server.
    let (_page, page) = dashboard(&[&url]);
    let address = page.strip_prefix("http://").unwrap().trim_end_matches('/');
    let (status, event) = events(address, &format!("Host: {address}\r\n"));
    assert_eq!((status.as_str(), &event["source"]["kind"]), ("200", &"fleet".into()));
    let shown = event["fleet"][0]["server"].as_str().unwrap_or_else(|| panic!("{event}"));
    assert!(shown.ends_with("/sleep"), "{shown}");

    // The trials are files again.
    let fetched = home.at("fetched");
    let fetch = |most: &str| plimsoll(&["fleet", "fetch", &url, "-o", &fetched, "--most", most]);
    fetch("2").refused(&["3 trials, more than 2", "--server"]);
    fetch("3").succeeded();
    fetch("3").succeeded();
    let files = fs::read_dir(&fetched).unwrap().map(|file| file.unwrap().path());
    let mut found: Vec<u64> =
        files.map(|file| Trial::open(file).unwrap().intervals().len() as u64).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
}

const RECORDINGS: u64 = 50;
const INTERVALS: u64 = 200;

/// A small trial of one of many servers.
fn small(path: &Path, at: u64) {
    let manifest = Manifest {
        created_ns: 1_769_904_000_000_000_000,
        host: Host { hostname: format!("host{at}"), cpus: 1, ..Host::default() },
        server: Server { name: "nginx".to_owned(), pid: Some(7), ..Server::default() },
        ..Manifest::default()
    };
    let mut writer = Writer::create(path, &manifest).unwrap();
    for index in 0..INTERVALS {
        let interval = Interval {
            index,
            start_ns: manifest.created_ns + index.cast_signed() * 1_000_000_000,
            length_ns: 1_000_000_000,
            requests: (at + index) as f64,
            requests_ended: at + index,
            rate_valid: true,
            ..Interval::default()
        };
        writer.append(&interval).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn fifty_senders_at_once_lose_and_double_nothing_over_kills() {
    let home = Home::new();
    let mut node = Node::start(home.path());
    let url = node.url("fleet");
    plimsoll(&["fleet", "init", "--to", &url]).succeeded();
    let trials: Vec<String> = (0..RECORDINGS)
        .map(|at| {
            let name = format!("{at}.trial");
            small(&home.path().join(&name), at);
            home.at(&name)
        })
        .collect();
    let ship = |trial: &String| {
        let mut command = Command::new(PLIMSOLL);
        command.args(["ship", trial, "--to", &url]).stdout(Stdio::null()).stderr(Stdio::piped());
        Running::start(&mut command)
    };
    let mut senders: Vec<Running> = trials.iter().map(ship).collect();
    wait_for("the first rows", SOON, || {
        (numbers(&node, "SELECT count() FROM intervals") != [0]).then_some(())
    });
    node.kill();
    for sender in senders.drain(..10) {
        sender.signal("KILL");
    }
    std::thread::sleep(Duration::from_millis(300));
    node.restart();
    for sender in &mut senders {
        let (_, err) = sender.remaining_output();
        assert!(sender.ended(2 * SOON).success(), "{err}");
    }
    let counts = "SELECT count(), uniqExact(host), \
                  toUInt64(sum(assumeNotNull(requests_ended))) FROM intervals FINAL";
    let requests: u64 = (0..RECORDINGS).map(|at| (0..INTERVALS).map(|i| at + i).sum::<u64>()).sum();
    let [rows, hosts, _] = numbers(&node, counts)[..] else { panic!("three numbers") };
    assert!(rows == hosts * INTERVALS && hosts >= RECORDINGS - 10, "{rows} rows of {hosts} hosts");
    // What was killed is sent again, and so is everything else.
    for _ in 0..2 {
        let again = plimsoll(&["ship", &home.at(""), "--to", &url, "--json"]).succeeded().json();
        assert_eq!(again["trials"], RECORDINGS);
        assert_eq!(numbers(&node, counts), [RECORDINGS * INTERVALS, RECORDINGS, requests]);
    }
}

#[test]
fn errors_of_shipping_say_how_to_fix_them() {
    let home = Home::new();
    small(&home.path().join("a.trial"), 1);
    let trial = home.at("a.trial");
    let ship = |more: &[&str]| {
        let mut args = vec!["ship", &trial, "--retry-for", "100ms"];
        args.extend(more);
        plimsoll(&args)
    };
    ship(&["--to", "ftp://u:secret@h"]).refused(&["http://HOST:8123/DATABASE"]);
    ship(&["--to", "http://127.0.0.1:1/x"]).refused(&["connection refused"]);
    let none = home.at("none");
    ship(&["--to", "http://127.0.0.1:1/x", "--password-file", &none]).refused(&["none"]);
    ship(&["--to", "https://127.0.0.1:1/x", "--ca", &trial]).refused(&["a.trial"]);
    fs::create_dir(home.path().join("empty")).unwrap();
    let empty = home.at("empty");
    plimsoll(&["ship", &empty, "--to", "http://h/x"]).refused(&["has no trials"]);
    let print = ["fleet", "init", "--to", "http://h/x", "--cluster", "c'", "--print"];
    plimsoll(&print).refused(&["--cluster"]);
    home.write("a.trial.unshipped", "{\"to\":\"http://h/x\",\"next\":0}");
    let over = ["record", "--pid", "1", "-o", &trial, "--force"];
    plimsoll(&over).refused(&["not shipped: run `plimsoll ship ", "a.trial.unshipped"]);
}
