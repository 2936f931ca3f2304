//! How a socket listens and how a file is opened: what the system and the simulated world both take.

/// How to listen.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ListenOptions {
    /// Several listeners, one a core, share the address; the kernel spreads connections over them.
    pub reuse_port: bool,
    /// Connections that may wait to be accepted. The kernel caps it at `net.core.somaxconn`.
    pub backlog: u32,
    /// An IPv6 listener takes no IPv4 connections.
    pub v6_only: bool,
}

impl Default for ListenOptions {
    fn default() -> Self {
        ListenOptions { reuse_port: false, backlog: 4096, v6_only: false }
    }
}

setters! {
    ListenOptions {
        /// Sets whether the address is shared with other listeners.
        with_reuse_port: reuse_port = bool;
        /// Sets how many connections may wait to be accepted.
        with_backlog: backlog = u32;
        /// Sets whether an IPv6 listener refuses IPv4 connections.
        with_v6_only: v6_only = bool;
    }
}

/// How to open a file. The default is for reading what exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Also for writing.
    pub write: bool,
    /// Make it, empty, if it does not exist.
    pub create: bool,
    /// Long writes of a [`PageBuffer`] go around the page cache, where that is possible.
    pub direct: bool,
}

impl OpenOptions {
    /// For reading and writing; made if it does not exist.
    pub const CREATE: OpenOptions = OpenOptions { write: true, create: true, direct: false };
    /// For reading and writing what exists.
    pub const WRITE: OpenOptions = OpenOptions { write: true, create: false, direct: false };
}
