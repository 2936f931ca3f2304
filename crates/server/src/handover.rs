//! Another process takes our place, or we take another's: what is stored goes with it.
//!
//! ```text
//! old: serves                 | serves, from memory     | asks the origin for all    | ends
//!      its disk               | no disk                 | no store at all            |
//!      changes: its own disk  | changes wait            | changes are told the new, which replies
//! new: reads its configuration| opens the disk          | serves, its disk           | serves
//!                           "store"                   "doors"  "ready"
//! ```
//!
//! Only one process has the disk, and only the one that has it puts anything there. Before the new
//! one takes its first connection, the old one stops serving what it has in memory: what is changed
//! at the new one need not be told to the old. What is changed at the old one, by connections that
//! it still has, is told to the new, and answered when that has taken it in: in its memory, and on
//! its disk for good. Such a change is a purge there: keys of the two processes may differ.
//!
//! If the new one fails on its way, the old one takes its disk back and serves on; what it has in
//! memory is dropped if the other may have answered for a change already.
//!
//! Who owns: the server's thread carries it out; it may block. Afterwards a thread at each end has
//! the link, until the old process has ended. Cores only ask [`Handover`].
//! What never happens: a change that was answered is undone, or not seen at either process; two
//! processes write to one disk.

use std::io;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use runtime::process::{CHANGES_BYTES_MAX, Link, Message, Predecessor, Successor, SuccessorState};
use runtime::{Options, Runtime};

use crate::limits::TAKEN_IN_WAIT_MAX;
use cache::Cache;
use cache::handover::Waiting;

/// Leaves our place to a successor. Its process id, once it serves.
///
/// # Errors
/// Why it does not; all is ours again then, as far as that can be: the words say so.
pub(crate) fn leave(
    cache: &Arc<Cache>,
    mut successor: Successor,
    until: Instant,
    options: Options,
) -> Result<u32, String> {
    let mut leaving = Leaving { cache, queue: None, handed_over: false };
    if let Err(why) = leaving.until_it_serves(&mut successor, until) {
        // It has ended, and whatever it had is free.
        drop(successor);
        return Err(match leaving.come_back(options) {
            Ok(()) => why,
            Err(more) => format!("{why}; {more}"),
        });
    }
    let (pid, link) = successor.release();
    let queue = leaving.queue.take().unwrap_or_else(|| cache.handover.begin());
    cache.handover.set_left(true);
    let told = link.and_then(|link| {
        std::thread::Builder::new()
            .name("successor".into())
            .spawn(move || tell_on(&link, &queue))
            .map(drop)
    });
    if let Err(error) = told {
        tracing::error!(%error, "process {pid} is not told what changes here from now on");
    }
    Ok(pid)
}

/// On the way.
struct Leaving<'s> {
    cache: &'s Arc<Cache>,
    queue: Option<mpsc::Receiver<Waiting>>,
    handed_over: bool,
}

impl Leaving<'_> {
    fn until_it_serves(&mut self, successor: &mut Successor, until: Instant) -> Result<(), String> {
        loop {
            match successor.next_state(until)? {
                SuccessorState::WantsStore => {
                    if self.queue.is_none() {
                        self.queue = Some(self.cache.handover.begin());
                    }
                    if let Some(disk) = &self.cache.disk {
                        self.handed_over = true;
                        disk.hand_over(until)?;
                    }
                }
                // From here on it may answer for a change.
                SuccessorState::WantsListeners => self.cache.handover.set_left(true),
                SuccessorState::Ready => return Ok(()),
            }
            successor.link().grant().map_err(|error| format!("it cannot be told: {error}"))?;
        }
    }

    /// Serves on with all that it had. In words what cannot be had again.
    fn come_back(self, options: Options) -> Result<(), String> {
        let Some(queue) = self.queue else { return Ok(()) };
        let Leaving { cache, handed_over, .. } = self;
        let come_back = move || {
            let mut runtime = Runtime::new(options).map_err(|error| error.to_string());
            if cache.handover.is_left() {
                // What was asked for, or stored, before a change that the other has answered.
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
        // In a thread of its own: a runtime may pin the thread that it runs in.
        let ended = std::thread::scope(|scope| scope.spawn(come_back).join());
        ended.unwrap_or_else(|_| Err("and what it had may be lost to this process".to_owned()))
    }
}

/// Tells the process that has taken our place of all changes, those that wait at once.
fn tell_on(link: &Link, queue: &mpsc::Receiver<Waiting>) {
    let mut is_lost = false;
    while let Ok(first) = queue.recv() {
        let mut told = first.notices.clone();
        let mut waiting = vec![first];
        let mut next = None;
        while let Some(one) = next.take().or_else(|| queue.try_recv().ok()) {
            if told.len() + one.notices.len() > CHANGES_BYTES_MAX {
                next = Some(one);
                break;
            }
            told.extend_from_slice(&one.notices);
            waiting.push(one);
        }
        for (told, waiting) in
            [(told, waiting)].into_iter().chain(next.map(|one| (one.notices.clone(), vec![one])))
        {
            let taken = !is_lost
                && link.send_changes(&told, TAKEN_IN_WAIT_MAX).unwrap_or_else(|error| {
                    tracing::error!(
                        %error,
                        "the process that has taken our place is not told what changes here: it \
                         may serve what was there before, or a crash bring it back"
                    );
                    is_lost = true;
                    false
                });
            waiting.into_iter().for_each(|one| one.answer(taken));
        }
    }
}

/// Waits until what is stored is ours.
///
/// # Errors
/// The process that we were to replace has ended.
pub(crate) fn wait_for_store(predecessor: &Predecessor) -> io::Result<()> {
    predecessor.request_store()?;
    granted(predecessor)
}

fn granted(predecessor: &Predecessor) -> io::Result<()> {
    match predecessor.link().receive()? {
        Message::Granted => Ok(()),
        Message::Changes(_) => Err(io::Error::other("it tells of changes before we serve")),
    }
}

/// Waits until connections are ours, and takes in what the other still is told, as long as it
/// lives.
///
/// # Errors
/// The process that we were to replace has ended, or a thread cannot be had.
pub(crate) fn wait_for_doors(
    predecessor: &Predecessor,
    cache: &Arc<Cache>,
    options: Options,
) -> io::Result<()> {
    predecessor.request_listeners()?;
    granted(predecessor)?;
    let link = predecessor.link().try_clone()?;
    let follows = Follows::new(cache);
    let options = options.with_pin_cpu(None);
    let follow = move || match Runtime::new(options) {
        Ok(runtime) => follow(&link, &follows.0, runtime),
        Err(error) => tracing::error!(%error, "the process before this one is not heard"),
    };
    std::thread::Builder::new().name("predecessor".into()).spawn(follow).map(drop)
}

/// The disk is not let go of while the process before us has something to tell.
struct Follows(Arc<Cache>);

impl Follows {
    fn new(cache: &Arc<Cache>) -> Follows {
        if let Some(disk) = &cache.disk {
            disk.core_begins();
        }
        Follows(Arc::clone(cache))
    }
}

impl Drop for Follows {
    fn drop(&mut self) {
        if let Some(disk) = &self.0.disk {
            disk.core_ended();
        }
    }
}

/// Takes in what is told until its end.
fn follow(link: &Link, cache: &Cache, mut runtime: Runtime) {
    while let Ok(Message::Changes(told)) = link.receive() {
        let taken = match cache.apply_all(&told) {
            Some(changes) => runtime.block_on(changes.durable(cache)),
            None => {
                tracing::error!("what the process before this one tells cannot be read");
                return;
            }
        };
        if link.reply(taken).is_err() {
            return;
        }
    }
}
