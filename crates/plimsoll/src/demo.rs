//! `plimsoll demo`: the whole workflow on this machine.
//!
//! ```text
//! origin (child) <--misses-- proxy (child, own CPU) <--load-- generator (here)
//!                                 |  \--access log--> recorder (here) --> trial --> report
//!                                 '--/proc-----------^
//! ```
//!
//! First every object is fetched once, and the rate at which the proxy uses 80 % of its CPU is
//! estimated. Then a load rises several times, from a twentieth of that rate to that rate, and is
//! recorded. Last, a closed loop saturates the proxy. The lines are fitted to the rising load only,
//! so that the capacity is a prediction and the saturation tests it.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::load::{Outcome, Phase, Plan, Population, Schedule, Size};
use ::record::ProfileSpec;
use command::failure::{Failure, misuse};
use command::output::make_directory;
use command::stop_on_signal;
use harness::{Caching, Cpus, Server, Source};
use trial::{Prediction, Trial, Writer};

use crate::cli;
use crate::{join, output, report};

/// CPU use of the proxy at the top of the rising load.
const USE_MAX: f64 = 0.8;
/// How often the load rises. With several rises, a drift over time does not look like an effect of
/// the rate.
const RISES: usize = 4;
/// Part of the time that saturation takes.
const SATURATION_PART: f64 = 0.16;
/// The objects. They are small, so that requests dominate the cost.
const OBJECTS: Population =
    Population { objects: 10_000, zipf_s: 0.8, size: Size::Fixed { bytes: 1024 } };
/// Around a change of phase, intervals belong to neither phase.
const SETTLE: Duration = Duration::from_millis(1200);
/// The length of an interval.
const INTERVAL: Duration = Duration::from_secs(1);

/// Runs the demo.
pub(crate) fn demo(flags: &cli::Demo) -> Result<(), Failure> {
    if flags.duration < Duration::from_secs(15) {
        return Err(misuse("a load line needs at least 15 seconds; try --for 60s"));
    }
    let stop = stop_on_signal()?;
    make_directory(&flags.out)?;
    let progress = Progress { quiet: flags.json && !std::io::stderr().is_terminal() };
    let measured = measure(flags, &stop, &progress)?;
    let page = flags.out.join("index.html");
    let analysis = finish(&measured, &page)?;
    if flags.json {
        let mut json = serde_json::to_value(&analysis).map_err(misuse)?;
        json["page"] = page.display().to_string().into();
        output::print_json(&json)
    } else {
        report::show(&analysis, false)?;
        output::print(format!(
            "\nThe trial is {}; the page with the scatter plot:\n{}\n",
            measured.trial.display(),
            page.display()
        ))
    }
}

/// Progress on stderr, one line per step.
struct Progress {
    quiet: bool,
}

impl Progress {
    fn step(&self, text: &str) {
        if !self.quiet {
            eprintln!("demo: {text}");
        }
    }
}

/// The result of the measurement.
struct Measured {
    trial: PathBuf,
    rising: Outcome,
    saturated: Outcome,
}

fn measure(flags: &cli::Demo, stop: &AtomicBool, progress: &Progress) -> Result<Measured, Failure> {
    let (cpus, _pinned) = Cpus::take().map_err(misuse)?;
    if cpus.others.is_none() {
        progress.step("only one CPU: the generator shares it with the proxy and reduces capacity");
    }
    let program = std::env::current_exe().map_err(misuse)?;
    let source = Source::start(&program, cpus).map_err(misuse)?;
    let proxy = Server::start(&program, flags.backend, &source, Some(&flags.out), cpus);
    let mut proxy = proxy.map_err(misuse)?;
    proxy.population = OBJECTS;
    progress.step(&format!(
        "the proxy listens on {} ({}), its origin on {}",
        proxy.address,
        proxy.kind,
        source.address()
    ));

    progress.step("warming up: fetching every object once, then looking for the rate");
    let plan = |schedule, time| proxy.plan(Caching::On, schedule, time);
    let mut warm = plan(Schedule::ClosedLoop, Duration::from_secs(2));
    warm.population.zipf_s = 0.0;
    run(&warm, stop, &mut |_| {})?;
    let top = proxy.rate_at(USE_MAX, Caching::On, 0, stop).map_err(misuse)?;
    progress.step(&format!("{:.0} % of the proxy's CPU is {top:.0} requests/s", USE_MAX * 100.0));

    let trial = flags.out.join("demo.trial");
    let note = "recorded by plimsoll demo: the load rises several times, then saturates";
    let recording = proxy.record(&trial, INTERVAL, Some(ProfileSpec::default()), note);
    let recording = recording.map_err(misuse)?;
    let rising_for = flags.duration.mul_f64(1.0 - SATURATION_PART);
    let mut rising = plan(Schedule::rises(top, rising_for, RISES), rising_for);
    rising.cold = flags.cold;
    let mut last_shown = 0;
    let rising = run(&rising, stop, &mut |tick| {
        let at = tick.elapsed.as_secs();
        if tick.phase == Phase::Running && tick.row.is_some() && at >= last_shown + 5 {
            last_shown = at;
            let rate = tick.row.map_or(0, |row| row.counts.completed);
            let all = rising_for.as_secs();
            progress.step(&format!("recording: {at} of {all} s, {rate} requests/s"));
        }
    })?;
    progress.step("saturating: as fast as the proxy answers");
    let saturated_for = flags.duration.mul_f64(SATURATION_PART).max(Duration::from_secs(5));
    let mut saturating = plan(Schedule::ClosedLoop, saturated_for);
    saturating.cold = flags.cold;
    // With its own CPU, the generator must not be what limits the proxy.
    saturating.busy_poll = cpus.others.is_some();
    let saturated = run(&saturating, stop, &mut |_| {})?;
    let summary = recording.finish().map_err(misuse)?;
    progress.step(&format!("recorded {} intervals", summary.intervals));
    let log = proxy.log().map(Path::to_owned);
    drop(proxy);
    // The log can have hundreds of megabytes.
    log.map(std::fs::remove_file).transpose().map_err(misuse)?;
    Ok(Measured { trial, rising, saturated })
}

/// Runs a plan. It is an error if the user interrupts it, or if the proxy answers nothing.
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
        return Err(misuse("the proxy answered no request"));
    }
    Ok(outcome)
}

/// Marks the phases in the trial, adds the latencies and the prediction, and writes the page.
fn finish(measured: &Measured, page: &Path) -> Result<::report::Analysis, Failure> {
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
    let analyse = || {
        let trial = Trial::open(path).map_err(misuse)?;
        ::report::analyse(&trial, &options).map_err(misuse)
    };
    let analysis = analyse()?;
    if let Some(value) = analysis.capacity.value {
        let prediction = Prediction {
            name: "capacity of this run, saturated".into(),
            made_at_ns: ::load::sys::wall_ns(),
            quantity: "capacity requests/s".into(),
            value,
            low: analysis.capacity.low,
            high: analysis.capacity.high,
            level: analysis.capacity.level,
            model: analysis.capacity.model.to_owned(),
        };
        let mut writer = Writer::reopen(path).map_err(misuse)?;
        writer.prediction(&prediction).map_err(misuse)?;
        writer.finish().map_err(misuse)?;
    }
    let analysis = analyse()?;
    output::write(page, &::report::html(&analysis))?;
    Ok(analysis)
}
