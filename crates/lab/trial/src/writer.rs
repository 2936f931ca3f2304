//! Writing a trial: one transaction for each interval, one file at the end.
//!
//! The schema and the manifest are written in rollback mode, so that even the bare file without its
//! journal is a trial. Intervals are written in WAL mode. [`Writer::finish`] stores the digest,
//! folds the WAL into the file and returns to rollback mode: a single file remains.
//!
//! A writer that is dropped without `finish`, or killed, leaves a trial that can be opened, has
//! every interval that was appended, and is marked as not complete.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, params};

use crate::error::{Error, Place};
use crate::model::{Amendment, Interval, LatencyRow, Loss, Manifest, Prediction};
use crate::pending::Pending;
use crate::schema::{ADDED, APPLICATION_ID, CREATE, SCHEMA_VERSION};
use crate::table::{self, Table};
use crate::{digest, intervals, meta, reader};

/// How long the writer waits for a lock. A reader holds one only while it reads.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Size of the cache of prepared statements: one for each table, and a few others.
const STATEMENTS_MAX: usize = 32;

/// The state in which [`Writer::finish`] left a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Whether the trial is complete. A trial that was reopened unfinished stays unfinished.
    pub complete: bool,
    /// Whether it is a single file. False if a reader locked it for longer than the writer waits:
    /// then the `-wal` file next to it belongs to it until it is next opened for writing.
    pub one_file: bool,
}

/// Writes one trial.
#[derive(Debug)]
pub struct Writer {
    pub(crate) connection: Connection,
    path: PathBuf,
    intervals: u64,
    /// Whether `finish` makes it complete: false for a trial that was reopened unfinished.
    completes: bool,
    pub(crate) pending: Pending,
}

impl Writer {
    /// Creates a trial. Errors: [`Error::Exists`] if the file exists.
    pub fn create(path: impl AsRef<Path>, manifest: &Manifest) -> Result<Writer, Error> {
        let path = path.as_ref();
        let place = Place { path, doing: "creating it", whole: 0 };
        match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Error::Exists { path: path.to_owned() });
            }
            Err(error) => return Err(place.io(error)),
        }
        let created = remove_journals(path)
            .map_err(|error| place.io(error))
            .and_then(|()| Writer::fill_new(path, manifest));
        if created.is_err() {
            // We just created the file, and it is empty. Only the first error is reported.
            let _ = fs::remove_file(path);
            let _ = remove_journals(path);
        }
        created
    }

    /// Creates a trial, deleting an older one of that name. A file that is not a trial is never
    /// replaced.
    pub fn replace(path: impl AsRef<Path>, manifest: &Manifest) -> Result<Writer, Error> {
        let path = path.as_ref();
        match reader::read_header(path) {
            Ok(_) | Err(Error::NewerSchema { .. }) => {
                let place = Place { path, doing: "replacing it", whole: 0 };
                fs::remove_file(path).map_err(|error| place.io(error))?;
            }
            Err(Error::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
        Writer::create(path, manifest)
    }

    /// Opens a trial to add latencies, losses, predictions or phases. Until the next
    /// [`finish`](Writer::finish) it is not complete. One that was not complete stays so.
    pub fn reopen(path: impl AsRef<Path>) -> Result<Writer, Error> {
        let path = path.as_ref();
        let before = crate::Trial::open(path)?;
        let place = Place { path, doing: "opening it for writing", whole: 0 };
        let connection = open(path).map_err(|error| place.sql(error))?;
        wal(&connection).map_err(|error| place.sql(error))?;
        let mut writer = Writer {
            connection,
            path: path.to_owned(),
            intervals: before.intervals().len() as u64,
            completes: before.complete(),
            pending: Pending::default(),
        };
        writer.transaction("opening it for writing", |transaction| {
            transaction.execute(
                "DELETE FROM meta WHERE key IN (?1, ?2)",
                [meta::COMPLETE, meta::DIGEST],
            )?;
            if before.manifest().schema < SCHEMA_VERSION {
                meta::set(transaction, meta::MANIFEST, &manifest_text(before.manifest()))?;
            }
            add_tables(transaction)
        })?;
        Ok(writer)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of intervals in the file.
    pub fn intervals(&self) -> u64 {
        self.intervals
    }

    /// Limits the file's size: an append that would exceed it fails with [`Error::DiskFull`].
    pub fn bound_bytes(&mut self, bytes_max: u64) -> Result<(), Error> {
        let place = self.place("limiting its size");
        let page: u64 = self
            .connection
            .pragma_query_value(None, "page_size", |row| row.get(0))
            .map_err(|error| place.sql(error))?;
        self.connection
            .pragma_update_and_check(None, "max_page_count", (bytes_max / page).max(1), |_| Ok(()))
            .map_err(|error| place.sql(error))
    }

    /// Appends an interval.
    pub fn append(&mut self, interval: &Interval) -> Result<(), Error> {
        self.append_all(interval, &[], &[])
    }

    /// Appends an interval with its latencies, its losses and the pending rows: all or nothing.
    pub fn append_all(
        &mut self,
        interval: &Interval,
        latencies: &[LatencyRow],
        losses: &[Loss],
    ) -> Result<(), Error> {
        let doing = format!("writing interval {}", interval.index);
        if !interval.requests.is_finite() {
            return Err(self.place(&doing).refused("requests is not a number"));
        }
        self.with_pending(&doing, interval.index, |transaction| {
            intervals::insert(transaction, interval)?;
            table::insert(latencies, transaction)?;
            table::insert(losses, transaction)
        })?;
        self.intervals += 1;
        Ok(())
    }

    /// Appends intervals that were recorded before, with the pending rows: all or nothing.
    pub fn append_many(&mut self, intervals: &[Interval]) -> Result<(), Error> {
        let doing = "writing intervals";
        if !intervals.iter().all(|interval| interval.requests.is_finite()) {
            return Err(self.place(doing).refused("requests is not a number"));
        }
        self.with_pending(doing, u64::MAX, |transaction| {
            intervals.iter().try_for_each(|interval| intervals::insert(transaction, interval))
        })?;
        self.intervals += intervals.len() as u64;
        Ok(())
    }

    /// Adds requests, with their latencies, to intervals that were written before: all or nothing.
    /// Intervals that are not in the file are skipped.
    pub fn amend(
        &mut self,
        amendments: &[Amendment],
        latencies: &[LatencyRow],
    ) -> Result<(), Error> {
        let doing = "adding late requests";
        if amendments.iter().any(|amendment| !amendment.requests.is_finite()) {
            return Err(self.place(doing).refused("requests is not a number"));
        }
        let classes = std::mem::take(&mut self.pending.classes);
        let result = self.transaction(doing, |transaction| {
            table::insert(&classes, transaction)?;
            let mut add = transaction.prepare_cached(
                "UPDATE interval SET requests = requests + ?,
                     requests_ended = requests_ended + ? WHERE idx = ?",
            )?;
            for a in amendments {
                add.execute(params![a.requests, a.requests_ended, a.interval])?;
            }
            table::insert(latencies, transaction)
        });
        if result.is_err() {
            self.pending.classes = classes;
        }
        result
    }

    /// Adds latencies.
    pub fn latency(&mut self, row: &LatencyRow) -> Result<(), Error> {
        self.insert(&format!("writing the latencies of interval {}", row.interval), row)
    }

    /// Adds to the losses. Counts of one kind add up; the last note is kept.
    pub fn loss(&mut self, loss: &Loss) -> Result<(), Error> {
        self.insert("writing a loss", loss)
    }

    /// Adds a prediction to the ledger.
    pub fn prediction(&mut self, prediction: &Prediction) -> Result<(), Error> {
        let p = prediction;
        if [Some(p.value), p.low, p.high, Some(p.level)].iter().flatten().any(|v| v.is_nan()) {
            return Err(self.place("writing a prediction").refused("a value is not a number"));
        }
        self.insert("writing a prediction", prediction)
    }

    /// Replaces the manifest.
    pub fn set_manifest(&mut self, manifest: &Manifest) -> Result<(), Error> {
        let value = manifest_text(manifest);
        self.transaction("writing the manifest", |transaction| {
            meta::set(transaction, meta::MANIFEST, &value)
        })
    }

    /// Sets the phase of an interval. Errors: [`Error::Refused`] if there is no such interval.
    pub fn set_phase(&mut self, index: u64, phase: Option<&str>) -> Result<(), Error> {
        let doing = format!("setting the phase of interval {index}");
        let mut found = 0;
        self.transaction(&doing, |transaction| {
            found = transaction
                .prepare_cached("UPDATE interval SET phase = ? WHERE idx = ?")?
                .execute(params![phase, index])?;
            Ok(())
        })?;
        if found == 0 {
            Err(self.place(&doing).refused("there is no such interval"))
        } else {
            Ok(())
        }
    }

    /// Makes sure that what was appended so far survives a power loss. Without it, that is up to
    /// the kernel until [`finish`](Writer::finish). If a reader holds the file, a part may stay in
    /// the `-wal` file, which is synced too.
    pub fn sync(&mut self) -> Result<(), Error> {
        let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
        let synced = self.connection.query_row(checkpoint, [], |_| Ok(()));
        synced.map_err(|error| self.place("syncing it to the disk").sql(error))
    }

    /// Finishes the trial: one file, complete, sealed and synced to the disk.
    pub fn finish(mut self) -> Result<Finished, Error> {
        let doing = "finishing";
        self.with_pending(doing, u64::MAX, |_| Ok(()))?;
        if self.completes {
            self.transaction(doing, |transaction| {
                meta::set(transaction, meta::COMPLETE, "1")?;
                let digest = digest::of(transaction)?;
                meta::set(transaction, meta::DIGEST, &digest)
            })?;
        }
        let place = Place { path: &self.path, doing, whole: self.intervals };
        let one_file = fold(&self.connection).map_err(|error| place.sql(error))?;
        let complete = self.completes;
        self.connection.close().map_err(|(_, error)| place.sql(error))?;
        sync(&self.path).map_err(|error| place.io(error))?;
        Ok(Finished { complete, one_file })
    }

    fn fill_new(path: &Path, manifest: &Manifest) -> Result<Writer, Error> {
        let place = Place { path, doing: "creating it", whole: 0 };
        let mut connection = open(path).map_err(|error| place.sql(error))?;
        let fill = |connection: &mut Connection| -> rusqlite::Result<()> {
            let transaction = connection.transaction()?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.execute_batch(CREATE)?;
            add_tables(&transaction)?;
            meta::set(&transaction, meta::MANIFEST, &manifest_text(manifest))?;
            transaction.commit()?;
            wal(connection)
        };
        fill(&mut connection).map_err(|error| place.sql(error))?;
        Ok(Writer {
            connection,
            path: path.to_owned(),
            intervals: 0,
            completes: true,
            pending: Pending::default(),
        })
    }

    pub(crate) fn place<'a>(&'a self, doing: &'a str) -> Place<'a> {
        Place { path: &self.path, doing, whole: self.intervals }
    }

    fn insert<R: Table>(&mut self, doing: &str, row: &R) -> Result<(), Error> {
        self.transaction(doing, |transaction| table::insert(std::slice::from_ref(row), transaction))
    }

    /// Runs `work` and writes the pending rows, of the samples those up to an interval, in one
    /// transaction. If it fails, the rows stay pending.
    fn with_pending(
        &mut self,
        doing: &str,
        up_to: u64,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), Error> {
        let pending = std::mem::take(&mut self.pending);
        let result = self.transaction(doing, |transaction| {
            work(transaction)?;
            pending.write(transaction, up_to)
        });
        self.pending = pending;
        if result.is_ok() {
            self.pending.committed(up_to);
        }
        result
    }

    fn transaction(
        &mut self,
        doing: &str,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), Error> {
        let place = Place { path: &self.path, doing, whole: self.intervals };
        let run = |connection: &mut Connection| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            work(&transaction)?;
            transaction.commit()
        };
        run(&mut self.connection).map_err(|error| place.sql(error))
    }
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_WAIT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(connection)
}

/// Switches to WAL mode without a sync at each commit. A killed process loses nothing by that. A
/// machine that fails loses at most the last intervals, and never one from the middle.
fn wal(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "NORMAL")
}

/// Folds the WAL into the file. Returns false if a reader kept the file locked.
fn fold(connection: &Connection) -> rusqlite::Result<bool> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    let busy: i64 =
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if busy != 0 {
        return Ok(false);
    }
    let mut mode = String::new();
    let switched = connection.pragma_update_and_check(None, "journal_mode", "DELETE", |row| {
        mode = row.get(0)?;
        Ok(())
    });
    match switched {
        Ok(()) => Ok(mode == "delete"),
        Err(rusqlite::Error::SqliteFailure(failure, _))
            if failure.code == rusqlite::ErrorCode::DatabaseBusy
                || failure.code == rusqlite::ErrorCode::DatabaseLocked =>
        {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn sync(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.sync_all()?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::File::open(parent)?.sync_all()
}

/// Removes journals of a deleted file, which SQLite would apply to the new file.
fn remove_journals(path: &Path) -> io::Result<()> {
    for suffix in ["-wal", "-shm", "-journal"] {
        match fs::remove_file(reader::companion(path, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn manifest_text(manifest: &Manifest) -> String {
    let stamped = Manifest { schema: SCHEMA_VERSION, ..manifest.clone() };
    serde_json::to_string(&stamped).expect("a manifest has only string keys")
}

/// Creates the tables of the newest version that are missing.
fn add_tables(connection: &Connection) -> rusqlite::Result<()> {
    ADDED.iter().try_for_each(|tables| connection.execute_batch(tables))?;
    connection.pragma_update(None, "user_version", SCHEMA_VERSION)
}
