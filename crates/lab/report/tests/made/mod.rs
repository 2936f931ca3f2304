//! Trials generated from known lines, without a server or a network, the same on every machine.

// A test that cannot generate its trial must fail.
#![allow(clippy::unwrap_used)]

use tempfile::TempDir;
use trial::{
    Capability, Histogram, Interval, LatencyRow, LatencySource, Loss, Manifest, Modes, Prediction,
    ProcessTimes, ThreadTimes, Trial, Writer,
};

/// 2026-01-31 12:00:00 UTC.
const START_NS: i64 = 1_769_860_800_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;

/// A trial to be written; `open` writes it to a file and reads it back.
pub(crate) struct Made {
    pub(crate) manifest: Manifest,
    pub(crate) intervals: Vec<Interval>,
    pub(crate) latencies: Vec<LatencyRow>,
    pub(crate) losses: Vec<Loss>,
    pub(crate) predictions: Vec<Prediction>,
}

impl Made {
    pub(crate) fn open(&self, name: &str) -> (TempDir, Trial) {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join(name);
        let mut writer = Writer::create(&path, &self.manifest).unwrap();
        for interval in &self.intervals {
            writer.append(interval).unwrap();
        }
        self.latencies.iter().for_each(|row| writer.latency(row).unwrap());
        self.losses.iter().for_each(|loss| writer.loss(loss).unwrap());
        self.predictions.iter().for_each(|kept| writer.prediction(kept).unwrap());
        writer.finish().unwrap();
        let trial = Trial::open(&path).unwrap();
        (directory, trial)
    }
}

/// Reproducible noise: a linear congruential generator, with sums of four for a bell curve.
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Noise {
        Noise(seed)
    }

    fn uniform(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Mean 0, at most 1 in magnitude.
    fn bounded(&mut self) -> f64 {
        (std::f64::consts::TAU * self.uniform()).sin()
    }

    /// Mean 0, sd about 1, at most 3.5 in magnitude.
    pub(crate) fn bell(&mut self) -> f64 {
        (0..4).map(|_| self.uniform() - 0.5).sum::<f64>() * 3f64.sqrt()
    }
}

/// The old kernel of 1998 under Squid: 96 samples of 15 minutes on one CPU, with exactly the
/// published slopes (user 0.64, kernel 1.05, so idle -1.69) and an idle line that meets zero at 55.
/// User and kernel time also have the published correlations.
pub(crate) fn published_1998() -> Made {
    let n = 96;
    // A day: quiet at night, busy in the afternoon.
    let day = |k: usize| (std::f64::consts::TAU * (k as f64 - 34.0) / n as f64).sin();
    let rates: Vec<f64> = (0..n).map(|k| 25.5 + 17.5 * day(k)).collect();
    let mut noise = Noise::new(1998);
    let user = line_with(&rates, 3.5, 0.64, 0.85, &mut noise);
    let kernel = line_with(&rates, 3.5, 1.05, 0.94, &mut noise);
    let intervals = (0..n).map(|k| {
        let length_ns = 900 * SECOND_NS;
        let ns = |percent: f64| (percent / 100.0 * length_ns as f64).round() as i64;
        let machine = Modes {
            user_ns: ns(user[k]),
            system_ns: ns(kernel[k]),
            idle_ns: ns(100.0 - user[k] - kernel[k]),
            ..Modes::default()
        };
        Interval {
            index: k as u64,
            start_ns: START_NS + k as i64 * length_ns,
            length_ns,
            machine,
            requests: rates[k] * 900.0,
            requests_ended: (rates[k] * 900.0) as u64,
            rate_valid: true,
            ..Interval::default()
        }
    });
    let mut manifest = Manifest { created_ns: START_NS, ..manifest("Squid 1.1.20Mod") };
    manifest.tool_version = "1998".to_string();
    manifest.interval_ns = 900 * SECOND_NS;
    manifest.host.cpus = 1;
    manifest.host.cpu_model = "Alpha 21164A, 500 MHz".to_string();
    Made {
        manifest,
        intervals: intervals.collect(),
        latencies: Vec::new(),
        losses: Vec::new(),
        predictions: Vec::new(),
    }
}

/// `a + b·x` plus noise orthogonal to both, with the size that makes the correlation `r`.
fn line_with(x: &[f64], a: f64, b: f64, r: f64, noise: &mut Noise) -> Vec<f64> {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let spread: f64 = x.iter().map(|v| (v - mean).powi(2)).sum();
    // Bounded, so that no mode is negative at night.
    let raw: Vec<f64> = x.iter().map(|_| noise.bounded()).collect();
    let level = raw.iter().sum::<f64>() / n;
    let tilt = raw.iter().zip(x).map(|(e, v)| e * (v - mean)).sum::<f64>() / spread;
    let rest: Vec<f64> = raw.iter().zip(x).map(|(e, v)| e - level - tilt * (v - mean)).collect();
    let size: f64 = rest.iter().map(|e| e * e).sum();
    let wanted = b * b * spread * (1.0 - r * r) / (r * r);
    let scale = (wanted / size).sqrt();
    x.iter().zip(&rest).map(|(v, e)| a + b * v + scale * e).collect()
}

/// A current server on the second of two CPUs, with the load generator on the first: a ramp to 80 %
/// of its thread, then saturation, with wakes, latencies, losses and an edge of unknown rate.
pub(crate) fn ramp_and_saturation(server: &str) -> Made {
    let mut noise = Noise::new(7);
    let (mut intervals, mut latencies) = (Vec::new(), Vec::new());
    for k in 0..72u64 {
        let (phase, share) = match k {
            0..4 => (Some("warm-up"), 0.3),
            4..64 => (None, (k - 3) as f64 / 60.0),
            _ => (Some("saturation"), 1.24),
        };
        let rate = 62_000.0 * share * (1.0 + 0.004 * noise.bell());
        // The busier the thread, the less often it sleeps.
        let wakes = if share > 1.0 { 40.0 } else { 5_200.0 * share * (1.05 - share) + 120.0 };
        let used = 0.012 + 12.4e-6 * rate + 14.0e-6 * wakes + 0.004 * noise.bell();
        // One interval in which another process ran on the server's CPU.
        let used = if k == 31 { used + 0.17 } else { used }.min(0.999);
        intervals.push(busy_second(k, rate, wakes, used, phase));
        latencies.push(latency_row(k, rate, used, k == 40));
    }
    intervals[71].rate_valid = false;
    Made {
        manifest: manifest(server),
        intervals,
        latencies,
        losses: vec![
            Loss {
                kind: "log: line not understood".to_string(),
                count: 3,
                note: "the last one began with \"::1 - -\"".to_string(),
            },
            Loss {
                kind: "interval late by more than 10 %".to_string(),
                count: 1,
                note: "interval 31".to_string(),
            },
        ],
        predictions: vec![Prediction {
            name: "demo".to_string(),
            made_at_ns: START_NS + 66 * SECOND_NS,
            quantity: "capacity requests/s".to_string(),
            value: 78_900.0,
            low: Some(73_800.0),
            high: Some(84_600.0),
            level: 0.95,
            model: "wakes".to_string(),
        }],
    }
}

fn busy_second(k: u64, rate: f64, wakes: f64, used: f64, phase: Option<&str>) -> Interval {
    let ns = |share: f64| (share * SECOND_NS as f64).round() as i64;
    let (total_ns, user_ns) = (ns(used), ns(0.34 * used));
    let kernel_ns = total_ns - user_ns;
    let generator = (0.30 + rate * 4.1e-6).min(1.0);
    let machine = Modes {
        user_ns: user_ns + ns(0.4 * generator),
        system_ns: kernel_ns + ns(0.5 * generator),
        softirq_ns: ns(0.1 * generator),
        idle_ns: ns(2.0 - used - generator).max(0),
        ..Modes::default()
    };
    let thread = |tid, name: &str, total_ns, user_ns, kernel_ns, wakes| ThreadTimes {
        pid: 4711,
        tid,
        name: name.to_string(),
        total_ns,
        user_ns,
        kernel_ns,
        wakes,
    };
    Interval {
        index: k,
        start_ns: START_NS + k as i64 * SECOND_NS,
        length_ns: SECOND_NS,
        machine,
        server: Some(ProcessTimes {
            user_ns,
            kernel_ns,
            total_ns,
            processes: 1,
            threads: 2,
            voluntary_switches: wakes as u64,
            ..ProcessTimes::default()
        }),
        cpus: Vec::new(),
        threads: vec![
            thread(4711, "plimsoll", 0, 0, 0, 1),
            thread(4712, "worker-0", total_ns, user_ns, kernel_ns, wakes as u64),
        ],
        requests: rate,
        requests_ended: rate as u64,
        rate_valid: true,
        phase: phase.map(str::to_string),
        recorder_ns: 900_000,
    }
}

/// Waiting grows as 1/(1 - use), and one in a hundred requests is slow.
fn latency_row(k: u64, rate: f64, used: f64, invalid: bool) -> LatencyRow {
    let mut histogram: Histogram<u64> = Histogram::new(3).unwrap();
    let mean_us = 48.0 / (1.02 - used);
    for percentile in 0..200 {
        let share = (f64::from(percentile) + 0.5) / 200.0;
        let us = 40.0 - mean_us * (1.0 - share).ln();
        histogram.record_n(us as u64, (rate / 200.0) as u64).unwrap();
    }
    histogram.record((mean_us * 14.0) as u64 + 900 * (k % 7)).unwrap();
    LatencyRow::new(k, LatencySource::Generator, invalid, &histogram)
}

/// The same server at only a sixth of its load.
pub(crate) fn far_from_the_cap() -> Made {
    let mut made = ramp_and_saturation("plimsoll");
    made.intervals.retain(|interval| interval.phase.is_none() && interval.rate() < 14_000.0);
    made.latencies.retain(|row| row.interval < 17);
    for interval in &mut made.intervals {
        interval.phase = None;
    }
    made
}

/// Two workers, one of which does more, recorded long enough that points are thinned.
pub(crate) fn two_workers() -> Made {
    let mut made = ramp_and_saturation("nginx");
    let mut noise = Noise::new(3);
    made.losses.clear();
    made.latencies.clear();
    made.intervals = (0..1_300u64)
        .map(|k| {
            let swing = (std::f64::consts::TAU * k as f64 / 1_300.0).sin();
            let rate = 20_000.0 * (1.0 + 0.8 * swing) * (1.0 + 0.05 * noise.bell());
            let used = 0.01 + 15.0e-6 * rate + 0.01 * noise.bell();
            let mut interval = busy_second(k, rate, 800.0 - 0.01 * rate, used.max(0.001), None);
            let mut second = interval.threads[1].clone();
            second.tid += 1;
            second.total_ns = second.total_ns * 7 / 10;
            second.user_ns = second.total_ns / 3;
            second.kernel_ns = second.total_ns - second.user_ns;
            let server = interval.server.as_mut().unwrap();
            server.total_ns += second.total_ns;
            server.user_ns += second.user_ns;
            server.kernel_ns += second.kernel_ns;
            interval.threads.push(second);
            interval
        })
        .collect();
    made
}

/// A rate that hardly varies, with latencies from the server's log that exceed the objective.
pub(crate) fn flat() -> Made {
    let mut made = published_1998();
    for (k, interval) in made.intervals.iter_mut().enumerate() {
        interval.requests = 900.0 * (30.0 + 0.01 * (k % 7) as f64);
        let mut histogram: Histogram<u64> = Histogram::new(3).unwrap();
        histogram.record_n(250_000 + 1_000 * k as u64, 40).unwrap();
        made.latencies.push(LatencyRow::new(k as u64, LatencySource::Log, false, &histogram));
    }
    made
}

pub(crate) fn manifest(server: &str) -> Manifest {
    let mut manifest = Manifest {
        created_ns: START_NS,
        tool_version: "0.1.0".to_string(),
        interval_ns: SECOND_NS,
        log_path: Some("access.log".to_string()),
        log_format: Some("squid".to_string()),
        notes: vec!["load and origin on CPU 0, the server on CPU 1".to_string()],
        ..Manifest::default()
    };
    manifest.host.hostname = "bench".to_string();
    manifest.host.kernel = "Linux 6.1.0".to_string();
    manifest.host.cpus = 2;
    manifest.host.cpu_model = "a model".to_string();
    manifest.host.memory_bytes = 8 << 30;
    manifest.server.name = server.to_string();
    manifest.server.pid = Some(4711);
    manifest.server.command_line =
        "plimsoll serve --listen 127.0.0.1:8080 --origin http://127.0.0.1:9000".to_string();
    manifest.capabilities = vec![
        Capability {
            name: "thread cpu time".to_string(),
            supported: true,
            reason: "nanoseconds, /proc/PID/task/TID/schedstat".to_string(),
        },
        Capability {
            name: "cycles".to_string(),
            supported: false,
            reason: "the counter reads 0 after a known loop".to_string(),
        },
    ];
    manifest
}
