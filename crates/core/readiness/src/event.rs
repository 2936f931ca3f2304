//! The types of the contract: token, interest, readiness, event.
//!
//! Plain values; nothing here makes a system call. The bits of [`Ready`] are laid out so that the
//! kernel's `POLLIN` and `POLLOUT` become a `Ready` by two masks and no branch. Invariant: a
//! `Ready` with `HANGUP` or `ERROR` in it also has `READABLE` and `WRITABLE`; one with
//! `READ_CLOSED` also has `READABLE`. The constructors keep it; no field is public.

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// Names one registration: one of the caller's slots and the generation of that slot.
///
/// The backends return it unread. A caller that keeps its slots in a [`crate::slots::SlotTable`]
/// finds no value for the event of an earlier owner of the slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token {
    /// < `Token::SLOT_RESERVED`
    slot: u32,
    generation: u32,
}

impl Token {
    /// The one slot number that no token may have: it marks the backends' wake descriptor.
    pub const SLOT_RESERVED: u32 = u32::MAX;

    /// A token for `slot` in its `generation`.
    ///
    /// # Panics
    /// If `slot` is [`Token::SLOT_RESERVED`].
    pub const fn new(slot: u32, generation: u32) -> Token {
        assert!(slot != Token::SLOT_RESERVED, "this slot number is reserved for the backends");
        Token { slot, generation }
    }

    /// Which slot.
    pub const fn slot(self) -> u32 {
        self.slot
    }

    /// Which of the slot's successive owners.
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// Slot in the upper half, generation in the lower.
    pub const fn to_u64(self) -> u64 {
        (self.slot as u64) << 32 | self.generation as u64
    }

    /// The inverse of [`Token::to_u64`].
    pub const fn from_u64(packed: u64) -> Token {
        debug_assert!(packed >> 32 != Token::SLOT_RESERVED as u64, "no token packs to this");
        Token { slot: (packed >> 32) as u32, generation: packed as u32 }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}.{})", self.slot, self.generation)
    }
}

/// `|` and `|=` for a set of bits.
macro_rules! bit_set {
    ($name:ident) => {
        impl BitOr for $name {
            type Output = $name;
            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }

        impl BitOrAssign for $name {
            fn bitor_assign(&mut self, other: $name) {
                self.0 |= other.0;
            }
        }
    };
}

bit_set!(Interest);
bit_set!(Ready);

/// The directions in which a registration wants events.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Interest(u8);

impl Interest {
    /// None: the registration stays and nothing is delivered, not even a hang-up.
    pub const NONE: Interest = Interest(0);
    /// When a read would not block.
    pub const READ: Interest = Interest(1);
    /// When a write would not block.
    pub const WRITE: Interest = Interest(2);
    /// In both directions.
    pub const BOTH: Interest = Interest(3);

    /// Whether every direction of `other` is in `self`.
    pub const fn contains(self, other: Interest) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether it has no direction.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The directions of `self` that are not in `other`.
    pub const fn without(self, other: Interest) -> Interest {
        Interest(self.0 & !other.0)
    }

    /// The bits to pass to poll(2). `POLLRDHUP` goes with reading: a registration that only writes
    /// gets no event when the peer stops sending.
    pub(crate) const fn poll_bits(self) -> u32 {
        let read = if self.contains(Interest::READ) { POLL_IN | POLL_RDHUP } else { 0 };
        let write = if self.contains(Interest::WRITE) { POLL_OUT } else { 0 };
        read | write
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(["NONE", "READ", "WRITE", "BOTH"][usize::from(self.0)])
    }
}

/// What is ready. `READABLE` and `WRITABLE` are the contract. A backend may not know the other
/// three (select(2) never does), so never wait for one of them alone: the end of a stream is found
/// by reading it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Ready(u8);

impl Ready {
    /// Nothing.
    pub const NONE: Ready = Ready(0);
    /// A read would not block: there are bytes, a connection to accept, the end, or an error.
    pub const READABLE: Ready = Ready(1);
    /// A write would not block: there is room, or an error to fetch.
    pub const WRITABLE: Ready = Ready(2);
    /// The peer sends no more (FIN). Unread bytes may still precede the end.
    pub const READ_CLOSED: Ready = Ready(4 | 1);
    /// Both directions are shut.
    pub const HANGUP: Ready = Ready(8 | 1 | 2);
    /// An error is pending.
    pub const ERROR: Ready = Ready(16 | 1 | 2);

    /// Whether all of `other` is in `self`.
    pub const fn has(self, other: Ready) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether nothing is ready.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether each rare bit has the directions that it implies.
    pub(crate) fn is_sound(self) -> bool {
        let of = |of: Ready, bit: u8| self.0 & bit == 0 || self.has(of);
        of(Ready::READ_CLOSED, 4) && of(Ready::HANGUP, 8) && of(Ready::ERROR, 16)
    }

    /// Whether a registration with this interest gets an event.
    pub const fn concerns(self, interest: Interest) -> bool {
        self.0 & interest.0 != 0
    }

    /// What a registration with this interest gets of a level: the directions of the interest, and
    /// in any case hang-up and error (with both directions).
    pub(crate) const fn narrowed_to(self, interest: Interest) -> Ready {
        const SHUT: u8 = 8 | 16;
        if !self.concerns(interest) {
            Ready::NONE
        } else if self.0 & SHUT != 0 {
            self
        } else if interest.contains(Interest::READ) {
            Ready(self.0 & (4 | interest.0))
        } else {
            Ready(self.0 & interest.0)
        }
    }

    /// From what poll(2), epoll or io_uring report (one set of bits on Linux).
    #[inline]
    pub(crate) const fn from_poll_bits(bits: u32) -> Ready {
        let plain = Ready((bits & POLL_IN) as u8 | (bits & POLL_OUT) as u8 >> 1);
        if bits & !(POLL_IN | POLL_OUT) == 0 { plain } else { plain.with_rare(bits) }
    }

    /// The bits that the hot path does not meet.
    #[cold]
    const fn with_rare(self, bits: u32) -> Ready {
        let mut ready = self.0;
        if bits & POLL_RDHUP != 0 {
            ready |= Ready::READ_CLOSED.0;
        }
        if bits & POLL_HUP != 0 {
            ready |= Ready::HANGUP.0 | Ready::READ_CLOSED.0;
        }
        if bits & (POLL_ERR | POLL_NVAL) != 0 {
            ready |= Ready::ERROR.0;
        }
        Ready(ready)
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 5] = ["READABLE", "WRITABLE", "READ_CLOSED", "HANGUP", "ERROR"];
        let mut names = NAMES.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 == 1);
        match names.next() {
            None => f.write_str("NONE"),
            Some((_, first)) => {
                f.write_str(first)?;
                names.try_for_each(|(_, name)| write!(f, "|{name}"))
            }
        }
    }
}

// The bits of poll(2); epoll and io_uring use the same values on Linux.
pub(crate) const POLL_IN: u32 = libc::POLLIN as u32;
pub(crate) const POLL_OUT: u32 = libc::POLLOUT as u32;
pub(crate) const POLL_RDHUP: u32 = libc::POLLRDHUP as u32;
pub(crate) const POLL_HUP: u32 = libc::POLLHUP as u32;
pub(crate) const POLL_ERR: u32 = libc::POLLERR as u32;
pub(crate) const POLL_NVAL: u32 = libc::POLLNVAL as u32;

const _: () = {
    assert!(POLL_IN == 1 && POLL_OUT == 4, "from_poll_bits shifts by this layout");
    assert!(POLL_IN == libc::EPOLLIN as u32 && POLL_OUT == libc::EPOLLOUT as u32);
    assert!(POLL_RDHUP == libc::EPOLLRDHUP as u32 && POLL_HUP == libc::EPOLLHUP as u32);
    assert!(POLL_ERR == libc::EPOLLERR as u32);
};

/// One delivery: a registration and what it is ready for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// The registration.
    pub token: Token,
    /// What it is ready for. Never empty.
    pub ready: Ready,
}

/// The buffer that [`crate::Poller::wait`] fills: made once, used for every wait.
///
/// Its capacity bounds what one wait delivers. A later wait delivers the rest; a descriptor that
/// stays ready is not starved by others that do.
#[derive(Debug)]
pub struct Events {
    /// `list.len() <= capacity`
    list: Vec<Event>,
    /// >= 1
    capacity: usize,
}

impl Events {
    /// Room for `capacity` events (at least one).
    pub fn with_capacity(capacity: usize) -> Events {
        let capacity = capacity.clamp(1, i32::MAX as usize);
        Events { list: Vec::with_capacity(capacity), capacity }
    }

    /// The events of the last wait, in no particular order.
    pub fn iter(&self) -> std::iter::Copied<std::slice::Iter<'_, Event>> {
        self.list.iter().copied()
    }

    /// How many the last wait delivered.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the last wait delivered none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Removes all; `wait` does so at its start.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    /// How many one wait delivers at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn has_room(&self) -> bool {
        self.list.len() < self.capacity
    }

    /// The caller has checked that there is room.
    #[inline]
    pub(crate) fn push(&mut self, token: Token, ready: Ready) {
        debug_assert!(self.has_room() && !ready.is_empty() && ready.is_sound());
        self.list.push(Event { token, ready });
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = Event;
    type IntoIter = std::iter::Copied<std::slice::Iter<'a, Event>>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_survives_packing() {
        for (slot, generation) in [(0, 0), (1, u32::MAX), (u32::MAX - 1, 7)] {
            let token = Token::new(slot, generation);
            assert_eq!(Token::from_u64(token.to_u64()), token);
            assert_eq!((token.slot(), token.generation()), (slot, generation));
        }
    }

    #[test]
    fn kernel_bits_become_ready() {
        let ready = Ready::from_poll_bits;
        assert_eq!(ready(0), Ready::NONE);
        assert_eq!(ready(POLL_IN), Ready::READABLE);
        assert_eq!(ready(POLL_OUT), Ready::WRITABLE);
        assert_eq!(ready(POLL_IN | POLL_OUT), Ready::READABLE | Ready::WRITABLE);
        assert_eq!(ready(POLL_RDHUP), Ready::READ_CLOSED);
        assert_eq!(ready(POLL_HUP), Ready::HANGUP | Ready::READ_CLOSED);
        assert_eq!(ready(POLL_ERR), Ready::ERROR);
        assert_eq!(ready(POLL_NVAL), Ready::ERROR);
    }

    #[test]
    fn narrowing_keeps_the_directions_of_the_interest() {
        let all = Ready::READ_CLOSED | Ready::WRITABLE;
        assert_eq!(all.narrowed_to(Interest::NONE), Ready::NONE);
        assert_eq!(all.narrowed_to(Interest::READ), Ready::READ_CLOSED);
        assert_eq!(all.narrowed_to(Interest::WRITE), Ready::WRITABLE);
        assert_eq!(all.narrowed_to(Interest::BOTH), all);
        assert_eq!(Ready::HANGUP.narrowed_to(Interest::READ), Ready::HANGUP);
        assert_eq!(Ready::ERROR.narrowed_to(Interest::NONE), Ready::NONE);
        assert_eq!(Ready::WRITABLE.narrowed_to(Interest::READ), Ready::NONE);
    }

    #[test]
    fn debug_names_the_bits() {
        assert_eq!(format!("{:?}", Ready::NONE), "NONE");
        assert_eq!(format!("{:?}", Ready::HANGUP), "READABLE|WRITABLE|HANGUP");
        assert_eq!(format!("{:?}", Interest::BOTH), "BOTH");
        assert_eq!(format!("{:?}", Token::new(3, 1)), "Token(3.1)");
    }
}
