//! The CPU cost of our load generator, compared with wrk, against the null server.
//!
//! Both run alternately on one CPU with the same 64 connections. The figure is the CPU time of the
//! generator, not of the server, per completed request. A generator that costs more than the
//! servers cannot saturate them.

use std::io;
use std::sync::atomic::AtomicBool;
use std::thread;

use harness::wrk;
use load::{Outcome, Plan, Schedule, sys};
use serde::Serialize;

use crate::measure::Context;
use crate::scenarios::HOT;
use crate::servers::{Kind, Running, Server};
use crate::table::{self, Column, Rounds};

/// The scenario that measures the generators instead of the servers.
pub(crate) const NAME: &str = "generator";

/// What a generator costs.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Cost {
    /// CPU time per request, microseconds.
    cpu_us: f64,
    /// Requests per second.
    rate: f64,
}

/// The columns of the table.
pub(crate) const COLUMNS: &[Column<Cost>] =
    &[("CPU us per request", |cost| cost.cpu_us, 2), ("requests/s", |cost| cost.rate, 0)];

/// Runs our generator and wrk alternately against the null server.
pub(crate) fn run(context: &Context<'_>, servers: &[&Server]) -> Result<Vec<Rounds<Cost>>, String> {
    let null = servers.iter().find(|server| server.kind == Kind::Null);
    let null = null.expect("the floor always runs").start(context.ground, 1024)?;
    let mut rows = ["plimsoll load", "wrk"].map(Rounds::none_yet);
    let generators = [own, wrk];
    table::in_rounds(context, NAME, &mut rows, |at, _| Some(generators[at](&null, context)))?;
    Ok(rows.to_vec())
}

/// Runs our generator.
fn own(server: &Running, context: &Context<'_>) -> Result<Cost, String> {
    let target = format!("http://{}/", server.addr).parse().map_err(|e| format!("{e}"))?;
    let mut plan = Plan::new(target, Schedule::ClosedLoop, context.pace.measured);
    (plan.connections, plan.pin_cpu) = (HOT, Some(context.pace.cpu));
    let outcome = load::run(&plan, context.stop, &mut |_| ()).map_err(|e| e.to_string())?;
    if outcome.counts.completed == 0 {
        return Err("no request was completed".to_owned());
    }
    Ok(Cost { cpu_us: outcome.cpu_per_request_us, rate: outcome.rate() })
}

/// Runs wrk with one thread.
fn wrk(server: &Running, context: &Context<'_>) -> Result<Cost, String> {
    let url = format!("http://{}/", server.addr);
    let seconds = context.pace.measured.as_secs().max(1);
    let before_ns = sys::children_cpu_ns();
    let report = wrk::run(&url, HOT, seconds, Some(context.pace.cpu), &[], context.stop)?;
    let cpu_ns = sys::children_cpu_ns() - before_ns;
    Ok(Cost { cpu_us: cpu_ns as f64 / 1e3 / report.requests, rate: report.rate })
}

/// Runs our generator on a thread that `priority` puts before others, for latencies that it does
/// not cause.
pub(crate) fn ahead(
    plan: &Plan,
    stop: &AtomicBool,
    priority: fn() -> io::Result<()>,
) -> Result<Outcome, String> {
    let measured = || {
        priority().map_err(|e| format!("no priority for the generator: {e}; try as root"))?;
        load::run(plan, stop, &mut |_| ()).map_err(|e| e.to_string())
    };
    thread::scope(|scope| scope.spawn(measured).join())
        .unwrap_or_else(|_| Err("the generator's thread panicked".to_owned()))
}
