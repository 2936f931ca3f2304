//! Thousands of descriptors: numbers beyond 1,024, more events than room, more completions than a
//! ring holds.

use std::collections::BTreeSet;
use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use readiness::{Interest, Ready};

use crate::world::{World, descriptor_limit, token};

/// More than the completions that our io_uring holds (4,096).
const MANY: usize = 6_000;

/// All tests are one process, and a process has its limit: one such case at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn many_sources(world: &mut World) -> Vec<RawFd> {
    let room = descriptor_limit() / 2;
    if room < MANY && !world.is_simulated() {
        eprintln!("only {room} descriptors instead of {MANY}: the limit of the process is low");
    }
    let sources: Vec<_> = (0..MANY.min(room)).map(|_| world.source()).collect();
    for (slot, &source) in (0..).zip(&sources) {
        world.register(source, slot, Interest::READ);
    }
    sources
}

/// Waits until several consecutive waits deliver no new slot.
fn all_delivered(world: &mut World) -> BTreeSet<u32> {
    let mut all = BTreeSet::new();
    let mut nothing_new = 0;
    while nothing_new < 20 {
        let before = all.len();
        all.extend(world.delivered().into_iter().map(|(token, ready)| {
            assert_eq!(ready, Ready::READABLE);
            token.slot()
        }));
        nothing_new = if all.len() == before { nothing_new + 1 } else { 0 };
    }
    all
}

pub(crate) fn thousands_ready_at_once(world: &mut World) {
    let _alone = alone();
    let sources = many_sources(world);
    world.assert_silent();
    sources.iter().for_each(|&source| world.raise(source));
    assert!(all_delivered(world).into_iter().eq(0..sources.len() as u32));
    world.set_capacity(MANY);
    while world.delivered().len() < sources.len() {}
    sources.iter().for_each(|&source| world.lower(source));
    // Pending events may be delivered once more.
    while !world.delivered().is_empty() {}
    world.assert_silent();
    world.raise(sources[0]);
    world.assert_delivered(&[(0, Ready::READABLE)]);
}

pub(crate) fn few_among_thousands(world: &mut World) {
    let _alone = alone();
    let sources = many_sources(world);
    world.assert_silent();
    for round in 0..10 {
        let hot: Vec<usize> = (round..sources.len()).step_by(577 + round).collect();
        hot.iter().for_each(|&at| world.raise(sources[at]));
        let expected: Vec<_> = hot.iter().map(|&at| (at as u32, Ready::READABLE)).collect();
        world.assert_delivered(&expected);
        world.assert_delivered(&expected);
        hot.iter().for_each(|&at| world.lower(sources[at]));
        world.assert_silent();
    }
}

pub(crate) fn thousands_come_and_go(world: &mut World) {
    let _alone = alone();
    let sources = many_sources(world);
    sources.iter().for_each(|&source| world.raise(source));
    world.delivered();
    // Every other one is removed, delivered or not; the rest remains, as do those that come back.
    for &source in sources.iter().step_by(2) {
        world.remove(source);
    }
    let odd: BTreeSet<u32> = (0..sources.len() as u32).filter(|slot| slot % 2 == 1).collect();
    assert_eq!(all_delivered(world), odd);
    for (slot, &source) in (0..).zip(&sources).step_by(4) {
        world.register(source, slot, Interest::READ);
    }
    let back = (0..sources.len() as u32).filter(|slot| slot % 2 == 1 || slot % 4 == 0);
    assert!(all_delivered(world).into_iter().eq(back));
}

pub(crate) fn no_descriptor_starves(world: &mut World) {
    const READY: u32 = 150;
    let sources: Vec<_> = (0..READY).map(|_| world.source()).collect();
    for (slot, &source) in (0..).zip(&sources) {
        world.register(source, slot, Interest::READ);
        world.raise(source);
    }
    world.set_capacity(4);
    let mut waiting: BTreeSet<_> = (0..READY).map(token).collect();
    let mut waits = 0;
    while !waiting.is_empty() {
        waits += 1;
        assert!(waits <= READY, "passed over: {waiting:?}");
        for delivered in world.delivered().keys() {
            waiting.remove(delivered);
        }
    }
}
