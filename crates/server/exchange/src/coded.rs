//! Which form of a response a client gets: as the origin sent it, coded, or decoded.
//!
//! The fields of the request decide, when the response is sent. The fast path of a hit
//! ([`crate::hit`]), an exchange ([`crate::serve`]) and an explanation all call the functions of
//! this module. If the chosen form does not exist yet, the making of the form is requested, and
//! this client gets the response as the origin sent it. Only a client that cannot read this
//! response waits for the decoded form.
//!
//! A range is always a range of the response as the origin sent it. A request with `Range` gets no
//! coded form, and a form is always sent whole, so two forms are never mixed.
//!
//! What never happens: a client gets a stored response in a coding that the client does not accept
//! (this holds even if coding has been turned off for the URI); a message with `no-transform` is
//! changed; a 304 gives a form the strong tag of another form.

use std::borrow::Cow;
use std::sync::Arc;

use cache::forms::Made;
use cache::stored::{Head, Stored, Wire};
use caching::etag::{self, EntityTag};
use caching::{CacheControl, Evaluator, Precondition};
use coding::fields::tag_of_form;
use coding::rules::{Source, Target};
use coding::{Accept, Coding, Rules};
use config::Role;
use http1::{Fields, Name};
use store::Key;

use crate::request::hints;
use crate::snapshot::Snapshot;

/// The choice for one request.
#[derive(Debug)]
pub(crate) enum Chosen<'h> {
    /// 304 with this head.
    NotModified(Box<Cow<'h, Head>>),
    /// The response as the origin sent it.
    AsItIs,
    /// Another form.
    Form(Arc<Stored>),
    /// This form has to be made. Until then: the next best one that there is, if any, or the
    /// response as it is.
    Wanting(Coding, Option<Arc<Stored>>),
    /// The client cannot read the response as it is: it has to be decoded first.
    Decoding,
    /// The client cannot read the response as it is, and it cannot be decoded.
    Unreadable,
}

/// What a request says about forms.
pub(crate) struct Wish<'r> {
    method: &'r [u8],
    fields: Fields<'r>,
    accept: Accept,
    /// `None` if no form is made or chosen for this request: nothing is coded for its URI, or it
    /// forbids transformations (RFC 9110, 7.7).
    pub(crate) rules: Option<&'r Rules>,
}

impl<'r> Wish<'r> {
    #[inline]
    pub(crate) fn of(
        snapshot: &'r Snapshot,
        role: Role,
        codes: impl FnOnce() -> bool,
        (method, fields): (&'r [u8], Fields<'r>),
    ) -> Wish<'r> {
        // A reload may have changed what the route said when the response was stored.
        let may_be_coded = || {
            role == Role::Reverse
                && !fields.contains_token(Name::CacheControl, b"no-transform")
                && codes()
        };
        let rules = snapshot.config.compression.as_ref().filter(|_| may_be_coded());
        Wish { method, fields, accept: accepted(&fields), rules }
    }

    /// What this request gets of a response that may be used for it, and which is stored whole or
    /// in parts.
    pub(crate) fn answer<'h>(&self, head: &'h Head, whole: Option<&Arc<Stored>>) -> Chosen<'h> {
        // Conditions come before ranges (RFC 9110, 13.2.2), and before the choice of a form.
        if let Some(head) = self.not_modified(head) {
            return Chosen::NotModified(Box::new(head));
        }
        match whole {
            Some(stored) => self.choose(stored),
            None if self.cannot_read(head.source()) => Chosen::Unreadable,
            None => Chosen::AsItIs,
        }
    }

    /// The form of a stored response for this request.
    #[inline]
    pub(crate) fn choose(&self, stored: &Stored) -> Chosen<'static> {
        let Some(forms) = stored.forms() else {
            let unread = self.cannot_read(stored.head.source());
            return if unread { Chosen::Unreadable } else { Chosen::AsItIs };
        };
        if let Source::Coded(coding) = forms.source() {
            return match forms.get(Target(None)) {
                _ if self.accept.accepts(coding) => Chosen::AsItIs,
                _ if !self.decodes(&stored.head) => Chosen::Unreadable,
                Made::Form(form, _) => Chosen::Form(Arc::clone(form)),
                Made::Not => Chosen::Decoding,
                Made::Declined => Chosen::Unreadable,
            };
        }
        let takes_range = self.fields.has(Name::Range);
        let Some(rules) = self.rules.filter(|_| !takes_range) else { return Chosen::AsItIs };
        let mut wanting = None;
        for level in rules.ranked(self.accept).into_iter().map_while(|level| level) {
            match forms.get(Target(Some(level.coding))) {
                Made::Form(form, _) => {
                    let form = Arc::clone(form);
                    return match wanting {
                        Some(coding) => Chosen::Wanting(coding, Some(form)),
                        None => Chosen::Form(form),
                    };
                }
                Made::Not if stored.body_bytes <= rules.bytes_max => {
                    wanting = wanting.or(Some(level.coding));
                }
                Made::Not | Made::Declined => {}
            }
        }
        wanting.map_or(Chosen::AsItIs, |coding| Chosen::Wanting(coding, None))
    }

    /// Whether a response that the origin has coded may be decoded for this request. An update may
    /// have forbidden it.
    pub(crate) fn decodes(&self, head: &Head) -> bool {
        self.rules.is_some() && !CacheControl::of(head).no_transform
    }

    /// Whether the client does not accept a response that the origin has coded like this.
    pub(crate) fn cannot_read(&self, source: Option<Source>) -> bool {
        source.and_then(Source::coding).is_some_and(|coding| !self.accept.accepts(coding))
    }

    /// The head of the 304 that answers the request's conditions, if they hold for a form that the
    /// client may have. It has the tag of a form only if the client names that one.
    pub(crate) fn not_modified<'h>(&self, head: &'h Head) -> Option<Cow<'h, Head>> {
        if !hints(&self.fields).has_conditions() {
            return None;
        }
        if let Some(tag) = self.named_form(head) {
            return Some(Cow::Owned(head.tagged(tag)));
        }
        if !is_not_modified(self.method, self.fields, head) {
            return None;
        }
        let own = head.meta.validators.entity_tag().filter(|own| !own.weak);
        let names_own = || own.is_some_and(|own| self.tags().any(|tag| tag.strong_eq(&own)));
        let is_certain = own.is_none() || (names_own() && !self.tags().any(|tag| tag.weak));
        // What the client has may be any form: a strong tag would be of one.
        Some(if is_certain { Cow::Borrowed(head) } else { Cow::Owned(head.weakened()) })
    }

    /// The tag of a form that the client names and may have got, made or not.
    fn named_form(&self, head: &Head) -> Option<Vec<u8>> {
        let (rules, source) = (self.rules?, head.source()?);
        let own = head.meta.validators.etag.as_deref()?;
        let named = |target: Target| {
            let tag = tag_of_form(own, target.0, rules.tag)?;
            let of_form = EntityTag::parse(&tag)?;
            self.tags().any(|one| one.weak_eq(&of_form)).then_some(tag)
        };
        match source {
            Source::Identity => {
                let ranked = rules.ranked(self.accept).into_iter().flatten();
                ranked.map(|level| Target(Some(level.coding))).find_map(named)
            }
            Source::Coded(_) if self.cannot_read(Some(source)) => named(Target(None)),
            Source::Coded(_) => None,
        }
    }

    /// The tags of the responses that the client has.
    fn tags(&self) -> impl Iterator<Item = EntityTag<'_>> {
        self.fields.all(Name::IfNoneMatch).flat_map(etag::list)
    }
}

/// Whether the client's copy is still good, by the client's own validators.
pub(crate) fn is_not_modified(method: &[u8], fields: Fields<'_>, head: &Head) -> bool {
    let (wire, validators) = (Wire(fields), &head.meta.validators);
    let request = caching::Request { method, fields: &wire };
    let condition = caching::conditional(&request, head.status, validators, Evaluator::Cache);
    matches!(condition, Precondition::NotModified(_))
}

/// What the request accepts.
#[inline]
pub(crate) fn accepted(fields: &Fields<'_>) -> Accept {
    match fields.get(Name::AcceptEncoding) {
        None => Accept::IDENTITY,
        Some(_) if fields.is_repeated(Name::AcceptEncoding) => {
            Accept::parse(fields.all(Name::AcceptEncoding))
        }
        Some(line) => Accept::of_line(line),
    }
}

/// What answers a request at once.
#[derive(Debug)]
pub struct Hit {
    /// What is sent: the stored response, or another form of it.
    pub stored: Arc<Stored>,
    /// Its key in the store.
    pub key: Key,
    /// The entry of the store, if another form of it is sent.
    pub(crate) form_of: Option<Arc<Stored>>,
}

impl Hit {
    /// The entry of the store. Its size does not depend on the form that is sent.
    #[inline]
    pub fn entry(&self) -> &Stored {
        self.form_of.as_ref().unwrap_or(&self.stored)
    }
}

/// The form that is sent, for an explanation.
pub(crate) fn describe(
    wish: &Wish<'_>,
    chosen: &Chosen<'_>,
    (head, body_bytes): (&Head, u64),
) -> Option<String> {
    let sent = head.source()?.coding().map_or("identity", Coding::name);
    let form = |form: &Stored| {
        let coding = Source::of(&*form.head).and_then(Source::coding);
        let name = coding.map_or("identity", Coding::name);
        format!("{name}, {} bytes instead of {body_bytes}", form.body_bytes)
    };
    Some(match chosen {
        Chosen::NotModified(_) | Chosen::Unreadable => return None,
        Chosen::AsItIs if wish.rules.is_none() => {
            format!("{sent}, as the origin sent it: nothing is coded for this request")
        }
        Chosen::AsItIs => format!("{sent}, as the origin sent it"),
        Chosen::Form(other) => form(other),
        Chosen::Wanting(coding, meanwhile) => {
            let now = meanwhile.as_deref().map_or_else(|| sent.to_owned(), form);
            format!("{now}; {} has not been made yet", coding.name())
        }
        Chosen::Decoding => "identity, which has to be decoded first".to_owned(),
    })
}
