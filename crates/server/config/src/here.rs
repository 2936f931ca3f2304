//! The place in a file that is being read, and the mistakes found so far.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::problem::Problem;

/// The text being read, the mistakes so far, and the place of each key.
pub(crate) struct Reader<'t> {
    text: &'t str,
    base: &'t Path,
    mistakes: Vec<(Range<usize>, String)>,
    places: BTreeMap<String, Range<usize>>,
}

impl<'t> Reader<'t> {
    /// Of this text, in a file of this directory.
    pub(crate) fn new(text: &'t str, base: &'t Path) -> Reader<'t> {
        Reader { text, base, mistakes: Vec::new(), places: BTreeMap::new() }
    }

    /// The directory for files that the text names.
    pub(crate) fn base(&self) -> &'t Path {
        self.base
    }

    /// Reports a mistake.
    pub(crate) fn mistake(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.mistakes.push((span, message.into()));
    }

    /// All mistakes, in the order of the file.
    pub(crate) fn problems(mut self) -> Vec<Problem> {
        self.mistakes.sort_by_key(|(span, _)| span.start);
        self.mistakes.dedup();
        let at = |(span, message)| Problem::at(self.text, span, message);
        self.mistakes.into_iter().map(at).collect()
    }
}

/// A place in the file, by its path of keys: `route[1].upstream`.
pub(crate) struct Here<'r, 't> {
    pub(crate) reader: &'r mut Reader<'t>,
    pub(crate) path: String,
    span: Range<usize>,
}

impl<'r, 't> Here<'r, 't> {
    pub(crate) fn root(reader: &'r mut Reader<'t>) -> Here<'r, 't> {
        let span = 0..0;
        Here { reader, path: String::new(), span }
    }

    /// Whether there are no mistakes so far.
    pub(crate) fn is_well(&self) -> bool {
        self.reader.mistakes.is_empty()
    }

    /// Whether this key of the table is written.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.reader.places.contains_key(&join(&self.path, key))
    }

    /// Reports a mistake at a place.
    pub(crate) fn mistake(&mut self, span: Range<usize>, message: impl Into<String>) {
        self.reader.mistake(span, message);
    }

    /// Reports a mistake of the whole table.
    pub(crate) fn mistake_here(&mut self, message: impl Into<String>) {
        let span = self.span.clone();
        self.reader.mistake(span, message);
    }

    /// Reports a mistake of a key of this table, or below it, whether or not it was written.
    pub(crate) fn mistake_of(&mut self, key: &str, message: impl Into<String>) {
        let mut path = join(&self.path, key);
        loop {
            if let Some(span) = self.reader.places.get(&path) {
                let span = span.clone();
                return self.reader.mistake(span, message);
            }
            match path.rfind(['.', '[']) {
                Some(at) if at > self.path.len() => path.truncate(at),
                _ => return self.mistake_here(message),
            }
        }
    }

    /// Goes to a key below, whose value is at `span`.
    pub(crate) fn enter(&mut self, path: String, span: Range<usize>) -> Here<'_, 't> {
        self.reader.places.insert(path.clone(), span.clone());
        Here { reader: self.reader, path, span }
    }
}

pub(crate) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// `a`, `b` and `c`.
pub(crate) fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => "none".to_owned(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

/// A TOML type with its article.
pub(crate) fn a_type(name: &str) -> String {
    match name {
        "integer" | "array" => format!("an {name}"),
        _ => format!("a {name}"),
    }
}
