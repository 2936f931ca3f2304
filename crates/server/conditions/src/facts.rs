//! What conditions read: the facts about a request and its response, and the set of facts that a
//! condition reads.

use std::net::IpAddr;

use http1::Fields;

/// The facts about a request, and about its response if there is one. Borrowed; costs nothing to
/// copy.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'f> {
    /// The host in lower case, without a port.
    pub host: &'f [u8],
    /// One reading of the path, normalised. It begins with a slash.
    pub path: &'f [u8],
    /// The query without its question mark; empty if there is none.
    pub query: &'f [u8],
    /// The URL as the client has sent it.
    pub sent: Sent<'f>,
    /// The method.
    pub method: &'f [u8],
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The name of the listener.
    pub listener: &'f str,
    /// The port of the listener.
    pub port: u16,
    /// The client's address. An IPv4 address that is mapped into IPv6 counts as IPv4.
    pub client: IpAddr,
    /// The user who is logged in.
    pub user: Option<&'f [u8]>,
    /// The fields of the request.
    pub fields: Fields<'f>,
    /// The names of the TLS connection, if it is one.
    pub tls: Option<&'f TlsNames>,
    /// The time in seconds since 1970, UTC.
    pub now_s: u64,
    /// A number that is drawn once for a request: at least 0, less than 1.
    pub random: f64,
    /// The facts about the response. Without them, terms on the response read `status` 0, `size`
    /// -1 and no fields.
    pub response: Option<ResponseFacts<'f>>,
}

/// A URL as the client has sent it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent<'f> {
    /// The authority, with or without a port.
    pub authority: &'f [u8],
    /// The path and the query.
    pub path_and_query: &'f [u8],
    /// The port of a request for a tunnel. Such a request has no path.
    pub tunnel_port: Option<u16>,
}

/// The facts about a response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseFacts<'f> {
    /// The status code.
    pub status: u16,
    /// The fields of the response.
    pub fields: Fields<'f>,
    /// Content-Length, if it is known.
    pub size: Option<u64>,
}

/// The names of a TLS connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsNames {
    /// The name that the client requested (SNI).
    pub sni: Option<String>,
    /// The subject of the client's certificate, which has been verified.
    pub client_subject: Option<String>,
}

/// Where a condition is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Before there is a response: terms read the request only.
    Request,
    /// With a response: terms read the request and the response.
    Response,
}

/// The set of facts that a condition reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reads(u32);

impl Reads {
    /// No facts.
    pub const NONE: Reads = Reads(0);
    /// `host` and `url`
    pub const HOST: Reads = Reads(1);
    /// `path`, `url` and `target`
    pub const PATH: Reads = Reads(1 << 1);
    /// `query`, `url` and `target`
    pub const QUERY: Reads = Reads(1 << 2);
    /// `method`
    pub const METHOD: Reads = Reads(1 << 3);
    /// `scheme` and `url`
    pub const SCHEME: Reads = Reads(1 << 4);
    /// `listener` and `port`
    pub const LISTENER: Reads = Reads(1 << 5);
    /// `client`
    pub const CLIENT: Reads = Reads(1 << 6);
    /// `user`
    pub const USER: Reads = Reads(1 << 7);
    /// `tls.sni` and `tls.client_subject`
    pub const TLS: Reads = Reads(1 << 8);
    /// `fields`
    pub const FIELDS: Reads = Reads(1 << 9);
    /// `cookies`
    pub const COOKIES: Reads = Reads(1 << 10);
    /// `args`
    pub const ARGS: Reads = Reads(1 << 11);
    /// `hour`, `minute` and `weekday`
    pub const TIME: Reads = Reads(1 << 12);
    /// `random`
    pub const RANDOM: Reads = Reads(1 << 13);
    /// `status`, `size` and `response`
    pub const RESPONSE: Reads = Reads(1 << 14);
    /// `status`, besides [`Reads::RESPONSE`]
    pub const STATUS: Reads = Reads(1 << 15);
    /// `size` and `response`, besides [`Reads::RESPONSE`]
    pub const RESPONSE_FIELDS: Reads = Reads(1 << 16);

    /// Whether this set has all facts of the other set.
    pub const fn contains(self, other: Reads) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the other set has all facts of this set.
    pub const fn is_within(self, other: Reads) -> bool {
        other.contains(self)
    }

    /// The facts of both sets.
    pub const fn union(self, other: Reads) -> Reads {
        Reads(self.0 | other.0)
    }

    /// Whether the two sets have a fact in common.
    pub const fn intersects(self, other: Reads) -> bool {
        self.0 & other.0 != 0
    }

    /// Whether the set has no facts.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl std::ops::BitOr for Reads {
    type Output = Reads;

    fn bitor(self, other: Reads) -> Reads {
        self.union(other)
    }
}

impl std::ops::BitOrAssign for Reads {
    fn bitor_assign(&mut self, other: Reads) {
        *self = self.union(other);
    }
}
