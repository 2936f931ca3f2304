//! The experiments of the papers, repeated on this machine.
//!
//! Each study is a module that measures, compares its results with the published patterns, and
//! says of each pattern whether it holds, does not hold, or is inconclusive. [`STUDIES`] lists
//! them. Their results on one machine, with the figures, are in `studies/` of the project.
//! Why: a claim of 1997 has to be checked on today's machines.
//! Ownership: a study owns its working directory and the servers it starts. It removes the
//! directory and ends the servers.
//! What never happens: a historic mistake that a study reproduces on purpose is never part of the
//! code that serves. An inconclusive pattern is never reported as holding or not holding.
#![forbid(unsafe_code)]

pub mod boost;
mod conditions;
pub mod dispatch;
pub mod herd;
pub mod live;
pub mod predict;
mod published;
pub mod select;
mod servers;
mod show;
pub mod swapin;
pub mod truth;
mod visits;
pub mod webbench;

pub use conditions::Conditions;

/// All studies: the name, and the question it answers.
pub const STUDIES: &[(&str, &str)] = &[
    (
        "boost",
        "what poll() and select() cost in unmodified programs once an epoll set answers them",
    ),
    (
        "dispatch",
        "what the table walk of comm_select (1998) costs, and which misses it causes elsewhere",
    ),
    (
        "herd",
        "which workers wake when they share descriptors (NetCache, 1998), and what that costs",
    ),
    (
        "live",
        "the live days of 1998 in minutes: the load lines of an old and a new event notification",
    ),
    (
        "predict",
        "how good predictions of capacity from low load are: nginx, Squid, HAProxy and others",
    ),
    (
        "runqueue",
        "what colours did for the walk of the run queue (2002): misses, the lock, throughput",
    ),
    (
        "select",
        "what 10,000 silent connections cost on each backend (1998), and a prediction of it",
    ),
    (
        "swapin",
        "what the extra read of Squid's swap-in bug (1997) costs today, and if our store has it",
    ),
    ("truth", "whether the laboratory finds known costs, and how often its intervals contain them"),
    (
        "webbench",
        "a static tree under a closed loop: our server and its peers, by clients and by workers",
    ),
];
