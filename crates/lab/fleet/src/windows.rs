//! A trial as sums: what both homes keep of it.
//!
//! A [`Window`] has the sums of one resource over 300 s of one trial in one bin of the rate. All
//! questions need only sums of such rows. Rows of different trials are never combined before they
//! are added up, so that rows of a trial can be replaced by the same rows.

use std::collections::{BTreeMap, HashMap};

use regress::Marginal;
use regress::bins::{Bin, bin_of, close_window};
use report::{ResourceUses, Standing, frame_label};
use serde::{Deserialize, Serialize};
use trial::profile::Owner;
use trial::{Interval, Trial, stable_hash};

use crate::home::{Label, Run, ServerId, WINDOW_S};

/// The kind of rows that have the window's rate instead of a resource. Each window has one: all
/// intervals with a valid rate, saturated ones too. The sums are `n`, `s` and `x`, the bin is 0,
/// and nothing else is set.
pub const KIND_RATE: &str = "rate";

/// A window with a shorter length, seconds, has a peak only if no window of the server (or of the
/// hour) is longer: the mean of few seconds is not a peak that lasts.
pub const PEAK_MIN_S: f64 = 60.0;

/// Sums over the intervals of a trial that begin in one window and have their rate in one bin. The
/// key is `(start_s, kind, bin)`.
///
/// A window whose trial is still being recorded changes: an interval that is added can move the
/// window's products to another bin. So rows are final only if the window is over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Start, seconds since the Unix epoch, a multiple of [`WINDOW_S`].
    pub start_s: i64,
    /// Kind of the resource, as in a report, or [`KIND_RATE`].
    pub kind: String,
    /// Cap of the resource in this trial, CPU seconds per second.
    pub cap: f64,
    /// Whether the resource can limit the server.
    pub may_limit: bool,
    /// Whether the wakes are known in all intervals of the sums.
    pub wakes_known: bool,
    /// Whether many processes take turns on the resource.
    pub processes_alternate: bool,
    /// What a request costs at saturation by turns and busy periods of this trial, if known.
    pub marginal: Option<Marginal>,
    /// The bin, see [`regress::bins`].
    pub bin: i32,
    /// Sums of the intervals that belong to a line, and of the window in the bin of its mean rate.
    pub sums: Bin,
    /// Number of saturated intervals. They are not in the sums.
    pub saturated_n: f64,
    /// Sum of their rates.
    pub saturated_x: f64,
}

/// CPU time of one procedure in one window. The key is `(start_s, procedure)`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcedureWindow {
    /// Start of the window.
    pub start_s: i64,
    /// Name of the procedure, as in a flame graph.
    pub procedure: String,
    /// CPU time of the server in it, without its callees, seconds.
    pub cpu_s: f64,
    /// Requests in the window: the same in all of its rows.
    pub requests: f64,
}

/// CPU time of one stack in one window. The key is `(start_s, stack)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StackWindow {
    /// Start of the window.
    pub start_s: i64,
    /// The stack's number in [`Profile::frames`].
    pub stack: u64,
    /// CPU time, seconds.
    pub cpu_s: f64,
}

/// The samples of the server's CPU time in intervals with a valid rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// By procedure. Each window with samples has at least one row.
    pub procedures: Vec<ProcedureWindow>,
    /// By stack.
    pub stacks: Vec<StackWindow>,
    /// The names of the procedures of each stack, the outermost first. The key is a hash of the
    /// names: the same stack has the same number in all trials.
    pub frames: BTreeMap<u64, Vec<String>>,
}

/// The identity of a trial.
#[must_use]
pub fn run(trial: &Trial) -> Run {
    let manifest = trial.manifest();
    let labels = manifest.labels.iter();
    let labels = labels.map(|(name, value)| Label { name: name.clone(), value: value.clone() });
    let end = |interval: &Interval| interval.start_ns + interval.length_ns;
    Run {
        trial: manifest.identity(),
        server: ServerId {
            host: manifest.host_name().to_owned(),
            server: manifest.server_name().to_owned(),
        },
        version: manifest.server.version.clone(),
        labels: labels.collect(),
        created_ns: manifest.created_ns,
        end_ns: trial.intervals().last().map_or(manifest.created_ns, end),
        intervals: trial.intervals().len() as u64,
    }
}

/// The start of the window of an instant, seconds since the Unix epoch.
#[must_use]
pub fn window_of(start_ns: i64) -> i64 {
    start_ns.div_euclid(1_000_000_000 * WINDOW_S) * WINDOW_S
}

/// The windows of a trial, ordered by their key.
#[must_use]
pub fn windows(trial: &Trial) -> Vec<Window> {
    let mut all: Vec<Window> =
        report::uses(trial).iter().flat_map(|one| of_resource(one, trial)).collect();
    all.extend(rates(trial));
    all.sort_by(|a, b| (a.start_s, &a.kind, a.bin).cmp(&(b.start_s, &b.kind, b.bin)));
    all
}

/// What is known of a resource in one window.
#[derive(Default)]
struct Sums {
    bins: BTreeMap<i32, Bin>,
    /// Number of saturated intervals and the sum of their rates.
    saturated: BTreeMap<i32, (f64, f64)>,
    wakes_missing: bool,
}

fn of_resource(resource: &ResourceUses, trial: &Trial) -> Vec<Window> {
    let mut by_window: BTreeMap<i64, Sums> = BTreeMap::new();
    // The interval before, if it is in the sums.
    let mut before: Option<(i64, f64, Bin)> = None;
    for (interval, used) in trial.intervals().iter().zip(&resource.each) {
        let neighbour = before.take();
        let (rate, cost, wakes) = (interval.rate(), used.cost, used.wakes.unwrap_or(0.0));
        if ![rate, cost, wakes].iter().all(|value| value.is_finite() && *value >= 0.0) {
            continue;
        }
        let start_s = window_of(interval.start_ns);
        let window = by_window.entry(start_s).or_default();
        match used.standing {
            Standing::Saturation => {
                let saturated = window.saturated.entry(bin_of(rate)).or_default();
                *saturated = (saturated.0 + 1.0, saturated.1 + rate);
            }
            standing if standing.is_fitted() => {
                let (length, one) = (interval.length_ns as f64 / 1e9, Bin::of(rate, cost, wakes));
                let bin = window.bins.entry(bin_of(rate)).or_default();
                *bin = *bin + one.times(length);
                if let Some((_, other, was)) = neighbour.filter(|(start, ..)| *start == start_s) {
                    *bin = *bin + Bin::pair(&was, &one).times(0.5 * (other + length));
                }
                before = Some((start_s, length, one));
                window.wakes_missing |= used.wakes.is_none();
            }
            _ => {}
        }
    }
    let rows = by_window.into_iter().flat_map(|(start_s, mut window)| {
        close_window(&mut window.bins);
        for bin in window.saturated.keys() {
            window.bins.entry(*bin).or_default();
        }
        let Sums { bins, saturated, wakes_missing } = window;
        bins.into_iter().map(move |(bin, sums)| {
            let (saturated_n, saturated_x) = saturated.get(&bin).copied().unwrap_or_default();
            Window {
                start_s,
                kind: resource.kind.label().to_string(),
                cap: resource.cap,
                may_limit: resource.may_limit,
                wakes_known: !wakes_missing,
                processes_alternate: resource.processes_alternate,
                marginal: resource.marginal,
                bin,
                sums,
                saturated_n,
                saturated_x,
            }
        })
    });
    rows.collect()
}

fn rates(trial: &Trial) -> impl Iterator<Item = Window> {
    let mut by_window: BTreeMap<i64, Bin> = BTreeMap::new();
    for interval in trial.intervals().iter().filter(|interval| interval.rate_valid) {
        if interval.length_ns > 0 && interval.requests.is_finite() {
            let sums = by_window.entry(window_of(interval.start_ns)).or_default();
            sums.n += 1.0;
            sums.s += interval.length_ns as f64 / 1e9;
            sums.x += interval.requests;
        }
    }
    by_window.into_iter().map(|(start_s, sums)| Window {
        start_s,
        kind: KIND_RATE.to_string(),
        sums,
        ..Window::default()
    })
}

/// The profile of a trial, empty if it has none.
#[must_use]
pub fn profile(trial: &Trial) -> Profile {
    let intervals = trial.intervals();
    let mut requests: HashMap<i64, f64> = HashMap::new();
    let mut window_of_interval: HashMap<u64, i64> = HashMap::new();
    for interval in intervals.iter().filter(|interval| interval.rate_valid) {
        let window = window_of(interval.start_ns);
        window_of_interval.insert(interval.index, window);
        *requests.entry(window).or_default() += interval.requests;
    }
    let mut by_stack: BTreeMap<(i64, u32), i64> = BTreeMap::new();
    for row in trial.samples().iter().filter(|row| row.owner == Owner::Server) {
        if let Some(window) = window_of_interval.get(&row.interval) {
            *by_stack.entry((*window, row.stack)).or_default() += row.ns;
        }
    }
    let mut profile = Profile::default();
    let mut numbers: HashMap<u32, (u64, String)> = HashMap::new();
    let mut procedures: BTreeMap<(i64, String), f64> = BTreeMap::new();
    let mut stacks: BTreeMap<(i64, u64), f64> = BTreeMap::new();
    for ((start_s, stack), ns) in by_stack {
        let (number, leaf) = numbers.entry(stack).or_insert_with(|| {
            let mut names: Vec<String> = trial.stack_frames(stack).map(frame_label).collect();
            names.reverse();
            let leaf = names.last().map_or("unknown", |name| name.as_str()).to_string();
            let number = stable_hash(names.join("\0").as_bytes());
            profile.frames.insert(number, names);
            (number, leaf)
        });
        let cpu_s = ns as f64 / 1e9;
        *procedures.entry((start_s, leaf.clone())).or_default() += cpu_s;
        *stacks.entry((start_s, *number)).or_default() += cpu_s;
    }
    let requests = |start_s: i64| requests.get(&start_s).copied().unwrap_or_default();
    profile.procedures = procedures
        .into_iter()
        .map(|((start_s, procedure), cpu_s)| ProcedureWindow {
            start_s,
            procedure,
            cpu_s,
            requests: requests(start_s),
        })
        .collect();
    profile.stacks = stacks
        .into_iter()
        .map(|((start_s, stack), cpu_s)| StackWindow { start_s, stack, cpu_s })
        .collect();
    profile
}
