//! The tables of a trial, and how a file says that it is one.
//!
//! `application_id` and `user_version` stand at fixed places in the first page, so that a foreign
//! or a newer file is told before anything in it is believed. A version is never changed once a
//! release has written it: a later one adds tables, and the reader keeps reading the older.

/// "Plms": SQLite's application id of a trial.
pub(crate) const APPLICATION_ID: u32 = 0x506C_6D73;

/// The schema this crate writes, and the newest it reads.
pub const SCHEMA_VERSION: u32 = 2;

/// Keys of the table `meta`.
pub(crate) mod key {
    /// The manifest, JSON.
    pub(crate) const MANIFEST: &str = "manifest";
    /// "1" once the trial was finished.
    pub(crate) const COMPLETE: &str = "complete";
    /// Digest of everything else, set with `COMPLETE`.
    pub(crate) const DIGEST: &str = "digest";
    /// How the profile was made, JSON.
    pub(crate) const PROFILE: &str = "profile";
}

/// Names of the modes' columns, in the order of [`crate::Modes`].
pub(crate) const MODES: &str =
    "user_ns, nice_ns, system_ns, irq_ns, softirq_ns, idle_ns, iowait_ns, steal_ns, guest_ns";

/// Version 1.
///
/// Thread names are interned: a server of 100 threads recorded for an hour has 360,000 rows. The
/// server's own columns are empty, all or none, where no server was observed; `descriptors` may
/// also be empty on its own.
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

/// What each version added, from the second on; a trial of an older one is brought up to date when
/// it is opened for writing. Each part says its own tables, "if not exists".
pub(crate) const ADDED: [&str; 6] = [
    crate::profile::CREATE,
    crate::waits::CREATE,
    crate::files::CREATE,
    crate::classes::CREATE,
    crate::resources::CREATE,
    crate::counters::CREATE,
];

/// What the first page of a SQLite file says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) application_id: u32,
    pub(crate) user_version: u32,
    pub(crate) wal: bool,
    /// Bytes that the file must have, unless a WAL holds the rest.
    pub(crate) bytes: u64,
}

/// Bytes of a SQLite file's header.
pub(crate) const HEADER_BYTES: usize = 100;

/// Reads a header (sqlite.org/fileformat2, section 1.3); `None` if it is not one.
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
    use crate::{Manifest, Trial, Writer, digest};

    /// A complete trial as version 1 wrote it: its tables only, and sealed.
    fn version_1(path: &std::path::Path) {
        let file = Connection::open(path).unwrap();
        file.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
        file.pragma_update(None, "user_version", 1).unwrap();
        file.execute_batch(CREATE).unwrap();
        let manifest = Manifest { schema: 1, tool_version: "0".to_owned(), ..Manifest::default() };
        let put = |key, value: &str| {
            file.execute("INSERT INTO meta VALUES (?, ?)", [key, value]).unwrap();
        };
        put(key::MANIFEST, &serde_json::to_string(&manifest).unwrap());
        file.execute_batch("INSERT INTO loss (kind, count, note) VALUES ('x', 3, 'y')").unwrap();
        put(key::COMPLETE, "1");
        put(key::DIGEST, &digest::of(&file).unwrap());
    }

    #[test]
    fn version_1_is_read_and_is_brought_up_to_date_when_it_is_written_to() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("old.trial");
        version_1(&path);
        let old = Trial::open(&path).unwrap();
        assert!(old.complete());
        assert_eq!((old.manifest().schema, old.losses()[0].count), (1, 3));
        assert!(old.samples().is_empty() && old.profile_info().is_none());

        assert!(Writer::reopen(&path).unwrap().finish().unwrap().complete);
        let new = Trial::open(&path).unwrap();
        assert_eq!((new.manifest().schema, new.losses()), (SCHEMA_VERSION, old.losses()));
        let header = header(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(header.user_version, SCHEMA_VERSION);
    }
}
