//! The anatomy of file access: delays by size, and the lint for needless reads.

use serde::Serialize;
use trial::Trial;
use trial::files::{Delays, Direction, FileRow};

use crate::figure::{Curve, Panel, Stroke, Ticks, Tone, curves};
use crate::format::{NONE, fixed, latency, percent, thousands};
use crate::summary::{Fact, Table};
use crate::waits::lost;

/// The kind of loss of calls that could not be followed for want of their open.
pub(crate) const OPEN_BEFORE: &str = "files: call on a descriptor that was open before";

/// Needless reads that take less of the time in the calls are left to the table.
const LINT_PERCENT: f64 = 1.0;

/// What became of files, where it was sampled.
#[derive(Clone, Debug, Serialize)]
pub struct Files {
    /// By direction and size, read ones first; sizes without a file are left out.
    pub sizes: Vec<FilesOfSize>,
    /// Reads that only told where a file ends, over all sizes.
    pub needless: NeedlessReads,
    /// What was not followed, in a sentence.
    pub lost: String,
}

/// Files of one direction and of alike size.
#[derive(Clone, Debug, Serialize)]
pub struct FilesOfSize {
    /// Read or written.
    pub direction: Direction,
    /// The smallest size, bytes, at the close.
    pub size_from: u64,
    /// Sizes are below this; `None`: no bound.
    pub size_below: Option<u64>,
    /// Files, from open to close.
    pub objects: u64,
    /// Reads or writes of one.
    pub calls_per_object: f64,
    /// Bytes read or written of one.
    pub bytes_per_object: f64,
    /// Time in the open and the first read or write: the median, microseconds.
    pub first_median_us: Option<f64>,
    /// Time in all calls: the median, microseconds.
    pub total_median_us: Option<f64>,
    /// The same: the 99th percentile, microseconds.
    pub total_p99_us: Option<f64>,
    /// Mean time in the open, microseconds.
    pub open_mean_us: f64,
    /// Mean time in the first read or write.
    pub first_call_mean_us: f64,
    /// Mean time in the others, together.
    pub rest_mean_us: f64,
    /// Mean time in the close.
    pub close_mean_us: f64,
    /// Reads that only told where the file ends.
    #[serde(flatten)]
    pub needless: NeedlessReads,
}

/// Reads that returned nothing after others that had returned something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct NeedlessReads {
    /// How many.
    pub needless: u64,
    /// Those right after a read that came back short: the end was known by then.
    pub after_short: u64,
    /// Files with one.
    pub needless_objects: u64,
    /// Of so many.
    pub of_objects: u64,
    /// Their share of the time in all calls on those files, percent.
    pub needless_percent: f64,
}

/// The files of a trial; `None` if nobody looked at any.
pub(crate) fn files(trial: &Trial) -> Option<Files> {
    let looked = |capability: &trial::Capability| capability.name == "file anatomy";
    let sampled = trial.manifest().capabilities.iter().any(|c| looked(c) && c.supported);
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

/// A warning, where needless reads cost something.
pub(crate) fn lint(files: &Files) -> Option<Fact> {
    let found = &files.needless;
    if found.needless == 0 || found.needless_percent < LINT_PERCENT {
        return None;
    }
    let text = format!(
        "of {} files read, {} were read on past their end: {} reads that returned nothing, {} of \
         them right after a short one, take {} % of the time in the calls on files read; ask for \
         the exact length, and take a short read for the end",
        thousands(found.of_objects as f64),
        thousands(found.needless_objects as f64),
        thousands(found.needless as f64),
        thousands(found.after_short as f64),
        percent(found.needless_percent)
    );
    Some(Fact { label: "Files", text, warns: true })
}

/// The tables: files read, and files written.
pub(crate) fn tables(files: &Files) -> Vec<Table> {
    let of =
        |direction: Direction| files.sizes.iter().filter(move |row| row.direction == direction);
    let objects = |direction| thousands(of(direction).map(|row| row.objects).sum::<u64>() as f64);
    let what = "calls and bytes are of one file; first: the median time in its open and first \
                call; total: that in all its calls, and its 99th percentile; within 6 %; %: the \
                share of needless reads in that time";
    let mut read = Table::new(
        "Files read, by size",
        &["<KiB", "files", "reads", "bytes", "first", "total", "99 %", "needless", "%"],
        &format!("{what}; n = {} files; {}", objects(Direction::Read), files.lost),
    );
    for row in of(Direction::Read) {
        let mut cells = common(row);
        cells.push(thousands(row.needless.needless as f64));
        cells.push(percent(row.needless.needless_percent));
        read.rows.push(cells);
    }
    let mut written = Table::new(
        "Files written, by size",
        &["<KiB", "files", "writes", "bytes", "first", "total", "99 %"],
        &format!("{what}; n = {} files", objects(Direction::Written)),
    );
    written.rows.extend(of(Direction::Written).map(common));
    let mut tables = vec![read, written];
    // Of nothing written nothing needs to be said; of nothing at all, that somebody looked.
    tables.retain(|table| !table.rows.is_empty());
    if tables.is_empty() {
        let none = format!("no file was followed from its open to its close; {}", files.lost);
        tables.push(Table::new("Files", &[], &none));
    }
    tables
}

/// Larger files are in the table only: on their axis the small ones would be one point.
const DRAWN_BELOW: u64 = 128 << 10;
/// Fewer sizes than this are no curve.
const SIZES_DRAWN_MIN: usize = 3;

/// The delays by size, drawn; `None` where there are too few sizes. `style` is empty where the page
/// has it.
pub(crate) fn figure(files: &Files, style: &str) -> Option<String> {
    let panels: Vec<Panel> = [(Direction::Read, "read"), (Direction::Written, "written")]
        .into_iter()
        .filter_map(|(direction, name)| panel(files, direction, name))
        .collect();
    let title = "Delay of a file by its size";
    let description = "Median time in the first call and in all calls, by size";
    (!panels.is_empty()).then(|| curves(title, description, &panels, style))
}

fn panel(files: &Files, direction: Direction, name: &str) -> Option<Panel> {
    let drawn: Vec<&FilesOfSize> = files
        .sizes
        .iter()
        .filter(|row| row.direction == direction && row.size_from < DRAWN_BELOW)
        .collect();
    if drawn.len() < SIZES_DRAWN_MIN {
        return None;
    }
    let curve = |name: &str, tone: Tone, of: fn(&FilesOfSize) -> Option<f64>| {
        let point = |row: &&FilesOfSize| {
            let us = of(row)?;
            let below = row.size_below.unwrap_or(row.size_from);
            let kib = f64::midpoint(row.size_from as f64, below as f64) / 1024.0;
            let (files, size) = (thousands(row.objects as f64), fixed(kib, 1));
            Some((kib, us, format!("{size} KiB: {}, n = {files} files", latency_fine(us))))
        };
        let points = drawn.iter().filter_map(point).collect();
        Curve { name: name.to_string(), tone, stroke: Stroke::Joined, points }
    };
    Some(Panel {
        title: format!("Files {name}"),
        x: "size, KiB".to_string(),
        ticks: Ticks::Binary,
        y: "median delay, µs".to_string(),
        marks: Vec::new(),
        curves: vec![
            curve("first call", Tone::First, |row| row.first_median_us),
            curve("all calls", Tone::Second, |row| row.total_median_us),
        ],
        note: String::new(),
    })
}

fn common(row: &FilesOfSize) -> Vec<String> {
    let kib = |bytes: u64| thousands((bytes >> 10) as f64);
    let size = match row.size_below {
        Some(below) => format!("{}-{}", kib(row.size_from), kib(below)),
        None => format!("from {}", kib(row.size_from)),
    };
    let or_none = |us: Option<f64>| us.map_or_else(|| NONE.to_string(), latency_fine);
    vec![
        size,
        thousands(row.objects as f64),
        fixed(row.calls_per_object, 2),
        thousands(row.bytes_per_object),
        or_none(row.first_median_us),
        or_none(row.total_median_us),
        or_none(row.total_p99_us),
    ]
}

/// A file in the page cache takes a few microseconds: tenths count.
fn latency_fine(us: f64) -> String {
    if us < 99.95 { format!("{us:.1} µs") } else { latency(us) }
}
