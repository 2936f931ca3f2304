//! Debian's ClickHouse, and today's, with trials from known lines.

pub(crate) mod node;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::Value;
use trial::Trial;

use super::binary::Reader;
use super::schema::Step;
use super::{Address, Client, Layout, Patience};
use crate::home::{Asked, Home, Label};
use crate::windows_tests::{Made, START_S};
use node::{Chdb, Node};

static NEVER: AtomicBool = AtomicBool::new(false);
const PATIENT: Patience<'_> = Patience { lasts: Duration::from_secs(60), stop: &NEVER };
const NOT_PATIENT: Patience<'_> = Patience { lasts: Duration::ZERO, stop: &NEVER };

fn client(url: &str) -> Client {
    Client::new(Address::of(url).unwrap()).unwrap()
}

/// The only number of an answer.
fn number(client: &Client, sql: &str) -> u64 {
    let answer = client.query(&format!("SELECT toUInt64(({sql})) FORMAT RowBinary")).unwrap();
    Reader(&answer).unsigned().unwrap()
}

/// Rows of a table without those that are replaced.
fn rows(client: &Client, table: &str) -> u64 {
    number(client, &format!("SELECT count() FROM {table} FINAL"))
}

/// Trials of three servers, with labels and profiles.
fn made(directory: &Path) -> Vec<Trial> {
    let labels = |text: &[&str]| {
        let label = |text: &&str| {
            let (name, value) = text.split_once('=').unwrap();
            (name.to_owned(), value.to_owned())
        };
        text.iter().map(label).collect::<Vec<_>>()
    };
    let day = START_S + 86_400;
    let trials = [
        Made { labels: labels(&["release=4'1", "group=a"]), ..Made::default() },
        Made { labels: labels(&["release=4\\2"]), start_s: day, ..Made::default() },
        Made { host: "h\t'2".into(), labels: labels(&["release=4'1"]), ..Made::default() },
        Made { host: "h3".into(), peak: 60_000.0, ..Made::default() },
    ];
    let trial = |(at, made): (usize, Made)| {
        let path = made.write(directory, &format!("{at}.trial"));
        Trial::open(path).unwrap()
    };
    trials.into_iter().enumerate().map(trial).collect()
}

#[test]
fn tables_are_made_once_and_older_ones_are_changed() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::start(directory.path());
    let client = client(&node.url("fleet"));
    let made = client.init(&Layout::default()).unwrap();
    assert_eq!((made.before, made.version), (0, 1));
    assert_eq!(client.init(&Layout::default()).unwrap().before, 1);

    // An interrupted step is repeated.
    let column: &[Step] = &[Step::Column("runs", "rack", "String")];
    let steps = [&[Step::Tables][..], column];
    client.query("ALTER TABLE runs ADD COLUMN rack String").unwrap();
    let made = client.upgrade(&Layout::default(), &steps).unwrap();
    assert_eq!((made.before, made.version), (1, 2));
    assert_eq!(number(&client, "SELECT count(rack) FROM runs"), 0);
    let newer = client.init(&Layout::default()).unwrap_err().to_string();
    assert!(newer.contains("use a newer plimsoll"), "{newer}");

    let ttl = Layout { ttl_days: Some(9), ..Layout::default() };
    let made = client.upgrade(&ttl, &steps).unwrap();
    assert!(made.notes[0].contains("does not support it"), "{:?}", made.notes);
}

/// What was asked, for all kinds of filters.
fn asked() -> Vec<Asked> {
    let label = |name: &str, value: &str| Label { name: name.into(), value: value.into() };
    let server = |text: &str| Some(text.to_owned());
    vec![
        Asked::default(),
        Asked { by: Some("release".into()), ..Asked::default() },
        Asked { labels: vec![label("release", "4'1"), label("group", "a")], ..Asked::default() },
        Asked { labels: vec![label("release", "4\\2")], ..Asked::default() },
        Asked { server: server("h\t'2/"), ..Asked::default() },
        Asked { server: server("nobody"), ..Asked::default() },
        Asked { span: Some((START_S, START_S + 600)), ..Asked::default() },
    ]
}

#[test]
fn debians_clickhouse_and_todays_answer_alike() {
    let directory = tempfile::tempdir().unwrap();
    let trials = made(directory.path());
    let node = Node::start(directory.path());
    let chdb = Chdb::start(directory.path());
    let urls = [node.url("fleet"), format!("http://127.0.0.1:{}/fleet", chdb.http)];
    let clients = urls.map(|url| client(&url));
    let ttl = Layout { ttl_days: Some(100_000 / 10), ..Layout::default() };
    for client in &clients {
        client.init(&ttl).unwrap();
        trials.iter().for_each(|trial| {
            client.ship(trial, PATIENT, &mut |_| ()).unwrap();
        });
    }
    for asked in asked() {
        let [old, new] = clients.each_ref().map(|client| answers(client, &asked));
        assert_alike(&old, &new, &format!("{asked:?}"));
    }
}

/// All answers.
fn answers(home: &dyn Home, asked: &Asked) -> Value {
    serde_json::json!([
        home.costs(asked).unwrap(),
        home.hours(asked).unwrap(),
        home.procedures(asked).unwrap(),
        home.stacks(asked).unwrap(),
        home.runs(asked).unwrap(),
    ])
}

/// Fails if two answers differ by more than rounding.
fn assert_alike(one: &Value, other: &Value, what: &str) {
    match (one, other) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            assert!((a - b).abs() <= 1e-9 * a.abs().max(b.abs()), "{what}: {a} {b}");
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                assert_alike(a, b, &format!("{what}/{at}"));
            }
        }
        (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
            for ((name, a), b) in a.iter().zip(b.values()) {
                assert_alike(a, b, &format!("{what}/{name}"));
            }
        }
        (a, b) => assert_eq!(a, b, "{what}"),
    }
}

#[test]
fn a_trial_that_is_sent_again_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let node = Node::start(directory.path());
    let client = client(&node.url("fleet"));
    client.init(&Layout::default()).unwrap();
    let trials = made(directory.path());
    let count = || super::tables::all().iter().map(|table| rows(&client, table.name)).sum::<u64>();
    let mut sent = 0;
    for trial in &trials {
        sent += client.ship(trial, PATIENT, &mut |_| ()).unwrap().rows;
    }
    assert_eq!(count(), sent);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| client.ship(&trials[0], PATIENT, &mut |_| ()).unwrap());
        }
    });
    assert_eq!(count(), sent);
}
