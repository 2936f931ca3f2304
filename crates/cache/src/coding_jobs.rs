//! Making forms: off the cores, a few at a time, with a bounded queue.
//!
//! A job names its entry and does not hold it: a queue keeps no memory from being freed. The core
//! that starts a job awaits the thread that does the work, then takes the next job,
//! so that at most [`Rules::jobs_max`] threads of the runtime's pool are taken from the disk.
//!
//! A form that is being made is a body that arrives: its bytes count as those do, and what would
//! exceed their limit (`limits.arriving_share`) is not made now.
//!
//! ```text
//!   ask --> refused (the queue is full, or the memory for bodies that arrive)
//!    '----> waiting --> gone (the entry has changed)
//!              '------> encoding or decoding --> added to the entry
//!                                          '---> declined (no shorter, malformed, too long)
//!                                          '---> refused (the memory for bodies that arrive)
//! ```

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, PoisonError};

use coding::rules::Target;
use coding::{Bound, Failed, Rules, TagRule};
use metrics::Described;
use runtime::sync::{Guard, Lock, LockKind};
use runtime::time;
use store::Key;

use crate::Cache;
use crate::forms::{Made, Started};
use crate::stored::{Entry, Piece, Stored};

/// The jobs of all cores.
#[derive(Debug)]
pub struct Jobs {
    state: Lock<State>,
    /// Jobs that have begun or wait.
    unfinished: Arc<AtomicUsize>,
    made: AtomicU64,
    declined: AtomicU64,
    refused: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    busy_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// Tasks that take jobs.
    running: usize,
    waiting: VecDeque<Job>,
}

/// A form to make.
#[derive(Debug)]
struct Job {
    key: Key,
    started: Started,
    level: u8,
    tag: TagRule,
    _room: Room,
}

/// One of the jobs that there may be at a time.
#[derive(Debug)]
struct Room(Arc<AtomicUsize>);

impl Drop for Room {
    fn drop(&mut self) {
        self.0.fetch_sub(1, AcqRel);
    }
}

/// Of all forms to make.
static JOBS: LockKind = LockKind::new("forms: jobs");

impl Default for Jobs {
    fn default() -> Jobs {
        Jobs {
            state: Lock::new(&JOBS, State::default()),
            unfinished: Arc::default(),
            made: AtomicU64::new(0),
            declined: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
        }
    }
}

impl Jobs {
    fn state(&self) -> Guard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for another job.
    fn room(&self, rules: &Rules) -> Option<Room> {
        let most = rules.jobs_max + rules.queue_max;
        let more = |jobs: usize| (jobs < most).then_some(jobs + 1);
        self.unfinished.fetch_update(AcqRel, Acquire, more).ok()?;
        Some(Room(Arc::clone(&self.unfinished)))
    }

    /// The current figures, in the order of [`FIGURES`].
    pub(crate) fn figures(&self) -> [u64; 7] {
        let waiting = self.state().waiting.len() as u64;
        let Jobs { made, declined, refused, bytes_in, bytes_out, busy_ns, .. } = self;
        let of = |count: &AtomicU64| count.load(Relaxed);
        let [made, declined, refused] = [made, declined, refused].map(of);
        [made, declined, refused, of(bytes_in), of(bytes_out), of(busy_ns), waiting]
    }
}

/// The metrics of the forms, in order.
pub const FIGURES: &[Described] = &[
    Described::counter("forms_made", "Coded or decoded forms of stored responses that were made"),
    Described::counter(
        "forms_declined",
        "Forms that were not kept: no shorter than the original, malformed, or too long",
    ),
    Described::counter(
        "forms_refused",
        "Requests whose form was not made for later ones because the queue or the memory for \
         bodies that arrive was full",
    ),
    Described::counter("forms_in_bytes", "Bytes of the bodies that forms were made of"),
    Described::counter("forms_out_bytes", "Bytes of the bodies of the forms that were made"),
    Described::counter(
        "forms_busy_seconds",
        "Time that making forms took, with the wait for a thread",
    ),
    Described::gauge("forms_waiting", "Forms that wait to be made"),
];

/// The memory of a form while it is made.
struct Memory {
    cache: Arc<Cache>,
    taken: u64,
    bytes_max: u64,
}

impl Bound for Memory {
    fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    fn takes(&mut self, bytes: u64) -> bool {
        let fits = self.cache.take_arriving(bytes);
        self.taken += if fits { bytes } else { 0 };
        fits
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.cache.give_arriving(self.taken);
    }
}

/// A task that takes jobs. It is counted until it finds none, or is dropped with its core.
struct Running {
    cache: Arc<Cache>,
    is_counted: bool,
}

impl Running {
    async fn run(mut self) {
        while let Some(job) = self.next() {
            job.run(&self.cache).await;
        }
    }

    fn next(&mut self) -> Option<Job> {
        let mut state = self.cache.jobs.state();
        let job = state.waiting.pop_front();
        if job.is_none() {
            // Under the lock: a job that comes now starts another task.
            state.running -= 1;
            self.is_counted = false;
        }
        job
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        let mut state = self.cache.jobs.state();
        state.running -= 1;
        // Its core ends. No task is left that would take the jobs that wait: the requests that wait
        // for one are woken, and later ones ask for it again.
        let orphans =
            if state.running == 0 { std::mem::take(&mut state.waiting) } else { [].into() };
        drop(state);
        drop(orphans);
    }
}

impl Cache {
    /// Has a form of a stored response made, for later requests, unless it is being made or there
    /// is no room. Returns whether it is being made.
    #[cold]
    pub fn ask_for_form(
        self: &Arc<Cache>,
        key: Key,
        stored: &Stored,
        target: Target,
        rules: &Rules,
    ) -> bool {
        let Some(forms) = stored.forms() else { return false };
        if forms.is_being_made(target) {
            return true;
        }
        let has_memory = self.has_room_for(stored.body_bytes);
        let Some(room) = self.jobs.room(rules).filter(|_| has_memory) else {
            self.jobs.refused.fetch_add(1, Relaxed);
            return false;
        };
        let Some(started) = forms.start(target) else { return true };
        let level = rules.codings.iter().find(|level| Some(level.coding) == target.0);
        let level = level.map_or(0, |level| level.level);
        let mut state = self.jobs.state();
        let job = Job { key, started, level, tag: rules.tag, _room: room };
        match target.0 {
            // A client waits for it, and decoding is quick.
            None => state.waiting.push_front(job),
            Some(_) => state.waiting.push_back(job),
        }
        if state.running < rules.jobs_max {
            state.running += 1;
            drop(state);
            let running = Running { cache: Arc::clone(self), is_counted: true };
            runtime::spawn(running.run()).detach();
        }
        true
    }
}

impl Job {
    async fn run(self, cache: &Arc<Cache>) {
        let target = self.started.target;
        let Some(Entry::Response(stored)) = cache.store.peek(&self.key) else { return };
        let Some(forms) = stored.forms().filter(|forms| self.started.is_of(forms)) else { return };
        if !matches!(forms.get(target), Made::Not) {
            return;
        }
        let source = forms.source().coding();
        let (pieces, bytes) = (stored.pieces.clone(), stored.body_bytes);
        let bytes_max = match target.0 {
            // A form that is no shorter is not worthwhile.
            Some(_) => bytes.saturating_sub(1),
            None => cache.memory_object_bytes_max(),
        };
        let mut memory = Memory { cache: Arc::clone(cache), taken: 0, bytes_max };
        let level = self.level;
        let work = move || {
            let body = match (target.0, source) {
                (Some(coding), _) => coding::encode(coding, level, &pieces, &mut memory)?,
                (None, Some(coding)) => coding::decode(coding, &pieces, &mut memory)?,
                (None, None) => return Err(Failed::Malformed),
            };
            // It is copied to where it stays.
            let is_room = memory.takes(body.len() as u64);
            is_room.then(|| (Piece::from(body), memory)).ok_or(Failed::NoRoom)
        };
        let began = time::now();
        // A codec that panics must not take the core with it.
        let guarded =
            move || catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Failed::Malformed));
        let result = runtime::fs::unblock(guarded).await;
        cache.jobs.busy_ns.fetch_add(began.elapsed().as_nanos() as u64, Relaxed);
        // Its memory is taken until it is in the store, and accounted for there.
        let (made, _memory) = match result {
            Ok((body, memory)) => {
                cache.jobs.bytes_in.fetch_add(bytes, Relaxed);
                cache.jobs.bytes_out.fetch_add(body.len() as u64, Relaxed);
                let form = Arc::new(stored.form(target, self.tag, body));
                (Made::Form(form, self.tag), Some(memory))
            }
            // It may be asked for again.
            Err(Failed::NoRoom) => {
                cache.jobs.refused.fetch_add(1, Relaxed);
                return;
            }
            Err(why) => {
                tracing::debug!(form = target.name(), %why, "a form is not made");
                (Made::Declined, None)
            }
        };
        let is_form = matches!(made, Made::Form(..));
        let added = cache.add_form(self.key, &stored, target, &made);
        if is_form && added {
            cache.jobs.made.fetch_add(1, Relaxed);
            return;
        }
        cache.jobs.declined.fetch_add(1, Relaxed);
        if is_form {
            // It has no room: do not make it again for each request.
            cache.add_form(self.key, &stored, target, &Made::Declined);
        }
    }
}

#[cfg(test)]
mod tests;
