//! Closed, half closed, reset, refused: a waiting task is woken and finds out.

use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use readiness::{Interest, Ready};

use crate::world::{Got, World, fd_of};

pub(crate) fn peer_close_is_readable_until_removed(world: &mut World) {
    let (a, b) = world.tcp_pair();
    world.register(a, 1, Interest::READ);
    world.close(b);
    for _ in 0..3 {
        let delivered = world.until(1, Ready::READABLE);
        assert!(!world.reports_ends() || delivered.has(Ready::READ_CLOSED), "{delivered:?}");
        assert_eq!(world.read(a, 10), Got::End);
    }
    world.remove(a);
    world.assert_silent();
}

pub(crate) fn half_close_leaves_the_other_direction(world: &mut World) {
    let (a, b) = world.tcp_pair();
    world.register(a, 1, Interest::BOTH);
    world.shut_write(b);
    let delivered = world.until(1, Ready::READABLE | Ready::WRITABLE);
    assert!(!delivered.has(Ready::HANGUP), "{delivered:?}");
    assert!(!world.reports_ends() || delivered.has(Ready::READ_CLOSED), "{delivered:?}");
    assert_eq!(world.read(a, 10), Got::End);
    assert_eq!(world.write(a, 10), 10);
    world.change(a, 1, Interest::WRITE);
    world.assert_delivered(&[(1, Ready::WRITABLE)]);
    world.register(b, 2, Interest::READ);
    world.until(2, Ready::READABLE);
    assert_eq!(world.read(b, 100), Got::Bytes(10));
}

/// The buffer is full and the peer has stopped sending: a writer gets no event until the peer
/// reads.
pub(crate) fn a_half_close_is_not_delivered_to_a_writer(world: &mut World) {
    let (a, b) = world.pair();
    world.shut_write(b);
    world.register(a, 1, Interest::WRITE);
    for _ in 0..3 {
        world.assert_delivered(&[(1, Ready::WRITABLE)]);
        world.assert_delivered(&[(1, Ready::WRITABLE)]);
        world.fill(a);
        while !world.delivered().is_empty() {}
        world.assert_silent();
        // Waits may return early, but not so often that waiting becomes spinning.
        let before = world.poller().counters();
        let end = Instant::now() + Duration::from_millis(5);
        while Instant::now() < end && !world.is_simulated() {
            assert!(world.wait(Some(Duration::from_millis(5))).is_empty());
        }
        let calls = (world.poller().counters() - before).syscalls;
        assert!(calls <= 6, "{calls} system calls to wait for nothing");
        world.drain(b);
    }
    world.assert_delivered(&[(1, Ready::WRITABLE)]);
    world.change(a, 1, Interest::BOTH);
    world.assert_delivered(&[(1, Ready::READABLE | Ready::WRITABLE)]);
    world.change(a, 1, Interest::WRITE);
    world.assert_delivered(&[(1, Ready::WRITABLE)]);
    world.remove(a);
    world.close(a);
    assert_eq!(world.drain(b), Got::End);
}

pub(crate) fn reset_wakes_both_directions(world: &mut World) {
    let (a, b) = world.tcp_pair();
    world.register(a, 1, Interest::BOTH);
    world.fill(a);
    world.reset(b);
    let delivered = world.until(1, Ready::READABLE | Ready::WRITABLE);
    assert!(!world.reports_ends() || delivered.has(Ready::ERROR), "{delivered:?}");
    assert_eq!(world.read(a, 10), Got::Broken);
}

pub(crate) fn a_writer_alone_is_woken_by_a_reset(world: &mut World) {
    let (a, b) = world.tcp_pair();
    world.fill(a);
    world.register(a, 1, Interest::WRITE);
    world.assert_silent();
    world.reset(b);
    world.until(1, Ready::WRITABLE);
}

/// A short read does not prove that nothing remains: the end has arrived with the data, and no
/// further packet will report it.
pub(crate) fn data_and_fin_in_one_segment(world: &mut World) {
    let (a, b) = world.tcp_pair();
    world.register(a, 1, Interest::READ);
    world.assert_silent();
    world.write_and_finish(b, 10);
    world.until(1, Ready::READABLE);
    let mut bytes = 0;
    while bytes < 10 {
        world.until(1, Ready::READABLE);
        match world.read(a, 1000) {
            Got::Bytes(count) => bytes += count,
            other => panic!("{other:?} after {bytes} bytes"),
        }
    }
    world.until(1, Ready::READABLE);
    assert_eq!(world.read(a, 1000), Got::End);
    world.until(1, Ready::READABLE);
}

pub(crate) fn both_halves_closed_is_delivered(world: &mut World) {
    let (a, b) = world.pair();
    world.register(a, 1, Interest::READ);
    world.shut_write(a);
    world.close(b);
    let delivered = world.until(1, Ready::READABLE);
    assert!(!world.reports_ends() || delivered.has(Ready::HANGUP), "{delivered:?}");
}

pub(crate) fn a_connection_makes_a_listener_readable(world: &mut World) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    world.register(fd_of(&listener), 1, Interest::READ);
    world.assert_silent();
    let (one, two) = (std::net::TcpStream::connect(address), std::net::TcpStream::connect(address));
    for _ in 0..2 {
        world.until(1, Ready::READABLE);
        listener.accept().unwrap();
    }
    world.assert_silent();
    drop((one, two));
    world.remove(fd_of(&listener));
}

pub(crate) fn a_refused_connection_is_delivered(world: &mut World) {
    let closed_port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: integers in, a fresh descriptor or -1 out.
    let fd = unsafe { libc::socket(libc::AF_INET, kind, 0) };
    assert!(fd >= 0);
    // SAFETY: fresh from the kernel, not owned elsewhere.
    let fd = world.adopt(unsafe { OwnedFd::from_raw_fd(fd) });
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: closed_port.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    };
    let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: pointer and length are of one address on this stack frame.
    unsafe { libc::connect(fd, (&raw const address).cast(), length) };
    world.register(fd, 1, Interest::WRITE);
    let delivered = world.until(1, Ready::WRITABLE);
    assert!(!world.reports_ends() || delivered.has(Ready::ERROR), "{delivered:?}");
}

pub(crate) fn a_pipe_without_readers_is_delivered(world: &mut World) {
    let (reader, writer) = std::io::pipe().unwrap();
    let writer = world.adopt(writer.into());
    world.register(writer, 1, Interest::WRITE);
    world.assert_delivered(&[(1, Ready::WRITABLE)]);
    drop(reader);
    let delivered = world.until(1, Ready::WRITABLE);
    assert!(!world.reports_ends() || delivered.has(Ready::ERROR), "{delivered:?}");
}
