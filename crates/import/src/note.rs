//! What became of each directive: one note for each, by file and line.

use std::fmt;
use std::rc::Rc;

use serde::Serialize;

/// What became of a directive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// The imported file does the same.
    Carried,
    /// Plimsoll has nothing that it would change, or does this always.
    Nothing,
    /// The imported file does nearly the same; the note says what differs.
    Different,
    /// It is not in the imported file. The note says why, and what to do.
    NotCarried,
    /// It is not in the imported file, and it kept requests out. What it protected stays closed,
    /// unless [`crate::Options::open`] is set.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) file: Rc<str>,
    pub(crate) line: usize,
    /// The number of the directive; 0 for a place that is none.
    id: usize,
}

impl Place {
    pub(crate) fn new(file: &Rc<str>, line: usize) -> Place {
        Place { file: Rc::clone(file), line, id: 0 }
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

/// The notes of an import. A directive has one note: of two, the worse is kept. A directive that
/// has none at the end was not carried.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    all: Vec<Note>,
    /// All directives, by their number less one, with where the note is.
    directives: Vec<(Place, String, Option<usize>)>,
    /// Where the notes are that are about no directive.
    others: Vec<usize>,
}

/// The note of a directive that has no other.
pub(crate) const UNUSED: &str = "nothing in the imported file comes from it";

impl Notes {
    /// Counts a directive, which must get a note.
    pub(crate) fn directive(&mut self, at: &mut Place, shown: &str) {
        self.directives.push((at.clone(), shown.to_owned(), None));
        at.id = self.directives.len();
    }

    pub(crate) fn add(&mut self, at: &Place, directive: &str, fate: Fate, why: impl Into<String>) {
        let note = Note::new(at, directive, fate, &why.into());
        let next = self.all.len();
        let there = match at.id.checked_sub(1) {
            Some(id) => {
                let slot = &mut self.directives[id].2;
                let there = *slot;
                *slot = there.or(Some(next));
                there
            }
            None => {
                let same = |other: &&usize| {
                    let other = &self.all[**other];
                    other.line == note.line && other.directive == note.directive
                };
                let there = self.others.iter().find(same).copied();
                self.others.extend(there.is_none().then_some(next));
                there
            }
        };
        match there.map(|there| &mut self.all[there]) {
            Some(other) if other.fate >= note.fate => {
                if other.fate == note.fate && !other.why.contains(&note.why) {
                    other.why = format!("{}; {}", other.why, note.why);
                }
            }
            Some(other) => *other = note,
            None => self.all.push(note),
        }
    }

    pub(crate) fn carried(&mut self, at: &Place, directive: &str) {
        self.add(at, directive, Fate::Carried, "");
    }

    pub(crate) fn nothing(&mut self, at: &Place, directive: &str, why: impl Into<String>) {
        self.add(at, directive, Fate::Nothing, why);
    }

    pub(crate) fn different(&mut self, at: &Place, directive: &str, why: impl Into<String>) {
        self.add(at, directive, Fate::Different, why);
    }

    pub(crate) fn left(&mut self, at: &Place, directive: &str, why: impl Into<String>) {
        self.add(at, directive, Fate::NotCarried, why);
    }

    pub(crate) fn unprotected(&mut self, at: &Place, directive: &str, why: impl Into<String>) {
        self.add(at, directive, Fate::Unprotected, why);
    }

    /// All notes, by file in the order of their first lines, and by line.
    pub(crate) fn sorted(mut self) -> Vec<Note> {
        for (at, shown, note) in std::mem::take(&mut self.directives) {
            if note.is_none() {
                self.all.push(Note::new(&at, &shown, Fate::NotCarried, UNUSED));
            }
        }
        let mut files: Vec<String> = Vec::new();
        for note in &self.all {
            if !files.contains(&note.file) {
                files.push(note.file.clone());
            }
        }
        let place = |file: &String| files.iter().position(|other| other == file);
        self.all.sort_by_cached_key(|note| (place(&note.file), note.line));
        self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_notes_on_a_directive_the_worse_is_kept() {
        let mut notes = Notes::default();
        let at = Place::new(&"a.conf".into(), 3);
        notes.carried(&at, "listen");
        notes.left(&at, "listen", "no");
        notes.carried(&at, "listen");
        let all = notes.sorted();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].to_string(), "a.conf:3: listen: not carried: no");
    }

    #[test]
    fn a_directive_without_a_note_was_not_carried() {
        let mut notes = Notes::default();
        let mut places = [1, 1, 2].map(|line| Place::new(&"a.conf".into(), line));
        places.iter_mut().for_each(|at| notes.directive(at, "same"));
        notes.carried(&places[1], "same");
        let all: Vec<(usize, Fate)> =
            notes.sorted().iter().map(|note| (note.line, note.fate)).collect();
        assert_eq!(all, [(1, Fate::Carried), (1, Fate::NotCarried), (2, Fate::NotCarried)]);
    }
}
