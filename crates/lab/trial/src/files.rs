//! File access: the calls on regular files between open and close, by direction and file size.
//!
//! There is one row for each direction and size bin, for the whole recording. With each interval
//! the rows that changed are replaced, so that a killed recorder loses at most one interval.
//!
//! Delays are the time spent in the calls themselves: *first* covers the open and the first read or
//! write, *total* all calls up to the close. Their distributions are histograms of nanoseconds.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use rusqlite::types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};

use crate::table::{Table, columns, stored_as_index};

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
    /// The first call after the open was a read.
    Read,
    /// The first call after the open was a write.
    Written,
}

stored_as_index!(Direction);

impl Direction {
    /// Both, in the order of their numbers in the file.
    pub const ALL: [Direction; 2] = [Direction::Read, Direction::Written];
}

/// The accesses to files of one direction and one size bin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRow {
    /// Read or written.
    pub direction: Direction,
    /// Lower bound of the size at close, bytes.
    pub size_from: u64,
    /// Upper bound of the size, exclusive; `None`: no bound.
    pub size_below: Option<u64>,
    /// Files followed from open to close.
    pub objects: u64,
    /// Reads or writes.
    pub calls: u64,
    /// Bytes read or written.
    pub bytes: u64,
    /// Time in open, ns.
    pub open_ns: i64,
    /// Time in the first read or write, ns.
    pub first_ns: i64,
    /// Time in the other reads or writes, ns.
    pub rest_ns: i64,
    /// Time in close, ns.
    pub close_ns: i64,
    /// From the open to the end of the last read or write, including all that was done in between,
    /// ns.
    pub elapsed_ns: i64,
    /// Reads that returned nothing after reads that returned data: they only detected the end.
    pub needless: u64,
    /// The part of `needless` that directly followed a read that returned less than requested.
    pub after_short: u64,
    /// Files with a needless read.
    pub needless_objects: u64,
    /// Time in needless reads, ns.
    pub needless_ns: i64,
    /// Delays to the end of the first read or write.
    pub first: Delays,
    /// Delays up to the close.
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
    /// Encodes a histogram of nanoseconds.
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

impl ToSql for Delays {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        self.0.to_sql()
    }
}

impl FromSql for Delays {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Delays> {
        Vec::column_result(value).map(Delays)
    }
}

impl Table for FileRow {
    const NAME: &'static str = "file";
    const COLUMNS: &'static str = "
        direction, size_from, size_below, objects, calls, bytes, open_ns, first_ns, rest_ns,
        close_ns, elapsed_ns, needless, after_short, needless_objects, needless_ns, first, total";
    const ROWS: &'static str = "ORDER BY direction, size_from";
    const VERB: &'static str = "INSERT OR REPLACE";

    columns!(
        direction,
        size_from,
        size_below,
        objects,
        calls,
        bytes,
        open_ns,
        first_ns,
        rest_ns,
        close_ns,
        elapsed_ns,
        needless,
        after_short,
        needless_objects,
        needless_ns,
        first,
        total,
    );
}
