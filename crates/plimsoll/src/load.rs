//! `plimsoll load`: makes a plan from the flags, shows its progress, and prints its outcome.

use std::time::Duration;

use ::load::{Arrivals, ErrorKind, Outcome, Phase, Plan, Protocol, Target, Tick};
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
    let us = |ns: u64| format!("{:.3} ms", ns as f64 / 1e6);
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
    let latency = &outcome.latency;
    if latency.count > 0 {
        lines.push(format!(
            "latency     median {}, p90 {}, p99 {}, p99.9 {}, max {} \
             (from the intended start, n = {})",
            us(latency.p50_ns),
            us(latency.p90_ns),
            us(latency.p99_ns),
            us(latency.p999_ns),
            us(latency.max_ns),
            latency.count
        ));
    }
    if outcome.rows_behind > 0 {
        lines.push(format!(
            "NOT VALID   the generator fell behind in {} of {} seconds, whose latencies are \
             excluded; try a lower rate, or a dedicated CPU (--cpu, --busy-poll)",
            outcome.rows_behind,
            outcome.rows.len()
        ));
    }
    if outcome.plan.cold > 0 {
        lines.push(format!(
            "cold        {} open at the start, {} closed by the server",
            outcome.cold_open, counts.cold_closed
        ));
    }
    lines.push(format!("generator   {:.2} us of CPU per request", outcome.cpu_per_request_us));
    lines.join("\n") + "\n"
}
