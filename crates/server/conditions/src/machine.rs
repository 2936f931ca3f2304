//! Patterns as one automaton, which reads each byte of a value once.
//!
//! An automaton is made when the configuration is read. Its size has a limit: a set of patterns
//! that exceeds the limit is divided, and a single pattern that exceeds it is searched by
//! [`regex_automata::meta`], which also takes linear time, but keeps a cache for each thread.

use std::fmt;

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::nfa::thompson;
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::util::syntax;
use regex_automata::{Anchored, MatchKind};

use crate::limits::{MACHINE_WORK_FACTOR, PATTERN_DEPTH_MAX, PATTERN_PROGRAM_BYTES_MAX};

/// How every pattern is read.
pub(crate) fn syntax() -> syntax::Config {
    syntax::Config::new()
        .unicode(false)
        .utf8(false)
        .dot_matches_new_line(true)
        .nest_limit(PATTERN_DEPTH_MAX)
}

/// An automaton of one or more patterns.
#[derive(Clone)]
pub(crate) struct Machine {
    table: dense::DFA<Vec<u32>>,
    start: StateID,
}

impl fmt::Debug for Machine {
    /// Without the table, which has thousands of lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (patterns, bytes) = (self.table.pattern_len(), self.table.memory_usage());
        let mut shown = f.debug_struct("Machine");
        shown.field("patterns", &patterns).field("bytes", &bytes).finish_non_exhaustive()
    }
}

impl Machine {
    /// The automaton of these regular expressions; `None` if it has more bytes than this.
    pub(crate) fn new(expressions: &[&str], bytes_max: usize) -> Option<Machine> {
        let config = dense::Config::new()
            .match_kind(MatchKind::All)
            .start_kind(StartKind::Unanchored)
            .dfa_size_limit(Some(bytes_max))
            .determinize_size_limit(Some(MACHINE_WORK_FACTOR * bytes_max));
        let program = thompson::Config::new()
            .utf8(false)
            .nfa_size_limit(Some(PATTERN_PROGRAM_BYTES_MAX * expressions.len()))
            .which_captures(thompson::WhichCaptures::None);
        let mut builder = dense::Builder::new();
        let builder = builder.configure(config).syntax(syntax()).thompson(program);
        let table = builder.build_many(expressions).ok()?;
        let start = table.start_state(&start::Config::new().anchored(Anchored::No)).ok()?;
        Some(Machine { table, start })
    }

    /// Whether some pattern matches a value.
    pub(crate) fn is_match(&self, value: &[u8]) -> bool {
        let mut state = self.start;
        for byte in value {
            state = self.table.next_state(state, *byte);
            if self.table.is_special_state(state) {
                if self.table.is_match_state(state) {
                    return true;
                }
                if self.table.is_dead_state(state) {
                    return false;
                }
            }
        }
        self.table.is_match_state(self.table.next_eoi_state(state))
    }

    /// Calls `found` with the number of each pattern that matches a value, at least once.
    #[inline]
    pub(crate) fn matches(&self, value: &[u8], mut found: impl FnMut(usize)) {
        let mut note = |state| {
            for index in 0..self.table.match_len(state) {
                found(self.table.match_pattern(state, index).as_usize());
            }
        };
        let (mut state, mut rest) = (self.start, self.skipped(self.start, value));
        while let [byte, after @ ..] = rest {
            state = self.table.next_state(state, *byte);
            rest = after;
            if self.table.is_special_state(state) {
                if self.table.is_match_state(state) {
                    note(state);
                } else if self.table.is_dead_state(state) {
                    return;
                }
                rest = self.skipped(state, rest);
            }
        }
        let end = self.table.next_eoi_state(state);
        if self.table.is_match_state(end) {
            note(end);
        }
    }

    /// The bytes from the first byte that can change a state.
    #[inline]
    fn skipped<'v>(&self, state: StateID, value: &'v [u8]) -> &'v [u8] {
        if !self.table.is_accel_state(state) {
            return value;
        }
        let found = match *self.table.accelerator(state) {
            [one] => memchr::memchr(one, value),
            [one, two] => memchr::memchr2(one, two, value),
            [one, two, three] => memchr::memchr3(one, two, three, value),
            _ => Some(0),
        };
        &value[found.unwrap_or(value.len())..]
    }

    /// Whether some pattern matches the empty string at the start of every value.
    pub(crate) fn matches_everything(&self) -> bool {
        let is_match = |state| self.table.is_match_state(state);
        (0..=u8::MAX).all(|byte| is_match(self.table.next_state(self.start, byte)))
            && is_match(self.table.next_eoi_state(self.start))
    }
}
