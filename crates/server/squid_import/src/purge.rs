//! Who may PURGE, by `http_access`, for ports of both kinds.
//!
//! Our server allows a PURGE by the client's network alone. So a line that allows is carried if it
//! names only networks. The networks that an earlier line denies are cut out. An earlier line that
//! denies by anything else (a password, a time) denies all networks.

use super::access::{PURGE, Rule};
use super::acl::{Addresses, Set};
use imported::limits::NETWORKS_MAX;
use imported::note::Notes;

/// The networks as `purge.from` has them. Writes the notes of rules about PURGE.
pub(crate) fn purgers(rules: &[Rule], notes: &mut Notes) -> Vec<String> {
    let (mut from, mut denied) = (Addresses::default(), Addresses::default());
    for rule in rules {
        // Whether each list of methods has PURGE.
        let mut applies = true;
        let mut others = Vec::new();
        for one @ (negated, set) in rule.parts() {
            match set {
                Set::Methods(methods) => {
                    applies &= *negated != methods.iter().any(|method| method == PURGE);
                }
                _ => others.push(one),
            }
        }
        if !applies {
            continue;
        }
        let clients = Rule::clients(others.iter().copied());
        let at = &rule.line.at;
        match (rule.allow, clients) {
            (true, _) if !rule.is_about_purge() => {}
            (true, Some(clients)) => {
                let more = clients.without(&denied);
                if more == Addresses::default() {
                    notes.left(at, "a line before it denies, or asks for more than the network");
                } else {
                    notes.carried(at);
                }
                from.join(&more);
            }
            (true, None) => notes.left(at, "only networks can be allowed to purge"),
            (false, clients) => {
                // A URL that is denied is not stored, so a PURGE of it does nothing.
                let is_url = |set: &Set| {
                    matches!(
                        set,
                        Set::Domains(_)
                            | Set::Ports(_)
                            | Set::Paths(_)
                            | Set::Manager
                            | Set::Ourselves
                    )
                };
                match (clients, &others[..]) {
                    (Some(clients), _) => denied.join(&clients),
                    (None, [(_, set)]) if is_url(set) => {}
                    _ => denied = Addresses::everyone(),
                }
                if rule.is_about_purge() {
                    notes.carried(at);
                }
            }
        }
    }
    let Some(networks) = from.networks(NETWORKS_MAX) else {
        for rule in rules.iter().filter(|rule| rule.allow && rule.is_about_purge()) {
            let text = format!("it is part of more than {NETWORKS_MAX} networks");
            notes.left(&rule.line.at, text);
        }
        return Vec::new();
    };
    super::texts_of(&networks)
}
