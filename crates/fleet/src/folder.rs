//! A folder of trials as a home. The files are read as they are, and nothing else is needed.
//!
//! A question about CPU time and rates reads only the intervals, which takes about 20 ms for an
//! hour of one-second intervals. A question about procedures reads the profiles too.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use trial::Trial;

use crate::home::{
    Asked, Error, GroupStacks, Home, Run, ServerCosts, ServerHours, ServerProcedures,
};
use crate::sums;
use crate::windows::{Profile, Window, profile, run, windows};

/// Directories are searched down to this depth.
const DEPTH_MAX: usize = 32;
/// Most files that are read.
const FILES_MAX: usize = 10_000;

/// All trials in a directory and below it.
#[derive(Debug)]
pub struct Folder {
    trials: Vec<One>,
    skipped: Vec<Skipped>,
}

#[derive(Debug)]
struct One {
    path: PathBuf,
    run: Run,
    windows: Vec<Window>,
}

/// A file that was not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its path.
    pub path: String,
    /// Why.
    pub why: String,
}

impl Folder {
    /// Reads all `*.trial` files in a directory and below it. Unfinished trials count with the
    /// intervals that they have. A copy of a trial counts once. Files that cannot be read are
    /// [skipped](Folder::skipped), so that one damaged file does not prevent an answer.
    ///
    /// # Errors
    /// The directory cannot be read, or no file in it can.
    pub fn open(path: impl AsRef<Path>) -> Result<Folder, Error> {
        let path = path.as_ref();
        let mut files = Vec::new();
        find(path, 0, &mut files)?;
        files.sort();
        let read = report::in_parallel(files, |path| match Trial::open_intervals(&path) {
            Ok(trial) => Ok(One { run: run(&trial), windows: windows(&trial), path }),
            Err(error) => Err(Skipped { path: shown(&path), why: error.to_string() }),
        });
        let mut folder = Folder { trials: Vec::new(), skipped: Vec::new() };
        for one in read {
            match one {
                Ok(one) => folder.trials.push(one),
                Err(skipped) => folder.skipped.push(skipped),
            }
        }
        // Of the copies of a trial, the one with most intervals counts.
        let Folder { trials, skipped } = &mut folder;
        trials.sort_by_key(|one| (one.run.trial, std::cmp::Reverse(one.run.intervals)));
        trials.dedup_by(|copy, kept| {
            let same = copy.run.trial == kept.run.trial;
            if same {
                let why = format!("a copy of {}", shown(&kept.path));
                skipped.push(Skipped { path: shown(&copy.path), why });
            }
            same
        });
        match (trials.is_empty(), skipped.first()) {
            (false, _) => Ok(folder),
            (true, Some(Skipped { path, why })) => {
                Err(Error::File { path: path.clone(), what: why.clone() })
            }
            (true, None) => Err(Error::File {
                path: shown(path),
                what: "no *.trial files in it; `plimsoll record` makes them".to_string(),
            }),
        }
    }

    /// The files that were not used.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    fn windows(&self) -> impl Iterator<Item = (&Run, &[Window])> {
        self.trials.iter().map(|one| (&one.run, one.windows.as_slice()))
    }

    /// The profiles of the trials that are meant.
    fn profiles(&self, asked: &Asked) -> Result<Vec<(&Run, Profile)>, Error> {
        let meant = self.trials.iter().filter(|one| asked.group(&one.run).is_some()).collect();
        let read = report::in_parallel(meant, |one: &One| {
            let failed = |error: trial::Error| Error::File {
                path: shown(&one.path),
                what: error.to_string(),
            };
            let trial = Trial::open(&one.path).map_err(failed)?;
            Ok((&one.run, profile(&trial)))
        });
        read.into_iter().collect()
    }
}

impl Home for Folder {
    fn costs(&self, asked: &Asked) -> Result<Vec<ServerCosts>, Error> {
        Ok(sums::costs(self.windows(), asked))
    }

    fn hours(&self, asked: &Asked) -> Result<Vec<ServerHours>, Error> {
        Ok(sums::hours(self.windows(), asked))
    }

    fn procedures(&self, asked: &Asked) -> Result<Vec<ServerProcedures>, Error> {
        let profiles = self.profiles(asked)?;
        Ok(sums::procedures(profiles.iter().map(|(run, profile)| (*run, profile)), asked))
    }

    fn stacks(&self, asked: &Asked) -> Result<Vec<GroupStacks>, Error> {
        let profiles = self.profiles(asked)?;
        Ok(sums::stacks(profiles.iter().map(|(run, profile)| (*run, profile)), asked))
    }

    fn runs(&self, asked: &Asked) -> Result<Vec<Run>, Error> {
        let meant = self.trials.iter().filter(|one| asked.group(&one.run).is_some());
        let mut runs: Vec<Run> = meant.map(|one| one.run.clone()).collect();
        runs.sort_by(|a, b| (&a.server, a.created_ns).cmp(&(&b.server, b.created_ns)));
        Ok(runs)
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Finds the trials in a directory and below it.
fn find(directory: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), Error> {
    let failed = |what: String| Error::File { path: shown(directory), what };
    let cannot = |error: std::io::Error| failed(error.to_string());
    if depth > DEPTH_MAX {
        return Err(failed(format!("more than {DEPTH_MAX} directories deep")));
    }
    for entry in fs::read_dir(directory).map_err(cannot)? {
        let entry = entry.map_err(cannot)?;
        let path = entry.path();
        // Symbolic links to directories are not followed: they can be circles.
        if entry.file_type().map_err(cannot)?.is_dir() {
            find(&path, depth + 1, files)?;
        } else if path.extension().is_some_and(|extension| extension == "trial") {
            if files.len() == FILES_MAX {
                return Err(failed(format!(
                    "more than {FILES_MAX} trials; use ClickHouse for so many"
                )));
            }
            files.push(path);
        }
    }
    Ok(())
}
