//! The data to show: the figures of the last intervals, and the line through all of them.

use ::report::{Analysis, CapacityFigure, CostTable, Error, Recent, Resource, ResourceKind};
use serde::Serialize;

/// Everything on the screen, and a line of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Model {
    /// The last intervals.
    #[serde(flatten)]
    pub(crate) recent: Recent,
    /// The line through all intervals.
    pub(crate) fit: Fit,
    /// CPU time of this program, percent of one CPU.
    pub(crate) watch_percent: f64,
}

/// The fit to the whole recording so far.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Fit {
    /// The number of the last interval in it.
    pub(crate) interval: Option<u64>,
    /// The line's figures; none before the first interval.
    pub(crate) line: Option<Line>,
    /// Why there is no line, or no capacity.
    pub(crate) not_yet: Option<String>,
}

/// The line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// The capacity.
    pub(crate) capacity: CapacityFigure,
    /// Intervals in the fit.
    pub(crate) fitted: usize,
    /// What one more request costs, if there is a profile.
    pub(crate) costs: Option<CostTable>,
    /// The capacity of each resource, tightest first.
    pub(crate) resources: Vec<Limit>,
    /// The rate measured at saturation, requests/s.
    pub(crate) saturation_measured: Option<f64>,
    /// The tightest resource, with its intervals.
    #[serde(skip)]
    pub(crate) tightest: Option<Resource>,
}

/// The capacity of a resource.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Limit {
    pub(crate) kind: ResourceKind,
    /// Its name: "hottest thread", "disk sda".
    pub(crate) name: String,
    /// What the name leaves out.
    pub(crate) detail: String,
    /// Requests per second; none if the line does not identify it.
    pub(crate) value: Option<f64>,
    pub(crate) low: Option<f64>,
    pub(crate) high: Option<f64>,
    /// Why there is no value, or why it does not count.
    pub(crate) remark: Option<String>,
}

impl Fit {
    /// From an analysis of all intervals up to `interval`.
    pub(crate) fn new(interval: u64, analysed: Result<Analysis, Error>) -> Fit {
        let interval = Some(interval);
        match analysed {
            Err(error) => Fit { interval, line: None, not_yet: Some(needs(&error.to_string())) },
            Ok(analysis) => {
                let not_yet = match analysis.capacity.value {
                    Some(_) => None,
                    None => {
                        let figure = &analysis.capacity;
                        let reason = figure.plain.or(figure.reason.as_deref());
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
            tightest: analysis.resources.into_iter().next(),
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
