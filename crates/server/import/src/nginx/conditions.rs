//! `if`, `map`, `geo` and variables that switch, as conditions of our file.

use std::collections::BTreeMap;

use ::conditions::Lists;

use super::blocks::{Directive, named};
use super::variables::only;
use imported::cel::{self, Cel, Expressions, PARTS_MAX};
use imported::table::Becomes;
use imported::url::url;

/// A condition of our file, and how it differs.
pub(super) type Found = (Cel, &'static str);

/// When a variable has a value that is not off, by its name without `$`.
pub(super) type Tests = BTreeMap<String, Test>;

/// What a variable says.
#[derive(Clone, Debug)]
pub(super) struct Test {
    /// It is on.
    is_on: Found,
    /// Its value if it is on, if there is only one.
    value: Option<String>,
}

const NAMES: &str = "its condition is written, but it compares the names of cookies and of \
                     parameters with their case, and it decodes names and values";

const COOKIES: &str = "between several Cookie fields it reads a comma and no semicolon";

/// What the text between two Cookie fields, or the ends of the text, can match.
const SEPARATORS: [&str; 9] = [";", ",", " ", "^", "$", r"\s", r"\b", r"\W", r"\S"];

/// What becomes of a directive whose condition differs like this.
pub(super) fn becomes(why: &'static str) -> Becomes {
    match why {
        "" => Becomes::Carried,
        COOKIES => Becomes::Different(COOKIES),
        _ => Becomes::Left(why),
    }
}

/// What `if (…)` asks. `None`: our file cannot ask it. `unnamed`: what `$host` is in a request
/// without a host, if the server has such requests.
pub(super) fn of_if(block: &Directive, tests: &Tests, unnamed: Option<&str>) -> Option<Found> {
    let mut words: Vec<&str> = block.words.iter().map(String::as_str).collect();
    let first = words.first_mut()?;
    *first = first.strip_prefix('(')?;
    if first.is_empty() {
        words.remove(0);
    }
    let last = words.last_mut()?;
    *last = last.strip_suffix(')')?;
    // A text that ends at a quote is followed by the bracket alone.
    if last.is_empty() && words.len() > 1 {
        words.pop();
    }
    let (found, why) = match words[..] {
        [value] => is_on(&only(value)?, tests)?,
        // The path is compared decoded, so another path would be let in.
        ["$request_uri", "!~" | "!~*", _] => return None,
        [value, sign, to] if !to.contains('$') || sign.contains('~') => {
            let (name, plain) = (only(value)?, sign.trim_start_matches('!'));
            let (mut found, why) = compared(&name, plain, to, tests)?;
            if let Some(host) = unnamed.filter(|_| name == "host") {
                found = with_unnamed(found, plain, to, host)?;
            }
            (if sign.starts_with('!') { found.negated() } else { found }, why)
        }
        _ => return None,
    };
    cel::check(&found, &Lists::new())?;
    Some((found, why))
}

/// Whether a text is as this says: `= TEXT`, `~ EXPRESSION` or `~* EXPRESSION`. `None`: this is
/// unknown.
pub(super) fn holds(expressions: &Expressions, sign: &str, to: &str, text: &str) -> Option<bool> {
    match sign {
        "=" => Some(text == to),
        "~" => expressions.is_match(to, text),
        _ => expressions.is_match(&format!("(?i){to}"), text),
    }
}

/// The condition on the host, also for a request without a host: nginx takes this host then.
fn with_unnamed(found: Cel, sign: &str, to: &str, host: &str) -> Option<Cel> {
    let (without, with) = (cel::is("host", "")?, cel::is("host", "")?.negated());
    let holds = holds(&Expressions::default(), sign, to, host)?;
    let is_same = sign == "=" && (holds == to.is_empty());
    match holds {
        _ if is_same => Some(found),
        true => Cel::any(vec![found, without]),
        false => Cel::all(vec![found, with]),
    }
}

/// Whether a variable has a value that is neither empty nor `0`.
pub(super) fn is_on(name: &str, tests: &Tests) -> Option<Found> {
    if let Some(test) = tests.get(name) {
        return Some(test.is_on.clone());
    }
    let (value, why) = text_of(name)?;
    let parts = vec![cel::is(&value, "")?.negated(), cel::is(&value, "0")?.negated()];
    let found = Cel::all(parts)?;
    cel::check(&found, &Lists::new())?;
    Some((found, why))
}

fn compared(name: &str, sign: &str, to: &str, tests: &Tests) -> Option<Found> {
    if let Some(Test { is_on: (is_on, why), value }) = tests.get(name) {
        let is_value = value.as_deref() == Some(to) && sign == "=";
        return is_value.then(|| (is_on.clone(), *why));
    }
    match (name, sign) {
        ("https", "=") if matches!(to, "on" | "") => {
            return Some((cel::is("scheme", if to == "on" { "https" } else { "http" })?, ""));
        }
        ("server_port", "=") => {
            return Some((Cel::one(format!("port == {}", to.parse::<u16>().ok()?)), ""));
        }
        ("remote_addr", "=") => return Some((cel::is("client", to)?, "")),
        ("request_uri", "~") => return url(to, false),
        ("request_uri", "~*") => return url(&format!("(?i){to}"), false),
        _ => {}
    }
    let (value, why) = text_of(name)?;
    let why = if reads_between_cookies(name, to) { COOKIES } else { why };
    let found = match sign {
        "=" => is_text(&value, to),
        "~" => matches(&value, to),
        "~*" => matches(&value, &format!("(?i){to}")),
        _ => None,
    };
    Some((found?, why))
}

/// Whether a comparison depends on the text between two Cookie fields.
fn reads_between_cookies(name: &str, to: &str) -> bool {
    name == "http_cookie" && SEPARATORS.iter().any(|one| to.contains(one))
}

/// Whether a text of our file is this one.
fn is_text(value: &str, to: &str) -> Option<Cel> {
    match value {
        // Hosts are in lower case.
        "host" if to.bytes().any(|b| b.is_ascii_uppercase()) => None,
        "path" => cel::is(value, &cel::in_path(to)),
        _ => cel::is(value, to),
    }
}

/// Whether a text of our file matches an expression.
fn matches(value: &str, expression: &str) -> Option<Cel> {
    match value {
        "path" => cel::path_matches(expression),
        _ => cel::matches(value, expression),
    }
}

/// The text of our file that a variable is.
fn text_of(name: &str) -> Option<(String, &'static str)> {
    let plain = |text: &str| Some((text.to_owned(), ""));
    match (name, name.split_once('_')) {
        ("scheme", _) => plain("scheme"),
        ("request_method", _) => plain("method"),
        ("host", _) => plain("host"),
        ("uri" | "document_uri", _) => plain("path"),
        ("args" | "query_string", _) => plain("query"),
        ("ssl_server_name", _) => plain("tls.sni"),
        // Our server adds to these fields, or uses them.
        ("http_connection" | "http_x_forwarded_for", _) => None,
        (_, Some(("http", name))) => Some((cel::field(&name.replace('_', "-"))?, "")),
        (_, Some(("cookie", name))) => {
            Some((cel::field(name)?.replacen("fields", "cookies", 1), NAMES))
        }
        (_, Some(("arg", name))) => Some((cel::field(name)?.replacen("fields", "args", 1), NAMES)),
        _ => None,
    }
}

/// The variables of `map` and `geo` blocks that are on or off, and those that `if` blocks switch
/// on. `is_single`: nothing else sets the variable.
pub(super) fn of_blocks(
    all: &[Directive],
    is_single: &dyn Fn(&str) -> bool,
    is_switch: &dyn Fn(&str) -> bool,
) -> Tests {
    let mut tests = Tests::new();
    let maps = named(all, "map").chain(named(all, "geo"));
    for block in maps.filter(|block| block.words.len() <= 2) {
        let name = block.words.last().and_then(|word| only(word));
        if let Some(name) = name.filter(|name| is_single(name))
            && let Some(test) = of_block(block)
        {
            tests.insert(name, test);
        }
    }
    for level in all.iter().filter(|one| one.name == "server") {
        switched(level.inner(), is_switch, &mut tests);
    }
    tests
}

pub(super) fn is_off(text: &str) -> bool {
    matches!(text, "" | "0")
}

/// `map $VARIABLE $NAME { … }` or `geo $NAME { … }` whose entries are all on.
pub(super) fn of_block(block: &Directive) -> Option<Test> {
    let source = match (block.name.as_str(), block.words.len()) {
        ("geo", 1) => None,
        ("map", 2) => Some(text_of(&only(block.word(0))?)?),
        _ => return None,
    };
    let between = |entry: &Directive| reads_between_cookies(&block.word(0)[1..], &entry.name);
    if block.inner().len() > PARTS_MAX {
        return None;
    }
    let (mut parts, mut values, mut networks) = (Vec::new(), Vec::new(), Vec::new());
    for entry in block.inner() {
        match entry.name.as_str() {
            "default" if is_off(entry.word(0)) => continue,
            "default" | "hostnames" | "volatile" | "include" | "ranges" | "proxy" | "delete" => {
                return None;
            }
            _ if is_off(entry.word(0)) || entry.word(0).contains('$') => return None,
            _ => {}
        }
        values.push(entry.word(0).to_owned());
        let Some((value, _)) = &source else {
            networks.push(cel::quoted(&entry.name)?);
            continue;
        };
        parts.push(match entry.name.strip_prefix('~') {
            Some(rest) => match rest.strip_prefix('*') {
                Some(rest) => matches(value, &format!("(?i){rest}"))?,
                None => matches(value, rest)?,
            },
            // nginx compares texts of a map without case.
            None if entry.name.bytes().any(|b| b.is_ascii_alphabetic()) => return None,
            None => is_text(value, &entry.name)?,
        });
    }
    if source.is_none() {
        parts.push(Cel::one(format!("client.within({})", networks.join(", "))));
    }
    let is_on = Cel::any(parts)?;
    cel::check(&is_on, &Lists::new())?;
    values.dedup();
    let value = if values.len() == 1 { values.pop() } else { None };
    let why = match block.inner().iter().any(between) {
        true => COOKIES,
        false => source.map_or("", |(_, why)| why),
    };
    Some(Test { is_on: (is_on, why), value })
}

/// Variables that are off, and that `if` blocks of this level switch on.
fn switched(level: &[Directive], is_switch: &dyn Fn(&str) -> bool, tests: &mut Tests) {
    let mut found: BTreeMap<String, Option<Vec<Found>>> = BTreeMap::new();
    for one in level {
        let is_plain = one.name == "set" && is_off(one.word(1));
        match one.name.as_str() {
            "set" => {
                let Some(name) = only(one.word(0)) else { continue };
                let is_first = !found.contains_key(&name);
                found.insert(name, (is_first && is_plain).then(Vec::new));
            }
            "if" => {
                for set in one.inner() {
                    let name = only(set.word(0)).filter(|_| set.name == "set");
                    let Some(name) = name else { continue };
                    let is_on = !is_off(set.word(1)) && !set.word(1).contains('$');
                    let condition = loosely(one, tests).filter(|_| is_on && one.inner().len() == 1);
                    let all = found.entry(name).or_insert_with(|| Some(Vec::new()));
                    match (all.as_mut(), condition) {
                        (Some(all), Some(condition)) => all.push(condition),
                        _ => *all = None,
                    }
                }
            }
            _ => {}
        }
    }
    for (name, all) in found.into_iter().filter(|(name, _)| is_switch(name)) {
        let fits = |all: &Vec<Found>| !all.is_empty() && all.len() <= PARTS_MAX;
        let Some(all) = all.filter(fits) else { continue };
        let why = all.iter().map(|(_, why)| *why).find(|why| !why.is_empty()).unwrap_or_default();
        let parts = all.into_iter().map(|(found, _)| found).collect();
        if let Some(is_on) = Cel::any(parts).filter(|one| cel::check(one, &Lists::new()).is_some())
        {
            tests.insert(name, Test { is_on: (is_on, why), value: None });
        }
    }
}

/// The condition of an `if` block that keeps no request out.
fn loosely(block: &Directive, tests: &Tests) -> Option<Found> {
    let [first, sign, last @ ..] = &block.words[..] else { return of_if(block, tests, None) };
    let case = match sign.as_str() {
        "~" => "",
        "~*" => "(?i)",
        _ => return of_if(block, tests, None),
    };
    let name = only(first.strip_prefix('(')?)?;
    let text = last.first()?;
    let text = if last.len() == 1 { text.strip_suffix(')')? } else { text };
    match name.as_str() {
        "request_uri" => url(&format!("{case}{text}"), true),
        _ => of_if(block, tests, None),
    }
}

#[cfg(test)]
mod tests;
