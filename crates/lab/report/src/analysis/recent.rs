//! The last intervals of a recording, for a live view: rates, CPU time, latencies, the profile.
//! Nothing is fitted here. The cost of a request is the mean over these intervals; the marginal
//! cost is in the [`Analysis`](super::Analysis) of the whole trial.
//!
//! The figures are computed in the same way as the figures of the analysis, from a trial read by
//! [`Trial::recent`].

use serde::Serialize;
use trial::{Capability, Interval, Loss, Trial};

use super::counters::{self, HardwareCounters};
use super::devices;
use super::files::{self, Files};
use super::latency::{self, LatencyBin};
use super::profile::{self, Profile};
use super::resource::{self, ResourceKind};
use super::samples::Samples;
use super::server_name;
use super::waits::{self, Waits};
use groups::Groups;

/// The last intervals of a trial.
#[derive(Clone, Debug, Serialize)]
pub struct Recent {
    /// File name of the trial.
    pub trial: String,
    /// Name of the server, as far as it is known.
    pub server: String,
    /// Whether the recording was finished.
    pub complete: bool,
    /// Number of the last interval.
    pub interval: u64,
    /// The end of the last interval, ns since the Unix epoch.
    pub end_ns: i64,
    /// Length of the last interval, seconds.
    pub interval_s: f64,
    /// Number of intervals.
    pub intervals: usize,
    /// Total length of the intervals, seconds.
    pub seconds: f64,
    /// Requests per second.
    pub rate: RecentRate,
    /// CPU time of the server divided by its requests; `None` if either is missing.
    pub cpu_per_request: Option<CpuPerRequest>,
    /// Hardware counters per request, if they were recorded.
    pub counters: Option<HardwareCounters>,
    /// The resources, the hottest thread first, devices last.
    pub resources: Vec<RecentUse>,
    /// The machine's CPU time by mode, percent.
    pub machine: Option<MachineModes>,
    /// Latencies, if there are any.
    pub latency: Option<LatencyBin>,
    /// The profile of these intervals.
    pub profile: Option<Profile>,
    /// Lock waits in these intervals, if they were sampled.
    pub waits: Option<Waits>,
    /// File access in the whole recording, if it was sampled.
    pub files: Option<Files>,
    /// Losses of the whole recording.
    pub losses: Vec<Loss>,
    /// Samplers that do not work here, with the reason.
    pub missing: Vec<Capability>,
    /// CPU time of the recorder, percent of one CPU.
    pub recorder_percent: f64,
    /// The intervals, oldest first.
    #[serde(skip)]
    pub each: Vec<RecentInterval>,
}

/// One interval.
#[derive(Clone, Debug)]
pub struct RecentInterval {
    /// Its end, ns since the Unix epoch.
    pub end_ns: i64,
    /// Requests per second, if known.
    pub rate: Option<f64>,
    /// Use of each of [`Recent::resources`], percent of its cap.
    pub used_percent: Vec<Option<f64>>,
    /// Its latencies, if there are any.
    pub latency: Option<LatencyBin>,
}

/// Requests per second.
#[derive(Clone, Debug, Serialize)]
pub struct RecentRate {
    /// In the last interval.
    pub now: f64,
    /// The mean over all intervals.
    pub mean: f64,
    /// In the busiest interval.
    pub peak: f64,
    /// In each interval, oldest first.
    pub each: Vec<f64>,
    /// Whether the rate of the last interval is known. It is not while the log is missing, or if no
    /// request has been logged yet.
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

/// The use of a resource, percent of its cap.
#[derive(Clone, Debug, Serialize)]
pub struct RecentUse {
    /// Its kind.
    pub kind: ResourceKind,
    /// Its name: "hottest thread", "disk sda".
    pub name: String,
    /// Details that are not in its name.
    pub detail: String,
    /// In the last interval with data.
    pub now_percent: f64,
    /// The mean.
    pub mean_percent: f64,
}

/// The machine's time by mode, percent.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MachineModes {
    /// User mode, with nice and guest time.
    pub user: f64,
    /// Kernel mode, with interrupts.
    pub kernel: f64,
    /// Hardware and soft interrupts, which are part of kernel mode.
    pub interrupts: f64,
    /// Idle, including waiting for disks.
    pub idle: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
}

/// Summarises the intervals of a trial; `None` if it has none.
#[must_use]
pub fn recent(trial: &Trial, groups: &Groups) -> Option<Recent> {
    let intervals = trial.intervals();
    let last = intervals.last()?;
    let length_ns: i64 = intervals.iter().map(|interval| interval.length_ns).sum();
    let recorder_ns: i64 = intervals.iter().map(|interval| interval.recorder_ns).sum();
    let samples = Samples::of(trial, groups);
    let mut series = resource::series_of(trial);
    series.extend(devices::series_of(trial));
    series.retain(|series| series.uses.iter().any(Option::is_some));
    let capabilities = &trial.manifest().capabilities;
    Some(Recent {
        each: each(trial, &series),
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

/// Over the intervals with a known rate and data of the server.
fn cpu_per_request(intervals: &[Interval]) -> Option<CpuPerRequest> {
    let (mut user_ns, mut kernel_ns, mut requests) = (0, 0, 0.0);
    for interval in intervals.iter().filter(|interval| interval.rate_valid) {
        let Some(server) = &interval.server else { continue };
        user_ns += server.user_ns;
        kernel_ns += server.kernel_ns;
        requests += interval.requests;
    }
    let us = |ns: i64| ns as f64 / 1e3 / requests;
    // Less than one request gives no meaningful mean.
    (requests >= 1.0).then(|| CpuPerRequest { user_us: us(user_ns), kernel_us: us(kernel_ns) })
}

fn each(trial: &Trial, series: &[resource::Series]) -> Vec<RecentInterval> {
    let latencies = latency::each(trial.latencies(), trial.intervals());
    let of = |(at, interval): (usize, &Interval)| RecentInterval {
        end_ns: interval.start_ns + interval.length_ns,
        rate: interval.rate_valid.then(|| interval.rate()),
        used_percent: series.iter().map(|of| Some(of.uses[at]?.busy())).collect(),
        latency: latencies.get(&interval.index).copied(),
    };
    trial.intervals().iter().enumerate().map(of).collect()
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
