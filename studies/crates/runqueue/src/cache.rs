//! A simulated data cache: set-associative, with least-recently-used replacement.
//!
//! Why a simulation: the processor's counters are not available everywhere, and a simulation always
//! gives the same count, for the caches of 1998 and 2002 as well as for today's. It does not model
//! instructions, prefetching, and the kernel's accesses.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// The geometry of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Geometry {
    /// Its capacity, bytes.
    pub bytes: u64,
    /// Lines per set; 1 means direct-mapped.
    pub ways: u64,
    /// Size of a line, bytes.
    pub line: u64,
}

impl Geometry {
    fn sets(self) -> u64 {
        (self.bytes / self.ways / self.line).max(1)
    }

    /// Size of one way, bytes. Addresses that are this far apart share a set.
    pub fn way_bytes(self) -> u64 {
        (self.bytes / self.ways).max(1)
    }

    /// `8 KiB, direct-mapped, lines of 32`
    #[must_use]
    pub fn text(&self) -> String {
        let ways = match self.ways {
            1 => "direct-mapped".to_owned(),
            ways => format!("{ways} ways"),
        };
        format!("{} KiB, {ways}, lines of {}", self.bytes / 1024, self.line)
    }
}

/// The first and second level of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// A short description.
    pub name: String,
    /// The first level.
    pub l1: Geometry,
    /// The second level.
    pub l2: Geometry,
}

impl Machine {
    /// Its name and its caches.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}: {}; {}", self.name, self.l1.text(), self.l2.text())
    }

    /// Its name in a few words: `2002, 256 KiB`.
    #[must_use]
    pub fn short(&self) -> String {
        self.name.replace("Pentium III Xeon (2002)", "2002")
    }

    /// The Alpha 21164A of the papers. The size of its board cache is not published, so that cache
    /// is left out.
    pub fn of_1998() -> Machine {
        Machine {
            name: "Alpha 21164A (1998)".into(),
            l1: Geometry { bytes: 8 << 10, ways: 1, line: 32 },
            l2: Geometry { bytes: 96 << 10, ways: 3, line: 64 },
        }
    }

    /// The Pentium III Xeon of the scheduler's paper, with a second level of this many KiB.
    pub fn of_2002(l2_kib: u64) -> Machine {
        Machine {
            name: format!("Pentium III Xeon (2002), {l2_kib} KiB"),
            l1: Geometry { bytes: 16 << 10, ways: 4, line: 32 },
            l2: Geometry { bytes: l2_kib << 10, ways: 4, line: 32 },
        }
    }

    /// This machine's caches as reported by the kernel, or else those of a typical server.
    pub fn of_today() -> Machine {
        let at = Path::new("/sys/devices/system/cpu/cpu0/cache");
        let (l1, l2) = (reported(at, "1", "Data"), reported(at, "2", "Unified"));
        let name = if l1.is_some() && l2.is_some() { "this machine" } else { "a server of today" };
        Machine {
            name: name.into(),
            l1: l1.unwrap_or(Geometry { bytes: 32 << 10, ways: 8, line: 64 }),
            l2: l2.unwrap_or(Geometry { bytes: 1 << 20, ways: 16, line: 64 }),
        }
    }
}

/// Reads the geometry of the cache with this level and type from the kernel's files.
fn reported(caches: &Path, level: &str, kind: &str) -> Option<Geometry> {
    for entry in fs::read_dir(caches).ok()?.flatten() {
        let read = |name: &str| {
            fs::read_to_string(entry.path().join(name)).map(|text| text.trim().to_owned()).ok()
        };
        if read("level").as_deref() != Some(level) || read("type").as_deref() != Some(kind) {
            continue;
        }
        let kib: u64 = read("size")?.strip_suffix('K')?.parse().ok()?;
        let ways = read("ways_of_associativity")?.parse().ok()?;
        let line = read("coherency_line_size")?.parse().ok()?;
        let geometry = Geometry { bytes: kib * 1024, ways, line };
        return (ways > 0 && line > 0 && kib > 0).then_some(geometry);
    }
    None
}

/// One level.
#[derive(Debug)]
struct Level {
    geometry: Geometry,
    /// The lines of each set, the most recently used first.
    sets: Vec<Vec<u64>>,
}

impl Level {
    fn new(geometry: Geometry) -> Level {
        let sets = vec![Vec::with_capacity(geometry.ways as usize); geometry.sets() as usize];
        Level { geometry, sets }
    }

    /// Looks up an address and loads it. True if it was already there.
    fn access(&mut self, address: u64) -> bool {
        let line = address / self.geometry.line;
        let set = (line % self.geometry.sets()) as usize;
        let set = &mut self.sets[set];
        let found = set.iter().position(|other| *other == line);
        match found {
            Some(at) => set[..=at].rotate_right(1),
            None => {
                if set.len() == self.geometry.ways as usize {
                    set.pop();
                }
                set.insert(0, line);
            }
        }
        found.is_some()
    }

    /// Evicts an address.
    fn forget(&mut self, address: u64) {
        let line = address / self.geometry.line;
        let set = (line % self.geometry.sets()) as usize;
        self.sets[set].retain(|other| *other != line);
    }
}

/// The counts of accesses and misses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Misses {
    /// Words read or written.
    pub accesses: u64,
    /// Misses of the first level.
    pub l1: u64,
    /// Misses of the second level, included in `l1`.
    pub l2: u64,
}

impl Misses {
    /// Misses of the second level, percent of the accesses.
    #[must_use]
    pub fn l2_percent(&self) -> f64 {
        100.0 * self.l2 as f64 / self.accesses.max(1) as f64
    }
}

/// Both levels. The second is accessed when the first misses.
#[derive(Debug)]
pub struct Cache {
    l1: Level,
    l2: Level,
}

/// Size of an access, bytes.
const WORD: u64 = 8;

impl Cache {
    /// An empty cache.
    pub fn new(machine: &Machine) -> Cache {
        Cache { l1: Level::new(machine.l1), l2: Level::new(machine.l2) }
    }

    /// Reads or writes bytes from an address on, word by word.
    pub fn touch(&mut self, address: u64, bytes: u64, misses: &mut Misses) {
        for word in (0..bytes).step_by(WORD as usize) {
            misses.accesses += 1;
            if !self.l1.access(address + word) {
                misses.l1 += 1;
                misses.l2 += u64::from(!self.l2.access(address + word));
            }
        }
    }

    /// Another processor wrote these bytes: the copies here are invalid.
    pub fn forget(&mut self, address: u64, bytes: u64) {
        for word in (0..bytes).step_by(WORD as usize) {
            self.l1.forget(address + word);
            self.l2.forget(address + word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(bytes: u64, ways: u64, line: u64) -> Level {
        Level::new(Geometry { bytes, ways, line })
    }

    fn hits(level: &mut Level, addresses: &[u64]) -> Vec<bool> {
        addresses.iter().map(|address| level.access(*address)).collect()
    }

    #[test]
    fn two_lines_of_one_direct_mapped_set_evict_each_other() {
        // Four sets of one line of 32 bytes: 0 and 128 share a set, 32 does not.
        let mut cache = level(128, 1, 32);
        let found = hits(&mut cache, &[0, 8, 31, 32, 128, 0, 32, 128]);
        assert_eq!(found, [false, true, true, false, false, false, true, false]);
    }

    #[test]
    fn the_least_recently_used_of_two_ways_is_evicted() {
        // One set of two lines.
        let mut cache = level(64, 2, 32);
        //            a      b      a     c (b goes) a     b (c goes) c (a goes) a
        let addresses = [0, 32, 0, 64, 0, 32, 64, 0];
        let found = hits(&mut cache, &addresses);
        assert_eq!(found, [false, false, true, false, true, false, false, false]);
    }

    #[test]
    fn a_walk_longer_than_the_cache_always_misses_and_one_that_fits_does_not() {
        for (lines, again) in [(16, 0), (17, 17)] {
            // Sixteen lines, all in one set.
            let mut cache = level(16 * 64, 16, 64);
            let walk: Vec<u64> = (0..lines).map(|line| line * 64).collect();
            assert!(hits(&mut cache, &walk).iter().all(|hit| !hit));
            let misses = hits(&mut cache, &walk).iter().filter(|hit| !**hit).count();
            assert_eq!(misses, again, "{lines} lines");
        }
    }

    #[test]
    fn the_second_level_is_accessed_when_the_first_misses() {
        let machine = Machine {
            name: "test".into(),
            l1: Geometry { bytes: 64, ways: 1, line: 32 },
            l2: Geometry { bytes: 256, ways: 4, line: 64 },
        };
        let mut cache = Cache::new(&machine);
        let mut misses = Misses::default();
        cache.touch(0, 64, &mut misses);
        // Eight words in two lines of the first level, which are one of the second.
        assert_eq!(misses, Misses { accesses: 8, l1: 2, l2: 1 });
        // Evicts 0 from the first level, but not from the second.
        cache.touch(64, 8, &mut misses);
        cache.touch(0, 8, &mut misses);
        assert_eq!(misses, Misses { accesses: 10, l1: 4, l2: 2 });
    }

    #[test]
    fn lines_that_another_processor_wrote_are_evicted() {
        let mut cache = Cache::new(&Machine::of_2002(256));
        let mut misses = Misses::default();
        cache.touch(0, 32, &mut misses);
        cache.forget(64, 8);
        cache.touch(0, 8, &mut misses);
        assert_eq!((misses.l1, misses.l2), (1, 1), "another line was written");
        cache.forget(24, 8);
        cache.touch(0, 8, &mut misses);
        assert_eq!((misses.l1, misses.l2), (2, 2), "a word of the same line was written");
    }

    #[test]
    fn geometries_are_reported_or_typical() {
        assert_eq!(Machine::of_1998().l2.sets(), 512);
        let today = Machine::of_today();
        assert!(today.l1.bytes < today.l2.bytes, "{today:?}");
        assert_eq!(reported(Path::new("/nowhere/at/all"), "1", "Data"), None);
        assert_eq!(Machine::of_1998().l1.text(), "8 KiB, direct-mapped, lines of 32");
    }
}
