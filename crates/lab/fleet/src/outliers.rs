//! Servers that cost more or less per request than their group, by more than chance.
//!
//! Twins with different loads differ in what a request costs. So a server's cost is compared at the
//! same rate, in the logarithm: with the median of the servers that have rates in the same quarter
//! of an octave. Within it, costs are moved to the middle by the group's typical slope of the cost
//! on the rate. If all trials have the label `release`, and the groups are not by another label,
//! each release has its own medians: a new release on half of the servers does not make any of them
//! differ. A server's deviation is the mean over its bins, and the medians are taken again without
//! the deviations (median polish).
//!
//! Healthy twins differ too. How far is estimated from the group ([`regress::effects::spread`]),
//! of which up to half may be anything, and from the other groups if they are alike. The sd is at
//! least that between two runs of one server. Each server is tested with it, and with the errors of
//! its windows and of the medians.
//! Benjamini–Hochberg is over all servers of all groups, and p is at most [`P_MAX`].

use std::collections::{BTreeMap, BTreeSet};

use regress::bins::{BINS_PER_OCTAVE, Bin};
use regress::effects::{pooled, spread};
use regress::ratio::{BUSY_PART, LogRatio, WINDOWS_MIN, log_ratio};
use regress::same_load::BETWEEN_RUN_MIN;
use regress::{benjamini_hochberg, median};
use report::format::{change, percent, rate, three};
use report::sheet::{Rows, Sheet};
use serde::Serialize;

use crate::answer::{Figure, LEVEL, LeftOut, Q, charged, fact, left_out, p_value, rates};
use crate::compare::LABEL;
use crate::home::{Asked, Error, Home, Run, ServerCosts, ServerId};

/// Smaller groups do not show how far healthy servers differ.
pub const GROUP_MIN: usize = 8;
/// Rates that fewer servers have are left out.
pub const BIN_SERVERS_MIN: usize = 5;
/// Largest p of an outlier. Benjamini–Hochberg alone allows more false alarms the more servers
/// differ; this allows one in a thousand healthy servers.
pub const P_MAX: f64 = 0.001;
/// Variance of a median, as a multiple of that of a mean.
const OF_MEDIAN: f64 = std::f64::consts::FRAC_PI_2;
/// Variance of the logarithm of the median deviation of normal ones, times their number.
const OF_LOG_MEDIAN: f64 = 1.361;
const ROUNDS: usize = 5;

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Outliers {
    /// The groups, by name.
    pub groups: Vec<Group>,
    /// Servers that could not be compared.
    pub left_out: Vec<LeftOut>,
    /// Level of the intervals.
    pub level: f64,
}

/// A group of servers.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// Value of the label, or name of the server.
    pub name: String,
    /// Why nothing can be said of it.
    pub cannot_be_said: Option<String>,
    /// Sd of the cost between its healthy servers, as a share.
    pub between_servers: Option<f64>,
    /// Its servers, the most certain difference first.
    pub servers: Vec<Member>,
}

/// A server of a group.
#[derive(Clone, Debug, Serialize)]
pub struct Member {
    /// The server.
    pub server: ServerId,
    /// Its cost of a request over that of the group, at the same rates.
    pub ratio: Figure,
    /// Probability of such a ratio in a healthy server.
    pub p: f64,
    /// The same, corrected for the number of servers.
    pub q: f64,
    /// Whether it differs.
    pub outlier: bool,
    /// The lowest and the highest rate compared, requests/s.
    pub rates: (f64, f64),
    /// Number of bins of the rate, each release with its own.
    pub bins: usize,
    /// Its intervals at rates that are not quiet, the saturated ones not included.
    pub intervals: f64,
    /// Saturated intervals, which were left out.
    pub saturated: f64,
}

/// Compares the servers of each group: those with the same value of `asked.by`, or with the same
/// name.
///
/// # Errors
/// Those of the home.
pub fn outliers(home: &dyn Home, asked: &Asked) -> Result<Outliers, Error> {
    let labelled = |run: &Run| run.labels.iter().any(|label| label.name == LABEL);
    let by_release = asked.by.is_none() && home.runs(asked)?.iter().all(labelled);
    let by = if by_release { Some(LABEL.to_owned()) } else { asked.by.clone() };
    let all = home.costs(&Asked { by, ..asked.clone() })?;
    let mut by_group: BTreeMap<&str, BTreeMap<&ServerId, Costs>> = BTreeMap::new();
    for costs in &all {
        let (group, release) = match by_release {
            true => (None, costs.group.as_deref()),
            false => (costs.group.as_deref(), None),
        };
        let servers = by_group.entry(group.unwrap_or(&costs.server.server)).or_default();
        servers.entry(&costs.server).or_default().add(costs, release);
    }
    let mut left_out = Vec::new();
    let deviating: Vec<Deviating<'_>> = by_group
        .into_iter()
        .map(|(name, servers)| Deviating::of(name, servers, &mut left_out))
        .collect();
    let spreads = spreads(&deviating);
    let mut groups: Vec<Group> =
        deviating.into_iter().zip(spreads).map(|(one, spread)| one.judged(spread)).collect();
    let members = |group: &Group| group.servers.iter().map(|one| one.p).collect::<Vec<f64>>();
    let q = benjamini_hochberg(&groups.iter().flat_map(members).collect::<Vec<f64>>());
    for (member, q) in groups.iter_mut().flat_map(|group| &mut group.servers).zip(q) {
        (member.q, member.outlier) = (q, q <= Q && member.p <= P_MAX);
    }
    groups.iter_mut().for_each(|group| group.servers.sort_by(|a, b| a.p.total_cmp(&b.p)));
    Ok(Outliers { groups, left_out, level: LEVEL })
}

/// Bins of the rate in a cell.
const CELL_BINS: i32 = 4;

/// A range of rates, of one release.
type Cell<'a> = (Option<&'a str>, i32);

/// A server's costs of a request, as logarithms, by bin of the rate.
#[derive(Default)]
struct Costs<'a> {
    bins: Vec<(Cell<'a>, i32, LogRatio)>,
    intervals: f64,
    saturated: f64,
}

impl<'a> Costs<'a> {
    fn add(&mut self, costs: &ServerCosts, release: Option<&'a str>) {
        let Some(resource) = charged(costs) else { return };
        let enough = |bin: &Bin| bin.windows >= WINDOWS_MIN;
        let Some((highest, _)) = resource.bins.iter().rfind(|(_, bin)| enough(bin)) else { return };
        let lowest = f64::from(*highest) + BINS_PER_OCTAVE * BUSY_PART.log2();
        for (at, bin) in &resource.bins {
            if f64::from(*at) >= lowest && enough(bin) {
                let cell = (release, at.div_euclid(CELL_BINS));
                self.bins.extend(log_ratio(&bin.into()).map(|cost| (cell, *at, cost)));
                self.intervals += bin.n;
            }
        }
        self.saturated += resource.saturated_n;
    }

    /// The slope of the cost on the bin; `None` if there are too few.
    fn slope(&self) -> Option<f64> {
        let bins: Vec<f64> = self.bins.iter().map(|(_, at, _)| f64::from(*at)).collect();
        let costs: Vec<f64> = self.bins.iter().map(|(.., cost)| cost.value).collect();
        let weights: Vec<f64> = self.bins.iter().map(|(.., cost)| cost.effective_n).collect();
        regress::wls(&bins, &costs, &weights).ok().map(|line| line.slope)
    }

    /// Moves the costs to the middle of their cells.
    fn move_to_middle(&mut self, slope: f64) {
        for (cell, at, cost) in &mut self.bins {
            let middle = f64::from(CELL_BINS * cell.1) + f64::from(CELL_BINS - 1) / 2.0;
            cost.value -= slope * (f64::from(*at) - middle);
        }
    }

    /// The mean of the deviations from the medians and its variance, and the number of servers
    /// that the medians are of.
    fn deviation(&self, medians: &BTreeMap<Cell<'_>, (f64, usize)>) -> Option<[f64; 3]> {
        let weight: f64 = self.bins.iter().map(|(.., cost)| cost.effective_n).sum();
        let (mut value, mut variance, mut others) = (0.0, 0.0, 0.0);
        for (cell, _, cost) in &self.bins {
            let share = cost.effective_n / weight;
            let (median, servers) = medians.get(cell)?;
            value += share * (cost.value - median);
            variance += share * share * cost.variance;
            others += share * *servers as f64;
        }
        (weight > 0.0).then_some([value, variance, others])
    }
}

/// A group, and how much the cost of each of its servers deviates.
struct Deviating<'a> {
    name: &'a str,
    known: Vec<(&'a ServerId, Costs<'a>)>,
    /// See [`Costs::deviation`]; none if there are fewer than [`GROUP_MIN`] servers.
    deviations: Vec<[f64; 3]>,
}

impl<'a> Deviating<'a> {
    fn of(
        name: &'a str,
        servers: BTreeMap<&'a ServerId, Costs<'a>>,
        left_out: &mut Vec<LeftOut>,
    ) -> Deviating<'a> {
        let mut servers_in: BTreeMap<Cell<'_>, BTreeSet<&ServerId>> = BTreeMap::new();
        for (server, costs) in &servers {
            for (cell, ..) in &costs.bins {
                servers_in.entry(*cell).or_default().insert(server);
            }
        }
        let slope = median(&mut servers.values().filter_map(Costs::slope).collect::<Vec<f64>>());
        let mut known: Vec<(&ServerId, Costs<'_>)> = Vec::new();
        for (server, mut costs) in servers {
            let had = !costs.bins.is_empty();
            costs.move_to_middle(if slope.is_finite() { slope } else { 0.0 });
            costs.bins.retain(|(cell, ..)| servers_in[cell].len() >= BIN_SERVERS_MIN);
            let why = match had {
                _ if !costs.bins.is_empty() => {
                    known.push((server, costs));
                    continue;
                }
                true => "its rates are not those of its group",
                false => "its costs are not known",
            };
            left_out.push(LeftOut { server: server.clone(), why: why.to_owned() });
        }
        let deviations = if known.len() < GROUP_MIN { Vec::new() } else { polished(&known) };
        Deviating { name, known, deviations }
    }

    /// The deviations, each with its variance by the windows.
    fn effects(&self) -> Vec<(f64, f64)> {
        self.deviations.iter().map(|[value, variance, _]| (*value, *variance)).collect()
    }

    /// The logarithm of the variance between most of its servers, by the median of the deviations,
    /// and the variance of that. It hardly depends on the servers that are far off.
    fn log_variance(&self) -> (f64, f64) {
        let mut off: Vec<f64> = self.deviations.iter().map(|d| d[0].abs()).collect();
        let median = median(&mut off).max(BETWEEN_RUN_MIN);
        (2.0 * median.ln(), 4.0 * OF_LOG_MEDIAN / off.len() as f64)
    }

    fn judged(self, spread: Option<(f64, f64)>) -> Group {
        let Deviating { name, known, deviations } = self;
        let Some((sd, dof)) = spread else {
            let why = match known.len() {
                few if few < GROUP_MIN => {
                    format!("{few} comparable servers, fewer than {GROUP_MIN}")
                }
                _ => "its costs cannot be compared".to_owned(),
            };
            return Group {
                name: name.to_owned(),
                cannot_be_said: Some(why),
                between_servers: None,
                servers: Vec::new(),
            };
        };
        let member =
            |((server, one), [off, variance, others]): (&(&ServerId, Costs<'_>), [f64; 3])| {
                let variance = variance + sd * sd * (1.0 + OF_MEDIAN / others);
                Member {
                    server: (*server).clone(),
                    ratio: Figure::ratio(off, variance, dof),
                    p: p_value(off, variance, dof),
                    q: 1.0,
                    outlier: false,
                    rates: (
                        one.bins
                            .iter()
                            .map(|(_, at, _)| rates(*at).0)
                            .fold(f64::INFINITY, f64::min),
                        one.bins.iter().map(|(_, at, _)| rates(*at).1).fold(0.0, f64::max),
                    ),
                    bins: one.bins.len(),
                    intervals: one.intervals,
                    saturated: one.saturated,
                }
            };
        Group {
            name: name.to_owned(),
            cannot_be_said: None,
            between_servers: Some(sd),
            servers: known.iter().zip(deviations).map(member).collect(),
        }
    }
}

/// The sd between the healthy servers of each group, and its degrees of freedom. A small group does
/// not show its sd well, and its outliers hide each other, so the groups share one as far as they
/// are alike (Smyth 2004): it counts as if it came from so many servers more, the fewer the more
/// the groups differ. If they do not differ by more than chance, it is that of all.
fn spreads(groups: &[Deviating<'_>]) -> Vec<Option<(f64, f64)>> {
    let large = || groups.iter().filter(|group| !group.deviations.is_empty());
    let all: Vec<(f64, f64)> = large().flat_map(Deviating::effects).collect();
    let variances: Vec<(f64, f64)> = large().map(Deviating::log_variance).collect();
    let differ = pooled(&variances, LEVEL).map(|mean| mean.between_sd);
    let of_all = spread(&all, BETWEEN_RUN_MIN);
    let one = |group: &Deviating<'_>| {
        let own = spread(&group.effects(), BETWEEN_RUN_MIN)?;
        let (Some(all), Some(differ)) = (of_all, differ) else {
            return Some((own.between_sd, own.dof));
        };
        if differ == 0.0 {
            return Some((all.between_sd, all.dof));
        }
        let shared = (2.0 / differ.powi(2)).min(all.dof);
        let dof = shared + own.dof;
        let sum = shared * all.between_sd.powi(2) + own.dof * own.between_sd.powi(2);
        Some(((sum / dof).sqrt(), dof))
    };
    groups.iter().map(one).collect()
}

/// The deviations of all servers, see [`Costs::deviation`].
fn polished(known: &[(&ServerId, Costs<'_>)]) -> Vec<[f64; 3]> {
    let mut deviations = vec![[0.0; 3]; known.len()];
    let mut servers_in: BTreeMap<Cell<'_>, usize> = BTreeMap::new();
    for (_, one) in known {
        let cells: BTreeSet<Cell<'_>> = one.bins.iter().map(|(cell, ..)| *cell).collect();
        cells.into_iter().for_each(|cell| *servers_in.entry(cell).or_default() += 1);
    }
    for _ in 0..ROUNDS {
        let mut in_cell: BTreeMap<Cell<'_>, Vec<f64>> = BTreeMap::new();
        for ((_, one), deviation) in known.iter().zip(&deviations) {
            for (cell, _, cost) in &one.bins {
                in_cell.entry(*cell).or_default().push(cost.value - deviation[0]);
            }
        }
        let medians: BTreeMap<Cell<'_>, (f64, usize)> = in_cell
            .into_iter()
            .map(|(cell, mut values)| (cell, (median(&mut values), servers_in[&cell])))
            .collect();
        let deviation = |one: &Costs<'_>| one.deviation(&medians).expect("each cell has a median");
        deviations = known.iter().map(|(_, one)| deviation(one)).collect();
        let middle = median(&mut deviations.iter().map(|d| d[0]).collect::<Vec<f64>>());
        deviations.iter_mut().for_each(|deviation| deviation[0] -= middle);
    }
    deviations
}

/// The answer as text: the outliers, and of each group the next few servers.
#[must_use]
pub fn sheet(answer: &Outliers) -> Sheet {
    const NEXT: usize = 3;
    const NAMES: usize = 5;
    let all = || answer.groups.iter().flat_map(|group| &group.servers);
    let outlying: Vec<String> = all()
        .filter(|one| one.outlier)
        .map(|one| format!("{} {} %", one.server, change(one.ratio.value)))
        .collect();
    let named = match outlying.len() {
        0 => String::new(),
        few if few <= NAMES => format!(": {}", outlying.join(", ")),
        _ => format!(": {}, …", outlying[..NAMES].join(", ")),
    };
    let text =
        format!("{} of {} servers differ from their group{named}", outlying.len(), all().count());
    let mut facts = vec![fact("Outliers", text)];
    for group in &answer.groups {
        let text = match (&group.cannot_be_said, group.between_servers) {
            (Some(why), _) => format!("{}: cannot be said: {why}", group.name),
            (None, sd) => format!(
                "{}: {} servers; sd between healthy ones {} %",
                group.name,
                group.servers.len(),
                percent(100.0 * sd.unwrap_or(f64::NAN))
            ),
        };
        facts.push(fact("Group", text));
    }
    facts.extend(left_out(&answer.left_out));
    let mut rows: Vec<(&str, &Member)> = Vec::new();
    for group in &answer.groups {
        let outlying = group.servers.iter().filter(|one| one.outlier).count();
        rows.extend(
            group.servers.iter().take(outlying + NEXT).map(|one| (group.name.as_str(), one)),
        );
    }
    rows.sort_by(|(_, a), (_, b)| a.p.total_cmp(&b.p));
    type Shown<'a> = (&'a str, &'a Member);
    type Column<'a> = (&'a str, &'a dyn Fn(&Shown<'_>) -> String);
    let mut columns: Vec<Column<'_>> = vec![
        ("<server", &|(_, one)| one.server.to_string()),
        ("difference %", &|(_, one)| one.ratio.as_change()),
        ("q", &|(_, one)| three(one.q)),
        ("<differs", &|(_, one)| if one.outlier { "yes" } else { "no" }.to_owned()),
        ("rates/s", &|(_, one)| format!("{} to {}", rate(one.rates.0), rate(one.rates.1))),
    ];
    if rows.iter().any(|(group, one)| *group != one.server.server) {
        columns.insert(1, ("<group", &|(group, _)| (*group).to_owned()));
    }
    let table = Rows::of(
        "Servers",
        rows,
        &columns,
        format!(
            "Cost of a request compared with the group at the same rates. The interval includes \
             how far healthy servers differ. A server differs if q ≤ {Q} and p ≤ {P_MAX}: expect \
             at most one false alarm in 1,000 healthy servers. Of each group, only {NEXT} of the \
             others are shown.",
        ),
    );
    let tables = if table.rows.is_empty() { Vec::new() } else { vec![table] };
    Sheet { title: "Servers that differ from their group".to_owned(), facts, tables }
}
