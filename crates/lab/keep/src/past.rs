//! The past of one server from a directory of trials: a row for each day, and a comparison of two
//! spans of time.
//!
//! The figures are those of [`report`]: the trials of a day are joined and analysed as one, and two
//! spans are joined and compared as two trials are. Other contents of the trials are not used, such
//! as profiles in a trial that was recorded by hand.
//!
//! A *release* is the version of a server's package, the build id of its program, and the labels.
//! Trials of different releases are never joined.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use report::{CapacityFigure, CompareOptions, Comparison, Options};
use serde::Serialize;
use trial::{Histogram, Manifest, Trial};

use crate::calendar::{DAY_S, Day, Zone};
use crate::error::Error;
use crate::program::{LABEL_BUILD, LABEL_VERSION, short};
use crate::{thin, when};

const SECOND_NS: i64 = 1_000_000_000;
/// Lengths of intervals in an analysis, seconds: the first with which a span has few enough.
const LENGTHS_S: [i64; 4] = [10, 60, 300, 3600];
// Those of a thinned trial are among them.
const _: () = assert!(LENGTHS_S[1] == thin::LEVELS[0].1 && LENGTHS_S[2] == thin::LEVELS[1].1);
/// Most intervals of a span. A week of five minutes each has 2,016.
const INTERVALS_MAX: i64 = 2_100;
/// A span is compared with at least so many days before it, if they were recorded.
const BEFORE_DAYS_MIN: i64 = 7;
/// Characters of a release in a narrow column.
const SHORT_CHARS_MAX: usize = 24;
/// Most versions that a message names.
const NAMED: usize = 6;

/// What a server ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Release {
    /// The version of its package.
    pub version: Option<String>,
    /// Labels, among them the build id of its program.
    pub labels: BTreeMap<String, String>,
}

/// Labels that do not say what ran.
const LABELS_OF_PLACE: [&str; 3] = ["server", "host", LABEL_VERSION];

impl Release {
    fn of(manifest: &Manifest) -> Release {
        let mut labels = manifest.labels.clone();
        let version =
            manifest.server.version.clone().or_else(|| labels.get(LABEL_VERSION).cloned());
        labels.retain(|name, _| !LABELS_OF_PLACE.contains(&name.as_str()));
        Release { version, labels }
    }

    /// `version 1.24, release 42`; `None` if nothing is known.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        let version = self.version.iter().map(|version| format!("version {version}"));
        let named = self.version.is_some();
        let labels = self.labels.iter().filter_map(|(name, value)| match name.as_str() {
            LABEL_BUILD if named => None,
            LABEL_BUILD => Some(format!("build {}", short(value))),
            _ => Some(format!("{name} {value}")),
        });
        let text = version.chain(labels).collect::<Vec<String>>().join(", ");
        (!text.is_empty()).then_some(text)
    }

    /// The same for a narrow column: `1.24, 42`.
    #[must_use]
    pub fn short(&self) -> String {
        let named = self.version.is_some();
        let labels = self.labels.iter().filter_map(|(name, value)| match name.as_str() {
            LABEL_BUILD if named => None,
            LABEL_BUILD => Some(short(value)),
            _ => Some(value.as_str()),
        });
        let all: Vec<&str> = self.version.as_deref().into_iter().chain(labels).collect();
        let text = all.join(", ");
        match text.char_indices().nth(SHORT_CHARS_MAX) {
            _ if text.is_empty() => "-".to_owned(),
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }

    /// Whether a text names it: a version or its begin, the value of a label, or `name=value`.
    fn is_named(&self, text: &str) -> bool {
        let begins = |version: &String| {
            let rest = version.strip_prefix(text);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
        };
        self.version.iter().any(begins)
            || text
                .strip_prefix("version=")
                .is_some_and(|text| self.version.as_deref() == Some(text))
            || self.labels.iter().any(|(name, value)| {
                value == text || text.split_once('=') == Some((name.as_str(), value.as_str()))
            })
    }
}

/// One trial of the directory.
#[derive(Clone, Debug)]
struct Part {
    path: PathBuf,
    from_s: i64,
    to_s: i64,
    release: Release,
}

/// The trials of one server, the oldest first.
#[derive(Debug)]
pub struct Past {
    /// The server, `host/server`.
    pub server: String,
    /// Files that cannot be read, with the reasons.
    pub skipped: Vec<String>,
    zone: Zone,
    parts: Vec<Part>,
}

/// A day of the past, with one release.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The day.
    pub day: Day,
    /// When its recording begins, ns since the Unix epoch.
    pub from_ns: i64,
    /// When it ends.
    pub to_ns: i64,
    /// What ran.
    pub release: Release,
    /// Length of the recording, seconds.
    pub recorded_s: f64,
    /// Requests.
    pub requests: f64,
    /// Mean rate, requests/s.
    pub rate_mean: f64,
    /// The highest rate of an interval.
    pub rate_peak: f64,
    /// CPU time of the server per request, microseconds.
    pub us_per_request: Option<f64>,
    /// Median latency, microseconds.
    pub p50_us: Option<u64>,
    /// 99th percentile of the latency.
    pub p99_us: Option<u64>,
    /// The capacity, as in a report of the day; `None` if the day has no line.
    pub capacity: Option<CapacityFigure>,
    /// The recorder's own CPU time, percent of one CPU.
    pub recorder_percent: f64,
}

/// Two spans of the past.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sides {
    before: Side,
    after: Side,
    /// What the comparison is about, in one sentence.
    pub what: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Side {
    paths: Vec<PathBuf>,
    from_s: i64,
    to_s: i64,
    name: String,
}

/// What to compare.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// From this time or release on, with what was before.
    pub since: Option<String>,
    /// This time or release ...
    pub before: Option<String>,
    /// ... with this one.
    pub after: Option<String>,
}

impl Past {
    /// Finds the trials of a directory and of the directories in it. With `server`, only those of
    /// servers with this text in their name count.
    ///
    /// # Errors
    /// The directory cannot be read, has no trials, or has those of several servers.
    pub fn open(directory: &Path, server: Option<&str>, zone: Zone) -> Result<Past, Error> {
        let failed = |source| Error::Directory { path: directory.to_owned(), source };
        let files = trials_in(directory).map_err(failed)?;
        let mut skipped = Vec::new();
        let mut servers: BTreeMap<String, Vec<Part>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for path in files {
            match part(&path) {
                Ok(Some((name, identity, part))) => {
                    if seen.insert(identity) {
                        servers.entry(name).or_default().push(part);
                    }
                }
                // It has no interval yet.
                Ok(None) => {}
                Err(error) => skipped.push(error.to_string()),
            }
        }
        let all: Vec<String> = servers.keys().cloned().collect();
        servers.retain(|name, _| server.is_none_or(|text| name.contains(text)));
        let shown = directory.display();
        let missing = |what: String| Err(Error::Missing { what });
        let first = servers.pop_first();
        match (first, servers.len()) {
            (Some((server, mut parts)), 0) => {
                parts.sort_by_key(|part| part.from_s);
                Ok(Past { server, skipped, zone, parts })
            }
            (Some(_), _) => missing(format!(
                "{shown} has trials of several servers: {}; choose one with --server NAME",
                all.join(", ")
            )),
            (None, _) if !all.is_empty() => {
                missing(format!("{shown} has no trial of that server; it has {}", all.join(", ")))
            }
            (None, _) => missing(match skipped.first() {
                Some(why) => format!("{shown} has no trial that can be read: {why}"),
                None => format!(
                    "{shown} has no trials with intervals: record some with `plimsoll record \
                     --keep {shown} --name NAME`"
                ),
            }),
        }
    }

    /// A row for each day and release.
    ///
    /// # Errors
    /// A trial cannot be read any more.
    pub fn rows(&self, options: &Options) -> Result<Vec<Row>, Error> {
        let mut days: Vec<(Day, Vec<&Part>)> = Vec::new();
        for part in &self.parts {
            let day = self.zone.day(part.from_s);
            match days.last_mut() {
                Some((last, parts)) if *last == day && parts[0].release == part.release => {
                    parts.push(part);
                }
                _ => days.push((day, vec![part])),
            }
        }
        let rows = report::in_parallel(days, |(day, parts)| self.row(day, &parts, options));
        rows.into_iter().collect()
    }

    fn row(&self, day: Day, parts: &[&Part], options: &Options) -> Result<Row, Error> {
        let side = self.side(&parts.iter().map(|part| (*part).clone()).collect::<Vec<_>>(), None);
        let trial = joined(&side, length_s(&[&side]))?;
        let seconds = |ns: i64| ns as f64 / 1e9;
        let recorded_s = seconds(trial.intervals().iter().map(|one| one.length_ns).sum());
        let requests: f64 = trial.intervals().iter().map(|one| one.requests).sum();
        let server_ns: i64 =
            trial.intervals().iter().filter_map(|one| Some(one.server?.total_ns)).sum();
        let recorder_ns = trial.intervals().iter().map(|one| one.recorder_ns).sum();
        let valid = trial.intervals().iter().filter(|one| one.rate_valid);
        let latencies = latencies(&trial);
        let at = |quantile| latencies.as_ref().map(|all| all.value_at_quantile(quantile));
        Ok(Row {
            day,
            from_ns: parts.first().map_or(0, |part| part.from_s) * SECOND_NS,
            to_ns: parts.last().map_or(0, |part| part.to_s) * SECOND_NS,
            release: parts[0].release.clone(),
            recorded_s,
            requests,
            rate_mean: if recorded_s > 0.0 { requests / recorded_s } else { 0.0 },
            rate_peak: valid.map(trial::Interval::rate).fold(0.0, f64::max),
            us_per_request: (requests >= 1.0).then(|| server_ns as f64 / 1e3 / requests),
            p50_us: at(0.5),
            p99_us: at(0.99),
            capacity: report::analyse(&trial, options).ok().map(|analysis| analysis.capacity),
            recorder_percent: if recorded_s > 0.0 {
                100.0 * seconds(recorder_ns) / recorded_s
            } else {
                0.0
            },
        })
    }

    /// The spans that a question is about. Without any, it is about the last change of the release;
    /// if there was none, about the last day.
    ///
    /// # Errors
    /// A time is not understood, or nothing was recorded then.
    pub fn sides(&self, question: &Question, now_s: i64) -> Result<Sides, Error> {
        match question {
            Question { before: Some(before), after: Some(after), .. } => {
                let before = self.named(before, now_s)?;
                let after = self.named(after, now_s)?;
                let what = format!("{} compared with {}", after.name, before.name);
                Ok(Sides { before, after, what })
            }
            Question { since: Some(since), .. } | Question { after: Some(since), .. } => {
                let from_s = match self.of_release(since) {
                    Some(parts) => parts[0].from_s,
                    None => self.time(since, now_s)?.0,
                };
                let change = self.changes().into_iter().find(|at| self.parts[*at].from_s >= from_s);
                self.since(from_s, change)
            }
            Question { before: Some(before), .. } => {
                let before = self.named(before, now_s)?;
                let later: Vec<Part> =
                    self.parts.iter().filter(|part| part.to_s > before.to_s).cloned().collect();
                let first = later.first().ok_or_else(|| self.nothing("after that time"))?;
                let same = later.iter().take_while(|part| part.release == first.release);
                let same: Vec<Part> = same.cloned().collect();
                let after = self.side(&same, Some((before.to_s, i64::MAX)));
                let what = format!("{} compared with {}", after.name, before.name);
                Ok(Sides { before, after, what })
            }
            Question { since: None, before: None, after: None } => {
                let change = self.changes().last().copied();
                let last = self.parts.last().expect("the past has a trial");
                let from_s = match change {
                    Some(at) => self.parts[at].from_s,
                    None => self.zone.begin_s(self.zone.day(last.from_s)),
                };
                self.since(from_s, change)
            }
        }
    }

    /// The trials that begin another release than the one before.
    #[must_use]
    fn changes(&self) -> Vec<usize> {
        let pairs = self.parts.windows(2).enumerate();
        let changed = pairs.filter(|(_, pair)| pair[0].release != pair[1].release);
        changed.map(|(at, _)| at + 1).collect()
    }

    /// Compares what is from an instant on, or from a change of the release on, with what was
    /// before it, each with one release.
    fn since(&self, from_s: i64, change: Option<usize>) -> Result<Sides, Error> {
        let border_s = change.map_or(from_s, |at| self.parts[at].from_s);
        let after: Vec<Part> =
            self.parts.iter().filter(|part| part.to_s > border_s).cloned().collect();
        let first = after.first().ok_or_else(|| self.nothing("since then"))?.release.clone();
        let after: Vec<Part> = after.into_iter().take_while(|part| part.release == first).collect();
        let after = self.side(&after, Some((border_s, i64::MAX)));
        let days_s = (BEFORE_DAYS_MIN * DAY_S).max(after.to_s - border_s);
        let earlier = self.parts.iter().filter(|part| part.from_s < border_s);
        let last = earlier.clone().next_back().ok_or_else(|| self.nothing("before that"))?;
        let before: Vec<Part> = earlier
            .rev()
            .take_while(|part| part.release == last.release && part.to_s > border_s - days_s)
            .cloned()
            .collect();
        let before: Vec<Part> = before.into_iter().rev().collect();
        let before = self.side(&before, Some((border_s - days_s, border_s)));
        let at = self.zone.text(border_s);
        let what = match (change, first.text(), last.release.text()) {
            (Some(_), Some(new), Some(old)) => format!("since {at}, when {new} replaced {old}"),
            (Some(_), Some(new), None) => format!("since {at}, when {new} began"),
            (Some(_), None, _) => format!("since {at}, when another program began"),
            (None, Some(only), _) => format!("since {at}, with {only} before and after"),
            (None, None, _) => format!("since {at}"),
        };
        Ok(Sides { before, after, what })
    }

    /// The span that a text names: a release, or a time.
    fn named(&self, text: &str, now_s: i64) -> Result<Side, Error> {
        if let Some(parts) = self.of_release(text) {
            return Ok(self.side(&parts, None));
        }
        let (from_s, to_s) = self.time(text, now_s)?;
        let inside = |part: &&Part| part.to_s > from_s && part.from_s < to_s;
        let parts: Vec<Part> = self.parts.iter().filter(inside).cloned().collect();
        if parts.is_empty() {
            return Err(self.nothing(&format!("in {text:?}")));
        }
        Ok(self.side(&parts, Some((from_s, to_s))))
    }

    fn of_release(&self, text: &str) -> Option<Vec<Part>> {
        let named = self.parts.iter().filter(|part| part.release.is_named(text));
        let named: Vec<Part> = named.cloned().collect();
        (!named.is_empty()).then_some(named)
    }

    fn time(&self, text: &str, now_s: i64) -> Result<when::Span, Error> {
        when::span(text, self.zone, now_s).map_err(|why| {
            let releases: BTreeSet<String> =
                self.parts.iter().filter_map(|part| part.release.text()).collect();
            let shown: Vec<String> = releases.into_iter().take(NAMED).collect();
            let or = match shown.is_empty() {
                true => String::new(),
                false => format!("; or a version or label that was recorded: {}", shown.join("; ")),
            };
            Error::Missing { what: format!("{why}{or}") }
        })
    }

    fn nothing(&self, when: &str) -> Error {
        let first = self.parts.first().map_or(0, |part| part.from_s);
        let last = self.parts.last().map_or(0, |part| part.to_s);
        let (first, last) = (self.zone.text(first), self.zone.text(last));
        let server = &self.server;
        let what = format!(
            "nothing was recorded of {server} {when}: the recordings are from {first} to {last}"
        );
        Error::Missing { what }
    }

    /// A side of these trials, cut to a span.
    fn side(&self, parts: &[Part], cut: Option<(i64, i64)>) -> Side {
        let (cut_from_s, cut_to_s) = cut.unwrap_or((i64::MIN, i64::MAX));
        let first = parts.iter().map(|part| part.from_s).min().unwrap_or(0).max(cut_from_s);
        let last = parts.iter().map(|part| part.to_s).max().unwrap_or(0).min(cut_to_s);
        let release = parts.first().and_then(|part| part.release.text());
        let release = release.filter(|_| parts.iter().all(|one| one.release == parts[0].release));
        let release = release.map_or(String::new(), |text| format!(", {text}"));
        Side {
            paths: parts.iter().map(|part| part.path.clone()).collect(),
            from_s: first,
            to_s: last,
            // It is shown where the name of a file is.
            name: format!("{} to {}{release}", self.zone.text(first), self.zone.text(last))
                .replace('/', "-"),
        }
    }
}

/// Compares the two spans as two trials are compared.
///
/// # Errors
/// A trial cannot be read any more, or one of the spans cannot be analysed.
pub fn compare(sides: &Sides, options: &CompareOptions) -> Result<Comparison, Error> {
    // Both have the same intervals, so that what an interval hides is the same in both.
    let length_s = length_s(&[&sides.before, &sides.after]);
    let before = joined(&sides.before, length_s)?;
    let after = joined(&sides.after, length_s)?;
    Ok(report::compare(&before, &after, options)?)
}

/// The length of intervals with which none of the spans has too many.
fn length_s(sides: &[&Side]) -> i64 {
    let longest_s = sides.iter().map(|side| side.to_s - side.from_s).max().unwrap_or(0);
    let fits = LENGTHS_S.iter().find(|length_s| longest_s / **length_s <= INTERVALS_MAX);
    *fits.unwrap_or(&LENGTHS_S[LENGTHS_S.len() - 1])
}

/// The trials of a side as one.
fn joined(side: &Side, length_s: i64) -> Result<Trial, Error> {
    let read = report::in_parallel(side.paths.clone(), |path| {
        let (from_ns, to_ns) =
            (side.from_s.saturating_mul(SECOND_NS), (side.to_s + 1).saturating_mul(SECOND_NS));
        Ok(Trial::open(path)?.between(from_ns, to_ns).thinned(length_s * SECOND_NS))
    });
    let trials = read.into_iter().collect::<Result<Vec<Trial>, Error>>()?;
    Ok(Trial::joined(trials, &side.name).expect("a side has a trial"))
}

/// The latencies of a trial, by its first source.
fn latencies(trial: &Trial) -> Option<Histogram<u64>> {
    let source = trial.latencies().first()?.source;
    let rows = trial.latencies().iter().filter(|row| row.source == source && !row.invalid);
    let mut all: Option<Histogram<u64>> = None;
    for histogram in rows.filter_map(trial::LatencyRow::histogram_us) {
        match &mut all {
            Some(all) => all.add(histogram).ok()?,
            None => {
                let mut first = histogram;
                first.auto(true);
                all = Some(first);
            }
        }
    }
    all.filter(|all| !all.is_empty())
}

/// The description of a trial, with the name and the identity; `None` if it has no interval.
fn part(path: &Path) -> Result<Option<(String, u64, Part)>, trial::Error> {
    let (first, last) = (Trial::part(path, 0, 1)?, Trial::recent(path, 1)?);
    let manifest = last.manifest();
    let ends = first.intervals().first().zip(last.intervals().last());
    Ok(ends.map(|(first, last)| {
        let part = Part {
            path: path.to_owned(),
            from_s: first.start_ns.div_euclid(SECOND_NS),
            to_s: (last.start_ns + last.length_ns).div_euclid(SECOND_NS),
            release: Release::of(manifest),
        };
        let name = format!("{}/{}", manifest.host_name(), manifest.server_name());
        (name, manifest.identity(), part)
    }))
}

/// The trials in a directory and in the directories in it.
fn trials_in(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            // One that cannot be read is not the operator's.
            let below = fs::read_dir(&path).into_iter().flatten().filter_map(Result::ok);
            found.extend(below.map(|entry| entry.path()));
        } else {
            found.push(path);
        }
    }
    found.retain(|path| path.extension().is_some_and(|extension| extension == "trial"));
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use report::Verdict;

    use super::*;
    use crate::testing::part_of;

    const ZONE: Zone = Zone::Fixed(0);

    fn day(text: &str) -> Day {
        Day::parse(text).unwrap()
    }

    /// Two weeks of a server, of which a release on Wednesday made a request cost 20 % more.
    fn slowed(directory: &Path, cost_after_us: f64) {
        for ago in 1..=12 {
            let start_s = ZONE.begin_s(day("2026-11-28").plus(-ago));
            let wednesday_s = ZONE.at_s(day("2026-11-18"), 12, 0);
            if ZONE.day(start_s) == ZONE.day(wednesday_s) {
                part_of(directory, start_s, (720, 60), 50.0, Some("1.22.1-9"));
                part_of(directory, wednesday_s, (720, 60), cost_after_us, Some("1.24.0-1"));
                continue;
            }
            let (cost_us, version) = match start_s < wednesday_s {
                true => (50.0, "1.22.1-9"),
                false => (cost_after_us, "1.24.0-1"),
            };
            part_of(directory, start_s, (1_440, 60), cost_us, Some(version));
        }
    }

    fn now_s() -> i64 {
        ZONE.at_s(day("2026-11-28"), 9, 0)
    }

    fn since(text: &str) -> Question {
        Question { since: Some(text.to_owned()), ..Question::default() }
    }

    #[test]
    fn last_weeks_release_made_it_slower() {
        let home = tempfile::tempdir().unwrap();
        slowed(home.path(), 60.0);
        let past = Past::open(home.path(), None, ZONE).unwrap();
        assert_eq!(past.server, "edge/nginx");
        let sides = past.sides(&since("last week"), now_s()).unwrap();
        let what = "since 2026-11-18 12:00, when version 1.24.0-1 replaced version 1.22.1-9";
        assert_eq!(sides.what, what);
        let found = compare(&sides, &CompareOptions::default()).unwrap();
        assert_eq!(found.verdict, Verdict::Regression, "{}", found.why);
        let ratio = &found.cost.as_ref().unwrap().ratio;
        assert!((1.15..1.25).contains(&ratio.value), "{ratio:?}");
        assert!(ratio.runs_low.unwrap() < 1.2 && ratio.runs_high.unwrap() > 1.19, "{ratio:?}");
        assert!(report::answer(&found).starts_with("Worse: a request costs"));
        // The same by the versions, by the whole of the question, and without one.
        for question in [
            since("1.24"),
            Question::default(),
            Question {
                before: Some("1.22".to_owned()),
                after: Some("version=1.24.0-1".to_owned()),
                ..Question::default()
            },
            Question { before: Some("1.22".to_owned()), ..Question::default() },
        ] {
            let other = past.sides(&question, now_s()).unwrap();
            let found = compare(&other, &CompareOptions::default()).unwrap();
            assert_eq!(found.verdict, Verdict::Regression, "{question:?}: {}", found.why);
        }
    }

    #[test]
    fn a_release_that_changed_nothing_is_no_regression() {
        let home = tempfile::tempdir().unwrap();
        slowed(home.path(), 50.0);
        let past = Past::open(home.path(), Some("nginx"), ZONE).unwrap();
        let sides = past.sides(&since("last week"), now_s()).unwrap();
        let found = compare(&sides, &CompareOptions::default()).unwrap();
        assert_eq!(found.verdict, Verdict::NoChange, "{}", found.why);
        // Since a time after the release, both sides have the same one.
        let sides = past.sides(&since("3 days ago"), now_s()).unwrap();
        assert_eq!(sides.what, "since 2026-11-25 00:00, with version 1.24.0-1 before and after");
        // A span that contains the release in its middle is cut there, and goes back to midnight.
        assert_eq!(sides.before.from_s, ZONE.at_s(day("2026-11-18"), 12, 0));
    }

    #[test]
    fn a_row_for_each_day_and_release() {
        let home = tempfile::tempdir().unwrap();
        slowed(home.path(), 60.0);
        // A restart of the recorder: the day has two trials and one row.
        part_of(home.path(), ZONE.at_s(day("2026-11-28"), 0, 0), (360, 10), 60.0, Some("1.24.0-1"));
        part_of(home.path(), ZONE.at_s(day("2026-11-28"), 2, 0), (360, 10), 60.0, Some("1.24.0-1"));
        let past = Past::open(home.path(), None, ZONE).unwrap();
        let rows = past.rows(&Options::default()).unwrap();
        assert_eq!(rows.len(), 14);
        let last = rows.last().unwrap();
        assert_eq!((last.day, last.recorded_s), (day("2026-11-28"), 7_200.0));
        assert!((60.0..65.0).contains(&last.us_per_request.unwrap()), "{last:?}");
        assert!((rows[2].us_per_request.unwrap() - 51.0).abs() < 1.0, "{:?}", rows[2]);
        assert!(rows[2].capacity.as_ref().unwrap().value.is_some());
        let of = |rows: &[Row], version: &str| {
            rows.iter().filter(|row| row.release.version.as_deref() == Some(version)).count()
        };
        assert_eq!((of(&rows, "1.22.1-9"), of(&rows, "1.24.0-1")), (3, 11));
    }

    #[test]
    fn what_cannot_be_answered_says_what_can() {
        let home = tempfile::tempdir().unwrap();
        let error = |past: Result<Past, Error>| past.unwrap_err().to_string();
        let none = error(Past::open(home.path(), None, ZONE));
        assert!(none.contains("--keep"), "{none}");
        part_of(home.path(), now_s() - 7_200, (360, 10), 50.0, Some("1.22"));
        let past = Past::open(home.path(), None, ZONE).unwrap();
        let sides = |question: &Question| past.sides(question, now_s()).unwrap_err().to_string();
        let text = sides(&since("soon"));
        assert!(text.contains("last week") && text.contains("version 1.22"), "{text}");
        let text = sides(&since("last week"));
        assert!(text.contains("before that") && text.contains("2026-11-28 07:00"), "{text}");
        let text = sides(&Question { before: Some("yesterday".to_owned()), ..since("today") });
        assert!(text.contains("before that"), "{text}");
        let text = error(Past::open(home.path(), Some("haproxy"), ZONE));
        assert!(text.contains("edge/nginx"), "{text}");
        fs::write(home.path().join("b.trial"), "no trial").unwrap();
        let past = Past::open(home.path(), None, ZONE).unwrap();
        assert_eq!(past.skipped.len(), 1);
    }
}
