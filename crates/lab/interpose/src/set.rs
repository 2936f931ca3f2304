//! The epoll set of a thread, and how it is updated to what a call wants.
//!
//! A call marks descriptors that differ from the last call ([`Region::compare_array`],
//! [`Region::compare_bitmaps`]) and those that may have a new file since
//! ([`Region::note_changes`]); [`Region::settle`] then does one step for each marked descriptor.
//! Each addition has a serial number, which is stored in epoll's events, so that events for a file
//! that has lost its number are recognised.

use libc::c_int;

use crate::changes::{self, Since};
use crate::front::{self, BLOCK, Bitmaps, Position};
use crate::limits::{FDS_MAX, POSITIONS_MAX, SAME_MAX};
use crate::own;
use crate::stats::{Counter, count};
use crate::sys;
use crate::thread::{Kind, Region, State};

/// What to do with a marked descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Nothing,
    /// Only update the events in our memory.
    Remember,
    Add,
    Modify,
    Remove,
    /// The number may have another file: remove the old one, add the new one.
    Replace,
    /// It is not in epoll: remove it from our memory.
    Forget,
}

fn step(state: State, mask: u16, wanted: Option<u16>, moved: bool) -> Step {
    match (state, wanted) {
        (State::Absent, None) => Step::Nothing,
        (State::Held, None) => Step::Remove,
        (State::Constant | State::Closed, None) => Step::Forget,
        (State::Absent | State::Closed, Some(_)) => Step::Add,
        (State::Held, Some(_)) if moved => Step::Replace,
        (State::Constant, Some(_)) if moved => Step::Add,
        (_, Some(events)) if events == mask => Step::Nothing,
        (State::Held, Some(_)) => Step::Modify,
        (State::Constant, Some(_)) => Step::Remember,
    }
}

/// The call cannot be boosted: the original must make it.
#[derive(Debug)]
pub(crate) struct Refused;

impl Region {
    /// Starts a wait of this kind. A set of the other kind cannot be reused.
    pub(crate) fn begin(&mut self, kind: Kind) -> Result<(), Refused> {
        self.changed = 0;
        self.slept = 0;
        if self.kind != kind || !self.own.is_ours() {
            if self.kind != Kind::None && self.kind != kind {
                // Alternating kinds at each call would cost more than it saves.
                self.churn.note(FDS_MAX, FDS_MAX);
            }
            self.empty();
            self.own = own::open().ok_or(Refused)?;
            self.kind = kind;
        }
        Ok(())
    }

    /// Marks what differs in poll's array from the last call, and clears its results.
    pub(crate) fn compare_array(&mut self, requested: &mut [Position]) -> Result<(), Refused> {
        let (before, now) = (self.len, requested.len());
        if now > POSITIONS_MAX {
            return Err(Refused);
        }
        let common = before.min(now);
        let mut from = 0;
        while from < now {
            let to = (from + BLOCK).min(now);
            let inside = to <= common;
            let (Some(block), Some(last)) = (requested.get_mut(from..to), self.last.get(from..to))
            else {
                return Err(Refused);
            };
            if front::clear_and_compare(block, last) || !inside {
                for (at, &position) in (from..to).zip(block.iter()) {
                    self.put_position(at, Some(position), at < before)?;
                }
            }
            from = to;
        }
        for at in now..before {
            self.put_position(at, None, true)?;
        }
        self.len = now;
        Ok(())
    }

    fn put_position(
        &mut self,
        at: usize,
        now: Option<Position>,
        was_there: bool,
    ) -> Result<(), Refused> {
        let Some(&last) = self.last.get(at) else { return Err(Refused) };
        let now = now.map(front::without_answer);
        if was_there && now == Some(last) {
            return Ok(());
        }
        if was_there && let Some(fd) = front::fd_of(last) {
            self.unlink(at, fd)?;
            self.mark(fd)?;
        }
        if let Some(position) = now {
            if let Some(fd) = front::fd_of(position) {
                let Some(entry) = self.entries.get_mut(fd) else { return Err(Refused) };
                let head = std::mem::replace(&mut entry.head, at as u32 + 1);
                if let Some(next) = self.next.get_mut(at) {
                    *next = head;
                }
                self.mark(fd)?;
            }
            if let Some(place) = self.last.get_mut(at) {
                *place = position;
            }
        }
        Ok(())
    }

    /// Removes a position from the list of its descriptor.
    fn unlink(&mut self, at: usize, fd: usize) -> Result<(), Refused> {
        let (Some(entry), Some(&after)) = (self.entries.get_mut(fd), self.next.get(at)) else {
            return Err(Refused);
        };
        let this = at as u32 + 1;
        if entry.head == this {
            entry.head = after;
            return Ok(());
        }
        let mut link = entry.head;
        for _ in 0..SAME_MAX {
            let Some(next) = self.next.get_mut((link as usize).wrapping_sub(1)) else { break };
            if *next == this {
                *next = after;
                return Ok(());
            }
            link = *next;
        }
        Err(Refused)
    }

    /// The positions with a descriptor.
    pub(crate) fn positions(&self, fd: usize) -> impl Iterator<Item = usize> {
        let mut link = self.entries.get(fd).map_or(0, |entry| entry.head);
        std::iter::from_fn(move || {
            let at = (link as usize).checked_sub(1)?;
            link = self.next.get(at).copied().unwrap_or(0);
            Some(at)
        })
        .take(POSITIONS_MAX)
    }

    /// Marks what differs in the bitmaps from the last call, word by word.
    pub(crate) fn compare_bitmaps(
        &mut self,
        requested: impl Fn(usize) -> [u64; 3],
        words: usize,
    ) -> Result<(), Refused> {
        for at in 0..words.max(self.words_len) {
            let now = if at < words { requested(at) } else { [0; 3] };
            let mut differs = 0;
            for (words, now) in self.words.iter_mut().zip(now) {
                let Some(word) = words.get_mut(at) else { return Err(Refused) };
                differs |= *word ^ now;
                *word = now;
            }
            for fd in front::members(at, differs) {
                self.mark(fd)?;
            }
        }
        self.words_len = words;
        Ok(())
    }

    /// Marks descriptors that may have another file since the last call, and those that were closed
    /// then.
    pub(crate) fn note_changes(&mut self) -> Result<(), Refused> {
        let (head, mut how) = changes::since(self.cursor);
        let mut at = self.cursor;
        while how == Since::Logged && at < head {
            match changes::logged(at) {
                Some(fd) => self.mark_if_known(fd)?,
                None => how = Since::Anything,
            }
            at += 1;
        }
        if how == Since::Anything {
            for fd in 0..self.highest {
                self.mark_if_known(fd)?;
            }
        }
        self.cursor = head;
        for at in 0..self.unheld_len {
            let Some(&fd) = self.unheld.get(at) else { break };
            if self.entries.get(fd as usize).is_some_and(|entry| entry.state == State::Closed) {
                self.mark(fd as usize)?;
            }
        }
        Ok(())
    }

    fn mark_if_known(&mut self, fd: usize) -> Result<(), Refused> {
        let moved = self.entries.get(fd).is_some_and(|entry| {
            entry.state != State::Absent && entry.generation != changes::generation(fd)
        });
        if moved { self.mark(fd) } else { Ok(()) }
    }

    fn mark(&mut self, fd: usize) -> Result<(), Refused> {
        let Some(entry) = self.entries.get_mut(fd) else { return Err(Refused) };
        if !entry.is_dirty {
            entry.is_dirty = true;
            let Some(place) = self.dirty.get_mut(self.dirty_len) else { return Err(Refused) };
            *place = fd as u32;
            self.dirty_len += 1;
        }
        Ok(())
    }

    /// Does one step for each marked descriptor, so that the set is what the call wants.
    pub(crate) fn settle(&mut self) -> Result<(), Refused> {
        self.changed = self.changed.max(self.dirty_len);
        for at in 0..self.dirty_len {
            let Some(&fd) = self.dirty.get(at) else { break };
            self.settle_one(fd as usize)?;
        }
        self.dirty_len = 0;
        let mut kept = 0;
        for at in 0..self.unheld_len {
            let Some(&fd) = self.unheld.get(at) else { break };
            let state = self.entries.get(fd as usize).map(|entry| entry.state);
            if let (Some(State::Constant | State::Closed), Some(place)) =
                (state, self.unheld.get_mut(kept))
            {
                *place = fd;
                kept += 1;
            }
        }
        self.unheld_len = kept;
        Ok(())
    }

    fn settle_one(&mut self, fd: usize) -> Result<(), Refused> {
        let wanted = self.wanted(fd);
        let Some(entry) = self.entries.get_mut(fd) else { return Err(Refused) };
        entry.is_dirty = false;
        let moved = entry.generation != changes::generation(fd);
        match step(entry.state, entry.mask, wanted, moved) {
            Step::Nothing => {}
            Step::Remember => entry.mask = wanted.unwrap_or(0),
            Step::Forget => entry.state = State::Absent,
            Step::Remove => self.remove(fd),
            Step::Add => self.add(fd, wanted.unwrap_or(0))?,
            Step::Replace => {
                self.remove(fd);
                self.add(fd, wanted.unwrap_or(0))?;
            }
            Step::Modify => {
                let (events, data) = (wanted.unwrap_or(0), data_of(fd, entry.serial));
                entry.mask = events;
                if self.control(libc::EPOLL_CTL_MOD, fd, events, data) != 0 {
                    // It has another file, although no change was seen.
                    self.remove(fd);
                    self.add(fd, events)?;
                }
            }
        }
        Ok(())
    }

    /// The events that the current call requests for a descriptor; `None` if it is not in the call.
    fn wanted(&self, fd: usize) -> Option<u16> {
        match self.kind {
            Kind::None => None,
            Kind::Poll => {
                let events = |at: usize| self.last.get(at).map_or(0, |&p| front::events_of(p));
                self.positions(fd).map(events).reduce(|all, one| all | one)
            }
            Kind::Select => {
                let (word, bit) = front::word_and_bit(fd);
                let member = |words: &[u64]| words.get(word).is_some_and(|word| word & bit != 0);
                let [read, write, except] = &self.words;
                front::events_of_sets(member(read), member(write), member(except))
            }
        }
    }

    pub(crate) fn remove(&mut self, fd: usize) {
        let Some(entry) = self.entries.get_mut(fd) else { return };
        if entry.is_held() {
            entry.state = State::Absent;
            self.held -= 1;
            // An error is expected: a close has already removed it.
            self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
        }
    }

    pub(crate) fn add(&mut self, fd: usize, events: u16) -> Result<(), Refused> {
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        // Read before epoll_ctl: the next call marks a change in between.
        let generation = changes::generation(fd);
        let data = data_of(fd, serial);
        let mut error = self.control(libc::EPOLL_CTL_ADD, fd, events, data);
        if error == libc::EEXIST {
            error = self.control(libc::EPOLL_CTL_MOD, fd, events, data);
        }
        let state = match error {
            0 => State::Held,
            libc::EPERM => State::Constant,
            libc::EBADF => State::Closed,
            _ => return Err(Refused),
        };
        let Some(entry) = self.entries.get_mut(fd) else { return Err(Refused) };
        let was = std::mem::replace(&mut entry.state, state);
        (entry.mask, entry.serial, entry.generation) = (events, serial, generation);
        self.highest = self.highest.max(fd + 1);
        self.held += usize::from(state == State::Held);
        let was_unheld = matches!(was, State::Constant | State::Closed);
        if state != State::Held && !was_unheld {
            let Some(place) = self.unheld.get_mut(self.unheld_len) else { return Err(Refused) };
            *place = fd as u32;
            self.unheld_len += 1;
        }
        Ok(())
    }

    /// Replaces the set after it has returned an impossible event.
    pub(crate) fn rebuild(&mut self) -> Result<(), Refused> {
        count(Counter::Rebuilds, 1);
        self.own.close();
        self.own = own::open().ok_or(Refused)?;
        self.held = 0;
        self.unheld_len = 0;
        for fd in 0..self.highest {
            let Some(entry) = self.entries.get_mut(fd) else { break };
            if entry.state != State::Absent {
                entry.state = State::Absent;
                self.mark(fd)?;
            }
        }
        self.settle()
    }

    fn control(&self, operation: c_int, fd: usize, events: u16, data: u64) -> c_int {
        count(Counter::EpollCtl, 1);
        let edge = if planted::is(planted::Bug::BoostEdge) { libc::EPOLLET as u32 } else { 0 };
        sys::epoll_ctl(self.own.fd, operation, fd as c_int, u32::from(events) | edge, data)
    }
}

/// The data stored in an epoll event.
fn data_of(fd: usize, serial: u32) -> u64 {
    (u64::from(serial) << 32) | fd as u64
}

/// The descriptor and the serial number of an event.
pub(crate) fn of_data(data: u64) -> (usize, u32) {
    (data as u32 as usize, (data >> 32) as u32)
}

const _: () = assert!(size_of::<Bitmaps>() == 3 * FDS_MAX / 8);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_the_right_step() {
        use State::{Absent, Closed, Constant, Held};
        for (state, mask, wanted, moved, expected) in [
            (Absent, 0, None, true, Step::Nothing),
            (Absent, 0, Some(1), false, Step::Add),
            (Absent, 1, Some(1), false, Step::Add),
            (Held, 1, Some(1), false, Step::Nothing),
            (Held, 1, Some(5), false, Step::Modify),
            (Held, 1, Some(1), true, Step::Replace),
            (Held, 1, None, true, Step::Remove),
            (Constant, 1, Some(1), false, Step::Nothing),
            (Constant, 1, Some(4), false, Step::Remember),
            (Constant, 1, Some(1), true, Step::Add),
            (Constant, 1, None, false, Step::Forget),
            (Closed, 1, Some(1), false, Step::Add),
            (Closed, 1, None, false, Step::Forget),
        ] {
            assert_eq!(step(state, mask, wanted, moved), expected, "{state:?} {wanted:?} {moved}");
        }
    }

    #[test]
    fn event_data_holds_descriptor_and_serial() {
        assert_eq!(of_data(data_of(65_535, u32::MAX)), (65_535, u32::MAX));
        assert_eq!(of_data(data_of(0, 7)), (0, 7));
    }
}
