//! A directory for what a verb makes and nobody keeps.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, misuse};

/// A directory that is gone when it is dropped.
pub struct Scratch(PathBuf);

impl Scratch {
    /// One of its own, among the temporary files, named after the verb.
    pub fn new(verb: &str) -> Result<Scratch, Failure> {
        let path = std::env::temp_dir().join(format!("plimsoll-{verb}-{}", std::process::id()));
        // Nobody else's business, and never one that somebody has put there.
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(|error| misuse(format!("{} cannot be made: {error}", path.display())))?;
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
