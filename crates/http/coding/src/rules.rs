//! The configuration of coding, and what it says of a response and of a request.

use caching::{CacheControl, FieldSource};

use crate::{Accept, Coding, TagRule};

/// A coding to offer, and how much work it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The coding.
    pub coding: Coding,
    /// Its level, by its own scale.
    pub level: u8,
}

/// Which responses get other forms, and which forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The codings on offer; of those that a client likes equally, the first is used.
    pub codings: Vec<Level>,
    /// The media types that are coded.
    pub types: Types,
    /// Shorter bodies are not coded, ...
    pub bytes_min: u64,
    /// ... and no longer ones.
    pub bytes_max: u64,
    /// What becomes of entity tags.
    pub tag: TagRule,
    /// How many forms may be made at a time, by all cores together.
    pub jobs_max: usize,
    /// How many may wait for that.
    pub queue_max: usize,
    /// Whether responses that are not stored are coded while they pass.
    pub passed: bool,
    /// How many of them may be coded at a time, by all cores together.
    pub passed_max: usize,
}

/// How the origin coded a response of which there may be other forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// It did not: forms are coded.
    Identity,
    /// In this way: the other form is decoded, for clients that do not accept it.
    Coded(Coding),
}

impl Source {
    /// By `Content-Encoding`; `None` for a coding that is unknown, and for several.
    pub fn of<F: FieldSource + ?Sized>(fields: &F) -> Option<Source> {
        let mut values = fields.values("content-encoding");
        let Some(value) = values.next() else { return Some(Source::Identity) };
        if values.next().is_some() {
            return None;
        }
        Coding::of(value.trim_ascii()).map(Source::Coded)
    }

    /// The coding.
    #[must_use]
    pub fn coding(self) -> Option<Coding> {
        match self {
            Source::Identity => None,
            Source::Coded(coding) => Some(coding),
        }
    }
}

/// A form: a coding, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target(pub Option<Coding>);

impl Target {
    /// The number of targets.
    pub const COUNT: usize = Coding::ALL.len() + 1;

    /// Its number, less than [`Target::COUNT`].
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        match self.0 {
            Some(coding) => coding.index(),
            None => Coding::ALL.len(),
        }
    }

    /// Its name in fields.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.map_or("identity", Coding::name)
    }
}

impl Rules {
    /// Whether there may be other forms of a response, and how the origin coded it. `bytes` is the
    /// body's length, if it is known.
    pub fn source<F: FieldSource + ?Sized>(
        &self,
        status: u16,
        fields: &F,
        bytes: Option<u64>,
    ) -> Option<Source> {
        // What sets a cookie, or is chosen by one, is for one user. It mixes the user's secrets
        // with input (BREACH).
        let of_user = |name: &[u8]| {
            name.eq_ignore_ascii_case(b"cookie") || name.eq_ignore_ascii_case(b"authorization")
        };
        let mut chosen_by = fields.values("vary").flat_map(|value| value.split(|&b| b == b','));
        let is_of_user = chosen_by.any(|name| of_user(name.trim_ascii()));
        let is_open = status == 200 && !fields.has("set-cookie") && !is_of_user;
        if !is_open || CacheControl::of(fields).no_transform {
            return None;
        }
        let source = Source::of(fields)?;
        let is_worth_it = || {
            let fits = bytes.is_none_or(|bytes| (self.bytes_min..=self.bytes_max).contains(&bytes));
            fits && fields.first("content-type").is_some_and(|value| self.types.has(value))
        };
        (source != Source::Identity || is_worth_it()).then_some(source)
    }

    /// Whether a response that is not stored may be coded while it passes. `bytes` is the body's
    /// length, if it is known. Cookies do not matter: who has such responses coded knows that they
    /// are for single users.
    pub fn passes<F: FieldSource + ?Sized>(
        &self,
        status: u16,
        fields: &F,
        bytes: Option<u64>,
    ) -> bool {
        // A message of gRPC has its own coding, and a part is a part of what is not coded.
        let is_grpc = |value: &[u8]| {
            const GRPC: &[u8] = b"application/grpc";
            value.get(..GRPC.len()).is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
        };
        let is_whole = matches!(status, 200..=203 | 400..=599) && !fields.has("content-range");
        is_whole
            && bytes.is_none_or(|bytes| bytes >= self.bytes_min)
            && !fields.has("content-encoding")
            && !CacheControl::of(fields).no_transform
            && fields
                .first("content-type")
                .is_some_and(|value| self.types.has(value) && !is_grpc(value.trim_ascii()))
    }

    /// Whether the response with these fields, or the response that they are a part of, may be
    /// coded for some client. A part may leave out the type of the whole, and the type of several
    /// parts says nothing about the whole.
    pub fn may_code_whole<F: FieldSource + ?Sized>(&self, fields: &F) -> bool {
        const PARTS: &[u8] = b"multipart/byteranges";
        let is_open = |value: &[u8]| {
            let start = value.trim_ascii().get(..PARTS.len());
            self.types.has(value) || start.is_some_and(|of| of.eq_ignore_ascii_case(PARTS))
        };
        !fields.has("content-encoding")
            && !CacheControl::of(fields).no_transform
            && fields.first("content-type").is_none_or(is_open)
    }

    /// The codings that this client prefers to none, best first.
    #[inline]
    #[must_use]
    pub fn ranked(&self, accept: Accept) -> [Option<Level>; Coding::ALL.len()] {
        let mut ranked: [Option<Level>; Coding::ALL.len()] = [None; _];
        for level in &self.codings {
            if !accept.prefers(level.coding) {
                continue;
            }
            let weight = |level: Level| accept.weight(level.coding);
            let goes_before =
                |place: &Option<Level>| place.is_none_or(|there| weight(*level) > weight(there));
            if let Some(at) = ranked.iter().position(goes_before) {
                ranked[at..].rotate_right(1);
                ranked[at] = Some(*level);
            }
        }
        ranked
    }
}

/// Patterns of media types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Types(Vec<Pattern>);

/// One pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// This type.
    Exact(String),
    /// `text/*`: the part before the asterisk.
    Below(String),
    /// `*+json`: the suffix with its plus.
    Suffix(String),
}

impl std::str::FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        let text = text.to_ascii_lowercase();
        let is_name = |name: &str| {
            !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_+".contains(&b))
        };
        if let Some(suffix) = text.strip_prefix('*')
            && suffix.strip_prefix('+').is_some_and(is_name)
        {
            return Ok(Pattern::Suffix(suffix.to_owned()));
        }
        match text.split_once('/') {
            Some((kind, "*")) if is_name(kind) => Ok(Pattern::Below(format!("{kind}/"))),
            Some((kind, name)) if is_name(kind) && is_name(name) => Ok(Pattern::Exact(text)),
            _ => Err(format!("`{text}` is not a media type such as text/html, text/* or *+json")),
        }
    }
}

impl FromIterator<Pattern> for Types {
    fn from_iter<I: IntoIterator<Item = Pattern>>(patterns: I) -> Types {
        Types(patterns.into_iter().collect())
    }
}

impl Types {
    /// Whether no type is one of them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a `Content-Type` is of one of them. Its parameters do not matter.
    #[must_use]
    pub fn has(&self, content_type: &[u8]) -> bool {
        let end = content_type.iter().position(|&b| b == b';').unwrap_or(content_type.len());
        let given = content_type[..end].trim_ascii();
        let begins = |with: &str| {
            given.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
        };
        let ends = |with: &str| {
            let at = given.len().checked_sub(with.len());
            at.is_some_and(|at| given[at..].eq_ignore_ascii_case(with.as_bytes()))
        };
        self.0.iter().any(|pattern| match pattern {
            Pattern::Exact(name) => given.eq_ignore_ascii_case(name.as_bytes()),
            Pattern::Below(start) => begins(start),
            Pattern::Suffix(suffix) => ends(suffix),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        let level = |coding| Level { coding, level: 1 };
        Rules {
            codings: vec![level(Coding::Zstd), level(Coding::Brotli), level(Coding::Gzip)],
            types: ["text/*", "application/json", "*+xml"]
                .iter()
                .map(|text| text.parse().unwrap())
                .collect(),
            bytes_min: 100,
            bytes_max: 900,
            tag: TagRule::Weak,
            jobs_max: 1,
            queue_max: 1,
            passed: true,
            passed_max: 1,
        }
    }

    #[test]
    fn the_first_of_the_codings_that_weigh_the_same_is_used() {
        let ranked = |value: &str| -> String {
            let accept = Accept::parse(std::iter::once(value.as_bytes()));
            let ranked = rules().ranked(accept);
            let names: Vec<_> =
                ranked.into_iter().flatten().map(|level| level.coding.name()).collect();
            names.join(" ")
        };
        assert_eq!(ranked("gzip, br, zstd"), "zstd br gzip");
        assert_eq!(ranked("gzip, br;q=0.9, zstd;q=0.9"), "gzip zstd br");
        assert_eq!(ranked("gzip;q=0.1, br;q=0.2"), "br gzip");
        assert_eq!(ranked("gzip;q=0.5, br, identity;q=0.7"), "br");
        assert_eq!(ranked("deflate"), "");
    }

    #[test]
    fn types_are_compared_without_parameters_and_case() {
        let types = rules().types;
        for (value, has) in [
            ("text/html; charset=utf-8", true),
            ("TEXT/plain", true),
            ("text", false),
            ("texts/plain", false),
            ("application/json", true),
            ("application/json5", false),
            ("image/svg+xml ;a=b", true),
            ("+xml", true),
            ("xml", false),
            ("", false),
        ] {
            assert_eq!(types.has(value.as_bytes()), has, "{value}");
        }
        for wrong in ["", "*", "*/*", "text", "text/", "/x", "te xt/x", "text/*x", "*xml"] {
            assert!(wrong.parse::<Pattern>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_may_have_other_forms() {
        let html = ("content-type", "text/html");
        let gzip = Some(Source::Coded(Coding::Gzip));
        type Case<'c> = (u16, &'c [(&'c str, &'c str)], Option<u64>, Option<Source>);
        let cases: [Case<'_>; 17] = [
            (200, &[html], Some(100), Some(Source::Identity)),
            (200, &[html], None, Some(Source::Identity)),
            (200, &[html], Some(99), None),
            (200, &[html], Some(900), Some(Source::Identity)),
            (200, &[html], Some(901), None),
            (206, &[html], Some(100), None),
            (404, &[html], Some(100), None),
            (200, &[], Some(100), None),
            (200, &[("content-type", "image/png")], Some(100), None),
            (200, &[html, ("set-cookie", "a=b")], None, None),
            (200, &[html, ("vary", "accept, Cookie")], None, None),
            (200, &[html, ("vary", "accept"), ("vary", "authorization")], None, None),
            (200, &[html, ("vary", "x-cookie")], None, Some(Source::Identity)),
            (200, &[html, ("cache-control", "max-age=9, no-transform")], None, None),
            (200, &[("content-encoding", "x-gzip")], Some(1), gzip),
            (200, &[html, ("content-encoding", "gzip, br")], None, None),
            (200, &[html, ("content-encoding", "deflate")], None, None),
        ];
        for (status, fields, bytes, source) in cases {
            let fields: Vec<(&[u8], &[u8])> =
                fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
            assert_eq!(rules().source(status, &fields, bytes), source, "{fields:?}");
        }
    }

    #[test]
    fn what_may_be_coded_while_it_passes() {
        let html = ("content-type", "text/html");
        type Case<'c> = (u16, &'c [(&'c str, &'c str)], Option<u64>, bool);
        let cases: [Case<'_>; 13] = [
            (200, &[html], Some(100), true),
            (200, &[html], None, true),
            (200, &[html], Some(99), false),
            (200, &[html], Some(u64::MAX), true),
            (404, &[html], Some(100), true),
            (206, &[html], Some(100), false),
            (304, &[html], None, false),
            (200, &[html, ("content-range", "bytes 0-1/2")], None, false),
            (200, &[html, ("set-cookie", "a=b"), ("vary", "cookie")], None, true),
            (200, &[html, ("cache-control", "no-transform")], None, false),
            (200, &[html, ("content-encoding", "gzip")], None, false),
            (200, &[("content-type", " Application/gRPC+xml")], None, false),
            (200, &[("content-type", "image/png")], None, false),
        ];
        for (status, fields, bytes, passes) in cases {
            let fields: Vec<(&[u8], &[u8])> =
                fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
            assert_eq!(rules().passes(status, &fields, bytes), passes, "{fields:?}");
        }
    }
}
