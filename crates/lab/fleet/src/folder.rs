//! A folder of trials as a home. The files are read as they are, and nothing else is needed.
//!
//! A question about CPU time and rates reads only the intervals, which takes about 20 ms for an
//! hour of one-second intervals. A question about procedures reads the profiles too.

use std::fs::{self, ReadDir};
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
/// So many profiles are in memory at the same time.
const PROFILES_AT_ONCE: usize = 8;

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

/// A file or a directory that was not used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its path.
    pub path: String,
    /// Why.
    pub why: String,
}

impl Folder {
    /// Reads all `*.trial` files in a directory and below it. Unfinished trials count with the
    /// intervals that they have. A copy of a trial counts once. Files and directories below that
    /// cannot be read are [skipped](Folder::skipped), so that one of them does not prevent an
    /// answer.
    ///
    /// # Errors
    /// The directory cannot be read, or no file in it can.
    pub fn open(path: impl AsRef<Path>) -> Result<Folder, Error> {
        let path = path.as_ref();
        let failed = |what| Error::File { path: shown(path), what };
        let mut found = Found::default();
        let top = fs::read_dir(path).map_err(|error| {
            failed(format!("{error}; give the directory that plimsoll record writes its trials to"))
        })?;
        found.search(path, top, 0).map_err(failed)?;
        let Found { mut files, skipped } = found;
        files.sort();
        let read = report::in_parallel(files, |path| match Trial::open_intervals(&path) {
            Ok(trial) => Ok(One { run: run(&trial), windows: windows(&trial), path }),
            Err(error) => Err(Skipped { path: shown(&path), why: error.to_string() }),
        });
        let mut folder = Folder { trials: Vec::new(), skipped };
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
            (true, None) => {
                Err(failed("no *.trial files in it; `plimsoll record` makes them".to_string()))
            }
        }
    }

    /// The files and directories that were not used.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    fn windows(&self) -> impl Iterator<Item = (&Run, &[Window])> {
        self.trials.iter().map(|one| (&one.run, one.windows.as_slice()))
    }

    /// Reads the profiles of the trials that are meant, and adds each up. A profile is large.
    fn profiles(&self, asked: &Asked, mut add: impl FnMut(&Run, &Profile)) -> Result<(), Error> {
        let meant = self.trials.iter().filter(|one| asked.group(&one.run).is_some());
        for some in meant.collect::<Vec<_>>().chunks(PROFILES_AT_ONCE) {
            let read = report::in_parallel(some.to_vec(), |one: &One| {
                let failed = |error: trial::Error| Error::File {
                    path: shown(&one.path),
                    what: error.to_string(),
                };
                let trial = Trial::open(&one.path).map_err(failed)?;
                Ok((&one.run, profile(&trial)))
            });
            for one in read {
                let (run, profile) = one?;
                add(run, &profile);
            }
        }
        Ok(())
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
        let mut sums = sums::Procedures::default();
        self.profiles(asked, |run, profile| sums.add(run, profile, asked))?;
        Ok(sums.done())
    }

    fn stacks(&self, asked: &Asked) -> Result<Vec<GroupStacks>, Error> {
        let mut sums = sums::Stacks::default();
        self.profiles(asked, |run, profile| sums.add(run, profile, asked))?;
        Ok(sums.done())
    }

    fn runs(&self, asked: &Asked) -> Result<Vec<Run>, Error> {
        let meant = self.trials.iter().filter(|one| asked.group(&one.run).is_some());
        let mut runs: Vec<Run> = meant.map(|one| one.run.clone()).collect();
        runs.sort_by(|a, b| (&a.server, a.created_ns).cmp(&(&b.server, b.created_ns)));
        Ok(runs)
    }

    fn fetch(&self, run: &Run, into: &Path) -> Result<(), Error> {
        let found = self.trials.iter().find(|one| one.run.trial == run.trial);
        let found = found.ok_or_else(|| run.missing())?;
        Trial::copy(&found.path, into).map_err(|error| Error::written(into, error))
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// What is in a directory and below it.
#[derive(Default)]
struct Found {
    /// The trials.
    files: Vec<PathBuf>,
    skipped: Vec<Skipped>,
}

impl Found {
    fn skip(&mut self, path: &Path, why: String) {
        self.skipped.push(Skipped { path: shown(path), why });
    }

    /// Fails if there are too many trials.
    fn search(&mut self, directory: &Path, entries: ReadDir, depth: usize) -> Result<(), String> {
        for entry in entries {
            let entry = match entry.and_then(|entry| Ok((entry.path(), entry.file_type()?))) {
                Ok(entry) => entry,
                Err(error) => {
                    self.skip(directory, error.to_string());
                    continue;
                }
            };
            // Symbolic links to directories are not followed: they can be circles.
            match entry {
                (path, kind) if kind.is_dir() && depth == DEPTH_MAX => {
                    self.skip(&path, format!("more than {DEPTH_MAX} directories deep"));
                }
                (path, kind) if kind.is_dir() => match fs::read_dir(&path) {
                    Ok(entries) => self.search(&path, entries, depth + 1)?,
                    Err(error) => self.skip(&path, error.to_string()),
                },
                (path, _) if path.extension().is_some_and(|extension| extension == "trial") => {
                    if self.files.len() == FILES_MAX {
                        return Err(format!(
                            "more than {FILES_MAX} trials; use ClickHouse for so many"
                        ));
                    }
                    self.files.push(path);
                }
                _ => {}
            }
        }
        Ok(())
    }
}
