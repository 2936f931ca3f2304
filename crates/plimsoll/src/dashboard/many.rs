//! The figures of many servers: of a home of trials.

use std::time::{Duration, Instant};

use ::dashboard::{FleetServer, Snapshot, Source};
use ::fleet::capacity::{
    Capacities, DETAIL_INTERVALS, ServerCapacity, capacity, details, left_out,
};
use ::fleet::home::Asked;
use command::failure::{Failure, misuse};
use command::scratch::Scratch;
use regress::load_line::LEVEL_DEFAULT;

use super::Watched;
use crate::cli::Login;
use crate::fleet::{self, Opened};

/// The shortest time between two questions.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// The pause after a question, as a multiple of the time that it took.
const ASK_REST: u32 = 10;

/// Of a database, the trials of this time are asked for.
const RECENT_S: i64 = 7 * 24 * 3600;

/// Of a folder, so many servers are fitted by the method of a report, those that are nearest to
/// their capacity first.
const DETAILS: usize = 20;

/// A home of trials.
pub(super) struct Many {
    home: String,
    login: Login,
    next: Instant,
}

impl Many {
    /// A directory of trials, or a database.
    pub(super) fn of(home: String, login: Login) -> Many {
        Many { home, login, next: Instant::now() }
    }
}

impl Watched for Many {
    fn look(&mut self, show: &mut dyn FnMut(Snapshot)) -> Result<bool, Failure> {
        let begun = Instant::now();
        if begun < self.next {
            return Ok(false);
        }
        let Opened { home, name, skipped } = fleet::open(&self.home, &self.login)?;
        let (span, detail) = match fleet::is_database(&self.home) {
            true => {
                let now_s = ::load::sys::wall_ns() / 1_000_000_000;
                (Some((now_s - RECENT_S, i64::MAX)), format!("{name}, the last 7 days"))
            }
            false => (None, name),
        };
        let asked = Asked { span, ..Asked::default() };
        let mut answer = capacity(&*home, &asked, LEVEL_DEFAULT).map_err(misuse)?;
        if !fleet::is_database(&self.home) {
            let scratch = Scratch::new("fleet")?;
            details(&*home, &asked, &mut answer, DETAILS, DETAIL_INTERVALS, scratch.path())
                .map_err(misuse)?;
        }
        let source = Source {
            kind: "fleet",
            name: "Fleet".to_owned(),
            detail,
            ended: false,
            stale: None,
            notes: notes(skipped, &answer),
        };
        show(Snapshot {
            source: Some(source),
            fleet: Some(answer.servers.iter().map(server).collect()),
            ..Snapshot::default()
        });
        self.next = Instant::now() + ASK_EVERY.max(ASK_REST * begun.elapsed());
        Ok(true)
    }
}

/// What is not in the figures.
fn notes(skipped: Vec<String>, answer: &Capacities) -> Vec<String> {
    let sentence = |(name, text): (String, String)| format!("{name}: {text}.");
    skipped.into_iter().chain(left_out(answer).into_iter().map(sentence)).collect()
}

fn server(of: &ServerCapacity) -> FleetServer {
    let [capacity, low, high] = of.figure();
    FleetServer {
        server: of.server.to_string(),
        peak: of.peak_rate,
        capacity,
        low,
        high,
        resource: of.resource.clone().unwrap_or_default(),
        remark: Some(::fleet::capacity::remark(of)).filter(|remark| !remark.is_empty()),
    }
}
