//! The trace of events in a simulated world: a hash of all of them, and the last ones as text.

use std::collections::VecDeque;
use std::fmt::Write;

/// Lines kept for the report of a failure.
const LINES_MAX: usize = 40;

#[derive(Debug)]
pub(super) struct Trace {
    hash: u64,
    tail: VecDeque<Line>,
}

#[derive(Debug, Clone, Copy)]
struct Line {
    at_ns: u64,
    what: &'static str,
    which: u64,
    amount: usize,
}

impl Trace {
    pub(super) fn new() -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, tail: VecDeque::with_capacity(LINES_MAX) }
    }

    pub(super) fn add(&mut self, at_ns: u64, what: &'static str, which: u64, amount: usize) {
        for word in [at_ns, which, amount as u64] {
            self.mix(&word.to_le_bytes());
        }
        self.mix(what.as_bytes());
        if self.tail.len() == LINES_MAX {
            self.tail.pop_front();
        }
        self.tail.push_back(Line { at_ns, what, which, amount });
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn tail(&self, start_ns: u64) -> String {
        let mut text = String::new();
        for Line { at_ns, what, which, amount } in &self.tail {
            let at_us = (at_ns - start_ns) / 1_000;
            writeln!(text, "{at_us:>12} us  #{which:<6} {what} {amount}")
                .expect("writing to a string does not fail");
        }
        text
    }

    /// FNV-1a.
    fn mix(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
