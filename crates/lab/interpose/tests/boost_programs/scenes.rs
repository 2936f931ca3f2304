//! Scenes: cases that random programs cannot test without a race, or without ending the process.

use std::fmt::Write;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use libc::{c_int, c_void, pollfd};

use crate::calls::{self, Wait, entry, result_text};

/// Runs a scene and returns its results.
type Scene = fn() -> String;

pub(crate) const SCENES: &[(&str, Scene)] = &[
    ("unseen-close", unseen_close),
    ("unseen-replacement", unseen_replacement),
    ("close-everything", close_everything),
    ("cancelled", cancelled),
    ("handler-polls", handler_polls),
    ("stopped", stopped),
    ("many", many),
    ("loud-in-select", loud_in_select),
    ("threads-share", threads_share),
    ("child-changes", child_changes),
    ("beyond-the-limit", beyond_the_limit),
    ("waits-long", waits_long),
];

/// Enough idle socket pairs that a call is worth boosting.
const PAIRS: usize = 40;

fn pairs(count: usize) -> Vec<[c_int; 2]> {
    (0..count)
        .map(|_| {
            let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            let mut pair = [-1; 2];
            // SAFETY: a pair on this frame.
            unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) };
            pair
        })
        .collect()
}

fn array_of(pairs: &[[c_int; 2]]) -> Vec<pollfd> {
    pairs.iter().map(|pair| entry(pair[0], libc::POLLIN)).collect()
}

fn poll(array: &mut [pollfd], milliseconds: c_int) -> String {
    calls::poll(array, Wait::Plain, milliseconds) + "\n"
}

fn raw_close(fd: c_int) {
    // SAFETY: an integer.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// A close that the library does not see: the wait must report it, and not sleep for ever.
fn unseen_close() -> String {
    let pairs = pairs(PAIRS);
    let mut array = array_of(&pairs);
    let mut text = poll(&mut array, 0);
    raw_close(pairs[7][0]);
    text += &poll(&mut array, 20_000);
    text + &poll(&mut array, 0)
}

/// The number gets another file without the library seeing it: data for it must be found.
fn unseen_replacement() -> String {
    let pairs = pairs(PAIRS);
    let mut array = array_of(&pairs);
    let mut text = poll(&mut array, 0);
    let mut pair = [-1; 2];
    // SAFETY: a pair on this frame, integers; none of it goes through the library.
    unsafe {
        libc::syscall(libc::SYS_pipe2, pair.as_mut_ptr(), libc::O_CLOEXEC);
        libc::syscall(libc::SYS_dup3, pair[0], pairs[7][0], libc::O_CLOEXEC);
    }
    let write = || drop(calls::write(pair[1], 1));
    text += &calls::meanwhile(write, || poll(&mut array, 20_000));
    text
}

/// Like a daemon at its start: closes everything that is open, including our descriptors, and
/// nothing is lost.
fn close_everything() -> String {
    let mut text = String::new();
    for how in 0..4 {
        let pairs = pairs(PAIRS);
        let mut array = array_of(&pairs);
        text += &poll(&mut array, 0);
        // SAFETY: integers; no other code owns descriptors from 3 on.
        unsafe {
            match how {
                0 => (3..20_000).for_each(|fd| _ = libc::close(fd)),
                1 => _ = libc::close_range(3, u32::MAX, 0),
                2 => _ = libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0),
                _ => (3..20_000).for_each(raw_close),
            }
        }
        let more = self::pairs(PAIRS);
        let mut array = array_of(&more);
        let write = || drop(calls::write(more[3][1], 1));
        text += &calls::meanwhile(write, || poll(&mut array, 20_000));
        // SAFETY: as above.
        unsafe { libc::close_range(3, u32::MAX, 0) };
    }
    text
}

extern "C" fn waits_for_ever(array: *mut c_void) -> *mut c_void {
    // SAFETY: the array of the scene, which outlives this thread.
    unsafe { libc::poll(array.cast(), PAIRS as libc::nfds_t, -1) };
    array
}

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
}

/// poll is a cancellation point.
fn cancelled() -> String {
    let mut array = array_of(&pairs(PAIRS));
    let mut text = String::new();
    for _ in 0..3 {
        // SAFETY: the thread is joined before the array goes.
        unsafe {
            let mut thread = std::mem::zeroed();
            let argument = array.as_mut_ptr().cast();
            libc::pthread_create(&raw mut thread, std::ptr::null(), waits_for_ever, argument);
            std::thread::sleep(Duration::from_millis(20));
            let asked = pthread_cancel(thread);
            let mut result = std::ptr::null_mut();
            libc::pthread_join(thread, &raw mut result);
            let _ = writeln!(text, "{asked} {}", result as isize);
        }
    }
    text + &poll(&mut array, 0)
}

static HANDLER_FD: AtomicI32 = AtomicI32::new(-1);
static HANDLER_SAW: AtomicI32 = AtomicI32::new(-1);

/// A signal handler that waits after it has interrupted a wait.
extern "C" fn polling_handler(_: c_int) {
    let mut array = [entry(HANDLER_FD.load(Ordering::Relaxed), libc::POLLOUT); 20];
    // SAFETY: an array on this frame.
    let found = unsafe { libc::poll(array.as_mut_ptr(), 20, 0) };
    HANDLER_SAW.store(found, Ordering::Relaxed);
}

fn handler_polls() -> String {
    let pairs = pairs(PAIRS);
    HANDLER_FD.store(pairs[0][1], Ordering::Relaxed);
    let handler = polling_handler as *const () as libc::sighandler_t;
    // SAFETY: a handler that calls what may be called in one.
    unsafe { libc::signal(libc::SIGALRM, handler) };
    let mut array = array_of(&pairs);
    calls::alarm_every(5000);
    let text = poll(&mut array, 20_000);
    calls::alarm_every(0);
    let saw = HANDLER_SAW.load(Ordering::Relaxed);
    format!("{text}the handler saw {saw}\n{}", poll(&mut array, 0))
}

/// Stopping and continuing the process does not interrupt poll, which then finds new data.
fn stopped() -> String {
    let pairs = pairs(PAIRS);
    let mut array = array_of(&pairs);
    // SAFETY: the child signals its parent, writes, and ends.
    let child = unsafe {
        let parent = libc::getpid();
        let child = libc::fork();
        if child == 0 {
            libc::usleep(20_000);
            libc::kill(parent, libc::SIGSTOP);
            libc::usleep(5_000);
            libc::kill(parent, libc::SIGCONT);
            libc::usleep(20_000);
            calls::write(pairs[5][1], 1);
            libc::_exit(0);
        }
        child
    };
    let text = poll(&mut array, 20_000);
    // SAFETY: the child is ours.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    text
}

/// Many descriptors, most of them idle, and arrays that shift.
fn many() -> String {
    let pairs = pairs(1500);
    let mut array = array_of(&pairs);
    let mut text = String::new();
    for round in 0..60_usize {
        let at = round * 997 % pairs.len();
        calls::write(pairs[at][1], 1);
        if round % 5 == 0 {
            array.remove(round * 31 % array.len());
        }
        if round % 7 == 0 {
            array.insert(round * 17 % array.len(), entry(pairs[round][1], libc::POLLRDHUP));
        }
        let mut asked = array.clone();
        let all = poll(&mut asked, 0);
        let count = all.split(' ').next().unwrap_or_default();
        let ready = asked.iter().enumerate().filter(|(_, entry)| entry.revents != 0);
        let ready: Vec<_> = ready.map(|(at, entry)| (at, entry.fd, entry.revents)).collect();
        let _ = writeln!(text, "{count} {ready:?}");
    }
    text
}

/// A hang-up, which epoll always reports but select's write set does not include.
fn loud_in_select() -> String {
    let pairs = pairs(20);
    let mut text = String::new();
    let except = pairs.iter().fold(0_u64, |set, pair| set | 1 << pair[0]);
    // SAFETY: integers.
    unsafe { libc::close(pairs[3][1]) };
    for _ in 0..4 {
        text += &calls::select([None, None, Some(except)], 64, Wait::Plain, 3);
        text += "\n";
    }
    text + &calls::select([Some(except), None, Some(except)], 64, Wait::Plain, 5000) + "\n"
}

/// Several threads wait for the same descriptors: unread data wakes all of them.
fn threads_share() -> String {
    let pairs = pairs(PAIRS);
    std::thread::scope(|scope| {
        let wait = || poll(&mut array_of(&pairs), 20_000);
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(wait)).collect();
        std::thread::sleep(Duration::from_millis(20));
        calls::write(pairs[9][1], 1);
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

/// A child's changes to its copies do not affect the parent.
fn child_changes() -> String {
    let pairs = pairs(PAIRS);
    let mut array = array_of(&pairs);
    let mut text = poll(&mut array, 0);
    // SAFETY: the child closes, waits and ends.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            for pair in &pairs[..20] {
                libc::close(pair[0]);
            }
            let found = libc::poll(array.as_mut_ptr().add(20), 20, 0);
            array[30].fd = pairs[0][1];
            let more = libc::poll(array.as_mut_ptr().add(20), 20, 0);
            libc::_exit(found * 16 + more);
        }
        let mut status = 0;
        libc::waitpid(child, &raw mut status, 0);
        let _ = writeln!(text, "child {}", libc::WEXITSTATUS(status));
    }
    let write = || drop(calls::write(pairs[2][1], 1));
    text += &calls::meanwhile(write, || poll(&mut array, 20_000));
    text
}

/// More entries than the limit of descriptors allows, and descriptors beyond every table.
fn beyond_the_limit() -> String {
    let pairs = pairs(PAIRS);
    let mut array = array_of(&pairs);
    array.push(entry(c_int::MAX, libc::POLLIN));
    array.push(entry(70_000, libc::POLLIN));
    let mut text = poll(&mut array, 0);
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: one limit on this frame.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = 300;
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
    }
    let mut long: Vec<pollfd> = (0..301).map(|_| entry(pairs[0][0], libc::POLLIN)).collect();
    text += &result_text(calls::poll(&mut long, Wait::Plain, 0).starts_with("error 22").into());
    text + "\n"
}

/// Several times longer than the interval of audits: nothing arrives, and the time is right.
fn waits_long() -> String {
    let mut array = array_of(&pairs(PAIRS));
    let begun = Instant::now();
    let text = poll(&mut array, 350);
    let enough = begun.elapsed() >= Duration::from_millis(350);
    format!("{text}waited long enough: {enough}\n")
}
