//! Wakes the flusher, and reports when its work is done.

use std::future::poll_fn;
use std::task::{Poll, Waker};

use runtime::sync::primitives::{Mutex, MutexGuard};

/// A flag that one task waits for and any thread raises.
#[derive(Default)]
pub(super) struct Signal(Mutex<(bool, Option<Waker>)>);

impl Signal {
    pub(super) fn raise(&self) {
        let mut state = self.lock();
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits until the flag is raised, and lowers it.
    pub(super) async fn wait(&self) {
        poll_fn(|cx| {
            let mut state = self.lock();
            if std::mem::take(&mut state.0) {
                return Poll::Ready(());
            }
            state.1 = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, (bool, Option<Waker>)> {
        self.0.lock().expect("no panic while a signal is locked")
    }
}

/// The count of rounds when there will be no more.
const FINISHED: u64 = u64::MAX - 1;

/// Rounds of work. A caller waits for the end of a round that begins after its request.
#[derive(Default)]
pub(super) struct Rounds(Mutex<RoundsState>);

#[derive(Default)]
struct RoundsState {
    asked: u64,
    begun: u64,
    done: u64,
    waiters: Vec<Waker>,
}

impl Rounds {
    /// Requests a round. Pass the result to [`Rounds::wait`].
    pub(super) fn ask(&self) -> u64 {
        let mut state = self.lock();
        state.asked = state.begun + 1;
        // After the last round, that round.
        if state.done == FINISHED { FINISHED } else { state.asked }
    }

    pub(super) fn is_asked(&self) -> bool {
        let state = self.lock();
        state.asked > state.begun
    }

    /// Notes that a round begins.
    pub(super) fn begin(&self) {
        let mut state = self.lock();
        assert!(state.done == state.begun && state.begun < FINISHED, "one round at a time");
        state.begun += 1;
    }

    /// Notes that the current round has ended.
    pub(super) fn end(&self) {
        let state = self.lock();
        assert!(state.done < state.begun, "a round ends once, after it began");
        Rounds::conclude(state);
    }

    /// There will be no more rounds: releases all waiters.
    pub(super) fn finish(&self) {
        let mut state = self.lock();
        assert!(state.done == state.begun, "the last round has ended");
        state.begun = FINISHED;
        Rounds::conclude(state);
    }

    fn conclude(mut state: MutexGuard<'_, RoundsState>) {
        state.done = state.begun;
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        waiters.into_iter().for_each(Waker::wake);
    }

    /// Whether that round took place. False: by now there are no more rounds.
    pub(super) async fn wait(&self, round: u64) -> bool {
        assert!(round <= FINISHED, "a round that was asked for");
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.done >= round {
                return Poll::Ready(state.done < FINISHED);
            }
            state.waiters.push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, RoundsState> {
        self.0.lock().expect("no panic while the rounds are locked")
    }
}
