//! The labelled sentences of a report, the same in a terminal and on a page.

use regress::{AtObjective, LoadLine, MetUpTo};

use crate::analysis::{
    Analysis, CapacityFigure, Cause, CostTable, Files, IntervalRow, MODEL_BUSY, MODEL_MEASURED,
    OPEN_BEFORE, Objective, Resource, ResourceKind, Standing, one_cpu_a_process,
};
use crate::format::{
    duration, ends, fixed, latency, level, or_none, percent, rate, thousands, three,
};
use crate::headline::{Carried, about};
use crate::table::Fact;
use trial::{Loss, Manifest};

/// Needless reads below this share of the time in the calls are only in the table.
const NEEDLESS_PERCENT_MIN: f64 = 1.0;

/// One line under the title: how much was recorded, and how much of it was fitted.
pub(crate) fn extent(analysis: &Analysis) -> String {
    let trial = &analysis.trial;
    let excluded: Vec<String> =
        trial.excluded.iter().map(|e| format!("{} {}", thousands(e.count as f64), e.why)).collect();
    let excluded = match excluded.is_empty() {
        true => String::new(),
        false => format!(" (not fitted: {})", excluded.join(", ")),
    };
    format!(
        "{} intervals of {} over {}, {} requests; {} fitted{excluded}",
        thousands(trial.intervals as f64),
        duration(trial.interval_s),
        duration(trial.duration_s),
        thousands(trial.requests),
        thousands(trial.fitted as f64),
    )
}

/// The same for a page that begins with the answer.
pub(crate) fn short_extent(analysis: &Analysis) -> String {
    let trial = &analysis.trial;
    format!("{} requests in {}", thousands(trial.requests), duration(trial.duration_s))
}

/// Labels of the sentences that a page shows first. The others explain how the figures were
/// obtained, and come below the figure.
const FIRST: [&str; 7] = ["Warning", "Limit", "Next", "Objective", "Files", "Lost", "Unfinished"];

/// The sentences in two parts: those that come first on a page, and the others.
pub(crate) fn facts_in_parts(analysis: &Analysis) -> (Vec<Fact>, Vec<Fact>) {
    let place = |fact: &Fact| FIRST.iter().position(|label| *label == fact.label);
    let (mut first, rest): (Vec<Fact>, Vec<Fact>) =
        facts(analysis).into_iter().partition(|fact| place(fact).is_some());
    first.sort_by_key(place);
    (first, rest)
}

/// The sentences, most important first.
pub(crate) fn facts(analysis: &Analysis) -> Vec<Fact> {
    let capacity = &analysis.capacity;
    let limit = analysis.resources.first();
    let mut facts = vec![Fact::new("Capacity", capacity_sentence(capacity))];
    let why = capacity.reason.as_deref().unwrap_or_default();
    // A cause that is the headline is not repeated.
    let causes = analysis.causes.iter().map(Cause::to_string).filter(|cause| cause != why);
    facts.extend(causes.map(|cause| Fact::warning("Warning", cause)));
    if capacity.identifiable {
        facts.extend(capacity.unreliable().map(|text| Fact::warning("Warning", text)));
    }
    if capacity.identifiable {
        facts.push(Fact::new("Model", model(capacity)));
    }
    facts.extend(measured(analysis));
    let limit_text = |limit| limit_sentence(limit, &analysis.manifest);
    facts.extend(limit.map(|limit| Fact::new("Limit", limit_text(limit))));
    facts.extend(waits(analysis));
    facts.extend(next(analysis));
    if capacity.beyond_highest.is_some() {
        facts.push(Fact::new("Reach", reach(capacity)));
    }
    facts.extend(cost(analysis));
    facts.extend(analysis.costs.as_ref().and_then(most_expensive));
    if let Some(line) = limit.and_then(|limit| limit.line.as_ref()) {
        facts.push(Fact::new("Checks", checks(analysis, line)));
        facts.push(Fact::new("Robust", robust(analysis, line)));
    }
    facts.extend(objective(analysis));
    facts.extend(analysis.files.as_ref().and_then(needless_reads));
    facts.push(lost(analysis));
    let unfinished = analysis.trial.unfinished.iter();
    facts.extend(unfinished.map(|text| Fact::warning("Unfinished", text)));
    facts
}

/// The resource that limits.
fn limit_sentence(limit: &Resource, manifest: &Manifest) -> String {
    let cap = match (limit.kind, limit.cap) {
        (ResourceKind::Disk, _) => "it is full at 100 % busy".to_string(),
        (ResourceKind::Nic, _) => "it is full at its speed".to_string(),
        (ResourceKind::Answering, _) => "they are full when all are occupied".to_string(),
        (_, 1.0) => "it can use one CPU".to_string(),
        (_, cap) => format!("it can use {} CPUs", three(cap)),
    };
    let is_code = matches!(limit.kind, ResourceKind::HottestThread | ResourceKind::Server);
    let why = match one_cpu_a_process(manifest).filter(|_| is_code) {
        Some(language) => format!(
            ": {language} runs the code of a process on one CPU, however many the process may use"
        ),
        None => String::new(),
    };
    format!("{} ({}); {cap}{why}", limit.name, limit.detail)
}

/// The other server that requests wait for longest.
fn waits(analysis: &Analysis) -> Option<Fact> {
    let answers = analysis.answers.as_ref()?;
    let longest = answers.longest()?;
    let times = fixed(longest.waits, 1);
    let text = format!("a request waits {} ({times} times), without CPU time", longest.text());
    Some(Fact::new("Waits", text))
}

/// The resource that would be exhausted next, if there is another one that may limit.
fn next(analysis: &Analysis) -> Option<Fact> {
    let others = analysis.resources.iter().skip(1).filter(|other| other.may_limit);
    let known = others.filter_map(|other| {
        let capacity = other.line.as_ref()?.capacity();
        capacity.identifiable.is_ok().then_some((other, capacity))
    });
    let (other, capacity) = known.min_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
    let (low, high) = capacity.interval.bounds()?;
    let overlap = match analysis.capacity.high.is_some_and(|above| above < low) {
        true => "",
        false => "; the two intervals overlap, so either may limit first",
    };
    let seen = analysis.capacity.highest_rate;
    let carried = Carried { value: capacity.value, low: Some(low), high: Some(high), seen };
    let at = if carried.at_least().is_some() { "" } else { "at " };
    Some(Fact::new("Next", format!("{}, {at}{}{overlap}", other.name, carried.text(""))))
}

/// The measured saturation, or the failure to reach it.
fn measured(analysis: &Analysis) -> Option<Fact> {
    let Some(measured) = &analysis.saturation else { return not_saturated(analysis) };
    let position = match measured.held {
        _ if analysis.capacity.model == MODEL_MEASURED => "",
        Some(true) => "; inside the interval of the capacity",
        Some(false) => "; OUTSIDE the interval of the capacity",
        None => "",
    };
    let text = format!(
        "{} requests/s at saturation: median of {} intervals{}, at {} % of the cap{position}",
        rate(measured.rate),
        measured.n,
        ends(Some(measured.rate_min), Some(measured.rate_max), rate),
        percent(measured.use_percent),
    );
    Some(Fact { label: "Measured", text, warns: measured.held == Some(false) })
}

fn not_saturated(analysis: &Analysis) -> Option<Fact> {
    let intended: Vec<&IntervalRow> =
        analysis.intervals.iter().filter(|row| row.standing == Standing::NotSaturated).collect();
    let used = intended.iter().filter_map(|row| Some(row.user? + row.kernel?));
    let text = format!(
        "no saturation: the {} intervals intended for it used at most {} % of the cap",
        intended.len(),
        percent(used.reduce(f64::max)?)
    );
    Some(Fact::warning("Measured", text))
}

fn capacity_sentence(capacity: &CapacityFigure) -> String {
    let reason = capacity.reason.as_deref().unwrap_or("not identifiable");
    match (capacity.value, capacity.low, capacity.high) {
        (None, ..) => reason.to_string(),
        (Some(value), Some(low), Some(high)) => {
            format!("{} requests/s{}", rate(value), ends(Some(low), Some(high), rate))
        }
        (Some(value), ..) => format!("{} requests/s, unbounded: {reason}", rate(value)),
    }
}

/// The name of the line that gives a capacity.
pub(crate) fn model_name(capacity: &CapacityFigure) -> &'static str {
    match capacity.model {
        "wakes" => "the line with wakes",
        MODEL_MEASURED => "measured saturation",
        MODEL_BUSY => "the line of a busy CPU",
        _ => "the straight line",
    }
}

fn model(capacity: &CapacityFigure) -> String {
    let name = model_name(capacity);
    let model = match capacity.model {
        "wakes" => name.to_string(),
        MODEL_MEASURED => format!("measured ({})", capacity.model_why),
        _ => format!("{name} ({})", capacity.model_why),
    };
    format!(
        "{model}, n = {}; {} interval for a future saturated interval",
        thousands(capacity.n as f64),
        level(capacity.level)
    )
}

fn reach(capacity: &CapacityFigure) -> String {
    format!(
        "the data go up to {} % of the cap and {} requests/s; capacity is {} times that rate",
        percent(capacity.reach_percent),
        rate(capacity.highest_rate),
        or_none(capacity.beyond_highest, |times| fixed(times, 2)),
    )
}

fn cost(analysis: &Analysis) -> Option<Fact> {
    let idle = analysis.modes.lines.iter().find(|line| line.mode == "idle")?;
    if !analysis.capacity_straight.identifiable {
        return None;
    }
    let mut text = format!(
        "{} µs of CPU per request; fixed {} % of {}",
        three(-idle.us_per_request),
        percent(100.0 - idle.intercept),
        analysis.modes.percent_of
    );
    if let Some((wakes, _)) = analysis.wakes_drawn() {
        text = format!(
            "{text}; with wakes: {} µs per request and {} µs per wake (t = {}), fixed {} %",
            three(wakes.us_per_request),
            three(wakes.us_per_wake),
            fixed(wakes.t, 1),
            percent(wakes.fixed_percent)
        );
    }
    Some(Fact::new("Cost", text))
}

/// The most expensive groups of a request.
fn most_expensive(costs: &CostTable) -> Option<Fact> {
    let whole = costs.whole.us_per_request;
    let rows = costs.groups.iter().map(|group| &group.row).filter(|row| row.share_percent >= 5.0);
    let part = |row: &crate::CostRow| {
        format!("{} {} ({:.0} %)", row.name, latency(row.us_per_request), row.share_percent)
    };
    let parts: Vec<String> = rows.take(4).map(part).collect();
    let text = || format!("one more request costs {}: {}", latency(whole), parts.join(", "));
    (whole > 0.0 && !parts.is_empty()).then(|| Fact::new("Request", text()))
}

fn checks(analysis: &Analysis, line: &LoadLine) -> String {
    let curvature = match &line.curvature {
        Some(curve) => format!(
            "curvature {} = {}, p = {}",
            curve.test.statistic_name,
            fixed(curve.test.statistic, 1),
            three(curve.test.p)
        ),
        None => "curvature could not be tested".to_string(),
    };
    if !analysis.cpu_limits() {
        return curvature;
    }
    let slopes = analysis.modes.lines.iter().map(|line| line.slope.abs()).fold(0.0, f64::max);
    let gap = 100.0 * analysis.modes.closure_gap.abs() / slopes.max(f64::MIN_POSITIVE);
    format!("{curvature}; kernel + user slope = - idle slope within {} %", fixed(gap, 2))
}

fn robust(analysis: &Analysis, line: &LoadLine) -> String {
    /// Set-aside intervals that are listed by number.
    const LISTED_MAX: usize = 12;
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
    if count > LISTED_MAX {
        numbers.truncate(LISTED_MAX);
        numbers.push("...".to_string());
    }
    match count {
        0 => format!("{value}; no interval set aside"),
        1 => format!("{value}; interval {} set aside", numbers[0]),
        _ => format!("{value}; {count} intervals set aside: {}", numbers.join(", ")),
    }
}

fn objective(analysis: &Analysis) -> Option<Fact> {
    let found = analysis.latency.as_ref()?;
    let objective = found.objective.as_ref()?;
    let goal = goal(objective);
    let mut text = match &objective.at {
        None => "no fitted interval has valid latencies".to_string(),
        Some(AtObjective::Met { rate: met, missed_at }) => {
            format!("{goal} up to {} requests/s; missed from {}", rate(*met), rate(*missed_at))
        }
        Some(AtObjective::NotReached { highest_rate, latency: there }) => format!(
            "{goal} at every measured rate, up to {} requests/s{}",
            rate(*highest_rate),
            // A log in milliseconds has 0 for whatever took less than one.
            if *there > 0.0 { format!(" ({} there)", latency(there * 1e3)) } else { String::new() }
        ),
        Some(AtObjective::NeverMet { lowest_rate, latency: there }) => format!(
            "{goal} at no measured rate: {} already at {} requests/s",
            latency(there * 1e3),
            rate(*lowest_rate)
        ),
    };
    let to_come = &found.to_come;
    match (&to_come.objective, &to_come.why_not) {
        (Some(MetUpTo { rate: to, low, high }), _) => text.push_str(&format!(
            "; predicted: up to {} requests/s ({} to {})",
            about(*to),
            about(*low),
            about(*high)
        )),
        (None, Some(why)) if matches!(objective.at, Some(AtObjective::NotReached { .. })) => {
            text.push_str(&format!("; beyond that nothing is predicted: {why}"));
        }
        _ => {}
    }
    Some(Fact::new("Objective", text))
}

/// The latency objective: "99 % within 1.00 ms".
pub(crate) fn goal(objective: &Objective) -> String {
    let quantile = (1e6 * objective.quantile).round() / 1e4;
    format!("{quantile} % within {}", latency(objective.ms * 1e3))
}

/// A warning if needless reads take noticeable time.
fn needless_reads(files: &Files) -> Option<Fact> {
    let found = &files.needless;
    if found.needless == 0 || found.needless_percent < NEEDLESS_PERCENT_MIN {
        return None;
    }
    let text = format!(
        "of {} files read, {} were read past their end: {} reads returned nothing, {} of them \
         directly after a short read, and took {} % of the time in calls on these files; read the \
         exact length, or treat a short read as the end",
        thousands(found.of_objects as f64),
        thousands(found.needless_objects as f64),
        thousands(found.needless as f64),
        thousands(found.after_short as f64),
        percent(found.needless_percent)
    );
    Some(Fact::warning("Files", text))
}

fn lost(analysis: &Analysis) -> Fact {
    let recorder = fixed(analysis.trial.own_cost_percent, 2);
    let recorder = format!("the recorder used {recorder} % of one CPU");
    let losses = losses(analysis);
    if losses.is_empty() {
        return Fact::new("Lost", format!("nothing; {recorder}"));
    }
    if let Some(calls) = only_a_log(analysis, &losses) {
        let calls = thousands(calls as f64);
        let text = format!(
            "nothing important; {calls} calls on files opened before the recording were not \
             followed, about one per request, as for the server's own log; {recorder}"
        );
        return Fact::new("Lost", text);
    }
    let counted: Vec<String> = losses
        .iter()
        .map(|loss| format!("{} {}", thousands(loss.count as f64), loss.kind))
        .collect();
    Fact::warning("Lost", format!("{}; {recorder}", counted.join(", ")))
}

/// The number of calls on descriptors that were open before the recording, if nothing else was lost
/// and there are no more than a log needs: one line per request. Objects are opened again.
fn only_a_log(analysis: &Analysis, losses: &[Loss]) -> Option<u64> {
    /// More than one per request, for requests in flight at the edges of the recording.
    const MARGIN: f64 = 1.02;
    /// For anything else that a server writes now and then.
    const MARGIN_CALLS: f64 = 100.0;
    let [Loss { kind, count, .. }] = losses else { return None };
    let bound = MARGIN * analysis.trial.requests + MARGIN_CALLS;
    (kind == OPEN_BEFORE && *count as f64 <= bound).then_some(*count)
}

/// The losses of the trial, and the latencies that the analysis could not use.
pub(crate) fn losses(analysis: &Analysis) -> Vec<Loss> {
    let mut all = analysis.losses.clone();
    if let Some(latency) = &analysis.latency {
        let unusable = [
            ("latencies not valid", latency.invalid, "the generator had fallen behind"),
            ("latency rows not readable", latency.unreadable, ""),
        ];
        all.extend(unusable.map(|(kind, count, note)| Loss {
            kind: kind.to_string(),
            count,
            note: note.to_string(),
        }));
    }
    all.retain(|loss| loss.count > 0);
    all
}
