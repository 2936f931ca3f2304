//! The tables of a trial, and the header that identifies the file as one.
//!
//! `application_id` and `user_version` are at fixed offsets in the first page, so that a foreign or
//! newer file is recognised before anything else in it is read. A released version never changes: a
//! later version adds tables, and the reader still reads the older ones.

/// "Plms": SQLite's application id of a trial.
pub(crate) const APPLICATION_ID: u32 = 0x506C_6D73;

/// The schema version this crate writes, and the newest it reads.
pub const SCHEMA_VERSION: u32 = 6;

/// Version 1.
///
/// Thread names are interned: a server of 100 threads recorded for an hour has 360,000 rows. If no
/// server was observed, all of its columns are NULL. `descriptors` alone may also be NULL.
pub(crate) const CREATE: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE interval (
    idx INTEGER PRIMARY KEY, start_ns INTEGER NOT NULL, length_ns INTEGER NOT NULL,
    user_ns INTEGER NOT NULL, nice_ns INTEGER NOT NULL, system_ns INTEGER NOT NULL,
    irq_ns INTEGER NOT NULL, softirq_ns INTEGER NOT NULL, idle_ns INTEGER NOT NULL,
    iowait_ns INTEGER NOT NULL, steal_ns INTEGER NOT NULL, guest_ns INTEGER NOT NULL,
    requests REAL NOT NULL, requests_ended INTEGER NOT NULL, rate_valid INTEGER NOT NULL,
    phase TEXT, recorder_ns INTEGER NOT NULL,
    server_user_ns INTEGER, server_kernel_ns INTEGER, server_total_ns INTEGER,
    processes INTEGER, threads INTEGER, voluntary_switches INTEGER,
    involuntary_switches INTEGER, rss_bytes INTEGER, descriptors INTEGER
);
CREATE TABLE cpu (
    idx INTEGER NOT NULL, cpu INTEGER NOT NULL,
    user_ns INTEGER NOT NULL, nice_ns INTEGER NOT NULL, system_ns INTEGER NOT NULL,
    irq_ns INTEGER NOT NULL, softirq_ns INTEGER NOT NULL, idle_ns INTEGER NOT NULL,
    iowait_ns INTEGER NOT NULL, steal_ns INTEGER NOT NULL, guest_ns INTEGER NOT NULL,
    PRIMARY KEY (idx, cpu)
) WITHOUT ROWID;
CREATE TABLE name (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE thread (
    idx INTEGER NOT NULL, seq INTEGER NOT NULL, pid INTEGER NOT NULL, tid INTEGER NOT NULL,
    name INTEGER NOT NULL, total_ns INTEGER NOT NULL, user_ns INTEGER NOT NULL,
    kernel_ns INTEGER NOT NULL, wakes INTEGER NOT NULL,
    PRIMARY KEY (idx, seq)
) WITHOUT ROWID;
CREATE TABLE latency (
    id INTEGER PRIMARY KEY, idx INTEGER NOT NULL, source TEXT NOT NULL, count INTEGER NOT NULL,
    invalid INTEGER NOT NULL, histogram BLOB NOT NULL
);
CREATE TABLE loss (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL UNIQUE, count INTEGER NOT NULL, note TEXT NOT NULL
);
CREATE TABLE prediction (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, made_at_ns INTEGER NOT NULL,
    quantity TEXT NOT NULL, value REAL NOT NULL, low REAL, high REAL, level REAL NOT NULL,
    model TEXT NOT NULL
);
";

/// The tables that later versions added, each "if not exists": version 6 the answers, version 5 the
/// stretches, version 4 the turns, version 2 the others. Versions 3 and 4 had other tables of
/// stretches, which are not read any more. Opening an older trial for writing adds those that it
/// lacks.
pub(crate) const ADDED: [&str; 8] = [
    crate::profile::CREATE,
    crate::waits::CREATE,
    crate::files::CREATE,
    crate::classes::CREATE,
    crate::resources::CREATE,
    crate::counters::CREATE,
    crate::stretches::CREATE,
    crate::answers::CREATE,
];

/// Fields of a SQLite file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) application_id: u32,
    pub(crate) user_version: u32,
    pub(crate) wal: bool,
    /// Size that the file must have, unless part of it is in a WAL.
    pub(crate) bytes: u64,
}

/// Size of a SQLite file's header.
pub(crate) const HEADER_BYTES: usize = 100;

/// Reads a header (sqlite.org/fileformat2, section 1.3); `None` if the bytes are not one.
pub(crate) fn header(bytes: &[u8]) -> Option<Header> {
    if bytes.len() < HEADER_BYTES || !bytes.starts_with(b"SQLite format 3\0") {
        return None;
    }
    let number =
        |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    // The page size 65,536 is written as 1.
    let page = match u64::from(u16::from_be_bytes([bytes[16], bytes[17]])) {
        1 => 65_536,
        page => page,
    };
    Some(Header {
        user_version: number(60),
        application_id: number(68),
        wal: bytes[18] == 2,
        bytes: page * u64::from(number(28)),
    })
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::{Manifest, Trial, Writer, digest, meta};

    /// A complete trial as version 1 wrote it: only its tables, with their digest.
    fn version_1(path: &std::path::Path) {
        let file = Connection::open(path).unwrap();
        file.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        file.pragma_update(None, "user_version", 1).unwrap();
        file.execute_batch(CREATE).unwrap();
        let manifest = Manifest { schema: 1, tool_version: "0".to_owned(), ..Manifest::default() };
        let put = |key, value: &str| {
            file.execute("INSERT INTO meta VALUES (?, ?)", [key, value]).unwrap();
        };
        put(meta::MANIFEST, &serde_json::to_string(&manifest).unwrap());
        file.execute_batch("INSERT INTO loss (kind, count, note) VALUES ('x', 3, 'y')").unwrap();
        put(meta::COMPLETE, "1");
        put(meta::DIGEST, &digest::of(&file).unwrap());
    }

    #[test]
    fn version_1_can_be_read_and_is_upgraded_when_written_to() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("old.trial");
        version_1(&path);
        let old = Trial::open(&path).unwrap();
        assert!(old.complete());
        assert_eq!((old.manifest().schema, old.losses()[0].count), (1, 3));
        assert!(old.samples().is_empty() && old.profile_info().is_none());
        assert!(old.turns().is_empty() && old.stretches().is_empty());

        assert!(Writer::reopen(&path).unwrap().finish().unwrap().complete);
        let new = Trial::open(&path).unwrap();
        assert_eq!((new.manifest().schema, new.losses()), (SCHEMA_VERSION, old.losses()));
        let header = header(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(header.user_version, SCHEMA_VERSION);
    }
}
