//! `header`, `request_header`, `header_up` and `header_down`: changes to fields.

use imported::fields::is_free;
use imported::note::Place;
use imported::route::has_value;
use imported::table::Becomes::{self, Carried, Left, Nothing};
use imported::tree::Section;

use crate::blocks::Directive;

/// A change to a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Change {
    /// `set`, `add`, `default` or `remove`.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) value: String,
    /// It is made when the response is there. Otherwise a field of an upstream is kept beside it.
    deferred: bool,
    at: Place,
}

impl Change {
    /// Makes the change wait for the response.
    pub(crate) fn wait(&mut self) {
        self.deferred = true;
    }

    /// Whether nothing of an earlier change remains after this change.
    pub(crate) fn replaces(&self, earlier: &Change) -> bool {
        matches!(self.kind, "set" | "remove") && self.name.eq_ignore_ascii_case(&earlier.name)
    }
}

/// Changes that one route can make, at most.
pub(crate) const CHANGES_MAX: usize = 64;

/// The changes of a directive, whose first `skip` words are no part of them, and what becomes of
/// each of its lines.
pub(crate) fn of(one: &Directive, skip: usize) -> (Vec<Change>, Vec<(Place, Becomes)>) {
    let (mut changes, mut notes) = (Vec::new(), Vec::new());
    let words = one.words.get(skip..).unwrap_or_default();
    let mut deferred = false;
    let mut lines: Vec<(Vec<String>, &Place)> = Vec::new();
    if !words.is_empty() {
        lines.push((words.to_vec(), &one.at));
    }
    for line in &one.inner {
        if line.name == "defer" {
            deferred = true;
            notes.push((line.at.clone(), Carried));
            continue;
        }
        let words = [line.name.clone()].into_iter().chain(line.words.iter().cloned());
        lines.push((words.collect(), &line.at));
    }
    for (words, at) in lines {
        let becomes = match change(&words, at) {
            Ok(change) => {
                deferred |= change.deferred;
                changes.push(change);
                Carried
            }
            Err(becomes) => becomes,
        };
        notes.push((at.clone(), becomes));
    }
    // One change that waits for the response makes all of them wait.
    changes.iter_mut().for_each(|one| one.deferred = deferred);
    (changes, notes)
}

/// The change of one line: a name with a sign, and a value.
pub(crate) fn change(words: &[String], at: &Place) -> Result<Change, Becomes> {
    let (name, value) = match words {
        [name] => (name.as_str(), ""),
        [name, value] => (name.as_str(), value.as_str()),
        _ => return Err(Left("a part of a value is not replaced")),
    };
    let (kind, bare) = match name.split_at_checked(1) {
        Some(("+", rest)) => ("add", rest),
        Some(("-", rest)) => ("remove", rest),
        Some(("?", rest)) => ("default", rest),
        Some((">", rest)) => ("set", rest),
        _ => ("set", name),
    };
    let bare = bare.trim_end_matches(':');
    if kind == "remove" && bare.eq_ignore_ascii_case("server") {
        return Err(Nothing("no response has the name of our server"));
    }
    if !is_free(bare) || bare.contains('*') {
        return Err(Left("this field cannot be changed"));
    }
    if kind != "remove" && words.len() == 1 {
        return Err(Left("it has no value"));
    }
    let value = match kind {
        "remove" => String::new(),
        _ => value_of(value).ok_or(Left("its value has a placeholder that our file lacks"))?,
    };
    let deferred = matches!(kind, "remove" | "default") || name.starts_with('>');
    Ok(Change { kind, name: bare.to_owned(), value, deferred, at: at.clone() })
}

/// Placeholders, and the values of our file that they are.
const VALUES: [(&str, &str); 17] = [
    ("host", "{host}"),
    ("http.request.host", "{host}"),
    ("uri", "{uri}"),
    ("http.request.uri", "{uri}"),
    ("path", "{path}"),
    ("http.request.uri.path", "{path}"),
    ("query", "{query}"),
    ("http.request.uri.query", "{query}"),
    ("scheme", "{scheme}"),
    ("http.request.scheme", "{scheme}"),
    ("remote_host", "{client}"),
    ("remote", "{client}"),
    ("http.request.remote.host", "{client}"),
    ("client_ip", "{client}"),
    ("http.vars.client_ip", "{client}"),
    ("tls_server_name", "{tls.sni}"),
    ("http.request.tls.server_name", "{tls.sni}"),
];

/// A text with its placeholders in the form of our file. `None`: our file lacks one of them, or
/// would replace a part of the text.
pub(crate) fn value_of(text: &str) -> Option<String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('{') {
        let (name, left) = after.split_once('}')?;
        let of_name = |b: u8| b.is_ascii_alphanumeric() || b"._-$:".contains(&b);
        out.push_str(before);
        if name.is_empty() || !name.bytes().all(of_name) {
            // A brace of the text itself.
            out.push('{');
            rest = after;
            continue;
        }
        out.push_str(VALUES.iter().find(|(own, _)| *own == name)?.1);
        rest = left;
    }
    out.push_str(rest);
    let is_sent = out.bytes().all(|b| b >= b' ' && b != 0x7f);
    let is_same = out == text && has_value(&out) && !text.is_empty();
    let is_known = !is_same || VALUES.iter().any(|(_, own)| text.contains(own));
    (is_sent && is_known).then_some(out)
}

/// Adds changes to those before. A later `set` or `remove` takes the place of earlier changes.
/// Returns false if there are too many.
pub(crate) fn join(all: &mut Vec<Change>, new: &[Change]) -> bool {
    for one in new {
        all.retain(|earlier| !one.replaces(earlier));
        if all.len() >= CHANGES_MAX {
            return false;
        }
        all.push(one.clone());
    }
    true
}

/// Writes changes. `sent`: they are made to responses of an upstream, whose own fields stay beside
/// fields that Caddy sets before it has the response.
pub(crate) fn write(section: &mut Section, name: &'static str, all: &[Change], sent: bool) {
    for one in all {
        let kind = match (one.kind, sent && !one.deferred) {
            ("set", true) => "add",
            (kind, _) => kind,
        };
        let rule = section.below(name);
        rule.set(kind, one.name.as_str(), &one.at);
        if kind != "remove" {
            rule.set("value", one.value.as_str(), &one.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_become_values() {
        for (text, wanted) in [
            ("https://x{uri}", Some("https://x{uri}")),
            ("{http.request.remote.host}", Some("{client}")),
            ("{\"a\": {\"b\": 1}}", Some("{\"a\": {\"b\": 1}}")),
            ("{re.a.1}", None),
            ("{$HOME}", None),
            ("a{b", None),
            ("a\nb", None),
        ] {
            assert_eq!(value_of(text).as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn a_later_change_takes_the_place_of_earlier_changes() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
        let one = |text: &str| change(&words(text), &Place::default()).unwrap();
        let mut all = Vec::new();
        assert!(join(&mut all, &[one("X-A b"), one("+X-A c"), one("x-b d")]));
        assert!(join(&mut all, &[one("x-a e"), one("-X-B")]));
        let kinds: Vec<(&str, &str)> = all.iter().map(|one| (one.kind, &*one.name)).collect();
        assert_eq!(kinds, [("set", "x-a"), ("remove", "X-B")]);
        for (text, becomes) in [
            ("-Server", Nothing("no response has the name of our server")),
            ("Host x", Left("this field cannot be changed")),
            ("X-A b c", Left("a part of a value is not replaced")),
        ] {
            assert_eq!(change(&words(text), &Place::default()), Err(becomes), "{text}");
        }
    }
}
