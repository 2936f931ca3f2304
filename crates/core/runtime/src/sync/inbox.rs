//! A bounded queue from any thread to one task.
//!
//! What: [`inbox`] makes both ends. A [`Sender`] may be cloned and sent to any thread; its messages
//! wake the receiving task on that task's core. The [`Inbox`] takes everything that has arrived
//! under one lock and returns it one by one.
//! What never happens: a sender waits (a full inbox returns the message), or a message that was
//! taken is lost when the receiving future is dropped.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{Guard, Lock, LockKind};
use crate::core;

static INBOX: LockKind = LockKind::new("inbox");

#[derive(Debug)]
struct Shared<T> {
    state: Lock<State<T>>,
    capacity: usize,
}

#[derive(Debug)]
struct State<T> {
    messages: VecDeque<T>,
    receiver: Option<Waker>,
    senders: usize,
    receiver_gone: bool,
}

impl<T> Shared<T> {
    fn state(&self) -> Guard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both ends of a queue that holds at most `capacity` messages.
#[must_use]
pub fn inbox<T>(capacity: usize) -> (Sender<T>, Inbox<T>) {
    let state =
        State { messages: VecDeque::new(), receiver: None, senders: 1, receiver_gone: false };
    let shared = Arc::new(Shared { state: Lock::new(&INBOX, state), capacity });
    (Sender(Arc::clone(&shared)), Inbox { shared, fetched: VecDeque::new() })
}

/// Why a message was not sent. Holds the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError<T> {
    /// The receiver does not keep up.
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::Full(_) => "the inbox is full",
            SendError::Closed(_) => "the inbox is closed",
        })
    }
}

impl<T: fmt::Debug> std::error::Error for SendError<T> {}

/// The sending end.
pub struct Sender<T>(Arc<Shared<T>>);

/// A derived implementation would require that messages are `Debug`.
impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> Sender<T> {
    /// Puts a message into the inbox and wakes the receiver.
    ///
    /// # Errors
    /// The inbox is full, or the receiver is gone.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let receiver = {
            let mut state = self.0.state();
            if state.receiver_gone {
                return Err(SendError::Closed(message));
            }
            if state.messages.len() >= self.0.capacity {
                return Err(SendError::Full(message));
            }
            state.messages.push_back(message);
            assert!(state.messages.len() <= self.0.capacity && state.senders > 0);
            state.receiver.take()
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        let mut state = self.0.state();
        assert!(state.senders > 0, "a sender counts until it is dropped");
        state.senders += 1;
        drop(state);
        Sender(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let receiver = {
            let mut state = self.0.state();
            assert!(state.senders > 0, "a sender counts until it is dropped");
            state.senders -= 1;
            if state.senders == 0 { state.receiver.take() } else { None }
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }
}

/// The receiving end. May be moved to another thread before it is used there.
#[derive(Debug)]
pub struct Inbox<T> {
    shared: Arc<Shared<T>>,
    fetched: VecDeque<T>,
}

impl<T> Inbox<T> {
    /// Waits for the next message; `None` once every sender is gone and everything was received.
    pub fn recv(&mut self) -> Recv<'_, T> {
        Recv(self)
    }

    /// The next message, if there is one.
    pub fn try_recv(&mut self) -> Option<T> {
        if self.fetched.is_empty() {
            std::mem::swap(&mut self.shared.state().messages, &mut self.fetched);
            debug_assert!(self.fetched.len() <= self.shared.capacity, "the queue is bounded");
        }
        self.fetched.pop_front()
    }

    /// [`Inbox::recv`] for hand-written futures.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        if !core::may_go_on(cx) {
            return Poll::Pending;
        }
        if let Some(message) = self.fetched.pop_front() {
            return Poll::Ready(Some(message));
        }
        let mut state = self.shared.state();
        std::mem::swap(&mut state.messages, &mut self.fetched);
        if let Some(message) = self.fetched.pop_front() {
            return Poll::Ready(Some(message));
        }
        if state.senders == 0 {
            return Poll::Ready(None);
        }
        let displaced = state.receiver.replace(cx.waker().clone());
        drop(state);
        drop(displaced); // a foreign waker is dropped without the lock
        Poll::Pending
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        let messages = {
            let mut state = self.shared.state();
            assert!(!state.receiver_gone, "there is one receiver");
            state.receiver_gone = true;
            std::mem::take(&mut state.messages)
        };
        drop(messages); // their destructors run without the lock
    }
}

/// Waits for a message: see [`Inbox::recv`].
#[derive(Debug)]
pub struct Recv<'i, T>(&'i mut Inbox<T>);

impl<T> Future for Recv<'_, T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.0.poll_recv(cx)
    }
}
