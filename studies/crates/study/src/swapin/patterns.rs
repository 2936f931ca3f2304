//! The patterns that were published in 1997, tested on medians: each holds, does not hold, or is
//! inconclusive.
//!
//! What: an [`Object`] is one object with the medians of its delays over all rounds. A pattern is
//! a figure with an interval by the bootstrap over objects. Objects are resampled, not samples,
//! because the samples of one object resemble each other. The verdict depends on the position of
//! the interval, never on the figure alone; "alike" needs an interval within a margin.
//! What never happens: a verdict from fewer than [`OBJECTS_MIN`] objects on a side.

use std::collections::BTreeMap;

use regress::{Design, block_bootstrap, least_squares};
use serde::Serialize;

use super::bins::{bin_of, median};

/// One object, with the medians of its delays in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Object {
    /// Bytes of its body.
    pub size: u64,
    /// Blocks in which it is read.
    pub blocks: u32,
    /// Delay of the first block.
    pub first_us: f64,
    /// Delay of the whole object.
    pub total_us: f64,
}

/// The verdict of the data on a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The pattern exists.
    Holds,
    /// The pattern does not exist, and the interval excludes it.
    DoesNot,
    /// The interval allows both, or there are too few objects.
    Inconclusive,
}

impl Verdict {
    /// As it is printed.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::DoesNot => "does not",
            Verdict::Inconclusive => "inconclusive",
        }
    }
}

/// A figure with its interval, at 95 %.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The figure.
    pub value: f64,
    /// Its interval, if there is one.
    pub interval: Option<(f64, f64)>,
    /// Number of objects.
    pub objects: usize,
}

/// A pattern and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pattern {
    /// Its name.
    pub name: &'static str,
    /// The verdict of the data.
    pub verdict: Verdict,
    /// The figure behind the verdict.
    pub figure: Figure,
    /// The figure as a cell of a table.
    pub short: String,
    /// The figure in words.
    pub text: String,
}

/// With fewer objects on a side a comparison is inconclusive.
pub const OBJECTS_MIN: usize = 5;
/// Delays are alike if their ratio lies within this factor in both directions.
const ALIKE: f64 = 1.2;
/// A smaller drop is not sharp.
const DROP_MIN: f64 = 0.1;
/// A step below this part of the delay of an object of one block is no step.
const STEP_MIN: f64 = 0.03;
/// The published loss below one block, in percent.
const LOSS_PERCENT_1997: f64 = 80.0;
/// The number of blocks beyond which the steps of 1997 were blurred.
const BLURRED_BEYOND: u32 = 3;
const RESAMPLES: usize = 1000;
const LEVEL: f64 = 0.95;
const SEED: u64 = 1997;

/// All patterns of a plot with blocks of this length.
#[must_use]
pub fn patterns(objects: &[Object], block_bytes: u64) -> Vec<Pattern> {
    vec![
        steps(objects),
        blurred(objects),
        first_is_total(objects),
        equal_first(objects),
        equal_beyond(objects),
        drop_beyond(objects, block_bytes),
    ]
}

/// Does the total step up at each block, in addition to the cost of more bytes?
#[must_use]
pub fn steps(objects: &[Object]) -> Pattern {
    let figure = step(objects, |_| true);
    let verdict = of_step(&figure, one_block_us(objects));
    let text = format!(
        "one more block costs {} at equal size, {} of the delay of an object of one block",
        in_us(&figure),
        percent(figure.value / one_block_us(objects))
    );
    let short = short_us(&figure);
    Pattern { name: "totals step up at each block", verdict, figure, short, text }
}

/// Has the step after the third block disappeared?
#[must_use]
pub fn blurred(objects: &[Object]) -> Pattern {
    let name = "steps are blurred beyond three blocks";
    let figure =
        step(objects, |object| (BLURRED_BEYOND..=BLURRED_BEYOND + 1).contains(&object.blocks));
    let verdict = match of_step(&figure, one_block_us(objects)) {
        Verdict::Holds => Verdict::DoesNot,
        Verdict::DoesNot => Verdict::Holds,
        Verdict::Inconclusive => Verdict::Inconclusive,
    };
    let text = format!("the step after the third block is {}", in_us(&figure));
    Pattern { name, verdict, short: short_us(&figure), figure, text }
}

fn of_step(figure: &Figure, one_block_us: f64) -> Verdict {
    match figure.interval {
        Some((low, _)) if low > 0.0 => Verdict::Holds,
        Some((_, high)) if high < STEP_MIN * one_block_us => Verdict::DoesNot,
        _ => Verdict::Inconclusive,
    }
}

/// Is the first delay the total for objects of one block?
#[must_use]
pub fn first_is_total(objects: &[Object]) -> Pattern {
    let one: Vec<&Object> = objects.iter().filter(|object| object.blocks == 1).collect();
    let figure = with_interval(one.len(), |rows| {
        Some(median(rows.iter().map(|row| one[*row].total_us / one[*row].first_us)))
    });
    let verdict = if one.len() < OBJECTS_MIN { Verdict::Inconclusive } else { alike(&figure) };
    let text = format!("the total is {} the first delay", times(&figure));
    let short = short_times(&figure);
    Pattern { name: "below one block the first delay is the total", verdict, figure, short, text }
}

/// Is the first delay of larger objects the same as that of objects of one block?
#[must_use]
pub fn equal_first(objects: &[Object]) -> Pattern {
    let figure = first_ratio(objects, |object| object.blocks == 1, |object| object.blocks > 1);
    let verdict = alike(&figure);
    let text = format!("beyond one block it is {} that of objects of one block", times(&figure));
    let short = short_times(&figure);
    Pattern { name: "the first delay is the same for every size", verdict, figure, short, text }
}

/// Is the first delay of all objects of more than one block the same? All of them read one whole
/// block first.
#[must_use]
pub fn equal_beyond(objects: &[Object]) -> Pattern {
    let figure = first_ratio(objects, |object| object.blocks == 2, |object| object.blocks > 2);
    let verdict = alike(&figure);
    let text = format!("for three blocks and more it is {} that for two", times(&figure));
    let short = short_times(&figure);
    let name = "the first delay is the same for every size beyond one block";
    Pattern { name, verdict, figure, short, text }
}

fn alike(ratio: &Figure) -> Verdict {
    match ratio.interval {
        Some((low, high)) if low >= 1.0 / ALIKE && high <= ALIKE => Verdict::Holds,
        Some((low, high)) if low > ALIKE || high < 1.0 / ALIKE => Verdict::DoesNot,
        _ => Verdict::Inconclusive,
    }
}

/// Does the first delay drop just after the end of the first block? Such a drop reveals a second
/// read where one would have sufficed.
#[must_use]
pub fn drop_beyond(objects: &[Object], block_bytes: u64) -> Pattern {
    let window = block_bytes / 4;
    let below = |object: &Object| object.blocks == 1 && object.size + window >= block_bytes;
    let above = |object: &Object| object.blocks == 2 && object.size < block_bytes + window;
    let ratio = first_ratio(objects, below, above);
    let figure = Figure {
        value: 1.0 - ratio.value,
        interval: ratio.interval.map(|(low, high)| (1.0 - high, 1.0 - low)),
        objects: ratio.objects,
    };
    let verdict = match figure.interval {
        Some((low, _)) if low > 0.0 && figure.value >= DROP_MIN => Verdict::Holds,
        Some((_, high)) if high < DROP_MIN => Verdict::DoesNot,
        _ => Verdict::Inconclusive,
    };
    let (low, high) = figure.interval.unwrap_or((f64::NAN, f64::NAN));
    let text = format!(
        "across the end of the first block it drops by {} ({} to {})",
        percent(figure.value),
        percent(low),
        percent(high)
    );
    let short = percent(figure.value);
    Pattern { name: "the first delay drops beyond one block", verdict, figure, short, text }
}

/// The cost of a mistake for an object. Each pair is an object read without the mistake, and how
/// much longer it takes with it.
#[must_use]
pub fn cost(pairs: &[(Object, f64)]) -> Figure {
    with_interval(pairs.len(), |rows| Some(median(rows.iter().map(|row| pairs[*row].1))))
}

/// Is the loss for objects of one block larger than the published one?
#[must_use]
pub fn loss(pairs: &[(Object, f64)]) -> Pattern {
    let one: Vec<&(Object, f64)> = pairs.iter().filter(|(object, _)| object.blocks == 1).collect();
    let figure = with_interval(one.len(), |rows| {
        Some(median(rows.iter().map(|row| 100.0 * one[*row].1 / one[*row].0.total_us)))
    });
    let verdict = match figure.interval {
        _ if one.len() < OBJECTS_MIN => Verdict::Inconclusive,
        Some((low, _)) if low > LOSS_PERCENT_1997 => Verdict::Holds,
        Some((_, high)) if high <= LOSS_PERCENT_1997 => Verdict::DoesNot,
        _ => Verdict::Inconclusive,
    };
    let (low, high) = figure.interval.unwrap_or((f64::NAN, f64::NAN));
    let text = format!("the loss is {:.1} % ({low:.1} to {high:.1})", figure.value);
    let short = format!("{:.1} %", figure.value);
    Pattern { name: "more than 80 % is lost below one block", verdict, figure, short, text }
}

/// The median total of objects of one block.
fn one_block_us(objects: &[Object]) -> f64 {
    median(objects.iter().filter(|object| object.blocks == 1).map(|object| object.total_us))
}

/// The cost of one more block at equal size: least squares of the bins' medians on size and blocks.
fn step(objects: &[Object], which: impl Fn(&Object) -> bool) -> Figure {
    let objects: Vec<Object> = objects.iter().filter(|object| which(object)).copied().collect();
    let of_blocks = |blocks: u32| objects.iter().filter(|object| object.blocks == blocks).count();
    let all: std::collections::BTreeSet<u32> = objects.iter().map(|o| o.blocks).collect();
    let enough = all.iter().filter(|blocks| of_blocks(**blocks) >= OBJECTS_MIN).count() >= 2;
    let mut figure =
        with_interval(objects.len(), |rows| step_of(rows.iter().map(|row| objects[*row])));
    if !enough {
        figure.interval = None;
    }
    figure
}

fn step_of(objects: impl Iterator<Item = Object>) -> Option<f64> {
    // By bin and number of blocks, because a bin may contain the end of a block.
    let mut cells: BTreeMap<((u64, u64), u32), Vec<Object>> = BTreeMap::new();
    for object in objects {
        cells.entry((bin_of(object.size), object.blocks)).or_default().push(object);
    }
    let of = |value: fn(&Object) -> f64| -> Vec<f64> {
        cells.values().map(|cell| median(cell.iter().map(value))).collect()
    };
    let size = of(|object| object.size as f64);
    let blocks = of(|object| f64::from(object.blocks));
    let total = of(|object| object.total_us);
    let design = Design::new(&[&size, &blocks]).ok()?;
    Some(least_squares(&design, &total, None).ok()?.coefficients[2])
}

/// The ratio of the median first delays, `above` over `below`.
fn first_ratio(
    objects: &[Object],
    below: impl Fn(&Object) -> bool,
    above: impl Fn(&Object) -> bool,
) -> Figure {
    let sides: Vec<(bool, f64)> = objects
        .iter()
        .filter(|object| below(object) || above(object))
        .map(|object| (above(object), object.first_us))
        .collect();
    let mut figure = with_interval(sides.len(), |rows| {
        let of = |side: bool| {
            median(rows.iter().map(|row| sides[*row]).filter(|s| s.0 == side).map(|s| s.1))
        };
        Some(of(true) / of(false))
    });
    let count = |side: bool| sides.iter().filter(|s| s.0 == side).count();
    if count(true).min(count(false)) < OBJECTS_MIN {
        figure.interval = None;
    }
    figure
}

/// A statistic of all rows, with its interval by resampling the rows.
fn with_interval(rows: usize, statistic: impl Fn(&[usize]) -> Option<f64>) -> Figure {
    let all: Vec<usize> = (0..rows).collect();
    if rows == 0 {
        return Figure { value: f64::NAN, interval: None, objects: 0 };
    }
    let value = statistic(&all).unwrap_or(f64::NAN);
    let drawn = block_bootstrap(rows, 1, RESAMPLES, SEED, &statistic);
    Figure { value, interval: drawn.interval(LEVEL).bounds(), objects: rows }
}

/// `1.2 us (1.1 to 1.3)`
pub(super) fn in_us(figure: &Figure) -> String {
    let digits = |us: f64| if us.abs() < 10.0 { format!("{us:.2}") } else { format!("{us:.1}") };
    match figure.interval {
        Some((low, high)) => {
            format!("{} µs ({} to {})", digits(figure.value), digits(low), digits(high))
        }
        None => format!("{} µs (no interval)", digits(figure.value)),
    }
}

fn short_us(figure: &Figure) -> String {
    if figure.value.is_finite() { format!("{:.2} µs", figure.value) } else { "-".to_owned() }
}

fn short_times(figure: &Figure) -> String {
    if figure.value.is_finite() { format!("{:.2} x", figure.value) } else { "-".to_owned() }
}

fn times(figure: &Figure) -> String {
    match figure.interval {
        Some((low, high)) => format!("{:.2} times ({low:.2} to {high:.2})", figure.value),
        None => format!("{:.2} times (no interval)", figure.value),
    }
}

fn percent(part: f64) -> String {
    if part.is_finite() { format!("{:.1} %", 100.0 * part) } else { "-".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regress::Rng;

    const BLOCK: u64 = 8192;

    /// Objects of 0.5 to 32 KiB. `of` gives (first, total) by size and blocks; a little noise.
    fn made(of: impl Fn(f64, f64) -> (f64, f64)) -> Vec<Object> {
        let mut rng = Rng::new(5);
        let sizes = super::super::bins::sizes(240, 32, &mut rng);
        sizes
            .into_iter()
            .map(|size| {
                let blocks = size.div_ceil(BLOCK);
                let (first, total) = of(size as f64, blocks as f64);
                let noise = 1.0 + 0.05 * rng.normal();
                let (first_us, total_us) = (first * noise, total * noise);
                Object { size, blocks: blocks as u32, first_us, total_us }
            })
            .collect()
    }

    /// As in 1997: 30 us to open and read, and 20 for each further read, one of which gives
    /// nothing.
    fn of_1997() -> Vec<Object> {
        made(|_, blocks| {
            let first = if blocks < 2.0 { 50.0 } else { 30.0 };
            (first, 30.0 + 20.0 * blocks)
        })
    }

    fn fixed() -> Vec<Object> {
        made(|_, blocks| (30.0, 30.0 + 20.0 * (blocks - 1.0)))
    }

    /// Bytes have a cost, blocks do not.
    fn smooth() -> Vec<Object> {
        made(|size, _| ((10.0 + size.min(8192.0) / 100.0), 10.0 + size / 100.0))
    }

    fn verdicts(objects: &[Object]) -> Vec<Verdict> {
        patterns(objects, BLOCK).into_iter().map(|pattern| pattern.verdict).collect()
    }

    #[test]
    fn the_plot_of_1997_shows_steps_and_the_drop() {
        use Verdict::{DoesNot, Holds};
        assert_eq!(verdicts(&of_1997()), [Holds, DoesNot, Holds, DoesNot, Holds, Holds]);
        let dropped = drop_beyond(&of_1997(), BLOCK);
        assert!((dropped.figure.value - 0.4).abs() < 0.05, "{dropped:?}");
        let step = steps(&of_1997());
        assert!((step.figure.value - 20.0).abs() < 4.0, "{step:?}");
    }

    #[test]
    fn the_fix_has_steps_and_no_drop() {
        use Verdict::{DoesNot, Holds};
        assert_eq!(verdicts(&fixed()), [Holds, DoesNot, Holds, Holds, Holds, DoesNot]);
    }

    #[test]
    fn without_a_cost_of_blocks_there_are_no_steps() {
        use Verdict::{DoesNot, Holds};
        // Without noise in the total, so that the noise cannot hide a step.
        let quiet: Vec<Object> = smooth()
            .into_iter()
            .map(|object| Object { total_us: 10.0 + object.size as f64 / 100.0, ..object })
            .collect();
        let all = patterns(&quiet, BLOCK);
        assert_eq!(all[0].verdict, DoesNot, "{all:?}");
        assert_eq!(all[1].verdict, Holds, "{all:?}");
        assert_eq!(all[3].verdict, DoesNot, "larger objects read more at first: {all:?}");
    }

    #[test]
    fn few_objects_are_inconclusive() {
        let few: Vec<Object> = of_1997().into_iter().step_by(60).collect();
        assert!(verdicts(&few).iter().all(|verdict| *verdict == Verdict::Inconclusive));
        assert!(patterns(&[], BLOCK).iter().all(|p| p.verdict == Verdict::Inconclusive));
    }

    #[test]
    fn a_cost_is_the_median_of_the_differences_with_its_interval() {
        let mut rng = Rng::new(2);
        let pairs: Vec<(Object, f64)> =
            fixed().into_iter().map(|object| (object, 12.0 + rng.normal())).collect();
        let found = cost(&pairs);
        let (low, high) = found.interval.unwrap();
        assert!(low < 12.0 && 12.0 < high && high - low < 1.0, "{found:?}");
        assert_eq!(loss(&pairs).verdict, Verdict::DoesNot, "12 of 30 us");
        let tripled: Vec<(Object, f64)> = pairs.iter().map(|(o, d)| (*o, 3.0 * d)).collect();
        assert_eq!(loss(&tripled).verdict, Verdict::Holds, "36 of 30 us");
    }
}
