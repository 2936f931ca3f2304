//! When daily peaks reach a capacity: trend, season of the week, and noise.
//!
//! The trend is linear or exponential, whichever leaves the smaller absolute residuals of the
//! logarithm. The slope of the trend is the median of the slopes of all pairs of days that are
//! whole weeks apart (Theil–Sen with a season, Hirsch and others 1982), so that the weekday does
//! not matter. The season is the median of each weekday, with [`SEASON_DAYS_MIN`] days or more.
//! With fewer days, the season is part of the noise. Noise is in proportion to the peak.
//!
//! The first day at the capacity is predicted by simulation. In each run, the residuals are drawn
//! in blocks of a week. Then trend and season are fitted again, including the choice of the kind of
//! trend. The future is this fit with more residuals, drawn in the same way. The capacity is drawn
//! from its interval.

use serde::Serialize;

use crate::Rng;
use crate::dist::{median, quantile_sorted, t_critical};

/// Fewest days with a peak.
pub const DAYS_MIN: usize = 14;
/// Fewest days from which a season is estimated.
pub const SEASON_DAYS_MIN: usize = 21;
/// Only so many of the latest days count.
pub const DAYS_MAX: usize = 182;
/// Nothing is predicted for later days.
pub const HORIZON_DAYS: i64 = 365;
/// Nor for days further ahead than this multiple of the time that was seen.
pub const HORIZON_SEEN: i64 = 13;
/// Length of a block of residuals.
const BLOCK: usize = 7;

/// A daily peak.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Day {
    /// Number of the day.
    pub day: i64,
    /// The peak.
    pub peak: f64,
}

/// The kind of trend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trend {
    /// The same growth each day.
    Linear,
    /// The same factor each day.
    Exponential,
}

/// What is expected of the peaks.
#[derive(Clone, Debug, Serialize)]
pub struct RunsOut {
    /// The trend.
    pub trend: Trend,
    /// Growth per day at the last day, as a share of the peak, with its interval.
    pub growth: [f64; 3],
    /// Whether there is a season of the week.
    pub season: bool,
    /// Sd of the noise, as a share of the peak.
    pub noise: f64,
    /// The expected peak of the last day's week, on its busiest day.
    pub peak: f64,
    /// Days after the last one on which the capacity is first reached: the lower end of the
    /// interval, the median, and the upper end. `None` is later than `horizon`.
    pub first: [Option<i64>; 3],
    /// Share of the simulated futures in which it is not reached.
    pub never: f64,
    /// Days that were simulated.
    pub horizon: i64,
}

/// Parameters of the prediction.
#[derive(Clone, Copy, Debug)]
pub struct RunsOutTerms {
    /// The capacity.
    pub capacity: f64,
    /// Sd of its logarithm.
    pub capacity_sd: f64,
    /// Level of the intervals.
    pub level: f64,
    /// Number of simulated futures.
    pub futures: usize,
    /// Seed.
    pub seed: u64,
}

/// Predicts the first day on which the peak is at or above the capacity. Days are in order; those
/// without a positive peak do not count. `None` with fewer than [`DAYS_MIN`], or no two days whole
/// weeks apart.
#[must_use]
pub fn runs_out(days: &[Day], terms: &RunsOutTerms) -> Option<RunsOut> {
    let usable = |day: &&Day| day.peak > 0.0 && day.peak.is_finite();
    let days: Vec<Day> = days.iter().filter(usable).copied().collect();
    let days = &days[days.len().saturating_sub(DAYS_MAX)..];
    let last = days.last()?.day;
    let capacity_known = terms.capacity > 0.0 && terms.capacity_sd >= 0.0;
    if days.len() < DAYS_MIN || !capacity_known {
        return None;
    }
    let season = days.len() >= SEASON_DAYS_MIN;
    let pairs = whole_weeks_apart(days);
    let fit = Fit::of(days, last, season, &pairs)?;
    let coefficients = if season { 8.0 } else { 2.0 };
    let n = days.len() as f64;
    // Residuals are smaller than the noise, by what was fitted to them, and how large the noise is
    // is not known exactly.
    let free = n - coefficients;
    let inexact = t_critical(terms.level, free) / t_critical(terms.level, 1e6);
    let inflate = (n / free).sqrt() * inexact;
    let residuals: Vec<f64> =
        days.iter().map(|day| inflate * (day.peak.ln() - fit.log_at(day.day))).collect();
    let horizon = HORIZON_DAYS.min(HORIZON_SEEN * (last - days[0].day + 1));
    let mut rng = Rng::new(terms.seed);
    let (mut firsts, mut growths) = (Vec::new(), Vec::new());
    for _ in 0..terms.futures {
        let mut noise = Blocks::new(&residuals);
        let redrawn: Vec<Day> = days
            .iter()
            .map(|day| Day {
                day: day.day,
                peak: (fit.log_at(day.day) + noise.next(&mut rng)).exp(),
            })
            .collect();
        let Some(other) = Fit::of(&redrawn, last, season, &pairs) else { continue };
        let capacity = terms.capacity.ln() + terms.capacity_sd * rng.normal();
        growths.push(other.growth());
        let first = (1..=horizon)
            .find(|ahead| other.log_at(last + ahead) + noise.next(&mut rng) >= capacity);
        firsts.push(first.map_or(f64::INFINITY, |day| day as f64));
    }
    firsts.sort_unstable_by(f64::total_cmp);
    growths.sort_unstable_by(f64::total_cmp);
    let tail = (1.0 - terms.level) / 2.0;
    let at = |p: f64| {
        let rank = (p * firsts.len() as f64) as usize;
        firsts.get(rank).copied().unwrap_or(f64::INFINITY)
    };
    let never = firsts.iter().filter(|day| day.is_infinite()).count() as f64;
    let day = |p: f64| at(p).is_finite().then(|| at(p) as i64);
    let busiest = (0..7).map(|back| fit.log_at(last - back)).fold(f64::NEG_INFINITY, f64::max);
    Some(RunsOut {
        trend: fit.trend,
        growth: [
            quantile_sorted(&growths, tail),
            fit.growth(),
            quantile_sorted(&growths, 1.0 - tail),
        ],
        season,
        noise: (residuals.iter().map(|r| r * r).sum::<f64>() / n).sqrt(),
        peak: busiest.exp(),
        first: [day(tail), day(0.5), day(1.0 - tail)],
        never: never / firsts.len().max(1) as f64,
        horizon,
    })
}

/// Residuals in blocks of a week, drawn from a circle.
struct Blocks<'a> {
    residuals: &'a [f64],
    at: usize,
    left: usize,
}

impl Blocks<'_> {
    fn new(residuals: &[f64]) -> Blocks<'_> {
        Blocks { residuals, at: 0, left: 0 }
    }

    fn next(&mut self, rng: &mut Rng) -> f64 {
        if self.left == 0 {
            (self.at, self.left) = (rng.below(self.residuals.len()), BLOCK);
        }
        let found = self.residuals[self.at];
        self.at = (self.at + 1) % self.residuals.len();
        self.left -= 1;
        found
    }
}

/// Trend and season.
#[derive(Clone, Debug)]
struct Fit {
    trend: Trend,
    last: i64,
    /// At the last day: the peak without a season if the trend is linear, and else its logarithm.
    level: f64,
    slope: f64,
    /// Logarithm of the factor of each weekday.
    season: [f64; 7],
}

impl Fit {
    /// The trend with the smaller residuals.
    fn of(days: &[Day], last: i64, season: bool, pairs: &[(usize, usize)]) -> Option<Fit> {
        let logs: Vec<f64> = days.iter().map(|day| day.peak.ln()).collect();
        let slope = slope(days, &logs, pairs)?;
        let level = |values: &[f64], slope: f64| {
            let at_last = days.iter().zip(values).map(|(d, v)| v - slope * (d.day - last) as f64);
            median(&mut at_last.collect::<Vec<f64>>())
        };
        let mut factors = [0.0; 7];
        if season {
            let flat: Vec<f64> =
                days.iter().zip(&logs).map(|(d, v)| v - slope * (d.day - last) as f64).collect();
            for (weekday, factor) in factors.iter_mut().enumerate() {
                let of_it = |(day, _): &(&Day, &f64)| day.day.rem_euclid(7) as usize == weekday;
                let same: Vec<f64> =
                    days.iter().zip(&flat).filter(of_it).map(|(_, value)| *value).collect();
                *factor = if same.is_empty() { 0.0 } else { median(&mut same.clone()) };
            }
            let middle = crate::dist::mean(&factors);
            factors.iter_mut().for_each(|factor| *factor -= middle);
        }
        let season_of = |day: &Day| factors[day.day.rem_euclid(7) as usize];
        let flat: Vec<f64> = days.iter().zip(&logs).map(|(d, v)| v - season_of(d)).collect();
        let exponential = Fit {
            trend: Trend::Exponential,
            last,
            level: level(&flat, slope),
            slope,
            season: factors,
        };
        let plain: Vec<f64> = flat.iter().map(|log| log.exp()).collect();
        let slope = self::slope(days, &plain, pairs)?;
        let linear =
            Fit { trend: Trend::Linear, level: level(&plain, slope), slope, ..exponential.clone() };
        let off = |fit: &Fit| -> f64 {
            days.iter().zip(&logs).map(|(day, log)| (log - fit.log_at(day.day)).abs()).sum()
        };
        Some(if off(&exponential) < off(&linear) { exponential } else { linear })
    }

    /// The logarithm of the expected peak.
    fn log_at(&self, day: i64) -> f64 {
        let trend = self.level + self.slope * (day - self.last) as f64;
        let log = match self.trend {
            Trend::Exponential => trend,
            Trend::Linear => trend.max(f64::MIN_POSITIVE).ln(),
        };
        log + self.season[day.rem_euclid(7) as usize]
    }

    /// Growth per day at the last day, as a share.
    fn growth(&self) -> f64 {
        match self.trend {
            Trend::Exponential => self.slope.exp_m1(),
            Trend::Linear => self.slope / self.level,
        }
    }
}

/// The pairs of days that are whole weeks apart, the earlier one first.
fn whole_weeks_apart(days: &[Day]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    for (later, day) in days.iter().enumerate() {
        for (earlier, before) in days[..later].iter().enumerate() {
            let apart = day.day - before.day;
            if apart > 0 && apart % 7 == 0 {
                pairs.push((earlier, later));
            }
        }
    }
    pairs
}

/// The median of the slopes of the pairs.
fn slope(days: &[Day], values: &[f64], pairs: &[(usize, usize)]) -> Option<f64> {
    let slope = |&(earlier, later): &(usize, usize)| {
        (values[later] - values[earlier]) / (days[later].day - days[earlier].day) as f64
    };
    let mut slopes: Vec<f64> = pairs.iter().map(slope).collect();
    (!slopes.is_empty()).then(|| median(&mut slopes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: RunsOutTerms =
        RunsOutTerms { capacity: 100.0, capacity_sd: 0.05, level: 0.95, futures: 400, seed: 1 };
    const WEEK: [f64; 7] = [1.0, 1.02, 1.03, 1.0, 0.97, 0.8, 0.75];

    fn days(n: i64, noise: f64, seed: u64, peak: impl Fn(f64) -> f64) -> Vec<Day> {
        let mut rng = Rng::new(seed);
        let one = |day: i64| Day {
            day,
            peak: peak(day as f64) * WEEK[day as usize % 7] * (noise * rng.normal()).exp(),
        };
        (0..n).map(one).collect()
    }

    #[test]
    fn growth_reaches_the_capacity_on_a_day_in_the_interval() {
        for (grows, trend) in [
            (Box::new(|day: f64| 20.0 + 1.5 * day) as Box<dyn Fn(f64) -> f64>, Trend::Linear),
            (Box::new(|day: f64| 20.0 * (0.03 * day).exp()), Trend::Exponential),
        ] {
            let all = days(120, 0.0, 1, &grows);
            let true_day = all.iter().position(|day| day.peak >= 100.0).unwrap() as i64;
            let (mut held, mut right) = (0, 0);
            for seed in 0..20 {
                let found = runs_out(&days(35, 0.02, seed, &grows), &TERMS).unwrap();
                let [low, middle, high] = found.first.map(|day| day.unwrap() + 34);
                held += i32::from((low..=high).contains(&true_day));
                right += i32::from(found.trend == trend);
                assert!((middle - true_day).abs() <= 14, "{true_day}: {found:?}");
            }
            assert!(held >= 17 && right >= 18, "{held} {right}");
        }
    }

    #[test]
    fn peaks_that_do_not_grow_do_not_reach_it() {
        let found = runs_out(&days(60, 0.03, 3, |_| 40.0), &TERMS).unwrap();
        assert!(found.never > 0.99 && found.first == [None; 3], "{found:?}");
        assert!((found.peak / 41.2 - 1.0).abs() < 0.03 && found.season, "{found:?}");
    }

    #[test]
    fn one_day_with_five_times_the_load_does_not_make_a_trend() {
        let mut all = days(60, 0.02, 5, |_| 30.0);
        all[58].peak *= 3.0;
        let found = runs_out(&all, &TERMS).unwrap();
        assert!(found.growth[1].abs() < 0.001, "{found:?}");
    }

    #[test]
    fn two_weeks_are_needed() {
        let all = days(14, 0.01, 7, |day| 50.0 + day);
        assert!(runs_out(&all[..13], &TERMS).is_none());
        let found = runs_out(&all, &TERMS).unwrap();
        assert!(!found.season && found.horizon == 182, "{found:?}");
        assert!(runs_out(&all, &RunsOutTerms { capacity: 0.0, ..TERMS }).is_none());
        assert!(runs_out(&[], &TERMS).is_none());
    }
}
