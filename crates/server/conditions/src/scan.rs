//! The tokens of a text, read before the parser reads the text.
//!
//! Why: the parser of the crate `cel` recurses, and reports mistakes in the words of its grammar.
//! This scan applies the limits first, so that the parser never recurses deep. It also reports the
//! usual mistakes in plain words. The tokens have the places of brackets, which the syntax tree of
//! `cel` does not have.
//!
//! Invariants: the ranges of tokens ascend and do not overlap; each opening bracket has its closing
//! bracket in `partner`, and the reverse.

use std::ops::Range;

use crate::limits::{DEPTH_MAX, LINKS_MAX, TEXT_BYTES_MAX, TOKENS_MAX};
use crate::mistake::Mistake;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Word,
    Number,
    Text,
    Open,
    Close,
    /// `&&`, `||`, `,` and `:`, after which a new term begins.
    Joint,
    /// `?`
    Question,
    /// `==`, `!=`, `<`, `<=`, `>`, `>=`
    Comparison,
    Dot,
    /// `!` and `-`
    Sign,
}

#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) at: Range<usize>,
    pub(crate) kind: Kind,
    /// The index of the other bracket.
    pub(crate) partner: usize,
}

/// The tokens of a text.
#[derive(Debug)]
pub(crate) struct Tokens {
    pub(crate) all: Vec<Token>,
}

/// Reads the tokens of a text within the limits.
pub(crate) fn scan(text: &str) -> Result<Tokens, Mistake> {
    if text.len() > TEXT_BYTES_MAX {
        let why = format!("the condition has more than {TEXT_BYTES_MAX} bytes");
        return Err(Mistake::new(&(0..text.len()), why));
    }
    let mut scan =
        Scan { text, at: 0, tokens: Vec::new(), open: Vec::new(), levels: vec![Level::new()] };
    while scan.skip_space()? {
        let token = scan.token()?;
        scan.push(token)?;
    }
    if let Some(open) = scan.open.last() {
        let at = &scan.tokens[*open].at;
        return Err(Mistake::new(at, format!("`{}` is not closed", &text[at.clone()])));
    }
    if scan.tokens.is_empty() {
        return Err(Mistake::new(&(0..text.len()), "the condition is empty"));
    }
    Ok(Tokens { all: scan.tokens })
}

/// The letters of escapes.
const ESCAPES: &str = "abfnrtv\\?\"'`xXuU0123";

const ESCAPE: &str =
    "CEL has no escape of this kind: write a backslash as \\\\, or write the string as r'…'";

struct Scan<'t> {
    text: &'t str,
    at: usize,
    tokens: Vec<Token>,
    /// The brackets that are open.
    open: Vec<usize>,
    /// One for the text, and one for each open bracket.
    levels: Vec<Level>,
}

/// What counts in one pair of brackets.
struct Level {
    links: usize,
    questions: usize,
}

impl Level {
    fn new() -> Level {
        Level { links: 0, questions: 0 }
    }
}

impl Scan<'_> {
    fn rest(&self) -> &[u8] {
        &self.text.as_bytes()[self.at..]
    }

    /// Whether there is another token.
    fn skip_space(&mut self) -> Result<bool, Mistake> {
        self.at += self.rest().iter().take_while(|byte| b" \t\r\n\x0c".contains(byte)).count();
        if self.rest().starts_with(b"//") {
            return Err(self.wrong(2, "conditions have no comments"));
        }
        Ok(!self.rest().is_empty())
    }

    fn token(&mut self) -> Result<Token, Mistake> {
        let rest = self.rest();
        let first = rest[0];
        let second = rest.get(1).copied().unwrap_or(0);
        let (kind, bytes) = match first {
            b'\'' | b'"' => return self.literal(0),
            b'r' | b'R' if matches!(second, b'\'' | b'"') => return self.literal(1),
            b'b' | b'B' if matches!(second, b'\'' | b'"') => {
                return Err(
                    self.wrong(2, "bytes literals are not used in conditions: write 'text'")
                );
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => (Kind::Word, self.word()),
            b'0'..=b'9' => (Kind::Number, self.number()),
            b'.' if second.is_ascii_digit() => (Kind::Number, self.number()),
            b'(' | b'[' => (Kind::Open, 1),
            b')' | b']' => (Kind::Close, 1),
            b',' | b':' => (Kind::Joint, 1),
            b'.' => (Kind::Dot, 1),
            b'?' => (Kind::Question, 1),
            b'&' if second == b'&' => (Kind::Joint, 2),
            b'|' if second == b'|' => (Kind::Joint, 2),
            b'=' | b'!' | b'<' | b'>' if second == b'=' => (Kind::Comparison, 2),
            b'<' | b'>' => (Kind::Comparison, 1),
            b'!' | b'-' => (Kind::Sign, 1),
            b'&' => return Err(self.wrong(1, "write `&&` for and")),
            b'|' => return Err(self.wrong(1, "write `||` for or")),
            b'=' => return Err(self.wrong(1, "write `==` to compare")),
            b'~' => {
                return Err(self.wrong(1, "write `path.matches('…')` for a regular expression"));
            }
            b'+' | b'*' | b'/' | b'%' => return Err(self.wrong(1, "conditions do not calculate")),
            b'{' | b'}' => {
                return Err(self.wrong(1, "maps are written in the configuration, with a name"));
            }
            _ => {
                let character = self.text[self.at..].chars().next().expect("there is a byte");
                let why = format!("{character:?} is not a character of conditions");
                return Err(self.wrong(character.len_utf8(), &why));
            }
        };
        let at = self.at..self.at + bytes;
        Ok(Token { at, kind, partner: 0 })
    }

    fn wrong(&self, bytes: usize, why: &str) -> Mistake {
        Mistake::new(&(self.at..self.at + bytes), why)
    }

    fn word(&self) -> usize {
        let is_letter = |byte: &&u8| byte.is_ascii_alphanumeric() || **byte == b'_';
        self.rest().iter().take_while(is_letter).count()
    }

    /// A number as `cel` reads it; letters that follow belong to it, and the parser refuses them.
    fn number(&self) -> usize {
        let rest = self.rest();
        let mut bytes = 0;
        while let Some(byte) = rest.get(bytes) {
            let is_exponent = matches!(byte, b'+' | b'-')
                && matches!(rest.get(bytes.wrapping_sub(1)), Some(b'e' | b'E'))
                && !rest.starts_with(b"0x");
            let is_point = *byte == b'.' && rest.get(bytes + 1).is_some_and(u8::is_ascii_digit);
            if !byte.is_ascii_alphanumeric() && !is_exponent && !is_point {
                break;
            }
            bytes += 1;
        }
        bytes
    }

    /// A string, after a prefix of so many bytes.
    fn literal(&mut self, prefix: usize) -> Result<Token, Mistake> {
        let rest = self.rest();
        let quote = rest[prefix];
        let is_long = rest[prefix..].starts_with(&[quote; 3]);
        let end: &[u8] = if is_long { &[quote; 3] } else { &[quote] };
        let mut next = prefix + end.len();
        while next < rest.len() {
            if rest[next..].starts_with(end) {
                let at = self.at..self.at + next + end.len();
                return Ok(Token { at, kind: Kind::Text, partner: 0 });
            }
            match rest[next] {
                b'\\' if prefix == 0 => {
                    // The digits after the letter are for the parser.
                    let letter = self.text[self.at + next + 1..].chars().next();
                    let is_wrong = |letter: &char| !ESCAPES.contains(*letter);
                    if let Some(letter) = letter.filter(is_wrong) {
                        let at = self.at + next..self.at + next + 1 + letter.len_utf8();
                        return Err(Mistake::new(&at, ESCAPE));
                    }
                    next += 2;
                }
                b'\n' | b'\r' if !is_long => break,
                _ => next += 1,
            }
        }
        Err(self.wrong(prefix + end.len(), "the string has no closing quote"))
    }

    fn push(&mut self, mut token: Token) -> Result<(), Mistake> {
        let own = self.tokens.len();
        self.at = token.at.end;
        let before = self.tokens.last().map(|token| token.kind);
        let is_after_value =
            matches!(before, Some(Kind::Word | Kind::Number | Kind::Text | Kind::Close));
        let depth =
            self.open.len() + self.levels.iter().map(|level| level.questions).sum::<usize>();
        let level = self.levels.last_mut().expect("the text has a level");
        let text = &self.text[token.at.clone()];
        match token.kind {
            Kind::Joint => level.links = 0,
            Kind::Question => {
                level.links = 0;
                level.questions += 1;
            }
            Kind::Comparison | Kind::Dot => level.links += 1,
            Kind::Word if text == "in" => level.links += 1,
            Kind::Open => {
                // An index or a call.
                level.links += usize::from(is_after_value);
                self.open.push(own);
                self.levels.push(Level::new());
            }
            Kind::Close => {
                let opening = if text == ")" { "(" } else { "[" };
                let open = self.open.pop();
                let is_its = |open: &usize| &self.text[self.tokens[*open].at.clone()] == opening;
                let Some(open) = open.filter(is_its) else {
                    let why = format!("`{text}` closes nothing: `{opening}` is missing");
                    return Err(Mistake::new(&token.at, why));
                };
                self.levels.pop();
                token.partner = open;
                self.tokens[open].partner = own;
            }
            Kind::Sign if text == "-" && is_after_value => {
                return Err(Mistake::new(&token.at, "conditions do not calculate"));
            }
            Kind::Word | Kind::Number | Kind::Text | Kind::Sign => {}
        }
        let links = self.levels.last().expect("the text has a level").links;
        let why = if depth > DEPTH_MAX {
            format!("brackets and `? :` nest deeper than {DEPTH_MAX} levels")
        } else if links > LINKS_MAX {
            format!("one term has more than {LINKS_MAX} operators")
        } else if own >= TOKENS_MAX {
            format!("the condition has more than {TOKENS_MAX} words and signs")
        } else {
            self.tokens.push(token);
            return Ok(());
        };
        Err(Mistake::new(&token.at, why))
    }
}

impl Tokens {
    /// The token that begins at a byte, or else the token with this byte.
    pub(crate) fn at(&self, byte: usize) -> Option<usize> {
        let after = self.all.partition_point(|token| token.at.start <= byte);
        let index = after.checked_sub(1)?;
        (byte < self.all[index].at.end).then_some(index)
    }

    /// Extends a range of tokens, first and last, until every bracket in it has its partner.
    pub(crate) fn balanced(&self, first: usize, last: usize) -> (usize, usize) {
        let (mut first, mut last, mut next) = (first, last, first);
        while next <= last {
            let token = &self.all[next];
            match token.kind {
                Kind::Open => last = last.max(token.partner),
                Kind::Close if token.partner < first => {
                    first = token.partner;
                    next = first;
                }
                _ => {}
            }
            next += 1;
        }
        (first, last)
    }
}
