//! The blocks of a Caddyfile: global options, sites, snippets, and what `import` puts in.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use imported::input::Input;
use imported::limits::{DEPTH_MAX, INCLUDE_DEPTH_MAX, INPUT_BYTES_MAX};
use imported::note::{Fate, Place};
use imported::{Parsed, SyntaxError};

use crate::lexer::{Token, tokens};

/// A directive: its name, its words, and the directives in its block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directive {
    pub(crate) at: Place,
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
    pub(crate) inner: Vec<Directive>,
}

impl Directive {
    /// A word; empty if there are fewer.
    pub(crate) fn word(&self, at: usize) -> &str {
        self.words.get(at).map_or("", String::as_str)
    }
}

/// A block with addresses.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    pub(crate) at: Place,
    pub(crate) keys: Vec<String>,
    pub(crate) inner: Vec<Directive>,
}

/// A whole file, with the files that the file imports.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) global: Vec<Directive>,
    pub(crate) sites: Vec<Block>,
}

struct Snippet {
    at: Place,
    file: Rc<str>,
    tokens: Rc<[Token]>,
    /// Where the words begin in the file.
    offset: usize,
    used: bool,
}

/// Words of snippets that are put in, in bytes, at most.
const EXPANDED_BYTES_MAX: usize = INPUT_BYTES_MAX;

/// Arguments of an import, at most.
const ARGUMENTS_MAX: usize = 64;

struct Parser<'i, 'r> {
    input: &'i mut Input<'r>,
    snippets: BTreeMap<String, Snippet>,
    /// One place for each directive of a file, however often it is imported.
    places: HashMap<(Rc<str>, usize), Place>,
    expanded: usize,
    imports: usize,
    file: File,
}

/// The words of a file or of a snippet.
struct Words {
    file: Rc<str>,
    tokens: Rc<[Token]>,
    /// Where the words begin in the file.
    offset: usize,
    at: usize,
    /// `{args[0]}` and so on.
    args: Vec<String>,
}

impl Words {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn place(&self) -> Place {
        let last = || self.tokens.last().map_or(1, |one| one.line);
        Place::new(&self.file, self.peek().map_or_else(last, |one| one.line))
    }

    /// Takes a word, with the arguments of the import in it.
    fn take(&mut self) -> Option<String> {
        let token = self.tokens.get(self.at)?;
        self.at += 1;
        let mut text = token.text.clone();
        if text.contains("{args") {
            for (at, arg) in self.args.iter().enumerate() {
                text = text.replace(&format!("{{args.{at}}}"), arg);
                text = text.replace(&format!("{{args[{at}]}}"), arg);
            }
        }
        Some(text)
    }
}

/// The blocks of a text and of the files that it imports.
///
/// # Errors
/// The text is not in the language, or a limit is exceeded.
pub(crate) fn parse(file: &Rc<str>, text: &str, input: &mut Input<'_>) -> Parsed<File> {
    let (snippets, places, file_) = (BTreeMap::new(), HashMap::new(), File::default());
    let mut parser = Parser { input, snippets, places, expanded: 0, imports: 0, file: file_ };
    parser.text(file, text)?;
    for snippet in parser.snippets.values() {
        match snippet.used {
            true => parser.input.notes.carried(&snippet.at),
            false => parser.input.notes.nothing(&snippet.at, "nothing imports it"),
        }
    }
    Ok(parser.file)
}

impl Parser<'_, '_> {
    fn text(&mut self, file: &Rc<str>, text: &str) -> Parsed<()> {
        let mut words = self.words(file, text)?;
        self.top(&mut words)
    }

    fn words(&mut self, file: &Rc<str>, text: &str) -> Parsed<Words> {
        let text = &self.defaults(file, text)?;
        let tokens =
            tokens(text).map_err(|(line, what)| SyntaxError::at(&Place::new(file, line), what))?;
        let (file, tokens) = (Rc::clone(file), tokens.into());
        Ok(Words { file, tokens, offset: 0, at: 0, args: Vec::new() })
    }

    /// A text with the defaults of variables (`{$NAME:default}`) in their places.
    fn defaults(&mut self, file: &Rc<str>, text: &str) -> Parsed<String> {
        let (mut out, mut rest, mut line) = (String::new(), text, 1);
        while let Some((before, after)) = rest.split_once("{$") {
            line += before.matches('\n').count();
            out.push_str(before);
            let end = after.find(['}', '{', '\n', ' ']).unwrap_or(after.len());
            let (inner, left) = after.split_at(end);
            match (inner.split_once(':'), left.strip_prefix('}')) {
                (Some((name, default)), Some(left)) => {
                    let at = Place::new(file, line);
                    self.input.count_directive(&at)?;
                    let why = format!("the default is used, and not the environment's {name}");
                    let shown = format!("{{$ {inner}}}").replacen(' ', "", 1);
                    self.input.notes.other(&at, &shown, Fate::Different, why);
                    out.push_str(default);
                    rest = left;
                }
                _ => {
                    out.push_str("{$");
                    rest = after;
                }
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    /// Sites, snippets and the global options.
    fn top(&mut self, words: &mut Words) -> Parsed<()> {
        while let Some(token) = words.peek() {
            if token.is("}") {
                return Err(SyntaxError::at(&words.place(), "this brace closes nothing"));
            }
            if token.first && token.text == "import" && !token.quoted {
                self.import(words, None, 0)?;
                continue;
            }
            let start = words.at;
            let mut keys = Vec::new();
            let mut continued = false;
            while let Some(token) = words.peek()
                && !token.is("{")
                && (words.at == start || continued || !token.first)
            {
                let key = words.take().unwrap_or_default();
                continued = key.ends_with(',');
                keys.push(key.trim_end_matches(',').to_owned());
            }
            keys.retain(|key| !key.is_empty());
            let shown = if keys.is_empty() { "global options".to_owned() } else { keys.join(", ") };
            let at = self.register(words, start, &shown)?;
            let has_block = words.peek().is_some_and(|one| one.is("{"));
            if has_block {
                words.at += 1;
                if words.peek().is_some_and(|one| !one.first && !one.is("}")) {
                    return Err(SyntaxError::at(&words.place(), "a word follows { on its line"));
                }
            }
            let snippet = match &keys[..] {
                [one] => one.strip_prefix('(').and_then(|one| one.strip_suffix(')')),
                _ => None,
            };
            match (snippet, keys.is_empty()) {
                (Some(name), _) if has_block => self.snippet(words, &at, name)?,
                (None, true) if has_block => {
                    self.input.notes.carried(&at);
                    let inner = self.block(words, "", 0, true)?;
                    self.file.global.extend(inner);
                }
                (_, true) => {}
                _ => {
                    let inner = self.block(words, "", 0, has_block)?;
                    self.file.sites.push(Block { at, keys, inner });
                }
            }
        }
        Ok(())
    }

    /// The note and the place of a directive.
    fn register(&mut self, words: &Words, start: usize, shown: &str) -> Parsed<Place> {
        let line = words.tokens.get(start).map_or(1, |one| one.line);
        let mut at = Place::new(&words.file, line);
        self.input.count_directive(&at)?;
        let key = (Rc::clone(&words.file), words.offset + start);
        if let Some(there) = self.places.get(&key) {
            return Ok(there.clone());
        }
        self.input.notes.directive(&mut at, shown);
        self.places.insert(key, at.clone());
        Ok(at)
    }

    fn snippet(&mut self, words: &mut Words, at: &Place, name: &str) -> Parsed<()> {
        let (start, mut depth) = (words.at, 0_usize);
        while let Some(token) = words.peek() {
            depth += usize::from(token.is("{"));
            if token.is("}") {
                if depth == 0 {
                    break;
                }
                depth -= 1;
            }
            words.at += 1;
        }
        if words.peek().is_none() {
            return Err(SyntaxError::at(at, "the block of this snippet is not closed"));
        }
        let tokens = words.tokens[start..words.at].into();
        words.at += 1;
        let (file, at) = (Rc::clone(&words.file), at.clone());
        let snippet = Snippet { at, file, tokens, offset: words.offset + start, used: false };
        self.snippets.insert(name.to_owned(), snippet);
        Ok(())
    }

    /// The directives of a block. `closes`: a brace closes the block, and not the end of the words.
    fn block(
        &mut self,
        words: &mut Words,
        parent: &str,
        depth: usize,
        closes: bool,
    ) -> Parsed<Vec<Directive>> {
        let opened = words.place();
        if depth > DEPTH_MAX {
            let what = format!("blocks are more than {DEPTH_MAX} levels deep");
            return Err(SyntaxError::at(&opened, what));
        }
        let mut all = Vec::new();
        loop {
            let Some(token) = words.peek() else {
                let what = "a block is not closed before the end of the file";
                return if closes { Err(SyntaxError::at(&opened, what)) } else { Ok(all) };
            };
            if token.is("}") {
                if !closes {
                    return Err(SyntaxError::at(&words.place(), "this brace closes nothing"));
                }
                words.at += 1;
                return Ok(all);
            }
            if token.text == "import" && !token.quoted {
                self.import(words, Some((&mut all, parent)), depth)?;
                continue;
            }
            let start = words.at;
            let name = words.take().unwrap_or_default();
            let mut found = Directive { name, ..Directive::default() };
            let mut opens = false;
            while let Some(token) = words.peek()
                && !token.first
                && !token.is("}")
            {
                let brace = token.is("{");
                if brace && words.tokens.get(words.at + 1).is_none_or(|next| next.first) {
                    words.at += 1;
                    opens = true;
                    break;
                }
                found.words.extend(words.take());
            }
            found.at = self.register(words, start, &shown(&found, parent))?;
            if opens {
                found.inner = self.block(words, &found.name, depth + 1, true)?;
            }
            all.push(found);
        }
    }

    /// `import NAME ARGUMENTS`, at the top or in a block.
    fn import(
        &mut self,
        words: &mut Words,
        mut into: Option<(&mut Vec<Directive>, &str)>,
        depth: usize,
    ) -> Parsed<()> {
        let start = words.at;
        words.at += 1;
        let mut args = Vec::new();
        while words.peek().is_some_and(|one| !one.first && !one.is("{") && !one.is("}")) {
            args.extend(words.take());
        }
        let name = if args.is_empty() { String::new() } else { args.remove(0) };
        let at = self.register(words, start, &format!("import {name}"))?;
        if args.len() > ARGUMENTS_MAX {
            let what = format!("an import has more than {ARGUMENTS_MAX} arguments");
            return Err(SyntaxError::at(&at, what));
        }
        if words.peek().is_some_and(|one| one.is("{") && !one.first) {
            // The block is what the snippet puts in place of {block}.
            words.at += 1;
            self.block(words, "import", depth + 1, true)?;
            self.input.notes.unprotected(&at, "a block for a snippet is not carried");
            return self.missing(&at, into);
        }
        if self.imports >= INCLUDE_DEPTH_MAX {
            let what = format!("imports are more than {INCLUDE_DEPTH_MAX} levels deep");
            return Err(SyntaxError::at(&at, what));
        }
        self.imports += 1;
        if let Some(snippet) = self.snippets.get_mut(&name) {
            snippet.used = true;
            let longest = args.iter().map(String::len).max().unwrap_or_default();
            let size = |one: &Token| one.text.len() + one.text.matches("{args").count() * longest;
            self.expanded += snippet.tokens.iter().map(|one| size(one) + 1).sum::<usize>();
            let (file, tokens) = (Rc::clone(&snippet.file), Rc::clone(&snippet.tokens));
            let offset = snippet.offset;
            if self.expanded > EXPANDED_BYTES_MAX {
                let what = format!("snippets are more than {EXPANDED_BYTES_MAX} bytes");
                return Err(SyntaxError::at(&at, what));
            }
            let mut inner = Words { file, tokens, offset, at: 0, args };
            self.input.notes.carried(&at);
            match &mut into {
                Some((all, parent)) => {
                    all.extend(self.block(&mut inner, parent, depth + 1, false)?)
                }
                None => self.top(&mut inner)?,
            }
        } else {
            match self.input.files(&at, &name)? {
                Err(why) => {
                    self.input.notes.unprotected(&at, why);
                    self.missing(&at, into)?;
                }
                Ok(files) => {
                    self.input.notes.carried(&at);
                    for one in files {
                        let mut inner = self.words(&Rc::from(one.name), &one.text)?;
                        inner.args.clone_from(&args);
                        match &mut into {
                            Some((all, parent)) => {
                                all.extend(self.block(&mut inner, parent, depth + 1, false)?);
                            }
                            None => self.top(&mut inner)?,
                        }
                    }
                }
            }
        }
        self.imports -= 1;
        Ok(())
    }

    /// What could not be imported may have had rules that keep requests out.
    #[expect(clippy::unnecessary_wraps, reason = "it ends an import")]
    fn missing(&mut self, at: &Place, into: Option<(&mut Vec<Directive>, &str)>) -> Parsed<()> {
        let name = "import".to_owned();
        let found = Directive { at: at.clone(), name, ..Directive::default() };
        match into {
            Some((all, _)) => all.push(found),
            None => self.file.global.push(found),
        }
        Ok(())
    }
}

/// A directive as notes show it: without passwords.
fn shown(one: &Directive, parent: &str) -> String {
    let is_secret = one.name.starts_with("basic")
        || parent.starts_with("basic")
        || matches!(one.name.as_str(), "dns" | "acme_dns" | "eab" | "token" | "key");
    match is_secret {
        true => format!("{} ...", one.name),
        false => {
            let words = one.words.iter().take(8).map(|word| format!(" {word}"));
            one.name.clone() + &words.collect::<String>()
        }
    }
}
