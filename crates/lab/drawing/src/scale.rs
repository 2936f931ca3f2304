//! Scales from data to pixels, and the positions of ticks.

/// A linear or logarithmic axis.
#[derive(Clone, Debug)]
pub struct Scale {
    data: (f64, f64),
    pixels: (f64, f64),
    logarithmic: bool,
}

impl Scale {
    /// Requires `data.0 < data.1`; an empty range is widened by one.
    pub fn linear(data: (f64, f64), pixels: (f64, f64)) -> Scale {
        let high = if data.1 > data.0 { data.1 } else { data.0 + 1.0 };
        Scale { data: (data.0, high), pixels, logarithmic: false }
    }

    /// Both ends are positive, and are widened to 1, 2 or 5 times a power of ten.
    pub fn logarithmic(data: (f64, f64), pixels: (f64, f64)) -> Scale {
        let low = step_below(data.0.max(1e-12));
        let high = step_above(data.1.max(low));
        let high = if high > low { high } else { low * 10.0 };
        Scale { data: (low, high), pixels, logarithmic: true }
    }

    /// The pixels of both ends.
    pub fn pixels(&self) -> (f64, f64) {
        self.pixels
    }

    /// The pixel of a value.
    #[must_use]
    pub fn at(&self, value: f64) -> f64 {
        let share = if self.logarithmic {
            (value.max(1e-12) / self.data.0).ln() / (self.data.1 / self.data.0).ln()
        } else {
            (value - self.data.0) / (self.data.1 - self.data.0)
        };
        self.pixels.0 + share * (self.pixels.1 - self.pixels.0)
    }

    /// The ticks: about `wanted` on a linear axis, at steps of 1, 2 or 5; on a logarithmic axis at
    /// each decade, and at its 2 and 5 if there are few decades.
    pub fn ticks(&self, wanted: usize) -> Vec<f64> {
        if self.logarithmic { self.decades() } else { self.steps(wanted.max(2)) }
    }

    fn steps(&self, wanted: usize) -> Vec<f64> {
        let raw = (self.data.1 - self.data.0) / wanted as f64;
        let decade = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|factor| factor * decade)
            .into_iter()
            .find(|step| *step >= raw * 0.999)
            .unwrap_or(10.0 * decade);
        let first = (self.data.0 / step - 1e-9).ceil() as i64;
        let last = (self.data.1 / step + 1e-9).floor() as i64;
        (first..=last).map(|k| k as f64 * step).collect()
    }

    fn decades(&self) -> Vec<f64> {
        let (low, high) = (self.data.0.log10(), self.data.1.log10());
        let factors: &[f64] = if high - low > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let mut ticks = Vec::new();
        for decade in (low.floor() as i32)..=(high.ceil() as i32) {
            for factor in factors {
                let tick = factor * 10f64.powi(decade);
                if tick >= self.data.0 * 0.999 && tick <= self.data.1 * 1.001 {
                    ticks.push(tick);
                }
            }
        }
        ticks
    }
}

/// The largest of 1, 2 and 5 times a power of ten that is not above the value.
fn step_below(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let factor = [5.0, 2.0, 1.0].into_iter().find(|f| f * decade <= value * 1.000_001);
    factor.unwrap_or(1.0) * decade
}

/// The smallest of 1, 2 and 5 times a power of ten that is not below the value.
fn step_above(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|f| f * decade >= value * 0.999_999);
    factor.unwrap_or(10.0) * decade
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let scale = Scale::linear((0.0, 93.0), (0.0, 930.0));
        assert_eq!(scale.ticks(5), [0.0, 20.0, 40.0, 60.0, 80.0]);
        assert_eq!(scale.at(46.5), 465.0);
        let scale = Scale::linear((0.0, 61_234.0), (0.0, 1.0));
        assert_eq!(scale.ticks(6), [0.0, 20_000.0, 40_000.0, 60_000.0]);
    }

    #[test]
    fn a_logarithmic_axis_ends_on_a_step() {
        let scale = Scale::logarithmic((87.0, 4_300.0), (400.0, 0.0));
        assert_eq!(scale.ticks(0), [50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0]);
        assert_eq!(scale.at(50.0), 400.0);
        assert!((scale.at(5000.0)).abs() < 1e-9);
        let wide = Scale::logarithmic((3.0, 4.0e6), (0.0, 1.0));
        assert_eq!(wide.ticks(0), [10.0, 100.0, 1e3, 1e4, 1e5, 1e6]);
    }

    #[test]
    fn an_empty_range_does_not_divide_by_zero() {
        assert!(Scale::linear((0.0, 0.0), (0.0, 100.0)).at(0.0).is_finite());
        assert!(Scale::logarithmic((5.0, 5.0), (0.0, 100.0)).at(5.0).is_finite());
    }
}
