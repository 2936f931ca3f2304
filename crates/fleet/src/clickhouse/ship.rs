//! Sending trials: finished ones as a whole, and one that is being recorded as it grows.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use trial::Trial;

use super::client::{Client, Failed};
use super::tables::{self, Block, Encoder};
use crate::Error;
use crate::home::Run;
use crate::windows::{run, window_of};

/// The first pause after a failure, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A recording that is behind is sent in parts of this many intervals, so that memory is bounded.
const PART_INTERVALS: usize = 600;

/// Identities of stacks that are remembered as sent.
const KNOWN_STACKS_MAX: usize = 100_000;

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shipped {
    /// Rows of all tables.
    pub rows: u64,
    /// Their bytes before compression.
    pub bytes: u64,
}

impl Shipped {
    fn add(&mut self, block: &Block) {
        self.rows += block.rows;
        self.bytes += block.body.len() as u64;
    }
}

/// How long a failure that may pass is retried.
#[derive(Clone, Copy, Debug)]
pub struct Patience<'a> {
    /// From the first failure of a block.
    pub lasts: Duration,
    /// Ends the work when it is set.
    pub stop: &'a AtomicBool,
}

impl Client {
    /// Sends a whole trial. `progress` is called after each block.
    ///
    /// # Errors
    /// [`Error::Database`]. What was sent before stays there; sending it again changes nothing.
    pub fn ship(
        &self,
        trial: &Trial,
        patience: Patience<'_>,
        progress: &mut dyn FnMut(Shipped),
    ) -> Result<Shipped, Error> {
        let mut shipped = Shipped::default();
        let run = run(trial);
        let encoder = Encoder::new(trial, &run, now_ns());
        let mut sink = |block: Block| {
            self.insert_patiently(&block, patience)?;
            shipped.add(&block);
            progress(shipped);
            Ok(())
        };
        encoder
            .raw(tables::RAW, &mut HashSet::new(), &mut sink)
            .and_then(|()| encoder.sums(i64::MAX, &mut sink))
            .and_then(|()| encoder.run(&mut sink))
            .map_err(|failed| self.error(failed))?;
        Ok(shipped)
    }

    fn insert_patiently(&self, block: &Block, patience: Patience<'_>) -> Result<(), Failed> {
        let begun = Instant::now();
        let mut pause = PAUSE_MIN;
        loop {
            if patience.stop.load(Ordering::Relaxed) {
                return Err(Failed { what: "stopped".to_owned(), passing: false });
            }
            let failed = match self.insert(&tables::insert_sql(block.table), &block.body) {
                Ok(()) => return Ok(()),
                Err(failed) => failed,
            };
            let over = begun.elapsed() + pause > patience.lasts;
            if !failed.passing || over {
                return Err(failed);
            }
            slept(pause, patience.stop);
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }
}

/// Sleeps, and returns false if `stop` was set.
pub fn slept(pause: Duration, stop: &AtomicBool) -> bool {
    let until = Instant::now() + pause;
    while !stop.load(Ordering::Relaxed) {
        let rest = until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return true;
        }
        thread::sleep(rest.min(Duration::from_millis(50)));
    }
    false
}

/// Follows a trial that is being recorded, and sends its intervals as they are written.
///
/// The trial is the spool: what could not be sent is read from it again. When a window of 300 s is
/// over, its sums are sent, and its intervals again, with the requests that were added to them
/// late. Requests that are added even later are sent by [`Client::ship`] at the end.
#[derive(Debug)]
pub struct Follower {
    client: Client,
    path: PathBuf,
    /// The next interval to send.
    next: u64,
    /// The first interval of the oldest window that was not sent.
    window: Option<(i64, u64)>,
    known: HashSet<i64>,
}

impl Follower {
    /// Follows the trial with this name, which may be created later.
    pub fn new(client: Client, path: &Path) -> Follower {
        Follower { client, path: path.to_owned(), next: 0, window: None, known: HashSet::new() }
    }

    /// The intervals before this one have been acknowledged, with the sums of their windows.
    pub fn acknowledged(&self) -> u64 {
        self.window.map_or(0, |(_, first)| first)
    }

    /// Sends what has been added to the trial, at most a part, and returns whether there was
    /// anything. Nothing is waited for.
    ///
    /// # Errors
    /// [`Error`]: the same part is sent again by the next call.
    pub fn step(&mut self) -> Result<bool, Error> {
        let part = self.part(self.next, PART_INTERVALS)?;
        let (Some(first), Some(last)) = (part.intervals().first(), part.intervals().last()) else {
            return Ok(false);
        };
        let next = last.index + 1;
        let (oldest, from) = *self.window.get_or_insert((window_of(first.start_ns), first.index));
        let current = window_of(last.start_ns);
        let run = Run { intervals: next, ..run(&part) };
        self.send(&part, &run, |encoder, known, sink| encoder.raw(tables::RAW, known, sink))?;
        if current > oldest {
            let windows = self.part(from, (next - from) as usize)?;
            self.send(&windows, &run, |encoder, known, sink| {
                encoder.raw(tables::AMENDED, known, sink)?;
                encoder.sums(current, sink)?;
                encoder.run(sink)
            })?;
            let mut intervals = windows.intervals().iter();
            let first = intervals.find(|interval| window_of(interval.start_ns) == current);
            self.window = first.map(|first| (current, first.index));
        } else if self.next == 0 {
            self.send(&part, &run, |encoder, _, sink| encoder.run(sink))?;
        }
        self.next = next;
        if self.known.len() > KNOWN_STACKS_MAX {
            self.known.clear();
        }
        Ok(true)
    }

    fn part(&self, from: u64, intervals_max: usize) -> Result<Trial, Error> {
        Trial::part(&self.path, from, intervals_max).map_err(|error| Error::File {
            path: self.path.display().to_string(),
            what: error.to_string(),
        })
    }

    fn send(
        &mut self,
        part: &Trial,
        run: &Run,
        encode: impl FnOnce(
            &Encoder<'_>,
            &mut HashSet<i64>,
            &mut dyn FnMut(Block) -> Result<(), Failed>,
        ) -> Result<(), Failed>,
    ) -> Result<(), Error> {
        let client = &self.client;
        let encoder = Encoder::new(part, run, now_ns());
        // Stacks count as known only when their rows have been sent.
        let mut known = std::mem::take(&mut self.known);
        let mut sink = |block: Block| client.insert(&tables::insert_sql(block.table), &block.body);
        encode(&encoder, &mut known, &mut sink).map_err(|failed| client.error(failed))?;
        self.known = known;
        Ok(())
    }
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
