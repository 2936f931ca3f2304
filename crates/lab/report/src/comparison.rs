//! A comparison of two trials and a what-if prediction, as text for a terminal.

use crate::analysis::{
    CapacityFigure, Comparison, Grade, Graded, PartChange, Ratio, SameLoadCost, Saturation, Side,
    Verdict, WhatIf,
};
use crate::format::{change, ends, fixed, latency, level, or_none, rate, thousands};
use crate::headline::Carried;
use crate::sheet::Sheet;
use crate::table::Table;
use crate::tables::{slope_unit, us};
use crate::{figure, terminal};

/// Procedures that are shown; the JSON has all of them.
const PROCEDURES_SHOWN: usize = 20;

/// A what-if prediction as text for a terminal of `width` columns. It ends with a line break.
#[must_use]
pub fn terminal_what_if(found: &WhatIf, width: usize) -> String {
    let model = match found.model {
        "wakes" => "the line with wakes",
        "busy" => "the line of a busy CPU",
        "measured" => "the measured saturation, changed as the line is,",
        _ => "the straight line, by MM",
    };
    let predicted = format!(
        "{} requests/s{}; {} now",
        rate(found.value),
        ends(found.low, found.high, rate),
        rate(found.before)
    );
    let ratio = format!(
        "{} times the capacity{}",
        fixed(found.ratio, 2),
        ends(found.ratio_low, found.ratio_high, |value| fixed(value, 2))
    );
    let change = format!(
        "{}: {} of the {} per request become {}",
        found.title,
        latency(found.group_us),
        latency(found.us),
        latency(found.group_us_after)
    );
    let model = format!(
        "{model} of the {}, n = {}; {} interval for a future saturated interval",
        found.resource.label(),
        thousands(found.n as f64),
        level(found.level)
    );
    let facts = [
        ("Predicted", predicted.as_str()),
        ("Ratio", &ratio),
        ("Change", &change),
        ("Model", &model),
        ("Note", found.note),
    ];
    let remarks = found.remarks.iter().map(|remark| ("Warning", remark.as_str()));
    let title = format!("What if, {} ({}): {}", found.server, found.trial, found.name);
    terminal::text(&[&title], facts.into_iter().chain(remarks), &[], width)
}

/// A comparison as text for a terminal of `width` columns. It ends with a line break.
#[must_use]
pub fn terminal_comparison(found: &Comparison, width: usize) -> String {
    let mut sheet = sheet_of(found);
    sheet.facts.insert(0, ("Answer".to_string(), answer(found)));
    crate::sheet::sheet(&sheet, width)
}

/// A comparison as a page: the answer, what a request costs in both, and the rest as details.
#[must_use]
pub fn html_comparison(found: &Comparison) -> String {
    let details = Sheet {
        title: "Details: how it is known, and which parts changed".to_string(),
        ..sheet_of(found)
    };
    let mut facts = Vec::new();
    if let Some(cost) = &found.cost {
        let [before, after] = [cost.us_before, cost.us_after].map(latency);
        let [low, high] = [cost.rate_low, cost.rate_high].map(rate);
        let text = format!(
            "{before} of CPU time before, {after} after, at the same {low} to {high} requests/s"
        );
        facts.push(("A request".to_string(), text));
    }
    let carries = |side: &Side| {
        let CapacityFigure { value, low, high, highest_rate, .. } = side.capacity;
        let carried = |value| Carried { value, low, high, seen: highest_rate }.text("");
        value.map_or_else(|| "not known".to_string(), carried)
    };
    let text = format!("{} before, {} after", carries(&found.before), carries(&found.after));
    facts.push(("Capacity".to_string(), text));
    let remarks = found.remarks.iter().map(|remark| ("Warning".to_string(), remark.clone()));
    facts.extend(remarks);
    let sheet = Sheet { title: title_of(found), facts, tables: Vec::new() };
    crate::sheet::answer_page(&answer(found), sheet, &drawn(found), details)
}

/// The interval that decides, beside the margin, in both sizes.
fn drawn(found: &Comparison) -> String {
    let Some(cost) = &found.cost else { return String::new() };
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    let ends = cost.ratio.runs_low.zip(cost.ratio.runs_high);
    let ends = ends.map(|(low, high)| (percent(low), percent(high)));
    let value = percent(cost.ratio.value);
    figure::sizes(|size| figure::change(value, ends, found.margin_percent, size))
}

/// What changed, in one sentence.
#[must_use]
pub fn answer(found: &Comparison) -> String {
    let why = &found.why;
    match found.verdict {
        Verdict::Regression => format!("Worse: {why}."),
        Verdict::Improvement => format!("Better: {why}."),
        Verdict::NoChange => format!("No change: {why}."),
        Verdict::Inconclusive => {
            let advice = found.advice.iter().map(|advice| format!("; {advice}"));
            format!("Not known: {why}{}.", advice.collect::<String>())
        }
    }
}

fn sheet_of(found: &Comparison) -> Sheet {
    let verdict = match found.verdict {
        Verdict::Regression => "regression",
        Verdict::Improvement => "improvement",
        Verdict::NoChange => "no change",
        Verdict::Inconclusive => "inconclusive",
    };
    let verdict = format!("{verdict}: {}", found.why);
    let intervals = format!(
        "{}, for runs like these (and for these two runs alone); \"no change\" means an interval \
         within {:.0} %",
        level(found.level),
        found.margin_percent
    );
    let facts = [
        ("Verdict", Some(verdict)),
        ("Cost", found.cost.as_ref().map(cost)),
        ("Load", found.cost.as_ref().and_then(load)),
        ("Saturation", saturation(found)),
        ("After holds", found.catching_up.as_ref().map(catching_up)),
        ("Capacity", Some(capacity(found))),
        ("Intervals", Some(intervals)),
    ];
    let facts = facts.into_iter().filter_map(|(name, text)| Some((name, text?)));
    let remarks = found.remarks.iter().map(|remark| ("Warning", remark.clone()));
    let facts = facts.chain(remarks).map(|(name, text)| (name.to_string(), text)).collect();
    let tables = vec![modes(found), groups(found), procedures(found), predictions(&found.graded)];
    Sheet { title: title_of(found), facts, tables }
}

/// What is compared with what.
fn title_of(found: &Comparison) -> String {
    let (before, after) = (&found.before, &found.after);
    format!("{} ({}) compared with {} ({})", after.server, after.trial, before.server, before.trial)
}

fn cost(cost: &SameLoadCost) -> String {
    format!(
        "{} at the same load, {} to {} requests/s (n = {} and {}); {} per request before, {} \
         after; sd between runs {} %",
        ratio(&cost.ratio),
        rate(cost.rate_low),
        rate(cost.rate_high),
        thousands(cost.n_before as f64),
        thousands(cost.n_after as f64),
        latency(cost.us_before),
        latency(cost.us_after),
        fixed(cost.between_run_percent, 1)
    )
}

/// What differs in the load, with the change of the cost that it explains.
fn load(cost: &SameLoadCost) -> Option<String> {
    let differences = cost.differences.iter().map(|one| match one.explains {
        Some(ratio) => format!("{}, which explains up to {} %", one.text(), change(ratio)),
        None => format!("{}, and its costs are not known", one.text()),
    });
    let differences: Vec<String> = differences.collect();
    (!differences.is_empty()).then(|| differences.join("; "))
}

fn saturation(found: &Comparison) -> Option<String> {
    let measured = |of: &Option<Saturation>| of.as_ref().map(|measured| rate(measured.rate));
    let (before, after) = (measured(&found.before.saturation), measured(&found.after.saturation));
    Some(format!(
        "{}, measured; {} before, {} after",
        ratio(found.saturation.as_ref()?),
        before?,
        after?
    ))
}

fn catching_up(found: &Ratio) -> String {
    format!("{} for a request at saturation, by turns and after holds", ratio(found))
}

fn capacity(found: &Comparison) -> String {
    let value =
        |figure: &CapacityFigure| figure.value.map_or_else(|| "not known".to_string(), rate);
    let (before, after) = (value(&found.before.capacity), value(&found.after.capacity));
    let change = match &found.capacity {
        Some(capacity) => format!(", {}", ratio(capacity)),
        None => String::new(),
    };
    format!(
        "{before} before, {after} after, as reported{change}; depends on the rates recorded, so it \
         decides nothing"
    )
}

/// `+51 % (+32 to +72; these two alone +38 to +66)`.
fn ratio(ratio: &Ratio) -> String {
    let own = match ratio.low.zip(ratio.high) {
        Some((low, high)) => format!("; these two alone {} to {}", change(low), change(high)),
        None => String::new(),
    };
    match ratio.runs_low.zip(ratio.runs_high) {
        Some((low, high)) => {
            format!("{} % ({} to {}{own})", change(ratio.value), change(low), change(high))
        }
        None => format!("{} %, unbounded", change(ratio.value)),
    }
}

fn probability(p: f64) -> String {
    if p < 0.001 { "< 0.001".to_string() } else { fixed(p, 3) }
}

fn significance(significant: bool) -> String {
    if significant { "significant" } else { "not significant" }.to_string()
}

fn modes(found: &Comparison) -> Table {
    let (per, unit) = slope_unit(found.modes.iter().map(|mode| &mode.before));
    let note = "t with Newey-West errors, for these two runs";
    Table::of(
        format!("Slopes by mode, {unit}"),
        &found.modes,
        &[
            ("<mode", &|mode| mode.mode.to_string()),
            ("before", &|mode| fixed(mode.before * per, 3)),
            ("after", &|mode| fixed(mode.after * per, 3)),
            ("change, %", &|mode| change(mode.after / mode.before)),
            ("t", &|mode| fixed(mode.t, 1)),
            ("p", &|mode| probability(mode.p)),
            ("<difference", &|mode| significance(mode.significant)),
        ],
        note,
    )
}

fn groups(found: &Comparison) -> Table {
    let note = match found.groups.is_empty() {
        true => "",
        false => "q: p after Benjamini-Hochberg, over all rows",
    };
    changes("Groups by change of cost per request, µs", &found.groups, note.to_string())
}

fn procedures(found: &Comparison) -> Table {
    let all = found.procedures.len();
    let shown = &found.procedures[..all.min(PROCEDURES_SHOWN)];
    let note = match all > shown.len() {
        true => format!("the first {PROCEDURES_SHOWN} of {all}; the JSON has all of them"),
        false => String::new(),
    };
    changes("Procedures by change of cost per request, µs", shown, note)
}

fn changes(title: &str, changes: &[PartChange], note: String) -> Table {
    Table::of(
        title,
        changes,
        &[
            ("<what", &|change| {
                let mode =
                    change.procedure.as_ref().map(|procedure| format!(" ({})", procedure.mode));
                format!("{}{}", change.name, mode.unwrap_or_default())
            }),
            ("before", &|change| us(change.us_before)),
            ("after", &|change| us(change.us_after)),
            ("change", &|change| us(change.us_change)),
            ("q", &|change| probability(change.q)),
            ("<difference", &|change| significance(change.significant)),
        ],
        note,
    )
}

fn predictions(graded: &[Graded]) -> Table {
    let grade = |row: &Graded| match row.grade {
        Grade::Held => "held",
        Grade::Missed => "missed",
        Grade::Inconclusive => "inconclusive",
    };
    Table::of(
        "Predictions, graded",
        graded,
        &[
            ("<what", &|row| row.prediction.name.clone()),
            ("predicted", &|row| rate(row.prediction.value)),
            ("low", &|row| or_none(row.prediction.low, rate)),
            ("high", &|row| or_none(row.prediction.high, rate)),
            ("actual", &|row| or_none(row.came, rate)),
            ("actual, %", &|row| or_none(row.ratio, change)),
            ("<grade", &|row| grade(row).to_string()),
        ],
        "",
    )
}
