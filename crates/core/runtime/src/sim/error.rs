//! Errors of simulated calls.

use std::io;

/// The error with this number, as the system would return it.
pub(super) fn error<T>(number: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(number))
}
