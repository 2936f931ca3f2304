//! The queue of forms, without the tasks that take from it; and the memory of their jobs.

use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Wake, Waker};

use caching::{Exchange, Policy, Response, StoredMeta};
use coding::rules::Source;
use coding::{Coding, Level, Types};
use config::{Config, Role};
use http1::Scheme;

use super::*;
use crate::key::StoredUri;
use crate::limits::FORM_WAITERS_MAX;
use crate::purge::Resource;
use crate::realm::Realm;
use crate::stored::{Head, Wire};

const GZIP: Target = Target(Some(Coding::Gzip));
const BROTLI: Target = Target(Some(Coding::Brotli));
const REALM: Realm = Realm { role: Role::Reverse, scheme: Scheme::Http };

fn rules(jobs_max: usize, queue_max: usize) -> Rules {
    Rules {
        codings: vec![Level { coding: Coding::Gzip, level: 1 }],
        types: Types::default(),
        bytes_min: 0,
        bytes_max: u64::MAX,
        tag: TagRule::Weak,
        jobs_max,
        queue_max,
    }
}

fn stored() -> Arc<Stored> {
    stored_as(Source::Identity, vec![b'x'; 900])
}

fn stored_as(source: Source, body: Vec<u8>) -> Arc<Stored> {
    let fields: &[(&[u8], &[u8])] = &[(b"Cache-Control", b"max-age=60")];
    let response = Response { status: 200, fields };
    let exchange = Exchange { request_ms: 1_000_000, response_ms: 1_000_000 };
    let meta = StoredMeta::of(&response, exchange, &Policy::SHARED);
    let resource = Resource::new(StoredUri::new(REALM, b"h", b"/"), fields.iter().copied(), 0);
    let head = Head::new(200, b"", fields.iter().copied(), meta, None, resource, None);
    let (text, mut scratch) = (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", http1::Scratch::new());
    let asked = http1::parse_request(text, &mut scratch, &http1::Limits::default());
    let request = Wire(asked.unwrap().unwrap().fields);
    let head = head.in_several_forms(source, &request);
    Arc::new(Stored::new(Arc::new(head), vec![Piece::from(body)]))
}

/// A cache whose only task is busy, so that all jobs wait.
fn busy() -> (Arc<Cache>, Key) {
    let config = Config { memory_bytes: 1 << 20, ..Config::forward(&[]) };
    let cache = Arc::new(Cache::new(&config, 1, None));
    cache.jobs.state().running = 1;
    let key = cache.uri_key(StoredUri::new(REALM, b"h", b"/"));
    (cache, key)
}

fn refused(cache: &Cache) -> u64 {
    cache.jobs.refused.load(Relaxed)
}

#[test]
fn a_full_queue_refuses_new_forms_and_not_those_that_are_in_it() {
    let (cache, key) = busy();
    let (rules, one, other) = (rules(1, 0), stored(), stored());
    for _ in 0..3 {
        assert!(cache.ask_for_form(key, &one, GZIP, &rules));
    }
    assert_eq!((refused(&cache), cache.jobs.state().waiting.len()), (0, 1));
    assert!(!cache.ask_for_form(key, &one, BROTLI, &rules));
    assert!(!cache.ask_for_form(key, &other, GZIP, &rules));
    assert_eq!((refused(&cache), cache.jobs.state().waiting.len()), (2, 1));
    let taken = cache.jobs.state().waiting.pop_front();
    assert!(!cache.ask_for_form(key, &other, GZIP, &rules), "it has begun and not ended");
    drop(taken);
    assert!(cache.ask_for_form(key, &other, GZIP, &rules), "there is room again");
    assert!(!other.forms().unwrap().is_being_made(BROTLI), "what was refused may be asked for");
}

/// A client waits for it, and for none of the others.
#[test]
fn a_form_to_decode_does_not_wait_for_those_to_encode() {
    let (cache, key) = busy();
    let (one, other, rules) = (stored(), stored(), rules(1, 9));
    for (of, target) in [(&one, GZIP), (&one, BROTLI), (&other, Target(None)), (&other, GZIP)] {
        assert!(cache.ask_for_form(key, of, target, &rules));
    }
    let state = cache.jobs.state();
    let order: Vec<_> = state.waiting.iter().map(|job| job.started.target).collect();
    assert_eq!(order, [Target(None), GZIP, BROTLI, GZIP]);
}

const GZIPPED: Source = Source::Coded(Coding::Gzip);

/// The form of the stored response, after all jobs have been run in a cache that has so many bytes
/// for bodies that arrive, and how many forms were refused.
fn made_with(room: u64, source: Source, body: Vec<u8>, target: Target) -> (Made<Stored>, u64) {
    let config = Config { memory_bytes: 16 << 20, ..Config::forward(&[]) };
    let cache = Arc::new(Cache::new(&config, 1, None));
    let used = cache.arriving_bytes_max - room;
    assert!(cache.take_arriving(used));
    let key = cache.uri_key(StoredUri::new(REALM, b"h", b"/"));
    let one = stored_as(source, body);
    cache.store.insert(key, Entry::Response(Arc::clone(&one)), 1000).unwrap();
    let mut runtime = runtime::Runtime::simulated(runtime::sim::Options::new(1));
    runtime.block_on(async {
        cache.ask_for_form(key, &one, target, &rules(1, 0));
        one.forms().unwrap().making().ended(target).await;
    });
    assert_eq!(cache.arriving_bytes.load(Relaxed), used, "all of it is given back");
    let Some(Entry::Response(now)) = cache.store.peek(&key) else { panic!("it is gone") };
    (now.forms().unwrap().get(target).clone(), refused(&cache))
}

#[test]
fn a_form_takes_no_memory_beyond_that_of_bodies_that_arrive() {
    let zeros = vec![0; 100_000];
    let coded = coding::encode(Coding::Gzip, 9, &[&zeros], 1000).unwrap();
    assert!(coded.len() < 500);
    // It is as long as two copies of the body, at most, while it is made.
    let (made, refused) = made_with(250_000, GZIPPED, coded.clone(), Target(None));
    assert!(matches!(&made, Made::Form(form, _) if form.body_bytes == 100_000), "{made:?}");
    assert_eq!(refused, 0);
    // There is room for some of it, or for the whole and no copy. It may be asked for again.
    for room in [50_000, 150_000] {
        let (made, refused) = made_with(room, GZIPPED, coded.clone(), Target(None));
        assert!(matches!((&made, refused), (Made::Not, 1)), "{room}: {made:?}, {refused}");
    }
    let (made, refused) = made_with(100_000, Source::Identity, zeros.clone(), GZIP);
    assert!(matches!((&made, refused), (Made::Form(..), 0)), "{made:?}, {refused}");
    let (made, refused) = made_with(50_000, Source::Identity, zeros, GZIP);
    assert!(matches!((&made, refused), (Made::Not, 1)), "{made:?}, {refused}");
}

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Flag>) {
        self.0.store(true, Relaxed);
    }
}

/// Polls once for the end of a form.
fn is_ended(stored: &Stored, waker: &Waker) -> bool {
    let ended = std::pin::pin!(stored.forms().unwrap().making().ended(GZIP));
    ended.poll(&mut Context::from_waker(waker)) == Poll::Ready(())
}

#[test]
fn jobs_are_not_lost_when_the_core_of_the_last_task_ends() {
    let (cache, key) = busy();
    let one = stored();
    assert!(cache.ask_for_form(key, &one, GZIP, &rules(1, 9)));
    let flag = Arc::new(Flag(AtomicBool::new(false)));
    assert!(!is_ended(&one, &Waker::from(Arc::clone(&flag))));
    drop(Running { cache: Arc::clone(&cache), is_counted: true });
    assert!(flag.0.load(Relaxed) && is_ended(&one, Waker::noop()));
    assert_eq!((cache.jobs.state().running, cache.jobs.unfinished.load(Relaxed)), (0, 0));
    // While another task is left, it takes them.
    cache.jobs.state().running = 2;
    assert!(cache.ask_for_form(key, &one, GZIP, &rules(2, 9)));
    drop(Running { cache: Arc::clone(&cache), is_counted: true });
    assert_eq!(cache.jobs.state().waiting.len(), 1);
}

#[test]
fn a_form_keeps_one_waker_for_each_request_and_no_more_than_its_limit() {
    let (cache, key) = busy();
    let one = stored();
    assert!(cache.ask_for_form(key, &one, GZIP, &rules(1, 9)));
    let waker = || Waker::from(Arc::new(Flag(AtomicBool::new(false))));
    let first = waker();
    for _ in 0..2 * FORM_WAITERS_MAX {
        assert!(!is_ended(&one, &first));
    }
    for _ in 1..FORM_WAITERS_MAX {
        assert!(!is_ended(&one, &waker()));
    }
    assert!(is_ended(&one, &waker()), "one more does not wait");
    assert!(!is_ended(&one, &first), "it waits already");
}
