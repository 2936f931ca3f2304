//! A synthetic trial at one-second intervals with everything that can be recorded.

use regress::Rng;
use trial::classes::ClassRow;
use trial::files::{Delays, Direction, FileRow};
use trial::profile::{Frame, FrameMode, Owner, ProfileInfo, SampleRow, Stack};
use trial::waits::{LockKind, WaitRow};
use trial::{
    Capability, CpuModes, Histogram, Interval, LatencyRow, LatencySource, Manifest, Modes,
    ProcessTimes, ThreadTimes, Writer,
};

const SECOND_NS: i64 = 1_000_000_000;
/// nginx under load, recorded for 38 s, had 382 stacks of 537 procedures with a mean depth of 25.
const FRAMES: u32 = 1_500;
const STACKS: u32 = 6_000;
const DEPTH: usize = 30;
const CPUS: u32 = 4;
const WORKERS: u32 = 4;
const HZ: f64 = 99.0;
const SAMPLE_NS: i64 = 10_101_010;
/// Stacks with lock waits, and the number of them per second.
const PLACES: u64 = 300;
const WAITS_PER_INTERVAL: u64 = 30;
const CLASSES: [&str; 12] = [
    "hit GET 1k-10k tls",
    "hit GET 10k-100k tls",
    "hit GET 100-1k tls",
    "miss GET 1k-10k tls",
    "miss GET 10k-100k tls",
    "miss GET 100-1k tls",
    "revalidated GET 1k-10k tls",
    "error GET 100-1k tls",
    "miss POST 100-1k tls",
    "hit HEAD - tls",
    "hit GET 1k-10k -",
    "miss GET 1k-10k -",
];

/// A number below `end`, small ones much more often, like the frequencies of stacks.
fn skewed(rng: &mut Rng, end: u64) -> u64 {
    ((rng.uniform().powi(3) * end as f64) as u64).min(end - 1)
}

fn stacks(writer: &mut Writer, rng: &mut Rng) -> Vec<u32> {
    let frames: Vec<u32> = (0..FRAMES)
        .map(|number| {
            let kernel = number % 2 == 0;
            let (module, mode) = match kernel {
                true => ("[kernel]", FrameMode::Kernel),
                false => ("nginx", FrameMode::User),
            };
            let symbol = Some(format!("ngx_http_a_procedure_of_the_server_{number}"));
            writer.frame(&Frame { symbol, module: module.to_string(), mode }).unwrap()
        })
        .collect();
    (0..STACKS)
        .map(|_| {
            let depth = DEPTH / 2 + rng.below(DEPTH);
            let mut called: Vec<u32> =
                (0..depth).map(|_| frames[skewed(rng, FRAMES.into()) as usize]).collect();
            called.push(frames[1]);
            writer.stack(&Stack { frames: called, whole: true }).unwrap()
        })
        .collect()
}

fn samples(interval: u64, busy: f64, stacks: &[u32], rng: &mut Rng) -> Vec<SampleRow> {
    let row = |owner, stack| SampleRow { interval, owner, stack, samples: 1, ns: SAMPLE_NS };
    let mut rows: Vec<SampleRow> = (0..(busy * HZ) as u64)
        .map(|_| row(Owner::Server, stacks[skewed(rng, STACKS.into()) as usize]))
        .collect();
    rows.push(row(Owner::Recorder, stacks[0]));
    rows.extend((0..20).map(|_| row(Owner::Other, stacks[skewed(rng, 200) as usize])));
    rows
}

fn waits(interval: u64, stacks: &[u32], rng: &mut Rng) -> Vec<WaitRow> {
    let row = |_| WaitRow {
        interval,
        kind: if rng.uniform() < 0.5 { LockKind::Spin } else { LockKind::Futex },
        owner: Owner::Server,
        stack: stacks[skewed(rng, PLACES) as usize],
        word: None,
        waits: 1 + rng.below(50) as u64,
        total_ns: 20_000 + rng.below(1_000_000) as i64,
        max_ns: 15_000,
        spun_ns: 10_000,
        timed_out: 0,
    };
    (0..WAITS_PER_INTERVAL).map(row).collect()
}

fn latency(interval: u64, requests: f64, rng: &mut Rng) -> LatencyRow {
    let mut histogram: Histogram<u64> = Histogram::new(3).unwrap();
    for _ in 0..400 {
        let us = 150.0 * (1.0 - rng.uniform()).powf(-0.7);
        histogram.record_n(us as u64, (requests / 400.0) as u64 + 1).unwrap();
    }
    LatencyRow::new(interval, LatencySource::Log, false, &histogram)
}

fn interval(index: u64, rate: f64, busy: f64) -> Interval {
    let ns = |seconds: f64| (seconds * SECOND_NS as f64) as i64;
    let part = |of: f64| {
        let total_ns = ns(of);
        (total_ns * 2 / 5, total_ns - total_ns * 2 / 5, total_ns)
    };
    let (user_ns, kernel_ns, total_ns) = part(busy);
    let machine = Modes {
        user_ns,
        system_ns: kernel_ns,
        idle_ns: i64::from(CPUS) * SECOND_NS - total_ns,
        ..Modes::default()
    };
    let threads = (0..WORKERS).map(|worker| {
        let (user_ns, kernel_ns, total_ns) = part(busy / f64::from(WORKERS));
        let (tid, name) = (100 + worker, "nginx".to_string());
        ThreadTimes { pid: 100, tid, name, total_ns, user_ns, kernel_ns, wakes: 3_000 }
    });
    Interval {
        index,
        start_ns: 1_769_860_800 * SECOND_NS + index as i64 * SECOND_NS,
        length_ns: SECOND_NS,
        machine,
        server: Some(ProcessTimes {
            user_ns,
            kernel_ns,
            total_ns,
            processes: 1,
            threads: WORKERS,
            voluntary_switches: 12_000,
            rss_bytes: 50_000_000,
            descriptors: Some(1_000),
            ..ProcessTimes::default()
        }),
        cpus: (0..CPUS).map(|cpu| CpuModes { cpu, modes: machine }).collect(),
        threads: threads.collect(),
        requests: rate,
        requests_ended: rate as u64,
        rate_valid: true,
        recorder_ns: 8_000_000,
        ..Interval::default()
    }
}

fn files() -> Vec<FileRow> {
    let mut histogram: Histogram<u64> = Histogram::new(2).unwrap();
    (0..400).for_each(|at| histogram.record_n(4_000 + 90 * at, 50).unwrap());
    let row = |bin: u64| FileRow {
        direction: Direction::Read,
        size_from: bin << 10,
        size_below: Some((bin + 1) << 10),
        objects: 20_000,
        calls: 40_000,
        bytes: 20_000 * (bin << 10),
        open_ns: 90_000_000,
        first_ns: 80_000_000,
        rest_ns: 70_000_000 * bin as i64,
        close_ns: 20_000_000,
        elapsed_ns: 900_000_000,
        needless: 0,
        after_short: 0,
        needless_objects: 0,
        needless_ns: 0,
        first: Delays::new(&histogram),
        total: Delays::new(&histogram),
    };
    (0..64).map(row).collect()
}

/// Writes this many seconds of it; the rate rises and falls once.
pub(crate) fn write(path: &std::path::Path, intervals: u64) {
    let mut rng = Rng::new(1998);
    let mut manifest = Manifest { interval_ns: SECOND_NS, ..Manifest::default() };
    manifest.host.cpus = CPUS;
    manifest.server.name = "nginx".to_string();
    for name in ["locks", "file anatomy"] {
        let (name, reason) = (name.to_string(), "made up".to_string());
        manifest.capabilities.push(Capability { name, supported: true, reason });
    }
    let mut writer = Writer::create(path, &manifest).unwrap();
    let stacks = stacks(&mut writer, &mut rng);
    for index in 0..intervals {
        let phase = index as f64 / intervals as f64 * std::f64::consts::TAU;
        let rate = 40_000.0 * (1.0 - 0.8 * phase.cos()) * (1.0 + 0.05 * rng.normal());
        let busy = (0.05 + 24.0e-6 * rate) * (1.0 + 0.02 * rng.normal());
        writer.samples(&samples(index, busy, &stacks, &mut rng)).unwrap();
        writer.waits(&waits(index, &stacks, &mut rng)).unwrap();
        let class = |(at, class): (usize, &&str)| ClassRow {
            interval: index,
            class: (*class).to_string(),
            requests: rate / (at + 2) as f64 * (1.0 + 0.1 * rng.normal()),
            ended: (rate / (at + 2) as f64) as u64,
            bytes: 8_000.0 * rate,
        };
        let classes: Vec<ClassRow> = CLASSES.iter().enumerate().map(class).collect();
        writer.classes(&classes).unwrap();
        writer.files(files().into_iter().step_by(1 + (index % 3) as usize).collect());
        let latency = latency(index, rate, &mut rng);
        writer.append_all(&interval(index, rate, busy), &[latency], &[]).unwrap();
    }
    let info = ProfileInfo { event: "cpu-clock".into(), hz: 99, ..ProfileInfo::default() };
    writer.profile_info(&info).unwrap();
    writer.finish().unwrap();
}
