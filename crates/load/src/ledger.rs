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
/// A row is invalid as a whole if more than this fraction of its latencies include a wait for the
/// generator.
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
    /// Latencies that include a wait for the generator.
    row_late: Recorder,
    rows: Vec<Row>,
    total: Counts,
    latency: Recorder,
    latency_invalid: Recorder,
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

    #[inline]
    pub(crate) fn queued(&mut self, waiting: usize) {
        self.row_queued_max = self.row_queued_max.max(waiting as u64);
    }

    #[inline]
    pub(crate) fn completed(&mut self, response: Complete, latency_ns: u64, late: bool) {
        self.row.completed += 1;
        self.row.body_bytes += response.body_bytes;
        match response.source {
            Source::Cache => self.row.hits += 1,
            Source::Origin => self.row.misses += 1,
            Source::Unknown => {}
        }
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
        let late = self.row_late.count();
        let behind = late as f64 > LATE_PART_MAX * self.row.completed as f64
            || (self.open_loop && self.row_queued_max > 0 && at_limit);
        if behind {
            // All latencies are in doubt, so they are reported together.
            self.row_latency.add(&self.row_late);
            self.row_late.clear();
        }
        let row = Row {
            index: self.rows.len() as u64,
            start_ns: self.row_began.wall_ns,
            length_ns,
            counts: self.row,
            queued_max: self.row_queued_max,
            lag_max_ns: self.row_lag_max_ns,
            behind,
            late: self.row_late.count(),
            cpu_ns,
            latency: self.row_latency.latency(),
        };
        self.absorb(behind);
        self.row_began = effort;
        self.row_began_ns = now_ns;
        while self.row_end_ns <= now_ns {
            self.row_end_ns += ROW_NS;
        }
        self.rows.push(row);
    }

    /// Adds the current row to the totals and clears it.
    fn absorb(&mut self, behind: bool) {
        let total = if behind { &mut self.latency_invalid } else { &mut self.latency };
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
        let last_behind = self.rows.last().is_some_and(|row| row.behind);
        self.absorb(last_behind);
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
