//! The command of a period, from its start to its end.
//!
//! The shell runs it in its own process group, so that ending it also ends its children, and a
//! Ctrl-C in the terminal does not reach it before plimsoll ends it. Its stdout is discarded. The
//! last line of its stderr is kept in case it fails.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use command::failure::{Failure, misuse};

/// How long a server may take for its last requests before it is killed.
const END_MAX: Duration = Duration::from_secs(10);

/// How long a server may take until it accepts connections.
const READY_MAX: Duration = Duration::from_secs(20);

/// The polling interval.
const LOOK: Duration = Duration::from_millis(20);

/// How much of a line is kept.
const LINE_BYTES_MAX: u64 = 512;

/// A started command. Dropping it ends it.
pub(super) struct StartedCommand {
    child: Child,
    text: String,
    ended: Option<ExitStatus>,
    last_line: Arc<Mutex<String>>,
}

impl StartedCommand {
    /// Runs it with the shell.
    pub(super) fn new(text: &str) -> Result<StartedCommand, Failure> {
        let mut child = Command::new("/bin/sh")
            .args(["-c", text])
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| misuse(format!("cannot run /bin/sh: {error}")))?;
        let last_line = Arc::default();
        if let Some(stderr) = child.stderr.take() {
            let kept = Arc::clone(&last_line);
            // The thread ends with the last process that has the other end open.
            std::thread::spawn(move || keep_last_line(stderr, &kept));
        }
        Ok(StartedCommand { child, text: text.to_owned(), ended: None, last_line })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs. It is an error if it failed.
    pub(super) fn is_running(&mut self) -> Result<bool, Failure> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().map_err(misuse)?;
        }
        match self.ended {
            None => Ok(true),
            Some(status) if status.success() => Ok(false),
            Some(status) => Err(self.failed(&status.to_string())),
        }
    }

    /// Waits until it exits, but no longer than `within`. Returns whether it exited.
    pub(super) fn wait(&mut self, within: Duration, stop: &AtomicBool) -> Result<bool, Failure> {
        let begun = Instant::now();
        while self.is_running()? {
            if begun.elapsed() >= within || stop.load(Ordering::Relaxed) {
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
        Ok(true)
    }

    /// Waits until a server accepts connections at `address`.
    pub(super) fn wait_for_server(
        &mut self,
        address: SocketAddr,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            self.is_running()?;
            // A connection to a port in the ephemeral range can connect to itself.
            let other = |one: &TcpStream| one.local_addr().is_ok_and(|own| own != address);
            if TcpStream::connect_timeout(&address, LOOK * 10).is_ok_and(|one| other(&one)) {
                return Ok(());
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if begun.elapsed() >= READY_MAX {
                let seconds = READY_MAX.as_secs();
                return Err(self.failed(&format!("nothing listens on {address} after {seconds} s")));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// An error about this command, with the last line of its stderr.
    pub(super) fn failed(&self, what: &str) -> Failure {
        // Its last line may still be in the pipe.
        std::thread::sleep(LOOK);
        let line = self.last_line.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let line = if line.is_empty() { line } else { format!(": {line}") };
        misuse(format!("{:?}: {what}{line}", self.text))
    }

    /// Ends the shell and its children, which can outlive the shell.
    fn end(&mut self) {
        if self.ended.is_some() || self.child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        let group = i32::try_from(self.child.id()).unwrap_or(0);
        let begun = Instant::now();
        let asked = ::load::sys::terminate_group(group).is_ok();
        while asked && begun.elapsed() < END_MAX {
            let _ = self.child.try_wait();
            if !lives(group) {
                break;
            }
            std::thread::sleep(LOOK);
        }
        // If the group is gone, this does nothing.
        let _ = ::load::sys::kill_group(group);
        let _ = self.child.wait();
    }
}

/// Whether any process of a group still runs. A zombie does not.
fn lives(group: i32) -> bool {
    let of_group = |entry: std::io::Result<std::fs::DirEntry>| {
        let stat = std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
        // After the name come the state, the parent and the group.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let (state, _, its_group) = (fields.next()?, fields.next()?, fields.next()?);
        (state != "Z" && its_group.parse() == Ok(group)).then_some(())
    };
    std::fs::read_dir("/proc").is_ok_and(|all| all.filter_map(of_group).next().is_some())
}

impl Drop for StartedCommand {
    fn drop(&mut self) {
        self.end();
    }
}

fn keep_last_line(from: impl Read, kept: &Mutex<String>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        match from.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(read) if read > 0 => {}
            _ => return,
        }
        let text = String::from_utf8_lossy(&line);
        let text: String = text.trim().chars().filter(|c| !c.is_control()).collect();
        if !text.is_empty() {
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = text;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static NEVER: AtomicBool = AtomicBool::new(false);

    #[test]
    fn a_command_that_exits_is_waited_for() {
        let mut begun = StartedCommand::new("true").unwrap();
        assert!(begun.wait(Duration::from_secs(20), &NEVER).unwrap());
    }

    #[test]
    fn a_running_command_is_ended_with_its_children() {
        let home = tempfile::tempdir().unwrap();
        let pid_file = home.path().join("pid");
        let text = format!("sleep 600 & echo $! > {}; wait", pid_file.display());
        let mut begun = StartedCommand::new(&text).unwrap();
        let mut inner = String::new();
        for _ in 0..500 {
            assert!(!begun.wait(LOOK, &NEVER).unwrap());
            inner = std::fs::read_to_string(&pid_file).unwrap_or_default();
            if inner.ends_with('\n') {
                break;
            }
        }
        let runs = || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", inner.trim()));
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        assert!(runs());
        drop(begun);
        assert!(!runs(), "its child still runs");
    }

    #[test]
    fn a_failed_command_is_reported_with_its_last_line() {
        let mut begun = StartedCommand::new("echo no such host >&2; exit 3").unwrap();
        let failed = loop {
            match begun.wait(Duration::from_secs(20), &NEVER) {
                Ok(_) => {}
                Err(failure) => break failure.to_string(),
            }
        };
        assert!(failed.contains("exit 3") && failed.contains("exit status: 3"), "{failed}");
        assert!(failed.ends_with("no such host"), "{failed}");
    }
}
