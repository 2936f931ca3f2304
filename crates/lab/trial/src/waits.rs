//! Lock waits: how often and how long, by kind of lock, owner and stack.
//!
//! Only waiting is recorded, not holding: the holder of a lock is unknown. The stack is one of
//! [`crate::profile`]; its first frame is the procedure that requested the lock.

use rusqlite::{Connection, Row, Statement, params};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Place};
use crate::profile::Owner;
use crate::table::{self, Span, Table, stored_as_index};

/// The table.
pub(crate) const CREATE: &str = "
CREATE TABLE IF NOT EXISTS wait (
    id INTEGER PRIMARY KEY, idx INTEGER NOT NULL, kind INTEGER NOT NULL, owner INTEGER NOT NULL,
    stack INTEGER NOT NULL, pid INTEGER, word INTEGER, waits INTEGER NOT NULL,
    total_ns INTEGER NOT NULL, max_ns INTEGER NOT NULL, spun_ns INTEGER NOT NULL,
    timed_out INTEGER NOT NULL
);
";

/// The kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockKind {
    /// A kernel spin lock.
    Spin,
    /// A spinning readers-writer lock of the kernel, for reading.
    SpinRead,
    /// The same, for writing.
    SpinWrite,
    /// A kernel mutex.
    Mutex,
    /// A sleeping readers-writer lock of the kernel, for reading.
    SemaphoreRead,
    /// The same, for writing.
    SemaphoreWrite,
    /// A per-CPU readers-writer lock of the kernel, for reading.
    PercpuRead,
    /// The same, for writing.
    PercpuWrite,
    /// A kernel real-time mutex.
    RealTime,
    /// A kernel lock of unknown kind.
    Unnamed,
    /// A futex: a word of the server's memory that a thread waits on, for a lock or for work.
    Futex,
}

stored_as_index!(LockKind);

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

    /// Its label in tables.
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

/// The address of a futex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Word {
    /// The process.
    pub pid: u32,
    /// The address in that process.
    pub address: u64,
}

/// The waits of one kind that ended in one interval, for one owner and stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitRow {
    /// The interval's number.
    pub interval: u64,
    /// The kind of lock.
    pub kind: LockKind,
    /// Who waited.
    pub owner: Owner,
    /// The number of the stack. The empty stack collects waits beyond the recorder's limit of
    /// distinct stacks.
    pub stack: u32,
    /// The futex; `None` for other kinds.
    pub word: Option<Word>,
    /// Number of waits.
    pub waits: u64,
    /// Total waiting time, ns.
    pub total_ns: i64,
    /// The longest wait, ns.
    pub max_ns: i64,
    /// The part of the total that was spent spinning, ns.
    pub spun_ns: i64,
    /// The number of waits that ended by a timeout.
    pub timed_out: u64,
}

impl Table for WaitRow {
    const NAME: &'static str = "wait";
    const COLUMNS: &'static str =
        "idx, kind, owner, stack, pid, word, waits, total_ns, max_ns, spun_ns, timed_out";
    const ROWS: &'static str = "ORDER BY id";

    fn write(&self, insert: &mut Statement<'_>) -> rusqlite::Result<usize> {
        insert.execute(params![
            self.interval,
            self.kind,
            self.owner,
            self.stack,
            self.word.map(|word| word.pid),
            self.word.map(|word| word.address.cast_signed()),
            self.waits,
            self.total_ns,
            self.max_ns,
            self.spun_ns,
            self.timed_out
        ])
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<WaitRow> {
        let pid: Option<u32> = row.get(4)?;
        let word: Option<i64> = row.get(5)?;
        Ok(WaitRow {
            interval: row.get(0)?,
            kind: row.get(1)?,
            owner: row.get(2)?,
            stack: row.get(3)?,
            word: pid.zip(word).map(|(pid, word)| Word { pid, address: word.cast_unsigned() }),
            waits: row.get(6)?,
            total_ns: row.get(7)?,
            max_ns: row.get(8)?,
            spun_ns: row.get(9)?,
            timed_out: row.get(10)?,
        })
    }
}

/// Reads the waits of a span, backwards from the end of the table (rows are in the order of their
/// intervals), so that the cost does not grow with the recording before it. The caller checks that
/// their stacks exist.
pub(crate) fn read_span(
    connection: &Connection,
    place: &Place<'_>,
    span: &Span,
) -> Result<Vec<WaitRow>, Error> {
    let read = || -> rusqlite::Result<Vec<WaitRow>> {
        if !table::exists(connection, WaitRow::NAME)? {
            return Ok(Vec::new());
        }
        let mut select = connection.prepare(&(WaitRow::select_sql() + " DESC"))?;
        let mut rows = select.query([])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let row = WaitRow::read(row)?;
            if row.interval < span.start {
                break;
            }
            if row.interval < span.end {
                found.push(row);
            }
        }
        found.reverse();
        Ok(found)
    };
    read().map_err(|error| place.in_table(WaitRow::NAME, error))
}
