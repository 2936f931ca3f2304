//! The processor's own counters: what the server and the whole machine did in an interval, and in
//! which procedures of the server counters overflowed.
//!
//! A counter that the machine lacks, or that failed, is `None` in every row: never zero. Rows wait
//! in the [`Writer`] and are written with the next interval, in its transaction.

use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Place};
use crate::pending::Table;
use crate::writer::Writer;

/// The table.
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

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Cycles of the processor.
    Cycles,
    /// Instructions that were carried out.
    Instructions,
    /// References to the last level of the caches.
    CacheReferences,
    /// Those of them that went on to memory.
    CacheMisses,
}

impl Kind {
    /// All, in the order of their numbers in the file.
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
    /// The processes that are observed.
    Server,
    /// Everybody, on every CPU.
    Machine,
}

impl Whose {
    /// Both, in the order of their numbers in the file.
    pub const ALL: [Whose; 2] = [Whose::Server, Whose::Machine];
}

/// What was counted in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Cycles of the processor.
    pub cycles: Option<u64>,
    /// Instructions that were carried out.
    pub instructions: Option<u64>,
    /// References to the last level of the caches.
    pub cache_references: Option<u64>,
    /// Those of them that went on to memory.
    pub cache_misses: Option<u64>,
}

/// The counts of one interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CounterRow {
    /// The interval's number.
    pub interval: u64,
    /// Whose.
    pub whose: Whose,
    /// How many.
    pub counts: Counts,
    /// Share of the time in which the counters counted, 0 to 1: where there are more events than
    /// the processor has counters they take turns, and the counts are scaled up.
    pub counted: f64,
}

impl Counts {
    /// One of them.
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

/// Where in the server a counter overflowed, in one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedRow {
    /// The interval's number.
    pub interval: u64,
    /// Which counter.
    pub kind: Kind,
    /// The stack's number, as [`Writer::stack`] gave it; its first frame is the procedure.
    pub stack: u32,
    /// How many samples.
    pub samples: u32,
    /// What they stand for. Not scaled where counters take turns: shares of it are right, the sum
    /// may be less than what the interval's [`Counts`] say.
    pub count: u64,
}

impl Writer {
    /// Adds counts by procedure. They are written with the next interval that is appended, or at
    /// [`finish`](Writer::finish). Errors: [`Error::Refused`] if one has an unknown stack.
    pub fn counted(&mut self, rows: &[CountedRow]) -> Result<(), Error> {
        let known = self.stacks_known()?;
        if rows.iter().any(|row| row.stack as usize >= known) {
            return Err(self.place("writing counters").refused("one has an unknown stack"));
        }
        self.pending.counted.extend_from_slice(rows);
        Ok(())
    }

    /// Adds counts. They are written with the next interval that is appended, or at
    /// [`finish`](Writer::finish). Errors: [`Error::Refused`] if a share is not a number.
    pub fn counters(&mut self, rows: &[CounterRow]) -> Result<(), Error> {
        if rows.iter().any(|row| !row.counted.is_finite()) {
            return Err(self.place("writing counters").refused("a share is not a number"));
        }
        self.pending.counters.extend_from_slice(rows);
        Ok(())
    }
}

impl Table for CounterRow {
    fn insert(rows: &[CounterRow], connection: &Connection) -> rusqlite::Result<()> {
        let mut insert = connection.prepare_cached(
            "INSERT INTO counters (idx, whose, cycles, instructions, cache_references,
                 cache_misses, counted) VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?;
        for row in rows {
            let counts = &row.counts;
            insert.execute(params![
                row.interval,
                row.whose as u8,
                counts.cycles,
                counts.instructions,
                counts.cache_references,
                counts.cache_misses,
                row.counted
            ])?;
        }
        Ok(())
    }
}

impl Table for CountedRow {
    fn insert(rows: &[CountedRow], connection: &Connection) -> rusqlite::Result<()> {
        let mut insert = connection.prepare_cached(
            "INSERT INTO counted (idx, kind, stack, samples, count) VALUES (?, ?, ?, ?, ?)
             ON CONFLICT (idx, kind, stack) DO UPDATE
             SET samples = samples + excluded.samples, count = count + excluded.count",
        )?;
        for row in rows {
            let kind = row.kind as u8;
            insert.execute(params![row.interval, kind, row.stack, row.samples, row.count])?;
        }
        Ok(())
    }
}

/// Reads the counts by procedure from an interval on; of a trial without the table, none. Whether
/// their stacks are there is for the profile's reader to say.
pub(crate) fn read_counted(
    connection: &Connection,
    place: &Place<'_>,
    from: u64,
) -> Result<Vec<CountedRow>, Error> {
    let read = || -> rusqlite::Result<Option<Vec<CountedRow>>> {
        if !crate::reader::has_table(connection, "counted")? {
            return Ok(Some(Vec::new()));
        }
        let mut select = connection.prepare(
            "SELECT idx, kind, stack, samples, count FROM counted WHERE idx >= ?
             ORDER BY idx, kind, stack",
        )?;
        let row_of = |row: &Row<'_>| {
            let Some(&kind) = Kind::ALL.get(row.get::<_, usize>(1)?) else { return Ok(None) };
            Ok(Some(CountedRow {
                interval: row.get(0)?,
                kind,
                stack: row.get(2)?,
                samples: row.get(3)?,
                count: row.get(4)?,
            }))
        };
        select.query_map([from], row_of)?.collect()
    };
    read()
        .map_err(|error| place.sql(error))?
        .ok_or_else(|| place.corrupt("something was counted that is no counter's"))
}

/// Reads the counters of a trial from an interval on; of one without the table, none.
pub(crate) fn read(
    connection: &Connection,
    place: &Place<'_>,
    from: u64,
) -> Result<Vec<CounterRow>, Error> {
    let read = || -> rusqlite::Result<Option<Vec<CounterRow>>> {
        if !crate::reader::has_table(connection, "counters")? {
            return Ok(Some(Vec::new()));
        }
        let mut select = connection.prepare(
            "SELECT idx, whose, cycles, instructions, cache_references, cache_misses, counted
             FROM counters WHERE idx >= ? ORDER BY idx, whose",
        )?;
        select.query_map([from], row_of)?.collect()
    };
    read()
        .map_err(|error| place.sql(error))?
        .ok_or_else(|| place.corrupt("its counters are nobody's"))
}

fn row_of(row: &Row<'_>) -> rusqlite::Result<Option<CounterRow>> {
    let Some(&whose) = Whose::ALL.get(row.get::<_, usize>(1)?) else { return Ok(None) };
    Ok(Some(CounterRow {
        interval: row.get(0)?,
        whose,
        counts: Counts {
            cycles: row.get(2)?,
            instructions: row.get(3)?,
            cache_references: row.get(4)?,
            cache_misses: row.get(5)?,
        },
        counted: row.get(6)?,
    }))
}
