//! The flame graph: procedures upon their callers, each as wide as what one more request costs
//! there.
//!
//! The marginal cost of a stack is linear in its samples: by the fit that divides the whole by
//! groups ([`regress::Costs::influence`]), so that the stacks, and what the profile did not see,
//! add up to the slope of the whole, to rounding.
//!
//! A stack met a few times says little of its slope, and half of such slopes are below zero. So
//! frames of few samples are counted with their callers, which takes nothing from the sum. What is
//! below zero even then cannot be drawn: it is left out, and its sum is told, so that what is drawn
//! less what is left out is the whole again. Where no line says what a request costs, the width is
//! the CPU time that was sampled.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use trial::Trial;
use trial::profile::{Frame, FrameMode, Owner};

use super::samples;
use crate::groups::{Groups, Place};

/// Frames of fewer samples are counted with their callers: below it, a slope is mostly noise.
const SAMPLES_MIN: u64 = 8;
/// The same as a part of all samples: of a long recording what is narrower is not seen.
const SAMPLES_PART: u64 = 1_000;
/// The name of what the kernel accounts for and no sample saw.
const UNSAMPLED: &str = "not in the profile";

/// What the width of a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FlameUnit {
    /// CPU time of one more request, microseconds.
    UsPerRequest,
    /// CPU time that was sampled, milliseconds: there is no line that says what a request costs.
    SampledMs,
}

/// The flame graph.
#[derive(Clone, Debug, Serialize)]
pub struct Flame {
    /// The unit of every value.
    pub unit: FlameUnit,
    /// The whole: the slope of the resource's line, or all that was sampled.
    pub total: f64,
    /// Sum of what is drawn: the whole less `left_out`.
    pub drawn: f64,
    /// Sum of what is below zero, and so not drawn; zero or less.
    pub left_out: f64,
    /// How many frames, each with all above it, were left out for that.
    pub left_out_frames: usize,
    /// Frames of fewer samples are counted with their callers.
    pub samples_min: u64,
    /// Samples in it.
    pub samples: u64,
    /// Different stacks in it.
    pub stacks: usize,
    /// The outermost frames, the widest first.
    pub frames: Vec<FlameFrame>,
    /// Every stack with its own value, nothing left out.
    #[serde(skip)]
    pub by_stack: Vec<StackValue>,
    /// What the profile did not see.
    #[serde(skip)]
    pub unsampled: f64,
}

/// A procedure, and those that it called.
#[derive(Clone, Debug, Serialize)]
pub struct FlameFrame {
    /// Its name; an unknown one is named by its module.
    pub name: String,
    /// Where its code lies; empty for what is no procedure.
    pub module: String,
    /// `user`, `kernel`, or empty for what is no procedure.
    pub mode: &'static str,
    /// Its value, all that it called counted in, what is below zero too.
    pub value: f64,
    /// How wide it is drawn: its value less what is left out above it.
    pub width: f64,
    /// Samples of it.
    pub samples: u64,
    /// What it called, the widest first.
    pub called: Vec<FlameFrame>,
}

/// The value of one stack.
#[derive(Clone, Copy, Debug)]
pub struct StackValue {
    /// Whose samples.
    pub owner: Owner,
    /// The stack's number in the trial.
    pub stack: u32,
    /// How many samples.
    pub samples: u64,
    /// Its value, in the unit of the flame graph; it may be below zero.
    pub value: f64,
}

/// What the values are made from.
pub(super) struct Weights<'a> {
    pub(super) unit: FlameUnit,
    /// What a nanosecond sampled in each interval adds to a value.
    pub(super) per_ns: &'a [f64],
    /// The whole, where it is known from elsewhere.
    pub(super) total: Option<f64>,
    /// Whether samples of others than the server are part of the resource.
    pub(super) everybody: bool,
}

/// The flame graph of a trial; `None` where there is nothing to draw.
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
        Owner::Recorder | Owner::Other => weights.everybody,
        Owner::Idle => false,
    };
    for row in trial.samples().iter().filter(|row| counted(row.owner)) {
        let Some(&per_ns) = places.get(&row.interval).and_then(|&at| weights.per_ns.get(at)) else {
            continue;
        };
        // An interval that is no part of the fit has no say, and its samples do not count.
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

/// From the outermost frame inwards; what is not the server's stands upon its owner.
fn path(trial: &Trial, groups: &Groups, value: &StackValue) -> Vec<Key> {
    let Some(stack) = trial.stacks().get(value.stack as usize) else { return Vec::new() };
    let leaf = stack.frames.first().and_then(|&leaf| trial.frames().get(leaf as usize));
    let place = match (value.owner, leaf.map(|leaf| leaf.mode)) {
        (Owner::Server | Owner::Idle, _) => None,
        (Owner::Recorder, _) => Some(Place::Recorder),
        (Owner::Other, Some(FrameMode::Kernel)) => Some(Place::Elsewhere),
        (Owner::Other, _) => Some(Place::Others),
    };
    let owner = place.map(|place| Key::Named(groups.title(&place)));
    owner.into_iter().chain(stack.frames.iter().rev().map(|&frame| Key::Frame(frame))).collect()
}

/// What stands at a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// A frame of the trial, by its number.
    Frame(u32),
    /// What is no procedure.
    Named(String),
}

struct Node {
    key: Key,
    /// Of stacks that end here.
    own: f64,
    /// With all above it.
    value: f64,
    samples: u64,
    called: BTreeMap<Key, usize>,
}

/// All stacks upon each other; the first node is the ground.
struct Tree(Vec<Node>);

/// What is not drawn.
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

    /// A node with all that is drawn upon it. As deep as the deepest stack, which is bounded.
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
                Some(frame) => (label(frame), frame.module.clone(), samples::mode(frame.mode)),
                None => ("unknown".to_string(), String::new(), ""),
            },
        }
    }
}

/// A procedure's name; of code without a name, its module, with the offset where that is known.
pub(crate) fn label(frame: &Frame) -> String {
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
    fn what_is_drawn_and_what_is_left_out_add_up_to_the_whole() {
        let (root, cut) =
            drawn(&[(&[0, 1], 9, 5.0), (&[0, 2], 9, -2.0), (&[0], 9, -0.5), (&[3], 9, -1.0)], 1);
        assert_eq!(root.value, 1.5);
        assert_eq!((root.width, cut.sum, cut.frames), (5.0, -3.5, 3));
        assert!((root.width + cut.sum - root.value).abs() < 1e-12);
        let a = &root.called[0];
        assert_eq!((a.name.as_str(), a.value, a.width, a.called.len()), ("a", 2.5, 5.0, 1));
    }

    #[test]
    fn frames_of_few_samples_count_with_their_callers() {
        let (root, cut) = drawn(&[(&[0, 1], 20, 5.0), (&[0, 2, 3], 2, -2.0)], 3);
        assert_eq!((root.value, root.width, cut.sum), (3.0, 5.0, -2.0), "a's own is below zero");
        let (root, cut) = drawn(&[(&[0, 1], 20, 5.0), (&[0], 9, 3.0), (&[0, 2, 3], 2, -2.0)], 3);
        assert_eq!((root.width, cut.sum), (6.0, 0.0));
        assert_eq!(root.called[0].called.len(), 1, "c and d are counted with a");
    }

    #[test]
    fn the_widest_stands_first() {
        let (root, _) = drawn(&[(&[0], 9, 1.0), (&[1], 9, 3.0), (&[2], 9, 2.0)], 1);
        let names: Vec<&str> = root.called.iter().map(|frame| frame.name.as_str()).collect();
        assert_eq!(names, ["b", "c", "a"]);
    }
}
