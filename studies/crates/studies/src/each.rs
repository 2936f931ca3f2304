//! Each study: its plan from the flags, and how its outcome is shown.

use std::time::Duration;

use command::failure::{Failure, misuse};
use command::scratch::Scratch;
use study::{boost, dispatch, herd, live, predict, select, swapin, truth, webbench};

use crate::cli::{self, Rounds, Studies};
use crate::run::{By, Found, plimsoll, this_program};

/// Runs a study. [`Studies::All`] is not one.
pub(crate) fn run(which: &Studies, by: &By<'_>) -> Result<Found, Failure> {
    match which {
        Studies::All(_) => Err(misuse("all is not one of the studies")),
        Studies::Boost(flags) => boost(flags, by),
        Studies::Dispatch(flags) => dispatch(flags, by),
        Studies::Herd(flags) => herd(flags, by),
        Studies::Live(flags) => live(flags, by),
        Studies::Predict(flags) => predict(flags, by),
        Studies::Runqueue(flags) => runqueue(flags, by),
        Studies::Select(flags) => select(flags, by),
        Studies::Swapin(flags) => swapin(flags, by),
        Studies::Truth(flags) => truth(flags, by),
        Studies::Webbench(flags) => webbench(flags, by),
    }
}

/// The numbers, or the default ones, in ascending order and each once.
fn ascending<T: Ord + Copy>(numbers: &[T], default: &[T]) -> Vec<T> {
    let mut numbers = if numbers.is_empty() { default } else { numbers }.to_vec();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// The number of rounds, which is given by the short form if that is chosen.
fn rounds(repeat: &Rounds, quick: Option<usize>) -> usize {
    quick.unwrap_or(repeat.rounds as usize)
}

/// The default numbers of cold connections, and those of the short form.
const COLD: &[u32] = &[0, 500, 1000, 2000, 5000, 10_000];
const COLD_BOOST: &[u32] = &[0, 1000, 8000];
const COLD_QUICK: &[u32] = &[0, 1000];
/// The default numbers of clients, and those of the short form.
const CLIENTS: &[u32] = &[1, 4, 16, 64, 256];
const CLIENTS_QUICK: &[u32] = &[1, 32];

fn boost(flags: &cli::BoostStudy, by: &By<'_>) -> Result<Found, Failure> {
    let quick = flags.quick;
    let plan = boost::Plan {
        program: plimsoll()?,
        out: flags.given.out.clone(),
        cold: ascending(&flags.cold, if quick { COLD_QUICK } else { COLD_BOOST }),
        rounds: rounds(&flags.repeat, quick.then_some(1)),
        time: flags.repeat.duration,
        visit: if quick { Duration::from_secs(1) } else { flags.visit },
        seed: flags.given.seed,
    };
    let run = |stop: &_, say: &mut dyn FnMut(&str)| boost::run(&plan, stop, say);
    let (outcome, found) = by.found("boost", run, boost::shown, boost::figure)?;
    let differ = !outcome.differences.is_empty();
    Ok(found.failed(differ.then_some("a boosted server sent another response")))
}

fn dispatch(flags: &cli::DispatchStudy, by: &By<'_>) -> Result<Found, Failure> {
    let plan = dispatch::Plan {
        descriptors: flags.descriptors.clone(),
        ready: flags.ready.clone(),
        rounds: flags.rounds as usize,
        turns: flags.turns as usize,
        seed: flags.given.seed,
    };
    let run = |stop: &_, say: &mut dyn FnMut(&str)| dispatch::run(&plan, stop, say);
    Ok(by.found("dispatch", run, dispatch::shown, dispatch::figure)?.1)
}

fn herd(flags: &cli::HerdStudy, by: &By<'_>) -> Result<Found, Failure> {
    let plan = herd::Plan {
        workers: ascending(&flags.workers, &[]),
        clients: flags.clients,
        cold: flags.cold,
        requests: if flags.quick { 20 } else { flags.requests },
        rounds: rounds(&flags.repeat, flags.quick.then_some(2)),
        time: flags.repeat.duration,
        seed: flags.given.seed,
    };
    let run = |stop: &_, say: &mut dyn FnMut(&str)| herd::run(&plan, stop, say);
    Ok(by.found("herd", run, herd::shown, herd::figure)?.1)
}

fn live(flags: &cli::LiveStudy, by: &By<'_>) -> Result<Found, Failure> {
    let plan = live::Plan {
        program: plimsoll()?,
        out: flags.given.out.clone(),
        hours: flags.hours,
        compressed: flags.compressed,
        old: flags.old,
        new: flags.new,
        cold: flags.cold,
        seed: flags.given.seed,
    };
    let run = |stop: &_, say: &mut dyn FnMut(&str)| live::run(&plan, stop, say);
    Ok(by.found("live", run, live::shown, live::figure)?.1)
}

fn predict(flags: &cli::PredictStudy, by: &By<'_>) -> Result<Found, Failure> {
    let quick = flags.quick;
    let default = |full: &'static [u32], short: &'static [u32]| if quick { short } else { full };
    let servers = match (flags.servers.as_slice(), quick) {
        ([], true) => vec!["plimsoll".to_owned()],
        ([], false) => predict::SERVERS.map(str::to_owned).to_vec(),
        (named, _) => named.to_vec(),
    };
    let plan = predict::Plan {
        program: plimsoll()?,
        out: flags.given.out.clone().unwrap_or_default(),
        servers,
        bodies: ascending(&flags.bodies, if quick { &[1024] } else { &[1024, 20_480] }),
        connections: ascending(&flags.connections, default(&[16, 64, 256], &[16])),
        reaches: ascending(&flags.reaches, default(&[20, 30, 45, 60], &[45])),
        ramp: Duration::from_secs(if quick { 8 } else { flags.seconds }),
        saturation_s: if quick { 1 } else { 5 },
        resume: flags.resume,
        judge_only: flags.judge_only,
        seed: flags.given.seed,
    };
    let run = |stop: &_, say: &mut dyn FnMut(&str)| predict::run(&plan, stop, say);
    Ok(by.found("predict", run, predict::shown, predict::figure)?.1.with_page())
}

fn runqueue(flags: &cli::RunqueueStudy, by: &By<'_>) -> Result<Found, Failure> {
    let (rounds, visit) = match flags.quick {
        true => (2, Duration::from_millis(30)),
        false => (flags.rounds as usize, Duration::from_secs_f64(flags.seconds)),
    };
    let plan = runqueue::Plan {
        program: this_program()?,
        cpus: flags.cpus.clone(),
        runnable: ascending(&flags.runnable, &[]),
        rounds,
        visit,
        seed: flags.given.seed,
    };
    let run = |stop: &_, say: &mut dyn FnMut(&str)| runqueue::run(&plan, stop, say);
    Ok(by.found("runqueue", run, runqueue::shown, runqueue::figure)?.1)
}

fn select(flags: &cli::SelectStudy, by: &By<'_>) -> Result<Found, Failure> {
    let quick = flags.quick;
    let (visit_ms, recording_s) = if quick { (400, 8) } else { (500, 30) };
    let plan = select::Plan {
        program: plimsoll()?,
        out: flags.given.out.clone(),
        cold: ascending(&flags.cold, if quick { COLD_QUICK } else { COLD }),
        rounds: rounds(&flags.repeat, quick.then_some(2)),
        time: flags.repeat.duration,
        visit: Duration::from_millis(visit_ms),
        light_rate: flags.light,
        recording: (!flags.no_what_if).then_some(Duration::from_secs(recording_s)),
        seed: flags.given.seed,
    };
    let run = |stop: &_, say: &mut dyn FnMut(&str)| select::run(&plan, stop, say);
    Ok(by.found("select", run, select::shown, select::figure)?.1)
}

fn swapin(flags: &cli::Swapin, by: &By<'_>) -> Result<Found, Failure> {
    let plan = swapin::Plan {
        path: flags.path.clone().unwrap_or_else(std::env::temp_dir),
        objects: flags.objects as usize,
        rounds: rounds(&flags.repeat, None),
        time: flags.repeat.duration,
        seed: flags.given.seed,
        squid: !flags.no_squid,
    };
    let outcome = by.run("swapin", |stop, say| swapin::run(&plan, stop, say))?;
    let figure = |cache| swapin::figure(&outcome, cache);
    let found = Found::of(swapin::shown(&outcome), &outcome)?;
    let found = found.with("swapin.svg".into(), figure("warm"));
    Ok(found.with("swapin-cold.svg".into(), figure("cold")))
}

fn truth(flags: &cli::Truth, by: &By<'_>) -> Result<Found, Failure> {
    let scratch = Scratch::new("truth")?;
    let plan = truth::Plan {
        program: this_program()?,
        runs: flags.runs as usize,
        duration: flags.duration,
        interval: flags.interval,
        seed: flags.given.seed,
        home: flags.given.out.clone().unwrap_or_else(|| scratch.path().to_owned()),
        keep: flags.given.out.is_some(),
    };
    let outcome = by.run("truth", |stop, say| truth::run(&plan, stop, say))?;
    let missed = "the truth was outside of the intervals more often than allowed";
    let found = Found::of(truth::shown(&outcome), &outcome)?;
    Ok(found.failed((!outcome.held).then_some(missed)))
}

fn webbench(flags: &cli::WebbenchStudy, by: &By<'_>) -> Result<Found, Failure> {
    let quick = flags.quick;
    let plan = webbench::Plan {
        program: plimsoll()?,
        out: flags.given.out.clone(),
        files: flags.files,
        workers: ascending(&flags.workers, &up_to_all_cpus()),
        clients: ascending(&flags.clients, if quick { CLIENTS_QUICK } else { CLIENTS }),
        rounds: rounds(&flags.repeat, quick.then_some(2)),
        time: flags.repeat.duration,
        visit: if quick { Duration::from_millis(250) } else { flags.visit },
        seed: flags.given.seed,
    };
    let run = |stop: &_, say: &mut dyn FnMut(&str)| webbench::run(&plan, stop, say);
    Ok(by.found("webbench", run, webbench::shown, webbench::figure)?.1)
}

/// 1, 2, 4 and so on below the number of CPUs, and that number.
fn up_to_all_cpus() -> Vec<u16> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let all = u16::try_from(all).unwrap_or(u16::MAX);
    let powers = (0..).map_while(|bit| 1u16.checked_shl(bit));
    powers.take_while(|number| *number < all).chain([all]).collect()
}
