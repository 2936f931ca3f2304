//! A made-up fleet, to try and to test the questions: the right answers are known.
//!
//! Each server has a daily and weekly load, a cost of requests that falls as it gets busier (see
//! [`regress::busy`]), a deviation from its twins, a deviation of each run (a server restarts for a
//! release), and noise that stays for hours. Some servers have a backup at night. [`Plan`] has the
//! size of each effect, and the planted changes.
//!
//! The fleet is a [`Home`] in memory, for tests over many seeds, and it can be written as a folder
//! of trials ([`Fleet::write`]). The same seed gives the same fleet.

mod write;

use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::path::Path;

use regress::Rng;
use regress::bins::{Bin, bin_of};

use crate::home::{
    Asked, Error, GroupStacks, Home, Hour, Label, ProcedureSums, ResourceCosts, Run, ServerCosts,
    ServerHours, ServerId, ServerProcedures, WINDOW_S,
};

/// Seconds of a day.
const DAY_S: i64 = 86_400;
/// What has been planted runs out so many days after the end.
pub const RUNS_OUT_DAYS: f64 = 30.0;
/// The load is known for so many days after the end, to know when a group really runs out.
pub const LATER_DAYS: u32 = 120;
/// Labels of the releases.
pub const RELEASES: [&str; 2] = ["41", "42"];
/// The kinds of servers: name, group, share of the fleet, and CPU seconds of a request without
/// wakes. The last group grows.
const KINDS: [(&str, &str, f64, f64); 3] = [
    ("nginx", "web", 0.5, 20e-6),
    ("squid", "cache", 0.3, 60e-6),
    ("varnishd", "edge", 0.2, 12e-6),
];
/// CPUs of each machine.
const CPUS: u32 = 4;
/// The fixed use of a server.
const FIXED: f64 = 0.002;
/// Use above which an interval is saturated.
const SATURATED: f64 = 0.97;
/// Load of the weekdays, from Monday.
const WEEK: [f64; 7] = [1.0, 1.02, 1.03, 1.0, 0.97, 0.8, 0.75];
/// Samples per second of a busy CPU.
const HZ: f64 = 99.0;
/// Procedures, the outermost first, and their shares of the CPU time. The release changes the
/// first.
const STACKS: [(&[&str], f64); 6] = [
    (&["main", "event_loop", "process_request", "parse_headers"], 0.18),
    (&["main", "event_loop", "process_request", "lookup"], 0.12),
    (&["main", "event_loop", "process_request", "compress"], 0.20),
    (&["main", "event_loop", "write_response", "writev"], 0.22),
    (&["main", "event_loop", "read_request", "recv"], 0.16),
    (&["main", "event_loop", "epoll_wait"], 0.12),
];

/// What a fleet is like. Sd are shares.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Number of servers.
    pub servers: usize,
    /// Its length.
    pub days: u32,
    /// Its start, seconds since the Unix epoch; a Monday.
    pub start_s: i64,
    /// Intervals in a window.
    pub intervals: usize,
    /// Sd between healthy servers of one kind, beyond that between runs.
    pub spread_sd: f64,
    /// Sd between runs of a server.
    pub run_sd: f64,
    /// Sd of a window, and its correlation with the one before.
    pub window: (f64, f64),
    /// Sd of an interval.
    pub interval_sd: f64,
    /// Whether deviations between servers, runs and windows are those of Student's t with 3 degrees
    /// of freedom.
    pub heavy_tails: bool,
    /// Number of servers that cost `expensive` times as much.
    pub expensive: (usize, f64),
    /// Share of the servers that get the release in the middle of the time, and the ratio of its
    /// cost.
    pub release: (f64, f64),
    /// Growth of the last group per day. It runs out [`RUNS_OUT_DAYS`] after the end.
    pub growth: Option<f64>,
}

impl Plan {
    /// A fleet with three expensive servers, an expensive release and a group that runs out.
    #[must_use]
    pub fn planted() -> Plan {
        Plan { expensive: (3, 1.2), release: (0.4, 1.08), growth: Some(0.012), ..Plan::healthy() }
    }

    /// A fleet in which nothing is wrong: the release changes nothing.
    #[must_use]
    pub fn healthy() -> Plan {
        Plan {
            servers: 100,
            days: 3,
            start_s: 1_767_571_200,
            intervals: 3,
            spread_sd: 0.022,
            run_sd: 0.02,
            window: (0.03, 0.9),
            interval_sd: 0.03,
            heavy_tails: false,
            expensive: (0, 1.0),
            release: (0.4, 1.0),
            growth: None,
        }
    }

    fn windows(&self) -> i64 {
        i64::from(self.days) * DAY_S / WINDOW_S
    }

    /// The first window of the release.
    fn release_window(&self) -> i64 {
        self.windows() / 2
    }

    fn deviation(&self, rng: &mut Rng, sd: f64) -> f64 {
        let normal = rng.normal();
        if !self.heavy_tails {
            return sd * normal;
        }
        let squares: f64 = (0..3).map(|_| rng.normal().powi(2)).sum();
        // The variance of t with 3 degrees of freedom is 3.
        sd * normal / squares.sqrt()
    }
}

/// A made-up fleet.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// What it is like.
    pub plan: Plan,
    servers: Vec<Server>,
    curves: Vec<Curve>,
    /// Load of each kind, by window.
    load: Vec<Vec<f64>>,
}

#[derive(Clone, Debug)]
struct Server {
    id: ServerId,
    kind: usize,
    seed: u64,
    /// Rate at the daily peak, requests/s.
    peak: f64,
    /// Its cost, as a multiple of that of its kind, before and after the release.
    cost: [f64; 2],
    expensive: bool,
    released: bool,
    backup: bool,
}

impl Fleet {
    /// A fleet. Servers of a kind alternate between large and small.
    #[must_use]
    pub fn new(seed: u64, plan: Plan) -> Fleet {
        let mut rng = Rng::new(seed);
        let curves: Vec<Curve> = KINDS.iter().map(|kind| Curve::of(kind.3)).collect();
        let mut kinds: Vec<usize> = Vec::new();
        for (at, kind) in KINDS.iter().enumerate() {
            let number = (kind.2 * plan.servers as f64).round() as usize;
            kinds.extend(std::iter::repeat_n(at, number));
        }
        kinds.resize(plan.servers, 0);
        let growing = KINDS.len() - 1;
        let chosen = shuffled(&mut rng, plan.servers);
        let released = (plan.release.0 * plan.servers as f64).round() as usize;
        let mut servers: Vec<Server> = (0..plan.servers)
            .map(|at| {
                let kind = kinds[at];
                let used = (0.45 * (0.25 * rng.normal()).exp()).clamp(0.2, 0.75);
                let own = plan.deviation(&mut rng, plan.spread_sd);
                let runs = [(); 2].map(|()| plan.deviation(&mut rng, plan.run_sd));
                let released = chosen[at] < released;
                let change = if released { plan.release.1 } else { 1.0 };
                Server {
                    id: ServerId { host: format!("host{at:04}"), server: KINDS[kind].0.into() },
                    kind,
                    seed: rng.next_u64(),
                    peak: curves[kind].rate(used),
                    cost: [(own + runs[0]).exp(), change * (own + runs[1]).exp()],
                    expensive: false,
                    released,
                    backup: rng.uniform() < 0.3,
                }
            })
            .collect();
        let order = shuffled(&mut rng, plan.servers);
        let stable: Vec<usize> = order.into_iter().filter(|at| kinds[*at] != growing).collect();
        for at in stable.into_iter().take(plan.expensive.0) {
            servers[at].cost = servers[at].cost.map(|cost| cost * plan.expensive.1);
            servers[at].expensive = true;
        }
        let load = KINDS.iter().map(|_| load(&mut rng, &plan)).collect();
        let mut fleet = Fleet { plan, servers, curves, load };
        if let Some(growth) = fleet.plan.growth {
            fleet.grow(growing, growth);
        }
        fleet
    }

    /// The servers that cost more.
    #[must_use]
    pub fn expensive(&self) -> Vec<ServerId> {
        self.servers.iter().filter(|s| s.expensive).map(|s| s.id.clone()).collect()
    }

    /// The group that grows.
    #[must_use]
    pub fn growing() -> &'static str {
        KINDS[KINDS.len() - 1].1
    }

    /// The capacity of each server.
    #[must_use]
    pub fn capacities(&self) -> Vec<(ServerId, f64)> {
        self.servers.iter().map(|server| (server.id.clone(), self.capacity(server))).collect()
    }

    /// The first day after the end on which the growing group's peak is above its capacity, seconds
    /// since the Unix epoch, if the fleet goes on as it did for [`LATER_DAYS`].
    #[must_use]
    pub fn runs_out_day_s(&self) -> Option<i64> {
        let growing = || self.servers.iter().filter(|s| s.kind == KINDS.len() - 1);
        let capacity: f64 = growing().map(|server| self.capacity(server)).sum();
        let later = self.load[0].len();
        let mut hours: BTreeMap<i64, f64> = BTreeMap::new();
        for server in growing() {
            let mut of_server: BTreeMap<i64, f64> = BTreeMap::new();
            for window in self.windows_until(server, later as i64) {
                let peak = of_server.entry(window.start_s / 3600).or_default();
                *peak = peak.max(window.rate);
            }
            of_server.into_iter().for_each(|(at, peak)| *hours.entry(at).or_default() += peak);
        }
        let end_s = self.plan.start_s + i64::from(self.plan.days) * DAY_S;
        let above = |(at, peak): &(i64, f64)| at * 3600 >= end_s && *peak >= capacity;
        hours.into_iter().find(above).map(|(at, _)| at * 3600 / DAY_S * DAY_S)
    }

    fn capacity(&self, server: &Server) -> f64 {
        self.curves[server.kind].capacity / server.cost[usize::from(server.released)]
    }

    /// Lets a kind grow, so that its servers together run out [`RUNS_OUT_DAYS`] after the end.
    fn grow(&mut self, kind: usize, growth: f64) {
        let of_kind = |server: &&mut Server| server.kind == kind;
        let all: f64 =
            self.servers.iter().filter(|s| s.kind == kind).map(|s| self.capacity(s)).sum();
        let peaks: f64 = self.servers.iter().filter(|s| s.kind == kind).map(|s| s.peak).sum();
        // The busiest day, and what the noise of windows adds to its peak.
        let at_end = all / peaks / (1.03 * 1.05) * (-growth * RUNS_OUT_DAYS).exp();
        self.servers.iter_mut().filter(of_kind).for_each(|server| server.peak *= at_end);
        let days = f64::from(self.plan.days);
        for (at, load) in self.load[kind].iter_mut().enumerate() {
            let day = at as f64 * WINDOW_S as f64 / DAY_S as f64;
            *load *= (growth * (day - days)).exp();
        }
    }

    fn windows(&self, server: &Server) -> impl Iterator<Item = Window> {
        self.windows_until(server, self.plan.windows())
    }

    fn windows_until(&self, server: &Server, number: i64) -> impl Iterator<Item = Window> {
        let plan = &self.plan;
        let mut rng = Rng::new(server.seed);
        let (sd, rho) = plan.window;
        let (mut cost_level, mut rate_level) = (0.0, 0.0);
        let fresh = (1.0_f64 - rho * rho).sqrt();
        let (load, seed) = (&self.load[server.kind], server.seed);
        let (peak, cost, released, backup) =
            (server.peak, server.cost, server.released, server.backup);
        (0..number).map(move |at| {
            cost_level = rho * cost_level + fresh * plan.deviation(&mut rng, sd);
            rate_level = 0.95 * rate_level + 0.312 * 0.08 * rng.normal();
            let run = usize::from(released && at >= plan.release_window());
            let of_day = at * WINDOW_S % DAY_S;
            let at_night = backup && (7_200..9_000).contains(&of_day);
            Window {
                start_s: plan.start_s + at * WINDOW_S,
                run,
                rate: peak * load[at as usize] * f64::exp(rate_level),
                cost: cost[run] * f64::exp(cost_level) * if at_night { 1.1 } else { 1.0 },
                others: if at_night { 0.8 } else { 0.01 },
                seed: seed ^ (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            }
        })
    }

    /// Rate, CPU seconds per second and wakes per second of each interval of a window.
    fn intervals(&self, server: &Server, window: &Window, number: usize) -> Vec<[f64; 3]> {
        let mut rng = Rng::new(window.seed);
        let curve = &self.curves[server.kind];
        let one = |_| {
            let asked = window.rate * (1.0 + 0.05 * rng.normal()).max(0.05);
            let (cost, wakes) = curve.at(asked);
            let noise = (self.plan.interval_sd * rng.normal()).exp();
            let used = FIXED + asked * cost * window.cost * noise;
            if used < 1.0 { [asked, used, asked * wakes] } else { [asked / used, 1.0, 0.0] }
        };
        (0..number).map(one).collect()
    }

    fn labels(&self, server: &Server, run: usize) -> Vec<Label> {
        let label = |name: &str, value: &str| Label { name: name.into(), value: value.into() };
        vec![label("group", KINDS[server.kind].1), label("release", RELEASES[run])]
    }

    /// The runs of a server that are asked for, and the value of the label of each.
    fn chosen(&self, server: &Server, asked: &Asked) -> [Option<Option<String>>; 2] {
        let name = server.id.to_string();
        let named = asked.server.as_ref().is_none_or(|part| name.contains(part.as_str()));
        [0, 1].map(|run| {
            let labels = self.labels(server, run);
            if !named || !asked.labels.iter().all(|label| labels.contains(label)) {
                return None;
            }
            match &asked.by {
                None => Some(None),
                Some(by) => labels.into_iter().find(|l| l.name == *by).map(|l| Some(l.value)),
            }
        })
    }

    /// What the windows that are asked for add up to, by the value of the label.
    fn by_group<T: Default>(
        &self,
        server: &Server,
        asked: &Asked,
        mut add: impl FnMut(&mut T, &Window),
    ) -> Vec<(Option<String>, T)> {
        let values = self.chosen(server, asked);
        let same = values[0] == values[1];
        let mut sums: [Option<T>; 2] = [None, None];
        let inside =
            |window: &Window| asked.span.is_none_or(|(a, b)| (a..b).contains(&window.start_s));
        let windows = values.iter().any(Option::is_some).then(|| self.windows(server));
        for window in windows.into_iter().flatten().filter(inside) {
            if values[window.run].is_some() {
                let at = if same { 0 } else { window.run };
                add(sums[at].get_or_insert_default(), &window);
            }
        }
        values.into_iter().zip(sums).filter_map(|(value, sums)| value.zip(sums)).collect()
    }

    /// The part of the CPU time of each of [`STACKS`].
    fn shares(&self, run: usize) -> [f64; STACKS.len()] {
        let change = if run == 1 { self.plan.release.1 } else { 1.0 };
        let mut shares = STACKS.map(|(_, share)| share / change);
        shares[0] += (change - 1.0) / change;
        shares
    }

    /// CPU seconds of each of [`STACKS`] in a window, as samples show them.
    fn sampled(&self, server: &Server, window: &Window) -> [f64; STACKS.len()] {
        let mut rng = Rng::new(!window.seed);
        let (cost, _) = self.curves[server.kind].at(window.rate);
        let cpu_s = window.rate * cost * window.cost * WINDOW_S as f64;
        self.shares(window.run).map(|share| {
            let samples = HZ * cpu_s * share;
            (samples + samples.sqrt() * rng.normal()).max(0.0).round() / HZ
        })
    }
}

/// A permutation.
fn shuffled(rng: &mut Rng, n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    (1..n).rev().for_each(|at| order.swap(at, rng.below(at + 1)));
    order
}

/// The load of a kind in each window, relative to its peak.
fn load(rng: &mut Rng, plan: &Plan) -> Vec<f64> {
    let (mut of_day, mut level) = (0.0, 0.0);
    let one = |at: i64| {
        let second = at * WINDOW_S;
        if second % DAY_S == 0 {
            of_day = 0.03 * rng.normal();
        }
        level = 0.97 * level + 0.243 * 0.03 * rng.normal();
        let hour = (second % DAY_S) as f64 / 3600.0;
        let daily = 0.6 + 0.4 * (TAU * (hour - 19.0) / 24.0).cos();
        WEEK[(second / DAY_S % 7) as usize] * daily * f64::exp(of_day + level)
    };
    let later = i64::from(LATER_DAYS) * DAY_S / WINDOW_S;
    (0..plan.windows() + later).map(one).collect()
}

/// A window of a server.
struct Window {
    start_s: i64,
    /// 1 after the release.
    run: usize,
    /// Mean rate.
    rate: f64,
    /// Multiple of the cost of its kind.
    cost: f64,
    /// CPU seconds per second of other processes.
    others: f64,
    seed: u64,
}

/// What a request costs, by the rate.
#[derive(Clone, Debug)]
struct Curve {
    capacity: f64,
    /// Logarithm of the rate, CPU seconds of a request, wakes per request.
    points: Vec<[f64; 3]>,
}

impl Curve {
    /// The curve of an event loop of which a request costs this without wakes.
    fn of(request: f64) -> Curve {
        let point = |at: i32| {
            let used = FIXED + (1.0 - FIXED) * 0.965_f64.powi(at);
            let wakes = 1.5 * (1.0 - used).powf(1.5);
            let cost = |rate: f64| {
                let idle = (1.0 - used) / (rate * wakes).max(1e-9);
                request + wakes * (7e-6 + 7e-6 * (idle / 20e-6).ln_1p())
            };
            let rate = (0..100).fold(1e3, |rate, _| (used - FIXED) / cost(rate));
            [rate.ln(), cost(rate), wakes]
        };
        Curve { capacity: (1.0 - FIXED) / request, points: (0..200).rev().map(point).collect() }
    }

    fn at(&self, rate: f64) -> (f64, f64) {
        let log = rate.max(1e-6).ln();
        let above = self.points.partition_point(|point| point[0] < log);
        let [low, high] = [above.saturating_sub(1), above.min(self.points.len() - 1)];
        let (low, high) = (&self.points[low], &self.points[high]);
        let part = if high[0] > low[0] { (log - low[0]) / (high[0] - low[0]) } else { 0.0 };
        let between = |of: usize| low[of] + part.clamp(0.0, 1.0) * (high[of] - low[of]);
        (between(1), between(2))
    }

    /// The rate at a use.
    fn rate(&self, used: f64) -> f64 {
        let mut low = 0.0;
        let mut high = self.capacity;
        for _ in 0..60 {
            let middle = 0.5 * (low + high);
            let reached = FIXED + middle * self.at(middle).0 > used;
            *(if reached { &mut high } else { &mut low }) = middle;
        }
        low
    }
}

/// The sums of a resource over windows.
#[derive(Default)]
struct Sums {
    bins: BTreeMap<i32, Bin>,
    saturated: (f64, f64),
}

impl Sums {
    fn add(&mut self, intervals: Vec<[f64; 3]>) {
        let mut window: Vec<(i32, Bin)> = Vec::new();
        for [x, c, w] in intervals {
            if c >= SATURATED {
                self.saturated = (self.saturated.0 + 1.0, self.saturated.1 + x);
                continue;
            }
            let (at, one) = (bin_of(x), Bin::of(x, c, w));
            match window.iter_mut().find(|(bin, _)| *bin == at) {
                Some((_, sums)) => *sums = *sums + one,
                None => window.push((at, one)),
            }
        }
        for (at, sums) in window {
            let bin = self.bins.entry(at).or_default();
            *bin = *bin + sums.as_window();
        }
    }

    fn costs(self) -> ResourceCosts {
        ResourceCosts {
            kind: "all threads".into(),
            cap: 1.0,
            may_limit: true,
            wakes_known: true,
            bins: self.bins.into_iter().collect(),
            saturated_n: self.saturated.0,
            saturated_x: self.saturated.1,
            ..ResourceCosts::default()
        }
    }
}

/// The sums of one server and group.
#[derive(Default)]
struct OfServer {
    peak: f64,
    runs: [bool; 2],
    sums: Sums,
}

/// The highest rate, the sum of the rates and the number of windows of each hour.
type Hours = BTreeMap<i64, (f64, f64, f64)>;

impl Home for Fleet {
    fn costs(&self, asked: &Asked) -> Result<Vec<ServerCosts>, Error> {
        let mut found = Vec::new();
        for server in &self.servers {
            let add = |all: &mut OfServer, window: &Window| {
                all.peak = all.peak.max(window.rate);
                all.runs[window.run] = true;
                all.sums.add(self.intervals(server, window, self.plan.intervals));
            };
            for (group, OfServer { peak, runs, sums }) in self.by_group(server, asked, add) {
                let threads = sums.costs();
                found.push(ServerCosts {
                    server: server.id.clone(),
                    group,
                    trials: runs.iter().filter(|run| **run).count() as u64,
                    peak_rate: peak,
                    resources: vec![
                        ResourceCosts { kind: "hottest thread".into(), ..threads.clone() },
                        ResourceCosts { cap: f64::from(CPUS), may_limit: false, ..threads },
                    ],
                });
            }
        }
        Ok(found)
    }

    fn hours(&self, asked: &Asked) -> Result<Vec<ServerHours>, Error> {
        let mut found = Vec::new();
        for server in &self.servers {
            let add = |hours: &mut Hours, window: &Window| {
                let hour = hours.entry(window.start_s - window.start_s % 3600).or_default();
                *hour = (hour.0.max(window.rate), hour.1 + window.rate, hour.2 + 1.0);
            };
            for (group, hours) in self.by_group(server, asked, add) {
                let hour = |(start_s, (peak_rate, sum, n)): (i64, (f64, f64, f64))| Hour {
                    start_s,
                    peak_rate,
                    mean_rate: sum / n,
                };
                let hours = hours.into_iter().map(hour).collect();
                found.push(ServerHours { server: server.id.clone(), group, hours });
            }
        }
        Ok(found)
    }

    fn procedures(&self, asked: &Asked) -> Result<Vec<ServerProcedures>, Error> {
        let mut found = Vec::new();
        for server in &self.servers {
            let add = |sums: &mut ServerProcedures, window: &Window| {
                let requests = window.rate * WINDOW_S as f64;
                sums.windows += 1.0;
                sums.requests += requests;
                sums.requests_squared += requests * requests;
                sums.procedures.resize_with(STACKS.len(), ProcedureSums::default);
                for (sum, cpu_s) in sums.procedures.iter_mut().zip(self.sampled(server, window)) {
                    sum.cpu_s += cpu_s;
                    sum.cpu_s_squared += cpu_s * cpu_s;
                    sum.cpu_s_requests += cpu_s * requests;
                }
            };
            for (group, mut sums) in self.by_group(server, asked, add) {
                for (sum, (names, _)) in sums.procedures.iter_mut().zip(STACKS) {
                    sum.procedure = names[names.len() - 1].into();
                }
                found.push(ServerProcedures { server: server.id.clone(), group, ..sums });
            }
        }
        Ok(found)
    }

    fn stacks(&self, asked: &Asked) -> Result<Vec<GroupStacks>, Error> {
        let mut groups: BTreeMap<Option<String>, (f64, [f64; STACKS.len()])> = BTreeMap::new();
        for server in &self.servers {
            let add = |all: &mut (f64, [f64; STACKS.len()]), window: &Window| {
                all.0 += window.rate * WINDOW_S as f64;
                let sampled = self.sampled(server, window);
                all.1.iter_mut().zip(sampled).for_each(|(sum, cpu_s)| *sum += cpu_s);
            };
            for (group, (requests, sums)) in self.by_group(server, asked, add) {
                let all = groups.entry(group).or_default();
                all.0 += requests;
                all.1.iter_mut().zip(sums).for_each(|(sum, cpu_s)| *sum += cpu_s);
            }
        }
        let stack = |(names, cpu_s): (&(&[&str], f64), f64)| {
            (names.0.iter().map(ToString::to_string).collect(), cpu_s)
        };
        Ok(groups
            .into_iter()
            .map(|(group, (requests, sums))| GroupStacks {
                group,
                requests,
                stacks: STACKS.iter().zip(sums).map(stack).collect(),
            })
            .collect())
    }

    fn runs(&self, asked: &Asked) -> Result<Vec<Run>, Error> {
        let mut found = Vec::new();
        for server in &self.servers {
            let chosen = self.chosen(server, asked);
            let ends = match server.released {
                true => vec![0, self.plan.release_window(), self.plan.windows()],
                false => vec![0, self.plan.windows()],
            };
            for (run, ends) in ends.windows(2).enumerate().filter(|(run, _)| chosen[*run].is_some())
            {
                let ns = |window: i64| (self.plan.start_s + window * WINDOW_S) * 1_000_000_000;
                found.push(Run {
                    trial: server.seed ^ run as u64,
                    server: server.id.clone(),
                    version: None,
                    labels: self.labels(server, run),
                    created_ns: ns(ends[0]),
                    end_ns: ns(ends[1]),
                    intervals: (ends[1] - ends[0]) as u64 * self.plan.intervals as u64,
                });
            }
        }
        Ok(found)
    }

    /// The made-up intervals of a window have no times.
    fn fetch(&self, run: &Run, _: &Path) -> Result<(), Error> {
        Err(run.missing())
    }
}
