//! How far another process is in taking our place, as the cache has to know it.
//!
//! While there is one, changes wait to be sent to it; once it serves, nothing that is stored here
//! may be served any more. The server's thread carries the handover out and sets this state.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

use runtime::process::CHANGES_BYTES_MAX;
use runtime::sync::{Sender, inbox};

use crate::changes::Notice;

/// How far another process is in taking our place.
#[derive(Debug, Default)]
pub struct Handover {
    /// It may serve: nothing that is stored here counts any more.
    left: AtomicBool,
    /// Counts begins and returns.
    rounds: AtomicU64,
    /// Changes for it, while there is one.
    queue: Mutex<Option<mpsc::Sender<Waiting>>>,
}

/// Changes that wait to be told.
pub struct Waiting {
    /// The encoded notices.
    pub told: Vec<u8>,
    taken: Sender<bool>,
}

impl Waiting {
    /// Says whether the other process has them for good.
    pub fn answer(self, taken: bool) {
        // Whoever asked may have gone.
        let _ = self.taken.send(taken);
    }
}

impl Handover {
    /// Whether nothing that is stored here may be served any more.
    #[inline]
    pub fn is_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// How often a handover has begun or been given up.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Acquire)
    }

    /// Tells the process that takes our place of changes; whether it has them for good. `None`:
    /// there is none. Waits as long as it takes to come to serve, or to fail.
    pub async fn tell(&self, notices: impl Iterator<Item = &Notice>) -> Option<bool> {
        let (taken, mut answer) = inbox(1);
        {
            let queue = self.queue();
            let queue = queue.as_ref()?;
            let mut told = Vec::new();
            notices.for_each(|notice| notice.encode(&mut told));
            if told.len() > CHANGES_BYTES_MAX || queue.send(Waiting { told, taken }).is_err() {
                return Some(false);
            }
        }
        Some(answer.recv().await.unwrap_or(false))
    }

    /// Whether what is stored here counts from now on.
    pub fn set_left(&self, left: bool) {
        self.left.store(left, Ordering::Release);
    }

    /// From now on changes wait.
    pub fn begin(&self) -> mpsc::Receiver<Waiting> {
        let (sender, receiver) = mpsc::channel();
        let mut queue = self.queue();
        self.rounds.fetch_add(1, Ordering::AcqRel);
        *queue = Some(sender);
        receiver
    }

    /// There is nobody who takes our place.
    pub fn end(&self) {
        let mut queue = self.queue();
        self.rounds.fetch_add(1, Ordering::AcqRel);
        *queue = None;
    }

    /// Nothing in this file panics while it holds the lock.
    fn queue(&self) -> MutexGuard<'_, Option<mpsc::Sender<Waiting>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
