//! What a silent connection costs in memory, by the growth of the whole process. The only test in
//! its file, because the memory belongs to the process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::fs;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use readiness::{Choice, Kind};
use runtime::Options;
use server::{Config, LogTo, Origin, Server};

/// The longest wait for anything, so that a test that hangs fails and says where.
const PATIENCE: Duration = Duration::from_secs(60);
/// The process has both ends of each connection.
const SILENT: usize = 6_000;
/// Bytes for a silent connection: its task, three slots, its timer. The rest is what else happens
/// in the process meanwhile.
const SILENT_BYTES_MAX: usize = 350;
/// Connections before the measurement, so that tables and code are in memory.
const WARM_UP: usize = 512;

/// Memory of this process, bytes.
fn memory() -> usize {
    let text = fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() * 1024
}

/// Descriptors that this process may have.
fn descriptors_max() -> usize {
    let text = fs::read_to_string("/proc/self/limits").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap_or(usize::MAX)
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_silent_connection_takes_few_bytes() {
    let needed = 2 * (WARM_UP + SILENT) + 200;
    if descriptors_max() < needed {
        eprintln!("skipped: it needs {needed} descriptors, see ulimit -n");
        return;
    }
    let url = Origin::from_url("http://127.0.0.1:9").unwrap();
    let config = Config::reverse([url], &["127.0.0.1:0".parse().unwrap()]);
    let options = Options::default().with_backend(Choice::Named(Kind::Epoll));
    let server = Server::start(config, 1, None, LogTo::Off, &options).unwrap();
    let at = server.bound().listen[0];
    let connect = |count: usize| -> Vec<TcpStream> {
        let mut opened = Vec::with_capacity(count);
        let before = descriptors();
        opened.extend((0..count).map(|_| TcpStream::connect(at).unwrap()));
        let start = Instant::now();
        while descriptors() < before + 2 * count {
            assert!(start.elapsed() < PATIENCE, "not all are accepted");
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(Duration::from_millis(200)); // each task has waited
        opened
    };
    let few = connect(WARM_UP);
    let before = memory();
    let many = connect(SILENT);
    let each = memory().saturating_sub(before) / SILENT;
    eprintln!("a silent connection: {each} bytes");
    assert!(each <= SILENT_BYTES_MAX, "{each} bytes for a silent connection");
    drop((few, many));
    server.stopper().stop();
    server.wait();
}
