//! A digest of everything in a trial, row by row.
//!
//! SQLite checks the structure of its pages, not the values in them: a flipped bit in a column
//! would pass `quick_check` and be reported as a measurement. The digest covers the logical rows,
//! so it does not depend on the page layout.
//!
//! It protects against damage, not against malice: 64 bits of FNV-1a, no key.

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use crate::meta;

/// The digest of all tables and their definitions. The row that holds the digest is left out.
pub(crate) fn of(connection: &Connection) -> rusqlite::Result<String> {
    let mut state = Fnv::new();
    let mut tables: Vec<(String, String)> = Vec::new();
    {
        let mut list = connection
            .prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'table' ORDER BY name")?;
        let mut rows = list.query([])?;
        while let Some(row) = rows.next()? {
            tables.push((row.get(0)?, row.get(1)?));
        }
    }
    for (name, sql) in &tables {
        state.field(b't', sql.as_bytes());
        // Every table has an integer or composite primary key, and a plain scan follows its order.
        // An index must not be used, because the table's own bytes are to be checked. Names are
        // quoted because they come from the file.
        let quoted = name.replace('"', "\"\"");
        let mut select = connection.prepare(&format!("SELECT * FROM \"{quoted}\" NOT INDEXED"))?;
        let columns = select.column_count();
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let is_digest =
                name == "meta" && row.get_ref(0)? == ValueRef::Text(meta::DIGEST.as_bytes());
            if is_digest {
                continue;
            }
            for column in 0..columns {
                match row.get_ref(column)? {
                    ValueRef::Null => state.field(b'n', &[]),
                    ValueRef::Integer(value) => state.field(b'i', &value.to_le_bytes()),
                    ValueRef::Real(value) => state.field(b'r', &value.to_bits().to_le_bytes()),
                    ValueRef::Text(value) => state.field(b's', value),
                    ValueRef::Blob(value) => state.field(b'b', value),
                }
            }
        }
    }
    Ok(format!("{:016x}", state.0))
}

/// A hash of 64 bits that is the same everywhere: FNV-1a.
#[must_use]
pub fn stable_hash(bytes: &[u8]) -> u64 {
    let mut state = Fnv::new();
    state.bytes(bytes);
    state.0
}

struct Fnv(u64);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    /// Adds a field: its kind, length and bytes, so that different rows never hash the same bytes.
    fn field(&mut self, kind: u8, bytes: &[u8]) {
        self.bytes(&[kind]);
        self.bytes(&(bytes.len() as u64).to_le_bytes());
        self.bytes(bytes);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
