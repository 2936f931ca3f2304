//! HTTP/3: QUIC by quinn-proto, on a UDP socket for each connection.
//!
//! What: [`Quic`] is what the connections of a run share, an [`Http3`] is one of them. A connection
//! has its own socket, as with TCP: a server may spread clients over its cores by their addresses.
//! Several datagrams are received and sent by one call (GRO, GSO). A datagram that the socket does
//! not take is a loss, which QUIC repairs.
//!
//! ```text
//! datagrams, timer --> events of QUIC --> responses --> (requests) --> datagrams, next timer
//! ```
//! What never happens: the clock is read after [`Quic::new`]; more than the windows is buffered.

use std::array;
use std::collections::BTreeSet;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http2::{RequestFields, Scratch};
use http3::{Control, ErrorCode, Event, Limits, MessageStream, Reason, Scope, UniStream, write};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, ConnectionError, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint, Endpoint,
    EndpointConfig, EndpointEvent, Event as QuicEvent, IdleTimeout, ReadError, StreamEvent,
    StreamId, TransportConfig, VarInt, WriteError,
};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use rustix::net::SocketType;

use super::lanes::{Cause, Lanes, Requests, WINDOW_BYTES};
use crate::outcome::ErrorKind;
use crate::plan::Plan;
use crate::sys;
use crate::tls::Tls;

/// Groups of datagrams that one call receives, and the room for each.
const RECEIVES: usize = 4;
const RECEIVE_BYTES: usize = 64 * 1024;
/// Datagrams that one call sends.
const SEGMENTS_MAX: usize = 16;
/// Unidirectional streams of a server: three that HTTP/3 has, and some of unknown types.
const UNI_STREAMS_MAX: u32 = 8;
/// A server that is silent for so long has gone, unless a request may take longer.
const IDLE_MIN: Duration = Duration::from_secs(30);

/// What the connections of a run share.
pub(super) struct Quic {
    endpoint: Endpoint,
    /// For connections that carry requests.
    hot: ClientConfig,
    /// Only the server limits how long these are silent. We do not keep them alive: that would be a
    /// load, which cold connections are not.
    cold: ClientConfig,
    target: SocketAddr,
    host: String,
    /// The same instant on both clocks.
    origin: (Instant, u64),
    input: Box<[u8]>,
    output: Vec<u8>,
    /// The next timer of each connection: (ns, link).
    due: BTreeSet<(u64, u32)>,
    scratch: Scratch,
}

impl Quic {
    pub(super) fn new(plan: &Plan, tls: &Tls) -> Result<Quic, String> {
        let crypto = QuicClientConfig::try_from(Arc::clone(&tls.config));
        let crypto = Arc::new(crypto.map_err(|e| e.to_string())?);
        let window = window(plan.target.addr).map_err(|e| format!("a UDP socket: {e}"))?;
        let config = |idle: Option<IdleTimeout>| {
            let mut transport = TransportConfig::default();
            transport
                .max_concurrent_bidi_streams(VarInt::from_u32(0))
                .max_concurrent_uni_streams(VarInt::from_u32(UNI_STREAMS_MAX))
                .stream_receive_window(VarInt::from_u32(WINDOW_BYTES))
                .receive_window(window)
                .datagram_receive_buffer_size(None)
                .max_idle_timeout(idle);
            let mut config = ClientConfig::new(Arc::clone(&crypto) as Arc<_>);
            config.transport_config(Arc::new(transport));
            config
        };
        // Requests are given up first.
        let idle = IDLE_MIN.max(plan.timeout.saturating_add(IDLE_MIN / 2));
        Ok(Quic {
            endpoint: Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None),
            hot: config(IdleTimeout::try_from(idle).ok()),
            cold: config(None),
            target: plan.target.addr,
            host: plan.target.host().to_owned(),
            origin: (Instant::now(), sys::mono_ns()),
            input: vec![0; RECEIVES * RECEIVE_BYTES].into_boxed_slice(),
            output: Vec::new(),
            due: BTreeSet::new(),
            scratch: Scratch::new(),
        })
    }

    fn at(&self, now_ns: u64) -> Instant {
        self.origin.0 + Duration::from_nanos(now_ns.saturating_sub(self.origin.1))
    }

    /// The next timer: when it is due, ns, and its link.
    pub(super) fn next_due(&self) -> Option<(u64, u32)> {
        self.due.first().copied()
    }

    /// Begins a connection that carries up to so many requests at a time; none if it is cold.
    pub(super) fn connect(
        &mut self,
        socket: &OwnedFd,
        streams: usize,
        now_ns: u64,
    ) -> io::Result<Http3> {
        let state = state_of(socket)?;
        let config = if streams > 0 { &self.hot } else { &self.cold };
        let (now, config) = (self.at(now_ns), config.clone());
        let connected = self.endpoint.connect(now, config, self.target, &self.host);
        let (handle, quinn) = connected.map_err(io::Error::other)?;
        let mut messages = Vec::new();
        messages.resize_with(streams, || MessageStream::response(false));
        Ok(Http3 {
            handle,
            quinn,
            socket: state,
            http3: http3::Connection::client(&Limits::DEFAULT),
            uni: Vec::new(),
            messages,
            unsent: Vec::new(),
            is_connected: false,
            goes_away: false,
            code: ErrorCode::H3_NO_ERROR,
            due_ns: u64::MAX,
        })
    }
}

fn state_of(socket: &OwnedFd) -> io::Result<UdpSocketState> {
    let state = UdpSocketState::new(socket.into())?;
    // The system may allow less.
    let _ = state.set_recv_buffer_size(socket.into(), WINDOW_BYTES as usize);
    Ok(state)
}

/// How much a server may send at once: what a socket has room for, so that datagrams that the
/// generator loses do not count as the server's latency. The system's overhead takes the other
/// half of the buffer.
fn window(target: SocketAddr) -> io::Result<VarInt> {
    let socket = sys::socket(target, SocketType::DGRAM)?;
    let bytes = state_of(&socket)?.recv_buffer_size((&socket).into())? / 2;
    Ok(VarInt::from_u32(u32::try_from(bytes).map_or(WINDOW_BYTES, |b| b.min(WINDOW_BYTES))))
}

/// A connection.
pub(super) struct Http3 {
    handle: ConnectionHandle,
    quinn: quinn_proto::Connection,
    socket: UdpSocketState,
    http3: http3::Connection,
    /// Streams of the server with one direction.
    uni: Vec<(StreamId, UniStream)>,
    /// The response of each lane.
    messages: Vec<MessageStream>,
    /// What streams have not taken.
    unsent: Vec<(StreamId, Vec<u8>)>,
    /// The handshake is complete.
    pub(super) is_connected: bool,
    /// The server processes no more requests, or has broken the protocol.
    pub(super) goes_away: bool,
    /// The code of our close.
    code: ErrorCode,
    /// The timer of this connection in `Quic::due`; `u64::MAX` if there is none.
    due_ns: u64,
}

impl Http3 {
    /// Sends a request. `None`: the server allows no more streams. `out` is empty before and after.
    pub(super) fn send_request<'f>(
        &mut self,
        head: &RequestFields<'_>,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        place: usize,
        out: &mut Vec<u8>,
    ) -> Option<u64> {
        if self.goes_away {
            return None;
        }
        let id = self.quinn.streams().open(Dir::Bi)?;
        self.messages[place] = MessageStream::response(false);
        write::request(head, fields, out);
        self.write(id, out);
        out.clear();
        Some(id.into())
    }

    /// Writes to a stream, and ends it if it is that of a request.
    fn write(&mut self, id: StreamId, bytes: &[u8]) {
        let mut stream = self.quinn.send_stream(id);
        let mut at = 0;
        while at < bytes.len() {
            match stream.write(&bytes[at..]) {
                Ok(count) => at += count,
                Err(WriteError::Blocked) => return self.unsent.push((id, bytes[at..].to_vec())),
                // The response says why, or the end of the connection.
                Err(_) => return,
            }
        }
        if id.dir() == Dir::Bi {
            let _ = stream.finish();
        }
    }

    /// Gives up a request.
    pub(super) fn cancel(&mut self, stream: u64) {
        let Ok(id) = VarInt::from_u64(stream).map(StreamId::from) else { return };
        let code = number(ErrorCode::H3_REQUEST_CANCELLED);
        self.unsent.retain(|(other, _)| *other != id);
        let _ = self.quinn.send_stream(id).reset(code);
        let _ = self.quinn.recv_stream(id).stop(code);
    }

    /// Receives what the socket has, or runs the timers, and handles what has come. An error ends
    /// the connection.
    pub(super) fn turn(
        &mut self,
        cause: Cause,
        quic: &mut Quic,
        socket: &OwnedFd,
        requests: &mut Requests,
        lanes: &mut Lanes,
        now_ns: u64,
    ) -> io::Result<()> {
        match cause {
            Cause::Socket => self.receive(quic, socket, now_ns)?,
            Cause::Timer => self.quinn.handle_timeout(quic.at(now_ns)),
        }
        while let Some(event) = self.quinn.poll_endpoint_events() {
            if let Some(answer) = quic.endpoint.handle_event(self.handle, event) {
                self.quinn.handle_event(answer);
            }
        }
        while let Some(event) = self.quinn.poll() {
            let done = match event {
                QuicEvent::Connected => {
                    self.connected();
                    Ok(())
                }
                QuicEvent::ConnectionLost { reason } => return Err(error_of(reason)),
                QuicEvent::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                    self.opened(requests, now_ns)
                }
                QuicEvent::Stream(StreamEvent::Readable { id }) if id.dir() == Dir::Uni => {
                    self.read_uni(id, requests, now_ns)
                }
                QuicEvent::Stream(StreamEvent::Readable { id }) => {
                    self.read_response(id, requests, lanes, &mut quic.scratch)
                }
                QuicEvent::Stream(StreamEvent::Writable { id }) => {
                    self.write_unsent(id);
                    Ok(())
                }
                _ => Ok(()),
            };
            if let Err(e) = done {
                self.code = e.0.code();
                self.goes_away = true;
                return Err(io::Error::new(io::ErrorKind::InvalidData, e));
            }
        }
        Ok(())
    }

    fn receive(&mut self, quic: &mut Quic, socket: &OwnedFd, now_ns: u64) -> io::Result<()> {
        let now = quic.at(now_ns);
        let mut rooms = quic.input.chunks_mut(RECEIVE_BYTES).map(IoSliceMut::new);
        let mut rooms: [_; RECEIVES] =
            array::from_fn(|_| rooms.next().expect("there is room for all"));
        let mut met = [RecvMeta::default(); RECEIVES];
        let count = match self.socket.recv(socket.into(), &mut rooms, &mut met) {
            Ok(count) => count,
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => return Err(e),
            // Nothing has come, or an ICMP message which QUIC does without: a router wants smaller
            // datagrams.
            Err(_) => 0,
        };
        for (room, meta) in rooms.iter().zip(&met[..count]) {
            let ecn = meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
            let mut bytes = BytesMut::from(&room[..meta.len]);
            while !bytes.is_empty() {
                let datagram = bytes.split_to(meta.stride.clamp(1, bytes.len()));
                quic.output.clear();
                let event =
                    quic.endpoint.handle(now, quic.target, None, ecn, datagram, &mut quic.output);
                if let Some(DatagramEvent::ConnectionEvent(handle, event)) = event
                    && handle == self.handle
                {
                    self.quinn.handle_event(event);
                }
            }
        }
        Ok(())
    }

    /// The handshake is complete: opens our control stream.
    fn connected(&mut self) {
        self.is_connected = true;
        if let Some(id) = self.quinn.streams().open(Dir::Uni) {
            let mut settings = Vec::new();
            write::control(&Limits::DEFAULT, &mut settings);
            self.write(id, &settings);
        }
    }

    fn write_unsent(&mut self, id: StreamId) {
        if let Some(at) = self.unsent.iter().position(|(other, _)| *other == id) {
            let (_, bytes) = self.unsent.swap_remove(at);
            self.write(id, &bytes);
        }
    }

    /// The server has opened streams.
    fn opened(&mut self, requests: &mut Requests, now_ns: u64) -> Result<(), http3::Error> {
        while let Some(id) = self.quinn.streams().accept(Dir::Uni) {
            self.uni.push((id, UniStream::default()));
            self.read_uni(id, requests, now_ns)?;
        }
        Ok(())
    }

    fn read_uni(
        &mut self,
        id: StreamId,
        requests: &mut Requests,
        now_ns: u64,
    ) -> Result<(), http3::Error> {
        let Some((_, uni)) = self.uni.iter_mut().find(|(other, _)| *other == id) else {
            return Ok(());
        };
        let mut stream = self.quinn.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return Ok(()) };
        let is_over = loop {
            let (bytes, is_end) = match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => (chunk.bytes, false),
                Ok(None) => (Bytes::new(), true),
                Err(ReadError::Blocked) => break false,
                Err(ReadError::Reset(_)) => {
                    uni.reset()?;
                    break true;
                }
            };
            let mut rest = &bytes[..];
            while let (used, Some(control)) =
                self.http3.next_event(uni, rest, is_end, now_ns / 1_000_000)?
            {
                rest = &rest[used..];
                if let Control::GoAway(first) = control {
                    self.goes_away = true;
                    requests.not_processed(first);
                }
            }
            if is_end {
                break true;
            }
        };
        let _ = chunks.finalize();
        if is_over {
            self.uni.retain(|(other, _)| *other != id);
        }
        Ok(())
    }

    fn read_response(
        &mut self,
        id: StreamId,
        requests: &mut Requests,
        lanes: &mut Lanes,
        scratch: &mut Scratch,
    ) -> Result<(), http3::Error> {
        let Some(lane) = requests.lane_of(id.into()) else { return Ok(()) };
        let message = &mut self.messages[lanes.place(lane)];
        let mut stream = self.quinn.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return Ok(()) };
        let end = 'all: loop {
            let (bytes, is_end) = match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => (chunk.bytes, false),
                Ok(None) => (Bytes::new(), true),
                Err(ReadError::Blocked) => return Ok(()),
                Err(ReadError::Reset(_)) => break Err(ErrorKind::Reset),
            };
            let mut rest = &bytes[..];
            loop {
                let received = match message.next_event(rest, is_end, scratch, &Limits::DEFAULT) {
                    Ok(received) => received,
                    Err(e) if e.0.scope() == Scope::Connection => return Err(e),
                    Err(_) => break 'all Err(ErrorKind::BadFraming),
                };
                rest = &rest[received.consumed..];
                match received.event {
                    Some(Event::Response(head)) => requests.answered(lanes, lane, &head),
                    Some(Event::Data(bytes)) => lanes.take(lane, bytes),
                    Some(Event::End) => break 'all Ok(()),
                    Some(Event::Trailers(_)) => {}
                    // It is not the server that sends requests.
                    Some(Event::Request(_)) => return Err(Reason::FrameUnexpected.into()),
                    None => break,
                }
            }
        };
        let _ = chunks.finalize();
        if end == Err(ErrorKind::BadFraming) {
            let _ = stream.stop(number(ErrorCode::H3_MESSAGE_ERROR));
        }
        requests.ended(lanes, id.into(), end);
        Ok(())
    }

    /// Sends the datagrams that are due, and sets the next timer.
    pub(super) fn transmit(&mut self, link: u32, quic: &mut Quic, socket: &OwnedFd, now_ns: u64) {
        let now = quic.at(now_ns);
        let segments = self.socket.max_gso_segments().min(SEGMENTS_MAX);
        loop {
            quic.output.clear();
            let Some(sent) = self.quinn.poll_transmit(now, segments, &mut quic.output) else {
                break;
            };
            let transmit = Transmit {
                destination: sent.destination,
                ecn: sent.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
                contents: &quic.output[..sent.size],
                segment_size: sent.segment_size,
                src_ip: sent.src_ip,
            };
            let _ = self.socket.try_send(socket.into(), &transmit);
        }
        let due_ns = self.quinn.poll_timeout().map_or(u64::MAX, |due| {
            let after = due.saturating_duration_since(quic.origin.0);
            quic.origin.1 + after.as_nanos() as u64
        });
        if due_ns != self.due_ns {
            quic.due.remove(&(self.due_ns, link));
            quic.due.insert((due_ns, link));
            self.due_ns = due_ns;
        }
    }

    /// Closes the connection, if it is open.
    pub(super) fn close(mut self, link: u32, quic: &mut Quic, socket: &OwnedFd, now_ns: u64) {
        self.quinn.close(quic.at(now_ns), number(self.code), Bytes::new());
        self.transmit(link, quic, socket, now_ns);
        quic.due.remove(&(self.due_ns, link));
        if !self.quinn.is_drained() {
            let _none = quic.endpoint.handle_event(self.handle, EndpointEvent::drained());
        }
    }
}

fn error_of(reason: ConnectionError) -> io::Error {
    match reason {
        ConnectionError::TransportError(e) => io::Error::new(io::ErrorKind::InvalidData, e),
        other => other.into(),
    }
}

fn number(code: ErrorCode) -> VarInt {
    VarInt::from_u64(code.0).unwrap_or(VarInt::MAX)
}
