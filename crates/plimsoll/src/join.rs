//! `plimsoll join`: adds the latencies measured by a load generator on another machine to a trial.
//!
//! A load result has a row per second, with its wall-clock start and the histogram of its
//! latencies. A row is added to the interval that contains the middle of the row's second. The
//! clocks of the two machines can differ. The clocks are trusted, or corrected by `--offset`. If
//! the rate of the load varied, the rate is also compared with the requests that the trial counted,
//! at many time shifts. If another shift fits much better, nothing is joined, and the error names
//! the offset that fits.

use std::path::Path;

use ::load::{Latency, Outcome, Row};
use command::failure::{Failure, misuse};
use hdrhistogram::Histogram;
use serde::Serialize;
use trial::{Interval, LatencyRow, LatencySource, Trial, Writer};

use crate::{cli, output};

/// A larger file is not a load result: a day has about 300 MB.
const RESULT_BYTES_MAX: u64 = 2 << 30;

/// The largest clock error that is searched for.
const OFFSET_S_MAX: i64 = 600;

/// The clocks are checked only if at least this many intervals overlap.
const COMMON_MIN: usize = 10;

/// From this correlation on, the trial's requests are taken to be those of the load.
const CORRELATION_MIN: f64 = 0.8;

/// A shift must fit better than no shift by this much before the clocks are distrusted.
const BETTER_BY: f64 = 0.1;

/// A load cannot have more than all requests of the trial. More than this share is not rounding at
/// the ends of the intervals.
const SHARE_PERCENT_MAX: f64 = 102.0;

/// Shifts whose correlation is lower by less than this fit equally well.
const WORSE_BY: f64 = 0.02;

/// The beginning of the note about a joined load.
const NOTE: &str = "load joined: ";

const NS_PER_S: i64 = 1_000_000_000;

/// The result of a join.
#[derive(Debug, Serialize)]
struct Joined {
    trial: std::path::PathBuf,
    load: std::path::PathBuf,
    /// Rows of the load, and those of them that have latencies and an interval of the trial.
    rows: usize,
    rows_joined: usize,
    /// Rows among these in which the generator fell behind.
    rows_behind: usize,
    /// Latencies joined as not valid: the generator may account for more than a fifth of each.
    latencies_invalid: u64,
    /// Intervals that have latencies from the load.
    intervals: usize,
    latencies: u64,
    /// The load's requests as a share of those that the trial counted in that time, percent.
    share_percent: f64,
    /// What was subtracted from the generator's clock, seconds.
    offset_s: f64,
    /// The result of the clock check.
    clocks: String,
}

/// Joins the load and prints the result.
pub(crate) fn join(flags: &cli::Join) -> Result<(), Failure> {
    let outcome = read(&flags.load)?;
    let trial = Trial::open(&flags.trial).map_err(misuse)?;
    let name = flags.trial.display();
    if !trial.complete() {
        return Err(misuse(format!("{name} is not finished; try again when it is")));
    }
    let note = note(&outcome);
    if trial.manifest().notes.iter().any(|kept| kept.starts_with(&note)) {
        return Err(misuse(format!("{} has already been joined to {name}", flags.load.display())));
    }
    let offset_ns = (flags.offset.unwrap_or(0.0) * NS_PER_S as f64).round() as i64;
    let clocks = clocks(trial.intervals(), &outcome.rows, offset_ns, flags.offset.is_some())?;
    let rows = latency_rows(trial.intervals(), &outcome.rows, offset_ns)?;
    if rows.is_empty() {
        return Err(misuse(format!(
            "no second of the load is in an interval of {name}: is it the load of this trial, and \
             are the clocks right? (try --offset)"
        )));
    }
    let seconds = || {
        let within = |row: &&Row| interval_of(trial.intervals(), row, offset_ns).is_some();
        let has = |row: &&Row| row.latency.count > 0 || row.latency_invalid.is_some();
        outcome.rows.iter().filter(has).filter(within)
    };
    let sum = |of: &dyn Fn(&LatencyRow) -> bool| {
        rows.iter().filter(|row| of(row)).map(|row| row.count).sum::<u64>()
    };
    let share_percent = share_percent(trial.intervals(), &outcome.rows, offset_ns);
    part_of_trial(share_percent, name)?;
    let joined = Joined {
        trial: flags.trial.clone(),
        load: flags.load.clone(),
        rows: outcome.rows.len(),
        rows_joined: seconds().count(),
        rows_behind: seconds().filter(|row| row.behind).count(),
        latencies_invalid: sum(&|row| row.invalid),
        intervals: rows.chunk_by(|a, b| a.interval == b.interval).count(),
        latencies: sum(&|_| true),
        share_percent,
        offset_s: offset_ns as f64 / NS_PER_S as f64,
        clocks,
    };
    let mut manifest = trial.manifest().clone();
    manifest.notes.push(format!("{note}; {}", joined.clocks));
    let write = || -> Result<(), trial::Error> {
        let mut writer = Writer::reopen(&flags.trial)?;
        rows.iter().try_for_each(|row| writer.latency(row))?;
        writer.set_manifest(&manifest)?;
        writer.finish().map(drop)
    };
    write().map_err(misuse)?;
    output::show(flags.json, &joined, text)
}

/// It is an error if the load has more requests than the trial counted: then it is the load of
/// another server, or the trial's log lacks requests.
fn part_of_trial(share_percent: f64, trial: impl std::fmt::Display) -> Result<(), Failure> {
    if !share_percent.is_finite() || share_percent <= SHARE_PERCENT_MAX {
        return Ok(());
    }
    Err(misuse(format!(
        "the load has {share_percent:.1} % of the requests that {trial} counted in that time, and \
         nothing was joined: it is the load of another server or of another time, or the trial's \
         log does not have all requests"
    )))
}

fn read(path: &Path) -> Result<Outcome, Failure> {
    let name = path.display();
    let refused = |error: std::io::Error| {
        misuse(format!(
            "cannot read {name}: {error}; to make one, on the machine of the load: plimsoll load \
             URL --output {name}"
        ))
    };
    let bytes = std::fs::metadata(path).map_err(refused)?.len();
    if bytes > RESULT_BYTES_MAX {
        return Err(misuse(format!("{name} is not a load result: it has {bytes} bytes")));
    }
    let text = std::fs::read(path).map_err(refused)?;
    serde_json::from_slice(&text).map_err(|error| {
        misuse(format!("{name} is not a result of plimsoll load --json or --output: {error}"))
    })
}

/// A note that identifies the load, so that it is not joined twice.
fn note(outcome: &Outcome) -> String {
    format!("{NOTE}{}, begun at {} ns", outcome.plan.target, outcome.start_ns)
}

/// The generator's latencies, each row in the interval that contains its middle. Those for which
/// the generator may account are apart, as not valid: a second in which it was late by a
/// millisecond has valid latencies of a second.
pub(crate) fn latency_rows(
    intervals: &[Interval],
    rows: &[Row],
    offset_ns: i64,
) -> Result<Vec<LatencyRow>, Failure> {
    let mut found = Vec::new();
    for row in rows {
        let Some(interval) = interval_of(intervals, row, offset_ns) else { continue };
        // Results of older versions do not have the invalid latencies apart.
        let all_invalid = row.behind && row.latency_invalid.is_none();
        found.extend(latency_row(interval.index, &row.latency, all_invalid)?);
        if let Some(invalid) = &row.latency_invalid {
            found.extend(latency_row(interval.index, invalid, true)?);
        }
    }
    Ok(found)
}

/// The interval that contains the middle of a row.
fn interval_of<'t>(intervals: &'t [Interval], row: &Row, offset_ns: i64) -> Option<&'t Interval> {
    let middle = row.start_ns - offset_ns + (row.length_ns / 2).cast_signed();
    let after = intervals.partition_point(|interval| interval.start_ns <= middle);
    let interval = &intervals[after.checked_sub(1)?];
    (middle < interval.start_ns + interval.length_ns).then_some(interval)
}

/// Latencies of the generator as stored in the trial, in microseconds.
fn latency_row(
    index: u64,
    latency: &Latency,
    invalid: bool,
) -> Result<Option<LatencyRow>, Failure> {
    if latency.count == 0 {
        return Ok(None);
    }
    let of_ns = latency.histogram().map_err(misuse)?;
    let mut of_us = Histogram::<u64>::new(3).expect("three significant digits are allowed");
    for value in of_ns.iter_recorded() {
        let us = value.value_iterated_to() / 1000;
        // It grows. `saturating_record_n` would cut.
        of_us.record_n(us.max(1), value.count_at_value()).map_err(misuse)?;
    }
    Ok(Some(LatencyRow::new(index, LatencySource::Generator, invalid, &of_us)))
}

/// For each interval that is completely within the load: the requests of the load, and those that
/// the trial counted.
fn in_common(intervals: &[Interval], rows: &[Row], offset_ns: i64) -> Vec<(f64, f64)> {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Vec::new() };
    let begun = first.start_ns - offset_ns;
    let ended = last.start_ns - offset_ns + last.length_ns.cast_signed();
    let whole = intervals.iter().filter(|interval| {
        interval.start_ns >= begun && interval.start_ns + interval.length_ns <= ended
    });
    let known = whole.filter(|interval| interval.rate_valid);
    let pair = |interval: &Interval| (completed(interval, rows, offset_ns), interval.requests);
    known.map(pair).collect()
}

/// Requests that a load completed in an interval. Those of a row are spread evenly over it.
pub(crate) fn completed(interval: &Interval, rows: &[Row], offset_ns: i64) -> f64 {
    let (start, end) = (interval.start_ns, interval.start_ns + interval.length_ns);
    let row_end = |row: &Row| row.start_ns - offset_ns + row.length_ns.cast_signed();
    let first = rows.partition_point(|row| row_end(row) <= start);
    let within = rows[first..].iter().take_while(|row| row.start_ns - offset_ns < end);
    within
        .map(|row| {
            let inside = end.min(row_end(row)) - start.max(row.start_ns - offset_ns);
            row.counts.completed as f64 * inside as f64 / row.length_ns.max(1) as f64
        })
        .sum()
}

fn share_percent(intervals: &[Interval], rows: &[Row], offset_ns: i64) -> f64 {
    let pairs = in_common(intervals, rows, offset_ns);
    let (load, all) = pairs.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
    if all > 0.0 { 100.0 * load / all } else { f64::NAN }
}

/// Checks the two clocks by the rates. It is an error if the rates contradict the clocks, unless
/// the user gave the offset and so knows better.
fn clocks(
    intervals: &[Interval],
    rows: &[Row],
    offset_ns: i64,
    given: bool,
) -> Result<String, Failure> {
    let basis = match given {
        true => format!(
            "the generator's clock is corrected by {:+.3} s",
            offset_ns as f64 / NS_PER_S as f64
        ),
        false => "both clocks are trusted".to_owned(),
    };
    let fit_at = |shift: i64| {
        let pairs = in_common(intervals, rows, offset_ns + shift * NS_PER_S);
        correlation(&pairs).filter(|_| pairs.len() >= COMMON_MIN)
    };
    let here = fit_at(0);
    let fits: Vec<(i64, f64)> =
        (-OFFSET_S_MAX..=OFFSET_S_MAX).filter_map(|shift| Some((shift, fit_at(shift)?))).collect();
    // Of two that fit equally well, the smaller shift.
    let nearer = |(a, fit): &&(i64, f64), (b, other): &&(i64, f64)| {
        fit.total_cmp(other).then(b.abs().cmp(&a.abs()))
    };
    let best = fits.iter().max_by(nearer).copied();
    match (here, best) {
        (_, Some((shift, fit)))
            if fit >= CORRELATION_MIN && fit > here.unwrap_or(0.0) + BETTER_BY =>
        {
            let offset = offset_ns as f64 / NS_PER_S as f64 + shift as f64;
            let found = format!(
                "the rates suggest that the generator's clock is {offset:+} s from this one \
                 (correlation {fit:.2}, now {:.2})",
                here.unwrap_or(0.0)
            );
            if given {
                return Ok(format!("{basis}, but {found}"));
            }
            Err(misuse(format!(
                "{found}; try --offset {offset}, or --offset 0 to join it as it is"
            )))
        }
        (Some(fit), _) if fit >= CORRELATION_MIN => {
            // Along a ramp, every shift fits.
            let alike = fits.iter().filter(|(_, other)| *other >= fit - WORSE_BY);
            let within = alike.map(|(shift, _)| shift.abs()).max().unwrap_or(0) + 1;
            Ok(format!("{basis}; the rates agree to within {within} s (correlation {fit:.2})"))
        }
        _ => Ok(format!("{basis}; the rates vary too little to check this")),
    }
}

/// `None` if one of the two does not vary.
fn correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let n = pairs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| {
        pairs.iter().map(|pair| of(pair.0 - x, pair.1 - y)).sum::<f64>()
    };
    let spread = (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt();
    (spread > 0.0).then(|| sum(&|a, b| a * b) / spread)
}

fn text(joined: &Joined) -> String {
    let mut text = format!(
        "{} latencies of {} seconds in {} intervals of {}\n",
        joined.latencies,
        joined.rows_joined,
        joined.intervals,
        joined.trial.display()
    );
    if joined.rows_joined < joined.rows {
        let rest = joined.rows - joined.rows_joined;
        text.push_str(&format!("{rest} of {} seconds have no latency in the trial\n", joined.rows));
    }
    if joined.latencies_invalid > 0 {
        text.push_str(&format!(
            "{} of them are not valid: the generator may account for more than a fifth of each (it \
             fell behind in {} seconds)\n",
            joined.latencies_invalid, joined.rows_behind
        ));
    }
    if joined.share_percent.is_finite() {
        let percent = joined.share_percent;
        text.push_str(&format!("its requests are {percent:.1} % of those the trial counted\n"));
    }
    text.push_str(&format!("clocks: {}\n", joined.clocks));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_NS: i64 = 1_769_860_800_000_000_000;

    fn interval(index: u64, requests: f64) -> Interval {
        Interval {
            index,
            start_ns: START_NS + index.cast_signed() * NS_PER_S,
            length_ns: NS_PER_S,
            requests,
            rate_valid: true,
            ..Interval::default()
        }
    }

    /// Rows of a load, a second each. It began `begun_ns` after the trial, by its own clock.
    fn rows(completed: &[u64], begun_ns: i64) -> Vec<Row> {
        let empty = serde_json::json!({
            "index": 0, "start_ns": 0, "length_ns": NS_PER_S, "queued_max": 0, "lag_max_ns": 0,
            "behind": false, "late": 0, "cpu_ns": 0, "intended": 0, "started": 0, "completed": 0,
            "errors": ::load::Errors::default(), "hits": 0, "misses": 0, "body_bytes": 0,
            "connects": 0, "cold_closed": 0, "late_starts": 0,
            "latency": { "count": 0, "mean_ns": 0.0, "p50_ns": 0, "p90_ns": 0, "p99_ns": 0,
                "p999_ns": 0, "max_ns": 0, "hdr_v2_base64": "" }
        });
        let row: Row = serde_json::from_value(empty).unwrap();
        let second = |(at, completed): (usize, &u64)| {
            let mut row = row.clone();
            row.start_ns = START_NS + begun_ns + at as i64 * NS_PER_S;
            row.counts.completed = *completed;
            row
        };
        completed.iter().enumerate().map(second).collect()
    }

    fn wave(n: u64) -> Vec<u64> {
        (0..n).map(|k| 1000 + (7919 * k * k + 13 * k) % 997).collect()
    }

    #[test]
    fn requests_of_a_row_are_spread_over_the_intervals_it_touches() {
        let rows = rows(&[100, 200], NS_PER_S / 4);
        let of = |index| completed(&interval(index, 0.0), &rows, 0);
        assert_eq!([of(0), of(1), of(2)], [75.0, 175.0, 50.0]);
        assert_eq!(completed(&interval(0, 0.0), &rows, NS_PER_S / 4), 100.0, "by its own clock");
    }

    #[test]
    fn clocks_that_the_rates_contradict_are_an_error() {
        let load = wave(40);
        let intervals: Vec<Interval> =
            load.iter().enumerate().map(|(k, n)| interval(k as u64, *n as f64 * 1.1)).collect();
        let agreed = clocks(&intervals, &rows(&load, 0), 0, false).unwrap();
        assert!(agreed.contains("the rates agree to within 1 s (correlation 1.00)"), "{agreed}");
        let ramp: Vec<u64> = (0..40).map(|k| 1000 + 50 * k).collect();
        let rising: Vec<Interval> =
            ramp.iter().enumerate().map(|(k, n)| interval(k as u64, *n as f64)).collect();
        let vague = clocks(&rising, &rows(&ramp, 0), 0, false).unwrap();
        assert!(vague.contains("agree to within 31 s"), "along a ramp every shift fits: {vague}");
        let ahead = rows(&load, 7 * NS_PER_S);
        let refused = clocks(&intervals, &ahead, 0, false).unwrap_err().to_string();
        assert!(refused.contains("try --offset 7,"), "{refused}");
        let corrected = clocks(&intervals, &ahead, 7 * NS_PER_S, true).unwrap();
        assert!(corrected.contains("+7.000 s") && corrected.contains("agree"), "{corrected}");
        let given = clocks(&intervals, &ahead, 0, true).unwrap();
        assert!(given.contains("but the rates suggest"), "a given offset is kept: {given}");
    }

    /// All latencies of a second were marked when the generator was late by a millisecond in it.
    #[test]
    fn only_latencies_that_the_generator_may_have_changed_are_joined_as_invalid() {
        let latency = |us: u64, count: u64| {
            let mut histogram = Histogram::<u64>::new(3).unwrap();
            histogram.record_n(us * 1000, count).unwrap();
            let LatencyRow { histogram: hdr_v2, .. } =
                LatencyRow::new(0, LatencySource::Generator, false, &histogram);
            let ns = us * 1000;
            let (p50_ns, p90_ns, p99_ns, p999_ns, max_ns) = (ns, ns, ns, ns, ns);
            Latency { count, mean_ns: 0.0, p50_ns, p90_ns, p99_ns, p999_ns, max_ns, hdr_v2 }
        };
        let mut load = rows(&[30, 30], 0);
        for (row, late) in load.iter_mut().zip([Some(latency(900, 20)), None]) {
            (row.behind, row.latency, row.latency_invalid) = (true, latency(1_500_000, 10), late);
        }
        let intervals = [interval(0, 30.0), interval(1, 30.0)];
        let joined = latency_rows(&intervals, &load, 0).unwrap();
        let found: Vec<_> = joined.iter().map(|r| (r.interval, r.invalid, r.count)).collect();
        // The second row is from an older version, which did not keep them apart.
        assert_eq!(found, [(0, false, 10), (0, true, 20), (1, true, 10)]);
        let us = joined[0].histogram_us().unwrap().max();
        assert!(us.abs_diff(1_500_000) <= 1500, "{us}");
    }

    /// A load with 144.5 % of the requests was joined.
    #[test]
    fn a_load_of_more_than_all_requests_is_refused() {
        let load = rows(&[1445; 12], 0);
        let counted = |requests: f64| {
            let intervals: Vec<Interval> = (0..12).map(|k| interval(k, requests)).collect();
            share_percent(&intervals, &load, 0)
        };
        let refused = part_of_trial(counted(1000.0), "a.trial").unwrap_err().to_string();
        assert!(refused.contains("144.5 %") && refused.contains("another server"), "{refused}");
        // The ends of intervals and of seconds differ by a request or two.
        for requests in [1430.0, 1445.0, 3000.0] {
            part_of_trial(counted(requests), "a.trial").unwrap();
        }
        part_of_trial(share_percent(&[], &load, 0), "a.trial").unwrap();
    }

    #[test]
    fn a_constant_rate_cannot_check_the_clocks() {
        let intervals: Vec<Interval> = (0..40).map(|k| interval(k, 500.0)).collect();
        let unchecked = clocks(&intervals, &rows(&[500; 40], 9 * NS_PER_S), 0, false).unwrap();
        assert!(unchecked.contains("vary too little"), "{unchecked}");
    }
}
