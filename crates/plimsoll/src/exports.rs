//! The files that `plimsoll report` writes for other tools.

use std::path::Path;

use ::report::Analysis;
use command::failure::{Failure, misuse};
use command::output::{self, Pending};
use trial::Trial;

use crate::cli;
use crate::otlp::Collector;

/// Writes the files that the flags name, and sends the profile to a collector.
pub(crate) fn exports(
    flags: &cli::Report,
    trial: &Trial,
    analysis: &Analysis,
) -> Result<(), Failure> {
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
    if let Some(url) = &flags.otlp {
        let message = export::otlp(trial, analysis).map_err(misuse)?;
        Collector::new(url)?.send("v1development/profiles", &message).map_err(misuse)?;
    }
    Ok(())
}

/// Writes files to a directory. Directories that do not exist are created.
fn write_all(directory: &Path, files: &[export::Exported]) -> Result<(), Failure> {
    files.iter().try_for_each(|file| {
        let path = directory.join(&file.name);
        path.parent().map_or(Ok(()), output::make_directory)?;
        Pending::new(&path)?.write(&file.bytes)
    })
}
