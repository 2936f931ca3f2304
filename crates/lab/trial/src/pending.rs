//! Rows that the [`Writer`](crate::Writer) holds until the next interval, in whose transaction they
//! are written. They stay here until that transaction has committed.
//!
//! Frames and stacks get their numbers before they are written, so that rows can refer to them.

use std::collections::HashMap;
use std::hash::Hash;

use rusqlite::Connection;

use crate::answers::{AnswerRow, UpstreamRow};
use crate::classes::ClassRow;
use crate::counters::{CountedRow, CounterRow};
use crate::files::FileRow;
use crate::meta;
use crate::profile::{Frame, ProfileInfo, SampleRow, Stack};
use crate::resources::{BoundThread, DeviceUse};
use crate::stretches::{StretchRow, TurnRow};
use crate::table;
use crate::waits::WaitRow;

/// All pending rows, by table.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Frames with their numbers; `None` until those already in the file have been read.
    pub(crate) frames: Option<Numbered<Frame>>,
    /// Stacks with their numbers, read together with the frames.
    pub(crate) stacks: Numbered<Stack>,
    pub(crate) samples: Vec<SampleRow>,
    pub(crate) profile_info: Option<ProfileInfo>,
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

impl Pending {
    /// Writes all rows; of the samples, those of intervals up to this one.
    pub(crate) fn write(&self, connection: &Connection, up_to: u64) -> rusqlite::Result<()> {
        let no_frames = Vec::new();
        table::insert(self.frames.as_ref().map_or(&no_frames, |frames| &frames.new), connection)?;
        table::insert(&self.stacks.new, connection)?;
        let samples: Vec<SampleRow> =
            self.samples.iter().filter(|row| row.interval <= up_to).copied().collect();
        table::insert(&samples, connection)?;
        if let Some(info) = &self.profile_info {
            let value = serde_json::to_string(info).expect("it has only string keys");
            meta::set(connection, meta::PROFILE, &value)?;
        }
        table::insert(&self.waits, connection)?;
        table::insert(&self.files, connection)?;
        table::insert(&self.classes, connection)?;
        table::insert(&self.device_uses, connection)?;
        table::insert(&self.bound_threads, connection)?;
        table::insert(&self.counters, connection)?;
        table::insert(&self.counted, connection)?;
        table::insert(&self.turns, connection)?;
        table::insert(&self.stretches, connection)?;
        table::insert(&self.answers, connection)?;
        table::insert(&self.upstreams, connection)
    }

    /// Drops what [`write`](Pending::write) has written, once its transaction has committed.
    pub(crate) fn committed(&mut self, up_to: u64) {
        let mut pending = std::mem::take(self);
        pending.samples.retain(|row| row.interval > up_to);
        let frames = pending.frames.map(Numbered::without_new);
        let stacks = pending.stacks.without_new();
        *self = Pending { frames, stacks, samples: pending.samples, ..Pending::default() };
    }
}

/// Items numbered from 0, equal ones once; those that are not in the file yet are listed as new.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    numbers: HashMap<T, u32>,
    new: Vec<(u32, T)>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Numbered<T> {
        Numbered { numbers: HashMap::new(), new: Vec::new() }
    }
}

impl<T: Hash + Eq + Clone> Numbered<T> {
    /// The items that are in the file, in the order of their numbers.
    pub(crate) fn from_file(items: Vec<T>) -> Numbered<T> {
        Numbered { numbers: items.into_iter().zip(0..).collect(), new: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(crate) fn get(&self, item: &T) -> Option<u32> {
        self.numbers.get(item).copied()
    }

    /// The number of an item, a new one if the item is new.
    pub(crate) fn number(&mut self, item: &T) -> u32 {
        if let Some(number) = self.get(item) {
            return number;
        }
        let number = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
        self.numbers.insert(item.clone(), number);
        self.new.push((number, item.clone()));
        number
    }

    fn without_new(self) -> Numbered<T> {
        Numbered { new: Vec::new(), ..self }
    }
}
