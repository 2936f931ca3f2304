//! The MM-estimator (Yohai 1987): up to half of the rows may be outliers, and without outliers it
//! loses 5 % of the efficiency of least squares.
//!
//! The estimator has two stages. The S-estimate finds the line whose residuals have the least
//! M-scale, from seeded random subsamples refined as in fast-S (Salibian-Barrera and Yohai 2006).
//! The scale of the S-estimate is then fixed, and an M-estimate with Tukey's bisquare is iterated
//! from the S-estimate. Both stages use `rho(u) = 1 − (1 − u²)³` for |u| < 1, with u the residual
//! over c times the scale: c = 1.547 for the S stage (breakdown 50 %), c = 4.685 for the M stage
//! (efficiency 95 %).
//!
//! Rows that the fit ignores are listed, never dropped silently.

use serde::Serialize;

use crate::dist::median;
use crate::linear::{Design, LinearFit, check_column, scaled};
use crate::small::Normal;
use crate::{Rng, Unfit, least_squares};

/// Tuning constant of the S stage: breakdown point 50 %.
pub const TUNING_S: f64 = 1.547;
/// Tuning constant of the M stage: 95 % efficient for normal errors.
pub const TUNING_M: f64 = 4.685;
/// A row with a smaller weight is set aside: it is more than 3.9 robust sd off the line.
pub const SET_ASIDE_WEIGHT: f64 = 0.1;

/// With half of the rows outliers and four coefficients, all subsamples fail with probability 1e-7.
const SUBSAMPLES: usize = 250;
const SUBSAMPLE_TRIES_MAX: usize = 20;
const REFINEMENTS: usize = 2;
const CANDIDATES_KEPT: usize = 5;
const ITERATIONS_MAX: usize = 500;
/// Above this many rows, candidates are found in a random part of them and refined on all.
const SEARCH_ROWS_MAX: usize = 300;
const BREAKDOWN: f64 = 0.5;
/// A scale this small relative to the response means that half of the rows are exactly on a line.
const EXACT: f64 = 1e-12;

/// A robust fit.
#[derive(Clone, Debug, Serialize)]
pub struct Robust {
    /// Intercept first, then in the order of the design's columns.
    pub coefficients: Vec<f64>,
    /// The robust residual scale (of the S-estimate; consistent with the sd for normal errors).
    pub scale: f64,
    /// Weight of every row in [0, 1]. Weighted least squares with them gives the coefficients.
    #[serde(skip)]
    pub weights: Vec<f64>,
    /// Rows with a weight below [`SET_ASIDE_WEIGHT`], in order.
    pub set_aside: Vec<usize>,
    /// Covariance of the coefficients under independent errors (Huber's first form).
    pub cov: Vec<Vec<f64>>,
    /// Rows minus coefficients.
    pub dof: usize,
}

impl Robust {
    /// The standard error of coefficient `j` under independent errors.
    #[must_use]
    pub fn se(&self, j: usize) -> f64 {
        self.cov[j][j].max(0.0).sqrt()
    }
}

/// The MM-estimate of `y` on the design. The seed chooses the subsamples, and the same seed gives
/// the same fit.
///
/// # Errors
/// Lengths that differ, values not finite, fewer rows than coefficients plus two, columns that do
/// not determine the coefficients.
pub fn mm(design: &Design, y: &[f64], seed: u64) -> Result<Robust, Unfit> {
    check_column(y, design.rows())?;
    let (n, p) = (design.rows(), design.coefficients());
    if n < p + 2 {
        return Err(Unfit::TooFew { needed: p + 2, found: n });
    }
    // This rejects a singular design before the search.
    let plain = least_squares(design, y, None)?;
    let magnitude = y.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    if plain.residual_sd <= EXACT * magnitude {
        return exact(design, y, &plain.coefficients, magnitude);
    }
    let (start, scale) = s_estimate(design, y, &plain, seed)?;
    if scale <= EXACT * magnitude {
        return exact(design, y, &start, magnitude);
    }
    m_bisquare(design, y, &start, scale)
}

/// The M-estimate with Tukey's bisquare at 95 % efficiency, iterated from `start` with a fixed
/// scale: the second stage of [`mm`], for callers that have a scale.
///
/// # Errors
/// Those of [`mm`]; a scale that is not positive.
pub fn m_bisquare(design: &Design, y: &[f64], start: &[f64], scale: f64) -> Result<Robust, Unfit> {
    check_column(y, design.rows())?;
    if scale.is_nan() || scale <= 0.0 {
        return Err(Unfit::NotPositive { what: "the residual scale" });
    }
    let search = Search::new(design, y);
    let mut scaled_coefficients = search.to_scaled(start);
    let mut weights = vec![0.0; design.rows()];
    for _ in 0..ITERATIONS_MAX {
        search.weigh(&scaled_coefficients, TUNING_M * scale, &mut weights);
        let Some(next) = search.weighted_fit(&weights) else { return Err(Unfit::Singular) };
        let moved = search.distance(&next, &scaled_coefficients);
        scaled_coefficients = next;
        if moved <= 1e-12 * scale {
            break;
        }
    }
    let coefficients = search.unscaled(&scaled_coefficients);
    search.weigh(&scaled_coefficients, TUNING_M * scale, &mut weights);
    let cov = huber_cov(design, y, &coefficients, scale)?;
    Ok(assemble(design, coefficients, scale, weights, cov))
}

/// Huber's first form of the covariance (1981, 7.81), as statsmodels' `H1`.
fn huber_cov(
    design: &Design,
    y: &[f64],
    coefficients: &[f64],
    scale: f64,
) -> Result<Vec<Vec<f64>>, Unfit> {
    let (n, p) = (design.rows() as f64, design.coefficients() as f64);
    let standardised: Vec<f64> =
        design.residuals(y, coefficients).iter().map(|r| r / scale).collect();
    let slopes: Vec<f64> = standardised.iter().map(|u| psi_slope((u / TUNING_M).powi(2))).collect();
    let mean = crate::dist::mean(&slopes);
    let spread = slopes.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / n;
    let correction = 1.0 + p / n * spread / (mean * mean);
    let power: f64 = standardised.iter().map(|&u| (u * weight(u / TUNING_M)).powi(2)).sum();
    let factor = correction.powi(2) * power / (n - p) * scale * scale / (mean * mean);
    let plain = least_squares(design, y, None)?;
    Ok(scaled(&plain.unscaled_cov, factor))
}

/// The fit if half of the rows or more are on one line, within rounding; the others are set aside.
fn exact(design: &Design, y: &[f64], start: &[f64], magnitude: f64) -> Result<Robust, Unfit> {
    let near = 1e-9 * magnitude;
    let weights: Vec<f64> = design
        .residuals(y, start)
        .iter()
        .map(|r| if r.abs() <= near { 1.0 } else { 0.0 })
        .collect();
    let LinearFit { coefficients, cov, .. } = least_squares(design, y, Some(&weights))?;
    Ok(assemble(design, coefficients, 0.0, weights, cov))
}

fn assemble(
    design: &Design,
    coefficients: Vec<f64>,
    scale: f64,
    weights: Vec<f64>,
    cov: Vec<Vec<f64>>,
) -> Robust {
    let set_aside = (0..weights.len()).filter(|&i| weights[i] < SET_ASIDE_WEIGHT).collect();
    let dof = design.rows() - design.coefficients();
    Robust { coefficients, scale, weights, set_aside, cov, dof }
}

/// The S-estimate: the coefficients with the least M-scale, and that scale. The normal equations of
/// the search need columns that are further from dependent than least squares does.
fn s_estimate(
    design: &Design,
    y: &[f64],
    plain: &LinearFit,
    seed: u64,
) -> Result<(Vec<f64>, f64), Unfit> {
    let mut rng = Rng::new(seed);
    let whole = Search::new(design, y);
    let part = (design.rows() > SEARCH_ROWS_MAX).then(|| whole.part(&mut rng));
    let search = part.as_ref().unwrap_or(&whole);
    let mut best: Vec<(f64, Vec<f64>)> = Vec::with_capacity(CANDIDATES_KEPT + 1);
    // Least squares is one more candidate, and a good start if there are no outliers.
    search.consider(whole.to_scaled(&plain.coefficients), &mut best);
    for _ in 0..SUBSAMPLES {
        if let Some(candidate) = search.subsample(&mut rng) {
            search.consider(candidate, &mut best);
        }
    }
    if part.is_some() {
        // They are refined on the cheap part, and only the best one is refined on all rows.
        best = best.into_iter().map(|(_, candidate)| search.converge(candidate)).collect();
        best.sort_by(|a, b| a.0.total_cmp(&b.0));
        best.truncate(1);
    }
    let refined = best.into_iter().map(|(_, candidate)| whole.converge(candidate));
    let best = refined.min_by(|a, b| a.0.total_cmp(&b.0));
    let (scale, coefficients) = best.ok_or(Unfit::Singular)?;
    Ok((whole.unscaled(&coefficients), scale))
}

/// Rows with columns scaled to a largest value of one, stored row by row, because the inner loops
/// of the search solve many small systems over them.
struct Search {
    rows: Vec<f64>,
    y: Vec<f64>,
    p: usize,
    scales: Vec<f64>,
}

impl Search {
    fn new(design: &Design, y: &[f64]) -> Search {
        let (n, p) = (design.rows(), design.coefficients());
        let scales = design.scales();
        let mut rows = Vec::with_capacity(n * p);
        for i in 0..n {
            rows.extend((0..p).map(|j| design.column(j)[i] / scales[j]));
        }
        Search { rows, y: y.to_vec(), p, scales }
    }

    /// A random part of the rows, without replacement (partial Fisher–Yates).
    fn part(&self, rng: &mut Rng) -> Search {
        let n = self.y.len();
        let mut order: Vec<usize> = (0..n).collect();
        for i in 0..SEARCH_ROWS_MAX {
            order.swap(i, i + rng.below(n - i));
        }
        let chosen = &order[..SEARCH_ROWS_MAX];
        Search {
            rows: chosen.iter().flat_map(|&i| self.row(i).to_vec()).collect(),
            y: chosen.iter().map(|&i| self.y[i]).collect(),
            p: self.p,
            scales: self.scales.clone(),
        }
    }

    fn row(&self, i: usize) -> &[f64] {
        &self.rows[i * self.p..(i + 1) * self.p]
    }

    fn residual(&self, i: usize, coefficients: &[f64]) -> f64 {
        self.y[i] - self.row(i).iter().zip(coefficients).map(|(x, c)| x * c).sum::<f64>()
    }

    fn to_scaled(&self, coefficients: &[f64]) -> Vec<f64> {
        coefficients.iter().zip(&self.scales).map(|(c, s)| c * s).collect()
    }

    fn unscaled(&self, coefficients: &[f64]) -> Vec<f64> {
        coefficients.iter().zip(&self.scales).map(|(c, s)| c / s).collect()
    }

    fn distance(&self, a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    }

    fn weigh(&self, coefficients: &[f64], reach: f64, weights: &mut [f64]) {
        for (i, w) in weights.iter_mut().enumerate() {
            *w = weight(self.residual(i, coefficients) / reach);
        }
    }

    fn weighted_fit(&self, weights: &[f64]) -> Option<Vec<f64>> {
        let mut system = Normal::new(self.p);
        for (i, &w) in weights.iter().enumerate() {
            if w > 0.0 {
                system.add(self.row(i), self.y[i], w);
            }
        }
        system.solve()
    }

    /// The exact fit of as many random rows as there are coefficients.
    fn subsample(&self, rng: &mut Rng) -> Option<Vec<f64>> {
        for _ in 0..SUBSAMPLE_TRIES_MAX {
            let mut system = Normal::new(self.p);
            for _ in 0..self.p {
                let i = rng.below(self.y.len());
                system.add(self.row(i), self.y[i], 1.0);
            }
            if let Some(coefficients) = system.solve() {
                return Some(coefficients);
            }
        }
        None
    }

    /// Refines a candidate a little and keeps it if it is among the best so far.
    fn consider(&self, start: Vec<f64>, best: &mut Vec<(f64, Vec<f64>)>) {
        let mut coefficients = start;
        let mut weights = vec![0.0; self.y.len()];
        let mut scale = self.median_scale(&coefficients);
        for _ in 0..REFINEMENTS {
            if scale <= 0.0 {
                break;
            }
            scale = self.scale_step(&coefficients, scale);
            self.weigh(&coefficients, TUNING_S * scale, &mut weights);
            let Some(next) = self.weighted_fit(&weights) else { return };
            coefficients = next;
        }
        if best.len() == CANDIDATES_KEPT {
            // The scale is below the worst kept scale if and only if one step from that goes down.
            let worst = best[CANDIDATES_KEPT - 1].0;
            if worst <= 0.0 || self.scale_step(&coefficients, worst) >= worst {
                return;
            }
        }
        let scale = self.m_scale(&coefficients, self.median_scale(&coefficients));
        let place = best.partition_point(|(kept, _)| *kept <= scale);
        best.insert(place, (scale, coefficients));
        best.truncate(CANDIDATES_KEPT);
    }

    /// Refines a candidate until it converges.
    fn converge(&self, start: Vec<f64>) -> (f64, Vec<f64>) {
        let mut coefficients = start;
        let mut scale = self.m_scale(&coefficients, self.median_scale(&coefficients));
        let mut weights = vec![0.0; self.y.len()];
        for _ in 0..ITERATIONS_MAX {
            if scale <= 0.0 {
                break;
            }
            self.weigh(&coefficients, TUNING_S * scale, &mut weights);
            let Some(next) = self.weighted_fit(&weights) else { break };
            let moved = self.distance(&next, &coefficients);
            coefficients = next;
            scale = self.scale_step(&coefficients, scale);
            if moved <= 1e-10 * scale {
                break;
            }
        }
        (self.m_scale(&coefficients, scale), coefficients)
    }

    fn median_scale(&self, coefficients: &[f64]) -> f64 {
        let mut sizes: Vec<f64> =
            (0..self.y.len()).map(|i| self.residual(i, coefficients).abs()).collect();
        median(&mut sizes) / 0.6745
    }

    /// One fixed-point step towards the M-scale: `s² ← s² · Σ rho(r/s) / (0.5·(n − p))`.
    fn scale_step(&self, coefficients: &[f64], scale: f64) -> f64 {
        let n = self.y.len();
        let sum: f64 =
            (0..n).map(|i| rho(self.residual(i, coefficients) / (TUNING_S * scale))).sum();
        scale * (sum / (BREAKDOWN * (n - self.p) as f64)).sqrt()
    }

    fn m_scale(&self, coefficients: &[f64], start: f64) -> f64 {
        let mut scale = start;
        for _ in 0..ITERATIONS_MAX {
            if scale <= 0.0 {
                return 0.0;
            }
            let next = self.scale_step(coefficients, scale);
            let done = (next - scale).abs() <= 1e-12 * scale;
            scale = next;
            if done {
                break;
            }
        }
        scale
    }
}

/// Tukey's bisquare, rising from 0 to 1 at |u| = 1.
fn rho(u: f64) -> f64 {
    if u.abs() < 1.0 { 1.0 - (1.0 - u * u).powi(3) } else { 1.0 }
}

/// The mean of psi' over the rows, with `u²` computed from the weights: the factor between the
/// bread of the sandwich covariance and that of least squares. 1 if it would not be positive.
pub(crate) fn mean_psi_slope(weights: &[f64]) -> f64 {
    let slopes = weights.iter().map(|w| psi_slope(1.0 - w.sqrt()));
    let mean = slopes.sum::<f64>() / weights.len() as f64;
    if mean > 0.0 { mean } else { 1.0 }
}

/// The bisquare's weight: psi(u)/u.
fn weight(u: f64) -> f64 {
    if u.abs() < 1.0 { (1.0 - u * u).powi(2) } else { 0.0 }
}

/// The derivative of psi at `u²`.
fn psi_slope(u2: f64) -> f64 {
    if u2 < 1.0 { (1.0 - u2) * (1.0 - 5.0 * u2) } else { 0.0 }
}
