//! Descriptors and readiness: who waits for which socket, and what the poller is asked for.
//!
//! What: each open socket has a slot: what the poller watches (`armed`), what it has said and
//! nobody has used up (`ready`), and the waker of its reader. Who waits to write is rare, and
//! stands in a table apart, so that a slot takes half a cache line and never lies in two: of ten
//! thousand connections that ask in turn each finds its slot gone from the caches.
//! Who owns: the core owns the slots; a [`Socket`] owns its slot and its descriptor.
//!
//! The life of one direction:
//!
//! ```text
//!            wait: arm                   event
//!   idle ---------------> armed, waiting -------> armed, ready ---- task reads, short ----+
//!    ^                         ^                                                          |
//!    |                         +------------------- wait: nothing to do ------------------+
//!    +--- event though nobody waits: remembered as ready, and masked
//! ```
//!
//! A keep-alive connection goes around the inner circle: its interest stays armed, and a request
//! costs its share of one wait, one recv and one send. Interest is masked only when an event
//! comes that nobody waits for (the poller is level-triggered and would repeat it for ever), and a
//! descriptor whose last interest is masked leaves the poller altogether, since hang-ups and errors
//! are reported for every descriptor that is in it.
//!
//! `ready` is used up by the operation that finds out: a read that would block or comes back short,
//! a write that would block or is cut. After a full read it stays, since more may be there.
//! What never happens: an event is lost. Readiness that is used up while there is more to read
//! comes again, because the interest is still armed or is armed by the next wait.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use readiness::slots::SlotTable;
use readiness::{Event, Interest, Poller, Ready, Token};

use crate::core::Core;
use crate::counters::count;
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
/// The peer has closed its direction: every read is answered at once from now on.
const READ_CLOSED: u8 = 4;
/// Both directions are finished: the poller has nothing more to say.
const FINISHED: u8 = 8;
/// The system has told of a failure. It does so once, to whoever asks first, be it a write; every
/// read is told of an end from then on.
const FAILED: u8 = 16;

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

struct IoSlot {
    reader: Option<Waker>,
    fd: RawFd,
    /// What the poller watches; 0 means that the descriptor is not in the poller.
    armed: u8,
    ready: u8,
    /// Exactly if `writers` has this slot.
    has_writer: bool,
}

const _: () = assert!(SlotTable::<IoSlot>::SLOT_BYTES == 32, "a cold connection pays for it");

/// The poller of a core and the slots of its descriptors.
pub(crate) struct Io {
    pub(crate) poller: Poller,
    slots: SlotTable<IoSlot>,
    /// Who waits to write, by slot.
    writers: HashMap<u32, Waker>,
}

impl Io {
    pub(crate) fn new(poller: Poller) -> Self {
        let slots = SlotTable::with_limit(DESCRIPTORS_MAX);
        Io { poller, slots, writers: HashMap::new() }
    }
}

/// Takes out who waits to write, if somebody does.
fn take_writer(
    writers: &mut HashMap<u32, Waker>,
    slot: &mut IoSlot,
    token: Token,
) -> Option<Waker> {
    if std::mem::take(&mut slot.has_writer) { writers.remove(&token.slot()) } else { None }
}

impl Core {
    /// Takes note of an event. Returns the wakers of those who waited for it, to be woken once
    /// nothing is borrowed any more.
    pub(crate) fn deliver(&self, event: Event) -> (Option<Waker>, Option<Waker>) {
        let io = &mut *self.io.borrow_mut();
        let Some(slot) = io.slots.get_mut(event.token) else { return (None, None) };
        let found = bits_of(event.ready);
        slot.ready |= found;
        let reader = if found & READ != 0 { slot.reader.take() } else { None };
        let writer =
            if found & WRITE != 0 { take_writer(&mut io.writers, slot, event.token) } else { None };
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
        self.arm(&mut io.poller, slot, event.token, keep)
            .expect("the poller takes a change of a descriptor that it watches");
        (reader, writer)
    }

    /// Makes the poller watch `bits` of the slot's descriptor.
    fn arm(
        &self,
        poller: &mut Poller,
        slot: &mut IoSlot,
        token: Token,
        bits: u8,
    ) -> io::Result<()> {
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
    token: Token,
    fd: RawFd,
}

impl Socket {
    /// Takes over `fd`. `writable` says that the socket can be written to as far as is known, so
    /// that the first wait for that costs nothing.
    pub(crate) fn new(core: Rc<Core>, fd: RawFd, writable: bool) -> io::Result<Socket> {
        let ready = if writable { WRITE } else { 0 };
        let slot = IoSlot { reader: None, fd, armed: 0, ready, has_writer: false };
        let token = core.io.borrow_mut().slots.try_insert(slot);
        match token {
            Ok(token) => Ok(Socket { core, token, fd }),
            Err(_full) => {
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

    /// Waits until `direction` is ready. One task may wait for each direction; the last one that
    /// asked is woken.
    pub(crate) fn poll_ready(
        &self,
        cx: &Context<'_>,
        direction: Direction,
    ) -> Poll<io::Result<()>> {
        let mut io_ref = self.core.io.borrow_mut();
        let io = &mut *io_ref;
        let slot = io.slots.get_mut(self.token).expect("a socket has its slot until it is dropped");
        if slot.ready & (direction.bit() | FINISHED) != 0 {
            drop(io_ref);
            return if self.core.spend(cx) { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let mut displaced = None;
        match direction {
            Direction::Read => {
                if !slot.reader.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    displaced = slot.reader.replace(cx.waker().clone());
                }
            }
            Direction::Write => {
                slot.has_writer = true;
                displaced = io.writers.insert(self.token.slot(), cx.waker().clone());
            }
        }
        let mut result = Ok(());
        if slot.armed & direction.bit() == 0 {
            // A system call is needed anyway: drop the writes that nobody waits for with it. Reads
            // stay, since most sockets will want them again.
            let keep = slot.armed & READ | if slot.has_writer { WRITE } else { 0 };
            result = self.core.arm(&mut io.poller, slot, self.token, keep | direction.bit());
        }
        drop(io_ref);
        drop(displaced);
        match result {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
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

    /// True if an event of this direction came that no operation has used up.
    pub(crate) fn is_ready(&self, direction: Direction) -> bool {
        let io = self.core.io.borrow();
        let slot = io.slots.get(self.token).expect("a socket has its slot until it is dropped");
        slot.ready & (direction.bit() | FINISHED) != 0
    }

    /// Takes note of what a read of up to `wanted` bytes came to.
    pub(crate) fn after_read(&self, result: &io::Result<usize>, wanted: usize) {
        match result {
            Ok(read) if *read == wanted => {}
            // End of stream: that stays as it is.
            Ok(0) => self.add(READ | READ_CLOSED),
            Ok(_) => self.use_up(READ, READ_CLOSED | FINISHED),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.clear(READ | READ_CLOSED | FINISHED);
            }
            Err(error) => self.failed(error),
        }
    }

    /// Takes note that an operation failed. A peer that ended in order before it failed is told of
    /// as `BrokenPipe`: what it had sent is whole.
    fn failed(&self, error: &io::Error) {
        if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::Interrupted) {
            self.add(FAILED);
        }
    }

    /// What a read came to that the system calls `result`: the end of a connection that has failed
    /// is no orderly end, even if the failure was told to a write.
    pub(crate) fn end_in_order(
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
        self.core.io.borrow().slots.get(self.token).is_some_and(|slot| slot.ready & FAILED != 0)
    }

    /// Takes note of what an operation that takes one whole thing (a connection, a datagram) came
    /// to: more of them may be there until one would block.
    pub(crate) fn after_one<T>(&self, result: &io::Result<T>, direction: Direction) {
        if let Err(error) = result
            && error.kind() == io::ErrorKind::WouldBlock
        {
            self.clear(direction.bit() | READ_CLOSED | FINISHED);
        }
    }

    /// Takes note of what a write of `wanted` bytes came to.
    pub(crate) fn after_write(&self, result: &io::Result<usize>, wanted: usize) {
        match result {
            Ok(written) if *written < wanted => self.use_up(WRITE, FINISHED),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.clear(WRITE | FINISHED);
            }
            Ok(_) => {}
            Err(error) => self.failed(error),
        }
    }

    /// Clears `bits`, unless one of `sticky` says that the next operation is answered at once.
    fn use_up(&self, bits: u8, sticky: u8) {
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
        let slot = io.slots.get_mut(self.token).expect("a socket has its slot until it is dropped");
        slot.ready = change(slot.ready);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let wakers = {
            let io = &mut *self.core.io.borrow_mut();
            let mut slot = io.slots.remove(self.token);
            if slot.as_ref().is_some_and(|slot| slot.armed != 0) {
                count(&self.core.counters.removes);
                io.poller.remove(self.fd).expect("the poller forgets a descriptor it watches");
            }
            let writer =
                slot.as_mut().and_then(|slot| take_writer(&mut io.writers, slot, self.token));
            (slot, writer)
        };
        drop(wakers); // such as are not ours are dropped without the borrow
        self.core.world.close(self.fd);
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("fd", &self.fd).finish_non_exhaustive()
    }
}
