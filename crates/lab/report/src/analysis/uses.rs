//! The use of the CPU in each interval, to be summed with other trials. Nothing is fitted here.

use regress::Marginal;
use trial::Trial;

use super::Standing;
use super::fit::{marginal, other_load, standings};
use super::resource::{self, ResourceKind};

/// A resource and its use in every interval.
#[derive(Clone, Debug)]
pub struct ResourceUses {
    /// Its kind.
    pub kind: ResourceKind,
    /// What it can give, CPU seconds per second.
    pub cap: f64,
    /// Whether it can limit the server.
    pub may_limit: bool,
    /// Whether many processes take turns on it, as with a process for each connection.
    pub processes_alternate: bool,
    /// What a request costs at saturation, if turns and busy periods show it.
    pub marginal: Option<Marginal>,
    /// Its use in each interval of the trial.
    pub each: Vec<IntervalUse>,
}

/// The use of a resource in one interval.
#[derive(Clone, Copy, Debug)]
pub struct IntervalUse {
    /// Whether the interval belongs to a line. Nothing was set aside yet.
    pub standing: Standing,
    /// CPU seconds per second; 0 if it was not seen.
    pub cost: f64,
    /// Wakes per second, if known.
    pub wakes: Option<f64>,
}

/// The resources with CPU time of the server or the machine, as in an analysis, with their use in
/// each interval.
#[must_use]
pub fn uses(trial: &Trial) -> Vec<ResourceUses> {
    let share = resource::server_share(trial.intervals());
    let of_series = |series: resource::Series| {
        let each: Vec<IntervalUse> = standings(&series, trial, 0.0)
            .into_iter()
            .zip(&series.uses)
            .map(|(standing, used)| IntervalUse {
                standing,
                cost: used.map_or(0.0, |used| used.busy() / 100.0 * series.cap),
                wakes: used.and_then(|used| used.wakes),
            })
            .collect();
        let is_fitted = |&row: &usize| each[row].standing.is_fitted();
        let rows: Vec<usize> = (0..each.len()).filter(is_fitted).collect();
        ResourceUses {
            kind: series.kind,
            cap: series.cap,
            may_limit: series.why_not_limiting.is_none()
                && other_load(series.kind, share).is_none(),
            processes_alternate: series.processes_alternate,
            marginal: marginal(&series, trial, &rows),
            each,
        }
    };
    resource::series_of(trial).into_iter().map(of_series).collect()
}
