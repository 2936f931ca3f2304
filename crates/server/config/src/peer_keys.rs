//! The keys of a configuration file that concern parents and siblings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use toml::Spanned;
use toml::de::DeValue;

use super::here::Here;
use super::limits::MANY;
use super::peers::{
    AskedPeer, DigestServer, DirectRule, Hierarchy, Login, PARENTS, PeerKind, Queries, QueryServer,
};
use super::table::{Key, Table, keys};
use super::value::{Kind, Parsed, Setting, understood, words};
use super::{Balance, Ejection, Group, HealthCheck, Origin, Queue, Retries, Server, Timeouts};
use crate::limits::{SERVERS_PER_GROUP_MAX, WEIGHT_MAX};

understood!(DirectRule);
words!(PeerKind: "parent" => PeerKind::Parent, "sibling" => PeerKind::Sibling);

/// The file of a login is read with the configuration, so that a bad file changes nothing.
impl Setting for Login {
    fn read(value: &Spanned<DeValue<'_>>, kind: &Kind, here: &mut Here<'_, '_>) -> Option<Login> {
        let path = PathBuf::read(value, kind, here)?;
        Login::read(&path).map_err(|why| here.mistake(value.span(), why)).ok()
    }

    fn show(&self, _: &Kind) -> Option<String> {
        Some(super::value::quoted(&self.path().display().to_string()))
    }
}

/// `[[peer]]`
#[derive(Debug)]
pub(crate) struct PeerTable {
    url: Option<Parsed<Origin>>,
    kind: PeerKind,
    weight: u32,
    backup: bool,
    outstanding_max: Option<u32>,
    icp: Option<u16>,
    htcp: Option<u16>,
    digest: bool,
    login: Option<Login>,
}

impl Default for PeerTable {
    fn default() -> PeerTable {
        PeerTable {
            url: None,
            kind: PeerKind::default(),
            weight: 1,
            backup: false,
            outstanding_max: None,
            icp: None,
            htcp: None,
            digest: false,
            login: None,
        }
    }
}

impl Table for PeerTable {
    const KEYS: &'static [Key<PeerTable>] = keys![PeerTable;
        url: Kind::Text, url, "Its scheme, host and port. A name is looked up again when its TTL \
            expires.",
            required !, example "\"http://127.0.0.1:3128\"";
        kind: Kind::Word(&["parent", "sibling"]), kind,
            "A `parent` fetches what it has not stored. A `sibling` is only sent requests for \
             what it says that it has stored.";
        weight: Kind::Count(1, WEIGHT_MAX as u64), weight,
            "Its share, relative to the other parents.";
        backup: Kind::Flag, backup, "Used only while no other parent is usable.";
        outstanding_max: Kind::Count(1, MANY), outstanding_max,
            "Maximum concurrent requests. Default: no limit.", example "100";
        icp: Kind::Count(1, 65_535), icp,
            "The UDP port at which it answers queries (ICP). A request that misses is preceded by \
             a query to each peer with this key, and goes to the first that has the response. \
             Default: it is not asked; a sibling needs this, htcp or digest.", example "3130";
        htcp: Kind::Count(1, 65_535), htcp,
            "The same with HTCP, whose queries have the fields of the request. Purges of URLs are \
             sent there, too.", example "4827";
        digest: Kind::Flag, digest,
            "Whether its cache digest is fetched (Squid's format). While there is a useful one, \
             the peer is not asked: a request goes to it if the digest has its URL.";
        login: Kind::Path, login,
            "File with one line, NAME:PASSWORD, which is sent to this peer as \
             Proxy-Authorization (Basic). Read again at each reload. Default: none.",
            example "\"parent.login\"";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        if self.url.as_ref().is_some_and(|url| url.value.service().is_some()) {
            here.mistake_of("url", "a peer is one host: write its name, and no service");
        }
        if self.kind == PeerKind::Sibling && (self.weight != 1 || self.backup) {
            let key = if self.backup { "backup" } else { "weight" };
            here.mistake_of(key, "this is for parents: a sibling is not chosen, but asked");
        }
        match (self.icp, self.htcp) {
            (None, None) if self.kind == PeerKind::Sibling && !self.digest => {
                let text = "a sibling is asked what it has: write icp or htcp, or digest";
                here.mistake_of("kind", text);
            }
            (Some(_), Some(_)) => {
                here.mistake_of("htcp", "a peer is asked by one protocol: leave out icp or htcp");
            }
            _ => {}
        }
    }
}

/// `[hierarchy]`
#[derive(Debug)]
pub(crate) struct HierarchySection {
    balance: Balance,
    load_percent_max: u32,
    always_direct: Vec<DirectRule>,
    always_direct_methods: Vec<String>,
    never_direct: Vec<DirectRule>,
    query_timeout: Duration,
    hit_timeout: Duration,
    doubt_time: Duration,
    clear_changed: bool,
    timeouts: Timeouts,
    retries: Retries,
    queue: Queue,
    health: Option<HealthCheck>,
    ejection: Ejection,
    slow_start: Duration,
}

impl Default for HierarchySection {
    fn default() -> HierarchySection {
        HierarchySection {
            balance: Balance::default(),
            load_percent_max: 125,
            always_direct: Vec::new(),
            always_direct_methods: Vec::new(),
            never_direct: Vec::new(),
            query_timeout: Duration::from_millis(500),
            hit_timeout: Duration::from_secs(2),
            doubt_time: Duration::from_secs(7 * 24 * 3600),
            clear_changed: false,
            timeouts: Timeouts::default(),
            retries: Retries::default(),
            queue: Queue::default(),
            health: None,
            // Without a parent, requests can go to their origins.
            ejection: Ejection { share_percent_max: 100, ..Ejection::default() },
            slow_start: Duration::ZERO,
        }
    }
}

impl Table for HierarchySection {
    const KEYS: &'static [Key<HierarchySection>] = keys![HierarchySection;
        balance: Kind::Word(&["round_robin", "least_outstanding", "hash", "carp"]), balance,
            "How requests are balanced over the parents: in turn by weight, to the parent with \
             the fewest requests in flight, or by the URL, so that each parent always gets the \
             same ones. `carp` does that too, by the Cache Array Routing Protocol, and so like \
             other proxies that are configured with the same parents and weights.";
        load_percent_max: Kind::Count(0, 10_000), load_percent_max,
            "With balance = \"hash\": a parent with more than this percentage of its fair share \
             of the requests in flight passes the next request on to another; 0: never.";
        always_direct: Kind::Texts, always_direct,
            "Domains, each with all its subdomains, or `*` for all. Requests for them go to their \
             origins, and no peer is asked. Goes before never_direct.",
            example "[\"intranet.example\"]";
        always_direct_methods: Kind::Texts, always_direct_methods,
            "The same for requests with one of these methods.", example "[\"POST\"]";
        never_direct: Kind::Texts, never_direct,
            "Domains, each with all its subdomains, or `*` for all. Requests for them go to a \
             parent, or get 503.", example "[\"*\"]";
        clear_changed: Kind::Flag, clear_changed,
            "Whether peers with htcp are notified of URLs that an unsafe method such as POST has \
             changed, as they are of purges.";
        query_timeout: super::value::TIMEOUT, query_timeout,
            "How long a request waits for the answers of peers to its query. A peer that has left \
             a query unanswered is waited for again after its next answer.";
        hit_timeout: super::value::TIMEOUT, hit_timeout,
            "How long a sibling that says that it has the response may take to accept a \
             connection, and then until the first byte of the response. After that the request \
             goes on without it.";
        doubt_time: super::value::WHILE, doubt_time,
            "How long peers may have an old response of a URL that was purged or changed here. For \
             this time siblings are not asked for it, and parents have to ask its origin.";
        slow_start: super::value::WHILE, slow_start,
            "A parent that has come back reaches its full share after this time.";
        [timeouts]: timeouts, "Time-outs for the parents. Defaults: as in [upstream.timeouts].";
        [retries]: retries, "When an unanswered request is retried on another parent.";
        [queue]: queue, "The queue for requests while every parent is at its limit.";
        (health): health, "Active health checks of the parents.";
        [ejection]: ejection, "When a parent whose requests fail is ejected, and for how long.";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        let token = |byte: u8| byte.is_ascii_uppercase() || byte == b'-';
        for method in &self.always_direct_methods {
            if !method.bytes().all(token) {
                let text = format!("{method:?} is no method, such as POST");
                here.mistake_of("always_direct_methods", text);
            }
        }
    }
}

impl HierarchySection {
    /// `None` without peers.
    pub(crate) fn hierarchy(
        &self,
        peers: &[PeerTable],
        here: &mut Here<'_, '_>,
    ) -> Option<Hierarchy> {
        let is_parent = |peer: &PeerTable| peer.kind == PeerKind::Parent;
        if !self.never_direct.is_empty() && !peers.iter().any(is_parent) {
            let text = "without a parent these requests could go nowhere: write [[peer]]";
            here.mistake_of("hierarchy.never_direct", text);
        }
        if peers.is_empty() {
            return None;
        }
        let mut known = hashbrown::HashSet::new();
        for (at, url) in
            peers.iter().enumerate().filter_map(|(at, one)| Some((at, one.url.as_ref()?)))
        {
            let authority = &url.value.authority;
            if !known.insert(authority) {
                let text = format!("{authority} is a peer already");
                here.mistake_of(&format!("peer[{at}].url"), text);
            }
        }
        let parents = peers.iter().filter(|peer| peer.kind == PeerKind::Parent);
        let servers: Vec<Server> = parents.filter_map(PeerTable::server).collect();
        if servers.len() > SERVERS_PER_GROUP_MAX {
            here.mistake_of("peer", format!("there are at most {SERVERS_PER_GROUP_MAX} parents"));
        }
        let asked = peers.iter().filter_map(|peer| {
            let server = peer.server()?;
            let name = server.origin.authority.clone();
            let group = Group { name, ..self.group(vec![server]) };
            let by_icp = peer.icp.map(Queries::Icp);
            let queries = by_icp.or(peer.htcp.map(Queries::Htcp));
            let asked = AskedPeer::new(peer.kind, group, queries, self.hit_timeout);
            (queries.is_some() || peer.digest).then_some(AskedPeer { digest: peer.digest, ..asked })
        });
        Some(Hierarchy {
            asked: asked.collect(),
            query_timeout: self.query_timeout,
            doubt_time: self.doubt_time,
            clear_changed: self.clear_changed,
            parents: (!servers.is_empty()).then(|| self.group(servers)),
            always_direct: self.always_direct.clone(),
            always_direct_methods: self.always_direct_methods.clone(),
            never_direct: self.never_direct.clone(),
        })
    }

    fn group(&self, servers: Vec<Server>) -> Group {
        let balance = match self.balance {
            Balance::Hash { .. } => Balance::Hash { load_percent_max: self.load_percent_max },
            other => other,
        };
        Group {
            servers,
            balance,
            timeouts: self.timeouts,
            retries: self.retries,
            queue: self.queue,
            health: self.health.clone(),
            ejection: self.ejection.clone(),
            slow_start: self.slow_start,
            ..Group::of(PARENTS, [])
        }
    }
}

impl PeerTable {
    fn server(&self) -> Option<Server> {
        Some(Server {
            weight: self.weight,
            backup: self.backup,
            outstanding_max: self.outstanding_max,
            login: self.login.clone(),
            ..Server::of(self.url.as_ref()?.value.clone())
        })
    }
}

/// `[icp]`
#[derive(Debug, Default)]
pub(crate) struct IcpSection {
    listen: Option<SocketAddr>,
    allow_from: Vec<IpNet>,
}

impl Table for IcpSection {
    const KEYS: &'static [Key<IcpSection>] = keys![IcpSection;
        listen: Kind::Address, listen, "The UDP address where queries are received.",
            required !, example "\"127.0.0.1:3130\"";
        allow_from: Kind::Networks, allow_from,
            "Networks whose queries are answered. Others are denied, at a bounded rate.",
            example "[\"10.0.0.0/8\"]";
    ];
}

impl IcpSection {
    /// `None` if a key is missing, which was reported when it was read.
    pub(crate) fn server(&self) -> Option<QueryServer> {
        let (allow_from, clear_from) = (self.allow_from.clone(), Vec::new());
        Some(QueryServer { listen: self.listen?, allow_from, clear_from })
    }
}

/// `[htcp]`
#[derive(Debug, Default)]
pub(crate) struct HtcpSection {
    listen: Option<SocketAddr>,
    allow_from: Vec<IpNet>,
    clear_from: Vec<IpNet>,
}

impl Table for HtcpSection {
    const KEYS: &'static [Key<HtcpSection>] = keys![HtcpSection;
        listen: Kind::Address, listen, "The UDP address where queries are received.",
            required !, example "\"127.0.0.1:4827\"";
        allow_from: Kind::Networks, allow_from,
            "Networks whose queries are answered. Others are refused, at a bounded rate.",
            example "[\"10.0.0.0/8\"]";
        clear_from: Kind::Networks, clear_from,
            "Networks that may purge URLs (CLR).", example "[\"10.0.0.2\"]";
    ];
}

impl HtcpSection {
    /// `None` if a key is missing, which was reported when it was read.
    pub(crate) fn server(&self) -> Option<QueryServer> {
        let (allow_from, clear_from) = (self.allow_from.clone(), self.clear_from.clone());
        Some(QueryServer { listen: self.listen?, allow_from, clear_from })
    }
}

/// `[digest]`
#[derive(Debug)]
pub(crate) struct DigestSection {
    allow_from: Option<Vec<IpNet>>,
    interval: Duration,
}

impl Default for DigestSection {
    fn default() -> DigestSection {
        DigestSection { allow_from: None, interval: Duration::from_secs(3600) }
    }
}

impl Table for DigestSection {
    const KEYS: &'static [Key<DigestSection>] = keys![DigestSection;
        allow_from: Kind::Networks, allow_from,
            "Networks that may fetch the digest, from any listener, at the path \
             /squid-internal-periodic/store_digest. Others get 403.",
            required !, example "[\"10.0.0.0/8\"]";
        interval: super::value::PERIOD, interval,
            "How often the digest is made. It has what will be fresh for at least as long.";
    ];

    fn check(&self, here: &mut Here<'_, '_>) {
        if self.allow_from.as_ref().is_some_and(Vec::is_empty) {
            let text = "without networks none may fetch the digest: write who may, or no [digest]";
            here.mistake_of("allow_from", text);
        }
    }
}

impl DigestSection {
    /// `None` if a key is missing, which was reported when it was read.
    pub(crate) fn server(&self) -> Option<DigestServer> {
        let allow_from = self.allow_from.clone()?;
        Some(DigestServer { allow_from, interval: self.interval })
    }
}
