//! A temporary directory for the files of one command.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, misuse};

/// A directory that is deleted when this is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates a private directory for temporary files, named after the command.
    pub fn new(verb: &str) -> Result<Scratch, Failure> {
        let path = std::env::temp_dir().join(format!("plimsoll-{verb}-{}", std::process::id()));
        // Only this user may read it, and an existing directory is never used.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| misuse(format!("cannot create {}: {error}", path.display())))?;
        Ok(Scratch(path))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
