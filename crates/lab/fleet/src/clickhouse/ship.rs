//! Sending trials: finished ones as a whole, and one that is being recorded as it grows.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use trial::{Interval, Trial};

use super::client::{Client, Failed, INSERT_TIMEOUT};
use super::tables::{self, Block, Encoder};
use crate::Error;
use crate::home::{Run, WINDOW_S};
use crate::windows::{run, window_of};

/// The first pause after a failure, and the longest.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// A recording that is behind is sent in parts of this many intervals, so that memory is bounded.
const PART_INTERVALS: usize = 600;

/// A window that has more intervals than this is sent without the first of them while the trial is
/// recorded.
const WINDOW_INTERVALS_MAX: u64 = 30_000;

/// In the version of the rows of a complete trial, which replace those of its parts.
const COMPLETE: u64 = 1 << 63;

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
    /// From the first failure of a request.
    pub lasts: Duration,
    /// All requests end by then.
    pub until: Option<Instant>,
    /// Ends the work when it is set.
    pub stop: &'a AtomicBool,
}

impl Client {
    /// Fails if there is no ClickHouse, or if it cannot be used.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub fn reach(&self, patience: Patience<'_>) -> Result<(), Error> {
        let reached = patiently(patience, |_| self.check());
        reached.map_err(|failed| self.error(failed))
    }

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
        let complete = if trial.complete() { COMPLETE } else { 0 };
        let encoder = Encoder::new(trial, &run, complete | number_of_next(trial));
        let mut sink = |block: Block| {
            patiently(patience, |timeout| self.insert_block(&block, timeout))?;
            shipped.add(&block);
            progress(shipped);
            Ok(())
        };
        encoder
            .raw(tables::RAW, &mut HashSet::new(), &mut sink)
            .and_then(|()| encoder.sums(|_| true, &mut sink))
            .and_then(|()| encoder.run(&mut sink))
            .map_err(|failed| self.error(failed))?;
        Ok(shipped)
    }

    fn insert_block(&self, block: &Block, timeout: Duration) -> Result<(), Failed> {
        self.insert(&tables::insert_sql(block.table), &block.body, timeout)
    }
}

/// Makes a request until it succeeds or patience is at its end. It is called with its time-out.
fn patiently(
    patience: Patience<'_>,
    request: impl Fn(Duration) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let begun = Instant::now();
    let mut pause = PAUSE_MIN;
    loop {
        let until = patience.until.map(|until| until.saturating_duration_since(Instant::now()));
        if patience.stop.load(Ordering::Relaxed) {
            return Err(stopped());
        }
        if until.is_some_and(|until| until.is_zero()) {
            return Err(Failed { what: "no answer in time".to_owned(), passing: true });
        }
        let timeout = until.map_or(INSERT_TIMEOUT, |until| until.min(INSERT_TIMEOUT));
        let failed = match request(timeout) {
            Ok(()) => return Ok(()),
            Err(failed) => failed,
        };
        let over =
            begun.elapsed() + pause > patience.lasts || until.is_some_and(|until| until < pause);
        if !failed.passing || over {
            return Err(failed);
        }
        slept(pause, patience.stop);
        pause = (2 * pause).min(PAUSE_MAX);
    }
}

fn stopped() -> Failed {
    let what = "stopped; ship the trial again to send the remainder".to_owned();
    Failed { what, passing: false }
}

/// One more than the number of the last interval. It grows with the content of a trial, and does
/// not depend on a clock.
fn number_of_next(trial: &Trial) -> u64 {
    trial.intervals().last().map_or(0, |last| last.index + 1)
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
/// late. Requests that are added even later are sent by [`Client::ship`] at the end. So are the
/// windows that a clock came back to, and the resources of the whole trial: until then each window
/// has the resources that its own intervals show.
#[derive(Debug)]
pub struct Follower {
    client: Client,
    path: PathBuf,
    /// The next interval to send.
    next: u64,
    /// The first interval of the oldest window that was not sent.
    window: Option<(i64, u64)>,
    /// Windows that begin earlier were sent.
    sent_before_s: i64,
    known: HashSet<i64>,
}

impl Follower {
    /// Follows the trial with this name, which may be created later.
    pub fn new(client: Client, path: &Path) -> Follower {
        let (path, known) = (path.to_owned(), HashSet::new());
        Follower { client, path, next: 0, window: None, sent_before_s: i64::MIN, known }
    }

    /// The intervals before this one have been acknowledged, with the sums of their windows.
    pub fn acknowledged(&self) -> u64 {
        self.window.map_or(0, |(_, first)| first)
    }

    /// Sends what has been added to the trial, at most a part, and returns whether there may be
    /// more. Nothing is waited for. `stop` ends it after the current request.
    ///
    /// # Errors
    /// [`Error`]: the same part is sent again by the next call.
    pub fn step(&mut self, stop: &AtomicBool) -> Result<bool, Error> {
        let part = self.part(self.next, PART_INTERVALS)?;
        let (Some(first), Some(last)) = (part.intervals().first(), part.intervals().last()) else {
            return Ok(false);
        };
        let next = last.index + 1;
        let (oldest, from) = *self.window.get_or_insert((window_of(first.start_ns), first.index));
        let from = from.max(next.saturating_sub(WINDOW_INTERVALS_MAX));
        let current = window_of(last.start_ns);
        let run = Run { intervals: next, ..run(&part) };
        self.send(&part, &run, stop, |encoder, known, sink| encoder.raw(tables::RAW, known, sink))?;
        // A clock that was set back ends a window, too.
        if current != oldest {
            let windows = self.part(from, (next - from) as usize)?;
            let sent_before_s = self.sent_before_s;
            let over = |start_s| start_s >= sent_before_s && start_s != current;
            self.send(&windows, &run, stop, |encoder, known, sink| {
                encoder.raw(tables::AMENDED, known, sink)?;
                encoder.sums(over, sink)?;
                encoder.run(sink)
            })?;
            self.sent_before_s = self.sent_before_s.max(current).max(oldest + WINDOW_S);
            let intervals = windows.intervals().iter();
            let of_current = |interval: &&Interval| window_of(interval.start_ns) == current;
            let first = intervals.rev().take_while(of_current).last();
            self.window = first.map(|first| (current, first.index));
        } else if self.next == 0 {
            self.send(&part, &run, stop, |encoder, _, sink| encoder.run(sink))?;
        }
        self.next = next;
        if self.known.len() > KNOWN_STACKS_MAX {
            self.known.clear();
        }
        Ok(part.intervals().len() >= PART_INTERVALS)
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
        stop: &AtomicBool,
        encode: impl FnOnce(
            &Encoder<'_>,
            &mut HashSet<i64>,
            &mut dyn FnMut(Block) -> Result<(), Failed>,
        ) -> Result<(), Failed>,
    ) -> Result<(), Error> {
        let client = &self.client;
        let encoder = Encoder::new(part, run, run.intervals);
        // Stacks count as known only when their rows have been sent.
        let mut known = std::mem::take(&mut self.known);
        let mut sink = |block: Block| match stop.load(Ordering::Relaxed) {
            true => Err(stopped()),
            false => client.insert_block(&block, INSERT_TIMEOUT),
        };
        encode(&encoder, &mut known, &mut sink).map_err(|failed| client.error(failed))?;
        self.known = known;
        Ok(())
    }
}
