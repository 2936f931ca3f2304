//! Capacity at a latency objective: the highest rate at which the objective is met.
//!
//! Latency does not fall as load rises, except by chance in single intervals. So the latencies are
//! first made monotone (isotonic least squares by pooling adjacent violators), and the objective is
//! applied to the result. Nothing is extrapolated: if the limit was not reached, the result says
//! so.

use serde::Serialize;

use crate::Unfit;
use crate::linear::check_column;

/// The rates at which the objective is met.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AtObjective {
    /// Met up to `rate`, missed from `missed_at`; the limit is between the two.
    Met {
        /// The highest rate seen at which it was met.
        rate: f64,
        /// The next rate seen, at which it was missed.
        missed_at: f64,
    },
    /// Met at all rates: the limit was not reached.
    NotReached {
        /// The highest rate seen.
        highest_rate: f64,
        /// Monotone latency there.
        latency: f64,
    },
    /// Missed at the lowest rate seen.
    NeverMet {
        /// That rate.
        lowest_rate: f64,
        /// Monotone latency there.
        latency: f64,
    },
}

/// The highest rate at which the monotone fit of `latencies` (one quantile per interval) on `rates`
/// is at most `objective`. Both are in the same order, not necessarily sorted.
///
/// # Errors
/// Empty input, lengths that differ, values not finite.
pub fn capacity_at_objective(
    rates: &[f64],
    latencies: &[f64],
    objective: f64,
) -> Result<AtObjective, Unfit> {
    let (rates, fitted) = isotonic(rates, latencies)?;
    let last = rates.len() - 1;
    Ok(match fitted.partition_point(|&latency| latency <= objective) {
        0 => AtObjective::NeverMet { lowest_rate: rates[0], latency: fitted[0] },
        met if met > last => {
            AtObjective::NotReached { highest_rate: rates[last], latency: fitted[last] }
        }
        met => AtObjective::Met { rate: rates[met - 1], missed_at: rates[met] },
    })
}

/// Isotonic least squares of `y` on `x`: the distinct values of `x` in ascending order, and the
/// monotone `y` at each. Rows with equal `x` are first replaced by their mean.
///
/// # Errors
/// Those of [`capacity_at_objective`].
pub fn isotonic(x: &[f64], y: &[f64]) -> Result<(Vec<f64>, Vec<f64>), Unfit> {
    if x.is_empty() {
        return Err(Unfit::TooFew { needed: 1, found: 0 });
    }
    check_column(x, x.len())?;
    check_column(y, x.len())?;
    let mut order: Vec<usize> = (0..x.len()).collect();
    order.sort_by(|&a, &b| x[a].total_cmp(&x[b]));
    let mut places: Vec<f64> = Vec::new();
    let mut points: Vec<Block> = Vec::new();
    for i in order {
        match points.last_mut() {
            Some(point) if places.last() == Some(&x[i]) => {
                point.sum += y[i];
                point.weight += 1.0;
            }
            _ => {
                places.push(x[i]);
                points.push(Block { sum: y[i], weight: 1.0, places: 1 });
            }
        }
    }
    let mut blocks: Vec<Block> = Vec::with_capacity(points.len());
    for mut block in points {
        while let Some(before) = blocks.pop_if(|before| before.mean() > block.mean()) {
            block.sum += before.sum;
            block.weight += before.weight;
            block.places += before.places;
        }
        blocks.push(block);
    }
    let fitted = blocks.iter().flat_map(|b| std::iter::repeat_n(b.mean(), b.places)).collect();
    Ok((places, fitted))
}

struct Block {
    sum: f64,
    weight: f64,
    places: usize,
}

impl Block {
    fn mean(&self) -> f64 {
        self.sum / self.weight
    }
}
