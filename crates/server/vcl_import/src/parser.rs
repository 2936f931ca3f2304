//! The declarations and statements of VCL.

use std::rc::Rc;

use super::lexer::{Token, Word, shown, tokens};
use imported::input::Input;
use imported::limits::DEPTH_MAX;
use imported::note::Place;
use imported::{Parsed, SyntaxError};

/// A file with all that it includes.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// Backends and probes: kind, name, fields.
    pub(crate) blocks: Vec<Block>,
    /// Access lists.
    pub(crate) lists: Vec<List>,
    /// Subroutines by name. Two subroutines of one name are joined, in their order.
    pub(crate) subs: Vec<(String, Vec<Stmt>)>,
    /// How many statements there are.
    pub(crate) statements: usize,
    /// An included file cannot be read.
    pub(crate) unreadable: bool,
    /// The file says that it is for Varnish 4 or later.
    pub(crate) is_recent: bool,
    /// In Varnish 3: a request that looks for a stored response removes it.
    pub(crate) purges_on_hit: bool,
}

impl Program {
    /// The first block of this kind and name.
    pub(crate) fn block(&self, kind: &str, name: &str) -> Option<&Block> {
        self.blocks.iter().find(|block| block.kind == kind && block.name == name)
    }

    /// Whether a statement removes a field.
    pub(crate) fn removes(&self, field: &str) -> bool {
        self.has(&|stmt| matches!(&stmt.kind, Kind::Unset(what) if what == field))
    }

    /// Whether a request is piped.
    pub(crate) fn pipes(&self) -> bool {
        let is_pipe = |words: &[Word]| words.first() == Some(&Word::Name("pipe".to_owned()));
        self.has(&|stmt| matches!(&stmt.kind, Kind::Return(words) if is_pipe(words)))
    }

    /// Whether there is such a statement in a subroutine.
    fn has(&self, is: &dyn Fn(&Stmt) -> bool) -> bool {
        fn in_body(body: &[Stmt], is: &dyn Fn(&Stmt) -> bool) -> bool {
            body.iter().any(|stmt| match &stmt.kind {
                Kind::If(arms) => arms.iter().any(|(_, body)| in_body(body, is)),
                _ => is(stmt),
            })
        }
        self.subs.iter().any(|(_, body)| in_body(body, is))
    }

    /// The statements of a subroutine; none if there is no such subroutine.
    pub(crate) fn sub(&self, name: &str) -> Option<&[Stmt]> {
        self.subs.iter().find(|(there, _)| there == name).map(|(_, body)| &body[..])
    }
}

/// `backend NAME { … }` or `probe NAME { … }`.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) at: Place,
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) fields: Vec<Field>,
}

/// `acl NAME { … }`, with whether each entry is negated.
#[derive(Clone, Debug)]
pub(crate) struct List {
    pub(crate) at: Place,
    pub(crate) name: String,
    pub(crate) entries: Vec<(bool, String)>,
}

/// `.name = value;`, or a block of fields.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) at: Place,
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) inner: Vec<Field>,
}

/// A statement.
#[derive(Clone, Debug)]
pub(crate) struct Stmt {
    pub(crate) id: usize,
    pub(crate) at: Place,
    pub(crate) kind: Kind,
}

/// What a statement does.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Set(String, Vec<Word>),
    Unset(String),
    Return(Vec<Word>),
    Call(String),
    /// Conditions with their bodies; the last may have none.
    If(Vec<Arm>),
    /// A call of a function: its name and its words.
    Other(String, Vec<Word>),
}

/// A condition, if there is one, and its body.
pub(crate) type Arm = (Option<Expr>, Vec<Stmt>);

/// A condition.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Or(Vec<Expr>),
    And(Vec<Expr>),
    Not(Box<Expr>),
    /// Left side, operator, right side.
    Compare(String, &'static str, Word),
    /// A name that has a value, or is true.
    Is(String),
    /// A function.
    Call(String),
    Unknown,
}

/// Reads a text and the files that it includes.
///
/// # Errors
/// The text is not in the language, or exceeds a limit.
pub(crate) fn parse(
    file: &Rc<str>,
    text: &str,
    input: &mut Input<'_>,
    program: &mut Program,
) -> Parsed<()> {
    let all = tokens(file, text)?;
    let end = Place::new(file, text.lines().count().max(1));
    let mut reader = Reader { all: &all, at: 0, end, input, program };
    while reader.peek().is_some() {
        reader.declaration()?;
    }
    Ok(())
}

struct Reader<'t, 'i, 'r> {
    all: &'t [Token],
    at: usize,
    end: Place,
    input: &'i mut Input<'r>,
    program: &'i mut Program,
}

impl Reader<'_, '_, '_> {
    fn peek(&self) -> Option<&Word> {
        self.all.get(self.at).map(|token| &token.word)
    }

    fn place(&self) -> Place {
        self.all.get(self.at).map_or_else(|| self.end.clone(), |token| token.at.clone())
    }

    fn error<T>(&self, what: impl Into<String>) -> Parsed<T> {
        Err(SyntaxError::at(&self.place(), what))
    }

    fn has(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Word::Sign(there)) if *there == sign);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.has(sign) { Ok(()) } else { self.error(format!("there is no {sign}")) }
    }

    fn name(&mut self) -> Parsed<String> {
        match self.peek() {
            Some(Word::Name(name)) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => self.error("a name is missing"),
        }
    }

    fn declaration(&mut self) -> Parsed<()> {
        let mut at = self.place();
        self.input.count_directive(&at)?;
        let first = self.name()?;
        // The statements of a subroutine have notes instead.
        if first != "sub" {
            let name = match self.peek() {
                Some(Word::Name(name)) => format!("{first} {name}"),
                _ => first.clone(),
            };
            self.input.notes.directive(&mut at, &name);
        }
        match first.as_str() {
            "vcl" | "import" => {
                self.program.is_recent |= first == "vcl";
                self.until_semicolon()?;
                self.input.notes.nothing(&at, "nothing depends on it");
            }
            "include" => {
                let words = self.until_semicolon()?;
                let Some(Word::Text(name)) = words.first() else {
                    return self.error("include has no name of a file");
                };
                let program = &mut *self.program;
                let is_read = self
                    .input
                    .include(&at, name, |file, text, input| parse(file, text, input, program))?;
                self.program.unreadable |= !is_read;
            }
            "director" => {
                let name = self.name()?;
                let fields = self.members()?;
                self.program.blocks.push(Block { at, kind: first, name, fields });
            }
            kind @ ("backend" | "probe") => {
                let (kind, name) = (kind.to_owned(), self.name()?);
                let fields = match self.has("{") {
                    true => self.fields(0)?,
                    false => {
                        self.until_semicolon()?;
                        Vec::new()
                    }
                };
                self.program.blocks.push(Block { at, kind, name, fields });
            }
            "acl" => {
                let name = self.name()?;
                while !self.has("{") {
                    // Flags of the list.
                    if self.peek().is_none() {
                        return self.error("there is no {");
                    }
                    self.at += 1;
                }
                let entries = self.entries()?;
                self.program.lists.push(List { at, name, entries });
            }
            "sub" => {
                let name = self.name()?;
                self.expect("{")?;
                let body = self.body(0)?;
                match self.program.subs.iter_mut().find(|(there, _)| *there == name) {
                    Some((_, all)) => all.extend(body),
                    None => self.program.subs.push((name, body)),
                }
            }
            other => {
                let text = format!("{other} begins no declaration");
                return Err(SyntaxError::at(&at, text));
            }
        }
        Ok(())
    }

    fn check_depth(&self, what: &str, depth: usize) -> Parsed<()> {
        if depth > DEPTH_MAX {
            return self.error(format!("{what} are nested more than {DEPTH_MAX} deep"));
        }
        Ok(())
    }

    fn until_semicolon(&mut self) -> Parsed<Vec<Word>> {
        let mut words = Vec::new();
        while !self.has(";") {
            match self.peek() {
                Some(Word::Sign("{" | "}")) | None => return self.error("there is no ;"),
                Some(word) => words.push(word.clone()),
            }
            self.at += 1;
        }
        Ok(words)
    }

    /// Fields of a backend, up to the closing brace.
    fn fields(&mut self, depth: usize) -> Parsed<Vec<Field>> {
        self.check_depth("blocks", depth)?;
        let mut fields = Vec::new();
        while !self.has("}") {
            let mut at = self.place();
            let name = self.name()?.trim_start_matches('.').to_owned();
            self.input.notes.directive(&mut at, &format!(".{name}"));
            self.expect("=")?;
            let (mut value, mut inner) = (String::new(), Vec::new());
            if self.has("{") {
                inner = self.fields(depth + 1)?;
                self.has(";");
            } else {
                for word in self.until_semicolon()? {
                    match word {
                        Word::Name(text) | Word::Text(text) => value.push_str(&text),
                        Word::Sign(sign) => value.push_str(sign),
                    }
                }
            }
            fields.push(Field { at, name, value, inner });
        }
        Ok(fields)
    }

    /// The kind of a director of Varnish 3, and its backends, up to the closing brace.
    fn members(&mut self) -> Parsed<Vec<Field>> {
        let (at, value) = (self.place(), self.name()?);
        let mut all = vec![Field { at, name: "kind".to_owned(), value, inner: Vec::new() }];
        self.expect("{")?;
        while !self.has("}") {
            let at = self.place();
            if self.has("{") {
                let (name, value) = ("member".to_owned(), String::new());
                all.push(Field { at, name, value, inner: self.fields(1)? });
            } else {
                let name = self.name()?.trim_start_matches('.').to_owned();
                let mut at = at;
                self.input.notes.directive(&mut at, &format!(".{name}"));
                self.until_semicolon()?;
                self.input.notes.left(&at, "a director has no such setting here");
            }
        }
        Ok(all)
    }

    /// Entries of an access list, up to the closing brace.
    fn entries(&mut self) -> Parsed<Vec<(bool, String)>> {
        let mut entries = Vec::new();
        while !self.has("}") {
            let mut entry = String::new();
            let mut negated = false;
            for word in self.until_semicolon()? {
                match word {
                    Word::Name(text) | Word::Text(text) => entry.push_str(&text),
                    Word::Sign("!") => negated = true,
                    Word::Sign("/") => entry.push('/'),
                    Word::Sign(_) => {}
                }
            }
            entries.push((negated, entry));
        }
        Ok(entries)
    }

    /// Statements, up to the closing brace.
    fn body(&mut self, depth: usize) -> Parsed<Vec<Stmt>> {
        self.check_depth("blocks", depth)?;
        let mut all = Vec::new();
        while !self.has("}") {
            if self.has(";") {
                continue;
            }
            all.push(self.statement(depth)?);
        }
        Ok(all)
    }

    fn statement(&mut self, depth: usize) -> Parsed<Stmt> {
        let (mut at, first) = (self.place(), self.at);
        self.input.count_directive(&at)?;
        let id = self.program.statements;
        self.program.statements += 1;
        let name = self.name()?;
        if name == "if" {
            let (arms, shown) = self.arms(depth)?;
            self.input.notes.directive(&mut at, &shown);
            return Ok(Stmt { id, at, kind: Kind::If(arms) });
        }
        let words = self.until_semicolon()?;
        let shown = shown(&self.all[first..self.at]);
        self.input.notes.directive(&mut at, &shown);
        let kind = match (name.as_str(), &words[..]) {
            ("set", [Word::Name(to), Word::Sign("="), value @ ..]) => {
                Kind::Set(to.to_ascii_lowercase(), value.to_vec())
            }
            ("unset" | "remove", [Word::Name(what)]) => Kind::Unset(what.to_ascii_lowercase()),
            ("return", [Word::Sign("("), inner @ .., Word::Sign(")")]) => {
                Kind::Return(inner.to_vec())
            }
            ("return", _) => Kind::Return(words),
            ("call", [Word::Name(sub)]) => Kind::Call(sub.clone()),
            _ => Kind::Other(name, words),
        };
        Ok(Stmt { id, at, kind })
    }

    /// Conditions and bodies, after the word `if`, and how a note shows the first.
    fn arms(&mut self, depth: usize) -> Parsed<(Vec<Arm>, String)> {
        let (mut arms, first) = (Vec::new(), self.at);
        let condition = self.condition()?;
        let text = format!("if {}", shown(&self.all[first..self.at]));
        self.expect("{")?;
        arms.push((Some(condition), self.body(depth + 1)?));
        while let Some(Word::Name(next)) = self.peek() {
            let next = next.clone();
            if !matches!(next.as_str(), "elsif" | "elseif" | "elif" | "else") {
                break;
            }
            self.at += 1;
            let is_else_if = matches!(self.peek(), Some(Word::Name(name)) if name == "if");
            let condition = match next.as_str() {
                "else" if !is_else_if => None,
                "else" => {
                    self.at += 1;
                    Some(self.condition()?)
                }
                _ => Some(self.condition()?),
            };
            self.expect("{")?;
            let is_last = condition.is_none();
            arms.push((condition, self.body(depth + 1)?));
            if is_last {
                break;
            }
        }
        Ok((arms, text))
    }

    fn condition(&mut self) -> Parsed<Expr> {
        self.expect("(")?;
        let condition = self.or(0)?;
        self.expect(")")?;
        Ok(condition)
    }

    fn or(&mut self, depth: usize) -> Parsed<Expr> {
        let mut all = vec![self.and(depth)?];
        while self.has("||") {
            all.push(self.and(depth)?);
        }
        Ok(Expr::Or(all))
    }

    fn and(&mut self, depth: usize) -> Parsed<Expr> {
        let mut all = vec![self.single(depth)?];
        while self.has("&&") {
            all.push(self.single(depth)?);
        }
        Ok(Expr::And(all))
    }

    fn single(&mut self, depth: usize) -> Parsed<Expr> {
        self.check_depth("conditions", depth)?;
        if self.has("!") {
            return Ok(Expr::Not(Box::new(self.single(depth + 1)?)));
        }
        if self.has("(") {
            let inner = self.or(depth + 1)?;
            self.expect(")")?;
            return Ok(inner);
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Parsed<Expr> {
        let Some(Word::Name(left)) = self.peek().cloned() else {
            self.skip_operand()?;
            return Ok(Expr::Unknown);
        };
        self.at += 1;
        let left = left.to_ascii_lowercase();
        if self.has("(") {
            self.skip_operand()?;
            self.expect(")")?;
            if matches!(self.peek(), Some(Word::Sign(")" | "&&" | "||"))) {
                return Ok(Expr::Call(left));
            }
            // The port of the listener.
            if left != "std.port" {
                self.skip_operand()?;
                return Ok(Expr::Unknown);
            }
        }
        for sign in ["==", "!=", "!~", "~", "<=", ">=", "<", ">"] {
            if self.has(sign) {
                let right = self.peek().cloned();
                self.at += usize::from(right.is_some());
                let ends = matches!(self.peek(), Some(Word::Sign(")" | "&&" | "||")));
                return match right {
                    Some(right @ (Word::Name(_) | Word::Text(_))) if ends => {
                        Ok(Expr::Compare(left, sign, right))
                    }
                    _ => {
                        self.skip_operand()?;
                        Ok(Expr::Unknown)
                    }
                };
            }
        }
        if matches!(self.peek(), Some(Word::Sign(")" | "&&" | "||"))) {
            return Ok(Expr::Is(left));
        }
        self.skip_operand()?;
        Ok(Expr::Unknown)
    }

    /// Skips the rest of an operand that is not understood.
    fn skip_operand(&mut self) -> Parsed<()> {
        let mut open = 0_usize;
        loop {
            match self.peek() {
                Some(Word::Sign(")")) if open == 0 => return Ok(()),
                Some(Word::Sign("&&" | "||")) if open == 0 => return Ok(()),
                Some(Word::Sign("(")) => open += 1,
                Some(Word::Sign(")")) => open -= 1,
                Some(Word::Sign("{" | "}" | ";")) | None => {
                    return self.error("a condition is not closed");
                }
                Some(_) => {}
            }
            self.at += 1;
        }
    }
}
