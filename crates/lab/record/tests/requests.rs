//! Sources of requests, in whole recordings: a log rotated in the middle of a line, a recorder that
//! is killed, a counter instead of a log, and the parts of a log that never reach the trial.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use record::{Spec, Target, record};
use trial::{Interval, Trial};

use common::Running;

/// Longest wait for anything.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// An idle process to observe.
struct Idle(Child);

impl Idle {
    fn start() -> Idle {
        Idle(Command::new("sleep").arg("300").stdin(Stdio::null()).spawn().unwrap())
    }

    fn spec(&self, home: &Path) -> Spec {
        Spec {
            interval: Duration::from_millis(200),
            profile: None,
            ..Spec::new(Target::Pid(self.0.id()), None, home.join("out.trial"))
        }
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn squid_line(url: &str) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    let (seconds, ms) = (now / 1000, now % 1000);
    format!(
        "{seconds}.{ms:03}      0 203.0.113.77 TCP_MEM_HIT/200 1300 GET {url} - HIER_NONE/- t/p\n"
    )
}

fn append(path: &Path, text: &str) {
    let mut log = OpenOptions::new().append(true).create(true).open(path).unwrap();
    log.write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_line_split_by_a_rotation_is_read_completely_from_the_old_file() {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("access.log");
    fs::write(&log, squid_line("http://h/before")).unwrap();
    let idle = Idle::start();
    let running = Running::start(Spec { access_log: Some(log.clone()), ..idle.spec(home.path()) });
    running.next();
    let mut writer = OpenOptions::new().append(true).open(&log).unwrap();
    for round in 0..3 {
        let line = squid_line("http://h/torn");
        let (head, tail) = line.split_at(line.len() / 2);
        writer.write_all(head.as_bytes()).unwrap();
        // It is seen half written.
        running.next();
        fs::rename(&log, home.path().join(format!("access.log.{round}"))).unwrap();
        append(&log, &squid_line("http://h/new"));
        running.next();
        writer.write_all(tail.as_bytes()).unwrap();
        running.next();
        writer = OpenOptions::new().append(true).open(&log).unwrap();
    }
    let summary = running.stop();
    assert_eq!((summary.log_lines, summary.log_lines_bad), (6, 0), "{summary}");
    let trial = Trial::open(&summary.out).unwrap();
    let ended: u64 = trial.intervals().iter().map(|interval| interval.requests_ended).sum();
    assert_eq!(ended, 6);
    assert!(trial.manifest().notes.iter().any(|note| note.contains("rotated 3 times")));
    // By class too, and the classes add up to all.
    let of_class: u64 = trial.classes().iter().map(|row| row.ended).sum();
    assert_eq!(of_class, 6);
    assert!(trial.classes().iter().all(|row| row.class == "hit GET 1k-10k -"));
    for interval in trial.intervals() {
        let rows = trial.classes().iter().filter(|row| row.interval == interval.index);
        let sum: f64 = rows.map(|row| row.requests).sum();
        assert!((sum - interval.requests).abs() < 1e-9);
    }
}

/// The recorder that is killed, not a test.
#[test]
fn victim() {
    let Ok(order) = std::env::var("PLIMSOLL_TEST_VICTIM") else { return };
    let (pid, home) = order.split_once(' ').unwrap();
    let home = PathBuf::from(home);
    let spec = Spec {
        interval: Duration::from_millis(100),
        profile: None,
        ..Spec::new(
            Target::Pid(pid.parse().unwrap()),
            Some(home.join("access.log")),
            home.join("out.trial"),
        )
    };
    record(&spec, &AtomicBool::new(false), &mut |_| {}).unwrap();
}

#[test]
fn a_killed_recorder_leaves_every_written_interval() {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("access.log");
    fs::write(&log, squid_line("http://h/before")).unwrap();
    let idle = Idle::start();
    let mut recorder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "victim", "--quiet"])
        .env("PLIMSOLL_TEST_VICTIM", format!("{} {}", idle.0.id(), home.path().display()))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let out = home.path().join("out.trial");
    let deadline = Instant::now() + WAIT_MAX;
    let mut seen = Vec::new();
    // Until there are some intervals, each of which was read during the recording.
    while seen.len() < 5 {
        assert!(Instant::now() < deadline, "it records");
        append(&log, &squid_line("http://h/a").repeat(3));
        thread::sleep(Duration::from_millis(20));
        if let Ok(trial) = Trial::open(&out) {
            assert!(!trial.complete());
            seen = trial.intervals().to_vec();
        }
    }
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    let trial = Trial::open(&out).unwrap();
    assert!(!trial.complete() && trial.unfinished().unwrap().contains("not finished"));
    let left = trial.intervals();
    assert!(left.len() >= seen.len());
    // Beside other load, an interval may be sampled late, and take two places.
    let in_order = |two: &[Interval]| two[0].index < two[1].index;
    assert!(left.windows(2).all(in_order), "each is there once, in order");
    for interval in left {
        assert!(interval.length_ns > 0 && interval.server.is_some());
        // Complete: the rows written with the interval exist and add up to it.
        let rows = trial.classes().iter().filter(|row| row.interval == interval.index);
        let (requests, ended) =
            rows.fold((0.0, 0), |sum, row| (sum.0 + row.requests, sum.1 + row.ended));
        assert!((requests - interval.requests).abs() < 1e-9 && ended == interval.requests_ended);
        let latencies = trial.latencies().iter().filter(|row| row.interval == interval.index);
        assert_eq!(latencies.map(|row| row.count).sum::<u64>(), ended);
    }
    assert!(left.iter().map(|interval| interval.requests_ended).sum::<u64>() > 0);
}

/// A page of metrics whose counter a test sets. It responds as long as the test runs.
struct Page {
    port: u16,
    count: Arc<AtomicU64>,
    silent: Arc<AtomicBool>,
}

impl Page {
    fn start() -> Page {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let page = Page {
            port: listener.local_addr().unwrap().port(),
            count: Arc::new(AtomicU64::new(1000)),
            silent: Arc::new(AtomicBool::new(false)),
        };
        let (count, silent) = (page.count.clone(), page.silent.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let _ = stream.read(&mut [0; 1024]);
                if silent.load(Ordering::Relaxed) {
                    continue;
                }
                let body = format!(
                    "# TYPE hits_total counter\nhits_total{{vhost=\"a\"}} {}\n\
                     hits_total{{vhost=\"b\"}} 5\n",
                    count.load(Ordering::Relaxed)
                );
                let _ = write!(stream, "HTTP/1.0 200 OK\r\n\r\n{body}");
            }
        });
        page
    }

    fn url(&self) -> record::MetricUrl {
        let text = format!("http://127.0.0.1:{}/metrics#hits_total{{vhost=\"a\"}}", self.port);
        text.parse().unwrap()
    }
}

#[test]
fn without_a_log_a_counter_provides_the_requests() {
    let home = tempfile::tempdir().unwrap();
    let idle = Idle::start();
    let page = Page::start();
    let spec = Spec { requests_from: Some(page.url()), ..idle.spec(home.path()) };
    let running = Running::start(spec);
    running.next();
    for _ in 0..8 {
        page.count.fetch_add(50, Ordering::Relaxed);
        running.next();
    }
    // The page does not respond for a while: the growth in that time is not lost, but belongs to no
    // particular interval.
    page.silent.store(true, Ordering::Relaxed);
    page.count.fetch_add(100, Ordering::Relaxed);
    running.next();
    running.next();
    page.silent.store(false, Ordering::Relaxed);
    (0..4).for_each(|_| drop(running.next()));
    // The server restarts.
    page.count.store(7, Ordering::Relaxed);
    (0..5).for_each(|_| drop(running.next()));
    let summary = running.stop();
    // A late last scrape puts some of the 7 after the recording.
    assert!((500.0..508.0).contains(&summary.requests), "{summary}");
    let trial = Trial::open(&summary.out).unwrap();
    let valid: f64 = trial.intervals().iter().filter(|i| i.rate_valid).map(|i| i.requests).sum();
    assert!(valid > 100.0 && valid < 450.0, "{valid} of rates that can be used");
    let ended: u64 = trial.intervals().iter().map(|interval| interval.requests_ended).sum();
    assert!((500..=508).contains(&ended), "{ended}");
    let loss = |kind: &str| trial.losses().iter().find(|loss| loss.kind == kind).cloned();
    assert!(loss("counter: scrape failed").unwrap().count >= 1);
    assert_eq!(loss("counter: reset").unwrap().count, 1);
    let requests = trial.manifest().capabilities.iter().find(|c| c.name == "requests").unwrap();
    assert!(requests.supported && requests.reason.contains("hits_total{vhost=\"a\"}"));
    // A page that cannot be scraped is refused before anything is recorded.
    let other = Spec {
        requests_from: Some(page.url().to_string().replace("hits", "misses").parse().unwrap()),
        out: home.path().join("other.trial"),
        ..idle.spec(home.path())
    };
    let error = record(&other, &AtomicBool::new(false), &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("no misses_total"), "{error}");
    assert!(!other.out.exists());
}

#[test]
fn a_redacted_trial_has_no_address_and_no_query() {
    let home = tempfile::tempdir().unwrap();
    for redact in [false, true] {
        let name = if redact { "redacted" } else { "open" };
        let log = home.path().join(format!("{name}.log"));
        fs::write(&log, squid_line("http://h/a?token=hunter2")).unwrap();
        // Its command line contains an address and a query. It ends with its input.
        let child = Command::new("sh")
            .args(["-c", "read line", "http://198.51.100.9/x?password=hunter2"])
            .stdin(Stdio::piped())
            .spawn();
        let idle = Idle(child.unwrap());
        let out = home.path().join(format!("{name}.trial"));
        let spec = Spec {
            access_log: Some(log.clone()),
            redact,
            out: out.clone(),
            ..idle.spec(home.path())
        };
        let running = Running::start(spec);
        running.next();
        append(&log, &squid_line("http://h/b?token=hunter2"));
        append(&log, "203.0.113.77 what is this? /c?token=hunter2\n");
        running.next();
        let summary = running.stop();
        assert_eq!((summary.log_lines, summary.log_lines_bad), (2, 1));
        let bytes = fs::read(&out).unwrap();
        let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        for secret in ["203.0.113.77", "198.51.100.9", "hunter2", "token", "password"] {
            assert_eq!(holds(secret), !redact, "{secret} in the {name} trial");
        }
        assert!(holds("a line that was not understood"), "{name}");
        if redact {
            assert!(holds("0.0.0.0 a a a? /a?a=a0"), "the shape is there");
        }
    }
}
