//! A straight line by least squares, from sums that were accumulated where the data was.

/// The sums over the observations of x and y. Sums of several sets of observations add up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Number of observations.
    pub n: f64,
    /// Sum of x.
    pub x: f64,
    /// Sum of y.
    pub y: f64,
    /// Sum of x².
    pub xx: f64,
    /// Sum of x·y.
    pub xy: f64,
    /// Sum of y².
    pub yy: f64,
}

/// The line through sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SumsLine {
    /// y at x = 0.
    pub intercept: f64,
    /// Growth of y with x.
    pub slope: f64,
    /// Standard error of the slope, for independent errors of equal variance.
    pub se_slope: f64,
}

impl Sums {
    /// The line; `None` with fewer than three observations, or if x does not vary.
    #[must_use]
    pub fn line(&self) -> Option<SumsLine> {
        let xx = self.xx - self.x * self.x / self.n;
        let xy = self.xy - self.x * self.y / self.n;
        let yy = self.yy - self.y * self.y / self.n;
        // What rounding alone leaves of a constant x.
        let varies = xx > f64::EPSILON * self.n * self.xx;
        if !(self.n >= 3.0 && varies) {
            return None;
        }
        let slope = xy / xx;
        let residuals = (yy - slope * xy).max(0.0);
        let se_slope = (residuals / (self.n - 2.0) / xx).sqrt();
        let intercept = (self.y - slope * self.x) / self.n;
        let line = SumsLine { intercept, slope, se_slope };
        [intercept, slope, se_slope].iter().all(|value| value.is_finite()).then_some(line)
    }
}

impl std::ops::Add for Sums {
    type Output = Sums;

    fn add(self, other: Sums) -> Sums {
        Sums {
            n: self.n + other.n,
            x: self.x + other.x,
            y: self.y + other.y,
            xx: self.xx + other.xx,
            xy: self.xy + other.xy,
            yy: self.yy + other.yy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::ols;

    fn of(points: &[(f64, f64)]) -> Sums {
        points.iter().fold(Sums::default(), |sums, &(x, y)| {
            sums + Sums { n: 1.0, x, y, xx: x * x, xy: x * y, yy: y * y }
        })
    }

    #[test]
    fn the_line_is_that_of_the_observations() {
        let x = [1.0, 2.0, 2.0, 3.0, 5.0, 8.0];
        let y = [29.0, 43.0, 41.0, 55.0, 80.0, 119.0];
        let points: Vec<(f64, f64)> = x.into_iter().zip(y).collect();
        let found = of(&points).line().unwrap();
        let expected = ols(&x, &y).unwrap();
        assert!((found.slope - expected.slope).abs() < 1e-9, "{found:?} {expected:?}");
        assert!((found.intercept - expected.intercept).abs() < 1e-9);
        assert!((found.se_slope - expected.se_slope).abs() < 1e-9);
    }

    #[test]
    fn there_is_no_line_without_three_observations_or_a_varying_x() {
        assert_eq!(of(&[]).line(), None);
        assert_eq!(of(&[(1.0, 2.0), (2.0, 3.0)]).line(), None);
        assert_eq!(of(&[(0.1, 2.0); 1000]).line(), None);
        assert!(of(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]).line().unwrap().se_slope < 1e-6);
    }
}
