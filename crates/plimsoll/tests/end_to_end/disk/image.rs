//! A file system in a file, mounted for one test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::{Home, Said, am_root, program, run};

/// Ended when it is dropped: declare it before the server that uses it.
pub(super) struct Image {
    at: PathBuf,
}

impl Image {
    /// An ext4 of 64 MB. `None` where this machine allows no mounts, which is said.
    pub(super) fn mounted(home: &Home, name: &str) -> Option<Image> {
        if !am_root() {
            eprintln!("skipped: a file system can be mounted by root only");
            return None;
        }
        let file = home.at(&format!("{name}.image"));
        std::fs::File::create(&file).unwrap().set_len(64 * 1000 * 1000).unwrap();
        // Not a block kept for root, who is the one that fills it here.
        let mkfs = program("mkfs.ext4", "e2fsprogs");
        command(mkfs.as_os_str(), &["-q", "-F", "-m", "0", &file]).well();
        let at = home.path().join(name);
        std::fs::create_dir(&at).unwrap();
        let image = Image { at };
        let mounted = image.mount(&file);
        if mounted.code != Some(0) {
            eprintln!("skipped: no file system can be mounted here: {}", mounted.stderr.trim());
            // Nothing is to be taken down.
            std::mem::forget(image);
            return None;
        }
        Some(image)
    }

    fn mount(&self, file: &str) -> Said {
        // After an error of its own it is read-only, as is usual for servers.
        let options = ["-o", "loop,errors=remount-ro", file, &self.at.display().to_string()];
        command("mount".as_ref(), &options)
    }

    pub(super) fn path(&self) -> &Path {
        &self.at
    }

    /// A name in it, as a flag takes it.
    pub(super) fn at(&self, name: &str) -> String {
        self.at.join(name).display().to_string()
    }

    /// Takes all the room that is left, with other files.
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

    /// Takes the other files out again.
    pub(super) fn empty(&self) {
        for entry in std::fs::read_dir(&self.at).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name().to_string_lossy().starts_with("other-") {
                std::fs::remove_file(entry.path()).unwrap();
            }
        }
    }

    /// It finds an error in itself, and is read-only from then on for all, whoever has files open
    /// for writing (a mount is not made read-only by a command while somebody has).
    pub(super) fn breaks(&self) {
        let at = self.at.display().to_string();
        let source = command("findmnt".as_ref(), &["-n", "-o", "SOURCE", &at]).well().stdout;
        let device = source.trim().strip_prefix("/dev/").unwrap();
        std::fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "1").unwrap();
        let refused = std::fs::write(self.at.join("probe"), "x").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }

    /// Taken down, repaired, and mounted again. Nobody uses it.
    pub(super) fn repaired(&self, home: &Home, name: &str) {
        let file = home.at(&format!("{name}.image"));
        command("umount".as_ref(), &[&self.at.display().to_string()]).well();
        let repaired = command(program("e2fsck", "e2fsprogs").as_os_str(), &["-f", "-y", &file]);
        assert!(repaired.code.is_some_and(|code| code < 4), "{repaired:?}");
        self.mount(&file).well();
    }

    /// Every write to this file is refused, also by those who have it open; or no longer.
    pub(super) fn refuse_writes(&self, path: &Path, refuse: bool) {
        let flag = if refuse { "+i" } else { "-i" };
        let chattr = program("chattr", "e2fsprogs");
        command(chattr.as_os_str(), &[flag, &path.display().to_string()]).well();
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let at = self.at.display().to_string();
        if command("umount".as_ref(), &[&at]).code != Some(0) {
            // Someone has a file open still: it goes when they do.
            command("umount".as_ref(), &["-l", &at]);
        }
    }
}

fn command(name: &std::ffi::OsStr, arguments: &[&str]) -> Said {
    let mut command = Command::new(name);
    command.args(arguments);
    run(command, Duration::from_secs(60))
}
