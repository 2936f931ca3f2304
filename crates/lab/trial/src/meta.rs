//! The table `meta`: one text for each key.

use rusqlite::{Connection, OptionalExtension};

/// The manifest, JSON.
pub(crate) const MANIFEST: &str = "manifest";
/// "1" once the trial is finished.
pub(crate) const COMPLETE: &str = "complete";
/// Digest of everything else, written together with [`COMPLETE`].
pub(crate) const DIGEST: &str = "digest";
/// How the profile was made, JSON.
pub(crate) const PROFILE: &str = "profile";

pub(crate) fn get(connection: &Connection, key: &str) -> rusqlite::Result<Option<String>> {
    let mut select = connection.prepare("SELECT value FROM meta WHERE key = ?")?;
    select.query_row([key], |row| row.get(0)).optional()
}

pub(crate) fn set(connection: &Connection, key: &str, value: &str) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)")?
        .execute([key, value])
        .map(drop)
}
