//! Which servers a home has, and how much of each was recorded.

use std::collections::{BTreeMap, BTreeSet};

use report::format::{duration, instant, thousands};
use report::sheet::{Rows, Sheet};
use serde::Serialize;

use crate::answer::fact;
use crate::home::{Asked, Error, Home, Run, ServerId};

const DAY_NS: i64 = 86_400_000_000_000;
/// Values of a label that are shown.
const VALUES_SHOWN: usize = 4;

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct List {
    /// The servers, by name.
    pub servers: Vec<Recorded>,
}

/// What is recorded of a server.
#[derive(Clone, Debug, Serialize)]
pub struct Recorded {
    /// The server.
    pub server: ServerId,
    /// Its versions.
    pub versions: BTreeSet<String>,
    /// Number of trials.
    pub trials: u64,
    /// Number of their intervals.
    pub intervals: u64,
    /// Length of all recordings together, seconds.
    pub recorded_s: f64,
    /// Start of the first, ns since the Unix epoch.
    pub from_ns: i64,
    /// End of the last.
    pub to_ns: i64,
    /// Its labels with their values.
    pub labels: BTreeMap<String, BTreeSet<String>>,
}

/// The servers of a home.
///
/// # Errors
/// Those of the home.
pub fn list(home: &dyn Home, asked: &Asked) -> Result<List, Error> {
    let mut servers: Vec<Recorded> = Vec::new();
    for run in home.runs(asked)? {
        if servers.last().is_none_or(|last| last.server != run.server) {
            servers.push(Recorded {
                server: run.server.clone(),
                versions: BTreeSet::new(),
                trials: 0,
                intervals: 0,
                recorded_s: 0.0,
                from_ns: run.created_ns,
                to_ns: run.end_ns,
                labels: BTreeMap::new(),
            });
        }
        servers.last_mut().expect("one was pushed").add(run);
    }
    Ok(List { servers })
}

impl Recorded {
    fn add(&mut self, run: Run) {
        self.versions.extend(run.version);
        self.trials += 1;
        self.intervals += run.intervals;
        self.recorded_s += (run.end_ns - run.created_ns).max(0) as f64 / 1e9;
        self.from_ns = self.from_ns.min(run.created_ns);
        self.to_ns = self.to_ns.max(run.end_ns);
        for label in run.labels {
            self.labels.entry(label.name).or_default().insert(label.value);
        }
    }
}

/// The answer as text.
#[must_use]
pub fn sheet(answer: &List) -> Sheet {
    let from = answer.servers.iter().map(|one| one.from_ns).min();
    let to = answer.servers.iter().map(|one| one.to_ns).max();
    // Over days, the dates do, and leave room for the labels.
    let shown = match from.zip(to).is_some_and(|(from, to)| to - from > 2 * DAY_NS) {
        true => "2026-11-26".len(),
        false => "2026-11-26 09:30".len(),
    };
    let at = |ns: i64| instant(ns).chars().take(shown).collect::<String>();
    let trials: u64 = answer.servers.iter().map(|one| one.trials).sum();
    Sheet {
        title: "Servers of the fleet".to_owned(),
        facts: vec![fact("Data", format!("{} servers, {trials} trials", answer.servers.len()))],
        tables: vec![Rows::of(
            "Servers",
            &answer.servers,
            &[
                ("<Server", &|one: &&Recorded| one.server.to_string()),
                ("Trials", &|one| thousands(one.trials as f64)),
                ("Recorded", &|one| duration(one.recorded_s)),
                ("<From (UTC)", &|one| at(one.from_ns)),
                ("<To (UTC)", &|one| at(one.to_ns)),
                ("~Labels", &|one| labels(&one.labels)),
            ],
            "",
        )],
    }
}

fn labels(of: &BTreeMap<String, BTreeSet<String>>) -> String {
    let one = |(name, values): (&String, &BTreeSet<String>)| {
        let shown: Vec<&str> = values.iter().take(VALUES_SHOWN).map(String::as_str).collect();
        let more = if values.len() > VALUES_SHOWN { ",…" } else { "" };
        format!("{name}={}{more}", shown.join(","))
    };
    of.iter().map(one).collect::<Vec<String>>().join(" ")
}
