//! Holds of a real server: what they leave in a trial, and that no hold outlives the recorder.
//!
//! No test asserts a time. Where BPF programs cannot be loaded, or nginx is missing, the tests say
//! so and end.
#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "only whole recordings are needed here")]
mod common;
#[path = "common/servers.rs"]
mod servers;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use record::{Error, HoldSpec, Spec, Target, how_to_hold, record};
use trial::Trial;
use trial::stretches::StretchRow;

use common::Running;
use servers::{Server, free_port, program, start};

/// Longest wait for anything.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Holds long enough to be killed in, and often.
const OFTEN: HoldSpec =
    HoldSpec { length: Duration::from_millis(50), every: Duration::from_millis(150), budget: 0.5 };

/// Only one recorder of a machine holds.
static ONE: Mutex<()> = Mutex::new(());

fn one_at_a_time() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// nginx with a worker, bound to a CPU or not.
fn nginx(at: &Path, bound: bool) -> Option<(Server, u16)> {
    let (nginx, port, dir) = (program("nginx")?, free_port(), at.display());
    let config = format!(
        "daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/error.log;
         events {{ worker_connections 64; }}
         http {{
           access_log off; keepalive_requests 1000000;
           client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
           uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
           server {{ listen 127.0.0.1:{port}; return 204; }}
         }}"
    );
    let conf = at.join("nginx.conf");
    fs::write(&conf, config).unwrap();
    let (error_log, conf) = (format!("{dir}/error.log"), conf.display().to_string());
    let arguments = ["-e", &error_log, "-c", &conf];
    let server = match program("taskset").filter(|_| bound) {
        Some(taskset) => {
            let nginx = nginx.display().to_string();
            start(at, &taskset, &[&["-c", "0", nginx.as_str()][..], &arguments].concat())
        }
        None => start(at, &nginx, &arguments),
    };
    let deadline = Instant::now() + WAIT_MAX;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < deadline, "nginx starts");
        thread::sleep(Duration::from_millis(10));
    }
    Some((server, port))
}

/// A request on a connection, and its answer.
fn ask(connection: &mut TcpStream) {
    connection.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    assert!(connection.read(&mut [0; 4096]).unwrap() > 0, "the server answers");
}

/// Ends the clients, also when a test fails: they would ask for ever.
struct Done<'d>(&'d AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs something while clients ask now and then.
fn with_clients<T>(port: u16, what: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
                while !done.load(Ordering::Relaxed) {
                    ask(&mut connection);
                    thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let _done = Done(&done);
        what()
    })
}

fn spec(pid: u32, home: &Path, hold: HoldSpec) -> Spec {
    Spec {
        interval: Duration::from_millis(100),
        profile: None,
        sockets: true,
        hold: Some(hold),
        ..Spec::new(Target::Pid(pid), None, home.join("held.trial"))
    }
}

#[test]
fn a_held_server_catches_up_and_the_trial_says_how() {
    let _one = one_at_a_time();
    for bound in [true, false] {
        let home = tempfile::tempdir().unwrap();
        let Some((server, port)) = nginx(home.path(), bound) else { return };
        let hold = HoldSpec { length: Duration::from_millis(5), ..OFTEN };
        let spec = spec(server.child.id(), home.path(), hold);
        let said = how_to_hold(&spec.target, &hold).unwrap();
        assert!(said.starts_with("the server is held for 5ms about every 150ms, by "), "{said}");
        let summary = with_clients(port, || {
            let running = Running::begun_or_skipped(spec)?;
            (0..25).for_each(|_| drop(running.next()));
            Some(running.stop())
        });
        let Some(summary) = summary else { return };
        let trial = Trial::open(&summary.out).unwrap();
        let capability = trial.manifest().capabilities.iter().find(|one| one.name == "holds");
        assert_eq!(capability.map(|one| (one.supported, &one.reason)), Some((true, &said)));
        let made = summary.holds.as_ref().unwrap();
        assert!(made.count > 0 && made.held_ns > 0, "{made:?}");
        assert!(said.contains(&made.way), "{said} {made:?}");
        // On a busy machine it may catch up slowly.
        let slow = |why: &String| why.starts_with("catching up");
        assert!(made.ended.as_ref().is_none_or(slow), "{made:?}");
        let held = |row: &&StretchRow| row.held && row.clients > 0;
        assert!(trial.stretches().iter().any(|row| held(&row)), "{made:?}");
        assert!(trial.stretches().iter().any(|row| !row.held), "{made:?}");
        let note = trial.manifest().notes.iter().find(|note| note.starts_with("held "));
        assert!(note.is_some_and(|note| note.contains(&made.way)), "{note:?}");
    }
}

/// The code of a recorder that will be killed, not a test.
#[test]
fn recorder() {
    let Some(pid) = std::env::var_os("PLIMSOLL_TEST_HELD") else { return };
    let home = tempfile::tempdir().unwrap();
    let spec = spec(pid.to_str().unwrap().parse().unwrap(), home.path(), OFTEN);
    let _ = record(&spec, &AtomicBool::new(false), &mut |_| ());
}

/// The state of the processes: that of nginx and its worker.
fn is_stopped(pids: &[u32]) -> bool {
    let stopped = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    pids.iter().any(stopped)
}

/// The processes of nginx: the first one, and its worker.
fn wait_for_pids(target: &Target) -> Vec<u32> {
    let deadline = Instant::now() + WAIT_MAX;
    loop {
        let pids = record::processes(target).unwrap();
        if pids.len() > 1 {
            return pids;
        }
        assert!(Instant::now() < deadline, "nginx has a worker");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_recorder_that_is_killed_in_a_hold_leaves_the_server_running() {
    let _one = one_at_a_time();
    let home = tempfile::tempdir().unwrap();
    let Some((server, port)) = nginx(home.path(), false) else { return };
    let target = Target::Pid(server.child.id());
    if !how_to_hold(&target, &OFTEN).unwrap().contains("SIGSTOP") {
        eprintln!("skipped: the server is held in another way here");
        return;
    }
    // The port accepts connections before there is a worker.
    let pids = wait_for_pids(&target);
    with_clients(port, || {
        for _ in 0..3 {
            let mut recorder = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "recorder", "--quiet"])
                .env("PLIMSOLL_TEST_HELD", server.child.id().to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let deadline = Instant::now() + WAIT_MAX;
            let mut seen = false;
            while !seen && recorder.try_wait().unwrap().is_none() {
                assert!(Instant::now() < deadline, "the server is held");
                seen = is_stopped(&pids);
            }
            recorder.kill().unwrap();
            recorder.wait().unwrap();
            if !seen {
                eprintln!("skipped: no recording is possible here");
                return;
            }
            while is_stopped(&pids) {
                assert!(Instant::now() < deadline, "the server runs again");
            }
            ask(&mut TcpStream::connect(("127.0.0.1", port)).unwrap());
        }
    });
}

#[test]
fn what_cannot_be_held_is_refused_with_the_reason() {
    let mut idle = Command::new("sleep").arg("300").spawn().unwrap();
    let target = Target::Pid(idle.id());
    let refused = |spec: HoldSpec| how_to_hold(&target, &spec).unwrap_err().to_string();
    let length = Duration::from_millis(200);
    let said = refused(HoldSpec { length, ..OFTEN });
    assert!(said.contains("from 1ms to 50ms"), "{said}");
    let said = refused(HoldSpec { budget: 0.01, ..OFTEN });
    assert!(said.contains("33.33 % of the time, the budget is 1.00 %"), "{said}");
    assert!(said.contains("leave out --hold"), "{said}");
    let missing = how_to_hold(&Target::Pid(u32::MAX - 1), &OFTEN);
    assert!(matches!(missing, Err(Error::NoProcess { .. })), "{missing:?}");
    idle.kill().unwrap();
    idle.wait().unwrap();
}
