//! Load on a real core: clients that pipeline endlessly keep it busy. Requests for an upstream are
//! shed, hits are served, and the overload ends when the clients leave. And a core that holds
//! itself counts what it costs to catch up.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use runtime::Options;
use server::{Config, LogTo, Origin, Server};

/// The longest wait for anything, so that a test that hangs fails and says where.
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests that a flooding client sends at once.
const BATCH: usize = 500;

/// Answers every request with the same few bytes, which may be stored.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let (mut stream, mut got) = (stream.unwrap(), Vec::new());
                let answer = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\n\
                              Content-Length: 2\r\n\r\nok";
                let mut piece = [0; 4096];
                while let Ok(read @ 1..) = stream.read(&mut piece) {
                    got.extend_from_slice(&piece[..read]);
                    while let Some(end) = got.windows(4).position(|four| four == b"\r\n\r\n") {
                        got.drain(..end + 4);
                        stream.write_all(answer.as_bytes()).unwrap();
                    }
                }
            });
        }
    });
    address
}

/// Sends one request; gives the status and the head.
fn ask(stream: &mut TcpStream, target: &str) -> (u16, String) {
    let request = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let (mut got, mut piece) = (Vec::new(), [0]);
    loop {
        let text = String::from_utf8_lossy(&got).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
            if body.len() >= length.unwrap().parse().unwrap() {
                return (head[9..12].parse().unwrap(), head.to_owned());
            }
        }
        stream.read_exact(&mut piece).unwrap();
        got.extend_from_slice(&piece);
    }
}

/// Sends requests for hits and reads the responses, as fast as possible, until it is stopped.
fn flood(at: SocketAddr, goes_on: &AtomicBool, answered: &AtomicU64) {
    let mut stream = TcpStream::connect(at).unwrap();
    stream.set_nonblocking(true).unwrap();
    let batch = "GET /hit HTTP/1.1\r\nHost: h\r\n\r\n".repeat(BATCH).into_bytes();
    let (mut sent, mut piece) = (0, vec![0; 256 * 1024]);
    while goes_on.load(Relaxed) {
        match stream.write(&batch[sent..]) {
            Ok(written) => sent = (sent + written) % batch.len(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        match stream.read(&mut piece) {
            Ok(read) => {
                let heads = piece[..read].windows(12).filter(|at| at == b"HTTP/1.1 200");
                answered.fetch_add(heads.count() as u64, Relaxed);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                thread::yield_now();
            }
        }
    }
}

#[test]
fn an_overloaded_core_sheds_requests_for_an_upstream_serves_hits_and_recovers() {
    let url = Origin::from_url(&format!("http://{}", origin())).unwrap();
    let mut config = Config::reverse([url], &["127.0.0.1:0".parse().unwrap()]);
    // A low objective, so that a few clients are enough.
    config.limits.overload_objective = Duration::from_micros(200);
    let server = Server::start(config, 1, None, LogTo::Off, &Options::default()).unwrap();
    let at = server.bound().listen[0];
    let mut probe = TcpStream::connect(at).unwrap();
    probe.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(ask(&mut probe, "/hit").0, 200);
    assert_eq!(ask(&mut probe, "/before").0, 200);

    let (goes_on, answered) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
    let flooding: Vec<_> = (0..4)
        .map(|_| {
            let (goes_on, answered) = (Arc::clone(&goes_on), Arc::clone(&answered));
            thread::spawn(move || flood(at, &goes_on, &answered))
        })
        .collect();
    let mut number = 0;
    let mut until = |status: u16| {
        let start = Instant::now();
        loop {
            number += 1;
            let (got, head) = ask(&mut probe, &format!("/miss{number}"));
            assert!(got == 200 || got == 503, "{head}");
            assert_eq!(got == 503, head.contains("\r\nRetry-After: "), "{head}");
            if got == status {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "no {status} after {number} requests");
            thread::sleep(Duration::from_millis(5));
        }
    };
    until(503);
    let (before, start) = (answered.load(Relaxed), Instant::now());
    while answered.load(Relaxed) == before {
        assert!(start.elapsed() < PATIENCE, "hits are served all the while");
        thread::sleep(Duration::from_millis(5));
    }
    goes_on.store(false, Relaxed);
    flooding.into_iter().for_each(|client| client.join().unwrap());
    until(200);
    // Until nothing is shed any more.
    let start = Instant::now();
    let mut in_a_row = 0;
    while in_a_row < 64 {
        number += 1;
        let shed = ask(&mut probe, &format!("/after{number}")).0 == 503;
        in_a_row = if shed { 0 } else { in_a_row + 1 };
        assert!(start.elapsed() < PATIENCE, "it does not recover");
        thread::sleep(Duration::from_millis(2));
    }
    server.stopper().stop();
    server.wait();
}

#[test]
fn a_core_that_holds_itself_counts_what_it_costs_to_catch_up() {
    let url = Origin::from_url(&format!("http://{}", origin())).unwrap();
    let mut config = Config::reverse([url], &["127.0.0.1:0".parse().unwrap()]);
    config.limits.hold = Duration::from_millis(50);
    let admin = Some("127.0.0.1:0".parse().unwrap());
    let server = Server::start(config, 1, admin, LogTo::Off, &Options::default()).unwrap();
    let (at, admin) = (server.bound().listen[0], server.bound().admin.unwrap());
    let goes_on = AtomicBool::new(true);
    thread::scope(|scope| {
        let client = || {
            let mut stream = TcpStream::connect(at).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            while goes_on.load(Relaxed) {
                assert_eq!(ask(&mut stream, "/hit").0, 200);
                thread::sleep(Duration::from_millis(1));
            }
        };
        (0..4).for_each(|_| drop(scope.spawn(client)));
        let count = |name: &str| -> f64 {
            let mut stream = TcpStream::connect(admin).unwrap();
            let request = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
            stream.write_all(request.as_bytes()).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            let line = format!("plimsoll_core_catching_up_{name}_total{{core=\"0\"}} ");
            let value = text.lines().find_map(|one| one.strip_prefix(&line));
            value.unwrap().parse().unwrap()
        };
        let start = Instant::now();
        while count("requests") < 4.0 && start.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(100));
        }
        let (requests, cpu) = (count("requests"), count("cpu_seconds"));
        goes_on.store(false, Relaxed);
        // What waited is answered, and the hold itself does not count.
        assert!(requests >= 4.0 && cpu > 0.0, "{requests} {cpu}");
        assert!(cpu / requests < 10e-3, "{requests} {cpu}");
    });
    server.stopper().stop();
    server.wait();
}
