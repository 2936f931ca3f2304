//! What an answer of the origin means for the store and for those who wait.

use std::rc::Rc;
use std::sync::Arc;

use caching::range::ByteRange;
use caching::{
    ContentRange, Exchange as Instants, Explain, Failure, FieldSource, NotStored, Response,
    Storable, Validators,
};
use store::Generation;

use crate::ask::{Ask, Held, What};
use crate::destination::Destination;
use crate::fetch::Asking;
use crate::fetch::fill::{Filling, Into, Streaming};
use crate::told::Told;
use cache::flight::{Lead, Settled};
use cache::purge::{Resource, is_tag_field};
use cache::stored::{Entry, Head, Piece, Stored, Wire, varies_of};
use outcome::Fault;
use outcome::Outcome;
use upstream::Answer;

/// What there is to answer with.
pub(super) enum Landed {
    /// It has come, and is in the store if it may be.
    Stored { stored: Arc<Stored>, told: Told, own_lines: Vec<u8> },
    /// What was held is good.
    Confirmed { held: Held, told: Told },
    /// It arrives.
    Streaming { streaming: Streaming, told: Told, own_lines: Vec<u8> },
    /// What is held stands in for an answer that is an error.
    StandIn { told: Told },
    /// The answer is not for the store.
    NotStored { answer: Box<Answer>, why: NotStored },
    /// It does not fit what is held: ask as if nothing were.
    Unfit,
    /// It is broken.
    Failed(Fault),
}

/// Settles the flight and changes the store.
pub(super) fn land(asking: &Asking<'_>, ask: &Ask, lead: Lead, answer: Answer) -> Landed {
    let status = answer.head.head().status;
    if status == 304 && ask.is_conditional() {
        return confirmed(asking, ask, lead, answer);
    }
    if let Some((rule, ttl)) = asking.stand_in(ask, Failure::Status(status)) {
        lead.settle(Settled::Declined(status));
        return Landed::StandIn { told: Told::stale(rule, ttl) };
    }
    let storable = storable(asking, ask, &answer, lead.began());
    match (storable, ask.what) {
        (Ok((head, own_lines)), What::Whole | What::Range { .. }) => {
            store(asking, ask, lead, answer, head, own_lines)
        }
        (Ok((head, own_lines)), What::Rest(_)) if head.part.is_none() => {
            store(asking, ask, lead, answer, head, own_lines)
        }
        (Ok((head, _)), What::Rest(rest)) => complete(asking, ask, lead, answer, &head, rest),
        (Err(_), What::Rest(_)) if matches!(status, 206 | 416) => unfit(asking, ask, lead),
        (Err(why), _) => {
            // A failure passes: those who ask next are to be collapsed again, all the more.
            if is_of_the_response(why) && status < 500 && ask.what == What::Whole {
                let memory = asking.site.limits().uncacheable_memory;
                let shared = &asking.worker.shared;
                shared.remember_uncacheable(lead.watch(), ask.key, answer.response_ms, memory);
            }
            lead.settle(match Failure::Status(status).is_error() {
                true => Settled::Declined(status),
                false => Settled::Uncacheable,
            });
            Landed::NotStored { answer: Box::new(answer), why }
        }
    }
}

/// The answer goes into the store, unless its URI has changed already.
fn told_stored(told: Told, lead: &Lead) -> Told {
    if lead.watch().is_overtaken() { told } else { told.stored() }
}

fn unfit(asking: &Asking<'_>, ask: &Ask, lead: Lead) -> Landed {
    asking.worker.shared.remove(&ask.key);
    lead.settle(Settled::Uncacheable);
    Landed::Unfit
}

/// 304: what is stored lives on with new fields (RFC 9111, 4.3.4), be it what the request selects
/// or what else was offered to the origin (4.3.3).
fn confirmed(asking: &Asking<'_>, ask: &Ask, lead: Lead, mut answer: Answer) -> Landed {
    let worker = asking.worker;
    // A 304 has no body; this gives the connection back.
    if answer.body.take_ready(&worker.upstreams, &mut |_| {}).is_err() {
        lead.settle(Settled::Failed(Fault::Malformed));
        worker.counters.upstream_errors.add(1);
        return Landed::Failed(Fault::Malformed);
    }
    let wire = Wire(answer.head.head().fields);
    let Some(held) = meant(ask, &Validators::of(&wire, answer.response_ms)) else {
        return unfit(asking, ask, lead);
    };
    let Some(old) = held.head() else { return unfit(asking, ask, lead) };
    let instants = Instants { request_ms: answer.request_ms, response_ms: answer.response_ms };
    let request = Wire(asking.head.fields);
    let head = old.updated(&wire, instants, asking.policy(), lead.began(), asking.tags());
    let head = head.fetched_by(&request);
    let verdict = may_stay(asking, &head, instants);
    let told = Told::asked(Outcome::Revalidated, ask.why, Some(304));
    worker.counters.revalidated.add(1);
    let key = match verdict {
        Ok(()) => worker.shared.storage_key(ask.uri, &head, &request, lead.watch()),
        Err(_) => ask.key,
    };
    if key != ask.key && ask.key != ask.uri {
        // It varies by other fields from now on.
        worker.shared.remove(&ask.key);
    }
    let (held, entry, settled) = match &held {
        Held::Whole(stale) => {
            let stored = Arc::new(stale.under(head));
            let entry = Entry::Response(Arc::clone(&stored));
            (Held::Whole(Arc::clone(&stored)), entry, Settled::Stored(stored))
        }
        Held::Part(stale) => {
            let partial = Arc::new(stale.under(head));
            let entry = Entry::Part(Arc::clone(&partial));
            (Held::Part(Arc::clone(&partial)), entry, Settled::Part(partial))
        }
        Held::Nothing => unreachable!("it has a head"),
    };
    match verdict {
        Ok(()) => {
            worker.shared.insert_confirmed(lead.watch(), key, entry);
            lead.settle(settled);
        }
        Err(why) => {
            // For this client it is the answer; for the others it is as if it had not come.
            if is_of_the_response(why) {
                worker.shared.remove(&ask.key);
            }
            lead.settle(Settled::Uncacheable);
        }
    }
    Landed::Confirmed { held, told }
}

/// What a 304 with these validators confirms.
fn meant(ask: &Ask, update: &Validators) -> Option<Held> {
    if let Some(held) = ask.validated() {
        return caching::fits_304(held, update, true).then(|| ask.held.clone());
    }
    let validators = ask.offered.iter().map(|stored| &stored.head.meta.validators);
    let at = caching::meant_by_304(validators, update)?;
    Some(Held::Whole(Arc::clone(&ask.offered[at])))
}

/// Whether a stored response may be stored as an update has made it: what forbids storing the
/// update forbids to keep what it says.
pub(super) fn may_stay(
    asking: &Asking<'_>,
    head: &Head,
    instants: Instants,
) -> Result<(), NotStored> {
    let fields = Wire(asking.head.fields);
    let request = caching::Request { method: b"GET", fields: &fields };
    let response = Response { status: head.status, fields: head };
    caching::may_store(&request, &response, instants, asking.policy()).map(|_| ())
}

/// A response to store: at once if it is here, else by a task that fills it while all who want it
/// stream along.
fn store(
    asking: &Asking<'_>,
    ask: &Ask,
    lead: Lead,
    mut answer: Answer,
    head: Head,
    own_lines: Vec<u8>,
) -> Landed {
    let worker = asking.worker;
    worker.counters.misses.add(1);
    let replaces = matches!(ask.held, Held::Whole(_));
    let outcome = if replaces { Outcome::Replaced } else { Outcome::Miss };
    let status = answer.head.head().status;
    let told = told_stored(Told::asked(outcome, ask.why, Some(status)), &lead);
    let head = Arc::new(head);
    let request = Wire(asking.head.fields);
    let key = worker.shared.storage_key(ask.uri, &head, &request, lead.watch());
    if key != ask.key && ask.key != ask.uri {
        // The response varies by other fields than the last did.
        worker.shared.remove(&ask.key);
    }
    let mut first = Vec::new();
    let into = match head.part {
        Some(part) => Into::Part(part),
        None => Into::Whole,
    };
    match answer.body.take_ready(&worker.upstreams, &mut |data| first.extend_from_slice(data)) {
        Ok(true) if head.part.is_none() => {
            let pieces = if first.is_empty() { Vec::new() } else { vec![Piece::from(first)] };
            let stored = Arc::new(Stored::new(head, pieces));
            worker.shared.insert(lead.watch(), key, Entry::Response(Arc::clone(&stored)));
            lead.settle(Settled::Stored(Arc::clone(&stored)));
            Landed::Stored { stored, told, own_lines }
        }
        Ok(_) => {
            let (fill, reader) = lead.stream(Arc::clone(&head));
            let worker = Rc::clone(worker);
            let filling = Filling { worker, fill, key, head: Arc::clone(&head), into };
            filling.start(answer.body, first);
            Landed::Streaming { streaming: Streaming { reader, head }, told, own_lines }
        }
        Err(fault) => {
            lead.settle(Settled::Failed(fault));
            worker.counters.upstream_errors.add(1);
            Landed::Failed(fault)
        }
    }
}

/// The rest of what is held in parts (RFC 9111, 3.4): it streams with them as one.
fn complete(
    asking: &Asking<'_>,
    ask: &Ask,
    lead: Lead,
    mut answer: Answer,
    head: &Head,
    rest: ByteRange,
) -> Landed {
    let worker = asking.worker;
    let Held::Part(partial) = &ask.held else { return unfit(asking, ask, lead) };
    let complete_bytes = partial.complete_bytes;
    let wanted = ContentRange { range: rest, complete_bytes };
    let same = caching::may_combine(&partial.head.meta.validators, &head.meta.validators);
    if !same || head.part != Some(wanted) {
        return unfit(asking, ask, lead);
    }
    let mut first = Vec::new();
    if let Err(fault) =
        answer.body.take_ready(&worker.upstreams, &mut |data| first.extend_from_slice(data))
    {
        lead.settle(Settled::Failed(fault));
        worker.counters.upstream_errors.add(1);
        return Landed::Failed(fault);
    }
    worker.counters.misses.add(1);
    let instants = Instants { request_ms: answer.request_ms, response_ms: answer.response_ms };
    let wire = answer.head.head();
    let (began, tags) = (lead.began(), asking.tags());
    let got = Wire(wire.fields);
    let whole = partial.head.updated(&got, instants, asking.policy(), began, tags);
    let mut whole = whole.fetched_by(&Wire(asking.head.fields));
    whole.announced_length = Some(complete_bytes);
    let head = Arc::new(whole);
    let into = Into::Rest {
        before: partial.pieces(0, rest.first),
        gap_bytes: rest.bytes(),
        after: partial.pieces(rest.last + 1, complete_bytes),
    };
    let told = told_stored(Told::asked(Outcome::Miss, ask.why, Some(206)), &lead);
    let (fill, reader) = lead.stream(Arc::clone(&head));
    let worker = Rc::clone(worker);
    Filling { worker, fill, key: ask.key, head: Arc::clone(&head), into }.start(answer.body, first);
    Landed::Streaming { streaming: Streaming { reader, head }, told, own_lines: Vec::new() }
}

/// The head to store and the lines that only the first client gets, or the rule that forbids.
fn storable(
    asking: &Asking<'_>,
    ask: &Ask,
    answer: &Answer,
    began: Generation,
) -> Result<(Head, Vec<u8>), NotStored> {
    let head = answer.head.head();
    let (asked, got) = (Wire(asking.head.fields), Wire(head.fields));
    let request = caching::Request { method: b"GET", fields: &asked };
    let response = Response { status: head.status, fields: &got };
    let instants = Instants { request_ms: answer.request_ms, response_ms: answer.response_ms };
    if head.status == 206 && ask.what == What::Whole {
        return Err(NotStored::Incomplete);
    }
    let storable = match ask.what {
        // The range is ours: the client asks for the whole.
        What::Rest(_) if head.status == 206 => {
            let request = caching::Request { method: b"GET", fields: &OurRange(asked) };
            caching::may_store(&request, &response, instants, asking.policy())?
        }
        _ => caching::may_store(&request, &response, instants, asking.policy())?,
    };
    lay_down(asking, answer, storable, began)
}

/// A response that is to be stored, as its head is sent from then on.
pub(super) fn lay_down(
    asking: &Asking<'_>,
    answer: &Answer,
    storable: Storable,
    began: Generation,
) -> Result<(Head, Vec<u8>), NotStored> {
    let head = answer.head.head();
    let length = answer.body.length();
    let part = storable.part;
    if length.is_some_and(|length| length > asking.worker.shared.object_bytes_max()) {
        return Err(NotStored::TooLarge);
    }
    if part.is_some_and(|part| length.is_some_and(|length| length != part.range.bytes())) {
        return Err(NotStored::Incomplete);
    }
    let varies = varies_of(&storable.vary, &Wire(asking.head.fields));
    let Destination { realm, authority, path, .. } = *asking.destination;
    let resource = Resource::new(realm, authority, path, Wire(head.fields).fields(), began);
    let tags = asking.tags();
    let mut own_lines = Vec::new();
    let mut kept = Vec::with_capacity(head.fields.len());
    for field in head.fields.end_to_end() {
        let of_part = part.is_some() && is(field.name(), "content-range");
        if of_part || (!tags && is_tag_field(field.name())) {
            continue;
        }
        if storable.keeps(field.name()) {
            kept.push((field.name(), field.value()));
        } else if storable.withheld().iter().any(|name| is(field.name(), name)) {
            http1::write::parsed_field(&mut own_lines, field);
        }
    }
    // A part is stored under the head that the whole would have.
    let status = if part.is_some() { 200 } else { head.status };
    let mut via = Vec::new();
    asking.site.via.append_to_response(&mut via, head.version);
    let (kept, meta) = (kept.into_iter(), storable.meta);
    let laid = Head::new(status, &via, kept, meta, varies, resource, length);
    Ok((
        match part {
            Some(part) => laid.of_part(part),
            None => laid,
        },
        own_lines,
    ))
}

fn is(name: &[u8], other: &str) -> bool {
    name.eq_ignore_ascii_case(other.as_bytes())
}

/// A request's fields, and the range that we ask for ourselves.
struct OurRange<'b>(Wire<'b>);

impl FieldSource for OurRange<'_> {
    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.fields().chain(std::iter::once((&b"range"[..], &b"bytes=0-"[..])))
    }
}

/// Whether the next response for the same key will likely be refused for the same reason.
fn is_of_the_response(reason: NotStored) -> bool {
    !matches!(reason, NotStored::RequestNoStore | NotStored::Authorization | NotStored::Method)
}

/// The rule for `Cache-Status` and the log.
pub(super) fn rule(why: NotStored) -> &'static str {
    why.explain().token
}
