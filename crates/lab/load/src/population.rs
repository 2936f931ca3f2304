//! Which objects are requested, and how large they are.
//!
//! What: popularity by Zipf's law over N objects, drawn in constant time from an alias table
//! (Walker 1977, built by Vose's method); sizes fixed, or log-normal with a Pareto tail (Barford
//! and Crovella 1998). Why: hit ratios and bytes depend on both. An object's size comes from a
//! seeded hash of its number, so it is the same in every run and every process. What never happens:
//! a draw that takes longer because there are more objects.

use serde::{Deserialize, Serialize};

use crate::random::{Random, mix2, normal_quantile, unit};

/// The most objects of a population. Their tables then take 320 MiB.
pub const OBJECTS_MAX: u32 = 1 << 24;
/// The largest size of an object, whatever the tail draws.
pub const SIZE_BYTES_MAX: u64 = 1 << 36;

/// The objects and how often each is requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Population {
    /// Number of objects, numbered from 0. Object 0 is the most popular.
    pub objects: u32,
    /// Zipf's exponent: object k is requested in proportion to (k+1)^-s. 0 is uniform.
    pub zipf_s: f64,
    /// Their sizes.
    pub size: Size,
}

impl Default for Population {
    /// One object of 1 KB.
    fn default() -> Population {
        Population { objects: 1, zipf_s: 0.0, size: Size::Fixed { bytes: 1024 } }
    }
}

impl Population {
    /// Checks that every field is in range.
    ///
    /// # Errors
    /// Names the field that is out of range.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.objects == 0 || self.objects > OBJECTS_MAX {
            return Err("the number of objects must be in 1..=16777216");
        }
        if !self.zipf_s.is_finite() || !(0.0..=10.0).contains(&self.zipf_s) {
            return Err("Zipf's exponent must be in 0..=10");
        }
        self.size.check()
    }
}

/// The distribution of object sizes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Size {
    /// All objects have the same size.
    Fixed {
        /// Size of each, bytes.
        bytes: u64,
    },
    /// A log-normal body with a Pareto tail.
    LogNormalPareto {
        /// Median of the body, bytes.
        median_bytes: f64,
        /// Standard deviation of the logarithm in the body.
        sigma: f64,
        /// The fraction of objects in the tail, 0..=1.
        tail_part: f64,
        /// Where the tail begins, bytes.
        tail_from_bytes: f64,
        /// The tail's exponent: P(size > x) falls as x^-alpha.
        tail_alpha: f64,
        /// Larger draws are capped at this, bytes.
        bytes_max: u64,
    },
}

impl Size {
    /// Sizes as measured in web caches: median 3 KB, a tail of 7 % from 9 KB with exponent 1.1.
    pub fn web() -> Size {
        Size::LogNormalPareto {
            median_bytes: 3_000.0,
            sigma: 1.3,
            tail_part: 0.07,
            tail_from_bytes: 9_300.0,
            tail_alpha: 1.1,
            bytes_max: 64 << 20,
        }
    }

    /// The size of one object, bytes. It depends only on the object and the seed.
    pub fn of(&self, object: u32, seed: u64) -> u64 {
        match *self {
            Size::Fixed { bytes } => bytes,
            Size::LogNormalPareto {
                median_bytes,
                sigma,
                tail_part,
                tail_from_bytes,
                tail_alpha,
                bytes_max,
            } => {
                let which = unit(mix2(seed, u64::from(object) << 1));
                let place = unit(mix2(seed, u64::from(object) << 1 | 1));
                let bytes = if which < tail_part {
                    tail_from_bytes * place.powf(-1.0 / tail_alpha)
                } else {
                    median_bytes * (sigma * normal_quantile(place)).exp()
                };
                // `as` saturates, so a draw beyond u64 is capped like any other.
                (bytes as u64).clamp(1, bytes_max)
            }
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        match *self {
            Size::Fixed { bytes } if bytes > SIZE_BYTES_MAX => Err("the size is above 64 GiB"),
            Size::Fixed { .. } => Ok(()),
            Size::LogNormalPareto {
                median_bytes,
                sigma,
                tail_part,
                tail_from_bytes,
                tail_alpha,
                bytes_max,
            } => {
                let positive = |x: f64| x.is_finite() && x > 0.0;
                if !positive(median_bytes) || !positive(tail_from_bytes) {
                    Err("the median and the start of the tail must be above zero")
                } else if !sigma.is_finite() || sigma < 0.0 || !positive(tail_alpha) {
                    Err("sigma must be zero or more, and the tail's exponent above zero")
                } else if !(0.0..=1.0).contains(&tail_part) {
                    Err("the tail's fraction must be in 0..=1")
                } else if bytes_max == 0 || bytes_max > SIZE_BYTES_MAX {
                    Err("the largest size must be in 1 byte..=64 GiB")
                } else {
                    Ok(())
                }
            }
        }
    }
}

/// Draws objects by popularity and returns their sizes.
#[derive(Debug)]
pub struct Objects {
    /// Empty when all objects are equally popular.
    table: Vec<Column>,
    objects: u32,
    /// Empty when all sizes are the same.
    sizes: Vec<u64>,
    size: Size,
    random: Random,
}

/// A column of the alias table: below `keep` it yields its own object, otherwise `alias`.
#[derive(Clone, Copy, Debug)]
struct Column {
    keep: u32,
    alias: u32,
}

impl Objects {
    /// Builds the tables for a population that has passed its check. `size_seed` determines the
    /// sizes, `seed` the draws.
    pub fn new(population: &Population, size_seed: u64, seed: u64) -> Objects {
        let uniform = population.zipf_s == 0.0 || population.objects == 1;
        let table = if uniform { Vec::new() } else { alias_table(&zipf_weights(population)) };
        let sizes = match population.size {
            Size::Fixed { .. } => Vec::new(),
            drawn => (0..population.objects).map(|n| drawn.of(n, size_seed)).collect(),
        };
        Objects {
            table,
            objects: population.objects,
            sizes,
            size: population.size,
            random: Random::new(seed),
        }
    }

    /// Draws the next object to request.
    #[inline]
    pub fn draw(&mut self) -> u32 {
        if self.objects == 1 {
            return 0;
        }
        let bits = self.random.next_u64();
        // The high half picks the column (Lemire 2019; its bias is below 2^-8 of a column's share);
        // the low half decides within it.
        let at = (((bits >> 32) * u64::from(self.objects)) >> 32) as u32;
        match self.table.get(at as usize) {
            Some(column) if bits as u32 >= column.keep => column.alias,
            _ => at,
        }
    }

    /// The size of an object, bytes.
    #[inline]
    pub fn size(&self, object: u32) -> u64 {
        match self.size {
            Size::Fixed { bytes } => bytes,
            Size::LogNormalPareto { .. } => self.sizes[object as usize],
        }
    }
}

/// Each object's share of the requests by Zipf's law. The shares add up to 1.
fn zipf_weights(population: &Population) -> Vec<f64> {
    let weight = |k: u32| f64::from(k + 1).powf(-population.zipf_s);
    // Summed from the smallest up, so that rounding does not lose the many small ones.
    let total: f64 = (0..population.objects).rev().map(weight).sum();
    (0..population.objects).map(|k| weight(k) / total).collect()
}

/// Vose's method: every column contains at most two objects and 1/N of the total weight.
fn alias_table(weights: &[f64]) -> Vec<Column> {
    let count = weights.len();
    let mut share: Vec<f64> = weights.iter().map(|w| w * count as f64).collect();
    let mut table = vec![Column { keep: u32::MAX, alias: 0 }; count];
    for (own, column) in table.iter_mut().enumerate() {
        column.alias = own as u32;
    }
    let (mut small, mut large): (Vec<u32>, Vec<u32>) =
        (0..count as u32).partition(|k| share[*k as usize] < 1.0);
    while let (Some(poor), Some(rich)) = (small.pop(), large.last().copied()) {
        let keep = share[poor as usize];
        table[poor as usize] = Column { keep: (keep * 4_294_967_296.0) as u32, alias: rich };
        share[rich as usize] -= 1.0 - keep;
        if share[rich as usize] < 1.0 {
            large.pop();
            small.push(rich);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn population(objects: u32, zipf_s: f64, size: Size) -> Population {
        Population { objects, zipf_s, size }
    }

    /// Draws, and compares the counts with the exact law by Pearson's statistic.
    fn chi_square(objects: u32, zipf_s: f64, draws: u32) -> f64 {
        let population = population(objects, zipf_s, Size::Fixed { bytes: 1 });
        let mut drawn = Objects::new(&population, 0, 42);
        let mut counts = vec![0u32; objects as usize];
        for _ in 0..draws {
            counts[drawn.draw() as usize] += 1;
        }
        let exact = zipf_weights(&population);
        let term = |(count, weight): (&u32, &f64)| {
            let expected = weight * f64::from(draws);
            (f64::from(*count) - expected).powi(2) / expected
        };
        counts.iter().zip(&exact).map(term).sum()
    }

    #[test]
    fn draws_follow_zipfs_law() {
        // With 999 degrees of freedom the statistic has mean 999 and standard deviation 44.7.
        for zipf_s in [0.0, 0.6, 0.9, 1.0, 1.4] {
            let statistic = chi_square(1000, zipf_s, 1_000_000);
            assert!((999.0 - 4.5 * 44.7..999.0 + 4.5 * 44.7).contains(&statistic), "{statistic}");
        }
    }

    #[test]
    fn the_statistic_would_detect_a_wrong_law() {
        let weights = zipf_weights(&population(1000, 0.9, Size::Fixed { bytes: 1 }));
        let other = zipf_weights(&population(1000, 0.92, Size::Fixed { bytes: 1 }));
        let shift: f64 =
            weights.iter().zip(&other).map(|(a, b)| (a - b).powi(2) / a * 1_000_000.0).sum();
        assert!(shift > 300.0, "{shift}");
    }

    #[test]
    fn the_table_contains_each_share_exactly() {
        let weights = zipf_weights(&population(257, 0.8, Size::Fixed { bytes: 1 }));
        let mut share = vec![0.0; 257];
        for (own, column) in alias_table(&weights).iter().enumerate() {
            let keep = if column.alias as usize == own {
                1.0
            } else {
                f64::from(column.keep) / 4_294_967_296.0
            };
            share[own] += keep / 257.0;
            share[column.alias as usize] += (1.0 - keep) / 257.0;
        }
        for (got, exact) in share.iter().zip(&weights) {
            assert!((got - exact).abs() < 1e-8, "{got} {exact}");
        }
    }

    #[test]
    fn sizes_follow_the_given_body_and_tail() {
        let mut sizes: Vec<u64> = (0..200_000).map(|n| Size::web().of(n, 5)).collect();
        sizes.sort_unstable();
        // Median of the mixture: slightly above the median of the body.
        let median = sizes[sizes.len() / 2] as f64;
        assert!((3_000.0..3_600.0).contains(&median), "{median}");
        // Far out, only the tail contributes: 0.07 * (9300 / 1e6)^1.1 = 0.000408 of all objects.
        let far = sizes.iter().filter(|bytes| **bytes > 1_000_000).count();
        assert!((60..105).contains(&far), "{far}");
        assert!(sizes.iter().all(|bytes| (1..=64 << 20).contains(bytes)));
    }

    #[test]
    fn an_objects_size_depends_only_on_the_seed() {
        let population = population(100, 0.9, Size::web());
        let (a, b) = (Objects::new(&population, 9, 1), Objects::new(&population, 9, 2));
        assert!((0..100).all(|n| a.size(n) == b.size(n) && a.size(n) == Size::web().of(n, 9)));
        assert!((0..100).any(|n| a.size(n) != Size::web().of(n, 10)));
    }

    #[test]
    fn impossible_populations_are_refused() {
        let fixed = Size::Fixed { bytes: 1 };
        assert!(population(0, 1.0, fixed).check().is_err());
        assert!(population(OBJECTS_MAX + 1, 1.0, fixed).check().is_err());
        assert!(population(1, f64::NAN, fixed).check().is_err());
        assert!(population(1, -1.0, fixed).check().is_err());
        assert!(population(1, 1.0, Size::Fixed { bytes: u64::MAX }).check().is_err());
        assert!(population(1, 1.0, Size::web()).check().is_ok());
    }
}
