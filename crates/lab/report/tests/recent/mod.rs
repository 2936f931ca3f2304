//! The figures of the last intervals are those of the analysis.

use crate::made;
use report::{Groups, Options, Recent};
use trial::Trial;

fn last(trial: &Trial, intervals: usize) -> Recent {
    let end = Trial::recent(trial.path(), intervals).unwrap();
    report::recent(&end, &Groups::default()).unwrap()
}

#[test]
fn rates_and_use_are_those_of_the_intervals() {
    let (_home, trial) = made::ramp_and_saturation("squid").open("squid.trial");
    let whole = report::analyse(&trial, &Options::default()).unwrap();
    let found = last(&trial, 12);
    assert_eq!((found.intervals, found.interval, found.complete), (12, 71, true));
    let rows = &whole.intervals[60..];
    let rates: Vec<f64> = rows.iter().map(|row| row.rate).collect();
    assert_eq!(found.rate.each, rates);
    assert!((found.rate.mean - rates.iter().sum::<f64>() / 12.0).abs() < 1e-6);
    assert_eq!(found.rate.peak, rates.iter().copied().fold(0.0, f64::max));
    assert_eq!(found.rate.now, rates[11]);
    assert!(!found.rate.known, "the last interval's rate was not to be used");
    let used = &found.resources[0];
    assert_eq!(used.kind, whole.resources[0].kind);
    let busy: Vec<f64> = rows.iter().map(|row| row.user.unwrap() + row.kernel.unwrap()).collect();
    assert!((used.now_percent - busy[11]).abs() < 1e-9);
    assert!((used.mean_percent - busy.iter().sum::<f64>() / 12.0).abs() < 1e-9);
    let modes = found.machine.unwrap();
    let all = modes.user + modes.kernel + modes.idle + modes.steal;
    assert!((all - 100.0).abs() < 1e-9 && modes.interrupts > 0.0);
}

#[test]
fn cpu_per_request_counts_only_known_rates() {
    let (_home, trial) = made::ramp_and_saturation("squid").open("squid.trial");
    // The second of the last two intervals has no valid rate.
    let before = &trial.intervals()[70];
    let found = last(&trial, 2).cpu_per_request.unwrap();
    let server = before.server.unwrap();
    assert!((found.user_us - server.user_ns as f64 / 1e3 / before.requests).abs() < 1e-9);
    assert!((found.kernel_us - server.kernel_ns as f64 / 1e3 / before.requests).abs() < 1e-9);
    assert!(last(&trial, 1).cpu_per_request.is_none());
}

#[test]
fn latencies_are_merged_over_all_requests() {
    let (_home, trial) = made::ramp_and_saturation("squid").open("squid.trial");
    let found = last(&trial, 12).latency.unwrap();
    let rows: Vec<_> = trial.latencies().iter().filter(|row| row.interval >= 60).collect();
    assert_eq!(found.count, rows.iter().map(|row| row.count).sum::<u64>());
    let longest = rows.iter().map(|row| row.histogram_us().unwrap().max()).max().unwrap();
    assert_eq!(found.max_us, longest as f64);
    assert!(found.median_us <= found.p99_us && found.p99_us <= found.max_us);
}

#[test]
fn a_trial_without_an_interval_shows_nothing() {
    let mut empty = made::ramp_and_saturation("squid");
    empty.intervals.clear();
    empty.latencies.clear();
    let (_home, trial) = empty.open("empty.trial");
    assert!(report::recent(&trial, &Groups::default()).is_none());
}
