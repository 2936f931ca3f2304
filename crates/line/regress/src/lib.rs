//! Regression: fits, intervals, comparisons. Pure mathematics, without I/O.
//!
//! The load line of a server is the regression of a resource's use on the request rate, `C = a +
//! b·x`. The slope of the line is the marginal cost, and its intercept is the fixed cost. The rate
//! at which the line meets the cap is the capacity. This crate fits such lines, checks how reliable
//! they are, and computes capacities with intervals.
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
//! | [`marginal`] | what a request costs at saturation, by turns and busy periods |
//! | [`load_line`](mod@load_line) | the complete analysis of one resource |
//! | [`costs`](mod@costs) | costs of parts of the work, which add up to the total |
//! | [`classes`](mod@classes) | costs of requests by class, none of them negative |
//! | [`same_load`](mod@same_load) | comparison of two trials at the same load |
//! | [`switchback`](mod@switchback) | comparison of two settings that alternate under one load |
//! | [`ratio`] | a ratio of sums over windows; the change of a cost at the same rate |
//! | [`effects`] | the mean of many servers' effects, and their spread |
//! | [`mod@runs_out`] | when daily peaks reach a capacity |
//! | [`variation`] | whether the rate varied enough for a line, and in enough intervals |
//! | [`to_come`] | latency at rates that were not reached |
//! | [`fdr`] | correction for many tests at once |
//! | [`what_if`](mod@what_if), [`compare`], [`objective`] | uses of lines |
//!
//! The caller chooses the units, and uses the same units everywhere: rates in requests per second,
//! and costs in CPU seconds per second (a cap of 1.0 is one CPU) or in percent (a cap of 100). Rows
//! must be in time order, because the autocorrelation-robust errors and the block bootstrap depend
//! on it.
//!
//! Guarantees: no I/O, no clock, no hidden randomness (seeds are arguments, and the same seed gives
//! the same results on every machine), no panic on any data: a fit that is not possible returns an
//! [`Unfit`].
//!
//! # The statistics
//!
//! For each interval of a trial, CPU time is regressed on the rate, never the other way round: `C =
//! a + b·x`, with the marginal cost `b` and the fixed cost `a`.
//!
//! - **Capacity** X* = (cap − a) / b. The cap is 1 for the hottest thread, and the number of CPUs
//!   for the machine. Each resource is fitted; the smallest capacity counts. A resource that is not
//!   only the server's, or that can be always busy without being exhausted, does not limit.
//! - **Three lines.** The straight line misses saturation: the cost of a request falls with the
//!   load, because a busy server sleeps and wakes less often.
//!   - *The line with wakes* is C = a + b·x + w·wakes, with the voluntary context switches of the
//!     thread per second. The capacity is read at wakes = 0. Wakes are an effect of the cost as
//!     well as a cause, so they are first fitted by the rate, which clients decide (two-stage least
//!     squares). This line gives the capacity if rate and wakes can be separated and a wake costs
//!     something. Otherwise the straight line gives the capacity.
//!   - *The line of a busy CPU* (`busy`) extrapolates from data that end below 90 % of the cap: C =
//!     a + b·x + W·(w₀ + w₁·ln(1 + d/d₀)), with W wakes per second, and d the idle time of the CPU
//!     before each wake. A wake costs more the longer the CPU was idle, because its caches are
//!     cold. The priors of w₀ and w₁ are in microseconds, from real servers: the cost of a wake was
//!     the same on two kinds of machine. At the cap d is zero, and an event loop does not wake.
//!     Where turns of the event loop and busy periods were counted, what one more request adds to
//!     them is a second estimate without extrapolation (`marginal`). The two estimates are
//!     averaged, and the rate need not vary.
//! - **Intervals.** The line has Fieller's interval. The interval shown with a capacity is for a
//!   *future saturated interval*: inverse prediction with v = s² + (r·cap)², where s is the
//!   residual sd to expect at the cap, and r is the sd between runs. r is 3 % unless the caller has
//!   several runs to estimate r from. Neighbouring intervals are correlated: with lag-one
//!   correlation ρ of the residuals, (1 + ρ)/(1 − ρ) intervals count as one. A circular block
//!   bootstrap is the cross-check. An unbounded interval is "not identifiable: the rate did not
//!   vary enough".
//! - **Robustness.** An MM fit is made next to least squares. The rows that it sets aside are
//!   listed; no row is dropped silently. A test for curvature detects a line that is wrong.
//! - **Closure.** kernel slope + user slope = − idle slope.
//! - **Parts.** The CPU time of each procedure group goes through the fit of the whole: one design,
//!   one vector of weights. The slopes of the groups, and of the time that no sample saw, add up to
//!   the slope of the whole, to rounding. A what-if changes a group in every interval and fits the
//!   remainder: X*(f) = (cap − a + f·a_g)/(b − f·b_g), with an interval. A what-if is first-order.
//! - **Two trials.** One fit of both trials over their common rates, ln C = p(ln x) + ln R · after,
//!   gives the ratio R of the costs of a request at the same rate. The interval of R is widened by
//!   the sd between runs, which is estimated from each trial. A difference in wakes, bytes or
//!   classes is taken out before the verdict. Capacities do not decide the verdict. Slopes are
//!   tested with Newey–West errors, groups and procedures with Benjamini–Hochberg. "No change"
//!   needs an interval within the margin.
//! - **Measured saturation** is kept out of the fit. The measured saturation is the capacity,
//!   unless the experiment declared the saturated intervals. A server is saturated if it uses all
//!   of its CPU, or if it hardly ever sleeps and other processes use the rest.
//! - **Bounds.** If the interval of a capacity spans more than a factor of four, only the lower
//!   bound is reported. Below 5 % of the cap, and beyond fifty times the highest rate, there is no
//!   capacity.
//! - **Sums.** For many servers the same lines are fitted to sums of the intervals by rate, with
//!   sixteen bins for each doubling. The sums add up over trials and where the data is
//!   (`bin_line`). The straight line is exactly the line of the full method, and the rules on how
//!   much the rate must have varied are the same. The robust fit sets no interval aside, and
//!   windows of five minutes are the clusters of the errors. On 127 trials of 17 set-ups of real
//!   servers the capacity differed from the capacity of the full method by 0.2 % (median), and by
//!   less than 2.5 % in 120 of them.
//!
//! # What it promises
//!
//! f64 in, f64 out, seeded. The crate is compared with statsmodels, scipy and arch by fixtures, and
//! with the published figures of 1998.
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
pub mod marginal;
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
pub mod to_come;
mod unfit;
pub mod variation;
pub mod wakes;
pub mod what_if;
mod why;

pub use bin_line::{BinLine, BinLineInput, Model, WINDOWS_MIN, line_of};
pub use bootstrap::{block_bootstrap, block_length};
pub use busy::{BusyFit, WakesByUse};
pub use capacity::Capacity;
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
pub use marginal::{ByKind, Counting, Evidence, Marginal, OfKind, OfSize, Seen};
pub use modes::{Closure, ModesFit, closure, modes_fit_weighted, shared_fit};
pub use objective::{AtObjective, capacity_at_objective, isotonic};
pub use rng::Rng;
pub use robust::{Robust, mm};
pub use same_load::{NotAlike, Run, SameLoad, SameLoadTerms, same_load};
pub use sums::{Sums, SumsLine};
pub use switchback::{
    ROUNDS_MIN, Switchback, SwitchbackTerms, SwitchbackVerdict, rounds_verdict_min, switchback,
};
pub use to_come::{AtRate, LatencyCurve, MetUpTo, PredictedLatency, Queue, rates_to_come};
pub use unfit::Unfit;
pub use wakes::{Collinearity, WakesFit};
pub use what_if::{Change, FIRST_ORDER, Group, Predicted, WhatIf, predict, what_if};
pub use why::Why;
