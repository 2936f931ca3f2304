//! May a response take the place of a stored one? One rule, for every insertion into a store.
//!
//! Fetches of one URI overlap, responses arrive out of order, and bodies break off. So the response
//! that arrives last is not always the best one. [`may_replace`] decides from facts about both
//! responses. It does not decide whether a response may be stored at all: that is
//! [`crate::may_store`].
//!
//! What never happens: a part, or an error of the origin, takes the place of a whole response that
//! may still be used; an older response takes the place of a newer one.

use crate::freshness::Freshness;
use crate::storing::{STALE_WHEN_UNREACHABLE_MS, StoredMeta};

/// The facts about a response by which [`may_replace`] decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edition {
    /// `Date`, in unix milliseconds of the origin's clock. If there was none, the second in which
    /// the request was sent: a response that took long is not newer for that.
    pub date_ms: u64,
    /// When its request was sent: unix milliseconds.
    pub requested_ms: u64,
    /// It is the whole response, not a part.
    pub is_whole: bool,
    /// Some client may still be served from it: see [`StoredMeta::is_usable`].
    pub is_usable: bool,
    /// Its request was sent before a purge that concerns it.
    pub is_purged: bool,
    /// It says that the origin has failed: 5xx.
    pub is_error: bool,
}

impl Edition {
    /// Of a response that no purge concerns.
    #[must_use]
    pub fn of(meta: &StoredMeta, is_whole: bool, now_ms: u64) -> Edition {
        let Freshness { date_value_ms, response_ms, .. } = meta.freshness;
        // Without `Date`, the time of receipt takes its place.
        let is_dated = date_value_ms != response_ms;
        let second_ms = meta.requested_ms - meta.requested_ms % 1000;
        Edition {
            date_ms: if is_dated { date_value_ms } else { second_ms },
            requested_ms: meta.requested_ms,
            is_whole,
            is_usable: meta.is_usable(now_ms),
            is_purged: false,
            is_error: meta.status >= 500,
        }
    }
}

/// The order of two fetches of one URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetches {
    /// The fetch of the new response began after the stored response was stored.
    OneAfterTheOther,
    /// The stored response was stored while the fetch of the new response was in flight.
    Overlap,
}

/// Why a stored response stays and the new response is not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kept {
    /// The new response is a part, and the stored response is whole and usable.
    PartOfUsable,
    /// The new response is an error of the origin, which has a lifetime, and the stored response is
    /// none and is usable.
    ErrorOverUsable,
    /// The new response is older (RFC 9111, 4: the most recent response by `Date` is used).
    Older,
    /// A purge concerns the new response and not the stored one.
    Purged,
}

/// Whether `new` may take the place of `stored`. Of fetches that overlap, the later `Date` counts,
/// then the later request. If both are equal, `new` replaces `stored`: it arrived later.
///
/// # Errors
/// The stored response stays, for this reason.
pub fn may_replace(stored: &Edition, new: &Edition, fetches: Fetches) -> Result<(), Kept> {
    if fetches == Fetches::Overlap {
        if new.is_purged && !stored.is_purged && !planted::is(planted::Bug::PurgedOverNewer) {
            return Err(Kept::Purged);
        }
        // The purge that concerns the stored response makes the new response the newer one.
        let is_decided = stored.is_purged && !new.is_purged;
        let of = |edition: &Edition| (edition.date_ms, edition.requested_ms);
        if !is_decided && of(new) < of(stored) && !planted::is(planted::Bug::OlderOverNewer) {
            return Err(Kept::Older);
        }
    }
    let is_usable_whole = stored.is_whole && stored.is_usable;
    // Of fetches that overlap, the newer counts: an order that errors come last in would be none.
    let is_later = fetches == Fetches::OneAfterTheOther;
    if is_later && new.is_error && !stored.is_error && is_usable_whole {
        return Err(Kept::ErrorOverUsable);
    }
    let is_part_of_usable = !new.is_whole && is_usable_whole;
    if is_part_of_usable && !planted::is(planted::Bug::PartOverWhole) {
        return Err(Kept::PartOfUsable);
    }
    Ok(())
}

impl StoredMeta {
    /// Whether some client may still be served from this response without the consent of the
    /// origin: it is fresh, or a rule allows its stale use (RFC 5861; RFC 9111, 4.2.4).
    #[must_use]
    pub fn is_usable(&self, now_ms: u64) -> bool {
        if self.no_cache {
            return false;
        }
        if self.freshness.is_fresh(now_ms) {
            return true;
        }
        if self.never_stale.is_some() {
            return false;
        }
        let if_error_ms = self.stale_if_error_ms.unwrap_or(STALE_WHEN_UNREACHABLE_MS);
        let longest_ms = if_error_ms.max(self.stale_while_revalidate_ms.unwrap_or(0));
        self.freshness.staleness_ms(now_ms) <= longest_ms
    }
}

#[cfg(test)]
mod tests;
