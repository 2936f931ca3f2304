//! The cost of a request in two trials at the same load, the differences of the loads, and the
//! verdict.
//!
//! The cost is the CPU time of all threads of the server, because connections are spread over
//! threads differently in each run. If the user chose a resource, the cost is the use of this
//! resource. The costs are compared over the rates that both trials cover
//! ([`regress::same_load()`]).
//!
//! A difference in the load that explains a difference in the cost must not be taken for a change
//! of the server. The wakes show whether the same number of requests shared a wake. The open
//! descriptors show whether the number of connections was the same. The CPU time of others shows
//! whether something else kept the server's CPU awake, or used its caches. The classes and the
//! bytes show whether the mix of requests was the same. Each difference explains an interval of
//! changes: a difference in bytes explains changes from zero up to a cost in proportion to the
//! bytes, and a difference in classes explains the change by their fitted costs. The verdict
//! follows from the remaining interval. So more bytes never hide that a request got cheaper, and
//! fewer bytes (compression) never hide that a request got more expensive.

use std::collections::BTreeMap;

use regress::{
    Estimate, Interval as Bounds, NotAlike, Run, SameLoadTerms, class_costs, equivalent,
};
use serde::Serialize;
use trial::Trial;

use super::classes::{WORDS, rates_by_class};
use super::fit::Fitted;
use super::ratio::{CompareOptions, Ratio, Verdict};
use super::{Options, Saturation, others, stretches};
use crate::Error;
use crate::format::{change, fixed, rate, thousands};

/// Wakes per request that differ by this factor are shown.
const WAKES_FACTOR: f64 = 1.1;
/// Open descriptors that differ by this factor are a different number of connections.
const DESCRIPTORS_FACTOR: f64 = 1.1;
/// The power of their ratio that it explains at most: four times the connections cost Squid and
/// Varnish a quarter more at the same rate, because each is colder.
const DESCRIPTORS_POWER: f64 = 0.25;
/// The share of the machine's CPU time that others used is another one if it differs by this much.
const OTHERS_CHANGE: f64 = 0.05;
/// The logarithm of the ratio that a whole machine of others explains at most, in both directions:
/// a CPU that others keep awake costs less, and caches that others use cost more. A thread that
/// took a fifth of one of two CPUs made Go 14 % cheaper, HAProxy 8 % and nginx 4 %; this and the
/// share above make 16 % of it. A neighbour on one CPU of many is not seen by that.
const OTHERS_EXPLAIN: f64 = 3.0;
/// Bytes per request that differ by this factor are a change of the mix.
const BYTES_FACTOR: f64 = 1.1;
/// A share of requests that differs by this much is a change of the mix.
const SHARE_CHANGE: f64 = 0.05;
/// Sd between runs of what a request costs while the server catches up: the speed of a machine
/// that others use differs by that much from minute to minute.
const BETWEEN_HELD_RUNS: f64 = 0.05;
/// A measured saturation of fewer intervals decides nothing.
const SATURATED_MIN: usize = 3;

/// The cost of a request at the same load, after over before.
#[derive(Clone, Debug, Serialize)]
pub struct SameLoadCost {
    /// The ratio. If costs by class are known, it is that at the mix of the first trial.
    #[serde(flatten)]
    pub ratio: Ratio,
    /// Lower end of the interval that decides: without what the load explains. `None` if the load
    /// may explain any change.
    pub decides_low: Option<f64>,
    /// Upper end of it.
    pub decides_high: Option<f64>,
    /// Lowest rate in both trials, requests/s.
    pub rate_low: f64,
    /// Highest rate in both trials.
    pub rate_high: f64,
    /// Intervals in that range, before.
    pub n_before: usize,
    /// The same, after.
    pub n_after: usize,
    /// Cost of a request in the middle of the range, microseconds.
    pub us_before: f64,
    /// The same, after.
    pub us_after: f64,
    /// The sd between runs that is in the interval, percent.
    pub between_run_percent: f64,
    /// What differs in the load.
    pub differences: Vec<LoadDifference>,
}

/// A difference between the loads of two trials at the same rate.
#[derive(Clone, Debug, Serialize)]
pub struct LoadDifference {
    /// What kind of difference it is.
    pub kind: DifferenceKind,
    /// The quantity.
    pub what: String,
    /// Its value before.
    pub before: f64,
    /// Its value after.
    pub after: f64,
    /// The ratio of costs that it explains: at most, or for classes with fitted costs, by these.
    /// `None` if that is not known.
    pub explains: Option<f64>,
}

/// The kind of a difference between loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// Wakes per request.
    Wakes,
    /// Open descriptors of the server, most of which are connections.
    Descriptors,
    /// The share of the machine's CPU time that others than the server used.
    Others,
    /// Response bytes per request.
    Bytes,
    /// The share of a class of requests.
    Class,
}

impl LoadDifference {
    /// The quantity with both values, `wakes per request 0.90 and 0.40`.
    pub(crate) fn text(&self) -> String {
        let value = |value: f64| match self.kind {
            DifferenceKind::Wakes => fixed(value, 2),
            DifferenceKind::Descriptors | DifferenceKind::Bytes => thousands(value),
            DifferenceKind::Others | DifferenceKind::Class => {
                format!("{} %", fixed(100.0 * value, 0))
            }
        };
        format!("{} {} and {}", self.what, value(self.before), value(self.after))
    }
}

impl SameLoadCost {
    /// The interval that decides.
    fn decides(&self) -> (f64, f64) {
        (self.decides_low.unwrap_or(0.0), self.decides_high.unwrap_or(f64::INFINITY))
    }

    /// `a request costs 12 % more at the same load (9.0 to 16 %)`.
    fn reason(&self) -> String {
        let (low, high) = self.decides();
        let more = low > 1.0;
        let percent = |ratio: f64| change(1.0 + (ratio - 1.0).abs()).replace('+', "");
        let [near, far] = if more { [low, high] } else { [high, low] };
        let has_costs = |one: &LoadDifference| one.kind == DifferenceKind::Class;
        format!(
            "a request costs {} % {} at the same load{} ({} to {} %)",
            percent(self.ratio.value),
            if more { "more" } else { "less" },
            if self.differences.iter().any(has_costs) { " and mix" } else { "" },
            percent(near),
            percent(far)
        )
    }

    /// The reason and the advice if only a difference in the load explains the change.
    fn explained_by_load(&self) -> Option<Undecided> {
        let Ratio { runs_low, runs_high, .. } = self.ratio;
        let changed =
            runs_low.is_some_and(|low| low > 1.0) || runs_high.is_some_and(|high| high < 1.0);
        let size = |one: &&LoadDifference| one.explains.map_or(f64::INFINITY, |r| r.ln().abs());
        let largest = self.differences.iter().max_by(|a, b| size(a).total_cmp(&size(b)));
        let largest = largest.filter(|one| changed || one.explains.is_none())?;
        let (differs, advice) = match largest.kind {
            DifferenceKind::Wakes | DifferenceKind::Descriptors => (
                "the loads differ",
                "record both with the same number of connections and the same steps of the rate",
            ),
            DifferenceKind::Others => (
                "something else used the CPU, or the change moved work to other processes",
                "record both beside the same other work, or record with --hold, which compares \
                 the costs at saturation",
            ),
            DifferenceKind::Bytes => ("the mix changed", "record both with the same mix"),
            DifferenceKind::Class => (
                "the mix changed",
                "record both with the same mix, or one with a mix that varies while it is \
                 recorded, so that each class has its cost",
            ),
        };
        Some(Undecided {
            why: format!("{differs} ({})", largest.text()),
            advice: advice.to_string(),
            only_rates: false,
        })
    }
}

fn saturation_reason(ratio: &Ratio) -> String {
    let percent = change(1.0 + (ratio.value - 1.0).abs()).replace('+', "");
    let word = if ratio.value > 1.0 { "higher" } else { "lower" };
    format!("the measured saturation is {percent} % {word}")
}

fn catching_up_reason(ratio: &Ratio) -> String {
    let percent = change(1.0 + (ratio.value - 1.0).abs()).replace('+', "");
    let word = if ratio.value > 1.0 { "more" } else { "less" };
    format!("a request costs {percent} % {word} at saturation, by turns and after holds")
}

/// A trial with the fit of the resource that is compared.
#[derive(Clone, Copy)]
pub(super) struct Party<'a> {
    pub(super) trial: &'a Trial,
    pub(super) name: &'a str,
    pub(super) main: &'a Fitted,
}

/// A verdict that nothing can be shown, with the reason and what to do.
pub(super) struct Undecided {
    pub(super) why: String,
    pub(super) advice: String,
    /// Only the rates differ: what a request costs at saturation can still be compared.
    pub(super) only_rates: bool,
}

/// The cost of a request at the same load.
///
/// # Errors
/// [`Error::Unfit`] if the rows cannot be fitted. Loads with too little in common are no error.
pub(super) fn same_load(
    before: Party<'_>,
    after: Party<'_>,
    options: &CompareOptions,
) -> Result<Result<SameLoadCost, Undecided>, Error> {
    let whole = options.analysis.resource.is_none() && before.has_server() && after.has_server();
    let mut data = [before.series(whole), after.series(whole)];
    let Options { level, seed, .. } = options.analysis;
    let terms = SameLoadTerms { level, between_run: options.between_run, seed };
    let compared = |data: &[Columns; 2]| regress::same_load(&data[0].run(), &data[1].run(), &terms);
    let mut found = match compared(&data) {
        Ok(found) => found,
        Err(NotAlike::Ranges { before: one, after: other, n }) => {
            let only_rates = options.analysis.resource.is_none()
                && has_same_connections_and_mix(before, after, options);
            return Ok(Err(Undecided { only_rates, ..apart(one, other, n) }));
        }
        Err(NotAlike::Unfit(unfit)) => {
            let trial = format!("{} and {}", before.name, after.name);
            return Err(Error::Unfit { trial, unfit });
        }
    };
    let mixes = [before.mix(found.rates), after.mix(found.rates)];
    let mut explained = Explained::default();
    explained.by_mix(&mixes, options);
    if let Some(effect) = &explained.by_class {
        for (columns, mix) in data.iter_mut().zip(&mixes) {
            effect.at_first_mix(&mut columns.cost, mix, &mixes[0]);
        }
        found = compared(&data).unwrap_or(found);
    }
    if let Some(wakes) = found.wakes {
        explained.at_most(found.wakes_explain);
        if differ(wakes, WAKES_FACTOR) {
            explained.show(DifferenceKind::Wakes, "wakes per request", wakes, found.wakes_explain);
        }
    }
    let open = (before.descriptors(found.rates), after.descriptors(found.rates));
    if let (Some(one), Some(other)) = open
        && differ([one, other], DESCRIPTORS_FACTOR)
    {
        let explains = (other / one).powf(DESCRIPTORS_POWER);
        explained.at_most(explains);
        explained.show(DifferenceKind::Descriptors, "open descriptors", [one, other], explains);
    }
    // The cost of the whole machine has that of others in it.
    let others = before.others(found.rates).zip(after.others(found.rates)).filter(|_| whole);
    if let Some((one, other)) = others
        && (other - one).abs() > OTHERS_CHANGE
    {
        let explains = (OTHERS_EXPLAIN * ((other - one).abs() - OTHERS_CHANGE)).exp();
        explained.at_most(explains);
        explained.at_most(1.0 / explains);
        let is_cheaper = found.ratio.value < 1.0;
        let explains = if is_cheaper { 1.0 / explains } else { explains };
        let what = "CPU time of the machine for others";
        explained.show(DifferenceKind::Others, what, [one, other], explains);
    }
    let own = explained.with_class_error(&found.ratio);
    let of_runs = explained.with_class_error(&found.ratio_of_runs);
    let deciding = explained.without(&of_runs.interval);
    let (decides_low, decides_high) = deciding.bounds().unzip();
    Ok(Ok(SameLoadCost {
        ratio: Ratio {
            equivalent: equivalent(&deciding, options.margin),
            ..Ratio::of(&own, &of_runs, options.margin)
        },
        decides_low,
        decides_high,
        rate_low: found.rates.0,
        rate_high: found.rates.1,
        n_before: found.n[0],
        n_after: found.n[1],
        us_before: 1e6 * found.cost[0],
        us_after: 1e6 * found.cost[1],
        between_run_percent: 100.0 * found.between_run,
        differences: explained.differences,
    }))
}

/// Whether two trials at different rates are known to have as many connections, the same mix, and
/// the same other work beside them.
fn has_same_connections_and_mix(
    before: Party<'_>,
    after: Party<'_>,
    options: &CompareOptions,
) -> bool {
    let all = (0.0, f64::INFINITY);
    let open = before.descriptors(all).zip(after.descriptors(all));
    let others = before.others(all).zip(after.others(all));
    let mixes = [before.mix(all), after.mix(all)];
    let mut explained = Explained::default();
    explained.by_mix(&mixes, options);
    explained.differences.is_empty()
        && mixes.iter().all(|mix| !mix.shares.is_empty())
        && open.is_some_and(|(one, other)| !differ([one, other], DESCRIPTORS_FACTOR))
        && others.is_some_and(|(one, other)| (other - one).abs() <= OTHERS_CHANGE)
}

/// Whether two values differ by more than a factor.
fn differ([before, after]: [f64; 2], factor: f64) -> bool {
    let ratio = after / before;
    ratio.max(1.0 / ratio) > factor
}

fn apart(before: (f64, f64), after: (f64, f64), n: [usize; 2]) -> Undecided {
    let range = |(low, high): (f64, f64)| format!("{} to {}", rate(low), rate(high));
    let common = match n {
        [0, _] | [_, 0] => String::new(),
        [one, other] => format!(" ({one} and {other} intervals in common)"),
    };
    let (one, other) = (range(before), range(after));
    Undecided {
        why: format!("the loads differ: one covers {one} requests/s, the other {other}{common}"),
        advice: "record both over the same rates".to_string(),
        only_rates: false,
    }
}

/// The columns of a trial.
struct Columns {
    rate: Vec<f64>,
    cost: Vec<f64>,
    wakes: Option<Vec<f64>>,
    seconds: f64,
}

impl Columns {
    fn run(&self) -> Run<'_> {
        let (rate, cost, wakes) = (&self.rate, &self.cost, self.wakes.as_deref());
        Run { rate, cost, wakes, seconds: self.seconds }
    }
}

/// The mix of requests over a range of rates.
struct Mix<'a> {
    party: Party<'a>,
    /// Rates of the classes of each word, in the rows of the fit.
    rates: Vec<(&'static str, BTreeMap<String, Vec<f64>>)>,
    /// Shares of the classes of each word, over the rows in the range.
    shares: BTreeMap<&'static str, BTreeMap<String, f64>>,
    bytes: Option<f64>,
    /// The rate in the middle of the range.
    middle: f64,
}

impl<'a> Party<'a> {
    fn has_server(&self) -> bool {
        let intervals = self.trial.intervals();
        self.main.rows().iter().all(|&row| intervals[row].server.is_some())
    }

    /// The CPU time of the whole server, or of the fitted resource.
    fn series(&self, whole: bool) -> Columns {
        let rows = self.main.rows();
        let of = |row: &usize| &self.trial.intervals()[*row];
        let seconds = |row: &usize| of(row).length_ns as f64 / 1e9;
        let lengths: Vec<f64> = rows.iter().map(seconds).collect();
        let server = |row: &usize| of(row).server.map(|server| (server, seconds(row)));
        let times: Option<Vec<_>> = rows.iter().map(server).collect();
        let (cost, wakes) = match times.filter(|_| whole) {
            Some(times) => {
                let cost = times.iter().map(|(time, s)| time.total_ns as f64 / 1e9 / s);
                let wakes = times.iter().map(|(time, s)| time.voluntary_switches as f64 / s);
                (cost.collect(), Some(wakes.collect()))
            }
            None => (self.main.cost(), self.main.wakes()),
        };
        Columns {
            rate: self.main.rates().to_vec(),
            cost,
            // A server that never sleeps, or a recorder that does not count.
            wakes: wakes.filter(|wakes: &Vec<f64>| wakes.iter().any(|&wakes| wakes > 0.0)),
            seconds: super::median(&lengths).unwrap_or(1.0),
        }
    }

    /// The server's open descriptors, as a median over a range of rates.
    fn descriptors(&self, (low, high): (f64, f64)) -> Option<f64> {
        let rows = self.main.rows().iter().zip(self.main.rates());
        let inside = rows.filter(|(_, rate)| (low..=high).contains(*rate));
        let of = |row: &usize| self.trial.intervals()[*row].server?.descriptors;
        let open = inside.filter_map(|(row, _)| of(row)).map(|open| open as f64);
        super::median(&open.collect::<Vec<f64>>()).filter(|open| *open > 0.0)
    }

    /// The share of the machine's CPU time that others used, as a median over a range of rates.
    fn others(&self, (low, high): (f64, f64)) -> Option<f64> {
        let rows = self.main.rows().iter().zip(self.main.rates());
        let inside = rows.filter(|(_, rate)| (low..=high).contains(*rate));
        let of = |row: &usize| others::others_part(&self.trial.intervals()[*row]);
        super::median(&inside.filter_map(|(row, _)| of(row)).collect::<Vec<f64>>())
    }

    fn mix(self, (low, high): (f64, f64)) -> Mix<'a> {
        let all = self.main.rates();
        let inside: Vec<usize> =
            (0..all.len()).filter(|&at| (low..=high).contains(&all[at])).collect();
        let mut mix = Mix {
            party: self,
            rates: Vec::new(),
            shares: BTreeMap::new(),
            bytes: None,
            middle: (low * high).sqrt(),
        };
        for (word, by) in WORDS.into_iter().enumerate() {
            let Some(rates) = rates_by_class(self.trial, self.main, word) else { continue };
            let sum = |rates: &[f64]| inside.iter().map(|&at| rates[at]).sum::<f64>();
            let total: f64 = rates.values().map(|rates| sum(rates)).sum();
            let share = |(name, rates): (&String, &Vec<f64>)| (name.clone(), sum(rates) / total);
            mix.shares.insert(by, rates.iter().map(share).collect());
            mix.rates.push((by, rates));
        }
        let rows = self.main.rows();
        let indices: Vec<u64> =
            inside.iter().map(|&at| self.trial.intervals()[rows[at]].index).collect();
        let classes = self.trial.classes().iter();
        let (bytes, requests) = classes
            .filter(|class| indices.binary_search(&class.interval).is_ok())
            .fold((0.0, 0.0), |sum, class| (sum.0 + class.bytes, sum.1 + class.requests));
        mix.bytes = (bytes > 0.0 && requests > 0.0).then_some(bytes / requests);
        mix
    }
}

/// The changes of the cost that differences in the load explain.
#[derive(Default)]
struct Explained {
    differences: Vec<LoadDifference>,
    /// What costs by class explain.
    by_class: Option<Effect>,
    /// Logarithms of the least and the most of all other explanations.
    least: f64,
    most: f64,
    /// Whether a class changed whose costs are not known.
    unknown: bool,
}

impl Explained {
    /// Something explains any ratio of costs from 1 to this.
    fn at_most(&mut self, ratio: f64) {
        self.least += ratio.ln().min(0.0);
        self.most += ratio.ln().max(0.0);
    }

    fn show(&mut self, kind: DifferenceKind, what: &str, [before, after]: [f64; 2], explains: f64) {
        let (what, explains) = (what.to_string(), Some(explains));
        self.differences.push(LoadDifference { kind, what, before, after, explains });
    }

    fn by_mix(&mut self, mixes: &[Mix<'_>; 2], options: &CompareOptions) {
        let [before, after] = mixes;
        for by in WORDS.into_iter().filter(|by| *by != "size") {
            let (Some(one), Some(other)) = (before.shares.get(by), after.shares.get(by)) else {
                continue;
            };
            let Some((name, was, is)) = most_changed(one, other) else { continue };
            if (is - was).abs() <= SHARE_CHANGE {
                continue;
            }
            let effects = mixes.iter().filter_map(|mix| mix.effect(by, one, other, options));
            let effect = effects.min_by(|a, b| a.se.total_cmp(&b.se));
            self.unknown |= effect.is_none();
            self.differences.push(LoadDifference {
                kind: DifferenceKind::Class,
                what: format!("share of {name}"),
                before: was,
                after: is,
                explains: effect.as_ref().map(|effect| effect.ratio),
            });
            // A second word describes much the same requests.
            if self.by_class.is_none() {
                self.by_class = effect;
            }
        }
        if let (true, Some(one), Some(other)) =
            (self.differences.is_empty(), before.bytes, after.bytes)
            && differ([one, other], BYTES_FACTOR)
        {
            let ratio = other / one;
            self.at_most(ratio);
            let what = "response bytes per request";
            self.show(DifferenceKind::Bytes, what, [one, other], ratio);
        }
    }

    /// The ratio with the error of the costs by class.
    fn with_class_error(&self, ratio: &Estimate) -> Estimate {
        let (Some(effect), Some((low, high))) = (&self.by_class, ratio.interval.bounds()) else {
            return ratio.clone();
        };
        let reach = |end: f64| (ratio.value / end).ln().hypot(2.0 * effect.se).exp();
        let (low, high) = (ratio.value / reach(low), ratio.value * reach(high));
        Estimate { interval: Bounds::Bounded { low, high }, ..ratio.clone() }
    }

    /// The interval without what the load explains.
    fn without(&self, interval: &Bounds) -> Bounds {
        match interval.bounds() {
            Some((low, high)) if !self.unknown => {
                Bounds::Bounded { low: low / self.most.exp(), high: high / self.least.exp() }
            }
            Some(_) => Bounds::Unbounded { reason: "the mix changed".to_string() },
            None => interval.clone(),
        }
    }
}

/// The class whose share changed most, with its shares before and after.
fn most_changed(
    before: &BTreeMap<String, f64>,
    after: &BTreeMap<String, f64>,
) -> Option<(String, f64, f64)> {
    let share = |of: &BTreeMap<String, f64>, name: &String| of.get(name).copied().unwrap_or(0.0);
    before
        .keys()
        .chain(after.keys())
        .map(|name| (name.clone(), share(before, name), share(after, name)))
        .max_by(|a, b| {
            let change = |(_, was, is): &(String, f64, f64)| is - was;
            // Of two that changed equally, the one that became more frequent.
            let size = |one| (1e6 * f64::abs(change(one))).round();
            size(a).total_cmp(&size(b)).then(change(a).total_cmp(&change(b)))
        })
}

/// What the costs by class of one of the trials say about a change of the mix.
struct Effect {
    /// The word of the class.
    by: &'static str,
    /// The ratio of costs that the change of the shares explains.
    ratio: f64,
    /// Standard error of its logarithm.
    se: f64,
    /// CPU seconds per second without requests.
    fixed: f64,
    /// CPU seconds per request.
    costs: BTreeMap<String, f64>,
}

impl Effect {
    /// Changes the cost of each row to what it would be with the mean mix of the first trial.
    fn at_first_mix(&self, cost: &mut [f64], mix: &Mix<'_>, first: &Mix<'_>) {
        let Some((_, rates)) = mix.rates.iter().find(|(by, _)| *by == self.by) else { return };
        let Some(shares) = first.shares.get(self.by) else { return };
        let of = |name: &String| self.costs.get(name).copied();
        let mean: f64 = shares.iter().filter_map(|(name, share)| Some(share * of(name)?)).sum();
        for (row, cost) in cost.iter_mut().enumerate() {
            let paid = |(name, rates): (&String, &Vec<f64>)| rates[row] * of(name).unwrap_or(mean);
            let rate: f64 = rates.values().map(|rates| rates[row]).sum();
            let as_is = self.fixed + rates.iter().map(paid).sum::<f64>();
            if as_is > 0.0 {
                *cost *= (self.fixed + rate * mean) / as_is;
            }
        }
    }
}

impl Mix<'_> {
    /// The effect of a change of the shares by this trial's costs by class; `None` if these classes
    /// have no separate costs.
    fn effect(
        &self,
        by: &'static str,
        before: &BTreeMap<String, f64>,
        after: &BTreeMap<String, f64>,
        options: &CompareOptions,
    ) -> Option<Effect> {
        let (_, rates) = self.rates.iter().find(|(word, _)| *word == by)?;
        let names: Vec<&String> = rates.keys().collect();
        let series: Vec<&[f64]> = rates.values().map(Vec::as_slice).collect();
        let Options { level, seed, .. } = options.analysis;
        let found = class_costs(&series, &self.party.main.cost(), level, seed).ok()?;
        let of = |shares: &BTreeMap<String, f64>, name: &String| {
            shares.get(name).copied().unwrap_or(0.0)
        };
        let moved: f64 = before
            .keys()
            .chain(after.keys().filter(|name| !before.contains_key(*name)))
            .map(|name| (of(after, name) - of(before, name)).abs())
            .sum();
        let fixed = found.fixed.value.max(0.0);
        let (mut means, mut variance, mut followed) = ([fixed / self.middle; 2], 0.0, 0.0);
        let mut costs = BTreeMap::new();
        for class in &found.classes {
            let share = |shares| class.members.iter().map(|&at| of(shares, names[at])).sum::<f64>();
            let change = share(after) - share(before);
            means[0] += share(before) * class.cost.value;
            means[1] += share(after) * class.cost.value;
            variance += (change * class.cost.se).powi(2);
            followed += change.abs();
            costs.extend(class.members.iter().map(|&at| (names[at].clone(), class.cost.value)));
        }
        // Classes that were merged, or that this trial does not have, hide a part of the change.
        let is_known = moved - followed <= SHARE_CHANGE && means.iter().all(|mean| *mean > 0.0);
        let se = variance.sqrt() / means[0].min(means[1]);
        is_known.then(|| Effect { by, ratio: means[1] / means[0], se, fixed, costs })
    }
}

/// The measured saturation after over before, with its interval.
pub(super) fn saturation_ratio(
    before: Option<&Saturation>,
    after: Option<&Saturation>,
    options: &CompareOptions,
) -> Option<Ratio> {
    let (one, other) = (before?, after?);
    if one.n.min(other.n) < SATURATED_MIN {
        return None;
    }
    let runs = options.between_run.unwrap_or(regress::capacity::BETWEEN_RUN_DEFAULT);
    // The range of a few rates is about four of their sd.
    let spread = |of: &Saturation| (of.rate_max / of.rate_min).ln() / 4.0;
    let own = spread(one).hypot(spread(other));
    Some(of_logs(other.rate / one.rate, own, runs, "medians of saturated intervals", options))
}

/// The cost of a request at saturation by turns and by catching up, after over before, if both were
/// held. What one kind of evidence has wrong, it has wrong in both.
pub(super) fn catching_up(
    before: Party<'_>,
    after: Party<'_>,
    options: &CompareOptions,
) -> Option<Ratio> {
    let of = |party: Party<'_>| {
        let found = stretches::by_kind(party.trial, party.main.rows());
        found.holds.is_some().then_some(found)
    };
    let (change, own) = of(after)?.over(&of(before)?)?;
    let runs = options.between_run.unwrap_or(BETWEEN_HELD_RUNS);
    Some(of_logs(change.exp(), own, runs, "turns, and catching up after holds", options))
}

/// A ratio whose logarithm has an sd by these two trials alone. `runs` is the sd of the level of
/// one trial between runs.
fn of_logs(value: f64, own: f64, runs: f64, method: &str, options: &CompareOptions) -> Ratio {
    let level = options.analysis.level;
    let normal = regress::student_t_quantile(0.5 + level / 2.0, 1e6);
    let estimate = |runs: f64| {
        let factor = (normal * own.hypot(runs * std::f64::consts::SQRT_2)).exp();
        let interval = Bounds::Bounded { low: value / factor, high: value * factor };
        Estimate { value, interval, level, method: method.to_string() }
    };
    Ratio::of(&estimate(0.0), &estimate(runs), options.margin)
}

/// The verdict, its reason, and what to do if it is inconclusive.
pub(super) fn verdict(
    cost: &Result<SameLoadCost, Undecided>,
    saturation: Option<&Ratio>,
    catching_up: Option<&Ratio>,
    margin: f64,
) -> (Verdict, String, Option<String>) {
    let cost = match cost {
        Ok(cost) => cost,
        Err(Undecided { why, advice, only_rates }) => {
            let at_saturation = catching_up.filter(|_| *only_rates);
            let changed = |ratio: &Ratio| match (ratio.runs_low?, ratio.runs_high?) {
                (low, _) if low > 1.0 => Some((Verdict::Regression, catching_up_reason(ratio))),
                (_, high) if high < 1.0 => Some((Verdict::Improvement, catching_up_reason(ratio))),
                _ => None,
            };
            let undecided = || (Verdict::Inconclusive, why.clone(), Some(advice.clone()));
            let found = at_saturation.and_then(changed);
            return found.map_or_else(undecided, |(verdict, why)| (verdict, why, None));
        }
    };
    // Saturation depends on the load too, and how much is not known.
    let saturation = saturation.filter(|_| cost.differences.is_empty());
    // A server that catches up does not wake for its requests, and its CPU is awake.
    let has_no_effect =
        |one: &LoadDifference| matches!(one.kind, DifferenceKind::Wakes | DifferenceKind::Others);
    let catching_up = catching_up.filter(|_| cost.differences.iter().all(has_no_effect));
    let ends = cost.decides();
    let is_lower = |ratio: &&Ratio| ratio.runs_high.is_some_and(|high| high < 1.0);
    let is_higher = |ratio: &&Ratio| ratio.runs_low.is_some_and(|low| low > 1.0);
    let worse = (ends.0 > 1.0, saturation.filter(is_lower), catching_up.filter(is_higher));
    let better = (ends.1 < 1.0, saturation.filter(is_higher), catching_up.filter(is_lower));
    for (verdict, (costs, saturates, catches_up)) in
        [(Verdict::Regression, worse), (Verdict::Improvement, better)]
    {
        let costs = costs.then(|| cost.reason());
        let reasons = [costs, saturates.map(saturation_reason), catches_up.map(catching_up_reason)];
        let reasons: Vec<String> = reasons.into_iter().flatten().collect();
        if !reasons.is_empty() {
            return (verdict, reasons.join(", and "), None);
        }
    }
    if let Some(Undecided { why, advice, .. }) = cost.explained_by_load() {
        return (Verdict::Inconclusive, why, Some(advice));
    }
    let percent = 100.0 * margin;
    let interval = format!("{} to {} %", change(ends.0), change(ends.1));
    if cost.ratio.equivalent {
        let why =
            format!("a request costs the same at the same load within {percent:.0} % ({interval})");
        return (Verdict::NoChange, why, None);
    }
    let why = format!(
        "neither a change of the cost at the same load nor its absence within {percent:.0} % is \
         shown ({interval})"
    );
    let advice = "try longer recordings, switchback, or a larger --margin".to_string();
    (Verdict::Inconclusive, why, Some(advice))
}
