//! Small systems of equations that are solved many times, in the search of the robust fit and in
//! the bootstrap. Callers scale their columns to a largest value of one, so that the squared
//! condition number of normal equations does no harm.

use crate::linear::Design;

/// A pivot this small relative to its diagonal means that the rows do not determine the fit.
const PIVOT_MIN: f64 = 1e-11;

/// Normal equations of a least-squares fit, summed row by row.
pub(crate) struct Normal {
    p: usize,
    matrix: Vec<f64>,
    right: Vec<f64>,
}

impl Normal {
    pub(crate) fn new(p: usize) -> Normal {
        Normal { p, matrix: vec![0.0; p * p], right: vec![0.0; p] }
    }

    pub(crate) fn add(&mut self, row: &[f64], y: f64, weight: f64) {
        for a in 0..self.p {
            let scaled = weight * row[a];
            self.right[a] += scaled * y;
            for (b, value) in row[..=a].iter().enumerate() {
                self.matrix[a * self.p + b] += scaled * value;
            }
        }
    }

    pub(crate) fn solve(mut self) -> Option<Vec<f64>> {
        let p = self.p;
        cholesky(&mut self.matrix, p)?;
        let mut x = self.right;
        forward(&self.matrix, p, &mut x);
        for i in (0..p).rev() {
            for k in i + 1..p {
                x[i] -= self.matrix[k * p + i] * x[k];
            }
            x[i] /= self.matrix[i * p + i];
        }
        Some(x)
    }
}

/// The sums that a fit with instruments needs, `Z'WZ`, `Z'WX` and `Z'Wy`, as running totals over
/// the rows. The sums of a block of rows are the difference of two totals, so that the cost of a
/// resample depends on its blocks and not on its rows. If instruments and regressors are the same,
/// the fit is least squares.
pub(crate) struct Moments {
    /// `rows + 1` running totals of `width` sums.
    totals: Vec<f64>,
    width: usize,
    rows: usize,
    instruments: usize,
    regressors: usize,
    scales: Vec<f64>,
}

impl Moments {
    pub(crate) fn new(
        instruments: &Design,
        regressors: &Design,
        y: &[f64],
        weights: Option<&[f64]>,
    ) -> Moments {
        let (rows, z, x) = (y.len(), instruments.coefficients(), regressors.coefficients());
        let (z_scales, scales) = (instruments.scales(), regressors.scales());
        let width = z * z + z * x + z;
        let mut totals = vec![0.0; width];
        totals.reserve_exact(rows * width);
        let mut right = vec![0.0; z + x + 1];
        for i in 0..rows {
            for (j, scale) in z_scales.iter().enumerate() {
                right[j] = instruments.column(j)[i] / scale;
            }
            for (j, scale) in scales.iter().enumerate() {
                right[z + j] = regressors.column(j)[i] / scale;
            }
            right[z + x] = y[i];
            let weight = weights.map_or(1.0, |weights| weights[i]);
            for a in 0..z {
                for value in &right {
                    let before = totals[totals.len() - width];
                    totals.push(before + weight * right[a] * value);
                }
            }
        }
        Moments { totals, width, rows, instruments: z, regressors: x, scales }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The fit over blocks, given by first row and length on a circle of rows; `None` if they do
    /// not determine a fit.
    pub(crate) fn fit(&self, blocks: &[(usize, usize)]) -> Option<Vec<f64>> {
        let mut sums = vec![0.0; self.width];
        let mut add = |from: usize, to: usize| {
            let (low, high) = (self.total(from), self.total(to));
            for (sum, (low, high)) in sums.iter_mut().zip(low.iter().zip(high)) {
                *sum += high - low;
            }
        };
        for &(start, length) in blocks {
            let end = start + length;
            add(start, end.min(self.rows));
            if end > self.rows {
                add(0, end - self.rows);
            }
        }
        self.solve(&sums)
    }

    fn total(&self, row: usize) -> &[f64] {
        &self.totals[row * self.width..(row + 1) * self.width]
    }

    /// With `Z'WZ = LL'`, the second stage is the least-squares fit of `L⁻¹Z'Wy` on `L⁻¹Z'WX`.
    fn solve(&self, sums: &[f64]) -> Option<Vec<f64>> {
        let (z, x) = (self.instruments, self.regressors);
        let stride = z + x + 1;
        let mut factor: Vec<f64> = (0..z * z).map(|at| sums[at / z * stride + at % z]).collect();
        cholesky(&mut factor, z)?;
        let columns: Vec<Vec<f64>> = (z..stride)
            .map(|j| {
                let mut column: Vec<f64> = (0..z).map(|a| sums[a * stride + j]).collect();
                forward(&factor, z, &mut column);
                column
            })
            .collect();
        let mut second = Normal::new(x);
        let mut row = vec![0.0; x];
        for a in 0..z {
            row.iter_mut().zip(&columns).for_each(|(value, column)| *value = column[a]);
            second.add(&row, columns[x][a], 1.0);
        }
        let solved = second.solve()?;
        Some(solved.iter().zip(&self.scales).map(|(c, s)| c / s).collect())
    }
}

/// Factors the lower triangle in place into `L` of `LL'`.
fn cholesky(matrix: &mut [f64], p: usize) -> Option<()> {
    for j in 0..p {
        let diagonal = matrix[j * p + j];
        let pivot = diagonal - (0..j).map(|k| matrix[j * p + k].powi(2)).sum::<f64>();
        if pivot.is_nan() || pivot <= PIVOT_MIN * diagonal {
            return None;
        }
        let root = pivot.sqrt();
        matrix[j * p + j] = root;
        for i in j + 1..p {
            let explained: f64 = (0..j).map(|k| matrix[i * p + k] * matrix[j * p + k]).sum();
            matrix[i * p + j] = (matrix[i * p + j] - explained) / root;
        }
    }
    Some(())
}

/// Solves `L·v = right` in place.
fn forward(lower: &[f64], p: usize, right: &mut [f64]) {
    for i in 0..p {
        for k in 0..i {
            right[i] -= lower[i * p + k] * right[k];
        }
        right[i] /= lower[i * p + i];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Rng, least_squares};

    #[test]
    fn moments_of_all_rows_give_least_squares_for_any_cut_of_the_circle() {
        let mut rng = Rng::new(3);
        let x: Vec<f64> = (0..40).map(|i| 1e4 + 900.0 * f64::from(i)).collect();
        let y: Vec<f64> = x.iter().map(|x| 0.1 + 2e-5 * x + 0.01 * rng.normal()).collect();
        let design = Design::new(&[&x]).unwrap();
        let weights: Vec<f64> = (0..40).map(|_| rng.uniform()).collect();
        let moments = Moments::new(&design, &design, &y, Some(&weights));
        let whole = least_squares(&design, &y, Some(&weights)).unwrap().coefficients;
        for blocks in [vec![(0, 40)], vec![(17, 40)], vec![(39, 2), (1, 20), (21, 18)]] {
            let fit = moments.fit(&blocks).unwrap();
            for (ours, theirs) in fit.iter().zip(&whole) {
                assert!((ours / theirs - 1.0).abs() < 1e-9, "{blocks:?}: {fit:?} and {whole:?}");
            }
        }
        assert!(moments.fit(&[(5, 1), (5, 1)]).is_none());
    }
}
