//! The experiments of the papers, run again on the machine at hand.
//!
//! What: each study is a module that measures, holds what it found against the patterns that were
//! published, and says of each whether it holds, does not, or cannot be told. [`STUDIES`] lists
//! them; what came of them on one machine, with the figures, is in `studies/` of the project.
//! Why: a claim of 1997 is worth what it is worth on today's machines.
//! Who owns: a study owns the directory it works in and the servers that it starts, and removes
//! and ends them.
//! What never happens: the mistakes of old that a study makes on purpose are never in the code that
//! serves; a pattern that the data cannot tell is never said to hold or not to.
#![forbid(unsafe_code)]

pub mod boost;
pub mod dispatch;
pub mod herd;
pub mod live;
mod published;
pub mod select;
pub mod swapin;
pub mod truth;
pub mod webbench;

/// The studies there are: name, and what it asks.
pub const STUDIES: &[(&str, &str)] = &[
    (
        "boost",
        "what poll() and select() cost once an epoll set answers them, in programs as they are",
    ),
    (
        "dispatch",
        "what the table walk of comm_select (1998) costs, and what it takes from others' caches",
    ),
    ("herd", "who is woken when workers share descriptors (NetCache, 1998), and what that costs"),
    (
        "live",
        "the live days of 1998 in minutes: the load lines of an old and a new event notification",
    ),
    (
        "runqueue",
        "what colours did for the walk of the run queue (2002): misses, the lock, throughput",
    ),
    (
        "select",
        "what 10,000 silent connections cost on each backend (1998), and whether it was foretold",
    ),
    (
        "swapin",
        "what the extra read of Squid's swap-in bug (1997) costs today, and whether ours makes it",
    ),
    ("truth", "whether the laboratory finds costs that are known, and how often it says so"),
    (
        "webbench",
        "a static tree under a closed loop: ours beside the peers, by clients and by workers",
    ),
];
