//! Requests by class: what kinds of requests an interval had, each spread over its life as
//! [`crate::Interval::requests`] is.
//!
//! A class is named by four words, `OUTCOME METHOD SIZE TLS` ("hit GET 1k-10k tls"), and `-` for
//! what the log does not tell. Names stand in the file once. Requests of one interval and class add
//! up, so that late ones are added to what was written.
//!
//! Rows wait in the [`Writer`] and are written with the next interval, or with the next late
//! requests, in the same transaction.

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Place};
use crate::pending::Table;
use crate::reader::has_table;
use crate::writer::Writer;

/// The tables.
pub(crate) const CREATE: &str = "
CREATE TABLE IF NOT EXISTS class (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS class_requests (
    idx INTEGER NOT NULL, class INTEGER NOT NULL, requests REAL NOT NULL, ended INTEGER NOT NULL,
    bytes REAL NOT NULL, PRIMARY KEY (idx, class)
) WITHOUT ROWID;
";

/// The requests of one class in one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassRow {
    /// The interval's number.
    pub interval: u64,
    /// The class.
    pub class: String,
    /// Requests, each spread over its life.
    pub requests: f64,
    /// Requests that ended in the interval.
    pub ended: u64,
    /// Bytes sent, spread as the requests are.
    pub bytes: f64,
}

impl Writer {
    /// Adds requests by class. They are written with the next interval that is appended, the next
    /// late requests, or at [`finish`](Writer::finish).
    pub fn classes(&mut self, rows: &[ClassRow]) -> Result<(), Error> {
        if rows.iter().any(|row| !(row.requests.is_finite() && row.bytes.is_finite())) {
            return Err(self.place("writing classes").refused("requests is not a number"));
        }
        self.pending.classes.extend_from_slice(rows);
        Ok(())
    }
}

impl Table for ClassRow {
    fn insert(rows: &[ClassRow], connection: &Connection) -> rusqlite::Result<()> {
        let mut intern =
            connection.prepare_cached("INSERT OR IGNORE INTO class (name) VALUES (?)")?;
        let mut insert = connection.prepare_cached(
            "INSERT INTO class_requests (idx, class, requests, ended, bytes)
             VALUES (?, (SELECT id FROM class WHERE name = ?), ?, ?, ?)
             ON CONFLICT (idx, class) DO UPDATE SET requests = requests + excluded.requests,
                 ended = ended + excluded.ended, bytes = bytes + excluded.bytes",
        )?;
        for row in rows {
            intern.execute([&row.class])?;
            insert.execute(params![row.interval, row.class, row.requests, row.ended, row.bytes])?;
        }
        Ok(())
    }
}

/// Reads the classes of a trial from an interval on; of one that has none, none.
pub(crate) fn read(
    connection: &Connection,
    place: &Place<'_>,
    from: u64,
) -> Result<Vec<ClassRow>, Error> {
    read_table(connection, from).map_err(|error| place.sql(error))
}

fn read_table(connection: &Connection, from: u64) -> rusqlite::Result<Vec<ClassRow>> {
    if !has_table(connection, "class_requests")? {
        return Ok(Vec::new());
    }
    let mut select = connection.prepare(
        "SELECT idx, name, requests, ended, bytes FROM class_requests
         JOIN class ON class.id = class_requests.class WHERE idx >= ? ORDER BY idx, name",
    )?;
    let rows = select.query_map([from], |row| {
        Ok(ClassRow {
            interval: row.get(0)?,
            class: row.get(1)?,
            requests: row.get(2)?,
            ended: row.get(3)?,
            bytes: row.get(4)?,
        })
    })?;
    rows.collect()
}
