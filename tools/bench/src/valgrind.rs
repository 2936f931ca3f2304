//! Our server under valgrind, which makes it twenty to fifty times slower.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use harness::peer::{Peer, find};

use crate::process;

/// The CPU of the server.
const SERVER_CPU: usize = 0;
/// How long it may take to start, to end and to answer.
pub(crate) const START_MAX: Duration = Duration::from_secs(60);
pub(crate) const END_MAX: Duration = Duration::from_secs(300);
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(30);

/// How the server is configured.
pub(crate) struct Settings<'s> {
    pub(crate) workers: usize,
    /// Appended to the configuration.
    pub(crate) more: &'s str,
}

/// Starts it, and waits until it listens. `tool` are the flags of valgrind.
///
/// # Errors
/// One line that says why it does not.
pub(crate) fn start(
    tool: &[String],
    program: &Path,
    (addr, origin): (SocketAddr, SocketAddr),
    Settings { workers, more }: &Settings<'_>,
    dir: &Path,
) -> Result<Peer, String> {
    let valgrind = find("valgrind")
        .ok_or("not supported here: valgrind is not installed (apt-get install valgrind)")?;
    if !program.is_file() {
        return Err(format!("not built: {}", program.display()));
    }
    let config = dir.join("plimsoll.toml");
    // Valgrind makes the server slow, so shedding is off and timeouts are long.
    let text = format!(
        "[server]\nworkers = {workers}\nbackend = \"epoll\"\n\n[[listen]]\naddress = \"{addr}\"\n\n\
         [[upstream]]\nname = \"origin\"\n\n[[upstream.server]]\nurl = \"http://{origin}\"\n\n\
         [limits]\noverload_shed = false\nidle_keep_alive = \"1h\"\nhead_timeout = \"1h\"\n{more}"
    );
    fs::create_dir_all(dir)
        .and_then(|()| fs::write(&config, text))
        .map_err(|e| format!("{}: {e}", config.display()))?;
    let mut command = Command::new(valgrind);
    command.args(tool).arg(program).args(["serve", "-c"]).arg(&config);
    if *workers > 1 {
        // glibc has eight arenas for each CPU. On a machine with a CPU for each worker, no two
        // workers need to share one.
        command.env("GLIBC_TUNABLES", format!("glibc.malloc.arena_max={}", 8 * workers));
    }
    let mut server = process::launch(command, dir, SERVER_CPU)?;
    server.wait_for(addr, START_MAX).map_err(|why| format!("the server: {why}"))?;
    Ok(server)
}
