//! What became of each directive: one note for each, by file and line.

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use serde::Serialize;

/// What became of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// The imported file does the same.
    Carried,
    /// Plimsoll always does this, or has nothing that the directive would change.
    Nothing,
    /// The imported file does nearly the same; the note says what differs.
    Different,
    /// The directive is not in the imported file. The note says why, and what to do.
    NotCarried,
    /// The directive is not in the imported file, and it kept requests out. The part that it
    /// protected stays closed, unless the caller opens it.
    Unprotected,
}

/// What became of a directive, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// The file, as the caller or an include named it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The directive, as written.
    pub directive: String,
    /// What became of it.
    pub fate: Fate,
    /// Why, what differs, or what to do. Empty for what was carried.
    pub why: String,
}

impl Note {
    fn new(at: &Place, directive: &str, fate: Fate, why: &str) -> Note {
        let plain = |text: &str| text.chars().filter(|c| !c.is_control()).take(120).collect();
        Note {
            file: at.file.to_string(),
            line: at.line,
            directive: plain(directive),
            fate,
            why: why.chars().map(|c| if c.is_control() { ' ' } else { c }).collect(),
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fate = match self.fate {
            Fate::Carried => "carried",
            Fate::Nothing => "nothing to carry",
            Fate::Different => "carried with a difference",
            Fate::NotCarried => "not carried",
            Fate::Unprotected => "not carried, and it kept requests out",
        };
        let Note { file, line, directive, why, .. } = self;
        write!(f, "{file}:{line}: {directive}: {fate}")?;
        if why.is_empty() { Ok(()) } else { write!(f, ": {why}") }
    }
}

/// A line of a file, and which directive of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: Rc<str>,
    /// The line, from 1.
    pub line: usize,
    /// The number of the directive, from 1. A place without a directive has 0.
    id: usize,
}

impl Place {
    /// A line of a file, without a directive.
    pub fn new(file: &Rc<str>, line: usize) -> Place {
        Place { file: Rc::clone(file), line, id: 0 }
    }
}

impl Place {
    /// The number of the directive. No other directive has it.
    pub fn id(&self) -> usize {
        self.id
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A name of a file goes into a comment of the imported file: it must stay on one line.
        let name = self.file.rsplit('/').next().unwrap_or_default();
        let name: String = name.chars().filter(|c| !c.is_control()).collect();
        write!(f, "{name}:{}", self.line)
    }
}

/// The notes of an import. A directive has one note: of two notes, the note with the worse fate is
/// kept. A directive without a note was not carried.
#[derive(Debug, Default)]
pub struct Notes {
    /// All directives with their notes. Directive number `n` is at `n - 1`.
    directives: Vec<(Place, String, Option<Note>)>,
}

/// A note whose reason has this many bytes gets no further reasons.
const WHY_BYTES_MAX: usize = 400;

/// The reason in the note of a directive that no function used.
pub const UNUSED: &str = "nothing in the imported file comes from it";

impl Notes {
    /// Counts a directive, which must get a note.
    pub fn directive(&mut self, at: &mut Place, shown: &str) {
        self.directives.push((at.clone(), shown.to_owned(), None));
        at.id = self.directives.len();
    }

    /// Gives a directive a fate.
    pub fn add(&mut self, at: &Place, fate: Fate, why: impl Into<String>) {
        let (why, is_carried) = (why.into(), fate == Fate::Carried);
        debug_assert_eq!(why.is_empty(), is_carried, "a note has a reason unless it is carried");
        let Some(id) = at.id.checked_sub(1) else { return };
        let (place, shown, there) = &mut self.directives[id];
        let note = Note::new(place, shown, fate, &why);
        match there.as_mut() {
            Some(other) if other.fate >= note.fate => {
                let has_room = other.why.len() < WHY_BYTES_MAX;
                if other.fate == note.fate && has_room && !other.why.contains(&note.why) {
                    other.why = format!("{}; {}", other.why, note.why);
                }
            }
            _ => *there = Some(note),
        }
    }

    /// A note that is about no directive.
    pub fn other(&mut self, at: &Place, what: &str, fate: Fate, why: impl Into<String>) {
        let mut at = at.clone();
        self.directive(&mut at, what);
        self.add(&at, fate, why);
    }

    /// The directive needs nothing, unless it has a note already.
    pub fn unless_noted(&mut self, at: &Place, why: &str) {
        let id = at.id.checked_sub(1);
        if id.is_some_and(|id| self.directives[id].2.is_none()) {
            self.nothing(at, why);
        }
    }

    /// The directive is carried.
    pub fn carried(&mut self, at: &Place) {
        self.add(at, Fate::Carried, "");
    }

    /// The directive needs nothing.
    pub fn nothing(&mut self, at: &Place, why: impl Into<String>) {
        self.add(at, Fate::Nothing, why);
    }

    /// The directive is carried with a difference.
    pub fn different(&mut self, at: &Place, why: impl Into<String>) {
        self.add(at, Fate::Different, why);
    }

    /// The directive is not carried.
    pub fn left(&mut self, at: &Place, why: impl Into<String>) {
        self.add(at, Fate::NotCarried, why);
    }

    /// The directive protects something, and is not carried.
    pub fn unprotected(&mut self, at: &Place, why: impl Into<String>) {
        self.add(at, Fate::Unprotected, why);
    }

    /// All notes, in the order of the files, then of the lines.
    pub fn sorted(self) -> Vec<Note> {
        let unused = |at: &Place, shown: &str| Note::new(at, shown, Fate::NotCarried, UNUSED);
        let all = self.directives.into_iter();
        let mut all: Vec<Note> =
            all.map(|(at, shown, note)| note.unwrap_or_else(|| unused(&at, &shown))).collect();
        let mut files: HashMap<String, usize> = HashMap::new();
        for note in &all {
            let next = files.len();
            files.entry(note.file.clone()).or_insert(next);
        }
        all.sort_by_cached_key(|note| (files.get(&note.file).copied(), note.line));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_notes_the_worse_is_kept_and_none_is_not_carried() {
        let mut notes = Notes::default();
        let mut places = [1, 1, 2].map(|line| Place::new(&"a.conf".into(), line));
        places.iter_mut().for_each(|at| notes.directive(at, "same"));
        notes.carried(&places[1]);
        notes.different(&places[1], "nearly");
        notes.carried(&places[1]);
        notes.other(&places[2], "more", Fate::Nothing, "no");
        let all: Vec<String> = notes.sorted().iter().map(Note::to_string).collect();
        let left = format!("not carried: {UNUSED}");
        let texts = [
            format!("a.conf:1: same: {left}"),
            "a.conf:1: same: carried with a difference: nearly".to_owned(),
            format!("a.conf:2: same: {left}"),
            "a.conf:2: more: nothing to carry: no".to_owned(),
        ];
        assert_eq!(all, texts);
    }
}
