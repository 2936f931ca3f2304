//! The changes that reach a core while it runs.
//!
//! What: a place for one change to each core. The server's thread adds to the change that the core
//! has not taken yet: of configurations the newest is kept, and sockets that are new and addresses
//! that are gone are summed up. Why no queue: a core that is late would have to refuse a change
//! when its queue is full, and would serve an old configuration until the next reload.
//!
//! What never happens: a change is refused while its core runs; a new socket of an earlier change
//! is lost, or is accepted from after its address has gone.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, PoisonError};

use config::Listener;
use exchange::snapshot::Snapshot;
use runtime::sync::{Inbox, Lock, LockKind, SendError, Sender, inbox};

/// A socket for one core, and the listener it belongs to.
pub(crate) type OfCore = (TcpListener, Listener);

/// The same for HTTP/3. The core holds the socket until its last connection there has ended.
pub(crate) type DatagramsOfCore = (Arc<UdpSocket>, Listener);

/// Another configuration.
#[derive(Debug)]
pub(crate) struct Update {
    pub(crate) snapshot: Box<Snapshot>,
    /// All listeners, at the addresses they are bound to.
    pub(crate) listeners: Vec<Listener>,
    /// The sockets that are new on this core.
    pub(crate) sockets: Vec<OfCore>,
    /// The sockets for HTTP/3 that are new on this core.
    pub(crate) datagrams: Vec<DatagramsOfCore>,
    /// Addresses to stop accepting from. An address may be new again since: its new socket is in
    /// `sockets`.
    pub(crate) gone: Vec<SocketAddr>,
}

impl Update {
    /// The change from before `self` to after `later`.
    fn then(mut self, later: Update) -> Update {
        self.sockets.retain(|(_, of)| !later.gone.contains(&of.address));
        let has_http3 = |at| later.listeners.iter().any(|of| of.address == at && of.http3);
        let is_new = |at| later.datagrams.iter().any(|(_, of)| of.address == at);
        self.datagrams.retain(|(_, of)| has_http3(of.address) && !is_new(of.address));
        self.sockets.extend(later.sockets);
        self.datagrams.extend(later.datagrams);
        self.gone.retain(|at| !later.gone.contains(at));
        self.gone.extend(later.gone);
        let Update { sockets, datagrams, gone, .. } = self;
        let Update { snapshot, listeners, .. } = later;
        Update { snapshot, listeners, sockets, datagrams, gone }
    }
}

/// What a core has not taken yet. The update comes before the handover.
#[derive(Debug, Default)]
pub(crate) struct Change {
    pub(crate) update: Option<Update>,
    /// Another process holds our sockets: accept no more, serve the open connections to their end,
    /// then end.
    pub(crate) handed_over: bool,
}

static CHANGE: LockKind = LockKind::new("server: change of a core");

/// Where changes to one core are given.
#[derive(Debug)]
pub(crate) struct ChangeSender {
    change: Arc<Lock<Change>>,
    wake: Sender<()>,
}

/// Where one core takes them.
#[derive(Debug)]
pub(crate) struct Changes {
    change: Arc<Lock<Change>>,
    woken: Inbox<()>,
}

/// Both ends of a core's place for changes.
pub(crate) fn changes() -> (ChangeSender, Changes) {
    let change = Arc::new(Lock::new(&CHANGE, Change::default()));
    let (wake, woken) = inbox(1);
    (ChangeSender { change: Arc::clone(&change), wake }, Changes { change, woken })
}

impl ChangeSender {
    /// Gives another configuration. False if the core has ended.
    pub(crate) fn update(&self, update: Update) -> bool {
        self.change(|change| {
            change.update = Some(match change.update.take() {
                Some(before) => before.then(update),
                None => update,
            });
        })
    }

    /// Says that another process holds the sockets. False if the core has ended.
    pub(crate) fn hand_over(&self) -> bool {
        self.change(|change| change.handed_over = true)
    }

    fn change(&self, change: impl FnOnce(&mut Change)) -> bool {
        change(&mut self.change.lock().unwrap_or_else(PoisonError::into_inner));
        // If the core was woken and has not come yet, it takes this, too.
        !matches!(self.wake.send(()), Err(SendError::Closed(())))
    }
}

impl Changes {
    /// Waits for a change; `None` once there will be none.
    pub(crate) async fn next(&mut self) -> Option<Change> {
        self.woken.recv().await?;
        Some(std::mem::take(&mut self.change.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use access_log::Sink;
    use config::Config;

    use super::*;
    use crate::process::Process;

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn listener(port: u16) -> Listener {
        Listener { http3: true, ..Config::forward(&[at(port)]).listeners.remove(0) }
    }

    fn update(process: &Process, memory: u64, new: &[u16], gone: &[u16]) -> Update {
        let config = Config { memory_bytes: memory, ..Config::forward(&[at(1)]) };
        let socket = || TcpListener::bind("127.0.0.1:0").unwrap();
        let datagrams = || Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        Update {
            snapshot: Box::new(Snapshot::new(config, &process.shared)),
            listeners: (1..9).filter(|port| !gone.contains(port)).map(listener).collect(),
            sockets: new.iter().map(|port| (socket(), listener(*port))).collect(),
            datagrams: new.iter().map(|port| (datagrams(), listener(*port))).collect(),
            gone: gone.iter().map(|port| at(*port)).collect(),
        }
    }

    fn taken(changes: &mut Changes) -> Option<Change> {
        let mut next = std::pin::pin!(changes.next());
        match next.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(change) => change,
            Poll::Pending => None,
        }
    }

    /// A core whose queue was full kept an old configuration, and never got its new sockets.
    #[test]
    fn a_core_that_is_late_gets_the_newest_configuration_and_all_sockets() {
        let process = Process::new(&Config::forward(&[at(1)]), 1, Sink::Off, None);
        let (sender, mut changes) = changes();
        for memory in 1..=100 {
            let (new, gone) = match memory {
                5 => (&[2, 3][..], &[1][..]),
                50 => (&[4][..], &[3][..]),
                // It is new again.
                60 => (&[1][..], &[][..]),
                _ => (&[][..], &[][..]),
            };
            assert!(sender.update(update(&process, memory, new, gone)));
        }
        assert!(sender.hand_over());
        let Change { update: Some(merged), handed_over: true } = taken(&mut changes).unwrap()
        else {
            panic!("both have come")
        };
        assert_eq!(merged.snapshot.config.memory_bytes, 100);
        let ports = |of: &Listener| of.address.port();
        let sockets: Vec<_> = merged.sockets.iter().map(|(_, of)| ports(of)).collect();
        let datagrams: Vec<_> = merged.datagrams.iter().map(|(_, of)| ports(of)).collect();
        assert_eq!((&sockets[..], &datagrams[..]), (&[2, 4, 1][..], &[2, 4, 1][..]));
        assert_eq!(merged.gone, [at(1), at(3)]);
        assert!(taken(&mut changes).is_none(), "nothing is left");
        drop(changes);
        assert!(!sender.hand_over(), "the core has ended");
    }
}
