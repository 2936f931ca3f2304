//! Requests that wait because every server is full: in order, bounded, on any core.
//!
//! ```text
//!   enter --> Waiting --called--> Called --room found--> served (leaves)
//!                ^                  |
//!                '--- no room for --'   (and the next one is called instead)
//!                     this one
//! ```
//!
//! A release calls the request that has waited longest. A called request that leaves unserved (its
//! client has gone, its time is over) passes the call on, so that no room stays unused while a
//! request waits. An entering request is counted before it looks for room, and a release makes room
//! before it looks for waiting requests: one of the two always sees the other.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};

use runtime::sync::{Guard, Lock, LockKind};

static LINE: LockKind = LockKind::new("upstream: queue of a group");

/// The queue of a group.
#[derive(Debug)]
pub(super) struct Queue {
    line: Lock<Line>,
    length: AtomicUsize,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue { line: Lock::new(&LINE, Line::default()), length: AtomicUsize::new(0) }
    }
}

#[derive(Debug, Default)]
struct Line {
    next: u64,
    /// In the order of arrival.
    places: BTreeMap<u64, State>,
}

#[derive(Debug)]
enum State {
    Waiting(Option<Waker>),
    Called,
}

/// A place in the queue, which is given up when it is dropped.
#[derive(Debug)]
pub(super) struct Place<'q> {
    queue: &'q Queue,
    number: u64,
}

impl Queue {
    /// The number of waiting requests.
    pub(super) fn len(&self) -> usize {
        self.length.load(SeqCst)
    }

    /// A place at the end; `None` if the queue has reached this length.
    pub(super) fn enter(&self, length_max: usize) -> Option<Place<'_>> {
        let mut line = self.line();
        if line.places.len() >= length_max {
            return None;
        }
        let number = line.next;
        line.next += 1;
        line.places.insert(number, State::Waiting(None));
        self.length.store(line.places.len(), SeqCst);
        Some(Place { queue: self, number })
    }

    /// There is room for one more: calls the request that has waited longest.
    #[inline]
    pub(super) fn call_next(&self) {
        if self.len() > 0 {
            self.call_after(Bound::Unbounded);
        }
    }

    /// There may be room for many: calls all.
    pub(super) fn call_all(&self) {
        let mut wakers = Vec::new();
        for state in self.line().places.values_mut() {
            if let State::Waiting(waker) = std::mem::replace(state, State::Called) {
                wakers.extend(waker);
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    fn call_after(&self, from: Bound<u64>) {
        let waker = {
            let mut line = self.line();
            let mut waiting = line.places.range_mut((from, Bound::Unbounded));
            waiting.find_map(|(_, state)| match state {
                State::Called => None,
                State::Waiting(waker) => {
                    let waker = waker.take();
                    *state = State::Called;
                    Some(waker)
                }
            })
        };
        if let Some(Some(waker)) = waker {
            waker.wake();
        }
    }

    /// Nothing panics while it holds this lock.
    fn line(&self) -> Guard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Ready when this request is called.
    pub(super) fn poll_called(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut line = self.queue.line();
        match line.places.get_mut(&self.number) {
            Some(State::Waiting(waker)) => {
                let displaced = waker.replace(cx.waker().clone());
                drop(line);
                drop(displaced);
                Poll::Pending
            }
            Some(State::Called) | None => Poll::Ready(()),
        }
    }

    /// The room is not for this request: it goes on waiting, and the next one is called.
    pub(super) fn wait_on(&self) {
        let was_called = {
            let mut line = self.queue.line();
            let state = line.places.insert(self.number, State::Waiting(None));
            matches!(state, Some(State::Called))
        };
        if was_called {
            self.queue.call_after(Bound::Excluded(self.number));
        }
    }

    /// This request has found room.
    pub(super) fn served(self) {
        self.leave();
    }

    fn leave(&self) -> Option<State> {
        let mut line = self.queue.line();
        let state = line.places.remove(&self.number);
        self.queue.length.store(line.places.len(), SeqCst);
        state
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // Absent if it was served.
        if let Some(State::Called) = self.leave() {
            self.queue.call_next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_called(place: &Place<'_>) -> bool {
        place.poll_called(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn requests_are_called_in_order_and_their_number_is_bounded() {
        let queue = Queue::default();
        let places: Vec<_> = (0..3).map(|_| queue.enter(3).unwrap()).collect();
        assert!(queue.enter(3).is_none());
        queue.call_next();
        queue.call_next();
        assert_eq!(places.iter().map(is_called).collect::<Vec<_>>(), [true, true, false]);
        assert_eq!(queue.len(), 3);
    }

    #[test]
    fn a_request_that_leaves_unserved_passes_its_call_on() {
        let queue = Queue::default();
        let (a, b, c) = (queue.enter(9).unwrap(), queue.enter(9).unwrap(), queue.enter(9).unwrap());
        queue.call_next();
        assert!(is_called(&a));
        drop(a);
        assert!(is_called(&b) && !is_called(&c));
        b.served();
        assert!(!is_called(&c));
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn room_that_one_cannot_use_goes_to_the_next() {
        let queue = Queue::default();
        let (a, b) = (queue.enter(9).unwrap(), queue.enter(9).unwrap());
        queue.call_next();
        a.wait_on();
        assert!(!is_called(&a) && is_called(&b));
        b.wait_on();
        assert!(!is_called(&a) && !is_called(&b));
        queue.call_all();
        assert!(is_called(&a) && is_called(&b));
    }
}
