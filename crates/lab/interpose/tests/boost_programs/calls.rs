//! The calls that programs make, as functions that return the result as text, and raw calls that
//! cannot be interposed.

use std::fmt::Write;
use std::ptr::{null, null_mut};
use std::time::Duration;

use libc::{c_int, pollfd, sigset_t, timespec, timeval};

/// A result as text: the value, or the error.
pub(crate) fn result_text(returned: c_int) -> String {
    if returned >= 0 { format!("{returned}") } else { format!("error {}", errno()) }
}

pub(crate) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

pub(crate) fn entry(fd: c_int, events: i16) -> pollfd {
    // A result of an earlier call must be overwritten.
    pollfd { fd, events, revents: 0x55 }
}

/// How a wait is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Plain,
    /// With no signal blocked while it waits.
    Masked,
    /// ppoll and pselect, without a mask.
    Precise,
}

pub(crate) fn poll(array: &mut [pollfd], wait: Wait, milliseconds: c_int) -> String {
    let count = array.len() as libc::nfds_t;
    let (time, mask) = (time_of(milliseconds), no_signals());
    let time = if milliseconds < 0 { null() } else { &raw const time };
    // SAFETY: an array and its length; time and mask live on this frame.
    let returned = unsafe {
        match wait {
            Wait::Plain => libc::poll(array.as_mut_ptr(), count, milliseconds),
            Wait::Masked => libc::ppoll(array.as_mut_ptr(), count, time, &raw const mask),
            Wait::Precise => libc::ppoll(array.as_mut_ptr(), count, time, null()),
        }
    };
    let mut text = result_text(returned);
    for entry in array.iter() {
        let _ = write!(text, " {}:{:x}={:x}", entry.fd, entry.events, entry.revents);
    }
    text
}

/// Selects on three sets of descriptors below 64.
pub(crate) fn select(sets: [Option<u64>; 3], count: c_int, wait: Wait, ms: c_int) -> String {
    // More than one word: the words above must not change.
    let mut words = sets.map(|set| [set.unwrap_or(0), 0, 0, 0]);
    let mut at = [null_mut::<libc::fd_set>(); 3];
    for ((at, words), set) in at.iter_mut().zip(&mut words).zip(sets) {
        if set.is_some() {
            *at = words.as_mut_ptr().cast();
        }
    }
    let [read, write, except] = at;
    let mut left = timeval { tv_sec: (ms / 1000).into(), tv_usec: (ms % 1000 * 1000).into() };
    let left_at = if ms < 0 { null_mut() } else { &raw mut left };
    let (time, mask) = (time_of(ms), no_signals());
    let time_at = if ms < 0 { null() } else { &raw const time };
    // SAFETY: sets of four words, which are more than the count; the rest lives on this frame.
    let returned = unsafe {
        match wait {
            Wait::Plain => libc::select(count, read, write, except, left_at),
            Wait::Masked => libc::pselect(count, read, write, except, time_at, &raw const mask),
            Wait::Precise => libc::pselect(count, read, write, except, time_at, null()),
        }
    };
    let mut text = result_text(returned);
    for words in &words {
        let _ = write!(text, " {:x}", words[0]);
    }
    let given = i64::from(ms) * 1000;
    let left = left.tv_sec * 1_000_000 + left.tv_usec;
    let time = match left {
        _ if ms < 0 => "endless",
        // The time may or may not be over before the first check.
        _ if ms == 1 && returned != 0 => "some",
        0 => "none",
        left if left == given => "all",
        _ => "less",
    };
    text + " left " + time
}

fn time_of(milliseconds: c_int) -> timespec {
    timespec {
        tv_sec: (milliseconds / 1000).into(),
        tv_nsec: (milliseconds % 1000 * 1_000_000).into(),
    }
}

pub(crate) fn no_signals() -> sigset_t {
    // SAFETY: all zeros is a set; sigemptyset writes it.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        set
    }
}

/// Blocks or unblocks one signal of this thread.
pub(crate) fn block(signal: c_int, blocked: bool) {
    let mut set = no_signals();
    let how = if blocked { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: one set on this frame.
    unsafe {
        libc::sigaddset(&raw mut set, signal);
        libc::pthread_sigmask(how, &raw const set, null_mut());
    }
}

/// How many of the entries are ready now, according to the kernel.
pub(crate) fn raw_ready(array: &[pollfd]) -> c_int {
    let mut array = array.to_vec();
    // SAFETY: an array and its length.
    unsafe { libc::syscall(libc::SYS_poll, array.as_mut_ptr(), array.len(), 0) as c_int }
}

/// How many bytes there are to read.
pub(crate) fn raw_unread(fd: c_int) -> c_int {
    let mut unread: c_int = 0;
    // SAFETY: an integer on this frame.
    unsafe { libc::syscall(libc::SYS_ioctl, fd, libc::FIONREAD, &raw mut unread) };
    unread
}

/// Waits until there is more than before, because terminals are slow.
pub(crate) fn raw_wait_for_more(fd: c_int, before: c_int) {
    for _ in 0..20_000 {
        if raw_unread(fd) > before {
            return;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// A SIGALRM every `microseconds`; 0 stops it.
pub(crate) fn alarm_every(microseconds: libc::suseconds_t) {
    let time = timeval { tv_sec: 0, tv_usec: microseconds };
    let timer = libc::itimerval { it_interval: time, it_value: time };
    // SAFETY: a timer on this frame; the old value is not requested.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, null_mut()) };
}

pub(crate) fn write(fd: c_int, count: usize) -> String {
    let bytes = [b'x'; 4096];
    // SAFETY: no more than the bytes there are.
    let done = unsafe { libc::write(fd, bytes.as_ptr().cast(), count.min(bytes.len())) };
    result_text(done as c_int)
}

pub(crate) fn read(fd: c_int, count: usize) -> String {
    let mut bytes = [0_u8; 4096];
    // SAFETY: no more than there is room for.
    let done = unsafe { libc::read(fd, bytes.as_mut_ptr().cast(), count.min(bytes.len())) };
    result_text(done as c_int)
}

/// Runs something in another thread after a moment, while the caller waits.
pub(crate) fn meanwhile<T>(what: impl FnOnce() + Send, wait: impl FnOnce() -> T) -> T {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_micros(300));
            what();
        });
        wait()
    })
}
