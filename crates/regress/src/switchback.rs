//! Two settings that took turns under one load: does B cost more than A?
//!
//! **The design.** A round is one period of each, and the rounds take turns in their order: A B,
//! B A, A B, ... What drifts (a cache that fills, a neighbour, the hour) reaches both periods of a
//! round nearly alike, and its rest is charged to A as often as to B; so the number of rounds is
//! even.
//!
//! **The figures.** Of each round the logarithm of B over A. Their mean is the change, its interval
//! that of Student's t over rounds: the round is the block, so that what periods share is in no
//! error. The p value is that of a permutation: if the settings are the same, the two labels of a
//! round could as well have been given the other way round, and each of the 2^n ways to do so is
//! as likely as what was seen. A drift that goes on makes both too careful, never too bold.
//!
//! **The verdict.** A change needs both: an interval without 1 and a p below 1 - level. "No change"
//! is not the absence of one but an interval within the margin ([`crate::equivalent`]). Fewer than
//! [`ROUNDS_TOLD_MIN`] rounds have fewer ways than a p of 5 % needs.

use serde::Serialize;

use crate::dist::t_critical;
use crate::rng::Rng;
use crate::{Interval, Unfit, equivalent};

/// Fewer rounds than this have no interval worth the name.
pub const ROUNDS_MIN: usize = 4;
/// At 95 %, fewer rounds than this show no change, however large: of 4 rounds there are 16 ways,
/// and the least p is 2 of them.
pub const ROUNDS_TOLD_MIN: usize = 6;
/// Up to so many rounds every way is tried; beyond, [`WAYS_DRAWN`] of them.
const ROUNDS_TRIED_MAX: usize = 16;
/// Ways that are drawn where there are too many to try.
const WAYS_DRAWN: usize = 20_000;
/// Sums that differ by rounding alone are equal.
const ROUNDING: f64 = 1e-9;

/// On what terms they are compared.
#[derive(Clone, Copy, Debug)]
pub struct SwitchbackTerms {
    /// Level of the interval.
    pub level: f64,
    /// Changes within this share count as none: 0.05 is five percent.
    pub margin: f64,
    /// Seed of the permutation, where not every way is tried.
    pub seed: u64,
}

/// What B costs, in units of what A costs.
#[derive(Clone, Debug, Serialize)]
pub struct Switchback {
    /// B over A.
    pub ratio: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// Level of the interval.
    pub level: f64,
    /// How often chance alone gives a change so large, either way.
    pub p: f64,
    /// Rounds.
    pub rounds: usize,
    /// Sd of a round's ratio, as a share: what to plan a longer experiment with.
    pub sd_of_round: f64,
    /// The margin.
    pub margin: f64,
    /// What it comes to.
    pub verdict: SwitchbackVerdict,
}

/// What a switchback comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SwitchbackVerdict {
    /// B is more.
    More,
    /// B is less.
    Less,
    /// They are the same within the margin.
    NoChange,
    /// Neither can be shown.
    NotTold,
}

/// Compares rounds of (A, B), in the order in which they were run.
///
/// # Errors
/// Fewer than [`ROUNDS_MIN`] rounds; a figure that is not above zero; terms out of their range.
pub fn switchback(rounds: &[(f64, f64)], terms: &SwitchbackTerms) -> Result<Switchback, Unfit> {
    if rounds.len() < ROUNDS_MIN {
        return Err(Unfit::TooFew { needed: ROUNDS_MIN, found: rounds.len() });
    }
    let positive = |value: f64| value.is_finite() && value > 0.0;
    if !rounds.iter().all(|(a, b)| positive(*a) && positive(*b)) {
        return Err(Unfit::NotPositive { what: "a figure of a period" });
    }
    if !(terms.level > 0.0 && terms.level < 1.0) {
        return Err(Unfit::NotPositive { what: "the level, or one less it," });
    }
    if !positive(terms.margin) {
        return Err(Unfit::NotPositive { what: "the margin" });
    }
    let logs: Vec<f64> = rounds.iter().map(|(a, b)| (b / a).ln()).collect();
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = t_critical(terms.level, n - 1.0) * (variance / n).sqrt();
    let (low, high) = ((mean - half).exp(), (mean + half).exp());
    let p = permuted(&logs, terms.seed);
    Ok(Switchback {
        ratio: mean.exp(),
        low,
        high,
        level: terms.level,
        p,
        rounds: rounds.len(),
        sd_of_round: variance.sqrt().exp_m1(),
        margin: terms.margin,
        verdict: verdict((low, high), p, terms),
    })
}

fn verdict((low, high): (f64, f64), p: f64, terms: &SwitchbackTerms) -> SwitchbackVerdict {
    let shown = p <= 1.0 - terms.level;
    if shown && low > 1.0 {
        SwitchbackVerdict::More
    } else if shown && high < 1.0 {
        SwitchbackVerdict::Less
    } else if equivalent(&Interval::Bounded { low, high }, terms.margin) {
        SwitchbackVerdict::NoChange
    } else {
        SwitchbackVerdict::NotTold
    }
}

/// The share of the ways to give the labels that come to at least the sum that was seen.
fn permuted(logs: &[f64], seed: u64) -> f64 {
    let seen = logs.iter().sum::<f64>().abs();
    let least = seen - ROUNDING * logs.iter().map(|log| log.abs()).sum::<f64>();
    let reaches = |turned: &mut dyn FnMut(usize) -> bool| {
        let signed = logs.iter().enumerate().map(|(at, log)| if turned(at) { -log } else { *log });
        signed.sum::<f64>().abs() >= least
    };
    if logs.len() <= ROUNDS_TRIED_MAX {
        let ways = 1u32 << logs.len();
        let reached = (0..ways).filter(|way| reaches(&mut |at| (way >> at) & 1 == 1)).count();
        return reached as f64 / f64::from(ways);
    }
    let mut rng = Rng::new(seed);
    let reached = (0..WAYS_DRAWN).filter(|_| reaches(&mut |_| rng.next_u64() & 1 == 1)).count();
    // What was seen is one of the ways.
    (reached + 1) as f64 / (WAYS_DRAWN + 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: SwitchbackTerms = SwitchbackTerms { level: 0.95, margin: 0.05, seed: 1 };
    const EXPERIMENTS: usize = 1_000;

    /// Rounds of a B that costs `ratio` times A: noise of 2 % a period, a level that wanders by as
    /// much from period to period, and a drift.
    fn rounds(n: usize, ratio: f64, drift: f64, rng: &mut Rng) -> Vec<(f64, f64)> {
        let mut level = 0.0;
        let mut period = |at: usize, is_b: bool, rng: &mut Rng| {
            level = 0.8 * level + 0.02 * rng.normal();
            let cost = 50.0 * (level + drift * at as f64 + 0.02 * rng.normal()).exp();
            if is_b { cost * ratio } else { cost }
        };
        let round = |at: usize| {
            let b_first = at % 2 == 1;
            let first = period(2 * at, b_first, rng);
            let second = period(2 * at + 1, !b_first, rng);
            if b_first { (second, first) } else { (first, second) }
        };
        (0..n).map(round).collect()
    }

    fn share(mut is: impl FnMut(&Switchback) -> bool, n: usize, ratio: f64, drift: f64) -> f64 {
        let mut rng = Rng::new(7);
        let mut one = || switchback(&rounds(n, ratio, drift, &mut rng), &TERMS).unwrap();
        (0..EXPERIMENTS).filter(|_| is(&one())).count() as f64 / EXPERIMENTS as f64
    }

    #[test]
    fn the_interval_holds_the_truth_as_often_as_it_says() {
        for (n, ratio) in [(4, 1.0), (8, 1.3), (10, 0.9)] {
            let held = share(|found| (found.low..=found.high).contains(&ratio), n, ratio, 0.0);
            assert!((0.93..=0.97).contains(&held), "{n} rounds: {held}");
        }
        // A drift is in the error, and balanced in the figure.
        let held = share(|found| (found.low..=found.high).contains(&1.3), 8, 1.3, 0.03);
        assert!(held >= 0.95, "{held}");
    }

    #[test]
    fn a_change_is_seldom_found_where_there_is_none() {
        for (n, drift) in [(6, 0.0), (8, 0.0), (10, 0.0), (8, 0.03)] {
            let changed = |found: &Switchback| {
                matches!(found.verdict, SwitchbackVerdict::More | SwitchbackVerdict::Less)
            };
            let found = share(changed, n, 1.0, drift);
            assert!(found <= 0.06, "{n} rounds, drift {drift}: {found}");
            let small = share(|found| found.p <= 0.05, n, 1.0, drift);
            assert!(small <= 0.06, "{n} rounds, drift {drift}: p at most 5 % in {small}");
        }
    }

    #[test]
    fn a_change_beyond_the_margin_is_seldom_called_none() {
        let same = |found: &Switchback| found.verdict == SwitchbackVerdict::NoChange;
        assert!(share(same, 8, 1.05, 0.0) <= 0.05);
        assert!(share(same, 8, 1.2, 0.0) == 0.0);
        assert!(share(same, 10, 1.0, 0.0) > 0.3, "and what is the same is mostly shown to be");
    }

    #[test]
    fn a_change_that_is_there_is_found() {
        for (ratio, verdict) in [(1.2, SwitchbackVerdict::More), (0.8, SwitchbackVerdict::Less)] {
            let found = share(|found| found.verdict == verdict, 8, ratio, 0.01);
            assert!(found > 0.99, "{ratio}: {found}");
        }
    }

    #[test]
    fn the_p_is_that_of_all_ways() {
        // Of 16 ways, the one seen and its mirror image reach its sum.
        let found = switchback(&[(1.0, 2.0); 4], &TERMS).unwrap();
        assert_eq!((found.p, found.verdict), (0.125, SwitchbackVerdict::NotTold));
        assert_eq!((found.ratio, found.low, found.high), (2.0, 2.0, 2.0));
        let found = switchback(&[(1.0, 2.0); 6], &TERMS).unwrap();
        assert_eq!((found.p, found.verdict), (0.03125, SwitchbackVerdict::More));
        // The other way round is the same.
        assert_eq!(switchback(&[(2.0, 1.0); 6], &TERMS).unwrap().verdict, SwitchbackVerdict::Less);
        // Beyond 16 rounds the ways are drawn: the p is the same but for the drawing.
        let mut rng = Rng::new(3);
        let many = rounds(17, 1.008, 0.0, &mut rng);
        let logs: Vec<f64> = many.iter().map(|(a, b)| (b / a).ln()).collect();
        let tried = |logs: &[f64]| permuted(&logs[..16], 1);
        let drawn = permuted(&[&logs[..16], &[0.0]].concat(), 1);
        assert!((drawn - tried(&logs)).abs() < 0.02, "{drawn} and {}", tried(&logs));
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let good = [(1.0, 1.1); 6];
        assert!(matches!(switchback(&good[..3], &TERMS), Err(Unfit::TooFew { needed: 4, .. })));
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut rounds = good;
            rounds[2].1 = bad;
            assert!(matches!(switchback(&rounds, &TERMS), Err(Unfit::NotPositive { .. })));
        }
        for terms in
            [SwitchbackTerms { level: 1.0, ..TERMS }, SwitchbackTerms { margin: 0.0, ..TERMS }]
        {
            assert!(switchback(&good, &terms).is_err());
        }
    }
}
