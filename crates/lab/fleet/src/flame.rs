//! Two values of a label as a differential flame graph: CPU time per request in each stack, over
//! all servers together.
//!
//! Both sides are divided by their requests. They are the servers that have the value, so if these
//! are not the same servers, or their load differs, that is part of the difference. A stack has no
//! interval here, because homes add up stacks over servers and windows. The procedures of
//! [`mod@crate::compare`] have intervals, and are those of the same servers at the same rate.

use std::collections::{BTreeMap, BTreeSet};

use report::format::{change, fixed, thousands};
use report::sheet::{Rows, Sheet};
use serde::Serialize;

use crate::answer::fact;
use crate::compare::{LABEL, values};
use crate::home::{Asked, Error, GroupStacks, Home};

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Flame {
    /// The label.
    pub label: String,
    /// Its values, before and after.
    pub between: [String; 2],
    /// Requests, before and after.
    pub requests: [f64; 2],
    /// CPU seconds sampled, before and after.
    pub cpu_s: [f64; 2],
    /// The procedures, the largest difference first.
    pub procedures: Vec<ProcedureDifference>,
    /// The stacks, with the CPU time per request before and after, ns.
    pub stacks: Vec<(Vec<String>, [f64; 2])>,
}

/// CPU time per request of a procedure before and after, ns.
#[derive(Clone, Debug, Serialize)]
pub struct ProcedureDifference {
    /// Its name.
    pub procedure: String,
    /// In the procedure itself.
    pub itself: [f64; 2],
    /// In it and what it calls.
    pub with_called: [f64; 2],
}

/// Compares the stacks of two values of a label: `asked.by`, or [`LABEL`]. Values that are not
/// given are the latest.
///
/// # Errors
/// Those of the home; [`Error::Missing`] if one of the values has no requests with samples.
pub fn flame(
    home: &dyn Home,
    asked: &Asked,
    between: [Option<&String>; 2],
) -> Result<Flame, Error> {
    let label = asked.by.clone().unwrap_or_else(|| LABEL.to_owned());
    let asked = Asked { by: Some(label.clone()), ..asked.clone() };
    let (before, after) = values(home, &asked, &label, between)?;
    let groups = home.stacks(&asked)?;
    let side = |value: &String| -> Result<&GroupStacks, Error> {
        let of_value = groups.iter().find(|group| group.group.as_ref() == Some(value));
        of_value.filter(|group| group.requests > 0.0 && !group.stacks.is_empty()).ok_or_else(|| {
            let what = format!(
                "no trial with {label}={value} has both requests and samples: record with \
                 --profile, or choose other values"
            );
            Error::Missing { what }
        })
    };
    let sides = [side(&before)?, side(&after)?];
    let mut stacks: BTreeMap<&[String], [f64; 2]> = BTreeMap::new();
    for (at, side) in sides.iter().enumerate() {
        for (stack, cpu_s) in &side.stacks {
            stacks.entry(stack).or_default()[at] += 1e9 * cpu_s / side.requests;
        }
    }
    Ok(Flame {
        label,
        between: [before, after],
        requests: sides.map(|side| side.requests),
        cpu_s: sides.map(|side| side.stacks.iter().map(|(_, cpu_s)| cpu_s).sum()),
        procedures: procedures(&stacks),
        stacks: stacks.into_iter().map(|(stack, ns)| (stack.to_vec(), ns)).collect(),
    })
}

fn procedures(stacks: &BTreeMap<&[String], [f64; 2]>) -> Vec<ProcedureDifference> {
    let mut found: BTreeMap<&str, [[f64; 2]; 2]> = BTreeMap::new();
    for (stack, ns) in stacks {
        // A procedure that calls itself counts once.
        let names: BTreeSet<&str> = stack.iter().map(String::as_str).collect();
        let innermost = stack.last().map(String::as_str);
        for name in names {
            let sums = found.entry(name).or_default();
            for side in 0..2 {
                sums[0][side] += if innermost == Some(name) { ns[side] } else { 0.0 };
                sums[1][side] += ns[side];
            }
        }
    }
    let mut all: Vec<ProcedureDifference> = found
        .into_iter()
        .map(|(name, [itself, with_called])| ProcedureDifference {
            procedure: name.to_owned(),
            itself,
            with_called,
        })
        .collect();
    let size = |one: &ProcedureDifference| (one.itself[1] - one.itself[0]).abs();
    all.sort_by(|a, b| size(b).total_cmp(&size(a)));
    all
}

/// The differential flame graph: an SVG with its own script.
///
/// # Errors
/// [`report::Error::Figure`] if it cannot be drawn.
#[cfg(feature = "export")]
pub fn svg(answer: &Flame) -> Result<String, report::Error> {
    let Flame { label, between: [before, after], .. } = answer;
    let title = format!("CPU time per request, {label} {after} compared with {before}");
    export::svg_difference(&title, &per_request(answer), &answer.stacks)
}

/// What a request costs, as a sentence.
fn per_request(answer: &Flame) -> String {
    let [before, after] = [0, 1].map(|side| 1e6 * answer.cpu_s[side] / answer.requests[side]);
    format!(
        "{} µs before, {} µs after ({} %)",
        fixed(before, 2),
        fixed(after, 2),
        change(after / before)
    )
}

/// The answer as text: the procedures with the largest differences.
#[must_use]
pub fn sheet(answer: &Flame) -> Sheet {
    const SHOWN: usize = 20;
    let Flame { label, between: [before, after], requests, cpu_s, .. } = answer;
    let sampled = |side: usize| {
        format!("{} requests, {} CPU seconds", thousands(requests[side]), thousands(cpu_s[side]))
    };
    let difference = |[before, after]: [f64; 2]| format!("{:+.3}", (after - before) / 1e3);
    let table = Rows::of(
        "Procedures",
        answer.procedures.iter().take(SHOWN),
        &[
            ("<procedure", &|one: &&ProcedureDifference| one.procedure.clone()),
            ("before µs", &|one| fixed(one.itself[0] / 1e3, 3)),
            ("after µs", &|one| fixed(one.itself[1] / 1e3, 3)),
            ("difference", &|one| difference(one.itself)),
            ("with called", &|one| difference(one.with_called)),
        ],
        format!(
            "CPU time per request. The {SHOWN} procedures with the largest differences of {}. \
             Servers and rates are not the same on both sides, and there are no intervals: fleet \
             compare has both.",
            answer.procedures.len()
        ),
    );
    Sheet {
        title: format!("CPU time per request by procedure, {label} {after} and {before}"),
        facts: vec![
            fact("Request", per_request(answer)),
            fact("Before", sampled(0)),
            fact("After", sampled(1)),
        ],
        tables: vec![table],
    }
}
