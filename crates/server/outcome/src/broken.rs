//! Which side ended an exchange before its response was complete.

/// Who broke a response off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenBy {
    /// The client has left, or takes too little.
    Client,
    /// The upstream has closed the connection, was silent for too long, or sent what is not HTTP.
    Upstream,
    /// This proxy.
    Proxy,
}

impl BrokenBy {
    /// As in the log.
    pub fn name(self) -> &'static str {
        match self {
            BrokenBy::Client => "client",
            BrokenBy::Upstream => "upstream",
            BrokenBy::Proxy => "proxy",
        }
    }
}
