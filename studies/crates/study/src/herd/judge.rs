//! Figures over rounds, the parts of the calls, and the published figures next to them.
//!
//! Ratios are taken within a round. A part that may be zero has no logarithm, so that its mean,
//! least and most are given instead. The time of a call is the mean of all timed calls of all
//! rounds, minus what the clock shows for an empty call. The number of calls is counted.

use harness::rounds::{Figures, To, Visits};
use serde::Serialize;
use serde_json::{Value, json};

use super::meter::Call;
use super::visit::Seen;
use super::worker::Tally;
use super::{Cell, Load, Sharing};
use crate::found::with;
use crate::published::{Facts, NETCACHE, SQUID};
use crate::show::NONE;

/// The group of procedures in the papers.
const SELECT: &str = "all select functions";

/// A part between 0 and 1, over rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct Part {
    /// Of all rounds together.
    mean: f64,
    /// In the round with the least.
    least: f64,
    /// In the round with the most.
    most: f64,
}

impl Part {
    fn of(parts: impl Iterator<Item = f64>, mean: f64) -> Part {
        let known = parts.filter(|part| part.is_finite());
        let (least, most) =
            known.fold((mean, mean), |(low, high), part| (low.min(part), high.max(part)));
        Part { mean, least, most }
    }

    /// In percent: `50.0 (0.0 to 100.0)`
    fn spread(&self) -> String {
        let Part { mean, least, most } = self;
        format!("{:.1} ({:.1} to {:.1})", 100.0 * mean, 100.0 * least, 100.0 * most)
    }
}

/// What was measured, by combination and round.
pub(super) struct Judge {
    /// The combinations, in the order in which they are shown.
    pub(super) cells: Vec<Cell>,
    /// Numbers of workers, in ascending order.
    pub(super) workers: Vec<u32>,
    pub(super) visits: Visits<Cell, Seen>,
    /// What the clock shows for an empty call.
    pub(super) clock_ns: u64,
}

/// Waits for each event. An *event* is one piece of work: a connection accepted, a request
/// answered, an end seen.
fn waits(seen: &Seen) -> f64 {
    seen.tally.waits as f64 / seen.tally.work as f64
}

/// Events that a wait reported, including those that another worker then handled.
fn reported(seen: &Seen) -> f64 {
    seen.tally.reported as f64 / seen.tally.waits as f64
}

/// The part of the waits that gave no work.
fn vain(tally: &Tally) -> f64 {
    tally.vain as f64 / tally.waits.max(1) as f64
}

impl Judge {
    /// All rows, in the order of the cells.
    pub(super) fn rows(&self) -> Vec<Value> {
        self.cells.iter().map(|cell| self.row(*cell)).collect()
    }

    /// One way of sharing with one load and one number of workers.
    fn row(&self, cell: Cell) -> Value {
        let cpu_us =
            |seen: &Seen| seen.tally.own_cpu_ns(self.clock_ns) / 1e3 / seen.tally.work as f64;
        let all = self.total(cell);
        let own_ns = all.own_cpu_ns(self.clock_ns);
        let calls = Call::ALL.map(|call| self.cost(call, &all));
        let called: f64 = calls.iter().filter_map(|call| call["us"].as_f64()).sum();
        let names = json!({
            "load": cell.load,
            "workers": cell.workers,
            "sharing": cell.sharing,
            "vain": self.part(cell, vain),
            "wait_part": self.wait_part(cell),
            "calls": calls,
            // The workers' own code. It is a difference, so it has the error of all samples and may
            // be negative.
            "rest_us": own_ns / 1e3 / all.work as f64 - called,
            // CPU time spent on measuring relative to all other.
            "measuring": all.cpu_ns as f64 / own_ns - 1.0,
        });
        let ours = Cell { sharing: Sharing::OURS, ..cell };
        let figures: Figures<'_, _, Seen> = &[
            ("waits", To::Itself, &waits),
            ("reported", To::Itself, &reported),
            ("wakes", To::Itself, &|seen| seen.tally.wakes as f64 / seen.tally.work as f64),
            ("cpu_us", To::Itself, &cpu_us),
            ("to_ours", To::Cell(Some(ours)), &cpu_us),
            ("busiest", To::Itself, &|seen| seen.busiest),
            ("rate", To::Itself, &|seen| seen.tally.work as f64 / seen.seconds),
        ];
        self.visits.row(cell, names, figures)
    }

    /// The cost of one system call: calls for each event, which are counted; CPU time of one,
    /// microseconds, which is sampled; their product, and its part of the CPU time.
    fn cost(&self, call: Call, all: &Tally) -> Value {
        let counted = all.calls[call as usize];
        let us_each = counted.each_ns(self.clock_ns) / 1e3;
        let per_event = counted.calls as f64 / all.work as f64;
        let us = per_event * us_each;
        let part = us * 1e3 * all.work as f64 / all.own_cpu_ns(self.clock_ns);
        json!({"call": call, "per_event": per_event, "us_each": us_each, "us": us, "part": part})
    }

    fn part(&self, cell: Cell, value: impl Fn(&Tally) -> f64) -> Part {
        let parts = self.visits.of(cell).map(|seen| value(&seen.tally));
        Part::of(parts, value(&self.total(cell)))
    }

    /// The part of the CPU time that waits take.
    fn wait_part(&self, cell: Cell) -> Part {
        self.part(cell, |tally| {
            let wait = tally.calls[Call::Wait as usize];
            let wait_ns = wait.each_ns(self.clock_ns) * wait.calls as f64;
            wait_ns / tally.own_cpu_ns(self.clock_ns)
        })
    }

    /// All rounds of a combination together.
    fn total(&self, cell: Cell) -> Tally {
        self.visits.of(cell).map(|seen| seen.tally).sum()
    }

    /// How much more often the fast wait is called than the slow one, if all workers wait for
    /// everything: waits for each event on one epoll set, relative to those by poll() in the same
    /// round; the CPU time of one wait, and the events that it reports, of poll() and of the set.
    pub(super) fn called_more(&self) -> Vec<Value> {
        let slow = self.cells.iter().filter(|cell| cell.sharing == Sharing::Poll);
        slow.map(|&slow| {
            let fast = Cell { sharing: Sharing::OneSet, ..slow };
            let wait_us = [slow, fast].map(|cell| {
                self.total(cell).calls[Call::Wait as usize].each_ns(self.clock_ns) / 1e3
            });
            let reported = [slow, fast].map(|cell| self.visits.figure(cell, reported));
            json!({
                "load": slow.load,
                "what": slow.load.label(),
                "workers": slow.workers,
                "ratio": self.visits.ratio(fast, slow, waits),
                "wait_us": wait_us,
                "reported": reported,
            })
        })
        .collect()
    }

    /// Results for the page.
    pub(super) fn for_page(&self) -> Value {
        let facts = Facts::read();
        let most = self.workers.last().copied();
        let (named, of_most): (Vec<_>, Vec<_>) =
            self.cells.iter().map(|cell| (self.named(*cell), Some(cell.workers) == most)).unzip();
        let of_most = named.iter().zip(of_most).filter(|(_, most)| *most).map(|(row, _)| row);
        let measuring = named.iter().filter_map(|row| row["measuring"].as_f64());
        let calls = ["wait", "epoll_ctl", "accept", "read", "write", "the rest"];
        let times = format!("about {:.0}", facts.netcache_profile.select_calls_new_over_old);
        let published = json!({
            "what": format!("{NETCACHE} (1998)"), "ratio": times,
            "workers": null, "wait_us": null, "reported": null,
        });
        let times_as_often = [&[published][..], &self.called_more()].concat();
        json!({
            "rows": named,
            "most": of_most.collect::<Vec<_>>(),
            "most_workers": most,
            "measuring_percent": 100.0 * measuring.fold(0.0, f64::max),
            "call_names": calls[..5],
            "cost_names": calls,
            "times_as_often": times_as_often,
            "wait_parts": self.wait_parts(&facts),
        })
    }

    /// A row with its names and its calls. A call that was not made has no cost.
    fn named(&self, cell: Cell) -> Value {
        let mut row = self.row(cell);
        let made = |call: &Value| call["per_event"] != 0.0;
        let calls = row["calls"].as_array().into_iter().flatten();
        let calls = calls.map(|call| if made(call) { call.clone() } else { Value::Null });
        row["calls"] = calls.collect();
        let rest = json!({"us": row["rest_us"]});
        let costs: Value =
            row["calls"].as_array().into_iter().flatten().chain([&rest]).cloned().collect();
        let vain = self.part(cell, vain);
        let words = json!({
            "shared": cell.sharing.label(),
            "short": cell.load.short(),
            "vain_percent": vain.spread(),
            "vain_share": 100.0 * vain.mean,
            "costs": costs,
        });
        with(&row, words)
    }

    /// The part of the CPU time that waits take, published and here.
    fn wait_parts(&self, facts: &Facts) -> Vec<[String; 3]> {
        let netcache = &facts.netcache_profile;
        let squid = |kernel: &str| {
            let part =
                facts.profile(SQUID, kernel).and_then(|profile| profile.percent_busy(SELECT));
            part.map_or(NONE.to_owned(), |part| format!("{part:.2} %"))
        };
        let row = |server: &str, select: &str, part: String| {
            [format!("{server}, {select} select()"), NONE.to_owned(), part]
        };
        let [one_process, threads] =
            [format!("{SQUID}, one process"), format!("{NETCACHE}, threads")];
        let mut rows = vec![
            row(&one_process, "old", squid("old")),
            row(&one_process, "new", squid("new")),
            row(&threads, "old", format!("{} %", netcache.select_old_kernel)),
            row(&threads, "new", format!("{} %", netcache.select_new_kernel)),
        ];
        let mut ends = vec![self.workers.first(), self.workers.last()];
        ends.dedup();
        for sharing in Sharing::ALL {
            rows.extend(ends.iter().copied().flatten().map(|&workers| {
                let part = self.wait_part(Cell { load: Load::Kept, workers, sharing });
                let text = format!("{} %", part.spread());
                [format!("here, {}", sharing.label()), workers.to_string(), text]
            }));
        }
        rows
    }
}

#[cfg(test)]
mod tests {
    use harness::rounds::Round;

    use super::super::meter::Counted;
    use super::*;
    use crate::experiment::assert_constant;
    use crate::page::Page;

    const CLOCK_NS: u64 = 100;

    fn cell(sharing: Sharing) -> Cell {
        Cell { load: Load::Kept, workers: 4, sharing }
    }

    fn judge(rounds: Vec<Round<Cell, Seen>>) -> Judge {
        let cells = [Sharing::OneSet, Sharing::Poll].map(cell).to_vec();
        Judge { cells, workers: vec![4], visits: Visits(rounds), clock_ns: CLOCK_NS }
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
        let judge = judge(vec![round(1), round(3)]);
        let row = judge.row(cell(Sharing::OneSet));
        let close = |value: &Value, wanted: f64| {
            let close = value.as_f64().is_some_and(|value| (value - wanted).abs() < 1e-6);
            assert!(close, "{value} is not {wanted}: {row:#?}");
        };
        close(&row["to_ours"]["value"], 9.0 / 5.0);
        assert_constant(&row["to_ours"], 9.0 / 5.0);
        close(&row["waits"]["value"], 3.0);
        close(&row["wakes"]["value"], 1.5);
        close(&row["vain"]["mean"], 2.0 / 3.0);
        close(&row["wait_part"]["mean"], 6.0 / 9.0);
        close(&row["wait_part"]["most"], 6.0 / 9.0);
        close(&row["calls"][0]["us_each"], 4.0);
        close(&row["calls"][0]["part"], 6.0 / 9.0);
        close(&row["calls"][3]["us"], 2.0);
        assert!(row["calls"][1]["us_each"].is_null(), "none was timed");
        close(&row["rest_us"], 2.0);
        assert!(row["measuring"].as_f64().unwrap() > 0.0);
        close(&judge.called_more()[0]["ratio"]["value"], 3.0);
    }

    #[test]
    fn a_part_of_zero_is_shown_as_zero() {
        let round = |vain| vec![(cell(Sharing::OneSet), seen(1_000, vain, 1))];
        let part = judge(vec![round(0), round(500)]).part(cell(Sharing::OneSet), vain);
        assert_eq!((part.mean, part.least, part.most), (0.25, 0.0, 0.5));
        assert_eq!(part.spread(), "25.0 (0.0 to 50.0)");
    }

    #[test]
    fn all_ways_of_sharing_look_different_and_their_names_fit_the_legend() {
        let page = Page::read(page!(herd));
        for (at, one) in Sharing::ALL.iter().enumerate() {
            for other in &Sharing::ALL[at + 1..] {
                assert_ne!(one.label(), other.label());
            }
        }
        for looks in page.looks.values() {
            assert_eq!(looks.len(), Sharing::ALL.len() - 1);
            for (at, one) in looks.iter().enumerate() {
                assert!(one.1.chars().count() <= 16, "{one:?}");
                for other in &looks[at + 1..] {
                    assert_ne!((one.2, one.3), (other.2, other.3), "{one:?} {other:?}");
                }
            }
        }
    }
}
