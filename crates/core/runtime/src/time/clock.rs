//! The core's clock: read once per turn, then one load per use.
//!
//! What: the monotonic time for timers and ages, the wall time for dates and logs. Both are read
//! from the world (the system's clocks or the simulated one) when a wait returns; the wall time
//! only in turns that use it.
//! What never happens: the clock moves within a turn. So everything in one turn has the same time.

use std::cell::Cell;
use std::time::Duration;

use super::Instant;
use crate::sys::World;

/// The resolution of timers.
pub(crate) const TICK_NS: u64 = 1_000_000;

pub(crate) struct Clock {
    /// The instant of tick 0.
    origin_ns: u64,
    now_ns: Cell<u64>,
    /// `None` until it is read in this turn.
    wall_ns: Cell<Option<u64>>,
    turns: Cell<Turns>,
}

/// How long turns of the loop took, from one reading of the clock to the next, including the wait
/// for events. Computed without further readings of the clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Turns {
    /// The sum of the lengths, in units of 1024 ns.
    total: u64,
    /// The sum of the squares of the lengths.
    squares: u64,
}

/// The longest turn that is counted, in units of 1024 ns: 17 minutes.
const TURN_MAX: u64 = 1 << 30;
const _: () = assert!(TURN_MAX.checked_mul(TURN_MAX).is_some());

impl Turns {
    fn add(&mut self, ns: u64) {
        let length = (ns >> 10).min(TURN_MAX);
        debug_assert!(length <= TURN_MAX, "the square of a length has 64 bits");
        self.total = self.total.wrapping_add(length);
        self.squares = self.squares.wrapping_add(length * length);
    }

    /// The turns since `earlier`, a copy taken on the same core.
    #[must_use]
    pub fn since(&self, earlier: &Turns) -> Turns {
        Turns {
            total: self.total.wrapping_sub(earlier.total),
            squares: self.squares.wrapping_sub(earlier.squares),
        }
    }

    /// How long an event that became ready at a random moment waited for its task, on average, if
    /// the core was always busy: the rest of the turn in which it arrived, then its place in the
    /// next one. The chance to arrive in a turn is proportional to its length.
    #[must_use]
    pub fn delay(&self) -> Duration {
        let length = self.squares.checked_div(self.total).unwrap_or(0);
        Duration::from_nanos(length << 10)
    }
}

impl Clock {
    pub(crate) fn new(world: &World) -> Self {
        let now_ns = world.monotonic_ns();
        Clock {
            origin_ns: now_ns,
            now_ns: Cell::new(now_ns),
            wall_ns: Cell::new(None),
            turns: Cell::default(),
        }
    }

    /// Reads the world's clock at the start of a turn.
    pub(crate) fn refresh(&self, world: &World) {
        let now_ns = world.monotonic_ns();
        let mut turns = self.turns.get();
        turns.add(now_ns.saturating_sub(self.now_ns.get()));
        self.turns.set(turns);
        debug_assert!(now_ns >= self.now_ns.get(), "the clock of a world is monotonic");
        self.now_ns.set(now_ns);
        self.wall_ns.set(None);
    }

    /// The turns so far.
    pub(crate) fn turns(&self) -> Turns {
        self.turns.get()
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_ns(self.now_ns.get())
    }

    pub(crate) fn wall_ns(&self, world: &World) -> u64 {
        self.wall_ns.get().unwrap_or_else(|| {
            let wall_ns = world.wall_ns();
            self.wall_ns.set(Some(wall_ns));
            wall_ns
        })
    }

    /// The last tick that has begun.
    pub(crate) fn tick(&self) -> u64 {
        (self.now_ns.get() - self.origin_ns) / TICK_NS
    }

    /// The first tick at which `deadline` has passed.
    pub(crate) fn tick_after(&self, deadline: Instant) -> u64 {
        deadline.as_ns().saturating_sub(self.origin_ns).div_ceil(TICK_NS)
    }

    /// How long it is until `tick` begins.
    pub(crate) fn until(&self, tick: u64) -> Duration {
        let at_ns = tick.saturating_mul(TICK_NS).saturating_add(self.origin_ns);
        Duration::from_nanos(at_ns.saturating_sub(self.now_ns.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_turns_count_by_their_length() {
        let mut turns = Turns::default();
        assert_eq!(turns.delay(), Duration::ZERO);
        (0..10).for_each(|_| turns.add(1 << 20));
        assert_eq!(turns.delay(), Duration::from_nanos(1 << 20));
        // One turn as long as the ten before it together: half of all events arrive in it.
        turns.add(10 << 20);
        let delay_ms = turns.delay().as_nanos() >> 20;
        assert!((5..=6).contains(&delay_ms), "{delay_ms}");
        let before = turns;
        turns.add(5 << 10);
        assert_eq!(turns.since(&before).delay(), Duration::from_nanos(5 << 10));
        turns.add(u64::MAX);
        assert!(turns.delay() <= Duration::from_nanos(TURN_MAX << 10));
    }
}
