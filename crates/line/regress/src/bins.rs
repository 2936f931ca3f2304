//! Sums of many intervals, by rate: what is needed to fit a line without the intervals.
//!
//! Intervals with nearly the same rate are in one bin. A bin has the sums of its intervals' rates,
//! costs and wakes, and of their products. Sums of disjoint intervals add up, so that a database
//! can compute them where the data is. Regressions on the rate need nothing but these sums.
//!
//! **Lengths.** Each second has the same weight: an interval counts with its length. Otherwise an
//! hour of intervals of 100 ms would outweigh a day of intervals of 10 s.
//!
//! **Neighbouring intervals** resemble each other, so errors cannot be computed as if they were
//! independent. Two kinds of sums show how much neighbours resemble each other. First, the
//! differences of neighbours give the correlation of residuals at lag one (von Neumann 1941),
//! however short the data are. Second, the sums are taken over windows of time. For each window,
//! the products of the window's sums over all bins are added up too (`window_xx` and so on), in the
//! bin of the window's mean rate. From these products the errors are computed with each window as a
//! cluster (Liang and Zeger 1986). See [`close_window`].

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

macro_rules! sums {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Sums over intervals. s is an interval's length (seconds), x its rate (requests/s), c its
        /// cost (CPU seconds per second of a resource), w its wakes per second.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
        pub struct Bin {
            $($(#[$doc])* pub $name: f64,)+
        }

        impl Bin {
            /// The names of the sums.
            pub const NAMES: [&str; [$(stringify!($name)),+].len()] = [$(stringify!($name)),+];

            /// The sums, in the order of their names.
            #[must_use]
            pub fn values(&self) -> [f64; Bin::NAMES.len()] {
                [$(self.$name),+]
            }
        }

        impl From<[f64; Bin::NAMES.len()]> for Bin {
            fn from([$($name),+]: [f64; Bin::NAMES.len()]) -> Bin {
                Bin { $($name),+ }
            }
        }
    };
}

sums! {
    /// Number of intervals.
    n,
    /// Sum of s.
    s,
    /// Sum of s².
    ss,
    /// Sum of s·x: the requests.
    x,
    /// Sum of s·c: the CPU seconds.
    c,
    /// Sum of s·w.
    w,
    /// Sum of s·x².
    xx,
    /// Sum of s·x·c.
    xc,
    /// Sum of s·c².
    cc,
    /// Sum of s·x·w.
    xw,
    /// Sum of s·c·w.
    cw,
    /// Sum of s·w².
    ww,
    /// Sum of the mean length of two neighbouring intervals of a window, over all such pairs. A
    /// pair is in the bin of its second interval.
    pairs,
    /// The same of the square of the difference of x.
    dxx,
    /// Of the product of the differences of x and c.
    dxc,
    /// Of the square of the difference of c.
    dcc,
    /// Of the product of the differences of x and w.
    dxw,
    /// Of the product of the differences of c and w.
    dcw,
    /// Of the square of the difference of w.
    dww,
    /// Number of windows with their mean rate in the bin. Their intervals may be in other bins.
    windows,
    /// Sum over the windows of the window's sum of s.
    window_s,
    /// Sum over the windows of the square of it.
    window_ss,
    /// Sum over the windows of the product of the window's sums of s and s·x.
    window_sx,
    /// Of s and s·c.
    window_sc,
    /// Sum over the windows of the square of the window's sum of s·x.
    window_xx,
    /// Sum over the windows of the product of the window's sums of s·x and s·c.
    window_xc,
    /// Sum over the windows of the square of the window's sum of s·c.
    window_cc,
}

impl Bin {
    /// An interval of a second, before it is part of a window.
    #[must_use]
    pub fn of(x: f64, c: f64, w: f64) -> Bin {
        Bin {
            n: 1.0,
            s: 1.0,
            ss: 1.0,
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

    /// Two neighbouring intervals of a second as a pair. Their own sums are not in it.
    #[must_use]
    pub fn pair(one: &Bin, other: &Bin) -> Bin {
        let [x, c, w] = [other.x - one.x, other.c - one.c, other.w - one.w];
        Bin {
            pairs: 1.0,
            dxx: x * x,
            dxc: x * c,
            dcc: c * c,
            dxw: x * w,
            dcw: c * w,
            dww: w * w,
            ..Bin::default()
        }
    }

    /// The same intervals, so many times as long.
    #[must_use]
    pub fn times(self, length: f64) -> Bin {
        let mut values = self.values();
        for (value, name) in values.iter_mut().zip(Bin::NAMES) {
            *value *= match name {
                "n" | "windows" => 1.0,
                "ss" => length * length,
                "window_s" => length,
                name if name.starts_with("window_") => length * length,
                _ => length,
            };
        }
        values.into()
    }

    /// The same sums as one window.
    #[must_use]
    pub fn as_window(self) -> Bin {
        let Bin { s, x, c, .. } = self;
        Bin {
            windows: 1.0,
            window_s: s,
            window_ss: s * s,
            window_sx: s * x,
            window_sc: s * c,
            window_xx: x * x,
            window_xc: x * c,
            window_cc: c * c,
            ..self
        }
    }
}

/// Adds the products of a window's sums, once all of its intervals are in the bins.
pub fn close_window(bins: &mut BTreeMap<i32, Bin>) {
    let all = bins.values().fold(Bin::default(), |all, bin| all + *bin);
    if all.s > 0.0 {
        let Bin { s, x, c, .. } = all;
        let products = Bin { s, x, c, ..Bin::default() }.as_window();
        let mean = bins.entry(bin_of(x / s)).or_default();
        *mean = *mean + Bin { s: 0.0, x: 0.0, c: 0.0, ..products };
    }
}

impl std::ops::Add for Bin {
    type Output = Bin;

    fn add(self, other: Bin) -> Bin {
        let mut sum = self.values();
        sum.iter_mut().zip(other.values()).for_each(|(sum, value)| *sum += value);
        sum.into()
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
        assert_eq!((mean.s, mean.x, mean.window_s, mean.window_sx), (0.0, 0.0, 3.0, 3.0 * 141.0));
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

    #[test]
    fn an_interval_of_ten_seconds_is_ten_of_one_second() {
        let ten = Bin::of(3.0, 0.5, 7.0).times(10.0);
        let each = (0..10).fold(Bin::default(), |sum, _| sum + Bin::of(3.0, 0.5, 7.0));
        assert_eq!(Bin { n: 10.0, ss: 10.0, ..ten }, each);
        assert_eq!((ten.n, ten.ss), (1.0, 100.0));
        assert_eq!(ten.as_window(), Bin::of(3.0, 0.5, 7.0).as_window().times(10.0));
    }
}
