//! A whole server: its cores on their threads, from binding to the last log line.

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use core_io::panics;
use runtime::net::{TcpListener, shown};
use runtime::process::{self, Predecessor, ServiceState, Successor};
use runtime::stop::StopSource;
use runtime::sync::Sender;
use runtime::{Options, Runtime};
use store::disk::{DiskStore, OpenError, Start};

use crate::certificates;
use crate::change::{ChangeSender, DatagramsOfCore, OfCore, Update, changes};
use crate::control::{Answer, Event, Order, Orders};
use crate::core::Core;
use crate::descriptors::descriptors;
use crate::handover;
use crate::limits::{DESCRIPTORS_OF_CLIENTS_PERCENT, DESCRIPTORS_RESERVED, MAINTENANCE_LOOK};
use crate::listening::Http3Socket;
use crate::log_to::LogTo;
use crate::process::Process;
use crate::sockets::Sockets;
use crate::start_error::StartError;
use config::{Config, DiskConfig, Listener};
use exchange::snapshot::Snapshot;
use transport::tls::TicketKeys;

/// The addresses of a server.
#[derive(Clone, Debug)]
pub struct Bound {
    /// Where clients connect.
    pub listen: Vec<SocketAddr>,
    /// The admin address.
    pub admin: Option<SocketAddr>,
    /// The event notification in use.
    pub backend: readiness::Kind,
}

/// What a reload and a restart need.
pub struct Renewal<'r> {
    /// Reads the configuration again; returns it with notes for the caller. An error goes to the
    /// caller and changes nothing.
    pub config: &'r mut dyn FnMut() -> Result<(Config, Vec<String>), String>,
    /// The program that replaces this process, and its arguments.
    pub program: Option<(PathBuf, Vec<OsString>)>,
    /// How long it may take until it serves.
    pub patience: Duration,
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    threads: Vec<JoinHandle<()>>,
    changes: Vec<ChangeSender>,
    bound: Bound,
    sockets: Sockets,
    stop: StopSource,
    log: LogTo,
    process: Arc<Process>,
    orders: Orders,
    events: mpsc::Receiver<Event>,
    handed_over: bool,
    /// Runs until the process before has ended.
    predecessor: Option<JoinHandle<()>>,
    tickets: Arc<TicketKeys>,
    options: Options,
    /// The file that switches maintenance on.
    maintenance_file: Option<PathBuf>,
}

impl Server {
    /// Binds the configured addresses and starts one thread a core.
    ///
    /// # Errors
    /// An address or a thread is not available. Nothing is left running then.
    pub fn start(
        config: Config,
        workers: usize,
        admin: Option<SocketAddr>,
        log: LogTo,
        options: &Options,
    ) -> Result<Server, StartError> {
        let (mut sockets, _) = Sockets::bind(&config.listeners, admin, workers, Vec::new())?;
        sockets.bind_datagrams(&config.listeners, Vec::new())?;
        Server::start_on(sockets, config, workers, log, options, None)
    }

    /// The same on bound sockets. A CPU to pin to is that of the first core; the others take the
    /// CPUs that follow. The store of a predecessor is taken over from it.
    ///
    /// # Errors
    /// A thread is not available. Nothing is left running then.
    pub fn start_on(
        sockets: Sockets,
        mut config: Config,
        workers: usize,
        log: LogTo,
        options: &Options,
        predecessor: Option<&Predecessor>,
    ) -> Result<Server, StartError> {
        fit(&mut config, workers);
        let (listeners, acme) = (config.listeners.clone(), config.acme.clone());
        let maintenance_file = file_of(&config);
        if let Some(predecessor) = predecessor {
            handover::wait_for_store(predecessor).map_err(StartError::Predecessor)?;
        }
        let disk = match &config.disk {
            Some(wanted) => open_disk(wanted, options)?,
            None => None,
        };
        let cores = Core::with_disk(config, workers, &log, disk);
        let process = Arc::clone(&cores[0].process);
        let tickets = Arc::default();
        share_tickets(&tickets, listeners.iter().zip(sockets.listen()));
        certificates::load(acme.as_ref(), &process.shared.issued);
        let listening = |of| handover::wait_for_listeners(of, &process.shared, &tickets, *options);
        let predecessor =
            predecessor.map(listening).transpose().map_err(StartError::Predecessor)?;
        let (orders, events) = Orders::queue();
        process.control.obey(orders.clone());
        let backend = readiness::Kind::Epoll;
        let bound = Bound { listen: sockets.listen(), admin: sockets.admin(), backend };
        let (stop, threads) = (StopSource::new(), Vec::new());
        let changes = Vec::new();
        let mut server = Server {
            threads,
            changes,
            bound,
            sockets,
            stop,
            log,
            process,
            orders,
            events,
            handed_over: false,
            predecessor,
            tickets,
            options: *options,
            maintenance_file,
        };
        for (index, core) in cores.into_iter().enumerate() {
            if let Err(error) = server.start_core(index, core, &listeners, options) {
                server.stop.stop();
                server.wait();
                return Err(error);
            }
        }
        server.process.obtain(acme.as_ref());
        Ok(server)
    }

    /// Starts one core and waits until it has taken its sockets.
    fn start_core(
        &mut self,
        index: usize,
        core: Core,
        listeners: &[Listener],
        options: &Options,
    ) -> Result<(), StartError> {
        let (started, starting) = mpsc::channel();
        let mut options = *options;
        options.pin_cpu = options.pin_cpu.map(|cpu| cpu + index);
        let sockets = self.sockets.of_core(index, listeners).map_err(StartError::System)?;
        let datagrams = self.sockets.datagrams_of_core(index, listeners);
        let admin = if index == 0 { self.sockets.of_admin() } else { Ok(None) };
        let admin = admin.map_err(StartError::System)?;
        let (sender, changes) = changes();
        let (stop, ended) = (self.stop.token(), Ended(self.orders.clone()));
        let run = move || {
            let _ended = ended;
            let mut runtime = match Runtime::new(options) {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = started.send(Err(error));
                    return;
                }
            };
            let serve = async move {
                let taken = take(sockets, datagrams, admin);
                match taken {
                    Ok(Taken { listeners, http3, admin }) => {
                        if started.send(Ok(runtime::backend())).is_ok() {
                            core.run_changing(listeners, http3, admin, changes, stop).await;
                        }
                    }
                    Err(error) => {
                        let _ = started.send(Err(error));
                    }
                }
            };
            panics::as_core(|| runtime.block_on(serve));
        };
        let thread = std::thread::Builder::new()
            .name(format!("core-{index}"))
            .spawn(run)
            .map_err(StartError::System)?;
        self.threads.push(thread);
        self.changes.push(sender);
        match starting.recv() {
            Ok(Ok(backend)) => {
                self.bound.backend = backend;
                Ok(())
            }
            Ok(Err(error)) => Err(StartError::System(error)),
            Err(_) => Err(StartError::System(io::Error::other("a core's thread ended"))),
        }
    }

    /// Its addresses.
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// A way to stop it: it takes no new connections, and requests in flight finish.
    pub fn stopper(&self) -> StopSource {
        self.stop.clone()
    }

    /// A way to give it orders, which are carried out while [`Server::run`] runs.
    pub fn orders(&self) -> Orders {
        self.orders.clone()
    }

    /// Waits until it has stopped and its log is written. Returns the number of lost log lines.
    pub fn wait(self) -> u64 {
        let mut none = || Err("this server has no configuration file".to_owned());
        self.run(Renewal { config: &mut none, program: None, patience: Duration::ZERO })
    }

    /// Carries out orders until it has stopped and its log is written. Returns the number of lost
    /// log lines.
    ///
    /// # Panics
    /// When a core has panicked. The others are stopped before.
    pub fn run(mut self, mut renewal: Renewal<'_>) -> u64 {
        let mut running = self.threads.len();
        if self.predecessor.is_some() && !self.stop.is_stopped() {
            // The process before knows that this one serves.
            self.sockets.own_files();
        }
        while running > 0 {
            self.look_for_maintenance();
            match self.next_event() {
                Ok(Event::Tick) => {}
                Ok(Event::Order(order, asked)) => self.obey(order, asked, &mut renewal),
                Ok(Event::CoreEnded { failed }) => {
                    running -= 1;
                    if failed {
                        // Its sockets would still get their share of the connections.
                        self.stop.stop();
                    }
                }
                Err(_) => break,
            }
        }
        let ended: Vec<_> = self.threads.into_iter().map(JoinHandle::join).collect();
        if let Some(panicked) = ended.into_iter().find_map(Result::err) {
            std::panic::resume_unwind(panicked);
        }
        if self.handed_over
            && let Some(predecessor) = self.predecessor
        {
            // What the successor has for the process before passes through this one.
            let _ = predecessor.join();
        }
        match self.log {
            LogTo::Writer(writer) => writer.finish(),
            LogTo::Off | LogTo::Memory(_) => 0,
        }
    }

    /// Waits for an event, or for the next look at the file that switches maintenance on.
    fn next_event(&self) -> Result<Event, mpsc::RecvError> {
        if self.maintenance_file.is_none() {
            return self.events.recv();
        }
        match self.events.recv_timeout(MAINTENANCE_LOOK) {
            Ok(event) => Ok(event),
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(Event::Tick),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(mpsc::RecvError),
        }
    }

    fn look_for_maintenance(&self) {
        let switch = &self.process.shared.maintenance;
        let is_there = self.maintenance_file.as_ref().is_some_and(|file| file.exists());
        if switch.set(true, is_there) {
            tracing::info!("maintenance is {}", switch.text());
        }
    }

    fn obey(&mut self, order: Order, asked: Option<Sender<Answer>>, renewal: &mut Renewal<'_>) {
        let answer = match order {
            Order::Reload => self.reload(renewal),
            Order::Restart => self.restart(renewal),
            Order::ReopenLog => {
                self.reopen_log();
                Answer::done("the access log is opened again")
            }
            Order::Stop => {
                if !self.handed_over {
                    notify_supervisor(ServiceState::Stopping);
                }
                self.stop.stop();
                Answer::done("stopping")
            }
        };
        if !answer.done {
            tracing::error!("{order:?}: {}", answer.text);
        } else if matches!(order, Order::Reload | Order::Restart) {
            tracing::info!("{}", answer.text);
        }
        if let Some(asked) = asked {
            // The caller may have gone.
            let _ = asked.send(answer);
        }
        if order == Order::Restart && self.handed_over {
            self.let_go();
        }
    }

    /// Opens the access log again by its name.
    fn reopen_log(&self) {
        if let LogTo::Writer(writer) = &self.log {
            writer.reopen();
        }
    }

    /// Puts the configuration in force as it is now. A bad one changes nothing.
    fn reload(&mut self, renewal: &mut Renewal<'_>) -> Answer {
        if self.handed_over || self.stop.is_stopped() {
            return Answer::refused("this process is about to end");
        }
        notify_supervisor(ServiceState::Reloading);
        self.reopen_log();
        let answer = match self.try_reload(renewal) {
            Ok(text) => Answer::done(text),
            Err(why) => {
                self.process.control.reload_failed();
                Answer::refused(format!("nothing has changed: {why}"))
            }
        };
        let first = answer.text.lines().next().unwrap_or_default();
        notify_supervisor(ServiceState::Ready(first));
        answer
    }

    fn try_reload(&mut self, renewal: &mut Renewal<'_>) -> Result<String, String> {
        let (mut config, notes) = (renewal.config)()?;
        let cores = self.changes.len();
        fit(&mut config, cores);
        let named = config.listeners.clone();
        let change = self.sockets.reload(&named).map_err(|error| error.to_string())?;
        let listeners = change.bound(&named);
        share_tickets(&self.tickets, listeners.iter().map(|of| (of, of.address)));
        certificates::share_issued(&self.process.shared.issued, &listeners);
        let mut of_cores = Vec::new();
        for core in 0..cores {
            let sockets = change.of_core(core, cores, &named).map_err(|error| error.to_string())?;
            of_cores.push((sockets, change.datagrams_of_core(core, &named)));
        }
        // Last: from here on nothing fails, so that the registries of what outlives a reload hold
        // what is in force.
        self.process.obtain(config.acme.as_ref());
        self.maintenance_file = file_of(&config);
        let snapshot = Snapshot::new(config, &self.process.shared);
        for (index, (sockets, datagrams)) in of_cores.into_iter().enumerate() {
            let is_there = self.changes[index].update(Update {
                snapshot: Box::new(snapshot.clone()),
                listeners: listeners.clone(),
                sockets,
                datagrams,
                gone: change.gone.clone(),
            });
            warn_if_ended(index, is_there);
        }
        let mut text = format!("configuration {} is in force", self.process.control.reloaded());
        for address in change.added() {
            text.push_str(&format!("\nlistening on {}", shown(address)));
        }
        for address in &change.gone {
            text.push_str(&format!("\nno longer listening on {}", shown(*address)));
        }
        for note in notes.iter().chain(&change.notes) {
            text.push('\n');
            text.push_str(note);
        }
        self.sockets.put(change);
        self.bound.listen = self.sockets.listen();
        Ok(text)
    }

    /// Starts the program again and, once it serves, leaves the sockets to it.
    fn restart(&mut self, renewal: &Renewal<'_>) -> Answer {
        if self.handed_over || self.stop.is_stopped() {
            return Answer::refused("this process is about to end");
        }
        let Some((program, arguments)) = &renewal.program else {
            return Answer::refused("this server does not know its program");
        };
        let served = Successor::start(program, arguments, &self.sockets.all())
            .map_err(|error| format!("{} cannot be run: {error}", program.display()))
            .and_then(|successor| {
                let until = Instant::now() + renewal.patience;
                let shared = &self.process.shared;
                handover::leave(shared, &self.tickets, successor, until, self.options)
            });
        match served {
            Ok(pid) => {
                notify_supervisor(ServiceState::MainPid(pid));
                self.handed_over = true;
                Answer::done(format!("process {pid} serves; process {} ends", std::process::id()))
            }
            Err(why) => {
                self.process.control.restart_failed();
                Answer::refused(format!("not replaced, and this process goes on serving: {why}"))
            }
        }
    }

    /// From here on the sockets are the successor's, which holds each of them open.
    fn let_go(&mut self) {
        for (index, core) in self.changes.iter().enumerate() {
            warn_if_ended(index, core.hand_over());
        }
        self.sockets.leave_files();
        self.sockets = Sockets::default();
        self.process.obtaining.leave();
    }
}

/// The file that switches maintenance on.
fn file_of(config: &Config) -> Option<PathBuf> {
    config.maintenance.as_ref()?.file.clone()
}

fn warn_if_ended(core: usize, is_there: bool) {
    if !is_there {
        tracing::error!(core, "a core has ended, and does not get a change");
    }
}

/// Sessions outlive a reload and a restart if the listener and its certificates stay.
fn share_tickets<'l>(
    keys: &Arc<TicketKeys>,
    listeners: impl Iterator<Item = (&'l Listener, SocketAddr)>,
) {
    for (listener, address) in listeners {
        if let Some(tls) = &listener.tls {
            tls.share_tickets(keys, address);
        }
    }
}

/// Opens the store on disk, or creates it. A failing disk costs hits and no request: it is logged,
/// and the server runs without.
fn open_disk(wanted: &DiskConfig, options: &Options) -> Result<Option<DiskStore>, StartError> {
    let path = wanted.path.display().to_string();
    // In a separate thread: a runtime may pin the thread that it runs in.
    let open = || {
        Runtime::new(*options)
            .map(|mut runtime| runtime.block_on(DiskStore::open(wanted.options())))
    };
    let opened = std::thread::scope(|scope| scope.spawn(open).join());
    let opened = opened.unwrap_or_else(|_| Err(io::Error::other("the disk's thread failed")));
    match opened.map_err(StartError::System)? {
        Ok((disk, start)) => {
            match start {
                Start::New => tracing::info!("{path}: a new store on disk"),
                Start::Warm { objects, entries_lost: 0 } => {
                    tracing::info!(objects, "{path}: the store on disk is warm");
                }
                Start::Warm { objects, entries_lost } => {
                    tracing::warn!(objects, entries_lost, "{path}: some of the index is lost");
                }
                Start::Fresh(why) => tracing::warn!("{path}: started from scratch: {why}"),
            }
            if let Some(why) = disk.zero_copy_unavailable() {
                tracing::info!("{path}: long bodies are copied: {why}");
            }
            Ok(Some(disk))
        }
        Err(error @ OpenError::System { .. }) => {
            tracing::error!("{error}; serving without the store on disk");
            Ok(None)
        }
        Err(error) => Err(StartError::Disk(error)),
    }
}

/// Says that a core's thread has ended, however it ends.
struct Ended(Orders);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.core_ended(std::thread::panicking());
    }
}

/// Notifies the supervisor. Failing to do so is not fatal.
fn notify_supervisor(state: ServiceState<'_>) {
    if let Err(error) = process::notify(state) {
        tracing::warn!(%error, "the supervisor cannot be notified");
    }
}

/// Clients get no more connections than there are descriptors for.
fn fit(config: &mut Config, workers: usize) {
    if let Some(descriptors) = descriptors() {
        let reserved = DESCRIPTORS_RESERVED.min(descriptors / 2);
        let of_clients = (descriptors - reserved) * DESCRIPTORS_OF_CLIENTS_PERCENT / 100;
        let of_core = (of_clients / workers.max(1)).max(1);
        config.limits.connections_max = config.limits.connections_max.min(of_core);
    }
}

/// What a core accepts from: of its listeners, and of the admin.
struct Taken {
    listeners: Vec<(TcpListener, Listener)>,
    http3: Vec<Http3Socket>,
    admin: Option<TcpListener>,
}

/// The sockets as the present core's.
fn take(
    sockets: Vec<OfCore>,
    datagrams: Vec<DatagramsOfCore>,
    admin: Option<std::net::TcpListener>,
) -> io::Result<Taken> {
    let listeners: io::Result<_> = sockets
        .into_iter()
        .map(|(socket, of)| TcpListener::from_std(socket).map(|socket| (socket, of)))
        .collect();
    let http3: io::Result<_> = datagrams.into_iter().map(Http3Socket::of_core).collect();
    let admin = admin.map(TcpListener::from_std).transpose()?;
    Ok(Taken { listeners: listeners?, http3: http3?, admin })
}
