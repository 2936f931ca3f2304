//! Where the head of a message that we write goes.
//!
//! What: [`Sink`], which takes a status and fields. HTTP/1 is the sink `Vec<u8>`, which takes the
//! text. HTTP/2 and HTTP/3 send a head later, and only then encode it: [`FieldList`] keeps the
//! fields until then. Why: a head that we write is written once, and no version parses it.
//!
//! What never happens: a field from the network reaches a sink unchecked. A sink writes what it is
//! given.

use crate::write::{self, decimal};
use crate::{Field, Fields, trailer_fields};

/// Takes the head of a response: the status first, then the fields. The end of the head is for the
/// caller to write.
pub trait Sink {
    /// The status, with its usual reason phrase if the version has reason phrases.
    ///
    /// # Panics
    /// If the status is not within 100 to 999.
    fn status(&mut self, status: u16);

    /// A field. The name is a token, and the value has no control character.
    fn field(&mut self, name: &[u8], value: &[u8]);

    /// A field whose value `append` appends.
    fn field_of(&mut self, name: &[u8], append: impl FnOnce(&mut Vec<u8>));

    /// Fields that were prepared as lines of HTTP/1, each with its end.
    fn lines(&mut self, lines: &[u8]) {
        trailer_fields(lines).for_each(|(name, value)| self.field(name, value));
    }

    /// A status and fields that were prepared as the lines of HTTP/1.
    fn prepared(&mut self, status: u16, head: &[u8]) {
        self.status(status);
        self.lines(&head[memchr::memchr(b'\n', head).map_or(head.len(), |at| at + 1)..]);
    }

    /// The end-to-end fields of a received head that `keep` keeps.
    fn end_to_end(&mut self, fields: &Fields<'_>, keep: impl Fn(Field<'_>) -> bool) {
        for field in fields.end_to_end().filter(|field| keep(*field)) {
            self.field(field.name(), field.value());
        }
    }

    /// `Content-Length`.
    fn content_length(&mut self, length: u64) {
        self.field_of(b"Content-Length", |out| decimal(out, length));
    }
}

/// The text of HTTP/1.
impl Sink for Vec<u8> {
    #[inline]
    fn status(&mut self, status: u16) {
        write::status_line(self, status);
    }

    #[inline]
    fn field(&mut self, name: &[u8], value: &[u8]) {
        write::line(self, name, value);
    }

    #[inline(always)]
    fn field_of(&mut self, name: &[u8], append: impl FnOnce(&mut Vec<u8>)) {
        self.extend_from_slice(name);
        self.extend_from_slice(b": ");
        append(self);
        self.extend_from_slice(write::CRLF);
    }

    #[inline]
    fn lines(&mut self, lines: &[u8]) {
        self.extend_from_slice(lines);
    }

    #[inline]
    fn prepared(&mut self, _status: u16, head: &[u8]) {
        self.extend_from_slice(head);
    }

    fn end_to_end(&mut self, fields: &Fields<'_>, keep: impl Fn(Field<'_>) -> bool) {
        write::end_to_end(self, fields, keep);
    }

    #[inline]
    fn content_length(&mut self, length: u64) {
        write::content_length(self, length);
    }
}

/// A head that is sent later: its fields, and its text for the log.
#[derive(Debug, Default)]
pub struct FieldList {
    /// The head as HTTP/1 writes it.
    text: Vec<u8>,
    status: u16,
    spans: Vec<Span>,
    content_length: Option<u64>,
}

/// The position of a field: its value ends two bytes before its line.
#[derive(Clone, Copy, Debug)]
struct Span {
    name_start: u32,
    value_start: u32,
    line_end: u32,
}

impl FieldList {
    /// The status; 0 before there is a head.
    pub fn code(&self) -> u16 {
        self.status
    }

    /// The length that the head announces.
    pub fn length(&self) -> Option<u64> {
        self.content_length
    }

    /// Names and values.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.spans.iter().map(|span| {
            let Span { name_start, value_start, line_end } = *span;
            let name = &self.text[name_start as usize..value_start as usize - b": ".len()];
            (name, &self.text[value_start as usize..line_end as usize - write::CRLF.len()])
        })
    }

    /// The head as HTTP/1 writes it.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The end of the head.
    pub fn end(&mut self) {
        write::end(&mut self.text);
    }

    /// Forgets the head.
    pub fn clear(&mut self) {
        self.text.clear();
        self.spans.clear();
        (self.status, self.content_length) = (0, None);
    }
}

impl Sink for FieldList {
    fn status(&mut self, status: u16) {
        debug_assert!(self.text.is_empty(), "the status comes first, and once");
        self.status = status;
        write::status_line(&mut self.text, status);
    }

    fn prepared(&mut self, status: u16, head: &[u8]) {
        let fields = memchr::memchr(b'\n', head).map_or(head.len(), |at| at + 1);
        self.status = status;
        self.text.extend_from_slice(&head[..fields]);
        self.lines(&head[fields..]);
    }

    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.field_of(name, |out| out.extend_from_slice(value));
    }

    fn field_of(&mut self, name: &[u8], append: impl FnOnce(&mut Vec<u8>)) {
        let name_start = self.text.len();
        let value_start = name_start + name.len() + b": ".len();
        self.text.field_of(name, append);
        let at = |place: usize| u32::try_from(place).expect("a head is shorter than 4 GiB");
        let (name_start, value_start) = (at(name_start), at(value_start));
        self.spans.push(Span { name_start, value_start, line_end: at(self.text.len()) });
    }

    fn content_length(&mut self, length: u64) {
        self.content_length = Some(length);
        self.field_of(b"Content-Length", |out| decimal(out, length));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(out: &mut impl Sink) {
        out.prepared(206, b"HTTP/1.1 206 Some\r\nA: b:c\r\nEmpty: \r\n");
        out.field(b"X", b"y");
        out.content_length(12);
        out.field_of(b"Age", |out| decimal(out, 7));
    }

    #[test]
    fn a_list_has_the_text_of_http1_and_its_fields() {
        let (mut text, mut list) = (Vec::new(), FieldList::default());
        head(&mut text);
        head(&mut list);
        assert_eq!(list.text(), text);
        assert_eq!((list.code(), list.length()), (206, Some(12)));
        let fields: Vec<_> = list.fields().collect();
        let expected: [(&[u8], &[u8]); 5] = [
            (b"A", b"b:c"),
            (b"Empty", b""),
            (b"X", b"y"),
            (b"Content-Length", b"12"),
            (b"Age", b"7"),
        ];
        assert_eq!(fields, expected);
        list.clear();
        assert_eq!((list.code(), list.fields().count(), list.text()), (0, 0, &b""[..]));
        list.status(404);
        assert_eq!(list.text(), b"HTTP/1.1 404 Not Found\r\n");
    }
}
