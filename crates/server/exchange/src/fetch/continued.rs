//! The remainder of a body whose beginning a client already has, from another server than before.
//!
//! The first case: another member of the cluster has begun to send a body, and that member is lost.
//!
//! ```text
//!   a member's answer --> short, without a strong validator --> the whole body is received first
//!     |                                              '-- member lost --> as if it had not answered
//!     '--> any other body goes to the client as it arrives
//!            '-- member lost --> the remainder: from the next member, or else from the origin
//!                                  '-- none has the same representation --> the body breaks off
//! ```
//!
//! The second case: several clients share the fetch of a body, and the next bytes for a slow client
//! are neither in memory nor on the disk any more.
//!
//! The remainder is requested by `Range` with `If-Range` (RFC 9110, 13.1.5). It is used only if its
//! strong validator, its position and its length fit the beginning. A response with the whole body
//! and the same validator is used, too; its beginning is then skipped.
//!
//! A member that hangs counts as lost when its checks have failed. What never happens: bytes of two
//! representations are mixed; a byte is sent twice; the head waits for a complete body that is long
//! or of unknown length.

use std::net::SocketAddr;
use std::pin::pin;

use cache::stored::{Head, Wire};
use caching::cache_status::Forward;
use caching::range::ByteRange;
use caching::{ContentRange, Named, Validators};
use outcome::Fault;
use runtime::Either;
use upstream::{Answer, BodyLength, UpstreamBody};

use crate::Exchange;
use crate::client::Client;
use crate::fetch::member::{ask, down, has_had_its_time, message, while_up};
use crate::fetch::{Purpose, hierarchy};
use crate::limits::{MEMBER_AWAITED_BYTES_MAX, MEMBER_BODIES_MAX};
use crate::request::Request;
use crate::step::{Cut, Ending};
use crate::worker::Worker;

/// Waits until an answer can be given to a client without the risk that the loss of its member
/// breaks it off, as far as that is possible.
pub(super) async fn is_safe(worker: &Worker, answer: &mut Answer) -> Result<(), Fault> {
    let BodyLength::Known(length) = answer.body.length() else { return Ok(()) };
    // While clients leave too much unread, no more is kept for them.
    let is_awaited = length <= MEMBER_AWAITED_BYTES_MAX && !worker.io.is_pressed();
    if !is_awaited || Beginning::of(answer, false).is_some() {
        return Ok(());
    }
    let _held = worker.io.held(length as usize);
    let group = answer.body.group();
    while_up(group.as_ref(), answer.body.arrive(&worker.upstreams)).await
}

fn validators(answer: &Answer) -> Validators {
    Validators::of(&Wire(answer.head.head().fields), answer.response_ms)
}

/// Whether the rest of this response, which is fetched for the store, can be asked for.
pub(super) fn has_rest(head: &Head) -> bool {
    head.status == 200 && caching::if_range(&head.meta.validators).is_some()
}

/// What is known of a response of which a member has sent the beginning, and how far it has come.
pub(crate) struct Beginning {
    validators: Validators,
    coding: Option<Box<[u8]>>,
    for_store: bool,
    /// Where its content begins in the representation ...
    first: u64,
    /// ... where it ends, exclusive, if that is known ...
    end: Option<u64>,
    /// ... and the length of the representation if this is only a part of it.
    part_of: Option<u64>,
    /// Bytes of its content that have come.
    at: u64,
    /// The servers that have broken it off.
    failed: Vec<SocketAddr>,
    /// The origin sends the rest: no other is asked.
    by_origin: bool,
    /// Who gets the rest counts its bytes, so that its length need not be known from its head.
    is_counted: bool,
}

impl Beginning {
    /// `None`: its rest cannot be asked for.
    pub(super) fn of(answer: &Answer, for_store: bool) -> Option<Beginning> {
        let (head, length) = (answer.head.head(), answer.body.length().bytes());
        let (first, end, part_of) = match head.status {
            200 => (0, length, None),
            206 => {
                let part = ContentRange::of(&Wire(head.fields))?;
                let range = part.range;
                if length != Some(range.bytes()) {
                    return None;
                }
                (range.first, Some(range.last + 1), Some(part.complete_bytes))
            }
            _ => return None,
        };
        let validators = validators(answer);
        caching::if_range(&validators)?;
        let coding = Named::of(&validators, &Wire(head.fields)).coding.map(Box::from);
        let (at, failed, by_origin, is_counted) = (0, Vec::new(), false, false);
        Some(Beginning {
            validators,
            coding,
            for_store,
            first,
            end,
            part_of,
            at,
            failed,
            by_origin,
            is_counted,
        })
    }

    /// The same of a response that is fetched for the store, of whose body a client has `at` bytes;
    /// `slice`: it gets only this part.
    pub(crate) fn of_head(head: &Head, slice: Option<ByteRange>, at: u64) -> Option<Beginning> {
        if !has_rest(head) {
            return None;
        }
        let coding = head.named().coding.map(Box::from);
        let validators = head.meta.validators.clone();
        let complete_bytes = head.part().map(|part| part.complete_bytes).or(head.announced_length);
        let part = slice.or(head.part().map(|part| part.range));
        let (first, end, part_of) = match part {
            Some(range) => (range.first, Some(range.last + 1), complete_bytes),
            None => (0, head.announced_length, None),
        };
        // The body is the whole, or the part that was fetched. A slice begins within it.
        let at = at.saturating_sub(slice.map_or(0, |slice| slice.first));
        Some(Beginning {
            validators,
            coding,
            for_store: true,
            first,
            end,
            part_of,
            at,
            failed: Vec::new(),
            by_origin: false,
            is_counted: true,
        })
    }

    /// The rest of a body that has not failed, for a client that cannot follow it any longer; and
    /// how many bytes of it are the client's, if that is known.
    pub(crate) async fn rest_for_client(&mut self, request: &Request) -> Option<Rest> {
        let (from, lines) = self.wanted()?;
        let purpose = Purpose::Rest { lines: &lines, for_store: self.for_store };
        match self.by_members(request, purpose, from).await {
            None => self.by_the_origin(request, purpose, from).await,
            rest => rest,
        }
    }

    /// The rest, after this body has failed: from another member or from the origin.
    pub(super) async fn rest(
        &mut self,
        request: &Request,
        body: &UpstreamBody,
        fault: Fault,
    ) -> Option<UpstreamBody> {
        self.at += body.given();
        self.failed.extend(body.address());
        let is_certain = matches!(fault, Fault::Broken | Fault::Timeout);
        if !is_certain || self.by_origin || self.failed.len() > MEMBER_BODIES_MAX {
            return None;
        }
        let (from, lines) = self.wanted()?;
        let purpose = Purpose::Rest { lines: &lines, for_store: self.for_store };
        let of_member = match has_had_its_time(fault) {
            true => None,
            false => self.by_members(request, purpose, from).await,
        };
        let rest = match of_member {
            None => self.by_the_origin(request, purpose, from).await,
            rest => rest,
        };
        request.worker.io.counters.cluster_continued.add(u64::from(rest.is_some()));
        rest.map(|(rest, _)| rest)
    }

    /// The place from which the rest is asked for, and the lines that say so. Of a body whose
    /// length is unknown one byte is asked for again: there may be none left, which no range can
    /// name.
    fn wanted(&self) -> Option<(u64, Vec<u8>)> {
        let place = self.first + self.at;
        let from = match self.end {
            Some(end) if place >= end => return None,
            Some(_) => place,
            None => place.saturating_sub(1),
        };
        let mut lines = Vec::new();
        if from > 0 || self.part_of.is_some() {
            let last = self.part_of.and(self.end).map(|end| (end - 1).to_string());
            let range = format!("bytes={from}-{}", last.unwrap_or_default());
            // Both values were parsed from heads or are made of digits, so they can be written.
            let _ = http1::write::field(&mut lines, b"Range", range.as_bytes());
            let tag = caching::if_range(&self.validators)?;
            let _ = http1::write::field(&mut lines, b"If-Range", tag);
        }
        Some((from, lines))
    }

    async fn by_members(&self, request: &Request, purpose: Purpose<'_>, from: u64) -> Option<Rest> {
        let share = request.to().share.as_ref()?;
        let message = message(request, purpose);
        for member in share.asked_besides(&self.failed) {
            match ask(&request.worker, member, &message, &mut |_| {}).await {
                Ok(Some(answer)) => {
                    let fits = self.fits(answer, from);
                    tracing::debug!(member = %member.address, fits = fits.is_some(), "the rest");
                    if fits.is_some() {
                        return fits;
                    }
                }
                Ok(None) => {}
                Err(fault) if has_had_its_time(fault) => return None,
                Err(_) => {}
            }
        }
        None
    }

    async fn by_the_origin(
        &mut self,
        request: &Request,
        purpose: Purpose<'_>,
        from: u64,
    ) -> Option<Rest> {
        self.by_origin = true;
        let message = request.message(purpose);
        let used = request.to().share.as_ref().map(|share| share.used.get());
        let mut answer = hierarchy::exchange(request, &message, &mut |_| {}).await;
        // The rules on responses may change the validator.
        answer.iter_mut().for_each(|answer| request.apply_rules(answer));
        // The log is about the response, which is that of the server that sent the beginning.
        request.to().share.iter().zip(used).for_each(|(share, used)| share.used.set(used));
        let fits = answer.ok().and_then(|answer| self.fits(answer, from));
        tracing::debug!(fits = fits.is_some(), "the rest from the origin");
        fits
    }

    /// The body of an answer that begins at `from`, or with the representation, if it continues
    /// this one.
    fn fits(&self, mut answer: Answer, from: u64) -> Option<Rest> {
        let (head, length) = (answer.head.head(), answer.body.length());
        let of_rest = validators(&answer);
        let beginning = Named { validators: &self.validators, coding: self.coding.as_deref() };
        if !caching::may_combine(beginning, Named::of(&of_rest, &Wire(head.fields)))
            && !planted::is(planted::Bug::MixedBodies)
        {
            return None;
        }
        let place = self.first + self.at;
        debug_assert!(from <= place, "no byte between the beginning and its rest is left out");
        let (is_rest, skipped, end) = match head.status {
            206 => {
                let part = ContentRange::of(&Wire(head.fields))?;
                let (first, end) = (part.range.first, part.range.last + 1);
                let complete = self.part_of.or(self.end).unwrap_or(part.complete_bytes);
                let is_all = part.complete_bytes == complete && end == self.end.unwrap_or(complete);
                let has_length = match length.bytes() {
                    Some(bytes) => bytes == part.range.bytes(),
                    None => self.is_counted,
                };
                (is_all && first == from && has_length, place - from, Some(end))
            }
            200 if self.is_counted && self.part_of.is_some() => {
                (length.bytes() == self.part_of, place, self.end)
            }
            200 if self.part_of.is_none() => {
                let is_whole = match (self.end, length) {
                    (Some(end), length) => length == BodyLength::Known(end),
                    (None, length) => length.bytes().is_none_or(|bytes| bytes >= place),
                };
                (is_whole, place, length.bytes())
            }
            _ => return None,
        };
        answer.body.skip(skipped);
        is_rest.then(|| (answer.body, end.map(|end| end - place)))
    }
}

/// The rest of a body, and how many bytes of it are wanted, if that is known.
type Rest = (UpstreamBody, Option<u64>);

/// A body from another member that is fetched for the store.
pub(super) struct Kept {
    beginning: Beginning,
    request: Request,
}

impl Kept {
    /// `None`: it is not from a member, or its rest cannot be asked for.
    pub(super) fn of(request: &Request, answer: &Answer) -> Option<Box<Kept>> {
        if !request.to().is_from_member() {
            return None;
        }
        let beginning = Beginning::of(answer, true)?;
        Some(Box::new(Kept { beginning, request: request.clone() }))
    }

    /// As [`UpstreamBody::pull`]. The body becomes another one if it breaks off.
    pub(super) async fn pull(
        &mut self,
        body: &mut UpstreamBody,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, Fault> {
        let upstreams = &self.request.worker.upstreams;
        let group = body.group().filter(|_| !self.beginning.by_origin);
        let fault = match while_up(group.as_ref(), body.pull(upstreams, sink)).await {
            Err(fault) => fault,
            pulled => return pulled,
        };
        match self.beginning.rest(&self.request, body, fault).await {
            Some(rest) => *body = rest,
            None => return Err(fault),
        }
        body.take_ready(upstreams, sink)
    }
}

impl<C: Client> Exchange<'_, C> {
    /// Sends another member's answer as it comes, and stores nothing.
    pub(crate) async fn relay_from_member(
        &mut self,
        answer: &mut Answer,
        why: Forward,
        rule: Option<&'static str>,
    ) -> Ending {
        let summary = self.respond_relayed(answer, why, rule);
        let mut beginning = None;
        let relayed = loop {
            let is_of_member = beginning.as_ref().is_none_or(|one: &Beginning| !one.by_origin);
            let group = answer.body.group().filter(|_| is_of_member);
            let gone = self.left();
            let ends = async {
                match runtime::race(gone, down(group.as_ref())).await {
                    Either::Left(()) => Cut::Client,
                    Either::Right(()) => Cut::Upstream(Fault::Broken),
                }
            };
            let fault = match self.relay_content(&mut answer.body, pin!(ends)).await {
                Err(Cut::Upstream(fault)) => fault,
                relayed => break relayed,
            };
            beginning = beginning.or_else(|| Beginning::of(answer, false));
            let Some(beginning) = &mut beginning else { break Err(Cut::Upstream(fault)) };
            let gone = self.left();
            let rest = beginning.rest(&self.request, &answer.body, fault);
            answer.body = match runtime::race(gone, rest).await {
                Either::Left(()) => break Err(Cut::Client),
                Either::Right(None) => break Err(Cut::Upstream(fault)),
                Either::Right(Some(rest)) => rest,
            };
        };
        self.relayed(relayed, summary)
    }
}
