//! A condition within one core: tasks wait for it, and a task signals it.
//!
//! What: [`Notify::notify_all`] wakes all tasks that wait now. [`Notify::notify_one`] wakes the one
//! that has waited longest; if none waits, the next one to wait returns at once.
//! What never happens: a `notified()` that was created before a `notify_all` misses it, polled or
//! not; or a notification is lost because the chosen future is dropped unpolled (the next one gets
//! it).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A condition within one core.
#[derive(Debug, Default)]
pub struct Notify {
    /// Counts `notify_all`.
    epoch: Cell<u64>,
    /// A `notify_one` that found no waiting task.
    permit: Cell<bool>,
    next_place: Cell<u64>,
    /// In the order of waiting. `None`: chosen by `notify_one`, but not yet polled.
    waiting: RefCell<BTreeMap<u64, Option<Waker>>>,
}

impl Notify {
    /// A condition with no waiting task.
    #[must_use]
    pub fn new() -> Notify {
        Notify::default()
    }

    /// Wakes every future that [`Notify::notified`] has returned so far.
    pub fn notify_all(&self) {
        self.epoch.set(self.epoch.get() + 1);
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        waiting.into_values().flatten().for_each(Waker::wake);
    }

    /// Wakes the task that has waited longest; if none waits, the next one does not wait.
    pub fn notify_one(&self) {
        let chosen = self.waiting.borrow_mut().values_mut().find_map(Option::take);
        match chosen {
            Some(waker) => waker.wake(),
            None => self.permit.set(true),
        }
    }

    /// Waits for the next notification.
    pub fn notified(&self) -> Notified<'_> {
        Notified { notify: self, epoch: self.epoch.get(), place: None }
    }

    /// How many tasks wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }
}

/// Waits for a notification: see [`Notify::notified`].
#[derive(Debug)]
pub struct Notified<'n> {
    notify: &'n Notify,
    epoch: u64,
    place: Option<u64>,
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let notify = self.notify;
        if notify.epoch.get() != self.epoch {
            self.place = None; // `notify_all` has emptied all places
            return Poll::Ready(());
        }
        let Some(place) = self.place else {
            if notify.permit.replace(false) {
                self.epoch = self.epoch.wrapping_sub(1); // stays done if polled again
                return Poll::Ready(());
            }
            let place = notify.next_place.get();
            notify.next_place.set(place + 1);
            notify.waiting.borrow_mut().insert(place, Some(cx.waker().clone()));
            self.place = Some(place);
            return Poll::Pending;
        };
        let mut waiting = notify.waiting.borrow_mut();
        debug_assert!(waiting.contains_key(&place), "a place is kept until its future has ended");
        if let Some(Some(waker)) = waiting.get_mut(&place) {
            let displaced = std::mem::replace(waker, cx.waker().clone());
            drop(waiting);
            drop(displaced); // a foreign waker is dropped without the borrow
            return Poll::Pending;
        }
        waiting.remove(&place); // chosen by `notify_one`
        self.place = None;
        self.epoch = self.epoch.wrapping_sub(1);
        Poll::Ready(())
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let left = self.notify.waiting.borrow_mut().remove(&place);
        if matches!(left, Some(None)) {
            self.notify.notify_one(); // it was chosen but not polled: choose the next one
        }
    }
}
