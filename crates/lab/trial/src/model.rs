//! The content of a trial, as plain structs: the recorder fills them, the reader returns them
//! unchanged, and any caller may serialise them. No method here does I/O.
//!
//! Durations are `i64` nanoseconds, because that is what SQLite stores. Counts are `u64`; the
//! writer refuses one that does not fit.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::{Deserialize, Serialize};

use crate::digest;
use crate::table::{Table, columns};

/// What was measured, on which machine and server, and what could not be measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Manifest {
    /// Schema version of the file. The writer sets it and ignores the caller's value.
    pub schema: u32,
    /// When the recording began, ns since the Unix epoch.
    pub created_ns: i64,
    /// Version of the program that wrote the trial.
    pub tool_version: String,
    /// The machine.
    pub host: Host,
    /// The server under observation.
    pub server: Server,
    /// Nominal length of an interval, ns. The intervals have the actual lengths.
    pub interval_ns: i64,
    /// The access log that was followed.
    pub log_path: Option<String>,
    /// Its format, declared or detected: "squid", "combined", "clf", "haproxy".
    pub log_format: Option<String>,
    /// What each sampler could and could not do, with the reason.
    pub capabilities: Vec<Capability>,
    /// Notes for the reader, in the order they were made.
    pub notes: Vec<String>,
    /// What the user said about the trial, by name: `release` = `42`.
    pub labels: BTreeMap<String, String>,
}

/// The note with a reason why no request is in any interval begins so.
pub const NOTE_CAUSE: &str = "no requests: ";
/// The note with the number of times that an accept queue was full begins so.
pub const NOTE_ACCEPT_QUEUE: &str = "times that an accept queue was full: ";

/// How often an accept queue was full, by the notes.
#[must_use]
pub fn accept_queue_full(manifest: &Manifest) -> Option<u64> {
    manifest.notes.iter().find_map(|note| note.strip_prefix(NOTE_ACCEPT_QUEUE)?.parse().ok())
}

/// The label that overrides the name of the server.
const LABEL_SERVER: &str = "server";
/// The label that overrides the name of the host.
const LABEL_HOST: &str = "host";

impl Manifest {
    /// Name of the machine: its label, or what it calls itself.
    pub fn host_name(&self) -> &str {
        self.labels.get(LABEL_HOST).unwrap_or(&self.host.hostname)
    }

    /// Name of the server: its label, or the kernel's name for its first process.
    pub fn server_name(&self) -> &str {
        self.labels.get(LABEL_SERVER).unwrap_or(&self.server.name)
    }

    /// Identity of the trial: the same in every copy of the file, and from its first interval on.
    pub fn identity(&self) -> u64 {
        let Manifest { host, server, created_ns, .. } = self;
        let pid = server.pid.unwrap_or_default();
        let text = format!("{}\0{}\0{pid}\0{created_ns}", host.hostname, server.name);
        digest::stable_hash(text.as_bytes())
    }
}

/// The machine a trial was recorded on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Its name.
    pub hostname: String,
    /// Kernel name and release.
    pub kernel: String,
    /// Online CPUs.
    pub cpus: u32,
    /// Model of the first CPU.
    pub cpu_model: String,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Identity of this boot: trials of the same boot share it.
    pub boot_id: Option<String>,
    /// Clock ticks per second. Its inverse is the resolution of tick-accounted modes.
    pub ticks_per_second: u32,
}

/// The server that was observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Server {
    /// The kernel's name for its first process (at most 15 bytes).
    pub name: String,
    /// Its first process.
    pub pid: Option<u32>,
    /// All its processes at the start, children included.
    pub pids: Vec<u32>,
    /// Command line of the first process, with spaces between the arguments.
    pub command_line: String,
    /// Its executable.
    pub exe: String,
    /// Its version, if known.
    pub version: Option<String>,
}

/// Something that a sampler can or cannot do on this machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capability {
    /// What it is: "thread cpu time", "log elapsed".
    pub name: String,
    /// Whether it works on this machine.
    pub supported: bool,
    /// Its resolution and source, or why it does not work.
    pub reason: String,
}

/// CPU time of the whole machine or of one CPU in an interval, by mode, ns.
///
/// The modes are disjoint: guest time, which the kernel also counts as user or nice time, is
/// subtracted there. They add up to the length of the interval times the number of CPUs, within the
/// resolution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modes {
    /// User mode, guests not included.
    pub user_ns: i64,
    /// User mode at lowered priority, guests not included.
    pub nice_ns: i64,
    /// Kernel mode.
    pub system_ns: i64,
    /// Hardware interrupts.
    pub irq_ns: i64,
    /// Soft interrupts.
    pub softirq_ns: i64,
    /// Idle.
    pub idle_ns: i64,
    /// Idle with I/O outstanding.
    pub iowait_ns: i64,
    /// Taken by the hypervisor.
    pub steal_ns: i64,
    /// Running virtual machines on this host, at any priority.
    pub guest_ns: i64,
}

impl Modes {
    /// All modes together, ns.
    pub fn total_ns(&self) -> i64 {
        self.busy_ns() + self.idle_ns + self.iowait_ns + self.steal_ns
    }

    /// Time in which a CPU was neither idle, nor waiting for I/O, nor stolen, ns.
    pub fn busy_ns(&self) -> i64 {
        self.user_mode_ns() + self.kernel_mode_ns()
    }

    /// User, nice and guest time, ns.
    pub fn user_mode_ns(&self) -> i64 {
        self.user_ns + self.nice_ns + self.guest_ns
    }

    /// Kernel time including both kinds of interrupts, ns.
    pub fn kernel_mode_ns(&self) -> i64 {
        self.system_ns + self.irq_ns + self.softirq_ns
    }
}

/// The modes of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuModes {
    /// Its number.
    pub cpu: u32,
    /// Its modes.
    pub modes: Modes,
}

/// Resources used by all of the server's processes together in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessTimes {
    /// User mode, ns. `user_ns + kernel_ns == total_ns`.
    pub user_ns: i64,
    /// Kernel mode, ns.
    pub kernel_ns: i64,
    /// CPU time, ns.
    pub total_ns: i64,
    /// Processes at the end of the interval.
    pub processes: u32,
    /// Threads at the end of the interval.
    pub threads: u32,
    /// Times a thread went to sleep voluntarily.
    pub voluntary_switches: u64,
    /// Times a thread was preempted.
    pub involuntary_switches: u64,
    /// Resident memory at the end of the interval, bytes. Shared pages count once per process.
    pub rss_bytes: u64,
    /// Open descriptors at the last count; the manifest says how often they are counted.
    pub descriptors: Option<u64>,
}

/// CPU time of one thread of the server in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadTimes {
    /// Its process.
    pub pid: u32,
    /// Its thread id.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// CPU time, ns.
    pub total_ns: i64,
    /// User mode, ns. `user_ns + kernel_ns == total_ns`.
    pub user_ns: i64,
    /// Kernel mode, ns.
    pub kernel_ns: i64,
    /// Times it slept and was woken: its voluntary context switches.
    pub wakes: u64,
}

/// One interval of a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its number, from 0. Numbers are unique, and are missing where intervals were lost.
    pub index: u64,
    /// When it began, ns since the Unix epoch.
    pub start_ns: i64,
    /// Its actual length, ns.
    pub length_ns: i64,
    /// The whole machine.
    pub machine: Modes,
    /// The server's processes; `None` if no server was observed.
    pub server: Option<ProcessTimes>,
    /// Each CPU.
    pub cpus: Vec<CpuModes>,
    /// Each thread of the server that was alive at the end of the interval.
    pub threads: Vec<ThreadTimes>,
    /// Requests, each spread over its duration: the sum over all intervals is their number.
    pub requests: f64,
    /// Requests that ended in this interval.
    pub requests_ended: u64,
    /// Whether `requests` may be used for a fit: false at the edges of a recording, which requests
    /// may extend beyond, and where log lines may be missing.
    pub rate_valid: bool,
    /// What the experiment did in this interval: "warm-up", "saturation".
    pub phase: Option<String>,
    /// CPU time of the recorder itself, ns.
    pub recorder_ns: i64,
}

impl Interval {
    /// Requests per second.
    pub fn rate(&self) -> f64 {
        if self.length_ns > 0 { self.requests / (self.length_ns as f64 / 1e9) } else { 0.0 }
    }
}

/// Requests that became known after their interval was written: a request that takes a minute is
/// logged only when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Amendment {
    /// The interval's number.
    pub interval: u64,
    /// The amount to add to its `requests`.
    pub requests: f64,
    /// The amount to add to its `requests_ended`.
    pub requests_ended: u64,
}

/// The source of a latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LatencySource {
    /// The load generator, from the intended start of the request.
    Generator,
    /// The server's access log.
    Log,
    /// The server's sockets, from the receive that begins the request.
    Sockets,
}

impl LatencySource {
    /// Its name in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            LatencySource::Generator => "generator",
            LatencySource::Log => "log",
            LatencySource::Sockets => "sockets",
        }
    }
}

/// The latencies of the requests that ended in one interval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyRow {
    /// The interval's number.
    pub interval: u64,
    /// Their source.
    pub source: LatencySource,
    /// Number of latencies.
    pub count: u64,
    /// Whether the measurement failed (the generator fell behind). Such a row must not be used.
    pub invalid: bool,
    /// An HdrHistogram in its V2 encoding; values are microseconds.
    pub histogram: Vec<u8>,
}

impl LatencyRow {
    /// Makes a row from a histogram of microseconds.
    pub fn new(
        interval: u64,
        source: LatencySource,
        invalid: bool,
        histogram_us: &Histogram<u64>,
    ) -> LatencyRow {
        let mut bytes = Vec::new();
        V2Serializer::new()
            .serialize(histogram_us, &mut bytes)
            .expect("a histogram with counts below 2^63 is encoded in memory");
        LatencyRow { interval, source, count: histogram_us.len(), invalid, histogram: bytes }
    }

    /// The histogram, in microseconds; `None` if the bytes are not one.
    pub fn histogram_us(&self) -> Option<Histogram<u64>> {
        Deserializer::new().deserialize(&mut self.histogram.as_slice()).ok()
    }
}

/// Something that was not recorded, and how often.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The kind: "log: line not understood". One row for each kind, with the sum of its counts.
    pub kind: String,
    /// How often.
    pub count: u64,
    /// The last note about it.
    pub note: String,
}

/// A prediction, kept so that it can be compared with the result of the change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The question: "what-if select=0".
    pub name: String,
    /// When it was made, ns since the Unix epoch.
    pub made_at_ns: i64,
    /// The predicted quantity: "capacity requests/s".
    pub quantity: String,
    /// The predicted value.
    pub value: f64,
    /// Lower end of its interval; `None` is unbounded.
    pub low: Option<f64>,
    /// Upper end of its interval; `None` is unbounded.
    pub high: Option<f64>,
    /// Confidence level, 0 to 1.
    pub level: f64,
    /// The model that predicted it: "straight", "wakes".
    pub model: String,
}

impl ToSql for LatencySource {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.as_str().into())
    }
}

impl FromSql for LatencySource {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<LatencySource> {
        match value.as_str()? {
            "generator" => Ok(LatencySource::Generator),
            "log" => Ok(LatencySource::Log),
            "sockets" => Ok(LatencySource::Sockets),
            _ => Err(FromSqlError::InvalidType),
        }
    }
}

impl Table for LatencyRow {
    const NAME: &'static str = "latency";
    const OPTIONAL: bool = false;
    const COLUMNS: &'static str = "idx, source, count, invalid, histogram";
    const ROWS: &'static str = "WHERE idx >= ? AND idx < ? ORDER BY idx, id";

    columns!(interval, source, count, invalid, histogram);
}

impl Table for Loss {
    const NAME: &'static str = "loss";
    const OPTIONAL: bool = false;
    const COLUMNS: &'static str = "kind, count, note";
    const ROWS: &'static str = "ORDER BY id";
    const CONFLICT: &'static str =
        "ON CONFLICT (kind) DO UPDATE SET count = count + excluded.count, note = excluded.note";

    columns!(kind, count, note);
}

impl Table for Prediction {
    const NAME: &'static str = "prediction";
    const OPTIONAL: bool = false;
    const COLUMNS: &'static str = "name, made_at_ns, quantity, value, low, high, level, model";
    const ROWS: &'static str = "ORDER BY id";

    columns!(name, made_at_ns, quantity, value, low, high, level, model);
}
