//! Models of what cores do to one URI at once: loom runs them in every order. What is no mutex, and
//! no atomic of `runtime::sync::primitives`, happens at one instant here.

use std::sync::Arc;

use runtime::sync::primitives::AtomicU64;
use runtime::sync::primitives::loom::{self, thread};
use runtime::time::Instant;
use std::sync::atomic::Ordering;
use store::Concerns;

use crate::limits::PURGE_RECORDS_KEPT;
use crate::samples::{cache, response, uri};
use crate::stored::Entry;
use crate::variants::Place;
use crate::{Cache, Look};

fn status_of(entry: &Entry) -> u16 {
    match entry {
        Entry::Response(stored) => stored.head.status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn no_response_from_before_an_acknowledged_change_is_stored_after_it() {
    loom::model(|| {
        let (cache, key) = cache();
        let origin = Arc::new(AtomicU64::new(200));
        let changing = thread::spawn({
            let (cache, origin) = (Arc::clone(&cache), Arc::clone(&origin));
            move || {
                origin.store(203, Ordering::Relaxed);
                drop(cache.invalidate(uri(), None, true));
            }
        });
        let watch = cache.watches.watch(key);
        let brought = origin.load(Ordering::Relaxed) as u16;
        cache.insert(&watch, &Place::known(key, key), response(brought, 0));
        changing.join().unwrap();
        assert!(cache.store.peek(&key).is_none_or(|there| status_of(&there) == 203));
    });
}

/// The request takes a stamp and watches the URI only when its answer can be stored.
#[test]
fn a_stamp_shows_each_change_that_its_request_may_not_have_seen() {
    loom::model(|| {
        let (cache, key) = cache();
        let origin = Arc::new(AtomicU64::new(200));
        let changing = thread::spawn({
            let (cache, origin) = (Arc::clone(&cache), Arc::clone(&origin));
            move || {
                origin.store(203, Ordering::Relaxed);
                cache.watches.change(&key);
                cache.store.remove(&key);
            }
        });
        let stamp = cache.watches.stamp(&key);
        let brought = origin.load(Ordering::Relaxed) as u16;
        if let Some((watch, _)) = cache.watches.watch_since(key, stamp) {
            cache.insert(&watch, &Place::known(key, key), response(brought, 0));
        }
        changing.join().unwrap();
        assert!(cache.store.peek(&key).is_none_or(|there| status_of(&there) == 203));
    });
}

/// A client that was served the newer response must not get an older one from a fetch that it
/// joins. The note was made after the response could be found.
#[test]
fn a_fetch_is_outrun_before_the_newer_response_can_be_found() {
    loom::model(|| {
        let (cache, key) = cache();
        let (early, late) = (cache.watches.watch(key), cache.watches.watch(key));
        let storing = thread::spawn({
            let cache = Arc::clone(&cache);
            move || cache.insert(&late, &Place::known(key, key), response(200, 0))
        });
        if cache.store.peek(&key).is_some() {
            assert!(early.is_outrun(&key, || None));
        }
        assert!(storing.join().unwrap());
    });
}

/// Both passes of a sweep.
fn sweep_whole(cache: &Cache) {
    cache.sweep_purged(Instant::from_ns(0));
    cache.sweep_purged(Instant::from_ns(0) + PURGE_RECORDS_KEPT);
}

/// A purge while a response is stored and a sweep drops the records of purges.
#[test]
fn no_response_from_before_a_purge_is_found_after_it() {
    loom::model(|| {
        let (cache, key) = cache();
        let began = cache.purges.now();
        cache.purges.purge(Concerns::Url(b"h/other"), false, 0);
        let purging = thread::spawn({
            let cache = Arc::clone(&cache);
            move || drop(cache.purge(Concerns::Url(&uri().url()), false, 0))
        });
        let sweeping = thread::spawn({
            let cache = Arc::clone(&cache);
            move || sweep_whole(&cache)
        });
        let watch = cache.watches.watch(key);
        cache.insert(&watch, &Place::known(key, key), response(200, began));
        purging.join().unwrap();
        let found = cache.store.peek(&key).map(|there| match there {
            Entry::Response(stored) => cache.judged(Look::Peek, key, stored),
            other => panic!("{other:?}"),
        });
        assert!(found.flatten().is_none());
        sweeping.join().unwrap();
    });
}

/// A sweep ends while a purge that concerns another URL comes: no response is lost.
#[test]
fn a_sweep_keeps_what_no_purge_concerns() {
    loom::model(|| {
        let (cache, key) = cache();
        let watch = cache.watches.watch(key);
        cache.insert(&watch, &Place::known(key, key), response(200, 0));
        cache.purges.purge(Concerns::Url(b"h/other"), false, 0);
        let purging = thread::spawn({
            let cache = Arc::clone(&cache);
            move || drop(cache.purge(Concerns::Url(b"h/third"), false, 0))
        });
        sweep_whole(&cache);
        let Some(Entry::Response(stored)) = cache.store.peek(&key) else { panic!("it is lost") };
        assert!(cache.judged(Look::Use, key, stored).is_some());
        purging.join().unwrap();
    });
}
