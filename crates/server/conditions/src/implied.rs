//! What follows from a condition: which groups captured something, and which later conditions an
//! earlier condition hides.

use std::collections::BTreeSet;

use crate::Checked;
use crate::limits::HIDING_STEPS_MAX;
use crate::tree::{Term, Test, Text, TextTest, Tree};

/// The groups of `path.matches` that have captured something whenever the tree holds, or whenever
/// it does not.
pub(crate) fn captures(tree: &Tree, holds: bool) -> BTreeSet<&str> {
    match tree {
        Tree::Constant(_) | Tree::Same(_) => BTreeSet::new(),
        Tree::Term(Term { test, is_not, .. }) => match test {
            Test::Text(Text::Path, TextTest::Matches(pattern)) if holds != *is_not => {
                pattern.groups().collect()
            }
            _ => BTreeSet::new(),
        },
        Tree::Not(inner) => captures(inner, !holds),
        Tree::All(inner) | Tree::Any(inner) => {
            let is_each = matches!(tree, Tree::All(_)) == holds;
            let mut sets = inner.iter().map(|tree| captures(tree, holds));
            let first = sets.next().unwrap_or_default();
            sets.fold(first, |all, set| if is_each { &all | &set } else { &all & &set })
        }
        Tree::Choice(inner) => {
            let [condition, one, other] = &**inner;
            let one = &captures(condition, true) | &captures(one, holds);
            let other = &captures(condition, false) | &captures(other, holds);
            &one & &other
        }
    }
}

/// Whether the earlier condition holds whenever the later condition holds, so that the later
/// condition can never be the first that holds. Conservative: `false` if it is not obvious within
/// [`HIDING_STEPS_MAX`] steps.
pub fn hidden_by(earlier: &Checked, later: &Checked) -> bool {
    Proof { steps: 0 }.follows(&earlier.tree, &later.tree)
}

/// A search for a proof. It may compare two parts again and again, so it has a limit.
struct Proof {
    steps: usize,
}

impl Proof {
    /// Whether the first obviously holds whenever the second holds.
    fn follows(&mut self, one: &Tree, from: &Tree) -> bool {
        self.steps += 1;
        if self.steps > HIDING_STEPS_MAX {
            return false;
        }
        if one == from {
            return true;
        }
        match (one, from) {
            (_, Tree::Any(from)) => from.iter().all(|from| self.follows(one, from)),
            (Tree::All(all), _) => all.iter().all(|one| self.follows(one, from)),
            (Tree::Any(any), _) if any.iter().any(|one| self.follows(one, from)) => true,
            (_, Tree::All(from)) => from.iter().any(|from| self.follows(one, from)),
            (Tree::Not(one), Tree::Not(from)) => self.follows(from, one),
            (Tree::Term(one), Tree::Term(from)) => term_follows(one, from),
            _ => false,
        }
    }
}

fn term_follows(one: &Term, from: &Term) -> bool {
    match (one.is_not, from.is_not) {
        (false, false) => test_follows(&one.test, &from.test),
        (true, true) => test_follows(&from.test, &one.test),
        _ => false,
    }
}

fn test_follows(one: &Test, from: &Test) -> bool {
    if one == from {
        return true;
    }
    match (one, from) {
        (Test::Within(one), Test::Within(from)) => one.covers(from),
        (Test::Text(text, one), Test::Text(other, from)) if text == other => match from {
            TextTest::Is(Text::Literal(value)) => takes(one, value) == Some(true),
            TextTest::Among(values) => values.iter().all(|value| takes(one, value) == Some(true)),
            TextTest::Starts(Text::Literal(from)) => match one {
                TextTest::Starts(Text::Literal(one)) => from.starts_with(one),
                TextTest::Contains(Text::Literal(one)) => contains(from, one),
                _ => false,
            },
            TextTest::Ends(Text::Literal(from)) => match one {
                TextTest::Ends(Text::Literal(one)) => from.ends_with(one),
                TextTest::Contains(Text::Literal(one)) => contains(from, one),
                _ => false,
            },
            TextTest::Contains(Text::Literal(from)) => match one {
                TextTest::Contains(Text::Literal(one)) => contains(from, one),
                _ => false,
            },
            _ => false,
        },
        _ => false,
    }
}

fn contains(value: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(value, part).is_some()
}

/// Whether a test holds for a value, if the value alone decides it.
fn takes(test: &TextTest, value: &[u8]) -> Option<bool> {
    Some(match test {
        TextTest::Is(with) => with.literal()? == value,
        TextTest::Starts(with) => value.starts_with(with.literal()?),
        TextTest::Ends(with) => value.ends_with(with.literal()?),
        TextTest::Contains(with) => contains(value, with.literal()?),
        TextTest::Matches(pattern) => pattern.is_match(value),
        TextTest::Among(values) => values.iter().any(|other| **other == *value),
        TextTest::InList(list) => list.set.contains(value),
        TextTest::InMap(map) => map.pairs.contains_key(value),
    })
}
