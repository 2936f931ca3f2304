//! The samplers: modes of the CPU, threads of a server, its profile, access logs.
//!
//! [`record`] observes a server that it did not start and does not touch: it reads /proc, perf
//! events and the tail of an access log, and writes one [`trial`] file, interval by interval. It
//! works on any server that logs in a format of [`LogFormat`].
//!
//! The way of a sample:
//!
//! ```text
//! /proc/stat ----------- machine ----+
//! /proc/PID, CPU clocks - server ----+--> recorder --> trial
//! disks, network cards - resources ---+
//! perf events - profile, counters ---+
//! access log - tail - logs - spread -+
//! or a counter - scraper - spread ---+
//! ```
//!
//! What is exact and what has a grain stands in the manifest's capabilities: totals of CPU time
//! are exact to the nanosecond, the machine's modes and the split into user and kernel have the
//! clock tick's grain, rates that of the log's stamps.
//!
//! HAProxy logs to syslog only; to have a file, let it log to its standard output
//! (`log stdout format raw local0`) and send that into one.
//!
//! What never happens: a line of a log or a process that ends fails the recording; something that
//! was not seen goes unsaid (it is a loss in the trial); the data of one interval is half written.

mod bpf;
mod clock;
mod counter;
mod counters;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod logs;
mod machine;
mod procfs;
mod profile;
mod recorder;
mod redact;
mod requests;
mod resources;
mod server;
mod split;
mod spread;
pub mod survey;
mod tail;

pub use counter::MetricUrl;
pub use counters::known_loop;
pub use error::Error;
pub use logs::{Format, FormatChoice, JsonKeys, LogFormat};
pub use profile::{PROFILE_HZ_MAX, PROFILE_HZ_MIN, ProfileSpec};
pub use recorder::{Ended, INTERVAL_MAX, INTERVAL_MIN, Spec, Summary, record};
pub use server::Target;
