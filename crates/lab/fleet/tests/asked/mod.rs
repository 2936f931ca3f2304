//! Asks made-up fleets, and compares the answers with what was planted.

use std::collections::BTreeMap;

use fleet::compare::{Terms, compare};
use fleet::example::{Fleet, Plan};
use fleet::forecast::{Outlook, ServerCapacity, forecast};
use fleet::home::{Asked, ServerId};
use fleet::outliers::outliers;
use report::Verdict;

const ANSWERS: &str = "a home in memory answers";

/// What the questions said about one fleet.
#[derive(Debug)]
pub(crate) struct Found {
    /// Expensive servers that are outliers.
    pub(crate) expensive: usize,
    /// Healthy servers, and how many of them are outliers.
    pub(crate) healthy: (usize, usize),
    /// The verdict on the release.
    pub(crate) release: Verdict,
    /// Servers with the release, and how many of them changed.
    pub(crate) changed: (usize, usize),
    /// The interval of the release has the true ratio.
    pub(crate) covered: bool,
    /// The procedure that changed, and no other, has a change.
    pub(crate) procedures: bool,
}

impl Found {
    /// Everything planted was found, with at most one false alarm in 100 healthy servers.
    pub(crate) fn is_right(&self) -> bool {
        self.expensive == 3
            && self.release == Verdict::Regression
            && self.healthy.1 <= self.healthy.0.div_ceil(100)
    }

    /// No more false alarms than that in a fleet in which nothing is planted.
    pub(crate) fn is_quiet(&self) -> bool {
        let changed = matches!(self.release, Verdict::Regression | Verdict::Improvement);
        !changed && self.healthy.1 + self.changed.1 <= self.healthy.0.div_ceil(100)
    }
}

fn ask(seed: u64, plan: &Plan) -> Found {
    let fleet = Fleet::new(seed, plan.clone());
    let expensive = fleet.expensive();
    let answer = outliers(&fleet, &Asked::default()).expect(ANSWERS);
    let members = || answer.groups.iter().flat_map(|group| &group.servers);
    let differ: Vec<&ServerId> = members().filter(|m| m.outlier).map(|m| &m.server).collect();
    let right = differ.iter().filter(|server| expensive.contains(server)).count();
    let compared = compare(&fleet, &Asked::default(), &Terms::default()).expect(ANSWERS);
    let changed = |v: Verdict| matches!(v, Verdict::Regression | Verdict::Improvement);
    let truth = plan.release.1;
    let named: Vec<&str> = compared
        .procedures
        .iter()
        .filter(|one| one.q <= 0.05)
        .map(|one| one.procedure.as_str())
        .collect();
    Found {
        expensive: right,
        healthy: (members().count() - expensive.len(), differ.len() - right),
        release: compared.verdict,
        changed: (
            compared.servers.len(),
            compared.servers.iter().filter(|one| changed(one.verdict)).count(),
        ),
        covered: compared.ratio.is_some_and(|r| (r.low..=r.high).contains(&truth)),
        procedures: if truth > 1.0 { named == ["parse_headers"] } else { named.is_empty() },
    }
}

/// The answers for these seeds, on two threads.
pub(crate) fn ask_all(seeds: u64, plan: &Plan) -> Vec<Found> {
    std::thread::scope(|scope| {
        let half = |odd: u64| (0..seeds).filter(move |seed| seed % 2 == odd);
        let other = scope.spawn(move || half(1).map(|seed| ask(seed, plan)).collect::<Vec<_>>());
        let mut found: Vec<Found> = half(0).map(|seed| ask(seed, plan)).collect();
        found.extend(other.join().expect("the other thread does not panic"));
        found
    })
}

/// Forecasts of a fleet by group, and of each server alone.
pub(crate) fn forecasts(fleet: &Fleet, by: Option<&str>) -> BTreeMap<String, Outlook> {
    let known =
        |(server, value)| ServerCapacity { server, value, low: 0.9 * value, high: value / 0.9 };
    let capacities: Vec<ServerCapacity> = fleet.capacities().into_iter().map(known).collect();
    let asked = Asked { by: by.map(Into::into), ..Asked::default() };
    let answer = forecast(fleet, &asked, &capacities).expect(ANSWERS);
    answer.groups.into_iter().map(|group| (group.name, group.outlook)).collect()
}

/// Whether the interval has the day, and the days by which the median is off.
pub(crate) fn dated(outlook: &Outlook, truth_s: i64) -> Option<(bool, i64)> {
    let Outlook::RunsOut { day_s, low_s, high_s } = *outlook else { return None };
    let held = low_s <= truth_s && high_s.is_none_or(|high_s| truth_s <= high_s);
    Some((held, (day_s - truth_s) / 86_400))
}
