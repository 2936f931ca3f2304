//! Heads of stored responses in the form of HTTP/2 or of HTTP/3, encoded once.
//!
//! What: a table of fixed size for a core, by the address of the stored head. Two heads with the
//! same place displace each other. Why: encoding the same twelve fields for each hit costs more
//! than all else that these versions add to it.

use std::sync::Arc;

use crate::stored::{Stored, Use};

/// Heads that are kept: a power of two.
const HEADS: usize = 256;
/// Longer ones are encoded each time.
const HEAD_BYTES_MAX: usize = 1024;

/// A head as HTTP/1 writes it, and its encoded fields.
type Kept = (Arc<[u8]>, Box<[u8]>);

/// Appends a field in the form of a version.
type Encode = fn(name: &[u8], value: &[u8], out: &mut Vec<u8>);

/// The heads that a core has used last in one version.
pub struct EncodedHeads {
    encode: Encode,
    kept: Box<[Option<Kept>]>,
    /// The head of the current response.
    head: Vec<u8>,
    lines: Vec<u8>,
}

impl std::fmt::Debug for EncodedHeads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EncodedHeads").finish_non_exhaustive()
    }
}

impl EncodedHeads {
    /// An empty table.
    pub fn new(encode: Encode) -> EncodedHeads {
        let kept = vec![None; HEADS].into();
        EncodedHeads { encode, kept, head: Vec::new(), lines: Vec::new() }
    }

    /// The encoded head of a stored response in this use.
    pub fn encode(&mut self, stored: &Stored, use_: &Use<'_>) -> &[u8] {
        let EncodedHeads { encode, kept, head, lines } = self;
        head.clear();
        let block = stored.block();
        // Blocks are on the heap, at multiples of 16.
        let place = &mut kept[(block.as_ptr() as usize >> 4) % HEADS];
        match place {
            Some((known, encoded)) if Arc::ptr_eq(known, block) => head.extend_from_slice(encoded),
            _ => {
                encode(b":status", status_in(block), head);
                let status_line = memchr::memchr(b'\n', block).map_or(0, |at| at + 1);
                append(*encode, &block[status_line..], head);
                if block.len() <= HEAD_BYTES_MAX {
                    *place = Some((Arc::clone(block), head.as_slice().into()));
                }
            }
        }
        lines.clear();
        stored.append_own_fields(lines, use_);
        append(*encode, lines, head);
        head
    }
}

/// The three digits of the status in a head that was written for HTTP/1.
pub fn status_in(head: &[u8]) -> &[u8] {
    let digits = b"HTTP/1.1 ".len();
    &head[digits..digits + 3]
}

/// The fields in lines that were written for HTTP/1.
pub fn fields_in(lines: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    lines.split(|byte| *byte == b'\n').filter_map(|line| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = memchr::memchr(b':', line)?;
        Some((&line[..colon], line[colon + 1..].trim_ascii()))
    })
}

fn append(encode: Encode, lines: &[u8], head: &mut Vec<u8>) {
    for (name, value) in fields_in(lines) {
        encode(name, value, head);
    }
}
