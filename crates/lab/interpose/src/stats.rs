//! Counters of the library in this process, reported as one line of JSON at the end if
//! `PLIMSOLL_BOOST_STATS` names a file. Each process that ends by `exit` appends its own line.
//!
//! Without the variable nothing is counted.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use libc::{c_char, c_int};

use crate::sys;

static ENABLED: AtomicBool = AtomicBool::new(false);
static FILE: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

macro_rules! counters {
    ($($(#[$doc:meta])+ $variant:ident = $name:literal;)*) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Counter {
            $($(#[$doc])+ $variant,)*
        }

        const NAMES: &[&str] = &[$($name,)*];
    };
}

counters! {
    /// Calls of poll, select and their variants.
    Calls = "calls";
    /// Calls that went directly to the original: few descriptors, or a resting thread.
    Plain = "plain";
    /// Calls that were started here and completed by the original.
    Fallbacks = "fallbacks";
    /// Descriptors that were polled individually.
    Probes = "probes";
    /// Probes that found something.
    Hits = "hits";
    /// Plain polls of everything, compared with epoll.
    Audits = "audits";
    /// Audits that found a difference from epoll; each disables boosting for a thread.
    AuditDifferences = "audit_differences";
    /// Changes of an epoll set.
    EpollCtl = "epoll_ctl";
    /// Sets that were discarded and built again.
    Rebuilds = "rebuilds";
    /// Time in boosted calls, excluding sleep.
    Nanoseconds = "nanoseconds";
}

static COUNTS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// Counts, if counting is enabled.
#[inline]
pub(crate) fn count(counter: Counter, add: u64) {
    if ENABLED.load(Ordering::Relaxed)
        && let Some(cell) = COUNTS.get(counter as usize)
    {
        cell.fetch_add(add, Ordering::Relaxed);
    }
}

/// The time if counting is enabled, otherwise 0.
pub(crate) fn clock() -> u64 {
    if ENABLED.load(Ordering::Relaxed) { sys::now() } else { 0 }
}

/// Called when the library is loaded; the environment lives as long as the process.
pub(crate) fn enable() {
    // SAFETY: a C string; the process still has only one thread.
    let file = unsafe { libc::getenv(c"PLIMSOLL_BOOST_STATS".as_ptr()) };
    // SAFETY: a C string of the environment.
    if !file.is_null() && unsafe { *file } != 0 {
        // SAFETY: as above; the copy is never freed, because it is read when the process ends.
        FILE.store(unsafe { libc::strdup(file) }, Ordering::Relaxed);
        ENABLED.store(true, Ordering::Relaxed);
    }
}

/// Called in a child process: the parent's counts are not its own.
pub(crate) fn reset() {
    for cell in &COUNTS {
        cell.store(0, Ordering::Relaxed);
    }
}

/// Appends this process's line. Failure to write the file is ignored.
pub(crate) fn report() {
    let file = FILE.load(Ordering::Relaxed);
    if file.is_null() {
        return;
    }
    let mut line = Line { bytes: [0; LINE_BYTES], len: 0 };
    line.text("{\"process\":");
    line.number(sys::process().unsigned_abs().into());
    for (name, cell) in NAMES.iter().zip(&COUNTS) {
        line.text(",\"");
        line.text(name);
        line.text("\":");
        line.number(cell.load(Ordering::Relaxed));
    }
    line.text("}\n");
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    let mode: libc::mode_t = 0o666;
    // SAFETY: the file is a C string that lives for ever; the bytes live on this frame.
    unsafe {
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, file, flags, mode);
        if fd >= 0 {
            libc::syscall(libc::SYS_write, fd, line.bytes.as_ptr(), line.len);
            sys::close(fd as c_int);
        }
    }
}

/// Enough for all names, each with twenty digits.
const LINE_BYTES: usize = 1024;

/// Text on the stack.
struct Line {
    bytes: [u8; LINE_BYTES],
    len: usize,
}

impl Line {
    fn text(&mut self, text: &str) {
        for &byte in text.as_bytes() {
            if let Some(place) = self.bytes.get_mut(self.len) {
                *place = byte;
                self.len += 1;
            }
        }
    }

    fn number(&mut self, number: u64) {
        if number >= 10 {
            self.number(number / 10);
        }
        let digit = [b'0' + (number % 10) as u8];
        self.text(std::str::from_utf8(&digit).unwrap_or("0"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_line_has_room() {
        let mut line = Line { bytes: [0; LINE_BYTES], len: 0 };
        for name in NAMES {
            line.text(",\"");
            line.text(name);
            line.text("\":");
            line.number(u64::MAX);
        }
        assert!(line.len + 64 < LINE_BYTES);
        let text = std::str::from_utf8(&line.bytes[..line.len]).unwrap();
        assert!(text.ends_with(",\"nanoseconds\":18446744073709551615"), "{text}");
    }
}
