//! The form of the tables: from the names of directives to what becomes of them.
//!
//! Each language has its own table. An entry for a directive that is not carried is its reason. An
//! entry for a directive that is carried is a function, which writes keys and returns what became
//! of the directive.

use std::convert::Infallible;

use crate::note::{Fate, Notes, Place};

/// What becomes of a directive. `F` is the type of the functions in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Becomes<F = Infallible> {
    /// This function carries it and returns what became of it.
    By(F),
    /// Its note is written elsewhere.
    Elsewhere,
    /// It is carried.
    Carried,
    /// There is nothing to carry, for this reason.
    Nothing(&'static str),
    /// It is carried with this difference.
    Different(&'static str),
    /// It is not carried, for this reason.
    Left(&'static str),
    /// It is not carried, for this reason, and it kept requests out.
    Unprotected(&'static str),
    /// A fate whose reason names something.
    Text(Fate, String),
}

impl Becomes {
    /// Carried; with a difference if there is one.
    pub fn differs(why: &'static str) -> Becomes {
        if why.is_empty() { Becomes::Carried } else { Becomes::Different(why) }
    }
}

impl<F> Becomes<F> {
    /// The same, or what the function of the entry returns.
    pub fn of(&self, run: impl FnOnce(&F) -> Becomes) -> Becomes {
        match self {
            Becomes::By(function) => run(function),
            Becomes::Elsewhere => Becomes::Elsewhere,
            Becomes::Carried => Becomes::Carried,
            Becomes::Nothing(why) => Becomes::Nothing(why),
            Becomes::Different(why) => Becomes::Different(why),
            Becomes::Left(why) => Becomes::Left(why),
            Becomes::Unprotected(why) => Becomes::Unprotected(why),
            Becomes::Text(fate, why) => Becomes::Text(*fate, why.clone()),
        }
    }

    /// Its fate, and why; `None`: its note is written elsewhere.
    pub fn parts(&self) -> Option<(Fate, &str)> {
        Some(match self {
            Becomes::By(_) | Becomes::Elsewhere => return None,
            Becomes::Carried => (Fate::Carried, ""),
            Becomes::Nothing(why) => (Fate::Nothing, why),
            Becomes::Different(why) => (Fate::Different, why),
            Becomes::Left(why) => (Fate::NotCarried, why),
            Becomes::Unprotected(why) => (Fate::Unprotected, why),
            Becomes::Text(fate, why) => (*fate, why),
        })
    }
}

impl Notes {
    /// A directive became this.
    pub fn became(&mut self, at: &Place, becomes: &Becomes) {
        if let Some((fate, why)) = becomes.parts() {
            self.add(at, fate, why);
        }
    }
}

/// The entry of a name. The names of an entry have spaces between them.
pub fn find<'t, T>(table: &'t [(&str, T)], name: &str) -> Option<&'t T> {
    table.iter().find(|(names, _)| is_one(names, name)).map(|(_, entry)| entry)
}

/// Whether a name is in a list of names with spaces between them.
pub fn is_one(names: &str, name: &str) -> bool {
    names.split(' ').any(|one| one == name)
}
