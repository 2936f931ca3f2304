//! The figures of a trial, as the page reads them.

use std::path::Path;

use ::dashboard::{
    Capacity, CostGroup, Costs, Line, Now, SAMPLES_MAX, Sample, Snapshot, Source, Stale,
};
use ::report::{
    CapacityFigure, Groups, MODEL_MEASURED, Options, Recent, Resource, ResourceKind, RowKind,
};
use command::failure::{Failure, misuse};

use super::Watched;
use crate::watch::Watcher;
use crate::watch::model::{self, Model};

/// The rate now is a mean over this time, or over the last interval if that is longer. The chart
/// below it shows intervals: a longer mean is another figure after each change of the load.
const NOW_S: f64 = 1.0;
/// If the newest interval is older than so many intervals, the recorder may have stopped.
const STALE_INTERVALS: f64 = 3.0;
/// Groups of procedures that are shown.
const GROUPS_MAX: usize = 12;

/// A trial.
pub(super) struct Recording {
    watcher: Watcher,
    newest: Option<Model>,
    detail: String,
    /// Whether the page shows that no new intervals come.
    is_stale: bool,
}

impl Recording {
    /// A trial that exists.
    pub(super) fn open(path: &Path, groups: Groups) -> Result<Recording, Failure> {
        trial::Trial::recent(path, 1).map_err(misuse)?;
        let options = Options { groups, ..Options::default() };
        let watcher = Watcher::new(path.to_owned(), SAMPLES_MAX, options, None);
        let detail = path.display().to_string();
        Ok(Recording { watcher, newest: None, detail, is_stale: false })
    }
}

impl Watched for Recording {
    fn look(&mut self, show: &mut dyn FnMut(Snapshot)) -> Result<bool, Failure> {
        let looked = self.watcher.look().map_err(misuse)?;
        let is_new = looked.is_some();
        self.newest = looked.or(self.newest.take());
        let is_stale = self.newest.as_ref().is_some_and(|model| {
            let Recent { complete, end_ns, interval_s, .. } = model.recent;
            is_stale(complete, end_ns, interval_s, ::load::sys::wall_ns())
        });
        let has_changed = is_new || is_stale != self.is_stale;
        self.is_stale = is_stale;
        if let Some(model) = &self.newest
            && has_changed
        {
            show(snapshot(model, &self.detail, is_stale));
        }
        // The first figures are shown before the line, because a fit can take long.
        if let Some(model) = &mut self.newest
            && self.watcher.fit_is_due()
        {
            self.watcher.fit(model).map_err(misuse)?;
            show(snapshot(model, &self.detail, is_stale));
        }
        Ok(self.watcher.is_current())
    }
}

/// Whether the newest interval of a recording that goes on is too old.
fn is_stale(complete: bool, end_ns: i64, interval_s: f64, now_ns: i64) -> bool {
    let age_s = now_ns.saturating_sub(end_ns) as f64 / 1e9;
    !complete && age_s > STALE_INTERVALS * interval_s.max(1.0)
}

fn snapshot(model: &Model, detail: &str, is_stale: bool) -> Snapshot {
    let Model { recent, fit, .. } = model;
    let tightest = fit.line.as_ref().and_then(|line| line.tightest.as_ref());
    Snapshot {
        source: Some(source(recent, detail, is_stale)),
        now: Some(now(recent, is_stale)),
        capacity: Some(capacity(fit, tightest)),
        line: tightest.and_then(|of| {
            Some(Line::of(of.line.as_ref()?, &of.points, percent_of(of), fitted_until(model)?))
        }),
        samples: samples(recent, tightest),
        costs: costs(recent, fit),
        ..Snapshot::default()
    }
}

fn source(recent: &Recent, detail: &str, is_stale: bool) -> Source {
    let mut notes = Vec::new();
    if recent.profile.is_none() {
        notes.push("Cost by procedure group: no profile in these intervals.".to_owned());
    }
    if recent.latency.is_none() {
        notes.push("Latency: this recording has none in these intervals.".to_owned());
    }
    Source {
        kind: "recording",
        name: recent.server.clone(),
        detail: detail.to_owned(),
        ended: recent.complete,
        stale: is_stale.then(|| Stale {
            since_s: recent.end_ns as f64 / 1e9,
            why: "There are no new intervals. The recorder may have stopped.".to_owned(),
        }),
        notes,
    }
}

/// The mean over the last intervals whose rate is known. If the recording goes on, older ones are
/// not the load now.
fn now(recent: &Recent, is_stale: bool) -> Now {
    let newest = match recent.complete || is_stale {
        true => usize::MAX,
        false => STALE_INTERVALS as usize,
    };
    let each = recent.each.iter().rev().enumerate();
    let known = each
        .skip_while(|(age, interval)| interval.rate.is_none() && age + 1 < newest)
        .map(|(_, interval)| interval);
    let wanted = (NOW_S / recent.interval_s.max(1e-3)).ceil().max(1.0) as usize;
    let rates: Vec<f64> = known.map_while(|interval| interval.rate).take(wanted).collect();
    let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    Now {
        rate: (!rates.is_empty()).then_some(mean),
        seconds: rates.len() as f64 * recent.interval_s,
    }
}

fn capacity(fit: &model::Fit, tightest: Option<&Resource>) -> Capacity {
    let name = tightest.map_or("", |of| &of.name);
    match tightest.and_then(|of| of.line.as_ref()) {
        Some(line) => as_reported(Capacity::of(line, name), fit),
        None => {
            let why = fit.not_yet.clone().unwrap_or_else(|| "the line is not fitted yet".into());
            Capacity::unknown(why, name)
        }
    }
}

/// The capacity that the report shows, and the cause that it names if there is none.
fn as_reported(of_line: Capacity, fit: &model::Fit) -> Capacity {
    let Some(figure) = fit.line.as_ref().map(|line| &line.capacity) else { return of_line };
    if figure.model == MODEL_MEASURED {
        let CapacityFigure { value, low, high, .. } = *figure;
        let at_least = None;
        return Capacity { value, low, high, at_least, remark: None, plain: None, ..of_line };
    }
    match &figure.reason {
        Some(why) if figure.value.is_none() => {
            Capacity { remark: Some(why.clone()), plain: figure.plain, ..of_line }
        }
        _ => of_line,
    }
}

fn percent_of(resource: &Resource) -> &str {
    match resource.kind {
        ResourceKind::HottestThread => "one CPU (the busiest thread)",
        ResourceKind::Server => "the server's CPUs",
        _ => &resource.name,
    }
}

/// The end of the last interval in the fit, seconds since the Unix epoch.
fn fitted_until(model: &Model) -> Option<f64> {
    let since = model.recent.interval.saturating_sub(model.fit.interval?) as usize;
    let each = &model.recent.each;
    Some(each.get(each.len().checked_sub(1 + since)?)?.end_ns as f64 / 1e9)
}

fn samples(recent: &Recent, tightest: Option<&Resource>) -> Vec<Sample> {
    // Before the first fit it is not known which resource is the tightest.
    let place = tightest
        .and_then(|tightest| recent.resources.iter().position(|of| of.name == tightest.name));
    let of = |interval: &::report::RecentInterval| Sample {
        t: interval.end_ns as f64 / 1e9,
        rate: interval.rate,
        used: place.and_then(|place| interval.used_percent[place]),
        p50: interval.latency.map(|latency| latency.median_us / 1e3),
        p99: interval.latency.map(|latency| latency.p99_us / 1e3),
        hits: None,
    };
    recent.each.iter().map(of).collect()
}

/// What one more request costs in each group or, until that is known, each group's share.
fn costs(recent: &Recent, fit: &model::Fit) -> Option<Costs> {
    if let Some(table) = fit.line.as_ref().and_then(|line| line.costs.as_ref()) {
        let of = |group: &::report::GroupCost| CostGroup {
            name: group.row.name.clone(),
            value: group.row.us_per_request,
            interval: Some((group.row.us_low, group.row.us_high)),
        };
        return Some(Costs {
            what: "CPU time of one more request, by group of procedures.".to_owned(),
            unit: "µs".to_owned(),
            groups: table.groups.iter().take(GROUPS_MAX).map(of).collect(),
        });
    }
    let rows = &recent.profile.as_ref()?.rows;
    let groups = rows.iter().filter(|row| row.kind == RowKind::Group).take(GROUPS_MAX);
    let of = |row: &::report::ProfileRow| CostGroup {
        name: row.name.clone(),
        value: row.percent_non_idle.unwrap_or(row.percent),
        interval: None,
    };
    Some(Costs {
        what: "Share of the CPU time, by group of procedures.".to_owned(),
        unit: "%".to_owned(),
        groups: groups.map(of).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_whose_recorder_was_killed_is_not_live_for_ever() {
        let s = |seconds: i64| 1_000_000_000 * seconds;
        assert!(!is_stale(false, s(100), 1.0, s(103)));
        assert!(is_stale(false, s(100), 1.0, s(104)));
        assert!(!is_stale(true, s(100), 1.0, s(104)), "it has ended");
        assert!(!is_stale(false, s(100), 10.0, s(130)), "its intervals are long");
        assert!(!is_stale(false, s(100), 0.1, s(102)), "the clock of a page is slow");
        assert!(!is_stale(false, s(100), 1.0, s(90)), "the clock was set back");
    }
}
