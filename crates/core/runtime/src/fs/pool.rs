//! A few threads for work that may block.
//!
//! What: [`unblock`] runs a closure on one of at most [`THREADS_MAX`] threads and completes when
//! the closure has returned. All cores share the threads; they start when there is work and end
//! when there has been none for a while.
//! Who owns: the process owns the queue; the closure and its value belong to the thread, then to
//! the task.
//! What never happens: a core waits for a thread, or the pool exceeds its bound. On the twin the
//! closure runs immediately on the core, because virtual time does not wait for real work.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::core;
use crate::counters::count;
use crate::sys::World;

/// Threads that may wait for disks at the same time, for all cores together.
pub const THREADS_MAX: usize = 8;
/// A thread without work ends after this.
const IDLE_MAX: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

struct Pool {
    state: Mutex<State>,
    work: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    /// idle <= threads <= THREADS_MAX
    threads: usize,
    idle: usize,
}

impl State {
    fn check(&self) {
        assert!(self.idle <= self.threads && self.threads <= THREADS_MAX, "the pool is bounded");
    }
}

static POOL: Pool = Pool {
    state: Mutex::new(State { jobs: VecDeque::new(), threads: 0, idle: 0 }),
    work: Condvar::new(),
};

/// Runs `work` in the pool and returns its value.
///
/// Dropping the future does not stop the work. If `work` panics, the future panics.
pub async fn unblock<T, W>(work: W) -> T
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    {
        let core = core::current();
        count(&core.counters.pool_jobs);
        if matches!(core.world, World::Simulated(_)) {
            drop(core);
            return work();
        }
    }
    let answer = Arc::new(Answer { state: Mutex::new(Stage::Waiting(None)) });
    let worker = Arc::clone(&answer);
    POOL.submit(Box::new(move || {
        worker.give(panic::catch_unwind(AssertUnwindSafe(work)));
    }));
    let result = poll_fn(|cx| {
        let mut stage = answer.stage();
        match std::mem::replace(&mut *stage, Stage::Waiting(None)) {
            Stage::Done(result) => Poll::Ready(result),
            Stage::Waiting(_) => {
                *stage = Stage::Waiting(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    })
    .await;
    result.unwrap_or_else(|panicked| panic::resume_unwind(panicked))
}

struct Answer<T> {
    state: Mutex<Stage<T>>,
}

enum Stage<T> {
    Waiting(Option<Waker>),
    Done(thread::Result<T>),
}

impl<T> Answer<T> {
    fn stage(&self) -> MutexGuard<'_, Stage<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give(&self, result: thread::Result<T>) {
        let before = std::mem::replace(&mut *self.stage(), Stage::Done(result));
        if let Stage::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&'static self, job: Job) {
        let mut state = self.state();
        state.check();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() || state.threads == THREADS_MAX {
            drop(state);
            self.work.notify_one();
            return;
        }
        state.threads += 1;
        drop(state);
        let started = thread::Builder::new().name("disk".to_owned()).spawn(|| self.serve());
        if started.is_err() {
            let mut state = self.state();
            state.threads -= 1;
            // If there is no thread at all, the work must be done here.
            let stranded = if state.threads == 0 { state.jobs.pop_back() } else { None };
            drop(state);
            if let Some(job) = stranded {
                job();
            }
        }
    }

    fn serve(&self) {
        // Otherwise the thread would preempt the core that submits work, and delay all that the
        // core serves. If the system refuses, continue without it.
        let _ = crate::sys::real::set_batch_scheduling();
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state();
                continue;
            }
            state.idle += 1;
            state.check();
            let (woken, waited) = self
                .work
                .wait_timeout_while(state, IDLE_MAX, |state| state.jobs.is_empty())
                .unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.check();
            state.idle -= 1;
            if waited.timed_out() && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}
