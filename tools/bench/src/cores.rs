//! What a second worker costs: CPU time per request with one and with two workers.
//!
//! Two CPUs carry everything, so a rate would measure the generators too. What counts is the CPU
//! time of the server per request, at the same rate of requests for each worker. For each worker,
//! each CPU has a generator with half of its requests, so that in all rows half of them cross from
//! one CPU to the other. One worker is measured alone, and as two processes with one worker each,
//! one on each CPU: these share the machine as two workers do, but no memory. The difference to two
//! workers is what workers of one process cost each other. The rate is a part of what two workers
//! manage beside their generators. Afterwards, with the generators as fast as they are answered,
//! the server counts how often a lock that its workers share was found held.

use std::process::Command;
use std::thread;
use std::time::Duration;

use harness::origin::OriginThread;
use load::{Outcome, Phase, Plan, Schedule, Size, Tick, family};
use serde::{Deserialize, Serialize};

use crate::measure::{Context, WARM};
use crate::process::Awake;
use crate::servers::{self, Ground, Kind, Running, Server};
use crate::table::{Spread, spread_text};

/// The name of the scenario.
pub(crate) const NAME: &str = "cores";
/// Workers and generators run on these.
const CPUS: [usize; 2] = [0, 1];
/// The part of the most that two workers manage which each worker gets.
const RATE_PART: f64 = 0.6;
/// Connections of each generator.
const CONNECTIONS: u32 = 16;
/// Visits that make a cell.
const PASSES: u32 = 4;
/// A cell has a note if the generators reached less than this part of their rate.
const REACHED_PART_MIN: f64 = 0.97;
const LOCKS_FOR: Duration = Duration::from_secs(2);
const PATHS: &[(&str, &str)] =
    &[("hit", "/obj/1?size=1024"), ("miss", "/obj/2?size=1024&cc=no-store")];

/// The processes of a run.
const SERVERS: &[Server] = &[server("one", 1, 0), server("other", 1, 1), server("two", 2, 0)];
/// Rows: a name, and the process of each worker.
const ROWS: &[(&str, &[usize])] =
    &[("1 worker", &[0]), ("1 worker in each of 2 processes", &[0, 1]), ("2 workers", &[2, 2])];

const fn server(name: &'static str, workers: usize, cpu: usize) -> Server {
    servers::in_memory(name, Kind::PlimsollCores { workers, cpu })
}

/// All rounds of one kind of request.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cores {
    pub(crate) path: &'static str,
    /// Requests per second of each worker.
    pub(crate) rate: f64,
    pub(crate) rows: Vec<Row>,
    /// Those that two workers used.
    pub(crate) locks: Vec<Lock>,
}

/// All rounds of one row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) workers: &'static str,
    /// CPU time per request, microseconds, by round.
    pub(crate) cpu_us: Vec<f64>,
    pub(crate) note: Option<String>,
}

/// How a lock was used.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Lock {
    pub(crate) lock: String,
    pub(crate) attempts: u64,
    /// Attempts that found it held, percent.
    pub(crate) contention_percent: f64,
}

#[derive(Deserialize)]
struct Locks {
    locks: Vec<Lock>,
}

/// What the requests of a visit cost.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    /// The share of one CPU that the server used.
    cpu: f64,
    /// Requests per second.
    rate: f64,
}

pub(crate) fn run(context: &Context<'_>) -> Result<Vec<Cores>, String> {
    if thread::available_parallelism().map_or(1, usize::from) < CPUS.len() {
        return Err(format!("{NAME} needs {} CPUs", CPUS.len()));
    }
    // Not on one CPU, which would have more work than the other.
    let origin = OriginThread::start(None)?;
    let ground = &Ground { origin: origin.address(), ..*context.ground };
    let servers = SERVERS.iter().map(|server| server.start(ground, 0));
    let bench = Bench { context, servers: servers.collect::<Result<_, _>>()? };
    let _awake = Awake::keep(&CPUS);
    let results = PATHS.iter().map(|(name, path)| bench.path(name, path)).collect();
    drop(bench);
    origin.stop()?;
    results
}

struct Bench<'b> {
    context: &'b Context<'b>,
    servers: Vec<Running>,
}

impl Bench<'_> {
    fn path(&self, name: &'static str, path: &str) -> Result<Cores, String> {
        let (_, both) = ROWS[2];
        let most = self.visit(both, path, Schedule::ClosedLoop, WARM * 5)?;
        let rate = RATE_PART * most.rate / both.len() as f64;
        eprintln!("{NAME} {name}: at most {:.0}/s, so {rate:.0}/s for each worker", most.rate);
        let empty = |workers| Row { workers, cpu_us: Vec::new(), note: None };
        let mut rows: Vec<Row> = ROWS.iter().map(|(name, _)| empty(*name)).collect();
        for round in 1..=self.context.rounds {
            let mut sums = [Spent::default(); ROWS.len()];
            for _ in 0..PASSES {
                for ((_, workers), sum) in ROWS.iter().zip(&mut sums) {
                    self.context.check_stop()?;
                    let schedule = Schedule::Constant(rate / CPUS.len() as f64);
                    let length = self.context.pace.measured / PASSES;
                    let spent = self.visit(workers, path, schedule, length)?;
                    (sum.cpu, sum.rate) = (sum.cpu + spent.cpu, sum.rate + spent.rate);
                }
            }
            for ((row, sum), (_, workers)) in rows.iter_mut().zip(sums).zip(ROWS) {
                row.cpu_us.push(1e6 * sum.cpu / sum.rate);
                let reached = sum.rate / (f64::from(PASSES) * rate * workers.len() as f64);
                if reached < REACHED_PART_MIN {
                    let part = 100.0 * reached;
                    row.note = Some(format!("{part:.0} % of the rate in a round"));
                }
            }
            let of = self.context.rounds;
            let shown: Vec<_> = rows.iter().filter_map(|row| row.cpu_us.last()).collect();
            eprintln!("round {round}/{of} {NAME} {name}: {shown:.2?} us");
        }
        let locks = thread::scope(|scope| {
            let length = LOCKS_FOR + WARM * 2;
            let load = scope.spawn(move || self.visit(both, path, Schedule::ClosedLoop, length));
            thread::sleep(WARM);
            let locks = self.locks(&self.servers[both[0]]);
            load.join().map_err(|_| "a generator's thread panicked".to_owned())??;
            locks
        })?;
        Ok(Cores { path: name, rate, rows, locks })
    }

    /// Runs the generators of these workers for a while.
    fn visit(
        &self,
        workers: &[usize],
        path: &str,
        schedule: Schedule,
        length: Duration,
    ) -> Result<Spent, String> {
        let family = |at: &usize| self.servers[*at].process.family();
        let mut processes: Vec<i32> = workers.iter().flat_map(family).collect();
        // Two workers may be one process.
        processes.sort_unstable();
        processes.dedup();
        let processes = &processes[..];
        let mut plans = Vec::new();
        for (worker, at) in workers.iter().enumerate() {
            for cpu in CPUS {
                let target = format!("http://{}{path}", self.servers[*at].addr);
                let target = target.parse().map_err(|e| format!("{e}"))?;
                let mut plan = Plan::new(target, schedule.clone(), WARM + length);
                plan.connections = CONNECTIONS;
                plan.population.objects = 1;
                plan.population.size = Size::Fixed { bytes: 1024 };
                plan.count_hits = false;
                plan.seed = (worker * CPUS.len() + cpu) as u64;
                plan.pin_cpu = Some(cpu);
                plans.push(plan);
            }
        }
        let visits: Vec<Result<Spent, String>> = thread::scope(|scope| {
            let start = |plan| scope.spawn(move || self.generate(plan, processes));
            let running: Vec<_> = plans.iter().map(start).collect();
            let panicked = |_| Err("a generator's thread panicked".to_owned());
            running.into_iter().map(|visit| visit.join().unwrap_or_else(panicked)).collect()
        });
        let visits = visits.into_iter().collect::<Result<Vec<Spent>, String>>()?;
        let cpu = visits.iter().map(|visit| visit.cpu).sum::<f64>() / visits.len() as f64;
        Ok(Spent { cpu, rate: visits.iter().map(|visit| visit.rate).sum() })
    }

    /// Runs one generator. All of them see the CPU time of all processes.
    fn generate(&self, plan: &Plan, processes: &[i32]) -> Result<Spent, String> {
        let (mut from, mut to) = (None, (Duration::ZERO, 0, 0));
        let mut look = |tick: &Tick<'_>| {
            if tick.phase == Phase::Running {
                to = (tick.elapsed, family::cpu_ns(processes), tick.counts.completed);
                if from.is_none() && tick.elapsed >= WARM {
                    from = Some(to);
                }
            }
        };
        let outcome: Outcome =
            load::run(plan, self.context.stop, &mut look).map_err(|e| e.to_string())?;
        let failed = outcome.counts.errors.total();
        let (began, cpu_ns, completed) = from.ok_or("stopped")?;
        if failed > 0 {
            return Err(format!("{failed} requests failed"));
        }
        let length_s = (to.0 - began).as_secs_f64();
        Ok(Spent {
            cpu: (to.1 - cpu_ns) as f64 / 1e9 / length_s,
            rate: (to.2 - completed) as f64 / length_s,
        })
    }

    /// Has the server count its locks.
    fn locks(&self, running: &Running) -> Result<Vec<Lock>, String> {
        let admin = running.admin.ok_or("no admin address")?.to_string();
        let seconds = format!("{}s", LOCKS_FOR.as_secs());
        let mut command = Command::new(self.context.ground.plimsoll);
        command.args(["locks", "--json", "--for", &seconds, "--admin", &admin]);
        let output = command.output().map_err(|e| format!("plimsoll locks: {e}"))?;
        let answer: Locks = serde_json::from_slice(&output.stdout).map_err(|e| {
            format!("plimsoll locks: {e}: {}", String::from_utf8_lossy(&output.stderr))
        })?;
        Ok(answer.locks.into_iter().filter(|lock| lock.attempts > 0).collect())
    }
}

/// The rows as tables.
pub(crate) fn tables(results: &[Cores]) -> String {
    let header =
        ["requests", "workers", "CPU us per request", "x 1 worker", "x 2 processes", "note"];
    let mut rows = crate::table::plain(&header);
    let mut locks = crate::table::plain(&["requests", "lock", "attempts/s", "contention %", ""]);
    for result in results {
        let [one, two, _] = &result.rows[..] else { continue };
        for row in &result.rows {
            let to = |other: &Row| {
                let pairs = row.cpu_us.iter().zip(&other.cpu_us);
                spread_text(pairs.map(|(own, other)| own / other), 3)
            };
            rows.add_row(vec![
                format!("{}, {:.0}/s each worker", result.path, result.rate),
                row.workers.to_owned(),
                Spread::of(row.cpu_us.iter().copied()).map_or("-".to_owned(), |s| s.to_string()),
                to(one),
                to(two),
                row.note.clone().unwrap_or_default(),
            ]);
        }
        for lock in &result.locks {
            locks.add_row(vec![
                result.path.to_owned(),
                lock.lock.clone(),
                format!("{:.0}", lock.attempts as f64 / LOCKS_FOR.as_secs_f64()),
                format!("{:.2}", lock.contention_percent),
                String::new(),
            ]);
        }
    }
    format!("{rows}\n\nlocks that 2 workers share, at the most they manage\n{locks}")
}
