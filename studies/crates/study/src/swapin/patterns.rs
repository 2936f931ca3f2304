//! The patterns that were published in 1997, tested on medians: each holds, does not hold, or is
//! inconclusive.
//!
//! What: an [`Object`] is one object with the medians of its delays over all rounds. A pattern is
//! a figure with an interval by the bootstrap over objects. Objects are resampled, not samples,
//! because the samples of one object resemble each other. The verdict depends on the position of
//! the interval, never on the figure alone; "alike" needs an interval within a margin.
//! What never happens: a verdict from fewer than [`OBJECTS_MIN`] objects on a side.

use std::collections::{BTreeMap, BTreeSet};

use regress::{Design, block_bootstrap, least_squares};
use serde::Serialize;

use super::bins::{bin_of, median};
use crate::show::NONE;

/// One object, with the medians of its delays in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Object {
    /// Bytes of its body.
    pub(super) size: u64,
    /// Blocks in which it is read.
    pub(super) blocks: u32,
    /// Delay of the first block.
    pub(super) first_us: f64,
    /// Delay of the whole object.
    pub(super) total_us: f64,
}

/// The verdict of the data on a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// The pattern exists.
    Holds,
    /// The pattern does not exist, and the interval excludes it.
    DoesNot,
    /// The interval allows both, or there are too few objects.
    Inconclusive,
}

/// A figure with its interval, at 95 %.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Figure {
    /// The figure.
    pub(super) value: f64,
    /// Its interval, if there are enough objects for one.
    pub(super) interval: Option<(f64, f64)>,
    /// Number of objects.
    objects: usize,
}

/// A pattern and its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Pattern {
    name: &'static str,
    /// The verdict of the data.
    pub(super) verdict: Verdict,
    /// The figure behind the verdict.
    pub(super) figure: Figure,
    /// The figure as a cell of a table.
    pub(super) short: String,
}

/// With fewer objects on a side a comparison is inconclusive.
pub(super) const OBJECTS_MIN: usize = 5;
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
pub(super) fn patterns(objects: &[Object], block_bytes: u64) -> Vec<Pattern> {
    let all: Vec<&Object> = objects.iter().collect();
    let window = block_bytes / 4;
    // Does the total step up at each block, in addition to the cost of more bytes?
    let steps = step(&all);
    let around = BLURRED_BEYOND..=BLURRED_BEYOND + 1;
    let around: Vec<&Object> = all.iter().copied().filter(|o| around.contains(&o.blocks)).collect();
    let blurred = step(&around);
    let one: Vec<&Object> = all.iter().copied().filter(|object| object.blocks == 1).collect();
    let one_block_us = median(one.iter().map(|object| object.total_us));
    let first_is_total =
        figure_of(&one, |objects| Some(median(objects.map(|o| o.total_us / o.first_us))));
    let equal_first = first_ratio(&all, |object| Some(object.blocks > 1));
    // All objects of more than one block read one whole block first.
    let equal_beyond = first_ratio(&all, |object| (object.blocks > 1).then_some(object.blocks > 2));
    // A drop just after the end of the first block reveals a second read where one would have
    // sufficed.
    let ratio = first_ratio(&all, |object| match object.blocks {
        1 if object.size + window >= block_bytes => Some(false),
        2 if object.size < block_bytes + window => Some(true),
        _ => None,
    });
    let drop = Figure {
        value: 1.0 - ratio.value,
        interval: ratio.interval.map(|(low, high)| (1.0 - high, 1.0 - low)),
        ..ratio
    };
    let us = |figure: &Figure| shown(figure.value, |us| format!("{us:.2} µs"));
    let times = |figure: &Figure| shown(figure.value, |times| format!("{times:.2} x"));
    let percent = |figure: &Figure| shown(figure.value, |part| format!("{:.1} %", 100.0 * part));
    let pattern = |name, figure: Figure, verdict, short: &dyn Fn(&Figure) -> String| Pattern {
        name,
        verdict,
        short: short(&figure),
        figure,
    };
    let (of_steps, of_blurred) =
        (of_step(&steps, one_block_us), of_step(&blurred, one_block_us).contrary());
    let [total, first, beyond] = [&first_is_total, &equal_first, &equal_beyond].map(alike);
    let dropped = of_drop(&drop);
    vec![
        pattern("totals step up at each block", steps, of_steps, &us),
        pattern("steps are blurred beyond three blocks", blurred, of_blurred, &us),
        pattern("below one block the first delay is the total", first_is_total, total, &times),
        pattern("the first delay is the same for every size", equal_first, first, &times),
        pattern(
            "the first delay is the same for every size beyond one block",
            equal_beyond,
            beyond,
            &times,
        ),
        pattern("the first delay drops beyond one block", drop, dropped, &percent),
    ]
}

impl Verdict {
    /// As it is printed.
    pub(super) fn label(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::DoesNot => "does not",
            Verdict::Inconclusive => "inconclusive",
        }
    }

    fn contrary(self) -> Verdict {
        match self {
            Verdict::Holds => Verdict::DoesNot,
            Verdict::DoesNot => Verdict::Holds,
            Verdict::Inconclusive => Verdict::Inconclusive,
        }
    }
}

fn of_step(figure: &Figure, one_block_us: f64) -> Verdict {
    match figure.interval {
        Some((low, _)) if low > 0.0 => Verdict::Holds,
        Some((_, high)) if high < STEP_MIN * one_block_us => Verdict::DoesNot,
        _ => Verdict::Inconclusive,
    }
}

fn alike(ratio: &Figure) -> Verdict {
    match ratio.interval {
        Some((low, high)) if low >= 1.0 / ALIKE && high <= ALIKE => Verdict::Holds,
        Some((low, high)) if low > ALIKE || high < 1.0 / ALIKE => Verdict::DoesNot,
        _ => Verdict::Inconclusive,
    }
}

fn of_drop(drop: &Figure) -> Verdict {
    match drop.interval {
        Some((low, _)) if low > 0.0 && drop.value >= DROP_MIN => Verdict::Holds,
        Some((_, high)) if high < DROP_MIN => Verdict::DoesNot,
        _ => Verdict::Inconclusive,
    }
}

/// The cost of a mistake for an object. Each pair is an object read without the mistake, and how
/// much longer it takes with it.
pub(super) fn cost(pairs: &[(Object, f64)]) -> Figure {
    figure_of(pairs, |pairs| Some(median(pairs.map(|(_, longer)| longer))))
}

/// The loss for objects of one block, in percent, and whether it is larger than the published one.
pub(super) fn loss(pairs: &[(Object, f64)]) -> (Figure, Verdict) {
    let one: Vec<(Object, f64)> =
        pairs.iter().copied().filter(|(object, _)| object.blocks == 1).collect();
    let loss = |(object, longer): (Object, f64)| 100.0 * longer / object.total_us;
    let figure = figure_of(&one, |pairs| Some(median(pairs.map(loss))));
    let verdict = match figure.interval {
        Some((low, _)) if low > LOSS_PERCENT_1997 => Verdict::Holds,
        Some((_, high)) if high <= LOSS_PERCENT_1997 => Verdict::DoesNot,
        _ => Verdict::Inconclusive,
    };
    (figure, verdict)
}

/// The cost of one more block at equal size: least squares of the bins' medians on size and blocks.
/// Objects of two numbers of blocks at least must be numerous enough.
fn step(objects: &[&Object]) -> Figure {
    let numbers: BTreeSet<u32> = objects.iter().map(|object| object.blocks).collect();
    let numerous = |blocks: &&u32| {
        objects.iter().filter(|object| object.blocks == **blocks).count() >= OBJECTS_MIN
    };
    let mut figure = figure_of(objects, |objects| step_of(objects));
    if numbers.iter().filter(numerous).count() < 2 {
        figure.interval = None;
    }
    figure
}

fn step_of<'o>(objects: impl Iterator<Item = &'o Object>) -> Option<f64> {
    // By bin and number of blocks, because a bin may contain the end of a block.
    let mut cells: BTreeMap<((u64, u64), u32), Vec<&Object>> = BTreeMap::new();
    for object in objects {
        cells.entry((bin_of(object.size), object.blocks)).or_default().push(object);
    }
    let of = |value: fn(&Object) -> f64| -> Vec<f64> {
        cells.values().map(|cell| median(cell.iter().map(|object| value(object)))).collect()
    };
    let size = of(|object| object.size as f64);
    let blocks = of(|object| f64::from(object.blocks));
    let total = of(|object| object.total_us);
    let design = Design::new(&[&size, &blocks]).ok()?;
    Some(least_squares(&design, &total, None).ok()?.coefficients[2])
}

/// The ratio of the median first delays of two sides, the second over the first. `side` says on
/// which an object is, if it is on either.
fn first_ratio(objects: &[&Object], side: impl Fn(&Object) -> Option<bool>) -> Figure {
    let sides: Vec<(bool, f64)> =
        objects.iter().filter_map(|object| Some((side(object)?, object.first_us))).collect();
    let mut figure = figure_of(&sides, |sides| {
        let (second, first): (Vec<_>, Vec<_>) = sides.partition(|(second, _)| *second);
        let of = |side: Vec<(bool, f64)>| median(side.into_iter().map(|(_, first_us)| first_us));
        Some(of(second) / of(first))
    });
    let second = sides.iter().filter(|(second, _)| *second).count();
    if second.min(sides.len() - second) < OBJECTS_MIN {
        figure.interval = None;
    }
    figure
}

/// A statistic of all rows, with its interval by resampling the rows, if there are enough.
fn figure_of<T: Copy>(
    rows: &[T],
    statistic: impl Fn(&mut dyn Iterator<Item = T>) -> Option<f64>,
) -> Figure {
    let objects = rows.len();
    let of = |chosen: &[usize]| statistic(&mut chosen.iter().map(|row| rows[*row]));
    let all: Vec<usize> = (0..objects).collect();
    let value = if objects == 0 { None } else { of(&all) }.unwrap_or(f64::NAN);
    let interval = if objects < OBJECTS_MIN {
        None
    } else {
        block_bootstrap(objects, 1, RESAMPLES, SEED, &of).interval(LEVEL).bounds()
    };
    Figure { value, interval, objects }
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

fn shown(value: f64, one: impl Fn(f64) -> String) -> String {
    if value.is_finite() { one(value) } else { NONE.to_owned() }
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
        let all = patterns(&of_1997(), BLOCK);
        assert!((all[5].figure.value - 0.4).abs() < 0.05, "{all:?}");
        assert!((all[0].figure.value - 20.0).abs() < 4.0, "{all:?}");
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
        assert_eq!(loss(&pairs).1, Verdict::DoesNot, "12 of 30 us");
        let tripled: Vec<(Object, f64)> = pairs.iter().map(|(o, d)| (*o, 3.0 * d)).collect();
        assert_eq!(loss(&tripled).1, Verdict::Holds, "36 of 30 us");
    }
}
