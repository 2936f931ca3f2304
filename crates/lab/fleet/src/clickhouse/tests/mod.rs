//! Debian's ClickHouse, and today's, with trials from known lines.

pub(crate) mod node;
#[path = "../../../../../core/transport/tests/common/ports.rs"]
mod ports;

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use trial::classes::ClassRow;
use trial::files::{Delays, Direction, FileRow};
use trial::profile::{Frame, FrameMode, Owner, SampleRow, Stack};
use trial::stretches::{SIZES, StretchKind, StretchRow, TurnRow};
use trial::waits::{LockKind, WaitRow, Word};
use trial::{Amendment, Histogram, Interval, LatencyRow, LatencySource, Trial, Writer};

use super::binary::Reader;
use super::schema::Step;
use super::{Address, Client, Follower, Layout, Patience};
use crate::Folder;
use crate::home::{Asked, Home, Label};
use crate::windows_tests::{Made, START_S};
use node::{Chdb, Node};

static NEVER: AtomicBool = AtomicBool::new(false);
const PATIENT: Patience<'_> =
    Patience { lasts: Duration::from_secs(60), until: None, stop: &NEVER };
const NOT_PATIENT: Patience<'_> = Patience { lasts: Duration::ZERO, until: None, stop: &NEVER };

/// A port on which nothing listened a moment ago.
fn free_port() -> u16 {
    ports::free_address().unwrap().port()
}

fn client(url: &str) -> Client {
    Client::new(Address::of(url).unwrap()).unwrap()
}

/// The only number of an answer.
fn number(client: &Client, sql: &str) -> u64 {
    let answer = client.query(&format!("{sql} FORMAT RowBinary")).unwrap();
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
        Made { host: "h3".into(), peak: 60_000.0, cpus: 1, start_s: day, ..Made::default() },
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
    assert_eq!((made.before, made.version), (0, 3));
    client.query("DROP TABLE locks").unwrap();
    assert_eq!(client.init(&Layout::default()).unwrap().before, 3);
    assert_eq!(rows(&client, "locks"), 0);
    let cluster = Layout { cluster: Some("fleet".to_owned()), ..Layout::default() };
    let other = client.init(&cluster).unwrap_err().to_string();
    assert!(other.contains("it is not Distributed"), "{other}");
    let path = |path: &str| Layout { replicated: Some(path.to_owned()), ..cluster.clone() };
    for (bad, why) in [("/a/b", "all shards"), ("/{shard}/{", "a path"), ("/}{shard}", "a path")] {
        let refused = client.init(&path(bad)).unwrap_err().to_string();
        assert!(refused.contains(why), "{bad}: {refused}");
    }
    let quoted = self::client(&node.url("1d"));
    quoted.init(&cluster).unwrap();
    assert_eq!(rows(&quoted, "intervals"), 0);

    // An interrupted step is repeated.
    let column: &[Step] = &[Step::Column("runs", "rack", "String")];
    let steps = [&[Step::Tables][..], &[], &[], column];
    client.query("ALTER TABLE runs ADD COLUMN rack String").unwrap();
    let made = client.upgrade(&Layout::default(), &steps).unwrap();
    assert_eq!((made.before, made.version), (3, 4));
    assert_eq!(number(&client, "SELECT count(rack) FROM runs"), 0);
    let newer = client.init(&Layout::default()).unwrap_err().to_string();
    assert!(newer.contains("use a newer plimsoll"), "{newer}");

    let ttl = Layout { ttl_days: Some(9), ..Layout::default() };
    let made = client.upgrade(&ttl, &steps).unwrap();
    assert!(made.notes[0].contains("does not support it"), "{:?}", made.notes);
}

/// Questions with all kinds of filters.
fn asked() -> Vec<Asked> {
    let label = |name: &str, value: &str| Label { name: name.into(), value: value.into() };
    let server = |text: &str| Some(text.to_owned());
    vec![
        Asked::default(),
        Asked { by: Some("release".into()), ..Asked::default() },
        Asked { labels: vec![label("release", "4'1"), label("group", "a")], ..Asked::default() },
        Asked { labels: vec![label("release", "4\\2")], ..Asked::default() },
        Asked { server: server("h\t'2/"), ..Asked::default() },
        Asked { server: server("nginx2"), ..Asked::default() },
        Asked { span: Some((START_S, START_S + 600)), ..Asked::default() },
    ]
}

#[test]
fn a_folder_and_debians_clickhouse_and_todays_answer_alike() {
    let directory = tempfile::tempdir().unwrap();
    let trials = made(directory.path());
    let folder = Folder::open(directory.path()).unwrap();
    let node = Node::start(directory.path());
    let chdb = Chdb::start(directory.path());
    let urls = [node.url("fleet"), format!("http://127.0.0.1:{}/fleet", chdb.http)];
    for client in urls.map(|url| client(&url)) {
        let days = |days| Layout { ttl_days: Some(days), ..Layout::default() };
        client.init(&days(20_000)).unwrap();
        assert_eq!(client.init(&days(20_000)).unwrap().before, 3);
        for trial in &trials {
            client.ship(trial, PATIENT, &mut |_| ()).unwrap();
        }
        for asked in asked() {
            let what = format!("{} {asked:?}", client.address());
            assert_alike(&answers(&client, &asked), &answers(&folder, &asked), &what);
        }
        assert_fetched(&client, &trials[2], directory.path());
    }
    let today = client(&format!("http://127.0.0.1:{}/fleet", chdb.http));
    let ttl = |days: u32| {
        let layout = Layout { ttl_days: Some(days), ..Layout::default() };
        today.init(&layout).unwrap();
        number(
            &today,
            &format!(
                "SELECT toUInt64(count()) FROM system.tables WHERE database = 'fleet' AND \
                 engine_full LIKE '%TTL % + toIntervalDay({days})%'"
            ),
        )
    };
    // All but the stacks.
    let tables = super::tables::all().len() as u64 - 1;
    assert_eq!((ttl(20_000), ttl(20_001)), (tables, tables));
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

/// A recording with rows in all raw tables, which is written step by step.
struct Recording {
    writer: Writer,
    rest: std::vec::IntoIter<Interval>,
    stack: u32,
}

impl Recording {
    fn begin(path: &Path, made: &Made) -> Recording {
        let mut writer = Writer::create(path, &made.manifest()).unwrap();
        let main = Frame {
            symbol: Some("ma;in".to_owned()),
            module: "nginx".to_owned(),
            mode: FrameMode::User,
        };
        let frames = vec![writer.frame(&main).unwrap()];
        let stack = writer.stack(&Stack { frames, whole: true }).unwrap();
        Recording { writer, rest: made.intervals().into_iter(), stack }
    }

    fn append(&mut self, intervals: usize) {
        for interval in self.rest.by_ref().take(intervals) {
            let (writer, stack, index) = (&mut self.writer, self.stack, interval.index);
            let owner = Owner::Server;
            let ns = interval.server.unwrap().total_ns;
            let sample = SampleRow { interval: index, owner, stack, samples: 9, ns };
            writer.samples(&[sample]).unwrap();
            let class = ClassRow {
                interval: index,
                class: "hit GET 1k-10k -".to_owned(),
                requests: interval.requests,
                ended: interval.requests_ended,
                bytes: 5.0,
            };
            writer.classes(&[class]).unwrap();
            let wait = WaitRow {
                interval: index,
                kind: LockKind::Futex,
                owner,
                stack,
                word: Some(Word { pid: 17, address: u64::MAX }),
                waits: 2,
                total_ns: 5,
                max_ns: 3,
                spun_ns: 0,
                timed_out: 0,
            };
            writer.waits(&[wait, wait]).unwrap();
            writer.files(vec![file(index)]);
            let (turns, stretches) = turns(&interval);
            writer.stretches(turns, &stretches);
            writer.append_all(&interval, &[latency(index, 100)], &[]).unwrap();
        }
    }

    /// Adds a request to an interval.
    fn amend(&mut self, interval: u64) {
        let amendment = Amendment { interval, requests: 1.0, requests_ended: 1 };
        self.writer.amend(&[amendment], &[latency(interval, 90_000)]).unwrap();
    }
}

/// Files that were written since the recording began.
fn file(objects: u64) -> FileRow {
    FileRow {
        direction: Direction::Written,
        size_from: 4096,
        size_below: None,
        objects,
        calls: 2 * objects,
        bytes: 9,
        open_ns: 1,
        first_ns: 2,
        rest_ns: 3,
        close_ns: 4,
        elapsed_ns: 5,
        needless: 6,
        after_short: 7,
        needless_objects: 8,
        needless_ns: 10,
        first: Delays::default(),
        total: Delays::default(),
    }
}

/// Turns and busy periods of 20 us, with requests of 25 us.
fn turns(interval: &Interval) -> (TurnRow, Vec<StretchRow>) {
    let index = interval.index;
    let sixth = interval.requests_ended / 6;
    let stretch = |kind, held, size: u32| StretchRow {
        interval: index,
        kind,
        held,
        served: true,
        size,
        stretches: sixth,
        turns: sixth,
        clients: sixth * u64::from(size),
        upstreams: 0,
        cpu_ns: sixth.cast_signed() * (20_000 + 25_000 * i64::from(size)),
    };
    let sizes =
        [(StretchKind::Turn, false), (StretchKind::Turn, true), (StretchKind::Period, false)];
    let of = |(kind, held)| SIZES[1..3].iter().map(move |&size| (kind, held, size));
    let rows = sizes.into_iter().flat_map(of).map(|(kind, held, size)| stretch(kind, held, size));
    let turns = TurnRow {
        interval: index,
        sampled_ns: interval.length_ns,
        turns: 4 * sixth,
        clients: interval.requests_ended,
        upstreams: 0,
    };
    (turns, rows.collect())
}

/// A trial that is fetched has the rows that were sent, and the same capacity.
fn assert_fetched(client: &Client, original: &Trial, directory: &Path) {
    let run = crate::windows::run(original);
    let path = directory.join("fetched");
    client.fetch(&run, &path).unwrap();
    let again = client.fetch(&run, &path).unwrap_err().to_string();
    assert!(again.contains("exists"), "{again}");
    let fetched = Trial::open(&path).unwrap();
    assert_eq!(fetched.manifest().identity(), original.manifest().identity());
    assert!(fetched.manifest().notes[0].starts_with("from ClickHouse: no profile"));
    assert_eq!(fetched.intervals(), original.intervals());
    assert_eq!(fetched.classes(), original.classes());
    assert_eq!(fetched.turns(), original.turns());
    assert_eq!(fetched.stretches(), original.stretches());
    assert_eq!(fetched.files(), original.files());
    let analysed = |trial| report::analyse(trial, &report::Options::default()).unwrap();
    let [one, other] = [original, &fetched].map(analysed);
    let figures = |of: &report::Analysis| {
        serde_json::json!([of.capacity, of.resources, of.saturation, of.modes, of.stretches])
    };
    assert_eq!(figures(&one), figures(&other));
    assert!(one.capacity.value.is_some(), "{:?}", one.capacity);
    std::fs::remove_file(path).unwrap();
}

fn latency(interval: u64, us: u64) -> LatencyRow {
    let mut histogram = Histogram::new(3).unwrap();
    histogram.record(us).unwrap();
    LatencyRow::new(interval, LatencySource::Log, false, &histogram)
}

#[test]
fn a_recording_is_followed_while_the_database_comes_and_goes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.trial");
    let mut node = Node::start(directory.path());
    let client = client(&node.url("fleet"));
    client.init(&Layout::default()).unwrap();
    let mut follower = Follower::new(client.clone(), &path);
    assert!(follower.step(&NEVER).is_err(), "there is no trial yet");
    let mut recording =
        Recording::begin(&path, &Made { start_s: START_S + 200, ..Made::default() });
    assert!(!follower.step(&NEVER).unwrap(), "it has no interval yet");

    recording.append(40);
    assert!(!follower.step(&NEVER).unwrap() && !follower.step(&NEVER).unwrap());
    assert_eq!((follower.acknowledged(), rows(&client, "intervals")), (0, 40));
    assert_eq!((rows(&client, "locks"), rows(&client, "windows")), (40, 0));

    node.kill();
    recording.append(50);
    let away = follower.step(&NEVER).unwrap_err().to_string();
    assert!(away.contains("connection refused"), "{away}");
    node.restart();
    recording.amend(3);
    recording.append(50);
    while follower.step(&NEVER).unwrap() {}
    // The first window ends after 100 s.
    assert_eq!((rows(&client, "intervals"), rows(&client, "windows")), (140, 4));
    assert_eq!(follower.acknowledged(), 100);
    let requests = |client: &Client| {
        number(client, "SELECT toUInt64(sum(assumeNotNull(requests_ended))) FROM intervals FINAL")
    };
    let sum = |trial: &Trial| trial.intervals().iter().map(|i| i.requests_ended).sum::<u64>();
    assert_eq!(requests(&client), sum(&Trial::open(&path).unwrap()), "with the late request");
    let both =
        "SELECT toUInt64(sum(assumeNotNull(count))) FROM latencies FINAL WHERE interval_number = 3";
    assert_eq!(number(&client, both), 2);

    let earlier = Trial::open(&path).unwrap();
    recording.append(760);
    recording.amend(70);
    while follower.step(&NEVER).unwrap() {}
    assert_eq!(requests(&client) + 1, sum(&Trial::open(&path).unwrap()), "until the end");
    recording.writer.finish().unwrap();
    let trial = Trial::open(&path).unwrap();
    client.ship(&trial, PATIENT, &mut |_| ()).unwrap();
    // A copy from the time of the recording does not replace the finished trial.
    client.ship(&earlier, PATIENT, &mut |_| ()).unwrap();
    assert_eq!(requests(&client), sum(&trial));

    // The same as a trial that is sent when it is finished.
    let other = super::tests::client(&node.url("other"));
    other.init(&Layout::default()).unwrap();
    other.ship(&trial, PATIENT, &mut |_| ()).unwrap();
    let [followed, whole] = [&client, &other].map(|client| answers(client, &Asked::default()));
    assert_eq!(followed, whole);
    for table in super::tables::all() {
        assert_eq!(rows(&client, table.name), rows(&other, table.name), "{}", table.name);
    }
    assert_eq!(number(&other, "SELECT sum(complete) FROM runs FINAL"), 1);
    assert_fetched(&client, &trial, directory.path());
}

/// A clock that was set back ended no window: no sums were sent, and a part grew without a limit.
#[test]
fn a_recording_is_followed_over_a_clock_that_is_set_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.trial");
    let node = Node::start(directory.path());
    let client = client(&node.url("fleet"));
    client.init(&Layout::default()).unwrap();
    let mut recording = Recording::begin(&path, &Made::default());
    recording.append(310);
    let mut follower = Follower::new(client.clone(), &path);
    follower.step(&NEVER).unwrap();
    let first = "SELECT toUInt64(sum(s[1])) FROM windows FINAL WHERE kind = 'rate'";
    assert_eq!((follower.acknowledged(), number(&client, first)), (300, 299));
    let mut rest: Vec<Interval> = recording.rest.collect();
    for interval in &mut rest {
        interval.start_ns -= 200 * 1_000_000_000;
    }
    recording.rest = rest.into_iter();
    recording.append(20);
    follower.step(&NEVER).unwrap();
    assert_eq!(follower.acknowledged(), 310);
    recording.append(200);
    while follower.step(&NEVER).unwrap() {}
    // The first window keeps the sums that it had; the second one ended when the clock was set.
    assert_eq!((follower.acknowledged(), number(&client, first)), (500, 309));
}

#[test]
fn three_nodes_lose_and_double_nothing_when_one_is_killed_under_ingest() {
    const TRIALS: usize = 12;
    let directory = tempfile::tempdir().unwrap();
    let mut nodes = Node::cluster(directory.path(), 3);
    let layout = Layout { cluster: Some("fleet".to_owned()), ..Layout::default() };
    for node in &nodes {
        client(&node.url("fleet")).init(&layout).unwrap();
    }
    let made = |at: usize| Made { host: format!("host{at}"), seconds: 700, ..Made::default() };
    let trials: Vec<Trial> = (0..TRIALS)
        .map(|at| Trial::open(made(at).write(directory.path(), &format!("{at}.trial"))).unwrap())
        .collect();
    let (entry, sent) = (&client(&nodes[0].url("fleet")), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        for trials in trials.chunks(TRIALS / 3) {
            scope.spawn(move || {
                for trial in trials {
                    let shipped = entry.ship(trial, PATIENT, &mut |_| ()).unwrap();
                    sent.fetch_add(shipped.rows, Ordering::Relaxed);
                }
            });
        }
        while sent.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        nodes[2].kill();
        std::thread::sleep(Duration::from_millis(300));
        assert!(sent.load(Ordering::Relaxed) < TRIALS as u64 * 1_400, "killed under ingest");
        nodes[2].restart();
    });
    let count: u64 = super::tables::all().iter().map(|table| rows(entry, table.name)).sum();
    assert_eq!(count, sent.load(Ordering::Relaxed));
    // A server's rows are on one node, and every node has some.
    let on = |node: &Node| {
        let sql = "SELECT uniqExact(host) FROM intervals_local";
        number(&client(&node.url("fleet")), sql)
    };
    let hosts: Vec<u64> = nodes.iter().map(on).collect();
    assert!(hosts.iter().sum::<u64>() == TRIALS as u64 && !hosts.contains(&0), "{hosts:?}");
    let through: Vec<Value> =
        nodes.iter().map(|node| answers(&client(&node.url("fleet")), &Asked::default())).collect();
    assert_alike(&through[0], &through[2], "the same from each node");
    assert_eq!(through[0][0].as_array().unwrap().len(), TRIALS);
}

#[test]
fn users_that_may_only_insert_or_only_read_are_enough_also_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let names = vec!["127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let ca = directory.path().join("tls.crt");
    std::fs::write(&ca, made.cert.pem()).unwrap();
    std::fs::write(ca.with_extension("key"), made.signing_key.serialize_pem()).unwrap();
    let node = Node::start(directory.path());
    client(&node.url("fleet")).init(&Layout::default()).unwrap();
    let login = |user: &str, password: &str| {
        let address = Address::of(&node.url("fleet")).unwrap();
        let address = address.with_login(Some(user.to_owned()), Some(password.to_owned()));
        Client::new(address).unwrap()
    };
    let path = Made { seconds: 20, ..Made::default() }.write(directory.path(), "a.trial");
    let trial = Trial::open(path).unwrap();
    let ship = |client: &Client| client.ship(&trial, NOT_PATIENT, &mut |_| ());
    ship(&login("recorder", "s3cret")).unwrap();
    let over_tls = format!("https://recorder:s3cret@127.0.0.1:{}/fleet", node.https);
    let over_tls = Address::of(&over_tls).unwrap();
    let unknown = ship(&Client::new(over_tls.clone()).unwrap()).unwrap_err().to_string();
    assert!(unknown.contains("UnknownIssuer") && !unknown.contains("s3cret"), "{unknown}");
    ship(&Client::new(over_tls.with_ca(Some(ca))).unwrap()).unwrap();
    let reader = login("reader", "r3ad");
    assert_eq!(reader.costs(&Asked::default()).unwrap().len(), 1);
    let may_not = ship(&reader).unwrap_err().to_string();
    assert!(may_not.contains("this user may not do this"), "{may_not}");
    for password in ["wrong", ""] {
        let wrong = ship(&login("recorder", password)).unwrap_err().to_string();
        assert!(wrong.contains("CLICKHOUSE_PASSWORD") && !wrong.contains("wrong:"), "{wrong}");
    }
    let none = ship(&client(&node.url("nothing"))).unwrap_err().to_string();
    assert!(none.ends_with(&format!("plimsoll fleet init --to {}", node.url("nothing"))), "{none}");
}
