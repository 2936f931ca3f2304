//! Output of a command: text on stdout, and files.
//!
//! If the reader of stdout closes early (`| head`), that is not an error; any other write error is.
//! Neither panics. A file gets its name only after all of it is written, so that a partial file is
//! never mistaken for a complete one. [`Pending`] checks that a file can be written before the
//! work whose result it will hold, which may take an hour.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, misuse};

/// Links that lead from one to the next.
const LINKS_MAX: usize = 40;
/// Names that are tried for a temporary file.
const NAMES_MAX: usize = 100;

/// Writes to stdout.
pub fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
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
///
/// A regular file is replaced: it gets its name when all of it is written. Whatever else the path
/// leads to is opened and written to: a device, a pipe, an open file of this process
/// (`/dev/stdout`), a file of another user, a file in a directory that cannot be written to.
///
/// What never happens: a link, a device or a pipe is replaced by a file; a link that another user
/// has put into the directory is followed.
#[derive(Debug)]
pub struct Pending {
    path: PathBuf,
    file: File,
    mode: Mode,
}

/// How the content gets to its place.
#[derive(Debug, PartialEq, Eq)]
enum Mode {
    /// The content is in this file, which is renamed.
    Rename(PathBuf),
    /// The content takes the place of the open file's content.
    Overwrite,
    /// The content follows the open file's content.
    Append,
}

impl Pending {
    /// Checks that the file can be written.
    pub fn new(path: &Path) -> Result<Pending, Failure> {
        let refused = |error| cannot_write(path, error);
        let path = end_of_links(path).map_err(refused)?;
        if let Some(file) = opened_before(&path) {
            return Ok(Pending { file: file.map_err(refused)?, path, mode: Mode::Append });
        }
        let existing = match fs::metadata(&path) {
            Ok(existing) => Some(existing),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(refused(error)),
        };
        let in_place = |path: PathBuf| {
            let file = File::options().write(true).open(&path).map_err(refused)?;
            Ok(Pending { path, file, mode: Mode::Overwrite })
        };
        if existing.as_ref().is_some_and(|existing| !is_replaceable(existing)) {
            return in_place(path);
        }
        let (temporary, file) = match create_beside(&path) {
            Err(error) if existing.is_some() && error.kind() == ErrorKind::PermissionDenied => {
                return in_place(path);
            }
            created => created.map_err(refused)?,
        };
        let pending = Pending { path, file, mode: Mode::Rename(temporary) };
        if let Some(existing) = existing {
            pending.file.set_permissions(existing.permissions()).map_err(refused)?;
        }
        Ok(pending)
    }

    /// Writes the whole content, then gives the file its name. If `path` is a pipe or an open file
    /// whose reader closes early, that is not an error.
    pub fn write(mut self, text: impl AsRef<[u8]>) -> Result<(), Failure> {
        match self.write_all(text.as_ref()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(cannot_write(&self.path, error))
            }
            _ => Ok(()),
        }
    }

    fn write_all(&mut self, text: &[u8]) -> io::Result<()> {
        let temporary = match &self.mode {
            Mode::Append => return self.file.write_all(text),
            Mode::Overwrite => return overwrite(&mut self.file, text),
            Mode::Rename(temporary) => temporary,
        };
        self.file.write_all(text)?;
        // Sync before the rename: otherwise a crash could leave the name without the content.
        self.file.sync_all()?;
        match fs::rename(temporary, &self.path) {
            // A file that is mounted by itself can be written to, but not replaced.
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                overwrite(&mut File::options().write(true).open(&self.path)?, text)
            }
            Err(error) => Err(error),
            Ok(()) => {
                self.mode = Mode::Overwrite;
                Ok(())
            }
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Mode::Rename(temporary) = &self.mode {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// Writes the whole content of an open file. Only a regular file has an earlier content to drop.
fn overwrite(file: &mut File, text: &[u8]) -> io::Result<()> {
    if file.metadata()?.is_file() {
        file.set_len(0)?;
    }
    file.write_all(text)
}

/// Where a path leads to. The last link may lead to a file that does not exist yet.
fn end_of_links(path: &Path) -> io::Result<PathBuf> {
    let mut end = path.to_owned();
    for _ in 0..LINKS_MAX {
        // What a process has open is no path: the kernel only shows it as a link.
        if is_open_file(&end) {
            return Ok(end);
        }
        match fs::read_link(&end) {
            Ok(target) => end = end.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => return Ok(end),
        }
    }
    Err(io::Error::other(format!("it is a chain of more than {LINKS_MAX} links")))
}

/// Whether the path names an open file of a process.
fn is_open_file(path: &Path) -> bool {
    let Some(directory) = path.parent().and_then(|parent| fs::canonicalize(parent).ok()) else {
        return false;
    };
    directory.starts_with("/proc") && directory.ends_with("fd")
}

/// The file, if the path names one that this process has open: what follows is written behind what
/// was written before, also if that is a regular file.
fn opened_before(path: &Path) -> Option<io::Result<File>> {
    if !is_open_file(path) {
        return None;
    }
    let directory = fs::canonicalize(path.parent()?).ok()?;
    let is_own = fs::canonicalize("/proc/self/fd").is_ok_and(|own| own == directory);
    let again = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().map(File::from);
    Some(match path.file_name()?.to_str() {
        Some("1") if is_own => again(io::stdout().as_fd()),
        Some("2") if is_own => again(io::stderr().as_fd()),
        _ => File::options().append(true).open(path),
    })
}

/// Whether a file may take the place of this one: it is a regular file of this user, with one name.
fn is_replaceable(existing: &fs::Metadata) -> bool {
    existing.is_file()
        && existing.nlink() == 1
        && existing.uid() == rustix::process::geteuid().as_raw()
}

/// Creates a new file in the directory of `path`. Tools that read whole directories pass over
/// hidden files.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let name = path.file_name().ok_or(ErrorKind::IsADirectory)?;
    let mut number = 0;
    loop {
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{number}.part", std::process::id()));
        let temporary = path.with_file_name(hidden);
        match File::options().write(true).create_new(true).open(&temporary) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < NAMES_MAX => {
                number += 1;
            }
            created => return Ok((temporary, created?)),
        }
    }
}

fn cannot_write(path: &Path, error: io::Error) -> Failure {
    misuse(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;

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

    /// Root replaced the machine's `/dev/stdout` by a file.
    #[test]
    fn what_a_process_has_open_is_written_to_and_not_replaced() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        fs::write(&file, "before ").unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let open = File::options().append(true).open(&file).unwrap();
        let number = |fd: BorrowedFd<'_>| fd.as_raw_fd();
        for (at, fd) in [writer.as_fd(), open.as_fd()].into_iter().enumerate() {
            for directory in ["/dev/fd", "/proc/self/fd", "/proc/thread-self/fd"] {
                let link = home.path().join(format!("link{at}"));
                let path = PathBuf::from(directory).join(number(fd).to_string());
                std::os::unix::fs::symlink(&path, &link).unwrap();
                for path in [&path, &link] {
                    Pending::new(path).unwrap().write("text ").unwrap();
                    assert!(fs::symlink_metadata(path).unwrap().is_symlink());
                }
                fs::remove_file(&link).unwrap();
            }
        }
        drop(writer);
        let mut got = String::new();
        reader.read_to_string(&mut got).unwrap();
        assert_eq!(got, "text ".repeat(6));
        assert_eq!(fs::read_to_string(&file).unwrap(), "before ".to_owned() + &"text ".repeat(6));
        assert_eq!(Pending::new(Path::new("/dev/stdout")).unwrap().mode, Mode::Append);
    }

    #[test]
    fn a_pipe_is_written_to_and_not_replaced() {
        let home = tempfile::tempdir().unwrap();
        let (pipe, link) = (home.path().join("pipe"), home.path().join("link"));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        std::os::unix::fs::symlink("pipe", &link).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        Pending::new(&link).unwrap().write("text").unwrap();
        assert_eq!(reader.join().unwrap(), "text");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(!fs::symlink_metadata(&pipe).unwrap().is_file());
    }

    #[test]
    fn a_link_to_no_file_yet_stays_and_gets_one() {
        let home = tempfile::tempdir().unwrap();
        let link = home.path().join("link");
        std::os::unix::fs::symlink("file", &link).unwrap();
        Pending::new(&link).unwrap().write("text").unwrap();
        assert_eq!(fs::read_to_string(home.path().join("file")).unwrap(), "text");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let round = home.path().join("round");
        std::os::unix::fs::symlink("round", &round).unwrap();
        let error = Pending::new(&round).unwrap_err();
        assert!(error.to_string().contains("a chain of more than 40 links"), "{error}");
    }

    #[test]
    fn a_file_with_two_names_keeps_both() {
        let home = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| home.path().join(name));
        fs::write(&one, "a long text before").unwrap();
        fs::hard_link(&one, &two).unwrap();
        Pending::new(&one).unwrap().write("after").unwrap();
        assert_eq!(fs::read_to_string(&two).unwrap(), "after");
    }

    /// In a directory that others may write to, a temporary file with a known name was a trap.
    #[test]
    fn a_link_in_place_of_the_temporary_file_is_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let (path, victim) = (home.path().join("file"), home.path().join("victim"));
        fs::write(&victim, "kept").unwrap();
        let trap = format!(".file.{}-0.part", std::process::id());
        std::os::unix::fs::symlink(&victim, home.path().join(trap)).unwrap();
        Pending::new(&path).unwrap().write("text").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
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
