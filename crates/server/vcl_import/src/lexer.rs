//! The words of VCL, each with its line.

use std::rc::Rc;

use imported::note::Place;
use imported::{Parsed, SyntaxError};

/// A word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// A name with its dots: `req.http.host`, or a number with its unit: `1h`.
    Name(String),
    /// A text, without its quotes.
    Text(String),
    /// An operator or a bracket.
    Sign(&'static str),
}

/// A word and its line.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) word: Word,
    pub(crate) at: Place,
}

/// Longer signs come first.
const SIGNS: &[&str] = &[
    "==", "!=", "!~", "&&", "||", "<=", ">=", "+=", "-=", "*=", "/=", "{", "}", "(", ")", ";", ",",
    "=", "~", "!", "<", ">", "+", "-", "*", "/", "%",
];

/// Cuts a text into words.
///
/// # Errors
/// A text or a comment is not closed, or a character begins no word.
pub(crate) fn tokens(file: &Rc<str>, text: &str) -> Parsed<Vec<Token>> {
    let (mut all, mut rest, mut line) = (Vec::new(), text, 1);
    loop {
        let at = Place::new(file, line);
        let Some(first) = rest.chars().next() else { return Ok(all) };
        let word_of = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let (word, length) = if first.is_whitespace() {
            (None, first.len_utf8())
        } else if rest.starts_with('#') || rest.starts_with("//") {
            (None, rest.find('\n').unwrap_or(rest.len()))
        } else if rest.starts_with("/*") {
            let end = rest.find("*/");
            (None, end.ok_or_else(|| SyntaxError::at(&at, "a comment is not closed"))? + 2)
        } else if rest.starts_with("C{") {
            // A program in C, as a statement that is not known.
            let end = rest.find("}C").ok_or_else(|| SyntaxError::at(&at, "C{ is not closed"))?;
            all.push(Token { word: Word::Name("inline_c".to_owned()), at: at.clone() });
            (Some(Word::Sign(";")), end + 2)
        } else if let Some((text, length)) = quoted(rest) {
            let text = text.ok_or_else(|| SyntaxError::at(&at, "a text is not closed"))?;
            (Some(Word::Text(text)), length)
        } else if word_of(first) {
            // Names of fields have dashes; no other name is followed by one without a space.
            let name = |c: char| word_of(c) || matches!(c, '-' | ':');
            let end = rest.find(|c| !name(c)).unwrap_or(rest.len());
            (Some(Word::Name(rest[..end].to_owned())), end)
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (Some(Word::Sign(sign)), sign.len())
        } else {
            return Err(SyntaxError::at(&at, format!("{first:?} begins no word")));
        };
        all.extend(word.map(|word| Token { word, at }));
        let (passed, after) = rest.split_at(length);
        line += passed.bytes().filter(|b| *b == b'\n').count();
        rest = after;
    }
}

/// A text in quotes, in `{"` and `"}`, or in `"""`, and its length. The inner value is `None` if
/// it is not closed.
fn quoted(rest: &str) -> Option<(Option<String>, usize)> {
    for (open, close) in [("{\"", "\"}"), ("\"\"\"", "\"\"\""), ("\"", "\"")] {
        if let Some(inner) = rest.strip_prefix(open) {
            let end = inner.find(close);
            let text = end.map(|end| inner[..end].to_owned());
            let closed = text.filter(|text| open != "\"" || !text.contains('\n'));
            return Some((closed, open.len() + end.unwrap_or(0) + close.len()));
        }
    }
    None
}

/// A call `NAME(WORD, WORD, …)`: its name, and its arguments of one word each.
pub(crate) fn call(words: &[Word]) -> Option<(&str, Vec<&Word>)> {
    let [Word::Name(name), Word::Sign("("), inner @ .., Word::Sign(")")] = words else {
        return None;
    };
    let parts = inner.split(|word| *word == Word::Sign(","));
    let arguments = parts.map(|part| part.first().filter(|_| part.len() == 1));
    Some((name, arguments.collect::<Option<_>>()?))
}

/// Words as a note shows them.
pub(crate) fn shown(tokens: &[Token]) -> String {
    let mut text = String::new();
    for token in tokens {
        match &token.word {
            Word::Name(name) => text.push_str(name),
            Word::Text(inner) => text.push_str(&format!("\"{inner}\"")),
            Word::Sign(sign) => text.push_str(sign),
        }
        text.push(' ');
    }
    text.trim_end().replace(" ;", ";").replace("( ", "(").replace(" )", ")").replace(" (", "(")
}
