//! Figures and ratios over the visits of several rounds.

use harness::rounds::{Figure, Round, in_round};

/// What was measured of each cell in each round.
pub(crate) struct Visits<C, V>(pub(crate) Vec<Round<C, V>>);

impl<C: Copy + PartialEq, V> Visits<C, V> {
    /// How many rounds were made.
    pub(crate) fn rounds(&self) -> usize {
        self.0.len()
    }

    /// The visits of a cell, a round each.
    pub(crate) fn of(&self, cell: C) -> impl Iterator<Item = &V> {
        self.0.iter().filter_map(move |round| in_round(round, cell))
    }

    /// A value of a cell.
    pub(crate) fn figure(&self, cell: C, value: impl Fn(&V) -> f64) -> Figure {
        Figure::of(self.of(cell).map(value))
    }

    /// A value of a cell divided by that of `base`, both of the same round.
    pub(crate) fn ratio(&self, cell: C, base: C, value: impl Fn(&V) -> f64) -> Figure {
        Figure::of(self.0.iter().filter_map(|round| {
            Some(value(in_round(round, cell)?) / value(in_round(round, base)?))
        }))
    }

    /// The sum of a count of a cell.
    pub(crate) fn sum(&self, cell: C, count: impl Fn(&V) -> u64) -> u64 {
        self.of(cell).map(count).sum()
    }
}

/// Every server, by its index, with every number.
pub(crate) fn cells(servers: usize, numbers: &[u32]) -> Vec<(usize, u32)> {
    (0..servers).flat_map(|server| numbers.iter().map(move |number| (server, *number))).collect()
}

/// Asserts that a ratio has a value and that it is the same in every round.
#[cfg(test)]
pub(crate) fn assert_constant(figure: &Figure, wanted: f64) {
    assert!((figure.value / wanted - 1.0).abs() < 1e-9, "{figure:?} is not {wanted}");
    let (low, high) = figure.interval.unwrap();
    assert!(high - low < 1e-9, "{figure:?}");
}
