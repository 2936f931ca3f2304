//! No kernel: descriptors are numbers, and the program sets their levels and moves time.
//!
//! A simulated network writes the [`Levels`] table; the backend only reads it. Where another
//! backend would sleep, this one calls the hook of [`Levels::set_advance`]. No real time passes and
//! no system call is made, so that a run depends only on its seed. Closing a descriptor that is
//! still registered breaks the contract; this backend can see it and panics.

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

use crate::slots::SlotBitmap;
use crate::table::FdTable;
use crate::wake::WakeEnd;
use crate::{Backend, Counters, Events, Interest, Kind, Ready, Token};

/// Simulated descriptors are numbered from here: no real one is so high.
pub const FIRST_FD: RawFd = 1_000_000;

/// How many simulated descriptors there can be at once.
const DESCRIPTORS_MAX: u32 = 1 << 20;

/// Moves virtual time to the next event, at most this far (`None`: no limit). False: the time-out
/// was reached, or no event will ever happen.
pub type Advance = Box<dyn FnMut(Option<Duration>) -> bool>;

/// The simulated descriptors and what each is ready for. Clones share one table.
#[derive(Clone, Default)]
pub struct Levels {
    table: Rc<RefCell<LevelTable>>,
}

#[derive(Default)]
struct LevelTable {
    used: Option<SlotBitmap>,
    /// By slot: `levels.len()` slots were ever used.
    levels: Vec<Level>,
    /// The slots whose level is not empty.
    raised: std::collections::BTreeSet<u32>,
    advance: Option<Advance>,
}

#[derive(Clone, Copy, Default)]
struct Level {
    ready: Ready,
    /// How many pollers have it registered.
    registered: u32,
}

impl Levels {
    /// A table without descriptors.
    pub fn new() -> Levels {
        Levels::default()
    }

    /// Opens the lowest free number from [`FIRST_FD`] up, not ready for anything.
    ///
    /// # Panics
    /// If there are 2^20 already.
    pub fn open(&self) -> RawFd {
        let table = &mut *self.table.borrow_mut();
        let used = table.used.get_or_insert_with(|| SlotBitmap::with_limit(DESCRIPTORS_MAX));
        let slot = used.take_lowest().expect("a simulation stays within its limit of descriptors");
        if slot as usize == table.levels.len() {
            table.levels.push(Level::default());
        }
        FIRST_FD + slot as RawFd
    }

    /// Sets what `fd` is ready for.
    ///
    /// # Panics
    /// If `fd` is not open.
    pub fn set(&self, fd: RawFd, level: Ready) {
        let table = &mut *self.table.borrow_mut();
        let slot = table.slot(fd);
        debug_assert!(level.is_sound());
        table.levels[slot as usize].ready = level;
        if level.is_empty() {
            table.raised.remove(&slot);
        } else {
            table.raised.insert(slot);
        }
    }

    /// What `fd` is ready for.
    ///
    /// # Panics
    /// If `fd` is not open.
    pub fn get(&self, fd: RawFd) -> Ready {
        let table = self.table.borrow();
        table.levels[table.slot(fd) as usize].ready
    }

    /// Frees the number.
    ///
    /// # Panics
    /// If `fd` is not open, or still registered with a poller.
    pub fn close(&self, fd: RawFd) {
        self.set(fd, Ready::NONE);
        let table = &mut *self.table.borrow_mut();
        let slot = table.slot(fd);
        assert!(table.levels[slot as usize].registered == 0, "{fd} is removed before it is closed");
        table.used.as_mut().expect("an open descriptor is in it").free(slot);
    }

    /// Sets the hook that replaces sleeping; it may use this table freely.
    pub fn set_advance(&self, advance: Advance) {
        self.table.borrow_mut().advance = Some(advance);
    }

    /// Runs the hook while the table is not borrowed. False: there is no hook, or it returned
    /// false.
    fn advance(&self, at_most: Option<Duration>) -> bool {
        let Some(mut advance) = self.table.borrow_mut().advance.take() else { return false };
        let moved = advance(at_most);
        self.table.borrow_mut().advance.get_or_insert(advance);
        moved
    }

    fn count_registration(&self, fd: RawFd, add: i32) {
        let table = &mut *self.table.borrow_mut();
        let slot = table.slot(fd) as usize;
        let level = &mut table.levels[slot];
        level.registered =
            level.registered.checked_add_signed(add).expect("what is removed was registered");
    }

    fn is_open(&self, fd: RawFd) -> bool {
        self.table.borrow().find(fd).is_some()
    }
}

impl LevelTable {
    fn find(&self, fd: RawFd) -> Option<u32> {
        let slot = u32::try_from(fd.checked_sub(FIRST_FD)?).ok()?;
        self.used.as_ref()?.is_taken(slot).then_some(slot)
    }

    fn slot(&self, fd: RawFd) -> u32 {
        self.find(fd).unwrap_or_else(|| panic!("{fd} is an open simulated descriptor"))
    }
}

impl fmt::Debug for Levels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raised = self.table.borrow().raised.len();
        f.debug_struct("Levels").field("raised", &raised).finish_non_exhaustive()
    }
}

/// See the module docs.
pub(crate) struct Simulated {
    levels: Levels,
    table: FdTable<(Token, Interest)>,
    /// Where the next wait starts, so that none starves when the events overflow.
    next: u32,
    pub(crate) wake: WakeEnd,
    pub(crate) counters: Counters,
}

impl Simulated {
    pub(crate) fn new(levels: Levels) -> Simulated {
        Simulated {
            levels,
            table: FdTable::from_base(FIRST_FD),
            next: 0,
            wake: WakeEnd::flag_only(),
            counters: Counters::default(),
        }
    }

    /// Delivers the raised levels that match an interest.
    fn look(&mut self, events: &mut Events) {
        let table = self.levels.table.borrow();
        for &slot in table.raised.range(self.next..).chain(table.raised.range(..self.next)) {
            let Some((token, interest)) = self.table.get(FIRST_FD + slot as RawFd) else {
                continue;
            };
            let ready = table.levels[slot as usize].ready.narrowed_to(*interest);
            if ready.is_empty() {
                continue;
            }
            if !events.has_room() {
                self.next = slot;
                return;
            }
            events.push(*token, ready);
        }
    }
}

impl Backend for Simulated {
    const KIND: Kind = Kind::Simulated;

    fn register(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        self.table.check_absent(fd)?;
        if !self.levels.is_open(fd) {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        self.levels.count_registration(fd, 1);
        self.table.insert(fd, (token, interest));
        Ok(())
    }

    fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        *self.table.known(fd)? = (token, interest);
        Ok(())
    }

    fn remove(&mut self, fd: RawFd) -> io::Result<()> {
        self.table.remove(fd)?;
        self.levels.count_registration(fd, -1);
        Ok(())
    }

    /// Calls the hook while nothing is ready. With a finite time-out it is called once, because
    /// only the hook's owner knows how much of the time-out remains afterwards.
    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        loop {
            self.look(events);
            if self.wake.take_edge() || !events.is_empty() {
                return Ok(());
            }
            if !self.levels.advance(timeout) {
                return Ok(());
            }
            if timeout.is_some() {
                self.look(events);
                self.wake.take_edge();
                return Ok(());
            }
        }
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        for (fd, _) in self.table.iter() {
            self.levels.count_registration(fd, -1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::Poller;

    const TOKEN: Token = Token::new(1, 1);

    #[test]
    fn the_hook_moves_time_until_something_is_ready() {
        let levels = Levels::new();
        let mut poller = Poller::simulated(levels.clone());
        let fd = levels.open();
        poller.register(fd, TOKEN, Interest::READ).unwrap();
        let now_ms = Rc::new(Cell::new(0));
        let (hook_levels, hook_now) = (levels.clone(), Rc::clone(&now_ms));
        levels.set_advance(Box::new(move |at_most| {
            assert_eq!(at_most, None);
            hook_now.set(hook_now.get() + 10);
            if hook_now.get() == 50 {
                hook_levels.set(fd, Ready::READABLE);
            }
            true
        }));
        let mut events = Events::with_capacity(1);
        poller.wait(&mut events, None).unwrap();
        assert_eq!((events.len(), now_ms.get()), (1, 50));
        poller.wait(&mut events, None).unwrap();
        assert_eq!((events.len(), now_ms.get()), (1, 50), "no time passes while it is ready");
    }

    #[test]
    fn a_time_out_or_the_lack_of_further_events_ends_the_wait() {
        let levels = Levels::new();
        let mut poller = Poller::simulated(levels.clone());
        let mut events = Events::with_capacity(1);
        poller.wait(&mut events, None).unwrap();
        let calls = Rc::new(Cell::new(0));
        let hook_calls = Rc::clone(&calls);
        levels.set_advance(Box::new(move |at_most| {
            hook_calls.set(hook_calls.get() + 1);
            assert_eq!(at_most, Some(Duration::from_millis(7)));
            true
        }));
        poller.wait(&mut events, Some(Duration::from_millis(7))).unwrap();
        assert_eq!(calls.get(), 1, "the caller knows how much of the time-out remains");
        assert!(events.is_empty());
    }

    #[test]
    fn a_wake_from_within_the_hook_ends_the_wait() {
        let levels = Levels::new();
        let mut poller = Poller::simulated(levels.clone());
        let waker = poller.waker().unwrap();
        levels.set_advance(Box::new(move |_| {
            waker.wake();
            true
        }));
        let mut events = Events::with_capacity(1);
        poller.wait(&mut events, None).unwrap();
        assert!(events.is_empty());
    }

    #[test]
    fn numbers_are_the_lowest_free() {
        let levels = Levels::new();
        let numbers: Vec<_> = (0..3).map(|_| levels.open() - FIRST_FD).collect();
        assert_eq!(numbers, [0, 1, 2]);
        levels.set(FIRST_FD + 1, Ready::READABLE);
        levels.close(FIRST_FD + 1);
        assert_eq!(levels.open(), FIRST_FD + 1);
        assert_eq!(levels.get(FIRST_FD + 1), Ready::NONE);
    }

    #[test]
    #[should_panic(expected = "removed before it is closed")]
    fn closing_what_is_registered_panics() {
        let levels = Levels::new();
        let mut poller = Poller::simulated(levels.clone());
        let fd = levels.open();
        poller.register(fd, TOKEN, Interest::READ).unwrap();
        levels.close(fd);
    }

    #[test]
    fn dropping_a_poller_removes_its_registrations() {
        let levels = Levels::new();
        let mut poller = Poller::simulated(levels.clone());
        let fd = levels.open();
        poller.register(fd, TOKEN, Interest::READ).unwrap();
        drop(poller);
        levels.close(fd);
    }
}
