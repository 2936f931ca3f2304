//! `plimsoll serve`, and the two small servers for experiments.

mod origins;

use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
#[cfg(feature = "measure")]
use std::sync::atomic::Ordering;
use std::time::Duration;

use ::config::UpstreamTls;
use command::failure::{Failure, misuse};
#[cfg(feature = "measure")]
use command::stop_on_signal;
use readiness::Choice;
use runtime::net;
use runtime::process::{self, Identity, Predecessor, ServiceState};
use server::{
    ClientTls, Config, DiskConfig, LogTo, Order, Orders, Origin, Renewal, Server, Settings, Sockets,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

use crate::cli;

/// Runs the server until SIGTERM or SIGINT, then lets requests in flight finish.
pub(crate) fn serve(flags: &cli::Serve) -> Result<(), Failure> {
    let predecessor = Predecessor::find();
    let served = serve_until_signal(flags, predecessor.as_ref());
    if let (Err(failure), Some(predecessor)) = (&served, predecessor) {
        // The process that this one was to replace continues, and reports why.
        predecessor.report_failure(&failure.to_string());
    }
    served
}

fn serve_until_signal(
    flags: &cli::Serve,
    predecessor: Option<&Predecessor>,
) -> Result<(), Failure> {
    let _ = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("PLIMSOLL_LOG")
                .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn")),
        )
        .try_init();
    ::load::sys::raise_descriptor_limit().map_err(|e| misuse(format!("descriptor limit: {e}")))?;
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2])
        .map_err(|error| misuse(format!("cannot install a signal handler: {error}")))?;
    let plan = Plan::new(flags)?;
    let workers = plan.workers.unwrap_or_else(cpus);
    let choice = plan.backend.map_or(Choice::Preferred, Choice::Named);
    let options = runtime::Options::default().with_backend(choice).with_pin_cpu(flags.cpu);
    let sockets = sockets(&plan.config, plan.admin, workers)?;
    // From here on, run with the privileges that serving needs.
    plan.give_up_privileges()?;
    let syslog = plan.file.as_ref().and_then(|(_, settings)| settings.syslog.as_ref());
    let log = LogTo::open(plan.access_log.as_deref(), syslog).map_err(misuse)?;
    // The only thread so far is this one, whose panic ends the process anyway.
    server::end_process_at_panic(&log);
    let has_token = plan.config.dashboard_token.is_some();
    let server = Server::start_on(sockets, plan.config, workers, log, &options, predecessor);
    let server = server.map_err(misuse)?;
    announce(flags, &server, has_token);
    if !flags.json {
        origins::try_in_background(flags.origin.clone());
    }
    serving(predecessor)?;
    let (orders, handle, from_file) = (server.orders(), signals.handle(), plan.file.is_some());
    let watching = std::thread::Builder::new()
        .name("signals".into())
        .spawn(move || obey(signals, &orders, from_file))
        .map_err(misuse)?;
    let mut config = || read_again(plan.file.as_ref());
    let (program, patience) = (program(), RESTART_PATIENCE);
    let lost = server.run(Renewal { config: &mut config, program, patience });
    handle.close();
    if watching.join().is_err() {
        return Err(misuse("the signal thread panicked"));
    }
    if lost > 0 {
        return Err(Failure::CheckFailed(format!("{lost} access log lines were lost")));
    }
    Ok(())
}

/// The server to run, from flags or from a file.
struct Plan {
    config: Config,
    workers: Option<usize>,
    backend: Option<readiness::Kind>,
    admin: Option<SocketAddr>,
    access_log: Option<PathBuf>,
    identity: Option<Identity>,
    /// The file, and its settings when the process started.
    file: Option<(PathBuf, Settings)>,
}

impl Plan {
    fn new(flags: &cli::Serve) -> Result<Plan, Failure> {
        let Some(path) = &flags.config else {
            let access_log = flags.access_log.clone().filter(|path| path.as_os_str() != "-");
            return Ok(Plan {
                config: config(flags)?,
                workers: flags.workers.map(usize::from),
                backend: flags.backend,
                admin: flags.admin,
                access_log,
                identity: None,
                file: None,
            });
        };
        let path = std::path::absolute(path).map_err(misuse)?;
        let mut settings = Settings::read(&path).map_err(misuse)?;
        let unmet = server::dry::unmet(&settings.config);
        if !unmet.is_empty() {
            return Err(misuse(format!("{}: {}", path.display(), unmet.join("\n"))));
        }
        let without_address = server::look_up_names(&mut settings.config);
        for warning in settings.config.warnings().into_iter().chain(without_address) {
            eprintln!("plimsoll: {warning}");
        }
        let process = settings.process.clone();
        let identity = process
            .user
            .map(|user| Identity::find(&user, process.group.as_deref()))
            .transpose()
            .map_err(misuse)?;
        Ok(Plan {
            config: settings.config.clone(),
            workers: process.workers,
            backend: process.backend,
            admin: process.admin,
            access_log: settings.access_log.clone(),
            identity,
            file: Some((path, settings)),
        })
    }

    /// Switches to the configured user. If the access log does not exist, it is created first and
    /// given to that user; the owner of an existing log does not change.
    fn give_up_privileges(&self) -> Result<(), Failure> {
        let Some(identity) = &self.identity else { return Ok(()) };
        if let (Some(path), true) = (&self.access_log, process::is_root())
            && let Ok(file) = std::fs::File::options().create_new(true).append(true).open(path)
        {
            std::os::unix::fs::fchown(&file, Some(identity.uid()), Some(identity.gid()))
                .map_err(|error| misuse(format!("{}: {error}", path.display())))?;
        }
        identity.assume().map_err(misuse)
    }
}

/// The current configuration of the file, and notes about changes that need a restart.
fn read_again(file: Option<&(PathBuf, Settings)>) -> Result<(Config, Vec<String>), String> {
    let Some((path, now)) = file else {
        return Err("this server was started from flags, so there is no file to reload".to_owned());
    };
    let mut then = Settings::read(path).map_err(|unusable| unusable.in_one_line())?;
    let unmet = server::dry::unmet(&then.config);
    if !unmet.is_empty() {
        return Err(unmet.join("; "));
    }
    let without_address = server::look_up_names(&mut then.config);
    let waiting = now.only_at_restart(&then).into_iter();
    let notes = waiting.map(|key| format!("{key} keeps its value until a restart"));
    let notes = notes.chain(then.config.warnings()).chain(without_address).collect();
    Ok((then.config, notes))
}

/// Turns signals into orders.
fn obey(mut signals: Signals, orders: &Orders, from_file: bool) {
    for signal in signals.forever() {
        orders.give(match signal {
            SIGHUP if from_file => Order::Reload,
            SIGHUP | SIGUSR1 => Order::ReopenLog,
            SIGUSR2 => Order::Restart,
            _ => Order::Stop,
        });
    }
}

/// The listening sockets: those inherited from a supervisor or from the process that this one
/// replaces, and the rest.
fn sockets(config: &Config, admin: Option<SocketAddr>, workers: usize) -> Result<Sockets, Failure> {
    let inherited = process::inherited();
    for refused in inherited.refused {
        eprintln!("plimsoll: {refused}");
    }
    let (mut sockets, unused) =
        Sockets::bind(&config.listeners, admin, workers, inherited.listeners).map_err(misuse)?;
    for address in unused {
        let address = net::shown(address);
        eprintln!("plimsoll: ignoring the inherited socket {address}, which is not configured");
    }
    sockets.bind_datagrams(&config.listeners, inherited.datagrams).map_err(misuse)?;
    Ok(sockets)
}

/// Reports that this process serves, to the process it replaces or to the supervisor.
fn serving(predecessor: Option<&Predecessor>) -> Result<(), Failure> {
    if let Some(predecessor) = predecessor {
        // The predecessor notifies the supervisor of the new main process.
        return predecessor
            .report_ready()
            .map_err(|error| misuse(format!("the process to be replaced has exited: {error}")));
    }
    if let Err(error) = process::notify(ServiceState::Ready("serving")) {
        eprintln!("plimsoll: cannot notify the supervisor: {error}");
    }
    Ok(())
}

/// The program that a restart runs. A path with a slash is used as given, so that a symbolic link
/// that was changed to another version starts that version.
fn program() -> Option<(PathBuf, Vec<OsString>)> {
    let mut arguments = std::env::args_os();
    let name = PathBuf::from(arguments.next()?);
    let path = if name.components().count() > 1 {
        std::path::absolute(name).ok()?
    } else {
        std::env::current_exe().ok()?
    };
    Some((path, arguments.collect()))
}

/// How long a new process may take until it serves.
const RESTART_PATIENCE: Duration = Duration::from_secs(60);

fn config(flags: &cli::Serve) -> Result<Config, Failure> {
    let origins = flags.origin.iter().map(|url| Origin::from_url(url).map_err(misuse));
    let origins = origins.collect::<Result<Vec<_>, _>>()?;
    let mut config = if origins.is_empty() {
        let https = Some(ClientTls::load(&UpstreamTls::default()).map_err(misuse)?);
        Config { https, ..Config::forward(&flags.listen) }
    } else {
        Config::reverse(origins, &flags.listen)
    };
    config.check_routes().map_err(misuse)?;
    config.forward.allow_to.clone_from(&flags.allow_to);
    if !flags.allow_from.is_empty() {
        config.forward.allow_from.clone_from(&flags.allow_from);
    }
    config.memory_bytes = flags.memory;
    if let Some(path) = &flags.disk {
        let disk = DiskConfig::of(path, flags.disk_bytes).map_err(misuse)?;
        config.disk = Some(DiskConfig { verify: flags.disk_verify, ..disk });
    }
    config.log_format = flags.log_format.clone();
    for warning in server::look_up_names(&mut config) {
        eprintln!("plimsoll: {warning}");
    }
    Ok(config)
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn announce(flags: &cli::Serve, server: &Server, has_token: bool) {
    let bound = server.bound();
    if flags.json {
        let line = serde_json::json!({
            "listen": bound.listen.iter().map(|at| net::shown(*at)).collect::<Vec<_>>(),
            "admin": bound.admin,
            "backend": bound.backend.to_string(),
            "pid": std::process::id(),
        });
        print_line(&line);
        return;
    }
    for address in &bound.listen {
        eprintln!("plimsoll: listening on {} ({})", net::shown(*address), bound.backend);
    }
    if let Some(admin) = bound.admin {
        eprintln!("plimsoll: {}", pages(admin, has_token));
    }
}

/// What to open in a browser. Without a token, the dashboard is for this machine only.
fn pages(admin: SocketAddr, has_token: bool) -> String {
    let (address, ip) = (shown(admin), admin.ip().to_canonical());
    let dashboard = match (has_token, ip.is_loopback(), ip.is_unspecified()) {
        (true, ..) => format!("dashboard on http://{address}/#token=TOKEN"),
        (false, true, _) => format!("dashboard on http://{address}/"),
        (false, _, true) => {
            format!("dashboard on http://127.0.0.1:{}/, on this machine only", admin.port())
        }
        (false, ..) => "no dashboard, because there is no dashboard_token".to_owned(),
    };
    format!("metrics on http://{address}/metrics, {dashboard}")
}

/// An address as a browser of another machine can use it: 0.0.0.0 and [::] name none.
pub(crate) fn shown(address: SocketAddr) -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        name if address.ip().is_unspecified() && !name.is_empty() => {
            format!("{name}:{}", address.port())
        }
        _ => address.to_string(),
    }
}

/// Prints a line of JSON on stdout. If its reader has exited already, the server continues.
fn print_line(line: &serde_json::Value) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

#[cfg(feature = "measure")]
/// `plimsoll origin`
pub(crate) fn origin(flags: &cli::Origin) -> Result<(), Failure> {
    prepare(flags.cpu)?;
    let origin =
        ::load::Origin::bind(flags.listen).map_err(|error| in_use(flags.listen, &error))?;
    let stop = stop_on_signal()?;
    print_line(&serde_json::json!({ "listen": [origin.local_addr()] }));
    origin.run(&stop).map_err(misuse)?;
    stop.store(true, Ordering::Relaxed);
    Ok(())
}

#[cfg(feature = "measure")]
/// `plimsoll null-server`
pub(crate) fn null_server(flags: &cli::NullServer) -> Result<(), Failure> {
    prepare(flags.cpu)?;
    let size = usize::try_from(flags.size).map_err(misuse)?;
    let server = ::load::NullServer::bind(flags.listen, size)
        .map_err(|error| in_use(flags.listen, &error))?;
    let stop = stop_on_signal()?;
    print_line(&serde_json::json!({ "listen": [server.local_addr()] }));
    server.run(&stop).map_err(misuse)?;
    Ok(())
}

#[cfg(feature = "measure")]
fn prepare(cpu: Option<usize>) -> Result<(), Failure> {
    ::load::sys::raise_descriptor_limit().map_err(|e| misuse(format!("descriptor limit: {e}")))?;
    if let Some(cpu) = cpu {
        pin(cpu)?;
    }
    Ok(())
}

#[cfg(feature = "measure")]
/// Pins the calling thread to this CPU.
pub(crate) fn pin(cpu: usize) -> Result<(), Failure> {
    ::load::sys::pin_to_cpu(cpu).map_err(|error| {
        let last = cpus() - 1;
        misuse(format!("cannot run on CPU {cpu}: {error}; try one from 0 to {last}"))
    })
}

#[cfg(feature = "measure")]
fn in_use(address: SocketAddr, error: &std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::AddrInUse {
        misuse(format!(
            "{address} is in use: stop the program that listens there, or try another port"
        ))
    } else {
        misuse(format!("cannot listen on {address}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_dashboard_is_announced_that_would_be_refused() {
        let pages = |admin: &str, token| super::pages(admin.parse().unwrap(), token);
        assert!(pages("127.0.0.1:1", false).ends_with("dashboard on http://127.0.0.1:1/"));
        assert!(
            pages("192.0.2.1:1", false)
                .ends_with("no dashboard, because there is no dashboard_token")
        );
        assert!(pages("192.0.2.1:1", true).ends_with("http://192.0.2.1:1/#token=TOKEN"));
        let everywhere = pages("[::]:1", false);
        assert!(everywhere.ends_with("http://127.0.0.1:1/, on this machine only"), "{everywhere}");
        assert!(!everywhere.contains("[::]"), "{everywhere}");
    }
}
