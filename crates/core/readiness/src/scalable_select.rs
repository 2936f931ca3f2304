//! The select of 1998: it remembers what was ready, gets hints of what may have changed, and checks
//! only those.
//!
//! For each direction there are the sets SEL (selected now), INTERESTED (selected before), READY
//! (ready when last checked) and HINTS (something happened since the last check). A wait
//!
//! ```text
//!   checks     (SEL − INTERESTED) ∪ (SEL ∩ HINTS) ∪ (SEL ∩ READY)
//!   then       HINTS −= checked, before the probe;   INTERESTED ∪= SEL
//!   probes     the checked descriptors, no others
//!   then       READY = (READY − checked) ∪ found
//!   returns    READY ∩ SEL, and sleeps for hints if that is empty
//! ```
//!
//! A ready descriptor that is not selected this time stays in READY: selecting {a,b}, {b}, {a}
//! loses nothing. A descriptor is registered for hints before its first probe, and its hint is
//! cleared before the probe, so a change between the two is hinted again. A removed descriptor
//! leaves all sets.
//!
//! The hints of 1998 came from the protocol code. Here they come from an edge-triggered epoll
//! instance, which is only used to find what may have changed, never what is ready. Probes are one
//! poll(2) over the checked descriptors, with a time-out of zero.
//!
//! The eight words of 64 descriptors share one cache line. A summary has a bit for each line that
//! may have something to check, so that a scan reads O(highest / 4,096) words and the active lines.

use std::io;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crate::event::{POLL_ERR, POLL_HUP, POLL_IN, POLL_NVAL, POLL_OUT, POLL_RDHUP};
use crate::fdset::{FdSet, WORD_BITS, Word, members, position};
use crate::sys::{self, EpollSet};
use crate::table::FdTable;
use crate::wake::WakeEnd;
use crate::{Backend, Counters, Events, Interest, Kind, OpenError, Ready, Token};

/// The epoll interest of every descriptor, whatever is selected, so that a change of SEL costs no
/// system call.
const HINT_BITS: u32 = (libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET) as u32;

/// How many hints are fetched at once. The next wait fetches the rest.
const HINTS_MAX: usize = 1024;

/// The directions, as indexes.
const READ: usize = 0;
const WRITE: usize = 1;

/// The poll(2) bits to request in each direction, and those that count as ready.
const ASK: [u32; 2] = [POLL_IN | POLL_RDHUP, POLL_OUT];
const SHUT: u32 = POLL_HUP | POLL_ERR | POLL_NVAL;
const FOUND: [u32; 2] = [ASK[READ] | SHUT, ASK[WRITE] | SHUT];

/// The sets of 64 descriptors, each by direction: one cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
struct Line {
    selected: [Word; 2],
    interested: [Word; 2],
    ready: [Word; 2],
    hints: [Word; 2],
}

const _: () = assert!(size_of::<Line>() == 64, "the sets of a line share a cache line");
const _: () = assert!(Line::WORDS as usize * size_of::<Word>() == size_of::<Line>());

impl Line {
    /// How many words a check of a line reads.
    const WORDS: u64 = 8;

    /// (SEL − INTERESTED) ∪ (SEL ∩ HINTS) ∪ (SEL ∩ READY)
    fn due(self, direction: usize) -> Word {
        self.selected[direction]
            & (!self.interested[direction] | self.hints[direction] | self.ready[direction])
    }
}

/// A line with something to check, and its members by direction.
#[derive(Clone, Copy)]
struct Checked {
    line: usize,
    members: [Word; 2],
}

/// See the module docs.
pub(crate) struct ScalableSelect {
    hints: EpollSet,
    table: FdTable<Token>,
    /// Line `i` holds the descriptors from `64 i` up.
    lines: Vec<Line>,
    /// Has `i` if line `i` may have something to check.
    active: FdSet,
    /// The result of the last scan.
    checked: Vec<Checked>,
    /// The last probe, ascending by descriptor.
    probes: Vec<libc::pollfd>,
    /// Where the next wait starts, so that none starves when the events overflow.
    next: RawFd,
    pub(crate) wake: WakeEnd,
    pub(crate) counters: Counters,
}

/// The result of fetching hints.
struct Collected {
    hints: bool,
    woken: bool,
}

impl ScalableSelect {
    pub(crate) fn open() -> Result<ScalableSelect, OpenError> {
        let refused = |call| move |error| OpenError::of_call(Kind::ScalableSelect, call, error);
        let hints = EpollSet::new().map_err(refused("epoll_create1"))?;
        let wake = WakeEnd::with_eventfd(Kind::ScalableSelect)?;
        hints
            .add(wake.fd(), (libc::EPOLLIN | libc::EPOLLET) as u32, wake.fd() as u64)
            .map_err(refused("epoll_ctl"))?;
        Ok(ScalableSelect {
            hints,
            table: FdTable::new(),
            lines: Vec::new(),
            active: FdSet::default(),
            checked: Vec::new(),
            probes: Vec::new(),
            next: 0,
            wake,
            counters: Counters::default(),
        })
    }

    /// The average time of one scan.
    pub(crate) fn scan_time(&mut self, rounds: u32) -> Duration {
        let words = self.counters.bitmap_words;
        let start = Instant::now();
        for _ in 0..rounds {
            std::hint::black_box(&mut *self).scan();
        }
        self.counters.bitmap_words = words;
        start.elapsed() / rounds.max(1)
    }

    /// Sets SEL for one descriptor.
    fn select(&mut self, fd: RawFd, interest: Interest) {
        let (at, bit) = position(fd);
        if at >= self.lines.len() {
            self.lines.resize(at + 1, Line::default());
        }
        let selected = &mut self.lines[at].selected;
        for (direction, asked) in [(READ, Interest::READ), (WRITE, Interest::WRITE)] {
            if interest.contains(asked) {
                selected[direction] |= bit;
            } else {
                selected[direction] &= !bit;
            }
        }
        self.active.assign(at as RawFd, true);
    }

    /// Finds what must be checked. Changes none of the sets, so it can be repeated.
    fn scan(&mut self) {
        self.checked.clear();
        let summary_words = self.lines.len().div_ceil(WORD_BITS);
        self.counters.bitmap_words += summary_words as u64;
        for summary_at in 0..summary_words {
            for line in members(summary_at, self.active.word(summary_at)) {
                self.counters.bitmap_words += Line::WORDS;
                let sets = &self.lines[line as usize];
                let members = [sets.due(READ), sets.due(WRITE)];
                if members == [0, 0] {
                    self.active.assign(line, false);
                } else {
                    self.checked.push(Checked { line: line as usize, members });
                }
            }
        }
    }

    /// Fetches hints, sleeping until the first one arrives or `timeout` ends.
    fn collect(&mut self, timeout: Option<Duration>) -> io::Result<Collected> {
        self.counters.syscalls += 1;
        let mut collected = Collected { hints: false, woken: false };
        for event in self.hints.wait(HINTS_MAX, timeout)? {
            let fd = event.u64 as RawFd;
            if fd == self.wake.fd() {
                self.wake.take_edge();
                collected.woken = true;
                continue;
            }
            debug_assert!(self.table.get(fd).is_some(), "hints are of registered descriptors");
            let (at, bit) = position(fd);
            for (direction, found) in FOUND.into_iter().enumerate() {
                if event.events & found != 0 {
                    self.lines[at].hints[direction] |= bit;
                }
            }
            self.active.assign(at as RawFd, true);
            collected.hints = true;
        }
        Ok(collected)
    }

    /// Clears the hints of what the scan found, polls each, and remembers and delivers what is
    /// ready.
    fn probe(&mut self, events: &mut Events) -> io::Result<()> {
        self.probes.clear();
        for &Checked { line, members: checked } in &self.checked {
            let sets = &mut self.lines[line];
            for (direction, checked) in checked.into_iter().enumerate() {
                debug_assert!(checked & !sets.selected[direction] == 0, "only SEL is checked");
                sets.hints[direction] &= !checked;
                sets.interested[direction] |= sets.selected[direction];
                sets.ready[direction] &= !checked;
            }
            for fd in members(line, checked[READ] | checked[WRITE]) {
                let bit = position(fd).1;
                let read = if checked[READ] & bit != 0 { ASK[READ] } else { 0 };
                let write = if checked[WRITE] & bit != 0 { ASK[WRITE] } else { 0 };
                let asked = (read | write) as i16;
                self.probes.push(libc::pollfd { fd, events: asked, revents: 0 });
            }
        }
        debug_assert!(self.probes.is_sorted_by_key(|probe| probe.fd), "ascending");
        if self.probes.is_empty() {
            return Ok(());
        }
        self.counters.syscalls += 1;
        self.counters.probes += self.probes.len() as u64;
        sys::ppoll(&mut self.probes, Some(Duration::ZERO))?;
        self.remember();
        self.deliver(events);
        Ok(())
    }

    /// READY ∪= found.
    fn remember(&mut self) {
        for probe in &self.probes {
            let (at, bit) = position(probe.fd);
            let (asked, answered) = (probe.events as u16 as u32, probe.revents as u16 as u32);
            for direction in [READ, WRITE] {
                if asked & ASK[direction] != 0 && answered & FOUND[direction] != 0 {
                    self.lines[at].ready[direction] |= bit;
                }
            }
        }
    }

    /// All of READY ∩ SEL has just been probed, so the results are the events.
    fn deliver(&mut self, events: &mut Events) {
        let start = self.probes.partition_point(|probe| probe.fd < self.next);
        let (before, from) = self.probes.split_at(start);
        for probe in from.iter().chain(before).filter(|probe| probe.revents != 0) {
            if !events.has_room() {
                self.next = probe.fd;
                return;
            }
            let token = self.table.get(probe.fd).expect("what is checked is in the table");
            events.push(*token, Ready::from_poll_bits(probe.revents as u16 as u32));
        }
    }
}

impl Backend for ScalableSelect {
    const KIND: Kind = Kind::ScalableSelect;

    fn register(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.table.check_absent(fd)?;
        self.counters.syscalls += 1;
        self.hints.add(fd, HINT_BITS, fd as u64)?;
        self.table.insert(fd, token);
        self.select(fd, interest);
        Ok(())
    }

    fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        *self.table.known(fd)? = token;
        self.select(fd, interest);
        Ok(())
    }

    fn remove(&mut self, fd: RawFd) -> io::Result<()> {
        self.table.remove(fd)?;
        let (at, bit) = position(fd);
        let sets = &mut self.lines[at];
        for set in [&mut sets.selected, &mut sets.interested, &mut sets.ready, &mut sets.hints] {
            set[READ] &= !bit;
            set[WRITE] &= !bit;
        }
        self.counters.syscalls += 1;
        self.hints.delete(fd)
    }

    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        let mut deadline = None;
        loop {
            self.scan();
            let sleeps = self.checked.is_empty();
            let at_most = match (sleeps, timeout) {
                (false, _) => Some(Duration::ZERO),
                (true, Some(timeout)) if !timeout.is_zero() => {
                    let now = Instant::now();
                    let deadline = *deadline.get_or_insert_with(|| now.checked_add(timeout));
                    Some(deadline.map_or(timeout, |end| end.saturating_duration_since(now)))
                }
                (true, timeout) => timeout,
            };
            let collected = self.collect(at_most)?;
            if collected.hints {
                self.scan();
            }
            self.probe(events)?;
            let over = sleeps && !collected.hints;
            if over || collected.woken || !events.is_empty() {
                return Ok(());
            }
        }
    }
}
