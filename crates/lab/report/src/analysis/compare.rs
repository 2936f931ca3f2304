//! The comparison of two trials: what changed, whether it is significant, and whether predictions
//! came true.
//!
//! The verdict is based on the cost of a request at the same load ([`super::same_load`]), on the
//! measured saturation if both trials have one, and on what a request costs while the server
//! catches up if both servers were held. The intervals of both include the sd between
//! runs, because two runs of one server differ too. Capacities are taken from the reports.
//! Capacities are mostly beyond the recorded rates and depend on how far each trial reached, so
//! they do not decide the verdict. The tests of modes, groups and procedures show where these two
//! runs differ. These tests say nothing about other runs.

use regress::compare::{equivalent, interaction};
use regress::{Coefficient, Cost, benjamini_hochberg, difference};
use serde::Serialize;
use trial::{Prediction, Trial};

use super::cost::{CostTable, Divided};
use super::fit::Fitted;
use super::ratio::{CompareOptions, Ratio, Verdict};
use super::same_load::{Party, SameLoadCost, same_load, saturation_ratio};
use super::samples::{Procedure, Samples};
use super::what_if::{NAMED, QUANTITY_CAPACITY};
use super::{
    CapacityFigure, Options, ResourceKind, Saturation, not_physical, same_load, saturation,
};
use crate::Error;

/// Most procedures that are compared, the largest of either trial first.
const PROCEDURES_MAX: usize = 200;
/// A procedure is compared if it has this share of the sampled time in either trial.
const PROCEDURE_SHARE_MIN: f64 = 0.005;

/// The comparison of two trials.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The first.
    pub before: Side,
    /// The second.
    pub after: Side,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason for the verdict.
    pub why: String,
    /// What to do if the verdict is inconclusive.
    pub advice: Option<String>,
    /// Cost of a request at the same load, after over before; `None` if the loads have too little
    /// in common.
    pub cost: Option<SameLoadCost>,
    /// Measured saturation, after over before, if both trials have one.
    pub saturation: Option<Ratio>,
    /// Cost of a request at saturation by turns and after holds, after over before, if both were
    /// held.
    pub catching_up: Option<Ratio>,
    /// Capacity as reported, after over before. It decides nothing. `None` unless both are known.
    pub capacity: Option<Ratio>,
    /// Changes within this many percent count as no change.
    pub margin_percent: f64,
    /// Level of the intervals.
    pub level: f64,
    /// Changes of the slopes of idle, kernel and user time.
    pub modes: Vec<ModeChange>,
    /// Groups, the largest change first; empty unless both trials have a profile.
    pub groups: Vec<PartChange>,
    /// Procedures, the largest change first.
    pub procedures: Vec<PartChange>,
    /// The predictions of the first trial, compared with the second.
    pub graded: Vec<Graded>,
    /// Remarks.
    pub remarks: Vec<String>,
}

/// One of the trials.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// File name of the trial.
    pub trial: String,
    /// Name of the server.
    pub server: String,
    /// Its capacity, as in its report.
    pub capacity: CapacityFigure,
    /// Its measured saturation.
    pub saturation: Option<Saturation>,
    /// Marginal cost of a request by the straight line, microseconds.
    pub us_per_request: f64,
    /// Idle time at zero load by the straight line, percent.
    pub idle_at_zero: Option<f64>,
    /// Lower end of its interval.
    pub idle_at_zero_low: Option<f64>,
    /// Upper end of it.
    pub idle_at_zero_high: Option<f64>,
    /// False if that is more than 100 %.
    pub physical: bool,
}

/// The slope of a mode.
#[derive(Clone, Debug, Serialize)]
pub struct ModeChange {
    /// `idle`, `kernel` or `user`.
    pub mode: &'static str,
    /// Percent per request/s, before.
    pub before: f64,
    /// After.
    pub after: f64,
    /// t of the difference.
    pub t: f64,
    /// Its p.
    pub p: f64,
    /// Whether p is below 1 minus the level.
    pub significant: bool,
}

/// The marginal cost of a group or a procedure.
#[derive(Clone, Debug, Serialize)]
pub struct PartChange {
    /// Its name in tables.
    pub name: String,
    /// The procedure, if it is one.
    pub procedure: Option<Procedure>,
    /// Microseconds per request, before.
    pub us_before: f64,
    /// After.
    pub us_after: f64,
    /// After minus before.
    pub us_change: f64,
    /// p of the difference.
    pub p: f64,
    /// q among all compared parts (Benjamini–Hochberg).
    pub q: f64,
    /// Whether q is within the accepted rate of false positives.
    pub significant: bool,
}

/// A prediction and the actual value.
#[derive(Clone, Debug, Serialize)]
pub struct Graded {
    /// The prediction.
    pub prediction: Prediction,
    /// The actual value, requests/s: the measured saturation, or else the capacity.
    pub came: Option<f64>,
    /// Whether the actual value was measured.
    pub measured: bool,
    /// The actual value over the predicted one.
    pub ratio: Option<f64>,
    /// The grade.
    pub grade: Grade,
}

/// The grade of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    /// The actual value is in its interval.
    Held,
    /// The actual value and its interval are outside.
    Missed,
    /// The actual value is outside, but its own interval is not; or there is no actual value.
    Inconclusive,
}

/// A trial with its fits.
struct Fits {
    name: String,
    all: Vec<Fitted>,
    samples: Option<Samples>,
}

impl Fits {
    fn of(trial: &Trial, options: &Options) -> Result<Fits, Error> {
        let name = super::file_name(trial);
        let all = super::fitted(trial, options, &name)?;
        Ok(Fits { name, all, samples: Samples::of(trial, &options.groups) })
    }

    fn main(&self) -> &Fitted {
        &self.all[0]
    }

    fn party<'a>(&'a self, trial: &'a Trial) -> Party<'a> {
        Party { trial, name: &self.name, main: self.main() }
    }
}

/// Compares two trials.
///
/// # Errors
/// Those of [`super::analyse`] for either trial; an option out of its range.
pub fn compare(
    before: &Trial,
    after: &Trial,
    options: &CompareOptions,
) -> Result<Comparison, Error> {
    check(options)?;
    let old = Fits::of(before, &options.analysis)?;
    // The same resource must be compared in both trials.
    let kind = options.analysis.resource.unwrap_or(old.main().series.kind);
    let same = Options { resource: Some(kind), ..options.analysis.clone() };
    let tightest = Fits::of(after, &options.analysis)?;
    let (new, mut remarks) = match Fits::of(after, &same) {
        Ok(new) => (new, Vec::new()),
        Err(Error::NoSuchResource { .. }) => {
            let text =
                format!("{} has no {}; another resource is compared", tightest.name, kind.label());
            (Fits::of(after, &options.analysis)?, vec![text])
        }
        Err(error) => return Err(error),
    };
    let sides = [side(before, &old, options), side(after, &new, options)];
    remarks.extend(limit_remark(&new, tightest.main().series.kind));
    for (trial, fits) in [(before, &old), (after, &new)] {
        remarks.extend(device_remark(trial, fits, &options.analysis));
    }
    for side in &sides {
        remarks.extend(side_remarks(side));
    }
    let cost = same_load(old.party(before), new.party(after), options)?;
    let [one, other] = &sides;
    let capacity = capacity_ratio(&one.capacity, &other.capacity, options.margin);
    if capacity.is_some() && one.capacity.model != other.capacity.model {
        let models = [one, other].map(|side| crate::facts::model_name(&side.capacity));
        remarks.push(format!(
            "the capacity is by {} before and by {} after: the two differ for that reason too",
            models[0], models[1]
        ));
    }
    let saturation = saturation_ratio(one.saturation.as_ref(), other.saturation.as_ref(), options);
    let catching_up = same_load::catching_up(old.party(before), new.party(after), options);
    let (verdict, why, advice) =
        same_load::verdict(&cost, saturation.as_ref(), catching_up.as_ref(), options.margin);
    let (groups, procedures) = parts((before, &old), (after, &new), options, &mut remarks);
    let graded = graded(before.predictions(), &sides[1]);
    let [before, after] = sides;
    Ok(Comparison {
        before,
        after,
        verdict,
        why,
        advice,
        cost: cost.ok(),
        saturation,
        catching_up,
        capacity,
        margin_percent: 100.0 * options.margin,
        level: options.analysis.level,
        modes: modes(&old, &new, options.analysis.level),
        groups,
        procedures,
        graded,
        remarks,
    })
}

fn check(options: &CompareOptions) -> Result<(), Error> {
    super::check(&options.analysis)?;
    let CompareOptions { margin, between_run, false_alarms, .. } = *options;
    super::require(&[
        (margin > 0.0 && margin < 1.0, "the margin must lie between 0 and 100 %"),
        (
            between_run.is_none_or(|sd| (0.0..1.0).contains(&sd)),
            "the sd between runs must lie between 0 and 100 %",
        ),
        (
            false_alarms > 0.0 && false_alarms < 1.0,
            "the rate of false alarms must lie between 0 and 1",
        ),
    ])
}

fn side(trial: &Trial, fits: &Fits, options: &CompareOptions) -> Side {
    let (main, level) = (fits.main(), options.analysis.level);
    let (capacity, saturation) = saturation::reported(main, trial, level);
    let modes = main.modes();
    let idle = modes.lines.iter().find(|line| line.mode == "idle");
    let ends = idle.map(|idle| idle.line.band(0.0, level));
    Side {
        trial: fits.name.clone(),
        server: super::server_name(trial.manifest()),
        saturation,
        us_per_request: main.line().map_or(f64::NAN, |line| 1e6 * line.straight.line.slope),
        idle_at_zero: idle.map(|idle| idle.intercept),
        idle_at_zero_low: ends.map(|(low, _)| low),
        idle_at_zero_high: ends.map(|(_, high)| high),
        physical: idle.is_none_or(|idle| !idle.not_physical()),
        capacity,
    }
}

/// A remark if another resource than the compared one is the tightest now.
fn limit_remark(new: &Fits, tightest: ResourceKind) -> Option<String> {
    let compared = new.main().series.kind;
    (compared != tightest).then(|| {
        format!("{} is now limited by {}, not by {}", new.name, tightest.label(), compared.label())
    })
}

/// A remark if a device is exhausted before the CPU time that is compared.
fn device_remark(trial: &Trial, fits: &Fits, options: &Options) -> Option<String> {
    let devices = super::fitted_devices(trial, options);
    let first = super::tighter(fits.main(), &devices)?;
    Some(format!(
        "{}: {} is exhausted first, at {} requests/s; the comparison is of CPU time",
        fits.name,
        first.series.name,
        crate::format::rate(first.limit()?)
    ))
}

fn side_remarks(side: &Side) -> Vec<String> {
    let mut remarks = Vec::new();
    if let (false, Some(idle)) = (side.physical, side.idle_at_zero) {
        let ends = side.idle_at_zero_low.zip(side.idle_at_zero_high);
        let (low, high) = ends.unwrap_or((f64::NAN, f64::NAN));
        remarks.push(format!("{}: {}", side.trial, not_physical(idle, low, high)));
    }
    let unreliable = side.capacity.unreliable();
    remarks.extend(unreliable.map(|why| format!("{}: {why}", side.trial)));
    remarks
}

/// The capacity after over before, each estimated from its own trial. The factors of error of two
/// independent estimates add in quadrature on a logarithmic scale.
fn capacity_ratio(before: &CapacityFigure, after: &CapacityFigure, margin: f64) -> Option<Ratio> {
    let (old, new) = (before.value?, after.value?);
    let value = new / old;
    let factor = |of_new: Option<f64>, of_old: Option<f64>| {
        let factor = (of_new? / new).ln().hypot((of_old? / old).ln()).exp();
        factor.is_finite().then_some(factor)
    };
    let low = |new, old| factor(new, old).map(|factor| value / factor);
    let high = |new, old| factor(new, old).map(|factor| value * factor);
    let (runs_low, runs_high) = (low(after.low, before.high), high(after.high, before.low));
    let bounds = runs_low.zip(runs_high);
    let interval = bounds.map(|(low, high)| regress::Interval::Bounded { low, high });
    Some(Ratio {
        value,
        low: low(after.line_low, before.line_high),
        high: high(after.line_high, before.line_low),
        runs_low,
        runs_high,
        equivalent: interval.is_some_and(|interval| equivalent(&interval, margin)),
    })
}

fn modes(old: &Fits, new: &Fits, level: f64) -> Vec<ModeChange> {
    let (before, after) = (old.main().modes(), new.main().modes());
    let series = |fits: &Fits, mode: &str| fits.main().percent(mode);
    before
        .lines
        .iter()
        .zip(&after.lines)
        .filter_map(|(one, other)| {
            let (x, y) = (series(old, one.mode), series(new, other.mode));
            let test = interaction((old.main().rates(), &x), (new.main().rates(), &y)).ok()?;
            Some(ModeChange {
                mode: one.mode,
                before: one.slope,
                after: other.slope,
                t: test.statistic,
                p: test.p,
                significant: test.p < 1.0 - level,
            })
        })
        .collect()
}

/// Groups and procedures, if both trials have a profile.
fn parts(
    (before, old): (&Trial, &Fits),
    (after, new): (&Trial, &Fits),
    options: &CompareOptions,
    remarks: &mut Vec<String>,
) -> (Vec<PartChange>, Vec<PartChange>) {
    let (Some(one), Some(other)) = (&old.samples, &new.samples) else {
        let lacks = match (&old.samples, &new.samples) {
            (None, None) => return (Vec::new(), Vec::new()),
            (None, _) => &old.name,
            _ => &new.name,
        };
        remarks.push(format!("{lacks} has no profile: groups are not compared"));
        return (Vec::new(), Vec::new());
    };
    let groups = &options.analysis.groups;
    let one = Divided::new(one, before.intervals(), groups, old.main());
    let other = Divided::new(other, after.intervals(), groups, new.main());
    if (one.scale / other.scale).ln().abs() > 0.05 {
        remarks.push(format!(
            "the limiting thread has {:.0} % of the server's CPU time before and {:.0} % after: \
             costs by group are of that thread",
            100.0 * one.scale,
            100.0 * other.scale
        ));
    }
    let Options { level, seed, .. } = options.analysis;
    let (Ok(a), Ok(b)) = (one.table(level, seed), other.table(level, seed)) else {
        return (Vec::new(), Vec::new());
    };
    let by_group = changes(group_costs(&a), group_costs(&b), options.false_alarms);
    let mut wanted = one.procedures(PROCEDURE_SHARE_MIN, PROCEDURES_MAX);
    wanted.extend(other.procedures(PROCEDURE_SHARE_MIN, PROCEDURES_MAX));
    wanted.sort();
    wanted.dedup();
    let costs = |divided: &Divided<'_>| divided.costs_of(&wanted, level, seed);
    let (Ok(a), Ok(b)) = (costs(&one), costs(&other)) else { return (by_group, Vec::new()) };
    let named = |costs: Vec<Cost>| -> Vec<(String, Option<Procedure>, Cost)> {
        let named = wanted.iter().zip(costs);
        named.map(|(procedure, cost)| (procedure.label(), Some(procedure.clone()), cost)).collect()
    };
    (by_group, changes(named(a), named(b), options.false_alarms))
}

type Named = (String, Option<Procedure>, Cost);

fn group_costs(table: &CostTable) -> Vec<Named> {
    let rows = table.groups.iter().map(|group| &group.row).chain([&table.unsampled]);
    rows.map(|row| (row.name.clone(), None, row.cost.clone())).collect()
}

/// A part that is only in one trial costs nothing in the other.
fn changes(before: Vec<Named>, after: Vec<Named>, false_alarms: f64) -> Vec<PartChange> {
    let nothing = Coefficient { value: 0.0, se: 0.0, low: 0.0, high: 0.0, dof: 1.0 };
    let mut keys: Vec<(String, Option<Procedure>)> = Vec::new();
    for (name, procedure, _) in before.iter().chain(&after) {
        let key = (name.clone(), procedure.clone());
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let of = |list: &[Named], key: &(String, Option<Procedure>)| {
        let found = list.iter().find(|(name, procedure, _)| *name == key.0 && *procedure == key.1);
        found.map_or(nothing, |(_, _, cost)| cost.marginal())
    };
    let pairs: Vec<(Coefficient, Coefficient)> =
        keys.iter().map(|key| (of(&before, key), of(&after, key))).collect();
    let p_values: Vec<f64> = pairs.iter().map(|(old, new)| difference(old, new).p).collect();
    let q_values = benjamini_hochberg(&p_values);
    let mut changes: Vec<PartChange> = keys
        .into_iter()
        .zip(&pairs)
        .zip(p_values.iter().zip(&q_values))
        .map(|(((name, procedure), (old, new)), (&p, &q))| PartChange {
            name,
            procedure,
            us_before: 1e6 * old.value,
            us_after: 1e6 * new.value,
            us_change: 1e6 * (new.value - old.value),
            p,
            q,
            significant: q <= false_alarms,
        })
        .collect();
    changes.sort_by(|a, b| b.us_change.abs().total_cmp(&a.us_change.abs()));
    changes
}

/// Grades predictions by the measured saturation of the trial after, or else by its capacity.
fn graded(predictions: &[Prediction], after: &Side) -> Vec<Graded> {
    let (came, ends) = match &after.saturation {
        Some(saturation) => {
            (Some(saturation.rate), Some((saturation.rate_min, saturation.rate_max)))
        }
        None => {
            let capacity = &after.capacity;
            (capacity.value, capacity.line_low.zip(capacity.line_high))
        }
    };
    let what_ifs = predictions
        .iter()
        .filter(|kept| kept.name.starts_with(NAMED) && kept.quantity == QUANTITY_CAPACITY);
    what_ifs
        .map(|kept| {
            let low = kept.low.unwrap_or(f64::NEG_INFINITY);
            let high = kept.high.unwrap_or(f64::INFINITY);
            let bounded = kept.low.is_some() || kept.high.is_some();
            let grade = match came {
                Some(came) if bounded && (low..=high).contains(&came) => Grade::Held,
                Some(_)
                    if bounded && ends.is_some_and(|(least, most)| most < low || least > high) =>
                {
                    Grade::Missed
                }
                _ => Grade::Inconclusive,
            };
            Graded {
                prediction: kept.clone(),
                came,
                measured: after.saturation.is_some(),
                ratio: came.map(|came| came / kept.value),
                grade,
            }
        })
        .collect()
}
