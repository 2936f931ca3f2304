//! The handover between two processes: one takes the place of the other, and the store goes along.
//!
//! ```text
//! old: serves                 | serves, from memory     | asks the origin for all    | ends
//!      its disk               | no disk                 | no store at all            |
//!      changes: its own disk  | changes wait            | changes go to the new, which replies
//! new: reads its configuration| opens the disk          | serves, its disk           | serves
//!                           "store"                   "doors"  "ready"
//!
//! # What it promises
//!
//! (`server/src/handover.rs`, `runtime::process::link`). Two processes serve, and one has the disk.
//! A change that was answered at either is seen at both: once the new process accepts connections,
//! the old one serves no stored responses, and it notifies the new one of each change before it
//! answers. If one of them fails during the handover, the other keeps everything it had. Datagrams
//! of QUIC go to the process of their connection, whose number is hidden in the connection id
//! (`core_io::strays`), through all processes between.
//! ```
//!
//! Only one process has the disk, and only that one writes to it. Before the new process takes its
//! first connection, the old one stops serving from its memory, so changes at the new process need
//! not be sent to the old one. A change at the old process, by a connection that it still has, is
//! sent to the new one, and answered once the new one has applied it in its memory and durably on
//! its disk. There such a change is a purge: the keys of the two processes may differ.
//!
//! Before its first connection the new process also gets the secrets of the session tickets, so
//! that clients resume their sessions, and the key of the connection ids of QUIC: from then on it
//! receives all datagrams, and passes on those of the connections of the old one.
//!
//! In a cluster the new process also gets the purges that members have not acknowledged, and later
//! those that they do not acknowledge to the old one: until they have, they are asked nothing.
//!
//! If the new process fails before it serves, the old one takes its disk back and goes on serving;
//! it drops the contents of its memory if the other may have answered a change already.
//!
//! Who owns: the server's thread carries the handover out and may block. Afterwards a thread in
//! each process has the link, until the old process has ended. Cores only ask [`cache::handover`].
//! What never happens: an answered change is undone, or missed by either process; two processes
//! write to one disk.

use std::io;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use runtime::process::{
    CHANGES_BYTES_MAX, DatagramLink, Link, Message, Predecessor, Successor, SuccessorState,
};
use runtime::{Options, Runtime};

use crate::limits::{BACKLOG_SENT_EVERY, TAKEN_IN_WAIT_MAX};
use crate::process::DiskUser;
use cache::Cache;
use cache::handover::Waiting;
use exchange::Shared;
use exchange::cluster::State;
use transport::tls::TicketKeys;

/// Hands over to a successor. Returns its process id once it serves.
///
/// # Errors
/// Why it does not serve, and what this process could not get back, if anything.
pub(crate) fn leave(
    shared: &Arc<Shared>,
    tickets: &TicketKeys,
    mut successor: Successor,
    until: Instant,
    options: Options,
) -> Result<u32, String> {
    let cache = &shared.cache;
    let mut leaving = Leaving { shared, tickets, queue: None, handed_over: false, sent: 0 };
    if let Err(why) = leaving.until_it_serves(&mut successor, until) {
        // It has ended, and everything that it had is free.
        drop(successor);
        return Err(match leaving.come_back(options) {
            Ok(()) => why,
            Err(more) => format!("{why}; {more}"),
        });
    }
    let (pid, links) = successor.release();
    let queue = leaving.queue.take().unwrap_or_else(|| cache.handover.begin());
    cache.handover.set_left(true);
    let (cluster, sent) = (Arc::clone(&shared.cluster), leaving.sent);
    let started = links.and_then(|(link, datagrams)| {
        std::thread::Builder::new()
            .name("successor".into())
            .spawn(move || forward_changes(&link, &queue, &cluster, sent))?;
        receive_datagrams(shared, datagrams)
    });
    if let Err(error) = started {
        tracing::error!(
            %error,
            "process {pid} gets no changes of this process from now on, or this process loses its \
             connections of HTTP/3"
        );
    }
    Ok(pid)
}

/// Receives what the successor passes on.
fn receive_datagrams(shared: &Arc<Shared>, from: DatagramLink) -> io::Result<()> {
    let shared = Arc::clone(shared);
    let receive = move || shared.strays.receive_from(&from);
    std::thread::Builder::new().name("datagrams".into()).spawn(receive).map(drop)
}

/// A handover in progress.
struct Leaving<'s> {
    shared: &'s Arc<Shared>,
    tickets: &'s TicketKeys,
    queue: Option<mpsc::Receiver<Waiting>>,
    handed_over: bool,
    /// The number of the last purge for a member that the successor has got.
    sent: u64,
}

impl Leaving<'_> {
    fn until_it_serves(&mut self, successor: &mut Successor, until: Instant) -> Result<(), String> {
        let unreachable = |error| format!("it cannot be reached: {error}");
        let cache = &self.shared.cache;
        loop {
            match successor.next_state(until)? {
                SuccessorState::WantsStore => {
                    if self.queue.is_none() {
                        self.queue = Some(cache.handover.begin());
                    }
                    if let Some(disk) = &cache.disk {
                        self.handed_over = true;
                        disk.hand_over(until)?;
                    }
                }
                SuccessorState::WantsListeners => {
                    // From here on the successor may answer a change.
                    cache.handover.set_left(true);
                    let secrets = self.tickets.to_bytes();
                    successor.link().send_tickets(&secrets).map_err(unreachable)?;
                    self.shared.strays.introduce(successor.datagrams()).map_err(unreachable)?;
                    self.sent = send_backlog(successor.link(), &self.shared.cluster, 0)
                        .map_err(unreachable)?;
                }
                SuccessorState::Ready => return Ok(()),
            }
            successor.link().grant().map_err(unreachable)?;
        }
    }

    /// Goes on serving with everything that it had. `Err` says what could not be got back.
    fn come_back(self, options: Options) -> Result<(), String> {
        let Some(queue) = self.queue else { return Ok(()) };
        let (cache, handed_over) = (&self.shared.cache, self.handed_over);
        let come_back = move || {
            let mut runtime = Runtime::new(options).map_err(|error| error.to_string());
            if cache.handover.is_left() {
                // Fetches and stored responses from before a change that the other has answered.
                cache.watches.change_all();
                cache.store.clear();
            }
            let back = match (&cache.disk, &mut runtime) {
                (Some(disk), Ok(runtime)) if handed_over => runtime.block_on(disk.take_back()),
                (Some(_), Err(error)) if handed_over => Err(error.clone()),
                _ => Ok(()),
            };
            cache.handover.end();
            cache.handover.set_left(false);
            while let Ok(waiting) = queue.try_recv() {
                let taken = runtime.as_mut().is_ok_and(|runtime| {
                    let changes = cache.apply_all(&waiting.notices);
                    changes.is_some_and(|changes| runtime.block_on(changes.durable(cache)))
                });
                waiting.answer(taken);
            }
            back.map_err(|why| format!("and the store on disk is lost to this process: {why}"))
        };
        // In a separate thread: a runtime may pin the thread that it runs in.
        let ended = std::thread::scope(|scope| scope.spawn(come_back).join());
        ended.unwrap_or_else(|_| Err("and what it had may be lost to this process".to_owned()))
    }
}

/// Sends the purges that wait for members of the cluster since that number. Returns the last.
fn send_backlog(link: &Link, cluster: &State, since: u64) -> io::Result<u64> {
    let (messages, last) = cluster.waiting_since(since, CHANGES_BYTES_MAX);
    messages.iter().try_for_each(|message| link.send_backlog(message))?;
    Ok(last)
}

/// Sends all changes to the successor, waiting ones together, and purges that wait for members.
fn forward_changes(link: &Link, queue: &mpsc::Receiver<Waiting>, cluster: &State, mut sent: u64) {
    let mut is_lost = false;
    loop {
        let first = queue.recv_timeout(BACKLOG_SENT_EVERY);
        if let (false, Ok(last)) = (is_lost, send_backlog(link, cluster, sent)) {
            sent = last;
        }
        let first = match first {
            Ok(first) => first,
            Err(mpsc::RecvTimeoutError::Timeout) => continue,
            Err(mpsc::RecvTimeoutError::Disconnected) => return,
        };
        let mut notices = first.notices.clone();
        let mut waiting = vec![first];
        let mut next = None;
        while let Some(one) = next.take().or_else(|| queue.try_recv().ok()) {
            if notices.len() + one.notices.len() > CHANGES_BYTES_MAX {
                next = Some(one);
                break;
            }
            notices.extend_from_slice(&one.notices);
            waiting.push(one);
        }
        for (notices, waiting) in
            [(notices, waiting)].into_iter().chain(next.map(|one| (one.notices.clone(), vec![one])))
        {
            let taken = !is_lost
                && link.send_changes(&notices, TAKEN_IN_WAIT_MAX).unwrap_or_else(|error| {
                    tracing::error!(
                        %error,
                        "the successor does not get the changes of this process: it may serve \
                         old responses, or a crash may restore them"
                    );
                    is_lost = true;
                    false
                });
            waiting.into_iter().for_each(|one| one.answer(taken));
        }
    }
}

/// Waits until the store is ours.
///
/// # Errors
/// The process to replace has ended.
pub(crate) fn wait_for_store(predecessor: &Predecessor) -> io::Result<()> {
    predecessor.request_store()?;
    granted(predecessor).map(drop)
}

/// What comes before a grant.
#[derive(Default)]
struct Granted {
    secrets: Vec<u8>,
    backlog: Vec<Vec<u8>>,
}

/// Waits for a grant.
fn granted(predecessor: &Predecessor) -> io::Result<Granted> {
    let mut before = Granted::default();
    loop {
        match predecessor.link().receive()? {
            Message::Granted => return Ok(before),
            Message::Tickets(received) => before.secrets = received,
            Message::Backlog(received) => before.backlog.push(received),
            Message::Changes(_) => {
                return Err(io::Error::other("it sends changes before we serve"));
            }
        }
    }
}

/// Waits until connections are ours, takes the secrets of session tickets and of connection ids,
/// and applies the changes of the other process as long as it lives. Returns the thread that does.
///
/// # Errors
/// The process to replace has ended, or no thread could be started.
pub(crate) fn wait_for_listeners(
    predecessor: &Predecessor,
    shared: &Shared,
    tickets: &TicketKeys,
    options: Options,
) -> io::Result<JoinHandle<()>> {
    predecessor.request_listeners()?;
    let Granted { secrets, backlog } = granted(predecessor)?;
    tickets.adopt(&secrets);
    backlog.iter().for_each(|message| take_over(&shared.cluster, message));
    if let Err(error) = shared.strays.succeed(predecessor.datagrams()) {
        tracing::error!(%error, "connections of HTTP/3 of the process before are lost");
    }
    let link = predecessor.link().try_clone()?;
    let cache = &shared.cache;
    if let Some(disk) = &cache.disk {
        disk.core_begins();
    }
    // Keeps the disk open while the predecessor may send changes.
    let user = DiskUser(Arc::clone(cache));
    let options = options.with_pin_cpu(None);
    let cluster = Arc::clone(&shared.cluster);
    let follow = move || match Runtime::new(options) {
        Ok(runtime) => follow(&link, &user.0, &cluster, runtime),
        Err(error) => tracing::error!(%error, "no changes are received from the predecessor"),
    };
    std::thread::Builder::new().name("predecessor".into()).spawn(follow)
}

fn take_over(cluster: &State, message: &[u8]) {
    if !cluster.take_over(message) {
        tracing::error!("purges that wait for members cannot be read");
    }
}

/// Applies changes until the link ends.
fn follow(link: &Link, cache: &Cache, cluster: &State, mut runtime: Runtime) {
    loop {
        let notices = match link.receive() {
            Ok(Message::Changes(notices)) => notices,
            Ok(Message::Backlog(message)) => {
                take_over(cluster, &message);
                continue;
            }
            Ok(_) | Err(_) => return,
        };
        let taken = match cache.apply_all(&notices) {
            Some(changes) => runtime.block_on(changes.durable(cache)),
            None => {
                tracing::error!("the changes of the predecessor cannot be read");
                return;
            }
        };
        if link.reply(taken).is_err() {
            return;
        }
    }
}
