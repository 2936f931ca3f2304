//! What the server's threads work off in a row: turns of event loops, and busy periods.
//!
//! A *turn* is what a thread does between two returns of a call that waits for events:
//! `epoll_wait`, `poll`, `select`, `io_uring_enter` and their variants. Turns without a receive
//! belong to the turn before, because some servers do there what the receive asks for. A *busy
//! period* is what any thread does from a wake to its next sleep. A preemption ends neither. A turn
//! that ends with a sleep ends there. Both are *stretches*, and the size of a stretch is the number
//! of receives with data in it.
//!
//! Stretches may be sampled in a part of the time: only intervals with a [`TurnRow`] were sampled.

use serde::{Deserialize, Serialize};

use crate::table::{Table, columns, stored_as_index};

/// The tables. Trials of version 3 have tables `turn` and `episode` instead, and those of version 4
/// a table `stretch` without turns, which are not read.
pub(crate) const CREATE: &str = "
CREATE TABLE IF NOT EXISTS turns (
    idx INTEGER PRIMARY KEY, sampled_ns INTEGER NOT NULL, turns INTEGER NOT NULL,
    clients INTEGER NOT NULL, upstreams INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS stretches (
    idx INTEGER NOT NULL, kind INTEGER NOT NULL, held INTEGER NOT NULL, served INTEGER NOT NULL,
    size INTEGER NOT NULL, stretches INTEGER NOT NULL, turns INTEGER NOT NULL,
    clients INTEGER NOT NULL, upstreams INTEGER NOT NULL, cpu_ns INTEGER NOT NULL,
    PRIMARY KEY (idx, kind, held, served, size)
) WITHOUT ROWID;
";

/// The least number of receives of each class of stretches.
pub const SIZES: [u32; 9] = [0, 1, 2, 3, 5, 9, 17, 33, 65];

/// A kind of stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StretchKind {
    /// A turn after a sleep of its thread. It includes a part of what the wake costs.
    FirstTurn,
    /// A turn that follows another one without a sleep in between.
    #[default]
    Turn,
    /// A busy period.
    Period,
}

impl StretchKind {
    /// All kinds, in the order of their numbers in the file.
    pub const ALL: [StretchKind; 3] =
        [StretchKind::FirstTurn, StretchKind::Turn, StretchKind::Period];

    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StretchKind::FirstTurn => "first turn",
            StretchKind::Turn => "turn",
            StretchKind::Period => "busy period",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<StretchKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

stored_as_index!(StretchKind);

/// The turns and receives of all threads of the server in one interval, whether or not their
/// stretches ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnRow {
    /// The interval's number.
    pub interval: u64,
    /// How long they were counted, ns.
    pub sampled_ns: i64,
    /// Number of turns.
    pub turns: u64,
    /// Receives of data from clients: on sockets whose local port is one on which the server
    /// listens.
    pub clients: u64,
    /// Receives of data from others.
    pub upstreams: u64,
}

impl TurnRow {
    /// Receives of data.
    #[must_use]
    pub fn receives(&self) -> u64 {
        self.clients + self.upstreams
    }
}

/// The stretches of one kind and class that ended in one interval: their number and their sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StretchRow {
    /// The interval's number.
    pub interval: u64,
    /// The kind.
    pub kind: StretchKind,
    /// Whether the thread was catching up after the server had been held.
    pub held: bool,
    /// Whether there is a receive from a client in each of them; otherwise there is none in any.
    pub served: bool,
    /// The least number of receives in the class, one of [`SIZES`].
    pub size: u32,
    /// Number of stretches.
    pub stretches: u64,
    /// The turns in them: for a turn, itself and those after it without a receive; those of its
    /// thread for a busy period.
    pub turns: u64,
    /// Their receives of data from clients.
    pub clients: u64,
    /// Their receives of data from others.
    pub upstreams: u64,
    /// Their CPU time, ns.
    pub cpu_ns: i64,
}

impl StretchRow {
    /// Receives of data.
    #[must_use]
    pub fn receives(&self) -> u64 {
        self.clients + self.upstreams
    }
}

impl Table for TurnRow {
    const NAME: &'static str = "turns";
    const COLUMNS: &'static str = "idx, sampled_ns, turns, clients, upstreams";
    const ROWS: &'static str = "WHERE idx >= ? AND idx < ? ORDER BY idx";

    columns!(interval, sampled_ns, turns, clients, upstreams);
}

impl Table for StretchRow {
    const NAME: &'static str = "stretches";
    const COLUMNS: &'static str =
        "idx, kind, held, served, size, stretches, turns, clients, upstreams, cpu_ns";
    const ROWS: &'static str = "WHERE idx >= ? AND idx < ? ORDER BY idx, kind, held, served, size";

    columns!(interval, kind, held, served, size, stretches, turns, clients, upstreams, cpu_ns);
}
