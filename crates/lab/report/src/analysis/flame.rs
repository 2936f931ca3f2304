//! The flame graph: procedures above their callers, each as wide as its cost in one more request.
//!
//! The marginal cost of a stack is linear in its samples, by the fit that divides the total by
//! groups ([`regress::Costs::influence`]). So the stacks and the time that is not in the profile
//! add up to the slope of the total, within rounding.
//!
//! The slope of a stack with few samples is mostly noise, and half of such slopes are negative. So
//! frames with few samples are merged into their callers, which does not change the sum. A value
//! that is negative even then cannot be drawn. Such a value is left out, and the sum of the omitted
//! values is reported, so that the drawn width plus this sum is the total. If no line gives the
//! cost of a request, the width is the sampled CPU time.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use trial::Trial;
use trial::profile::{Frame, FrameMode, Owner};

use super::samples;
use crate::format::{latency, latency_fine, thousands};
use groups::{Groups, Place};

/// Frames with fewer samples are merged into their callers, because their slope is mostly noise.
const SAMPLES_MIN: u64 = 8;
/// The same limit as a fraction of all samples (one in this many): narrower frames are not visible.
const SAMPLES_PART: u64 = 1_000;
/// The name of the time that the kernel accounts for and that is not in the profile.
const UNSAMPLED: &str = "not in the profile";

/// What the width of a frame shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FlameUnit {
    /// CPU time of one more request, microseconds.
    UsPerRequest,
    /// Sampled CPU time, milliseconds: no line gives the cost of a request.
    SampledMs,
}

/// The flame graph.
#[derive(Clone, Debug, Serialize)]
pub struct Flame {
    /// The unit of every value.
    pub unit: FlameUnit,
    /// The total: the slope of the resource's line, or all sampled time.
    pub total: f64,
    /// Sum of the drawn values: the total minus `left_out`.
    pub drawn: f64,
    /// Sum of the negative values, which are not drawn; zero or less.
    pub left_out: f64,
    /// Number of frames that were left out, each with all frames above it.
    pub left_out_frames: usize,
    /// Frames with fewer samples are merged into their callers.
    pub samples_min: u64,
    /// Number of samples.
    pub samples: u64,
    /// Number of different stacks.
    pub stacks: usize,
    /// The outermost frames, the widest first.
    pub frames: Vec<FlameFrame>,
    /// Every stack with its own value, including those left out of the drawing.
    #[serde(skip)]
    pub by_stack: Vec<StackValue>,
    /// The time that is not in the profile.
    #[serde(skip)]
    pub unsampled: f64,
}

impl Flame {
    /// The title of the flame graph.
    pub fn title(&self) -> &'static str {
        match self.unit {
            FlameUnit::UsPerRequest => "CPU time of one more request, by call stack",
            FlameUnit::SampledMs => "Sampled CPU time, by call stack",
        }
    }

    /// What the width of the flame graph shows.
    pub fn width(&self) -> String {
        let total = self.written(self.total);
        match self.unit {
            FlameUnit::UsPerRequest => {
                format!("width: CPU time of one more request, {total} in total")
            }
            FlameUnit::SampledMs => {
                format!(
                    "width: CPU time sampled, {total} in total; no line gives the cost of a request"
                )
            }
        }
    }

    /// How to read the flame graph, and what it leaves out.
    pub fn note(&self) -> String {
        let mut note = format!(
            "{}; n = {} samples in {} stacks; frames with fewer than {} samples are merged into \
             their callers",
            self.width(),
            thousands(self.samples as f64),
            thousands(self.stacks as f64),
            self.samples_min
        );
        if self.left_out < 0.0 {
            let parts = match self.left_out_frames {
                1 => "one part with a negative value".to_string(),
                count => format!("{count} parts with negative values"),
            };
            note.push_str(&format!(
                "; {parts}, {} in total, cannot be drawn: the drawing shows {}",
                self.written(self.left_out),
                self.written(self.drawn)
            ));
        }
        note
    }
}

impl Flame {
    /// A value with its unit.
    pub(crate) fn written(&self, value: f64) -> String {
        match self.unit {
            FlameUnit::UsPerRequest => latency_fine(value, 2),
            FlameUnit::SampledMs => latency(1e3 * value),
        }
    }
}

/// A procedure and the procedures that it called.
#[derive(Clone, Debug, Serialize)]
pub struct FlameFrame {
    /// Its name; an unknown procedure is named after its module.
    pub name: String,
    /// The module that contains its code; empty for entries that are not procedures.
    pub module: String,
    /// `user`, `kernel`, or empty for entries that are not procedures.
    pub mode: &'static str,
    /// Its value, including everything that it called and negative values.
    pub value: f64,
    /// Its drawn width: its value minus the values left out above it.
    pub width: f64,
    /// Number of samples.
    pub samples: u64,
    /// The procedures that it called, the widest first.
    pub called: Vec<FlameFrame>,
}

/// The value of one stack.
#[derive(Clone, Copy, Debug)]
pub struct StackValue {
    /// Whose CPU time.
    pub owner: Owner,
    /// The stack's number in the trial.
    pub stack: u32,
    /// Number of samples.
    pub samples: u64,
    /// Its value, in the unit of the flame graph; it may be negative.
    pub value: f64,
}

/// How the values are computed.
pub(super) struct Weights<'a> {
    pub(super) unit: FlameUnit,
    /// For each interval, what a sampled nanosecond adds to a value.
    pub(super) per_ns: &'a [f64],
    /// The total, if it is known independently of the samples.
    pub(super) total: Option<f64>,
    /// Whether samples of others than the server are part of the resource.
    pub(super) all_owners: bool,
}

/// The flame graph of a trial; `None` if there is nothing to draw.
pub(super) fn flame(trial: &Trial, groups: &Groups, weights: &Weights<'_>) -> Option<Flame> {
    let by_stack = by_stack(trial, weights);
    let sampled: f64 = by_stack.iter().map(|stack| stack.value).sum();
    let samples = by_stack.iter().map(|stack| stack.samples).sum::<u64>();
    let total = weights.total.unwrap_or(sampled);
    let unsampled = total - sampled;
    let mut tree = Tree::new();
    for stack in &by_stack {
        tree.add(&path(trial, groups, stack), stack.samples, stack.value);
    }
    if weights.total.is_some() {
        tree.add(&[Key::Named(UNSAMPLED.to_string())], 0, unsampled);
    }
    let mut cut = Cut { samples_min: SAMPLES_MIN.max(samples / SAMPLES_PART), sum: 0.0, frames: 0 };
    let root = tree.frame(trial.frames(), 0, &mut cut);
    let drawable = samples > 0 && total > 0.0 && root.width > 0.0 && root.width.is_finite();
    drawable.then_some(Flame {
        unit: weights.unit,
        total,
        drawn: root.width,
        left_out: cut.sum,
        left_out_frames: cut.frames,
        samples_min: cut.samples_min,
        samples,
        stacks: by_stack.len(),
        frames: root.called,
        by_stack,
        unsampled,
    })
}

fn by_stack(trial: &Trial, weights: &Weights<'_>) -> Vec<StackValue> {
    let places = samples::places(trial.intervals());
    let mut found: HashMap<(Owner, u32), (u64, f64)> = HashMap::new();
    let counted = |owner| match owner {
        Owner::Server => true,
        Owner::Recorder | Owner::Other => weights.all_owners,
        Owner::Idle => false,
    };
    for row in trial.samples().iter().filter(|row| counted(row.owner)) {
        let Some(&per_ns) = places.get(&row.interval).and_then(|&at| weights.per_ns.get(at)) else {
            continue;
        };
        // Samples of intervals that are not fitted do not count.
        if per_ns != 0.0 {
            let stack = found.entry((row.owner, row.stack)).or_default();
            stack.0 += u64::from(row.samples);
            stack.1 += row.ns as f64 * per_ns;
        }
    }
    let mut listed: Vec<StackValue> = found
        .into_iter()
        .map(|((owner, stack), (samples, value))| StackValue { owner, stack, samples, value })
        .collect();
    listed.sort_by_key(|stack| (stack.owner, stack.stack));
    listed
}

/// The path from the outermost frame inwards. Stacks of others than the server are below an entry
/// for their owner.
fn path(trial: &Trial, groups: &Groups, value: &StackValue) -> Vec<Key> {
    let Some(stack) = trial.stacks().get(value.stack as usize) else { return Vec::new() };
    let leaf = trial.stack_frames(value.stack).next();
    let place = match (value.owner, leaf.map(|leaf| leaf.mode)) {
        (Owner::Server | Owner::Idle, _) => None,
        (Owner::Recorder, _) => Some(Place::Recorder),
        (Owner::Other, Some(FrameMode::Kernel)) => Some(Place::Elsewhere),
        (Owner::Other, _) => Some(Place::Others),
    };
    let owner = place.map(|place| Key::Named(groups.title(&place)));
    owner.into_iter().chain(stack.frames.iter().rev().map(|&frame| Key::Frame(frame))).collect()
}

/// The entry of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// A frame of the trial, by its number.
    Frame(u32),
    /// An entry that is not a procedure.
    Named(String),
}

struct Node {
    key: Key,
    /// The value of stacks that end here.
    own: f64,
    /// The value including all nodes above.
    value: f64,
    samples: u64,
    called: BTreeMap<Key, usize>,
}

/// All stacks merged into a tree; the first node is the root.
struct Tree(Vec<Node>);

/// The values that are left out.
struct Cut {
    samples_min: u64,
    sum: f64,
    frames: usize,
}

impl Tree {
    fn new() -> Tree {
        Tree(vec![Node::new(Key::Named(String::new()))])
    }

    fn add(&mut self, path: &[Key], samples: u64, value: f64) {
        let mut at = 0;
        self.0[0].count(samples, value);
        for key in path {
            let next = self.0.len();
            at = *self.0[at].called.entry(key.clone()).or_insert(next);
            if at == next {
                self.0.push(Node::new(key.clone()));
            }
            self.0[at].count(samples, value);
        }
        self.0[at].own += value;
    }

    /// A node with everything that is drawn above it. The recursion is as deep as the deepest
    /// stack, which is bounded.
    fn frame(&self, frames: &[Frame], at: usize, cut: &mut Cut) -> FlameFrame {
        let node = &self.0[at];
        let mut own = node.own;
        let mut called = Vec::new();
        for &above in node.called.values() {
            let Node { key, value, samples, .. } = &self.0[above];
            if *samples < cut.samples_min && matches!(key, Key::Frame(_)) {
                own += value;
            } else if *value > 0.0 {
                called.push(self.frame(frames, above, cut));
            } else {
                cut.sum += value;
                cut.frames += usize::from(*value < 0.0);
            }
        }
        if own < 0.0 {
            cut.sum += own;
            cut.frames += 1;
        }
        called.sort_by(|a, b| b.width.total_cmp(&a.width));
        let width = own.max(0.0) + called.iter().map(|frame| frame.width).sum::<f64>();
        let (name, module, mode) = node.key.named(frames);
        let (value, samples) = (node.value, node.samples);
        FlameFrame { name, module, mode, value, width, samples, called }
    }
}

impl Node {
    fn new(key: Key) -> Node {
        Node { key, own: 0.0, value: 0.0, samples: 0, called: BTreeMap::new() }
    }

    fn count(&mut self, samples: u64, value: f64) {
        self.samples = self.samples.saturating_add(samples);
        self.value += value;
    }
}

impl Key {
    fn named(&self, frames: &[Frame]) -> (String, String, &'static str) {
        match self {
            Key::Named(name) => (name.clone(), String::new(), ""),
            Key::Frame(number) => match frames.get(*number as usize) {
                Some(frame) => {
                    (frame_label(frame), frame.module.clone(), samples::mode(frame.mode))
                }
                None => ("unknown".to_string(), String::new(), ""),
            },
        }
    }
}

/// A procedure's name, or its module, with the offset if that is known.
#[must_use]
pub fn frame_label(frame: &Frame) -> String {
    match &frame.symbol {
        None => format!("unknown in {}", frame.module),
        Some(offset) if offset.starts_with('+') => format!("{}{offset}", frame.module),
        Some(name) => name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str) -> Frame {
        Frame { symbol: Some(name.to_string()), module: "m".into(), mode: FrameMode::User }
    }

    /// Frames 0 to 3 are a to d.
    fn drawn(stacks: &[(&[u32], u64, f64)], samples_min: u64) -> (FlameFrame, Cut) {
        let frames: Vec<Frame> = ["a", "b", "c", "d"].into_iter().map(frame).collect();
        let mut tree = Tree::new();
        for (path, samples, value) in stacks {
            let path: Vec<Key> = path.iter().map(|&frame| Key::Frame(frame)).collect();
            tree.add(&path, *samples, *value);
        }
        let mut cut = Cut { samples_min, sum: 0.0, frames: 0 };
        (tree.frame(&frames, 0, &mut cut), cut)
    }

    #[test]
    fn drawn_and_left_out_values_add_up_to_the_total() {
        let (root, cut) =
            drawn(&[(&[0, 1], 9, 5.0), (&[0, 2], 9, -2.0), (&[0], 9, -0.5), (&[3], 9, -1.0)], 1);
        assert_eq!(root.value, 1.5);
        assert_eq!((root.width, cut.sum, cut.frames), (5.0, -3.5, 3));
        assert!((root.width + cut.sum - root.value).abs() < 1e-12);
        let a = &root.called[0];
        assert_eq!((a.name.as_str(), a.value, a.width, a.called.len()), ("a", 2.5, 5.0, 1));
    }

    #[test]
    fn frames_with_few_samples_are_merged_into_their_callers() {
        let (root, cut) = drawn(&[(&[0, 1], 20, 5.0), (&[0, 2, 3], 2, -2.0)], 3);
        assert_eq!((root.value, root.width, cut.sum), (3.0, 5.0, -2.0), "a's own is below zero");
        let (root, cut) = drawn(&[(&[0, 1], 20, 5.0), (&[0], 9, 3.0), (&[0, 2, 3], 2, -2.0)], 3);
        assert_eq!((root.width, cut.sum), (6.0, 0.0));
        assert_eq!(root.called[0].called.len(), 1, "c and d are counted with a");
    }

    #[test]
    fn the_widest_frame_comes_first() {
        let (root, _) = drawn(&[(&[0], 9, 1.0), (&[1], 9, 3.0), (&[2], 9, 2.0)], 1);
        let names: Vec<&str> = root.called.iter().map(|frame| frame.name.as_str()).collect();
        assert_eq!(names, ["b", "c", "a"]);
    }
}
