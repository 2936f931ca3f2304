//! Graceful stop: one signal that asks every task on every core to finish.
//!
//! What: a [`StopSource`] is triggered once, from any thread. Each of its [`StopToken`]s sees that,
//! by [`StopToken::is_stopped`] or by awaiting [`StopToken::stopped`].
//! Who owns: both are handles to shared state and may be cloned and sent freely.
//! What never happens: a stop is revoked, or a waiting task misses it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::sync::primitives::{AtomicBool, Mutex, MutexGuard};

#[derive(Debug, Default)]
struct Shared {
    stopped: AtomicBool,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The side that triggers the stop.
#[derive(Clone, Debug, Default)]
pub struct StopSource(Arc<Shared>);

impl StopSource {
    /// A source that has not been triggered.
    #[must_use]
    pub fn new() -> StopSource {
        StopSource::default()
    }

    /// Triggers the stop. Only the first call has an effect. Takes a lock, so it must not be called
    /// in a signal handler.
    pub fn stop(&self) {
        let wakers = {
            let mut waiting = self.0.waiting();
            self.0.stopped.store(true, Ordering::Release);
            std::mem::take(&mut waiting.wakers)
        };
        wakers.into_values().for_each(Waker::wake);
    }

    /// True once it has been triggered.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// A token of this source.
    #[must_use]
    pub fn token(&self) -> StopToken {
        StopToken(Arc::clone(&self.0))
    }
}

/// The side that sees the stop.
#[derive(Clone, Debug)]
pub struct StopToken(Arc<Shared>);

impl StopToken {
    /// A token that never stops.
    #[must_use]
    pub fn never() -> StopToken {
        StopSource::new().token()
    }

    /// True once the source has been triggered. Costs one load.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Acquire)
    }

    /// Done once the source is triggered.
    #[must_use]
    pub fn stopped(&self) -> Stopped {
        Stopped { shared: Arc::clone(&self.0), place: None }
    }
}

/// Waits for a stop: see [`StopToken::stopped`].
#[derive(Debug)]
pub struct Stopped {
    shared: Arc<Shared>,
    place: Option<u64>,
}

impl Future for Stopped {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if this.shared.stopped.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let mut waiting = this.shared.waiting();
        // Checked again under the lock under which it is set, so that no stop is missed in between.
        if this.shared.stopped.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        debug_assert!(this.place.is_none_or(|place| place <= waiting.next), "places only rise");
        let place = *this.place.get_or_insert_with(|| {
            waiting.next += 1;
            waiting.next
        });
        let displaced = waiting.wakers.insert(place, cx.waker().clone());
        drop(waiting);
        drop(displaced); // a foreign waker is dropped without the lock
        Poll::Pending
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let waker = self.shared.waiting().wakers.remove(&place);
            drop(waker);
        }
    }
}
