//! Describes the machine, the file system, and whether the page cache was cold.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Where a measurement was made.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// Kernel release.
    pub kernel: String,
    /// Processor model.
    pub processor: String,
    /// Number of processors.
    pub processors: usize,
    /// Type of the directory's file system, such as `ext4`.
    pub file_system: String,
    /// The device that it is mounted from.
    pub device: String,
    /// Whether this is a debug build (not `--release`), in which everything is slower.
    pub checked_build: bool,
}

impl Environment {
    /// Describes the machine and the directory's file system. An unknown value is a question mark.
    pub fn of(directory: &Path) -> Environment {
        let (file_system, device) = mount_of(directory).unwrap_or(("?".into(), "?".into()));
        let processor = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(": ")?.1.trim().to_owned())
        });
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        Environment {
            kernel: kernel.map_or("?".into(), |text| text.trim().to_owned()),
            processor: processor.unwrap_or("?".into()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            file_system,
            device,
            checked_build: cfg!(debug_assertions),
        }
    }

    /// The machine and the build in a few words, without the file system.
    pub fn machine(&self) -> String {
        let build = if self.checked_build { "; a debug build, not --release" } else { "" };
        format!("Linux {}, {} x {}{build}", self.kernel, self.processors, self.processor)
    }
}

/// The load average of the last minute; `None` if the kernel does not report it. If it exceeds the
/// number of processors, other processes competed, and wall-clock times are less reliable than CPU
/// times.
pub fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Type and source of the file system that contains a directory.
fn mount_of(directory: &Path) -> Option<(String, String)> {
    let directory = directory.canonicalize().ok()?;
    mount_in(&fs::read_to_string("/proc/self/mountinfo").ok()?, &directory)
}

/// The mount with the longest path that contains the directory. If there are several, the last
/// one counts, because later mounts cover earlier ones.
fn mount_in(table: &str, directory: &Path) -> Option<(String, String)> {
    let mut best: Option<(usize, (String, String))> = None;
    for line in table.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let Some(point) = left.split(' ').nth(4) else { continue };
        let mut fields = right.split(' ');
        let (Some(kind), Some(source)) = (fields.next(), fields.next()) else { continue };
        let over = directory.starts_with(point);
        if over && best.as_ref().is_none_or(|(length, _)| point.len() >= *length) {
            best = Some((point.len(), (kind.to_owned(), source.to_owned())));
        }
    }
    best.map(|(_, mount)| mount)
}

/// Bytes that this process has read from devices so far; `None` if the kernel does not report it.
pub fn fetched_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?;
    line.trim().parse().ok()
}

/// A directory that is deleted with its contents when this is dropped.
pub struct Temporary(PathBuf);

impl Temporary {
    /// Creates a directory in `parent`, named after the study.
    pub fn new(parent: &Path, study: &str) -> io::Result<Temporary> {
        // The path must be absolute: servers started in it have another working directory.
        let parent = parent.canonicalize()?;
        let pid = std::process::id();
        for number in 0..1000 {
            let path = parent.join(format!("plimsoll-{study}-{pid}-{number}"));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Temporary(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_is_the_innermost_one() {
        let table = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                     30 22 0:26 / /dev/shm rw - tmpfs tmpfs rw\n\
                     31 22 0:27 / /tmp rw - ext4 /dev/vdb rw\n\
                     32 31 0:28 / /tmp rw - tmpfs over rw\n";
        let of = |path: &str| mount_in(table, Path::new(path)).unwrap().1;
        assert_eq!(of("/dev/shm/a"), "tmpfs");
        assert_eq!(of("/dev/shmem"), "/dev/vda");
        assert_eq!(of("/tmp/x"), "over");
        assert_eq!(mount_in("", Path::new("/")), None);
    }

    #[test]
    fn a_temporary_directory_is_deleted() {
        let home = tempfile::tempdir().unwrap();
        let temporary = Temporary::new(home.path(), "test").unwrap();
        let path = temporary.path().to_owned();
        fs::write(path.join("x"), "y").unwrap();
        drop(temporary);
        assert!(!path.exists());
    }
}
