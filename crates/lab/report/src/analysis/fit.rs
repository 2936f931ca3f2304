//! One resource and its line: which intervals are fitted, and the figures of the line.

use regress::{Capacity, Headline, Interval as Bounds, LoadLine, LoadLineInput, Marginal, Trust};
use trial::{Interval, Trial};

use super::figures::{MODEL_BUSY, MODEL_STRAIGHT, MODEL_WAKES};
use super::resource::{Series, Use};
use super::{
    CapacityFigure, ModeLine, Modes, Options, PHASE_SATURATION, PHASE_WARM_UP, Resource,
    ResourceKind, Standing, WakesLine,
};
use super::{others, stretches};
use crate::format::rate;

/// From this use on a resource is saturated: such intervals lie on the cap, not on the line.
const AT_THE_CAP_PERCENT: f64 = 98.5;

/// A server is saturated if fewer of its requests find it asleep: with independent arrivals, that
/// is the part of the time in which it has nothing to do. It may use less than all of its CPU, if
/// others take the rest.
const ASLEEP_SATURATED: f64 = 0.015;
/// From this part on it does sleep.
const ASLEEP_SOME: f64 = 0.1;

/// The least use of an interval that an experiment declared saturated. If a hypervisor or another
/// process takes CPU time, a saturated thread stays below its cap, but not far below.
const SATURATED_PERCENT_MIN: f64 = 80.0;

/// The machine limits the server only if the server has at least this share of its busy time.
pub(super) const MACHINE_SHARE_MIN: f64 = 0.8;

/// One resource with its line.
pub(super) struct Fitted {
    pub(super) series: Series,
    /// The use at which it counts as exhausted: all of it, or less by the user's choice.
    cap: f64,
    pub(super) standings: Vec<Standing>,
    /// Rows of the fit, as indices of the trial's intervals.
    rows: Vec<usize>,
    rates: Vec<f64>,
    may_limit: bool,
    remark: Option<String>,
    line: Result<LoadLine, regress::Unfit>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Model {
    Straight,
    Wakes,
}

impl Fitted {
    pub(super) fn new(
        series: Series,
        trial: &Trial,
        options: &Options,
        share: Option<f64>,
    ) -> Fitted {
        let intervals = trial.intervals();
        let cap = options.cap.filter(|_| series.kind.has_modes()).unwrap_or(series.cap);
        let mut standings = standings(&series, trial, options.above);
        let rows: Vec<usize> =
            (0..intervals.len()).filter(|&row| standings[row].is_fitted()).collect();
        let uses: Vec<Use> = rows.iter().filter_map(|&row| series.uses[row]).collect();
        let rates: Vec<f64> = rows.iter().map(|&row| intervals[row].rate()).collect();
        let cost: Vec<f64> = uses.iter().map(|used| used.busy() / 100.0 * series.cap).collect();
        let wakes: Option<Vec<f64>> = uses.iter().map(|used| used.wakes).collect();
        let marginal = marginal(&series, trial, &rows);
        let line = regress::load_line(&LoadLineInput {
            wakes: wakes.as_deref().filter(|wakes| !wakes.is_empty()),
            level: options.level,
            seed: options.seed,
            cpu_time: series.kind.is_cpu_time(),
            processes_alternate: series.processes_alternate,
            marginal,
            full: series.cap.max(cap),
            ..LoadLineInput::new(&rates, &cost, cap)
        });
        if let Ok(line) = &line {
            for &row in set_aside(line) {
                standings[rows[row]] = Standing::SetAside;
            }
        }
        let remark = series.why_not_limiting.clone().or_else(|| other_load(series.kind, share));
        let may_limit = remark.is_none();
        Fitted { series, cap, standings, rows, rates, may_limit, remark, line }
    }

    /// The rows of the fit, as indices of the trial's intervals.
    pub(super) fn rows(&self) -> &[usize] {
        &self.rows
    }

    /// Their rates.
    pub(super) fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// The use at which the resource counts as exhausted.
    pub(super) fn cap(&self) -> f64 {
        self.cap
    }

    /// Whether it limits the server when it is exhausted.
    pub(super) fn may_limit(&self) -> bool {
        self.may_limit
    }

    fn column(&self, of: impl Fn(&Use) -> f64) -> Vec<f64> {
        self.rows.iter().filter_map(|&row| self.series.uses[row].as_ref().map(&of)).collect()
    }

    /// CPU seconds per second of the resource in each row.
    pub(super) fn cost(&self) -> Vec<f64> {
        self.column(|used| used.busy() / 100.0 * self.series.cap)
    }

    /// The same in user mode and in kernel mode.
    pub(super) fn modes_cost(&self) -> (Vec<f64>, Vec<f64>) {
        let part = |of: fn(&Use) -> f64| self.column(|used| of(used) / 100.0 * self.series.cap);
        (part(|used| used.user), part(|used| used.kernel))
    }

    /// Percent of the resource in a mode (`idle`, `kernel`, else user) in each row.
    pub(super) fn percent(&self, mode: &str) -> Vec<f64> {
        match mode {
            "idle" => self.column(|used| used.idle),
            "kernel" => self.column(|used| used.kernel),
            _ => self.column(|used| used.user),
        }
    }

    /// Wakes per second in each row, if they are known in all rows.
    pub(super) fn wakes(&self) -> Option<Vec<f64>> {
        let wakes = self.rows.iter().map(|&row| self.series.uses[row].and_then(|used| used.wakes));
        wakes.collect::<Option<Vec<f64>>>().filter(|wakes| !wakes.is_empty())
    }

    pub(super) fn line(&self) -> Option<&LoadLine> {
        self.line.as_ref().ok()
    }

    /// Why there is no line.
    pub(super) fn unfit(&self) -> Option<&regress::Unfit> {
        self.line.as_ref().err()
    }

    /// The number of intervals that a line needs, if there are too few.
    pub(super) fn too_few(&self) -> Option<usize> {
        match self.line {
            Err(regress::Unfit::TooFew { needed, .. }) => Some(needed),
            _ => None,
        }
    }

    pub(super) fn headline_model(&self) -> Model {
        match self.line().map(|line| &line.headline) {
            Some(Headline::WithWakes { .. }) => Model::Wakes,
            _ => Model::Straight,
        }
    }

    /// The capacity for comparisons between resources.
    pub(super) fn limit(&self) -> Option<f64> {
        let capacity = self.line()?.capacity();
        let usable = self.may_limit && capacity.identifiable.is_ok();
        usable.then_some(capacity.value)
    }

    /// Whether more is known of the capacity than a bound.
    pub(super) fn is_known(&self) -> bool {
        let bounds = self.line().and_then(|line| line.capacity().interval.bounds());
        let (low, high) = bounds.unzip();
        regress::capacity::at_least(low, high, 0.0).is_none()
    }

    /// The highest use in the fit, as a share of the cap.
    pub(super) fn reach(&self) -> f64 {
        self.line().map_or(0.0, |line| line.reach)
    }

    pub(super) fn capacity(&self, model: Model, level: f64) -> CapacityFigure {
        let highest_rate = self.rates.iter().copied().fold(0.0, f64::max);
        let mut figure = CapacityFigure {
            level,
            model: if model == Model::Wakes { MODEL_WAKES } else { MODEL_STRAIGHT },
            resource: self.series.kind,
            resource_name: self.series.name.clone(),
            cap: self.cap,
            n: self.rows.len(),
            highest_rate,
            ..CapacityFigure::default()
        };
        match &self.line {
            Ok(line) => figure.fill(line, own_capacity(line, model)),
            Err(unfit) => figure.reason = Some(unfit.to_string()),
        }
        figure
    }

    /// The capacity by the headline, or by the line of a busy CPU if the data end too early.
    pub(super) fn headline_capacity(&self, level: f64) -> CapacityFigure {
        let mut figure = self.capacity(self.headline_model(), level);
        if let Ok(line) = &self.line {
            figure.fill(line, line.capacity());
            if let Some(busy) = &line.busy {
                figure.model = MODEL_BUSY;
                let varied = line.straight.capacity.identifiable.is_ok();
                figure.model_why = match busy.marginal {
                    Some(seen) => by_turns(seen, varied.then_some(busy.alone)),
                    None if busy.assumed => {
                        "the data end early; wakes are not known, and assumed".into()
                    }
                    None => "the data end early".into(),
                };
            }
        }
        figure
    }

    pub(super) fn modes(&self) -> Modes {
        let [user, kernel, idle] = ["user", "kernel", "idle"].map(|mode| self.percent(mode));
        let weights = vec![1.0; self.rates.len()];
        let percent_of = match self.series.kind {
            ResourceKind::HottestThread => "one CPU".to_string(),
            ResourceKind::Server => format!("the CPUs of its {}", self.series.detail),
            ResourceKind::Machine => format!("the machine's {}", self.series.detail),
            _ => self.series.name.clone(),
        };
        let idle_at_cap = 100.0 * (1.0 - self.cap / self.series.cap);
        match regress::modes_fit_weighted(&self.rates, &user, &kernel, &idle, &weights) {
            Err(unfit) => {
                let unfit = Some(unfit.to_string());
                Modes { percent_of, lines: Vec::new(), idle_at_cap, closure_gap: 0.0, unfit }
            }
            Ok(fit) => Modes {
                percent_of,
                idle_at_cap,
                closure_gap: fit.closure.gap,
                lines: [("idle", fit.idle), ("kernel", fit.kernel), ("user", fit.user)]
                    .into_iter()
                    .map(|(mode, line)| self.mode_line(mode, line))
                    .collect(),
                unfit: None,
            },
        }
    }

    pub(super) fn mode_line(&self, mode: &'static str, line: regress::Line) -> ModeLine {
        let meets_zero = line.reaches(0.0);
        let identifiable =
            self.line().is_some_and(|line| line.straight.capacity.identifiable.is_ok());
        let is_capacity =
            identifiable && mode == "idle" && meets_zero.is_finite() && meets_zero > 0.0;
        // One percent of the full resource per request/s is this many microseconds per request.
        let us_per_percent = 1e4 * self.series.cap;
        ModeLine {
            mode,
            intercept: line.intercept,
            slope: line.slope,
            slope_se: line.se_slope,
            us_per_request: line.slope * us_per_percent,
            correlation: line.correlation,
            n: line.n,
            x_intercept: is_capacity.then_some(meets_zero),
            line,
        }
    }

    pub(super) fn wakes_line(&self) -> Option<WakesLine> {
        let fit = self.line()?.with_wakes.as_ref()?;
        Some(WakesLine {
            fixed_percent: 100.0 * fit.a / self.series.cap,
            us_per_request: fit.b * 1e6,
            us_per_wake: fit.w * 1e6,
            t: fit.w_t,
            p: fit.w_p,
            r_squared: fit.r_squared,
            variance_inflation: fit.collinearity.vif,
        })
    }

    /// Rate and percent of the cap in each row.
    fn points(&self) -> Vec<(f64, f64)> {
        let percent = |cost: f64| 100.0 * cost / self.cap;
        self.rates.iter().copied().zip(self.cost().into_iter().map(percent)).collect()
    }

    pub(super) fn resource(&self) -> Resource {
        Resource {
            kind: self.series.kind,
            name: self.series.name.clone(),
            detail: self.series.detail.clone(),
            takes_turns: self.series.takes_turns,
            cap: self.cap,
            may_limit: self.may_limit,
            remark: self.remark.clone(),
            line: self.line().cloned(),
            unfit: self.line.as_ref().err().map(ToString::to_string),
            points: self.points(),
        }
    }
}

/// On which evidence a capacity is based, with the capacity by the line alone if there is one.
fn by_turns(seen: Marginal, alone: Option<f64>) -> String {
    let held = if seen.held { " and catching up after holds" } else { "" };
    let alone = match alone {
        Some(alone) => format!("; the line alone gives {}/s", rate(alone)),
        None => ", and the rate need not vary".to_string(),
    };
    format!("the data end early; turns{held} show what a request costs a busy CPU{alone}")
}

impl CapacityFigure {
    pub(super) fn fill(&mut self, line: &LoadLine, capacity: &Capacity) {
        let ends = |bounds: &Bounds| bounds.bounds().unzip();
        self.reach_percent = 100.0 * line.reach;
        self.model_why = match &line.headline {
            Headline::Straight { why } | Headline::WithWakes { why } => why.clone(),
        };
        match &line.trusted {
            Trust::Yes => self.trusted = true,
            Trust::Unreliable { statistic, why } => {
                self.distrust_statistic = Some(statistic.clone());
                self.distrust_why = Some(why.clone());
            }
        }
        if let Err(why) = &capacity.identifiable {
            self.reason = Some(why.to_string());
            self.plain = Some(why.plain());
            return;
        }
        self.identifiable = true;
        self.value = Some(capacity.value);
        (self.low, self.high) = ends(&capacity.interval);
        (self.line_low, self.line_high) = ends(&capacity.line_interval);
        (self.bootstrap_low, self.bootstrap_high) = ends(&capacity.bootstrap);
        self.beyond_highest = Some(capacity.value / line.highest_rate);
        if let Bounds::Unbounded { reason } = &capacity.interval {
            self.reason = Some(reason.clone());
        }
    }
}

/// The capacity of one of the two lines, with its own interval.
fn own_capacity(line: &LoadLine, model: Model) -> &Capacity {
    match (model, &line.with_wakes) {
        (Model::Wakes, Some(fit)) => &fit.capacity,
        _ => &line.straight.capacity,
    }
}

/// The rows that the robust fit of the headline model set aside.
fn set_aside(line: &LoadLine) -> &[usize] {
    match (&line.headline, &line.with_wakes) {
        (Headline::WithWakes { .. }, Some(fit)) => &fit.robust.set_aside,
        _ => &line.straight.robust.set_aside,
    }
}

/// How each interval is used, before any fit.
pub(super) fn standings(series: &Series, trial: &Trial, above: f64) -> Vec<Standing> {
    let intervals = trial.intervals();
    let is_cpu_time = series.kind.is_cpu_time();
    let disturbed = others::disturbed(trial);
    let asleep = |at: usize| Some(series.uses[at]?.wakes? / intervals[at].rate());
    // A thread that never sleeps spends its CPU time waiting, and not sleeping says nothing.
    let sleeps = (0..intervals.len()).any(|at| asleep(at) >= Some(ASLEEP_SOME));
    let one = |at: usize| {
        let standing = standing(&intervals[at], series.uses[at], above);
        let busy = series.uses[at].map_or(0.0, Use::busy);
        let awake = sleeps && asleep(at) < Some(ASLEEP_SATURATED) && asleep(at).is_some();
        match standing {
            Standing::Fit if !is_cpu_time => Standing::Fit,
            Standing::Fit
                if awake
                    && busy >= SATURATED_PERCENT_MIN
                    && others::full_cpus(&intervals[at]) > 0 =>
            {
                Standing::Saturation
            }
            Standing::Fit if disturbed[at] => Standing::Disturbed,
            standing => standing,
        }
    };
    (0..intervals.len()).map(one).collect()
}

fn standing(interval: &Interval, used: Option<Use>, above: f64) -> Standing {
    let Some(used) = used else { return Standing::NotSeen };
    match interval.phase.as_deref() {
        Some(PHASE_WARM_UP) => return Standing::WarmUp,
        _ if !interval.rate_valid => return Standing::RateInvalid,
        Some(PHASE_SATURATION) if used.busy() < SATURATED_PERCENT_MIN => {
            return Standing::NotSaturated;
        }
        Some(PHASE_SATURATION) => return Standing::Saturation,
        _ => {}
    }
    if used.busy() >= AT_THE_CAP_PERCENT {
        Standing::Saturation
    } else if interval.rate() < above {
        Standing::TooQuiet
    } else {
        Standing::Fit
    }
}

/// What a request costs the resource at saturation, if turns and busy periods show it.
pub(super) fn marginal(series: &Series, trial: &Trial, rows: &[usize]) -> Option<Marginal> {
    let share = series.share_of_server?;
    let of_server = stretches::marginal(trial, rows)?;
    Some(Marginal { at_cap: share * of_server.at_cap, ..of_server })
}

/// Why the machine does not limit the server: other processes use much of it.
pub(super) fn other_load(kind: ResourceKind, share: Option<f64>) -> Option<String> {
    let share =
        share.filter(|share| kind == ResourceKind::Machine && *share < MACHINE_SHARE_MIN)?;
    Some(format!("server share {:.0} %", 100.0 * share))
}
