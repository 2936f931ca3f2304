//! What the machine's disks and network cards did, and which threads were held to one CPU.
//!
//! CPU time has its own columns ([`crate::Modes`], [`crate::ThreadTimes`]); here is what else can
//! be used up. A device that did nothing in an interval has no row in it, and one that did nothing
//! at all has none anywhere: the table grows with what happened, not with what is plugged in.
//!
//! Rows wait in the [`Writer`] and are written with the next interval, in its transaction.

use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Place};
use crate::pending::Table;
use crate::reader::has_table;
use crate::writer::Writer;

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

/// What kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A block device, whole: not its partitions, nor what is stacked upon others.
    Disk,
    /// A network card.
    Nic,
}

impl DeviceKind {
    /// Both, in the order of their numbers in the file.
    pub const ALL: [DeviceKind; 2] = [DeviceKind::Disk, DeviceKind::Nic];
}

/// A device, and what is known of its limits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Device {
    /// What it is.
    pub kind: DeviceKind,
    /// The kernel's name of it: "sda", "eth0".
    pub name: String,
    /// Of a network card: what it carries each way at most, bytes/s. `None` where it does not tell.
    pub bytes_per_s: Option<u64>,
    /// Of a disk: whether the kernel takes it for one that turns, and so serves one request at a
    /// time. One that serves several is not used up when it is always busy.
    pub one_at_a_time: bool,
}

/// What a device did in one interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// The interval's number.
    pub interval: u64,
    /// The device. What is known of its limits is kept as the last row said it.
    pub device: Device,
    /// Of a disk: how long at least one request was under way, ns.
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

/// A thread of the server that may run on one CPU only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BoundThread {
    /// Its process.
    pub pid: u32,
    /// Its own number.
    pub tid: u32,
    /// The CPU.
    pub cpu: u32,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Resources {
    pub(crate) uses: Vec<DeviceUse>,
    pub(crate) bound: Vec<BoundThread>,
}

impl Writer {
    /// Adds what devices did. It is written with the next interval that is appended, or at
    /// [`finish`](Writer::finish); a second row of one interval and device adds to the first.
    pub fn device_uses(&mut self, uses: &[DeviceUse]) {
        self.pending.device_uses.extend_from_slice(uses);
    }

    /// Says which threads are held to one CPU; of a thread that was named before, the CPU is
    /// replaced. Written as the devices are.
    pub fn bound_threads(&mut self, threads: &[BoundThread]) {
        self.pending.bound_threads.extend_from_slice(threads);
    }
}

impl Table for DeviceUse {
    fn insert(rows: &[DeviceUse], connection: &Connection) -> rusqlite::Result<()> {
        let mut name = connection.prepare_cached(
            "INSERT INTO device (kind, name, bytes_per_s, one_at_a_time) VALUES (?, ?, ?, ?)
             ON CONFLICT (kind, name) DO UPDATE SET bytes_per_s = excluded.bytes_per_s,
                 one_at_a_time = excluded.one_at_a_time",
        )?;
        let mut insert = connection.prepare_cached(
            "INSERT INTO device_use
                 (idx, device, busy_ns, in_bytes, out_bytes, in_count, out_count)
             VALUES (?, (SELECT id FROM device WHERE kind = ? AND name = ?), ?, ?, ?, ?, ?)
             ON CONFLICT (idx, device) DO UPDATE SET busy_ns = busy_ns + excluded.busy_ns,
                 in_bytes = in_bytes + excluded.in_bytes,
                 out_bytes = out_bytes + excluded.out_bytes,
                 in_count = in_count + excluded.in_count,
                 out_count = out_count + excluded.out_count",
        )?;
        for row in rows {
            let Device { kind, name: called, bytes_per_s, one_at_a_time } = &row.device;
            name.execute(params![*kind as u8, called, bytes_per_s, one_at_a_time])?;
            insert.execute(params![
                row.interval,
                *kind as u8,
                called,
                row.busy_ns,
                row.in_bytes,
                row.out_bytes,
                row.in_count,
                row.out_count
            ])?;
        }
        Ok(())
    }
}

impl Table for BoundThread {
    fn insert(rows: &[BoundThread], connection: &Connection) -> rusqlite::Result<()> {
        let mut bind = connection
            .prepare_cached("INSERT OR REPLACE INTO bound (pid, tid, cpu) VALUES (?, ?, ?)")?;
        for thread in rows {
            bind.execute(params![thread.pid, thread.tid, thread.cpu])?;
        }
        Ok(())
    }
}

/// Reads the devices of a trial, their uses from an interval on; of one without the tables, none.
pub(crate) fn read(
    connection: &Connection,
    place: &Place<'_>,
    from: u64,
) -> Result<Resources, Error> {
    let found = read_tables(connection, from).map_err(|error| place.sql(error))?;
    found.ok_or_else(|| place.corrupt("a device in it is of no known kind"))
}

fn read_tables(connection: &Connection, from: u64) -> rusqlite::Result<Option<Resources>> {
    if !has_table(connection, "device_use")? {
        return Ok(Some(Resources::default()));
    }
    let mut select = connection.prepare(
        "SELECT idx, kind, name, bytes_per_s, one_at_a_time, busy_ns, in_bytes, out_bytes,
             in_count, out_count
         FROM device_use JOIN device ON device.id = device_use.device WHERE idx >= ?
         ORDER BY idx, kind, name",
    )?;
    let uses: Option<Vec<DeviceUse>> =
        select.query_map([from], use_of)?.collect::<rusqlite::Result<_>>()?;
    let mut select = connection.prepare("SELECT pid, tid, cpu FROM bound ORDER BY pid, tid")?;
    let bound = select.query_map([], |row| {
        Ok(BoundThread { pid: row.get(0)?, tid: row.get(1)?, cpu: row.get(2)? })
    })?;
    let bound = bound.collect::<rusqlite::Result<_>>()?;
    Ok(uses.map(|uses| Resources { uses, bound }))
}

fn use_of(row: &Row<'_>) -> rusqlite::Result<Option<DeviceUse>> {
    let Some(&kind) = DeviceKind::ALL.get(row.get::<_, usize>(1)?) else { return Ok(None) };
    let device =
        Device { kind, name: row.get(2)?, bytes_per_s: row.get(3)?, one_at_a_time: row.get(4)? };
    Ok(Some(DeviceUse {
        interval: row.get(0)?,
        device,
        busy_ns: row.get(5)?,
        in_bytes: row.get(6)?,
        out_bytes: row.get(7)?,
        in_count: row.get(8)?,
        out_count: row.get(9)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interval, Manifest, Trial};

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
    fn devices_and_bound_threads_come_back_as_they_were_written() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.trial");
        let mut writer = Writer::create(&path, &Manifest::default()).unwrap();
        writer.device_uses(&[disk(0, 5), nic(0, None)]);
        writer.bound_threads(&[BoundThread { pid: 7, tid: 8, cpu: 1 }]);
        writer.append(&Interval::default()).unwrap();
        // What waits at the end is not lost, and what is known of a device is what was known last.
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
