//! Heads of stored responses in the form of HTTP/2 or of HTTP/3, encoded once.
//!
//! What: a table of fixed size for a core, by the address of the stored head. Two heads with the
//! same place displace each other. The fields that differ in each use are encoded again only if
//! they have changed, which is once a second for `Age`. Why: encoding the same fields for each hit
//! costs more than all else that these versions add to it.

use std::sync::Arc;

use cache::stored::{Stored, Use};
use http1::Sink;

/// Heads that are kept: a power of two.
const HEADS: usize = 256;
/// Longer heads are encoded each time.
const HEAD_BYTES_MAX: usize = 1024;

const _: () = assert!(HEADS.is_power_of_two());

/// An encoded head.
#[derive(Clone)]
struct Kept {
    /// The head as HTTP/1 writes it.
    block: Arc<[u8]>,
    /// The fields of its last use, as lines.
    own_lines: Vec<u8>,
    /// The fields of `block`, and after them the fields of `own_lines`.
    encoded: Vec<u8>,
    /// Where the fields of `own_lines` begin.
    own_at: usize,
}

/// Appends a field in the form of a version.
type Encode = fn(name: &[u8], value: &[u8], out: &mut Vec<u8>);

/// The heads that a core has used last in one version.
pub(crate) struct EncodedHeads {
    encode: Encode,
    kept: Box<[Option<Kept>]>,
    own_lines: Vec<u8>,
    /// A head that is not kept.
    long: Vec<u8>,
}

impl EncodedHeads {
    /// An empty table.
    pub(crate) fn new(encode: Encode) -> EncodedHeads {
        let kept = vec![None; HEADS].into();
        EncodedHeads { encode, kept, own_lines: Vec::new(), long: Vec::new() }
    }

    /// The encoded head of a stored response in this use.
    pub(crate) fn encode(&mut self, stored: &Stored, use_: &Use<'_>) -> &[u8] {
        let EncodedHeads { encode, kept, own_lines, long } = self;
        let (encode, block) = (*encode, stored.block());
        own_lines.clear();
        stored.write_own_fields(own_lines, use_);
        if block.len() > HEAD_BYTES_MAX {
            long.clear();
            Encoder { encode, out: long }.prepared(stored.status(), block);
            Encoder { encode, out: long }.lines(own_lines);
            return long;
        }
        // Blocks are on the heap, at multiples of 16.
        let place = &mut kept[(block.as_ptr() as usize >> 4) % HEADS];
        if !place.as_ref().is_some_and(|kept| Arc::ptr_eq(&kept.block, block)) {
            let mut encoded = Vec::new();
            Encoder { encode, out: &mut encoded }.prepared(stored.status(), block);
            let (block, own_at) = (Arc::clone(block), encoded.len());
            *place = Some(Kept { block, own_lines: Vec::new(), encoded, own_at });
        }
        let kept = place.as_mut().expect("the head was put there if it was not there");
        debug_assert!(kept.own_at <= kept.encoded.len());
        if kept.own_lines != *own_lines {
            kept.own_lines.clone_from(own_lines);
            kept.encoded.truncate(kept.own_at);
            Encoder { encode, out: &mut kept.encoded }.lines(own_lines);
        }
        &kept.encoded
    }
}

/// The sink of a head that is encoded at once, without a dynamic table.
struct Encoder<'e> {
    encode: Encode,
    out: &'e mut Vec<u8>,
}

impl Sink for Encoder<'_> {
    fn status(&mut self, status: u16) {
        let digits = [status / 100, status / 10 % 10, status % 10];
        self.field(b":status", &digits.map(|digit| b'0' + digit as u8));
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        (self.encode)(name, value, self.out);
    }

    fn field_of(&mut self, name: &[u8], append: impl FnOnce(&mut Vec<u8>)) {
        let mut value = Vec::new();
        append(&mut value);
        self.field(name, &value);
    }
}
