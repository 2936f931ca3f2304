//! `plimsoll serve`, and the two small servers of experiments.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proxy::{Config, LogTo, LogWriter, Origin, Server};
use readiness::Choice;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::cli;
use crate::failure::{Failure, misuse};

/// Runs the server until SIGTERM or SIGINT, and lets requests under way finish.
pub(crate) fn serve(flags: &cli::Serve) -> Result<(), Failure> {
    let _ = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("PLIMSOLL_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn")),
        )
        .try_init();
    ::load::sys::raise_descriptor_limit().map_err(|e| misuse(format!("descriptor limit: {e}")))?;
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1])
        .map_err(|error| misuse(format!("signals cannot be watched: {error}")))?;
    let config = config(flags)?;
    for &address in &flags.listen {
        free(address)?;
    }
    let workers = flags.workers.map_or_else(cpus, usize::from);
    let choice = flags.backend.map_or(Choice::Preferred, Choice::Named);
    let options = runtime::Options::default().with_backend(choice).with_pin_cpu(flags.cpu);
    let server =
        Server::start(config, workers, flags.admin, log(flags)?, &options).map_err(misuse)?;
    announce(flags, &server);
    let stopper = server.stopper();
    let watching = std::thread::scope(|scope| {
        scope
            .spawn(|| {
                for signal in signals.forever() {
                    match signal {
                        SIGHUP | SIGUSR1 => server.reopen_log(),
                        _ => {
                            stopper.stop();
                            return;
                        }
                    }
                }
            })
            .join()
    });
    let lost = server.wait();
    if watching.is_err() {
        return Err(misuse("the signals' thread failed"));
    }
    if lost > 0 {
        return Err(Failure::Found(format!("{lost} access log lines were lost")));
    }
    Ok(())
}

/// Asks whether anybody listens there. The cores share a port (SO_REUSEPORT), and a second server
/// of the same user would silently share it too and take half of the first one's connections.
fn free(address: SocketAddr) -> Result<(), Failure> {
    match std::net::TcpListener::bind(address) {
        Ok(_) => Ok(()),
        Err(error) => Err(in_use(address, &error)),
    }
}

fn config(flags: &cli::Serve) -> Result<Config, Failure> {
    let mut config = match &flags.origin {
        Some(url) => Config::reverse(Origin::from_url(url).map_err(misuse)?, &flags.listen),
        None => Config::forward(&flags.listen),
    };
    config.memory_bytes = flags.memory;
    config.log_format = flags.log_format.clone();
    Ok(config)
}

fn log(flags: &cli::Serve) -> Result<LogTo, Failure> {
    match &flags.access_log {
        None => Ok(LogTo::Off),
        Some(path) if path.as_os_str() == "-" => Ok(LogTo::Off),
        Some(path) => LogWriter::open(path).map(LogTo::Writer).map_err(|error| {
            misuse(format!("the access log {} cannot be written: {error}", path.display()))
        }),
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn announce(flags: &cli::Serve, server: &Server) {
    let bound = server.bound();
    if flags.json {
        let line = serde_json::json!({
            "listen": bound.listen,
            "admin": bound.admin,
            "backend": bound.backend.to_string(),
            "pid": std::process::id(),
        });
        tell(&line);
        return;
    }
    for address in &bound.listen {
        eprintln!("plimsoll: listening on {address} ({})", bound.backend);
    }
    if let Some(admin) = bound.admin {
        eprintln!("plimsoll: metrics on http://{admin}/metrics");
    }
}

/// A line of JSON on stdout. Whoever reads it may have gone already: the server serves on.
fn tell(line: &serde_json::Value) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// A flag that SIGTERM and SIGINT raise.
pub(crate) fn stop_on_signal() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| misuse(format!("signals cannot be watched: {error}")))?;
    }
    Ok(stop)
}

/// `plimsoll origin`
pub(crate) fn origin(flags: &cli::Origin) -> Result<(), Failure> {
    prepare(flags.cpu)?;
    let origin =
        ::load::Origin::bind(flags.listen).map_err(|error| in_use(flags.listen, &error))?;
    let stop = stop_on_signal()?;
    tell(&serde_json::json!({ "listen": [origin.local_addr()] }));
    origin.run(&stop).map_err(misuse)?;
    stop.store(true, Ordering::Relaxed);
    Ok(())
}

/// `plimsoll null-server`
pub(crate) fn null_server(flags: &cli::NullServer) -> Result<(), Failure> {
    prepare(flags.cpu)?;
    let size = usize::try_from(flags.size).map_err(misuse)?;
    let server = ::load::NullServer::bind(flags.listen, size)
        .map_err(|error| in_use(flags.listen, &error))?;
    let stop = stop_on_signal()?;
    tell(&serde_json::json!({ "listen": [server.local_addr()] }));
    server.run(&stop).map_err(misuse)?;
    Ok(())
}

fn prepare(cpu: Option<usize>) -> Result<(), Failure> {
    ::load::sys::raise_descriptor_limit().map_err(|e| misuse(format!("descriptor limit: {e}")))?;
    if let Some(cpu) = cpu {
        pin(cpu)?;
    }
    Ok(())
}

/// Stays on this CPU.
pub(crate) fn pin(cpu: usize) -> Result<(), Failure> {
    ::load::sys::pin_to_cpu(cpu).map_err(|error| {
        let last = cpus() - 1;
        misuse(format!("cannot run on CPU {cpu}: {error}; choose one from 0 to {last}"))
    })
}

fn in_use(address: SocketAddr, error: &std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::AddrInUse {
        misuse(format!("{address} is in use: stop what listens there, or choose another port"))
    } else {
        misuse(format!("cannot listen on {address}: {error}"))
    }
}
