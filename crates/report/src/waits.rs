//! Waits for locks: the figures and their tables.
//!
//! What is shown is waiting, not holding, and every table says so.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;
use trial::Trial;
use trial::profile::{Frame, Owner};
use trial::waits::{LockKind, WaitRow, Word};

use crate::format::{fixed, latency, thousands};
use crate::summary::Table;

/// Places that are shown; the rest are in the totals by kind.
const PLACES_SHOWN: usize = 20;

/// Procedures of a place that are shown, from the one that asked for the lock on.
const PROCEDURES_SHOWN: usize = 4;

/// Waits for locks, where they were sampled.
#[derive(Clone, Debug, Serialize)]
pub struct Waits {
    /// Time in which they were looked for, seconds.
    pub seconds: f64,
    /// Waits in the trial.
    pub waits: u64,
    /// Time that CPUs spent spinning for locks of the kernel, percent of the whole machine's.
    pub spinning_percent: f64,
    /// By kind of lock and by who waited, the longest together first.
    pub kinds: Vec<WaitsOfKind>,
    /// The places with the longest waits, kernel and futexes alike.
    pub places: Vec<WaitsAtPlace>,
    /// What was not seen, in a sentence.
    pub lost: String,
}

/// The waits of a kind of lock.
#[derive(Clone, Debug, Serialize)]
pub struct WaitsOfKind {
    /// The kind.
    pub kind: LockKind,
    /// Who waited.
    pub owner: Owner,
    /// How often and how long.
    #[serde(flatten)]
    pub figures: WaitFigures,
}

/// The waits at one place in the code, for one word if it is a futex.
#[derive(Clone, Debug, Serialize)]
pub struct WaitsAtPlace {
    /// The kind of lock.
    pub kind: LockKind,
    /// Who waited.
    pub owner: Owner,
    /// The procedures, from the one that asked for the lock on outwards; none where there were
    /// more places in an interval than it keeps.
    pub place: Vec<String>,
    /// Of a futex, which.
    pub word: Option<Word>,
    /// How often and how long.
    #[serde(flatten)]
    pub figures: WaitFigures,
}

/// How often, and how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WaitFigures {
    /// Waits.
    pub waits: u64,
    /// Together, microseconds.
    pub total_us: f64,
    /// On the average, microseconds.
    pub mean_us: f64,
    /// The longest, microseconds.
    pub max_us: f64,
    /// Of the total, the time that a CPU spun, microseconds.
    pub spun_us: f64,
    /// Of the waits, those whose time was over.
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

/// The waits of a trial; `None` if nobody looked for any.
pub(crate) fn waits(trial: &Trial) -> Option<Waits> {
    let looked = |capability: &trial::Capability| capability.name == "locks";
    let sampled = trial.manifest().capabilities.iter().any(|c| looked(c) && c.supported);
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
            place: place(trial, stack),
            word,
            figures,
        })
        .collect();
    places.sort_by_key(|row| longest(&row.figures));
    places.truncate(PLACES_SHOWN);
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

/// What a sampler lost, by the beginning of its kinds of loss.
pub(crate) fn lost(trial: &Trial, beginning: &str) -> String {
    let losses = trial.losses().iter().filter(|loss| loss.count > 0);
    let ours: Vec<String> = losses
        .filter_map(|loss| Some((loss.kind.strip_prefix(beginning)?, loss.count)))
        .map(|(kind, count)| format!("{} {kind}", thousands(count as f64)))
        .collect();
    if ours.is_empty() { "nothing lost".to_string() } else { format!("lost: {}", ours.join(", ")) }
}

fn place(trial: &Trial, stack: u32) -> Vec<String> {
    let Some(stack) = trial.stacks().get(stack as usize) else { return Vec::new() };
    let frames = stack.frames.iter().filter_map(|&frame| trial.frames().get(frame as usize));
    frames.map(procedure).collect()
}

/// A procedure's name; of code without a name, its module and offset.
fn procedure(frame: &Frame) -> String {
    match &frame.symbol {
        None => frame.module.clone(),
        Some(offset) if offset.starts_with('+') => format!("{}{offset}", frame.module),
        Some(name) => name.clone(),
    }
}

/// The tables: by kind, and by place.
pub(crate) fn tables(waits: &Waits) -> Vec<Table> {
    let note = format!(
        "waiting, not holding; n = {} waits in {} s; a wait counts where it ends; CPUs spun {} % \
         of their time for locks of the kernel; a futex is a lock or work to be done; {}",
        thousands(waits.waits as f64),
        fixed(waits.seconds, 1),
        fixed(waits.spinning_percent, 3),
        waits.lost
    );
    let mut kinds = Table::new(
        "Waits for locks",
        &["<lock", "<who", "waits", "together", "mean", "longest", "spun, %"],
        &note,
    );
    for row in &waits.kinds {
        let figures = &row.figures;
        let mut cells = cells(row.kind, row.owner, figures);
        cells.push(fixed(100.0 * figures.spun_us / figures.total_us, 1));
        kinds.rows.push(cells);
    }
    let mut places = Table::new(
        "Where they waited",
        &["<lock", "<who", "waits", "together", "mean", "longest", "~place, and its callers"],
        "",
    );
    for row in &waits.places {
        let mut cells = cells(row.kind, row.owner, &row.figures);
        cells.push(place_cell(row));
        places.rows.push(cells);
    }
    vec![kinds, places]
}

fn cells(kind: LockKind, owner: Owner, figures: &WaitFigures) -> Vec<String> {
    let mut cells = vec![kind.label().to_string(), who(owner).to_string()];
    cells.push(thousands(figures.waits as f64));
    cells.extend([figures.total_us, figures.mean_us, figures.max_us].map(latency));
    cells
}

fn place_cell(row: &WaitsAtPlace) -> String {
    let shown: Vec<&str> = row.place.iter().take(PROCEDURES_SHOWN).map(String::as_str).collect();
    let place = match (shown.is_empty(), row.kind) {
        (false, _) => shown.join(" < "),
        (true, LockKind::Futex) => "unknown".to_string(),
        (true, _) => "elsewhere".to_string(),
    };
    match row.word {
        Some(word) => format!("{place}; word {:#x} of process {}", word.address, word.pid),
        None => place,
    }
}

fn who(owner: Owner) -> &'static str {
    match owner {
        Owner::Server => "server",
        Owner::Recorder => "recorder",
        Owner::Other => "others",
        Owner::Idle => "idle",
    }
}
