//! File access by size, and the needless reads.

use serde::Serialize;
use trial::Trial;
use trial::files::{Delays, Direction, FileRow};

use super::waits::lost;

/// The kind of loss for calls on files that were opened before the recording.
pub(crate) const OPEN_BEFORE: &str = "files: call on a descriptor that was open before";

/// File access.
#[derive(Clone, Debug, Serialize)]
pub struct Files {
    /// By direction and size, files read first; sizes without a file are left out.
    pub sizes: Vec<FilesOfSize>,
    /// Reads that only detected the end of a file, over all sizes.
    pub needless: NeedlessReads,
    /// What was lost, in one sentence.
    pub lost: String,
}

/// Files of one direction and one size bin.
#[derive(Clone, Debug, Serialize)]
pub struct FilesOfSize {
    /// Read or written.
    pub direction: Direction,
    /// Lower bound of the size at close, bytes.
    pub size_from: u64,
    /// Upper bound of the size, exclusive; `None`: no bound.
    pub size_below: Option<u64>,
    /// Files followed from open to close.
    pub objects: u64,
    /// Reads or writes per file.
    pub calls_per_object: f64,
    /// Bytes read or written per file.
    pub bytes_per_object: f64,
    /// Median time in the open and the first read or write, microseconds.
    pub first_median_us: Option<f64>,
    /// Median time in all calls, microseconds.
    pub total_median_us: Option<f64>,
    /// 99th percentile of the time in all calls, microseconds.
    pub total_p99_us: Option<f64>,
    /// Mean time in the open, microseconds.
    pub open_mean_us: f64,
    /// Mean time in the first read or write, microseconds.
    pub first_call_mean_us: f64,
    /// Mean total time in the other reads or writes, microseconds.
    pub rest_mean_us: f64,
    /// Mean time in the close, microseconds.
    pub close_mean_us: f64,
    /// Reads that only detected the end of the file.
    #[serde(flatten)]
    pub needless: NeedlessReads,
}

/// Reads that returned nothing after reads that had returned data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct NeedlessReads {
    /// Number of such reads.
    pub needless: u64,
    /// Those directly after a short read, when the end was already known.
    pub after_short: u64,
    /// Files with such a read.
    pub needless_objects: u64,
    /// All files.
    pub of_objects: u64,
    /// Their share of the time in all calls on these files, percent.
    pub needless_percent: f64,
}

/// The file access of a trial; `None` if it was not sampled.
pub(crate) fn files(trial: &Trial) -> Option<Files> {
    let is_sampler = |capability: &trial::Capability| capability.name == "file anatomy";
    let sampled = trial.manifest().capabilities.iter().any(|c| is_sampler(c) && c.supported);
    let rows: Vec<&FileRow> = trial.files().iter().filter(|row| row.objects > 0).collect();
    if rows.is_empty() && !sampled {
        return None;
    }
    let read: Vec<&FileRow> =
        rows.iter().copied().filter(|row| row.direction == Direction::Read).collect();
    Some(Files {
        sizes: rows.iter().map(|row| of_size(row)).collect(),
        needless: needless(&read),
        lost: lost(trial, "files: "),
    })
}

fn of_size(row: &FileRow) -> FilesOfSize {
    let objects = row.objects as f64;
    let mean = |ns: i64| ns as f64 / 1e3 / objects;
    FilesOfSize {
        direction: row.direction,
        size_from: row.size_from,
        size_below: row.size_below,
        objects: row.objects,
        calls_per_object: row.calls as f64 / objects,
        bytes_per_object: row.bytes as f64 / objects,
        first_median_us: quantile_us(&row.first, 0.5),
        total_median_us: quantile_us(&row.total, 0.5),
        total_p99_us: quantile_us(&row.total, 0.99),
        open_mean_us: mean(row.open_ns),
        first_call_mean_us: mean(row.first_ns),
        rest_mean_us: mean(row.rest_ns),
        close_mean_us: mean(row.close_ns),
        needless: needless(&[row]),
    }
}

fn needless(rows: &[&FileRow]) -> NeedlessReads {
    let sum = |of: fn(&FileRow) -> u64| rows.iter().map(|row| of(row)).sum::<u64>();
    let time = |of: fn(&FileRow) -> i64| rows.iter().map(|row| of(row)).sum::<i64>() as f64;
    NeedlessReads {
        needless: sum(|row| row.needless),
        after_short: sum(|row| row.after_short),
        needless_objects: sum(|row| row.needless_objects),
        of_objects: sum(|row| row.objects),
        needless_percent: 100.0 * time(|row| row.needless_ns)
            / time(FileRow::calls_ns).max(f64::MIN_POSITIVE),
    }
}

fn quantile_us(delays: &Delays, quantile: f64) -> Option<f64> {
    let histogram = delays.histogram_ns().filter(|histogram| !histogram.is_empty())?;
    Some(histogram.value_at_quantile(quantile) as f64 / 1e3)
}
