//! What single backends promise beyond the contract: how much they read.

use std::time::Duration;

use readiness::{Counters, Interest, Kind, Ready};

use crate::world::{Got, World};

/// What one wait added to the counters.
fn spent(world: &mut World) -> Counters {
    let before = world.poller().counters();
    world.delivered();
    world.poller().counters() - before
}

/// (SEL − INTERESTED) ∪ (SEL ∩ HINTS) ∪ (SEL ∩ READY), counted.
#[test]
fn scalable_select_probes_exactly_the_checked() {
    let world = &mut World::open(Kind::ScalableSelect).unwrap();
    let pairs: Vec<_> = (0..100).map(|_| world.pair()).collect();
    for (slot, (fd, _)) in (0..).zip(&pairs) {
        world.register(*fd, slot, Interest::READ);
    }
    assert_eq!(spent(world).probes, 100, "every new descriptor is probed");
    assert_eq!(spent(world).probes, 0, "nothing happened since");

    let (hot, hot_peer) = pairs[3];
    world.write(hot_peer, 10);
    assert_eq!(spent(world).probes, 1, "one is hinted");
    assert_eq!(spent(world).probes, 1, "it is ready and unread, so it is probed again");
    world.read(hot, 5);
    assert_eq!(spent(world).probes, 1, "so it is after a short read");
    world.assert_delivered(&[(3, Ready::READABLE)]);
    world.drain(hot);
    let last = spent(world);
    assert_eq!((last.probes, last.events), (1, 0), "it was ready when last looked at");
    assert_eq!(spent(world).probes, 0, "it no longer is");

    world.write(hot_peer, 1);
    world.write(pairs[64].1, 1);
    let both = spent(world);
    assert_eq!((both.probes, both.events), (2, 2), "one probe each, in one system call");

    world.change(hot, 3, Interest::NONE);
    assert_eq!(spent(world).probes, 1, "what is not selected is not probed");
    world.change(hot, 3, Interest::READ);
    assert_eq!(spent(world).probes, 2, "it is still in READY");

    world.remove(hot);
    world.remove(pairs[64].0);
    assert_eq!(spent(world).probes, 0, "a removed descriptor has left all sets");
}

#[test]
fn scalable_select_scans_words_not_descriptors() {
    let world = &mut World::open(Kind::ScalableSelect).unwrap();
    let sources: Vec<_> = (0..2_000).map(|_| world.source()).collect();
    for (slot, &source) in (0..).zip(&sources) {
        world.register(source, slot, Interest::READ);
    }
    world.assert_silent();
    world.raise(sources[1_000]);
    spent(world);
    let words = spent(world).bitmap_words;
    let highest = *sources.iter().max().unwrap() as u64;
    assert!(words <= highest / 4096 + 1 + 2 * 8, "{words} words for one hot descriptor");
}

#[test]
fn stateless_backends_look_at_all() {
    for kind in [Kind::Select, Kind::Poll] {
        let world = &mut World::open(kind).unwrap();
        for slot in 0..100 {
            let source = world.source();
            world.register(source, slot, if slot < 80 { Interest::READ } else { Interest::NONE });
        }
        let shown = if kind == Kind::Poll { 100 } else { 80 };
        assert_eq!(spent(world).probes, shown, "{kind}");
    }
}

/// A connection that reads, answers and waits again pays its share of one call, and no other.
#[test]
fn a_wait_is_one_system_call() {
    for kind in [Kind::Select, Kind::Poll, Kind::Epoll, Kind::IoUring] {
        let Some(mut world) = World::open(kind) else { continue };
        let pairs: Vec<_> = (0..10).map(|_| world.pair()).collect();
        for (slot, (fd, _)) in (0..).zip(&pairs) {
            world.register(*fd, slot, Interest::READ);
        }
        world.delivered();
        for _ in 0..5 {
            pairs.iter().for_each(|(_, peer)| assert_eq!(world.write(*peer, 1), 1));
            let spent = spent(&mut world);
            assert_eq!((spent.syscalls, spent.events), (1, 10), "{kind}");
            pairs.iter().for_each(|(fd, _)| assert_eq!(world.drain(*fd), Got::Nothing));
            world.assert_silent();
        }
    }
}

#[test]
fn scan_time_is_for_scalable_select_and_leaves_no_trace() {
    let world = &mut World::open(Kind::ScalableSelect).unwrap();
    let (a, b) = world.pair();
    world.register(a, 1, Interest::READ);
    world.write(b, 1);
    let before = world.poller().counters();
    assert!(world.poller().scan_time(10).is_some());
    assert_eq!(world.poller().counters(), before);
    world.assert_delivered(&[(1, Ready::READABLE)]);
    let world = &mut World::open(Kind::Epoll).unwrap();
    assert_eq!(world.poller().scan_time(10), None::<Duration>);
}
