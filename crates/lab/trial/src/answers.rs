//! What keeps the server's threads from answering: how long a request occupies a thread, how many
//! threads are occupied at once, how long requests wait before a thread reads them, and for which
//! other servers the server waits.
//!
//! A request *occupies* a thread from the first receive to the last send of its answer, if the
//! thread takes one request at a time. Only intervals with an [`AnswerRow`] were seen.

use serde::{Deserialize, Serialize};

use crate::table::{Table, columns};

/// The tables.
pub(crate) const CREATE: &str = "
CREATE TABLE IF NOT EXISTS answers (
    idx INTEGER PRIMARY KEY, sampled_ns INTEGER NOT NULL, served INTEGER NOT NULL,
    overlapped INTEGER NOT NULL, occupied_ns INTEGER NOT NULL, at_once INTEGER NOT NULL,
    begun INTEGER NOT NULL, late INTEGER NOT NULL, late_ns INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS upstream (
    idx INTEGER NOT NULL, peer TEXT NOT NULL, waits INTEGER NOT NULL, waited_ns INTEGER NOT NULL,
    inside_ns INTEGER NOT NULL, PRIMARY KEY (idx, peer)
) WITHOUT ROWID;
";

/// How the server's threads answered in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerRow {
    /// The interval's number.
    pub interval: u64,
    /// How long it was seen, ns.
    pub sampled_ns: i64,
    /// Requests that were answered by the thread that had received them.
    pub served: u64,
    /// Requests that began while a request of another client occupied the thread.
    pub overlapped: u64,
    /// How long requests occupied threads, ns.
    pub occupied_ns: i64,
    /// The most threads that were occupied at once, since the recording began.
    pub at_once: u64,
    /// Requests that began to occupy a thread.
    pub begun: u64,
    /// Those that had come while their thread was occupied, by the kernel's ticks (1 to 10 ms).
    pub late: u64,
    /// How long these had waited, ns.
    pub late_ns: i64,
}

/// Waits for another server in one interval: from the first send on a connection to the next
/// receive on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamRow {
    /// The interval's number.
    pub interval: u64,
    /// The other server: its address and port, or "a Unix socket".
    pub peer: String,
    /// Number of waits.
    pub waits: u64,
    /// Their sum, ns.
    pub waited_ns: i64,
    /// Of that, while a request occupied the thread that waited, ns.
    pub inside_ns: i64,
}

impl Table for AnswerRow {
    const NAME: &'static str = "answers";
    const COLUMNS: &'static str = "idx, sampled_ns, served, overlapped, occupied_ns, at_once, \
                                   begun, late, late_ns";
    const ROWS: &'static str = "WHERE idx >= ? AND idx < ? ORDER BY idx";

    columns!(interval, sampled_ns, served, overlapped, occupied_ns, at_once, begun, late, late_ns);
}

impl Table for UpstreamRow {
    const NAME: &'static str = "upstream";
    const COLUMNS: &'static str = "idx, peer, waits, waited_ns, inside_ns";
    const ROWS: &'static str = "WHERE idx >= ? AND idx < ? ORDER BY idx, peer";

    columns!(interval, peer, waits, waited_ns, inside_ns);
}
