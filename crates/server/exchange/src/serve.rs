//! Sending a response. The response comes from the store, whole or in parts; or its body is still
//! arriving and is stored at the same time; or it is passed on.

use std::pin::{Pin, pin};
use std::sync::Arc;

use cache::flight::{Found, Next, Reader, Settled};
use cache::forms::{Away, Made};
use cache::ranges::{Content, Parts};
use cache::stored::{Head, Stored, Wire, is_tag_field};
use cache::{Look, Lookup, Query};
use caching::ContentRange;
use caching::cache_status::Forward;
use caching::range::{ByteRange, Selection};
use coding::Rules;
use coding::rules::Target;
use http1::write::trailer_lines;
use http1::{Method, Scheme, trailer_fields};
use outcome::{BrokenBy, Fault, Outcome, Refusal};
use policy::fields::ResponseRules;
use runtime::{Either, time};
use store::Key;
use store::disk::Chunks;
use upstream::{Answer, BodyLength, UpstreamBody};

use crate::cache_status::CacheStatus;
use crate::client::{Client, Gone, Labels, Relayed, Response, StoredForm};
use crate::coded::{Chosen, Wish};
use crate::fetch::continued::Beginning;
use crate::fetch::unanswered;
use crate::limits::DECODED_WAIT_MAX;
use crate::plan::Form;
use crate::request::{Destination, Request, accepts_trailers};
use crate::step::{Cut, Ending, Held, Provenance, Serving, Step, Streaming, Summary};
use crate::{Exchange, unless_left};

impl<C: Client> Exchange<'_, C> {
    /// Sends a complete response. A body on the disk may turn out to be gone, or break off.
    pub(super) async fn serve(&mut self, serving: &Serving) -> Step {
        let Serving { held, provenance } = serving;
        let status = held.head().status;
        if self.may_intercept(status) {
            let of = (provenance.cache_status.outcome, provenance.upstream);
            if let Some(ending) = runtime::boxed(self.intercept(status, held.head(), of)).await {
                return Step::End(ending);
            }
        }
        if held.head().source().is_some()
            && let Some(step) = runtime::boxed(self.serve_in_form(serving)).await
        {
            return step;
        }
        let stored = match held {
            Held::Whole(stored) => stored,
            Held::Part(partial) => {
                // Conditions come before ranges (RFC 9110, 13.2.2).
                if self.request.is_not_modified(&partial.head) {
                    return Step::End(self.send_not_modified(&partial.head, provenance).await);
                }
                let ranges = self.request.held_ranges(partial);
                let ranges = ranges.unwrap_or_else(|| partial.held());
                let content = Content::Part(partial);
                let sending = self.send_parts(content, ranges, provenance);
                return Step::End(runtime::boxed(sending).await);
            }
        };
        let (head, length) = (&stored.head, stored.body_bytes);
        let away = stored.place_away();
        let ending = match (self.request.form(head, length), away) {
            (Form::NotModified, _) => self.send_not_modified(head, provenance).await,
            (Form::Unsatisfied, _) => {
                let form = StoredForm::Unsatisfied(head, length);
                self.send_head(form, provenance, self.summary(provenance, 416)).await
            }
            (Form::Whole(_), None) => self.send_whole(stored, provenance).await,
            (Form::Parts(ranges), None) => {
                runtime::boxed(self.send_parts(Content::Whole(stored), ranges, provenance)).await
            }
            (Form::Whole(_), Some(away)) => {
                return Box::pin(self.serve_away(stored, (*away, None), provenance)).await;
            }
            (Form::Parts(ranges), Some(away)) => {
                // Several ranges would have to be found before the head can be sent: the client
                // gets the whole instead.
                let part = if let [range] = ranges[..] { Some(range) } else { None };
                return Box::pin(self.serve_away(stored, (*away, part), provenance)).await;
            }
        };
        Step::End(ending)
    }

    /// Sends a body that is in memory.
    pub(super) async fn send_whole(
        &mut self,
        stored: &Arc<Stored>,
        provenance: &Provenance,
    ) -> Ending {
        let summary = self.summary(provenance, stored.head.status);
        self.respond(StoredForm::Whole(stored), provenance);
        let sent = match &stored.pieces[..] {
            [piece] => self.send_content(&[&**piece]).await,
            pieces => {
                let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &**piece).collect();
                self.send_content(&pieces).await
            }
        };
        Ending::of(sent, summary)
    }

    /// Sends a body that is on the disk, or one part of it.
    async fn serve_away(
        &mut self,
        stored: &Arc<Stored>,
        (away, part): (Away, Option<ByteRange>),
        provenance: &Provenance,
    ) -> Step {
        let whole = ByteRange { first: 0, last: stored.body_bytes.saturating_sub(1) };
        let range = part.unwrap_or(whole);
        let opened = match self.request.method() {
            Method::Head => None,
            _ => match self.open_away(stored, away, range).await {
                Some(opened) => Some(opened),
                None => return Step::LookUpAgain,
            },
        };
        let (form, status) = match part {
            None => (StoredForm::Whole(stored), stored.head.status),
            Some(range) => {
                let part = ContentRange { range, complete_bytes: stored.body_bytes };
                (StoredForm::Part(&stored.head, part, BodyLength::Known(range.bytes())), 206)
            }
        };
        let summary = self.summary(provenance, status);
        match opened {
            None => Step::End(self.send_head(form, provenance, summary).await),
            Some(opened) => {
                self.respond(form, provenance);
                self.send_away(stored, range, opened, summary).await
            }
        }
    }

    /// 206, with one part or several.
    async fn send_parts(
        &mut self,
        content: Content<'_>,
        ranges: Vec<ByteRange>,
        provenance: &Provenance,
    ) -> Ending {
        let stored_ms = content.head().meta.freshness.response_ms;
        let boundary = self.request.worker.cache.boundary(stored_ms, time::wall_ms());
        let parts = Parts::new(content, ranges, boundary);
        let summary = self.summary(provenance, 206);
        self.respond(StoredForm::Parts(&parts), provenance);
        Ending::of(self.send_content(&parts.body()).await, summary)
    }

    /// 304, by the client's own validators.
    pub(super) async fn send_not_modified(
        &mut self,
        head: &Head,
        provenance: &Provenance,
    ) -> Ending {
        self.request.worker.io.counters.not_modified.add(1);
        let mut summary = self.summary(provenance, 304);
        if summary.outcome == Outcome::Hit {
            summary.outcome = Outcome::NotModified;
        }
        self.send_head(StoredForm::NotModified(head), provenance, summary).await
    }

    /// Sends a head without content.
    async fn send_head(
        &mut self,
        form: StoredForm<'_>,
        provenance: &Provenance,
        summary: Summary,
    ) -> Ending {
        self.respond(form, provenance);
        Ending::of(self.client.flush().await, summary)
    }

    async fn send_content(&mut self, content: &[&[u8]]) -> Result<(), Gone> {
        match self.request.method() {
            Method::Head => self.client.flush().await,
            _ if self.is_paced() => {
                for part in content {
                    Box::pin(self.send_paced(part)).await?;
                }
                Ok(())
            }
            _ => self.client.send(content, false).await,
        }
    }

    /// Buffers the head of a stored response.
    fn respond(&mut self, form: StoredForm<'_>, provenance: &Provenance) {
        if provenance.cache_status.outcome == Outcome::Hit {
            self.request.worker.io.counters.hits.add(1);
        }
        if provenance.upstream.is_some() {
            self.upstream_head_us = Some(self.started.elapsed().as_micros() as u64);
        }
        let is_of_resource = !matches!(form, StoredForm::Unsatisfied(..));
        let mut cache_status = self.request.worker.io.buffer();
        provenance.cache_status.append(&mut cache_status);
        let labels = Labels {
            cache_status: &cache_status,
            now_ms: provenance.is_aged.then(time::wall_ms),
            own_lines: if is_of_resource { &provenance.own_lines[..] } else { b"" },
        };
        self.client.respond(&Response::Stored(form, labels));
    }

    fn summary(&self, provenance: &Provenance, status: u16) -> Summary {
        Summary { outcome: provenance.cache_status.outcome, status, upstream: provenance.upstream }
    }

    /// Sends a response while its body arrives.
    pub(super) async fn stream(&mut self, streaming: Streaming) -> Ending {
        let Streaming { reader, head, provenance, .. } = streaming;
        let (head, provenance) = (&head, &provenance);
        if self.may_intercept(head.status) {
            let of = (provenance.cache_status.outcome, provenance.upstream);
            if let Some(ending) = runtime::boxed(self.intercept(head.status, &**head, of)).await {
                return ending;
            }
        }
        if self.request.is_not_modified(head) {
            return self.send_not_modified(head, provenance).await;
        }
        let slice = match self.selected(head) {
            Ok(slice) => slice,
            Err(complete_bytes) => {
                let form = StoredForm::Unsatisfied(head, complete_bytes);
                return self.send_head(form, provenance, self.summary(provenance, 416)).await;
            }
        };
        let (length, complete_bytes) =
            (BodyLength::of(head.announced_length), head.announced_length);
        let (form, status) = match (slice, complete_bytes, head.part()) {
            (Some(range), Some(complete_bytes), _) => {
                let part = ContentRange { range, complete_bytes };
                (StoredForm::Part(head, part, BodyLength::Known(range.bytes())), 206)
            }
            (_, _, Some(part)) => (StoredForm::Part(head, part, length), 206),
            (_, _, None) => (StoredForm::Arriving(head, length), head.status),
        };
        let summary = self.summary(provenance, status);
        self.respond(form, provenance);
        Ending::of(self.stream_content(reader, head, slice).await, summary)
    }

    async fn stream_content(
        &mut self,
        reader: Reader,
        head: &Head,
        slice: Option<ByteRange>,
    ) -> Result<(), Gone> {
        let mut left = pin!(self.left());
        loop {
            if !reader.is_ready() {
                // The head does not wait for a slow body.
                self.client.flush().await?;
            }
            let at = reader.at();
            let next = unless_left(left.as_mut(), reader.next()).await.map_err(|_| Gone)?;
            match next.map_err(|fault| self.broke(fault))? {
                Next::Piece(piece, passed) => {
                    let content = cut(&piece[passed..], at, slice);
                    match self.is_paced() {
                        true => Box::pin(self.send_paced(content)).await?,
                        false => {
                            self.client.offer(content);
                            self.client.flush().await?;
                        }
                    }
                }
                Next::Behind(chunks) => {
                    if !Box::pin(self.catch_up(&reader, chunks, slice)).await? {
                        Box::pin(self.send_alone(reader, head, slice)).await?;
                        break;
                    }
                }
                Next::End => break,
            }
            if slice.is_some_and(|range| reader.at() > range.last) {
                break;
            }
        }
        self.client.finish().await
    }

    /// Sends the next bytes of an arriving body from the disk. False if the disk does not have
    /// these bytes.
    async fn catch_up(
        &mut self,
        reader: &Reader,
        chunks: Option<Chunks>,
        slice: Option<ByteRange>,
    ) -> Result<bool, Gone> {
        let Some(chunks) = chunks else { return Ok(false) };
        // What the client does not get need not be read.
        let skipped = slice.map_or(0, |slice| slice.first).min(chunks.bytes());
        if let Some(skipped @ 1..) = skipped.checked_sub(reader.at()) {
            reader.passed(skipped);
            return Ok(true);
        }
        let at = reader.at();
        if at >= chunks.bytes() {
            return Ok(false);
        }
        let Ok(block) = chunks.read(at).await else { return Ok(false) };
        let content = cut(&block, at, slice);
        match self.is_paced() {
            true => self.send_held(&[content]).await?,
            false => {
                self.client.offer(content);
                self.client.flush().await?;
            }
        }
        reader.passed(block.len() as u64);
        Ok(true)
    }

    /// Continues the response of a client that has fallen behind the other readers of a fetch, by a
    /// separate request, if that request's response is certain to be the same representation.
    async fn send_alone(
        &mut self,
        reader: Reader,
        head: &Head,
        slice: Option<ByteRange>,
    ) -> Result<(), Gone> {
        let at = reader.at();
        drop(reader);
        let counters = &self.request.worker.io.counters;
        let rest = match Beginning::of_head(head, slice, at) {
            None => None,
            Some(mut beginning) => {
                let gone = self.left();
                match runtime::race(gone, beginning.rest_for_client(&self.request)).await {
                    Either::Left(()) => return Err(Gone),
                    Either::Right(rest) => rest,
                }
            }
        };
        let Some((mut rest, missing)) = rest else {
            counters.fetches_cut.add(1);
            (self.rule, self.broken) = (SLOW_READER, Some(BrokenBy::Proxy));
            tracing::debug!(rule = SLOW_READER, at, "a response broke off");
            return Err(Gone);
        };
        counters.fetches_continued.add(1);
        tracing::debug!(at, "a client that has fallen behind is continued alone");
        self.send_rest(&mut rest, missing).await
    }

    /// The bytes of an arriving body that this client gets, `None` for all bytes; `Err` is the
    /// body's length if it has none of the requested bytes. Several ranges would have to wait for
    /// each other, so the client gets the whole body instead.
    fn selected(&self, head: &Head) -> Result<Option<ByteRange>, u64> {
        let Some(length) = head.announced_length else { return Ok(None) };
        if head.part().is_some() {
            return Ok(None);
        }
        match self.request.selection(head, head.status, length) {
            Selection::Parts(ranges) => match ranges[..] {
                [range] => Ok(Some(range)),
                _ => Ok(None),
            },
            Selection::Whole(_) => Ok(None),
            Selection::Unsatisfiable => Err(length),
        }
    }

    /// Sends an upstream's response as it arrives, and stores nothing, by this rule if there was a
    /// choice.
    pub(super) async fn relay(
        &mut self,
        answer: &mut Answer,
        why: Forward,
        rule: Option<&'static str>,
    ) -> Ending {
        let status = answer.head.status();
        if self.may_intercept(status) {
            let of = (Outcome::Pass, answer.body.address());
            let fields = Wire(answer.head.head().fields);
            if let Some(ending) = runtime::boxed(self.intercept(status, &fields, of)).await {
                return ending;
            }
        }
        self.begin_session(answer);
        let summary = self.respond_relayed(answer, why, rule);
        let gone = self.left();
        let ends = async {
            gone.await;
            Cut::Client
        };
        let relayed = self.relay_content(&mut answer.body, pin!(ends)).await;
        if let Err(Cut::Upstream(fault)) = relayed
            && self.client.withdraw()
        {
            let refusal = unanswered(&self.request.worker.io, fault);
            return Box::pin(self.refuse(refusal)).await;
        }
        self.relayed(relayed, summary)
    }

    /// Adds the cookie that names the server of the client's session, if the client has none yet or
    /// the session has moved. The response is not stored, and no other cache may store it.
    fn begin_session(&self, answer: &mut Answer) {
        let Some(to) = &self.request.destination else { return };
        let is_secure = to.realm.scheme == Scheme::Https;
        if let Some(lines) = answer.body.session_lines(&to.to, is_secure) {
            policy::fields::add_lines(&mut answer.head, &lines);
        }
    }

    /// The upstream has broken off the body that is being sent.
    pub(super) fn broke(&mut self, fault: Fault) -> Gone {
        self.broken_by(fault);
        Gone
    }

    /// How a response that was passed on has ended.
    pub(crate) fn relayed(&mut self, relayed: Result<(), Cut>, summary: Summary) -> Ending {
        if let Err(Cut::Upstream(fault)) = relayed {
            self.broken_by(fault);
            self.request.worker.io.counters.upstream_errors.add(1);
        }
        Ending::of(relayed.map_err(|_| Gone), summary)
    }

    /// Buffers the head of a response that is sent as it arrives.
    pub(crate) fn respond_relayed(
        &mut self,
        answer: &Answer,
        why: Forward,
        rule: Option<&'static str>,
    ) -> Summary {
        self.upstream_head_us = Some(self.started.elapsed().as_micros() as u64);
        let Request { worker, snapshot, .. } = &self.request;
        worker.io.counters.passed.add(1);
        let Answer { head: answer_head, body, response_ms, .. } = answer;
        let answer_head = answer_head.head();
        let upstream = body.address();
        let status = answer_head.status;
        let cache_status = CacheStatus::forwarded(Outcome::Pass, why, Some(status));
        let cache_status = rule.map_or(cache_status, |rule| cache_status.with_detail(rule));
        let has_body = self.request.method() != Method::Head && body.length() != BodyLength::None;
        let passed = match self.request.codes_passed() {
            Some(rules) => self.request.passed((&answer_head, body.length()), rules),
            None => None,
        };
        let (passed, coder) = passed.map_or((None, None), |(passed, coder)| (Some(passed), coder));
        let length = if coder.is_some() { BodyLength::Unknown } else { body.length() };
        self.coder = coder;
        self.client.respond(&Response::Relayed(Relayed {
            head: &answer_head,
            response_ms: *response_ms,
            body: has_body.then_some(length),
            passed: passed.as_ref(),
            may_have_trailers: has_body && body.may_have_trailers(),
            via: &snapshot.via,
            tags: self.request.shows_tags(),
            cache_status,
        }));
        Summary { outcome: Outcome::Pass, status, upstream }
    }

    /// Passes a body on to its end, unless `ends` completes during a wait for more content.
    pub(crate) async fn relay_content(
        &mut self,
        body: &mut UpstreamBody,
        mut ends: Pin<&mut impl Future<Output = Cut>>,
    ) -> Result<(), Cut> {
        if let Some(coder) = self.coder.take() {
            return Box::pin(self.relay_coded(body, coder, ends)).await;
        }
        if self.is_paced() {
            Box::pin(self.relay_paced(body, ends)).await?;
            if let Some(lines) = trailers_to_client(&self.request, body, |_| true) {
                self.client.trailers(&lines);
            }
            return Ok(self.client.finish().await?);
        }
        let upstreams = &self.request.worker.upstreams;
        let client = &mut *self.client;
        let mut complete = body.take_ready(upstreams, &mut |data| client.offer(data));
        let shares = client.can_send_shared();
        loop {
            match complete {
                Ok(true) => {
                    if let Some(lines) = trailers_to_client(&self.request, body, |_| true) {
                        client.trailers(&lines);
                    }
                    return Ok(client.finish().await?);
                }
                Ok(false) => {
                    client.flush().await?;
                    let pulled = {
                        let mut offer = |data: &[u8]| client.offer(data);
                        let pull = pin!(body.pull_or_share(upstreams, shares, &mut offer));
                        runtime::race(ends.as_mut(), pull).await
                    };
                    complete = match pulled {
                        // A silent upstream is not kept for a client that is gone.
                        Either::Left(cut) => return Err(cut),
                        Either::Right(Ok((pages, is_complete))) => {
                            if let Some(pages) = pages {
                                client.send_shared(pages, false).await?;
                            }
                            Ok(is_complete)
                        }
                        Either::Right(Err(fault)) => Err(fault),
                    };
                }
                Err(fault) => return Err(Cut::Upstream(fault)),
            }
        }
    }
}

/// Why a response broke off, in the log: its client has fallen behind the others of the fetch.
const SLOW_READER: &str = "slow-reader";

/// The trailers of a complete body, as field lines, if the client is sent any.
pub(crate) fn trailers_to_client(
    request: &Request,
    body: &UpstreamBody,
    fits: impl Fn(&[u8]) -> bool,
) -> Option<Vec<u8>> {
    if !accepts_trailers(request.version(), &request.fields()) {
        return None;
    }
    let (tags, route) = (request.shows_tags(), request.taken_route());
    let reading = request.destination.as_ref().map(Destination::reading);
    let of_rules =
        reading.and_then(|read| request.response_changes(&request.rules_of_response(), read));
    let of_rules = of_rules.map(|changes| ResponseRules::new(&changes));
    let keeps = |name: &[u8]| {
        (tags || !is_tag_field(name))
            && fits(name)
            && route.is_none_or(|route| route.response.keeps(name))
            && of_rules.as_ref().is_none_or(|rules| rules.keeps(name))
    };
    let fields = trailer_fields(body.trailers());
    Some(trailer_lines(fields.filter(|(name, _)| keeps(name))))
}

/// The bytes of a piece at this offset that are in the slice.
fn cut(piece: &[u8], at: u64, slice: Option<ByteRange>) -> &[u8] {
    let Some(range) = slice else { return piece };
    let within = |place: u64| {
        let offset = place.saturating_sub(at).min(piece.len() as u64);
        usize::try_from(offset).expect("no more than the piece")
    };
    &piece[within(range.first)..within(range.last + 1)]
}

impl<C: Client> Exchange<'_, C> {
    fn wish(&self) -> Wish<'_> {
        let Request { snapshot, .. } = &self.request;
        let (to, asked) = (self.request.to(), (self.request.method_bytes(), self.request.fields()));
        Wish::of(snapshot, to.realm.role, || self.request.codes(), asked)
    }

    /// Sends another form of a response of which there may be several; `None`: it is sent as it is.
    /// Waits only for a form that must be decoded.
    pub(crate) async fn serve_in_form(&mut self, serving: &Serving) -> Option<Step> {
        let Serving { held, provenance } = serving;
        let wish = self.wish();
        let form = match (wish.answer(held.head(), held.whole()), held, wish.rules) {
            (Chosen::NotModified(head), ..) => {
                return Some(Step::End(self.send_not_modified(&head, provenance).await));
            }
            (Chosen::Form(form), ..) => form,
            (Chosen::Wanting(coding, meanwhile), Held::Whole(stored), Some(rules)) => {
                if let Some((now, key)) = self.latest(stored) {
                    let target = Target(Some(coding));
                    self.request.worker.cache.ask_for_form(key, &now, target, rules);
                }
                meanwhile?
            }
            (Chosen::Decoding, Held::Whole(stored), Some(rules)) => {
                match self.decoded(stored, rules).await {
                    Some(form) => form,
                    None => return Some(self.unreadable()),
                }
            }
            (Chosen::Unreadable | Chosen::Decoding, ..) => return Some(self.unreadable()),
            (Chosen::AsItIs | Chosen::Wanting(..), ..) => return None,
        };
        // A form is sent whole.
        Some(Step::End(self.send_whole(&form, provenance).await))
    }

    /// Sends a response of which there may be several forms while its body arrives: as it is, if
    /// the client can read that. Otherwise it waits for the end of the body.
    pub(crate) async fn stream_in_form(
        &mut self,
        streaming: Box<Streaming>,
    ) -> Result<Step, Refusal> {
        let Streaming { head, provenance, .. } = &*streaming;
        let wish = self.wish();
        if let Some(head) = wish.not_modified(head) {
            return Ok(Step::End(self.send_not_modified(&head, provenance).await));
        }
        if !wish.cannot_read(head.source()) {
            return Ok(Step::End(self.stream(*streaming).await));
        }
        // What does not stay in memory has no forms: the client must not wait for all of it.
        let most = self.request.worker.cache.memory_object_bytes_max();
        if !wish.decodes(head) || head.announced_length.is_some_and(|bytes| bytes > most) {
            return Ok(self.unreadable());
        }
        let Streaming { reader, provenance, .. } = *streaming;
        loop {
            match unless_left(self.left(), reader.next()).await? {
                Ok(Next::End) => break,
                Ok(_) if reader.is_bounded() => return Ok(self.unreadable()),
                Ok(_) => {}
                // Its core has ended, the origin has not, and the client has got nothing.
                Err(Fault::Abandoned) => return Ok(Step::LookUp),
                Err(fault) => return Err(Refusal::Fault(fault)),
            }
        }
        Ok(match reader.found().await {
            Found::Settled(Settled::Stored(stored)) => {
                Step::Serve(Box::new(Serving { held: Held::Whole(stored), provenance }))
            }
            // It is not stored, so it has no forms.
            _ => self.unreadable(),
        })
    }

    /// The step for a client that cannot read the stored response.
    fn unreadable(&self) -> Step {
        match self.request.wants_only_stored() {
            true => Step::Refuse(Refusal::OnlyIfCached),
            false => Step::Pass(Forward::VaryMiss, None),
        }
    }

    /// The decoded form, once it has been made; `None` if it cannot be.
    async fn decoded(&self, stored: &Stored, rules: &Rules) -> Option<Arc<Stored>> {
        const TARGET: Target = Target(None);
        let cache = &self.request.worker.cache;
        let (mut now, key) = self.latest(stored)?;
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
    fn latest(&self, stored: &Stored) -> Option<(Arc<Stored>, Key)> {
        let (cache, wire) = (&self.request.worker.cache, self.request.wire());
        let (uri, parts) = (self.request.uri_key(), self.request.key_parts());
        let (look, now_ms) = (Look::Peek, time::wall_ms());
        match cache.look_by_parts(uri, &Query { look, parts, request: &wire, now_ms }) {
            Lookup::Found(found, key) if found.shares_body(stored) => Some((found, key)),
            _ => None,
        }
    }
}
