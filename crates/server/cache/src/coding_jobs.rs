//! Making forms: off the cores, a few at a time, with a bounded queue.
//!
//! A job names its entry and does not hold it: a queue keeps no memory from being freed. The core
//! that starts a job awaits the thread that does the work, then takes the next job,
//! so that at most [`Rules::jobs_max`] threads of the runtime's pool are taken from the disk.
//!
//! The most that a form may take is reserved before the work begins, from memory that only forms
//! use: they keep no body that arrives from being stored, and no work is done for a form that has
//! no room. A job for which there is no memory waits for those that run.
//!
//! ```text
//!   ask --> refused (the queue is full)
//!    '----> waiting --> gone (the entry has changed)
//!              '------> encoding or decoding --> added to the entry
//!                                          '---> declined (no shorter, malformed, too long)
//! ```
//!
//! What never happens: forms that are being made take more memory than two bodies of the greatest
//! length; a form is made and then dropped because there is no memory for it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, PoisonError};

use coding::rules::Target;
use coding::{Failed, Rules, TagRule};
use metrics::Described;
use runtime::sync::{Guard, Lock, LockKind};
use runtime::time;
use store::Key;

use crate::Cache;
use crate::forms::{Made, Started};
use crate::limits::FORM_COPIES;
use crate::lookup::take;
use crate::stored::{Entry, Piece, Stored};

/// The jobs of all cores.
#[derive(Debug)]
pub struct Jobs {
    state: Lock<State>,
    /// Jobs that have begun or wait.
    unfinished: Arc<AtomicUsize>,
    /// Memory that is reserved for those that have begun.
    pub(crate) reserved_bytes: AtomicU64,
    made: AtomicU64,
    declined: AtomicU64,
    refused: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    busy_ns: AtomicU64,
    passing: Passing,
}

/// The responses that are coded while they pass.
#[derive(Debug, Default)]
struct Passing {
    now: Arc<AtomicUsize>,
    coded: AtomicU64,
    refused: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

/// The place of one encoder among those that may run at a time.
#[derive(Debug)]
pub struct Encoding {
    _room: Room,
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
    /// The most that its form may have.
    bytes_max: u64,
    _room: Room,
}

/// One of the jobs that there may be at a time.
#[derive(Debug)]
struct Room(Arc<AtomicUsize>);

impl Room {
    fn of(taken: &Arc<AtomicUsize>, most: usize) -> Option<Room> {
        let more = |taken: usize| (taken < most).then_some(taken + 1);
        taken.fetch_update(AcqRel, Acquire, more).ok()?;
        Some(Room(Arc::clone(taken)))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, AcqRel);
        debug_assert!(before > 0, "each job has taken its room");
    }
}

/// Of all forms to make.
static JOBS: LockKind = LockKind::new("forms: jobs");

impl Default for Jobs {
    fn default() -> Jobs {
        Jobs {
            state: Lock::new(&JOBS, State::default()),
            unfinished: Arc::default(),
            reserved_bytes: AtomicU64::new(0),
            made: AtomicU64::new(0),
            declined: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            passing: Passing::default(),
        }
    }
}

impl Jobs {
    fn state(&self) -> Guard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for another job.
    fn room(&self, rules: &Rules) -> Option<Room> {
        Room::of(&self.unfinished, rules.jobs_max + rules.queue_max)
    }

    /// The current figures, in the order of [`FIGURES`].
    pub(crate) fn figures(&self) -> [u64; 13] {
        let waiting = self.state().waiting.len() as u64;
        let Jobs { made, declined, refused, bytes_in, bytes_out, busy_ns, .. } = self;
        let of = |count: &AtomicU64| count.load(Relaxed);
        let [made, declined, refused] = [made, declined, refused].map(of);
        let reserved = of(&self.reserved_bytes);
        let (bytes_in, bytes_out, busy_ns) = (of(bytes_in), of(bytes_out), of(busy_ns));
        let passing = &self.passing;
        let [coded, uncoded] = [&passing.coded, &passing.refused].map(of);
        let (passed_in, passed_out) = (of(&passing.bytes_in), of(&passing.bytes_out));
        let now = passing.now.load(Relaxed) as u64;
        let forms = [made, declined, refused, bytes_in, bytes_out, busy_ns, waiting, reserved];
        let passed = [coded, uncoded, passed_in, passed_out, now];
        let mut all = forms.into_iter().chain(passed);
        std::array::from_fn(|_| all.next().expect("eight and five figures"))
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
        "Requests whose form was not made for later ones because the queue was full",
    ),
    Described::counter("forms_in_bytes", "Bytes of the bodies that forms were made of"),
    Described::counter("forms_out_bytes", "Bytes of the bodies of the forms that were made"),
    Described::counter(
        "forms_busy_seconds",
        "Time that making forms took, with the wait for a thread",
    ),
    Described::gauge("forms_waiting", "Forms that wait to be made"),
    Described::gauge("forms_reserved_bytes", "Memory reserved for forms that are being made"),
    Described::counter("passed_coded", "Responses that were coded while they passed"),
    Described::counter(
        "passed_uncoded",
        "Responses that passed uncoded because too many were being coded",
    ),
    Described::counter(
        "passed_coded_in_bytes",
        "Bytes of bodies before they were coded in passing",
    ),
    Described::counter("passed_coded_out_bytes", "Bytes of bodies that were coded in passing"),
    Described::gauge("passed_encoders", "Responses that are being coded while they pass"),
];

/// The memory of a form while it is made.
struct Memory {
    cache: Arc<Cache>,
    bytes: u64,
}

impl Memory {
    /// For a form of this length. A form that memory may store fits while no other is made.
    fn reserve(cache: &Arc<Cache>, form_bytes: u64) -> Option<Memory> {
        let bytes = form_bytes * FORM_COPIES;
        let most = cache.memory_object_bytes_max() * FORM_COPIES;
        let is_room = take(&cache.jobs.reserved_bytes, bytes, most);
        is_room.then(|| Memory { cache: Arc::clone(cache), bytes })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.cache.jobs.reserved_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

/// A task that takes jobs. It is counted until it finds none, or is dropped with its core.
struct Running {
    cache: Arc<Cache>,
    is_counted: bool,
}

impl Running {
    async fn run(mut self) {
        while let Some((job, memory)) = self.next() {
            job.run(&self.cache, memory).await;
        }
    }

    /// The next job, with its memory.
    fn next(&mut self) -> Option<(Job, Memory)> {
        loop {
            let mut state = self.cache.jobs.state();
            let wanted = state.waiting.front().map(|job| job.bytes_max);
            let memory = wanted.and_then(|bytes| Memory::reserve(&self.cache, bytes));
            // Without memory it is left to the tasks that run. The memory of a core that has ended
            // may come back later than they do: then the last of them drops the job.
            let is_left = memory.is_none() && state.running > 1;
            let Some(job) = (if is_left { None } else { state.waiting.pop_front() }) else {
                // Under the lock: a job that comes now starts another task, and those that run give
                // their memory back before they come here.
                state.running -= 1;
                self.is_counted = false;
                return None;
            };
            drop(state);
            if let Some(memory) = memory {
                return Some((job, memory));
            }
            self.cache.jobs.refused.fetch_add(1, Relaxed);
        }
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
    /// The figures of the forms, in the order of [`FIGURES`].
    pub fn form_figures(&self) -> impl Iterator<Item = (Described, u64)> {
        FIGURES.iter().copied().zip(self.jobs.figures())
    }

    /// A place for an encoder of a response that passes, if fewer than `most` run.
    pub fn encoding(&self, most: usize) -> Option<Encoding> {
        let passing = &self.jobs.passing;
        let room = Room::of(&passing.now, most);
        let count = if room.is_some() { &passing.coded } else { &passing.refused };
        count.fetch_add(1, Relaxed);
        room.map(|room| Encoding { _room: room })
    }

    /// Counts what such an encoder has read and given out.
    pub fn count_passed(&self, bytes_in: usize, bytes_out: usize) {
        self.jobs.passing.bytes_in.fetch_add(bytes_in as u64, Relaxed);
        self.jobs.passing.bytes_out.fetch_add(bytes_out as u64, Relaxed);
    }

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
        let Some(room) = self.jobs.room(rules) else {
            self.jobs.refused.fetch_add(1, Relaxed);
            return false;
        };
        let Some(started) = forms.start(target) else { return true };
        let level = rules.codings.iter().find(|level| Some(level.coding) == target.0);
        let level = level.map_or(0, |level| level.level);
        let bytes = stored.body_bytes;
        let bytes_max = match target.0 {
            // A form that is no shorter is not worthwhile.
            Some(_) => bytes.saturating_sub(1),
            None => coding::decoded_bytes_max(bytes),
        };
        let bytes_max = bytes_max.min(self.memory_object_bytes_max());
        let job = Job { key, started, level, tag: rules.tag, bytes_max, _room: room };
        let mut state = self.jobs.state();
        match target.0 {
            // A client waits for it, and decoding is quick.
            None => state.waiting.push_front(job),
            Some(_) => state.waiting.push_back(job),
        }
        if state.running < rules.jobs_max {
            state.running += 1;
            drop(state);
            let running = Running { cache: Arc::clone(self), is_counted: true };
            runtime::spawn_detached(running.run());
        }
        true
    }
}

impl Job {
    async fn run(self, cache: &Arc<Cache>, memory: Memory) {
        let target = self.started.target;
        let Some(Entry::Response(stored)) = cache.store.peek(&self.key) else { return };
        let Some(forms) = stored.forms().filter(|forms| self.started.is_of(forms)) else { return };
        if !matches!(forms.get(target), Made::Not) {
            return;
        }
        let source = forms.source().coding();
        let (pieces, bytes) = (stored.pieces.clone(), stored.body_bytes);
        let (level, bytes_max) = (self.level, self.bytes_max);
        let work = move || {
            let body = match (target.0, source) {
                (Some(coding), _) => coding::encode(coding, level, &pieces, bytes_max)?,
                (None, Some(coding)) => coding::decode(coding, &pieces, bytes_max)?,
                (None, None) => return Err(Failed::Malformed),
            };
            // It is copied to where it stays.
            Ok((Piece::from(body), memory))
        };
        let began = time::now();
        // A codec that panics must not take the core with it.
        let guarded =
            move || catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(Failed::Malformed));
        let result = runtime::fs::unblock(guarded).await;
        cache.jobs.busy_ns.fetch_add(began.elapsed().as_nanos() as u64, Relaxed);
        // Its memory is reserved until it is in the store, and accounted for there.
        let (made, _memory) = match result {
            Ok((body, memory)) => {
                cache.jobs.bytes_in.fetch_add(bytes, Relaxed);
                cache.jobs.bytes_out.fetch_add(body.len() as u64, Relaxed);
                let form = Arc::new(stored.form(target, self.tag, body));
                (Made::Form(form, self.tag), Some(memory))
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
