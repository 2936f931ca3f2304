//! Regular expressions and globs.
//!
//! A pattern reads bytes: `.` is any byte, and classes such as `\w` are ASCII. A `.` that does not
//! match a line break or a byte that is not UTF-8 would let a client pass a rule by one odd byte in
//! a path. `^` and `$` are the ends of the value. The search takes time in proportion to the length
//! of the value, and has a program of bounded size.

use std::hash::{Hash, Hasher};

use regex_automata::Input;
use regex_automata::meta::{self, Regex};
use regex_automata::util::primitives::PatternID;
use regex_automata::util::syntax;

use crate::limits::{GROUPS_MAX, PATTERN_BYTES_MAX, PATTERN_DEPTH_MAX, PATTERN_PROGRAM_BYTES_MAX};

/// A pattern. Two patterns of one text are equal.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    /// The regular expression. A glob has one, too.
    pub(crate) expression: String,
    pub(crate) regex: Regex,
}

impl Pattern {
    pub(crate) fn regex(text: &str) -> Result<Pattern, String> {
        let expression = text.to_owned();
        let regex = compiled(&expression)?;
        let is_named = regex.group_info().pattern_names(PatternID::ZERO).flatten().count() > 0;
        if is_named && regex.group_info().group_len(PatternID::ZERO) > GROUPS_MAX {
            return Err(format!("the regular expression has more than {GROUPS_MAX} groups"));
        }
        Ok(Pattern { expression, regex })
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
        Ok(Pattern { expression, regex })
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

/// How every pattern is read.
pub(crate) fn syntax() -> syntax::Config {
    syntax::Config::new()
        .unicode(false)
        .utf8(false)
        .dot_matches_new_line(true)
        .nest_limit(PATTERN_DEPTH_MAX)
}

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
