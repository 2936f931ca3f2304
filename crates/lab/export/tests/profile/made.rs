//! Generated trials with a profile, from the tables of Banga and Mogul (1998) and from known costs.

use regress::Rng;
use report::Groups;
use tempfile::TempDir;
use trial::profile::{Frame, FrameMode, Owner, ProfileInfo, SampleRow, Stack};
use trial::{Interval, Manifest, Modes, Prediction, ProcessTimes, ThreadTimes, Trial, Writer};

/// 1998-09-15 18:00:00 UTC: 11:00 in California.
const START_NS: i64 = 905_882_400_000_000_000;
const QUARTER_NS: i64 = 900_000_000_000;

/// The groups of the papers.
pub(crate) const GROUPS_1998: &str = "
[[group]]
name = 'select'
title = 'all select functions'
[[group.rule]]
symbol = '^(select|soo_select|selscan|undo_scan|new_(soo_select|selscan_one|undo_scan)|select_.*)$'
mode = 'kernel'
[[group]]
name = 'malloc'
title = 'malloc-related'
[[group.rule]]
symbol = '^malloc-related'
[[group]]
name = 'tcp'
title = 'all TCP functions'
[[group.rule]]
symbol = '^(tcp_|all TCP)'
[[group]]
name = 'data-movement'
title = 'data movement'
[[group.rule]]
symbol = '^(bcopy|memCopy|memset)$'
";

/// Table 16, the old kernel: percent of all CPU time in the hour of 48 requests/s, procedure,
/// whether in the kernel. `select_rest` is the part of select's 38.96 without a row.
pub(crate) const OLD: (f64, &[(f64, &str, bool)]) = (
    48.0,
    &[
        (13.83, "soo_select", true),
        (12.33, "selscan", true),
        (10.11, "undo_scan", true),
        (2.51, "select", true),
        (0.18, "select_rest", true),
        (5.87, "malloc-related #1", false),
        (4.51, "malloc-related #2", false),
        (3.48, "pmap_zero_page", true),
        (3.13, "malloc-related #3", false),
        (1.68, "memCopy", false),
        (1.53, "malloc-related #5", false),
        (1.46, "all TCP functions", true),
        (1.28, "malloc-related #4", false),
        (0.85, "memset", false),
        (0.75, "bcopy", true),
        (0.23, "comm_select", false),
    ],
);

/// Table 13: the new kernel, in the hour of 56 requests/s.
pub(crate) const NEW: (f64, &[(f64, &str, bool)]) = (
    56.0,
    &[
        (9.42, "select", true),
        (3.71, "new_soo_select", true),
        (2.82, "new_selscan_one", true),
        (0.03, "new_undo_scan", true),
        (0.04, "select_rest", true),
        (5.37, "malloc-related #1", false),
        (4.35, "malloc-related #2", false),
        (4.10, "in_pcblookup", true),
        (2.93, "malloc-related #3", false),
        (2.88, "all TCP functions", true),
        (1.46, "malloc-related #5", false),
        (1.34, "malloc-related #4", false),
        (0.94, "memCopy", false),
        (0.92, "memset", false),
        (0.88, "bcopy", true),
        (0.84, "read_io_port", true),
        (0.72, "doprnt", false),
        (0.36, "comm_select", false),
    ],
);

/// A trial to be written.
pub(crate) struct Made {
    pub(crate) manifest: Manifest,
    pub(crate) intervals: Vec<Interval>,
    /// Interval, owner, stack with the innermost procedure first, ns.
    pub(crate) samples: Vec<(u64, Owner, Vec<Frame>, i64)>,
    pub(crate) predictions: Vec<Prediction>,
}

impl Made {
    pub(crate) fn open(&self, name: &str) -> (TempDir, Trial) {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join(name);
        let mut writer = Writer::create(&path, &self.manifest).unwrap();
        let mut rows = Vec::new();
        for (interval, owner, frames, ns) in &self.samples {
            let frames = frames.iter().map(|frame| writer.frame(frame).unwrap()).collect();
            let stack = writer.stack(&Stack { frames, whole: true }).unwrap();
            let samples = (*ns / 10_000_000) as u32;
            rows.push(SampleRow { interval: *interval, owner: *owner, stack, samples, ns: *ns });
        }
        writer.samples(&rows).unwrap();
        if !rows.is_empty() {
            let samples = rows.iter().map(|row| u64::from(row.samples)).sum();
            let info = ProfileInfo {
                event: "cpu-clock".to_string(),
                hz: 100,
                samples,
                user_samples: samples,
                unwound_whole: samples,
                ..ProfileInfo::default()
            };
            writer.profile_info(&info).unwrap();
        }
        self.intervals.iter().for_each(|interval| writer.append(interval).unwrap());
        self.predictions.iter().for_each(|kept| writer.prediction(kept).unwrap());
        writer.finish().unwrap();
        let trial = Trial::open(&path).unwrap();
        (directory, trial)
    }
}

pub(crate) fn groups_1998() -> Groups {
    Groups::read(GROUPS_1998, "groups of 1998").unwrap()
}

pub(crate) fn frame(symbol: &str, kernel: bool) -> Frame {
    let (module, mode) = match kernel {
        true => ("[kernel]", FrameMode::Kernel),
        false => ("squid", FrameMode::User),
    };
    Frame { symbol: Some(symbol.to_string()), module: module.to_string(), mode }
}

/// Fixed percent, percent per request/s, and correlation of a mode.
struct Line(f64, f64, f64);

/// Squid's day on the old kernel: idle -1.69, meeting zero at 55.
pub(crate) fn old_day() -> Made {
    day("Squid 1.1.20Mod, old", 8.0..43.0, Line(3.5, 0.64, 0.85), Line(3.5, 1.05, 0.94), OLD, 1)
}

/// The same on the new kernel: idle -1.26, meeting zero at 83, and so 104.6 at zero load.
pub(crate) fn new_day() -> Made {
    let fixed = (100.0 - 83.0 * 1.2602) / 2.0;
    let (user, kernel) = (Line(fixed, 0.5351, 0.80), Line(fixed, 0.7251, 0.95));
    day("Squid 1.1.20Mod, new", 25.0..65.0, user, kernel, NEW, 2)
}

/// 96 quarters of an hour with the published slopes and correlations of the modes. In the profile
/// each procedure has its published share in proportion to the rate, as in the published
/// arithmetic.
fn day(
    server: &str,
    rates: std::ops::Range<f64>,
    user: Line,
    kernel: Line,
    (hour_rate, table): (f64, &[(f64, &str, bool)]),
    seed: u64,
) -> Made {
    let mut rng = Rng::new(seed);
    let (middle, swing) = (0.5 * (rates.start + rates.end), 0.5 * (rates.end - rates.start));
    let rate: Vec<f64> = (0..96)
        .map(|k| middle + swing * (std::f64::consts::TAU * (f64::from(k) - 34.0) / 96.0).sin())
        .collect();
    let user = mode(&rate, &user, &mut rng);
    let kernel = mode(&rate, &kernel, &mut rng);
    let ns = |percent: f64| (percent / 100.0 * QUARTER_NS as f64).round() as i64;
    let intervals = (0..96usize).map(|k| Interval {
        index: k as u64,
        start_ns: START_NS + k as i64 * QUARTER_NS,
        length_ns: QUARTER_NS,
        machine: Modes {
            user_ns: ns(user[k]),
            system_ns: ns(kernel[k]),
            idle_ns: ns(100.0 - user[k] - kernel[k]),
            ..Modes::default()
        },
        requests: rate[k] * 900.0,
        requests_ended: (rate[k] * 900.0) as u64,
        rate_valid: true,
        ..Interval::default()
    });
    let mut samples = Vec::new();
    for (k, rate) in rate.iter().enumerate() {
        for (share, symbol, in_kernel) in table {
            let spent = ns(share / hour_rate * rate);
            samples.push((k as u64, Owner::Server, vec![frame(symbol, *in_kernel)], spent));
        }
    }
    let mut manifest = Manifest { created_ns: START_NS, ..Manifest::default() };
    manifest.host.cpus = 1;
    manifest.server.name = server.to_string();
    Made { manifest, intervals: intervals.collect(), samples, predictions: Vec::new() }
}

/// A line and noise orthogonal to it, with the size that gives the correlation.
fn mode(x: &[f64], Line(fixed, slope, correlation): &Line, rng: &mut Rng) -> Vec<f64> {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let spread: f64 = x.iter().map(|v| (v - mean).powi(2)).sum();
    let raw: Vec<f64> = x.iter().map(|_| (std::f64::consts::TAU * rng.uniform()).sin()).collect();
    let level = raw.iter().sum::<f64>() / n;
    let tilt = raw.iter().zip(x).map(|(e, v)| e * (v - mean)).sum::<f64>() / spread;
    let rest: Vec<f64> = raw.iter().zip(x).map(|(e, v)| e - level - tilt * (v - mean)).collect();
    let size: f64 = rest.iter().map(|e| e * e).sum();
    let wanted = slope * slope * spread * (1.0 / (correlation * correlation) - 1.0);
    let scale = (wanted / size).sqrt();
    x.iter().zip(&rest).map(|(v, e)| fixed + slope * v + scale * e).collect()
}

/// The hour of Table 16 in twelve parts: 89.27 % busy, with the time without a row in `rest`.
pub(crate) fn hour_of_table_16() -> Made {
    let mut made = old_day();
    let (rate, table) = OLD;
    made.intervals.truncate(12);
    made.samples.clear();
    let length_ns = 300_000_000_000;
    let ns = |percent: f64| (percent / 100.0 * length_ns as f64).round() as i64;
    for (k, interval) in made.intervals.iter_mut().enumerate() {
        let peak = if k == 3 { 58.0 / 48.0 } else { 1.0 - 10.0 / 48.0 / 11.0 };
        interval.start_ns = START_NS + k as i64 * length_ns;
        interval.length_ns = length_ns;
        interval.requests = rate * 300.0 * peak;
        interval.machine = Modes {
            user_ns: ns(30.0),
            system_ns: ns(59.27),
            idle_ns: ns(10.73),
            ..Modes::default()
        };
        let listed: f64 = table.iter().map(|(share, _, _)| share).sum();
        let rest = [(89.27 - listed, "main", false)];
        for (share, symbol, in_kernel) in table.iter().chain(&rest) {
            let stack = vec![frame(symbol, *in_kernel)];
            made.samples.push((k as u64, Owner::Server, stack, ns(*share)));
        }
        made.samples.push((k as u64, Owner::Idle, vec![frame("idle", true)], ns(10.73)));
    }
    made
}

/// A single-threaded server with known costs: microseconds per request of each procedure and a
/// fixed percent of a CPU, sampled at 100 Hz with sampling noise.
pub(crate) fn known(costs: &[(&str, bool, f64, f64)], seed: u64) -> Made {
    let mut rng = Rng::new(seed);
    let (mut intervals, mut samples) = (Vec::new(), Vec::new());
    let second = 1_000_000_000_i64;
    for k in 0..240u64 {
        let phase = k as f64 / 240.0 * std::f64::consts::TAU;
        let rate = 5_000.0 * (1.0 - 0.8 * phase.cos()) * (1.0 + 0.05 * rng.normal());
        let (mut user, mut kernel) = (0.0, 0.0);
        for (symbol, in_kernel, us, fixed) in costs {
            let spent = (us * 1e-6 * rate + fixed / 100.0) * (1.0 + 0.01 * rng.normal());
            *if *in_kernel { &mut kernel } else { &mut user } += spent;
            // Whole samples are taken, and the fraction of one with its probability.
            let due = 100.0 * spent;
            let taken = due.floor() as i64 + i64::from(rng.uniform() < due.fract());
            if taken > 0 {
                let stack = vec![frame(symbol, *in_kernel), frame("main", false)];
                samples.push((k, Owner::Server, stack, taken * 10_000_000));
            }
        }
        samples.push((k, Owner::Recorder, vec![frame("read_ring", false)], 10_000_000));
        let ns = |share: f64| (share * second as f64) as i64;
        let times = ProcessTimes {
            user_ns: ns(user),
            kernel_ns: ns(user + kernel) - ns(user),
            total_ns: ns(user + kernel),
            processes: 1,
            threads: 1,
            ..ProcessTimes::default()
        };
        intervals.push(Interval {
            index: k,
            start_ns: START_NS + k as i64 * second,
            length_ns: second,
            machine: Modes {
                user_ns: times.user_ns,
                system_ns: times.kernel_ns,
                idle_ns: 2 * second - times.total_ns,
                ..Modes::default()
            },
            server: Some(times),
            threads: vec![ThreadTimes {
                pid: 7,
                tid: 7,
                name: "known".to_string(),
                total_ns: times.total_ns,
                user_ns: times.user_ns,
                kernel_ns: times.kernel_ns,
                wakes: 0,
            }],
            requests: rate,
            requests_ended: rate as u64,
            rate_valid: true,
            ..Interval::default()
        });
    }
    let mut manifest = Manifest { created_ns: START_NS, ..Manifest::default() };
    manifest.host.cpus = 2;
    manifest.server.name = "known".to_string();
    Made { manifest, intervals, samples, predictions: Vec::new() }
}
