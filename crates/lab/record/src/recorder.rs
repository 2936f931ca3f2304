//! The recording itself: samples at fixed boundaries, intervals into the trial.
//!
//! ```text
//! attach, open log, create trial -> wait for the first boundary -> baseline
//!   -> [ sleep to the boundary -> sample -> read the log -> write what is old enough ] ...
//!   -> wait for late lines -> write the rest -> finish
//! ```
//!
//! Boundaries are at multiples of the interval after the first boundary, on the monotonic clock, so
//! that the boundaries do not drift. An interval's length is the actual time between two samples.
//! If the log stamps whole seconds, the first boundary is a whole second of the wall clock, so that
//! each line belongs to one interval.
//!
//! One thread writes everything. Each interval contains the CPU time of this thread.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use trial::classes::ClassRow;
use trial::{
    Amendment, Capability, Finished, Interval, LatencyRow, LatencySource, Loss, Manifest,
    NOTE_CAUSE, Writer,
};

use crate::bpf::{self, TurnsIn};
use crate::clock;
use crate::counter::MetricUrl;
use crate::counters::Counters;
use crate::error::{Error, Unsupported};
use crate::hold::{HoldSpec, Holds, HoldsMade};
use crate::host;
use crate::listeners::{self, AcceptQueues};
use crate::machine::Machine;
use crate::procfs;
use crate::profile::{Profile, ProfileSpec};
use crate::redact;
use crate::requests::{Polled, Requests};
use crate::resources::Devices;
use crate::server::{Server, Target};
use crate::spread::Tally;
use logs::{Class, FormatChoice};

/// The shortest interval: ten clock ticks. Shorter ones would be dominated by the grain of the
/// modes.
pub const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The longest interval.
pub const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// Intervals that wait for late lines before they are written.
const KEPT_BACK: usize = 2;

/// The longest wait for late lines at the end.
const LAST_LINES_MAX: Duration = Duration::from_secs(1);

/// How often a sleeping recorder checks whether it must stop.
const STOP_CHECK_NS: i64 = 100_000_000;

/// Shorter remainders do not become an interval.
const REMAINDER_NS_MIN: i64 = 10_000_000;

/// If the wall clock gained or lost this much in an interval, it was set.
const CLOCK_SET_NS: i64 = 100_000_000;

/// How often turns and busy periods are sampled by default: the probes make system calls slower,
/// and a tenth of the time has enough of them.
pub const TURNS_EVERY: NonZeroU32 = NonZeroU32::new(10).expect("it is not zero");
/// If the server is held, turns are counted in all intervals but each fourth, which shows what
/// counting costs.
pub(crate) const TURNS_WITH_HOLDS: TurnsIn =
    TurnsIn::AllButLastOf(NonZeroU32::new(4).expect("it is not zero"));

const NS_PER_S: i64 = 1_000_000_000;

/// Names of capabilities.
const COUNTERS: &str = "hardware counters";
const COUNTERS_BY_PROCEDURE: &str = "hardware counters by procedure";

/// What to record.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The server.
    pub target: Target,
    /// Its access log. Without one there are CPU times, but no rates.
    pub access_log: Option<PathBuf>,
    /// The log's format.
    pub log_format: FormatChoice,
    /// A counter of the server's, used if there is no log.
    pub requests_from: Option<MetricUrl>,
    /// Whether to count requests on the server's sockets, if there is neither.
    pub sockets: bool,
    /// Whether to count requests over TLS there, too, in the calls of OpenSSL.
    pub tls: bool,
    /// Whether to keep addresses and query strings out of the trial: bad lines are reduced to their
    /// shape, and command lines lose them.
    pub redact: bool,
    /// Length of an interval, from [`INTERVAL_MIN`] to [`INTERVAL_MAX`].
    pub interval: Duration,
    /// Duration, rounded up to whole intervals. If `None`, it records until stopped.
    pub duration: Option<Duration>,
    /// Whether and how to sample where the CPUs are.
    pub profile: Option<ProfileSpec>,
    /// Whether to read the processor's counters.
    pub counters: bool,
    /// Whether to sample lock waits.
    pub locks: bool,
    /// Whether to sample file accesses.
    pub files: bool,
    /// Of this many intervals, the first is sampled for turns and busy periods of the server.
    pub turns_every: Option<NonZeroU32>,
    /// Whether and how to hold the server. Then turns are counted in most intervals, and the server
    /// is held in these alone.
    pub hold: Option<HoldSpec>,
    /// The trial to write.
    pub out: PathBuf,
    /// Whether an existing trial may be replaced.
    pub overwrite: bool,
    /// Notes for the manifest.
    pub notes: Vec<String>,
    /// Labels for the manifest, by name.
    pub labels: BTreeMap<String, String>,
    /// The server's version for the manifest.
    pub version: Option<String>,
    /// How often the trial is synced to the disk: a power loss loses at most as much. `None`: that
    /// is up to the kernel.
    pub sync_every: Option<Duration>,
}

impl Spec {
    /// One-second intervals, until stopped, format detected, with a profile and turns, nothing
    /// overwritten.
    pub fn new(target: Target, access_log: Option<PathBuf>, out: impl Into<PathBuf>) -> Spec {
        Spec {
            target,
            access_log,
            log_format: FormatChoice::Auto,
            requests_from: None,
            sockets: false,
            tls: false,
            redact: false,
            interval: Duration::from_secs(1),
            duration: None,
            profile: Some(ProfileSpec::default()),
            counters: false,
            locks: false,
            files: false,
            turns_every: Some(TURNS_EVERY),
            hold: None,
            out: out.into(),
            overwrite: false,
            notes: Vec::new(),
            labels: BTreeMap::new(),
            version: None,
            sync_every: None,
        }
    }
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The duration was reached.
    Duration,
    /// It was stopped.
    Stopped,
    /// The named process and its descendants ended.
    ServerGone,
}

/// The result of a recording.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The trial.
    pub out: PathBuf,
    /// Why it ended.
    pub ended: Ended,
    /// Intervals in the trial.
    pub intervals: u64,
    /// Their total length, ns.
    pub recorded_ns: i64,
    /// Requests in them.
    pub requests: f64,
    /// Where they were counted: "in the log", "on the server's sockets".
    pub requests_source: Option<&'static str>,
    /// Log lines read.
    pub log_lines: u64,
    /// Log lines that could not be parsed.
    pub log_lines_bad: u64,
    /// The log's format, if any line was parsed.
    pub log_format: Option<String>,
    /// Log lines that are no requests: blank ones, comments and events.
    pub log_lines_other: u64,
    /// Why there are no requests, or why they are in no interval. They are notes, too.
    pub causes: Vec<String>,
    /// What was lost.
    pub losses: Vec<Loss>,
    /// The notes of the manifest.
    pub notes: Vec<String>,
    /// The server's CPU time in the intervals, ns.
    pub server_ns: i64,
    /// The recorder's own CPU time, ns.
    pub recorder_ns: i64,
    /// The holds, if there were any. They are a note, too.
    pub holds: Option<HoldsMade>,
    /// Whether the trial is one file. If not, a reader held it open; the next writer folds it.
    pub one_file: bool,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.recorded_ns as f64 / 1e9;
        let ended = match self.ended {
            Ended::Duration => "its duration was reached",
            Ended::Stopped => "stopped",
            Ended::ServerGone => "the server ended",
        };
        writeln!(f, "{} intervals, {seconds:.1} s ({ended})", self.intervals)?;
        if let (0, Some(source)) = (self.log_lines, self.requests_source) {
            writeln!(f, "{:.0} requests, counted {source}", self.requests)?;
        } else {
            writeln!(
                f,
                "{:.0} requests in {} log lines ({} not understood{}), format {}",
                self.requests,
                self.log_lines,
                self.log_lines_bad,
                match self.log_lines_other {
                    0 => String::new(),
                    others => format!(", {others} blank or events"),
                },
                self.log_format.as_deref().unwrap_or("unknown"),
            )?;
        }
        writeln!(
            f,
            "server {:.3} s of CPU, recorder {:.3} s",
            self.server_ns as f64 / 1e9,
            self.recorder_ns as f64 / 1e9
        )?;
        for loss in &self.losses {
            writeln!(f, "lost: {} x{} ({})", loss.kind, loss.count, loss.note)?;
        }
        // The causes come first, where a summary is shown.
        for note in self.notes.iter().filter(|note| !note.starts_with(NOTE_CAUSE)) {
            writeln!(f, "note: {note}")?;
        }
        write!(f, "{}", self.out.display())
    }
}

/// Records until the duration is reached, `stop` is set or the server ends.
///
/// `observer` gets each interval when it is written, which is some intervals after its end, when
/// late log lines have arrived. To add to the trial afterwards (the generator's latencies, phases),
/// open it with [`trial::Writer::reopen`].
///
/// On an error, the trial (if it was begun) contains every earlier interval and is not complete.
///
/// If several servers have the name that was given, a note of the trial says so.
pub fn record(
    spec: &Spec,
    stop: &AtomicBool,
    observer: &mut dyn FnMut(&Interval),
) -> Result<Summary, Error> {
    if spec.interval < INTERVAL_MIN || spec.interval > INTERVAL_MAX {
        return Err(Error::Interval {
            found_ms: spec.interval.as_millis(),
            least_ms: INTERVAL_MIN.as_millis(),
            most_ms: INTERVAL_MAX.as_millis(),
        });
    }
    let server = Server::attach(&spec.target)?;
    let requests = match (&spec.access_log, &spec.requests_from) {
        (Some(path), _) => Some(Requests::open(path, spec.log_format.clone(), spec.redact)?),
        (None, Some(url)) => Some(Requests::watch(url, spec.interval)?),
        (None, None) if spec.sockets => Some(Requests::on_sockets(&server.pids(), spec.tls)?),
        (None, None) => None,
    };
    let pids = server.pids();
    let profile = spec.profile.map(|profile| Profile::start(profile, &spec.target, &pids));
    let mut recorder = Recorder::new(spec, server, requests, profile)?;
    let ended = recorder.run(spec, stop, observer)?;
    recorder.finish(spec, ended, observer)
}

/// What to say, before a recording, if the target is several servers: their processes, where they
/// listen, and what to give instead.
///
/// # Errors
/// There is no such server, or /proc cannot be read.
pub fn several_servers(target: &Target) -> Result<Option<String>, Error> {
    Ok(listeners::several(&Server::attach(target)?.trees()))
}

/// The processes of a server, the first one first.
///
/// # Errors
/// There is no such server, or /proc cannot be read.
pub fn processes(target: &Target) -> Result<Vec<u32>, Error> {
    Ok(Server::attach(target)?.pids())
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    Deadline,
    Stop,
}

struct Recorder {
    writer: Writer,
    manifest: Manifest,
    server: Server,
    machine: Machine,
    devices: Devices,
    requests: Option<Requests>,
    profile: Option<Profile>,
    counters: Option<Counters>,
    bpf: bpf::Samplers,
    holds: Option<Holds>,
    accept_queues: AcceptQueues,
    /// Intervals that still wait for late lines.
    kept: VecDeque<Interval>,
    /// Losses since the last write, and in total.
    losses: BTreeMap<String, Loss>,
    all_losses: BTreeMap<String, Loss>,
    boundary: Boundary,
    counts: Counts,
    server_absent: bool,
    buffer: Vec<u8>,
}

/// The moment of a sample on each clock.
#[derive(Clone, Copy)]
struct Boundary {
    monotonic_ns: i64,
    wall_ns: i64,
    own_cpu_ns: i64,
}

#[derive(Default)]
struct Counts {
    requests: f64,
    recorded_ns: i64,
    server_ns: i64,
    recorder_ns: i64,
    late: u64,
    rotations: u64,
    missing: u64,
    ahead: u64,
}

impl Boundary {
    fn now() -> Boundary {
        Boundary {
            monotonic_ns: clock::monotonic_ns(),
            wall_ns: clock::wall_ns(),
            own_cpu_ns: clock::thread_cpu_ns(),
        }
    }
}

impl Recorder {
    fn new(
        spec: &Spec,
        server: Server,
        requests: Option<Requests>,
        mut profile: Option<Result<Profile, Unsupported>>,
    ) -> Result<Recorder, Error> {
        let pids = server.pids();
        let format = requests.as_ref().and_then(Requests::format);
        let mut capabilities = host::capabilities(&pids);
        let turns = match spec.hold {
            Some(_) => Some(TURNS_WITH_HOLDS),
            None => spec.turns_every.map(TurnsIn::FirstOf),
        };
        let (locks, files, redact) = (spec.locks, spec.files, spec.redact);
        let requested = bpf::Requested { locks, files, turns, redact };
        let bpf = bpf::Samplers::start(requested, &pids, &mut capabilities);
        let holds = spec.hold.map(|hold| Holds::start(&hold, &pids, bpf.marks()));
        let describe = |holds: &Holds| holds.sentence.clone();
        if holds.is_some() {
            capabilities.push(host::sampler("holds", holds.as_ref(), describe));
        }
        let mut manifest = Manifest {
            schema: trial::SCHEMA_VERSION,
            created_ns: clock::wall_ns(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            host: host::host(),
            server: host::server(&pids),
            interval_ns: clock::ns(spec.interval),
            log_path: spec.access_log.as_ref().map(|path| path.display().to_string()),
            log_format: format.map(|format| format.to_string()),
            capabilities,
            notes: spec.notes.clone(),
            labels: spec.labels.clone(),
        };
        manifest.server.version.clone_from(&spec.version);
        manifest.capabilities.extend(requests_capabilities(requests.as_ref()));
        manifest.notes.extend(listeners::several(&server.trees()));
        if let Some(Err(Unsupported(why))) = &holds {
            manifest.notes.push(format!("the server was not held: {why}"));
        }
        if spec.redact {
            redact::manifest(&mut manifest);
        }
        let describe = |profile: &Profile| profile.describe();
        manifest.capabilities.push(host::sampler("profile", profile.as_ref(), describe));
        let counters = spec.counters.then(|| Counters::start(&pids));
        let describe = |counters: &Counters| counters.describe();
        manifest.capabilities.push(host::sampler(COUNTERS, counters.as_ref(), describe));
        if let Some(Ok(counters)) = &counters {
            let no_profile = || Unsupported("there is no profile, which names procedures".into());
            let profile = profile.as_mut().and_then(|profile| profile.as_mut().ok());
            let describe =
                profile.ok_or_else(no_profile).and_then(|profile| profile.count(&counters.kinds()));
            let describe = host::sampler(COUNTERS_BY_PROCEDURE, Some(&describe), String::clone);
            manifest.capabilities.push(describe);
        }
        let mut buffer = Vec::new();
        let machine = machine(&mut buffer)?;
        let devices = Devices::start(&mut buffer);
        manifest.capabilities.extend(devices.capabilities());
        let create = if spec.overwrite { Writer::replace } else { Writer::create };
        let writer = create(&spec.out, &manifest)?;
        Ok(Recorder {
            writer,
            manifest,
            server,
            machine,
            devices,
            requests,
            profile: profile.and_then(Result::ok),
            counters: counters.and_then(Result::ok),
            bpf,
            holds: holds.and_then(Result::ok),
            accept_queues: AcceptQueues::start(&pids),
            kept: VecDeque::new(),
            losses: BTreeMap::new(),
            all_losses: BTreeMap::new(),
            boundary: Boundary::now(),
            counts: Counts::default(),
            server_absent: false,
            buffer,
        })
    }

    fn run(
        &mut self,
        spec: &Spec,
        stop: &AtomicBool,
        observer: &mut dyn FnMut(&Interval),
    ) -> Result<Ended, Error> {
        let interval_ns = clock::ns(spec.interval);
        let slots = spec.duration.map(|duration| {
            let slots = duration.as_nanos().div_ceil(spec.interval.as_nanos());
            u64::try_from(slots.max(1)).unwrap_or(u64::MAX)
        });
        if self.wait(self.first_boundary_ns(), stop)? == Woken::Stop {
            return Ok(Ended::Stopped);
        }
        self.baseline()?;
        let origin_ns = self.boundary.monotonic_ns;
        let mut slot = 0u64;
        let sync_ns = spec.sync_every.map(clock::ns);
        let mut synced_ns = origin_ns;
        loop {
            let deadline_ns = origin_ns.saturating_add(nth(slot + 1, interval_ns));
            let woken = self.wait(deadline_ns, stop)?;
            let begun_ns = self.boundary.monotonic_ns;
            if woken == Woken::Stop && clock::monotonic_ns() - begun_ns < REMAINDER_NS_MIN {
                return Ok(Ended::Stopped);
            }
            let alive = self.sample(slot, woken == Woken::Deadline)?;
            let passed = (self.boundary.monotonic_ns - origin_ns) / interval_ns;
            let next = u64::try_from(passed).unwrap_or(0).max(slot + 1);
            if woken == Woken::Deadline && next > slot + 1 {
                self.lose("interval: sampled late", next - slot - 1, "one long interval instead");
            }
            slot = next;
            self.bpf.begin(slot, &self.server.pids());
            self.write(KEPT_BACK, observer)?;
            if sync_ns.is_some_and(|sync_ns| self.boundary.monotonic_ns - synced_ns >= sync_ns) {
                synced_ns = self.boundary.monotonic_ns;
                self.writer.sync()?;
            }
            if woken == Woken::Stop {
                return Ok(Ended::Stopped);
            }
            if !alive && matches!(spec.target, Target::Pid(_)) {
                return Ok(Ended::ServerGone);
            }
            if slots.is_some_and(|slots| slot >= slots) {
                return Ok(Ended::Duration);
            }
        }
    }

    /// Sleeps until a deadline, checking the stop flag and draining the rings in between.
    fn wait(&mut self, deadline_ns: i64, stop: &AtomicBool) -> Result<Woken, Error> {
        loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(Woken::Stop);
            }
            let now_ns = clock::monotonic_ns();
            if now_ns >= deadline_ns {
                return Ok(Woken::Deadline);
            }
            clock::sleep_until(deadline_ns.min(now_ns + STOP_CHECK_NS));
            if let Some(profile) = &mut self.profile {
                profile.drain(&mut self.writer)?;
            }
        }
    }

    /// Now, or the next whole second of the wall clock if the log stamps whole seconds (or might,
    /// because its format is not known yet).
    fn first_boundary_ns(&self) -> i64 {
        let now_ns = clock::monotonic_ns();
        let coarse = self.requests.as_ref().is_some_and(Requests::coarse);
        if coarse { now_ns + NS_PER_S - clock::wall_ns().rem_euclid(NS_PER_S) } else { now_ns }
    }

    fn baseline(&mut self) -> Result<(), Error> {
        self.server.look()?;
        self.boundary = Boundary::now();
        self.mark();
        self.server.sample();
        self.machine = machine(&mut self.buffer)?;
        self.devices = Devices::start(&mut self.buffer);
        self.server.take_unseen();
        self.bpf.baseline(&self.server.pids());
        if let Some(counters) = &mut self.counters {
            counters.baseline(&self.server.pids());
        }
        if let Some(requests) = &mut self.requests {
            requests.begin(self.boundary.wall_ns);
        }
        if let Some(profile) = &mut self.profile {
            profile.begin(&mut self.writer, self.boundary.monotonic_ns)?;
        }
        Ok(())
    }

    /// Ends an interval. Returns whether the server still runs.
    fn sample(&mut self, index: u64, whole: bool) -> Result<bool, Error> {
        self.server.look()?;
        // The server's exact clocks are read right after the boundary; the machine's ticks can
        // wait.
        let now = Boundary::now();
        let last = std::mem::replace(&mut self.boundary, now);
        self.mark();
        let server = self.server.sample();
        if let Some(holds) = &self.holds {
            holds.see(&server.threads, now.monotonic_ns - last.monotonic_ns);
        }
        let stat = read_stat(&mut self.buffer)?;
        let (machine, cpus) = self.machine.sample(stat).ok_or_else(no_modes)?;
        let unseen = self.server.take_unseen();
        self.lose("process: its end was not seen", unseen.processes, "its last time is missing");
        self.lose("thread: its end was not seen", unseen.threads, "its last wakes are missing");
        let length_ns = now.monotonic_ns - last.monotonic_ns;
        self.writer.device_uses(&self.devices.sample(index, length_ns, &mut self.buffer));
        self.writer.bound_threads(&self.server.take_bound());
        for loss in self.bpf.interval(index, &self.server.pids(), &mut self.writer)? {
            self.lose(&loss.kind, loss.count, &loss.note);
        }
        if let Some(counters) = &mut self.counters {
            let lost = counters.interval(index, &self.server.pids(), &mut self.writer)?;
            self.lose("counters: thread not followed", lost, "its counts are missing");
        }
        let set = ((now.wall_ns - last.wall_ns) - length_ns).abs() > CLOCK_SET_NS;
        self.lose("clock: set while recording", u64::from(set), "lines may be misplaced");
        if !server.alive && !self.server_absent {
            self.manifest.notes.push(format!("the server ended in interval {index}"));
        } else if server.alive && self.server_absent {
            self.manifest.notes.push(format!("the server was there again in interval {index}"));
        }
        let steady = server.alive && !self.server_absent;
        self.server_absent = !server.alive;
        self.profile_interval(index)?;
        let mut interval = Interval {
            index,
            start_ns: last.wall_ns,
            length_ns,
            machine,
            server: Some(server.times),
            cpus,
            threads: server.threads,
            rate_valid: whole && steady && !set,
            recorder_ns: now.own_cpu_ns - last.own_cpu_ns,
            ..Interval::default()
        };
        match &mut self.requests {
            Some(requests) => {
                requests.observe(&self.server.pids());
                requests.spread.close(index, now.wall_ns);
                let polled = requests.poll();
                interval.rate_valid &= polled.sound();
                self.note_log(polled);
            }
            None => interval.rate_valid = false,
        }
        self.counts.recorded_ns += length_ns;
        self.counts.server_ns += server.times.total_ns;
        self.counts.recorder_ns += interval.recorder_ns;
        self.kept.push_back(interval);
        Ok(server.alive)
    }

    fn mark(&mut self) {
        if let Some(requests) = &mut self.requests {
            requests.mark();
        }
    }

    fn profile_interval(&mut self, index: u64) -> Result<(), Error> {
        let Some(profile) = &mut self.profile else { return Ok(()) };
        let end_ns = self.boundary.monotonic_ns;
        profile.interval(&mut self.writer, index, end_ns, &self.server.pids())?;
        for (kind, count, note) in profile.take_lost().each() {
            self.lose(kind, count, note);
        }
        Ok(())
    }

    fn note_log(&mut self, polled: Polled) {
        let format = self.requests.as_ref().and_then(Requests::format);
        let advice = self.requests.as_ref().and_then(Requests::advice);
        for (kind, count, note) in polled.losses(format, advice) {
            self.lose(kind, count, &note);
        }
        let ahead = self.requests.as_ref().map_or(0, |requests| requests.spread.outside().ahead);
        let more = ahead - self.counts.ahead;
        self.lose("log: stamped in the future", more, "do the server's clock and ours differ?");
        self.counts.ahead = ahead;
        self.counts.rotations += polled.rotations;
        self.counts.missing += u64::from(polled.missing);
    }

    fn lose(&mut self, kind: &str, count: u64, note: &str) {
        if count == 0 {
            return;
        }
        for losses in [&mut self.losses, &mut self.all_losses] {
            let loss = losses.entry(kind.to_owned()).or_default();
            kind.clone_into(&mut loss.kind);
            loss.count += count;
            note.clone_into(&mut loss.note);
        }
    }

    /// Writes the intervals that have waited long enough, and late additions to older ones.
    fn write(
        &mut self,
        kept_back: usize,
        observer: &mut dyn FnMut(&Interval),
    ) -> Result<(), Error> {
        loop {
            let tally = match &mut self.requests {
                Some(requests) => match requests.spread.hand_out(kept_back) {
                    Some(tally) => tally,
                    None => break,
                },
                None if self.kept.is_empty() => break,
                None => Tally::default(),
            };
            let mut interval =
                self.kept.pop_front().expect("an interval is kept for each that was closed");
            if let Some(requests) = &self.requests {
                interval.rate_valid &= requests.watched(interval.start_ns, interval.length_ns);
            }
            interval.requests = tally.requests;
            interval.requests_ended = tally.ended;
            let source = self.requests.as_ref().map(Requests::latency_source);
            let latencies: Vec<_> = latency(interval.index, source, &tally).into_iter().collect();
            let losses: Vec<_> = std::mem::take(&mut self.losses).into_values().collect();
            if let Some(holds) = &self.holds {
                holds.count(interval.index, tally.requests, errors(&tally));
            }
            self.writer.classes(&classes(interval.index, &tally))?;
            self.writer.append_all(&interval, &latencies, &losses)?;
            self.counts.requests += tally.requests;
            observer(&interval);
        }
        self.amend()
    }

    fn amend(&mut self) -> Result<(), Error> {
        let Some(requests) = &mut self.requests else { return Ok(()) };
        let source = Some(requests.latency_source());
        let late = requests.spread.amendments();
        if late.is_empty() {
            return Ok(());
        }
        let mut amendments = Vec::with_capacity(late.len());
        let mut latencies = Vec::new();
        for addition in late {
            let Tally { requests, ended, .. } = addition.tally;
            self.writer.classes(&classes(addition.index, &addition.tally))?;
            self.counts.requests += requests;
            self.counts.late += ended;
            amendments.push(Amendment {
                interval: addition.index,
                requests,
                requests_ended: ended,
            });
            latencies.extend(latency(addition.index, source, &addition.tally));
        }
        Ok(self.writer.amend(&amendments, &latencies)?)
    }

    fn finish(
        mut self,
        spec: &Spec,
        ended: Ended,
        observer: &mut dyn FnMut(&Interval),
    ) -> Result<Summary, Error> {
        let holds = self.holds.take().map(Holds::end);
        self.manifest.notes.extend(holds.as_ref().map(ToString::to_string));
        if self.requests.is_some() && !self.kept.is_empty() {
            let patience = spec.interval.min(LAST_LINES_MAX);
            // This wait ignores the stop flag: it is short, and the last intervals are worth it.
            let until_ns = clock::monotonic_ns() + clock::ns(patience);
            self.wait(until_ns, &AtomicBool::new(false))?;
            self.requests.as_mut().map(Requests::end);
            let polled = self.requests.as_mut().map(Requests::poll).unwrap_or_default();
            self.note_log(polled);
        }
        if let Some(requests) = &mut self.requests {
            requests.spread.finish();
        }
        self.write(0, observer)?;
        // A few requests began before the recording. If most did, their stamps are wrong.
        let before =
            self.requests.as_ref().map_or(0.0, |requests| requests.spread.outside().before);
        if before > self.counts.requests {
            let note = "is the log in another time zone?";
            self.lose("log: stamped before the recording", before as u64, note);
        }
        for loss in std::mem::take(&mut self.losses).into_values() {
            self.writer.loss(&loss)?;
        }
        self.remark();
        self.writer.set_manifest(&self.manifest)?;
        let intervals = self.writer.intervals();
        let Finished { one_file, .. } = self.writer.finish()?;
        let lines = self.requests.as_ref().map(|requests| requests.total).unwrap_or_default();
        Ok(Summary {
            out: spec.out.clone(),
            ended,
            intervals,
            recorded_ns: self.counts.recorded_ns,
            requests: self.counts.requests,
            requests_source: self.requests.as_ref().map(Requests::source_name),
            log_lines: lines.lines,
            log_lines_bad: lines.bad,
            log_lines_other: lines.others,
            causes: self.requests.as_ref().map(Requests::causes).unwrap_or_default(),
            log_format: self.manifest.log_format,
            losses: self.all_losses.into_values().collect(),
            notes: self.manifest.notes,
            server_ns: self.counts.server_ns,
            recorder_ns: self.counts.recorder_ns,
            holds,
            one_file,
        })
    }

    /// Adds to the manifest what is only known at the end.
    fn remark(&mut self) {
        let notes = &mut self.manifest.notes;
        notes.extend(self.bpf.notes());
        notes.extend(self.accept_queues.note());
        let traffic = self.server.traffic;
        if traffic.started + traffic.ended > 0 {
            notes.push(format!("{} processes started, {} ended", traffic.started, traffic.ended));
        }
        let Some(requests) = &self.requests else { return };
        if requests.is_expensive() {
            notes
                .push("the probes of --tls cost CPU time, which counts as the server's".to_owned());
        }
        notes.extend(requests.causes().iter().map(|cause| format!("{NOTE_CAUSE}{cause}")));
        self.manifest.log_format = requests.format().map(|format| format.to_string());
        let log = requests.capabilities();
        for line in requests.samples() {
            notes.push(format!("a line that was not understood: {line}"));
        }
        self.manifest.capabilities.retain(|had| log.iter().all(|now| now.name != had.name));
        self.manifest.capabilities.extend(log);
        if self.counts.rotations > 0 {
            notes.push(format!("the log was rotated {} times", self.counts.rotations));
        }
        if self.counts.missing > 0 {
            notes.push(format!(
                "the log's name was missing {} times; what was opened before was read on",
                self.counts.missing
            ));
        }
        if self.counts.late > 0 {
            notes.push(format!(
                "{} requests became known after their interval was written, and were added to it",
                self.counts.late
            ));
        }
        let outside = requests.spread.outside();
        if outside.before + outside.after > 0.0 {
            notes.push(format!(
                "of the requests {}, {:.1} lie before the recording and {:.1} after it",
                requests.source_name(),
                outside.before,
                outside.after
            ));
        }
    }
}

fn latency(index: u64, source: Option<LatencySource>, tally: &Tally) -> Option<LatencyRow> {
    let histogram = tally.latency_us.as_ref()?;
    Some(LatencyRow::new(index, source?, false, histogram))
}

/// The rows by class; none if the log has no classes.
fn classes(interval: u64, tally: &Tally) -> Vec<ClassRow> {
    let classified = tally.classes.iter().filter(|of_class| of_class.class != Class::default());
    classified
        .map(|of_class| ClassRow {
            interval,
            class: of_class.class.to_string(),
            requests: of_class.requests,
            ended: of_class.ended,
            bytes: of_class.bytes,
        })
        .collect()
}

/// Requests that failed.
fn errors(tally: &Tally) -> f64 {
    let failed = tally.classes.iter().filter(|of_class| of_class.class.outcome() == "error");
    failed.map(|of_class| of_class.requests).sum()
}

fn requests_capabilities(requests: Option<&Requests>) -> Vec<Capability> {
    requests.map_or_else(|| host::log_capabilities(None, false), Requests::capabilities)
}

fn machine(buffer: &mut Vec<u8>) -> Result<Machine, Error> {
    let tick_ns = NS_PER_S / i64::from(clock::ticks_per_second());
    Machine::start(read_stat(buffer)?, tick_ns).ok_or_else(no_modes)
}

fn read_stat(buffer: &mut Vec<u8>) -> Result<&[u8], Error> {
    procfs::read("/proc/stat", buffer)
        .map_err(|error| Error::Proc { path: "/proc/stat", what: error.to_string() })
}

fn no_modes() -> Error {
    Error::Proc { path: "/proc/stat", what: "no cpu lines".to_owned() }
}

fn nth(slot: u64, interval_ns: i64) -> i64 {
    i64::try_from(slot).unwrap_or(i64::MAX).saturating_mul(interval_ns)
}
