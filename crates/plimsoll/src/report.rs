//! `plimsoll report`: analyses a trial and shows the result.

use ::report::{Analysis, Groups, Options};
use command::failure::{Failure, misuse};
use command::output;
use trial::Trial;

use crate::{cli, exports};

/// Analyses a trial, prints the analysis, and writes the files that the flags name.
pub(crate) fn report(flags: &cli::Report) -> Result<(), Failure> {
    let Some(path) = &flags.trial else {
        return output::print(Groups::default_text());
    };
    let trial = Trial::open(path).map_err(misuse)?;
    let options = Options {
        objective_ms: Some(flags.objective.as_secs_f64() * 1e3),
        ..flags.analysis.options()?
    };
    let analysis = ::report::analyse(&trial, &options).map_err(misuse)?;
    if let Some(path) = &flags.html {
        output::write(path, &::report::html(&analysis))?;
    }
    if let Some(path) = &flags.svg {
        output::write(path, &::report::svg_loadline(&analysis))?;
    }
    exports::exports(flags, &trial, &analysis)?;
    show(&analysis, flags.json)
}

/// Prints an analysis.
pub(crate) fn show(analysis: &Analysis, json: bool) -> Result<(), Failure> {
    output::show(json, analysis, |analysis| ::report::terminal(analysis, output::width()))
}
