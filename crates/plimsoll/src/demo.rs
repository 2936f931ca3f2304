//! `plimsoll demo`: the main job, end to end, on this machine.
//!
//! ```text
//!  origin (child) <--misses-- proxy (child, a CPU of its own) <--load-- generator (here)
//!                                  |  \--access log--> recorder (here) --> trial --> report
//!                                  '--/proc-----------^
//! ```
//!
//! First the objects are fetched once and the rough limit is found; then a load rises, several
//! times, from a twentieth of the rate at which the proxy uses 80 % of its CPU to that rate, and is
//! recorded; last, a closed loop saturates the proxy. The lines are fitted to the rising load
//! alone, so that the capacity is a prediction, and the saturation its test.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::load::{Arrivals, Outcome, Phase, Plan, Population, Schedule, Size, Target};
use ::record::{Spec, Target as Recorded};
use command::failure::{Failure, misuse};
use command::stop_on_signal;
use harness::{ANY, Process, Recording};
use trial::{Prediction, Trial, Writer};

use crate::cli;
use crate::{join, output, report};

/// Use of the proxy's CPU that the rising load ends at.
const USE_MAX: f64 = 0.8;
/// How often the load rises. Several times, so that what drifts with time does not look like what
/// changes with the rate.
const RISES: usize = 4;
/// Part of the time that saturation takes.
const SATURATION_PART: f64 = 0.16;
/// Connections that carry requests.
const CONNECTIONS: u32 = 64;
/// Objects, and their size: small ones, so that requests are what costs.
const OBJECTS: u32 = 10_000;
const OBJECT_BYTES: u64 = 1024;
/// Around a change of phase, intervals belong to neither.
const SETTLE: Duration = Duration::from_millis(1200);

/// Runs the demo.
pub(crate) fn demo(flags: &cli::Demo) -> Result<(), Failure> {
    if flags.duration < Duration::from_secs(15) {
        return Err(misuse("15 seconds is the least a line can be drawn from: --for 60s"));
    }
    let stop = stop_on_signal()?;
    std::fs::create_dir_all(&flags.out)
        .map_err(|error| misuse(format!("{} cannot be made: {error}", flags.out.display())))?;
    let say = Say { quiet: flags.json };
    let bench = Bench::start(flags, &say)?;
    let measured = bench.measure(flags, &stop, &say)?;
    let page = flags.out.join("index.html");
    let analysis = finish(&bench, &measured, &page)?;
    drop(bench);
    if flags.json {
        let mut json = serde_json::to_value(&analysis).map_err(misuse)?;
        json["page"] = page.display().to_string().into();
        output::print_json(&json)?;
    } else {
        report::show(&analysis, false)?;
        output::print(format!(
            "\nThe trial is {}; the page with the scatter plot:\n{}\n",
            measured.trial.display(),
            page.display()
        ))?;
    }
    Ok(())
}

/// What the demo says while it works: a line a step on stderr.
struct Say {
    quiet: bool,
}

impl Say {
    fn step(&self, text: &str) {
        if !self.quiet || std::io::stderr().is_terminal() {
            eprintln!("demo: {text}");
        }
    }
}

/// The running parts.
struct Bench {
    proxy: Process,
    _origin: Process,
    address: SocketAddr,
    log: PathBuf,
    trial: PathBuf,
    /// The CPU for all but the proxy, if there are two.
    other_cpu: Option<usize>,
}

/// What came of the measuring.
struct Measured {
    trial: PathBuf,
    rising: Outcome,
    saturated: Outcome,
}

impl Bench {
    fn start(flags: &cli::Demo, say: &Say) -> Result<Bench, Failure> {
        let two = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() >= 2);
        let (proxy_cpu, other_cpu) = if two { (Some(0), Some(1)) } else { (None, None) };
        if !two {
            say.step("one CPU only: the generator shares it with the proxy, and costs it capacity");
        }
        if let Some(cpu) = other_cpu {
            ::load::sys::pin_to_cpu(cpu).map_err(misuse)?;
        }
        let log = flags.out.join("access.log");
        if log.exists() {
            std::fs::remove_file(&log).map_err(misuse)?;
        }
        let program = std::env::current_exe().map_err(misuse)?;
        let args = ["origin", "--listen", ANY].map(String::from);
        let (origin, told) = Process::start(&program, &args).map_err(misuse)?;
        let origin_address = harness::address(&told).map_err(misuse)?;
        let mut args: Vec<String> =
            ["serve", "--workers", "1", "--json", "--listen", ANY].map(String::from).to_vec();
        args.extend(["--origin".into(), format!("http://{origin_address}")]);
        args.extend(["--access-log".into(), log.display().to_string()]);
        if let Some(cpu) = proxy_cpu {
            args.extend(["--cpu".into(), cpu.to_string()]);
        }
        if let Some(backend) = flags.backend {
            args.extend(["--backend".into(), backend.to_string()]);
        }
        let (proxy, told) = Process::start(&program, &args).map_err(misuse)?;
        let address = harness::address(&told).map_err(misuse)?;
        say.step(&format!(
            "the proxy serves on {address} ({}), its origin on {origin_address}",
            told["backend"].as_str().unwrap_or("?")
        ));
        let trial = flags.out.join("demo.trial");
        Ok(Bench { proxy, _origin: origin, address, log, trial, other_cpu })
    }

    fn plan(&self, schedule: Schedule, duration: Duration) -> Plan {
        let target = Target {
            addr: self.address,
            authority: self.address.to_string(),
            path: "/obj/{n}?size={size}".into(),
            absolute: false,
        };
        let mut plan = Plan::new(target, schedule, duration);
        plan.arrivals = Arrivals::Poisson;
        plan.connections = CONNECTIONS;
        plan.population =
            Population { objects: OBJECTS, zipf_s: 0.8, size: Size::Fixed { bytes: OBJECT_BYTES } };
        plan.pin_cpu = self.other_cpu;
        plan
    }

    fn measure(
        &self,
        flags: &cli::Demo,
        stop: &AtomicBool,
        say: &Say,
    ) -> Result<Measured, Failure> {
        say.step("warming up: every object is fetched once, then the rough limit is looked for");
        let mut warm = self.plan(Schedule::ClosedLoop, Duration::from_secs(2));
        warm.population.zipf_s = 0.0;
        run(&warm, stop, &mut |_| {})?;
        let look = self.plan(Schedule::ClosedLoop, Duration::from_secs(2));
        let rough = ::load::rough_limit(&look, Duration::from_secs(2), stop).map_err(misuse)?;
        say.step(&format!("the rough limit is {:.0} requests/s", rough.rate));
        let top = self.rate_at(USE_MAX, rough.rate, stop)?;
        say.step(&format!("{:.0} % of the proxy's CPU is {top:.0} requests/s", USE_MAX * 100.0));

        let recording = self.record()?;
        let rising_for = flags.duration.mul_f64(1.0 - SATURATION_PART);
        let mut rising = self.plan(Schedule::rises(top, rising_for, RISES), rising_for);
        rising.cold = flags.cold;
        let mut told = 0;
        let rising = run(&rising, stop, &mut |tick| {
            let at = tick.elapsed.as_secs();
            if tick.phase == Phase::Running && tick.row.is_some() && at >= told + 5 {
                told = at;
                let rate = tick.row.map_or(0, |row| row.counts.completed);
                say.step(&format!(
                    "recording: {at} of {} s, {rate} requests/s",
                    rising_for.as_secs()
                ));
            }
        })?;
        say.step("saturating: as fast as the proxy answers");
        let saturated_for = flags.duration.mul_f64(SATURATION_PART).max(Duration::from_secs(5));
        let mut plan = self.plan(Schedule::ClosedLoop, saturated_for);
        plan.cold = flags.cold;
        // With a CPU of its own the generator must not be what the proxy waits for.
        plan.busy_poll = self.other_cpu.is_some();
        let saturated = run(&plan, stop, &mut |_| {})?;
        let summary = recording.finish().map_err(misuse)?;
        say.step(&format!("recorded {} intervals", summary.intervals));
        Ok(Measured { trial: self.trial.clone(), rising, saturated })
    }

    fn record(&self) -> Result<Recording, Failure> {
        let target = Recorded::Pid(self.proxy.pid());
        let mut spec = Spec::new(target, Some(self.log.clone()), &self.trial);
        spec.overwrite = true;
        spec.notes
            .push("recorded by plimsoll demo: the load rises several times, then saturates".into());
        Recording::start(spec).map_err(misuse)
    }

    /// The rate at which the proxy uses this part of its CPU: two short looks and the line
    /// through them, for the cost of a request falls with the load.
    fn rate_at(&self, part: f64, limit: f64, stop: &AtomicBool) -> Result<f64, Failure> {
        let pid = i32::try_from(self.proxy.pid()).map_err(misuse)?;
        let mut looks = Vec::new();
        for of_limit in [0.4, 0.7] {
            let rate = limit * of_limit;
            let plan = self.plan(Schedule::Constant(rate), Duration::from_millis(1500));
            let before = ::load::sys::process_cpu_ns(pid).map_err(misuse)?;
            let outcome = run(&plan, stop, &mut |_| {})?;
            let used = ::load::sys::process_cpu_ns(pid).map_err(misuse)? - before;
            looks.push((outcome.rate(), used as f64 / outcome.length_ns as f64));
        }
        let [(x0, y0), (x1, y1)] = looks[..] else { unreachable!("two looks were taken") };
        let slope = (y1 - y0) / (x1 - x0);
        let rate = if slope > 0.0 { x1 + (part - y1) / slope } else { limit * part };
        Ok(rate.clamp(0.3 * limit, 0.95 * limit))
    }
}

/// Runs a plan; the demo goes no further when it is interrupted or the proxy answers nothing.
fn run(
    plan: &Plan,
    stop: &AtomicBool,
    observer: &mut ::load::Observer<'_>,
) -> Result<Outcome, Failure> {
    let outcome = ::load::run(plan, stop, observer).map_err(misuse)?;
    if stop.load(Ordering::Relaxed) {
        return Err(misuse("interrupted"));
    }
    if outcome.counts.completed == 0 {
        return Err(misuse("the proxy answered nothing"));
    }
    Ok(outcome)
}

/// Tells the trial what each interval was, adds the latencies, keeps the prediction, and writes
/// the page.
fn finish(bench: &Bench, measured: &Measured, page: &Path) -> Result<::report::Analysis, Failure> {
    let options = ::report::Options { objective_ms: Some(10.0), ..::report::Options::default() };
    let Measured { trial: path, rising, saturated } = measured;
    let (mut writer, intervals) =
        harness::annotate(path, rising, saturated, SETTLE).map_err(misuse)?;
    for rows in [&rising.rows, &saturated.rows] {
        for row in join::latency_rows(&intervals, rows, 0)? {
            writer.latency(&row).map_err(misuse)?;
        }
    }
    writer.finish().map_err(misuse)?;
    let trial = Trial::open(path).map_err(misuse)?;
    let analysis = ::report::analyse(&trial, &options).map_err(misuse)?;
    drop(trial);
    if let Some(value) = analysis.capacity.value {
        let mut writer = Writer::reopen(path).map_err(misuse)?;
        writer
            .prediction(&Prediction {
                name: "capacity of this run, saturated".into(),
                made_at_ns: ::load::sys::wall_ns(),
                quantity: "capacity requests/s".into(),
                value,
                low: analysis.capacity.low,
                high: analysis.capacity.high,
                level: analysis.capacity.level,
                model: analysis.capacity.model.to_owned(),
            })
            .map_err(misuse)?;
        writer.finish().map_err(misuse)?;
    }
    let trial = Trial::open(path).map_err(misuse)?;
    let analysis = ::report::analyse(&trial, &options).map_err(misuse)?;
    output::write(page, &::report::html(&analysis))?;
    // Hundreds of megabytes that nobody asked for.
    std::fs::remove_file(&bench.log).map_err(misuse)?;
    Ok(analysis)
}
