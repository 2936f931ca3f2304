//! `compare` on generated trials: loads that differ, mixes that differ, and a server that changed.

// A test that cannot generate its trial must fail.
#![allow(clippy::unwrap_used)]

use std::ops::Range;

use report::{
    CompareOptions, Comparison, DifferenceKind, Verdict, compare, html_comparison,
    terminal_comparison,
};
use tempfile::TempDir;
use trial::classes::ClassRow;
use trial::stretches::{StretchKind, StretchRow, TurnRow};
use trial::{Interval, Manifest, Modes, ProcessTimes, ThreadTimes, Trial, Writer};

const SECOND_NS: i64 = 1_000_000_000;

/// A server of two threads with hits and misses, and its load.
#[derive(Clone)]
struct Made {
    rates: Range<f64>,
    hit_us: f64,
    miss_us: f64,
    /// The share of misses, and by how much it rises and falls.
    misses: (f64, f64),
    bytes: f64,
    wakes: f64,
    descriptors: u64,
    /// The part of the load that is on the first thread.
    first: f64,
    /// The rate of ten saturated seconds at the end.
    saturated: Option<f64>,
    /// What a request costs after holds, if the server was held.
    after_holds_us: Option<f64>,
    /// The share of the machine's CPU time that others use, if it is known.
    others: Option<f64>,
}

const MADE: Made = Made {
    rates: 500.0..9_000.0,
    hit_us: 20.0,
    miss_us: 100.0,
    misses: (0.1, 0.0),
    bytes: 1_000.0,
    wakes: 0.8,
    descriptors: 70,
    first: 0.5,
    saturated: None,
    after_holds_us: None,
    others: None,
};

impl Made {
    fn trial(&self, home: &TempDir, name: &str) -> Trial {
        let path = home.path().join(name);
        let mut manifest = Manifest::default();
        manifest.host.cpus = 2;
        let mut writer = Writer::create(&path, &manifest).unwrap();
        for row in 0..130u64 {
            let saturated = self.saturated.filter(|_| row >= 120);
            if row >= 120 && saturated.is_none() {
                break;
            }
            let at = row as f64 / 120.0;
            let ramp = self.rates.start + (self.rates.end - self.rates.start) * at;
            let rate = saturated.unwrap_or(ramp);
            let misses = self.misses.0 + self.misses.1 * (row as f64 / 7.0).sin();
            // A disturbance, so that no line is exact.
            let wobble = 1.0 + 0.01 * (row as f64 * 2.4).sin() + 0.01 * (row as f64 * 1.1).cos();
            let each = self.hit_us * (1.0 - misses) + self.miss_us * misses;
            let used = (0.003 + 1e-6 * each * rate) * wobble;
            let ns = if saturated.is_some() { 2e9 } else { used * 1e9 };
            writer.append(&interval(row, rate, ns as i64, self)).unwrap();
            let class = |name: &str, share: f64| ClassRow {
                interval: row,
                class: format!("{name} GET 1k-10k plain"),
                requests: share * rate,
                ended: (share * rate) as u64,
                bytes: share * rate * self.bytes,
            };
            writer.classes(&[class("hit", 1.0 - misses), class("miss", misses)]).unwrap();
            let held = self.after_holds_us.filter(|_| row % 4 != 3);
            held.inspect(|us| writer.stretches(turns(row, rate), &[after_hold(row, us * wobble)]));
        }
        writer.finish().unwrap();
        Trial::open(&path).unwrap()
    }
}

fn turns(interval: u64, rate: f64) -> TurnRow {
    let (turns, clients) = (rate as u64, rate as u64);
    TurnRow { interval, sampled_ns: SECOND_NS, turns, clients, upstreams: 0 }
}

/// A busy period of 100 requests after a hold.
fn after_hold(interval: u64, each_us: f64) -> StretchRow {
    StretchRow {
        interval,
        kind: StretchKind::Period,
        held: true,
        served: true,
        size: 65,
        stretches: 1,
        turns: 9,
        clients: 100,
        upstreams: 0,
        cpu_ns: (1e5 * each_us) as i64,
    }
}

fn interval(index: u64, rate: f64, total_ns: i64, made: &Made) -> Interval {
    let wakes = (made.wakes * rate) as u64;
    let first_ns = (total_ns as f64 * made.first) as i64;
    let thread = |tid, ns: i64| ThreadTimes {
        pid: 1,
        tid,
        name: "made".into(),
        total_ns: ns,
        user_ns: ns,
        kernel_ns: 0,
        wakes: wakes / 2,
    };
    let machine = made.others.map_or_else(Modes::default, |others| {
        let user_ns = total_ns + (others * 2e9) as i64;
        Modes { user_ns, idle_ns: 2 * SECOND_NS - user_ns, ..Modes::default() }
    });
    Interval {
        index,
        machine,
        start_ns: index as i64 * SECOND_NS,
        length_ns: SECOND_NS,
        server: Some(ProcessTimes {
            user_ns: total_ns,
            total_ns,
            voluntary_switches: wakes,
            descriptors: Some(made.descriptors),
            ..ProcessTimes::default()
        }),
        threads: vec![thread(1, first_ns), thread(2, total_ns - first_ns)],
        requests: rate,
        requests_ended: rate as u64,
        rate_valid: true,
        ..Interval::default()
    }
}

fn compared(before: &Made, after: &Made) -> Comparison {
    let home = TempDir::new().unwrap();
    let trials = [before.trial(&home, "before.trial"), after.trial(&home, "after.trial")];
    compare(&trials[0], &trials[1], &CompareOptions::default()).unwrap()
}

#[test]
fn an_unchanged_server_at_other_rates_is_no_change() {
    let found = compared(&MADE, &Made { rates: 200.0..18_000.0, first: 0.8, ..MADE });
    assert_eq!(found.verdict, Verdict::NoChange, "{}", found.why);
    let cost = found.cost.as_ref().unwrap();
    // From 30 % of the highest rate in common on.
    assert!((2_600.0..2_800.0).contains(&cost.rate_low), "{}", cost.rate_low);
    assert!((8_800.0..9_000.0).contains(&cost.rate_high), "{}", cost.rate_high);
    assert!(cost.differences.is_empty(), "{:?}", cost.differences);
    let json = serde_json::to_value(&found).unwrap();
    assert!((json["cost"]["value"].as_f64().unwrap() - 1.0).abs() < 0.02, "{json}");
}

#[test]
fn a_more_expensive_request_is_a_regression_with_its_numbers() {
    let worse = Made { hit_us: 23.0, miss_us: 115.0, rates: 300.0..15_000.0, ..MADE };
    let found = compared(&MADE, &worse);
    assert_eq!(found.verdict, Verdict::Regression, "{}", found.why);
    assert!(found.why.starts_with("a request costs 1"), "{}", found.why);
    assert!(found.why.contains(" % more at the same load ("), "{}", found.why);
    // The answer comes first, in the terminal and on the page.
    let text = terminal_comparison(&found, 200);
    assert!(text.contains("Answer     Worse: a request costs 1"), "{text}");
    let page = html_comparison(&found);
    assert!(page.contains("<h1>Worse: a request costs 1"), "{page}");
    let back = compared(&worse, &MADE);
    assert_eq!(back.verdict, Verdict::Improvement, "{}", back.why);
    assert!(back.why.contains(" % less at the same load ("), "{}", back.why);
}

#[test]
fn rates_that_both_do_not_cover_are_not_compared() {
    let found = compared(&MADE, &Made { rates: 20_000.0..40_000.0, ..MADE });
    assert_eq!(found.verdict, Verdict::Inconclusive);
    assert_eq!(
        found.why,
        "the loads differ: one covers 500 to 8,929 requests/s, the other 20,000 to 39,830"
    );
    assert_eq!(found.advice.as_deref(), Some("record both over the same rates"));
    assert!(found.cost.is_none());
    assert!(terminal_comparison(&found, 100).contains("inconclusive: the loads differ"));
}

/// Two trials at a constant rate have no capacity, and the cost of a request is the same.
#[test]
fn a_constant_rate_has_no_capacity_and_is_compared() {
    let constant = Made { rates: 5_000.0..5_001.0, ..MADE };
    let found = compared(&constant, &constant);
    assert_eq!(found.verdict, Verdict::NoChange, "{}", found.why);
    let reason = found.before.capacity.reason.as_deref().unwrap();
    assert!(reason.starts_with("the rate was nearly constant, 5,000 requests/s"), "{reason}");
    assert!(found.capacity.is_none());
}

#[test]
fn fewer_wakes_explain_a_cheaper_request_and_no_more_expensive_one() {
    let fewer = Made { wakes: 0.4, hit_us: 16.0, miss_us: 80.0, ..MADE };
    let found = compared(&MADE, &fewer);
    assert_eq!(found.verdict, Verdict::Inconclusive, "{}", found.why);
    assert_eq!(found.why, "the loads differ (wakes per request 0.80 and 0.40)");
    let text = terminal_comparison(&found, 200);
    assert!(text.contains("wakes per request 0.80 and 0.40, which explains up to -3"), "{text}");
    let found = compared(&MADE, &Made { wakes: 0.4, hit_us: 24.0, miss_us: 120.0, ..MADE });
    assert_eq!(found.verdict, Verdict::Regression, "{}", found.why);
}

/// 256 connections cost Squid and Varnish a quarter more at the same rate than 64.
#[test]
fn more_connections_explain_a_more_expensive_request_and_no_cheaper_one() {
    let more = |hit_us: f64| Made { descriptors: 262, hit_us, miss_us: 5.0 * hit_us, ..MADE };
    let found = compared(&MADE, &more(24.0));
    assert_eq!(found.verdict, Verdict::Inconclusive, "{}", found.why);
    assert_eq!(found.why, "the loads differ (open descriptors 70 and 262)");
    let found = compared(&MADE, &more(16.0));
    assert_eq!(found.verdict, Verdict::Improvement, "{}", found.why);
    let found = compared(&MADE, &more(40.0));
    assert_eq!(found.verdict, Verdict::Regression, "{}", found.why);
}

#[test]
fn other_work_on_the_machine_explains_a_change_in_both_directions() {
    let alone = Made { others: Some(0.1), ..MADE };
    let beside = |hit_us: f64| Made { others: Some(0.2), hit_us, miss_us: 5.0 * hit_us, ..MADE };
    for hit_us in [17.5, 23.0] {
        let found = compared(&alone, &beside(hit_us));
        assert_eq!(found.verdict, Verdict::Inconclusive, "{}", found.why);
        let why = "something else used the CPU, or the change moved work to other processes (CPU \
                   time of the machine for others 10 % and 20 %)";
        assert_eq!(found.why, why);
        let explains = found.cost.unwrap().differences[0].explains.unwrap();
        assert!((explains.ln().abs() - 0.15).abs() < 0.01, "{explains}");
    }
    // Other work does not change the cost of a request at saturation.
    let held = |made: Made, us| Made { after_holds_us: Some(us), ..made };
    let found = compared(&held(alone.clone(), 10.0), &held(beside(20.0), 14.0));
    assert_eq!(found.verdict, Verdict::Regression, "{}", found.why);
    let found = compared(&alone, &beside(40.0));
    assert_eq!(found.verdict, Verdict::Regression, "{}", found.why);
    let found = compared(&alone, &Made { others: Some(0.12), ..beside(17.0) });
    assert_eq!(found.verdict, Verdict::Improvement, "{}", found.why);
}

/// What a request costs at saturation does not depend on the rate.
#[test]
fn servers_that_were_held_at_other_rates_are_compared_at_saturation() {
    let before = Made { after_holds_us: Some(10.0), others: Some(0.1), ..MADE };
    let rates = 20_000.0..40_000.0;
    let after = |us| Made { after_holds_us: Some(us), rates: rates.clone(), ..before.clone() };
    let found = compared(&before, &after(14.0));
    assert_eq!(found.verdict, Verdict::Regression, "{}", found.why);
    assert!(found.why.contains(" % more at saturation"), "{}", found.why);
    assert_eq!(compared(&before, &after(7.0)).verdict, Verdict::Improvement);
    assert_eq!(compared(&before, &after(10.0)).verdict, Verdict::Inconclusive);
    // With more connections or another mix it may.
    for other in [
        Made { descriptors: 262, ..after(14.0) },
        Made { bytes: 2_000.0, ..after(14.0) },
        Made { misses: (0.3, 0.0), ..after(14.0) },
        Made { others: Some(0.2), ..after(14.0) },
        Made { others: None, ..after(14.0) },
    ] {
        let found = compared(&before, &other);
        assert_eq!(found.verdict, Verdict::Inconclusive, "{}", found.why);
    }
}

#[test]
fn larger_responses_explain_a_more_expensive_request_and_smaller_ones_do_not() {
    let larger = Made { bytes: 2_000.0, hit_us: 26.0, miss_us: 130.0, ..MADE };
    let found = compared(&MADE, &larger);
    assert_eq!(found.verdict, Verdict::Inconclusive, "{}", found.why);
    assert_eq!(found.why, "the mix changed (response bytes per request 1,000 and 2,000)");
    // Compression.
    let found = compared(&MADE, &Made { bytes: 300.0, ..larger });
    assert_eq!(found.verdict, Verdict::Regression, "{}", found.why);
    assert_eq!(found.cost.unwrap().differences[0].kind, DifferenceKind::Bytes);
}

#[test]
fn more_misses_are_no_regression_of_the_server() {
    let more = Made { misses: (0.3, 0.0), ..MADE };
    let found = compared(&MADE, &more);
    assert_eq!(found.verdict, Verdict::Inconclusive, "{}", found.why);
    assert_eq!(found.why, "the mix changed (share of miss 10 % and 30 %)");
    // With costs by class in one of the trials, the same mix is compared.
    let varies = Made { misses: (0.1, 0.08), ..MADE };
    let found = compared(&varies, &more);
    assert_eq!(found.verdict, Verdict::NoChange, "{}", found.why);
    let cost = found.cost.unwrap();
    assert!((cost.ratio.value - 1.0).abs() < 0.03, "{:?}", cost.ratio);
    let explains = cost.differences[0].explains.unwrap();
    assert!((explains - 44.0 / 28.0).abs() < 0.06, "{explains}");
    let worse = Made { hit_us: 24.0, miss_us: 120.0, ..more };
    let found = compared(&varies, &worse);
    assert_eq!(found.verdict, Verdict::Regression, "{}", found.why);
    assert!(found.why.contains(" % more at the same load and mix ("), "{}", found.why);
}

#[test]
fn a_lower_measured_saturation_is_a_regression_if_the_loads_are_alike() {
    let before = Made { saturated: Some(70_000.0), ..MADE };
    let lower = Made { saturated: Some(50_000.0), ..MADE };
    let found = compared(&before, &lower);
    assert_eq!(found.verdict, Verdict::Regression, "{}", found.why);
    assert_eq!(found.why, "the measured saturation is 29 % lower");
    let text = terminal_comparison(&found, 100);
    assert!(text.contains("measured; 70,000 before, 50,000 after"), "{text}");
    let other_load = Made { wakes: 0.6, ..lower };
    assert_ne!(compared(&before, &other_load).verdict, Verdict::Regression);
    assert_eq!(compared(&before, &before).verdict, Verdict::NoChange);
}

/// On a quiet CPU, 16 % at saturation is a few per cent, and fewer wakes may hide it.
#[test]
fn a_request_that_costs_more_after_holds_is_a_regression() {
    let before = Made { after_holds_us: Some(10.0), ..MADE };
    let worse = Made { after_holds_us: Some(12.0), wakes: 0.6, ..MADE };
    let found = compared(&before, &worse);
    assert_eq!(found.verdict, Verdict::Regression, "{}", found.why);
    assert_eq!(found.why, "a request costs 20 % more at saturation, by turns and after holds");
    let text = terminal_comparison(&found, 100);
    assert!(text.contains("After holds"), "{text}");
    let better = Made { after_holds_us: Some(8.0), ..MADE };
    assert_eq!(compared(&before, &better).verdict, Verdict::Improvement);
    // Two runs of one server differ by 5 %.
    let alike = Made { after_holds_us: Some(10.8), ..MADE };
    assert_eq!(compared(&before, &alike).verdict, Verdict::NoChange);
    // Larger responses cost more after holds, too.
    let larger = Made { bytes: 2_000.0, after_holds_us: Some(12.0), ..MADE };
    assert_ne!(compared(&before, &larger).verdict, Verdict::Regression);
    assert!(compared(&before, &MADE).catching_up.is_none(), "one was not held");
}
