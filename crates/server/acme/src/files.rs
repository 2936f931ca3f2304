//! The files of one authority, in its directory.
//!
//! | file | content |
//! | --- | --- |
//! | `account.json` | the account and its key |
//! | `NAME.pem` | the chain of the certificate and its key, so that both change at once |
//! | `NAME.json` | attempts that failed, and an order that is in progress |
//! | `answer.json` | the answer to the check in progress, for the other members of a cluster |
//! | `lock` | locked by the owner of the directory |
//!
//! The directory has mode 0700, each file 0600. A file is written under another name, made durable,
//! and renamed. So a crash leaves the old content or the new content.

use std::fs::{DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use config::Acme;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::limits::FILE_BYTES_MAX;

/// The directory of an authority.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    directory: PathBuf,
}

/// The right to ask the authority, until it is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Ownership(#[expect(dead_code, reason = "the open file holds the lock")] File);

impl Files {
    /// Nothing is read or made yet.
    pub(crate) fn at(settings: &Acme) -> Files {
        Files { directory: settings.own_path() }
    }

    /// Makes the directory, and closes it to other users.
    pub(crate) fn make(&self) -> Result<(), String> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.directory);
        made.and_then(|()| {
            let mode = self.directory.metadata()?.permissions().mode();
            match mode & 0o077 {
                0 => Ok(()),
                _ => std::fs::set_permissions(&self.directory, Permissions::from_mode(0o700)),
            }
        })
        .map_err(|error| {
            format!(
                "{} cannot be used ({error}): it must be a directory of the server's user",
                self.directory.display()
            )
        })
    }

    /// Makes this process the owner; `None`: another process is.
    pub(crate) fn own(&self) -> Result<Option<Ownership>, String> {
        let path = self.directory.join("lock");
        let file = private().create(true).truncate(false).open(&path);
        let locked = file.and_then(|file| match file.try_lock() {
            Ok(()) => Ok(Some(Ownership(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        });
        locked.map_err(|error| format!("{} cannot be locked: {error}", path.display()))
    }

    /// The certificate and the key of a name.
    pub(crate) fn certificate(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        read(&Acme::file_of(&self.directory, name))
    }

    /// When that file was last written; `None`: there is none.
    pub(crate) fn certificate_written(&self, name: &str) -> Option<SystemTime> {
        Acme::file_of(&self.directory, name).metadata().and_then(|of| of.modified()).ok()
    }

    pub(crate) fn put_certificate(&self, name: &str, pem: &[u8]) -> Result<(), String> {
        self.write(&format!("{name}.pem"), pem)
    }

    /// Reads a file of JSON. One that is damaged is as one that is absent, and is logged.
    pub(crate) fn get<T: DeserializeOwned>(&self, file: &str) -> Result<Option<T>, String> {
        let path = self.directory.join(file);
        let Some(bytes) = read(&path)? else { return Ok(None) };
        let read = serde_json::from_slice(&bytes);
        Ok(read.map_err(|error| tracing::error!("{}: {error}", path.display())).ok())
    }

    pub(crate) fn put(&self, file: &str, content: &impl Serialize) -> Result<(), String> {
        let bytes = serde_json::to_vec(content).map_err(|error| format!("{file}: {error}"))?;
        self.write(file, &bytes)
    }

    pub(crate) fn remove(&self, file: &str) -> Result<(), String> {
        match std::fs::remove_file(self.directory.join(file)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("{file} cannot be removed: {error}"))
            }
            _ => Ok(()),
        }
    }

    fn write(&self, file: &str, bytes: &[u8]) -> Result<(), String> {
        debug_assert!(!file.contains('/') && !file.starts_with('.'), "names were checked");
        let (path, new) = (self.directory.join(file), self.directory.join(format!(".{file}.new")));
        let written = private().create(true).truncate(true).open(&new).and_then(|mut of| {
            // An earlier process may have left it with another mode.
            of.set_permissions(Permissions::from_mode(0o600))?;
            of.write_all(bytes)?;
            of.sync_all()?;
            std::fs::rename(&new, &path)?;
            File::open(&self.directory)?.sync_all()
        });
        written.map_err(|error| format!("{} cannot be written: {error}", path.display()))
    }
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    options
}

/// The content of a file; `None`: there is none.
fn read(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|of| of.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn files_are_for_their_owner_alone_and_change_at_once() {
        let home = tempfile::tempdir().unwrap();
        let settings = Acme { path: home.path().join("a/b"), ..Acme::default() };
        let files = Files::at(&settings);
        assert!(files.put("x.json", &1).is_err(), "there is no directory yet");
        files.make().unwrap();
        std::fs::set_permissions(settings.own_path(), Permissions::from_mode(0o755)).unwrap();
        files.make().unwrap();
        assert_eq!(mode(&settings.own_path()), 0o700);
        assert_eq!(mode(&home.path().join("a")), 0o700);
        // Left by a process that was killed.
        std::fs::write(settings.own_path().join(".x.json.new"), "half").unwrap();
        files.put("x.json", &2).unwrap();
        assert_eq!(files.get::<u8>("x.json").unwrap(), Some(2));
        assert_eq!(mode(&settings.own_path().join("x.json")), 0o600);
        assert_eq!(files.get::<String>("x.json").unwrap(), None, "it is no text");
        assert_eq!(files.get::<u8>("y.json").unwrap(), None);
        files.put_certificate("a.test", b"pem").unwrap();
        assert_eq!(files.certificate("a.test").unwrap().unwrap(), b"pem");
        assert!(files.certificate_written("a.test").is_some());
        files.remove("x.json").unwrap();
        files.remove("x.json").unwrap();
        let owner = files.own().unwrap();
        assert!(owner.is_some() && files.own().unwrap().is_none(), "there is one owner");
        drop(owner);
        assert!(files.own().unwrap().is_some());
    }
}
