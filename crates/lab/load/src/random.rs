//! Seeded random numbers: a small generator that gives the same numbers on every machine and in
//! every release.
//!
//! What: SplitMix64 (Steele, Lea and Flood, 2014) as a stream and as a hash. Why not a dependency:
//! a trial that names its seed must be repeatable after any upgrade of a dependency. What never
//! happens: use for secrets.

/// A stream of numbers from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random { state: mix(seed) }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Uniform in (0, 1): never 0, so its logarithm is finite.
    pub(crate) fn unit(&mut self) -> f64 {
        unit(self.next_u64())
    }

    /// Exponentially distributed with mean 1.
    pub(crate) fn exponential(&mut self) -> f64 {
        -self.unit().ln()
    }
}

/// Spreads a number over all 64 bits.
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Combines two numbers, so that the streams of neighbouring seeds are uncorrelated.
pub(crate) fn mix2(a: u64, b: u64) -> u64 {
    mix(mix(a.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_add(b))
}

/// 64 random bits as a number in (0, 1).
pub(crate) fn unit(bits: u64) -> f64 {
    ((bits >> 12) as f64 + 0.5) / (1u64 << 52) as f64
}

/// The quantile of the standard normal distribution (Acklam's approximation, relative error
/// under 1.2e-9).
pub(crate) fn normal_quantile(p: f64) -> f64 {
    const A: [f64; 6] = [
        -39.696_830_286_653_76,
        220.946_098_424_520_5,
        -275.928_510_446_968_7,
        138.357_751_867_269,
        -30.664_798_066_147_16,
        2.506_628_277_459_239,
    ];
    const B: [f64; 5] = [
        -54.476_098_798_224_06,
        161.585_836_858_040_9,
        -155.698_979_859_886_6,
        66.801_311_887_719_72,
        -13.280_681_552_885_72,
    ];
    const C: [f64; 6] = [
        -0.007_784_894_002_430_293,
        -0.322_396_458_041_136_5,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    const D: [f64; 4] = [
        0.007_784_695_709_041_462,
        0.322_467_129_070_039_8,
        2.445_134_137_142_996,
        3.754_408_661_907_416,
    ];
    const LOW: f64 = 0.024_25;
    let polynomial = |of: &[f64], x: f64| of.iter().fold(0.0, |sum, c| sum * x + c);
    let tail = |q: f64| polynomial(&C, q) / (polynomial(&D, q) * q + 1.0);
    if p < LOW {
        tail((-2.0 * p.ln()).sqrt())
    } else if p > 1.0 - LOW {
        -tail((-2.0 * (1.0 - p).ln()).sqrt())
    } else {
        let q = p - 0.5;
        let r = q * q;
        polynomial(&A, r) * q / (polynomial(&B, r) * r + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_the_normal_distribution() {
        for (p, z) in [(0.5, 0.0), (0.975, 1.959_963_985), (0.001, -3.090_232_306)] {
            assert!((normal_quantile(p) - z).abs() < 1e-7, "{p} {}", normal_quantile(p));
        }
    }

    #[test]
    fn units_are_never_zero_or_one() {
        assert!(unit(0) > 0.0);
        assert!(unit(u64::MAX) < 1.0);
    }

    #[test]
    fn exponentials_have_mean_one() {
        let mut random = Random::new(7);
        let sum: f64 = (0..100_000).map(|_| random.exponential()).sum();
        assert!((sum / 100_000.0 - 1.0).abs() < 0.02, "{sum}");
    }
}
