//! Time: the cached clock, sleeping, and time limits.
//!
//! What: [`now`] and [`wall`] are read once per turn of the core's loop and cost a load. [`Sleep`]
//! and [`Timeout`] use the core's timer wheel, which has a resolution of one millisecond.
//! Why: a server reads the time for every request and sets a time limit for every wait.
//! What never happens: a timer fires early, or makes a system call. On the twin, time moves only
//! when everything waits.

pub(crate) mod clock;
pub(crate) mod wheel;

pub use clock::Turns;

use std::fmt;
use std::future::Future;
use std::ops::{Add, AddAssign, Sub};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::core::{self, Core};
use crate::counters::count;
use crate::packed_waker::PackedWaker;
use crate::sys::World;

/// A point of the core's monotonic clock, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The instant `ns` nanoseconds after the clock's zero.
    #[must_use]
    pub const fn from_ns(ns: u64) -> Self {
        Instant(ns)
    }

    /// Nanoseconds since the clock's zero.
    #[must_use]
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to this; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Time from this to the present.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        now().since(self)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Saturates at the end of the clock, so `Duration::MAX` means "never".
    fn add(self, later: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(later.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, later: Duration) {
        *self = *self + later;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, earlier: Duration) -> Instant {
        Instant(self.0.saturating_sub(u64::try_from(earlier.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

/// The time at the beginning of this turn. Outside a core: the system's clock.
#[must_use]
pub fn now() -> Instant {
    core::try_with_current(|core| core.clock.now())
        .unwrap_or_else(|| Instant(World::Real.monotonic_ns()))
}

/// Asks the world of the current core, or outside a core the system.
fn ask<T>(ask: impl Fn(&World) -> T) -> T {
    core::try_with_current(|core| ask(&core.world)).unwrap_or_else(|| ask(&World::Real))
}

/// Processor time that the calling thread has used, read now with one system call.
#[must_use]
pub fn thread_cpu() -> Duration {
    Duration::from_nanos(ask(World::thread_cpu_ns))
}

/// How often the calling thread has slept (its voluntary context switches), read now with one
/// system call.
#[must_use]
pub fn thread_sleeps() -> u64 {
    ask(World::thread_sleeps)
}

/// For how long the calling thread was runnable but others ran, read now. Too slow for a hot path.
#[must_use]
pub fn thread_starved() -> Duration {
    Duration::from_nanos(ask(World::thread_starved_ns))
}

/// The turns of the core's loop so far.
///
/// # Panics
/// Outside [`crate::Runtime::block_on`].
#[must_use]
pub fn turns() -> Turns {
    core::current().clock.turns()
}

/// Nanoseconds since 1970 at the beginning of this turn.
#[must_use]
pub fn wall_ns() -> u64 {
    core::try_with_current(|core| core.clock.wall_ns(&core.world))
        .unwrap_or_else(|| World::Real.wall_ns())
}

/// Milliseconds since 1970 at the beginning of this turn.
#[must_use]
pub fn wall_ms() -> u64 {
    wall_ns() / 1_000_000
}

/// The wall time at the beginning of this turn. The twin starts on 1 January 2026.
#[must_use]
pub fn wall() -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(wall_ns())
}

/// Waits for `duration`, rounded up to the next millisecond.
pub fn sleep(duration: Duration) -> Sleep {
    Sleep::until(now() + duration)
}

/// Waits until `deadline`, rounded up to the next millisecond.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep::until(deadline)
}

/// Runs `future` for at most `duration`.
///
/// The future is polled first: if it is done when the time is up, it wins. On expiry the future is
/// dropped with the returned value.
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep(duration) }
}

/// Runs `future` until `deadline` at the latest.
pub fn timeout_at<F: Future>(deadline: Instant, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep_until(deadline) }
}

/// A future that is done at a deadline.
///
/// It is in the wheel from its first poll until it fires or is dropped. Postponing the deadline
/// ([`Sleep::reset`]) costs two loads and a store: the timer stays in place and sees the new
/// deadline when it fires.
pub struct Sleep {
    deadline: Instant,
    /// The core whose wheel has the timer's entry, and the entry's key.
    timer: Option<(Rc<Core>, wheel::Key)>,
}

const _: () = assert!(size_of::<Sleep>() == 24, "a cold connection pays for it");

impl Sleep {
    fn until(deadline: Instant) -> Self {
        Sleep { deadline, timer: None }
    }

    /// When it will be done.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Moves the deadline. Poll it afterwards: if the new deadline is earlier, only the next poll
    /// sets the timer.
    pub fn reset(&mut self, deadline: Instant) {
        self.deadline = deadline;
        if let Some((core, key)) = &self.timer
            && core.clock.tick_after(deadline) < key.tick()
        {
            self.cancel();
        }
    }

    /// True while its timer is in the wheel and cannot have fired. Then the task that polled it
    /// last need not poll it again: a poll would only read the wheel, and with ten thousand timers
    /// each read is a cache miss.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.timer.as_ref().is_some_and(|(core, key)| core.clock.tick() < key.tick())
    }

    fn cancel(&mut self) {
        if let Some((core, key)) = self.timer.take() {
            let waker = core.timers.borrow_mut().cancel(key);
            drop(waker); // a foreign waker's destructor runs without the borrow
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some((core, key)) = &self.timer {
            if core.clock.now() >= self.deadline {
                self.cancel();
                return Poll::Ready(());
            }
            // A foreign waker is cloned, and dropped, without the borrow.
            let packed = PackedWaker::new(cx.waker());
            let displaced =
                core.timers.borrow_mut().get_mut(key).map(|waker| std::mem::replace(waker, packed));
            if displaced.is_some() {
                return Poll::Pending;
            }
            self.cancel(); // it fired before a postponed deadline
        }
        let core = core::current();
        if core.clock.now() >= self.deadline {
            return Poll::Ready(());
        }
        let tick = core.clock.tick_after(self.deadline);
        debug_assert!(tick > core.clock.tick(), "a timer is never due in the turn that sets it");
        let packed = PackedWaker::new(cx.waker());
        let key = core.timers.borrow_mut().set(tick, packed);
        count(&core.counters.timers_set);
        self.timer = Some((core, key));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// The time limit passed before the future was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time limit has passed")
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for std::io::Error {
    fn from(elapsed: Elapsed) -> Self {
        std::io::Error::new(std::io::ErrorKind::TimedOut, elapsed)
    }
}

/// A future with a limit on its time: see [`timeout`].
#[derive(Debug)]
pub struct Timeout<F> {
    future: F,
    sleep: Sleep,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: `future` is pinned with the whole: it is reached only through this pin, never
        // moved, and dropped in place (there is no Drop impl). `sleep` is Unpin and may move.
        let (future, sleep) = unsafe {
            let this = self.get_unchecked_mut();
            (Pin::new_unchecked(&mut this.future), Pin::new(&mut this.sleep))
        };
        if let Poll::Ready(output) = future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        sleep.poll(cx).map(|()| Err(Elapsed))
    }
}
