//! Sums of many intervals, by rate: what is needed to fit a line without the intervals.
//!
//! Intervals with nearly the same rate are in one bin. A bin has the sums of its intervals' rates,
//! costs and wakes, and of their products. Sums of disjoint intervals add up, so that a database
//! can compute them where the data is. Regressions on the rate need nothing but these sums.
//!
//! Neighbouring intervals resemble each other, so errors cannot be computed as if they were
//! independent. So the sums are first taken over a window of time. Of each window, the products of
//! its sums over all bins are added up too (`window_xx` and so on), in the bin of the window's mean
//! rate. With them the errors are those of clusters (Liang and Zeger 1986), of which each window is
//! one. See [`close_window`].

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Bins in which the rate doubles.
pub const BINS_PER_OCTAVE: f64 = 16.0;

/// The bin of rates below one request in 16 s, and of no requests.
pub const BIN_LOWEST: i32 = -64;

/// The bin of a rate, requests/s: bin `k` has the rates from `2^(k/16)` up to `2^((k+1)/16)`.
#[must_use]
pub fn bin_of(rate: f64) -> i32 {
    let bin = (BINS_PER_OCTAVE * rate.max(0.0).log2()).floor();
    if bin > f64::from(BIN_LOWEST) { bin as i32 } else { BIN_LOWEST }
}

/// Sums over intervals. x is an interval's rate (requests/s), c its cost (CPU seconds per second of
/// a resource), w its wakes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Number of intervals.
    pub n: f64,
    /// Sum of x.
    pub x: f64,
    /// Sum of c.
    pub c: f64,
    /// Sum of w.
    pub w: f64,
    /// Sum of x².
    pub xx: f64,
    /// Sum of x·c.
    pub xc: f64,
    /// Sum of c².
    pub cc: f64,
    /// Sum of x·w.
    pub xw: f64,
    /// Sum of c·w.
    pub cw: f64,
    /// Sum of w².
    pub ww: f64,
    /// Number of windows with their mean rate in the bin. Their intervals may be in other bins.
    pub windows: f64,
    /// Sum over the windows of the square of the window's sum of x.
    pub window_xx: f64,
    /// Sum over the windows of the product of the window's sums of x and c.
    pub window_xc: f64,
    /// Sum over the windows of the square of the window's sum of c.
    pub window_cc: f64,
}

impl Bin {
    /// An interval, before it is part of a window.
    #[must_use]
    pub fn of(x: f64, c: f64, w: f64) -> Bin {
        Bin {
            n: 1.0,
            x,
            c,
            w,
            xx: x * x,
            xc: x * c,
            cc: c * c,
            xw: x * w,
            cw: c * w,
            ww: w * w,
            ..Bin::default()
        }
    }

    /// The same sums as one window.
    #[must_use]
    pub fn as_window(self) -> Bin {
        Bin {
            windows: 1.0,
            window_xx: self.x * self.x,
            window_xc: self.x * self.c,
            window_cc: self.c * self.c,
            ..self
        }
    }
}

/// Adds the products of a window's sums, once all of its intervals are in the bins.
pub fn close_window(bins: &mut BTreeMap<i32, Bin>) {
    let all = bins.values().fold(Bin::default(), |all, bin| all + *bin);
    if all.n > 0.0 {
        let Bin { windows, window_xx, window_xc, window_cc, .. } = all.as_window();
        let mean = bins.entry(bin_of(all.x / all.n)).or_default();
        *mean = Bin { windows, window_xx, window_xc, window_cc, ..*mean };
    }
}

impl std::ops::Add for Bin {
    type Output = Bin;

    fn add(self, other: Bin) -> Bin {
        Bin {
            n: self.n + other.n,
            x: self.x + other.x,
            c: self.c + other.c,
            w: self.w + other.w,
            xx: self.xx + other.xx,
            xc: self.xc + other.xc,
            cc: self.cc + other.cc,
            xw: self.xw + other.xw,
            cw: self.cw + other.cw,
            ww: self.ww + other.ww,
            windows: self.windows + other.windows,
            window_xx: self.window_xx + other.window_xx,
            window_xc: self.window_xc + other.window_xc,
            window_cc: self.window_cc + other.window_cc,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_in_the_bin_between_its_ends() {
        assert_eq!((bin_of(1.0), bin_of(2.0), bin_of(1.999)), (0, 16, 15));
        assert_eq!(
            (bin_of(0.0), bin_of(f64::NAN), bin_of(1e-9)),
            (BIN_LOWEST, BIN_LOWEST, BIN_LOWEST)
        );
        for bin in -60..400 {
            let low = 2_f64.powf(f64::from(bin) / BINS_PER_OCTAVE);
            assert_eq!(bin_of(low * 1.001), bin);
        }
    }

    #[test]
    fn a_window_is_in_the_bin_of_its_mean_rate() {
        let mut bins = BTreeMap::new();
        for (x, c) in [(10.0, 0.1), (100.0, 0.3), (31.0, 0.2)] {
            bins.insert(bin_of(x), Bin::of(x, c, 0.0));
        }
        close_window(&mut bins);
        let mean = bins[&bin_of(47.0)];
        assert_eq!((mean.n, mean.windows, mean.window_xx), (0.0, 1.0, 141.0 * 141.0));
        assert_eq!(bins.values().map(|bin| bin.windows).sum::<f64>(), 1.0);
        close_window(&mut BTreeMap::new());
    }

    #[test]
    fn windows_add_up() {
        let first = (Bin::of(1.0, 2.0, 3.0) + Bin::of(4.0, 5.0, 6.0)).as_window();
        let both = first + Bin::of(7.0, 8.0, 9.0).as_window();
        assert_eq!((both.n, both.x, both.xc, both.windows), (3.0, 12.0, 78.0, 2.0));
        assert_eq!((both.window_xx, both.window_xc, both.window_cc), (74.0, 91.0, 113.0));
    }
}
