//! Purging and invalidating a URL in all forms that a response to it may be stored under.
//!
//! The settings of a route change the path and query under which a response is stored
//! ([`crate::key`]). If routes have conditions, requests for one URL take several routes. A
//! response can also be stored as it was requested, from before a change of the settings. So
//! whatever removes a URL removes all of these.

use std::borrow::Cow;

use store::{Concerns, Mark};

use crate::Cache;
use crate::changes::Changes;
use crate::key::StoredUri;
use crate::lookup::Own;
use crate::realm::Realm;

/// The path and query of a URL as its routes store it and, if that is another, as it was requested.
#[derive(Clone, Copy, Debug)]
pub struct Paths<'p> {
    stored: &'p [Cow<'p, [u8]>],
    requested: Option<&'p [u8]>,
}

impl<'p> Paths<'p> {
    /// Of one URL.
    pub fn new(requested: &'p [u8], stored: &'p [Cow<'p, [u8]>]) -> Paths<'p> {
        let is_other = stored.iter().all(|path| **path != *requested);
        Paths { stored, requested: is_other.then_some(requested) }
    }

    /// Each of them, those that are stored first.
    pub fn each(self) -> impl Iterator<Item = &'p [u8]> {
        self.stored.iter().map(|path| &**path).chain(self.requested)
    }
}

impl Cache {
    /// [`Cache::purge`] of a URL. Its authority is as in keys. Returns the mark of the last purge.
    pub fn purge_url(
        &self,
        authority: &[u8],
        paths: Paths<'_>,
        soft: bool,
        now_ms: u64,
    ) -> (Mark, Changes) {
        let paths = match paths.requested {
            Some(_) if planted::is(planted::Bug::PurgeAsRequested) => {
                Paths { stored: &[], ..paths }
            }
            _ => paths,
        };
        let mut changes = Changes::default();
        let mut last = None;
        for path in paths.each() {
            let url = [authority, path].concat();
            let (mark, made) = self.purge(Concerns::Url(&url), soft, now_ms);
            changes.push(made);
            last = Some(mark);
        }
        (last.expect("a URL is stored under a path"), changes)
    }

    /// [`Cache::invalidate`] of a URL. `own` belongs to the first of its paths.
    pub fn invalidate_url(
        &self,
        realm: Realm,
        authority: &[u8],
        paths: Paths<'_>,
        mut own: Option<Own<'_>>,
        peers_know: bool,
    ) -> Changes {
        let invalidated =
            |path| self.invalidate(StoredUri::new(realm, authority, path), own.take(), peers_know);
        paths.each().map(invalidated).collect()
    }
}

#[cfg(test)]
mod tests {
    use config::Role;
    use http1::Scheme;

    use super::*;
    use crate::stored::Entry;

    #[test]
    fn a_change_removes_both_forms_and_no_other() {
        let config = config::Config::reverse(Vec::<config::Origin>::new(), &[]);
        let cache = Cache::new(&config, 1, None);
        let realm = Realm { role: Role::Reverse, scheme: Scheme::Http };
        let key = |path: &[u8]| cache.uri_key(StoredUri::new(realm, b"h", path));
        let entry = Entry::Uncacheable { until_ms: u64::MAX, since: 0 };
        let paths: [&[u8]; 3] = [b"/?b&a", b"/?a&b", b"/"];
        for path in paths {
            let key = key(path);
            cache.insert_now(key, entry.clone());
        }
        let mut own = cache.watches.watch(key(paths[1]));
        let other = cache.watches.watch(key(paths[0]));
        let stored = [Cow::Borrowed(paths[1])];
        let both = Paths::new(paths[0], &stored);
        drop(cache.invalidate_url(
            realm,
            b"H",
            both,
            Some(Own { key: key(paths[1]), watch: Some(&mut own) }),
            true,
        ));
        assert!(!own.is_overtaken() && other.is_overtaken());
        let there = paths.map(|path| cache.store.peek(&key(path)).is_some());
        assert_eq!(there, [false, false, true]);
        let before = cache.purges.now();
        let (mark, _) = cache.purge_url(b"h", both, false, 1);
        assert_eq!((mark.generation, cache.purges.now()), (before + 2, before + 2));
        let root = [Cow::Borrowed(&b"/"[..])];
        let (mark, _) = cache.purge_url(b"h", Paths::new(b"/", &root), false, 1);
        assert_eq!(mark.generation, before + 3);
    }
}
