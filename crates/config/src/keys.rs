//! The keys of a configuration file, each declared once: name, type, unit, bounds, help. The
//! defaults are those of the types.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use store::disk::Verify;

use super::forward_keys::UpgradeSection;
use super::table::{Here, Key, Table, keys};
use super::value::{Kind, Parsed, TIMEOUT, WHILE, words};
use super::{
    Balance, DiskConfig, Ejection, FieldRule, Forward, ForwardedFields, HealthCheck, Host,
    ListenerTls, Origin, ProxyHeader, PurgeRules, Queue, Retries, Role, Timeouts, UpstreamTls, Via,
};
use crate::limits::{Limits, READ_BUFFER_BYTES, WEIGHT_MAX};
use access_log::LogFormat;
use dns::NameServers;
use dns::limits::SERVERS_MAX as NAME_SERVERS_MAX;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
/// A count that nobody has a reason to exceed.
const MANY: u64 = 1_000_000;
/// A share in percent.
const PERCENT: Kind = Kind::Count(0, 100);
const STATUS: Kind = Kind::Count(100, 599);

/// The whole file.
#[derive(Debug)]
pub(crate) struct Root {
    pub(crate) server: ServerSection,
    pub(crate) listen: Vec<ListenTable>,
    pub(crate) upstream: Vec<UpstreamTable>,
    pub(crate) route: Vec<RouteTable>,
    pub(crate) forward: Forward,
    pub(crate) upgrade: UpgradeSection,
    pub(crate) via: Via,
    pub(crate) store: StoreSection,
    pub(crate) purge: PurgeRules,
    pub(crate) dns: DnsSection,
    pub(crate) log: LogSection,
    pub(crate) https: UpstreamTls,
    pub(crate) limits: Limits,
}

impl Table for Root {
    const KEYS: &'static [Key<Root>] = keys![Root;
        [server]: server, "The process: its threads, its user, its admin address.";
        [[listen]]: listen, "An address where clients connect.", example "shown";
        [[upstream]]: upstream, "Servers that answer for the same content, behind reverse \
            listeners.",
            example "shown";
        [[route]]: route, "Requests of reverse listeners with something in common, and what \
            becomes \
            of them. Without any, all go to the first upstream. Of those that match, the one with \
            the most specific host is taken, and of these the one with the most specific path.";
        [forward]: forward, "Who may use forward listeners, and for what. Every refusal names its \
            rule, in its answer and in the log.";
        [upgrade]: upgrade, "Connections that go on in another protocol.";
        [via]: via, "What messages say of the hops that they have made: the field Via (RFC 9110, \
            7.6.3).";
        [store]: store, "Where responses are kept.";
        [purge]: purge, "Taking responses out of the store.";
        [dns]: dns, "Where names are looked up.";
        [log]: log, "The access log.";
        [https]: https, "How TLS is spoken with servers that clients of forward listeners name by \
            https URLs.";
        [limits]: limits, "Bounds and time-outs. Those of time on upstreams hold where an upstream \
            says nothing else.";
    ];

    fn blank() -> Root {
        Root {
            server: ServerSection::blank(),
            listen: Vec::new(),
            upstream: Vec::new(),
            route: Vec::new(),
            forward: Forward::blank(),
            upgrade: UpgradeSection::blank(),
            via: Via::default(),
            store: StoreSection::blank(),
            purge: PurgeRules::default(),
            dns: DnsSection::blank(),
            log: LogSection::blank(),
            https: UpstreamTls::default(),
            limits: Limits::default(),
        }
    }
}

/// `[server]`
#[derive(Debug)]
pub(crate) struct ServerSection {
    pub(crate) workers: Option<usize>,
    pub(crate) backend: Option<Backend>,
    pub(crate) user: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) admin: Option<SocketAddr>,
}

/// The event notification, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backend(pub(crate) readiness::Kind);

const BACKENDS: Kind = Kind::Word(&["epoll", "io_uring", "scalable_select", "poll", "select"]);
words!(Backend:
    "epoll" => Backend(readiness::Kind::Epoll),
    "io_uring" => Backend(readiness::Kind::IoUring),
    "scalable_select" => Backend(readiness::Kind::ScalableSelect),
    "poll" => Backend(readiness::Kind::Poll),
    "select" => Backend(readiness::Kind::Select),
);

impl Table for ServerSection {
    const KEYS: &'static [Key<ServerSection>] = keys![ServerSection;
        workers: Kind::Count(1, 1024), workers,
            "Threads that serve, one a core. Without it as many as the CPUs the process may run \
            on.",
            restart !, example "2";
        backend: BACKENDS, backend,
            "Event notification. Without it the best that passes its self-test.",
            restart !, example "\"epoll\"";
        admin: Kind::Address, admin,
            "Address of the admin listener: metrics, health, upstreams, purges, reload and \
             restart. Whoever reaches it may use it: keep it on a loopback address.",
            restart !, example "\"127.0.0.1:3129\"";
        user: Kind::Text, user,
            "User to go on as once the addresses are bound and the files are read; the process \
             must have been started by root. A user that is already ours is no change.",
            restart !, example "\"plimsoll\"";
        group: Kind::Text, group,
            "Group to go on as. Without it the user's own.", restart !, example "\"plimsoll\"";
    ];

    fn blank() -> ServerSection {
        ServerSection { workers: None, backend: None, user: None, group: None, admin: None }
    }

    fn check(&self, here: &mut Here<'_, '_>) {
        if self.group.is_some() && self.user.is_none() {
            here.mistake_of("group", "a group needs a user: write user too");
        }
    }
}

/// `[[listen]]`
#[derive(Debug)]
pub(crate) struct ListenTable {
    pub(crate) address: Option<SocketAddr>,
    pub(crate) role: Role,
    pub(crate) proxy_from: Option<Vec<IpNet>>,
    pub(crate) tls: Option<ListenerTls>,
}

words!(Role: "reverse" => Role::Reverse, "forward" => Role::Forward);

impl Table for ListenTable {
    const KEYS: &'static [Key<ListenTable>] = keys![ListenTable;
        address: Kind::Address, address, "Where to listen. Port 0 lets the system choose one.",
            required !, example "\"127.0.0.1:3128\"";
        role: Kind::Word(&["reverse", "forward"]), role,
            "`reverse` stands in front of servers of ours (`[[upstream]]`); `forward` serves \
             clients of ours, who name their server themselves.";
        proxy_from: Kind::Networks, proxy_from,
            "Each connection begins with a header of the PROXY protocol (version 1 or 2), and \
             comes from one of these networks; the address that it tells is the client's. Without \
             it no connection has one.", example "[\"127.0.0.0/8\"]";
        (tls): tls, "TLS, and nothing else, is spoken there.";
    ];

    fn blank() -> ListenTable {
        ListenTable { address: None, role: Role::Reverse, proxy_from: None, tls: None }
    }
}

/// `[[upstream]]`
#[derive(Debug)]
pub(crate) struct UpstreamTable {
    pub(crate) name: String,
    pub(crate) server: Vec<ServerTable>,
    pub(crate) balance: Balance,
    pub(crate) load_percent_max: u32,
    pub(crate) host: Option<String>,
    pub(crate) forwarded: ForwardedFields,
    pub(crate) proxy_header: ProxyHeader,
    pub(crate) timeouts: Timeouts,
    pub(crate) retries: Retries,
    pub(crate) queue: Queue,
    pub(crate) health: Option<HealthCheck>,
    pub(crate) tls: Option<UpstreamTls>,
    pub(crate) ejection: Ejection,
    pub(crate) slow_start: Duration,
}

words!(Balance:
    "round_robin" => Balance::RoundRobin,
    "least_outstanding" => Balance::LeastOutstanding,
    "hash" => Balance::HASH,
);
words!(ForwardedFields:
    "none" => ForwardedFields::None,
    "x_forwarded" => ForwardedFields::XForwarded,
    "forwarded" => ForwardedFields::Forwarded,
);
words!(ProxyHeader:
    "none" => ProxyHeader::None,
    "v1" => ProxyHeader::V1,
    "v2" => ProxyHeader::V2,
);

impl Table for UpstreamTable {
    const KEYS: &'static [Key<UpstreamTable>] = keys![UpstreamTable;
        name: Kind::Text, name, "By which routes, logs and metrics call it.",
            required !, example "\"site\"";
        [[server]]: server, "A server of the group.", example "shown";
        balance: Kind::Word(&["round_robin", "least_outstanding", "hash"]), balance,
            "How requests are spread: in turn by weight, to the server with the fewest requests \
             under way, or by the URL, so that each server always has the same ones.";
        load_percent_max: Kind::Count(0, 10_000), load_percent_max,
            "With balance = \"hash\": a server that has more than so many percent of its fair \
             share of the requests under way passes the next on to another; 0: never.";
        host: Kind::Text, host, "Sent as Host. Without it what the client asked for.",
            example "\"www.example.org\"";
        forwarded: Kind::Word(&["none", "x_forwarded", "forwarded"]), forwarded,
            "What the servers are told of the client: nothing, X-Forwarded-For, -Proto and -Host, \
             or Forwarded (RFC 7239).";
        proxy_header: Kind::Word(&["none", "v1", "v2"]), proxy_header,
            "The header of the PROXY protocol, by its version, that each connection to the servers \
             begins with, before TLS: it tells them the client's address. Such a connection is \
             used for one request. A server that expects none takes it for a malformed request.";
        slow_start: WHILE, slow_start,
            "A server that has come back gets its full share only after so long.";
        [timeouts]: timeouts, "How long the servers may take.";
        [retries]: retries, "When a request that got no answer is repeated on another server.";
        [queue]: queue, "Requests that wait while every server has as many as it may.";
        (health): health, "Servers are asked whether they are well. Without it only the requests \
            themselves tell.";
        (tls): tls, "How TLS is spoken with servers whose URL says https. Without it their \
            certificates must lead to a root of the system.";
        [ejection]: ejection, "When a server that fails requests is left alone, and how long.";
    ];

    fn blank() -> UpstreamTable {
        UpstreamTable {
            name: String::new(),
            server: Vec::new(),
            balance: Balance::default(),
            load_percent_max: 125,
            host: None,
            forwarded: ForwardedFields::default(),
            proxy_header: ProxyHeader::default(),
            timeouts: Timeouts::default(),
            retries: Retries::default(),
            queue: Queue::default(),
            health: None,
            tls: None,
            ejection: Ejection::default(),
            slow_start: Duration::ZERO,
        }
    }
}

/// `[[upstream.server]]`
#[derive(Debug)]
pub(crate) struct ServerTable {
    pub(crate) url: Option<Parsed<Origin>>,
    pub(crate) weight: u32,
    pub(crate) backup: bool,
    pub(crate) outstanding_max: Option<u32>,
}

impl Table for ServerTable {
    const KEYS: &'static [Key<ServerTable>] = keys![ServerTable;
        url: Kind::Text, url, "Where it is: a scheme, a host and a port, and nothing more. A name \
            is looked up again when its time to live is over.",
            required !, example "\"http://127.0.0.1:8000\"";
        weight: Kind::Count(1, WEIGHT_MAX as u64), weight,
            "Its share, in proportion to the others'.";
        backup: Kind::Flag, backup, "Asked only while no other is usable.";
        outstanding_max: Kind::Count(1, MANY), outstanding_max,
            "Requests that it may have at a time. Without it any number.", example "100";
    ];

    fn blank() -> ServerTable {
        ServerTable { url: None, weight: 1, backup: false, outstanding_max: None }
    }
}

impl Table for Timeouts {
    const KEYS: &'static [Key<Timeouts>] = keys![Timeouts;
        connect: TIMEOUT, connect,
            "To accept a connection. Without it limits.connect_timeout.", example "\"2s\"";
        first_byte: TIMEOUT, first_byte,
            "From the request's last byte to the head of the answer. Without it \
             limits.upstream_timeout.", example "\"10s\"";
        idle: TIMEOUT, idle,
            "Between two pieces, either way. Without it limits.upstream_timeout.",
            example "\"30s\"";
        total: TIMEOUT, total,
            "For everything, from the first attempt to the answer's last byte. Without it there is \
             no bound.", example "\"5m\"";
    ];

    fn blank() -> Timeouts {
        Timeouts::default()
    }
}

impl Table for Retries {
    const KEYS: &'static [Key<Retries>] = keys![Retries;
        max: Kind::Count(0, 100), max, "Other servers that one request may be sent to; 0: none.";
        budget_percent: PERCENT, budget_percent,
            "Retries of all requests together, in percent of them, so that they never multiply an \
             outage.";
        burst: Kind::Count(0, MANY), burst, "So many are allowed beyond that.";
    ];

    fn blank() -> Retries {
        Retries::default()
    }
}

impl Table for Queue {
    const KEYS: &'static [Key<Queue>] = keys![Queue;
        length_max: Kind::Count(0, MANY), length_max,
            "As many may wait; one more is answered with 503.";
        timeout: TIMEOUT, timeout, "After so long a waiting request is answered with 503.";
    ];

    fn blank() -> Queue {
        Queue::default()
    }
}

impl Table for HealthCheck {
    const KEYS: &'static [Key<HealthCheck>] = keys![HealthCheck;
        path: Kind::Text, path, "Asked for with GET.";
        host: Kind::Text, host, "Sent as Host. Without it the server's own name.",
            example "\"www.example.org\"";
        interval: TIMEOUT, interval, "Between two questions to one server.";
        timeout: TIMEOUT, timeout, "An answer that takes longer is none.";
        rise: Kind::Count(1, 1000), rise,
            "Good answers in a row after which a server that was down is up.";
        fall: Kind::Count(1, 1000), fall, "Failures in a row after which it is down.";
        status_min: STATUS, status.0, "The lowest status of a good answer.";
        status_max: STATUS, status.1, "The highest status of a good answer.";
    ];

    fn blank() -> HealthCheck {
        HealthCheck::default()
    }

    fn check(&self, here: &mut Here<'_, '_>) {
        if !self.path.starts_with('/') {
            here.mistake_of("path", "a path begins with /");
        }
        if self.status.0 > self.status.1 {
            here.mistake_of("status_max", "no status is good: the highest is below the lowest");
        }
    }
}

impl Table for Ejection {
    const KEYS: &'static [Key<Ejection>] = keys![Ejection;
        failures: Kind::Count(0, MANY), failures, "Failures in a row; 0: never.";
        base: TIMEOUT, base, "The first time so long, then twice as long each time.";
        max: TIMEOUT, max, "But no longer than this.";
        share_percent_max: PERCENT, share_percent_max,
            "Servers of a group that may be ejected at a time, in percent, rounded down: a group \
            of \
             one never loses it.";
        statuses: Kind::Counts(100, 599), statuses, "Answers that count as failures too.";
    ];

    fn blank() -> Ejection {
        Ejection::default()
    }
}

/// `[[route]]`
#[derive(Debug)]
pub(crate) struct RouteTable {
    pub(crate) hosts: Vec<Parsed<Host>>,
    pub(crate) path: Option<String>,
    pub(crate) prefix: Option<String>,
    pub(crate) upstream: Option<String>,
    pub(crate) redirect: Option<String>,
    pub(crate) answer: Option<String>,
    pub(crate) status: Option<u16>,
    pub(crate) with_path: bool,
    pub(crate) store: bool,
    pub(crate) request: Vec<FieldTable>,
    pub(crate) response: Vec<FieldTable>,
}

impl Table for RouteTable {
    const KEYS: &'static [Key<RouteTable>] = keys![RouteTable;
        hosts: Kind::Texts, hosts,
            "Hosts, without their ports: `example.org`, or `*.example.org` for all below it. None: \
             any host.", example "[\"example.org\", \"*.example.org\"]";
        path: Kind::Text, path, "This path and no other.", example "\"/favicon.ico\"";
        prefix: Kind::Text, prefix,
            "This path and what is below it: `/api` is for `/api` and `/api/x`, not for `/apix`.",
            example "\"/api\"";
        upstream: Kind::Text, upstream, "The requests go to the upstream of this name.",
            example "\"site\"";
        redirect: Kind::Text, redirect, "They are answered with a redirect to here.",
            example "\"https://example.org/\"";
        answer: Kind::Text, answer, "They are answered with this plain text.",
            example "\"nothing here\"";
        status: STATUS, status,
            "The status of a redirect (without it 308) or of an answer (without it 200).",
            example "301";
        with_path: Kind::Flag, with_path,
            "The request's path and query are put behind the place of a redirect.";
        store: Kind::Flag, store, "Whether the store has a part in it.";
        [[request]]: request, "A change to the fields that the upstream gets.";
        [[response]]: response, "A change to the fields of the upstream's answer, made before \
            anything else looks at them: what they say of caching counts.";
    ];

    fn blank() -> RouteTable {
        RouteTable {
            hosts: Vec::new(),
            path: None,
            prefix: None,
            upstream: None,
            redirect: None,
            answer: None,
            status: None,
            with_path: false,
            store: true,
            request: Vec::new(),
            response: Vec::new(),
        }
    }

    fn check(&self, here: &mut Here<'_, '_>) {
        if self.path.is_some() && self.prefix.is_some() {
            here.mistake_of("prefix", "a route has a path or a prefix, not both");
        }
        let actions = [&self.upstream, &self.redirect, &self.answer];
        match actions.into_iter().flatten().count() {
            1 => {}
            0 => here.mistake_here("this route leads nowhere: write upstream, redirect or answer"),
            _ => here.mistake_here("a route has one of upstream, redirect and answer"),
        }
        if self.status.is_some() && self.upstream.is_some() {
            here.mistake_of(
                "status",
                "the upstream decides the status: it is for redirect or answer",
            );
        }
        if self.with_path && self.redirect.is_none() {
            here.mistake_of("with_path", "this is for redirects");
        }
    }
}

/// `[[route.request]]` and `[[route.response]]`
#[derive(Debug)]
pub(crate) struct FieldTable {
    pub(crate) set: Option<String>,
    pub(crate) add: Option<String>,
    pub(crate) default: Option<String>,
    pub(crate) remove: Option<String>,
    pub(crate) value: Option<String>,
}

impl FieldTable {
    /// `None` when its keys do not make one.
    pub(crate) fn rule(&self) -> Option<FieldRule> {
        let value = self.value.clone();
        Some(match (&self.set, &self.add, &self.default, &self.remove) {
            (Some(name), ..) => FieldRule::Set(name.clone(), value?),
            (None, Some(name), ..) => FieldRule::Add(name.clone(), value?),
            (None, None, Some(name), _) => FieldRule::Default(name.clone(), value?),
            (None, None, None, Some(name)) => FieldRule::Remove(name.clone()),
            (None, None, None, None) => return None,
        })
    }
}

impl Table for FieldTable {
    const KEYS: &'static [Key<FieldTable>] = keys![FieldTable;
        set: Kind::Text, set, "There is one field of this name, with the value.",
            example "\"X-Served-By\"";
        add: Kind::Text, add, "There is one more.", example "\"X-Served-By\"";
        default: Kind::Text, default, "There is this one if there was none.",
            example "\"Cache-Control\"";
        remove: Kind::Text, remove, "There is none of this name.", example "\"Server\"";
        value: Kind::Text, value, "The value, for set, add and default.",
            example "\"plimsoll\"";
    ];

    fn blank() -> FieldTable {
        FieldTable { set: None, add: None, default: None, remove: None, value: None }
    }

    fn check(&self, here: &mut Here<'_, '_>) {
        let with_value = [&self.set, &self.add, &self.default];
        let changes = with_value.into_iter().chain([&self.remove]).flatten().count();
        if changes != 1 {
            here.mistake_here("a change is one of set, add, default and remove");
        } else if self.remove.is_some() != self.value.is_none() {
            here.mistake_here("set, add and default need a value, and remove has none");
        }
    }
}

words!(Verify: "once" => Verify::Once, "always" => Verify::Always);

/// `[store]`
#[derive(Debug)]
pub(crate) struct StoreSection {
    pub(crate) memory: u64,
    pub(crate) path: Option<PathBuf>,
    pub(crate) bytes: u64,
    pub(crate) verify: Verify,
}

impl Table for StoreSection {
    const KEYS: &'static [Key<StoreSection>] = keys![StoreSection;
        memory: Kind::Bytes(MIB, u64::MAX), memory,
            "Memory that stored responses may take, all cores together.", restart !;
        path: Kind::Path, path,
            "Directory of a store on disk, where stored responses outlive the process; made if it \
             does not exist. Without it there is memory alone.",
            restart !, example "\"/var/cache/plimsoll\"";
        bytes: Kind::Bytes(DiskConfig::BYTES_MIN, u64::MAX), bytes,
            "What the store on disk takes there, from the beginning on. Another size begins it \
             anew.", restart !;
        verify: Kind::Word(&["once", "always"]), verify,
            "When a block of it is verified: once, when it comes from the disk into the page cache \
             of the system, or always before it is sent. Verified once, long bodies are sent from \
             there without being copied, where that can be done, until another program opens the \
             store's files.", restart !;
    ];

    fn blank() -> StoreSection {
        let memory = super::Config::forward(&[]).memory_bytes;
        let verify = Verify::default();
        StoreSection { memory, path: None, bytes: DiskConfig::BYTES_DEFAULT, verify }
    }
}

impl Table for PurgeRules {
    const KEYS: &'static [Key<PurgeRules>] = keys![PurgeRules;
        from: Kind::Networks, from, "Networks from which the method PURGE is taken on listeners.";
        tags_to_clients: Kind::Flag, tags_to_clients,
            "Whether Surrogate-Key and Cache-Tag are passed on to clients. Without it they are on \
             forward listeners and are not on reverse ones.", example "false";
    ];

    fn blank() -> PurgeRules {
        PurgeRules::default()
    }
}

/// `[dns]`
#[derive(Debug)]
pub(crate) struct DnsSection {
    pub(crate) servers: Option<Vec<SocketAddr>>,
}

impl DnsSection {
    pub(crate) fn name_servers(&self) -> NameServers {
        self.servers.clone().map_or_else(NameServers::default, NameServers::At)
    }
}

impl Table for DnsSection {
    const KEYS: &'static [Key<DnsSection>] = keys![DnsSection;
        servers: Kind::Addresses, servers,
            "Name servers to ask. Without it those of the system (/etc/resolv.conf, /etc/hosts).",
            restart !, example "[\"192.0.2.53:53\"]";
    ];

    fn blank() -> DnsSection {
        DnsSection { servers: None }
    }

    fn check(&self, here: &mut Here<'_, '_>) {
        let count = self.servers.as_ref().map_or(1, Vec::len);
        if count == 0 || count > NAME_SERVERS_MAX {
            here.mistake_of("servers", format!("there are 1 to {NAME_SERVERS_MAX} name servers"));
        }
    }
}

/// `[log]`
#[derive(Debug)]
pub(crate) struct LogSection {
    pub(crate) path: Option<PathBuf>,
    pub(crate) format: Option<Parsed<LogFormat>>,
}

impl Table for LogSection {
    const KEYS: &'static [Key<LogSection>] = keys![LogSection;
        path: Kind::Path, path, "The file that gets a line for each request. Without it there is \
            no \
            access log. SIGUSR1 and SIGHUP open it again under its name.",
            restart !, example "\"access.log\"";
        format: Kind::Text, format,
            "`squid`, `common`, `combined`, `json`, or a format string with Squid's codes behind \
             `squid:` or Apache's behind `apache:`. Without it `squid`.",
            restart !, example "\"combined\"";
    ];

    fn blank() -> LogSection {
        LogSection { path: None, format: None }
    }
}

impl Table for Limits {
    const KEYS: &'static [Key<Limits>] = keys![Limits;
        head_bytes_max: Kind::Bytes(KIB, READ_BUFFER_BYTES as u64 / 2), head_bytes_max,
            "Bytes of a message's head; a request beyond it gets 431, or 414 when it is the \
            target.";
        fields_max: Kind::Count(8, 128), fields_max, "Fields of a head; beyond it 431.";
        idle_keep_alive: TIMEOUT, idle_keep_alive,
            "How long a connection may be open and silent between requests.";
        handshake_timeout: TIMEOUT, handshake_timeout,
            "From accepting a connection to the end of its PROXY header and TLS handshake.";
        head_timeout: TIMEOUT, head_timeout, "From the first byte of a head to its last.";
        body_timeout: TIMEOUT, body_timeout, "Between two pieces of a request's body.";
        send_timeout: TIMEOUT, send_timeout,
            "How long a client may leave our bytes unread before it is cut.";
        rate_min: Kind::Count(1, MANY), rate_min,
            "A client whose body comes, or who takes our bytes, at fewer bytes a second than this \
            is cut, once it has been waited for long enough.";
        rate_grace: WHILE, rate_grace,
            "How long that is, in all, within one request.";
        held_bytes_max: Kind::Bytes(0, u64::MAX), held_bytes_max,
            "Bytes that the clients of one core have not taken yet. Beyond it no more than 4 KiB \
            are read at once for a client.";
        overload_shed: Kind::Flag, overload_shed,
            "Whether an overloaded core answers requests that need an upstream with 503.";
        overload_objective: TIMEOUT, overload_objective,
            "How long ready events may wait on a busy core before it counts as overloaded.";
        process_memory_max: Kind::Bytes(MIB, u64::MAX), process_memory_max,
            "Memory that the process may use: near it the store shrinks, then no connection is \
            taken. The control group's bounds hold beside it.", example "\"4GiB\"";
        connect_timeout: TIMEOUT, connect_timeout, "To establish a connection to an upstream.";
        upstream_timeout: TIMEOUT, upstream_timeout,
            "Between two pieces of an upstream's response, and until its first.";
        upstream_idle: WHILE, upstream_idle,
            "How long an idle upstream connection is kept for the next request.";
        upstream_idle_max: Kind::Count(0, 100_000), upstream_idle_max,
            "Idle upstream connections that one core keeps for one upstream.";
        interim_max: Kind::Count(0, 1000), interim_max,
            "Interim (1xx) responses accepted before the final one.";
        object_share: Kind::Count(1, 1 << 20), object_share,
            "The largest body that is stored, as a divisor of store.memory.", restart !;
        arriving_share: Kind::Count(1, 1 << 20), arriving_share,
            "What bodies on their way into the store may take beside it, all together, as a \
            divisor \
             of store.memory.", restart !;
        stream_window_bytes: Kind::Bytes(4 * KIB, 1024 * MIB), stream_window_bytes,
            "Bytes that a response which will not be stored may run ahead of its slowest reader.";
        uncacheable_memory: WHILE, uncacheable_memory,
            "How long a key whose response could not be stored is fetched without collapsing.";
        tunnel_idle: TIMEOUT, tunnel_idle,
            "How long a tunnel (CONNECT, or an upgraded connection) may be silent in both \
             directions.";
        drain_timeout: WHILE, drain_timeout,
            "After SIGTERM, or when another process has taken over: how long requests under way \
            may \
             take to finish.";
        linger_timeout: WHILE, linger_timeout,
            "After a response that ends the connection: how long is still read, so that the client \
             sees it.";
        linger_bytes_max: Kind::Bytes(0, 1024 * MIB), linger_bytes_max,
            "And how much.";
        connections_max: Kind::Count(1, 10_000_000), connections_max,
            "Client connections of one core. The descriptors of the process bound it further.",
            restart !;
    ];

    fn blank() -> Limits {
        Limits::default()
    }
}
