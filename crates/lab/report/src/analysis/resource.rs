//! The CPU resources of a trial, and their use in each interval.
//!
//! A load line belongs to a resource: a single-threaded server is limited when its thread saturates
//! a CPU, however idle the other CPUs are. With several CPUs the idle time of the whole machine is
//! the wrong measure. If the load is generated on the same machine, the machine's idle time is not
//! the server's either. So the machine is shown, but the machine limits only if the server is most
//! of what runs on it.
//!
//! The modes of these resources are known, and a profile can divide their time. Other resources are
//! in [`super::devices`].

use std::collections::BTreeMap;

use serde::Serialize;
use trial::{Interval, Manifest, Modes, ThreadTimes, Trial};

/// A resource of the server or the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum ResourceKind {
    /// The server's thread that uses most CPU time; its cap is one CPU.
    #[default]
    HottestThread,
    /// All of the server's processes. The cap is one CPU for each working thread, at most the
    /// number of CPUs.
    Server,
    /// All CPUs of the machine, used by any process.
    Machine,
    /// One CPU, used by any process.
    Cpu,
    /// Hardware and soft interrupts on one CPU.
    Interrupts,
    /// A disk, by its busy time.
    Disk,
    /// A network card, by its busier direction.
    Nic,
    /// The threads that answer one request at a time, by the time in which requests occupy them.
    Answering,
}

impl ResourceKind {
    /// Its label in tables.
    pub fn label(self) -> &'static str {
        match self {
            ResourceKind::HottestThread => "hottest thread",
            ResourceKind::Server => "all threads",
            ResourceKind::Machine => "machine",
            ResourceKind::Cpu => "CPU",
            ResourceKind::Interrupts => "interrupts",
            ResourceKind::Disk => "disk",
            ResourceKind::Nic => "card",
            ResourceKind::Answering => "threads that answer",
        }
    }

    /// Whether it is CPU time.
    pub(super) fn is_cpu_time(self) -> bool {
        !matches!(self, ResourceKind::Disk | ResourceKind::Nic | ResourceKind::Answering)
    }

    /// Whether it is CPU time of the server or the machine, with known modes and procedures.
    pub(super) fn has_modes(self) -> bool {
        matches!(self, ResourceKind::HottestThread | ResourceKind::Server | ResourceKind::Machine)
    }
}

/// The use of a resource in one interval, in percent of its cap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Use {
    pub(super) user: f64,
    pub(super) kernel: f64,
    pub(super) idle: f64,
    /// Voluntary context switches per second, if known.
    pub(super) wakes: Option<f64>,
}

impl Use {
    /// The modes of one CPU or of all, in percent of their total.
    pub(super) fn of(modes: &Modes) -> Use {
        let percent = |ns: i64| 100.0 * ns as f64 / modes.total_ns() as f64;
        Use {
            user: percent(modes.user_mode_ns()),
            kernel: percent(modes.kernel_mode_ns()),
            idle: percent(modes.idle_ns + modes.iowait_ns),
            wakes: None,
        }
    }

    pub(super) fn busy(self) -> f64 {
        self.user + self.kernel
    }
}

/// A resource's use in every interval of the trial; `None` without data.
#[derive(Default)]
pub(super) struct Series {
    pub(super) kind: ResourceKind,
    /// Its name in tables.
    pub(super) name: String,
    /// Its cap, CPU seconds per second; 1 is all of a resource that is not a CPU.
    pub(super) cap: f64,
    /// Details that are not in its name: "squid/1234".
    pub(super) detail: String,
    pub(super) uses: Vec<Option<Use>>,
    /// The language, if its lock lets the threads of a process run one at a time.
    pub(super) takes_turns: Option<&'static str>,
    /// Whether many processes share each CPU.
    pub(super) processes_alternate: bool,
    /// Its share of the server's CPU time; `None` if it is not CPU time of the server.
    pub(super) share_of_server: Option<f64>,
    /// Why it does not limit the server, if it does not.
    pub(super) why_not_limiting: Option<String>,
}

impl Series {
    /// CPU time of the server or the machine, named after its kind.
    fn of_cpu_time(kind: ResourceKind, cap: f64, detail: String, uses: Vec<Option<Use>>) -> Series {
        Series { kind, name: kind.label().to_string(), cap, detail, uses, ..Series::default() }
    }
}

/// The workers are the fewest threads that used this share of the server's time.
const WORKERS_SHARE: f64 = 0.90;
/// From so many working processes for each CPU on, they take turns.
const PROCESSES_MANY: f64 = 4.0;
/// The hottest thread is a single thread if it was present in this share of the intervals.
const THREAD_PRESENT_MIN: f64 = 0.90;

/// All CPU resources with data in the trial, the hottest thread first.
pub(super) fn series_of(trial: &Trial) -> Vec<Series> {
    let intervals = trial.intervals();
    let cpus = f64::from(trial.manifest().host.cpus.max(1));
    let threads = ThreadTotals::of(intervals);
    let (workers, pinned) = (threads.workers() as f64, threads.cpus(trial));
    let allowed = pinned.unwrap_or(cpus);
    let shared = allowed == 1.0 && threads.busy() > 1;
    let mut found = Vec::new();
    if let Some(series) = threads.hottest(intervals) {
        let why_not_limiting = shared.then(|| "others share its only CPU".to_string());
        found.push(Series { why_not_limiting, ..series });
    }
    // With one worker the server is its hottest thread, and a second line adds nothing, unless
    // other threads share the only CPU with it.
    if intervals.iter().any(|interval| interval.server.is_some())
        && (workers > 1.0 || shared || found.is_empty())
    {
        let at_once = workers.clamp(1.0, allowed);
        let cap = one_at_a_time(trial, at_once);
        let takes_turns = one_cpu_a_process(trial.manifest()).filter(|_| cap < at_once);
        let processes_alternate = working_processes(intervals) > PROCESSES_MANY * cap;
        let whole = whole_server(intervals, cap, at_once);
        found.push(Series { takes_turns, processes_alternate, ..whole });
    }
    if intervals.iter().any(|interval| interval.machine.total_ns() > 0) {
        let fewer = pinned.filter(|pinned| *pinned < cpus);
        let why_not_limiting =
            fewer.map(|pinned| format!("the server is pinned to {}", counted(pinned, "CPU")));
        found.push(Series { why_not_limiting, ..machine(intervals, cpus) });
    }
    found
}

/// The programs that run the code of a process on one CPU at a time, whatever its threads: how the
/// names of their files begin, and what they are.
const ONE_CPU_A_PROCESS: [(&str, &str); 6] = [
    ("python", "Python"),
    ("pypy", "Python"),
    ("ruby", "Ruby"),
    ("node", "Node.js"),
    ("bun", "Bun"),
    ("deno", "Deno"),
];
/// More than this part of one CPU for each process, and the code is not Python's own.
const ONE_CPU_EXCEEDED: f64 = 1.05;

/// The name of the language, if the server's processes run their code on one CPU at a time.
pub(crate) fn one_cpu_a_process(manifest: &Manifest) -> Option<&'static str> {
    let file = manifest.server.exe.rsplit('/').next()?;
    let file = file.strip_suffix(" (deleted)").unwrap_or(file);
    let found = ONE_CPU_A_PROCESS.iter().find(|(name, _)| {
        // Free-threaded builds of Python end with a `t`: "python3.13t".
        let version = file.strip_prefix(name);
        version.is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || "js.-".contains(c)))
    });
    found.map(|(_, language)| *language)
}

/// The cap of all threads: Python and Ruby have as many CPUs as they have processes, unless more
/// was used.
fn one_at_a_time(trial: &Trial, cap: f64) -> f64 {
    let has_lock = matches!(one_cpu_a_process(trial.manifest()), Some("Python" | "Ruby"));
    let intervals = trial.intervals();
    let processes = working_processes(intervals).max(1.0);
    let used = |interval: &Interval| {
        Some(interval.server?.total_ns as f64 / interval.length_ns.max(1) as f64)
    };
    let highest = intervals.iter().filter_map(used).fold(0.0, f64::max);
    if has_lock && highest <= ONE_CPU_EXCEEDED * processes { cap.min(processes) } else { cap }
}

/// The server's share of the machine's busy time, if both were recorded.
pub(super) fn server_share(intervals: &[Interval]) -> Option<f64> {
    share_of(intervals, Modes::busy_ns)
}

/// The server's CPU time as a share of a part of the machine's, over the intervals with both.
pub(super) fn share_of(intervals: &[Interval], part: impl Fn(&Modes) -> i64) -> Option<f64> {
    let both = intervals.iter().filter_map(|i| Some((i.server?.total_ns, part(&i.machine))));
    let (server, machine) = both.fold((0, 0), |sum, both| (sum.0 + both.0, sum.1 + both.1));
    (machine > 0).then(|| server as f64 / machine as f64)
}

fn whole_server(intervals: &[Interval], cap: f64, threads: f64) -> Series {
    let uses = intervals.iter().map(|interval| {
        let server = interval.server.as_ref()?;
        percent_of(interval, cap, server.user_ns, server.kernel_ns, server.voluntary_switches)
    });
    let detail = counted(threads, "working thread");
    let series = Series::of_cpu_time(ResourceKind::Server, cap, detail, uses.collect());
    Series { share_of_server: Some(1.0), ..series }
}

/// The modes of the machine are in percent of the time that the kernel accounted for, not of the
/// clock, so that they add up to 100 at any tick resolution. Time stolen by the hypervisor is in
/// none of the three modes, and appears as the closure gap.
fn machine(intervals: &[Interval], cap: f64) -> Series {
    let uses = intervals.iter().map(|interval| {
        let modes = &interval.machine;
        (modes.total_ns() > 0).then(|| Use::of(modes))
    });
    let detail = counted(cap, "CPU");
    Series::of_cpu_time(ResourceKind::Machine, cap, detail, uses.collect())
}

fn counted(number: f64, what: &str) -> String {
    if number == 1.0 { format!("1 {what}") } else { format!("{number:.0} {what}s") }
}

fn percent_of(i: &Interval, cap: f64, user_ns: i64, kernel_ns: i64, wakes: u64) -> Option<Use> {
    let length = i.length_ns as f64;
    if length <= 0.0 {
        return None;
    }
    let user = 100.0 * user_ns as f64 / length / cap;
    let kernel = 100.0 * kernel_ns as f64 / length / cap;
    let wakes = Some(wakes as f64 / (length / 1e9));
    Some(Use { user, kernel, idle: 100.0 - user - kernel, wakes })
}

/// Number of processes that do most of the work in the typical interval. Processes that were
/// replaced while the trial was recorded do not count twice.
fn working_processes(intervals: &[Interval]) -> f64 {
    let working =
        intervals.iter().filter(|interval| !interval.threads.is_empty()).map(|interval| {
            let mut by_process: BTreeMap<u32, i64> = BTreeMap::new();
            for thread in &interval.threads {
                *by_process.entry(thread.pid).or_default() += thread.total_ns;
            }
            fewest_with_most(by_process.into_values().collect()) as f64
        });
    super::median(&working.collect::<Vec<f64>>()).unwrap_or(0.0)
}

/// How many of these times, the largest first, add up to most of their sum.
fn fewest_with_most(mut each_ns: Vec<i64>) -> usize {
    each_ns.sort_unstable_by_key(|ns| std::cmp::Reverse(*ns));
    let enough = WORKERS_SHARE * each_ns.iter().sum::<i64>() as f64;
    let mut sum = 0.0;
    let last = each_ns.iter().position(|ns| {
        sum += *ns as f64;
        sum >= enough
    });
    last.map_or(0, |at| at + 1)
}

/// CPU time of each thread over the whole trial.
pub(super) struct ThreadTotals {
    by_thread: BTreeMap<(u32, u32), Total>,
    intervals_with_threads: usize,
}

#[derive(Default)]
struct Total {
    ns: i64,
    intervals: usize,
    name: String,
}

impl ThreadTotals {
    pub(super) fn of(intervals: &[Interval]) -> ThreadTotals {
        let mut by_thread: BTreeMap<(u32, u32), Total> = BTreeMap::new();
        let mut intervals_with_threads = 0;
        for interval in intervals {
            intervals_with_threads += usize::from(!interval.threads.is_empty());
            for thread in &interval.threads {
                let total = by_thread.entry((thread.pid, thread.tid)).or_default();
                total.ns += thread.total_ns;
                total.intervals += 1;
                if total.name != thread.name {
                    total.name.clone_from(&thread.name);
                }
            }
        }
        ThreadTotals { by_thread, intervals_with_threads }
    }

    /// Number of workers: the fewest threads that used most of the time. A server with a thread
    /// for each connection has many, each with little.
    fn workers(&self) -> usize {
        fewest_with_most(self.by_thread.values().map(|total| total.ns).collect())
    }

    /// Number of threads that used CPU time.
    fn busy(&self) -> usize {
        self.by_thread.values().filter(|total| total.ns > 0).count()
    }

    /// CPU time of all threads, ns.
    pub(super) fn ns(&self) -> i64 {
        self.by_thread.values().map(|total| total.ns).sum()
    }

    /// CPU time of the threads that are pinned to one CPU, by that CPU, ns.
    pub(super) fn pinned_ns(&self, trial: &Trial) -> BTreeMap<u32, i64> {
        let mut by_cpu = BTreeMap::new();
        for one in trial.bound_threads() {
            let total = self.by_thread.get(&(one.pid, one.tid));
            if let Some(total) = total.filter(|total| total.ns > 0) {
                *by_cpu.entry(one.cpu).or_default() += total.ns;
            }
        }
        by_cpu
    }

    /// Number of CPUs to which the server is pinned; `None` if one of its busy threads may run on
    /// several.
    fn cpus(&self, trial: &Trial) -> Option<f64> {
        let pinned = self.pinned_ns(trial);
        let all = !pinned.is_empty() && pinned.values().sum::<i64>() == self.ns();
        all.then_some(pinned.len() as f64)
    }

    /// The thread that used most, if it was present nearly all the time. Otherwise (the server
    /// forks or restarts) the hottest thread of each interval.
    fn hottest<'i>(&self, intervals: &'i [Interval]) -> Option<Series> {
        let ((pid, tid), total) = self.by_thread.iter().max_by_key(|(_, total)| total.ns)?;
        let enough = THREAD_PRESENT_MIN * self.intervals_with_threads as f64;
        let throughout = total.intervals as f64 >= enough;
        let hottest_in = |interval: &'i Interval| {
            let threads = &interval.threads;
            match throughout {
                true => threads.iter().find(|thread| (thread.pid, thread.tid) == (*pid, *tid)),
                false => threads.iter().max_by_key(|thread| thread.total_ns),
            }
        };
        let each: Vec<Option<&ThreadTimes>> = intervals.iter().map(hottest_in).collect();
        let ns: i64 = each.iter().flatten().map(|thread| thread.total_ns).sum();
        let uses = intervals.iter().zip(&each).map(|(interval, thread)| {
            let thread = (*thread)?;
            percent_of(interval, 1.0, thread.user_ns, thread.kernel_ns, thread.wakes)
        });
        let detail = match throughout {
            true => format!("{}, thread {tid}", total.name),
            false => "varies: threads came and went".to_string(),
        };
        let kind = ResourceKind::HottestThread;
        let series = Series::of_cpu_time(kind, 1.0, detail, uses.collect());
        Some(Series { share_of_server: Some(ns as f64 / self.ns().max(1) as f64), ..series })
    }
}
