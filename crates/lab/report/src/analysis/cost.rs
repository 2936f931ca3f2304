//! The cost of a request by mode, group and procedure: marginal and fixed.
//!
//! The sampled CPU time of each group in each interval is fitted with the design and the weights of
//! the limiting resource's own CPU time ([`regress::costs()`]), so that the groups, and the time
//! that is not in the profile, add up to the resource's line. If that resource is one thread of
//! several, the server's profile is scaled to the thread's share.

use std::collections::BTreeMap;

use regress::{Cost, Costs, Design};
use serde::Serialize;
use trial::Interval;

use super::ResourceKind;
use super::fit::Fitted;
use super::samples::{Cell, Procedure, Samples};
use groups::{Groups, Place};

/// Procedures with a smaller share of the sampled time have no row.
const PROCEDURE_SHARE_MIN: f64 = 0.01;

/// The cost of a request.
#[derive(Clone, Debug, Serialize)]
pub struct CostTable {
    /// The resource whose CPU time is divided.
    pub resource: ResourceKind,
    /// Intervals fitted.
    pub n: usize,
    /// Level of the intervals.
    pub level: f64,
    /// The resource's share of the server's CPU time, by which the profile is scaled.
    pub scale: f64,
    /// The total: the resource's line.
    pub whole: CostRow,
    /// By mode, by the kernel's accounting.
    pub modes: Vec<CostRow>,
    /// By group, the most expensive first. With `unsampled` they add up to the total.
    pub groups: Vec<GroupCost>,
    /// CPU time that the kernel accounts for and that is not in the profile.
    pub unsampled: CostRow,
    /// Costs outside the resource: in the kernel elsewhere, of the recorder, of other processes.
    pub outside: Vec<CostRow>,
    /// Sum of the groups minus the total, microseconds per request: rounding error.
    pub closure_us: f64,
    /// The same for the fixed costs, percent of one CPU.
    pub closure_fixed_percent: f64,
    /// For each interval of the trial, what a sampled nanosecond adds to the cost of a request in
    /// this fit, microseconds. It gives the cost of a stack.
    #[serde(skip)]
    pub(crate) us_per_ns: Vec<f64>,
}

/// A group with its procedures.
#[derive(Clone, Debug, Serialize)]
pub struct GroupCost {
    /// The cost of the group.
    pub row: CostRow,
    /// The part of `us_per_request` in user mode.
    pub us_user: f64,
    /// The part of `us_per_request` in kernel mode.
    pub us_kernel: f64,
    /// Its procedures, the largest first.
    pub procedures: Vec<CostRow>,
}

/// One cost.
#[derive(Clone, Debug, Serialize)]
pub struct CostRow {
    /// Its name in tables.
    pub name: String,
    /// Its name on the command line; empty for a procedure.
    pub group: String,
    /// The procedure, if it is one.
    pub procedure: Option<Procedure>,
    /// CPU time of one more request, microseconds.
    pub us_per_request: f64,
    /// Lower end of its interval.
    pub us_low: f64,
    /// Upper end of it.
    pub us_high: f64,
    /// Its share of the total, percent.
    pub share_percent: f64,
    /// Fixed cost at zero load, percent of one CPU.
    pub fixed_percent: f64,
    /// Lower end of its interval.
    pub fixed_low: f64,
    /// Upper end of it.
    pub fixed_high: f64,
    /// The fit, for comparisons.
    #[serde(skip)]
    pub cost: Cost,
}

impl CostRow {
    fn new(name: String, group: String, procedure: Option<Procedure>, cost: &Cost) -> CostRow {
        let (marginal, fixed) = (cost.marginal(), cost.fixed());
        CostRow {
            name,
            group,
            procedure,
            us_per_request: 1e6 * marginal.value,
            us_low: 1e6 * marginal.low,
            us_high: 1e6 * marginal.high,
            share_percent: f64::NAN,
            fixed_percent: 100.0 * fixed.value,
            fixed_low: 100.0 * fixed.low,
            fixed_high: 100.0 * fixed.high,
            cost: cost.clone(),
        }
    }
}

/// The profile and the resource that costs are fitted from.
pub(crate) struct Divided<'a> {
    samples: &'a Samples,
    intervals: &'a [Interval],
    groups: &'a Groups,
    main: &'a Fitted,
    /// The resource's share of the sampled time.
    pub(crate) scale: f64,
}

impl<'a> Divided<'a> {
    pub(super) fn new(
        samples: &'a Samples,
        intervals: &'a [Interval],
        groups: &'a Groups,
        main: &'a Fitted,
    ) -> Divided<'a> {
        let scale = match main.series.kind {
            ResourceKind::HottestThread => thread_share(intervals, main),
            _ => 1.0,
        };
        Divided { samples, intervals, groups, main, scale }
    }

    /// Whether a place is part of the resource.
    fn inside(&self, place: &Place) -> bool {
        let server = matches!(place, Place::Group(_) | Place::Rest(_));
        server || self.main.series.kind == ResourceKind::Machine
    }

    /// The places that are part of the resource, and those that are not.
    fn places(&self) -> (Vec<Place>, Vec<Place>) {
        self.samples.places().into_iter().partition(|place| self.inside(place))
    }

    /// The places that can be named as a group, with their names and titles.
    pub(crate) fn names(&self) -> Vec<(Place, String, String)> {
        let (inside, _) = self.places();
        let named = |place: Place| {
            let (name, title) = (self.groups.name(&place), self.groups.title(&place));
            (place, name, title)
        };
        inside.into_iter().map(named).collect()
    }

    /// CPU seconds per second of the resource in each row of the fit.
    pub(crate) fn series(&self, wanted: impl Fn(&Cell) -> bool) -> Vec<f64> {
        let mut series = self.samples.series(self.intervals, self.main.rows(), wanted);
        if self.scale != 1.0 {
            series.iter_mut().for_each(|value| *value *= self.scale);
        }
        series
    }

    /// Procedures of the resource with at least this share of its sampled time, the largest first.
    pub(crate) fn procedures(&self, share_min: f64, most: usize) -> Vec<Procedure> {
        let mut spent: BTreeMap<&Procedure, i64> = BTreeMap::new();
        for cell in self.samples.cells.iter().filter(|cell| self.inside(&cell.place)) {
            *spent.entry(&cell.procedure).or_default() += cell.total_ns();
        }
        let least = share_min * spent.values().sum::<i64>() as f64;
        let mut listed: Vec<(&Procedure, i64)> =
            spent.into_iter().filter(|(_, ns)| *ns > 0 && *ns as f64 >= least).collect();
        listed.sort_by_key(|(_, ns)| -ns);
        listed.into_iter().take(most).map(|(procedure, _)| procedure.clone()).collect()
    }

    /// The costs of procedures, over all groups, in the fit of the total.
    pub(crate) fn costs_of(
        &self,
        procedures: &[Procedure],
        level: f64,
        seed: u64,
    ) -> Result<Vec<Cost>, regress::Unfit> {
        let design = Design::new(&[self.main.rates()])?;
        let found = regress::costs::<&[f64]>(&design, &self.main.cost(), &[], level, seed)?;
        let wanted = |procedure: &Procedure| {
            self.series(|cell| cell.procedure == *procedure && self.inside(&cell.place))
        };
        let series: Vec<Vec<f64>> = procedures.iter().map(wanted).collect();
        found.of(&design, &series)
    }

    /// The table of costs.
    pub(crate) fn table(&self, level: f64, seed: u64) -> Result<CostTable, regress::Unfit> {
        let design = Design::new(&[self.main.rates()])?;
        let whole = self.main.cost();
        let (inside, outside) = self.places();
        let mut parts: Vec<Vec<f64>> =
            inside.iter().map(|place| self.series(|cell| cell.place == *place)).collect();
        let seen = |row: usize| parts.iter().map(|part| part[row]).sum::<f64>();
        let unseen: Vec<f64> = (0..whole.len()).map(|row| whole[row] - seen(row)).collect();
        parts.push(unseen);
        let found = regress::costs(&design, &whole, &parts, level, seed)?;
        let fit = Fit { design: &design, costs: &found, divided: self };
        let plain = |name: &str, group: &str, cost: &Cost| {
            CostRow::new(name.to_string(), group.to_string(), None, cost)
        };
        let (user, kernel) = self.main.modes_cost();
        let modes = found.of(&design, &[&user, &kernel])?;
        let mut table = CostTable {
            resource: self.main.series.kind,
            n: found.n,
            level,
            scale: self.scale,
            whole: plain("total", "", &found.whole),
            modes: vec![plain("user mode", "", &modes[0]), plain("kernel mode", "", &modes[1])],
            groups: fit.groups(&inside)?,
            unsampled: plain("not in the profile", "", &found.parts[inside.len()]),
            outside: fit.outside(&outside)?,
            us_per_ns: self.per_ns(&design, &found)?,
            closure_us: 1e6 * found.closure.marginal_gap,
            closure_fixed_percent: 100.0 * found.closure.fixed_gap,
        };
        table.fill_shares();
        Ok(table)
    }

    /// See [`CostTable::us_per_ns`].
    fn per_ns(&self, design: &Design, found: &Costs) -> Result<Vec<f64>, regress::Unfit> {
        let mut per_ns = vec![0.0; self.intervals.len()];
        for (&row, influence) in self.main.rows().iter().zip(found.influence(design)?) {
            let length_ns = self.intervals[row].length_ns.max(1) as f64;
            per_ns[row] = 1e6 * self.scale * influence / length_ns;
        }
        Ok(per_ns)
    }
}

/// The hottest thread's share of the server's CPU time over the rows of the fit.
fn thread_share(intervals: &[Interval], main: &Fitted) -> f64 {
    let cost = main.cost();
    let (mut thread, mut server) = (0.0, 0.0);
    for (&row, cost) in main.rows().iter().zip(&cost) {
        if let Some(all) = &intervals[row].server {
            let seconds = intervals[row].length_ns as f64 / 1e9;
            thread += cost * seconds;
            server += all.total_ns as f64 / 1e9;
        }
    }
    if server > 0.0 { (thread / server).min(1.0) } else { 1.0 }
}

struct Fit<'a> {
    design: &'a Design,
    costs: &'a Costs,
    divided: &'a Divided<'a>,
}

impl Fit<'_> {
    fn groups(&self, inside: &[Place]) -> Result<Vec<GroupCost>, regress::Unfit> {
        let cells = &self.divided.samples.cells;
        let all: i64 = cells.iter().map(Cell::total_ns).sum();
        let least = PROCEDURE_SHARE_MIN * all as f64;
        let mut groups = Vec::with_capacity(inside.len());
        for (place, cost) in inside.iter().zip(&self.costs.parts) {
            let groups_of = self.divided.groups;
            let (name, title) = (groups_of.name(place), groups_of.title(place));
            let listed: Vec<&Cell> = cells
                .iter()
                .filter(|cell| cell.place == *place && cell.total_ns() as f64 >= least)
                .collect();
            let series: Vec<Vec<f64>> = listed
                .iter()
                .map(|cell| self.divided.series(|other| std::ptr::eq(other, *cell)))
                .collect();
            let fits = self.costs.of(self.design, &series)?;
            let mut procedures: Vec<CostRow> = listed
                .iter()
                .zip(&fits)
                .map(|(cell, cost)| {
                    let procedure = cell.procedure.clone();
                    CostRow::new(procedure.label(), String::new(), Some(procedure), cost)
                })
                .collect();
            procedures.sort_by(most_expensive_first);
            let in_mode = |mode: &str| {
                self.divided.series(|cell| cell.place == *place && cell.procedure.mode == mode)
            };
            let (user, kernel) = (in_mode("user"), in_mode("kernel"));
            let by_mode = self.costs.of(self.design, &[&user, &kernel])?;
            groups.push(GroupCost {
                row: CostRow::new(title, name, None, cost),
                us_user: 1e6 * by_mode[0].marginal().value,
                us_kernel: 1e6 * by_mode[1].marginal().value,
                procedures,
            });
        }
        groups.sort_by(|a, b| most_expensive_first(&a.row, &b.row));
        Ok(groups)
    }

    fn outside(&self, places: &[Place]) -> Result<Vec<CostRow>, regress::Unfit> {
        let divided = self.divided;
        let series: Vec<Vec<f64>> = places
            .iter()
            .map(|place| {
                let wanted = |cell: &Cell| cell.place == *place;
                divided.samples.series(divided.intervals, divided.main.rows(), wanted)
            })
            .collect();
        let fits = self.costs.of(self.design, &series)?;
        let row = |(place, cost): (&Place, &Cost)| {
            CostRow::new(divided.groups.title(place), divided.groups.name(place), None, cost)
        };
        Ok(places.iter().zip(&fits).map(row).collect())
    }
}

fn most_expensive_first(a: &CostRow, b: &CostRow) -> std::cmp::Ordering {
    b.us_per_request.total_cmp(&a.us_per_request)
}

impl CostTable {
    /// Fills in the shares of the total.
    fn fill_shares(&mut self) {
        let whole = self.whole.us_per_request;
        let rows = [&mut self.whole, &mut self.unsampled].into_iter().chain(&mut self.modes);
        let groups = self.groups.iter_mut();
        let of_groups = groups
            .flat_map(|group| std::iter::once(&mut group.row).chain(group.procedures.iter_mut()));
        for row in rows.chain(of_groups).chain(&mut self.outside) {
            row.share_percent = 100.0 * row.us_per_request / whole;
        }
    }
}
