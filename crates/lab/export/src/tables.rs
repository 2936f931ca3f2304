//! The tables of a trial as columns, for CSV, Parquet and ClickHouse.
//!
//! | table | one row for each |
//! | --- | --- |
//! | `intervals` | interval: its requests, the modes of machine and server, how it was used |
//! | `threads` | thread of the server and interval |
//! | `latencies` | interval and source of latencies |
//! | `classes` | class of requests and interval |
//! | `turns` | interval in which turns of the event loop were counted |
//! | `stretches` | kind, size and interval of turns and busy periods |
//! | `profile` | owner, stack and interval: its samples |
//! | `locks` | kind of lock, owner, stack, futex and interval: its waits |
//! | `files` | direction and size of files |
//! | `frames` | stack of `profile` and `locks`: its procedures |
//! | `costs` | part of the cost of a request, with its intervals |
//!
//! Column names end in their unit: `_ns` is nanoseconds, `_us` microseconds. A table without rows
//! is written with its header. Rows that belong to an interval have its number in the first column.

use std::collections::{BTreeMap, HashMap};

use trial::files::{Direction, FileRow};
use trial::profile::{Owner, SampleRow};
use trial::stretches::{StretchRow, TurnRow};
use trial::waits::WaitRow;
use trial::{
    Histogram, Interval, LatencyRow, LatencySource, Modes, ProcessTimes, ThreadTimes, Trial,
};

use crate::collapsed::plain;
use report::{Analysis, CostRow, CostTable, Standing, frame_label};

/// A table by columns, all of one length.
#[derive(Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Number of rows.
    pub rows: usize,
}

/// A column of a table.
#[derive(Debug)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// The value of each row.
    pub values: Values,
}

/// The values of a column; `None` is an unknown value.
#[derive(Debug)]
pub enum Values {
    /// Whole numbers.
    Whole(Vec<Option<i64>>),
    /// Numbers, all finite.
    Number(Vec<Option<f64>>),
    /// Texts.
    Text(Vec<Option<String>>),
    /// Truth values, all known.
    Truth(Vec<bool>),
}

impl Values {
    /// The values of these rows.
    pub(super) fn pick(&self, rows: &[usize]) -> Values {
        fn of<T: Clone>(values: &[T], rows: &[usize]) -> Vec<T> {
            rows.iter().map(|&row| values[row].clone()).collect()
        }
        match self {
            Values::Whole(values) => Values::Whole(of(values, rows)),
            Values::Number(values) => Values::Number(of(values, rows)),
            Values::Text(values) => Values::Text(of(values, rows)),
            Values::Truth(values) => Values::Truth(of(values, rows)),
        }
    }
}

/// All tables.
pub(super) fn tables(trial: &Trial, analysis: &Analysis) -> Vec<Table> {
    let mut tables = of(Some(trial), Some(analysis));
    tables.push(costs(analysis.costs.as_ref()));
    tables
}

/// The tables that need no analysis: of a trial, or of a part of one. `None`: without rows, for the
/// names and types of their columns.
pub fn measured(trial: Option<&Trial>) -> Vec<Table> {
    of(trial, None)
}

fn of(trial: Option<&Trial>, analysis: Option<&Analysis>) -> Vec<Table> {
    let intervals = trial.map_or(&[][..], Trial::intervals);
    vec![
        self::intervals(intervals, analysis),
        threads(intervals),
        latencies(trial.map_or(&[], Trial::latencies)),
        classes(trial.map_or(&[], Trial::classes)),
        turns(trial.map_or(&[], Trial::turns)),
        stretches(trial.map_or(&[], Trial::stretches)),
        profile(trial),
        locks(trial),
        files(trial.map_or(&[], Trial::files)),
        frames(trial),
    ]
}

/// Builds the columns of a table from its rows.
struct Columns<'a, T> {
    rows: &'a [T],
    columns: Vec<Column>,
}

impl<'a, T> Columns<'a, T> {
    fn of(rows: &'a [T]) -> Columns<'a, T> {
        Columns { rows, columns: Vec::new() }
    }

    fn add(mut self, name: &str, values: Values) -> Columns<'a, T> {
        self.columns.push(Column { name: name.to_string(), values });
        self
    }

    fn whole(self, name: &str, of: impl Fn(&T) -> Option<i64>) -> Columns<'a, T> {
        let values = Values::Whole(self.rows.iter().map(of).collect());
        self.add(name, values)
    }

    fn count(self, name: &str, of: impl Fn(&T) -> Option<u64>) -> Columns<'a, T> {
        self.whole(name, |row| of(row).map(|count| i64::try_from(count).unwrap_or(i64::MAX)))
    }

    /// A value that is not finite counts as unknown.
    fn number(self, name: &str, of: impl Fn(&T) -> Option<f64>) -> Columns<'a, T> {
        let finite = |row| of(row).filter(|value| value.is_finite());
        let values = Values::Number(self.rows.iter().map(finite).collect());
        self.add(name, values)
    }

    fn text(self, name: &str, of: impl Fn(&T) -> Option<String>) -> Columns<'a, T> {
        let values = Values::Text(self.rows.iter().map(of).collect());
        self.add(name, values)
    }

    fn truth(self, name: &str, of: impl Fn(&T) -> bool) -> Columns<'a, T> {
        let values = Values::Truth(self.rows.iter().map(of).collect());
        self.add(name, values)
    }

    fn table(self, name: &'static str) -> Table {
        Table { name, columns: self.columns, rows: self.rows.len() }
    }
}

fn intervals(intervals: &[Interval], analysis: Option<&Analysis>) -> Table {
    type Of<'a> = (&'a Interval, Option<Standing>);
    let analysed = analysis.map_or(&[][..], |analysis| &analysis.intervals);
    let standings: HashMap<u64, Standing> =
        analysed.iter().map(|row| (row.index, row.standing)).collect();
    let rows: Vec<Of<'_>> = intervals
        .iter()
        .map(|interval| (interval, standings.get(&interval.index).copied()))
        .collect();
    let mut columns = Columns::of(&rows)
        .count("interval", |(i, _)| Some(i.index))
        .whole("start_unix_ns", |(i, _)| Some(i.start_ns))
        .whole("length_ns", |(i, _)| Some(i.length_ns))
        .number("requests", |(i, _)| Some(i.requests))
        .count("requests_ended", |(i, _)| Some(i.requests_ended))
        .number("requests_per_s", |(i, _)| Some(i.rate()))
        .truth("rate_valid", |(i, _)| i.rate_valid)
        .text("phase", |(i, _)| i.phase.clone());
    if analysis.is_some() {
        columns = columns.text("standing", |(_, standing)| {
            standing.map(|standing| standing.label().to_string())
        });
    }
    for (name, of) in MODES {
        columns = columns.whole(&format!("machine_{name}_ns"), |(i, _)| Some(of(&i.machine)));
    }
    let server = |of: fn(&ProcessTimes) -> Option<u64>| {
        move |(i, _): &Of<'_>| i.server.as_ref().and_then(of)
    };
    columns
        .whole("server_user_ns", |(i, _)| i.server.map(|server| server.user_ns))
        .whole("server_kernel_ns", |(i, _)| i.server.map(|server| server.kernel_ns))
        .whole("server_total_ns", |(i, _)| i.server.map(|server| server.total_ns))
        .count("server_processes", server(|s| Some(s.processes.into())))
        .count("server_threads", server(|s| Some(s.threads.into())))
        .count("server_voluntary_switches", server(|s| Some(s.voluntary_switches)))
        .count("server_involuntary_switches", server(|s| Some(s.involuntary_switches)))
        .count("server_rss_bytes", server(|s| Some(s.rss_bytes)))
        .count("server_descriptors", server(|s| s.descriptors))
        .whole("recorder_ns", |(i, _)| Some(i.recorder_ns))
        .table("intervals")
}

/// A mode with its name.
type Mode = (&'static str, fn(&Modes) -> i64);

const MODES: [Mode; 9] = [
    ("user", |modes| modes.user_ns),
    ("nice", |modes| modes.nice_ns),
    ("system", |modes| modes.system_ns),
    ("irq", |modes| modes.irq_ns),
    ("softirq", |modes| modes.softirq_ns),
    ("idle", |modes| modes.idle_ns),
    ("iowait", |modes| modes.iowait_ns),
    ("steal", |modes| modes.steal_ns),
    ("guest", |modes| modes.guest_ns),
];

fn threads(intervals: &[Interval]) -> Table {
    let rows: Vec<(u64, &ThreadTimes)> = intervals
        .iter()
        .flat_map(|interval| interval.threads.iter().map(move |thread| (interval.index, thread)))
        .collect();
    Columns::of(&rows)
        .count("interval", |(interval, _)| Some(*interval))
        .count("pid", |(_, thread)| Some(thread.pid.into()))
        .count("tid", |(_, thread)| Some(thread.tid.into()))
        .text("name", |(_, thread)| Some(thread.name.clone()))
        .whole("user_ns", |(_, thread)| Some(thread.user_ns))
        .whole("kernel_ns", |(_, thread)| Some(thread.kernel_ns))
        .whole("total_ns", |(_, thread)| Some(thread.total_ns))
        .count("wakes", |(_, thread)| Some(thread.wakes))
        .table("threads")
}

/// Late requests have rows in addition to the first: they are added up.
fn latencies(latencies: &[LatencyRow]) -> Table {
    type Key = (u64, LatencySource, bool);
    let mut rows: BTreeMap<Key, (u64, Option<Histogram<u64>>)> = BTreeMap::new();
    for row in latencies {
        let (count, sum) = rows.entry((row.interval, row.source, row.invalid)).or_default();
        *count += row.count;
        match (sum, row.histogram_us()) {
            // Both have the same precision and grow by themselves.
            (Some(sum), Some(histogram)) => sum.add(&histogram).unwrap_or_default(),
            (sum, histogram) => *sum = histogram.or(sum.take()),
        }
    }
    let rows: Vec<_> = rows.into_iter().collect();
    let mut columns = Columns::of(&rows)
        .count("interval", |((interval, ..), _)| Some(*interval))
        .text("source", |((_, source, _), _)| Some(source.as_str().to_string()))
        .truth("invalid", |((.., invalid), _)| *invalid)
        .count("count", |(_, (count, _))| Some(*count));
    for (name, quantile) in [("median_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("max_us", 1.0)]
    {
        columns = columns.count(name, |(_, (_, histogram))| {
            let measured = histogram.as_ref().filter(|histogram| !histogram.is_empty());
            measured.map(|histogram| histogram.value_at_quantile(quantile))
        });
    }
    columns.table("latencies")
}

fn classes(rows: &[trial::classes::ClassRow]) -> Table {
    Columns::of(rows)
        .count("interval", |row| Some(row.interval))
        .text("class", |row| Some(row.class.clone()))
        .number("requests", |row| Some(row.requests))
        .count("requests_ended", |row| Some(row.ended))
        .number("bytes", |row| Some(row.bytes))
        .table("classes")
}

fn turns(rows: &[TurnRow]) -> Table {
    Columns::of(rows)
        .count("interval", |row| Some(row.interval))
        .whole("sampled_ns", |row| Some(row.sampled_ns))
        .count("turns", |row| Some(row.turns))
        .count("clients", |row| Some(row.clients))
        .count("upstreams", |row| Some(row.upstreams))
        .table("turns")
}

fn stretches(rows: &[StretchRow]) -> Table {
    Columns::of(rows)
        .count("interval", |row| Some(row.interval))
        .text("kind", |row| Some(row.kind.name().to_string()))
        .truth("held", |row| row.held)
        .truth("served", |row| row.served)
        .count("receives_from", |row| Some(row.size.into()))
        .count("stretches", |row| Some(row.stretches))
        .count("turns", |row| Some(row.turns))
        .count("clients", |row| Some(row.clients))
        .count("upstreams", |row| Some(row.upstreams))
        .whole("cpu_ns", |row| Some(row.cpu_ns))
        .table("stretches")
}

/// The identities of a trial's stacks: hashes of their names, with a sign.
fn identities(trial: Option<&Trial>) -> Vec<i64> {
    let stacks = trial.map_or(0, |trial| trial.stacks().len() as u32);
    let identity = |stack| trial.map_or(0, |trial| stack_identity(trial, stack).cast_signed());
    (0..stacks).map(identity).collect()
}

/// The identity of a stack: a hash of the names of its procedures, the same in all trials.
#[must_use]
pub fn stack_identity(trial: &Trial, stack: u32) -> u64 {
    let names: Vec<String> = trial.stack_frames(stack).rev().map(frame_label).collect();
    trial::stable_hash(names.join("\0").as_bytes())
}

fn profile(trial: Option<&Trial>) -> Table {
    let stacks = identities(trial);
    let samples = trial.map_or(&[][..], Trial::samples).iter();
    let rows: Vec<&SampleRow> = samples.filter(|row| row.owner != Owner::Idle).collect();
    Columns::of(&rows)
        .count("interval", |row| Some(row.interval))
        .text("owner", |row| Some(row.owner.name().to_string()))
        .whole("stack", |row| stacks.get(row.stack as usize).copied())
        .count("samples", |row| Some(row.samples.into()))
        .whole("cpu_ns", |row| Some(row.ns))
        .table("profile")
}

fn locks(trial: Option<&Trial>) -> Table {
    let stacks = identities(trial);
    let mut sums: BTreeMap<_, WaitRow> = BTreeMap::new();
    for row in trial.map_or(&[][..], Trial::waits) {
        let sum = sums.entry((row.interval, row.kind, row.owner, row.stack, row.word));
        sum.and_modify(|sum| {
            sum.waits += row.waits;
            sum.total_ns += row.total_ns;
            sum.max_ns = sum.max_ns.max(row.max_ns);
            sum.spun_ns += row.spun_ns;
            sum.timed_out += row.timed_out;
        })
        .or_insert(*row);
    }
    let rows: Vec<WaitRow> = sums.into_values().collect();
    Columns::of(&rows)
        .count("interval", |row| Some(row.interval))
        .text("kind", |row| Some(row.kind.label().to_string()))
        .text("owner", |row| Some(row.owner.name().to_string()))
        .whole("stack", |row| stacks.get(row.stack as usize).copied())
        .count("futex_pid", |row| row.word.map(|word| word.pid.into()))
        .whole("futex_address", |row| row.word.map(|word| word.address.cast_signed()))
        .count("waits", |row| Some(row.waits))
        .whole("total_ns", |row| Some(row.total_ns))
        .whole("max_ns", |row| Some(row.max_ns))
        .whole("spun_ns", |row| Some(row.spun_ns))
        .count("timed_out", |row| Some(row.timed_out))
        .table("locks")
}

fn files(rows: &[FileRow]) -> Table {
    let direction = |direction| match direction {
        Direction::Read => "read",
        Direction::Written => "written",
    };
    Columns::of(rows)
        .text("direction", |row| Some(direction(row.direction).to_string()))
        .count("size_from_bytes", |row| Some(row.size_from))
        .count("size_below_bytes", |row| row.size_below)
        .count("objects", |row| Some(row.objects))
        .count("calls", |row| Some(row.calls))
        .count("bytes", |row| Some(row.bytes))
        .whole("open_ns", |row| Some(row.open_ns))
        .whole("first_ns", |row| Some(row.first_ns))
        .whole("rest_ns", |row| Some(row.rest_ns))
        .whole("close_ns", |row| Some(row.close_ns))
        .whole("elapsed_ns", |row| Some(row.elapsed_ns))
        .count("needless", |row| Some(row.needless))
        .count("needless_after_short", |row| Some(row.after_short))
        .count("needless_objects", |row| Some(row.needless_objects))
        .whole("needless_ns", |row| Some(row.needless_ns))
        .table("files")
}

/// The names are separated by semicolons, the outermost first. Stacks with the same names are one.
fn frames(trial: Option<&Trial>) -> Table {
    let stacks = trial.map_or(0, |trial| trial.stacks().len() as u32);
    let names = |stack| -> Vec<String> {
        let frames = trial.map(|trial| trial.stack_frames(stack).rev());
        frames.into_iter().flatten().map(|frame| plain(&frame_label(frame))).collect()
    };
    let rows: BTreeMap<i64, Vec<String>> =
        identities(trial).into_iter().zip((0..stacks).map(names)).collect();
    let rows: Vec<(i64, Vec<String>)> = rows.into_iter().collect();
    Columns::of(&rows)
        .whole("stack", |(stack, _)| Some(*stack))
        .text("procedure", |(_, names)| names.last().cloned())
        .text("names", |(_, names)| Some(names.join(";")))
        .table("frames")
}

fn costs(costs: Option<&CostTable>) -> Table {
    let mut rows: Vec<(&str, &CostRow)> = Vec::new();
    if let Some(costs) = costs {
        rows.push(("whole", &costs.whole));
        rows.extend(costs.modes.iter().map(|row| ("mode", row)));
        for group in &costs.groups {
            rows.push(("group", &group.row));
            rows.extend(group.procedures.iter().map(|row| ("procedure", row)));
        }
        rows.push(("unsampled", &costs.unsampled));
        rows.extend(costs.outside.iter().map(|row| ("outside", row)));
    }
    let procedure = |row: &CostRow| row.procedure.clone();
    Columns::of(&rows)
        .text("part", |(part, _)| Some((*part).to_string()))
        .text("name", |(_, row)| Some(row.name.clone()))
        .text("group", |(_, row)| Some(row.group.clone()).filter(|group| !group.is_empty()))
        .text("module", |(_, row)| procedure(row).map(|procedure| procedure.module))
        .text("mode", |(_, row)| procedure(row).map(|procedure| procedure.mode.to_string()))
        .number("us_per_request", |(_, row)| Some(row.us_per_request))
        .number("us_low", |(_, row)| Some(row.us_low))
        .number("us_high", |(_, row)| Some(row.us_high))
        .number("share_percent", |(_, row)| Some(row.share_percent))
        .number("fixed_percent", |(_, row)| Some(row.fixed_percent))
        .number("fixed_low", |(_, row)| Some(row.fixed_low))
        .number("fixed_high", |(_, row)| Some(row.fixed_high))
        .table("costs")
}
