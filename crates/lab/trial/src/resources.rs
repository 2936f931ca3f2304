//! Resources other than CPU time: the activity of disks and network cards, and the threads that
//! are pinned to one CPU. (CPU time is in [`crate::Modes`] and [`crate::ThreadTimes`].)
//!
//! A device that was idle in an interval has no row for it, and a device that was always idle has
//! no rows: the table grows with activity, not with the number of devices.

use rusqlite::{Connection, Row, Statement, params};
use serde::{Deserialize, Serialize};

use crate::table::{Table, columns, stored_as_index};

/// The tables.
pub(crate) const CREATE: &str = "
CREATE TABLE IF NOT EXISTS device (
    id INTEGER PRIMARY KEY, kind INTEGER NOT NULL, name TEXT NOT NULL, bytes_per_s INTEGER,
    one_at_a_time INTEGER NOT NULL, UNIQUE (kind, name)
);
CREATE TABLE IF NOT EXISTS device_use (
    idx INTEGER NOT NULL, device INTEGER NOT NULL, busy_ns INTEGER, in_bytes INTEGER NOT NULL,
    out_bytes INTEGER NOT NULL, in_count INTEGER NOT NULL, out_count INTEGER NOT NULL,
    PRIMARY KEY (idx, device)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS bound (
    pid INTEGER NOT NULL, tid INTEGER NOT NULL, cpu INTEGER NOT NULL, PRIMARY KEY (pid, tid)
) WITHOUT ROWID;
";

/// The kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A whole block device: neither a partition nor a device stacked on others.
    Disk,
    /// A network card.
    Nic,
}

stored_as_index!(DeviceKind);

impl DeviceKind {
    /// Both, in the order of their numbers in the file.
    pub const ALL: [DeviceKind; 2] = [DeviceKind::Disk, DeviceKind::Nic];
}

/// A device and its known limits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Device {
    /// Its kind.
    pub kind: DeviceKind,
    /// The kernel's name for it: "sda", "eth0".
    pub name: String,
    /// Network cards: the most it carries in each direction, bytes/s. `None` if unknown.
    pub bytes_per_s: Option<u64>,
    /// Disks: whether the kernel says it is rotational and so serves one request at a time. A disk
    /// that serves several at once is not saturated merely because it is always busy.
    pub one_at_a_time: bool,
}

/// The activity of a device in one interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// The interval's number.
    pub interval: u64,
    /// The device. The file keeps the limits of the last row written.
    pub device: Device,
    /// Disks: how long at least one request was in flight, ns.
    pub busy_ns: Option<i64>,
    /// Bytes read, or received.
    pub in_bytes: u64,
    /// Bytes written, or sent.
    pub out_bytes: u64,
    /// Reads, or packets received.
    pub in_count: u64,
    /// Writes, or packets sent.
    pub out_count: u64,
}

/// A thread of the server that is pinned to one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BoundThread {
    /// Its process id.
    pub pid: u32,
    /// Its thread id.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
}

impl Table for DeviceUse {
    const NAME: &'static str = "device_use";
    const COLUMNS: &'static str = "
        idx, kind, name, bytes_per_s, one_at_a_time, busy_ns, in_bytes, out_bytes, in_count,
        out_count";
    const ROWS: &'static str = "
        JOIN device ON device.id = device_use.device
        WHERE idx >= ? AND idx < ? ORDER BY idx, kind, name";

    fn insert_sql() -> String {
        "INSERT INTO device_use (idx, device, busy_ns, in_bytes, out_bytes, in_count, out_count)
         VALUES (?, (SELECT id FROM device WHERE kind = ? AND name = ?), ?, ?, ?, ?, ?)
         ON CONFLICT (idx, device) DO UPDATE SET busy_ns = busy_ns + excluded.busy_ns,
             in_bytes = in_bytes + excluded.in_bytes, out_bytes = out_bytes + excluded.out_bytes,
             in_count = in_count + excluded.in_count, out_count = out_count + excluded.out_count"
            .to_owned()
    }

    fn intern(&self, connection: &Connection) -> rusqlite::Result<()> {
        let Device { kind, name, bytes_per_s, one_at_a_time } = &self.device;
        let mut upsert = connection.prepare_cached(
            "INSERT INTO device (kind, name, bytes_per_s, one_at_a_time) VALUES (?, ?, ?, ?)
             ON CONFLICT (kind, name) DO UPDATE SET bytes_per_s = excluded.bytes_per_s,
                 one_at_a_time = excluded.one_at_a_time",
        )?;
        upsert.execute(params![kind, name, bytes_per_s, one_at_a_time]).map(drop)
    }

    fn write(&self, insert: &mut Statement<'_>) -> rusqlite::Result<usize> {
        insert.execute(params![
            self.interval,
            self.device.kind,
            self.device.name,
            self.busy_ns,
            self.in_bytes,
            self.out_bytes,
            self.in_count,
            self.out_count
        ])
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<DeviceUse> {
        let device = Device {
            kind: row.get(1)?,
            name: row.get(2)?,
            bytes_per_s: row.get(3)?,
            one_at_a_time: row.get(4)?,
        };
        Ok(DeviceUse {
            interval: row.get(0)?,
            device,
            busy_ns: row.get(5)?,
            in_bytes: row.get(6)?,
            out_bytes: row.get(7)?,
            in_count: row.get(8)?,
            out_count: row.get(9)?,
        })
    }
}

impl Table for BoundThread {
    const NAME: &'static str = "bound";
    const COLUMNS: &'static str = "pid, tid, cpu";
    const ROWS: &'static str = "ORDER BY pid, tid";
    const VERB: &'static str = "INSERT OR REPLACE";

    columns!(pid, tid, cpu);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interval, Manifest, Trial, Writer};

    fn disk(interval: u64, busy_ns: i64) -> DeviceUse {
        let device = Device {
            kind: DeviceKind::Disk,
            name: "sda".to_owned(),
            bytes_per_s: None,
            one_at_a_time: true,
        };
        let busy_ns = Some(busy_ns);
        DeviceUse {
            interval,
            device,
            busy_ns,
            in_bytes: 4096,
            out_bytes: 0,
            in_count: 1,
            out_count: 0,
        }
    }

    fn nic(interval: u64, bytes_per_s: Option<u64>) -> DeviceUse {
        let mut row = disk(interval, 0);
        row.device = Device {
            kind: DeviceKind::Nic,
            name: "eth0".to_owned(),
            bytes_per_s,
            one_at_a_time: false,
        };
        DeviceUse { busy_ns: None, out_bytes: 1 << 40, out_count: 7, ..row }
    }

    #[test]
    fn devices_and_bound_threads_round_trip() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.trial");
        let mut writer = Writer::create(&path, &Manifest::default()).unwrap();
        writer.device_uses(&[disk(0, 5), nic(0, None)]);
        writer.bound_threads(&[BoundThread { pid: 7, tid: 8, cpu: 1 }]);
        writer.append(&Interval::default()).unwrap();
        // Pending rows are written at the end, and the last known limits of a device are kept.
        writer.device_uses(&[nic(1, Some(125_000_000)), disk(0, 2)]);
        writer.bound_threads(&[BoundThread { pid: 7, tid: 8, cpu: 3 }]);
        writer.finish().unwrap();
        let trial = Trial::open(&path).unwrap();
        let twice = DeviceUse { in_bytes: 8192, in_count: 2, ..disk(0, 7) };
        let speed = Some(125_000_000);
        assert_eq!(trial.device_uses(), [twice, nic(0, speed), nic(1, speed)]);
        assert_eq!(trial.bound_threads(), [BoundThread { pid: 7, tid: 8, cpu: 3 }]);
    }

    #[test]
    fn a_trial_without_the_tables_has_no_devices() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("old.trial");
        let writer = Writer::create(&path, &Manifest::default()).unwrap();
        let drop_tables = "DROP TABLE device; DROP TABLE device_use; DROP TABLE bound";
        writer.connection.execute_batch(drop_tables).unwrap();
        writer.finish().unwrap();
        let trial = Trial::open(&path).unwrap();
        assert!(trial.complete() && trial.device_uses().is_empty());
        assert!(trial.bound_threads().is_empty());
        let mut writer = Writer::reopen(&path).unwrap();
        writer.device_uses(&[disk(0, 5)]);
        writer.finish().unwrap();
        assert_eq!(Trial::open(&path).unwrap().device_uses(), [disk(0, 5)]);
    }
}
