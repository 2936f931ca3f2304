//! What a simulated client needs to speak HTTP/3: a connection of QUIC on a simulated socket, which
//! a task drives as a kernel drives TCP, and a stream for each request.
//!
//! What never happens: content is read that the scenario has not asked for. A client that reads
//! nothing opens no window.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http2::Scratch;
use http3::{Control, ErrorCode, Event, Limits, MessageStream, UniStream, write};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint,
    Endpoint, EndpointConfig, Event as QuicEvent, ReadError, StreamEvent, StreamId,
    TransportConfig, VarInt,
};
use runtime::net::{DatagramSocket, Outgoing};
use runtime::time::{self, Instant, Sleep};
use runtime::wake;
use rustls::client::Resumption;

use crate::request_text::{Answers, Part, RequestText, bytes_of};
use crate::tls_client;
use crate::world::address;

/// Where clients are: as those of TCP.
const CLIENT: &str = "127.0.0.1:0";
/// So that most content has to wait for the window.
const STREAM_WINDOW_BYTES: u32 = 4000;
const CONNECTION_WINDOW_BYTES: u32 = 64 * 1024;
/// What the client assumes before it has measured: the network of the twin is fast.
const FIRST_ROUND_TRIP: Duration = Duration::from_millis(20);
/// The client gives up when it hears nothing for this long.
const IDLE: Duration = Duration::from_secs(80);

static CONFIG: LazyLock<ClientConfig> = LazyLock::new(|| {
    let mut tls = rustls::ClientConfig::clone(&tls_client::client_config());
    tls.alpn_protocols = vec![b"h3".to_vec()];
    // Another run in this process must not change this one.
    tls.resumption = Resumption::disabled();
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW_BYTES))
        .initial_rtt(FIRST_ROUND_TRIP)
        .max_idle_timeout(Some(IDLE.try_into().unwrap()));
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
    config.transport_config(Arc::new(transport));
    config
});

/// A connection, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Http3(Rc<Shared>);

struct Shared {
    socket: RefCell<DatagramSocket>,
    local: Cell<SocketAddr>,
    /// QUIC counts from the one, the twin from the other.
    started: (std::time::Instant, Instant),
    state: RefCell<State>,
}

struct State {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    quinn: Connection,
    http3: http3::Connection,
    uni: Vec<(StreamId, UniStream)>,
    streams: BTreeMap<StreamId, Stream>,
    text: RequestText,
    /// The stream of the last request, and that of the next one.
    current: Option<StreamId>,
    spare: Option<StreamId>,
    answers: Answers<StreamId>,
    /// The server takes no more requests.
    is_closing: bool,
    is_connected: bool,
    /// Why the connection is over.
    lost: Option<ConnectionError>,
    /// It says nothing any more.
    is_gone: bool,
    /// Tasks: the one that drives the connection, and one that reads.
    driver: Option<Waker>,
    reader: Option<Waker>,
}

/// A stream with a request.
struct Stream {
    message: MessageStream,
    /// What was read and not parsed.
    rest: Vec<u8>,
    unsent: Vec<u8>,
    /// What is unsent is all.
    ends: bool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http3").field("local", &self.local).finish_non_exhaustive()
    }
}

/// Sends the first datagrams of a connection from an address where no client receives the answer.
pub(crate) fn knock(to: &str) {
    Knocker::new(to, CLIENT).send();
}

/// A client that begins handshakes and does not complete them.
pub(crate) struct Knocker {
    socket: DatagramSocket,
    endpoint: Endpoint,
    quinn: Connection,
    now: std::time::Instant,
}

impl Knocker {
    fn new(to: &str, from: &str) -> Knocker {
        let socket = DatagramSocket::bind(address(from)).unwrap();
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None);
        let now = std::time::Instant::now();
        let (_, quinn) = endpoint.connect(now, CONFIG.clone(), address(to), "site").unwrap();
        Knocker { socket, endpoint, quinn, now }
    }

    fn send(&mut self) {
        let mut output = Vec::new();
        while let Some(transmit) = self.quinn.poll_transmit(self.now, 1, &mut output) {
            let contents = &output[..transmit.size];
            let to = transmit.destination;
            let outgoing = Outgoing { contents, segment_bytes: None, to, from: None, ecn: 0 };
            self.socket.try_send(&outgoing).expect("the simulated network has room");
            output.clear();
        }
    }

    /// One that has answered a Retry, if it was sent one, and so has shown its address. From then
    /// on it says nothing.
    pub(crate) async fn after_retry(to: &str, from: &str) -> Knocker {
        let mut knocker = Knocker::new(to, from);
        knocker.send();
        let (mut input, mut unsent) = (vec![0; 2000], Vec::new());
        poll_fn(|cx| knocker.socket.poll_readable(cx)).await.unwrap();
        if let Ok(incoming) = knocker.socket.try_recv(&mut input) {
            let Knocker { endpoint, quinn, now, .. } = &mut knocker;
            let bytes = BytesMut::from(&input[..incoming.bytes]);
            let event = endpoint.handle(*now, incoming.from, None, None, bytes, &mut unsent);
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                quinn.handle_event(event);
            }
            // An answer to anything but a Retry would go on with the handshake.
            if incoming.bytes < 600 {
                knocker.send();
            }
        }
        knocker
    }
}

impl Http3 {
    /// Connects, and waits for the end of the handshake. A connection that the server has refused
    /// ends at once.
    pub(crate) async fn connect(to: &str) -> io::Result<Http3> {
        let socket = DatagramSocket::bind(address(CLIENT))?;
        let local = socket.local_addr()?;
        let started = (std::time::Instant::now(), time::now());
        let mut seed = [0; 32];
        seed[..2].copy_from_slice(&local.port().to_le_bytes());
        let config = Arc::new(EndpointConfig::default());
        let mut endpoint = Endpoint::new(config, None, true, Some(seed));
        let (handle, quinn) =
            endpoint.connect(started.0, CONFIG.clone(), address(to), "site").unwrap();
        let state = State {
            endpoint,
            handle,
            quinn,
            http3: http3::Connection::client(&Limits::DEFAULT),
            uni: Vec::new(),
            streams: BTreeMap::new(),
            text: RequestText::default(),
            current: None,
            spare: None,
            answers: Answers::new(),
            is_closing: false,
            is_connected: false,
            lost: None,
            is_gone: false,
            driver: None,
            reader: None,
        };
        let shared = Rc::new(Shared {
            socket: RefCell::new(socket),
            local: Cell::new(local),
            started,
            state: RefCell::new(state),
        });
        let client = Http3(Rc::clone(&shared));
        let mut timer = time::sleep_until(started.1);
        let driving = async move { poll_fn(|cx| shared.drive(cx, &mut timer)).await };
        runtime::spawn(driving).detach();
        let is_up = |cx: &mut Context<'_>| {
            let state = &mut *client.0.state.borrow_mut();
            match &state.lost {
                Some(ConnectionError::TimedOut) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                None if !state.is_connected => {
                    state.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
                _ => Poll::Ready(Ok(())),
            }
        };
        poll_fn(is_up).await.map(|()| client)
    }

    /// Begins a request, and sends two bytes of its head.
    pub(crate) fn begin_head(&self) {
        let state = &mut *self.0.state.borrow_mut();
        let id = state.spare.take().or_else(|| state.quinn.streams().open(Dir::Bi)).unwrap();
        state.answers.ask(id);
        let message = MessageStream::response(false);
        let stream = Stream { message, rest: Vec::new(), unsent: vec![1, 50], ends: false };
        state.streams.insert(id, stream);
        state.flush(id);
        wake(&mut state.driver);
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.0.local.get()
    }

    /// Turns text into frames. False if the server takes no more requests on this connection.
    pub(crate) fn write(&self, text: &[u8]) -> bool {
        let state = &mut *self.0.state.borrow_mut();
        state.text.push(text);
        state.write_text();
        wake(&mut state.driver);
        !state.is_closing && state.lost.is_none()
    }

    /// Reads what has come of responses, at most about `bytes_max`. 0: the connection has ended.
    pub(crate) async fn read(&self, bytes_max: usize) -> io::Result<usize> {
        poll_fn(|cx| {
            let state = &mut *self.0.state.borrow_mut();
            let read = state.read(bytes_max);
            if read > 0 {
                // What was read may open a window.
                wake(&mut state.driver);
                return Poll::Ready(Ok(read));
            }
            match &state.lost {
                None => {
                    state.reader = Some(cx.waker().clone());
                    Poll::Pending
                }
                // The server's last word may have been lost.
                Some(
                    ConnectionError::ApplicationClosed(_)
                    | ConnectionError::ConnectionClosed(_)
                    | ConnectionError::TimedOut,
                ) => Poll::Ready(Ok(0)),
                Some(_) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            }
        })
        .await
    }

    /// Whether the server has said which requests it takes (GOAWAY).
    pub(crate) fn is_closing(&self) -> bool {
        self.0.state.borrow().is_closing
    }

    /// Whether the connection ended without a word of the server.
    pub(crate) fn has_timed_out(&self) -> bool {
        matches!(self.0.state.borrow().lost, Some(ConnectionError::TimedOut))
    }

    pub(crate) fn with_answers<R>(&self, look: impl FnOnce(&mut Answers<StreamId>) -> R) -> R {
        look(&mut self.0.state.borrow_mut().answers)
    }

    /// The client goes without a word.
    pub(crate) fn vanish(&self) {
        let state = &mut *self.0.state.borrow_mut();
        state.is_gone = true;
        wake(&mut state.driver);
    }

    /// The client moves to another port.
    pub(crate) fn migrate(&self) {
        let socket = DatagramSocket::bind(address(CLIENT)).unwrap();
        self.0.local.set(socket.local_addr().unwrap());
        *self.0.socket.borrow_mut() = socket;
        let state = &mut *self.0.state.borrow_mut();
        state.quinn.local_address_changed();
        wake(&mut state.driver);
    }
}

impl Drop for Http3 {
    fn drop(&mut self) {
        let now = self.0.now();
        let state = &mut *self.0.state.borrow_mut();
        state.quinn.close(now, number(ErrorCode::H3_NO_ERROR), Bytes::new());
        wake(&mut state.driver);
    }
}

impl Shared {
    fn now(&self) -> std::time::Instant {
        self.started.0 + self.started.1.elapsed()
    }

    /// Ready when the connection is over and answers no late datagrams any more.
    fn drive(&self, cx: &mut Context<'_>, timer: &mut Sleep) -> Poll<()> {
        let state = &mut *self.state.borrow_mut();
        if state.is_gone || state.quinn.is_drained() {
            return Poll::Ready(());
        }
        state.driver = Some(cx.waker().clone());
        let socket = self.socket.borrow();
        let mut input = vec![0; 2000];
        while socket.poll_readable(cx).is_ready() {
            while let Ok(incoming) = socket.try_recv(&mut input) {
                let ecn = EcnCodepoint::from_bits(incoming.ecn);
                let bytes = BytesMut::from(&input[..incoming.bytes]);
                let (from, to, mut answer) = (incoming.from, incoming.to, Vec::new());
                let State { endpoint, quinn, .. } = state;
                let event = endpoint.handle(self.now(), from, to, ecn, bytes, &mut answer);
                match event {
                    Some(DatagramEvent::ConnectionEvent(_, event)) => quinn.handle_event(event),
                    // A datagram for a connection that the client has closed is not answered.
                    Some(DatagramEvent::Response(_)) | None => {}
                    Some(DatagramEvent::NewConnection(_)) => {
                        panic!("a server connects to a client")
                    }
                }
            }
        }
        while state.quinn.poll_timeout().is_some_and(|due| due <= self.now()) {
            state.quinn.handle_timeout(self.now());
        }
        while let Some(event) = state.quinn.poll_endpoint_events() {
            if let Some(event) = state.endpoint.handle_event(state.handle, event) {
                state.quinn.handle_event(event);
            }
        }
        while let Some(event) = state.quinn.poll() {
            state.event(event);
        }
        let mut output = Vec::new();
        let segments_max = socket.segments_max();
        while let Some(transmit) = state.quinn.poll_transmit(self.now(), segments_max, &mut output)
        {
            let outgoing = Outgoing {
                contents: &output[..transmit.size],
                segment_bytes: transmit.segment_size,
                to: transmit.destination,
                from: transmit.src_ip,
                ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
            };
            socket.try_send(&outgoing).expect("the simulated network has room");
            output.clear();
        }
        if let Some(due) = state.quinn.poll_timeout() {
            timer.reset(self.started.1 + due.saturating_duration_since(self.started.0));
            if Pin::new(timer).poll(cx).is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        Poll::Pending
    }
}

impl State {
    fn event(&mut self, event: QuicEvent) {
        match event {
            QuicEvent::Connected => {
                self.is_connected = true;
                let control = self.quinn.streams().open(Dir::Uni).expect("three at least");
                let mut bytes = Vec::new();
                write::control(&Limits::DEFAULT, &mut bytes);
                let sent = self.quinn.send_stream(control).write(&bytes);
                assert_eq!(sent, Ok(bytes.len()));
            }
            QuicEvent::ConnectionLost { reason } => self.lost = Some(reason),
            QuicEvent::Stream(StreamEvent::Opened { dir: Dir::Uni }) => {
                while let Some(id) = self.quinn.streams().accept(Dir::Uni) {
                    self.uni.push((id, UniStream::default()));
                }
                self.read_uni();
            }
            QuicEvent::Stream(StreamEvent::Readable { id }) if id.dir() == Dir::Uni => {
                self.read_uni();
            }
            QuicEvent::Stream(StreamEvent::Writable { id }) => self.flush(id),
            QuicEvent::Stream(StreamEvent::Stopped { id, .. }) => {
                // The server does not want the rest.
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.unsent.clear();
                    stream.ends = false;
                }
            }
            QuicEvent::Stream(StreamEvent::Available { .. }) => self.write_text(),
            _ => {}
        }
        wake(&mut self.reader);
    }

    fn write_text(&mut self) {
        loop {
            if self.spare.is_none() && self.lost.is_none() {
                self.spare = self.quinn.streams().open(Dir::Bi);
            }
            if self.is_closing {
                return;
            }
            let Some(part) = self.text.next(self.spare.is_some()) else { return };
            if let Part::Head(head) = &part {
                let id = self.spare.take().expect("it may begin");
                self.answers.ask(id);
                self.current = Some(id);
                let message = MessageStream::response(head.method == "HEAD");
                let stream = Stream { message, rest: Vec::new(), unsent: Vec::new(), ends: false };
                self.streams.insert(id, stream);
            }
            let id = self.current.expect("a request comes before its content");
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            match part {
                Part::Head(head) => {
                    write::request(&head.request("https"), head.fields(), &mut stream.unsent);
                    stream.ends = head.ends;
                }
                Part::Content(content, ends) => {
                    if !content.is_empty() {
                        write::data(content.len() as u64, &mut stream.unsent);
                        stream.unsent.extend_from_slice(&content);
                    }
                    stream.ends = ends;
                }
                Part::Trailers(fields) => {
                    write::trailers(bytes_of(&fields), &mut stream.unsent);
                    stream.ends = true;
                }
            }
            self.flush(id);
        }
    }

    /// Sends as far as the windows allow.
    fn flush(&mut self, id: StreamId) {
        let State { quinn, streams, .. } = self;
        let Some(stream) = streams.get_mut(&id) else { return };
        while !stream.unsent.is_empty() {
            match quinn.send_stream(id).write(&stream.unsent) {
                Ok(sent) => drop(stream.unsent.drain(..sent)),
                Err(_) => return,
            }
        }
        if stream.ends {
            stream.ends = false;
            // An error: the server does not want it.
            let _ = quinn.send_stream(id).finish();
        }
    }

    /// Reads streams that say something about the connection.
    fn read_uni(&mut self) {
        let State { quinn, http3, uni, answers, is_closing, .. } = self;
        for (id, stream) in uni {
            loop {
                let mut bytes = Vec::new();
                if read(quinn, *id, usize::MAX, &mut bytes) != Read::Some {
                    break;
                }
                let mut at = 0;
                loop {
                    let got = http3.next_event(stream, &bytes[at..], false, 0);
                    let (used, event) = got.expect("the server breaks no rule");
                    at += used;
                    match event {
                        None => break,
                        Some(Control::GoAway(first)) => {
                            *is_closing = true;
                            answers.break_if(|id| u64::from(VarInt::from(id)) >= first);
                        }
                        Some(_) => {}
                    }
                }
            }
        }
    }

    /// Reads responses.
    fn read(&mut self, bytes_max: usize) -> usize {
        let State { quinn, streams, answers, .. } = self;
        let mut total = 0;
        streams.retain(|id, stream| {
            while total < bytes_max {
                let before = stream.rest.len();
                let read = read(quinn, *id, bytes_max - total, &mut stream.rest);
                total += stream.rest.len() - before;
                // The scenario knows already that there will be none.
                let Some(answer) = answers.get(*id) else { return false };
                match read {
                    Read::Nothing => return true,
                    // Something has happened, but no bytes came.
                    Read::End | Read::Reset => total += 1,
                    Read::Some => {}
                }
                if read == Read::Reset {
                    answer.is_broken = !answer.is_whole;
                    return false;
                }
                let mut scratch = Scratch::new();
                let mut at = 0;
                loop {
                    let input = &stream.rest[at..];
                    let is_end = read == Read::End;
                    let message = &mut stream.message;
                    let got = message.next_event(input, is_end, &mut scratch, &Limits::DEFAULT);
                    let got = got.expect("the server breaks no rule");
                    at += got.consumed;
                    match got.event {
                        Some(Event::Response(head)) => answer.head(&head),
                        Some(Event::Data(bytes)) => answer.content(bytes),
                        Some(Event::End) => answer.is_whole = true,
                        Some(Event::Request(_)) => panic!("the server asks"),
                        Some(Event::Trailers(_)) => {}
                        None => break,
                    }
                }
                stream.rest.drain(..at);
                if read == Read::End {
                    return false;
                }
            }
            true
        });
        total
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    Some,
    Nothing,
    End,
    Reset,
}

fn read(quinn: &mut Connection, id: StreamId, bytes_max: usize, out: &mut Vec<u8>) -> Read {
    let mut stream = quinn.recv_stream(id);
    let Ok(mut chunks) = stream.read(true) else { return Read::Nothing };
    let read = match chunks.next(bytes_max) {
        Ok(Some(chunk)) => {
            out.extend_from_slice(&chunk.bytes);
            Read::Some
        }
        Ok(None) => Read::End,
        Err(ReadError::Blocked) => Read::Nothing,
        Err(ReadError::Reset(_)) => Read::Reset,
    };
    let _ = chunks.finalize();
    read
}

fn number(code: ErrorCode) -> VarInt {
    VarInt::from_u64(code.0).unwrap()
}
