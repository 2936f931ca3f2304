//! What a verb gives out: text on stdout, and whole files.
//!
//! A reader that leaves early (`| head`) is no failure, a stdout that takes no more is one, and
//! neither is a panic. A file appears under its name when all of it is written, and not before: a
//! half-written one is never taken for whole, and a name that cannot be written is told before an
//! hour of work rather than after it.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, misuse};

/// Writes to stdout.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(misuse(format!("stdout cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a value to stdout as JSON.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print(serde_json::to_string_pretty(value).map_err(misuse)? + "\n")
}

/// How wide the terminal is that stdout is; `None` when it is none.
pub fn columns() -> Option<usize> {
    let (_, columns) = console::Term::stdout().size_checked()?;
    Some(usize::from(columns).max(40))
}

/// Text cut into lines at its spaces; a word that is longer than a line has one of its own.
pub fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Writes a whole file or says why not.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    Pending::new(path)?.write(text)
}

/// Columns of the terminal; 100 where there is none.
pub fn width() -> usize {
    let columns = console::Term::stdout().size_checked().map_or(100, |(_, columns)| columns);
    usize::from(columns).clamp(60, 160)
}

/// Makes a directory and those above it.
///
/// # Errors
/// [`Failure::Misuse`] if it cannot be made.
pub fn make_directory(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| {
        misuse(format!("the directory {} cannot be made: {error}", path.display()))
    })
}

/// A file that is going to be written. If it is dropped before, nothing is left of it.
#[derive(Debug)]
pub struct Pending {
    path: PathBuf,
    /// Beside it, where the text waits; `None` when `path` is a device or a pipe.
    beside: Option<PathBuf>,
    file: File,
}

impl Pending {
    /// Makes sure that the file can be written.
    pub fn new(path: &Path) -> Result<Pending, Failure> {
        let refused = |error| cannot(path, error);
        // Through a link: the file is to be replaced, not the link.
        let there = fs::canonicalize(path).ok();
        let path = there.clone().unwrap_or_else(|| path.to_owned());
        let special = there.is_some_and(|there| !there.is_file());
        if special {
            let file = File::options().write(true).open(&path).map_err(refused)?;
            return Ok(Pending { path, beside: None, file });
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let beside = path.with_file_name(name);
        let file = File::create(&beside).map_err(refused)?;
        if let Ok(before) = fs::metadata(&path) {
            file.set_permissions(before.permissions()).map_err(refused)?;
        }
        Ok(Pending { path, beside: Some(beside), file })
    }

    /// Writes all of it and gives it its name.
    pub fn write(mut self, text: impl AsRef<[u8]>) -> Result<(), Failure> {
        let written = self.file.write_all(text.as_ref()).and_then(|()| match &self.beside {
            // Synced before it has its name, or a crash could leave the name without the text.
            Some(beside) => self.file.sync_all().and_then(|()| fs::rename(beside, &self.path)),
            None => Ok(()),
        });
        written.map_err(|error| cannot(&self.path, error))?;
        self.beside = None;
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(beside) = &self.beside {
            let _ = fs::remove_file(beside);
        }
    }
}

fn cannot(path: &Path, error: std::io::Error) -> Failure {
    misuse(format!("{} cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_at_its_spaces() {
        assert_eq!(wrapped("a bc def longer gh", 6), ["a bc", "def", "longer", "gh"]);
        assert!(wrapped("", 6).is_empty());
    }

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("result.json");
        drop(Pending::new(&path).unwrap());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        Pending::new(&path).unwrap().write("first").unwrap();
        let again = Pending::new(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first", "until the second is whole");
        again.write("second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_device_is_written_to_and_stays_one() {
        Pending::new(Path::new("/dev/null")).unwrap().write("text").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let full = Pending::new(Path::new("/dev/full")).unwrap().write("text").unwrap_err();
        assert!(full.to_string().starts_with("/dev/full cannot be written: "), "{full}");
    }

    #[test]
    fn a_link_stays_a_link() {
        let home = tempfile::tempdir().unwrap();
        let (file, link) = (home.path().join("file"), home.path().join("link"));
        fs::write(&file, "before").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        Pending::new(&link).unwrap().write("after").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn what_cannot_be_written_is_told_at_once() {
        let home = tempfile::tempdir().unwrap();
        for path in [home.path().join("none/result.json"), home.path().to_owned()] {
            assert!(Pending::new(&path).is_err(), "{}", path.display());
        }
    }
}
