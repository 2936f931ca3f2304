//! Instructions, cycles and cache traffic per request, by hardware counters: the mean, and the
//! count of one more request by the fit that divides the CPU time.
//!
//! If the counters were sampled too, the counts are divided among the server's procedures.
//!
//! An interval in which a counter was not read is excluded for that counter only. A missing count
//! is never treated as zero.

use std::collections::BTreeMap;

use regress::Design;
use serde::Serialize;
use trial::counters::{Counts, Kind, Whose};
use trial::profile::Owner;
use trial::{Interval, Trial};

use super::fit::Fitted;
use super::samples::Procedure;
use groups::Groups;

/// The counters of a trial.
#[derive(Clone, Debug, Serialize)]
pub struct HardwareCounters {
    /// Intervals in which anything was counted.
    pub intervals: usize,
    /// Smallest share of an interval in which a counter was running, percent. Counts are scaled up.
    pub counted_percent: f64,
    /// Level of the intervals of `one_more`.
    pub level: f64,
    /// Instructions, cycles, references, misses, as far as they were counted.
    pub counters: Vec<CounterCost>,
    /// Cycles of the server for each of its instructions.
    pub cycles_per_instruction: Option<f64>,
    /// The same for everything that ran on the machine.
    pub machine_cycles_per_instruction: Option<f64>,
    /// The server's procedures, if the counters were sampled.
    pub procedures: Vec<CountedProcedure>,
}

/// The counters of one procedure of the server.
#[derive(Clone, Debug, Serialize)]
pub struct CountedProcedure {
    /// The procedure.
    pub procedure: Procedure,
    /// Its group.
    pub group: String,
    /// Its part of each counter that was sampled.
    pub counters: Vec<CountedShare>,
}

/// A procedure's part of one counter.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CountedShare {
    /// Which counter: "cache misses".
    pub name: &'static str,
    /// Samples in which the counter overflowed there.
    pub samples: u64,
    /// Share of the server's count, percent.
    pub percent: f64,
    /// Mean per request.
    pub per_request: Option<f64>,
}

impl CountedProcedure {
    /// Its part of one counter.
    pub(crate) fn of(&self, kind: Kind) -> Option<&CountedShare> {
        self.counters.iter().find(|share| share.name == kind.name())
    }
}

/// Procedures with less than this share of every counter have no row.
const THRESHOLD_PERCENT: f64 = 1.0;

/// One counter.
#[derive(Clone, Debug, Serialize)]
pub struct CounterCost {
    /// Its name: "instructions".
    pub name: &'static str,
    /// Mean per request, over the intervals with a known rate.
    pub per_request: Option<f64>,
    /// Count of one more request, if the rate varied.
    pub one_more: Option<OneMore>,
    /// The server's share of the machine's count, percent.
    pub server_percent: Option<f64>,
}

/// A marginal count, with the count at zero load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OneMore {
    /// Count of one more request.
    pub value: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// Count per second at zero load.
    pub fixed_per_s: f64,
}

/// In the order in which they are shown.
const SHOWN: [Kind; 4] =
    [Kind::Instructions, Kind::Cycles, Kind::CacheReferences, Kind::CacheMisses];

/// The counters of a trial; the counts of one more request by the fit of `main`, if there is one.
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

/// The server's procedures by the samples of its counters, those with most misses first.
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
    // Less than one request gives no meaningful mean.
    (requests >= 1.0).then(|| sum / requests)
}

/// With the weights of the resource's own fit, over the intervals in which this was counted.
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
    let weighted = regress::costs::<&[f64]>(&design, &whole, &[], level, seed).ok()?;
    let found = weighted.of(&design, &[&series]).ok()?;
    let (marginal, fixed) = (found.first()?.marginal(), found.first()?.fixed());
    Some(OneMore {
        value: marginal.value,
        low: marginal.low,
        high: marginal.high,
        fixed_per_s: fixed.value,
    })
}
