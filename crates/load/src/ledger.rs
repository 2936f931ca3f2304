//! The counting of a run: what happened in this second, and in all.
//!
//! What: counters and one histogram for the row under way, closed into `Row`s and summed into the
//! outcome's totals. Why apart: the loop calls one small function for each thing that happens, and
//! whether a row is valid is decided in one place. What never happens: a look at the clock (`now`
//! is an argument); a request counted twice.

use crate::outcome::{Counts, ErrorKind, Outcome, Recorder, Row};
use crate::plan::Plan;
use crate::response::{Came, Whole};

/// How long a row is, ns.
const ROW_NS: u64 = 1_000_000_000;
/// A row in which more than this part of the latencies hold a wait for the generator is not valid
/// as a whole.
const LATE_PART_MAX: f64 = 0.01;
/// A generator that sleeps is at its limit when it uses more of the row than this.
const BUSY_PART_MAX: f64 = 0.97;
/// A generator that busy-polls is at its limit when fewer of its looks than this find nothing.
const EMPTY_LOOKS_PART_MIN: f64 = 0.01;

/// What the loop knows about itself at the end of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// CPU time of this thread so far, ns.
    pub(crate) cpu_ns: u64,
    /// The wall clock, ns since the epoch.
    pub(crate) wall_ns: i64,
    /// Looks at the poller so far, and those that found nothing.
    pub(crate) looks: u64,
    pub(crate) empty_looks: u64,
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
    /// Latencies that hold a wait for the generator.
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

    /// When the row under way ends.
    pub(crate) fn row_end_ns(&self) -> u64 {
        self.row_end_ns
    }

    /// All counts so far, the row under way included.
    pub(crate) fn so_far(&self) -> Counts {
        let mut counts = self.total;
        counts.add(&self.row);
        counts
    }

    /// The requests counted as `intended` begin at an instant of the schedule.
    #[inline]
    pub(crate) fn intended(&mut self) {
        self.row.intended += 1;
    }

    #[inline]
    pub(crate) fn started(&mut self) {
        self.row.started += 1;
    }

    /// A request whose start was up to the generator alone came `lag_ns` after its instant.
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
    pub(crate) fn completed(&mut self, whole: Whole, latency_ns: u64, late: bool) {
        self.row.completed += 1;
        self.row.body_bytes += whole.body_bytes;
        match whole.came {
            Came::FromCache => self.row.hits += 1,
            Came::FromOrigin => self.row.misses += 1,
            Came::Untold => {}
        }
        if late { &mut self.row_late } else { &mut self.row_latency }.record(latency_ns);
    }

    pub(crate) fn failed(&mut self, kind: ErrorKind) {
        self.row.errors.count(kind);
    }

    pub(crate) fn connected(&mut self) {
        self.row.connects += 1;
    }

    pub(crate) fn cold_closed(&mut self) {
        self.row.cold_closed += 1;
    }

    /// The row that ended last.
    pub(crate) fn last_row(&self) -> Option<&Row> {
        self.rows.last()
    }

    /// Ends the row under way at `now_ns` and begins the next.
    pub(crate) fn close_row(&mut self, now_ns: u64, effort: Effort) {
        let length_ns = now_ns - self.row_began_ns;
        let cpu_ns = effort.cpu_ns - self.row_began.cpu_ns;
        let looks = effort.looks - self.row_began.looks;
        let empty = effort.empty_looks - self.row_began.empty_looks;
        let at_limit = if self.busy_poll {
            (empty as f64) < looks as f64 * EMPTY_LOOKS_PART_MIN
        } else {
            cpu_ns as f64 > length_ns as f64 * BUSY_PART_MAX
        };
        // Requests that wait while the generator works without a pause wait for the generator.
        let late = self.row_late.count();
        let behind = late as f64 > LATE_PART_MAX * self.row.completed as f64
            || (self.open_loop && self.row_queued_max > 0 && at_limit);
        if behind {
            // Then all are in doubt, and shown together.
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

    /// Adds the row under way to the totals and clears it.
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

    /// Makes the outcome; `end` is the effort when the last row was closed.
    pub(crate) fn finish(mut self, plan: &Plan, left: Left, end: Effort) -> Outcome {
        // What came in after the last row has its fate.
        let last_behind = self.rows.last().is_some_and(|row| row.behind);
        self.absorb(last_behind);
        let cpu_ns = end.cpu_ns - self.began.cpu_ns;
        let in_rows: u64 = self.rows.iter().map(|row| row.counts.completed).sum();
        Outcome {
            plan: plan.clone(),
            start_ns: self.began.wall_ns,
            length_ns: self.row_began_ns - self.began_ns,
            stopped: left.stopped,
            rows_behind: self.rows.iter().filter(|row| row.behind).count() as u64,
            rows: self.rows,
            counts: self.total,
            in_flight: left.in_flight,
            unstarted: left.unstarted,
            unstarted_waited_ns: left.unstarted_waited_ns,
            cold_open: left.cold_open,
            latency: self.latency.latency(),
            latency_invalid: self.latency_invalid.latency(),
            cpu_ns,
            cpu_per_request_us: if in_rows == 0 {
                0.0
            } else {
                cpu_ns as f64 / 1e3 / in_rows as f64
            },
            backend: left.backend,
        }
    }
}

/// What was left over at the end of a run.
#[derive(Debug)]
pub(crate) struct Left {
    pub(crate) stopped: bool,
    pub(crate) in_flight: u64,
    pub(crate) unstarted: u64,
    pub(crate) unstarted_waited_ns: u64,
    pub(crate) cold_open: u64,
    pub(crate) backend: String,
}
