//! What the bench needs to know of server processes, and how it confines them.
//!
//! A server runs on the CPU that it was given. If the bench itself is killed, the kernel ends the
//! servers, except those that have dropped root privileges in the meantime (Squid).

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use harness::peer::Peer;
use load::sys;

/// Starts a server on one CPU, in its directory.
///
/// # Errors
/// It cannot be run; one line.
pub(crate) fn launch(mut command: Command, home: &Path, cpu: usize) -> Result<Peer, String> {
    let program = command.get_program().display().to_string();
    confine(&mut command, cpu);
    Peer::launch(command, home, None).map_err(|error| format!("{program}: {error}"))
}

/// Bytes that a family of processes has written to disks so far.
pub(crate) fn written_bytes(family: &[i32]) -> u64 {
    sum(family, "io", "write_bytes:")
}

/// Memory of a family of processes, bytes. A shared page is divided among its users.
pub(crate) fn memory_bytes(family: &[i32]) -> u64 {
    sum(family, "smaps_rollup", "Pss:") * 1024
}

/// The sum of a figure in a file of /proc over several processes.
fn sum(family: &[i32], file: &str, name: &str) -> u64 {
    let of = |pid: &i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
        let figure = text.lines().find_map(|line| line.strip_prefix(name))?;
        figure.split_whitespace().next()?.parse::<u64>().ok()
    };
    family.iter().filter_map(of).sum()
}

/// How long a CPU was busy since boot, ns, in steps of 10 ms; 0 if it is unknown.
pub(crate) fn cpu_busy_ns(cpu: usize) -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let name = format!("cpu{cpu} ");
    let Some(line) = stat.lines().find_map(|line| line.strip_prefix(&name)) else { return 0 };
    // user nice system (idle iowait) irq softirq; steal is not counted.
    let modes: Vec<u64> = line.split_whitespace().filter_map(|text| text.parse().ok()).collect();
    let busy: u64 = [0, 1, 2, 5, 6].iter().filter_map(|mode| modes.get(*mode)).sum();
    busy * 10_000_000
}

/// Pins the child to a CPU, raises its descriptor limit, and makes the kernel end it if the bench
/// dies.
fn confine(command: &mut Command, cpu: usize) {
    let parent = std::process::id().cast_signed();
    let prepare = move || {
        sys::pin_to_cpu(cpu)?;
        sys::raise_descriptor_limit()?;
        // SAFETY: PR_SET_PDEATHSIG takes one integer and accesses no memory.
        if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: getppid accesses no memory and cannot fail.
        if unsafe { libc::getppid() } != parent {
            // The bench died before the call above.
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec `prepare` only makes system calls (sched_setaffinity,
    // getrlimit, setrlimit, prctl, getppid); it neither allocates nor takes a lock.
    unsafe { command.pre_exec(prepare) };
}

/// Sets the scheduling policy of the calling thread and of what it starts (sched(7)).
pub(crate) fn schedule(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: priority };
    // SAFETY: `parameters` is valid for reads; 0 names the calling thread.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Puts the calling thread before all that have no real-time priority.
pub(crate) fn real_time() -> io::Result<()> {
    schedule(libc::SCHED_FIFO, 1)
}

/// Gives the calling thread the shortest slice: when it wakes, it runs before a thread with a
/// longer one (sched_setattr(2); the kernel's documentation of the EEVDF scheduler).
pub(crate) fn shortest_slice() -> io::Result<()> {
    // SAFETY: all zeros is a valid value of this structure of integers.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_policy = libc::SCHED_OTHER as u32;
    attributes.sched_runtime = SLICE_NS;
    // SAFETY: the structure is valid for reads of its size; 0 names the calling thread.
    let done = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// The shortest slice that the kernel allows.
const SLICE_NS: u64 = 100_000;

/// How often a thread that keeps a CPU awake spins before it counts its CPU time.
const SPINS: u32 = 10_000;

/// Keeps CPUs awake while it exists, with a spinning thread of the lowest priority on each. On a
/// virtual machine, a sleeping CPU wakes only when the host schedules it.
#[derive(Debug)]
pub(crate) struct Awake {
    done: Arc<AtomicBool>,
    spent_ns: Arc<AtomicU64>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Awake {
    pub(crate) fn keep(cpus: &[usize]) -> Awake {
        let done = Arc::new(AtomicBool::new(false));
        let spent_ns = Arc::new(AtomicU64::new(0));
        let spin = |&cpu| {
            let (done, spent_ns) = (Arc::clone(&done), Arc::clone(&spent_ns));
            thread::spawn(move || {
                // Without this policy it would compete with the measured server.
                if schedule(libc::SCHED_IDLE, 0).and_then(|()| sys::pin_to_cpu(cpu)).is_ok() {
                    let mut counted_ns = 0;
                    while !done.load(Ordering::Relaxed) {
                        (0..SPINS).for_each(|_| std::hint::spin_loop());
                        let now_ns = sys::thread_cpu_ns();
                        spent_ns.fetch_add(now_ns - counted_ns, Ordering::Relaxed);
                        counted_ns = now_ns;
                    }
                }
            })
        };
        let threads = cpus.iter().map(spin).collect();
        Awake { done, spent_ns, threads }
    }

    /// CPU time of its threads so far, ns.
    pub(crate) fn cpu_ns(&self) -> u64 {
        self.spent_ns.load(Ordering::Relaxed)
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use harness::peer::find;

    use super::*;

    #[test]
    fn a_server_is_measured_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new(find("sh").unwrap());
        command.args(["-c", "sleep 60 & wait"]);
        let server = launch(command, dir.path(), 0).unwrap();
        let began = Instant::now();
        while server.family().len() < 2 && began.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(20));
        }
        let family = server.family();
        assert_eq!(family.len(), 2);
        assert!(load::family::cpu_ns(&family) > 0 && memory_bytes(&family) > 0);
        server.kill().unwrap();
    }
}
