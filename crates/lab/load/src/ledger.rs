//! The counters of a run, for the current row and in total.
//!
//! What: counters and one histogram for the current row, which is closed into a `Row` and added to
//! the outcome's totals. Why it is separate: the loop calls one small function per event, and one
//! place decides whether a row is valid. What never happens: a clock is read (`now` is an
//! argument); a request is counted twice.

use crate::outcome::{Counts, ErrorKind, Outcome, Recorder, Row};
use crate::plan::Plan;
use crate::response::{Complete, Source};

/// Length of a row, ns.
const ROW_NS: u64 = 1_000_000_000;
/// The generator may account for `lag_max` of a latency, or for one part in so many, whichever is
/// more. A lag of a millisecond changes a latency of a millisecond, and not one of a second.
const LAG_PARTS_MIN: u64 = 5;
/// The generator has fallen behind in a row if it may have changed more than this fraction of the
/// row's latencies.
const LATE_PART_MAX: f64 = 0.01;
/// A generator that sleeps is at its limit if it uses more of the row than this.
const BUSY_PART_MAX: f64 = 0.97;
/// A generator that busy-polls is at its limit if fewer of its polls than this are empty.
const EMPTY_POLLS_PART_MIN: f64 = 0.01;

/// The generator's own cost so far, sampled at the end of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// CPU time of this thread so far, ns.
    pub(crate) cpu_ns: u64,
    /// The wall clock, ns since the epoch.
    pub(crate) wall_ns: i64,
    /// Calls to the poller so far, and those that returned no event.
    pub(crate) polls: u64,
    pub(crate) empty_polls: u64,
}

#[derive(Debug)]
pub(crate) struct Ledger {
    open_loop: bool,
    busy_poll: bool,
    lag_ns_max: u64,
    began: Effort,
    began_ns: u64,
    row_began: Effort,
    row_began_ns: u64,
    row_end_ns: u64,
    row: Counts,
    row_queued_max: u64,
    row_lag_max_ns: u64,
    row_latency: Recorder,
    /// Latencies that the generator may have changed.
    row_late: Recorder,
    rows: Vec<Row>,
    total: Counts,
    latency: Recorder,
    latency_invalid: Recorder,
    /// Whether the generator was at its limit in the last row that was closed.
    at_limit: bool,
}

impl Ledger {
    pub(crate) fn new(plan: &Plan, open_loop: bool, now_ns: u64, effort: Effort) -> Ledger {
        Ledger {
            open_loop,
            busy_poll: plan.busy_poll,
            lag_ns_max: u64::try_from(plan.lag_max.as_nanos()).unwrap_or(u64::MAX),
            began: effort,
            began_ns: now_ns,
            row_began: effort,
            row_began_ns: now_ns,
            row_end_ns: now_ns + ROW_NS,
            row: Counts::default(),
            row_queued_max: 0,
            row_lag_max_ns: 0,
            row_latency: Recorder::default(),
            row_late: Recorder::default(),
            rows: Vec::new(),
            total: Counts::default(),
            latency: Recorder::default(),
            latency_invalid: Recorder::default(),
            at_limit: false,
        }
    }

    /// When the current row ends.
    pub(crate) fn row_end_ns(&self) -> u64 {
        self.row_end_ns
    }

    /// All counts so far, including the current row.
    pub(crate) fn so_far(&self) -> Counts {
        let mut counts = self.total;
        counts.add(&self.row);
        counts
    }

    /// Counts a request whose intended start has come.
    #[inline]
    pub(crate) fn intended(&mut self) {
        self.row.intended += 1;
    }

    #[inline]
    pub(crate) fn started(&mut self) {
        self.row.started += 1;
    }

    /// A request that only the generator held up started `lag_ns` after its intended start.
    #[inline]
    pub(crate) fn lagged(&mut self, lag_ns: u64) {
        self.row_lag_max_ns = self.row_lag_max_ns.max(lag_ns);
        self.row.late_starts += u64::from(lag_ns > self.lag_ns_max);
    }

    /// The events of a turn have waited for the generator for so long.
    #[inline]
    pub(crate) fn turned(&mut self, lag_ns: u64) {
        self.row_lag_max_ns = self.row_lag_max_ns.max(lag_ns);
    }

    #[inline]
    pub(crate) fn queued(&mut self, waiting: usize) {
        self.row_queued_max = self.row_queued_max.max(waiting as u64);
    }

    /// A response is complete. Of its latency, `lag_ns` may be the generator's.
    #[inline]
    pub(crate) fn completed(&mut self, response: Complete, latency_ns: u64, lag_ns: u64) {
        self.row.completed += 1;
        self.row.body_bytes += response.body_bytes;
        match response.source {
            Source::Cache => self.row.hits += 1,
            Source::Origin => self.row.misses += 1,
            Source::Unknown => {}
        }
        let late = lag_ns > self.lag_ns_max && lag_ns.saturating_mul(LAG_PARTS_MIN) > latency_ns;
        if late { &mut self.row_late } else { &mut self.row_latency }.record(latency_ns);
    }

    pub(crate) fn failed(&mut self, kind: ErrorKind) {
        self.row.errors.count(kind);
    }

    pub(crate) fn connected(&mut self, resumed: bool) {
        self.row.connects += 1;
        self.row.resumed += u64::from(resumed);
    }

    pub(crate) fn cold_closed(&mut self) {
        self.row.cold_closed += 1;
    }

    /// The row that was closed last.
    pub(crate) fn last_row(&self) -> Option<&Row> {
        self.rows.last()
    }

    /// Closes the current row at `now_ns` and begins the next.
    pub(crate) fn close_row(&mut self, now_ns: u64, effort: Effort) {
        let length_ns = now_ns - self.row_began_ns;
        let cpu_ns = effort.cpu_ns - self.row_began.cpu_ns;
        let polls = effort.polls - self.row_began.polls;
        let empty = effort.empty_polls - self.row_began.empty_polls;
        let at_limit = if self.busy_poll {
            (empty as f64) < polls as f64 * EMPTY_POLLS_PART_MIN
        } else {
            cpu_ns as f64 > length_ns as f64 * BUSY_PART_MAX
        };
        // While the generator works without a pause, queued requests wait for the generator.
        let at_limit = self.open_loop && self.row_queued_max > 0 && at_limit;
        let behind =
            self.row_late.count() as f64 > LATE_PART_MAX * self.row.completed as f64 || at_limit;
        if at_limit {
            self.row_late.add(&self.row_latency);
            self.row_latency.clear();
        }
        let late = self.row_late.count();
        debug_assert_eq!(self.row_latency.count() + late, self.row.completed);
        let row = Row {
            index: self.rows.len() as u64,
            start_ns: self.row_began.wall_ns,
            length_ns,
            counts: self.row,
            queued_max: self.row_queued_max,
            lag_max_ns: self.row_lag_max_ns,
            behind,
            late,
            cpu_ns,
            latency: self.row_latency.latency(),
            latency_invalid: (late > 0).then(|| self.row_late.latency()),
        };
        self.absorb(at_limit);
        self.row_began = effort;
        self.row_began_ns = now_ns;
        while self.row_end_ns <= now_ns {
            self.row_end_ns += ROW_NS;
        }
        self.rows.push(row);
    }

    /// Adds the current row to the totals and clears it. If the generator was at its limit, no
    /// latency counts.
    fn absorb(&mut self, at_limit: bool) {
        self.at_limit = at_limit;
        let total = if at_limit { &mut self.latency_invalid } else { &mut self.latency };
        total.add(&self.row_latency);
        self.row_latency.clear();
        self.latency_invalid.add(&self.row_late);
        self.row_late.clear();
        self.total.add(&self.row);
        self.row = Counts::default();
        self.row_queued_max = 0;
        self.row_lag_max_ns = 0;
    }

    /// Makes the outcome. `end` is the effort when the last row was closed.
    pub(crate) fn finish(mut self, plan: &Plan, remaining: Remaining, end: Effort) -> Outcome {
        // Responses that arrived after the last row share its verdict.
        self.absorb(self.at_limit);
        let cpu_ns = end.cpu_ns - self.began.cpu_ns;
        let in_rows: u64 = self.rows.iter().map(|row| row.counts.completed).sum();
        Outcome {
            plan: plan.clone(),
            start_ns: self.began.wall_ns,
            length_ns: self.row_began_ns - self.began_ns,
            stopped: remaining.stopped,
            rows_behind: self.rows.iter().filter(|row| row.behind).count() as u64,
            rows: self.rows,
            counts: self.total,
            in_flight: remaining.in_flight,
            unstarted: remaining.unstarted,
            unstarted_waited_ns: remaining.unstarted_waited_ns,
            cold_open: remaining.cold_open,
            latency: self.latency.latency(),
            latency_invalid: self.latency_invalid.latency(),
            cpu_ns,
            cpu_per_request_us: if in_rows == 0 {
                0.0
            } else {
                cpu_ns as f64 / 1e3 / in_rows as f64
            },
            backend: remaining.backend,
        }
    }
}

/// What remains at the end of a run.
#[derive(Debug)]
pub(crate) struct Remaining {
    pub(crate) stopped: bool,
    pub(crate) in_flight: u64,
    pub(crate) unstarted: u64,
    pub(crate) unstarted_waited_ns: u64,
    pub(crate) cold_open: u64,
    pub(crate) backend: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Latency;
    use crate::schedule::{Arrivals, Schedule, Starts};
    use hdrhistogram::Histogram;
    use std::time::Duration;

    const MS: u64 = 1_000_000;
    const RATE: f64 = 1000.0;
    const CONNECTIONS: usize = 64;
    const SERVICE_NS: u64 = 10_000;
    const STALL: std::ops::Range<u64> = 3000 * MS..5000 * MS;
    const LENGTH: Duration = Duration::from_secs(8);

    fn intended() -> impl Iterator<Item = u64> {
        Starts::new(&Schedule::Constant(RATE), Arrivals::Deterministic, LENGTH, 1)
    }

    /// When a server that does one request after the other has done this one, which arrives at an
    /// instant. It does nothing while it is stalled.
    fn done_ns(arrives_ns: u64, free_ns: u64) -> u64 {
        let begins_ns = arrives_ns.max(free_ns);
        let begins_ns = if STALL.contains(&begins_ns) { STALL.end } else { begins_ns };
        begins_ns + SERVICE_NS
    }

    /// An open loop against that server. `lag_ns` is the generator's lag in each turn of up to
    /// `CONNECTIONS` responses, from the end of the stall to the end of its second.
    fn simulated(lag_ns: u64) -> Outcome {
        let target = "http://127.0.0.1:1/".parse().unwrap();
        let plan = Plan::new(target, Schedule::Constant(RATE), LENGTH);
        let at = |ns| Effort { cpu_ns: 0, wall_ns: ns as i64, polls: 0, empty_polls: 0 };
        let mut ledger = Ledger::new(&plan, true, 0, at(0));
        let (mut free_ns, mut after_stall) = (0, 0);
        for intended_ns in intended() {
            free_ns = done_ns(intended_ns, free_ns);
            while free_ns >= ledger.row_end_ns() {
                ledger.close_row(ledger.row_end_ns(), at(ledger.row_end_ns()));
            }
            let latency_ns = free_ns - intended_ns;
            let mut lag = 0;
            if (STALL.end..STALL.end + ROW_NS).contains(&free_ns) {
                // A request that has waited in the queue has waited for all turns before its own.
                let turns = 1 + after_stall / CONNECTIONS as u64;
                after_stall += 1;
                ledger.turned(lag_ns);
                lag = (turns * lag_ns).min(latency_ns + lag_ns);
            }
            ledger.intended();
            ledger.started();
            let response = Complete { source: Source::Unknown, body_bytes: 0 };
            ledger.completed(response, latency_ns + lag, lag);
        }
        let end_ns = LENGTH.as_nanos() as u64;
        ledger.close_row(end_ns, at(end_ns));
        let remaining = Remaining {
            stopped: false,
            in_flight: 0,
            unstarted: 0,
            unstarted_waited_ns: 0,
            cold_open: 0,
            backend: String::new(),
        };
        ledger.finish(&plan, remaining, at(end_ns))
    }

    /// What a generator finds that waits for each response before it sends the next request on the
    /// connection, after the correction of HdrHistogram (`recordValueWithExpectedInterval`), by
    /// which wrk2's is checked.
    fn corrected() -> Histogram<u64> {
        let mut found = Histogram::new_with_bounds(1, 3_600_000 * MS, 3).unwrap();
        let mut free_ns = [0; CONNECTIONS];
        let mut server_ns = 0;
        for (index, intended_ns) in intended().enumerate() {
            let free_ns = &mut free_ns[index % CONNECTIONS];
            if *free_ns <= intended_ns {
                server_ns = done_ns(intended_ns, server_ns);
                *free_ns = server_ns;
                let expected_ns = CONNECTIONS as u64 * 1_000 * MS / RATE as u64;
                found.record_correct(server_ns - intended_ns, expected_ns).unwrap();
            }
        }
        found
    }

    fn near(found: u64, expected: u64, percent: u64) -> bool {
        found.abs_diff(expected) * 100 <= expected * percent
    }

    #[test]
    fn a_stall_of_the_server_is_in_the_percentiles() {
        let outcome = simulated(0);
        assert_eq!((outcome.latency.count, outcome.latency_invalid.count), (8000, 0));
        // The k-th of the 2,000 requests of the stall is intended k ms after it begins, and done
        // k services after it ends. 800 requests took longer than the 90th percentile.
        let kth = |k: u64| 2000 * MS - k * MS + (k + 1) * SERVICE_NS;
        let Latency { p50_ns, p90_ns, p99_ns, p999_ns, max_ns, .. } = outcome.latency;
        assert!(near(p50_ns, SERVICE_NS, 1), "{p50_ns}");
        assert!(near(p90_ns, kth(800), 1), "{p90_ns}");
        assert!(near(p99_ns, kth(80), 1), "{p99_ns}");
        assert!(near(p999_ns, kth(8), 1), "{p999_ns}");
        assert_eq!(max_ns, kth(0));
        let corrected = corrected();
        assert!(near(corrected.len(), 8000, 2), "{}", corrected.len());
        for (quantile, found) in [(0.9, p90_ns), (0.99, p99_ns), (0.999, p999_ns)] {
            let other = corrected.value_at_quantile(quantile);
            assert!(near(found, other, 3), "{quantile}: {found}, corrected {other}");
        }
    }

    #[test]
    fn a_lag_of_milliseconds_does_not_disqualify_latencies_of_a_second() {
        let lag_ns = 3 * MS;
        let outcome = simulated(lag_ns);
        let (kept, left_out) = (&outcome.latency, &outcome.latency_invalid);
        assert_eq!((outcome.rows_behind, kept.count + left_out.count), (1, 8000));
        // In this second, a short latency is the generator's as much as the server's.
        let row = outcome.rows.iter().find(|row| row.behind).unwrap();
        assert_eq!((row.index, row.lag_max_ns, row.late), (5, lag_ns, left_out.count));
        assert!(left_out.count > 900 && left_out.max_ns < 500 * MS, "{left_out:?}");
        // Without the stall's requests, the 90th percentile would be 10 us.
        assert!((1200 * MS..1500 * MS).contains(&kept.p90_ns), "{}", kept.p90_ns);
        let all = outcome.all_latencies().unwrap();
        assert!(all.count == 8000 && near(all.p90_ns, 1250 * MS, 4), "{}", all.p90_ns);
        assert!(near(kept.max_ns, 2000 * MS, 1), "{}", kept.max_ns);
    }

    #[test]
    fn a_lag_longer_than_the_latency_disqualifies_it() {
        // The generator is the slower one: all that it delays is left out.
        let outcome = simulated(1000 * MS);
        assert_eq!(outcome.rows_behind, 1);
        assert_eq!((outcome.latency.count, outcome.latency.max_ns), (5000, SERVICE_NS));
    }
}
