//! The other forms of a stored response: coded, or decoded, for clients that accept what others do
//! not.
//!
//! One entry of the store has the response as the origin sent it, and beside it the forms that were
//! made of it. Each form is a [`Stored`] with its own head and body, serialised like any other, so
//! that sending it costs what any hit costs. All that decides whether a response may be used
//! (freshness, purges, changes, eviction) is decided by the entry, and the entry accounts for the
//! bytes of all its forms.
//!
//! Like every stored response an entry is immutable: a new form makes a new entry that shares the
//! body ([`Cache::add_form`]). After a 304 the entry has a new head, and each form gets one made
//! from it, with the same bytes.
//!
//! What never happens: a form outlives its entry in the store; a form is made twice at a time; a
//! form that is no shorter than the original is kept.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, PoisonError};
use std::task::{Poll, Waker};

use caching::FieldSource;
use coding::TagRule;
use coding::fields::{fits_form, tag_of_form, weakened};
use coding::rules::{Source, Target};
use runtime::sync::{Lock, LockKind};
use store::Key;

use crate::Cache;
use crate::limits::FORM_ADDED_TRIES_MAX;
use crate::stored::{Entry, Head, Piece, Stored, Wire, varies_of};

/// The name that a response with several forms varies by, in lower case.
const SELECTING: &str = "accept-encoding";

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
pub(crate) enum Beside {
    /// The body is only on the disk.
    Away(Away),
    /// There may be other forms.
    Forms(Forms),
}

impl Beside {
    /// Of a new response in memory.
    pub(crate) fn of(head: &Head) -> Option<Box<Beside>> {
        head.source.map(|source| Box::new(Beside::Forms(Forms::new(source))))
    }
}

/// The forms of one response.
#[derive(Debug)]
pub struct Forms {
    source: Source,
    made: [Made; Target::COUNT],
    making: Arc<Making>,
}

/// What became of one form.
#[derive(Clone, Debug, Default)]
pub enum Made {
    /// It has not been made.
    #[default]
    Not,
    /// It is not worthwhile, or cannot be made.
    Declined,
    /// Here it is, and by which rule its tag was made.
    Form(Arc<Stored>, TagRule),
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

    /// Waits until the form is not being made, whatever became of it.
    pub async fn ended(&self, target: Target) {
        std::future::poll_fn(|cx| {
            if !self.has(target) {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push(cx.waker().clone());
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
    pub(crate) fn is_of(&self, forms: &Forms) -> bool {
        Arc::ptr_eq(&self.making, &forms.making)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.making.targets.fetch_and(!(1 << self.target.index()), Ordering::AcqRel);
        let mut waiting = self.making.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = std::mem::take(&mut *waiting);
        drop(waiting);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl Forms {
    fn new(source: Source) -> Forms {
        Forms { source, made: Default::default(), making: Making::new() }
    }

    /// How the origin coded the response.
    #[inline]
    pub fn source(&self) -> Source {
        self.source
    }

    /// A form.
    #[inline]
    pub fn get(&self, target: Target) -> &Made {
        &self.made[target.index()]
    }

    /// The names of the forms that were made.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let targets = coding::Coding::ALL.into_iter().map(Some).chain([None]).map(Target);
        let made = targets.filter(|target| matches!(self.get(*target), Made::Form(..)));
        made.map(Target::name)
    }

    /// The forms that are being made.
    pub fn making(&self) -> &Arc<Making> {
        &self.making
    }

    /// The duty to make a form; `None` if it is being made.
    pub(crate) fn start(&self, target: Target) -> Option<Started> {
        let bit = 1 << target.index();
        let before = self.making.targets.fetch_or(bit, Ordering::AcqRel);
        (before & bit == 0).then(|| Started { making: Arc::clone(&self.making), target })
    }

    fn accounted_bytes(&self) -> u64 {
        let of_form = |made: &Made| match made {
            Made::Form(stored, _) => stored.accounted_bytes(),
            Made::Not | Made::Declined => 0,
        };
        (size_of::<Beside>() + size_of::<Making>()) as u64
            + self.made.iter().map(of_form).sum::<u64>()
    }

    /// The same forms of the same body under another head.
    fn under(&self, head: &Head) -> Forms {
        let coding = |at: usize| coding::Coding::ALL.get(at).copied();
        let made = std::array::from_fn(|at| match &self.made[at] {
            Made::Form(stored, rule) => {
                let head = head.of_form(Target(coding(at)), *rule);
                Made::Form(Arc::new(stored.under(head)), *rule)
            }
            other => other.clone(),
        });
        Forms { source: self.source, made, making: Arc::clone(&self.making) }
    }

    fn with(&self, target: Target, new: Made) -> Forms {
        let mut made = self.made.clone();
        made[target.index()] = new;
        Forms { source: self.source, made, making: Arc::clone(&self.making) }
    }
}

impl Stored {
    /// Whether its body is in memory, and it has one form.
    #[inline]
    pub fn is_plain(&self) -> bool {
        self.beside.is_none()
    }

    /// The place of the body, if it is only on the disk.
    #[inline]
    pub fn place_away(&self) -> Option<&Away> {
        match self.beside.as_deref() {
            Some(Beside::Away(away)) => Some(away),
            Some(Beside::Forms(_)) | None => None,
        }
    }

    /// Its forms, if there may be others than this one.
    #[inline]
    pub fn forms(&self) -> Option<&Forms> {
        match self.beside.as_deref() {
            Some(Beside::Forms(forms)) => Some(forms),
            Some(Beside::Away(_)) | None => None,
        }
    }

    pub(crate) fn forms_bytes(&self) -> u64 {
        self.forms().map_or(0, Forms::accounted_bytes)
    }

    pub(crate) fn bytes_in_memory(&self) -> u64 {
        if self.place_away().is_some() { 0 } else { self.body_bytes }
    }

    /// What the same body has under another head.
    pub(crate) fn beside_under(&self, head: &Head) -> Option<Box<Beside>> {
        match self.beside.as_deref() {
            Some(Beside::Away(away)) => Some(Box::new(Beside::Away(*away))),
            Some(Beside::Forms(forms)) if head.source == Some(forms.source) => {
                Some(Box::new(Beside::Forms(forms.under(head))))
            }
            Some(Beside::Forms(_)) | None => Beside::of(head),
        }
    }

    /// Its body in this form.
    pub(crate) fn form(&self, target: Target, rule: TagRule, body: Piece) -> Stored {
        let pieces = if body.is_empty() { Vec::new() } else { vec![body] };
        Stored::new(Arc::new(self.head.of_form(target, rule)), pieces)
    }

    fn with_form(&self, forms: &Forms, target: Target, made: Made) -> Stored {
        let beside = Some(Box::new(Beside::Forms(forms.with(target, made))));
        let checked = self.checked.load(Ordering::Acquire);
        let (head, pieces) = (Arc::clone(&self.head), self.pieces.clone());
        Stored::with(head, pieces, beside, self.body_bytes, checked)
    }
}

impl Head {
    /// How the origin coded this response, if there may be other forms of it.
    pub fn source(&self) -> Option<Source> {
        self.source
    }

    /// The head of a response that is kept in several forms: `Vary` names `Accept-Encoding`, once.
    /// The response is stored for all values of that field, because we choose by it.
    pub fn in_several_forms(self, source: Source, request: &Wire<'_>) -> Head {
        let names_it = |value: &[u8]| {
            value.split(|&b| b == b',').any(|name| {
                name.trim_ascii().eq_ignore_ascii_case(SELECTING.as_bytes())
            })
        };
        let named = self.values("vary").any(names_it);
        let ours: Option<(&[u8], &[u8])> = (!named).then_some((b"Vary", b"Accept-Encoding"));
        let varies = match &self.varies {
            Some((names, _)) => {
                let others = names.without(SELECTING).map_or(caching::Vary::None, caching::Vary::Names);
                varies_of(&others, request)
            }
            None => None,
        };
        let (meta, resource) = (self.meta.clone(), self.resource.clone());
        let fields = self.fields().chain(ours);
        let (via, length) = (self.via(), self.announced_length);
        let mut head = Head::new(self.status, via, fields, meta, varies, resource, length);
        (head.source, head.part, head.purged) = (Some(source), self.part, self.purged);
        head
    }

    /// The head of another form of this response (RFC 9110, 8.4, 8.8.3.3).
    pub fn of_form(&self, target: Target, rule: TagRule) -> Head {
        let tag = self.meta.validators.etag.as_deref();
        let tag = tag.and_then(|tag| tag_of_form(tag, target.0, rule));
        self.with_tag(tag, target.0.map(|coding| coding.name().as_bytes()), fits_form)
    }

    /// The same head with a weak tag: that of all forms together.
    pub fn weakened(&self) -> Head {
        let tag = self.meta.validators.etag.as_deref().and_then(weakened);
        self.with_tag(tag, None, |name| !name.eq_ignore_ascii_case(b"etag"))
    }

    fn with_tag(
        &self,
        tag: Option<Vec<u8>>,
        coding: Option<&[u8]>,
        keeps: impl Fn(&[u8]) -> bool,
    ) -> Head {
        let mut meta = self.meta.clone();
        meta.validators.etag = tag.as_deref().map(Box::from);
        let tag = tag.as_deref().map(|tag| (&b"ETag"[..], tag));
        let coding = coding.map(|coding| (&b"Content-Encoding"[..], coding));
        let fields = self.fields().filter(|(name, _)| keeps(name)).chain(tag).chain(coding);
        let (varies, resource) = (self.varies.clone(), self.resource.clone());
        let mut head = Head::new(self.status, self.via(), fields, meta, varies, resource, None);
        head.purged = self.purged;
        head
    }

    /// Finds out whether a head that was read has several forms: then its `Vary` names a field that
    /// the response is not stored by.
    pub(crate) fn with_source(mut self) -> Head {
        let ours = match caching::vary(&self) {
            caching::Vary::Names(names) => {
                let by_it = |names: &caching::VaryNames| names.iter().any(|name| name == SELECTING);
                by_it(&names) && !self.varies.as_ref().is_some_and(|(stored, _)| by_it(stored))
            }
            caching::Vary::None | caching::Vary::Star => false,
        };
        self.source = if ours { Source::of(&self) } else { None };
        self
    }
}

impl Cache {
    /// Adds a form to the entry that has this body, if it is still stored. Returns whether it was
    /// added.
    pub(crate) fn add_form(&self, key: Key, of: &Arc<Stored>, target: Target, made: &Made) -> bool {
        let Some(forms) = of.forms() else { return false };
        for _ in 0..FORM_ADDED_TRIES_MAX {
            let Some(Entry::Response(now)) = self.store.peek(&key) else { return false };
            let Some(current) = now.forms().filter(|now| Arc::ptr_eq(&now.making, &forms.making))
            else {
                return false;
            };
            // A head that was updated meanwhile is that of the form, too.
            let made = match made {
                Made::Form(form, rule) if !Arc::ptr_eq(&now.head, &of.head) => {
                    let head = now.head.of_form(target, *rule);
                    Made::Form(Arc::new(form.under(head)), *rule)
                }
                other => other.clone(),
            };
            let new = Entry::Response(Arc::new(now.with_form(current, target, made)));
            let bytes = new.accounted_bytes();
            match self.store.replace_if(key, |entry| entry.is(&now), new, bytes) {
                Ok(true) => return true,
                Ok(false) => {}
                Err(refused) => {
                    tracing::debug!(%refused, "a form is not stored");
                    return false;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests;
