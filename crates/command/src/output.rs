//! Output of a command: text on stdout, and files.
//!
//! If the reader of stdout closes early (`| head`), that is not an error; any other write error is.
//! Neither panics. A file gets its name only after all of it is written, so that a partial file is
//! never mistaken for a complete one. [`Pending`] checks that a file can be written before the
//! work whose result it will hold, which may take an hour.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use crate::failure::{Failure, misuse};

/// Writes to stdout.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_ref()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(misuse(format!("cannot write to stdout: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a value to stdout as JSON.
pub fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print(serde_json::to_string_pretty(value).map_err(misuse)? + "\n")
}

/// Prints a result: as JSON, or as the text that `text` makes of it.
pub fn show<T: serde::Serialize>(
    json: bool,
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    if json { print_json(value) } else { print(text(value)) }
}

/// Width of the terminal on stdout in columns; `None` if stdout is not a terminal.
pub fn columns() -> Option<usize> {
    let (_, columns) = console::Term::stdout().size_checked()?;
    Some(usize::from(columns).max(40))
}

/// Width for tables in columns; 100 if stdout is not a terminal.
pub fn width() -> usize {
    columns().unwrap_or(100).clamp(60, 160)
}

/// Splits text into lines at spaces. A word longer than a line gets its own line.
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

/// Where cells are placed in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// At the left.
    Left,
    /// At the right.
    Right,
}

/// Rows as text, each column as wide as its widest cell.
pub fn aligned(rows: &[Vec<String>], align: Align) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| match align {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Writes a whole file.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    Pending::new(path)?.write(text)
}

/// Creates a directory and its parents.
///
/// # Errors
/// [`Failure::Misuse`] if it cannot be created.
pub fn make_directory(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path)
        .map_err(|error| misuse(format!("cannot create the directory {}: {error}", path.display())))
}

/// A file that will be written. If this is dropped first, nothing remains on disk.
#[derive(Debug)]
pub struct Pending {
    path: PathBuf,
    /// A temporary file in the same directory; `None` if `path` is a device or a pipe.
    temporary: Option<PathBuf>,
    file: File,
}

impl Pending {
    /// Checks that the file can be written.
    pub fn new(path: &Path) -> Result<Pending, Failure> {
        let refused = |error| cannot_write(path, error);
        // Follow a symbolic link: replace the file, not the link.
        let existing = fs::canonicalize(path).ok();
        let path = existing.clone().unwrap_or_else(|| path.to_owned());
        if existing.is_some_and(|existing| !existing.is_file()) {
            let file = File::options().write(true).open(&path).map_err(refused)?;
            return Ok(Pending { path, temporary: None, file });
        }
        // Tools that read whole directories pass over hidden files.
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}.part", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = File::create(&temporary).map_err(refused)?;
        if let Ok(existing) = fs::metadata(&path) {
            file.set_permissions(existing.permissions()).map_err(refused)?;
        }
        Ok(Pending { path, temporary: Some(temporary), file })
    }

    /// Writes the whole content, then gives the file its name.
    pub fn write(mut self, text: impl AsRef<[u8]>) -> Result<(), Failure> {
        let written = self.file.write_all(text.as_ref()).and_then(|()| match &self.temporary {
            // Sync before the rename: otherwise a crash could leave the name without the content.
            Some(temporary) => {
                self.file.sync_all().and_then(|()| fs::rename(temporary, &self.path))
            }
            None => Ok(()),
        });
        written.map_err(|error| cannot_write(&self.path, error))?;
        self.temporary = None;
        Ok(())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = fs::remove_file(temporary);
        }
    }
}

fn cannot_write(path: &Path, error: std::io::Error) -> Failure {
    misuse(format!("cannot write {}: {error}", path.display()))
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
    fn cells_are_aligned_in_their_columns() {
        let rows = [["round", "B"], ["1", "10.25"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(aligned(&rows, Align::Right), "round      B\n    1  10.25\n");
        assert_eq!(aligned(&rows, Align::Left), "round  B\n1      10.25\n");
        assert_eq!(aligned(&[], Align::Left), "");
    }

    #[test]
    fn a_file_is_complete_or_absent() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("result.json");
        drop(Pending::new(&path).unwrap());
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
        Pending::new(&path).unwrap().write("first").unwrap();
        let again = Pending::new(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first", "until the second is complete");
        again.write("second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_device_is_written_to_and_not_replaced() {
        Pending::new(Path::new("/dev/null")).unwrap().write("text").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let full = Pending::new(Path::new("/dev/full")).unwrap().write("text").unwrap_err();
        assert!(full.to_string().starts_with("cannot write /dev/full: "), "{full}");
    }

    #[test]
    fn a_symbolic_link_is_followed_and_kept() {
        let home = tempfile::tempdir().unwrap();
        let (file, link) = (home.path().join("file"), home.path().join("link"));
        fs::write(&file, "before").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        Pending::new(&link).unwrap().write("after").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "after");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn an_unwritable_path_is_reported_at_once() {
        let home = tempfile::tempdir().unwrap();
        for path in [home.path().join("none/result.json"), home.path().to_owned()] {
            assert!(Pending::new(&path).is_err(), "{}", path.display());
        }
    }
}
