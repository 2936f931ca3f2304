//! Small dense matrices: as much linear algebra as the fits need. A matrix is a list of its rows,
//! or of its columns where the text says so. It has at most a few columns.

/// Rotations of all pairs of columns. A few make them orthogonal within rounding.
const SWEEPS_MAX: usize = 40;

/// The factors of a matrix: `Q R`.
pub(crate) struct Factors {
    /// The columns of Q: orthogonal to each other, and of length one. A column that depends on
    /// earlier columns exactly is zero.
    pub(crate) q: Vec<Vec<f64>>,
    /// R, which is upper triangular. Its diagonal is what the earlier columns do not explain.
    pub(crate) r: Vec<Vec<f64>>,
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Factorises the matrix with these columns, by the modified Gram–Schmidt process. It is done twice
/// for each column, which makes Q orthogonal within rounding (Giraud and others 2005).
pub(crate) fn factorised(columns: Vec<Vec<f64>>) -> Factors {
    let p = columns.len();
    let mut r = vec![vec![0.0; p]; p];
    let mut q: Vec<Vec<f64>> = Vec::with_capacity(p);
    for (j, mut column) in columns.into_iter().enumerate() {
        for (k, earlier) in q.iter().enumerate().chain(q.iter().enumerate()) {
            let along = dot(earlier, &column);
            r[k][j] += along;
            column.iter_mut().zip(earlier).for_each(|(value, of)| *value -= along * of);
        }
        r[j][j] = dot(&column, &column).sqrt();
        if r[j][j] > 0.0 {
            column.iter_mut().for_each(|value| *value /= r[j][j]);
        }
        q.push(column);
    }
    Factors { q, r }
}

/// The inverse of an upper triangular matrix, if it has one.
pub(crate) fn upper_inverse(r: &[Vec<f64>]) -> Option<Vec<Vec<f64>>> {
    let p = r.len();
    let mut inverse = vec![vec![0.0; p]; p];
    for (i, of_r) in r.iter().enumerate().rev() {
        let mut row = vec![0.0; p];
        row[i] = 1.0;
        for (below, by) in inverse.iter().zip(of_r).skip(i + 1) {
            row.iter_mut().zip(below).for_each(|(value, of)| *value -= by * of);
        }
        row.iter_mut().for_each(|value| *value /= of_r[i]);
        inverse[i] = row;
    }
    inverse.iter().flatten().all(|value| value.is_finite()).then_some(inverse)
}

/// The inverse of a symmetric matrix, if it has one.
pub(crate) fn symmetric_inverse(matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    // Its rows are its columns, and the columns of Q are the rows of its inverse.
    let Factors { q, r } = factorised(matrix);
    Some(product(&upper_inverse(&r)?, &q))
}

pub(crate) fn product(a: &[Vec<f64>], b: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let columns = b.first().map_or(0, Vec::len);
    let entry = |row: &[f64], j: usize| row.iter().zip(b).map(|(value, of)| value * of[j]).sum();
    a.iter().map(|row| (0..columns).map(|j| entry(row, j)).collect()).collect()
}

/// The singular values of the matrix with these columns: their lengths, after rotations that make
/// them orthogonal (Hestenes 1958).
pub(crate) fn singular_values(mut columns: Vec<Vec<f64>>) -> Vec<f64> {
    for _ in 0..SWEEPS_MAX {
        let mut is_orthogonal = true;
        for b in 1..columns.len() {
            let (before, after) = columns.split_at_mut(b);
            for a in before {
                is_orthogonal &= !rotated(a, &mut after[0]);
            }
        }
        if is_orthogonal {
            break;
        }
    }
    columns.iter().map(|column| dot(column, column).sqrt()).collect()
}

/// Rotates two columns until they are orthogonal. Returns whether they were not.
fn rotated(a: &mut [f64], b: &mut [f64]) -> bool {
    let (of_a, of_b, of_both) = (dot(a, a), dot(b, b), dot(a, b));
    if of_both.abs() <= f64::EPSILON * (of_a * of_b).sqrt() {
        return false;
    }
    let zeta = (of_b - of_a) / (2.0 * of_both);
    let tangent = zeta.signum() / (zeta.abs() + zeta.hypot(1.0));
    let cosine = 1.0 / tangent.hypot(1.0);
    for (x, y) in a.iter_mut().zip(b) {
        (*x, *y) = (cosine * (*x - tangent * *y), cosine * (tangent * *x + *y));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-12 * (1.0 + a.abs()), "{a} {b}");
    }

    /// Columns that are nearly dependent: Hilbert's matrix with another row.
    fn hilbert(p: usize) -> Vec<Vec<f64>> {
        (0..p).map(|j| (0..=p).map(|i| 1.0 / (i + j + 1) as f64).collect()).collect()
    }

    #[test]
    fn the_factors_are_orthogonal_and_give_the_matrix() {
        let columns = hilbert(6);
        let Factors { q, r } = factorised(columns.clone());
        for a in 0..6 {
            for b in 0..6 {
                close(dot(&q[a], &q[b]), if a == b { 1.0 } else { 0.0 });
            }
            for i in 0..7 {
                close((0..=a).map(|k| q[k][i] * r[k][a]).sum(), columns[a][i]);
            }
        }
    }

    #[test]
    fn an_inverse_times_its_matrix_is_one() {
        let matrix = vec![vec![4.0, 1.0, 0.5], vec![1.0, 3.0, -1.0], vec![0.5, -1.0, 2.0]];
        let one = product(&symmetric_inverse(matrix.clone()).unwrap(), &matrix);
        for (i, row) in one.iter().enumerate() {
            for (j, value) in row.iter().enumerate() {
                close(*value, if i == j { 1.0 } else { 0.0 });
            }
        }
        assert!(symmetric_inverse(vec![vec![1.0, 0.0], vec![0.0, 0.0]]).is_none());
    }

    /// The singular values of a matrix with one rotation are known: here 3 and 1.
    #[test]
    fn singular_values_are_those_of_the_diagonal() {
        let (c, s) = (0.8, 0.6);
        let mut values = singular_values(vec![vec![3.0 * c, -s], vec![3.0 * s, c]]);
        values.sort_by(f64::total_cmp);
        close(values[0], 1.0);
        close(values[1], 3.0);
        assert_eq!(singular_values(vec![vec![2.0, 0.0], vec![0.0, 0.0]]), [2.0, 0.0]);
    }
}
