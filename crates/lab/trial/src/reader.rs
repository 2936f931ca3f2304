//! Reading a trial: one consistent snapshot, taken when it is opened.
//!
//! Everything is read at once, because a reader that kept the file open would prevent the writer
//! from folding its journal, and values read one after another from a live recording would not be
//! consistent. An hour at one-second intervals is about ten thousand rows.
//!
//! Everything is checked before it is used: the header, the pages by SQLite's own check, a complete
//! trial by its digest. A live view reads the last intervals again and again ([`Trial::recent`]).
//! It opens and closes the file each time, at a cost that does not grow with the recording.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension};

use crate::answers::{AnswerRow, UpstreamRow};
use crate::classes::ClassRow;
use crate::counters::{CountedRow, CounterRow};
use crate::error::{Error, Place};
use crate::files::FileRow;
use crate::model::{Interval, LatencyRow, Loss, Manifest, Prediction};
use crate::profile::{self, Frame, Profile, ProfileInfo, SampleRow, Stack};
use crate::resources::{BoundThread, DeviceUse};
use crate::schema::{APPLICATION_ID, HEADER_BYTES, Header, SCHEMA_VERSION, header};
use crate::stretches::{StretchRow, TurnRow};
use crate::table::{self, Span, WHOLE};
use crate::waits::{self, WaitRow};
use crate::{digest, intervals, meta};

/// How long a reader waits for a lock. A writer takes one only when it folds its journal at the
/// end.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// How often a trial is read that a writer finishes meanwhile, and how long that takes a writer.
const READS_MAX: u32 = 4;
const FINISH_WAIT: Duration = Duration::from_millis(20);

/// A trial, as it was when it was opened.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trial {
    pub(crate) path: PathBuf,
    pub(crate) complete: bool,
    pub(crate) manifest: Manifest,
    pub(crate) intervals: Vec<Interval>,
    pub(crate) latencies: Vec<LatencyRow>,
    pub(crate) losses: Vec<Loss>,
    pub(crate) predictions: Vec<Prediction>,
    pub(crate) profile: Profile,
    pub(crate) waits: Vec<WaitRow>,
    pub(crate) files: Vec<FileRow>,
    pub(crate) classes: Vec<ClassRow>,
    pub(crate) device_uses: Vec<DeviceUse>,
    pub(crate) bound_threads: Vec<BoundThread>,
    pub(crate) counters: Vec<CounterRow>,
    pub(crate) counted: Vec<CountedRow>,
    pub(crate) turns: Vec<TurnRow>,
    pub(crate) stretches: Vec<StretchRow>,
    pub(crate) answers: Vec<AnswerRow>,
    pub(crate) upstreams: Vec<UpstreamRow>,
}

impl Trial {
    /// Opens and reads a trial. Errors: the file is missing, not a trial, of a newer schema or
    /// corrupt. An unfinished trial can be opened; its [`complete`](Trial::complete) is false.
    pub fn open(path: impl AsRef<Path>) -> Result<Trial, Error> {
        snapshot(path.as_ref(), |read, place| {
            check(read, place)?;
            load(read, place)
        })
    }

    /// Reads only what the load lines of the CPU need: the manifest, the intervals with their
    /// threads, pinned threads, turns, stretches and answers. It takes a tenth of the time of
    /// [`open`](Trial::open), because most of a trial is its profile. Only what is read is checked,
    /// and there is no digest of a part. So damaged values can go unnoticed.
    pub fn open_intervals(path: impl AsRef<Path>) -> Result<Trial, Error> {
        snapshot(path.as_ref(), |read, place| {
            let (manifest, complete) = head(read, place)?;
            let sql = |error| place.sql(error);
            Ok(Trial {
                complete,
                manifest,
                intervals: intervals::read_with_threads(read, &WHOLE).map_err(sql)?,
                bound_threads: table::read(read, place, &WHOLE)?,
                turns: table::read(read, place, &WHOLE)?,
                stretches: table::read(read, place, &WHOLE)?,
                answers: table::read(read, place, &WHOLE)?,
                upstreams: table::read(read, place, &WHOLE)?,
                path: place.path.to_owned(),
                ..Trial::default()
            })
        })
    }

    /// Reads the last `intervals_max` intervals of a trial that is being written, with all rows
    /// that belong to them, for a live view. Rows that belong to no interval (losses, files,
    /// predictions) are read completely. Only the frames and stacks in use are read, and they are
    /// renumbered.
    ///
    /// The cost depends on the number of intervals, not on the length of the trial. Therefore only
    /// references to frames and stacks are checked. [Open](Trial::open) a finished trial instead.
    pub fn recent(path: impl AsRef<Path>, intervals_max: usize) -> Result<Trial, Error> {
        snapshot(path.as_ref(), |read, place| {
            let from = first_of_last(read, intervals_max).map_err(|error| place.sql(error))?;
            load_span(read, place, &(from..WHOLE.end))
        })
    }

    /// Reads at most `intervals_max` intervals from number `from` on, with all rows that belong to
    /// them, for a program that follows a recording and may be far behind it. Otherwise like
    /// [`recent`](Trial::recent).
    pub fn part(path: impl AsRef<Path>, from: u64, intervals_max: usize) -> Result<Trial, Error> {
        snapshot(path.as_ref(), |read, place| {
            let end = end_of_part(read, from, intervals_max).map_err(|error| place.sql(error))?;
            load_span(read, place, &(from..end))
        })
    }

    /// Copies a trial, with the intervals that it has, into a new file. The trial may still be
    /// recorded; it does not change.
    pub fn copy(path: impl AsRef<Path>, into: impl AsRef<Path>) -> Result<(), Error> {
        let (path, into) = (path.as_ref(), into.as_ref());
        if into.exists() {
            return Err(Error::Exists { path: into.to_owned() });
        }
        let place = Place { path, doing: "copying it", whole: 0 };
        let read = connect(path, read_header(path)?).map_err(|error| place.sql(error))?;
        let into = into.to_string_lossy();
        read.execute("VACUUM INTO ?", [into]).map(drop).map_err(|error| place.sql(error))
    }

    /// Whether the recording was finished. If not, it is still running, it was killed, or its disk
    /// was full. The intervals that it has are intact.
    pub fn complete(&self) -> bool {
        self.complete
    }

    /// For an unfinished trial, one line about its state, for the top of a report.
    pub fn unfinished(&self) -> Option<String> {
        (!self.complete).then(|| {
            format!(
                "{}: not finished (still being recorded, or the recorder was killed); \
                 it has {} complete intervals",
                self.path.display(),
                self.intervals.len()
            )
        })
    }

    /// The frames of a stack, innermost first; none if there is no such stack.
    pub fn stack_frames(&self, stack: u32) -> impl DoubleEndedIterator<Item = &Frame> {
        let stack = self.stacks().get(stack as usize).map_or(&[][..], |stack| &stack.frames);
        stack.iter().filter_map(|&frame| self.frames().get(frame as usize))
    }

    /// How the profile was made; `None` without a profile.
    pub fn profile_info(&self) -> Option<&ProfileInfo> {
        self.profile.info.as_ref()
    }
}

/// Defines methods that return a reference to a field.
macro_rules! accessors {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $($field:ident).+;)+) => {
        impl Trial {
            $($(#[$doc])* pub fn $name(&self) -> &$type {
                &self.$($field).+
            })+
        }
    };
}

accessors! {
    /// The file.
    path: Path = path;
    /// The manifest.
    manifest: Manifest = manifest;
    /// The intervals, in order.
    intervals: [Interval] = intervals;
    /// Latencies, in the order of their intervals. An interval may have several rows.
    latencies: [LatencyRow] = latencies;
    /// Losses, one row for each kind.
    losses: [Loss] = losses;
    /// Predictions, oldest first.
    predictions: [Prediction] = predictions;
    /// Procedures of the profile. A frame's number is its index here.
    frames: [Frame] = profile.frames;
    /// Stacks of the profile. A stack's number is its index here.
    stacks: [Stack] = profile.stacks;
    /// Samples, ordered by interval, owner and stack. Their stack numbers are valid.
    samples: [SampleRow] = profile.samples;
    /// Lock waits, in the order of their intervals.
    waits: [WaitRow] = waits;
    /// File access, by direction and size.
    files: [FileRow] = files;
    /// Requests by class, ordered by interval and name.
    classes: [ClassRow] = classes;
    /// Activity of disks and network cards, in the order of intervals. A device without a row was
    /// idle in that interval.
    device_uses: [DeviceUse] = device_uses;
    /// Threads of the server that are pinned to one CPU.
    bound_threads: [BoundThread] = bound_threads;
    /// Hardware counters, in the order of the intervals.
    counters: [CounterRow] = counters;
    /// Hardware counters of the server by stack, in the order of the intervals.
    counted: [CountedRow] = counted;
    /// Turns of the server's threads, one row for each interval that was sampled.
    turns: [TurnRow] = turns;
    /// Stretches of the server's threads, ordered by interval, kind and size.
    stretches: [StretchRow] = stretches;
    /// How the server's threads answered, one row for each interval that was seen.
    answers: [AnswerRow] = answers;
    /// Waits for other servers, in the order of the intervals.
    upstreams: [UpstreamRow] = upstreams;
}

/// Reads a trial in one read transaction, so that all of it is from one moment of the recording.
/// The file is closed afterwards.
///
/// While a writer finishes, there is a moment without a WAL file, in which the trial looks like one
/// that a killed recorder has left ([`connect`]). What was read then may be torn. It is read again.
fn snapshot(
    path: &Path,
    read: impl Fn(&Connection, &Place<'_>) -> Result<Trial, Error>,
) -> Result<Trial, Error> {
    for _ in 1..READS_MAX {
        let header = read_header(path)?;
        let done = read_once(path, header, &read);
        if !matches!(done, Err(Error::Corrupt { .. })) || !header.wal {
            return done;
        }
        thread::sleep(FINISH_WAIT);
        if read_header(path)? == header && !companion(path, "-wal").exists() {
            return done;
        }
    }
    read_once(path, read_header(path)?, &read)
}

fn read_once(
    path: &Path,
    header: Header,
    read: &impl Fn(&Connection, &Place<'_>) -> Result<Trial, Error>,
) -> Result<Trial, Error> {
    let place = Place { path, doing: "reading it", whole: 0 };
    // SQLite would read the missing part of a last page as zeros.
    let bytes = std::fs::metadata(path).map_err(|error| place.io(error))?.len();
    if !header.wal && bytes < header.bytes {
        return Err(place.corrupt(format!("it has only {bytes} of its {} bytes", header.bytes)));
    }
    let connection = connect(path, header).map_err(|error| place.sql(error))?;
    let transaction = connection.unchecked_transaction().map_err(|error| place.sql(error))?;
    read(&transaction, &place)
}

/// Reads and checks the header of a file.
pub(crate) fn read_header(path: &Path) -> Result<Header, Error> {
    let place = Place { path, doing: "opening it", whole: 0 };
    let not_a_trial =
        |why: &str| Err(Error::NotATrial { path: path.to_owned(), why: why.to_owned() });
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    match File::open(path) {
        Ok(file) => {
            let metadata = file.metadata().map_err(|error| place.io(error))?;
            if !metadata.is_file() {
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

/// The name of a file that SQLite keeps next to the trial.
pub(crate) fn companion(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn connect(path: &Path, header: Header) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // A trial in WAL mode without a WAL file was left by a killed recorder and then moved, or is in
    // a directory without write permission. No process writes to it, and opened as immutable it
    // needs no other files.
    let connection = if header.wal && !companion(path, "-wal").exists() {
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

/// Reads a whole trial. A complete one must match its digest.
fn load(connection: &Connection, place: &Place<'_>) -> Result<Trial, Error> {
    let (manifest, complete) = head(connection, place)?;
    if complete {
        let sql = |error| place.sql(error);
        let sealed = meta::get(connection, meta::DIGEST).map_err(sql)?;
        let found = digest::of(connection).map_err(sql)?;
        if sealed.as_deref() != Some(found.as_str()) {
            return Err(place.corrupt("its content does not match its digest"));
        }
    }
    let profile = profile::read(connection, place)?;
    let waits: Vec<WaitRow> = table::read(connection, place, &WHOLE)?;
    let counted: Vec<CountedRow> = table::read(connection, place, &WHOLE)?;
    let stacks = waits.iter().map(|row| row.stack).chain(counted.iter().map(|row| row.stack));
    if stacks.max().is_some_and(|stack| stack as usize >= profile.stacks.len()) {
        return Err(place.corrupt(profile::DANGLING));
    }
    Ok(Trial { complete, manifest, profile, waits, counted, ..rest(connection, place, &WHOLE)? })
}

/// Reads the intervals of a span, with the rows that belong to them.
fn load_span(connection: &Connection, place: &Place<'_>, span: &Span) -> Result<Trial, Error> {
    let (manifest, complete) = head(connection, place)?;
    let mut waits = waits::read_span(connection, place, span)?;
    let mut counted: Vec<CountedRow> = table::read(connection, place, span)?;
    let stacks = waits.iter_mut().map(|row| &mut row.stack);
    let stacks = stacks.chain(counted.iter_mut().map(|row| &mut row.stack));
    let profile = profile::read_span(connection, place, span, stacks)?;
    Ok(Trial { complete, manifest, profile, waits, counted, ..rest(connection, place, span)? })
}

/// The manifest, and whether the trial is complete.
fn head(connection: &Connection, place: &Place<'_>) -> Result<(Manifest, bool), Error> {
    let sql = |error| place.sql(error);
    let text = meta::get(connection, meta::MANIFEST)
        .map_err(sql)?
        .ok_or_else(|| place.corrupt("it has no manifest"))?;
    let manifest = serde_json::from_str(&text)
        .map_err(|error| place.corrupt(format!("its manifest: {error}")))?;
    let complete = meta::get(connection, meta::COMPLETE).map_err(sql)?.as_deref() == Some("1");
    Ok((manifest, complete))
}

/// Everything of a span but the manifest, the profile and the rows that refer to its stacks.
fn rest(connection: &Connection, place: &Place<'_>, span: &Span) -> Result<Trial, Error> {
    Ok(Trial {
        intervals: intervals::read(connection, span).map_err(|error| place.sql(error))?,
        latencies: table::read(connection, place, span)?,
        losses: table::read(connection, place, span)?,
        predictions: table::read(connection, place, span)?,
        files: table::read(connection, place, span)?,
        classes: table::read(connection, place, span)?,
        counters: table::read(connection, place, span)?,
        turns: table::read(connection, place, span)?,
        stretches: table::read(connection, place, span)?,
        answers: table::read(connection, place, span)?,
        upstreams: table::read(connection, place, span)?,
        device_uses: table::read(connection, place, span)?,
        bound_threads: table::read(connection, place, span)?,
        path: place.path.to_owned(),
        ..Trial::default()
    })
}

/// The number of the first of the last `intervals` intervals; 0 if there are no more than that.
fn first_of_last(connection: &Connection, intervals: usize) -> rusqlite::Result<u64> {
    let offset = i64::try_from(intervals.max(1) - 1).unwrap_or(i64::MAX);
    let mut select =
        connection.prepare("SELECT idx FROM interval ORDER BY idx DESC LIMIT 1 OFFSET ?")?;
    let first = select.query_row([offset], |row| row.get(0)).optional()?;
    Ok(first.unwrap_or(0))
}

/// One more than the number of the last of the `intervals` intervals from one on.
fn end_of_part(connection: &Connection, from: u64, intervals: usize) -> rusqlite::Result<u64> {
    let offset = i64::try_from(intervals).unwrap_or(i64::MAX);
    let mut select = connection
        .prepare("SELECT idx FROM interval WHERE idx >= ? ORDER BY idx LIMIT 1 OFFSET ?")?;
    let next = select.query_row(rusqlite::params![from, offset], |row| row.get(0)).optional()?;
    Ok(next.unwrap_or(WHOLE.end))
}
