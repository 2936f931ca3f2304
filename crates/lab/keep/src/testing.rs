//! Made trials for the tests of this crate.

use std::path::{Path, PathBuf};

use trial::{Interval, Manifest, Modes, ProcessTimes, ThreadTimes, Writer};

use crate::calendar::{DAY_S, Day, Zone};
use crate::files;

pub(crate) const SECOND_NS: i64 = 1_000_000_000;

/// What a made server does in an interval of this length: its rate follows the time of the day, and
/// each request costs it this many microseconds.
pub(crate) fn interval(index: u64, start_s: i64, length_s: i64, cost_us: f64) -> Interval {
    let phase = (start_s % DAY_S) as f64 / DAY_S as f64 * std::f64::consts::TAU;
    // Reproducible scatter of the cost, without which a line would be exact.
    let scatter = ((start_s / 10) as f64 * 1.7).sin() * 0.01;
    let rate = 4_000.0 + 3_000.0 * phase.sin();
    let requests = rate * length_s as f64;
    let total_ns = (requests * cost_us * 1e3 * (1.0 + scatter)) as i64 + length_s * 5_000_000;
    Interval {
        index,
        start_ns: start_s * SECOND_NS,
        length_ns: length_s * SECOND_NS,
        machine: Modes {
            user_ns: total_ns,
            idle_ns: 2 * length_s * SECOND_NS - total_ns,
            ..Modes::default()
        },
        server: Some(ProcessTimes {
            user_ns: total_ns,
            total_ns,
            processes: 1,
            threads: 1,
            voluntary_switches: requests as u64 / 10,
            ..ProcessTimes::default()
        }),
        threads: vec![ThreadTimes {
            pid: 1,
            tid: 1,
            name: "nginx".to_owned(),
            user_ns: total_ns,
            total_ns,
            wakes: requests as u64 / 10,
            ..ThreadTimes::default()
        }],
        requests: requests.round(),
        requests_ended: requests as u64,
        rate_valid: true,
        recorder_ns: 2_000_000,
        ..Interval::default()
    }
}

pub(crate) fn manifest(start_s: i64, length_s: i64, version: Option<&str>) -> Manifest {
    let mut manifest = Manifest { created_ns: start_s * SECOND_NS, ..Manifest::default() };
    manifest.host.hostname = "edge".to_owned();
    manifest.host.cpus = 2;
    manifest.server.name = "nginx".to_owned();
    manifest.server.version = version.map(str::to_owned);
    manifest.interval_ns = length_s * SECOND_NS;
    manifest
}

/// A trial of the first intervals of a day.
pub(crate) fn day_of(directory: &Path, day: Day, intervals: u64) -> PathBuf {
    part_of(directory, Zone::Fixed(0).begin_s(day), (intervals, 10), 50.0, Some("1.22"))
}

/// A trial that begins at an instant, of so many intervals of this length.
pub(crate) fn part_of(
    directory: &Path,
    start_s: i64,
    (intervals, length_s): (u64, i64),
    cost_us: f64,
    version: Option<&str>,
) -> PathBuf {
    let day = Zone::Fixed(0).day(start_s);
    let path = files::next(directory, "nginx", day).expect("a test can write its trials");
    let mut writer = Writer::create(&path, &manifest(start_s, length_s, version))
        .expect("a test can write its trials");
    let all = (0..intervals)
        .map(|index| interval(index, start_s + length_s * index as i64, length_s, cost_us));
    writer.append_many(&all.collect::<Vec<_>>()).expect("a test can write its trials");
    writer.finish().expect("a test can write its trials");
    path
}
