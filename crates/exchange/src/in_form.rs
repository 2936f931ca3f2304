//! Sending a response of which there may be several forms: the one that the client gets, the 304
//! that fits the one it has, and the wait for one that must be decoded.
//!
//! What never happens: a client that does not accept a coding gets a stored response with it; a 304
//! gives a form the strong tag of another.

use std::borrow::Cow;
use std::sync::Arc;

use cache::stored::{Head, Stored, Wire};
use cache::{Look, Lookup};
use caching::cache_status::Forward;
use caching::etag;
use coding::rules::Target;
use config::Role;
use http1::Name;
use runtime::time;
use store::Key;

use crate::Exchange;
use crate::ask::Held;
use crate::client::Client;
use crate::coded::{Chosen, Wish};
use crate::destination::Destination;
use crate::step::{Provenance, Serving, Step, Streaming};

impl<C: Client> Exchange<'_, C> {
    fn wish(&self, to: &Destination<'_>) -> Option<Wish<'_>> {
        if to.realm.role != Role::Reverse {
            return None;
        }
        Wish::of(&self.context.snapshot, (to.authority, to.path), self.context.head)
    }

    /// Sends another form of a response of which there may be several; `None`: it is sent as it is.
    /// Waits only for a form that must be decoded.
    pub(crate) async fn serve_in_form<'d>(
        &mut self,
        to: &'d Destination<'d>,
        serving: &Serving,
    ) -> Option<Step<'d>> {
        let Serving { held, provenance } = serving;
        // Conditions come before ranges (RFC 9110, 13.2.2), and before the choice of a form.
        if let Some(head) = self.not_modified(to, held.head()) {
            return Some(Step::End(self.send_not_modified(&head, provenance).await));
        }
        let wish = self.wish(to)?;
        let unreadable = Some(Step::Pass(to, Forward::VaryMiss));
        let stored = match held {
            Held::Whole(stored) => stored,
            Held::Part(partial) if wish.cannot_read(partial.head.source()) => return unreadable,
            Held::Part(_) => return None,
        };
        let (target, meanwhile) = match wish.choose(stored) {
            Chosen::AsItIs => return None,
            Chosen::Unreadable => return unreadable,
            Chosen::Form(form) => return Some(self.send_form(&form, provenance).await),
            Chosen::Wanting(target, meanwhile) => (target, meanwhile),
        };
        let is_asked = self.key_of(to, stored).is_some_and(|key| {
            self.context.worker.cache.ask_for_form(key, stored, target, wish.rules)
        });
        match (target, meanwhile, stored.forms()) {
            (Target(Some(_)), Some(form), _) => Some(self.send_form(&form, provenance).await),
            (Target(Some(_)), None, _) => None,
            (Target(None), _, Some(forms)) if is_asked => {
                let making = Arc::clone(forms.making());
                making.ended(target).await;
                Some(Step::LookUp(to))
            }
            (Target(None), ..) => unreadable,
        }
    }

    /// A form is sent whole.
    async fn send_form<'d>(&mut self, form: &Arc<Stored>, provenance: &Provenance) -> Step<'d> {
        Step::End(self.send_whole(form, provenance).await)
    }

    /// Sends a response of which there may be several forms while its body arrives: as it is, if
    /// the client can read that. Otherwise it waits for the end of the body.
    pub(crate) async fn stream_in_form<'d>(
        &mut self,
        to: &'d Destination<'d>,
        streaming: &Streaming,
    ) -> Step<'d> {
        let head = &streaming.head;
        if let Some(head) = self.not_modified(to, head) {
            return Step::End(self.send_not_modified(&head, &streaming.provenance).await);
        }
        if !self.wish(to).is_some_and(|wish| wish.cannot_read(head.source())) {
            return Step::End(self.stream(streaming).await);
        }
        while let Ok(Some(_)) = streaming.reader.next().await {}
        Step::LookUp(to)
    }

    /// The key under which this response is in the store, if it is.
    fn key_of(&self, to: &Destination<'_>, stored: &Arc<Stored>) -> Option<Key> {
        let (cache, wire) = (&self.context.worker.cache, Wire(self.context.head.fields));
        let uri = cache.uri_key(to.realm, to.authority, to.path);
        match cache.look(Look::Peek, uri, &wire, time::wall_ms()) {
            Lookup::Found(found, key) if Arc::ptr_eq(&found, stored) => Some(key),
            _ => None,
        }
    }

    /// The head of the 304 that answers the request's conditions, if they hold for a form that the
    /// client may have.
    fn not_modified<'h>(&self, to: &Destination<'_>, head: &'h Head) -> Option<Cow<'h, Head>> {
        let planner = self.planner();
        if let (Some(wish), Some(source)) = (self.wish(to), head.source()) {
            let mut forms = wish.heads(head, source).into_iter();
            if let Some(form) = forms.find(|form| planner.is_not_modified(form)) {
                return Some(Cow::Owned(form));
            }
        }
        planner.is_not_modified(head).then(|| match self.holds_weak_tag() {
            // What it holds may be any form: a strong tag would be of one.
            true => Cow::Owned(head.weakened()),
            false => Cow::Borrowed(head),
        })
    }

    fn holds_weak_tag(&self) -> bool {
        let mut tags = self.context.head.fields.all(Name::IfNoneMatch).flat_map(etag::list);
        tags.any(|tag| tag.weak)
    }
}
