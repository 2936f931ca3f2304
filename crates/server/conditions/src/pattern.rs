//! Regular expressions and globs.
//!
//! A pattern reads bytes: `.` is any byte, and classes such as `\w` are ASCII. A `.` that does not
//! match a line break or a byte that is not UTF-8 would let a client pass a rule by one odd byte in
//! a path. `^` and `$` are the ends of the value. The search takes time in proportion to the length
//! of the value, and has a program of bounded size.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use regex_automata::Input;
use regex_automata::meta::{self, Regex};
use regex_automata::util::primitives::PatternID;

use crate::limits::{GROUPS_MAX, MACHINE_BYTES_MAX, PATTERN_BYTES_MAX, PATTERN_PROGRAM_BYTES_MAX};
use crate::machine::{Machine, syntax};

/// A pattern. Two patterns of one text are equal.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    /// The regular expression. A glob has one, too.
    pub(crate) expression: String,
    pub(crate) regex: Regex,
    /// Faster than `regex`, and without captures. Absent if it would be too large.
    machine: Option<Arc<Machine>>,
}

impl Pattern {
    pub(crate) fn regex(text: &str) -> Result<Pattern, String> {
        let expression = text.to_owned();
        let regex = compiled(&expression)?;
        let is_named = regex.group_info().pattern_names(PatternID::ZERO).flatten().count() > 0;
        if is_named && regex.group_info().group_len(PatternID::ZERO) > GROUPS_MAX {
            return Err(format!("the regular expression has more than {GROUPS_MAX} groups"));
        }
        Ok(Pattern::of(expression, regex))
    }

    /// A glob: `*` is any bytes but a slash, `**` is any bytes, and the other characters are
    /// themselves.
    pub(crate) fn glob(text: &str) -> Result<Pattern, String> {
        let mut expression = String::from("^");
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            match character {
                '*' if characters.next_if_eq(&'*').is_some() => expression.push_str(".*"),
                '*' => expression.push_str("[^/]*"),
                other => {
                    if META.contains(other) {
                        expression.push('\\');
                    }
                    expression.push(other);
                }
            }
        }
        expression.push('$');
        let regex = compiled(&expression)?;
        Ok(Pattern::of(expression, regex))
    }

    fn of(expression: String, regex: Regex) -> Pattern {
        let machine = Machine::new(&[&expression], MACHINE_BYTES_MAX).map(Arc::new);
        Pattern { expression, regex, machine }
    }

    /// Whether the pattern matches a value.
    #[inline]
    pub(crate) fn is_match(&self, value: &[u8]) -> bool {
        match &self.machine {
            Some(machine) => machine.is_match(value),
            None => self.regex.is_match(value),
        }
    }

    /// Whether the pattern matches every value, because it matches the empty string. `false` if it
    /// is not obvious.
    pub(crate) fn matches_everything(&self) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.matches_everything())
    }

    /// What a group captured in a value, if the pattern matches and has this group.
    pub(crate) fn captured<'v>(&self, value: &'v [u8], name: &str) -> Option<&'v [u8]> {
        let group = self.regex.group_info().to_index(PatternID::ZERO, name)?;
        debug_assert!(group < GROUPS_MAX, "a pattern with names has few groups");
        let mut slots = [None; 2 * GROUPS_MAX];
        self.regex.search_slots(&Input::new(value), &mut slots)?;
        match (slots[2 * group], slots[2 * group + 1]) {
            (Some(start), Some(end)) => Some(&value[start.get()..end.get()]),
            _ => Some(b""),
        }
    }

    /// The names of its groups.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &str> {
        self.regex.group_info().pattern_names(PatternID::ZERO).flatten()
    }
}

/// The characters that mean something in a regular expression.
const META: &str = r"\.+*?()|[]{}^$#&-~";

fn compiled(expression: &str) -> Result<Regex, String> {
    if expression.len() > PATTERN_BYTES_MAX {
        return Err(format!("the pattern has more than {PATTERN_BYTES_MAX} bytes"));
    }
    let config = meta::Config::new()
        .utf8_empty(false)
        .nfa_size_limit(Some(PATTERN_PROGRAM_BYTES_MAX))
        .hybrid_cache_capacity(PATTERN_PROGRAM_BYTES_MAX);
    let regex = Regex::builder().configure(config).syntax(syntax()).build(expression);
    regex.map_err(|error| match (error.size_limit(), error.syntax_error()) {
        (Some(_), _) => String::from("the regular expression is too large when it is compiled"),
        (None, Some(error)) => {
            // The last line of the message says what is wrong; the others draw the place.
            let text = error.to_string();
            let why = text.lines().last().unwrap_or_default();
            format!("this is not a regular expression: {}", why.trim_start_matches("error: "))
        }
        (None, None) => format!("this is not a regular expression: {error}"),
    })
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.expression == other.expression
    }
}

impl Eq for Pattern {}

impl Hash for Pattern {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.expression.hash(state);
    }
}
