//! A group of upstream servers at work: which are usable, which gets the next request, and which
//! requests wait.
//!
//! ```text
//!   a server:   usable --fall failures of its check--> down --rise successes--> usable
//!                  |                                                              ^
//!                  '--failures in a row of requests--> ejected --its time over----'
//! ```
//!
//! Who owns: a [`Group`] is part of the configuration and is dropped with it. The state of a server
//! (its requests in flight, its health, its addresses) is a [`ServerState`], which all cores share
//! and which outlives a reload that names the same server in the same group. A request holds a
//! [`Ticket`] while it is in flight.
//!
//! What never happens: a server has more requests in flight than its limit; the last usable server
//! is ejected because requests failed; a request waits beyond its time-out.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use http1::Scheme;
use peering::carp;
use runtime::net::shown;
use runtime::time::{self, Instant};

use super::balance::{Balancer, Candidate, stable_hash};
use super::budget::Budget;
use super::look_up::LookUp;
use super::queue::{Place, Queue};
use super::server::{Addresses, Generation, ServerState, Tried};
use super::slots::Slot;
use super::sticky::Choice;
use crate::limits::QUEUE_LOOK;
use config::{self, Balance, HostSent, UpstreamProtocol};
use outcome::Fault;
use transport::tls::TlsPeer;

/// The unit of weight: a server in its slow start can have a fraction of weight 1.
pub(super) const WEIGHT_UNIT: u64 = 64;

/// A group of one configuration.
#[derive(Debug)]
pub struct Group {
    /// As configured.
    pub config: config::Group,
    pub(super) members: Box<[Member]>,
    pub(super) balancer: Balancer,
    pub(super) shared: Arc<GroupState>,
}

/// The state of a group that outlives a reload.
#[derive(Debug)]
pub(super) struct GroupState {
    pub(super) queue: Queue,
    pub(super) budget: Budget,
    pub(super) figures: GroupFigures,
}

/// The counters of a group.
#[derive(Debug, Default)]
pub(super) struct GroupFigures {
    pub(super) retries: AtomicU64,
    pub(super) retries_denied: AtomicU64,
    pub(super) waits: AtomicU64,
    pub(super) wait_us: AtomicU64,
    pub(super) queue_full: AtomicU64,
    pub(super) queue_timeouts: AtomicU64,
    pub(super) none_usable: AtomicU64,
}

/// A server of one configuration.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) state: Arc<ServerState>,
    pub(super) authority: String,
    /// Its name in cookies, unless it is a slot.
    pub(super) id: String,
    /// If it is one of several servers of a name.
    pub(super) slot: Option<Slot>,
    /// It is at a Unix socket, so that it has no host.
    pub(super) is_unix: bool,
    /// The TLS peer, if TLS is used.
    pub(super) tls: Option<Arc<TlsPeer>>,
    /// What is looked up periodically; `None` if the address was configured.
    pub(super) name: Option<LookUp>,
    /// The field line that logs in to it.
    pub(super) login: Option<config::Login>,
    pub(super) weight: u64,
    pub(super) backup: bool,
    pub(super) outstanding_max: u32,
    pub(super) identity: u64,
}

/// The server that a request would go to.
pub struct Predicted {
    /// As configured.
    pub authority: String,
    /// Its addresses.
    pub addresses: Arc<[SocketAddr]>,
    /// Whether TLS is used.
    pub tls: bool,
    /// Whether it is the server of the request's session.
    pub session: bool,
}

/// Why no server can take a request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// None is usable.
    Down,
    /// The usable ones have as many requests as their limits allow.
    Full,
}

impl Blocked {
    /// The reason in words.
    pub fn text(self) -> &'static str {
        match self {
            Blocked::Down => "no server of the group is usable",
            Blocked::Full => {
                "its servers have as many requests as their limits allow: it would wait"
            }
        }
    }
}

/// The order in which servers are used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tier {
    Primary,
    Backup,
    /// A server that has failed requests is better than none.
    Ejected,
}

impl Group {
    /// A server for a request; waits for one if all are full and there is room to wait.
    pub(super) async fn admit(
        self: &Arc<Group>,
        choice: Choice,
        tried: Tried,
    ) -> Result<Ticket, Fault> {
        if self.shared.queue.len() == 0 {
            match self.try_admit(choice, tried) {
                Ok(ticket) => return Ok(ticket),
                Err(Blocked::Down) => return Err(self.none_usable(tried)),
                Err(Blocked::Full) => {}
            }
        }
        Box::pin(self.wait(choice, tried)).await
    }

    async fn wait(self: &Arc<Group>, choice: Choice, tried: Tried) -> Result<Ticket, Fault> {
        let figures = &self.shared.figures;
        let Some(place) = self.shared.queue.enter(self.config.queue.length_max) else {
            // All that wait may wait for the server of one session.
            return self.try_admit(choice, tried).map_err(|_| {
                figures.queue_full.fetch_add(1, Relaxed);
                Fault::QueueFull
            });
        };
        figures.waits.fetch_add(1, Relaxed);
        let began = time::now();
        let admitted = self.wait_at(place, choice, tried, began).await;
        let waited_us = began.elapsed().as_micros() as u64;
        figures.wait_us.fetch_add(waited_us, Relaxed);
        if matches!(admitted, Err(Fault::QueueTimeout)) {
            figures.queue_timeouts.fetch_add(1, Relaxed);
        }
        admitted
    }

    async fn wait_at(
        self: &Arc<Group>,
        place: Place<'_>,
        choice: Choice,
        tried: Tried,
        began: Instant,
    ) -> Result<Ticket, Fault> {
        let deadline = began + self.config.queue.timeout;
        loop {
            // A server may have become free before this request was in the queue.
            match self.try_admit(choice, tried) {
                Ok(ticket) => {
                    place.served();
                    return Ok(ticket);
                }
                Err(Blocked::Down) => return Err(self.none_usable(tried)),
                Err(Blocked::Full) => place.wait_on(),
            }
            if time::now() >= deadline {
                return Err(Fault::QueueTimeout);
            }
            // An ejected server returns without a notification: look from time to time.
            let until = deadline.min(time::now() + QUEUE_LOOK);
            let called = std::future::poll_fn(|cx| place.poll_called(cx));
            let _ = time::timeout_at(until, called).await;
        }
    }

    fn none_usable(&self, tried: Tried) -> Fault {
        if tried.is_empty() {
            self.shared.figures.none_usable.fetch_add(1, Relaxed);
        }
        Fault::NoServer
    }

    pub(super) fn try_admit(
        self: &Arc<Group>,
        choice: Choice,
        tried: Tried,
    ) -> Result<Ticket, Blocked> {
        if let Some(at) = self.of_session(choice, tried) {
            // Another server has no session for it, so it waits for this one.
            return self.take(at).ok_or(Blocked::Full);
        }
        if let [only] = &self.members[..] {
            if tried.has(0) || !only.state.takes_new() {
                return Err(Blocked::Down);
            }
            return self.take(0).ok_or(Blocked::Full);
        }
        let now = time::now();
        let tier = self.best_tier(tried, now).ok_or(Blocked::Down)?;
        // Another core may take the server first; then the next best is chosen.
        for _ in 0..self.members.len() {
            let with_room = self.with_room(tier, tried, now);
            let at = self.balancer.pick(with_room, choice.key, true).ok_or(Blocked::Full)?;
            if let Some(ticket) = self.take(at) {
                return Ok(ticket);
            }
        }
        Err(Blocked::Full)
    }

    /// The server of the request's session, if it may have the request.
    fn of_session(&self, choice: Choice, tried: Tried) -> Option<usize> {
        let at = choice.session()?;
        let state = &self.members.get(at)?.state;
        let is_usable = state.takes_sessions() && !state.is_ejected(time::now());
        (is_usable && !tried.has(at)).then_some(at)
    }

    /// The first tier with a usable server.
    fn best_tier(&self, tried: Tried, now: Instant) -> Option<Tier> {
        let tiers = [Tier::Primary, Tier::Backup, Tier::Ejected].into_iter();
        tiers.into_iter().find(|tier| self.usable(*tier, tried, now).next().is_some())
    }

    fn usable(
        &self,
        tier: Tier,
        tried: Tried,
        now: Instant,
    ) -> impl Iterator<Item = (usize, &Member)> + Clone {
        self.members.iter().enumerate().filter(move |(at, member)| {
            !tried.has(*at) && member.state.takes_new() && member.tier(now) == tier
        })
    }

    /// The servers of a tier that can take one more request.
    fn with_room(
        &self,
        tier: Tier,
        tried: Tried,
        now: Instant,
    ) -> impl Iterator<Item = Candidate> + Clone {
        self.usable(tier, tried, now).filter_map(move |(at, member)| {
            let outstanding = member.state.outstanding();
            (outstanding < member.outstanding_max).then(|| Candidate {
                at,
                weight: member.weight_now(now, self.config.slow_start),
                outstanding: outstanding.into(),
                identity: member.identity(),
            })
        })
    }

    /// The server that a request would go to now, without sending one.
    pub fn predicted(&self, choice: Choice) -> Result<Predicted, Blocked> {
        let (tried, now) = (Tried::default(), time::now());
        let session = self.of_session(choice, tried);
        let at = match session {
            Some(at) => at,
            None => {
                let tier = self.best_tier(tried, now).ok_or(Blocked::Down)?;
                let with_room = self.with_room(tier, tried, now);
                self.balancer.pick(with_room, choice.key, false).ok_or(Blocked::Full)?
            }
        };
        let member = &self.members[at];
        Ok(Predicted {
            authority: member.label().into_owned(),
            addresses: Arc::from(&*member.state.addresses()),
            tls: member.tls.is_some(),
            session: session.is_some(),
        })
    }

    /// Whether some server takes new requests and is not ejected.
    pub fn is_usable(&self) -> bool {
        let now = time::now();
        let is_up = |member: &Member| member.state.takes_new() && !member.state.is_ejected(now);
        self.members.iter().any(is_up)
    }

    /// Whether no server takes new requests. A server that is ejected takes them if there is no
    /// other.
    pub fn is_down(&self) -> bool {
        !self.members.iter().any(|member| member.state.takes_new())
    }

    /// A place at a server, if it has fewer requests in flight than its limit.
    fn take(self: &Arc<Group>, at: usize) -> Option<Ticket> {
        let member = &self.members[at];
        let generation = member.state.take(member.outstanding_max)?;
        Some(Ticket { group: Arc::clone(self), at, generation })
    }

    /// The number that says which requests belong together, if only their URLs count.
    pub fn key(&self, scheme: Scheme, authority: &[u8], path: &[u8]) -> u64 {
        match self.config.balance {
            Balance::Carp => {
                let authority = authority.to_ascii_lowercase();
                let parts = [scheme.name().as_bytes(), b"://", &authority, path];
                carp::url_hash(&parts.concat()).into()
            }
            Balance::Hash { .. } => stable_hash(&[&authority.to_ascii_lowercase(), path]),
            Balance::RoundRobin | Balance::LeastOutstanding => 0,
        }
    }

    /// The `Host` that its servers get for a request with this one.
    pub fn host<'h>(&'h self, asked: &'h [u8]) -> &'h [u8] {
        match (&self.config.host, &*self.members) {
            (HostSent::Named(host), _) => host.as_bytes(),
            // Only HTTP/1.0 requests can have none: the server's name is sent instead.
            (HostSent::Client, [first, ..]) if asked.is_empty() => first.own_host().as_bytes(),
            (HostSent::Client, _) => asked,
        }
    }

    /// A request begins, which adds to the budget of retries.
    pub(super) fn began(&self) {
        self.shared.budget.earn(self.config.retries);
    }

    /// Whether a request that has failed on this many servers may go to another.
    pub(super) fn may_retry(&self, failed: u32) -> bool {
        let may_try = failed <= self.config.retries.max && (failed as usize) < self.members.len();
        may_try && self.spend()
    }

    /// Takes a retry from the budget.
    fn spend(&self) -> bool {
        let figures = &self.shared.figures;
        let may = self.shared.budget.spend();
        let counted = if may { &figures.retries } else { &figures.retries_denied };
        counted.fetch_add(1, Relaxed);
        may
    }

    /// A request has failed because of this server.
    fn failed(&self, at: usize) {
        let ejection = &self.config.ejection;
        let state = &self.members[at].state;
        let in_row = state.note_failure();
        if ejection.failures == 0 || in_row < ejection.failures {
            return;
        }
        let now = time::now();
        // A server that has left the name service is no server any more.
        if state.is_unresolved() {
            return;
        }
        let there = || self.members.iter().filter(|member| !member.state.is_unresolved());
        let ejected = there().filter(|member| member.state.is_ejected(now)).count();
        let there = there().count();
        let ejected_max = there * ejection.share_percent_max as usize / 100;
        if ejected < ejected_max && state.eject(now, ejection.base, ejection.max) {
            let (group, server) = (&self.config.name, self.members[at].label());
            tracing::warn!(group, %server, in_row, "an upstream server is ejected for a while");
        }
    }
}

impl Member {
    /// The host of a request that names none.
    pub(super) fn own_host(&self) -> &str {
        match &self.name {
            _ if self.is_unix => "localhost",
            Some(LookUp::Service(service)) => {
                // Without `_http._tcp.`.
                let mut labels = service.splitn(3, '.');
                labels.nth(2).filter(|_| service.starts_with('_')).unwrap_or(service)
            }
            _ => &self.authority,
        }
    }

    /// What it is shown as: its URL without the scheme, or the address in its slot.
    pub(super) fn label(&self) -> Cow<'_, str> {
        match (self.slot, &*self.state.addresses()) {
            (Some(_), [address, ..]) => Cow::Owned(shown(*address)),
            _ => Cow::Borrowed(&self.authority),
        }
    }

    /// Its name in cookies.
    pub(super) fn id(&self) -> Cow<'_, str> {
        match self.slot {
            None => Cow::Borrowed(&self.id),
            Some(_) if self.state.is_unresolved() => Cow::Borrowed(""),
            Some(_) => Cow::Owned(format!("{:04x}", self.state.discovered.id.load(Relaxed))),
        }
    }

    /// A hash of its name.
    fn identity(&self) -> u64 {
        match self.slot {
            None => self.identity,
            Some(_) => self.state.discovered.identity.load(Relaxed),
        }
    }

    pub(super) fn is_backup(&self) -> bool {
        self.backup || self.state.discovered.is_backup.load(Relaxed)
    }

    fn tier(&self, now: Instant) -> Tier {
        match (self.state.is_ejected(now), self.is_backup()) {
            (true, _) => Tier::Ejected,
            (false, false) => Tier::Primary,
            (false, true) => Tier::Backup,
        }
    }

    /// Its weight: the one that an operator has ordered, or that a name server has given, or that
    /// of the configuration.
    pub(super) fn weight_of_file_or_order(&self) -> u64 {
        let discovered = || self.state.discovered.weight.load(Relaxed);
        let given = || (self.slot.is_some() && discovered() > 0).then(discovered);
        self.state.orders.weight().or_else(given).map_or(self.weight, u64::from)
    }

    /// Its weight now. During the slow start it grows with time, beginning at a tenth.
    fn weight_now(&self, now: Instant, slow_start: std::time::Duration) -> u64 {
        let weight = self.weight_of_file_or_order() * WEIGHT_UNIT;
        let slow = slow_start.as_millis() as u64;
        let since = self.state.up_for(now).map_or(u64::MAX, |since| since.as_millis() as u64);
        if since >= slow {
            return weight;
        }
        (weight * since.max(slow / 10) / slow).max(1)
    }
}

/// A request in flight at a server.
#[derive(Debug)]
pub struct Ticket {
    group: Arc<Group>,
    at: usize,
    /// The server's index means another server after this generation.
    generation: Generation,
}

impl Ticket {
    fn member(&self) -> &Member {
        &self.group.members[self.at]
    }

    /// The state of the server, unless another server has its place now.
    fn server(&self) -> Option<&ServerState> {
        let state = &*self.member().state;
        state.is_in(self.generation).then_some(state)
    }

    /// The server's index in the group, if the server can have sessions: its name still has its
    /// address.
    pub(super) fn session_at(&self) -> Option<usize> {
        self.server().filter(|state| !state.is_unresolved()).map(|_| self.at)
    }

    /// The server's index in the group.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Its group.
    pub(super) fn group(&self) -> Arc<Group> {
        Arc::clone(&self.group)
    }

    /// The version of HTTP that the server is sent.
    pub(super) fn protocol(&self) -> UpstreamProtocol {
        self.group.config.protocol
    }

    /// Whether a request that the server has not processed may be sent again.
    pub(super) fn may_resend(&self) -> bool {
        self.group.spend()
    }

    /// The server's TLS peer, if TLS is used.
    pub(super) fn tls(&self) -> Option<Arc<TlsPeer>> {
        self.member().tls.clone()
    }

    /// The field line that logs in to the server.
    pub(super) fn login(&self) -> Option<&[u8]> {
        self.member().login.as_ref().map(config::Login::line)
    }

    /// The server's addresses.
    pub(super) fn addresses(&self) -> Addresses {
        self.member().state.addresses()
    }

    /// A connection to the server was made.
    pub(super) fn connected(&self) {
        if let Some(state) = self.server() {
            state.figures.connects.fetch_add(1, Relaxed);
        }
    }

    /// A connection to the server was reused.
    pub(super) fn reused(&self) {
        if let Some(state) = self.server() {
            state.figures.reuses.fetch_add(1, Relaxed);
        }
    }

    /// The head of an answer has come.
    pub(super) fn answered(&self, status: u16) {
        if self.group.config.ejection.statuses.contains(&status) {
            self.failed();
        } else if let Some(state) = self.server() {
            state.note_success();
        }
    }

    /// Whether what fails may be a server behind this one.
    pub(super) fn is_proxy(&self) -> bool {
        self.group.config.is_of_members
    }

    /// The request has failed because of the server.
    pub(super) fn failed(&self) {
        if self.server().is_some() {
            self.group.failed(self.at);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.member().state.give_back(self.generation);
        self.group.shared.queue.call_next();
    }
}

#[cfg(test)]
mod tests;
