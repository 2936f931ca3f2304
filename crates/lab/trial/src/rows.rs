//! The writer's methods that add rows of the tables beside the intervals: profile, lock waits,
//! files, classes, devices, counters, stretches.
//!
//! Rows are written with the next interval that is appended, in its transaction, or at
//! [`finish`](Writer::finish): a killed recorder leaves no interval with half of its rows, and no
//! rows without their interval.

use crate::answers::{AnswerRow, UpstreamRow};
use crate::classes::ClassRow;
use crate::counters::{CountedRow, CounterRow};
use crate::error::Error;
use crate::files::FileRow;
use crate::pending::Numbered;
use crate::profile::{self, Frame, ProfileInfo, STACK_FRAMES_MAX, SampleRow, Stack};
use crate::resources::{BoundThread, DeviceUse};
use crate::stretches::{StretchRow, TurnRow};
use crate::waits::WaitRow;
use crate::writer::Writer;

impl Writer {
    /// The number of a frame. Equal frames have the same number.
    pub fn frame(&mut self, frame: &Frame) -> Result<u32, Error> {
        Ok(self.numbered()?.0.number(frame))
    }

    /// The number of a stack. Equal stacks have the same number. Errors: [`Error::Refused`] if it
    /// has an unknown frame number, or more than [`STACK_FRAMES_MAX`] frames.
    pub fn stack(&mut self, stack: &Stack) -> Result<u32, Error> {
        let (frames, stacks) = self.numbered()?;
        if let Some(number) = stacks.get(stack) {
            return Ok(number);
        }
        let known = frames.len();
        if stack.frames.len() > STACK_FRAMES_MAX {
            return Err(self.place("writing a stack").refused("it is too deep"));
        }
        if stack.frames.iter().any(|&frame| frame as usize >= known) {
            return Err(self.place("writing a stack").refused("it has an unknown frame"));
        }
        Ok(stacks.number(stack))
    }

    /// Adds samples. They are written with their own interval, or with the next one if theirs has
    /// been appended already. Rows of the same interval, owner and stack add up. Errors:
    /// [`Error::Refused`] if one has an unknown stack.
    pub fn samples(&mut self, rows: &[SampleRow]) -> Result<(), Error> {
        self.check_stacks("writing samples", rows.iter().map(|row| row.stack))?;
        self.pending.samples.extend_from_slice(rows);
        Ok(())
    }

    /// Sets how the profile was made. A later call replaces an earlier one.
    pub fn profile_info(&mut self, info: &ProfileInfo) -> Result<(), Error> {
        self.numbered()?;
        self.pending.profile_info = Some(info.clone());
        Ok(())
    }

    /// Adds lock waits. Errors: [`Error::Refused`] if one has an unknown stack.
    pub fn waits(&mut self, rows: &[WaitRow]) -> Result<(), Error> {
        self.check_stacks("writing waits", rows.iter().map(|row| row.stack))?;
        self.pending.waits.extend_from_slice(rows);
        Ok(())
    }

    /// Replaces the rows of these directions and sizes.
    pub fn files(&mut self, rows: Vec<FileRow>) {
        self.pending.files.extend(rows);
    }

    /// Adds requests by class. They are also written with the next late requests
    /// ([`amend`](Writer::amend)). Errors: [`Error::Refused`] if a count is not a finite number.
    pub fn classes(&mut self, rows: &[ClassRow]) -> Result<(), Error> {
        if rows.iter().any(|row| !(row.requests.is_finite() && row.bytes.is_finite())) {
            return Err(self.place("writing classes").refused("requests is not a number"));
        }
        self.pending.classes.extend_from_slice(rows);
        Ok(())
    }

    /// Adds device activity. A second row of the same interval and device adds to the first.
    pub fn device_uses(&mut self, uses: &[DeviceUse]) {
        self.pending.device_uses.extend_from_slice(uses);
    }

    /// Sets the CPUs of pinned threads. A thread's new CPU replaces its old one.
    pub fn bound_threads(&mut self, threads: &[BoundThread]) {
        self.pending.bound_threads.extend_from_slice(threads);
    }

    /// Adds counts. Errors: [`Error::Refused`] if a share is not a finite number.
    pub fn counters(&mut self, rows: &[CounterRow]) -> Result<(), Error> {
        if rows.iter().any(|row| !row.counted.is_finite()) {
            return Err(self.place("writing counters").refused("a share is not a number"));
        }
        self.pending.counters.extend_from_slice(rows);
        Ok(())
    }

    /// Adds counts by procedure. Errors: [`Error::Refused`] if one has an unknown stack.
    pub fn counted(&mut self, rows: &[CountedRow]) -> Result<(), Error> {
        self.check_stacks("writing counters", rows.iter().map(|row| row.stack))?;
        self.pending.counted.extend_from_slice(rows);
        Ok(())
    }

    /// Adds the turns of an interval and its stretches.
    pub fn stretches(&mut self, turns: TurnRow, rows: &[StretchRow]) {
        debug_assert!(rows.iter().all(|row| row.interval == turns.interval));
        self.pending.turns.push(turns);
        self.pending.stretches.extend_from_slice(rows);
    }

    /// Adds how the server's threads answered in an interval, and for whom they waited.
    pub fn answers(&mut self, answers: AnswerRow, upstreams: &[UpstreamRow]) {
        debug_assert!(upstreams.iter().all(|row| row.interval == answers.interval));
        self.pending.answers.push(answers);
        self.pending.upstreams.extend_from_slice(upstreams);
    }

    fn check_stacks(
        &mut self,
        doing: &str,
        mut stacks: impl Iterator<Item = u32>,
    ) -> Result<(), Error> {
        let known = self.numbered()?.1.len();
        if stacks.any(|stack| stack as usize >= known) {
            return Err(self.place(doing).refused("one has an unknown stack"));
        }
        Ok(())
    }

    /// The numbers of frames and stacks. They continue those that are in the file.
    fn numbered(&mut self) -> Result<(&mut Numbered<Frame>, &mut Numbered<Stack>), Error> {
        if self.pending.frames.is_none() {
            let stored = profile::read(&self.connection, &self.place("reading its profile"))?;
            self.pending.frames = Some(Numbered::from_file(stored.frames));
            self.pending.stacks = Numbered::from_file(stored.stacks);
        }
        let frames = self.pending.frames.as_mut().expect("they were just read");
        Ok((frames, &mut self.pending.stacks))
    }
}
