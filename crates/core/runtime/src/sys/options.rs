//! How a socket listens and how a file is opened. The system and the simulated world both take
//! these.

/// How to listen.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ListenOptions {
    /// Several listeners, one per core, share the address; the kernel distributes connections over
    /// them.
    pub reuse_port: bool,
    /// Connections that may wait to be accepted. The kernel caps it at `net.core.somaxconn`.
    pub backlog: u32,
}

impl Default for ListenOptions {
    fn default() -> Self {
        ListenOptions { reuse_port: false, backlog: 4096 }
    }
}

setters! {
    ListenOptions {
        /// Sets whether the address is shared with other listeners.
        with_reuse_port: reuse_port = bool;
        /// Sets how many connections may wait to be accepted.
        with_backlog: backlog = u32;
    }
}

/// How to open a file. The default is for reading what exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Also for writing.
    pub write: bool,
    /// Create an empty file if it does not exist. The file is for this user alone (mode 0600),
    /// whatever the umask, also if it existed.
    pub create: bool,
    /// Long writes of a [`crate::fs::PageBuffer`] bypass the page cache where possible.
    pub direct: bool,
}

impl OpenOptions {
    /// For reading and writing; created if it does not exist.
    pub const CREATE: OpenOptions = OpenOptions { write: true, create: true, direct: false };
    /// For reading and writing an existing file.
    pub const WRITE: OpenOptions = OpenOptions { write: true, create: false, direct: false };
}
