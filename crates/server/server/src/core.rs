//! The part of a server that runs on one core, and the changes that reach it while it runs.

use std::rc::Rc;
use std::sync::Arc;

use runtime::net::{DatagramSocket, TcpListener};
use runtime::stop::StopToken;
use store::disk::DiskStore;

use crate::admin;
use crate::certificates::share_issued;
use crate::change::{Changes, changes};
use crate::core_task::CoreTask;
use crate::listening::{Http3Socket, Listening};
use crate::log_to::LogTo;
use crate::our_digest;
use crate::peer_digests;
use crate::process::{DiskUser, Process};
use crate::queries::{self, Protocol};
use config::{Config, Listener};
use exchange::Worker;
use exchange::snapshot::Snapshot;
use exchange::spread;
use metrics::Counters;
use transport::tls::Issued;
use upstream::health;

/// The part of a server that runs on one core: `run` it inside a runtime, real or simulated.
#[derive(Clone, Debug)]
pub struct Core {
    pub(crate) process: Arc<Process>,
    snapshot: Snapshot,
    counters: Arc<Counters>,
    all: Vec<Arc<Counters>>,
}

impl Core {
    /// `workers` cores of one server.
    pub fn of(config: Config, workers: usize, log: &LogTo) -> Vec<Core> {
        Core::with_disk(config, workers, log, None)
    }

    /// The same with a store on disk, which the first core runs.
    pub fn with_disk(
        config: Config,
        workers: usize,
        log: &LogTo,
        disk: Option<DiskStore>,
    ) -> Vec<Core> {
        let process = Arc::new(Process::new(&config, workers, log.sink(), disk));
        let shared = &process.shared;
        share_issued(&shared.issued, &config.listeners);
        let snapshot = Snapshot::new(config, shared);
        let all: Vec<Arc<Counters>> = (0..workers).map(|_| Arc::default()).collect();
        all.iter()
            .map(|counters| Core {
                process: Arc::clone(&process),
                snapshot: snapshot.clone(),
                counters: Arc::clone(counters),
                all: all.clone(),
            })
            .collect()
    }

    /// Serves these sockets, each as its listener says, until it is stopped and drained.
    pub async fn run(
        self,
        listeners: Vec<(TcpListener, Listener)>,
        http3: Vec<(DatagramSocket, Listener)>,
        admin: Option<TcpListener>,
        stop: StopToken,
    ) {
        let (never, changes) = changes();
        let http3 = http3.into_iter();
        let http3 =
            http3.map(|(socket, listener)| Http3Socket { socket, listener, held: None }).collect();
        self.run_changing(listeners, http3, admin, changes, stop).await;
        drop(never);
    }

    /// The same, changed while it runs.
    pub(crate) async fn run_changing(
        self,
        listeners: Vec<(TcpListener, Listener)>,
        http3: Vec<Http3Socket>,
        admin: Option<TcpListener>,
        changes: Changes,
        stop: StopToken,
    ) {
        let number = self.all.iter().position(|of| Arc::ptr_eq(of, &self.counters));
        let number = number.expect("a core's counters are among those of all");
        let is_first = number == 0;
        let worker = Worker::new(Arc::clone(&self.process.shared), self.snapshot, self.counters);
        // One core checks and resolves the upstream servers for all.
        let attending = is_first.then(|| {
            let resolver = Arc::clone(&worker.shared.resolver);
            let groups = {
                let worker = Rc::clone(&worker);
                move || worker.snapshot().all_groups()
            };
            runtime::spawn(health::attend(Rc::clone(&worker.upstreams), resolver, groups))
        });
        // And one runs the disk.
        let cache = Arc::clone(&worker.cache);
        let task = CoreTask::new(Rc::clone(&worker));
        let serving = DiskUser(Arc::clone(&cache));
        let writing = (is_first && cache.disk.is_some()).then(|| {
            let cache = Arc::clone(&cache);
            runtime::spawn(async move {
                if let Some(disk) = &cache.disk {
                    disk.run().await;
                }
            })
        });
        // One core makes our digest and fetches those of peers, attends to the other members of the
        // cluster, and answers the queries of other caches.
        let among_caches = is_first.then(|| {
            let worker = || Rc::clone(&worker);
            [
                runtime::spawn(our_digest::keep(worker())),
                runtime::spawn(peer_digests::keep(worker())),
                runtime::spawn(spread::attend(worker())),
            ]
        });
        if is_first {
            let answering = [Protocol::Icp, Protocol::Htcp];
            let answering = answering.map(|of| queries::answer(Rc::clone(&worker), of));
            task.at_addresses.borrow_mut().extend(answering.map(runtime::spawn));
        }
        if let Some(listener) = admin {
            worker.shared.own.add_of(&listener);
            let serving = admin::serve(Rc::clone(&task), listener, self.all, self.process);
            task.at_addresses.borrow_mut().push(runtime::spawn(serving));
        }
        let listening = Listening::new(&worker, number as u16, listeners, http3);
        Rc::clone(&task).run(listening, changes, stop).await;
        drop(serving);
        if let Some(attending) = attending {
            attending.abort();
        }
        for task in among_caches.into_iter().flatten() {
            task.abort();
        }
        if let (Some(disk), Some(writing)) = (&cache.disk, writing) {
            let in_force = worker.io.limits();
            let limits = &in_force.limits;
            disk.cores_ended(limits.drain_timeout + limits.linger_timeout).await;
            disk.close();
            writing.await;
        }
    }

    /// The certificates that come while the server runs, which all cores share.
    pub fn issued(&self) -> &Arc<Issued> {
        &self.process.shared.issued
    }

    /// The counters of this core, in the order of [`crate::described_metrics`]' first ones.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        metrics::COUNTERS.iter().map(|c| c.name).zip(self.counters.values()).collect()
    }
}
