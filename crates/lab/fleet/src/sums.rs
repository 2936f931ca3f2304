//! Adds up the rows of trials by server and group, as a home returns them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use regress::bins::Bin;
use report::ResourceKind;

use crate::home::{
    Asked, GroupStacks, Hour, Label, ProcedureSums, ResourceCosts, Run, ServerCosts, ServerHours,
    ServerId, ServerProcedures,
};
use crate::windows::{KIND_RATE, PEAK_MIN_S, ProcedureWindow, Profile, Window, window_of};

const HOUR_S: i64 = 3_600;

/// A server, or its trials with one value of a label.
type Key = (ServerId, Option<String>);

impl Asked {
    /// Whether a trial is meant, and its group.
    #[must_use]
    pub fn group(&self, run: &Run) -> Option<Option<String>> {
        let value = |name: &String| run.labels.iter().find(|label| label.name == *name);
        let has = |label: &Label| run.labels.contains(label);
        let named = |text: &String| run.server.to_string().contains(text.as_str());
        let overlaps = |(from, to): (i64, i64)| {
            window_of(run.created_ns) < to && from <= window_of(run.end_ns)
        };
        let meant = self.labels.iter().all(has)
            && self.server.as_ref().is_none_or(named)
            && self.span.is_none_or(overlaps);
        match &self.by {
            _ if !meant => None,
            None => Some(None),
            Some(by) => Some(Some(value(by)?.value.clone())),
        }
    }

    /// Whether a window is meant.
    #[must_use]
    pub fn is_in_span(&self, start_s: i64) -> bool {
        self.span.is_none_or(|(from, to)| (from..to).contains(&start_s))
    }
}

/// The length and the requests of windows, and their highest rates.
#[derive(Clone, Copy, Default)]
struct Rates {
    seconds: f64,
    requests: f64,
    peak: f64,
    /// The highest rate of the windows that are too short.
    peak_of_short: f64,
}

impl Rates {
    fn add(&mut self, sums: &Bin) {
        self.seconds += sums.s;
        self.requests += sums.x;
        let peak = if sums.s >= PEAK_MIN_S { &mut self.peak } else { &mut self.peak_of_short };
        *peak = peak.max(sums.x / sums.s);
    }

    fn peak_rate(&self) -> f64 {
        if self.peak > 0.0 { self.peak } else { self.peak_of_short }
    }
}

/// What is known of a resource of a server from the windows with the same cap.
#[derive(Clone, Debug, Default)]
pub(crate) struct OneCap {
    /// Start of the trial and of the window that the terms are of, seconds since the Unix epoch:
    /// the latest.
    pub(crate) latest: (i64, i64),
    pub(crate) costs: ResourceCosts,
}

/// The resources of a server. Those that its latest trial lacks do not limit it any more, so they
/// are not among them. Saturated intervals count only under the cap in force.
pub(crate) fn resources(parts: Vec<OneCap>) -> Vec<ResourceCosts> {
    let start_of_trial = |part: &OneCap| part.latest.0;
    let latest = parts.iter().map(start_of_trial).max();
    let mut kinds: BTreeMap<String, Vec<OneCap>> = BTreeMap::new();
    for part in parts {
        kinds.entry(part.costs.kind.clone()).or_default().push(part);
    }
    kinds.retain(|_, parts| parts.iter().map(start_of_trial).max() == latest);
    kinds.into_values().filter_map(one_resource).collect()
}

fn one_resource(parts: Vec<OneCap>) -> Option<ResourceCosts> {
    let terms = &parts.iter().max_by_key(|part| part.latest)?.costs;
    // How many threads work depends on the load of a trial. A quiet one has too few.
    let cap = match terms.kind == ResourceKind::Server.label() {
        true => parts.iter().map(|part| part.costs.cap).fold(0.0, f64::max),
        false => terms.cap,
    };
    let mut bins: BTreeMap<i32, Bin> = BTreeMap::new();
    for (key, sums) in parts.iter().flat_map(|part| &part.costs.bins) {
        let bin = bins.entry(*key).or_default();
        *bin = *bin + *sums;
    }
    let in_force = || parts.iter().map(|part| &part.costs).filter(|costs| costs.cap == cap);
    Some(ResourceCosts {
        kind: terms.kind.clone(),
        cap,
        wakes_known: parts.iter().all(|part| part.costs.wakes_known),
        bins: bins.into_iter().filter(|(_, bin)| *bin != Bin::default()).collect(),
        saturated_n: in_force().map(|costs| costs.saturated_n).sum(),
        saturated_x: in_force().map(|costs| costs.saturated_x).sum(),
        ..*terms
    })
}

/// The sums of a resource from windows with the same cap.
#[derive(Default)]
struct Rows {
    one: OneCap,
    bins: BTreeMap<i32, Bin>,
}

impl Rows {
    fn add(&mut self, run: &Run, row: &Window) {
        let OneCap { latest, costs } = &mut self.one;
        let at = (run.created_ns.div_euclid(1_000_000_000), row.start_s);
        let first = costs.kind.is_empty();
        if first || at >= *latest {
            *latest = at;
            costs.may_limit = row.may_limit;
            costs.processes_alternate = row.processes_alternate;
            costs.marginal = row.marginal;
        }
        if first {
            costs.kind.clone_from(&row.kind);
            costs.cap = row.cap;
        }
        costs.wakes_known = row.wakes_known && (first || costs.wakes_known);
        costs.saturated_n += row.saturated_n;
        costs.saturated_x += row.saturated_x;
        let bin = self.bins.entry(row.bin).or_default();
        *bin = *bin + row.sums;
    }

    fn done(self) -> OneCap {
        let costs = ResourceCosts { bins: self.bins.into_iter().collect(), ..self.one.costs };
        OneCap { costs, ..self.one }
    }
}

#[derive(Default)]
struct OneServer {
    trials: BTreeSet<u64>,
    rates: Rates,
    /// By kind and bits of the cap.
    resources: BTreeMap<(String, u64), Rows>,
}

/// What [`crate::Home::costs`] returns for these trials.
pub fn costs<'t>(
    trials: impl IntoIterator<Item = (&'t Run, &'t [Window])>,
    asked: &Asked,
) -> Vec<ServerCosts> {
    let mut servers: BTreeMap<Key, OneServer> = BTreeMap::new();
    for (run, windows) in trials {
        let Some(group) = asked.group(run) else { continue };
        for row in windows.iter().filter(|row| asked.is_in_span(row.start_s)) {
            let key = (run.server.clone(), group.clone());
            let server = servers.entry(key).or_default();
            server.trials.insert(run.trial);
            match row.kind.as_str() {
                KIND_RATE => server.rates.add(&row.sums),
                kind => {
                    let key = (kind.to_string(), row.cap.to_bits());
                    server.resources.entry(key).or_default().add(run, row);
                }
            }
        }
    }
    servers
        .into_iter()
        .map(|((server, group), one)| ServerCosts {
            server,
            group,
            trials: one.trials.len() as u64,
            peak_rate: one.rates.peak_rate(),
            resources: resources(one.resources.into_values().map(Rows::done).collect()),
        })
        .collect()
}

/// What [`crate::Home::hours`] returns for these trials.
pub fn hours<'t>(
    trials: impl IntoIterator<Item = (&'t Run, &'t [Window])>,
    asked: &Asked,
) -> Vec<ServerHours> {
    let mut servers: BTreeMap<Key, BTreeMap<i64, Rates>> = BTreeMap::new();
    for (run, windows) in trials {
        let Some(group) = asked.group(run) else { continue };
        let rates = windows.iter().filter(|row| row.kind == KIND_RATE);
        for row in rates.filter(|row| asked.is_in_span(row.start_s)) {
            let hours = servers.entry((run.server.clone(), group.clone())).or_default();
            hours.entry(row.start_s.div_euclid(HOUR_S) * HOUR_S).or_default().add(&row.sums);
        }
    }
    let hour = |(start_s, rates): (i64, Rates)| Hour {
        start_s,
        peak_rate: rates.peak_rate(),
        mean_rate: rates.requests / rates.seconds,
    };
    servers
        .into_iter()
        .map(|((server, group), hours)| ServerHours {
            server,
            group,
            hours: hours.into_iter().map(hour).collect(),
        })
        .collect()
}

/// Adds up what [`crate::Home::procedures`] returns, trial by trial.
#[derive(Default)]
pub struct Procedures {
    servers: BTreeMap<Key, (ServerProcedures, BTreeMap<String, ProcedureSums>)>,
}

impl Procedures {
    /// Adds a trial, if it is meant.
    pub fn add(&mut self, run: &Run, profile: &Profile, asked: &Asked) {
        let Some(group) = asked.group(run) else { return };
        for rows in windows_of(profile, asked) {
            let key = (run.server.clone(), group.clone());
            let (of_server, of_procedures) = self.servers.entry(key).or_default();
            let requests = rows[0].requests;
            of_server.windows += 1.0;
            of_server.requests += requests;
            of_server.requests_squared += requests * requests;
            for row in rows {
                let sums = of_procedures.entry(row.procedure.clone()).or_default();
                sums.cpu_s += row.cpu_s;
                sums.cpu_s_squared += row.cpu_s * row.cpu_s;
                sums.cpu_s_requests += row.cpu_s * requests;
            }
        }
    }

    /// The answer.
    #[must_use]
    pub fn done(self) -> Vec<ServerProcedures> {
        let named = |(procedure, sums)| ProcedureSums { procedure, ..sums };
        self.servers
            .into_iter()
            .map(|((server, group), (sums, procedures))| ServerProcedures {
                server,
                group,
                procedures: procedures.into_iter().map(named).collect(),
                ..sums
            })
            .collect()
    }
}

/// The frames and the CPU time of each stack.
type Spent = HashMap<u64, (Vec<String>, f64)>;

/// Adds up what [`crate::Home::stacks`] returns, trial by trial.
#[derive(Default)]
pub struct Stacks {
    /// With the requests of each group.
    groups: BTreeMap<Option<String>, (f64, Spent)>,
}

impl Stacks {
    /// Adds a trial, if it is meant.
    pub fn add(&mut self, run: &Run, profile: &Profile, asked: &Asked) {
        let Some(group) = asked.group(run) else { return };
        let (requests, stacks) = self.groups.entry(group).or_default();
        *requests += windows_of(profile, asked).map(|rows| rows[0].requests).sum::<f64>();
        for row in profile.stacks.iter().filter(|row| asked.is_in_span(row.start_s)) {
            if let Some(frames) = profile.frames.get(&row.stack) {
                stacks.entry(row.stack).or_insert_with(|| (frames.clone(), 0.0)).1 += row.cpu_s;
            }
        }
    }

    /// The answer.
    #[must_use]
    pub fn done(self) -> Vec<GroupStacks> {
        self.groups
            .into_iter()
            .filter(|(_, (_, stacks))| !stacks.is_empty())
            .map(|(group, (requests, stacks))| {
                let mut stacks: Vec<(Vec<String>, f64)> = stacks.into_values().collect();
                stacks.sort_by(|a, b| a.0.cmp(&b.0));
                GroupStacks { group, requests, stacks }
            })
            .collect()
    }
}

/// The rows of each window in the span. Each has at least one.
fn windows_of<'p>(
    profile: &'p Profile,
    asked: &Asked,
) -> impl Iterator<Item = &'p [ProcedureWindow]> {
    let windows = profile.procedures.chunk_by(|a, b| a.start_s == b.start_s);
    windows.filter(|rows| asked.is_in_span(rows[0].start_s))
}
