//! What a trial says: the figures of every output, as plain structs.
//!
//! The names of the fields are the keys of the command's JSON, and stable: a script may read
//! `capacity.value`, `capacity.low`, `capacity.high` and `saturation_measured`.

use regress::LoadLine;
use serde::Serialize;
use trial::{Loss, Manifest, Prediction};

use super::{ClassTable, CostTable, Flame, HardwareCounters, Latency, Profile, ResourceKind};
use crate::Groups;
use crate::files::Files;
use crate::waits::Waits;

/// What the user may choose. The defaults are those of the command.
#[derive(Clone, Debug)]
pub struct Options {
    /// Intervals of a lower rate are left out of the fit, as the papers did below 20 requests/s.
    pub above: f64,
    /// Bound on latency, milliseconds: the capacity at this objective is reported.
    pub objective_ms: Option<f64>,
    /// The quantile of latency that is bounded, 0 to 1.
    pub objective_quantile: f64,
    /// Use at which the resource counts as used up, CPU seconds per second; all of it by default.
    pub cap: Option<f64>,
    /// The resource whose capacity is reported; the tightest by default.
    pub resource: Option<ResourceKind>,
    /// Level of the intervals.
    pub level: f64,
    /// Seed of the robust fit and the bootstrap.
    pub seed: u64,
    /// Rules of the procedure groups.
    pub groups: Groups,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            above: 0.0,
            objective_ms: None,
            objective_quantile: 0.99,
            cap: None,
            resource: None,
            level: 0.95,
            seed: 1998,
            groups: Groups::default(),
        }
    }
}

/// All that a report shows.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// The trial itself: its name, how long, how much of it was used.
    pub trial: TrialFacts,
    /// The capacity: the smallest over the resources, by the better of the two lines.
    pub capacity: CapacityFigure,
    /// The capacity of the CPU time whose modes and procedures are shown: the same figure, unless
    /// a device is used up first.
    pub capacity_of_cpu: CapacityFigure,
    /// The same CPU time by the straight line of 1998.
    pub capacity_straight: CapacityFigure,
    /// The same CPU time by the line with wakes, where it could be fitted.
    pub capacity_with_wakes: Option<CapacityFigure>,
    /// The saturation measured in this trial, requests/s: the median of its saturated intervals.
    /// `None` if it has none, or if what was meant to saturate the server did not.
    pub saturation_measured: Option<f64>,
    /// The details of that.
    pub saturation: Option<Saturation>,
    /// The lines of idle, kernel and user time of that CPU time, in percent of its cap.
    pub modes: Modes,
    /// The straight line and the modes with the quiet intervals in, where some were left out.
    pub all_intervals: Option<AllIntervals>,
    /// The line with wakes, in microseconds.
    pub with_wakes: Option<WakesLine>,
    /// What a request costs by mode, group and procedure, where there is a profile.
    pub costs: Option<CostTable>,
    /// Procedures upon their callers, by what a request costs in them, where there is a profile.
    pub flame: Option<Flame>,
    /// What a request costs by class, where the log tells classes: one table a word of them.
    pub classes: Vec<ClassTable>,
    /// The classic profile table, where there is a profile.
    pub profile: Option<Profile>,
    /// What a request costs in instructions and cycles, where the processor counted them.
    pub counters: Option<HardwareCounters>,
    /// Waits for locks, where they were sampled.
    pub waits: Option<Waits>,
    /// What became of files, where that was sampled.
    pub files: Option<Files>,
    /// Every resource that was fitted, the limiting one first; then those without a line.
    pub resources: Vec<Resource>,
    /// Latency, where it was recorded.
    pub latency: Option<Latency>,
    /// Every interval of the trial.
    pub intervals: Vec<IntervalRow>,
    /// What was not seen.
    pub losses: Vec<Loss>,
    /// Predictions kept with the trial.
    pub predictions: Vec<Prediction>,
    /// What the machine and the server were.
    pub manifest: Manifest,
}

impl Analysis {
    /// The line with wakes and its capacity, if it is the one that counts: otherwise its
    /// coefficients are not to be told apart, and are left to the JSON.
    pub(crate) fn wakes_drawn(&self) -> Option<(&WakesLine, f64)> {
        let figure = &self.capacity_of_cpu;
        let drawn = figure.model == MODEL_WAKES;
        Some((self.with_wakes.as_ref()?, figure.value?)).filter(|_| drawn)
    }

    /// Whether CPU time is what is used up first, and not a device.
    pub(crate) fn cpu_limits(&self) -> bool {
        self.capacity.resource_name == self.capacity_of_cpu.resource_name
    }
}

/// What [`CapacityFigure::model`] says.
pub(super) const MODEL_STRAIGHT: &str = "straight";
/// The other.
pub(super) const MODEL_WAKES: &str = "wakes";

/// The trial itself.
#[derive(Clone, Debug, Serialize)]
pub struct TrialFacts {
    /// File name, without its directory.
    pub name: String,
    /// Name of the server, as well as it is known.
    pub server: String,
    /// Whether the recording came to its end.
    pub complete: bool,
    /// The state of an unfinished one, in a sentence.
    pub unfinished: Option<String>,
    /// From the start of the first interval to the end of the last, seconds.
    pub duration_s: f64,
    /// Median length of an interval, seconds.
    pub interval_s: f64,
    /// Intervals in the trial.
    pub intervals: usize,
    /// Intervals the lines were fitted to; those set aside by the robust fit are among them.
    pub fitted: usize,
    /// Intervals that were not, by reason.
    pub excluded: Vec<Excluded>,
    /// Requests in the trial.
    pub requests: f64,
    /// CPU time of the recorder, percent of one CPU.
    pub own_cost_percent: f64,
    /// The server's share of the machine's busy time, percent, where both are known.
    pub server_share_percent: Option<f64>,
}

/// Intervals left out of the fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Excluded {
    /// Why, in a few words.
    pub why: String,
    /// How many.
    pub count: usize,
}

/// A capacity with all that belongs to it.
#[derive(Clone, Debug, Serialize)]
pub struct CapacityFigure {
    /// Requests per second; `None` if it cannot be read off.
    pub value: Option<f64>,
    /// Lower end of the interval for a future saturated interval.
    pub low: Option<f64>,
    /// Upper end of it.
    pub high: Option<f64>,
    /// Level of the intervals.
    pub level: f64,
    /// Lower end of the line's own interval (Fieller's).
    pub line_low: Option<f64>,
    /// Upper end of it.
    pub line_high: Option<f64>,
    /// Lower end by the circular block bootstrap.
    pub bootstrap_low: Option<f64>,
    /// Upper end of it.
    pub bootstrap_high: Option<f64>,
    /// Whether a capacity can be read off these data.
    pub identifiable: bool,
    /// Why not.
    pub reason: Option<String>,
    /// `straight` or `wakes`.
    pub model: &'static str,
    /// Why this model and not the other.
    pub model_why: String,
    /// The resource that is used up.
    pub resource: ResourceKind,
    /// What it is called: "hottest thread", "disk sda".
    pub resource_name: String,
    /// What it can give, CPU seconds per second; of what is no CPU, 1 is all of it.
    pub cap: f64,
    /// Intervals fitted.
    pub n: usize,
    /// Highest rate in the fit.
    pub highest_rate: f64,
    /// Capacity over the highest rate in the fit.
    pub beyond_highest: Option<f64>,
    /// Highest use in the fit, percent of the cap.
    pub reach_percent: f64,
    /// Whether nothing speaks against the figure.
    pub trusted: bool,
    /// The statistic that speaks against it, with its value.
    pub distrust_statistic: Option<String>,
    /// What that means.
    pub distrust_why: Option<String>,
}

/// Saturation as it was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Saturation {
    /// Median rate, requests/s.
    pub rate: f64,
    /// Lowest rate of an interval.
    pub rate_min: f64,
    /// Highest rate of an interval.
    pub rate_max: f64,
    /// Saturated intervals.
    pub n: usize,
    /// Median use of the limiting resource there, percent of its cap.
    pub use_percent: f64,
    /// How they are known: the experiment said so, or the resource was used up.
    pub known_by: &'static str,
    /// Whether the interval of the capacity holds the rate; `None` if there is no interval.
    pub held: Option<bool>,
}

/// The three lines of 1998.
#[derive(Clone, Debug, Serialize)]
pub struct Modes {
    /// What the percentages are of.
    pub percent_of: String,
    /// Idle, kernel, user, in this order; empty if no line could be drawn.
    pub lines: Vec<ModeLine>,
    /// Percent that is still idle where the resource counts as used up: 0 unless the cap is less.
    pub idle_at_cap: f64,
    /// Kernel slope + user slope + idle slope: 0 when the modes account for all time.
    pub closure_gap: f64,
    /// Why there are no lines.
    pub unfit: Option<String>,
}

/// The lines through all intervals, beside those without the quiet ones.
#[derive(Clone, Debug, Serialize)]
pub struct AllIntervals {
    /// Capacity by the straight line.
    pub capacity_straight: CapacityFigure,
    /// The lines of the modes.
    pub modes: Modes,
}

/// The line of one mode on the rate, by least squares.
#[derive(Clone, Debug, Serialize)]
pub struct ModeLine {
    /// `idle`, `kernel` or `user`.
    pub mode: &'static str,
    /// Percent at no requests.
    pub intercept: f64,
    /// Percent per request/s.
    pub slope: f64,
    /// Standard error of the slope.
    pub slope_se: f64,
    /// CPU time of one more request in this mode, microseconds (idle: negative).
    pub us_per_request: f64,
    /// Correlation.
    pub correlation: f64,
    /// Intervals.
    pub n: usize,
    /// Where the idle line meets zero, requests/s: the capacity as it was read in 1998. `None` for
    /// the other modes, and where it is not identifiable.
    pub x_intercept: Option<f64>,
    /// The whole line.
    #[serde(skip)]
    pub line: regress::Line,
}

impl ModeLine {
    /// No CPU idles more than all the time.
    pub(crate) fn not_physical(&self) -> bool {
        const IDLE_PERCENT_MAX: f64 = 100.5;
        self.mode == "idle" && self.intercept > IDLE_PERCENT_MAX
    }
}

/// `C = a + b·x + w·wakes`, in microseconds of CPU time.
#[derive(Clone, Debug, Serialize)]
pub struct WakesLine {
    /// Fixed cost, percent of the cap.
    pub fixed_percent: f64,
    /// Cost of one more request, wakes apart, microseconds.
    pub us_per_request: f64,
    /// Cost of a wake, microseconds.
    pub us_per_wake: f64,
    /// t of the cost of a wake.
    pub t: f64,
    /// One-sided p of it being above zero.
    pub p: f64,
    /// Share of the variance explained.
    pub r_squared: f64,
    /// Variance inflation of rate and wakes.
    pub variance_inflation: f64,
}

/// One resource.
#[derive(Clone, Debug, Serialize)]
pub struct Resource {
    /// Which.
    pub kind: ResourceKind,
    /// What it is called: "hottest thread", "disk sda".
    pub name: String,
    /// What its name leaves open.
    pub detail: String,
    /// What it can give, CPU seconds per second; of what is no CPU, 1 is all of it. Not a number
    /// (in JSON: null) where that is not known.
    pub cap: f64,
    /// Whether its capacity may be the server's: a machine that mostly runs something else is
    /// shown and limits nothing.
    pub may_limit: bool,
    /// Why not.
    pub remark: Option<String>,
    /// Its load line, everything `regress` says about it.
    pub line: Option<LoadLine>,
    /// Why there is none.
    pub unfit: Option<String>,
    /// Rate, and percent of the cap that was used, of each interval of the fit.
    #[serde(skip)]
    pub points: Vec<(f64, f64)>,
}

/// What became of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It is in the fit.
    Fit,
    /// It is in the fit of 1998, and the robust one paid no heed to it.
    SetAside,
    /// It was saturated: measured, not fitted.
    Saturation,
    /// It was meant to be saturated, and the resource was far from used up: neither measured nor
    /// fitted.
    NotSaturated,
    /// The experiment was warming up.
    WarmUp,
    /// Its rate is not known: the edge of the recording, or late log lines.
    RateInvalid,
    /// Its rate is below the one asked for.
    TooQuiet,
    /// The resource was not seen in it.
    NotSeen,
}

impl Standing {
    /// As it is written in a table.
    pub fn label(self) -> &'static str {
        match self {
            Standing::Fit => "fit",
            Standing::SetAside => "set aside",
            Standing::Saturation => "saturated",
            Standing::NotSaturated => "not saturated",
            Standing::WarmUp => "warm-up",
            Standing::RateInvalid => "rate not known",
            Standing::TooQuiet => "too quiet",
            Standing::NotSeen => "not seen",
        }
    }

    pub(crate) fn is_fitted(self) -> bool {
        matches!(self, Standing::Fit | Standing::SetAside)
    }
}

/// One interval; percentages are of the cap of the CPU time whose modes are shown.
#[derive(Clone, Debug, Serialize)]
pub struct IntervalRow {
    /// Its number.
    pub index: u64,
    /// Its start after that of the trial, seconds.
    pub start_s: f64,
    /// Its length, seconds.
    pub length_s: f64,
    /// Requests per second.
    pub rate: f64,
    /// Idle, percent.
    pub idle: Option<f64>,
    /// Kernel mode, percent.
    pub kernel: Option<f64>,
    /// User mode, percent.
    pub user: Option<f64>,
    /// Voluntary context switches per second.
    pub wakes: Option<f64>,
    /// What the experiment called it.
    pub phase: Option<String>,
    /// What became of it.
    pub standing: Standing,
}
