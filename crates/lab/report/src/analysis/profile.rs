//! The profile table of 1998 (Tables 12, 13 and 16): percent of all CPU time, percent of non-idle
//! CPU time, procedure, mode.
//!
//! The idle share is taken from the kernel's accounting, because a profile need not sample idle
//! CPUs. The samples only divide the non-idle time. For a long recording the table covers the
//! busiest hour, as in 1998.

use serde::Serialize;
use trial::{Interval, Trial};

use super::samples::{Cell, Procedure, Samples};
use groups::{Groups, Place};

/// Procedures below this share of the non-idle time have no row.
const THRESHOLD_PERCENT: f64 = 1.0;
/// For a longer recording the table covers the busiest hour.
const WHOLE_UP_TO_S: f64 = 7_200.0;
const HOUR_NS: i64 = 3_600_000_000_000;

/// The table and its sampling parameters.
#[derive(Clone, Debug, Serialize)]
pub struct Profile {
    /// The sampling event: "cpu-clock", "cycles".
    pub event: String,
    /// Samples per second on each CPU.
    pub hz: u32,
    /// Samples in the trial.
    pub samples: u64,
    /// Samples that were lost.
    pub lost: u64,
    /// Percent of the server's samples with user frames that were unwound completely.
    pub unwound_percent: Option<f64>,
    /// Percent of the non-idle time in kernel mode that is in procedures with a name.
    pub kernel_named_percent: Option<f64>,
    /// The same in user mode.
    pub user_named_percent: Option<f64>,
    /// Where the table begins, ns since the Unix epoch.
    pub from_ns: i64,
    /// Where it ends.
    pub to_ns: i64,
    /// Mean rate over it, requests/s.
    pub rate_mean: f64,
    /// Highest rate of an interval in it.
    pub rate_peak: f64,
    /// Procedures with a smaller percentage of the non-idle time are not shown.
    pub threshold_percent: f64,
    /// Idle, non-idle, and the groups with their procedures.
    pub rows: Vec<ProfileRow>,
}

/// The kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    /// All idle time.
    Idle,
    /// All other time.
    NonIdle,
    /// A group.
    Group,
    /// A procedure, below its group.
    Procedure,
}

/// A row.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileRow {
    /// Its kind.
    pub kind: RowKind,
    /// Percent of all CPU time.
    pub percent: f64,
    /// Percent of non-idle CPU time.
    pub percent_non_idle: Option<f64>,
    /// Its name.
    pub name: String,
    /// Its group, as `--group` takes it.
    pub group: Option<String>,
    /// `user`, `kernel` or `both`; empty for idle time.
    pub mode: &'static str,
    /// The procedure, if it is one.
    pub procedure: Option<Procedure>,
}

/// The table; `None` if only idle time was sampled in its period.
pub(super) fn profile(trial: &Trial, samples: &Samples, groups: &Groups) -> Option<Profile> {
    let intervals = trial.intervals();
    let window = window(intervals);
    let inside = |spent: &[(usize, i64)]| -> i64 {
        spent.iter().filter(|(at, _)| window.contains(at)).map(|(_, ns)| ns).sum()
    };
    let spent: Vec<(&Cell, i64)> =
        samples.cells.iter().map(|cell| (cell, inside(&cell.spent))).collect();
    let busy: i64 = spent.iter().map(|(_, ns)| ns).sum();
    if busy <= 0 {
        return None;
    }
    let shown = &intervals[window.clone()];
    let (first, last) = (shown.first()?, shown.last()?);
    let non_idle = non_idle_share(shown, busy, inside(&samples.idle));
    let named = |mode: &str| {
        let sum = |wanted: &dyn Fn(&Procedure) -> bool| -> i64 {
            let of = spent.iter().filter(|(cell, _)| wanted(&cell.procedure));
            of.map(|(_, ns)| ns).sum()
        };
        let all = sum(&|procedure| procedure.mode == mode);
        let with = sum(&|procedure| procedure.mode == mode && procedure.symbol.is_some());
        (all > 0).then(|| 100.0 * with as f64 / all as f64)
    };
    let info = trial.profile_info().cloned().unwrap_or_default();
    let requests: f64 = shown.iter().map(|interval| interval.requests).sum();
    let length_ns: i64 = shown.iter().map(|interval| interval.length_ns).sum();
    Some(Profile {
        unwound_percent: (info.user_samples > 0)
            .then(|| 100.0 * info.unwound_whole as f64 / info.user_samples as f64),
        event: info.event,
        hz: info.hz,
        samples: info.samples,
        lost: info.lost,
        kernel_named_percent: named("kernel"),
        user_named_percent: named("user"),
        from_ns: first.start_ns,
        to_ns: last.start_ns + last.length_ns,
        rate_mean: requests / (length_ns.max(1) as f64 / 1e9),
        rate_peak: shown.iter().map(Interval::rate).fold(0.0, f64::max),
        threshold_percent: THRESHOLD_PERCENT,
        rows: rows(&spent, busy, non_idle, groups),
    })
}

/// The indices of the intervals in the table: all, or those of the busiest hour of the clock.
fn window(intervals: &[Interval]) -> std::ops::Range<usize> {
    let all = 0..intervals.len();
    let (Some(first), Some(last)) = (intervals.first(), intervals.last()) else { return all };
    if (last.start_ns + last.length_ns - first.start_ns) as f64 / 1e9 <= WHOLE_UP_TO_S {
        return all;
    }
    let hour = |interval: &Interval| interval.start_ns.div_euclid(HOUR_NS);
    let mut busiest = (0..0, f64::NEG_INFINITY);
    let mut from = 0;
    for chunk in intervals.chunk_by(|a, b| hour(a) == hour(b)) {
        let requests: f64 = chunk.iter().map(|interval| interval.requests).sum();
        if requests > busiest.1 {
            busiest = (from..from + chunk.len(), requests);
        }
        from += chunk.len();
    }
    busiest.0
}

/// By the kernel's accounting, or by the samples if there is none.
fn non_idle_share(intervals: &[Interval], busy_ns: i64, idle_ns: i64) -> f64 {
    let busy: i64 = intervals.iter().map(|interval| interval.machine.busy_ns()).sum();
    let idle: i64 = intervals.iter().map(|i| i.machine.idle_ns + i.machine.iowait_ns).sum();
    match busy + idle {
        total if total > 0 => busy as f64 / total as f64,
        _ => busy_ns as f64 / (busy_ns + idle_ns) as f64,
    }
}

fn rows(spent: &[(&Cell, i64)], busy: i64, non_idle: f64, groups: &Groups) -> Vec<ProfileRow> {
    let share = |ns: i64| 100.0 * ns as f64 / busy as f64;
    let whole = |kind, name: &str, percent, percent_non_idle| ProfileRow {
        kind,
        percent,
        percent_non_idle,
        name: name.to_string(),
        group: None,
        mode: if kind == RowKind::Idle { "" } else { "both" },
        procedure: None,
    };
    let mut rows = vec![
        whole(RowKind::NonIdle, "all non-idle time", 100.0 * non_idle, Some(100.0)),
        whole(RowKind::Idle, "all idle time", 100.0 * (1.0 - non_idle), None),
    ];
    if non_idle < 0.5 {
        rows.swap(0, 1);
    }
    let mut listed: Vec<(Place, i64)> = places(spent, groups)
        .into_iter()
        .map(|place| {
            let of = spent.iter().filter(|(cell, _)| cell.place == place);
            let ns = of.map(|(_, ns)| ns).sum();
            (place, ns)
        })
        .collect();
    listed.sort_by_key(|(_, ns)| -ns);
    for (place, ns) in listed {
        let small = share(ns) < THRESHOLD_PERCENT;
        if small && matches!(place, Place::Rest(_) | Place::Elsewhere | Place::Others) {
            continue;
        }
        let mut inside: Vec<&(&Cell, i64)> =
            spent.iter().filter(|(cell, ns)| cell.place == place && *ns > 0).collect();
        inside.sort_by_key(|(_, ns)| -ns);
        let has = |mode| inside.iter().any(|(cell, _)| cell.procedure.mode == mode);
        let row = |kind, ns, name, mode, procedure| ProfileRow {
            kind,
            percent: share(ns) * non_idle,
            percent_non_idle: Some(share(ns)),
            name,
            group: Some(groups.name(&place)),
            mode,
            procedure,
        };
        let mode = match (has("user"), has("kernel")) {
            (true, true) => "both",
            (true, false) => "user",
            (false, true) => "kernel",
            (false, false) => "",
        };
        rows.push(row(RowKind::Group, ns, groups.title(&place), mode, None));
        for (cell, ns) in inside.into_iter().filter(|(_, ns)| share(*ns) >= THRESHOLD_PERCENT) {
            let procedure = cell.procedure.clone();
            let name = procedure.label();
            rows.push(row(RowKind::Procedure, *ns, name, procedure.mode, Some(procedure)));
        }
    }
    rows
}

/// All groups of the rules and the recorder, even without samples, and others with samples.
fn places(spent: &[(&Cell, i64)], groups: &Groups) -> Vec<Place> {
    let mut places: Vec<Place> = groups.places().chain([Place::Recorder]).collect();
    for (cell, _) in spent {
        if !places.contains(&cell.place) {
            places.push(cell.place.clone());
        }
    }
    places
}
