//! What capacity would be if a group cost less, nothing, or something else; as a prediction that
//! can be kept with the trial and graded when the change is there.

use regress::{Change, LoadLineInput};
use serde::Serialize;
use trial::{Prediction, Trial};

use super::cost::Divided;
use super::fit::{Fitted, Model};
use super::model::{MODEL_STRAIGHT, MODEL_WAKES};
use super::samples::Samples;
use super::{Options, ResourceKind};
use crate::Error;
use crate::format::three;
use crate::groups::Place;

/// What predictions of a capacity say that they foretell.
pub const QUANTITY_CAPACITY: &str = "capacity requests/s";
/// How the names of predictions begin that [`what_if`] made.
pub(crate) const NAMED: &str = "what-if ";

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Instead {
    /// The group costs this many times what it does: 0 is nothing, 0.5 half.
    Scale(f64),
    /// The group costs this much CPU time a request, seconds, and nothing when nobody asks.
    Cost(f64),
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct WhatIf {
    /// File name of the trial.
    pub trial: String,
    /// Name of the server.
    pub server: String,
    /// What was asked, as the prediction is called: `what-if select=0`.
    pub name: String,
    /// The group, as `--group` takes it.
    pub group: String,
    /// What it is called in a table.
    pub title: String,
    /// CPU time of a request in the group, microseconds; the line's marginal cost.
    pub group_us: f64,
    /// What it would be.
    pub group_us_after: f64,
    /// CPU time of a request in all, microseconds.
    pub us: f64,
    /// What it would be.
    pub us_after: f64,
    /// The resource that is used up.
    pub resource: ResourceKind,
    /// `straight` (by MM) or `wakes`.
    pub model: &'static str,
    /// Capacity as it is, by the same line.
    pub before: f64,
    /// Capacity foretold, requests/s.
    pub value: f64,
    /// Lower end of its interval, for a future saturated interval.
    pub low: Option<f64>,
    /// Upper end of it.
    pub high: Option<f64>,
    /// Capacity foretold over capacity.
    pub ratio: f64,
    /// Lower end of its interval (bootstrap).
    pub ratio_low: Option<f64>,
    /// Upper end of it.
    pub ratio_high: Option<f64>,
    /// Level of the intervals.
    pub level: f64,
    /// Intervals fitted.
    pub n: usize,
    /// What it leaves out.
    pub note: &'static str,
    /// What else must be known.
    pub remarks: Vec<String>,
}

impl WhatIf {
    /// The row of the trial's ledger.
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

/// Foretells the capacity of a trial's server if a group of its profile cost something else.
///
/// # Errors
/// What [`super::analyse`] refuses; a trial without a profile, a group that is not in it, a change
/// that leaves no capacity to speak of.
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
    let series = divided.series(|cell| cell.place == place);
    let wakes = main.wakes().filter(|_| main.headline_model() == Model::Wakes);
    let cost = main.cost();
    let input = LoadLineInput {
        wakes: wakes.as_deref(),
        level: options.level,
        seed: options.seed,
        ..LoadLineInput::new(main.rates(), &cost, main.cap())
    };
    let (change, said) = match instead {
        Instead::Scale(scale) => (Change::Remove { fraction: 1.0 - scale }, three_or_whole(scale)),
        Instead::Cost(seconds) => {
            let slope = seconds * divided.scale;
            (Change::Replace { intercept: 0.0, slope }, format!("{}ms", three(1e3 * seconds)))
        }
    };
    let unfit = |unfit| Error::Unfit { trial: name.clone(), unfit };
    let told = regress::foretell(&input, &series, change).map_err(unfit)?;
    let without = Change::Remove { fraction: 1.0 };
    let group_us = match regress::foretell(&input, &series, without) {
        Ok(gone) => told.marginal_before - gone.marginal_after,
        Err(_) => told.marginal_before,
    } * 1e6;
    if let Err(why) = &told.after.identifiable {
        return Err(Error::NothingForetold { trial: name, why: why.to_string() });
    }
    let (low, high) = told.after.interval.bounds().unzip();
    let (ratio_low, ratio_high) = told.ratio.interval.bounds().unzip();
    let (us, us_after) = (1e6 * told.marginal_before, 1e6 * told.marginal_after);
    Ok(WhatIf {
        server: super::server_name(trial.manifest()),
        name: format!("{NAMED}{key}={said}"),
        trial: name,
        group: key,
        title,
        group_us,
        group_us_after: group_us + us_after - us,
        us,
        us_after,
        resource: main.series.kind,
        model: if input.wakes.is_some() { MODEL_WAKES } else { MODEL_STRAIGHT },
        before: told.before,
        value: told.after.value,
        low,
        high,
        ratio: told.ratio.value,
        ratio_low,
        ratio_high,
        level: options.level,
        n: cost.len(),
        note: told.note,
        remarks: remarks(
            &fits,
            &super::fitted_devices(trial, options),
            (divided.scale, told.after.value),
            options,
        ),
    })
}

fn check(instead: Instead) -> Result<(), Error> {
    let (value, what) = match instead {
        Instead::Scale(scale) => (scale, "the scale of a group's cost"),
        Instead::Cost(seconds) => (seconds, "the cost that is put in a group's place"),
    };
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(Error::Option { what: format!("{what} is a number from 0 up") })
}

/// A group by its name or its title.
fn find(divided: &Divided<'_>, asked: &str, trial: &str) -> Result<(Place, String, String), Error> {
    let names = divided.names();
    let is = |name: &str| name.eq_ignore_ascii_case(asked);
    let found = names.iter().find(|(_, name, title)| is(name) || is(title));
    found.cloned().ok_or_else(|| Error::NoSuchGroup {
        trial: trial.to_string(),
        group: asked.to_string(),
        known: names.iter().map(|(_, name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
    })
}

fn three_or_whole(scale: f64) -> String {
    if scale.fract() == 0.0 { format!("{scale:.0}") } else { three(scale) }
}

fn remarks(
    fits: &[Fitted],
    devices: &[Fitted],
    (scale, foretold): (f64, f64),
    options: &Options,
) -> Vec<String> {
    let mut remarks = Vec::new();
    let main = fits[0].capacity(fits[0].headline_model(), options.level);
    if let Some((statistic, why)) = main.distrust_statistic.zip(main.distrust_why) {
        remarks.push(format!("the line itself is not to be trusted: {statistic}: {why}"));
    }
    if scale < 0.95 {
        remarks.push(format!(
            "the resource is one thread, with {:.0} % of the server's CPU time; it is taken to \
             have its share of every group",
            100.0 * scale
        ));
    }
    let others = fits[1..].iter().chain(devices);
    let next = others.filter_map(|fit| Some((&fit.series.name, fit.limit()?)));
    for (name, limit) in next.filter(|(_, limit)| *limit < foretold) {
        let limit = crate::format::rate(limit);
        remarks.push(format!("{name} would be used up before that, at {limit} requests/s"));
    }
    remarks
}
