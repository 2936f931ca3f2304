//! What a request costs a server at saturation, seen without saturating it.
//!
//! Requests share work when a server is busy: a wake, a turn of the event loop, warm caches. At any
//! load the server does so for some milliseconds now and then, because requests come at random
//! instants, or because somebody held the server for a moment and requests queued. What the server
//! works off in a row is a *stretch*: a turn of an event loop, or a busy period from wake to sleep.
//! Its size is the number of receives in it. Two figures follow from the sizes:
//!
//! - **growth**: what one more receive adds to a stretch, `cost = a + b·k`, within each interval.
//!   Turns understate it, because a large turn runs on a warmer CPU than a small one. Busy periods
//!   overstate it, because a long period has more turns. The estimate is the geometric mean of
//!   both. It needs no change of the rate. Its bias grows with the turns that a request takes;
//! - **catching up**: the mean cost of a receive in the large turns after a hold. Threads that
//!   block have a request for each period, so for them it is the mean over the busy periods after a
//!   hold.
//!
//! Both are costs of a receive in stretches that serve a client. A request has as many receives as
//! in the data as a whole. Receives in other stretches, such as those of a process that writes the
//! log, cost what they cost there, but no more. Busy periods without any receive are work at the
//! cap, too, as those of a thread that writes the log, or are not, as those of a scheduler that
//! looks for work. So the estimate is in the middle between with and without them, and its error
//! covers both.

use serde::{Deserialize, Serialize};

use crate::sums::Sums;

/// At the cap a request costs less than it adds to a stretch, because more requests share each
/// turn of the event loop. The logarithm of that factor is this, times the turns per request.
const TURN_COST: f64 = 0.25;
/// Sd of the log of the cost by growth, and by catching up.
const GROWTH_SD: f64 = 0.2;
const HELD_SD: f64 = 0.13;
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

/// What was seen of a server, in the intervals that count. A stretch serves if there is a receive
/// from a client in it.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Turns that serve and follow another turn, for each interval by size.
    pub turns: Vec<Vec<OfSize>>,
    /// Busy periods that serve, for each interval by size.
    pub periods: Vec<Vec<OfSize>>,
    /// Busy periods that do not serve: of helpers, or of a proxy that hears from its upstreams.
    pub other_periods: Vec<Vec<OfSize>>,
    /// Turns after holds that serve.
    pub held_turns: Vec<OfSize>,
    /// Busy periods after holds that serve.
    pub held_periods: Vec<OfSize>,
    /// Requests in the time in which stretches were counted.
    pub requests: f64,
    /// Receives in that time.
    pub receives: f64,
    /// Turns in that time.
    pub all_turns: f64,
}

/// What a request costs at the cap, by evidence that needs no line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Marginal {
    /// The cost, CPU seconds.
    pub at_cap: f64,
    /// Sd of its logarithm.
    pub sd: f64,
    /// Whether the server was held, so that it caught up.
    pub held: bool,
}

impl Marginal {
    /// The estimate by all evidence; `None` if there is too little.
    #[must_use]
    pub fn of(evidence: &Evidence) -> Option<Marginal> {
        let others = Others::of(evidence);
        let marginal = |(of_receive, sd): (f64, f64), held| {
            let at_cap = others.with(of_receive) * evidence.receives / evidence.requests;
            let usable = at_cap.is_finite() && at_cap > 0.0 && sd.is_finite();
            usable.then_some(Marginal { at_cap, sd, held })
        };
        let grown = growth(evidence).and_then(|grown| marginal(grown, false));
        let held = caught_up(evidence).and_then(|held| marginal(held, true));
        let of_receives = match (grown, held) {
            (Some(grown), Some(held)) => grown.and(held),
            (grown, held) => grown.or(held)?,
        };
        Some(of_receives.at_most(others.without_receives / evidence.requests))
    }

    /// The same, if a request costs up to so much more: the middle, and an error that covers both.
    fn at_most(self, more: f64) -> Marginal {
        let half = 0.5 * (more / self.at_cap).ln_1p();
        Marginal { at_cap: self.at_cap * half.exp(), sd: self.sd.hypot(half), ..self }
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
            held: self.held || other.held,
        }
    }
}

/// The receives in busy periods that do not serve.
struct Others {
    /// Their part of all receives.
    part: f64,
    /// Cost of one of them.
    cost: f64,
    /// Cost of all busy periods without any receive.
    without_receives: f64,
}

impl Others {
    fn of(evidence: &Evidence) -> Others {
        let receives = |intervals: &[Vec<OfSize>]| {
            intervals.iter().flatten().map(|size| size.receives).sum::<f64>()
        };
        let (own, others) = (receives(&evidence.periods), receives(&evidence.other_periods));
        let cost_of = |with_receives: bool| {
            let of_size = evidence.other_periods.iter().flatten();
            let of = of_size.filter(|size| (size.receives > 0.0) == with_receives);
            of.map(|size| size.cost).sum::<f64>()
        };
        let (cost, without_receives) = (cost_of(true), cost_of(false));
        let part = if others > 0.0 { others / (own + others) } else { 0.0 };
        Others { part, cost: if others > 0.0 { cost / others } else { 0.0 }, without_receives }
    }

    /// The mean cost of a receive, if one in a stretch that serves costs so much. At the cap, a
    /// proxy serves in all stretches, so that no receive costs more than that.
    fn with(&self, of_receive: f64) -> f64 {
        (1.0 - self.part) * of_receive + self.part * self.cost.min(of_receive)
    }
}

/// What one more receive adds to a stretch, and the sd of its logarithm.
fn growth(evidence: &Evidence) -> Option<(f64, f64)> {
    let with_receives = evidence.periods.iter().flatten().filter(|size| size.receives > 0.0);
    let (mut all, mut together) = (0.0, 0.0);
    for size in with_receives {
        all += size.receives;
        together += if size.each() > 1.0 { size.receives } else { 0.0 };
    }
    if together < TOGETHER_MIN * all {
        return None;
    }
    let kinds = [slope(&evidence.turns)?, slope(&evidence.periods)?];
    let mean = (kinds[0].0 * kinds[1].0).sqrt();
    // The periods are made of the same turns: the errors by chance are alike.
    let by_chance = 1.0 / kinds[0].1.min(kinds[1].1);
    let shared = (-TURN_COST * evidence.all_turns / evidence.requests).exp();
    Some((mean * shared, GROWTH_SD.hypot(by_chance.sqrt())))
}

/// The slope of the cost on the receives within the intervals, and the sum of squares of the
/// receives by which it is known. The variance of a stretch grows with its receives.
fn slope(intervals: &[Vec<OfSize>]) -> Option<(f64, f64)> {
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
    (xx > 0.0 && xy > 0.0).then_some((xy / xx, xx))
}

/// The mean cost of a receive while the server catches up, and the sd of its logarithm.
fn caught_up(evidence: &Evidence) -> Option<(f64, f64)> {
    let receives = |sizes: &[OfSize]| sizes.iter().map(|size| size.receives).sum::<f64>();
    let is_large = |size: &&OfSize| size.receives >= LARGE * size.stretches;
    let large: Vec<OfSize> = evidence.held_turns.iter().filter(is_large).copied().collect();
    let is_loop = receives(&large) >= IN_LARGE_MIN * receives(&evidence.held_periods);
    let sizes = if is_loop { &large } else { &evidence.held_periods };
    let (n, cost) = (receives(sizes), sizes.iter().map(|size| size.cost).sum::<f64>());
    (n > 0.0 && cost > 0.0).then(|| (cost / n, HELD_SD.hypot(n.sqrt().recip())))
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

    /// An event loop with a receive for each request, and a turn for two.
    fn event_loop(turn: f64, period: f64) -> Evidence {
        let periods = vec![sizes(40e-6, period); 3];
        let requests = periods.iter().flatten().map(|size| size.receives).sum::<f64>();
        Evidence {
            turns: vec![sizes(5e-6, turn); 3],
            periods,
            requests,
            receives: requests,
            all_turns: 0.5 * requests,
            ..Evidence::default()
        }
    }

    #[test]
    fn the_growth_of_turns_and_of_periods_is_averaged() {
        let found = Marginal::of(&event_loop(10e-6, 14.4e-6)).unwrap();
        let expected = 12e-6 * (-0.5 * TURN_COST).exp();
        assert!((found.at_cap / expected - 1.0).abs() < 1e-9, "{found:?}");
        assert!(!found.held && found.sd >= GROWTH_SD && found.sd < 1.1 * GROWTH_SD, "{found:?}");
        // A request with two receives costs twice as much.
        let twice = event_loop(10e-6, 14.4e-6);
        let twice = Evidence { requests: 0.5 * twice.requests, all_turns: 0.0, ..twice };
        let found = Marginal::of(&twice).unwrap();
        assert!((found.at_cap / 24e-6 - 1.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn few_stretches_are_known_less_well() {
        let mut few = event_loop(10e-6, 10e-6);
        for size in few.turns.iter_mut().flatten() {
            let OfSize { stretches, receives, cost } = *size;
            let part = |sum: f64| sum / 2000.0;
            *size =
                OfSize { stretches: part(stretches), receives: part(receives), cost: part(cost) };
        }
        assert!(Marginal::of(&few).unwrap().sd > 1.5 * GROWTH_SD);
    }

    #[test]
    fn threads_that_block_have_no_growth_and_catch_up_in_periods() {
        let mut threads = event_loop(10e-6, 10e-6);
        threads.periods.iter_mut().for_each(|sizes| sizes.truncate(1));
        assert_eq!(Marginal::of(&threads), None);
        threads.held_periods = vec![OfSize { stretches: 900.0, receives: 900.0, cost: 0.018 }];
        let found = Marginal::of(&threads).unwrap();
        assert!(found.held && (found.at_cap / 20e-6 - 1.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn large_turns_after_holds_count_and_small_ones_do_not() {
        let mut held = event_loop(10e-6, 14.4e-6);
        let of = |stretches: f64, each: f64, cost: f64| {
            let receives = stretches * each;
            OfSize { stretches, receives, cost: receives * cost }
        };
        held.held_turns = vec![of(100.0, 1.0, 40e-6), of(100.0, 30.0, 11e-6)];
        held.held_periods = vec![of(100.0, 31.0, 20e-6)];
        let grown = Marginal::of(&event_loop(10e-6, 14.4e-6)).unwrap();
        let found = Marginal::of(&held).unwrap();
        let low = grown.at_cap.min(11e-6);
        assert!(found.at_cap > low && found.at_cap < grown.at_cap.max(11e-6), "{found:?}");
        assert!(found.held && found.sd < HELD_SD, "{found:?}");
    }

    /// The log daemon of Squid receives what Squid logs: a request seemed to cost 1.6 times as
    /// much.
    #[test]
    fn receives_of_a_helper_cost_what_they_cost() {
        let alone = event_loop(10e-6, 14.4e-6);
        let helper = |cost: f64| {
            let n = 0.5 * alone.requests;
            let all = OfSize { stretches: n, receives: n, cost: n * cost };
            let receives = alone.receives + n;
            let other_periods = vec![vec![all]];
            Marginal::of(&Evidence { other_periods, receives, ..alone.clone() }).unwrap().at_cap
        };
        let own = Marginal::of(&alone).unwrap().at_cap;
        assert!((helper(4e-6) / (own + 2e-6) - 1.0).abs() < 1e-9, "{}", helper(4e-6));
        assert!((helper(1e-3) / (1.5 * own) - 1.0).abs() < 1e-9, "{}", helper(1e-3));
        let collector = OfSize { stretches: 9.0, receives: 0.0, cost: 1e-6 * alone.requests };
        let with = Evidence { other_periods: vec![vec![collector]], ..alone };
        let found = Marginal::of(&with).unwrap().at_cap;
        assert!((found / (own * (own + 1e-6)).sqrt() - 1.0).abs() < 1e-9, "{found}");
    }

    #[test]
    fn a_difference_widens_the_error() {
        let of = |at_cap: f64| Marginal { at_cap, sd: 0.2, held: false };
        let (same, apart) = (of(1e-5).and(of(1e-5)), of(1e-5).and(of(2e-5)));
        assert!((same.sd - 0.2 / 2f64.sqrt()).abs() < 1e-12 && same.at_cap == 1e-5);
        assert!(apart.sd > 0.3 && (apart.at_cap / 1e-5 - 2f64.sqrt()).abs() < 1e-9, "{apart:?}");
    }

    #[test]
    fn nothing_seen_is_no_estimate() {
        assert_eq!(Marginal::of(&Evidence::default()), None);
        let wild = OfSize { stretches: 0.0, receives: f64::NAN, cost: f64::INFINITY };
        let wild = Evidence {
            turns: vec![vec![wild]],
            periods: vec![vec![wild]],
            held_turns: vec![wild],
            held_periods: vec![wild],
            other_periods: vec![vec![wild]],
            requests: 0.0,
            receives: 1.0,
            all_turns: 1.0,
        };
        assert_eq!(Marginal::of(&wild), None);
    }
}
