//! Registered, changed, removed, closed and reused, with pending events.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use readiness::{Interest, Ready, Token};

use crate::world::{Got, World, token};

pub(crate) fn misuse_is_refused(world: &mut World) {
    let (a, b) = world.pair();
    let poller = world.poller();
    let kind = |result: std::io::Result<()>| result.map_err(|error| error.kind());
    assert_eq!(kind(poller.change(a, token(1), Interest::READ)), Err(ErrorKind::NotFound));
    assert_eq!(kind(poller.remove(a)), Err(ErrorKind::NotFound));
    assert_eq!(kind(poller.remove(-1)), Err(ErrorKind::NotFound));
    poller.register(a, token(1), Interest::READ).unwrap();
    let twice = poller.register(a, token(2), Interest::BOTH);
    assert_eq!(kind(twice), Err(ErrorKind::AlreadyExists));
    let negative = poller.register(-1, token(2), Interest::READ).unwrap_err();
    assert_eq!(negative.raw_os_error(), Some(libc::EBADF));
    // The registration is unchanged.
    world.write(b, 1);
    world.assert_delivered(&[(1, Ready::READABLE)]);
    world.remove(a);
    assert_eq!(kind(world.poller().remove(a)), Err(ErrorKind::NotFound));
}

pub(crate) fn a_descriptor_that_is_not_open(world: &mut World) {
    // No process here has so many descriptors, and no backend may allocate a table for this number.
    let refused = world.poller().register(i32::MAX - 1, token(1), Interest::READ).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
    let refused = world.poller().register(i32::MAX - 1, token(1), Interest::NONE).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
}

pub(crate) fn a_change_keeps_what_is_pending(world: &mut World) {
    let (a, b) = world.pair();
    world.register(a, 1, Interest::READ);
    world.assert_silent();
    world.write(b, 1);
    world.change(a, 1, Interest::BOTH);
    world.assert_delivered(&[(1, Ready::READABLE | Ready::WRITABLE)]);
    world.change(a, 1, Interest::WRITE);
    world.assert_delivered(&[(1, Ready::WRITABLE)]);
    world.change(a, 1, Interest::READ);
    world.change(a, 1, Interest::WRITE);
    world.change(a, 1, Interest::READ);
    world.assert_delivered(&[(1, Ready::READABLE)]);
}

pub(crate) fn a_new_token_replaces_the_old(world: &mut World) {
    let (a, b) = world.pair();
    world.register(a, 1, Interest::READ);
    world.assert_silent();
    world.write(b, 1);
    world.change(a, 2, Interest::READ);
    world.assert_delivered(&[(2, Ready::READABLE)]);
    world.change(a, 3, Interest::READ);
    world.assert_delivered(&[(3, Ready::READABLE)]);
}

/// {a,b}, {b}, {a}: what the first wait found ready and the second had no interest in, the third
/// must deliver.
pub(crate) fn a_small_wait_between_two_large_ones_loses_nothing(world: &mut World) {
    let ((a, a_peer), (b, b_peer)) = (world.pair(), world.pair());
    world.register(a, 1, Interest::READ);
    world.register(b, 2, Interest::READ);
    world.assert_silent();
    world.write(a_peer, 1);
    world.write(b_peer, 1);
    world.assert_delivered(&[(1, Ready::READABLE), (2, Ready::READABLE)]);

    world.change(a, 1, Interest::NONE);
    world.assert_delivered(&[(2, Ready::READABLE)]);

    world.change(a, 1, Interest::READ);
    world.change(b, 2, Interest::NONE);
    world.assert_delivered(&[(1, Ready::READABLE)]);
}

/// As above, but it becomes ready while there is no interest, during several waits.
pub(crate) fn an_interest_taken_away_and_given_back(world: &mut World) {
    let (a, a_peer) = world.pair();
    let (b, b_peer) = world.pair();
    world.register(a, 1, Interest::READ);
    world.register(b, 2, Interest::READ);
    world.assert_silent();
    world.change(a, 1, Interest::NONE);
    world.write(a_peer, 1);
    world.write(b_peer, 1);
    world.assert_delivered(&[(2, Ready::READABLE)]);
    world.drain(b);
    world.assert_silent();
    world.change(a, 1, Interest::BOTH);
    world.assert_delivered(&[(1, Ready::READABLE | Ready::WRITABLE)]);
    world.drain(a);
    world.assert_delivered(&[(1, Ready::WRITABLE)]);
}

pub(crate) fn a_removed_descriptor_is_silent(world: &mut World) {
    let ((a, a_peer), (b, b_peer)) = (world.pair(), world.pair());
    world.register(a, 1, Interest::BOTH);
    world.register(b, 2, Interest::READ);
    world.delivered();
    world.write(a_peer, 1);
    world.write(b_peer, 1);
    world.remove(a);
    world.assert_delivered(&[(2, Ready::READABLE)]);
    world.close(a_peer);
    world.assert_delivered(&[(2, Ready::READABLE)]);
    world.remove(b);
    world.assert_silent();
}

pub(crate) fn removed_while_its_event_found_no_room(world: &mut World) {
    let sources: Vec<_> = (0..8).map(|_| world.source()).collect();
    for (slot, &source) in (0..).zip(&sources) {
        world.register(source, slot, Interest::READ);
    }
    world.assert_silent();
    sources.iter().for_each(|&source| world.raise(source));
    world.set_capacity(1);
    let first = world.delivered();
    assert_eq!(first.len(), 1);
    for (slot, &source) in (0..).zip(&sources) {
        if !first.contains_key(&token(slot)) {
            world.remove(source);
        }
    }
    world.set_capacity(100);
    for _ in 0..3 {
        assert_eq!(world.delivered(), first);
    }
}

pub(crate) fn a_reused_descriptor_never_gets_the_old_event(world: &mut World) {
    let (fd, peer) = world.pair();
    let (old, new) = (Token::new(1, 1), Token::new(1, 2));
    world.poller().register(fd, old, Interest::READ).unwrap();
    world.assert_silent();
    world.write(peer, 1);
    world.remove(fd);
    let new_peer = world.reopen(fd);
    world.poller().register(fd, new, Interest::READ).unwrap();
    world.assert_silent();
    world.write(new_peer, 1);
    assert_eq!(world.delivered(), BTreeMap::from([(new, Ready::READABLE)]));
}

/// The number passes from owner to owner, with each owner's event at every stage of delivery.
pub(crate) fn many_owners_of_one_number(world: &mut World) {
    let (fd, mut peer) = world.pair();
    for generation in 0..50 {
        let owner = Token::new(1, generation);
        let interest = if generation % 3 == 0 { Interest::READ } else { Interest::BOTH };
        world.poller().register(fd, owner, interest).unwrap();
        if generation % 2 == 0 {
            assert!(world.delivered().keys().all(|delivered| *delivered == owner));
        }
        world.write(peer, 1);
        if generation % 5 == 0 {
            assert!(world.delivered()[&owner].has(Ready::READABLE));
        }
        world.remove(fd);
        if generation % 7 == 0 {
            world.assert_silent();
        }
        let old_peer = std::mem::replace(&mut peer, world.reopen(fd));
        world.close(old_peer);
    }
    world.assert_silent();
}

/// No backend holds on to the file: the peer sees the end without another wait.
pub(crate) fn closing_after_removal_closes_at_once(world: &mut World) {
    let (a, b) = world.pair();
    world.register(a, 1, Interest::READ);
    world.assert_silent();
    world.remove(a);
    world.close(a);
    assert_eq!(world.read(b, 1), Got::End);
}

pub(crate) fn closing_after_the_poller_is_gone_closes(world: &mut World) {
    let (a, b) = world.pair();
    // Neither is ready, so both are pending in the kernel when the poller is dropped.
    world.register(a, 1, Interest::READ);
    world.register(b, 2, Interest::READ);
    world.assert_silent();
    world.drop_poller();
    world.close(a);
    assert_eq!(world.read(b, 1), Got::End);
}
