//! Descriptors and readiness: which task waits for which socket, and what the poller watches.
//!
//! What: each open socket has a slot: what the poller watches (`armed`), readiness that it has
//! reported and no operation has consumed (`ready`), and the waker of the reader. Tasks rarely wait
//! to write, so their wakers are in a separate table. That keeps a slot at a quarter of a cache
//! line, and it never spans two: when ten thousand connections are active in turn, each slot is a
//! cache miss.
//! Who owns: the core owns the slots; a [`Socket`] owns its slot and its descriptor.
//!
//! The life of one direction:
//!
//! ```text
//!            wait: arm                   event
//!   idle ---------------> armed, waiting -------> armed, ready ---- task reads, short ----+
//!    ^                         ^                                                          |
//!    |                         +------------------- wait: nothing to do ------------------+
//!    +--- event that no task waits for: remembered as ready, and masked
//! ```
//!
//! A keep-alive connection goes around the inner circle: its interest stays armed, and a request
//! costs its share of one wait, one recv and one send. Interest is masked only when an event
//! arrives that no task waits for (the poller is level-triggered and would repeat it for ever). A
//! descriptor without interest is removed from the poller, because hang-ups and errors are reported
//! for every descriptor that is in it.
//!
//! An operation clears `ready` when it would block, or when a read or write is short. After a full
//! read it stays, because there may be more.
//! What never happens: an event is lost. Readiness that was cleared while there is more to read is
//! reported again, because the interest is still armed or the next wait arms it.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use readiness::slots::SlotBitmap;
use readiness::{Event, Interest, Poller, Ready, Token};

use crate::core::Core;
use crate::counters::count;
use crate::packed_waker::PackedWaker;
use crate::sys::World;

/// Descriptors open on one core at a time.
const DESCRIPTORS_MAX: u32 = 1 << 20;

/// One of the two directions of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Read,
    Write,
}

impl Direction {
    fn bit(self) -> u8 {
        match self {
            Direction::Read => READ,
            Direction::Write => WRITE,
        }
    }
}

// Bits of `armed` and of `ready`; all but the first two only of `ready`.
const READ: u8 = 1;
const WRITE: u8 = 2;
/// The peer has closed its direction: every later read returns at once.
const READ_CLOSED: u8 = 4;
/// Both directions are finished: the poller has nothing more to report.
const FINISHED: u8 = 8;
/// The system has reported a failure. It does so once, to the first operation, which may be a
/// write; every later read sees an ordinary end.
const FAILED: u8 = 16;
const READY: u8 = READ | WRITE | READ_CLOSED | FINISHED | FAILED;
/// A task waits to write: `writers` has the slot.
const HAS_WRITER: u8 = 32;
const _: () = assert!(READY == 31 && READY & HAS_WRITER == 0, "each has its bit");

fn interest(bits: u8) -> Interest {
    match bits & (READ | WRITE) {
        READ => Interest::READ,
        WRITE => Interest::WRITE,
        0 => Interest::NONE,
        _ => Interest::BOTH,
    }
}

fn bits_of(ready: Ready) -> u8 {
    let mut bits = 0;
    if ready.has(Ready::READABLE) {
        bits |= READ;
    }
    if ready.has(Ready::WRITABLE) {
        bits |= WRITE;
    }
    if ready.has(Ready::READ_CLOSED) {
        bits |= READ | READ_CLOSED;
    }
    if ready.has(Ready::ERROR) {
        bits |= READ | WRITE;
    }
    if ready.has(Ready::HANGUP) {
        bits |= READ | WRITE | FINISHED;
    }
    bits
}

/// The slot of a socket.
struct IoSlot {
    reader: Option<PackedWaker>,
    /// `NO_FD`: the slot is free.
    fd: RawFd,
    /// Which of the successive sockets of the slot. The poller reports nothing for a socket after
    /// its removal. So a stale event can only be of the same wait, and few bits are enough.
    generation: u16,
    /// What the poller watches; 0: the descriptor is not in the poller.
    armed: u8,
    /// The bits of `READY` that were reported, and `HAS_WRITER`.
    bits: u8,
}

const NO_FD: RawFd = -1;
const _: () = assert!(size_of::<IoSlot>() == 16, "a cold connection pays for it");

impl IoSlot {
    fn ready(&self) -> u8 {
        self.bits & READY
    }

    fn set_ready(&mut self, ready: u8) {
        debug_assert!(ready & !READY == 0, "each bit is named");
        self.bits = self.bits & !READY | ready;
    }

    fn has_writer(&self) -> bool {
        self.bits & HAS_WRITER != 0
    }
}

/// The slots of the sockets of a core, the lowest first. A socket has its slot until it is dropped.
struct IoSlots {
    taken: SlotBitmap,
    /// `slots[slot].fd` is not `NO_FD` exactly if `taken` has `slot` taken.
    slots: Vec<IoSlot>,
}

impl IoSlots {
    /// Takes a slot for `fd`; `None` if too many are taken.
    fn insert(&mut self, fd: RawFd, ready: u8) -> Option<u32> {
        debug_assert!(fd >= 0 && ready & !READY == 0);
        let slot = self.taken.take_lowest()?;
        if slot as usize == self.slots.len() {
            self.slots.push(IoSlot { reader: None, fd: NO_FD, generation: 0, armed: 0, bits: 0 });
        }
        let free = &mut self.slots[slot as usize];
        debug_assert!(free.fd == NO_FD && free.reader.is_none(), "a free slot has no socket");
        (free.fd, free.armed, free.bits) = (fd, 0, ready);
        Some(slot)
    }

    /// The slot of a socket.
    fn of(&mut self, socket: &Socket) -> &mut IoSlot {
        let slot = &mut self.slots[socket.slot as usize];
        debug_assert!(slot.fd == socket.fd, "a socket has its slot until it is dropped");
        slot
    }

    /// The slot of an event; `None` if its socket was dropped.
    fn of_token(&mut self, token: Token) -> Option<&mut IoSlot> {
        let slot = self.slots.get_mut(token.slot() as usize)?;
        (u32::from(slot.generation) == token.generation() && slot.fd != NO_FD).then_some(slot)
    }

    /// Frees the slot of a socket.
    fn free(&mut self, socket: &Socket) {
        let slot = self.of(socket);
        debug_assert!(slot.reader.is_none() && !slot.has_writer(), "no task waits any more");
        slot.fd = NO_FD;
        slot.generation = slot.generation.wrapping_add(1);
        let was_taken = self.taken.free(socket.slot);
        assert!(was_taken, "a socket has its slot until it is dropped");
    }
}

/// The poller of a core and the slots of its descriptors.
pub(crate) struct Io {
    pub(crate) poller: Poller,
    slots: IoSlots,
    /// Wakers of tasks that wait to write, by slot.
    writers: HashMap<u32, Waker>,
}

impl Io {
    pub(crate) fn new(poller: Poller) -> Self {
        let taken = SlotBitmap::with_limit(DESCRIPTORS_MAX);
        Io { poller, slots: IoSlots { taken, slots: Vec::new() }, writers: HashMap::new() }
    }
}

/// Removes the waker of the task that waits to write, if there is one.
fn take_writer(writers: &mut HashMap<u32, Waker>, slot: &mut IoSlot, at: u32) -> Option<Waker> {
    let writer = if slot.has_writer() { writers.remove(&at) } else { None };
    slot.bits &= !HAS_WRITER;
    debug_assert!(!writers.contains_key(&at), "a slot without the flag has no writer");
    writer
}

impl Core {
    /// Records an event. Returns the wakers of the tasks that waited for it. Wake them only when
    /// nothing is borrowed any more.
    pub(crate) fn deliver(&self, event: Event) -> (Option<PackedWaker>, Option<Waker>) {
        let io = &mut *self.io.borrow_mut();
        let (token, at) = (event.token, event.token.slot());
        let Some(slot) = io.slots.of_token(token) else { return (None, None) };
        let found = bits_of(event.ready);
        slot.set_ready(slot.ready() | found);
        debug_assert!(slot.armed & !(READ | WRITE) == 0, "only directions are watched");
        debug_assert!(slot.has_writer() == io.writers.contains_key(&at));
        let reader = if found & READ != 0 { slot.reader.take() } else { None };
        let writer = if found & WRITE != 0 { take_writer(&mut io.writers, slot, at) } else { None };
        let mut keep = slot.armed;
        if found & READ != 0 && reader.is_none() {
            keep &= !READ;
        }
        if found & WRITE != 0 && writer.is_none() {
            keep &= !WRITE;
        }
        if found & FINISHED != 0 {
            keep = 0;
        }
        debug_assert!(keep & !slot.armed == 0, "an event masks interest and adds none");
        self.arm(&mut io.poller, slot, at, keep)
            .expect("the poller takes a change of a descriptor that it watches");
        (reader, writer)
    }

    /// Makes the poller watch `bits` of the descriptor of the slot at `at`.
    fn arm(&self, poller: &mut Poller, slot: &mut IoSlot, at: u32, bits: u8) -> io::Result<()> {
        debug_assert!(bits & !(READ | WRITE) == 0, "only directions are watched");
        let token = Token::new(at, slot.generation.into());
        match (slot.armed, bits) {
            (before, after) if before == after => return Ok(()),
            (0, after) => {
                count(&self.counters.registers);
                poller.register(slot.fd, token, interest(after))?;
            }
            (_, 0) => {
                count(&self.counters.removes);
                poller.remove(slot.fd)?;
            }
            (_, after) => {
                count(&self.counters.changes);
                poller.change(slot.fd, token, interest(after))?;
            }
        }
        slot.armed = bits;
        Ok(())
    }
}

/// A non-blocking descriptor on a core. Dropping it takes it out of the poller and closes it.
pub(crate) struct Socket {
    core: Rc<Core>,
    slot: u32,
    /// Also in the slot, which is not read for it.
    fd: RawFd,
}

const _: () = assert!(size_of::<Socket>() == 16, "a cold connection pays for it");

impl Socket {
    /// Takes ownership of `fd`. `writable` says that the socket is assumed to be writable, so that
    /// the first wait for that costs nothing.
    pub(crate) fn new(core: Rc<Core>, fd: RawFd, writable: bool) -> io::Result<Socket> {
        let ready = if writable { WRITE } else { 0 };
        let slot = core.io.borrow_mut().slots.insert(fd, ready);
        match slot {
            Some(slot) => Ok(Socket { core, slot, fd }),
            None => {
                core.world.close(fd);
                Err(io::Error::from_raw_os_error(libc::EMFILE))
            }
        }
    }

    pub(crate) fn core(&self) -> &Rc<Core> {
        &self.core
    }

    pub(crate) fn world(&self) -> &World {
        &self.core.world
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.fd
    }

    /// Waits until `direction` is ready. One task may wait for each direction; the last one to poll
    /// is woken.
    pub(crate) fn poll_ready(
        &self,
        cx: &Context<'_>,
        direction: Direction,
    ) -> Poll<io::Result<()>> {
        let mut io_ref = self.core.io.borrow_mut();
        let io = &mut *io_ref;
        let slot = io.slots.of(self);
        if slot.ready() & (direction.bit() | FINISHED) != 0 {
            drop(io_ref);
            return if self.core.spend(cx) { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let mut displaced = (None, None);
        match direction {
            Direction::Read => {
                if !slot.reader.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    displaced.0 = slot.reader.replace(PackedWaker::new(cx.waker()));
                }
            }
            Direction::Write => {
                slot.bits |= HAS_WRITER;
                displaced.1 = io.writers.insert(self.slot, cx.waker().clone());
            }
        }
        let mut result = Ok(());
        if slot.armed & direction.bit() == 0 {
            // A system call is needed anyway, so also drop write interest that no task waits for.
            // Read interest stays, because most sockets will need it again.
            let keep = slot.armed & READ | if slot.has_writer() { WRITE } else { 0 };
            result = self.core.arm(&mut io.poller, slot, self.slot, keep | direction.bit());
        }
        drop(io_ref);
        drop(displaced);
        match result {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Arms the interest to read while no task waits. False if that is ready, or cannot be armed.
    pub(crate) fn watch(&self) -> bool {
        let io = &mut *self.core.io.borrow_mut();
        let slot = io.slots.of(self);
        slot.ready() & (READ | FINISHED) == 0
            && (slot.armed & READ != 0
                || self.core.arm(&mut io.poller, slot, self.slot, slot.armed | READ).is_ok())
    }

    pub(crate) async fn ready(&self, direction: Direction) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll_ready(cx, direction)).await
    }

    /// Waits until `direction` is ready, then makes `attempt`, until one does not block.
    pub(crate) async fn wait_then<T>(
        &self,
        direction: Direction,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            self.ready(direction).await?;
            match attempt() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                result => return result,
            }
        }
    }

    /// Makes `attempt` at once, and again whenever `direction` is ready, until one does not block.
    pub(crate) async fn try_then_wait<T>(
        &self,
        direction: Direction,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.wait_then(direction, attempt).await
            }
            result => result,
        }
    }

    /// True if an event for this direction has arrived that no operation has consumed.
    pub(crate) fn is_ready(&self, direction: Direction) -> bool {
        self.ready_bits() & (direction.bit() | FINISHED) != 0
    }

    /// Records the result of a read of up to `wanted` bytes.
    pub(crate) fn after_read(&self, result: &io::Result<usize>, wanted: usize) {
        match result {
            Ok(read) if *read == wanted => {}
            // The end of the stream is permanent.
            Ok(0) => self.add(READ | READ_CLOSED),
            Ok(_) => self.consume(READ, READ_CLOSED | FINISHED),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.clear(READ | READ_CLOSED | FINISHED);
            }
            Err(error) => self.failed(error),
        }
    }

    /// Records that an operation failed. `BrokenPipe` means that the peer ended properly before the
    /// failure: what it sent is complete.
    fn failed(&self, error: &io::Error) {
        if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::Interrupted) {
            self.add(FAILED);
        }
    }

    /// Corrects the result of a read: the end of a failed connection is an error, even if the
    /// system reported the failure to a write.
    pub(crate) fn failed_end_as_error(
        &self,
        result: io::Result<usize>,
        wanted: usize,
    ) -> io::Result<usize> {
        match result {
            Ok(0) if wanted > 0 && self.has_failed() => Err(io::ErrorKind::ConnectionReset.into()),
            result => result,
        }
    }

    fn has_failed(&self) -> bool {
        self.ready_bits() & FAILED != 0
    }

    fn ready_bits(&self) -> u8 {
        self.core.io.borrow_mut().slots.of(self).ready()
    }

    /// Records the result of an operation that takes one whole item (a connection, a datagram).
    /// There may be more until one would block.
    pub(crate) fn after_one<T>(&self, result: &io::Result<T>, direction: Direction) {
        if let Err(error) = result
            && error.kind() == io::ErrorKind::WouldBlock
        {
            self.clear(direction.bit() | READ_CLOSED | FINISHED);
        }
    }

    /// Records the result of a write of `wanted` bytes.
    pub(crate) fn after_write(&self, result: &io::Result<usize>, wanted: usize) {
        match result {
            Ok(written) if *written < wanted => self.consume(WRITE, FINISHED),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.clear(WRITE | FINISHED);
            }
            Ok(_) => {}
            Err(error) => self.failed(error),
        }
    }

    /// Clears `bits`, unless one of `sticky` says that the next operation will return at once.
    fn consume(&self, bits: u8, sticky: u8) {
        self.with_ready(|ready| if ready & sticky == 0 { ready & !bits } else { ready });
    }

    fn clear(&self, bits: u8) {
        self.with_ready(|ready| ready & !bits);
    }

    fn add(&self, bits: u8) {
        self.with_ready(|ready| ready | bits);
    }

    fn with_ready(&self, change: impl FnOnce(u8) -> u8) {
        let mut io = self.core.io.borrow_mut();
        let slot = io.slots.of(self);
        slot.set_ready(change(slot.ready()));
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let wakers = {
            let io = &mut *self.core.io.borrow_mut();
            let slot = io.slots.of(self);
            if slot.armed != 0 {
                count(&self.core.counters.removes);
                io.poller.remove(self.fd).expect("the poller forgets a descriptor it watches");
            }
            let wakers = (slot.reader.take(), take_writer(&mut io.writers, slot, self.slot));
            io.slots.free(self);
            wakers
        };
        drop(wakers); // foreign wakers are dropped without the borrow
        self.core.world.close(self.fd);
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("fd", &self.fd).finish_non_exhaustive()
    }
}
