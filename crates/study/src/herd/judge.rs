//! Figures over rounds, and the parts of the calls.
//!
//! Ratios are within a round. Parts that may be nothing have no logarithm: of them the mean, the
//! least and the most are told. What a timed call costs is the mean of all that were timed in all
//! rounds, less what the clock shows of nothing; how often it is made is counted.

use serde::Serialize;

use super::meter::Call;
use super::visit::Seen;
use super::{Cell, Load, Plan, Sharing};
use harness::rounds::{Figure, Round, in_round};

/// A part between 0 and 1, over rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Part {
    /// Of all rounds together.
    pub mean: f64,
    /// In the round with the least.
    pub least: f64,
    /// In the round with the most.
    pub most: f64,
}

/// What one system call takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CallCost {
    /// Which.
    pub call: Call,
    /// Calls for each event of work: counted.
    pub per_event: f64,
    /// CPU time of one, microseconds: sampled. Not a number where none was timed.
    pub us_each: f64,
    /// Their product.
    pub us: f64,
    /// Its part of the CPU time.
    pub part: f64,
}

/// One way of sharing with one load and one number of workers. An *event* is one of work: a
/// connection accepted, a request answered, an end seen.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What the clients did.
    pub load: Load,
    /// Workers.
    pub workers: u32,
    /// How they shared.
    pub sharing: Sharing,
    /// Waits for each event.
    pub waits: Figure,
    /// Events that a wait told of, whoever dealt with them.
    pub told: Figure,
    /// Of the waits, those that gave no work.
    pub vain: Part,
    /// Wakes of a sleeping worker for each event.
    pub wakes: Figure,
    /// CPU time of the workers for each event, microseconds, without that of measuring.
    pub cpu_us: Figure,
    /// That, to ours in the same round.
    pub to_ours: Figure,
    /// Events of the busiest worker, in times of an equal share.
    pub busiest: Figure,
    /// Events a second, with the clients on the same machine.
    pub rate: Figure,
    /// The wait's part of the CPU time.
    pub wait_part: Part,
    /// By system call.
    pub calls: Vec<CallCost>,
    /// Everything else: the workers' own code, for each event, microseconds. As what is left it
    /// has the error of all that was sampled, and may come out below nothing.
    pub rest_us: f64,
    /// CPU time that measuring took, to all other.
    pub measuring: f64,
}

/// How much more often the fast wait is called than the slow one, both by all on everything.
#[derive(Clone, Debug, Serialize)]
pub struct CalledMore {
    /// What the clients did.
    pub load: Load,
    /// Workers.
    pub workers: u32,
    /// Waits for each event on one epoll set, to those by poll() in the same round.
    pub ratio: Figure,
    /// CPU time of one wait by poll() and on one set, microseconds.
    pub wait_us: (f64, f64),
    /// Events told of by one wait, the same two.
    pub told: (Figure, Figure),
}

impl Part {
    fn of(parts: impl Iterator<Item = f64>, mean: f64) -> Part {
        let known = parts.filter(|part| part.is_finite());
        let (least, most) =
            known.fold((mean, mean), |(low, high), part| (low.min(part), high.max(part)));
        Part { mean, least, most }
    }
}

type Rounds = [Vec<(Cell, Seen)>];

/// All rows, in this order.
pub(super) fn rows(cells: &[Cell], rounds: &Rounds, clock_ns: u64) -> Vec<Row> {
    cells.iter().map(|cell| row(*cell, rounds, clock_ns)).collect()
}

fn of(cell: Cell, rounds: &Rounds) -> impl Iterator<Item = &Seen> {
    rounds.iter().flatten().filter(move |(other, _)| *other == cell).map(|(_, seen)| seen)
}

fn figure(cell: Cell, rounds: &Rounds, value: impl Fn(&Seen) -> f64) -> Figure {
    Figure::of(of(cell, rounds).map(value))
}

/// Of two combinations in the same round.
fn ratio(cell: Cell, base: Cell, rounds: &Rounds, value: impl Fn(&Seen) -> f64) -> Figure {
    let in_round = |round: &Round<Cell, Seen>, wanted: Cell| in_round(round, wanted).map(&value);
    Figure::of(rounds.iter().filter_map(|round| {
        let (over, under) = in_round(round, cell).zip(in_round(round, base))?;
        Some(over / under)
    }))
}

fn row(cell: Cell, rounds: &Rounds, clock_ns: u64) -> Row {
    let cpu_us = |seen: &Seen| own_cpu_ns(seen, clock_ns) / 1e3 / seen.work as f64;
    let wait_part = |seen: &Seen| {
        let wait = seen.calls[Call::Wait as usize];
        let each = each_ns(wait.timed, wait.timed_ns, clock_ns);
        each * wait.calls as f64 / own_cpu_ns(seen, clock_ns)
    };
    let all = total(of(cell, rounds));
    let own_ns = own_cpu_ns(&all, clock_ns);
    let calls: Vec<CallCost> = Call::ALL.map(|call| cost(call, &all, clock_ns)).to_vec();
    let called: f64 = calls.iter().filter(|call| call.us.is_finite()).map(|call| call.us).sum();
    let ours = Cell { sharing: Sharing::OURS, ..cell };
    Row {
        load: cell.load,
        workers: cell.workers,
        sharing: cell.sharing,
        waits: figure(cell, rounds, waits),
        told: figure(cell, rounds, told),
        vain: vain(of(cell, rounds)),
        wakes: figure(cell, rounds, |seen| seen.wakes as f64 / seen.work as f64),
        cpu_us: figure(cell, rounds, cpu_us),
        to_ours: ratio(cell, ours, rounds, cpu_us),
        busiest: figure(cell, rounds, |seen| seen.busiest),
        rate: figure(cell, rounds, |seen| seen.work as f64 / seen.seconds),
        wait_part: Part::of(of(cell, rounds).map(wait_part), wait_part(&all)),
        calls,
        rest_us: own_ns / 1e3 / all.work as f64 - called,
        measuring: all.cpu_ns as f64 / own_ns - 1.0,
    }
}

fn waits(seen: &Seen) -> f64 {
    seen.waits as f64 / seen.work as f64
}

fn told(seen: &Seen) -> f64 {
    seen.told as f64 / seen.waits as f64
}

/// CPU time without that of measuring: each timed call looks at the clock twice.
fn own_cpu_ns(seen: &Seen, clock_ns: u64) -> f64 {
    let timed: u64 = seen.calls.iter().map(|call| call.timed).sum();
    (seen.cpu_ns as f64 - 2.0 * (timed * clock_ns) as f64).max(1.0)
}

/// One call, less what the clock shows of nothing.
fn each_ns(timed: u64, timed_ns: u64, clock_ns: u64) -> f64 {
    if timed == 0 {
        return f64::NAN;
    }
    (timed_ns as f64 / timed as f64 - clock_ns as f64).max(0.0)
}

fn cost(call: Call, all: &Seen, clock_ns: u64) -> CallCost {
    let counted = all.calls[call as usize];
    let us_each = each_ns(counted.timed, counted.timed_ns, clock_ns) / 1e3;
    let per_event = counted.calls as f64 / all.work as f64;
    let us = per_event * us_each;
    let part = us * 1e3 * all.work as f64 / own_cpu_ns(all, clock_ns);
    CallCost { call, per_event, us_each, us, part }
}

/// All rounds as one visit.
fn total<'s>(seen: impl Iterator<Item = &'s Seen>) -> Seen {
    let mut all = Seen {
        waits: 0,
        told: 0,
        vain: 0,
        work: 0,
        wakes: 0,
        cpu_ns: 0,
        calls: Default::default(),
        busiest: f64::NAN,
        seconds: 0.0,
    };
    for one in seen {
        all.waits += one.waits;
        all.told += one.told;
        all.vain += one.vain;
        all.work += one.work;
        all.wakes += one.wakes;
        all.cpu_ns += one.cpu_ns;
        all.seconds += one.seconds;
        for (all, one) in all.calls.iter_mut().zip(one.calls) {
            all.calls += one.calls;
            all.timed += one.timed;
            all.timed_ns += one.timed_ns;
        }
    }
    all
}

fn vain<'s>(seen: impl Iterator<Item = &'s Seen>) -> Part {
    let seen: Vec<&Seen> = seen.collect();
    let part = |seen: &Seen| seen.vain as f64 / seen.waits.max(1) as f64;
    let all = total(seen.iter().copied());
    Part::of(seen.into_iter().map(part), part(&all))
}

/// The fast wait beside the slow one.
pub(super) fn called_more(plan: &Plan, rounds: &Rounds, clock_ns: u64) -> Vec<CalledMore> {
    let mut found = Vec::new();
    for load in Load::ALL {
        for &workers in &plan.workers {
            let slow = Cell { load, workers, sharing: Sharing::Poll };
            let fast = Cell { sharing: Sharing::OneSet, ..slow };
            let wait_us = |cell: Cell| {
                let wait = total(of(cell, rounds)).calls[Call::Wait as usize];
                each_ns(wait.timed, wait.timed_ns, clock_ns) / 1e3
            };
            found.push(CalledMore {
                load,
                workers,
                ratio: ratio(fast, slow, rounds, waits),
                wait_us: (wait_us(slow), wait_us(fast)),
                told: (figure(slow, rounds, told), figure(fast, rounds, told)),
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::meter::Counted;
    use super::*;

    const CLOCK_NS: u64 = 100;

    fn cell(sharing: Sharing) -> Cell {
        Cell { load: Load::Kept, workers: 4, sharing }
    }

    /// 1,000 events; `waits` waits at 2 us of which `vain` in vain, 1,000 reads and writes at 1 us,
    /// and 1 us of everything else each event, all so many times as slow.
    fn seen(waits: u64, vain: u64, slow: u64) -> Seen {
        let call = |calls: u64, each_ns: u64| Counted {
            calls,
            timed: calls / 10,
            timed_ns: calls / 10 * (each_ns * slow + CLOCK_NS),
        };
        let nothing = Counted::default();
        let calls = [call(waits, 2_000), nothing, nothing, call(1_000, 1_000), call(1_000, 1_000)];
        let measured: u64 = calls.iter().map(|call| call.timed * 2 * CLOCK_NS).sum();
        Seen {
            waits,
            told: waits,
            vain,
            work: 1_000,
            wakes: waits / 2,
            cpu_ns: (2_000 * waits + 3_000 * 1_000) * slow + measured,
            calls,
            busiest: 1.0,
            seconds: 0.1,
        }
    }

    #[test]
    fn costs_are_by_event_and_ratios_within_a_round() {
        let round = |slow| {
            vec![
                (cell(Sharing::OneSet), seen(3_000, 2_000, slow)),
                (cell(Sharing::Poll), seen(1_000, 0, slow)),
                (cell(Sharing::OURS), seen(1_000, 0, slow)),
            ]
        };
        // The second round is three times as slow: the ratios are the same.
        let rounds = [round(1), round(3)];
        let row = row(cell(Sharing::OneSet), &rounds, CLOCK_NS);
        let close = |value: f64, wanted: f64| {
            assert!((value - wanted).abs() < 1e-6, "{value} is not {wanted}: {row:#?}");
        };
        close(row.to_ours.value, 9.0 / 5.0);
        let (low, high) = row.to_ours.interval.unwrap();
        assert!(high - low < 1e-6, "{row:#?}");
        close(row.waits.value, 3.0);
        close(row.wakes.value, 1.5);
        close(row.vain.mean, 2.0 / 3.0);
        close(row.wait_part.mean, 6.0 / 9.0);
        close(row.wait_part.most, 6.0 / 9.0);
        close(row.calls[0].us_each, 4.0);
        close(row.calls[0].part, 6.0 / 9.0);
        close(row.calls[3].us, 2.0);
        assert!(row.calls[1].us_each.is_nan(), "none was timed");
        close(row.rest_us, 2.0);
        assert!(row.measuring > 0.0);
        let plan = Plan {
            workers: vec![4],
            clients: 1,
            cold: 0,
            requests: 1,
            rounds: 2,
            time: Duration::ZERO,
            seed: 1,
        };
        let more = &called_more(&plan, &rounds, CLOCK_NS)[0];
        close(more.ratio.value, 3.0);
    }

    #[test]
    fn a_part_that_is_nothing_is_told_as_nothing() {
        let of = [seen(1_000, 0, 1), seen(1_000, 500, 1)];
        let part = vain(of.iter());
        assert_eq!((part.mean, part.least, part.most), (0.25, 0.0, 0.5));
    }
}
