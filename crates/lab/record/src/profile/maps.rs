//! The address spaces of observed processes: which file's code is mapped where.
//!
//! A space is read from `/proc/PID/maps` once and then updated by the kernel's records. If
//! something turns out to be missing (a lost record, code that was made executable), it is read
//! again, at most once a second.

use super::files::{FileId, Files};
use super::jit::JitNames;
use super::records::Map;
use super::unwind::Unwinder;

/// Most mappings of code kept per process.
const MAPS_MAX: usize = 16_384;

/// Minimum time between two reads of a space.
const AGAIN_NS: i64 = 1_000_000_000;

/// A mapping of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) map: Map,
    pub(crate) file: Option<FileId>,
}

/// The code of one process.
#[derive(Default)]
pub(crate) struct Space {
    /// By start, never overlapping.
    maps: Vec<Mapping>,
    /// Made when it is first needed, and again when the maps have changed.
    pub(crate) unwinder: Option<Unwinder>,
    pub(crate) jit: JitNames,
    read_ns: Option<i64>,
}

impl Space {
    /// Reads the address space of a process.
    pub(crate) fn of(pid: u32, files: &mut Files, now_ns: i64) -> Space {
        let mut space = Space::default();
        space.read(pid, files, now_ns);
        space
    }

    /// The same code in a forked process.
    pub(crate) fn forked(&self) -> Space {
        Space {
            maps: self.maps.clone(),
            unwinder: self.unwinder.clone(),
            jit: JitNames::default(),
            read_ns: None,
        }
    }

    /// Adds a mapping of the kernel's; it replaces what it overlaps.
    pub(crate) fn add(&mut self, map: Map, files: &mut Files) {
        if map.start >= map.end || self.maps.len() >= MAPS_MAX {
            return;
        }
        let file = files.of(&map);
        cut(&mut self.maps, map.start, map.end);
        let at = self.maps.partition_point(|had| had.map.start < map.start);
        self.maps.insert(at, Mapping { map, file });
        self.unwinder = None;
    }

    /// The mapping at an address.
    pub(crate) fn find(&self, address: u64) -> Option<&Mapping> {
        let at = self.maps.partition_point(|had| had.map.start <= address).checked_sub(1)?;
        self.maps.get(at).filter(|had| address < had.map.end)
    }

    /// The files that are mapped, by start.
    pub(crate) fn mapped(&self) -> impl Iterator<Item = (FileId, &Map)> {
        self.maps.iter().filter_map(|mapping| Some((mapping.file?, &mapping.map)))
    }

    /// Reads the space again if that is due. Returns whether it did.
    pub(crate) fn read_again(&mut self, pid: u32, files: &mut Files, now_ns: i64) -> bool {
        let due = self.read_ns.is_none_or(|then| now_ns - then >= AGAIN_NS);
        if due {
            self.read(pid, files, now_ns);
        }
        due
    }

    fn read(&mut self, pid: u32, files: &mut Files, now_ns: i64) {
        self.read_ns = Some(now_ns);
        let Ok(text) = std::fs::read(format!("/proc/{pid}/maps")) else { return };
        let maps = parse(pid, &String::from_utf8_lossy(&text));
        // A process that has just ended has no maps; the old ones are better.
        if !maps.is_empty() {
            self.maps.clear();
            for map in maps.into_iter().take(MAPS_MAX) {
                let file = files.of(&map);
                self.maps.push(Mapping { map, file });
            }
            self.unwinder = None;
        }
    }
}

/// Removes a range from the mappings.
fn cut(maps: &mut Vec<Mapping>, start: u64, end: u64) {
    let mut kept = Vec::with_capacity(maps.len() + 1);
    for had in maps.drain(..) {
        if had.map.end <= start || had.map.start >= end {
            kept.push(had);
            continue;
        }
        if had.map.start < start {
            let mut before = had.clone();
            before.map.end = start;
            kept.push(before);
        }
        if had.map.end > end {
            let mut after = had;
            after.map.offset = after.map.offset.wrapping_add(end - after.map.start);
            after.map.start = end;
            kept.push(after);
        }
    }
    *maps = kept;
}

/// The executable mappings in the text of a `maps` file (proc(5)), by start.
pub(crate) fn parse(pid: u32, text: &str) -> Vec<Map> {
    let mut maps: Vec<Map> = text.lines().filter_map(|line| line_of(pid, line)).collect();
    maps.sort_by_key(|map| map.start);
    let mut end = 0;
    maps.retain(|map| {
        let apart = map.start >= end && map.end > map.start;
        end = if apart { map.end } else { end };
        apart
    });
    maps
}

fn line_of(pid: u32, line: &str) -> Option<Map> {
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let mut rest = line;
    let mut field = || {
        let (field, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after;
        field
    };
    let (start, end) = field().split_once('-')?;
    if field().as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let offset = hex(field())?;
    let (major, minor) = field().split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = field().parse().ok()?;
    let path = rest.trim_start().to_owned();
    Some(Map { pid, start: hex(start)?, end: hex(end)?, offset, device, inode, path })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "\
00400000-0041c000 r--p 00000000 fe:00 7 /usr/bin/a b
0041c000-0046f000 r-xp 0001c000 fe:00 7                                  /usr/bin/a b
7f00-8f00 r-xp 00000000 00:00 0 
7ffd3000-7ffd5000 r-xp 00000000 00:00 0                                  [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn executable_mappings_are_found_with_their_paths() {
        let maps = parse(7, TEXT);
        let of = |at: usize| (maps[at].start, maps[at].end, maps[at].path.as_str());
        assert_eq!(maps.len(), 4);
        assert_eq!(of(0), (0x7f00, 0x8f00, ""));
        assert_eq!(of(1), (0x41_c000, 0x46_f000, "/usr/bin/a b"));
        assert_eq!((maps[1].offset, maps[1].device, maps[1].inode), (0x1c000, (0xfe, 0), 7));
        assert_eq!(maps[2].path, "[vdso]");
    }

    #[test]
    fn a_later_mapping_replaces_an_earlier_one() {
        let mut files = Files::new();
        let mut space = Space::default();
        let map =
            |start, end, path: &str| Map { start, end, path: path.to_owned(), ..Map::default() };
        space.add(map(0x1000, 0x9000, "/a"), &mut files);
        space.add(map(0x3000, 0x4000, "/b"), &mut files);
        space.add(map(0x8000, 0xa000, ""), &mut files);
        let at = |address| space.find(address).map(|m| (m.map.path.as_str(), m.map.offset));
        assert_eq!(at(0xfff), None);
        assert_eq!(at(0x1000), Some(("/a", 0)));
        assert_eq!(at(0x3fff), Some(("/b", 0)));
        assert_eq!(at(0x4000), Some(("/a", 0x3000)), "the rest of it goes on where it was");
        assert_eq!(at(0x8000), Some(("", 0)));
        assert_eq!(at(0xa000), None);
    }

    #[test]
    fn this_process_has_a_space() {
        let mut files = Files::new();
        let space = Space::of(std::process::id(), &mut files, 0);
        let own = space.find(parse as *const () as u64).unwrap();
        assert!(own.file.is_some());
        assert!(Space::of(u32::MAX, &mut files, 0).maps.is_empty());
    }

    proptest! {
        #[test]
        fn mappings_never_overlap(adds in proptest::collection::vec((0..64u64, 0..64u64), 0..40)) {
            let mut files = Files::new();
            let mut space = Space::default();
            for (start, end) in adds {
                space.add(Map { start, end, ..Map::default() }, &mut files);
                prop_assert!(space.maps.windows(2).all(|w| w[0].map.end <= w[1].map.start));
                if start < end {
                    prop_assert!(space.find(start).is_some_and(|m| m.map.start == start));
                }
            }
        }

        #[test]
        fn noise_never_panics(
            text in "([0-9a-f]{0,17}-[0-9a-f]{0,17} r-xp [0-9a-f:]{0,9} .{0,9}\n){0,4}",
        ) {
            let _ = parse(1, &text);
        }
    }
}
