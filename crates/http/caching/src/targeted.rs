//! Targeted cache control (RFC 9213): directives for one class of caches, as a Structured Fields
//! dictionary (RFC 8941, 3.2).
//!
//! The first targeted field that is present, not empty and valid replaces `Cache-Control` and
//! `Expires`; an invalid one is ignored as a whole (2.1). A directive whose value has the wrong
//! type says nothing: `max-age="10"` is ignored, not invalid.

use crate::directives::CacheControl;
use crate::fields::FieldSource;

/// The fields for this cache, in order of precedence.
pub(crate) const OURS: &[&str] = &["cdn-cache-control"];

/// Whether a field has directives for one class of caches, which count there in place of
/// `Cache-Control`: the fields of RFC 9213, whose names end alike, and those of servers that came
/// before it.
#[must_use]
pub fn is_targeted(name: &[u8]) -> bool {
    const SUFFIX: &[u8] = b"-cache-control";
    const BEFORE_IT: [&[u8]; 3] = [b"surrogate-control", b"x-accel-expires", b"edge-control"];
    let ends = name.len().checked_sub(SUFFIX.len()).map(|at| &name[at..]);
    ends.is_some_and(|end| end.eq_ignore_ascii_case(SUFFIX))
        || BEFORE_IT.iter().any(|one| name.eq_ignore_ascii_case(one))
}

/// The directives of the first present and valid targeted field.
pub(crate) fn directives<F: FieldSource + ?Sized>(
    fields: &F,
    targeted_fields: &[&str],
) -> Option<CacheControl> {
    targeted_fields.iter().find_map(|name| {
        if !fields.has(name) {
            return None;
        }
        let lines: Vec<&[u8]> = fields.values(name).collect();
        // An empty line among others is an empty member, which is invalid in a dictionary.
        parse(&lines.join(&b", "[..]))
    })
}

/// A response's fields without `Expires`, which a targeted field overrides (RFC 9213, 2.1).
pub(crate) struct WithoutExpires<'f, F: ?Sized>(pub(crate) &'f F);

impl<F: FieldSource + ?Sized> FieldSource for WithoutExpires<'_, F> {
    fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.fields().filter(|(name, _)| !name.eq_ignore_ascii_case(b"expires"))
    }
}

/// Parses a dictionary of directives; `None` if it is empty or invalid.
fn parse(value: &[u8]) -> Option<CacheControl> {
    let mut parser = Parser { rest: value };
    parser.skip_spaces();
    if parser.rest.is_empty() {
        return None;
    }
    // The last value of a key counts in a dictionary (RFC 8941, 4.2.2).
    let mut entries: Vec<(&[u8], Bare<'_>)> = Vec::new();
    loop {
        let key = parser.key()?;
        let value = if parser.eat(b'=') { parser.item_or_list()? } else { Bare::True };
        parser.parameters()?;
        entries.retain(|(known, _)| *known != key);
        entries.push((key, value));
        parser.skip_ows();
        if parser.rest.is_empty() {
            break;
        }
        if !parser.eat(b',') {
            return None;
        }
        parser.skip_ows();
        if parser.rest.is_empty() {
            return None;
        }
    }
    let mut control = CacheControl { present: true, ..CacheControl::default() };
    for (key, value) in entries {
        apply(&mut control, key, &value);
    }
    Some(control)
}

fn apply(control: &mut CacheControl, key: &[u8], value: &Bare<'_>) {
    let takes_seconds =
        matches!(key, b"max-age" | b"s-maxage" | b"stale-while-revalidate" | b"stale-if-error");
    match value {
        Bare::True if !takes_seconds => control.apply(key, None),
        Bare::Integer(digits) if takes_seconds => control.apply(key, Some(digits)),
        Bare::Text(text) if matches!(key, b"no-cache" | b"private") => {
            control.apply(key, Some(text));
        }
        _ => {}
    }
}

/// The relevant bare items; any other valid item is `Other`.
enum Bare<'a> {
    True,
    /// Its digits, perhaps with a minus sign.
    Integer(&'a [u8]),
    /// The inside of a string, with its escapes; field names have none.
    Text(&'a [u8]),
    Other,
}

struct Parser<'a> {
    rest: &'a [u8],
}

impl<'a> Parser<'a> {
    fn eat(&mut self, byte: u8) -> bool {
        match self.rest {
            [first, rest @ ..] if *first == byte => {
                self.rest = rest;
                true
            }
            _ => false,
        }
    }

    fn take_while(&mut self, accept: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|&byte| !accept(byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn skip_spaces(&mut self) {
        self.take_while(|byte| byte == b' ');
    }

    fn skip_ows(&mut self) {
        self.take_while(crate::fields::is_ows);
    }

    /// `key = ( lcalpha / "*" ) *( lcalpha / DIGIT / "_" / "-" / "." / "*" )`
    fn key(&mut self) -> Option<&'a [u8]> {
        if !matches!(self.rest.first(), Some(b'a'..=b'z' | b'*')) {
            return None;
        }
        Some(self.take_while(
            |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'),
        ))
    }

    fn item_or_list(&mut self) -> Option<Bare<'a>> {
        if !self.eat(b'(') {
            return self.bare_item();
        }
        loop {
            self.skip_spaces();
            if self.eat(b')') {
                return Some(Bare::Other);
            }
            self.bare_item()?;
            self.parameters()?;
            if !matches!(self.rest.first(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    /// Skips parameters: no directive has any.
    fn parameters(&mut self) -> Option<()> {
        while self.eat(b';') {
            self.skip_spaces();
            self.key()?;
            if self.eat(b'=') {
                self.bare_item()?;
            }
        }
        Some(())
    }

    fn bare_item(&mut self) -> Option<Bare<'a>> {
        match self.rest.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b':' => self.byte_sequence(),
            b'?' => self.boolean(),
            b'A'..=b'Z' | b'a'..=b'z' | b'*' => {
                self.take_while(|byte| {
                    crate::fields::is_token_byte(byte) || byte == b':' || byte == b'/'
                });
                Some(Bare::Other)
            }
            _ => None,
        }
    }

    /// At most 15 digits, or 12 before and 3 after the point (RFC 8941, 4.2.4).
    fn number(&mut self) -> Option<Bare<'a>> {
        let start = self.rest;
        self.eat(b'-');
        let whole = self.take_while(|byte| byte.is_ascii_digit());
        if whole.is_empty() || whole.len() > 15 {
            return None;
        }
        if self.eat(b'.') {
            let fraction = self.take_while(|byte| byte.is_ascii_digit());
            let fits = whole.len() <= 12 && (1..=3).contains(&fraction.len());
            return fits.then_some(Bare::Other);
        }
        Some(Bare::Integer(&start[..start.len() - self.rest.len()]))
    }

    fn string(&mut self) -> Option<Bare<'a>> {
        self.eat(b'"');
        let start = self.rest;
        loop {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            match byte {
                b'"' => return Some(Bare::Text(&start[..start.len() - rest.len() - 1])),
                b'\\' => {
                    let (&escaped, rest) = self.rest.split_first()?;
                    self.rest = rest;
                    if escaped != b'"' && escaped != b'\\' {
                        return None;
                    }
                }
                0x20..=0x7e => {}
                _ => return None,
            }
        }
    }

    fn byte_sequence(&mut self) -> Option<Bare<'a>> {
        self.eat(b':');
        self.take_while(
            |byte| matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' | b'='),
        );
        self.eat(b':').then_some(Bare::Other)
    }

    fn boolean(&mut self) -> Option<Bare<'a>> {
        self.eat(b'?');
        if self.eat(b'1') { Some(Bare::True) } else { self.eat(b'0').then_some(Bare::Other) }
    }
}

#[cfg(test)]
mod tests;
