//! Sending a response of which there may be several forms: the one that the client gets, the 304
//! that fits the one it has, and the wait for one that must be decoded.
//!
//! What is decoded for a request is sent as the response that it had already: it is not looked up
//! again. If it cannot be decoded, or not in time, the request is passed on.

use std::sync::Arc;

use cache::flight::{Found, Next, Settled};
use cache::forms::Made;
use cache::stored::{Stored, Wire};
use cache::{Look, Lookup, Query};
use caching::cache_status::Forward;
use coding::Rules;
use coding::rules::Target;
use outcome::{Fault, Refusal};
use runtime::time;
use store::Key;

use crate::Exchange;
use crate::abandoned::unless_left;
use crate::ask::Held;
use crate::client::Client;
use crate::coded::{Chosen, Wish};
use crate::destination::Destination;
use crate::limits::DECODED_WAIT_MAX;
use crate::step::{Serving, Step, Streaming};

impl<C: Client> Exchange<'_, C> {
    fn wish(&self, to: &Destination<'_>) -> Wish<'_> {
        Wish::of(&self.context.snapshot, to.realm.role, to.reading(), self.context.head)
    }

    /// Sends another form of a response of which there may be several; `None`: it is sent as it is.
    /// Waits only for a form that must be decoded.
    pub(crate) async fn serve_in_form<'d>(
        &mut self,
        to: &'d Destination<'d>,
        serving: &Serving,
    ) -> Option<Step<'d>> {
        let Serving { held, provenance } = serving;
        let wish = self.wish(to);
        let form = match (wish.answer(held.head(), held.whole()), held, wish.rules) {
            (Chosen::NotModified(head), ..) => {
                return Some(Step::End(self.send_not_modified(&head, provenance).await));
            }
            (Chosen::Form(form), ..) => form,
            (Chosen::Wanting(coding, meanwhile), Held::Whole(stored), Some(rules)) => {
                if let Some((now, key)) = self.latest(to, stored) {
                    let target = Target(Some(coding));
                    self.context.worker.cache.ask_for_form(key, &now, target, rules);
                }
                meanwhile?
            }
            (Chosen::Decoding, Held::Whole(stored), Some(rules)) => {
                match self.decoded(to, stored, rules).await {
                    Some(form) => form,
                    None => return Some(self.unreadable(to)),
                }
            }
            (Chosen::Unreadable | Chosen::Decoding, ..) => return Some(self.unreadable(to)),
            (Chosen::AsItIs | Chosen::Wanting(..), ..) => return None,
        };
        // A form is sent whole.
        Some(Step::End(self.send_whole(&form, provenance).await))
    }

    /// Sends a response of which there may be several forms while its body arrives: as it is, if
    /// the client can read that. Otherwise it waits for the end of the body.
    pub(crate) async fn stream_in_form<'d>(
        &mut self,
        to: &'d Destination<'d>,
        streaming: Box<Streaming>,
    ) -> Result<Step<'d>, Refusal> {
        let Streaming { head, provenance, .. } = &*streaming;
        let wish = self.wish(to);
        if let Some(head) = wish.not_modified(head) {
            return Ok(Step::End(self.send_not_modified(&head, provenance).await));
        }
        if !wish.cannot_read(head.source()) {
            return Ok(Step::End(self.stream(to, *streaming).await));
        }
        // What does not stay in memory has no forms: the client must not wait for all of it.
        let most = self.context.worker.cache.memory_object_bytes_max();
        if !wish.decodes(head) || head.announced_length.is_some_and(|bytes| bytes > most) {
            return Ok(self.unreadable(to));
        }
        let Streaming { reader, provenance, .. } = *streaming;
        loop {
            match unless_left(self.left(), reader.next()).await? {
                Ok(Next::End) => break,
                Ok(_) if reader.is_bounded() => return Ok(self.unreadable(to)),
                Ok(_) => {}
                // Its core has ended, the origin has not, and the client has got nothing.
                Err(Fault::Abandoned) => return Ok(Step::LookUp(to)),
                Err(fault) => return Err(Refusal::Fault(fault)),
            }
        }
        Ok(match reader.found().await {
            Found::Settled(Settled::Stored(stored)) => {
                Step::Serve(to, Serving { held: Held::Whole(stored), provenance })
            }
            // It is not stored, so it has no forms.
            _ => self.unreadable(to),
        })
    }

    /// The step for a client that cannot read the stored response.
    fn unreadable<'d>(&self, to: &'d Destination<'d>) -> Step<'d> {
        match self.planner().wants_only_stored() {
            true => Step::Refuse(Refusal::OnlyIfCached),
            false => Step::Pass(to, Forward::VaryMiss, None),
        }
    }

    /// The decoded form, once it has been made; `None` if it cannot be.
    async fn decoded(
        &self,
        to: &Destination<'_>,
        stored: &Stored,
        rules: &Rules,
    ) -> Option<Arc<Stored>> {
        const TARGET: Target = Target(None);
        let cache = &self.context.worker.cache;
        let (mut now, key) = self.latest(to, stored)?;
        if matches!(now.forms()?.get(TARGET), Made::Not) {
            if !cache.ask_for_form(key, &now, TARGET, rules) {
                return None;
            }
            let ended = now.forms()?.making().ended(TARGET);
            time::timeout(DECODED_WAIT_MAX, ended).await.ok()?;
            now = cache.latest(key, stored)?;
        }
        match now.forms()?.get(TARGET) {
            Made::Form(form, _) => Some(Arc::clone(form)),
            Made::Not | Made::Declined => None,
        }
    }

    /// The entry of this response in the store, if it is there, and its key.
    fn latest(&self, to: &Destination<'_>, stored: &Stored) -> Option<(Arc<Stored>, Key)> {
        let (cache, wire) = (&self.context.worker.cache, Wire(self.context.head.fields));
        let (uri, parts) = (cache.uri_key(to.uri()), self.context.key_parts(self.routed.route));
        let (look, now_ms) = (Look::Peek, time::wall_ms());
        match cache.look_by_parts(uri, &Query { look, parts, request: &wire, now_ms }) {
            Lookup::Found(found, key) if found.shares_body(stored) => Some((found, key)),
            _ => None,
        }
    }
}
