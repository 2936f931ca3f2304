//! The heads of forms, and how forms come into an entry.
//!
//! Apart from [`crate::forms`] because a [`Stored`] has forms, and each form is one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use caching::{FieldSource, VaryKey, VaryNames};
use coding::TagRule;
use coding::fields::{fits_form, tag_of_form, weakened};
use coding::rules::{Source, Target};
use store::Key;

use crate::Cache;
use crate::forms::{Away, Beside, Forms, Made, Making};
use crate::limits::FORM_ADDED_TRIES_MAX;
use crate::stored::{Entry, Head, Piece, Stored, Wire, varies_of};

/// The name that a response with several forms varies by, in lower case.
const SELECTING: &str = "accept-encoding";

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
    pub fn forms(&self) -> Option<&Forms<Stored>> {
        match self.beside.as_deref() {
            Some(Beside::Forms(forms)) => Some(forms),
            Some(Beside::Away(_)) | None => None,
        }
    }

    /// Whether both are the same response, whatever forms were made of it in between, and if a
    /// purge has made one of them stale.
    pub fn shares_body(&self, other: &Stored) -> bool {
        match (self.forms(), other.forms()) {
            (Some(these), Some(others)) => Arc::ptr_eq(these.making(), others.making()),
            (None, None) => {
                let mut pieces = self.pieces.iter().zip(&*other.pieces);
                self.head.meta.requested_ms == other.head.meta.requested_ms
                    && self.place_away() == other.place_away()
                    && self.pieces.len() == other.pieces.len()
                    && pieces.all(|(this, other)| Arc::ptr_eq(this, other))
            }
            _ => false,
        }
    }

    pub(crate) fn forms_bytes(&self) -> u64 {
        self.forms().map_or(0, |forms| {
            let structure = size_of::<Beside<Stored>>() + size_of::<Making>();
            let made = forms.made().map(|form| form.accounted_bytes());
            structure as u64 + made.sum::<u64>()
        })
    }

    pub(crate) fn bytes_in_memory(&self) -> u64 {
        if self.place_away().is_some() { 0 } else { self.body_bytes }
    }

    /// What the same body has under another head.
    pub(crate) fn beside_under(&self, head: &Head) -> Option<Box<Beside<Stored>>> {
        match self.beside.as_deref() {
            Some(Beside::Away(away)) => Some(Box::new(Beside::Away(*away))),
            Some(Beside::Forms(forms)) if head.source == Some(forms.source()) => {
                let forms = forms
                    .each(|target, form, rule| Arc::new(form.under(head.of_form(target, rule))));
                Some(Box::new(Beside::Forms(forms)))
            }
            Some(Beside::Forms(_)) | None => head.beside(),
        }
    }

    /// Its body in this form.
    pub(crate) fn form(&self, target: Target, rule: TagRule, body: Piece) -> Stored {
        let pieces = if body.is_empty() { Vec::new() } else { vec![body] };
        Stored::new(Arc::new(self.head.of_form(target, rule)), pieces)
    }

    fn with_form(&self, forms: &Forms<Stored>, target: Target, made: Made<Stored>) -> Stored {
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

    /// What a new response in memory has beside it.
    pub(crate) fn beside(&self) -> Option<Box<Beside<Stored>>> {
        self.source.map(|source| Box::new(Beside::Forms(Forms::new(source))))
    }

    /// The head of a response that is kept in several forms: `Vary` names `Accept-Encoding`, once.
    /// The response is stored for all values of that field, because we choose by it.
    pub fn in_several_forms(self, source: Source, request: &Wire<'_>) -> Head {
        let names_it = |value: &[u8]| {
            value
                .split(|&b| b == b',')
                .any(|name| name.trim_ascii().eq_ignore_ascii_case(SELECTING.as_bytes()))
        };
        let named = self.values("vary").any(names_it);
        let ours: Option<(&[u8], &[u8])> = (!named).then_some((b"Vary", b"Accept-Encoding"));
        let varies = self.varies_but_by_coding(request);
        let (meta, resource) = (self.meta.clone(), self.resource.clone());
        let fields = self.fields().chain(ours);
        let mut head = Head::new(self.status, self.via(), fields, meta, resource);
        (head.varies, head.announced_length) = (varies, self.announced_length);
        (head.source, head.part, head.purged) = (Some(source), self.part, self.purged);
        head
    }

    /// The same head, stored for all values of `Accept-Encoding`: the response is not coded, so
    /// every client can read it.
    pub fn not_by_coding(mut self, request: &Wire<'_>) -> Head {
        self.varies = self.varies_but_by_coding(request);
        self
    }

    fn varies_but_by_coding(&self, request: &Wire<'_>) -> Option<Box<(VaryNames, VaryKey)>> {
        let (names, _) = self.varies.as_deref()?;
        let others = names.without(SELECTING).map_or(caching::Vary::None, caching::Vary::Names);
        varies_of(&others, request)
    }

    /// The same head with another tag.
    pub fn tagged(&self, tag: Vec<u8>) -> Head {
        self.with_tag(Some(tag), None, |name| !name.eq_ignore_ascii_case(b"etag"))
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
        let mut head = Head::new(self.status, self.via(), fields, meta, resource);
        (head.varies, head.purged) = (varies, self.purged);
        head
    }

    /// Finds out whether a head that was read has several forms: then its `Vary` names a field that
    /// the response is not stored by.
    pub(crate) fn with_source(mut self) -> Head {
        let ours = match caching::vary(&self) {
            caching::Vary::Names(names) => {
                let by_it = |names: &VaryNames| names.iter().any(|name| name == SELECTING);
                by_it(&names) && !self.varies.as_deref().is_some_and(|(stored, _)| by_it(stored))
            }
            caching::Vary::None | caching::Vary::Star => false,
        };
        self.source = if ours { Source::of(&self) } else { None };
        self
    }
}

impl Cache {
    /// The entry under this key, if it has the same body: it may have more forms.
    pub fn latest(&self, key: Key, of: &Stored) -> Option<Arc<Stored>> {
        match self.store.peek(&key)? {
            Entry::Response(now) if now.shares_body(of) => Some(now),
            _ => None,
        }
    }

    /// Adds a form to the entry that has this body, if it is still stored. Returns whether it was
    /// added.
    pub(crate) fn add_form(
        &self,
        key: Key,
        of: &Arc<Stored>,
        target: Target,
        made: &Made<Stored>,
    ) -> bool {
        for _ in 0..FORM_ADDED_TRIES_MAX {
            let Some(now) = self.latest(key, of) else { return false };
            let Some(current) = now.forms() else { return false };
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
