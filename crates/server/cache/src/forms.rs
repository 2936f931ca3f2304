//! The other forms of a stored response: coded, or decoded, for clients that accept what others do
//! not.
//!
//! One entry of the store has the response as the origin sent it, and beside it the forms that were
//! made of it. Each form is a [`Stored`](crate::stored::Stored) with its own head and body,
//! serialised like any other, so that sending it costs what any hit costs. All that decides whether
//! a response may be used (freshness, purges, changes, eviction) is decided by the entry, and the
//! entry accounts for the bytes of all its forms.
//!
//! Like every stored response an entry is immutable: a new form makes a new entry that shares the
//! body (`form_heads`). After a 304 the entry has a new head, and each form gets one made
//! from it, with the same bytes.
//!
//! What never happens: a form outlives its entry in the store; a form is made twice at a time; a
//! form that is no shorter than the original is kept.
//!
//! # What it promises
//!
//! (`crates/http/coding`, `cache/src/forms.rs`). One entry of the store has the response as the
//! origin sent it, and beside it the forms made of it, each with its own head and body. So a form
//! is sent as any response is, and never outlives the response that it was made of. A form is made
//! once, on a thread of the runtime's pool, by a job that names its entry and holds no memory while
//! it waits; its buffer and the copy that stays are reserved before it begins, in memory for forms
//! alone, which has room for one of the greatest length. No client gets a stored response in a
//! coding that it does not accept, whatever is configured, and no two forms have the same strong
//! tag (docs/compression.md). The rows `compressed hit` and `hit of the compressed size` of `bench
//! counts` show what the choice costs.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Poll, Waker};

use coding::TagRule;
use coding::rules::{Source, Target};
use runtime::sync::{Lock, LockKind};
use store::Key;

use crate::limits::FORM_WAITERS_MAX;

/// The place of a body that is only on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Away {
    /// The key of its record.
    pub key: Key,
    /// The object's number. Another object under this key has another number.
    pub object: u64,
}

/// What a response has that is not plain. One pointer, so that a plain hit checks for all at once.
#[derive(Debug)]
pub(crate) enum Beside<S> {
    /// The body is only on the disk.
    Away(Away),
    /// There may be other forms.
    Forms(Forms<S>),
}

/// The forms of one response.
#[derive(Debug)]
pub struct Forms<S> {
    source: Source,
    made: [Made<S>; Target::COUNT],
    making: Arc<Making>,
}

/// What became of one form.
#[derive(Debug, Default)]
pub enum Made<S> {
    /// It has not been made.
    #[default]
    Not,
    /// It is not worthwhile, or cannot be made.
    Declined,
    /// Here it is, and by which rule its tag was made.
    Form(Arc<S>, TagRule),
}

impl<S> Clone for Made<S> {
    fn clone(&self) -> Made<S> {
        match self {
            Made::Not => Made::Not,
            Made::Declined => Made::Declined,
            Made::Form(form, rule) => Made::Form(Arc::clone(form), *rule),
        }
    }
}

/// The forms of one body that are being made, for all entries that share the body.
#[derive(Debug)]
pub struct Making {
    /// A bit for each target.
    targets: AtomicU8,
    waiting: Lock<Vec<Waker>>,
}

const _: () = assert!(Target::COUNT <= u8::BITS as usize);

/// Of the requests that wait for a form.
static WAITING: LockKind = LockKind::new("forms: waiting");

impl Making {
    fn new() -> Arc<Making> {
        Arc::new(Making { targets: AtomicU8::new(0), waiting: Lock::new(&WAITING, Vec::new()) })
    }

    fn has(&self, target: Target) -> bool {
        self.targets.load(Ordering::Acquire) & (1 << target.index()) != 0
    }

    /// Waits until the form is not being made, whatever became of it. Does not wait if too many
    /// do.
    pub async fn ended(&self, target: Target) {
        std::future::poll_fn(|cx| {
            if !self.has(target) {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                if waiting.len() == FORM_WAITERS_MAX {
                    return Poll::Ready(());
                }
                waiting.push(cx.waker().clone());
            }
            // The job may have ended between the check and the lock.
            if self.has(target) { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

/// The duty to make one form. When it is dropped, another may begin.
#[derive(Debug)]
pub(crate) struct Started {
    making: Arc<Making>,
    pub(crate) target: Target,
}

impl Started {
    /// Whether it is the duty for these forms.
    pub(crate) fn is_of<S>(&self, forms: &Forms<S>) -> bool {
        Arc::ptr_eq(&self.making, &forms.making)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let bit = 1 << self.target.index();
        let before = self.making.targets.fetch_and(!bit, Ordering::AcqRel);
        debug_assert!(before & bit != 0, "a form is made once at a time");
        let mut waiting = self.making.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = std::mem::take(&mut *waiting);
        drop(waiting);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl<S> Forms<S> {
    pub(crate) fn new(source: Source) -> Forms<S> {
        Forms { source, made: Default::default(), making: Making::new() }
    }

    /// How the origin coded the response.
    #[inline]
    pub fn source(&self) -> Source {
        self.source
    }

    /// A form.
    #[inline]
    pub fn get(&self, target: Target) -> &Made<S> {
        &self.made[target.index()]
    }

    /// The forms that are being made.
    pub fn making(&self) -> &Arc<Making> {
        &self.making
    }

    /// Whether a form is being made, or waits for that. Many cores may ask: it only reads.
    pub(crate) fn is_being_made(&self, target: Target) -> bool {
        self.making.has(target)
    }

    /// The duty to make a form; `None` if it is being made.
    pub(crate) fn start(&self, target: Target) -> Option<Started> {
        let bit = 1 << target.index();
        let before = self.making.targets.fetch_or(bit, Ordering::AcqRel);
        (before & bit == 0).then(|| Started { making: Arc::clone(&self.making), target })
    }

    /// The forms that were made.
    pub(crate) fn made(&self) -> impl Iterator<Item = &Arc<S>> {
        self.made.iter().filter_map(|made| match made {
            Made::Form(form, _) => Some(form),
            Made::Not | Made::Declined => None,
        })
    }

    /// The same forms of the same body, each changed.
    pub(crate) fn each(&self, change: impl Fn(Target, &Arc<S>, TagRule) -> Arc<S>) -> Forms<S> {
        let made = std::array::from_fn(|at| match &self.made[at] {
            Made::Form(form, rule) => {
                let target = Target(coding::Coding::ALL.get(at).copied());
                Made::Form(change(target, form, *rule), *rule)
            }
            other => other.clone(),
        });
        Forms { source: self.source, made, making: Arc::clone(&self.making) }
    }

    /// The same forms, and what became of another.
    pub(crate) fn with(&self, target: Target, new: Made<S>) -> Forms<S> {
        let mut made = self.made.clone();
        made[target.index()] = new;
        Forms { source: self.source, made, making: Arc::clone(&self.making) }
    }
}
