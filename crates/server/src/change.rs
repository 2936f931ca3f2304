//! The changes that reach a core while it runs.

use std::net::{SocketAddr, TcpListener as StdListener, UdpSocket};

use config::Listener;
use exchange::snapshot::Snapshot;

/// A change to a running core.
#[derive(Debug)]
pub(crate) enum Change {
    /// Put another configuration in force.
    Snapshot {
        snapshot: Box<Snapshot>,
        /// All listeners, at the addresses they are bound to.
        listeners: Vec<Listener>,
        /// The sockets that are new on this core.
        sockets: Vec<(StdListener, Listener)>,
        /// The sockets for HTTP/3 that are new on this core.
        datagrams: Vec<(UdpSocket, Listener)>,
        /// Addresses to stop accepting from.
        gone: Vec<SocketAddr>,
    },
    /// Another process holds our sockets: accept no more, serve the open connections to their end,
    /// then end.
    HandedOver,
}

/// Changes that may wait for a core; the server's thread gives one at a time.
pub(crate) const CHANGES_MAX: usize = 16;
