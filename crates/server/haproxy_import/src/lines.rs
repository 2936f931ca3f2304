//! The lines of a file: words, quotes, environment variables, and the sections that have them.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use imported::input::Input;
use imported::note::Place;
use imported::{Parsed, SyntaxError};

/// The most words of a line. HAProxy takes fewer.
const WORDS_MAX: usize = 256;

/// A line with at least one word.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub(crate) at: Place,
    pub(crate) words: Vec<String>,
    /// Whether it is inside `.if`, so that it may not be there.
    pub(crate) may_be_absent: bool,
}

impl Line {
    pub(crate) fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    pub(crate) fn rest(&self, skip: usize) -> &[String] {
        self.words.get(skip..).unwrap_or_default()
    }

    /// The word after a word.
    pub(crate) fn after(&self, name: &str) -> Option<&str> {
        let at = self.words.iter().position(|word| word == name)?;
        self.words.get(at + 1).map(String::as_str)
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.words.iter().any(|one| one == word)
    }

    /// The words up to `if` or `unless`, and the words from there on.
    pub(crate) fn split(&self) -> (&[String], &[String]) {
        let is_start = |word: &String| matches!(word.as_str(), "if" | "unless");
        let at = self.words.iter().position(is_start).unwrap_or(self.words.len());
        self.words.split_at(at)
    }
}

/// A section.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(crate) head: Line,
    pub(crate) lines: Vec<Line>,
    /// The section `defaults` that it inherits.
    pub(crate) base: Option<usize>,
}

impl Part {
    pub(crate) fn kind(&self) -> &str {
        self.head.word(0)
    }
}

/// Names of sections.
const SECTIONS: &str = "global defaults frontend backend listen userlist peers resolvers cache \
                        mailers program http-errors ring log-forward fcgi-app crt-store traces \
                        log-profile acme";

/// The sections of a file.
///
/// # Errors
/// A limit is exceeded, a quote is not closed, or a line is outside sections.
pub(crate) fn parse(file: &Rc<str>, text: &str, input: &mut Input<'_>) -> Parsed<Vec<Part>> {
    let mut parts: Vec<Part> = Vec::new();
    let mut variables = HashMap::new();
    let mut named = HashMap::new();
    let (mut last_defaults, mut depth) = (None, 0_usize);
    for (number, text) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        let mut at = Place::new(file, number);
        let words = words(text, &variables).map_err(|what| SyntaxError::at(&at, what))?;
        let Some(first) = words.first() else { continue };
        input.count_directive(&at)?;
        let shown: String = text.chars().take(400).collect::<String>().replace('\t', " ");
        // Users, and the login for the statistics, have passwords.
        let is_secret = first == "user" && words.len() > 2
            || words.starts_with(&["stats", "auth"].map(String::from));
        input.notes.directive(&mut at, if is_secret { first } else { shown.trim() });
        if let Some(directive) = first.strip_prefix('.') {
            match directive {
                "if" => depth += 1,
                "endif" => depth = depth.saturating_sub(1),
                _ => {}
            }
            let why = "conditions on the environment are not known here: its lines are in doubt";
            match directive {
                "if" => input.notes.left(&at, why),
                _ => input.notes.nothing(&at, "its `.if` has a note"),
            }
            continue;
        }
        if matches!(first.as_str(), "setenv" | "presetenv") && words.len() > 2 && depth == 0 {
            variables.insert(words[1].clone(), words[2].clone());
        }
        let line = Line { at, words, may_be_absent: depth > 0 };
        if !SECTIONS.split_whitespace().any(|one| one == line.word(0)) {
            let outside = "a line outside sections: is this a file of HAProxy?";
            let part = parts.last_mut().ok_or_else(|| SyntaxError::at(&line.at, outside))?;
            part.lines.push(line);
            continue;
        }
        let from = line.after("from").map(|name| named.get(name).copied());
        let base = match line.word(0) {
            "frontend" | "backend" | "listen" => from.unwrap_or(last_defaults),
            "defaults" => from.flatten(),
            _ => None,
        };
        if line.word(0) == "defaults" {
            last_defaults = Some(parts.len());
            named.insert(line.word(1).to_owned(), parts.len());
        }
        parts.push(Part { head: line, lines: Vec::new(), base });
    }
    Ok(parts)
}

/// The words of a line, without its comment.
fn words(text: &str, variables: &HashMap<String, String>) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quote) {
            ('\0', _) => return Err("a NUL is in this line".to_owned()),
            ('\'', Some('\'')) | ('"', Some('"')) => quote = None,
            ('\'' | '"', None) => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            ('\\', None | Some('"')) => {
                let next = chars.next().ok_or("a line ends with a backslash")?;
                let word = word.get_or_insert_default();
                match next {
                    't' => word.push('\t'),
                    'r' => word.push('\r'),
                    'n' => word.push('\n'),
                    ' ' | '\\' | '#' | '\'' | '"' | '$' => word.push(next),
                    // Another character keeps its backslash, as in regular expressions.
                    _ => word.extend(['\\', next]),
                }
            }
            ('$', Some('"')) => {
                let value = variable(&mut chars, variables);
                word.get_or_insert_default().push_str(&value);
            }
            ('#', None) => break,
            (' ' | '\t' | '\r', None) => all.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
        if all.len() > WORDS_MAX {
            return Err(format!("more than {WORDS_MAX} words in a line"));
        }
    }
    if quote.is_some() {
        return Err("a quote is not closed in this line".to_owned());
    }
    all.extend(word);
    Ok(all)
}

/// The value of a variable, after its `$`. A variable that the file does not set, and has no
/// default for, stays as `${NAME}`, which [`is_unknown`] finds.
fn variable(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    variables: &HashMap<String, String>,
) -> String {
    let has_brace = chars.next_if_eq(&'{').is_some();
    let of_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    let mut name = String::new();
    while let Some(c) = chars.next_if(of_name) {
        name.push(c);
    }
    let mut default = None;
    if has_brace {
        let rest: String = std::iter::from_fn(|| chars.next_if(|c| *c != '}')).collect();
        chars.next();
        let text = rest.strip_prefix(":-").or(rest.strip_prefix('-'));
        default = text.map(str::to_owned);
    }
    variables.get(&name).cloned().or(default).unwrap_or_else(|| format!("${{{name}}}"))
}

/// Whether a word has a variable whose value is not known.
pub(crate) fn is_unknown(word: &str) -> bool {
    word.contains("${")
}

/// A time: milliseconds, unless a unit follows.
pub(crate) fn time(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..end].parse().ok()?;
    let unit_us = match &text[end..] {
        "us" => 1,
        "" | "ms" => 1000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return None,
    };
    number.checked_mul(unit_us).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_quotes_escapes_and_variables() {
        let variables = HashMap::from([("A".to_owned(), "x y".to_owned())]);
        for (text, wanted) in [
            (r#" acl a  hdr(host) "x y"#.trim_end_matches('y'), "!"),
            (r"a b\ c\. '#$A\' d # e", r"a|b c\.|#$A\|d"),
            (
                r##"a "$A" "${A}z" "${B-d}" "${B:-d}" "$B" "\"#\$\d""##,
                r##"a|x y|x yz|d|d|${B}|"#$\d"##,
            ),
            ("a\t''\r", "a|"),
            ("# a", ""),
            ("a\\", "!"),
            ("a\0", "!"),
        ] {
            let found = words(text, &variables).map_or("!".to_owned(), |words| words.join("|"));
            assert_eq!(found, wanted, "{text:?}");
        }
        assert!(words(&"a ".repeat(WORDS_MAX + 2), &variables).is_err());
    }

    #[test]
    fn times() {
        assert_eq!(time("5"), Some(Duration::from_millis(5)));
        assert_eq!(time("2m"), Some(Duration::from_secs(120)));
        assert_eq!((time("5x"), time(""), time("99999999999999999d")), (None, None, None));
    }
}
