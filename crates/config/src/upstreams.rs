//! Groups of upstream servers: who they are, how requests are spread over them, and how much is
//! asked of them.

use std::net::SocketAddr;
use std::time::Duration;

use super::Origin;

/// Servers that answer for the same content.
#[derive(Clone, Debug)]
pub struct Group {
    /// By which routes, logs and metrics call it.
    pub name: String,
    /// At least one, at most [`crate::limits::SERVERS_PER_GROUP_MAX`].
    pub servers: Vec<Server>,
    /// How requests are spread.
    pub balance: Balance,
    /// What they get as `Host`.
    pub host: HostSent,
    /// What they are told of the client.
    pub forwarded: ForwardedFields,
    /// What connections to them begin with.
    pub proxy_header: ProxyHeader,
    /// How long they may take.
    pub timeouts: Timeouts,
    /// How often a request is repeated on another server.
    pub retries: Retries,
    /// Requests that wait while every server has as many as it may.
    pub queue: Queue,
    /// Servers are asked whether they are well; `None`: only by the requests themselves.
    pub health: Option<HealthCheck>,
    /// Servers that fail requests are left alone for a while.
    pub ejection: Ejection,
    /// A server that has come back gets its full share only after so long.
    pub slow_start: Duration,
}

impl Group {
    /// A group of these origins, with the defaults.
    pub fn of(name: &str, origins: impl IntoIterator<Item = Origin>) -> Group {
        Group {
            name: name.to_owned(),
            servers: origins.into_iter().map(Server::of).collect(),
            balance: Balance::default(),
            host: HostSent::default(),
            forwarded: ForwardedFields::default(),
            proxy_header: ProxyHeader::default(),
            timeouts: Timeouts::default(),
            retries: Retries::default(),
            queue: Queue::default(),
            health: None,
            ejection: Ejection::default(),
            slow_start: Duration::ZERO,
        }
    }
}

/// One server of a group.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its name and its first addresses; a name is looked up again when its time to live is over.
    pub origin: Origin,
    /// Its share, in proportion to the others': 1 to [`crate::limits::WEIGHT_MAX`].
    pub weight: u32,
    /// Asked only while no other is usable.
    pub backup: bool,
    /// Requests that it may have at a time, all cores together; `None`: any number.
    pub outstanding_max: Option<u32>,
}

impl Server {
    /// With the defaults.
    pub fn of(origin: Origin) -> Server {
        Server { origin, weight: 1, backup: false, outstanding_max: None }
    }
}

/// How requests are spread over the servers of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// In turn, each as often as its weight says, evenly mixed.
    #[default]
    RoundRobin,
    /// To the one with the fewest requests under way for its weight.
    LeastOutstanding,
    /// By the URL, so that each has always the same ones; when a server goes or comes, only its own
    /// move.
    Hash {
        /// A server that has more than so many percent of its fair share of the requests under way
        /// passes the next on to another; 0: never.
        load_percent_max: u32,
    },
}

impl Balance {
    /// By the URL, with loads bounded at 1.25 times the fair share.
    pub const HASH: Balance = Balance::Hash { load_percent_max: 125 };
}

/// What servers get as `Host`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostSent {
    /// What the client asked for.
    #[default]
    Client,
    /// This one.
    Named(String),
}

/// Fields that tell the servers who asked, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedFields {
    /// None; what a client sends of them is passed on as it came.
    #[default]
    None,
    /// `X-Forwarded-For`, to which the client's address is added, and `X-Forwarded-Proto` and
    /// `X-Forwarded-Host`, which replace the client's own.
    XForwarded,
    /// `Forwarded` (RFC 7239), to which an element is added.
    Forwarded,
}

/// The header of the PROXY protocol that connections to the servers begin with, which tells them
/// whose connection it is. A connection with one is used for one request.
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

/// How long a server may take. `None` takes the time from [`crate::limits::Limits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// To accept a connection.
    pub connect: Option<Duration>,
    /// From the request's last byte to the head of the answer.
    pub first_byte: Option<Duration>,
    /// Between two pieces, either way.
    pub idle: Option<Duration>,
    /// For everything, from the first attempt to the answer's last byte; `None`: no bound.
    pub total: Option<Duration>,
}

/// When a request that got no answer is repeated on another server.
///
/// Only what may be repeated is (RFC 9110, 9.2.2), and only while not one byte of an answer has
/// come. A server that could not be connected to has seen nothing, so then any request goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Other servers that one request may be sent to; 0: none.
    pub max: u32,
    /// Retries of all requests together, in percent of them: they never multiply an outage.
    pub budget_percent: u32,
    /// So many are allowed beyond that, as long as they are not used up.
    pub burst: u32,
}

impl Default for Retries {
    fn default() -> Retries {
        Retries { max: 1, budget_percent: 20, burst: 100 }
    }
}

/// Requests that wait for a server with room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// As many may wait; one more is answered with 503.
    pub length_max: usize,
    /// After so long a waiting request is answered with 503.
    pub timeout: Duration,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { length_max: 1000, timeout: Duration::from_secs(5) }
    }
}

/// A question to each server, again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Asked for with GET.
    pub path: String,
    /// Sent as `Host`; `None`: the server's own name.
    pub host: Option<String>,
    /// Between two questions to one server.
    pub interval: Duration,
    /// An answer that takes longer is none.
    pub timeout: Duration,
    /// Good answers in a row after which a server that was down is up.
    pub rise: u32,
    /// Failures in a row after which it is down.
    pub fall: u32,
    /// Statuses of good answers, from and to.
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

/// When a server that fails requests is left alone, and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Failures in a row; 0: never.
    pub failures: u32,
    /// The first time so long, then twice as long each time ...
    pub base: Duration,
    /// ... but no longer than this.
    pub max: Duration,
    /// Servers of a group that may be ejected at a time, in percent, rounded down: a group of one
    /// never loses it.
    pub share_percent_max: u32,
    /// Answers that count as failures too.
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
    fn an_authority_is_a_host_and_a_port() {
        for (authority, host, port) in
            [("a", "a", 80), ("a:81", "a", 81), ("[::1]", "::1", 80), ("[::1]:81", "::1", 81)]
        {
            let origin = Origin { authority: authority.into(), addresses: Vec::new(), tls: None };
            assert_eq!(origin.host_and_port(80), (host, port), "{authority}");
        }
    }
}
