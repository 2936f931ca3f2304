//! The cost of requests by class: `C = a + Σ b_k·x_k` with no negative b.
//!
//! A request cannot have a negative cost, so the fit is non-negative least squares (Lawson and
//! Hanson 1974, the active-set method), with the weights of the unconstrained MM-estimate. The
//! intercept is not constrained.
//!
//! No fit can separate classes that rise and fall together: hits and misses of a cache with a
//! constant hit ratio are one class. Before the fit, a class is merged with the class most similar
//! to it if the other classes explain more than [`EXPLAINED_MAX`] of its variance, or if the class
//! itself has too few requests. The result lists what was merged and why.
//!
//! Intervals have the width of the intervals of [`mod@crate::costs`] in the unconstrained fit, are
//! centred on the constrained estimate, and are cut at zero.

use serde::Serialize;

use crate::costs::{Coefficient, Weighting, cost};
use crate::linear::{Design, LinearFit, check_level};
use crate::{Unfit, least_squares, mm, shared_fit};

/// If the others explain more than this share of a class's variance, it is not fitted separately:
/// its standard error would be more than seven times as large as alone.
pub const EXPLAINED_MAX: f64 = 0.98;

/// Classes with a smaller share of all requests are not fitted separately.
pub const SHARE_MIN: f64 = 0.005;

/// Most classes. The rarest ones are merged first.
pub const CLASSES_MAX: usize = 12;

/// Rounds of the active-set method for each class; it needs about two.
const ROUNDS_PER_CLASS: usize = 10;

/// A gradient this small relative to the largest counts as zero.
const GRADIENT_ZERO: f64 = 1e-9;

/// The cost of one class, or of several merged classes.
#[derive(Clone, Debug, Serialize)]
pub struct ClassCost {
    /// The classes, as indices of the input.
    pub members: Vec<usize>,
    /// Their share of all requests.
    pub share: f64,
    /// The cost of a request.
    pub cost: Coefficient,
    /// Whether the unconstrained fit would be negative.
    pub at_zero: bool,
}

/// Why classes were merged.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyMerged {
    /// Too few requests for a separate fit: their share of all requests.
    Rare(f64),
    /// They rise and fall together: the share of the variance that the others explain.
    Alike(f64),
}

/// One merger.
#[derive(Clone, Debug, Serialize)]
pub struct Merged {
    /// The merged classes, as indices of the input.
    pub from: Vec<usize>,
    /// The classes that they were merged with.
    pub into: Vec<usize>,
    /// Why.
    pub why: WhyMerged,
}

/// The costs of all classes.
#[derive(Clone, Debug, Serialize)]
pub struct ClassCosts {
    /// The cost at zero load.
    pub fixed: Coefficient,
    /// The classes, the most frequent first.
    pub classes: Vec<ClassCost>,
    /// The mean cost of a request, by the classes' shares.
    pub mean: f64,
    /// The mergers, in their order.
    pub merged: Vec<Merged>,
    /// Rows.
    pub n: usize,
    /// Level of the intervals.
    pub level: f64,
}

/// Fits the cost of requests by class. `rates` has the requests per second of each class in each
/// row; classes without requests are skipped.
///
/// # Errors Those of [`mm`]; a class with another length than the total, not finite or negative; no
/// requests.
pub fn class_costs(
    rates: &[&[f64]],
    whole: &[f64],
    level: f64,
    seed: u64,
) -> Result<ClassCosts, Unfit> {
    check_level(level)?;
    if rates.iter().any(|class| class.iter().any(|rate| *rate < 0.0)) {
        return Err(Unfit::NotPositive { what: "the rate of a class" });
    }
    // This checks lengths and values before anything is summed.
    Design::new(rates)?;
    let total: f64 = rates.iter().map(|class| class.iter().sum::<f64>()).sum();
    if total <= 0.0 {
        return Err(Unfit::NotPositive { what: "the number of requests" });
    }
    let mut groups: Vec<Group> = rates
        .iter()
        .enumerate()
        .map(|(at, class)| Group { members: vec![at], rates: class.to_vec() })
        .filter(|group| group.sum() > 0.0)
        .collect();
    let mut merged = Vec::new();
    merge_rare(&mut groups, &mut merged, total);
    merge_alike(&mut groups, &mut merged);
    groups.sort_by(|a, b| b.sum().total_cmp(&a.sum()));

    let columns: Vec<&[f64]> = groups.iter().map(|group| group.rates.as_slice()).collect();
    let design = Design::new(&columns)?;
    let weights = mm(&design, whole, seed)?.weights;
    let free = shared_fit(&design, &[whole], &weights)?.remove(0);
    let bounded = non_negative(&columns, whole, &weights)?;
    let weighting = Weighting { weights, residuals: free.residuals.clone() };
    let around = cost(&design, &free, &weighting, level);
    let centred = |j: usize| {
        let Coefficient { value, se, low, high, dof } = around.coefficients[j];
        let to = bounded[j];
        let half = (high - low) / 2.0;
        // If the constraint raises the estimate to zero, the upper end does not move.
        let high = if j > 0 && to <= 0.0 { (value + half).max(0.0) } else { to + half };
        let low = if j > 0 { (to - half).max(0.0) } else { to - half };
        Coefficient { value: to, se, low, high, dof }
    };
    let classes: Vec<ClassCost> = groups
        .into_iter()
        .enumerate()
        .map(|(at, group)| ClassCost {
            share: group.sum() / total,
            members: group.members,
            cost: centred(at + 1),
            at_zero: bounded[at + 1] <= 0.0,
        })
        .collect();
    let mean = classes.iter().map(|class| class.share * class.cost.value).sum();
    Ok(ClassCosts { fixed: centred(0), classes, mean, merged, n: whole.len(), level })
}

/// Classes that are treated as one.
struct Group {
    members: Vec<usize>,
    rates: Vec<f64>,
}

impl Group {
    fn sum(&self) -> f64 {
        self.rates.iter().sum()
    }

    fn absorb(&mut self, other: &Group) {
        self.members.extend_from_slice(&other.members);
        self.rates.iter_mut().zip(&other.rates).for_each(|(mine, more)| *mine += more);
    }
}

fn merge_rare(groups: &mut Vec<Group>, merged: &mut Vec<Merged>, total: f64) {
    while groups.len() > 1 {
        let shares = groups.iter().enumerate().map(|(at, group)| (at, group.sum() / total));
        let Some((rarest, share)) = shares.min_by(|a, b| a.1.total_cmp(&b.1)) else { return };
        if share >= SHARE_MIN && groups.len() <= CLASSES_MAX {
            return;
        }
        let into = most_alike(groups, rarest);
        merge(groups, merged, rarest, into, WhyMerged::Rare(share));
    }
}

fn merge_alike(groups: &mut Vec<Group>, merged: &mut Vec<Merged>) {
    while groups.len() > 1 {
        let explained = (0..groups.len()).map(|at| (at, explained_by_others(groups, at)));
        let Some((at, explained)) = explained.max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
        if explained <= EXPLAINED_MAX {
            return;
        }
        let into = most_alike(groups, at);
        merge(groups, merged, at, into, WhyMerged::Alike(explained));
    }
}

fn merge(
    groups: &mut Vec<Group>,
    merged: &mut Vec<Merged>,
    from: usize,
    into: usize,
    why: WhyMerged,
) {
    let (from_members, into_members) = (groups[from].members.clone(), groups[into].members.clone());
    merged.push(Merged { from: from_members, into: into_members, why });
    let gone = groups.remove(from);
    groups[into - usize::from(into > from)].absorb(&gone);
}

/// The share of a class's variance that a fit by the others explains; 1 if it does not vary, or if
/// the fit is not possible.
fn explained_by_others(groups: &[Group], at: usize) -> f64 {
    let others: Vec<&[f64]> = groups
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != at)
        .map(|(_, group)| group.rates.as_slice())
        .collect();
    let rates = &groups[at].rates;
    let level = rates[0];
    if rates.iter().all(|rate| *rate == level) {
        return 1.0;
    }
    let fit = Design::new(&others).and_then(|design| least_squares(&design, rates, None));
    // If the others explain each other, they are merged in later rounds.
    fit.map_or(1.0, |fit| fit.r_squared)
}

/// The class whose rate is most correlated with that of this class.
fn most_alike(groups: &[Group], at: usize) -> usize {
    let with = (0..groups.len()).filter(|other| *other != at);
    let likeness = |other: &usize| correlation(&groups[at].rates, &groups[*other].rates).abs();
    let nearest = with.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    nearest.expect("there are two at least")
}

fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len() as f64;
    let (mean_a, mean_b) = (a.iter().sum::<f64>() / n, b.iter().sum::<f64>() / n);
    let both: f64 = a.iter().zip(b).map(|(x, y)| (x - mean_a) * (y - mean_b)).sum();
    let of = |values: &[f64], mean: f64| values.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
    let scale = (of(a, mean_a) * of(b, mean_b)).sqrt();
    if scale > 0.0 { both / scale } else { 0.0 }
}

/// Weighted least squares with non-negative coefficients, except for the intercept. Returns the
/// coefficients, the intercept first.
fn non_negative(columns: &[&[f64]], whole: &[f64], weights: &[f64]) -> Result<Vec<f64>, Unfit> {
    let count = columns.len();
    let mut passive = vec![false; count];
    let mut found = vec![0.0; count + 1];
    found[0] = mean(whole, weights);
    for _ in 0..ROUNDS_PER_CLASS * count {
        let Some(enters) = steepest(columns, whole, weights, &passive, &found) else { break };
        passive[enters] = true;
        loop {
            let wanted = solve(columns, whole, weights, &passive)?;
            // A step towards it, until the first coefficient reaches zero.
            let first = (0..count)
                .filter(|&j| passive[j] && wanted[j + 1] <= 0.0)
                .map(|j| (j, found[j + 1] / (found[j + 1] - wanted[j + 1])))
                .map(|(j, step)| (j, if step.is_finite() { step } else { 0.0 }))
                .min_by(|a, b| a.1.total_cmp(&b.1));
            let step = first.map_or(1.0, |(_, step)| step);
            for (value, wanted) in found.iter_mut().zip(&wanted) {
                *value += step * (wanted - *value);
            }
            let Some((meets_zero, _)) = first else { break };
            for j in 0..count {
                if passive[j] && (j == meets_zero || found[j + 1] <= 0.0) {
                    (passive[j], found[j + 1]) = (false, 0.0);
                }
            }
        }
    }
    Ok(found)
}

/// The class at zero whose coefficient has the steepest gradient.
fn steepest(
    columns: &[&[f64]],
    whole: &[f64],
    weights: &[f64],
    passive: &[bool],
    found: &[f64],
) -> Option<usize> {
    let residual = |row: usize| {
        let fitted: f64 = columns.iter().zip(&found[1..]).map(|(c, b)| c[row] * b).sum();
        whole[row] - found[0] - fitted
    };
    let residuals: Vec<f64> = (0..whole.len()).map(|row| weights[row] * residual(row)).collect();
    let scale = |column: &[f64]| column.iter().map(|v| v * v).sum::<f64>().sqrt();
    let size = residuals.iter().map(|r| r * r).sum::<f64>().sqrt();
    let gradient = |j: usize| {
        let sum: f64 = columns[j].iter().zip(&residuals).map(|(x, r)| x * r).sum();
        sum / (scale(columns[j]) * size).max(f64::MIN_POSITIVE)
    };
    (0..columns.len())
        .filter(|&j| !passive[j])
        .map(|j| (j, gradient(j)))
        .filter(|(_, gradient)| *gradient > GRADIENT_ZERO)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(j, _)| j)
}

/// The unconstrained fit by the classes that are not at zero.
fn solve(
    columns: &[&[f64]],
    whole: &[f64],
    weights: &[f64],
    passive: &[bool],
) -> Result<Vec<f64>, Unfit> {
    let chosen: Vec<usize> = (0..columns.len()).filter(|&j| passive[j]).collect();
    let mut found = vec![0.0; columns.len() + 1];
    if chosen.is_empty() {
        found[0] = mean(whole, weights);
        return Ok(found);
    }
    let views: Vec<&[f64]> = chosen.iter().map(|&j| columns[j]).collect();
    let LinearFit { coefficients, .. } =
        least_squares(&Design::new(&views)?, whole, Some(weights))?;
    found[0] = coefficients[0];
    for (&j, value) in chosen.iter().zip(&coefficients[1..]) {
        found[j + 1] = *value;
    }
    Ok(found)
}

fn mean(values: &[f64], weights: &[f64]) -> f64 {
    let sum: f64 = values.iter().zip(weights).map(|(value, weight)| value * weight).sum();
    sum / weights.iter().sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// Rates that rise and fall independently, and their total cost with noise.
    struct Made {
        rates: Vec<Vec<f64>>,
        whole: Vec<f64>,
    }

    fn made(costs: &[f64], rows: usize, seed: u64) -> Made {
        let mut rng = Rng::new(seed);
        let rates: Vec<Vec<f64>> = costs
            .iter()
            .enumerate()
            .map(|(class, _)| {
                let period = 17.0 + 11.0 * class as f64;
                let wave = |row: usize| (row as f64 / period).sin();
                (0..rows).map(|row| 300.0 + 200.0 * wave(row) + 100.0 * rng.uniform()).collect()
            })
            .collect();
        let whole = (0..rows)
            .map(|row| {
                let paid: f64 = rates.iter().zip(costs).map(|(x, b)| x[row] * b).sum();
                0.02 + paid + 0.005 * rng.normal()
            })
            .collect();
        Made { rates, whole }
    }

    fn fit(made: &Made, seed: u64) -> ClassCosts {
        let views: Vec<&[f64]> = made.rates.iter().map(Vec::as_slice).collect();
        class_costs(&views, &made.whole, 0.95, seed).unwrap()
    }

    #[test]
    fn intervals_contain_the_known_costs() {
        let costs = [20e-6, 150e-6, 60e-6];
        let mut held = [0; 4];
        for seed in 0..20 {
            let found = fit(&made(&costs, 240, seed), seed);
            assert!(found.merged.is_empty(), "{:?}", found.merged);
            for class in &found.classes {
                let truth = costs[class.members[0]];
                held[class.members[0]] += u32::from(!class.cost.differs_from(truth));
                assert!((class.cost.value / truth - 1.0).abs() < 0.5, "{class:?}");
            }
            held[3] += u32::from(!found.fixed.differs_from(0.02));
            let share: f64 = found.classes.iter().map(|class| class.share).sum();
            assert!((share - 1.0).abs() < 1e-9);
        }
        assert!(held.iter().all(|&times| times >= 18), "{held:?} of 20");
    }

    #[test]
    fn a_class_without_cost_is_at_zero_and_never_negative() {
        let mut at_zero = 0;
        for seed in 0..20 {
            let found = fit(&made(&[0.0, 100e-6, 0.0], 200, seed), seed);
            for class in &found.classes {
                let cost = class.cost;
                assert!(cost.value >= 0.0 && cost.low >= 0.0 && cost.high >= cost.value);
                at_zero += u32::from(class.at_zero);
                assert_eq!(class.at_zero, cost.value <= 0.0);
            }
        }
        // About half of forty unconstrained estimates would be negative.
        assert!((8..=32).contains(&at_zero), "{at_zero}");
    }

    #[test]
    fn classes_that_vary_together_are_merged_and_reported() {
        let mut both = made(&[20e-6, 150e-6], 200, 7);
        // Misses at a constant hit ratio, and a class with hardly any requests.
        both.rates.push(both.rates[0].iter().map(|hits| 0.25 * hits).collect());
        both.rates.push((0..200).map(|row| if row % 50 == 0 { 1.0 } else { 0.0 }).collect());
        let found = fit(&both, 7);
        let mut members: Vec<Vec<usize>> =
            found.classes.iter().map(|class| class.members.clone()).collect();
        members.iter_mut().for_each(|class| class.retain(|&member| member != 3));
        members.iter_mut().for_each(|class| class.sort_unstable());
        members.sort();
        assert_eq!(members, [vec![0, 2], vec![1]]);
        assert_eq!(found.merged.len(), 2);
        assert!(matches!(found.merged[0].why, WhyMerged::Rare(share) if share < SHARE_MIN));
        assert!(matches!(found.merged[1].why, WhyMerged::Alike(share) if share > 0.999));
        // The cost of a merged class is the mean of its members.
        let pair = found.classes.iter().find(|class| class.members.contains(&0)).unwrap();
        assert!((pair.cost.value / (20e-6 / 1.25) - 1.0).abs() < 0.3, "{pair:?}");
    }

    /// Compares with every subset of classes: the best fit with non-negative coefficients.
    #[test]
    fn no_other_non_negative_fit_is_better() {
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let mut uniform = || rng.uniform();
            let rates: Vec<Vec<f64>> =
                (0..4).map(|_| (0..30).map(|_| uniform()).collect()).collect();
            let whole: Vec<f64> = (0..30).map(|_| uniform()).collect();
            let weights: Vec<f64> = (0..30).map(|_| 0.2 + uniform()).collect();
            let columns: Vec<&[f64]> = rates.iter().map(Vec::as_slice).collect();
            let loss = |found: &[f64]| -> f64 {
                (0..30)
                    .map(|row| {
                        let fitted: f64 =
                            columns.iter().zip(&found[1..]).map(|(c, b)| c[row] * b).sum();
                        weights[row] * (whole[row] - found[0] - fitted).powi(2)
                    })
                    .sum()
            };
            let best = (0..16u32)
                .filter_map(|set| {
                    let passive: Vec<bool> = (0..4).map(|j| set >> j & 1 == 1).collect();
                    let found = solve(&columns, &whole, &weights, &passive).ok()?;
                    found[1..].iter().all(|b| *b >= 0.0).then(|| loss(&found))
                })
                .fold(f64::INFINITY, f64::min);
            let found = non_negative(&columns, &whole, &weights).unwrap();
            assert!(found[1..].iter().all(|b| *b >= 0.0), "{found:?}");
            assert!(loss(&found) <= best * (1.0 + 1e-9), "seed {seed}: {} {best}", loss(&found));
        }
    }

    #[test]
    fn impossible_fits_are_errors() {
        let row = [1.0, 2.0, 3.0];
        assert!(class_costs(&[&row], &[1.0], 0.95, 1).is_err());
        assert!(class_costs(&[&[-1.0, 1.0]], &[1.0, 1.0], 0.95, 1).is_err());
        assert!(class_costs(&[&[0.0; 30]], &[1.0; 30], 0.95, 1).is_err());
        assert!(class_costs(&[], &[1.0; 30], 0.95, 1).is_err());
        assert!(class_costs(&[&row], &row, 1.5, 1).is_err());
    }
}
