//! Thinning loses no count, and joining and cutting lose no interval.

use proptest::prelude::*;
use trial::classes::ClassRow;
use trial::resources::{Device, DeviceKind, DeviceUse};
use trial::{
    CpuModes, Error, Histogram, Interval, LatencyRow, LatencySource, Loss, Manifest, Modes,
    ProcessTimes, ThreadTimes, Trial, Writer,
};

const SECOND_NS: i64 = 1_000_000_000;
const MINUTE_NS: i64 = 60 * SECOND_NS;
/// A whole number of days since the epoch.
const MIDNIGHT_NS: i64 = 20_000 * 1440 * MINUTE_NS;

/// What one interval of ten seconds has.
#[derive(Clone, Debug)]
struct Ten {
    requests: u32,
    cpu_ns: u32,
    latency_us: u64,
    thread: u32,
    gap: bool,
    valid: bool,
}

fn ten() -> impl Strategy<Value = Ten> {
    let numbers = (0..1u32 << 20, 0..1u32 << 30, 1..1u64 << 40, 0..3u32);
    (numbers, prop::bool::weighted(0.05), prop::bool::weighted(0.95)).prop_map(
        |((requests, cpu_ns, latency_us, thread), gap, valid)| Ten {
            requests,
            cpu_ns,
            latency_us,
            thread,
            gap,
            valid,
        },
    )
}

fn interval(index: u64, start_ns: i64, ten: &Ten) -> Interval {
    let cpu_ns = i64::from(ten.cpu_ns);
    let machine = Modes { user_ns: cpu_ns, idle_ns: 1, ..Modes::default() };
    Interval {
        index,
        start_ns,
        length_ns: 10 * SECOND_NS,
        machine,
        server: Some(ProcessTimes {
            user_ns: cpu_ns,
            total_ns: cpu_ns,
            voluntary_switches: u64::from(ten.requests),
            rss_bytes: index,
            ..ProcessTimes::default()
        }),
        cpus: vec![CpuModes { cpu: ten.thread, modes: machine }],
        threads: vec![ThreadTimes {
            tid: ten.thread,
            name: format!("worker-{}", ten.thread),
            total_ns: cpu_ns,
            wakes: 1,
            ..ThreadTimes::default()
        }],
        // A half is exact in binary, however many are added.
        requests: f64::from(ten.requests) + 0.5,
        requests_ended: u64::from(ten.requests),
        rate_valid: ten.valid,
        recorder_ns: 7,
        ..Interval::default()
    }
}

/// A trial of these intervals, the first at midnight.
fn made(tens: &[Ten], home: &std::path::Path, name: &str) -> Trial {
    let manifest = Manifest { created_ns: MIDNIGHT_NS, ..Manifest::default() };
    let path = home.join(name);
    let mut writer = Writer::create(&path, &manifest).unwrap();
    let (mut index, mut start_ns) = (0, MIDNIGHT_NS);
    for ten in tens {
        if ten.gap {
            (index, start_ns) = (index + 3, start_ns + 30 * SECOND_NS);
        }
        let class = |name: &str| ClassRow {
            interval: index,
            class: name.to_owned(),
            requests: f64::from(ten.requests),
            ended: u64::from(ten.requests),
            bytes: 2.0,
        };
        writer.classes(&[class("hit GET 1k-10k -")]).unwrap();
        let device = Device {
            kind: DeviceKind::Disk,
            name: "sda".to_owned(),
            bytes_per_s: None,
            one_at_a_time: false,
        };
        let (busy_ns, bytes) = (Some(i64::from(ten.cpu_ns)), u64::from(ten.requests));
        writer.device_uses(&[DeviceUse {
            interval: index,
            device,
            busy_ns,
            in_bytes: bytes,
            out_bytes: 1,
            in_count: 1,
            out_count: 1,
        }]);
        let mut histogram = Histogram::new(2).unwrap();
        histogram.record(ten.latency_us).unwrap();
        let latency = LatencyRow::new(index, LatencySource::Log, false, &histogram);
        writer.append_all(&interval(index, start_ns, ten), &[latency], &[]).unwrap();
        (index, start_ns) = (index + 1, start_ns + 10 * SECOND_NS);
    }
    writer.loss(&Loss { kind: "log".to_owned(), count: 2, note: String::new() }).unwrap();
    writer.finish().unwrap();
    Trial::open(&path).unwrap()
}

/// All that thinning must not change.
fn totals(trial: &Trial) -> (f64, Vec<i128>, Vec<(u64, u64)>) {
    let mut sums = vec![0i128; 14];
    for one in trial.intervals() {
        let server = one.server.unwrap();
        let cpus: i64 = one.cpus.iter().map(|cpu| cpu.modes.total_ns()).sum();
        let threads: i64 = one.threads.iter().map(|thread| thread.total_ns).sum();
        let wakes: u64 = one.threads.iter().map(|thread| thread.wakes).sum();
        let of_valid = if one.rate_valid { one.length_ns } else { 0 };
        let numbers = [
            i128::from(one.length_ns),
            i128::from(of_valid),
            i128::from(one.machine.total_ns()),
            i128::from(server.total_ns),
            i128::from(server.voluntary_switches),
            i128::from(cpus),
            i128::from(threads),
            i128::from(wakes),
            i128::from(one.requests_ended),
            i128::from(one.recorder_ns),
        ];
        sums.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number);
    }
    sums[10] = trial.classes().iter().map(|row| i128::from(row.ended)).sum();
    sums[11] = trial.device_uses().iter().map(|row| i128::from(row.in_bytes)).sum();
    sums[12] = trial.device_uses().iter().map(|row| i128::from(row.busy_ns.unwrap())).sum();
    sums[13] = trial.losses().iter().map(|loss| i128::from(loss.count)).sum();
    let mut latencies = Histogram::<u64>::new(2).unwrap();
    for row in trial.latencies() {
        latencies.add(row.histogram_us().unwrap()).unwrap();
        assert_eq!(row.count, row.histogram_us().unwrap().len());
    }
    let counts = latencies.iter_recorded();
    let counts = counts.map(|one| (one.value_iterated_to(), one.count_at_value())).collect();
    (trial.intervals().iter().map(|one| one.requests).sum(), sums, counts)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40, failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn thinning_keeps_every_total(tens in prop::collection::vec(ten(), 1..60)) {
        let home = tempfile::tempdir().unwrap();
        let fine = made(&tens, home.path(), "fine.trial");
        let before = totals(&fine);
        let minutes = fine.clone().thinned(MINUTE_NS);
        prop_assert_eq!(totals(&minutes), before.clone());
        prop_assert!(minutes.intervals().len() <= fine.intervals().len());
        for pair in minutes.intervals().windows(2) {
            prop_assert!(pair[0].index < pair[1].index);
            prop_assert!(pair[0].start_ns + pair[0].length_ns <= pair[1].start_ns);
        }
        prop_assert!(minutes.intervals().iter().all(|one| one.length_ns <= MINUTE_NS));
        // Thinned twice is thinned once, through a file or not.
        let path = home.path().join("minutes.trial");
        minutes.write_thinned(&path).unwrap();
        let read = Trial::open(&path).unwrap();
        prop_assert!(read.complete());
        prop_assert_eq!(totals(&read), before.clone());
        let (twice, once) = (read.thinned(5 * MINUTE_NS), fine.thinned(5 * MINUTE_NS));
        prop_assert_eq!(totals(&twice), before);
        let starts = |trial: &Trial| {
            trial.intervals().iter().map(|one| (one.start_ns, one.requests)).collect::<Vec<_>>()
        };
        prop_assert_eq!(starts(&twice), starts(&once));
    }

    #[test]
    fn cut_and_joined_is_the_same(tens in prop::collection::vec(ten(), 2..40), at in 0..400i64) {
        let home = tempfile::tempdir().unwrap();
        let whole = made(&tens, home.path(), "whole.trial");
        let border_ns = MIDNIGHT_NS + at * SECOND_NS;
        let one = whole.clone().between(i64::MIN, border_ns);
        let other = whole.clone().between(border_ns, i64::MAX);
        let joined = Trial::joined(vec![other, one], "both").unwrap();
        let (mut before, mut after) = (totals(&whole), totals(&joined));
        // Each part has the losses of the whole.
        prop_assert_eq!(after.1.pop().unwrap(), 2 * before.1.pop().unwrap());
        prop_assert_eq!(after, before);
        prop_assert_eq!(joined.path(), std::path::Path::new("both"));
    }
}

#[test]
fn a_full_hour_of_ten_seconds_is_twelve_intervals_of_five_minutes() {
    let home = tempfile::tempdir().unwrap();
    let ten = Ten { requests: 9, cpu_ns: 5, latency_us: 3, thread: 0, gap: false, valid: true };
    let fine = made(&vec![ten; 360], home.path(), "hour.trial");
    let coarse = fine.thinned(5 * MINUTE_NS);
    assert_eq!(coarse.intervals().len(), 12);
    assert_eq!(coarse.manifest().interval_ns, 5 * MINUTE_NS);
    // A gauge has its last value.
    assert_eq!(coarse.intervals()[0].server.unwrap().rss_bytes, 29);
    assert!(Trial::joined(Vec::new(), "none").is_none());
}

#[test]
fn what_was_synced_survives_without_the_journal() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a.trial");
    let mut writer = Writer::create(&path, &Manifest::default()).unwrap();
    let ten = Ten { requests: 1, cpu_ns: 1, latency_us: 1, thread: 0, gap: false, valid: true };
    writer.append(&interval(0, 0, &ten)).unwrap();
    writer.sync().unwrap();
    writer.append(&interval(1, 10 * SECOND_NS, &ten)).unwrap();
    // The file alone is what a disk has at worst.
    let copy = home.path().join("copy.trial");
    std::fs::copy(&path, &copy).unwrap();
    let kept = Trial::open(&copy).unwrap();
    assert_eq!((kept.intervals().len(), kept.complete()), (1, false));
    assert!(matches!(Trial::open(home.path().join("b.trial")), Err(Error::Missing { .. })));
}
