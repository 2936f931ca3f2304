//! Which descriptors are ready? One contract, one file per backend.
//!
//! # What a backend provides
//! A backend is a file of one shape: `open`, and the private trait `Backend` (register, change,
//! remove, wait, waker, counters). [`select`](Kind::Select),
//! [`scalable_select`](Kind::ScalableSelect), [`poll`](Kind::Poll), [`epoll`](Kind::Epoll),
//! [`io_uring`](Kind::IoUring) and [`simulated`] are all compiled in; [`Poller::open`] chooses one
//! by preference and self-test, or by name, and dispatches over an enum. One contract suite
//! (`tests/contract`) runs on each.
//!
//! * **Level-triggered by interest.** As long as a descriptor is readable and its registration
//!   wants to read, waits deliver that; so for writing. Spurious events and early, empty returns
//!   are allowed, lost events never are. A short read does not prove that a socket is drained: data
//!   and FIN can arrive in one segment, and the next wait tells of the rest. An event that found no
//!   room is as old as the wait that found it, when a later one delivers it; what has come since
//!   comes with the wait after, which does not sleep.
//! * **Directions are exact, the rest is extra.** Every backend tells `READABLE` and `WRITABLE`.
//!   `READ_CLOSED`, `HANGUP` and `ERROR` come along where the system call reports them; hang-up and
//!   error imply both directions, so that whoever waits is woken.
//! * **Without interest, silence.** A registration with [`Interest::NONE`] delivers nothing, also
//!   when the peer hangs up.
//! * **Everyone has a turn.** When more is ready than [`Events`] holds, later waits deliver the
//!   rest before the same ones come round for ever.
//! * **Misuse is an error alike everywhere**: registering twice is `AlreadyExists`, changing or
//!   removing what is not registered is `NotFound`, registering what is not open is `EBADF`.
//!
//! # What never happens
//! * After [`Poller::remove`] no later wait delivers its token, whatever was under way; and closing
//!   the descriptor then closes it, because no backend holds on to it. (A descriptor must be
//!   removed before it is closed.)
//! * A wake is never lost and never delivered as an event.
//! * `epoll`'s wait, once it has run with its events, allocates nothing and makes one system call.
//!   No backend but `scalable_select` reads a clock.
//! * A backend never reads or writes a registered descriptor.
//!
//! # Who owns what
//! The caller owns the descriptors and the numbers in the tokens; a poller owns its instance, its
//! tables and its wake eventfd. A poller belongs to one thread; a [`Waker`] to any.
//!
//! [`slots`] is the other half of the ground floor's bookkeeping: lowest free slots, and a table
//! whose tokens go stale when their slot is given to another.

mod choice;
mod epoll;
mod event;
mod fdset;
mod io_uring;
mod poll;
mod scalable_select;
mod select;
pub mod simulated;
pub mod slots;
mod sys;
mod table;
pub mod wait_cost;
mod wake;

use std::fmt;
use std::io;
use std::ops::Sub;
use std::os::fd::RawFd;
use std::time::Duration;

pub use choice::{Choice, Kind, OpenError, UnknownKind};
pub use event::{Event, Events, Interest, Ready, Token};
pub use wake::Waker;

/// What every backend does. The contract is in the module's words; here is the shape.
trait Backend {
    const KIND: Kind;

    /// Begins to watch `fd`. Fails if it is registered already or not open.
    fn register(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()>;

    /// Gives the registration another token or interest. What was ready and undelivered stays so.
    fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()>;

    /// Forgets `fd` altogether, here and in the kernel, before it returns.
    fn remove(&mut self, fd: RawFd) -> io::Result<()>;

    /// Fills `events`, which are empty, sleeping only while nothing is ready.
    fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()>;
}

/// What a poller has done since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Calls of `wait`.
    pub waits: u64,
    /// Events delivered.
    pub events: u64,
    /// Waits that delivered none: time-outs, wakes, signals.
    pub empty_waits: u64,
    /// Descriptors whose readiness was asked for one by one: those shown to `select` and `poll`,
    /// those checked by `scalable_select`, the polls armed in `io_uring`; none with `epoll`.
    pub probes: u64,
    /// Words of bitmaps looked at (`select`, `scalable_select`).
    pub bitmap_words: u64,
    /// System calls made for registering, changing, removing and waiting.
    pub syscalls: u64,
}

impl Sub for Counters {
    type Output = Counters;

    /// What was done between two readings.
    fn sub(self, earlier: Counters) -> Counters {
        Counters {
            waits: self.waits - earlier.waits,
            events: self.events - earlier.events,
            empty_waits: self.empty_waits - earlier.empty_waits,
            probes: self.probes - earlier.probes,
            bitmap_words: self.bitmap_words - earlier.bitmap_words,
            syscalls: self.syscalls - earlier.syscalls,
        }
    }
}

/// Watches descriptors and sleeps until one is ready. See the crate's words for the contract.
pub struct Poller {
    backend: Backends,
}

/// Static dispatch: a wait costs one predictable branch for the choice.
enum Backends {
    Select(Box<select::Select>),
    ScalableSelect(Box<scalable_select::ScalableSelect>),
    Poll(Box<poll::Poll>),
    Epoll(Box<epoll::Epoll>),
    IoUring(Box<io_uring::IoUring>),
    Simulated(Box<simulated::Simulated>),
}

macro_rules! dispatch {
    ($poller:expr, $backend:ident => $call:expr) => {
        match $poller {
            Backends::Select($backend) => $call,
            Backends::ScalableSelect($backend) => $call,
            Backends::Poll($backend) => $call,
            Backends::Epoll($backend) => $call,
            Backends::IoUring($backend) => $call,
            Backends::Simulated($backend) => $call,
        }
    };
}

impl Poller {
    /// Opens the backend asked for and makes it prove itself on a descriptor of its own.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing here. `Named(Kind::Simulated)` is refused: that one is
    /// made by [`Poller::simulated`].
    pub fn open(choice: Choice) -> Result<Poller, OpenError> {
        let preference = match choice {
            Choice::Named(kind) => return Poller::open_kind(kind),
            Choice::Preferred => Kind::PREFERENCE,
        };
        let mut tried = Vec::new();
        for kind in preference {
            match Poller::open_kind(kind) {
                Ok(poller) => return Ok(poller),
                Err(error) => tried.push(error),
            }
        }
        Err(OpenError::NoneWorks { tried })
    }

    /// A poller over simulated descriptors, whose levels and time the program moves.
    pub fn simulated(levels: simulated::Levels) -> Poller {
        Poller { backend: Backends::Simulated(Box::new(simulated::Simulated::new(levels))) }
    }

    fn open_kind(kind: Kind) -> Result<Poller, OpenError> {
        let backend = match kind {
            Kind::Select => Backends::Select(Box::new(select::Select::open()?)),
            Kind::ScalableSelect => {
                Backends::ScalableSelect(Box::new(scalable_select::ScalableSelect::open()?))
            }
            Kind::Poll => Backends::Poll(Box::new(poll::Poll::open()?)),
            Kind::Epoll => Backends::Epoll(Box::new(epoll::Epoll::open()?)),
            Kind::IoUring => Backends::IoUring(Box::new(io_uring::IoUring::open()?)),
            Kind::Simulated => {
                let why = "it is made by Poller::simulated, over its levels".to_owned();
                return Err(OpenError::NotSupported { kind, why });
            }
        };
        let mut poller = Poller { backend };
        poller.self_test()?;
        *dispatch!(&mut poller.backend, b => &mut b.counters) = Counters::default();
        Ok(poller)
    }

    /// Which backend runs.
    pub fn kind(&self) -> Kind {
        fn of<B: Backend>(_: &B) -> Kind {
            B::KIND
        }
        dispatch!(&self.backend, b => of(&**b))
    }

    /// Begins to watch `fd` for `interest`; its events will carry `token`.
    ///
    /// # Errors
    /// `AlreadyExists`, `EBADF`, or what the system says (`EPERM`: a regular file under epoll).
    pub fn register(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        dispatch!(&mut self.backend, b => b.register(fd, token, interest))
    }

    /// Gives the registration of `fd` another token and interest. Nothing that is ready is lost by
    /// it, also not by an interest taken away for a while.
    ///
    /// # Errors
    /// `NotFound`, or what the system says.
    pub fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        dispatch!(&mut self.backend, b => b.change(fd, token, interest))
    }

    /// Forgets `fd`. Must be called before the descriptor is closed.
    ///
    /// # Errors
    /// `NotFound`, or what the system says.
    pub fn remove(&mut self, fd: RawFd) -> io::Result<()> {
        dispatch!(&mut self.backend, b => b.remove(fd))
    }

    /// Sleeps until something registered is ready, a wake, a signal or the end of `timeout`
    /// (`None`: for ever; zero: look and return), and fills `events`. May return early without
    /// events.
    ///
    /// # Errors
    /// What the system says; a signal is none.
    #[inline]
    pub fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        events.clear();
        dispatch!(&mut self.backend, b => {
            b.wait(events, timeout)?;
            let counters = &mut b.counters;
            counters.waits += 1;
            counters.events += events.len() as u64;
            counters.empty_waits += u64::from(events.is_empty());
        });
        Ok(())
    }

    /// A handle by which any thread ends the current or the next wait.
    ///
    /// # Errors
    /// None at present: the wake descriptor was made with the poller.
    pub fn waker(&self) -> io::Result<Waker> {
        Ok(dispatch!(&self.backend, b => b.wake.waker()))
    }

    /// What was done since the poller was opened.
    pub fn counters(&self) -> Counters {
        dispatch!(&self.backend, b => b.counters)
    }

    /// For a bench: how long one scan of the bitmaps takes as things stand, on average over
    /// `rounds`. Changes nothing and asks the kernel nothing. `None` but for `scalable_select`,
    /// whose cost of a wait is this (linear in the highest descriptor, with a small factor) and the
    /// rest (independent of it).
    pub fn scan_time(&mut self, rounds: u32) -> Option<Duration> {
        match &mut self.backend {
            Backends::ScalableSelect(backend) => Some(backend.scan_time(rounds)),
            _ => None,
        }
    }

    /// One descriptor becomes ready, is told of, is removed, and is told of no more.
    fn self_test(&mut self) -> Result<(), OpenError> {
        let kind = self.kind();
        let system = |error| OpenError::of_call(kind, "self-test", error);
        let failed = |why: &str| Err(OpenError::SelfTest { kind, why: why.to_owned() });
        let soon = Some(Duration::ZERO);
        let token = Token::new(7, 7);
        let eventfd = sys::eventfd().map_err(system)?;
        let fd = std::os::fd::AsRawFd::as_raw_fd(&eventfd);
        let mut events = Events::with_capacity(4);

        self.register(fd, token, Interest::READ).map_err(system)?;
        self.wait(&mut events, soon).map_err(system)?;
        if !events.is_empty() {
            return failed("it told of a descriptor that is not ready");
        }
        sys::eventfd_add_one(&eventfd);
        for _twice_for_level_triggering in 0..2 {
            self.wait(&mut events, soon).map_err(system)?;
            if !events.iter().eq([Event { token, ready: Ready::READABLE }]) {
                return failed("it did not tell of a ready descriptor");
            }
        }
        self.remove(fd).map_err(system)?;
        self.wait(&mut events, soon).map_err(system)?;
        if events.is_empty() { Ok(()) } else { failed("it told of a removed descriptor") }
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Poller");
        text.field("kind", &self.kind()).field("counters", &self.counters());
        text.finish_non_exhaustive()
    }
}
