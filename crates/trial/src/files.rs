//! The anatomy of file access: what became of regular files between their open and their close,
//! by direction and size.
//!
//! One row a direction and bin of sizes, for the whole recording: each interval writes the rows
//! that grew anew, as they stand, so that a killed recorder loses one interval at most.
//!
//! Delays are the time spent in the calls themselves: *first* is the open and the first read or
//! write, *total* all calls up to the close. Their distributions are histograms of nanoseconds.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Place};
use crate::pending::Table;
use crate::writer::Writer;

/// The table.
pub(crate) const CREATE: &str = "
CREATE TABLE IF NOT EXISTS file (
    direction INTEGER NOT NULL, size_from INTEGER NOT NULL, size_below INTEGER,
    objects INTEGER NOT NULL, calls INTEGER NOT NULL, bytes INTEGER NOT NULL,
    open_ns INTEGER NOT NULL, first_ns INTEGER NOT NULL, rest_ns INTEGER NOT NULL,
    close_ns INTEGER NOT NULL, elapsed_ns INTEGER NOT NULL,
    needless INTEGER NOT NULL, after_short INTEGER NOT NULL, needless_objects INTEGER NOT NULL,
    needless_ns INTEGER NOT NULL, first BLOB NOT NULL, total BLOB NOT NULL,
    PRIMARY KEY (direction, size_from)
) WITHOUT ROWID;
";

/// Whether files were read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Their first call was a read.
    Read,
    /// Their first call was a write.
    Written,
}

impl Direction {
    /// Both, in the order of their numbers in the file.
    pub const ALL: [Direction; 2] = [Direction::Read, Direction::Written];
}

/// What became of the files of one direction and of sizes that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRow {
    /// Read or written.
    pub direction: Direction,
    /// The smallest size, bytes, when it was closed.
    pub size_from: u64,
    /// Sizes are below this; `None`: no bound.
    pub size_below: Option<u64>,
    /// Opens that were followed to their close.
    pub objects: u64,
    /// Reads or writes.
    pub calls: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Time in open, ns.
    pub open_ns: i64,
    /// Time in the first read or write, ns.
    pub first_ns: i64,
    /// Time in the others, ns.
    pub rest_ns: i64,
    /// Time in close, ns.
    pub close_ns: i64,
    /// From the open to the end of the last read or write, whatever was done in between, ns.
    pub elapsed_ns: i64,
    /// Reads that returned nothing after others that returned something: they only told the end.
    pub needless: u64,
    /// Those of `needless` that came right after a read that had returned less than was asked.
    pub after_short: u64,
    /// Objects with a needless read.
    pub needless_objects: u64,
    /// Time in needless reads, ns.
    pub needless_ns: i64,
    /// Delays to the end of the first read or write.
    pub first: Delays,
    /// Delays altogether.
    pub total: Delays,
}

impl FileRow {
    /// Time in all calls, ns.
    pub fn calls_ns(&self) -> i64 {
        self.open_ns + self.first_ns + self.rest_ns + self.close_ns
    }
}

/// A distribution of delays: an HdrHistogram of nanoseconds in its V2 encoding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delays(Vec<u8>);

impl Delays {
    /// From a histogram of nanoseconds.
    pub fn new(histogram_ns: &Histogram<u64>) -> Delays {
        let mut bytes = Vec::new();
        V2Serializer::new()
            .serialize(histogram_ns, &mut bytes)
            .expect("a histogram with counts below 2^63 is encoded in memory");
        Delays(bytes)
    }

    /// The histogram, in nanoseconds; `None` if the bytes are not one.
    pub fn histogram_ns(&self) -> Option<Histogram<u64>> {
        Deserializer::new().deserialize(&mut self.0.as_slice()).ok()
    }
}

impl Writer {
    /// Replaces the rows of these directions and sizes. They are written with the next interval
    /// that is appended, or at [`finish`](Writer::finish).
    pub fn files(&mut self, rows: Vec<FileRow>) {
        self.pending.files.extend(rows);
    }
}

impl Table for FileRow {
    fn insert(rows: &[FileRow], connection: &Connection) -> rusqlite::Result<()> {
        let mut insert = connection.prepare_cached(
            "INSERT OR REPLACE INTO file (direction, size_from, size_below, objects, calls, bytes,
                 open_ns, first_ns, rest_ns, close_ns, elapsed_ns, needless, after_short,
                 needless_objects, needless_ns, first, total)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )?;
        for row in rows {
            insert.execute(params![
                row.direction as u8,
                row.size_from,
                row.size_below,
                row.objects,
                row.calls,
                row.bytes,
                row.open_ns,
                row.first_ns,
                row.rest_ns,
                row.close_ns,
                row.elapsed_ns,
                row.needless,
                row.after_short,
                row.needless_objects,
                row.needless_ns,
                row.first.0,
                row.total.0
            ])?;
        }
        Ok(())
    }
}

/// Reads the files of a trial; of one without the table, none.
pub(crate) fn read(connection: &Connection, place: &Place<'_>) -> Result<Vec<FileRow>, Error> {
    let read = || -> rusqlite::Result<Option<Vec<FileRow>>> {
        if !crate::reader::has_table(connection, "file")? {
            return Ok(Some(Vec::new()));
        }
        let mut select = connection.prepare(
            "SELECT direction, size_from, size_below, objects, calls, bytes, open_ns, first_ns,
                 rest_ns, close_ns, elapsed_ns, needless, after_short, needless_objects,
                 needless_ns, first, total FROM file ORDER BY direction, size_from",
        )?;
        select.query_map([], row_of)?.collect()
    };
    read()
        .map_err(|error| place.sql(error))?
        .ok_or_else(|| place.corrupt("its files are neither read nor written"))
}

fn row_of(row: &Row<'_>) -> rusqlite::Result<Option<FileRow>> {
    let direction = Direction::ALL.get(row.get::<_, usize>(0)?).copied();
    let Some(direction) = direction else { return Ok(None) };
    Ok(Some(FileRow {
        direction,
        size_from: row.get(1)?,
        size_below: row.get(2)?,
        objects: row.get(3)?,
        calls: row.get(4)?,
        bytes: row.get(5)?,
        open_ns: row.get(6)?,
        first_ns: row.get(7)?,
        rest_ns: row.get(8)?,
        close_ns: row.get(9)?,
        elapsed_ns: row.get(10)?,
        needless: row.get(11)?,
        after_short: row.get(12)?,
        needless_objects: row.get(13)?,
        needless_ns: row.get(14)?,
        first: Delays(row.get(15)?),
        total: Delays(row.get(16)?),
    }))
}
