//! The trials in a directory.

use std::path::{Path, PathBuf};

use command::failure::{Failure, misuse};

/// The files `*.trial` in a directory, by name. Fails if there is none.
pub(crate) fn in_directory(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error| misuse(format!("cannot read {}: {error}", directory.display()));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "trial") {
            found.push(path);
        }
    }
    if found.is_empty() {
        let name = directory.display();
        return Err(misuse(format!("{name} has no trials: it has no file NAME.trial")));
    }
    found.sort();
    Ok(found)
}
