//! Hardware performance counters: cycles, instructions and cache traffic of the server and of the
//! whole machine in each interval, and the procedures of the server in which counters overflowed.
//!
//! A counter that the machine lacks, or that failed, is `None` in every row, never zero.

use rusqlite::{Row, Statement, params};
use serde::{Deserialize, Serialize};

use crate::table::{Table, columns, stored_as_index};

/// The tables.
pub(crate) const CREATE: &str = "
CREATE TABLE IF NOT EXISTS counters (
    idx INTEGER NOT NULL, whose INTEGER NOT NULL, cycles INTEGER, instructions INTEGER,
    cache_references INTEGER, cache_misses INTEGER, counted REAL NOT NULL,
    PRIMARY KEY (idx, whose)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counted (
    idx INTEGER NOT NULL, kind INTEGER NOT NULL, stack INTEGER NOT NULL,
    samples INTEGER NOT NULL, count INTEGER NOT NULL,
    PRIMARY KEY (idx, kind, stack)
) WITHOUT ROWID;
";

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Processor cycles.
    Cycles,
    /// Instructions executed.
    Instructions,
    /// References to the last-level cache.
    CacheReferences,
    /// Last-level cache misses.
    CacheMisses,
}

stored_as_index!(Kind);

impl Kind {
    /// All counters, in the order of their numbers in the file.
    pub const ALL: [Kind; 4] =
        [Kind::Cycles, Kind::Instructions, Kind::CacheReferences, Kind::CacheMisses];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Cycles => "cycles",
            Kind::Instructions => "instructions",
            Kind::CacheReferences => "cache references",
            Kind::CacheMisses => "cache misses",
        }
    }
}

/// Whose work was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Whose {
    /// The observed processes.
    Server,
    /// All processes, on every CPU.
    Machine,
}

stored_as_index!(Whose);

impl Whose {
    /// Both, in the order of their numbers in the file.
    pub const ALL: [Whose; 2] = [Whose::Server, Whose::Machine];
}

/// The counts of one interval. `None`: not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Processor cycles.
    pub cycles: Option<u64>,
    /// Instructions executed.
    pub instructions: Option<u64>,
    /// References to the last-level cache.
    pub cache_references: Option<u64>,
    /// Last-level cache misses.
    pub cache_misses: Option<u64>,
}

/// The counts of the server or the machine in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CounterRow {
    /// The interval's number.
    pub interval: u64,
    /// Whose work was counted.
    pub whose: Whose,
    /// The counts.
    pub counts: Counts,
    /// Share of the interval in which the counters were running, 0 to 1. If there are more events
    /// than hardware counters, the kernel multiplexes them and the counts are scaled up.
    pub counted: f64,
}

impl Counts {
    /// The count of one counter.
    #[must_use]
    pub fn of(&self, kind: Kind) -> Option<u64> {
        match kind {
            Kind::Cycles => self.cycles,
            Kind::Instructions => self.instructions,
            Kind::CacheReferences => self.cache_references,
            Kind::CacheMisses => self.cache_misses,
        }
    }
}

/// Overflows of one counter in one interval, by stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedRow {
    /// The interval's number.
    pub interval: u64,
    /// Which counter.
    pub kind: Kind,
    /// The stack's number, as [`crate::Writer::stack`] returned it; its first frame is the
    /// procedure.
    pub stack: u32,
    /// Number of samples.
    pub samples: u32,
    /// Events that the samples represent. Not scaled up under multiplexing: shares are right, but
    /// the sum may be less than the interval's [`Counts`].
    pub count: u64,
}

impl Table for CounterRow {
    const NAME: &'static str = "counters";
    const COLUMNS: &'static str =
        "idx, whose, cycles, instructions, cache_references, cache_misses, counted";
    const ROWS: &'static str = "WHERE idx >= ? AND idx < ? ORDER BY idx, whose";

    fn write(&self, insert: &mut Statement<'_>) -> rusqlite::Result<usize> {
        let Counts { cycles, instructions, cache_references, cache_misses } = self.counts;
        insert.execute(params![
            self.interval,
            self.whose,
            cycles,
            instructions,
            cache_references,
            cache_misses,
            self.counted
        ])
    }

    fn read(row: &Row<'_>) -> rusqlite::Result<CounterRow> {
        let counts = Counts {
            cycles: row.get(2)?,
            instructions: row.get(3)?,
            cache_references: row.get(4)?,
            cache_misses: row.get(5)?,
        };
        Ok(CounterRow { interval: row.get(0)?, whose: row.get(1)?, counts, counted: row.get(6)? })
    }
}

impl Table for CountedRow {
    const NAME: &'static str = "counted";
    const COLUMNS: &'static str = "idx, kind, stack, samples, count";
    const ROWS: &'static str = "WHERE idx >= ? AND idx < ? ORDER BY idx, kind, stack";
    const CONFLICT: &'static str = "ON CONFLICT (idx, kind, stack) DO UPDATE
        SET samples = samples + excluded.samples, count = count + excluded.count";

    columns!(interval, kind, stack, samples, count);
}
