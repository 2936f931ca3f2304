//! Purges while other cores look responses up: loom runs each model in every order.

use std::sync::Arc;

use runtime::sync::primitives::loom::{self, thread};

use super::*;

fn known(url: &'static [u8]) -> Known<'static> {
    Known { url, tags: b"", more_tags: false }
}

/// Purges `h/a` on another core.
fn purging(purges: &Arc<Purges>) -> thread::JoinHandle<Mark> {
    let purges = Arc::clone(purges);
    thread::spawn(move || purges.purge(Concerns::Url(b"h/a"), false, 0))
}

fn purges() -> Arc<Purges> {
    Arc::new(Purges::new(KeyHasher::seeded(3, 4)))
}

#[test]
fn a_core_that_sees_the_new_count_finds_the_record() {
    loom::model(|| {
        let purges = purges();
        let reader = Arc::clone(&purges);
        let reading = thread::spawn(move || {
            reader.now() == 0 || reader.judge(known(b"h/a"), 0).0 == Verdict::Gone
        });
        purges.purge(Concerns::Url(b"h/a"), false, 0);
        assert!(reading.join().unwrap());
    });
}

#[test]
fn a_verdict_holds_up_to_its_generation_and_no_further() {
    loom::model(|| {
        let purges = purges();
        let purging = purging(&purges);
        let (verdict, up_to) = purges.judge(known(b"h/a"), 0);
        purging.join().unwrap();
        if verdict == Verdict::Good {
            assert_eq!(purges.judge(known(b"h/a"), up_to).0, Verdict::Gone);
        }
    });
}

#[test]
fn two_purges_have_two_generations_and_both_count() {
    loom::model(|| {
        let purges = purges();
        let purging = purging(&purges);
        let own = purges.purge(Concerns::Url(b"h/b"), false, 0);
        let other = purging.join().unwrap();
        assert_eq!(own.generation + other.generation, 3);
        assert_eq!(purges.judge(known(b"h/b"), own.generation - 1).0, Verdict::Gone);
        assert_eq!(purges.judge(known(b"h/a"), other.generation - 1).0, Verdict::Gone);
    });
}

/// What was judged in a sweep neither outlives a purge that came meanwhile nor counts as purged.
#[test]
fn a_sweep_drops_no_record_of_a_purge_that_came_meanwhile() {
    loom::model(|| {
        let purges = purges();
        purges.purge(Concerns::Url(b"h/other"), false, 0);
        let purging = purging(&purges);
        let sweep = purges.begin_sweep().expect("there is a record");
        let (verdict, up_to) = purges.judge(known(b"h/a"), 0);
        let (kept, kept_up_to) = purges.judge(known(b"h/b"), 0);
        purges.end_sweep(sweep);
        purging.join().unwrap();
        if verdict == Verdict::Good {
            assert_eq!(purges.judge(known(b"h/a"), up_to).0, Verdict::Gone);
        }
        assert_eq!(kept, Verdict::Good);
        assert_eq!(purges.judge(known(b"h/b"), kept_up_to).0, Verdict::Good);
    });
}

/// A store that is opened again advances the generations of the purges that go on meanwhile.
#[test]
fn a_purge_does_not_take_the_generations_back() {
    loom::model(|| {
        let purges = purges();
        let purging = purging(&purges);
        purges.advance_to(7);
        let mark = purging.join().unwrap();
        assert_eq!(purges.now(), mark.generation.max(7));
    });
}
