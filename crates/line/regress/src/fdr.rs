//! Correction for many tests at once: of a hundred unchanged procedures, five have p < 0.05.

/// The q-values of Benjamini and Hochberg (1995), in the order of the p-values: among all tests
/// with q at or below 0.05, expect about one in twenty to be a false positive. A p that is NaN
/// counts as 1, because a test that could not be computed gives no evidence.
#[must_use]
pub fn benjamini_hochberg(p_values: &[f64]) -> Vec<f64> {
    let n = p_values.len();
    let p = |i: usize| if p_values[i].is_nan() { 1.0 } else { p_values[i].clamp(0.0, 1.0) };
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| p(b).total_cmp(&p(a)));
    let mut q_values = vec![1.0; n];
    let mut least = 1.0_f64;
    for (larger, &at) in order.iter().enumerate() {
        least = least.min(p(at) * n as f64 / (n - larger) as f64);
        q_values[at] = least;
    }
    q_values
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of statsmodels' `multipletests(method="fdr_bh")`, also checked by hand.
    #[test]
    fn q_values_are_those_of_the_step_up_procedure() {
        let p = [0.01, 0.04, 0.03, 0.005, 0.5];
        let expected = [0.025, 0.05, 0.05, 0.025, 0.5];
        for (ours, theirs) in benjamini_hochberg(&p).iter().zip(expected) {
            assert!((ours - theirs).abs() < 1e-12, "{ours} and {theirs}");
        }
    }

    #[test]
    fn q_values_are_between_p_and_one_and_keep_the_order_of_p() {
        let p = [0.9, f64::NAN, 0.001, 0.001, 0.2];
        let q = benjamini_hochberg(&p);
        assert!(q.iter().all(|q| (0.0..=1.0).contains(q)));
        assert_eq!(q[2], q[3]);
        assert!(q[2] < q[4] && q[4] < q[0] && q[1] == 1.0);
        assert!(benjamini_hochberg(&[]).is_empty());
    }
}
