//! Rounds that visit every cell in a new random order, and figures over the rounds, each with an
//! interval by Student's t.
//!
//! Figures are computed on logarithms: disturbances lengthen a time by a factor, and the ratio of
//! two such times is as likely to double as to halve. One round never has an interval.

use std::time::{Duration, Instant};

use regress::{Rng, student_t_quantile};
use report::format::thousands;
use serde::Serialize;
use serde_json::{Value, json};

/// The level of all intervals.
pub const LEVEL: f64 = 0.95;

/// The visits of a round: each cell with its result.
pub type Round<C, V> = Vec<(C, V)>;

/// The number of rounds and the time for them.
pub struct Rounds {
    /// At most this many rounds, and at least one.
    pub most: usize,
    /// The first round always runs; no other begins later than `time` after `begun`.
    pub begun: Instant,
    /// See `begun`.
    pub time: Duration,
    /// Seed of the order of the visits.
    pub seed: u64,
}

impl Rounds {
    /// Visits every cell once in each round. `visit` gets the number of the round, from 0, the
    /// cell, and the random numbers that also decide the orders.
    pub fn make<C: Copy, V, E>(
        &self,
        mut cells: Vec<C>,
        mut visit: impl FnMut(usize, C, &mut Rng) -> Result<V, E>,
    ) -> Result<Vec<Round<C, V>>, E> {
        let mut rng = Rng::new(self.seed);
        let mut rounds = Vec::new();
        for round in 0..self.most.max(1) {
            if round > 0 && self.begun.elapsed() > self.time {
                break;
            }
            shuffle(&mut cells, &mut rng);
            let visits = cells.iter().map(|&cell| Ok((cell, visit(round, cell, &mut rng)?)));
            rounds.push(visits.collect::<Result<_, E>>()?);
        }
        Ok(rounds)
    }
}

/// The result of a cell in a round.
pub fn in_round<C: PartialEq, V>(round: &[(C, V)], wanted: C) -> Option<&V> {
    round.iter().find(|(cell, _)| *cell == wanted).map(|(_, visit)| visit)
}

/// Shuffles (Fisher and Yates).
pub fn shuffle<T>(all: &mut [T], rng: &mut Rng) {
    for at in (1..all.len()).rev() {
        all.swap(at, rng.below(at + 1));
    }
}

/// A figure measured in several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The geometric mean.
    pub value: f64,
    /// The 95 % interval; none from one round.
    pub interval: Option<(f64, f64)>,
    /// Number of rounds.
    pub rounds: usize,
}

impl Figure {
    /// The figure of the positive values. Others are not measurements, and are ignored.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Figure {
        let logs: Vec<f64> = values
            .into_iter()
            .filter(|value| value.is_finite() && *value > 0.0)
            .map(f64::ln)
            .collect();
        let n = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / n;
        let interval = (logs.len() > 1).then(|| {
            let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
            let se = (squares / (n - 1.0) / n).sqrt();
            let half = student_t_quantile(0.5 + LEVEL / 2.0, n - 1.0) * se;
            ((mean - half).exp(), (mean + half).exp())
        });
        Figure { value: mean.exp(), interval, rounds: logs.len() }
    }

    /// `7.12 (6.90 to 7.35)`, or `-` where nothing was measured.
    pub fn text(&self) -> String {
        match self.interval {
            _ if !self.value.is_finite() => "-".to_owned(),
            None => format!("{} (one round)", digits(self.value)),
            Some((low, high)) => {
                format!("{} ({} to {})", digits(self.value), digits(low), digits(high))
            }
        }
    }
}

/// What was measured of each cell in each round.
pub struct Visits<C, V>(pub Vec<Round<C, V>>);

/// What a figure is relative to.
pub enum To<C> {
    /// Nothing.
    Itself,
    /// This cell in the same round. Without one, there is no figure.
    Cell(Option<C>),
}

/// The figures of a row: the name, what it is relative to, and the value of a visit.
pub type Figures<'f, C, V> = &'f [(&'static str, To<C>, &'f dyn Fn(&V) -> f64)];

impl<C: Copy + PartialEq, V> Visits<C, V> {
    /// How many rounds were made.
    pub fn rounds(&self) -> usize {
        self.0.len()
    }

    /// The visits of a cell, a round each.
    pub fn of(&self, cell: C) -> impl Iterator<Item = &V> {
        self.0.iter().filter_map(move |round| in_round(round, cell))
    }

    /// A value of a cell.
    pub fn figure(&self, cell: C, value: impl Fn(&V) -> f64) -> Figure {
        Figure::of(self.of(cell).map(value))
    }

    /// A value of a cell divided by that of `base`, both of the same round.
    pub fn ratio(&self, cell: C, base: C, value: impl Fn(&V) -> f64) -> Figure {
        Figure::of(self.0.iter().filter_map(|round| {
            Some(value(in_round(round, cell)?) / value(in_round(round, base)?))
        }))
    }

    /// The sum of a count of a cell.
    pub fn sum(&self, cell: C, count: impl Fn(&V) -> u64) -> u64 {
        self.of(cell).map(count).sum()
    }

    /// The row of a cell: the given values, and the figures.
    pub fn row(&self, cell: C, mut row: Value, figures: Figures<'_, C, V>) -> Value {
        for (name, to, of_visit) in figures {
            row[*name] = match to {
                To::Itself => json!(self.figure(cell, of_visit)),
                To::Cell(base) => json!(base.map(|base| self.ratio(cell, base, of_visit))),
            };
        }
        row
    }
}

/// Formats a number with at least three significant digits.
pub fn digits(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "-".to_owned(),
        v if v >= 99.95 => thousands(value),
        v if v >= 9.995 => format!("{value:.1}"),
        v if v >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_is_visited_once_a_round_and_the_first_round_always_runs() {
        let rounds = |most, time| Rounds { most, begun: Instant::now(), time, seed: 1 };
        let visit = |round, cell: usize, _: &mut Rng| Ok::<_, ()>(10 * round + cell);
        let long = Duration::from_secs(60);
        let made = rounds(3, long).make((0..8).collect(), visit).unwrap();
        assert_eq!(made.len(), 3);
        for (at, round) in made.iter().enumerate() {
            assert_eq!(round.len(), 8);
            assert!((0..8).all(|cell| in_round(round, cell) == Some(&(10 * at + cell))));
        }
        let order = |round: &Round<usize, usize>| -> Vec<usize> {
            round.iter().map(|(cell, _)| *cell).collect()
        };
        assert_ne!(order(&made[0]), order(&made[1]), "each round has its own order");
        let made = rounds(3, Duration::ZERO).make((0..8).collect(), visit).unwrap();
        assert_eq!((made.len(), in_round(&made[0], 8)), (1, None));
        assert_eq!(rounds(0, long).make((0..8).collect(), visit).unwrap().len(), 1);
        let failed = rounds(3, long).make(vec![1, 2], |_, _, _| Err::<(), _>("no"));
        assert_eq!(failed, Err("no"));
    }

    #[test]
    fn a_figure_is_the_geometric_mean_with_students_interval() {
        let figure = Figure::of([1.0, 2.0, 4.0, f64::NAN, 0.0]);
        assert_eq!(figure.rounds, 3);
        assert!((figure.value - 2.0).abs() < 1e-12, "{figure:?}");
        // sd of the logarithms ln 2, t at 2 degrees of freedom 4.3027.
        let half = 4.302_652_73 * 2f64.ln() / 3f64.sqrt();
        let (low, high) = figure.interval.unwrap();
        assert!((low - 2.0 * (-half).exp()).abs() < 1e-6, "{figure:?}");
        assert!((high - 2.0 * half.exp()).abs() < 1e-6, "{figure:?}");
    }

    #[test]
    fn one_round_has_no_interval_and_no_round_has_no_figure() {
        assert_eq!(Figure::of([3.0]).interval, None);
        assert_eq!(Figure::of([3.0]).text(), "3.00 (one round)");
        assert_eq!(Figure::of([]).text(), "-");
    }

    #[test]
    fn numbers_have_three_digits_or_more() {
        let all = [12345.6, 100.4, 99.9, 12.345, 1.0, 0.01234].map(digits);
        assert_eq!(all, ["12,346", "100", "99.9", "12.3", "1.00", "0.0123"]);
    }
}
