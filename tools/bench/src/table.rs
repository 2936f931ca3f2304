//! The results: medians over the rounds, and ratios within each round, as a table and as JSON.
//!
//! `Results` collects cells, and `Spread` is a median with its extremes. Ratios are taken within a
//! round because disturbances slow the floor in that round too, and so cancel out. A cell with a
//! fault is in no ratio. No figure is shown without its spread.

use std::fmt;

use comfy_table::presets;
use comfy_table::{CellAlignment, Table};
use load::Protocol;
use serde::Serialize;

use crate::added::Check;
use crate::measure::{BUSY_PART_MIN, Cell, Context};
use crate::scenarios::{NULL_SERVER, SCENARIOS, Scenario, Tls};
use crate::servers::{NGINX_DISK, Running, Server};

/// A median with minimum and maximum.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) rounds: usize,
}

impl Spread {
    /// `None` without values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            0.5 * (values[middle - 1] + values[middle])
        };
        Some(Spread { median, min, max, rounds: values.len() })
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ({:.2}..{:.2})", self.median, self.min, self.max)
    }
}

/// The spread of some values with this many decimals, or `-` without values.
pub(crate) fn spread_text(values: impl IntoIterator<Item = f64>, decimals: usize) -> String {
    Spread::of(values).map_or("-".to_owned(), |s| {
        format!("{:.decimals$} ({:.decimals$}..{:.decimals$})", s.median, s.min, s.max)
    })
}

/// All rounds of one server in a scenario that has a table for itself.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Rounds<T> {
    pub(crate) server: &'static str,
    pub(crate) rounds: Vec<T>,
    /// Why a round is missing, if one is.
    pub(crate) note: Option<String>,
}

/// A column of figures: its header, the figure of a round, its decimals.
pub(crate) type Column<T> = (&'static str, fn(&T) -> f64, usize);

impl<T: fmt::Debug> Rounds<T> {
    pub(crate) fn none_yet(server: &'static str) -> Rounds<T> {
        Rounds { server, rounds: Vec::new(), note: None }
    }

    /// The spread of a figure over the rounds.
    pub(crate) fn spread(&self, of: fn(&T) -> f64, decimals: usize) -> String {
        spread_text(self.rounds.iter().map(of), decimals)
    }
}

/// Measures all rows in each round. `one` gets the place of a row and the number of the round, and
/// returns `None` if the row cannot be measured any more.
///
/// # Errors
/// The user has stopped the bench.
pub(crate) fn in_rounds<T: fmt::Debug>(
    context: &Context<'_>,
    name: &str,
    rows: &mut [Rounds<T>],
    mut one: impl FnMut(usize, u32) -> Option<Result<T, String>>,
) -> Result<(), String> {
    let of = context.rounds;
    for round in 1..=of {
        for (at, row) in rows.iter_mut().enumerate() {
            context.check_stop()?;
            let Some(measured) = one(at, round) else { continue };
            eprintln!("round {round}/{of} {name} {:<24} {measured:?}", row.server);
            match measured {
                Ok(round) => row.rounds.push(round),
                Err(why) => row.note = Some(why),
            }
        }
    }
    Ok(())
}

/// Measures the servers in each round, each time from a fresh start. `own_files` is the body size
/// in the name of the directory that keeps the files of these rows apart.
///
/// # Errors
/// The user has stopped the bench.
pub(crate) fn from_fresh_starts(
    context: &Context<'_>,
    (name, own_files): (&str, u64),
    servers: &[&Server],
    measured: impl Fn(&Context<'_>, &Running) -> Result<f64, String>,
) -> Result<Vec<Rounds<f64>>, String> {
    let mut rows: Vec<_> = servers.iter().map(|server| Rounds::none_yet(server.name)).collect();
    in_rounds(context, name, &mut rows, |at, _| {
        let running = servers[at].start(context.ground, own_files);
        Some(running.and_then(|running| measured(context, &running)))
    })?;
    Ok(rows)
}

/// The rows as a table of these columns. `more` are columns that need more than one row: each with
/// its header and its cells.
pub(crate) fn of_rounds<T: fmt::Debug>(
    rows: &[Rounds<T>],
    columns: &[Column<T>],
    more: &[(&'static str, Vec<String>)],
) -> Table {
    let headers = columns.iter().map(|(header, ..)| *header);
    let headers = headers.chain(more.iter().map(|(header, _)| *header));
    let header: Vec<&str> = ["server"].into_iter().chain(headers).chain(["note"]).collect();
    let mut table = plain(&header);
    for (at, row) in rows.iter().enumerate() {
        let cells = columns.iter().map(|(_, of, decimals)| row.spread(*of, *decimals));
        let cells = cells.chain(more.iter().map(|(_, cells)| cells[at].clone()));
        let note = row.note.clone().unwrap_or_default();
        table.add_row([row.server.to_owned()].into_iter().chain(cells).chain([note]));
    }
    table
}

/// The rounds of one server in one scenario, or why there are none.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) server: String,
    pub(crate) scenario: String,
    /// One per round; `None` for a failed round.
    pub(crate) cells: Vec<Option<Cell>>,
    pub(crate) why_not: Option<String>,
}

impl Row {
    /// The cost in each round without a fault.
    fn costs(&self) -> impl Iterator<Item = Option<f64>> {
        let valid = |cell: &&Cell| cell.fault.is_none();
        self.cells.iter().map(move |cell| Some(cell.as_ref().filter(valid)?.cpu_us))
    }

    fn note(&self) -> Option<String> {
        let (rounds, faults) = (self.cells.len(), self.costs().filter(Option::is_none).count());
        let fault = self.why_not.as_ref();
        let fault = fault.map(|why| format!("{why} (a fault in {faults} of {rounds} rounds)"));
        let parts = self.cells.iter().flatten().map(|cell| cell.utilisation);
        let idle = parts.filter(|part| *part < BUSY_PART_MIN).min_by(f64::total_cmp);
        let idle = idle.map(|part| format!("not at saturation: {:.0} % of its CPU", 100.0 * part));
        let notes: Vec<String> = fault.into_iter().chain(idle).collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }
}

/// The summary of a row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) server: String,
    pub(crate) scenario: String,
    pub(crate) cpu_us: Option<Spread>,
    /// Cost divided by that of the scenario's floor in the same round.
    pub(crate) to_floor: Option<Spread>,
    /// Cost divided by that of nginx on disk in the same round.
    pub(crate) to_nginx: Option<Spread>,
    /// Cost divided by that of the scenario's peer in the same round; over TLS, by that of the
    /// better of HAProxy and nginx, which is the one with the lower median.
    pub(crate) to_peer: Option<Spread>,
    /// Cost divided by the server's cost of a hit over HTTP/1 without cold connections in the same
    /// round.
    pub(crate) to_hot: Option<Spread>,
    /// Cost divided by the server's cost in the plain scenario in the same round, and the
    /// difference between the two, microseconds.
    pub(crate) to_plain: Option<Spread>,
    pub(crate) adds_us: Option<Spread>,
    pub(crate) rate: Option<Spread>,
    pub(crate) utilisation: Option<Spread>,
    /// Bytes of the body of a response.
    pub(crate) body_bytes: Option<Spread>,
    /// From the first round: in later rounds the memory is already allocated.
    pub(crate) bytes_per_cold: Option<f64>,
    /// The share of requests that our server answered from its disk.
    pub(crate) from_disk: Option<Spread>,
    pub(crate) note: Option<String>,
}

/// All rows.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) rows: Vec<Row>,
}

impl Results {
    fn find(&self, server: &str, scenario: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.server == server && row.scenario == scenario)
    }

    /// Adds a round's cell.
    pub(crate) fn add(&mut self, server: &str, scenario: &str, cell: Result<Cell, String>) {
        let known = |row: &Row| row.server == server && row.scenario == scenario;
        let at = self.rows.iter().position(known).unwrap_or_else(|| {
            let (server, scenario) = (server.to_owned(), scenario.to_owned());
            self.rows.push(Row { server, scenario, cells: Vec::new(), why_not: None });
            self.rows.len() - 1
        });
        let row = &mut self.rows[at];
        let why_not = cell.as_ref().map_or_else(|why| Some(why.clone()), |cell| cell.fault.clone());
        row.why_not = row.why_not.take().or(why_not);
        row.cells.push(cell.ok());
    }

    /// The one of HAProxy and nginx with the lower median. The cheaper of two in each round would
    /// be cheaper than either.
    fn better_peer(&self, scenario: &str) -> Option<&Row> {
        let peers = ["haproxy", "nginx"].into_iter().filter_map(|name| self.find(name, scenario));
        let median = |row: &Row| Some(Spread::of(row.costs().flatten())?.median);
        let medians = peers.filter_map(|row| Some((median(row)?, row)));
        medians.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, row)| row)
    }

    pub(crate) fn summaries(&self) -> Vec<Summary> {
        self.rows.iter().map(|row| self.summary(row)).collect()
    }

    fn summary(&self, row: &Row) -> Summary {
        let each = |of: fn(&Cell) -> f64| Spread::of(row.cells.iter().flatten().map(of));
        let joined = |other: Option<&Row>, join: fn(f64, f64) -> f64| {
            let pairs = row.costs().zip(other?.costs());
            Spread::of(pairs.filter_map(|(own, other)| Some(join(own?, other?))))
        };
        let ratios = |other: Option<&Row>| joined(other, |own, other| own / other);
        let has_hot = row.scenario == "cold" || row.scenario.starts_with("http");
        let scenario = SCENARIOS.iter().find(|scenario| scenario.name == row.scenario);
        let (floor, peer) = scenario.map_or((NULL_SERVER, "haproxy"), |of| (of.floor, of.peer));
        let peer = match row.scenario.as_str() {
            name if name.starts_with("tls") => self.better_peer(name),
            name => self.find(peer, name),
        };
        let plain = scenario.and_then(|of| self.find(&row.server, of.plain?));
        let first = row.cells.iter().flatten().next();
        Summary {
            server: row.server.clone(),
            scenario: row.scenario.clone(),
            cpu_us: each(|cell| cell.cpu_us),
            to_floor: ratios(self.find(floor, &row.scenario)),
            to_nginx: ratios(self.find(NGINX_DISK, &row.scenario)),
            to_peer: ratios(peer),
            to_hot: if has_hot { ratios(self.find(&row.server, "hit")) } else { None },
            to_plain: ratios(plain),
            adds_us: joined(plain, |own, plain| own - plain),
            rate: each(|cell| cell.rate),
            utilisation: each(|cell| cell.utilisation),
            body_bytes: each(|cell| cell.body_bytes),
            bytes_per_cold: first.and_then(|cell| cell.bytes_per_cold),
            from_disk: Spread::of(row.cells.iter().flatten().filter_map(|cell| cell.from_disk)),
            note: row.note(),
        }
    }
}

/// A table without rows: a name column, figure columns, and a note column.
pub(crate) fn plain(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(header);
    for column in 1..header.len() - 1 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The table of one scenario.
pub(crate) fn scenario_table(scenario: &Scenario, summaries: &[Summary]) -> String {
    type OfSummary<'c> = (String, &'c dyn Fn(&Summary) -> String);
    fn text(spread: Option<Spread>) -> String {
        spread.map_or("-".to_owned(), |s| s.to_string())
    }
    let (is_cold, has_plain) = (scenario.cold > 0, scenario.plain.is_some());
    let has_streams = scenario.protocol != Protocol::Http1 && !has_plain;
    let is_tls = scenario.tls != Tls::No;
    let floor = if is_tls { "x better peer".to_owned() } else { format!("x {}", scenario.floor) };
    let to_floor = |of: &Summary| text(if is_tls { of.to_peer } else { of.to_floor });
    let rate = |of: &Summary| of.rate.map_or("-".to_owned(), |s| format!("{:.0}", s.median));
    let percent = |part: Option<f64>, decimals: usize| {
        part.map_or("-".to_owned(), |part| format!("{:.decimals$} %", 100.0 * part))
    };
    let used = |of: &Summary| percent(of.utilisation.map(|s| s.median), 0);
    let from_disk = |of: &Summary| percent(of.from_disk.map(|s| s.min), 1);
    let bytes = |of: &Summary| of.bytes_per_cold.map_or("-".to_owned(), |b| format!("{b:.0}"));
    let mut columns: Vec<OfSummary<'_>> = vec![
        ("server".into(), &|of| of.server.clone()),
        ("CPU us per request".into(), &|of| text(of.cpu_us)),
        (floor, &to_floor),
        ("requests/s".into(), &rate),
        ("CPU used".into(), &used),
    ];
    if is_cold || has_streams {
        columns.push(("x own hot".into(), &|of| text(of.to_hot)));
    }
    if let Some(plain) = scenario.plain {
        columns.push((format!("x own {plain}"), &|of| text(of.to_plain)));
        columns.push(("adds, us".into(), &|of| text(of.adds_us)));
    }
    if scenario.check == Check::Coded {
        columns.push(("bytes".into(), &|of| {
            of.body_bytes.map_or("-".to_owned(), |s| format!("{:.0}", s.median))
        }));
    }
    if has_streams || scenario.is_passed_on() {
        columns.push((format!("x {}", scenario.peer), &|of| text(of.to_peer)));
    }
    if is_cold {
        columns.push(("bytes per cold conn.".into(), &bytes));
    }
    if scenario.is_of_disk() {
        columns.push(("x nginx".into(), &|of| text(of.to_nginx)));
        columns.push(("from its disk".into(), &from_disk));
    }
    columns.push(("note".into(), &|of| of.note.clone().unwrap_or_default()));
    let header: Vec<&str> = columns.iter().map(|(header, _)| header.as_str()).collect();
    let mut table = plain(&header);
    for summary in summaries.iter().filter(|summary| summary.scenario == scenario.name) {
        table.add_row(columns.iter().map(|(_, cell)| cell(summary)));
    }
    format!("{}\n{table}", scenario.title)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Reading;

    fn cell(cpu_us: f64) -> Result<Cell, String> {
        let bytes_per_cold = Some(cpu_us * 128.0);
        Ok(Cell {
            cpu_us,
            rate: 1e6 / cpu_us,
            utilisation: 1.0,
            others: 0.0,
            bytes_per_cold,
            from_disk: None,
            body_bytes: 1024.0,
            fault: None,
            seen: Reading::default(),
        })
    }

    #[test]
    fn medians_and_extremes() {
        assert_eq!(Spread::of([]), None);
        let odd = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max, odd.rounds), (2.0, 1.0, 3.0, 3));
        assert_eq!(Spread::of([1.0, 2.0]).unwrap().median, 1.5);
    }

    #[test]
    fn ratios_are_taken_round_by_round() {
        let mut results = Results::default();
        for (null, own, cold) in [(4.0, 8.0, 8.8), (8.0, 12.0, 12.0)] {
            results.add("null", "hit", cell(null));
            results.add("own", "hit", cell(own));
            results.add("own", "cold", cell(cold));
        }
        let summaries = results.summaries();
        let floor = summaries[1].to_floor.unwrap();
        assert_eq!((floor.min, floor.max, floor.median), (1.5, 2.0, 1.75));
        let hot = summaries[2].to_hot.unwrap();
        assert!((hot.max - 1.1).abs() < 1e-12 && hot.min == 1.0);
        assert_eq!(summaries[2].bytes_per_cold, Some(8.8 * 128.0));
    }

    #[test]
    fn what_is_passed_on_is_compared_with_the_relay() {
        let mut results = Results::default();
        for (server, cpu_us) in [("relay", 8.0), ("own", 12.0), ("haproxy", 24.0)] {
            results.add(server, "stored", cell(cpu_us));
        }
        let summaries = results.summaries();
        assert_eq!(summaries[1].to_floor.unwrap().median, 1.5);
        assert_eq!(summaries[1].to_peer.unwrap().median, 0.5);
        let stored = SCENARIOS.iter().find(|scenario| scenario.name == "stored").unwrap();
        let text = scenario_table(stored, &summaries);
        assert!(text.contains("x relay") && text.contains("x haproxy"), "{text}");
    }

    #[test]
    fn what_users_add_is_compared_with_the_plain_row_of_the_same_server() {
        let mut results = Results::default();
        for (plain, with) in [(4.0, 5.0), (8.0, 12.0)] {
            results.add("own", "plain_hit", cell(plain));
            results.add("own", "with_log", cell(with));
        }
        let summaries = results.summaries();
        let (ratio, adds) = (summaries[1].to_plain.unwrap(), summaries[1].adds_us.unwrap());
        assert_eq!((ratio.min, ratio.max, adds.min, adds.max), (1.25, 1.5, 1.0, 4.0));
        assert_eq!(summaries[0].to_plain, None);
        let with_log = SCENARIOS.iter().find(|scenario| scenario.name == "with_log").unwrap();
        let text = scenario_table(with_log, &summaries);
        assert!(text.contains("x own plain_hit") && text.contains("adds, us"), "{text}");
    }

    #[test]
    fn over_tls_the_better_peer_is_the_one_with_the_lower_median() {
        let mut results = Results::default();
        for (own, haproxy, nginx) in [(3.0, 6.0, 12.0), (3.0, 4.0, 2.0), (3.0, 6.0, 8.0)] {
            results.add("own", "tls", cell(own));
            results.add("haproxy", "tls", cell(haproxy));
            results.add("nginx", "tls", cell(nginx));
        }
        let to_peer = results.summaries()[0].to_peer.unwrap();
        assert_eq!((to_peer.min, to_peer.max), (0.5, 0.75));
    }

    #[test]
    fn a_cell_with_a_fault_is_in_no_ratio_and_in_the_note() {
        let mut results = Results::default();
        for (own, fault, utilisation) in [(8.0, None, 0.84), (80.0, Some("9 % failed"), 1.0)] {
            results.add("null", "hit", cell(4.0));
            let fault = fault.map(str::to_owned);
            let cell = cell(own).map(|cell| Cell { fault, utilisation, ..cell });
            results.add("own", "hit", cell);
        }
        let own = &results.summaries()[1];
        assert_eq!(own.to_floor.unwrap().max, 2.0);
        let note = own.note.as_deref().unwrap();
        assert!(note.contains("9 % failed (a fault in 1 of 2 rounds)"), "{note}");
        assert!(note.contains("not at saturation: 84 % of its CPU"), "{note}");
    }

    #[test]
    fn a_server_that_did_not_run_is_in_the_table() {
        let mut results = Results::default();
        results.add("null", "hit", cell(4.0));
        results.add("gone", "hit", Err("not installed: apt-get install gone".to_owned()));
        let text = scenario_table(&SCENARIOS[0], &results.summaries());
        assert!(text.contains("apt-get install gone"), "{text}");
        assert!(text.contains("| null"), "{text}");
    }
}
