//! The analysis: which resource limits, how each interval is used, and the resulting figures.

mod answers;
mod causes;
mod classes;
mod compare;
mod cost;
mod counters;
mod devices;
mod figures;
mod files;
mod fit;
mod flame;
mod latency;
mod model;
mod others;
mod profile;
mod ratio;
mod recent;
mod resource;
mod same_load;
mod samples;
mod saturation;
mod stretches;
mod to_come;
mod uses;
mod waits;
mod what_if;

use trial::{Interval, Manifest, Trial};

use crate::Error;
use crate::parallel::in_parallel;
pub use answers::{Answers, Upstream};
pub use causes::Cause;
pub(crate) use causes::KIND_GENERATOR;
pub use classes::{ClassCostRow, ClassTable};
pub use compare::{Comparison, Grade, Graded, ModeChange, PartChange, Side, compare};
use cost::Divided;
pub use cost::{CostRow, CostTable, GroupCost};
pub use counters::{CountedProcedure, CountedShare, CounterCost, HardwareCounters, OneMore};
pub(crate) use figures::not_physical;
pub use figures::{
    AllIntervals, CapacityFigure, Excluded, IntervalRow, MODEL_BUSY, MODEL_MEASURED, ModeLine,
    Modes, Options, Resource, Saturation, Standing, TrialFacts, WakesLine,
};
pub(crate) use files::OPEN_BEFORE;
pub use files::{Files, FilesOfSize, NeedlessReads};
use fit::{Fitted, Model};
use flame::Weights;
pub use flame::{Flame, FlameFrame, FlameUnit, StackValue, frame_label};
pub use latency::{Latency, LatencyBin, LatencyPoint, Objective};
pub use model::Analysis;
pub use profile::{Profile, ProfileRow, RowKind};
pub use ratio::{CompareOptions, Ratio, Verdict};
pub use recent::{
    CpuPerRequest, MachineModes, Recent, RecentInterval, RecentRate, RecentUse, recent,
};
pub use resource::ResourceKind;
pub(crate) use resource::one_cpu_a_process;
pub use same_load::{DifferenceKind, LoadDifference, SameLoadCost};
pub use samples::Procedure;
use samples::Samples;
pub use stretches::{Counted, Stretches, StretchesOfSize, at_saturation};
pub use to_come::{LatencyAtRate, LatencyToCome};
pub use uses::{IntervalUse, ResourceUses, uses};
pub use waits::{WaitFigures, Waits, WaitsAtPlace, WaitsOfKind};
pub use what_if::{Instead, QUANTITY_CAPACITY, WhatIf, what_if};

/// The phase of intervals in which an experiment saturated the server. They check the fit.
pub const PHASE_SATURATION: &str = "saturation";
/// The phase of intervals that are not used: warm-up, and between two phases.
pub const PHASE_WARM_UP: &str = "warm-up";

/// A CPU with this use has room, or else the threads are occupied because they wait for the CPU.
const CPU_FULL_PERCENT: f64 = 80.0;
/// Threads are exhausted before the CPU if their capacity is below this part of the CPU's.
const THREADS_BEFORE: f64 = 0.9;

/// Analyses a trial.
///
/// # Errors
/// [`Error::Empty`]; an option out of its range; a resource that was not recorded. A trial with too
/// few intervals for a line, or whose rate did not vary, is not an error: its capacity is not
/// identifiable, with the reason, and everything else is shown.
pub fn analyse(trial: &Trial, options: &Options) -> Result<Analysis, Error> {
    check(options)?;
    let name = file_name(trial);
    let fits = fits(trial, options, &name)?;
    let intervals = trial.intervals();
    let main = &fits[0];
    let too_short = main.too_few().map(|needed| too_short(name.clone(), needed, &main.standings));
    let cause = causes::missing(trial, main).map(|cause| cause.to_string());
    let no_line = cause.or_else(|| too_short.map(|why| why.without_name()));
    let share = resource::server_share(intervals);
    let devices = fitted_devices(trial, options);
    let limiter = limiter(main, &devices, options, &name)?;
    let rows = rows(intervals, main);
    // A device that is exhausted first has a line.
    let explained = |fit: &Fitted, mut figure: CapacityFigure| {
        let by_cause = fit.line().is_none() || fit.series.kind.is_cpu_time();
        if let Some(why) = no_line.as_ref().filter(|_| by_cause && !figure.identifiable) {
            (figure.reason, figure.plain) = (Some(why.clone()), None);
        }
        figure
    };
    let capacity_of = |fit: &Fitted, model| explained(fit, fit.capacity(model, options.level));
    let headline_of = |fit: &Fitted| explained(fit, fit.headline_capacity(options.level));
    let (capacity, saturation) = saturation::reported(limiter, trial, options.level);
    let capacity = explained(limiter, capacity);
    let objective = options.objective_ms.map(|ms| (options.objective_quantile, ms));
    let latency = latency::latency_of(trial.latencies(), &rows, objective, &capacity);
    let samples = Samples::of(trial, &options.groups);
    let divided =
        samples.as_ref().map(|samples| Divided::new(samples, intervals, &options.groups, main));
    let costs = divided.and_then(|divided| divided.table(options.level, options.seed).ok());
    Ok(Analysis {
        all_intervals: all_intervals(trial, options, main.series.kind),
        profile: samples
            .as_ref()
            .and_then(|samples| profile::profile(trial, samples, &options.groups)),
        flame: flame_of(trial, options, main, costs.as_ref()),
        costs,
        classes: classes::classes(trial, main, options.level, options.seed),
        trial: facts(trial, name, &rows, share),
        capacity_of_cpu: headline_of(main),
        capacity_straight: capacity_of(main, Model::Straight),
        capacity_with_wakes: main
            .line()
            .is_some_and(|line| line.with_wakes.is_some())
            .then(|| capacity_of(main, Model::Wakes)),
        capacity,
        saturation_measured: saturation.as_ref().map(|measured| measured.rate),
        saturation,
        modes: main.modes(),
        with_wakes: main.wakes_line(),
        latency,
        counters: counters::counters(
            trial,
            &options.groups,
            Some(main),
            options.level,
            options.seed,
        ),
        causes: causes::found(trial, main, std::ptr::eq(limiter, main)),
        answers: answers::answers(trial),
        stretches: stretches::stretches(trial),
        waits: waits::waits(trial),
        files: files::files(trial),
        resources: resources(trial, limiter, &fits, &devices),
        intervals: rows,
        losses: trial.losses().to_vec(),
        predictions: trial.predictions().to_vec(),
        manifest: trial.manifest().clone(),
    })
}

/// The flame graph: by cost per request if a line gives it, otherwise by sampled CPU time.
fn flame_of(
    trial: &Trial,
    options: &Options,
    main: &Fitted,
    costs: Option<&CostTable>,
) -> Option<Flame> {
    let all_owners = main.series.kind == ResourceKind::Machine;
    let identifiable = main.capacity(Model::Straight, options.level).identifiable;
    match costs.filter(|_| identifiable) {
        Some(table) => {
            let weights = Weights {
                unit: FlameUnit::UsPerRequest,
                per_ns: &table.us_per_ns,
                total: Some(table.whole.us_per_request),
                all_owners,
            };
            flame::flame(trial, &options.groups, &weights)
        }
        None => {
            let per_ns = vec![1e-6; trial.intervals().len()];
            let unit = FlameUnit::SampledMs;
            let weights = Weights { unit, per_ns: &per_ns, total: None, all_owners: false };
            flame::flame(trial, &options.groups, &weights)
        }
    }
}

/// The fits of all resources, the limiting one first. That one has enough rows for a line.
fn fitted(trial: &Trial, options: &Options, name: &str) -> Result<Vec<Fitted>, Error> {
    let fits = fits(trial, options, name)?;
    if let (None, Some(cause)) = (fits[0].line(), causes::missing(trial, &fits[0])) {
        return Err(Error::NoCapacity { trial: name.to_string(), why: cause.to_string() });
    }
    match fits[0].too_few() {
        Some(needed) => Err(too_short(name.to_string(), needed, &fits[0].standings)),
        None => Ok(fits),
    }
}

/// The fits of all resources, the limiting one first, even if there are too few rows for a line.
fn fits(trial: &Trial, options: &Options, name: &str) -> Result<Vec<Fitted>, Error> {
    let intervals = trial.intervals();
    if intervals.is_empty() {
        return Err(Error::Empty { trial: name.to_string() });
    }
    let share = resource::server_share(intervals);
    let mut fits = in_parallel(resource::series_of(trial), |series| {
        Fitted::new(series, trial, options, share)
    });
    limiting_first(&mut fits, options, name)?;
    Ok(fits)
}

/// The fits of the devices.
fn fitted_devices(trial: &Trial, options: &Options) -> Vec<Fitted> {
    in_parallel(devices::series_of(trial), |series| Fitted::new(series, trial, options, None))
}

/// The resource whose capacity is reported: the tightest, or the one in the options.
fn limiter<'a>(
    main: &'a Fitted,
    devices: &'a [Fitted],
    options: &Options,
    trial: &str,
) -> Result<&'a Fitted, Error> {
    match options.resource {
        Some(kind) if kind.has_modes() => Ok(main),
        Some(kind) => devices.iter().find(|fit| fit.series.kind == kind).ok_or_else(|| {
            Error::NoSuchResource { trial: trial.to_string(), resource: kind.label() }
        }),
        None => Ok(full(main, devices).or_else(|| tighter(main, devices)).unwrap_or(main)),
    }
}

/// The threads that answer, if all of them were occupied while the CPU had room.
fn full<'a>(main: &Fitted, devices: &'a [Fitted]) -> Option<&'a Fitted> {
    let of_threads = |fit: &&Fitted| fit.series.kind == ResourceKind::Answering;
    let threads = devices.iter().find(of_threads).filter(|fit| fit.may_limit())?;
    let saturated =
        |fit: &Fitted| fit.standings.iter().filter(|one| **one == Standing::Saturation).count();
    let busy = main.series.uses.iter().flatten().map(|used| used.busy()).fold(0.0, f64::max);
    let has_room = busy < CPU_FULL_PERCENT;
    (saturated(threads) >= saturation::SATURATED_MIN && has_room).then_some(threads)
}

/// The device that is exhausted before the CPU time, if there is one. A device of which only a
/// bound is known is none: others use it, too. If the CPU time has no capacity, a device counts
/// only if the data reach a high use of it.
fn tighter<'a>(main: &Fitted, devices: &'a [Fitted]) -> Option<&'a Fitted> {
    // Threads that wait for the CPU are occupied, too, and their line is near that of the CPU.
    let before = |fit: &Fitted| match fit.series.kind {
        ResourceKind::Answering => THREADS_BEFORE,
        _ => 1.0,
    };
    let least = |fit: &Fitted| match main.limit() {
        Some(limit) => {
            fit.is_known() && fit.limit().is_some_and(|other| other < before(fit) * limit)
        }
        // The number of threads is known, and each request occupies one as long at all loads.
        None if fit.series.kind == ResourceKind::Answering => {
            fit.limit().is_some() && fit.is_known()
        }
        None => fit.limit().is_some() && fit.reach() >= regress::REACH_MIN,
    };
    let closer = |a: &&Fitted, b: &&Fitted| {
        let limit = |fit: &Fitted| fit.limit().unwrap_or(f64::INFINITY);
        limit(a).total_cmp(&limit(b))
    };
    devices.iter().filter(|fit| least(fit)).min_by(closer)
}

/// All resources, the limiting one first.
fn resources(
    trial: &Trial,
    limiter: &Fitted,
    fits: &[Fitted],
    devices: &[Fitted],
) -> Vec<Resource> {
    let others = fits.iter().chain(devices).filter(|fit| !std::ptr::eq(*fit, limiter));
    let mut all: Vec<Resource> =
        [limiter].into_iter().chain(others).map(Fitted::resource).collect();
    all.extend(devices::without_limit(trial));
    all
}

/// The same lines including quiet intervals, if those were excluded.
fn all_intervals(trial: &Trial, options: &Options, kind: ResourceKind) -> Option<AllIntervals> {
    if options.above <= 0.0 {
        return None;
    }
    let all = Options { above: 0.0, resource: Some(kind), ..options.clone() };
    let fits = fitted(trial, &all, "").ok()?;
    Some(AllIntervals {
        capacity_straight: fits[0].capacity(Model::Straight, options.level),
        modes: fits[0].modes(),
    })
}

fn check(options: &Options) -> Result<(), Error> {
    let is_positive = |value: f64| value.is_finite() && value > 0.0;
    let Options { level, objective_quantile, .. } = *options;
    require(&[
        (level > 0.0 && level < 1.0, "the level of an interval must lie between 0 and 1"),
        (
            options.cap.is_none_or(is_positive),
            "the cap must be a positive number of CPU seconds per second",
        ),
        (
            options.objective_ms.is_none_or(is_positive),
            "the latency objective must be a positive number of milliseconds",
        ),
        (
            objective_quantile > 0.0 && objective_quantile <= 1.0,
            "the quantile of the latency objective must lie between 0 and 1",
        ),
        (!options.above.is_nan(), "the lowest rate of the fit must be a number"),
    ])
}

/// Fails with the message of the first condition that does not hold.
fn require(conditions: &[(bool, &str)]) -> Result<(), Error> {
    match conditions.iter().find(|(holds, _)| !holds) {
        Some((_, what)) => Err(Error::Option { what: (*what).to_string() }),
        None => Ok(()),
    }
}

/// Moves the limiting resource to the front.
fn limiting_first(fits: &mut [Fitted], options: &Options, trial: &str) -> Result<(), Error> {
    let chosen = match options.resource.filter(|kind| kind.has_modes()) {
        Some(kind) => fits.iter().position(|fit| fit.series.kind == kind).ok_or_else(|| {
            Error::NoSuchResource { trial: trial.to_string(), resource: kind.label() }
        })?,
        None => {
            let limits = fits.iter().enumerate().filter_map(|(at, fit)| Some((at, fit.limit()?)));
            limits.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(at, _)| at)
        }
    };
    let first = fits.get_mut(..=chosen).ok_or_else(|| Error::Empty { trial: trial.to_string() })?;
    first.rotate_right(1);
    Ok(())
}

fn too_short(trial: String, needed: usize, standings: &[Standing]) -> Error {
    let excluded = excluded(standings);
    let why: Vec<String> = excluded.iter().map(|e| format!("{} {}", e.count, e.why)).collect();
    let usable = standings.iter().filter(|standing| standing.is_fitted()).count();
    let count = |wanted| standings.iter().filter(|one| **one == wanted).count();
    let fix = if standings.contains(&Standing::TooQuiet) {
        "lower --above"
    } else if 2 * count(Standing::Saturation) > standings.len() {
        "record it at lower loads, too: while it is saturated, only its capacity is measured"
    } else {
        "record for longer"
    };
    Error::TooShort {
        trial,
        usable,
        intervals: standings.len(),
        needed,
        why: if why.is_empty() { "none excluded".to_string() } else { why.join(", ") },
        fix: fix.to_string(),
    }
}

fn excluded(standings: &[Standing]) -> Vec<Excluded> {
    let kinds = [
        Standing::WarmUp,
        Standing::RateInvalid,
        Standing::TooQuiet,
        Standing::NotSeen,
        Standing::NotSaturated,
        Standing::Saturation,
        Standing::Disturbed,
    ];
    let count = |kind| standings.iter().filter(|standing| **standing == kind).count();
    kinds
        .into_iter()
        .map(|kind| Excluded { why: kind.label().to_string(), count: count(kind) })
        .filter(|excluded| excluded.count > 0)
        .collect()
}

fn rows(intervals: &[Interval], main: &Fitted) -> Vec<IntervalRow> {
    let start = intervals[0].start_ns;
    let row = |(at, interval): (usize, &Interval)| {
        let used = main.series.uses[at];
        IntervalRow {
            index: interval.index,
            start_s: (interval.start_ns - start) as f64 / 1e9,
            length_s: interval.length_ns as f64 / 1e9,
            rate: interval.rate(),
            idle: used.map(|used| used.idle),
            kernel: used.map(|used| used.kernel),
            user: used.map(|used| used.user),
            wakes: used.and_then(|used| used.wakes),
            phase: interval.phase.clone(),
            standing: main.standings[at],
        }
    };
    intervals.iter().enumerate().map(row).collect()
}

fn facts(trial: &Trial, name: String, rows: &[IntervalRow], share: Option<f64>) -> TrialFacts {
    let intervals = trial.intervals();
    let lengths: Vec<f64> = rows.iter().map(|row| row.length_s).collect();
    let total_ns: i64 = intervals.iter().map(|interval| interval.length_ns).sum();
    let recorder_ns: i64 = intervals.iter().map(|interval| interval.recorder_ns).sum();
    let standings: Vec<Standing> = rows.iter().map(|row| row.standing).collect();
    TrialFacts {
        name,
        server: server_name(trial.manifest()),
        complete: trial.complete(),
        unfinished: trial.unfinished(),
        duration_s: rows.last().map_or(0.0, |last| last.start_s + last.length_s),
        interval_s: median(&lengths).unwrap_or(0.0),
        intervals: rows.len(),
        fitted: standings.iter().filter(|standing| standing.is_fitted()).count(),
        excluded: excluded(&standings),
        requests: intervals.iter().map(|interval| interval.requests).sum(),
        own_cost_percent: 100.0 * recorder_ns as f64 / total_ns.max(1) as f64,
        server_share_percent: share.map(|share| 100.0 * share),
    }
}

fn server_name(manifest: &Manifest) -> String {
    let server = &manifest.server;
    let name = if server.name.is_empty() { "the server" } else { &server.name };
    match &server.version {
        Some(version) => format!("{name} {version}"),
        None => name.to_string(),
    }
}

fn file_name(trial: &Trial) -> String {
    let path = trial.path();
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The median; `None` of an empty list.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[upper]),
        _ => Some((sorted[upper - 1] + sorted[upper]) / 2.0),
    }
}
