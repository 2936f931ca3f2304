//! What the last intervals show, for whoever watches a recording: rates, CPU time, latencies, the
//! profile. Nothing is fitted here: what a request costs on the average over these intervals is
//! told, what one more would cost is for the whole trial's [`Analysis`](super::Analysis) to say.
//!
//! The figures come from where those of the analysis come from: resources, samples, latencies,
//! waits and files of a trial, which here is one of [`Trial::recent`].

use serde::Serialize;
use trial::{Capability, Interval, Loss, Trial};

use super::counters::{self, HardwareCounters};
use super::devices;
use super::latency::{self, LatencyBin};
use super::profile::{self, Profile};
use super::resource::{self, ResourceKind};
use super::samples::Samples;
use super::server_name;
use crate::files::{self, Files};
use crate::groups::Groups;
use crate::waits::{self, Waits};

/// The last intervals of a trial.
#[derive(Clone, Debug, Serialize)]
pub struct Recent {
    /// File name of the trial.
    pub trial: String,
    /// Name of the server, as well as it is known.
    pub server: String,
    /// Whether the recording came to its end.
    pub complete: bool,
    /// Number of the last interval.
    pub interval: u64,
    /// When it ended, ns since the Unix epoch.
    pub end_ns: i64,
    /// How long it was, seconds.
    pub interval_s: f64,
    /// Intervals that are summed up here.
    pub intervals: usize,
    /// How long they are together, seconds.
    pub seconds: f64,
    /// Requests per second.
    pub rate: RecentRate,
    /// CPU time of the server divided by its requests; `None` where either is missing.
    pub cpu_per_request: Option<CpuPerRequest>,
    /// What a request took of the processor, where that was counted.
    pub counters: Option<HardwareCounters>,
    /// The resources, the hottest thread first, devices last.
    pub resources: Vec<RecentUse>,
    /// Where the machine's CPU time went, percent of all of it.
    pub machine: Option<MachineModes>,
    /// Latencies, where there are any.
    pub latency: Option<LatencyBin>,
    /// The profile of these intervals.
    pub profile: Option<Profile>,
    /// Waits for locks in these intervals, where they were sampled.
    pub waits: Option<Waits>,
    /// What became of files in the whole recording, where that was sampled.
    pub files: Option<Files>,
    /// What was lost in the whole recording.
    pub losses: Vec<Loss>,
    /// Samplers that have nothing, with the reason.
    pub missing: Vec<Capability>,
    /// CPU time of the recorder, percent of one CPU.
    pub recorder_percent: f64,
}

/// Requests per second.
#[derive(Clone, Debug, Serialize)]
pub struct RecentRate {
    /// In the last interval.
    pub now: f64,
    /// Over all of them.
    pub mean: f64,
    /// In the busiest.
    pub peak: f64,
    /// In each, the oldest first.
    pub each: Vec<f64>,
    /// Whether the rate of the last interval is known: not where the log was away, or no request
    /// was ever told of.
    pub known: bool,
}

/// CPU time of the server divided by its requests, microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CpuPerRequest {
    /// In user mode.
    pub user_us: f64,
    /// In kernel mode.
    pub kernel_us: f64,
}

/// How far a resource is used up, percent of what it can give.
#[derive(Clone, Debug, Serialize)]
pub struct RecentUse {
    /// Which.
    pub kind: ResourceKind,
    /// What it is called: "hottest thread", "disk sda".
    pub name: String,
    /// What its name leaves open.
    pub detail: String,
    /// In the last interval in which it was seen.
    pub now_percent: f64,
    /// On the average.
    pub mean_percent: f64,
}

/// The machine's time by mode, percent.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MachineModes {
    /// User mode, with nice and guest time.
    pub user: f64,
    /// Kernel mode, with interrupts.
    pub kernel: f64,
    /// Of the kernel mode: hardware and soft interrupts.
    pub interrupts: f64,
    /// Idle, waiting for disks among it.
    pub idle: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
}

/// Sums up the intervals of a trial; `None` if it has none.
#[must_use]
pub fn recent(trial: &Trial, groups: &Groups) -> Option<Recent> {
    let intervals = trial.intervals();
    let last = intervals.last()?;
    let length_ns: i64 = intervals.iter().map(|interval| interval.length_ns).sum();
    let recorder_ns: i64 = intervals.iter().map(|interval| interval.recorder_ns).sum();
    let samples = Samples::of(trial, groups);
    let mut series = resource::series_of(trial);
    series.extend(devices::series_of(trial));
    let capabilities = &trial.manifest().capabilities;
    Some(Recent {
        trial: super::file_name(trial),
        server: server_name(trial.manifest()),
        complete: trial.complete(),
        interval: last.index,
        end_ns: last.start_ns + last.length_ns,
        interval_s: last.length_ns as f64 / 1e9,
        intervals: intervals.len(),
        seconds: length_ns as f64 / 1e9,
        rate: rate(intervals, last, length_ns),
        cpu_per_request: cpu_per_request(intervals),
        counters: counters::counters(trial, groups, None, 0.0, 0),
        resources: series.iter().filter_map(used).collect(),
        machine: machine(intervals),
        latency: latency::together(trial.latencies(), intervals),
        profile: samples.and_then(|samples| profile::profile(trial, &samples, groups)),
        waits: waits::waits(trial),
        files: files::files(trial),
        losses: trial.losses().to_vec(),
        missing: capabilities.iter().filter(|capability| !capability.supported).cloned().collect(),
        recorder_percent: 100.0 * recorder_ns as f64 / length_ns.max(1) as f64,
    })
}

fn rate(intervals: &[Interval], last: &Interval, length_ns: i64) -> RecentRate {
    let each: Vec<f64> = intervals.iter().map(Interval::rate).collect();
    let requests: f64 = intervals.iter().map(|interval| interval.requests).sum();
    RecentRate {
        now: last.rate(),
        mean: requests / (length_ns.max(1) as f64 / 1e9),
        peak: each.iter().copied().fold(0.0, f64::max),
        each,
        known: last.rate_valid,
    }
}

/// Of intervals whose rate is known and in which the server was seen.
fn cpu_per_request(intervals: &[Interval]) -> Option<CpuPerRequest> {
    let (mut user_ns, mut kernel_ns, mut requests) = (0, 0, 0.0);
    for interval in intervals.iter().filter(|interval| interval.rate_valid) {
        let Some(server) = &interval.server else { continue };
        user_ns += server.user_ns;
        kernel_ns += server.kernel_ns;
        requests += interval.requests;
    }
    let us = |ns: i64| ns as f64 / 1e3 / requests;
    // Of less than one request nothing can be said.
    (requests >= 1.0).then(|| CpuPerRequest { user_us: us(user_ns), kernel_us: us(kernel_ns) })
}

fn used(series: &resource::Series) -> Option<RecentUse> {
    let busy: Vec<f64> = series.uses.iter().flatten().map(|used| used.busy()).collect();
    Some(RecentUse {
        kind: series.kind,
        name: series.name.clone(),
        detail: series.detail.clone(),
        now_percent: *busy.last()?,
        mean_percent: busy.iter().sum::<f64>() / busy.len() as f64,
    })
}

fn machine(intervals: &[Interval]) -> Option<MachineModes> {
    let sum = |of: fn(&trial::Modes) -> i64| -> i64 {
        intervals.iter().map(|interval| of(&interval.machine)).sum()
    };
    let total = sum(|modes| modes.total_ns());
    let percent = |ns: i64| 100.0 * ns as f64 / total as f64;
    (total > 0).then(|| MachineModes {
        user: percent(sum(|modes| modes.user_mode_ns())),
        kernel: percent(sum(|modes| modes.kernel_mode_ns())),
        interrupts: percent(sum(|modes| modes.irq_ns + modes.softirq_ns)),
        idle: percent(sum(|modes| modes.idle_ns + modes.iowait_ns)),
        steal: percent(sum(|modes| modes.steal_ns)),
    })
}
