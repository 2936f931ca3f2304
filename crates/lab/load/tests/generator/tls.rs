//! The generator over TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use load::{Error, Plan, Protocol, content};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::common::{PATIENCE, Server, converse, run, run_observed};

type Stream = StreamOwned<ServerConnection, TcpStream>;

/// A server's configuration with an unknown certificate.
pub(crate) fn config(protocol: &[u8]) -> ServerConfig {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let chain = vec![made.cert.der().clone()];
    let builder = ServerConfig::builder().with_no_client_auth();
    let mut config = builder.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    config
}

/// Serves each connection in a thread. `talk` gets the request's number on its connection and
/// returns whether to continue.
fn scripted(
    protocol: &'static [u8],
    talk: impl Fn(&mut Stream, u32) -> bool + Send + Sync + 'static,
) -> Server {
    let config = Arc::new(config(protocol));
    Server::connections(move |stream| converse(secure(stream, &config), &talk))
}

fn secure(stream: TcpStream, config: &Arc<ServerConfig>) -> Stream {
    StreamOwned::new(ServerConnection::new(Arc::clone(config)).unwrap(), stream)
}

/// Object 0 with so many bytes.
fn say_content(stream: &mut Stream, bytes: usize) -> bool {
    let mut all = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
    let head = all.len();
    while all.len() < head + bytes {
        let at = all.len() - head;
        all.extend_from_slice(content::piece(0, at as u64, (bytes - at) as u64));
    }
    stream.write_all(&all).and_then(|()| stream.flush()).is_ok()
}

pub(crate) fn over_tls(plan: Plan) -> Plan {
    let target = format!("https://{}/", plan.target.addr).parse().unwrap();
    Plan { target, ..plan }
}

#[test]
fn every_intended_request_is_sent_and_answered() {
    let server = scripted(b"http/1.1", |stream, _| say_content(stream, 1000));
    let plan = over_tls(server.requests("/", 1000.0, 500));
    let outcome = run(&Plan { verify: true, ..plan });
    assert_eq!(outcome.counts.completed, 500, "{:?}", outcome.counts);
    assert_eq!((outcome.counts.body_bytes, outcome.counts.connects), (500_000, 0));
}

#[test]
fn long_bodies_arrive_whole() {
    let server = scripted(b"http/1.1", |stream, _| say_content(stream, 300_000));
    for verify in [true, false] {
        let plan = over_tls(server.requests("/", 50.0, 10));
        let outcome = run(&Plan { verify, ..plan });
        assert_eq!(outcome.counts.completed, 10, "{:?}", outcome.counts);
        assert_eq!(outcome.counts.body_bytes, 3_000_000);
    }
}

#[test]
fn each_request_can_have_its_connection() {
    let server = scripted(b"http/1.1", |stream, _| {
        say_content(stream, 10);
        stream.conn.send_close_notify();
        let _ = stream.flush();
        false
    });
    let plan = over_tls(server.requests("/", 200.0, 20));
    let outcome = run(&Plan { keep_alive: false, ..plan });
    assert_eq!((outcome.counts.completed, outcome.counts.connects), (20, 20));
}

#[test]
fn a_session_is_resumed_only_if_the_plan_says_so() {
    let mut config = config(b"http/1.1");
    config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().unwrap();
    let config = Arc::new(config);
    let server = Server::connections(move |stream| {
        converse(secure(stream, &config), &|stream, _| {
            say_content(stream, 10);
            stream.conn.send_close_notify();
            let _ = stream.flush();
            false
        });
    });
    let resumed = |resume: bool| {
        let plan = over_tls(server.requests("/", 200.0, 20));
        let outcome = run(&Plan { keep_alive: false, connections: 2, resume, ..plan });
        assert_eq!((outcome.counts.completed, outcome.counts.connects), (20, 20));
        outcome.counts.resumed
    };
    let (with, without) = (resumed(true), resumed(false));
    assert!(with == 19 || with == 18, "all but the first on each connection: {with}");
    assert_eq!(without, 0);
}

#[test]
fn a_close_without_a_response_is_an_error_with_its_kind() {
    let server = scripted(b"http/1.1", |stream, number| number < 3 && say_content(stream, 10));
    let outcome = run(&over_tls(server.requests("/", 500.0, 100)));
    let errors = &outcome.counts.errors;
    assert!(errors.closed > 0 && errors.closed == errors.total(), "{errors:?}");
}

/// The close_notify came with the end of the body, and no event reported it.
#[test]
fn a_body_that_ends_by_the_close_is_complete_before_the_connection_ends() {
    let server = scripted(b"http/1.1", |stream, _| {
        let response = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], content::piece(0, 0, 10)].concat();
        stream.conn.writer().write_all(&response).unwrap();
        stream.conn.send_close_notify();
        let _ = stream.flush();
        let _ = stream.sock.read_to_end(&mut Vec::new());
        false
    });
    let outcome = run(&over_tls(server.requests("/", 200.0, 20)));
    assert_eq!(outcome.counts.completed, 20, "{:?}", outcome.counts);
}

/// The connection was kept, and the loop spun on the records that the socket did not take.
#[test]
fn a_connection_is_closed_if_its_request_is_answered_before_it_is_sent() {
    let config = Arc::new(config(b"http/1.1"));
    let server = Server::connections(move |stream| {
        let session = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut stream = StreamOwned::new(session, stream);
        if stream.read(&mut [0]).is_ok() && say_content(&mut stream, 10) {
            thread::sleep(Duration::from_millis(500));
        }
    });
    let plan = over_tls(server.closed("/"));
    let fields = vec![("X-Long".to_owned(), "x".repeat(8 << 20))];
    let plan = Plan { connections: 1, fields, ..plan };
    let outcome = run_observed(&plan, |tick| tick.counts.completed > 1);
    assert!(outcome.counts.completed > 1, "{:?}", outcome.counts);
    assert_eq!(outcome.counts.errors.total(), 0, "{:?}", outcome.counts);
}

/// A server of TLS 1.3 sends session tickets after the handshake. While other connections were
/// still being opened, they were taken for a close.
#[test]
fn session_tickets_do_not_close_cold_connections() {
    let (config, number) = (Arc::new(config(b"http/1.1")), AtomicU32::new(0));
    let server = Server::connections(move |stream| {
        if number.fetch_add(1, Ordering::Relaxed) == 0 {
            thread::sleep(Duration::from_millis(300));
        }
        converse(secure(stream, &config), &|stream, _| say_content(stream, 10));
    });
    let plan = over_tls(server.requests("/", 100.0, 20));
    let outcome = run(&Plan { cold: 5, connections: 2, ..plan });
    assert_eq!((outcome.cold_open, outcome.counts.cold_closed), (5, 0));
    assert_eq!(outcome.counts.connects, 0);
}

/// A server may send SETTINGS together with its end of the handshake.
#[test]
fn what_comes_with_the_end_of_the_handshake_is_read() {
    let mut config = config(b"h2");
    config.send_half_rtt_data = true;
    let config = Arc::new(config);
    let server = Server::connections(move |mut stream| {
        let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
        let (mut out, mut scratch) = (Vec::new(), http2::Scratch::new());
        let mut http2 = http2::Connection::server(&http2::Limits::default(), &mut out);
        // TLS 1.3 lets a server write before the client has finished.
        while session.is_handshaking() && session.wants_read() {
            session.read_tls(&mut stream).unwrap();
            session.process_new_packets().unwrap();
            if session.wants_write() && !out.is_empty() {
                session.writer().write_all(&std::mem::take(&mut out)).unwrap();
                let mut flight = Vec::new();
                while session.wants_write() {
                    session.write_tls(&mut flight).unwrap();
                }
                stream.write_all(&flight).unwrap();
            }
        }
        let mut stream = StreamOwned::new(session, stream);
        let (mut input, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            let mut at = 0;
            while let Ok(received) = http2.next_event(&input[at..], &mut scratch, 0, &mut out) {
                at += received.consumed;
                let Some(event) = received.event else { break };
                if let http2::Event::Request { stream, .. } = event {
                    http2.send_response(stream, 204, [], true, &mut out).unwrap();
                }
            }
            input.drain(..at);
            if stream.write_all(&std::mem::take(&mut out)).is_err() {
                return;
            }
            match stream.read(&mut buffer) {
                Ok(count) if count > 0 => input.extend_from_slice(&buffer[..count]),
                _ => return,
            }
        }
    });
    let plan = over_tls(server.requests("/", 500.0, 100));
    let outcome = run(&Plan { protocol: Protocol::Http2 { streams: 4 }, ..plan });
    assert_eq!(outcome.counts.completed, 100, "{:?}", outcome.counts);
}

/// It stayed in its handshake for the rest of the run.
#[test]
fn a_cold_connection_whose_handshake_stalls_is_given_up() {
    let (config, number) = (Arc::new(config(b"http/1.1")), AtomicU32::new(0));
    let is_running = Arc::new(AtomicBool::new(false));
    let may_close = Arc::clone(&is_running);
    let server = Server::connections(move |mut stream| {
        if number.fetch_add(1, Ordering::Relaxed) < 2 {
            let mut session = ServerConnection::new(Arc::clone(&config)).unwrap();
            session.complete_io(&mut stream).unwrap();
            while !may_close.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
        } else {
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let plan = Plan { duration: PATIENCE, ..over_tls(server.plan("/", "1", 1)) };
    let plan = Plan { timeout: Duration::from_millis(500), connections: 1, cold: 1, ..plan };
    let outcome = run_observed(&plan, |tick| {
        is_running.fetch_or(tick.phase == load::Phase::Running, Ordering::Relaxed);
        tick.counts.cold_closed >= 2
    });
    assert!(outcome.counts.cold_closed >= 2, "{:?}", outcome.counts);
}

/// Why the run could not begin.
fn refusal(plan: &Plan) -> String {
    let stop = AtomicBool::new(false);
    match load::run(plan, &stop, &mut |_| ()) {
        Err(error @ Error::Unreachable { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_without_the_protocol_is_named_before_the_run() {
    let http1 = scripted(b"http/1.1", |_, _| false);
    let over_http2 = |plan| Plan { protocol: Protocol::Http2 { streams: 1 }, ..over_tls(plan) };
    let why = refusal(&over_http2(http1.plan("/", "10", 100)));
    assert!(why.contains("ALPN"), "{why}");
    // One that ignores ALPN.
    let mut deaf = config(b"");
    deaf.alpn_protocols.clear();
    let deaf = Arc::new(deaf);
    let deaf = Server::connections(move |mut stream| {
        let mut session = ServerConnection::new(Arc::clone(&deaf)).unwrap();
        while session.complete_io(&mut stream).is_ok_and(|(read, _)| read > 0) {}
    });
    let why = refusal(&over_http2(deaf.plan("/", "10", 100)));
    assert!(why.contains("ALPN"), "{why}");
    let plain = Server::connections(|mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        crate::common::say(&mut stream, "HTTP/1.1 400 No\r\n\r\n");
        let _ = stream.read(&mut [0; 4096]);
    });
    let why = refusal(&over_tls(plain.plan("/", "10", 100)));
    assert!(why.contains("speak TLS"), "{why}");
    let closing = Server::connections(drop);
    let why = refusal(&over_tls(closing.plan("/", "10", 100)));
    assert!(why.contains("closed") || why.contains("reset"), "{why}");
}
