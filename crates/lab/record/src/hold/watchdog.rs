//! A process that releases a held server if the recorder is killed.
//!
//! It is a shell that reads lines from a pipe: the processes that are held, or an empty line. At
//! the end of the file the recorder is gone, and the shell releases what the last line names. The
//! kernel closes the pipe of a process that is killed. The line is written before the server is
//! held.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

/// `$1` is the file of a freezer and `$2` what thaws it; or both are empty, and a line has the
/// processes to continue. Signals of the terminal are for the recorder.
const SCRIPT: &str = r#"trap "" HUP INT TERM TSTP
held=
while read -r line; do held=$line; done
[ -n "$held" ] || exit 0
if [ -n "$1" ]; then echo "$2" > "$1"; else kill -CONT $held; fi
"#;

/// The running shell.
#[derive(Debug)]
pub(super) struct Watchdog {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Watchdog {
    /// Starts it. With a file, it writes the text into the file to release.
    pub(super) fn start(file: &str, text: &str) -> Result<Watchdog, String> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "plimsoll-hold", file, text])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("/bin/sh cannot be started as a watchdog: {error}"))?;
        let pipe = child.stdin.take();
        Ok(Watchdog { child, pipe })
    }

    /// Says what is held from now on; 0 for nothing.
    pub(super) fn held(&mut self, pid: u32) -> Result<(), String> {
        let line = if pid == 0 { "\n".to_owned() } else { format!("{pid}\n") };
        let pipe = self.pipe.as_mut().expect("the pipe is closed only when it is dropped");
        pipe.write_all(line.as_bytes()).map_err(|error| format!("the watchdog is gone: {error}"))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // At the end of the file it ends.
        self.pipe = None;
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_pipe_that_ends_in_a_hold_releases() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("state");
        let released = |lines: &[u32]| {
            fs::write(&file, "FROZEN").unwrap();
            let mut watchdog = Watchdog::start(file.to_str().unwrap(), "THAWED").unwrap();
            lines.iter().for_each(|pid| watchdog.held(*pid).unwrap());
            drop(watchdog);
            fs::read_to_string(&file).unwrap() == "THAWED\n"
        };
        assert!(released(&[7, 0, 7]));
        assert!(!released(&[7, 0]) && !released(&[]));
    }
}
