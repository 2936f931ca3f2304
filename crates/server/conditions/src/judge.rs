//! Judging: the value of a condition for the facts of one request.

use std::cmp::Ordering;
use std::net::IpAddr;

use twox_hash::XxHash3_64;

use crate::compile::{Atom, Code, Conditions, Figure, Id, Int, Operand, Place, Placed, Source};
use crate::facts::Facts;
use crate::limits::{BITS_MAX, SLOTS_IN_PLACE_MAX};
use crate::networks::canonical;
use crate::scratch::Scratch;
use crate::sent;
use crate::syntax::Order;
use crate::value::{self, Value};

/// The judgement of one request. It remembers the values that it has looked up.
#[derive(Debug)]
pub struct Judge<'c, 'f> {
    conditions: &'c Conditions,
    facts: Facts<'f>,
    /// The client's address, canonical.
    client: IpAddr,
    scratch: Scratch,
    /// The values of the first slots, once they have been looked up.
    slots: [Option<Value<'c, 'f>>; SLOTS_IN_PLACE_MAX],
    /// The indexes that have been looked at.
    looked: u64,
    /// The bits whose atoms have been tested one by one.
    known: [u64; BITS_MAX / 64],
    /// The bits whose atoms hold.
    holding: [u64; BITS_MAX / 64],
}

/// A comparison with its value, for an explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The comparison as it is written.
    pub text: String,
    /// The value that is compared. Strings are in quotes.
    pub value: String,
    /// Whether the comparison holds.
    pub holds: bool,
}

impl Conditions {
    /// Begins to judge a request.
    pub fn judge<'c, 'f>(&'c self, facts: Facts<'f>) -> Judge<'c, 'f> {
        Judge {
            conditions: self,
            facts,
            client: canonical(facts.client),
            scratch: Scratch::new(),
            slots: [None; SLOTS_IN_PLACE_MAX],
            looked: 0,
            known: [0; BITS_MAX / 64],
            holding: [0; BITS_MAX / 64],
        }
    }

    /// What a named group of `path.matches` captured, if the condition holds and has such a group.
    /// A group that took no part in the match captured the empty string.
    pub fn capture<'f>(&self, id: Id, name: &str, facts: &Facts<'f>) -> Option<&'f [u8]> {
        let mut judge = self.judge(*facts);
        if !judge.holds(id) {
            return None;
        }
        judge.captured(&self.conditions[id.index()].code, true, name)
    }
}

enum Num {
    Int(i64),
    Double(f64),
}

impl<'c, 'f> Judge<'c, 'f> {
    /// Whether a condition holds.
    pub fn holds(&mut self, id: Id) -> bool {
        let conditions = self.conditions;
        self.code(&conditions.conditions[id.index()].code)
    }

    /// Calls `found` with the position of each condition that holds, in order.
    pub fn matching(&mut self, ids: &[Id], mut found: impl FnMut(usize)) {
        let conditions = self.conditions;
        for (position, id) in ids.iter().enumerate() {
            let condition = &conditions.conditions[id.index()];
            let holds = match condition.guard {
                Some(guard) => {
                    self.indexed(guard.index, guard.bit)
                        && (guard.is_whole || self.code(&condition.code))
                }
                None => self.code(&condition.code),
            };
            if holds {
                found(position);
            }
        }
    }

    /// Each comparison of a condition with its value, in the order of the text.
    pub fn terms(&mut self, id: Id) -> Vec<Term> {
        let condition = &self.conditions.conditions[id.index()];
        let terms = condition.terms.iter().map(|term| {
            let atom = &self.conditions.atoms[usize::from(term.atom)].atom;
            Term {
                text: condition.text[term.at.clone()].to_owned(),
                value: self.shown(atom),
                holds: self.test(atom) != term.is_not,
            }
        });
        terms.collect()
    }

    fn code(&mut self, code: &'c Code) -> bool {
        match code {
            Code::Atom { atom, is_not } => self.atom(*atom) != *is_not,
            Code::Not(inner) => !self.code(inner),
            Code::All(inner) => inner.iter().all(|code| self.code(code)),
            Code::Any(inner) => inner.iter().any(|code| self.code(code)),
            Code::Same(inner) => self.code(&inner[0]) == self.code(&inner[1]),
            Code::Choice(inner) => {
                let chosen = if self.code(&inner[0]) { 1 } else { 2 };
                self.code(&inner[chosen])
            }
        }
    }

    #[inline]
    fn atom(&mut self, atom: u16) -> bool {
        let conditions = self.conditions;
        let Placed { atom, place } = &conditions.atoms[usize::from(atom)];
        match *place {
            Place::None => self.test(atom),
            Place::Index(index, bit) => self.indexed(index, bit),
            Place::Bit(bit) => {
                let (word, mask) = (usize::from(bit / 64), 1 << (bit % 64));
                if self.known[word] & mask == 0 {
                    self.known[word] |= mask;
                    if self.test(atom) {
                        self.holding[word] |= mask;
                    }
                }
                self.holding[word] & mask != 0
            }
        }
    }

    /// Whether the term with this bit holds, by its index.
    #[inline]
    fn indexed(&mut self, index: u8, bit: u16) -> bool {
        if self.looked & (1 << index) == 0 {
            self.look(index);
        }
        self.holding[usize::from(bit / 64)] & (1 << (bit % 64)) != 0
    }

    fn look(&mut self, index: u8) {
        self.looked |= 1 << index;
        let conditions = self.conditions;
        let (of, index) = &conditions.indexes[usize::from(index)];
        let value = self.value(of);
        let Judge { scratch, holding, .. } = self;
        index.find(scratch.bytes_of(value), |bit| {
            holding[usize::from(bit / 64)] |= 1 << (bit % 64);
        });
    }

    /// Tests an atom: here the tests that need no value of a slot.
    #[inline]
    fn test(&mut self, atom: &'c Atom) -> bool {
        match atom {
            Atom::Between(of, least, most) => {
                let value = self.int(*of);
                *least <= value && value <= *most
            }
            Atom::Within(networks) => networks.has(self.client),
            atom => self.test_values(atom),
        }
    }

    #[inline(never)]
    fn test_values(&mut self, atom: &'c Atom) -> bool {
        let facts = &self.facts;
        match atom {
            Atom::Is(one, other) => self.with(one, other, is_same),
            Atom::Starts(one, other) => self.with(one, other, <[u8]>::starts_with),
            Atom::Ends(one, other) => self.with(one, other, <[u8]>::ends_with),
            Atom::Contains(one, other) => {
                self.with(one, other, |one, other| memchr::memmem::find(one, other).is_some())
            }
            Atom::Finds(of, finder) => self.of(of, |value| finder.find(value).is_some()),
            Atom::Matches(of, pattern) => self.of(of, |value| pattern.is_match(value)),
            Atom::Among(of, values) => {
                self.of(of, |value| values.binary_search_by(|other| (**other).cmp(value)).is_ok())
            }
            Atom::InList(of, list) => self.of(of, |value| list.set.contains(value)),
            Atom::InMap(of, map) => self.of(of, |value| map.pairs.contains_key(value)),
            Atom::Numbers(one, order, other) => {
                let (one, other) = (self.number(one), self.number(other));
                is_ordered(&one, *order, &other)
            }
            Atom::NumberIn(of, values) => {
                let of = self.number(of);
                values.iter().any(|value| is_ordered(&of, Order::Is, &self.number(value)))
            }
            Atom::Between(..) | Atom::Within(_) => unreachable!("`test` has tested it"),
            Atom::HasField(name, spelling) => value::has_field(&facts.fields, *name, spelling),
            Atom::HasResponse(name, spelling) => {
                let response = facts.response.as_ref();
                response.is_some_and(|response| value::has_field(&response.fields, *name, spelling))
            }
            Atom::HasCookie(name) => value::cookie(&facts.fields, name).is_some(),
            Atom::HasArg(name) => value::has_arg(facts.query, name),
        }
    }

    fn of<R>(&mut self, operand: &'c Operand, look: impl FnOnce(&[u8]) -> R) -> R {
        let value = self.value(operand);
        look(self.scratch.bytes_of(value))
    }

    fn with<R>(
        &mut self,
        one: &'c Operand,
        other: &'c Operand,
        look: impl FnOnce(&[u8], &[u8]) -> R,
    ) -> R {
        let (one, other) = (self.value(one), self.value(other));
        look(self.scratch.bytes_of(one), self.scratch.bytes_of(other))
    }

    fn value(&mut self, operand: &'c Operand) -> Value<'c, 'f> {
        let facts = &self.facts;
        let tls = |name: fn(&'f crate::TlsNames) -> &'f Option<String>| {
            let name = facts.tls.and_then(|tls| name(tls).as_deref());
            Value::Given(name.unwrap_or_default().as_bytes())
        };
        match operand {
            Operand::Host => Value::Given(facts.host),
            Operand::Path => Value::Given(facts.path),
            Operand::Query => Value::Given(facts.query),
            Operand::Method => Value::Given(facts.method),
            Operand::Scheme => Value::Given(facts.scheme.as_bytes()),
            Operand::Listener => Value::Given(facts.listener.as_bytes()),
            Operand::User => Value::Given(facts.user.unwrap_or_default()),
            Operand::Sni => tls(|tls| &tls.sni),
            Operand::ClientSubject => tls(|tls| &tls.client_subject),
            Operand::Literal(value) => Value::Fixed(value),
            Operand::Slot(slot) => self.slot(*slot),
        }
    }

    fn slot(&mut self, slot: u16) -> Value<'c, 'f> {
        let slot = usize::from(slot);
        match self.slots.get(slot) {
            Some(Some(value)) => *value,
            Some(None) => {
                let value = self.looked_up(slot);
                self.slots[slot] = Some(value);
                value
            }
            None => {
                let further = slot - SLOTS_IN_PLACE_MAX;
                self.scratch.kept(further).unwrap_or_else(|| {
                    let value = self.looked_up(slot);
                    self.scratch.keep(further, value)
                })
            }
        }
    }

    fn looked_up(&mut self, slot: usize) -> Value<'c, 'f> {
        let conditions = self.conditions;
        let Judge { facts, scratch, .. } = self;
        match &conditions.slots[slot] {
            Source::Field(name, spelling) => {
                value::field(&facts.fields, (*name, spelling), scratch)
            }
            Source::Response(name, spelling) => match &facts.response {
                Some(response) => value::field(&response.fields, (*name, spelling), scratch),
                None => Value::Given(b""),
            },
            Source::Cookie(name) => {
                Value::Given(value::cookie(&facts.fields, name).unwrap_or_default())
            }
            Source::Arg(name) => value::arg(facts.query, name, scratch),
            Source::Url => sent::url(facts, scratch),
            Source::Target => sent::target(&facts.sent, scratch),
            Source::Lower(of) => {
                let of = self.value(of);
                let copy = self.scratch.copy(of);
                self.scratch.lower(copy);
                copy
            }
            Source::Mapped(map, of) => {
                let found = self.of(of, |value| map.pairs.get(value));
                Value::Fixed(found.map_or(b"", |value| value))
            }
        }
    }

    #[inline]
    fn int(&self, of: Int) -> i64 {
        let facts = &self.facts;
        let (day_s, hour_s) = (86_400, 3_600);
        match of {
            Int::Port => i64::from(facts.port),
            Int::Hour => (facts.now_s % day_s / hour_s) as i64,
            Int::Minute => (facts.now_s % hour_s / 60) as i64,
            // The first day of 1970 was a Thursday.
            Int::Weekday => ((facts.now_s / day_s + 4) % 7) as i64,
            Int::Status => facts.response.as_ref().map_or(0, |response| i64::from(response.status)),
            Int::Size => {
                let size = facts.response.as_ref().and_then(|response| response.size);
                size.map_or(-1, |size| i64::try_from(size).unwrap_or(i64::MAX))
            }
        }
    }

    fn number(&mut self, figure: &'c Figure) -> Num {
        match figure {
            Figure::Variable(of) => Num::Int(self.int(*of)),
            Figure::Random => Num::Double(self.facts.random),
            Figure::Share(of) => Num::Double(self.of(of, share)),
            Figure::Length(of) => Num::Int(self.of(of, length)),
            Figure::Int(value) => Num::Int(*value),
            Figure::Double(value) => Num::Double(*value),
        }
    }

    /// The values that an atom compares.
    fn shown(&mut self, atom: &'c Atom) -> String {
        let presence = |holds: bool| String::from(if holds { "present" } else { "absent" });
        match atom {
            Atom::Is(one, other)
            | Atom::Starts(one, other)
            | Atom::Ends(one, other)
            | Atom::Contains(one, other) => {
                let shown = self.shown_text(one);
                match other {
                    Operand::Literal(_) => shown,
                    other => format!("{shown} and {}", self.shown_text(other)),
                }
            }
            Atom::Finds(of, _)
            | Atom::Matches(of, _)
            | Atom::Among(of, _)
            | Atom::InList(of, _)
            | Atom::InMap(of, _) => self.shown_text(of),
            Atom::Numbers(one, _, other) => {
                let shown = self.shown_number(one);
                match other {
                    Figure::Int(_) | Figure::Double(_) => shown,
                    other => format!("{shown} and {}", self.shown_number(other)),
                }
            }
            Atom::NumberIn(of, _) => self.shown_number(of),
            Atom::Between(of, ..) => self.int(*of).to_string(),
            Atom::Within(_) => self.client.to_string(),
            Atom::HasField(..) | Atom::HasResponse(..) | Atom::HasCookie(_) | Atom::HasArg(_) => {
                presence(self.test(atom))
            }
        }
    }

    fn shown_text(&mut self, operand: &'c Operand) -> String {
        self.of(operand, |value| {
            let text = String::from_utf8_lossy(value);
            let shown: String = text
                .chars()
                .map(|character| match character {
                    '\'' | '\\' => format!("\\{character}"),
                    other if other.is_control() => other.escape_default().to_string(),
                    other => other.to_string(),
                })
                .collect();
            format!("'{shown}'")
        })
    }

    fn shown_number(&mut self, figure: &'c Figure) -> String {
        match self.number(figure) {
            Num::Int(value) => value.to_string(),
            Num::Double(value) => ((value * 1e6).round() / 1e6).to_string(),
        }
    }

    /// What a group captured in code that holds, or that does not hold.
    fn captured(&mut self, code: &'c Code, holds: bool, name: &str) -> Option<&'f [u8]> {
        match code {
            Code::Atom { atom, is_not } if holds != *is_not => {
                match &self.conditions.atoms[usize::from(*atom)].atom {
                    Atom::Matches(Operand::Path, pattern) => {
                        pattern.captured(self.facts.path, name)
                    }
                    _ => None,
                }
            }
            Code::Atom { .. } | Code::Same(_) => None,
            Code::Not(inner) => self.captured(inner, !holds, name),
            Code::All(inner) | Code::Any(inner) => {
                let is_each = matches!(code, Code::All(_)) == holds;
                inner.iter().find_map(|code| {
                    let counts = is_each || self.code(code) == holds;
                    if counts { self.captured(code, holds, name) } else { None }
                })
            }
            Code::Choice(inner) => {
                let [condition, one, other] = &**inner;
                let is_first = self.code(condition);
                let chosen = if is_first { one } else { other };
                let of_condition = self.captured(condition, is_first, name);
                of_condition.or_else(|| self.captured(chosen, holds, name))
            }
        }
    }
}

/// Equality. An empty slice may have no memory, where some processors compare zero bytes slowly.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && (one.is_empty() || one == other)
}

/// The share of a value: its XXH3 hash as a double, at least 0 and less than 1. The hash has no
/// seed, so a value has the same share in every process and every version.
fn share(value: &[u8]) -> f64 {
    // A double has 53 bits.
    (XxHash3_64::oneshot(value) >> 11) as f64 / (1_u64 << 53) as f64
}

/// The number of characters: of bytes that do not continue a character of UTF-8.
fn length(value: &[u8]) -> i64 {
    value.iter().filter(|byte| **byte & 0b1100_0000 != 0b1000_0000).count() as i64
}

fn is_ordered(one: &Num, order: Order, other: &Num) -> bool {
    let ordering = match (one, other) {
        (Num::Int(one), Num::Int(other)) => Some(one.cmp(other)),
        (Num::Int(one), Num::Double(other)) => (*one as f64).partial_cmp(other),
        (Num::Double(one), Num::Int(other)) => one.partial_cmp(&(*other as f64)),
        (Num::Double(one), Num::Double(other)) => one.partial_cmp(other),
    };
    let Some(ordering) = ordering else { return order == Order::IsNot };
    match order {
        Order::Is => ordering == Ordering::Equal,
        Order::IsNot => ordering != Ordering::Equal,
        Order::Less => ordering == Ordering::Less,
        Order::AtMost => ordering != Ordering::Greater,
        Order::More => ordering == Ordering::Greater,
        Order::AtLeast => ordering != Ordering::Less,
    }
}
