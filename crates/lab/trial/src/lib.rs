//! The trial file: schema, writer, reader.
//!
//! A trial is one experiment on one machine, in one SQLite file: a description of the machine and
//! the server ([`Manifest`]), the measurements of every interval ([`Interval`]), latencies
//! ([`LatencyRow`]), requests by class ([`classes`]), the CPU profile ([`profile`]), hardware
//! counters ([`counters`]), turns and busy periods ([`stretches`]), what keeps threads from
//! answering ([`answers`]), lock waits ([`waits`]), file access ([`files`]), disks and network
//! cards ([`resources`]), losses ([`Loss`]) and predictions ([`Prediction`]).
//!
//! - `record` and the demo use a [`Writer`]. Each interval is one transaction in WAL mode, so that
//!   the file can be read while it is written, and a killed recorder loses at most the current
//!   interval.
//! - `report` and others open a [`Trial`]: one consistent snapshot, read completely and closed at
//!   once, so that a reader never delays the writer.
//! - [`Writer::finish`] folds the journal into the file, marks it complete and stores a digest of
//!   everything in it. Only a complete trial has a digest. The digest is checked when the trial is
//!   opened.
//!
//! Guarantees: a half-written interval is never read; an unfinished trial is never taken for a
//! complete one; a damaged complete trial is refused; an existing file is overwritten only if the
//! caller asks for it.
//!
//! The modules, bottom up: `error`, `meta` and `table` (how a row is written and read); the modules
//! of rows; `schema`, `digest` and `intervals`; `reader` and `pending`; `writer` and `rows`; and
//! `thin`, which makes trials coarser, cuts and joins them.
//!
//! Units: durations are nanoseconds, instants are nanoseconds since the Unix epoch, latencies are
//! histograms of microseconds.
#![forbid(unsafe_code)]

pub mod answers;
pub mod classes;
pub mod counters;
mod digest;
mod error;
pub mod files;
mod intervals;
mod meta;
mod model;
mod pending;
pub mod profile;
mod reader;
pub mod resources;
mod rows;
mod schema;
pub mod stretches;
mod table;
mod thin;
pub mod waits;
mod writer;

pub use digest::stable_hash;
pub use error::Error;
pub use model::{
    Amendment, Capability, CpuModes, Host, Interval, LatencyRow, LatencySource, Loss, Manifest,
    Modes, NOTE_ACCEPT_QUEUE, NOTE_CAUSE, Prediction, ProcessTimes, Server, ThreadTimes,
    accept_queue_full,
};
pub use reader::Trial;
pub use schema::SCHEMA_VERSION;
pub use writer::{Finished, Writer};

/// The histogram type of [`LatencyRow`], so that callers need not name its crate.
pub use hdrhistogram::Histogram;
