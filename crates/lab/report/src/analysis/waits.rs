//! Lock waits. They show how long threads waited, not how long locks were held.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;
use trial::Trial;
use trial::profile::{Frame, Owner};
use trial::waits::{LockKind, WaitRow, Word};

use crate::format::thousands;

/// Stacks that are listed; all waits are in the totals by kind.
const STACKS_LISTED: usize = 20;

/// Lock waits.
#[derive(Clone, Debug, Serialize)]
pub struct Waits {
    /// Length of the recording, seconds.
    pub seconds: f64,
    /// Waits in the trial.
    pub waits: u64,
    /// Time that CPUs spent spinning for kernel locks, percent of the whole machine's.
    pub spinning_percent: f64,
    /// By kind of lock and owner, the longest total first.
    pub kinds: Vec<WaitsOfKind>,
    /// By stack, the longest total first, kernel locks and futexes together.
    pub places: Vec<WaitsAtPlace>,
    /// What was lost, in one sentence.
    pub lost: String,
}

/// The waits for one kind of lock.
#[derive(Clone, Debug, Serialize)]
pub struct WaitsOfKind {
    /// The kind.
    pub kind: LockKind,
    /// The owner of the waiting threads.
    pub owner: Owner,
    /// Number and times.
    #[serde(flatten)]
    pub figures: WaitFigures,
}

/// The waits with one stack, and for one futex.
#[derive(Clone, Debug, Serialize)]
pub struct WaitsAtPlace {
    /// The kind of lock.
    pub kind: LockKind,
    /// The owner of the waiting threads.
    pub owner: Owner,
    /// The procedures, from the one that requested the lock outwards. Empty for waits beyond the
    /// recorder's limit of stacks per interval.
    pub place: Vec<String>,
    /// The futex.
    pub word: Option<Word>,
    /// Number and times.
    #[serde(flatten)]
    pub figures: WaitFigures,
}

/// Number of waits and their times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WaitFigures {
    /// Number of waits.
    pub waits: u64,
    /// Total, microseconds.
    pub total_us: f64,
    /// Mean, microseconds.
    pub mean_us: f64,
    /// The longest, microseconds.
    pub max_us: f64,
    /// The part of the total that was spent spinning, microseconds.
    pub spun_us: f64,
    /// The number of waits that ended by a timeout.
    pub timed_out: u64,
}

impl WaitFigures {
    fn add(&mut self, row: &WaitRow) {
        self.waits += row.waits;
        self.total_us += row.total_ns as f64 / 1e3;
        self.max_us = self.max_us.max(row.max_ns as f64 / 1e3);
        self.spun_us += row.spun_ns as f64 / 1e3;
        self.timed_out += row.timed_out;
        self.mean_us = self.total_us / self.waits.max(1) as f64;
    }
}

/// The lock waits of a trial; `None` if they were not sampled.
pub(crate) fn waits(trial: &Trial) -> Option<Waits> {
    let is_sampler = |capability: &trial::Capability| capability.name == "locks";
    let sampled = trial.manifest().capabilities.iter().any(|c| is_sampler(c) && c.supported);
    let rows = trial.waits();
    if rows.is_empty() && !sampled {
        return None;
    }
    let mut kinds = BTreeMap::<_, WaitFigures>::new();
    let mut places = BTreeMap::<_, WaitFigures>::new();
    for row in rows {
        kinds.entry((row.kind, row.owner)).or_default().add(row);
        places.entry((row.kind, row.owner, row.stack, row.word)).or_default().add(row);
    }
    let longest = |figures: &WaitFigures| Reverse((figures.total_us * 1e3) as u64);
    let mut kinds: Vec<WaitsOfKind> = kinds
        .into_iter()
        .map(|((kind, owner), figures)| WaitsOfKind { kind, owner, figures })
        .collect();
    kinds.sort_by_key(|row| longest(&row.figures));
    let mut places: Vec<WaitsAtPlace> = places
        .into_iter()
        .map(|((kind, owner, stack, word), figures)| WaitsAtPlace {
            kind,
            owner,
            place: trial.stack_frames(stack).map(procedure).collect(),
            word,
            figures,
        })
        .collect();
    places.sort_by_key(|row| longest(&row.figures));
    places.truncate(STACKS_LISTED);
    let intervals = trial.intervals();
    let seconds = intervals.iter().map(|i| i.length_ns).sum::<i64>() as f64 / 1e9;
    let cpus = f64::from(trial.manifest().host.cpus.max(1));
    let spun_us: f64 = kinds.iter().map(|row| row.figures.spun_us).sum();
    Some(Waits {
        seconds,
        waits: kinds.iter().map(|row| row.figures.waits).sum(),
        spinning_percent: 100.0 * spun_us / 1e6 / (seconds * cpus).max(f64::MIN_POSITIVE),
        kinds,
        places,
        lost: lost(trial, "locks: "),
    })
}

/// What a sampler lost, in one sentence. Its kinds of loss begin with `prefix`.
pub(crate) fn lost(trial: &Trial, prefix: &str) -> String {
    let losses = trial.losses().iter().filter(|loss| loss.count > 0);
    let listed: Vec<String> = losses
        .filter_map(|loss| Some((loss.kind.strip_prefix(prefix)?, loss.count)))
        .map(|(kind, count)| format!("{} {kind}", thousands(count as f64)))
        .collect();
    if listed.is_empty() { "nothing lost".into() } else { format!("lost: {}", listed.join(", ")) }
}

/// A procedure's name, or its module and offset if the name is unknown.
fn procedure(frame: &Frame) -> String {
    match &frame.symbol {
        None => frame.module.clone(),
        Some(offset) if offset.starts_with('+') => format!("{}{offset}", frame.module),
        Some(name) => name.clone(),
    }
}
