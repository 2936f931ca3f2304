//! A mistake in the text of a condition, and the nearest known name.

use std::fmt;
use std::ops::Range;

/// What is wrong in the text of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The place, as bytes of the text. It begins and ends at characters.
    pub at: Range<usize>,
    /// What is wrong, and how to fix it.
    pub why: String,
}

impl Mistake {
    pub(crate) fn new(at: &Range<usize>, why: impl Into<String>) -> Mistake {
        Mistake { at: at.clone(), why: why.into() }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Mistake {}

/// The end of a message on an unknown name: the nearest known name, or all known names.
pub(crate) fn hint<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let distance = |other: &str| strsim::damerau_levenshtein(name, other);
    let nearest = known.iter().min_by_key(|other| distance(other));
    // At most a third of the word may differ. A word with more differences is another word.
    match nearest.filter(|other| distance(other) <= other.len().max(3) / 3) {
        Some(other) => format!("did you mean `{other}`?"),
        None if known.is_empty() => String::from("there are none"),
        None => {
            let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
            format!("the known names are {}", known.join(", "))
        }
    }
}
