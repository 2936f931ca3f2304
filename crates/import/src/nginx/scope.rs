//! What a location inherits from its server, and a server from `http`.
//!
//! A value replaces the inherited one. Of the directives of which there can be several, such as
//! `add_header`, a level that has any inherits none.

use std::collections::BTreeMap;

use super::blocks::Directive;
use super::table;
use crate::note::Notes;

/// Directives of which a level can have several.
const LISTS: [&str; 11] = [
    "proxy_set_header",
    "add_header",
    "proxy_hide_header",
    "ssl_certificate",
    "ssl_certificate_key",
    "set_real_ip_from",
    "proxy_cache_valid",
    "proxy_cache_bypass",
    "proxy_no_cache",
    "limit_req",
    "limit_conn",
];

/// The settings of a level.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope {
    /// Settings with one value, by name.
    values: BTreeMap<String, Directive>,
    lists: BTreeMap<String, Vec<Directive>>,
    /// A rule that keeps requests out is not carried.
    pub(crate) unprotected: bool,
    /// `deny all` without a rule that allows.
    pub(crate) denied: bool,
    /// What `$1`, or a name, captures of the host and the path.
    pub(crate) groups: Vec<(String, String)>,
}

impl Scope {
    /// The scope of these directives inside another one. Writes the notes of all directives that
    /// are neither blocks nor actions.
    pub(crate) fn inside(&self, all: &[Directive], notes: &mut Notes) -> Scope {
        let mut scope = self.clone();
        scope.lists.retain(|name, _| !all.iter().any(|directive| directive.name == *name));
        let allows = all.iter().any(|directive| directive.name == "allow");
        for directive in all {
            if directive.name == "deny" && directive.word(0) == "all" && !allows {
                scope.denied = true;
                notes.carried(&directive.at);
                continue;
            }
            scope.unprotected |= table::setting(directive, notes);
            if LISTS.contains(&directive.name.as_str()) {
                let list = scope.lists.entry(directive.name.clone()).or_default();
                list.push(directive.clone());
            } else {
                scope.values.insert(directive.name.clone(), directive.clone());
            }
        }
        scope
    }

    /// The directive of this name that applies here.
    pub(crate) fn get(&self, name: &str) -> Option<&Directive> {
        self.values.get(name)
    }

    /// The directives of this name that apply here.
    pub(crate) fn all(&self, name: &str) -> &[Directive] {
        self.lists.get(name).map_or(&[], Vec::as_slice)
    }

    /// Whether the directive of this name that applies here has this first word.
    pub(crate) fn is(&self, name: &str, word: &str) -> bool {
        self.get(name).is_some_and(|directive| directive.word(0) == word)
    }
}
