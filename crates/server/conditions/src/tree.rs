//! A condition with its types: what [`check`](mod@crate::check) makes and everything else reads.

use std::ops::Range;
use std::sync::Arc;

use crate::facts::Reads;
use crate::lists::{List, Map};
use crate::networks::Networks;
use crate::pattern::Pattern;
use crate::syntax::Order;

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    Constant(bool),
    Term(Term),
    Not(Box<Tree>),
    All(Vec<Tree>),
    Any(Vec<Tree>),
    /// Both hold, or both do not.
    Same(Box<[Tree; 2]>),
    /// If the first holds, the second, and else the third.
    Choice(Box<[Tree; 3]>),
}

/// A comparison. Two terms are equal if they compare the same, wherever they are.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) at: Range<usize>,
    pub(crate) test: Test,
    /// The term holds when the test does not: `!=`.
    pub(crate) is_not: bool,
}

impl PartialEq for Term {
    fn eq(&self, other: &Term) -> bool {
        self.is_not == other.is_not && self.test == other.test
    }
}

impl Eq for Term {}

/// What a term tests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Test {
    Text(Text, TextTest),
    /// The order is not `IsNot`.
    Numbers(Number, Order, Number),
    NumberIn(Number, Box<[Number]>),
    Within(Arc<Networks>),
    Has(Table, Box<[u8]>),
}

/// How a string is tested.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TextTest {
    Is(Text),
    Starts(Text),
    Ends(Text),
    Contains(Text),
    Matches(Pattern),
    /// One of these strings, which are sorted.
    Among(Box<[Box<[u8]>]>),
    InList(Arc<List>),
    InMap(Arc<Map>),
}

/// A string.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Text {
    Host,
    Path,
    Query,
    Url,
    Target,
    Method,
    Scheme,
    Listener,
    User,
    Sni,
    ClientSubject,
    Literal(Box<[u8]>),
    /// The value of this name, in lower case if names ignore case.
    Of(Table, Box<[u8]>),
    Lower(Box<Text>),
    Mapped(Arc<Map>, Box<Text>),
}

/// Where a named value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Table {
    Fields,
    Cookies,
    Args,
    Response,
}

/// A number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Number {
    Port,
    Hour,
    Minute,
    Weekday,
    Status,
    Size,
    Random,
    Share(Text),
    /// The number of characters.
    Length(Text),
    Int(i64),
    /// The bits of a double.
    Double(u64),
}

impl Table {
    pub(crate) fn reads(self) -> Reads {
        match self {
            Table::Fields => Reads::FIELDS,
            Table::Cookies => Reads::COOKIES,
            Table::Args => Reads::ARGS,
            Table::Response => Reads::RESPONSE.union(Reads::RESPONSE_FIELDS),
        }
    }
}

impl Text {
    pub(crate) fn reads(&self) -> Reads {
        match self {
            Text::Host => Reads::HOST,
            Text::Path => Reads::PATH,
            Text::Query => Reads::QUERY,
            Text::Url => Reads::HOST | Reads::SCHEME | Text::Target.reads(),
            Text::Target => Reads::PATH | Reads::QUERY,
            Text::Method => Reads::METHOD,
            Text::Scheme => Reads::SCHEME,
            Text::Listener => Reads::LISTENER,
            Text::User => Reads::USER,
            Text::Sni | Text::ClientSubject => Reads::TLS,
            Text::Literal(_) => Reads::NONE,
            Text::Of(table, _) => table.reads(),
            Text::Lower(of) | Text::Mapped(_, of) => of.reads(),
        }
    }

    pub(crate) fn literal(&self) -> Option<&[u8]> {
        match self {
            Text::Literal(value) => Some(value),
            _ => None,
        }
    }
}

impl Number {
    pub(crate) fn reads(&self) -> Reads {
        match self {
            Number::Port => Reads::LISTENER,
            Number::Hour | Number::Minute | Number::Weekday => Reads::TIME,
            Number::Status => Reads::RESPONSE.union(Reads::STATUS),
            Number::Size => Reads::RESPONSE.union(Reads::RESPONSE_FIELDS),
            Number::Random => Reads::RANDOM,
            Number::Share(of) | Number::Length(of) => of.reads(),
            Number::Int(_) | Number::Double(_) => Reads::NONE,
        }
    }

    pub(crate) fn is_double(&self) -> bool {
        matches!(self, Number::Random | Number::Share(_) | Number::Double(_))
    }

    /// The value of a literal.
    pub(crate) fn literal(&self) -> Option<f64> {
        match self {
            Number::Int(value) => Some(*value as f64),
            Number::Double(bits) => Some(f64::from_bits(*bits)),
            _ => None,
        }
    }
}

impl Test {
    pub(crate) fn reads(&self) -> Reads {
        match self {
            Test::Text(text, how) => text.reads() | how.reads(),
            Test::Numbers(one, _, other) => one.reads() | other.reads(),
            Test::NumberIn(of, _) => of.reads(),
            Test::Within(_) => Reads::CLIENT,
            Test::Has(table, _) => table.reads(),
        }
    }
}

impl TextTest {
    fn reads(&self) -> Reads {
        match self {
            TextTest::Is(with)
            | TextTest::Starts(with)
            | TextTest::Ends(with)
            | TextTest::Contains(with) => with.reads(),
            _ => Reads::NONE,
        }
    }
}

impl Tree {
    /// Calls `look` with each term, in the order of the text.
    pub(crate) fn each_term<'t>(&'t self, look: &mut dyn FnMut(&'t Term)) {
        match self {
            Tree::Constant(_) => {}
            Tree::Term(term) => look(term),
            Tree::Not(inner) => inner.each_term(look),
            Tree::All(inner) | Tree::Any(inner) => {
                inner.iter().for_each(|tree| tree.each_term(look));
            }
            Tree::Same(inner) => inner.iter().for_each(|tree| tree.each_term(look)),
            Tree::Choice(inner) => inner.iter().for_each(|tree| tree.each_term(look)),
        }
    }

    pub(crate) fn reads(&self) -> Reads {
        let mut reads = Reads::NONE;
        self.each_term(&mut |term| reads |= term.test.reads());
        reads
    }
}
