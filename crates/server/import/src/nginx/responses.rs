//! `proxy_redirect` and `proxy_cookie_*`: changes to the URLs and the cookies of responses.

use super::scope::Scope;
use imported::note::Notes;
use imported::table::Becomes::{self, Carried, Different, Left};
use imported::tree::Section;

/// What `proxy_redirect` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Redirects {
    /// The URL of the upstream is replaced by the path of the location.
    pub(super) by_default: bool,
    /// Begins of URLs, and what takes their place.
    changes: Vec<(String, String)>,
}

impl Redirects {
    /// Of a location. Writes the notes.
    pub(super) fn of(scope: &Scope<'_>, notes: &mut Notes) -> Redirects {
        let mut redirects = Redirects { by_default: true, changes: Vec::new() };
        let Some(one) = scope.get("proxy_redirect") else { return redirects };
        let (from, to) = (one.word(0), one.word(1));
        // The rest of an authority must not be a part of a name.
        let is_begin = |text: &str| match text.split_once("://") {
            Some((_, rest)) => !rest.is_empty() && !rest.starts_with('/'),
            None => text.starts_with('/'),
        };
        let is_fixed = |text: &str| is_begin(text) && !text.contains(['$', '{', '~', '\\']);
        redirects.by_default = from == "default";
        let becomes = match from {
            "default" | "off" => Carried,
            _ if is_fixed(from) && is_fixed(to) => {
                redirects.changes.push((from.to_owned(), to.to_owned()));
                Carried
            }
            _ => Left("Location is changed by the begin of a fixed URL"),
        };
        notes.became(&one.at, &becomes);
        redirects
    }

    /// Writes the changes into a route.
    pub(super) fn write(&self, section: &mut Section) {
        for (from, to) in &self.changes {
            let one = section.below("route.location");
            one.set("from", from.clone(), "proxy_redirect");
            one.set("to", to.clone(), "proxy_redirect");
        }
    }
}

/// Whether a text may be the value of an attribute.
fn is_value(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_graphic() && !b"$;,\"\\".contains(&b))
}

/// Writes the changes to cookies into a route, and the notes.
pub(super) fn cookies(scope: &Scope<'_>, section: &mut Section, notes: &mut Notes) {
    let (mut domain, mut path) = (None, None);
    let mut flags: Vec<String> = Vec::new();
    for one in scope.all("proxy_cookie_domain").iter().filter(|one| one.word(0) != "off") {
        let becomes = match one.word(1).is_empty() || !is_value(one.word(1)) {
            true => Left("the domain is not fixed"),
            false => {
                domain = Some(one.word(1).to_owned());
                Different("all cookies get this domain, whatever theirs was")
            }
        };
        notes.became(&one.at, &becomes);
    }
    for one in scope.all("proxy_cookie_path").iter().filter(|one| one.word(0) != "off") {
        let mut parts = one.word(1).split(';').map(str::trim);
        let to = parts.next().unwrap_or_default();
        let is_known = one.word(0) == "/" && to.starts_with('/') && is_value(to);
        let becomes = match is_known {
            false => Left("the path of cookies is / or another fixed one"),
            true => {
                flags.extend(parts.filter(|part| !part.is_empty()).map(str::to_ascii_lowercase));
                if to == "/" {
                    Carried
                } else {
                    path = Some(to.to_owned());
                    Different("all cookies get this path, whatever theirs was")
                }
            }
        };
        notes.became(&one.at, &becomes);
    }
    for one in scope.all("proxy_cookie_flags").iter().filter(|one| one.word(0) != "off") {
        let becomes = match one.word(0) {
            "~" | "~.*" => {
                flags.extend(one.words.iter().skip(1).map(|word| word.to_ascii_lowercase()));
                Carried
            }
            _ => Left("the flags are those of all cookies (write ~), or of none"),
        };
        notes.became(&one.at, &becomes);
    }
    if domain.is_none() && path.is_none() && flags.is_empty() {
        return;
    }
    let cookie = section.below("route.cookie");
    cookie.set_some("domain", domain, "proxy_cookie_domain");
    cookie.set_some("path", path, "proxy_cookie_path");
    for flag in &flags {
        match flag.as_str() {
            "secure" => cookie.set("secure", true, "proxy_cookie_flags"),
            "nosecure" => cookie.set("secure", false, "proxy_cookie_flags"),
            "httponly" => cookie.set("http_only", true, "proxy_cookie_flags"),
            "nohttponly" => cookie.set("http_only", false, "proxy_cookie_flags"),
            "samesite=strict" | "samesite=lax" | "samesite=none" => {
                let value = flag.trim_start_matches("samesite=");
                cookie.set("same_site", value, "proxy_cookie_flags");
            }
            _ => {
                let all = ["proxy_cookie_flags", "proxy_cookie_path"];
                let lines = all.iter().flat_map(|name| scope.all(name));
                let becomes: Becomes = Left("one of the flags is not known");
                lines.for_each(|one| notes.became(&one.at, &becomes));
            }
        }
    }
}
