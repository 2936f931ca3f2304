//! Whole logs, read afterwards: what a recording would have counted, from files that
//! are plain or compressed.
//!
//! ```text
//! plain file - pieces of 4 MiB, read by every core -----------+
//! packed, pipe - one thread unpacks - blocks of whole lines --+-> lines -> tallies -> one survey
//! ```
//!
//! Memory is bounded whatever the files contain: a piece or a few blocks per thread, a fixed table
//! of classes, and time bins that become coarser when there are too many.
//!
//! What never happens: a bad line or a truncated file is fatal; unread data goes unreported.

mod causes;
pub(crate) mod show;
mod source;
mod tally;
pub(crate) mod zip;

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde::Serialize;

use crate::Unreadable;
use crate::formats::{Format, FormatChoice, Line, Stamps};
use crate::parts::Joiner;
use crate::sample::sample;
use source::Source;
use tally::Tally;

/// Number of bad lines that are shown.
const SHOWN_MAX: usize = 5;

/// Lines at the head of a file that are tried to detect its format.
const HEAD_LINES_MAX: usize = 1000;

/// What to read, and how.
#[derive(Clone, Debug, Default)]
pub struct SurveySpec {
    /// The files, in any order. `-` is the standard input. Pipes are read once.
    pub files: Vec<PathBuf>,
    /// Their format.
    pub format: FormatChoice,
    /// Number of threads that read lines; 0 means one per CPU.
    pub threads: usize,
    /// Whether bad lines are reduced to their shape.
    pub redact: bool,
}

/// The totals of whole logs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Survey {
    /// The format of the first file.
    pub format: String,
    /// What its stamps mean, and their grain.
    pub declares: String,
    /// What is wrong with the log, and what to do: the cause before the figures.
    pub causes: Vec<String>,
    /// Lines: `lines == requests + bad + blank + events`. A line that was split is one.
    pub lines: u64,
    /// Lines that were understood. Each is one request.
    pub requests: u64,
    /// Lines that were not understood.
    pub bad: u64,
    /// Lines without anything, and comments.
    pub blank: u64,
    /// Lines that were understood, but are no requests.
    pub events: u64,
    /// The first stamp, ns since the Unix epoch.
    pub first_ns: Option<i64>,
    /// The last stamp.
    pub last_ns: Option<i64>,
    /// Requests per second from the first stamp to the last, including the grain of the last.
    pub mean_rate: Option<f64>,
    /// The busiest bin of the finest known width.
    pub peak: Option<Bin>,
    /// The width of the bins that the peak was chosen from, s: one, unless the log is very long.
    pub peak_width_s: i64,
    /// Requests by time.
    pub bins: Vec<Bin>,
    /// Their width, s: the finest of 1, 60, 3600 and 86400 that yields at most 1500 bins.
    pub bin_width_s: i64,
    /// Bytes sent, if the format has them.
    pub bytes: u64,
    /// What to type so that the latencies are read, if the lines seem to have them.
    pub hint: Option<String>,
    /// How long requests took; `None` if the format does not have it.
    pub latency: Option<Latency>,
    /// Requests by class, most first.
    pub classes: Vec<ClassCount>,
    /// The files in chronological order.
    pub files: Vec<FileSurvey>,
    /// The first lines that were not understood.
    pub bad_lines: Vec<BadLine>,
    /// Bytes of text read, after decompression.
    pub text_bytes: u64,
    /// Time spent reading, s.
    pub took_s: f64,
}

/// Requests in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// Its beginning, s since the Unix epoch.
    pub start_s: i64,
    /// Requests stamped in it.
    pub requests: u64,
}

/// How long requests took, us.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Requests whose time is known.
    pub count: u64,
    /// The grain: 1, 1,000 or 1,000,000. A latency of 0 is shorter than this.
    pub grain_us: u64,
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: u64,
    /// 90th percentile.
    pub p90_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// 99.9th percentile.
    pub p999_us: u64,
    /// The longest.
    pub max_us: u64,
}

/// Requests of one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassCount {
    /// Hit, miss, revalidated, error, or `-` if unknown.
    pub outcome: &'static str,
    /// The method.
    pub method: &'static str,
    /// The decade of its bytes sent.
    pub size: &'static str,
    /// Whether it used TLS.
    pub tls: &'static str,
    /// How many.
    pub requests: u64,
    /// Bytes sent to them.
    pub bytes: u64,
}

/// One file.
#[derive(Clone, Debug, Serialize)]
pub struct FileSurvey {
    /// Its name.
    pub path: PathBuf,
    /// Its compression: "plain", "gzip", "bzip2", "xz", "zstd", "lz4", "zip".
    pub packed: &'static str,
    /// Its format, if any line was understood.
    pub format: Option<String>,
    /// Lines in it.
    pub lines: u64,
    /// Lines that were not understood.
    pub bad: u64,
    /// Its first stamp, ns since the Unix epoch.
    pub first_ns: Option<i64>,
    /// Its last stamp.
    pub last_ns: Option<i64>,
    /// When it was last changed, ns since the Unix epoch, if it is a file.
    pub changed_ns: Option<i64>,
    /// What is wrong at its end, if it is truncated or damaged.
    pub torn: Option<String>,
}

/// A line that was not understood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadLine {
    /// Its file.
    pub path: PathBuf,
    /// Its offset in bytes of the decompressed text.
    pub offset: u64,
    /// The line, shortened.
    pub text: String,
}

/// Reads whole logs. Errors: a file that cannot be opened or read at all. Truncated files and bad
/// lines are reported in the survey.
pub fn survey(spec: &SurveySpec) -> Result<Survey, Unreadable> {
    let begun = Instant::now();
    let threads = match spec.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let mut heads = Vec::with_capacity(spec.files.len());
    for path in &spec.files {
        let failed = |source| Unreadable { path: path.clone(), source };
        heads.push(detect(path, &spec.format).map_err(failed)?);
    }
    // Chronologically. Files without any understood line come last, in the given order.
    heads.sort_by_key(|head| head.first_ns.unwrap_or(i64::MAX));
    let fallback = heads.iter().find_map(|head| head.format.clone());
    let hint = heads.iter().find_map(|head| head.hint.clone());
    let mut all = Tally::default();
    let mut files = Vec::new();
    let mut bad_lines = Vec::new();
    let (mut first_bad, mut first_event, mut archives) = (None, None, Vec::new());
    for head in heads {
        let path = head.source.path.clone();
        let failed = |source| Unreadable { path: path.clone(), source };
        let format = head.format.as_ref().or(fallback.as_ref());
        let changed_ns = head.source.changed_ns;
        // The header of a file in a tar archive.
        if head.source.head.get(257..262) == Some(b"ustar") {
            archives.push(path.clone());
        }
        let read = head.source.read(format, threads).map_err(failed)?;
        let tally = read.tally;
        for (offset, line) in &tally.shown {
            let text = sample(line, spec.redact);
            bad_lines.push(BadLine { path: path.clone(), offset: *offset, text });
            first_bad.get_or_insert_with(|| line.clone());
        }
        first_event = first_event.or_else(|| tally.event.clone().map(|(_, line)| line));
        files.push(FileSurvey {
            path,
            packed: read.packed.name(),
            format: format.map(Format::to_string),
            lines: tally.lines,
            bad: tally.bad,
            first_ns: tally.first_ns(),
            last_ns: tally.last_ns(),
            changed_ns,
            torn: read.torn,
        });
        all.add(tally);
    }
    bad_lines.truncate(SHOWN_MAX);
    let cut_at = all.cut_at();
    let format = fallback.as_ref();
    let mut survey = all.survey(format.map_or(1_000_000_000, Format::grain_ns));
    survey.format = format.map_or_else(|| "unknown".to_owned(), Format::to_string);
    survey.declares =
        format.map_or_else(|| "no line was understood by any format".to_owned(), Format::declares);
    survey.files = files;
    survey.bad_lines = bad_lines;
    survey.hint = hint;
    survey.causes = causes::of(
        &survey,
        first_bad.as_deref(),
        first_event.as_deref(),
        cut_at,
        &archives,
        &|line| sample(line, spec.redact),
    );
    survey.took_s = begun.elapsed().as_secs_f64();
    Ok(survey)
}

/// A file, and what its head says.
struct Head {
    source: Source,
    format: Option<Format>,
    hint: Option<String>,
    first_ns: Option<i64>,
}

fn detect(path: &Path, choice: &FormatChoice) -> std::io::Result<Head> {
    let source = Source::open(path)?;
    let (mut stamps, mut joiner) = (Stamps::default(), Joiner::default());
    let mut lines = source.head.split(|&byte| byte == b'\n').take(HEAD_LINES_MAX);
    let (mut format, mut first_ns, mut hint) = (choice.format(), None, None);
    while let (None, Some(line)) = (first_ns, lines.next()) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(line) = joiner.push(line) else { continue };
        format = format.or_else(|| choice.detect(line, &mut stamps));
        let read = format.as_ref().map(|format| format.read(line, &mut stamps));
        if let Some(Line::Request(request)) = read {
            first_ns = Some(request.stamp_ns);
            hint = format.as_ref().and_then(|format| format.elapsed_hint(line, &mut stamps));
        }
    }
    Ok(Head { source, format, hint, first_ns })
}

#[cfg(test)]
mod tests;
