//! The bodies of 206 responses, cut out of stored content (RFC 9110, 15.3.7).
//!
//! Nothing is copied except the small headers of the parts of a multipart body: content is sent
//! from where it is stored.

use caching::ContentRange;
use caching::range::ByteRange;
use http1::Sink;

use crate::partial::{Partial, slices};
use crate::stored::{Framing, Head, Stored, Use};

/// Stored content.
#[derive(Clone, Copy, Debug)]
pub enum Content<'s> {
    /// A whole response.
    Whole(&'s Stored),
    /// Parts of a response.
    Part(&'s Partial),
}

impl<'s> Content<'s> {
    fn slices(self, range: ByteRange) -> Vec<&'s [u8]> {
        match self {
            Content::Whole(stored) => slices(&stored.pieces, range.first, range.bytes()),
            Content::Part(partial) => partial.slices(range),
        }
    }

    fn complete_bytes(self) -> u64 {
        match self {
            Content::Whole(stored) => stored.body_bytes,
            Content::Part(partial) => partial.complete_bytes,
        }
    }

    /// Its head.
    pub fn head(self) -> &'s Head {
        match self {
            Content::Whole(stored) => &stored.head,
            Content::Part(partial) => &partial.head,
        }
    }
}

/// A 206 that is ready to be sent.
#[derive(Debug)]
pub struct Parts<'s> {
    content: Content<'s>,
    ranges: Vec<ByteRange>,
    /// The bytes before each part and after the last, in a multipart body.
    frames: Vec<Vec<u8>>,
    boundary: String,
}

impl<'s> Parts<'s> {
    /// `ranges` must be stored; `boundary` is a token that no one could have put into the content.
    pub fn new(content: Content<'s>, ranges: Vec<ByteRange>, boundary: String) -> Parts<'s> {
        let mut frames = Vec::new();
        if ranges.len() > 1 {
            let content_type = content.head().content_type();
            for range in &ranges {
                let mut frame = format!("\r\n--{boundary}\r\n").into_bytes();
                if !content_type.is_empty() {
                    frame.extend_from_slice(b"Content-Type: ");
                    frame.extend_from_slice(content_type);
                    frame.extend_from_slice(b"\r\n");
                }
                let place = range.content_range(content.complete_bytes());
                frame.extend_from_slice(format!("Content-Range: {place}\r\n\r\n").as_bytes());
                frames.push(frame);
            }
            frames.push(format!("\r\n--{boundary}--\r\n").into_bytes());
        }
        debug_assert!(!ranges.is_empty(), "a 206 has a part");
        debug_assert!(frames.is_empty() || frames.len() == ranges.len() + 1);
        Parts { content, ranges, frames, boundary }
    }

    /// Bytes of the body.
    fn body_bytes(&self) -> u64 {
        let frames: usize = self.frames.iter().map(Vec::len).sum();
        let content: u64 = self.ranges.iter().map(|range| range.bytes()).sum();
        frames as u64 + content
    }

    /// Writes the head.
    pub fn write_head(&self, out: &mut impl Sink, use_: &Use<'_>) {
        let head = self.content.head();
        match self.ranges[..] {
            [range] => {
                let complete_bytes = self.content.complete_bytes();
                let part = ContentRange { range, complete_bytes };
                head.write_part(out, part, Framing::Length(range.bytes()), use_);
            }
            _ => head.write_parts(out, &self.boundary, self.body_bytes(), use_),
        }
    }

    /// The body, as slices to send.
    pub fn body(&self) -> Vec<&[u8]> {
        let mut out = Vec::new();
        for (at, range) in self.ranges.iter().enumerate() {
            if let Some(frame) = self.frames.get(at) {
                out.push(&frame[..]);
            }
            out.extend(self.content.slices(*range));
        }
        if let Some(end) = self.frames.get(self.ranges.len()) {
            out.push(end);
        }
        out
    }
}
