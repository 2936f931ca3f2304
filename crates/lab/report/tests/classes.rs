//! Costs by class, from a trial with known costs.

// A test that cannot generate its trial must fail.
#![allow(clippy::unwrap_used)]

use report::{Options, analyse, html, terminal};
use tempfile::TempDir;
use trial::classes::ClassRow;
use trial::{Interval, Manifest, Modes, ProcessTimes, Trial, Writer};

const SECOND_NS: i64 = 1_000_000_000;

/// Hits of 20 us and misses of 150 us, with a varying or constant hit ratio; half of all use TLS.
fn trial(hits_change: bool) -> (TempDir, Trial) {
    let home = TempDir::new().unwrap();
    let path = home.path().join("c.trial");
    let mut writer = Writer::create(&path, &Manifest::default()).unwrap();
    let mut seed = 1u64;
    for index in 0..300u64 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let noise = (seed >> 33) as f64 / f64::from(1u32 << 31) - 0.5;
        let rate = 1500.0 + 1000.0 * (index as f64 / 23.0).sin();
        let ratio = if hits_change { 0.6 + 0.3 * (index as f64 / 41.0).cos() } else { 0.6 };
        let (hits, misses) = (rate * ratio, rate * (1.0 - ratio));
        let used = 0.01 + 20e-6 * hits + 150e-6 * misses + 0.004 * noise;
        let total_ns = (used * 1e9) as i64;
        let row = |class: &str, requests: f64| ClassRow {
            interval: index,
            class: class.to_owned(),
            requests,
            ended: requests as u64,
            bytes: 1000.0 * requests,
        };
        let classes = [
            row("hit GET 1k-10k tls", hits / 2.0),
            row("hit GET 1k-10k plain", hits / 2.0),
            row("miss GET 1k-10k tls", misses / 2.0),
            row("miss GET 1k-10k plain", misses / 2.0),
        ];
        writer.classes(&classes).unwrap();
        let server = ProcessTimes {
            user_ns: total_ns / 2,
            kernel_ns: total_ns - total_ns / 2,
            total_ns,
            processes: 1,
            threads: 1,
            ..ProcessTimes::default()
        };
        let machine =
            Modes { user_ns: total_ns, idle_ns: 2 * SECOND_NS - total_ns, ..Modes::default() };
        let interval = Interval {
            index,
            start_ns: 1_769_860_800 * SECOND_NS + index as i64 * SECOND_NS,
            length_ns: SECOND_NS,
            machine,
            server: Some(server),
            requests: rate,
            requests_ended: rate as u64,
            rate_valid: true,
            ..Interval::default()
        };
        writer.append(&interval).unwrap();
    }
    writer.finish().unwrap();
    let trial = Trial::open(&path).unwrap();
    (home, trial)
}

#[test]
fn each_class_has_the_cost_it_was_generated_with() {
    let (_home, trial) = trial(true);
    let analysis = analyse(&trial, &Options::default()).unwrap();
    // The method and the size have one value each; TLS is proportional to the rate.
    let by: Vec<&str> = analysis.classes.iter().map(|table| table.by).collect();
    assert_eq!(by, ["outcome", "tls"]);
    let outcome = &analysis.classes[0];
    assert!(outcome.merged.is_empty());
    for (name, truth) in [("hit", 20.0), ("miss", 150.0)] {
        let row = outcome.rows.iter().find(|row| row.name == name).unwrap();
        assert!((row.us_low..=row.us_high).contains(&truth), "{row:?}");
        assert!(row.us_high - row.us_low < 10.0, "{row:?}");
    }
    let text = terminal(&analysis, 100);
    assert!(text.contains("Cost of a request by outcome"), "{text}");
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("cannot be separated: they rise and fall together"), "{text}");
    assert!(html(&analysis).contains("Cost of a request by TLS"));
}

#[test]
fn classes_with_constant_shares_are_merged() {
    let (_home, trial) = trial(false);
    let analysis = analyse(&trial, &Options::default()).unwrap();
    let outcome = &analysis.classes[0];
    assert_eq!(outcome.rows.len(), 1);
    assert!(outcome.rows[0].name.contains("hit") && outcome.rows[0].name.contains("miss"));
    let mean = 0.6 * 20.0 + 0.4 * 150.0;
    assert!((outcome.rows[0].us_low..=outcome.rows[0].us_high).contains(&mean), "{outcome:?}");
    assert!((outcome.mean_us / mean - 1.0).abs() < 0.05);
}
