//! The cluster that this server is a member of: the members, what is known of them, and how one
//! request is shared with them.
//!
//! ```text
//!   a request that misses --> the first usable member in the order of its URL
//!      |-- this one --> its origin, and the response is stored here
//!      '-- another  --> it answers from its store or its origin; no answer: the next in the order
//! ```
//!
//! Who owns: a [`Cluster`] is part of the configuration; its [`State`] lives as long as the
//! process. What never happens: a request that came from a member goes to a member; a member that
//! has not acknowledged our purges is asked.

use std::cell::Cell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cache::realm::{Realm, normal_authority};
use http1::RequestHead;
use outcome::Hierarchy;
use serde_json::{Value, json};
use store::Key;
use upstream::figures;
use upstream::group::{Group, Registry};
use upstream::members::{Member, Members, url_number};

use crate::hot::Hot;
use crate::limits::{BACKLOG_MAX, MEMBER_TRIES_MAX};

/// The field by which a member names the client of a request that it passes on. It is hop-by-hop,
/// and counts only where members connect.
pub(crate) const CLIENT: &str = "Plimsoll-Client";
/// The field by which a member says that an answer is its own refusal.
pub(crate) const REFUSED: &str = "Plimsoll-Refused";

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
    /// Purges that a member has not acknowledged, encoded, the oldest first.
    backlog: Mutex<HashMap<SocketAddr, Vec<Vec<u8>>>>,
    /// How many members have some.
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
        cluster.set_members(&config.members, registry);
        cluster
    }

    /// The members now.
    pub fn members(&self) -> Arc<Members> {
        Arc::clone(&lock(&self.state.members))
    }

    /// Other members from now on. What those that have left had not acknowledged is dropped.
    pub(crate) fn set_members(&self, addresses: &[SocketAddr], registry: &Registry) {
        let members = Arc::new(Members::new(&self.config, addresses, registry));
        let mut backlog = lock(&self.state.backlog);
        backlog.retain(|address, _| members.others().any(|one| one.address == *address));
        self.state.behind.store(backlog.len(), Ordering::Release);
        *lock(&self.state.members) = members;
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
        json!({ "members": members.all().iter().map(one).collect::<Vec<_>>() })
    }
}

/// Purges that wait.
impl Cluster {
    fn is_behind(&self, member: SocketAddr) -> bool {
        self.is_any_behind() && lock(&self.state.backlog).contains_key(&member)
    }

    pub(crate) fn is_any_behind(&self) -> bool {
        self.state.behind.load(Ordering::Acquire) != 0
    }

    /// How many purges a member has not acknowledged.
    fn waiting(&self, member: SocketAddr) -> usize {
        lock(&self.state.backlog).get(&member).map_or(0, Vec::len)
    }

    /// A member has not acknowledged a purge, which is sent again later. If there are too many,
    /// `everything` takes their place.
    pub(crate) fn put_off(&self, member: SocketAddr, purge: &[u8], everything: &[u8]) {
        let mut backlog = lock(&self.state.backlog);
        let waiting = backlog.entry(member).or_default();
        waiting.push(purge.to_vec());
        if waiting.len() > BACKLOG_MAX {
            tracing::warn!(%member, "too many purges wait: everything will be purged there");
            *waiting = vec![everything.to_vec()];
        }
        self.state.behind.store(backlog.len(), Ordering::Release);
    }

    /// The oldest purges that wait for a member, so many bytes at most, but at least one.
    pub(crate) fn oldest(&self, member: SocketAddr, bytes_max: usize) -> Vec<Vec<u8>> {
        let backlog = lock(&self.state.backlog);
        let mut bytes = 0;
        let waiting = backlog.get(&member).map_or(&[][..], Vec::as_slice);
        let fits = |purge: &&Vec<u8>| {
            let is_first = bytes == 0;
            bytes += purge.len();
            is_first || bytes <= bytes_max
        };
        waiting.iter().take_while(fits).cloned().collect()
    }

    /// It has acknowledged these.
    pub(crate) fn acknowledged(&self, member: SocketAddr, purges: &[Vec<u8>]) {
        let mut backlog = lock(&self.state.backlog);
        if let Some(waiting) = backlog.get_mut(&member) {
            // They may have been folded meanwhile.
            if waiting.starts_with(purges) {
                waiting.drain(..purges.len());
            }
            if waiting.is_empty() {
                backlog.remove(&member);
            }
        }
        self.state.behind.store(backlog.len(), Ordering::Release);
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
    pub(crate) used: Cell<Used>,
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
            used: Cell::new(Used::None),
        })
    }

    /// The members that are asked, in their order, until it is the turn of this one.
    pub(crate) fn asked<'m>(&self, members: &'m Members) -> impl Iterator<Item = &'m Member> {
        let ranked = members
            .rank(self.url)
            .filter(|member| member.is_none_or(|member| self.cluster.asks(member)));
        ranked.map_while(|member| member).take(MEMBER_TRIES_MAX)
    }

    /// Whether this URL is requested so often here that its response is kept here, too.
    pub(crate) fn is_hot(&self, uri: Key, stored: impl FnOnce() -> usize) -> bool {
        self.cluster.state.hot.note(uri, stored)
    }

    /// What the log says, if a member has answered.
    pub(crate) fn hierarchy(&self) -> Option<Hierarchy> {
        (self.used.get() == Used::Member).then_some(Hierarchy::Carp)
    }

    /// The owner in words, for an explanation.
    pub(crate) fn owner(&self) -> String {
        let members = self.cluster.members();
        let first = self.asked(&members).next();
        match (first, members.rank(self.url).next()) {
            (Some(member), Some(Some(owner))) if owner.address != member.address => {
                format!("{}, for {}, which is not usable", member.address, owner.address)
            }
            (Some(member), _) => member.address.to_string(),
            (None, Some(Some(owner))) => format!("this member, for {}", owner.address),
            (None, _) => "this member".to_owned(),
        }
    }
}

/// The address of the client for which a member sends this request.
pub(crate) fn client(head: &RequestHead<'_>) -> Option<SocketAddr> {
    let value = head.fields.values(CLIENT.as_bytes()).last()?;
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> Cluster {
        let all: Vec<SocketAddr> =
            (1..=3).map(|host| SocketAddr::from(([10, 0, 0, host], 7000))).collect();
        let config = config::Cluster::new(all[0], all);
        Cluster::new(&config, &Arc::default(), &Registry::default())
    }

    #[test]
    fn a_member_is_not_asked_before_it_has_acknowledged_our_purges() {
        let cluster = cluster();
        let members = cluster.members();
        let (one, other) = (&members.all()[1], &members.all()[2]);
        cluster.put_off(one.address, b"a", b"*");
        cluster.put_off(one.address, b"bc", b"*");
        assert!(!cluster.asks(one) && cluster.asks(other));
        let first = cluster.oldest(one.address, 2);
        assert_eq!(first, [b"a"]);
        cluster.acknowledged(one.address, &first);
        assert!(!cluster.asks(one) && cluster.waiting(one.address) == 1);
        cluster.acknowledged(one.address, &cluster.oldest(one.address, 0));
        assert!(cluster.asks(one) && !cluster.is_any_behind());
    }

    #[test]
    fn too_many_purges_become_one_of_everything_which_has_to_be_acknowledged_itself() {
        let cluster = cluster();
        let to = cluster.members().all()[1].address;
        cluster.put_off(to, b"first", b"*");
        let sent = cluster.oldest(to, 100);
        for _ in 0..BACKLOG_MAX {
            cluster.put_off(to, b"more", b"*");
        }
        assert_eq!(cluster.oldest(to, 100), [b"*"]);
        cluster.acknowledged(to, &sent);
        assert_eq!(cluster.waiting(to), 1, "the acknowledgement was of another");
        cluster.set_members(&[to], &Registry::default());
        assert_eq!(cluster.waiting(to), 1);
        cluster.set_members(&[], &Registry::default());
        assert!(!cluster.is_any_behind(), "it has left");
    }
}
