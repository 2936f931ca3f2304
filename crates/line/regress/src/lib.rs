//! Regression: fits, intervals, comparisons. Pure mathematics, without I/O.
//!
//! The load line of a server is the regression of a resource's use on the request rate, `C = a +
//! b·x`. Its slope is the marginal cost, its intercept the fixed cost, and the rate at which it
//! meets the cap is the capacity. This crate fits such lines, checks how reliable they are, and
//! computes capacities with intervals.
//!
//! | module | content |
//! | --- | --- |
//! | [`linear`] | design matrices, least squares in one and two stages, robust covariances |
//! | [`line`](mod@line) | the straight line with its correlation; Theil–Sen |
//! | [`sums`] | the straight line from sums that were accumulated elsewhere |
//! | [`bins`] | sums of intervals by rate and window, for lines without the intervals |
//! | [`line_of`] | the load line of one resource from such sums |
//! | [`robust`] | the MM-estimator and the rows it sets aside |
//! | [`interval`] | Fieller's interval and its inverse-prediction form |
//! | [`bootstrap`] | circular block bootstrap, automatic block length |
//! | [`curvature`](mod@curvature) | a test of whether a straight line is wrong, and by how much |
//! | [`modes`] | user, kernel and idle with one design and one vector of weights; closure |
//! | [`capacity`] | the rate at which a line meets the cap, with three intervals |
//! | [`wakes`] | the line with wakes, in two stages |
//! | [`load_line`](mod@load_line) | the complete analysis of one resource |
//! | [`costs`](mod@costs) | costs of parts of the work, which add up to the total |
//! | [`classes`](mod@classes) | costs of requests by class, none of them negative |
//! | [`same_load`](mod@same_load) | comparison of two trials at the same load |
//! | [`switchback`](mod@switchback) | comparison of two settings that alternate under one load |
//! | [`ratio`] | a ratio of sums over windows; the change of a cost at the same rate |
//! | [`effects`] | the mean of many servers' effects, and their spread |
//! | [`mod@runs_out`] | when daily peaks reach a capacity |
//! | [`variation`] | whether the rate varied enough for a line, and in enough intervals |
//! | [`fdr`] | correction for many tests at once |
//! | [`what_if`](mod@what_if), [`compare`], [`objective`] | uses of lines |
//!
//! The caller chooses the units and uses them consistently: rates in requests per second, and costs
//! in CPU seconds per second (a cap of 1.0 is one CPU) or in percent (a cap of 100). Rows must be
//! in time order, because the autocorrelation-robust errors and the block bootstrap depend on it.
//!
//! Guarantees: no I/O, no clock, no hidden randomness (seeds are arguments, and the same seed gives
//! the same results on every machine), no panic on any data: a fit that is not possible returns an
//! [`Unfit`].
//!
//! # What it promises
//!
//! f64 in, f64 out, seeded. It is compared with statsmodels, scipy and arch by fixtures, and with
//! the published figures of 1998.
#![forbid(unsafe_code)]

mod bin_line;
pub mod bins;
pub mod bootstrap;
pub mod busy;
pub mod capacity;
pub mod classes;
pub mod compare;
pub mod costs;
pub mod curvature;
mod dist;
pub mod effects;
pub mod fdr;
pub mod interval;
pub mod line;
pub mod linear;
pub mod load_line;
mod matrix;
pub mod modes;
pub mod objective;
pub mod ratio;
mod rng;
pub mod robust;
pub mod runs_out;
pub mod same_load;
mod small;
pub mod sums;
pub mod switchback;
mod unfit;
pub mod variation;
pub mod wakes;
pub mod what_if;

pub use bin_line::{BinLine, BinLineInput, Model, WINDOWS_MIN, line_of};
pub use bootstrap::{block_bootstrap, block_length};
pub use busy::{BusyFit, Marginal, WakesByUse};
pub use capacity::{Capacity, Why};
pub use classes::{ClassCost, ClassCosts, Merged, WhyMerged, class_costs};
pub use compare::equivalent;
pub use costs::{Coefficient, Cost, Costs, PartsClosure, costs, difference};
pub use curvature::{Curvature, Test, curvature};
pub use dist::{median, student_t_quantile, student_t_two_sided_p};
pub use fdr::benjamini_hochberg;
pub use interval::{Estimate, Fieller, Interval, fieller};
pub use line::{Line, TheilSen, ols, theil_sen, wls};
pub use linear::{Design, LinearFit, least_squares};
pub use load_line::{
    BUSY_BELOW, Fit, Headline, LoadLine, LoadLineInput, REACH_MIN, Trust, load_line,
};
pub use modes::{Closure, ModesFit, closure, modes_fit_weighted, shared_fit};
pub use objective::{AtObjective, capacity_at_objective, isotonic};
pub use rng::Rng;
pub use robust::{Robust, mm};
pub use same_load::{NotAlike, Run, SameLoad, SameLoadTerms, same_load};
pub use sums::{Sums, SumsLine};
pub use switchback::{
    ROUNDS_MIN, ROUNDS_VERDICT_MIN, Switchback, SwitchbackTerms, SwitchbackVerdict, switchback,
};
pub use unfit::Unfit;
pub use wakes::{Collinearity, WakesFit};
pub use what_if::{Change, FIRST_ORDER, Group, Predicted, WhatIf, predict, what_if};
