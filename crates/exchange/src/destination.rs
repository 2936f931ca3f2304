//! Where a request goes.

use cache::realm::Realm;
use outcome::Hierarchy;
use upstream::To;

use crate::course::Course;

/// Where a request goes.
#[derive(Debug)]
pub(crate) struct Destination<'x> {
    pub(crate) realm: Realm,
    /// The authority of the requested URI.
    pub(crate) authority: &'x [u8],
    pub(crate) path: &'x [u8],
    pub(crate) to: To,
    /// How it may be answered by peers; `None`: by none.
    pub(crate) course: Option<Course>,
}

/// A destination that outlives its request.
#[derive(Debug)]
pub(crate) struct OwnedDestination {
    realm: Realm,
    authority: Box<[u8]>,
    path: Box<[u8]>,
    to: To,
    course: Option<Course>,
}

impl Destination<'_> {
    /// The `Host` that the upstream gets.
    pub(crate) fn host(&self) -> &[u8] {
        match &self.to {
            To::Group(group, ..) => group.host(self.authority),
            To::Addresses(..) => self.authority,
        }
    }

    /// What the server of the response was.
    pub(crate) fn hierarchy(&self) -> Hierarchy {
        self.course.as_ref().map_or(Hierarchy::Direct, |course| course.used.get())
    }

    pub(crate) fn detach(&self) -> OwnedDestination {
        OwnedDestination {
            realm: self.realm,
            authority: self.authority.into(),
            path: self.path.into(),
            to: self.to.clone(),
            course: self.course.clone(),
        }
    }
}

impl OwnedDestination {
    pub(crate) fn view(&self) -> Destination<'_> {
        Destination {
            realm: self.realm,
            authority: &self.authority,
            path: &self.path,
            to: self.to.clone(),
            course: self.course.clone(),
        }
    }
}
