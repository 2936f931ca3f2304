//! The tables of the profile and of the costs, and what a comparison or a what-if says: text for
//! the terminal and the page alike.

use crate::analysis::{
    Comparison, CostRow, CostTable, Grade, Graded, PartChange, Profile, Ratio, RowKind, Side,
    Verdict, WhatIf,
};
use crate::format::{NONE, fixed, instant, latency, percent, rate, thousands, three};
use crate::summary::Table;
use crate::terminal;

/// What moves a row to the right in a terminal and on a page alike: no-break spaces.
pub(crate) const INDENT: &str = "\u{a0}\u{a0}";
/// Procedures of a comparison that are shown; all of them are in the JSON.
const PROCEDURES_SHOWN: usize = 20;

/// The classic table, with its head for a title.
pub(crate) fn profile(profile: &Profile) -> Table {
    let title = format!(
        "Profile, {} to {} UTC: mean {}, peak {} requests/s",
        instant(profile.from_ns),
        instant(profile.to_ns).split_once(' ').map_or("", |(_, clock)| clock),
        rate(profile.rate_mean),
        rate(profile.rate_peak)
    );
    let mut table =
        Table::new(&title, &["% of CPU", "% non-idle", "<procedure", "<mode"], &note(profile));
    for row in &profile.rows {
        let name = match row.kind {
            RowKind::Procedure => format!("{INDENT}{}", row.name),
            _ => row.name.clone(),
        };
        let non_idle = row.percent_non_idle.map_or(String::new(), |share| fixed(share, 2));
        table.rows.push(vec![fixed(row.percent, 2), non_idle, name, row.mode.to_string()]);
    }
    table
}

fn note(profile: &Profile) -> String {
    let mut note = format!(
        "{} at {} Hz, n = {} samples, {} lost; a procedure below {:.0} % of non-idle time is in \
         its group's row only",
        profile.event,
        profile.hz,
        thousands(profile.samples as f64),
        thousands(profile.lost as f64),
        profile.threshold_percent
    );
    let named = [("kernel", profile.kernel_named_percent), ("user", profile.user_named_percent)];
    for (mode, share) in named {
        if let Some(share) = share {
            note.push_str(&format!("; {} % of {mode} time has a name", percent(share)));
        }
    }
    if let Some(share) = profile.unwound_percent {
        note.push_str(&format!("; {} % of user stacks whole", percent(share)));
    }
    note
}

/// Marginal beside fixed cost, by mode, group and procedure.
pub(crate) fn costs(costs: &CostTable) -> Table {
    let title = format!(
        "Cost of a request by mode, group and procedure, of the {} (n = {}, {:.0} %)",
        costs.resource.label(),
        thousands(costs.n as f64),
        100.0 * costs.level
    );
    let mut note = format!(
        "By the straight line with MM weights. µs: CPU time of one more request; fixed: percent of \
         one CPU when nobody asks. The groups and what is not in the profile add up to all of it \
         but for {} µs and {} %",
        fixed(costs.closure_us, 6),
        fixed(costs.closure_fixed_percent, 6)
    );
    if costs.scale < 0.95 {
        note.push_str(&format!(
            "; the thread has {:.0} % of the server's CPU time, and is taken to have its share of \
             each group",
            100.0 * costs.scale
        ));
    }
    let columns = ["<cost", "µs/request", "low", "high", "%", "fixed, %", "low", "high"];
    let mut table = Table::new(&title, &columns, &note);
    let mut add = |indent: usize, row: &CostRow, mode: &str| {
        let mode = if mode.is_empty() { String::new() } else { format!(" ({mode})") };
        let name = format!("{}{}{mode}", INDENT.repeat(indent), row.name);
        let us = [row.us_per_request, row.us_low, row.us_high].map(us);
        let fixed_cost = [row.fixed_percent, row.fixed_low, row.fixed_high].map(|v| fixed(v, 2));
        let mut cells = vec![name];
        cells.extend(us);
        cells.push(percent(row.share_percent));
        cells.extend(fixed_cost);
        table.rows.push(cells);
    };
    add(0, &costs.whole, "");
    costs.modes.iter().for_each(|row| add(1, row, ""));
    for group in &costs.groups {
        add(0, &group.row, "");
        for row in &group.procedures {
            add(1, row, row.procedure.as_ref().map_or("", |procedure| procedure.mode));
        }
    }
    add(0, &costs.unsampled, "");
    costs.outside.iter().for_each(|row| add(0, row, "not counted in"));
    table
}

/// Microseconds of a request; what is rounding is nothing.
fn us(value: f64) -> String {
    if value.abs() < 5e-4 { "0".to_string() } else { three(value) }
}

/// The groups that a request pays most for, in a sentence.
pub(crate) fn dearest(costs: &CostTable) -> Option<String> {
    let whole = costs.whole.us_per_request;
    let rows = costs.groups.iter().map(|group| &group.row).filter(|row| row.share_percent >= 5.0);
    let parts: Vec<String> = rows
        .take(4)
        .map(|row| {
            format!("{} {} ({:.0} %)", row.name, latency(row.us_per_request), row.share_percent)
        })
        .collect();
    (whole > 0.0 && !parts.is_empty())
        .then(|| format!("one more costs {}: {}", latency(whole), parts.join(", ")))
}

/// A what-if in a terminal of so many columns. It ends with a line break.
#[must_use]
pub fn terminal_what_if(told: &WhatIf, width: usize) -> String {
    let level = format!("{:.0} %", 100.0 * told.level);
    let model = match told.model {
        "wakes" => "the line with wakes",
        _ => "the straight line, by MM",
    };
    let mut facts = vec![
        (
            "Foretold",
            format!(
                "{} requests/s{}; {} now",
                rate(told.value),
                ends(told.low, told.high, rate),
                rate(told.before)
            ),
        ),
        (
            "Ratio",
            format!(
                "{} times the capacity{}",
                fixed(told.ratio, 2),
                ends(told.ratio_low, told.ratio_high, |value| fixed(value, 2))
            ),
        ),
        (
            "Change",
            format!(
                "{}: {} of a request's {} become {}",
                told.title,
                latency(told.group_us),
                latency(told.us),
                latency(told.group_us_after)
            ),
        ),
        (
            "Read off",
            format!(
                "{model} of the {}, n = {}; {level} for a future saturated interval",
                told.resource.label(),
                thousands(told.n as f64)
            ),
        ),
        ("Note", told.note.to_string()),
    ];
    facts.extend(told.remarks.iter().map(|remark| ("But", remark.clone())));
    let title = format!("What if, {} ({}): {}", told.server, told.trial, told.name);
    terminal::sheet(&title, &labelled(facts), &[], width)
}

/// A comparison in a terminal of so many columns. It ends with a line break.
#[must_use]
pub fn terminal_comparison(found: &Comparison, width: usize) -> String {
    let (before, after) = (&found.before, &found.after);
    let verdict = match found.verdict {
        Verdict::Regression => "regression",
        Verdict::Improvement => "improvement",
        Verdict::NoChange => "no change",
        Verdict::NotTold => "cannot be told",
    };
    let model = if found.with_wakes { "lines with wakes" } else { "straight lines" };
    let mut facts = vec![
        ("Verdict", format!("{verdict}: {}", found.why)),
        (
            "Capacity",
            format!(
                "{} by {model}; {} before, {} after",
                ratio(&found.capacity),
                capacity(before),
                capacity(after)
            ),
        ),
        (
            "Cost",
            format!(
                "{} by straight lines; {} a request before, {} after",
                ratio(&found.cost),
                latency(before.us_per_request),
                latency(after.us_per_request)
            ),
        ),
        (
            "Intervals",
            format!(
                "{:.0} %: of runs like these (and of these two runs alone); no change is an \
                 interval within {:.0} %",
                100.0 * found.level,
                found.margin_percent
            ),
        ),
    ];
    facts.extend(found.remarks.iter().map(|remark| ("But", remark.clone())));
    let tables = [modes(found), groups(found), procedures(found), predictions(&found.graded)];
    let title =
        format!("{} ({}) against {} ({})", after.server, after.trial, before.server, before.trial);
    terminal::sheet(&title, &labelled(facts), &tables, width)
}

fn labelled(facts: Vec<(&str, String)>) -> Vec<(String, String)> {
    facts.into_iter().map(|(label, text)| (label.to_string(), text)).collect()
}

fn ends(low: Option<f64>, high: Option<f64>, write: impl Fn(f64) -> String) -> String {
    match low.zip(high) {
        Some((low, high)) => format!(" ({} to {})", write(low), write(high)),
        None => ", and no bound".to_string(),
    }
}

/// `+51 % (+32 to +72; these two alone +38 to +66)`.
fn ratio(ratio: &Ratio) -> String {
    let own = match ratio.low.zip(ratio.high) {
        Some((low, high)) => format!("; these two alone {} to {}", by(low), by(high)),
        None => String::new(),
    };
    match ratio.runs_low.zip(ratio.runs_high) {
        Some((low, high)) => {
            format!("{} % ({} to {}{own})", by(ratio.value), by(low), by(high))
        }
        None => format!("{} %, and no bound", by(ratio.value)),
    }
}

/// A ratio as percent more or less.
fn by(ratio: f64) -> String {
    let percent = 100.0 * (ratio - 1.0);
    if !percent.is_finite() {
        return NONE.to_string();
    }
    let text = if percent.abs() < 9.95 { fixed(percent, 1) } else { fixed(percent, 0) };
    if percent > 0.0 { format!("+{text}") } else { text }
}

fn capacity(side: &Side) -> String {
    side.capacity.value.map_or_else(|| "not identifiable".to_string(), rate)
}

fn probability(p: f64) -> String {
    if p < 0.001 { "< 0.001".to_string() } else { fixed(p, 3) }
}

fn modes(found: &Comparison) -> Table {
    let steepest = found.modes.iter().map(|mode| mode.before.abs()).fold(0.0, f64::max);
    let (per, unit) = if steepest < 0.05 { (1_000.0, "%/1,000/s") } else { (1.0, "%/(req/s)") };
    let mut table = Table::new(
        &format!("Slopes by mode, {unit}"),
        &["<mode", "before", "after", "change, %", "t", "p", "<difference"],
        "t by Newey-West errors, of these two runs",
    );
    for mode in &found.modes {
        let told = if mode.significant { "significant" } else { "not significant" };
        table.rows.push(vec![
            mode.mode.to_string(),
            fixed(mode.before * per, 3),
            fixed(mode.after * per, 3),
            by(mode.after / mode.before),
            fixed(mode.t, 1),
            probability(mode.p),
            told.to_string(),
        ]);
    }
    table
}

fn groups(found: &Comparison) -> Table {
    let mut table = changes("Groups by change of a request's cost, µs", &found.groups);
    if !table.rows.is_empty() {
        table.note = "q: p after Benjamini-Hochberg, over all rows".to_string();
    }
    table
}

fn procedures(found: &Comparison) -> Table {
    let shown = &found.procedures[..found.procedures.len().min(PROCEDURES_SHOWN)];
    let mut table = changes("Procedures by change of a request's cost, µs", shown);
    if found.procedures.len() > shown.len() {
        let all = found.procedures.len();
        table.note = format!("the first {PROCEDURES_SHOWN} of {all}; all of them are in the JSON");
    }
    table
}

fn changes(title: &str, changes: &[PartChange]) -> Table {
    let columns = ["<what", "before", "after", "change", "q", "<difference"];
    let mut table = Table::new(title, &columns, "");
    for change in changes {
        let mode = change.procedure.as_ref().map_or(String::new(), |p| format!(" ({})", p.mode));
        let told = if change.significant { "significant" } else { "not significant" };
        let mut cells = vec![format!("{}{mode}", change.name)];
        cells.extend([change.us_before, change.us_after, change.us_change].map(us));
        cells.extend([probability(change.q), told.to_string()]);
        table.rows.push(cells);
    }
    table
}

fn predictions(graded: &[Graded]) -> Table {
    let mut table = Table::new(
        "Predictions, graded",
        &["<what", "foretold", "low", "high", "came", "came, %", "<grade"],
        "",
    );
    let or_none = |value: Option<f64>| value.map_or_else(|| NONE.to_string(), rate);
    for row in graded {
        let kept = &row.prediction;
        let grade = match row.grade {
            Grade::Held => "held",
            Grade::Missed => "missed",
            Grade::NotTold => "cannot be told",
        };
        table.rows.push(vec![
            kept.name.clone(),
            rate(kept.value),
            or_none(kept.low),
            or_none(kept.high),
            or_none(row.came),
            row.ratio.map_or_else(|| NONE.to_string(), by),
            grade.to_string(),
        ]);
    }
    table
}
