//! Clients of HTTP/2 that take too little, send too much, or are gone, and what they hold until
//! then.

use std::fs;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use http2::{ErrorCode, Limits};

use crate::http2::attacks::{self, GOAWAY, HEADERS, RST_STREAM, SETTINGS, base, block, frame};
use crate::http2::client::{Client, get as path};
use crate::http2::recorder::Recorder;
use crate::support::{Home, OurServer, SOON, Successor, get, read_some, wait_for};

/// A proxy with one worker, an admin address and a log of JSON, and these limits.
pub(super) fn proxy(home: &Home, origin: &Recorder, limits: &str) -> OurServer {
    let (url, log) = (origin.url(), home.at("access.log"));
    OurServer::configured(&home.write(
        "holding.toml",
        format!(
            "[server]\nworkers = 1\nadmin = \"127.0.0.1:0\"\n\
             [[listen]]\naddress = \"127.0.0.1:0\"\n\
             [log]\npath = \"{log}\"\nformat = \"json\"\n[limits]\n{limits}\n\
             [[upstream]]\nname = \"site\"\n[[upstream.server]]\nurl = \"{url}\"\n"
        ),
    ))
}

/// A metric, with its labels.
pub(crate) fn metric(admin: SocketAddr, name: &str) -> u64 {
    let text = get(admin, "/metrics");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let value = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    value.trim().parse().unwrap()
}

/// Waits until a metric is like this.
#[track_caller]
pub(crate) fn wait_for_metric(admin: SocketAddr, name: &str, is_so: impl Fn(u64) -> bool) {
    wait_for(name, SOON, || is_so(metric(admin, name)).then_some(()));
}

pub(crate) const TIMEOUTS: &str = "plimsoll_timeouts_total";
pub(crate) const OPEN: &str = "plimsoll_connections_open";
pub(crate) const HELD: &str = "plimsoll_client_held_bytes";
const LIMIT: &str = "plimsoll_refusals_total{rule=\"http2-limit\"}";
const MALFORMED: &str = "plimsoll_refusals_total{rule=\"http2-malformed\"}";

/// Windows that stop nothing.
fn wide() -> Limits {
    let mut limits = Limits::DEFAULT;
    limits.stream_window_bytes = 1 << 30;
    limits.connection_window_bytes = 1 << 30;
    limits
}

/// Its output waited for as long as the connection was open, and was accounted for nowhere.
#[test]
fn a_client_that_reads_nothing_is_cut() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin, "send_timeout = \"2s\"");
    let mut client = Client::with(proxy.address(), &wide());
    // Much more than sockets hold.
    let streams: Vec<_> = (0..20).map(|_| client.get("/cached/5000000")).collect();
    wait_for_metric(proxy.admin(), HELD, |held| held > 0);
    wait_for_metric(proxy.admin(), TIMEOUTS, |timeouts| timeouts > 0);
    client.closed();
    let taken: usize = streams.iter().map(|stream| client.got(*stream).content.len()).sum();
    assert!(taken < 20 * 5_000_000, "{taken} bytes");
    wait_for_metric(proxy.admin(), OPEN, |open| open == 0);
    assert_eq!(metric(proxy.admin(), HELD), 0);
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn a_closed_window_of_a_stream_ends_the_stream() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin, "send_timeout = \"200ms\"");
    let mut limits = wide();
    limits.stream_window_bytes = 1;
    let mut client = Client::with(proxy.address(), &limits);
    client.takes = false;
    let (one, other) = (client.get("/cached/1000"), client.get("/cached/20000"));
    for stream in [one, other] {
        assert_eq!(client.ended(stream).reset, Some(ErrorCode::INTERNAL_ERROR));
    }
    assert!(metric(proxy.admin(), TIMEOUTS) >= 2);
    assert!(!client.is_closing);
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn a_closed_window_of_the_connection_ends_the_connection() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin, "send_timeout = \"300ms\"");
    let mut limits = wide();
    limits.connection_window_bytes = 65_535;
    let mut client = Client::with(proxy.address(), &limits);
    client.takes = false;
    client.get("/cached/1000000");
    // The answers to its pings are no progress.
    let since = Instant::now();
    while !client.is_closed {
        assert!(since.elapsed() < SOON, "it is still open");
        client.ping();
        client.read();
        thread::sleep(Duration::from_millis(30));
    }
    wait_for_metric(proxy.admin(), OPEN, |open| open == 0);
    assert_eq!(metric(proxy.admin(), TIMEOUTS), 1);
    assert_eq!(proxy.stopped().0, Some(0));
}

/// A stream was cut because others of its connection went first.
#[test]
fn a_stream_that_waits_for_others_is_not_slow() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin, "send_timeout = \"3s\"");
    let mut client = Client::with(proxy.address(), &wide());
    let urgent: Vec<_> = (0..8)
        .map(|_| client.request(&path("/cached/5000000"), &[("priority", "u=0")], true))
        .collect();
    let patient = client.request(&path("/cached/5000000"), &[("priority", "u=7")], true);
    // The client reads all the time, and takes longer than the time-out.
    while !client.got(patient).is_over() {
        client.read();
        thread::sleep(Duration::from_millis(10));
    }
    for stream in urgent.into_iter().chain([patient]) {
        assert_eq!(client.ended(stream).content.len(), 5_000_000);
    }
    assert_eq!(metric(proxy.admin(), TIMEOUTS), 0);
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn urgent_responses_go_first() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin, "");
    let mut client = Client::with(proxy.address(), &wide());
    let first = client.get("/cached/5000000");
    client.ended(first);
    // Sockets hold some of the other ones before the urgent one is known.
    let patient: Vec<_> = (0..8)
        .map(|_| client.request(&path("/cached/5000000"), &[("priority", "u=7")], true))
        .collect();
    let urgent = client.request(&path("/cached/5000000"), &[("priority", "u=0")], true);
    client.ended(urgent);
    let ended = patient.iter().filter(|stream| client.got(**stream).is_over()).count();
    assert!(ended <= 4, "{ended} of the others");
    for stream in patient {
        assert_eq!(client.ended(stream).content.len(), 5_000_000);
    }
    assert_eq!(proxy.stopped().0, Some(0));
}

/// The descriptor of a connection is open as long as a task of its streams runs.
#[test]
fn a_connection_counts_until_its_last_task_ends() {
    let home = Home::new();
    let origin = Recorder::start();
    // The task of a client that leaves would end with it.
    let goes_on = "[[route]]\nupstream = \"site\"\nfinish_abandoned = true";
    let proxy = proxy(&home, &origin, goes_on);
    let admin = proxy.admin();
    let mut client = Client::new(proxy.address());
    for _ in 0..5 {
        client.get("/held/1000");
    }
    origin.wait_for_request("/held/1000");
    wait_for_metric(admin, "plimsoll_connections_busy", |busy| busy > 0);
    assert_eq!(metric(admin, "plimsoll_connections_busy"), 1, "connections, not streams");
    drop(client);
    for _ in 0..20 {
        assert_eq!(metric(admin, OPEN), 1);
        thread::sleep(Duration::from_millis(10));
    }
    origin.release();
    wait_for_metric(admin, OPEN, |open| open == 0);
    wait_for_metric(admin, "plimsoll_connections_busy", |busy| busy == 0);
    assert_eq!(proxy.stopped().0, Some(0));
}

#[test]
fn malformed_requests_and_connections_are_logged() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin, "");
    let mut bad = base("GET", "/a");
    bad.push(("x-a", " b"));
    assert_eq!(
        attacks::send(proxy.address(), &bad, &[], &Vec::new()).unwrap(),
        attacks::Outcome::Reset(ErrorCode::PROTOCOL_ERROR.0)
    );
    assert_eq!(metric(proxy.admin(), MALFORMED), 1);
    // A frame on a stream that is idle ends the connection.
    let mut out = Vec::new();
    frame(RST_STREAM, 0, 7, &[0; 4], &mut out);
    assert!(flood(proxy.address(), 1, |_| out.clone()));
    assert_eq!(metric(proxy.admin(), MALFORMED), 2);
    assert_eq!(proxy.stopped().0, Some(0));
    assert_eq!(home.read("access.log").lines().count(), 2);
    assert!(origin.paths().is_empty());
}

/// Its origin was asked each time.
#[test]
fn a_get_that_ends_with_an_empty_frame_is_a_hit() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin, "");
    for _ in 0..3 {
        let got = attacks::send(proxy.address(), &base("GET", "/cached/10"), &[""], &Vec::new());
        assert_eq!(got.unwrap(), attacks::Outcome::Status(200));
    }
    assert_eq!(origin.paths(), ["/cached/10"]);
    let request = origin.only("/cached/10");
    assert_eq!(request.field("transfer-encoding"), None);
    // With content it is another request.
    let got = attacks::send(proxy.address(), &base("GET", "/cached/10"), &["a"], &Vec::new());
    assert_eq!(got.unwrap(), attacks::Outcome::Status(200));
    assert_eq!(origin.requests("/cached/10")[1].body, b"a");
    assert_eq!(proxy.stopped().0, Some(0));
}

/// GOAWAY waited for the next frame of the client.
#[test]
fn a_restart_says_goodbye_to_an_idle_connection() {
    let home = Home::new();
    let origin = Recorder::start();
    let mut proxy = proxy(&home, &origin, "");
    let mut client = Client::new(proxy.address());
    let stream = client.get("/cached/10");
    client.ended(stream);
    let successor = Successor::restart(proxy.admin());
    client.until("GOAWAY", |client| client.is_closing);
    client.closed();
    assert_eq!(proxy.child.ended(SOON).code(), Some(0));
    successor.ends(Some("TERM"));
}

/// Each of them opened a connection to the upstream.
#[test]
fn requests_that_are_cancelled_at_once_reach_no_upstream() {
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin, "");
    let mut client = Client::new(proxy.address());
    for at in 0..20 {
        client.get_and_cancel(&format!("/cached/{at}"), at % 2 == 0);
    }
    let stream = client.get("/cached/1000");
    assert_eq!(client.ended(stream).status, Some(200));
    assert_eq!(metric(proxy.admin(), "plimsoll_refusals_total{rule=\"cancelled\"}"), 20);
    assert_eq!(proxy.stopped().0, Some(0));
    assert_eq!(origin.paths(), ["/cached/1000"]);
    let log = home.read("access.log");
    assert_eq!(log.lines().filter(|line| line.contains("\"status\":499")).count(), 20, "{log}");
}

/// Sends frames, at most this often, while another thread reads. True if the server closed the
/// connection.
fn flood(to: SocketAddr, times: u32, frames: impl Fn(u32) -> Vec<u8>) -> bool {
    let mut stream = TcpStream::connect(to).unwrap();
    let mut from = stream.try_clone().unwrap();
    from.set_read_timeout(Some(SOON)).unwrap();
    let reader = thread::spawn(move || {
        let (mut part, mut bytes) = ([0; 64 * 1024], Vec::new());
        loop {
            match read_some(&mut from, &mut part) {
                Ok(0) => return (bytes, true),
                Ok(read) => bytes.extend_from_slice(&part[..read]),
                Err(error) => return (bytes, error.kind() != std::io::ErrorKind::WouldBlock),
            }
        }
    });
    let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame(SETTINGS, 0, 0, &[], &mut out);
    let mut sent = stream.write_all(&out);
    for at in 0..times {
        if sent.is_ok() {
            sent = stream.write_all(&frames(at));
        }
    }
    let (bytes, is_closed) = reader.join().unwrap();
    let _ = stream.shutdown(Shutdown::Both);
    is_closed && (bytes.is_empty() || sent.is_err() || has_goaway(&bytes))
}

/// Whether there is a GOAWAY among these frames.
fn has_goaway(mut bytes: &[u8]) -> bool {
    while let [a, b, c, kind, rest @ ..] = bytes {
        if *kind == GOAWAY {
            return true;
        }
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        bytes = rest.get(5 + length..).unwrap_or_default();
    }
    false
}

/// The resident memory of a process in bytes.
fn resident(pid: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Each is cut off after a bounded number of frames, whatever it costs to answer them.
#[test]
fn floods_are_cut_and_counted() {
    const CONTINUATION: u8 = 9;
    const DATA: u8 = 0;
    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;
    const PRIORITY: u8 = 2;
    const TIMES: u32 = 20_000;
    let home = Home::new();
    let origin = Recorder::start();
    let proxy = proxy(&home, &origin, "");
    let (to, admin) = (proxy.address(), proxy.admin());
    let warm = get(to, "/cached/1000");
    assert!(warm.starts_with("HTTP/1.1 200 "), "{warm}");
    let request = block(&base("GET", "/cached/1000"));
    let open = |at: u32, flags: u8, out: &mut Vec<u8>| {
        frame(HEADERS, flags, 2 * at + 1, &request, out);
    };
    let one = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let mut out = Vec::new();
        frame(kind, flags, stream, payload, &mut out);
        out
    };
    // An entry of the table that is used again and again.
    let mut bomb = block(&base("GET", "/cached/1000"));
    bomb.extend_from_slice(&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e]);
    bomb.extend_from_slice(&[b'a'; 4000]);
    bomb.extend_from_slice(&[0xbe; 10_000]);
    type Frames<'f> = Box<dyn Fn(u32) -> Vec<u8> + 'f>;
    let floods: [(&str, Frames<'_>); 10] = [
        (
            "rapid reset",
            Box::new(|at| {
                let mut out = Vec::new();
                open(at, 4, &mut out);
                frame(RST_STREAM, 0, 2 * at + 1, &8u32.to_be_bytes(), &mut out);
                out
            }),
        ),
        (
            "resets that the server is made to send",
            Box::new(|at| {
                let mut out = Vec::new();
                open(at, 4, &mut out);
                frame(WINDOW_UPDATE, 0, 2 * at + 1, &[0; 4], &mut out);
                out
            }),
        ),
        (
            "malformed requests",
            Box::new(|at| one(HEADERS, 5, 2 * at + 1, &block(&vec![(":method", "GET")]))),
        ),
        (
            "CONTINUATION",
            Box::new(|at| match at {
                0 => one(HEADERS, 1, 1, &request),
                _ => one(CONTINUATION, 0, 1, &[]),
            }),
        ),
        ("an HPACK bomb", Box::new(|at| one(HEADERS, 5, 2 * at + 1, &bomb))),
        (
            "empty DATA",
            Box::new(|at| {
                let mut out = Vec::new();
                if at == 0 {
                    open(0, 4, &mut out);
                }
                frame(DATA, 0, 1, &[], &mut out);
                out
            }),
        ),
        ("SETTINGS", Box::new(|_| one(SETTINGS, 0, 0, &[]))),
        ("PING", Box::new(|_| one(PING, 0, 0, &[0; 8]))),
        ("PRIORITY", Box::new(|_| one(PRIORITY, 0, 1, &[0, 0, 0, 3, 9]))),
        ("WINDOW_UPDATE", Box::new(|_| one(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes()))),
    ];
    let before = resident(&proxy.child.pid());
    for (at, (name, frames)) in floods.iter().enumerate() {
        assert!(flood(to, TIMES, frames), "{name}: the connection is still open");
        assert_eq!(metric(admin, LIMIT), at as u64 + 1, "{name}");
    }
    wait_for_metric(admin, OPEN, |open| open == 0);
    assert_eq!(metric(admin, HELD), 0);
    let more = resident(&proxy.child.pid()).saturating_sub(before);
    assert!(more < 64 << 20, "{more} bytes");
    assert!(get(to, "/cached/1000").starts_with("HTTP/1.1 200 "));
    assert_eq!(proxy.stopped().0, Some(0));
}
