//! Bugs planted on purpose: each is a mistake that a cache can make, at the place where it would be
//! made, and the tests must find every one.
//!
//! Why: a suite that is green says little about what it would catch. `cargo xtask planted` builds
//! with the feature `switch`, lets the suites run once for each bug and fails if one of them is not
//! found.
//!
//! Without the feature [`is`] is a constant `false`: the compiler drops the question and what hangs
//! on it, so that a release has neither the bug nor the cost of asking. With it, the environment
//! variable `PLIMSOLL_PLANTED` names the one bug that is there.
//!
//! What never happens: a bug without a name in this list, or one in two places; `cargo xtask tidy`
//! holds that.

#![forbid(unsafe_code)]

macro_rules! bugs {
    ($($variant:ident = $name:literal, $what:literal;)*) => {
        /// One of the planted bugs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $(#[doc = $what] $variant,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &'static [Bug] = &[$(Bug::$variant,)*];

            /// What `PLIMSOLL_PLANTED` calls it.
            pub const fn name(self) -> &'static str {
                match self { $(Bug::$variant => $name,)* }
            }
        }
    };
}

// `xtask` reads these lines: one bug a line.
bugs! {
    KeyWithoutHost = "key-without-host", "a key of the store without the host";
    VaryIgnored = "vary-ignored", "a response that varies is stored as if it did not";
    CollapsedAcrossVary = "collapsed-across-vary", "who waits is given another's variant";
    HitLeavesBody = "hit-leaves-body", "a hit leaves the request's body on the connection";
    AgeTwice = "age-twice", "the age of a response is counted twice";
    HopByHopPassedOn = "hop-by-hop", "fields that Connection names are passed on";
    UpdateForgotten = "update-forgotten", "a 304 does not update what is stored";
    AuthorizationIgnored = "authorization", "a response to Authorization is stored";
    PrivateForOthers = "private", "a private response is given to those who waited for it";
    MustRevalidateIgnored = "must-revalidate", "must-revalidate is not heeded";
    NobodyInvalidated = "invalidation", "an unsafe method invalidates nothing";
    ChangeOvertaken = "overtaken", "what was asked for before a change is stored after it";
    OldestOfSeveral = "oldest-of-several", "of several that match, the oldest is served";
    LengthBesideEncoding = "length-beside-encoding", "a length beside chunks is not refused";
    ChunkEndUnchecked = "chunk-end", "what ends a chunk is not looked at";
    ShortBodyWhole = "short-body", "a body that was cut is taken for whole";
    BytesLeftOnPooled = "bytes-left", "a connection with bytes left on it is used again";
    UnaskedAnswer = "unasked-answer", "what came on an idle connection is taken for an answer";
    UnsafeRepeated = "unsafe-repeated", "a request that may not be repeated is";
    StoreOverBound = "store-over-bound", "the store does not make room for what it takes";
}

/// Whether this bug is there.
#[cfg(not(feature = "switch"))]
#[inline(always)]
pub const fn is(_bug: Bug) -> bool {
    false
}

/// Whether this bug is there.
#[cfg(feature = "switch")]
pub fn is(bug: Bug) -> bool {
    static PLANTED: std::sync::OnceLock<Option<Bug>> = std::sync::OnceLock::new();
    *PLANTED.get_or_init(asked_for) == Some(bug)
}

#[cfg(feature = "switch")]
fn asked_for() -> Option<Bug> {
    let name = std::env::var("PLIMSOLL_PLANTED").ok().filter(|name| !name.is_empty())?;
    let bug = Bug::ALL.iter().copied().find(|bug| bug.name() == name);
    Some(bug.unwrap_or_else(|| panic!("PLIMSOLL_PLANTED names no bug: {name:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<_> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Bug::ALL.len());
        assert!(names.len() >= 10);
    }

    #[cfg(not(feature = "switch"))]
    #[test]
    fn none_is_there_without_the_switch() {
        const NONE: bool = !is(Bug::KeyWithoutHost);
        assert!(NONE && Bug::ALL.iter().all(|&bug| !is(bug)));
    }
}
