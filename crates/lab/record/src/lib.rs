//! The samplers: modes of the CPU, threads of a server, its profile, access logs, sockets.
//!
//! [`record()`] observes a server without starting or changing it: the recorder reads /proc, perf
//! events and the tail of an access log, and writes one [`trial`] file, interval by interval. The
//! recorder works on any server that logs in one of the formats of [`LogFormat`], or speaks HTTP/1.
//!
//! The path of a sample:
//!
//! ```text
//! /proc/stat ----------- machine ----+
//! /proc/PID, CPU clocks - server ----+--> recorder --> trial
//! disks, network cards - resources ---+
//! perf events - profile, counters ---+
//! access log - logs ------- spread --+
//! or a counter - scraper - spread ---+
//! or sockets - BPF maps - spread ----+
//! ```
//!
//! # What it promises
//!
//! The recorder follows the children and threads of a pid, and a log through rotation and
//! truncation.
//!
//! - A line that the recorder cannot read is counted and never fatal.
//! - A sampler that cannot work on this machine is recorded as a capability with the reason. The
//!   others go on.
//! - The profile names only known procedures, and reports how many stacks were followed to the
//!   bottom.
//! - A counter of the processor is used only after it has counted a loop of known length. A
//!   counter that reads zero is treated as missing.
//! - Locks, files and requests on sockets are summed up by BPF programs in the kernel, in bounded
//!   maps. Events that find no room are counted.
//! - A server is held only on request, and never longer than the recorder lives (`hold`).
//! - Only counts of the bytes that a server sends and receives leave the kernel.
//!
//! The manifest's capabilities state the resolution of each figure. Totals of CPU time are exact to
//! the nanosecond. The machine's modes, and the split into user and kernel time, have the
//! resolution of the clock tick. Rates have the resolution of the log's stamps.
//!
//! HAProxy logs to syslog only. To get a file, let HAProxy log to its standard output (`log stdout
//! format raw local0`) and redirect that into a file.
//!
//! Guarantees: a recording survives every log line, and every process that ends; missing data is
//! recorded as a loss in the trial; an interval is written whole or not at all.

mod bpf;
mod clock;
mod counter;
mod counters;
mod error;
#[cfg(any(test, fuzzing))]
#[path = "../../../../tools/fuzz/checks/record.rs"]
pub mod fuzzing;
mod hold;
mod host;
mod listeners;
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

pub use counter::{Labels, MetricUrl, labels_and_rest};
pub use counters::known_loop;
pub use error::Error;
pub use hold::{HOLD_MAX, HOLD_MIN, HoldSpec, HoldsMade, how_to_hold};
pub use logs::{Format, FormatChoice, JsonKeys, LogFormat};
pub use profile::{PROFILE_HZ_MAX, PROFILE_HZ_MIN, ProfileSpec, build_id};
pub use recorder::{
    Ended, INTERVAL_MAX, INTERVAL_MIN, Spec, Summary, TURNS_EVERY, processes, record,
    several_servers,
};
pub use server::Target;
