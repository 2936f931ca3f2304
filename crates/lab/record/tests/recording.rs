//! Whole recordings, of processes that the tests start themselves.
//!
//! No test asserts a time: what the recorder saw is compared with what the observed process knows
//! about itself.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, SystemTime};

use record::{Ended, Error, FormatChoice, LogFormat, Spec, Target, record};
use trial::{Interval, LatencySource, Trial};

use common::Running;

/// A child of the tests that executes orders, one per line.
struct Puppet {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Puppet {
    fn start() -> Puppet {
        Puppet::start_as(&std::env::current_exe().unwrap())
    }

    fn start_as(exe: &Path) -> Puppet {
        let mut child = Command::new(exe)
            .args(["--exact", "puppet", "--nocapture", "--quiet"])
            .env("PLIMSOLL_TEST_PUPPET", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut puppet = Puppet { child, stdin, stdout };
        // Its answer shows that it is up and its start is over.
        puppet.usage_ns();
        puppet
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn ask(&mut self, order: &str) -> u64 {
        writeln!(self.stdin.as_mut().unwrap(), "{order}").unwrap();
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.stdout.read_line(&mut line).unwrap() > 0, "the puppet is gone");
            // The test harness prints around the answers.
            if let Some(answer) = line.trim().strip_prefix("answer ") {
                return answer.parse().unwrap();
            }
        }
    }

    fn usage_ns(&mut self) -> u64 {
        self.ask("usage")
    }

    fn end(&mut self) {
        self.stdin = None;
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The code of the observed processes, not a test.
#[test]
fn puppet() {
    let Ok(role) = std::env::var("PLIMSOLL_TEST_PUPPET") else { return };
    if role == "burn" {
        burn();
        return;
    }
    for order in std::io::stdin().lines() {
        match order.unwrap().as_str() {
            "usage" => {}
            "burn" => burn(),
            "thread" => thread::spawn(burn).join().unwrap(),
            "child" => {
                let exe = std::env::current_exe().unwrap();
                let status = Command::new(exe)
                    .args(["--exact", "puppet", "--quiet"])
                    .env("PLIMSOLL_TEST_PUPPET", "burn")
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .status();
                assert!(status.unwrap().success());
            }
            other => panic!("no such order: {other}"),
        }
        println!("\nanswer {}", own_usage_ns());
    }
}

/// Uses about 150 ms of CPU time.
fn burn() {
    let begun = own_usage_ns();
    let mut number = 1u64;
    while own_usage_ns() - begun < 150_000_000 {
        for _ in 0..10_000 {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005) | 1);
        }
    }
}

/// CPU time of this process and of the children it has waited for.
fn own_usage_ns() -> u64 {
    let of = |who| {
        // SAFETY: a rusage contains only integers, for which zeros are valid; the call fills it.
        let usage: libc::rusage = unsafe {
            let mut usage = std::mem::zeroed();
            assert_eq!(libc::getrusage(who, &mut usage), 0);
            usage
        };
        let ns =
            |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
        ns(usage.ru_utime) + ns(usage.ru_stime)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}

fn spec(target: Target, log: Option<&Path>, home: &Path) -> Spec {
    Spec {
        interval: Duration::from_millis(100),
        ..Spec::new(target, log.map(PathBuf::from), home.join("out.trial"))
    }
}

#[test]
fn cpu_time_of_ended_threads_and_children_is_not_lost() {
    let home = tempfile::tempdir().unwrap();
    let mut puppet = Puppet::start();
    let at_attach = puppet.usage_ns();
    let running = Running::start(spec(Target::Pid(puppet.pid()), None, home.path()));
    running.next();
    let before = puppet.usage_ns();
    puppet.ask("burn");
    puppet.ask("thread");
    puppet.ask("child");
    let after = puppet.ask("child");
    running.next();
    running.next();
    let summary = running.stop();
    let at_end = puppet.usage_ns();

    // The time of each child that was waited for is known to a clock tick, in user and in kernel
    // time.
    let grain = 2 * 2 * 10_000_000 + 1_000_000;
    let recorded = summary.server_ns as u64;
    assert!(recorded + grain >= after - before, "{recorded} of at least {}", after - before);
    assert!(recorded <= at_end - at_attach + grain, "{recorded} of at most {}", at_end - at_attach);

    let trial = Trial::open(&summary.out).unwrap();
    assert!(trial.complete());
    let server = |interval: &Interval| interval.server.unwrap();
    let sum: i64 = trial.intervals().iter().map(|interval| server(interval).total_ns).sum();
    assert_eq!(sum, summary.server_ns);
    for interval in trial.intervals() {
        let times = server(interval);
        assert_eq!(times.user_ns + times.kernel_ns, times.total_ns);
        assert!(times.processes >= 1 && times.threads >= 1 && times.rss_bytes > 0);
        assert!(times.descriptors.is_some_and(|count| count >= 3));
        assert!(interval.threads.iter().any(|thread| thread.pid == puppet.pid()));
        assert!(!interval.rate_valid, "there is no log");
    }
    // It woke for each order.
    let wakes: u64 = trial.intervals().iter().map(|i| server(i).voluntary_switches).sum();
    assert!(wakes >= 4, "{wakes}");
    assert!(summary.notes.iter().any(|note| note.contains("processes started")), "{summary}");
    let manifest = trial.manifest();
    assert_eq!(manifest.server.pid, Some(puppet.pid()));
    assert!(manifest.capabilities.iter().any(|c| c.name == "requests" && !c.supported));
}

#[test]
fn the_modes_of_the_machine_add_up_to_its_time() {
    let home = tempfile::tempdir().unwrap();
    let puppet = Puppet::start();
    let running = Running::start(spec(Target::Pid(puppet.pid()), None, home.path()));
    let intervals: Vec<_> = (0..5).map(|_| running.next()).collect();
    let summary = running.stop();
    assert_eq!(summary.ended, Ended::Stopped);
    let length: i64 = intervals.iter().map(|interval| interval.length_ns).sum();
    let modes: i64 = intervals.iter().map(|interval| interval.machine.total_ns()).sum();
    let cpus = intervals[0].cpus.len() as i64;
    // The grain of nine counters per CPU at both ends, and time that a hypervisor steals unseen.
    let all = length * cpus;
    assert!((modes - all).abs() < all / 5 + 9 * 2 * cpus * 10_000_000, "{modes} of {all}");
    assert!(intervals.windows(2).all(|pair| pair[0].index < pair[1].index));
    assert!(intervals.iter().all(|interval| interval.recorder_ns > 0));
}

#[test]
fn the_end_of_the_process_ends_the_recording_with_a_complete_trial() {
    let home = tempfile::tempdir().unwrap();
    let mut puppet = Puppet::start();
    let running = Running::start(spec(Target::Pid(puppet.pid()), None, home.path()));
    running.next();
    puppet.end();
    let summary = running.join().unwrap();
    assert_eq!(summary.ended, Ended::ServerGone);
    assert!(summary.notes.iter().any(|note| note.contains("the server ended in interval")));
    let trial = Trial::open(&summary.out).unwrap();
    assert!(trial.complete());
    assert_eq!(trial.intervals().len() as u64, summary.intervals);
    assert_eq!(trial.manifest().notes, summary.notes);
}

#[test]
fn connections_that_find_the_accept_queue_full_are_a_note_of_the_trial() {
    let home = tempfile::tempdir().unwrap();
    let puppet = Puppet::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: the descriptor is that of a listening socket, whose backlog may be changed.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let running = Running::start(spec(Target::Pid(puppet.pid()), None, home.path()));
    running.next();
    let address = listener.local_addr().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(50));
    let connected: Vec<_> = (0..4).map(|_| connect()).collect();
    assert!(connected.iter().any(Result::is_err), "the queue was never full");
    let summary = running.stop();
    let note = |note: &&String| note.starts_with(trial::NOTE_ACCEPT_QUEUE);
    let times = summary.notes.iter().find(note).unwrap();
    assert!(times[trial::NOTE_ACCEPT_QUEUE.len()..].parse::<u64>().unwrap() > 0, "{times}");
}

#[test]
fn all_processes_of_a_name_are_found_and_a_restart_is_followed() {
    let home = tempfile::tempdir().unwrap();
    // A name that no other process has, longer than the kernel keeps.
    let name = format!("pup{:08x}long-name", std::process::id());
    let exe = home.path().join(&name);
    fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
    fs::set_permissions(&exe, fs::Permissions::from_mode(0o755)).unwrap();
    let mut first = Puppet::start_as(&exe);
    let mut second = Puppet::start_as(&exe);
    let running = Running::start(spec(Target::Name(name.clone()), None, home.path()));
    assert_eq!(running.next().server.unwrap().processes, 2);
    first.end();
    second.end();
    while running.next().server.unwrap().processes > 0 {}
    let _third = Puppet::start_as(&exe);
    while running.next().server.unwrap().processes == 0 {}
    let summary = running.stop();
    let notes = summary.notes.join("; ");
    assert!(notes.contains("the server ended") && notes.contains("there again"), "{notes}");
    let trial = Trial::open(&summary.out).unwrap();
    let pids = &trial.manifest().server.pids;
    assert_eq!(*pids, [first.pid(), second.pid()]);
    assert!(name.starts_with(&trial.manifest().server.name));
}

#[test]
fn an_impossible_recording_is_refused_and_leaves_no_trial() {
    let home = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let refused = |spec: &Spec| {
        let error = record(spec, &stop, &mut |_| {}).unwrap_err();
        assert!(!error.to_string().contains('\n'), "one line: {error}");
        assert!(!home.path().join("out.trial").exists(), "{error}");
        error
    };
    let own = Target::Pid(std::process::id());
    // An ended process does not count, waited for or not.
    let mut gone = Command::new("true").spawn().unwrap();
    let stat = format!("/proc/{}/stat", gone.id());
    while !fs::read_to_string(&stat).unwrap().contains(") Z ") {
        thread::yield_now();
    }
    let ended = spec(Target::Pid(gone.id()), None, home.path());
    assert!(matches!(refused(&ended), Error::NoProcess { .. }));
    gone.wait().unwrap();
    assert!(matches!(refused(&ended), Error::NoProcess { .. }));
    let unknown = Target::Name("no such name".to_owned());
    assert!(matches!(refused(&spec(unknown, None, home.path())), Error::NoName { .. }));
    // A recorder does not observe itself.
    assert!(matches!(refused(&spec(own, None, home.path())), Error::NoProcess { .. }));
    let puppet = Puppet::start();
    let target = Target::Pid(puppet.pid());
    for bad in [home.path().join("none.log"), home.path().to_owned()] {
        let error = refused(&spec(target.clone(), Some(&bad), home.path()));
        assert!(matches!(error, Error::Log(_)), "{error}");
    }
    let short =
        Spec { interval: Duration::from_millis(1), ..spec(target.clone(), None, home.path()) };
    assert!(matches!(refused(&short), Error::Interval { .. }));

    fs::write(home.path().join("out.trial"), "a letter").unwrap();
    let taken = record(&spec(target, None, home.path()), &stop, &mut |_| {}).unwrap_err();
    assert!(matches!(taken, Error::Trial(trial::Error::Exists { .. })), "{taken}");
    assert_eq!(fs::read(home.path().join("out.trial")).unwrap(), b"a letter");
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()
}

fn squid_line(elapsed_ms: u32) -> String {
    let now = now_ms();
    format!(
        "{}.{:03} {elapsed_ms:6} 127.0.0.1 TCP_MEM_HIT/200 1300 GET http://a/ - HIER_NONE/- t/p\n",
        now / 1000,
        now % 1000
    )
}

fn append(path: &Path, text: &str) {
    let mut log = OpenOptions::new().append(true).create(true).open(path).unwrap();
    log.write_all(text.as_bytes()).unwrap();
}

#[test]
fn every_logged_request_is_in_an_interval_through_a_rotation() {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("access.log");
    fs::write(&log, squid_line(0)).unwrap();
    let puppet = Puppet::start();
    let spec = spec(Target::Pid(puppet.pid()), Some(&log), home.path());
    let running = Running::start(spec);
    // Two intervals are kept back: when one is written, the recording has begun.
    running.next();
    for round in 0..40 {
        append(&log, &squid_line(0));
        // A life that reaches back beyond an interval, but at most to the start of the recording.
        append(&log, &squid_line(90));
        if round == 10 {
            append(&log, "this is no request\n");
        }
        if round == 20 {
            fs::rename(&log, home.path().join("access.log.1")).unwrap();
        }
        thread::sleep(Duration::from_millis(10));
    }
    running.next();
    let summary = running.stop();
    assert_eq!((summary.log_lines, summary.log_lines_bad), (81, 1));
    assert_eq!(summary.log_format.as_deref(), Some("squid"));
    assert!((summary.requests - 80.0).abs() < 1e-6, "{summary}");

    let trial = Trial::open(&summary.out).unwrap();
    let requests: f64 = trial.intervals().iter().map(|interval| interval.requests).sum();
    let ended: u64 = trial.intervals().iter().map(|interval| interval.requests_ended).sum();
    assert!((requests - 80.0).abs() < 1e-6, "{requests}");
    assert_eq!(ended, 80);
    let latencies: u64 = trial.latencies().iter().map(|row| row.count).sum();
    assert_eq!(latencies, 80);
    assert!(trial.latencies().iter().all(|row| row.source == LatencySource::Log));
    let worst = trial.latencies().iter().map(|row| row.histogram_us().unwrap().max()).max();
    assert!(worst.is_some_and(|us| (90_000..91_000).contains(&us)), "{worst:?}");
    let bad = trial.losses().iter().find(|loss| loss.kind == "log: line not understood");
    assert_eq!(bad.map(|loss| loss.count), Some(1));
    assert!(trial.manifest().notes.iter().any(|note| note.contains("rotated 1 times")));
    assert!(trial.intervals().iter().any(|interval| interval.rate_valid));
}

#[test]
fn a_log_that_does_not_parse_is_reported_and_not_fatal() {
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("access.log");
    fs::write(&log, "").unwrap();
    let puppet = Puppet::start();
    let target = Target::Pid(puppet.pid());
    let spec = Spec {
        log_format: FormatChoice::Named(LogFormat::Haproxy),
        // Long enough that the line is written before the end on a busy machine.
        duration: Some(Duration::from_millis(2_500)),
        ..spec(target, Some(&log), home.path())
    };
    let running = Running::start(spec);
    running.next();
    append(&log, &squid_line(0));
    let summary = running.join().unwrap();
    assert_eq!(summary.ended, Ended::Duration);
    assert_eq!((summary.log_lines, summary.log_lines_bad), (1, 1));
    assert_eq!(summary.requests, 0.0);
    let trial = Trial::open(&summary.out).unwrap();
    assert!(trial.losses().iter().any(|loss| loss.note.contains("haproxy")), "{summary}");
}
