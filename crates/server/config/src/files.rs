//! Files that a route serves, as configured.

use std::path::PathBuf;

use super::routes::FieldRule;
use crate::limits::FILE_NAMES_MAX;

/// Files that are looked for before anything else is done with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// The directory of the files.
    pub root: PathBuf,
    /// The name of a file is the path without the prefix of the route.
    pub alias: bool,
    /// The names of the file that is served for a directory.
    pub index: Vec<String>,
    /// What is tried after the path itself: paths that may repeat `{path}`.
    pub try_files: Vec<String>,
    /// Names that begin with a dot are served, too.
    pub dot_files: bool,
    /// Symbolic links are followed to places below the directory.
    pub symlinks: bool,
    /// Files beside a file are coded forms of it.
    pub precompressed: bool,
    /// The value of `Cache-Control`.
    pub cache_control: Option<String>,
}

impl Default for Files {
    fn default() -> Files {
        Files {
            root: PathBuf::new(),
            alias: false,
            index: vec!["index.html".to_owned()],
            try_files: Vec::new(),
            dot_files: false,
            symlinks: true,
            precompressed: false,
            cache_control: None,
        }
    }
}

/// What a path of `try_files` repeats.
pub const REQUESTED: &str = "{path}";

impl Files {
    /// Checks it.
    ///
    /// # Errors
    /// The key that is wrong, and one line: what is wrong.
    pub(crate) fn check(&self, prefix: Option<&str>) -> Result<(), (&'static str, String)> {
        if self.alias && prefix.is_none() {
            return Err(("alias", "alias drops the prefix of the route: write prefix".to_owned()));
        }
        for (key, names) in [("index", &self.index), ("try_files", &self.try_files)] {
            if names.len() > FILE_NAMES_MAX {
                return Err((key, format!("a list has at most {FILE_NAMES_MAX} entries")));
            }
        }
        let has_odd = |name: &str| {
            let dots = |segment: &str| matches!(segment, "." | "..");
            name.split('/').any(dots) || name.contains(['\0', '\\', '?', '#', '%'])
        };
        if let Some(name) = self.index.iter().find(|name| has_odd(name) || name.contains('/')) {
            return Err(("index", format!("{name:?} is not the name of a file")));
        }
        let is_path = |name: &&String| {
            let rest = name.strip_prefix(REQUESTED).unwrap_or(name);
            let begins = name.starts_with('/') || name.starts_with(REQUESTED);
            begins && !has_odd(name) && !name.ends_with('/') && !rest.contains(['{', '}'])
        };
        if let Some(name) = self.try_files.iter().find(|name| !is_path(name)) {
            let text = format!(
                "{name:?} is not the path of a file: write {REQUESTED}.html or /index.html; \
                 where all files are missing, the route leads to its upstream, redirect or answer"
            );
            return Err(("try_files", text));
        }
        let cache_control = self.cache_control.clone().unwrap_or_default();
        let field = FieldRule::Set("Cache-Control".to_owned(), cache_control);
        field.check_written().map_err(|wrong| ("cache_control", wrong))
    }

    /// What is wrong with the directory now.
    pub(crate) fn warning(&self) -> Option<String> {
        let root = self.root.display();
        match std::fs::metadata(&self.root) {
            Ok(found) if found.is_dir() => None,
            Ok(_) => Some(format!("files: {root} is not a directory")),
            Err(error) => Some(format!("files: {root}: {error}: no request gets a file")),
        }
    }
}
