//! Reading and writing the fields of a message, and the error of a field that does not fit.

use std::fmt;

/// Why bytes are not a message, or why a message cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The field, as its specification names it.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The message ends before the field does.
    Truncated,
    /// The field disagrees with the size of what it describes.
    Length,
    /// It is longer than its limit.
    TooLong,
    /// The field has a value that it must not have.
    Value,
    /// The field has a valid value that this crate does not support.
    Unsupported,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = match self.problem {
            Problem::Truncated => "is truncated",
            Problem::Length => "does not match the size",
            Problem::TooLong => "is too long",
            Problem::Value => "has an invalid value",
            Problem::Unsupported => "is not supported",
        };
        write!(f, "{} {problem}", self.field)
    }
}

impl std::error::Error for Malformed {}

/// An error of a field.
pub(crate) fn malformed<T>(field: &'static str, problem: Problem) -> Result<T, Malformed> {
    Err(Malformed { field, problem })
}

/// The bytes of a message that were not read yet. Numbers are in network byte order.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(
        &mut self,
        bytes: usize,
        field: &'static str,
    ) -> Result<&'a [u8], Malformed> {
        let Some((taken, rest)) = self.0.split_at_checked(bytes) else {
            return malformed(field, Problem::Truncated);
        };
        self.0 = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], Malformed> {
        let Some((taken, rest)) = self.0.split_first_chunk() else {
            return malformed(field, Problem::Truncated);
        };
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, Malformed> {
        self.array(field).map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, Malformed> {
        self.array(field).map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, Malformed> {
        self.array(field).map(u32::from_be_bytes)
    }
}
