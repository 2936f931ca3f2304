//! The state of a handover to another process, as far as the cache must know it.
//!
//! While there is a successor, changes wait to be sent to it. Once it serves, no response stored
//! here may be served. The server's thread performs the handover and sets this state.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

use runtime::process::CHANGES_BYTES_MAX;
use runtime::sync::{Sender, inbox};

use crate::changes::Notice;

/// The state of a handover to another process.
#[derive(Debug, Default)]
pub struct Handover {
    /// The successor may serve: nothing stored here is valid any more.
    left: Left,
    /// Counts starts and ends.
    rounds: AtomicU64,
    /// Changes for the successor, while there is one.
    queue: Mutex<Option<mpsc::Sender<Waiting>>>,
}

/// In two cache lines without anything else, to avoid false sharing: every look-up reads the flag,
/// and purges and stored responses write to the queue and to the counters beside it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Left(AtomicBool);

/// Changes waiting to be sent.
pub struct Waiting {
    /// The encoded notices.
    pub notices: Vec<u8>,
    taken: Sender<bool>,
}

impl Waiting {
    /// Reports whether the other process has applied and stored them.
    pub fn answer(self, taken: bool) {
        // The sender may be gone.
        let _ = self.taken.send(taken);
    }
}

impl Handover {
    /// Whether nothing stored here may be served any more.
    #[inline]
    pub fn is_left(&self) -> bool {
        self.left.0.load(Ordering::Acquire)
    }

    /// How often a handover has started or been abandoned.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Acquire)
    }

    /// Sends changes to the successor. Returns whether they are durable there; `None`: there is
    /// none. Waits until the successor serves, or fails.
    pub async fn send(&self, notices: impl Iterator<Item = &Notice>) -> Option<bool> {
        let mut answer = {
            let queue = self.queue();
            let queue = queue.as_ref()?;
            let (taken, answer) = inbox(1);
            let mut encoded = Vec::new();
            notices.for_each(|notice| notice.encode(&mut encoded));
            let notices = encoded;
            if notices.len() > CHANGES_BYTES_MAX || queue.send(Waiting { notices, taken }).is_err()
            {
                return Some(false);
            }
            answer
        };
        Some(answer.recv().await.unwrap_or(false))
    }

    /// Sets whether nothing stored here may be served any more.
    pub fn set_left(&self, left: bool) {
        self.left.0.store(left, Ordering::Release);
    }

    /// Starts to queue changes.
    pub fn begin(&self) -> mpsc::Receiver<Waiting> {
        let (sender, receiver) = mpsc::channel();
        let mut queue = self.queue();
        self.rounds.fetch_add(1, Ordering::AcqRel);
        *queue = Some(sender);
        receiver
    }

    /// Stops queueing: there is no successor.
    pub fn end(&self) {
        let mut queue = self.queue();
        self.rounds.fetch_add(1, Ordering::AcqRel);
        *queue = None;
    }

    /// No code in this file panics while it holds the lock.
    fn queue(&self) -> MutexGuard<'_, Option<mpsc::Sender<Waiting>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::Handover;

    #[test]
    fn the_flag_of_each_look_up_shares_no_line_with_what_purges_write() {
        let line = |offset: usize| offset / 64;
        let flag = line(offset_of!(Handover, left));
        assert!(align_of::<Handover>() >= 64);
        assert_ne!(line(offset_of!(Handover, rounds)), flag);
        assert_ne!(line(offset_of!(Handover, queue)), flag);
        assert_ne!(line(size_of::<Handover>()), flag, "nor with what follows");
    }
}
