//! The twin: the same runtime on a network, disk and clock simulated from one seed.
//!
//! What: [`crate::Runtime::simulated`] makes a core whose sockets, files and clocks live in memory.
//! Bytes arrive late, in arbitrary pieces, or not at all. Time moves only when every task waits,
//! and then jumps to the next event. Everything above the sockets is the unmodified production
//! code.
//! Why: a fault that happens once in a million connections happens here every second, and the seed
//! that a failure prints reproduces it.
//! Who owns: a simulated core owns its whole world: both ends of its connections live on it.
//! What never happens: real time passes, a system call is made, or anything depends on more than
//! the seed and the program.

mod calls;
mod datagram;
mod disk;
mod error;
mod net;
pub(crate) mod options;
mod rng;
mod stream;
mod trace;
pub(crate) mod world;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::time::Duration;

use crate::core;
use crate::sys::World as AnyWorld;

pub(crate) use disk::FileHandle;
pub use disk::{Disk, DiskCounters, Faults, SECTOR_BYTES};
pub use options::{Options, STALL_MAX};
pub use rng::Rng;
use world::World;

/// Puts a file onto the current core's simulated disk.
///
/// # Panics
/// If the current core is not simulated.
pub fn put_file(path: impl AsRef<Path>, bytes: impl Into<Vec<u8>>) {
    with_world(|world| world.disk().put(path, bytes));
}

/// Removes a file from the current core's simulated disk; open handles keep it.
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

/// Resets every connection to or from `address`, as a crashing peer does.
///
/// # Panics
/// If the current core is not simulated.
pub fn crash_connections(address: SocketAddr) {
    with_world(|world| world.crash_connections(address));
}

/// The connections that are opened from now on come from this address, if their peers' addresses
/// are of its family. Before the first call it is the loopback address. An address of IPv4 inside
/// IPv6 is for IPv4 peers, which see it as a listener for both families does.
///
/// # Panics
/// If the current core is not simulated.
pub fn connect_from(address: IpAddr) {
    with_world(|world| world.connect_from(address));
}

/// Keeps the current core's processor busy: virtual time passes and no event happens. Code
/// otherwise takes no time on the twin, so this is how a scenario overloads it.
///
/// # Panics
/// If the current core is not simulated.
pub fn burn(time: Duration) {
    with_world(|world| world.burn(time));
}

/// A hash of everything that has happened in the current core's simulated world, in order. Two runs
/// with the same seed have the same hash.
///
/// # Panics
/// If the current core is not simulated.
#[must_use]
pub fn trace_hash() -> u64 {
    with_world(World::trace_hash)
}

/// The last events in the current core's simulated world, one per line.
///
/// # Panics
/// If the current core is not simulated.
#[must_use]
pub fn trace_tail() -> String {
    with_world(World::trace_tail)
}

/// The variable that selects other seeds for [`check`]: `PLIMSOLL_SEEDS=42`, or
/// `PLIMSOLL_SEEDS=0..1000`.
pub const SEEDS_VARIABLE: &str = "PLIMSOLL_SEEDS";

/// Runs `scenario` once for each seed, or for those that the environment selects
/// ([`SEEDS_VARIABLE`]). If one panics, prints its seed and the last events in its world, and
/// panics again.
///
/// ```
/// runtime::sim::check(0..3, |seed| {
///     let mut runtime = runtime::Runtime::simulated(runtime::sim::Options::rough(seed));
///     runtime.block_on(runtime::time::sleep(std::time::Duration::from_secs(3600)));
/// });
/// ```
///
/// # Panics
/// When a scenario panics, or the environment variable is invalid.
pub fn check(seeds: impl IntoIterator<Item = u64>, mut scenario: impl FnMut(u64)) {
    let named = std::env::var(SEEDS_VARIABLE).ok();
    let seeds = match &named {
        Some(text) => parse_seeds(text).expect("PLIMSOLL_SEEDS is a number or a range 0..1000"),
        None => seeds.into_iter().collect(),
    };
    for seed in seeds {
        world::clear_last_trace();
        if let Err(panicked) = panic::catch_unwind(AssertUnwindSafe(|| scenario(seed))) {
            eprintln!("{}seed {seed}", world::last_trace());
            eprintln!("to reproduce it: {SEEDS_VARIABLE}={seed}");
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
