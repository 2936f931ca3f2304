//! The scenarios: which requests the servers get, and what of them reaches the origin.
//!
//! A scenario names the servers that its ratios are taken to. A server says which scenarios have a
//! row of the server.

use load::{Opening, Protocol};

use crate::added::{BY_RULES, Check, WITHOUT_HEADER};

/// The scenario in which each connection is a tunnel.
pub(crate) const TUNNEL: &str = "tunnel";
/// Connections that carry requests, unless the scenario says otherwise.
pub(crate) const HOT: u32 = 64;
/// Idle connections of the cold scenario.
pub(crate) const COLD: u32 = 10_000;
/// The floor of answers, and that of what is passed on.
pub(crate) const NULL_SERVER: &str = "null";
pub(crate) const NULL_RELAY: &str = "relay";
/// HAProxy without a cache: long bodies by splice(2), and tunnels.
pub(crate) const HAPROXY_SPLICE: &str = "haproxy-splice";

/// nginx as a server of files.
pub(crate) const NGINX_FILES: &str = "nginx-files";

/// Where a server has its bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    Memory,
    Disk,
    /// It serves files of a directory, which the system keeps in memory.
    Files,
    /// It stores nothing: a floor, which rows are compared with.
    Floor,
}

/// How the requests of a scenario use TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tls {
    /// Not at all.
    No,
    /// On connections that are kept.
    Kept,
    /// On a new connection for each request.
    New { resumed: bool },
}

/// The requests that the servers get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// `{n}` is replaced by the number of the object, `{new}` by a number that no other request of
    /// the visit has, `{visit}` by one that no other visit has.
    pub(crate) path: &'static str,
    /// The number of objects; each is requested equally often.
    pub(crate) objects: u32,
    pub(crate) body_bytes: u64,
    /// Length of a request's body. If it is not 0, requests are POST.
    pub(crate) post_bytes: u32,
    /// Connections that carry requests.
    pub(crate) hot: u32,
    pub(crate) cold: u32,
    /// The floor speaks HTTP/1.
    pub(crate) protocol: Protocol,
    /// The server that ratios are taken to.
    pub(crate) floor: &'static str,
    /// The peer that has a column with ratios to it.
    pub(crate) peer: &'static str,
    pub(crate) origin: AtOrigin,
    pub(crate) tls: Tls,
    pub(crate) tier: Tier,
    /// What the servers are configured with in addition (see `added`); empty: nothing.
    pub(crate) added: &'static str,
    /// The scenario that this one is compared with: the same without what users add.
    pub(crate) plain: Option<&'static str>,
    /// Fields of the requests, besides those of every request.
    pub(crate) fields: &'static [(&'static str, &'static str)],
    pub(crate) opening: Opening,
    /// Whether each request has a new connection, in the clear.
    pub(crate) is_new: bool,
    pub(crate) upstream: Upstream,
    /// Whether requests are calls of gRPC. The floor gets a POST over HTTP/1.
    pub(crate) is_grpc: bool,
    pub(crate) check: Check,
}

/// The origin of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Upstream {
    /// The origin of this bench.
    Own,
    /// nginx as an origin (`peers/origin.conf`): its port of HTTP/1 in the clear.
    Http1,
    /// Its port of HTTP/1 over TLS.
    Tls,
    /// Its port of HTTP/2 in the clear.
    Http2,
}

/// What reaches the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtOrigin {
    /// No request: all are hits.
    Nothing,
    /// Each request.
    Each,
    /// Each request, which is then stored: no second one for the same URL.
    EachOnce,
    /// Each request, as a condition that the origin answers with 304.
    EachUnchanged,
}

impl Scenario {
    /// Whether no request reaches the origin.
    pub(crate) fn is_hit(&self) -> bool {
        self.origin == AtOrigin::Nothing
    }

    /// Whether it is about what passes through a server.
    pub(crate) fn is_passed_on(&self) -> bool {
        self.floor == NULL_RELAY
    }

    /// Whether it is about what users add to a plain hit or miss, or is the plain one of such rows.
    /// These scenarios run only if they are named.
    pub(crate) fn is_of_added(&self) -> bool {
        self.name.starts_with("with_") || self.name.starts_with("plain_")
    }

    /// Whether its messages are those of a WebSocket.
    pub(crate) fn is_websocket(&self) -> bool {
        self.opening == Opening::WebSocket
    }

    /// Whether each connection is a tunnel to the origin.
    pub(crate) fn is_tunnel(&self) -> bool {
        self.name == TUNNEL
    }

    /// Whether the servers must have stored all objects before the visits.
    pub(crate) fn is_filled(&self) -> bool {
        self.objects > 1
    }

    /// Whether bodies come from the disk. Such scenarios run only if they are named.
    pub(crate) fn is_of_disk(&self) -> bool {
        self.tier == Tier::Disk
    }

    /// The number of visits that make a cell. Opening ten thousand connections takes a second, so
    /// that scenario has fewer.
    pub(crate) fn passes(&self) -> u32 {
        if self.cold > 0 { 2 } else { 6 }
    }
}

/// The scenario that the others differ from.
pub(crate) const HIT: Scenario = Scenario {
    name: "hit",
    title: "cached hit of 1 KB, 64 keep-alive connections",
    path: "/obj/1?size=1024",
    objects: 1,
    body_bytes: 1024,
    post_bytes: 0,
    hot: HOT,
    cold: 0,
    protocol: Protocol::Http1,
    floor: NULL_SERVER,
    peer: "haproxy",
    origin: AtOrigin::Nothing,
    tls: Tls::No,
    tier: Tier::Memory,
    added: "",
    plain: None,
    fields: &[],
    opening: Opening::Nothing,
    is_new: false,
    upstream: Upstream::Own,
    is_grpc: false,
    check: Check::Origin,
};

const MISS: Scenario = Scenario {
    name: "miss",
    title: "miss passed through (no-store) of 1 KB, 64 keep-alive connections",
    path: "/obj/2?size=1024&cc=no-store",
    floor: NULL_RELAY,
    origin: AtOrigin::Each,
    ..HIT
};

const DISK_HIT: Scenario = Scenario {
    name: "disk_hit_1k",
    title: "hit on disk of 1 KB, 16,000 objects in the page cache, 64 keep-alive connections",
    path: "/obj/{n}?size=1024",
    objects: 16_000,
    tier: Tier::Disk,
    ..HIT
};

/// A feature beside a plain hit.
const WITH: Scenario = Scenario { plain: Some("plain_hit"), ..HIT };

const PLAIN_NEW: Scenario = Scenario {
    name: "plain_new",
    title: "new connection, hit of 1 KB, close",
    is_new: true,
    ..HIT
};

const PLAIN_TEXT: Scenario = Scenario {
    name: "plain_text",
    title: "cached hit of 16 KB of text, not compressed",
    path: "/obj/9?size=16384&text=1",
    body_bytes: 16_384,
    ..HIT
};

const PLAIN_TEXT_MISS: Scenario = Scenario {
    name: "plain_text_miss",
    title: "miss passed through (no-store) of 16 KB of text, not compressed",
    path: "/obj/9?size=16384&text=1&cc=no-store",
    body_bytes: 16_384,
    ..MISS
};

const ACCEPT_GZIP: &[(&str, &str)] = &[("Accept-Encoding", "gzip")];

const PLAIN_UPSTREAM: Scenario = Scenario {
    name: "plain_upstream",
    title: "miss passed through (no-store) of 1 KB, from nginx in the clear",
    upstream: Upstream::Http1,
    ..MISS
};

/// All scenarios, in the order in which they run and are shown.
pub(crate) const SCENARIOS: &[Scenario] = &[
    HIT,
    Scenario {
        name: "cold",
        title: "the same with 10,000 additional idle connections",
        cold: COLD,
        ..HIT
    },
    Scenario {
        name: "http2",
        title: "cached hit of 1 KB over HTTP/2, 64 connections with 1 stream",
        protocol: Protocol::Http2 { streams: 1 },
        ..HIT
    },
    Scenario {
        name: "http2_10",
        title: "cached hit of 1 KB over HTTP/2, 64 connections with 10 streams",
        protocol: Protocol::Http2 { streams: 10 },
        ..HIT
    },
    Scenario {
        name: "http2_cold",
        title: "the same with 1 stream and 10,000 additional idle connections of HTTP/2",
        protocol: Protocol::Http2 { streams: 1 },
        cold: COLD,
        ..HIT
    },
    Scenario {
        name: "http3",
        title: "cached hit of 1 KB over HTTP/3, 64 connections with 1 stream",
        protocol: Protocol::Http3 { streams: 1 },
        peer: "caddy",
        ..HIT
    },
    Scenario {
        name: "http3_10",
        title: "cached hit of 1 KB over HTTP/3, 64 connections with 10 streams",
        protocol: Protocol::Http3 { streams: 10 },
        peer: "caddy",
        ..HIT
    },
    MISS,
    Scenario {
        name: "stored",
        title: "miss of 1 KB that is stored, a new URL for each request",
        path: "/obj/4?size=1024&new={new}&visit={visit}",
        origin: AtOrigin::EachOnce,
        ..MISS
    },
    Scenario {
        name: "revalidated",
        title: "stored response of 1 KB that the origin confirms each time (304), 4,096 objects",
        path: "/obj/{n}?size=1024&cc=max-age%3D0",
        // Enough that two requests for the same object rarely share a validation.
        objects: 4_096,
        peer: "varnish",
        origin: AtOrigin::EachUnchanged,
        ..MISS
    },
    Scenario {
        name: "post",
        title: "POST of 1 KB passed through, answered with 16 bytes",
        path: "/obj/5?size=16&cc=no-store",
        body_bytes: 16,
        post_bytes: 1024,
        ..MISS
    },
    Scenario {
        name: TUNNEL,
        title: "1 KB there and 1 KB back through a tunnel, 64 tunnels",
        path: "/obj/6?size=1024&cc=no-store",
        post_bytes: 1024,
        peer: "nginx-stream",
        ..MISS
    },
    Scenario {
        name: "passed_64k",
        title: "miss passed through (no-store) of 64 KB",
        path: "/obj/7?size=65536&cc=no-store",
        body_bytes: 65_536,
        peer: HAPROXY_SPLICE,
        ..MISS
    },
    Scenario {
        name: "passed_1m",
        title: "miss passed through (no-store) of 1 MB, 16 keep-alive connections",
        path: "/obj/8?size=1048576&cc=no-store",
        body_bytes: 1 << 20,
        // With 64, a slow server completes no request in a visit.
        hot: 16,
        peer: HAPROXY_SPLICE,
        ..MISS
    },
    Scenario {
        name: "large",
        title: "cached hit of 64 KB, 64 keep-alive connections",
        path: "/obj/3?size=65536",
        body_bytes: 65536,
        ..HIT
    },
    Scenario {
        name: "tls",
        title: "cached hit of 1 KB over TLS 1.3, 64 keep-alive connections",
        tls: Tls::Kept,
        ..HIT
    },
    Scenario {
        name: "tls_large",
        title: "cached hit of 64 KB over TLS 1.3, 64 keep-alive connections",
        path: "/obj/3?size=65536",
        body_bytes: 65536,
        tls: Tls::Kept,
        ..HIT
    },
    Scenario {
        name: "tls_full",
        title: "new connection, full handshake, hit of 1 KB, close",
        tls: Tls::New { resumed: false },
        ..HIT
    },
    Scenario {
        name: "tls_resumed",
        title: "new connection, resumed handshake, hit of 1 KB, close",
        tls: Tls::New { resumed: true },
        ..HIT
    },
    Scenario {
        name: "file_64k",
        title: "file of 64 KB in the page cache, 64 keep-alive connections",
        path: "/65536",
        body_bytes: 65_536,
        tier: Tier::Files,
        peer: NGINX_FILES,
        ..HIT
    },
    Scenario {
        name: "file_1m",
        title: "file of 1 MB in the page cache, 16 keep-alive connections",
        path: "/1048576",
        body_bytes: 1 << 20,
        hot: 16,
        tier: Tier::Files,
        peer: NGINX_FILES,
        ..HIT
    },
    Scenario { name: "plain_hit", ..HIT },
    Scenario {
        name: "with_log",
        title: "the same with an access log, a line for each request",
        added: "log",
        check: Check::Logged,
        ..WITH
    },
    Scenario {
        name: "with_rules",
        title: "the same with 20 rules with conditions, none of which matches",
        added: "rules",
        check: BY_RULES,
        ..WITH
    },
    Scenario {
        name: "with_quota",
        title: "the same with a limit on the requests of each client, which is not reached",
        added: "quota",
        check: Check::Limited,
        ..WITH
    },
    Scenario {
        name: "with_proxy",
        title: "the same on connections that began with a PROXY header",
        added: "proxy",
        opening: Opening::ProxyHeader,
        check: WITHOUT_HEADER,
        ..WITH
    },
    PLAIN_NEW,
    Scenario {
        name: "with_proxy_new",
        title: "new connection that begins with a PROXY header, hit of 1 KB, close",
        plain: Some(PLAIN_NEW.name),
        added: "proxy",
        opening: Opening::ProxyHeader,
        check: WITHOUT_HEADER,
        ..PLAIN_NEW
    },
    PLAIN_TEXT,
    Scenario {
        name: "with_gzip",
        title: "cached hit of 16 KB of text, compressed by gzip at level 1",
        added: "gzip",
        plain: Some(PLAIN_TEXT.name),
        fields: ACCEPT_GZIP,
        check: Check::Coded,
        ..PLAIN_TEXT
    },
    Scenario { name: "plain_miss", ..MISS },
    Scenario {
        name: "with_log_miss",
        title: "the same with an access log, a line for each request",
        added: "log",
        plain: Some("plain_miss"),
        check: Check::Logged,
        ..MISS
    },
    PLAIN_TEXT_MISS,
    Scenario {
        name: "with_gzip_miss",
        title: "miss passed through (no-store) of 16 KB of text, compressed by gzip at level 1",
        added: "gzip",
        plain: Some(PLAIN_TEXT_MISS.name),
        fields: ACCEPT_GZIP,
        check: Check::Coded,
        ..PLAIN_TEXT_MISS
    },
    PLAIN_UPSTREAM,
    Scenario {
        name: "with_tls",
        title: "the same over TLS 1.3, on kept connections",
        added: "tls",
        plain: Some(PLAIN_UPSTREAM.name),
        upstream: Upstream::Tls,
        ..MISS
    },
    Scenario {
        name: "with_http2",
        title: "the same over HTTP/2 in the clear",
        added: "http2",
        plain: Some(PLAIN_UPSTREAM.name),
        upstream: Upstream::Http2,
        ..MISS
    },
    Scenario {
        name: "with_grpc",
        title: "unary call of gRPC, 100 bytes there and 1 KB back, HTTP/2 in the clear on both \
                sides, 64 connections with 1 stream",
        path: "/grpc",
        post_bytes: 100,
        protocol: Protocol::Http2 { streams: 1 },
        added: "grpc",
        plain: Some(PLAIN_UPSTREAM.name),
        upstream: Upstream::Http2,
        is_grpc: true,
        ..MISS
    },
    Scenario {
        name: "with_websocket",
        title: "message of 100 bytes and its echo over 64 WebSockets",
        path: "/obj/6",
        // Of each frame; the answer has two bytes more than its payload.
        body_bytes: 102,
        post_bytes: 100,
        added: "websocket",
        opening: Opening::WebSocket,
        ..MISS
    },
    Scenario {
        name: "with_upload",
        title: "POST of 1 MB passed through, answered with 16 bytes, 16 keep-alive connections",
        path: "/obj/5?size=16&cc=no-store",
        body_bytes: 16,
        post_bytes: 1 << 20,
        hot: 16,
        added: "upload",
        ..MISS
    },
    DISK_HIT,
    Scenario {
        name: "disk_hit_16k",
        title: "hit on disk of 16 KB, 8,000 objects in the page cache, 64 keep-alive connections",
        path: "/obj/{n}?size=16384",
        objects: 8_000,
        body_bytes: 16_384,
        ..DISK_HIT
    },
    Scenario {
        name: "disk_hit_1m",
        title: "hit on disk of 1 MB, 200 objects in the page cache, 64 keep-alive connections",
        path: "/obj/{n}?size=1048576",
        objects: 200,
        body_bytes: 1 << 20,
        ..DISK_HIT
    },
];
