//! Which form of a response a client gets: as the origin sent it, coded, or decoded.
//!
//! The choice is made where a response is sent, by the fields of that request, on the fast path of
//! a hit ([`hit`]) and in an exchange ([`crate::in_form`]) alike. A form that has not been made is
//! asked for, and this client gets the response as it is. Only a client that cannot read that waits
//! for the decoded form.
//!
//! Ranges are of the response as the origin sent it: a request with `Range` gets no coded form, and
//! a form is always sent whole, so no two forms are ever mixed.
//!
//! What never happens: a client that does not accept a coding gets a stored response with it; a
//! message with `no-transform` is changed; a 304 gives a form the strong tag of another.

use std::sync::Arc;

use cache::forms::Made;
use cache::stored::{Head, Stored};
use cache::{Cache, Look};
use coding::rules::{Source, Target};
use coding::{Accept, Rules};
use http1::{Name, RequestHead};
use store::Key;

use crate::request::RequestedUri;
use crate::snapshot::Snapshot;

/// The choice for one request.
#[derive(Debug)]
pub(crate) enum Chosen {
    /// The response as the origin sent it.
    AsItIs,
    /// Another form.
    Form(Arc<Stored>),
    /// This form has to be made. Until then: the next best one that there is, if any.
    Wanting(Target, Option<Arc<Stored>>),
    /// The client cannot read the response as it is, and it cannot be decoded.
    Unreadable,
}

/// What a request says about forms.
pub(crate) struct Wish<'r> {
    pub(crate) rules: &'r Rules,
    accept: Accept,
    takes_range: bool,
}

impl<'r> Wish<'r> {
    /// `None` if this request gets every response as it is: nothing is coded for its URI, or it
    /// forbids transformations (RFC 9110, 7.7).
    #[inline]
    pub(crate) fn of(
        snapshot: &'r Snapshot,
        (authority, path): (&[u8], &[u8]),
        head: &RequestHead<'_>,
    ) -> Option<Wish<'r>> {
        let rules = snapshot.config.compression.as_ref()?;
        let forbids = head.fields.contains_token(Name::CacheControl, b"no-transform");
        if forbids || !snapshot.routes.codes(authority, path) {
            return None;
        }
        Some(Wish { rules, accept: accepted(head), takes_range: head.fields.has(Name::Range) })
    }

    /// The form of a stored response for this request.
    #[inline]
    pub(crate) fn choose(&self, stored: &Stored) -> Chosen {
        let Some(forms) = stored.forms() else {
            let source = stored.head.source();
            return if self.cannot_read(source) { Chosen::Unreadable } else { Chosen::AsItIs };
        };
        if let Source::Coded(coding) = forms.source() {
            if self.accept.accepts(coding) {
                return Chosen::AsItIs;
            }
            let target = Target(None);
            return match forms.get(target) {
                Made::Form(form, _) => Chosen::Form(Arc::clone(form)),
                Made::Not => Chosen::Wanting(target, None),
                Made::Declined => Chosen::Unreadable,
            };
        }
        if self.takes_range {
            return Chosen::AsItIs;
        }
        let mut wanting = None;
        for level in self.rules.ranked(self.accept).into_iter().map_while(|level| level) {
            let target = Target(Some(level.coding));
            match forms.get(target) {
                Made::Form(form, _) => {
                    let form = Arc::clone(form);
                    return match wanting {
                        Some(target) => Chosen::Wanting(target, Some(form)),
                        None => Chosen::Form(form),
                    };
                }
                Made::Not => wanting = wanting.or(Some(target)),
                Made::Declined => {}
            }
        }
        wanting.map_or(Chosen::AsItIs, |target| Chosen::Wanting(target, None))
    }

    /// Whether the client does not accept a response that the origin has coded like this.
    pub(crate) fn cannot_read(&self, source: Option<Source>) -> bool {
        source.and_then(Source::coding).is_some_and(|coding| !self.accept.accepts(coding))
    }

    /// The heads that the request's conditions may refer to: those of the forms that the client may
    /// have got, made or not.
    pub(crate) fn heads(&self, head: &Head, source: Source) -> Vec<Head> {
        let of = |target: Target| head.of_form(target, self.rules.tag);
        match source {
            Source::Identity => {
                let ranked = self.rules.ranked(self.accept).into_iter().flatten();
                ranked.map(|level| of(Target(Some(level.coding)))).collect()
            }
            Source::Coded(coding) if self.accept.accepts(coding) => Vec::new(),
            Source::Coded(_) => vec![of(Target(None))],
        }
    }
}

/// What the request accepts.
#[inline]
fn accepted(head: &RequestHead<'_>) -> Accept {
    match head.fields.get(Name::AcceptEncoding) {
        None => Accept::IDENTITY,
        Some(_) if head.fields.is_repeated(Name::AcceptEncoding) => {
            Accept::parse(head.fields.all(Name::AcceptEncoding))
        }
        Some(line) => Accept::of_line(line),
    }
}

/// The fast path for a fresh stored response that is not plain: the form for this request, or
/// `None` if it needs an exchange. The request has no `Range`, and no `Cache-Control`.
#[inline(never)]
pub(crate) fn hit(
    cache: &Arc<Cache>,
    snapshot: &Snapshot,
    uri: &RequestedUri<'_>,
    head: &RequestHead<'_>,
    stored: Arc<Stored>,
    key: Key,
    look: Look,
) -> Option<(Arc<Stored>, Key)> {
    if stored.place_away().is_some() {
        return None;
    }
    let Some(wish) = Wish::of(snapshot, (uri.authority, uri.path), head) else {
        return Some((stored, key));
    };
    match wish.choose(&stored) {
        Chosen::AsItIs => Some((stored, key)),
        Chosen::Form(form) => Some((form, key)),
        Chosen::Wanting(Target(None), _) | Chosen::Unreadable => None,
        Chosen::Wanting(target, meanwhile) => {
            if look == Look::Use {
                cache.ask_for_form(key, &stored, target, wish.rules);
            }
            Some((meanwhile.unwrap_or(stored), key))
        }
    }
}

/// The name of the form that a stored response is, for an explanation.
pub(crate) fn describe(
    snapshot: &Snapshot,
    (authority, path): (&[u8], &[u8]),
    head: &RequestHead<'_>,
    stored: &Stored,
) -> Option<String> {
    let source = stored.head.source()?;
    let sent = source.coding().map_or("identity", coding::Coding::name);
    let Some(wish) = Wish::of(snapshot, (authority, path), head) else {
        return Some(format!("{sent}, as the origin sent it: nothing is coded for this request"));
    };
    Some(match wish.choose(stored) {
        Chosen::AsItIs => format!("{sent}, as the origin sent it"),
        Chosen::Form(form) => {
            let coding = Source::of(&*form.head).and_then(Source::coding);
            let name = coding.map_or("identity", coding::Coding::name);
            format!("{name}, {} bytes instead of {}", form.body_bytes, stored.body_bytes)
        }
        Chosen::Wanting(Target(None), _) => "identity, which has to be decoded first".to_owned(),
        Chosen::Wanting(target, _) => format!("{sent}; {} has not been made yet", target.name()),
        Chosen::Unreadable => format!("{sent} cannot be decoded: the request is passed on"),
    })
}
