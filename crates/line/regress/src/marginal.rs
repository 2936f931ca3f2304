//! What a request costs a server at saturation, seen without saturating it.
//!
//! Requests share work when a server is busy: a wake, a turn of the event loop, warm caches. At any
//! load the server does so for some milliseconds now and then, because requests come at random
//! instants, or because somebody held the server for a moment and requests queued. What the server
//! works off in a row is a *stretch*: a turn of an event loop, or a busy period from wake to sleep.
//! Its size is the number of receives in it. Two figures follow from the sizes:
//!
//! - **growth**: what one more receive adds to a turn, `cost = a + b·k`, within each interval. It
//!   needs no change of the rate. A turn without a receive belongs to the one before it, so that
//!   work which a server does in a later turn than the receive is in `b`, unless that turn
//!   receives, too. What one more receive adds to a busy period has all of that work, but is
//!   more, because a long period has more turns. The estimate is near the turns, and its error
//!   covers a part of the difference. If the busy periods grow by less than the turns, they do not
//!   share work;
//! - **catching up**: what a receive costs after a hold. Two figures bound it. In the busy periods
//!   after holds the server works off the whole queue, but its last turns are small, as they are
//!   not at saturation. The large turns alone leave out work that a server does in the next turn.
//!   The estimate is the geometric mean of both, and its error covers a part of the difference.
//!   Threads that block have no large turns: for them the busy periods are the estimate.
//!
//! Both are costs of a receive in stretches that serve a client. A request has as many such
//! receives as in the data as a whole. The work of other threads, such as those of a process that
//! writes the log, costs what it costs a request while the server catches up. Without holds, their
//! receives cost what they cost, but no more than those that serve; and busy periods without any
//! receive are work at the cap, too, as those of a thread that writes the log, or are not, as
//! those of a scheduler that looks for work. So the estimate is in the middle between with and
//! without them, and its error covers both.
//!
//! Counting costs the server CPU time, which a server that is not recorded does not spend. A part
//! of this cost is subtracted ([`Counting`]).

use serde::{Deserialize, Serialize};

use crate::sums::Sums;

/// Sd of the log of the cost by growth, and by catching up with large turns or in busy periods
/// alone, without what chance adds.
const GROWTH_SD: f64 = 0.12;
const HELD_SD: f64 = 0.12;
const HELD_PERIODS_SD: f64 = 0.18;
/// The same for an event loop without growth. What hides its growth may be in what follows holds,
/// too.
const HELD_ODD_SD: f64 = 0.25;
/// Where the estimate by growth is, on the logarithm: at 0 by the turns, at 1 by the busy periods.
const GROWTH_AT: f64 = 0.25;
const _: () = assert!(GROWTH_AT >= 0.0 && GROWTH_AT <= 1.0);
/// Which part of the difference of two figures that bound an estimate is its sd.
const APART: f64 = 0.5;
/// A receive adds at most so many times as much to a turn as to a busy period, by chance. If it
/// adds more, the stretches do not share work.
const TURN_MAX: f64 = 1.1;
/// The part of what counting costs a request at low load that it costs at the cap, and its sd:
/// there are as many receives and as many other system calls, but hardly any wakes.
const COUNTING_PART: (f64, f64) = (0.6, 0.25);
/// Most of a request's cost that counting is believed to be.
const COUNTING_MAX: f64 = 0.5;
/// Chance is seen in the differences between so many parts of the data.
const PARTS: usize = 10;
/// With fewer intervals the sd by chance is [`CHANCE_SD`].
const PARTS_MIN: usize = 4;
const CHANCE_SD: f64 = 0.15;
/// The error by chance of a comparison is not believed to be less.
const CHANCE_MIN: f64 = 0.01;
/// Least part of the receives in busy periods with two and more: threads that block have one at a
/// time, and a second receive is not a second request.
const TOGETHER_MIN: f64 = 0.3;
/// A turn with so many receives is large.
const LARGE: f64 = 9.0;
/// Least part of the receives after holds that are in large turns, for an event loop. Most of what
/// a quiet server catches up with is in small turns, but threads that block have no large ones.
const IN_LARGE_MIN: f64 = 0.02;

/// The stretches of one size: sums.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OfSize {
    /// Number of stretches.
    pub stretches: f64,
    /// Their receives.
    pub receives: f64,
    /// Their cost, CPU seconds.
    pub cost: f64,
}

impl OfSize {
    /// Receives of one of them.
    fn each(&self) -> f64 {
        self.receives / self.stretches
    }
}

/// What was seen of a server in one interval. A stretch serves if there is a receive from a client
/// in it.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Turns that serve and follow another turn, by size.
    pub turns: Vec<OfSize>,
    /// Busy periods that serve.
    pub periods: Vec<OfSize>,
    /// Busy periods that do not serve: of helpers, or of a proxy that hears from its upstreams.
    pub other_periods: Vec<OfSize>,
    /// Turns after holds that serve.
    pub held_turns: Vec<OfSize>,
    /// Busy periods after holds that serve.
    pub held_periods: Vec<OfSize>,
    /// Busy periods after holds that do not serve.
    pub held_others: Vec<OfSize>,
    /// Requests in the time in which stretches were counted.
    pub requests: f64,
    /// Receives in that time.
    pub receives: f64,
}

/// What counting costs the server: the difference between neighbouring intervals with and without.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counting {
    /// CPU seconds of a request.
    pub cost: f64,
    /// Its standard error.
    pub se: f64,
}

/// What was seen of a server.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// In each interval that counts.
    pub intervals: Vec<Seen>,
    /// What counting costs, if that is known.
    pub counting: Option<Counting>,
}

/// What a request costs at the cap, by evidence that needs no line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Marginal {
    /// The cost, CPU seconds.
    pub at_cap: f64,
    /// Sd of its logarithm.
    pub sd: f64,
    /// The part of `sd` that is chance: another recording of the same server differs by it.
    pub by_chance: f64,
    /// Whether the server was held, so that it caught up.
    pub held: bool,
}

impl Marginal {
    /// The estimate by all evidence; `None` if there is too little.
    #[must_use]
    pub fn of(evidence: &Evidence) -> Option<Marginal> {
        let all: Vec<&Seen> = evidence.intervals.iter().collect();
        let found = match Marginal::by_kind(&all) {
            (Some(grown), Some(held)) => grown.and(held),
            (None, Some(held)) if caught_up(&all).is_some_and(|seen| seen.is_loop) => {
                Marginal { sd: held.sd.max(HELD_ODD_SD), ..held }
            }
            (grown, held) => grown.or(held)?,
        };
        Some(evidence.counting.map_or(found, |counting| found.without(counting)))
    }

    /// The estimates by growth and by catching up.
    fn by_kind(intervals: &[&Seen]) -> (Option<Marginal>, Option<Marginal>) {
        let by = |kind: fn(&[&Seen]) -> Option<Marginal>| {
            let found = kind(intervals)?;
            let of = |others: &[&Seen]| Some(kind(others)?.at_cap);
            let by_chance = jackknife(found.at_cap, intervals, of);
            Some(Marginal { sd: found.sd.hypot(by_chance), by_chance, ..found })
        };
        (by(Marginal::by_growth), by(Marginal::by_holds))
    }

    fn known(at_cap: f64, sd: f64, held: bool) -> Option<Marginal> {
        let usable = at_cap.is_finite() && at_cap > 0.0;
        usable.then_some(Marginal { at_cap, sd, by_chance: 0.0, held })
    }

    /// The estimate by growth in these intervals, without what chance adds to its error.
    fn by_growth(intervals: &[&Seen]) -> Option<Marginal> {
        let (receive, sd) = growth(intervals)?;
        let others = Others::of(intervals);
        let (without, with) = others.of_request(receive);
        let receives = others.served * receive;
        let (low, high) = (receives + without, receives + with);
        Marginal::known((low * high).sqrt(), sd.hypot(APART * (high / low).ln()), false)
    }

    /// The same by catching up.
    fn by_holds(intervals: &[&Seen]) -> Option<Marginal> {
        let others = Others::of(intervals);
        let CaughtUp { receive, sd, .. } = caught_up(intervals)?;
        Marginal::known(others.served * receive + others.held, sd, true)
    }

    /// The estimate of a server that holds itself, by the CPU seconds and the requests of catching
    /// up in each second. `None` if there was not enough to catch up with: a request that waits
    /// alone costs as much as at low load.
    #[must_use]
    pub fn caught_up(each: &[(f64, f64)]) -> Option<Marginal> {
        let large = each.iter().filter(|(_, requests)| *requests >= LARGE);
        let each: Vec<&(f64, f64)> = large.collect();
        if each.len() < PARTS_MIN {
            return None;
        }
        let of = |each: &[&(f64, f64)]| {
            let sum = each.iter().fold((0.0, 0.0), |sum, (cost, n)| (sum.0 + cost, sum.1 + n));
            Some(sum.0 / sum.1).filter(|cost| cost.is_finite() && *cost > 0.0)
        };
        let at_cap = of(&each)?;
        let by_chance = jackknife(at_cap, &each, of);
        Some(Marginal { at_cap, sd: HELD_PERIODS_SD.hypot(by_chance), by_chance, held: true })
    }

    /// The cost of a request where nothing is counted.
    fn without(self, counting: Counting) -> Marginal {
        let cost = counting.cost.max(0.0);
        let spent = (COUNTING_PART.0 * cost).min(COUNTING_MAX * self.at_cap);
        assert!(spent < self.at_cap, "a request costs something without counting");
        let error = (COUNTING_PART.1 * cost).hypot(COUNTING_PART.0 * counting.se) / self.at_cap;
        Marginal { at_cap: self.at_cap - spent, sd: self.sd.hypot(error), ..self }
    }

    /// Both estimates as one: their mean on the logarithm, weighted by their variances. The error
    /// covers their difference.
    #[must_use]
    pub fn and(self, other: Marginal) -> Marginal {
        let (own, its) = (self.sd.powi(2), other.sd.powi(2));
        let (part, difference) = (own / (own + its), (other.at_cap / self.at_cap).ln());
        let variance = (1.0 - part) * own + part * (1.0 - part) * difference.powi(2);
        Marginal {
            at_cap: self.at_cap * (part * difference).exp(),
            sd: variance.sqrt(),
            by_chance: ((1.0 - part) * self.by_chance).hypot(part * other.by_chance),
            held: self.held || other.held,
        }
    }
}

/// A cost and its error by chance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OfKind {
    /// The cost of a request at the cap, CPU seconds.
    pub cost: f64,
    /// Sd of its logarithm by chance.
    pub by_chance: f64,
}

/// What a request costs at the cap by each kind of evidence, with what counting costs. What one
/// kind has wrong, it has wrong in two recordings of a server, so that each kind can be compared
/// with itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ByKind {
    /// By growth.
    pub growth: Option<OfKind>,
    /// By catching up after holds.
    pub holds: Option<OfKind>,
}

impl ByKind {
    /// The costs by this evidence.
    #[must_use]
    pub fn of(evidence: &Evidence) -> ByKind {
        let all: Vec<&Seen> = evidence.intervals.iter().collect();
        let (growth, holds) = Marginal::by_kind(&all);
        let kind = |one: Marginal| OfKind { cost: one.at_cap, by_chance: one.by_chance };
        ByKind { growth: growth.map(kind), holds: holds.map(kind) }
    }

    /// The logarithm of these costs over those before, and its sd by chance: the mean of the kinds
    /// that both have, weighted by their variances. `None` if they have none in common.
    #[must_use]
    pub fn over(&self, before: &ByKind) -> Option<(f64, f64)> {
        let (mut weights, mut sum) = (0.0, 0.0);
        for (after, before) in [(self.growth, before.growth), (self.holds, before.holds)] {
            if let Some((after, before)) = after.zip(before) {
                let sd = after.by_chance.hypot(before.by_chance).max(CHANCE_MIN);
                weights += sd.powi(-2);
                sum += (after.cost / before.cost).ln() * sd.powi(-2);
            }
        }
        (weights > 0.0).then(|| (sum / weights, weights.powf(-0.5)))
    }
}

/// The sd of the log of an estimate by chance: by how much it changes without one of some equal
/// parts of the data (the jackknife).
fn jackknife<T>(estimate: f64, data: &[&T], of: impl Fn(&[&T]) -> Option<f64>) -> f64 {
    let parts = data.len().min(PARTS);
    let without = |part: usize| {
        let others = data.iter().enumerate().filter(|(at, _)| at % parts != part);
        let others: Vec<&T> = others.map(|(_, one)| *one).collect();
        Some((of(&others)? / estimate).ln())
    };
    let changes: Option<Vec<f64>> = (0..parts).map(without).collect();
    match changes {
        Some(changes) if parts >= PARTS_MIN => {
            let n = parts as f64;
            let mean = changes.iter().sum::<f64>() / n;
            let squares = changes.iter().map(|change| (change - mean).powi(2)).sum::<f64>();
            ((n - 1.0) / n * squares).sqrt()
        }
        _ => CHANCE_SD,
    }
}

/// A sum over intervals.
fn total(intervals: &[&Seen], of: impl Fn(&Seen) -> f64) -> f64 {
    intervals.iter().map(|seen| of(seen)).sum()
}

fn receives(sizes: &[OfSize]) -> f64 {
    sizes.iter().map(|size| size.receives).sum()
}

fn cost(sizes: &[OfSize]) -> f64 {
    sizes.iter().map(|size| size.cost).sum()
}

/// The busy periods that do not serve.
struct Others {
    /// The receives of a request in the periods that do serve.
    served: f64,
    /// The receives of a request that do not serve, and the cost of one.
    receives: f64,
    cost: f64,
    /// Cost of all busy periods without any receive, of a request.
    without_receives: f64,
    /// Cost of a request after holds.
    held: f64,
}

impl Others {
    fn of(intervals: &[&Seen]) -> Others {
        let requests = total(intervals, |seen| seen.requests);
        let all = total(intervals, |seen| seen.receives);
        let own = total(intervals, |seen| receives(&seen.periods));
        let others = total(intervals, |seen| receives(&seen.other_periods));
        let cost_of = |with_receives: bool| {
            let of_size = intervals.iter().flat_map(|seen| &seen.other_periods);
            let of = of_size.filter(|size| (size.receives > 0.0) == with_receives);
            of.map(|size| size.cost).sum::<f64>()
        };
        let part = if others > 0.0 { others / (own + others) } else { 0.0 };
        let served = (1.0 - part) * all / requests;
        let held = total(intervals, |seen| receives(&seen.held_periods));
        let held_others = total(intervals, |seen| cost(&seen.held_others));
        Others {
            served,
            receives: part * all / requests,
            cost: if others > 0.0 { cost_of(true) / others } else { 0.0 },
            without_receives: cost_of(false) / requests,
            held: if held > 0.0 { held_others / held * served } else { 0.0 },
        }
    }

    /// What they cost a request, without and with the periods that have no receive. At the cap, a
    /// proxy serves in all stretches, so that no receive costs more than one that serves.
    fn of_request(&self, of_receive: f64) -> (f64, f64) {
        let receives = self.receives * self.cost.min(of_receive);
        (receives, receives + self.without_receives)
    }
}

/// What one more receive adds to a turn, and the sd of the logarithm of this cost.
fn growth(intervals: &[&Seen]) -> Option<(f64, f64)> {
    let with_receives = intervals.iter().flat_map(|seen| &seen.periods);
    let with_receives = with_receives.filter(|size| size.receives > 0.0);
    let (mut all, mut together, mut spent) = (0.0, 0.0, 0.0);
    for size in with_receives {
        all += size.receives;
        spent += size.cost;
        together += if size.each() > 1.0 { size.receives } else { 0.0 };
    }
    if together < TOGETHER_MIN * all {
        return None;
    }
    let turns = slope(intervals.iter().map(|seen| &seen.turns[..]))?;
    let periods = slope(intervals.iter().map(|seen| &seen.periods[..]))?;
    // Stretches that have no fixed cost do not share work: something else makes the long ones long.
    let shares = turns < spent / all && turns <= TURN_MAX * periods;
    let apart = (periods / turns).ln().max(0.0);
    shares.then(|| (turns * (GROWTH_AT * apart).exp(), GROWTH_SD.hypot(APART * apart)))
}

/// The slope of the cost on the receives within the intervals. The variance of a stretch grows with
/// its receives.
fn slope<'s>(intervals: impl Iterator<Item = &'s [OfSize]>) -> Option<f64> {
    let (mut xx, mut xy) = (0.0, 0.0);
    for sizes in intervals {
        let mut sums = Sums::default();
        for size in sizes.iter().filter(|size| size.receives > 0.0) {
            let (each, cost) = (size.each(), size.cost / size.stretches);
            let n = size.stretches / each;
            let (x, y) = (n * each, n * cost);
            sums = sums + Sums { n, x, y, xx: x * each, xy: x * cost, yy: 0.0 };
        }
        if sums.n > 0.0 {
            xx += sums.xx - sums.x * sums.x / sums.n;
            xy += sums.xy - sums.x * sums.y / sums.n;
        }
    }
    (xx > 0.0 && xy > 0.0).then_some(xy / xx)
}

/// What was seen of a server that catches up.
struct CaughtUp {
    /// The cost of a receive.
    receive: f64,
    /// The sd of its logarithm, without what chance adds.
    sd: f64,
    /// Whether it is an event loop, which has large turns then.
    is_loop: bool,
}

fn caught_up(intervals: &[&Seen]) -> Option<CaughtUp> {
    let n = total(intervals, |seen| receives(&seen.held_periods));
    let of_periods = total(intervals, |seen| cost(&seen.held_periods)) / n;
    if !of_periods.is_finite() || of_periods <= 0.0 {
        return None;
    }
    let is_large = |size: &&OfSize| size.receives >= LARGE * size.stretches;
    let large = intervals.iter().flat_map(|seen| seen.held_turns.iter().filter(is_large));
    let (of_large, cost) = large
        .fold((0.0, 0.0), |(receives, cost), size| (receives + size.receives, cost + size.cost));
    let is_loop = of_large >= IN_LARGE_MIN * n && cost > 0.0;
    if !is_loop {
        return Some(CaughtUp { receive: of_periods, sd: HELD_PERIODS_SD, is_loop });
    }
    let of_large = cost / of_large;
    let apart = (of_periods / of_large).ln();
    let receive = (of_periods * of_large).sqrt();
    Some(CaughtUp { receive, sd: HELD_SD.hypot(APART * apart), is_loop })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [f64; 6] = [1.0, 2.0, 3.5, 7.0, 13.0, 25.0];

    /// Stretches that cost `fixed + each·k`, by size, of which each size has half of the one
    /// before.
    fn sizes(fixed: f64, each: f64) -> Vec<OfSize> {
        let of = |(at, k): (usize, &f64)| {
            let stretches = 4096.0 / f64::from(1 << at);
            OfSize { stretches, receives: stretches * k, cost: stretches * (fixed + each * k) }
        };
        SIZES.iter().enumerate().map(of).collect()
    }

    /// An interval of an event loop with a receive for each request, and a turn for two.
    fn event_loop(turn: f64, period: f64) -> Seen {
        let periods = sizes(40e-6, period);
        let requests = receives(&periods);
        Seen { turns: sizes(5e-6, turn), periods, requests, receives: requests, ..Seen::default() }
    }

    fn seen(one: &Seen) -> Evidence {
        Evidence { intervals: vec![one.clone(); 5], counting: None }
    }

    fn estimate(one: &Seen) -> Option<Marginal> {
        Marginal::of(&seen(one))
    }

    fn of(stretches: f64, each: f64, cost: f64) -> OfSize {
        let receives = stretches * each;
        OfSize { stretches, receives, cost: receives * cost }
    }

    #[test]
    fn growth_is_near_the_turns_and_covers_the_busy_periods() {
        let found = estimate(&event_loop(10e-6, 10e-6)).unwrap();
        assert!((found.at_cap / 10e-6 - 1.0).abs() < 1e-9, "{found:?}");
        assert!(!found.held && found.by_chance < 1e-9, "{found:?}");
        assert!((found.sd - GROWTH_SD).abs() < 1e-9, "{found:?}");
        // A quarter of the way to the periods.
        let apart = estimate(&event_loop(10e-6, 16e-6)).unwrap();
        let expected = 10e-6 * 1.6f64.powf(GROWTH_AT);
        assert!((apart.at_cap / expected - 1.0).abs() < 1e-9, "{apart:?}");
        assert!(apart.at_cap * (1.96 * apart.sd).exp() > 16e-6, "{apart:?}");
        // A request with two receives costs twice as much.
        let twice = event_loop(10e-6, 10e-6);
        let twice = Seen { requests: 0.5 * twice.requests, ..twice };
        let found = estimate(&twice).unwrap();
        assert!((found.at_cap / 20e-6 - 1.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn intervals_that_differ_are_chance() {
        let mut evidence = seen(&event_loop(10e-6, 10e-6));
        for (seen, scale) in evidence.intervals.iter_mut().zip([0.8, 0.9, 1.0, 1.1, 1.2]) {
            let sizes = seen.turns.iter_mut().chain(&mut seen.periods);
            sizes.for_each(|size| size.cost *= scale);
        }
        let found = Marginal::of(&evidence).unwrap();
        assert!(found.by_chance > 0.04 && found.by_chance < 0.1, "{found:?}");
        assert!((found.sd - GROWTH_SD.hypot(found.by_chance)).abs() < 1e-12, "{found:?}");
        evidence.intervals.truncate(PARTS_MIN - 1);
        assert_eq!(Marginal::of(&evidence).unwrap().by_chance, CHANCE_SD);
    }

    /// Go at 30 % of its load looks for work while it serves: the estimate was 2.3 times as high.
    #[test]
    fn stretches_without_a_fixed_cost_have_no_growth() {
        let mut busy = event_loop(10e-6, 10e-6);
        for size in &mut busy.periods {
            size.cost = size.receives * 10e-6 * (1.0 + 0.1 * size.each());
        }
        busy.turns.clone_from(&busy.periods);
        assert_eq!(estimate(&busy), None);
        // Turns that grow by more than the busy periods around them.
        assert_eq!(estimate(&event_loop(12e-6, 10e-6)), None);
        // What makes the stretches long may be in what follows holds, too.
        let mut held = event_loop(12e-6, 10e-6);
        held.held_turns = vec![of(100.0, 30.0, 10e-6)];
        held.held_periods = vec![of(100.0, 31.0, 10e-6)];
        let sd = estimate(&held).unwrap().sd;
        assert!((sd - HELD_ODD_SD).abs() < 1e-9, "{sd}");
        assert!(estimate(&event_loop(10.5e-6, 10e-6)).is_some(), "by chance");
    }

    #[test]
    fn threads_that_block_have_no_growth_and_catch_up_in_periods() {
        let mut threads = event_loop(10e-6, 10e-6);
        threads.periods.truncate(1);
        assert_eq!(estimate(&threads), None);
        (threads.requests, threads.receives) = (4096.0, 4096.0);
        threads.held_periods = vec![of(900.0, 1.0, 20e-6)];
        let found = estimate(&threads).unwrap();
        assert!(found.held && (found.at_cap / 20e-6 - 1.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn catching_up_is_between_its_periods_and_its_large_turns() {
        let mut held = event_loop(10e-6, 14.4e-6);
        held.periods.truncate(1);
        (held.requests, held.receives) = (4096.0, 4096.0);
        held.held_turns = vec![of(100.0, 1.0, 40e-6), of(100.0, 30.0, 10e-6)];
        held.held_periods = vec![of(100.0, 31.0, 14.4e-6)];
        let found = estimate(&held).unwrap();
        assert!((found.at_cap / 12e-6 - 1.0).abs() < 1e-9, "{found:?}");
        // What other threads do meanwhile belongs to it.
        held.held_others = vec![of(100.0, 31.0, 2e-6)];
        let found = estimate(&held).unwrap();
        assert!((found.at_cap / 14e-6 - 1.0).abs() < 1e-9, "{found:?}");
        // Growth and what counting costs change the estimate, but not the figure to compare.
        let grown = Seen { periods: sizes(40e-6, 5e-6), turns: sizes(5e-6, 5e-6), ..held };
        let both = estimate(&grown).unwrap().at_cap;
        let alone = ByKind::of(&seen(&grown));
        let (growth, holds) = (alone.growth.unwrap().cost, alone.holds.unwrap().cost);
        assert!(growth < both && both < holds, "{both} {alone:?}");
        assert!((holds / 14e-6 - 1.0).abs() < 1e-9, "{alone:?}");
        assert_eq!(ByKind::of(&seen(&event_loop(10e-6, 10e-6))).holds, None);
    }

    /// A side whose holds showed nothing was compared by another kind than the other side.
    #[test]
    fn each_kind_is_compared_with_itself() {
        let of = |cost: f64, by_chance: f64| Some(OfKind { cost, by_chance });
        let before = ByKind { growth: of(10e-6, 0.03), holds: of(16e-6, 0.04) };
        let after = ByKind { growth: of(11e-6, 0.04), holds: of(17.6e-6, 0.03) };
        let (change, sd) = after.over(&before).unwrap();
        assert!((change - 1.1f64.ln()).abs() < 1e-9, "{change}");
        assert!((sd - 0.05 / 2.0f64.sqrt()).abs() < 1e-9, "{sd}");
        let unheld = ByKind { holds: None, ..after };
        let (change, sd) = unheld.over(&before).unwrap();
        assert!((change - 1.1f64.ln()).abs() < 1e-9 && (sd - 0.05).abs() < 1e-9, "{change} {sd}");
        assert_eq!(unheld.over(&ByKind { growth: None, ..before }), None);
        // The kind that chance moves less counts more.
        let wild = ByKind { holds: of(32e-6, 0.5), ..after };
        assert!(wild.over(&before).unwrap().0 < 1.12f64.ln());
    }

    /// The log daemon of Squid receives what Squid logs: a request seemed to cost 1.6 times as
    /// much.
    #[test]
    fn receives_of_a_helper_cost_what_they_cost() {
        let alone = event_loop(10e-6, 10e-6);
        let helper = |cost: f64| {
            let n = 0.5 * alone.requests;
            let receives = alone.receives + n;
            let other_periods = vec![of(n, 1.0, cost)];
            estimate(&Seen { other_periods, receives, ..alone.clone() }).unwrap().at_cap
        };
        let own = estimate(&alone).unwrap().at_cap;
        assert!((helper(4e-6) / (own + 2e-6) - 1.0).abs() < 1e-9, "{}", helper(4e-6));
        // At the cap a proxy's other receives share the turns of those that serve.
        let receive = own;
        assert!((helper(1e-3) / (own + 0.5 * receive) - 1.0).abs() < 1e-9, "{}", helper(1e-3));
        let collector = OfSize { stretches: 9.0, receives: 0.0, cost: 1e-6 * alone.requests };
        let with = Seen { other_periods: vec![collector], ..alone };
        let found = estimate(&with).unwrap().at_cap;
        assert!((found / (own * (own + 1e-6)).sqrt() - 1.0).abs() < 1e-9, "{found}");
    }

    #[test]
    fn a_part_of_what_counting_costs_is_subtracted() {
        let mut evidence = seen(&event_loop(10e-6, 10e-6));
        let with = Marginal::of(&evidence).unwrap();
        let mut without = |cost: f64| {
            evidence.counting = Some(Counting { cost, se: 1e-7 });
            Marginal::of(&evidence).unwrap()
        };
        let found = without(1e-6);
        assert!((with.at_cap - found.at_cap - 0.6e-6).abs() < 1e-12, "{found:?}");
        assert!(found.sd > with.sd && found.sd < 1.1 * with.sd, "{found:?}");
        assert_eq!(without(-1e-6).at_cap, with.at_cap, "chance alone");
        assert!(without(1e-3).at_cap > 0.0);
    }

    #[test]
    fn a_server_that_holds_itself_has_the_cost_of_all_its_requests() {
        let each = [(2e-3, 100.0), (0.0, 0.0), (4.4e-3, 200.0), (1e-3, 50.0), (0.6e-3, 50.0)];
        let found = Marginal::caught_up(&each).unwrap();
        assert!(found.held && (found.at_cap / 20e-6 - 1.0).abs() < 1e-9, "{found:?}");
        assert!(found.by_chance > 0.01 && found.by_chance < 0.3, "{found:?}");
        assert_eq!(Marginal::caught_up(&each[..3]), None, "too few");
        assert_eq!(Marginal::caught_up(&[]), None);
        assert_eq!(Marginal::caught_up(&[(4e-5, 1.0); 60]), None, "requests that wait alone");
        assert_eq!(Marginal::caught_up(&[(0.0, 50.0); 60]), None);
    }

    #[test]
    fn a_difference_widens_the_error() {
        let of = |at_cap: f64| Marginal { at_cap, sd: 0.2, by_chance: 0.1, held: false };
        let (same, apart) = (of(1e-5).and(of(1e-5)), of(1e-5).and(of(2e-5)));
        assert!((same.sd - 0.2 / 2f64.sqrt()).abs() < 1e-12 && same.at_cap == 1e-5);
        assert!(apart.sd > 0.3 && (apart.at_cap / 1e-5 - 2f64.sqrt()).abs() < 1e-9, "{apart:?}");
    }

    #[test]
    fn nothing_seen_is_no_estimate() {
        assert_eq!(Marginal::of(&Evidence::default()), None);
        let wild = OfSize { stretches: 0.0, receives: f64::NAN, cost: f64::INFINITY };
        let wild = Seen {
            turns: vec![wild],
            periods: vec![wild],
            held_turns: vec![wild],
            held_periods: vec![wild],
            other_periods: vec![wild],
            held_others: vec![wild],
            requests: 0.0,
            receives: 1.0,
        };
        assert_eq!(estimate(&wild), None);
    }
}
