//! The sockets that one core accepts from, and how they come and go while it serves.

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use core_io::Draining;
use core_io::limits::ROOM_PAUSE;
use outcome::is_out_of_descriptors;
use proxy::{Http3Endpoint, serve_connection};
use runtime::net::{DatagramSocket, TcpListener, TcpStream};
use runtime::{JoinHandle, time};
use transport::{Transport, canonical};

use crate::limits::ACCEPTS_PER_TURN_MAX;

use crate::change::{DatagramsOfCore, Update};
use config::Listener;
use exchange::Worker;
use exchange::listener::ListenerContext;

/// The context of new connections; a reload replaces it.
type CurrentContext = Rc<RefCell<Rc<ListenerContext>>>;

/// A socket that is accepted from.
struct Open {
    /// The address it is bound to.
    address: SocketAddr,
    socket: Rc<TcpListener>,
    context: CurrentContext,
    accepting: JoinHandle<()>,
}

impl Open {
    fn new(worker: &Rc<Worker>, socket: TcpListener, listener: &Listener) -> Open {
        worker.shared.own.add_of(&socket);
        let context = Rc::new(RefCell::new(ListenerContext::new(listener)));
        let socket = Rc::new(socket);
        let accepting =
            runtime::spawn(accept_all(Rc::clone(worker), Rc::clone(&socket), Rc::clone(&context)));
        Open { address: listener.address, socket, context, accepting }
    }

    /// Accepts the connections that are waiting, and no more. The system has answered these
    /// clients; if no other process holds the socket, closing it would reset them.
    fn close(self, worker: &Rc<Worker>) {
        self.accepting.abort();
        while let Ok((stream, peer)) = self.socket.try_accept() {
            let context = Rc::clone(&self.context.borrow());
            start(worker, &context, stream, peer);
        }
    }
}

/// A socket for HTTP/3.
#[derive(Debug)]
pub(crate) struct Http3Socket {
    pub(crate) socket: DatagramSocket,
    pub(crate) listener: Listener,
    /// The one that it duplicates, until the last connection has ended. `None` in a simulation.
    pub(crate) held: Option<Arc<UdpSocket>>,
}

impl Http3Socket {
    pub(crate) fn of_core((held, listener): DatagramsOfCore) -> io::Result<Http3Socket> {
        let socket = DatagramSocket::from_std(held.try_clone()?)?;
        Ok(Http3Socket { socket, listener, held: Some(held) })
    }
}

/// All sockets that a core accepts from.
pub(crate) struct Listening {
    worker: Rc<Worker>,
    /// The number of the core.
    core: u16,
    open: Vec<Open>,
    /// Those for HTTP/3, by the address they are bound to.
    http3: Vec<(SocketAddr, Rc<Http3Endpoint>)>,
    /// Those whose listeners have no HTTP/3 any more, while they have connections.
    closing: Vec<(SocketAddr, Weak<Http3Endpoint>)>,
}

impl Listening {
    pub(crate) fn new(
        worker: &Rc<Worker>,
        core: u16,
        sockets: Vec<(TcpListener, Listener)>,
        http3: Vec<Http3Socket>,
    ) -> Listening {
        let open = sockets.into_iter().map(|(socket, of)| Open::new(worker, socket, &of));
        let (open, worker) = (open.collect(), Rc::clone(worker));
        let (http3_open, closing) = (Vec::new(), Vec::new());
        let mut listening = Listening { open, http3: http3_open, closing, worker, core };
        for socket in http3 {
            let address = socket.listener.address;
            let opened = listening.new_http3(socket);
            listening.put_http3(address, opened);
        }
        listening
    }

    fn new_http3(&self, socket: Http3Socket) -> io::Result<Rc<Http3Endpoint>> {
        let Http3Socket { socket, listener, held } = socket;
        let context = ListenerContext::new(&listener);
        let endpoint = Http3Endpoint::new(Rc::clone(&self.worker), context, socket, self.core)?;
        let running = Rc::clone(&endpoint).run();
        let run = async move {
            running.await;
            drop(held);
        };
        runtime::spawn(run).detach();
        Ok(endpoint)
    }

    fn put_http3(&mut self, address: SocketAddr, opened: io::Result<Rc<Http3Endpoint>>) {
        match opened {
            Ok(endpoint) => self.http3.push((address, endpoint)),
            Err(error) => tracing::error!(%address, %error, "HTTP/3 is not served"),
        }
    }

    /// Begins HTTP/3 at an address. An endpoint that still has connections there has the same
    /// socket, and takes new ones again.
    fn open_http3(&mut self, of_core: DatagramsOfCore) {
        let address = of_core.1.address;
        if self.http3.iter().any(|(there, _)| *there == address) {
            // It was taken away and given back before this core came to it.
            return;
        }
        let opened = self.reopen_http3(&of_core.1).transpose();
        let opened = opened
            .unwrap_or_else(|| Http3Socket::of_core(of_core).and_then(|it| self.new_http3(it)));
        self.put_http3(address, opened);
    }

    fn reopen_http3(&self, listener: &Listener) -> io::Result<Option<Rc<Http3Endpoint>>> {
        let there = self.closing.iter().filter(|(address, _)| *address == listener.address);
        for endpoint in there.filter_map(|(_, endpoint)| endpoint.upgrade()) {
            if endpoint.reopen(ListenerContext::new(listener))? {
                return Ok(Some(endpoint));
            }
        }
        Ok(None)
    }

    /// Closes the sockets whose listeners have no HTTP/3 any more; the others have another
    /// configuration.
    fn change_http3(&mut self, listeners: &[Listener]) {
        let closing = &mut self.closing;
        closing.retain(|(_, endpoint)| endpoint.strong_count() > 0);
        self.http3.retain(|(address, endpoint)| {
            let listener = listeners.iter().find(|of| of.address == *address && of.http3);
            match listener.map(|of| endpoint.replace_listener(ListenerContext::new(of))) {
                Some(Ok(())) => true,
                Some(Err(error)) => {
                    tracing::error!(%address, %error, "HTTP/3 keeps its configuration");
                    true
                }
                None => {
                    endpoint.close();
                    closing.push((*address, Rc::downgrade(endpoint)));
                    false
                }
            }
        });
    }

    /// Puts another configuration in force, for new connections and for the requests of open ones.
    pub(crate) fn change(&mut self, update: Update) {
        let Update { snapshot, listeners, sockets, datagrams, gone } = update;
        self.worker.replace_snapshot(*snapshot);
        for at in (0..self.open.len()).rev() {
            if gone.contains(&self.open[at].address) {
                self.open.swap_remove(at).close(&self.worker);
            }
        }
        for open in &self.open {
            if let Some(listener) = listeners.iter().find(|of| of.address == open.address) {
                open.context.replace(ListenerContext::new(listener));
            }
        }
        self.change_http3(&listeners);
        for of_core in datagrams {
            self.open_http3(of_core);
        }
        for (socket, listener) in sockets {
            match TcpListener::from_std(socket) {
                Ok(socket) => self.open.push(Open::new(&self.worker, socket, &listener)),
                Err(error) => tracing::error!(address = %listener.address, %error, "not served"),
            }
        }
    }

    /// Accepts no more.
    pub(crate) fn close(self, how: Draining) {
        for (_, endpoint) in self.http3 {
            match how {
                Draining::Patient => endpoint.leave(),
                Draining::Now | Draining::No => endpoint.close(),
            }
        }
        for open in self.open {
            open.close(&self.worker);
        }
    }
}

/// Whether new connections are to be refused.
fn is_closed(worker: &Worker) -> bool {
    worker.overload.is_closed() || worker.cache.pressure.is_closed()
}

/// Whether a connection may be that of a member of the cluster.
#[cold]
fn is_member(worker: &Worker, peer: SocketAddr) -> bool {
    let snapshot = worker.snapshot();
    let is_one = snapshot.cluster.as_ref().is_some_and(|cluster| cluster.admits(peer.ip()));
    if !is_one {
        tracing::debug!(%peer, "a stranger connected where members of the cluster do");
    }
    is_one
}

/// Accepts from one socket, for ever.
async fn accept_all(worker: Rc<Worker>, listener: Rc<TcpListener>, context: CurrentContext) {
    loop {
        // At the limit of connections, the others wait in the system's queue.
        let readable = std::future::poll_fn(|cx| listener.poll_readable(cx)).await;
        worker.io.wait_to_accept().await;
        let mut next = readable.and_then(|()| listener.try_accept());
        let mut accepted = 0;
        loop {
            match next {
                Ok((stream, peer)) => {
                    let context = Rc::clone(&context.borrow());
                    start(&worker, &context, stream, peer);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    tracing::warn!(%error, "no connection accepted");
                    worker.io.counters.connections_refused.add(1);
                    if is_out_of_descriptors(&error) {
                        worker.upstreams.make_room();
                    }
                    time::sleep(ROOM_PAUSE).await;
                    break;
                }
            }
            accepted += 1;
            if accepted == ACCEPTS_PER_TURN_MAX || !worker.io.may_accept() {
                runtime::yield_now().await;
                break;
            }
            next = listener.try_accept();
        }
    }
}

/// Serves one connection.
fn start(worker: &Rc<Worker>, context: &Rc<ListenerContext>, stream: TcpStream, peer: SocketAddr) {
    worker.io.counters.connections_accepted.add(1);
    if is_closed(worker) {
        worker.io.counters.connections_shed.add(1);
        return;
    }
    if context.cluster && !is_member(worker, peer) {
        worker.io.counters.cluster_strangers.add(1);
        return;
    }
    let (stream, peer) = (Transport::Plain(stream), canonical(peer));
    let serving = serve_connection(Rc::clone(worker), Rc::clone(context), stream, peer);
    runtime::spawn_detached(serving);
}
