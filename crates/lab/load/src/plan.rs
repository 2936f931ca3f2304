//! The plan of a run: the target, the schedule, the connections, the objects.
//!
//! What: a `Plan` of plain fields, its check, and the target's URL. Why: one value contains
//! everything that shapes a run, and the outcome repeats it, so a result names its own cause. What
//! never happens: a plan that has passed `check` fails later because of one of its fields.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::population::Population;
use crate::schedule::{Arrivals, Schedule};
use crate::websocket;

/// The most connections that may carry requests.
pub const CONNECTIONS_MAX: u32 = 100_000;
/// The most cold connections.
pub const COLD_MAX: u32 = 1_000_000;
/// The most source addresses (127.0.0.1 to 127.0.0.250).
pub const SOURCES_MAX: u32 = 250;
/// Connections per source address when the plan does not set the number of addresses. By default
/// there are 28,232 ephemeral ports.
pub const CONNECTIONS_PER_SOURCE: u32 = 25_000;
/// The most requests at a time on a connection of HTTP/2 or HTTP/3.
pub const STREAMS_MAX: u32 = 1000;
/// The longest body of a request.
const BODY_BYTES_MAX: u32 = 1024 * 1024;
/// Bytes before a message of gRPC: whether it is compressed, and its length.
pub(crate) const GRPC_PREFIX_BYTES: u32 = 5;
/// The longest message of gRPC. It is below the window that a new stream has by default.
const GRPC_BYTES_MAX: u32 = 16 * 1024;
/// The most bytes of the added fields, with their names and the ends of their lines.
const FIELDS_BYTES_MAX: usize = 16 << 20;
/// Fields that say where a message ends or what becomes of its connection. The generator writes the
/// ones that it needs.
const FRAMING: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];
/// How long requests in flight may take after the end of the run, unless a plan says otherwise.
pub const DRAIN_MAX: Duration = Duration::from_secs(1);

fn drain_max() -> Duration {
    DRAIN_MAX
}

/// The longest run.
pub const DURATION_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

const _: () = assert!(COLD_MAX + CONNECTIONS_MAX < SOURCES_MAX * CONNECTIONS_PER_SOURCE);

/// A run of the generator. Make one with `Plan::new` and change the fields that differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Where requests go and what they ask for.
    pub target: Target,
    /// How the rate changes.
    pub schedule: Schedule,
    /// How starts are spaced at a given rate.
    pub arrivals: Arrivals,
    /// For how long requests are started.
    pub duration: Duration,
    /// Connections that carry requests: one at a time each with HTTP/1.
    pub connections: u32,
    /// Connections that are opened first and then stay silent.
    pub cold: u32,
    /// Number of loopback addresses to connect from. 0 uses as few as the ports allow.
    pub sources: u32,
    /// The protocol, and how many requests a connection carries at a time.
    #[serde(default)]
    pub protocol: Protocol,
    /// The roots that the server's certificate must lead to (PEM). `None`: it is not verified.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// What a connection begins with.
    #[serde(default)]
    pub opening: Opening,
    /// Whether a connection is reused. If not, each request has its own.
    pub keep_alive: bool,
    /// Whether a new connection resumes the TLS 1.3 session of an earlier one.
    #[serde(default)]
    pub resume: bool,
    /// The objects. Requests differ only by `{n}` and `{size}` in the path.
    pub population: Population,
    /// Seeds the arrivals, the draws and the sizes.
    pub seed: u64,
    /// Never sleep. Meant for a saturated server on another CPU.
    pub busy_poll: bool,
    /// How long a request may take on its connection.
    pub timeout: Duration,
    /// How long requests in flight may take after the end of the run. The wait is never longer than
    /// the time-out. These requests count as those that end before it, but in no row.
    #[serde(default = "drain_max")]
    pub drain_max: Duration,
    /// How late the generator may be through its own fault before a row is marked.
    pub lag_max: Duration,
    /// Whether hits and misses are counted, by Cache-Status, X-Cache and Age.
    pub count_hits: bool,
    /// Whether every byte is compared with the origin's (`load::content`).
    pub verify: bool,
    /// Length of each request's body. If it is not 0, requests are POST instead of GET. Over a
    /// WebSocket, the length of each message.
    #[serde(default)]
    pub body_bytes: u32,
    /// Whether requests are unary calls of gRPC, over HTTP/2: a message of `body_bytes` with its
    /// prefix, answered with content and the trailer `grpc-status: 0`.
    #[serde(default)]
    pub grpc: bool,
    /// Header fields to add to each request. Host and User-Agent replace the generator's.
    pub fields: Vec<(String, String)>,
    /// The CPU to pin the generator to.
    pub pin_cpu: Option<usize>,
}

impl Plan {
    /// A plan with 64 connections, keep-alive, Poisson arrivals, one object and no cold
    /// connections.
    pub fn new(target: Target, schedule: Schedule, duration: Duration) -> Plan {
        Plan {
            target,
            schedule,
            arrivals: Arrivals::default(),
            duration,
            connections: 64,
            cold: 0,
            sources: 0,
            protocol: Protocol::Http1,
            ca: None,
            opening: Opening::Nothing,
            keep_alive: true,
            resume: false,
            population: Population::default(),
            seed: 1,
            busy_poll: false,
            timeout: Duration::from_secs(10),
            drain_max: DRAIN_MAX,
            lag_max: Duration::from_millis(1),
            count_hits: true,
            verify: false,
            body_bytes: 0,
            grpc: false,
            fields: Vec::new(),
            pin_cpu: None,
        }
    }

    /// Checks that this plan can be run.
    ///
    /// # Errors
    /// Names the invalid field.
    pub fn check(&self) -> Result<(), BadPlan> {
        let range = |name, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(BadPlan(format!("{name}: {value} must be in {low}..={high}")))
            }
        };
        let named = |name: &'static str| move |why: &str| BadPlan(format!("{name}: {why}"));
        self.schedule.check().map_err(named("rate"))?;
        self.population.check().map_err(named("population"))?;
        range("connections", self.connections.into(), 1, CONNECTIONS_MAX.into())?;
        range("cold", self.cold.into(), 0, COLD_MAX.into())?;
        range("sources", self.sources.into(), 0, SOURCES_MAX.into())?;
        if let Some(streams) = self.protocol.streams() {
            range("streams", streams.into(), 1, STREAMS_MAX.into())?;
            range("connections times streams", self.slots().into(), 1, CONNECTIONS_MAX.into())?;
            if self.target.absolute {
                let why = "HTTP/2 and HTTP/3 through a forward proxy are not supported";
                return Err(named("protocol")(why));
            }
            if !self.keep_alive && streams > 1 {
                let why = "with --no-keep-alive, a connection has one request: leave out --streams";
                return Err(named("streams")(why));
            }
            let has_body = self.body_bytes > 0 && !self.grpc;
            if has_body || self.target.tunnel || self.opening != Opening::Nothing {
                let why = "bodies of requests, tunnels, WebSocket and the PROXY header are only \
                           supported with HTTP/1";
                return Err(named("protocol")(why));
            }
        }
        let is_plain = !(self.target.tls || self.target.absolute || self.target.tunnel);
        if self.opening != Opening::Nothing && !is_plain {
            let why = "only supported in the clear, without a forward proxy";
            return Err(named("opening")(why));
        }
        if self.grpc {
            if !matches!(self.protocol, Protocol::Http2 { .. }) {
                return Err(named("grpc")("only supported over HTTP/2"));
            }
            let (least, most) = (GRPC_PREFIX_BYTES, GRPC_BYTES_MAX);
            range("body_bytes", self.body_bytes.into(), least.into(), most.into())?;
        }
        if self.opening == Opening::WebSocket {
            if !self.keep_alive {
                return Err(named("opening")("a WebSocket for each message is not supported"));
            }
            range("body_bytes", self.body_bytes.into(), 1, websocket::PAYLOAD_BYTES_MAX.into())?;
        }
        range("body_bytes", self.body_bytes.into(), 0, BODY_BYTES_MAX.into())?;
        if self.target.tunnel && (self.target.tls || self.target.absolute) {
            return Err(named("target")("TLS or a forward proxy in a tunnel is not supported"));
        }
        if self.target.tls && !cfg!(feature = "tls") {
            return Err(named("target")("this build has no TLS; to fix this: make build"));
        }
        if self.target.tls && self.target.absolute {
            return Err(named("target")("https through a forward proxy is not supported"));
        }
        if !self.target.tls && matches!(self.protocol, Protocol::Http3 { .. }) {
            return Err(named("target")("HTTP/3 needs a URL that begins with https://"));
        }
        if !self.target.tls && self.ca.is_some() {
            return Err(named("ca")("needs a URL that begins with https://"));
        }
        let over_tcp = !matches!(self.protocol, Protocol::Http3 { .. });
        if self.resume && !(self.target.tls && over_tcp) {
            return Err(named("resume")("needs a URL that begins with https://, and no HTTP/3"));
        }
        if self.source_count() > 1 && !self.loopback_v4() {
            let why = "several source addresses require a target in 127.0.0.0/8";
            return Err(named("sources")(why));
        }
        if self.duration.is_zero() || self.duration > DURATION_MAX {
            return Err(named("duration")("must be above zero and at most a week"));
        }
        if self.timeout.is_zero() || self.lag_max.is_zero() {
            return Err(named("timeout, lag_max")("must be above zero"));
        }
        self.check_fields()
    }

    fn check_fields(&self) -> Result<(), BadPlan> {
        for (name, value) in &self.fields {
            let bad = |why| Err(BadPlan(format!("field {name:?}: {why}")));
            let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            let text = |b: u8| b == b'\t' || (b >= b' ' && b != 0x7f);
            if name.is_empty() || !name.bytes().all(token) || !value.bytes().all(text) {
                return bad("not a header field");
            }
            if FRAMING.iter().any(|framing| name.eq_ignore_ascii_case(framing)) {
                return bad("the generator itself writes the fields that delimit a request");
            }
        }
        if self.fields_named("host").count() > 1 {
            return Err(BadPlan("field \"Host\": a request has one".to_owned()));
        }
        let bytes = |(name, value): &(String, String)| name.len() + value.len() + ": \r\n".len();
        if self.fields.iter().map(bytes).sum::<usize>() > FIELDS_BYTES_MAX {
            return Err(BadPlan(format!("fields: more than {FIELDS_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    /// The values of the added fields of this name.
    fn fields_named(&self, name: &str) -> impl Iterator<Item = &str> {
        let found = self.fields.iter().filter(move |(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// What requests have as their Host: the URL's, unless a field replaces it.
    pub(crate) fn host(&self) -> &str {
        self.fields_named("host").next().unwrap_or(&self.target.authority)
    }

    /// The fields after Host, with our User-Agent unless a field replaces it.
    pub(crate) fn other_fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let replaced = self.fields_named("user-agent").next().is_some();
        let agent = (!replaced).then_some(("User-Agent", "plimsoll"));
        let fields = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        agent.into_iter().chain(fields.filter(|(name, _)| !name.eq_ignore_ascii_case("host")))
    }

    /// How many requests can be in flight at a time.
    pub fn slots(&self) -> u32 {
        self.connections.saturating_mul(self.protocol.streams().unwrap_or(1))
    }

    fn loopback_v4(&self) -> bool {
        matches!(self.target.addr, SocketAddr::V4(v4) if v4.ip().is_loopback())
    }

    /// How many addresses to connect from.
    pub(crate) fn source_count(&self) -> u32 {
        match self.sources {
            0 => (self.cold + self.connections).div_ceil(CONNECTIONS_PER_SOURCE).max(1),
            given => given,
        }
    }
}

/// The protocol of a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2: by ALPN over TLS, in the clear without an upgrade (RFC 9113 section 3.3).
    Http2 {
        /// Requests at a time on each connection. Fewer if the server allows fewer.
        streams: u32,
    },
    /// HTTP/3.
    Http3 {
        /// As for HTTP/2.
        streams: u32,
    },
}

impl Protocol {
    /// Requests at a time on each connection, if there can be several.
    pub fn streams(self) -> Option<u32> {
        match self {
            Protocol::Http1 => None,
            Protocol::Http2 { streams } | Protocol::Http3 { streams } => Some(streams),
        }
    }
}

/// What a connection begins with, before its first request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opening {
    /// Nothing.
    #[default]
    Nothing,
    /// An upgrade to WebSocket. Each request is a message, and its response the next message.
    WebSocket,
    /// A header of the PROXY protocol (version 1), for a client in a network for documentation.
    ProxyHeader,
}

/// An invalid plan (the operator's fault).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPlan(pub(crate) String);

/// Where requests go and what they ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Where to connect.
    pub addr: SocketAddr,
    /// The value of the Host field.
    pub authority: String,
    /// The path and query. `{n}` is replaced by the object's number, `{size}` by its size, and
    /// `{new}` by a number that no other request of the run has.
    pub path: String,
    /// Whether requests contain the whole URL, as a forward proxy requires.
    pub absolute: bool,
    /// Whether the URL begins with https.
    #[serde(default)]
    pub tls: bool,
    /// Whether `addr` is a proxy that each connection first asks for a tunnel to `authority`
    /// (CONNECT).
    #[serde(default)]
    pub tunnel: bool,
}

impl FromStr for Target {
    type Err = BadPlan;

    /// `http://HOST[:PORT][/PATH]`, or https. The host is resolved once, here.
    fn from_str(url: &str) -> Result<Target, BadPlan> {
        let bad = |why: &str| BadPlan(format!("URL {url:?}: {why}"));
        let (tls, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) => return Err(bad("must begin with http:// or https://")),
        };
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) if rest.as_bytes()[at] == b'/' => (&rest[..at], rest[at..].to_owned()),
            Some(at) => (&rest[..at], format!("/{}", &rest[at..])),
            None => (rest, "/".to_owned()),
        };
        if authority.is_empty() || authority.contains('@') {
            return Err(bad("names no host"));
        }
        if !url.bytes().all(|b| b.is_ascii_graphic()) || url.contains('#') {
            return Err(bad("has bytes that a request may not carry"));
        }
        let has_port = match authority.rsplit_once(':') {
            Some((host, port)) => !host.is_empty() && port.bytes().all(|b| b.is_ascii_digit()),
            None => false,
        };
        let port = if tls { 443 } else { 80 };
        let place = if has_port { authority.to_owned() } else { format!("{authority}:{port}") };
        let cause = |e: io::Error| BadPlan(format!("URL {url:?}: {e}"));
        let mut found = place.to_socket_addrs().map_err(cause)?;
        // A name may have several addresses. IPv4 is preferred, because every server in experiments
        // listens on it.
        let first = found.next().ok_or_else(|| bad("has no address"))?;
        let addr =
            if first.is_ipv4() { first } else { found.find(|a| a.is_ipv4()).unwrap_or(first) };
        Ok(Target {
            addr,
            authority: authority.to_owned(),
            path,
            absolute: false,
            tls,
            tunnel: false,
        })
    }
}

impl Target {
    /// The same request, sent to the forward proxy at `proxy`.
    #[must_use]
    pub fn through(self, proxy: SocketAddr) -> Target {
        Target { addr: proxy, absolute: true, ..self }
    }

    /// The host without its port: the name in the certificate.
    pub fn host(&self) -> &str {
        let authority = self.authority.as_str();
        match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((address, _)) => address,
            None => authority.split(':').next().unwrap_or(authority),
        }
    }

    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme(), self.authority, self.path)?;
        let through = self.absolute || self.tunnel;
        if through { write!(f, " through {}", self.addr) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_become_targets() {
        let target: Target = "http://127.0.0.1:8080/obj/{n}?size={size}".parse().unwrap();
        assert_eq!(target.addr, "127.0.0.1:8080".parse().unwrap());
        assert_eq!(target.authority, "127.0.0.1:8080");
        assert_eq!(target.path, "/obj/{n}?size={size}");
        let bare: Target = "http://127.0.0.1".parse().unwrap();
        assert_eq!((bare.addr.port(), bare.path.as_str()), (80, "/"));
        let query: Target = "http://[::1]:81?a".parse().unwrap();
        assert_eq!((query.addr.port(), query.path.as_str()), (81, "/?a"));
        assert_eq!((target.host(), query.host()), ("127.0.0.1", "::1"));
        let secure: Target = "https://[::1]".parse().unwrap();
        assert!(secure.tls && secure.addr.port() == 443 && secure.host() == "::1");
        assert_eq!(secure.to_string(), "https://[::1]/");
        let through = bare.through("127.0.0.1:3128".parse().unwrap());
        assert!(through.absolute && through.addr.port() == 3128);
    }

    #[test]
    fn invalid_urls_are_refused() {
        for url in [
            "",
            "ftp://127.0.0.1/",
            "http://",
            "http:///x",
            "127.0.0.1:80",
            "http://a b/",
            "http://127.0.0.1:99999/",
            "http://127.0.0.1:x/",
            "http://127.0.0.1/#x",
            "http://u@127.0.0.1/",
        ] {
            assert!(url.parse::<Target>().is_err(), "{url}");
        }
    }

    #[test]
    fn a_plan_is_checked_by_field() {
        let target: Target = "http://127.0.0.1:8080/".parse().unwrap();
        let plan = Plan::new(target, Schedule::Constant(1.0), Duration::from_secs(1));
        assert_eq!(plan.check(), Ok(()));
        let wrong = |change: fn(&mut Plan), word: &str| {
            let mut plan = plan.clone();
            change(&mut plan);
            let error = plan.check().unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        };
        wrong(|p| p.connections = 0, "connections");
        wrong(|p| p.cold = COLD_MAX + 1, "cold");
        wrong(|p| p.sources = 251, "sources");
        wrong(|p| p.duration = Duration::ZERO, "duration");
        wrong(|p| p.schedule = Schedule::Constant(-1.0), "rate");
        wrong(|p| p.population.objects = 0, "population");
        wrong(|p| p.protocol = Protocol::Http2 { streams: 0 }, "streams");
        wrong(|p| p.protocol = Protocol::Http2 { streams: STREAMS_MAX + 1 }, "streams");
        assert_eq!(
            Plan { protocol: Protocol::Http2 { streams: 9 }, ..plan.clone() }.check(),
            Ok(())
        );
        wrong(|p| (p.protocol, p.keep_alive) = (Protocol::Http2 { streams: 2 }, false), "streams");
        wrong(|p| p.protocol = Protocol::Http3 { streams: 1 }, "https://");
        wrong(|p| p.ca = Some("ca.pem".into()), "https://");
        wrong(|p| p.resume = true, "https://");
        wrong(|p| (p.target.tls, p.target.absolute) = (true, true), "forward proxy");
        wrong(
            |p| (p.protocol, p.body_bytes) = (Protocol::Http2 { streams: 1 }, 1),
            "bodies of requests",
        );
        wrong(|p| p.body_bytes = BODY_BYTES_MAX + 1, "body_bytes");
        wrong(|p| p.opening = Opening::WebSocket, "body_bytes");
        wrong(|p| p.grpc = true, "over HTTP/2");
        wrong(|p| (p.grpc, p.protocol) = (true, Protocol::Http2 { streams: 1 }), "body_bytes");
        wrong(|p| (p.opening, p.target.tls) = (Opening::ProxyHeader, true), "in the clear");
        wrong(
            |p| (p.opening, p.protocol) = (Opening::ProxyHeader, Protocol::Http2 { streams: 1 }),
            "PROXY header",
        );
        wrong(|p| (p.target.tls, p.target.tunnel) = (true, true), "tunnel");
        wrong(|p| p.fields.push(("a\r\nb".into(), "c".into())), "header field");
        wrong(|p| p.fields.push(("a".into(), "b\r\nc: d".into())), "header field");
        wrong(|p| p.fields.push((":path".into(), "/".into())), "header field");
        wrong(|p| p.fields.push(("Content-length".into(), "1".into())), "delimit");
        wrong(|p| p.fields.push(("a".into(), "b".repeat(FIELDS_BYTES_MAX))), "bytes");
        wrong(|p| p.fields = vec![("Host".into(), "a".into()), ("host".into(), "b".into())], "one");
        wrong(|p| (p.target.addr, p.sources) = ("10.0.0.1:80".parse().unwrap(), 2), "sources");
    }

    #[test]
    fn as_few_source_addresses_as_the_ports_allow() {
        let target: Target = "http://127.0.0.1:8080/".parse().unwrap();
        let mut plan = Plan::new(target, Schedule::ClosedLoop, Duration::from_secs(1));
        assert_eq!(plan.source_count(), 1);
        plan.cold = 100_000;
        assert_eq!(plan.source_count(), 5);
        plan.sources = 2;
        assert_eq!(plan.source_count(), 2);
    }
}
