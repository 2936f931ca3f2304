//! A trial reads back as it was written: during the recording, after its end and after reopening.

use crate::common::{interval, latency, loss, manifest, prediction};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};
use trial::{
    Amendment, CpuModes, Error, Finished, Interval, LatencySource, Modes, ProcessTimes,
    ThreadTimes, Trial, Writer,
};

#[test]
fn everything_round_trips() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("monday.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    writer
        .append_all(
            &interval(0),
            &[latency(0, LatencySource::Log), latency(0, LatencySource::Generator)],
            &[loss(2, "first")],
        )
        .unwrap();
    for index in 1..20 {
        writer.append(&interval(index)).unwrap();
    }
    writer.latency(&latency(1, LatencySource::Generator)).unwrap();
    writer.loss(&loss(3, "second")).unwrap();
    writer.prediction(&prediction()).unwrap();
    assert_eq!(writer.intervals(), 20);
    assert_eq!(writer.finish().unwrap(), Finished { complete: true, one_file: true });

    let trial = Trial::open(&path).unwrap();
    assert!(trial.complete());
    assert_eq!(trial.unfinished(), None);
    assert_eq!(trial.manifest(), &manifest());
    assert_eq!(trial.intervals(), (0..20).map(interval).collect::<Vec<_>>());
    assert_eq!(trial.losses(), [loss(5, "second")]);
    assert_eq!(trial.predictions(), [prediction()]);
    assert_eq!(
        trial.latencies(),
        [
            latency(0, LatencySource::Log),
            latency(0, LatencySource::Generator),
            latency(1, LatencySource::Generator)
        ]
    );
    let histogram = trial.latencies()[0].histogram_us().unwrap();
    assert_eq!((histogram.len(), histogram.min()), (3, 80));
    let beside: Vec<_> = std::fs::read_dir(home.path()).unwrap().collect();
    assert_eq!(beside.len(), 1, "one file at the end: {beside:?}");
}

#[test]
fn a_reader_reads_while_the_writer_writes() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("live.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    assert_eq!(Trial::open(&path).unwrap().intervals().len(), 0);
    for index in 0..5 {
        writer.append(&interval(index)).unwrap();
        let seen = Trial::open(&path).unwrap();
        assert_eq!(seen.intervals().len() as u64, index + 1);
        assert!(!seen.complete());
        assert!(seen.unfinished().unwrap().contains(&format!("{} complete intervals", index + 1)));
    }
    writer.finish().unwrap();
    assert!(Trial::open(&path).unwrap().complete());
}

#[test]
fn a_reader_always_succeeds_while_the_writer_writes() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("busy.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut last, mut opened) = (0, 0u32);
            while !done.load(Ordering::Relaxed) {
                let trial = Trial::open(&path).unwrap();
                let found = trial.intervals().len();
                assert!(found >= last, "{found} after {last}");
                assert_eq!(trial.intervals(), (0..found as u64).map(interval).collect::<Vec<_>>());
                last = found;
                opened += 1;
            }
            opened
        });
        for round in 0..8 {
            for index in 0..20 {
                writer.append(&interval(round * 20 + index)).unwrap();
            }
            assert!(writer.finish().unwrap().complete);
            writer = Writer::reopen(&path).unwrap();
        }
        assert!(writer.finish().unwrap().complete);
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
    assert_eq!(Trial::open(&path).unwrap().intervals().len(), 160);
}

#[test]
fn late_requests_are_added_to_their_interval() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("late.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    writer.append(&interval(0)).unwrap();
    writer.append(&interval(1)).unwrap();
    let amend = |interval, requests| Amendment { interval, requests, requests_ended: 2 };
    let row = latency(0, LatencySource::Log);
    writer.amend(&[amend(0, 0.5), amend(9, 1.0)], std::slice::from_ref(&row)).unwrap();
    assert!(matches!(writer.amend(&[amend(0, f64::NAN)], &[]), Err(Error::Refused { .. })));
    writer.finish().unwrap();
    let trial = Trial::open(&path).unwrap();
    let expected = Interval { requests: 1000.75, requests_ended: 1002, ..interval(0) };
    assert_eq!(trial.intervals(), [expected, interval(1)]);
    assert_eq!(trial.latencies(), [row]);
}

#[test]
fn a_reopened_trial_is_complete_again_only_after_finish() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("again.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    writer.append(&interval(0)).unwrap();
    writer.finish().unwrap();

    let mut writer = Writer::reopen(&path).unwrap();
    assert!(!Trial::open(&path).unwrap().complete());
    writer.latency(&latency(0, LatencySource::Generator)).unwrap();
    writer.set_phase(0, Some("saturation")).unwrap();
    assert!(matches!(writer.set_phase(7, None), Err(Error::Refused { .. })));
    let changed = trial::Manifest { notes: vec!["joined".to_owned()], ..manifest() };
    writer.set_manifest(&changed).unwrap();
    assert!(writer.finish().unwrap().complete);

    let trial = Trial::open(&path).unwrap();
    assert!(trial.complete());
    assert_eq!(trial.manifest(), &changed);
    assert_eq!(trial.intervals()[0].phase.as_deref(), Some("saturation"));
    assert_eq!(trial.latencies().len(), 1);
}

#[test]
fn reopening_does_not_make_an_unfinished_trial_complete() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("cut.trial");
    let mut writer = Writer::create(&path, &manifest()).unwrap();
    writer.append(&interval(0)).unwrap();
    drop(writer);
    let mut writer = Writer::reopen(&path).unwrap();
    writer.prediction(&prediction()).unwrap();
    assert_eq!(writer.finish().unwrap(), Finished { complete: false, one_file: true });
    let trial = Trial::open(&path).unwrap();
    assert!(!trial.complete());
    assert_eq!(trial.predictions().len(), 1);
}

#[test]
fn an_existing_file_is_replaced_only_on_request_and_only_if_it_is_a_trial() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("twice.trial");
    let mut first = Writer::create(&path, &manifest()).unwrap();
    first.append(&interval(0)).unwrap();
    first.finish().unwrap();
    assert!(matches!(Writer::create(&path, &manifest()), Err(Error::Exists { .. })));
    assert_eq!(Trial::open(&path).unwrap().intervals().len(), 1, "the refusal did not change it");

    Writer::replace(&path, &manifest()).unwrap().finish().unwrap();
    assert_eq!(Trial::open(&path).unwrap().intervals().len(), 0);

    let letter = home.path().join("letter.txt");
    std::fs::write(&letter, "Hello").unwrap();
    assert!(matches!(Writer::replace(&letter, &manifest()), Err(Error::NotATrial { .. })));
    assert_eq!(std::fs::read(&letter).unwrap(), b"Hello");
}

#[test]
fn duplicate_intervals_and_rates_that_are_not_numbers_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(home.path().join("a.trial"), &manifest()).unwrap();
    writer.append(&interval(0)).unwrap();
    assert!(matches!(writer.append(&interval(0)), Err(Error::Refused { .. })));
    let odd = Interval { requests: f64::NAN, ..interval(1) };
    assert!(matches!(writer.append(&odd), Err(Error::Refused { .. })));
    let large = Interval { requests_ended: u64::MAX, ..interval(1) };
    assert!(matches!(writer.append(&large), Err(Error::Refused { .. })));
    writer.append(&interval(1)).unwrap();
    assert_eq!(writer.intervals(), 2);
}

fn modes() -> impl Strategy<Value = Modes> {
    any::<[i64; 9]>().prop_map(|m| Modes {
        user_ns: m[0],
        nice_ns: m[1],
        system_ns: m[2],
        irq_ns: m[3],
        softirq_ns: m[4],
        idle_ns: m[5],
        iowait_ns: m[6],
        steal_ns: m[7],
        guest_ns: m[8],
    })
}

fn count() -> impl Strategy<Value = u64> {
    0..=i64::MAX as u64
}

fn server() -> impl Strategy<Value = ProcessTimes> {
    let numbers = (count(), count(), count(), proptest::option::of(count()));
    (any::<[i64; 3]>(), any::<[u32; 2]>(), numbers).prop_map(|(times, few, many)| ProcessTimes {
        user_ns: times[0],
        kernel_ns: times[1],
        total_ns: times[2],
        processes: few[0],
        threads: few[1],
        voluntary_switches: many.0,
        involuntary_switches: many.1,
        rss_bytes: many.2,
        descriptors: many.3,
    })
}

fn thread() -> impl Strategy<Value = ThreadTimes> {
    (any::<[u32; 2]>(), ".{0,15}", any::<[i64; 3]>(), count()).prop_map(|(ids, name, t, wakes)| {
        ThreadTimes {
            pid: ids[0],
            tid: ids[1],
            name,
            total_ns: t[0],
            user_ns: t[1],
            kernel_ns: t[2],
            wakes,
        }
    })
}

fn any_interval() -> impl Strategy<Value = Interval> {
    let cpus = proptest::collection::btree_map(0..64u32, modes(), 0..4);
    let parts = (modes(), proptest::option::of(server()), cpus);
    let threads = proptest::collection::vec(thread(), 0..4);
    let requests = (-1e12..1e12f64, count(), any::<bool>(), proptest::option::of(".{0,20}"));
    (any::<[i64; 3]>(), parts, threads, requests).prop_map(|(times, parts, threads, requests)| {
        let cpus = parts.2.into_iter().map(|(cpu, modes)| CpuModes { cpu, modes }).collect();
        Interval {
            index: 0,
            start_ns: times[0],
            length_ns: times[1],
            machine: parts.0,
            server: parts.1,
            cpus,
            threads,
            requests: requests.0,
            requests_ended: requests.1,
            rate_valid: requests.2,
            phase: requests.3,
            recorder_ns: times[2],
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24, failure_persistence: None, ..Default::default()
    })]

    #[test]
    fn any_interval_round_trips(mut intervals in proptest::collection::vec(any_interval(), 0..5)) {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("any.trial");
        let mut writer = Writer::create(&path, &manifest()).unwrap();
        for (index, interval) in intervals.iter_mut().enumerate() {
            // Numbers with gaps, as after losses.
            interval.index = index as u64 * 3;
            writer.append(interval).unwrap();
        }
        writer.finish().unwrap();
        let trial = Trial::open(&path).unwrap();
        prop_assert_eq!(trial.intervals(), intervals.as_slice());
    }
}
