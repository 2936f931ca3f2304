//! The root of a sandbox: a tmpfs with directories of the machine that are bound read-only.
//!
//! A directory that only shows the machine's is one bind. To put something into it, the directory
//! is made in the tmpfs and each of its entries is bound. So nothing outside is ever written, and
//! the sandbox can have any path. Sockets and devices are never shown: a program outside would
//! answer.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_bind_recursive,
    mount_change, mount_remount, unmount,
};
use rustix::process::{chdir, pivot_root};

use crate::job::Job;
use crate::limits::{ENTRIES_MAX, ROOT};

/// Directories of programs and libraries, and their settings.
const SYSTEM: &[&str] =
    &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix/store", "/gnu"];
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom"];
/// Where the machine's root is until the sandbox is complete.
const OLD: &str = "/old";
const NEW: &str = "/new";

enum Node {
    Directory(BTreeMap<OsString, Node>),
    Bound,
    Link(PathBuf),
    File(Vec<u8>),
}

impl Node {
    fn of_machine(path: &Path) -> Option<Node> {
        let kind = fs::symlink_metadata(outside(path)).ok()?.file_type();
        match fs::read_link(outside(path)) {
            Ok(target) => Some(Node::Link(target)),
            Err(_) => (kind.is_dir() || kind.is_file()).then_some(Node::Bound),
        }
    }
}

/// The path on the machine.
fn outside(path: &Path) -> PathBuf {
    Path::new(OLD).join(path.strip_prefix("/").unwrap_or(path))
}

/// Replaces the root of this mount namespace.
pub(crate) fn enter(job: &Job) -> Result<(), String> {
    let step = |what: &'static str| move |error| format!("{what}: {error}");
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(step("the mounts cannot be made private"))?;
    let options = ROOT.to_owned() + "\0";
    let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes()).ok();
    let safe = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", "/tmp", "tmpfs", safe, options).map_err(step("a tmpfs cannot be mounted"))?;
    let made = fs::create_dir("/tmp/old").and_then(|()| fs::create_dir("/tmp/new"));
    made.map_err(|error| format!("the tmpfs: {error}"))?;
    pivot_root("/tmp", "/tmp/old").map_err(step("the root cannot be replaced"))?;
    chdir("/").map_err(step("the root"))?;
    mount("tmpfs", NEW, "tmpfs", safe, options).map_err(step("a tmpfs cannot be mounted"))?;
    planned(job).make(Path::new(NEW), Path::new("/")).map_err(|error| error.to_string())?;
    remount_read_only().map_err(|error| format!("read-only mounts: {error}"))?;
    devices().map_err(|error| format!("/dev: {error}"))?;
    let all = safe | MountFlags::NOEXEC;
    mount("proc", "/new/proc", "proc", all, None).map_err(step("/proc cannot be mounted"))?;
    pivot_root(NEW, "/new/old").map_err(step("the root cannot be replaced"))?;
    chdir("/").map_err(step("the root"))?;
    unmount(OLD, UnmountFlags::DETACH).map_err(step("the old root cannot be unmounted"))?;
    fs::remove_dir(OLD).map_err(|error| format!("the old root: {error}"))
}

fn planned(job: &Job) -> Node {
    let mut root = Root { top: BTreeMap::new() };
    for path in SYSTEM {
        let _ = root.show(Path::new(path), 0);
    }
    root.hide_sockets(Path::new("/etc"));
    for path in &job.shown {
        if let Some(path) = root.show(path, 0) {
            root.hide_sockets(&path);
        }
    }
    for path in ["/dev/shm", "/proc", "/run", "/tmp", "/var/tmp", "/old"] {
        root.directory(Path::new(path), 0);
    }
    for path in &job.writable {
        root.directory(path, 0);
    }
    for (path, content) in &job.files {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { continue };
        let parent = root.directory(parent, 0);
        parent.insert(name.to_owned(), Node::File(content.clone()));
    }
    Node::Directory(root.top)
}

struct Root {
    top: BTreeMap<OsString, Node>,
}

/// Symbolic links that lead to each other, at most.
const LINKS_MAX: usize = 16;

impl Root {
    /// Shows a path of the machine, if it exists there. Returns the path without symbolic links.
    fn show(&mut self, path: &Path, links: usize) -> Option<PathBuf> {
        if let Some((link, target, path)) = self.through_link(&names(path)) {
            if links > LINKS_MAX {
                return None;
            }
            let shown = self.show(&path, links + 1);
            if !self.is_shown(&link) {
                self.directory(link.parent()?, 0)
                    .insert(link.file_name()?.into(), Node::Link(target));
            }
            return shown;
        }
        let node = Node::of_machine(path)?;
        if !self.is_shown(path) {
            self.directory(path.parent()?, 0).insert(path.file_name()?.to_owned(), node);
        }
        Some(path.to_owned())
    }

    fn is_shown(&self, path: &Path) -> bool {
        let mut entries = &self.top;
        for part in names(path) {
            match entries.get(&part) {
                Some(Node::Directory(below)) => entries = below,
                Some(Node::Bound) => return true,
                Some(Node::Link(_) | Node::File(_)) | None => return false,
            }
        }
        false
    }

    /// A directory in the tmpfs.
    fn directory(&mut self, path: &Path, links: usize) -> &mut BTreeMap<OsString, Node> {
        let parts = names(path);
        if let Some((link, target, path)) = self.through_link(&parts).filter(|_| links < LINKS_MAX)
        {
            if !self.is_shown(&link)
                && let (Some(parent), Some(name)) = (link.parent(), link.file_name())
            {
                self.directory(parent, links + 1).insert(name.to_owned(), Node::Link(target));
            }
            return self.directory(&path, links + 1);
        }
        let (mut entries, mut at) = (&mut self.top, PathBuf::from("/"));
        for part in parts {
            at.push(&part);
            let node = entries.entry(part).or_insert_with(|| Node::Directory(BTreeMap::new()));
            match node {
                Node::Directory(_) => {}
                Node::Bound => *node = Node::Directory(entries_of(&at)),
                Node::Link(_) | Node::File(_) => *node = Node::Directory(BTreeMap::new()),
            }
            let Node::Directory(below) = node else { unreachable!("it was made a directory") };
            entries = below;
        }
        entries
    }

    /// The first symbolic link of a path, its target, and the path with the link followed.
    fn through_link(&self, parts: &[OsString]) -> Option<(PathBuf, PathBuf, PathBuf)> {
        let (mut entries, mut at) = (Some(&self.top), PathBuf::from("/"));
        for (index, part) in parts.iter().enumerate() {
            let target = match entries.map(|entries| entries.get(part)) {
                Some(Some(Node::Link(target))) => Some(target.clone()),
                Some(Some(Node::Directory(below))) => {
                    entries = Some(below);
                    None
                }
                Some(Some(Node::File(_))) => return None,
                Some(Some(Node::Bound)) | Some(None) | None => {
                    entries = None;
                    fs::read_link(outside(&at.join(part))).ok()
                }
            };
            if let Some(target) = target {
                let rest: PathBuf = parts[index + 1..].iter().collect();
                let path = normal(&at.join(&target).join(rest));
                return Some((at.join(part), target, path));
            }
            at.push(part);
        }
        None
    }

    /// Takes the sockets, pipes and devices out of a directory that is shown. A directory that
    /// cannot be looked through, or has too many entries for that, is empty. No part of the path is
    /// a symbolic link.
    fn hide_sockets(&mut self, path: &Path) {
        let (mut open, mut count) = (vec![path.to_owned()], 0);
        let mut hidden = Vec::new();
        while let Some(directory) = open.pop() {
            let entries = match fs::read_dir(outside(&directory)) {
                Ok(entries) => entries,
                Err(error) if error.kind() == io::ErrorKind::NotADirectory => continue,
                Err(_) => {
                    self.directory(&directory, 0).clear();
                    continue;
                }
            };
            for entry in entries.flatten() {
                count += 1;
                let Ok(kind) = entry.file_type() else { continue };
                let path = directory.join(entry.file_name());
                if kind.is_dir() {
                    open.push(path);
                } else if !kind.is_file() && !kind.is_symlink() {
                    debug_assert!(
                        kind.is_socket()
                            || kind.is_fifo()
                            || kind.is_char_device()
                            || kind.is_block_device()
                    );
                    hidden.push(path);
                }
            }
            if count > ENTRIES_MAX {
                self.directory(path, 0).clear();
                return;
            }
        }
        for path in hidden {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { continue };
            self.directory(parent, 0).remove(name);
        }
    }
}

/// The entries of a directory of the machine. Sockets and devices are left out.
fn entries_of(path: &Path) -> BTreeMap<OsString, Node> {
    let entries = fs::read_dir(outside(path)).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    names.filter_map(|name| Some((name.clone(), Node::of_machine(&path.join(name))?))).collect()
}

fn names(path: &Path) -> Vec<OsString> {
    let parts = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        _ => None,
    });
    parts.collect()
}

/// The path without `.` and `..`.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => _ = normal.pop(),
            _ => {}
        }
    }
    normal
}

impl Node {
    /// Makes the node at a path of the new root.
    fn make(&self, at: &Path, path: &Path) -> io::Result<()> {
        let named = |error: io::Error| io::Error::other(format!("{}: {error}", path.display()));
        match self {
            Node::Directory(entries) => {
                match fs::create_dir(at) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    made => made.map_err(named)?,
                }
                let mut entries = entries.iter();
                entries.try_for_each(|(name, node)| node.make(&at.join(name), &path.join(name)))
            }
            Node::Link(target) => std::os::unix::fs::symlink(target, at).map_err(named),
            Node::File(content) => fs::write(at, content).map_err(named),
            Node::Bound => {
                let from = outside(path);
                match fs::metadata(&from)?.is_dir() {
                    true => fs::create_dir(at)?,
                    false => drop(File::create(at)?),
                }
                mount_bind_recursive(&from, at).map_err(|error| named(error.into()))
            }
        }
    }
}

/// Makes every bind read-only, also the mounts below it. The flags that a mount has are locked for
/// us, so they are kept.
fn remount_read_only() -> io::Result<()> {
    let mounts = fs::read_to_string("/old/proc/self/mountinfo")?;
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(4);
        let (Some(at), Some(options)) = (words.next(), words.next()) else { continue };
        let at = unescaped(at);
        if !at.starts_with("/new/") {
            continue;
        }
        let mut flags = MountFlags::BIND | MountFlags::RDONLY;
        flags |= MountFlags::NOSUID | MountFlags::NODEV;
        for option in options.split(',') {
            flags |= match option {
                "noexec" => MountFlags::NOEXEC,
                "noatime" => MountFlags::NOATIME,
                "nodiratime" => MountFlags::NODIRATIME,
                "relatime" => MountFlags::RELATIME,
                _ => MountFlags::empty(),
            };
        }
        mount_remount(&at, flags, c"")
            .map_err(|error| io::Error::other(format!("{at}: {error}")))?;
    }
    Ok(())
}

/// A path of mountinfo: a blank and a few others are octal numbers.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut path = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => path.extend([char::from(code).to_string().as_str(), &part[3..]]),
            None => path.extend(["\\", part]),
        }
    }
    path
}

fn devices() -> io::Result<()> {
    for name in DEVICES {
        let at = format!("/new/dev/{name}");
        drop(File::create(&at)?);
        mount_bind(format!("/old/dev/{name}"), &at)?;
    }
    for (name, target) in [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")]
    {
        std::os::unix::fs::symlink(format!("/proc/self/{target}"), format!("/new/dev/{name}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_mountinfo_may_have_blanks() {
        assert_eq!(unescaped(r"/a\040b\134"), r"/a b\");
        assert_eq!(unescaped(r"/a\9"), r"/a\9");
    }

    #[test]
    fn a_path_without_dots_stays_below_the_root() {
        assert_eq!(normal(Path::new("/a/../../b/./c")), Path::new("/b/c"));
    }
}
