//! The trial file: schema, writer, reader.
//!
//! A trial is one experiment on one machine, kept in one SQLite file: what the machine and the
//! server were ([`Manifest`]), what happened in every interval ([`Interval`]), the latencies
//! ([`LatencyRow`]), requests by class ([`classes`]), where the CPUs were
//! ([`profile`]), what the processor counted ([`counters`]), waits for locks
//! ([`waits`]), what became of files ([`files`]), what disks and network cards did
//! ([`resources`]), what was lost ([`Loss`]) and what was
//! foretold ([`Prediction`]).
//!
//! - `record` (or the demo) owns a [`Writer`]. Each interval is one transaction, in WAL mode, so
//!   that readers read while it writes and a killed recorder loses at most the interval it was in.
//! - `report` and its kin open a [`Trial`]: one consistent snapshot, read whole and let go at once,
//!   so that no reader ever holds up the writer.
//! - [`Writer::finish`] folds the journal into the file, marks it complete and seals it with a
//!   digest of everything in it. Only a complete trial has a digest, and it is checked at opening.
//!
//! What never happens: a half-written interval is never seen; an unfinished trial never passes for
//! a complete one; a damaged complete trial never gives figures; an existing file is never
//! overwritten unless the caller says so.
//!
//! Units: durations are nanoseconds, instants are nanoseconds since the Unix epoch, latencies are
//! histograms of microseconds.
#![forbid(unsafe_code)]

pub mod classes;
pub mod counters;
mod digest;
mod error;
pub mod files;
mod model;
mod pending;
pub mod profile;
mod reader;
pub mod resources;
mod schema;
pub mod waits;
mod writer;

pub use error::Error;
pub use model::{
    Amendment, Capability, CpuModes, Host, Interval, LatencyRow, LatencySource, Loss, Manifest,
    Modes, Prediction, ProcessTimes, Server, ThreadTimes,
};
pub use reader::Trial;
pub use schema::SCHEMA_VERSION;
pub use writer::{Finished, Writer};

/// The histogram type of [`LatencyRow`], so that callers need not name its crate.
pub use hdrhistogram::Histogram;
