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
use crate::realm::Realm;
use crate::stored::Resource;
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
        passed: false,
        passed_max: 1,
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
    let head = Head::new(200, b"", fields.iter().copied(), meta, resource);
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

/// A cache that has this response.
fn with(one: &Arc<Stored>) -> (Arc<Cache>, Key) {
    let config = Config { memory_bytes: 16 << 20, ..Config::forward(&[]) };
    let cache = Arc::new(Cache::new(&config, 1, None));
    let key = cache.uri_key(StoredUri::new(REALM, b"h", b"/"));
    cache.store.insert(key, Entry::Response(Arc::clone(one)), 1000).unwrap();
    (cache, key)
}

fn now(cache: &Cache, key: Key, target: Target) -> Made<Stored> {
    let Some(Entry::Response(now)) = cache.store.peek(&key) else { panic!("it is gone") };
    now.forms().unwrap().get(target).clone()
}

fn reserved(cache: &Cache) -> u64 {
    cache.jobs.reserved_bytes.load(Relaxed)
}

#[test]
fn forms_and_bodies_that_arrive_take_no_memory_from_each_other() {
    let zeros = vec![0; 100_000];
    let coded = coding::encode(Coding::Gzip, 9, &[&zeros], 1000).unwrap();
    for (source, body, target) in
        [(GZIPPED, coded, Target(None)), (Source::Identity, zeros.clone(), GZIP)]
    {
        let one = stored_as(source, body);
        let (cache, key) = with(&one);
        assert!(cache.take_arriving(cache.arriving_bytes_max) && !cache.take_arriving(1));
        runtime::Runtime::simulated(runtime::sim::Options::new(1)).block_on(async {
            assert!(cache.ask_for_form(key, &one, target, &rules(1, 0)));
            one.forms().unwrap().making().ended(target).await;
            time::sleep(std::time::Duration::from_secs(1)).await;
        });
        assert!(matches!(now(&cache, key, target), Made::Form(..)), "{target:?}");
        assert_eq!((refused(&cache), reserved(&cache)), (0, 0), "all of it is given back");
        cache.give_arriving(cache.arriving_bytes_max);
        let _all = Memory::reserve(&cache, cache.memory_object_bytes_max()).unwrap();
        assert!(Memory::reserve(&cache, 1).is_none(), "two bodies of the greatest length");
        assert!(cache.take_arriving(cache.arriving_bytes_max));
    }
}

/// Nothing is made before there is memory for all of it, however often it is asked for.
#[test]
fn a_form_without_memory_waits_and_is_made_once() {
    let one = stored_as(Source::Identity, vec![0; 100_000]);
    let (cache, key) = with(&one);
    let figures = || cache.jobs.figures();
    // A job of another core runs and has taken all but a part of what this one needs.
    cache.jobs.state().running = 1;
    let room = FORM_COPIES * 99_999 - 1;
    let other = Memory::reserve(&cache, cache.memory_object_bytes_max() - room.div_ceil(2));
    assert!(other.is_some());
    runtime::Runtime::simulated(runtime::sim::Options::new(1)).block_on(async {
        let pause = async || time::sleep(std::time::Duration::from_secs(1)).await;
        let _some = Memory::reserve(&cache, 1).unwrap();
        for _ in 0..3 {
            assert!(cache.ask_for_form(key, &one, GZIP, &rules(2, 9)));
            pause().await;
            assert_eq!(figures()[..6], [0; 6], "no codec has run");
            assert_eq!((figures()[6], cache.jobs.state().running), (1, 1));
        }
        // The other job ends, and its task takes this one.
        drop(other);
        runtime::spawn(Running { cache: Arc::clone(&cache), is_counted: true }.run()).detach();
        one.forms().unwrap().making().ended(GZIP).await;
        pause().await;
    });
    assert!(matches!(now(&cache, key, GZIP), Made::Form(..)));
    assert_eq!((figures()[0], figures()[2], figures()[6], reserved(&cache)), (1, 0, 0, 0));
}

/// A core has ended whose codec still runs on a thread of the pool: no task is left that would take
/// the job when it ends.
#[test]
fn a_form_without_memory_does_not_wait_for_ever() {
    let one = stored();
    let (cache, key) = with(&one);
    let _all = Memory::reserve(&cache, cache.memory_object_bytes_max()).unwrap();
    runtime::Runtime::simulated(runtime::sim::Options::new(1)).block_on(async {
        assert!(cache.ask_for_form(key, &one, GZIP, &rules(1, 9)));
        one.forms().unwrap().making().ended(GZIP).await;
        time::sleep(std::time::Duration::from_secs(1)).await;
    });
    assert!(matches!(now(&cache, key, GZIP), Made::Not), "it may be asked for again");
    assert_eq!((refused(&cache), cache.jobs.state().running), (1, 0));
}

/// The larger one is refused all the while, and takes nothing meanwhile.
#[test]
fn a_body_that_does_not_fit_takes_no_room_from_another() {
    let (cache, _) = busy();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                assert!(!cache.take_arriving(cache.arriving_bytes_max + 1));
            }
        });
        let fits = |_| {
            let fits = cache.take_arriving(9);
            cache.give_arriving(if fits { 9 } else { 0 });
            fits
        };
        let all_fit = (0..1_000_000).all(fits);
        done.store(true, Relaxed);
        assert!(all_fit);
    });
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
