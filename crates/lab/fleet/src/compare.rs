//! What a release changed: the cost of a request after the release divided by the cost before, at
//! the same rate.
//!
//! **A server** that has both releases is compared over the bins of the rate that both have
//! ([`regress::ratio::same_rate`]). Two runs of an unchanged server differ by more than the windows
//! of one run show, and a server usually has only one run of a release. The sd of this difference
//! is estimated from the distances of the servers' ratios from their centre, if there are
//! [`SERVERS_SPREAD_MIN`] servers. Otherwise it is [`BETWEEN_RUN_DEFAULT`] for each run. It is
//! never less than [`BETWEEN_RUN_MIN`]. Benjamini–Hochberg is over servers.
//!
//! **The release** is the random-effects mean over the servers ([`regress::effects::pooled`]). It
//! shows a change that no single server can show, because the differences between runs average out.
//!
//! **A procedure** has a share of a server's CPU time. The share after the release, times the
//! server's ratio, minus the share before is the procedure's part of the change at the same rate.
//! The parts are averaged over servers in the same way. CPU time per request could not be compared,
//! because it falls with the rate.
//!
//! Any other change at the same time as the release, such as another kind of requests, is part of
//! the ratio. The time of the day is part of the ratio too, if one side has only nights: each side
//! needs whole days. If the two sides have different hours of the day, only a change beyond the
//! margin counts.

use std::collections::{BTreeMap, BTreeSet};

use regress::bins::{BINS_PER_OCTAVE, Bin};
use regress::capacity::BETWEEN_RUN_DEFAULT;
use regress::effects::{pooled, spread};
use regress::ratio::{Clusters, WINDOWS_MIN, log_ratio, same_rate};
use regress::same_load::BETWEEN_RUN_MIN;
use regress::{benjamini_hochberg, equivalent, median};
use report::Verdict;
use report::format::{fixed, percent, rate, thousands, three};
use report::sheet::{Rows, Sheet};
use serde::Serialize;

use crate::answer::{
    Figure, LEVEL, LeftOut, Q, charged, fact, left_out, p_value, rates, sum_of_variances,
};
use crate::home::{
    Asked, Error, Home, ProcedureSums, ServerCosts, ServerHours, ServerId, ServerProcedures,
    WINDOW_S,
};

/// The label that is compared unless another is asked for.
pub const LABEL: &str = "release";
/// Fewest servers from which the sd between runs is estimated.
pub const SERVERS_SPREAD_MIN: usize = 8;
/// Procedures with a smaller share of the CPU time, before and after, are not tested.
pub const PROCEDURE_SHARE_MIN: f64 = 0.002;

/// Part of the hours of the day that both sides must have.
pub const HOURS_PART_MIN: f64 = 0.75;

/// What is compared, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// Value of the label before; `None`: the latest but one.
    pub before: Option<String>,
    /// Value of the label after; `None`: the latest.
    pub after: Option<String>,
    /// A change within this share is none, if its whole interval is.
    pub margin: f64,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { before: None, after: None, margin: 0.05 }
    }
}

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The label.
    pub label: String,
    /// Its value before.
    pub before: String,
    /// Its value after.
    pub after: String,
    /// Cost of a request after over before, over all servers; `None` if no server has both.
    pub ratio: Option<Figure>,
    /// Sd of the ratios between servers beyond their errors, as a share.
    pub between_servers: Option<f64>,
    /// The verdict on the release.
    pub verdict: Verdict,
    /// Whether both were recorded at the same hours of the day.
    pub same_hours: bool,
    /// The servers, the most certain change first.
    pub servers: Vec<ServerChange>,
    /// Sd between runs of a server, as a share of the cost.
    pub between_run: f64,
    /// Whether it was estimated from these servers.
    pub between_run_estimated: bool,
    /// Servers that could not be compared.
    pub left_out: Vec<LeftOut>,
    /// The procedures, the most certain change first.
    pub procedures: Vec<ProcedureChange>,
    /// Number of procedures that are too small to test.
    pub procedures_small: usize,
    /// The margin of "no change".
    pub margin: f64,
    /// Level of the intervals.
    pub level: f64,
}

/// The change of one server.
#[derive(Clone, Debug, Serialize)]
pub struct ServerChange {
    /// The server.
    pub server: ServerId,
    /// The resource, as in a report.
    pub resource: String,
    /// Cost of a request after over before. The interval includes the sd between runs.
    pub ratio: Figure,
    /// Probability of such a ratio by chance.
    pub p: f64,
    /// The same, corrected for the number of servers.
    pub q: f64,
    /// The verdict.
    pub verdict: Verdict,
    /// The lowest and the highest rate compared, requests/s.
    pub rates: (f64, f64),
    /// Number of bins of the rate.
    pub bins: usize,
    /// Intervals compared, before and after.
    pub intervals: [f64; 2],
    /// Saturated intervals, which were left out.
    pub saturated: [f64; 2],
    /// Trials, before and after.
    pub trials: [u64; 2],
}

/// The change of one procedure.
#[derive(Clone, Debug, Serialize)]
pub struct ProcedureChange {
    /// Its name.
    pub procedure: String,
    /// Its share of the CPU time before. The mean over servers.
    pub share: f64,
    /// What it adds to the cost of a request at the same rate, as a share of the cost before.
    pub change: Figure,
    /// Probability of such a change by chance.
    pub p: f64,
    /// The same, corrected for the number of procedures.
    pub q: f64,
    /// Number of servers.
    pub servers: usize,
}

/// Compares two values of a label: `asked.by`, or [`LABEL`].
///
/// # Errors
/// Those of the home; [`Error::Missing`] if the label does not have two values.
pub fn compare(home: &dyn Home, asked: &Asked, terms: &Terms) -> Result<Compared, Error> {
    let label = asked.by.clone().unwrap_or_else(|| LABEL.to_owned());
    let asked = Asked { by: Some(label.clone()), ..asked.clone() };
    let (before, after) =
        values(home, &asked, &label, [terms.before.as_ref(), terms.after.as_ref()])?;
    let (pairs, mut left_out) = pairs(home.costs(&asked)?, &before, &after);
    let (mut servers, effects) = changes(&pairs, &mut left_out);
    let (between_run, between_run_estimated) = between_run(&effects);
    let same_hours = same_hours(&home.hours(&asked)?, &before, &after);
    let beyond = if same_hours { 0.0 } else { terms.margin };
    let verdict = |ratio: &Figure, certain: bool| verdict(ratio, certain, beyond, terms.margin);
    judge(&mut servers, &effects, between_run, between_run_estimated, verdict);
    // Two runs differ at least by this, so the servers together are not more exact.
    let least: Vec<(f64, f64)> =
        effects.iter().map(|e| (e.value, e.variance + 2.0 * BETWEEN_RUN_MIN.powi(2))).collect();
    let (ratio, between_servers) = match pooled(&least, LEVEL) {
        Some(mean) => {
            let free = mean.n as f64 - 1.0;
            (Some(Figure::ratio(mean.value, mean.se * mean.se, free)), Some(mean.between_sd))
        }
        None => (servers.first().map(|only| only.ratio), None),
    };
    let verdict = ratio.map_or(Verdict::Inconclusive, |ratio| {
        verdict(&ratio, ratio.low > 1.0 || ratio.high < 1.0)
    });
    let ratios: BTreeMap<ServerId, f64> =
        servers.iter().map(|one| (one.server.clone(), one.ratio.value)).collect();
    let (procedures, procedures_small) =
        procedures(&home.procedures(&asked)?, &ratios, &before, &after);
    servers.sort_by(|a, b| a.p.total_cmp(&b.p));
    Ok(Compared {
        label,
        before,
        after,
        ratio,
        between_servers,
        verdict,
        same_hours,
        servers,
        between_run,
        between_run_estimated,
        left_out,
        procedures,
        procedures_small,
        margin: terms.margin,
        level: LEVEL,
    })
}

/// The values before and after: those that are asked for, or else the latest by when they were
/// first recorded.
pub(crate) fn values(
    home: &dyn Home,
    asked: &Asked,
    label: &str,
    [before, after]: [Option<&String>; 2],
) -> Result<(String, String), Error> {
    if let (Some(before), Some(after)) = (before, after) {
        return Ok((before.clone(), after.clone()));
    }
    let mut first: BTreeMap<String, i64> = BTreeMap::new();
    for run in home.runs(asked)? {
        if let Some(found) = run.labels.iter().find(|found| found.name == label) {
            let since = first.entry(found.value.clone()).or_insert(run.created_ns);
            *since = run.created_ns.min(*since);
        }
    }
    let mut order: Vec<(i64, String)> = first.into_iter().map(|(value, at)| (at, value)).collect();
    order.sort();
    let mut latest = order.into_iter().rev().map(|(_, value)| value);
    let after = after.cloned().or_else(|| latest.find(|value| Some(value) != before));
    let before = before.cloned().or_else(|| latest.find(|value| Some(value) != after.as_ref()));
    before.zip(after).ok_or_else(|| Error::Missing {
        what: format!(
            "the trials do not have two values of the label {label}: record with --label \
             {label}=VALUE, or choose another label with --by"
        ),
    })
}

type Pair = [ServerCosts; 2];

/// The servers that have both values.
fn pairs(costs: Vec<ServerCosts>, before: &str, after: &str) -> (Vec<Pair>, Vec<LeftOut>) {
    let mut by_server: BTreeMap<ServerId, [Option<ServerCosts>; 2]> = BTreeMap::new();
    for one in costs {
        let side = match one.group.as_deref() {
            Some(value) if value == before => 0,
            Some(value) if value == after => 1,
            _ => continue,
        };
        let server = one.server.clone();
        by_server.entry(server).or_default()[side] = Some(one);
    }
    let (mut pairs, mut left_out) = (Vec::new(), Vec::new());
    for (server, sides) in by_server {
        match sides {
            [Some(old), Some(new)] => pairs.push([old, new]),
            [None, _] => left_out.push(LeftOut { server, why: format!("never had {before}") }),
            [_, None] => left_out.push(LeftOut { server, why: format!("never had {after}") }),
        }
    }
    (pairs, left_out)
}

/// A server's logarithm of the ratio, by its windows alone.
struct Effect {
    value: f64,
    variance: f64,
    dof: f64,
}

fn changes(pairs: &[Pair], left_out: &mut Vec<LeftOut>) -> (Vec<ServerChange>, Vec<Effect>) {
    let (mut servers, mut effects) = (Vec::new(), Vec::new());
    for [old, new] in pairs {
        let Some((resource, other)) = charged(old)
            .and_then(|old| Some((old, new.resources.iter().find(|r| r.kind == old.kind)?)))
        else {
            let why = "its costs are not known".to_owned();
            left_out.push(LeftOut { server: old.server.clone(), why });
            continue;
        };
        let Some(found) = same_rate(&resource.bins, &other.bins) else {
            let why = nothing_in_common([&resource.bins, &other.bins]);
            left_out.push(LeftOut { server: old.server.clone(), why });
            continue;
        };
        servers.push(ServerChange {
            server: old.server.clone(),
            resource: resource.kind.clone(),
            ratio: Figure { value: found.value.exp(), low: f64::NAN, high: f64::NAN },
            p: 1.0,
            q: 1.0,
            verdict: Verdict::Inconclusive,
            rates: (rates(found.range.0).0, rates(found.range.1).1),
            bins: found.bins,
            intervals: found.n,
            saturated: [resource.saturated_n, other.saturated_n],
            trials: [old.trials, new.trials],
        });
        effects.push(Effect { value: found.value, variance: found.variance, dof: found.dof });
    }
    (servers, effects)
}

/// Why two lists of bins cannot be compared: too few windows, or other rates.
fn nothing_in_common(sides: [&[(i32, Bin)]; 2]) -> String {
    let [before, after] = sides.map(|bins| bins.iter().map(|(_, bin)| bin.windows).sum::<f64>());
    let overlap = sides[0].iter().any(|(bin, _)| sides[1].iter().any(|(other, _)| bin == other));
    let minutes = WINDOW_S / 60;
    if overlap || before.min(after) < WINDOWS_MIN {
        format!(
            "too short: windows of {minutes} min: {} before and {} after, and {} at the same rate \
             are needed on each side; to compare two short trials: plimsoll compare BEFORE AFTER",
            thousands(before.round()),
            thousands(after.round()),
            thousands(WINDOWS_MIN)
        )
    } else {
        "its rates before and after have nothing in common".to_owned()
    }
}

/// Why no server could be compared.
#[must_use]
pub fn why_not(answer: &Compared) -> String {
    match answer.left_out.first() {
        Some(first) => format!("{}: {}", first.server, first.why),
        None => "no server was recorded with both values".to_owned(),
    }
}

/// The sd between runs of one server, and whether it is from these servers.
fn between_run(effects: &[Effect]) -> (f64, bool) {
    let values: Vec<(f64, f64)> = effects.iter().map(|e| (e.value, e.variance)).collect();
    let two = std::f64::consts::SQRT_2;
    match spread(&values, BETWEEN_RUN_MIN * two).filter(|_| values.len() >= SERVERS_SPREAD_MIN) {
        Some(found) => (found.between_sd / two, true),
        None => (BETWEEN_RUN_DEFAULT, false),
    }
}

fn judge(
    servers: &mut [ServerChange],
    effects: &[Effect],
    between_run: f64,
    estimated: bool,
    verdict: impl Fn(&Figure, bool) -> Verdict,
) {
    let of_runs =
        (2.0 * between_run.powi(2), if estimated { effects.len() as f64 - 1.0 } else { 1e6 });
    for (server, effect) in servers.iter_mut().zip(effects) {
        let (variance, dof) = sum_of_variances(&[(effect.variance, effect.dof), of_runs]);
        server.ratio = Figure::ratio(effect.value, variance, dof);
        server.p = p_value(effect.value, variance, dof);
    }
    let q = benjamini_hochberg(&servers.iter().map(|one| one.p).collect::<Vec<f64>>());
    for (server, q) in servers.iter_mut().zip(q) {
        server.q = q;
        server.verdict = verdict(&server.ratio, q <= Q);
    }
}

/// A change is one that is certain, with its interval beyond this share.
fn verdict(ratio: &Figure, certain: bool, beyond: f64, margin: f64) -> Verdict {
    match certain {
        true if ratio.low > 1.0 + beyond => Verdict::Regression,
        true if ratio.high < 1.0 / (1.0 + beyond) => Verdict::Improvement,
        _ if equivalent(&ratio.interval(), margin) => Verdict::NoChange,
        _ => Verdict::Inconclusive,
    }
}

/// Whether most servers were recorded at the same hours of the day before and after.
fn same_hours(all: &[ServerHours], before: &str, after: &str) -> bool {
    let mut sides: BTreeMap<&ServerId, [BTreeSet<i64>; 2]> = BTreeMap::new();
    for one in all {
        for (side, value) in [before, after].into_iter().enumerate() {
            if one.group.as_deref() == Some(value) {
                let of_day = one.hours.iter().map(|hour| hour.start_s.rem_euclid(86_400));
                sides.entry(&one.server).or_default()[side].extend(of_day);
            }
        }
    }
    let common = |[old, new]: &[BTreeSet<i64>; 2]| {
        let either = old.union(new).count() as f64;
        (!old.is_empty() && !new.is_empty()).then(|| old.intersection(new).count() as f64 / either)
    };
    let mut parts: Vec<f64> = sides.values().filter_map(common).collect();
    parts.is_empty() || median(&mut parts) >= HOURS_PART_MIN
}

/// The procedures, and how many are too small.
fn procedures(
    all: &[ServerProcedures],
    ratios: &BTreeMap<ServerId, f64>,
    before: &str,
    after: &str,
) -> (Vec<ProcedureChange>, usize) {
    let mut sides: BTreeMap<&ServerId, [Option<&ServerProcedures>; 2]> = BTreeMap::new();
    for one in all.iter().filter(|one| one.windows >= 2.0 && one.requests > 0.0) {
        for (side, value) in [before, after].into_iter().enumerate() {
            if one.group.as_deref() == Some(value) {
                sides.entry(&one.server).or_default()[side] = Some(one);
            }
        }
    }
    let mut found: BTreeMap<&str, Vec<Share>> = BTreeMap::new();
    for (server, sides) in &sides {
        let (Some(ratio), [Some(old), Some(new)]) = (ratios.get(server), sides) else { continue };
        let (was, is) = (shares(old), shares(new));
        let none = (0.0, 0.0);
        for name in was.keys().chain(is.keys().filter(|name| !was.contains_key(*name))) {
            let (was, is) = (was.get(name).unwrap_or(&none), is.get(name).unwrap_or(&none));
            found.entry(name).or_default().push(Share {
                before: was.0,
                after: ratio * is.0,
                variance: was.1 + ratio * ratio * is.1,
                dof: old.windows.min(new.windows) - 1.0,
            });
        }
    }
    let number = found.len();
    let mut changes: Vec<ProcedureChange> =
        found.into_iter().filter_map(|(name, shares)| procedure(name, &shares)).collect();
    let q = benjamini_hochberg(&changes.iter().map(|one| one.p).collect::<Vec<f64>>());
    changes.iter_mut().zip(q).for_each(|(change, q)| change.q = q);
    changes.sort_by(|a, b| a.p.total_cmp(&b.p));
    let small = number - changes.len();
    (changes, small)
}

/// What a procedure costs on a server, as a share of what a request costs before.
struct Share {
    before: f64,
    after: f64,
    /// Variance of the difference, by the windows.
    variance: f64,
    dof: f64,
}

/// The share of each procedure of the CPU time of a server, and its variance. The variances of the
/// procedure and of the whole are added. They have errors in common, so that is more than enough.
fn shares(server: &ServerProcedures) -> BTreeMap<&str, (f64, f64)> {
    let variance = |sums: &ProcedureSums| {
        let ratio = log_ratio(&Clusters {
            n: server.windows,
            x: server.requests,
            c: sums.cpu_s,
            xx: server.requests_squared,
            xc: sums.cpu_s_requests,
            cc: sums.cpu_s_squared,
        });
        ratio.map_or(0.0, |ratio| ratio.variance)
    };
    let whole: f64 = server.procedures.iter().map(|one| one.cpu_s).sum();
    let each: Vec<(&str, f64, f64)> = server
        .procedures
        .iter()
        .map(|one| (one.procedure.as_str(), one.cpu_s / whole, variance(one)))
        .collect();
    let of_whole: f64 = each.iter().map(|(_, share, v)| share * share * v).sum();
    let named =
        each.iter().map(|(name, share, v)| (*name, (*share, share * share * (v + of_whole))));
    if whole > 0.0 { named.collect() } else { BTreeMap::new() }
}

/// The change of a procedure over all servers; `None` if it is too small. Two runs of a procedure
/// differ as much as those of a server.
fn procedure(name: &str, shares: &[Share]) -> Option<ProcedureChange> {
    let mean = |of: fn(&Share) -> f64| shares.iter().map(of).sum::<f64>() / shares.len() as f64;
    if mean(|share| share.before).max(mean(|share| share.after)) < PROCEDURE_SHARE_MIN {
        return None;
    }
    let with_runs = |share: &Share, sd: f64| {
        share.variance + sd * sd * (share.before.powi(2) + share.after.powi(2))
    };
    let (value, variance, dof) = match shares {
        [only] => (only.after - only.before, with_runs(only, BETWEEN_RUN_DEFAULT), only.dof),
        _ => {
            let effect = |s: &Share| (s.after - s.before, with_runs(s, BETWEEN_RUN_MIN));
            let mean = pooled(&shares.iter().map(effect).collect::<Vec<_>>(), LEVEL)?;
            (mean.value, mean.se * mean.se, mean.n as f64 - 1.0)
        }
    };
    Some(ProcedureChange {
        procedure: name.to_owned(),
        share: mean(|share| share.before),
        change: Figure::linear(value, variance, dof),
        p: p_value(value, variance, dof),
        q: 1.0,
        servers: shares.len(),
    })
}

/// The verdict as text.
fn shown(verdict: Verdict, margin: f64) -> String {
    match verdict {
        Verdict::Regression => "costs more".to_owned(),
        Verdict::Improvement => "costs less".to_owned(),
        Verdict::NoChange => format!("no change (within {:.0} %)", 100.0 * margin),
        Verdict::Inconclusive => "inconclusive".to_owned(),
    }
}

/// The answer as text: what changed, and the next few.
#[must_use]
pub fn sheet(answer: &Compared) -> Sheet {
    const NEXT: usize = 10;
    let Compared { label, before, after, servers, margin, .. } = answer;
    let mut facts = Vec::new();
    let verdict = shown(answer.verdict, *margin);
    facts.push(match &answer.ratio {
        Some(ratio) => fact(
            "Answer",
            format!(
                "{after}: {verdict}: {} % for a request at the same rate, over {} servers",
                ratio.as_change(),
                servers.len()
            ),
        ),
        None => fact("Answer", format!("not known: {}", why_not(answer))),
    });
    let changed = answer.procedures.iter().filter(|one| one.q <= Q).count();
    let changes = answer.procedures.iter().take(changed.min(3)).map(|one| {
        let percent = fixed(100.0 * one.change.value, 1);
        format!("{} {}{percent} %", one.procedure, if one.change.value < 0.0 { "" } else { "+" })
    });
    match changes.collect::<Vec<String>>().join(", ") {
        none if none.is_empty() => (),
        text if changed > 3 => facts.push(fact("Where", format!("{text}, and {}", changed - 3))),
        text => facts.push(fact("Where", text)),
    }
    if !answer.same_hours {
        let text = format!(
            "recorded at other hours of the day before and after: only a change of more than {:.0} \
             % counts",
            100.0 * margin
        );
        facts.push(fact("Hours", text));
    }
    let source = match answer.between_run_estimated {
        true => "estimated from these servers",
        false => "the default for few servers",
    };
    facts.push(fact(
        "Runs",
        format!(
            "sd {} % between runs of a server ({source}); the intervals include it",
            percent(100.0 * answer.between_run)
        ),
    ));
    facts.extend(left_out(&answer.left_out));
    let marked = servers.iter().filter(|server| server.q <= Q).count();
    let saturated: f64 = servers.iter().flat_map(|server| server.saturated).sum();
    if saturated > 0.0 {
        facts.push(fact("Saturated", format!("{} intervals, left out", thousands(saturated))));
    }
    let table = Rows::of(
        "Servers",
        servers.iter().take(marked + NEXT),
        &[
            ("<server", &|s: &&ServerChange| s.server.to_string()),
            ("change %", &|s| s.ratio.as_change()),
            ("q", &|s| three(s.q)),
            ("<verdict", &|s| shown(s.verdict, *margin)),
            ("rates/s", &|s| format!("{} to {}", rate(s.rates.0), rate(s.rates.1))),
        ],
        format!(
            "Cost of a request after over before, at the same rates ({} bins per doubling). \
             At q = {Q}, expect about one in twenty of the servers that changed to be a false \
             alarm. Of the others only {NEXT} are shown.",
            BINS_PER_OCTAVE
        ),
    );
    let procedures = Rows::of(
        "Procedures",
        answer.procedures.iter().take(changed + NEXT),
        &[
            ("<procedure", &|p: &&ProcedureChange| p.procedure.clone()),
            ("before %", &|p| fixed(100.0 * p.share, 2)),
            ("change %", &|p| {
                let Figure { value, low, high } = p.change.map(|v| 100.0 * v);
                format!("{value:+.2} ({low:+.2} to {high:+.2})")
            }),
            ("q", &|p| three(p.q)),
            ("servers", &|p| p.servers.to_string()),
        ],
        format!(
            "In percent of what a request costs before, at the same rates. {} procedures with \
             less than {} % are not tested. Of those with q above {Q} only {NEXT} are shown.",
            answer.procedures_small,
            percent(100.0 * PROCEDURE_SHARE_MIN)
        ),
    );
    let tables = [table, procedures].into_iter().filter(|t| !t.rows.is_empty()).collect();
    Sheet { title: format!("Cost of a request, {label} {after} over {before}"), facts, tables }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two identical ramps of a minute had "too little in common".
    #[test]
    fn short_trials_are_too_short_and_not_different() {
        let of_windows = |bin: i32, windows: usize| {
            let one = Bin::of(1_000.0, 0.03, 0.0).as_window();
            vec![(bin, (1..windows).fold(one, |sum, _| sum + one))]
        };
        let minute = of_windows(160, 1);
        let why = nothing_in_common([&minute, &minute]);
        assert!(why.starts_with("too short: windows of 5 min: 1 before and 1 after"), "{why}");
        let why = nothing_in_common([&of_windows(160, 3), &of_windows(200, 3)]);
        assert_eq!(why, "its rates before and after have nothing in common");
    }
}
