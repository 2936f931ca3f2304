//! Design matrices, least squares with or without weights, and covariances that are robust to
//! autocorrelation and unequal variance.
//!
//! All fits use one solver. Columns are scaled to a largest value of one (rates are 1e5 while the
//! intercept's column is 1) and solved by QR, so that the squared rate of the curvature test does
//! not lose the digits that it would lose in normal equations.

use serde::Serialize;

use crate::Unfit;
use crate::matrix::{Factors, dot, factorised, product, singular_values, upper_inverse};

/// A column of ones and the regressors, all of the same length. Rows are in time order.
#[derive(Clone, Debug)]
pub struct Design {
    columns: Vec<Vec<f64>>,
    rows: usize,
}

impl Design {
    /// An intercept and the given regressors.
    ///
    /// # Errors
    /// Lengths that differ, values that are not finite, no rows.
    pub fn new(regressors: &[&[f64]]) -> Result<Design, Unfit> {
        let rows = regressors.first().map_or(0, |column| column.len());
        if rows == 0 {
            return Err(Unfit::TooFew { needed: 1, found: 0 });
        }
        let mut columns = vec![vec![1.0; rows]];
        for column in regressors {
            check_column(column, rows)?;
            columns.push(column.to_vec());
        }
        Ok(Design { columns, rows })
    }

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of coefficients, including the intercept.
    #[must_use]
    pub fn coefficients(&self) -> usize {
        self.columns.len()
    }

    /// Column `j`; column 0 is the ones of the intercept.
    #[must_use]
    pub fn column(&self, j: usize) -> &[f64] {
        &self.columns[j]
    }

    /// The leverage of each row, from 0 to 1, in a fit with these weights and this `(X'WX)^-1`. It
    /// is kept below 1, at which a row is fitted exactly.
    pub(crate) fn leverages(&self, unscaled_cov: &[Vec<f64>], weights: &[f64]) -> Vec<f64> {
        const MAX: f64 = 0.99;
        let p = self.coefficients();
        let of_row = |i: usize| {
            let x = |j: usize| self.columns[j][i];
            let inner = |a: usize| (0..p).map(|b| unscaled_cov[a][b] * x(b)).sum::<f64>();
            (weights[i] * (0..p).map(|a| x(a) * inner(a)).sum::<f64>()).clamp(0.0, MAX)
        };
        (0..self.rows).map(of_row).collect()
    }

    /// The value of the fit in row `i`.
    #[must_use]
    pub fn fitted(&self, i: usize, coefficients: &[f64]) -> f64 {
        self.columns.iter().zip(coefficients).map(|(column, c)| column[i] * c).sum()
    }

    /// `y` minus the fit, row by row.
    #[must_use]
    pub fn residuals(&self, y: &[f64], coefficients: &[f64]) -> Vec<f64> {
        (0..self.rows).map(|i| y[i] - self.fitted(i, coefficients)).collect()
    }

    /// The same rows with one more regressor.
    pub(crate) fn with_column(&self, column: Vec<f64>) -> Design {
        let mut wider = self.clone();
        wider.columns.push(column);
        wider
    }

    /// The scale of each column: its largest absolute value, or 1 for a column of zeros.
    pub(crate) fn scales(&self) -> Vec<f64> {
        self.columns
            .iter()
            .map(|column| {
                let largest = column.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
                if largest > 0.0 { largest } else { 1.0 }
            })
            .collect()
    }

    /// The condition number of the design with columns scaled to unit length (Belsley, Kuh and
    /// Welsch 1980: above 30 the coefficients are hard to separate).
    #[must_use]
    pub fn condition_number(&self) -> f64 {
        let of_unit_length = |column: &Vec<f64>| {
            let length = dot(column, column).sqrt();
            let divisor = if length > 0.0 { length } else { 1.0 };
            column.iter().map(|v| v / divisor).collect()
        };
        let singular = singular_values(self.columns.iter().map(of_unit_length).collect());
        let largest = singular.iter().copied().fold(0.0, f64::max);
        let smallest = singular.iter().copied().fold(f64::INFINITY, f64::min);
        if smallest > 0.0 { largest / smallest } else { f64::INFINITY }
    }
}

/// A least-squares fit of any number of coefficients.
#[derive(Clone, Debug, Serialize)]
pub struct LinearFit {
    /// Intercept first, then in the order of the design's columns.
    pub coefficients: Vec<f64>,
    /// Their covariance under independent errors of equal variance (after weighting).
    pub cov: Vec<Vec<f64>>,
    /// `(X'WX)^-1`: the covariance before it is multiplied by the residual variance.
    #[serde(skip)]
    pub unscaled_cov: Vec<Vec<f64>>,
    /// Square root of the (weighted) residual sum of squares over the degrees of freedom.
    pub residual_sd: f64,
    /// Share of the (weighted) variance explained.
    pub r_squared: f64,
    /// Rows with a positive weight.
    pub n: usize,
    /// Rows minus coefficients.
    pub dof: usize,
    /// `y` minus the fit for every row, including those with weight zero.
    #[serde(skip)]
    pub residuals: Vec<f64>,
}

impl LinearFit {
    /// The standard error of coefficient `j` under independent errors.
    #[must_use]
    pub fn se(&self, j: usize) -> f64 {
        self.cov[j][j].max(0.0).sqrt()
    }
}

/// Least squares of `y` on the design. With weights, the sum of `w·r²` is minimised.
///
/// # Errors Lengths that differ, values not finite, negative weights, not more rows with positive
/// weight than coefficients, columns that do not determine the coefficients.
pub fn least_squares(
    design: &Design,
    y: &[f64],
    weights: Option<&[f64]>,
) -> Result<LinearFit, Unfit> {
    check_column(y, design.rows)?;
    let n = check_weights(weights, design.rows)?;
    let p = design.coefficients();
    if n <= p {
        return Err(Unfit::TooFew { needed: p + 1, found: n });
    }
    let solver = Solver::new(design, weights)?;
    Ok(solver.fit(design, y, weights, n))
}

/// Two-stage least squares, see [`two_stage`].
#[derive(Clone, Debug)]
pub struct TwoStage {
    /// Intercept first, then in the order of the regressors' columns.
    pub coefficients: Vec<f64>,
    /// `(X̂'WX̂)^-1`, with X̂ the regressors projected on the instruments.
    pub unscaled_cov: Vec<Vec<f64>>,
    /// `y` minus the fit at the measured regressors.
    pub residuals: Vec<f64>,
    /// X̂.
    pub projected: Design,
}

/// Two-stage least squares: the regressors are first fitted by the instruments, and then `y` by
/// those fits. It is for regressors that are correlated with the errors of `y`; the instruments are
/// not. Both designs include the intercept. A regressor that is also an instrument is unchanged.
///
/// # Errors
/// Those of [`least_squares`]; [`Unfit::Singular`] if the instruments do not separate the
/// regressors.
pub fn two_stage(
    instruments: &Design,
    regressors: &Design,
    y: &[f64],
    weights: Option<&[f64]>,
) -> Result<TwoStage, Unfit> {
    check_column(y, regressors.rows)?;
    check_column(instruments.column(0), regressors.rows)?;
    check_weights(weights, regressors.rows)?;
    let first = Solver::new(instruments, weights)?;
    let project = |column: &Vec<f64>| -> Vec<f64> {
        let coefficients = first.solve(column, weights);
        (0..column.len()).map(|i| instruments.fitted(i, &coefficients)).collect()
    };
    let columns = regressors.columns.iter().map(project).collect();
    let projected = Design { columns, rows: regressors.rows };
    let second = Solver::new(&projected, weights)?;
    let coefficients = second.solve(y, weights);
    Ok(TwoStage {
        residuals: regressors.residuals(y, &coefficients),
        unscaled_cov: second.unscaled_cov(),
        coefficients,
        projected,
    })
}

/// The factorised design, which is computed once and used for many responses. Because all responses
/// use the same factors, the fits of parts add up to the fit of their sum.
pub(crate) struct Solver {
    /// The columns of Q.
    q: Vec<Vec<f64>>,
    r_inverse: Vec<Vec<f64>>,
    scales: Vec<f64>,
}

impl Solver {
    /// A pivot this small relative to its column means that the columns are dependent, within
    /// rounding.
    const PIVOT_MIN: f64 = 1e-10;

    pub(crate) fn new(design: &Design, weights: Option<&[f64]>) -> Result<Solver, Unfit> {
        let (n, p) = (design.rows, design.coefficients());
        if n < p {
            return Err(Unfit::TooFew { needed: p, found: n });
        }
        let scales = design.scales();
        let scaled = |(column, scale): (&Vec<f64>, &f64)| -> Vec<f64> {
            (0..n).map(|i| root_weight(weights, i) * column[i] / scale).collect()
        };
        let columns: Vec<Vec<f64>> = design.columns.iter().zip(&scales).map(scaled).collect();
        let lengths: Vec<f64> = columns.iter().map(|column| dot(column, column).sqrt()).collect();
        let Factors { q, r } = factorised(columns);
        // A pivot over its column's length is the part that the earlier columns do not explain.
        let dependent = (0..p).any(|j| r[j][j] <= Self::PIVOT_MIN * lengths[j]);
        if dependent {
            return Err(Unfit::Singular);
        }
        let r_inverse = upper_inverse(&r).ok_or(Unfit::Singular)?;
        Ok(Solver { q, r_inverse, scales })
    }

    /// The coefficients for one response.
    pub(crate) fn solve(&self, y: &[f64], weights: Option<&[f64]>) -> Vec<f64> {
        let weighted: Vec<f64> =
            y.iter().enumerate().map(|(i, y)| root_weight(weights, i) * y).collect();
        let along: Vec<f64> = self.q.iter().map(|column| dot(column, &weighted)).collect();
        self.r_inverse
            .iter()
            .zip(&self.scales)
            .map(|(row, scale)| dot(row, &along) / scale)
            .collect()
    }

    /// For each row, what a response of one in that row and zero in the others adds to coefficient
    /// `j`.
    pub(crate) fn influence(&self, j: usize, weights: Option<&[f64]>) -> Vec<f64> {
        let of_row = |i: usize| -> f64 {
            let through = self.r_inverse[j].iter().zip(&self.q).map(|(r, column)| r * column[i]);
            through.sum::<f64>() * root_weight(weights, i) / self.scales[j]
        };
        (0..self.q[0].len()).map(of_row).collect()
    }

    /// `(X'WX)^-1`.
    pub(crate) fn unscaled_cov(&self) -> Vec<Vec<f64>> {
        let of_row = |(row, scale): (&Vec<f64>, &f64)| {
            let entry = |(other, by): (&Vec<f64>, &f64)| dot(row, other) / (scale * by);
            self.r_inverse.iter().zip(&self.scales).map(entry).collect()
        };
        self.r_inverse.iter().zip(&self.scales).map(of_row).collect()
    }

    pub(crate) fn fit(
        &self,
        design: &Design,
        y: &[f64],
        weights: Option<&[f64]>,
        n: usize,
    ) -> LinearFit {
        let coefficients = self.solve(y, weights);
        let residuals = design.residuals(y, &coefficients);
        let w = |i: usize| weights.map_or(1.0, |weights| weights[i]);
        let rows = design.rows;
        let dof = n - design.coefficients();
        let rss: f64 = (0..rows).map(|i| w(i) * residuals[i] * residuals[i]).sum();
        let total: f64 = (0..rows).map(w).sum();
        let centre = (0..rows).map(|i| w(i) * y[i]).sum::<f64>() / total;
        let tss: f64 = (0..rows).map(|i| w(i) * (y[i] - centre).powi(2)).sum();
        let variance = rss / dof as f64;
        let unscaled_cov = self.unscaled_cov();
        LinearFit {
            cov: scaled(&unscaled_cov, variance),
            coefficients,
            unscaled_cov,
            residual_sd: variance.sqrt(),
            r_squared: if tss > 0.0 { 1.0 - rss / tss } else { f64::NAN },
            n,
            dof,
            residuals,
        }
    }
}

/// The Newey–West covariance (1987) of estimates whose per-row scores are `score_i · x_i`:
/// `B (Σ_l k(l) Γ_l) B · n/(n−p)` with Bartlett's kernel up to `lags`. For least squares the
/// score is the residual (times its weight) and the bread `B` is `(X'WX)^-1`; for an M-estimator
/// the score is psi and the bread the inverse of `Σ psi' x x'`.
#[must_use]
pub fn hac_cov(design: &Design, scores: &[f64], bread: &[Vec<f64>], lags: usize) -> Vec<Vec<f64>> {
    let (n, p) = (design.rows, design.coefficients());
    let scales = design.scales();
    let moments: Vec<Vec<f64>> = (0..p)
        .map(|j| (0..n).map(|i| design.columns[j][i] / scales[j] * scores[i]).collect())
        .collect();
    let mut meat = vec![vec![0.0; p]; p];
    for lag in 0..=lags.min(n.saturating_sub(1)) {
        let kernel = 1.0 - lag as f64 / (lags as f64 + 1.0);
        for a in 0..p {
            for b in 0..p {
                let gamma: f64 =
                    moments[a][lag..].iter().zip(&moments[b]).map(|(u, v)| u * v).sum();
                meat[a][b] += kernel * gamma;
                if lag > 0 {
                    meat[b][a] += kernel * gamma;
                }
            }
        }
    }
    let of_row = |i: usize| (0..p).map(|j| bread[i][j] * scales[i] * scales[j]).collect();
    let scaled_bread: Vec<Vec<f64>> = (0..p).map(of_row).collect();
    let correction = if n > p { n as f64 / (n - p) as f64 } else { 1.0 };
    let sandwich = product(&product(&scaled_bread, &meat), &scaled_bread);
    let entry = |i: usize, j: usize| sandwich[i][j] * correction / (scales[i] * scales[j]);
    (0..p).map(|i| (0..p).map(|j| entry(i, j)).collect()).collect()
}

/// The number of lags of the covariance: the larger of Newey and West's rule of thumb
/// (`4 (n/100)^(2/9)`) and Andrews' plug-in for an AR(1) (1991), at most a quarter of the rows.
#[must_use]
pub fn hac_lags(residuals: &[f64]) -> usize {
    let n = residuals.len() as f64;
    let rule = (4.0 * (n / 100.0).powf(2.0 / 9.0)).floor();
    let rho = lag_one_correlation(residuals).clamp(-0.97, 0.97);
    let alpha = 4.0 * rho * rho / (1.0 - rho * rho).powi(2);
    let plug_in = if rho > 0.0 { (1.1447 * (alpha * n).cbrt()).floor() } else { 0.0 };
    rule.max(plug_in).min((n / 4.0).floor()).max(0.0) as usize
}

/// The lag-one autocorrelation of a series.
pub(crate) fn lag_one_correlation(series: &[f64]) -> f64 {
    let mean = crate::dist::mean(series);
    let power: f64 = series.iter().map(|v| (v - mean).powi(2)).sum();
    let cross: f64 = series.windows(2).map(|w| (w[0] - mean) * (w[1] - mean)).sum();
    if power > 0.0 { cross / power } else { 0.0 }
}

pub(crate) fn scaled(matrix: &[Vec<f64>], factor: f64) -> Vec<Vec<f64>> {
    matrix.iter().map(|row| row.iter().map(|v| v * factor).collect()).collect()
}

pub(crate) fn check_column(column: &[f64], rows: usize) -> Result<(), Unfit> {
    if column.len() != rows {
        return Err(Unfit::LengthsDiffer { expected: rows, found: column.len() });
    }
    if column.iter().any(|v| !v.is_finite()) {
        return Err(Unfit::NotFinite);
    }
    Ok(())
}

/// Checks the level of an interval, which is between 0 and 1.
pub(crate) fn check_level(level: f64) -> Result<(), Unfit> {
    if level > 0.0 && level < 1.0 {
        return Ok(());
    }
    Err(Unfit::NotPositive { what: "the level, or 1 minus the level," })
}

/// The number of rows with positive weight.
pub(crate) fn check_weights(weights: Option<&[f64]>, rows: usize) -> Result<usize, Unfit> {
    let Some(weights) = weights else { return Ok(rows) };
    check_column(weights, rows)?;
    if weights.iter().any(|&w| w < 0.0) {
        return Err(Unfit::NotPositive { what: "a weight" });
    }
    Ok(weights.iter().filter(|&&w| w > 0.0).count())
}

fn root_weight(weights: Option<&[f64]>, i: usize) -> f64 {
    weights.map_or(1.0, |weights| weights[i].sqrt())
}
