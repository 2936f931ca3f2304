//! The fields of a text line from left to right: words, quoted strings, brackets.

/// The part of a line that was not taken yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'l> {
    pub(super) rest: &'l [u8],
}

impl<'l> Words<'l> {
    pub(super) fn of(line: &'l [u8]) -> Words<'l> {
        Words { rest: line }
    }

    /// The next word, which ends at a space or at the end of the line. It is not empty.
    pub(super) fn word(&mut self) -> Option<&'l [u8]> {
        self.spaces();
        let end = memchr::memchr(b' ', self.rest).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then_some(word)
    }

    /// Skips a number of words.
    pub(super) fn skip(&mut self, words: usize) -> Option<()> {
        (0..words).try_for_each(|_| self.word().map(drop))
    }

    /// A string in double quotes, without them. A backslash escapes the next byte.
    pub(super) fn quoted(&mut self) -> Option<&'l [u8]> {
        self.spaces();
        let inside = self.rest.strip_prefix(b"\"")?;
        let end = super::clf::quote_end(inside)?;
        self.rest = &inside[end + 1..];
        Some(&inside[..end])
    }

    /// The content of brackets.
    pub(super) fn bracketed(&mut self) -> Option<&'l [u8]> {
        self.spaces();
        let inside = self.rest.strip_prefix(b"[")?;
        let end = memchr::memchr(b']', inside)?;
        self.rest = &inside[end + 1..];
        Some(&inside[..end])
    }

    fn spaces(&mut self) {
        while let [b' ', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }
}
