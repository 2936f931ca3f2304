//! Turns and episodes of the server's threads.
//!
//! A *turn* is a return of a call that waits for events: `epoll_wait`, `poll`, `select`,
//! `io_uring_enter` and their variants. The number of events is what the call returned. An
//! *episode* is what a thread does from a wake to its next sleep. A preemption does not end it.
//!
//! Both may be sampled in a part of the time: only intervals with a [`TurnRow`] were sampled.

use serde::{Deserialize, Serialize};

use crate::table::{Table, columns};

/// The tables.
pub(crate) const CREATE: &str = "
CREATE TABLE IF NOT EXISTS turn (
    idx INTEGER PRIMARY KEY, sampled_ns INTEGER NOT NULL, turns INTEGER NOT NULL,
    events INTEGER NOT NULL, cpu_ns INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS episode (
    idx INTEGER NOT NULL, class INTEGER NOT NULL, episodes INTEGER NOT NULL,
    turns INTEGER NOT NULL, events INTEGER NOT NULL, cpu_ns INTEGER NOT NULL,
    turns_turns REAL NOT NULL, turns_events REAL NOT NULL, events_events REAL NOT NULL,
    turns_cpu_ns REAL NOT NULL, events_cpu_ns REAL NOT NULL, cpu_cpu_ns2 REAL NOT NULL,
    PRIMARY KEY (idx, class)
) WITHOUT ROWID;
";

/// The class of episodes with at least this many events. Each lower class is one number of events.
pub const CLASS_MAX: u32 = 63;

/// The turns of all threads of the server in one interval, whether or not their episodes ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnRow {
    /// The interval's number.
    pub interval: u64,
    /// How long turns were counted, ns.
    pub sampled_ns: i64,
    /// Number of turns.
    pub turns: u64,
    /// Events that they returned.
    pub events: u64,
    /// CPU time of the threads, ns. That of a thread on a CPU is known up to its last turn, switch
    /// or scheduler tick.
    pub cpu_ns: i64,
}

/// The episodes of one class that ended in one interval: their number, their sums, and the sums of
/// products that a least-squares fit of the CPU time on turns and events needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpisodeRow {
    /// The interval's number.
    pub interval: u64,
    /// Events per episode, at most [`CLASS_MAX`].
    pub class: u32,
    /// Number of episodes.
    pub episodes: u64,
    /// Their turns.
    pub turns: u64,
    /// Their events.
    pub events: u64,
    /// Their CPU time, ns.
    pub cpu_ns: i64,
    /// Sum of turns².
    pub turns_turns: f64,
    /// Sum of turns × events.
    pub turns_events: f64,
    /// Sum of events².
    pub events_events: f64,
    /// Sum of turns × CPU time, ns.
    pub turns_cpu_ns: f64,
    /// Sum of events × CPU time, ns.
    pub events_cpu_ns: f64,
    /// Sum of CPU time², ns².
    pub cpu_cpu_ns2: f64,
}

impl Table for TurnRow {
    const NAME: &'static str = "turn";
    const COLUMNS: &'static str = "idx, sampled_ns, turns, events, cpu_ns";
    const ROWS: &'static str = "WHERE idx >= ? AND idx < ? ORDER BY idx";

    columns!(interval, sampled_ns, turns, events, cpu_ns);
}

impl Table for EpisodeRow {
    const NAME: &'static str = "episode";
    const COLUMNS: &'static str = "idx, class, episodes, turns, events, cpu_ns, turns_turns, \
        turns_events, events_events, turns_cpu_ns, events_cpu_ns, cpu_cpu_ns2";
    const ROWS: &'static str = "WHERE idx >= ? AND idx < ? ORDER BY idx, class";

    columns!(
        interval,
        class,
        episodes,
        turns,
        events,
        cpu_ns,
        turns_turns,
        turns_events,
        events_events,
        turns_cpu_ns,
        events_cpu_ns,
        cpu_cpu_ns2
    );
}
