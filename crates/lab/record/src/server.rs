//! The server's processes and threads, and the CPU time they used since the last sample.
//!
//! Which processes: the named process and all its descendants, or all processes of a name and their
//! descendants. Every sample finds new processes, so that forked workers are followed from their
//! beginning. A process is followed to its end, even if it gets another parent.
//!
//! How nothing is lost: a process's CPU clock includes its ended threads, so totals are per process
//! and exact to the ns. When a process ends and is waited for, its time is added to its parent's
//! account of children (`cutime`, `cstime`, in ticks). The growth of this account, minus the time
//! of the child that was seen before, is credited. If the parent of a process is not followed or
//! does not wait, the process's time since the last sample is lost; such processes are counted.
//!
//! Threads are read from `schedstat`. It is exact too, but a thread that is running shows its time
//! up to the last scheduler tick. Over a recording, the threads add up to the processes.

use std::collections::{BTreeMap, BTreeSet};

use trial::resources::BoundThread;
use trial::{ProcessTimes, ThreadTimes};

use crate::clock;
use crate::error::Error;
use crate::procfs::{self, Stat};
use crate::split::{Split, Used};

/// Descriptors of a process are counted one by one up to this number, if the kernel does not report
/// it.
const DESCRIPTORS_LISTED_MAX: usize = 1024;

/// The kernel keeps this many bytes of a name.
const NAME_BYTES_MAX: usize = 15;

const NS_PER_S: i64 = 1_000_000_000;

/// The server to observe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A process and its descendants.
    Pid(u32),
    /// All processes of exactly this name, and their descendants. Names longer than the kernel's 15
    /// bytes are truncated as the kernel does it.
    Name(String),
    /// The processes of a cgroup and of the cgroups below it, and their descendants: a path in
    /// the hierarchy (`/system.slice/nginx.service`), or the name of one in any place
    /// (`nginx.service`).
    Cgroup(String),
}

impl Target {
    /// A systemd unit: a service, if the name has no type.
    pub fn unit(name: &str) -> Target {
        let kind = if name.contains('.') { "" } else { ".service" };
        Target::Cgroup(format!("{name}{kind}"))
    }

    /// A cgroup by its path, which may be that of its directory.
    pub fn cgroup(path: &str) -> Target {
        let path = path.strip_prefix("/sys/fs/cgroup").unwrap_or(path).trim_matches('/');
        Target::Cgroup(format!("/{path}"))
    }
}

/// One sample of the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) times: ProcessTimes,
    pub(crate) threads: Vec<ThreadTimes>,
    /// Whether any of its processes is still running.
    pub(crate) alive: bool,
}

/// What could not be seen since the last call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unseen {
    /// Processes that ended without an account of their last moments.
    pub(crate) processes: u64,
    /// Threads that ended: their last wakes are in no interval, but their time is.
    pub(crate) threads: u64,
}

/// Processes that started and ended, over the whole recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub(crate) started: u64,
    pub(crate) ended: u64,
}

/// Follows the server.
#[derive(Debug)]
pub(crate) struct Server {
    target: Target,
    tick_ns: i64,
    processes: BTreeMap<u32, Process>,
    /// Processes that were examined and do not belong to the server, and whether they were new
    /// then. A name can still change, when a process that has just forked executes another program.
    foreign: BTreeMap<u32, bool>,
    attached: bool,
    /// When the last sample was taken, in ticks since boot.
    last_ticks: u64,
    unseen: Unseen,
    bound: Vec<BoundThread>,
    pub(crate) traffic: Traffic,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Process {
    start_ticks: u64,
    parent: u32,
    split: Split,
    reaped_ticks: (i64, i64),
    /// What the account of children still has to credit (a positive value is credited at once).
    owed_ns: i64,
    threads: BTreeMap<u32, Thread>,
}

#[derive(Debug)]
struct Thread {
    start_ticks: u64,
    split: Split,
    switches: (u64, u64),
    /// The CPU it is bound to, and the one that was reported last.
    only_cpu: Option<u32>,
    reported: Option<u32>,
}

/// Where a task's account begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    /// It started after the last sample: all of its time counts.
    Birth,
    /// It was there before: its time so far does not count.
    Now,
}

impl Server {
    /// Finds the server and reads its counters.
    pub(crate) fn attach(target: &Target) -> Result<Server, Error> {
        let target = match target {
            Target::Name(name) => Target::Name(cut(name).to_owned()),
            target => target.clone(),
        };
        let mut server = Server {
            target,
            tick_ns: NS_PER_S / i64::from(clock::ticks_per_second()),
            processes: BTreeMap::new(),
            foreign: BTreeMap::new(),
            attached: false,
            last_ticks: 0,
            unseen: Unseen::default(),
            bound: Vec::new(),
            traffic: Traffic::default(),
            buffer: Vec::new(),
        };
        server.last_ticks = server.now_ticks();
        server.find(From::Now)?;
        if server.processes.is_empty() {
            return Err(match &server.target {
                Target::Pid(pid) => Error::NoProcess { pid: *pid },
                Target::Name(name) => Error::NoName { name: name.clone() },
                Target::Cgroup(name) => Error::NoCgroup { name: name.clone() },
            });
        }
        server.attached = true;
        server.sample();
        server.unseen = Unseen::default();
        server.traffic = Traffic::default();
        Ok(server)
    }

    /// The processes, the first one first.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.processes.keys().copied().collect();
        // A named pid is the first. Of several processes of a name, the oldest is, the parent of
        // the others.
        pids.sort_by_key(|pid| {
            (self.target != Target::Pid(*pid), self.processes[pid].start_ticks, *pid)
        });
        pids
    }

    /// The processes in trees: each begins with one whose parent is not followed.
    pub(crate) fn trees(&self) -> Vec<Vec<u32>> {
        let mut trees: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for &pid in self.processes.keys() {
            let mut root = pid;
            // A parent is older than its child, but a number may be used again.
            for _ in 0..self.processes.len() {
                match self.processes.get(&root) {
                    Some(process) if self.processes.contains_key(&process.parent) => {
                        root = process.parent;
                    }
                    _ => break,
                }
            }
            let tree = trees.entry(root).or_insert_with(|| vec![root]);
            if pid != root {
                tree.push(pid);
            }
        }
        trees.into_values().collect()
    }

    /// Returns what could not be seen since the last call.
    pub(crate) fn take_unseen(&mut self) -> Unseen {
        std::mem::take(&mut self.unseen)
    }

    /// Returns the threads that were found, since the last call, to be bound to one CPU, or to
    /// another one than before.
    pub(crate) fn take_bound(&mut self) -> Vec<BoundThread> {
        std::mem::take(&mut self.bound)
    }

    /// Finds the processes that have started since the last call. Call it just before a sample, and
    /// before taking the sample's time: it lists all of /proc.
    pub(crate) fn look(&mut self) -> Result<(), Error> {
        self.find(From::Birth)
    }

    /// CPU time of the server since the last sample.
    pub(crate) fn sample(&mut self) -> Sample {
        let now_ticks = self.now_ticks();
        let mut sample = Sample::default();
        let mut credits = BTreeMap::new();
        let mut gone = Vec::new();
        for pid in self.processes.keys().copied().collect::<Vec<_>>() {
            match self.stat_of(pid) {
                Some(stat) => self.sample_process(pid, &stat, &mut sample, &mut credits),
                None => gone.push(pid),
            }
        }
        self.settle(gone, credits, &mut sample);
        sample.times.total_ns = sample.times.user_ns + sample.times.kernel_ns;
        self.last_ticks = now_ticks;
        sample
    }

    /// Finds the processes that have started since the last time.
    fn find(&mut self, from: From) -> Result<(), Error> {
        let present = procfs::numbers("/proc")
            .map_err(|error| Error::Proc { path: "/proc", what: error.to_string() })?;
        let own = std::process::id();
        let mut candidates: Vec<(u32, Stat)> = Vec::new();
        let mut foreign = BTreeMap::new();
        for pid in present {
            if pid == own || self.processes.contains_key(&pid) {
                continue;
            }
            match self.foreign.get(&pid) {
                Some(false) => {
                    foreign.insert(pid, false);
                }
                seen => {
                    let again = seen.is_some();
                    if let Some(stat) = self.read_stat(pid) {
                        candidates.push((pid, stat));
                        foreign.insert(pid, !again);
                    }
                }
            }
        }
        // Children of children, until no more are found.
        loop {
            let before = candidates.len();
            candidates.retain(|(pid, stat)| {
                if !self.is_ours(*pid, stat) {
                    return true;
                }
                foreign.remove(pid);
                self.traffic.started += 1;
                let from = if stat.start_ticks + 1 >= self.last_ticks { from } else { From::Now };
                self.processes.insert(*pid, Process::new(*pid, stat, from, self.tick_ns));
                false
            });
            if candidates.len() == before {
                break;
            }
        }
        self.foreign = foreign;
        Ok(())
    }

    fn is_ours(&self, pid: u32, stat: &Stat) -> bool {
        if stat.ended() {
            return false;
        }
        let named = match &self.target {
            Target::Pid(target) => *target == pid,
            Target::Name(name) => *name == stat.name,
            Target::Cgroup(name) => is_in_cgroup(
                &std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default(),
                name,
            ),
        };
        // A named pid counts only at the start: later, the number may belong to another process.
        let named = named && (!self.attached || !matches!(self.target, Target::Pid(_)));
        named || self.processes.contains_key(&stat.parent)
    }

    fn sample_process(
        &mut self,
        pid: u32,
        stat: &Stat,
        sample: &mut Sample,
        credits: &mut BTreeMap<u32, (i64, i64)>,
    ) {
        let tick_ns = self.tick_ns;
        let total_ns = total_ns(pid, stat, tick_ns);
        let tids = procfs::threads(pid);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let used = process.split.advance(total_ns, stat.user_ticks, stat.kernel_ticks, tick_ns);
        sample.times.user_ns += used.user_ns;
        sample.times.kernel_ns += used.kernel_ns;
        let reaped = (stat.reaped_user_ticks, stat.reaped_kernel_ticks);
        let grown = (reaped.0 - process.reaped_ticks.0, reaped.1 - process.reaped_ticks.1);
        if grown != (0, 0) {
            process.reaped_ticks = reaped;
            credits.insert(pid, (grown.0 * tick_ns, grown.1 * tick_ns));
        }
        process.parent = stat.parent;
        if stat.ended() {
            return;
        }
        sample.alive = true;
        sample.times.processes += 1;
        sample.times.threads += stat.threads;
        sample.times.rss_bytes += stat.rss_pages * clock::page_bytes();
        if let Some(count) = descriptors(pid) {
            *sample.times.descriptors.get_or_insert(0) += count;
        }
        let ended = sample_threads(process, pid, &tids, tick_ns, &mut self.buffer, sample);
        let newly =
            tids.iter().filter_map(|tid| process.threads.get_mut(tid)?.newly_bound(pid, *tid));
        self.bound.extend(newly);
        self.unseen.threads += ended;
    }

    /// Credits the time of children that were waited for, minus what was already seen of them.
    fn settle(
        &mut self,
        gone: Vec<u32>,
        mut credits: BTreeMap<u32, (i64, i64)>,
        sample: &mut Sample,
    ) {
        for pid in gone {
            let Some(process) = self.processes.remove(&pid) else { continue };
            self.traffic.ended += 1;
            self.unseen.threads += process.threads.len() as u64;
            let seen_ns = process.split.total_ns()
                + (process.reaped_ticks.0 + process.reaped_ticks.1) * self.tick_ns;
            match self.processes.get_mut(&process.parent) {
                Some(parent) => {
                    parent.owed_ns -= seen_ns;
                    credits.entry(process.parent).or_insert((0, 0));
                }
                None => self.unseen.processes += 1,
            }
        }
        for (pid, (user_ns, kernel_ns)) in credits {
            let Some(parent) = self.processes.get_mut(&pid) else { continue };
            let grown_ns = user_ns + kernel_ns;
            let credit_ns = grown_ns + parent.owed_ns;
            if credit_ns <= 0 {
                // A child is gone and the account did not grow: either nothing waits for it, or it
                // was waited for after the parent was read.
                self.unseen.processes += u64::from(grown_ns == 0);
                parent.owed_ns = credit_ns;
                continue;
            }
            parent.owed_ns = 0;
            let user_ns = (credit_ns as f64 * (user_ns as f64 / grown_ns as f64)) as i64;
            sample.times.user_ns += user_ns;
            sample.times.kernel_ns += credit_ns - user_ns;
        }
    }

    /// The stat of a followed process, if it is still the same process.
    fn stat_of(&mut self, pid: u32) -> Option<Stat> {
        let start_ticks = self.processes.get(&pid)?.start_ticks;
        self.read_stat(pid).filter(|stat| stat.start_ticks == start_ticks)
    }

    fn read_stat(&mut self, pid: u32) -> Option<Stat> {
        procfs::stat_of(pid, &mut self.buffer)
    }

    fn now_ticks(&self) -> u64 {
        u64::try_from(clock::since_boot_ns() / self.tick_ns).expect("the boot was in the past")
    }
}

impl Process {
    fn new(pid: u32, stat: &Stat, from: From, tick_ns: i64) -> Process {
        let mut process = Process {
            start_ticks: stat.start_ticks,
            parent: stat.parent,
            split: Split::NEW,
            reaped_ticks: (0, 0),
            owed_ns: 0,
            threads: BTreeMap::new(),
        };
        if from == From::Now {
            process.split = Split::from_now(
                total_ns(pid, stat, tick_ns),
                stat.user_ticks,
                stat.kernel_ticks,
                tick_ns,
            );
            process.reaped_ticks = (stat.reaped_user_ticks, stat.reaped_kernel_ticks);
            let mut buffer = Vec::new();
            for tid in procfs::threads(pid) {
                if let Some(now) = read_thread(pid, tid, &mut buffer) {
                    let Seen { stat, total_ns, switches, .. } = now;
                    let split =
                        Split::from_now(total_ns, stat.user_ticks, stat.kernel_ticks, tick_ns);
                    let start_ticks = stat.start_ticks;
                    let thread = Thread { split, switches, ..Thread::new(start_ticks) };
                    process.threads.insert(tid, thread);
                }
            }
        }
        process
    }
}

impl Thread {
    fn new(start_ticks: u64) -> Thread {
        let (switches, only_cpu, reported) = ((0, 0), None, None);
        Thread { start_ticks, split: Split::NEW, switches, only_cpu, reported }
    }

    /// The CPU it is bound to, if that was not reported yet.
    fn newly_bound(&mut self, pid: u32, tid: u32) -> Option<BoundThread> {
        let cpu = self.only_cpu.filter(|cpu| self.reported != Some(*cpu))?;
        self.reported = self.only_cpu;
        Some(BoundThread { pid, tid, cpu })
    }
}

/// Samples the threads of a process and returns how many ended since the last time.
fn sample_threads(
    process: &mut Process,
    pid: u32,
    tids: &[u32],
    tick_ns: i64,
    buffer: &mut Vec<u8>,
    sample: &mut Sample,
) -> u64 {
    let mut ended = 0;
    let present: BTreeSet<u32> = tids.iter().copied().collect();
    process.threads.retain(|tid, _| {
        let stays = present.contains(tid);
        ended += u64::from(!stays);
        stays
    });
    for &tid in tids {
        let Some(now) = read_thread(pid, tid, buffer) else { continue };
        let Seen { stat, total_ns, switches, only_cpu } = now;
        let start_ticks = stat.start_ticks;
        let new = || Thread::new(start_ticks);
        let thread = process.threads.entry(tid).or_insert_with(new);
        if thread.start_ticks != start_ticks {
            // Its number was reused by another thread.
            ended += 1;
            *thread = new();
        }
        let used: Used =
            thread.split.advance(total_ns, stat.user_ticks, stat.kernel_ticks, tick_ns);
        let wakes = switches.0.saturating_sub(thread.switches.0);
        sample.times.voluntary_switches += wakes;
        sample.times.involuntary_switches += switches.1.saturating_sub(thread.switches.1);
        (thread.switches, thread.only_cpu) = (switches, only_cpu);
        sample.threads.push(ThreadTimes {
            pid,
            tid,
            name: stat.name,
            total_ns: used.total_ns(),
            user_ns: used.user_ns,
            kernel_ns: used.kernel_ns,
            wakes,
        });
    }
    ended
}

/// What /proc contains about a thread.
struct Seen {
    stat: Stat,
    total_ns: i64,
    switches: (u64, u64),
    only_cpu: Option<u32>,
}

fn read_thread(pid: u32, tid: u32, buffer: &mut Vec<u8>) -> Option<Seen> {
    let stat = procfs::stat(procfs::read(&format!("/proc/{pid}/task/{tid}/stat"), buffer).ok()?)?;
    let status = format!("/proc/{pid}/task/{tid}/status");
    let status = procfs::read(&status, buffer).ok()?;
    let (switches, only_cpu) = (procfs::switches(status)?, procfs::only_cpu(status));
    let schedstat = format!("/proc/{pid}/task/{tid}/schedstat");
    // Without schedstat the ticks are used; the capabilities say which.
    let total_ns = procfs::read(&schedstat, buffer)
        .ok()
        .and_then(procfs::schedstat_ns)
        .unwrap_or_else(|| ticks_ns(&stat, NS_PER_S / i64::from(clock::ticks_per_second())));
    Some(Seen { stat, total_ns, switches, only_cpu })
}

/// All CPU time of a process, including its ended threads.
fn total_ns(pid: u32, stat: &Stat, tick_ns: i64) -> i64 {
    clock::process_cpu_ns(pid).unwrap_or_else(|_| ticks_ns(stat, tick_ns))
}

fn ticks_ns(stat: &Stat, tick_ns: i64) -> i64 {
    (stat.user_ticks + stat.kernel_ticks) * tick_ns
}

/// Open descriptors. Since Linux 6.2 the directory's size is their number; before that, small
/// tables are counted and large ones are not.
fn descriptors(pid: u32) -> Option<u64> {
    let path = format!("/proc/{pid}/fd");
    match std::fs::metadata(&path).ok()?.len() {
        0 => {
            let listed = std::fs::read_dir(&path).ok()?.take(DESCRIPTORS_LISTED_MAX + 1).count();
            (listed <= DESCRIPTORS_LISTED_MAX).then_some(listed as u64)
        }
        count => Some(count),
    }
}

/// A name, truncated as the kernel does it.
pub(crate) fn cut(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// Whether a process's cgroups, as in `/proc/PID/cgroup`, contain this one or one below it.
fn is_in_cgroup(cgroups: &str, name: &str) -> bool {
    let mut paths = cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.any(|path| match path.strip_prefix(name) {
        Some(rest) if name.starts_with('/') => rest.is_empty() || rest.starts_with('/'),
        _ => path.split('/').any(|part| part == name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_has_the_processes_of_those_below_it() {
        let text = "4:memory:/process/1\n0::/system.slice/nginx.service/workers\n";
        let is_in = |target| match target {
            Target::Cgroup(name) => is_in_cgroup(text, &name),
            _ => panic!("not a cgroup"),
        };
        for path in ["/system.slice/nginx.service", "/sys/fs/cgroup/system.slice/", "process/1"] {
            assert!(is_in(Target::cgroup(path)), "{path}");
        }
        assert!(is_in(Target::unit("nginx")) && is_in(Target::unit("nginx.service")));
        for path in ["/system.slice/nginx", "/nginx.service", "/process/11"] {
            assert!(!is_in(Target::cgroup(path)), "{path}");
        }
        assert!(!is_in(Target::unit("ngin")) && !is_in_cgroup("", "/a"));
        let error = Server::attach(&Target::unit("no-such-unit")).unwrap_err();
        assert!(error.to_string().contains("no-such-unit.service"), "{error}");
    }
}
