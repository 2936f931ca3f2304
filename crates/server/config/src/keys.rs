//! The keys of a configuration file, each declared once: name, type, unit, bounds, help. The
//! defaults are those of the types.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use caching::SetCookie;
use dashboard::Token;
use store::disk::Verify;
use toml::Spanned;
use toml::de::DeValue;

use super::acme::Acme;
use super::cluster::ClusterSection;
use super::compression::CompressionSection;
use super::error_pages::ErrorPageTable;
use super::forward_keys::UpgradeSection;
use super::here::Here;
use super::listen::{CongestionControl, Mode, Proxies};
use super::maintenance::MaintenanceSection;
use super::peer_keys::{DigestSection, HierarchySection, HtcpSection, IcpSection, PeerTable};
use super::route_keys::RouteTable;
use super::rule_keys::{ExpectTable, ListTable, MapTable, RuleTable};
use super::sticky::{HashBy, Sticky, is_token};
use super::table::{Key, Table, keys};
use super::value::{Kind, Parsed, Setting, TIMEOUT, WHILE, quoted, understood, words};
use super::{
    Addresses, Balance, DiskConfig, Ejection, Forward, ForwardedFields, FrontField, HealthCheck,
    ListenAddress, ListenerTls, Origin, ProxyHeader, PurgeRules, Queue, Quota, RequestId, Retries,
    Role, Server, Timeouts, UpstreamProtocol, UpstreamReuse, UpstreamTls, Via,
};
use crate::limits::{
    ADDRESSES_PER_SERVER_MAX, Limits, MANY, READ_BUFFER_BYTES, SERVERS_PER_GROUP_MAX, WEIGHT_MAX,
};
use access_log::{FACILITIES, LogFormat, SyslogTo};
use dns::NameServers;
use dns::limits::SERVERS_MAX as NAME_SERVERS_MAX;
use http1::FieldNames;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
/// A share in percent.
const PERCENT: Kind = Kind::Count(0, 100);
pub(crate) const STATUS: Kind = Kind::Count(100, 599);

/// The whole file.
#[derive(Debug, Default)]
pub(crate) struct Root {
    pub(crate) server: ServerSection,
    pub(crate) listen: Vec<ListenTable>,
    pub(crate) upstream: Vec<UpstreamTable>,
    pub(crate) route: Vec<RouteTable>,
    pub(crate) rule: Vec<RuleTable>,
    pub(crate) error_page: Vec<ErrorPageTable>,
    pub(crate) maintenance: Option<MaintenanceSection>,
    pub(crate) list: Vec<ListTable>,
    pub(crate) map: Vec<MapTable>,
    pub(crate) expect: Vec<ExpectTable>,
    pub(crate) peer: Vec<PeerTable>,
    pub(crate) hierarchy: HierarchySection,
    pub(crate) icp: Option<IcpSection>,
    pub(crate) htcp: Option<HtcpSection>,
    pub(crate) digest: Option<DigestSection>,
    pub(crate) cluster: ClusterSection,
    pub(crate) forward: Forward,
    pub(crate) upgrade: UpgradeSection,
    pub(crate) via: Via,
    pub(crate) store: StoreSection,
    pub(crate) purge: PurgeRules,
    pub(crate) quota: Vec<Quota>,
    pub(crate) compression: CompressionSection,
    pub(crate) dns: DnsSection,
    pub(crate) log: LogSection,
    pub(crate) request_id: Option<RequestId>,
    pub(crate) https: UpstreamTls,
    pub(crate) acme: Option<Acme>,
    pub(crate) limits: Limits,
}

impl Table for Root {
    const KEYS: &'static [Key<Root>] = keys![Root;
        [server]: server, "The process: its threads, its user, its admin address.";
        [[listen]]: listen, "An address where clients connect.", example "shown";
        [[upstream]]: upstream, "Servers with the same content, behind reverse listeners.",
            example "shown";
        [[route]]: route, "Selects requests of reverse listeners and decides what happens to \
            them. Without routes, all go to the first upstream. Of the routes that match, the one \
            with the most specific host is used, and of these the one with the most specific \
            path.";
        [[rule]]: rule, "A change to the requests of reverse listeners, or to their responses, \
            for which a condition holds (docs/conditions.md). All rules that match apply, in the \
            order of the file. Of those that lead somewhere (upstream, redirect, answer) only the \
            first applies, in place of the route.";
        [[error_page]]: error_page, "What clients of reverse listeners get in place of an error, \
            of this server or of an upstream. The pages of a route come before these.";
        (maintenance): maintenance, "A page that all requests to reverse listeners get, or some \
            of them, while it is switched on. It comes before guards and before the store.";
        [[list]]: list, "A list of texts, or of networks, that conditions name.";
        [[map]]: map, "A map from texts to texts that conditions name.";
        [[expect]]: expect, "A request and what must become of it. `check` tests it, and so does \
            a start or a reload before it takes effect.";
        [[peer]]: peer, "Another proxy, which requests of forward listeners that miss may go to.";
        [hierarchy]: hierarchy, "Which requests go to peers, and how parents are chosen.";
        (icp): icp, "Answers to the queries of other caches (ICP, RFC 2186).";
        (htcp): htcp, "Answers to the queries of other caches, and their purges (HTCP, RFC 2756).";
        (digest): digest, "Our cache digest, which other caches may fetch (Squid's format).";
        [cluster]: cluster, "Other servers of this program, with which this one works as one \
            cache.";
        [forward]: forward, "Who may use forward listeners, and for what. Every refusal names its \
            rule, in its response and in the log.";
        [upgrade]: upgrade, "Connections that switch to another protocol.";
        [via]: via, "The field Via, which lists the proxies that a message has passed (RFC 9110, \
            7.6.3).";
        [store]: store, "Where responses are stored.";
        [purge]: purge, "Removing responses from the store.";
        [[quota]]: quota, "How much each client, user or route may ask for.";
        [compression]: compression, "Coded forms of stored responses, on reverse listeners.";
        [dns]: dns, "Name servers.";
        [log]: log, "The access log.";
        (request_id): request_id, "A number for each request, which upstreams get and the access \
            log can show (`{request_id}`).";
        [https]: https, "TLS settings for servers that clients of forward listeners name by https \
            URLs.";
        (acme): acme, "Certificates that the server obtains and renews by itself (ACME, RFC 8555), \
            for the names in `tls.acme` of listeners. See docs/tls.md.";
        [limits]: limits, "Limits and time-outs. The time-outs for upstreams are defaults that an \
            upstream can override.";
    ];
}

/// `[server]`
#[derive(Debug, Default)]
pub(crate) struct ServerSection {
    pub(crate) workers: Option<usize>,
    pub(crate) backend: Option<Backend>,
    pub(crate) user: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) admin: Option<SocketAddr>,
    pub(crate) dashboard_token: Option<TokenFile>,
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

/// A token for the dashboard, and the file that it is read from with the configuration.
#[derive(Clone, Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    pub(crate) token: Token,
}

impl Setting for TokenFile {
    fn read(
        value: &Spanned<DeValue<'_>>,
        kind: &Kind,
        here: &mut Here<'_, '_>,
    ) -> Option<TokenFile> {
        let path = PathBuf::read(value, kind, here)?;
        let text = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        match text.and_then(|text| Token::of_text(&text)) {
            Ok(token) => Some(TokenFile { path, token }),
            Err(why) => {
                let text = format!("the token file {}: {why}", path.display());
                here.mistake(value.span(), text);
                None
            }
        }
    }

    fn show(&self, _: &Kind) -> Option<String> {
        Some(quoted(&self.path.display().to_string()))
    }
}

impl Table for ServerSection {
    const KEYS: &'static [Key<ServerSection>] = keys![ServerSection;
        workers: Kind::Count(1, 1024), workers,
            "Number of serving threads, one per core. Default: one per CPU that the process may \
             run on.",
            restart !, example "2";
        backend: BACKENDS, backend,
            "Event notification. Default: the best one that passes its self-test.",
            restart !, example "\"epoll\"";
        admin: Kind::Address, admin,
            "Address of the admin listener: metrics, health, upstreams, purges, reload and \
             restart. It has no authentication: keep it on a loopback address.",
            restart !, example "\"127.0.0.1:3129\"";
        dashboard_token: Kind::Path, dashboard_token,
            "File with a token, at least 16 characters. The dashboard's page asks for it, and is \
             then served on every admin address. Default: none; the page is served on a loopback \
             address only.",
            restart !, example "\"token\"";
        user: Kind::Text, user,
            "User to switch to after the addresses are bound and the files are read; the process \
             must have been started by root, unless it runs as this user already.",
            restart !, example "\"plimsoll\"";
        group: Kind::Text, group,
            "Group to switch to. Default: the user's group.", restart !, example "\"plimsoll\"";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        if self.group.is_some() && self.user.is_none() {
            here.mistake_of("group", "a group needs a user: write user too");
        }
    }
}

/// `[[listen]]`
#[derive(Debug)]
pub(crate) struct ListenTable {
    pub(crate) address: Option<ListenAddress>,
    pub(crate) mode: Option<Mode>,
    pub(crate) owner: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) role: Role,
    pub(crate) proxy_from: Option<Vec<Proxies>>,
    pub(crate) trusted_proxies: Option<Vec<Proxies>>,
    pub(crate) trusted_field: Option<FrontField>,
    pub(crate) trusted_host: bool,
    pub(crate) http2: bool,
    pub(crate) http3: bool,
    pub(crate) alt_svc: Option<String>,
    pub(crate) congestion_control: Option<CongestionControl>,
    pub(crate) field_names: Option<FieldNames>,
    pub(crate) tls: Option<ListenerTls>,
}

impl Default for ListenTable {
    fn default() -> ListenTable {
        let role = Role::default();
        ListenTable {
            address: None,
            mode: None,
            owner: None,
            group: None,
            name: None,
            role,
            proxy_from: None,
            trusted_proxies: None,
            trusted_field: None,
            trusted_host: false,
            http2: true,
            http3: false,
            alt_svc: None,
            congestion_control: None,
            field_names: None,
            tls: None,
        }
    }
}

words!(FieldNames: "plain" => FieldNames::Plain, "any" => FieldNames::Any);
words!(Role: "reverse" => Role::Reverse, "forward" => Role::Forward);

impl Table for ListenTable {
    const KEYS: &'static [Key<ListenTable>] = keys![ListenTable;
        address: Kind::Address, address, "Where to listen. With port 0 the system chooses the \
            port. `unix:` and an absolute path: a Unix socket, whose clients have the address \
            `0.0.0.0`. Its file is removed at the end.",
            required !, example "\"127.0.0.1:3128\"";
        mode: Kind::Text, mode, "Who may connect to the Unix socket: the mode of its file, in \
            octal. Default: `0660`.", example "\"0666\"";
        owner: Kind::Text, owner, "The user that the file of the Unix socket belongs to. Default: \
            the user that the process is started as.", example "\"www-data\"";
        group: Kind::Text, group, "The group that the file of the Unix socket belongs to. \
            Default: that of the process.", example "\"www-data\"";
        name: Kind::Text, name, "Its name in conditions (`listener`). Default: its address.",
            example "\"inside\"";
        role: Kind::Word(&["reverse", "forward"]), role,
            "`reverse` is in front of our own servers (`[[upstream]]`); `forward` serves our own \
             clients, who name their server themselves.";
        proxy_from: Kind::Networks, proxy_from,
            "Each connection begins with a header of the PROXY protocol (version 1 or 2) and \
             comes from one of these networks (`unix`: over a Unix socket); the address in the \
             header is the client's. Without this key connections have no such header.",
            example "[\"127.0.0.0/8\"]";
        trusted_proxies: Kind::Networks, trusted_proxies,
            "Networks of proxies in front of this listener, such as a load balancer, or `unix`: \
             those that connect to the Unix socket. What they say about the client counts for \
             logs, rules, quotas and guards: its address (trusted_field), and the scheme \
             (X-Forwarded-Proto). From all others these fields are dropped. Upstreams \
             get the client's address alone in X-Forwarded-For. Default: no field is believed, and \
             the client's address is added to the fields that came.",
            example "[\"10.0.0.0/8\"]";
        trusted_field: Kind::Text, trusted_field,
            "The field in which trusted_proxies name the client: `X-Forwarded-For` or `Forwarded`, \
             which are read from the right to the first address that is not trusted, or a field \
             with one address, such as `X-Real-IP` or `CF-Connecting-IP`. If it names no address, \
             the client is `0.0.0.0`. Default: `X-Forwarded-For`.",
            example "\"X-Real-IP\"";
        trusted_host: Kind::Flag, trusted_host,
            "Whether X-Forwarded-Host of trusted_proxies (or `host` of Forwarded) is the host of \
             the request: for routes, for the cache key, and for the upstream.";
        http2: Kind::Flag, http2,
            "Whether clients may speak HTTP/2: by ALPN on a TLS listener, by prior knowledge on \
             one in the clear.";
        http3: Kind::Flag, http3,
            "Whether clients may speak HTTP/3 too, on the UDP port of the same number. Needs tls.";
        alt_svc: Kind::Text, alt_svc,
            "The value of Alt-Svc in responses over HTTP/1 and HTTP/2, by which clients learn \
             about HTTP/3; `none` sends no such field. Default: with http3 in a reverse listener, \
             its port for a day.", example "'h3=\":443\"; ma=3600'";
        congestion_control: Kind::Text, congestion_control,
            "How the kernel finds out how fast it may send to clients over TCP: the name of a \
             congestion control, such as `bbr`, which keeps its rate in spite of a few losses. \
             /proc/sys/net/ipv4/tcp_available_congestion_control has those of this kernel. It is \
             set when the server opens the socket. A socket that stays open in a reload or a \
             restart keeps what it has until the server is stopped and started; a socket of \
             systemd has what `TCPCongestion=` of its .socket unit says. HTTP/3 is not over TCP \
             and always has `cubic`. Default: that of the system \
             (net.ipv4.tcp_congestion_control); on a socket that the server binds to a loopback \
             address, `reno`, because `bbr` paces with timers, which cost CPU there.",
            example "\"bbr\"";
        field_names: Kind::Word(&["plain", "any"]), field_names,
            "Which fields of requests are passed on. `plain`: those whose name has nothing but \
             letters, digits and hyphens; all others are dropped, because CGI, WSGI and PHP take \
             `X_User` and `X.User` for `X-User`. `any`: all. Default: `plain` for a reverse \
             listener, `any` for a forward one.", example "\"any\"";
        (tls): tls, "The listener only accepts TLS.";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        self.check_unix(here);
        if self.http3 && self.tls.is_none() {
            here.mistake_of("http3", "HTTP/3 is always encrypted: write [listen.tls] too");
        }
        if self.http3 && self.proxy_from.is_some() {
            here.mistake_of("http3", "there is no PROXY header in HTTP/3: leave out proxy_from");
        }
        let trusts = self.trusted_proxies.as_ref().is_some_and(|networks| !networks.is_empty());
        for (key, is_there) in
            [("trusted_field", self.trusted_field.is_some()), ("trusted_host", self.trusted_host)]
        {
            if is_there && !trusts {
                here.mistake_of(key, "no proxy is trusted: write trusted_proxies too");
            }
        }
        if self.trusted_host && self.role == Role::Forward {
            here.mistake_of(
                "trusted_host",
                "clients of a forward listener name the host in the URL",
            );
        }
        if let Some(value) = &self.alt_svc {
            if !(self.http3 && self.role == Role::Reverse) {
                here.mistake_of("alt_svc", "only a reverse listener with http3 = true has it");
            }
            if value.is_empty() || !value.bytes().all(|b| b == b' ' || b.is_ascii_graphic()) {
                here.mistake_of("alt_svc", "the value of a field is visible characters");
            }
        }
    }
}

/// `[[upstream]]`
#[derive(Debug)]
pub(crate) struct UpstreamTable {
    pub(crate) name: String,
    pub(crate) server: Vec<ServerTable>,
    pub(crate) balance: Balance,
    pub(crate) load_percent_max: u32,
    pub(crate) hash_by: HashBy,
    pub(crate) sticky: Option<Sticky>,
    pub(crate) host: Option<String>,
    pub(crate) forwarded: ForwardedFields,
    pub(crate) proxy_header: ProxyHeader,
    pub(crate) protocol: UpstreamProtocol,
    pub(crate) reuse: UpstreamReuse,
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
    "carp" => Balance::Carp,
);
words!(ForwardedFields:
    "none" => ForwardedFields::None,
    "x_forwarded" => ForwardedFields::XForwarded,
    "x_forwarded_for" => ForwardedFields::XForwardedFor,
    "forwarded" => ForwardedFields::Forwarded,
);
words!(ProxyHeader:
    "none" => ProxyHeader::None,
    "v1" => ProxyHeader::V1,
    "v2" => ProxyHeader::V2,
);

words!(UpstreamProtocol:
    "http1" => UpstreamProtocol::Http1,
    "h2" => UpstreamProtocol::H2,
    "h2c" => UpstreamProtocol::H2c,
    "auto" => UpstreamProtocol::Auto,
);

words!(UpstreamReuse:
    "repeatable" => UpstreamReuse::Repeatable,
    "all" => UpstreamReuse::All,
);

impl Default for UpstreamTable {
    fn default() -> UpstreamTable {
        UpstreamTable {
            name: String::new(),
            server: Vec::new(),
            balance: Balance::default(),
            load_percent_max: 125,
            hash_by: HashBy::default(),
            sticky: None,
            host: None,
            forwarded: ForwardedFields::default(),
            proxy_header: ProxyHeader::default(),
            protocol: UpstreamProtocol::default(),
            reuse: UpstreamReuse::default(),
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

impl Table for UpstreamTable {
    const KEYS: &'static [Key<UpstreamTable>] = keys![UpstreamTable;
        name: Kind::Text, name, "Its name in routes, logs and metrics.",
            required !, example "\"site\"";
        [[server]]: server, "A server of the group.", example "shown";
        balance: Kind::Word(&["round_robin", "least_outstanding", "hash"]), balance,
            "How requests are balanced: in turn by weight, to the server with the fewest requests \
             in flight, or by a hash of the URL, so that each server always gets the same ones.";
        hash_by: Kind::Text, hash_by,
            "With balance = \"hash\": what the hash is of: `url`, `client` (its address), \
             `field:NAME` or `cookie:NAME`. A request without it is balanced by its URL.";
        load_percent_max: Kind::Count(0, 10_000), load_percent_max,
            "With balance = \"hash\": a server with more than this percentage of its fair share \
             of the requests in flight passes the next request on to another; 0: never.";
        host: Kind::Text, host, "Sent as Host. Default: the client's Host.",
            example "\"www.example.org\"";
        forwarded: Kind::Word(&["none", "x_forwarded", "x_forwarded_for", "forwarded"]), forwarded,
            "What the servers learn about the client: nothing; X-Forwarded-For, -Proto and -Host; \
             X-Forwarded-For alone; or Forwarded (RFC 7239).";
        proxy_header: Kind::Word(&["none", "v1", "v2"]), proxy_header,
            "The PROXY protocol header, by version, at the beginning of each connection to the \
             servers, before TLS. It has the client's address. Such a connection is used for one \
             request. A server that does not expect the header sees a malformed request.";
        protocol: Kind::Word(&["http1", "h2", "h2c", "auto"]), protocol,
            "The version of HTTP that the servers are sent: HTTP/1.1; HTTP/2 over TLS; HTTP/2 in \
             the clear, which the servers must expect; or over TLS the one that a server chooses \
             (ALPN). gRPC needs HTTP/2.";
        reuse: Kind::Word(&["repeatable", "all"]), reuse,
            "Which requests may use an idle connection of HTTP/1: those that may be repeated if \
             the server closes it at that moment; or all, others (POST) only on one that was \
             used within the last second. Then a POST costs no new connection, and is answered \
             with 502 if the server closes at that moment.";
        slow_start: WHILE, slow_start,
            "A server that has come back reaches its full share after this time.";
        (sticky): sticky, "Sticky sessions: a cookie that names the server which answered a \
            client first, and gets the client's other requests. It is sent with responses that \
            are not stored.";
        [timeouts]: timeouts, "Time-outs for the servers. Defaults: limits.connect_timeout for \
            connect, limits.upstream_timeout for first_byte and idle, no limit for total.";
        [retries]: retries, "When an unanswered request is retried on another server.";
        [queue]: queue, "The queue for requests while every server is at its limit.";
        (health): health, "Active health checks. Without them only requests show whether a server \
            works.";
        (tls): tls, "TLS settings for servers with https URLs. Without them their certificates \
            must lead to a root of the system.";
        [ejection]: ejection, "When a server whose requests fail is ejected, and for how long.";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        if self.hash_by != HashBy::Url && !matches!(self.balance, Balance::Hash { .. }) {
            here.mistake_of("hash_by", "requests are hashed with balance = \"hash\" only");
        }
        let servers: Vec<_> = self.server.iter().filter_map(ServerTable::server).collect();
        if servers.iter().map(Server::slots).sum::<usize>() > SERVERS_PER_GROUP_MAX {
            let text = format!(
                "an upstream has at most {SERVERS_PER_GROUP_MAX} servers; a name with all of its \
                 addresses counts as {ADDRESSES_PER_SERVER_MAX}"
            );
            here.mistake_of("server", text);
        }
        for (at, server) in servers.iter().enumerate() {
            let id = server.session_id();
            let place = format!("server[{at}].id");
            if self.sticky.is_none() {
                if server.id.is_some() {
                    here.mistake_of(&place, "id is for sticky sessions: write [upstream.sticky]");
                }
            } else if servers[..at].iter().any(|other| other.session_id() == id) {
                let text = format!("two servers would be `{id}` in cookies: give each an id");
                here.mistake_of(&place, text);
            }
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
    pub(crate) id: Option<String>,
    pub(crate) addresses: Addresses,
}

words!(Addresses: "one" => Addresses::One, "all" => Addresses::All);

impl Default for ServerTable {
    fn default() -> ServerTable {
        let (url, weight, outstanding_max, id) = (None, 1, None, None);
        let (backup, addresses) = (false, Addresses::default());
        ServerTable { url, weight, backup, outstanding_max, id, addresses }
    }
}

impl ServerTable {
    pub(crate) fn server(&self) -> Option<Server> {
        let origin = self.url.as_ref()?.value.clone();
        let (weight, backup, id) = (self.weight, self.backup, self.id.clone());
        let (outstanding_max, addresses) = (self.outstanding_max, self.addresses);
        Some(Server { weight, backup, outstanding_max, id, addresses, ..Server::of(origin) })
    }
}

impl Table for ServerTable {
    const KEYS: &'static [Key<ServerTable>] = keys![ServerTable;
        url: Kind::Text, url, "Its scheme, host and port, or the path of a Unix socket, such as \
            `unix:/run/app.sock`, or the name of a service, such as `srv:_http._tcp.example.org`, \
            each host of which is a server (RFC 2782). A name is looked up again when its TTL \
            expires.",
            required !, example "\"http://127.0.0.1:8000\"";
        addresses: Kind::Word(&["one", "all"]), addresses,
            "Whether all addresses of a name are one server, which is connected to at the first \
             that accepts, or each is a server.";
        weight: Kind::Count(1, WEIGHT_MAX as u64), weight,
            "Its share, relative to the other servers.";
        backup: Kind::Flag, backup, "Used only while no other server is usable.";
        outstanding_max: Kind::Count(1, MANY), outstanding_max,
            "Maximum concurrent requests. Default: no limit.", example "100";
        id: Kind::Text, id, "Its name in the cookie of sticky sessions, which every client sees. \
            Default: four digits of a hash of its URL.", example "\"a\"";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        if self.id.as_deref().is_some_and(|id| !is_token(id)) {
            here.mistake_of("id", "the value of a cookie has no spaces and no separators");
        }
        let Some(server) = self.server() else { return };
        let origin = &server.origin;
        let is_name = origin.addresses.is_empty() && origin.is_host();
        if self.addresses == Addresses::All && !is_name {
            here.mistake_of("addresses", "only the name of a host has several addresses");
        }
        if self.id.is_some() && server.has_slots() {
            here.mistake_of("id", "these are several servers: leave out id");
        }
    }
}

impl Table for Timeouts {
    const KEYS: &'static [Key<Timeouts>] = keys![Timeouts;
        connect: TIMEOUT, connect,
            "To accept a connection.", example "\"2s\"";
        first_byte: TIMEOUT, first_byte,
            "From the last byte of the request to the head of the response.", example "\"10s\"";
        idle: TIMEOUT, idle,
            "Between two pieces, in either direction.", example "\"30s\"";
        total: TIMEOUT, total,
            "For everything, from the first attempt to the last byte of the response.",
            example "\"5m\"";
    ];
}

impl Table for Retries {
    const KEYS: &'static [Key<Retries>] = keys![Retries;
        max: Kind::Count(0, 100), max, "Maximum other servers per request; 0: no retries.";
        budget_percent: PERCENT, budget_percent,
            "Retries of all requests together, as a percentage of requests, so that they never \
             multiply an outage.";
        burst: Kind::Count(0, MANY), burst, "Retries allowed beyond that.";
        statuses: Kind::Counts(100, 599), statuses,
            "A response with one of these statuses to a request that may be repeated is dropped, \
             and another server is asked. If no other server can be asked, the client gets the \
             response.", example "[502, 503]";
    ];
}

impl Table for Queue {
    const KEYS: &'static [Key<Queue>] = keys![Queue;
        length_max: Kind::Count(0, MANY), length_max,
            "Maximum waiting requests; another one gets 503.";
        timeout: TIMEOUT, timeout, "A request that waits longer gets 503.";
    ];
}

impl Table for HealthCheck {
    const KEYS: &'static [Key<HealthCheck>] = keys![HealthCheck;
        path: Kind::Text, path, "Requested with GET.";
        host: Kind::Text, host, "Sent as Host. Default: the server's own name.",
            example "\"www.example.org\"";
        interval: TIMEOUT, interval, "Time between checks of a server.";
        timeout: TIMEOUT, timeout, "A later response counts as a failure.";
        rise: Kind::Count(1, 1000), rise,
            "Consecutive successes after which a server is up again.";
        fall: Kind::Count(1, 1000), fall, "Consecutive failures after which a server is down.";
        status_min: STATUS, status.0, "The lowest status that counts as success.";
        status_max: STATUS, status.1, "The highest status that counts as success.";
    ];

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
        failures: Kind::Count(0, MANY), failures, "Consecutive failures; 0: never.";
        base: TIMEOUT, base, "How long the first time; doubled each time.";
        max: TIMEOUT, max, "Maximum time.";
        share_percent_max: PERCENT, share_percent_max,
            "Maximum percentage of a group's servers that may be ejected at a time, rounded down: \
             a group of one is never emptied.";
        statuses: Kind::Counts(100, 599), statuses, "Statuses that count as failures too.";
    ];
}

/// What becomes of a response that sets a cookie.
pub(crate) const SET_COOKIE: Kind = Kind::Word(&["private", "strip", "share"]);

words!(SetCookie:
    "private" => SetCookie::Private, "strip" => SetCookie::Strip, "share" => SetCookie::Share);
words!(Verify: "once" => Verify::Once, "always" => Verify::Always);

/// `[store]`
#[derive(Debug)]
pub(crate) struct StoreSection {
    pub(crate) memory: u64,
    pub(crate) path: Option<PathBuf>,
    pub(crate) bytes: u64,
    pub(crate) verify: Verify,
    pub(crate) set_cookie: SetCookie,
}

impl Default for StoreSection {
    fn default() -> StoreSection {
        let memory = super::Config::forward(&[]).memory_bytes;
        let (verify, set_cookie) = (Verify::default(), SetCookie::default());
        StoreSection { memory, path: None, bytes: DiskConfig::BYTES_DEFAULT, verify, set_cookie }
    }
}

impl Table for StoreSection {
    const KEYS: &'static [Key<StoreSection>] = keys![StoreSection;
        memory: Kind::Bytes(MIB, u64::MAX), memory,
            "Memory for stored responses, all cores together.", restart !;
        path: Kind::Path, path,
            "Directory of a store on disk, where stored responses outlive the process. Created if \
             it does not exist. Without it responses are stored only in memory.",
            restart !, example "\"/var/cache/plimsoll\"";
        bytes: Kind::Bytes(DiskConfig::BYTES_MIN, u64::MAX), bytes,
            "Size of the store on disk, allocated at the start. A changed size replaces the store \
             by an empty one.", restart !;
        verify: Kind::Word(&["once", "always"]), verify,
            "When a block of it is verified: once, when it is read from disk into the system's \
             page cache, or always before it is sent. With `once`, long bodies are sent zero-copy \
             where possible, until another program opens the store's files.", restart !;
        set_cookie: SET_COOKIE, set_cookie,
            "A response with Set-Cookie, on reverse listeners: `private` stores no such response, \
             `strip` stores it without the cookie, and `share` stores it with the cookie, which \
             then goes to every client. The client whose request drew the response always gets \
             the cookie. Forward listeners strip.";
    ];
}

impl Table for PurgeRules {
    const KEYS: &'static [Key<PurgeRules>] = keys![PurgeRules;
        from: Kind::Networks, from, "Networks from which listeners accept the method PURGE.";
        tags_to_clients: Kind::Flag, tags_to_clients,
            "Whether Surrogate-Key and Cache-Tag are forwarded to clients. Default: on forward \
             listeners, but not on reverse ones.", example "false";
    ];
}

/// `[dns]`
#[derive(Debug, Default)]
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
            "The name servers. Default: those of the system (/etc/resolv.conf, /etc/hosts).",
            restart !, example "[\"192.0.2.53:53\"]";
    ];

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
    pub(crate) syslog: Option<SyslogTo>,
    pub(crate) facility: String,
    pub(crate) format: Option<Parsed<LogFormat>>,
}

understood!(SyslogTo);

impl Default for LogSection {
    fn default() -> LogSection {
        LogSection { path: None, syslog: None, facility: "local7".to_owned(), format: None }
    }
}

impl LogSection {
    /// Where lines go instead of a file, and the code of the facility.
    pub(crate) fn syslog(&self) -> Option<(SyslogTo, usize)> {
        let facility = FACILITIES.iter().position(|name| *name == self.facility);
        Some((self.syslog.clone()?, facility?))
    }
}

impl Table for LogSection {
    const KEYS: &'static [Key<LogSection>] = keys![LogSection;
        path: Kind::Path, path, "The file that gets a line for each request. Default: no access \
            log. SIGUSR1 and SIGHUP reopen it.",
            restart !, example "\"access.log\"";
        syslog: Kind::Text, syslog,
            "Send the lines to syslog (RFC 5424) in place of a file: `udp://ADDRESS:PORT`, or \
             `unix:/dev/log`. A line that cannot be sent at once is lost, and counted.",
            restart !, example "\"udp://127.0.0.1:514\"";
        facility: Kind::Word(&FACILITIES), facility, "The facility of these messages.", restart !;
        format: Kind::Text, format,
            "`squid`, `common`, `combined`, `json`; names in braces, such as `{client} {status} \
             {request_id}` (docs/logs.md); or a format string with Squid's codes after `squid:` or \
             Apache's after `apache:`. Default: `squid`.",
            restart !, example "\"combined\"";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        if self.path.is_some() && self.syslog.is_some() {
            here.mistake_of("syslog", "lines go to one place: write path or syslog");
        }
    }
}

impl Table for Limits {
    const KEYS: &'static [Key<Limits>] = keys![Limits;
        head_bytes_max: Kind::Bytes(KIB, READ_BUFFER_BYTES as u64 / 2), head_bytes_max,
            "Bytes of a message's head; a request beyond it gets 431, or 414 if the target is too \
             long.";
        fields_max: Kind::Count(8, 128), fields_max, "Fields of a head; beyond it 431.";
        idle_keep_alive: TIMEOUT, idle_keep_alive,
            "Maximum time a connection may be open and silent between requests.";
        handshake_timeout: TIMEOUT, handshake_timeout,
            "From accepting a connection to the end of its PROXY header and TLS handshake.";
        head_timeout: TIMEOUT, head_timeout, "From the first byte of a head to its last.";
        body_timeout: TIMEOUT, body_timeout, "Between two pieces of a request's body.";
        body_bytes_max: Kind::Bytes(0, u64::MAX), body_bytes_max,
            "Bytes of a request's body; beyond it 413. Default: no limit.", example "\"1MiB\"";
        send_timeout: TIMEOUT, send_timeout,
            "Maximum time a client may leave sent bytes unread before it is cut off.";
        rate_min: Kind::Count(1, MANY), rate_min,
            "A client that sends a body, or reads a response, at fewer bytes per second than this \
             is cut off, once it has been waited for longer than rate_grace.";
        rate_grace: WHILE, rate_grace,
            "Maximum total wait for a slow client within one request.";
        held_bytes_max: Kind::Bytes(0, u64::MAX), held_bytes_max,
            "Bytes that the clients of one core have not read yet. Beyond it at most 4 KiB are \
             read at once for a client.";
        overload_shed: Kind::Flag, overload_shed,
            "Whether an overloaded core answers requests that need an upstream with 503.";
        overload_objective: TIMEOUT, overload_objective,
            "Maximum time that ready events may wait on a busy core before it counts as \
             overloaded.";
        hold: Kind::Time(0, 50), hold,
            "How long each core stops about every 4 seconds, if it is not busy: requests queue, \
             and what it costs to catch up shows the server's capacity at any load. Requests wait \
             up to that long. 0s: never.", example "\"5ms\"";
        process_memory_max: Kind::Bytes(MIB, u64::MAX), process_memory_max,
            "Memory that the process may use: near it the store shrinks, then new connections are \
             refused. The control group's limits apply too.", example "\"4GiB\"";
        connect_timeout: TIMEOUT, connect_timeout, "To establish a connection to an upstream.";
        upstream_timeout: TIMEOUT, upstream_timeout,
            "Between two pieces of an upstream's response, and until its first.";
        upstream_idle: WHILE, upstream_idle,
            "Maximum time an idle upstream connection is kept for the next request.";
        upstream_idle_max: Kind::Count(0, 100_000), upstream_idle_max,
            "Maximum idle upstream connections that one core keeps per upstream.";
        interim_max: Kind::Count(0, 1000), interim_max,
            "Maximum interim (1xx) responses that are passed on before the final one. Further ones \
             are dropped.";
        object_share: Kind::Count(1, 1 << 20), object_share,
            "Maximum size of a stored body, as a divisor of store.memory.", restart !;
        arriving_share: Kind::Count(1, 1 << 20), arriving_share,
            "Maximum bytes of bodies arriving for the store, in total, as a divisor of \
             store.memory.", restart !;
        stream_window_bytes: Kind::Bytes(4 * KIB, 1024 * MIB), stream_window_bytes,
            "Bytes of a body that memory keeps for its readers while it arrives, if the body \
             itself does not stay in memory.";
        uncacheable_memory: WHILE, uncacheable_memory,
            "How long a key whose response could not be stored is fetched without collapsing.";
        tunnel_idle: TIMEOUT, tunnel_idle,
            "Maximum time a tunnel (CONNECT, or an upgraded connection) may be silent in both \
             directions.";
        drain_timeout: WHILE, drain_timeout,
            "After SIGTERM, or when another process has taken over: maximum time for requests in \
             flight to finish.";
        linger_timeout: WHILE, linger_timeout,
            "After a response that ends the connection: time in which the request is still read, \
             so that the client sees the response.";
        linger_bytes_max: Kind::Bytes(0, 1024 * MIB), linger_bytes_max,
            "And the maximum bytes.";
        connections_max: Kind::Count(1, 10_000_000), connections_max,
            "Maximum client connections of one core. The process's descriptor limit applies too.",
            restart !;
    ];
}
