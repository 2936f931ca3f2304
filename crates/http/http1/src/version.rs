//! The version of a message (RFC 9110 section 2.5).

/// The sender's version. A higher minor version (HTTP/1.2) counts as HTTP/1.1, as RFC 9110 section
/// 6.2 requires; another major version is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    Http11,
    /// HTTP/2. The request came over HTTP/2; its head is held as one of HTTP/1. The parser never
    /// returns this version: see [`RequestHead::over`](crate::RequestHead::over).
    Http2,
    /// HTTP/3, in the same way.
    Http3,
}

impl Version {
    /// Whether each request has a stream, and not the connection.
    pub const fn has_streams(self) -> bool {
        matches!(self, Version::Http2 | Version::Http3)
    }

    /// As in a request line or an access log.
    pub const fn as_str(self) -> &'static str {
        match self {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2.0",
            Version::Http3 => "HTTP/3.0",
        }
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
