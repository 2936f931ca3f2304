//! Conditions over a request and its response.
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
mod syntax;
mod tree;
mod value;

use std::collections::BTreeSet;

pub use compile::{Builder, Conditions, Id};
pub use facts::{Facts, Reads, ResponseFacts, Scope, TlsNames};
pub use implied::hidden_by;
pub use judge::{Judge, Term};
pub use lists::Lists;
pub use mistake::Mistake;

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

    /// The names of the groups of `path.matches` that have captured something whenever the condition
    /// holds, sorted.
    pub fn captures(&self) -> Vec<String> {
        implied::captures(&self.tree, true)
            .into_iter()
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }
}
