//! The tables of a report, the same in a terminal and on a page.

mod costs;
mod samplers;

use regress::{AtObjective, LoadLine, Why};

use crate::analysis::{
    Analysis, CapacityFigure, LatencyAtRate, LatencyBin, MODEL_BUSY, not_physical,
};
use crate::facts::{goal, losses as all_losses};
use crate::format::{
    NONE, bytes, duration, fixed, instant, latency, level, or_none, percent, rate, thousands, three,
};
use crate::table::{Column, Table};
use trial::Capability;

pub(crate) use costs::us;
pub(crate) use samplers::{files, lock_waits, stretches, upstreams};

/// The tables that come first: capacity, CPU time, resources, and what a request costs.
pub(crate) fn first(analysis: &Analysis) -> Vec<Table> {
    let mut tables = vec![capacities(analysis), modes(analysis)];
    if analysis.resources.len() > 1 {
        tables.push(resources(analysis));
    }
    tables.extend(analysis.costs.as_ref().map(costs::costs));
    tables.extend(analysis.classes.iter().map(costs::classes));
    tables.extend(analysis.profile.as_ref().map(costs::profile));
    tables.extend(analysis.counters.iter().flat_map(costs::counters));
    tables
}

/// The capacity by each line, at the objective, and as measured.
fn capacities(analysis: &Analysis) -> Table {
    let level = level(analysis.capacity.level);
    let line = analysis.resources.first().and_then(|first| first.line.as_ref());
    let runs = line.map_or_else(String::new, |line| {
        let sd = 100.0 * line.capacity().between_run_sd / line.cap;
        format!(", with an sd of {} % between runs", three(sd))
    });
    let mut table = Table::new(
        "Capacity, requests/s",
        &["<by", "value", "low", "high", "line low", "line high", "n"],
        format!(
            "low, high: {level} for a future saturated interval{runs}; line low, line high: \
             {level} for the line alone"
        ),
    );
    let mut row = |name: &str, figure: &CapacityFigure| {
        let ends = [figure.value, figure.low, figure.high, figure.line_low, figure.line_high];
        let mut cells = vec![name.to_string()];
        cells.extend(ends.map(|value| or_none(value, rate)));
        cells.push(thousands(figure.n as f64));
        table.rows.push(cells);
    };
    let of_cpu = match analysis.cpu_limits() {
        true => String::new(),
        false => {
            let line =
                if analysis.capacity.model == MODEL_BUSY { "busy CPU" } else { "straight line" };
            row(&format!("{}, {line}", analysis.capacity.resource_name), &analysis.capacity);
            format!("{}, ", analysis.capacity_of_cpu.resource_name)
        }
    };
    if analysis.busy().is_some() {
        row(&format!("{of_cpu}line of a busy CPU"), &analysis.capacity_of_cpu);
    }
    row(&format!("{of_cpu}straight line (1998)"), &analysis.capacity_straight);
    if let Some(all) = &analysis.all_intervals {
        row("the same, with quiet intervals", &all.capacity_straight);
    }
    if let Some(figure) = &analysis.capacity_with_wakes {
        row(&format!("{of_cpu}line with wakes"), figure);
    }
    let none = NONE.to_string();
    table.rows.extend(at_objective(analysis).map(|(name, value, n)| {
        vec![name, value, none.clone(), none.clone(), none.clone(), none.clone(), n]
    }));
    if let Some(measured) = &analysis.saturation {
        let mut cells = vec!["measured saturation".to_string()];
        cells.extend([measured.rate, measured.rate_min, measured.rate_max].map(rate));
        cells.extend([none.clone(), none, measured.n.to_string()]);
        table.rows.push(cells);
    }
    table
}

/// The objective, the rate up to which it was seen to be met (without an interval), and the number
/// of intervals.
fn at_objective(analysis: &Analysis) -> Option<(String, String, String)> {
    let found = analysis.latency.as_ref()?;
    let objective = found.objective.as_ref()?;
    let value = match objective.at.as_ref()? {
        AtObjective::Met { rate: met, .. } => rate(*met),
        AtObjective::NotReached { highest_rate, .. } => format!("> {}", rate(*highest_rate)),
        AtObjective::NeverMet { lowest_rate, .. } => format!("< {}", rate(*lowest_rate)),
    };
    let seen = found.points.iter().filter(|point| !point.saturated).count();
    Some((goal(objective), value, thousands(seen as f64)))
}

/// Slopes per request/s, or per 1,000 requests/s if a request takes a small part of a percent: the
/// factor and the unit.
pub(crate) fn slope_unit<'a>(slopes: impl Iterator<Item = &'a f64>) -> (f64, &'static str) {
    let steepest = slopes.fold(0.0_f64, |steepest, slope| steepest.max(slope.abs()));
    if steepest < 0.05 { (1_000.0, "%/1,000/s") } else { (1.0, "%/(req/s)") }
}

/// Idle, kernel and user time: the table of 1998.
fn modes(analysis: &Analysis) -> Table {
    let modes = &analysis.modes;
    let (per, unit) = slope_unit(modes.lines.iter().map(|line| &line.slope));
    let quiet = analysis.all_intervals.iter().flat_map(|all| &all.modes.lines);
    let lines = modes.lines.iter().map(|line| (line.mode.to_string(), line));
    let quiet = quiet.map(|line| (format!("{}, with quiet", line.mode), line));
    let impossible = modes.lines.iter().find(|line| line.not_physical()).map(|idle| {
        let (low, high) = idle.line.band(0.0, analysis.capacity.level);
        not_physical(idle.intercept, low, high)
    });
    let note = impossible.or(modes.unfit.clone()).unwrap_or_default();
    let title = format!("CPU time by mode, percent of {}", modes.percent_of);
    Table::of(
        title,
        lines.chain(quiet),
        &[
            ("<mode", &|(name, _)| name.clone()),
            ("at 0/s, %", &|(_, line)| percent(line.intercept)),
            (&format!("slope, {unit}"), &|(_, line)| fixed(line.slope * per, 3)),
            ("µs/request", &|(_, line)| three(line.us_per_request)),
            ("corr.", &|(_, line)| fixed(line.correlation, 3)),
            ("n", &|(_, line)| thousands(line.n as f64)),
            ("zero at/s", &|(_, line)| or_none(line.x_intercept, rate)),
        ],
        note,
    )
}

/// Every resource; only shown if there is more than one.
fn resources(analysis: &Analysis) -> Table {
    let mut table = Table::new(
        "Resources, the limiting one first",
        &["<resource", "capacity/s", "low", "high", "reach, %", "~remark"],
        "",
    );
    for (at, resource) in analysis.resources.iter().enumerate() {
        let mut cells = vec![resource.name.clone()];
        let mut remark = resource.remark.clone().unwrap_or_default();
        match &resource.line {
            None => {
                cells.extend(vec![NONE.to_string(); 4]);
                remark = resource.remark.clone().or(resource.unfit.clone()).unwrap_or_default();
            }
            Some(line) => {
                let capacity = line.capacity();
                let (low, high) = capacity.interval.bounds().unzip();
                let value = capacity.identifiable.is_ok().then_some(capacity.value);
                cells.extend([value, low, high].map(|value| or_none(value, rate)));
                cells.push(percent(100.0 * line.reach));
                if let Err(why) = &capacity.identifiable {
                    let limits = at == 0 || !analysis.capacity.identifiable;
                    remark = if limits { why.to_string() } else { not_limiting(line, why) };
                }
            }
        }
        cells.push(remark);
        table.rows.push(cells);
    }
    table
}

/// Why a resource has no capacity although another one has: the rate did vary there.
fn not_limiting(line: &LoadLine, why: &Why) -> String {
    let slope = &line.straight.line;
    match why {
        Why::RateDidNotVary | Why::CostDoesNotRise => format!(
            "not limiting: its use does not rise with the rate (t = {})",
            fixed(slope.slope / slope.se_slope, 1)
        ),
        _ => format!("not limiting: {why}"),
    }
}

/// Latency by rate, if there is any.
pub(crate) fn latencies(analysis: &Analysis) -> Option<Table> {
    let found = analysis.latency.as_ref()?;
    let rates = |bin: &LatencyBin| match (rate(bin.rate_low), rate(bin.rate_high)) {
        (low, high) if low == high => low,
        (low, high) => format!("{low} to {high}"),
    };
    let bins = found.bins.iter().map(|bin| ("", bin));
    let saturated = found.saturation.iter().map(|bin| (", saturated", bin));
    Some(Table::of(
        "Latency by rate",
        bins.chain(saturated),
        &[
            ("<requests/s", &|(suffix, bin)| format!("{}{suffix}", rates(bin))),
            ("intervals", &|(_, bin)| bin.intervals.to_string()),
            ("requests", &|(_, bin)| thousands(bin.count as f64)),
            ("median", &|(_, bin)| latency(bin.median_us)),
            ("99 %", &|(_, bin)| latency(bin.p99_us)),
            ("max", &|(_, bin)| latency(bin.max_us)),
        ],
        format!("latency is counted from {}", found.counted_from),
    ))
}

/// Latency at rates that were not reached, if it is predicted.
pub(crate) fn latencies_to_come(analysis: &Analysis) -> Option<Table> {
    let to_come = &analysis.latency.as_ref()?.to_come;
    let us = |us: f64| if us.is_finite() { latency(us) } else { NONE.to_string() };
    let added = match to_come.is_wait_seen {
        true => "",
        false => "; the recorded latencies have no wait in the socket, which is added",
    };
    let columns: [Column<LatencyAtRate>; 8] = [
        ("requests/s", &|at| rate(at.rate)),
        ("load, %", &|at| percent(at.percent_of_capacity)),
        ("median", &|at| us(at.median.us)),
        ("low", &|at| us(at.median.low_us)),
        ("high", &|at| us(at.median.high_us)),
        ("99 %", &|at| us(at.p99.us)),
        ("low", &|at| us(at.p99.low_us)),
        ("high", &|at| us(at.p99.high_us)),
    ];
    let note = format!(
        "load: of the capacity; low, high: {} for a future interval{added}",
        level(analysis.capacity.level)
    );
    let table = Table::of("Latency to come", to_come.rates.iter().copied(), &columns, note);
    (!table.rows.is_empty()).then_some(table)
}

/// Rows of the table of intervals; a browser is slow with more. The JSON has all.
const INTERVAL_ROWS_MAX: usize = 5_000;

/// Every interval.
pub(crate) fn intervals(analysis: &Analysis) -> Table {
    let all = analysis.intervals.len();
    let note = match all > INTERVAL_ROWS_MAX {
        true => format!("the first {INTERVAL_ROWS_MAX} of {all}; the JSON has all of them"),
        false => String::new(),
    };
    Table::of(
        "Intervals",
        analysis.intervals.iter().take(INTERVAL_ROWS_MAX),
        &[
            ("no.", &|row| row.index.to_string()),
            ("start, s", &|row| fixed(row.start_s, 1)),
            ("length, s", &|row| three(row.length_s)),
            ("requests/s", &|row| rate(row.rate)),
            ("idle, %", &|row| or_none(row.idle, percent)),
            ("kernel, %", &|row| or_none(row.kernel, percent)),
            ("user, %", &|row| or_none(row.user, percent)),
            ("wakes/s", &|row| or_none(row.wakes, rate)),
            ("<status", &|row| row.standing.label().to_string()),
            ("<phase", &|row| row.phase.clone().unwrap_or_default()),
        ],
        note,
    )
}

/// What was lost.
pub(crate) fn losses(analysis: &Analysis) -> Table {
    Table::of(
        "Losses",
        all_losses(analysis),
        &[
            ("<what", &|loss| loss.kind.clone()),
            ("count", &|loss| thousands(loss.count as f64)),
            ("~remark", &|loss| loss.note.clone()),
        ],
        "",
    )
}

/// Predictions stored in the trial.
pub(crate) fn predictions(analysis: &Analysis) -> Table {
    let note = analysis.predictions.last().map_or_else(String::new, |last| {
        let made = instant(last.made_at_ns);
        format!("low, high: {}; the last prediction was made at {made} UTC", level(last.level))
    });
    Table::of(
        "Predictions stored in the trial",
        &analysis.predictions,
        &[
            ("~what", &|kept| format!("{}: {}", kept.name, kept.quantity)),
            ("value", &|kept| rate(kept.value)),
            ("low", &|kept| or_none(kept.low, rate)),
            ("high", &|kept| or_none(kept.high, rate)),
            ("<by", &|kept| kept.model.clone()),
        ],
        note,
    )
}

/// The machine, the server, the recording.
pub(crate) fn manifest(analysis: &Analysis) -> Table {
    let manifest = &analysis.manifest;
    let (host, server) = (&manifest.host, &manifest.server);
    let pairs = [
        ("trial", analysis.trial.name.clone()),
        ("recorded", format!("{} UTC", instant(manifest.created_ns))),
        ("recorder", format!("plimsoll {}, schema {}", manifest.tool_version, manifest.schema)),
        ("server", analysis.trial.server.clone()),
        ("pid", server.pid.map(|pid| pid.to_string()).unwrap_or_default()),
        ("command line", server.command_line.clone()),
        ("executable", server.exe.clone()),
        ("access log", manifest.log_path.clone().unwrap_or_default()),
        ("log format", manifest.log_format.clone().unwrap_or_default()),
        ("interval", duration(manifest.interval_ns as f64 / 1e9)),
        ("host", host.hostname.clone()),
        ("kernel", host.kernel.clone()),
        ("CPUs", format!("{} x {}", host.cpus, host.cpu_model)),
        ("memory", bytes(host.memory_bytes)),
    ];
    let known = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    let notes = manifest.notes.iter().map(|note| ("note", note.clone()));
    Table::of(
        "Manifest",
        known.chain(notes),
        &[("<what", &|(what, _)| what.to_string()), ("~value", &|(_, value)| value.clone())],
        "",
    )
}

/// What each sampler could do on this machine.
pub(crate) fn capabilities(analysis: &Analysis) -> Table {
    let supported = |it: &&Capability| if it.supported { "yes" } else { "not supported here" };
    Table::of(
        "Samplers",
        &analysis.manifest.capabilities,
        &[
            ("<sampler", &|it| it.name.clone()),
            ("<supported", &|it| supported(it).to_string()),
            ("~resolution and source, or reason", &|it| it.reason.clone()),
        ],
        "",
    )
}
