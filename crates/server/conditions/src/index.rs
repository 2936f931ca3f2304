//! Many terms on one value, tested together.
//!
//! What: an [`Index`] has all terms that compare one value with literals in one way. It finds the
//! terms that hold by one look at the value: equality by a table, prefixes and suffixes by a search
//! in a sorted list, parts and patterns by an automaton.
//!
//! Invariant of [`Affixes`]: the affixes are sorted and differ, and `shorter` of an affix is the
//! longest affix before it that is an affix of it.

use std::cmp::Ordering;

use hashbrown::HashMap;

use crate::limits::JOINT_MACHINE_BYTES_MAX;
use crate::machine::Machine;

/// The terms on one value of one kind. A term is known by its bit.
#[derive(Debug)]
pub(crate) enum Index {
    Exact(HashMap<Box<[u8]>, Box<[u16]>>),
    Prefixes(Affixes),
    Suffixes(Affixes),
    Patterns(Box<[(Machine, Box<[u16]>)]>),
}

impl Index {
    /// Calls `found` with the bit of each term that holds for a value.
    #[inline]
    pub(crate) fn find(&self, value: &[u8], mut found: impl FnMut(u16)) {
        match self {
            Index::Exact(terms) => {
                if let Some(bits) = terms.get(value) {
                    bits.iter().copied().for_each(found);
                }
            }
            Index::Prefixes(affixes) => affixes.find(
                head(value),
                |affix| affix.cmp(value),
                |affix| value.starts_with(affix),
                found,
            ),
            Index::Suffixes(affixes) => affixes.find(
                tail(value),
                |affix| reversed_order(affix, value),
                |affix| value.ends_with(affix),
                found,
            ),
            Index::Patterns(machines) => {
                for (machine, bits) in machines {
                    machine.matches(value, |pattern| found(bits[pattern]));
                }
            }
        }
    }

    /// The index of terms `value == literal`. A term may have several literals.
    pub(crate) fn exact(terms: Vec<(Box<[u8]>, u16)>) -> Index {
        let mut bits: HashMap<Box<[u8]>, Vec<u16>> = HashMap::new();
        for (literal, bit) in terms {
            bits.entry(literal).or_default().push(bit);
        }
        Index::Exact(bits.into_iter().map(|(literal, bits)| (literal, bits.into())).collect())
    }

    /// The index of terms on prefixes.
    pub(crate) fn prefixes(terms: Vec<(Box<[u8]>, u16)>) -> Index {
        let is_in = |one: &[u8], other: &[u8]| other.starts_with(one);
        Index::Prefixes(Affixes::new(terms, head, |one, other| one.cmp(other), is_in))
    }

    /// The index of terms on suffixes.
    pub(crate) fn suffixes(terms: Vec<(Box<[u8]>, u16)>) -> Index {
        let is_in = |one: &[u8], other: &[u8]| other.ends_with(one);
        Index::Suffixes(Affixes::new(terms, tail, reversed_order, is_in))
    }

    /// The index of terms on patterns, without the terms whose patterns exceed a limit alone.
    pub(crate) fn patterns(terms: &[(String, u16)]) -> Index {
        let mut machines = Vec::new();
        divided(terms, &mut machines);
        Index::Patterns(machines.into())
    }

    /// The bits that the index can find.
    pub(crate) fn bits(&self) -> Vec<u16> {
        match self {
            Index::Exact(terms) => terms.values().flatten().copied().collect(),
            Index::Prefixes(affixes) | Index::Suffixes(affixes) => {
                affixes.all.iter().flat_map(|affix| &affix.bits).copied().collect()
            }
            Index::Patterns(machines) => {
                machines.iter().flat_map(|(_, bits)| bits).copied().collect()
            }
        }
    }
}

/// One automaton, or two of half the patterns each, and so on.
fn divided(terms: &[(String, u16)], machines: &mut Vec<(Machine, Box<[u16]>)>) {
    if terms.is_empty() {
        return;
    }
    let expressions: Vec<&str> = terms.iter().map(|(expression, _)| expression.as_str()).collect();
    if let Some(machine) = Machine::new(&expressions, JOINT_MACHINE_BYTES_MAX) {
        machines.push((machine, terms.iter().map(|(_, bit)| *bit).collect()));
    } else if terms.len() > 1 {
        let (one, other) = terms.split_at(terms.len() / 2);
        divided(one, machines);
        divided(other, machines);
    }
}

/// The order of strings that are read from their ends.
fn reversed_order(one: &[u8], other: &[u8]) -> Ordering {
    one.iter().rev().cmp(other.iter().rev())
}

/// The first bytes as a number. Numbers are ordered as the strings, or equal.
fn head(text: &[u8]) -> u64 {
    match text.first_chunk() {
        Some(first) => u64::from_be_bytes(*first),
        None => text.iter().rev().fold(0, |number, byte| number >> 8 | u64::from(*byte) << 56),
    }
}

/// The same of a string that is read from its end.
fn tail(text: &[u8]) -> u64 {
    match text.last_chunk() {
        Some(last) => u64::from_le_bytes(*last),
        None => text.iter().fold(0, |number, byte| number >> 8 | u64::from(*byte) << 56),
    }
}

/// Prefixes, or suffixes.
#[derive(Debug)]
pub(crate) struct Affixes {
    /// `head` or `tail` of each.
    keys: Box<[u64]>,
    all: Box<[Affix]>,
}

#[derive(Debug)]
struct Affix {
    text: Box<[u8]>,
    bits: Vec<u16>,
    /// The index of the next affix that holds if this affix holds, plus one; 0 if there is none.
    shorter: usize,
}

impl Affixes {
    fn new(
        mut terms: Vec<(Box<[u8]>, u16)>,
        key: impl Fn(&[u8]) -> u64,
        order: impl Fn(&[u8], &[u8]) -> Ordering,
        is_in: impl Fn(&[u8], &[u8]) -> bool,
    ) -> Affixes {
        terms.sort_by(|one, other| order(&one.0, &other.0));
        let mut all: Vec<Affix> = Vec::new();
        for (text, bit) in terms {
            if let Some(last) = all.last_mut().filter(|last| last.text == text) {
                last.bits.push(bit);
                continue;
            }
            let mut shorter = all.len();
            while shorter > 0 && !is_in(&all[shorter - 1].text, &text) {
                shorter = all[shorter - 1].shorter;
            }
            all.push(Affix { text, bits: vec![bit], shorter });
        }
        let keys: Box<[u64]> = all.iter().map(|affix| key(&affix.text)).collect();
        debug_assert!(keys.is_sorted(), "keys are ordered as the strings");
        Affixes { keys, all: all.into() }
    }

    /// The greatest affix that is not after the value is an affix of it, or else starts with each
    /// affix of the value.
    #[inline]
    fn find(
        &self,
        key: u64,
        order: impl Fn(&[u8]) -> Ordering,
        is_in: impl Fn(&[u8]) -> bool,
        mut found: impl FnMut(u16),
    ) {
        let mut next = self.keys.partition_point(|other| *other < key);
        let alike = self.keys[next..].partition_point(|other| *other == key);
        let is_before = |affix: &Affix| order(&affix.text) != Ordering::Greater;
        next += self.all[next..next + alike].partition_point(is_before);
        let mut holds = false;
        while next > 0 {
            let affix = &self.all[next - 1];
            holds = holds || is_in(&affix.text);
            debug_assert!(!holds || is_in(&affix.text), "a shorter affix holds, too");
            if holds {
                affix.bits.iter().copied().for_each(&mut found);
            }
            next = affix.shorter;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(index: &Index, value: &str) -> Vec<u16> {
        let mut bits = Vec::new();
        index.find(value.as_bytes(), |bit| bits.push(bit));
        bits.sort_unstable();
        bits.dedup();
        bits
    }

    fn terms(texts: &[&str]) -> Vec<(Box<[u8]>, u16)> {
        let numbered = texts.iter().enumerate();
        numbered.map(|(bit, text)| (text.as_bytes().into(), bit as u16)).collect()
    }

    /// All strings of `a` and `b` of at most four letters.
    fn strings() -> Vec<String> {
        let mut all = vec![String::new()];
        let mut at = 0;
        while all[at].len() < 4 {
            for letter in ['a', 'b'] {
                all.push(format!("{}{letter}", all[at]));
            }
            at += 1;
        }
        all
    }

    #[test]
    fn an_index_finds_what_a_look_at_each_term_finds() {
        let texts = ["a", "aab", "ab", "abab", "b", "ba", "bb", "ab", "aa"];
        let texts: Vec<&str> = texts.into();
        let patterns: Vec<_> =
            (0..).zip(&texts).map(|(bit, text)| (text.to_string(), bit)).collect();
        let prefixes = Index::prefixes(terms(&texts));
        let suffixes = Index::suffixes(terms(&texts));
        let exact = Index::exact(terms(&texts));
        let parts = Index::patterns(&patterns);
        for value in strings() {
            let each = |holds: &dyn Fn(&str) -> bool| -> Vec<u16> {
                (0..).zip(&texts).filter(|(_, text)| holds(text)).map(|(bit, _)| bit).collect()
            };
            assert_eq!(found(&prefixes, &value), each(&|text| value.starts_with(text)), "{value}");
            assert_eq!(found(&suffixes, &value), each(&|text| value.ends_with(text)), "{value}");
            assert_eq!(found(&exact, &value), each(&|text| value == text), "{value}");
            assert_eq!(found(&parts, &value), each(&|text| value.contains(text)), "{value}");
        }
    }

    #[test]
    fn patterns_that_are_too_large_together_are_divided() {
        let pattern = |letter: char| format!("({letter}|x).{{8}}{letter}.{{3}}");
        let patterns: Vec<_> =
            ('a'..='h').enumerate().map(|(bit, letter)| (pattern(letter), bit as u16)).collect();
        let index = Index::patterns(&patterns);
        let Index::Patterns(machines) = &index else { panic!("an index of patterns") };
        assert!(machines.len() > 1, "{}", machines.len());
        assert_eq!(index.bits().len(), patterns.len());
        assert_eq!(found(&index, "x01234567c012"), [2]);
    }
}
