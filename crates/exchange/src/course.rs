//! How a request may be answered by peers, and by which it was.

use std::cell::Cell;

use outcome::Hierarchy;
use policy::peers::{Allowed, code};
use upstream::To;

/// How a request may be answered by peers, and by which it was.
#[derive(Clone, Debug)]
pub(crate) struct Course {
    /// What the rules allow.
    pub(crate) allowed: Allowed,
    /// What the log says of the server of the response.
    pub(crate) used: Cell<Hierarchy>,
}

impl Course {
    /// For a request that goes to these parents.
    pub(crate) fn to_parents(allowed: Allowed, parents: &To) -> Course {
        Course { allowed, used: Cell::new(used(parents)) }
    }
}

/// What the log says of such a destination.
pub(crate) fn used(to: &To) -> Hierarchy {
    match to {
        To::Group(parents, ..) => code(parents),
        To::Addresses(..) => Hierarchy::Direct,
    }
}
