//! The cluster that this server is a member of: the members, the known state of each member, and
//! how one request is shared with the members.
//!
//! ```text
//!   a request that misses --> the first usable member in the order of its URL
//!      |-- this one --> its origin, and the response is stored here
//!      '-- another  --> it answers from its store or its origin; no answer: the next in the order
//! ```
//!
//! A [`Cluster`] is part of the configuration. Its [`State`] lives as long as the process.
//!
//! # What it promises
//!
//! These files keep the promises: `cache/src/backlog.rs`, and `cluster.rs`, `fetch/member.rs`,
//! `member_calls.rs` and `spread.rs` of `exchange/src`.
//!
//! - A request that came from a member is never sent to another member.
//! - A response that another member gave is stored only if its URL is requested often. So the
//!   memories of the members together are nearly one memory.
//! - This member sends no request to a member that has not acknowledged this member's purges.
//! - A purge counts as complete only when all members have purged twice.
//! - Without `[cluster]`, a hit does no work for the cluster, and a miss tests one pointer.
//!
//! `docs/cluster.md` describes the rules.

use std::cell::{Cell, OnceCell};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cache::hot::Hot;
use cache::realm::{Realm, normal_authority};
use http1::{Fields, RequestHead};
use outcome::Hierarchy;
use serde_json::{Value, json};
use store::Key;
use upstream::figures;
use upstream::group::Group;
use upstream::members::{Member, Members, url_number};
use upstream::registry::Registry;

use crate::limits::MEMBER_TRIES_MAX;
use cache::backlog::{Backlog, Batch};

/// The field by which a member names the client of a request that it passes on. It is hop-by-hop,
/// and counts only where members connect.
pub(crate) const CLIENT: &str = "Plimsoll-Client";
/// The field by which a member says that an answer is its own refusal. It is hop-by-hop, so that no
/// origin can say it, and no client gets it.
pub(crate) const REFUSED: &str = "Plimsoll-Refused";
/// The field by which a member says that it has done what another one has called for.
pub(crate) const DONE: &str = "Plimsoll-Done";
/// How many responses that removed.
pub(crate) const PURGED: &str = "Plimsoll-Purged";

/// The cluster of one configuration.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// As configured.
    pub config: Arc<config::Cluster>,
    pub(crate) state: Arc<State>,
}

/// What outlives a reload.
#[derive(Debug, Default)]
pub struct State {
    members: Mutex<Arc<Members>>,
    /// The name that these members are the addresses of, if it is from a name.
    name: Mutex<Option<(String, u16)>>,
    backlog: Mutex<Backlog>,
    /// How many addresses have purges that wait.
    behind: AtomicUsize,
    hot: Hot,
}

impl Cluster {
    /// Puts a configuration in force.
    pub(crate) fn new(
        config: &config::Cluster,
        state: &Arc<State>,
        registry: &Registry,
    ) -> Cluster {
        let cluster = Cluster { config: Arc::new(config.clone()), state: Arc::clone(state) };
        let before = std::mem::replace(&mut *lock(&state.name), config.name.clone());
        // The file's look-up may know less than ours: old members go on until there are new ones.
        let known = match config.name.is_some() && config.name == before {
            true => cluster.addresses(),
            false => Vec::new(),
        };
        let members = if known.is_empty() { &config.members } else { &known };
        cluster.set_members(members, registry);
        cluster
    }

    /// The members now.
    pub fn members(&self) -> Arc<Members> {
        Arc::clone(&lock(&self.state.members))
    }

    /// Their addresses.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.members().all().iter().map(|member| member.address).collect()
    }

    /// Other members from now on. Those that leave keep the purges that wait for them, and those
    /// that join validate what they have stored.
    pub(crate) fn set_members(&self, addresses: &[SocketAddr], registry: &Registry) {
        let members = Arc::new(Members::new(&self.config, addresses, registry));
        match self.config.own_among(addresses)[..] {
            [_] => {}
            [] => tracing::warn!(?addresses, "this server is none of the members of its cluster"),
            ref several => tracing::error!(
                ?several,
                "several members of the cluster seem to be this server: name it in cluster.self"
            ),
        }
        let others = |of: &Members| of.others().map(|one| one.address).collect::<Vec<_>>();
        let now = others(&members);
        let before = std::mem::replace(&mut *lock(&self.state.members), members);
        let is_first = before.all().is_empty();
        self.change(|backlog| backlog.members_are(&now, &others(&before), is_first));
    }

    /// Whether a connection from this address may be that of a member.
    pub fn admits(&self, from: IpAddr) -> bool {
        let members = self.members();
        self.config.admits(from, members.all().iter().map(|member| member.address.ip()))
    }

    /// Whether a member is asked: it works, and has acknowledged our purges.
    pub(crate) fn asks(&self, member: &Member) -> bool {
        member.group.is_usable() && !self.is_behind(member.address)
    }

    /// The groups of the other members.
    pub(crate) fn groups(&self) -> Vec<Arc<Group>> {
        self.members().others().map(|member| Arc::clone(&member.group)).collect()
    }

    /// The members as JSON.
    pub fn json(&self) -> Value {
        let members = self.members();
        let share = 1.0 / members.all().len().max(1) as f64;
        let one = |member: &Member| {
            let group = std::slice::from_ref(&member.group);
            let now = figures::servers(group).next();
            json!({
                "member": member.address,
                "self": members.own().is_some_and(|own| own.address == member.address),
                "share": share,
                "state": now.as_ref().map(|now| now.state),
                "outstanding": now.as_ref().map(|now| now.outstanding),
                "requests": now.as_ref().map(|now| now.requests),
                "failures": now.as_ref().map(|now| now.failures),
                "purges_waiting": self.waiting(member.address),
            })
        };
        let all: Vec<_> = members.all().iter().map(one).collect();
        json!({ "is_member": members.own().is_some(), "members": all })
    }
}

/// Purges that wait.
impl Cluster {
    fn is_behind(&self, member: SocketAddr) -> bool {
        self.is_any_behind() && self.waiting(member) != 0
    }

    pub(crate) fn is_any_behind(&self) -> bool {
        self.state.behind.load(Ordering::Acquire) != 0
    }

    /// How many purges a member has not acknowledged.
    pub(crate) fn waiting(&self, member: SocketAddr) -> usize {
        lock(&self.state.backlog).waiting(member)
    }

    /// The oldest purges that wait for a member.
    pub(crate) fn oldest(&self, member: SocketAddr, bytes_max: usize) -> Batch {
        lock(&self.state.backlog).oldest(member, bytes_max)
    }

    /// Changes what waits.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Backlog)) {
        self.state.change(change);
    }
}

/// The handover to another process.
impl State {
    /// What a successor must go on with, of what began to wait after this number: messages for
    /// [`State::take_over`], and the number to ask with next.
    pub fn waiting_since(&self, number: u64, bytes_max: usize) -> (Vec<Vec<u8>>, u64) {
        lock(&self.backlog).since(number, bytes_max)
    }

    /// Goes on with what a predecessor has sent. False if it cannot be read.
    #[must_use]
    pub fn take_over(&self, message: &[u8]) -> bool {
        let members = Arc::clone(&lock(&self.members));
        let now: Vec<_> = members.others().map(|one| one.address).collect();
        self.change(|backlog| backlog.take_over(message, &now))
    }

    fn change<R>(&self, change: impl FnOnce(&mut Backlog) -> R) -> R {
        let mut backlog = lock(&self.backlog);
        let result = change(&mut backlog);
        self.behind.store(backlog.behind(), Ordering::Release);
        result
    }
}

/// No code in this file panics while it holds a lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How one request may be answered by other members.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) cluster: Arc<Cluster>,
    url: u64,
    /// The members and their order, as they are when they are first needed.
    ranked: OnceCell<Ranked>,
    pub(crate) used: Cell<Used>,
}

/// The members, in an order.
#[derive(Clone, Debug)]
struct Ranked {
    members: Arc<Members>,
    order: Box<[usize]>,
}

/// Who has answered a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Used {
    /// It is not decided yet.
    None,
    /// Another member.
    Member,
    /// This one, from its origin.
    Origin,
}

impl Share {
    /// For a request with this URI, whose path is stored like this. `None`: it has no URL that
    /// could be sent.
    pub(crate) fn of(
        cluster: &Arc<Cluster>,
        (realm, authority): (Realm, &[u8]),
        stored_path: &[u8],
    ) -> Option<Share> {
        let has_url = !authority.is_empty() && stored_path.starts_with(b"/");
        let authority = normal_authority(realm, authority);
        has_url.then(|| Share {
            cluster: Arc::clone(cluster),
            url: url_number(&authority, stored_path),
            ranked: OnceCell::new(),
            used: Cell::new(Used::None),
        })
    }

    fn ranked(&self) -> &Ranked {
        self.ranked.get_or_init(|| {
            let members = self.cluster.members();
            let order = members.order(self.url);
            Ranked { members, order }
        })
    }

    /// The members in the order in which they are responsible; `None` is this one.
    fn rank(&self) -> impl Iterator<Item = Option<&Member>> {
        let Ranked { members, order } = self.ranked();
        order.iter().map(|at| members.at(*at))
    }

    /// The members that are asked, in their order, until it is the turn of this one.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &Member> {
        self.asked_besides(&[])
    }

    /// The same without those that have failed the request.
    pub(crate) fn asked_besides(&self, failed: &[SocketAddr]) -> impl Iterator<Item = &Member> {
        let asks = |one: &Member| !failed.contains(&one.address) && self.cluster.asks(one);
        let ranked = self.rank().filter(move |member| member.is_none_or(asks));
        ranked.map_while(|member| member).take(MEMBER_TRIES_MAX)
    }

    /// Whether this URL is requested so often here that its response is kept here, too.
    pub(crate) fn is_hot(&self, uri: Key, stored: impl FnOnce() -> usize) -> bool {
        self.cluster.state.hot.note(uri, stored)
    }

    /// Whether responses may be stored here. A server that is not among the members, while there
    /// are some, does not learn what they purge.
    pub(crate) fn may_keep(&self) -> bool {
        let members = &self.ranked().members;
        members.own().is_some() || members.all().is_empty()
    }

    /// What the log says, if a member has answered.
    pub(crate) fn hierarchy(&self) -> Option<Hierarchy> {
        (self.used.get() == Used::Member).then_some(Hierarchy::Carp)
    }

    /// The owner in words, for an explanation.
    pub(crate) fn owner(&self) -> String {
        let first = self.asked().next();
        match (first, self.rank().next()) {
            (Some(member), Some(Some(owner))) if owner.address != member.address => {
                format!("{}, for {}, which is not usable", member.address, owner.address)
            }
            (Some(member), _) => member.address.to_string(),
            (None, Some(Some(owner))) => format!("this member, for {}", owner.address),
            (None, _) => "this member".to_owned(),
        }
    }
}

/// Whether a message has a field of members. Such a field is for this hop alone, and Connection
/// names it, so what a proxy passes on for a client or an origin never has one.
pub(crate) fn has_for_hop(fields: &Fields<'_>, name: &str) -> bool {
    fields.for_this_hop(name.as_bytes()).next().is_some()
}

/// Whether a request is of a member, as far as it says so itself.
pub(crate) fn is_of_member(head: &RequestHead<'_>) -> bool {
    has_for_hop(&head.fields, CLIENT)
}

/// The address of the client for which a member sends this request.
pub(crate) fn client(head: &RequestHead<'_>) -> Option<SocketAddr> {
    let value = head.fields.for_this_hop(CLIENT.as_bytes()).last()?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members() -> Vec<SocketAddr> {
        (1..=3).map(|host| SocketAddr::from(([10, 0, 0, host], 7000))).collect()
    }

    fn cluster() -> Cluster {
        let config = config::Cluster::new(members()[0], members());
        Cluster::new(&config, &Arc::default(), &Registry::default())
    }

    #[test]
    fn a_member_is_not_asked_before_it_has_acknowledged_our_purges() {
        let cluster = cluster();
        let members = cluster.members();
        let (one, other) = (&members.all()[1], &members.all()[2]);
        cluster.change(|backlog| backlog.put_off(one.address, b"a"));
        assert!(!cluster.asks(one) && cluster.asks(other));
        // Also if it was away in between.
        cluster.set_members(&[other.address], &Registry::default());
        cluster.set_members(&cluster.config.members, &Registry::default());
        assert!(!cluster.asks(one));
        let last = cluster.oldest(one.address, 100).last;
        cluster.change(|backlog| backlog.acknowledged(one.address, last));
        assert!(cluster.asks(one) && !cluster.is_any_behind());
    }

    #[test]
    fn what_waits_for_a_member_survives_a_reload() {
        let all = members();
        let config = config::Cluster::new(all[0], all.clone());
        let (state, registry) = (Arc::default(), Registry::default());
        let before = Cluster::new(&config, &state, &registry);
        before.change(|backlog| backlog.put_off(all[1], b"a"));
        let fewer = config::Cluster::new(all[0], all[..1].to_vec());
        assert!(!Cluster::new(&fewer, &state, &registry).is_any_behind());
        let after = Cluster::new(&config, &state, &registry);
        let members = after.members();
        assert_eq!(after.waiting(all[1]), 1);
        assert!(!after.asks(&members.all()[1]) && after.asks(&members.all()[2]));
    }

    /// A reload while the name had no address dissolved the cluster.
    #[test]
    fn a_reload_without_an_answer_for_the_name_keeps_the_members() {
        let all = members();
        let mut config = config::Cluster::new(all[0], all.clone());
        config.name = Some(("cache.internal".to_owned(), 7000));
        let (state, registry) = (Arc::default(), Registry::default());
        Cluster::new(&config, &state, &registry);
        config.members = Vec::new();
        assert_eq!(Cluster::new(&config, &state, &registry).addresses(), all);
        config.name = Some(("other.internal".to_owned(), 7000));
        assert_eq!(Cluster::new(&config, &state, &registry).addresses(), []);
    }
}
