//! From the syntax tree to the typed tree: names, types, literals.
//!
//! A condition that passes has a value for every request. Nothing fails when it is judged.

use std::ops::Range;
use std::sync::Arc;

use crate::facts::Scope;
use crate::lists::{Lists, Named};
use crate::mistake::{Mistake, hint};
use crate::names;
use crate::networks::{Networks, network};
use crate::never;
use crate::pattern::Pattern;
use crate::syntax::{Call, Form, Node, Order};
use crate::tree::{Number, Table, Term, Test, Text, TextTest, Tree};

/// The typed tree of a text.
pub(crate) fn typed(node: &Node, scope: Scope, lists: &Lists) -> Result<Tree, Mistake> {
    let tree = Checker { scope, lists }.condition(node)?;
    if let Tree::Constant(holds) = tree {
        let why = if holds {
            "the condition always holds: leave it out"
        } else {
            "the condition can never hold"
        };
        return Err(Mistake::new(&node.at, why));
    }
    Ok(tree)
}

/// A node with its type.
enum Typed {
    Bool(Tree),
    Text(Text),
    Number(Number),
    Client,
    Table(Table),
    List(Arc<crate::lists::List>),
    Map(Arc<crate::lists::Map>),
}

impl Typed {
    fn kind(&self) -> &'static str {
        match self {
            Typed::Bool(_) => "a bool",
            Typed::Text(_) => "a string",
            Typed::Number(number) if number.is_double() => "a double",
            Typed::Number(_) => "an int",
            Typed::Client => "an address",
            Typed::Table(_) => "a table of values with names",
            Typed::List(_) => "a list",
            Typed::Map(_) => "a map",
        }
    }
}

struct Checker<'l> {
    scope: Scope,
    lists: &'l Lists,
}

fn term(at: &Range<usize>, test: Test, is_not: bool) -> Tree {
    Tree::Term(Term { at: at.clone(), test, is_not })
}

impl Checker<'_> {
    /// A node that must be a bool.
    fn condition(&self, node: &Node) -> Result<Tree, Mistake> {
        match self.typed(node)? {
            Typed::Bool(tree) => Ok(tree),
            Typed::Text(_) => {
                let why = "this is a string, not a condition: compare it, such as with `== 'text'`";
                Err(Mistake::new(&node.at, why))
            }
            other => {
                let why = format!("this is {}, not a condition", other.kind());
                Err(Mistake::new(&node.at, why))
            }
        }
    }

    /// A node that must be a bool, and must not be `true` or `false`.
    fn part(&self, node: &Node) -> Result<Tree, Mistake> {
        match self.condition(node)? {
            Tree::Constant(holds) => {
                let why = format!("this is always {holds}: leave it out");
                Err(Mistake::new(&node.at, why))
            }
            tree => Ok(tree),
        }
    }

    fn parts(&self, nodes: &[Node]) -> Result<Vec<Tree>, Mistake> {
        nodes.iter().map(|node| self.part(node)).collect()
    }

    fn typed(&self, node: &Node) -> Result<Typed, Mistake> {
        match &node.form {
            Form::Bool(value) => Ok(Typed::Bool(Tree::Constant(*value))),
            Form::Int(value) => Ok(Typed::Number(Number::Int(*value))),
            Form::Double(value) => Ok(Typed::Number(Number::Double(value.to_bits()))),
            Form::Text(value) => Ok(Typed::Text(Text::Literal(value.as_bytes().into()))),
            Form::Name(name) => self.variable(&node.at, name),
            Form::Member(of, name) => self.member(node, of, name),
            Form::Index(of, index) => self.index(node, of, index).map(Typed::Text),
            Form::Call(call) => self.call(node, call),
            Form::List(_) => {
                let why = "a list is only used after `in`: `host in ['a.example', 'b.example']`";
                Err(Mistake::new(&node.at, why))
            }
            Form::Not(inner) => Ok(Typed::Bool(Tree::Not(Box::new(self.part(inner)?)))),
            Form::All(inner) => Ok(Typed::Bool(Tree::All(self.parts(inner)?))),
            Form::Any(inner) => Ok(Typed::Bool(Tree::Any(self.parts(inner)?))),
            Form::Choice(inner) => self.choice(inner).map(Typed::Bool),
            Form::Compare(order, sides) => self.compare(node, *order, sides).map(Typed::Bool),
            Form::In(sides) => self.is_in(node, sides).map(Typed::Bool),
        }
    }

    fn variable(&self, at: &Range<usize>, name: &str) -> Result<Typed, Mistake> {
        let is_of_response = names::OF_RESPONSE.contains(&name);
        if is_of_response && self.scope == Scope::Request {
            let why = format!(
                "`{name}` is about the response, and this condition is judged before there is one"
            );
            return Err(Mistake::new(at, why));
        }
        Ok(match name {
            "host" => Typed::Text(Text::Host),
            "path" => Typed::Text(Text::Path),
            "query" => Typed::Text(Text::Query),
            "url" => Typed::Text(Text::Url),
            "target" => Typed::Text(Text::Target),
            "method" => Typed::Text(Text::Method),
            "scheme" => Typed::Text(Text::Scheme),
            "listener" => Typed::Text(Text::Listener),
            "user" => Typed::Text(Text::User),
            "port" => Typed::Number(Number::Port),
            "hour" => Typed::Number(Number::Hour),
            "minute" => Typed::Number(Number::Minute),
            "weekday" => Typed::Number(Number::Weekday),
            "random" => Typed::Number(Number::Random),
            "status" => Typed::Number(Number::Status),
            "size" => Typed::Number(Number::Size),
            "client" => Typed::Client,
            "fields" => Typed::Table(Table::Fields),
            "cookies" => Typed::Table(Table::Cookies),
            "args" => Typed::Table(Table::Args),
            "response" => Typed::Table(Table::Response),
            names::TLS => {
                return Err(Mistake::new(at, "write `tls.sni` or `tls.client_subject`"));
            }
            _ => match self.lists.get(name) {
                Some(Named::List(list)) => Typed::List(Arc::clone(list)),
                Some(Named::Map(map)) => Typed::Map(Arc::clone(map)),
                None => return Err(self.unknown(at, name)),
            },
        })
    }

    fn unknown(&self, at: &Range<usize>, name: &str) -> Mistake {
        if let Some(instead) = names::instead_of(name) {
            return Mistake::new(at, instead);
        }
        let known: Vec<&str> = names::variables(self.scope == Scope::Response).collect();
        let known = known.into_iter().chain(self.lists.names());
        Mistake::new(at, format!("there is no variable `{name}`; {}", hint(name, known)))
    }

    fn member(&self, node: &Node, of: &Node, name: &str) -> Result<Typed, Mistake> {
        match &of.form {
            Form::Name(tls) if tls == names::TLS => match name {
                "sni" => Ok(Typed::Text(Text::Sni)),
                "client_subject" => Ok(Typed::Text(Text::ClientSubject)),
                _ => {
                    let known = names::TLS_MEMBERS.iter().copied();
                    let why = format!("`tls` has no member `{name}`; {}", hint(name, known));
                    Err(Mistake::new(&node.at, why))
                }
            },
            Form::Name(table) if names::TABLES.contains(&table.as_str()) => {
                Err(Mistake::new(&node.at, format!("write `{table}['{name}']`")))
            }
            _ => {
                let of = self.typed(of)?;
                let why = match names::METHODS.contains(&name) {
                    true => format!("`{name}` is a method: write `{name}(…)`"),
                    false => format!("{} has no member `{name}`", of.kind()),
                };
                Err(Mistake::new(&node.at, why))
            }
        }
    }

    fn index(&self, node: &Node, of: &Node, index: &Node) -> Result<Text, Mistake> {
        match self.typed(of)? {
            Typed::Table(table) => {
                let name = self.literal(index, "the name of a value")?;
                Ok(Text::Of(table, name_in(table, &index.at, &name)?))
            }
            Typed::Map(map) => {
                let key = self.text(index, "the key of a map")?;
                if key.literal().is_some() {
                    let why = "the value of a map for a literal key is always the same";
                    return Err(Mistake::new(&node.at, why));
                }
                Ok(Text::Mapped(map, Box::new(key)))
            }
            other => {
                let why = format!("{} has no values with names", other.kind());
                Err(Mistake::new(&node.at, why))
            }
        }
    }

    /// A node that must be a string.
    fn text(&self, node: &Node, what: &str) -> Result<Text, Mistake> {
        match self.typed(node)? {
            Typed::Text(text) => Ok(text),
            other => {
                let why = format!("{what} is a string, and this is {}", other.kind());
                Err(Mistake::new(&node.at, why))
            }
        }
    }

    /// A node that must be a literal string.
    fn literal(&self, node: &Node, what: &str) -> Result<String, Mistake> {
        match &node.form {
            Form::Text(value) => Ok(value.clone()),
            _ => Err(Mistake::new(&node.at, format!("{what} is a literal string: 'text'"))),
        }
    }

    fn choice(&self, [condition, one, other]: &[Node; 3]) -> Result<Tree, Mistake> {
        let condition = self.part(condition)?;
        match (self.condition(one)?, self.condition(other)?) {
            (Tree::Constant(one), Tree::Constant(other)) if one == other => Ok(Tree::Constant(one)),
            (one, other) => Ok(Tree::Choice(Box::new([condition, one, other]))),
        }
    }

    fn compare(&self, node: &Node, order: Order, sides: &[Node; 2]) -> Result<Tree, Mistake> {
        let [one, other] = sides;
        match (self.typed(one)?, self.typed(other)?) {
            (Typed::Text(one), Typed::Text(other)) => texts(node, order, one, other),
            (Typed::Number(one), Typed::Number(other)) => numbers(node, order, one, other),
            (Typed::Bool(one), Typed::Bool(other)) => bools(node, order, one, other),
            (Typed::Client, Typed::Text(text)) | (Typed::Text(text), Typed::Client) => {
                client(node, order, &text)
            }
            (one, other) => {
                let why = format!(
                    "`{}` compares values of one type, and these are {} and {}",
                    order.sign(),
                    one.kind(),
                    other.kind()
                );
                Err(Mistake::new(&node.at, why))
            }
        }
    }

    fn is_in(&self, node: &Node, [one, other]: &[Node; 2]) -> Result<Tree, Mistake> {
        let of = self.typed(one)?;
        if let Form::List(values) = &other.form {
            return match of {
                Typed::Text(text) => self.among(node, text, values),
                Typed::Number(number) => self.numbers_in(node, number, values),
                Typed::Client => Err(Mistake::new(&node.at, WITHIN)),
                of => {
                    let why =
                        format!("`in` looks for strings and numbers, and this is {}", of.kind());
                    Err(Mistake::new(&one.at, why))
                }
            };
        }
        match (of, self.typed(other)?) {
            (Typed::Text(Text::Literal(name)), Typed::Table(table)) => {
                let name = String::from_utf8_lossy(&name);
                let name = name_in(table, &one.at, &name)?;
                Ok(term(&node.at, Test::Has(table, name), false))
            }
            (_, Typed::Table(_)) => {
                Err(Mistake::new(&one.at, "the name of a value is a literal string: 'text'"))
            }
            (Typed::Client, Typed::List(_)) => Err(Mistake::new(&node.at, WITHIN)),
            (Typed::Text(Text::Literal(_)), Typed::List(_) | Typed::Map(_)) => {
                let why = "a literal string is always or never in a list: look for a variable";
                Err(Mistake::new(&node.at, why))
            }
            (Typed::Text(text), Typed::List(list)) => {
                if let Some(value) = list.values.iter().find(|value| never::is_upper(&text, value))
                {
                    let why =
                        format!("hosts are lower case, and the list `{}` has '{value}'", list.name);
                    return Err(Mistake::new(&node.at, why));
                }
                Ok(term(&node.at, Test::Text(text, TextTest::InList(list)), false))
            }
            (Typed::Text(text), Typed::Map(map)) => {
                Ok(term(&node.at, Test::Text(text, TextTest::InMap(map)), false))
            }
            (_, Typed::Text(_)) => {
                let why = "`in` looks into a list: to look into a string, write `contains`";
                Err(Mistake::new(&node.at, why))
            }
            (of, other) => {
                let why = format!("`in` cannot look for {} in {}", of.kind(), other.kind());
                Err(Mistake::new(&node.at, why))
            }
        }
    }

    fn among(&self, node: &Node, text: Text, values: &[Node]) -> Result<Tree, Mistake> {
        let mut strings: Vec<Box<[u8]>> = Vec::with_capacity(values.len());
        for value in values {
            let literal = self.literal(value, "a value of this list")?;
            never::string(&value.at, &text, never::How::Is, literal.as_bytes())?;
            strings.push(literal.as_bytes().into());
        }
        if text.literal().is_some() {
            return Err(Mistake::new(&node.at, never::CONSTANT));
        }
        if strings.is_empty() {
            return Err(Mistake::new(&node.at, "the list is empty, so this can never hold"));
        }
        strings.sort_unstable();
        strings.dedup();
        Ok(term(&node.at, Test::Text(text, TextTest::Among(strings.into())), false))
    }

    fn numbers_in(&self, node: &Node, of: Number, values: &[Node]) -> Result<Tree, Mistake> {
        let mut numbers = Vec::with_capacity(values.len());
        for value in values {
            let Typed::Number(number) = self.typed(value)? else {
                return Err(Mistake::new(&value.at, "the values of this list are numbers"));
            };
            if number.literal().is_none() {
                return Err(Mistake::new(&value.at, "a value of this list is a literal number"));
            }
            never::number(&value.at, Order::Is, &of, &number)?;
            numbers.push(number);
        }
        if of.literal().is_some() {
            return Err(Mistake::new(&node.at, never::CONSTANT));
        }
        if numbers.is_empty() {
            return Err(Mistake::new(&node.at, "the list is empty, so this can never hold"));
        }
        Ok(term(&node.at, Test::NumberIn(of, numbers.into()), false))
    }

    fn call(&self, node: &Node, call: &Call) -> Result<Typed, Mistake> {
        let Some(on) = &call.on else { return self.function(node, call) };
        match self.typed(on)? {
            Typed::Text(text) => self.method(node, text, call),
            Typed::Client if call.name == names::WITHIN => {
                let networks = Arc::new(self.networks(node, call)?);
                Ok(Typed::Bool(term(&node.at, Test::Within(networks), false)))
            }
            Typed::Client => {
                let why = format!("an address has no method `{}`: {WITHIN}", call.name);
                Err(Mistake::new(&call.name_at, why))
            }
            other => {
                let why = format!("{} has no method `{}`", other.kind(), call.name);
                Err(Mistake::new(&call.name_at, why))
            }
        }
    }

    fn function(&self, node: &Node, call: &Call) -> Result<Typed, Mistake> {
        match call.name.as_str() {
            "share" => {
                let [of] = arguments(node, call)?;
                let text = self.text(of, "the argument of `share`")?;
                if text.literal().is_some() {
                    return Err(Mistake::new(&node.at, never::CONSTANT));
                }
                Ok(Typed::Number(Number::Share(text)))
            }
            "size" => {
                let [of] = arguments(node, call)?;
                let text = self.text(of, "the argument of `size`")?;
                Ok(Typed::Number(Number::Length(text)))
            }
            name if names::METHODS.contains(&name) || name == names::WITHIN => {
                let why = format!("`{name}` is a method: write `path.{name}(…)`");
                Err(Mistake::new(&call.name_at, why))
            }
            name => {
                let known = names::FUNCTIONS.iter().copied();
                let why = format!("there is no function `{name}`; {}", hint(name, known));
                Err(Mistake::new(&call.name_at, why))
            }
        }
    }

    fn method(&self, node: &Node, text: Text, call: &Call) -> Result<Typed, Mistake> {
        let at = &node.at;
        let made = |how| Ok(Typed::Bool(term(at, Test::Text(text.clone(), how), false)));
        let name = call.name.as_str();
        match name {
            "startsWith" | "endsWith" | "contains" => {
                let [with] = arguments(node, call)?;
                let argument = self.text(with, &format!("the argument of `{name}`"))?;
                let how = match name {
                    "startsWith" => never::How::Starts,
                    "endsWith" => never::How::Ends,
                    _ => never::How::Contains,
                };
                if let Some(literal) = argument.literal() {
                    never::string(at, &text, how, literal)?;
                    if text.literal().is_some() {
                        return Err(Mistake::new(at, never::CONSTANT));
                    }
                }
                made(match how {
                    never::How::Starts => TextTest::Starts(argument),
                    never::How::Ends => TextTest::Ends(argument),
                    never::How::Is | never::How::Contains => TextTest::Contains(argument),
                })
            }
            "matches" | "glob" => {
                let [with] = arguments(node, call)?;
                let pattern = self.literal(with, &format!("the argument of `{name}`"))?;
                if text.literal().is_some() {
                    return Err(Mistake::new(at, never::CONSTANT));
                }
                if name == "glob" {
                    never::glob(at, &text, &pattern)?;
                }
                let made_of =
                    if name == "glob" { Pattern::glob(&pattern) } else { Pattern::regex(&pattern) };
                let pattern = made_of.map_err(|why| Mistake::new(&with.at, why))?;
                if pattern.matches_everything() {
                    let why = "every string matches this, so this always holds";
                    return Err(Mistake::new(at, why));
                }
                made(TextTest::Matches(pattern))
            }
            "size" => {
                let [] = arguments(node, call)?;
                Ok(Typed::Number(Number::Length(text)))
            }
            "lowerAscii" => {
                let [] = arguments(node, call)?;
                if text.literal().is_some() {
                    return Err(Mistake::new(at, "write the literal string in lower case"));
                }
                Ok(Typed::Text(Text::Lower(Box::new(text))))
            }
            names::WITHIN => {
                let why = "`within` is a method of `client`, and this is a string";
                Err(Mistake::new(&call.name_at, why))
            }
            _ => {
                let known = names::METHODS.iter().copied();
                let why = format!("a string has no method `{name}`; {}", hint(name, known));
                Err(Mistake::new(&call.name_at, why))
            }
        }
    }

    fn networks(&self, node: &Node, call: &Call) -> Result<Networks, Mistake> {
        if call.arguments.is_empty() {
            return Err(Mistake::new(&node.at, "`within` has at least one network or list"));
        }
        let mut networks = Vec::new();
        for argument in &call.arguments {
            match &argument.form {
                Form::Text(text) => networks.push(network(text).ok_or_else(|| {
                    Mistake::new(&argument.at, format!("'{text}' is not a network or an address"))
                })?),
                Form::Name(name) => match self.variable(&argument.at, name)? {
                    Typed::List(list) if call.arguments.len() == 1 => {
                        return list.networks().cloned().map_err(|value| {
                            let why = format!(
                                "the list `{name}` has '{value}', which is not a network or an \
                                 address"
                            );
                            Mistake::new(&argument.at, why)
                        });
                    }
                    Typed::List(_) => {
                        let why = "write one `within` for each list, and `||` between them";
                        return Err(Mistake::new(&argument.at, why));
                    }
                    other => {
                        let why = format!("`{name}` is {}, not a list of networks", other.kind());
                        return Err(Mistake::new(&argument.at, why));
                    }
                },
                _ => {
                    let why = "an argument of `within` is a literal string or the name of a list";
                    return Err(Mistake::new(&argument.at, why));
                }
            }
        }
        let networks = Networks::new(networks);
        if networks.is_everything() {
            return Err(Mistake::new(
                &node.at,
                "every address is in these networks, so this always holds",
            ));
        }
        Ok(networks)
    }
}

const WITHIN: &str = "write `client.within('192.0.2.0/24', …)` or `client.within(LIST)`";

fn arguments<'n, const N: usize>(node: &Node, call: &'n Call) -> Result<[&'n Node; N], Mistake> {
    let arguments: Vec<&Node> = call.arguments.iter().collect();
    arguments.try_into().map_err(|given: Vec<_>| {
        let plural = if N == 1 { "" } else { "s" };
        let why = format!("`{}` has {N} argument{plural}, and here are {}", call.name, given.len());
        Mistake::new(&node.at, why)
    })
}

/// The name of a value of a table, in lower case if names ignore case.
fn name_in(table: Table, at: &Range<usize>, name: &str) -> Result<Box<[u8]>, Mistake> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let is_name = !name.is_empty() && name.bytes().all(is_token);
    match table {
        Table::Args => Ok(name.as_bytes().into()),
        _ if !is_name => {
            let what = if table == Table::Cookies { "a cookie" } else { "a field" };
            Err(Mistake::new(at, format!("'{name}' cannot be the name of {what}")))
        }
        Table::Cookies => Ok(name.as_bytes().into()),
        Table::Fields | Table::Response => Ok(name.to_ascii_lowercase().into_bytes().into()),
    }
}

fn texts(node: &Node, order: Order, one: Text, other: Text) -> Result<Tree, Mistake> {
    let is_not = match order {
        Order::Is => false,
        Order::IsNot => true,
        _ => {
            let why = format!("`{}` compares numbers, and these are strings", order.sign());
            return Err(Mistake::new(&node.at, why));
        }
    };
    let (one, other) = if one.literal().is_some() { (other, one) } else { (one, other) };
    if one.literal().is_some() || one == other {
        return Err(Mistake::new(&node.at, never::CONSTANT));
    }
    if let Some(literal) = other.literal() {
        never::string(&node.at, &one, never::How::Is, literal)?;
    }
    Ok(term(&node.at, Test::Text(one, TextTest::Is(other)), is_not))
}

fn numbers(node: &Node, order: Order, one: Number, other: Number) -> Result<Tree, Mistake> {
    let (order, one, other) = match one.literal() {
        Some(_) => (order.turned(), other, one),
        None => (order, one, other),
    };
    if one.literal().is_some() || one == other {
        return Err(Mistake::new(&node.at, never::CONSTANT));
    }
    never::number(&node.at, order, &one, &other)?;
    let (order, is_not) = if order == Order::IsNot { (Order::Is, true) } else { (order, false) };
    Ok(term(&node.at, Test::Numbers(one, order, other), is_not))
}

fn bools(node: &Node, order: Order, one: Tree, other: Tree) -> Result<Tree, Mistake> {
    let is_same = match order {
        Order::Is => true,
        Order::IsNot => false,
        _ => {
            let why = format!("`{}` compares numbers, and these are bools", order.sign());
            return Err(Mistake::new(&node.at, why));
        }
    };
    let tree = match (one, other) {
        (Tree::Constant(one), Tree::Constant(other)) => {
            return Ok(Tree::Constant((one == other) == is_same));
        }
        (Tree::Constant(true), tree) | (tree, Tree::Constant(true)) => tree,
        (Tree::Constant(false), tree) | (tree, Tree::Constant(false)) => Tree::Not(Box::new(tree)),
        (one, other) if one == other => return Err(Mistake::new(&node.at, never::CONSTANT)),
        (one, other) => Tree::Same(Box::new([one, other])),
    };
    Ok(if is_same { tree } else { Tree::Not(Box::new(tree)) })
}

fn client(node: &Node, order: Order, text: &Text) -> Result<Tree, Mistake> {
    let is_not = match order {
        Order::Is => false,
        Order::IsNot => true,
        _ => return Err(Mistake::new(&node.at, format!("addresses have no order: {WITHIN}"))),
    };
    let Some(literal) = text.literal() else {
        return Err(Mistake::new(
            &node.at,
            format!("`client` is compared with a literal: {WITHIN}"),
        ));
    };
    let literal = String::from_utf8_lossy(literal);
    let address = literal.parse().map(crate::networks::canonical).map_err(|_| {
        let why = match network(&literal) {
            Some(_) => format!("'{literal}' is a network: write `client.within('{literal}')`"),
            None => format!("'{literal}' is not an address"),
        };
        Mistake::new(&node.at, why)
    })?;
    let networks = Networks::new([ipnet::IpNet::from(address)]);
    Ok(term(&node.at, Test::Within(Arc::new(networks)), is_not))
}
