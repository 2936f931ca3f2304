//! Figures over rounds, and the parts of the calls.
//!
//! Ratios are taken within a round. A part that may be zero has no logarithm, so that its mean,
//! least and most are given instead. The time of a call is the mean of all timed calls of all
//! rounds, minus what the clock shows for an empty call. The number of calls is counted.

use harness::rounds::Figure;
use serde::Serialize;

use super::meter::Call;
use super::visit::Seen;
use super::worker::Tally;
use super::{Cell, Load, Sharing};

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

/// The cost of one system call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CallCost {
    /// The call.
    pub call: Call,
    /// Calls for each event of work: counted.
    pub per_event: f64,
    /// CPU time of one, microseconds: sampled. NaN if none was timed.
    pub us_each: f64,
    /// Their product.
    pub us: f64,
    /// Its part of the CPU time.
    pub part: f64,
}

/// One way of sharing with one load and one number of workers. An *event* is one piece of work: a
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
    /// Events that a wait reported, including those that another worker then handled.
    pub reported: Figure,
    /// The part of the waits that gave no work.
    pub vain: Part,
    /// Wakes of a sleeping worker for each event.
    pub wakes: Figure,
    /// CPU time of the workers for each event, microseconds, without that of measuring.
    pub cpu_us: Figure,
    /// The same relative to our server's way of sharing in the same round.
    pub to_ours: Figure,
    /// Events of the busiest worker relative to an equal share.
    pub busiest: Figure,
    /// Events a second, with the clients on the same machine.
    pub rate: Figure,
    /// The part of the CPU time that waits take.
    pub wait_part: Part,
    /// By system call.
    pub calls: Vec<CallCost>,
    /// Everything else: the workers' own code, for each event, microseconds. It is a difference,
    /// so it has the error of all samples and may be negative.
    pub rest_us: f64,
    /// CPU time spent on measuring relative to all other.
    pub measuring: f64,
}

/// How much more often the fast wait is called than the slow one, if all workers wait for
/// everything.
#[derive(Clone, Debug, Serialize)]
pub struct CalledMore {
    /// What the clients did.
    pub load: Load,
    /// Workers.
    pub workers: u32,
    /// Waits for each event on one epoll set, relative to those by poll() in the same round.
    pub ratio: Figure,
    /// CPU time of one wait by poll() and on one set, microseconds.
    pub wait_us: (f64, f64),
    /// Events that one wait reports, the same two.
    pub reported: (Figure, Figure),
}

impl Part {
    fn of(parts: impl Iterator<Item = f64>, mean: f64) -> Part {
        let known = parts.filter(|part| part.is_finite());
        let (least, most) =
            known.fold((mean, mean), |(low, high), part| (low.min(part), high.max(part)));
        Part { mean, least, most }
    }
}

/// What was measured, by combination and round.
pub(super) type Visits = crate::visits::Visits<Cell, Seen>;

/// All rows, in the order of `cells`.
pub(super) fn rows(cells: &[Cell], visits: &Visits, clock_ns: u64) -> Vec<Row> {
    cells.iter().map(|cell| row(*cell, visits, clock_ns)).collect()
}

fn row(cell: Cell, visits: &Visits, clock_ns: u64) -> Row {
    let cpu_us = |seen: &Seen| seen.tally.own_cpu_ns(clock_ns) / 1e3 / seen.tally.work as f64;
    let wait_part = |tally: &Tally| {
        let wait = tally.calls[Call::Wait as usize];
        wait.each_ns(clock_ns) * wait.calls as f64 / tally.own_cpu_ns(clock_ns)
    };
    let vain = |tally: &Tally| tally.vain as f64 / tally.waits.max(1) as f64;
    let part = |value: &dyn Fn(&Tally) -> f64| {
        Part::of(visits.of(cell).map(|seen| value(&seen.tally)), value(&total(visits, cell)))
    };
    let all = total(visits, cell);
    let own_ns = all.own_cpu_ns(clock_ns);
    let calls: Vec<CallCost> = Call::ALL.map(|call| cost(call, &all, clock_ns)).to_vec();
    let called: f64 = calls.iter().filter(|call| call.us.is_finite()).map(|call| call.us).sum();
    Row {
        load: cell.load,
        workers: cell.workers,
        sharing: cell.sharing,
        waits: visits.figure(cell, waits),
        reported: visits.figure(cell, reported),
        vain: part(&vain),
        wakes: visits.figure(cell, |seen| seen.tally.wakes as f64 / seen.tally.work as f64),
        cpu_us: visits.figure(cell, cpu_us),
        to_ours: visits.ratio(cell, Cell { sharing: Sharing::OURS, ..cell }, cpu_us),
        busiest: visits.figure(cell, |seen| seen.busiest),
        rate: visits.figure(cell, |seen| seen.tally.work as f64 / seen.seconds),
        wait_part: part(&wait_part),
        calls,
        rest_us: own_ns / 1e3 / all.work as f64 - called,
        measuring: all.cpu_ns as f64 / own_ns - 1.0,
    }
}

fn waits(seen: &Seen) -> f64 {
    seen.tally.waits as f64 / seen.tally.work as f64
}

fn reported(seen: &Seen) -> f64 {
    seen.tally.reported as f64 / seen.tally.waits as f64
}

fn cost(call: Call, all: &Tally, clock_ns: u64) -> CallCost {
    let counted = all.calls[call as usize];
    let us_each = counted.each_ns(clock_ns) / 1e3;
    let per_event = counted.calls as f64 / all.work as f64;
    let us = per_event * us_each;
    let part = us * 1e3 * all.work as f64 / all.own_cpu_ns(clock_ns);
    CallCost { call, per_event, us_each, us, part }
}

/// All rounds of a combination together.
fn total(visits: &Visits, cell: Cell) -> Tally {
    visits.of(cell).map(|seen| seen.tally).sum()
}

/// The fast wait and the slow one.
pub(super) fn called_more(workers: &[u32], visits: &Visits, clock_ns: u64) -> Vec<CalledMore> {
    let more = |load, workers| {
        let slow = Cell { load, workers, sharing: Sharing::Poll };
        let fast = Cell { sharing: Sharing::OneSet, ..slow };
        let wait_us = |cell| total(visits, cell).calls[Call::Wait as usize].each_ns(clock_ns) / 1e3;
        CalledMore {
            load,
            workers,
            ratio: visits.ratio(fast, slow, waits),
            wait_us: (wait_us(slow), wait_us(fast)),
            reported: (visits.figure(slow, reported), visits.figure(fast, reported)),
        }
    };
    Load::ALL.into_iter().flat_map(|load| workers.iter().map(move |n| more(load, *n))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::meter::Counted;
    use super::*;

    const CLOCK_NS: u64 = 100;

    fn cell(sharing: Sharing) -> Cell {
        Cell { load: Load::Kept, workers: 4, sharing }
    }

    /// 1,000 events; `waits` waits at 2 us of which `vain` in vain, 1,000 reads and writes at 1 us,
    /// and 1 us of everything else for each event, all of it slower by the factor `slow`.
    fn seen(waits: u64, vain: u64, slow: u64) -> Seen {
        let call = |calls: u64, each_ns: u64| Counted {
            calls,
            timed: calls / 10,
            timed_ns: calls / 10 * (each_ns * slow + CLOCK_NS),
        };
        let nothing = Counted::default();
        let calls = [call(waits, 2_000), nothing, nothing, call(1_000, 1_000), call(1_000, 1_000)];
        let measured: u64 = calls.iter().map(|call| call.timed * 2 * CLOCK_NS).sum();
        let tally = Tally {
            waits,
            reported: waits,
            vain,
            work: 1_000,
            wakes: waits / 2,
            cpu_ns: (2_000 * waits + 3_000 * 1_000) * slow + measured,
            calls,
        };
        Seen { tally, busiest: 1.0, seconds: 0.1 }
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
        let visits = crate::visits::Visits(vec![round(1), round(3)]);
        let row = row(cell(Sharing::OneSet), &visits, CLOCK_NS);
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
        let more = &called_more(&[4], &visits, CLOCK_NS)[0];
        close(more.ratio.value, 3.0);
    }

    #[test]
    fn a_part_of_zero_is_shown_as_zero() {
        let round = |vain| vec![(cell(Sharing::OneSet), seen(1_000, vain, 1))];
        let visits = crate::visits::Visits(vec![round(0), round(500)]);
        let part = row(cell(Sharing::OneSet), &visits, CLOCK_NS).vain;
        assert_eq!((part.mean, part.least, part.most), (0.25, 0.0, 0.5));
    }
}
