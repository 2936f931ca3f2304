//! A copy of this system's root directory, with its own network and processes, in which a script
//! may install what it likes. Nothing that it writes reaches the disk: a file system in memory is
//! laid over it. Whatever it started ends with it.

use std::process::Command;
use std::time::Duration;

use super::DIRECTORY;
use crate::support::{CommandOutput, Home, am_root, run};

/// Packages are large, because they hold an unoptimised program.
const PATIENCE: Duration = Duration::from_secs(90);

/// Lays a file system in memory over the root directory, and runs the script there. Its arguments
/// are the directory of the test, the script, and the directory with the packages, which may be on
/// a file system that the copy does not include.
const ENTER: &str = r#"
    set -e
    home=$1 script=$2 packages=$3 over=$1/over
    mkdir "$over"
    mount -t tmpfs -o mode=0755 tmpfs "$over"
    mkdir "$over/changes" "$over/work" "$over/root"
    mount -t overlay -o "lowerdir=/,upperdir=$over/changes,workdir=$over/work" overlay "$over/root"
    for shared in /dev /sys /tmp "$packages"; do
        mkdir -p "$over/root$shared"
        mount --rbind "$shared" "$over/root$shared"
    done
    mount -t proc proc "$over/root/proc"
    ip link set lo up
    exec chroot "$over/root" /bin/sh -e -c "$script"
"#;

pub(super) struct Root<'h> {
    home: &'h Home,
}

impl Root<'_> {
    /// `None`, with a message, for users who may not mount anything.
    pub(super) fn new(home: &Home) -> Option<Root<'_>> {
        if am_root() {
            return Some(Root { home });
        }
        eprintln!("skipped: only root can install a package");
        None
    }

    /// Runs the script to its end; it stops at the first command that fails. Each run begins with
    /// an unchanged copy.
    pub(super) fn run(&self, script: &str) -> CommandOutput {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--pid", "--fork", "--kill-child"]);
        command.args(["sh", "-c", ENTER, "enter"]);
        command.arg(self.home.path()).arg(script).arg(DIRECTORY);
        run(command, PATIENCE)
    }
}
