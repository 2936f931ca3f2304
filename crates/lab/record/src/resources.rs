//! The work of disks and network cards: /proc/diskstats and /proc/net/dev, as differences between
//! samples, and what the machine reports about their limits.
//!
//! Which devices: whole block devices that are not built on others (a partition's work is its
//! disk's, a volume's is that of the disks under it), and network interfaces that are not built on
//! others. The loopback interface is not a card, and a RAM disk is not a disk: their work is CPU
//! time.
//!
//! Limits are only believed if they can be known: the speed of a card that has hardware (a virtual
//! one reports an arbitrary number), and whether the kernel considers a disk rotational. Most
//! hypervisors report virtual disks as rotational.
//!
//! A device that did nothing in an interval has no row. A counter that ran backwards belongs to
//! another device of the same name, and counting restarts from there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use trial::Capability;
use trial::resources::{Device, DeviceKind, DeviceUse};

use crate::procfs;

/// /proc/diskstats counts in sectors of this size, whatever the disk's own sector size.
const SECTOR_BYTES: u64 = 512;

/// Most devices of a kind that are followed. A machine with a thousand containers has a thousand
/// cards.
const DEVICES_MAX: usize = 256;

const NS_PER_MS: u64 = 1_000_000;

/// A disk's busy time may exceed the interval by this factor, because the kernel accounts for some
/// of it late.
const BUSY_OVER_LENGTH_MAX: u64 = 2;

/// Prefixes of block devices that are not disks.
const NO_DISKS: [&str; 4] = ["loop", "ram", "zram", "fd"];

/// Interfaces that are not network cards.
const NO_CARDS: [&str; 2] = ["lo", "ifb"];

/// The kernel's counters of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    busy_ms: u64,
    in_bytes: u64,
    out_bytes: u64,
    in_count: u64,
    out_count: u64,
}

/// A device that is followed, or one that was examined and is not.
#[derive(Debug)]
enum Known {
    Followed { device: Device, last: Counters },
    Ignored,
}

/// Follows the devices of the machine.
#[derive(Debug, Default)]
pub(crate) struct Devices {
    known: BTreeMap<(DeviceKind, String), Known>,
}

impl Devices {
    /// Reads the current counters.
    pub(crate) fn start(buffer: &mut Vec<u8>) -> Devices {
        let mut devices = Devices::default();
        devices.sample(0, i64::MAX, buffer);
        devices
    }

    /// The work of each device since the last sample, in an interval of this length.
    pub(crate) fn sample(
        &mut self,
        interval: u64,
        length_ns: i64,
        buffer: &mut Vec<u8>,
    ) -> Vec<DeviceUse> {
        let mut rows = Vec::new();
        for (kind, path) in SOURCES {
            let Ok(text) = procfs::read(path, buffer) else { continue };
            for (name, now) in counters(kind, text) {
                rows.extend(self.advance(kind, name, now, interval, length_ns));
            }
        }
        rows
    }

    fn advance(
        &mut self,
        kind: DeviceKind,
        name: &str,
        now: Counters,
        interval: u64,
        length_ns: i64,
    ) -> Option<DeviceUse> {
        let key = (kind, name.to_owned());
        if !self.known.contains_key(&key) {
            let of_kind = self.known.keys().filter(|(other, _)| *other == kind).count();
            let device = if of_kind < DEVICES_MAX { inspect(kind, name) } else { None };
            let known = match device {
                Some(device) => Known::Followed { device, last: now },
                None => Known::Ignored,
            };
            self.known.insert(key, known);
            return None;
        }
        let Some(Known::Followed { device, last }) = self.known.get_mut(&key) else { return None };
        let before = std::mem::replace(last, now);
        let grown = now.since(before)?;
        let length_ns = length_ns.max(0).unsigned_abs();
        let busy_ns = grown.busy_ms.saturating_mul(NS_PER_MS);
        if grown == Counters::default() || busy_ns / BUSY_OVER_LENGTH_MAX > length_ns {
            return None;
        }
        Some(DeviceUse {
            interval,
            device: device.clone(),
            busy_ns: (kind == DeviceKind::Disk).then_some(busy_ns.cast_signed()),
            in_bytes: grown.in_bytes,
            out_bytes: grown.out_bytes,
            in_count: grown.in_count,
            out_count: grown.out_count,
        })
    }

    /// What can be sampled here.
    pub(crate) fn capabilities(&self) -> Vec<Capability> {
        let each = [
            (DeviceKind::Disk, "disks", "/proc/diskstats: busy time in clock ticks, bytes"),
            (DeviceKind::Nic, "network cards", "/proc/net/dev: bytes, packets"),
        ];
        each.into_iter().map(|(kind, name, source)| self.capability(kind, name, source)).collect()
    }

    fn capability(&self, kind: DeviceKind, name: &str, source: &str) -> Capability {
        let followed: Vec<String> = self
            .known
            .values()
            .filter_map(|known| match known {
                Known::Followed { device, .. } if device.kind == kind => Some(described(device)),
                _ => None,
            })
            .collect();
        let reason = match followed.is_empty() {
            true => "the machine has none".to_owned(),
            false => format!("{source}; {}", followed.join(", ")),
        };
        Capability { name: name.to_owned(), supported: !followed.is_empty(), reason }
    }
}

pub(super) const SOURCES: [(DeviceKind, &str); 2] =
    [(DeviceKind::Disk, "/proc/diskstats"), (DeviceKind::Nic, "/proc/net/dev")];

/// A device and its limit.
fn described(device: &Device) -> String {
    let name = &device.name;
    match (device.kind, device.bytes_per_s) {
        (DeviceKind::Nic, Some(bytes)) => format!("{name} {} Mbit/s", bytes / 125_000),
        (DeviceKind::Nic, None) => format!("{name} (speed unknown)"),
        (DeviceKind::Disk, _) if device.one_at_a_time => format!("{name} (rotational)"),
        (DeviceKind::Disk, _) => format!("{name} (serves several requests at once)"),
    }
}

impl Counters {
    /// The growth; `None` if these are not later counters of the same device.
    fn since(self, before: Counters) -> Option<Counters> {
        // The kernel keeps the busy time in 32 bits.
        let busy_ms = match self.busy_ms.checked_sub(before.busy_ms) {
            Some(grown) => grown,
            None => (self.busy_ms + (1 << 32)).checked_sub(before.busy_ms)?,
        };
        Some(Counters {
            busy_ms,
            in_bytes: self.in_bytes.checked_sub(before.in_bytes)?,
            out_bytes: self.out_bytes.checked_sub(before.out_bytes)?,
            in_count: self.in_count.checked_sub(before.in_count)?,
            out_count: self.out_count.checked_sub(before.out_count)?,
        })
    }
}

/// The devices in a file of /proc with their counters. Other lines are skipped.
pub(super) fn counters(kind: DeviceKind, text: &[u8]) -> Vec<(&str, Counters)> {
    let lines = text.split(|&byte| byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    match kind {
        DeviceKind::Disk => lines.filter_map(disk).collect(),
        DeviceKind::Nic => lines.filter_map(card).collect(),
    }
}

/// A line of /proc/diskstats (Documentation/admin-guide/iostats): major, minor, name; reads,
/// merged, sectors, ms; writes, merged, sectors, ms; in flight, ms busy.
fn disk(line: &str) -> Option<(&str, Counters)> {
    let mut fields = line.split_ascii_whitespace();
    let name = fields.nth(2)?;
    let numbers = numbers(fields)?;
    let [in_count, _, read, _, out_count, _, written, _, _, busy_ms] = numbers;
    let (in_bytes, out_bytes) =
        (read.checked_mul(SECTOR_BYTES)?, written.checked_mul(SECTOR_BYTES)?);
    Some((name, Counters { busy_ms, in_bytes, out_bytes, in_count, out_count }))
}

/// A line of /proc/net/dev (proc(5)): a name and a colon; received bytes, packets, and six more;
/// sent bytes, packets, and six more.
fn card(line: &str) -> Option<(&str, Counters)> {
    let (name, rest) = line.split_once(':')?;
    let [in_bytes, in_count, _, _, _, _, _, _, out_bytes, out_count] =
        numbers(rest.split_ascii_whitespace())?;
    Some((name.trim(), Counters { busy_ms: 0, in_bytes, out_bytes, in_count, out_count }))
}

fn numbers<'a>(mut fields: impl Iterator<Item = &'a str>) -> Option<[u64; 10]> {
    let mut found = [0; 10];
    for number in &mut found {
        *number = fields.next()?.parse().ok()?;
    }
    Some(found)
}

/// Describes a device, if it is one to follow.
fn inspect(kind: DeviceKind, name: &str) -> Option<Device> {
    match kind {
        DeviceKind::Disk => inspect_disk(name, Path::new("/sys/block")),
        DeviceKind::Nic => inspect_card(name, Path::new("/sys/class/net")),
    }
}

fn inspect_disk(name: &str, all: &Path) -> Option<Device> {
    // A slash in a device's name is an exclamation mark in its directory's name. A partition has no
    // directory here.
    let home = all.join(name.replace('/', "!"));
    let is_built_on_others =
        fs::read_dir(home.join("slaves")).is_ok_and(|mut under| under.next().is_some());
    if NO_DISKS.iter().any(|none| name.starts_with(none)) || is_built_on_others || !home.is_dir() {
        return None;
    }
    let turns = fs::read_to_string(home.join("queue/rotational"));
    Some(Device {
        kind: DeviceKind::Disk,
        name: name.to_owned(),
        bytes_per_s: None,
        one_at_a_time: turns.is_ok_and(|text| text.trim() == "1"),
    })
}

fn inspect_card(name: &str, all: &Path) -> Option<Device> {
    let home = all.join(name);
    let none = NO_CARDS.iter().any(|none| {
        name.strip_prefix(none).is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
    });
    // A bridge, a bond or a VLAN has a link to each interface under it.
    let lower = |entry: fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"lower_");
    let mut entries = fs::read_dir(&home).into_iter().flatten();
    if none || entries.any(|entry| entry.is_ok_and(lower)) {
        return None;
    }
    let megabits = fs::read_to_string(home.join("speed")).ok();
    let megabits = megabits.and_then(|text| text.trim().parse::<u64>().ok());
    // -1 means unknown, and a card without hardware has no speed either.
    let known = megabits.filter(|speed| *speed > 0 && home.join("device").exists());
    Some(Device {
        kind: DeviceKind::Nic,
        name: name.to_owned(),
        bytes_per_s: known.and_then(|speed| speed.checked_mul(125_000)),
        one_at_a_time: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DISKS: &[u8] = b" 254 0 vda 10 1 80 5 20 2 160 9 0 700 14 0 0 0 0 2 5\n\
        254 1 vda1 10 1 80 5 20 2 160 9 0 700 14 0 0 0 0 2 5\nnoise\n";
    const CARDS: &[u8] = b"Inter-|   Receive     |  Transmit\n face |bytes    packets errs\n\
        lo: 5 1 0 0 0 0 0 0 5 1 0 0 0 0 0 0\n  eth0:1000 10 0 8 0 0 0 0 2000 20 0 0 0 0 0 0\n";

    fn followed(kind: DeviceKind, name: &str, last: Counters) -> Devices {
        let device = Device { kind, name: name.to_owned(), bytes_per_s: None, one_at_a_time: true };
        let mut devices = Devices::default();
        devices.known.insert((kind, name.to_owned()), Known::Followed { device, last });
        devices
    }

    #[test]
    fn both_files_are_read_as_the_kernel_writes_them() {
        let disks = counters(DeviceKind::Disk, DISKS);
        assert_eq!(disks.len(), 2);
        let vda = Counters {
            busy_ms: 700,
            in_bytes: 80 * 512,
            out_bytes: 160 * 512,
            in_count: 10,
            out_count: 20,
        };
        assert_eq!(disks[0], ("vda", vda));
        let cards = counters(DeviceKind::Nic, CARDS);
        let eth0 =
            Counters { busy_ms: 0, in_bytes: 1000, out_bytes: 2000, in_count: 10, out_count: 20 };
        assert_eq!(cards.last(), Some(&("eth0", eth0)));
        assert_eq!(cards.len(), 2, "the two lines of headings are none");
    }

    #[test]
    fn a_row_holds_what_was_added_since_the_last_sample() {
        let (kind, second) = (DeviceKind::Disk, 1_000_000_000);
        let before = Counters { busy_ms: 4_294_967_290, in_count: 3, ..Counters::default() };
        let mut devices = followed(kind, "sda", before);
        // The busy time went over its 32 bits.
        let now = Counters { busy_ms: 4, in_count: 5, in_bytes: 8192, ..Counters::default() };
        let row = devices.advance(kind, "sda", now, 7, second).unwrap();
        assert_eq!((row.interval, row.busy_ns, row.in_count), (7, Some(10_000_000), 2));
        assert_eq!(row.in_bytes, 8192);
        assert_eq!(devices.advance(kind, "sda", now, 8, second), None, "it did nothing");
        // Another disk of that name, and one that was busier than there is time.
        assert_eq!(devices.advance(kind, "sda", Counters::default(), 9, second), None);
        let never = Counters { busy_ms: 2_500, ..Counters::default() };
        assert_eq!(devices.advance(kind, "sda", never, 10, second), None);
    }

    #[test]
    fn only_devices_that_are_not_built_on_others_are_followed() {
        let home = tempfile::tempdir().unwrap();
        let all = home.path();
        for path in ["sda/queue", "md0/slaves/sda", "loop0", "nvme0n1/queue", "cciss!c0d0/queue"] {
            fs::create_dir_all(all.join(path)).unwrap();
        }
        fs::write(all.join("sda/queue/rotational"), "1\n").unwrap();
        fs::write(all.join("nvme0n1/queue/rotational"), "0\n").unwrap();
        assert!(inspect_disk("sda", all).unwrap().one_at_a_time);
        assert!(!inspect_disk("nvme0n1", all).unwrap().one_at_a_time);
        assert!(inspect_disk("cciss/c0d0", all).is_some());
        for none in ["sda1", "md0", "loop0"] {
            assert_eq!(inspect_disk(none, all), None, "{none}");
        }
    }

    #[test]
    fn a_speed_is_believed_only_of_hardware() {
        let home = tempfile::tempdir().unwrap();
        let all = home.path();
        let cards = [("eth0", "1000\n", true), ("eth1", "-1\n", true), ("veth7", "10000\n", false)];
        for (name, speed, hardware) in cards {
            fs::create_dir_all(all.join(name)).unwrap();
            fs::write(all.join(name).join("speed"), speed).unwrap();
            if hardware {
                fs::create_dir(all.join(name).join("device")).unwrap();
            }
        }
        fs::create_dir_all(all.join("br0/lower_eth0")).unwrap();
        let speed = |name: &str| inspect_card(name, all).map(|card| card.bytes_per_s);
        assert_eq!(speed("eth0"), Some(Some(125_000_000)));
        assert_eq!((speed("eth1"), speed("veth7")), (Some(None), Some(None)));
        assert_eq!((speed("br0"), speed("lo"), speed("ifb1")), (None, None, None));
    }

    #[test]
    fn this_machine_is_readable() {
        let mut buffer = Vec::new();
        let mut devices = Devices::start(&mut buffer);
        let described = devices.capabilities();
        assert_eq!(described.len(), 2);
        for row in devices.sample(0, i64::MAX, &mut buffer) {
            assert_eq!(row.busy_ns.is_some(), row.device.kind == DeviceKind::Disk, "{row:?}");
        }
    }

    proptest! {
        #[test]
        fn noise_never_panics(text in "[ a-z0-9:!\n-]{0,200}") {
            let _ = counters(DeviceKind::Disk, text.as_bytes());
            let _ = counters(DeviceKind::Nic, text.as_bytes());
        }
    }
}
