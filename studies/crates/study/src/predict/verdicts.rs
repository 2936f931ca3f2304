//! Verdicts of `compare` on pairs of the kept trials.
//!
//! Two trials of one server, at whatever reach and with whatever connections, must not differ: a
//! verdict of an improvement or of a regression is *false*. Trials at constant rates are only
//! compared with those at the same rate: what a request costs at another rate is not known. A trial
//! of a server and one of its variant (see [`super::servers::variant_of`]) must differ by what the
//! variant costs, which their saturations show: CPU time over requests. Two sizes of the response
//! are never compared.
//!
//! What never happens: a pair whose trials cannot be compared is left out. It counts as
//! inconclusive.

use std::path::Path;

use report::{CompareOptions, Verdict};
use serde::Serialize;
use trial::Trial;

use super::collect::{Case, Ramp};
use super::servers::variant_of;

/// From this part on, a change has to be found.
const FOUND_FROM: f64 = 0.1;

/// The verdicts on all pairs of one server, or of a server and a variant of it.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Pairs {
    /// The server, or the variant.
    pub(super) server: String,
    /// The server that it is compared with: itself, or that of which it is a variant.
    pub(super) with: String,
    /// Size of the body of a response, bytes.
    pub(super) body_bytes: u64,
    /// By how much a request costs more at saturation, percent; 0 for the same server.
    pub(super) change_percent: f64,
    /// Whether one trial of each pair was beside a neighbour, and the other one was not.
    pub(super) mixed: bool,
    /// Pairs of trials.
    pub(super) pairs: usize,
    /// Pairs with a verdict in the direction of the change.
    pub(super) found: usize,
    /// Pairs with a verdict in the other direction; for the same server, in any.
    pub(super) wrong: usize,
    /// Pairs that were said not to differ.
    pub(super) no_change: usize,
    /// Pairs without a verdict, and those that could not be compared.
    pub(super) inconclusive: usize,
}

impl Pairs {
    fn new(server: &str, with: &str, body_bytes: u64, change_percent: f64) -> Pairs {
        let (server, with) = (server.to_owned(), with.to_owned());
        Pairs { server, with, body_bytes, change_percent, ..Pairs::default() }
    }

    /// Whether both trials are of the same server.
    pub(super) fn unchanged(&self) -> bool {
        self.server == self.with
    }

    /// Whether the change is so large that it has to be found.
    pub(super) fn to_be_found(&self) -> bool {
        !self.unchanged() && self.change_percent.abs() >= 100.0 * FOUND_FROM
    }

    fn count(&mut self, verdict: Option<Verdict>) {
        let costs_more = self.change_percent > 0.0;
        self.pairs += 1;
        let of_verdict = match verdict {
            Some(Verdict::NoChange) => &mut self.no_change,
            None | Some(Verdict::Inconclusive) => &mut self.inconclusive,
            Some(verdict) if self.unchanged() || (verdict == Verdict::Regression) != costs_more => {
                &mut self.wrong
            }
            Some(_) => &mut self.found,
        };
        *of_verdict += 1;
    }
}

/// Compares all pairs of the trials of the cases, which are in a directory.
pub(super) fn pairs(directory: &Path, cases: &[Case]) -> Vec<Pairs> {
    let mut groups: Vec<(&str, u64)> =
        cases.iter().map(|case| (case.server.as_str(), case.body_bytes)).collect();
    groups.dedup();
    let of = |server: &str, body_bytes: u64| -> Vec<&Case> {
        let same = |case: &&Case| case.server == server && case.body_bytes == body_bytes;
        cases.iter().filter(same).collect()
    };
    let mut all = Vec::new();
    for (server, body_bytes) in groups {
        let own = of(server, body_bytes);
        let trials = opened(directory, &own);
        let mut unchanged = Pairs::new(server, server, body_bytes, 0.0);
        let mut mixed = Pairs { mixed: true, ..unchanged.clone() };
        for (at, before) in trials.iter().enumerate() {
            for after in trials[at + 1..].iter().filter(|after| before.is_pair(after)) {
                let same = before.neighbour == after.neighbour;
                let pairs = if same { &mut unchanged } else { &mut mixed };
                pairs.count(before.verdict(after));
            }
        }
        all.extend([unchanged, mixed]);
        if let Some(with) = variant_of(server) {
            let others = of(with, body_bytes);
            let change_percent = 100.0 * (cost(&own) / cost(&others) - 1.0);
            let mut changed = Pairs::new(server, with, body_bytes, change_percent);
            for before in &opened(directory, &others) {
                let pairs = trials.iter().filter(|after| before.is_pair(after));
                let same = pairs.filter(|after| after.neighbour == before.neighbour);
                same.for_each(|after| changed.count(before.verdict(after)));
            }
            all.push(changed);
        }
    }
    all.retain(|pairs| pairs.pairs > 0);
    all
}

/// A recorded load.
struct Opened {
    neighbour: bool,
    /// How far it rose, percent, if the rate was constant.
    constant: Option<u32>,
    /// `None` if it cannot be read.
    trial: Option<Trial>,
}

impl Opened {
    fn is_pair(&self, after: &Opened) -> bool {
        self.constant == after.constant
    }

    fn verdict(&self, after: &Opened) -> Option<Verdict> {
        let (before, after) = (self.trial.as_ref()?, after.trial.as_ref()?);
        let found = report::compare(before, after, &CompareOptions::default());
        found.ok().map(|comparison| comparison.verdict)
    }
}

/// The trials of all loads.
fn opened(directory: &Path, cases: &[&Case]) -> Vec<Opened> {
    let ramps = cases.iter().flat_map(|case| case.ramps.iter().map(|ramp| (case.constant, ramp)));
    let open = |(constant, ramp): (bool, &Ramp)| Opened {
        neighbour: ramp.neighbour,
        constant: constant.then_some(ramp.reach),
        trial: Trial::open(directory.join(&ramp.trial)).ok(),
    };
    ramps.map(open).collect()
}

/// CPU time of a request at saturation, as a mean over the cases.
fn cost(cases: &[&Case]) -> f64 {
    let each = cases.iter().flat_map(|case| case.saturation);
    let (cpus, rate) = each.fold((0.0, 0.0), |sum, one| (sum.0 + one.cpus, sum.1 + one.rate));
    cpus / rate
}

#[cfg(test)]
mod tests {
    use super::super::collect::Saturation;
    use super::*;

    fn of(server: &str, change_percent: f64) -> Pairs {
        Pairs::new(server, "nginx", 1024, change_percent)
    }

    #[test]
    fn a_verdict_counts_by_the_direction_of_the_change() {
        let verdicts = [
            Some(Verdict::Regression),
            Some(Verdict::Improvement),
            Some(Verdict::NoChange),
            Some(Verdict::Inconclusive),
            None,
        ];
        for (mut pairs, found, wrong) in
            [(of("nginx", 0.0), 0, 2), (of("other", 12.0), 1, 1), (of("other", -12.0), 1, 1)]
        {
            verdicts.into_iter().for_each(|verdict| pairs.count(verdict));
            let counts = (pairs.pairs, pairs.no_change, pairs.inconclusive);
            assert_eq!((counts, pairs.found, pairs.wrong), ((5, 1, 2), found, wrong));
        }
        assert!(of("other", -12.0).to_be_found() && !of("other", 9.0).to_be_found());
        assert!(!of("nginx", 0.0).to_be_found());
    }

    #[test]
    fn all_pairs_of_a_server_count_even_without_their_trials() {
        let saturation = [Saturation { rate: 1_000.0, cpus: 1.0, ..Saturation::default() }; 2];
        let ramps = vec![Ramp::default(); 3];
        let case = |server: &str, connections| Case {
            server: server.into(),
            connections,
            saturation,
            ramps: ramps.clone(),
            ..Case::default()
        };
        let cases = [case("nginx", 16), case("nginx", 64), case("nginx-hop", 64)];
        let found = pairs(Path::new("nowhere"), &cases);
        let counts: Vec<_> =
            found.iter().map(|p| (p.server.as_str(), p.with.as_str(), p.inconclusive)).collect();
        let expected = [("nginx", "nginx", 15), ("nginx-hop", "nginx-hop", 3)];
        assert_eq!(counts[..2], expected);
        assert_eq!(counts[2], ("nginx-hop", "nginx", 18));
    }

    #[test]
    fn constant_rates_are_pairs_only_if_they_are_equal() {
        let of = |reach| Ramp { reach, ..Ramp::default() };
        let saturation = [Saturation { rate: 1_000.0, cpus: 1.0, ..Saturation::default() }; 2];
        let ramps = [30, 60, 30].map(of).to_vec();
        let ramps_vary = Case { server: "nginx".into(), saturation, ramps, ..Case::default() };
        let constant = Case { constant: true, ..ramps_vary.clone() };
        let pairs_of = |case| pairs(Path::new("nowhere"), &[case])[0].pairs;
        assert_eq!((pairs_of(ramps_vary), pairs_of(constant)), (3, 1));
    }

    #[test]
    fn a_trial_beside_a_neighbour_and_one_alone_are_pairs_of_their_own() {
        let beside = |neighbour| Ramp { neighbour, ..Ramp::default() };
        let ramps = [false, false, true].map(beside).to_vec();
        let saturation = [Saturation { rate: 1_000.0, cpus: 1.0, ..Saturation::default() }; 2];
        let case = Case { server: "nginx".into(), saturation, ramps, ..Case::default() };
        let found = pairs(Path::new("nowhere"), &[case]);
        let counts: Vec<_> = found.iter().map(|pairs| (pairs.mixed, pairs.pairs)).collect();
        assert_eq!(counts, [(false, 1), (true, 2)]);
    }
}
