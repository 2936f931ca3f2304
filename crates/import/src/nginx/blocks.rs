//! The syntax of `nginx.conf`: directives with words, blocks in braces, comments, included files.

use std::rc::Rc;

use crate::SyntaxError;
use crate::input::Input;
use crate::limits::DEPTH_MAX;
use crate::note::{Notes, Place};

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

    /// The directive as a note shows it.
    pub(crate) fn shown(&self) -> String {
        match self.words.is_empty() {
            true => self.name.clone(),
            false => format!("{} {}", self.name, self.words.join(" ")),
        }
    }
}

/// The directives of a text and of the files that it includes.
///
/// # Errors
/// The text is not in the language, or exceeds a limit.
pub(crate) fn parse(
    file: &Rc<str>,
    text: &str,
    input: &mut Input<'_>,
    notes: &mut Notes,
) -> Result<Vec<Directive>, SyntaxError> {
    let mut reader = Reader { rest: text, line: 1, file };
    let all = reader.block(0, input, notes)?;
    match reader.token()? {
        Token::End => Ok(all),
        _ => Err(reader.error("a } without its {")),
    }
}

struct Reader<'t> {
    rest: &'t str,
    line: usize,
    file: &'t Rc<str>,
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Semicolon,
    Open,
    Close,
    End,
}

impl Reader<'_> {
    fn place(&self) -> Place {
        Place::new(self.file, self.line)
    }

    fn error(&self, what: &str) -> SyntaxError {
        SyntaxError::at(&self.place(), what)
    }

    /// Directives up to the closing brace, or to the end of the text at depth 0.
    fn block(
        &mut self,
        depth: usize,
        input: &mut Input<'_>,
        notes: &mut Notes,
    ) -> Result<Vec<Directive>, SyntaxError> {
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
            input.count_directive(&at)?;
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
                        block = Some(self.block(depth + 1, input, notes)?);
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
            let mut directive = Directive { at, name, words, block };
            let shown = directive.shown();
            notes.directive(&mut directive.at, &shown);
            if directive.name == "include" {
                include(directive, input, notes, &mut all)?;
            } else {
                all.push(directive);
            }
        }
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

    fn token(&mut self) -> Result<Token, SyntaxError> {
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

    fn quoted(&mut self, quote: char) -> Result<Token, SyntaxError> {
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
        let (mut end, mut before) = (self.rest.len(), ' ');
        for (at, c) in self.rest.char_indices() {
            // `${name}` is part of a word.
            let of_variable = c == '{' && before == '$';
            let ends = c.is_whitespace() || matches!(c, ';' | '{');
            if before != '\\' && ends && !of_variable {
                end = at;
                break;
            }
            before = c;
        }
        let (mut word, mut escaped) = (String::new(), false);
        for c in self.rest[..end].chars() {
            match c {
                c if escaped => {
                    unescape(c, &mut word);
                    escaped = false;
                }
                '\\' => escaped = true,
                c => word.push(c),
            }
        }
        self.pass(end);
        word
    }

    /// A block in another language: up to the brace that closes it.
    fn skip_code(&mut self) -> Result<(), SyntaxError> {
        let mut open = 1;
        for (at, c) in self.rest.char_indices() {
            match c {
                '{' => open += 1,
                '}' if open == 1 => {
                    self.pass(at + 1);
                    return Ok(());
                }
                '}' => open -= 1,
                _ => {}
            }
        }
        Err(self.error("a block is not closed"))
    }
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

fn include(
    directive: Directive,
    input: &mut Input<'_>,
    notes: &mut Notes,
    all: &mut Vec<Directive>,
) -> Result<(), SyntaxError> {
    let at = directive.at.clone();
    match input.files(&at, directive.word(0))? {
        Ok(files) => {
            notes.carried(&at);
            for (file, text) in files {
                all.extend(input.nested(&at, |input| parse(&file, &text, input, notes))?);
            }
        }
        // It stays as a directive: it may have had rules that keep requests out.
        Err(why) => {
            notes.unprotected(&at, why);
            all.push(directive);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<Directive>, SyntaxError> {
        let mut read = |_: &str| Err("no".to_owned());
        parse(&Rc::from("f"), text, &mut Input::new(&mut read), &mut Notes::default())
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

    #[test]
    fn errors_have_lines() {
        for (text, line) in [("a;\n}", 2), ("a {\n b;", 2), ("a\nb", 2), ("a 'x\n;", 1), (";", 1)] {
            assert_eq!(parsed(text).unwrap_err().line, line, "{text}");
        }
        assert!(parsed(&"a {".repeat(99)).unwrap_err().what.contains("nested"));
    }
}
