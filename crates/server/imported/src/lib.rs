//! What an imported configuration becomes: the form that the importers of all languages write.
//!
//! [`mod@table`] is the form of their tables, from a directive to what becomes of it. [`input`] has
//! included files and limits, [`note`] one note for each directive, [`tree`] the keys of our file,
//! [`mod@route`] the routes of a file, [`cel`] its conditions, [`pattern`] and [`url`] what regular
//! expressions and URLs stand for.
//!
//! What never happens: I/O; a key that is not in the list of [`tree`].
#![forbid(unsafe_code)]

pub mod cel;
mod decoded;
pub mod fields;
pub mod input;
pub mod limits;
pub mod note;
pub mod pattern;
pub mod route;
pub mod table;
pub mod tree;
pub mod url;

use std::fmt;

use crate::note::Place;

/// An included file.
#[derive(Clone, Debug)]
pub struct Included {
    /// Its name, for notes.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// A text that is not in the language, or exceeds a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

/// A result of a parser.
pub type Parsed<T> = Result<T, SyntaxError>;

impl SyntaxError {
    /// At this place.
    pub fn at(at: &Place, what: impl Into<String>) -> SyntaxError {
        SyntaxError { file: at.file.to_string(), line: at.line, what: what.into() }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}
