//! How a request may be answered by peers, and by which it was.

use std::cell::Cell;
use std::sync::Arc;

use config::PeerKind;
use outcome::Hierarchy;
use policy::peers::{Allowed, code};
use upstream::To;

use crate::snapshot::Peers;

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
