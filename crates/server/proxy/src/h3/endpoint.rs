//! One UDP socket of a core, and the QUIC connections of its clients.
//!
//! Each core has a socket of the same address (SO_REUSEPORT), and the kernel chooses one by the
//! addresses of a datagram: all datagrams of a handshake come to the same core, which owns the
//! connection from then on. Later ones carry our connection id. If a client has moved, they may
//! arrive at another core, and after a restart in place at another process (`core_io::strays`).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use core_io::strays::{Header, ID_BYTES, Owner, Stray, id_of};
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    ConnectionHandle, ConnectionId, ConnectionIdGenerator, DatagramEvent, EcnCodepoint,
    EndpointConfig, IdleTimeout, ServerConfig, Transmit, TransportConfig, VarInt,
};
use runtime::net::{DatagramSocket, Incoming, Outgoing};
use runtime::sync::Inbox;
use runtime::time::{self, Instant};
use transport::shares::{Share, Shares};

use super::limits::{
    CONNECTION_WINDOW_BYTES, DATAGRAM_BYTES_MAX, HANDSHAKES_MAX, INCOMING_BYTES_MAX, RECEIVE_BYTES,
    RECEIVES_PER_TURN_MAX, RETRY_LIFETIME, STREAM_WINDOW_BYTES, STREAMS_MAX, UNI_STREAMS_MAX,
    UNVALIDATED_MAX,
};
use super::link::Link;
use exchange::Shared;
use exchange::Worker;
use exchange::listener::ListenerContext;

/// A listener for HTTP/3.
pub struct Endpoint {
    pub(super) worker: Rc<Worker>,
    pub(super) socket: DatagramSocket,
    /// The address that clients send to.
    local: SocketAddr,
    /// The number of this core.
    core: u16,
    strays: RefCell<Inbox<Stray>>,
    pub(super) clock: Clock,
    pub(super) quinn: RefCell<quinn_proto::Endpoint>,
    listener: RefCell<Rc<ListenerContext>>,
    links: RefCell<BTreeMap<ConnectionHandle, Rc<Link>>>,
    /// Room for datagrams to send, for one connection at a time.
    pub(super) output: RefCell<Vec<u8>>,
    /// Connections that wait for the socket to take more.
    waiting: RefCell<Vec<Waker>>,
    /// The task that receives.
    waker: RefCell<Option<Waker>>,
    /// Handshakes in progress: all, and those whose client's address is not validated.
    handshakes: Rc<Shares>,
    unvalidated: Cell<usize>,
    life: Cell<Life>,
}

/// Whether an endpoint accepts connections, and receives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    Open,
    /// It receives for the connections that it has.
    Closing,
    /// Another process has the socket, and passes on what belongs here.
    Left,
    /// It receives nothing any more.
    Ended,
}

/// A handshake in progress.
pub(super) struct Handshake {
    endpoint: Rc<Endpoint>,
    is_validated: bool,
    share: Share,
}

impl Handshake {
    /// At the limit, the client network that has the most of them loses its oldest.
    fn new(endpoint: &Rc<Endpoint>, from: IpAddr, is_validated: bool) -> Handshake {
        let Endpoint { handshakes, unvalidated, .. } = &**endpoint;
        unvalidated.set(unvalidated.get() + usize::from(!is_validated));
        let share = handshakes.share(from);
        share.set(1);
        Handshake { endpoint: Rc::clone(endpoint), is_validated, share }
    }

    pub(super) fn was_evicted(&self) -> bool {
        self.share.is_evicted()
    }

    /// Whether its place was needed. If not, the task is woken when it is.
    pub(super) fn is_evicted(&self, cx: &mut Context<'_>) -> bool {
        self.share.poll_evicted(cx).is_ready()
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        let unvalidated = &self.endpoint.unvalidated;
        unvalidated.set(unvalidated.get() - usize::from(!self.is_validated));
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("socket", &self.socket).finish_non_exhaustive()
    }
}

/// The clock of QUIC, which is that of the core.
pub(super) struct Clock {
    theirs: std::time::Instant,
    ours: Instant,
}

impl Clock {
    pub(super) fn now(&self) -> std::time::Instant {
        self.theirs + self.ours.elapsed()
    }

    pub(super) fn at(&self, theirs: std::time::Instant) -> Instant {
        self.ours + theirs.saturating_duration_since(self.theirs)
    }
}

impl Endpoint {
    /// An endpoint of this core.
    ///
    /// # Errors
    /// The listener has no TLS that QUIC can use.
    pub fn new(
        worker: Rc<Worker>,
        listener: Rc<ListenerContext>,
        socket: DatagramSocket,
        core: u16,
    ) -> io::Result<Rc<Endpoint>> {
        let mut config = EndpointConfig::default();
        config.max_udp_payload_size(DATAGRAM_BYTES_MAX).map_err(io::Error::other)?;
        let shared = Arc::clone(&worker.shared);
        config.rng_seed(worker.shared.hash_seed.map(|seed| rng_seed(seed, core)));
        config.cid_generator(move || Box::new(Ids::new(Arc::clone(&shared), core)));
        let local = socket.local_addr()?;
        let strays = RefCell::new(worker.shared.strays.open(local, core));
        let server = server_config(&worker, &listener)?;
        let may_probe = !socket.may_fragment();
        let quinn =
            quinn_proto::Endpoint::new(Arc::new(config), Some(Arc::new(server)), may_probe, None);
        Ok(Rc::new(Endpoint {
            worker,
            socket,
            local,
            core,
            strays,
            clock: Clock { theirs: std::time::Instant::now(), ours: time::now() },
            quinn: RefCell::new(quinn),
            listener: RefCell::new(listener),
            links: RefCell::default(),
            output: RefCell::default(),
            waiting: RefCell::default(),
            waker: RefCell::default(),
            handshakes: Shares::new(HANDSHAKES_MAX as u64),
            unvalidated: Cell::new(0),
            life: Cell::new(Life::Open),
        }))
    }

    /// Puts another configuration in force for new connections.
    ///
    /// # Errors
    /// As [`Endpoint::new`]; nothing has changed then.
    pub fn replace_listener(&self, listener: Rc<ListenerContext>) -> io::Result<()> {
        let server = server_config(&self.worker, &listener)?;
        self.quinn.borrow_mut().set_server_config(Some(Arc::new(server)));
        self.listener.replace(listener);
        Ok(())
    }

    /// Accepts no more. Each connection ends when its requests have been answered.
    pub fn close(&self) {
        self.turn_to(Life::Closing);
    }

    /// Accepts connections again after [`Endpoint::close`]. Those that were open end all the same.
    /// False if it has ended.
    ///
    /// # Errors
    /// As [`Endpoint::new`]; nothing has changed then.
    pub fn reopen(&self, listener: Rc<ListenerContext>) -> io::Result<bool> {
        if self.life.get() != Life::Closing {
            return Ok(false);
        }
        self.replace_listener(listener)?;
        self.turn_to(Life::Open);
        Ok(true)
    }

    /// Leaves the socket to another process, which passes on what belongs to our connections. Each
    /// ends when its requests have been answered.
    pub fn leave(&self) {
        self.turn_to(Life::Left);
    }

    /// Goes on to another life, from which its connections learn whether they are to end.
    fn turn_to(&self, life: Life) {
        self.life.set(life);
        self.links.borrow().values().for_each(|link| link.wake());
        self.wake();
    }

    /// Wakes the task that receives.
    fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Whether no more connections are accepted.
    pub(super) fn is_closing(&self) -> bool {
        self.life.get() != Life::Open || self.worker.io.is_draining()
    }

    /// Receives until it is closed, or left to another process, and has no connections.
    pub async fn run(self: Rc<Endpoint>) {
        self.receive().await;
        self.life.set(Life::Ended);
    }

    async fn receive(self: &Rc<Endpoint>) {
        let mut input = vec![0; RECEIVE_BYTES].into_boxed_slice();
        loop {
            match poll_fn(|cx| self.poll_ready(cx)).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return tracing::error!(%error, "HTTP/3 is not served"),
            }
            let mut is_empty = false;
            for _ in 0..RECEIVES_PER_TURN_MAX {
                match self.socket.try_recv(&mut input) {
                    Ok(incoming) => self.take(&input, &incoming),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        is_empty = true;
                        break;
                    }
                    // An error of an earlier datagram that we sent.
                    Err(_) => {}
                }
            }
            if !is_empty {
                // Connections have their turn, however much arrives.
                runtime::yield_now().await;
            }
        }
    }

    /// Waits until datagrams have come; false if no more are received.
    fn poll_ready(self: &Rc<Endpoint>, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let life = self.life.get();
        if life != Life::Open && self.links.borrow().is_empty() {
            return Poll::Ready(Ok(false));
        }
        self.waker.replace(Some(cx.waker().clone()));
        while let Poll::Ready(Some(stray)) = self.strays.borrow_mut().poll_recv(cx) {
            self.take_one(&stray.bytes, stray.from, stray.to, stray.ecn);
        }
        if !self.waiting.borrow().is_empty() && self.socket.poll_writable(cx).is_ready() {
            self.waiting.take().into_iter().for_each(Waker::wake);
        }
        if life == Life::Left {
            return Poll::Pending;
        }
        self.socket.poll_readable(cx).map_ok(|()| true)
    }

    /// A connection waits for the socket to take more.
    pub(super) fn wait_for_room(&self, waker: &Waker) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|other| other.will_wake(waker)) {
            waiting.push(waker.clone());
        }
        self.wake();
    }

    /// Takes datagrams that arrived together.
    fn take(self: &Rc<Endpoint>, input: &[u8], incoming: &Incoming) {
        self.worker.io.counters.bytes_received.add(incoming.bytes as u64);
        let Incoming { bytes, segment_bytes, from, to, ecn } = *incoming;
        for datagram in input[..bytes].chunks(segment_bytes.max(1)) {
            if datagram.len() > usize::from(DATAGRAM_BYTES_MAX) {
                continue;
            }
            let strays = &self.worker.shared.strays;
            let stray = || Stray { bytes: datagram.to_vec(), from, to, ecn };
            match id_of(datagram).map(|(id, header)| (strays.owner(id), header)) {
                Some((Owner::Core(core), Header::Short)) if core != self.core => {
                    strays.send(self.local, core, stray());
                }
                Some((Owner::Predecessor, _)) if planted::is(planted::Bug::StraysKept) => {}
                Some((Owner::Predecessor, header)) => {
                    // The client of a handshake may have chosen an id that looks like ours.
                    if !strays.send_back(self.local, &stray()) && header == Header::Long {
                        self.take_one(datagram, from, to, ecn);
                    }
                }
                Some((Owner::Unknown, Header::Short)) => {}
                _ => self.take_one(datagram, from, to, ecn),
            }
        }
    }

    /// Gives a datagram to its connection.
    fn take_one(
        self: &Rc<Endpoint>,
        datagram: &[u8],
        from: SocketAddr,
        to: Option<IpAddr>,
        ecn: u8,
    ) {
        let (now, ecn) = (self.clock.now(), EcnCodepoint::from_bits(ecn));
        let mut response = Vec::new();
        let bytes = BytesMut::from(datagram);
        let event = self.quinn.borrow_mut().handle(now, from, to, ecn, bytes, &mut response);
        match event {
            None => {}
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                let link = self.links.borrow().get(&handle).cloned();
                if let Some(link) = link {
                    link.arrived(event);
                }
            }
            Some(DatagramEvent::NewConnection(first)) => self.accept(first),
            Some(DatagramEvent::Response(transmit)) => self.send_one(&transmit, &response),
        }
    }

    /// Accepts a connection, or not.
    fn accept(self: &Rc<Endpoint>, incoming: quinn_proto::Incoming) {
        let Worker { io, overload, cache, .. } = &*self.worker;
        let mut response = Vec::new();
        let is_full = !io.has_room();
        let is_shed = overload.is_closed() || cache.pressure.is_closed();
        // What was passed on answers our Retry, or began before we left.
        let is_late = self.is_closing() && self.life.get() != Life::Left;
        if is_full {
            // The client tries again, and finds the place that a silent connection leaves.
            io.look_for_room();
            io.counters.connections_refused.add(1);
            return self.quinn.borrow_mut().ignore(incoming);
        }
        if is_late || is_shed {
            let counter = match is_shed {
                true => &io.counters.connections_shed,
                false => &io.counters.connections_refused,
            };
            counter.add(1);
            let transmit = self.quinn.borrow_mut().refuse(incoming, &mut response);
            return self.send_one(&transmit, &response);
        }
        let is_validated = incoming.remote_address_validated();
        let are_many = self.unvalidated.get() >= UNVALIDATED_MAX;
        // An address that anybody can write must not use up what its owner may have.
        if !is_validated && incoming.may_retry() && (are_many || self.worker.counts_connections()) {
            let retry = self.quinn.borrow_mut().retry(incoming, &mut response);
            if let Ok(transmit) = retry {
                self.send_one(&transmit, &response);
            }
            return;
        }
        let listener = Rc::clone(&self.listener.borrow());
        let Ok(counted) = self.worker.count_connection(&listener, incoming.remote_address().ip())
        else {
            let transmit = self.quinn.borrow_mut().refuse(incoming, &mut response);
            return self.send_one(&transmit, &response);
        };
        let from = incoming.remote_address().ip();
        let now = self.clock.now();
        let accepted = self.quinn.borrow_mut().accept(incoming, now, &mut response, None);
        match accepted {
            Ok((handle, connection)) => {
                io.counters.connections_accepted.add(1);
                let handshake = Handshake::new(self, from, is_validated);
                let link = Link::new(self, listener, handle, connection, handshake, counted);
                self.links.borrow_mut().insert(handle, Rc::clone(&link));
                runtime::spawn_detached(link.serve());
            }
            Err(error) => {
                tracing::debug!(cause = %error.cause, "no QUIC with a client");
                io.counters.tls_failures_protocol.add(1);
                if let Some(transmit) = error.response {
                    self.send_one(&transmit, &response);
                }
            }
        }
    }

    /// A connection is over.
    pub(super) fn forget(&self, handle: ConnectionHandle) {
        self.links.borrow_mut().remove(&handle);
        self.wake();
    }

    /// Sends an answer outside of a connection. If there is no room it is lost, as on the way.
    fn send_one(&self, transmit: &Transmit, bytes: &[u8]) {
        let _ = self.send(transmit, bytes);
    }

    /// Sends, if there is room.
    pub(super) fn send(&self, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let contents = &bytes[..transmit.size];
        self.socket.try_send(&Outgoing {
            contents,
            segment_bytes: transmit.segment_size,
            to: transmit.destination,
            from: transmit.src_ip,
            ecn: transmit.ecn.map_or(0, |ecn| ecn as u8),
        })?;
        self.worker.io.counters.bytes_sent.add(contents.len() as u64);
        Ok(())
    }
}

/// Makes connection ids of one core.
struct Ids {
    shared: Arc<Shared>,
    core: u16,
    random: RandomState,
    next: u64,
}

impl Ids {
    fn new(shared: Arc<Shared>, core: u16) -> Ids {
        Ids { shared, core, random: RandomState::new(), next: 0 }
    }
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        self.next += 1;
        ConnectionId::new(&self.shared.strays.id(self.core, self.random.hash_one(self.next)))
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// The seed of QUIC's choices that show in the sizes of datagrams, for a process with a seed.
fn rng_seed(of_process: [u64; 2], core: u16) -> [u8; 32] {
    let [a, b] = of_process.map(u64::to_le_bytes);
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&a);
    seed[8..16].copy_from_slice(&b);
    seed[16..18].copy_from_slice(&core.to_le_bytes());
    seed
}

/// The configuration of QUIC for a listener.
fn server_config(worker: &Worker, listener: &ListenerContext) -> io::Result<ServerConfig> {
    let tls = listener.setup.as_ref().and_then(|setup| setup.tls.as_ref());
    let tls = tls.ok_or_else(|| io::Error::other("HTTP/3 needs TLS"))?;
    let early_data = worker.snapshot().config.routes.iter().any(|route| route.early_data);
    let crypto = QuicServerConfig::try_from(tls.for_quic(early_data)).map_err(io::Error::other)?;
    let limits = worker.io.limits();
    let mut transport = TransportConfig::default();
    // A connection without requests ends by `Link::own_deadline`. This one comes after it, so that
    // the client learns of the end, and must not end those whose upstream takes its time, or whose
    // tunnels are silent.
    let of = &limits.limits;
    let idle = of.idle_keep_alive.max(of.upstream_timeout).max(of.send_timeout);
    let idle = idle.max(of.tunnel_idle) + of.linger_timeout;
    let idle = IdleTimeout::try_from(idle).map_err(io::Error::other)?;
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(STREAMS_MAX))
        .max_concurrent_uni_streams(VarInt::from_u32(UNI_STREAMS_MAX))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW_BYTES))
        // The connection counts what it holds itself.
        .send_window(u64::MAX)
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(Some(idle));
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config
        .transport_config(Arc::new(transport))
        .retry_token_lifetime(RETRY_LIFETIME)
        .max_incoming(HANDSHAKES_MAX)
        .incoming_buffer_size(INCOMING_BYTES_MAX)
        .incoming_buffer_size_total(INCOMING_BYTES_MAX * UNVALIDATED_MAX as u64);
    Ok(config)
}
