//! What a location inherits from its server, and a server from `http`.
//!
//! A value replaces the inherited one. Of `proxy_set_header`, `add_header` and `proxy_hide_header`,
//! a level that has any inherits none.

use std::collections::BTreeMap;

use super::blocks::Directive;
use super::table;
use crate::note::Notes;

/// The settings of a level.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// Settings with one value, by name.
    values: BTreeMap<String, Directive>,
    pub(crate) set_headers: Vec<Directive>,
    pub(crate) add_headers: Vec<Directive>,
    pub(crate) hidden: Vec<Directive>,
    /// `ssl_certificate` and `ssl_certificate_key`.
    pub(crate) certificates: Vec<Directive>,
    pub(crate) senders: Vec<Directive>,
    /// A rule that keeps requests out is not carried.
    pub(crate) unprotected: bool,
    /// `deny all` without a rule that allows.
    pub(crate) denied: bool,
}

impl Scope {
    /// The scope of these directives inside another one. Writes the notes of all directives that
    /// are neither blocks nor actions.
    pub(crate) fn inside(&self, all: &[Directive], notes: &mut Notes) -> Scope {
        let mut scope = self.clone();
        let has = |name: &str| all.iter().any(|directive| directive.name == name);
        for (name, list) in [
            ("proxy_set_header", &mut scope.set_headers),
            ("add_header", &mut scope.add_headers),
            ("proxy_hide_header", &mut scope.hidden),
            ("ssl_certificate", &mut scope.certificates),
            ("set_real_ip_from", &mut scope.senders),
        ] {
            if has(name) {
                list.clear();
            }
        }
        let allows = all.iter().any(|directive| directive.name == "allow");
        for directive in all {
            let keep = |list: &mut Vec<Directive>| list.push(directive.clone());
            match directive.name.as_str() {
                "proxy_set_header" => keep(&mut scope.set_headers),
                "add_header" => keep(&mut scope.add_headers),
                "set_real_ip_from" => keep(&mut scope.senders),
                "proxy_hide_header" => keep(&mut scope.hidden),
                "ssl_certificate" | "ssl_certificate_key" => keep(&mut scope.certificates),
                "deny" if directive.word(0) == "all" && !allows => {
                    scope.denied = true;
                    notes.carried(&directive.at, &directive.shown());
                    continue;
                }
                _ => {}
            }
            if table::setting(directive, notes) {
                scope.unprotected = true;
            }
            scope.values.insert(directive.name.clone(), directive.clone());
        }
        scope
    }

    /// The directive of this name that applies here.
    pub(crate) fn get(&self, name: &str) -> Option<&Directive> {
        self.values.get(name)
    }

    /// Whether the directive of this name that applies here has this first word.
    pub(crate) fn is(&self, name: &str, word: &str) -> bool {
        self.get(name).is_some_and(|directive| directive.word(0) == word)
    }
}
