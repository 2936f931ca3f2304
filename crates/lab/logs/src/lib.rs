//! Access logs of real servers: lines to requests, files to lines, whole logs to totals.
//!
//! A recording follows a log while it is written, `plimsoll logs` reads whole logs afterwards. Both
//! read the same lines, so the readers are here, below both. This crate knows nothing of trials: it
//! says when a request was, how long it took and of which class it is. `record` spreads the
//! requests over intervals. This crate is separate from `access_log`, which writes the server's own
//! lines, because `access_log` belongs to the server, and a build of the laboratory alone does not
//! have it.
//!
//! | module | owns |
//! | --- | --- |
//! | [`formats`] | one line: every format, its detection, and advice on lines in no format |
//! | [`parts`] | lines that a container runtime has split, joined again |
//! | [`tail`] | a file that grows, is rotated and truncated |
//! | [`survey`] | whole files, packed or not, read by every core, and their totals |
//! | [`mod@sample`] | the shown part of a line that was not understood |
//! | [`zone`] | local times |
//!
//! What never happens: a line is an error or a panic; a line is neither a request nor counted as
//! something else; memory grows with a log.

mod formats;
#[cfg(any(test, fuzzing))]
#[path = "../../../../tools/fuzz/checks/logs.rs"]
pub mod fuzzing;
mod parts;
mod sample;
#[cfg(feature = "survey")]
pub mod survey;
mod tail;
mod zone;

use std::io;
use std::path::PathBuf;

pub use formats::{
    Class, Facts, Format, FormatChoice, JsonKeys, Line, LogFormat, Outcome, Request, Stamps, advice,
};
pub use parts::Joiner;
pub use sample::sample;
pub use tail::{Happened, LINE_BYTES_MAX, Tail};
pub use zone::{is_of_zones, length, local_to_unix};

/// The operator's fault: a log that cannot be read or followed.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}; name a log file that this user may read", path.display())]
pub struct Unreadable {
    /// The log.
    pub path: PathBuf,
    /// The system's error.
    pub source: io::Error,
}
