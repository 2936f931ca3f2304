//! How a request may be answered by peers, and by which it was.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use config::PeerKind;
use outcome::Hierarchy;
use policy::peers::{Allowed, DirectRules, code};
use upstream::To;
use upstream::group::Group;
use upstream::peers::Peer;

/// The peers of forward listeners, ready for use.
#[derive(Debug)]
pub struct Peers {
    /// Which requests go to peers.
    pub(crate) rules: DirectRules,
    /// The parents.
    pub(crate) parents: Option<Arc<Group>>,
    /// The peers that are asked before a request is sent.
    pub(crate) asked: Arc<[Peer]>,
    /// How long a request waits for the answers of peers.
    pub(crate) query_timeout: Duration,
    /// How long a peer may have a response that was purged or changed here.
    pub(crate) doubt_time: Duration,
    /// Peers are notified of changes by unsafe methods.
    pub(crate) clear_changed: bool,
}

impl Peers {
    /// From the configuration, with the parents as a group.
    pub(crate) fn new(
        config: &config::Hierarchy,
        parents: Option<Arc<Group>>,
        asked: Arc<[Peer]>,
    ) -> Peers {
        Peers {
            rules: DirectRules::new(config),
            parents,
            asked,
            query_timeout: config.query_timeout,
            doubt_time: config.doubt_time,
            clear_changed: config.clear_changed,
        }
    }
}

/// How a request may be answered by peers, and by which it was.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    /// Those that are asked.
    pub(crate) peers: Arc<Peers>,
    /// The destination is the group of parents.
    pub(crate) to_parents: bool,
    /// What the rules allow.
    pub(crate) allowed: Allowed,
    /// The rule in words.
    pub(crate) rule: &'static str,
    /// What the log says of the server of the response.
    pub(crate) used: Cell<Hierarchy>,
}

impl Course {
    /// For a request that goes to these parents.
    pub(crate) fn to_parents(peers: &Arc<Peers>, allowed: Allowed, parents: &To) -> Course {
        let used = Cell::new(used(parents));
        let rule = allowed.text(true);
        Course { peers: Arc::clone(peers), to_parents: true, allowed, rule, used }
    }

    /// For a request that goes to its origin, unless a peer that may be asked has the response.
    /// `parents`: it could go to a parent at another time.
    pub(crate) fn to_origin(peers: &Arc<Peers>, allowed: Allowed, parents: bool) -> Course {
        let rule = allowed.text(parents);
        let used = Cell::default();
        Course { peers: Arc::clone(peers), to_parents: false, allowed, rule, used }
    }

    /// The request is sent to this destination, whatever was tried before.
    pub(crate) fn begin(&self, to: &To) {
        self.used.set(if self.to_parents { used(to) } else { Hierarchy::Direct });
    }

    /// Whether all peers have seen the request because there is one, a parent, which passed it on.
    pub(crate) fn is_by_only_peer(&self) -> bool {
        let siblings = self.peers.asked.iter().any(|peer| peer.kind == PeerKind::Sibling);
        self.used.get() == Hierarchy::FirstUpParent && !siblings
    }
}

/// What the log says of such a destination.
pub(crate) fn used(to: &To) -> Hierarchy {
    match to {
        To::Group(parents, ..) => code(&parents.config),
        To::Addresses(..) => Hierarchy::Direct,
    }
}
