//! The data to show: the figures of the last intervals, and the line through all of them.

use ::report::{Analysis, CapacityFigure, CostTable, Error, Recent, ResourceKind};
use serde::Serialize;

/// Everything on the screen, and a line of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Model {
    /// The last intervals.
    #[serde(flatten)]
    pub(super) recent: Recent,
    /// The line through all intervals.
    pub(super) fit: Fit,
    /// CPU time of this program, percent of one CPU.
    pub(super) watch_percent: f64,
}

/// The fit to the whole recording so far.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Fit {
    /// The number of the last interval in it.
    pub(super) interval: Option<u64>,
    /// The line's figures; none before the first interval.
    pub(super) line: Option<Line>,
    /// Why there is no line, or no capacity.
    pub(super) not_yet: Option<String>,
}

/// The line.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Line {
    /// The capacity.
    pub(super) capacity: CapacityFigure,
    /// Intervals in the fit.
    pub(super) fitted: usize,
    /// What one more request costs, if there is a profile.
    pub(super) costs: Option<CostTable>,
    /// The capacity of each resource, tightest first.
    pub(super) resources: Vec<Limit>,
    /// The rate measured at saturation, requests/s.
    pub(super) saturation_measured: Option<f64>,
}

/// The capacity of a resource.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Limit {
    pub(super) kind: ResourceKind,
    /// Its name: "hottest thread", "disk sda".
    pub(super) name: String,
    /// What the name leaves out.
    pub(super) detail: String,
    /// Requests per second; none if the line does not identify it.
    pub(super) value: Option<f64>,
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
    /// Why there is no value, or why it does not count.
    pub(super) remark: Option<String>,
}

impl Fit {
    /// From an analysis of all intervals up to `interval`.
    pub(super) fn new(interval: u64, analysed: Result<Analysis, Error>) -> Fit {
        let interval = Some(interval);
        match analysed {
            Err(error) => Fit { interval, line: None, not_yet: Some(needs(&error.to_string())) },
            Ok(analysis) => {
                let not_yet = match analysis.capacity.value {
                    Some(_) => None,
                    None => {
                        let reason = analysis.capacity.reason.as_deref();
                        Some(needs(reason.unwrap_or("it cannot be computed")))
                    }
                };
                Fit { interval, line: Some(Line::of(analysis)), not_yet }
            }
        }
    }
}

impl Line {
    fn of(analysis: Analysis) -> Line {
        Line {
            fitted: analysis.trial.fitted,
            resources: analysis.resources.iter().map(Limit::of).collect(),
            capacity: analysis.capacity,
            costs: analysis.costs,
            saturation_measured: analysis.saturation_measured,
        }
    }
}

impl Limit {
    fn of(resource: &::report::Resource) -> Limit {
        let mut limit = Limit {
            kind: resource.kind,
            name: resource.name.clone(),
            detail: resource.detail.clone(),
            value: None,
            low: None,
            high: None,
            remark: resource.remark.clone(),
        };
        match &resource.line {
            None => limit.remark = resource.unfit.clone(),
            Some(line) => {
                let capacity = line.capacity();
                (limit.low, limit.high) = capacity.interval.bounds().unzip();
                match &capacity.identifiable {
                    Ok(()) => limit.value = Some(capacity.value),
                    Err(why) => limit.remark = Some(needs(&why.to_string())),
                }
            }
        }
        limit
    }
}

/// What is missing for a capacity. Advice to record longer is removed: the recording continues.
fn needs(reason: &str) -> String {
    let reason = reason.strip_prefix("no load line: ").unwrap_or(reason);
    let reason = reason.strip_suffix("; record for longer").unwrap_or(reason);
    match reason.strip_prefix("not identifiable: ") {
        Some("the rate did not vary enough") => "needs more spread in the rate".to_owned(),
        Some(other) => other.to_owned(),
        None => reason.replace(" (none excluded)", ""),
    }
}
