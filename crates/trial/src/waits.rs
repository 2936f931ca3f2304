//! Waits for locks: how often and how long, by kind of lock and by who waited where.
//!
//! What is told is waiting, not holding: who held a lock all the while is not known. The place is
//! a stack of [`crate::profile`], beginning at the procedure that asked for the lock.
//!
//! Rows wait in the [`Writer`] and are written with the next interval, in its transaction.

use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Place};
use crate::pending::Table;
use crate::profile::Owner;
use crate::writer::Writer;

/// The table.
pub(crate) const CREATE: &str = "
CREATE TABLE IF NOT EXISTS wait (
    id INTEGER PRIMARY KEY, idx INTEGER NOT NULL, kind INTEGER NOT NULL, owner INTEGER NOT NULL,
    stack INTEGER NOT NULL, pid INTEGER, word INTEGER, waits INTEGER NOT NULL,
    total_ns INTEGER NOT NULL, max_ns INTEGER NOT NULL, spun_ns INTEGER NOT NULL,
    timed_out INTEGER NOT NULL
);
";

/// What kind of lock was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockKind {
    /// A spin lock of the kernel.
    Spin,
    /// A spinning readers-writer lock of the kernel, to read.
    SpinRead,
    /// The same, to write.
    SpinWrite,
    /// A mutex of the kernel.
    Mutex,
    /// A sleeping readers-writer lock of the kernel, to read.
    SemaphoreRead,
    /// The same, to write.
    SemaphoreWrite,
    /// A per-CPU readers-writer lock of the kernel, to read.
    PercpuRead,
    /// The same, to write.
    PercpuWrite,
    /// A real-time mutex of the kernel.
    RealTime,
    /// A kernel lock that says nothing of its kind.
    Unnamed,
    /// A word of the server's memory that a thread waits on: a lock, or work to be done.
    Futex,
}

impl LockKind {
    /// All of them, in the order of their numbers in the file.
    pub const ALL: [LockKind; 11] = [
        LockKind::Spin,
        LockKind::SpinRead,
        LockKind::SpinWrite,
        LockKind::Mutex,
        LockKind::SemaphoreRead,
        LockKind::SemaphoreWrite,
        LockKind::PercpuRead,
        LockKind::PercpuWrite,
        LockKind::RealTime,
        LockKind::Unnamed,
        LockKind::Futex,
    ];

    /// As it is written in a table.
    pub fn label(self) -> &'static str {
        match self {
            LockKind::Spin => "spin",
            LockKind::SpinRead => "spin, read",
            LockKind::SpinWrite => "spin, write",
            LockKind::Mutex => "mutex",
            LockKind::SemaphoreRead => "rwsem, read",
            LockKind::SemaphoreWrite => "rwsem, write",
            LockKind::PercpuRead => "percpu, read",
            LockKind::PercpuWrite => "percpu, write",
            LockKind::RealTime => "rt mutex",
            LockKind::Unnamed => "unnamed",
            LockKind::Futex => "futex",
        }
    }
}

/// A word of a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Word {
    /// The process.
    pub pid: u32,
    /// Its address there.
    pub address: u64,
}

/// The waits that ended in one interval, of one kind, at one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitRow {
    /// The interval's number.
    pub interval: u64,
    /// The kind of lock.
    pub kind: LockKind,
    /// Who waited.
    pub owner: Owner,
    /// Where: the number of a stack, of no frames where places were too many to tell apart.
    pub stack: u32,
    /// Of a futex, which.
    pub word: Option<Word>,
    /// How many waits.
    pub waits: u64,
    /// How long they were together, ns.
    pub total_ns: i64,
    /// The longest, ns.
    pub max_ns: i64,
    /// Of the total, how long a CPU went round for it, ns.
    pub spun_ns: i64,
    /// Of the waits, those that ended because their time was over.
    pub timed_out: u64,
}

impl Writer {
    /// Adds waits for locks. They are written with the next interval that is appended, or at
    /// [`finish`](Writer::finish). Errors: [`Error::Refused`] if one has an unknown stack.
    pub fn waits(&mut self, rows: &[WaitRow]) -> Result<(), Error> {
        let known = self.stacks_known()?;
        if rows.iter().any(|row| row.stack as usize >= known) {
            return Err(self.place("writing waits").refused("one has an unknown stack"));
        }
        self.pending.waits.extend_from_slice(rows);
        Ok(())
    }
}

impl Table for WaitRow {
    fn insert(rows: &[WaitRow], connection: &Connection) -> rusqlite::Result<()> {
        let mut insert = connection.prepare_cached(
            "INSERT INTO wait (idx, kind, owner, stack, pid, word, waits, total_ns, max_ns,
                 spun_ns, timed_out) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?;
        for row in rows {
            insert.execute(params![
                row.interval,
                row.kind as u8,
                row.owner as u8,
                row.stack,
                row.word.map(|word| word.pid),
                row.word.map(|word| word.address.cast_signed()),
                row.waits,
                row.total_ns,
                row.max_ns,
                row.spun_ns,
                row.timed_out
            ])?;
        }
        Ok(())
    }
}

/// Reads the waits of a trial that has so many stacks; of one without the table, none.
pub(crate) fn read(
    connection: &Connection,
    place: &Place<'_>,
    stacks: usize,
) -> Result<Vec<WaitRow>, Error> {
    let read = || -> rusqlite::Result<Option<Vec<WaitRow>>> {
        if !crate::reader::has_table(connection, "wait")? {
            return Ok(Some(Vec::new()));
        }
        let mut select = connection.prepare(&format!("{SELECT} ORDER BY id"))?;
        select.query_map([], row_of)?.collect()
    };
    let rows = read().map_err(|error| place.sql(error))?;
    rows.filter(|rows| rows.iter().all(|row| (row.stack as usize) < stacks))
        .ok_or_else(|| place.corrupt(NOT_IN_IT))
}

/// The same of the intervals from one on, read from the end: rows stand in the order of their
/// intervals. Whether their stacks are there is for the profile's reader to say.
pub(crate) fn read_from(
    connection: &Connection,
    place: &Place<'_>,
    from: u64,
) -> Result<Vec<WaitRow>, Error> {
    let read = || -> rusqlite::Result<Option<Vec<WaitRow>>> {
        let mut found = Vec::new();
        if !crate::reader::has_table(connection, "wait")? {
            return Ok(Some(found));
        }
        let mut select = connection.prepare(&format!("{SELECT} ORDER BY id DESC"))?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            match row_of(row)? {
                None => return Ok(None),
                Some(row) if row.interval < from => break,
                Some(row) => found.push(row),
            }
        }
        found.reverse();
        Ok(Some(found))
    };
    let rows = read().map_err(|error| place.sql(error))?;
    rows.ok_or_else(|| place.corrupt(NOT_IN_IT))
}

const SELECT: &str = "
SELECT idx, kind, owner, stack, pid, word, waits, total_ns, max_ns, spun_ns, timed_out FROM wait";

pub(crate) const NOT_IN_IT: &str = "its waits name what is not in it";

fn row_of(row: &Row<'_>) -> rusqlite::Result<Option<WaitRow>> {
    let kind = LockKind::ALL.get(row.get::<_, usize>(1)?).copied();
    let owner = Owner::ALL.get(row.get::<_, usize>(2)?).copied();
    let (Some(kind), Some(owner)) = (kind, owner) else { return Ok(None) };
    let pid: Option<u32> = row.get(4)?;
    let word: Option<i64> = row.get(5)?;
    Ok(Some(WaitRow {
        interval: row.get(0)?,
        kind,
        owner,
        stack: row.get(3)?,
        word: pid.zip(word).map(|(pid, address)| Word { pid, address: address.cast_unsigned() }),
        waits: row.get(6)?,
        total_ns: row.get(7)?,
        max_ns: row.get(8)?,
        spun_ns: row.get(9)?,
        timed_out: row.get(10)?,
    }))
}
