//! Each study: from its flags to its plan, and from its outcome to what is shown of it.

use std::time::Duration;

use command::failure::{Failure, misuse};
use command::scratch::Scratch;
use study::{boost, dispatch, herd, live, select, swapin, truth, webbench};

use crate::cli::{self, Studies};
use crate::run::{By, Found, plimsoll, this_program};

/// Runs one. [`Studies::All`] is not one.
pub(crate) fn run(which: &Studies, by: &By<'_>) -> Result<Found, Failure> {
    match which {
        Studies::All(_) => Err(misuse("all is not one of the studies")),
        Studies::Boost(flags) => boost(flags, by),
        Studies::Dispatch(flags) => dispatch(flags, by),
        Studies::Herd(flags) => herd(flags, by),
        Studies::Live(flags) => live(flags, by),
        Studies::Runqueue(flags) => runqueue(flags, by),
        Studies::Select(flags) => select(flags, by),
        Studies::Swapin(flags) => swapin(flags, by),
        Studies::Truth(flags) => truth(flags, by),
        Studies::Webbench(flags) => webbench(flags, by),
    }
}

/// Numbers in ascending order, each once.
fn ascending<T: Ord>(mut numbers: Vec<T>) -> Vec<T> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// Requests of a client in a visit of a quick run.
const HERD_QUICK: u32 = 20;
/// Of each cell in the shortest form.
const CELL_QUICK: Duration = Duration::from_millis(30);
/// Numbers of cold connections, unless others are named.
const COLD: &[u32] = &[0, 500, 1000, 2000, 5000, 10_000];
const COLD_QUICK: &[u32] = &[0, 1000];
/// Numbers of cold connections beside boosted servers, unless others are named.
const BOOST_COLD: &[u32] = &[0, 1000, 8000];
const BOOST_QUICK: Duration = Duration::from_secs(1);
/// Numbers of clients, unless others are named.
const CLIENTS: &[u32] = &[1, 4, 16, 64, 256];
const CLIENTS_QUICK: &[u32] = &[1, 32];
const VISIT_QUICK: Duration = Duration::from_millis(250);

fn boost(flags: &cli::BoostStudy, by: &By<'_>) -> Result<Found, Failure> {
    let mut cold = flags.cold.clone();
    if cold.is_empty() {
        cold.extend(if flags.quick { COLD_QUICK } else { BOOST_COLD });
    }
    let plan = boost::Plan {
        program: plimsoll()?,
        home: flags.given.out.clone().unwrap_or_else(std::env::temp_dir),
        cold: ascending(cold),
        rounds: if flags.quick { 1 } else { flags.rounds as usize },
        time: flags.duration,
        visit: if flags.quick { BOOST_QUICK } else { flags.visit },
        seed: flags.seed,
    };
    let outcome = by.run("boost", |stop, say| boost::run(&plan, stop, say))?;
    let figure = boost::figure(&outcome);
    let differ = (!outcome.differences.is_empty()).then_some("a boosted server answered otherwise");
    let found = Found::of(boost::shown(&outcome), &outcome)?;
    Ok(found.with("boost.svg", figure).failed(differ))
}

fn dispatch(flags: &cli::DispatchStudy, by: &By<'_>) -> Result<Found, Failure> {
    let plan = dispatch::Plan {
        descriptors: flags.descriptors.clone(),
        ready: flags.ready.clone(),
        rounds: flags.rounds as usize,
        turns: flags.turns as usize,
        seed: flags.seed,
    };
    let outcome = by.run("dispatch", |stop, say| dispatch::run(&plan, stop, say))?;
    Ok(Found::of(dispatch::shown(&outcome), &outcome)?
        .with("dispatch.svg", dispatch::figure(&outcome)))
}

fn herd(flags: &cli::HerdStudy, by: &By<'_>) -> Result<Found, Failure> {
    let workers = ascending(flags.workers.clone());
    let plan = herd::Plan {
        workers,
        clients: flags.clients,
        cold: flags.cold,
        requests: if flags.quick { HERD_QUICK } else { flags.requests },
        rounds: if flags.quick { 2 } else { flags.rounds as usize },
        time: flags.duration,
        seed: flags.seed,
    };
    let outcome = by.run("herd", |stop, say| herd::run(&plan, stop, say))?;
    Ok(Found::of(herd::shown(&outcome), &outcome)?.with("herd.svg", herd::figure(&outcome)))
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
        seed: flags.seed,
    };
    let outcome = by.run("live", |stop, say| live::run(&plan, stop, say))?;
    Ok(Found::of(live::shown(&outcome), &outcome)?.with("live.svg", live::figure(&outcome)))
}

fn runqueue(flags: &cli::RunqueueStudy, by: &By<'_>) -> Result<Found, Failure> {
    let runnable = ascending(flags.runnable.clone());
    let (rounds, visit) = if flags.quick {
        (2, CELL_QUICK)
    } else {
        (flags.rounds as usize, Duration::from_secs_f64(flags.seconds))
    };
    let plan = runqueue::Plan {
        program: this_program()?,
        cpus: flags.cpus.clone(),
        runnable,
        rounds,
        visit,
        seed: flags.seed,
    };
    let outcome = by.run("runqueue", |stop, say| runqueue::run(&plan, stop, say))?;
    Ok(Found::of(runqueue::shown(&outcome), &outcome)?
        .with("runqueue.svg", runqueue::figure(&outcome)))
}

fn select(flags: &cli::SelectStudy, by: &By<'_>) -> Result<Found, Failure> {
    let mut cold = flags.cold.clone();
    if cold.is_empty() {
        cold.extend(if flags.quick { COLD_QUICK } else { COLD });
    }
    let cold = ascending(cold);
    let (visit, recorded) = if flags.quick {
        (Duration::from_millis(400), Duration::from_secs(8))
    } else {
        (Duration::from_millis(500), Duration::from_secs(30))
    };
    let plan = select::Plan {
        program: plimsoll()?,
        out: flags.given.out.clone(),
        cold,
        rounds: if flags.quick { 2 } else { flags.rounds as usize },
        time: flags.duration,
        visit,
        light_rate: flags.light,
        foretell: (!flags.no_what_if).then_some(recorded),
        seed: flags.seed,
    };
    let outcome = by.run("select", |stop, say| select::run(&plan, stop, say))?;
    Ok(Found::of(select::shown(&outcome), &outcome)?.with("select.svg", select::figure(&outcome)))
}

fn swapin(flags: &cli::Swapin, by: &By<'_>) -> Result<Found, Failure> {
    let plan = swapin::Plan {
        path: flags.path.clone().unwrap_or_else(std::env::temp_dir),
        objects: flags.objects as usize,
        rounds: flags.rounds as usize,
        time: flags.duration,
        seed: flags.seed,
        squid: !flags.no_squid,
    };
    let outcome = by.run("swapin", |stop, say| swapin::run(&plan, stop, say))?;
    let warm = swapin::figure(&outcome, "warm");
    let found = Found::of(swapin::shown(&outcome), &outcome)?.with("swapin.svg", warm);
    Ok(found.with("swapin-cold.svg", swapin::figure(&outcome, "cold")))
}

fn truth(flags: &cli::Truth, by: &By<'_>) -> Result<Found, Failure> {
    let scratch = Scratch::new("truth")?;
    let plan = truth::Plan {
        program: this_program()?,
        runs: flags.runs as usize,
        duration: flags.duration,
        interval: flags.interval,
        seed: flags.seed,
        home: flags.given.out.clone().unwrap_or_else(|| scratch.path().to_owned()),
        keep: flags.given.out.is_some(),
    };
    let outcome = by.run("truth", |stop, say| truth::run(&plan, stop, say))?;
    let missed = "the truth lay outside of the intervals more often than it may";
    let found = Found::of(truth::shown(&outcome), &outcome)?;
    Ok(found.failed((!outcome.held).then_some(missed)))
}

fn webbench(flags: &cli::WebbenchStudy, by: &By<'_>) -> Result<Found, Failure> {
    let mut clients = flags.clients.clone();
    if clients.is_empty() {
        clients.extend(if flags.quick { CLIENTS_QUICK } else { CLIENTS });
    }
    let clients = ascending(clients);
    let mut workers = flags.workers.clone();
    if workers.is_empty() {
        workers = up_to_all_cpus();
    }
    let workers = ascending(workers);
    let plan = webbench::Plan {
        program: plimsoll()?,
        out: flags.given.out.clone(),
        files: flags.files,
        workers,
        clients,
        rounds: if flags.quick { 2 } else { flags.rounds as usize },
        time: flags.duration,
        visit: if flags.quick { VISIT_QUICK } else { flags.visit },
        seed: flags.seed,
    };
    let outcome = by.run("webbench", |stop, say| webbench::run(&plan, stop, say))?;
    Ok(Found::of(webbench::shown(&outcome), &outcome)?
        .with("webbench.svg", webbench::figure(&outcome)))
}

/// 1, 2, 4 and so on, and all.
fn up_to_all_cpus() -> Vec<u16> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let all = u16::try_from(all).unwrap_or(u16::MAX);
    let mut numbers: Vec<u16> = (0..).map_while(|bit| 1u16.checked_shl(bit)).collect();
    numbers.retain(|number| *number < all);
    numbers.push(all);
    numbers
}
