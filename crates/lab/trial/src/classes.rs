//! Requests by class: the kinds of requests in each interval, each request spread over its life as
//! in [`crate::Interval::requests`].
//!
//! A class is named by four words, `OUTCOME METHOD SIZE TLS` ("hit GET 1k-10k tls"), with `-` for
//! what the log does not say. Each name is in the file once. Requests of one interval and class add
//! up, so that late requests are added to those already written.

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::table::{Table, columns};

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
    /// Requests that ended in this interval.
    pub ended: u64,
    /// Bytes sent, spread in the same way as the requests.
    pub bytes: f64,
}

impl Table for ClassRow {
    const NAME: &'static str = "class_requests";
    const COLUMNS: &'static str = "idx, name, requests, ended, bytes";
    const ROWS: &'static str = "
        JOIN class ON class.id = class_requests.class
        WHERE idx >= ? AND idx < ? ORDER BY idx, name";

    fn insert_sql() -> String {
        "INSERT INTO class_requests (idx, class, requests, ended, bytes)
         VALUES (?, (SELECT id FROM class WHERE name = ?), ?, ?, ?)
         ON CONFLICT (idx, class) DO UPDATE SET requests = requests + excluded.requests,
             ended = ended + excluded.ended, bytes = bytes + excluded.bytes"
            .to_owned()
    }

    fn intern(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut intern =
            connection.prepare_cached("INSERT OR IGNORE INTO class (name) VALUES (?)")?;
        intern.execute([&self.class]).map(drop)
    }

    columns!(interval, class, requests, ended, bytes);
}
