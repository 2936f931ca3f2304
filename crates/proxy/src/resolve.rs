//! Names to addresses, for forward mode, without ever blocking a core.
//!
//! The system's resolver blocks, so a few threads of its own call it; they are started with the
//! first name. Answers are kept for a fixed time. An address written as such needs none of this.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use runtime::time::{self, Instant};
use std::collections::HashMap;

use crate::fault::Fault;

/// Threads that ask the system.
const THREADS: usize = 4;
/// How long an answer is used again.
const KEPT: Duration = Duration::from_secs(30);
/// Answers kept; beyond it all are forgotten.
const KEPT_MAX: usize = 10_000;

/// The way to the resolving threads.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    jobs: OnceLock<Option<Mutex<Sender<Job>>>>,
    kept: Mutex<HashMap<(String, u16), Answer>>,
}

/// Until when it holds, and what it is.
type Answer = (Instant, Arc<[SocketAddr]>);

#[derive(Debug)]
struct Job {
    host: String,
    port: u16,
    reply: Arc<Mutex<Reply>>,
}

#[derive(Debug, Default)]
struct Reply {
    addresses: Option<Arc<[SocketAddr]>>,
    waker: Option<Waker>,
}

impl Resolver {
    /// The addresses of `host`, which may be an address, in brackets if it is of IPv6.
    pub(crate) async fn resolve(&self, host: &str, port: u16) -> Result<Arc<[SocketAddr]>, Fault> {
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Ok(Arc::new([SocketAddr::new(ip, port)]));
        }
        let name = (host.to_ascii_lowercase(), port);
        if let Some(addresses) = self.kept(&name) {
            return Ok(addresses);
        }
        let reply = Arc::new(Mutex::new(Reply::default()));
        let job = Job { host: name.0.clone(), port, reply: Arc::clone(&reply) };
        let Some(jobs) = self.jobs.get_or_init(start) else { return Err(Fault::NoAddress) };
        if lock(jobs).send(job).is_err() {
            return Err(Fault::NoAddress);
        }
        let addresses = std::future::poll_fn(|cx| {
            let mut reply = lock(&reply);
            match reply.addresses.take() {
                Some(addresses) => Poll::Ready(addresses),
                None => {
                    reply.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await;
        if addresses.is_empty() {
            return Err(Fault::NoAddress);
        }
        let mut kept = lock(&self.kept);
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(name, (time::now() + KEPT, Arc::clone(&addresses)));
        Ok(addresses)
    }

    fn kept(&self, name: &(String, u16)) -> Option<Arc<[SocketAddr]>> {
        let kept = lock(&self.kept);
        let (until, addresses) = kept.get(name)?;
        (time::now() < *until).then(|| Arc::clone(addresses))
    }
}

/// Nothing in this file panics while it holds a lock.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start() -> Option<Mutex<Sender<Job>>> {
    let (sender, receiver) = channel();
    let receiver = Arc::new(Mutex::new(receiver));
    for _ in 0..THREADS {
        let receiver = Arc::clone(&receiver);
        let spawned = std::thread::Builder::new()
            .name("resolve".into())
            .spawn(move || answer_jobs(&receiver));
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread to resolve names");
            return None;
        }
    }
    Some(Mutex::new(sender))
}

fn answer_jobs(receiver: &Mutex<Receiver<Job>>) {
    loop {
        let Ok(job) = lock(receiver).recv() else { return };
        let addresses: Arc<[SocketAddr]> = match (job.host.as_str(), job.port).to_socket_addrs() {
            Ok(addresses) => addresses.collect(),
            Err(error) => {
                tracing::debug!(host = job.host, %error, "no address");
                Arc::new([])
            }
        };
        let mut reply = lock(&job.reply);
        reply.addresses = Some(addresses);
        if let Some(waker) = reply.waker.take() {
            waker.wake();
        }
    }
}
