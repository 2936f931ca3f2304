//! Collapsed stacks: a line a stack, its procedures from the outermost inwards, parted by
//! semicolons, then a whole number. What flamegraph.pl, inferno and speedscope read.
//!
//! Procedures of the kernel end in `_[k]`, as those tools know them; the first name is whose the
//! samples are.

use std::collections::BTreeMap;

use trial::Trial;
use trial::profile::{FrameMode, Owner};

use super::{by_stack, owner_name};
use crate::Error;
use crate::analysis::{Analysis, Flame, FlameFrame, FlameUnit, label};

/// Picoseconds in a microsecond: a cost a request is written as a whole number of them.
const PS_PER_US: f64 = 1e6;

/// What the number of a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollapsedBy {
    /// Samples.
    Samples,
    /// CPU time of one more request, picoseconds.
    Cost,
}

/// The stacks of a trial, collapsed and sorted.
///
/// By cost, they are those of the flame graph: the same frames are counted with their callers, and
/// the same are left out.
///
/// # Errors
/// [`Error::NoProfile`]; by cost, [`Error::NoCost`] if no line says what a request costs.
pub fn collapsed(trial: &Trial, analysis: &Analysis, by: CollapsedBy) -> Result<String, Error> {
    let named = || analysis.trial.name.clone();
    let lines = match by {
        CollapsedBy::Samples => samples(trial),
        CollapsedBy::Cost => {
            let flame =
                analysis.flame.as_ref().ok_or_else(|| Error::NoProfile { trial: named() })?;
            if flame.unit != FlameUnit::UsPerRequest {
                return Err(Error::NoCost { trial: named() });
            }
            of_flame(flame, server(trial), PS_PER_US)
        }
    };
    if lines.is_empty() {
        return Err(Error::NoProfile { trial: named() });
    }
    Ok(written(&lines))
}

/// Lines with their numbers, sorted; those of one stack are added up.
pub(super) type Lines = BTreeMap<String, u64>;

pub(super) fn written(lines: &Lines) -> String {
    lines.iter().map(|(stack, number)| format!("{stack} {number}\n")).collect()
}

fn samples(trial: &Trial) -> Lines {
    let mut lines = Lines::new();
    for ((owner, stack), (samples, _)) in by_stack(trial) {
        let mut line = match owner {
            Owner::Server => plain(server(trial)),
            owner => owner_name(owner).to_string(),
        };
        let frames = trial.stacks().get(stack as usize).map_or(&[][..], |stack| &stack.frames);
        for frame in frames.iter().rev().filter_map(|&frame| trial.frames().get(frame as usize)) {
            push(&mut line, &label(frame), frame.mode == FrameMode::Kernel);
        }
        *lines.entry(line).or_default() += samples;
    }
    lines
}

/// The frames of a flame graph, each by what is its own; `unit` is how many of the lines' numbers
/// one of its values is.
pub(super) fn of_flame(flame: &Flame, ground: &str, unit: f64) -> Lines {
    let mut lines = Lines::new();
    for frame in &flame.frames {
        add(&mut lines, &plain(ground), frame, unit);
    }
    lines
}

fn add(lines: &mut Lines, below: &str, frame: &FlameFrame, unit: f64) {
    let mut line = below.to_string();
    push(&mut line, &frame.name, frame.mode == "kernel");
    let above: f64 = frame.called.iter().map(|called| called.width).sum();
    let own = ((frame.width - above) * unit).round();
    if own >= 1.0 {
        *lines.entry(line.clone()).or_default() += own as u64;
    }
    frame.called.iter().for_each(|called| add(lines, &line, called, unit));
}

/// Name of the server, for the ground of its stacks.
pub(super) fn server(trial: &Trial) -> &str {
    match trial.manifest().server.name.as_str() {
        "" => "server",
        name => name,
    }
}

fn push(line: &mut String, name: &str, kernel: bool) {
    line.push(';');
    line.push_str(&plain(name));
    if kernel {
        line.push_str("_[k]");
    }
}

/// A semicolon would part a name in two, and a line break a line.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c == ';' || c.is_control() { ':' } else { c }).collect()
}
