//! How a command fails: one line on stderr and an exit code.

use std::fmt;
use std::process::ExitCode;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// A check failed, such as a regression. Exit code 1.
    CheckFailed(String),
    /// Usage error, system error or inconclusive result. Exit code 2. The text says how to fix it.
    Misuse(String),
}

impl Failure {
    /// The exit code, as documented at the end of the help text.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Failure::CheckFailed(_) => ExitCode::from(1),
            Failure::Misuse(_) => ExitCode::from(2),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::CheckFailed(text) | Failure::Misuse(text) => f.write_str(text),
        }
    }
}

/// A [`Failure::Misuse`] with this text.
pub fn misuse(text: impl fmt::Display) -> Failure {
    Failure::Misuse(text.to_string())
}
