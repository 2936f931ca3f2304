//! Collapsed stacks: one line per stack, with its procedures from the outermost inwards, separated
//! by semicolons, then a whole number. flamegraph.pl, inferno and speedscope read them.
//!
//! Kernel procedures end in `_[k]`, as those tools expect. The first name is the owner of the
//! samples.

use std::collections::BTreeMap;

use trial::Trial;
use trial::profile::{FrameMode, Owner};

use crate::{by_stack, no_profile, server_name};
use report::Error;
use report::{Analysis, Flame, FlameFrame, FlameUnit, frame_label};

/// Picoseconds per microsecond. A cost per request is written in whole picoseconds.
const PS_PER_US: f64 = 1e6;

/// The number in each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollapsedBy {
    /// Samples.
    Samples,
    /// CPU time of one more request, picoseconds.
    Cost,
}

/// The stacks of a trial, collapsed and sorted.
///
/// By cost, they are the stacks of the flame graph, with the same frames merged into their callers
/// and the same values left out.
///
/// # Errors
/// [`Error::NoProfile`]; by cost, [`Error::NoCost`] if no line gives the cost of a request.
pub fn collapsed(trial: &Trial, analysis: &Analysis, by: CollapsedBy) -> Result<String, Error> {
    let lines = match by {
        CollapsedBy::Samples => samples(trial),
        CollapsedBy::Cost => {
            let flame = analysis.flame.as_ref().ok_or_else(|| no_profile(analysis))?;
            if flame.unit != FlameUnit::UsPerRequest {
                return Err(Error::NoCost { trial: analysis.trial.name.clone() });
            }
            of_flame(flame, server_name(trial), PS_PER_US)
        }
    };
    if lines.is_empty() { Err(no_profile(analysis)) } else { Ok(written(&lines)) }
}

/// Lines with their numbers, sorted. Numbers of the same stack are added up.
pub(super) type Lines = BTreeMap<String, u64>;

pub(super) fn written(lines: &Lines) -> String {
    lines.iter().map(|(stack, number)| format!("{stack} {number}\n")).collect()
}

fn samples(trial: &Trial) -> Lines {
    let mut lines = Lines::new();
    for ((owner, stack), (samples, _)) in by_stack(trial) {
        let mut line = match owner {
            Owner::Server => plain(server_name(trial)),
            owner => owner.name().to_string(),
        };
        for frame in trial.stack_frames(stack).rev() {
            push(&mut line, &frame_label(frame), frame.mode == FrameMode::Kernel);
        }
        *lines.entry(line).or_default() += samples;
    }
    lines
}

/// The frames of a flame graph, each with its own value without the frames above it. Values are
/// multiplied by `unit`.
pub(super) fn of_flame(flame: &Flame, root: &str, unit: f64) -> Lines {
    let mut lines = Lines::new();
    for frame in &flame.frames {
        add(&mut lines, &plain(root), frame, unit);
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

/// A stack, the outermost procedure first.
pub(super) fn collapse(stack: &[String]) -> String {
    stack.iter().map(|name| plain(name)).collect::<Vec<String>>().join(";")
}

fn push(line: &mut String, name: &str, kernel: bool) {
    line.push(';');
    line.push_str(&plain(name));
    if kernel {
        line.push_str("_[k]");
    }
}

/// A semicolon would split the name, and a line break the line.
pub(super) fn plain(name: &str) -> String {
    name.chars().map(|c| if c == ';' || c.is_control() { ':' } else { c }).collect()
}
