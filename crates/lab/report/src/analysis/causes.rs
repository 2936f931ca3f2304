//! What went wrong in a recording, found before any statistics.
//!
//! [`CHECKS`] is a list of causes in the order in which they explain a missing or a wrong figure.
//! Each cause has a sentence, and advice on what to do next. Every verb that shows a capacity takes
//! its causes from here: [`missing`] is the first cause that explains why there is no capacity, and
//! [`found`] lists all causes.

use regress::{Unfit, Why};
use serde::Serialize;
use trial::{Interval, NOTE_CAUSE, Trial};

use super::Standing;
use super::answers::{self, Answers};
use super::fit::Fitted;
use super::others::{DISTURBED_PART, IDLE_PART, full_cpus, idle_part, others_part};
use crate::format::{latency, percent, rate, thousands};

/// The cause that a generator on this machine was the limit.
pub(crate) const KIND_GENERATOR: &str = "generator_full";

/// A log of which more than this share of the lines was not understood has another format.
const BAD_LINES_PART: f64 = 0.5;
/// A generator's CPU time follows the rate at least with this correlation.
const OTHERS_FOLLOW: f64 = 0.8;
/// Rates from this part of the highest on are the highest, and there must be several.
const NEAR_HIGHEST: f64 = 0.85;
const TOP_MIN: usize = 3;
/// Other processes fill a CPU if they use this part of it.
const OTHERS_FILL: f64 = 0.9;
/// Below this use, it is not the server that limits.
const SERVER_HAS_ROOM: f64 = 0.9;
/// If more than this share of the latencies is invalid, the generator was the limit.
const INVALID_PART: f64 = 0.1;

/// Fewer connections that found an accept queue full are no cause: one client may repeat them.
const QUEUE_FULL_MIN: u64 = 10;

/// The loss that a recorder counts for each line that it did not understand.
const LINE_NOT_UNDERSTOOD: &str = "log: line not understood";
/// The losses of requests whose stamps are not in the time of the recording.
const STAMPED: [&str; 2] = ["log: stamped in the future", "log: stamped before the recording"];
/// The note with a line that was not understood.
const SUCH_A_LINE: &str = "a line that was not understood: ";

/// A cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// Its name, which is stable: `no_requests`, `constant_rate`.
    pub kind: &'static str,
    /// What happened.
    pub text: String,
    /// What to do next; empty if the text says it.
    pub advice: String,
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.advice.as_str() {
            "" => f.write_str(&self.text),
            advice => write!(f, "{}; {advice}", self.text),
        }
    }
}

/// What the checks look at.
struct Evidence<'a> {
    trial: &'a Trial,
    fit: &'a Fitted,
    requests: f64,
}

impl Evidence<'_> {
    fn lost(&self, kind: &str) -> u64 {
        let of_kind = self.trial.losses().iter().filter(|loss| loss.kind == kind);
        of_kind.map(|loss| loss.count).sum()
    }

    fn has_log(&self) -> bool {
        self.trial.manifest().log_path.is_some()
    }

    /// CPU time of the server, seconds.
    fn server_s(&self) -> f64 {
        let of_server = self.trial.intervals().iter().filter_map(|interval| interval.server);
        of_server.map(|server| server.total_ns as f64 / 1e9).sum()
    }
}

/// A check.
struct Check {
    kind: &'static str,
    explains: Explains,
    /// The sentence, if the cause is there.
    find: fn(&Evidence<'_>) -> Option<String>,
    advice: &'static str,
}

/// Whether a cause explains why there is no capacity. If there is one, the causes that do not
/// explain warn beside it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Explains {
    Yes,
    No,
    /// If nothing else does, and there is a line.
    Perhaps,
}

/// The checks, those first that explain the most.
const CHECKS: [Check; 14] = [
    Check { kind: "recorded", explains: Explains::Yes, find: recorded, advice: "" },
    Check {
        kind: "format_not_understood",
        explains: Explains::Yes,
        find: format_not_understood,
        advice: "give the format that the server's configuration has (--log-format), and try it on \
                 the log with plimsoll logs",
    },
    Check {
        kind: "stamps_elsewhere",
        explains: Explains::Yes,
        find: stamps_elsewhere,
        advice: "compare a line's time with the clock: the log is in another time zone, or the \
                 server's clock is wrong; a format whose stamps have a zone avoids this",
    },
    Check {
        kind: "log_not_written",
        explains: Explains::Yes,
        find: log_not_written,
        advice: "check that the server writes this file, without a buffer, and that it had \
                 requests",
    },
    Check {
        kind: "no_source",
        explains: Explains::Yes,
        find: no_source,
        advice: "record again with --access-log or --counter, or as root, so that requests are \
                 counted on the server's sockets",
    },
    Check {
        kind: "no_requests",
        explains: Explains::Yes,
        find: no_requests,
        advice: "record while it has some",
    },
    Check {
        kind: "constant_rate",
        explains: Explains::Yes,
        find: constant_rate,
        advice: "record while the load rises or falls, or let it rise: plimsoll load URL --rate \
                 LOW..HIGH",
    },
    Check {
        kind: "too_quiet",
        explains: Explains::Yes,
        find: too_quiet,
        advice: "record while it is busier, or let the load rise: plimsoll load URL --rate \
                 LOW..HIGH",
    },
    Check {
        kind: KIND_GENERATOR,
        explains: Explains::Perhaps,
        find: generator_full,
        advice: "give the generator more CPU time: more threads, or another machine",
    },
    Check {
        kind: "upstream_slower",
        explains: Explains::No,
        find: upstream_slower,
        advice: "the CPU's capacity is not reached while requests wait for it: record that server",
    },
    Check {
        kind: "accept_queue_full",
        explains: Explains::No,
        find: accept_queue_full,
        advice: "let the server accept sooner (more processes or threads that accept), or let more \
                 clients wait (the backlog of listen, and net.core.somaxconn)",
    },
    Check {
        kind: "neighbour",
        explains: Explains::No,
        find: neighbour,
        advice: "record again while nothing else needs the CPUs",
    },
    Check {
        kind: "exhausted_by_others",
        explains: Explains::Perhaps,
        find: exhausted_by_others,
        advice: "a request costs more beside other work; record again while that is quiet",
    },
    Check {
        kind: "generator",
        explains: Explains::No,
        find: generator,
        advice: "latencies of those intervals are not used; run the load on another machine, or \
                 lower its rate",
    },
];

/// The causes of a trial: the first that explains why there is no capacity, because it explains the
/// others of that kind too, and all that warn.
/// `of_cpu`: the capacity is that of the CPU; that of another resource needs no explanation.
pub(super) fn found(trial: &Trial, fit: &Fitted, of_cpu: bool) -> Vec<Cause> {
    let first = of(trial, fit, |explains| explains == Explains::Yes).next().filter(|_| of_cpu);
    let others = of(trial, fit, |explains| explains != Explains::Yes);
    first.into_iter().chain(others).collect()
}

/// The first cause that explains why there is no capacity.
pub(super) fn missing(trial: &Trial, fit: &Fitted) -> Option<Cause> {
    let perhaps = || of(trial, fit, |explains| explains == Explains::Perhaps).next();
    let first = of(trial, fit, |explains| explains == Explains::Yes).next();
    first.or_else(|| fit.line().and_then(|_| perhaps()))
}

fn of<'a>(
    trial: &'a Trial,
    fit: &'a Fitted,
    wanted: fn(Explains) -> bool,
) -> impl Iterator<Item = Cause> + 'a {
    let requests = trial.intervals().iter().map(|interval| interval.requests).sum();
    let evidence = Evidence { trial, fit, requests };
    CHECKS.iter().filter(move |check| wanted(check.explains)).filter_map(move |check| {
        let text = (check.find)(&evidence)?;
        Some(Cause { kind: check.kind, text, advice: check.advice.to_string() })
    })
}

/// What the recorder found itself, when it could still look at the log.
fn recorded(seen: &Evidence<'_>) -> Option<String> {
    let notes = &seen.trial.manifest().notes;
    let of_recorder = || notes.iter().find_map(|note| note.strip_prefix(NOTE_CAUSE));
    (seen.requests == 0.0).then(of_recorder).flatten().map(str::to_string)
}

fn format_not_understood(seen: &Evidence<'_>) -> Option<String> {
    let bad = seen.lost(LINE_NOT_UNDERSTOOD) as f64;
    let ended: u64 = seen.trial.intervals().iter().map(|interval| interval.requests_ended).sum();
    let lines = bad + ended as f64;
    if bad == 0.0 || bad < BAD_LINES_PART * lines {
        return None;
    }
    let manifest = seen.trial.manifest();
    let format = match &manifest.log_format {
        Some(format) => format!("the format {format} does not fit the log"),
        None => "the log has no format that is known".to_string(),
    };
    let line = manifest.notes.iter().find_map(|note| note.strip_prefix(SUCH_A_LINE));
    let such = line.map_or_else(String::new, |line| format!(", such as: {line}"));
    Some(format!(
        "{format}: {} of {} lines were not understood{such}",
        thousands(bad),
        thousands(lines)
    ))
}

fn stamps_elsewhere(seen: &Evidence<'_>) -> Option<String> {
    let [future, past] = STAMPED.map(|kind| seen.lost(kind));
    let (count, when) = if future > past { (future, "after") } else { (past, "before") };
    (count as f64 > seen.requests).then(|| {
        format!(
            "the log's stamps are not in the time of the recording: {} requests have one {when} it",
            thousands(count as f64)
        )
    })
}

fn log_not_written(seen: &Evidence<'_>) -> Option<String> {
    let path = seen.trial.manifest().log_path.as_ref().filter(|_| seen.requests == 0.0)?;
    let seconds = seen.server_s();
    let although = match seconds >= 0.01 {
        true => format!(", although the server used {seconds:.2} s of CPU time"),
        false => String::new(),
    };
    Some(format!("no line was written to {path} while it was recorded{although}"))
}

fn no_source(seen: &Evidence<'_>) -> Option<String> {
    let intervals = seen.trial.intervals();
    let never = !seen.has_log() && intervals.iter().all(|interval| !interval.rate_valid);
    (never && seen.requests == 0.0)
        .then(|| "requests were not counted: the recording has no source of them".to_string())
}

fn no_requests(seen: &Evidence<'_>) -> Option<String> {
    (seen.requests == 0.0).then(|| "the server had no requests".to_string())
}

fn constant_rate(seen: &Evidence<'_>) -> Option<String> {
    let rates = seen.fit.rates();
    let constant = match seen.fit.line() {
        Some(line) => match &line.capacity().identifiable {
            Err(Why::FewIntervals { carrying, n }) => format!(
                ", but for {carrying} of {n} intervals, and a line cannot rest on those alone"
            ),
            Err(Why::ConstantRate { .. }) => String::new(),
            _ => return None,
        },
        None if matches!(seen.fit.unfit(), Some(Unfit::Singular)) => String::new(),
        None => return None,
    };
    let middle = regress::median(&mut rates.to_vec());
    Some(format!("the rate was nearly constant, {} requests/s{constant}", rate(middle)))
}

fn too_quiet(seen: &Evidence<'_>) -> Option<String> {
    let Err(Why::TooQuiet { reach }) = seen.fit.line()?.capacity().identifiable else {
        return None;
    };
    let answers = answers::answers(seen.trial);
    let waits = match answers.as_ref().and_then(Answers::longest) {
        Some(longest) => format!("; a request waits {} meanwhile", longest.text()),
        None => String::new(),
    };
    let reach = percent(100.0 * reach);
    Some(format!("only {reach} % of its CPU time was used, too little for a capacity{waits}"))
}

fn upstream_slower(seen: &Evidence<'_>) -> Option<String> {
    let (peer, low, high) = answers::slower(seen.trial)?;
    let [low, high] = [low, high].map(latency);
    Some(format!(
        "at the highest rates a request waits {high} for {peer}, and at the lowest {low}: that \
         server is slow, or is asked by too many at once"
    ))
}

/// The generator is a process of this machine like any other. Its use of CPU time grows with the
/// rate until its CPUs are full, and the server's are not.
fn generator_full(seen: &Evidence<'_>) -> Option<String> {
    let intervals = seen.trial.intervals();
    let others = |interval: &Interval| {
        let seconds = interval.length_ns as f64 / 1e9;
        Some(others_part(interval)? * interval.machine.total_ns() as f64 / 1e9 / seconds)
    };
    let rows: Vec<&Interval> = seen.fit.rows().iter().map(|&row| &intervals[row]).collect();
    let (rates, cost) = (seen.fit.rates(), seen.fit.cost());
    let others: Vec<f64> = rows.iter().map(|row| others(row)).collect::<Option<_>>()?;
    if regress::ols(rates, &others).ok()?.correlation < OTHERS_FOLLOW {
        return None;
    }
    let highest = rates.iter().copied().fold(0.0, f64::max);
    let top: Vec<usize> =
        (0..rows.len()).filter(|&at| rates[at] >= NEAR_HIGHEST * highest).collect();
    let median = |of: &dyn Fn(usize) -> f64| {
        regress::median(&mut top.iter().map(|&at| of(at)).collect::<Vec<f64>>())
    };
    let used = median(&|at| cost[at] / seen.fit.cap());
    let full = median(&|at| full_cpus(rows[at]) as f64);
    let is_full = full >= 1.0 && median(&|at| others[at]) >= OTHERS_FILL * full;
    (top.len() >= TOP_MIN && used < SERVER_HAS_ROOM && is_full).then(|| {
        format!(
            "the load generator (or a server behind this one), not the server, was the limit: at \
             the highest rates other processes filled {full:.0} of {} CPUs, and the server used \
             {} % of what it can have",
            seen.trial.manifest().host.cpus,
            percent(100.0 * used)
        )
    })
}

/// The counters are those of network namespaces, which may have other servers.
fn accept_queue_full(seen: &Evidence<'_>) -> Option<String> {
    let times = trial::accept_queue_full(seen.trial.manifest())?;
    (times >= QUEUE_FULL_MIN).then(|| {
        format!(
            "{} attempts to connect (repeated ones included) found the accept queue of this \
             server, or of another server in its network namespace, full: such a client usually \
             waits for a second or more, however idle the CPU is",
            thousands(times as f64)
        )
    })
}

fn neighbour(seen: &Evidence<'_>) -> Option<String> {
    let disturbed = seen.fit.standings.iter().filter(|one| **one == Standing::Disturbed).count();
    let all = seen.fit.standings.len();
    (disturbed > 0 && exhausted_by_others(seen).is_none()).then(|| {
        format!(
            "in {disturbed} of {all} intervals other processes or the hypervisor took the CPU; \
             they are set aside"
        )
    })
}

fn exhausted_by_others(seen: &Evidence<'_>) -> Option<String> {
    let intervals = seen.trial.intervals();
    let exhausted = intervals.iter().filter(|interval| idle_part(interval) < Some(IDLE_PART));
    let of_others: Vec<f64> = exhausted.filter_map(others_part).collect();
    let part = of_others.len() as f64 / intervals.len().max(1) as f64;
    let mean = of_others.iter().sum::<f64>() / of_others.len().max(1) as f64;
    (part > DISTURBED_PART && mean > DISTURBED_PART).then(|| {
        format!(
            "other processes used {} % of the machine's CPU time, and none was left, in {} of {} \
             intervals",
            percent(100.0 * mean),
            of_others.len(),
            intervals.len()
        )
    })
}

fn generator(seen: &Evidence<'_>) -> Option<String> {
    let rows = seen.trial.latencies();
    let all: u64 = rows.iter().map(|row| row.count).sum();
    let invalid: u64 = rows.iter().filter(|row| row.invalid).map(|row| row.count).sum();
    (invalid as f64 > INVALID_PART * all as f64).then(|| {
        format!(
            "the load generator, not the server, was the limit: it may account for {invalid} of \
             {all} latencies"
        )
    })
}
