//! The sampled CPU profile, as procedures and their callers.
//!
//! A sample is stored as the number of its stack, a stack as the numbers of its frames. Each frame
//! and each stack is in the file once. There is one row for each interval, owner and stack, so that
//! an hour at 99 Hz stays small.

use std::collections::HashMap;

use rusqlite::types::FromSqlError;
use rusqlite::{Connection, OptionalExtension, Row, Statement, params};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Place};
use crate::meta;
use crate::table::{self, Span, Table, WHOLE, columns, stored_as_index};

/// Most frames of a stack. Deeper stacks are truncated, and marked as not whole.
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

/// The CPU mode a frame ran in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FrameMode {
    /// A procedure of a program or a library.
    User,
    /// A procedure of the kernel.
    Kernel,
}

stored_as_index!(FrameMode);

impl FrameMode {
    /// Both, in the order of their numbers in the file.
    pub const ALL: [FrameMode; 2] = [FrameMode::User, FrameMode::Kernel];
}

/// One procedure.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Frame {
    /// Its name. `None` if unknown: then the module is shown instead.
    pub symbol: Option<String>,
    /// The module that contains its code: "\[kernel\]", "libc.so.6", "squid".
    pub module: String,
    /// The mode it ran in.
    pub mode: FrameMode,
}

/// Whose CPU time a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// The observed processes.
    Server,
    /// The recorder itself.
    Recorder,
    /// All other processes, and interrupts that came while a CPU was idle.
    Other,
    /// The idle CPU.
    Idle,
}

stored_as_index!(Owner);

impl Owner {
    /// All of them, in the order of their numbers in the file.
    pub const ALL: [Owner; 4] = [Owner::Server, Owner::Recorder, Owner::Other, Owner::Idle];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Owner::Server => "server",
            Owner::Recorder => "recorder",
            Owner::Other => "others",
            Owner::Idle => "idle",
        }
    }
}

/// A call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stack {
    /// Numbers of frames, innermost first: the procedure that ran, then its callers. Kernel frames
    /// come before the user frames that called them.
    pub frames: Vec<u32>,
    /// Whether the outermost frame is the thread's first procedure.
    pub whole: bool,
}

/// The samples of one stack in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleRow {
    /// The interval's number.
    pub interval: u64,
    /// Whose CPU time.
    pub owner: Owner,
    /// The stack's number.
    pub stack: u32,
    /// Number of samples.
    pub samples: u32,
    /// CPU time that they represent, ns.
    pub ns: i64,
}

/// How the profile was made, and what is missing from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProfileInfo {
    /// The sampling event: "cpu-clock", "cycles".
    pub event: String,
    /// Samples per second on each CPU.
    pub hz: u32,
    /// Samples in the trial.
    pub samples: u64,
    /// Samples that the kernel dropped for lack of buffer space.
    pub lost: u64,
    /// Times the kernel throttled the sampling because it took too long.
    pub throttled: u64,
    /// Samples of the server.
    pub server_samples: u64,
    /// The server's samples with user frames: taken in user mode, or in the kernel on behalf of
    /// user mode.
    pub user_samples: u64,
    /// The part of `user_samples` that was unwound to the thread's first procedure.
    pub unwound_whole: u64,
    /// How user frames were found: "eh_frame over 16384 bytes of stack", "frame pointers".
    pub unwinder: String,
}

/// The profile of a trial. A number of a frame or a stack is an index into these lists.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Profile {
    pub(crate) frames: Vec<Frame>,
    pub(crate) stacks: Vec<Stack>,
    pub(crate) samples: Vec<SampleRow>,
    pub(crate) info: Option<ProfileInfo>,
}

/// The damage that is reported if a row refers to a missing frame or stack.
pub(crate) const DANGLING: &str = "its profile refers to a frame or stack that is not in the file";

impl Table for (u32, Frame) {
    const NAME: &'static str = "frame";
    const COLUMNS: &'static str = "id, symbol, module, mode";
    const ROWS: &'static str = "ORDER BY id";

    fn write(&self, insert: &mut Statement<'_>) -> rusqlite::Result<usize> {
        insert.execute(params![self.0, self.1.symbol, self.1.module, self.1.mode])
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<(u32, Frame)> {
        let frame = Frame { symbol: row.get(1)?, module: row.get(2)?, mode: row.get(3)? };
        Ok((row.get(0)?, frame))
    }
}

impl Table for (u32, Stack) {
    const NAME: &'static str = "stack";
    const COLUMNS: &'static str = "id, frames, whole";
    const ROWS: &'static str = "ORDER BY id";

    fn write(&self, insert: &mut Statement<'_>) -> rusqlite::Result<usize> {
        insert.execute(params![self.0, encode(&self.1.frames), self.1.whole])
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<(u32, Stack)> {
        let frames = decode(row.get_ref(1)?.as_blob()?).ok_or(FromSqlError::InvalidType)?;
        Ok((row.get(0)?, Stack { frames, whole: row.get(2)? }))
    }
}

impl Table for SampleRow {
    const NAME: &'static str = "sample";
    const COLUMNS: &'static str = "idx, owner, stack, samples, ns";
    const ROWS: &'static str = "WHERE idx >= ? AND idx < ? ORDER BY idx, owner, stack";
    const CONFLICT: &'static str = "ON CONFLICT (idx, owner, stack) DO UPDATE
        SET samples = samples + excluded.samples, ns = ns + excluded.ns";

    columns!(interval, owner, stack, samples, ns);
}

/// Reads the whole profile; an empty one if the trial has none.
pub(crate) fn read(connection: &Connection, place: &Place<'_>) -> Result<Profile, Error> {
    let frames = dense::<Frame>(table::read(connection, place, &WHOLE)?);
    let stacks = dense::<Stack>(table::read(connection, place, &WHOLE)?);
    let samples: Vec<SampleRow> = table::read(connection, place, &WHOLE)?;
    let (Some(frames), Some(stacks)) = (frames, stacks) else {
        return Err(place.corrupt(DANGLING));
    };
    let mut used_frames = stacks.iter().flat_map(|stack| &stack.frames);
    if used_frames.any(|&frame| frame as usize >= frames.len())
        || samples.iter().any(|row| row.stack as usize >= stacks.len())
    {
        return Err(place.corrupt(DANGLING));
    }
    Ok(Profile { frames, stacks, samples, info: read_info(connection, place)? })
}

/// The items of a list whose numbers are 0, 1, 2 and so on.
fn dense<T>(rows: Vec<(u32, T)>) -> Option<Vec<T>> {
    rows.into_iter().zip(0..).map(|((id, item), at)| (id == at).then_some(item)).collect()
}

/// Reads the profile of a span, with only the frames and stacks that its samples or
/// `references` use. They are renumbered, in the samples and in `references`.
pub(crate) fn read_span<'a>(
    connection: &Connection,
    place: &Place<'_>,
    span: &Span,
    mut references: impl Iterator<Item = &'a mut u32>,
) -> Result<Profile, Error> {
    let mut samples: Vec<SampleRow> = table::read(connection, place, span)?;
    let mut renumbering = Renumbering::new(connection);
    let mut renumber = |stack: &mut u32| -> Result<(), Error> {
        let found = renumbering.stack(*stack).map_err(|error| place.sql(error))?;
        *stack = found.ok_or_else(|| place.corrupt(DANGLING))?;
        Ok(())
    };
    samples.iter_mut().try_for_each(|row| renumber(&mut row.stack))?;
    references.try_for_each(&mut renumber)?;
    let Renumbering { frames, stacks, .. } = renumbering;
    Ok(Profile { frames, stacks, samples, info: read_info(connection, place)? })
}

/// The frames and stacks met so far, and their new numbers by their numbers in the file.
struct Renumbering<'a> {
    connection: &'a Connection,
    new_stacks: HashMap<u32, u32>,
    new_frames: HashMap<u32, u32>,
    stacks: Vec<Stack>,
    frames: Vec<Frame>,
}

impl Renumbering<'_> {
    fn new(connection: &Connection) -> Renumbering<'_> {
        Renumbering {
            connection,
            new_stacks: HashMap::new(),
            new_frames: HashMap::new(),
            stacks: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// The new number of a stack; `None` if it or one of its frames is not in the file.
    fn stack(&mut self, old: u32) -> rusqlite::Result<Option<u32>> {
        if let Some(&new) = self.new_stacks.get(&old) {
            return Ok(Some(new));
        }
        let Some(mut stack): Option<Stack> = self.by_id(old)? else { return Ok(None) };
        for frame in &mut stack.frames {
            let Some(new) = self.frame(*frame)? else { return Ok(None) };
            *frame = new;
        }
        Ok(Some(add(stack, old, &mut self.stacks, &mut self.new_stacks)))
    }

    fn frame(&mut self, old: u32) -> rusqlite::Result<Option<u32>> {
        if let Some(&new) = self.new_frames.get(&old) {
            return Ok(Some(new));
        }
        let Some(frame) = self.by_id(old)? else { return Ok(None) };
        Ok(Some(add(frame, old, &mut self.frames, &mut self.new_frames)))
    }

    fn by_id<T>(&self, id: u32) -> rusqlite::Result<Option<T>>
    where
        (u32, T): Table,
    {
        let (columns, name) = (<(u32, T)>::COLUMNS, <(u32, T)>::NAME);
        let query = format!("SELECT {columns} FROM {name} WHERE id = ?");
        let mut select = self.connection.prepare_cached(&query)?;
        select.query_row([id], |row| Ok(<(u32, T)>::read(row)?.1)).optional()
    }
}

fn add<T>(item: T, old: u32, items: &mut Vec<T>, numbers: &mut HashMap<u32, u32>) -> u32 {
    let new = u32::try_from(items.len()).unwrap_or(u32::MAX);
    items.push(item);
    numbers.insert(old, new);
    new
}

fn read_info(connection: &Connection, place: &Place<'_>) -> Result<Option<ProfileInfo>, Error> {
    let text = meta::get(connection, meta::PROFILE).map_err(|error| place.sql(error))?;
    text.map(|text| serde_json::from_str(&text))
        .transpose()
        .map_err(|error| place.corrupt(format!("how its profile was made: {error}")))
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
        fn frame_numbers_round_trip(frames in proptest::collection::vec(any::<u32>(), 0..40)) {
            prop_assert_eq!(decode(&encode(&frames)), Some(frames));
        }

        #[test]
        fn decoding_noise_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }
    }
}
