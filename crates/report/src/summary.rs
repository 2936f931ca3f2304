//! What is said and what is tabled, once for the terminal and the page: labelled sentences and
//! tables of text. Both outputs write out the same, so that they cannot contradict each other.

use regress::{AtObjective, LoadLine, Why};

use crate::analysis::{
    Analysis, CapacityFigure, Flame, FlameUnit, IntervalRow, Resource, ResourceKind, Standing,
    counters_tables,
};
use crate::format::{
    NONE, bytes, duration, fixed, instant, latency, percent, rate, thousands, three,
};
use crate::{classes, files, tables, waits};

/// A labelled sentence.
pub(crate) struct Fact {
    pub(crate) label: &'static str,
    pub(crate) text: String,
    /// Something the reader must not overlook.
    pub(crate) warns: bool,
}

/// A table of text.
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Vec<String>>,
    /// What the reader must know to read it; may be empty.
    pub(crate) note: String,
}

/// The head of a column.
pub(crate) struct Column {
    pub(crate) name: String,
    /// Numbers stand to the right.
    pub(crate) numeric: bool,
    /// Text that may be wrapped where there is no room.
    pub(crate) wraps: bool,
}

impl Table {
    /// A column's name that begins with `<` is one of words, with `~` one of words that may be
    /// wrapped; the others are of numbers.
    pub(crate) fn new(title: &str, columns: &[&str], note: &str) -> Table {
        let column = |name: &&str| {
            let words = name.trim_start_matches(['<', '~']);
            let (numeric, wraps) = (words.len() == name.len(), name.starts_with('~'));
            Column { name: words.to_string(), numeric, wraps }
        };
        Table {
            title: title.to_string(),
            columns: columns.iter().map(column).collect(),
            rows: Vec::new(),
            note: note.to_string(),
        }
    }

    /// Whether a row belongs to the one above it: one of its cells is moved to the right.
    pub(crate) fn is_below(&self, row: &[String]) -> bool {
        row.iter().any(|cell| cell.starts_with(tables::INDENT))
    }
}

/// One line under the title: how much was recorded, and how much of it is in the fit.
pub(crate) fn extent(analysis: &Analysis) -> String {
    let trial = &analysis.trial;
    let left_out: Vec<String> =
        trial.excluded.iter().map(|e| format!("{} {}", thousands(e.count as f64), e.why)).collect();
    let left_out =
        if left_out.is_empty() { String::new() } else { format!(" ({})", left_out.join(", ")) };
    format!(
        "{} intervals of {} over {}, {} requests; {} in the fit{left_out}",
        thousands(trial.intervals as f64),
        duration(trial.interval_s),
        duration(trial.duration_s),
        thousands(trial.requests),
        thousands(trial.fitted as f64),
    )
}

/// What is said before anything is shown, on a page that can show the rest further down.
const FIRST: [&str; 9] =
    ["Capacity", "Trust", "Limit", "Next", "Measured", "Objective", "Files", "Lost", "Unfinished"];

/// The sentences in two parts: those that come first, and how they are known.
pub(crate) fn facts_parted(analysis: &Analysis) -> (Vec<Fact>, Vec<Fact>) {
    let place = |fact: &Fact| FIRST.iter().position(|label| *label == fact.label);
    let (mut first, rest): (Vec<Fact>, Vec<Fact>) =
        facts(analysis).into_iter().partition(|fact| place(fact).is_some());
    first.sort_by_key(place);
    (first, rest)
}

/// The sentences, the most important first.
pub(crate) fn facts(analysis: &Analysis) -> Vec<Fact> {
    let mut facts = vec![fact("Capacity", capacity_sentence(&analysis.capacity))];
    facts.extend(trust(&analysis.capacity));
    if analysis.capacity.identifiable {
        facts.push(fact("Read off", model_sentence(&analysis.capacity)));
    }
    if let Some(measured) = &analysis.saturation {
        let held = match measured.held {
            Some(true) => "; inside the interval",
            Some(false) => "; OUTSIDE the interval",
            None => "",
        };
        let text = format!(
            "{} requests/s, saturated: median of {} intervals ({} to {}) at {} % of the cap{held}",
            rate(measured.rate),
            measured.n,
            rate(measured.rate_min),
            rate(measured.rate_max),
            percent(measured.use_percent),
        );
        facts.push(Fact { label: "Measured", text, warns: measured.held == Some(false) });
    } else {
        facts.extend(not_saturated(analysis));
    }
    if let Some(first) = analysis.resources.first() {
        facts.push(fact("Limit", limit_sentence(first)));
        facts.extend(next(analysis));
    }
    if analysis.capacity.identifiable {
        facts.push(fact("Reach", reach_sentence(&analysis.capacity)));
    }
    facts.extend(cost(analysis));
    let dearest = analysis.costs.as_ref().and_then(tables::dearest);
    facts.extend(dearest.map(|text| fact("Request", text)));
    if let Some(line) = analysis.resources.first().and_then(|first| first.line.as_ref()) {
        facts.push(fact("Checks", checks(analysis, line)));
        facts.push(fact("Robust", robust(analysis, line)));
    }
    facts.extend(objective(analysis));
    facts.extend(analysis.files.as_ref().and_then(files::lint));
    facts.push(lost(analysis));
    facts.extend(analysis.trial.unfinished.iter().map(|text| Fact {
        label: "Unfinished",
        text: text.clone(),
        warns: true,
    }));
    facts
}

fn limit_sentence(limit: &Resource) -> String {
    let cap = match (limit.kind, limit.cap) {
        (ResourceKind::Disk, _) => "all of the time".to_string(),
        (ResourceKind::Nic, _) => "its speed".to_string(),
        (_, 1.0) => "1 CPU".to_string(),
        (_, cap) => format!("{} CPUs", three(cap)),
    };
    format!("{} ({}), cap {cap}", limit.name, limit.detail)
}

/// The resource that would be used up next, where there is another one that may limit.
fn next(analysis: &Analysis) -> Option<Fact> {
    let others = analysis.resources.iter().skip(1).filter(|other| other.may_limit);
    let known = others.filter_map(|other| {
        let capacity = other.line.as_ref()?.capacity();
        capacity.identifiable.is_ok().then_some((other, capacity))
    });
    let (other, capacity) = known.min_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
    let (low, high) = capacity.interval.bounds()?;
    let told_apart = analysis.capacity.high.is_some_and(|above| above < low);
    let text = format!(
        "{}, at {} requests/s ({} to {}){}",
        other.name,
        rate(capacity.value),
        rate(low),
        rate(high),
        if told_apart { "" } else { "; the two intervals overlap: either may be the first" }
    );
    Some(fact("Next", text))
}

fn not_saturated(analysis: &Analysis) -> Option<Fact> {
    let meant: Vec<&IntervalRow> =
        analysis.intervals.iter().filter(|row| row.standing == Standing::NotSaturated).collect();
    let used = meant.iter().filter_map(|row| Some(row.user? + row.kernel?));
    let highest = used.reduce(f64::max)?;
    let text = format!(
        "no saturation: the {} intervals meant for it used at most {} % of the cap",
        meant.len(),
        percent(highest)
    );
    Some(Fact { label: "Measured", text, warns: true })
}

fn fact(label: &'static str, text: String) -> Fact {
    Fact { label, text, warns: false }
}

fn capacity_sentence(capacity: &CapacityFigure) -> String {
    let Some(value) = capacity.value else {
        return capacity.reason.clone().unwrap_or_else(|| "not identifiable".to_string());
    };
    match capacity.low.zip(capacity.high) {
        Some((low, high)) => {
            format!("{} requests/s ({} to {})", rate(value), rate(low), rate(high))
        }
        None => format!("{} requests/s, and no bound: {}", rate(value), no_bound(capacity)),
    }
}

fn no_bound(capacity: &CapacityFigure) -> &str {
    capacity.reason.as_deref().unwrap_or("not identifiable")
}

fn model_sentence(capacity: &CapacityFigure) -> String {
    let model = match capacity.model {
        "wakes" => "the line with wakes".to_string(),
        _ => format!("the straight line ({})", capacity.model_why),
    };
    format!(
        "{model}, n = {}; the interval is one for a future saturated interval, {:.0} %",
        thousands(capacity.n as f64),
        100.0 * capacity.level
    )
}

fn reach_sentence(capacity: &CapacityFigure) -> String {
    format!(
        "the data go up to {} % of the cap and {} requests/s; capacity is {} times that rate",
        percent(capacity.reach_percent),
        rate(capacity.highest_rate),
        capacity.beyond_highest.map_or_else(|| NONE.to_string(), |times| fixed(times, 2)),
    )
}

fn trust(capacity: &CapacityFigure) -> Option<Fact> {
    let (statistic, why) = (capacity.distrust_statistic.as_ref()?, capacity.distrust_why.as_ref()?);
    let text = match capacity.identifiable {
        true => format!("not to be trusted: {statistic}: {why}"),
        false => format!("not to be trusted: {statistic}"),
    };
    Some(Fact { label: "Trust", text, warns: true })
}

fn cost(analysis: &Analysis) -> Option<Fact> {
    let idle = analysis.modes.lines.iter().find(|line| line.mode == "idle")?;
    if !analysis.capacity_straight.identifiable {
        return None;
    }
    let mut text = format!(
        "{} µs of CPU a request; fixed {} % of {}",
        three(-idle.us_per_request),
        percent(100.0 - idle.intercept),
        analysis.modes.percent_of
    );
    if let Some((wakes, _)) = analysis.wakes_drawn() {
        text = format!(
            "{text}; with wakes: {} µs a request and {} µs a wake (t = {}), fixed {} %",
            three(wakes.us_per_request),
            three(wakes.us_per_wake),
            fixed(wakes.t, 1),
            percent(wakes.fixed_percent)
        );
    }
    Some(fact("Cost", text))
}

fn checks(analysis: &Analysis, line: &LoadLine) -> String {
    let curvature = match &line.curvature {
        Some(curve) => format!(
            "curvature {} = {}, p = {}",
            curve.test.statistic_name,
            fixed(curve.test.statistic, 1),
            three(curve.test.p)
        ),
        None => "curvature cannot be tested".to_string(),
    };
    if !analysis.cpu_limits() {
        return curvature;
    }
    let slopes = analysis.modes.lines.iter().map(|line| line.slope.abs()).fold(0.0, f64::max);
    let gap = 100.0 * analysis.modes.closure_gap.abs() / slopes.max(f64::MIN_POSITIVE);
    format!("{curvature}; kernel + user slope = - idle slope but for {} %", fixed(gap, 2))
}

fn robust(analysis: &Analysis, line: &LoadLine) -> String {
    let capacity = &line.straight.robust_capacity;
    let value = match capacity.identifiable {
        Ok(()) => format!("straight line by MM: {} requests/s", rate(capacity.value)),
        Err(_) => "straight line by MM: not identifiable".to_string(),
    };
    if !analysis.cpu_limits() {
        return value;
    }
    let aside = analysis.intervals.iter().filter(|row| row.standing == Standing::SetAside);
    let mut numbers: Vec<String> = aside.map(|row| row.index.to_string()).collect();
    let count = numbers.len();
    if count > 12 {
        numbers.truncate(12);
        numbers.push("...".to_string());
    }
    match count {
        0 => format!("{value}; no interval set aside"),
        1 => format!("{value}; set aside: interval {}", numbers.join(", ")),
        _ => format!("{value}; set aside: {count} intervals, {}", numbers.join(", ")),
    }
}

fn objective(analysis: &Analysis) -> Option<Fact> {
    let objective = analysis.latency.as_ref()?.objective.as_ref()?;
    let quantile = (1e6 * objective.quantile).round() / 1e4;
    let bound = latency(objective.ms * 1e3);
    let text = match &objective.at {
        None => "no interval of the fit has valid latencies".to_string(),
        Some(AtObjective::Met { rate: met, missed_at }) => format!(
            "{} requests/s with {quantile} % within {bound}; missed from {} on",
            rate(*met),
            rate(*missed_at)
        ),
        Some(AtObjective::NotReached { highest_rate, latency: there }) => format!(
            "{quantile} % within {bound} wherever we looked, up to {} requests/s ({} there)",
            rate(*highest_rate),
            latency(there * 1e3)
        ),
        Some(AtObjective::NeverMet { lowest_rate, latency: there }) => format!(
            "{quantile} % within {bound} nowhere: {} already at {} requests/s",
            latency(there * 1e3),
            rate(*lowest_rate)
        ),
    };
    Some(fact("Objective", text))
}

fn lost(analysis: &Analysis) -> Fact {
    let own = format!("recording cost {} % of one CPU", fixed(analysis.trial.own_cost_percent, 2));
    let losses: Vec<String> = all_losses(analysis)
        .into_iter()
        .map(|(kind, count, _)| format!("{} {kind}", thousands(count as f64)))
        .collect();
    if losses.is_empty() {
        return fact("Lost", format!("nothing; {own}"));
    }
    if let Some(calls) = only_a_log(analysis) {
        let text = format!(
            "nothing that matters; {} calls on files that were open before are not followed, one \
             a request: a log of the server's own; {own}",
            thousands(calls as f64)
        );
        return fact("Lost", text);
    }
    Fact { label: "Lost", text: format!("{}; {own}", losses.join(", ")), warns: true }
}

/// Calls on a descriptor that was open before the recording, if nothing else was lost and they are
/// no more than a log needs: a line a request. Objects are opened anew.
fn only_a_log(analysis: &Analysis) -> Option<u64> {
    /// More than one a request: what was under way at the edges of the recording.
    const MARGIN: f64 = 1.02;
    /// And whatever else a server writes now and then.
    const MARGIN_CALLS: f64 = 100.0;
    let losses = all_losses(analysis);
    let [(kind, count, _)] = losses.as_slice() else { return None };
    let bound = MARGIN * analysis.trial.requests + MARGIN_CALLS;
    (kind == files::OPEN_BEFORE && *count as f64 <= bound).then_some(*count)
}

/// Kind, count and remark: what the trial says was lost, and what the analysis could not use.
fn all_losses(analysis: &Analysis) -> Vec<(String, u64, String)> {
    let told = analysis.losses.iter().filter(|loss| loss.count > 0);
    let mut all: Vec<(String, u64, String)> =
        told.map(|loss| (loss.kind.clone(), loss.count, loss.note.clone())).collect();
    if let Some(latency) = &analysis.latency {
        let ours = [
            ("latencies not valid", latency.invalid, "the generator had fallen behind"),
            ("latency rows not readable", latency.unreadable, ""),
        ];
        let found = ours.into_iter().filter(|(_, count, _)| *count > 0);
        all.extend(found.map(|(kind, count, why)| (kind.to_string(), count, why.to_string())));
    }
    all
}

/// The tables of 1998, and what stands beside them in ours.
pub(crate) fn first_tables(analysis: &Analysis) -> Vec<Table> {
    let mut listed = vec![capacities(analysis), modes(analysis)];
    if analysis.resources.len() > 1 {
        listed.push(resources(analysis));
    }
    listed.extend(analysis.costs.as_ref().map(tables::costs));
    listed.extend(classes::tables(&analysis.classes));
    listed.extend(analysis.profile.as_ref().map(tables::profile));
    listed.extend(analysis.counters.iter().flat_map(counters_tables));
    listed
}

/// Both lines, and what was measured.
fn capacities(analysis: &Analysis) -> Table {
    let level = format!("{:.0} %", 100.0 * analysis.capacity.level);
    let line = analysis.resources.first().and_then(|first| first.line.as_ref());
    let runs = line.map_or_else(String::new, |line| {
        let sd = 100.0 * line.capacity().between_run_sd / line.cap;
        format!(", with an sd of {} % between runs", three(sd))
    });
    let mut table = Table::new(
        "Capacity, requests/s",
        &["<by", "value", "low", "high", "line low", "line high", "n"],
        &format!(
            "low, high: {level} for a future saturated interval{runs}; line low, line high: \
             {level} for the line alone"
        ),
    );
    let mut row = |name: &str, figure: &CapacityFigure| {
        let ends = [figure.value, figure.low, figure.high, figure.line_low, figure.line_high];
        let mut cells = vec![name.to_string()];
        cells.extend(ends.map(or_none));
        cells.push(thousands(figure.n as f64));
        table.rows.push(cells);
    };
    let of_cpu = match analysis.cpu_limits() {
        true => String::new(),
        false => {
            row(&format!("{}, straight line", analysis.capacity.resource_name), &analysis.capacity);
            format!("{}, ", analysis.capacity_of_cpu.resource_name)
        }
    };
    row(&format!("{of_cpu}straight line (1998)"), &analysis.capacity_straight);
    if let Some(all) = &analysis.all_intervals {
        row("the same, quiet ones in", &all.capacity_straight);
    }
    if let Some(figure) = &analysis.capacity_with_wakes {
        row(&format!("{of_cpu}line with wakes"), figure);
    }
    table.rows.extend(at_objective(analysis));
    if let Some(measured) = &analysis.saturation {
        let mut cells = vec!["measured saturation".to_string()];
        cells.extend([measured.rate, measured.rate_min, measured.rate_max].map(rate));
        cells.extend([NONE.to_string(), NONE.to_string(), measured.n.to_string()]);
        table.rows.push(cells);
    }
    table
}

/// What the clients still get in time, beside what the server can do at most: as far as it was
/// seen, without an interval.
fn at_objective(analysis: &Analysis) -> Option<Vec<String>> {
    let found = analysis.latency.as_ref()?;
    let objective = found.objective.as_ref()?;
    let value = match objective.at.as_ref()? {
        AtObjective::Met { rate: met, .. } => rate(*met),
        AtObjective::NotReached { highest_rate, .. } => format!("> {}", rate(*highest_rate)),
        AtObjective::NeverMet { lowest_rate, .. } => format!("< {}", rate(*lowest_rate)),
    };
    let quantile = (1e6 * objective.quantile).round() / 1e4;
    let name = format!("{quantile} % within {}", latency(objective.ms * 1e3));
    let seen = found.points.iter().filter(|point| !point.saturated).count();
    let none = || NONE.to_string();
    Some(vec![name, value, none(), none(), none(), none(), thousands(seen as f64)])
}

fn or_none(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.to_string(), rate)
}

/// Idle, kernel and user: the table of 1998.
fn modes(analysis: &Analysis) -> Table {
    let steepest = analysis.modes.lines.iter().map(|line| line.slope.abs()).fold(0.0, f64::max);
    // A server of our days serves thousands of requests for a percent of its CPU.
    let (per, unit) = if steepest < 0.05 { (1_000.0, "%/1,000/s") } else { (1.0, "%/(req/s)") };
    let title = format!("CPU time by mode, percent of {}", analysis.modes.percent_of);
    let mut table = Table::new(
        &title,
        &["<mode", "at 0/s, %", &format!("slope, {unit}"), "µs/request", "corr.", "n", "zero at/s"],
        "",
    );
    let quiet = analysis.all_intervals.iter().flat_map(|all| &all.modes.lines);
    let lines = analysis.modes.lines.iter().map(|line| (line.mode.to_string(), line));
    for (name, line) in lines.chain(quiet.map(|line| (format!("{}, quiet in", line.mode), line))) {
        table.rows.push(vec![
            name,
            percent(line.intercept),
            fixed(line.slope * per, 3),
            three(line.us_per_request),
            fixed(line.correlation, 3),
            thousands(line.n as f64),
            or_none(line.x_intercept),
        ]);
    }
    if let Some(unfit) = &analysis.modes.unfit {
        table.note.clone_from(unfit);
    }
    if let Some(idle) = analysis.modes.lines.iter().find(|line| line.not_physical()) {
        let (low, high) = idle.line.band(0.0, analysis.capacity.level);
        table.note = format!(
            "not physical: {} % idle at zero load ({} to {}); the line is wrong near zero",
            percent(idle.intercept),
            percent(low),
            percent(high)
        );
    }
    table
}

/// Every resource; worth a table when there is more than one.
fn resources(analysis: &Analysis) -> Table {
    let mut table = Table::new(
        "Resources, the limiting one first",
        &["<resource", "capacity/s", "low", "high", "reach, %", "~remark"],
        "",
    );
    let mut limits = true;
    for resource in &analysis.resources {
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
                cells.extend([value, low, high].map(or_none));
                cells.push(percent(100.0 * line.reach));
                if let Err(why) = &capacity.identifiable {
                    let first = limits || !analysis.capacity.identifiable;
                    remark = if first { why.to_string() } else { not_limiting(line, why) };
                }
            }
        }
        limits = false;
        cells.push(remark);
        table.rows.push(cells);
    }
    table
}

/// Why a resource has no capacity beside one that has: there, the rate did vary.
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
    let note = format!("latency counts from {}", found.counted_from);
    let mut table = Table::new(
        "Latency by rate",
        &["<requests/s", "intervals", "requests", "median", "99 %", "longest"],
        &note,
    );
    let named = found.bins.iter().map(|bin| (String::new(), bin));
    let saturated = found.saturation.iter().map(|bin| (", saturated".to_string(), bin));
    for (name, bin) in named.chain(saturated) {
        let rates = match (rate(bin.rate_low), rate(bin.rate_high)) {
            (low, high) if low == high => low,
            (low, high) => format!("{low} to {high}"),
        };
        table.rows.push(vec![
            format!("{rates}{name}"),
            bin.intervals.to_string(),
            thousands(bin.count as f64),
            latency(bin.median_us),
            latency(bin.p99_us),
            latency(bin.max_us),
        ]);
    }
    Some(table)
}

/// Rows beyond this many are left to the JSON: a browser grows slow, and nobody reads them.
const INTERVAL_ROWS_MAX: usize = 5_000;

/// Every interval.
pub(crate) fn intervals(analysis: &Analysis) -> Table {
    let all = analysis.intervals.len();
    let note = match all > INTERVAL_ROWS_MAX {
        true => format!("the first {INTERVAL_ROWS_MAX} of {all}; all of them are in the JSON"),
        false => String::new(),
    };
    let mut table = Table::new(
        "Intervals",
        &[
            "no.",
            "start, s",
            "length, s",
            "requests/s",
            "idle, %",
            "kernel, %",
            "user, %",
            "wakes/s",
            "<standing",
            "<phase",
        ],
        &note,
    );
    let or_dash = |value: Option<f64>| value.map_or_else(|| NONE.to_string(), percent);
    for row in analysis.intervals.iter().take(INTERVAL_ROWS_MAX) {
        table.rows.push(vec![
            row.index.to_string(),
            fixed(row.start_s, 1),
            three(row.length_s),
            rate(row.rate),
            or_dash(row.idle),
            or_dash(row.kernel),
            or_dash(row.user),
            or_none(row.wakes),
            row.standing.label().to_string(),
            row.phase.clone().unwrap_or_default(),
        ]);
    }
    table
}

/// The processor's counters, where they were read.
/// What became of files, where that was sampled.
pub(crate) fn files_tables(analysis: &Analysis) -> Vec<Table> {
    analysis.files.as_ref().map(files::tables).unwrap_or_default()
}

/// Waits for locks, where they were sampled.
pub(crate) fn waits_tables(analysis: &Analysis) -> Vec<Table> {
    analysis.waits.as_ref().map(waits::tables).unwrap_or_default()
}

/// What the flame graph shows.
pub(crate) fn flame_title(flame: &Flame) -> &'static str {
    match flame.unit {
        FlameUnit::UsPerRequest => "Where one more request costs CPU time",
        FlameUnit::SampledMs => "Where CPU time went",
    }
}

/// What the width of the flame graph is.
pub(crate) fn flame_width(flame: &Flame) -> String {
    let total = flame_value(flame, flame.total);
    match flame.unit {
        FlameUnit::UsPerRequest => {
            format!("width: CPU time of one more request, {total} in all")
        }
        FlameUnit::SampledMs => {
            format!("width: CPU time sampled, {total} in all; no line says what a request costs")
        }
    }
}

fn flame_value(flame: &Flame, value: f64) -> String {
    match flame.unit {
        FlameUnit::UsPerRequest => format!("{} µs", fixed(value, 2)),
        FlameUnit::SampledMs => latency(1e3 * value),
    }
}

/// How the flame graph is to be read, and what it leaves out.
pub(crate) fn flame_note(flame: &Flame) -> String {
    let mut note = format!(
        "{}; n = {} samples in {} stacks; frames of fewer than {} are counted with their callers",
        flame_width(flame),
        thousands(flame.samples as f64),
        thousands(flame.stacks as f64),
        flame.samples_min
    );
    if flame.left_out < 0.0 {
        note.push_str(&format!(
            "; {} of {} together, below zero, cannot be drawn: what is drawn is {}",
            if flame.left_out_frames == 1 {
                "one part".to_string()
            } else {
                format!("{} parts", flame.left_out_frames)
            },
            flame_value(flame, flame.left_out),
            flame_value(flame, flame.drawn)
        ));
    }
    note
}

/// What was not seen.
pub(crate) fn losses(analysis: &Analysis) -> Table {
    let mut table = Table::new("What was lost", &["<what", "count", "~remark"], "");
    for (kind, count, remark) in all_losses(analysis) {
        table.rows.push(vec![kind, thousands(count as f64), remark]);
    }
    table
}

/// Predictions kept with the trial.
pub(crate) fn predictions(analysis: &Analysis) -> Table {
    let note = analysis.predictions.last().map_or_else(String::new, |last| {
        let (level, made) = (100.0 * last.level, instant(last.made_at_ns));
        format!("low, high: {level:.0} %; the last one made {made} UTC")
    });
    let mut table = Table::new(
        "Predictions kept with the trial",
        &["~what", "value", "low", "high", "<by"],
        &note,
    );
    for kept in &analysis.predictions {
        table.rows.push(vec![
            format!("{}: {}", kept.name, kept.quantity),
            rate(kept.value),
            or_none(kept.low),
            or_none(kept.high),
            kept.model.clone(),
        ]);
    }
    table
}

/// The machine, the server, the recording.
pub(crate) fn manifest(analysis: &Analysis) -> Table {
    let manifest = &analysis.manifest;
    let (host, server) = (&manifest.host, &manifest.server);
    let mut table = Table::new("Manifest", &["<what", "~value"], "");
    let pid = server.pid.map(|pid| pid.to_string()).unwrap_or_default();
    let pairs = [
        ("trial", analysis.trial.name.clone()),
        ("recorded", format!("{} UTC", instant(manifest.created_ns))),
        ("by", format!("plimsoll {}, schema {}", manifest.tool_version, manifest.schema)),
        ("server", analysis.trial.server.clone()),
        ("its pid", pid),
        ("its command line", server.command_line.clone()),
        ("its executable", server.exe.clone()),
        ("access log", manifest.log_path.clone().unwrap_or_default()),
        ("log format", manifest.log_format.clone().unwrap_or_default()),
        ("interval", duration(manifest.interval_ns as f64 / 1e9)),
        ("host", host.hostname.clone()),
        ("kernel", host.kernel.clone()),
        ("CPUs", format!("{} x {}", host.cpus, host.cpu_model)),
        ("memory", bytes(host.memory_bytes)),
    ];
    let known = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    table.rows.extend(known.map(|(what, value)| vec![what.to_string(), value]));
    table.rows.extend(manifest.notes.iter().map(|note| vec!["note".to_string(), note.clone()]));
    table
}

/// What each sampler could do here.
pub(crate) fn capabilities(analysis: &Analysis) -> Table {
    let mut table =
        Table::new("What was supported", &["<sampler", "<here", "~grain, source, or reason"], "");
    for capability in &analysis.manifest.capabilities {
        let here = if capability.supported { "yes" } else { "not supported here" };
        let reason = capability.reason.clone();
        table.rows.push(vec![capability.name.clone(), here.to_string(), reason]);
    }
    table
}
