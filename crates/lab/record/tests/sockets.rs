//! Requests counted on the sockets of a real nginx, compared with its own access log: as many of
//! each class, and as many bytes.
//!
//! No test asserts a time. Where BPF programs cannot be loaded, the tests report that they were
//! skipped.
#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "intervals are read from the trial")]
mod common;
#[path = "common/losses.rs"]
mod losses;
#[path = "common/servers.rs"]
mod servers;

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use record::{Error, Spec, Target};
use trial::{LatencySource, Trial};

use common::Running;
use servers::{Server, free_port, program, start};

/// Longest wait for anything.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// More than one send of a server.
const LARGE_BYTES: usize = 3 << 20;

/// Requests and bytes by class.
type Classes = BTreeMap<String, (u64, u64)>;

/// An nginx with files, and an upstream server that is not observed.
struct Nginx {
    home: tempfile::TempDir,
    port: u16,
    tls_port: u16,
    server: Server,
}

impl Nginx {
    /// `None`, with a message, if it is not installed.
    fn start() -> Option<Nginx> {
        Nginx::start_in(tempfile::tempdir().unwrap())
    }

    /// Libraries in this directory replace the system's.
    fn start_in(home: tempfile::TempDir) -> Option<Nginx> {
        let nginx = program("nginx")?;
        let (at, port, tls_port) = (home.path().display(), free_port(), free_port());
        let upstream = upstream();
        certificate(home.path());
        fs::write(home.path().join("small"), [b's'; 700]).unwrap();
        fs::write(home.path().join("large"), vec![b'l'; LARGE_BYTES]).unwrap();
        let config = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;
             events {{ worker_connections 64; }}
             http {{
               log_format own '$status $request_method $bytes_sent $scheme';
               access_log {at}/log own; sendfile on;
               client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f;
               uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
               server {{
                 listen 127.0.0.1:{port}; listen 127.0.0.1:{tls_port} ssl; root {at};
                 ssl_certificate {at}/cert; ssl_certificate_key {at}/key;
                 location /proxied {{ proxy_pass http://127.0.0.1:{upstream}; }}
               }}
             }}"
        );
        let conf = home.path().join("nginx.conf");
        fs::write(&conf, config).unwrap();
        let error_log = format!("{at}/error.log");
        let libraries = format!("LD_LIBRARY_PATH={at}");
        let (nginx, conf) = (nginx.to_str().unwrap(), conf.to_str().unwrap());
        let arguments = [&libraries, nginx, "-e", &error_log, "-c", conf];
        let server = start(home.path(), Path::new("/usr/bin/env"), &arguments);
        let deadline = Instant::now() + WAIT_MAX;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "nginx starts");
            thread::sleep(Duration::from_millis(10));
        }
        Some(Nginx { home, port, tls_port, server })
    }

    /// Records while the client does something, and returns the trial and the classes of the log.
    fn recorded(&self, tls: bool, client: impl FnOnce(&Nginx)) -> Option<(Trial, Classes)> {
        let before = self.lines().len();
        let spec = Spec {
            interval: Duration::from_millis(100),
            profile: None,
            turns_every: None,
            hold: None,
            sockets: true,
            tls,
            ..Spec::new(
                Target::Pid(self.server.child.id()),
                None,
                self.home.path().join("out.trial"),
            )
        };
        let running = Running::begun_or_skipped(spec)?;
        client(self);
        let summary = running.stop();
        assert_eq!(summary.requests_source, Some("on the server's sockets"), "{summary}");
        let trial = Trial::open(&summary.out).unwrap();
        fs::remove_file(&summary.out).unwrap();
        Some((trial, of_log(&self.lines()[before..])))
    }

    fn lines(&self) -> Vec<String> {
        let log = fs::read_to_string(self.home.path().join("log")).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }

    /// Waits until the log has so many lines more.
    fn wait_for_lines(&self, lines: usize) {
        let deadline = Instant::now() + WAIT_MAX;
        while self.lines().len() < lines {
            assert!(Instant::now() < deadline, "{:?}", self.lines());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, had: Vec::new() }
    }
}

struct Client {
    stream: TcpStream,
    had: Vec<u8>,
}

impl Client {
    fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    fn ask(&mut self, method: &str, path: &str) -> u16 {
        self.send(&format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        self.receive(method)
    }

    /// Reads one response and returns its status.
    fn receive(&mut self, method: &str) -> u16 {
        let head = self.until(|had| had.windows(4).position(|end| end == b"\r\n\r\n"), 4);
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        let length = length.filter(|_| method != "HEAD").map_or(0, |text| text.parse().unwrap());
        self.until(|had| (had.len() >= length).then_some(length), 0);
        head[9..12].parse().unwrap()
    }

    /// Reads until a position is found, and takes the bytes up to so many after it.
    fn until(&mut self, find: impl Fn(&[u8]) -> Option<usize>, after: usize) -> Vec<u8> {
        loop {
            if let Some(at) = find(&self.had) {
                return self.had.drain(..at + after).collect();
            }
            let mut buffer = [0; 65536];
            match self.stream.read(&mut buffer) {
                Ok(bytes @ 1..) => self.had.extend_from_slice(&buffer[..bytes]),
                // The kernel does not repeat a read with a time limit after a signal.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => panic!("{other:?} after {:?}", self.had),
            }
        }
    }
}

/// Responds to each request on its own connection; its body begins as a request does.
fn upstream() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // A request may come in several pieces.
            let (mut had, mut buffer) = (Vec::new(), [0; 4096]);
            while !had.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut buffer).unwrap_or(0) {
                    0 => break,
                    bytes => had.extend_from_slice(&buffer[..bytes]),
                }
            }
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 50\r\n\r\n");
            thread::sleep(Duration::from_millis(20));
            let _ = stream.write_all(b"GET / HTTP/1.1\r\n0123456789012345678901234567890123");
        }
    });
    port
}

/// A key, and a certificate for it.
fn certificate(home: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-subj", "/CN=a", "-keyout", "key", "-out", "cert"])
        .current_dir(home)
        .output();
    assert!(made.unwrap().status.success());
}

fn of_log(lines: &[String]) -> Classes {
    let mut classes = Classes::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let [status, method, bytes, scheme] = words[..] else { panic!("{line}") };
        let (status, bytes): (u16, u64) = (status.parse().unwrap(), bytes.parse().unwrap());
        let outcome = if status >= 400 { "error" } else { "-" };
        let method = if method.is_empty() { "-" } else { method };
        let size = match bytes {
            0 => "0",
            100..1_000 => "100-999",
            1_000..10_000 => "1k-10k",
            1_000_000..10_000_000 => "1M-10M",
            _ => panic!("{line}"),
        };
        let tls = if scheme == "https" { "tls" } else { "plain" };
        let sum = classes.entry(format!("{outcome} {method} {size} {tls}")).or_default();
        *sum = (sum.0 + 1, sum.1 + bytes);
    }
    classes
}

fn of_trial(trial: &Trial) -> Classes {
    let mut sums: BTreeMap<String, (u64, f64)> = BTreeMap::new();
    for row in trial.classes() {
        let sum = sums.entry(row.class.clone()).or_default();
        *sum = (sum.0 + row.ended, sum.1 + row.bytes);
    }
    sums.into_iter().map(|(class, (ended, bytes))| (class, (ended, bytes.round() as u64))).collect()
}

/// The trial has the requests of the log, in whole and in its intervals.
fn check(trial: &Trial, log: &Classes) {
    assert_eq!(&of_trial(trial), log, "{:?}", trial.losses());
    let requests: u64 = log.values().map(|(requests, _)| requests).sum();
    let ended: u64 = trial.intervals().iter().map(|interval| interval.requests_ended).sum();
    assert_eq!(ended, requests);
    let spread: f64 = trial.intervals().iter().map(|interval| interval.requests).sum();
    assert!((spread - requests as f64).abs() < 1e-6, "{spread} of {requests}");
    let latencies = trial.latencies();
    assert!(latencies.iter().all(|row| row.source == LatencySource::Sockets));
}

#[test]
fn the_requests_of_an_nginx_are_those_of_its_log() {
    let Some(nginx) = Nginx::start() else { return };
    let recorded = nginx.recorded(false, |nginx| {
        let mut client = nginx.connect();
        for _ in 0..200 {
            assert_eq!(client.ask("GET", "/small"), 200);
        }
        for (method, path, status) in [
            ("HEAD", "/small", 200),
            ("GET", "/missing", 404),
            ("POST", "/small", 405),
            ("GET", "/large", 200),
            ("GET", "/proxied", 200),
            ("GET", "/proxied", 200),
            ("GET", "/small", 200),
        ] {
            assert_eq!(client.ask(method, path), status, "{method} {path}");
        }
        // Three requests in one piece, then one in four.
        client.send(&"GET /small HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3));
        (0..3).for_each(|_| assert_eq!(client.receive("GET"), 200));
        for piece in ["GET /sma", "ll HTTP/1.1\r\nHo", "st: a\r\n", "\r\n"] {
            client.send(piece);
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(client.receive("GET"), 200);
        // An interim response is not counted.
        let head = "POST /proxied HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n";
        client.send(&format!("{head}Expect: 100-continue\r\n\r\n"));
        assert_eq!(client.receive("HEAD"), 100);
        client.send("body");
        assert_eq!(client.receive("POST"), 200);
        // The last response of a connection that stays open is counted, too.
        nginx.wait_for_lines(212);
    });
    let Some((trial, mut log)) = recorded else { return };
    // The log's bytes include the interim response.
    log.get_mut("- POST 100-999 plain").unwrap().1 -= "HTTP/1.1 100 Continue\r\n\r\n".len() as u64;
    check(&trial, &log);
    losses::assert_nothing_lost(&trial);
    let latencies: u64 = trial.latencies().iter().map(|row| row.count).sum();
    assert_eq!(latencies, 212);
    let supported =
        |name: &str| trial.manifest().capabilities.iter().any(|c| c.name == name && c.supported);
    assert!(supported("requests") && supported("log elapsed"));
}

#[test]
fn requests_over_tls_are_counted_where_the_server_reads_and_writes_them() {
    let Some(nginx) = Nginx::start() else { return };
    let Some(curl) = program("curl") else { return };
    let drive = |nginx: &Nginx, lines| {
        let url = |path: &str| format!("https://127.0.0.1:{}/{path}", nginx.tls_port);
        let of_paths = |paths: &[&str]| {
            let mut command = Command::new(&curl);
            command.args(["-sSk", "--http1.1"]).args(paths.iter().map(|path| url(path)));
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
        };
        of_paths(&["small", "small", "missing", "large", "proxied", "small"]);
        of_paths(&["small"]);
        assert_eq!(nginx.connect().ask("GET", "/small"), 200);
        nginx.wait_for_lines(lines);
    };
    let Some((trial, log)) = nginx.recorded(true, |nginx| drive(nginx, 8)) else { return };
    check(&trial, &log);
    losses::assert_nothing_lost(&trial);
    assert_eq!(log["- GET 100-999 tls"].0, 5);
    assert!(trial.manifest().notes.iter().any(|note| note.contains("--tls")));
    // Without being asked for, they are a loss.
    let (trial, _) = nginx.recorded(false, |nginx| drive(nginx, 16)).unwrap();
    assert!(of_trial(&trial).keys().eq(["- GET 100-999 plain"]), "{:?}", of_trial(&trial));
    let lost = trial.losses().iter().find(|loss| loss.kind == "sockets: receive of TLS").unwrap();
    assert!(lost.count >= 7 && lost.note.contains("--tls"), "{lost:?}");
}

/// The name of a library that was replaced on disk is that of another file.
#[test]
fn requests_over_tls_are_counted_although_the_library_was_replaced() {
    let (Some(nginx), Some(curl)) = (program("nginx"), program("curl")) else { return };
    let needs = String::from_utf8(Command::new("ldd").arg(nginx).output().unwrap().stdout).unwrap();
    let library = needs.split_whitespace().find(|word| word.contains("/libssl.so"));
    let Some(library) = library.map(Path::new) else {
        return println!("skipped: this nginx maps no libssl");
    };
    let home = tempfile::tempdir().unwrap();
    let copy = home.path().join(library.file_name().unwrap());
    fs::copy(library, &copy).unwrap();
    let nginx = Nginx::start_in(home).unwrap();
    let other = nginx.home.path().join("new");
    fs::copy(library, &other).unwrap();
    fs::rename(&other, &copy).unwrap();
    let recorded = nginx.recorded(true, |nginx| {
        let url = format!("https://127.0.0.1:{}/small", nginx.tls_port);
        let output = Command::new(&curl).args(["-sSk", "--http1.1", &url, &url]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        nginx.wait_for_lines(2);
    });
    let Some((trial, log)) = recorded else { return };
    check(&trial, &log);
    assert_eq!(log["- GET 100-999 tls"].0, 2);
    losses::assert_nothing_lost(&trial);
}

#[test]
fn tls_without_openssl_is_refused_with_the_reason() {
    let home = tempfile::tempdir().unwrap();
    let server = start(home.path(), Path::new("/usr/bin/sleep"), &["60"]);
    let spec = Spec {
        sockets: true,
        tls: true,
        ..Spec::new(Target::Pid(server.child.id()), None, home.path().join("out.trial"))
    };
    match Running::begun(spec) {
        Err(Error::Sockets { why }) => println!("skipped: {why}"),
        Err(error @ Error::Tls { .. }) => {
            assert!(error.to_string().contains("leave out --tls"), "{error}");
        }
        found => panic!("{:?}", found.err()),
    }
}

#[test]
fn what_is_not_http_is_not_counted_or_is_an_error() {
    let Some(nginx) = Nginx::start() else { return };
    let recorded = nginx.recorded(false, |nginx| {
        for text in ["\0\u{1}\u{2}\u{3}\u{4}\u{5}\r\n", "get / HTTP/1.1\r\n\r\n", "\0"] {
            let mut client = nginx.connect();
            client.send(text);
            if text.len() > 1 {
                assert_eq!(client.receive("GET"), 400, "{text}");
            }
        }
        // The client closes in the middle of the head.
        nginx.connect().send("GET / HTTP/1.1\r\nHos");
        nginx.wait_for_lines(3);
        let mut client = nginx.connect();
        client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let _ = client.stream.read(&mut [0; 100]);
    });
    let Some((trial, _)) = recorded else { return };
    // One of the two kinds of bad first bytes, and the request without a response.
    let classes = of_trial(&trial);
    assert_eq!(classes["error GET 0 plain"], (1, 0), "{classes:?}");
    assert!(classes["error - 100-999 plain"].0 >= 2, "{classes:?}");
    let preface = trial.losses().iter().find(|loss| loss.kind == "sockets: HTTP/2 connection");
    assert_eq!(preface.unwrap().count, 1);
}
