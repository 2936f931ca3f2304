//! The memory of a silent connection over TLS.
//!
//! Each round starts every server afresh, because memory that earlier connections gave back would
//! be used again and not be seen. One connection makes the server allocate what it has once. Then
//! the connections make their handshakes and stay silent, and the growth of the server's own memory
//! is divided by their number. Memory of the kernel is not counted.

use std::time::Duration;

use load::{Phase, Plan, Schedule, Tick};

use crate::measure::Context;
use crate::process;
use crate::servers::{Running, Server};
use crate::table::{self, Column, Rounds};

/// The name of the scenario.
pub(crate) const NAME: &str = "tls_silent";
const SILENT: u32 = 2000;
const PATH: &str = "/obj/1?size=1024";
/// See [`table::from_fresh_starts`].
const OWN_FILES: u64 = 1;
/// How long the connections are silent. One more carries a few requests in this time.
const SILENCE: Duration = Duration::from_secs(1);
const REQUESTS_PER_S: f64 = 10.0;

/// Measures the bytes of a connection.
pub(crate) fn run(context: &Context<'_>, servers: &[&Server]) -> Result<Vec<Rounds<f64>>, String> {
    let servers = servers.iter().filter(|server| server.has_tls());
    let servers: Vec<&Server> = servers.copied().collect();
    table::from_fresh_starts(context, (NAME, OWN_FILES), &servers, bytes_of_each)
}

fn bytes_of_each(context: &Context<'_>, running: &Running) -> Result<f64, String> {
    let before = memory_beside(context, running, 0)?;
    let after = memory_beside(context, running, SILENT)?;
    Ok((after as f64 - before as f64) / f64::from(SILENT))
}

/// The server's memory at the end of a silence of this many connections.
fn memory_beside(context: &Context<'_>, running: &Running, silent: u32) -> Result<u64, String> {
    let target = format!("https://{}{PATH}", running.tls).parse().map_err(|e| format!("{e}"))?;
    let mut plan = Plan::new(target, Schedule::Constant(REQUESTS_PER_S), SILENCE);
    (plan.connections, plan.cold) = (1, silent);
    plan.pin_cpu = Some(context.pace.cpu);
    let family = running.process.family();
    let mut memory = 0;
    let mut look = |tick: &Tick<'_>| {
        if tick.phase == Phase::Running {
            memory = process::memory_bytes(&family);
        }
    };
    let outcome = load::run(&plan, context.stop, &mut look).map_err(|e| e.to_string())?;
    let closed = outcome.counts.cold_closed;
    if closed > 0 || outcome.cold_open < u64::from(silent) {
        return Err(format!("{} silent connections, {closed} closed", outcome.cold_open));
    }
    if memory == 0 { Err("its memory is unknown".to_owned()) } else { Ok(memory) }
}

/// The columns of the table.
pub(crate) const COLUMNS: &[Column<f64>] = &[("bytes", |bytes| *bytes, 0)];
