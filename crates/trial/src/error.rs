//! What can go wrong with a trial file, and whose business it is to mend it.
//!
//! Every message names the file and, where there is one, the mend, in one line: the command prints
//! it as it stands and ends with 2.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why a trial cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operator's: the name is taken.
    #[error(
        "{}: exists already; choose another name, or ask for it to be overwritten",
        path.display()
    )]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The operator's: there is no such file.
    #[error("{}: no such file", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The operator's: the file is something else.
    #[error("{}: not a trial ({why})", path.display())]
    NotATrial {
        /// The file.
        path: PathBuf,
        /// What it lacks.
        why: String,
    },
    /// The operator's: the file was written by a later plimsoll.
    #[error(
        "{}: newer schema {found}, this plimsoll reads up to {newest}; use a newer plimsoll",
        path.display()
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The newest that can be read.
        newest: u32,
    },
    /// The file is damaged.
    #[error("{}: corrupt: {what}; restore it from a copy", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The system's: no room. What was written before stays whole.
    #[error(
        "{}: disk full while {doing}; the file holds the {whole} intervals before it",
        path.display()
    )]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// What was being done: "writing interval 17".
        doing: String,
        /// Intervals that are whole in the file.
        whole: u64,
    },
    /// The system's: somebody holds the file for longer than the writer waits.
    #[error("{}: held by another process while {doing}; end that one first", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: String,
    },
    /// The system's: the file cannot be opened, read or written.
    #[error("{}: {source} while {doing}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// The caller's: a value that a trial cannot hold.
    #[error("{}: {what} while {doing}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: String,
        /// Which value, and why not.
        what: String,
    },
}

/// Where an error of SQLite happened; turns it into ours.
pub(crate) struct Place<'a> {
    pub(crate) path: &'a Path,
    pub(crate) doing: &'a str,
    pub(crate) whole: u64,
}

impl Place<'_> {
    pub(crate) fn io(&self, source: io::Error) -> Error {
        if matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            return self.disk_full();
        }
        Error::Io { path: self.path.to_owned(), doing: self.doing.to_owned(), source }
    }

    pub(crate) fn corrupt(&self, what: impl Into<String>) -> Error {
        Error::Corrupt { path: self.path.to_owned(), what: what.into() }
    }

    pub(crate) fn refused(&self, what: impl Into<String>) -> Error {
        Error::Refused {
            path: self.path.to_owned(),
            doing: self.doing.to_owned(),
            what: what.into(),
        }
    }

    /// Maps SQLite's codes. Anything that is neither the disk's, a lock's nor the caller's doing
    /// is damage: the statements themselves are known to be right.
    pub(crate) fn sql(&self, error: rusqlite::Error) -> Error {
        let (code, extended) = match &error {
            rusqlite::Error::SqliteFailure(failure, _) => (failure.code, failure.extended_code),
            rusqlite::Error::ToSqlConversionFailure(why) => return self.refused(why.to_string()),
            _ => return self.corrupt(error.to_string()),
        };
        match code {
            ErrorCode::DiskFull => self.disk_full(),
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                Error::Busy { path: self.path.to_owned(), doing: self.doing.to_owned() }
            }
            // A write, truncate or sync that fails for want of room or of quota arrives as a
            // plain I/O error when the system says anything but ENOSPC (EDQUOT, EFBIG).
            ErrorCode::SystemIoFailure if is_write(extended) => self.disk_full(),
            // A short read is a file that ends too early.
            ErrorCode::SystemIoFailure if extended == rusqlite::ffi::SQLITE_IOERR_SHORT_READ => {
                self.corrupt("the file ends too early")
            }
            ErrorCode::SystemIoFailure => self.io(io::Error::other(error.to_string())),
            ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied => {
                self.io(io::Error::new(io::ErrorKind::PermissionDenied, error.to_string()))
            }
            ErrorCode::NotADatabase => {
                Error::NotATrial { path: self.path.to_owned(), why: "not a SQLite file".to_owned() }
            }
            ErrorCode::ConstraintViolation => self.refused(error.to_string()),
            _ => self.corrupt(error.to_string()),
        }
    }

    fn disk_full(&self) -> Error {
        Error::DiskFull {
            path: self.path.to_owned(),
            doing: self.doing.to_owned(),
            whole: self.whole,
        }
    }
}

fn is_write(extended: i32) -> bool {
    use rusqlite::ffi;
    matches!(
        extended,
        ffi::SQLITE_IOERR_WRITE | ffi::SQLITE_IOERR_TRUNCATE | ffi::SQLITE_IOERR_SHMSIZE
    )
}
