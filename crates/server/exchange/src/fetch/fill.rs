//! Fetching the body of a response that is to be stored.
//!
//! The task that fetches the body belongs to no client, and continues after the first client has
//! left. A body that breaks off is kept as a part if its remainder can be requested later.
//!
//! A body that does not stay in memory goes to the disk as fast as the disk writes. If the disk
//! does not take the body, the fetch continues at the pace of the fastest reader. The fetch waits
//! for slow readers only for a short time ([`Patience`]), and then continues without them. The
//! module `cache::flight` describes how these readers get the remainder.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use cache::flight::{Fill, Lead, Reader, Room, Settled};
use cache::partial::Partial;
use cache::stored::{Entry, Head, Piece, Stored};
use cache::variants::Place;
use caching::ContentRange;
use caching::range::ByteRange;
use outcome::Fault;
use runtime::{Either, time};
use store::disk::{Refused, Writer};
use upstream::UpstreamBody;

use crate::fetch::continued::{Kept, has_rest};
use crate::limits::{DISK_ROOM_WAIT, READERS_CUT_WAIT, READERS_LEFT_WAIT};
use crate::worker::Worker;

/// What a body becomes in the store.
pub(super) enum Into {
    /// A whole response.
    Whole,
    /// A part, which is combined with the stored ones.
    Part(ContentRange),
    /// The gap between stored pieces.
    Rest {
        before: Vec<Piece>,
        /// The length that it must have.
        gap_bytes: u64,
        after: Vec<Piece>,
    },
}

/// A body to fetch.
pub(super) struct Filling {
    pub(super) place: Place,
    pub(super) head: Arc<Head>,
    pub(super) into: Into,
    /// How its rest is asked for, if another member of the cluster sends it and is lost.
    pub(super) kept: Option<Box<Kept>>,
}

impl Filling {
    /// Starts the task; `first` is what has come already. The reader is that of the request that
    /// leads. The core does not end before the readers of its fillings have.
    pub(super) fn start(
        self,
        worker: &Rc<Worker>,
        lead: Lead,
        mut body: UpstreamBody,
        first: Vec<u8>,
    ) -> Reader {
        let Filling { place, head, into, kept } = self;
        let (fill, reader) = lead.stream(Arc::clone(&head));
        let slot = worker.fillings.borrow_mut().insert(Arc::clone(fill.flight()));
        let (worker, pieces) = (Rc::clone(worker), Some(Vec::new()));
        let patience = Patience::new(has_rest(&head));
        let (writer, total, arriving) = (None, 0, 0);
        let mut task =
            Task { worker, fill, place, head, kept, pieces, writer, patience, total, arriving };
        let run = async move {
            let settled = task.run(&mut body, first, into).await;
            task.worker.fillings.borrow_mut().remove(slot);
            task.worker.cache.give_arriving(task.arriving);
            task.fill.settle(settled);
        };
        runtime::spawn_detached(run);
        reader
    }
}

/// The task that fetches a body.
struct Task {
    worker: Rc<Worker>,
    fill: Fill,
    place: Place,
    head: Arc<Head>,
    kept: Option<Box<Kept>>,
    /// What is to be stored in memory, until the body turns out too large for that.
    pieces: Option<Vec<Piece>>,
    /// Where it goes from then on.
    writer: Option<Writer>,
    /// With slow readers, if it goes nowhere.
    patience: Patience,
    /// Bytes of the body so far ...
    total: u64,
    /// ... and those of them that are accounted as arriving.
    arriving: u64,
}

impl Task {
    async fn run(&mut self, body: &mut UpstreamBody, first: Vec<u8>, into: Into) -> Settled {
        if let Into::Rest { before, .. } = &into {
            before.iter().for_each(|piece| self.push(Arc::clone(piece), false));
        }
        let begun = self.total;
        if !first.is_empty() {
            self.push(Piece::from(first), true);
        }
        if let Err(fault) = self.pull(body).await {
            if fault != Fault::Abandoned {
                self.worker.io.counters.upstream_errors.add(1);
                self.keep_what_came(fault, &into);
            }
            return Settled::Failed(fault);
        }
        let came = self.total - begun;
        match into {
            Into::Whole => {}
            // The readers have got the response as it was; it is uncertain what it is a part of.
            Into::Part(part) if came != part.range.bytes() => return Settled::Uncacheable,
            Into::Part(part) => return self.store_part(part),
            Into::Rest { gap_bytes, .. } if came != gap_bytes => {
                self.worker.cache.remove_part(&self.place.key);
                return Settled::Failed(Fault::Malformed);
            }
            Into::Rest { after, .. } => {
                after.into_iter().for_each(|piece| self.push(piece, false));
            }
        }
        let Some(pieces) = self.pieces.take() else { return self.end_on_disk() };
        let stored = Stored::new(Arc::clone(&self.head), joined(pieces));
        let stored = Arc::new(stored);
        let (cache, watch) = (&self.worker.cache, self.fill.flight().watch());
        cache.insert(watch, &self.place, Entry::Response(Arc::clone(&stored)));
        Settled::Stored(stored)
    }

    /// Ends a body that went to the disk, or nowhere.
    fn end_on_disk(&mut self) -> Settled {
        let Some(writer) = self.writer.take() else { return Settled::Uncacheable };
        let (cache, watch) = (&self.worker.cache, self.fill.flight().watch());
        match cache.insert_written(watch, &self.place, &self.head, (writer, self.total)) {
            Some(stored) => Settled::Stored(stored),
            None => Settled::Uncacheable,
        }
    }

    async fn pull(&mut self, body: &mut UpstreamBody) -> Result<(), Fault> {
        loop {
            match &self.writer {
                Some(writer) => {
                    writer.room(DISK_ROOM_WAIT).await;
                    if planted::is(planted::Bug::SlowReaderWaits) {
                        std::future::poll_fn(|cx| self.fill.poll_caught_up(cx)).await;
                    }
                }
                None => self.patience.room(&self.fill, self.window()).await?,
            }
            let mut parts = Parts::default();
            let mut add = |part: &[u8]| parts.add(part);
            let pulling = async {
                match &mut self.kept {
                    None => body.pull(&self.worker.upstreams, &mut add).await,
                    Some(kept) => Box::pin(kept.pull(body, &mut add)).await,
                }
            };
            let goes_nowhere = self.pieces.is_none() && self.writer.is_none();
            let pulled = match goes_nowhere {
                false => pulling.await,
                true => {
                    // A silent upstream is not kept for readers that are gone.
                    let unread = std::future::poll_fn(|cx| self.fill.poll_unread(cx));
                    match runtime::race(unread, pulling).await {
                        Either::Left(()) => Err(Fault::Abandoned),
                        Either::Right(pulled) => pulled,
                    }
                }
            };
            if let Some(piece) = parts.piece() {
                self.push(piece, true);
            }
            if pulled? {
                return Ok(());
            }
        }
    }

    /// `new`: its memory is not accounted for yet.
    fn push(&mut self, piece: Piece, new: bool) {
        let cache = &self.worker.cache;
        let bytes = piece.len() as u64;
        self.total += bytes;
        let fits = self.total <= cache.memory_object_bytes_max();
        if let Some(pieces) = &mut self.pieces {
            if fits && (!new || cache.take_arriving(bytes)) {
                self.arriving += if new { bytes } else { 0 };
                pieces.push(Arc::clone(&piece));
            } else {
                self.leave_memory(&piece);
            }
        } else if let Some(writer) = &mut self.writer
            && let Err(refused) = writer.write(&piece)
        {
            self.refused(refused);
        }
        debug_assert!(self.arriving <= self.total, "what arrives is part of the body");
        debug_assert!(
            self.pieces.is_none() || self.writer.is_none(),
            "a body goes to the memory or to the disk"
        );
        self.fill.push(piece);
    }

    /// Bytes of a body that stay in memory for its readers, if it does not itself.
    fn window(&self) -> usize {
        self.worker.io.limits().limits.stream_window_bytes
    }

    /// Moves the body to the disk, what has come and what will, if the disk takes it. Otherwise it
    /// is not stored.
    fn leave_memory(&mut self, piece: &Piece) {
        let before = self.pieces.take().unwrap_or_default();
        if self.head.part().is_none() {
            self.writer = self.worker.cache.disk_writer(self.place.key, &self.head);
        }
        let Some(writer) = &mut self.writer else {
            self.fill.bound(self.window());
            return self.is_too_large();
        };
        let mut all = before.iter().chain([piece]);
        match all.try_for_each(|piece| writer.write(piece)) {
            Ok(()) => {
                let chunks = writer.chunks();
                self.fill.store(chunks, self.window());
                // From now on memory has a window of it.
                self.worker.cache.give_arriving(std::mem::take(&mut self.arriving));
            }
            Err(refused) => self.refused(refused),
        }
    }

    /// The disk does not take the body. Only a size that it never takes matters to the next one.
    fn refused(&mut self, refused: Refused) {
        tracing::debug!(?refused, "a body goes no longer to the disk");
        self.writer = None;
        self.fill.bound(self.window());
        if refused == Refused::TooLarge {
            self.is_too_large();
        }
    }

    /// Requests do not wait for the next response of this key.
    fn is_too_large(&self) {
        let cache = &self.worker.cache;
        if self.total > cache.memory_object_bytes_max() && self.head.part().is_none() {
            let memory = self.worker.io.limits().limits.uncacheable_memory;
            let watch = self.fill.flight().watch();
            cache.mark_unshared(watch, self.place.key, time::wall_ms(), memory);
        }
    }

    fn store_part(&mut self, part: ContentRange) -> Settled {
        let Some(pieces) = self.pieces.take() else { return Settled::Uncacheable };
        let pieces = joined(pieces);
        let partial = Partial::new(Arc::clone(&self.head), part, pieces);
        self.worker.cache.insert_part(self.fill.flight().watch(), &self.place, partial)
    }

    /// Keeps an incomplete response as a part (RFC 9111, 3.3), if its rest can be asked for by a
    /// strong validator.
    fn keep_what_came(&mut self, fault: Fault, into: &Into) {
        let certain = matches!(fault, Fault::Broken | Fault::Timeout);
        let continuable = caching::if_range(&self.head.meta.validators).is_some();
        let (first, complete_bytes) = match into {
            Into::Part(part) => (part.range.first, Some(part.complete_bytes)),
            Into::Whole => (0, self.head.announced_length.filter(|_| self.head.status == 200)),
            Into::Rest { .. } => (0, self.head.announced_length),
        };
        let (Some(complete_bytes), Some(pieces)) = (complete_bytes, self.pieces.take()) else {
            return;
        };
        let last_max = match into {
            Into::Part(part) => part.range.last,
            Into::Whole | Into::Rest { .. } => complete_bytes.saturating_sub(1),
        };
        let fits = self.total > 0 && first + self.total - 1 <= last_max;
        if !certain || !continuable || !fits {
            return;
        }
        let range = ByteRange { first, last: first + self.total - 1 };
        let part = ContentRange { range, complete_bytes };
        let partial = Partial::new(Arc::clone(&self.head), part, joined(pieces));
        self.worker.cache.insert_part(self.fill.flight().watch(), &self.place, partial);
    }
}

/// How long a fetch whose body goes nowhere waits for slow readers while another reader wants more:
/// only so long for each window of bytes that they take.
struct Patience {
    wait_max: Duration,
    left: Duration,
    /// Where the window began when it was full.
    since: u64,
}

impl Patience {
    /// `continues`: a reader that is left behind can ask for the rest.
    fn new(continues: bool) -> Patience {
        let wait_max = if continues { READERS_LEFT_WAIT } else { READERS_CUT_WAIT };
        Patience { wait_max, left: wait_max, since: 0 }
    }

    /// Waits until another piece may come.
    async fn room(&mut self, fill: &Fill, window_bytes: usize) -> Result<(), Fault> {
        loop {
            let starving = async {
                std::future::poll_fn(|cx| fill.poll_starving(cx)).await;
                let start = fill.window_start();
                if start - self.since >= window_bytes as u64 {
                    (self.left, self.since) = (self.wait_max, start);
                }
                let begun = time::now();
                let spent = Spent { begun, left: &mut self.left };
                time::sleep(*spent.left).await;
            };
            match runtime::race(std::future::poll_fn(|cx| fill.poll_room(cx)), starving).await {
                Either::Left(Room::Free) => return Ok(()),
                // It is neither read nor stored.
                Either::Left(Room::Unread) => return Err(Fault::Abandoned),
                Either::Right(()) => {
                    let readers = fill.leave_behind();
                    tracing::debug!(readers, "slow readers are left behind");
                }
            }
        }
    }
}

/// Deducts the time since it began when it is dropped.
struct Spent<'p> {
    begun: time::Instant,
    left: &'p mut Duration,
}

impl Drop for Spent<'_> {
    fn drop(&mut self) {
        *self.left = self.left.saturating_sub(time::now().since(self.begun));
    }
}

/// What one read gave: mostly one part, which is copied once.
#[derive(Default)]
struct Parts {
    first: Option<Piece>,
    /// All parts, if there are several.
    all: Vec<u8>,
}

impl Parts {
    fn add(&mut self, part: &[u8]) {
        match self.first.take() {
            None if self.all.is_empty() => self.first = Some(Piece::from(part)),
            first => {
                self.all.extend_from_slice(first.as_deref().unwrap_or_default());
                self.all.extend_from_slice(part);
            }
        }
    }

    fn piece(self) -> Option<Piece> {
        self.first.or_else(|| (!self.all.is_empty()).then(|| Piece::from(self.all)))
    }
}

/// Joins small neighbouring pieces, which cost more than a copy of them.
fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
    const KEPT_BYTES_MIN: usize = 16 * 1024;
    const JOINED_BYTES_MAX: usize = 64 * 1024;
    let mut out = Vec::with_capacity(pieces.len());
    let mut rest = &pieces[..];
    while let Some(first) = rest.first() {
        let mut bytes = first.len();
        let mut count = 1;
        let joins = |piece: &Piece, bytes: usize| {
            let small = piece.len().min(bytes) < KEPT_BYTES_MIN;
            small && bytes + piece.len() <= JOINED_BYTES_MAX
        };
        while let Some(next) = rest.get(count).filter(|next| joins(next, bytes)) {
            bytes += next.len();
            count += 1;
        }
        out.push(if count == 1 { Arc::clone(first) } else { Piece::from(rest[..count].concat()) });
        rest = &rest[count..];
    }
    out
}
