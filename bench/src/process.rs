//! Servers as child processes: started on their CPU, measured, and stopped whatever happens.
//!
//! What: a guard around a child; CPU time and memory of it and its children. Who owns: dropping a
//! `Process` ends the whole family, by pid. What never happens: a child outlives the bench, unless
//! the bench is killed outright: then the kernel tells the children, but for those who have given
//! up being root meanwhile (Squid); a child runs on another CPU than it was given.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use load::{family, sys};

/// How long a server may take until it accepts connections, unless it is simulated.
pub(crate) const START_MAX: Duration = Duration::from_secs(20);
/// How long a server may take to end when it is asked to.
const END_MAX: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A running server.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    errors: PathBuf,
}

impl Process {
    /// Starts `command` on one CPU with all the descriptors it may have; what it says on stderr
    /// goes to the file `errors`.
    pub(crate) fn start(mut command: Command, cpu: usize, errors: PathBuf) -> io::Result<Process> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(fs::File::create(&errors)?);
        confine(&mut command, cpu);
        Ok(Process { child: command.spawn()?, errors })
    }

    /// Waits until it accepts connections at `addr`, and no longer than `patience`.
    pub(crate) fn wait_for(&mut self, addr: SocketAddr, patience: Duration) -> Result<(), String> {
        let began = Instant::now();
        while TcpStream::connect(addr).is_err() {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("ended at once ({status}): {}", self.last_words()));
            }
            if began.elapsed() > patience {
                return Err(format!("does not listen on {addr}: {}", self.last_words()));
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    /// The last line that it said on stderr.
    pub(crate) fn last_words(&self) -> String {
        let said = fs::read_to_string(&self.errors).unwrap_or_default();
        let last = said.lines().rev().find(|line| !line.trim().is_empty());
        last.unwrap_or("it said nothing").to_owned()
    }

    /// The pid and those of its children, theirs, and so on.
    pub(crate) fn family(&self) -> Vec<i32> {
        family::of(self.child.id().cast_signed())
    }
}

impl Process {
    /// Asks it to end, and waits until it has ended well.
    pub(crate) fn end(mut self, patience: Duration) -> Result<(), String> {
        signal(self.child.id().cast_signed(), libc::SIGTERM);
        let began = Instant::now();
        while began.elapsed() < patience {
            match self.child.try_wait().map_err(|e| e.to_string())? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("ended ({status}): {}", self.last_words())),
                None => thread::sleep(LOOK_AGAIN),
            }
        }
        Err(format!("does not end: {}", self.last_words()))
    }

    /// Ends the whole family at once, as `kill -9` does, and waits until none of it is left.
    pub(crate) fn kill(mut self) -> Result<(), String> {
        let family = self.family();
        for pid in &family {
            signal(*pid, libc::SIGKILL);
        }
        self.child.wait().map_err(|e| e.to_string())?;
        let began = Instant::now();
        while family.iter().any(|pid| is_running(*pid)) {
            if began.elapsed() > END_MAX {
                return Err("outlives SIGKILL".to_owned());
            }
            thread::sleep(LOOK_AGAIN);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return; // the pid may be another's by now
        }
        let family = self.family();
        signal(self.child.id().cast_signed(), libc::SIGTERM);
        let began = Instant::now();
        while began.elapsed() < END_MAX {
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            thread::sleep(LOOK_AGAIN);
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            for pid in family {
                signal(pid, libc::SIGKILL);
            }
            // It has been killed: this returns.
            let _status = self.child.wait();
        }
    }
}

/// Bytes that a family has had written to disks so far.
pub(crate) fn written_bytes(family: &[i32]) -> u64 {
    let of = |pid: &i32| {
        let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "))?;
        line.trim().parse::<u64>().ok()
    };
    family.iter().filter_map(of).sum()
}

/// Whether a process is there, and not only its entry for the parent.
fn is_running(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rfind(')').and_then(|at| stat[at + 1..].split_whitespace().next());
    state.is_some_and(|state| state != "Z")
}

/// How long a CPU was busy since the machine started, ns, in the kernel's steps of 10 ms; 0 if it
/// is not told.
pub(crate) fn cpu_busy_ns(cpu: usize) -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let name = format!("cpu{cpu} ");
    let Some(line) = stat.lines().find_map(|line| line.strip_prefix(&name)) else { return 0 };
    // user nice system (idle iowait) irq softirq; what a hypervisor took is not ours to count.
    let modes: Vec<u64> = line.split_whitespace().filter_map(|text| text.parse().ok()).collect();
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|mode| modes.get(*mode)).sum();
    busy * 10_000_000
}

/// Memory of a family, bytes: each shared page is divided among those who share it.
pub(crate) fn memory_bytes(family: &[i32]) -> u64 {
    let of = |pid: &i32| {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
        let line = rollup.lines().find(|line| line.starts_with("Pss:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    family.iter().filter_map(of).sum::<u64>() * 1024
}

/// The program's path, if it is installed.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    places.map(|place| place.join(program)).find(|file| is_file(file))
}

pub(crate) fn is_file(path: &Path) -> bool {
    path.is_file()
}

/// A command for `program` with `arguments`.
pub(crate) fn command<A: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = A>,
) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Pins the child, lets it have many descriptors, and ties its life to ours.
pub(crate) fn confine(command: &mut Command, cpu: usize) {
    let parent = std::process::id().cast_signed();
    let prepare = move || {
        sys::pin_to_cpu(cpu)?;
        sys::raise_descriptor_limit()?;
        // SAFETY: PR_SET_PDEATHSIG takes one integer and touches no memory of ours.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: getppid touches no memory and cannot fail.
        if unsafe { libc::getppid() } != parent {
            // The bench died before the tie was made.
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec `prepare` makes system calls only (sched_setaffinity,
    // getrlimit, setrlimit, prctl, getppid); it neither allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) };
}

/// Gives the calling thread, and what it starts, a policy of scheduling (sched(7)).
pub(crate) fn schedule(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: `parameters` is valid for reads; 0 names the calling thread.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Keeps CPUs from sleeping while it lives: on each a thread turns that gives way to everything.
/// On a virtual machine a CPU that sleeps is woken when the host finds the time.
#[derive(Debug)]
pub(crate) struct Awake {
    done: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Awake {
    pub(crate) fn keep(cpus: &[usize]) -> Awake {
        let done = Arc::new(AtomicBool::new(false));
        let turning = |&cpu| {
            let done = Arc::clone(&done);
            thread::spawn(move || {
                // Without the policy it would take the CPU from what is measured.
                if schedule(libc::SCHED_IDLE, 0).and_then(|()| sys::pin_to_cpu(cpu)).is_ok() {
                    while !done.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                }
            })
        };
        let threads = cpus.iter().map(turning).collect();
        Awake { done, threads }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn signal(pid: i32, signal: i32) {
    // SAFETY: kill touches no memory of ours. The pid is of a child that was not waited for, or of
    // its family as it was a moment ago.
    unsafe { libc::kill(pid, signal) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_measured_with_its_children_and_ended() {
        let dir = tempfile::tempdir().unwrap();
        let shell = find("sh").unwrap();
        let command = command(&shell, ["-c", "sleep 60 & wait"]);
        let process = Process::start(command, 0, dir.path().join("errors")).unwrap();
        let began = Instant::now();
        while process.family().len() < 2 && began.elapsed() < Duration::from_secs(5) {
            thread::sleep(LOOK_AGAIN);
        }
        let family = process.family();
        assert_eq!(family.len(), 2);
        assert!(family::cpu_ns(&family) > 0 && memory_bytes(&family) > 0);
        let pid = family[0];
        drop(process);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        signal(family[1], libc::SIGKILL);
    }

    #[test]
    fn a_killed_family_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let command = command(&find("sh").unwrap(), ["-c", "sleep 60 & wait"]);
        let process = Process::start(command, 0, dir.path().join("errors")).unwrap();
        let began = Instant::now();
        while process.family().len() < 2 && began.elapsed() < Duration::from_secs(5) {
            thread::sleep(LOOK_AGAIN);
        }
        let family = process.family();
        assert_eq!(process.kill(), Ok(()));
        assert!(family.len() == 2 && !family.into_iter().any(is_running));
    }

    #[test]
    fn a_server_that_ends_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let command = command(&find("sh").unwrap(), ["-c", "echo no such port >&2; exit 3"]);
        let mut process = Process::start(command, 0, dir.path().join("errors")).unwrap();
        let why = process.wait_for("127.0.0.1:1".parse().unwrap(), START_MAX).unwrap_err();
        assert!(why.contains("no such port"), "{why}");
    }
}
