//! The parts of the screen as tables of text: their columns and the order of their rows.

use ::report::format::{NONE, bytes, fixed, latency, percent, rate, thousands, three};
use ::report::{CostRow, Procedure, ProfileRow, RowKind, WaitsAtPlace};
use trial::files::Direction;
use trial::profile::Owner;

use super::view::{Part, Sort};
use crate::watch::model::{Limit, Model};

/// How many procedures of a lock's call path are shown, innermost first.
const CALLERS_SHOWN: usize = 4;

/// A table. Each column is as wide as its content; the last gets the remaining width.
pub(super) struct Grid {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
    /// How to read the table, or why it is empty.
    pub(super) note: String,
}

/// The head of a column.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) name: &'static str,
    /// Numbers are right-aligned.
    pub(super) numeric: bool,
}

/// A row of cells.
pub(super) struct Row {
    pub(super) cells: Vec<String>,
    /// A total or an empty row.
    pub(super) dim: bool,
}

/// The table of a part.
pub(super) fn grid(part: Part, model: &Model, sort: Sort) -> Grid {
    match part {
        Part::Groups => groups(model, sort),
        Part::Procedures => procedures(model, sort),
        Part::Locks => locks(model),
        Part::Files => files(model),
        Part::Resources => resources(model),
        Part::Lost => lost(model),
    }
}

impl Grid {
    /// A name that begins with `<` marks a column of words.
    fn new(columns: &[&'static str]) -> Grid {
        let column = |name: &&'static str| {
            let words = name.trim_start_matches('<');
            Column { name: words, numeric: words.len() == name.len() }
        };
        let columns = columns.iter().map(column).collect();
        Grid { columns, rows: Vec::new(), note: String::new() }
    }

    fn push(&mut self, cells: Vec<String>) {
        self.rows.push(Row { cells, dim: false });
    }
}

/// A row of the profile with its cost per request.
struct Costed<'a> {
    row: &'a ProfileRow,
    cost: Option<&'a CostRow>,
}

/// The sorted rows of a kind of the profile.
fn costed(model: &Model, kind: RowKind, sort: Sort) -> Vec<Costed<'_>> {
    let Some(profile) = &model.recent.profile else { return Vec::new() };
    let rows = profile.rows.iter().filter(|row| row.kind == kind);
    let mut rows: Vec<Costed<'_>> =
        rows.map(|row| Costed { row, cost: cost_of(model, row) }).collect();
    let marginal = |row: &Costed<'_>| row.cost.map_or(f64::NEG_INFINITY, |c| c.us_per_request);
    match sort {
        Sort::Share => rows.sort_by(|a, b| b.row.percent.total_cmp(&a.row.percent)),
        Sort::Marginal => rows.sort_by(|a, b| marginal(b).total_cmp(&marginal(a))),
        Sort::Name => rows.sort_by(|a, b| a.row.name.cmp(&b.row.name)),
    }
    rows
}

/// What one more request costs in this row, if that could be fitted.
fn cost_of<'a>(model: &'a Model, row: &ProfileRow) -> Option<&'a CostRow> {
    let line = model.fit.line.as_ref().filter(|line| line.capacity.identifiable)?;
    let costs = line.costs.as_ref()?;
    let group = row.group.as_ref()?;
    let within = costs.groups.iter().find(|cost| cost.row.group == *group);
    let same = |procedure: &Procedure| Some(procedure) == row.procedure.as_ref();
    match (&row.procedure, within) {
        (None, Some(group)) => Some(&group.row),
        (None, None) => costs.outside.iter().find(|cost| cost.group == *group),
        (Some(_), within) => {
            within?.procedures.iter().find(|cost| cost.procedure.as_ref().is_some_and(same))
        }
    }
}

fn groups(model: &Model, sort: Sort) -> Grid {
    let mut grid =
        Grid::new(&["% busy", "% CPU", "1 more, µs", "low", "high", "fixed, %", "<group"]);
    for kind in [RowKind::NonIdle, RowKind::Idle] {
        for Costed { row, .. } in costed(model, kind, Sort::Share) {
            let mut cells = shares(row);
            cells.extend(vec![String::new(); 4]);
            cells.push(row.name.clone());
            grid.rows.push(Row { cells, dim: true });
        }
    }
    for Costed { row, cost } in costed(model, RowKind::Group, sort) {
        let mut cells = shares(row);
        cells.extend(marginal(cost));
        cells.push(cost.map_or_else(|| NONE.to_owned(), |cost| fixed(cost.fixed_percent, 2)));
        cells.push(row.name.clone());
        grid.rows.push(Row { cells, dim: row.percent == 0.0 && cost.is_none() });
    }
    grid.note = profile_note(model);
    grid
}

fn procedures(model: &Model, sort: Sort) -> Grid {
    let mut grid =
        Grid::new(&["% busy", "% CPU", "1 more, µs", "low", "high", "<mode", "<procedure"]);
    for Costed { row, cost } in costed(model, RowKind::Procedure, sort) {
        let mut cells = shares(row);
        cells.extend(marginal(cost));
        cells.push(row.mode.to_owned());
        cells.push(row.name.clone());
        grid.push(cells);
    }
    grid.note = profile_note(model);
    grid
}

fn shares(row: &ProfileRow) -> Vec<String> {
    let busy = row.percent_non_idle.map_or_else(String::new, percent);
    vec![busy, percent(row.percent)]
}

fn marginal(cost: Option<&CostRow>) -> Vec<String> {
    match cost {
        Some(cost) => [cost.us_per_request, cost.us_low, cost.us_high].map(us).to_vec(),
        None => vec![NONE.to_owned(), String::new(), String::new()],
    }
}

/// Microseconds per request. Rounding errors are shown as 0.
pub(super) fn us(value: f64) -> String {
    if value.abs() < 5e-4 { "0".to_owned() } else { three(value) }
}

fn profile_note(model: &Model) -> String {
    match &model.recent.profile {
        None => missing(model, "profile", "only idle samples so far"),
        Some(profile) => {
            let line = match model.fit.line.as_ref().filter(|line| line.capacity.identifiable) {
                Some(line) => format!("by the line through {} intervals", line.fitted),
                None => "once there is a line".to_owned(),
            };
            format!("{} at {} Hz; 1 more: one more request, {line}", profile.event, profile.hz)
        }
    }
}

/// Why a sampler has no data.
fn missing(model: &Model, sampler: &str, otherwise: &str) -> String {
    match model.recent.missing.iter().find(|capability| capability.name == sampler) {
        Some(missing) => format!("{sampler}: not recorded: {}", missing.reason),
        None => otherwise.to_owned(),
    }
}

fn locks(model: &Model) -> Grid {
    let mut grid =
        Grid::new(&["waits/s", "mean", "longest", "spun, %", "<lock", "<who", "<where, callers"]);
    let Some(waits) = &model.recent.waits else {
        grid.note = missing(model, "locks", "no waits were recorded: record with --locks");
        return grid;
    };
    for row in &waits.places {
        let figures = &row.figures;
        grid.push(vec![
            rate(figures.waits as f64 / waits.seconds),
            latency(figures.mean_us),
            latency(figures.max_us),
            percent(100.0 * figures.spun_us / figures.total_us),
            row.kind.label().to_owned(),
            who(row.owner).to_owned(),
            place(row),
        ]);
    }
    grid.note = format!(
        "time waited, not time held; {} waits; CPUs spun {} % of their time; {}",
        thousands(waits.waits as f64),
        fixed(waits.spinning_percent, 3),
        waits.lost
    );
    grid
}

fn who(owner: Owner) -> &'static str {
    match owner {
        Owner::Server => "server",
        Owner::Recorder => "recorder",
        Owner::Other | Owner::Idle => "others",
    }
}

fn place(row: &WaitsAtPlace) -> String {
    match row.place.len() {
        0 => "many places".to_owned(),
        _ => row.place[..row.place.len().min(CALLERS_SHOWN)].join(" < "),
    }
}

fn files(model: &Model) -> Grid {
    let mut grid = Grid::new(&[
        "files",
        "calls each",
        "first",
        "total",
        "99 %",
        "needless",
        "<size, direction",
    ]);
    let Some(files) = &model.recent.files else {
        grid.note = missing(model, "file anatomy", "no files were recorded: record with --files");
        return grid;
    };
    for row in &files.sizes {
        let delay = |us: Option<f64>| us.map_or_else(|| NONE.to_owned(), latency);
        let size = match row.size_below {
            Some(below) => format!("{} to {}", bytes(row.size_from), bytes(below)),
            None => format!("from {}", bytes(row.size_from)),
        };
        let (direction, needless) = match row.direction {
            Direction::Read => ("read", thousands(row.needless.needless as f64)),
            Direction::Written => ("written", String::new()),
        };
        grid.push(vec![
            thousands(row.objects as f64),
            fixed(row.calls_per_object, 2),
            delay(row.first_median_us),
            delay(row.total_median_us),
            delay(row.total_p99_us),
            needless,
            format!("{size}, {direction}"),
        ]);
    }
    grid.note = format!("from open to close, since the recording began; {}", files.lost);
    grid
}

fn resources(model: &Model) -> Grid {
    let mut grid =
        Grid::new(&["now, %", "mean, %", "capacity/s", "low", "high", "<resource", "<what"]);
    let limits: Vec<&Limit> = model.fit.line.iter().flat_map(|line| &line.resources).collect();
    for used in &model.recent.resources {
        let limit = limits.iter().find(|limit| limit.name == used.name);
        let figure = |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), rate);
        let remark = limit.and_then(|limit| limit.remark.clone()).unwrap_or_default();
        grid.push(vec![
            percent(used.now_percent),
            percent(used.mean_percent),
            figure(limit.and_then(|limit| limit.value)),
            figure(limit.and_then(|limit| limit.low)),
            figure(limit.and_then(|limit| limit.high)),
            used.name.clone(),
            match remark.as_str() {
                "" => used.detail.clone(),
                remark => format!("{}; {remark}", used.detail),
            },
        ]);
    }
    grid.note = "use in percent of each resource; the tightest one limits the server".to_owned();
    if let Some(why) = &model.fit.not_yet {
        grid.note = format!("no capacity yet: {why}; {}", grid.note);
    }
    grid
}

fn lost(model: &Model) -> Grid {
    let mut grid = Grid::new(&["count", "<what was lost", "<remark"]);
    for loss in &model.recent.losses {
        grid.push(vec![thousands(loss.count as f64), loss.kind.clone(), loss.note.clone()]);
    }
    if grid.rows.is_empty() {
        grid.note = "nothing was lost".to_owned();
    }
    grid
}
