//! The sockets that one core accepts from, and how they come and go while it serves.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use core_io::Draining;
use core_io::limits::ROOM_PAUSE;
use outcome::is_out_of_descriptors;
use proxy::{Http3Endpoint, serve_connection};
use runtime::net::{DatagramSocket, TcpListener, TcpStream};
use runtime::{JoinHandle, time};
use transport::Transport;

use crate::limits::ACCEPTS_PER_TURN_MAX;

use crate::change::Change;
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

/// All sockets that a core accepts from.
pub(crate) struct Listening {
    worker: Rc<Worker>,
    /// The number of the core.
    core: u16,
    open: Vec<Open>,
    /// Those for HTTP/3, by the address they are bound to.
    http3: Vec<(SocketAddr, Rc<Http3Endpoint>)>,
}

impl Listening {
    pub(crate) fn new(
        worker: &Rc<Worker>,
        core: u16,
        sockets: Vec<(TcpListener, Listener)>,
        http3: Vec<(DatagramSocket, Listener)>,
    ) -> Listening {
        let open = sockets.into_iter().map(|(socket, of)| Open::new(worker, socket, &of));
        let open = open.collect();
        let mut listening = Listening { open, http3: Vec::new(), worker: Rc::clone(worker), core };
        for (socket, listener) in http3 {
            listening.open_http3(Ok(socket), &listener);
        }
        listening
    }

    fn open_http3(&mut self, socket: io::Result<DatagramSocket>, listener: &Listener) {
        let context = ListenerContext::new(listener);
        let (worker, core) = (Rc::clone(&self.worker), self.core);
        match socket.and_then(|socket| Http3Endpoint::new(worker, context, socket, core)) {
            Ok(endpoint) => {
                runtime::spawn(Rc::clone(&endpoint).run()).detach();
                self.http3.push((listener.address, endpoint));
            }
            Err(error) => {
                tracing::error!(address = %listener.address, %error, "HTTP/3 is not served");
            }
        }
    }

    /// Closes the sockets whose listeners have no HTTP/3 any more; the others have another
    /// configuration.
    fn change_http3(&mut self, listeners: &[Listener]) {
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
                    false
                }
            }
        });
    }

    /// Puts another configuration in force, for new connections and for the requests of open ones.
    pub(crate) fn change(&mut self, change: Change) {
        let Change::Snapshot { snapshot, listeners, sockets, datagrams, gone } = change else {
            return;
        };
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
        for (socket, listener) in datagrams {
            self.open_http3(DatagramSocket::from_std(socket), &listener);
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
        let mut next = listener.accept().await;
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
            if accepted == ACCEPTS_PER_TURN_MAX {
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
    let stream = Transport::Plain(stream);
    let serving = serve_connection(Rc::clone(worker), Rc::clone(context), stream, peer);
    runtime::spawn(serving).detach();
}
