//! `set_real_ip_from` and `real_ip_header`: proxies in front that name the client.

use super::blocks::Directive;
use super::scope::is_network;
use imported::cel::{self, Cel};
use imported::note::{Notes, Place};
use imported::table::is_one;
use imported::tree::Section;

/// The proxies in front, if all servers have the same.
#[derive(Clone, Debug)]
pub(crate) struct Trusted {
    networks: Vec<String>,
    /// `None`: X-Forwarded-For.
    field: Option<String>,
    pub(crate) from: Place,
    /// The client is always the one that nginx takes. If not, rules about clients are not carried.
    pub(crate) is_exact: bool,
}

impl Trusted {
    /// The condition that a proxy names a client that nginx and our server read in another way.
    pub(crate) fn is_ambiguous(&self) -> Option<Cel> {
        // Of a list, the last address counts.
        let start = if self.field.is_some() { "^" } else { "(^|,)" };
        let field = cel::field(self.field.as_deref().unwrap_or("x-forwarded-for"))?;
        let is_address = format!(r"{start}[ \t]*[0-9A-Fa-f.:\[\]]*[ \t]*$");
        Some(cel::matches(&field, &is_address)?.negated())
    }

    /// Writes them into a listener.
    pub(crate) fn write(&self, listener: &mut Section) {
        listener.set("trusted_proxies", self.networks.clone(), &self.from);
        listener.set_some("trusted_field", self.field.clone(), &self.from);
    }
}

/// The proxies that all servers of an `http` block trust: the directives are in `http` alone, or in
/// each server with the same words. `None`: there are none, or they are not carried, and then the
/// client is that of the connection. Writes the notes.
pub(crate) fn trusted(http: &[Directive], notes: &mut Notes) -> Option<Trusted> {
    let found = found(http, notes);
    if found.is_none() {
        not_carried(http, notes);
    }
    found
}

/// Writes the notes of the fields that are not read.
fn not_carried(all: &[Directive], notes: &mut Notes) {
    for one in all {
        match (one.name.as_str(), one.word(0)) {
            ("real_ip_header", "proxy_protocol") => notes.carried(&one.at),
            ("real_ip_header", _) => {
                let text = "not all servers have the same trusted networks, so the client is that \
                            of the connection";
                notes.left(&one.at, text);
            }
            _ => not_carried(one.inner(), notes),
        }
    }
}

fn found(http: &[Directive], notes: &mut Notes) -> Option<Trusted> {
    let own = |level: &[Directive]| -> Vec<Directive> {
        level.iter().filter(|one| is_of_clients(one)).cloned().collect()
    };
    let servers = || http.iter().filter(|one| one.name == "server");
    let is_deep = |server: &Directive| server.inner().iter().any(has_inside);
    let of_http = own(http);
    let words = |all: &[Directive]| -> Vec<(String, Vec<String>)> {
        let mut all: Vec<_> = all.iter().map(|one| (one.name.clone(), one.words.clone())).collect();
        all.sort_unstable();
        all
    };
    let of_servers: Vec<Vec<Directive>> = servers().map(|server| own(server.inner())).collect();
    let first = of_servers.first().cloned().unwrap_or_default();
    let all = match of_servers.iter().all(Vec::is_empty) {
        true => of_http,
        false if of_http.is_empty() && of_servers.iter().all(|one| words(one) == words(&first)) => {
            first
        }
        false => return None,
    };
    if servers().any(is_deep) {
        return None;
    }
    let header = all.iter().find(|one| one.name == "real_ip_header");
    // By default nginx reads X-Real-IP.
    let field = header.map_or("X-Real-IP", |one| one.word(0));
    let from = all.iter().find(|one| one.name == "set_real_ip_from")?.at.clone();
    let senders = all.iter().filter(|one| one.name == "set_real_ip_from");
    let networks: Vec<String> = senders.map(|one| one.word(0).to_owned()).collect();
    if field == "proxy_protocol" || !networks.iter().all(|text| is_network(text)) {
        return None;
    }
    let placed = of_servers.iter().flatten().chain(&all);
    for one in placed.filter(|one| one.name == "real_ip_header") {
        let text = "addresses of trusted proxies are skipped, as with real_ip_recursive on; of \
                    several fields with an address, the last counts; a request whose \
                    field has another form is refused where a rule is about clients; from other \
                    clients the field is not passed on";
        notes.different(&one.at, text);
    }
    // Without real_ip_recursive, nginx takes the last address, even if that is a trusted one.
    let is_recursive = all.iter().any(|one| one.name == "real_ip_recursive" && one.word(0) == "on");
    let is_exact = is_recursive || !field.eq_ignore_ascii_case("x-forwarded-for");
    let field = Some(field.to_owned()).filter(|one| !one.eq_ignore_ascii_case("x-forwarded-for"));
    Some(Trusted { networks, field, from, is_exact })
}

fn is_of_clients(one: &Directive) -> bool {
    is_one("set_real_ip_from real_ip_header real_ip_recursive", &one.name)
}

/// Whether a block has such a directive inside.
fn has_inside(block: &Directive) -> bool {
    block.inner().iter().any(|one| is_of_clients(one) || has_inside(one))
}
