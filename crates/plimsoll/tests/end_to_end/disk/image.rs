//! A file system in a file, mounted for one test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::{CommandOutput, Home, am_root, program, run};

/// Dropping it unmounts it: declare it before the server that uses it.
pub(super) struct Image {
    at: PathBuf,
}

impl Image {
    /// An ext4 of 64 MB. `None`, with a message, if this machine allows no mounts.
    pub(super) fn mounted(home: &Home, name: &str) -> Option<Image> {
        if !am_root() {
            eprintln!("skipped: only root can mount a file system");
            return None;
        }
        let file = home.at(&format!("{name}.image"));
        std::fs::File::create(&file).unwrap().set_len(64 * 1000 * 1000).unwrap();
        // No blocks reserved for root, which fills it here.
        let mkfs = program("mkfs.ext4", "e2fsprogs");
        command(mkfs.as_os_str(), &["-q", "-F", "-m", "0", &file]).succeeded();
        let at = home.path().join(name);
        std::fs::create_dir(&at).unwrap();
        let image = Image { at };
        let mounted = image.mount(&file);
        if mounted.code != Some(0) {
            eprintln!("skipped: cannot mount a file system here: {}", mounted.stderr.trim());
            // There is nothing to unmount.
            std::mem::forget(image);
            return None;
        }
        Some(image)
    }

    fn mount(&self, file: &str) -> CommandOutput {
        // Read-only after an error, as is usual on servers.
        let options = ["-o", "loop,errors=remount-ro", file, &self.at.display().to_string()];
        command("mount".as_ref(), &options)
    }

    pub(super) fn path(&self) -> &Path {
        &self.at
    }

    /// The path of a file in it, for a flag.
    pub(super) fn at(&self, name: &str) -> String {
        self.at.join(name).display().to_string()
    }

    /// Fills the remaining space with other files.
    pub(super) fn fill(&self) {
        let mut bytes = vec![7; 1 << 20];
        for number in 0.. {
            if std::fs::write(self.at.join(format!("other-{number}")), &bytes).is_ok() {
                continue;
            }
            if bytes.len() == 4096 {
                return;
            }
            bytes.truncate(4096);
        }
    }

    /// Removes the other files.
    pub(super) fn empty(&self) {
        for entry in std::fs::read_dir(&self.at).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name().to_string_lossy().starts_with("other-") {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
    }

    /// Makes the file system find an error in itself, after which it is read-only for all, even
    /// with files open for writing. (A remount cannot do this while such files are open.)
    pub(super) fn breaks(&self) {
        let at = self.at.display().to_string();
        let source = command("findmnt".as_ref(), &["-n", "-o", "SOURCE", &at]).succeeded().stdout;
        let device = source.trim().strip_prefix("/dev/").unwrap();
        std::fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "1").unwrap();
        let refused = std::fs::write(self.at.join("probe"), "x").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }

    /// Unmounts, repairs and mounts it again. It must not be in use.
    pub(super) fn repaired(&self, home: &Home, name: &str) {
        let file = home.at(&format!("{name}.image"));
        command("umount".as_ref(), &[&self.at.display().to_string()]).succeeded();
        let repaired = command(program("e2fsck", "e2fsprogs").as_os_str(), &["-f", "-y", &file]);
        assert!(repaired.code.is_some_and(|code| code < 4), "{repaired:?}");
        self.mount(&file).succeeded();
    }

    /// Makes every write to this file fail, also through open descriptors; or allows writes again.
    pub(super) fn refuse_writes(&self, path: &Path, refuse: bool) {
        let flag = if refuse { "+i" } else { "-i" };
        let chattr = program("chattr", "e2fsprogs");
        command(chattr.as_os_str(), &[flag, &path.display().to_string()]).succeeded();
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let at = self.at.display().to_string();
        if command("umount".as_ref(), &[&at]).code != Some(0) {
            // A file is still open; the unmount completes when it is closed.
            command("umount".as_ref(), &["-l", &at]);
        }
    }
}

fn command(name: &std::ffi::OsStr, arguments: &[&str]) -> CommandOutput {
    let mut command = Command::new(name);
    command.args(arguments);
    run(command, Duration::from_secs(60))
}
