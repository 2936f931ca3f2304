//! Static files: which file a request names, and what the response to it says.
//!
//! What: [`name_of`] makes a name relative to a directory from the path of a request, [`look()`]
//! opens the file, and [`Shown`] makes a [`Reply`]: the status, the fields and the parts of the
//! file that answer the request. The kernel ensures that a name does not lead out of the directory
//! ([`runtime::fs::Directory`]); a name that could be read in two ways is refused before.
//! What never happens: a name has `..`, a NUL, a backslash or an encoded slash; two forms of a file
//! have the same strong entity tag; a range is of more bytes than there are.
#![forbid(unsafe_code)]

mod look;
mod types;

pub use look::{Found, Opened, Roots, look};
pub use types::content_type;

use caching::range::{ByteRange, Selection, select_range, unsatisfied_range};
use caching::{Evaluator, FieldSource, Precondition, Request, Validators, conditional, date};
use coding::{Accept, Coding};

/// The longest name that is looked up; the kernel takes no more.
pub const NAME_BYTES_MAX: usize = 4095;
/// A file that was changed less than this before it is sent may change again without a new time.
const SETTLED_MS: u64 = 2_000;

/// The name of the file that a path is for, relative to a directory; `None` if there can be no such
/// file. `path` is normalised: it is decoded once, and a slash, a NUL and a percent sign that were
/// encoded are `%2F`, `%00` and `%25` still. A name with a slash at its end is that of a directory.
///
/// Segments that begin with a dot are never served, except `.well-known`, unless `dots`.
#[must_use]
pub fn name_of(path: &[u8], dots: bool) -> Option<Vec<u8>> {
    let relative = path.strip_prefix(b"/")?;
    let mut name = Vec::with_capacity(relative.len());
    let mut rest = relative;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'%' => {
                // An encoded slash or NUL would be another name to other readers.
                rest = rest.strip_prefix(b"25")?;
                name.push(b'%');
            }
            0..=31 | 127 | b'\\' => return None,
            byte => name.push(byte),
        }
    }
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let last = name.split(|&byte| byte == b'/').count() - 1;
    for (at, segment) in name.split(|&byte| byte == b'/').enumerate() {
        let is_hidden = segment.starts_with(b".") && !dots && segment != b".well-known";
        if is_hidden || matches!(segment, b"." | b"..") || (segment.is_empty() && at != last) {
            return None;
        }
    }
    Some(name)
}

/// The codings of files beside a file, with the ending of their names.
pub const BESIDE: [(Coding, &str); 3] =
    [(Coding::Brotli, ".br"), (Coding::Zstd, ".zst"), (Coding::Gzip, ".gz")];

/// The codings that a client accepts, the one that it prefers first, with the endings of the names
/// of such files.
pub fn beside(accept: Accept) -> impl Iterator<Item = (Coding, &'static str)> {
    let mut accepted = BESIDE;
    accepted.sort_by_key(|(coding, _)| std::cmp::Reverse(accept.weight(*coding)));
    accepted.into_iter().filter(move |(coding, _)| accept.accepts(*coding))
}

/// A file as its responses show it.
#[derive(Clone, Debug)]
pub struct Shown<'f> {
    /// The name by which its type is known, without the ending of a coding.
    pub name: &'f [u8],
    /// Its length.
    pub bytes: u64,
    /// When it was changed, in unix nanoseconds.
    pub modified_ns: u64,
    /// How it is coded.
    pub coding: Option<Coding>,
    /// Whether there may be forms in other codings.
    pub varies: bool,
    /// The value of `Cache-Control`, if one is configured.
    pub cache_control: Option<&'f str>,
}

/// The answer to a request for a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    /// 200, 206, 304, 412 or 416.
    pub status: u16,
    /// Its field lines, without its length.
    pub lines: Vec<u8>,
    /// The length of its content; `None`: it has none, and announces none.
    pub content_length: Option<u64>,
    /// The content: bytes, and then a part of the file, and so on.
    pub content: Vec<(Vec<u8>, Option<ByteRange>)>,
}

impl Shown<'_> {
    fn validators(&self, now_ms: u64) -> Validators {
        let modified_ms = self.modified_ns / 1_000_000;
        let suffix = self.coding.map_or(String::new(), |coding| format!("-{}", coding.name()));
        let is_settled = modified_ms + SETTLED_MS <= now_ms;
        let weak = if is_settled { "" } else { "W/" };
        let tag = format!("{weak}\"{:x}-{:x}{suffix}\"", self.modified_ns, self.bytes);
        // A date in the future would be a lie (RFC 9110, 8.8.2.1).
        let modified_s = modified_ms.min(now_ms) / 1000;
        Validators {
            etag: Some(tag.into_bytes().into()),
            last_modified: Some(Box::from(&date::format(modified_s * 1000)[..])),
            last_modified_ms: Some(modified_s * 1000),
            date_value_ms: now_ms,
        }
    }

    /// The answer to a GET or a HEAD. `boundary` makes a token that no client could have put into
    /// the file.
    pub fn reply<F: FieldSource + ?Sized>(
        &self,
        request: &Request<'_, F>,
        now_ms: u64,
        boundary: impl FnOnce() -> String,
    ) -> Reply {
        let validators = self.validators(now_ms);
        let mut common = Vec::new();
        let mut field = |name: &str, value: &[u8]| {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                common.extend_from_slice(part);
            }
        };
        for (name, value) in
            [("ETag", &validators.etag), ("Last-Modified", &validators.last_modified)]
        {
            value.iter().for_each(|value| field(name, value));
        }
        self.cache_control.iter().for_each(|value| field("Cache-Control", value.as_bytes()));
        if self.varies {
            field("Vary", b"Accept-Encoding");
        }
        let without = |status, lines| Reply {
            status,
            lines,
            content_length: (status != 304).then_some(0),
            content: Vec::new(),
        };
        match conditional(request, 200, &validators, Evaluator::Origin) {
            Precondition::NotModified(_) => return without(304, common),
            Precondition::Failed(_) => return without(412, common),
            Precondition::None => {}
        }
        let of_type = content_type(self.name);
        let ranges = match select_range(request, 200, &validators, self.bytes) {
            Selection::Unsatisfiable => {
                let range = unsatisfied_range(self.bytes);
                let line = format!("Content-Range: {range}\r\n").into_bytes();
                return without(416, [common, line].concat());
            }
            Selection::Whole(_) => Vec::new(),
            Selection::Parts(ranges) => ranges,
        };
        let coding = self.coding.map(Coding::name);
        let coding = coding.map_or(String::new(), |name| format!("Content-Encoding: {name}\r\n"));
        let (status, first, content) = match ranges[..] {
            [] => {
                let whole = ByteRange { first: 0, last: self.bytes.saturating_sub(1) };
                let whole = (self.bytes > 0).then_some(whole);
                (200, format!("Content-Type: {of_type}\r\n"), vec![(Vec::new(), whole)])
            }
            [range] => {
                let place = range.content_range(self.bytes);
                let lines = format!("Content-Type: {of_type}\r\nContent-Range: {place}\r\n");
                (206, lines, vec![(Vec::new(), Some(range))])
            }
            _ => {
                let boundary = boundary();
                let kind = format!("multipart/byteranges; boundary={boundary}");
                let lines = format!("Content-Type: {kind}\r\n");
                (206, lines, self.parts(&ranges, of_type, &boundary))
            }
        };
        let of_part = |(before, range): &(Vec<u8>, Option<ByteRange>)| {
            before.len() as u64 + range.map_or(0, ByteRange::bytes)
        };
        let length = content.iter().map(of_part).sum();
        let lines = format!("{first}{coding}Accept-Ranges: bytes\r\n").into_bytes();
        Reply { status, lines: [lines, common].concat(), content_length: Some(length), content }
    }

    /// The content of a 206 with several parts.
    fn parts(
        &self,
        ranges: &[ByteRange],
        of_type: &str,
        boundary: &str,
    ) -> Vec<(Vec<u8>, Option<ByteRange>)> {
        let part = |range: &ByteRange| {
            let place = range.content_range(self.bytes);
            let head = format!(
                "\r\n--{boundary}\r\nContent-Type: {of_type}\r\nContent-Range: {place}\r\n\r\n"
            );
            (head.into_bytes(), Some(*range))
        };
        let end = (format!("\r\n--{boundary}--\r\n").into_bytes(), None);
        ranges.iter().map(part).chain([end]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fields(&'static [(&'static str, &'static str)]);

    impl FieldSource for Fields {
        fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
            self.0.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))
        }
    }

    #[test]
    fn a_name_has_one_reading() {
        let name = |path: &str| {
            name_of(path.as_bytes(), false).map(|name| String::from_utf8(name).unwrap())
        };
        for (path, wanted) in [
            ("/", ""),
            ("/a", "a"),
            ("/a/b/", "a/b/"),
            ("/a b;c", "a b;c"),
            ("/100%25", "100%"),
            ("/%252e%252e/x", "%2e%2e/x"),
            ("/.well-known/x", ".well-known/x"),
            ("/a..b/c.", "a..b/c."),
        ] {
            assert_eq!(name(path).as_deref(), Some(wanted), "{path}");
        }
        for path in [
            "",
            "a",
            "*",
            "/..",
            "/a/../b",
            "/./a",
            "//a",
            "/a//b",
            "/a%2Fb",
            "/a%00",
            "/a\\b",
            "/.git/config",
            "/a/.htpasswd",
            "/..a",
            "/...",
            "/a\n",
            "/%",
        ] {
            assert_eq!(name(path), None, "{path}");
        }
        assert_eq!(name_of(b"/.git/config", true).unwrap(), b".git/config");
        for path in ["/..", "/./a", "/a/.."] {
            assert_eq!(name_of(path.as_bytes(), true), None, "{path}");
        }
        assert_eq!(name_of(&[b"/".to_vec(), vec![b'a'; 5000]].concat(), true), None);
    }

    fn reply(method: &str, fields: &'static [(&'static str, &'static str)]) -> (Reply, String) {
        let shown = Shown {
            name: b"a/b.HTML",
            bytes: 1000,
            modified_ns: 1_000_000_000_123_456_789,
            coding: None,
            varies: true,
            cache_control: Some("max-age=60"),
        };
        let request = Request { method: method.as_bytes(), fields: &Fields(fields) };
        let reply = shown.reply(&request, 2_000_000_000_000, || "B".to_owned());
        let lines = String::from_utf8(reply.lines.clone()).unwrap();
        (reply, lines)
    }

    #[test]
    fn a_file_has_validators_and_ranges() {
        let (whole, lines) = reply("GET", &[]);
        assert_eq!((whole.status, whole.content_length), (200, Some(1000)));
        for line in [
            "Content-Type: text/html; charset=utf-8\r\n",
            "ETag: \"de0b6b3aebfcd15-3e8\"\r\n",
            "Last-Modified: Sun, 09 Sep 2001 01:46:40 GMT\r\n",
            "Cache-Control: max-age=60\r\n",
            "Vary: Accept-Encoding\r\n",
        ] {
            assert!(lines.contains(line), "no {line:?} in {lines}");
        }
        let status = |fields| reply("GET", fields).0.status;
        assert_eq!(status(&[("If-None-Match", "\"de0b6b3aebfcd15-3e8\"")]), 304);
        assert_eq!(status(&[("If-Modified-Since", "Sun, 09 Sep 2001 01:46:40 GMT")]), 304);
        assert_eq!(status(&[("If-Modified-Since", "Sun, 09 Sep 2001 01:46:39 GMT")]), 200);
        assert_eq!(status(&[("If-Match", "\"other\"")]), 412);
        assert_eq!(status(&[("Range", "bytes=1000-")]), 416);
        let (part, lines) = reply("GET", &[("Range", "bytes=-10")]);
        assert_eq!((part.status, part.content_length), (206, Some(10)));
        assert!(lines.contains("Content-Range: bytes 990-999/1000\r\n"), "{lines}");
        let (parts, lines) = reply("GET", &[("Range", "bytes=0-9,500-509")]);
        assert!(lines.contains("multipart/byteranges; boundary=B\r\n"), "{lines}");
        let framed: usize = parts.content.iter().map(|(before, _)| before.len()).sum();
        assert_eq!(parts.content_length, Some(20 + framed as u64));
        assert_eq!(parts.content.iter().filter_map(|(_, range)| *range).count(), 2);
        assert_eq!(status(&[("Range", "bytes=0-9"), ("If-Range", "\"x\"")]), 200);
    }

    #[test]
    fn forms_have_other_tags_and_a_file_that_may_change_a_weak_one() {
        let shown = |coding, modified_ns| Shown {
            name: b"a",
            bytes: 0,
            modified_ns,
            coding,
            varies: true,
            cache_control: None,
        };
        let tag = |coding, modified_ns| {
            let validators = shown(coding, modified_ns).validators(10_000);
            String::from_utf8(validators.etag.unwrap().into()).unwrap()
        };
        assert_eq!(tag(None, 1), "\"1-0\"");
        assert_eq!(tag(Some(Coding::Gzip), 1), "\"1-0-gzip\"");
        assert!(tag(None, 9_000_000_000).starts_with("W/"));
        let order = |value: &str| {
            let accept = Accept::parse([value.as_bytes()].into_iter());
            beside(accept).map(|(_, ending)| ending).collect::<Vec<_>>().join("")
        };
        assert_eq!(order("gzip, br"), ".br.gz");
        assert_eq!(order("gzip, br;q=0.5, zstd;q=0"), ".gz.br");
        assert_eq!(order(""), "");
    }
}
