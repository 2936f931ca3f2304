//! Response handling: what an answer of the origin means for the store and for the waiting
//! requests.

use std::sync::Arc;
use std::time::Duration;

use cache::flight::Settled;
use cache::stored::{
    Entry, Fetched, Head, Piece, Pieces, Resource, Stored, Wire, is_cookie_field, is_tag_field,
    varies_of,
};
use cache::variants::Place;
use cache::watch::Watch;
use caching::range::ByteRange;
use caching::{
    ContentRange, Edition, Exchange as Instants, Explain, Failure, Fetches, FieldSource,
    Kept as Newer, NotStored, Policy, Response, Storable, Validators, may_replace,
};
use config::Role;
use http1::{Name, ResponseHead, Scratch};
use outcome::{Fault, Hierarchy, Outcome, Refusal};
use runtime::time;
use store::{Generation, Key};
use upstream::Answer;

use crate::cache_status::CacheStatus;
use crate::fetch::continued::Kept;
use crate::fetch::fill::{Filling, Into};
use crate::request::Request;
use crate::snapshot::Snapshot;
use crate::step::{Ask, Before, Fetch, Held, Provenance, Serving, Step, Streaming, Unshared, What};

/// The step that follows an answer, for the request that led the fetch.
type Next = Result<Step, Refusal>;

/// A head to be stored, and the lines that only the first client gets. The head is shared at once,
/// because it is large.
pub(super) type Prepared = (Arc<Head>, Vec<u8>);

impl Fetch {
    /// Settles the flight, changes the store, and returns the next step.
    pub(super) fn handle(self, request: &Request, answer: Answer) -> Next {
        let status = answer.head.status();
        if status == 304 && self.ask.is_conditional() {
            return self.confirmed(request, answer);
        }
        if let Some(serving) = request.stale_substitute(&self.ask, Failure::Status(status)) {
            self.lead.settle(Settled::Declined(status));
            return Ok(Step::Serve(Box::new(serving)));
        }
        let storable = request.storable(&self.ask, &answer, self.lead.began());
        match (storable, self.ask.what) {
            (Ok((head, _)), What::Rest(rest)) if head.part().is_some() => {
                self.complete(request, answer, &head, rest)
            }
            (Ok(storable), _) => self.store(request, answer, storable),
            // Our range may have drawn the answer, so the client's own request is sent.
            (Err(_), What::Rest(_)) if Failure::Status(status).is_temporary() => {
                self.lead.settle(Settled::Declined(status));
                Ok(request.pass_unshared(self.ask.uri, self.ask.key, self.ask.why))
            }
            (Err(_), What::Rest(_)) if status != 200 => self.unfit(request),
            (Err(why), _) => {
                if is_of_the_response(why) && !matches!(self.ask.what, What::Range { .. }) {
                    self.unstorable(request, status);
                }
                self.lead.settle(match Failure::Status(status).is_error() {
                    true => Settled::Declined(status),
                    false => Settled::Uncacheable,
                });
                Ok(Step::Relay(Box::new(answer), self.ask.why, Some(why.explain().token)))
            }
        }
    }

    /// What an answer that may not be stored means for later requests. It removes nothing: what is
    /// stored may still be served in place of an error. But it ends `stale-while-revalidate`, and
    /// requests for its key do not wait for each other for a while. A 4xx or a 5xx starts no such
    /// while: otherwise anybody who draws a 403, or a rate limit's 429, would bring the origin more
    /// requests.
    fn unstorable(&self, request: &Request, status: u16) {
        let (cache, key) = (&request.worker.cache, self.ask.key);
        if planted::is(planted::Bug::UnstorableDrops) {
            cache.remove(&key);
        }
        if Failure::Status(status).is_temporary() {
            return;
        }
        let now_ms = time::wall_ms();
        let memory = match status {
            400.. => Duration::ZERO,
            _ => request.snapshot.limits().uncacheable_memory,
        };
        let watch = self.lead.watch();
        match &self.ask.held {
            Some(Held::Whole(stored)) => {
                let until_ms = now_ms + memory.as_millis() as u64;
                cache.replace_head(watch, key, stored, |now| now.unshared(until_ms));
            }
            Some(Held::Part(_)) | None => cache.mark_unshared(watch, key, now_ms, memory),
        }
    }

    /// The fetch of a request that was passed on and waited for no other, if its answer may be
    /// stored. The error is the token of the rule by which a storable answer is not stored.
    pub(super) fn unshared(
        request: &Request,
        of: Unshared,
        answer: &Answer,
    ) -> Result<(Fetch, Prepared), Option<&'static str>> {
        let (head, (_, began)) = (answer.head.head(), of.before);
        if request.is_usually_unstorable(&head) {
            return Err(None);
        }
        if head.status != 200 && request.wire().has("range") {
            return Err(None);
        }
        let ask = of.ask();
        let storable = request.storable(&ask, answer, began).map_err(|_| None)?;
        let watch = request.watch_since(of.uri, of.before, &storable.0);
        let watch = watch.ok_or(Some(Newer::Older.explain().token))?;
        let lead = request.worker.cache.flights.alone(of.key, began, watch).shared();
        Ok((Fetch { ask: Box::new(ask), lead }, storable))
    }

    /// The status of a response that is being stored, unless its URI has changed already.
    fn status(&self, outcome: Outcome, status: u16) -> CacheStatus {
        let cache_status = CacheStatus::forwarded(outcome, self.ask.why, Some(status));
        if self.lead.watch().is_overtaken() { cache_status } else { cache_status.stored() }
    }

    /// The answer does not fit the stored response: asks as if nothing were stored.
    fn unfit(self, request: &Request) -> Next {
        let (cache, key) = (&request.worker.cache, self.ask.key);
        match &self.ask.held {
            Some(held @ Held::Part(_)) => cache.remove_same(&key, &held.entry()),
            // It may still be served. But the origin does not know it, so it is not asked to
            // confirm it again.
            Some(Held::Whole(stored)) => {
                cache.replace_head(self.lead.watch(), key, stored, Head::without_validators);
            }
            None => {}
        }
        self.lead.settle(Settled::Uncacheable);
        Ok(Step::LookUpAlone)
    }

    /// The body of the answer is malformed, or broke off.
    fn failed(self, request: &Request, fault: Fault) -> Next {
        self.lead.settle(Settled::Failed(fault));
        request.worker.io.counters.upstream_errors.add(1);
        Err(Refusal::Fault(fault))
    }

    /// 304: a stored response lives on with new fields (RFC 9111, 4.3.4), either the one that the
    /// request selects or another that was offered to the origin (4.3.3).
    fn confirmed(self, request: &Request, mut answer: Answer) -> Next {
        let worker = &request.worker;
        let (cache, upstream) = (&worker.cache, answer.body.address());
        // A 304 has no body; this gives the connection back.
        if answer.body.take_ready(&worker.upstreams, &mut |_| {}).is_err() {
            return self.failed(request, Fault::Malformed);
        }
        let wire = Wire(answer.head.head().fields);
        let Some(held) = meant(&self.ask, &Validators::of(&wire, answer.response_ms)) else {
            return self.unfit(request);
        };
        let (ask, began) = (&self.ask, self.lead.began());
        let (head, verdict) = request.updated(held.head(), &wire, instants(&answer), began);
        let cache_status = CacheStatus::forwarded(Outcome::Revalidated, ask.why, Some(304));
        worker.io.counters.revalidated.add(1);
        let own_lines = request.cookie_lines(&answer);
        // It may vary by other fields now.
        let place = cache.place(ask.uri, &head, &request.wire(), request.key_parts());
        let place = place.instead_of(ask.key);
        let (held, entry, settled) = match held {
            Held::Whole(stale) => {
                // Forms that were made since it was looked up are kept, too.
                let stale = cache.latest(ask.key, &stale).unwrap_or(stale);
                let stored = Arc::new(stale.under(head));
                let entry = Entry::Response(Arc::clone(&stored));
                (Held::Whole(Arc::clone(&stored)), entry, Settled::Stored(stored))
            }
            Held::Part(stale) => {
                let partial = Arc::new(stale.under(head));
                let entry = Entry::Part(Arc::clone(&partial));
                (Held::Part(Arc::clone(&partial)), entry, Settled::Part(partial))
            }
        };
        match verdict {
            Ok(()) => {
                cache.insert_confirmed(self.lead.watch(), &place, entry);
                self.lead.settle(settled);
            }
            Err(why) => {
                // It answers this client; for the others it is as if it had not come.
                if is_of_the_response(why) {
                    self.unstorable(request, 304);
                }
                self.lead.settle(Settled::Uncacheable);
            }
        }
        let provenance = Provenance { upstream, own_lines, ..Provenance::stored(cache_status) };
        Ok(Step::Serve(Box::new(Serving { held, provenance })))
    }

    /// Stores a response: at once if all of it has come, otherwise by a task that fills it while
    /// everyone who wants it streams along.
    pub(super) fn store(
        self,
        request: &Request,
        mut answer: Answer,
        (head, own_lines): Prepared,
    ) -> Next {
        let worker = &request.worker;
        worker.io.counters.misses.add(1);
        let replaces = matches!(self.ask.held, Some(Held::Whole(_)));
        let outcome = if replaces { Outcome::Replaced } else { Outcome::Miss };
        let cache_status = self.status(outcome, answer.head.status());
        let provenance =
            Provenance { own_lines, ..Provenance::fetched(cache_status, answer.body.address()) };
        // The response may vary by other fields than the last one did.
        let place = worker.cache.place(self.ask.uri, &head, &request.wire(), request.key_parts());
        let place = place.instead_of(self.ask.key);
        worker.cache.announce(self.lead.watch(), &place);
        let (mut whole, mut first) = (None, Vec::new());
        let is_whole = answer.body.has_come() && head.part().is_none();
        let mut take = |data: &[u8]| match is_whole {
            true => whole = Some(Piece::from(data)),
            false => first.extend_from_slice(data),
        };
        match answer.body.take_ready(&worker.upstreams, &mut take) {
            Ok(true) if head.part().is_none() => {
                let whole = whole.or_else(|| (!first.is_empty()).then(|| Piece::from(first)));
                let pieces = whole.map_or_else(|| Pieces::from(Vec::new()), Pieces::from);
                let stored = Arc::new(Stored::new(head, pieces));
                let entry = Entry::Response(Arc::clone(&stored));
                worker.cache.insert(self.lead.watch(), &place, entry);
                self.lead.settle(Settled::Stored(Arc::clone(&stored)));
                Ok(Step::Serve(Box::new(Serving { held: Held::Whole(stored), provenance })))
            }
            Ok(_) => {
                let into = head.part().map_or(Into::Whole, Into::Part);
                let kept = Kept::of(request, &answer);
                if head.part().is_none() {
                    worker.cache.open(&self.lead, &place);
                }
                let filling = Filling { place, head: Arc::clone(&head), into, kept };
                let Fetch { ask, lead } = self;
                let reader = filling.start(worker, lead, answer.body, first);
                let refreshes = request.may_substitute(&ask).then_some(ask);
                let streaming = Streaming { reader, head, provenance, refreshes };
                Ok(Step::Stream(Box::new(streaming)))
            }
            Err(fault) => self.failed(request, fault),
        }
    }

    /// The rest of a response of which parts are stored (RFC 9111, 3.4): it streams with them as
    /// one.
    fn complete(self, request: &Request, mut answer: Answer, head: &Head, rest: ByteRange) -> Next {
        let worker = &request.worker;
        let Some(Held::Part(partial)) = &self.ask.held else { return self.unfit(request) };
        let complete_bytes = partial.complete_bytes;
        let wanted = ContentRange { range: rest, complete_bytes };
        if !partial.is_of(head) || head.part() != Some(wanted) {
            return self.unfit(request);
        }
        // A body that is complete gives its connection back, and with it the address.
        let upstream = answer.body.address();
        let mut first = Vec::new();
        if let Err(fault) =
            answer.body.take_ready(&worker.upstreams, &mut |data| first.extend_from_slice(data))
        {
            return self.failed(request, fault);
        }
        worker.io.counters.misses.add(1);
        let own_lines = request.cookie_lines(&answer);
        let (got, began) = (Wire(answer.head.head().fields), self.lead.began());
        let (mut whole, _) = request.updated(&partial.head, &got, instants(&answer), began);
        whole.announced_length = Some(complete_bytes);
        let head = Arc::new(whole);
        let into = Into::Rest {
            before: partial.pieces(0, rest.first),
            gap_bytes: rest.bytes(),
            after: partial.pieces(rest.last + 1, complete_bytes),
        };
        let kept = Kept::of(request, &answer);
        let cache_status = self.status(Outcome::Miss, 206);
        let provenance = Provenance { own_lines, ..Provenance::fetched(cache_status, upstream) };
        let place = Place::known(self.ask.uri, self.ask.key);
        let filling = Filling { place, head: Arc::clone(&head), into, kept };
        let reader = filling.start(worker, self.lead, answer.body, first);
        let streaming = Streaming { reader, head, provenance, refreshes: None };
        Ok(Step::Stream(Box::new(streaming)))
    }
}

/// The stored response that a 304 with these validators confirms.
fn meant(ask: &Ask, update: &Validators) -> Option<Held> {
    if let Some(held) = ask.stale() {
        let fits = caching::fits_304(&held.meta().validators, update, true);
        return fits.then(|| held.clone());
    }
    let validators = ask.offered.iter().map(|stored| &stored.head.meta.validators);
    let at = caching::meant_by_304(validators, update)?;
    Some(Held::Whole(Arc::clone(&ask.offered[at])))
}

impl Request {
    /// The head of a stored response after an update by these fields, and whether the response may
    /// stay in the store with it.
    pub(super) fn updated(
        &self,
        head: &Head,
        by: &Wire<'_>,
        instants: Instants,
        began: Generation,
    ) -> (Head, Result<(), NotStored>) {
        let fetched =
            Fetched { fields: self.wire(), exchange: instants, began, tags: self.shows_tags() };
        let policy = self.policy_for_stored(head);
        let (updated, verdict) = head.updated(by, &fetched, &policy);
        match head.source() {
            Some(source) => (self.still_with_forms(updated, source), verdict),
            None => (updated, verdict),
        }
    }

    /// How a stored response with this head is treated. Its fields are read as they would come.
    fn policy_for_stored(&self, head: &Head) -> Policy {
        let Snapshot { routes, forward, .. } = &*self.snapshot;
        let has_lifetimes = match self.role() {
            Role::Reverse => routes.has_lifetimes(),
            Role::Forward => forward.has_lifetimes(),
        };
        if !has_lifetimes {
            return self.policy_for_cookies();
        }
        let mut bytes = Vec::with_capacity(512);
        http1::write::status_line(&mut bytes, head.status);
        for (name, value) in head.fields() {
            // The fields were read from a response.
            let _ = http1::write::field(&mut bytes, name, value);
        }
        http1::write::end(&mut bytes);
        let (mut scratch, limits) = (Scratch::new(), http1::Limits::DEFAULT);
        match http1::accept_response(&bytes, &mut scratch, &limits) {
            Ok(Some(read)) => {
                let rules = self.rules_of_stored(head.status, read.fields);
                self.policy_for(head.status, read.fields, &rules)
            }
            Ok(None) | Err(_) => self.policy_for_cookies(),
        }
    }

    /// A watch of a URI for a response whose request took a stamp. `None`: the URI has changed
    /// since, or a response was stored and this one is not newer than the one whose place it would
    /// take. If nothing is there, what was stored meanwhile may have gone already.
    pub(super) fn watch_since(&self, uri: Key, before: Before, head: &Head) -> Option<Watch> {
        let (cache, (stamp, began)) = (&self.worker.cache, before);
        let (watch, is_late) = cache.watches.watch_since(uri, stamp)?;
        if !is_late {
            return Some(watch);
        }
        let place = cache.place(uri, head, &self.wire(), self.key_parts());
        let there = cache.store.peek(&place.key).filter(|_| began == cache.purges.now())?;
        let now_ms = time::wall_ms();
        let [stored, new] = [there.meta()?, &head.meta].map(|of| Edition::of(of, true, now_ms));
        may_replace(&stored, &new, Fetches::Overlap).is_ok().then_some(watch)
    }

    /// Recognises the usual answers that may not be stored by one look. Other answers take the long
    /// way. A field for this cache alone may say otherwise.
    fn is_usually_unstorable(&self, head: &ResponseHead<'_>) -> bool {
        let is_usual = matches!(
            head.fields.get(Name::CacheControl).unwrap_or_default(),
            b"no-store"
                | b"private"
                | b"private, no-store"
                | b"no-cache, no-store, must-revalidate"
                | b"no-store, no-cache, must-revalidate"
        );
        let targeted = self.policy().targeted_fields;
        is_usual && !targeted.iter().any(|name| Wire(head.fields).has(name))
    }

    /// The head to store and the lines that only the first client gets, or the rule that forbids
    /// it.
    fn storable(
        &self,
        ask: &Ask,
        answer: &Answer,
        began: Generation,
    ) -> Result<Prepared, NotStored> {
        let head = answer.head.head();
        let (asked, got) = (self.wire(), Wire(head.fields));
        let response = Response { status: head.status, fields: &got };
        let policy = &self.policy_for(head.status, head.fields, &self.rules_of_response());
        let instants = instants(answer);
        match (ask.what, head.status) {
            (What::Whole, 206) => return Err(NotStored::Incomplete),
            (What::Whole, _) | (_, 200 | 206) => {}
            _ if planted::is(planted::Bug::RangeErrorStored) => {}
            _ => return Err(NotStored::DrawnByRange),
        }
        let storable = match ask.what {
            // The range is ours: the client asks for the whole.
            What::Rest(_) if head.status == 206 => {
                let request = caching::Request { method: b"GET", fields: &OurRange(asked) };
                caching::may_store(&request, &response, instants, policy)?
            }
            _ => {
                let request = caching::Request { method: b"GET", fields: &asked };
                caching::may_store(&request, &response, instants, policy)?
            }
        };
        if head.fields.has(Name::Vary) && self.varies_by_client(&head.fields) {
            return Err(NotStored::VaryStar);
        }
        self.prepare(answer, storable, began)
    }

    /// The stored form of a head, and the lines that only the first client gets.
    pub(super) fn prepare(
        &self,
        answer: &Answer,
        storable: Storable,
        began: Generation,
    ) -> Result<Prepared, NotStored> {
        let head = answer.head.head();
        let length = answer.body.length().bytes();
        let part = storable.part;
        if self.is_kept_out() {
            return Err(NotStored::Rule);
        }
        if length.is_some_and(|length| length > self.worker.cache.object_bytes_max()) {
            return Err(NotStored::TooLarge);
        }
        if part.is_some_and(|part| length.is_some_and(|length| length != part.range.bytes())) {
            return Err(NotStored::Incomplete);
        }
        let Storable { meta, vary, withheld, .. } = storable;
        let varies = varies_of(&vary, &self.wire());
        let mut resource = Resource::new(self.to().uri(), Wire(head.fields).fields(), began);
        if self.lacks_tags(&head) {
            resource = resource.with_unknown_tags();
        }
        let tags = self.shows_tags();
        let mut own_lines = Vec::new();
        let kept = head.fields.end_to_end().filter_map(|field| {
            let of_part = part.is_some() && is(field.name(), "content-range");
            if of_part || (!tags && is_tag_field(field.name())) {
                return None;
            }
            if withheld.has(field.name()) {
                http1::write::parsed_field(&mut own_lines, field);
                return None;
            }
            Some((field.name(), field.value()))
        });
        // A part is stored under the head that the whole would have.
        let status = if part.is_some() { 200 } else { head.status };
        let mut via = self.worker.io.buffer();
        self.snapshot.via.append_to_response(&mut *via, head.version);
        let mut prepared = Head::new(status, &via, kept, meta, resource);
        (prepared.varies, prepared.announced_length) = (varies, length);
        if let Some(part) = part {
            prepared = prepared.of_part(part);
        }
        if let Some(source) = self.source(&prepared, length) {
            prepared = prepared.in_several_forms(source, &self.wire());
        }
        Ok((Arc::new(prepared), own_lines))
    }

    /// Whether a peer may have left out the tags. Reverse listeners do not show tags to clients,
    /// and to a peer we are a client. A member of the cluster shows them as this member does.
    fn lacks_tags(&self, head: &ResponseHead<'_>) -> bool {
        let is_of_peer =
            matches!(self.to().hierarchy(), Hierarchy::SiblingHit | Hierarchy::ParentHit);
        let is_hidden = match self.to().is_from_member() {
            true => !self.shows_tags(),
            false => is_of_peer && self.role() == Role::Reverse,
        };
        is_hidden && !head.fields.iter().any(|(name, _)| is_tag_field(name))
    }

    /// The lines of an answer that set cookies, for the client whose request drew it, if no other
    /// client gets them.
    pub(super) fn cookie_lines(&self, answer: &Answer) -> Vec<u8> {
        let mut lines = Vec::new();
        let fields = answer.head.head().fields;
        if fields.get(Name::SetCookie).is_some() && self.policy_for_cookies().withholds_cookies() {
            for field in fields.end_to_end().filter(|field| is_cookie_field(field.name())) {
                http1::write::parsed_field(&mut lines, field);
            }
        }
        lines
    }
}

/// When the answer was asked for and when it came.
pub(super) fn instants(answer: &Answer) -> Instants {
    Instants { request_ms: answer.request_ms, response_ms: answer.response_ms }
}

fn is(name: &[u8], other: &str) -> bool {
    name.eq_ignore_ascii_case(other.as_bytes())
}

/// A request's fields, with the range that we add.
struct OurRange<'b>(Wire<'b>);

impl FieldSource for OurRange<'_> {
    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.fields().chain(std::iter::once((&b"range"[..], &b"bytes=0-"[..])))
    }
}

/// Whether the next response for the same key will probably be refused for the same reason.
fn is_of_the_response(reason: NotStored) -> bool {
    !matches!(reason, NotStored::RequestNoStore | NotStored::Authorization | NotStored::Method)
}
