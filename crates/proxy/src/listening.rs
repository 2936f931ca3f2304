//! The sockets that one core accepts from, and how they come and go while it serves.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use runtime::JoinHandle;
use runtime::net::TcpListener;

use crate::config::Listener;
use crate::core::Change;
use crate::site::Door;
use crate::worker::{Worker, accept_all, start};

/// What connections that come in from now on are told of their listener; a reload replaces it.
pub(crate) type DoorNow = Rc<RefCell<Rc<Door>>>;

/// A socket that is accepted from.
struct Open {
    /// The address it is bound to.
    address: SocketAddr,
    socket: Rc<TcpListener>,
    door: DoorNow,
    accepting: JoinHandle<()>,
}

impl Open {
    fn new(worker: &Rc<Worker>, socket: TcpListener, listener: &Listener) -> Open {
        worker.shared.own.add_of(&socket);
        let (socket, door) = (Rc::new(socket), Rc::new(RefCell::new(Door::of(listener))));
        let accepting =
            runtime::spawn(accept_all(Rc::clone(worker), Rc::clone(&socket), Rc::clone(&door)));
        Open { address: listener.address, socket, door, accepting }
    }

    /// Accepts no more than what is there already. The system has answered these clients; if
    /// nobody else holds the socket, closing it would reset them.
    fn close(self, worker: &Rc<Worker>) {
        self.accepting.abort();
        while let Ok((stream, peer)) = self.socket.try_accept() {
            let door = Rc::clone(&self.door.borrow());
            start(worker, &door, stream, peer);
        }
    }
}

/// All sockets that a core accepts from.
pub(crate) struct Listening {
    worker: Rc<Worker>,
    open: Vec<Open>,
}

impl Listening {
    pub(crate) fn new(worker: &Rc<Worker>, sockets: Vec<(TcpListener, Listener)>) -> Listening {
        let open = sockets.into_iter().map(|(socket, of)| Open::new(worker, socket, &of));
        Listening { open: open.collect(), worker: Rc::clone(worker) }
    }

    /// Puts another configuration in force: for connections that come from now on, and for the
    /// requests of those that are open.
    pub(crate) fn change(&mut self, change: Change) {
        let Change::Site { site, listeners, sockets, gone } = change else { return };
        self.worker.replace_site(*site);
        for at in (0..self.open.len()).rev() {
            if gone.contains(&self.open[at].address) {
                self.open.swap_remove(at).close(&self.worker);
            }
        }
        for open in &self.open {
            if let Some(listener) = listeners.iter().find(|of| of.address == open.address) {
                open.door.replace(Door::of(listener));
            }
        }
        for (socket, listener) in sockets {
            match TcpListener::from_std(socket) {
                Ok(socket) => self.open.push(Open::new(&self.worker, socket, &listener)),
                Err(error) => tracing::error!(address = %listener.address, %error, "not served"),
            }
        }
    }

    /// Accepts no more.
    pub(crate) fn close(self) {
        for open in self.open {
            open.close(&self.worker);
        }
    }
}
