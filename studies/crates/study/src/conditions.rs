//! The conditions under which a study ran: the machine, what else was running, the seed.

use std::path::{Path, PathBuf};

use harness::environment::{Temporary, load_average};
use harness::{Environment, Error};
use serde::Serialize;
use serde_json::Value;

use crate::found::with;

/// The machine, its load and the seed of one run of a study.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Conditions {
    /// The machine.
    pub(crate) ground: Environment,
    /// Runnable processes: the load averages before and after the study.
    load_average: (Option<f64>, Option<f64>),
    /// Seed of everything that is random.
    seed: u64,
}

impl Conditions {
    /// Describes the machine and the file system of `directory` at the start of a study.
    pub(crate) fn at_start(directory: &Path, seed: u64) -> Conditions {
        let ground = Environment::of(directory);
        Conditions { ground, load_average: (load_average(), None), seed }
    }

    /// What was measured under these conditions, at the end of the study.
    pub(crate) fn outcome(mut self, measured: Value) -> Value {
        self.load_average.1 = load_average();
        with(&self, measured)
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
