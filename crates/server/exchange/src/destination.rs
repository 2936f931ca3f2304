//! Where a request goes, and the URI under which its response is stored.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use cache::key::StoredUri;
use cache::realm::Realm;
use config::PeerKind;
use outcome::Hierarchy;
use policy::peers::{Allowed, Peers, code};
use policy::reading::Reading;
use upstream::To;

use crate::cluster::{Share, Used};

/// Where a request goes.
#[derive(Debug)]
pub(crate) struct Destination<'x> {
    pub(crate) realm: Realm,
    /// The authority of the requested URI.
    pub(crate) authority: &'x [u8],
    /// Path and query as requested.
    pub(crate) path: &'x [u8],
    /// The same as it is stored, by the settings of the route.
    pub(crate) stored_path: Cow<'x, [u8]>,
    /// Whether the store may answer the request. Then the upstream gets what is in the key: a
    /// stored response must not depend on anything else that the settings have dropped.
    pub(crate) is_keyed: bool,
    /// Whether the response to a request that is sent as it came may be stored: nothing of the
    /// request is missing in its key.
    pub(crate) stores_as_sent: bool,
    pub(crate) to: To,
    /// How it may be answered by peers; `None`: by none.
    pub(crate) course: Option<Course>,
    /// How it may be answered by other members of the cluster; `None`: by none.
    pub(crate) share: Option<Share>,
}

/// A destination that outlives its request.
#[derive(Debug)]
pub(crate) struct OwnedDestination {
    realm: Realm,
    authority: Box<[u8]>,
    path: Box<[u8]>,
    stored_path: Option<Box<[u8]>>,
    is_keyed: bool,
    stores_as_sent: bool,
    to: To,
    course: Option<Course>,
    share: Option<Share>,
}

impl Destination<'_> {
    /// The URI as it is stored. Everything that refers to stored responses uses this one.
    pub(crate) fn uri(&self) -> StoredUri<'_> {
        StoredUri::new(self.realm, self.authority, &self.stored_path)
    }

    /// The request as rules take it.
    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading::of(self.authority, self.path)
    }

    /// The path and query that the upstream gets instead of the requested ones.
    pub(crate) fn path_sent(&self) -> Option<&[u8]> {
        (self.is_keyed && *self.stored_path != *self.path).then_some(&*self.stored_path)
    }

    /// The `Host` that the upstream gets.
    pub(crate) fn host(&self) -> &[u8] {
        match &self.to {
            To::Group(group, ..) => group.host(self.authority),
            To::Addresses(..) => self.authority,
        }
    }

    /// What the server of the response was.
    pub(crate) fn hierarchy(&self) -> Hierarchy {
        let of_member = self.share.as_ref().and_then(Share::hierarchy);
        let of_peers = || self.course.as_ref().map(|course| course.used.get());
        of_member.or_else(of_peers).unwrap_or(Hierarchy::Direct)
    }

    /// Whether another member of the cluster has answered.
    pub(crate) fn is_from_member(&self) -> bool {
        self.share.as_ref().is_some_and(|share| share.used.get() == Used::Member)
    }

    pub(crate) fn detach(&self) -> OwnedDestination {
        OwnedDestination {
            realm: self.realm,
            authority: self.authority.into(),
            path: self.path.into(),
            stored_path: (*self.stored_path != *self.path).then(|| (&*self.stored_path).into()),
            is_keyed: self.is_keyed,
            stores_as_sent: self.stores_as_sent,
            to: self.to.clone(),
            course: self.course.clone(),
            share: self.share.clone(),
        }
    }
}

impl OwnedDestination {
    pub(crate) fn view(&self) -> Destination<'_> {
        Destination {
            realm: self.realm,
            authority: &self.authority,
            path: &self.path,
            stored_path: Cow::Borrowed(self.stored_path.as_deref().unwrap_or(&self.path)),
            is_keyed: self.is_keyed,
            stores_as_sent: self.stores_as_sent,
            to: self.to.clone(),
            course: self.course.clone(),
            share: self.share.clone(),
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
        To::Group(parents, ..) => code(parents),
        To::Addresses(..) => Hierarchy::Direct,
    }
}
