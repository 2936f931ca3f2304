//! Reading a trial: one consistent snapshot, whole, at opening.
//!
//! Why at once: a reader that kept the file open would keep the writer from folding its journal,
//! and figures read one after another from a live recording would not belong together. An hour at
//! one-second intervals is some ten thousand rows.
//!
//! Nothing in the file is believed before it is checked: the header by its bytes, the pages by
//! SQLite's own check, a complete trial by its digest. Who watches a recording reads its last
//! intervals again and again ([`Trial::recent`]), opened and let go each time, at a cost that does
//! not grow with the recording.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Row};

use crate::classes::{self, ClassRow};
use crate::counters::{self, CountedRow, CounterRow};
use crate::digest;
use crate::error::{Error, Place};
use crate::files::{self, FileRow};
use crate::model::{
    CpuModes, Interval, LatencyRow, LatencySource, Loss, Manifest, Modes, Prediction, ProcessTimes,
    ThreadTimes,
};
use crate::profile::{self, Frame, Profile, ProfileInfo, SampleRow, Stack};
use crate::resources::{self, BoundThread, DeviceUse, Resources};
use crate::schema::{APPLICATION_ID, HEADER_BYTES, Header, MODES, SCHEMA_VERSION, header, key};
use crate::waits::{self, WaitRow};

/// How long a reader waits for a lock. Only the folding at the end of a recording takes one.
const BUSY_WAIT: Duration = Duration::from_secs(5);

/// A trial as it stood when it was opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    path: PathBuf,
    complete: bool,
    manifest: Manifest,
    intervals: Vec<Interval>,
    latencies: Vec<LatencyRow>,
    losses: Vec<Loss>,
    predictions: Vec<Prediction>,
    profile: Profile,
    waits: Vec<WaitRow>,
    files: Vec<FileRow>,
    classes: Vec<ClassRow>,
    resources: Resources,
    counters: Vec<CounterRow>,
    counted: Vec<CountedRow>,
}

impl Trial {
    /// Opens and reads a trial. Errors say what the file is instead: not a trial, newer, corrupt.
    /// An unfinished trial opens, with [`complete`](Trial::complete) false.
    pub fn open(path: impl AsRef<Path>) -> Result<Trial, Error> {
        snapshot(path.as_ref(), |read, place| {
            check(read, place)?;
            load(read, place)
        })
    }

    /// The last `intervals_max` intervals of a trial that is being written, with all that belongs
    /// to them: for whoever looks again and again. What belongs to no interval (losses, files,
    /// predictions) is there whole; frames and stacks are those that are used, numbered anew.
    ///
    /// It costs by what is asked for, not by the length of the trial: so nothing is checked but
    /// that numbers lead somewhere. A finished trial is to be [opened](Trial::open).
    pub fn recent(path: impl AsRef<Path>, intervals_max: usize) -> Result<Trial, Error> {
        snapshot(path.as_ref(), |read, place| {
            let from = first_of_last(read, intervals_max).map_err(|error| place.sql(error))?;
            load_from(read, place, from)
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the recording came to its end. If not, it was killed, its disk was full, or it is
    /// still going on; what there is of it is whole.
    pub fn complete(&self) -> bool {
        self.complete
    }

    /// One line on the state of an unfinished trial, for the head of a report.
    pub fn unfinished(&self) -> Option<String> {
        (!self.complete).then(|| {
            format!(
                "{}: not finished (still being recorded, or its recorder was stopped); \
                 it holds {} whole intervals",
                self.path.display(),
                self.intervals.len()
            )
        })
    }

    /// What was measured, on what.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The intervals, in order.
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    /// The latencies, in the order of their intervals. An interval may have several rows.
    pub fn latencies(&self) -> &[LatencyRow] {
        &self.latencies
    }

    /// What was lost, one row a kind.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// The ledger of predictions, oldest first.
    pub fn predictions(&self) -> &[Prediction] {
        &self.predictions
    }

    /// The procedures of the profile; a frame's number is its place here.
    pub fn frames(&self) -> &[Frame] {
        &self.profile.frames
    }

    /// The stacks of the profile; a stack's number is its place here.
    pub fn stacks(&self) -> &[Stack] {
        &self.profile.stacks
    }

    /// The samples, by interval, owner and stack. The numbers in them lead somewhere.
    pub fn samples(&self) -> &[SampleRow] {
        &self.profile.samples
    }

    /// Waits for locks, in the order of their intervals.
    pub fn waits(&self) -> &[WaitRow] {
        &self.waits
    }

    /// What became of files, by direction and size.
    pub fn files(&self) -> &[FileRow] {
        &self.files
    }

    /// Requests by class, in the order of intervals and names.
    pub fn classes(&self) -> &[ClassRow] {
        &self.classes
    }

    /// What disks and network cards did, in the order of intervals; a device without a row did
    /// nothing in that interval.
    pub fn device_uses(&self) -> &[DeviceUse] {
        &self.resources.uses
    }

    /// Threads of the server that may run on one CPU only.
    pub fn bound_threads(&self) -> &[BoundThread] {
        &self.resources.bound
    }

    /// What the processor counted, in the order of the intervals.
    pub fn counters(&self) -> &[CounterRow] {
        &self.counters
    }

    /// Where in the server the processor's counters overflowed, in the order of the intervals.
    pub fn counted(&self) -> &[CountedRow] {
        &self.counted
    }

    /// How the profile was made; `None` if there is none.
    pub fn profile_info(&self) -> Option<&ProfileInfo> {
        self.profile.info.as_ref()
    }
}

/// Reads a trial in one read transaction: all of it is one moment of the recording. The file is
/// let go afterwards.
fn snapshot(
    path: &Path,
    read: impl FnOnce(&Connection, &Place<'_>) -> Result<Trial, Error>,
) -> Result<Trial, Error> {
    let header = read_header(path)?;
    let place = Place { path, doing: "reading it", whole: 0 };
    // SQLite itself reads what is missing from a last page as zeros.
    let bytes = std::fs::metadata(path).map_err(|error| place.io(error))?.len();
    if !header.wal && bytes < header.bytes {
        return Err(place.corrupt(format!("it ends after {bytes} of {} bytes", header.bytes)));
    }
    let connection = connect(path, header).map_err(|error| place.sql(error))?;
    let transaction = connection.unchecked_transaction().map_err(|error| place.sql(error))?;
    read(&transaction, &place)
}

/// Reads and judges the first bytes of a file.
pub(crate) fn read_header(path: &Path) -> Result<Header, Error> {
    let place = Place { path, doing: "opening it", whole: 0 };
    let not_a_trial =
        |why: &str| Err(Error::NotATrial { path: path.to_owned(), why: why.to_owned() });
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    match File::open(path) {
        Ok(file) => {
            let kind = file.metadata().map_err(|error| place.io(error))?;
            if !kind.is_file() {
                return not_a_trial("not a file");
            }
            file.take(HEADER_BYTES as u64)
                .read_to_end(&mut bytes)
                .map_err(|error| place.io(error))?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::Missing { path: path.to_owned() });
        }
        Err(error) => return Err(place.io(error)),
    }
    if bytes.is_empty() {
        return not_a_trial("empty");
    }
    let Some(header) = header(&bytes) else {
        return not_a_trial("not a SQLite file");
    };
    if header.application_id != APPLICATION_ID {
        return not_a_trial("no Plimsoll application id");
    }
    if header.user_version > SCHEMA_VERSION {
        return Err(Error::NewerSchema {
            path: path.to_owned(),
            found: header.user_version,
            newest: SCHEMA_VERSION,
        });
    }
    Ok(header)
}

/// The name of a file that SQLite keeps beside the trial.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn connect(path: &Path, header: Header) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // A trial in WAL mode with no WAL beside it was left by a killed recorder and moved, or lies
    // in a directory where nothing can be made. Then nobody writes it, and read as immutable it
    // needs no companions.
    let connection = if header.wal && !beside(path, "-wal").exists() {
        Connection::open_with_flags(immutable_uri(path), flags | OpenFlags::SQLITE_OPEN_URI)?
    } else {
        Connection::open_with_flags(path, flags)?
    };
    connection.busy_timeout(BUSY_WAIT)?;
    Ok(connection)
}

fn immutable_uri(path: &Path) -> String {
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                uri.push(char::from(byte));
            }
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    uri
}

fn check(connection: &Connection, place: &Place<'_>) -> Result<(), Error> {
    let verdict: String = connection
        .query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        .map_err(|error| place.sql(error))?;
    if verdict == "ok" { Ok(()) } else { Err(place.corrupt(verdict.replace('\n', " "))) }
}

fn load(connection: &Connection, place: &Place<'_>) -> Result<Trial, Error> {
    let (manifest, complete) = head(connection, place)?;
    if complete {
        let sql = |error| place.sql(error);
        let sealed = meta(connection, key::DIGEST).map_err(sql)?;
        let found = digest::of(connection).map_err(sql)?;
        if sealed.as_deref() != Some(found.as_str()) {
            return Err(place.corrupt("its content is not what was sealed when it was finished"));
        }
    }
    let profile = profile::read(connection, place)?;
    let waits = waits::read(connection, place, profile.stacks.len())?;
    let counted = counters::read_counted(connection, place, 0)?;
    if counted.iter().any(|row| row.stack as usize >= profile.stacks.len()) {
        return Err(place.corrupt("its counters name what is not in it"));
    }
    let trial =
        Trial { complete, manifest, profile, waits, counted, ..rest(connection, place, 0)? };
    Ok(trial)
}

/// The intervals from one on, with what belongs to them.
fn load_from(connection: &Connection, place: &Place<'_>, from: u64) -> Result<Trial, Error> {
    let (manifest, complete) = head(connection, place)?;
    let mut waits = waits::read_from(connection, place, from)?;
    let mut counted = counters::read_counted(connection, place, from)?;
    let waiting = waits.iter_mut().map(|row| &mut row.stack);
    let stacks = waiting.chain(counted.iter_mut().map(|row| &mut row.stack));
    let profile = profile::read_from(connection, place, from, stacks)?;
    let trial =
        Trial { complete, manifest, profile, waits, counted, ..rest(connection, place, from)? };
    Ok(trial)
}

/// What the trial says of itself.
fn head(connection: &Connection, place: &Place<'_>) -> Result<(Manifest, bool), Error> {
    let sql = |error| place.sql(error);
    let text = meta(connection, key::MANIFEST)
        .map_err(sql)?
        .ok_or_else(|| place.corrupt("it has no manifest"))?;
    let manifest = serde_json::from_str(&text)
        .map_err(|error| place.corrupt(format!("its manifest: {error}")))?;
    let complete = meta(connection, key::COMPLETE).map_err(sql)?.as_deref() == Some("1");
    Ok((manifest, complete))
}

/// Everything but the head, the profile and what has stacks of it, of the intervals from one on.
fn rest(connection: &Connection, place: &Place<'_>, from: u64) -> Result<Trial, Error> {
    let sql = |error| place.sql(error);
    let mut intervals = rows(connection, &interval_query(), [from], interval).map_err(sql)?;
    let cpus = rows(connection, &cpu_query(), [from], cpu).map_err(sql)?;
    let threads = rows(connection, THREADS, [from], thread).map_err(sql)?;
    attach(&mut intervals, cpus, |interval| &mut interval.cpus)
        .and_then(|()| attach(&mut intervals, threads, |interval| &mut interval.threads))
        .map_err(sql)?;
    Ok(Trial {
        path: place.path.to_owned(),
        complete: false,
        manifest: Manifest::default(),
        intervals,
        latencies: rows(connection, LATENCIES, [from], latency).map_err(sql)?,
        losses: rows(connection, LOSSES, [], loss).map_err(sql)?,
        predictions: rows(connection, PREDICTIONS, [], prediction).map_err(sql)?,
        profile: Profile::default(),
        waits: Vec::new(),
        counted: Vec::new(),
        files: files::read(connection, place)?,
        classes: classes::read(connection, place, from)?,
        counters: counters::read(connection, place, from)?,
        resources: resources::read(connection, place, from)?,
    })
}

/// The number of the first of the last so many intervals; 0 if there are no more than that.
fn first_of_last(connection: &Connection, intervals: usize) -> rusqlite::Result<u64> {
    let before = i64::try_from(intervals.max(1) - 1).unwrap_or(i64::MAX);
    let mut select =
        connection.prepare("SELECT idx FROM interval ORDER BY idx DESC LIMIT 1 OFFSET ?")?;
    let mut rows = select.query([before])?;
    rows.next()?.map_or(Ok(0), |row| row.get(0))
}

/// Whether there is such a table: a trial of an older version may lack it.
pub(crate) fn has_table(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    connection.query_row(
        "SELECT count(*) > 0 FROM sqlite_schema WHERE type = 'table' AND name = ?",
        [name],
        |row| row.get(0),
    )
}

pub(crate) fn meta(connection: &Connection, key: &str) -> rusqlite::Result<Option<String>> {
    let mut select = connection.prepare("SELECT value FROM meta WHERE key = ?")?;
    let mut rows = select.query([key])?;
    rows.next()?.map(|row| row.get(0)).transpose()
}

fn rows<T, P: rusqlite::Params>(
    connection: &Connection,
    query: &str,
    params: P,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare(query)?.query_map(params, |row| read(row))?.collect()
}

/// Puts the parts, ordered by interval, where they belong. Parts of no interval cannot be: both
/// are written in one transaction.
fn attach<T>(
    intervals: &mut [Interval],
    parts: Vec<(u64, T)>,
    list: impl Fn(&mut Interval) -> &mut Vec<T>,
) -> rusqlite::Result<()> {
    let mut at = 0;
    for (index, part) in parts {
        while intervals.get(at).is_some_and(|interval| interval.index < index) {
            at += 1;
        }
        match intervals.get_mut(at) {
            Some(interval) if interval.index == index => list(interval).push(part),
            _ => return Err(rusqlite::Error::QueryReturnedNoRows),
        }
    }
    Ok(())
}

const THREADS: &str = "
SELECT thread.idx, pid, tid, name.name, total_ns, user_ns, kernel_ns, wakes
FROM thread JOIN name ON name.id = thread.name WHERE thread.idx >= ?
ORDER BY thread.idx, seq";

const LATENCIES: &str = "
SELECT idx, source, count, invalid, histogram FROM latency WHERE idx >= ? ORDER BY idx, id";

const LOSSES: &str = "SELECT kind, count, note FROM loss ORDER BY id";

const PREDICTIONS: &str = "
SELECT name, made_at_ns, quantity, value, low, high, level, model FROM prediction ORDER BY id";

fn interval_query() -> String {
    format!(
        "SELECT idx, start_ns, length_ns, {MODES}, requests, requests_ended, rate_valid, phase,
             recorder_ns, server_user_ns, server_kernel_ns, server_total_ns, processes, threads,
             voluntary_switches, involuntary_switches, rss_bytes, descriptors
         FROM interval WHERE idx >= ? ORDER BY idx"
    )
}

fn cpu_query() -> String {
    format!("SELECT idx, cpu, {MODES} FROM cpu WHERE idx >= ? ORDER BY idx, cpu")
}

fn interval(row: &Row<'_>) -> rusqlite::Result<Interval> {
    Ok(Interval {
        index: row.get(0)?,
        start_ns: row.get(1)?,
        length_ns: row.get(2)?,
        machine: modes(row, 3)?,
        requests: row.get(12)?,
        requests_ended: row.get(13)?,
        rate_valid: row.get(14)?,
        phase: row.get(15)?,
        recorder_ns: row.get(16)?,
        server: match row.get::<_, Option<i64>>(17)? {
            None => None,
            Some(user_ns) => Some(ProcessTimes {
                user_ns,
                kernel_ns: row.get(18)?,
                total_ns: row.get(19)?,
                processes: row.get(20)?,
                threads: row.get(21)?,
                voluntary_switches: row.get(22)?,
                involuntary_switches: row.get(23)?,
                rss_bytes: row.get(24)?,
                descriptors: row.get(25)?,
            }),
        },
        cpus: Vec::new(),
        threads: Vec::new(),
    })
}

fn modes(row: &Row<'_>, at: usize) -> rusqlite::Result<Modes> {
    Ok(Modes {
        user_ns: row.get(at)?,
        nice_ns: row.get(at + 1)?,
        system_ns: row.get(at + 2)?,
        irq_ns: row.get(at + 3)?,
        softirq_ns: row.get(at + 4)?,
        idle_ns: row.get(at + 5)?,
        iowait_ns: row.get(at + 6)?,
        steal_ns: row.get(at + 7)?,
        guest_ns: row.get(at + 8)?,
    })
}

fn cpu(row: &Row<'_>) -> rusqlite::Result<(u64, CpuModes)> {
    Ok((row.get(0)?, CpuModes { cpu: row.get(1)?, modes: modes(row, 2)? }))
}

fn thread(row: &Row<'_>) -> rusqlite::Result<(u64, ThreadTimes)> {
    let times = ThreadTimes {
        pid: row.get(1)?,
        tid: row.get(2)?,
        name: row.get(3)?,
        total_ns: row.get(4)?,
        user_ns: row.get(5)?,
        kernel_ns: row.get(6)?,
        wakes: row.get(7)?,
    };
    Ok((row.get(0)?, times))
}

fn latency(row: &Row<'_>) -> rusqlite::Result<LatencyRow> {
    let source: String = row.get(1)?;
    let source = match source.as_str() {
        "generator" => LatencySource::Generator,
        "log" => LatencySource::Log,
        _ => return Err(rusqlite::Error::InvalidColumnName(source)),
    };
    Ok(LatencyRow {
        interval: row.get(0)?,
        source,
        count: row.get(2)?,
        invalid: row.get(3)?,
        histogram: row.get(4)?,
    })
}

fn loss(row: &Row<'_>) -> rusqlite::Result<Loss> {
    Ok(Loss { kind: row.get(0)?, count: row.get(1)?, note: row.get(2)? })
}

fn prediction(row: &Row<'_>) -> rusqlite::Result<Prediction> {
    Ok(Prediction {
        name: row.get(0)?,
        made_at_ns: row.get(1)?,
        quantity: row.get(2)?,
        value: row.get(3)?,
        low: row.get(4)?,
        high: row.get(5)?,
        level: row.get(6)?,
        model: row.get(7)?,
    })
}
