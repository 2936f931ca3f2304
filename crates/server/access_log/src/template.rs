//! A format string of the operator, in Squid's `logformat` codes or in Apache's `LogFormat` codes.
//!
//! The text is parsed once into a list of pieces. Writing a line walks the list and does not
//! allocate. The codes of both dialects are in two tables ([`SQUID`], [`APACHE`]), from which the
//! parser, the reference and the suggestions in errors are made.
//!
//! Squid's grammar: `%`, a quoting (`"` `[` `#` `'`), `-` for left, a width with `0` for zeros, `.`
//! and a maximum length, `{argument}`, the code (the longest that fits). Without a quoting, a value
//! between `"` or `[` in the text is escaped for that place. Apache's grammar: `%`, `!` and a list
//! of statuses, `<` or `>`, `{argument}`, one letter. Times are in UTC.

use super::codes::{APACHE, APACHE_WITHOUT, Argument, Code, SQUID, SQUID_WITHOUT, What, value};
use super::names::{self, NAMES, Part};
use super::record::Record;
use super::text::Quote;

/// Whose codes a format is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Squid,
    Apache,
    Names,
}

impl Dialect {
    /// The name of its owner, and the codes that have no value here.
    fn name_and_without(self) -> (&'static str, &'static str) {
        match self {
            Dialect::Squid => ("Squid's", SQUID_WITHOUT),
            Dialect::Apache => ("Apache's", APACHE_WITHOUT),
            Dialect::Names => ("", ""),
        }
    }

    /// Each name with its code.
    pub(super) fn codes(self) -> impl Iterator<Item = (&'static str, &'static Code)> {
        let codes = match self {
            Dialect::Squid => SQUID,
            Dialect::Apache => APACHE,
            Dialect::Names => NAMES,
        };
        codes.iter().flat_map(|code| code.names.split(' ').map(move |name| (name, code)))
    }
}

/// Whether a code is `name`, or begins with it if `name` is the prefix of a family.
fn is_or_begins(asked: &str, name: &str) -> bool {
    asked == name || (name.ends_with("::") && asked.starts_with(name))
}

/// A parsed format. Two are equal if their texts are.
#[derive(Clone, Debug)]
pub struct Template {
    dialect: Dialect,
    text: Box<str>,
    pieces: Vec<Piece>,
}

impl PartialEq for Template {
    fn eq(&self, other: &Template) -> bool {
        (self.dialect, &self.text) == (other.dialect, &other.text)
    }
}

impl Eq for Template {}

#[derive(Clone, Debug)]
enum Piece {
    Text(Box<[u8]>),
    Value(Value),
}

#[derive(Clone, Debug)]
struct Value {
    what: What,
    quote: Quote,
    layout: Option<Layout>,
    only: Option<Box<Only>>,
}

/// Squid's width, alignment and maximum length.
#[derive(Clone, Copy, Debug, Default)]
struct Layout {
    left: bool,
    zeros: bool,
    width: usize,
    longest: Option<usize>,
}

/// Apache's `%400,501{…}i`: a dash for other statuses.
#[derive(Clone, Debug)]
struct Only {
    except: bool,
    statuses: Vec<u16>,
}

/// A larger width is a mistake.
const WIDTH_MAX: usize = 1024;

impl Template {
    /// Appends one line.
    pub(super) fn line(&self, out: &mut Vec<u8>, record: &Record<'_>) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Value(value) => value.write(out, record),
            }
        }
        out.push(b'\n');
    }

    /// Whether it writes the number of a request.
    pub(super) fn names_ids(&self) -> bool {
        let is_id = |piece: &Piece| match piece {
            Piece::Value(value) => matches!(value.what, What::RequestId),
            Piece::Text(_) => false,
        };
        self.pieces.iter().any(is_id)
    }

    /// Parses a format.
    ///
    /// # Errors
    /// One line: the column, what is wrong there, and the nearest code.
    pub(super) fn parse(dialect: Dialect, text: &str) -> Result<Template, String> {
        if dialect == Dialect::Names {
            let piece = |part| match part {
                Part::Text(text) => Piece::Text(text.into()),
                Part::Value(what, quote) => {
                    Piece::Value(Value { what, quote, layout: None, only: None })
                }
            };
            let pieces = names::parse(text)?.into_iter().map(piece).collect();
            return Ok(Template { dialect, text: text.into(), pieces });
        }
        let mut parser =
            Parser { dialect, text, at: 0, pieces: Vec::new(), pending: Vec::new(), inside: None };
        parser.run()?;
        parser.end_text();
        if parser.pieces.is_empty() {
            return Err("the log format is empty".to_owned());
        }
        Ok(Template { dialect, text: text.into(), pieces: parser.pieces })
    }
}

impl Value {
    fn write(&self, out: &mut Vec<u8>, record: &Record<'_>) {
        if self.only.as_ref().is_some_and(|only| only.leaves_out(record.status)) {
            out.push(b'-');
            return;
        }
        let Some(layout) = self.layout else { return value(out, record, &self.what, self.quote) };
        let start = out.len();
        value(out, record, &self.what, self.quote);
        if let Some(longest) = layout.longest {
            out.truncate(start + longest);
        }
        let missing = layout.width.saturating_sub(out.len() - start);
        let with = if layout.zeros && !layout.left { b'0' } else { b' ' };
        out.resize(out.len() + missing, with);
        if !layout.left {
            out[start..].rotate_right(missing);
        }
    }
}

impl Only {
    fn leaves_out(&self, status: u16) -> bool {
        self.statuses.contains(&status) == self.except
    }
}

struct Parser<'t> {
    dialect: Dialect,
    text: &'t str,
    at: usize,
    pieces: Vec<Piece>,
    /// Text that is not in a piece yet.
    pending: Vec<u8>,
    /// The open quote or bracket of the text.
    inside: Option<u8>,
}

impl<'t> Parser<'t> {
    fn run(&mut self) -> Result<(), String> {
        while let Some(byte) = self.next() {
            match byte {
                b'%' if self.take(b"%") => self.pending.push(b'%'),
                b'%' => self.code()?,
                b'\\' => self.escape()?,
                b'\n' | b'\r' => {
                    return Err(self.wrong(self.at - 1, "a line cannot contain a line break"));
                }
                _ => {
                    self.pending.push(byte);
                    self.inside = match (self.inside, byte) {
                        (None, b'"' | b'[') => Some(byte),
                        (Some(b'"'), b'"') | (Some(b'['), b']') => None,
                        (inside, _) => inside,
                    };
                }
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.text.as_bytes().get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Steps over one of these bytes if it is next.
    fn take(&mut self, any_of: &[u8]) -> bool {
        let is_next = self.rest().bytes().next().is_some_and(|byte| any_of.contains(&byte));
        self.at += usize::from(is_next);
        is_next
    }

    /// An error in one line. Control characters in quoted text are escaped.
    fn wrong(&self, at: usize, what: impl std::fmt::Display) -> String {
        let column = self.text.get(..at).map_or(at, |before| before.chars().count()) + 1;
        let what = what.to_string();
        let plain = what.chars().flat_map(|c| match c.is_control() {
            true => c.escape_default().collect(),
            false => vec![c],
        });
        format!("log format, column {column}: ") + &plain.collect::<String>()
    }

    fn escape(&mut self) -> Result<(), String> {
        match self.next() {
            Some(b't') => self.pending.push(b'\t'),
            Some(byte @ (b'"' | b'\\' | b'\'')) => {
                self.pending.push(byte);
                if byte == b'"' {
                    self.inside = if self.inside == Some(b'"') { None } else { Some(b'"') };
                }
            }
            _ => {
                return Err(self.wrong(self.at - 1, "only t, a quote or \\ may follow \\"));
            }
        }
        Ok(())
    }

    fn end_text(&mut self) {
        if !self.pending.is_empty() {
            let text = std::mem::take(&mut self.pending).into_boxed_slice();
            self.pieces.push(Piece::Text(text));
        }
    }

    /// What follows a `%`.
    fn code(&mut self) -> Result<(), String> {
        let start = self.at - 1;
        let value = match self.dialect {
            Dialect::Squid => self.squid(start)?,
            Dialect::Apache => self.apache(start)?,
            Dialect::Names => unreachable!("names have a parser of their kind"),
        };
        self.end_text();
        self.pieces.push(Piece::Value(value));
        Ok(())
    }

    fn squid(&mut self, start: usize) -> Result<Value, String> {
        let quote = match self.rest().bytes().next() {
            Some(b'"') => Some(Quote::Quotes),
            Some(b'[') => Some(Quote::Bracket),
            Some(b'#') => Some(Quote::Url),
            Some(b'\'') => Some(Quote::Raw),
            _ => None,
        };
        self.at += usize::from(quote.is_some());
        let layout = self.layout(start)?;
        let mut argument = self.argument(start)?;
        let _ = self.rest().starts_with("http::").then(|| self.at += "http::".len());
        let rest = self.rest();
        let fits = self.dialect.codes().filter(|(name, _)| rest.starts_with(name));
        let Some((name, code)) = fits.max_by_key(|(name, _)| name.len()) else {
            let asked: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || "<>:_".contains(*c)).collect();
            return Err(self.unknown(start, &asked));
        };
        self.at += name.len();
        if argument.is_none() && code.argument != Argument::None {
            argument = self.argument(start)?;
        }
        let quote = match (quote, self.inside) {
            (Some(quote), _) => quote,
            (None, Some(b'"')) => Quote::Quotes,
            (None, Some(b'[')) => Quote::Bracket,
            (None, _) => Quote::Url,
        };
        let what = self.what(start, (name, code), argument)?;
        Ok(Value { what, quote, layout, only: None })
    }

    fn layout(&mut self, start: usize) -> Result<Option<Layout>, String> {
        let before = self.at;
        let mut layout = Layout { left: self.take(b"-"), ..Layout::default() };
        layout.zeros = self.rest().starts_with('0');
        layout.width = self.number(start)?.unwrap_or(0);
        if self.take(b".") {
            layout.longest = self.number(start)?;
            if layout.longest.is_none() {
                return Err(
                    self.wrong(start, "the . of a code must be followed by its maximum length")
                );
            }
        }
        Ok((self.at != before).then_some(layout))
    }

    fn number(&mut self, start: usize) -> Result<Option<usize>, String> {
        let digits = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return Ok(None);
        }
        let number = self.rest()[..digits].parse().unwrap_or(usize::MAX);
        self.at += digits;
        if number > WIDTH_MAX {
            return Err(self.wrong(start, format!("a width of {number} is above {WIDTH_MAX}")));
        }
        Ok(Some(number))
    }

    fn apache(&mut self, start: usize) -> Result<Value, String> {
        let except = self.take(b"!");
        let mut statuses = Vec::new();
        while let Some(status) = self.number(start)? {
            if !(100..=599).contains(&status) {
                return Err(self.wrong(start, format!("{status} is not a status")));
            }
            statuses.push(status as u16);
            if !self.take(b",") {
                break;
            }
        }
        // Before and after internal redirects, which do not exist here.
        self.take(b"<>");
        let argument = self.argument(start)?;
        let letter: String = self.rest().chars().take(1).collect();
        let Some((name, code)) = self.dialect.codes().find(|(name, _)| *name == letter) else {
            return Err(self.unknown(start, &letter));
        };
        self.at += name.len();
        let what = self.what(start, (name, code), argument)?;
        let only = (except || !statuses.is_empty()).then(|| Box::new(Only { except, statuses }));
        Ok(Value { what, quote: Quote::Apache, layout: None, only })
    }

    /// Parses `{argument}`, if there is one.
    fn argument(&mut self, start: usize) -> Result<Option<&'t str>, String> {
        if !self.rest().starts_with('{') {
            return Ok(None);
        }
        let Some(end) = self.rest().find('}') else {
            return Err(self.wrong(start, "the { of a code has no }"));
        };
        let argument = &self.rest()[1..end];
        self.at += end + 1;
        Ok(Some(argument))
    }

    fn what(
        &self,
        start: usize,
        (name, code): (&str, &Code),
        argument: Option<&str>,
    ) -> Result<What, String> {
        let argument = match (code.argument, argument) {
            (Argument::Needed(_), Some("")) | (Argument::None, Some(_)) => {
                return Err(self.wrong(start, format!("%{name} takes no such argument")));
            }
            (Argument::Needed(meaning), None) => {
                return Err(self.wrong(start, format!("%{name} needs {{{meaning}}}")));
            }
            (_, argument) => argument.unwrap_or_default(),
        };
        (code.make)(argument).map_err(|wrong| self.wrong(start, wrong))
    }

    fn unknown(&self, start: usize, asked: &str) -> String {
        let distance = |(name, _): &(&str, _)| strsim::damerau_levenshtein(name, asked);
        let (name, code) = self.dialect.codes().min_by_key(distance).expect("a dialect has codes");
        let nearest = format!("; the nearest is %{name}: {}", code.help);
        let (dialect, without) = self.dialect.name_and_without();
        let text = match without.split(' ').any(|name| is_or_begins(asked, name)) {
            true => format!("%{asked} is one of {dialect} codes but has no value here{nearest}"),
            false => format!("%{asked} is not one of {dialect} codes{nearest}"),
        };
        self.wrong(start, text)
    }
}
