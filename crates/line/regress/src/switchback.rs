//! Two settings that alternate under one load: does B cost more than A?
//!
//! **The design.** A round is one period of A and one period of B, and the order alternates between
//! rounds: A B, B A, A B, ... Drift (a cache that fills, another process, the time of day) affects
//! both periods of a round nearly equally, and the difference is charged to A as often as to B. So
//! the number of rounds is even.
//!
//! **The figures.** For each round the logarithm of B over A is taken. The mean is the change, with
//! Student's t interval over the rounds: a round is a block, so that effects common to its periods
//! do not enter the error. The p value comes from a permutation test: if the settings are the same,
//! the two labels of each round could be swapped, and each of the 2^n assignments is as likely as
//! the observed one. Constant drift makes the interval and the p value too conservative, never too
//! optimistic.
//!
//! **The verdict.** A change needs both an interval that excludes 1 and a p of at most 1 - level.
//! "No change" is not the absence of a change but an interval within the margin
//! ([`crate::equivalent`]). Fewer than [`rounds_verdict_min`] rounds have too few assignments for
//! that p.

use serde::Serialize;

use crate::dist::t_critical;
use crate::linear::check_level;
use crate::rng::Rng;
use crate::{Interval, Unfit, equivalent};

/// Fewest rounds for a meaningful interval.
pub const ROUNDS_MIN: usize = 4;
/// Up to this many rounds all assignments are enumerated; above it, [`ASSIGNMENTS_DRAWN`] are
/// drawn.
const ROUNDS_ENUMERATED_MAX: usize = 16;
/// Random assignments that are drawn if there are too many to enumerate.
const ASSIGNMENTS_DRAWN: usize = 20_000;
/// Relative difference below which sums count as equal.
const ROUNDING: f64 = 1e-9;

/// Parameters of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct SwitchbackTerms {
    /// Level of the interval.
    pub level: f64,
    /// Changes within this share count as no change: 0.05 is five percent.
    pub margin: f64,
    /// Seed of the random assignments.
    pub seed: u64,
}

/// The cost of B relative to that of A.
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
    /// Two-sided probability of a change as large by chance.
    pub p: f64,
    /// Number of rounds.
    pub rounds: usize,
    /// Sd of a round's ratio, as a share, for planning a longer experiment.
    pub sd_of_round: f64,
    /// The margin.
    pub margin: f64,
    /// The verdict.
    pub verdict: SwitchbackVerdict,
}

/// The verdict of a switchback experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SwitchbackVerdict {
    /// B costs more.
    More,
    /// B costs less.
    Less,
    /// They are the same within the margin.
    NoChange,
    /// Neither can be shown.
    Inconclusive,
}

/// Fewest rounds, an even number, that can show a change at this level. With 4 rounds there are 16
/// assignments, and the smallest p is 2 of 16, so that 95 % needs 6 rounds.
#[must_use]
pub fn rounds_verdict_min(level: f64) -> usize {
    let smallest_p = |rounds: &usize| 2.0_f64.powi(1 - i32::try_from(*rounds).unwrap_or(i32::MAX));
    let mut even = (ROUNDS_MIN..=ROUNDS_ENUMERATED_MAX).step_by(2);
    even.find(|rounds| smallest_p(rounds) <= 1.0 - level).unwrap_or(ROUNDS_ENUMERATED_MAX)
}

/// Compares rounds of (A, B), in the order in which they were run.
///
/// # Errors
/// Fewer than [`ROUNDS_MIN`] rounds; a value that is not positive; a parameter out of its range.
pub fn switchback(rounds: &[(f64, f64)], terms: &SwitchbackTerms) -> Result<Switchback, Unfit> {
    if rounds.len() < ROUNDS_MIN {
        return Err(Unfit::TooFew { needed: ROUNDS_MIN, found: rounds.len() });
    }
    let positive = |value: f64| value.is_finite() && value > 0.0;
    if !rounds.iter().all(|(a, b)| positive(*a) && positive(*b)) {
        return Err(Unfit::NotPositive { what: "a value of a period" });
    }
    check_level(terms.level)?;
    if !positive(terms.margin) {
        return Err(Unfit::NotPositive { what: "the margin" });
    }
    let logs: Vec<f64> = rounds.iter().map(|(a, b)| (b / a).ln()).collect();
    let n = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / n;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = t_critical(terms.level, n - 1.0) * (variance / n).sqrt();
    let (low, high) = ((mean - half).exp(), (mean + half).exp());
    let p = permutation_p(&logs, terms.seed);
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

impl Switchback {
    /// What this cost and another one of the same rounds show together. Where one is higher and the
    /// other lower, B costs more: a user would not want that unseen. If the other one is not known,
    /// or from too few rounds, only a higher cost is a verdict: a B that cannot be measured must
    /// not pass.
    ///
    /// For a rate of false alarms, the level of both must be that of half the rate (Bonferroni).
    #[must_use]
    pub fn with(&self, other: Option<&Switchback>) -> SwitchbackVerdict {
        use SwitchbackVerdict::{Inconclusive, Less, More, NoChange};
        let known = other.filter(|other| other.rounds >= rounds_verdict_min(other.level));
        match (self.verdict, known.map(|other| other.verdict)) {
            (More, _) | (_, Some(More)) => More,
            (_, None) => Inconclusive,
            (Less, _) | (_, Some(Less)) => Less,
            (NoChange, Some(NoChange)) => NoChange,
            (Inconclusive, _) | (_, Some(Inconclusive)) => Inconclusive,
        }
    }
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
        SwitchbackVerdict::Inconclusive
    }
}

/// The share of the assignments of labels whose sum is at least as large as the observed one.
fn permutation_p(logs: &[f64], seed: u64) -> f64 {
    let observed = logs.iter().sum::<f64>().abs();
    let least = observed - ROUNDING * logs.iter().map(|log| log.abs()).sum::<f64>();
    let reaches = |swapped: &mut dyn FnMut(usize) -> bool| {
        let signed = logs.iter().enumerate().map(|(at, log)| if swapped(at) { -log } else { *log });
        signed.sum::<f64>().abs() >= least
    };
    if logs.len() <= ROUNDS_ENUMERATED_MAX {
        let all = 1u32 << logs.len();
        let reached = (0..all).filter(|bits| reaches(&mut |at| (bits >> at) & 1 == 1)).count();
        return reached as f64 / f64::from(all);
    }
    let mut rng = Rng::new(seed);
    let reached =
        (0..ASSIGNMENTS_DRAWN).filter(|_| reaches(&mut |_| rng.next_u64() & 1 == 1)).count();
    // The observed assignment is one of them.
    (reached + 1) as f64 / (ASSIGNMENTS_DRAWN + 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: SwitchbackTerms = SwitchbackTerms { level: 0.95, margin: 0.05, seed: 1 };
    const EXPERIMENTS: usize = 1_000;

    /// Rounds of a B that costs `ratio` times A, with noise of 2 % per period, a level that varies
    /// as much between periods, and a drift.
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
    fn the_interval_contains_the_true_ratio_at_its_level() {
        for (n, ratio) in [(4, 1.0), (8, 1.3), (10, 0.9)] {
            let held = share(|found| (found.low..=found.high).contains(&ratio), n, ratio, 0.0);
            assert!((0.93..=0.97).contains(&held), "{n} rounds: {held}");
        }
        // A drift increases the error, and is balanced in the ratio.
        let held = share(|found| (found.low..=found.high).contains(&1.3), 8, 1.3, 0.03);
        assert!(held >= 0.95, "{held}");
    }

    #[test]
    fn false_positives_are_rare() {
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
    fn a_change_beyond_the_margin_is_rarely_called_no_change() {
        let same = |found: &Switchback| found.verdict == SwitchbackVerdict::NoChange;
        assert!(share(same, 8, 1.05, 0.0) <= 0.05);
        assert!(share(same, 8, 1.2, 0.0) == 0.0);
        assert!(share(same, 10, 1.0, 0.0) > 0.3, "equal settings are often shown to be equal");
    }

    #[test]
    fn a_real_change_is_found() {
        for (ratio, verdict) in [(1.2, SwitchbackVerdict::More), (0.8, SwitchbackVerdict::Less)] {
            let found = share(|found| found.verdict == verdict, 8, ratio, 0.01);
            assert!(found > 0.99, "{ratio}: {found}");
        }
    }

    #[test]
    fn p_is_that_of_all_assignments() {
        // Of 16 assignments, the observed one and its mirror image reach its sum.
        let found = switchback(&[(1.0, 2.0); 4], &TERMS).unwrap();
        assert_eq!((found.p, found.verdict), (0.125, SwitchbackVerdict::Inconclusive));
        assert_eq!((found.ratio, found.low, found.high), (2.0, 2.0, 2.0));
        let found = switchback(&[(1.0, 2.0); 6], &TERMS).unwrap();
        assert_eq!((found.p, found.verdict), (0.03125, SwitchbackVerdict::More));
        // Swapping A and B gives the opposite verdict.
        assert_eq!(switchback(&[(2.0, 1.0); 6], &TERMS).unwrap().verdict, SwitchbackVerdict::Less);
        // Above 16 rounds the assignments are drawn: p is the same up to the sampling error.
        let mut rng = Rng::new(3);
        let many = rounds(17, 1.008, 0.0, &mut rng);
        let logs: Vec<f64> = many.iter().map(|(a, b)| (b / a).ln()).collect();
        let tried = |logs: &[f64]| permutation_p(&logs[..16], 1);
        let drawn = permutation_p(&[&logs[..16], &[0.0]].concat(), 1);
        assert!((drawn - tried(&logs)).abs() < 0.02, "{drawn} and {}", tried(&logs));
    }

    #[test]
    fn a_verdict_needs_more_rounds_at_a_higher_level() {
        assert_eq!([0.9, 0.95, 0.975, 0.99].map(rounds_verdict_min), [6, 6, 8, 8]);
        for level in [0.95, 0.975] {
            let terms = SwitchbackTerms { level, ..TERMS };
            let of = |rounds| switchback(&vec![(1.0, 2.0); rounds], &terms).unwrap().verdict;
            let least = rounds_verdict_min(level);
            assert_eq!(of(least), SwitchbackVerdict::More);
            assert_eq!(of(least - 2), SwitchbackVerdict::Inconclusive);
        }
    }

    #[test]
    fn a_change_of_either_cost_is_a_change() {
        use SwitchbackVerdict::{Inconclusive, Less, More, NoChange};
        let terms = SwitchbackTerms { level: 0.975, ..TERMS };
        let of = |by: f64| {
            let rounds = [1.0, 1.01, 0.99, 1.0, 1.005, 0.995, 1.0, 1.01].map(|a| (a, by * a));
            switchback(&rounds, &terms).unwrap()
        };
        let wild = [0.8, 1.3, 0.9, 1.2, 0.7, 1.25, 1.0, 1.1].map(|a| (a, 1.0));
        let unclear = switchback(&wild, &terms).unwrap();
        let [same, more, less] = [1.0, 1.2, 0.8].map(of);
        for (one, missing) in
            [(&same, Inconclusive), (&less, Inconclusive), (&more, More), (&unclear, Inconclusive)]
        {
            assert_eq!(one.with(None), missing, "never known");
            let few = Switchback { rounds: 6, ..same.clone() };
            assert_eq!(one.with(Some(&few)), missing, "too few rounds");
        }
        for (one, other, both) in [
            (&same, &same, NoChange),
            (&same, &more, More),
            (&less, &same, Less),
            (&less, &more, More),
            (&unclear, &less, Less),
            (&same, &unclear, Inconclusive),
        ] {
            assert_eq!(one.with(Some(other)), both, "{one:?} {other:?}");
            assert_eq!(other.with(Some(one)), both, "{other:?} {one:?}");
        }
    }

    #[test]
    fn invalid_input_is_refused() {
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
