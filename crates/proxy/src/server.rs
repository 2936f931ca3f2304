//! A whole server: its cores on their threads, from binding to the last log line.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use runtime::net::{ListenOptions, TcpListener};
use runtime::stop::{StopSource, StopToken};
use runtime::{Options, Runtime};

use crate::access_log::{LogWriter, Sink};
use crate::admin;
use crate::config::{Config, Listener};
use crate::limits::{DESCRIPTORS_OF_CLIENTS_PERCENT, DESCRIPTORS_RESERVED};
use crate::metrics::Counters;
use crate::shared::Shared;
use crate::site::Site;
use crate::upstream::health;
use crate::worker::Worker;

/// Where the access log goes.
#[derive(Debug, Default)]
pub enum LogTo {
    /// Nowhere.
    #[default]
    Off,
    /// To a file.
    Writer(LogWriter),
    /// Into memory, for tests.
    Memory(Arc<Mutex<Vec<u8>>>),
}

impl LogTo {
    fn sink(&self) -> Sink {
        match self {
            LogTo::Off => Sink::Off,
            LogTo::Writer(writer) => writer.sink(),
            LogTo::Memory(memory) => Sink::Memory(Arc::clone(memory)),
        }
    }
}

/// The part of a server that runs on one core: `run` it inside a runtime, real or simulated.
#[derive(Clone, Debug)]
pub struct Core {
    shared: Arc<Shared>,
    site: Site,
    counters: Arc<Counters>,
    all: Vec<Arc<Counters>>,
}

impl Core {
    /// `workers` cores of one server.
    pub fn of(config: Config, workers: usize, log: &LogTo) -> Vec<Core> {
        let shared = Arc::new(Shared::new(&config, workers, log.sink()));
        let site = Site::new(config, &shared.upstreams);
        let all: Vec<Arc<Counters>> = (0..workers).map(|_| Arc::default()).collect();
        all.iter()
            .map(|counters| Core {
                shared: Arc::clone(&shared),
                site: site.clone(),
                counters: Arc::clone(counters),
                all: all.clone(),
            })
            .collect()
    }

    /// Serves these sockets, each as its listener says, until told to stop and drained.
    pub async fn run(
        self,
        listeners: Vec<(TcpListener, Listener)>,
        admin: Option<TcpListener>,
        stop: StopToken,
    ) {
        let is_first = self.all.first().is_some_and(|first| Arc::ptr_eq(first, &self.counters));
        let worker = Worker::new(Arc::clone(&self.shared), self.site, self.counters);
        // One core looks after the upstream servers for all.
        let attending = is_first.then(|| runtime::spawn(health::attend(Rc::clone(&worker))));
        let admin = admin.map(|listener| {
            runtime::spawn(admin::serve(Rc::clone(&worker), listener, self.all, self.shared))
        });
        worker.run(listeners, stop).await;
        if let Some(attending) = attending {
            attending.abort();
        }
        if let Some(admin) = admin {
            admin.abort();
        }
    }

    /// The counters of this core, in the order of [`crate::described_metrics`]' first ones.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        crate::metrics::COUNTERS.iter().map(|c| c.name).zip(self.counters.values()).collect()
    }
}

/// What a server is bound to.
#[derive(Clone, Debug)]
pub struct Bound {
    /// Where clients connect.
    pub listen: Vec<SocketAddr>,
    /// Where the admin does.
    pub admin: Option<SocketAddr>,
    /// The event notification that runs.
    pub backend: readiness::Kind,
}

/// Why a server did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// An address cannot be listened on.
    Bind(SocketAddr, io::Error),
    /// The event notification or a thread cannot be had.
    System(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Bind(address, error) if error.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "{address} is in use: stop what listens there, or choose another port")
            }
            StartError::Bind(address, error) => write!(f, "cannot listen on {address}: {error}"),
            StartError::System(error) => write!(f, "the server cannot start: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// A running server.
#[derive(Debug)]
pub struct Server {
    threads: Vec<JoinHandle<()>>,
    bound: Bound,
    stop: StopSource,
    log: LogTo,
}

impl Server {
    /// Binds the configured addresses and starts one thread a core. `pin_first` puts the cores on CPUs from
    /// that one on.
    ///
    /// # Errors
    /// Nothing is left running when an address or a thread cannot be had.
    pub fn start(
        config: Config,
        workers: usize,
        admin: Option<SocketAddr>,
        log: LogTo,
        options: &Options,
    ) -> Result<Server, StartError> {
        let mut config = config;
        let mut listeners = config.listeners.clone();
        if let Some(descriptors) = descriptors() {
            let of_clients = descriptors.saturating_sub(DESCRIPTORS_RESERVED)
                * DESCRIPTORS_OF_CLIENTS_PERCENT
                / 100;
            let of_core = (of_clients / workers.max(1)).max(1);
            config.limits.connections_max = config.limits.connections_max.min(of_core);
        }
        let stop = StopSource::new();
        let mut server = Server {
            threads: Vec::new(),
            bound: Bound { listen: Vec::new(), admin, backend: readiness::Kind::Epoll },
            stop,
            log,
        };
        for (index, core) in Core::of(config, workers, &server.log).into_iter().enumerate() {
            if let Err(error) = server.start_core(index, core, &mut listeners, workers > 1, options)
            {
                server.stop.stop();
                server.wait();
                return Err(error);
            }
        }
        Ok(server)
    }

    /// Starts one core and waits until it has bound its addresses. The first settles the ports
    /// that were left to the system.
    fn start_core(
        &mut self,
        index: usize,
        core: Core,
        listeners: &mut [Listener],
        shared_port: bool,
        options: &Options,
    ) -> Result<(), StartError> {
        let (tell, told) = std::sync::mpsc::channel();
        let mut options = *options;
        options.pin_cpu = options.pin_cpu.map(|cpu| cpu + index);
        let (of_core, stop) = (listeners.to_vec(), self.stop.token());
        let admin = self.bound.admin.filter(|_| index == 0);
        let run = move || {
            let mut runtime = match Runtime::new(options) {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = tell.send(Err(StartError::System(error)));
                    return;
                }
            };
            runtime.block_on(async move {
                match bind(of_core, admin, shared_port) {
                    Ok((listeners, admin, bound)) => {
                        if tell.send(Ok(bound)).is_ok() {
                            core.run(listeners, admin, stop).await;
                        }
                    }
                    Err(error) => {
                        let _ = tell.send(Err(error));
                    }
                }
            });
        };
        let thread = std::thread::Builder::new()
            .name(format!("core-{index}"))
            .spawn(run)
            .map_err(StartError::System)?;
        self.threads.push(thread);
        match told.recv() {
            Ok(Ok(bound)) => {
                for (listener, &address) in listeners.iter_mut().zip(&bound.listen) {
                    listener.address = address;
                }
                self.bound.listen = bound.listen;
                self.bound.backend = bound.backend;
                self.bound.admin = bound.admin.or(self.bound.admin);
                Ok(())
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StartError::System(io::Error::other("a core's thread ended"))),
        }
    }

    /// What it is bound to.
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// Tells it to stop: no new connections, requests under way finish.
    pub fn stopper(&self) -> StopSource {
        self.stop.clone()
    }

    /// Opens the access log again under its name.
    pub fn reopen_log(&self) {
        if let LogTo::Writer(writer) = &self.log {
            writer.reopen();
        }
    }

    /// Waits until it has stopped, and its log is written. Returns the log lines that were lost.
    pub fn wait(self) -> u64 {
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a core has failed");
            }
        }
        match self.log {
            LogTo::Writer(writer) => writer.finish(),
            LogTo::Off | LogTo::Memory(_) => 0,
        }
    }
}

/// How many descriptors the process may have open.
fn descriptors() -> Option<usize> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

type Listeners = (Vec<(TcpListener, Listener)>, Option<TcpListener>, Bound);

fn bind(
    of_core: Vec<Listener>,
    admin: Option<SocketAddr>,
    shared_port: bool,
) -> Result<Listeners, StartError> {
    let options = ListenOptions::default().with_reuse_port(shared_port);
    let mut listeners = Vec::new();
    let mut bound = Bound { listen: Vec::new(), admin: None, backend: runtime::backend() };
    for listener in of_core {
        let (socket, address) = bind_one(listener.address, &options)?;
        bound.listen.push(address);
        listeners.push((socket, listener));
    }
    let admin = match admin {
        None => None,
        Some(address) => {
            let (listener, address) = bind_one(address, &ListenOptions::default())?;
            bound.admin = Some(address);
            Some(listener)
        }
    };
    Ok((listeners, admin, bound))
}

fn bind_one(
    address: SocketAddr,
    options: &ListenOptions,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let named = |error| StartError::Bind(address, error);
    let listener = TcpListener::bind(address, options).map_err(named)?;
    let address = listener.local_addr().map_err(named)?;
    Ok((listener, address))
}
