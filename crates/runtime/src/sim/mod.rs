//! The twin: the same runtime on a simulated network, disk and clock, drawn from one seed.
//!
//! What: [`crate::Runtime::simulated`] makes a core whose sockets, files and clocks live in memory.
//! Bytes arrive late, in arbitrary pieces, or not at all; time moves only when every task waits,
//! and then at once to the next thing that happens. Everything above the sockets is the code that
//! serves users, unmodified.
//! Why: a fault that happens once in a million connections happens here every second, and the seed
//! that a failure prints makes it happen again.
//! Who owns: a simulated core owns its whole world: both ends of its connections live on it.
//! What never happens: real time passes, a system call is made, or anything depends on something
//! else than the seed and the program.

mod datagram;
mod disk;
mod net;
mod rng;
mod stream;
mod trace;
mod world;

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::core;
use crate::sys::World as AnyWorld;

pub(crate) use disk::FileHandle;
pub use disk::{Disk, DiskCounters, Faults, SECTOR_BYTES};
pub use rng::Rng;
pub(crate) use world::World;

/// What the simulated world is like. Probabilities are from 0 to 1.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Everything that is random is drawn from it.
    pub seed: u64,
    /// How long a piece of data, a connect or a datagram is under way.
    pub delay: Range<Duration>,
    /// The probability that a write is cut at each of its byte boundaries, so that the pieces
    /// arrive one after the other; 1 sends every byte by itself. Also of a read that is given less
    /// than there is.
    pub split: f64,
    /// The probability that a write takes only a part of what there is room for.
    pub short_write: f64,
    /// The probability that a write is followed by a reset of its connection, which overtakes data.
    pub reset: f64,
    /// The probability that a connect is refused although somebody listens.
    pub refuse: f64,
    /// The probability that a datagram is lost.
    pub loss: f64,
    /// Bytes that a connection holds in each direction, under way and unread.
    pub buffer_bytes: usize,
    /// How long a file takes to open or to read.
    pub disk_delay: Range<Duration>,
    /// The probability that reading a file fails.
    pub disk_error: f64,
    /// The disk; `None`: an empty one without other faults. One that is given outlives the runtime.
    pub disk: Option<Disk>,
    /// The probability that a write stalls: it and what follows are under way for up to
    /// [`STALL_MAX`].
    pub stall: f64,
    /// Descriptors open at a time; one more is refused with EMFILE.
    pub descriptors_max: usize,
    /// Real time that the core waits for another thread to wake a task once nothing is left to
    /// simulate; then it panics, because nothing would ever happen.
    pub outside_wait: Duration,
}

/// The longest that a write stalls.
pub const STALL_MAX: Duration = Duration::from_secs(120);

impl Options {
    /// A network without faults: delays of 10 to 200 us, nothing split, nothing lost.
    #[must_use]
    pub fn new(seed: u64) -> Options {
        Options {
            seed,
            delay: Duration::from_micros(10)..Duration::from_micros(200),
            split: 0.0,
            short_write: 0.0,
            reset: 0.0,
            refuse: 0.0,
            loss: 0.0,
            buffer_bytes: 64 * 1024,
            disk_delay: Duration::from_micros(20)..Duration::from_millis(2),
            disk_error: 0.0,
            disk: None,
            stall: 0.0,
            descriptors_max: 20_000,
            outside_wait: Duration::from_secs(5),
        }
    }

    /// Splits and short writes, drawn from the seed with it; nothing is lost: what must work for
    /// every peer that keeps to the rules.
    #[must_use]
    pub fn rough(seed: u64) -> Options {
        let mut rng = Rng::new(seed ^ 0x726f_7567_6821);
        let split = [0.0, 0.001, 0.02, 0.3, 1.0][rng.below(5) as usize];
        let buffer_bytes = [512, 4096, 65536][rng.below(3) as usize];
        Options {
            split,
            short_write: 0.1,
            buffer_bytes,
            delay: Duration::ZERO..Duration::from_millis(1 + rng.below(20)),
            ..Options::new(seed)
        }
    }

    /// As [`Options::rough`], with resets, stalls, refused connects, lost datagrams and a failing
    /// disk.
    #[must_use]
    pub fn stormy(seed: u64) -> Options {
        Options {
            reset: 0.01,
            stall: 0.002,
            refuse: 0.02,
            loss: 0.05,
            disk_error: 0.01,
            ..Options::rough(seed)
        }
    }

    /// The same, with these delays.
    #[must_use]
    pub fn with_delay(mut self, delay: Range<Duration>) -> Options {
        self.delay = delay;
        self
    }

    /// The same, with writes cut at each byte boundary with this probability.
    #[must_use]
    pub fn with_split(mut self, split: f64) -> Options {
        self.split = split;
        self
    }

    /// The same, with writes followed by a reset with this probability.
    #[must_use]
    pub fn with_reset(mut self, reset: f64) -> Options {
        self.reset = reset;
        self
    }

    /// The same, on this disk, each operation of which takes so long.
    #[must_use]
    pub fn with_disk(mut self, disk: Disk, delay: Range<Duration>) -> Options {
        self.disk = Some(disk);
        self.disk_delay = delay;
        self
    }

    /// The same, with writes that stall with this probability.
    #[must_use]
    pub fn with_stall(mut self, stall: f64) -> Options {
        self.stall = stall;
        self
    }

    /// The same, with connections that hold so many bytes in each direction.
    #[must_use]
    pub fn with_buffer_bytes(mut self, buffer_bytes: usize) -> Options {
        self.buffer_bytes = buffer_bytes;
        self
    }

    /// The same, with so many descriptors at a time.
    #[must_use]
    pub fn with_descriptors_max(mut self, descriptors_max: usize) -> Options {
        self.descriptors_max = descriptors_max;
        self
    }
}

/// Puts a file onto the current core's simulated disk.
///
/// # Panics
/// If the current core is not simulated.
pub fn put_file(path: impl AsRef<Path>, bytes: impl Into<Vec<u8>>) {
    with_world(|world| world.disk().put(path, bytes));
}

/// Takes a file off the current core's simulated disk; open handles keep it.
///
/// # Panics
/// If the current core is not simulated.
pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    with_world(|world| world.disk().remove(path.as_ref()))
}

/// The current core's simulated disk.
///
/// # Panics
/// If the current core is not simulated.
#[must_use]
pub fn disk() -> Disk {
    with_world(|world| world.disk().clone())
}

/// Resets every connection to or from `address`, as a peer does that crashes.
///
/// # Panics
/// If the current core is not simulated.
pub fn crash_connections(address: SocketAddr) {
    with_world(|world| world.crash_connections(address));
}

/// The current core's processor is busy for so long: virtual time passes, and nothing happens in
/// it. What runs on the twin takes no time otherwise; this is how a scenario overloads it.
///
/// # Panics
/// If the current core is not simulated.
pub fn burn(time: Duration) {
    with_world(|world| world.burn(time));
}

/// A number made of everything that has happened in the current core's simulated world, in order.
/// Two runs with one seed have the same.
///
/// # Panics
/// If the current core is not simulated.
#[must_use]
pub fn trace_hash() -> u64 {
    with_world(World::trace_hash)
}

/// The last things that happened in the current core's simulated world, one a line.
///
/// # Panics
/// If the current core is not simulated.
#[must_use]
pub fn trace_tail() -> String {
    with_world(World::trace_tail)
}

/// Names other seeds for [`check`] to run: `PLIMSOLL_SEEDS=42`, or `PLIMSOLL_SEEDS=0..1000`.
pub const SEEDS_VARIABLE: &str = "PLIMSOLL_SEEDS";

/// Runs `scenario` once for each seed, or for those that the environment names
/// ([`SEEDS_VARIABLE`]). If one panics, says which seed that was and what happened last in its
/// world, and panics again.
///
/// ```
/// runtime::sim::check(0..3, |seed| {
///     let mut runtime = runtime::Runtime::simulated(runtime::sim::Options::rough(seed));
///     runtime.block_on(runtime::time::sleep(std::time::Duration::from_secs(3600)));
/// });
/// ```
///
/// # Panics
/// When a scenario panics, or the environment names seeds that are none.
pub fn check(seeds: impl IntoIterator<Item = u64>, mut scenario: impl FnMut(u64)) {
    let named = std::env::var(SEEDS_VARIABLE).ok();
    let seeds = match &named {
        Some(text) => parse_seeds(text).expect("PLIMSOLL_SEEDS is a number or a range 0..1000"),
        None => seeds.into_iter().collect(),
    };
    for seed in seeds {
        world::clear_last_words();
        if let Err(panicked) = panic::catch_unwind(AssertUnwindSafe(|| scenario(seed))) {
            eprintln!("{}seed {seed}", world::last_words());
            eprintln!("to see it again: {SEEDS_VARIABLE}={seed}");
            panic::resume_unwind(panicked);
        }
    }
}

fn parse_seeds(text: &str) -> Option<Vec<u64>> {
    match text.split_once("..") {
        Some((start, end)) => Some((start.parse().ok()?..end.parse().ok()?).collect()),
        None => Some(vec![text.parse().ok()?]),
    }
}

/// The world of the current core, for a file that is simulated.
pub(crate) fn current_world() -> io::Result<Rc<World>> {
    match &core::current().world {
        AnyWorld::Simulated(world) => Ok(Rc::clone(world)),
        AnyWorld::Real => Err(io::Error::other("a simulated file on a real core")),
    }
}

fn with_world<T>(look: impl FnOnce(&World) -> T) -> T {
    let core = core::current();
    match &core.world {
        AnyWorld::Simulated(world) => look(world),
        AnyWorld::Real => panic!("called on a simulated core"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_number_or_a_range() {
        assert_eq!(parse_seeds("42"), Some(vec![42]));
        assert_eq!(parse_seeds("3..6"), Some(vec![3, 4, 5]));
        assert_eq!(parse_seeds("3..x").or(parse_seeds("")), None);
    }
}
