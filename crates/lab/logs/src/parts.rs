//! Lines that a container runtime has split: containerd and CRI-O write a line of more than 16 KiB
//! as parts, and so does Docker.
//!
//! ```text
//! 2026-11-28T10:00:00.1Z stdout P BEGINNING          {"log":"BEGINNING","stream":"stdout",...}
//! 2026-11-28T10:00:00.1Z stdout F REST               {"log":"REST\n","stream":"stdout",...}
//! ```
//!
//! The parts of the standard output and of the standard error may alternate, so each stream is
//! joined by itself. A joined line has the header of its first part.
//!
//! What never happens: a line that is not split is copied; more than [`LINE_BYTES_MAX`] is kept for
//! a stream.

use std::ops::Range;

use crate::tail::LINE_BYTES_MAX;

/// What Docker writes before and after the text.
const DOCKER: (&[u8], &[u8]) = (b"{\"log\":\"", b"\",\"stream\":\"");

/// The longest stamp before a part.
const STAMP_BYTES_MAX: usize = 40;

/// A line of a container's log.
struct Part {
    /// 1 for the standard error.
    stream: usize,
    /// Whether the line of the container ends with it.
    is_last: bool,
    /// Where the text of the container is.
    text: Range<usize>,
}

impl Part {
    fn of(line: &[u8]) -> Option<Part> {
        match line.first()? {
            b'{' => Part::of_docker(line),
            b'0'..=b'9' => Part::of_cri(line),
            _ => None,
        }
    }

    fn of_cri(line: &[u8]) -> Option<Part> {
        let end = memchr::memchr(b' ', &line[..line.len().min(STAMP_BYTES_MAX)])?;
        let (stream, tag) = match line[end + 1..].split_at_checked(7)? {
            (b"stdout ", tag) => (0, tag),
            (b"stderr ", tag) => (1, tag),
            _ => return None,
        };
        let is_last = match tag {
            [b'F', b' ', ..] => true,
            [b'P', b' ', ..] => false,
            _ => return None,
        };
        Some(Part { stream, is_last, text: end + 10..line.len() })
    }

    fn of_docker(line: &[u8]) -> Option<Part> {
        let (before, after) = DOCKER;
        let text = line.strip_prefix(before)?;
        let end = before.len() + memchr::memmem::rfind(text, after)?;
        let stream = usize::from(line[end + after.len()..].starts_with(b"stderr"));
        Some(Part { stream, is_last: line[..end].ends_with(b"\\n"), text: before.len()..end })
    }
}

/// Whether a line is of a container's log, in which lines may be split.
#[cfg(feature = "survey")]
pub(crate) fn may_be_split(line: &[u8]) -> bool {
    Part::of(line).is_some()
}

/// Joins the parts of split lines, in the order in which they were written.
#[derive(Debug, Default)]
pub struct Joiner {
    /// The beginnings of split lines, by stream.
    begun: [Vec<u8>; 2],
    joined: Vec<u8>,
}

impl Joiner {
    /// The whole line, if this line is one or completes one. A line that would be longer than
    /// [`LINE_BYTES_MAX`] is passed on when it is complete, cut just above this limit.
    pub fn push<'a>(&'a mut self, line: &'a [u8]) -> Option<&'a [u8]> {
        let Some(Part { stream, is_last, text }) = Part::of(line) else { return Some(line) };
        let begun = &mut self.begun[stream];
        if is_last && begun.is_empty() {
            return Some(line);
        }
        let from = if begun.is_empty() { 0 } else { text.start };
        let to = if is_last { line.len() } else { text.end };
        if begun.len() <= LINE_BYTES_MAX {
            begun.extend_from_slice(&line[from..to]);
            begun.truncate(LINE_BYTES_MAX + 1);
        }
        debug_assert!(begun.len() <= LINE_BYTES_MAX + 1, "no more is kept for a stream");
        if !is_last {
            return None;
        }
        self.joined.clear();
        std::mem::swap(&mut self.joined, begun);
        Some(&self.joined)
    }

    /// Lines of which the last part has not come.
    #[cfg(feature = "survey")]
    pub(crate) fn unfinished(&mut self) -> impl Iterator<Item = Vec<u8>> {
        std::mem::take(&mut self.begun).into_iter().filter(|begun| !begun.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(lines: &[String]) -> Vec<String> {
        let mut joiner = Joiner::default();
        let whole = lines.iter().filter_map(|line| {
            joiner.push(line.as_bytes()).map(|line| String::from_utf8_lossy(line).into_owned())
        });
        whole.collect()
    }

    #[test]
    fn the_parts_of_a_line_are_joined_by_stream() {
        let cri = |stream: &str, tag: &str, text: &str| {
            format!("2026-11-28T10:00:00.1Z {stream} {tag} {text}")
        };
        let found = joined(&[
            cri("stdout", "F", "whole"),
            cri("stdout", "P", "a "),
            cri("stderr", "P", "x"),
            cri("stdout", "P", "b"),
            cri("stderr", "F", "y"),
            "no part".to_owned(),
            cri("stdout", "F", "c"),
            cri("stdout", "F", "d"),
        ]);
        let expected = [
            cri("stdout", "F", "whole"),
            cri("stderr", "P", "xy"),
            "no part".to_owned(),
            cri("stdout", "P", "a bc"),
            cri("stdout", "F", "d"),
        ];
        assert_eq!(found, expected);
        let docker = |text: &str| {
            format!(
                "{{\"log\":\"{text}\",\"stream\":\"stdout\",\"time\":\"2026-11-28T10:00:00Z\"}}"
            )
        };
        let found = joined(&[docker("a"), docker("b\\n"), docker("c\\n")]);
        assert_eq!(found, [docker("ab\\n"), docker("c\\n")]);
    }

    #[test]
    fn an_endless_line_of_parts_is_bounded() {
        let mut joiner = Joiner::default();
        let part = |tag: &str| format!("2026-11-28T10:00:00Z stdout {tag} {}", "x".repeat(16_384));
        for _ in 0..100 {
            assert_eq!(joiner.push(part("P").as_bytes()), None);
            assert!(joiner.begun[0].len() <= LINE_BYTES_MAX + 1);
        }
        assert_eq!(joiner.push(part("F").as_bytes()).unwrap().len(), LINE_BYTES_MAX + 1);
        assert_eq!(joiner.push(b"next"), Some(&b"next"[..]));
    }
}
