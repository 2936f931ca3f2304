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
//! What never happens: a clock is read here; more than the windows below is buffered.

use std::array;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
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
    Chunks, ClientConfig, ConnectionError, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint,
    Endpoint, EndpointConfig, EndpointEvent, Event as QuicEvent, ReadError, StreamEvent, StreamId,
    TransportConfig, VarInt, WriteError,
};
use quinn_udp::{RecvMeta, Transmit, UdpSocketState};

use super::multiplexed::{Lanes, Requests, WINDOW_BYTES};
use crate::outcome::ErrorKind;
use crate::plan::Plan;
use crate::sys::{self, would_block};
use crate::tls::Tls;

/// Groups of datagrams that one call receives, and the room for each.
const RECEIVES: usize = 4;
const RECEIVE_BYTES: usize = 64 * 1024;
/// Datagrams that one call sends.
const SEGMENTS_MAX: usize = 16;
/// Unidirectional streams of a server: three that HTTP/3 has, and some of unknown types.
const UNI_STREAMS_MAX: u32 = 8;

/// What the connections of a run share.
pub(super) struct Quic {
    endpoint: Endpoint,
    /// For connections that carry requests. A server that is silent for too long is given up.
    hot: ClientConfig,
    cold: ClientConfig,
    target: SocketAddr,
    host: String,
    /// The same instant on both clocks.
    origin: (Instant, u64),
    input: Box<[u8]>,
    output: Vec<u8>,
    /// Timers: (ns, link). A link has later ones than it needs, which do nothing.
    due: BinaryHeap<Reverse<(u64, u32)>>,
}

impl Quic {
    pub(super) fn new(plan: &Plan, tls: &Tls) -> Result<Quic, String> {
        let crypto = QuicClientConfig::try_from(Arc::clone(&tls.config));
        let crypto = Arc::new(crypto.map_err(|e| e.to_string())?);
        let streams = plan.protocol.streams().unwrap_or(1);
        let config = |is_hot: bool| {
            let mut transport = TransportConfig::default();
            transport
                .max_concurrent_bidi_streams(VarInt::from_u32(0))
                .max_concurrent_uni_streams(VarInt::from_u32(UNI_STREAMS_MAX))
                .stream_receive_window(VarInt::from_u32(WINDOW_BYTES))
                .receive_window(VarInt::from_u32(WINDOW_BYTES * streams.min(16)))
                .datagram_receive_buffer_size(None);
            if !is_hot {
                transport.max_idle_timeout(None);
            }
            let mut config = ClientConfig::new(Arc::clone(&crypto) as Arc<_>);
            config.transport_config(Arc::new(transport));
            config
        };
        Ok(Quic {
            endpoint: Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None),
            hot: config(true),
            cold: config(false),
            target: plan.target.addr,
            host: plan.target.host().to_owned(),
            origin: (Instant::now(), sys::mono_ns()),
            input: vec![0; RECEIVES * RECEIVE_BYTES].into_boxed_slice(),
            output: Vec::new(),
            due: BinaryHeap::new(),
        })
    }

    fn at(&self, now_ns: u64) -> Instant {
        self.origin.0 + Duration::from_nanos(now_ns.saturating_sub(self.origin.1))
    }

    /// When the next timer is due, ns.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.due.peek().map(|Reverse((due_ns, _))| *due_ns)
    }

    /// Takes a timer that is due: its instant and its link.
    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<(u64, u32)> {
        self.next_due().filter(|due_ns| *due_ns <= now_ns)?;
        self.due.pop().map(|Reverse(timer)| timer)
    }

    /// Begins a connection that carries up to so many requests at a time; none if it is cold.
    pub(super) fn connect(
        &mut self,
        socket: &OwnedFd,
        streams: usize,
        now_ns: u64,
    ) -> io::Result<Http3> {
        let config = if streams > 0 { &self.hot } else { &self.cold };
        let (now, config) = (self.at(now_ns), config.clone());
        let connected = self.endpoint.connect(now, config, self.target, &self.host);
        let (handle, quinn) = connected.map_err(io::Error::other)?;
        let state = UdpSocketState::new(socket.into())?;
        // The system may allow less: then bursts are lost more often.
        let _ = state.set_recv_buffer_size(socket.into(), WINDOW_BYTES as usize);
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
    /// The server processes no more requests.
    pub(super) goes_away: bool,
    /// The code of our close.
    code: ErrorCode,
    /// The earliest timer of this connection in `Quic::due`.
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

    /// Receives what the socket has.
    pub(super) fn receive(
        &mut self,
        quic: &mut Quic,
        socket: &OwnedFd,
        now_ns: u64,
    ) -> io::Result<()> {
        let now = quic.at(now_ns);
        let mut rooms = quic.input.chunks_mut(RECEIVE_BYTES).map(IoSliceMut::new);
        let mut rooms: [_; RECEIVES] =
            array::from_fn(|_| rooms.next().expect("there is room for all"));
        let mut met = [RecvMeta::default(); RECEIVES];
        let count = match self.socket.recv(socket.into(), &mut rooms, &mut met) {
            Ok(count) => count,
            Err(e) if would_block(&e) => 0,
            Err(e) => return Err(e),
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

    /// Runs the timers of QUIC, if this is not one that was replaced by an earlier one.
    pub(super) fn expire(&mut self, quic: &Quic, due_ns: u64, now_ns: u64) -> bool {
        let is_next = self.due_ns == due_ns;
        if is_next {
            self.due_ns = u64::MAX;
            let now = quic.at(now_ns);
            if self.quinn.poll_timeout().is_some_and(|due| due <= now) {
                self.quinn.handle_timeout(now);
            }
        }
        is_next
    }

    /// Handles what has come. An error ends the connection.
    pub(super) fn advance(
        &mut self,
        quic: &mut Quic,
        requests: &mut Requests,
        lanes: &mut Lanes,
        scratch: &mut Scratch,
        now_ns: u64,
    ) -> io::Result<()> {
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
                    self.opened(requests, lanes, now_ns)
                }
                QuicEvent::Stream(StreamEvent::Readable { id }) if id.dir() == Dir::Uni => {
                    self.read_uni(id, requests, lanes, now_ns)
                }
                QuicEvent::Stream(StreamEvent::Readable { id }) => {
                    self.read_response(id, requests, lanes, scratch)
                }
                QuicEvent::Stream(StreamEvent::Writable { id }) => {
                    self.write_unsent(id);
                    Ok(())
                }
                _ => Ok(()),
            };
            if let Err(e) = done {
                self.code = e.0.code();
                return Err(io::Error::new(io::ErrorKind::InvalidData, e));
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
    fn opened(
        &mut self,
        requests: &mut Requests,
        lanes: &mut Lanes,
        now_ns: u64,
    ) -> Result<(), http3::Error> {
        while let Some(id) = self.quinn.streams().accept(Dir::Uni) {
            self.uni.push((id, UniStream::default()));
            self.read_uni(id, requests, lanes, now_ns)?;
        }
        Ok(())
    }

    fn read_uni(
        &mut self,
        id: StreamId,
        requests: &mut Requests,
        lanes: &mut Lanes,
        now_ns: u64,
    ) -> Result<(), http3::Error> {
        let Some((_, uni)) = self.uni.iter_mut().find(|(other, _)| *other == id) else {
            return Ok(());
        };
        let mut stream = self.quinn.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return Ok(()) };
        let is_over = loop {
            let (bytes, is_end) = match next(&mut chunks) {
                Some(Some(part)) => part,
                Some(None) => {
                    uni.reset()?;
                    break true;
                }
                None => break false,
            };
            let mut rest = &bytes[..];
            while let (used, Some(control)) =
                self.http3.next_event(uni, rest, is_end, now_ns / 1_000_000)?
            {
                rest = &rest[used..];
                if let Control::GoAway(first) = control {
                    self.goes_away = true;
                    requests.not_processed(lanes, first);
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
            let (bytes, is_end) = match next(&mut chunks) {
                Some(Some(part)) => part,
                Some(None) => break Err(ErrorKind::Reset),
                None => return Ok(()),
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
        if let Some(due) = self.quinn.poll_timeout() {
            let after = due.saturating_duration_since(quic.origin.0);
            let due_ns = quic.origin.1 + after.as_nanos() as u64;
            if due_ns < self.due_ns {
                self.due_ns = due_ns;
                quic.due.push(Reverse((due_ns, link)));
            }
        }
    }

    /// Closes the connection, if it is open.
    pub(super) fn close(mut self, link: u32, quic: &mut Quic, socket: &OwnedFd, now_ns: u64) {
        self.quinn.close(quic.at(now_ns), number(self.code), Bytes::new());
        self.transmit(link, quic, socket, now_ns);
        let _none = quic.endpoint.handle_event(self.handle, EndpointEvent::drained());
    }
}

/// The next part of a stream, and whether it is its end. `Some(None)`: the server has reset it.
fn next(chunks: &mut Chunks<'_>) -> Option<Option<(Bytes, bool)>> {
    match chunks.next(usize::MAX) {
        Ok(Some(chunk)) => Some(Some((chunk.bytes, false))),
        Ok(None) => Some(Some((Bytes::new(), true))),
        Err(ReadError::Blocked) => None,
        Err(ReadError::Reset(_)) => Some(None),
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
