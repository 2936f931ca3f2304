//! Trials that are not completely in the database yet.
//!
//! The trial is the spool. A file beside it, `NAME.trial.unshipped`, says where its rows are to go.
//! It exists from the first interval until the finished trial has been acknowledged. A recorder
//! holds a lock on it: a file without a lock is of a recorder that was killed, or that could not
//! reach the database before it ended.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

/// What is added to the name of the trial.
const SUFFIX: &str = ".unshipped";

/// The longest content that is read.
const CONTENT_BYTES_MAX: u64 = 64 << 10;

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// The database, without user and password.
    to: String,
    /// The first interval that was not acknowledged, when the last window was over.
    next: u64,
}

/// A trial that is not completely in the database, locked by this process.
#[derive(Debug)]
pub struct Unshipped {
    path: PathBuf,
    file: File,
    note: Note,
}

impl Unshipped {
    /// Notes that this trial goes to this database.
    ///
    /// # Errors
    /// The file cannot be written, or another process has locked it.
    pub fn begin(trial: &Path, to: &str) -> io::Result<Unshipped> {
        let path = beside(trial);
        let file = open(&path, true)?;
        file.try_lock()?;
        let mut this = Unshipped { path, file, note: Note { to: to.to_owned(), next: 0 } };
        this.write()?;
        Ok(this)
    }

    /// The trial's file, if it exists and no other process has locked it.
    pub fn of(trial: &Path) -> Option<Unshipped> {
        let path = beside(trial);
        let mut file = open(&path, false).ok()?;
        file.try_lock().ok()?;
        let mut text = String::new();
        (&mut file).take(CONTENT_BYTES_MAX).read_to_string(&mut text).ok()?;
        let note = serde_json::from_str(&text).ok()?;
        Some(Unshipped { path, file, note })
    }

    /// The trials of a directory that belong into this database and have no recorder.
    pub fn in_directory(directory: &Path, to: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let trial = |path: PathBuf| {
            let name = path.to_str()?.strip_suffix(SUFFIX)?;
            let trial = PathBuf::from(name);
            (Unshipped::of(&trial)?.note.to == to).then_some(trial)
        };
        let mut trials: Vec<PathBuf> = entries
            .filter_map(|entry| trial(entry.path()))
            .filter(|trial| trial.exists())
            .collect();
        trials.sort();
        trials
    }

    /// Notes that the intervals before this one have been acknowledged.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn acknowledge(&mut self, next: u64) -> io::Result<()> {
        if self.note.next == next {
            return Ok(());
        }
        self.note.next = next;
        self.write()
    }

    /// Removes the file, if its trial is now completely in this database.
    pub fn done(self, to: &str) {
        if self.note.to == to {
            // Without it, the trial would only be sent again.
            let _ = fs::remove_file(&self.path);
        }
    }

    fn write(&mut self) -> io::Result<()> {
        let text = serde_json::to_string(&self.note)? + "\n";
        self.file.rewind()?;
        self.file.write_all(text.as_bytes())?;
        self.file.set_len(text.len() as u64)
    }
}

/// Opens a note, but nothing else that has its name: in a directory in which others may write, it
/// can be a link to a file, or a pipe.
fn open(path: &Path, create: bool) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = File::options();
    options.create(create).read(true).write(true).custom_flags(flags.bits().cast_signed());
    let file = options.open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is not a file")),
    }
}

fn beside(trial: &Path) -> PathBuf {
    let mut name = trial.as_os_str().to_owned();
    name.push(SUFFIX);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_exists_until_its_database_has_all_and_is_locked_by_one() {
        let home = tempfile::tempdir().unwrap();
        let trial = home.path().join("a.trial");
        fs::write(&trial, "").unwrap();
        let found = |to| Unshipped::in_directory(home.path(), to);
        let mut recorder = Unshipped::begin(&trial, "http://h/d").unwrap();
        recorder.acknowledge(300).unwrap();
        assert!(Unshipped::begin(&trial, "http://h/d").is_err());
        assert!(found("http://h/d").is_empty(), "it has a recorder");
        drop(recorder);
        assert!(found("http://other/d").is_empty());
        assert_eq!(found("http://h/d"), std::slice::from_ref(&trial));
        let text = fs::read_to_string(beside(&trial)).unwrap();
        assert_eq!(text, "{\"to\":\"http://h/d\",\"next\":300}\n");
        Unshipped::of(&trial).unwrap().done("http://other/d");
        Unshipped::of(&trial).unwrap().done("http://h/d");
        assert!(Unshipped::of(&trial).is_none() && found("http://h/d").is_empty());
        let target = home.path().join("target");
        fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, beside(&trial)).unwrap();
        assert!(Unshipped::begin(&trial, "http://h/d").is_err(), "a link is not followed");
        assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
    }
}
