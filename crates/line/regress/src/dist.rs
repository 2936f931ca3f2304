//! The distributions that the fits need, and medians. A thin layer over `statrs` that handles its
//! corner cases in one place.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// The quantile of Student's t at probability `p` (0 < p < 1) with `dof` degrees of freedom; NaN if
/// it is undefined.
#[must_use]
pub fn student_t_quantile(p: f64, dof: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, dof) {
        Ok(t) if p > 0.0 && p < 1.0 => polish(&t, t.inverse_cdf(p), p),
        _ => f64::NAN,
    }
}

/// The two-sided probability of a Student's t at least as far from zero as `t`.
#[must_use]
pub fn student_t_two_sided_p(t: f64, dof: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, dof) {
        Ok(dist) if t.is_finite() => 2.0 * dist.sf(t.abs()),
        Ok(_) if t.is_infinite() => 0.0,
        _ => f64::NAN,
    }
}

/// The two-sided critical value: `|t|` above it has probability `1 - level`.
pub(crate) fn t_critical(level: f64, dof: f64) -> f64 {
    student_t_quantile(0.5 + level / 2.0, dof)
}

/// The one-sided probability of a t at least as large.
pub(crate) fn t_upper_p(t: f64, dof: f64) -> f64 {
    let half = student_t_two_sided_p(t, dof) / 2.0;
    if t >= 0.0 { half } else { 1.0 - half }
}

/// Two Newton steps: the library's inverse is accurate to about 1e-9, and the fixtures need more.
fn polish(t: &StudentsT, start: f64, p: f64) -> f64 {
    use statrs::distribution::Continuous;
    let mut q = start;
    for _ in 0..2 {
        let density = t.pdf(q);
        if density > 0.0 {
            q -= (t.cdf(q) - p) / density;
        }
    }
    q
}

/// The median; NaN of an empty list. Reorders its argument.
pub fn median(values: &mut [f64]) -> f64 {
    let n = values.len();
    if n == 0 {
        return f64::NAN;
    }
    let (below, &mut mid, _) = values.select_nth_unstable_by(n / 2, f64::total_cmp);
    if n % 2 == 1 {
        return mid;
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    0.5 * (lower + mid)
}

/// The median of values with weights; NaN of an empty list.
pub(crate) fn weighted_median(mut values: Vec<(f64, f64)>) -> f64 {
    if values.windows(2).all(|pair| pair[0].1 == pair[1].1) {
        return median(&mut values.iter().map(|(value, _)| *value).collect::<Vec<f64>>());
    }
    values.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
    let half = 0.5 * values.iter().map(|(_, weight)| weight).sum::<f64>();
    let mut below = 0.0;
    for (value, weight) in values {
        below += weight;
        if below >= half {
            return value;
        }
    }
    f64::NAN
}

/// The quantile of sorted values by linear interpolation (type 7, the default of R and numpy).
pub(crate) fn quantile_sorted(sorted: &[f64], p: f64) -> f64 {
    if sorted.is_empty() {
        return f64::NAN;
    }
    let position = p.clamp(0.0, 1.0) * (sorted.len() - 1) as f64;
    let low = position.floor() as usize;
    let high = (low + 1).min(sorted.len() - 1);
    sorted[low] + (position - low as f64) * (sorted[high] - sorted[low])
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_a_weight_counts_so_many_times() {
        assert_eq!(weighted_median(vec![(3.0, 1.0), (1.0, 1.0), (2.0, 1.0), (9.0, 1.0)]), 2.5);
        assert_eq!(weighted_median(vec![(9.0, 1.0), (5.0, 6.0), (1.0, 2.0), (2.0, 1.0)]), 5.0);
        assert!(weighted_median(Vec::new()).is_nan());
    }
}
