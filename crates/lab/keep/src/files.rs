//! The directory: names of its files, and the lock of its recorder.
//!
//! ```text
//! DIR/2026-11-28-nginx.trial      the first trial of a day
//! DIR/2026-11-28-nginx.2.trial    the second: the recorder or the server had been restarted
//! DIR/.nginx.lock                 held by the recorder of this server
//! DIR/.2026-11-20-nginx.trial.new a thinned trial that is being written
//! ```
//!
//! Names sort by day. The name of a server has no dot, so that the number of a part is never taken
//! for a part of the name.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::calendar::Day;
use crate::error::Error;

/// Files that SQLite keeps beside a trial that is being written.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Parts of one day. A day with more is that of a server that never stays up.
const PARTS_MAX: u32 = 10_000;

/// A trial of the directory that a recorder has made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kept {
    pub(crate) day: Day,
    pub(crate) part: u32,
    pub(crate) path: PathBuf,
}

impl Kept {
    /// Its size, with the files beside it.
    pub(crate) fn bytes(&self) -> u64 {
        let size = |path: PathBuf| fs::metadata(path).map_or(0, |file| file.len());
        let beside = BESIDE.iter().map(|suffix| size(beside(&self.path, suffix)));
        size(self.path.clone()) + beside.sum::<u64>()
    }

    /// Removes it.
    pub(crate) fn remove(&self) -> io::Result<()> {
        fs::remove_file(&self.path)?;
        for suffix in BESIDE {
            match fs::remove_file(beside(&self.path, suffix)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether a recorder has left a journal beside it.
    pub(crate) fn has_journal(&self) -> bool {
        beside(&self.path, "-wal").exists()
    }

    /// Where its thinned form is written before it takes its place.
    pub(crate) fn thinned(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!(".{name}.new"))
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The name of a server in names of files.
#[must_use]
pub fn plain(server: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let name: String = server.chars().map(plain).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "server".to_owned() } else { name.to_owned() }
}

/// The day and the number of a file that a recorder of this server has made.
fn parse(name: &str, server: &str) -> Option<(Day, u32)> {
    let stem = name.strip_suffix(".trial")?;
    let (date, rest) = (stem.get(..10)?, stem.get(10..)?);
    let rest = rest.strip_prefix('-')?.strip_prefix(server)?;
    let part = match rest.strip_prefix('.') {
        Some(part) => part.parse().ok()?,
        None if rest.is_empty() => 1,
        None => return None,
    };
    Some((Day::parse(date)?, part))
}

/// The trials that recorders of this server have made, the oldest first.
pub(crate) fn list(directory: &Path, server: &str) -> io::Result<Vec<Kept>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if let Some((day, part)) = parse(&entry.file_name().to_string_lossy(), server) {
            found.push(Kept { day, part, path: entry.path() });
        }
    }
    found.sort();
    Ok(found)
}

/// The next free name of a day.
pub(crate) fn next(directory: &Path, server: &str, day: Day) -> io::Result<PathBuf> {
    let last =
        list(directory, server)?.iter().filter(|kept| kept.day == day).map(|one| one.part).max();
    let name = match last {
        None => format!("{day}-{server}.trial"),
        Some(last) if last < PARTS_MAX => format!("{day}-{server}.{}.trial", last + 1),
        Some(_) => return Err(io::Error::other(format!("{day} has {PARTS_MAX} trials already"))),
    };
    Ok(directory.join(name))
}

/// The right to record a server into a directory. It ends with the process, however it ends.
#[derive(Debug)]
pub(crate) struct Lock {
    /// As long as it is open.
    _held: File,
}

impl Lock {
    /// Takes the lock, and removes what a killed recorder has left unfinished.
    pub(crate) fn take(directory: &Path, server: &str) -> Result<Lock, Error> {
        let failed = |source| Error::Directory { path: directory.to_owned(), source };
        fs::create_dir_all(directory).map_err(failed)?;
        let path = directory.join(format!(".{server}.lock"));
        let open = File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let mut file = open.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let pid = fs::read_to_string(&path).unwrap_or_default().trim().to_owned();
                return Err(Error::Locked {
                    path: directory.to_owned(),
                    server: server.to_owned(),
                    pid,
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).map_err(failed)?;
        for kept in list(directory, server).map_err(failed)? {
            let left = Kept { path: kept.thinned(), ..kept };
            match left.remove() {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        Ok(Lock { _held: file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let home = tempfile::tempdir().unwrap();
        let day = Day::parse("2026-11-28").unwrap();
        let other = day.plus(-1);
        for (server, day, name) in [
            ("nginx", day, "2026-11-28-nginx.trial"),
            ("nginx", day, "2026-11-28-nginx.2.trial"),
            ("nginx", day, "2026-11-28-nginx.3.trial"),
            ("nginx", other, "2026-11-27-nginx.trial"),
            ("nginx-2", day, "2026-11-28-nginx-2.trial"),
        ] {
            let path = next(home.path(), server, day).unwrap();
            assert_eq!(path.file_name().unwrap().to_str().unwrap(), name);
            fs::write(path, "").unwrap();
        }
        for foreign in ["monday.trial", "2026-11-28-nginx.txt", "2026-11-28.trial", "é.trial"] {
            fs::write(home.path().join(foreign), "").unwrap();
        }
        let found = list(home.path(), "nginx").unwrap();
        let parts: Vec<(Day, u32)> = found.iter().map(|kept| (kept.day, kept.part)).collect();
        assert_eq!(parts, [(other, 1), (day, 1), (day, 2), (day, 3)]);
        assert_eq!(plain("nginx: worker.1"), "nginx--worker-1");
        assert_eq!(plain("/"), "server");
    }

    #[test]
    fn a_directory_has_one_recorder_of_a_server() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("kept");
        let lock = Lock::take(&directory, "nginx").unwrap();
        let error = Lock::take(&directory, "nginx").unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        assert!(error.contains("nginx"), "{error}");
        Lock::take(&directory, "haproxy").unwrap();
        drop(lock);
        let left = directory.join(".2026-11-28-nginx.trial.new");
        fs::write(directory.join("2026-11-28-nginx.trial"), "").unwrap();
        fs::write(&left, "half").unwrap();
        Lock::take(&directory, "nginx").unwrap();
        assert!(!left.exists());
    }
}
