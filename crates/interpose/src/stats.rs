//! What the library has done in this process, and how it is told: one line of JSON at the end, if
//! `PLIMSOLL_BOOST_STATS` names a file. Each process that ends by `exit` appends its own line.
//!
//! Nothing is counted when nobody asked.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use libc::{c_char, c_int};

use crate::sys;

static ASKED: AtomicBool = AtomicBool::new(false);
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
    /// Calls of poll, select and their kin.
    Calls = "calls";
    /// Those of them that went straight to the original: few descriptors, or a thread at rest.
    Plain = "plain";
    /// Those that were begun here and ended by the original.
    Fallbacks = "fallbacks";
    /// Descriptors that the kernel was asked about one by one.
    Probes = "probes";
    /// Probes that found something.
    Hits = "hits";
    /// Plain polls of everything, held against epoll.
    Audits = "audits";
    /// Audits that found what epoll did not know; each ends the boost of a thread.
    AuditDifferences = "audit_differences";
    /// Changes of an epoll set.
    EpollCtl = "epoll_ctl";
    /// Sets that were thrown away and made anew.
    Rebuilds = "rebuilds";
    /// Time in boosted calls, without the time asleep.
    Nanoseconds = "nanoseconds";
}

static COUNTS: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

/// Counts, if somebody asked.
#[inline]
pub(crate) fn count(counter: Counter, add: u64) {
    if ASKED.load(Ordering::Relaxed)
        && let Some(cell) = COUNTS.get(counter as usize)
    {
        cell.fetch_add(add, Ordering::Relaxed);
    }
}

/// The time, if it is of any use.
pub(crate) fn clock() -> u64 {
    if ASKED.load(Ordering::Relaxed) { sys::now() } else { 0 }
}

/// When the library is loaded; the environment lives as long as the process.
pub(crate) fn ask() {
    // SAFETY: a C string; at this time the process has one thread.
    let file = unsafe { libc::getenv(c"PLIMSOLL_BOOST_STATS".as_ptr()) };
    // SAFETY: a C string of the environment.
    if !file.is_null() && unsafe { *file } != 0 {
        // SAFETY: as above; the copy is never given back, for it is read when the process ends.
        FILE.store(unsafe { libc::strdup(file) }, Ordering::Relaxed);
        ASKED.store(true, Ordering::Relaxed);
    }
}

/// In a child: what the parent did is not its own.
pub(crate) fn begin_anew() {
    for cell in &COUNTS {
        cell.store(0, Ordering::Relaxed);
    }
}

/// Appends this process's line. A file that cannot be written is nothing to stop a program for.
pub(crate) fn tell() {
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
