//! The tables in ClickHouse: their columns, and the rows of a trial.
//!
//! The raw tables are those of [`export`], which CSV and Parquet have too. The others have
//! the sums of [`crate::windows`]. A row begins with the columns of [`COMMON`].
//!
//! All rows of a table with the same key are versions of one row, of which the newest counts. A key
//! never moves from one day to another, so it stays in one partition. The bins of a window are
//! arrays in one row, not rows: a bin that a newer version lacks is then gone.

use std::collections::{BTreeSet, HashMap, HashSet};

use export::Values;
use regress::bins::Bin;
use report::ResourceKind;
use trial::Trial;

use super::binary::Writer;
use super::client::Failed;
use crate::home::Run;
use crate::windows::{self, Window, window_of};

/// Columns that all tables have: name and type. `time` is the start of the interval, the window or
/// the trial. `version` is larger the more of the trial was known when the row was read.
const COMMON: [(&str, &str); 7] = [
    ("host", "String"),
    ("server", "String"),
    ("server_version", "String"),
    ("labels", "Array(String)"),
    ("trial", "UInt64"),
    ("time", "DateTime('UTC')"),
    ("version", "UInt64"),
];

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) name: &'static str,
    /// All columns: name and type.
    pub(super) columns: Vec<(String, String)>,
    /// The columns that identify a row, after those that all tables have in common.
    pub(super) key: &'static [&'static str],
}

/// A raw table: name and key.
pub(super) type Raw = (&'static str, &'static [&'static str]);

/// The raw tables that are sent. `profile` and `frames` have their own form here.
pub(super) const RAW: &[Raw] = &[
    AMENDED[0],
    AMENDED[1],
    AMENDED[2],
    ("threads", &["interval_number", "pid", "tid"]),
    ("turns", &["interval_number"]),
    ("stretches", &["interval_number", "kind", "held", "served", "receives_from"]),
    ("locks", &["interval_number", "kind", "owner", "stack", "futex_pid", "futex_address"]),
    ("files", &["direction", "size_from_bytes"]),
];

/// Those to whose rows late requests are added.
pub(super) const AMENDED: &[Raw] = &[
    ("intervals", &["interval_number"]),
    ("latencies", &["interval_number", "source", "invalid"]),
    ("classes", &["interval_number", "class"]),
];

/// Name and type of each column.
type Columns = &'static [(&'static str, &'static str)];

/// The other tables: name, key, columns.
const SUMS: [(&str, &[&str], Columns); 5] = [
    (
        "runs",
        &[],
        &[
            ("created_ns", "Int64"),
            ("end_ns", "Int64"),
            ("intervals", "UInt64"),
            ("complete", "UInt8"),
            ("interval_ns", "Int64"),
            ("tool_version", "String"),
            ("kernel", "String"),
            ("cpus", "UInt32"),
            ("cpu_model", "String"),
            ("memory_bytes", "UInt64"),
            ("command_line", "String"),
            ("log_format", "String"),
            ("manifest", "String"),
        ],
    ),
    (
        "windows",
        &["kind"],
        &[
            ("kind", "String"),
            ("cap", "Float64"),
            ("may_limit", "UInt8"),
            ("wakes_known", "UInt8"),
            ("processes_alternate", "UInt8"),
            // 0 where turns and busy periods say nothing.
            ("marginal_at_cap", "Float64"),
            ("marginal_sd", "Float64"),
            ("marginal_held", "UInt8"),
            // Start of the trial, seconds since the Unix epoch.
            ("created_s", "UInt32"),
            ("bins", "Array(Int32)"),
            // And the arrays of `bin_sums`.
        ],
    ),
    (
        "procedures",
        &["procedure"],
        &[("procedure", "String"), ("cpu_s", "Float64"), ("requests", "Float64")],
    ),
    ("profile", &["stack"], &[("stack", "Int64"), ("cpu_s", "Float64"), ("requests", "Float64")]),
    ("frames", &["stack"], &[("stack", "Int64"), ("names", "Array(String)")]),
];

/// The columns of `windows` with the sums of each bin: those of [`Bin`], and of the saturated
/// intervals.
pub(super) fn bin_sums() -> impl Iterator<Item = &'static str> {
    Bin::NAMES.into_iter().chain(["saturated_n", "saturated_x"])
}

/// All tables.
pub(super) fn all() -> Vec<Table> {
    let raw = export::measured(None).into_iter().filter_map(|table| {
        let (name, key) = *RAW.iter().find(|(name, _)| *name == table.name)?;
        let columns = table.columns.iter().map(|column| {
            let in_key = key.contains(&&*name_of(&column.name));
            (name_of(&column.name), type_of(&column.values, in_key).to_owned())
        });
        Some((name, key, columns.collect::<Vec<_>>()))
    });
    let owned = |(name, kind): &(&str, &str)| ((*name).to_owned(), (*kind).to_owned());
    let sums = SUMS.iter().map(|(name, key, columns)| {
        let arrays = bin_sums().filter(|_| *name == "windows");
        let arrays = arrays.map(|sum| owned(&(sum, "Array(Float64)")));
        (*name, *key, columns.iter().map(owned).chain(arrays).collect::<Vec<_>>())
    });
    let table = |(name, key, columns): (&'static str, _, Vec<_>)| {
        let columns = COMMON.iter().map(owned).chain(columns).collect();
        Table { name, columns, key }
    };
    raw.chain(sums).map(table).collect()
}

/// The name of a raw table's column. ClickHouse 18.16 cannot read its own tables again if a key has
/// the name of a word of SQL.
fn name_of(column: &str) -> String {
    if column == "interval" { "interval_number" } else { column }.to_owned()
}

/// What is unknown is NULL, or empty where there is no NULL: in keys and in texts.
fn type_of(values: &Values, in_key: bool) -> &'static str {
    match (values, in_key) {
        (Values::Whole(_), true) => "Int64",
        (Values::Whole(_), false) => "Nullable(Int64)",
        (Values::Number(_), true) => "Float64",
        (Values::Number(_), false) => "Nullable(Float64)",
        (Values::Text(_), _) => "String",
        (Values::Truth(_), _) => "UInt8",
    }
}

/// A block of rows of one table, as RowBinary.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) table: &'static str,
    pub(super) rows: u64,
    pub(super) body: Vec<u8>,
}

/// A block has about this many bytes at most, and this many days: each is a partition.
const BLOCK_BYTES: usize = 4 << 20;
const BLOCK_DAYS: usize = 30;

/// Where blocks go. An error ends the work.
pub(super) type Sink<'a> = dyn FnMut(Block) -> Result<(), Failed> + 'a;

/// The statement that inserts a block.
pub(super) fn insert_sql(table: &str) -> String {
    let columns = all().into_iter().find(|other| other.name == table).map(|table| table.columns);
    let names: Vec<String> =
        columns.into_iter().flatten().map(|(name, _)| format!("`{name}`")).collect();
    format!("INSERT INTO {table} ({}) FORMAT RowBinary", names.join(", "))
}

/// The resources that a trial or a part of it may have.
const KINDS: [ResourceKind; 3] =
    [ResourceKind::HottestThread, ResourceKind::Server, ResourceKind::Machine];

/// Encodes the rows of one trial or of a part of it.
pub(super) struct Encoder<'a> {
    trial: &'a Trial,
    run: &'a Run,
    /// The values of the common columns before `time`.
    common: Writer,
    version: u64,
}

impl<'a> Encoder<'a> {
    /// `run`: of the whole trial. `version`: larger the more of the trial is known.
    pub(super) fn new(trial: &'a Trial, run: &'a Run, version: u64) -> Encoder<'a> {
        let mut common = Writer::default();
        common.text(&run.server.host);
        common.text(&run.server.server);
        common.text(run.version.as_deref().unwrap_or_default());
        let labels = run.labels.iter().map(|label| format!("{}={}", label.name, label.value));
        common.texts(&labels.collect::<Vec<_>>());
        common.bytes(run.trial.to_le_bytes());
        Encoder { trial, run, common, version }
    }

    fn rows<'s>(&'s self, table: &'static str, sink: &'s mut Sink<'_>) -> Rows<'s> {
        let block = Block { table, rows: 0, body: Vec::new() };
        Rows { encoder: self, block, days: Vec::new(), sink }
    }

    fn created_s(&self) -> i64 {
        self.run.created_ns.div_euclid(1_000_000_000)
    }

    /// These raw tables, and the frames of stacks that are not in `known` yet.
    pub(super) fn raw(
        &self,
        tables: &[Raw],
        known: &mut HashSet<i64>,
        sink: &mut Sink<'_>,
    ) -> Result<(), Failed> {
        let starts: HashMap<i64, i64> = self
            .trial
            .intervals()
            .iter()
            .map(|i| (i.index.cast_signed(), i.start_ns.div_euclid(1_000_000_000)))
            .collect();
        for table in export::measured(Some(self.trial)) {
            let Some(&(name, key)) = tables.iter().find(|(name, _)| *name == table.name) else {
                continue;
            };
            let intervals = table.columns.iter().find(|column| column.name == "interval");
            let mut rows = self.rows(name, sink);
            for at in 0..table.rows {
                let time_s = match intervals.map(|column| &column.values) {
                    Some(Values::Whole(numbers)) => {
                        // What is in the file before its interval is sent with it.
                        let start = numbers[at].and_then(|number| starts.get(&number));
                        let Some(start) = start else { continue };
                        *start
                    }
                    _ => self.created_s(),
                };
                rows.row(time_s, |row| {
                    for column in &table.columns {
                        value(row, &column.values, at, key.contains(&&*name_of(&column.name)));
                    }
                })?;
            }
            rows.end()?;
        }
        self.frames(known, sink)
    }

    fn frames(&self, known: &mut HashSet<i64>, sink: &mut Sink<'_>) -> Result<(), Failed> {
        let mut rows = self.rows("frames", sink);
        for stack in 0..self.trial.stacks().len() as u32 {
            let identity = export::stack_identity(self.trial, stack).cast_signed();
            if known.insert(identity) {
                let frames = self.trial.stack_frames(stack).rev();
                let names: Vec<String> = frames.map(report::frame_label).collect();
                rows.row(self.created_s(), |row| {
                    row.bytes(identity.to_le_bytes());
                    row.texts(&names);
                })?;
            }
        }
        rows.end()
    }

    /// The sums of the windows for whose start `wanted` is true. All their intervals must be there.
    ///
    /// Which resources a trial has depends on all of it. One that it lacks gets a row without bins,
    /// which replaces the row that a part of the trial may have had.
    pub(super) fn sums(
        &self,
        wanted: impl Fn(i64) -> bool,
        sink: &mut Sink<'_>,
    ) -> Result<(), Failed> {
        let mut all = windows::windows(self.trial);
        all.retain(|window| wanted(window.start_s));
        let starts = self.trial.intervals().iter().map(|interval| window_of(interval.start_ns));
        let mut missing: BTreeSet<(i64, &str)> = starts
            .filter(|start_s| wanted(*start_s))
            .flat_map(|start_s| KINDS.map(|kind| (start_s, kind.label())))
            .collect();
        let mut rows = self.rows("windows", sink);
        for bins in all.chunk_by(|a, b| (a.start_s, &a.kind) == (b.start_s, &b.kind)) {
            missing.remove(&(bins[0].start_s, &*bins[0].kind));
            rows.row(bins[0].start_s, |row| window(row, &bins[0], bins, self.created_s()))?;
        }
        for (start_s, kind) in missing {
            let none = Window { kind: kind.to_owned(), ..Window::default() };
            rows.row(start_s, |row| window(row, &none, &[], self.created_s()))?;
        }
        rows.end()?;
        let profile = windows::profile(self.trial);
        let mut requests: HashMap<i64, f64> = HashMap::new();
        let mut rows = self.rows("procedures", sink);
        for one in profile.procedures.iter().filter(|one| wanted(one.start_s)) {
            requests.insert(one.start_s, one.requests);
            rows.row(one.start_s, |row| {
                row.text(&one.procedure);
                row.bytes(one.cpu_s.to_le_bytes());
                row.bytes(one.requests.to_le_bytes());
            })?;
        }
        rows.end()?;
        let mut rows = self.rows("profile", sink);
        for one in profile.stacks.iter().filter(|one| wanted(one.start_s)) {
            rows.row(one.start_s, |row| {
                row.bytes(one.stack.cast_signed().to_le_bytes());
                row.bytes(one.cpu_s.to_le_bytes());
                row.bytes(requests.get(&one.start_s).copied().unwrap_or_default().to_le_bytes());
            })?;
        }
        rows.end()
    }

    /// The row of the trial itself.
    pub(super) fn run(&self, sink: &mut Sink<'_>) -> Result<(), Failed> {
        let manifest = self.trial.manifest();
        let mut rows = self.rows("runs", sink);
        rows.row(self.created_s(), |row| {
            row.bytes(self.run.created_ns.to_le_bytes());
            row.bytes(self.run.end_ns.to_le_bytes());
            row.bytes(self.run.intervals.to_le_bytes());
            row.bytes([u8::from(self.trial.complete())]);
            row.bytes(manifest.interval_ns.to_le_bytes());
            row.text(&manifest.tool_version);
            row.text(&manifest.host.kernel);
            row.bytes(manifest.host.cpus.to_le_bytes());
            row.text(&manifest.host.cpu_model);
            row.bytes(manifest.host.memory_bytes.to_le_bytes());
            row.text(&manifest.server.command_line);
            row.text(manifest.log_format.as_deref().unwrap_or_default());
            row.text(&serde_json::to_string(manifest).unwrap_or_default());
        })?;
        rows.end()
    }
}

/// Rows of one table, sent in blocks.
struct Rows<'s> {
    encoder: &'s Encoder<'s>,
    block: Block,
    /// The days in the block.
    days: Vec<i64>,
    sink: &'s mut Sink<'s>,
}

impl Rows<'_> {
    fn row(&mut self, time_s: i64, write: impl FnOnce(&mut Writer)) -> Result<(), Failed> {
        let day = time_s.div_euclid(86_400);
        if !self.days.contains(&day) {
            self.days.push(day);
        }
        if self.block.body.len() >= BLOCK_BYTES || self.days.len() > BLOCK_DAYS {
            self.send()?;
            self.days.push(day);
        }
        let mut row = Writer(std::mem::take(&mut self.block.body));
        row.0.extend_from_slice(&self.encoder.common.0);
        row.bytes(second(time_s).to_le_bytes());
        row.bytes(self.encoder.version.to_le_bytes());
        write(&mut row);
        self.block.body = row.0;
        self.block.rows += 1;
        Ok(())
    }

    fn send(&mut self) -> Result<(), Failed> {
        let next = Block { table: self.block.table, rows: 0, body: Vec::new() };
        self.days.clear();
        (self.sink)(std::mem::replace(&mut self.block, next))
    }

    fn end(mut self) -> Result<(), Failed> {
        if self.block.rows > 0 { self.send() } else { Ok(()) }
    }
}

/// A time as ClickHouse stores it, the nearest that it can.
fn second(time_s: i64) -> u32 {
    u32::try_from(time_s.max(0)).unwrap_or(u32::MAX)
}

fn value(row: &mut Writer, values: &Values, at: usize, in_key: bool) {
    let mut known = |known: bool| {
        if !in_key {
            row.bytes([u8::from(!known)]);
        }
        known || in_key
    };
    match values {
        Values::Whole(values) => {
            if known(values[at].is_some()) {
                row.bytes(values[at].unwrap_or_default().to_le_bytes());
            }
        }
        Values::Number(values) => {
            if known(values[at].is_some()) {
                row.bytes(values[at].unwrap_or_default().to_le_bytes());
            }
        }
        Values::Text(values) => row.text(values[at].as_deref().unwrap_or_default()),
        Values::Truth(values) => row.bytes([u8::from(values[at])]),
    }
}

/// The bins of one kind in one window.
fn window(row: &mut Writer, first: &Window, bins: &[Window], created_s: i64) {
    row.text(&first.kind);
    row.bytes(first.cap.to_le_bytes());
    row.bytes([first.may_limit, first.wakes_known, first.processes_alternate].map(u8::from));
    let marginal = first.marginal;
    row.bytes(marginal.map_or(0.0, |of| of.at_cap).to_le_bytes());
    row.bytes(marginal.map_or(0.0, |of| of.sd).to_le_bytes());
    row.bytes([u8::from(marginal.is_some_and(|of| of.held))]);
    row.bytes(second(created_s).to_le_bytes());
    row.length(bins.len());
    bins.iter().for_each(|window| row.bytes(window.bin.to_le_bytes()));
    let values: Vec<_> = bins.iter().map(|window| window.sums.values()).collect();
    for sum in 0..Bin::NAMES.len() {
        row.numbers(values.iter().map(|values| values[sum]));
    }
    row.numbers(bins.iter().map(|window| window.saturated_n));
    row.numbers(bins.iter().map(|window| window.saturated_x));
}
