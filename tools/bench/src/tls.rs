//! The memory of a silent connection over TLS.
//!
//! Each round starts every server afresh, because memory that earlier connections gave back would
//! be used again and not be seen. One connection makes the server allocate what it has once. Then
//! the connections make their handshakes and stay silent, and the growth of the server's own memory
//! is divided by their number. Memory of the kernel is not counted.

use std::time::Duration;

use load::{Phase, Plan, Schedule, Tick};
use serde::Serialize;

use crate::measure::Context;
use crate::process;
use crate::servers::{Running, Server};
use crate::table::spread_text;

/// The name of the scenario.
pub(crate) const NAME: &str = "tls_silent";
const SILENT: u32 = 2000;
const PATH: &str = "/obj/1?size=1024";
/// The body size in the name of its directory, which keeps its files apart from other scenarios.
const OWN_FILES: u64 = 1;
/// How long the connections are silent. One more carries a few requests in this time.
const SILENCE: Duration = Duration::from_secs(1);
const REQUESTS_PER_S: f64 = 10.0;

/// All rounds of one server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Silent {
    pub(crate) server: &'static str,
    /// Bytes of each connection, by round.
    pub(crate) bytes: Vec<f64>,
    pub(crate) note: Option<String>,
}

pub(crate) fn run(context: &Context<'_>, servers: &[&Server]) -> Result<Vec<Silent>, String> {
    let with_tls = servers.iter().filter(|server| server.has_tls());
    let empty = |server: &Server| Silent { server: server.name, bytes: Vec::new(), note: None };
    let mut rows: Vec<_> = with_tls.map(|server| (empty(server), *server)).collect();
    for round in 1..=context.rounds {
        for (row, server) in &mut rows {
            context.check_stop()?;
            let measured = server
                .start(context.ground, OWN_FILES)
                .and_then(|running| bytes_of_each(context, &running));
            eprintln!("round {round}/{} {NAME} {:<24} {measured:?}", context.rounds, row.server);
            match measured {
                Ok(bytes) => row.bytes.push(bytes),
                Err(why) => row.note = Some(why),
            }
        }
    }
    Ok(rows.into_iter().map(|(row, _)| row).collect())
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

/// The rows as a table.
pub(crate) fn table(rows: &[Silent]) -> comfy_table::Table {
    let mut table = crate::table::plain(&["server", "bytes", "note"]);
    for row in rows {
        let bytes = spread_text(row.bytes.iter().copied(), 0);
        table.add_row(vec![row.server.to_owned(), bytes, row.note.clone().unwrap_or_default()]);
    }
    table
}
