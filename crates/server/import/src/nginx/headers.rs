//! `proxy_set_header`, `proxy_hide_header` and `add_header`: changes to fields.

use super::blocks::{Directive, named};
use super::scope::Scope;
use super::variables::only;
use imported::fields;
use imported::note::Notes;
use imported::pattern::{host_of, path_of, repeated};
use imported::route::{CAPTURES, change, has_value};
use imported::table::Becomes::{self, Carried, Different, Left, Nothing};
use imported::tree::Section;

/// Changes to fields. Their notes are those of [`header_notes`].
pub(super) fn fields(section: &mut Section, scope: &Scope<'_>, stores: bool, notes: &mut Notes) {
    let (_, forwarded) = sent(scope, "");
    for header in scope.all("proxy_set_header") {
        let (name, value) = (header.word(0), header.word(1));
        let is_sent = match forwarded {
            Some(TOGETHER) => is_forwarded(name),
            Some(_) => name.eq_ignore_ascii_case("x-forwarded-for"),
            None => false,
        };
        if fields::is_free(name) && !is_sent && !is_own(name, value) {
            // The original replaces the client's field. If the new value is not carried, the field
            // is removed, so that the upstream does not believe the client.
            let new = sent_value(value, &scope.groups);
            if new.is_none() && value.contains('$') {
                notes.left(&header.at, REMOVED);
            }
            let rule = section.below("route.request");
            change(rule, "set", name, new.as_deref(), &header.at.to_string());
        }
    }
    for header in scope.all("proxy_hide_header") {
        let name = header.word(0);
        if stores && fields::is_about_caching(name) && !name.eq_ignore_ascii_case("set-cookie") {
            let text = "clients get it: without it, the store would not respect it";
            notes.left(&header.at, text);
        } else if fields::is_free(name) && !fields::has_tags(name) {
            section.below("route.response").set("remove", header.word(0), &header.at);
        }
    }
    for header in scope.all("add_header") {
        let name = header.word(0);
        if name.eq_ignore_ascii_case("cache-control") {
            notes.left(&header.at, "it would change stored responses");
        }
        if fields::is_free(name)
            && !fields::is_about_caching(name)
            && let Some(value) = fixed(header.word(1), &scope.groups)
        {
            let rule = section.below("route.response");
            change(rule, "add", name, Some(&value), &header.at.to_string());
        }
    }
}

/// Variables, and the values of our file that they are.
const VALUES: [(&str, &str); 7] = [
    ("remote_addr", "{client}"),
    ("scheme", "{scheme}"),
    ("host", "{host}"),
    ("server_port", "{port}"),
    ("request_id", "{request_id}"),
    ("ssl_server_name", "{tls.sni}"),
    ("ssl_client_s_dn", "{tls.client_subject}"),
];

/// A value that upstreams are sent.
fn sent_value(value: &str, groups: &[(String, String)]) -> Option<String> {
    let values = VALUES.iter().map(|(name, own)| ((*name).to_owned(), (*own).to_owned()));
    let all: Vec<(String, String)> = values.chain(groups.iter().cloned()).collect();
    match value.contains('$') {
        true => repeated(value, '$', &all),
        false => fixed(value, groups).filter(|value| !has_value(value)),
    }
}

/// A value whose only variables are captures, in the form of our file.
fn fixed(value: &str, groups: &[(String, String)]) -> Option<String> {
    match value.contains('$') {
        true => repeated(value, '$', groups),
        // In a route with captures, braces are captures.
        false if !groups.is_empty() && value.contains('{') || has_value(value) => None,
        false => Some(value.to_owned()).filter(|value| !value.is_empty()),
    }
}

/// Whether a value is the client's own field of this name.
fn is_own(name: &str, value: &str) -> bool {
    let own = only(value);
    let own = own.as_deref().and_then(|own| own.strip_prefix("http_"));
    own.is_some_and(|own| own == name.to_ascii_lowercase().replace('-', "_"))
}

fn is_forwarded(name: &str) -> bool {
    let names = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host"];
    names.iter().any(|one| name.eq_ignore_ascii_case(one))
}

/// The notes of `proxy_set_header` and `add_header`, once for each line.
pub(super) fn header_notes(all: &[Directive], groups: &[(String, String)], notes: &mut Notes) {
    for one in all {
        let (name, value) = (one.word(0).to_ascii_lowercase(), one.word(1));
        match one.name.as_str() {
            "proxy_set_header" => notes.became(&one.at, &set_header(&name, value, groups)),
            "add_header" => notes.became(&one.at, &add_header(&name, value, groups)),
            _ => {}
        }
        let more = match (one.name.as_str(), one.word(0)) {
            ("location", "~") => path_of(one.word(1)).map(|(_, found)| found.groups),
            ("server", _) => {
                let names = named(one.inner(), "server_name").flat_map(|one| &one.words);
                names.filter_map(|word| host_of(word.strip_prefix('~')?)).next().map(|h| h.groups)
            }
            _ => None,
        };
        let groups = [groups, &more.unwrap_or_default()].concat();
        header_notes(one.inner(), &groups, notes);
    }
}

/// What becomes of `proxy_set_header NAME VALUE`. The name is in lower case.
fn set_header(name: &str, value: &str, groups: &[(String, String)]) -> Becomes {
    match name {
        "host" => match value {
            "$http_host" | "$proxy_host" => Carried,
            "$host" => Different("the client's Host is sent as it is, with its port"),
            _ if value.contains('$') => Left("there are no variables; the client's Host is sent"),
            _ => Carried,
        },
        "connection" | "upgrade" => {
            Nothing("connections are kept, and websocket is passed on (upgrade.protocols)")
        }
        "x-forwarded-for" if value == "$proxy_add_x_forwarded_for" => Carried,
        "x-forwarded-host" if value == "$http_host" => {
            Different("sent with X-Forwarded-For and X-Forwarded-Proto $scheme, otherwise removed")
        }
        _ if is_own(name, value) => Carried,
        _ if sent_value(value, groups).is_some_and(|new| is_known(&new, groups))
            && fields::is_free(name) =>
        {
            Carried
        }
        _ => match variable(name, value, groups) {
            Some(becomes) => becomes,
            None if value.contains('$') => Left(REMOVED),
            None if has_value(value) => Left("our file would replace a part of the value"),
            None if !fields::is_free(name) => Left("this field cannot be changed"),
            None => Carried,
        },
    }
}

/// Whether a value has values of the request, and no captures.
fn is_known(value: &str, groups: &[(String, String)]) -> bool {
    has_value(value) && !groups.iter().any(|(_, own)| value.contains(own.as_str()))
}

/// What becomes of `add_header NAME VALUE`.
fn add_header(name: &str, value: &str, groups: &[(String, String)]) -> Becomes {
    match variable(name, value, groups) {
        Some(becomes) => becomes,
        None if value.contains('$') => Left("there are no variables"),
        None if has_value(value) => Left("our file would replace a part of the value"),
        None if !fields::is_free(name) => Left("this field cannot be changed"),
        None if name == "cache-control" => Nothing("redirects and answers are not stored"),
        None if fields::is_about_caching(name) => Left("it would change stored responses"),
        None if value.is_empty() => Nothing("nginx adds no field without a value"),
        None => Different("it is added to responses of upstreams, whatever their status"),
    }
}

/// What becomes of a value with variables, if these are captures or what Cache-Status says.
fn variable(name: &str, value: &str, groups: &[(String, String)]) -> Option<Becomes> {
    if value.contains("$upstream_cache_status") {
        return Some(Different("every response has Cache-Status instead"));
    }
    let is_carried = value.contains('$')
        && fields::is_free(name)
        && !fields::is_about_caching(name)
        && fixed(value, groups).is_some();
    is_carried.then_some(Different(CAPTURES))
}

const REMOVED: &str = "there are no variables, so the client's field is removed";

/// The word of our file for X-Forwarded-For, -Proto and -Host.
const TOGETHER: &str = "x_forwarded";

/// The Host that upstreams get, `None` for the client's, and the fields about the client that they
/// get.
pub(super) fn sent(scope: &Scope<'_>, authority: &str) -> (Option<String>, Option<&'static str>) {
    let of = |name: &str| {
        let mut last = scope.all("proxy_set_header").iter().rev();
        last.find(|header| header.word(0).eq_ignore_ascii_case(name))
    };
    let value = |name: &str| of(name).map(|header| header.word(1));
    let host = match value("host") {
        None | Some("$proxy_host") => Some(authority.to_owned()),
        Some(value) if value.contains('$') => None,
        Some(value) => Some(value.to_owned()),
    };
    // If the original replaces X-Forwarded-For, ours must not append to the client's field.
    let is_added = value("x-forwarded-for") == Some("$proxy_add_x_forwarded_for");
    let scheme = value("x-forwarded-proto").and_then(only);
    let are_all =
        scheme.as_deref() == Some("scheme") && value("x-forwarded-host") == Some("$http_host");
    (host, is_added.then_some(if are_all { TOGETHER } else { "x_forwarded_for" }))
}
