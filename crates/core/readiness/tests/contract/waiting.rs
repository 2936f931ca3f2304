//! Sleeping, and what ends it.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::os::unix::thread::JoinHandleExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use readiness::{Interest, Ready};

use crate::world::{PATIENCE, World};

pub(crate) fn nothing_ready_delivers_nothing(world: &mut World) {
    world.assert_silent();
    let (a, _b) = world.pair();
    world.register(a, 1, Interest::READ);
    world.assert_silent();
    assert!(world.wait(Some(Duration::from_millis(3))).is_empty());
    assert!(world.wait(Some(Duration::from_micros(10))).is_empty());
    let counters = world.poller().counters();
    assert_eq!((counters.waits, counters.empty_waits, counters.events), (6, 6, 0));
}

pub(crate) fn a_time_out_ends_the_wait(world: &mut World) {
    for timeout in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(5)] {
        assert!(world.wait(Some(timeout)).is_empty());
    }
    // The longest that can be said is not an error.
    let (a, b) = world.pair();
    world.register(a, 1, Interest::READ);
    world.write(b, 1);
    assert_eq!(world.wait(Some(Duration::MAX)).len(), 1);
    world.drain(a);
    let waker = world.poller().waker().unwrap();
    waker.wake();
    assert!(world.wait(Some(Duration::MAX)).is_empty());
}

pub(crate) fn a_wake_before_the_wait_ends_it(world: &mut World) {
    let waker = world.poller().waker().unwrap();
    for _ in 0..3 {
        waker.wake();
        assert!(world.wait(None).is_empty());
    }
}

pub(crate) fn a_wake_is_not_an_event(world: &mut World) {
    let (a, b) = world.pair();
    world.register(a, 1, Interest::READ);
    let waker = world.poller().waker().unwrap();
    let clone = waker.clone();
    world.write(b, 1);
    for _ in 0..100 {
        waker.wake();
        clone.wake();
    }
    for _ in 0..3 {
        world.until(1, Ready::READABLE);
        world.assert_delivered(&[(1, Ready::READABLE)]);
    }
    world.set_capacity(1);
    waker.wake();
    world.until(1, Ready::READABLE);
    world.drain(a);
    waker.wake();
    assert!(world.wait(None).is_empty());
}

pub(crate) fn a_wake_from_another_thread(world: &mut World) {
    let waker = world.poller().waker().unwrap();
    let said = Arc::new(AtomicBool::new(false));
    let sayer = std::thread::spawn({
        let said = Arc::clone(&said);
        move || {
            std::thread::sleep(Duration::from_millis(5));
            said.store(true, Ordering::Relaxed);
            waker.wake();
        }
    });
    while !said.load(Ordering::Relaxed) {
        assert!(world.wait(None).is_empty());
    }
    sayer.join().unwrap();
}

/// One thread hands numbers over and waits until each was heard, while another wakes for nothing,
/// so that wakes fall into every point of taking an earlier one. One that is lost, or a flag that
/// stays set, leaves the waiting thread asleep.
pub(crate) fn every_wake_comes_through(world: &mut World) {
    const ROUNDS: u32 = 2_000;
    let said = Arc::new(AtomicU32::new(0));
    let heard = Arc::new(AtomicU32::new(0));
    let waker = world.poller().waker().unwrap();
    let noise = std::thread::spawn({
        let (waker, heard) = (waker.clone(), Arc::clone(&heard));
        move || {
            while heard.load(Ordering::Relaxed) < ROUNDS {
                waker.wake();
                std::hint::spin_loop();
            }
        }
    });
    let sayer = std::thread::spawn({
        let (said, heard) = (Arc::clone(&said), Arc::clone(&heard));
        move || {
            for round in 1..=ROUNDS {
                said.store(round, Ordering::Relaxed);
                waker.wake();
                while heard.load(Ordering::Acquire) < round {
                    std::thread::yield_now();
                }
            }
        }
    });
    let mut last = 0;
    while last < ROUNDS {
        let start = Instant::now();
        world.wait(Some(PATIENCE));
        assert!(start.elapsed() < PATIENCE, "a wake was lost after round {last}");
        last = said.load(Ordering::Relaxed);
        heard.store(last, Ordering::Release);
        if world.is_simulated() {
            std::thread::yield_now();
        }
    }
    sayer.join().unwrap();
    noise.join().unwrap();
}

pub(crate) fn a_waker_outlives_its_poller(world: &mut World) {
    let waker = world.poller().waker().unwrap();
    world.drop_poller();
    waker.wake();
    waker.wake();
    assert!(format!("{waker:?}").contains("pending: true"));
}

pub(crate) fn sleeps_until_another_thread_writes(world: &mut World) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let fd = world.adopt(ours.into());
    world.register(fd, 1, Interest::READ);
    for _ in 0..20 {
        let writer = std::thread::spawn(move || {
            theirs.write_all(b"x").unwrap();
            theirs
        });
        loop {
            let delivered = world.wait(None);
            if !delivered.is_empty() {
                break;
            }
        }
        world.read(fd, 1);
        theirs = writer.join().unwrap();
    }
    world.assert_silent();
}

pub(crate) fn a_signal_is_no_error(world: &mut World) {
    extern "C" fn nothing(_signal: libc::c_int) {}
    // SAFETY: the handler does nothing, so it is safe at any point; without SA_RESTART.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()), 0);
    }
    let awake = Arc::new(AtomicBool::new(false));
    // SAFETY: this thread outlives the sender, which is joined below.
    let this = unsafe { libc::pthread_self() };
    let sender = std::thread::spawn({
        let awake = Arc::clone(&awake);
        move || {
            while !awake.load(Ordering::Relaxed) {
                // SAFETY: the thread named is alive until this one is joined.
                unsafe { libc::pthread_kill(this, libc::SIGUSR2) };
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    assert_ne!(sender.as_pthread_t(), this);
    for _ in 0..3 {
        assert!(world.wait(None).is_empty());
        assert!(world.wait(Some(Duration::from_secs(3600))).is_empty());
    }
    awake.store(true, Ordering::Relaxed);
    sender.join().unwrap();
    world.assert_silent();
}
