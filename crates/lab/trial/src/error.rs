//! Errors of trial files, and whose fault each is.
//!
//! Every message is one line that names the file and, if possible, how to fix the problem. The
//! command prints it unchanged and exits with 2.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

/// Why a trial cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operator's: the file already exists.
    #[error("{}: already exists; choose another name or ask to overwrite it", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The operator's: there is no such file.
    #[error("{}: no such file; to make one: plimsoll record --name NAME -o {0}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The operator's: the file is not a trial.
    #[error("{}: not a trial ({why})", path.display())]
    NotATrial {
        /// The file.
        path: PathBuf,
        /// How that was detected.
        why: String,
    },
    /// The operator's: the file was written by a newer plimsoll.
    #[error(
        "{}: newer schema {found}, this plimsoll reads up to {newest}; use a newer plimsoll",
        path.display()
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The newest schema that can be read.
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
    /// The system's: no space left. The intervals written before are intact.
    #[error(
        "{}: disk full while {doing}; the {whole} intervals before it are intact",
        path.display()
    )]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// What was being done: "writing interval 17".
        doing: String,
        /// Complete intervals in the file.
        whole: u64,
    },
    /// The system's: another process has locked the file for longer than the writer waits.
    #[error("{}: locked by another process while {doing}; stop that process first", path.display())]
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
        /// The system's error.
        source: io::Error,
    },
    /// The caller's: a value that a trial cannot store.
    #[error("{}: {what} while {doing}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// What was being done.
        doing: String,
        /// Which value, and why.
        what: String,
    },
}

/// The context of an operation, for its error message. Converts SQLite's errors.
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

    /// Converts an error while rows of a table were read.
    pub(crate) fn in_table(&self, table: &str, error: rusqlite::Error) -> Error {
        match self.sql(error) {
            Error::Corrupt { what, .. } => self.corrupt(format!("table {table}: {what}")),
            other => other,
        }
    }

    /// Converts SQLite's codes. An error that is not caused by the disk, a lock or the caller is
    /// damage, because the statements themselves are correct.
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
            // SQLite reports a write, truncate or sync that exceeds a quota or a size limit
            // (EDQUOT, EFBIG: anything but ENOSPC) as a plain I/O error.
            ErrorCode::SystemIoFailure if is_write(extended) => self.disk_full(),
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
