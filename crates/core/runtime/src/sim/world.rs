//! The simulated world of one core: its network, its disk, its clocks, and the trace of events.
//!
//! What: [`Net`] implements the calls that `sys::real` makes to the system.
//! What never happens: a function here waits. Time moves only in [`World::advance`], which the
//! poller calls where a real one would sleep.

use std::cell::{Cell, RefCell, RefMut};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use readiness::simulated::Levels;

use super::disk::{Disk, FileHandle};
use super::error::error;
use super::net::{Net, START_NS};
use super::options::Options;

/// The duration of a turn of the loop that does not sleep. Without it, a task that polls the clock
/// would never see it move.
const BUSY_TURN_NS: u64 = 1_000;

/// Makes the disk's random numbers independent of the network's.
const DISK_SEED: u64 = 0x6469_736b;

/// The simulated world of one core.
pub(crate) struct World {
    net: RefCell<Net>,
    disk: Disk,
    idle: Cell<bool>,
}

impl World {
    /// The network, which implements the calls of [`crate::sys::World`].
    pub(crate) fn net(&self) -> RefMut<'_, Net> {
        self.net.borrow_mut()
    }

    pub(crate) fn new(options: Options, levels: Levels) -> World {
        let disk = options.disk.clone().unwrap_or_else(|| Disk::new(options.seed ^ DISK_SEED));
        World { net: RefCell::new(Net::new(options, levels)), disk, idle: Cell::new(false) }
    }

    /// The core computes for this long: time passes without events.
    pub(crate) fn burn(&self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut net = self.net.borrow_mut();
        net.burned_ns = net.burned_ns.saturating_add(ns);
        net.now_ns = net.now_ns.saturating_add(ns);
    }

    /// Moves virtual time to the next event, at most `at_most` far. False if there was no event.
    pub(crate) fn advance(&self, at_most: Option<Duration>) -> bool {
        let mut net = self.net.borrow_mut();
        let end = at_most.map(|at_most| {
            let ns = u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX);
            net.now_ns.saturating_add(ns.max(BUSY_TURN_NS))
        });
        if net.process_until(end) {
            return true;
        }
        self.idle.set(at_most.is_none());
        false
    }

    /// True once after [`World::advance`] found that no further event is scheduled.
    pub(crate) fn take_idle(&self) -> bool {
        self.idle.replace(false)
    }

    pub(crate) fn outside_wait(&self) -> Duration {
        self.net.borrow().options.outside_wait
    }

    pub(crate) fn describe(&self) -> String {
        let net = self.net.borrow();
        let elapsed_ms = (net.now_ns - START_NS) / 1_000_000;
        format!("seed {}, after {elapsed_ms} ms of virtual time", net.options.seed)
    }

    pub(crate) fn trace_hash(&self) -> u64 {
        self.net.borrow().trace.hash()
    }

    pub(crate) fn trace_tail(&self) -> String {
        self.net.borrow().trace.tail(START_NS)
    }

    pub(crate) fn connect_from(&self, address: IpAddr) {
        self.net.borrow_mut().connect_from(address);
    }

    pub(crate) fn crash_connections(&self, address: SocketAddr) {
        self.net.borrow_mut().crash_connections(address);
    }
}

thread_local! {
    /// The end of the trace of the last world that was dropped by a panic.
    static LAST_TRACE: RefCell<String> = const { RefCell::new(String::new()) };
}

pub(super) fn clear_last_trace() {
    LAST_TRACE.with_borrow_mut(String::clear);
}

pub(super) fn last_trace() -> String {
    LAST_TRACE.with_borrow(String::clone)
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let words = self.net.get_mut().trace.tail(START_NS);
            // If the thread is ending, no code will read them.
            drop(LAST_TRACE.try_with(|last| last.replace(words)));
        }
    }
}

impl World {
    /// Draws the order of simultaneous events.
    pub(crate) fn shuffle<T>(&self, things: &mut [T]) {
        let rng = &mut self.net.borrow_mut().rng;
        for last in (1..things.len()).rev() {
            things.swap(last, rng.below(last as u64 + 1) as usize);
        }
    }
}

/// The disk.
impl World {
    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    /// How long the next disk operation takes.
    pub(crate) fn draw_disk_delay_ns(&self) -> u64 {
        let mut net = self.net.borrow_mut();
        let range = net.options.disk_delay.clone();
        net.draw(&range)
    }

    pub(crate) fn trace(&self, what: &'static str, which: u64, amount: usize) {
        self.net.borrow_mut().trace(what, which, amount);
    }

    pub(crate) fn read_file(
        &self,
        file: &FileHandle,
        buf: &mut [u8],
        offset: u64,
    ) -> io::Result<usize> {
        let mut net = self.net.borrow_mut();
        let fails = net.options.disk_error;
        if net.rng.chance(fails) {
            net.trace("read file: error", 0, 0);
            return error(libc::EIO);
        }
        let asked = net.short_read(buf.len());
        let read = file.read(&mut buf[..asked], offset);
        net.trace("read file", offset, *read.as_ref().unwrap_or(&0));
        read
    }
}
