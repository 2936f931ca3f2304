//! The changes that reach a core while it runs.

use std::net::{SocketAddr, TcpListener as StdListener};

use config::Listener;
use proxy::site::Site;

/// What a running core has to change.
pub(crate) enum Change {
    /// Another configuration holds from now on.
    Site {
        site: Box<Site>,
        /// All listeners, at the addresses they are bound to.
        listeners: Vec<Listener>,
        /// The sockets that are new on this core.
        sockets: Vec<(StdListener, Listener)>,
        /// Addresses to let go of.
        gone: Vec<SocketAddr>,
    },
    /// Another process holds our sockets: accept no more, serve the connections we have to their
    /// end, then end.
    HandedOver,
}

/// Changes that may wait for a core; the server's thread gives one at a time.
pub(crate) const CHANGES_MAX: usize = 16;
