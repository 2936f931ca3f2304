//! Events follow the interest, and repeat while the descriptor is ready.

use readiness::{Interest, Ready};

use crate::world::{Got, World};

pub(crate) fn read_is_delivered_until_drained(world: &mut World) {
    let (a, b) = world.pair();
    world.register(a, 1, Interest::READ);
    world.assert_silent();
    world.write(b, 10);
    for _ in 0..3 {
        world.assert_delivered(&[(1, Ready::READABLE)]);
    }
    assert_eq!(world.drain(a), Got::Nothing);
    world.assert_silent();
    world.write(b, 1);
    world.assert_delivered(&[(1, Ready::READABLE)]);
}

pub(crate) fn write_is_delivered_until_full_and_again_when_drained(world: &mut World) {
    let (a, b) = world.pair();
    world.register(a, 1, Interest::WRITE);
    for _ in 0..3 {
        world.assert_delivered(&[(1, Ready::WRITABLE)]);
    }
    world.fill(a);
    world.assert_silent();
    world.drain(b);
    world.assert_delivered(&[(1, Ready::WRITABLE)]);
}

pub(crate) fn directions_are_distinguished(world: &mut World) {
    let (a, b) = world.pair();
    world.register(a, 1, Interest::BOTH);
    world.assert_delivered(&[(1, Ready::WRITABLE)]);
    world.write(b, 10);
    world.assert_delivered(&[(1, Ready::READABLE | Ready::WRITABLE)]);
    world.fill(a);
    world.assert_delivered(&[(1, Ready::READABLE)]);
    world.drain(a);
    world.assert_silent();
    world.drain(b);
    world.assert_delivered(&[(1, Ready::WRITABLE)]);
}

pub(crate) fn a_direction_not_asked_for_is_not_delivered(world: &mut World) {
    let ((a, b), (c, d)) = (world.pair(), world.pair());
    world.register(a, 1, Interest::READ);
    world.register(c, 2, Interest::WRITE);
    world.write(d, 10);
    world.assert_delivered(&[(2, Ready::WRITABLE)]);
    world.write(b, 10);
    world.fill(c);
    world.assert_delivered(&[(1, Ready::READABLE)]);
}

pub(crate) fn a_short_read_is_delivered_again(world: &mut World) {
    let (a, b) = world.pair();
    world.register(a, 1, Interest::READ);
    world.write(b, 10);
    for left in (0..10).rev() {
        world.assert_delivered(&[(1, Ready::READABLE)]);
        assert_eq!(world.read(a, 1), Got::Bytes(1), "{left} bytes are left");
    }
    world.assert_silent();
}

pub(crate) fn without_interest_there_is_silence(world: &mut World) {
    let ((a, b), (c, d)) = (world.pair(), world.pair());
    world.register(a, 1, Interest::NONE);
    world.register(c, 2, Interest::BOTH);
    world.write(b, 10);
    world.assert_delivered(&[(2, Ready::WRITABLE)]);
    world.change(c, 2, Interest::NONE);
    world.assert_silent();
    world.close(b);
    world.close(d);
    world.assert_silent();
    world.change(a, 1, Interest::READ);
    let delivered = world.delivered();
    assert!(
        delivered.len() == 1 && delivered.values().all(|ready| ready.has(Ready::READABLE)),
        "{delivered:?}"
    );
    world.remove(a);
    world.remove(c);
    world.assert_silent();
}

pub(crate) fn ready_before_registration_is_delivered(world: &mut World) {
    let (a, b) = world.pair();
    world.write(b, 10);
    world.register(a, 1, Interest::READ);
    world.assert_delivered(&[(1, Ready::READABLE)]);
    world.remove(a);
    world.assert_silent();
    world.register(a, 2, Interest::BOTH);
    world.assert_delivered(&[(2, Ready::READABLE | Ready::WRITABLE)]);
}
