//! User, kernel and idle time against the rate, with one design matrix and one vector of weights.
//!
//! Every mode goes through the same linear map, so that sums that hold in each interval hold for
//! the lines: user + kernel + idle = cap in each row gives kernel slope + user slope = − idle
//! slope, within floating-point rounding. Separate weights for each mode would break that.
//! Published tables that are rounded to two places add up only within their rounding; [`closure`]
//! gives the gap.

use serde::Serialize;

use crate::Unfit;
use crate::line::Line;
use crate::linear::{Design, LinearFit, Solver, check_column, check_weights};

/// Whether the slopes add up.
#[derive(Clone, Debug, Serialize)]
pub struct Closure {
    /// User slope plus kernel slope.
    pub busy_slope: f64,
    /// The idle line's slope (negative).
    pub idle_slope: f64,
    /// Their sum: zero if the modes account for all time.
    pub gap: f64,
}

impl Closure {
    /// Whether rounding each of the three slopes to `unit` (0.01 for two places) can explain the
    /// gap.
    #[must_use]
    pub fn within_rounding(&self, unit: f64) -> bool {
        self.gap.abs() <= 1.5 * unit * (1.0 + 1e-9)
    }
}

/// The closure of three slopes.
#[must_use]
pub fn closure(user_slope: f64, kernel_slope: f64, idle_slope: f64) -> Closure {
    let busy_slope = user_slope + kernel_slope;
    Closure { busy_slope, idle_slope, gap: busy_slope + idle_slope }
}

/// The lines of the three modes.
#[derive(Clone, Debug, Serialize)]
pub struct ModesFit {
    /// User time on the rate.
    pub user: Line,
    /// Kernel time on the rate.
    pub kernel: Line,
    /// Idle time on the rate.
    pub idle: Line,
    /// Whether they add up.
    pub closure: Closure,
}

/// Fits the three modes with these weights. All ones is ordinary least squares, as published in
/// 1998.
///
/// # Errors
/// Those of [`crate::wls`].
pub fn modes_fit_weighted(
    rate: &[f64],
    user: &[f64],
    kernel: &[f64],
    idle: &[f64],
    weights: &[f64],
) -> Result<ModesFit, Unfit> {
    let design = Design::new(&[rate])?;
    let fits = shared_fit(&design, &[user, kernel, idle], weights)?;
    let [user, kernel, idle] = [0, 1, 2].map(|i| Line::from_fit(&fits[i]));
    let closure = closure(user.slope, kernel.slope, idle.slope);
    Ok(ModesFit { user, kernel, idle, closure })
}

/// Fits several responses (modes, procedure groups, procedures) with one factorised design and one
/// vector of weights, so that the coefficients of parts add up to those of their sum.
///
/// # Errors
/// Those of [`crate::least_squares`].
pub fn shared_fit<R: AsRef<[f64]>>(
    design: &Design,
    responses: &[R],
    weights: &[f64],
) -> Result<Vec<LinearFit>, Unfit> {
    let n = check_weights(Some(weights), design.rows())?;
    if n <= design.coefficients() {
        return Err(Unfit::TooFew { needed: design.coefficients() + 1, found: n });
    }
    let solver = Solver::new(design, Some(weights))?;
    responses
        .iter()
        .map(|response| {
            let y = response.as_ref();
            check_column(y, design.rows())?;
            Ok(solver.fit(design, y, Some(weights), n))
        })
        .collect()
}
