//! The CPU cost of our load generator, compared with wrk, against the null server.
//!
//! Both run alternately on one CPU with the same 64 connections. The figure is the CPU time of the
//! generator, not of the server, per completed request. A generator that costs more than the
//! servers cannot saturate them.

use std::process::{Command, Stdio};

use harness::peer::find;
use load::{Plan, Schedule, sys};

use crate::measure::{Context, HOT};
use crate::process;
use crate::servers::Running;

/// CPU microseconds per request and requests per second.
pub(crate) type Cost = (f64, f64);

/// Runs our generator.
pub(crate) fn own(server: &Running, context: &Context<'_>) -> Result<Cost, String> {
    let target = format!("http://{}/", server.addr).parse().map_err(|e| format!("{e}"))?;
    let mut plan = Plan::new(target, Schedule::ClosedLoop, context.pace.measured);
    (plan.connections, plan.pin_cpu) = (HOT, Some(context.pace.cpu));
    let outcome = load::run(&plan, context.stop, &mut |_| ()).map_err(|e| e.to_string())?;
    if outcome.counts.completed == 0 {
        return Err("no request was completed".to_owned());
    }
    Ok((outcome.cpu_per_request_us, outcome.rate()))
}

/// Runs wrk with one thread.
pub(crate) fn wrk(server: &Running, context: &Context<'_>) -> Result<Cost, String> {
    let program = find("wrk").ok_or("not installed: apt-get install wrk")?;
    let mut command = Command::new(program);
    let seconds = context.pace.measured.as_secs().max(1);
    command.args(["-t1", &format!("-c{HOT}"), &format!("-d{seconds}s")]);
    command.arg(format!("http://{}/", server.addr)).stdin(Stdio::null());
    process::confine(&mut command, context.pace.cpu);
    let before_ns = sys::children_cpu_ns();
    let output = command.output().map_err(|e| e.to_string())?;
    let cpu_ns = sys::children_cpu_ns() - before_ns;
    let text = String::from_utf8_lossy(&output.stdout);
    let requests = text.lines().find_map(|line| {
        let (count, rest) = line.trim().split_once(" requests in ")?;
        rest.contains("read").then(|| count.parse::<f64>().ok())?
    });
    let requests =
        requests.filter(|count| *count > 0.0).ok_or("wrk reported no number of requests")?;
    Ok((cpu_ns as f64 / 1e3 / requests, requests / seconds as f64))
}
