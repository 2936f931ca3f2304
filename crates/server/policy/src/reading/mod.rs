//! The readings of a request's path and host: every path and host that an origin may read in them.
//!
//! What: origins parse paths differently. One origin takes `%2F` for a slash, another drops
//! `;parameters`, a third merges slashes or takes a backslash for a slash, and each resolves dot
//! segments before or after that step. A [`Reading`] has every path and every host that an origin
//! can read ([`path`], [`host`]). [`crate::routes`] judges each of them, so that no spelling is
//! treated more leniently than the path that an origin reads in it. The request is passed on
//! unchanged.
//!
//! Why one type: all code that grants, denies, stores or counts by path or host takes a `Reading`.
//! No other code compares paths and hosts with rules; `cargo xtask tidy` checks this.
//!
//! Nearly every request has one reading, which a scan finds without allocating. What never happens:
//! a client makes us compute more than [`crate::limits::READINGS_MAX`] readings.

pub(crate) mod host;
pub(crate) mod path;

use std::borrow::Cow;

/// A request's path and host, as rules take them. Costs nothing to make.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'r> {
    authority: &'r [u8],
    path_and_query: &'r [u8],
}

impl<'r> Reading<'r> {
    /// The reading of a request for this host, with or without a port, and this path with its
    /// query.
    #[inline]
    pub fn of(authority: &'r [u8], path_and_query: &'r [u8]) -> Reading<'r> {
        Reading { authority, path_and_query }
    }

    /// The path and query in origin form: an empty path is `/` (RFC 9110, 4.2.3).
    pub fn origin_form(&self) -> Cow<'r, [u8]> {
        match self.path_and_query {
            b"" => Cow::Borrowed(b"/"),
            query @ [b'?', ..] => Cow::Owned([b"/", query].concat()),
            path => Cow::Borrowed(path),
        }
    }

    /// The path, if it has only one reading.
    #[inline]
    pub(crate) fn only_path(&self) -> Option<&'r [u8]> {
        path::only(self.path_and_query).map(rooted)
    }

    /// The host, if it has only one reading.
    #[inline]
    pub(crate) fn only_host(&self) -> Option<&'r [u8]> {
        host::only(self.authority)
    }

    /// The host and the path in their most usual reading.
    pub(crate) fn usual(&self) -> (Cow<'r, [u8]>, Cow<'r, [u8]>) {
        let path = rooted(path::without_query(self.path_and_query));
        (host::usual(self.authority), path::normalised(path))
    }

    /// All readings of the path, the most usual first; `None` if there are more than a limit.
    pub(crate) fn paths(&self) -> Option<Vec<path::Read>> {
        path::all(rooted(path::without_query(self.path_and_query)))
    }

    /// All readings of the host, the most usual first.
    pub(crate) fn hosts(&self) -> Vec<Vec<u8>> {
        host::all(self.authority)
    }
}

/// An empty path is the path of the root. `*`, the server as a whole, takes the route of the root.
fn rooted(path: &[u8]) -> &[u8] {
    if matches!(path, b"" | b"*") { b"/" } else { path }
}

#[cfg(test)]
mod tests;
