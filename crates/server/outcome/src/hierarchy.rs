//! Where a response came from, if not from the store: Squid's codes.

/// The source of a response, and how it was chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hierarchy {
    /// The origin, or the upstream of a reverse listener.
    #[default]
    Direct,
    /// The only parent.
    FirstUpParent,
    /// A parent, in turn.
    RoundRobinParent,
    /// A parent, by its load or by our hash of the URL.
    AnyParent,
    /// A sibling that said that it has the response.
    SiblingHit,
    /// A parent that said so.
    ParentHit,
    /// A sibling whose digest has the URL.
    DigestSiblingHit,
    /// A parent whose digest has the URL.
    DigestParentHit,
    /// A parent, by the Cache Array Routing Protocol.
    Carp,
}

impl Hierarchy {
    /// Squid's code.
    pub fn code(self) -> &'static str {
        match self {
            Hierarchy::Direct => "HIER_DIRECT",
            Hierarchy::FirstUpParent => "FIRSTUP_PARENT",
            Hierarchy::RoundRobinParent => "ROUNDROBIN_PARENT",
            Hierarchy::AnyParent => "ANY_OLD_PARENT",
            Hierarchy::SiblingHit => "SIBLING_HIT",
            Hierarchy::ParentHit => "PARENT_HIT",
            Hierarchy::DigestSiblingHit => "CD_SIBLING_HIT",
            Hierarchy::DigestParentHit => "CD_PARENT_HIT",
            Hierarchy::Carp => "CARP",
        }
    }
}
