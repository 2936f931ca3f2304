//! What a request costs in instructions, cycles and references to memory, by the processor's own
//! counters: on the average, and one more, in the fit that divides the CPU time.
//!
//! Where the counters were sampled too, the counts are divided among the server's procedures.
//!
//! What was not counted in an interval leaves that interval out, of that counter only; it is never
//! taken for zero.

use std::collections::BTreeMap;

use regress::Design;
use serde::Serialize;
use trial::counters::{Counts, Kind, Whose};
use trial::profile::Owner;
use trial::{Interval, Trial};

use super::fit::Fitted;
use super::samples::Procedure;
use crate::format::{NONE, fixed, percent, thousands, three};
use crate::groups::Groups;
use crate::summary::Table;

/// The counters of a trial.
#[derive(Clone, Debug, Serialize)]
pub struct HardwareCounters {
    /// Intervals in which anything was counted.
    pub intervals: usize,
    /// The least share of an interval in which a counter counted, percent: the counts are scaled.
    pub counted_percent: f64,
    /// Level of the intervals of `one_more`.
    pub level: f64,
    /// Cycles, instructions, references, misses, as far as they were counted.
    pub counters: Vec<CounterCost>,
    /// Cycles of the server for each of its instructions.
    pub cycles_per_instruction: Option<f64>,
    /// The same of everything that ran on the machine.
    pub machine_cycles_per_instruction: Option<f64>,
    /// The server's procedures, where the counters were sampled.
    pub procedures: Vec<CountedProcedure>,
}

/// What the counters say of one procedure of the server.
#[derive(Clone, Debug, Serialize)]
pub struct CountedProcedure {
    /// Which.
    pub procedure: Procedure,
    /// Its group.
    pub group: String,
    /// Of each counter that was sampled.
    pub counters: Vec<CountedShare>,
}

/// A procedure's part of one counter.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CountedShare {
    /// Which counter: "cache misses".
    pub name: &'static str,
    /// Samples in which it ran over there.
    pub samples: u64,
    /// Of what the server did, percent.
    pub percent: f64,
    /// For each request, on the average.
    pub per_request: Option<f64>,
}

impl CountedProcedure {
    fn of(&self, kind: Kind) -> Option<&CountedShare> {
        self.counters.iter().find(|share| share.name == kind.name())
    }
}

/// Procedures with less than this of every counter have no row.
const THRESHOLD_PERCENT: f64 = 1.0;

/// One counter.
#[derive(Clone, Debug, Serialize)]
pub struct CounterCost {
    /// What was counted: "instructions".
    pub name: &'static str,
    /// For each request, on the average over the intervals with a known rate.
    pub per_request: Option<f64>,
    /// Of one more request, where the rate varied.
    pub one_more: Option<OneMore>,
    /// The server's share of the machine's, percent.
    pub server_percent: Option<f64>,
}

/// A marginal count, with what is counted when nobody asks.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OneMore {
    /// Of one more request.
    pub value: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// A second when nobody asks.
    pub fixed_per_s: f64,
}

/// In the order in which they are shown.
const SHOWN: [Kind; 4] =
    [Kind::Instructions, Kind::Cycles, Kind::CacheReferences, Kind::CacheMisses];

/// The counters of a trial; what one more request costs by the fit of `main`, if there is one.
pub(super) fn counters(
    trial: &Trial,
    groups: &Groups,
    main: Option<&Fitted>,
    level: f64,
    seed: u64,
) -> Option<HardwareCounters> {
    let rows = trial.counters();
    let counted = rows.iter().map(|row| row.counted).reduce(f64::min)?;
    let intervals = trial.intervals();
    let by_interval = |whose| -> Vec<Counts> {
        let mut found = rows.iter().filter(|row| row.whose == whose).peekable();
        let of = |interval: &Interval| {
            while found.next_if(|row| row.interval < interval.index).is_some() {}
            let row = found.next_if(|row| row.interval == interval.index);
            row.map_or_else(Counts::default, |row| row.counts)
        };
        intervals.iter().map(of).collect()
    };
    let (server, machine) = (by_interval(Whose::Server), by_interval(Whose::Machine));
    let any = |counts: &Counts| *counts != Counts::default();
    let cost = |kind: Kind| {
        let (own, all) = (both(&server, &machine, kind), both(&machine, &server, kind));
        server.iter().chain(&machine).any(|counts| counts.of(kind).is_some()).then(|| CounterCost {
            name: kind.name(),
            per_request: per_request(intervals, &server, kind),
            one_more: main.and_then(|main| one_more(intervals, &server, kind, main, level, seed)),
            server_percent: (all > 0.0).then(|| 100.0 * own / all),
        })
    };
    Some(HardwareCounters {
        intervals: server.iter().zip(&machine).filter(|(a, b)| any(a) || any(b)).count(),
        counted_percent: 100.0 * counted,
        level,
        counters: SHOWN.into_iter().filter_map(cost).collect(),
        cycles_per_instruction: cycles_per_instruction(&server),
        machine_cycles_per_instruction: cycles_per_instruction(&machine),
        procedures: procedures(trial, groups, &server),
    })
}

/// The server's procedures by the samples of its counters, what misses most first.
fn procedures(trial: &Trial, groups: &Groups, server: &[Counts]) -> Vec<CountedProcedure> {
    let (frames, stacks) = (trial.frames(), trial.stacks());
    let mut by_stack: BTreeMap<u32, [(u64, u64); Kind::ALL.len()]> = BTreeMap::new();
    let mut all = [(0, 0); Kind::ALL.len()];
    for row in trial.counted() {
        let of_stack = &mut by_stack.entry(row.stack).or_default()[row.kind as usize];
        for (samples, count) in [of_stack, &mut all[row.kind as usize]] {
            *samples += u64::from(row.samples);
            *count += row.count;
        }
    }
    let sorted = groups.sort(frames, stacks);
    let sampled: Vec<Kind> = SHOWN.into_iter().filter(|kind| all[*kind as usize].1 > 0).collect();
    let each = sampled.iter().map(|&kind| (kind, per_request(trial.intervals(), server, kind)));
    let each: Vec<(Kind, Option<f64>)> = each.collect();
    let share = |counts: &[(u64, u64); Kind::ALL.len()], (kind, a_request): (Kind, Option<f64>)| {
        let (samples, count) = counts[kind as usize];
        let part = count as f64 / all[kind as usize].1 as f64;
        CountedShare {
            name: kind.name(),
            samples,
            percent: 100.0 * part,
            per_request: a_request.map(|of_all| part * of_all),
        }
    };
    let mut found: Vec<CountedProcedure> = by_stack
        .iter()
        .filter_map(|(&stack, counts)| {
            let frame = *stacks[stack as usize].frames.first()?;
            let group = sorted.place(Owner::Server, stack)?;
            Some(CountedProcedure {
                procedure: Procedure::of(&frames[frame as usize]),
                group: groups.title(&group),
                counters: each.iter().map(|&of_kind| share(counts, of_kind)).collect(),
            })
        })
        .filter(|row| row.counters.iter().any(|share| share.percent >= THRESHOLD_PERCENT))
        .collect();
    let last = |row: &CountedProcedure| row.counters.last().map_or(0.0, |share| share.percent);
    found.sort_by(|a, b| last(b).total_cmp(&last(a)));
    found
}

/// The sum over intervals in which both were counted.
fn both(counts: &[Counts], others: &[Counts], kind: Kind) -> f64 {
    let pairs = counts.iter().zip(others);
    pairs.filter_map(|(count, other)| other.of(kind).and(count.of(kind))).sum::<u64>() as f64
}

fn cycles_per_instruction(counts: &[Counts]) -> Option<f64> {
    let pairs = counts.iter().filter_map(|counts| counts.cycles.zip(counts.instructions));
    let (cycles, instructions) = pairs.fold((0.0, 0.0), |(cycles, instructions), pair| {
        (cycles + pair.0 as f64, instructions + pair.1 as f64)
    });
    (instructions > 0.0).then(|| cycles / instructions)
}

fn per_request(intervals: &[Interval], counts: &[Counts], kind: Kind) -> Option<f64> {
    let (mut sum, mut requests) = (0.0, 0.0);
    for (interval, counts) in intervals.iter().zip(counts) {
        if let Some(count) = counts.of(kind).filter(|_| interval.rate_valid) {
            sum += count as f64;
            requests += interval.requests;
        }
    }
    // Of less than one request nothing can be said.
    (requests >= 1.0).then(|| sum / requests)
}

/// In the weights of the resource's own fit, over the intervals in which this was counted.
fn one_more(
    intervals: &[Interval],
    counts: &[Counts],
    kind: Kind,
    main: &Fitted,
    level: f64,
    seed: u64,
) -> Option<OneMore> {
    let (mut rates, mut whole, mut series) = (Vec::new(), Vec::new(), Vec::new());
    for (&row, cost) in main.rows().iter().zip(main.cost()) {
        if let Some(count) = counts[row].of(kind) {
            let interval = &intervals[row];
            rates.push(interval.rate());
            whole.push(cost);
            series.push(count as f64 / (interval.length_ns.max(1) as f64 / 1e9));
        }
    }
    let design = Design::new(&[&rates]).ok()?;
    let weighted = regress::costs(&design, &whole, &[], level, seed).ok()?;
    let found = weighted.of(&design, &[&series]).ok()?;
    let (marginal, fixed) = (found.first()?.marginal(), found.first()?.fixed());
    Some(OneMore {
        value: marginal.value,
        low: marginal.low,
        high: marginal.high,
        fixed_per_s: fixed.value,
    })
}

/// The tables: the whole, and its procedures where the counters were sampled.
pub(crate) fn tables(found: &HardwareCounters) -> Vec<Table> {
    [whole(found)].into_iter().chain(procedures_table(found)).collect()
}

fn whole(found: &HardwareCounters) -> Table {
    let mut note = format!(
        "by the processor's counters, n = {} intervals, {:.0} %; of what the server's threads did, \
         in user and kernel mode",
        thousands(found.intervals as f64),
        100.0 * found.level
    );
    if found.counted_percent < 99.95 {
        note.push_str(&format!(
            "; the counters took turns, {} % of the time at least, and are scaled",
            fixed(found.counted_percent, 1)
        ));
    }
    let columns =
        ["<counter", "a request", "one more", "low", "high", "at 0/s, a second", "% of machine"];
    let mut table = Table::new("What a request takes of the processor", &columns, &note);
    let or_none = |value: Option<f64>| value.map_or_else(|| NONE.to_string(), count);
    for row in &found.counters {
        let more = row.one_more;
        table.rows.push(vec![
            row.name.to_string(),
            or_none(row.per_request),
            or_none(more.map(|more| more.value)),
            or_none(more.map(|more| more.low)),
            or_none(more.map(|more| more.high)),
            or_none(more.map(|more| more.fixed_per_s)),
            row.server_percent.map_or_else(|| NONE.to_string(), |share| fixed(share, 1)),
        ]);
    }
    if let Some(value) = found.cycles_per_instruction {
        let marginal = |name| {
            let row = found.counters.iter().find(|row| row.name == name)?;
            Some(row.one_more?.value)
        };
        let more = marginal("cycles").zip(marginal("instructions"));
        let more = more.filter(|(_, instructions)| *instructions > 0.0);
        let mut cells = vec!["cycles per instruction".to_string(), fixed(value, 2)];
        cells.push(more.map_or_else(|| NONE.to_string(), |(c, i)| fixed(c / i, 2)));
        cells.extend(vec![String::new(); 4]);
        table.rows.push(cells);
    }
    table
}

/// `None` where the counters were not sampled.
fn procedures_table(found: &HardwareCounters) -> Option<Table> {
    let counters = &found.procedures.first()?.counters;
    let misses = counters.iter().any(|share| share.name == Kind::CacheMisses.name());
    let mut columns = vec!["<procedure".to_owned(), "<mode".to_owned(), "<group".to_owned()];
    columns.extend(counters.iter().map(|share| format!("{} a request", share.name)));
    columns.push("cycles per instruction".to_owned());
    if misses {
        columns.push("% of misses".to_owned());
    }
    let samples = |share: &CountedShare| {
        let all = found.procedures.iter().flat_map(|row| &row.counters);
        let samples: u64 = all.filter(|of| of.name == share.name).map(|of| of.samples).sum();
        format!("{} of {}", thousands(samples as f64), share.name)
    };
    let note = format!(
        "the server's procedures with {THRESHOLD_PERCENT:.0} % or more of a counter, by the \
         samples in which it ran over ({}); what a request takes on the average, of the counts \
         above",
        counters.iter().map(samples).collect::<Vec<_>>().join(", ")
    );
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new("Which procedures take it", &columns, &note);
    let or_none = |value: Option<f64>| value.map_or_else(|| NONE.to_string(), count);
    for row in &found.procedures {
        let mut cells = vec![row.procedure.label(), row.procedure.mode.into(), row.group.clone()];
        cells.extend(row.counters.iter().map(|share| or_none(share.per_request)));
        let each = |kind| row.of(kind).and_then(|share| share.per_request);
        let ratio = each(Kind::Cycles).zip(each(Kind::Instructions));
        let ratio = ratio.filter(|(_, instructions)| *instructions > 0.0);
        cells.push(ratio.map_or_else(|| NONE.to_string(), |(c, i)| fixed(c / i, 2)));
        if misses {
            cells.push(row.of(Kind::CacheMisses).map_or(NONE.into(), |s| percent(s.percent)));
        }
        table.rows.push(cells);
    }
    Some(table)
}

/// A count: three digits, or all of them where it is large.
fn count(value: f64) -> String {
    if value.abs() < 1_000.0 { three(value) } else { thousands(value) }
}
