//! `return` and `rewrite`: answers and redirects of routes.

use super::blocks::Directive;
use super::table;
use crate::note::{Fate, Notes, Place};
use crate::tree::{Section, Value};

/// An answer without an upstream.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) at: Place,
    pub(crate) status: u64,
    pub(crate) location: Option<String>,
    pub(crate) with_path: bool,
    pub(crate) body: Option<String>,
}

impl Answer {
    pub(crate) fn write(&self, section: &mut Section) {
        match &self.location {
            Some(location) => {
                section.set("redirect", location.clone(), &self.at);
                if self.with_path {
                    section.set("with_path", true, &self.at);
                }
            }
            None => {
                let body = self.body.clone().unwrap_or_else(|| format!("{}\n", self.status));
                section.set("answer", body, &self.at);
            }
        }
        section.set("status", Value::Count(self.status), &self.at);
    }
}

/// The answer of the first `return` or `rewrite` at this level. `None` if there is none; the inner
/// value is `None` if it is not carried.
pub(crate) fn action(
    all: &[Directive],
    hosts: &[String],
    default: bool,
    notes: &mut Notes,
) -> Option<Option<Answer>> {
    let first = all.iter().find(|one| matches!(one.name.as_str(), "return" | "rewrite"))?;
    let (at, shown) = (&first.at, first.shown());
    let answer = match first.name.as_str() {
        "return" => returned(first, hosts, default),
        _ => rewritten(first, hosts, default),
    };
    match answer {
        Ok(answer) => {
            match first.word(0) {
                "444" => {
                    notes.different(at, &shown, "the answer is 403 instead of a closed connection");
                }
                _ => notes.carried(at, &shown),
            }
            Some(Some(answer))
        }
        Err(why) => {
            notes.left(at, &shown, format!("{why}; this is answered with 501"));
            Some(None)
        }
    }
}

fn returned(directive: &Directive, hosts: &[String], default: bool) -> Result<Answer, String> {
    let at = directive.at.clone();
    let (status, text) = match directive.word(0).parse::<u64>() {
        Ok(status) => (status, directive.word(1)),
        Err(_) => (302, directive.word(0)),
    };
    match status {
        301 | 302 | 303 | 307 | 308 => redirect(at, status, text, hosts, default),
        444 => Ok(Answer { at, status: 403, location: None, with_path: false, body: None }),
        204 | 304 => Err("an answer has a body".to_owned()),
        200..=599 if text.contains('$') => Err("there are no variables".to_owned()),
        200..=599 => {
            let body = (!text.is_empty()).then(|| text.to_owned());
            Ok(Answer { at, status, location: None, with_path: false, body })
        }
        _ => Err("this is not the status of an answer".to_owned()),
    }
}

/// `rewrite ^ URL permanent` and `rewrite ^/path$ URL redirect`.
fn rewritten(directive: &Directive, hosts: &[String], default: bool) -> Result<Answer, String> {
    let (pattern, target) = (directive.word(0), directive.word(1));
    let status = match directive.word(2) {
        "permanent" => 301,
        "redirect" => 302,
        _ => return Err("URLs are passed on as they are".to_owned()),
    };
    match pattern {
        "^" | "^(.*)$" | "^(.*)" | "^/(.*)$" | "^/(.*)" => {
            let target = match pattern.contains("/(") {
                true => target.replace("/$1", "$request_uri"),
                false => target.replace("$1", "$request_uri"),
            };
            redirect(directive.at.clone(), status, &target, hosts, default)
        }
        _ => Err("routes have no expressions".to_owned()),
    }
}

/// A redirect to a fixed URL, or to a fixed scheme and host with the path of the request.
fn redirect(
    at: Place,
    status: u64,
    target: &str,
    hosts: &[String],
    default: bool,
) -> Result<Answer, String> {
    let (target, with_path) = match target.strip_suffix("$request_uri") {
        Some(start) => (start, true),
        None => (target, false),
    };
    let own = ["$host", "$server_name", "$http_host"].iter().find(|own| target.contains(**own));
    let target = match own {
        None => target.to_owned(),
        Some(own) => {
            let one = hosts.len() == 1 && !default && !hosts[0].starts_with("*.");
            if !one {
                let text = "a redirect has a fixed host, and this server has not one name alone";
                return Err(text.to_owned());
            }
            target.replace(own, &hosts[0])
        }
    };
    if target.contains('$') || target.is_empty() || target.chars().any(char::is_control) {
        return Err("a redirect has a fixed URL".to_owned());
    }
    Ok(Answer { at, status, location: Some(target), with_path, body: None })
}

/// Writes the notes of an `if` block. Returns whether it kept requests out: it does unless it only
/// redirects, or changes responses.
pub(crate) fn condition(condition: &Directive, notes: &mut Notes) -> bool {
    let shown = condition.shown();
    let is_open = |one: &Directive| match one.name.as_str() {
        "return" => !table::restricts(one),
        "rewrite" => matches!(one.word(2), "permanent" | "redirect"),
        "add_header" | "expires" | "access_log" | "limit_rate" | "gzip" => true,
        _ => false,
    };
    let keeps_out = !condition.inner().iter().all(is_open);
    let text = "conditions are not carried, and nothing inside";
    if keeps_out {
        notes.unprotected(&condition.at, &shown, text);
    } else {
        notes.left(&condition.at, &shown, text);
    }
    table::inside(condition, Fate::NotCarried, "it is inside a condition", notes);
    keeps_out
}
