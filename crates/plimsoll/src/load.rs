//! `plimsoll load`: makes a plan from the flags, shows its progress, and prints its outcome.

use std::time::Duration;

use ::load::{
    Arrivals, ErrorKind, Latency, Outcome, Phase, Plan, Protocol, Schedule, Target, Tick,
};
use command::failure::{Failure, misuse};
use command::output::{self, Pending};
use command::stop_on_signal;
use indicatif::ProgressBar;

use crate::serve::pin;
use crate::{cli, progress};

/// Drives the load and prints the outcome.
pub(crate) fn load(flags: &cli::Load) -> Result<(), Failure> {
    let plan = plan(flags)?;
    let output = flags.output.as_deref().map(Pending::new).transpose()?;
    // The generator would do this itself, but its error would not name the flag.
    plan.pin_cpu.map(pin).transpose()?;
    let stop = stop_on_signal()?;
    let length = plan.duration;
    let bar = ProgressBar::new(length.as_millis() as u64);
    let bar = progress::bar(bar, "{bar:40} {msg}", flags.json);
    let outcome = ::load::run(&plan, &stop, &mut |tick| show(&bar, length, tick));
    let outcome = outcome.map_err(|error| match error {
        ::load::Error::Unreachable { .. } => {
            misuse(format!("{error}; start the server, or one to try with: plimsoll origin"))
        }
        _ => misuse(error),
    })?;
    bar.finish_and_clear();
    if let Some(output) = output {
        output.write(serde_json::to_string_pretty(&outcome).map_err(misuse)?)?;
    }
    output::show(flags.json, &outcome, summary)?;
    if outcome.counts.completed == 0 {
        return Err(misuse(match plan.protocol {
            _ if outcome.counts.errors.bad_status > 0 => {
                "all answers had an error status (4xx or 5xx): is the URL right?"
            }
            Protocol::Http2 { .. } if !plan.target.tls => {
                "no request was answered: does the server speak HTTP/2 in the clear?"
            }
            _ => "no request was answered: is the server running?",
        }));
    }
    Ok(())
}

fn plan(flags: &cli::Load) -> Result<Plan, Failure> {
    let mut target: Target = flags.url.parse().map_err(misuse)?;
    if flags.objects.is_some() {
        target.path = format!("{}/obj/{{n}}?size={{size}}", target.path.trim_end_matches('/'));
    }
    if let Some(proxy) = flags.proxy {
        target = target.through(proxy);
    }
    let mut plan = Plan::new(target, flags.rate.clone(), flags.duration);
    plan.arrivals = if flags.even { Arrivals::Deterministic } else { Arrivals::Poisson };
    plan.connections = flags.connections;
    plan.cold = flags.cold;
    plan.keep_alive = !flags.no_keep_alive;
    let streams = flags.streams;
    if flags.http2 {
        plan.protocol = Protocol::Http2 { streams };
    } else if flags.http3 {
        plan.protocol = Protocol::Http3 { streams };
    }
    plan.ca = flags.ca.clone();
    plan.fields.clone_from(&flags.fields);
    if let Some(objects) = flags.objects {
        plan.population.objects = objects;
        plan.population.zipf_s = flags.zipf;
    }
    plan.population.size = flags.size;
    plan.seed = flags.seed;
    plan.busy_poll = flags.busy_poll;
    plan.timeout = flags.timeout;
    plan.pin_cpu = flags.cpu;
    Ok(plan)
}

/// Shows the state of a load of this length.
fn show(bar: &ProgressBar, length: Duration, tick: &Tick<'_>) {
    let elapsed = match tick.phase {
        Phase::Opening => Duration::ZERO,
        Phase::Running => tick.elapsed,
        Phase::Draining => length,
    };
    bar.set_position(elapsed.as_millis() as u64);
    bar.set_message(match tick.phase {
        Phase::Opening => format!("opening connections: {}", tick.open),
        Phase::Running | Phase::Draining => {
            let rate = tick.counts.completed as f64 / elapsed.as_secs_f64().max(0.1);
            format!("{:.0} requests/s, {} errors", rate, tick.counts.errors.total())
        }
    });
}

fn summary(outcome: &Outcome) -> String {
    let counts = &outcome.counts;
    let seconds = outcome.length_ns as f64 / 1e9;
    let shared = |version, streams| {
        let connections = outcome.plan.connections;
        format!(", {version}, {connections} connections with up to {streams} requests each")
    };
    let protocol = match outcome.plan.protocol {
        Protocol::Http1 => String::new(),
        Protocol::Http2 { streams } => shared("HTTP/2", streams),
        Protocol::Http3 { streams } => shared("HTTP/3", streams),
    };
    let mut lines = vec![
        format!("target      {}{protocol}", outcome.plan.target),
        format!(
            "requests    {} started, {} answered in {seconds:.1} s: {:.0}/s",
            counts.started,
            counts.completed,
            outcome.rate()
        ),
    ];
    lines.extend(unfinished(outcome));
    let errors: Vec<String> = ErrorKind::ALL
        .iter()
        .map(|&kind| (kind.name(), counts.errors.of(kind)))
        .filter(|(_, n)| *n > 0)
        .map(|(name, n)| format!("{name} {n}"))
        .collect();
    lines.push(format!(
        "errors      {}",
        if errors.is_empty() { "none".to_owned() } else { errors.join(", ") }
    ));
    if let Some(ratio) = counts.hit_ratio() {
        lines.push(format!("hits        {:.1} % of answers with a cache status", 100.0 * ratio));
    }
    lines.extend(latencies(outcome));
    if outcome.plan.cold > 0 {
        lines.push(format!(
            "cold        {} open at the start, {} closed by the server",
            outcome.cold_open, counts.cold_closed
        ));
    }
    lines.push(format!("generator   {:.2} us of CPU per request", outcome.cpu_per_request_us));
    lines.join("\n") + "\n"
}

/// The requests that are in no latency, because they had no answer when the time was over.
fn unfinished(outcome: &Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    if outcome.unstarted > 0 {
        lines.push(format!(
            "not started {} of {}: all connections were busy until the end; the oldest had waited \
             for {}, which is in no latency",
            outcome.unstarted,
            outcome.counts.intended,
            ms(outcome.unstarted_waited_ns)
        ));
    }
    if outcome.in_flight > 0 {
        lines.push(format!(
            "unanswered  {} when the load ended, which are in no latency",
            outcome.in_flight
        ));
    }
    lines
}

/// The latencies that count, beside those that do not and why.
fn latencies(outcome: &Outcome) -> Vec<String> {
    let quantiles = |latency: &Latency| {
        format!(
            "median {}, p90 {}, p99 {}, p99.9 {}, max {}",
            ms(latency.p50_ns),
            ms(latency.p90_ns),
            ms(latency.p99_ns),
            ms(latency.p999_ns),
            ms(latency.max_ns)
        )
    };
    let mut lines = Vec::new();
    let (kept, left_out) = (&outcome.latency, &outcome.latency_invalid);
    let from = match outcome.plan.schedule {
        Schedule::ClosedLoop => "from the start",
        _ => "from the intended start",
    };
    if kept.count > 0 {
        lines.push(format!("latency     {} ({from}, n = {})", quantiles(kept), kept.count));
    }
    if left_out.count > 0 {
        lines.push(format!("excluded    {} (n = {})", quantiles(left_out), left_out.count));
        // A histogram that was just made can be read.
        if let Ok(all) = outcome.all_latencies() {
            let at_most = "at most, whatever the generator's part";
            lines.push(format!("together    {} ({at_most}, n = {})", quantiles(&all), all.count));
        }
    }
    if outcome.rows_behind > 0 {
        let lag_ns = outcome.rows.iter().map(|row| row.lag_max_ns).max().unwrap_or_default();
        lines.push(format!(
            "NOT VALID   the excluded latencies: the generator fell behind in {} of {} seconds, by \
             up to {}, and may account for more than a fifth of each; {}",
            outcome.rows_behind,
            outcome.rows.len(),
            ms(lag_ns),
            advice(&outcome.plan)
        ));
    }
    lines
}

fn ms(ns: u64) -> String {
    format!("{:.3} ms", ns as f64 / 1e6)
}

/// What makes the generator keep up, besides what was already done.
fn advice(plan: &Plan) -> String {
    let less = match (&plan.schedule, plan.connections) {
        (Schedule::ClosedLoop, 1) => None,
        (Schedule::ClosedLoop, _) => Some("fewer --connections"),
        _ => Some("a lower --rate"),
    };
    let flag = match (plan.pin_cpu, plan.busy_poll) {
        (None, false) => Some("a CPU that the server does not use (--cpu, --busy-poll)"),
        (None, true) => Some("a CPU that the server does not use (--cpu)"),
        (Some(_), false) => Some("--busy-poll"),
        (Some(_), true) => None,
    };
    let all: Vec<&str> = less.into_iter().chain(flag).chain(["another machine"]).collect();
    format!("try {}", all.join(", or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_is_something_that_was_not_done_and_can_be_done() {
        let target = "http://127.0.0.1:1/".parse().unwrap();
        let mut plan = Plan::new(target, Schedule::Constant(1.0), Duration::from_secs(1));
        assert!(advice(&plan).starts_with("try a lower --rate, or a CPU"), "{}", advice(&plan));
        plan.schedule = Schedule::ClosedLoop;
        assert!(advice(&plan).starts_with("try fewer --connections, or a CPU"));
        plan.connections = 1;
        plan.pin_cpu = Some(1);
        assert_eq!(advice(&plan), "try --busy-poll, or another machine");
        plan.busy_poll = true;
        assert_eq!(advice(&plan), "try another machine");
    }
}
