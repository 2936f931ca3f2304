//! Options of an analysis, and the figures of resources and intervals as plain structs.
//!
//! The names of the fields are the keys of the command's JSON, and stable: a script may read
//! `capacity.value`, `capacity.low`, `capacity.high` and `saturation_measured`.

use regress::LoadLine;
use serde::Serialize;

use super::resource::ResourceKind;
use crate::format::percent;
use groups::Groups;

/// The user's options. The defaults are those of the command.
#[derive(Clone, Debug)]
pub struct Options {
    /// Intervals with a lower rate are excluded from the fit, as in the papers below 20 requests/s.
    pub above: f64,
    /// Bound on latency, milliseconds: the capacity at this objective is reported.
    pub objective_ms: Option<f64>,
    /// The quantile of latency that is bounded, 0 to 1.
    pub objective_quantile: f64,
    /// Use at which the resource counts as exhausted, CPU seconds per second; all of it by default.
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

/// The values of [`CapacityFigure::model`].
pub(super) const MODEL_STRAIGHT: &str = "straight";
/// See [`MODEL_STRAIGHT`].
pub(super) const MODEL_WAKES: &str = "wakes";
/// The value of [`CapacityFigure::model`] for the line of a busy CPU.
pub const MODEL_BUSY: &str = "busy";

/// The value of [`CapacityFigure::model`] if the server was saturated, so that its capacity was
/// measured.
pub const MODEL_MEASURED: &str = "measured";

/// The trial.
#[derive(Clone, Debug, Serialize)]
pub struct TrialFacts {
    /// File name, without its directory.
    pub name: String,
    /// Name of the server, as far as it is known.
    pub server: String,
    /// Whether the recording was finished.
    pub complete: bool,
    /// The state of an unfinished trial, in one sentence.
    pub unfinished: Option<String>,
    /// From the start of the first interval to the end of the last, seconds.
    pub duration_s: f64,
    /// Median length of an interval, seconds.
    pub interval_s: f64,
    /// Intervals in the trial.
    pub intervals: usize,
    /// Intervals the lines were fitted to, including those set aside by the robust fit.
    pub fitted: usize,
    /// Intervals that were not fitted, by reason.
    pub excluded: Vec<Excluded>,
    /// Requests in the trial.
    pub requests: f64,
    /// CPU time of the recorder, percent of one CPU.
    pub own_cost_percent: f64,
    /// The server's share of the machine's busy time, percent, if both are known.
    pub server_share_percent: Option<f64>,
}

/// Intervals excluded from the fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Excluded {
    /// Why, in a few words.
    pub why: String,
    /// Number of intervals.
    pub count: usize,
}

/// A capacity with its intervals and the reasons for and against it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CapacityFigure {
    /// Requests per second; `None` if it is not identifiable.
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
    /// Whether the data identify a capacity.
    pub identifiable: bool,
    /// Why not.
    pub reason: Option<String>,
    /// The same without statistics, if the statistics are the reason.
    #[serde(skip)]
    pub plain: Option<&'static str>,
    /// `straight`, `wakes`, `busy`, or `measured`.
    pub model: &'static str,
    /// Why this model and not another.
    pub model_why: String,
    /// The resource that is exhausted.
    pub resource: ResourceKind,
    /// Its name: "hottest thread", "disk sda".
    pub resource_name: String,
    /// Its cap, CPU seconds per second; 1 is all of a resource that is not a CPU.
    pub cap: f64,
    /// Intervals fitted.
    pub n: usize,
    /// Highest rate in the fit.
    pub highest_rate: f64,
    /// Capacity over the highest rate in the fit.
    pub beyond_highest: Option<f64>,
    /// Highest use in the fit, percent of the cap.
    pub reach_percent: f64,
    /// Whether no check speaks against the figure.
    pub trusted: bool,
    /// The statistic that speaks against the figure, with its value.
    pub distrust_statistic: Option<String>,
    /// What that statistic means.
    pub distrust_why: Option<String>,
}

impl CapacityFigure {
    /// Why the capacity is unreliable, if it is.
    pub(crate) fn unreliable(&self) -> Option<String> {
        let (statistic, why) = (self.distrust_statistic.as_ref()?, self.distrust_why.as_ref()?);
        Some(match self.identifiable {
            true => format!("unreliable: {statistic}: {why}"),
            false => format!("unreliable: {statistic}"),
        })
    }
}

/// The sentence about a line that claims more than 100 % idle time at zero load.
pub(crate) fn not_physical(idle: f64, low: f64, high: f64) -> String {
    format!(
        "not physical: {} % idle at zero load ({} to {}); the line is wrong near zero",
        percent(idle),
        percent(low),
        percent(high)
    )
}

/// The measured saturation.
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
    /// Sd of the logarithms of the rates.
    #[serde(skip)]
    pub(crate) log_sd: f64,
    /// Whether the experiment declared them.
    #[serde(skip)]
    pub(crate) declared: bool,
    /// How they are known: the experiment declared them, or the resource was exhausted.
    pub known_by: &'static str,
    /// Whether the interval of the capacity contains the rate; `None` if there is no interval.
    pub held: Option<bool>,
}

/// The three lines of 1998.
#[derive(Clone, Debug, Serialize)]
pub struct Modes {
    /// What the percentages are of.
    pub percent_of: String,
    /// Idle, kernel, user, in this order; empty if no line could be fitted.
    pub lines: Vec<ModeLine>,
    /// Percent that is still idle at the cap: 0 unless the cap is less than the whole resource.
    pub idle_at_cap: f64,
    /// Kernel slope + user slope + idle slope: 0 when the modes account for all time.
    pub closure_gap: f64,
    /// Why there are no lines.
    pub unfit: Option<String>,
}

/// The lines through all intervals, including quiet ones.
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
    /// Percent at zero requests/s.
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
    /// Where the idle line meets zero, requests/s: the capacity as in 1998. `None` for the other
    /// modes, and if it is not identifiable.
    pub x_intercept: Option<f64>,
    /// The whole line.
    #[serde(skip)]
    pub line: regress::Line,
}

impl ModeLine {
    /// Whether the line claims more than 100 % idle time at zero load.
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
    /// Cost of one more request without wakes, microseconds.
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
    /// Its kind.
    pub kind: ResourceKind,
    /// Its name: "hottest thread", "disk sda".
    pub name: String,
    /// Details that are not in its name.
    pub detail: String,
    /// The language, if its lock lets the threads of a process run one at a time, so that there are
    /// fewer CPUs than threads.
    pub takes_turns: Option<&'static str>,
    /// Its cap, CPU seconds per second; 1 is all of a resource that is not a CPU. NaN (in JSON:
    /// null) if it is unknown.
    pub cap: f64,
    /// Whether it may limit the server. A machine that mostly runs other programs is shown but
    /// limits nothing.
    pub may_limit: bool,
    /// Why not.
    pub remark: Option<String>,
    /// Its load line, with all results of `regress`.
    pub line: Option<LoadLine>,
    /// Why there is no load line.
    pub unfit: Option<String>,
    /// Rate and use in percent of the cap, of each fitted interval.
    #[serde(skip)]
    pub points: Vec<(f64, f64)>,
}

/// How an interval was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It was fitted.
    Fit,
    /// It is in the fit of 1998, and the robust fit gave it no weight.
    SetAside,
    /// It was saturated: measured, not fitted.
    Saturation,
    /// It was intended to be saturated, but the resource was far from exhausted: neither measured
    /// nor fitted.
    NotSaturated,
    /// The experiment was warming up.
    WarmUp,
    /// Its rate is not known: the edge of the recording, or late log lines.
    RateInvalid,
    /// Its rate is below the minimum in the options.
    TooQuiet,
    /// The resource has no data in it.
    NotSeen,
    /// Other processes or the hypervisor took the CPU in it.
    Disturbed,
}

impl Standing {
    /// Its label in tables.
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
            Standing::Disturbed => "disturbed",
        }
    }

    /// Whether it belongs to a line.
    pub fn is_fitted(self) -> bool {
        matches!(self, Standing::Fit | Standing::SetAside)
    }
}

/// One interval; percentages are of the cap of the CPU time whose modes are shown.
#[derive(Clone, Debug, Serialize)]
pub struct IntervalRow {
    /// Its number.
    pub index: u64,
    /// Its start, seconds after the start of the trial.
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
    /// The phase that the experiment declared.
    pub phase: Option<String>,
    /// How it was used.
    pub standing: Standing,
}
