//! The question `capacity`: which servers are nearest to their capacity at their peak.
//!
//! The capacity of a server is the smallest of its CPU resources that may limit it, by the line
//! from sums ([`regress::line_of`]). Disks and network cards are only in the report of a trial. Its
//! headroom is the part of the capacity that the peak leaves free. The peak is the highest mean
//! rate of a window, so that it lasted for minutes.
//!
//! Sums cannot set single intervals aside, and have no order in time. So the few servers that are
//! nearest to their capacity are fitted again from all intervals of their latest trial, by the
//! method of a report ([`details`]). Where that was done, its capacity is the server's, so that
//! report and fleet say the same.

use std::fs;
use std::path::Path;

use regress::bins::Bin;
use regress::capacity::BETWEEN_RUN_DEFAULT;
use regress::{BinLine, BinLineInput, Trust, Unfit, line_of};
use report::format::{NONE, change, fixed, percent, rate, thousands};
use report::sheet::{Rows, Sheet};
use report::{Carried, Options};
use serde::Serialize;
use trial::Trial;

use crate::home::{Asked, Error, Home, ResourceCosts, Run, ServerCosts, ServerId, WINDOW_S};

/// The capacities of all servers.
#[derive(Clone, Debug, Serialize)]
pub struct Capacities {
    /// Level of all intervals.
    pub level: f64,
    /// Number of trials.
    pub trials: u64,
    /// Number of trials without an interval of which the rate is known. Their servers are listed
    /// only if they have other trials.
    pub trials_without_rate: u64,
    /// The label whose values separate the rows.
    pub by: Option<String>,
    /// Servers by headroom, the least first. Those without a capacity are last.
    pub servers: Vec<ServerCapacity>,
}

/// The capacity of one server.
#[derive(Clone, Debug, Serialize)]
pub struct ServerCapacity {
    /// The server.
    pub server: ServerId,
    /// Value of the label that was asked for.
    pub group: Option<String>,
    /// Number of trials.
    pub trials: u64,
    /// Highest mean rate of a window, requests/s.
    pub peak_rate: f64,
    /// The CPU resource that limits it, as in a report: "hottest thread". Disks and network cards
    /// are not compared.
    pub resource: Option<String>,
    /// Its line, with the capacity.
    pub line: Option<BinLine>,
    /// Mean rate of the intervals in which the resource was saturated.
    pub saturation_measured: Option<f64>,
    /// Number of these intervals.
    pub saturated_n: f64,
    /// The part of the capacity that the peak leaves free: 1 is all of it. Below 0, the peak is
    /// above the capacity.
    pub headroom: Option<f64>,
    /// Lower end of its interval; `None` if it is not bounded.
    pub headroom_low: Option<f64>,
    /// Upper end.
    pub headroom_high: Option<f64>,
    /// Why there is no capacity.
    pub reason: Option<String>,
    /// The capacity by the full method, of the servers with details.
    pub detail: Option<Detail>,
}

/// The capacity of a server by the method of a report, from all intervals of its latest trial.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Detail {
    /// The trial.
    pub trial: u64,
    /// Its start, ns since the Unix epoch.
    pub created_ns: i64,
    /// Number of its intervals.
    pub intervals: u64,
    /// The resource that limits the server.
    pub resource: Option<String>,
    /// The capacity, requests/s.
    pub value: Option<f64>,
    /// Lower end of its interval.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// The part of it that the server's peak leaves free.
    pub headroom: Option<f64>,
    /// Why there is no capacity.
    pub reason: Option<String>,
}

/// A trial with at most so many intervals is fitted in a second: two hours at 1 s.
pub const DETAIL_INTERVALS: u64 = 7_200;
/// A trial with more intervals has no details: a day has 86,400 at 1 s.
pub const DETAIL_INTERVALS_MAX: u64 = 100_000;

/// Fits the servers nearest to their capacity again by the full method, at most `servers`, if their
/// trial has at most `intervals_max` intervals. Trials are fetched into an existing directory, and
/// removed again. A trial that cannot be fetched or fitted is not an error: its detail has the
/// reason.
///
/// # Errors
/// Those of the home, if it cannot list its trials.
pub fn details(
    home: &dyn Home,
    asked: &Asked,
    answer: &mut Capacities,
    servers: usize,
    intervals_max: u64,
    directory: &Path,
) -> Result<(), Error> {
    let level = answer.level;
    for one in answer.servers.iter_mut().take(servers) {
        let server = one.server.to_string();
        let mut runs = home.runs(&Asked { server: Some(server), ..asked.clone() })?;
        runs.retain(|run| run.server == one.server && asked.group(run) == Some(one.group.clone()));
        let Some(latest) = runs.into_iter().max_by_key(|run| (run.end_ns, run.trial)) else {
            continue;
        };
        let file = directory.join(format!("{:016x}.trial", latest.trial));
        let found = match latest.intervals {
            intervals if intervals <= intervals_max => detail(home, &latest, &file, level),
            DETAIL_INTERVALS_MAX.. => Err("too long; fetch the trial and report on it".to_string()),
            _ => Err("long; to fit it too: --details N".to_string()),
        };
        let mut detail =
            found.unwrap_or_else(|reason| Detail { reason: Some(reason), ..Detail::default() });
        let _ = fs::remove_file(&file);
        detail.trial = latest.trial;
        detail.created_ns = latest.created_ns;
        detail.intervals = latest.intervals;
        detail.headroom = detail.value.map(|value| 1.0 - one.peak_rate / value);
        if let Some(value) = detail.value {
            let headroom = |capacity: f64| 1.0 - one.peak_rate / capacity;
            let bounded = |end: Option<f64>| end.filter(|end| *end > 0.0).map(headroom);
            one.headroom = Some(headroom(value));
            (one.headroom_low, one.headroom_high) = (bounded(detail.low), bounded(detail.high));
        }
        one.detail = Some(detail);
    }
    least_headroom_first(&mut answer.servers);
    Ok(())
}

fn least_headroom_first(servers: &mut [ServerCapacity]) {
    servers.sort_by(|a, b| {
        let least = |one: &ServerCapacity| one.headroom.unwrap_or(f64::INFINITY);
        let name = |one: &ServerCapacity| (one.server.clone(), one.group.clone());
        least(a).total_cmp(&least(b)).then_with(|| name(a).cmp(&name(b)))
    });
}

impl ServerCapacity {
    /// The capacity with the ends of its interval: by the full method where that was done.
    #[must_use]
    pub fn figure(&self) -> [Option<f64>; 3] {
        match (&self.detail, &self.line) {
            (Some(Detail { value: Some(value), low, high, .. }), _) => [Some(*value), *low, *high],
            (_, Some(line)) => [line.value, line.low, line.high],
            _ => [None; 3],
        }
    }
}

fn detail(home: &dyn Home, run: &Run, file: &Path, level: f64) -> Result<Detail, String> {
    home.fetch(run, file).map_err(|error| error.to_string())?;
    let trial = Trial::open_intervals(file).map_err(|error| error.to_string())?;
    let options = Options { level, ..Options::default() };
    let found = report::analyse(&trial, &options).map_err(|error| error.to_string())?.capacity;
    Ok(Detail {
        resource: Some(found.resource_name),
        value: found.value,
        low: found.low,
        high: found.high,
        reason: found.reason,
        ..Detail::default()
    })
}

/// The capacities of the servers of a home.
///
/// # Errors
/// Those of the home. A server whose line cannot be fitted is not an error.
pub fn capacity(home: &dyn Home, asked: &Asked, level: f64) -> Result<Capacities, Error> {
    let costs = home.costs(asked)?;
    let mut servers: Vec<ServerCapacity> = costs.iter().map(|one| of_server(one, level)).collect();
    least_headroom_first(&mut servers);
    let trials: u64 = costs.iter().map(|one| one.trials).sum();
    let trials_without_rate = (home.runs(asked)?.len() as u64).saturating_sub(trials);
    Ok(Capacities { level, trials, trials_without_rate, by: asked.by.clone(), servers })
}

/// The line of one resource of a server.
///
/// # Errors
/// Those of [`line_of`].
pub fn line(resource: &ResourceCosts, level: f64) -> Result<BinLine, Unfit> {
    line_of(&BinLineInput {
        bins: &resource.bins,
        cap: resource.cap,
        wakes_known: resource.wakes_known,
        processes_alternate: resource.processes_alternate,
        marginal: resource.marginal,
        level,
        between_run: BETWEEN_RUN_DEFAULT,
    })
}

/// The capacity of one server.
#[must_use]
pub fn of_server(costs: &ServerCosts, level: f64) -> ServerCapacity {
    let limiting = costs.resources.iter().filter(|resource| resource.may_limit);
    let lines: Vec<_> = limiting.map(|resource| (resource, line(resource, level))).collect();
    let value = |line: &Result<BinLine, Unfit>| line.as_ref().ok().and_then(|line| line.value);
    let tightest = lines
        .iter()
        .filter(|(_, line)| value(line).is_some())
        .min_by(|(_, a), (_, b)| value(a).unwrap_or(0.0).total_cmp(&value(b).unwrap_or(0.0)));
    // Without a capacity, the resource with most data gives the reason.
    let intervals = |bins: &[(i32, Bin)]| bins.iter().map(|(_, bin)| bin.n).sum::<f64>();
    let most =
        || lines.iter().max_by(|(a, _), (b, _)| intervals(&a.bins).total_cmp(&intervals(&b.bins)));
    let mut found = ServerCapacity {
        server: costs.server.clone(),
        group: costs.group.clone(),
        trials: costs.trials,
        peak_rate: costs.peak_rate,
        resource: None,
        line: None,
        saturation_measured: None,
        saturated_n: 0.0,
        headroom: None,
        headroom_low: None,
        headroom_high: None,
        reason: None,
        detail: None,
    };
    let Some((resource, line)) = tightest.or_else(most) else {
        found.reason = Some("no interval has both a rate and CPU time of the server".to_string());
        return found;
    };
    found.resource = Some(resource.kind.clone());
    found.saturated_n = resource.saturated_n;
    found.saturation_measured =
        (resource.saturated_n > 0.0).then(|| resource.saturated_x / resource.saturated_n);
    match line {
        Err(unfit) => found.reason = Some(unfit.to_string()),
        Ok(line) => {
            let headroom = |capacity: f64| 1.0 - costs.peak_rate / capacity;
            let bounded = |end: Option<f64>| end.filter(|end| *end > 0.0).map(headroom);
            found.headroom = line.value.map(headroom);
            found.headroom_low = bounded(line.low);
            found.headroom_high = bounded(line.high);
            found.reason.clone_from(&line.reason);
            found.line = Some(line.clone());
        }
    }
    found
}

/// The answer as text.
#[must_use]
pub fn sheet(answer: &Capacities) -> Sheet {
    let servers = answer.servers.len();
    let with_line = || answer.servers.iter().filter_map(|one| Some((one, one.line.as_ref()?)));
    let intervals: f64 = with_line().map(|(_, line)| line.n).sum();
    let trials: u64 = with_line().map(|(one, _)| one.trials).sum();
    let mut facts = vec![("Answer".to_string(), sentence(answer))];
    facts.push((
        "Data".to_string(),
        format!(
            "lines through {} intervals of {} trials, by sums over {} min",
            thousands(intervals),
            thousands(trials as f64),
            WINDOW_S / 60
        ),
    ));
    facts.extend(left_out(answer));
    Sheet {
        title: format!("Capacity of {servers} servers, the least headroom first"),
        facts,
        tables: [headrooms(answer), resources(answer)]
            .into_iter()
            .chain(detailed(answer))
            .collect(),
    }
}

/// Which server is nearest to its capacity.
fn sentence(answer: &Capacities) -> String {
    let nearest = answer.servers.first().and_then(|one| Some((one, one.headroom?)));
    let Some((one, headroom)) = nearest else {
        return match answer.servers.first() {
            Some(one) => format!("no capacity is known; {}: {}", one.server, remark(one)),
            None => "there are no servers".to_string(),
        };
    };
    let [value, low, high] = one.figure();
    let (server, peak) = (&one.server, rate(one.peak_rate));
    let carried = Carried { value: value.unwrap_or(0.0), low, high, seen: one.peak_rate };
    let text = carried.text("");
    match carried.at_least() {
        Some(_) => format!(
            "{server} is nearest to its capacity, as far as is known: its peak was {peak}/s, and \
             it carries {text}"
        ),
        None => format!(
            "{server} is nearest to its capacity: its peak of {peak}/s is {:.0} % of {text}",
            100.0 * (1.0 - headroom),
        ),
    }
}

/// What is not in the answer: the name of a fact, and its text.
#[must_use]
pub fn left_out(answer: &Capacities) -> Vec<(String, String)> {
    let servers = answer.servers.len();
    let known = answer.servers.iter().filter(|one| one.headroom.is_some()).count();
    let mut facts = Vec::new();
    let saturated: f64 = answer.servers.iter().map(|one| one.saturated_n).sum();
    if saturated > 0.0 {
        facts.push((
            "Saturated".to_string(),
            format!("{} intervals, not in the lines: see the remarks", thousands(saturated)),
        ));
    }
    if answer.trials_without_rate > 0 {
        let without = thousands(answer.trials_without_rate as f64);
        facts.push((
            "Left out".to_string(),
            format!("trials without an interval of which the rate is known: {without}"),
        ));
    }
    if known < servers {
        let left = servers - known;
        facts.push(("Unknown".to_string(), format!("{left} of {servers} servers, listed last")));
    }
    facts
}

fn headrooms(answer: &Capacities) -> Rows {
    let columns = ["headroom %", "low", "high", "peak/s", "capacity/s", "low", "high"];
    let note = format!(
        "The peak is the highest mean of {} min. The headroom is the part of the capacity that it \
         leaves free. The intervals ({} %) are for a saturated interval of a later run.",
        WINDOW_S / 60,
        percent(100.0 * answer.level).trim_end_matches(".0"),
    );
    table(answer, "Headroom", &columns, note, |one| {
        let share = |value: Option<f64>| or_none(value.map(|value| 100.0 * value), whole);
        let headrooms = [one.headroom, one.headroom_low, one.headroom_high].map(share);
        let figures = one.figure().map(|value| or_none(value, rate));
        headrooms.into_iter().chain([rate(one.peak_rate)]).chain(figures).collect()
    })
}

fn resources(answer: &Capacities) -> Rows {
    let columns = ["<limited by", "<line", "intervals", "~remark"];
    let note = "The lines are those of the report of a trial, fitted to sums. Only CPU resources \
                are compared: a disk or a network card can limit a server earlier."
        .to_string();
    table(answer, "How it is known", &columns, note, |one| {
        let line = one.line.as_ref();
        vec![
            one.resource.clone().unwrap_or_else(|| NONE.to_string()),
            line.map_or(NONE, |line| line.model.label()).to_string(),
            or_none(line.map(|line| line.n), thousands),
            remark(one),
        ]
    })
}

/// The servers with details. Their rows show what the sums gave, too.
fn detailed(answer: &Capacities) -> Option<Rows> {
    let servers: Vec<ServerCapacity> =
        answer.servers.iter().filter(|one| one.detail.is_some()).cloned().collect();
    if servers.is_empty() {
        return None;
    }
    let columns =
        ["headroom %", "capacity/s", "low", "high", "by sums/s", "<limited by", "intervals"];
    let note = "Fitted from all intervals of the server's latest trial, as by plimsoll report. \
                Where it has a capacity, that is the capacity above."
        .to_string();
    let few = Capacities { servers, ..answer.clone() };
    Some(table(&few, "By the full method, of the latest trial", &columns, note, |one| {
        let detail = one.detail.clone().unwrap_or_default();
        vec![
            or_none(detail.headroom.map(|value| 100.0 * value), whole),
            or_none(detail.value, rate),
            or_none(detail.low, rate),
            or_none(detail.high, rate),
            or_none(one.line.as_ref().and_then(|line| line.value), rate),
            detail.reason.or(detail.resource).unwrap_or_default(),
            thousands(detail.intervals as f64),
        ]
    }))
}

/// A table with a row for each server.
fn table(
    answer: &Capacities,
    title: &str,
    columns: &[&str],
    note: String,
    cells: impl Fn(&ServerCapacity) -> Vec<String>,
) -> Rows {
    let by = answer.by.iter().map(|by| format!("<{by}"));
    let first = ["<server".to_string()].into_iter().chain(by);
    let row = |one: &ServerCapacity| {
        let group = answer.by.iter().map(|_| one.group.clone().unwrap_or_default());
        [one.server.to_string()].into_iter().chain(group).chain(cells(one)).collect()
    };
    Rows {
        title: title.to_string(),
        columns: first.chain(columns.iter().map(ToString::to_string)).collect(),
        rows: answer.servers.iter().map(row).collect(),
        note,
    }
}

fn or_none(value: Option<f64>, written: fn(f64) -> String) -> String {
    value.map_or_else(|| NONE.to_string(), written)
}

fn whole(value: f64) -> String {
    fixed(value, 0)
}

/// What to know about the capacity of a server; empty if there is nothing.
#[must_use]
pub fn remark(one: &ServerCapacity) -> String {
    let by_report = one.detail.as_ref().is_some_and(|detail| detail.value.is_some());
    let reason = one.reason.as_ref().filter(|_| !by_report);
    let mut remarks: Vec<String> = reason.into_iter().cloned().collect();
    if let (false, Some(Trust::Unreliable { statistic, why }), None) =
        (by_report, one.line.as_ref().map(|line| &line.trusted), reason)
    {
        remarks.push(format!("unreliable: {statistic}: {why}"));
    }
    if let Some(measured) = one.saturation_measured {
        let [value, ..] = one.figure();
        let differs = value.map(|value| format!(", {} %", change(measured / value)));
        remarks.push(format!(
            "measured saturation {} ({} intervals{})",
            rate(measured),
            thousands(one.saturated_n),
            differs.unwrap_or_default()
        ));
    }
    remarks.join("; ")
}
