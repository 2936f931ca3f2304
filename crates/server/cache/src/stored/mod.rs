//! A stored response: its head prepared for sending, its body, and the data for the caching rules.
//!
//! A stored response is immutable. An update by a 304 makes a new stored response that shares the
//! body with the old stored response.
//!
//! The data that a hit reads is in [`Stored`] itself, next to the reference count that a hit
//! changes anyway. The rest of the head is for validation, ranges, purges and the log, and stays
//! out of the CPU caches (docs/layout.md). The store has one [`Entry`] under each key.

mod entry;
mod head;
mod resource;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use caching::Aging;
use http1::Sink;
use store::{Generation, Mark};

pub use entry::{Entry, Varies, VarySet};
pub use head::{
    Connection, Fetched, Framing, Head, Use, Wire, has_length, is_cookie_field, varies_of,
    write_date,
};
pub use resource::{Resource, is_tag_field};

use crate::forms::{Away, Beside};

/// A piece of a body.
pub type Piece = Arc<[u8]>;

/// Bytes of a piece of a body besides its content.
pub const PIECE_STRUCTURE_BYTES: usize = size_of::<Piece>() + 16;

/// The pieces of a body. A single piece, as in every small body, needs no list.
#[derive(Clone, Debug)]
pub enum Pieces {
    /// The whole body.
    One(Piece),
    /// None or several.
    Many(Box<[Piece]>),
}

impl From<Piece> for Pieces {
    fn from(piece: Piece) -> Pieces {
        Pieces::One(piece)
    }
}

impl From<Vec<Piece>> for Pieces {
    fn from(mut pieces: Vec<Piece>) -> Pieces {
        match pieces.pop() {
            Some(piece) if pieces.is_empty() => Pieces::One(piece),
            last => Pieces::Many(pieces.into_iter().chain(last).collect()),
        }
    }
}

impl Deref for Pieces {
    type Target = [Piece];

    #[inline]
    fn deref(&self) -> &[Piece] {
        match self {
            Pieces::One(piece) => std::slice::from_ref(piece),
            Pieces::Many(pieces) => pieces,
        }
    }
}

/// A complete stored response. The order of its fields matters: the fields that a hit reads come
/// first, after the counts of the `Arc`.
#[derive(Debug)]
#[repr(C)]
pub struct Stored {
    /// No purge up to this generation concerns the response.
    pub checked: AtomicU64,
    front: Front,
    /// The body's length.
    pub body_bytes: u64,
    /// The body, in pieces; empty if the body is away.
    pub pieces: Pieces,
    /// Data that few responses have.
    pub(crate) beside: Option<Box<Beside<Stored>>>,
    /// Its head.
    pub head: Arc<Head>,
}

/// Copies of the fields of the head that a hit reads.
#[derive(Clone, Debug)]
struct Front {
    block: Arc<[u8]>,
    fresh_until_ms: u64,
    aging: Aging,
    status: u16,
    varies: bool,
    /// The response sets a cookie: whether a client gets the response depends on the request's
    /// route.
    sets_cookie: bool,
}

impl Front {
    fn of(head: &Head) -> Front {
        Front {
            block: Arc::clone(&head.block),
            fresh_until_ms: head.meta.fresh_until_ms(),
            aging: head.meta.freshness.aging(),
            status: head.status,
            varies: head.varies.is_some(),
            sets_cookie: head.sets_cookie,
        }
    }
}

impl Stored {
    /// A response whose body is in memory.
    pub fn new(head: Arc<Head>, pieces: impl Into<Pieces>) -> Stored {
        let pieces = pieces.into();
        let body_bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        let checked = head.resource.began();
        let beside = head.beside();
        Stored::with(head, pieces, beside, body_bytes, checked)
    }

    /// A response whose body is on the disk.
    pub fn away(head: Arc<Head>, body_bytes: u64, away: Away) -> Stored {
        let checked = head.resource.began();
        let none = Pieces::Many(Box::default());
        Stored::with(head, none, Some(Box::new(Beside::Away(away))), body_bytes, checked)
    }

    pub(crate) fn with(
        head: Arc<Head>,
        pieces: Pieces,
        beside: Option<Box<Beside<Stored>>>,
        body_bytes: u64,
        checked: Generation,
    ) -> Stored {
        let front = Front::of(&head);
        debug_assert!(head.part.is_none(), "a stored response is whole");
        debug_assert!(
            matches!(beside.as_deref(), Some(Beside::Away(_)))
                || pieces.iter().map(|piece| piece.len() as u64).sum::<u64>() == body_bytes,
            "a body that is not away is in its pieces"
        );
        Stored { checked: AtomicU64::new(checked), front, body_bytes, pieces, beside, head }
    }

    /// Its status.
    #[inline]
    pub fn status(&self) -> u16 {
        self.front.status
    }

    /// [`caching::StoredMeta::is_fresh`] of its head.
    #[inline]
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        now_ms < self.front.fresh_until_ms
    }

    /// Whether the response answers requests regardless of their fields.
    #[inline]
    pub fn is_for_all(&self) -> bool {
        !self.front.varies
    }

    /// Whether it sets a cookie.
    #[inline]
    pub fn sets_cookie(&self) -> bool {
        self.front.sets_cookie
    }

    /// The bytes that the store accounts for this response.
    pub fn accounted_bytes(&self) -> u64 {
        let pieces = self.pieces.len() * PIECE_STRUCTURE_BYTES;
        let (body, forms) = (self.bytes_in_memory(), self.forms_bytes());
        self.head.accounted_bytes() + body + pieces as u64 + forms
    }

    /// The same body under another head: after a 304 (RFC 9111, 4.3.4) or a HEAD (4.3.5).
    pub fn under(&self, head: Head) -> Stored {
        // A head without the mark of a purge must be judged by that purge again.
        let is_as_checked =
            head.purged == self.head.purged && head.resource.began() == self.head.resource.began();
        let checked = match is_as_checked {
            true => self.checked.load(Ordering::Relaxed),
            false => head.resource.began(),
        };
        self.with_head(head, checked)
    }

    /// The same response, stale since a soft purge. No other purge up to `checked` concerns it.
    pub fn stale_from(&self, mark: Mark, checked: Generation) -> Stored {
        self.with_head(self.head.purged_softly(mark), checked)
    }

    fn with_head(&self, head: Head, checked: Generation) -> Stored {
        let (pieces, beside) = (self.pieces.clone(), self.beside_under(&head));
        Stored::with(Arc::new(head), pieces, beside, self.body_bytes, checked)
    }

    /// Writes the head for a response from the store.
    #[inline(always)]
    pub fn write_head(&self, out: &mut impl Sink, use_: &Use<'_>) {
        out.prepared(self.status(), self.block());
        self.write_own_fields(out, use_);
    }

    /// The status line and the fields that are the same in each use.
    #[inline]
    pub fn block(&self) -> &Arc<[u8]> {
        &self.front.block
    }

    /// Writes the fields that differ in each use.
    #[inline]
    pub fn write_own_fields(&self, out: &mut impl Sink, use_: &Use<'_>) {
        let Front { status, aging, .. } = &self.front;
        if has_length(*status) {
            out.content_length(self.body_bytes);
        }
        use_.write(out, *aging);
    }
}

#[cfg(test)]
mod tests {
    use caching::{Exchange, FieldSource, Policy, Response, StoredMeta};

    use super::*;
    use crate::realm::Realm;
    use config::Role;
    use http1::Scheme;

    fn meta(fields: &[(&[u8], &[u8])]) -> StoredMeta {
        let response = Response { status: 200, fields };
        let exchange = Exchange { request_ms: 1_000_000, response_ms: 1_000_000 };
        StoredMeta::of(&response, exchange, &Policy::SHARED)
    }

    fn head(fields: &[(&[u8], &[u8])]) -> Head {
        let realm = Realm { role: Role::Reverse, scheme: Scheme::Http };
        let uri = crate::key::StoredUri::new(realm, b"h", b"/");
        let resource = Resource::new(uri, fields.iter().copied(), 0);
        let (via, lines) = (b"Via: 1.1 plimsoll\r\n", fields.iter().copied());
        Head::new(200, via, lines, meta(fields), resource)
    }

    #[test]
    fn the_head_keeps_fields_but_not_framing_and_age() {
        let fields: &[(&[u8], &[u8])] = &[
            (b"Content-Type", b"text/plain"),
            (b"Content-Length", b"999"),
            (b"Age", b"7"),
            (b"Cache-Control", b"max-age=60"),
            (b"Date", b"Thu, 01 Jan 1970 00:16:40 GMT"),
        ];
        let head = head(fields);
        assert_eq!(head.content_type(), b"text/plain");
        let stored = Stored::new(Arc::new(head), vec![Arc::from(&b"hello"[..])]);
        let mut out = Vec::new();
        let use_ = Use {
            cache_status: b"plimsoll; hit",
            now_ms: Some(1_003_000),
            connection: Connection::Keep,
            own_lines: b"",
        };
        stored.write_head(&mut out, &use_);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nCache-Control: max-age=60\r\n\
             Date: Thu, 01 Jan 1970 00:16:40 GMT\r\nVia: 1.1 plimsoll\r\nContent-Length: 5\r\n\
             Cache-Status: plimsoll; hit\r\nAge: 10\r\n"
        );
        let mut out = Vec::new();
        stored.head.write_not_modified(&mut out, &use_);
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("HTTP/1.1 304 Not Modified\r\nCache-Control: "), "{text}");
        assert!(!text.contains("Content-"), "{text}");
    }

    /// A hit reads the two cache lines after the counts of the `Arc`; all other fields come after
    /// these lines. Any field added before `beside` adds to the cost of every requested object.
    #[test]
    fn the_fields_a_hit_reads_are_adjacent() {
        const COUNTS: usize = 2 * size_of::<usize>();
        assert_eq!(COUNTS + std::mem::offset_of!(Stored, checked), 16);
        assert_eq!(COUNTS + std::mem::offset_of!(Stored, pieces) + size_of::<Pieces>(), 104);
        assert!(std::mem::offset_of!(Stored, beside) >= std::mem::offset_of!(Stored, pieces));
        assert!(std::mem::offset_of!(Stored, head) > std::mem::offset_of!(Stored, beside));
        assert_eq!(COUNTS + size_of::<Stored>(), 120);
    }

    #[test]
    fn the_front_equals_the_head() {
        let lines: &[(&[u8], &[u8])] = &[(b"Cache-Control", b"max-age=60"), (b"Vary", b"A")];
        let plain = Arc::new(head(lines));
        let stored = Stored::new(Arc::clone(&plain), vec![Arc::from(&b"a"[..])]);
        assert!(stored.is_for_all() && matches!(stored.pieces, Pieces::One(_)));
        for now_ms in [1_000_000, 1_059_999, 1_060_000, 2_000_000] {
            assert_eq!(stored.is_fresh(now_ms), plain.meta.is_fresh(now_ms), "{now_ms}");
        }
        assert_eq!(stored.status(), plain.status);
        // An update makes a new front with the new head.
        let stale = stored.under(plain.with_meta(plain.meta.made_stale()));
        assert!(!stale.is_fresh(1_000_000) && *stale.pieces == *stored.pieces);
        let (mut scratch, request) = (http1::Scratch::new(), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        let request = http1::parse_request(request, &mut scratch, &http1::Limits::default());
        let mut varying = head(lines);
        let varies = varies_of(&caching::vary(&varying), &Wire(request.unwrap().unwrap().fields));
        varying.varies = varies;
        let varied = Stored::new(Arc::new(varying), Vec::new());
        assert!(!varied.is_for_all() && varied.pieces.is_empty());
        let two = Pieces::from(vec![Piece::from(&b"a"[..]), Piece::from(&b"b"[..])]);
        assert_eq!(two.concat(), b"ab");
    }

    #[test]
    fn a_response_without_date_gets_one() {
        let fields: &[(&[u8], &[u8])] = &[(b"Cache-Control", b"max-age=60")];
        let head = head(fields);
        assert_eq!(head.first("date"), Some(&b"Thu, 01 Jan 1970 00:16:40 GMT"[..]));
    }
}
