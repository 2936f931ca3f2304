//! How a request may be answered by peers, and by which it was.

use std::cell::Cell;
use std::sync::Arc;

use outcome::Hierarchy;
use policy::peers::{Allowed, Peers, code};
use upstream::To;

/// How a request may be answered by peers, and by which it was.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    /// Those that are asked.
    pub(crate) peers: Arc<Peers>,
    /// The destination is the group of parents.
    pub(crate) to_parents: bool,
    /// What the rules allow.
    pub(crate) allowed: Allowed,
    /// What the log says of the server of the response.
    pub(crate) used: Cell<Hierarchy>,
}

impl Course {
    /// For a request that goes to these parents.
    pub(crate) fn to_parents(peers: &Arc<Peers>, allowed: Allowed, parents: &To) -> Course {
        let used = Cell::new(used(parents));
        Course { peers: Arc::clone(peers), to_parents: true, allowed, used }
    }

    /// For a request that goes to its origin unless a peer has the response. `None` if none is
    /// asked.
    pub(crate) fn to_origin(peers: &Arc<Peers>) -> Option<Course> {
        (!peers.asked.is_empty()).then(|| Course {
            peers: Arc::clone(peers),
            to_parents: false,
            allowed: Allowed::Either,
            used: Cell::default(),
        })
    }
}

/// What the log says of such a destination.
pub(crate) fn used(to: &To) -> Hierarchy {
    match to {
        To::Group(parents, ..) => code(parents),
        To::Addresses(..) => Hierarchy::Direct,
    }
}
