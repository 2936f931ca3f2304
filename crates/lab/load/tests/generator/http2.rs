//! The generator over HTTP/2, against servers that behave and misbehave.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http2::{Connection, ErrorCode, Event, Limits, Scratch, StreamId};
use load::{Plan, Protocol, content};
use rustls::{ServerConnection, StreamOwned};

use crate::common::Reaction::{self, Break, Close, Content, GoAway, Nothing, Reset, Status};
use crate::common::{PATIENCE, Server, given_up_requests_end_their_connections, run, run_observed};
use crate::tls::{config, over_tls};

#[test]
fn a_call_of_grpc_ends_with_its_status() {
    for (status, is_good) in [(Some("0"), true), (Some("13"), false), (None, false)] {
        let server = Server::connections(move |stream| drop(call(stream, status)));
        let protocol = Protocol::Http2 { streams: 2 };
        let plan = server.requests("/a.B/C", 500.0, 50);
        let outcome = run(&Plan { protocol, grpc: true, body_bytes: 100, ..plan });
        assert_eq!(outcome.counts.completed, if is_good { 50 } else { 0 }, "{status:?}");
        assert_eq!(outcome.counts.errors.total(), if is_good { 0 } else { 50 }, "{status:?}");
    }
}

/// Answers each complete message with another, and with this status in trailers.
fn call(mut stream: impl Read + Write, status: Option<&str>) -> std::io::Result<()> {
    let (mut out, mut scratch, mut input) = (Vec::new(), Scratch::new(), Vec::new());
    let mut connection = Connection::server(&Limits::default(), &mut out);
    let mut buffer = [0; 16384];
    loop {
        let mut at = 0;
        loop {
            let received = connection
                .next_event(&input[at..], &mut scratch, 0, &mut out)
                .map_err(std::io::Error::other)?;
            at += received.consumed;
            let (id, is_whole) = match received.event {
                None => break,
                Some(Event::Request { head, .. }) => {
                    assert_eq!((head.method, head.path), (&b"POST"[..], Some(&b"/a.B/C"[..])));
                    continue;
                }
                Some(Event::Data { stream, bytes, end_stream }) => {
                    assert_eq!((bytes.len(), &bytes[..5]), (100, &[0, 0, 0, 0, 95][..]));
                    (stream, end_stream)
                }
                Some(_) => continue,
            };
            assert!(is_whole, "a message comes in one frame");
            let none: [(&[u8], &[u8]); 0] = [];
            connection.release(id, 100, &mut out);
            connection.send_response(id, 200, none, false, &mut out).unwrap();
            connection.send_data(id, b"answer", status.is_none(), &mut out).unwrap();
            if let Some(status) = status {
                let trailer = [(&b"grpc-status"[..], status.as_bytes())];
                connection.send_trailers(id, trailer, &mut out).unwrap();
            }
        }
        input.drain(..at);
        stream.write_all(&out)?;
        out.clear();
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => input.extend_from_slice(&buffer[..count]),
        }
    }
}

/// A server with so many streams at a time.
fn serving(streams_max: u32, react: fn(u32) -> Reaction) -> Server {
    let mut limits = Limits::default();
    limits.streams_max = streams_max;
    Server::connections(move |stream| drop(talk(stream, &limits, react)))
}

fn talk(
    mut stream: impl Read + Write,
    limits: &Limits,
    react: fn(u32) -> Reaction,
) -> std::io::Result<()> {
    let (mut out, mut scratch, mut input) = (Vec::new(), Scratch::new(), Vec::new());
    let mut connection = Connection::server(limits, &mut out);
    let mut unsent: Vec<(StreamId, usize, usize)> = Vec::new();
    let (mut number, mut buffer) = (0, [0; 16384]);
    loop {
        let (mut at, mut goes_away) = (0, None);
        while goes_away.is_none() {
            let received = connection
                .next_event(&input[at..], &mut scratch, 0, &mut out)
                .map_err(std::io::Error::other)?;
            at += received.consumed;
            let Some(event) = received.event else { break };
            let Event::Request { stream: id, .. } = event else { continue };
            let none: [(&[u8], &[u8]); 0] = [];
            match react(number) {
                Content(bytes) => {
                    let hit = [(&b"cache-status"[..], &b"x; hit"[..])];
                    connection.send_response(id, 200, hit, bytes == 0, &mut out).unwrap();
                    unsent.push((id, 0, bytes));
                }
                Status(status) => {
                    connection.send_response(id, status, none, true, &mut out).unwrap();
                }
                Reset => connection.reset(id, ErrorCode::REFUSED_STREAM, &mut out),
                Break => unreachable!("only over HTTP/3"),
                GoAway => goes_away = Some(id.saturating_sub(2)),
                Close => return Ok(()),
                Nothing => {}
            }
            number += 1;
        }
        input.drain(..at);
        unsent.retain_mut(|(id, sent, all)| {
            while sent < all {
                let piece = content::piece(0, *sent as u64, (*all - *sent) as u64);
                let is_last = *sent + piece.len() == *all;
                match connection.send_data(*id, piece, is_last, &mut out) {
                    Ok(accepted) if accepted > 0 => *sent += accepted,
                    Ok(_) => return true,
                    Err(_) => return false,
                }
            }
            false
        });
        if let Some(last) = goes_away {
            // As servers do that close after a number of requests: those before it are answered.
            out.extend_from_slice(&[0, 0, 8, 7, 0, 0, 0, 0, 0]);
            out.extend_from_slice(&last.to_be_bytes());
            out.extend_from_slice(&[0; 4]);
            return stream.write_all(&out);
        }
        stream.write_all(&out)?;
        out.clear();
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            count => input.extend_from_slice(&buffer[..count]),
        }
    }
}

fn over_http2(plan: Plan, streams: u32) -> Plan {
    Plan { protocol: Protocol::Http2 { streams }, connections: 3, ..plan }
}

#[test]
fn every_intended_request_is_sent_and_answered() {
    let server = serving(100, |_| Content(1024));
    let plan = over_http2(server.requests("/", 2000.0, 2000), 10);
    let outcome = run(&Plan { verify: true, ..plan });
    assert_eq!(outcome.counts.completed, 2000, "{:?}", outcome.counts);
    assert_eq!(outcome.counts.body_bytes, 2000 * 1024);
    assert_eq!((outcome.counts.hits, outcome.counts.connects), (2000, 0));
}

#[test]
fn each_request_has_its_own_connection() {
    let server = serving(100, |number| if number == 0 { Content(100_000) } else { Close });
    let plan = over_http2(server.requests("/", 300.0, 90), 1);
    let outcome = run(&Plan { keep_alive: false, verify: true, ..plan });
    let counts = outcome.counts;
    assert_eq!((counts.completed, counts.connects), (90, 90), "{counts:?}");
    // One that fails is followed by another.
    let server = serving(100, |_| Close);
    let plan = over_http2(server.requests("/", 300.0, 30), 1);
    let counts = run(&Plan { keep_alive: false, ..plan }).counts;
    assert_eq!((counts.errors.total(), counts.connects), (30, 30), "{counts:?}");
}

/// An answer that came with the end of the handshake closed the connection before it was counted.
#[test]
fn each_request_has_its_own_connection_over_tls() {
    let config = Arc::new(config(b"h2"));
    let server = Server::connections(move |stream| {
        let session = ServerConnection::new(Arc::clone(&config)).unwrap();
        drop(talk(StreamOwned::new(session, stream), &Limits::default(), |_| Content(10)));
    });
    let plan = over_tls(over_http2(server.requests("/", 100.0, 60), 1));
    let counts = run(&Plan { keep_alive: false, resume: true, ..plan }).counts;
    assert_eq!((counts.completed, counts.connects), (60, 60), "{counts:?}");
    assert!(counts.resumed > 50, "{counts:?}");
}

/// The connection stayed open, and the next request was sent on it.
#[test]
fn a_request_that_is_given_up_ends_its_own_connection() {
    let server = serving(100, |_| Nothing);
    given_up_requests_end_their_connections(over_http2(server.requests("/", 20.0, 60), 1));
}

#[test]
fn long_bodies_arrive_whole_through_the_windows() {
    let server = serving(100, |_| Content(3_000_000));
    let plan = over_http2(server.requests("/", 50.0, 20), 4);
    let outcome = run(&Plan { verify: true, ..plan });
    assert_eq!(outcome.counts.completed, 20, "{:?}", outcome.counts);
    assert_eq!(outcome.counts.body_bytes, 20 * 3_000_000);
}

#[test]
fn a_closed_loop_keeps_as_many_streams_busy_as_the_server_allows() {
    let server = serving(2, |_| Content(100));
    let plan = over_http2(server.closed("/"), 8);
    let outcome = run_observed(&plan, |tick| tick.counts.completed > 100);
    assert!(outcome.counts.completed > 100, "{:?}", outcome.counts);
    assert_eq!((outcome.counts.errors.total(), outcome.unstarted), (0, 0));
}

/// An ended request left its stream to the next one of its lane, and the others timed out.
#[test]
fn requests_that_wait_for_a_stream_take_turns() {
    let server = serving(1, |_| Content(100));
    // Longer than the timeout.
    let plan = over_http2(server.plan("/", "closed", 4000), 4);
    let outcome = run(&Plan { timeout: Duration::from_secs(3), ..plan });
    assert!(outcome.counts.completed > 100, "{:?}", outcome.counts);
    assert_eq!(outcome.counts.errors.total(), 0, "{:?}", outcome.counts);
}

/// Such a connection was kept, and each of its requests timed out.
#[test]
fn a_handshake_that_stalls_is_given_up() {
    let (config, number) = (Arc::new(config(b"h2")), AtomicU32::new(0));
    let server = Server::connections(move |mut stream| {
        if number.fetch_add(1, Ordering::Relaxed) == 1 {
            let _ = stream.read_to_end(&mut Vec::new());
            return;
        }
        let session = ServerConnection::new(Arc::clone(&config)).unwrap();
        let stream = StreamOwned::new(session, stream);
        let react = |number| if number < 5 { Content(10) } else { Close };
        let _ = talk(stream, &Limits::default(), react);
    });
    let plan = over_tls(over_http2(server.closed("/"), 2));
    let plan = Plan { timeout: Duration::from_secs(1), connections: 1, ..plan };
    let outcome =
        run_observed(&plan, |tick| tick.counts.errors.timeout > 0 && tick.counts.completed > 5);
    assert!(outcome.counts.errors.timeout > 0, "{:?}", outcome.counts);
    assert!(outcome.counts.completed > 5, "{:?}", outcome.counts);
}

/// nginx ends each connection after a thousand requests. None of them is an error.
#[test]
fn requests_that_a_closing_server_did_not_process_are_sent_again() {
    let server = serving(100, |number| if number < 50 { Content(10) } else { GoAway });
    let outcome = run(&over_http2(server.requests("/", 2000.0, 1000), 10));
    assert_eq!(outcome.counts.completed, 1000, "{:?}", outcome.counts);
    assert!(outcome.counts.connects >= 10, "{:?}", outcome.counts);
}

#[test]
fn each_failure_has_its_kind() {
    let errors = |react: fn(u32) -> Reaction, streams: u32| {
        let server = serving(100, react);
        let plan = over_http2(server.requests("/", 1000.0, 100), streams);
        let outcome = run(&Plan { timeout: Duration::from_secs(2), ..plan });
        assert!(outcome.counts.errors.total() > 0);
        outcome.counts.errors
    };
    let missing = errors(|number| if number == 3 { Status(404) } else { Content(1) }, 1);
    assert_eq!((missing.bad_status, missing.total()), (3, 3));
    let reset = errors(|number| if number == 3 { Reset } else { Content(1) }, 1);
    assert_eq!((reset.reset, reset.total()), (3, 3));
    let closed = errors(|number| if number % 10 == 9 { Close } else { Content(1) }, 1);
    assert_eq!(closed.closed, closed.total());
    let silent = errors(|number| if number == 3 { Nothing } else { Content(1) }, 2);
    assert_eq!((silent.timeout, silent.total()), (3, 3));
    // The connection of a request that is given up carries others meanwhile and afterwards.
    let goes_away = errors(|_| GoAway, 4);
    assert_eq!(goes_away.closed, goes_away.total());
}

#[test]
fn a_server_of_http1_is_an_error_for_each_request() {
    let server = Server::null();
    let outcome = run(&over_http2(server.requests("/", 500.0, 50), 2));
    assert_eq!(outcome.counts.completed, 0);
    assert_eq!(outcome.counts.errors.total(), 50, "{:?}", outcome.counts.errors);
}

/// The server closes the first connections as soon as they have acknowledged its SETTINGS.
#[test]
fn cold_connections_send_their_settings_and_are_reopened() {
    const COLD: u32 = 20;
    const CLOSED: u32 = 10;
    let acknowledged = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&acknowledged);
    let server = Server::connections(move |mut stream| {
        let (mut out, mut scratch, mut buffer) = (Vec::new(), Scratch::new(), [0; 16384]);
        let mut connection = Connection::server(&Limits::default(), &mut out);
        let mut is_counted = false;
        loop {
            let _ = stream.write_all(&out);
            out.clear();
            let Ok(read @ 1..) = stream.read(&mut buffer) else { return };
            let mut at = 0;
            while let Ok(received) =
                connection.next_event(&buffer[at..read], &mut scratch, 0, &mut out)
            {
                at += received.consumed;
                let Some(event) = received.event else { break };
                if let Event::Request { stream, .. } = event {
                    connection.send_response(stream, 204, [], true, &mut out).unwrap();
                }
            }
            let is_new = connection.is_acknowledged() && !std::mem::replace(&mut is_counted, true);
            if is_new && count.fetch_add(1, Ordering::Relaxed) < CLOSED {
                return;
            }
        }
    });
    let plan = over_http2(server.plan("/", "20", 1), 2);
    let plan = Plan { cold: COLD, duration: PATIENCE, ..plan };
    // The connections that the server closed are open again.
    let outcome = run_observed(&plan, |tick| {
        let closed = tick.counts.cold_closed as u32;
        let counted = acknowledged.load(Ordering::Relaxed);
        closed >= CLOSED - 3 && tick.open == u64::from(COLD) && counted >= COLD + closed
    });
    let closed = outcome.counts.cold_closed as u32;
    // The other three carry requests, or would.
    assert!((CLOSED - 3..=CLOSED).contains(&closed), "{closed}");
    assert_eq!(outcome.cold_open, u64::from(COLD));
    assert!(acknowledged.load(Ordering::Relaxed) >= COLD + closed);
}
