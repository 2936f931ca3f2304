//! Tables of what a request costs: by group, by class, by hardware counter; and the CPU profile.

use trial::counters::Kind;

use crate::analysis::{
    ClassTable, CostRow, CostTable, CountedProcedure, CountedShare, HardwareCounters, Profile,
    RowKind,
};
use crate::format::{NONE, fixed, instant, level, or_none, percent, rate, thousands, three};
use crate::table::{Column, INDENT, Table};

/// The profile table of 1998.
pub(super) fn profile(profile: &Profile) -> Table {
    let title = format!(
        "Profile, {} to {} UTC: mean {}, peak {} requests/s",
        instant(profile.from_ns),
        instant(profile.to_ns).split_once(' ').map_or("", |(_, clock)| clock),
        rate(profile.rate_mean),
        rate(profile.rate_peak)
    );
    Table::of(
        title,
        &profile.rows,
        &[
            ("% of CPU", &|row| fixed(row.percent, 2)),
            ("% non-idle", &|row| {
                row.percent_non_idle.map_or(String::new(), |share| fixed(share, 2))
            }),
            ("<procedure", &|row| match row.kind {
                RowKind::Procedure => format!("{INDENT}{}", row.name),
                _ => row.name.clone(),
            }),
            ("<mode", &|row| row.mode.to_string()),
        ],
        profile_note(profile),
    )
}

fn profile_note(profile: &Profile) -> String {
    let mut note = format!(
        "{} at {} Hz, n = {} samples, {} lost; procedures below {:.0} % of non-idle time are only \
         in their group's row",
        profile.event,
        profile.hz,
        thousands(profile.samples as f64),
        thousands(profile.lost as f64),
        profile.threshold_percent
    );
    let shares = [
        (profile.kernel_named_percent, "of kernel time has a name"),
        (profile.user_named_percent, "of user time has a name"),
        (profile.unwound_percent, "of user stacks are whole"),
    ];
    for (share, what) in shares {
        note.extend(share.map(|share| format!("; {} % {what}", percent(share))));
    }
    note
}

/// Marginal and fixed cost by mode, group and procedure.
pub(super) fn costs(costs: &CostTable) -> Table {
    let title = format!(
        "Cost of a request by mode, group and procedure, of the {} (n = {}, {})",
        costs.resource.label(),
        thousands(costs.n as f64),
        level(costs.level)
    );
    let mut note = format!(
        "By the straight line with MM weights. µs: CPU time of one more request; fixed: percent of \
         one CPU at zero load. The groups and the part not in the profile add up to the total \
         within {} µs and {} %",
        fixed(costs.closure_us, 6),
        fixed(costs.closure_fixed_percent, 6)
    );
    if costs.scale < 0.95 {
        note.push_str(&format!(
            "; the thread has {:.0} % of the server's CPU time, and is assumed to have that share \
             of each group",
            100.0 * costs.scale
        ));
    }
    let mut rows: Vec<(usize, &CostRow, &str)> = vec![(0, &costs.whole, "")];
    rows.extend(costs.modes.iter().map(|row| (1, row, "")));
    for group in &costs.groups {
        rows.push((0, &group.row, ""));
        let mode = |row: &CostRow| row.procedure.as_ref().map_or("", |procedure| procedure.mode);
        rows.extend(group.procedures.iter().map(|row| (1, row, mode(row))));
    }
    rows.push((0, &costs.unsampled, ""));
    rows.extend(costs.outside.iter().map(|row| (0, row, "not included")));
    Table::of(
        title,
        rows,
        &[
            ("<cost", &|(indent, row, remark)| {
                let name = format!("{}{}", INDENT.repeat(*indent), row.name);
                if remark.is_empty() { name } else { format!("{name} ({remark})") }
            }),
            ("µs/request", &|(_, row, _)| us(row.us_per_request)),
            ("low", &|(_, row, _)| us(row.us_low)),
            ("high", &|(_, row, _)| us(row.us_high)),
            ("%", &|(_, row, _)| percent(row.share_percent)),
            ("fixed, %", &|(_, row, _)| fixed(row.fixed_percent, 2)),
            ("low", &|(_, row, _)| fixed(row.fixed_low, 2)),
            ("high", &|(_, row, _)| fixed(row.fixed_high, 2)),
        ],
        note,
    )
}

/// Microseconds per request. What is only a rounding error is shown as zero.
pub(crate) fn us(value: f64) -> String {
    if value.abs() < 5e-4 { "0".to_string() } else { three(value) }
}

/// Costs by one word of the class.
pub(super) fn classes(classes: &ClassTable) -> Table {
    let title = format!(
        "Cost of a request by {} (n = {}, {})",
        if classes.by == "tls" { "TLS" } else { classes.by },
        thousands(classes.n as f64),
        level(classes.level)
    );
    let mut note = format!(
        "By one fit of all classes, none of them below zero; a request costs {} µs on average. A \
         class includes the cost of everything that varies with it",
        three(classes.mean_us)
    );
    note.extend(classes.merged.iter().map(|merged| format!("; {merged}")));
    let us = |value: f64| if value <= 0.0 { "0".to_owned() } else { three(value) };
    Table::of(
        title,
        &classes.rows,
        &[
            ("<class", &|row| row.name.clone()),
            ("% of requests", &|row| percent(row.share_percent)),
            ("µs/request", &|row| us(row.us_per_request)),
            ("low", &|row| us(row.us_low)),
            ("high", &|row| us(row.us_high)),
        ],
        note,
    )
}

/// Hardware counters per request, and by procedure if they were sampled.
pub(super) fn counters(found: &HardwareCounters) -> Vec<Table> {
    [counter_totals(found)].into_iter().chain(counters_by_procedure(found)).collect()
}

fn counter_totals(found: &HardwareCounters) -> Table {
    let mut note = format!(
        "hardware counters, n = {} intervals, {}; of the server's threads, in user and kernel mode",
        thousands(found.intervals as f64),
        level(found.level)
    );
    if found.counted_percent < 99.95 {
        note.push_str(&format!(
            "; the counters were multiplexed, each running at least {} % of the time, and the \
             counts are scaled",
            fixed(found.counted_percent, 1)
        ));
    }
    let mut table = Table::of(
        "Hardware counters per request",
        &found.counters,
        &[
            ("<counter", &|row| row.name.to_string()),
            ("mean", &|row| or_none(row.per_request, count)),
            ("one more", &|row| or_none(row.one_more.map(|more| more.value), count)),
            ("low", &|row| or_none(row.one_more.map(|more| more.low), count)),
            ("high", &|row| or_none(row.one_more.map(|more| more.high), count)),
            ("per s at 0/s", &|row| or_none(row.one_more.map(|more| more.fixed_per_s), count)),
            ("% of machine", &|row| or_none(row.server_percent, |share| fixed(share, 1))),
        ],
        note,
    );
    if let Some(value) = found.cycles_per_instruction {
        let marginal = |kind: Kind| {
            let row = found.counters.iter().find(|row| row.name == kind.name())?;
            Some(row.one_more?.value)
        };
        let more = ratio(marginal(Kind::Cycles), marginal(Kind::Instructions));
        let mut cells = vec!["cycles per instruction".to_string(), fixed(value, 2), more];
        cells.extend(vec![String::new(); 4]);
        table.rows.push(cells);
    }
    table
}

/// `None` if the counters were not sampled.
fn counters_by_procedure<'f>(found: &'f HardwareCounters) -> Option<Table> {
    let counters = &found.procedures.first()?.counters;
    let samples = |share: &CountedShare| {
        let all = found.procedures.iter().flat_map(|row| &row.counters);
        let samples: u64 = all.filter(|of| of.name == share.name).map(|of| of.samples).sum();
        format!("{} of {}", thousands(samples as f64), share.name)
    };
    let note = format!(
        "procedures of the server with 1 % or more of a counter, by the samples in which the \
         counter overflowed ({}); means per request, of the counts above",
        counters.iter().map(samples).collect::<Vec<_>>().join(", ")
    );
    let names: Vec<String> =
        counters.iter().map(|share| format!("{}/request", share.name)).collect();
    let per_request: Vec<_> = (0..counters.len())
        .map(|at| move |row: &&'f CountedProcedure| or_none(row.counters[at].per_request, count))
        .collect();
    let each = |row: &CountedProcedure, kind| row.of(kind).and_then(|share| share.per_request);
    let cycles_per_instruction =
        |row: &&'f CountedProcedure| ratio(each(row, Kind::Cycles), each(row, Kind::Instructions));
    let misses = |row: &&'f CountedProcedure| {
        or_none(row.of(Kind::CacheMisses).map(|share| share.percent), percent)
    };
    let mut columns: Vec<Column<'_, &'f CountedProcedure>> = vec![
        ("<procedure", &|row| row.procedure.label()),
        ("<mode", &|row| row.procedure.mode.into()),
        ("<group", &|row| row.group.clone()),
    ];
    for (name, cell) in names.iter().zip(&per_request) {
        columns.push((name, cell));
    }
    columns.push(("cycles per instruction", &cycles_per_instruction));
    if counters.iter().any(|share| share.name == Kind::CacheMisses.name()) {
        columns.push(("% of misses", &misses));
    }
    Some(Table::of("Hardware counters by procedure", &found.procedures, &columns, note))
}

fn ratio(cycles: Option<f64>, instructions: Option<f64>) -> String {
    let instructions = instructions.filter(|instructions| *instructions > 0.0);
    cycles.zip(instructions).map_or_else(|| NONE.to_string(), |(c, i)| fixed(c / i, 2))
}

/// A count: three digits, or all of them if it is large.
fn count(value: f64) -> String {
    if value.abs() < 1_000.0 { three(value) } else { thousands(value) }
}
