//! All conditions of a configuration, compiled together.
//!
//! What: [`Builder`] collects conditions; [`Conditions`] has each different term once, as an
//! [`Atom`], and each different value that has to be looked up once, as a slot.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use http1::Name;
use memchr::memmem;

use crate::facts::{Reads, Scope};
use crate::index::Index;
use crate::limits::{CONDITIONS_MAX, SLOTS_MAX, TERMS_MAX};
use crate::lists::{List, Lists, Map};
use crate::mistake::Mistake;
use crate::networks::Networks;
use crate::pattern::Pattern;
use crate::plan::{self, Plan};
use crate::syntax::Order;
use crate::tree::{Number, Table, Term, Test, Text, TextTest, Tree};

/// The number of a condition in its [`Conditions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u16);

impl Id {
    /// Conditions are numbered from 0, in the order in which they were added.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Collects the conditions of a configuration.
#[derive(Debug, Default)]
pub struct Builder {
    lists: Lists,
    conditions: Vec<Condition>,
    atoms: Interned<Test>,
    sources: Interned<Text>,
}

/// All conditions of one configuration, compiled together. Cores share them; judging changes
/// nothing.
pub struct Conditions {
    pub(crate) conditions: Box<[Condition]>,
    pub(crate) atoms: Box<[Placed]>,
    pub(crate) slots: Box<[Source]>,
    /// Each with the value that it looks at.
    pub(crate) indexes: Box<[(Operand, Index)]>,
}

/// One condition.
#[derive(Debug)]
pub(crate) struct Condition {
    pub(crate) text: Box<str>,
    pub(crate) reads: Reads,
    pub(crate) code: Code,
    /// A term without which the condition does not hold, if such a term has an index.
    pub(crate) guard: Option<Guard>,
    /// The terms in the order of the text.
    pub(crate) terms: Box<[TermAt]>,
}

/// Where a term is in the text.
#[derive(Debug)]
pub(crate) struct TermAt {
    pub(crate) at: Range<usize>,
    pub(crate) atom: u16,
    pub(crate) is_not: bool,
}

/// A term that an index finds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    pub(crate) index: u8,
    pub(crate) bit: u16,
    /// The term is the whole condition.
    pub(crate) is_whole: bool,
}

/// An atom, and where its result is remembered.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) atom: Atom,
    pub(crate) place: Place,
}

/// Where the result of an atom is remembered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    /// Nowhere: one condition uses it.
    None,
    /// In this bit, once it has been tested.
    Bit(u16),
    /// In this bit, once this index has been looked at.
    Index(u8, u16),
}

/// The tree of a condition, with terms by number.
#[derive(Debug)]
pub(crate) enum Code {
    Atom { atom: u16, is_not: bool },
    Not(Box<Code>),
    All(Box<[Code]>),
    Any(Box<[Code]>),
    Same(Box<[Code; 2]>),
    Choice(Box<[Code; 3]>),
}

/// A test, with its values by slot.
#[derive(Debug)]
pub(crate) enum Atom {
    Is(Operand, Operand),
    Starts(Operand, Operand),
    Ends(Operand, Operand),
    Contains(Operand, Operand),
    /// The needle is a literal, and the searcher is made.
    Finds(Operand, Box<memmem::Finder<'static>>),
    Matches(Operand, Pattern),
    Among(Operand, Box<[Box<[u8]>]>),
    InList(Operand, Arc<List>),
    InMap(Operand, Arc<Map>),
    /// An int between two ints, or equal to one of them.
    Between(Int, i64, i64),
    Numbers(Figure, Order, Figure),
    NumberIn(Figure, Box<[Figure]>),
    Within(Arc<Networks>),
    HasField(Name, Box<[u8]>),
    HasResponse(Name, Box<[u8]>),
    HasCookie(Box<[u8]>),
    HasArg(Box<[u8]>),
}

/// A string of an atom.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    Host,
    Path,
    Query,
    Method,
    Scheme,
    Listener,
    User,
    Sni,
    ClientSubject,
    Literal(Box<[u8]>),
    Slot(u16),
}

/// Where the value of a slot comes from.
#[derive(Debug)]
pub(crate) enum Source {
    Field(Name, Box<[u8]>),
    Response(Name, Box<[u8]>),
    Cookie(Box<[u8]>),
    Arg(Box<[u8]>),
    Url,
    Target,
    Lower(Operand),
    Mapped(Arc<Map>, Operand),
}

/// A variable that is an int.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Int {
    Port,
    Hour,
    Minute,
    Weekday,
    Status,
    Size,
}

/// A number of an atom.
#[derive(Debug)]
pub(crate) enum Figure {
    Variable(Int),
    Random,
    Share(Operand),
    Length(Operand),
    Int(i64),
    Double(f64),
}

impl Builder {
    /// No conditions yet; conditions may use these lists.
    pub fn new(lists: Lists) -> Builder {
        Builder { lists, ..Builder::default() }
    }

    /// Adds a condition.
    pub fn add(&mut self, text: &str, scope: Scope) -> Result<Id, Mistake> {
        let whole = 0..text.len();
        let checked = crate::check(text, scope, &self.lists)?;
        let too_many = |what: &str, most: usize| {
            Err(Mistake::new(&whole, format!("the configuration has more than {most} {what}")))
        };
        if self.conditions.len() == CONDITIONS_MAX {
            return too_many("conditions", CONDITIONS_MAX);
        }
        let mut terms = Vec::new();
        let code = self.code(&checked.tree, &mut terms);
        if self.atoms.all.len() > TERMS_MAX {
            return too_many("different terms", TERMS_MAX);
        }
        if self.sources.all.len() > SLOTS_MAX {
            return too_many("different fields, cookies and arguments", SLOTS_MAX);
        }
        let id = Id(self.conditions.len() as u16);
        let (text, reads, terms) = (text.into(), checked.reads(), terms.into());
        let condition = Condition { text, reads, code, guard: None, terms };
        self.conditions.push(condition);
        Ok(id)
    }

    /// Compiles the conditions.
    pub fn build(self) -> Conditions {
        let Builder { mut conditions, atoms, sources, .. } = self;
        let sources = by_use(&atoms.all, sources);
        let slots = sources.all.iter().map(|text| source(text, &sources)).collect();
        let uses = uses_of(&conditions, atoms.all.len());
        let Plan { indexes, places } = plan::plan(&atoms.all, &uses);
        let indexes = indexes.into_iter().map(|(text, index)| (operand(&text, &sources), index));
        let placed = atoms.all.iter().zip(places);
        let atoms: Box<[Placed]> =
            placed.map(|(test, place)| Placed { atom: atom(test, &sources), place }).collect();
        for condition in &mut conditions {
            condition.guard = guard(&condition.code, &atoms, &uses);
        }
        Conditions { conditions: conditions.into(), atoms, slots, indexes: indexes.collect() }
    }

    fn code(&mut self, tree: &Tree, terms: &mut Vec<TermAt>) -> Code {
        let mut all = |trees: &[Tree]| -> Vec<Code> {
            trees.iter().map(|tree| self.code(tree, terms)).collect()
        };
        match tree {
            Tree::Constant(holds) => match holds {
                true => Code::All(Box::new([])),
                false => Code::Any(Box::new([])),
            },
            Tree::Term(Term { at, test, is_not }) => {
                each_slot(test, &mut |text| {
                    self.sources.number(text);
                });
                let (atom, is_not) = (self.atoms.number(test), *is_not);
                terms.push(TermAt { at: at.clone(), atom, is_not });
                Code::Atom { atom, is_not }
            }
            Tree::Not(inner) => Code::Not(Box::new(self.code(inner, terms))),
            Tree::All(inner) => Code::All(all(inner).into()),
            Tree::Any(inner) => Code::Any(all(inner).into()),
            Tree::Same(inner) => {
                Code::Same(Box::new([self.code(&inner[0], terms), self.code(&inner[1], terms)]))
            }
            Tree::Choice(inner) => {
                let [condition, one, other] = &**inner;
                let condition = self.code(condition, terms);
                let one = self.code(one, terms);
                Code::Choice(Box::new([condition, one, self.code(other, terms)]))
            }
        }
    }
}

impl fmt::Debug for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.conditions.iter().map(|condition| &condition.text)).finish()
    }
}

impl Conditions {
    /// The facts that a condition reads.
    pub fn reads(&self, id: Id) -> Reads {
        self.conditions[id.index()].reads
    }

    /// The text of a condition.
    pub fn text(&self, id: Id) -> &str {
        &self.conditions[id.index()].text
    }
}

/// Different values, each with a number.
#[derive(Debug)]
struct Interned<T> {
    all: Vec<T>,
    numbers: HashMap<T, u16>,
}

impl<T> Default for Interned<T> {
    fn default() -> Interned<T> {
        Interned { all: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Interned<T> {
    fn number(&mut self, value: &T) -> u16 {
        if let Some(number) = self.numbers.get(value) {
            return *number;
        }
        let number = self.all.len() as u16;
        self.all.push(value.clone());
        self.numbers.insert(value.clone(), number);
        number
    }
}

/// The sources, the most used first: the first slots are remembered where they are.
fn by_use(tests: &[Test], sources: Interned<Text>) -> Interned<Text> {
    let mut uses = vec![0_usize; sources.all.len()];
    for test in tests {
        each_slot(test, &mut |text| uses[usize::from(sources.numbers[text])] += 1);
    }
    let mut order: Vec<usize> = (0..uses.len()).collect();
    order.sort_by_key(|slot| std::cmp::Reverse(uses[*slot]));
    let mut sorted = Interned::default();
    for slot in order {
        sorted.number(&sources.all[slot]);
    }
    sorted
}

/// How many places of conditions use each atom.
fn uses_of(conditions: &[Condition], atoms: usize) -> Vec<usize> {
    let mut uses = vec![0; atoms];
    for term in conditions.iter().flat_map(|condition| &condition.terms) {
        uses[usize::from(term.atom)] += 1;
    }
    uses
}

/// A term of `&&` that an index finds. Of several terms, the term with the fewest uses holds for
/// the fewest requests, as a rule.
fn guard(code: &Code, atoms: &[Placed], uses: &[usize]) -> Option<Guard> {
    let by_index = |code: &Code| match code {
        Code::Atom { atom, is_not: false } => match atoms[usize::from(*atom)].place {
            Place::Index(index, bit) => Some((uses[usize::from(*atom)], index, bit)),
            _ => None,
        },
        _ => None,
    };
    let (found, is_whole) = match code {
        Code::All(inner) => (inner.iter().filter_map(by_index).min(), false),
        code => (by_index(code), true),
    };
    found.map(|(_, index, bit)| Guard { index, bit, is_whole })
}

/// Calls `look` with each string of a test that has a slot, inner strings first.
fn each_slot<'t>(test: &'t Test, look: &mut dyn FnMut(&'t Text)) {
    let number = |number: &'t Number, look: &mut dyn FnMut(&'t Text)| {
        if let Number::Share(text) | Number::Length(text) = number {
            each_slot_of(text, look);
        }
    };
    match test {
        Test::Text(text, how) => {
            each_slot_of(text, look);
            if let TextTest::Is(with)
            | TextTest::Starts(with)
            | TextTest::Ends(with)
            | TextTest::Contains(with) = how
            {
                each_slot_of(with, look);
            }
        }
        Test::Numbers(one, _, other) => {
            number(one, look);
            number(other, look);
        }
        Test::NumberIn(of, _) => number(of, look),
        Test::Within(_) | Test::Has(..) => {}
    }
}

fn each_slot_of<'t>(text: &'t Text, look: &mut dyn FnMut(&'t Text)) {
    match text {
        Text::Lower(of) | Text::Mapped(_, of) => {
            each_slot_of(of, look);
            look(text);
        }
        Text::Of(..) | Text::Url | Text::Target => look(text),
        _ => {}
    }
}

fn atom(test: &Test, sources: &Interned<Text>) -> Atom {
    match test {
        Test::Text(text, how) => {
            let of = operand(text, sources);
            match how {
                TextTest::Is(with) => Atom::Is(of, operand(with, sources)),
                TextTest::Starts(with) => Atom::Starts(of, operand(with, sources)),
                TextTest::Ends(with) => Atom::Ends(of, operand(with, sources)),
                TextTest::Contains(Text::Literal(with)) => {
                    Atom::Finds(of, Box::new(memmem::Finder::new(with).into_owned()))
                }
                TextTest::Contains(with) => Atom::Contains(of, operand(with, sources)),
                TextTest::Matches(pattern) => Atom::Matches(of, pattern.clone()),
                TextTest::Among(values) => Atom::Among(of, values.clone()),
                TextTest::InList(list) => Atom::InList(of, Arc::clone(list)),
                TextTest::InMap(map) => Atom::InMap(of, Arc::clone(map)),
            }
        }
        Test::Numbers(one, order, other) => match (figure(one, sources), figure(other, sources)) {
            (Figure::Variable(one), Figure::Int(other)) => between(one, *order, other),
            (one, other) => Atom::Numbers(one, *order, other),
        },
        Test::NumberIn(of, values) => {
            let values = values.iter().map(|value| figure(value, sources)).collect();
            Atom::NumberIn(figure(of, sources), values)
        }
        Test::Within(networks) => Atom::Within(Arc::clone(networks)),
        Test::Has(table, name) => match table {
            Table::Fields => Atom::HasField(Name::from_bytes(name), name.clone()),
            Table::Response => Atom::HasResponse(Name::from_bytes(name), name.clone()),
            Table::Cookies => Atom::HasCookie(name.clone()),
            Table::Args => Atom::HasArg(name.clone()),
        },
    }
}

/// A comparison of an int with an int.
fn between(one: Int, order: Order, other: i64) -> Atom {
    let (least, most) = match order {
        Order::Is => (other, other),
        Order::Less => (i64::MIN, other.saturating_sub(1)),
        Order::AtMost => (i64::MIN, other),
        Order::More => (other.saturating_add(1), i64::MAX),
        Order::AtLeast => (other, i64::MAX),
        Order::IsNot => unreachable!("a test has no `!=`: its term is negated"),
    };
    Atom::Between(one, least, most)
}

fn operand(text: &Text, sources: &Interned<Text>) -> Operand {
    match text {
        Text::Host => Operand::Host,
        Text::Path => Operand::Path,
        Text::Query => Operand::Query,
        Text::Method => Operand::Method,
        Text::Scheme => Operand::Scheme,
        Text::Listener => Operand::Listener,
        Text::User => Operand::User,
        Text::Sni => Operand::Sni,
        Text::ClientSubject => Operand::ClientSubject,
        Text::Literal(value) => Operand::Literal(value.clone()),
        Text::Of(..) | Text::Url | Text::Target | Text::Lower(_) | Text::Mapped(..) => {
            Operand::Slot(sources.numbers[text])
        }
    }
}

fn source(text: &Text, sources: &Interned<Text>) -> Source {
    match text {
        Text::Of(Table::Fields, name) => Source::Field(Name::from_bytes(name), name.clone()),
        Text::Of(Table::Response, name) => Source::Response(Name::from_bytes(name), name.clone()),
        Text::Of(Table::Cookies, name) => Source::Cookie(name.clone()),
        Text::Of(Table::Args, name) => Source::Arg(name.clone()),
        Text::Url => Source::Url,
        Text::Target => Source::Target,
        Text::Lower(of) => Source::Lower(operand(of, sources)),
        Text::Mapped(map, of) => Source::Mapped(Arc::clone(map), operand(of, sources)),
        _ => unreachable!("other variables and literals have no slot"),
    }
}

fn figure(number: &Number, sources: &Interned<Text>) -> Figure {
    match number {
        Number::Port => Figure::Variable(Int::Port),
        Number::Hour => Figure::Variable(Int::Hour),
        Number::Minute => Figure::Variable(Int::Minute),
        Number::Weekday => Figure::Variable(Int::Weekday),
        Number::Status => Figure::Variable(Int::Status),
        Number::Size => Figure::Variable(Int::Size),
        Number::Random => Figure::Random,
        Number::Share(text) => Figure::Share(operand(text, sources)),
        Number::Length(text) => Figure::Length(operand(text, sources)),
        Number::Int(value) => Figure::Int(*value),
        Number::Double(bits) => Figure::Double(f64::from_bits(*bits)),
    }
}
