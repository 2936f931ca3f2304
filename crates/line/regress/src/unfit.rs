//! Why a fit is not possible. The cause is always in the data; a fit never panics.

use serde::Serialize;

/// Why no line can be fitted to the data.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub enum Unfit {
    /// Two columns have different lengths.
    LengthsDiffer {
        /// Length of the rate column.
        expected: usize,
        /// Length of the other.
        found: usize,
    },
    /// Fewer rows than the fit needs.
    TooFew {
        /// The least number of rows.
        needed: usize,
        /// Rows with a positive weight.
        found: usize,
    },
    /// A value is NaN or infinite.
    NotFinite,
    /// The columns do not determine the coefficients: the rate did not vary, or one column is a
    /// linear combination of the others.
    Singular,
    /// The intervals do not follow the line.
    NotFollowed {
        /// Sd of the logarithms of the residuals.
        residual_sd: f64,
    },
    /// The fit found no coefficients.
    NotConverged,
    /// A quantity is not positive.
    NotPositive {
        /// The quantity.
        what: &'static str,
    },
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unfit::LengthsDiffer { expected, found } => {
                write!(f, "columns differ in length: {expected} and {found}")
            }
            Unfit::TooFew { needed, found } => {
                write!(f, "too few intervals: {found}, but {needed} are needed")
            }
            Unfit::NotFinite => write!(f, "a value is not a finite number"),
            Unfit::Singular => write!(f, "not identifiable: the rate did not vary enough"),
            Unfit::NotFollowed { residual_sd } => {
                let percent = 100.0 * residual_sd;
                write!(f, "the intervals are {percent:.0} % (sd) away from the line")
            }
            Unfit::NotConverged => write!(f, "the fit found no coefficients"),
            Unfit::NotPositive { what } => write!(f, "{what} is not positive"),
        }
    }
}

impl std::error::Error for Unfit {}
