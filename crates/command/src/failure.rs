//! How a verb ends badly: one line on stderr and an exit status.

use std::fmt;
use std::process::ExitCode;

/// Why a verb could not do its work.
#[derive(Debug)]
pub enum Failure {
    /// A regression or a failed check was found: 1.
    Found(String),
    /// Misuse, or nothing can be concluded: 2. The text says what mends it.
    Misuse(String),
}

impl Failure {
    /// The exit status (see the help's last paragraph).
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Found(_) => ExitCode::from(1),
            Failure::Misuse(_) => ExitCode::from(2),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Found(text) | Failure::Misuse(text) => f.write_str(text),
        }
    }
}

/// Shorthand for what a user can mend.
pub fn misuse(text: impl fmt::Display) -> Failure {
    Failure::Misuse(text.to_string())
}
