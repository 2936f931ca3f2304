//! Which terms are tested together, and where results are remembered.

use std::collections::BTreeMap;

use crate::compile::Place;
use crate::index::Index;
use crate::limits::{BITS_MAX, INDEX_TERMS_MIN, INDEXES_MAX};
use crate::tree::{Test, Text, TextTest};

/// The indexes of a configuration, and the place of each of its terms.
pub(crate) struct Plan {
    /// Each with the value that it looks at.
    pub(crate) indexes: Vec<(Text, Index)>,
    pub(crate) places: Vec<Place>,
}

/// Makes the plan for terms, each of which has so many uses.
pub(crate) fn plan(tests: &[Test], uses: &[usize]) -> Plan {
    let mut plan = Plan { indexes: Vec::new(), places: vec![Place::None; tests.len()] };
    let mut bits = 0;
    for ((_, kind), terms) in groups(tests) {
        let is_worth_it = terms.len() >= INDEX_TERMS_MIN && plan.indexes.len() < INDEXES_MAX;
        if is_worth_it && bits + terms.len() <= BITS_MAX {
            bits = plan.add(tests, kind, &terms, bits);
        }
    }
    for (place, uses) in plan.places.iter_mut().zip(uses) {
        if matches!(place, Place::None) && *uses > 1 && bits < BITS_MAX {
            *place = Place::Bit(bits as u16);
            bits += 1;
        }
    }
    plan
}

/// How an index compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Exact,
    Prefixes,
    Suffixes,
    Patterns,
}

/// The terms that an index can have, by value and kind. The first term of a group names its value.
fn groups(tests: &[Test]) -> BTreeMap<(usize, Kind), Vec<usize>> {
    let mut firsts: std::collections::HashMap<&Text, usize> = std::collections::HashMap::new();
    let mut groups: BTreeMap<(usize, Kind), Vec<usize>> = BTreeMap::new();
    for (term, test) in tests.iter().enumerate() {
        if let Some((text, kind)) = kind_of(test) {
            let first = *firsts.entry(text).or_insert(term);
            groups.entry((first, kind)).or_default().push(term);
        }
    }
    groups
}

fn kind_of(test: &Test) -> Option<(&Text, Kind)> {
    let Test::Text(text, how) = test else { return None };
    let kind = match how {
        TextTest::Is(Text::Literal(_)) | TextTest::Among(_) => Kind::Exact,
        TextTest::Starts(Text::Literal(_)) => Kind::Prefixes,
        TextTest::Ends(Text::Literal(_)) => Kind::Suffixes,
        TextTest::Contains(Text::Literal(_)) | TextTest::Matches(_) => Kind::Patterns,
        _ => return None,
    };
    Some((text, kind))
}

impl Plan {
    /// Adds an index of terms, whose bits begin at `first`. Returns the next bit.
    fn add(&mut self, tests: &[Test], kind: Kind, terms: &[usize], first: usize) -> usize {
        let numbered = || terms.iter().zip(first as u16..);
        let literals = || {
            let literals = numbered().flat_map(|(term, bit)| {
                literals_of(&tests[*term]).into_iter().map(move |literal| (literal.into(), bit))
            });
            literals.collect::<Vec<(Box<[u8]>, u16)>>()
        };
        let index = match kind {
            Kind::Exact => Index::exact(literals()),
            Kind::Prefixes => Index::prefixes(literals()),
            Kind::Suffixes => Index::suffixes(literals()),
            Kind::Patterns => {
                let patterns = numbered().map(|(term, bit)| (expression_of(&tests[*term]), bit));
                Index::patterns(&patterns.collect::<Vec<_>>())
            }
        };
        let found = index.bits();
        for (term, bit) in numbered() {
            if found.contains(&bit) {
                self.places[*term] = Place::Index(self.indexes.len() as u8, bit);
            }
        }
        if found.is_empty() {
            return first;
        }
        let (text, _) = kind_of(&tests[terms[0]]).expect("terms of a group have a kind");
        self.indexes.push((text.clone(), index));
        first + terms.len()
    }
}

fn literals_of(test: &Test) -> Vec<&[u8]> {
    match test {
        Test::Text(_, TextTest::Among(values)) => values.iter().map(|value| &**value).collect(),
        Test::Text(_, TextTest::Is(with) | TextTest::Starts(with) | TextTest::Ends(with)) => {
            with.literal().into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// A regular expression for a pattern or a part.
fn expression_of(test: &Test) -> String {
    match test {
        Test::Text(_, TextTest::Matches(pattern)) => pattern.expression.clone(),
        Test::Text(_, TextTest::Contains(Text::Literal(part))) => {
            part.iter().map(|byte| format!(r"\x{byte:02x}")).collect()
        }
        _ => unreachable!("a pattern or a part"),
    }
}
