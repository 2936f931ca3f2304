//! `plimsoll report`: a trial, analysed and shown.

use std::path::Path;

use ::report::{Analysis, Groups, Options, export};
use command::failure::{Failure, misuse};
use command::output::{self, Pending};
use trial::Trial;

use crate::cli;

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
        output::write(path, &::report::html(&analysis))?;
    }
    if let Some(path) = &flags.svg {
        output::write(path, &::report::svg_loadline(&analysis))?;
    }
    exports(flags, &trial, &analysis)?;
    show(&analysis, flags.json)
}

/// The files for other tools.
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

/// Writes files into a directory, which is made if there is none.
fn write_all(directory: &Path, files: &[export::Exported]) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).map_err(|error| {
        misuse(format!("the directory {} cannot be made: {error}", directory.display()))
    })?;
    files.iter().try_for_each(|file| Pending::new(&directory.join(&file.name))?.write(&file.bytes))
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
        output::print(::report::terminal(analysis, output::width()))
    }
}
