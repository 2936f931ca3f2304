//! `plimsoll switchback`: compares two servers or settings that alternate under one load.
//!
//! ```text
//! round 1: A B   round 2: B A   round 3: A B   ...
//! a period: run its command -> settle -> measure -> (end a server)
//! ```
//!
//! A command that exits is taken to have changed a setting of the server that `--name` or `--pid`
//! names. A command that keeps running is a server, which is ended with its period. Without
//! `--name` and `--pid` the command must keep running, because it is the observed server.
//!
//! Either the server has a load already, which its log or counter counts; or this process generates
//! the load, the same in each period, and compares latencies too. CPU time and requests come from
//! the recorder, which writes a temporary trial for each period. [`regress::switchback`] does the
//! statistics. With `--hold` the server is held now and then, and what a request costs at
//! saturation is compared, too, by turns and by what follows holds: on a quiet CPU a change is a
//! small part of what a request costs.
//!
//! However it ends, no server of a period is left running, and settings are as A's command left
//! them.

mod command;
mod show;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::command::failure::{Failure, misuse};
use ::command::scratch::Scratch;
use ::command::stop_on_signal;
use ::load::{Outcome, Plan};
use ::record::{HoldsMade, Target};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use regress::{ByKind, Switchback, SwitchbackTerms, SwitchbackVerdict};
use serde::Serialize;
use trial::Trial;

use self::command::StartedCommand;
use crate::{cli, join, output, progress};

/// The measured part of a period is at least this long.
const MEASURED_MIN: Duration = Duration::from_secs(1);

/// The measured part of a period has at least this many intervals of the recorder. None is longer
/// than a second.
const INTERVALS_MIN: u32 = 10;

/// The load continues this long after the measured part, so that all of that is under load.
const LOAD_AFTER: Duration = Duration::from_millis(500);

/// If the rates differ by more than this, the two did not have the same load.
const RATES_DIFFER: f64 = 0.05;

/// A larger share of failed requests than this is reported.
const ERRORS_MAX: f64 = 0.001;

/// The level of the intervals, if the cost at this load is all that decides.
const LEVEL: f64 = 0.95;

/// The level if two costs decide: a false alarm of either is half as probable (Bonferroni).
const LEVEL_OF_TWO: f64 = 0.975;

const _: () = assert!(2.0 * (1.0 - LEVEL_OF_TWO) <= 1.0 - LEVEL + 1e-9);

/// With fewer requests that wait for the end of a hold, what follows it is no catching up: a
/// request that waits alone costs as much as without a hold.
const WAITING_MIN: f64 = 9.0;

/// Seed of the permutation and of the load's arrivals.
const SEED: u64 = 1998;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Which {
    A,
    B,
}

/// The measurement of a period.
#[derive(Clone, Debug, Serialize)]
struct Period {
    /// CPU time of the server, seconds.
    cpu_s: f64,
    requests: f64,
    /// Duration of the measurement.
    seconds: f64,
    us_per_request: f64,
    /// The same at saturation, CPU seconds, if there were to be holds. Their kind is missing if too
    /// few requests had to wait.
    at_saturation: Option<ByKind>,
    /// The holds, if there were to be any.
    holds: Option<HoldsMade>,
    /// Requests per second.
    rate: f64,
    /// Failed requests, if this process generated the load.
    errors: Option<u64>,
    /// Latencies, microseconds, if this process generated the load.
    median_us: Option<f64>,
    p99_us: Option<f64>,
}

/// The recording of a period, and the holds.
type Recorded = (Trial, Option<HoldsMade>);

/// A period of A and one of B.
#[derive(Clone, Debug, Serialize)]
struct Round {
    number: usize,
    first: Which,
    a: Period,
    b: Period,
    /// CPU time per request, B over A.
    ratio: f64,
    /// The same at saturation, by the kinds of evidence that both have.
    ratio_at_saturation: Option<f64>,
}

/// The whole result.
#[derive(Debug, Serialize)]
struct Found {
    a: String,
    b: String,
    period_s: f64,
    settle_s: f64,
    rounds_planned: usize,
    rounds: Vec<Round>,
    /// What both costs show together.
    verdict: SwitchbackVerdict,
    /// CPU time per request.
    cost: Switchback,
    /// CPU time per request at saturation, with holds.
    at_saturation: Option<Switchback>,
    /// Median latency, if this process generated the load.
    median: Option<Switchback>,
    /// 99th percentile of latency, if this process generated the load.
    p99: Option<Switchback>,
    why: String,
    remarks: Vec<String>,
}

/// Runs the rounds and prints the result.
pub(crate) fn switchback(flags: &cli::Switchback) -> Result<(), Failure> {
    let experiment = Experiment::new(flags)?;
    let stop = stop_on_signal()?;
    let rounds = experiment.run(&stop)?;
    let found = experiment.found(rounds)?;
    output::show(flags.json, &found, show::text)?;
    match found.verdict {
        SwitchbackVerdict::Less | SwitchbackVerdict::NoChange => Ok(()),
        SwitchbackVerdict::More => {
            Err(Failure::CheckFailed(format!("B costs more: {}", found.why)))
        }
        SwitchbackVerdict::Inconclusive => Err(misuse(format!("inconclusive: {}", found.why))),
    }
}

struct Experiment<'a> {
    flags: &'a cli::Switchback,
    /// The observed server, if it runs already.
    target: Option<Target>,
    /// The load to generate in each period.
    plan: Option<Plan>,
    measured: Duration,
    interval: Duration,
    bar: ProgressBar,
    /// Whether the user knows what holds do.
    said: Cell<bool>,
}

impl<'a> Experiment<'a> {
    fn new(flags: &'a cli::Switchback) -> Result<Experiment<'a>, Failure> {
        let measured = flags.period.checked_sub(flags.settle).unwrap_or_default();
        if measured < MEASURED_MIN {
            return Err(misuse(format!(
                "of a period of {:?}, the first {:?} are not measured, which leaves less than \
                 {:?}; try a longer --period or a shorter --settle",
                flags.period, flags.settle, MEASURED_MIN
            )));
        }
        if !(flags.margin > 0.0 && flags.margin < 100.0) {
            return Err(misuse("--margin must be between 0 and 100 %"));
        }
        let of_period = |why| misuse(format!("of each period, {why}"));
        flags.holds.spec(Some(measured)).map_err(of_period)?;
        let target = flags.observed.target();
        let plan = match (&flags.url, &flags.rate) {
            (Some(url), Some(rate)) => {
                let target = url.parse().map_err(misuse)?;
                let mut plan = Plan::new(target, rate.clone(), flags.period + LOAD_AFTER);
                (plan.connections, plan.seed) = (flags.connections, SEED);
                plan.check().map_err(misuse)?;
                Some(plan)
            }
            _ => None,
        };
        let interval =
            (measured / INTERVALS_MIN).clamp(::record::INTERVAL_MIN, Duration::from_secs(1));
        let bar = progress::bar(ProgressBar::new_spinner(), "{elapsed} {msg}", flags.json);
        let said = Cell::new(false);
        Ok(Experiment { flags, target, plan, measured, interval, bar, said })
    }

    /// Runs all rounds. If the user stops it, returns the complete ones.
    fn run(&self, stop: &AtomicBool) -> Result<Vec<Round>, Failure> {
        let mut rounds = Vec::new();
        let mut in_force = None;
        let mut all = || -> Result<(), Failure> {
            for number in 1..=self.flags.rounds {
                match self.round(number, &mut in_force, stop)? {
                    Some(round) => rounds.push(round),
                    None => break,
                }
            }
            Ok(())
        };
        let done = all();
        self.bar.finish_and_clear();
        // Restore the setting of A, which an even number of rounds would also end with.
        if in_force == Some(Which::B) {
            StartedCommand::new(&self.flags.a)?.wait(self.flags.settle, &AtomicBool::new(false))?;
        }
        done.map(|()| rounds)
    }

    /// Runs a round; `None` if the user stopped it. `in_force` is whose setting the server has.
    fn round(
        &self,
        number: usize,
        in_force: &mut Option<Which>,
        stop: &AtomicBool,
    ) -> Result<Option<Round>, Failure> {
        let order = if number % 2 == 1 { [Which::A, Which::B] } else { [Which::B, Which::A] };
        let mut periods = Vec::with_capacity(2);
        for which in order {
            let label = format!("round {number} of {}, {which:?}", self.flags.rounds);
            match self.period(which, &label, in_force, stop)? {
                Some(period) => periods.push(period),
                None => return Ok(None),
            }
        }
        let second = periods.pop().expect("a round has two periods");
        let first = periods.pop().expect("a round has two periods");
        let (a, b) = if order[0] == Which::A { (first, second) } else { (second, first) };
        let ratio = b.us_per_request / a.us_per_request;
        let change = b.at_saturation.zip(a.at_saturation).and_then(|(b, a)| b.over(&a));
        let ratio_at_saturation = change.map(|(change, _)| change.exp());
        Ok(Some(Round { number, first: order[0], a, b, ratio, ratio_at_saturation }))
    }

    fn period(
        &self,
        which: Which,
        label: &str,
        in_force: &mut Option<Which>,
        stop: &AtomicBool,
    ) -> Result<Option<Period>, Failure> {
        self.bar.set_message(format!("{label}: starting its command"));
        self.bar.tick();
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let text = if which == Which::A { &self.flags.a } else { &self.flags.b };
        let mut started = StartedCommand::new(text)?;
        // The command may change the setting at once, even if it fails afterwards.
        *in_force = self.target.as_ref().map(|_| which);
        let settled = Instant::now() + self.flags.settle;
        if let Some(plan) = &self.plan {
            started.wait_for_server(plan.target.addr, stop)?;
        }
        let measured = match &self.plan {
            Some(plan) => self.measure_with_load(plan, &mut started, label, stop),
            None => {
                let left = settled.saturating_duration_since(Instant::now());
                self.bar.set_message(format!("{label}: settling"));
                pause(left, stop);
                self.record(&mut started, label, stop).map(|trial| (trial, None))
            }
        };
        let (recorded, outcome) = measured?;
        if started.is_running()? {
            // It is a server, which ends now; there is no setting to restore.
            *in_force = None;
        }
        drop(started);
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        period_of(recorded, outcome.as_ref(), label).map(Some)
    }

    /// Generates the load, and records once the server has settled.
    fn measure_with_load(
        &self,
        plan: &Plan,
        started: &mut StartedCommand,
        label: &str,
        stop: &AtomicBool,
    ) -> Result<(Recorded, Option<Outcome>), Failure> {
        // Ends the load if the recording fails.
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let load = scope.spawn(|| ::load::run(plan, &over, &mut |_| {}));
            pause(self.flags.settle, stop);
            let recorded = self.record(started, label, stop);
            if recorded.is_err() || stop.load(Ordering::Relaxed) {
                over.store(true, Ordering::Relaxed);
            }
            let outcome = load.join().map_err(|_| misuse("the load generator panicked"))?;
            Ok((recorded?, Some(outcome.map_err(misuse)?)))
        })
    }

    /// Records the measured part of a period.
    fn record(
        &self,
        started: &mut StartedCommand,
        label: &str,
        stop: &AtomicBool,
    ) -> Result<Recorded, Failure> {
        let target = match &self.target {
            Some(target) => target.clone(),
            None if started.is_running()? => Target::Pid(started.pid()),
            None => {
                let why = "it exited, but without --name and --pid it must be a running server";
                return Err(started.failed(why));
            }
        };
        let flags = self.flags;
        let home = Scratch::new("switchback")?;
        let file = home.path().join("period.trial");
        let mut spec = flags.observed.spec(target, file.clone());
        // Our own load counts the requests itself.
        spec.sockets &= flags.url.is_none();
        (spec.interval, spec.duration) = (self.interval, Some(self.measured));
        (spec.profile, spec.overwrite) = (None, true);
        spec.hold = flags.holds.spec(None).map_err(misuse)?;
        if let Some(hold) = spec.hold.as_ref().filter(|_| !self.said.replace(true)) {
            let said = ::record::how_to_hold(&spec.target, hold).map_err(misuse)?;
            self.bar.suspend(|| eprintln!("plimsoll: {said}"));
        }
        self.bar.set_message(format!("{label}: measuring"));
        let summary = ::record::record(&spec, stop, &mut |_| self.bar.tick()).map_err(misuse)?;
        if spec.hold.is_some() && summary.holds.is_none() {
            let why = summary.notes.iter().find(|note| note.starts_with("the server was not held"));
            let why = why.map_or("the server was not held", String::as_str);
            return Err(misuse(format!("{label}: {why}")));
        }
        Ok((Trial::open(&file).map_err(misuse)?, summary.holds))
    }

    fn found(&self, rounds: Vec<Round>) -> Result<Found, Failure> {
        let flags = self.flags;
        let margin = flags.margin / 100.0;
        let level = if flags.holds.hold.is_some() { LEVEL_OF_TWO } else { LEVEL };
        let terms = SwitchbackTerms { level, margin, seed: SEED };
        let of = |figure: fn(&Period) -> Option<f64>| {
            let pairs: Option<Vec<(f64, f64)>> =
                rounds.iter().map(|round| figure(&round.a).zip(figure(&round.b))).collect();
            pairs.and_then(|pairs| regress::switchback(&pairs, &terms).ok())
        };
        // A round without it counts for the other cost.
        let known = rounds.iter().filter_map(|round| Some((1.0, round.ratio_at_saturation?)));
        let known: Vec<(f64, f64)> = known.collect();
        let ways = periods(&rounds).filter_map(|period| Some(period.holds.as_ref()?.way.as_str()));
        let ways: BTreeSet<&str> = ways.collect();
        let at_saturation = regress::switchback(&known, &terms).ok().filter(|_| ways.len() == 1);
        let cost = of(|period| Some(period.us_per_request)).ok_or_else(|| {
            misuse(format!(
                "only {} complete rounds of at least {}; let it run longer",
                rounds.len(),
                regress::ROUNDS_MIN
            ))
        })?;
        let mut remarks = remarks(&rounds, flags.rounds, &cost);
        if flags.holds.hold.is_some() {
            remarks.extend(remarks_of_holds(&rounds, known.len(), &ways));
        }
        Ok(Found {
            a: flags.a.clone(),
            b: flags.b.clone(),
            period_s: flags.period.as_secs_f64(),
            settle_s: flags.settle.as_secs_f64(),
            rounds_planned: flags.rounds,
            median: of(|period| period.median_us),
            p99: of(|period| period.p99_us),
            verdict: match flags.holds.hold {
                Some(_) => cost.with(at_saturation.as_ref()),
                None => cost.verdict,
            },
            why: show::why(&cost, at_saturation.as_ref()),
            cost,
            at_saturation,
            remarks,
            rounds,
        })
    }
}

/// What weakens the cost at saturation, which `known` rounds have.
fn remarks_of_holds(rounds: &[Round], known: usize, ways: &BTreeSet<&str>) -> Vec<String> {
    let mut remarks = Vec::new();
    if ways.len() > 1 {
        let ways: Vec<&str> = ways.iter().copied().collect();
        let ways = ways.join(", and by ");
        remarks.push(format!("costs at saturation are not compared: it was held by {ways}"));
    }
    let all = rounds.len();
    if known < all {
        remarks.push(format!("the cost at saturation is known in {known} of {all} rounds only"));
    }
    let few = |period: &Period| period.at_saturation.is_some_and(|kinds| kinds.holds.is_none());
    if let Some(period) = periods(rounds).find(|period| few(period)) {
        let made = period.holds.as_ref().map_or_else(String::new, HoldsMade::to_string);
        remarks.push(format!(
            "a period shows nothing after holds, so only its turns are compared; it was {made} (at \
             least {WAITING_MIN} requests must wait for the end of a hold: try a longer --hold)"
        ));
    }
    remarks
}

fn periods(rounds: &[Round]) -> impl Iterator<Item = &Period> {
    rounds.iter().flat_map(|round| [&round.a, &round.b])
}

fn pause(length: Duration, stop: &AtomicBool) {
    const LOOK: Duration = Duration::from_millis(50);
    let until = Instant::now() + length;
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(LOOK));
    }
}

/// Sums up a period.
fn period_of(
    recorded: Recorded,
    outcome: Option<&Outcome>,
    label: &str,
) -> Result<Period, Failure> {
    let (trial, holds) = recorded;
    // Our own load knows its requests; without a log the trial does not.
    let trial = match outcome {
        Some(outcome) => trial.with_requests(|one| join::completed(one, &outcome.rows, 0)),
        None => trial,
    };
    let (mut cpu_ns, mut requests, mut length_ns) = (0, 0.0, 0);
    for interval in trial.intervals().iter().filter(|one| one.rate_valid) {
        cpu_ns += interval.server.map_or(0, |server| server.total_ns);
        length_ns += interval.length_ns;
        requests += interval.requests;
    }
    if requests < 1.0 || cpu_ns <= 0 {
        return Err(misuse(format!(
            "{label}: only {requests:.0} requests and {:.3} s of CPU time; is the server under \
             load, and is it the observed one?",
            cpu_ns as f64 / 1e9
        )));
    }
    let latencies = outcome.map(|outcome| latencies(&trial, outcome)).transpose()?.flatten();
    let quantile = |q: f64| Some(latencies.as_ref()?.value_at_quantile(q) as f64 / 1e3);
    let (cpu_s, seconds) = (cpu_ns as f64 / 1e9, length_ns as f64 / 1e9);
    let made = holds.as_ref().filter(|made| made.count > 0);
    let waiting = made.map(|made| {
        let length_s = made.held_ns as f64 / 1e9 / made.count as f64;
        requests / seconds * length_s
    });
    let caught_up = waiting.is_some_and(|waiting| waiting >= WAITING_MIN);
    let at_saturation = holds.is_some().then(|| {
        let both = report::at_saturation(&trial);
        ByKind { holds: both.holds.filter(|_| caught_up), ..both }
    });
    Ok(Period {
        cpu_s,
        requests,
        seconds,
        us_per_request: 1e6 * cpu_s / requests,
        at_saturation,
        holds,
        rate: requests / seconds,
        errors: outcome.map(|outcome| outcome.counts.errors.total()),
        median_us: quantile(0.5),
        p99_us: quantile(0.99),
    })
}

/// Latencies of the seconds within the measured part, ns; `None` if none is valid.
fn latencies(trial: &Trial, outcome: &Outcome) -> Result<Option<Histogram<u64>>, Failure> {
    let intervals = trial.intervals();
    let (Some(first), Some(last)) = (intervals.first(), intervals.last()) else { return Ok(None) };
    let mut all: Option<Histogram<u64>> = None;
    for row in outcome.rows.iter().filter(|row| !row.behind) {
        let middle = row.start_ns + (row.length_ns / 2).cast_signed();
        if (first.start_ns..last.start_ns + last.length_ns).contains(&middle) {
            let histogram = row.latency.histogram().map_err(misuse)?;
            match &mut all {
                Some(all) => all.add(&histogram).map_err(misuse)?,
                None => all = Some(histogram),
            }
        }
    }
    Ok(all.filter(|all| !all.is_empty()))
}

fn remarks(rounds: &[Round], planned: usize, cost: &Switchback) -> Vec<String> {
    let mut remarks = Vec::new();
    if rounds.len() < planned {
        remarks.push(format!("stopped after {} of {planned} rounds", rounds.len()));
    }
    if rounds.len() % 2 == 1 {
        remarks.push("the number of rounds is odd, so a drift favours one side".to_owned());
    }
    let rate = |of: fn(&Round) -> &Period| -> f64 {
        rounds.iter().map(|round| of(round).rate).sum::<f64>() / rounds.len() as f64
    };
    let (a, b) = (rate(|round| &round.a), rate(|round| &round.b));
    if (b / a).ln().abs() > RATES_DIFFER {
        remarks.push(format!(
            "the load differed: {a:.0} requests/s on A and {b:.0} on B, so the fixed cost is \
             spread over different numbers of requests"
        ));
    }
    let errors: u64 = periods(rounds).filter_map(|period| period.errors).sum();
    let requests: f64 = periods(rounds).map(|period| period.requests).sum();
    if errors as f64 > ERRORS_MAX * requests {
        remarks.push(format!("{errors} requests failed"));
    }
    if rounds.iter().any(|round| round.a.errors.is_some() && round.a.median_us.is_none()) {
        remarks.push("the generator fell behind, so latencies are missing".to_owned());
    }
    let needed = regress::rounds_verdict_min(cost.level);
    if cost.rounds < needed {
        remarks.push(format!("fewer than {needed} rounds cannot show a change, however large"));
    }
    remarks
}
