//! Sending a body from the disk.
//!
//! A block is read and verified, then sent: the first one at once, of the others some together, so
//! that the client is not woken for each. Blocks verified before are sent zero-copy
//! from the page cache, except over TLS, which has to read them. A range reads its own blocks only.
//! A block that cannot be had before anything was sent makes it a miss. Later the rest is asked of
//! the origin, if it is certain to be the rest of the same (RFC 9110, 13.1.5); else the connection
//! is cut.

use std::sync::Arc;

use caching::ContentRange;
use caching::range::ByteRange;
use http1::Method;
use runtime::fs::SharedPages;
use store::disk::{Body, Broken, Hit, Piece};

use crate::ask::{Ask, Held, What};
use crate::destination::Destination;
use crate::ended::Torn;
use crate::ended::{Done, Ended};
use crate::exchange::Exchange;
use crate::fetch::Purpose;
use crate::limits::BLOCKS_SENT_MAX;
use crate::shared::Shared;
use cache::partial::Partial;
use cache::stored::{Away, Entry, Stored};
use upstream::{self, Answer, Outgoing};

/// A body on the disk of which the beginning is here.
#[derive(Debug)]
pub(crate) struct Opened {
    first: Part,
    rest: Body,
}

/// Some of a body, to be sent at once.
#[derive(Debug)]
enum Part {
    Shared(SharedPages),
    Read(Vec<Piece>),
}

impl Shared {
    /// Opens a part of a body. `at_hand` is what was found a moment ago, perhaps for this: then its
    /// first block is not read again. `zero_copy`: the client can be sent shared pages. `None`: it
    /// is not there any more, and nobody finds it in memory.
    pub(crate) async fn open_away(
        &self,
        stored: &Arc<Stored>,
        away: Away,
        range: ByteRange,
        at_hand: Option<Box<Hit>>,
        zero_copy: bool,
    ) -> Option<Opened> {
        let opened = self.try_open(stored, away, range, at_hand, zero_copy).await;
        if opened.is_none() {
            self.store.remove_if(&away.key, |entry: &Entry| entry.is(stored));
        }
        opened
    }

    async fn try_open(
        &self,
        stored: &Stored,
        away: Away,
        range: ByteRange,
        at_hand: Option<Box<Hit>>,
        zero_copy: bool,
    ) -> Option<Opened> {
        let disk = self.disk()?;
        let is_it =
            |hit: &Hit| hit.object == away.object && disk.is_current(&away.key, &hit.version());
        let hit = match at_hand {
            Some(hit) if is_it(&hit) => *hit,
            _ => disk.get(&away.key).await?,
        };
        if hit.object != away.object || hit.body_len != stored.body_bytes {
            return None;
        }
        let mut rest = hit.range(range.first..range.last + 1);
        if zero_copy {
            rest = rest.allow_zero_copy();
        }
        let first = match rest.next_shared().await {
            Some(pages) => Part::Shared(pages),
            None => Part::Read(rest.next().await.ok()?.into_iter().collect()),
        };
        Some(Opened { first, rest })
    }
}

impl Exchange<'_> {
    /// Sends what was opened: what is held already goes before it.
    pub(crate) async fn send_away(
        &mut self,
        stored: &Arc<Stored>,
        range: ByteRange,
        opened: Opened,
        done: Done,
    ) -> Result<Done, Ended> {
        let Opened { first, mut rest } = opened;
        let (mut at, mut part, mut ended) = (range.first, first, None);
        loop {
            let next = match part {
                Part::Shared(pages) => {
                    at += pages.left() as u64;
                    let sent = self.client.send_shared(pages, rest.left() > 0).await;
                    sent.map_err(|_| Ended::Gone(done))?;
                    rest.next_shared().await
                }
                Part::Read(pieces) => {
                    let next = if ended.is_none() { rest.next_shared().await } else { None };
                    let slices: Vec<&[u8]> = pieces.iter().map(|piece| &**piece).collect();
                    at += slices.iter().map(|slice| slice.len() as u64).sum::<u64>();
                    let sent = self.client.send_slices(&slices, next.is_some()).await;
                    sent.map_err(|_| Ended::Gone(done))?;
                    next
                }
            };
            match ended {
                None => {}
                Some(Ok(())) => return Ok(done),
                Some(Err(Broken)) => {
                    let missing = ByteRange { first: at, last: range.last };
                    let stored = Arc::clone(stored);
                    return Err(Ended::Torn(Box::new(Torn { stored, missing, done })));
                }
            }
            if let Some(pages) = next {
                part = Part::Shared(pages);
                continue;
            }
            let mut pieces = Vec::new();
            while pieces.len() < BLOCKS_SENT_MAX && ended.is_none() {
                match rest.next().await {
                    Ok(Some(piece)) => pieces.push(piece),
                    Ok(None) => ended = Some(Ok(())),
                    Err(broken) => ended = Some(Err(broken)),
                }
            }
            part = Part::Read(pieces);
        }
    }

    /// Asks the origin for the rest of a body that broke off, and sends it.
    pub(crate) async fn mend(
        &mut self,
        destination: &Destination<'_>,
        torn: Torn,
    ) -> Result<Done, Ended> {
        let Torn { stored, missing, done } = torn;
        let gone = Err(Ended::Gone(done));
        if caching::if_range(&stored.head.meta.validators).is_none() {
            return gone;
        }
        let complete_bytes = stored.body_bytes;
        let wanted = ContentRange { range: missing, complete_bytes };
        let held = Partial::new(Arc::clone(&stored.head), wanted, Vec::new());
        let uri =
            self.worker.shared.uri_key(destination.realm, destination.authority, destination.path);
        let why = caching::cache_status::Forward::Partial;
        let ask = Ask::of(uri, uri, why, Held::Part(Arc::new(held)));
        let ask = Ask { what: What::Rest(missing), ..ask };
        let bytes = self.asking(destination).bytes(Purpose::Store(&ask));
        let outgoing = Outgoing { bytes: &bytes, method: Method::Get, repeatable: true };
        let worker = self.worker;
        let answer =
            upstream::exchange(&worker.upstreams, &destination.to, outgoing, &mut |_| {}).await;
        let Ok(mut answer) = answer else { return gone };
        if !continues(&stored, &answer, wanted) {
            return gone;
        }
        let mut left = missing.bytes();
        let mut data = Vec::new();
        // What came with the head, then what comes.
        let mut pulled =
            answer.body.take_ready(&worker.upstreams, &mut |part| data.extend_from_slice(part));
        loop {
            if data.len() as u64 > left {
                return gone;
            }
            left -= data.len() as u64;
            self.client.send(&data).await.map_err(|_| Ended::Gone(done))?;
            match pulled {
                _ if left == 0 => break,
                Ok(false) => {}
                Ok(true) => return gone,
                Err(fault) => {
                    tracing::debug!(%fault, "the rest of a stored body did not come");
                    return gone;
                }
            }
            data.clear();
            pulled =
                answer.body.pull(&worker.upstreams, &mut |part| data.extend_from_slice(part)).await;
        }
        worker.counters.bodies_mended.add(1);
        Ok(done)
    }
}

/// Whether an answer is the part that is wanted, of the same representation.
fn continues(stored: &Stored, answer: &Answer, wanted: ContentRange) -> bool {
    let head = answer.head.head();
    let fields = cache::stored::Wire(head.fields);
    let validators = caching::Validators::of(&fields, answer.response_ms);
    head.status == 206
        && ContentRange::of(&fields) == Some(wanted)
        && caching::may_combine(&stored.head.meta.validators, &validators)
}
