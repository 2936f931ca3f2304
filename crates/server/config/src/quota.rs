//! Quotas: how much a client, a user, a route or all together may ask for.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;

use super::here::Here;
use super::table::{Key, Table, keys};
use super::value::{Kind, TIMEOUT, understood, words};
use super::when::When;
use super::{Config, Host, Role};
use crate::limits::{
    QUOTA_BURST_BYTES_MIN, QUOTA_MEMORY_DEFAULT, QUOTA_MEMORY_MAX, QUOTA_MEMORY_MIN,
    QUOTA_RATE_MAX, QUOTA_WINDOW_MAX,
};

/// One quota. Limits that are `None` do not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Its name in responses, metrics and `/quotas`.
    pub name: String,
    /// What has a quota by itself.
    pub by: By,
    /// The bits of an IPv4 address that make a network ...
    pub v4_prefix: u8,
    /// ... and those of an IPv6 address.
    pub v6_prefix: u8,
    /// Requests.
    pub requests: Option<Rate>,
    /// Requests that may come at once; `None`: those of one second.
    pub burst: Option<u64>,
    /// Content bytes of responses.
    pub bytes: Option<Rate>,
    /// Bytes that may be sent at once; `None`: those of one second.
    pub bytes_burst: Option<u64>,
    /// Open connections.
    pub connections: Option<u32>,
    /// Requests in progress.
    pub concurrency: Option<u32>,
    /// What becomes of a request above the rate.
    pub over: Over,
    /// The longest delay.
    pub delay_max: Duration,
    /// How many requests may be delayed at the same time.
    pub waiting_max: u32,
    /// Which requests count.
    pub counts: Counts,
    /// The listeners; `None`: all.
    pub role: Option<Role>,
    /// The hosts; empty: all.
    pub hosts: Vec<Host>,
    /// The path, and everything below it.
    pub prefix: String,
    /// The condition on a request; `None`: all.
    pub when: Option<When>,
    /// Clients without this quota.
    pub except_from: Vec<IpNet>,
    /// Whether the bytes that tunnels carry to the client count, too.
    pub tunnels: bool,
    /// Whether responses have the fields `RateLimit` and `RateLimit-Policy`.
    pub fields: bool,
    /// Bytes of each of its tables.
    pub memory: u64,
}

/// What has a quota by itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// The network of the client's address.
    Network,
    /// The user whose password was verified.
    User,
    /// The value of a request's field.
    Field(String),
    /// The route.
    Route,
    /// All clients together.
    All,
}

/// What becomes of a request above the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Over {
    /// It is answered 429.
    #[default]
    Refuse,
    /// It waits, within bounds.
    Delay,
}

/// Which requests count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Counts {
    /// All.
    #[default]
    All,
    /// Those that need an upstream.
    Fetches,
}

/// An amount for each period, as in `100/s` or `1MiB/s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests or bytes.
    pub amount: u64,
    /// For so long.
    pub period: Duration,
}

impl Rate {
    /// The amount of one second, at least 1.
    pub fn per_second(&self) -> u64 {
        (self.amount / self.period.as_secs().max(1)).max(1)
    }

    /// The time in which this amount is allowed, rounded up to seconds.
    pub fn seconds_of(&self, amount: u64) -> u64 {
        let product = u128::from(amount) * u128::from(self.period.as_secs());
        u64::try_from(product.div_ceil(u128::from(self.amount.max(1)))).unwrap_or(u64::MAX)
    }
}

const PERIODS: [(&str, u64); 4] = [("s", 1), ("m", 60), ("h", 3600), ("d", 24 * 3600)];

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let wrong = || format!("\"{text}\" is not a rate such as \"100/s\" or \"1MiB/s\"");
        let (amount, unit) = text.split_once('/').ok_or_else(wrong)?;
        let seconds = PERIODS.iter().find(|(name, _)| *name == unit.trim());
        let (_, seconds) = seconds.ok_or_else(|| format!("{}; units: s, m, h, d", wrong()))?;
        let amount = units::bytes(amount.trim()).map_err(|_| wrong())?;
        if amount == 0 || amount / seconds > QUOTA_RATE_MAX {
            return Err(format!("\"{text}\" is not a rate from 1/d to {QUOTA_RATE_MAX}/s"));
        }
        Ok(Rate { amount, period: Duration::from_secs(*seconds) })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = PERIODS.iter().find(|(_, seconds)| *seconds == self.period.as_secs());
        write!(f, "{}/{}", self.amount, unit.map_or("s", |(name, _)| name))
    }
}

impl FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<By, String> {
        match text {
            "network" => Ok(By::Network),
            "user" => Ok(By::User),
            "route" => Ok(By::Route),
            "all" => Ok(By::All),
            _ => match text.strip_prefix("field:") {
                Some(name)
                    if http1::write::field(&mut Vec::new(), name.as_bytes(), b"").is_ok() =>
                {
                    Ok(By::Field(name.to_ascii_lowercase()))
                }
                _ => Err(format!(
                    "\"{text}\" is not \"network\", \"user\", \"route\", \"all\" or \"field:NAME\""
                )),
            },
        }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            By::Network => f.write_str("network"),
            By::User => f.write_str("user"),
            By::Field(name) => write!(f, "field:{name}"),
            By::Route => f.write_str("route"),
            By::All => f.write_str("all"),
        }
    }
}

understood!(Rate By Host);
words!(Over: "refuse" => Over::Refuse, "delay" => Over::Delay);
words!(Counts: "all" => Counts::All, "fetches" => Counts::Fetches);

impl Default for Quota {
    fn default() -> Quota {
        Quota {
            name: String::new(),
            by: By::Network,
            v4_prefix: 32,
            v6_prefix: 64,
            requests: None,
            burst: None,
            bytes: None,
            bytes_burst: None,
            connections: None,
            concurrency: None,
            over: Over::Refuse,
            delay_max: Duration::from_secs(5),
            waiting_max: 1000,
            counts: Counts::All,
            role: None,
            hosts: Vec::new(),
            prefix: "/".to_owned(),
            when: None,
            except_from: Vec::new(),
            tunnels: false,
            fields: false,
            memory: QUOTA_MEMORY_DEFAULT,
        }
    }
}

impl Quota {
    /// Requests that may come at once.
    pub fn requests_at_once(&self, rate: &Rate) -> u64 {
        self.burst.unwrap_or_else(|| rate.per_second())
    }

    /// Bytes that may be sent at once.
    pub fn bytes_at_once(&self, rate: &Rate) -> u64 {
        self.bytes_burst.unwrap_or_else(|| rate.per_second().max(QUOTA_BURST_BYTES_MIN))
    }
}

impl Quota {
    /// Keys that have an effect only together with others: whether they have, and what they need.
    fn effects(&self) -> [(&'static str, bool, &'static str); 11] {
        let (requests, bytes) = (self.requests.is_some(), self.bytes.is_some());
        let any = requests || bytes || self.concurrency.is_some();
        let (delays, is_of_network) = (self.over == Over::Delay, self.by == By::Network);
        [
            ("burst", requests, "`requests`"),
            ("bytes_burst", bytes, "`bytes`"),
            ("tunnels", bytes, "`bytes`"),
            ("over", requests, "`requests`"),
            ("delay_max", delays, "over = \"delay\""),
            ("waiting_max", delays, "over = \"delay\""),
            ("counts", any, "`requests`, `bytes` or `concurrency`"),
            ("fields", any, "`requests`, `bytes` or `concurrency`"),
            ("memory", requests || bytes, "`requests` or `bytes`"),
            ("v4_prefix", is_of_network, "by = \"network\""),
            ("v6_prefix", is_of_network, "by = \"network\""),
        ]
    }

    /// Whether it can apply to a request at all: if not, the wrong key and why.
    pub(crate) fn check_within(&self, config: &Config) -> Result<(), (&'static str, &'static str)> {
        let is_for = |role| self.role.is_none_or(|of| of == role);
        let hears = |role| config.listeners.iter().any(|it| it.role == role) && is_for(role);
        if !hears(Role::Reverse) && !hears(Role::Forward) {
            return Err(("role", "no listener has this role"));
        }
        match self.by {
            By::User if !hears(Role::Forward) || config.forward.users.is_none() => {
                Err(("by", "only a forward listener has users, and only with `users` in [forward]"))
            }
            By::Route if !hears(Role::Reverse) => Err(("by", "only a reverse listener has routes")),
            _ => Ok(()),
        }
    }
}

/// `[[quota]]`
impl Table for Quota {
    const KEYS: &'static [Key<Quota>] = keys![Quota;
        name: Kind::Text, name, "Its name in responses, metrics and on the admin address.",
            required !, example "\"clients\"";
        by: Kind::Text, by,
            "What has the quota by itself: each `network` of clients, each `user`, each value of \
             a request's field (`field:NAME`), each `route`, or `all` together. A client can \
             choose the value of a field, so only a field that a trusted proxy sets limits it.";
        v4_prefix: Kind::Count(0, 32), v4_prefix,
            "With by = \"network\": the length of an IPv4 network's prefix.";
        v6_prefix: Kind::Count(0, 128), v6_prefix,
            "With by = \"network\": the length of an IPv6 network's prefix. One subscriber \
             usually has all addresses of a /64.";
        requests: Kind::Text, requests,
            "Requests for each s, m, h or d. Default: not limited.", example "\"100/s\"";
        burst: Kind::Count(1, 1_000_000_000), burst,
            "Requests that may come at once after a pause. Default: those of one second.",
            example "200";
        bytes: Kind::Text, bytes,
            "Content bytes of responses for each s, m, h or d. Responses are sent more slowly, \
             and are not refused. Default: not limited.", example "\"1MiB/s\"";
        bytes_burst: Kind::Bytes(1024, 1 << 40), bytes_burst,
            "Bytes that may be sent at once after a pause. Default: those of one second, at least \
             64KiB.", example "\"4MiB\"";
        tunnels: Kind::Flag, tunnels,
            "Whether the bytes that tunnels (CONNECT, WebSocket) carry to the client count for \
             `bytes`: then tunnels are slowed down, too.";
        connections: Kind::Count(1, 1_000_000), connections,
            "Open connections, with by = \"network\" or \"all\". One more is closed without an \
             answer. Default: not limited.", example "100";
        concurrency: Kind::Count(1, 1_000_000), concurrency,
            "Requests in progress. One more is answered 429. Default: not limited.",
            example "20";
        over: Kind::Word(&["refuse", "delay"]), over,
            "What becomes of a request above the rate: it is answered 429, or waits.";
        delay_max: TIMEOUT, delay_max,
            "With over = \"delay\": a request that would wait longer is answered 429.";
        waiting_max: Kind::Count(1, 1_000_000), waiting_max,
            "With over = \"delay\": how many requests may wait at the same time. With by = \
             \"network\", \"user\" or \"field:NAME\", one client gets about half of these places \
             at most.";
        counts: Kind::Word(&["all", "fetches"]), counts,
            "Which requests count: all, or those that need an upstream.";
        role: Kind::Word(&["reverse", "forward"]), role,
            "Only requests to listeners with this role. Default: all listeners.",
            example "\"reverse\"";
        hosts: Kind::Texts, hosts,
            "Only requests for these hosts, as in a route. If empty, all hosts.",
            example "[\"api.example.org\"]";
        prefix: Kind::Text, prefix, "Only requests for this path and everything below it.";
        when: Kind::Text, when,
            "Only requests for which this condition holds, as in [[rule]]. It may not read `tls` \
             and `random`.", example "\"method == 'POST'\"";
        except_from: Kind::Networks, except_from, "Networks whose clients have no quota.",
            example "[\"10.0.0.0/8\"]";
        fields: Kind::Flag, fields,
            "Whether all responses that count have RateLimit and RateLimit-Policy. A 429 always \
             has them.";
        memory: Kind::Bytes(QUOTA_MEMORY_MIN, QUOTA_MEMORY_MAX), memory,
            "Bytes of the table for `requests`, and of the one for `bytes`: 8 for each client. \
             Allocated at the start.";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        let is_safe = |b: u8| b == b' ' || (b.is_ascii_graphic() && !matches!(b, b'"' | b'\\'));
        if !self.name.bytes().all(is_safe) {
            here.mistake_of("name", "a name has visible ASCII characters, without \" and \\");
        }
        let Quota { requests, bytes, connections, concurrency, by, .. } = self;
        if (requests, bytes) == (&None, &None) && (connections, concurrency) == (&None, &None) {
            here.mistake_here(
                "it limits nothing: write `requests`, `bytes`, `connections` or `concurrency`",
            );
        }
        let is_of_connections = matches!(by, By::Network | By::All);
        let is_of_all = self.hosts.is_empty() && self.prefix == "/" && self.when.is_none();
        if connections.is_some() && !(is_of_connections && is_of_all) {
            let text = "a connection has no request yet: only by = \"network\" and \"all\" count \
                        connections, without hosts and prefix";
            here.mistake_of("connections", text);
        }
        if !self.prefix.starts_with('/') || self.prefix.contains(['?', '#', ' ']) {
            here.mistake_of("prefix", "a path begins with / and has no query");
        }
        for (key, takes_effect, with) in self.effects() {
            if here.has(key) && !takes_effect {
                here.mistake_of(key, format!("it has no effect without {with}"));
            }
        }
        let windows = [
            ("burst", requests.map(|rate| rate.seconds_of(self.requests_at_once(&rate)))),
            ("bytes_burst", bytes.map(|rate| rate.seconds_of(self.bytes_at_once(&rate)))),
        ];
        for (key, seconds) in windows {
            if seconds.is_some_and(|seconds| seconds > QUOTA_WINDOW_MAX.as_secs()) {
                let days = QUOTA_WINDOW_MAX.as_secs() / (24 * 3600);
                here.mistake_of(key, format!("the rate needs more than {days} days for it"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_an_amount_and_a_unit() {
        let rate = |text: &str| text.parse::<Rate>();
        assert_eq!(rate("100/s"), Ok(Rate { amount: 100, period: Duration::from_secs(1) }));
        assert_eq!(rate("1MiB/m").unwrap().amount, 1 << 20);
        assert_eq!(rate("10/m").unwrap().seconds_of(5), 30);
        assert_eq!(rate("10/h").unwrap().per_second(), 1);
        assert_eq!(rate("7/d").unwrap().to_string(), "7/d");
        for wrong in ["", "1", "/s", "0/s", "1/x", "-1/s", "a/s", "99999999999999/s"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn by_names_what_has_a_quota() {
        assert_eq!("field:X-Key".parse(), Ok(By::Field("x-key".into())));
        for good in ["network", "user", "route", "all", "field:x-key"] {
            assert_eq!(good.parse::<By>().unwrap().to_string(), good);
        }
        for wrong in ["", "ip", "field:", "field:a b", "field:a:b"] {
            assert!(wrong.parse::<By>().is_err(), "{wrong}");
        }
    }
}
