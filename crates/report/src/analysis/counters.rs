//! What a request costs in instructions, cycles and references to memory, by the processor's own
//! counters: on the average, and one more, in the fit that divides the CPU time.
//!
//! What was not counted in an interval leaves that interval out, of that counter only; it is never
//! taken for zero.

use regress::Design;
use serde::Serialize;
use trial::counters::{Counts, Whose};
use trial::{Interval, Trial};

use super::fit::Fitted;
use crate::format::{NONE, fixed, thousands, three};
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
}

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

/// Reads one counter out of all of them.
type Of = fn(&Counts) -> Option<u64>;

const COUNTERS: [(&str, Of); 4] = [
    ("instructions", |counts| counts.instructions),
    ("cycles", |counts| counts.cycles),
    ("cache references", |counts| counts.cache_references),
    ("cache misses", |counts| counts.cache_misses),
];

/// The counters of a trial; what one more request costs by the fit of `main`, if there is one.
pub(super) fn counters(
    trial: &Trial,
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
    let cost = |(name, of): (&'static str, Of)| {
        let (own, all) = (both(&server, &machine, of), both(&machine, &server, of));
        (server.iter().chain(&machine).any(|counts| of(counts).is_some())).then(|| CounterCost {
            name,
            per_request: per_request(intervals, &server, of),
            one_more: main.and_then(|main| one_more(intervals, &server, of, main, level, seed)),
            server_percent: (all > 0.0).then(|| 100.0 * own / all),
        })
    };
    Some(HardwareCounters {
        intervals: server.iter().zip(&machine).filter(|(a, b)| any(a) || any(b)).count(),
        counted_percent: 100.0 * counted,
        level,
        counters: COUNTERS.into_iter().filter_map(cost).collect(),
        cycles_per_instruction: cycles_per_instruction(&server),
        machine_cycles_per_instruction: cycles_per_instruction(&machine),
    })
}

/// The sum over intervals in which both were counted.
fn both(counts: &[Counts], others: &[Counts], of: Of) -> f64 {
    let pairs = counts.iter().zip(others);
    pairs.filter_map(|(count, other)| of(other).and(of(count))).sum::<u64>() as f64
}

fn cycles_per_instruction(counts: &[Counts]) -> Option<f64> {
    let pairs = counts.iter().filter_map(|counts| counts.cycles.zip(counts.instructions));
    let (cycles, instructions) = pairs.fold((0.0, 0.0), |(cycles, instructions), pair| {
        (cycles + pair.0 as f64, instructions + pair.1 as f64)
    });
    (instructions > 0.0).then(|| cycles / instructions)
}

fn per_request(intervals: &[Interval], counts: &[Counts], of: Of) -> Option<f64> {
    let (mut sum, mut requests) = (0.0, 0.0);
    for (interval, counts) in intervals.iter().zip(counts) {
        if let Some(count) = of(counts).filter(|_| interval.rate_valid) {
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
    of: Of,
    main: &Fitted,
    level: f64,
    seed: u64,
) -> Option<OneMore> {
    let (mut rates, mut whole, mut series) = (Vec::new(), Vec::new(), Vec::new());
    for (&row, cost) in main.rows().iter().zip(main.cost()) {
        if let Some(count) = of(&counts[row]) {
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

/// The table.
pub(crate) fn table(found: &HardwareCounters) -> Table {
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

/// A count: three digits, or all of them where it is large.
fn count(value: f64) -> String {
    if value.abs() < 1_000.0 { three(value) } else { thousands(value) }
}
