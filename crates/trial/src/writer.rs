//! Writing a trial: a transaction an interval, one whole file at the end.
//!
//! The life of a file: the schema and the manifest are written in rollback mode, so that even the
//! bare file without its journal is a trial; then WAL while intervals come in; then
//! [`Writer::finish`] folds the WAL in, seals the digest and goes back to rollback mode: one file,
//! nothing beside it.
//!
//! A writer that is dropped without `finish` (or killed) leaves a trial that opens, holds every
//! interval that was appended, and says that it is not complete.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, params};

use crate::error::{Error, Place};
use crate::model::{Amendment, Interval, LatencyRow, Loss, Manifest, Modes, Prediction};
use crate::pending::{self, Pending};
use crate::schema::{ADDED, APPLICATION_ID, CREATE, MODES, SCHEMA_VERSION, key};
use crate::{digest, profile, reader};

/// How long the writer waits for whoever holds the file. Readers hold it for one reading only.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// Statements kept prepared: one for each table and a few of the control.
const STATEMENTS_MAX: usize = 32;

/// How a trial was left by [`Writer::finish`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Whether the trial is complete. A trial that was reopened unfinished stays so.
    pub complete: bool,
    /// Whether it is one file. False if a reader held it for longer than the writer waits: then
    /// the `-wal` file beside it belongs to it until the next opening for writing.
    pub one_file: bool,
}

/// Writes one trial.
#[derive(Debug)]
pub struct Writer {
    pub(crate) connection: Connection,
    path: PathBuf,
    intervals: u64,
    /// What `finish` may say: false for a trial that was found unfinished.
    completes: bool,
    /// Samples that wait for their interval.
    pub(crate) profile: profile::Pending,
    /// Rows of other tables that do.
    pub(crate) pending: Pending,
}

impl Writer {
    /// Creates a trial. Errors: [`Error::Exists`] if there is such a file already.
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
        let made = remove_journals(path)
            .map_err(|error| place.io(error))
            .and_then(|()| Writer::fill_new(path, manifest));
        if made.is_err() {
            // The file is ours and holds nothing yet. The first error is the one to tell.
            let _ = fs::remove_file(path);
            let _ = remove_journals(path);
        }
        made
    }

    /// Creates a trial in the place of an older one, which is gone afterwards. A file that is not
    /// a trial is never replaced.
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

    /// Opens a trial to add to it: latencies, losses, predictions, phases. Until the next
    /// [`finish`](Writer::finish) it is not complete; one that was not complete stays so.
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
            profile: profile::Pending::default(),
            pending: Pending::default(),
        };
        writer.transaction("opening it for writing", |transaction| {
            transaction
                .execute("DELETE FROM meta WHERE key IN (?1, ?2)", [key::COMPLETE, key::DIGEST])?;
            if before.manifest().schema < SCHEMA_VERSION {
                set_meta(transaction, key::MANIFEST, &manifest_text(before.manifest()))?;
            }
            add_tables(transaction)
        })?;
        Ok(writer)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Intervals in the file.
    pub fn intervals(&self) -> u64 {
        self.intervals
    }

    /// Bounds the file: an append that would make it larger fails with [`Error::DiskFull`].
    pub fn bound_bytes(&mut self, bytes_max: u64) -> Result<(), Error> {
        let place = self.place("bounding it");
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

    /// Appends an interval with its latencies and losses, all of it or nothing.
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
        let profile = std::mem::take(&mut self.profile);
        let pending = std::mem::take(&mut self.pending);
        let done = self.transaction(&doing, |transaction| {
            insert_interval(transaction, interval)?;
            profile.write(transaction, interval.index)?;
            pending.write(transaction)?;
            for latency in latencies {
                insert_latency(transaction, latency)?;
            }
            losses.iter().try_for_each(|loss| insert_loss(transaction, loss))
        });
        self.profile = profile;
        if done.is_err() {
            self.pending = pending;
            return done;
        }
        self.profile.written(interval.index);
        self.intervals += 1;
        Ok(())
    }

    /// Adds requests, with their latencies, to intervals that were written before: all of it or
    /// nothing. An interval that is not in the file is passed over.
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
        let done = self.transaction(doing, |transaction| {
            pending::insert(&classes, transaction)?;
            let mut add = transaction.prepare_cached(
                "UPDATE interval SET requests = requests + ?,
                     requests_ended = requests_ended + ? WHERE idx = ?",
            )?;
            for a in amendments {
                add.execute(params![a.requests, a.requests_ended, a.interval])?;
            }
            latencies.iter().try_for_each(|latency| insert_latency(transaction, latency))
        });
        if done.is_err() {
            self.pending.classes = classes;
        }
        done
    }

    /// Adds latencies.
    pub fn latency(&mut self, row: &LatencyRow) -> Result<(), Error> {
        let doing = format!("writing the latencies of interval {}", row.interval);
        self.transaction(&doing, |transaction| insert_latency(transaction, row))
    }

    /// Adds to the losses: the counts of one kind add up, the last note stays.
    pub fn loss(&mut self, loss: &Loss) -> Result<(), Error> {
        self.transaction("writing a loss", |transaction| insert_loss(transaction, loss))
    }

    /// Adds a prediction to the ledger.
    pub fn prediction(&mut self, prediction: &Prediction) -> Result<(), Error> {
        let p = prediction;
        if [Some(p.value), p.low, p.high, Some(p.level)].iter().flatten().any(|v| v.is_nan()) {
            return Err(self.place("writing a prediction").refused("it holds a not-a-number"));
        }
        self.transaction("writing a prediction", |transaction| {
            transaction
                .prepare_cached(
                    "INSERT INTO prediction
                         (name, made_at_ns, quantity, value, low, high, level, model)
                     VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                )?
                .execute(params![
                    p.name,
                    p.made_at_ns,
                    p.quantity,
                    p.value,
                    p.low,
                    p.high,
                    p.level,
                    p.model
                ])
                .map(drop)
        })
    }

    /// Replaces the manifest.
    pub fn set_manifest(&mut self, manifest: &Manifest) -> Result<(), Error> {
        let value = manifest_text(manifest);
        self.transaction("writing the manifest", |transaction| {
            set_meta(transaction, key::MANIFEST, &value)
        })
    }

    /// Says what the experiment did in an interval. Errors: [`Error::Refused`] if there is none.
    pub fn set_phase(&mut self, index: u64, phase: Option<&str>) -> Result<(), Error> {
        let doing = format!("naming the phase of interval {index}");
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

    /// Makes it one whole file, complete and sealed, and safe on the disk.
    pub fn finish(mut self) -> Result<Finished, Error> {
        let doing = "finishing";
        let profile = std::mem::take(&mut self.profile);
        let pending = std::mem::take(&mut self.pending);
        self.transaction(doing, |transaction| {
            if !profile.is_empty() {
                profile.write(transaction, u64::MAX)?;
            }
            pending.write(transaction)
        })?;
        if self.completes {
            self.transaction(doing, |transaction| {
                set_meta(transaction, key::COMPLETE, "1")?;
                let sum = digest::of(transaction)?;
                set_meta(transaction, key::DIGEST, &sum)
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
            set_meta(&transaction, key::MANIFEST, &manifest_text(manifest))?;
            transaction.commit()?;
            wal(connection)
        };
        fill(&mut connection).map_err(|error| place.sql(error))?;
        Ok(Writer {
            connection,
            path: path.to_owned(),
            intervals: 0,
            completes: true,
            profile: profile::Pending::default(),
            pending: Pending::default(),
        })
    }

    pub(crate) fn place<'a>(&'a self, doing: &'a str) -> Place<'a> {
        Place { path: &self.path, doing, whole: self.intervals }
    }

    pub(crate) fn transaction(
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

/// WAL, without a sync at each commit: a killed process loses nothing by that, and a failing
/// machine at most the last intervals, never the order of them.
fn wal(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "NORMAL")
}

/// Folds the WAL into the file; false if somebody held the file all the while.
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

/// Journals of a file that is gone would be taken for the new one's.
fn remove_journals(path: &Path) -> io::Result<()> {
    for suffix in ["-wal", "-shm", "-journal"] {
        match fs::remove_file(reader::beside(path, suffix)) {
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

/// The tables of the newest version, as far as they are not there.
fn add_tables(connection: &Connection) -> rusqlite::Result<()> {
    ADDED.iter().try_for_each(|tables| connection.execute_batch(tables))?;
    connection.pragma_update(None, "user_version", SCHEMA_VERSION)
}

pub(crate) fn set_meta(connection: &Connection, key: &str, value: &str) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)")?
        .execute([key, value])
        .map(drop)
}

fn insert_interval(connection: &Connection, interval: &Interval) -> rusqlite::Result<()> {
    let server = interval.server.as_ref();
    let m: &Modes = &interval.machine;
    connection
        .prepare_cached(&format!(
            "INSERT INTO interval (idx, start_ns, length_ns, {MODES},
                 requests, requests_ended, rate_valid, phase, recorder_ns,
                 server_user_ns, server_kernel_ns, server_total_ns, processes, threads,
                 voluntary_switches, involuntary_switches, rss_bytes, descriptors)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        ))?
        .execute(params![
            interval.index,
            interval.start_ns,
            interval.length_ns,
            m.user_ns,
            m.nice_ns,
            m.system_ns,
            m.irq_ns,
            m.softirq_ns,
            m.idle_ns,
            m.iowait_ns,
            m.steal_ns,
            m.guest_ns,
            interval.requests,
            interval.requests_ended,
            interval.rate_valid,
            interval.phase,
            interval.recorder_ns,
            server.map(|s| s.user_ns),
            server.map(|s| s.kernel_ns),
            server.map(|s| s.total_ns),
            server.map(|s| s.processes),
            server.map(|s| s.threads),
            server.map(|s| s.voluntary_switches),
            server.map(|s| s.involuntary_switches),
            server.map(|s| s.rss_bytes),
            server.and_then(|s| s.descriptors),
        ])?;
    insert_cpus(connection, interval)?;
    insert_threads(connection, interval)
}

fn insert_cpus(connection: &Connection, interval: &Interval) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(&format!(
        "INSERT INTO cpu (idx, cpu, {MODES}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    ))?;
    for cpu in &interval.cpus {
        let m = &cpu.modes;
        insert.execute(params![
            interval.index,
            cpu.cpu,
            m.user_ns,
            m.nice_ns,
            m.system_ns,
            m.irq_ns,
            m.softirq_ns,
            m.idle_ns,
            m.iowait_ns,
            m.steal_ns,
            m.guest_ns
        ])?;
    }
    Ok(())
}

fn insert_threads(connection: &Connection, interval: &Interval) -> rusqlite::Result<()> {
    let mut intern = connection.prepare_cached("INSERT OR IGNORE INTO name (name) VALUES (?)")?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO thread (idx, seq, pid, tid, name, total_ns, user_ns, kernel_ns, wakes)
         VALUES (?, ?, ?, ?, (SELECT id FROM name WHERE name = ?), ?, ?, ?, ?)",
    )?;
    for (seq, thread) in interval.threads.iter().enumerate() {
        intern.execute([&thread.name])?;
        insert.execute(params![
            interval.index,
            seq,
            thread.pid,
            thread.tid,
            thread.name,
            thread.total_ns,
            thread.user_ns,
            thread.kernel_ns,
            thread.wakes
        ])?;
    }
    Ok(())
}

fn insert_latency(connection: &Connection, row: &LatencyRow) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO latency (idx, source, count, invalid, histogram) VALUES (?, ?, ?, ?, ?)",
        )?
        .execute(params![row.interval, row.source.as_str(), row.count, row.invalid, row.histogram])
        .map(drop)
}

fn insert_loss(connection: &Connection, loss: &Loss) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO loss (kind, count, note) VALUES (?, ?, ?)
             ON CONFLICT (kind) DO UPDATE SET count = count + excluded.count, note = excluded.note",
        )?
        .execute(params![loss.kind, loss.count, loss.note])
        .map(drop)
}
