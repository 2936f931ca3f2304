//! The contract in short over real sockets on the loopback, on every backend: each case is a test
//! for each backend. If the system forbids a backend, its tests print that they are left out.
//!
//! Tests that need exact times, faults or thousands of runs are in the suite on the twin.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use readiness::{Choice, Kind, Poller};
use runtime::Options;
use server::{Config, LogFormat, LogTo, LogWriter, Origin as OriginUrl, Server, StartError};

use common::{Response, content, read_log_line, read_metrics, read_response};

#[path = "real/allocations.rs"]
mod allocations;
mod common;
#[path = "real/panics.rs"]
mod panics;

/// The longest wait for anything, so that a test that hangs fails and says where.
const PATIENCE: Duration = Duration::from_secs(60);

/// An origin with a thread for each connection: content by target, `?delay=MS` before the answer,
/// none with `?break=1`.
struct Origin {
    address: SocketAddr,
    fetches: Arc<Mutex<HashMap<String, usize>>>,
}

impl Origin {
    fn start() -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let fetches: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        let counting = Arc::clone(&fetches);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let counting = Arc::clone(&counting);
                thread::spawn(move || serve(stream.unwrap(), &counting));
            }
        });
        Origin { address, fetches }
    }

    fn count(&self, target: &str) -> usize {
        self.fetches.lock().unwrap().get(target).copied().unwrap_or(0)
    }
}

fn serve(mut stream: TcpStream, fetches: &Mutex<HashMap<String, usize>>) {
    let mut buf = Vec::new();
    loop {
        let Some(end) = fill(&mut stream, &mut buf, |b| find(b, b"\r\n\r\n")) else { return };
        let head = String::from_utf8(buf.drain(..end + 4).collect()).unwrap();
        let target = head.split(' ').nth(1).unwrap().to_owned();
        let length = head.lines().find_map(|l| l.strip_prefix("Content-Length: "));
        let length = length.map_or(0, |l| l.parse().unwrap());
        if fill(&mut stream, &mut buf, |b| (b.len() >= length).then_some(length)).is_none() {
            return;
        }
        let sent: Vec<u8> = buf.drain(..length).collect();
        *fetches.lock().unwrap().entry(target.clone()).or_default() += 1;
        if asks(&target, "break").is_some() {
            return;
        }
        if let Some(ms) = asks(&target, "delay") {
            thread::sleep(Duration::from_millis(ms.parse().unwrap()));
        }
        let confirms = head.contains("If-None-Match: \"e\"\r\n");
        let body = if length > 0 { sent } else { expected(&target) };
        let cc = asks(&target, "cc").unwrap_or("no-store");
        let status = if confirms { "304 Not Modified" } else { "200 OK" };
        let mut out = format!("HTTP/1.1 {status}\r\nCache-Control: {cc}\r\nETag: \"e\"\r\n");
        if !confirms {
            out += &format!("Content-Length: {}\r\n", body.len());
        }
        out += "\r\n";
        let mut out = out.into_bytes();
        if !confirms && !head.starts_with("HEAD ") {
            out.extend_from_slice(&body);
        }
        if stream.write_all(&out).is_err() {
            return;
        }
    }
}

fn asks<'t>(target: &'t str, name: &str) -> Option<&'t str> {
    target.split(['?', '&']).find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

fn expected(target: &str) -> Vec<u8> {
    content(target, asks(target, "size").map_or(0, |size| size.parse().unwrap()))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// Reads until `done` finds something; `None` if the connection ends before.
fn fill<T>(
    stream: &mut TcpStream,
    buf: &mut Vec<u8>,
    done: impl Fn(&[u8]) -> Option<T>,
) -> Option<T> {
    loop {
        if let Some(found) = done(buf) {
            return Some(found);
        }
        let mut piece = [0; 16 * 1024];
        match stream.read(&mut piece) {
            Ok(read) if read > 0 => buf.extend_from_slice(&piece[..read]),
            // The test's own thread has just closed a ring, and the kernel may interrupt it once.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => return None,
        }
    }
}

/// A proxy in front of an origin, with its log.
struct Proxy {
    origin: Origin,
    server: Server,
    log: PathBuf,
}

impl Proxy {
    fn start(kind: Kind, workers: usize, format: LogFormat) -> Proxy {
        let origin = Origin::start();
        let url = OriginUrl::from_url(&format!("http://{}", origin.address)).unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let mut config = Config::reverse([url], &[any]);
        config.log_format = format;
        static LOGS: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = LOGS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("plimsoll-real-{}-{number}.log", std::process::id());
        let log = std::env::temp_dir().join(name);
        let to = LogTo::Writer(LogWriter::open(&log).unwrap());
        let options = Options::default().with_backend(Choice::Named(kind));
        let server = Server::start(config, workers, Some(any), to, &options).unwrap();
        assert_eq!(server.bound().backend, kind);
        Proxy { origin, server, log }
    }

    fn client(&self) -> Client {
        Client::to(self.server.bound().listen[0])
    }

    /// A metric by its name on the wire.
    fn metric(&self, name: &str) -> u64 {
        let mut scraper = Client::to(self.server.bound().admin.unwrap());
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let got = scraper.ask("GET", request);
        assert!(got.field("content-type").unwrap().starts_with("application/openmetrics-text"));
        let samples = read_metrics(std::str::from_utf8(&got.body).unwrap());
        samples.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}")).1
    }

    /// Waits until a metric has this value: the counted events happen on another thread.
    fn wait_for(&self, name: &str, value: u64) {
        for _ in 0..600 {
            if self.metric(name) == value {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("{name} is {}, not {value}", self.metric(name));
    }

    /// Stops and gives the lines of the log.
    fn stop(self) -> Vec<(u16, String)> {
        self.server.stopper().stop();
        assert_eq!(self.server.wait(), 0, "log lines were lost");
        let log = std::fs::read_to_string(&self.log).unwrap();
        std::fs::remove_file(&self.log).unwrap();
        assert!(log.is_empty() || log.ends_with('\n'));
        log.lines().map(read_log_line).collect()
    }
}

struct Client {
    stream: TcpStream,
    buf: Vec<u8>,
}

impl Client {
    fn to(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream, buf: Vec::new() }
    }

    fn get(&mut self, target: &str, fields: &str) -> Response {
        self.ask("GET", &format!("GET {target} HTTP/1.1\r\nHost: site\r\n{fields}\r\n"))
    }

    fn ask(&mut self, method: &str, request: &str) -> Response {
        self.stream.write_all(request.as_bytes()).unwrap();
        self.response(method)
    }

    fn response(&mut self, method: &str) -> Response {
        let whole = |buf: &[u8]| read_response(buf, method == "HEAD", false).ok();
        let (response, used) = fill(&mut self.stream, &mut self.buf, whole).expect("a response");
        self.buf.drain(..used);
        response
    }

    fn ends(&mut self) -> bool {
        loop {
            match self.stream.read(&mut [0]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return self.buf.is_empty() && matches!(read, Ok(0)),
            }
        }
    }
}

fn answers_like_the_origin(kind: Kind) {
    let proxy = Proxy::start(kind, 1, LogFormat::Squid);
    let mut client = proxy.client();
    for size in [0, 10, 4096, 4097, 300_000] {
        let target = format!("/a?size={size}&cc=max-age=600");
        for _ in 0..3 {
            let got = client.get(&target, "");
            assert_eq!((got.status, got.body), (200, expected(&target)));
        }
        assert_eq!(client.get(&target, "If-None-Match: \"e\"\r\n").status, 304);
        let head = client.ask("HEAD", &format!("HEAD {target} HTTP/1.1\r\nHost: site\r\n\r\n"));
        assert_eq!(head.field("content-length"), Some(&size.to_string()[..]));
        assert_eq!(proxy.origin.count(&target), 1);
        let passed = format!("/p?size={size}");
        assert_eq!(client.get(&passed, "").body, expected(&passed));
    }
    assert!(proxy.metric("plimsoll_spliced_bytes_total") > 200_000);
    let post = "POST /e HTTP/1.1\r\nHost: site\r\nContent-Length: 5\r\n\r\nhello";
    assert_eq!(client.ask("POST", post).body, b"hello");
    let stale = "/s?size=10&cc=no-cache";
    for _ in 0..3 {
        assert_eq!(client.get(stale, "").body, expected(stale));
    }
    let hit = "/a?size=10&cc=max-age=600";
    let pipelined = format!("GET {hit} HTTP/1.1\r\nHost: site\r\n\r\n").repeat(50);
    client.stream.write_all(pipelined.as_bytes()).unwrap();
    for _ in 0..50 {
        assert_eq!(client.response("GET").body, expected(hit));
    }
    let refused = client.ask("GET", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    assert_eq!(refused.status, 400);
    assert!(client.ends());
    assert_eq!(proxy.metric("plimsoll_revalidated_total"), 2);
    assert_eq!(proxy.stop().len(), 5 * 6 + 1 + 3 + 50 + 1);
}

fn two_workers_make_one_fetch_of_a_key(kind: Kind) {
    let proxy = Proxy::start(kind, 2, LogFormat::Squid);
    for target in
        ["/k?size=100&cc=max-age=600&delay=300", "/k?size=200000&cc=max-age=600&delay=300"]
    {
        let asking: Vec<_> = (0..40)
            .map(|_| {
                let mut client = proxy.client();
                thread::spawn(move || assert_eq!(client.get(target, "").body, expected(target)))
            })
            .collect();
        for one in asking {
            one.join().unwrap();
        }
        assert_eq!(proxy.origin.count(target), 1);
    }
    assert_eq!(proxy.metric("plimsoll_misses_total"), 2);
    assert_eq!(proxy.stop().len(), 80);
}

/// Fetches that begin and end all the time, with readers on both cores: a lost wake would leave a
/// client waiting.
fn two_workers_wake_every_waiting_client(kind: Kind) {
    let proxy = Proxy::start(kind, 2, LogFormat::Squid);
    let asking: Vec<_> = (0..8)
        .map(|_| {
            let mut client = proxy.client();
            thread::spawn(move || {
                for round in 0..120 {
                    let size = [0, 300, 70_000][round % 3];
                    let target = format!("/w{}?size={size}&cc=max-age=0", round % 5);
                    let got = client.get(&target, "");
                    assert_eq!((got.status, got.body), (200, expected(&target)));
                }
            })
        })
        .collect();
    for one in asking {
        one.join().unwrap();
    }
    assert!(proxy.metric("plimsoll_revalidated_total") > 0);
    assert_eq!(proxy.metric("plimsoll_upstream_errors_total"), 0);
    assert_eq!(proxy.metric("plimsoll_arriving_bytes"), 0);
    assert_eq!(proxy.stop().len(), 8 * 120);
}

fn a_stop_finishes_requests_in_flight_and_the_log(kind: Kind) {
    let proxy = Proxy::start(kind, 2, LogFormat::Combined);
    let mut idle: Vec<_> = (0..10).map(|_| proxy.client()).collect();
    for client in &mut idle {
        client.get("/i?size=5&cc=max-age=600", "");
    }
    let asked: Vec<_> = (0..8)
        .map(|at| {
            let mut client = proxy.client();
            let target = format!("/slow{}?size=100&delay=700&cc=max-age=600", at / 2);
            let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
            client.stream.write_all(request.as_bytes()).unwrap();
            (client, target)
        })
        .collect();
    proxy.wait_for("plimsoll_fetches_in_flight", 4);
    proxy.server.stopper().stop();
    for (mut client, target) in asked {
        let got = client.response("GET");
        assert_eq!((got.status, &got.body), (200, &expected(&target)));
        assert_eq!(got.field("connection"), Some("close"));
        assert!(client.ends());
    }
    assert!(idle.iter_mut().all(Client::ends));
    let lines = proxy.stop();
    assert_eq!(lines.len(), 18);
    assert!(lines.iter().all(|(status, _)| *status == 200));
}

fn the_counts_agree(kind: Kind) {
    let proxy = Proxy::start(kind, 2, LogFormat::Squid);
    let mut open: Vec<_> = (0..6).map(|_| proxy.client()).collect();
    for client in &mut open {
        for target in ["/c?size=9&cc=max-age=600", "/c?size=9000&cc=max-age=600", "/c?size=9"] {
            client.get(target, "");
            client.get(target, "");
        }
    }
    let (hits, misses) =
        (proxy.metric("plimsoll_hits_total"), proxy.metric("plimsoll_misses_total"));
    assert_eq!((hits, misses, proxy.metric("plimsoll_passed_total")), (22, 2, 12));
    // A request is counted after its response was sent.
    proxy.wait_for("plimsoll_requests_total", 36);
    proxy.wait_for("plimsoll_log_lines_total", 36);
    assert_eq!(proxy.metric("plimsoll_connections_open"), 6);
    assert_eq!(proxy.metric("plimsoll_connections_accepted_total"), 6);
    assert_eq!(proxy.metric("plimsoll_store_objects"), 3);
    drop(open);
    proxy.wait_for("plimsoll_connections_open", 0);
    assert_eq!(proxy.stop().len(), 36);
}

fn a_port_in_use_is_reported_in_one_line(kind: Kind) {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let options = Options::default().with_backend(Choice::Named(kind));
    for (workers, listen, admin) in
        [(1, &[address][..], None), (2, &[address], None), (2, &[any], Some(address))]
    {
        let started = Server::start(Config::forward(listen), workers, admin, LogTo::Off, &options);
        let error = started.unwrap_err();
        assert!(matches!(error, StartError::Bind(at, _) if at == address), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(&address.to_string()) && text.contains("in use"), "{text}");
        assert!(!text.contains('\n'));
    }
    drop(taken);
    let server = Server::start(Config::forward(&[address]), 1, None, LogTo::Off, &options);
    let server = server.expect("nothing of the attempts is left");
    server.stopper().stop();
    server.wait();
}

fn silent_connections_do_not_disturb_busy_ones(kind: Kind) {
    let proxy = Proxy::start(kind, 1, LogFormat::Squid);
    let target = "/h?size=1000&cc=max-age=600";
    proxy.client().get(target, "");
    let mut cold: Vec<_> = (0..2000).map(|_| proxy.client()).collect();
    let mut hot: Vec<_> = (0..64).map(|_| proxy.client()).collect();
    for _ in 0..10 {
        let request = format!("GET {target} HTTP/1.1\r\nHost: site\r\n\r\n");
        for client in &mut hot {
            client.stream.write_all(request.as_bytes()).unwrap();
        }
        for client in &mut hot {
            assert_eq!(client.response("GET").body, expected(target));
        }
    }
    proxy.wait_for("plimsoll_connections_open", 2064);
    // The silent connections are served when they send a request, and closed at the end.
    for client in cold.iter_mut().step_by(100) {
        assert_eq!(client.get(target, "").body, expected(target));
    }
    let stopper = proxy.server.stopper();
    stopper.stop();
    assert!(cold.iter_mut().chain(&mut hot).all(Client::ends));
    assert_eq!(proxy.stop().len(), 1 + 640 + 20);
}

/// A pipe takes nothing at the mark of urgent data (RFC 9293, 3.8.5), and the socket stays
/// readable: the core must not wait there.
#[test]
fn urgent_data_does_not_stop_a_long_body() {
    let proxy = Proxy::start(Kind::Epoll, 1, LogFormat::Squid);
    let mut client = proxy.client();
    let body = content("/urgent", 400_000);
    let head =
        format!("POST /urgent HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    client.stream.write_all(head.as_bytes()).unwrap();
    let (before, after) = body.split_at(200_000);
    client.stream.write_all(before).unwrap();
    // It is passed on before the rest comes.
    thread::sleep(Duration::from_millis(50));
    let sent = rustix::net::send(&client.stream, b"!", rustix::net::SendFlags::OOB);
    assert_eq!(sent, Ok(1));
    client.stream.write_all(after).unwrap();
    let got = client.response("POST");
    assert!((got.status, &got.body) == (200, &body));
    assert!(proxy.metric("plimsoll_spliced_bytes_total") > 100_000);
    proxy.stop();
}

macro_rules! on_every_backend {
    ($($backend:ident = $kind:expr;)*, $cases:tt) => {
        $(mod $backend { on_every_backend!(@ $kind, $cases); })*
    };
    (@ $kind:expr, [$($case:ident)*]) => {
        $(#[test]
        fn $case() {
            if let Err(error) = super::Poller::open(super::Choice::Named($kind)) {
                eprintln!("left out: {error}");
                return;
            }
            super::$case($kind);
        })*
    };
}

on_every_backend! {
    epoll = readiness::Kind::Epoll;
    poll = readiness::Kind::Poll;
    select = readiness::Kind::Select;
    scalable_select = readiness::Kind::ScalableSelect;
    io_uring = readiness::Kind::IoUring;
    , [
        answers_like_the_origin
        two_workers_make_one_fetch_of_a_key
        two_workers_wake_every_waiting_client
        a_stop_finishes_requests_in_flight_and_the_log
        the_counts_agree
        a_port_in_use_is_reported_in_one_line
        silent_connections_do_not_disturb_busy_ones
    ]
}
