//! The files of the repository, as text, by path relative to its root.
//!
//! Files that git ignores are left out. Without git (in an unpacked archive), everything but
//! `target` and hidden directories is read. Rules work on this tree and touch no disk, so that a
//! test can pass the few files that the rule needs.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;

/// Path relative to the root, with forward slashes, to text. Files that are not UTF-8 are there
/// with an empty text: a link to a picture resolves, and no rule reads it.
#[derive(Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

/// The crate of a file, and the path inside the crate: `crates/http/http1/src/lib.rs` is
/// `("http1", "src/lib.rs")`.
pub(crate) fn crate_of(path: &str) -> Option<(&str, &str)> {
    let folders = ["/src/", "/tests/", "/examples/", "/benches/", "/checks/", "/fuzz_targets/"];
    let at = folders.iter().filter_map(|folder| path.find(folder)).min()?;
    let name = path[..at].rsplit('/').next().unwrap_or("");
    Some((name, &path[at + 1..]))
}

impl Tree {
    pub(crate) fn read(root: &Path) -> io::Result<Tree> {
        let paths = match listed_by_git(root) {
            Some(paths) => paths,
            None => walked(root)?,
        };
        let mut files = BTreeMap::new();
        for path in paths {
            // A file that git still lists and the user has just removed is not an error.
            if let Ok(bytes) = std::fs::read(root.join(&path)) {
                files.insert(path, String::from_utf8(bytes).unwrap_or_default());
            }
        }
        Ok(Tree { files })
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let pairs = files.iter().map(|(path, text)| (path.to_string(), text.to_string()));
        Tree { files: pairs.collect() }
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    pub(crate) fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// A file, or a directory with something in it.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let inside = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self
                .files
                .range(inside.clone()..)
                .next()
                .is_some_and(|(p, _)| p.starts_with(&inside))
    }

    pub(crate) fn with_suffix(&self, suffix: &str) -> impl Iterator<Item = (&str, &str)> {
        self.iter().filter(move |(path, _)| path.ends_with(suffix))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }
}

/// The path that a relative link in a file names; `None` if it leaves the repository.
pub(crate) fn joined(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

pub(crate) fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.split('\0').filter(|path| !path.is_empty()).map(str::to_string).collect())
}

fn walked(root: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut open = vec![String::new()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(root.join(&directory))? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path =
                if directory.is_empty() { name.clone() } else { format!("{directory}/{name}") };
            if entry.file_type()?.is_dir() {
                if name != "target" && name != ".git" {
                    open.push(path);
                }
            } else {
                found.push(path);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_exists_when_something_is_in_it() {
        let tree = Tree::of(&[("docs/serve.md", ""), ("docs-old.md", "")]);
        assert!(tree.exists("docs") && tree.exists("docs/") && tree.exists("docs/serve.md"));
        assert!(!tree.exists("doc") && !tree.exists("docs/load.md"));
    }

    #[test]
    fn a_relative_link_starts_in_the_directory_of_its_file() {
        assert_eq!(joined("docs/a.md", "../b.md").as_deref(), Some("b.md"));
        assert_eq!(joined("docs/a.md", "./img/x.svg").as_deref(), Some("docs/img/x.svg"));
        assert_eq!(joined("docs/a.md", "../../b.md"), None);
    }

    #[test]
    fn the_walk_sees_what_git_sees() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut walked = walked(root).unwrap();
        walked.sort();
        assert!(walked.contains(&"src/tree.rs".to_string()), "{walked:?}");
    }
}
