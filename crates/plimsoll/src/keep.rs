//! The past of a server: `record --keep`, and the folders that it makes, for `report` and
//! `compare`.

use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use ::keep::calendar::Zone;
use ::keep::files;
use ::keep::keeper::{self, Event, Terms};
use ::keep::live::{self, Live};
use ::keep::past::{self, Past, Question, Row};
use ::report::format::{duration, fixed, latency, rate, thousands};
use ::report::sheet::{self, Chapter, Rows, Sheet};
use ::report::{CompareOptions, Comparison};
use command::failure::{Failure, misuse};
use command::{output, stop_on_signal};
use indicatif::ProgressBar;
use serde::Serialize;
use trial::Interval;

use crate::{cli, progress, record};

/// Days are those of the local time.
const ZONE: Zone = Zone::Local;

/// A recorder that takes more than this share of a CPU says so, percent.
const RECORDER_PERCENT_MAX: f64 = 0.5;

/// Records all the time, with a line for each event and a progress line on a terminal.
pub(crate) fn record(flags: &cli::Record, directory: &Path) -> Result<(), Failure> {
    let recording = &flags.recording;
    let mut spec = record::spec(recording, directory)?;
    spec.interval = recording.interval.unwrap_or(keeper::INTERVAL);
    (spec.profile, spec.turns_every) = (None, None);
    spec.sync_every = Some(keeper::SYNC_EVERY);
    let until = spec.duration.take().map(|length| Instant::now() + length);
    let observed = &recording.observed;
    let server = [&observed.name, &observed.unit, &observed.cgroup].into_iter().flatten().next();
    let terms = Terms {
        directory: directory.to_owned(),
        server: files::plain(server.map_or("server", |name| name.as_str())),
        bytes_max: flags.keep_size,
        zone: ZONE,
    };
    let stop = stop_on_signal()?;
    let bar = progress::bar(ProgressBar::new_spinner(), "{elapsed} {msg}", flags.json);
    let failed = Mutex::new(None);
    let say = |event: &Event| {
        let line = |text: String| bar.suspend(|| output::print(text + "\n"));
        let printed = match serde_json::to_string(event) {
            Ok(json) if flags.json => line(json),
            _ => line(text(event, observed.access_log.is_some())),
        };
        if let Err(failure) = printed {
            *failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(failure);
        }
    };
    let mut observer = |interval: &Interval| {
        let seconds = interval.length_ns as f64 / 1e9;
        let busy = interval.server.as_ref().map_or(0.0, |s| s.total_ns as f64 / 1e9 / seconds);
        bar.set_message(format!(
            "interval {}: {:.0} requests/s, {busy:.3} CPUs; the recorder {:.3} % of a CPU",
            interval.index,
            interval.requests / seconds,
            interval.recorder_ns as f64 / 1e7 / seconds,
        ));
        bar.tick();
    };
    let mut live =
        Live { spec, stop: &stop, until, say: &say, observer: &mut observer, found: None };
    let kept = keeper::keep(&terms, &mut live).map_err(failure);
    bar.finish_and_clear();
    kept?;
    failed.into_inner().ok().flatten().map_or(Ok(()), Err)
}

/// An event as a line, with what to do if the recorder is expensive.
fn text(event: &Event, reads_log: bool) -> String {
    let advice = match event {
        Event::Ended { recorded, .. } if recorded.recorder_percent <= RECORDER_PERCENT_MAX => "",
        Event::Ended { .. } if reads_log => {
            "; without --access-log, requests are counted on the server's sockets, which costs the \
             recorder the same at any rate"
        }
        Event::Ended { .. } => "; a longer --interval costs less",
        _ => "",
    };
    format!("{event}{advice}")
}

fn failure(error: ::keep::Error) -> Failure {
    match error {
        ::keep::Error::Record(error) => record::failure(error),
        error => misuse(error),
    }
}

/// The days of a folder.
#[derive(Serialize)]
struct Days<'a> {
    server: &'a str,
    /// What changed, in one sentence.
    answer: String,
    days: &'a [Row],
    /// The comparison that the sentence is about.
    changed: Option<Comparison>,
    /// Files that cannot be read.
    skipped: &'a [String],
}

/// Prints a row for each day of a folder, and what changed.
pub(crate) fn days(flags: &cli::Report, directory: &Path) -> Result<(), Failure> {
    let cli::Report { svg, flame, collapsed, pprof, firefox, csv, otlp, .. } = flags;
    let of_one = [svg, flame, collapsed, pprof, firefox, csv].iter().any(|file| file.is_some());
    if of_one || otlp.is_some() {
        return Err(misuse(format!(
            "{} is a folder: give one of its trials for this output",
            directory.display()
        )));
    }
    let past = Past::open(directory, flags.server.as_deref(), ZONE).map_err(misuse)?;
    let options = flags.analysis.options()?;
    let rows = past.rows(&options).map_err(misuse)?;
    let (answer, changed) = answer(&past, CompareOptions { analysis: options, ..<_>::default() });
    let (server, skipped) = (past.server.as_str(), past.skipped.as_slice());
    let days = Days { server, answer, days: &rows, changed, skipped };
    if let Some(path) = &flags.html {
        let sheet = sheet_of(&days);
        let title = sheet.title.clone();
        let chapter = Chapter {
            name: "days".to_owned(),
            asks: "what each day was like".to_owned(),
            sheet: Sheet { title: "Days".to_owned(), facts: Vec::new(), ..sheet },
            figures: Vec::new(),
        };
        output::write(path, &sheet::page(&days.answer, &title, &[chapter]))?;
    }
    output::show(flags.json, &days, |days| sheet::sheet(&sheet_of(days), output::width()))
}

/// What changed: the last release with the one before, or the last day with those before.
fn answer(past: &Past, options: CompareOptions) -> (String, Option<Comparison>) {
    let compared = past.sides(&Question::default(), live::now_s());
    let compared = compared.and_then(|sides| Ok((past::compare(&sides, &options)?, sides.what)));
    match compared {
        Ok((found, what)) => {
            let answer = ::report::answer(&found);
            let answer = answer.trim_end_matches('.');
            (format!("{answer}, {what}."), Some(found))
        }
        Err(error) => (format!("Nothing to compare yet: {error}."), None),
    }
}

fn sheet_of(days: &Days<'_>) -> Sheet {
    let mut facts = vec![("Answer".to_owned(), days.answer.clone())];
    let most = days.days.iter().map(|row| row.recorder_percent).fold(0.0, f64::max);
    facts.push(("Recorder".to_owned(), format!("at most {} % of a CPU on a day", fixed(most, 2))));
    facts.extend(days.skipped.iter().map(|why| ("Skipped".to_owned(), why.clone())));
    let latency = |us: Option<u64>| us.map_or_else(|| "-".to_owned(), |us| latency(us as f64));
    let capacity = |row: &&Row| {
        let figure = row.capacity.as_ref();
        let value = figure.and_then(|figure| Some((figure.value?, figure.low?, figure.high?)));
        value.map_or_else(
            || "-".to_owned(),
            |(value, low, high)| format!("{} ({} to {})", rate(value), rate(low), rate(high)),
        )
    };
    let table = Rows::of(
        "Days",
        days.days,
        &[
            ("<Day", &|row: &&Row| row.day.to_string()),
            ("<Release", &|row| row.release.short()),
            ("Recorded", &|row| duration(row.recorded_s)),
            ("Requests", &|row| thousands(row.requests)),
            ("Peak/s", &|row| rate(row.rate_peak)),
            ("µs CPU", &|row| {
                row.us_per_request.map_or_else(|| "-".to_owned(), |us| fixed(us, 1))
            }),
            ("p99", &|row| latency(row.p99_us)),
            ("Capacity/s", &capacity),
        ],
        "Days of the local time. µs CPU: all CPU time of the server, divided by the requests. To \
         compare two spans: plimsoll compare DIR --since \"last week\"",
    );
    Sheet { title: format!("{}, day by day", days.server), facts, tables: vec![table] }
}

/// Compares two spans of a folder: what they are, and the comparison.
pub(crate) fn compared(
    flags: &cli::Compare,
    options: &CompareOptions,
) -> Result<(String, Comparison), Failure> {
    let past = Past::open(&flags.trial, flags.server.as_deref(), ZONE).map_err(misuse)?;
    let cli::Compare { since, before, after, .. } = flags;
    let question = Question { since: since.clone(), before: before.clone(), after: after.clone() };
    let sides = past.sides(&question, live::now_s()).map_err(misuse)?;
    let found = past::compare(&sides, options).map_err(misuse)?;
    for why in &past.skipped {
        eprintln!("plimsoll: skipped: {why}");
    }
    Ok((format!("{}: {}", past.server, sides.what), found))
}
