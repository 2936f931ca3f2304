//! The memory of a stored response with a body of 1,024 bytes.
//!
//! Each round starts every server afresh. A short run of misses makes the server allocate what it
//! has once. Then as many misses, each of a new URL, are sent to each server. The growth of the
//! server's own memory is divided by the number of responses. So the figure includes the body, the
//! head, which servers keep in different forms, and what the allocator adds. A server that stores
//! on disk (nginx) has only its index in memory; the pages of its files do not count.

use std::time::Duration;

use load::{Plan, Schedule, Tick};

use crate::measure::Context;
use crate::process;
use crate::servers::{Running, Server};
use crate::table::{self, Column, Rounds};

/// The name of the scenario.
pub(crate) const NAME: &str = "object_bytes";
const BODY_BYTES: u32 = 1024;
/// See [`table::from_fresh_starts`].
const OWN_FILES: u64 = 2;
/// A rate that every server reaches.
const REQUESTS_PER_S: f64 = 6000.0;
const WARM: Duration = Duration::from_millis(500);
/// About 36,000 responses, which fit into the memory of all servers.
const FILL: Duration = Duration::from_secs(6);
const CONNECTIONS: u32 = 16;

/// The column of its table.
pub(crate) const COLUMNS: &[Column<f64>] = &[("bytes", |bytes| *bytes, 0)];

/// One reading of a server.
struct Reading {
    stored: u64,
    memory: u64,
}

/// Measures the bytes of a stored response.
pub(crate) fn run(context: &Context<'_>, servers: &[&Server]) -> Result<Vec<Rounds<f64>>, String> {
    let servers = servers.iter().filter(|server| server.stores_objects());
    let servers: Vec<&Server> = servers.copied().collect();
    table::from_fresh_starts(context, (NAME, OWN_FILES), &servers, bytes_of_each)
}

fn bytes_of_each(context: &Context<'_>, running: &Running) -> Result<f64, String> {
    let before = fill(context, running, "warm", WARM)?;
    let after = fill(context, running, "fill", FILL)?;
    let growth = after.memory as f64 - before.memory as f64;
    Ok(growth / after.stored as f64)
}

/// Has the server store responses for so long, each under a new URL.
fn fill(
    context: &Context<'_>,
    running: &Running,
    of: &str,
    length: Duration,
) -> Result<Reading, String> {
    let addr = running.addr;
    let url = format!("http://{addr}/obj/4?size={BODY_BYTES}&new={{new}}&of={of}");
    let target = url.parse().map_err(|e| format!("{e}"))?;
    let mut plan = Plan::new(target, Schedule::Constant(REQUESTS_PER_S), length);
    plan.connections = CONNECTIONS;
    plan.population.size = load::Size::Fixed { bytes: BODY_BYTES.into() };
    plan.count_hits = false;
    plan.pin_cpu = Some(context.pace.cpu);
    let mut look = |_: &Tick<'_>| {};
    let outcome = load::run(&plan, context.stop, &mut look).map_err(|e| e.to_string())?;
    let counts = &outcome.counts;
    if counts.errors.total() > 0 || counts.completed < counts.started {
        return Err(format!("{} of {} requests completed", counts.completed, counts.started));
    }
    let memory = process::memory_bytes(&running.process.family());
    if memory == 0 {
        return Err("its memory is unknown".to_owned());
    }
    Ok(Reading { stored: counts.completed, memory })
}
