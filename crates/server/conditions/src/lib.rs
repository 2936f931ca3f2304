//! Conditions over a request and its response, as CEL (Common Expression Language) texts.
//!
//! What: [`check()`] reads a text and finds its mistakes. [`Builder`] compiles all conditions of a
//! configuration together into [`Conditions`]. [`Judge`] judges one request: [`Judge::holds`] one
//! condition, [`Judge::matching`] a list of rules in order, [`Judge::terms`] each comparison with
//! its value, for an explanation. [`Lists`] has the named lists and maps that texts may use.
//! [`hidden_by`] finds a condition that can never be the first that holds.
//!
//! Why not the evaluator of the crate `cel`: it takes half a microsecond and ten allocations for
//! three terms. Its parser reads the text when the configuration is read. The judgement is ours and
//! reads borrowed bytes.
//!
//! # What it promises
//!
//! - A checked condition has a value for every request. A missing field, cookie, argument, user or
//!   key of a map is the empty string, and the size of a response whose size is not known is -1.
//! - A text with a mistake is never accepted: an unknown name, two types that do not compare, a
//!   pattern that cannot be read, and a term that holds for every request or for none by its
//!   constants alone. Each mistake has its place and how to fix it.
//! - Judging takes bounded time: texts, patterns and their nesting have limits ([`limits`]), and
//!   patterns take time in proportion to the value. Reading a text takes bounded time, too.
//! - Equal terms of a configuration are tested once for a request, up to a limit. Terms that
//!   compare one value with literals are found together: by a table, a sorted list or an automaton.
//! - `share(STRING)` never changes: it is a published hash without a seed.
//!
//! # What never happens
//!
//! I/O; a look at the clock; an allocation when a condition is judged, after the first requests of
//! a thread; a pattern that goes back in a value; a judgement that depends on another request.
//!
//! # Where the language differs from CEL
//!
//! Tests compare the judgement of generated conditions with the evaluator of `cel`. These are the
//! differences, each with its reason:
//!
//! - An absent `fields['x']` is `''`; in CEL it is an error. A condition has a value for every
//!   request.
//! - Strings are bytes. In patterns, `.` is any byte and `\w` is ASCII; in CEL, `.` is no line
//!   break and `\w` is Unicode. One odd byte in a path must not lead past a rule.
//! - `size()` counts the bytes that begin a character, which are the characters of UTF-8. A value
//!   need not be UTF-8.
//! - `client == '10.0.0.1'` compares addresses, because several texts write one address.
//! - `client.within`, `glob` and `share` are added: clients, paths and splits need them.
//! - `<` compares numbers only, because no rule needs the order of strings.
//! - There are no loops, arithmetic, `has`, maps in the text, `null`, bytes and unsigned ints. A
//!   term stays cheap, and a text stays readable.
//! - A term with a constant value is a mistake. It is never what its author meant.
#![forbid(unsafe_code)]

mod check;
mod compile;
mod facts;
mod implied;
mod index;
mod judge;
pub mod limits;
mod lists;
mod machine;
mod mistake;
mod names;
mod networks;
mod never;
mod pattern;
mod plan;
mod scan;
mod scratch;
mod sent;
mod syntax;
mod tree;
mod value;

use std::collections::BTreeSet;

pub use compile::{Builder, Conditions, Id};
pub use facts::{Facts, Reads, ResponseFacts, Scope, Sent, TlsNames};
pub use implied::hidden_by;
pub use judge::{Judge, Term};
pub use lists::Lists;
pub use mistake::Mistake;
pub use networks::{Networks, network};

use crate::limits::CAPTURES_MAX;
use crate::tree::Tree;

/// Reads and checks the text of a condition.
pub fn check(text: &str, scope: Scope, lists: &Lists) -> Result<Checked, Mistake> {
    let node = syntax::parse(text)?;
    let tree = check::typed(&node, scope, lists)?;
    let checked = Checked { tree };
    if checked.captures().len() > CAPTURES_MAX {
        let why = format!("the condition has more than {CAPTURES_MAX} named groups");
        return Err(Mistake::new(&(0..text.len()), why));
    }
    Ok(checked)
}

/// A condition that has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    pub(crate) tree: Tree,
}

impl Checked {
    /// The facts that the condition reads.
    pub fn reads(&self) -> Reads {
        self.tree.reads()
    }

    /// The names of the groups of `path.matches` that have captured something whenever the
    /// condition holds, sorted.
    pub fn captures(&self) -> Vec<String> {
        implied::captures(&self.tree, true)
            .into_iter()
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }
}
