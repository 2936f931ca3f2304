//! The syntax tree of a condition.
//!
//! What: [`parse`] reads a text with the parser of the crate `cel`, and makes a tree of its tree.
//! Why two trees: the tree of `cel` has no ranges, and has forms that conditions do not have. All
//! use of `cel` is in this file.
//!
//! What never happens: the parser sees a text that exceeds a limit ([`crate::scan`]).

use std::ops::Range;

use cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, SourceInfo, operators};

use crate::mistake::Mistake;
use crate::names;
use crate::scan::{Tokens, scan};

/// A node of the tree, with its bytes in the text.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) at: Range<usize>,
    pub(crate) form: Form,
}

#[derive(Debug)]
pub(crate) enum Form {
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(String),
    Name(String),
    /// `of.name`
    Member(Box<Node>, String),
    /// `of[index]`
    Index(Box<Node>, Box<Node>),
    Call(Call),
    List(Vec<Node>),
    Not(Box<Node>),
    /// `&&`
    All(Vec<Node>),
    /// `||`
    Any(Vec<Node>),
    /// `condition ? one : other`
    Choice(Box<[Node; 3]>),
    Compare(Order, Box<[Node; 2]>),
    In(Box<[Node; 2]>),
}

/// `name(arguments)` or `on.name(arguments)`
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) on: Option<Box<Node>>,
    pub(crate) name: String,
    pub(crate) name_at: Range<usize>,
    pub(crate) arguments: Vec<Node>,
}

/// How a comparison compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Order {
    Is,
    IsNot,
    Less,
    AtMost,
    More,
    AtLeast,
}

impl Order {
    /// The order with both sides exchanged.
    pub(crate) fn turned(self) -> Order {
        match self {
            Order::Less => Order::More,
            Order::AtMost => Order::AtLeast,
            Order::More => Order::Less,
            Order::AtLeast => Order::AtMost,
            same @ (Order::Is | Order::IsNot) => same,
        }
    }

    pub(crate) fn sign(self) -> &'static str {
        match self {
            Order::Is => "==",
            Order::IsNot => "!=",
            Order::Less => "<",
            Order::AtMost => "<=",
            Order::More => ">",
            Order::AtLeast => ">=",
        }
    }
}

/// Reads a text.
pub(crate) fn parse(text: &str) -> Result<Node, Mistake> {
    let tokens = scan(text)?;
    match cel::parser::Parser::new().parse_with_source_info(text) {
        Ok((tree, places)) => Ok(Converter { text, tokens, places }.node(&tree)?.1),
        Err(errors) => Err(syntax_mistake(text, &tokens, &errors)),
    }
}

/// The first mistake of the parser, in our words.
fn syntax_mistake(text: &str, tokens: &Tokens, errors: &cel::ParseErrors) -> Mistake {
    let whole = 0..text.len();
    let Some(first) = errors.errors.first() else {
        return Mistake::new(&whole, "the condition cannot be read");
    };
    // Lines and characters count from 1.
    let (line, column) = first.pos;
    let start = text.split_inclusive('\n').take((line.max(1) - 1) as usize).map(str::len).sum();
    let rest: &str = text.get(start..).unwrap_or_default();
    let before = rest.chars().take((column.max(1) - 1) as usize).map(char::len_utf8).sum::<usize>();
    let byte = start + before;
    let Some(index) = tokens.at(byte) else {
        let last = tokens.all.last().map_or(whole, |token| token.at.clone());
        return Mistake::new(&last, "the condition ends too early: a term is missing after this");
    };
    let at = &tokens.all[index].at;
    let token = &text[at.clone()];
    let why = match first.msg.as_str() {
        message if message.starts_with("reserved identifier") => {
            format!("`{token}` is a word that CEL keeps for itself")
        }
        message if message.contains("literal") => format!("{token} is not a number"),
        _ => {
            // The parser stops at the word, or after it.
            let words = [Some(index), index.checked_sub(1)].into_iter().flatten();
            let foreign = words.map(|word| &tokens.all[word].at).find_map(|at| {
                names::instead_of(&text[at.clone()]).map(|instead| Mistake::new(at, instead))
            });
            return foreign
                .unwrap_or_else(|| Mistake::new(at, format!("`{token}` is not expected here")));
        }
    };
    Mistake::new(at, why)
}

struct Converter<'t> {
    text: &'t str,
    tokens: Tokens,
    places: SourceInfo,
}

/// The first and the last token of a node.
type Span = (usize, usize);

impl Converter<'_> {
    fn made(&self, span: Span, form: Form) -> (Span, Node) {
        let span = self.tokens.balanced(span.0, span.1);
        let at = self.tokens.all[span.0].at.start..self.tokens.all[span.1].at.end;
        (span, Node { at, form })
    }

    fn mistake(&self, span: Span, why: &str) -> Mistake {
        Mistake::new(&self.made(span, Form::Bool(false)).1.at, why)
    }

    /// The token that the parser noted for a node; the first token if it noted none.
    fn token(&self, id: u64) -> usize {
        let place = self.places.offset_for(id);
        place.and_then(|(start, _)| self.tokens.at(start as usize)).unwrap_or(0)
    }

    fn node(&self, tree: &IdedExpr) -> Result<(Span, Node), Mistake> {
        let own = self.token(tree.id);
        match &tree.expr {
            Expr::Ident(name) => Ok(self.made((own, own), Form::Name(name.clone()))),
            Expr::Literal(value) => self.literal(own, value),
            Expr::Select(select) if select.test => {
                Err(self
                    .mistake((own, own), "`has` is not used in conditions: write 'name' in fields"))
            }
            Expr::Select(select) => {
                let (span, of) = self.node(&select.operand)?;
                let member = (own + 1).min(self.tokens.all.len() - 1);
                let form = Form::Member(Box::new(of), select.field.clone());
                Ok(self.made((span.0, member), form))
            }
            Expr::List(list) => {
                let nodes = list.elements.iter().map(|element| Ok(self.node(element)?.1));
                Ok(self.made((own, own), Form::List(nodes.collect::<Result<_, _>>()?)))
            }
            Expr::Call(call) => self.call(own, call),
            Expr::Comprehension(_) => Err(self.mistake(
                (own.saturating_sub(1), own),
                "conditions have no loops (`all`, `exists`, `map`, `filter`)",
            )),
            Expr::Map(_) | Expr::Struct(_) => {
                Err(self.mistake((own, own), "maps are written in the configuration, with a name"))
            }
            Expr::Unspecified => Err(self.mistake((own, own), "this cannot be read")),
        }
    }

    fn literal(&self, own: usize, value: &LiteralValue) -> Result<(Span, Node), Mistake> {
        let form = match value {
            LiteralValue::Boolean(value) => Form::Bool(*value.inner()),
            LiteralValue::Int(value) => Form::Int(*value.inner()),
            LiteralValue::Double(value) => Form::Double(*value.inner()),
            LiteralValue::String(value) => Form::Text(value.inner().to_owned()),
            LiteralValue::UInt(_) => {
                return Err(self.mistake((own, own), "write a number without `u`"));
            }
            LiteralValue::Bytes(_) => {
                return Err(self.mistake((own, own), "write a string without `b`"));
            }
            LiteralValue::Null => {
                let why = "nothing is null: the value of an absent field is '', and 'name' in \
                           fields asks whether there is one";
                return Err(self.mistake((own, own), why));
            }
        };
        // The token of a negative number has no sign.
        let is_signed = matches!(form, Form::Int(..0) | Form::Double(..0.0));
        let sign = own.checked_sub(1).filter(|sign| is_signed && self.word(*sign) == "-");
        Ok(self.made((sign.unwrap_or(own), own), form))
    }

    fn word(&self, token: usize) -> &str {
        &self.text[self.tokens.all[token].at.clone()]
    }

    fn call(&self, own: usize, call: &CallExpr) -> Result<(Span, Node), Mistake> {
        let order = match call.func_name.as_str() {
            operators::LOGICAL_AND | operators::LOGICAL_OR => return self.joined(call),
            operators::LOGICAL_NOT => {
                let [(span, node)] = self.nodes(call)?;
                return Ok(self.made((own, span.1), Form::Not(Box::new(node))));
            }
            operators::CONDITIONAL => {
                let [(first, condition), (_, one), (last, other)] = self.nodes(call)?;
                let form = Form::Choice(Box::new([condition, one, other]));
                return Ok(self.made((first.0, last.1), form));
            }
            operators::INDEX => {
                let [(first, of), (_, index)] = self.nodes(call)?;
                let form = Form::Index(Box::new(of), Box::new(index));
                return Ok(self.made((first.0, own), form));
            }
            operators::IN => {
                let [(first, one), (last, other)] = self.nodes(call)?;
                return Ok(self.made((first.0, last.1), Form::In(Box::new([one, other]))));
            }
            operators::EQUALS => Order::Is,
            operators::NOT_EQUALS => Order::IsNot,
            operators::LESS => Order::Less,
            operators::LESS_EQUALS => Order::AtMost,
            operators::GREATER => Order::More,
            operators::GREATER_EQUALS => Order::AtLeast,
            operators::NEGATE | operators::SUBSTRACT => {
                return Err(self.mistake((own, own), "conditions do not calculate"));
            }
            name if !name
                .starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') =>
            {
                return Err(self.mistake((own, own), "conditions do not have this operator"));
            }
            name => return self.named(own, name, call),
        };
        let [(first, one), (last, other)] = self.nodes(call)?;
        Ok(self.made((first.0, last.1), Form::Compare(order, Box::new([one, other]))))
    }

    /// The nodes of an operator's operands.
    fn nodes<const N: usize>(&self, call: &CallExpr) -> Result<[(Span, Node); N], Mistake> {
        let nodes = call.args.iter().map(|node| self.node(node)).collect::<Result<Vec<_>, _>>()?;
        let whole = (0, self.tokens.all.len() - 1);
        nodes.try_into().map_err(|_| self.mistake(whole, "the condition cannot be read"))
    }

    fn named(&self, own: usize, name: &str, call: &CallExpr) -> Result<(Span, Node), Mistake> {
        let on = call.target.as_ref().map(|on| self.node(on)).transpose()?;
        let first = on.as_ref().map_or(own.saturating_sub(1), |(span, _)| span.0);
        let arguments = call.args.iter().map(|node| Ok(self.node(node)?.1));
        let arguments = arguments.collect::<Result<_, _>>()?;
        let name_at = self.tokens.all[own.saturating_sub(1)].at.clone();
        let on = on.map(|(_, node)| Box::new(node));
        let call = Call { on, name: name.into(), name_at, arguments };
        Ok(self.made((first, own), Form::Call(call)))
    }

    /// `&&` and `||`, of which the parser makes a balanced tree, as one list.
    fn joined(&self, call: &CallExpr) -> Result<(Span, Node), Mistake> {
        let is_all = call.func_name == operators::LOGICAL_AND;
        let [(first, one), (last, other)] = self.nodes(call)?;
        let mut nodes = Vec::new();
        for node in [one, other] {
            match node.form {
                Form::All(inner) if is_all => nodes.extend(inner),
                Form::Any(inner) if !is_all => nodes.extend(inner),
                form => nodes.push(Node { at: node.at, form }),
            }
        }
        let form = if is_all { Form::All(nodes) } else { Form::Any(nodes) };
        Ok(self.made((first.0, last.1), form))
    }
}
