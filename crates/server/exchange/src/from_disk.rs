//! Sending a body from the disk.
//!
//! Each block is read and verified, and then sent. The first block is sent at once. The further
//! blocks are sent several at a time, so that the client is not woken for each block. Pages that
//! the store maps are sent from the page cache without a copy, except over TLS, which has to read
//! the pages. A range reads only its own blocks. If a block cannot be read before anything was
//! sent, the request becomes a miss. If a later block cannot be read, the remainder is requested
//! from the origin, provided that it is certain to belong to the same representation (RFC 9110,
//! 13.1.5). Otherwise the connection is cut.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use cache::forms::Away;
use cache::partial::Partial;
use cache::stored::{Entry, Stored};
use caching::cache_status::Forward;
use caching::range::ByteRange;
use caching::{ContentRange, Named};
use http1::ResponseHead;
use outcome::Fault;
use runtime::fs::SharedPages;
use store::disk::{Body, Broken, Piece};
use upstream::{Answer, UpstreamBody};

use crate::client::{Client, Gone};
use crate::fetch::{Purpose, hierarchy};
use crate::limits::{BLOCKS_SENT_MAX, PACED_BLOCKS_MAX, PRESSED_BYTES};
use crate::step::{Ask, Ending, Held, Step, Summary, Torn, What};
use crate::{Exchange, unless_left};

/// A body on the disk whose beginning has been read.
#[derive(Debug)]
pub(super) struct Opened {
    first: Part,
    rest: Body,
}

/// Some of a body, to be sent at once.
#[derive(Debug)]
enum Part {
    Shared(SharedPages),
    Read(Vec<Piece>),
}

impl<C: Client> Exchange<'_, C> {
    /// Opens a range of a body. If the body was swapped in for this request, its first block is not
    /// read again. `None` if the body is no longer there; then memory forgets it too.
    pub(super) async fn open_away(
        &mut self,
        stored: &Arc<Stored>,
        away: Away,
        range: ByteRange,
    ) -> Option<Opened> {
        let opened = self.try_open(stored, away, range).await;
        if opened.is_none() {
            let store = &self.request.worker.cache.store;
            store.remove_if(&away.key, |entry: &Entry| entry.is(stored));
        }
        opened
    }

    async fn try_open(&mut self, stored: &Stored, away: Away, range: ByteRange) -> Option<Opened> {
        let disk = self.request.worker.cache.disk()?;
        let hit = match self.swapped_in.take() {
            Some(hit)
                if hit.object == away.object && disk.is_current(&away.key, &hit.version()) =>
            {
                *hit
            }
            _ => disk.get(&away.key).await?,
        };
        if hit.object != away.object || hit.body_len != stored.body_bytes {
            return None;
        }
        let mut rest = hit.range(range.first..range.last + 1);
        if self.client.can_send_shared() && !self.is_paced() {
            rest = rest.allow_zero_copy();
        }
        let first = match rest.next_shared().await {
            Some(pages) => Part::Shared(pages),
            None => Part::Read(self.next_piece(&mut rest).await.ok()?.into_iter().collect()),
        };
        Some(Opened { first, rest })
    }

    /// Sends an opened body, after the head that is buffered.
    pub(super) async fn send_away(
        &mut self,
        stored: &Arc<Stored>,
        range: ByteRange,
        opened: Opened,
        summary: Summary,
    ) -> Step {
        let mut at = range.first;
        let ending = match self.send_opened(opened, &mut at).await {
            Ok(Ok(())) => Ending::Complete(summary),
            Err(Gone) => Ending::BrokenOff(summary),
            Ok(Err(Broken)) => {
                let missing = ByteRange { first: at, last: range.last };
                let stored = Arc::clone(stored);
                return Step::Repair(Box::new(Torn { stored, missing, summary }));
            }
        };
        Step::End(ending)
    }

    /// Moves `at` behind what was sent.
    async fn send_opened(
        &mut self,
        opened: Opened,
        at: &mut u64,
    ) -> Result<Result<(), Broken>, Gone> {
        let Opened { first, mut rest } = opened;
        let (mut part, mut ended) = (first, None);
        loop {
            let next = match part {
                Part::Shared(pages) => {
                    *at += pages.left() as u64;
                    self.client.send_shared(pages, rest.left() > 0).await?;
                    rest.next_shared().await
                }
                Part::Read(pieces) => {
                    let next = if ended.is_none() { rest.next_shared().await } else { None };
                    let slices: Vec<&[u8]> = pieces.iter().map(|piece| &**piece).collect();
                    *at += slices.iter().map(|slice| slice.len() as u64).sum::<u64>();
                    match self.is_paced() {
                        true => {
                            let io = Rc::clone(&self.request.worker.io);
                            let _record = io.held(rest.holds());
                            Box::pin(self.send_held(&slices)).await?;
                        }
                        false => self.client.send(&slices, next.is_some()).await?,
                    }
                    next
                }
            };
            if let Some(ended) = ended {
                return Ok(ended);
            }
            if let Some(pages) = next {
                part = Part::Shared(pages);
                continue;
            }
            let mut pieces = Vec::new();
            let most = if self.is_paced() { PACED_BLOCKS_MAX } else { BLOCKS_SENT_MAX };
            while pieces.len() < most && ended.is_none() {
                match self.next_piece(&mut rest).await {
                    Ok(Some(piece)) => pieces.push(piece),
                    Ok(None) => ended = Some(Ok(())),
                    Err(broken) => ended = Some(Err(broken)),
                }
            }
            part = Part::Read(pieces);
        }
    }

    /// The next bytes of a body. While clients hold too much, a paced one gets a small part of a
    /// block, and the rest is read again.
    async fn next_piece(&self, rest: &mut Body) -> Result<Option<Piece>, Broken> {
        let is_small = self.is_paced() && self.request.worker.io.is_pressed();
        Ok(match rest.next().await? {
            Some(piece) if is_small => Some(rest.keep(piece, PRESSED_BYTES)),
            // Its memory may be a whole record that is not written yet.
            Some(piece) if self.is_paced() => Some(piece.alone()),
            piece => piece,
        })
    }

    /// Asks the origin for the rest of a body that broke off, and sends it.
    pub(super) async fn repair(&mut self, torn: Torn) -> Ending {
        let Torn { stored, missing, summary } = torn;
        let request = &self.request;
        if caching::if_range(&stored.head.meta.validators).is_none() {
            self.broken_by(Fault::Abandoned);
            return Ending::BrokenOff(summary);
        }
        let wanted = ContentRange { range: missing, complete_bytes: stored.body_bytes };
        let held = Partial::new(Arc::clone(&stored.head), wanted, Vec::new());
        let uri = request.uri_key();
        let held = Some(Held::Part(Arc::new(held)));
        let ask = Ask { what: What::Rest(missing), ..Ask::of(uri, uri, Forward::Partial, held) };
        let message = request.message(Purpose::Store(&ask));
        let mut interim = |_: &ResponseHead<'_>| {};
        let asking = hierarchy::exchange(request, &message, &mut interim);
        let sent = match unless_left(self.left(), asking).await {
            Ok(Ok(mut answer)) if continues(&stored, &answer, wanted) => {
                self.send_rest(&mut answer.body, Some(missing.bytes())).await
            }
            Ok(Ok(_)) => Err(self.broke(Fault::Abandoned)),
            Ok(Err(fault)) => Err(self.broke(fault)),
            Err(_) => Err(Gone),
        };
        if sent.is_ok() {
            self.request.worker.io.counters.bodies_repaired.add(1);
        }
        Ending::of(sent, summary)
    }

    /// Sends the rest of a body: `bytes` of it, if that is known, which must not be too few.
    pub(super) async fn send_rest(
        &mut self,
        body: &mut UpstreamBody,
        bytes: Option<u64>,
    ) -> Result<(), Gone> {
        let upstreams = &Rc::clone(&self.request.worker.upstreams);
        let mut left = pin!(self.left());
        let mut wanted = bytes;
        let mut data = Vec::new();
        let mut pulled = body.take_ready(upstreams, &mut |part| data.extend_from_slice(part));
        loop {
            if let Some(wanted) = &mut wanted {
                // More of it is not for this client.
                data.truncate(usize::try_from(*wanted).unwrap_or(usize::MAX));
                *wanted -= data.len() as u64;
            }
            match self.is_paced() {
                true => Box::pin(self.send_held(&[&data[..]])).await?,
                false => self.client.offer(&data),
            }
            self.client.flush().await?;
            match pulled {
                _ if wanted == Some(0) => return Ok(()),
                Ok(false) => {}
                Ok(true) if wanted.is_none() => return Ok(()),
                Ok(true) => return Err(self.broke(Fault::Broken)),
                Err(fault) => return Err(self.broke(fault)),
            }
            data.clear();
            let mut keep = |part: &[u8]| data.extend_from_slice(part);
            let pull = unless_left(left.as_mut(), body.pull(upstreams, &mut keep)).await;
            pulled = pull.map_err(|_| Gone)?;
        }
    }
}

/// Whether an answer is the wanted part of the same representation.
fn continues(stored: &Stored, answer: &Answer, wanted: ContentRange) -> bool {
    let head = answer.head.head();
    let fields = cache::stored::Wire(head.fields);
    let validators = caching::Validators::of(&fields, answer.response_ms);
    head.status == 206
        && ContentRange::of(&fields) == Some(wanted)
        && caching::may_combine(stored.head.named(), Named::of(&validators, &fields))
}
