//! How much disk writes slow down hits in memory.
//!
//! One object is requested at a steady rate, alone and during misses of 1 MB at a steady rate. The
//! figures are the 99th percentile of the latency of the hits and the ratio of the two, per round.
//! There are three rows, because passing misses on slows hits down by itself: our server without a
//! disk shows that part of the ratio, our server with one shows the whole, and nginx, which also
//! writes bodies to disk, is a comparison. The generator of the hits shares its CPU with the origin
//! and the generator of the misses, so it has real-time priority, and both CPUs are kept awake,
//! with and without misses. Latencies caused by the generator are not counted. The amount written
//! is shown, so that a row without writes is noticed.

use std::thread;
use std::time::{Duration, Instant};

use load::{Outcome, Plan, Schedule, Size, family};
use serde::Serialize;

use crate::client::HOST;
use crate::generators;
use crate::measure::Context;
use crate::process::{self, Awake};
use crate::servers::{BESIDE_WRITES, Running};
use crate::table::{self, Column, Rounds, spread_text};

/// The name of the scenario.
pub(crate) const NAME: &str = "beside_writes";
const HITS_PER_S: f64 = 3000.0;
const HIT: &str = "/obj/1?size=1024";
const MISS: &str = "/obj/{n}?size=1048576";
const MISS_BYTES: u64 = 1 << 20;
/// So many that hardly any is requested twice.
const MISSES: u32 = 1 << 24;
const MISS_CONNECTIONS: u32 = 16;
/// How long writes go on before hits are measured.
const WRITES_FIRST: Duration = Duration::from_secs(1);

/// One round of one server.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Round {
    pub(crate) alone_p99_us: f64,
    pub(crate) beside_p99_us: f64,
    /// Median during the misses.
    pub(crate) beside_p50_us: f64,
    /// Answered misses, MB/s.
    pub(crate) missed_mb_s: f64,
    /// Bytes written to disk by the server, MB/s.
    pub(crate) written_mb_s: f64,
    /// The share of its CPU that the server used during the misses.
    pub(crate) utilisation: f64,
    /// The share of hits whose latency was caused by the generator; the larger of the two.
    pub(crate) invalid: f64,
}

/// The measurement.
#[derive(Debug)]
pub(crate) struct Bench<'b> {
    pub(crate) context: &'b Context<'b>,
    /// Misses, MB/s.
    pub(crate) mb_per_s: f64,
}

impl Bench<'_> {
    pub(crate) fn run(&self) -> Result<Vec<Rounds<Round>>, String> {
        let started = BESIDE_WRITES.iter().map(|server| server.start(self.context.ground, 0));
        let running: Vec<Result<Running, String>> = started.collect();
        let mut rows: Vec<_> =
            BESIDE_WRITES.iter().map(|server| Rounds::none_yet(server.name)).collect();
        for (row, running) in rows.iter_mut().zip(&running) {
            row.note = running.as_ref().err().cloned();
        }
        let _awake = Awake::keep(&[self.context.ground.cpu, self.context.pace.cpu]);
        table::in_rounds(self.context, NAME, &mut rows, |at, round| {
            Some(self.round(running[at].as_ref().ok()?, round))
        })?;
        Ok(rows)
    }

    fn round(&self, running: &Running, round: u32) -> Result<Round, String> {
        let alone = self.hits(running)?;
        let misses = self.misses(running, round)?;
        let family = running.process.family();
        let (beside, missed, took) = thread::scope(|scope| {
            let missing = scope.spawn(|| load::run(&misses, self.context.stop, &mut |_| ()));
            thread::sleep(WRITES_FIRST);
            let (cpu, written) = (family::cpu_ns(&family), process::written_bytes(&family));
            let began = Instant::now();
            let beside = self.hits(running);
            let length_s = began.elapsed().as_secs_f64();
            let cpu = (family::cpu_ns(&family) - cpu) as f64 / 1e9 / length_s;
            let written = process::written_bytes(&family) - written;
            let missed = missing.join().map_err(|_| "the misses' thread panicked".to_owned());
            (beside, missed, (cpu, written as f64 / 1e6 / length_s))
        });
        let missed = missed?.map_err(|e| e.to_string())?;
        let (beside, (utilisation, written_mb_s)) = (beside?, took);
        let invalid = |of: &Outcome| {
            let all = of.latency.count + of.latency_invalid.count;
            of.latency_invalid.count as f64 / all.max(1) as f64
        };
        if alone.latency.count == 0 || beside.latency.count == 0 {
            return Err(
                "the generator fell behind in a round, so that the round does not count".to_owned()
            );
        }
        let us = |ns: u64| ns as f64 / 1e3;
        Ok(Round {
            alone_p99_us: us(alone.latency.p99_ns),
            beside_p99_us: us(beside.latency.p99_ns),
            beside_p50_us: us(beside.latency.p50_ns),
            missed_mb_s: missed.rate() * MISS_BYTES as f64 / 1e6,
            written_mb_s,
            utilisation,
            invalid: invalid(&alone).max(invalid(&beside)),
        })
    }

    fn hits(&self, running: &Running) -> Result<Outcome, String> {
        let plan = self.plan(running, HIT, HITS_PER_S, self.context.pace.measured)?;
        generators::ahead(&plan, self.context.stop, process::real_time)
    }

    /// The misses, before and while hits are measured.
    fn misses(&self, running: &Running, round: u32) -> Result<Plan, String> {
        let per_s = self.mb_per_s * 1e6 / MISS_BYTES as f64;
        let length = WRITES_FIRST + self.context.pace.measured;
        let mut plan = self.plan(running, MISS, per_s, length)?;
        plan.connections = MISS_CONNECTIONS;
        plan.population.objects = MISSES;
        plan.population.size = Size::Fixed { bytes: MISS_BYTES };
        plan.seed = u64::from(round) + 1;
        Ok(plan)
    }

    fn plan(
        &self,
        running: &Running,
        path: &str,
        per_s: f64,
        length: Duration,
    ) -> Result<Plan, String> {
        let target = format!("http://{}{path}", running.addr);
        let mut target: load::Target = target.parse().map_err(|e| format!("{e}"))?;
        HOST.clone_into(&mut target.authority);
        let mut plan = Plan::new(target, Schedule::Constant(per_s), length);
        plan.count_hits = false;
        plan.pin_cpu = Some(self.context.pace.cpu);
        Ok(plan)
    }
}

/// The columns of the table.
const COLUMNS: &[Column<Round>] = &[
    ("p99 alone, us", |round| round.alone_p99_us, 0),
    ("p99 during misses, us", |round| round.beside_p99_us, 0),
    ("ratio", |round| round.beside_p99_us / round.alone_p99_us, 2),
    ("misses, MB/s", |round| round.missed_mb_s, 0),
    ("written, MB/s", |round| round.written_mb_s, 0),
    ("CPU used, %", |round| 100.0 * round.utilisation, 0),
    ("not counted, %", |round| 100.0 * round.invalid, 1),
];

/// The rows as a table.
pub(crate) fn table(rows: &[Rounds<Round>]) -> comfy_table::Table {
    // Ratios within a round: both contain the cost of the misses themselves.
    let without = rows.first().map(|row| &row.rounds[..]).unwrap_or_default();
    let to_without = |row: &Rounds<Round>| {
        let whole = row.rounds.len() == without.len();
        let pairs = row.rounds.iter().zip(without).filter(|_| whole);
        spread_text(pairs.map(|(of, without)| of.beside_p99_us / without.beside_p99_us), 2)
    };
    let to_without = rows.iter().map(to_without).collect();
    table::of_rounds(rows, COLUMNS, &[("x p99 without a disk", to_without)])
}
