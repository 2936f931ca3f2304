//! Why a recording cannot be made, and whose business it is to mend it: one line each.

use std::io;
use std::path::PathBuf;

/// Why there is no recording, or why it ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operator's: no such process.
    #[error("process {pid}: there is none; look for it with pgrep, or name the server")]
    NoProcess {
        /// The process.
        pid: u32,
    },
    /// The operator's: no process of that name.
    #[error("no process is named {name:?}; look for its name with ps -e -o comm")]
    NoName {
        /// The name.
        name: String,
    },
    /// The operator's: the access log cannot be followed.
    #[error("{}: {source}; name a log file that this user may read", path.display())]
    Log {
        /// The log.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The operator's: the counter of requests cannot be read.
    #[error("{url}: {what}")]
    Counter {
        /// Where it was looked for.
        url: String,
        /// What failed, or what is there instead.
        what: String,
    },
    /// The operator's: an interval nobody can sample.
    #[error("an interval of {found_ms} ms; choose one from {least_ms} ms to {most_ms} ms")]
    Interval {
        /// What was asked.
        found_ms: u128,
        /// The shortest.
        least_ms: u128,
        /// The longest.
        most_ms: u128,
    },
    /// The system's: /proc does not tell what every Linux tells.
    #[error("{path}: {what}; is /proc mounted?")]
    Proc {
        /// The file.
        path: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// The trial cannot be written.
    #[error(transparent)]
    Trial(#[from] trial::Error),
}

/// Why a sampler cannot work here, and what would help: a capability of the manifest, never a
/// failed recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsupported(pub(crate) String);
