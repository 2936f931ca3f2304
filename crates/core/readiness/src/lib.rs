//! Which descriptors are ready? One contract, one file per backend.
//!
//! # What a backend provides
//! Each backend is one file of the same shape: `open`, the private trait `Backend` (register,
//! change, remove, wait), and the fields `wake` and `counters`. [`select`](Kind::Select),
//! [`scalable_select`](Kind::ScalableSelect), [`poll`](Kind::Poll), [`epoll`](Kind::Epoll),
//! [`io_uring`](Kind::IoUring) and [`simulated`] are all compiled in. [`Poller::open`] chooses one
//! by name, or by preference and self-test, and dispatches over an enum. The same contract suite
//! (`tests/contract`) runs on each backend.
//!
//! * **Level-triggered by interest.** As long as a descriptor is readable and its registration has
//!   read interest, every wait delivers a readable event. Writing works the same way. Spurious
//!   events and early, empty returns are allowed. Lost events are not allowed. A short read does
//!   not prove that a socket is drained: data and FIN can arrive in one segment, and the next wait
//!   delivers the rest. An event that did not fit into the buffer is delivered by a later wait, as
//!   the event was found. Changes since then are delivered by the wait after that wait, which does
//!   not sleep.
//! * **Directions are exact, the rest is extra.** Every backend delivers `READABLE` and `WRITABLE`.
//!   `READ_CLOSED`, `HANGUP` and `ERROR` are added where the system call reports them. Hang-up and
//!   error imply both directions, so that any waiting task is woken.
//! * **No interest, no events.** A registration with [`Interest::NONE`] delivers nothing, not even
//!   when the peer hangs up.
//! * **No starvation.** When more is ready than [`Events`] holds, later waits deliver the remaining
//!   events before they repeat any event.
//! * **Misuse is the same error everywhere**: registering twice is `AlreadyExists`, changing or
//!   removing an unknown descriptor is `NotFound`, registering a descriptor that is not open is
//!   `EBADF`.
//!
//! # What never happens
//! * After [`Poller::remove`] no later wait delivers its token, whatever was pending, and closing
//!   the descriptor really closes it, because no backend holds on to it. (The caller must remove a
//!   descriptor before closing it.)
//! * A wake is never lost and never delivered as an event.
//! * `epoll`'s wait, after the first call with its buffer, allocates nothing and makes one system
//!   call. No backend but `scalable_select` reads a clock.
//! * A backend never reads or writes a registered descriptor.
//!
//! # Who owns what
//! The caller owns the descriptors and the numbers in the tokens; a poller owns its instance, its
//! tables and its wake eventfd. A poller belongs to one thread. Any thread may use a [`Waker`].
//!
//! [`slots`] is the other half of the bookkeeping: lowest free slots, and a table whose tokens
//! become stale when their slot is reused.

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

/// What every backend implements. The module docs have the contract. A backend also has the fields
/// `wake: WakeEnd` and `counters: Counters`; [`Poller`] counts waits and events, the backend the
/// rest.
trait Backend {
    const KIND: Kind;

    /// Starts to watch `fd`. Fails if it is registered already or not open.
    fn register(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()>;

    /// Gives the registration another token or interest. What was ready and undelivered stays so.
    fn change(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()>;

    /// Removes `fd` here and in the kernel before it returns.
    fn remove(&mut self, fd: RawFd) -> io::Result<()>;

    /// Fills `events`, which is empty. Sleeps only while nothing is ready.
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
    /// Descriptors whose readiness was queried one by one: those passed to `select` and `poll`,
    /// those checked by `scalable_select`, the polls armed in `io_uring`; none with `epoll`.
    pub probes: u64,
    /// Bitmap words read (`select`, `scalable_select`).
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

/// Watches descriptors and sleeps until one is ready. The crate docs have the contract.
pub struct Poller {
    backend: Backends,
}

/// Static dispatch: the choice costs a wait one predictable branch.
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
    /// Opens the requested backend and tests it on a descriptor.
    ///
    /// # Errors
    /// [`OpenError`] says what is missing. `Named(Kind::Simulated)` is refused:
    /// [`Poller::simulated`] makes that one.
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

    /// A poller over simulated descriptors. The program sets their levels and moves time.
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

    /// Starts to watch `fd` for `interest`. Its events carry `token`.
    ///
    /// # Errors
    /// `AlreadyExists`, `EBADF`, or what the system says (`EPERM`: a regular file under epoll).
    pub fn register(&mut self, fd: RawFd, token: Token, interest: Interest) -> io::Result<()> {
        dispatch!(&mut self.backend, b => b.register(fd, token, interest))
    }

    /// Gives the registration of `fd` another token and interest. Readiness is never lost by that,
    /// even if interest is removed for a while.
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

    /// Sleeps until a registered descriptor is ready, a wake or signal arrives, or `timeout` ends
    /// (`None`: never; zero: return at once), and fills `events`. May return early without events.
    ///
    /// # Errors
    /// What the system says. A signal is not an error.
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

    /// A handle with which any thread can end the current or the next wait.
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

    /// For benchmarks: how long one scan of the bitmaps takes now, on average over `rounds`.
    /// Changes nothing and makes no system call. `None` for all but `scalable_select`, whose wait
    /// costs this much (linear in the highest descriptor, with a small factor) plus a part that
    /// does not depend on it.
    pub fn scan_time(&mut self, rounds: u32) -> Option<Duration> {
        match &mut self.backend {
            Backends::ScalableSelect(backend) => Some(backend.scan_time(rounds)),
            _ => None,
        }
    }

    /// Checks that a ready descriptor is delivered, repeatedly, and no longer once it is removed.
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
            return failed("it reported a descriptor that is not ready");
        }
        sys::eventfd_add_one(&eventfd);
        for _twice_for_level_triggering in 0..2 {
            self.wait(&mut events, soon).map_err(system)?;
            if !events.iter().eq([Event { token, ready: Ready::READABLE }]) {
                return failed("it did not report a ready descriptor");
            }
        }
        self.remove(fd).map_err(system)?;
        self.wait(&mut events, soon).map_err(system)?;
        if events.is_empty() { Ok(()) } else { failed("it reported a removed descriptor") }
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Poller");
        text.field("kind", &self.kind()).field("counters", &self.counters());
        text.finish_non_exhaustive()
    }
}
