//! Hardware counters per request, from known counts.

#![allow(clippy::unwrap_used)]

use report::{Analysis, Options, Recent, analyse, html, terminal};
use trial::counters::{CountedRow, CounterRow, Counts, Kind, Whose};
use trial::profile::{Frame, FrameMode, Stack};
use trial::{Interval, Manifest, ProcessTimes, ThreadTimes, Trial, Writer};

const SECOND_NS: i64 = 1_000_000_000;

/// A server whose requests take 50,000 instructions and 60,000 cycles, with 2,000,000 instructions
/// per second at zero load. Misses are counted only in the second half, references never.
fn trial(home: &tempfile::TempDir, counted: bool) -> Trial {
    let path = home.path().join("counted.trial");
    let mut manifest = Manifest::default();
    (manifest.host.cpus, manifest.server.name) = (2, "counted".to_owned());
    let mut writer = Writer::create(&path, &manifest).unwrap();
    for index in 0..60u64 {
        let rate = 1_000.0 + 100.0 * ((index * 17) % 60) as f64;
        let wobble = 1.0 + 0.01 * (index as f64 * 2.4).sin();
        let total_ns = (40_000.0 * rate * wobble) as i64;
        let instructions = 50_000.0 * rate * wobble + 2e6;
        let counts = |times: f64| Counts {
            cycles: Some((times * 60_000.0 * rate * wobble) as u64),
            instructions: Some((times * instructions) as u64),
            cache_references: None,
            cache_misses: (index >= 30).then_some((times * 30.0 * rate) as u64),
        };
        let row = |whose, times| CounterRow {
            interval: index,
            whose,
            counts: counts(times),
            counted: if index == 7 { 0.5 } else { 1.0 },
        };
        if counted {
            writer.counters(&[row(Whose::Server, 1.0), row(Whose::Machine, 4.0)]).unwrap();
            let rows = sampled(&mut writer, index);
            writer.counted(&rows).unwrap();
        }
        let server = ProcessTimes { user_ns: total_ns, total_ns, ..ProcessTimes::default() };
        let thread = ThreadTimes {
            pid: 1,
            tid: 1,
            name: "counted".to_owned(),
            total_ns,
            user_ns: total_ns,
            ..ThreadTimes::default()
        };
        let interval = Interval {
            index,
            start_ns: index as i64 * SECOND_NS,
            length_ns: SECOND_NS,
            server: Some(server),
            threads: vec![thread],
            requests: rate,
            requests_ended: rate as u64,
            rate_valid: true,
            ..Interval::default()
        };
        writer.append(&interval).unwrap();
    }
    writer.finish().unwrap();
    Trial::open(&path).unwrap()
}

/// Three quarters of the misses and a tenth of the instructions are in the walk, and 0.5 % of both
/// in a procedure without a row. The counters are multiplexed: the samples represent half of the
/// counts.
fn sampled(writer: &mut Writer, interval: u64) -> Vec<CountedRow> {
    let mut row = |symbol: &str, kind, count| {
        let frame = Frame {
            symbol: Some(symbol.to_owned()),
            module: "counted".to_owned(),
            mode: FrameMode::User,
        };
        let frames = vec![writer.frame(&frame).unwrap()];
        let stack = writer.stack(&Stack { frames, whole: false }).unwrap();
        CountedRow { interval, kind, stack, samples: 2, count }
    };
    vec![
        row("comm_select", Kind::CacheMisses, 15_000),
        row("comm_select", Kind::Instructions, 10_000),
        row("memcpy", Kind::CacheMisses, 4_900),
        row("memcpy", Kind::Instructions, 89_500),
        row("seldom", Kind::CacheMisses, 100),
        row("seldom", Kind::Instructions, 500),
    ]
}

fn analysed(counted: bool) -> (Analysis, Recent) {
    let home = tempfile::tempdir().unwrap();
    let trial = trial(&home, counted);
    let options = Options::default();
    let last = Trial::recent(trial.path(), 10).unwrap();
    (analyse(&trial, &options).unwrap(), report::recent(&last, &options.groups).unwrap())
}

#[test]
fn marginal_counts_are_separated_from_counts_at_zero_load() {
    let (analysis, recent) = analysed(true);
    let found = analysis.counters.as_ref().unwrap();
    let names: Vec<&str> = found.counters.iter().map(|row| row.name).collect();
    assert_eq!(names, ["instructions", "cycles", "cache misses"], "references were not counted");
    let instructions = &found.counters[0];
    let more = instructions.one_more.unwrap();
    assert!(more.low <= 50_000.0 && more.high >= 50_000.0, "{more:?}");
    assert!((more.value / 50_000.0 - 1.0).abs() < 0.02, "{more:?}");
    assert!((more.fixed_per_s / 2e6 - 1.0).abs() < 0.5, "{more:?}");
    assert!(instructions.per_request.unwrap() > more.value, "the average has the fixed part in it");
    assert_eq!(instructions.server_percent.map(f64::round), Some(25.0));
    let misses = &found.counters[2];
    assert!((misses.per_request.unwrap() - 30.0).abs() < 0.01, "over the intervals that counted");
    assert!((misses.one_more.unwrap().value - 30.0).abs() < 0.01);
    assert!((found.cycles_per_instruction.unwrap() - 1.19).abs() < 0.02);
    assert_eq!((found.intervals, found.counted_percent), (60, 50.0));
    let text = terminal(&analysis, 100);
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for word in
        ["Hardware counters per request", "cycles per instruction", "at least 50.0 % of the time"]
    {
        assert!(flat.contains(word), "no {word:?} in {text}");
    }
    assert!(html(&analysis).contains("Hardware counters per request"));
    let live = recent.counters.unwrap();
    assert_eq!(live.procedures.len(), 2);
    assert!(live.counters[0].one_more.is_none() && live.counters[0].per_request.is_some());
}

#[test]
fn a_trial_without_counters_has_no_table_of_them() {
    let (analysis, recent) = analysed(false);
    assert!(analysis.counters.is_none() && recent.counters.is_none());
    assert!(!terminal(&analysis, 100).contains("Hardware counters"));
}

#[test]
fn a_procedure_has_its_share_of_the_counts_at_any_sampling_rate() {
    let (analysis, _) = analysed(true);
    let found = analysis.counters.as_ref().unwrap();
    let named: Vec<&str> =
        found.procedures.iter().filter_map(|row| row.procedure.symbol.as_deref()).collect();
    assert_eq!(named, ["comm_select", "memcpy"], "most misses first, none below 1 %");
    let [instructions, misses] = &found.procedures[0].counters[..] else { panic!("{found:?}") };
    assert_eq!((instructions.name, misses.name), ("instructions", "cache misses"));
    assert_eq!((misses.samples, misses.percent), (120, 75.0));
    let whole = |at: usize| found.counters[at].per_request.unwrap();
    assert!((misses.per_request.unwrap() - 0.75 * whole(2)).abs() < 1e-9);
    assert!((instructions.per_request.unwrap() - 0.1 * whole(0)).abs() < 1e-6);
    let text = terminal(&analysis, 120);
    let at = text.find("Hardware counters by procedure").unwrap();
    assert!(text[at..].contains("comm_select") && text[at..].contains("75.0"), "{text}");
    assert!(!text[at..].contains("seldom"));
}
