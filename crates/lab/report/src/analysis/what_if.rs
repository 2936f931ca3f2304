//! The capacity if a group cost less, nothing, or something else: a prediction that can be stored
//! in the trial and graded once the change is made.

use regress::{Change, LoadLineInput};
use serde::Serialize;
use trial::{Prediction, Trial};

use super::cost::Divided;
use super::figures::CapacityFigure;
use super::fit::{Fitted, Model};
use super::samples::Samples;
use super::{Options, ResourceKind, saturation};
use crate::Error;
use crate::format::three;
use groups::Place;

/// The quantity of predictions of a capacity.
pub const QUANTITY_CAPACITY: &str = "capacity requests/s";
/// Prefix of the names of predictions that [`what_if`] makes.
pub(crate) const NAMED: &str = "what-if ";

/// The question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instead {
    /// The group's cost is multiplied by this: 0 is nothing, 0.5 is half.
    Scale(f64),
    /// The group costs this much CPU time per request, seconds, and nothing at zero load.
    Cost(f64),
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIf {
    /// File name of the trial.
    pub trial: String,
    /// Name of the server.
    pub server: String,
    /// The question, which is the name of the prediction: `what-if select=0`.
    pub name: String,
    /// The group, as `--group` takes it.
    pub group: String,
    /// Its name in tables.
    pub title: String,
    /// Marginal CPU time of the group per request, microseconds.
    pub group_us: f64,
    /// The same after the change.
    pub group_us_after: f64,
    /// Marginal CPU time per request in total, microseconds.
    pub us: f64,
    /// The same after the change.
    pub us_after: f64,
    /// The resource that is exhausted.
    pub resource: ResourceKind,
    /// The model of the capacity, as in the report. The ratio is by the straight line, or by the
    /// line with wakes.
    pub model: &'static str,
    /// Current capacity: that of the report.
    pub before: f64,
    /// Predicted capacity, requests/s.
    pub value: f64,
    /// Lower end of its interval, for a future saturated interval.
    pub low: Option<f64>,
    /// Upper end of it.
    pub high: Option<f64>,
    /// Predicted over current capacity.
    pub ratio: f64,
    /// Lower end of its interval (bootstrap).
    pub ratio_low: Option<f64>,
    /// Upper end of it.
    pub ratio_high: Option<f64>,
    /// Level of the intervals.
    pub level: f64,
    /// Intervals fitted.
    pub n: usize,
    /// The limits of the prediction.
    pub note: &'static str,
    /// Remarks.
    pub remarks: Vec<String>,
}

impl WhatIf {
    /// The prediction to store in the trial.
    #[must_use]
    pub fn prediction(&self, made_at_ns: i64) -> Prediction {
        Prediction {
            name: self.name.clone(),
            made_at_ns,
            quantity: QUANTITY_CAPACITY.to_string(),
            value: self.value,
            low: self.low,
            high: self.high,
            level: self.level,
            model: self.model.to_string(),
        }
    }
}

/// Predicts the capacity of a trial's server if the cost of a group of its profile changed.
///
/// # Errors
/// Those of [`super::analyse`]; a trial without a profile, an unknown group, a change that leaves
/// no identifiable capacity.
pub fn what_if(
    trial: &Trial,
    options: &Options,
    group: &str,
    instead: Instead,
) -> Result<WhatIf, Error> {
    super::check(options)?;
    check(instead)?;
    let name = super::file_name(trial);
    let fits = super::fitted(trial, options, &name)?;
    let main = &fits[0];
    let samples = Samples::of(trial, &options.groups)
        .ok_or_else(|| Error::NoProfile { trial: name.clone() })?;
    let divided = Divided::new(&samples, trial.intervals(), &options.groups, main);
    let (place, key, title) = find(&divided, group, &name)?;
    let (now, _) = saturation::reported(main, trial, options.level);
    let no_prediction = |why: String| Error::NoPrediction { trial: name.clone(), why };
    let reason = || now.reason.clone().unwrap_or_else(|| "the capacity is not known".to_string());
    let before = now.value.ok_or_else(|| no_prediction(reason()))?;
    let series = divided.series(|cell| cell.place == place);
    let wakes = main.wakes().filter(|_| main.headline_model() == Model::Wakes);
    let cost = main.cost();
    let input = LoadLineInput {
        wakes: wakes.as_deref(),
        level: options.level,
        seed: options.seed,
        ..LoadLineInput::new(main.rates(), &cost, main.cap())
    };
    let unfit = |unfit| Error::Unfit { trial: name.clone(), unfit };
    let costs = divided.table(options.level, options.seed).map_err(unfit)?;
    let row = costs.groups.iter().find(|cost| cost.row.group == key);
    let group_us = row.map_or(0.0, |cost| cost.row.us_per_request);
    let (change, group_us_after, written) = match instead {
        Instead::Scale(scale) => {
            (Change::Remove { fraction: 1.0 - scale }, scale * group_us, three_or_whole(scale))
        }
        Instead::Cost(seconds) => {
            let slope = seconds * divided.scale;
            let written = format!("{}ms", three(1e3 * seconds));
            (Change::Replace { intercept: 0.0, slope }, 1e6 * slope, written)
        }
    };
    let predicted = regress::predict(&input, &series, change).map_err(|unfit| match unfit {
        regress::Unfit::NotPositive { what } => no_prediction(format!("{what} is not positive")),
        unfit => Error::Unfit { trial: name.clone(), unfit },
    })?;
    let (ratio_low, ratio_high) = predicted.ratio.interval.bounds().unzip();
    let ratio = (predicted.ratio.value, ratio_low, ratio_high);
    let (value, low, high) = times(before, &now, ratio);
    let us = costs.whole.us_per_request;
    let mut remarks =
        remarks(&fits, &super::fitted_devices(trial, options), (divided.scale, value), &now);
    if predicted.group_is_nothing {
        remarks.push(format!(
            "by its line, nothing of {title} remains at the capacity: what it costs per request \
             falls as the rate rises"
        ));
    }
    Ok(WhatIf {
        server: super::server_name(trial.manifest()),
        name: format!("{NAMED}{key}={written}"),
        trial: name,
        group: key,
        title,
        group_us,
        group_us_after,
        us,
        us_after: us - group_us + group_us_after,
        resource: main.series.kind,
        model: now.model,
        before,
        value,
        low,
        high,
        ratio: ratio.0,
        ratio_low,
        ratio_high,
        level: options.level,
        n: cost.len(),
        note: predicted.note,
        remarks,
    })
}

/// A figure with the ends of its interval.
type Ranged = (f64, Option<f64>, Option<f64>);

/// A capacity times a ratio. The two are estimated apart, so the logarithms of their factors of
/// error add in quadrature. An end that one of the two lacks, or that is negative, is not known.
fn times(value: f64, now: &CapacityFigure, (ratio, least, most): Ranged) -> Ranged {
    let factor = |from: Option<f64>, to: Option<f64>| {
        let [of_value, of_ratio] = [value / from?, ratio / to?].map(f64::ln);
        Some(of_value.hypot(of_ratio).exp()).filter(|factor| factor.is_finite())
    };
    let (low, high) = (factor(now.low, least), factor(now.high, most));
    let after = value * ratio;
    (after, low.map(|factor| after / factor), high.map(|factor| after * factor))
}

fn check(instead: Instead) -> Result<(), Error> {
    let (value, what) = match instead {
        Instead::Scale(scale) => (scale, "the scale of a group's cost"),
        Instead::Cost(seconds) => (seconds, "the new cost of a group"),
    };
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(Error::Option { what: format!("{what} must be a number of at least 0") })
}

/// A group by its name or its title.
fn find(
    divided: &Divided<'_>,
    wanted: &str,
    trial: &str,
) -> Result<(Place, String, String), Error> {
    let names = divided.names();
    let is = |name: &str| name.eq_ignore_ascii_case(wanted);
    let found = names.iter().find(|(_, name, title)| is(name) || is(title));
    found.cloned().ok_or_else(|| Error::NoSuchGroup {
        trial: trial.to_string(),
        group: wanted.to_string(),
        known: names.iter().map(|(_, name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
    })
}

fn three_or_whole(scale: f64) -> String {
    if scale.fract() == 0.0 { format!("{scale:.0}") } else { three(scale) }
}

fn remarks(
    fits: &[Fitted],
    devices: &[Fitted],
    (scale, predicted): (f64, f64),
    now: &CapacityFigure,
) -> Vec<String> {
    let mut remarks = Vec::new();
    remarks.extend(now.unreliable().map(|why| format!("the line itself is {why}")));
    if scale < 0.95 {
        remarks.push(format!(
            "the resource is one thread with {:.0} % of the server's CPU time, and is assumed to \
             have that share of every group",
            100.0 * scale
        ));
    }
    let others = fits[1..].iter().chain(devices);
    let next = others.filter_map(|fit| Some((&fit.series.name, fit.limit()?)));
    for (name, limit) in next.filter(|(_, limit)| *limit < predicted) {
        let limit = crate::format::rate(limit);
        remarks.push(format!("{name} would be exhausted before that, at {limit} requests/s"));
    }
    remarks
}
