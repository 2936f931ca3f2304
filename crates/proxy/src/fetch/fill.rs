//! Bringing the body of a response that is to be stored.
//!
//! It belongs to no client: it goes on when the one who asked first has left. A body that breaks
//! off is kept as a part where the rest can be asked for later.

use std::rc::Rc;
use std::sync::Arc;

use caching::ContentRange;
use caching::range::ByteRange;
use runtime::time;
use store::Key;
use store::disk::{Refused, Writer};

use crate::worker::Worker;
use cache::disk;
use cache::flight::{Fill, Reader, Settled};
use cache::partial::Partial;
use cache::stored::{Away, Entry, Head, Piece, Stored};
use outcome::Fault;
use upstream::UpstreamBody;

/// What a body is of, and what becomes of it.
pub(super) enum Into {
    /// The whole.
    Whole,
    /// A part, to be put with those that are there.
    Part(ContentRange),
    /// What is missing between these pieces.
    Rest {
        /// Those before it.
        before: Vec<Piece>,
        /// How long it must be.
        gap_bytes: u64,
        /// Those behind it.
        after: Vec<Piece>,
    },
}

/// Brings it.
pub(super) struct Filling {
    pub(super) worker: Rc<Worker>,
    pub(super) fill: Fill,
    pub(super) key: Key,
    pub(super) head: Arc<Head>,
    pub(super) into: Into,
}

impl Filling {
    /// Begins to, in the sight of the core, which does not end before those who read along.
    pub(super) fn start(self, body: UpstreamBody, first: Vec<u8>) {
        let Filling { worker, fill, key, head, into } = self;
        let place = worker.fillings.borrow_mut().insert(Arc::clone(fill.flight()));
        let pieces = Some(Vec::new());
        let mut bringing =
            Bringing { worker, fill, key, head, pieces, writer: None, total: 0, arriving: 0 };
        let task = async move {
            let mut body = body;
            let settled = bringing.bring(&mut body, first, into).await;
            bringing.worker.fillings.borrow_mut().remove(place);
            bringing.worker.shared.give_arriving(bringing.arriving);
            bringing.fill.settle(settled);
        };
        runtime::spawn(task).detach();
    }
}

/// A body on its way.
struct Bringing {
    worker: Rc<Worker>,
    fill: Fill,
    key: Key,
    head: Arc<Head>,
    /// What is to be stored, until the body turns out too large for memory.
    pieces: Option<Vec<Piece>>,
    /// It goes to the disk from then on.
    writer: Option<Writer>,
    /// Bytes of the body so far ...
    total: u64,
    /// ... and those that count as arriving.
    arriving: u64,
}

impl Bringing {
    async fn bring(&mut self, body: &mut UpstreamBody, first: Vec<u8>, into: Into) -> Settled {
        if let Into::Rest { before, .. } = &into {
            before.iter().for_each(|piece| self.push(Arc::clone(piece), false));
        }
        let begun = self.total;
        if !first.is_empty() {
            self.push(Piece::from(first), true);
        }
        if let Err(fault) = self.pull(body).await {
            if fault != Fault::Abandoned {
                self.worker.counters.upstream_errors.add(1);
                self.keep_what_came(fault, &into);
            }
            return Settled::Failed(fault);
        }
        let came = self.total - begun;
        match into {
            Into::Whole => {}
            // The response went to its readers as it was; what it is a part of is not certain.
            Into::Part(part) if came != part.range.bytes() => return Settled::Uncacheable,
            Into::Part(part) => return self.store_part(part),
            Into::Rest { gap_bytes, .. } if came != gap_bytes => {
                self.worker.shared.remove(&self.key);
                return Settled::Failed(Fault::Malformed);
            }
            Into::Rest { after, .. } => {
                after.into_iter().for_each(|piece| self.push(piece, false));
            }
        }
        let Some(pieces) = self.pieces.take() else { return self.end_on_disk() };
        let stored = Stored::new(Arc::clone(&self.head), joined(pieces));
        let stored = Arc::new(stored);
        let (shared, watch) = (&self.worker.shared, self.fill.flight().watch());
        shared.insert(watch, self.key, Entry::Response(Arc::clone(&stored)));
        Settled::Stored(stored)
    }

    /// The last of a body that memory did not take has gone to the disk, if it did.
    fn end_on_disk(&mut self) -> Settled {
        let Some(writer) = self.writer.take() else { return Settled::Uncacheable };
        let (shared, watch) = (&self.worker.shared, self.fill.flight().watch());
        let away = Away { key: self.key, object: writer.object() };
        if !disk::finish(watch, writer, &[]) {
            return Settled::Uncacheable;
        }
        let stored = Arc::new(Stored::away(Arc::clone(&self.head), self.total, away));
        shared.insert_read(watch, self.key, Entry::Response(Arc::clone(&stored)));
        Settled::Stored(stored)
    }

    async fn pull(&mut self, body: &mut UpstreamBody) -> Result<(), Fault> {
        loop {
            let window = self.worker.limits().limits.stream_window_bytes;
            let is_read = std::future::poll_fn(|cx| self.fill.poll_room(cx, window)).await;
            if !is_read && self.writer.is_none() {
                // Nobody reads what cannot be stored.
                return Err(Fault::Abandoned);
            }
            let mut parts = Parts::default();
            let pulled = body.pull(&self.worker.upstreams, &mut |part| parts.add(part)).await;
            if let Some(piece) = parts.piece() {
                self.push(piece, true);
            }
            if pulled? {
                return Ok(());
            }
        }
    }

    /// `new`: it takes memory that nobody has accounted for yet.
    fn push(&mut self, piece: Piece, new: bool) {
        let shared = &self.worker.shared;
        let bytes = piece.len() as u64;
        self.total += bytes;
        let fits = self.total <= shared.memory_object_bytes_max();
        if let Some(pieces) = &mut self.pieces {
            if fits && (!new || shared.take_arriving(bytes)) {
                self.arriving += if new { bytes } else { 0 };
                pieces.push(Arc::clone(&piece));
            } else {
                self.leave_memory(&piece);
            }
        } else if let Some(writer) = &mut self.writer
            && let Err(refused) = writer.write(&piece)
        {
            self.writer = None;
            self.refused(refused);
        }
        self.fill.push(piece);
    }

    /// What came so far goes to the disk, if it can, and so will the rest; else it is not stored.
    fn leave_memory(&mut self, piece: &Piece) {
        let before = self.pieces.take().unwrap_or_default();
        self.fill.bound();
        if self.head.part.is_none() {
            self.writer = self.worker.shared.disk_writer(self.key, &self.head);
        }
        let Some(writer) = &mut self.writer else { return self.is_too_large() };
        let mut all = before.iter().chain([piece]);
        if let Err(refused) = all.try_for_each(|piece| writer.write(piece)) {
            self.writer = None;
            self.refused(refused);
        }
    }

    /// The disk does not take it: what is true of it now only, the next one need not suffer from.
    fn refused(&self, refused: Refused) {
        if refused == Refused::TooLarge {
            self.is_too_large();
        }
    }

    /// Nobody need wait for the next one of these.
    fn is_too_large(&self) {
        let shared = &self.worker.shared;
        if self.total > shared.memory_object_bytes_max() && self.head.part.is_none() {
            let memory = self.worker.limits().limits.uncacheable_memory;
            let watch = self.fill.flight().watch();
            shared.remember_uncacheable(watch, self.key, time::wall_ms(), memory);
        }
    }

    fn store_part(&mut self, part: ContentRange) -> Settled {
        let Some(pieces) = self.pieces.take() else { return Settled::Uncacheable };
        let pieces = joined(pieces);
        let partial = Partial::new(Arc::clone(&self.head), part, pieces);
        self.worker.shared.insert_part(self.fill.flight().watch(), self.key, partial)
    }

    /// An incomplete response is a part (RFC 9111, 3.3), worth keeping when its rest can be asked
    /// for by a strong validator.
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
        self.worker.shared.insert_part(self.fill.flight().watch(), self.key, partial);
    }
}

/// What came at once: mostly one part, which is copied once.
#[derive(Default)]
struct Parts {
    first: Option<Piece>,
    /// If there are several, all of them.
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

/// Small pieces cost more than their copy: those that follow one another become one.
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

/// A response that is streamed to all who want it while it is stored.
pub(super) struct Streaming {
    pub(super) reader: Reader,
    pub(super) head: Arc<Head>,
}
