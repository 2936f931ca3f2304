//! The files of a package, before they are written: paths, modes, contents.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Files by their path relative to the root of the package.
#[derive(Debug, Clone, Default)]
pub struct Files {
    entries: BTreeMap<String, (u32, Content)>,
}

#[derive(Debug, Clone)]
enum Content {
    Directory,
    Text(Vec<u8>),
    CopyOf(PathBuf),
}

/// Paths in texts, and what they are for a package that is unpacked in `/usr/local`.
const LOCAL: [(&str, &str); 2] = [
    ("/usr/bin/plimsoll", "/usr/local/bin/plimsoll"),
    ("/etc/plimsoll/", "/usr/local/etc/plimsoll/"),
];

impl Content {
    fn for_usr_local(&self) -> Content {
        let Content::Text(bytes) = self else { return self.clone() };
        // What is not text is compressed: the manual pages.
        let Ok(text) = std::str::from_utf8(bytes) else { return self.clone() };
        let moved = LOCAL.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
        Content::Text(moved.into_bytes())
    }
}

impl Files {
    /// None yet.
    pub fn new() -> Files {
        Files::default()
    }

    /// Adds a file with this content.
    pub fn text(&mut self, path: &str, text: impl Into<Vec<u8>>) -> &mut Files {
        self.add(path, 0o644, Content::Text(text.into()))
    }

    /// Adds a program or a script with this content.
    pub fn script(&mut self, path: &str, text: impl Into<Vec<u8>>) -> &mut Files {
        self.add(path, 0o755, Content::Text(text.into()))
    }

    /// Adds a copy of a file, with these permissions.
    pub fn copy(&mut self, path: &str, mode: u32, of: &Path) -> &mut Files {
        self.add(path, mode, Content::CopyOf(of.to_owned()))
    }

    /// Adds a directory with these permissions. Parents of files need not be added.
    pub fn directory(&mut self, path: &str, mode: u32) -> &mut Files {
        self.add(path, mode, Content::Directory)
    }

    fn add(&mut self, path: &str, mode: u32, content: Content) -> &mut Files {
        self.entries.insert(path.to_owned(), (mode, content));
        self
    }

    /// The paths, sorted.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The same files, to be unpacked in `/usr/local`. Texts name the program and its configuration
    /// where they are then.
    pub fn for_usr_local(&self) -> Files {
        let entries = self.entries.iter().map(|(path, (mode, content))| {
            let path = path.strip_prefix("usr/").unwrap_or(path);
            (path.to_owned(), (*mode, content.for_usr_local()))
        });
        Files { entries: entries.collect() }
    }

    /// The sum of the sizes of the files, in bytes.
    pub(crate) fn bytes(&self) -> io::Result<u64> {
        self.entries.values().try_fold(0, |sum, (_, content)| {
            Ok(sum
                + match content {
                    Content::Directory => 0,
                    Content::Text(text) => text.len() as u64,
                    Content::CopyOf(of) => fs::metadata(of)?.len(),
                })
        })
    }

    /// Writes them below a directory, which is made.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or written.
    pub fn write_to(&self, root: &Path, epoch: u64) -> io::Result<()> {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(epoch);
        make_directory(root)?;
        for (path, (mode, content)) in &self.entries {
            let to = root.join(path);
            let context = |error| io::Error::other(format!("{}: {error}", to.display()));
            let parents: Vec<&Path> = Path::new(path).ancestors().skip(1).collect();
            for parent in parents.iter().rev().filter(|parent| !root.join(parent).exists()) {
                make_directory(&root.join(parent)).map_err(context)?;
            }
            match content {
                Content::Directory => make_directory(&to).map_err(context)?,
                Content::Text(text) => fs::write(&to, text).map_err(context)?,
                Content::CopyOf(of) => {
                    fs::copy(of, &to)
                        .map(drop)
                        .map_err(|error| io::Error::other(format!("{}: {error}", of.display())))?;
                }
            }
            fs::set_permissions(&to, fs::Permissions::from_mode(*mode)).map_err(context)?;
            if !matches!(content, Content::Directory) {
                fs::File::options().write(true).open(&to)?.set_modified(time).map_err(context)?;
            }
        }
        Ok(())
    }
}

/// Whatever the umask is, directories of a package are open to all.
fn make_directory(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_with_their_modes() {
        let root = std::env::temp_dir().join(format!("plimsoll-files-{}", std::process::id()));
        let mut files = Files::new();
        files.text("a/b/c.txt", "x").script("a/run", "#!/bin/sh\n").directory("d", 0o750);
        files.write_to(&root, 1_000_000_000).unwrap();
        let mode = |path: &str| root.join(path).metadata().unwrap().permissions().mode() & 0o7777;
        let modes = ["a", "a/b", "a/b/c.txt", "a/run", "d"].map(mode);
        assert_eq!(modes, [0o755, 0o755, 0o644, 0o755, 0o750]);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(files.bytes().unwrap(), 11);
    }

    #[test]
    fn files_for_usr_local_name_paths_there() {
        let mut files = Files::new();
        let unit = "ExecStart=/usr/bin/plimsoll serve -c /etc/plimsoll/plimsoll.toml";
        files.text("usr/lib/systemd/system/plimsoll.service", unit);
        files.text("etc/plimsoll/x", [0xff]).directory("usr/share", 0o755);
        let local = files.for_usr_local();
        let paths: Vec<&str> = local.paths().collect();
        assert_eq!(paths, ["etc/plimsoll/x", "lib/systemd/system/plimsoll.service", "share"]);
        let Content::Text(unit) = &local.entries[paths[1]].1 else { panic!("not a text") };
        let expected =
            "ExecStart=/usr/local/bin/plimsoll serve -c /usr/local/etc/plimsoll/plimsoll.toml";
        assert_eq!(String::from_utf8_lossy(unit), expected);
    }
}
