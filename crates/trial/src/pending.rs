//! Rows that wait in the [`Writer`](crate::Writer) for the next interval, and are written in its
//! transaction. They go on waiting until it came through. (Frames and stacks wait too, but with
//! numbers that must be known before: see [`crate::profile`].)

use rusqlite::Connection;

use crate::classes::ClassRow;
use crate::counters::{CountedRow, CounterRow};
use crate::files::FileRow;
use crate::resources::{BoundThread, DeviceUse};
use crate::waits::WaitRow;

/// A row of a table of its own.
pub(crate) trait Table: Sized {
    /// Writes all of these.
    fn insert(rows: &[Self], connection: &Connection) -> rusqlite::Result<()>;
}

/// All that waits, by table.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) waits: Vec<WaitRow>,
    pub(crate) files: Vec<FileRow>,
    pub(crate) classes: Vec<ClassRow>,
    pub(crate) device_uses: Vec<DeviceUse>,
    pub(crate) bound_threads: Vec<BoundThread>,
    pub(crate) counters: Vec<CounterRow>,
    pub(crate) counted: Vec<CountedRow>,
}

impl Pending {
    /// Writes it; nothing is prepared for a table of which nothing waits.
    pub(crate) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        insert(&self.waits, connection)?;
        insert(&self.files, connection)?;
        insert(&self.classes, connection)?;
        insert(&self.device_uses, connection)?;
        insert(&self.bound_threads, connection)?;
        insert(&self.counters, connection)?;
        insert(&self.counted, connection)
    }
}

/// Writes rows, if there are any.
pub(crate) fn insert<R: Table>(rows: &[R], connection: &Connection) -> rusqlite::Result<()> {
    if rows.is_empty() { Ok(()) } else { R::insert(rows, connection) }
}
