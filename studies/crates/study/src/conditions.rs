//! The conditions under which a study ran: the machine, what else was running, the seed.

use std::path::{Path, PathBuf};

use harness::environment::{Temporary, load_average};
use harness::{Environment, Error};
use serde::Serialize;

/// The machine, its load and the seed of one run of a study.
#[derive(Clone, Debug, Serialize)]
pub struct Conditions {
    /// The machine.
    pub ground: Environment,
    /// Runnable processes: the load averages before and after the study.
    pub load_average: (Option<f64>, Option<f64>),
    /// Seed of everything that is random.
    pub seed: u64,
}

impl Conditions {
    /// Describes the machine and the file system of `directory` at the start of a study.
    pub(crate) fn at_start(directory: &Path, seed: u64) -> Conditions {
        let ground = Environment::of(directory);
        Conditions { ground, load_average: (load_average(), None), seed }
    }

    /// Adds the load average at the end of the study.
    pub(crate) fn at_end(mut self) -> Conditions {
        self.load_average.1 = load_average();
        self
    }
}

/// Makes the working directory of a study in `out`, or in the directory for temporary files.
pub(crate) fn working_directory(out: Option<&PathBuf>, study: &str) -> Result<Temporary, Error> {
    let parent = out.cloned().unwrap_or_else(std::env::temp_dir);
    Temporary::new(&parent, study).map_err(|error| Error::Directory(parent, error))
}

/// Copies a trial out of the working directory, if `out` was given.
pub(crate) fn keep(trial: &Path, out: Option<&PathBuf>) -> Result<(), Error> {
    let Some(out) = out else { return Ok(()) };
    let name = trial.file_name().unwrap_or(trial.as_os_str());
    let copied = std::fs::copy(trial, out.join(name));
    copied.map(drop).map_err(|error| Error::Directory(out.clone(), error))
}
