//! `plimsoll report`: a trial, analysed and shown.

use std::path::Path;

use ::report::{Analysis, Groups, Options};
use trial::Trial;

use crate::cli;
use crate::failure::{Failure, misuse};
use crate::output::{self, Pending};

/// Analyses a trial and writes what was asked for.
pub(crate) fn report(flags: &cli::Report) -> Result<(), Failure> {
    let Some(path) = &flags.trial else {
        return output::print(Groups::default_text());
    };
    let trial = Trial::open(path).map_err(misuse)?;
    let options = Options {
        above: flags.above.unwrap_or(0.0),
        objective_ms: Some(flags.objective.as_secs_f64() * 1e3),
        groups: groups(flags.groups.as_deref())?,
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

/// The rules of a file, or the default ones.
pub(crate) fn groups(path: Option<&Path>) -> Result<Groups, Failure> {
    let Some(path) = path else { return Ok(Groups::default()) };
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        misuse(format!("{name} cannot be read: {error}; plimsoll report --print-groups writes one"))
    })?;
    Groups::read(&text, &name.to_string()).map_err(misuse)
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
