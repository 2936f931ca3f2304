//! `return` and `rewrite`: answers and redirects of routes.

use std::collections::BTreeSet;

use super::blocks::{Directive, named};
use super::variables::{only, variables};
use super::{Nginx, table};
use imported::note::{Fate, Notes};
use imported::pattern::{path_of, repeated};
use imported::route::{Action, CAPTURES, Path, has_value};
use imported::table::Becomes::{Carried, Different, Left, Text};
use imported::table::is_one;

/// The parts of a request that a redirect can repeat.
pub(crate) struct Names<'n> {
    /// The hosts of the server. Empty for the default server, which has other hosts too.
    pub(crate) hosts: &'n [String],
    pub(crate) groups: &'n [(String, String)],
    /// What `$host` is in a request without a host. `None`: the server has no such request.
    pub(crate) unnamed: Option<&'n str>,
}

impl Names<'_> {
    /// The only host, with its capture if it has one.
    fn host(&self) -> Option<&String> {
        self.hosts.first().filter(|host| self.hosts.len() == 1 && !host.starts_with("*."))
    }

    /// A redirect to a URL that is fixed except for captures, perhaps with the path of the request.
    fn redirect(&self, status: u64, target: &str) -> Result<Action, String> {
        let (target, with_path) = match target.strip_suffix("$request_uri") {
            Some(start) => (start, true),
            None => (target, false),
        };
        let own = ["$host", "$server_name", "$http_host"].iter().find(|own| target.contains(**own));
        let mut groups = self.groups.to_vec();
        if let Some(own) = own {
            let name = match (self.host(), *own, self.hosts.first()) {
                (Some(host), ..) => host.clone(),
                (None, "$server_name", Some(first)) => first.clone(),
                (None, "$server_name", None) => {
                    return Err("this server has no name that a redirect can repeat".to_owned());
                }
                (None, ..) => "{host}".to_owned(),
            };
            groups.push((own[1..].to_owned(), name));
        }
        let text = repeated(target, '$', &groups);
        let label = self.host().filter(|host| host.starts_with('{'));
        let label = label.and_then(|host| host.split('.').next()).unwrap_or_default();
        text.and_then(|text| Action::redirect(status, text, with_path, label)).ok_or_else(|| {
            "a redirect has a fixed URL, except for parts of the path and the host".to_owned()
        })
    }
}

/// Whether a directive answers requests without an upstream.
pub(crate) fn is_answer(directive: &Directive) -> bool {
    matches!(directive.name.as_str(), "return" | "rewrite")
}

/// The answer of the first `return` or `rewrite` at this level, if there is one. `within` is the
/// path of its location.
pub(crate) fn action<'d>(
    mut all: impl Iterator<Item = &'d Directive>,
    names: &Names<'_>,
    within: &mut Path,
    notes: &mut Notes,
) -> Option<Action> {
    let first = all.find(|one| is_answer(one))?;
    let answer = match first.name.as_str() {
        "return" => returned(first, names),
        _ if is_for_all(first) => rewritten(first, names),
        _ => match pattern(first, names) {
            Some((path, action)) if path.text() == format!("{}*", within.text()) => {
                *within = path;
                Ok(action)
            }
            _ => Err("only a redirect of all requests of its location is carried".to_owned()),
        },
    };
    let (action, becomes) = carried(first, answer);
    notes.became(&first.at, &becomes);
    Some(action)
}

/// The answer of `return`, or of a `rewrite` of all paths.
pub(super) fn answer(one: &Directive, names: &Names<'_>) -> Result<Action, String> {
    match one.name.as_str() {
        "return" => returned(one, names),
        _ if is_for_all(one) => rewritten(one, names),
        _ => Err("only a redirect of all requests is carried".to_owned()),
    }
}

/// What is written for an answer, and what becomes of its directive.
pub(super) fn carried(
    one: &Directive,
    answer: Result<Action, String>,
) -> (Action, imported::table::Becomes) {
    let becomes = match &answer {
        Ok(_) if one.word(0) == "444" => {
            Different("the answer is 403 instead of a closed connection")
        }
        Ok(Action::Redirect { .. }) if one.words.iter().any(|word| word.contains("$http_host")) => {
            Left("the redirect is written, but it repeats the host without its port")
        }
        Ok(Action::Redirect { .. }) if is_for_all(one) && one.word(1).contains("$1") => Different(
            "the redirect repeats the path as it was sent, without decoding it and merging slashes",
        ),
        Ok(Action::Redirect { to, .. }) if to.replace("{host}", "").contains('{') => {
            Different(CAPTURES)
        }
        Ok(Action::Answer { status, .. }) if *status < 400 || !one.word(1).is_empty() => Different(
            "its type is text/plain; charset=utf-8, and without a text it has its status as text",
        ),
        Ok(_) => Carried,
        Err(why) => Text(Fate::NotCarried, format!("{why}; this is answered with 501")),
    };
    (answer.unwrap_or(Action::NotCarried), becomes)
}

/// Whether this is a redirect of all requests.
pub(super) fn is_redirect_of_all(one: &Directive) -> bool {
    one.name == "rewrite" && is_for_all(one) && status_of(one).is_some()
}

fn returned(directive: &Directive, names: &Names<'_>) -> Result<Action, String> {
    let (status, text) = match directive.word(0).parse::<u64>() {
        Ok(status) => (status, directive.word(1)),
        Err(_) => (302, directive.word(0)),
    };
    match status {
        301 | 302 | 303 | 307 | 308 => names.redirect(status, text),
        444 => Ok(Action::Answer { status: 403, body: "403\n".to_owned() }),
        204 | 304 => Err("an answer has a body".to_owned()),
        200..=599 if text.contains('$') || has_value(text) => {
            Err("an answer has a fixed text".to_owned())
        }
        200..=599 if text.is_empty() => Ok(Action::Answer { status, body: format!("{status}\n") }),
        200..=599 => Ok(Action::Answer { status, body: text.to_owned() }),
        _ => Err("this is not the status of an answer".to_owned()),
    }
}

/// Whether a rewrite is for all paths.
fn is_for_all(rewrite: &Directive) -> bool {
    matches!(rewrite.word(0), "^" | "^(.*)$" | "^(.*)" | "^/(.*)$" | "^/(.*)")
}

fn status_of(rewrite: &Directive) -> Option<u64> {
    let statuses = [("permanent", 301), ("redirect", 302)];
    statuses.iter().find(|(flag, _)| *flag == rewrite.word(2)).map(|(_, status)| *status)
}

/// `rewrite ^ URL permanent`.
fn rewritten(rewrite: &Directive, names: &Names<'_>) -> Result<Action, String> {
    let Some(status) = status_of(rewrite) else {
        return Err("URLs are passed on as they are".to_owned());
    };
    let rest = if rewrite.word(0).contains("/(") { "/$1" } else { "$1" };
    names.redirect(status, &rewrite.word(1).replace(rest, "$request_uri"))
}

/// `rewrite ^/old/(.*)$ /new/$1 permanent`: a path, and the redirect.
pub(crate) fn pattern(rewrite: &Directive, names: &Names<'_>) -> Option<(Path, Action)> {
    let status =
        status_of(rewrite).filter(|_| rewrite.name == "rewrite" && !is_for_all(rewrite))?;
    let (path, found) = path_of(rewrite.word(0))?;
    let groups = [names.groups, &found.groups].concat();
    let target = rewrite.word(1).strip_suffix('?').unwrap_or(rewrite.word(1));
    let action = Names { groups: &groups, ..*names }.redirect(status, target).ok()?;
    Some((path, action))
}

/// Variables of the address that the client used. They say nothing about the client or the path.
const ADDRESSES: &str =
    "scheme https host http_host server_name server_port http_x_forwarded_proto";

impl Nginx<'_> {
    /// Writes the notes of the `if` blocks of a level. Returns whether a block kept requests out. A
    /// block keeps no request out if it only redirects clients that used another address, changes
    /// responses, or sets a variable that decides about the store alone. `carried`: the blocks that
    /// are conditions of our file.
    pub(crate) fn conditions(&mut self, level: &[Directive], carried: &BTreeSet<usize>) -> bool {
        let mut any = false;
        for condition in named(level, "if").filter(|one| !carried.contains(&one.at.id())) {
            let keeps_out = self.keeps_out(condition);
            any |= keeps_out;
            // The store looks at what it switches.
            let is_test = |one: &Directive| {
                let name = only(one.word(0)).filter(|_| one.name == "set");
                name.is_some_and(|name| self.switches.tests.contains_key(&name))
            };
            if condition.inner().iter().all(is_test) {
                self.notes.carried(&condition.at);
                table::inside(condition, Fate::Carried, "", &mut self.notes);
                continue;
            }
            let fate = if keeps_out { Fate::Unprotected } else { Fate::NotCarried };
            let text = "conditions are not carried, and nothing inside";
            self.notes.add(&condition.at, fate, text);
            table::inside(condition, Fate::NotCarried, "it is inside a condition", &mut self.notes);
        }
        any
    }

    fn keeps_out(&self, condition: &Directive) -> bool {
        let words = || condition.words.iter().map(String::as_str);
        let by_address = words().flat_map(variables).all(|name| is_one(ADDRESSES, &name));
        // A preflight request is answered without the page, so no client gets less.
        let is_preflight = words().collect::<String>() == "($request_method=OPTIONS)";
        let is_open = |one: &Directive| match one.name.as_str() {
            "return" => !table::restricts(one) && (by_address || is_preflight),
            "rewrite" => by_address && status_of(one).is_some(),
            "set" => {
                variables(one.word(0)).iter().all(|name| self.switches.of_store.contains(name))
            }
            "add_header" | "expires" | "access_log" | "limit_rate" | "gzip" => true,
            _ => false,
        };
        !condition.inner().iter().all(is_open)
    }
}
