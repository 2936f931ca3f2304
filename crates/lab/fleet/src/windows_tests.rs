//! Tests of windows, and trials generated from known lines for these and other tests.

use std::path::{Path, PathBuf};

use regress::Rng;
use regress::bins::Bin;
use trial::profile::{Frame, FrameMode, Owner, SampleRow, Stack};
use trial::{Host, Interval, Manifest, Modes, ProcessTimes, Server, ThreadTimes, Trial, Writer};

use crate::home::WINDOW_S;
use crate::windows::{KIND_RATE, Window, profile, run, windows};

pub(crate) const SECOND_NS: i64 = 1_000_000_000;
/// A multiple of a window, seconds since the Unix epoch.
pub(crate) const START_S: i64 = 1_769_860_800;

/// A server with one thread.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) host: String,
    pub(crate) cpus: u32,
    pub(crate) start_s: i64,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) seconds: u64,
    /// Highest rate, requests/s.
    pub(crate) peak: f64,
    /// CPU seconds per request without wakes, and per wake.
    pub(crate) request_s: f64,
    pub(crate) wake_s: f64,
    /// Sd of an interval's cost as a part of it.
    pub(crate) noise: f64,
    pub(crate) finish: bool,
}

impl Default for Made {
    fn default() -> Made {
        Made {
            host: "web07".to_string(),
            cpus: 2,
            start_s: START_S,
            labels: Vec::new(),
            seconds: 900,
            peak: 20_000.0,
            request_s: 30e-6,
            wake_s: 10e-6,
            noise: 0.03,
            finish: true,
        }
    }
}

impl Made {
    pub(crate) fn intervals(&self) -> Vec<Interval> {
        let mut rng = Rng::new(self.start_s as u64 ^ self.seconds);
        (0..self.seconds).map(|k| self.interval(k, &mut rng)).collect()
    }

    fn interval(&self, k: u64, rng: &mut Rng) -> Interval {
        // The load rises and falls every minute.
        let wave = 0.55 - 0.45 * (std::f64::consts::TAU * k as f64 / 60.0).cos();
        let rate = self.peak * wave * (1.0 + 0.05 * rng.normal()).max(0.1);
        let wakes_each = |used: f64| 1.2 * (1.0 - used).max(0.0).powf(1.5);
        let use_of = |used: f64| 0.002 + rate * (self.request_s + wakes_each(used) * self.wake_s);
        let used = (0..100).fold(0.5, |used, _| 0.5 * (used + use_of(used).min(1.0)));
        let wakes = rate * wakes_each(used);
        let used = (used * (1.0 + self.noise * rng.normal())).min(1.0);
        let ns = |share: f64| (share * SECOND_NS as f64).round() as i64;
        let (user_ns, kernel_ns) = (ns(0.4 * used), ns(0.6 * used));
        let total_ns = user_ns + kernel_ns;
        let machine = Modes {
            user_ns: user_ns + ns(0.05),
            system_ns: kernel_ns,
            idle_ns: (i64::from(self.cpus) * SECOND_NS - total_ns - ns(0.05)).max(0),
            ..Modes::default()
        };
        let thread = ThreadTimes {
            pid: 17,
            tid: 17,
            name: "worker".to_string(),
            total_ns,
            user_ns,
            kernel_ns,
            wakes: wakes as u64,
        };
        Interval {
            index: k,
            start_ns: (self.start_s + k as i64) * SECOND_NS,
            length_ns: SECOND_NS,
            machine,
            server: Some(ProcessTimes {
                user_ns,
                kernel_ns,
                total_ns,
                processes: 1,
                threads: 1,
                voluntary_switches: wakes as u64,
                ..ProcessTimes::default()
            }),
            threads: vec![thread],
            requests: rate,
            requests_ended: rate as u64,
            rate_valid: k > 0,
            ..Interval::default()
        }
    }

    pub(crate) fn manifest(&self) -> Manifest {
        Manifest {
            created_ns: self.start_s * SECOND_NS,
            host: Host { hostname: self.host.clone(), cpus: self.cpus, ..Host::default() },
            server: Server {
                name: "nginx".to_string(),
                pid: Some(17),
                version: Some("1.26".to_string()),
                ..Server::default()
            },
            interval_ns: SECOND_NS,
            labels: self.labels.iter().cloned().collect(),
            ..Manifest::default()
        }
    }

    /// Writes the trial into a directory. Two stacks were sampled in each interval.
    pub(crate) fn write(&self, directory: &Path, name: &str) -> PathBuf {
        let path = directory.join(name);
        let mut writer = Writer::create(&path, &self.manifest()).unwrap();
        let frame = |symbol: &str, module: &str| Frame {
            symbol: Some(symbol.to_string()),
            module: module.to_string(),
            mode: FrameMode::User,
        };
        let frames = [frame("main", "nginx"), frame("read", "libc"), frame("+0x10", "libz")];
        let [main, read, zip] = frames.map(|frame| writer.frame(&frame).unwrap());
        let [first, second] = [read, zip]
            .map(|leaf| writer.stack(&Stack { frames: vec![leaf, main], whole: true }).unwrap());
        for interval in self.intervals() {
            let row = |owner, stack, ns| SampleRow {
                interval: interval.index,
                owner,
                stack,
                samples: 1,
                ns,
            };
            let busy = interval.server.unwrap().total_ns;
            let rows = [
                row(Owner::Server, first, busy / 4),
                row(Owner::Server, second, busy * 3 / 4),
                row(Owner::Other, first, 7),
            ];
            writer.samples(&rows).unwrap();
            writer.append(&interval).unwrap();
        }
        if self.finish {
            writer.finish().unwrap();
        }
        path
    }
}

fn open(made: &Made) -> Trial {
    let directory = tempfile::tempdir().unwrap();
    Trial::open(made.write(directory.path(), "one.trial")).unwrap()
}

fn total(windows: &[Window], kind: &str) -> Bin {
    let of = windows.iter().filter(|window| window.kind == kind);
    of.fold(Bin::default(), |sum, window| sum + window.sums)
}

#[test]
fn windows_have_the_sums_of_all_intervals_of_a_line() {
    let trial = open(&Made { start_s: START_S + 100, ..Made::default() });
    let windows = windows(&trial);
    let keys: Vec<_> = windows.iter().map(|w| (w.start_s, w.kind.clone(), w.bin)).collect();
    assert!(keys.is_sorted() && keys.windows(2).all(|pair| pair[0] != pair[1]));
    assert!(windows.iter().all(|window| window.start_s % WINDOW_S == 0));
    let fitted: Vec<(f64, f64)> = trial.intervals()[1..]
        .iter()
        .map(|interval| (interval.rate(), interval.threads[0].total_ns as f64 / 1e9))
        .filter(|(_, cost)| *cost < 0.985)
        .collect();
    let sums = total(&windows, "hottest thread");
    let of = |value: fn(f64, f64) -> f64| fitted.iter().map(|(x, c)| value(*x, *c)).sum::<f64>();
    assert_eq!((sums.n, sums.windows), (fitted.len() as f64, 4.0));
    assert!((sums.xc / of(|x, c| x * c) - 1.0).abs() < 1e-12);
    assert!((sums.cc / of(|_, c| c * c) - 1.0).abs() < 1e-12);
    // Neighbours in different windows are no pair.
    let pairs = fitted.windows(2).zip(1..).filter(|(_, at)| (at + 101) % 300 != 0);
    let dxc: f64 = pairs.map(|(p, _)| (p[1].0 - p[0].0) * (p[1].1 - p[0].1)).sum();
    assert_eq!((sums.pairs, sums.s, sums.ss), (sums.n - 4.0, sums.n, sums.n));
    assert!((sums.dxc / dxc - 1.0).abs() < 1e-9, "{} {dxc}", sums.dxc);
    let rates = total(&windows, KIND_RATE);
    assert_eq!((rates.n, rates.s), (899.0, 899.0), "the rate of the first interval is not valid");
    let kinds: Vec<&str> = windows.iter().map(|window| window.kind.as_str()).collect();
    assert!(kinds.contains(&"machine") && !kinds.contains(&"all threads"));
}

#[test]
fn saturated_intervals_are_counted_apart() {
    let trial = open(&Made { peak: 60_000.0, ..Made::default() });
    let windows = windows(&trial);
    let hottest = || windows.iter().filter(|window| window.kind == "hottest thread");
    let n: f64 = hottest().map(|window| window.saturated_n).sum();
    let x: f64 = hottest().map(|window| window.saturated_x).sum();
    assert!(n > 100.0 && x / n > 30_000.0, "{n} {x}");
    assert_eq!(n + total(&windows, "hottest thread").n, 899.0);
    assert_eq!(total(&windows, KIND_RATE).n, 899.0);
}

#[test]
fn labels_name_the_server_and_the_host() {
    let labels = [("host", "h"), ("release", "42"), ("server", "s")];
    let labels = labels.map(|(name, value)| (name.to_string(), value.to_string()));
    let one = run(&open(&Made { labels: labels.to_vec(), seconds: 10, ..Made::default() }));
    assert_eq!(one.server.to_string(), "h/s");
    assert_eq!(one.labels.len(), 3);
    assert_eq!(one.end_ns - one.created_ns, 10_000_000_000);
    let other = run(&open(&Made { seconds: 10, ..Made::default() }));
    assert_eq!(other.server.to_string(), "web07/nginx");
}

#[test]
fn the_profile_has_the_servers_time_by_procedure_and_stack() {
    let trial = open(&Made::default());
    let profile = profile(&trial);
    let server: f64 = trial.intervals()[1..]
        .iter()
        .map(|interval| interval.server.unwrap().total_ns as f64 / 1e9)
        .sum();
    let cpu_s: f64 = profile.procedures.iter().map(|row| row.cpu_s).sum();
    assert!((cpu_s / server - 1.0).abs() < 1e-6, "{cpu_s} {server}");
    assert_eq!(profile.procedures.len(), 2 * 3);
    let first = &profile.procedures[0];
    assert_eq!(first.procedure, "libz+0x10");
    let requests: f64 = trial.intervals()[1..300].iter().map(|i| i.requests).sum();
    assert!((first.requests / requests - 1.0).abs() < 1e-12);
    let names: Vec<String> = profile.frames.values().map(|names| names.join(";")).collect();
    assert!(names.contains(&"main;read".to_string()), "{names:?}");
    assert!(profile.stacks.iter().all(|row| profile.frames.contains_key(&row.stack)));
}
