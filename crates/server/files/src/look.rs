//! Looking for files: the directories that a core has open, and the files below them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use coding::{Accept, Coding};
use config::{Files, REQUESTED};
use runtime::fs::{Below, Directory, File};
use runtime::time::{self, Instant};

use crate::{Shown, beside};

/// How long a core uses a directory of files before it looks for it by its path again: a link that
/// leads to another directory takes effect after this time.
const ROOT_KEPT: Duration = Duration::from_secs(1);
/// Directories of files that a core has open.
const ROOTS_MAX: usize = 256;

/// The directories of files that a core has opened, each with the instant.
#[derive(Debug, Default)]
pub struct Roots(RefCell<HashMap<PathBuf, (Instant, Rc<Directory>)>>);

impl Roots {
    async fn get(&self, path: &Path) -> io::Result<Rc<Directory>> {
        let now = time::now();
        let is_new = |at: Instant| at.elapsed() < ROOT_KEPT;
        if let Some((at, directory)) = self.0.borrow().get(path)
            && is_new(*at)
        {
            return Ok(Rc::clone(directory));
        }
        let directory = Rc::new(Directory::open(path).await?);
        let mut all = self.0.borrow_mut();
        if all.len() >= ROOTS_MAX {
            all.retain(|_, (at, _)| is_new(*at));
        }
        if all.len() < ROOTS_MAX {
            all.insert(path.to_path_buf(), (now, Rc::clone(&directory)));
        }
        assert!(all.len() <= ROOTS_MAX, "the number of open directories is bounded");
        Ok(directory)
    }
}

/// What is there for a path.
#[derive(Debug)]
pub enum Found {
    /// A directory, whose path has no slash at its end.
    Directory,
    /// A file.
    File(Opened),
}

/// A file that is open.
#[derive(Debug)]
pub struct Opened {
    /// The file.
    pub file: File,
    bytes: u64,
    /// When it was changed, in unix nanoseconds.
    pub modified_ns: u64,
    /// Its name, without the ending of a coding.
    pub name: Vec<u8>,
    /// How it is coded.
    pub coding: Option<Coding>,
}

impl Opened {
    /// The file as its responses show it.
    #[must_use]
    pub fn shown<'f>(&'f self, files: &'f Files) -> Shown<'f> {
        let Opened { bytes, modified_ns, coding, .. } = *self;
        let (varies, cache_control) = (files.precompressed, files.cache_control.as_deref());
        Shown { name: &self.name, bytes, modified_ns, coding, varies, cache_control }
    }
}

/// Looks for the file of this name, and then for the others that the route tries; `None`: there is
/// none. `accept`: the codings of files beside it that the client accepts.
///
/// # Errors
/// What the system says: it may not be read, or a link leads out of the directory.
pub async fn look(
    roots: &Roots,
    files: &Files,
    name: Vec<u8>,
    accept: Accept,
) -> io::Result<Option<Found>> {
    let root = match roots.get(&files.root).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        root => root?,
    };
    let open = async |name: &[u8]| match root.open_below(name, files.symlinks).await {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some),
    };
    let first_of = async |names: &mut dyn Iterator<Item = Vec<u8>>| {
        for name in names {
            if let Some(Below::File { file, bytes, modified_ns }) = open(&name).await? {
                return Ok(Some(Opened { file, bytes, modified_ns, name, coding: None }));
            }
        }
        io::Result::Ok(None)
    };
    let is_directory = name.is_empty() || name.ends_with(b"/");
    let in_directory = |name: &[u8]| {
        let slash = if name.is_empty() || name.ends_with(b"/") { "" } else { "/" };
        let name = [name, slash.as_bytes()].concat();
        files.index.iter().map(move |index| [&name[..], index.as_bytes()].concat())
    };
    let found = match is_directory {
        true => first_of(&mut in_directory(&name)).await?,
        false => match open(&name).await? {
            Some(Below::File { file, bytes, modified_ns }) => {
                let name = name.clone();
                Some(Opened { file, bytes, modified_ns, name, coding: None })
            }
            Some(Below::Directory) if first_of(&mut in_directory(&name)).await?.is_some() => {
                return Ok(Some(Found::Directory));
            }
            Some(Below::Directory) | None => None,
        },
    };
    // A path that ends with a slash names no file: the file without it may have a guard by its
    // path. `{path}/index.html` is in the directory.
    let of_requested = |ending: &str| match name.strip_suffix(b"/") {
        Some(directory) if ending.starts_with('/') => Some([directory, ending.as_bytes()].concat()),
        Some(_) => None,
        None => Some([&name[..], ending.as_bytes()].concat()),
    };
    let mut others = files.try_files.iter().filter_map(|path| match path.strip_prefix(REQUESTED) {
        Some(ending) => of_requested(ending),
        None => Some(path.trim_start_matches('/').as_bytes().to_vec()),
    });
    let found = match found {
        None => first_of(&mut others).await?,
        found => found,
    };
    let Some(opened) = found else { return Ok(None) };
    if files.precompressed {
        for (coding, ending) in beside(accept) {
            let beside = [&opened.name[..], ending.as_bytes()].concat();
            if let Some(Below::File { file, bytes, modified_ns }) = open(&beside).await? {
                let (name, coding) = (opened.name, Some(coding));
                return Ok(Some(Found::File(Opened { file, bytes, modified_ns, name, coding })));
            }
        }
    }
    Ok(Some(Found::File(opened)))
}
