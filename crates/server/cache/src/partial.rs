//! Parts of a representation, stored until the rest arrives (RFC 9111, 3.3 and 3.4).
//!
//! The parts are in order and do not touch. They share one head: that of the whole, without its
//! `Content-Range`. A partial response is immutable; another part makes a new one that shares the
//! pieces. Parts that cover the whole become a [`Stored`].

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use caching::ContentRange;
use caching::range::ByteRange;
use store::{Generation, Mark};

use crate::stored::{Head, PIECE_STRUCTURE_BYTES, Piece, Stored};

/// Maximum number of parts; beyond it the smallest is dropped.
const PARTS_MAX: usize = 32;

/// One part.
#[derive(Clone, Debug)]
struct Part {
    range: ByteRange,
    pieces: Vec<Piece>,
}

/// The stored parts of a representation.
#[derive(Debug)]
pub struct Partial {
    /// The head of the whole.
    pub head: Arc<Head>,
    /// Bytes of the whole.
    pub complete_bytes: u64,
    /// No purge up to this generation concerns it.
    pub checked: AtomicU64,
    parts: Vec<Part>,
}

impl Partial {
    /// A single part. `pieces` must be as long as its range, or empty: then it only names the part.
    pub fn new(head: Arc<Head>, of: ContentRange, pieces: Vec<Piece>) -> Partial {
        let length: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        assert!(pieces.is_empty() || length == of.range.bytes(), "they are as long as their range");
        assert!(of.range.last < of.complete_bytes, "a part ends within the whole");
        let parts = vec![Part { range: of.range, pieces }];
        let checked = AtomicU64::new(head.resource.began());
        Partial { head, complete_bytes: of.complete_bytes, checked, parts }
    }

    /// Whether the parts are of the representation with this head (RFC 9111, 3.4).
    pub fn is_of(&self, head: &Head) -> bool {
        caching::may_combine(self.head.named(), head.named())
    }

    /// The stored ranges, in order, none touching another.
    pub fn held(&self) -> Vec<ByteRange> {
        self.parts.iter().map(|part| part.range).collect()
    }

    /// Bytes of stored content.
    pub fn held_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.range.bytes()).sum()
    }

    /// The bytes that the store accounts for it.
    pub fn accounted_bytes(&self) -> u64 {
        let pieces: usize = self.parts.iter().map(|part| part.pieces.len()).sum();
        let structure = pieces * PIECE_STRUCTURE_BYTES + self.parts.len() * size_of::<Part>();
        self.head.accounted_bytes() + self.held_bytes() + structure as u64
    }

    /// The bytes of a stored range, as slices.
    pub fn slices(&self, range: ByteRange) -> Vec<&[u8]> {
        let part = self.part_with(range);
        slices(&part.pieces, range.first - part.range.first, range.bytes())
    }

    fn part_with(&self, range: ByteRange) -> &Part {
        let held = |part: &&Part| part.range.first <= range.first && range.last <= part.range.last;
        self.parts.iter().find(held).expect("the range is stored")
    }

    /// The pieces from `from` up to `to`, all of which must be stored.
    pub fn pieces(&self, from: u64, to: u64) -> Vec<Piece> {
        if from == to {
            return Vec::new();
        }
        let part = self.part_with(ByteRange { first: from, last: to - 1 });
        cut(&part.pieces, from - part.range.first, to - from)
    }

    /// The same parts under another head.
    pub fn under(&self, head: Head) -> Partial {
        let checked = head.resource.began();
        self.with_head(head, checked)
    }

    /// The same parts, stale since a soft purge. No other purge up to `checked` concerns them.
    pub fn stale_from(&self, mark: Mark, checked: Generation) -> Partial {
        self.with_head(self.head.purged_softly(mark), checked)
    }

    fn with_head(&self, head: Head, checked: Generation) -> Partial {
        let complete_bytes = self.complete_bytes;
        let (checked, parts) = (AtomicU64::new(checked), self.parts.clone());
        Partial { head: Arc::new(head), complete_bytes, checked, parts }
    }

    /// Combines these parts with those of `newer`, whose fields and bytes win. The caller must know
    /// that they may be combined.
    pub fn with(&self, newer: &Partial) -> Partial {
        let mut parts = self.parts.clone();
        for new in &newer.parts {
            parts = with(parts, new.clone());
        }
        while parts.len() > PARTS_MAX {
            let smallest = (0..parts.len()).min_by_key(|at| parts[*at].range.bytes());
            parts.remove(smallest.expect("there are some"));
        }
        debug_assert_eq!(self.complete_bytes, newer.complete_bytes, "parts of one whole");
        debug_assert!(parts.windows(2).all(|two| two[0].range.last + 1 < two[1].range.first));
        let head = Arc::new(self.head.with_newer(&newer.head));
        let checked = AtomicU64::new(head.resource.began());
        Partial { head, complete_bytes: newer.complete_bytes, checked, parts }
    }

    /// The whole, if nothing is missing.
    pub fn whole(&self) -> Option<Stored> {
        let [part] = &self.parts[..] else { return None };
        let complete = part.range.bytes() == self.complete_bytes;
        complete.then(|| Stored::new(Arc::new(self.head.of_whole()), part.pieces.clone()))
    }
}

/// Adds a part: its bytes replace others, and neighbours are joined.
fn with(parts: Vec<Part>, mut new: Part) -> Vec<Part> {
    let mut out = Vec::with_capacity(parts.len() + 1);
    let mut after = Vec::new();
    for part in parts {
        if part.range.last < new.range.first.saturating_sub(1) {
            out.push(part);
        } else if part.range.first > new.range.last.saturating_add(1) {
            after.push(part);
        } else {
            new = joined(&part, new);
        }
    }
    out.push(new);
    out.append(&mut after);
    out
}

/// Joins two parts that overlap or touch.
fn joined(old: &Part, new: Part) -> Part {
    let first = old.range.first.min(new.range.first);
    let last = old.range.last.max(new.range.last);
    let mut pieces = cut(&old.pieces, 0, new.range.first - first);
    pieces.extend(new.pieces);
    let kept = last - new.range.last;
    pieces.extend(cut(&old.pieces, old.range.bytes() - kept, kept));
    debug_assert_eq!(pieces.iter().map(|piece| piece.len() as u64).sum::<u64>(), last - first + 1);
    Part { range: ByteRange { first, last }, pieces }
}

/// The bytes of a body from `skip` on, `take` of them, as slices of its pieces.
pub fn slices(pieces: &[Piece], skip: u64, take: u64) -> Vec<&[u8]> {
    spans(pieces, skip, take).map(|(piece, span)| &piece[span]).collect()
}

/// The same as pieces; whole pieces are shared.
fn cut(pieces: &[Piece], skip: u64, take: u64) -> Vec<Piece> {
    let shared = |(piece, span): (&Piece, Range<usize>)| match span.len() == piece.len() {
        true => Arc::clone(piece),
        false => Piece::from(&piece[span]),
    };
    spans(pieces, skip, take).map(shared).collect()
}

/// The pieces that have these bytes, each with the part of it that is meant.
fn spans(pieces: &[Piece], skip: u64, take: u64) -> impl Iterator<Item = (&Piece, Range<usize>)> {
    let (mut skip, mut take) = (size(skip), size(take));
    let span = move |piece: &Piece| {
        let from = skip.min(piece.len());
        let to = piece.len().min(from.saturating_add(take));
        skip -= from;
        take -= to - from;
        from..to
    };
    pieces.iter().zip(pieces.iter().map(span)).filter(|(_, span)| !span.is_empty())
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a stored body fits in memory")
}

#[cfg(test)]
mod tests {
    use caching::{Exchange, Policy, Response, StoredMeta};
    use proptest::prelude::*;

    use super::*;
    use crate::realm::Realm;
    use crate::stored::Resource;
    use config::Role;
    use http1::Scheme;

    const COMPLETE_BYTES: u64 = 40;

    fn head() -> Arc<Head> {
        let fields: &[(&[u8], &[u8])] = &[];
        let exchange = Exchange { request_ms: 0, response_ms: 0 };
        let meta = StoredMeta::of(&Response { status: 200, fields }, exchange, &Policy::SHARED);
        let realm = Realm { role: Role::Reverse, scheme: Scheme::Http };
        let uri = crate::key::StoredUri::new(realm, b"h", b"/");
        let resource = Resource::new(uri, fields.iter().copied(), 0);
        let lines = fields.iter().copied();
        Arc::new(Head::new(200, b"", lines, meta, resource))
    }

    /// A part whose bytes encode their offset and generation.
    fn part(head: &Arc<Head>, first: u64, last: u64, cut: u64, age: u8) -> Partial {
        let bytes: Vec<u8> = (first..=last).map(|at| at as u8 + age * 50).collect();
        let (a, b) = bytes.split_at(size(cut.min(bytes.len() as u64)));
        let pieces = [a, b].into_iter().filter(|piece| !piece.is_empty()).map(Piece::from);
        let range = ByteRange { first, last };
        let of = ContentRange { range, complete_bytes: COMPLETE_BYTES };
        Partial::new(Arc::clone(head), of, pieces.collect())
    }

    proptest! {
        /// Compared with an array that each part is written into.
        #[test]
        fn parts_are_put_together_as_an_array_would_be(
            writes in proptest::collection::vec(
                (0..COMPLETE_BYTES, 0..COMPLETE_BYTES, 0u64..40), 1..6,
            ),
        ) {
            let head = head();
            let mut plain = vec![None; COMPLETE_BYTES as usize];
            let mut partial: Option<Partial> = None;
            for (age, (a, b, cut)) in writes.into_iter().enumerate() {
                let (first, last, age) = (a.min(b), a.max(b), age as u8 % 4);
                for at in first..=last {
                    plain[at as usize] = Some(at as u8 + age * 50);
                }
                let new = part(&head, first, last, cut, age);
                partial = Some(match partial {
                    Some(old) => old.with(&new),
                    None => new,
                });
            }
            let partial = partial.expect("there was a write");
            let mut got = vec![None; COMPLETE_BYTES as usize];
            for range in partial.held() {
                let bytes = partial.slices(range).concat();
                prop_assert_eq!(bytes.len() as u64, range.bytes());
                let pieces = partial.pieces(range.first, range.last + 1).concat();
                prop_assert_eq!(&pieces, &bytes);
                for (at, byte) in (range.first..).zip(bytes) {
                    got[at as usize] = Some(byte);
                }
            }
            prop_assert!(partial.held().windows(2).all(|two| two[0].last + 1 < two[1].first));
            let whole = partial.whole().map(|stored| stored.pieces.concat());
            prop_assert_eq!(whole.is_some(), plain.iter().all(Option::is_some));
            prop_assert_eq!(got, plain);
        }
    }

    #[test]
    fn parts_do_not_grow_without_bound() {
        let head = head();
        let wide = |first| {
            let range = ByteRange { first, last: first };
            let of = ContentRange { range, complete_bytes: 1000 };
            Partial::new(Arc::clone(&head), of, vec![Piece::from(&b"x"[..])])
        };
        let mut partial = wide(0);
        for at in 1..100 {
            partial = partial.with(&wide(at * 3));
        }
        assert_eq!(partial.held().len(), PARTS_MAX);
    }
}
