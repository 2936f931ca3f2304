//! Why a trial cannot be analysed. These are the operator's errors, and never panics: every message
//! is one line that says how to fix the problem.

/// Errors of [`crate::analyse`] and the other functions of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The trial is empty.
    #[error("{trial}: no intervals; record for longer")]
    Empty {
        /// File name of the trial.
        trial: String,
    },
    /// Too few intervals can be used for a line.
    #[error(
        "{trial}: {usable} of {intervals} intervals can be fitted ({why}), but {needed} are \
         needed; {fix}"
    )]
    TooShort {
        /// File name of the trial.
        trial: String,
        /// Intervals that can be used.
        usable: usize,
        /// Intervals in the trial.
        intervals: usize,
        /// Intervals a line needs.
        needed: usize,
        /// Why the others are excluded.
        why: String,
        /// How to fix it.
        fix: String,
    },
    /// The requested resource was not recorded.
    #[error("{trial}: {resource} was not recorded; let the report choose the resource")]
    NoSuchResource {
        /// File name of the trial.
        trial: String,
        /// What was requested.
        resource: &'static str,
    },
    /// There is no profile.
    #[error("{trial}: no profile; record again with one")]
    NoProfile {
        /// File name of the trial.
        trial: String,
    },
    /// There is a profile, but no line that gives the cost of a request.
    #[error(
        "{trial}: no load line gives the cost of a request; export by samples, or record again \
         with a varying rate"
    )]
    NoCost {
        /// File name of the trial.
        trial: String,
    },
    /// The flame graph cannot be drawn.
    #[error("{trial}: cannot draw the flame graph: {what}")]
    Figure {
        /// File name of the trial.
        trial: String,
        /// Why.
        what: String,
    },
    /// A table cannot be written.
    #[error("{trial}: cannot write the table {table}: {what}")]
    Table {
        /// File name of the trial.
        trial: String,
        /// Its name.
        table: &'static str,
        /// Why.
        what: String,
    },
    /// The profile has no such group.
    #[error("{trial}: no group {group:?} in the profile; known groups: {known}")]
    NoSuchGroup {
        /// File name of the trial.
        trial: String,
        /// What was requested.
        group: String,
        /// The groups of the profile.
        known: String,
    },
    /// The recording has no capacity.
    #[error("{trial}: {why}")]
    NoCapacity {
        /// File name of the trial.
        trial: String,
        /// The cause, and what to do.
        why: String,
    },
    /// No capacity can be predicted.
    #[error("{trial}: cannot predict a capacity: {why}")]
    NoPrediction {
        /// File name of the trial.
        trial: String,
        /// Why.
        why: String,
    },
    /// An option is out of its range.
    #[error("{what}")]
    Option {
        /// Which option, and its range.
        what: String,
    },
    /// No line can be fitted.
    #[error("{trial}: {unfit}")]
    Unfit {
        /// File name of the trial.
        trial: String,
        /// The error of `regress`.
        unfit: regress::Unfit,
    },
}

impl Error {
    /// Why there is no load line, without the name of the trial.
    pub(crate) fn without_name(&self) -> String {
        let text = self.to_string();
        let why = match self {
            Error::TooShort { trial, .. } => text.strip_prefix(&format!("{trial}: ")),
            _ => None,
        };
        format!("no load line: {}", why.unwrap_or(&text))
    }
}
