//! The page that lives, at the admin address: how this server measures itself for it.
//!
//! What: once a second the first core reads the counters of all cores into a ring, so that a page
//! that is opened has a history. While a page is open, the same core writes the events, and a
//! separate thread fits the load line, at most every [`FIT_EVERY`] and never for more than a
//! [`FIT_REST`]th of a CPU.
//!
//! What never happens: a fit on a core; work for a page while none is open, except for the ring;
//! more than [`PAGES_MAX`] pages.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cache::sizing::WhatIfReport;
use dashboard::{
    Capacity, Feed, HEARTBEAT, HEARTBEAT_S, Line, Memory, MemorySize, Now, RETRY, SAMPLES_MAX,
    Sample, Snapshot, Source, Upstream, Upstreams, Url, Urls, events_head,
};
use metrics::{Counters, Latency};
use proxy::h1::ClientStream;
use regress::load_line::INTERVALS_MIN;
use regress::{LoadLineInput, Marginal};
use runtime::sync::{Notify, inbox};
use runtime::time::{self, Instant};
use upstream::figures::{self, ServerNow};
use upstream::group::Group;

use crate::core_task::CoreTask;
use crate::limits::PAGES_MAX;
use crate::process::Process;

/// Time between two readings.
const SECOND: Duration = Duration::from_secs(1);
/// The shortest time between two fits.
const FIT_EVERY: Duration = Duration::from_secs(10);
/// The pause after a fit, as a multiple of its CPU time.
const FIT_REST: u32 = 500;
/// Forecasts, URLs and upstreams are sent once in so many seconds.
const SLOW_PARTS_EVERY: u64 = 5;
/// The rate now is a mean over so many seconds.
const NOW_S: usize = 5;
/// URLs that are shown.
const URLS_SHOWN: usize = 16;
/// Servers of upstream groups that are shown.
const UPSTREAMS_SHOWN: usize = 50;
/// From this use on a core is saturated: such a second lies on the cap, not on the line.
const SATURATED_PERCENT: f64 = 98.5;

/// What the pages show.
pub(crate) struct Dashboard {
    task: Rc<CoreTask>,
    cores: Vec<Arc<Counters>>,
    process: Arc<Process>,
    pages: Cell<usize>,
    ring: RefCell<VecDeque<Second>>,
    feed: RefCell<Feed>,
    fit: RefCell<Fit>,
    /// There is a new event.
    changed: Notify,
}

/// One second of the server.
struct Second {
    sample: Sample,
    cores: Vec<OneCore>,
}

/// One second of one core.
#[derive(Clone, Copy)]
struct OneCore {
    /// CPU seconds per second.
    cpu: f32,
    /// Requests per second.
    requests: f32,
    /// Sleeps per second.
    sleeps: f32,
    /// CPU seconds and requests of catching up after holds.
    caught_up: (f64, f64),
}

/// The line, and when to fit it again.
struct Fit {
    line: Option<Line>,
    capacity: Capacity,
    is_running: bool,
    next: Instant,
}

/// What a fit needs.
struct Columns {
    until: f64,
    points: Vec<(f64, f64)>,
    rate: Vec<f64>,
    cost: Vec<f64>,
    sleeps: Vec<f64>,
    caught_up: Vec<(f64, f64)>,
    /// Requests of the hottest core for each request.
    share: f64,
}

/// The counters at one instant.
struct Reading {
    hits: u64,
    buckets: Vec<(f64, u64)>,
    cores: Vec<CoreReading>,
}

/// The counters of a core at its last tick.
struct CoreReading {
    at_ns: u64,
    cpu_ns: u64,
    requests: u64,
    sleeps: u64,
    /// CPU time and requests.
    caught_up: (u64, u64),
}

impl CoreReading {
    fn of(counters: &Counters) -> CoreReading {
        let core = &counters.core;
        CoreReading {
            at_ns: core.read_ns.get(),
            cpu_ns: core.cpu_ns.get(),
            requests: core.requests.get(),
            sleeps: core.sleeps.get(),
            caught_up: (core.caught_up_ns.get(), core.caught_up_requests.get()),
        }
    }

    /// All zero if the core has not ticked since then.
    fn since(&self, earlier: &CoreReading) -> OneCore {
        let seconds = self.at_ns.saturating_sub(earlier.at_ns) as f64 / 1e9;
        let per_second = |now: u64, then: u64| match seconds > 0.0 {
            true => (now.saturating_sub(then) as f64 / seconds) as f32,
            false => 0.0,
        };
        OneCore {
            cpu: per_second(self.cpu_ns, earlier.cpu_ns) / 1e9,
            requests: per_second(self.requests, earlier.requests),
            sleeps: per_second(self.sleeps, earlier.sleeps),
            caught_up: (
                self.caught_up.0.saturating_sub(earlier.caught_up.0) as f64 / 1e9,
                self.caught_up.1.saturating_sub(earlier.caught_up.1) as f64,
            ),
        }
    }
}

impl Reading {
    fn now(cores: &[Arc<Counters>]) -> Reading {
        let sum = |of: fn(&Counters) -> u64| cores.iter().map(|core| of(core)).sum();
        Reading {
            hits: sum(|core| core.hits.get()),
            buckets: Latency::all(cores.iter().map(|core| &core.latency)),
            cores: cores.iter().map(|core| CoreReading::of(core)).collect(),
        }
    }

    fn since(&self, earlier: &Reading) -> Second {
        let hits = self.hits.saturating_sub(earlier.hits) as f64;
        let buckets: Vec<(f64, u64)> = self
            .buckets
            .iter()
            .zip(&earlier.buckets)
            .map(|(now, then)| (now.0, now.1.saturating_sub(then.1)))
            .collect();
        // Tunnels are not in the histogram.
        let requests = buckets.iter().map(|(_, count)| count).sum::<u64>() as f64;
        let ms = |q| Some(1e3 * quantile(&buckets, q)?);
        let cores = self.cores.iter().zip(&earlier.cores).map(|(now, then)| now.since(then));
        let cores: Vec<OneCore> = cores.collect();
        Second {
            sample: Sample {
                t: time::wall_ms() as f64 / 1e3,
                rate: Some(cores.iter().map(|core| f64::from(core.requests)).sum()),
                used: None,
                p50: ms(0.5),
                p99: ms(0.99),
                hits: (requests > 0.0).then(|| (100.0 * hits / requests).min(100.0)),
            },
            cores,
        }
    }
}

/// A quantile of a histogram, seconds. In the first bucket, its upper bound.
fn quantile(buckets: &[(f64, u64)], q: f64) -> Option<f64> {
    let total: u64 = buckets.iter().map(|(_, count)| count).sum();
    let rank = q * total as f64;
    let (mut below, mut from): (f64, Option<f64>) = (0.0, None);
    for &(bound, count) in buckets {
        let count = count as f64;
        if count > 0.0 && below + count >= rank {
            let share = (rank - below) / count;
            return Some(match from {
                None => bound,
                Some(from) if bound.is_finite() => from * (bound / from).powf(share),
                Some(from) => from,
            });
        }
        (below, from) = (below + count, Some(bound));
    }
    None
}

impl Dashboard {
    pub(crate) fn new(
        task: Rc<CoreTask>,
        cores: Vec<Arc<Counters>>,
        process: Arc<Process>,
    ) -> Rc<Dashboard> {
        let fit = Fit {
            line: None,
            capacity: Capacity::unknown(
                "the server has just begun to measure itself".to_owned(),
                "",
            ),
            is_running: false,
            next: time::now(),
        };
        Rc::new(Dashboard {
            task,
            cores,
            process,
            pages: Cell::new(0),
            ring: RefCell::default(),
            feed: RefCell::default(),
            fit: RefCell::new(fit),
            changed: Notify::new(),
        })
    }

    /// Reads the counters once a second, and writes an event if a page is open.
    pub(crate) async fn run(self: Rc<Self>) {
        let mut before = Reading::now(&self.cores);
        for second in 0_u64.. {
            time::sleep(SECOND).await;
            let now = Reading::now(&self.cores);
            self.keep(now.since(&before));
            before = now;
            if self.pages.get() > 0 {
                self.fit_if_due();
                self.write_event(second % SLOW_PARTS_EVERY == 0);
            } else {
                self.process.shared.urls.forget_unwatched();
            }
        }
    }

    fn keep(&self, second: Second) {
        let mut ring = self.ring.borrow_mut();
        if ring.len() == SAMPLES_MAX {
            ring.pop_front();
        }
        ring.push_back(second);
    }

    /// The core that used most CPU time.
    fn hottest(&self) -> usize {
        let ring = self.ring.borrow();
        let used = |core: usize| ring.iter().map(|second| second.cores[core].cpu).sum::<f32>();
        (0..self.cores.len()).max_by(|a, b| used(*a).total_cmp(&used(*b))).unwrap_or(0)
    }

    fn write_event(&self, with_slow_parts: bool) {
        let hottest = self.hottest();
        let samples: Vec<Sample> = {
            let ring = self.ring.borrow();
            let used = |second: &Second| 100.0 * f64::from(second.cores[hottest].cpu);
            ring.iter().map(|second| Sample { used: Some(used(second)), ..second.sample }).collect()
        };
        let last = samples.iter().rev().take(NOW_S).filter_map(|sample| sample.rate);
        let rates: Vec<f64> = last.collect();
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        let shared = &self.process.shared;
        let mut snapshot = Snapshot {
            source: Some(self.source()),
            now: Some(Now {
                rate: (!rates.is_empty()).then_some(mean),
                seconds: rates.len() as f64,
            }),
            capacity: Some(self.fit.borrow().capacity.clone()),
            line: self.fit.borrow().line.clone(),
            samples,
            ..Snapshot::default()
        };
        if with_slow_parts {
            snapshot.memory = Some(memory(&shared.cache.sizing.forecasts()));
            // A core may have the table just now: then the page keeps the last one.
            snapshot.urls = shared.urls.top(URLS_SHOWN).map(|top| urls(&top));
            snapshot.upstreams = Some(upstreams(&self.task.worker.snapshot().all_groups()));
        }
        self.feed.borrow_mut().push(snapshot);
        self.changed.notify_all();
    }

    fn source(&self) -> Source {
        let pid = std::process::id();
        let cores = self.cores.len();
        let threads = if cores == 1 { "1 core".to_owned() } else { format!("{cores} cores") };
        Source {
            kind: "server",
            name: concat!("Plimsoll ", env!("CARGO_PKG_VERSION")).to_owned(),
            detail: format!("process {pid}, {threads}"),
            ended: false,
            stale: None,
            notes: vec![format!(
                "For the cost by procedure group, record it: plimsoll record --pid {pid} -o \
                 a.trial, and plimsoll dashboard a.trial."
            )],
        }
    }

    /// Begins a fit in a thread, if the last one is long enough ago.
    fn fit_if_due(self: &Rc<Self>) {
        {
            let mut fit = self.fit.borrow_mut();
            let is_short = self.ring.borrow().len() < INTERVALS_MIN;
            if is_short || fit.is_running || time::now() < fit.next {
                return;
            }
            fit.is_running = true;
        }
        let columns = self.columns();
        let (sender, mut receiver) = inbox(1);
        let run = move || {
            let before = time::thread_cpu();
            let fitted = fitted(&columns);
            // The server may have ended.
            let _ = sender.send((fitted, time::thread_cpu().saturating_sub(before)));
        };
        // If the thread cannot be started, the sender is dropped and nothing is received.
        let _ = std::thread::Builder::new().name("load-line".into()).spawn(run);
        let this = Rc::clone(self);
        runtime::spawn(async move {
            let received = receiver.recv().await;
            let mut fit = this.fit.borrow_mut();
            fit.is_running = false;
            let mut rest = FIT_EVERY;
            if let Some(((line, capacity), cpu)) = received {
                rest = rest.max(FIT_REST * cpu);
                // The last line stays if there is no new one.
                fit.line = line.or(fit.line.take());
                fit.capacity = capacity;
            }
            fit.next = time::now() + rest;
        })
        .detach();
    }

    fn columns(&self) -> Columns {
        let (ring, hottest) = (self.ring.borrow(), self.hottest());
        let mut columns = Columns {
            until: ring.back().map_or(0.0, |second| second.sample.t),
            points: Vec::new(),
            rate: Vec::new(),
            cost: Vec::new(),
            sleeps: Vec::new(),
            caught_up: Vec::new(),
            share: 1.0,
        };
        let (mut own, mut all) = (0.0, 0.0);
        for Second { sample, cores } in ring.iter() {
            let (Some(rate), core) = (sample.rate, cores[hottest]) else { continue };
            let percent = 100.0 * f64::from(core.cpu);
            columns.points.push((rate, percent));
            if percent < SATURATED_PERCENT {
                columns.rate.push(rate);
                columns.cost.push(f64::from(core.cpu));
                columns.sleeps.push(f64::from(core.sleeps));
                columns.caught_up.push(core.caught_up);
                (own, all) = (own + f64::from(core.requests), all + rate);
            }
        }
        debug_assert!(own <= all, "a core has no more requests than all cores");
        columns.share = if all > 0.0 { own / all } else { 1.0 };
        columns
    }

    /// Sends events until the client goes away, or the core ends.
    pub(crate) async fn send_events(&self, client: &mut ClientStream<'_>) {
        let _watching = self.process.shared.urls.watch();
        let _open = Open::new(&self.pages);
        let io = &self.task.worker.io;
        let head = [&events_head()[..], RETRY.as_bytes()].concat();
        if self.pages.get() == 1 {
            // The page need not wait for the next second.
            self.write_event(true);
        }
        let (mut next, mut seen) = (head, None);
        while !io.is_draining() {
            if let Some(event) = self.feed.borrow().event_after(seen) {
                seen = Some(self.feed.borrow().number());
                next.extend_from_slice(event.as_bytes());
            }
            if client.send_bytes(&next).await.is_err() {
                return;
            }
            next.clear();
            let wait = runtime::race(
                self.changed.notified(),
                time::sleep(Duration::from_secs(HEARTBEAT_S)),
            );
            if let runtime::Either::Right(()) = wait.await {
                next.extend_from_slice(HEARTBEAT.as_bytes());
            }
        }
    }

    /// Whether one more page may be opened.
    pub(crate) fn has_room(&self) -> bool {
        self.pages.get() < PAGES_MAX
    }
}

/// Counts an open page.
struct Open<'p>(&'p Cell<usize>);

impl<'p> Open<'p> {
    fn new(pages: &'p Cell<usize>) -> Open<'p> {
        pages.set(pages.get() + 1);
        Open(pages)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

fn fitted(columns: &Columns) -> (Option<Line>, Capacity) {
    const RESOURCE: &str = "the busiest core";
    let slept = columns.sleeps.iter().any(|sleeps| *sleeps > 0.0);
    let marginal = Marginal::caught_up(&columns.caught_up);
    let input = LoadLineInput {
        wakes: slept.then_some(columns.sleeps.as_slice()),
        cpu_time: true,
        marginal: marginal.map(|one| Marginal { at_cap: columns.share * one.at_cap, ..one }),
        ..LoadLineInput::new(&columns.rate, &columns.cost, 1.0)
    };
    match regress::load_line(&input) {
        Ok(line) => {
            let drawn =
                Line::of(&line, &columns.points, "one CPU (the busiest core)", columns.until);
            (Some(drawn), Capacity::of(&line, RESOURCE))
        }
        Err(unfit) => (None, Capacity::unknown(unfit.to_string(), RESOURCE)),
    }
}

fn memory(report: &WhatIfReport) -> Memory {
    let size = |of: &cache::sizing::Size| MemorySize {
        times: of.memory,
        bytes: of.memory_bytes,
        hits: of.hit_ratio.map(|ratio| 100.0 * ratio),
    };
    Memory { sizes: report.sizes.iter().map(size).collect(), accesses: report.accesses }
}

fn urls(top: &access_log::TopUrls) -> Urls {
    let percent = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
    let url = |of: &access_log::UrlCount| Url {
        url: of.url.clone(),
        share: percent(of.requests, top.requests),
        hits: percent(of.hits, of.requests),
        why: of.reasons.iter().map(|(why, n)| (why.clone(), percent(*n, of.requests))).collect(),
    };
    Urls {
        sampled: top.sampled,
        requests: top.requests,
        why: top.reasons.iter().map(|(why, n)| (why.clone(), percent(*n, top.requests))).collect(),
        top: top.urls.iter().map(url).collect(),
    }
}

/// The servers that need attention first: those that are not up, then those with most failures.
fn upstreams(groups: &[Arc<Group>]) -> Upstreams {
    let mut all: Vec<ServerNow<'_>> = figures::servers(groups).collect();
    all.sort_by_key(|server| (server.state == "up", Reverse(server.failures)));
    let rest = all.split_off(all.len().min(UPSTREAMS_SHOWN));
    let more_up = rest.iter().filter(|server| server.state == "up").count();
    let of = |server: &ServerNow<'_>| Upstream {
        group: server.group.to_owned(),
        server: server.server.clone().into_owned(),
        state: server.state,
        outstanding: server.outstanding,
        requests: server.requests,
        failures: server.failures,
    };
    Upstreams { servers: all.iter().map(of).collect(), more_up, more_not_up: rest.len() - more_up }
}

#[cfg(test)]
mod tests {
    use outcome::Outcome;

    use super::*;

    #[test]
    fn a_quantile_lies_in_its_bucket() {
        let buckets = [(0.001, 50), (0.002, 0), (0.004, 49), (f64::INFINITY, 1)];
        assert_eq!(quantile(&buckets, 0.5), Some(0.001));
        let p90 = quantile(&buckets, 0.9).expect("there are requests");
        assert!(p90 > 0.002 && p90 < 0.004, "{p90}");
        assert_eq!(quantile(&buckets, 1.0), Some(0.004), "the last bound is infinity");
        assert_eq!(quantile(&[(0.001, 0)], 0.5), None);
    }

    #[test]
    fn a_304_counts_as_one_hit_and_a_tunnel_as_no_request() {
        let core = Arc::new(Counters::default());
        let cores = [Arc::clone(&core)];
        let before = Reading::now(&cores);
        core.hits.add(1);
        core.not_modified.add(1);
        core.latency.count(Outcome::NotModified, 304, 0);
        for outcome in [Outcome::Miss, Outcome::Tunnel, Outcome::Miss, Outcome::Miss] {
            core.latency.count(outcome, 200, 0);
        }
        core.requests.add(5);
        assert_eq!(Reading::now(&cores).since(&before).sample.hits, Some(25.0));
    }

    #[test]
    fn the_line_of_a_core_needs_a_rate_that_varies() {
        let columns = |spread: f64| {
            let rate: Vec<f64> = (0..60).map(|k| 1_000.0 + spread * f64::from(k % 10)).collect();
            let noise = |k: usize| 1e-3 * (k * 7 % 5) as f64;
            let cost: Vec<f64> =
                rate.iter().enumerate().map(|(k, x)| 0.05 + x * 2e-5 + noise(k)).collect();
            let points = rate.iter().zip(&cost).map(|(x, c)| (*x, 100.0 * c)).collect();
            let sleeps = vec![0.0; 60];
            Columns { until: 60.0, points, sleeps, rate, cost, caught_up: Vec::new(), share: 1.0 }
        };
        let (line, capacity) = fitted(&columns(4_700.0));
        let value = capacity.value.expect("it is identifiable");
        assert!((value - 47_400.0).abs() < 3_000.0, "{value}");
        assert_eq!(line.map(|line| line.points.len()), Some(60));
        let (line, capacity) = fitted(&columns(0.0));
        assert!(line.is_none() && capacity.value.is_none() && capacity.remark.is_some());
        // Holds need no rate that varies: here a request costs 80 us while the core catches up.
        let caught_up = (0..60).map(|k| if k % 4 == 0 { (1.6e-3, 20.0) } else { (0.0, 0.0) });
        let held = Columns { caught_up: caught_up.collect(), ..columns(1.0) };
        let value = fitted(&held).1.value.expect("holds show it");
        assert!((value - 12_500.0).abs() < 250.0, "{value}");
        // Two cores share the requests: the capacity was that of one.
        let value = fitted(&Columns { share: 0.5, ..held }).1.value.expect("holds show it");
        assert!((value - 25_000.0).abs() < 500.0, "{value}");
    }
}
