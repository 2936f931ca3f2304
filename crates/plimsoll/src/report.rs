//! `plimsoll report`: analyses a trial and shows the result.

use std::path::{Path, PathBuf};

use ::report::{Analysis, Groups, Options};
use command::failure::{Failure, misuse};
use command::output;
use trial::Trial;

use crate::{cli, exports, keep, trials};

/// Analyses a trial, prints the analysis, and writes the files that the flags name. Of several
/// trials, only tables are written.
pub(crate) fn report(flags: &cli::Report) -> Result<(), Failure> {
    if flags.trials.is_empty() {
        return output::print(Groups::default_text());
    }
    let trials = match flags.parquet {
        Some(_) => files(&flags.trials)?,
        None => flags.trials.clone(),
    };
    let [path] = trials.as_slice() else { return tables(flags, &trials) };
    if flags.parquet.is_none() && path.is_dir() {
        return keep::days(flags, path);
    }
    let (trial, analysis) = analysed(flags, path)?;
    if let Some(path) = &flags.html {
        output::write(path, &::report::html(&analysis))?;
    }
    if let Some(path) = &flags.svg {
        output::write(path, &::report::svg_loadline(&analysis))?;
    }
    exports::exports(flags, &trial, &analysis)?;
    show(&analysis, flags.json)
}

fn analysed(flags: &cli::Report, path: &Path) -> Result<(Trial, Analysis), Failure> {
    let trial = Trial::open(path).map_err(misuse)?;
    let options = Options {
        objective_ms: Some(flags.objective.as_secs_f64() * 1e3),
        ..flags.analysis.options()?
    };
    let analysis = ::report::analyse(&trial, &options).map_err(misuse)?;
    Ok((trial, analysis))
}

/// Writes the tables of several trials.
fn tables(flags: &cli::Report, trials: &[PathBuf]) -> Result<(), Failure> {
    let cli::Report { html, svg, flame, collapsed, pprof, firefox, csv, otlp, .. } = flags;
    let is_of_one = [html, svg, flame, collapsed, pprof, firefox, csv].iter().any(|f| f.is_some());
    let (Some(directory), false) = (&flags.parquet, is_of_one || otlp.is_some() || flags.json)
    else {
        let why = "of several trials, only --parquet is written; drop the other output flags, or \
                   give one trial";
        return Err(misuse(why));
    };
    let mut refused = Vec::new();
    for path in trials {
        let written = analysed(flags, path)
            .and_then(|(trial, analysis)| exports::exports(flags, &trial, &analysis));
        refused.extend(written.err().map(|failure| failure.to_string()));
    }
    let written = trials.len() - refused.len();
    output::print(format!("{written} trials written to {}\n", directory.display()))?;
    match refused.is_empty() {
        true => Ok(()),
        false => Err(misuse(format!("not written: {}", refused.join("; ")))),
    }
}

/// The files that are named, and the trials in the folders that are.
fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in named {
        match path.is_dir() {
            true => files.extend(trials::in_directory(path)?),
            false => files.push(path.clone()),
        }
    }
    Ok(files)
}

/// Prints an analysis.
pub(crate) fn show(analysis: &Analysis, json: bool) -> Result<(), Failure> {
    output::show(json, analysis, |analysis| ::report::terminal(analysis, output::width()))
}
