//! The samplers that are BPF programs: lock waits, file accesses, turns and busy periods, what
//! keeps threads from answering, and the requests on the sockets.
//!
//! | part | responsibility |
//! | --- | --- |
//! | `*.bpf.c` | the programs, which sum up in the kernel, in bounded maps |
//! | `ports` | the ports on which the server listens, by which its clients are known |
//! | `program` | loading, the set of observed processes, counts of events that found no room |
//! | `locks`, `files`, `stretches`, `answers` | reading the sums every interval into rows |
//! | `sockets` | reading the counts of requests, and spreading requests that cross a boundary |
//! | `symbols` | addresses to procedures |
//! | `samplers`, `absent` | the samplers for the recorder, or the reason why there are none |
//!
//! The programs are built without kernel headers; the running kernel's BTF gives the offsets of
//! fields. The programs run in the context of the thread that makes the system call or is switched,
//! so their cost is not in the recorder's own CPU time.
//!
//! A recording fails because of these programs only if requests were to be counted on the sockets.
//! Without the feature `bpf`, on a machine other
//! than x86-64, or without permission to load the programs, the trial has a capability with the
//! text "not supported here" and the reason.

use std::fmt;
use std::num::NonZeroU32;

#[cfg(not(bpf))]
mod absent;
#[cfg(bpf)]
mod answers;
#[cfg(bpf)]
mod files;
#[cfg(bpf)]
mod locks;
#[cfg(bpf)]
mod ports;
#[cfg(bpf)]
mod program;
#[cfg(bpf)]
mod samplers;
#[cfg(bpf)]
mod sockets;
#[cfg(bpf)]
mod stretches;
#[cfg(bpf)]
mod symbols;

#[cfg(not(bpf))]
pub(crate) use absent::{Marks, Samplers, Sockets};
#[cfg(bpf)]
pub(crate) use samplers::Samplers;
#[cfg(bpf)]
pub(crate) use sockets::Sockets;
#[cfg(bpf)]
pub(crate) use stretches::Marks;

/// The name of the sampler of turns and busy periods.
const TURNS: &str = "turns";
/// The name of the sampler of what keeps threads from answering.
const ANSWERS: &str = "answers";

/// The requested samplers.
#[derive(Clone, Copy)]
pub(crate) struct Requested {
    pub(crate) locks: bool,
    pub(crate) files: bool,
    /// In which intervals turns and busy periods are counted.
    pub(crate) turns: Option<TurnsIn>,
    /// Addresses are not written.
    #[cfg_attr(not(bpf), expect(dead_code, reason = "without samplers nothing is written"))]
    pub(crate) redact: bool,
}

/// The intervals in which turns are counted. In some they are never counted: the difference in CPU
/// time shows what counting costs the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TurnsIn {
    /// The first of this many.
    FirstOf(NonZeroU32),
    /// All but the last of this many.
    AllButLastOf(NonZeroU32),
}

impl fmt::Display for TurnsIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TurnsIn::FirstOf(n) => write!(f, "1 interval of {n}"),
            TurnsIn::AllButLastOf(n) => write!(f, "{} intervals of {n}", n.get() - 1),
        }
    }
}
