//! The core's clock: read once a turn, then a load.
//!
//! What: the monotonic time for timers and ages, the wall time for dates and logs. Both are read
//! from the world (the system's clocks or the simulated one) when a wait returns; the wall time
//! only in turns that ask for it.
//! What never happens: within one turn the clock never moves, so that what happened together has
//! one time.

use std::cell::Cell;
use std::time::Duration;

use super::Instant;
use crate::sys::World;

/// The grain of timers.
pub(crate) const TICK_NS: u64 = 1_000_000;

pub(crate) struct Clock {
    /// The instant of tick 0.
    origin_ns: u64,
    now_ns: Cell<u64>,
    /// `None` until somebody asks for it in this turn.
    wall_ns: Cell<Option<u64>>,
}

impl Clock {
    pub(crate) fn new(world: &World) -> Self {
        let now_ns = world.monotonic_ns();
        Clock { origin_ns: now_ns, now_ns: Cell::new(now_ns), wall_ns: Cell::new(None) }
    }

    /// Reads the world's clock: a new turn begins.
    pub(crate) fn refresh(&self, world: &World) {
        self.now_ns.set(world.monotonic_ns());
        self.wall_ns.set(None);
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
