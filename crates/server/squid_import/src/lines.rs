//! The lines of `squid.conf`: words, comments, continued lines, and included files.

use std::rc::Rc;

use imported::input::Input;
use imported::note::Place;
use imported::{Parsed, SyntaxError};

/// A directive: its name and its words.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub(crate) at: Place,
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
}

impl Line {
    /// The words after the first `skip`.
    pub(crate) fn rest(&self, skip: usize) -> &[String] {
        self.words.get(skip..).unwrap_or_default()
    }

    /// The words after the first `skip` as options with their values.
    pub(crate) fn options(&self, skip: usize) -> impl Iterator<Item = (&str, &str)> {
        self.rest(skip).iter().map(|word| word.split_once('=').unwrap_or((word, "")))
    }

    pub(crate) fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    /// The directive as a note shows it.
    pub(crate) fn shown(&self) -> String {
        match self.name.as_str() {
            "acl" | "http_access" | "refresh_pattern" | "cache_peer" | "cache_peer_access" => {
                let words: Vec<&str> = self.words.iter().map(|word| public(word)).collect();
                format!("{} {}", self.name, words.join(" "))
            }
            name => name.to_owned(),
        }
    }
}

/// A word as notes show it: without a password.
pub(crate) fn public(word: &str) -> &str {
    match word.strip_prefix("login=") {
        Some(value) if !value.bytes().all(|b| b.is_ascii_uppercase()) => "login=...",
        _ => word,
    }
}

/// The directives of a text and of the files that it includes.
///
/// # Errors
/// A limit is exceeded, or a quote is not closed.
pub(crate) fn parse(file: &Rc<str>, text: &str, input: &mut Input<'_>) -> Parsed<Vec<Line>> {
    let mut lines = Vec::new();
    let mut number = 0;
    let mut rest = text.lines();
    // How many `if` blocks are open, whose directives are not carried.
    let mut conditions = 0_usize;
    while let Some(first) = rest.next() {
        number += 1;
        let at = Place::new(file, number);
        let Some(first) = content(first) else { continue };
        let mut whole = first.to_owned();
        // A blank after the backslash ends the line. Empty lines and comments are skipped, and the
        // next line is joined without its leading blanks.
        while whole.ends_with('\\') {
            whole.pop();
            let Some(next) = rest.next() else { break };
            number += 1;
            match content(next) {
                Some(next) => whole.push_str(next),
                None => whole.push('\\'),
            }
        }
        let mut words = words(&whole, &at)?;
        if words.is_empty() {
            continue;
        }
        input.count_directive(&at)?;
        let name = words.remove(0);
        let mut line = Line { at, name, words };
        let shown = line.shown();
        input.notes.directive(&mut line.at, &shown);
        match line.name.as_str() {
            "if" => {
                // It stays as a line: the block may have rules that deny.
                conditions += 1;
                input.notes.unprotected(&line.at, CONDITION);
                lines.push(line);
            }
            "else" | "endif" if conditions > 0 => {
                conditions -= usize::from(line.name == "endif");
                input.notes.left(&line.at, CONDITION);
            }
            _ if conditions > 0 => input.notes.unprotected(&line.at, CONDITION),
            "include" => {
                for name in &line.words {
                    let is_read = input.include(&line.at, name, |file, text, input| {
                        lines.extend(parse(file, text, input)?);
                        Ok(())
                    })?;
                    // It stays as a line: the file may have had rules that deny.
                    lines.extend((!is_read).then(|| line.clone()));
                }
            }
            _ => lines.push(line),
        }
    }
    Ok(lines)
}

/// A line without its leading blanks. Returns `None` for an empty line or a comment.
fn content(line: &str) -> Option<&str> {
    let line = line.split('\r').next().unwrap_or_default().trim_start_matches(is_blank);
    (!line.is_empty() && !line.starts_with('#')).then_some(line)
}

const CONDITION: &str = "what depends on a condition is not carried; write the branch that applies \
                         without its condition, and import again";

/// Whether a character separates words.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}

/// Splits at blanks. Double quotes keep blanks together, and stay: a quoted word can name a file.
fn words(text: &str, at: &Place) -> Parsed<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = text.trim_start_matches(is_blank);
    while !rest.is_empty() && !rest.starts_with('#') {
        let end = if let Some(inner) = rest.strip_prefix('"') {
            let close =
                inner.find('"').ok_or_else(|| SyntaxError::at(at, "a quote is not closed"))?;
            close + 2
        } else {
            rest.find(is_blank).unwrap_or(rest.len())
        };
        let (word, after) = rest.split_at(end);
        words.push(word.to_owned());
        rest = after.trim_start_matches(is_blank);
    }
    Ok(words)
}

/// The values of a list. A word that begins with a quote of either kind names a file with a value
/// in each line. Squid reads no word after a file.
pub(crate) fn values(
    words: &[String],
    at: &Place,
    input: &mut Input<'_>,
) -> Parsed<Result<Vec<String>, String>> {
    let mut values = Vec::new();
    for (number, word) in words.iter().enumerate() {
        let Some(name) = word.strip_prefix(QUOTES) else {
            values.push(word.clone());
            continue;
        };
        let name = name.split(QUOTES).next().unwrap_or_default();
        if name.contains(is_blank) {
            return Ok(Err("in Squid, the name of the file ends at the first blank".to_owned()));
        }
        if number + 1 < words.len() {
            return Ok(Err("Squid ignores the words after a file".to_owned()));
        }
        let files = match input.files(at, name)? {
            Ok(files) => files,
            Err(why) => return Ok(Err(why)),
        };
        let lines = files.iter().flat_map(|file| file.text.lines());
        for line in lines.map(|line| line.trim_matches(is_blank)) {
            let mut comments = line.match_indices('#').map(|(at, _)| &line[..at]);
            let before = comments.find(|text| text.is_empty() || text.ends_with(is_blank));
            let value = before.unwrap_or(line).trim_end_matches(is_blank);
            if !value.is_empty() {
                input.count_directive(at)?;
                values.push(value.to_owned());
            }
        }
    }
    Ok(Ok(values))
}

const QUOTES: [char; 2] = ['"', '\''];

/// A time: a number and a unit, seconds if there is none.
pub(crate) fn time(words: &[String]) -> Option<std::time::Duration> {
    let number: f64 = words.first()?.parse().ok()?;
    let unit = match words.get(1).map(|unit| unit.trim_end_matches('s')) {
        None | Some("second") => 1.0,
        Some("millisecond") => 0.001,
        Some("minute") => 60.0,
        Some("hour") => 3600.0,
        Some("day") => 86_400.0,
        Some("week") => 604_800.0,
        Some(_) => return None,
    };
    let seconds = number * unit;
    (0.0..=31_000_000.0).contains(&seconds).then(|| std::time::Duration::from_secs_f64(seconds))
}

/// A size: a number and a unit, bytes if there is none.
pub(crate) fn size(words: &[String]) -> Option<u64> {
    let number: f64 = words.first()?.parse().ok()?;
    let shift = match words.get(1).map(|unit| unit.to_ascii_lowercase()).as_deref() {
        None | Some("bytes" | "byte" | "b") => 0,
        Some("kb") => 10,
        Some("mb") => 20,
        Some("gb") => 30,
        Some(_) => return None,
    };
    let bytes = number * (1_u64 << shift) as f64;
    (0.0..1e15).contains(&bytes).then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_comments_and_continued_lines() {
        let text = "# a comment \\\nacl a src \\\n  10.0.0.1   # why\n\nport 80 \"x y\" a#b\n";
        let mut read = |_: &str| Err("no".to_owned());
        let mut input = Input::new(&mut read, false);
        let lines = parse(&Rc::from("f"), text, &mut input).unwrap();
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].at.line, lines[0].shown()), (2, "acl a src 10.0.0.1".to_owned()));
        assert_eq!((lines[1].at.line, lines[1].words.join("|")), (5, "80|\"x y\"|a#b".to_owned()));
    }

    /// A comment, or a blank after a backslash, took the rest of a list, or the next line, away.
    #[test]
    fn lines_are_continued_as_squid_continues_them() {
        for (text, wanted) in [
            ("acl a src \\\n# 10.0.0.1 \\\n\n 10.0.0.2\nport 1\n", "acl a src 10.0.0.2"),
            ("acl a src 10.0.0.1 \\ \nport 1\n", "acl a src 10.0.0.1 \\"),
            (
                "acl a src 10.0.0.1\\\n  7 \\\r\n 10.0.0.2\r\nport 1\r\n",
                "acl a src 10.0.0.17 10.0.0.2",
            ),
            ("acl a src 1 # \\\n 2\nport 1\n", "acl a src 1"),
        ] {
            let mut read = |_: &str| Err("no".to_owned());
            let mut input = Input::new(&mut read, false);
            let lines = parse(&Rc::from("f"), text, &mut input).unwrap();
            assert_eq!(lines.len(), 2, "{text:?}: {lines:?}");
            assert_eq!((&*lines[0].shown(), &*lines[1].name), (wanted, "port"), "{text:?}");
        }
    }

    /// A file in single quotes was a value. Words after a file were values too, and a comment after
    /// a tab was part of its value.
    #[test]
    fn files_of_lists_are_read_as_squid_reads_them() {
        let of = |text: &str| {
            let mut read = |name: &str| {
                let text = "a\t# c\n  b \x0c\n#c\n d#e\n".to_owned();
                Ok(vec![imported::Included { name: name.to_owned(), text }])
            };
            let mut input = Input::new(&mut read, false);
            let words = words(text, &Place::default()).unwrap();
            values(&words, &Place::default(), &mut input).unwrap()
        };
        let all: Vec<String> = ["x", "a", "b \x0c", "d#e"].map(str::to_owned).to_vec();
        for text in ["x \"f\"", "x 'f'", "x 'f", "x 'f\"y"] {
            assert_eq!(of(text).as_ref(), Ok(&all), "{text}");
        }
        for text in ["x \"f\" y", "'f' y", "\"f\"y", "\"f g\"", "'f g'"] {
            assert!(of(text).is_err(), "{text}");
        }
        assert_eq!(of("it's").unwrap(), ["it's"]);
    }

    #[test]
    fn units() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(time(&words("2 minutes")), Some(std::time::Duration::from_secs(120)));
        assert_eq!(time(&words("2 fortnights")), None);
        assert_eq!(size(&words("256 MB")), Some(256 << 20));
        assert_eq!(size(&words("-1 MB")), None);
    }
}
