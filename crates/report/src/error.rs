//! Why a trial cannot be analysed. It is the operator's to mend, never a matter for a panic: every
//! message is one line with the mend in it.

/// What [`crate::analyse`] and [`crate::html`] refuse.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The trial holds nothing.
    #[error("{trial}: no intervals in it; record for longer")]
    Empty {
        /// File name of the trial.
        trial: String,
    },
    /// There are intervals, and too few of them can be used for a line.
    #[error(
        "{trial}: {usable} of {intervals} intervals can be fitted ({why}), {needed} are needed; \
         {mend}"
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
        /// What became of the others.
        why: String,
        /// What to do.
        mend: String,
    },
    /// The resource asked for was not recorded.
    #[error("{trial}: {resource} was not recorded; leave the choice of the resource to the report")]
    NoSuchResource {
        /// File name of the trial.
        trial: String,
        /// What was asked for.
        resource: &'static str,
    },
    /// There is no profile to divide the costs by.
    #[error("{trial}: no profile in it: record it again with one")]
    NoProfile {
        /// File name of the trial.
        trial: String,
    },
    /// There is a profile, and no line that says what a request costs.
    #[error(
        "{trial}: no line through it says what a request costs: export by samples, or record it \
         again over rates that differ"
    )]
    NoCost {
        /// File name of the trial.
        trial: String,
    },
    /// A figure that cannot be drawn.
    #[error("{trial}: its flame graph cannot be drawn: {what}")]
    Figure {
        /// File name of the trial.
        trial: String,
        /// Why.
        what: String,
    },
    /// A table that cannot be written.
    #[error("{trial}: its table {table} cannot be written: {what}")]
    Table {
        /// File name of the trial.
        trial: String,
        /// Which.
        table: &'static str,
        /// Why.
        what: String,
    },
    /// A group that is not in the profile.
    #[error("{trial}: no group {group:?} in its profile; there are {known}")]
    NoSuchGroup {
        /// File name of the trial.
        trial: String,
        /// What was asked for.
        group: String,
        /// What there is.
        known: String,
    },
    /// No capacity can be foretold.
    #[error("{trial}: nothing can be foretold: {why}")]
    NothingForetold {
        /// File name of the trial.
        trial: String,
        /// Why.
        why: String,
    },
    /// An option out of its range.
    #[error("{what}")]
    Option {
        /// Which, and its range.
        what: String,
    },
    /// A trial whose numbers no line goes through.
    #[error("{trial}: {unfit}")]
    Unfit {
        /// File name of the trial.
        trial: String,
        /// What `regress` said.
        unfit: regress::Unfit,
    },
    /// A file of procedure groups that cannot be used.
    #[error("{file}, line {line}: {what}")]
    Groups {
        /// Its name.
        file: String,
        /// Where.
        line: usize,
        /// What is wrong there, and what mends it.
        what: String,
    },
}

impl Error {
    /// Of a trial that is too short, why there is no load line; where its name is known already.
    pub(crate) fn without_name(&self) -> String {
        let text = self.to_string();
        let why = match self {
            Error::TooShort { trial, .. } => text.strip_prefix(&format!("{trial}: ")),
            _ => None,
        };
        format!("no load line: {}", why.unwrap_or(&text))
    }
}
