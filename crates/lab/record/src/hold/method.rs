//! The ways to hold a server, the best first.
//!
//! 1. A thread at real-time priority takes the CPU to which the server is bound. It is the most
//!    exact way, the server does not notice it, and it ends with the recorder.
//! 2. The freezer of a cgroup in which the server is alone. No process is moved to another cgroup.
//! 3. SIGSTOP and SIGCONT, to one process at a time.
//!
//! For the last two, a watchdog releases the server if the recorder is killed.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use super::sys;
use super::watchdog::Watchdog;
use crate::clock;
use crate::procfs;

/// Threads that used less than this part of the server's CPU time need not be bound.
const BOUND_PART: f64 = 0.01;

/// A way to hold a server.
#[derive(Debug)]
pub(super) enum Method {
    /// By a thread at real-time priority on each of these CPUs in turn.
    RealTime { cpus: Vec<usize>, next: usize },
    /// By the freezer of a cgroup.
    Freezer { freezer: Freezer, watchdog: Watchdog },
    /// By signals.
    Signals { watchdog: Watchdog },
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Method::RealTime { cpus, .. } => {
                let names: Vec<String> = cpus.iter().map(ToString::to_string).collect();
                write!(f, "a thread at real-time priority on its CPU ({})", names.join(", "))
            }
            Method::Freezer { freezer, .. } => {
                write!(f, "the freezer of its cgroup ({})", freezer.file.display())
            }
            Method::Signals { .. } => f.write_str("SIGSTOP and SIGCONT to one process at a time"),
        }
    }
}

impl Method {
    /// The best way for this server, or why there is none.
    pub(super) fn choose(pids: &[u32]) -> Result<Method, String> {
        let mut whys = Vec::new();
        match bound_cpus(pids).and_then(|cpus| try_real_time(&cpus).map(|()| cpus)) {
            Ok(cpus) => return Ok(Method::RealTime { cpus, next: 0 }),
            Err(why) => whys.push(why),
        }
        match Freezer::of(pids) {
            Ok(freezer) => {
                let file = freezer.file.display().to_string();
                let watchdog = Watchdog::start(&file, freezer.thawed)?;
                return Ok(Method::Freezer { freezer, watchdog });
            }
            Err(why) => whys.push(why),
        }
        let refused = pids.iter().find_map(|&pid| sys::signal(pid, 0).err().map(|why| (pid, why)));
        match refused {
            None => Ok(Method::Signals { watchdog: Watchdog::start("", "")? }),
            Some((pid, why)) => {
                whys.push(format!("process {pid} cannot be sent signals ({why}): run it as root"));
                Err(whys.join("; "))
            }
        }
    }

    /// Prepares the calling thread, which will hold.
    pub(super) fn begin(&self) {
        // For the other ways, the priority only makes the length of a hold more exact.
        let _ = sys::real_time();
    }

    /// Holds for a while; `ends` is called right before the release. Returns how long the server
    /// was held, ns.
    pub(super) fn hold(
        &mut self,
        length: Duration,
        pid: u32,
        ends: impl FnOnce(),
    ) -> Result<i64, String> {
        match self {
            Method::RealTime { cpus, next } => {
                let cpu = cpus[*next % cpus.len()];
                *next += 1;
                sys::bind_to(cpu).map_err(|error| format!("CPU {cpu}: {error}"))?;
                let begun_ns = clock::monotonic_ns();
                while clock::monotonic_ns() - begun_ns < clock::ns(length) {
                    std::hint::spin_loop();
                }
                ends();
                Ok(clock::monotonic_ns() - begun_ns)
            }
            Method::Freezer { freezer, watchdog } => {
                let hold = || freezer.write(freezer.frozen);
                for_a_while(length, (pid, watchdog), ends, (hold, || freezer.write(freezer.thawed)))
            }
            Method::Signals { watchdog } => {
                let send = move |signal| {
                    sys::signal(pid, signal).map_err(|error| format!("process {pid}: {error}"))
                };
                let (hold, release) = (|| send(libc::SIGSTOP), || send(libc::SIGCONT));
                for_a_while(length, (pid, watchdog), ends, (hold, release))
            }
        }
    }
}

/// Holds, sleeps and releases. The watchdog knows of the hold before it begins, and until it has
/// ended. The server is released also if it cannot be held completely.
fn for_a_while<H, R>(
    length: Duration,
    (pid, watchdog): (u32, &mut Watchdog),
    ends: impl FnOnce(),
    (hold, release): (H, R),
) -> Result<i64, String>
where
    H: FnOnce() -> Result<(), String>,
    R: FnOnce() -> Result<(), String>,
{
    watchdog.held(pid)?;
    let begun_ns = clock::monotonic_ns();
    let held = hold();
    if held.is_ok() {
        clock::sleep_until(begun_ns + clock::ns(length));
    }
    ends();
    let released = release();
    let held_ns = clock::monotonic_ns() - begun_ns;
    watchdog.held(0)?;
    held.and(released).map(|()| held_ns)
}

/// The CPUs to which the threads that serve are bound, each to one.
fn bound_cpus(pids: &[u32]) -> Result<Vec<usize>, String> {
    let threads: Vec<(u64, Vec<usize>)> = pids
        .iter()
        .flat_map(|&pid| procfs::threads(pid).into_iter().map(move |tid| (pid, tid)))
        .filter_map(|(pid, tid)| Some((ran_ns(pid, tid)?, cpus_of(pid, tid)?)))
        .collect();
    let total = threads.iter().map(|(ns, _)| *ns).sum::<u64>() as f64;
    let mut bound = BTreeSet::new();
    for (ns, cpus) in threads {
        match cpus.as_slice() {
            [cpu] => drop(bound.insert(*cpu)),
            _ if ns as f64 <= BOUND_PART * total => {}
            _ => return Err("the server is not bound to single CPUs".to_owned()),
        }
    }
    let found: Vec<usize> = bound.into_iter().collect();
    if found.is_empty() {
        Err("the server is not bound to single CPUs".to_owned())
    } else {
        Ok(found)
    }
}

/// The number of CPUs that the server may use.
pub(super) fn cpus_allowed(pids: &[u32]) -> usize {
    let all = pids.iter().filter_map(|&pid| cpus_of(pid, pid)).flatten();
    all.collect::<BTreeSet<usize>>().len().max(1)
}

/// CPU time that a thread has used.
fn ran_ns(pid: u32, tid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

fn cpus_of(pid: u32, tid: u32) -> Option<Vec<usize>> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    cpu_list(list.trim())
}

/// A list such as `0,2-3`.
fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(from.parse::<usize>().ok()?..=to.parse().ok()?);
    }
    Some(cpus)
}

/// Tries it in a thread that ends at once.
fn try_real_time(cpus: &[usize]) -> Result<(), String> {
    let cpus = cpus.to_vec();
    let tried = thread::spawn(move || {
        sys::real_time().map_err(|error| format!("no real-time priority ({error})"))?;
        cpus.iter().try_for_each(|&cpu| {
            sys::bind_to(cpu).map_err(|error| format!("CPU {cpu} may not be used ({error})"))
        })
    });
    tried.join().expect("the thread only makes system calls")
}

/// The freezer of a cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Freezer {
    file: PathBuf,
    frozen: &'static str,
    thawed: &'static str,
}

impl Freezer {
    fn of(pids: &[u32]) -> Result<Freezer, String> {
        let read = |path: String| fs::read_to_string(path).unwrap_or_default();
        let first = pids.first().ok_or("the server has no process")?;
        let (groups, mounts) = (read(format!("/proc/{first}/cgroup")), read("/proc/mounts".into()));
        let found = freezers(&groups, &mounts);
        let server: BTreeSet<u32> = pids.iter().copied().collect();
        let alone = |freezer: &&Freezer| {
            let group = freezer.file.parent().expect("a file has a directory");
            members(group) == server
        };
        let freezer = found.iter().find(alone);
        let freezer = freezer.ok_or("it is not alone in a cgroup with a freezer")?;
        let writable = OpenOptions::new().write(true).open(&freezer.file);
        writable.map_err(|error| format!("{}: {error}", freezer.file.display()))?;
        Ok(freezer.clone())
    }

    fn write(&self, text: &str) -> Result<(), String> {
        fs::write(&self.file, text).map_err(|error| format!("{}: {error}", self.file.display()))
    }
}

/// The freezers of both versions of cgroups, by `/proc/PID/cgroup` and `/proc/mounts`. The root has
/// none.
fn freezers(groups: &str, mounts: &str) -> Vec<Freezer> {
    let mounted = |wanted: &dyn Fn(&str, &str) -> bool| {
        mounts.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            wanted(fields.get(2)?, fields.get(3)?).then(|| PathBuf::from(fields[1]))
        })
    };
    let of_group = |line: &str| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let path = path.strip_prefix('/').filter(|path| !path.is_empty())?;
        if number == "0" && controllers.is_empty() {
            let file = mounted(&|kind, _| kind == "cgroup2")?.join(path).join("cgroup.freeze");
            return Some(Freezer { file, frozen: "1", thawed: "0" });
        }
        let has = |list: &str| list.split(',').any(|one| one == "freezer");
        let mount =
            has(controllers).then(|| mounted(&|kind, options| kind == "cgroup" && has(options)));
        let file = mount??.join(path).join("freezer.state");
        Some(Freezer { file, frozen: "FROZEN", thawed: "THAWED" })
    };
    groups.lines().filter_map(of_group).collect()
}

/// The processes of a cgroup and of those below it.
fn members(group: &Path) -> BTreeSet<u32> {
    let listed = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut found: BTreeSet<u32> = listed.lines().filter_map(|line| line.parse().ok()).collect();
    let below = fs::read_dir(group).into_iter().flatten().flatten();
    let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    below.for_each(|entry| found.extend(members(&entry.path())));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_parsed() {
        assert_eq!(cpu_list("0,2-3"), Some(vec![0, 2, 3]));
        assert_eq!(cpu_list("5"), Some(vec![5]));
        assert_eq!((cpu_list(""), cpu_list("a-b")), (None, None));
    }

    #[test]
    fn freezers_of_both_versions_are_found_and_the_root_has_none() {
        let mounts = "cgroup /sys/fs/cgroup/freezer cgroup rw,relatime,freezer 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let found = freezers("6:freezer:/web\n1:cpu:/web\n0::/system.slice/web.service\n", mounts);
        let files: Vec<String> = found.iter().map(|one| one.file.display().to_string()).collect();
        assert_eq!(
            files,
            [
                "/sys/fs/cgroup/freezer/web/freezer.state",
                "/sys/fs/cgroup/unified/system.slice/web.service/cgroup.freeze",
            ]
        );
        assert_eq!((found[0].frozen, found[1].thawed), ("FROZEN", "0"));
        assert_eq!(freezers("6:freezer:/\n0::/\n", mounts), []);
        assert_eq!(freezers("0::/a\nodd\n", ""), []);
    }

    #[test]
    fn this_process_is_not_alone_and_may_use_a_cpu() {
        let own = std::process::id();
        assert!(cpus_allowed(&[own]) >= 1);
        assert!(Freezer::of(&[own, u32::MAX]).is_err());
        assert!(Freezer::of(&[]).is_err());
    }
}
