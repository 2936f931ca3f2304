//! Caddyfiles: words, blocks, and what a site does with a request, as routes.
//!
//! Caddy uses the directives of a site in its own order ([`order`]). [`flow`] follows the
//! requests of a site through them and makes a list of cases, each with its conditions
//! ([`matchers`]) and its end. [`sites`] writes the cases as routes, in their order.
//!
//! What never happens: a request that a directive keeps out is let in, unless the caller asks for
//! it; a directive has no note.

#![forbid(unsafe_code)]

mod blocks;
mod fields;
mod flow;
mod global;
mod lexer;
mod matchers;
mod order;
mod proxy;
mod sites;
mod tls;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use imported::Parsed;
use imported::input::Input;
use imported::note::{Fate, Notes, Place};
use imported::tree::Tree;

/// What the file has said so far.
#[derive(Debug)]
pub(crate) struct Caddy {
    tree: Tree,
    notes: Notes,
    /// Keep open what was protected by a rule that was not carried.
    open: bool,
    order: order::Order,
    is_reordered: bool,
    http_port: u16,
    https_port: u16,
    /// Certificates and redirects by themselves.
    auto_https: bool,
    redirects: bool,
    local_certs: bool,
    default_bind: Vec<String>,
    /// Networks of proxies in front.
    trusted: Option<(Vec<String>, Place)>,
    contacts: Vec<String>,
    directory: Option<(String, Place)>,
    roots: Option<(String, Place)>,
    /// The names of upstreams by their settings.
    upstreams: HashMap<String, String>,
    names: BTreeMap<String, usize>,
    codings: Vec<String>,
    /// Some site has `encode`.
    codes: bool,
    /// Conditions that are written.
    conditions: usize,
    many_ports: bool,
    /// The routes that are written: host, prefix, condition.
    written: HashSet<(String, String, String)>,
}

/// Imports a text.
///
/// # Errors
/// The text is not in the language, or exceeds a limit.
pub fn import(file: &Rc<str>, text: &str, input: &mut Input<'_>) -> Parsed<(Tree, Notes)> {
    let parsed = blocks::parse(file, text, input)?;
    let mut caddy = Caddy {
        tree: Tree::default(),
        notes: std::mem::take(&mut input.notes),
        open: input.open,
        order: order::Order::default(),
        is_reordered: false,
        http_port: 80,
        https_port: 443,
        auto_https: true,
        redirects: true,
        local_certs: false,
        default_bind: Vec::new(),
        trusted: None,
        contacts: Vec::new(),
        directory: None,
        roots: None,
        upstreams: HashMap::new(),
        names: BTreeMap::new(),
        codings: Vec::new(),
        codes: parsed.sites.iter().any(|site| codes(&site.inner)),
        conditions: 0,
        many_ports: false,
        written: HashSet::new(),
    };
    caddy.global(&parsed.global);
    caddy.logs(&parsed.sites);
    for site in &parsed.sites {
        for line in site.inner.iter().filter(|line| line.name == "handle_errors") {
            let why = "errors have our own pages: write [[route.error_page]]";
            caddy.notes.left(&line.at, why);
            flow::inside(line, Fate::NotCarried, why, &mut caddy.notes);
        }
    }
    caddy.sites(&parsed.sites);
    Ok((caddy.tree, caddy.notes))
}

fn codes(all: &[blocks::Directive]) -> bool {
    all.iter().any(|one| one.name == "encode" || codes(&one.inner))
}
