//! `Cache-Control` of requests and responses, parsed once into a type (RFC 9111, 5.2).
//!
//! The parser follows the RFC, and its advice to be lenient where that is safe:
//! - Names are case-insensitive; unknown directives are ignored (5.2.3), except those with control
//!   characters, which count as `no-store`.
//! - An argument may be a token or a quoted string (5.2).
//! - If a directive occurs twice, the first value counts (4.2.1).
//! - A missing or invalid number makes the freshness *invalid*, which means stale, not absent
//!   (4.2.1).
//! - Several field lines form one list (RFC 9110, 5.3).
//! - A space around `=` makes it another name or argument; the parser does not guess.

use crate::fields::{
    Escapes, FieldSource, closing_quote, delta_seconds, is_token_byte, members, trim,
};

/// A directive whose argument is a number of seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delta {
    /// The directive is absent.
    #[default]
    Absent,
    /// Seconds, at most [`crate::DELTA_SECONDS_MAX`].
    Seconds(u32),
    /// The directive has no valid number.
    Invalid,
}

impl Delta {
    /// Milliseconds, if the directive has a valid argument.
    #[must_use]
    pub fn ms(self) -> Option<u64> {
        match self {
            Delta::Seconds(seconds) => Some(u64::from(seconds) * 1000),
            Delta::Absent | Delta::Invalid => None,
        }
    }

    /// Whether the directive is present, valid or not.
    #[must_use]
    pub fn is_present(self) -> bool {
        self != Delta::Absent
    }

    fn set_first(&mut self, argument: Option<&[u8]>) {
        if *self == Delta::Absent {
            *self = match argument.and_then(delta_seconds) {
                Some(seconds) => Delta::Seconds(seconds),
                None => Delta::Invalid,
            };
        }
    }
}

/// `max-stale` of a request: its argument is optional.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaxStale {
    /// Absent.
    #[default]
    Absent,
    /// Without an argument: any staleness is accepted.
    Any,
    /// At most this many seconds stale.
    Seconds(u32),
}

/// What `no-cache` and `private` of a response apply to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// The directive is absent.
    #[default]
    Absent,
    /// The whole response.
    Whole,
    /// The named fields only, in lower case.
    Fields(Vec<Box<str>>),
}

impl Scope {
    /// Whether it applies to the whole response.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        *self == Scope::Whole
    }

    /// The fields it names.
    #[must_use]
    pub fn fields(&self) -> &[Box<str>] {
        match self {
            Scope::Fields(names) => names,
            Scope::Absent | Scope::Whole => &[],
        }
    }

    /// Without a valid field name the directive applies to everything: in doubt, less is reused.
    fn widen(&mut self, argument: Option<&[u8]>) {
        let names: Vec<Box<str>> = argument
            .map(|list| members(list, Escapes::Backslash).filter_map(field_name).collect())
            .unwrap_or_default();
        if names.is_empty() {
            *self = Scope::Whole;
        }
        match self {
            Scope::Whole => {}
            Scope::Absent => *self = Scope::Fields(names),
            Scope::Fields(known) => known.extend(names),
        }
    }
}

fn field_name(name: &[u8]) -> Option<Box<str>> {
    let text = std::str::from_utf8(name).ok()?;
    text.bytes().all(is_token_byte).then(|| text.to_ascii_lowercase().into_boxed_str())
}

/// The directives of a message's `Cache-Control` fields.
///
/// Directives that only mean something in the other direction are parsed too, but never looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheControl {
    /// Whether there is any field line. (`Pragma` counts only if there is none.)
    pub present: bool,
    /// `max-age` (request and response).
    pub max_age: Delta,
    /// `s-maxage` (response).
    pub s_maxage: Delta,
    /// `min-fresh` (request).
    pub min_fresh: Delta,
    /// `max-stale` (request).
    pub max_stale: MaxStale,
    /// `stale-while-revalidate` (response, RFC 5861).
    pub stale_while_revalidate: Delta,
    /// `stale-if-error` (request and response, RFC 5861).
    pub stale_if_error: Delta,
    /// `no-cache`; with field names only in responses.
    pub no_cache: Scope,
    /// `private` (response).
    pub private: Scope,
    /// `no-store`.
    pub no_store: bool,
    /// `only-if-cached` (request).
    pub only_if_cached: bool,
    /// `public` (response).
    pub public: bool,
    /// `must-revalidate` (response).
    pub must_revalidate: bool,
    /// `proxy-revalidate` (response).
    pub proxy_revalidate: bool,
    /// `must-understand` (response).
    pub must_understand: bool,
    /// `immutable` (response, RFC 8246).
    pub immutable: bool,
    /// `no-transform`.
    pub no_transform: bool,
}

impl CacheControl {
    /// The directives of all `Cache-Control` lines of a message.
    pub fn of<F: FieldSource + ?Sized>(fields: &F) -> CacheControl {
        Self::of_field(fields, "cache-control")
    }

    /// The directives of all lines of a field with `Cache-Control`'s syntax.
    pub fn of_field<F: FieldSource + ?Sized>(fields: &F, name: &str) -> CacheControl {
        let mut directives = CacheControl::default();
        for value in fields.values(name) {
            directives.add_line(value);
        }
        directives
    }

    /// The directives of one field line.
    #[must_use]
    pub fn parse(value: &[u8]) -> CacheControl {
        let mut directives = CacheControl::default();
        directives.add_line(value);
        directives
    }

    /// Adds the directives of another field line.
    pub fn add_line(&mut self, value: &[u8]) {
        self.present = true;
        for member in members(value, Escapes::Backslash) {
            match member.iter().position(|&byte| byte == b'=') {
                None => self.apply(member, None),
                Some(equals) => match unquote(&member[equals + 1..]) {
                    Argument::Plain(argument) => self.apply(&member[..equals], Some(argument)),
                    Argument::Unescaped(argument) => {
                        self.apply(&member[..equals], Some(&argument));
                    }
                },
            }
        }
    }

    /// Adds a directive; `argument` is without its quotes.
    pub(crate) fn apply(&mut self, name: &[u8], argument: Option<&[u8]>) {
        let mut lower = [0u8; LONGEST_DIRECTIVE];
        let Some(lower) = lower.get_mut(..name.len()) else { return self.guess(name) };
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        match &*lower {
            b"max-age" => self.max_age.set_first(argument),
            b"s-maxage" => self.s_maxage.set_first(argument),
            b"min-fresh" => self.min_fresh.set_first(argument),
            b"max-stale" => self.set_max_stale(argument),
            b"stale-while-revalidate" => self.stale_while_revalidate.set_first(argument),
            b"stale-if-error" => self.stale_if_error.set_first(argument),
            b"no-cache" => self.no_cache.widen(argument),
            b"private" => self.private.widen(argument),
            b"no-store" => self.no_store = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"public" => self.public = true,
            b"must-revalidate" => self.must_revalidate = true,
            b"proxy-revalidate" => self.proxy_revalidate = true,
            b"must-understand" => self.must_understand = true,
            b"immutable" => self.immutable = true,
            b"no-transform" => self.no_transform = true,
            _ => self.guess(name),
        }
    }

    /// An unknown directive is ignored. But readers that skip control characters take
    /// `no-store\x01` for `no-store`, so with such bytes it counts as that.
    fn guess(&mut self, name: &[u8]) {
        self.no_store |= name.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t');
    }

    /// A `max-stale` with an invalid argument permits nothing: in doubt, nothing stale is served.
    fn set_max_stale(&mut self, argument: Option<&[u8]>) {
        if self.max_stale == MaxStale::Absent {
            self.max_stale = match argument.map(delta_seconds) {
                None => MaxStale::Any,
                Some(Some(seconds)) => MaxStale::Seconds(seconds),
                Some(None) => MaxStale::Absent,
            };
        }
    }
}

/// Longer names are not known directives.
const LONGEST_DIRECTIVE: usize = b"stale-while-revalidate".len();

enum Argument<'a> {
    Plain(&'a [u8]),
    Unescaped(Vec<u8>),
}

/// The argument without its quotes. Anything that is not exactly one quoted string is returned
/// unchanged, and is not a valid number.
fn unquote(argument: &[u8]) -> Argument<'_> {
    if argument.first() != Some(&b'"') {
        return Argument::Plain(argument);
    }
    match closing_quote(argument, 0, Escapes::Backslash) {
        Some(close) if close + 1 == argument.len() => {
            let inner = &argument[1..close];
            if inner.contains(&b'\\') {
                Argument::Unescaped(unescape(inner))
            } else {
                Argument::Plain(inner)
            }
        }
        _ => Argument::Plain(argument),
    }
}

fn unescape(quoted: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(quoted.len());
    let mut bytes = quoted.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => plain.extend(bytes.next()),
            _ => plain.push(byte),
        }
    }
    plain
}

/// Whether a `Pragma` line has `no-cache`. (RFC 9111, 5.4: only used if a request has no
/// `Cache-Control`.)
pub(crate) fn pragma_no_cache<F: FieldSource + ?Sized>(fields: &F) -> bool {
    fields.values("pragma").any(|value| {
        members(value, Escapes::Backslash).any(|m| trim(m).eq_ignore_ascii_case(b"no-cache"))
    })
}

#[cfg(test)]
mod tests;
