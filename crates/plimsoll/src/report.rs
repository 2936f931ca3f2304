//! `plimsoll report`: analyses a trial and shows the result.

use std::path::Path;

use ::report::{Analysis, Groups, Options, export};
use command::failure::{Failure, misuse};
use command::output::{self, Pending};
use trial::Trial;

use crate::cli;

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
    exports(flags, &trial, &analysis)?;
    show(&analysis, flags.json)
}

/// Writes the files for other tools.
fn exports(flags: &cli::Report, trial: &Trial, analysis: &Analysis) -> Result<(), Failure> {
    if let Some(path) = &flags.flame {
        output::write(path, &export::svg_flame(trial, analysis).map_err(misuse)?)?;
    }
    if let Some(path) = &flags.collapsed {
        let by = match flags.collapsed_by {
            cli::CollapsedBy::Samples => export::CollapsedBy::Samples,
            cli::CollapsedBy::Cost => export::CollapsedBy::Cost,
        };
        output::write(path, &export::collapsed(trial, analysis, by).map_err(misuse)?)?;
    }
    if let Some(path) = &flags.pprof {
        Pending::new(path)?.write(export::pprof(trial, analysis).map_err(misuse)?)?;
    }
    if let Some(path) = &flags.firefox {
        Pending::new(path)?.write(export::firefox(trial, analysis).map_err(misuse)?)?;
    }
    if let Some(directory) = &flags.csv {
        write_all(directory, &export::csv(trial, analysis))?;
    }
    if let Some(directory) = &flags.parquet {
        write_all(directory, &export::parquet(trial, analysis).map_err(misuse)?)?;
    }
    Ok(())
}

/// Writes files to a directory, which is created if it does not exist.
fn write_all(directory: &Path, files: &[export::Exported]) -> Result<(), Failure> {
    output::make_directory(directory)?;
    files.iter().try_for_each(|file| Pending::new(&directory.join(&file.name))?.write(&file.bytes))
}

/// Prints an analysis.
pub(crate) fn show(analysis: &Analysis, json: bool) -> Result<(), Failure> {
    output::show(json, analysis, |analysis| ::report::terminal(analysis, output::width()))
}
