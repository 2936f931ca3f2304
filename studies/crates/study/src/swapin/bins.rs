//! The bins of the plot of 1997, their medians, and sizes of objects that fill them evenly.

use std::collections::BTreeMap;

use regress::Rng;
use serde::Serialize;

const KIB: u64 = 1024;
/// Below this size a bin is 1 KiB wide.
const FINE_KIB_MAX: u64 = 16;
/// Above it a bin is this wide.
const COARSE_KIB: u64 = 2;
/// The smallest object.
const SIZE_BYTES_MIN: u64 = 512;

/// One bin of the plot: sizes from `low_kib` up to, but not including, `high_kib`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Bin {
    /// Lower end, in KiB.
    pub(super) low_kib: u64,
    /// Upper end, in KiB.
    pub(super) high_kib: u64,
    /// Number of samples.
    pub(super) n: usize,
    /// Median delay of the first block, in microseconds.
    pub(super) first_us: f64,
    /// Median delay of the whole object, in microseconds.
    pub(super) total_us: f64,
}

/// The bin of a size: 1 KiB wide below 16 KiB, 2 KiB above.
pub(super) fn bin_of(size_bytes: u64) -> (u64, u64) {
    let kib = size_bytes / KIB;
    if kib < FINE_KIB_MAX {
        return (kib, kib + 1);
    }
    let low = kib - kib % COARSE_KIB;
    (low, low + COARSE_KIB)
}

/// All bins up to a size.
fn bins_up_to(size_kib_max: u64) -> Vec<(u64, u64)> {
    let mut bins = Vec::new();
    let mut low = 0;
    while low < size_kib_max {
        let bin = bin_of(low * KIB);
        bins.push(bin);
        low = bin.1;
    }
    bins
}

/// Sizes of objects, spread evenly over the bins and random within a bin, in ascending order.
pub(super) fn sizes(objects: usize, size_kib_max: u64, rng: &mut Rng) -> Vec<u64> {
    let bins = bins_up_to(size_kib_max);
    (0..objects)
        .map(|object| {
            let at = (object as f64 + rng.uniform()) / objects as f64 * bins.len() as f64;
            let (low, high) = bins[(at as usize).min(bins.len() - 1)];
            let within = at.fract() * ((high - low) * KIB) as f64;
            (low * KIB + within as u64).max(SIZE_BYTES_MIN)
        })
        .collect()
}

/// Medians by bin of samples (size in bytes, first, total). Empty bins are left out.
pub(super) fn binned(samples: &[(u64, f64, f64)]) -> Vec<Bin> {
    let mut of_bin: BTreeMap<(u64, u64), Vec<(f64, f64)>> = BTreeMap::new();
    for (size, first, total) in samples {
        of_bin.entry(bin_of(*size)).or_default().push((*first, *total));
    }
    of_bin
        .into_iter()
        .map(|((low_kib, high_kib), delays)| Bin {
            low_kib,
            high_kib,
            n: delays.len(),
            first_us: median(delays.iter().map(|delay| delay.0)),
            total_us: median(delays.iter().map(|delay| delay.1)),
        })
        .collect()
}

/// The median; of an even number of values the mean of the middle two; NaN without values.
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_one_kib_below_sixteen_and_two_above() {
        assert_eq!(bin_of(0), (0, 1));
        assert_eq!(bin_of(1023), (0, 1));
        assert_eq!(bin_of(1024), (1, 2));
        assert_eq!(bin_of(16 * 1024 - 1), (15, 16));
        assert_eq!(bin_of(16 * 1024), (16, 18));
        assert_eq!(bin_of(17 * 1024), (16, 18));
        assert_eq!(bin_of(18 * 1024 - 1), (16, 18));
        assert_eq!(bin_of(18 * 1024), (18, 20));
        assert_eq!(bins_up_to(32).len(), 16 + 8);
        assert_eq!(bins_up_to(128).last(), Some(&(126, 128)));
    }

    #[test]
    fn a_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 1000.0]), 3.0);
        assert!(median([]).is_nan());
    }

    #[test]
    fn each_bin_has_its_own_median() {
        let samples = [(100, 1.0, 9.0), (200, 3.0, 5.0), (900, 2.0, 7.0), (17_000, 8.0, 8.5)];
        let bins = binned(&samples);
        let fine = Bin { low_kib: 0, high_kib: 1, n: 3, first_us: 2.0, total_us: 7.0 };
        let coarse = Bin { low_kib: 16, high_kib: 18, n: 1, first_us: 8.0, total_us: 8.5 };
        assert_eq!(bins, [fine, coarse]);
    }

    #[test]
    fn objects_fill_all_bins_evenly() {
        let sizes = sizes(240, 32, &mut Rng::new(1));
        let samples: Vec<_> = sizes.iter().map(|size| (*size, 0.0, 0.0)).collect();
        let bins = binned(&samples);
        assert_eq!(bins.len(), 24);
        assert!(bins.iter().all(|bin| bin.n == 10), "{bins:?}");
        assert!(sizes.iter().all(|size| (512..32 * 1024).contains(size)));
    }
}
