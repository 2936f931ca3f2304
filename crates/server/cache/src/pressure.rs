//! Memory pressure: the process's memory limit, its use, and what the store gives up.
//!
//! The limit is the least of the configured one ([`Limits::process_memory_max`]) and those of the
//! control group (`memory.high`, `memory.max`). It is checked once a second, by the first core
//! whose tick comes. Above the soft mark the store frees the excess; above the hard mark new
//! connections are refused too. Both end when use has fallen.
//!
//! What never happens: the store's bound changes; one check frees more than the excess; the store
//! shrinks below an eighth of its bound (memory kept by the allocator would otherwise empty it for
//! nothing).

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use config::limits::Limits;

/// The store shrinks above this share of the limit, in percent.
const SOFT_PERCENT: u64 = 90;
/// New connections are refused above this share.
const HARD_PERCENT: u64 = 97;
/// Time between checks.
const LOOK_EVERY_MS: u64 = 1000;
/// The store keeps its bound divided by this.
const STORE_LEFT: u64 = 8;

/// The memory of the process, or of its control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Bytes in use.
    pub bytes: u64,
    /// The limit.
    pub bytes_max: u64,
}

/// The reaction to memory use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// None.
    Calm,
    /// The store must free this many bytes.
    Soft(u64),
    /// The same, and no new connections.
    Hard(u64),
}

impl Use {
    /// The reaction to this use.
    pub fn level(self) -> Level {
        let mark = |percent: u64| self.bytes_max / 100 * percent;
        let excess = self.bytes.saturating_sub(mark(SOFT_PERCENT));
        if self.bytes > mark(HARD_PERCENT) {
            Level::Hard(excess)
        } else if excess > 0 {
            Level::Soft(excess)
        } else {
            Level::Calm
        }
    }
}

/// Shared by all cores.
#[derive(Debug)]
pub struct Pressure {
    next_look_ms: AtomicU64,
    group: Mutex<Option<PathBuf>>,
    closed: AtomicBool,
    shrinks: AtomicU64,
}

impl Default for Pressure {
    /// No check so far.
    fn default() -> Pressure {
        Pressure {
            next_look_ms: AtomicU64::new(0),
            group: Mutex::new(own_group()),
            closed: AtomicBool::new(false),
            shrinks: AtomicU64::new(0),
        }
    }
}

impl Pressure {
    /// Whether new connections are refused.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }

    /// How often the store was shrunk.
    pub fn shrinks(&self) -> u64 {
        self.shrinks.load(Relaxed)
    }

    /// Checks, if it is time and no other core does. Passes the excess bytes to `shrink`.
    pub fn look(&self, now_ms: u64, limits: &Limits, shrink: impl FnOnce(u64)) {
        let due = self.next_look_ms.load(Relaxed);
        let next = now_ms + LOOK_EVERY_MS;
        if now_ms < due || self.next_look_ms.compare_exchange(due, next, Relaxed, Relaxed).is_err()
        {
            return;
        }
        let Some(used) = self.measure(limits) else { return };
        self.apply(used.level(), shrink);
    }

    fn apply(&self, level: Level, shrink: impl FnOnce(u64)) {
        let hard = matches!(level, Level::Hard(_));
        if self.closed.swap(hard, Relaxed) != hard {
            let state = if hard { "new connections are refused" } else { "it has passed" };
            tracing::warn!(state, "memory pressure");
        }
        if let Level::Soft(excess) | Level::Hard(excess) = level {
            self.shrinks.fetch_add(1, Relaxed);
            shrink(excess);
        }
    }

    /// The use closest to its limit.
    fn measure(&self, limits: &Limits) -> Option<Use> {
        let own = limits.process_memory_max.and_then(|bytes_max| {
            resident_bytes().map(|bytes| Use { bytes, bytes_max: bytes_max.max(1) })
        });
        let group = self.group.lock().ok()?.as_deref().and_then(group_use);
        let share = |used: &Use| used.bytes.saturating_mul(1000) / used.bytes_max;
        own.into_iter().chain(group).max_by_key(share)
    }
}

/// The size to which the store shrinks.
pub fn store_bytes_left(holds: u64, bytes_max: u64, excess: u64) -> u64 {
    holds.saturating_sub(excess).max(bytes_max / STORE_LEFT)
}

/// Resident memory of the process.
pub fn resident_bytes() -> Option<u64> {
    const PAGE_BYTES: u64 = 4096;
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * PAGE_BYTES)
}

/// Microseconds in which some tasks, or all of them at once, waited for memory: of our control
/// group if it reports them, otherwise of the machine. Empty if the kernel has no pressure stall
/// information.
pub fn stalled() -> Vec<(&'static str, u64)> {
    let of_group = own_group().map(|group| group.join("memory.pressure"));
    let machine = PathBuf::from("/proc/pressure/memory");
    let mut files = of_group.into_iter().chain([machine]);
    let text = files.find_map(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    totals(&text)
}

/// Parses lines such as `some avg10=0.00 avg60=0.04 avg300=0.06 total=19523623`.
fn totals(text: &str) -> Vec<(&'static str, u64)> {
    let total = |tasks: &'static str| {
        let line = text.lines().find_map(|line| line.strip_prefix(tasks)?.strip_prefix(' '))?;
        let total = line.split(' ').find_map(|word| word.strip_prefix("total="))?;
        Some((tasks, total.parse().ok()?))
    };
    ["some", "full"].into_iter().filter_map(total).collect()
}

/// The directory of our control group (version 2), if it accounts memory.
fn own_group() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let name = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let group = Path::new("/sys/fs/cgroup").join(name);
    group.join("memory.current").exists().then_some(group)
}

fn group_use(group: &Path) -> Option<Use> {
    let number = |name| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    let bytes_max = [number("memory.high"), number("memory.max")].into_iter().flatten().min()?;
    // The kernel reclaims inactive file pages by itself.
    let stat = fs::read_to_string(group.join("memory.stat")).ok()?;
    let files = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok());
    let bytes = number("memory.current")?.saturating_sub(files.unwrap_or(0));
    Some(Use { bytes, bytes_max: bytes_max.max(1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks() {
        let of = |bytes| Use { bytes, bytes_max: 1000 }.level();
        assert_eq!(of(900), Level::Calm);
        assert_eq!(of(901), Level::Soft(1));
        assert_eq!(of(970), Level::Soft(70));
        assert_eq!(of(971), Level::Hard(71));
        assert_eq!(of(5000), Level::Hard(4100));
    }

    #[test]
    fn stalls_are_read_if_present() {
        let text = "some avg10=0.00 avg60=0.04 avg300=0.06 total=195\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=53\n";
        assert_eq!(totals(text), [("some", 195), ("full", 53)]);
        assert_eq!(totals("some avg10=0.00 total=x\n"), []);
        assert_eq!(totals(""), []);
    }

    #[test]
    fn the_store_keeps_an_eighth() {
        assert_eq!(store_bytes_left(1000, 1000, 70), 930);
        assert_eq!(store_bytes_left(1000, 1000, 5000), 125);
    }

    #[test]
    fn pressure_comes_and_passes() {
        let pressure = Pressure::default();
        let mut gone = 0;
        pressure.apply(Level::Soft(7), |bytes| gone += bytes);
        assert!(!pressure.is_closed());
        pressure.apply(Level::Hard(9), |bytes| gone += bytes);
        assert!(pressure.is_closed());
        pressure.apply(Level::Calm, |_| unreachable!("there is no excess"));
        assert!(!pressure.is_closed());
        assert_eq!((gone, pressure.shrinks()), (16, 2));
    }

    #[test]
    fn the_use_of_a_group_excludes_inactive_files() {
        let home = std::env::temp_dir().join(format!("plimsoll-group-{}", std::process::id()));
        fs::create_dir_all(&home).unwrap();
        let write = |name: &str, text: &str| fs::write(home.join(name), text).unwrap();
        write("memory.high", "max\n");
        write("memory.max", "max\n");
        write("memory.current", "700\n");
        write("memory.stat", "anon 1\ninactive_file 200\n");
        assert_eq!(group_use(&home), None, "no bound, no pressure");
        write("memory.max", "1000\n");
        assert_eq!(group_use(&home), Some(Use { bytes: 500, bytes_max: 1000 }));
        write("memory.high", "600\n");
        assert_eq!(group_use(&home), Some(Use { bytes: 500, bytes_max: 600 }));
        fs::remove_dir_all(&home).unwrap();
    }

    #[test]
    fn one_check_per_second() {
        let pressure = Pressure::default();
        let limits = Limits { process_memory_max: Some(1), ..Limits::default() };
        let looks = |at_ms| {
            let mut looked = 0;
            pressure.look(at_ms, &limits, |_| looked += 1);
            looked
        };
        assert_eq!([looks(5000), looks(5001), looks(5999), looks(6000)], [1, 0, 0, 1]);
    }
}
