//! Runs our origin and proxies as child processes, drives load at them, and measures the CPU time
//! of the load.
//!
//! ```text
//!  origin (child) <--misses-- proxy (child, own CPU) <--load-- generator (this process)
//!                                  |  \--access log--> recorder (this process) --> trial
//!                                  '--/proc-----------^
//! ```
//!
//! A proxy is a process because its CPU time is then known to the nanosecond, and because it can
//! use all the descriptors of a process. Dropping a [`Process`] ends it by its pid. A load without
//! an answer is an error, never a figure.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use load::sys::Pinned;
use load::{Arrivals, Outcome, Phase, Population, Schedule, Size, Target, family};
use readiness::Kind;
use record::{ProfileSpec, Spec, Summary};
use serde_json::Value;
use trial::{Interval, Trial, Writer};

/// Connections that carry requests.
pub const HOT: u32 = 64;
/// Objects of a load. They are small, so that requests dominate the cost.
const OBJECTS: Population =
    Population { objects: 2_000, zipf_s: 0.0, size: Size::Fixed { bytes: 1024 } };
/// Descriptors that a proxy or a generator needs in addition to its cold connections.
const OTHER_DESCRIPTORS: u64 = 512;
/// Share of its descriptors that a proxy leaves to clients, in percent.
const CLIENTS_PERCENT: u64 = 75;
/// Duration of each short load that looks for a rate.
const LOOK: Duration = Duration::from_millis(1200);

/// A free port on loopback, for servers that report their address.
pub const ANY: &str = "127.0.0.1:0";

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A directory cannot be used.
    #[error("{0} cannot be used: {1}; choose another directory with --out")]
    Directory(PathBuf, std::io::Error),
    /// A process did not start.
    #[error("{0} did not start: {1}")]
    Start(String, String),
    /// A server answered nothing.
    #[error("{0} answered nothing")]
    Silent(String),
    /// A system call failed.
    #[error("{0}: {1}")]
    System(&'static str, std::io::Error),
    /// The load could not be driven.
    #[error("the load: {0}")]
    Load(#[from] load::Error),
    /// The recorder failed.
    #[error("the recorder: {0}")]
    Record(#[from] record::Error),
    /// A trial cannot be written or read.
    #[error(transparent)]
    Trial(#[from] trial::Error),
    /// A recording cannot be analysed.
    #[error(transparent)]
    Report(#[from] report::Error),
    /// The requested backend does not work here.
    #[error("{0}; choose another")]
    Backend(#[from] readiness::OpenError),
    /// A thread panicked.
    #[error("{0} failed")]
    Thread(&'static str),
    /// The user stopped it.
    #[error("interrupted")]
    Interrupted,
}

/// The CPUs of the proxy and of all other processes. With only one CPU they share it.
#[derive(Clone, Copy, Debug)]
pub struct Cpus {
    /// The CPU of the measured server.
    pub server: Option<usize>,
    /// The CPU of the origin and the load generator.
    pub others: Option<usize>,
}

impl Cpus {
    /// Assigns the CPUs and pins the calling thread until the returned [`Pinned`] is dropped;
    /// another study may follow.
    pub fn take() -> Result<(Cpus, Option<Pinned>), Error> {
        let two = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 2);
        if !two {
            return Ok((Cpus { server: None, others: None }, None));
        }
        let pinned = Pinned::to(1).map_err(|error| Error::System("CPU 1 cannot be used", error))?;
        Ok((Cpus { server: Some(0), others: Some(1) }, Some(pinned)))
    }
}

/// The most cold connections that the descriptor limit allows, and that limit.
pub fn cold_max() -> Result<(u32, u64), Error> {
    let limit = load::sys::raise_descriptor_limit()
        .map_err(|error| Error::System("the descriptor limit is unknown", error))?;
    let clients = limit.saturating_sub(OTHER_DESCRIPTORS) * CLIENTS_PERCENT / 100;
    Ok((u32::try_from(clients.saturating_sub(u64::from(HOT))).unwrap_or(u32::MAX), limit))
}

/// A child process that runs a command of our program. Dropping it ends it.
pub struct Process(Child);

impl Process {
    /// Starts a command of the program and reads the line of JSON that announces its addresses.
    ///
    /// # Errors
    /// [`Error::Start`] if it does not start, or ends, or prints something else.
    pub fn start(program: &Path, args: &[String]) -> Result<(Process, Value), Error> {
        let named = || format!("{} {}", program.display(), args.first().map_or("", String::as_str));
        let failed = |why: String| Error::Start(named(), why);
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(error.to_string()))?;
        let stdout = child.stdout.take();
        let process = Process(child);
        let mut line = String::new();
        if let Some(stdout) = stdout {
            let read = BufReader::new(stdout).read_line(&mut line);
            read.map_err(|error| failed(error.to_string()))?;
        }
        let announced = serde_json::from_str(&line)
            .map_err(|_| failed("it did not announce its address".to_owned()))?;
        Ok((process, announced))
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGTERM, so that a proxy drains and writes its log. If the child has ended already, this
        // only waits for it.
        if let Ok(pid) = i32::try_from(self.0.id())
            && load::sys::terminate(pid).is_err()
        {
            let _ = self.0.kill();
        }
        let _ = self.0.wait();
    }
}

/// The address that a server announced.
///
/// # Errors
/// [`Error::Start`] if there is none.
pub fn address(announced: &Value) -> Result<SocketAddr, Error> {
    let text = announced["listen"][0].as_str().unwrap_or_default();
    text.parse().map_err(|_| Error::Start("a server".into(), "it has no address".into()))
}

/// The arguments that pin a server to a CPU.
fn cpu_args(cpu: Option<usize>) -> impl Iterator<Item = String> {
    cpu.into_iter().flat_map(|cpu| ["--cpu".to_owned(), cpu.to_string()])
}

/// Whether the proxy may answer from its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// Every object is stored.
    On,
    /// The origin forbids it, so that every request goes to the origin, as in the papers.
    Off,
}

/// The origin of all proxies.
pub struct Source {
    _process: Process,
    address: SocketAddr,
}

impl Source {
    /// Starts it on a free port.
    ///
    /// # Errors
    /// [`Error::Start`] if it does not start.
    pub fn start(program: &Path, cpus: Cpus) -> Result<Source, Error> {
        let mut args = ["origin", "--listen", ANY].map(String::from).to_vec();
        args.extend(cpu_args(cpus.others));
        let (process, announced) = Process::start(program, &args)?;
        Ok(Source { _process: process, address: address(&announced)? })
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// A proxy on one backend.
pub struct Server {
    process: Process,
    /// Its address.
    pub address: SocketAddr,
    /// Its event notification backend.
    pub kind: Kind,
    /// The objects that loads request.
    pub population: Population,
    log: Option<PathBuf>,
    cpus: Cpus,
}

impl Server {
    /// Starts it, with a new access log in `home` if there is one. Without `backend` it uses the
    /// best one.
    ///
    /// # Errors
    /// [`Error::Start`] if it does not start.
    pub fn start(
        program: &Path,
        backend: impl Into<Option<Kind>>,
        source: &Source,
        home: Option<&Path>,
        cpus: Cpus,
    ) -> Result<Server, Error> {
        let backend = backend.into();
        let name = backend.map_or("access".to_owned(), |kind| kind.to_string());
        let log = home.map(|home| home.join(format!("{name}.log")));
        if let Some(old) = log.as_ref().filter(|log| log.exists()) {
            std::fs::remove_file(old).map_err(|error| Error::Directory(old.clone(), error))?;
        }
        let mut args = ["serve", "--workers", "1", "--json", "--listen", ANY, "--origin"]
            .map(String::from)
            .to_vec();
        args.push(format!("http://{}", source.address));
        args.extend(backend.iter().flat_map(|kind| ["--backend".to_owned(), kind.to_string()]));
        args.extend(log.iter().flat_map(|log| ["--access-log".into(), log.display().to_string()]));
        args.extend(cpu_args(cpus.server));
        let (process, announced) = Process::start(program, &args)?;
        let kind = announced["backend"].as_str().and_then(|name| name.parse().ok());
        let kind =
            kind.ok_or_else(|| Error::Start("a proxy".into(), "it announced no backend".into()))?;
        let address = address(&announced)?;
        Ok(Server { process, address, kind, population: OBJECTS, log, cpus })
    }

    /// Its access log, if it has one.
    pub fn log(&self) -> Option<&Path> {
        self.log.as_deref()
    }

    /// A load on it, without cold connections.
    pub fn plan(&self, caching: Caching, schedule: Schedule, time: Duration) -> load::Plan {
        let path = match caching {
            Caching::On => "/obj/{n}?size={size}",
            Caching::Off => "/obj/{n}?size={size}&cc=no-store",
        };
        let target = Target {
            addr: self.address,
            authority: self.address.to_string(),
            path: path.into(),
            absolute: false,
            tls: false,
            tunnel: false,
        };
        let mut plan = load::Plan::new(target, schedule, time);
        plan.arrivals = Arrivals::Poisson;
        plan.connections = HOT;
        plan.population = self.population.clone();
        plan.pin_cpu = self.cpus.others;
        plan
    }

    /// Drives a load. Returns the cost of each given span of it, in seconds from its beginning.
    pub fn drive(
        &self,
        plan: &load::Plan,
        spans: &[(f64, f64)],
        stop: &AtomicBool,
    ) -> Result<(Vec<Span>, Outcome), Error> {
        let name = format!("the proxy with {}", self.kind);
        drive(self.pid(), &name, plan, spans, stop)
    }

    /// The rate at which it uses this part of its CPU under such a load. The cost of a request
    /// falls with the load, so this measures a rough limit and two lower rates.
    pub fn rate_at(
        &self,
        part: f64,
        caching: Caching,
        cold: u32,
        stop: &AtomicBool,
    ) -> Result<f64, Error> {
        let mut plan = self.plan(caching, Schedule::ClosedLoop, LOOK);
        plan.cold = cold;
        let (full, _) = self.drive(&plan, &[(0.2, LOOK.as_secs_f64())], stop)?;
        // The limit is based on CPU time: other work on its CPU makes the measured rate too low.
        let limit = 1e6 / full[0].us.max(0.1);
        let used_at = |of_limit: f64| {
            let mut plan = self.plan(caching, Schedule::Constant(limit * of_limit), LOOK);
            plan.cold = cold;
            let (span, _) = self.drive(&plan, &[(0.2, LOOK.as_secs_f64())], stop)?;
            Ok::<_, Error>((span[0].rate, span[0].rate * span[0].us / 1e6))
        };
        let ((x0, y0), (x1, y1)) = (used_at(0.35)?, used_at(0.65)?);
        let slope = (y1 - y0) / (x1 - x0);
        let rate = if slope > 0.0 { x1 + (part - y1) / slope } else { limit * part };
        Ok(rate.clamp(0.2 * limit, 0.95 * limit))
    }

    /// Its process id.
    pub fn pid(&self) -> i32 {
        self.process.pid().cast_signed()
    }

    /// Starts to record it.
    pub fn record(
        &self,
        out: &Path,
        interval: Duration,
        profile: Option<ProfileSpec>,
        note: &str,
    ) -> Result<Recording, Error> {
        let target = record::Target::Pid(self.process.pid());
        let mut spec = Spec::new(target, self.log.clone(), out);
        spec.interval = interval;
        spec.profile = profile;
        spec.overwrite = true;
        spec.notes.push(note.to_owned());
        Recording::start(spec)
    }
}

/// Drives a load on a server, which is a process with its descendants. Returns the cost of each
/// given span of it, in seconds from its beginning.
pub fn drive(
    pid: i32,
    name: &str,
    plan: &load::Plan,
    spans: &[(f64, f64)],
    stop: &AtomicBool,
) -> Result<(Vec<Span>, Outcome), Error> {
    let (family, mut looks) = (family::of(pid), Vec::new());
    let outcome = load::run(plan, stop, &mut |tick| {
        let (at_s, cpu_ns) = (tick.elapsed.as_secs_f64(), family::cpu_ns(&family));
        // No time: the server has ended.
        if tick.phase == Phase::Running && cpu_ns > 0 {
            looks.push(Look { at_s, cpu_ns, requests: tick.counts.completed });
        }
    })?;
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    if outcome.counts.completed == 0 {
        return Err(Error::Silent(name.to_owned()));
    }
    Ok((spans.iter().map(|span| Span::of(&looks, *span)).collect(), outcome))
}

/// The counters at a tick of the load.
struct Look {
    at_s: f64,
    cpu_ns: u64,
    requests: u64,
}

/// The cost of a span of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Requests per second.
    pub rate: f64,
    /// CPU time of the proxy per request, microseconds; NaN without requests.
    pub us: f64,
}

impl Span {
    fn of(looks: &[Look], (from, to): (f64, f64)) -> Span {
        let within = |look: &&Look| look.at_s >= from && look.at_s <= to + 0.02;
        let first = looks.iter().find(within);
        let last = looks.iter().rev().find(within);
        let nothing = Span { rate: f64::NAN, us: f64::NAN };
        let Some((first, last)) = first.zip(last) else { return nothing };
        let requests = (last.requests - first.requests) as f64;
        let seconds = last.at_s - first.at_s;
        if requests < 1.0 || seconds <= 0.0 {
            return nothing;
        }
        let cpu_us = last.cpu_ns.saturating_sub(first.cpu_ns) as f64 / 1e3;
        Span { rate: requests / seconds, us: cpu_us / requests }
    }
}

/// A recorder in its own thread. Dropping it stops it.
pub struct Recording {
    interval: Duration,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Summary, record::Error>>>,
}

impl Recording {
    /// Starts it.
    ///
    /// # Errors
    /// [`Error::System`] if no thread can be started.
    pub fn start(spec: Spec) -> Result<Recording, Error> {
        let interval = spec.interval;
        let stop = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("recorder".into())
            .spawn(move || record::record(&spec, &of_thread, &mut |_| {}))
            .map_err(|error| Error::System("a thread cannot be started", error))?;
        Ok(Recording { interval, stop, thread: Some(thread) })
    }

    /// Waits until the last interval of the load has ended, then stops it.
    ///
    /// # Errors
    /// Those of the recorder.
    pub fn finish(mut self) -> Result<Summary, Error> {
        std::thread::sleep(self.interval + Duration::from_millis(100));
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().ok_or(Error::Thread("the recorder"))?;
        let summary = thread.join().map_err(|_| Error::Thread("the recorder"))?;
        Ok(summary?)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Marks in a trial which intervals belong to the rising load, which to the saturation, and which
/// to neither. Returns the open trial with its intervals.
///
/// # Errors
/// Those of the trial.
pub fn annotate(
    path: &Path,
    rising: &Outcome,
    saturated: &Outcome,
    settle: Duration,
) -> Result<(Writer, Vec<Interval>), Error> {
    let intervals = Trial::open(path)?.intervals().to_vec();
    let within = |interval: &Interval, outcome: &Outcome, settle: Duration| {
        let from = outcome.start_ns + settle.as_nanos() as i64;
        interval.start_ns >= from
            && interval.start_ns + interval.length_ns <= outcome.start_ns + outcome.length_ns as i64
    };
    let mut writer = Writer::reopen(path)?;
    for interval in &intervals {
        let phase = if within(interval, rising, Duration::ZERO) {
            None
        } else if within(interval, saturated, settle) {
            Some(report::PHASE_SATURATION)
        } else {
            Some(report::PHASE_WARM_UP)
        };
        writer.set_phase(interval.index, phase)?;
    }
    Ok((writer, intervals))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_lies_between_its_first_and_last_look() {
        let look = |at_s: f64, requests: u64| Look { at_s, cpu_ns: 5_000 * requests, requests };
        let looks = [look(0.0, 0), look(0.1, 100), look(0.2, 300), look(0.31, 400)];
        let span = Span::of(&looks, (0.1, 0.3));
        assert!((span.rate - 300.0 / 0.21).abs() < 1e-9, "{span:?}");
        assert!((span.us - 5.0).abs() < 1e-9, "{span:?}");
        assert!(Span::of(&looks, (0.2, 0.21)).us.is_nan(), "one look is not a span");
        assert!(Span::of(&[], (0.0, 1.0)).rate.is_nan());
    }

    #[test]
    fn a_program_that_announces_no_address_did_not_start() {
        let Err(error) = Process::start(Path::new("/bin/true"), &["serve".into()]) else {
            panic!("it cannot have started");
        };
        assert!(error.to_string().starts_with("/bin/true serve did not start: "), "{error}");
        assert!(Process::start(Path::new("/nowhere/at/all"), &[]).is_err());
    }
}
