//! Groups of upstream servers: their members, how requests are balanced, and limits on their load.

use std::net::SocketAddr;
use std::time::Duration;

use super::here::Here;
use super::value::{Kind, Setting};
use crate::limits::ADDRESSES_PER_SERVER_MAX;

use super::{HashBy, Login, Origin, Sticky};
use toml::Spanned;
use toml::de::DeValue;
use transport::tls::Offered;

/// Servers with the same content.
#[derive(Clone, Debug)]
pub struct Group {
    /// The name used by routes, logs and metrics.
    pub name: String,
    /// At least one, at most [`crate::limits::SERVERS_PER_GROUP_MAX`].
    pub servers: Vec<Server>,
    /// How requests are balanced.
    pub balance: Balance,
    /// What of a request says which server gets it, if they are balanced by a hash.
    pub hash_by: HashBy,
    /// The cookie that names the server of a session, if there are sessions.
    pub sticky: Option<Sticky>,
    /// The `Host` they get.
    pub host: HostSent,
    /// What they learn about the client.
    pub forwarded: ForwardedFields,
    /// What connections to them begin with.
    pub proxy_header: ProxyHeader,
    /// The version of HTTP that they are sent.
    pub protocol: UpstreamProtocol,
    /// Which requests may use an idle connection.
    pub reuse: UpstreamReuse,
    /// Their time-outs.
    pub timeouts: Timeouts,
    /// How often a request is retried on another server.
    pub retries: Retries,
    /// The queue for requests while every server is at its limit.
    pub queue: Queue,
    /// Active health checks; `None`: only requests show whether a server works.
    pub health: Option<HealthCheck>,
    /// When failing servers are taken out for a while.
    pub ejection: Ejection,
    /// A server that has come back reaches its full share after this time.
    pub slow_start: Duration,
    /// Only a connection that cannot be made, or that breaks before any byte of an answer, counts
    /// for an ejection: the servers are members of a cluster, and all else may come from what is
    /// behind them.
    pub is_of_members: bool,
}

impl Group {
    /// A group of these origins, with the defaults.
    pub fn of(name: &str, origins: impl IntoIterator<Item = Origin>) -> Group {
        Group {
            name: name.to_owned(),
            servers: origins.into_iter().map(Server::of).collect(),
            balance: Balance::default(),
            hash_by: HashBy::default(),
            sticky: None,
            host: HostSent::default(),
            forwarded: ForwardedFields::default(),
            proxy_header: ProxyHeader::default(),
            protocol: UpstreamProtocol::default(),
            reuse: UpstreamReuse::default(),
            timeouts: Timeouts::default(),
            retries: Retries::default(),
            queue: Queue::default(),
            health: None,
            ejection: Ejection::default(),
            slow_start: Duration::ZERO,
            is_of_members: false,
        }
    }
}

/// One server of a group.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its name and first addresses. A name is looked up again when its TTL expires.
    pub origin: Origin,
    /// Its share, relative to the others: 1 to [`crate::limits::WEIGHT_MAX`].
    pub weight: u32,
    /// Used only while no other server is usable.
    pub backup: bool,
    /// Maximum concurrent requests, all cores together; `None`: no limit.
    pub outstanding_max: Option<u32>,
    /// Its name in the cookie of a session.
    pub id: Option<String>,
    /// Which of the addresses of its name are servers.
    pub addresses: Addresses,
    /// For a parent: sent with each request.
    pub login: Option<Login>,
}

impl Server {
    /// With the defaults.
    pub fn of(origin: Origin) -> Server {
        let (weight, backup, outstanding_max) = (1, false, None);
        let (id, addresses, login) = (None, Addresses::default(), None);
        Server { origin, weight, backup, outstanding_max, id, addresses, login }
    }

    /// Whether each of its addresses is a server.
    pub fn has_slots(&self) -> bool {
        self.addresses == Addresses::All || self.origin.service().is_some()
    }

    /// How many servers it can be at a time.
    pub fn slots(&self) -> usize {
        if self.has_slots() { ADDRESSES_PER_SERVER_MAX } else { 1 }
    }

    /// Its name in the cookie of a session, which has a hash of its URL if none is configured.
    pub fn session_id(&self) -> String {
        let of_url = || format!("{:04x}", short_id(&self.origin.authority));
        self.id.clone().unwrap_or_else(of_url)
    }
}

/// 16 bits of a hash (FNV-1a, mixed once more) of the URL of a server: too few to find an address
/// by trying.
pub fn short_id(url: &str) -> u16 {
    let add = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = url.bytes().fold(0xcbf2_9ce4_8422_2325, add);
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16
}

/// Which of the addresses of a name are servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Addresses {
    /// All of them are one server, which is connected to at the first that accepts.
    #[default]
    One,
    /// Each is a server.
    All,
}

/// How requests are balanced over the servers of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// In turn by weight, evenly mixed.
    #[default]
    RoundRobin,
    /// To the server with the fewest requests in flight for its weight.
    LeastOutstanding,
    /// By the URL, so that each server always gets the same ones. When a server leaves or joins,
    /// only its own URLs move.
    Hash {
        /// A server with more than this percentage of its fair share of the requests in flight
        /// passes the next request on to another; 0: never.
        load_percent_max: u32,
    },
    /// By the URL, as the Cache Array Routing Protocol says.
    Carp,
}

impl Balance {
    /// By the URL, with load limited to 1.25 times the fair share.
    pub const HASH: Balance = Balance::Hash { load_percent_max: 125 };
}

/// The `Host` sent to servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostSent {
    /// The client's.
    #[default]
    Client,
    /// This one.
    Named(String),
}

/// Fields that inform the servers about the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedFields {
    /// None; the client's own fields are forwarded unchanged.
    #[default]
    None,
    /// `X-Forwarded-For`, to which the client's address is added, and `X-Forwarded-Proto` and
    /// `X-Forwarded-Host`, which replace the client's own.
    XForwarded,
    /// `X-Forwarded-For` alone, to which the client's address is added. The client's own
    /// `X-Forwarded-Proto` and `X-Forwarded-Host` are forwarded unchanged.
    XForwardedFor,
    /// `Forwarded` (RFC 7239), to which an element is added.
    Forwarded,
}

/// The PROXY protocol header at the beginning of connections to the servers, with the client's
/// address. A connection with it is used for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyHeader {
    /// None: the first byte is that of TLS, or of a request.
    #[default]
    None,
    /// Version 1, a line of text.
    V1,
    /// Version 2, in binary.
    V2,
}

/// The version of HTTP that servers are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2 over TLS. The server must choose it (ALPN).
    H2,
    /// HTTP/2 in the clear, without asking (prior knowledge).
    H2c,
    /// Over TLS the one that the server chooses (ALPN); in the clear HTTP/1.1.
    Auto,
}

/// Which requests may use an idle connection of HTTP/1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamReuse {
    /// Those that may be repeated.
    #[default]
    Repeatable,
    /// Others, too, if the connection was used a moment ago.
    All,
}

impl UpstreamProtocol {
    /// What a TLS handshake offers.
    pub(crate) fn offered(self) -> Offered {
        match self {
            UpstreamProtocol::Http1 | UpstreamProtocol::H2c => Offered::Http1,
            UpstreamProtocol::H2 => Offered::Http2,
            UpstreamProtocol::Auto => Offered::Both,
        }
    }
}

/// Time-outs for a server. `None` uses the value in [`crate::limits::Limits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// To accept a connection.
    pub connect: Option<Duration>,
    /// From the last byte of the request to the head of the response.
    pub first_byte: Option<Duration>,
    /// Between two pieces, either way.
    pub idle: Option<Duration>,
    /// For everything, from the first attempt to the last byte of the response; `None`: no limit.
    pub total: Option<Duration>,
}

impl Timeouts {
    /// These, and where one is absent, the other one.
    #[must_use]
    pub fn or(&self, other: Timeouts) -> Timeouts {
        Timeouts {
            connect: self.connect.or(other.connect),
            first_byte: self.first_byte.or(other.first_byte),
            idle: self.idle.or(other.idle),
            total: self.total.or(other.total),
        }
    }
}

/// When an unanswered request is retried on another server.
///
/// Only requests that may be repeated are retried (RFC 9110, 9.2.2), and only before the first byte
/// of a response. If no connection could be established, the server has seen nothing, so any
/// request is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Maximum other servers per request; 0: no retries.
    pub max: u32,
    /// Retries of all requests together, as a percentage of requests, so that they never multiply
    /// an outage.
    pub budget_percent: u32,
    /// Retries allowed beyond that.
    pub burst: u32,
    /// Responses with these statuses count as no answer, if the request may be repeated.
    pub statuses: Statuses,
}

/// A set of statuses from 100 to 599.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statuses([u64; 8]);

impl Statuses {
    /// The place of a status: the word, and the bit in it.
    fn place(status: u16) -> Option<(usize, u64)> {
        let at = usize::from(status.checked_sub(100)?);
        (at < 500).then_some((at / 64, 1 << (at % 64)))
    }

    /// Whether it has this status.
    pub fn has(&self, status: u16) -> bool {
        Statuses::place(status).is_some_and(|(word, bit)| self.0[word] & bit != 0)
    }
}

impl FromIterator<u16> for Statuses {
    fn from_iter<I: IntoIterator<Item = u16>>(statuses: I) -> Statuses {
        let mut set = Statuses::default();
        for (word, bit) in statuses.into_iter().filter_map(Statuses::place) {
            set.0[word] |= bit;
        }
        set
    }
}

impl Setting for Statuses {
    fn read(
        value: &Spanned<DeValue<'_>>,
        kind: &Kind,
        here: &mut Here<'_, '_>,
    ) -> Option<Statuses> {
        Vec::<u16>::read(value, kind, here).map(Statuses::from_iter)
    }

    fn show(&self, kind: &Kind) -> Option<String> {
        (100..600).filter(|status| self.has(*status)).collect::<Vec<u16>>().show(kind)
    }
}

impl Default for Retries {
    fn default() -> Retries {
        Retries { max: 1, budget_percent: 20, burst: 100, statuses: Statuses::default() }
    }
}

/// Requests that wait for a server below its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Maximum waiting requests; another one gets 503.
    pub length_max: usize,
    /// A request that waits longer gets 503.
    pub timeout: Duration,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { length_max: 1000, timeout: Duration::from_secs(5) }
    }
}

/// Periodic health checks of each server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Requested with GET.
    pub path: String,
    /// Sent as `Host`; `None`: the server's own name.
    pub host: Option<String>,
    /// Time between checks of a server.
    pub interval: Duration,
    /// A later response counts as a failure.
    pub timeout: Duration,
    /// Consecutive successes after which a server is up again.
    pub rise: u32,
    /// Consecutive failures after which a server is down.
    pub fall: u32,
    /// Statuses that count as success, from and to.
    pub status: (u16, u16),
}

impl Default for HealthCheck {
    fn default() -> HealthCheck {
        HealthCheck {
            path: "/".to_owned(),
            host: None,
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
            status: (200, 399),
        }
    }
}

/// When a server whose requests fail is ejected, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Consecutive failures; 0: never.
    pub failures: u32,
    /// How long the first time; doubled each time ...
    pub base: Duration,
    /// ... up to this.
    pub max: Duration,
    /// Maximum percentage of a group's servers that may be ejected at a time, rounded down: a group
    /// of one is never emptied.
    pub share_percent_max: u32,
    /// Statuses that count as failures too.
    pub statuses: Vec<u16>,
}

impl Default for Ejection {
    fn default() -> Ejection {
        Ejection {
            failures: 5,
            base: Duration::from_secs(5),
            max: Duration::from_secs(300),
            share_percent_max: 50,
            statuses: Vec::new(),
        }
    }
}

impl Origin {
    /// The host without brackets and port, and the port.
    pub fn host_and_port(&self, default_port: u16) -> (&str, u16) {
        if !self.is_host() {
            // No name: nothing is looked up.
            return ("127.0.0.1", default_port);
        }
        let (host, port) = match self.authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()),
            _ => (self.authority.as_str(), None),
        };
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        (bare, port.unwrap_or(default_port))
    }

    /// An origin at this address.
    pub fn at(address: SocketAddr) -> Origin {
        Origin { authority: address.to_string(), addresses: vec![address], tls: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_are_a_set() {
        let set = Statuses::from_iter([100, 502, 599, 600, 99]);
        let has: Vec<u16> = (0..=u16::MAX).filter(|status| set.has(*status)).collect();
        assert_eq!(has, [100, 502, 599]);
    }

    #[test]
    fn neighbours_have_different_ids() {
        let ports = (8000..8128).map(|port| short_id(&format!("127.0.0.1:{port}")));
        let hosts = (0..=255).map(|host| short_id(&format!("10.0.0.{host}:80")));
        let mut all: Vec<u16> = ports.chain(hosts).collect();
        all.sort_unstable();
        all.dedup();
        // Of 384 random numbers of 16 bits, about one is there twice.
        assert!(all.len() > 378, "{}", all.len());
    }

    #[test]
    fn an_authority_is_a_host_and_a_port() {
        for (authority, host, port) in
            [("a", "a", 80), ("a:81", "a", 81), ("[::1]", "::1", 80), ("[::1]:81", "::1", 81)]
        {
            let origin = Origin { authority: authority.into(), addresses: Vec::new(), tls: None };
            assert_eq!(origin.host_and_port(80), (host, port), "{authority}");
        }
    }
}
