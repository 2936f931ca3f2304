//! What containers, syslog and consoles put before a line, or around it.
//!
//! ```text
//! {"log":"LINE\n","stream":"stdout","time":"2026-11-28T10:00:00.1Z"}     docker's json-file
//! 2026-11-28T10:00:00.1Z stdout F LINE                                   Kubernetes (CRI)
//! 2026-11-28T10:00:00.1Z LINE                                            docker logs -t
//! web-1  | LINE                                                          docker compose
//! [pod/web/nginx] LINE                                                   kubectl logs --prefix
//! <134>1 2026-11-28T10:00:00Z host app 17 - - LINE                       syslog, RFC 5424
//! <134>Nov 28 10:00:00 host app[17]: LINE                                syslog, RFC 3164
//! 2026-11-28T10:00:00+0000 host app[17]: LINE                            journalctl -o short-iso
//! I, [2026-11-28T10:00:00.123456 #17]  INFO -- : LINE                    Ruby's Logger
//! 2026/11/28 10:00:00.123 INFO http.log.access handled request {JSON}    a console
//! ```
//!
//! One layer is taken at a time. A time in a layer is the time of a JSON line that has none.

use std::borrow::Cow;

use super::json;
use super::stamp::Stamp;
use super::{NS_PER_S, Stamps};

/// Most layers around a line.
pub(super) const LAYERS_MAX: usize = 4;

/// A name before a line (a container, a tag of syslog) is not longer.
const NAME_BYTES_MAX: usize = 128;

/// One layer less.
pub(super) struct Unwrapped<'l> {
    pub(super) line: Cow<'l, [u8]>,
    /// When the layer was written, if it says so.
    pub(super) stamp: Option<Stamp>,
    /// Whether the line was written to the standard error.
    pub(super) to_stderr: bool,
}

/// Takes off the outermost layer, if there is one.
pub(super) fn unwrap<'l>(line: &'l [u8], stamps: &mut Stamps) -> Option<Unwrapped<'l>> {
    if let Some(rest) = line.strip_prefix(b"\xef\xbb\xbf") {
        return Some(after(rest, None));
    }
    if line.contains(&0x1b) {
        return Some(Unwrapped { line: uncoloured(line).into(), stamp: None, to_stderr: false });
    }
    if line.first() == Some(&b'{') {
        let inner = json::text_within(line, stamps)?;
        return Some(Unwrapped { line: inner.text.into(), ..after(b"", inner.stamp) })
            .map(|unwrapped| Unwrapped { to_stderr: inner.to_stderr, ..unwrapped });
    }
    let tried = stamped(line, stamps)
        .or_else(|| ruby(line, stamps))
        .or_else(|| syslog(line))
        .or_else(|| named(line));
    tried.or_else(|| json_at_the_end(line, stamps))
}

fn after(line: &[u8], stamp: Option<Stamp>) -> Unwrapped<'_> {
    Unwrapped { line: Cow::Borrowed(line), stamp, to_stderr: false }
}

/// Removes the sequences that colour a terminal.
fn uncoloured(line: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(line.len());
    let mut bytes = line.iter();
    while let Some(&byte) = bytes.next() {
        if byte != 0x1b {
            plain.push(byte);
        } else if bytes.next() == Some(&b'[') {
            // Parameters, and one letter that ends the sequence.
            bytes.by_ref().find(|byte| (0x40..=0x7e).contains(*byte));
        }
    }
    plain
}

/// A time of RFC 3339, and, in Kubernetes, the stream and whether the line is whole.
fn stamped<'l>(line: &'l [u8], stamps: &mut Stamps) -> Option<Unwrapped<'l>> {
    let end = memchr::memchr(b' ', &line[..line.len().min(40)]).filter(|&end| end >= 19)?;
    let stamp = stamps.iso(&line[..end])?;
    let rest = &line[end + 1..];
    for (stream, to_stderr) in [(&b"stdout "[..], false), (&b"stderr "[..], true)] {
        if let Some([b'F' | b'P', b' ', rest @ ..]) = rest.strip_prefix(stream) {
            return Some(Unwrapped { to_stderr, ..after(rest, Some(stamp)) });
        }
    }
    Some(after(rest, Some(stamp)))
}

/// The header of Ruby's Logger, and the tags that Rails puts after it.
fn ruby<'l>(line: &'l [u8], stamps: &mut Stamps) -> Option<Unwrapped<'l>> {
    let inside = line.get(1..)?.strip_prefix(b", [")?;
    let head = &inside[..inside.len().min(NAME_BYTES_MAX)];
    let stamp = stamps.iso(&head[..memchr::memchr(b' ', head)?])?;
    let dashes = memchr::memmem::find(head, b" -- ")?;
    let colon = dashes + memchr::memmem::find(&head[dashes..], b": ")?;
    let mut rest = &inside[colon + 2..];
    while let Some(tag) = rest.strip_prefix(b"[") {
        rest = &tag[memchr::memmem::find(tag, b"] ")? + 2..];
    }
    Some(after(rest, Some(stamp)))
}

/// A header of syslog. Its time is the relay's, and coarse, so it is not used.
fn syslog(line: &[u8]) -> Option<Unwrapped<'_>> {
    let line = match line.strip_prefix(b"<") {
        Some(rest) => {
            let close = memchr::memchr(b'>', &rest[..rest.len().min(4)])?;
            super::digits(&rest[..close])?;
            let rest = &rest[close + 1..];
            if let Some(rest) = rest.strip_prefix(b"1 ") {
                return structured(rest);
            }
            if super::stamp::month(rest.get(..3)?).is_none() {
                return Some(after(rest, None));
            }
            rest
        }
        None => line,
    };
    // `Nov 28 10:00:00 host tag[pid]: `, of which the host and the tag are a name.
    super::stamp::month(line.get(..3)?)?;
    let rest = line.get(16..).filter(|_| line[3] == b' ' && line[6] == b' ' && line[15] == b' ')?;
    named(rest)
}

/// The six fields of RFC 5424 after the version, and the structured data.
fn structured(line: &[u8]) -> Option<Unwrapped<'_>> {
    let mut rest = line;
    for _ in 0..5 {
        rest = &rest[memchr::memchr(b' ', rest)? + 1..];
    }
    rest = match rest.first()? {
        b'-' => rest.get(1..)?,
        b'[' => &rest[memchr::memmem::find(rest, b"] ")? + 1..],
        _ => return None,
    };
    let rest = rest.strip_prefix(b" ")?;
    Some(after(rest.strip_prefix(b"\xef\xbb\xbf").unwrap_or(rest), None))
}

/// `web-1  | `, `[pod/web/nginx] `, `host tag[17]: `, `tag: `.
fn named(line: &[u8]) -> Option<Unwrapped<'_>> {
    let head = &line[..line.len().min(NAME_BYTES_MAX)];
    let plain =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
    if let Some(bar) = memchr::memmem::find(head, b" | ") {
        let name = head[..bar].trim_ascii_end();
        if !name.is_empty() && name.iter().all(plain) {
            return Some(after(&line[bar + 3..], None));
        }
    }
    if let Some(rest) = head.strip_prefix(b"[pod/") {
        let close = memchr::memmem::find(rest, b"] ")?;
        return Some(after(&line[5 + close + 2..], None));
    }
    let colon = memchr::memmem::find(head, b": ")?;
    let name = |byte: &u8| plain(byte) || matches!(byte, b'[' | b']' | b'(' | b')' | b'@');
    let mut words = head[..colon].split(|&byte| byte == b' ');
    let tag = words.next_back()?;
    let host = words.next().unwrap_or_default();
    let fits = words.next().is_none() && !tag.is_empty();
    (fits && tag.iter().all(name) && host.iter().all(name)).then(|| after(&line[colon + 2..], None))
}

/// A JSON object that ends the line. The time may be at the line's beginning.
fn json_at_the_end<'l>(line: &'l [u8], stamps: &mut Stamps) -> Option<Unwrapped<'l>> {
    if line.trim_ascii_end().last() != Some(&b'}') {
        return None;
    }
    let brace = memchr::memchr_iter(b'{', line)
        .find(|&at| at > 0 && matches!(line[at - 1], b' ' | b'\t' | b'|' | b':'))?;
    let stamp = line.get(..10).zip(line.get(11..19)).and_then(|(date, time)| {
        let ns = match date[4] {
            b'/' => stamps.slashed(date, time)? * NS_PER_S,
            _ => return None,
        };
        let fraction = line[19..].strip_prefix(b".").unwrap_or_default();
        let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (fraction_ns, grain_ns) = super::stamp::fraction_ns(&fraction[..digits])?;
        Some(Stamp { ns: ns + fraction_ns, grain_ns })
    });
    Some(after(&line[brace..], stamp))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inner(line: &str) -> Option<(String, Option<i64>, bool)> {
        let unwrapped = unwrap(line.as_bytes(), &mut Stamps::default())?;
        let text = String::from_utf8_lossy(&unwrapped.line).into_owned();
        Some((text, unwrapped.stamp.map(|stamp| stamp.ns), unwrapped.to_stderr))
    }

    #[test]
    fn each_layer_is_taken_off() {
        let ns = 1_795_860_000_100_000_000;
        for (line, stamp, to_stderr) in [
            (
                r#"{"log":"a \"b\"\n","stream":"stdout","time":"2026-11-28T10:00:00.1Z"}"#,
                true,
                false,
            ),
            (
                r#"{"log":"a \"b\"\n","stream":"stderr","time":"2026-11-28T10:00:00.1Z"}"#,
                true,
                true,
            ),
            ("2026-11-28T10:00:00.1Z stdout F a \"b\"", true, false),
            ("2026-11-28T10:00:00.1Z stderr F a \"b\"", true, true),
            ("2026-11-28T10:00:00.1Z a \"b\"", true, false),
            ("2026-11-28T11:00:00.1+01:00 a \"b\"", true, false),
            ("web-1  | a \"b\"", false, false),
            ("[pod/web-7d/nginx] a \"b\"", false, false),
            ("<134>1 2026-11-28T10:00:00Z host app 17 - - a \"b\"", false, false),
            ("<134>1 2026-11-28T10:00:00Z host app 17 m [x@1 a=\"]\"] a \"b\"", false, false),
            ("<134>Nov 28 10:00:00 host app[17]: a \"b\"", false, false),
            ("Nov  8 10:00:00 host app: a \"b\"", false, false),
            ("host app[17]: a \"b\"", false, false),
            ("\u{feff}a \"b\"", false, false),
            ("\u{1b}[36ma \"b\"\u{1b}[0m", false, false),
        ] {
            let expected = ("a \"b\"".to_owned(), stamp.then_some(ns), to_stderr);
            assert_eq!(inner(line), Some(expected), "{line}");
        }
        for line in ["a \"b\"", "", "{", "{}", "<134", "Nov 28", "1: 2: x y {"] {
            let text = inner(line).map(|(text, ..)| text);
            assert!(text.is_none() || text.as_deref() == Some("2: x y {"), "{line}: {text:?}");
        }
        assert_eq!(inner("info: got {\"a\":{\"b\":1}}").unwrap().0, "got {\"a\":{\"b\":1}}");
        assert_eq!(inner("got it {\"a\":{\"b\":1}}").unwrap().0, "{\"a\":{\"b\":1}}");
    }
}
