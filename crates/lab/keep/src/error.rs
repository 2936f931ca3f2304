//! Why a recording cannot be kept, or the past cannot be read.

use std::io;
use std::path::PathBuf;

/// Why, and how to fix it. One line each.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operator's fault: another recorder of the server writes there.
    #[error(
        "{} is being recorded into already: process {pid} records {server} there; stop it, or \
         choose another directory", path.display()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The server.
        server: String,
        /// The other recorder.
        pid: String,
    },
    /// The directory cannot be used.
    #[error("{}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The recorder cannot work at all.
    #[error(transparent)]
    Record(#[from] record::Error),
    /// A trial cannot be read.
    #[error(transparent)]
    Trial(#[from] trial::Error),
    /// The trials cannot be analysed.
    #[error(transparent)]
    Report(#[from] report::Error),
    /// The directory does not have the trials that the question is about.
    #[error("{what}")]
    Missing {
        /// What is missing, and what there is.
        what: String,
    },
}
