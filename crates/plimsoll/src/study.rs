//! `plimsoll study`: the experiments of the papers, on this machine.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use study::swapin::{self, Outcome, Plan};
use study::{dispatch, herd, live, runqueue, select, truth, webbench};

use crate::cli::{self, Studies};
use crate::failure::{Failure, misuse};
use crate::output;
use crate::report::{width, write};
use crate::scratch::Scratch;
use crate::serve::stop_on_signal;

/// Runs a study, or lists them.
pub(crate) fn study(flags: &cli::Study) -> Result<(), Failure> {
    match &flags.which {
        Some(Studies::Dispatch(flags)) => dispatch(flags),
        Some(Studies::Herd(flags)) => herd(flags),
        Some(Studies::Live(flags)) => live(flags),
        Some(Studies::Runqueue(flags)) => runqueue(flags),
        Some(Studies::Select(flags)) => select(flags),
        Some(Studies::Swapin(flags)) => swapin(flags),
        Some(Studies::Truth(flags)) => truth(flags),
        Some(Studies::Webbench(flags)) => webbench(flags),
        None => {
            let mut text = String::from("The studies; run one with plimsoll study NAME:\n\n");
            for (name, asks) in study::STUDIES {
                text.push_str(&format!("  {name:8}  {asks}\n"));
            }
            output::print(text)
        }
    }
}

/// The program that runs, for a verb of it as a process of its own.
pub(crate) fn this_program() -> Result<PathBuf, Failure> {
    std::env::current_exe().map_err(misuse)
}

/// The result on stdout and, with its figure, in the directory that was named.
fn give_out(
    (study, out): (&str, Option<&Path>),
    outcome: &impl Serialize,
    figure: &str,
    text: Option<String>,
) -> Result<(), Failure> {
    if let Some(out) = out {
        write(&out.join(format!("{study}.svg")), figure)?;
        let json = serde_json::to_string(outcome).map_err(misuse)?;
        write(&out.join(format!("{study}.json")), &(json + "\n"))?;
    }
    match text {
        Some(text) => output::print(text),
        None => output::print_json(outcome),
    }
}

fn dispatch(flags: &cli::DispatchStudy) -> Result<(), Failure> {
    if let Some(out) = &flags.out {
        make_directory(out)?;
    }
    let stop = stop_on_signal()?;
    let plan = dispatch::Plan {
        descriptors: flags.descriptors.clone(),
        ready: flags.ready.clone(),
        rounds: flags.rounds as usize,
        turns: flags.turns as usize,
        seed: flags.seed,
    };
    let outcome =
        with_progress("dispatch", |say| dispatch::run(&plan, &stop, say)).map_err(misuse)?;
    let text = (!flags.json).then(|| dispatch::text(&outcome, width()));
    give_out(("dispatch", flags.out.as_deref()), &outcome, &dispatch::figure(&outcome), text)
}

/// Requests of a client in a visit of a quick run.
const HERD_QUICK: u32 = 20;

fn herd(flags: &cli::HerdStudy) -> Result<(), Failure> {
    if let Some(out) = &flags.out {
        make_directory(out)?;
    }
    let stop = stop_on_signal()?;
    let mut workers = flags.workers.clone();
    workers.sort_unstable();
    workers.dedup();
    let plan = herd::Plan {
        workers,
        clients: flags.clients,
        cold: flags.cold,
        requests: if flags.quick { HERD_QUICK } else { flags.requests },
        rounds: if flags.quick { 2 } else { flags.rounds as usize },
        time: flags.duration,
        seed: flags.seed,
    };
    let outcome = with_progress("herd", |say| herd::run(&plan, &stop, say)).map_err(misuse)?;
    let text = (!flags.json).then(|| herd::text(&outcome, width()));
    give_out(("herd", flags.out.as_deref()), &outcome, &herd::figure(&outcome), text)
}

fn live(flags: &cli::LiveStudy) -> Result<(), Failure> {
    if let Some(out) = &flags.out {
        make_directory(out)?;
    }
    let stop = stop_on_signal()?;
    let plan = live::Plan {
        program: this_program()?,
        out: flags.out.clone(),
        hours: flags.hours,
        compressed: flags.compressed,
        old: flags.old,
        new: flags.new,
        cold: flags.cold,
        seed: flags.seed,
    };
    let outcome = with_progress("live", |say| live::run(&plan, &stop, say)).map_err(misuse)?;
    let text = (!flags.json).then(|| live::text(&outcome, width()));
    give_out(("live", flags.out.as_deref()), &outcome, &live::figure(&outcome), text)
}

/// Of each cell in the shortest form.
const VISIT_QUICK: Duration = Duration::from_millis(30);

fn runqueue(flags: &cli::RunqueueStudy) -> Result<(), Failure> {
    if let Some(out) = &flags.out {
        make_directory(out)?;
    }
    let stop = stop_on_signal()?;
    let mut runnable = flags.runnable.clone();
    runnable.sort_unstable();
    runnable.dedup();
    let (rounds, visit) = if flags.quick {
        (2, VISIT_QUICK)
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
    let outcome =
        with_progress("runqueue", |say| runqueue::run(&plan, &stop, say)).map_err(misuse)?;
    let text = (!flags.json).then(|| runqueue::text(&outcome, width()));
    give_out(("runqueue", flags.out.as_deref()), &outcome, &runqueue::figure(&outcome), text)
}

/// What [`runqueue`] records: it walks to the end of its input, and says over how many tasks.
pub(crate) fn runqueue_walker(flags: &cli::RunqueueWalker) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&stop);
    let listen_to_input = move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        ended.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("input".into()).spawn(listen_to_input).map_err(misuse)?;
    let (runnable, colours, seed) = (flags.runnable, flags.colours, flags.seed);
    let tasks = runqueue::Walker { runnable, colours, seed }.walk(&stop);
    output::print(format!("{tasks}\n"))
}

/// Numbers of cold connections, unless others are named.
const COLD: &[u32] = &[0, 500, 1000, 2000, 5000, 10_000];
const COLD_QUICK: &[u32] = &[0, 1000];

fn select(flags: &cli::SelectStudy) -> Result<(), Failure> {
    if let Some(out) = &flags.out {
        make_directory(out)?;
    }
    let stop = stop_on_signal()?;
    let mut cold = flags.cold.clone();
    if cold.is_empty() {
        cold.extend(if flags.quick { COLD_QUICK } else { COLD });
    }
    cold.sort_unstable();
    cold.dedup();
    let (visit, recorded) = if flags.quick {
        (Duration::from_millis(400), Duration::from_secs(8))
    } else {
        (Duration::from_millis(500), Duration::from_secs(30))
    };
    let plan = select::Plan {
        program: this_program()?,
        out: flags.out.clone(),
        cold,
        rounds: if flags.quick { 2 } else { flags.rounds as usize },
        time: flags.duration,
        visit,
        light_rate: flags.light,
        foretell: (!flags.no_what_if).then_some(recorded),
        seed: flags.seed,
    };
    let outcome = with_progress("select", |say| select::run(&plan, &stop, say)).map_err(misuse)?;
    let text = (!flags.json).then(|| select::text(&outcome, width()));
    give_out(("select", flags.out.as_deref()), &outcome, &select::figure(&outcome), text)
}

fn swapin(flags: &cli::Swapin) -> Result<(), Failure> {
    if let Some(out) = &flags.out {
        make_directory(out)?;
    }
    let stop = stop_on_signal()?;
    let plan = Plan {
        path: flags.path.clone().unwrap_or_else(std::env::temp_dir),
        objects: flags.objects as usize,
        rounds: flags.rounds as usize,
        time: flags.duration,
        seed: flags.seed,
        squid: !flags.no_squid,
    };
    let outcome = with_progress("swapin", |say| swapin::run(&plan, &stop, say)).map_err(misuse)?;
    if let Some(out) = &flags.out {
        write_all(out, &outcome)?;
    }
    if flags.json {
        output::print_json(&outcome)
    } else {
        output::print(swapin::text(&outcome, width()))
    }
}

/// On a terminal one line that changes; elsewhere nothing but what is asked for.
fn with_progress<T>(name: &str, work: impl FnOnce(&mut dyn FnMut(&str)) -> T) -> T {
    let progress = if std::io::stderr().is_terminal() {
        ProgressBar::no_length()
    } else {
        ProgressBar::hidden()
    };
    if let Ok(style) = ProgressStyle::with_template(&format!("{name}: {{msg}} ({{elapsed}})")) {
        progress.set_style(style);
    }
    let worked = work(&mut |step| {
        progress.set_message(step.to_owned());
        progress.tick();
    });
    progress.finish_and_clear();
    worked
}

fn truth(flags: &cli::Truth) -> Result<(), Failure> {
    if let Some(out) = &flags.out {
        make_directory(out)?;
    }
    let scratch = Scratch::new("truth")?;
    let plan = truth::Plan {
        program: std::env::current_exe().map_err(misuse)?,
        runs: flags.runs as usize,
        duration: flags.duration,
        interval: flags.interval,
        seed: flags.seed,
        home: flags.out.clone().unwrap_or_else(|| scratch.path().to_owned()),
        keep: flags.out.is_some(),
    };
    let stop = stop_on_signal()?;
    let outcome = with_progress("truth", |say| truth::run(&plan, &stop, say)).map_err(misuse)?;
    if flags.json {
        output::print_json(&outcome)?;
    } else {
        output::print(truth::text(&outcome, width()))?;
    }
    if outcome.held {
        return Ok(());
    }
    Err(Failure::Found("the truth lay outside of the intervals more often than it may".into()))
}

/// The server of known costs, for [`truth`] to start: a line on its input starts its counting anew,
/// the end of it ends it.
pub(crate) fn truth_server(flags: &cli::TruthServer) -> Result<(), Failure> {
    if let Some(cpu) = flags.cpu {
        ::load::sys::pin_to_cpu(cpu).map_err(misuse)?;
    }
    let server = truth::Truth { seed: flags.seed, walks: !flags.no_table };
    let control = Arc::new(truth::Control::default());
    let asked = Arc::clone(&control);
    let listen_to_input = move || {
        for _ in std::io::stdin().lines().map_while(Result::ok) {
            asked.anew.store(true, Ordering::Relaxed);
        }
        asked.stop.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("input".into()).spawn(listen_to_input).map_err(misuse)?;
    let say = |listen| {
        if let Ok(line) = serde_json::to_string(&truth::Listening { listen }) {
            println!("{line}");
        }
    };
    let spent = server.serve(&flags.log, &control, say).map_err(misuse)?;
    println!("{}", serde_json::to_string(&spent).map_err(misuse)?);
    Ok(())
}

/// Numbers of clients, unless others are named.
const CLIENTS: &[u32] = &[1, 4, 16, 64, 256];
const CLIENTS_QUICK: &[u32] = &[1, 32];
const WEBBENCH_VISIT_QUICK: Duration = Duration::from_millis(250);

fn webbench(flags: &cli::WebbenchStudy) -> Result<(), Failure> {
    if let Some(out) = &flags.out {
        make_directory(out)?;
    }
    let stop = stop_on_signal()?;
    let mut clients = flags.clients.clone();
    if clients.is_empty() {
        clients.extend(if flags.quick { CLIENTS_QUICK } else { CLIENTS });
    }
    clients.sort_unstable();
    clients.dedup();
    let mut workers = flags.workers.clone();
    if workers.is_empty() {
        workers = up_to_all_cpus();
    }
    workers.sort_unstable();
    workers.dedup();
    let plan = webbench::Plan {
        program: this_program()?,
        out: flags.out.clone(),
        files: flags.files,
        workers,
        clients,
        rounds: if flags.quick { 2 } else { flags.rounds as usize },
        time: flags.duration,
        visit: if flags.quick { WEBBENCH_VISIT_QUICK } else { flags.visit },
        seed: flags.seed,
    };
    let outcome =
        with_progress("webbench", |say| webbench::run(&plan, &stop, say)).map_err(misuse)?;
    let text = (!flags.json).then(|| webbench::text(&outcome, width()));
    give_out(("webbench", flags.out.as_deref()), &outcome, &webbench::figure(&outcome), text)
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

fn make_directory(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path)
        .map_err(|error| misuse(format!("{} cannot be made: {error}", path.display())))
}

/// The figures and the result. A figure of what was not measured this time is none: one of an
/// earlier run is removed.
fn write_all(out: &Path, outcome: &Outcome) -> Result<(), Failure> {
    for (cache, name) in [("warm", "swapin.svg"), ("cold", "swapin-cold.svg")] {
        let path = out.join(name);
        match swapin::figure(outcome, cache) {
            Some(figure) => write(&path, &figure)?,
            None => {
                let _ = std::fs::remove_file(&path);
            }
        }
    }
    let json = serde_json::to_string(outcome).map_err(misuse)?;
    write(&out.join("swapin.json"), &(json + "\n"))
}
