//! `plimsoll report`: a trial, analysed and shown.

use std::path::Path;

use ::report::{Analysis, Options};
use trial::Trial;

use crate::cli;
use crate::failure::{Failure, misuse};
use crate::output::{self, Pending};

/// Analyses a trial and writes what was asked for.
pub(crate) fn report(flags: &cli::Report) -> Result<(), Failure> {
    let trial = Trial::open(&flags.trial).map_err(misuse)?;
    let options = Options {
        above: flags.above.unwrap_or(0.0),
        objective_ms: Some(flags.objective.as_secs_f64() * 1e3),
        ..Options::default()
    };
    let analysis = ::report::analyse(&trial, &options).map_err(misuse)?;
    if let Some(path) = &flags.html {
        write(path, &::report::html(&analysis))?;
    }
    if let Some(path) = &flags.svg {
        write(path, &::report::svg_loadline(&analysis))?;
    }
    show(&analysis, flags.json)
}

/// Prints an analysis.
pub(crate) fn show(analysis: &Analysis, json: bool) -> Result<(), Failure> {
    if json {
        output::print_json(analysis)
    } else {
        output::print(::report::terminal(analysis, width()))
    }
}

/// Writes a whole file or says why not.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    Pending::new(path)?.write(text)
}

/// Columns of the terminal; 100 where there is none.
pub(crate) fn width() -> usize {
    let columns = console::Term::stdout().size_checked().map_or(100, |(_, columns)| columns);
    usize::from(columns).clamp(60, 160)
}
