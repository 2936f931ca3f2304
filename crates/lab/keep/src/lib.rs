//! Recording all the time, so that questions about last week can be answered.
//!
//! [`keeper::keep`] writes a trial a day into a directory. It begins a new trial at midnight and
//! whenever the server runs another program, and labels each trial with the program's version.
//! [`mod@thin`] makes older days coarser within a bound on the disk. [`past::Past`] reads the
//! directory: a row for each day, and two spans compared, each by [`report`].
//!
//! What a continuous recording leaves out, because it costs most: the profile, hardware counters,
//! locks, files and turns. It has the load line: CPU time by mode and thread, rates,
//! latencies, classes and devices, in intervals of ten seconds. The recorder then takes 2 ms in ten
//! seconds, and the time for reading the log.
//!
//! | module | content |
//! | --- | --- |
//! | [`mod@calendar`] | days, and where they begin |
//! | [`mod@when`] | "last week", "3 days ago" |
//! | [`mod@program`] | the version and the build id of a program |
//! | [`mod@files`] | names of files, and the lock of the directory |
//! | [`mod@thin`] | how old trials are made coarser or removed |
//! | [`mod@keeper`] | the loop, which reads no clock and no process |
//! | [`mod@live`] | the clock and the processes for the loop |
//! | [`mod@past`] | rows and comparisons |
//!
//! What never happens: two recorders write for one server; a trial that is being written is thinned
//! or removed; a trial of the past is removed because the disk is full; thinning changes a total.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on panics"))]

pub mod calendar;
mod error;
pub mod files;
pub mod keeper;
pub mod live;
pub mod past;
pub mod program;
#[cfg(test)]
mod testing;
pub mod thin;
pub mod when;

pub use error::Error;
