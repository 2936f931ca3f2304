//! The experiment that most studies make: servers, loads, rounds, figures.
//!
//! ```text
//!  cells (all servers with all loads) -> rounds, each over all cells -> rows of figures -> page
//! ```
//!
//! What: a study names its cells and how a cell is visited. [`Visits`] has what was measured, and
//! makes a row of each cell by a table of figures. [`Servers`] visits servers under a load and
//! measures their CPU time. What never happens: two cells are compared by different rounds.

use harness::rounds::{Figures, Rounds, Visits};
use harness::{Error, Span, drive};
use serde_json::Value;

use crate::found::Steps;

/// Every server, by its index, with every number.
pub(crate) fn cells(servers: usize, numbers: &[u32]) -> Vec<(usize, u32)> {
    (0..servers).flat_map(|server| numbers.iter().map(move |number| (server, *number))).collect()
}

/// Servers that are compared: each with each number, in every round.
pub(crate) struct Servers<'s> {
    /// The name and the process of each.
    pub(crate) all: Vec<(String, i32)>,
    /// The numbers, and what they are numbers of.
    pub(crate) numbers: (&'s [u32], &'static str),
    /// The load on a server with a number in a round.
    pub(crate) load: &'s dyn Fn(usize, u32, usize) -> load::Plan,
    /// The parts of a load that count, in seconds.
    pub(crate) spans: &'s [(f64, f64)],
}

/// What was measured of servers.
pub(crate) type ServerVisits = Visits<(usize, u32), Visit>;

/// One visit to a server.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    /// The rate and the CPU time a request in each span; NaN if no response arrived in it.
    pub(crate) spans: Vec<Span>,
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) hits: u64,
    pub(crate) body_bytes: u64,
}

impl Servers<'_> {
    /// Visits all cells in rounds.
    pub(crate) fn visit(
        &self,
        rounds: &Rounds,
        steps: &mut Steps<'_>,
    ) -> Result<ServerVisits, Error> {
        let (numbers, what) = self.numbers;
        let visits = rounds.make(cells(self.all.len(), numbers), |round, (at, number), _| {
            let (name, pid) = &self.all[at];
            steps.say(&format!("round {}: {name}, {number} {what}", round + 1));
            let load = (self.load)(at, number, round);
            let nothing = Span { rate: f64::NAN, us: f64::NAN };
            match drive(*pid, name, &load, self.spans, steps.stop) {
                Ok((spans, outcome)) => {
                    let counts = outcome.counts;
                    let (requests, errors) = (counts.completed, counts.errors.total());
                    let (hits, body_bytes) = (counts.hits, counts.body_bytes);
                    Ok(Visit { spans, requests, errors, hits, body_bytes })
                }
                Err(Error::Silent(_)) => {
                    let spans = vec![nothing; self.spans.len()];
                    Ok(Visit { spans, requests: 0, errors: 0, hits: 0, body_bytes: 0 })
                }
                Err(error) => Err(error),
            }
        })?;
        Ok(Visits(visits))
    }
}

/// The row of a cell, with the sums of its counts.
pub(crate) fn server_row(
    visits: &ServerVisits,
    cell: (usize, u32),
    mut row: Value,
    figures: Figures<'_, (usize, u32), Visit>,
) -> Value {
    row["requests"] = visits.sum(cell, |visit| visit.requests).into();
    row["errors"] = visits.sum(cell, |visit| visit.errors).into();
    row["hits"] = visits.sum(cell, |visit| visit.hits).into();
    visits.row(cell, row, figures)
}

/// The sum of a count over all visits.
pub(crate) fn total(visits: &ServerVisits, count: fn(&Visit) -> u64) -> u64 {
    visits.0.iter().flatten().map(|(_, visit)| count(visit)).sum()
}

/// A visit of a test, with a span for each of these costs in microseconds.
#[cfg(test)]
pub(crate) fn visit_of(costs_us: &[f64]) -> Visit {
    let span = |us: &f64| Span { rate: 1e6 / us, us: *us };
    let spans = costs_us.iter().map(span).collect();
    Visit { spans, requests: 10, errors: 1, hits: 5, body_bytes: 1_000 }
}

/// Asserts that a figure has a value and that it is the same in every round.
#[cfg(test)]
pub(crate) fn assert_constant(figure: &Value, wanted: f64) {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    assert!((number(&figure["value"]) / wanted - 1.0).abs() < 1e-9, "{figure} is not {wanted}");
    let [low, high] = [0, 1].map(|end| number(&figure["interval"][end]));
    assert!(high - low < 1e-9, "{figure}");
}
