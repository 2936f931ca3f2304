//! The samples of a trial by group and procedure: the CPU time of each in every interval. The
//! tables of the profile and of the costs are sums of these cells, so that the tables are
//! consistent.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use trial::profile::{Frame, FrameMode, Owner};
use trial::{Interval, Trial};

use groups::{Groups, Place};

/// A procedure.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Procedure {
    /// Its name; `None` if unknown.
    pub symbol: Option<String>,
    /// The module that contains its code.
    pub module: String,
    /// `user` or `kernel`.
    pub mode: &'static str,
}

impl Procedure {
    pub(super) fn of(frame: &Frame) -> Procedure {
        Procedure {
            symbol: frame.symbol.clone(),
            module: frame.module.clone(),
            mode: mode(frame.mode),
        }
    }

    /// Its label in tables: an unknown procedure is shown as its module.
    #[must_use]
    pub fn label(&self) -> String {
        match &self.symbol {
            Some(symbol) => symbol.clone(),
            None => format!("unknown in {}", self.module),
        }
    }
}

pub(super) fn mode(mode: FrameMode) -> &'static str {
    match mode {
        FrameMode::User => "user",
        FrameMode::Kernel => "kernel",
    }
}

/// The index of each interval, by its number.
pub(super) fn places(intervals: &[Interval]) -> HashMap<u64, usize> {
    intervals.iter().enumerate().map(|(at, interval)| (interval.index, at)).collect()
}

/// The CPU time of one procedure in one group: (index of the interval, ns), in order.
pub(crate) struct Cell {
    pub(crate) place: Place,
    pub(crate) procedure: Procedure,
    pub(crate) spent: Vec<(usize, i64)>,
}

impl Cell {
    pub(crate) fn total_ns(&self) -> i64 {
        self.spent.iter().map(|(_, ns)| ns).sum()
    }
}

/// All cells, and the idle samples.
pub(crate) struct Samples {
    pub(crate) cells: Vec<Cell>,
    /// Idle samples: (index of the interval, ns).
    pub(crate) idle: Vec<(usize, i64)>,
}

impl Samples {
    /// `None` if the trial has no samples.
    pub(crate) fn of(trial: &Trial, groups: &Groups) -> Option<Samples> {
        let (frames, stacks) = (trial.frames(), trial.stacks());
        let sorted = groups.sort(frames, stacks);
        let intervals = trial.intervals();
        let places = places(intervals);
        let mut cells: BTreeMap<(Place, Procedure), BTreeMap<usize, i64>> = BTreeMap::new();
        let mut idle: BTreeMap<usize, i64> = BTreeMap::new();
        // The cell is looked up once for each owner and stack.
        let mut by_stack: HashMap<(Owner, u32), Vec<(usize, i64)>> = HashMap::new();
        for row in trial.samples() {
            if let Some(&at) = places.get(&row.interval) {
                by_stack.entry((row.owner, row.stack)).or_default().push((at, row.ns));
            }
        }
        for ((owner, stack), spent) in by_stack {
            let cell = match sorted.place(owner, stack) {
                None => &mut idle,
                Some(place) => {
                    let leaf = stacks[stack as usize].frames.first();
                    let procedure = leaf.map_or_else(
                        || Procedure { symbol: None, module: "unknown".into(), mode: "user" },
                        |&frame| Procedure::of(&frames[frame as usize]),
                    );
                    cells.entry((place, procedure)).or_default()
                }
            };
            for (at, ns) in spent {
                *cell.entry(at).or_default() += ns;
            }
        }
        if cells.is_empty() {
            return None;
        }
        let cells = cells
            .into_iter()
            .map(|((place, procedure), spent)| Cell {
                place,
                procedure,
                spent: spent.into_iter().collect(),
            })
            .collect();
        Some(Samples { cells, idle: idle.into_iter().collect() })
    }

    /// CPU seconds per second in each of `rows`, over the `wanted` cells.
    pub(crate) fn series(
        &self,
        intervals: &[Interval],
        rows: &[usize],
        wanted: impl Fn(&Cell) -> bool,
    ) -> Vec<f64> {
        let mut spent = vec![0_i64; intervals.len()];
        for cell in self.cells.iter().filter(|cell| wanted(cell)) {
            for &(at, ns) in &cell.spent {
                spent[at] += ns;
            }
        }
        rows.iter().map(|&row| spent[row] as f64 / intervals[row].length_ns.max(1) as f64).collect()
    }

    /// Every place that has samples, without duplicates.
    pub(crate) fn places(&self) -> Vec<Place> {
        let mut places: Vec<Place> = self.cells.iter().map(|cell| cell.place.clone()).collect();
        places.dedup();
        places
    }
}
