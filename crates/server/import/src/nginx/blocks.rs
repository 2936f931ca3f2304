//! The syntax of `nginx.conf`: directives with words, blocks in braces, comments, included files.

use std::rc::Rc;

use crate::{Parsed, SyntaxError};
use imported::input::Input;
use imported::limits::DEPTH_MAX;
use imported::note::Place;

/// A directive, with its block if it has one.
#[derive(Clone, Debug)]
pub(crate) struct Directive {
    pub(crate) at: Place,
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
    pub(crate) block: Option<Vec<Directive>>,
}

impl Directive {
    pub(crate) fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }

    /// Its block, empty if it has none.
    pub(crate) fn inner(&self) -> &[Directive] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Its option of this name, `name=value`; empty if it has none.
    pub(crate) fn option(&self, name: &str) -> &str {
        let values = self.words.iter().filter_map(|word| word.split_once('='));
        values.into_iter().find(|(option, _)| *option == name).map_or("", |(_, value)| value)
    }

    /// The directive as a note shows it.
    pub(crate) fn shown(&self) -> String {
        match self.words.is_empty() {
            true => self.name.clone(),
            false => format!("{} {}", self.name, self.words.join(" ")),
        }
    }
}

/// Files of nginx, Debian and certbot with content types, parameters of programs, fields for
/// upstreams, and settings of TLS.
const KNOWN_FILES: &[&str] = &[
    "mime.types",
    "proxy_params",
    "fastcgi_params",
    "fastcgi.conf",
    "uwsgi_params",
    "scgi_params",
    "options-ssl-nginx.conf",
    "koi-utf",
    "koi-win",
    "win-utf",
];

/// The directives of a text and of the files that it includes.
///
/// # Errors
/// The text is not in the language, or exceeds a limit.
pub(crate) fn parse(file: &Rc<str>, text: &str, input: &mut Input<'_>) -> Parsed<Vec<Directive>> {
    let mut reader = Reader { rest: text, line: 1, file, input };
    let all = reader.block(0)?;
    match reader.token()? {
        Token::End => Ok(all),
        _ => Err(reader.error("a } without its {")),
    }
}

struct Reader<'t, 'i, 'r> {
    rest: &'t str,
    line: usize,
    file: &'t Rc<str>,
    input: &'i mut Input<'r>,
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Semicolon,
    Open,
    Close,
    End,
}

impl Reader<'_, '_, '_> {
    fn place(&self) -> Place {
        Place::new(self.file, self.line)
    }

    fn error(&self, what: &str) -> SyntaxError {
        SyntaxError::at(&self.place(), what)
    }

    /// Directives up to the closing brace, or to the end of the text at depth 0.
    fn block(&mut self, depth: usize) -> Parsed<Vec<Directive>> {
        if depth > DEPTH_MAX {
            return Err(self.error(&format!("blocks are nested more than {DEPTH_MAX} deep")));
        }
        let mut all = Vec::new();
        loop {
            self.blanks();
            if self.rest.is_empty() || self.rest.starts_with('}') {
                return Ok(all);
            }
            let at = self.place();
            self.input.count_directive(&at)?;
            let Token::Word(name) = self.token()? else {
                return Err(self.error("a directive begins with its name"));
            };
            let (mut words, mut block) = (Vec::new(), None);
            loop {
                match self.token()? {
                    Token::Word(word) => words.push(word),
                    Token::Semicolon => break,
                    Token::Open if name.ends_with("_by_lua_block") => {
                        self.skip_code()?;
                        block = Some(Vec::new());
                        break;
                    }
                    Token::Open => {
                        block = Some(self.block(depth + 1)?);
                        if self.token()? != Token::Close {
                            return Err(self.error("a { is not closed"));
                        }
                        break;
                    }
                    Token::Close | Token::End => {
                        return Err(self.error(&format!("{name} does not end with ;")));
                    }
                }
            }
            if name == "location" && words.len() == 1 {
                let sign = ["^~", "~*", "~", "="].iter().find(|sign| words[0].starts_with(**sign));
                if let Some(sign) = sign {
                    words = vec![(*sign).to_owned(), words[0][sign.len()..].to_owned()];
                }
            }
            let mut directive = Directive { at, name, words, block };
            let shown = directive.shown();
            self.input.notes.directive(&mut directive.at, &shown);
            let is_included = directive.name == "include"
                && (self.is_left_out(&directive)?
                    || self.input.include(
                        &directive.at,
                        directive.word(0),
                        |file, text, input| {
                            all.extend(parse(file, text, input)?);
                            Ok(())
                        },
                    )?);
            // An include that cannot be read stays as a directive.
            if !is_included {
                all.push(directive);
            }
        }
    }

    /// Whether an include is of a file that cannot be read, and that keeps no request out by what
    /// its name says.
    fn is_left_out(&mut self, include: &Directive) -> Parsed<bool> {
        let name = include.word(0);
        let is_known = KNOWN_FILES.contains(&name.rsplit('/').next().unwrap_or_default());
        if !is_known || self.input.files(&include.at, name)?.is_ok() {
            return Ok(false);
        }
        let text = "it cannot be read; a file of this name keeps no request out";
        self.input.notes.left(&include.at, text);
        Ok(true)
    }

    fn blanks(&mut self) {
        loop {
            let trimmed = self.rest.trim_start();
            self.pass(self.rest.len() - trimmed.len());
            if !self.rest.starts_with('#') {
                return;
            }
            self.pass(self.rest.find('\n').unwrap_or(self.rest.len()));
        }
    }

    fn pass(&mut self, bytes: usize) {
        let (passed, rest) = self.rest.split_at(bytes);
        self.line += passed.bytes().filter(|b| *b == b'\n').count();
        self.rest = rest;
    }

    fn token(&mut self) -> Parsed<Token> {
        self.blanks();
        let one = match self.rest.as_bytes().first() {
            None => return Ok(Token::End),
            Some(b';') => Token::Semicolon,
            Some(b'{') => Token::Open,
            Some(b'}') => Token::Close,
            Some(quote @ (b'"' | b'\'')) => return self.quoted(char::from(*quote)),
            Some(_) => return Ok(Token::Word(self.bare())),
        };
        self.pass(1);
        Ok(one)
    }

    fn quoted(&mut self, quote: char) -> Parsed<Token> {
        let (mut word, mut escaped) = (String::new(), false);
        for (at, c) in self.rest.char_indices().skip(1) {
            match c {
                c if escaped => {
                    unescape(c, &mut word);
                    escaped = false;
                }
                '\\' => escaped = true,
                c if c == quote => {
                    self.pass(at + 1);
                    return Ok(Token::Word(word));
                }
                c => word.push(c),
            }
        }
        Err(self.error("a quote is not closed"))
    }

    fn bare(&mut self) -> String {
        let (mut word, mut end) = (String::new(), self.rest.len());
        let (mut escaped, mut after_sign) = (false, false);
        for (at, c) in self.rest.char_indices() {
            // The character after a backslash ends no word; a second backslash escapes nothing.
            if escaped {
                unescape(c, &mut word);
                escaped = false;
                continue;
            }
            // `${name}` is part of a word.
            let of_variable = c == '{' && after_sign;
            if !of_variable && (c.is_whitespace() || matches!(c, ';' | '{')) {
                end = at;
                break;
            }
            (escaped, after_sign) = (c == '\\', c == '$');
            if !escaped {
                word.push(c);
            }
        }
        self.pass(end);
        word
    }

    /// A block of Lua: up to the brace that closes it. Braces in strings and comments are text.
    fn skip_code(&mut self) -> Parsed<()> {
        let (text, mut open, mut at) = (self.rest, 1, 0);
        while let Some(c) = text[at..].chars().next() {
            let rest = &text[at..];
            let length = match c {
                '-' if rest.starts_with("--") => match long_bracket(&rest[2..]) {
                    Some(length) => 2 + length,
                    None => rest.find('\n').unwrap_or(rest.len()),
                },
                '[' => long_bracket(rest).unwrap_or(1),
                '"' | '\'' => string(rest, c),
                c => c.len_utf8(),
            };
            open += i32::from(c == '{') - i32::from(c == '}');
            at += length;
            if open == 0 {
                self.pass(at);
                return Ok(());
            }
        }
        Err(self.error("a block is not closed"))
    }
}

/// The length of `[[…]]` or `[=[…]=]` at the start of a text, if it begins with one.
fn long_bracket(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('[')?;
    let level = inner.len() - inner.trim_start_matches('=').len();
    inner[level..].strip_prefix('[')?;
    let close = format!("]{}]", "=".repeat(level));
    Some(text.find(&close).map_or(text.len(), |at| at + close.len()))
}

/// The length of a string at the start of a text, with its quotes.
fn string(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Adds the character after a backslash. Expressions keep their backslashes.
fn unescape(c: char, word: &mut String) {
    match c {
        '"' | '\'' | '\\' => word.push(c),
        'n' => word.push('\n'),
        'r' => word.push('\r'),
        't' => word.push('\t'),
        _ => word.extend(['\\', c]),
    }
}

/// The directives of this name.
pub(crate) fn named<'d>(
    all: &'d [Directive],
    name: &'static str,
) -> impl Iterator<Item = &'d Directive> {
    all.iter().filter(move |one| one.name == name)
}

/// These directives and all inside their blocks.
pub(crate) fn with_inner(all: &[Directive]) -> impl Iterator<Item = &Directive> {
    let mut levels = vec![all.iter()];
    std::iter::from_fn(move || {
        loop {
            match levels.last_mut()?.next() {
                Some(one) => {
                    levels.push(one.inner().iter());
                    return Some(one);
                }
                None => _ = levels.pop(),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Parsed<Vec<Directive>> {
        let mut read = |_: &str| Err("no".to_owned());
        parse(&Rc::from("f"), text, &mut Input::new(&mut read, false))
    }

    #[test]
    fn words_quotes_and_blocks() {
        let text = "user a; # b\nhttp {\n  set $x \"a \\\" b\\d\"; log '${y} {';\n y ${z}w;}\n";
        let all = parsed(text).unwrap();
        assert_eq!(all.len(), 2);
        let inner = all[1].inner();
        assert_eq!((inner[0].at.line, inner[0].word(1)), (3, "a \" b\\d"));
        assert_eq!(inner[1].words, ["${y} {"]);
        assert_eq!(inner[2].words, ["${z}w"]);
    }

    /// Two backslashes before a semicolon joined it to the next directive, which was lost.
    #[test]
    fn an_escaped_backslash_escapes_nothing() {
        for (text, words) in [
            ("a C:\\\\d\\\\; deny all;", vec!["C:\\d\\"]),
            ("a \\; b; deny all;", vec!["\\;", "b"]),
            ("a \\\\\\; b; deny all;", vec!["\\\\;", "b"]),
            ("a x\\{y; deny all;", vec!["x\\{y"]),
        ] {
            let all = parsed(text).unwrap();
            assert_eq!(all.len(), 2, "{text}: {all:?}");
            assert_eq!(all[0].words, words, "{text}");
            assert_eq!((&*all[1].name, all[1].word(0)), ("deny", "all"), "{text}");
        }
    }

    #[test]
    fn braces_in_strings_and_comments_of_lua_close_nothing() {
        for code in
            ["x = \"{\"", "-- {\nx()", "--[[ { ]] x()", "x = [=[ { ]] ]=]", "x = '\\'{'", "t = {}"]
        {
            let text = format!("content_by_lua_block {{ {code} }} deny all;");
            let all = parsed(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((all.len(), &*all[1].name), (2, "deny"), "{text}");
        }
    }

    #[test]
    fn errors_have_lines() {
        for (text, line) in [("a;\n}", 2), ("a {\n b;", 2), ("a\nb", 2), ("a 'x\n;", 1), (";", 1)] {
            assert_eq!(parsed(text).unwrap_err().line, line, "{text}");
        }
        assert!(parsed(&"a {".repeat(99)).unwrap_err().what.contains("nested"));
    }
}
