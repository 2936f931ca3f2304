//! What the study stands on: the machine, the file system, and whether the page cache was cold.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Where it was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Environment {
    /// Release of the kernel.
    pub kernel: String,
    /// Model of the processor.
    pub processor: String,
    /// Processors.
    pub processors: usize,
    /// The file system of the directory, such as `ext4`.
    pub file_system: String,
    /// What it is mounted from.
    pub device: String,
    /// Whether the program was built with checks (not `--release`): then all of it is slower.
    pub checked_build: bool,
}

impl Environment {
    /// Looks around. What cannot be told is a question mark.
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

    /// The machine and the build in a few words; the file system is left out.
    pub fn machine(&self) -> String {
        let build = if self.checked_build { "; a build with checks, not --release" } else { "" };
        format!("Linux {}, {} x {}{build}", self.kernel, self.processors, self.processor)
    }
}

/// Processes that ran or wanted to, on average over the last minute; `None` if the kernel does not
/// say. More than processors: others were at work, and the clock says less than CPU time.
pub fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// The load average at the beginning of a study and in its end, in words.
pub fn load_averages((before, after): (Option<f64>, Option<f64>)) -> String {
    let told = |load: Option<f64>| load.map_or("?".to_owned(), |load| format!("{load:.1}"));
    format!("load average {} at the beginning and {} in the end", told(before), told(after))
}

/// Type and source of the mount that a directory is in.
fn mount_of(directory: &Path) -> Option<(String, String)> {
    let directory = directory.canonicalize().ok()?;
    mount_in(&fs::read_to_string("/proc/self/mountinfo").ok()?, &directory)
}

/// Of the mounts over a directory, the last with the longest name: later ones cover earlier ones.
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

/// Bytes that this process had fetched from a device so far; `None` where the kernel does not say.
pub fn fetched_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?;
    line.trim().parse().ok()
}

/// A directory that is gone with all in it when this is dropped.
pub struct Temporary(PathBuf);

impl Temporary {
    /// Makes one in `parent`; its name begins with that of the study.
    pub fn new(parent: &Path, study: &str) -> io::Result<Temporary> {
        // Servers that are started in it have another working directory.
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
    fn a_temporary_directory_is_gone_in_the_end() {
        let home = tempfile::tempdir().unwrap();
        let temporary = Temporary::new(home.path(), "test").unwrap();
        let path = temporary.path().to_owned();
        fs::write(path.join("x"), "y").unwrap();
        drop(temporary);
        assert!(!path.exists());
    }
}
