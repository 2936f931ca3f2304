//! The tables of a trial as columns, for CSV and Parquet.
//!
//! | table | one row for each |
//! | --- | --- |
//! | `intervals` | interval: its requests, the modes of machine and server, how it was used |
//! | `threads` | thread of the server and interval |
//! | `latencies` | interval and source of latencies |
//! | `classes` | class of requests and interval |
//! | `costs` | part of the cost of a request, with its intervals |
//!
//! Column names end in their unit: `_ns` is nanoseconds, `_us` microseconds. A table without rows
//! is written with its header. Rows that belong to an interval have its number in the first column.

use std::collections::HashMap;

use trial::{Interval, Modes, ProcessTimes, ThreadTimes, Trial};

use crate::analysis::{Analysis, CostRow, CostTable, Standing};

/// A table by columns, all of one length.
pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) columns: Vec<Column>,
    pub(super) rows: usize,
}

pub(super) struct Column {
    pub(super) name: String,
    pub(super) values: Values,
}

/// `None` is an unknown value.
pub(super) enum Values {
    Whole(Vec<Option<i64>>),
    Number(Vec<Option<f64>>),
    Text(Vec<Option<String>>),
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
    vec![
        intervals(trial, analysis),
        threads(trial),
        latencies(trial),
        classes(trial),
        costs(analysis.costs.as_ref()),
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

fn intervals(trial: &Trial, analysis: &Analysis) -> Table {
    type Of<'a> = (&'a Interval, Option<Standing>);
    let standings: HashMap<u64, Standing> =
        analysis.intervals.iter().map(|row| (row.index, row.standing)).collect();
    let rows: Vec<Of<'_>> = trial
        .intervals()
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
        .text("phase", |(i, _)| i.phase.clone())
        .text("standing", |(_, standing)| standing.map(|standing| standing.label().to_string()));
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

fn threads(trial: &Trial) -> Table {
    let intervals = trial.intervals().iter();
    let rows: Vec<(u64, &ThreadTimes)> = intervals
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

fn latencies(trial: &Trial) -> Table {
    let rows: Vec<_> = trial.latencies().iter().map(|row| (row, row.histogram_us())).collect();
    let mut columns = Columns::of(&rows)
        .count("interval", |(row, _)| Some(row.interval))
        .text("source", |(row, _)| Some(row.source.as_str().to_string()))
        .truth("invalid", |(row, _)| row.invalid)
        .count("count", |(row, _)| Some(row.count));
    for (name, quantile) in [("median_us", 0.5), ("p90_us", 0.9), ("p99_us", 0.99), ("max_us", 1.0)]
    {
        columns = columns.count(name, |(_, histogram)| {
            let measured = histogram.as_ref().filter(|histogram| !histogram.is_empty());
            measured.map(|histogram| histogram.value_at_quantile(quantile))
        });
    }
    columns.table("latencies")
}

fn classes(trial: &Trial) -> Table {
    Columns::of(trial.classes())
        .count("interval", |row| Some(row.interval))
        .text("class", |row| Some(row.class.clone()))
        .number("requests", |row| Some(row.requests))
        .count("requests_ended", |row| Some(row.ended))
        .number("bytes", |row| Some(row.bytes))
        .table("classes")
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
