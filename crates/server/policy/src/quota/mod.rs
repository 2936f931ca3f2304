//! Quotas: requests, bytes, connections and requests in progress, for each client network, user,
//! value of a field, or route.
//!
//! What: [`Quotas`] is the list of one configuration. An exchange finds the quotas that apply to
//! its request, makes a key for each, and takes from its buckets ([`table`]) or its counts. Nothing
//! here waits or sends: the caller is given the time to wait.
//!
//! Who owns: the tables and counts of a quota are a [`State`], which all cores share and which
//! outlives a reload that keeps the quota's name, its `by` and its prefixes. A new rate takes over
//! what was spent; tables of another size begin empty.
//!
//! What never happens: memory grows with the number of clients, except for the counts of open
//! connections and of requests in progress; a request that is admitted at once takes a lock
//! that other cores take, unless the quota counts requests in progress.

mod busiest;
mod counts;
pub mod fields;
pub mod figures;
pub mod table;

use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use conditions::{Facts, Lists};
use config::{By, Counts as Counting, Over, Role, Route};
use hashbrown::HashMap;
use http1::RequestHead;
use ipnet::IpNet;
use runtime::time;
use store::KeyHasher;

pub use counts::Counted;

use crate::limits::{
    BUSIEST_HALVED_EVERY, BUSIEST_NAME_BYTES_MAX, BYTES_OWED_BEFORE_MAX, BYTES_OWED_MAX,
    SWEEP_EVERY,
};
use crate::reading::Reading;
use crate::routes::{Chosen, Routes};
use busiest::Busiest;
use counts::Counts;
use figures::Spread;
use table::{Scale, Table};

/// The quotas of a configuration.
#[derive(Debug)]
pub struct Quotas {
    all: Box<[Quota]>,
    /// The stages at which a quota takes requests.
    stages: [bool; 3],
    /// The keys of the routes, by index, if a quota is by route.
    routes: Box<[u64]>,
    hasher: KeyHasher,
}

/// A quota.
#[derive(Debug)]
pub struct Quota {
    /// As configured.
    pub config: config::Quota,
    /// The requests that it is for; `None`: all.
    selects: Option<Routes>,
    pub(crate) state: Arc<State>,
}

/// What outlives a reload.
#[derive(Debug)]
pub(crate) struct State {
    kind: Kind,
    /// The bytes of its tables, as configured.
    memory: u64,
    rates: [Option<Scale>; 2],
    requests: Option<Table>,
    bytes: Option<Table>,
    connections: Arc<Counts>,
    concurrency: Arc<Counts>,
    /// Requests that are delayed now.
    waiting: Arc<Counts>,
    /// When it was last swept, in nanoseconds of the monotonic clock.
    swept_ns: AtomicU64,
    /// When the numbers of the busiest were last halved.
    halved_ns: AtomicU64,
    allowed: Spread,
    delayed: Spread,
    refused: Spread,
    connections_refused: Spread,
    paced_bytes: Spread,
    busiest: Busiest,
}

/// Two quotas of the same name and kind have the same keys.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kind {
    by: By,
    prefixes: [u8; 2],
}

impl Kind {
    fn of(config: &config::Quota) -> Kind {
        Kind { by: config.by.clone(), prefixes: [config.v4_prefix, config.v6_prefix] }
    }
}

/// When a request is taken from a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Before anything else is known than its head.
    Head,
    /// When its user is known.
    User,
    /// When it needs an upstream.
    Fetch,
}

/// As many are open, or in progress, as a quota allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// What a request is known by.
#[derive(Clone, Copy, Debug)]
pub struct Who<'w> {
    /// The client's address.
    pub peer: IpAddr,
    /// The role of the listener.
    pub role: Role,
    /// The user whose password was verified.
    pub user: Option<&'w [u8]>,
    /// The request's head.
    pub head: &'w RequestHead<'w>,
    /// The host and the path that it is for.
    pub reading: Reading<'w>,
    /// The routes of the configuration.
    pub routes: &'w Routes,
    /// What conditions read, without the host and the path.
    pub facts: Facts<'w>,
}

impl Who<'_> {
    /// The route that the request takes.
    fn chosen(&self) -> Option<Chosen> {
        self.routes.find(self.reading, Some(&self.facts)).ok()
    }
}

/// The states of all quotas of the process, so that a reload finds the existing ones.
#[derive(Debug, Default)]
pub struct Registry(Mutex<HashMap<String, Weak<State>>>);

impl Registry {
    /// The quotas of a configuration; `None` if it has none, so that a request pays one load.
    pub fn quotas(
        &self,
        (quotas, lists): (&[config::Quota], &Lists),
        routes: &Routes,
        hasher: &KeyHasher,
    ) -> Option<Arc<Quotas>> {
        if quotas.is_empty() {
            return None;
        }
        let all = quotas.iter().map(|config| Quota {
            selects: selects(config, lists),
            state: self.state(config),
            config: config.clone(),
        });
        let all: Box<[Quota]> = all.collect();
        let mut stages = [false; 3];
        all.iter().filter_map(Quota::stage).for_each(|stage| stages[stage as usize] = true);
        let is_by_route = all.iter().any(|quota| quota.config.by == By::Route);
        let key = |route: &Route| hash(hasher, name_of_route(route).as_bytes());
        let routes = routes.all().iter().filter(|_| is_by_route).map(|route| key(&route.config));
        Some(Arc::new(Quotas { all, stages, routes: routes.collect(), hasher: hasher.clone() }))
    }

    fn state(&self, config: &config::Quota) -> Arc<State> {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let old = states.get(&config.name).and_then(Weak::upgrade);
        let old = old.filter(|old| old.kind == Kind::of(config));
        let new = Arc::new(match old {
            Some(old) if old.memory == config.memory && old.rates == scales(config) => return old,
            Some(old) => State::after(config, &old),
            None => State::new(config),
        });
        states.retain(|_, one| one.strong_count() > 0);
        states.insert(config.name.clone(), Arc::downgrade(&new));
        new
    }
}

/// The routes of a quota are used as those of requests are, so that no spelling of a path leads
/// around it.
fn selects(config: &config::Quota, lists: &Lists) -> Option<Routes> {
    let is_for_all = config.hosts.is_empty() && config.prefix == "/" && config.when.is_none();
    let route = || Route {
        hosts: config.hosts.clone(),
        path: config::Path::Prefix(config.prefix.clone()),
        when: config.when.clone(),
        ..Route::to("")
    };
    (!is_for_all).then(|| Routes::with(&[route()], &[], ((&[], None), lists.clone())))
}

fn scales(config: &config::Quota) -> [Option<Scale>; 2] {
    let requests = config.requests.map(|rate| Scale::new(&rate, config.requests_at_once(&rate)));
    let bytes = config.bytes.map(|rate| Scale::new(&rate, config.bytes_at_once(&rate)));
    [requests, bytes]
}

impl State {
    fn new(config: &config::Quota) -> State {
        let rates = scales(config);
        let table = |scale: Option<Scale>| {
            // All clients together have one bucket.
            let memory = if config.by == By::All { 1 } else { config.memory };
            scale.map(|scale| Table::new(memory, scale))
        };
        State {
            kind: Kind::of(config),
            memory: config.memory,
            rates,
            requests: table(rates[0]),
            bytes: table(rates[1]),
            connections: Counts::new(),
            concurrency: Counts::new(),
            waiting: Counts::new(),
            swept_ns: AtomicU64::new(0),
            halved_ns: AtomicU64::new(time::now().as_ns()),
            allowed: Spread::default(),
            delayed: Spread::default(),
            refused: Spread::default(),
            connections_refused: Spread::default(),
            paced_bytes: Spread::default(),
            busiest: Busiest::default(),
        }
    }

    /// A state with other rates or tables, which takes over what is counted, and what was spent if
    /// the tables have the same size.
    fn after(config: &config::Quota, old: &State) -> State {
        let now_ns = time::now().as_ns();
        let mut new = State::new(config);
        let tables = [(&new.requests, &old.requests), (&new.bytes, &old.bytes)];
        for (new, old) in tables {
            if let (Some(new), Some(old)) = (new, old)
                && new.bytes() == old.bytes()
            {
                new.adopt(old, now_ns);
            }
        }
        new.connections = Arc::clone(&old.connections);
        new.concurrency = Arc::clone(&old.concurrency);
        new.waiting = Arc::clone(&old.waiting);
        new
    }
}

impl Quotas {
    /// All quotas.
    pub fn all(&self) -> &[Quota] {
        &self.all
    }

    /// Whether a quota takes requests at this stage.
    #[inline]
    pub fn has(&self, stage: Stage) -> bool {
        self.stages[stage as usize]
    }

    /// The quotas that apply to a request at this stage, each with the request's key.
    pub fn of<'q>(
        &'q self,
        stage: Stage,
        who: &'q Who<'_>,
    ) -> impl Iterator<Item = (&'q Quota, u64)> {
        let at_stage = self.all.iter().filter(move |quota| quota.stage() == Some(stage));
        at_stage.filter_map(|quota| Some((quota, self.key(quota, who)?)))
    }

    /// The key of a request, if the quota applies to it.
    fn key(&self, quota: &Quota, who: &Who<'_>) -> Option<u64> {
        let config = &quota.config;
        let is_for = config.role.is_none_or(|role| role == who.role) && !quota.excepts(who.peer);
        let is_for = is_for
            && quota.selects.as_ref().is_none_or(|it| it.reach(who.reading, || Some(who.facts)));
        if !is_for {
            return None;
        }
        let key = |part: &[u8]| hash(&self.hasher, part);
        match &config.by {
            By::All => Some(0),
            By::Network => Some(self.key_of_network(quota, who.peer)),
            By::User => who.user.map(key),
            By::Field(name) => who.head.fields.of_variable(name.as_bytes()).next().map(key),
            By::Route => {
                let is_reverse = who.role == Role::Reverse;
                let chosen = is_reverse.then(|| who.chosen()).flatten();
                self.routes.get(chosen?.at?).copied()
            }
        }
    }

    #[inline]
    fn key_of_network(&self, quota: &Quota, peer: IpAddr) -> u64 {
        let mut builder = self.hasher.start();
        // An address of IPv4 is hashed as the IPv6 address that it is mapped to.
        let (bits, prefix) = match peer.to_canonical() {
            IpAddr::V4(v4) => (v4.to_ipv6_mapped().to_bits(), quota.config.v4_prefix + 96),
            IpAddr::V6(v6) => (v6.to_bits(), quota.config.v6_prefix),
        };
        let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
        builder.raw(&(bits & mask).to_be_bytes());
        builder.finish().to_u128() as u64
    }

    /// Whether one of them counts connections.
    pub fn count_connections(&self) -> bool {
        self.all.iter().any(|quota| quota.config.connections.is_some())
    }

    /// Counts a new connection until what is returned is dropped.
    ///
    /// # Errors
    /// The client has as many connections as it may have.
    pub fn connect(&self, peer: IpAddr, role: Role) -> Result<Vec<Counted>, TooMany> {
        let mut counted = Vec::new();
        for quota in &self.all {
            let Some(max) = quota.config.connections else { continue };
            if quota.config.role.is_some_and(|of| of != role) || quota.excepts(peer) {
                continue;
            }
            let key = match quota.config.by {
                By::Network => self.key_of_network(quota, peer),
                _ => 0,
            };
            match quota.state.connections.enter(key, max) {
                Some(one) => counted.push(one),
                None => {
                    quota.state.connections_refused.add(1);
                    quota.state.busiest.note(key, || match quota.config.by {
                        By::Network => quota.network(peer).to_string(),
                        _ => "all".to_owned(),
                    });
                    return Err(TooMany);
                }
            }
        }
        Ok(counted)
    }

    /// Keeps the tables in order. Every core calls this at its tick, and one of them does it.
    pub fn sweep(&self) {
        let now_ns = time::now().as_ns();
        for quota in &self.all {
            let swept = &quota.state.swept_ns;
            let last = swept.load(Relaxed);
            let is_due = now_ns.saturating_sub(last) >= SWEEP_EVERY.as_nanos() as u64 / 2;
            if is_due && swept.compare_exchange(last, now_ns, Relaxed, Relaxed).is_ok() {
                let tables = [&quota.state.requests, &quota.state.bytes];
                tables.into_iter().flatten().for_each(|table| table.sweep(now_ns));
                let halved = &quota.state.halved_ns;
                let every_ns = BUSIEST_HALVED_EVERY.as_nanos() as u64;
                if now_ns.saturating_sub(halved.load(Relaxed)) >= every_ns {
                    halved.store(now_ns, Relaxed);
                    quota.state.busiest.halve();
                }
            }
        }
    }
}

impl Quota {
    /// When requests are taken from it; `None` if it limits nothing but connections.
    pub fn stage(&self) -> Option<Stage> {
        let config::Quota { requests, bytes, concurrency, .. } = &self.config;
        if requests.is_none() && bytes.is_none() && concurrency.is_none() {
            return None;
        }
        Some(match (&self.config.by, self.config.counts) {
            (_, Counting::Fetches) => Stage::Fetch,
            (By::User, Counting::All) => Stage::User,
            (_, Counting::All) => Stage::Head,
        })
    }

    fn excepts(&self, peer: IpAddr) -> bool {
        !self.config.except_from.is_empty()
            && self.config.except_from.iter().any(|network| network.contains(&peer.to_canonical()))
    }

    /// Whether a hit can be answered in its turn although this quota applies: nothing has to be
    /// counted until its end, paced, or added to it.
    pub fn lets_hits_pass(&self) -> bool {
        let config = &self.config;
        config.bytes.is_none() && config.concurrency.is_none() && !config.fields
    }

    /// The name of a client's network.
    fn network(&self, peer: IpAddr) -> IpNet {
        let peer = peer.to_canonical();
        let prefix = match peer {
            IpAddr::V4(_) => self.config.v4_prefix,
            IpAddr::V6(_) => self.config.v6_prefix,
        };
        IpNet::new(peer, prefix).map_or_else(|_| IpNet::from(peer), |network| network.trunc())
    }

    /// How long a request would wait, if at all; `Err` is when it may come again.
    pub fn judge(&self, key: u64, now_ns: u64) -> Result<Duration, Duration> {
        if let Some(bytes) = &self.state.bytes {
            let owed = bytes.wait_for(key, 0, now_ns);
            if owed > BYTES_OWED_BEFORE_MAX {
                return Err(owed - BYTES_OWED_BEFORE_MAX);
            }
        }
        let Some(table) = &self.state.requests else { return Ok(Duration::ZERO) };
        let wait = table.wait_for(key, 1, now_ns);
        if wait.is_zero() || (wait <= self.delay_max() && self.has_room(key)) {
            return Ok(wait);
        }
        Err(wait)
    }

    /// Takes a request. Returns how long it waits; `Err` is when it may come again.
    #[inline]
    pub fn take(&self, key: u64, now_ns: u64) -> Result<Duration, Duration> {
        let taken = match &self.state.requests {
            Some(table) => table.take(key, 1, now_ns, self.delay_max()),
            None => Ok(Duration::ZERO),
        };
        if taken == Ok(Duration::ZERO) {
            self.state.allowed.add(1);
        }
        taken
    }

    /// Takes a request if it does not have to wait.
    #[inline]
    pub fn take_at_once(&self, key: u64, now_ns: u64) -> bool {
        let table = self.state.requests.as_ref();
        let is_taken = table.is_none_or(|table| table.take(key, 1, now_ns, Duration::ZERO).is_ok());
        self.state.allowed.add(u64::from(is_taken));
        is_taken
    }

    fn delay_max(&self) -> Duration {
        match self.config.over {
            Over::Refuse => Duration::ZERO,
            Over::Delay => self.config.delay_max,
        }
    }

    /// Whether another request of a client may wait. A client may have as many places as are free
    /// (dynamic thresholds, Choudhury and Hahne, 1998): one alone gets about half of them, and each
    /// of n that want more gets one of n + 1 parts, once those that had more have been served. With
    /// `by = "all"` or `"route"`, clients have one key, and nothing is divided.
    fn has_room(&self, key: u64) -> bool {
        let waiting = &self.state.waiting;
        let free = u64::from(self.config.waiting_max).saturating_sub(waiting.all());
        let is_shared = match self.config.by {
            By::Network | By::User | By::Field(_) => true,
            By::All | By::Route => false,
        };
        free > 0 && (!is_shared || u64::from(waiting.of(key)) <= free)
    }

    /// Counts a request that is delayed until what is returned is dropped.
    pub fn wait(&self, key: u64, who: &Who<'_>) -> Option<Counted> {
        self.delay(key, who);
        // Whether there is room has been judged.
        self.state.waiting.enter(key, u32::MAX)
    }

    /// Notes that a request, or its response, is delayed.
    pub fn delay(&self, key: u64, who: &Who<'_>) {
        self.state.delayed.add(1);
        self.state.busiest.note(key, || self.name_of(key, who));
    }

    /// Counts a request that is refused.
    pub fn refuse(&self, key: u64, who: &Who<'_>) {
        self.state.refused.add(1);
        self.state.busiest.note(key, || self.name_of(key, who));
    }

    /// Counts a request until what is returned is dropped.
    ///
    /// # Errors
    /// There are as many as the quota allows.
    pub fn begin(&self, key: u64) -> Result<Option<Counted>, TooMany> {
        match self.config.concurrency {
            None => Ok(None),
            Some(max) => self.state.concurrency.enter(key, max).map(Some).ok_or(TooMany),
        }
    }

    /// Charges bytes that are about to be sent, unless [`BYTES_OWED_MAX`] are owed already. Returns
    /// how long to wait before they are sent; `Err` is how long to wait before another try.
    pub fn charge(&self, key: u64, bytes: u64, now_ns: u64) -> Result<Duration, Duration> {
        let table = self.state.bytes.as_ref();
        let charged = table.map(|table| table.charge_within(key, bytes, now_ns, BYTES_OWED_MAX));
        charged.unwrap_or(Ok(Duration::ZERO))
    }

    /// Gives back bytes that were charged and are not sent.
    pub fn refund(&self, key: u64, bytes: u64, now_ns: u64) {
        if let Some(table) = &self.state.bytes {
            table.refund(key, bytes, now_ns);
        }
    }

    /// Counts bytes that are sent.
    pub fn count_sent(&self, bytes: u64) {
        self.state.paced_bytes.add(bytes);
    }

    /// A name for the key of a request. The value of a field may be a password, so its hash stands
    /// for it.
    fn name_of(&self, key: u64, who: &Who<'_>) -> String {
        match &self.config.by {
            By::All => "all".to_owned(),
            By::Network => self.network(who.peer).to_string(),
            By::User => {
                let user = who.user.unwrap_or_default();
                let user = &user[..user.len().min(BUSIEST_NAME_BYTES_MAX)];
                user.escape_ascii().to_string()
            }
            By::Field(_) => format!("{key:016x}"),
            By::Route => match who.chosen().and_then(|chosen| who.routes.get(chosen.at?)) {
                Some(route) => name_of_route(&route.config),
                None => String::new(),
            },
        }
    }
}

fn hash(hasher: &KeyHasher, part: &[u8]) -> u64 {
    hasher.key(&[part]).to_u128() as u64
}

/// A route has no name; its hosts and its path are unique.
fn name_of_route(route: &Route) -> String {
    let hosts: Vec<String> = route.hosts.iter().map(ToString::to_string).collect();
    format!("{} {}", hosts.join(","), route.path)
}

#[cfg(test)]
mod tests;
