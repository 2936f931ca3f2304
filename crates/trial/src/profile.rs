//! The profile: where the CPUs were, sampled, as procedures and their callers.
//!
//! A sample is kept as the number of its stack; a stack as the numbers of its frames; each frame
//! and each stack stands in the file once. There is one row for an interval, an owner and a stack,
//! so that an hour at 99 Hz stays small.
//!
//! Frames, stacks and rows wait in the [`Writer`] and are written with their interval, in its
//! transaction: a killed recorder leaves no interval with half of its samples, and no samples
//! without their interval.

use std::collections::HashMap;

use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Place};
use crate::reader::has_table;
use crate::schema::key;
use crate::writer::{Writer, set_meta};

/// Most frames of a stack: what is deeper is cut, and is not whole.
pub const STACK_FRAMES_MAX: usize = 256;

/// The tables.
pub(crate) const CREATE: &str = "
CREATE TABLE IF NOT EXISTS frame (
    id INTEGER PRIMARY KEY, symbol TEXT, module TEXT NOT NULL, mode INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS stack (
    id INTEGER PRIMARY KEY, frames BLOB NOT NULL, whole INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS sample (
    idx INTEGER NOT NULL, owner INTEGER NOT NULL, stack INTEGER NOT NULL,
    samples INTEGER NOT NULL, ns INTEGER NOT NULL, PRIMARY KEY (idx, owner, stack)
) WITHOUT ROWID;
";

/// The mode of the CPU that a frame ran in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FrameMode {
    /// A procedure of a program or of a library.
    User,
    /// One of the kernel.
    Kernel,
}

/// One procedure.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Frame {
    /// Its name. `None` where nobody knows it: then it is shown as its module.
    pub symbol: Option<String>,
    /// Where its code lies: "\[kernel\]", "libc.so.6", "squid".
    pub module: String,
    /// The mode it ran in.
    pub mode: FrameMode,
}

/// Whose time a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// The processes that are observed.
    Server,
    /// The recorder itself.
    Recorder,
    /// Everybody else, interrupts that came while a CPU was idle among them.
    Other,
    /// Nobody's.
    Idle,
}

impl Owner {
    /// All of them, in the order of their numbers in the file.
    pub const ALL: [Owner; 4] = [Owner::Server, Owner::Recorder, Owner::Other, Owner::Idle];

    fn number(self) -> u8 {
        self as u8
    }
}

/// Procedures that called each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stack {
    /// Numbers of frames, the innermost first: the one that ran, then its callers. Kernel frames
    /// come before the user frames that called into it.
    pub frames: Vec<u32>,
    /// Whether the outermost is the bottom: the thread's first procedure.
    pub whole: bool,
}

/// How often a stack was met in an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleRow {
    /// The interval's number.
    pub interval: u64,
    /// Whose samples.
    pub owner: Owner,
    /// The stack's number.
    pub stack: u32,
    /// How many samples.
    pub samples: u32,
    /// CPU time they stand for, ns.
    pub ns: i64,
}

/// How the profile was made, and what it lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileInfo {
    /// What was counted: "cpu-clock", "cycles".
    pub event: String,
    /// Samples a second of each CPU.
    pub hz: u32,
    /// Samples in the trial.
    pub samples: u64,
    /// Samples that the kernel had no room for.
    pub lost: u64,
    /// Times the kernel held the sampling back, because it took too long.
    pub throttled: u64,
    /// Samples of the server.
    pub server_samples: u64,
    /// Those of the server's samples that have user frames: taken in user mode, or in the kernel
    /// on behalf of user mode.
    pub user_samples: u64,
    /// Those of `user_samples` that were unwound to the bottom.
    pub unwound_whole: u64,
    /// How user frames were found: "eh_frame over 16384 bytes of stack", "frame pointers".
    pub unwinder: String,
}

/// Everything of a profile that a trial holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Profile {
    pub(crate) frames: Vec<Frame>,
    pub(crate) stacks: Vec<Stack>,
    pub(crate) samples: Vec<SampleRow>,
    pub(crate) info: Option<ProfileInfo>,
}

/// What waits for the next interval, and the numbers that were given out.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Whether the numbers of an older recording in the same file were read.
    loaded: bool,
    frames: HashMap<Frame, u32>,
    stacks: HashMap<Stack, u32>,
    new_frames: Vec<(u32, Frame)>,
    new_stacks: Vec<(u32, Stack)>,
    rows: Vec<SampleRow>,
    info: Option<ProfileInfo>,
}

impl Writer {
    /// The number of a frame, the same for equal ones.
    pub fn frame(&mut self, frame: &Frame) -> Result<u32, Error> {
        self.load_profile()?;
        let pending = &mut self.profile;
        if let Some(&number) = pending.frames.get(frame) {
            return Ok(number);
        }
        let number = u32::try_from(pending.frames.len()).unwrap_or(u32::MAX);
        pending.frames.insert(frame.clone(), number);
        pending.new_frames.push((number, frame.clone()));
        Ok(number)
    }

    /// The number of a stack, the same for equal ones. Errors: [`Error::Refused`] if it holds a
    /// number that is no frame's, or more than [`STACK_FRAMES_MAX`].
    pub fn stack(&mut self, stack: &Stack) -> Result<u32, Error> {
        self.load_profile()?;
        if let Some(&number) = self.profile.stacks.get(stack) {
            return Ok(number);
        }
        if stack.frames.len() > STACK_FRAMES_MAX {
            return Err(self.place("writing a stack").refused("it is too deep"));
        }
        let known = self.profile.frames.len();
        if stack.frames.iter().any(|&frame| frame as usize >= known) {
            return Err(self.place("writing a stack").refused("it holds an unknown frame"));
        }
        let pending = &mut self.profile;
        let number = u32::try_from(pending.stacks.len()).unwrap_or(u32::MAX);
        pending.stacks.insert(stack.clone(), number);
        pending.new_stacks.push((number, stack.clone()));
        Ok(number)
    }

    /// Adds samples. They are written with their interval when it is appended, with the next one if
    /// it was appended before, or at [`finish`](Writer::finish). Rows of the same interval, owner
    /// and stack add up.
    pub fn samples(&mut self, rows: &[SampleRow]) -> Result<(), Error> {
        self.load_profile()?;
        let known = self.profile.stacks.len();
        if rows.iter().any(|row| row.stack as usize >= known) {
            return Err(self.place("writing samples").refused("one has an unknown stack"));
        }
        self.profile.rows.extend_from_slice(rows);
        Ok(())
    }

    /// How many stacks have a number.
    pub(crate) fn stacks_known(&mut self) -> Result<usize, Error> {
        self.load_profile()?;
        Ok(self.profile.stacks.len())
    }

    /// Says how the profile was made; written with the next interval, or at
    /// [`finish`](Writer::finish). The last one stays.
    pub fn profile_info(&mut self, info: &ProfileInfo) -> Result<(), Error> {
        self.load_profile()?;
        self.profile.info = Some(info.clone());
        Ok(())
    }

    /// Numbers go on where an older recording in the same file ended.
    fn load_profile(&mut self) -> Result<(), Error> {
        if self.profile.loaded {
            return Ok(());
        }
        let place = self.place("reading its profile");
        let had = read(&self.connection, &place)?;
        let pending = &mut self.profile;
        pending.frames = numbered(had.frames);
        pending.stacks = numbered(had.stacks);
        pending.loaded = true;
        Ok(())
    }
}

fn numbered<T: std::hash::Hash + Eq>(list: Vec<T>) -> HashMap<T, u32> {
    list.into_iter().zip(0..).collect()
}

impl Pending {
    /// Writes what waits for intervals up to this one. It goes on waiting until
    /// [`written`](Pending::written) says that the transaction came through.
    pub(crate) fn write(&self, connection: &Connection, up_to: u64) -> rusqlite::Result<()> {
        let mut insert = connection
            .prepare_cached("INSERT INTO frame (id, symbol, module, mode) VALUES (?, ?, ?, ?)")?;
        for (number, frame) in &self.new_frames {
            insert.execute(params![number, frame.symbol, frame.module, frame.mode as u8])?;
        }
        let mut insert =
            connection.prepare_cached("INSERT INTO stack (id, frames, whole) VALUES (?, ?, ?)")?;
        for (number, stack) in &self.new_stacks {
            insert.execute(params![number, encode(&stack.frames), stack.whole])?;
        }
        let mut insert = connection.prepare_cached(
            "INSERT INTO sample (idx, owner, stack, samples, ns) VALUES (?, ?, ?, ?, ?)
             ON CONFLICT (idx, owner, stack) DO UPDATE
             SET samples = samples + excluded.samples, ns = ns + excluded.ns",
        )?;
        for row in self.rows.iter().filter(|row| row.interval <= up_to) {
            let owner = row.owner.number();
            insert.execute(params![row.interval, owner, row.stack, row.samples, row.ns])?;
        }
        if let Some(info) = &self.info {
            let value = serde_json::to_string(info).expect("it has only string keys");
            set_meta(connection, key::PROFILE, &value)?;
        }
        Ok(())
    }

    /// What was written waits no more.
    pub(crate) fn written(&mut self, up_to: u64) {
        self.new_frames.clear();
        self.new_stacks.clear();
        self.rows.retain(|row| row.interval > up_to);
        self.info = None;
    }

    pub(crate) fn is_empty(&self) -> bool {
        let nothing_new = self.new_frames.is_empty() && self.new_stacks.is_empty();
        nothing_new && self.rows.is_empty() && self.info.is_none()
    }
}

/// Reads the profile of a trial; of one that has none, an empty one.
pub(crate) fn read(connection: &Connection, place: &Place<'_>) -> Result<Profile, Error> {
    let there: bool = connection
        .query_row(
            "SELECT count(*) = 3 FROM sqlite_schema WHERE type = 'table'
             AND name IN ('frame', 'stack', 'sample')",
            [],
            |row| row.get(0),
        )
        .map_err(|error| place.sql(error))?;
    if !there {
        return Ok(Profile::default());
    }
    let profile = read_tables(connection).map_err(|error| place.sql(error))?;
    // Numbers are places in these lists: whoever follows one must find something there.
    let (Some(profile), info) = (profile, read_info(connection, place)?) else {
        return Err(place.corrupt("its profile names what is not in it"));
    };
    Ok(Profile { info, ..profile })
}

/// The profile of the intervals from one on: the frames and stacks that their samples use and that
/// others name, numbered anew, in the samples and where they are named.
pub(crate) fn read_from<'a>(
    connection: &Connection,
    place: &Place<'_>,
    from: u64,
    named: impl Iterator<Item = &'a mut u32>,
) -> Result<Profile, Error> {
    let mut named = named.peekable();
    let there = has_table(connection, "sample").map_err(|error| place.sql(error))?;
    if !there && named.peek().is_none() {
        return Ok(Profile::default());
    }
    let corrupt = || place.corrupt("its profile names what is not in it");
    let samples = read_samples(connection, from).map_err(|error| place.sql(error))?;
    let mut samples = samples.ok_or_else(corrupt)?;
    let mut used = Used { connection, stacks: HashMap::new(), frames: HashMap::new() };
    let mut profile = Profile::default();
    let mut renumber = |stack: &mut u32| -> Result<(), Error> {
        let found = used.stack(*stack, &mut profile).map_err(|error| place.sql(error))?;
        *stack = found.ok_or_else(corrupt)?;
        Ok(())
    };
    samples.iter_mut().try_for_each(|row| renumber(&mut row.stack))?;
    named.try_for_each(&mut renumber)?;
    let info = read_info(connection, place)?;
    Ok(Profile { samples, info, ..profile })
}

/// The stacks and frames that were met, by their numbers in the file, with their new ones.
struct Used<'a> {
    connection: &'a Connection,
    stacks: HashMap<u32, u32>,
    frames: HashMap<u32, u32>,
}

impl Used<'_> {
    /// The new number of a stack; `None` if it leads nowhere.
    fn stack(&mut self, old: u32, profile: &mut Profile) -> rusqlite::Result<Option<u32>> {
        if let Some(&known) = self.stacks.get(&old) {
            return Ok(Some(known));
        }
        let mut select =
            self.connection.prepare_cached("SELECT frames, whole FROM stack WHERE id = ?")?;
        let mut rows = select.query([old])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let Some(mut frames) = decode(row.get_ref(0)?.as_blob()?) else { return Ok(None) };
        let whole = row.get(1)?;
        for frame in &mut frames {
            let Some(new) = self.frame(*frame, profile)? else { return Ok(None) };
            *frame = new;
        }
        let new = u32::try_from(profile.stacks.len()).unwrap_or(u32::MAX);
        profile.stacks.push(Stack { frames, whole });
        self.stacks.insert(old, new);
        Ok(Some(new))
    }

    /// The new number of a frame.
    fn frame(&mut self, old: u32, profile: &mut Profile) -> rusqlite::Result<Option<u32>> {
        if let Some(&known) = self.frames.get(&old) {
            return Ok(Some(known));
        }
        let mut select = self
            .connection
            .prepare_cached("SELECT symbol, module, mode FROM frame WHERE id = ?")?;
        let mut rows = select.query([old])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let Some(mode) = frame_mode(row.get(2)?) else { return Ok(None) };
        let new = u32::try_from(profile.frames.len()).unwrap_or(u32::MAX);
        profile.frames.push(Frame { symbol: row.get(0)?, module: row.get(1)?, mode });
        self.frames.insert(old, new);
        Ok(Some(new))
    }
}

fn read_info(connection: &Connection, place: &Place<'_>) -> Result<Option<ProfileInfo>, Error> {
    let text = crate::reader::meta(connection, key::PROFILE).map_err(|error| place.sql(error))?;
    text.map(|text| serde_json::from_str(&text))
        .transpose()
        .map_err(|error| place.corrupt(format!("how its profile was made: {error}")))
}

/// `None` if a number leads nowhere.
fn read_tables(connection: &Connection) -> rusqlite::Result<Option<Profile>> {
    let mut profile = Profile::default();
    let mut select =
        connection.prepare("SELECT id, symbol, module, mode FROM frame ORDER BY id")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let Some(mode) = frame_mode(row.get(3)?) else { return Ok(None) };
        if row.get::<_, usize>(0)? != profile.frames.len() {
            return Ok(None);
        }
        profile.frames.push(Frame { symbol: row.get(1)?, module: row.get(2)?, mode });
    }
    let mut select = connection.prepare("SELECT id, frames, whole FROM stack ORDER BY id")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let Some(frames) = decode(row.get_ref(1)?.as_blob()?) else { return Ok(None) };
        let known = frames.iter().all(|&frame| (frame as usize) < profile.frames.len());
        if row.get::<_, usize>(0)? != profile.stacks.len() || !known {
            return Ok(None);
        }
        profile.stacks.push(Stack { frames, whole: row.get(2)? });
    }
    let Some(samples) = read_samples(connection, 0)? else { return Ok(None) };
    let known = samples.iter().all(|row| (row.stack as usize) < profile.stacks.len());
    Ok(known.then_some(Profile { samples, ..profile }))
}

/// The samples of the intervals from one on; `None` if one is nobody's.
fn read_samples(connection: &Connection, from: u64) -> rusqlite::Result<Option<Vec<SampleRow>>> {
    let mut samples = Vec::new();
    let mut select = connection.prepare(
        "SELECT idx, owner, stack, samples, ns FROM sample WHERE idx >= ?
         ORDER BY idx, owner, stack",
    )?;
    let mut rows = select.query([from])?;
    while let Some(row) = rows.next()? {
        let Some(&owner) = Owner::ALL.get(row.get::<_, usize>(1)?) else { return Ok(None) };
        samples.push(SampleRow {
            interval: row.get(0)?,
            owner,
            stack: row.get(2)?,
            samples: row.get(3)?,
            ns: row.get(4)?,
        });
    }
    Ok(Some(samples))
}

fn frame_mode(number: u8) -> Option<FrameMode> {
    match number {
        0 => Some(FrameMode::User),
        1 => Some(FrameMode::Kernel),
        _ => None,
    }
}

/// Numbers as LEB128: most frames of a trial have one or two bytes.
fn encode(frames: &[u32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(2 * frames.len());
    for &frame in frames {
        let mut rest = frame;
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
    }
    bytes
}

fn decode(bytes: &[u8]) -> Option<Vec<u32>> {
    let mut frames = Vec::new();
    let mut number = 0u64;
    let mut shift = 0;
    for &byte in bytes {
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            frames.push(u32::try_from(number).ok()?);
            (number, shift) = (0, 0);
        } else {
            shift += 7;
            if shift > 28 {
                return None;
            }
        }
    }
    (shift == 0 && frames.len() <= STACK_FRAMES_MAX).then_some(frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(frames in proptest::collection::vec(any::<u32>(), 0..40)) {
            prop_assert_eq!(decode(&encode(&frames)), Some(frames));
        }

        #[test]
        fn noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }
    }
}
