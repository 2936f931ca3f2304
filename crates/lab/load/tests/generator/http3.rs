//! The generator over HTTP/3, against servers that behave and misbehave.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http3::{Event, Limits, MessageStream, Scratch, write};
use load::{Error, Plan, Protocol, content};
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event as QuicEvent,
    ServerConfig, StreamEvent, StreamId, Transmit, TransportConfig, VarInt,
};

use crate::common::Reaction::{self, Break, Close, Content, GoAway, Nothing, Reset, Status};
use crate::common::{Server, given_up_requests_end_their_connections, run, run_observed};
use crate::tls::{config, over_tls};

/// A server in one thread, with so many streams at a time on each connection.
fn serving(streams_max: u32, react: fn(u32) -> Reaction) -> Server {
    losing(u32::MAX, streams_max, react)
}

/// The same, that loses one of so many datagrams that it receives.
fn losing(one_of: u32, streams_max: u32, react: fn(u32) -> Reaction) -> Server {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let crypto = QuicServerConfig::try_from(config(b"h3")).unwrap();
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(VarInt::from_u32(streams_max));
    let mut server = ServerConfig::with_crypto(Arc::new(crypto));
    server.transport_config(Arc::new(transport));
    let endpoint = EndpointConfig::default();
    let endpoint = Endpoint::new(Arc::new(endpoint), Some(Arc::new(server)), true, None);
    Server::start(socket.local_addr().unwrap(), move |stop| {
        serve(&socket, endpoint, one_of, react, stop)
    })
}

struct Peer {
    quinn: Connection,
    control: Option<StreamId>,
    messages: HashMap<StreamId, MessageStream>,
    number: u32,
    /// What a stream has not taken: the head, the content's offset, and its length.
    unsent: Vec<(StreamId, Vec<u8>, usize, usize)>,
}

fn serve(
    socket: &UdpSocket,
    mut endpoint: Endpoint,
    one_of: u32,
    react: fn(u32) -> Reaction,
    stop: &AtomicBool,
) {
    let mut peers: HashMap<ConnectionHandle, Peer> = HashMap::new();
    let (mut buffer, mut scratch, mut received) = ([0; 65536], Scratch::new(), 0);
    let send =
        |sent: &Transmit, bytes: &[u8]| drop(socket.send_to(&bytes[..sent.size], sent.destination));
    while !stop.load(Ordering::Relaxed) {
        let mut out = Vec::new();
        let datagram = socket.recv_from(&mut buffer);
        received += u32::from(datagram.is_ok());
        if let Ok((count, from)) = datagram
            && !received.is_multiple_of(one_of)
        {
            let bytes = BytesMut::from(&buffer[..count]);
            match endpoint.handle(Instant::now(), from, None, None, bytes, &mut out) {
                Some(DatagramEvent::NewConnection(incoming)) => {
                    let accepted = endpoint.accept(incoming, Instant::now(), &mut out, None);
                    let (handle, quinn) = accepted.map_err(|e| e.cause).unwrap();
                    let (messages, unsent) = (HashMap::new(), Vec::new());
                    peers
                        .insert(handle, Peer { quinn, control: None, messages, number: 0, unsent });
                }
                Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                    if let Some(peer) = peers.get_mut(&handle) {
                        peer.quinn.handle_event(event);
                    }
                }
                Some(DatagramEvent::Response(sent)) => send(&sent, &out),
                None => {}
            }
        }
        for (handle, peer) in &mut peers {
            let now = Instant::now();
            if peer.quinn.poll_timeout().is_some_and(|due| due <= now) {
                peer.quinn.handle_timeout(now);
            }
            while let Some(event) = peer.quinn.poll_endpoint_events() {
                if let Some(answer) = endpoint.handle_event(*handle, event) {
                    peer.quinn.handle_event(answer);
                }
            }
            while let Some(event) = peer.quinn.poll() {
                peer.event(event, react, &mut scratch);
            }
            peer.send_unsent();
            out.clear();
            while let Some(sent) = peer.quinn.poll_transmit(now, 1, &mut out) {
                send(&sent, &out);
                out.clear();
            }
        }
        peers.retain(|_, peer| !peer.quinn.is_drained());
    }
}

impl Peer {
    fn event(&mut self, event: QuicEvent, react: fn(u32) -> Reaction, scratch: &mut Scratch) {
        match event {
            QuicEvent::Connected => {
                self.control = self.quinn.streams().open(Dir::Uni);
                let mut settings = Vec::new();
                write::control(&Limits::DEFAULT, &mut settings);
                self.say(self.control.unwrap(), &settings);
            }
            QuicEvent::Stream(StreamEvent::Opened { dir: Dir::Bi }) => {
                while let Some(id) = self.quinn.streams().accept(Dir::Bi) {
                    self.messages.insert(id, MessageStream::request());
                    self.read(id, react, scratch);
                }
            }
            QuicEvent::Stream(StreamEvent::Readable { id }) if id.dir() == Dir::Bi => {
                self.read(id, react, scratch);
            }
            _ => {}
        }
    }

    fn say(&mut self, id: StreamId, bytes: &[u8]) {
        assert_eq!(self.quinn.send_stream(id).write(bytes).ok(), Some(bytes.len()));
    }

    fn read(&mut self, id: StreamId, react: fn(u32) -> Reaction, scratch: &mut Scratch) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        let mut is_request = false;
        if let Ok(mut chunks) = self.quinn.recv_stream(id).read(true) {
            while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                let event = message.next_event(&chunk.bytes, false, scratch, &Limits::DEFAULT);
                is_request |= matches!(event.unwrap().event, Some(Event::Request(_)));
            }
            let _ = chunks.finalize();
        }
        if is_request {
            self.react(id, react(self.number));
            self.number += 1;
        }
    }

    fn react(&mut self, id: StreamId, reaction: Reaction) {
        let mut head = Vec::new();
        match reaction {
            Content(bytes) => {
                write::response(200, [(&b"cache-status"[..], &b"x; hit"[..])], &mut head);
                write::data(bytes as u64, &mut head);
                self.unsent.push((id, head, 0, bytes));
            }
            Status(status) => {
                write::response(status, [], &mut head);
                self.say(id, &head);
                self.quinn.send_stream(id).finish().unwrap();
            }
            Reset => self.quinn.send_stream(id).reset(VarInt::from_u32(0x10b)).unwrap(),
            // Only once: a later one must not name more requests.
            GoAway => {
                if let Some(control) = self.control.take() {
                    write::go_away(id.into(), &mut head);
                    self.say(control, &head);
                }
            }
            Break => {
                self.react(id, Status(200));
                self.say(self.control.unwrap(), &[0, 0]);
            }
            Close => self.quinn.close(Instant::now(), VarInt::from_u32(0x100), Bytes::new()),
            Nothing => {}
        }
    }

    fn send_unsent(&mut self) {
        let quinn = &mut self.quinn;
        self.unsent.retain_mut(|(id, head, at, all)| {
            while !head.is_empty() || at < all {
                let piece = match head.is_empty() {
                    true => content::piece(0, *at as u64, (*all - *at) as u64),
                    false => head,
                };
                match quinn.send_stream(*id).write(piece) {
                    Ok(sent) if head.is_empty() => *at += sent,
                    Ok(sent) => drop(head.drain(..sent)),
                    Err(quinn_proto::WriteError::Blocked) => return true,
                    Err(_) => return false,
                }
            }
            quinn.send_stream(*id).finish().unwrap();
            false
        });
    }
}

fn over_http3(plan: Plan, streams: u32) -> Plan {
    Plan { protocol: Protocol::Http3 { streams }, connections: 3, ..over_tls(plan) }
}

#[test]
fn every_intended_request_is_sent_and_answered() {
    let server = serving(100, |_| Content(1024));
    let plan = over_http3(server.requests("/", 500.0, 200), 10);
    let outcome = run(&Plan { verify: true, ..plan });
    assert_eq!(outcome.counts.completed, 200, "{:?}", outcome.counts);
    assert_eq!(outcome.counts.body_bytes, 200 * 1024);
    assert_eq!((outcome.counts.hits, outcome.counts.connects), (200, 0));
}

#[test]
fn each_request_has_its_own_connection() {
    let server = serving(100, |number| if number == 0 { Content(100_000) } else { Close });
    let plan = over_http3(server.requests("/", 100.0, 60), 1);
    let counts = run(&Plan { keep_alive: false, verify: true, ..plan }).counts;
    assert_eq!((counts.completed, counts.connects), (60, 60), "{counts:?}");
}

/// The connection stayed open, and the next request was sent on it.
#[test]
fn a_request_that_is_given_up_ends_its_own_connection() {
    let server = serving(100, |_| Nothing);
    given_up_requests_end_their_connections(over_http3(server.requests("/", 20.0, 60), 1));
}

#[test]
fn long_bodies_arrive_whole_through_the_windows() {
    let server = serving(100, |_| Content(2_000_000));
    let plan = over_http3(server.requests("/", 20.0, 6), 4);
    let outcome = run(&Plan { verify: true, ..plan });
    assert_eq!(outcome.counts.completed, 6, "{:?}", outcome.counts);
    assert_eq!(outcome.counts.body_bytes, 6 * 2_000_000);
}

/// The first datagram of the third connection is lost, later requests and acknowledgements too.
/// The timers of QUIC send them again.
#[test]
fn requests_survive_losses() {
    let server = losing(3, 100, |_| Content(1000));
    let plan = over_http3(server.requests("/", 200.0, 40), 10);
    // Each loss of the same data doubles the time until it is sent again, which begins with a
    // second if the machine is busy.
    let outcome = run(&Plan { timeout: Duration::from_secs(60), ..plan });
    assert_eq!(outcome.counts.completed, 40, "{:?}", outcome.counts);
}

#[test]
fn a_closed_loop_keeps_as_many_streams_busy_as_the_server_allows() {
    let server = serving(2, |_| Content(100));
    let plan = over_http3(server.closed("/"), 8);
    let outcome = run_observed(&plan, |tick| tick.counts.completed > 100);
    assert!(outcome.counts.completed > 100, "{:?}", outcome.counts);
    assert_eq!((outcome.counts.errors.total(), outcome.unstarted), (0, 0));
}

#[test]
fn requests_that_a_closing_server_did_not_process_are_sent_again() {
    let server = serving(100, |number| if number < 20 { Content(10) } else { GoAway });
    let outcome = run(&over_http3(server.requests("/", 500.0, 200), 10));
    assert_eq!(outcome.counts.completed, 200, "{:?}", outcome.counts);
    assert!(outcome.counts.connects >= 5, "{:?}", outcome.counts);
}

/// The next request was sent on a connection that had failed, and lost with it.
#[test]
fn a_server_that_breaks_the_protocol_behind_a_response_loses_no_request() {
    let server = serving(100, |number| if number == 5 { Break } else { Content(1) });
    let plan = over_http3(server.closed("/"), 1);
    let outcome = run_observed(&plan, |tick| tick.counts.completed > 5 && tick.counts.connects > 0);
    assert!(outcome.counts.completed > 5 && outcome.counts.connects > 0, "{:?}", outcome.counts);
    assert_eq!((outcome.counts.errors.total(), outcome.in_flight), (0, 0), "{:?}", outcome.counts);
}

#[test]
fn each_failure_has_its_kind() {
    let errors = |react: fn(u32) -> Reaction, streams: u32| {
        let server = serving(100, react);
        let plan = over_http3(server.requests("/", 500.0, 60), streams);
        let outcome = run(&Plan { timeout: Duration::from_secs(2), ..plan });
        assert!(outcome.counts.errors.total() > 0);
        outcome.counts.errors
    };
    let missing = errors(|number| if number == 3 { Status(404) } else { Content(1) }, 1);
    assert_eq!((missing.bad_status, missing.total()), (3, 3), "{missing:?}");
    let reset = errors(|number| if number == 3 { Reset } else { Content(1) }, 1);
    assert_eq!((reset.reset, reset.total()), (3, 3), "{reset:?}");
    let closed = errors(|number| if number % 10 == 9 { Close } else { Content(1) }, 1);
    assert_eq!(closed.closed, closed.total(), "{closed:?}");
    let silent = errors(|number| if number == 3 { Nothing } else { Content(1) }, 2);
    assert_eq!((silent.timeout, silent.total()), (3, 3), "{silent:?}");
    let goes_away = errors(|_| GoAway, 4);
    assert_eq!(goes_away.closed, goes_away.total(), "{goes_away:?}");
}

#[test]
fn cold_connections_stay_open() {
    let server = serving(100, |_| Content(10));
    let plan = over_http3(server.requests("/", 100.0, 20), 2);
    let outcome = run(&Plan { cold: 20, ..plan });
    assert_eq!((outcome.counts.completed, outcome.cold_open), (20, 20));
    assert_eq!(outcome.counts.cold_closed, 0);
}

/// Nothing listens there, or something that does not answer.
#[test]
fn a_server_without_http3_is_named_before_the_run() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let unused = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [silent.local_addr().unwrap(), unused] {
        let target = format!("https://{address}/").parse().unwrap();
        let plan = Plan::new(target, "10".parse().unwrap(), Duration::from_secs(1));
        let plan = Plan { timeout: Duration::from_millis(300), ..over_http3(plan, 1) };
        match load::run(&plan, &AtomicBool::new(false), &mut |_| ()) {
            Err(error @ Error::Unreachable { .. }) => {
                assert!(error.to_string().contains("HTTP/3"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}
