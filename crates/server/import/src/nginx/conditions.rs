//! `if`, `map`, `geo` and variables that switch, as conditions of our file.

use std::collections::BTreeMap;

use ::conditions::Lists;

use super::blocks::{Directive, named};
use super::variables::only;
use imported::cel::{self, Cel, PARTS_MAX};
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
                     parameters with their case";

/// What becomes of a directive whose condition differs like this.
pub(super) fn becomes(why: &'static str) -> Becomes {
    if why.is_empty() { Becomes::Carried } else { Becomes::Left(why) }
}

/// What `if (…)` asks. `None`: our file cannot ask it.
pub(super) fn of_if(block: &Directive, tests: &Tests) -> Option<Found> {
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
        [value, sign, to] if !to.contains('$') || sign.contains('~') => {
            let (found, why) = compared(&only(value)?, sign.trim_start_matches('!'), to, tests)?;
            (if sign.starts_with('!') { found.negated() } else { found }, why)
        }
        _ => return None,
    };
    cel::check(&found, &Lists::new())?;
    Some((found, why))
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
    let found = match sign {
        "=" if value == "host" => cel::is(&value, &to.to_ascii_lowercase()),
        "=" => cel::is(&value, to),
        "~" if value == "host" => cel::matches(&value, &format!("(?i){to}")),
        "~" => cel::matches(&value, to),
        "~*" => cel::matches(&value, &format!("(?i){to}")),
        _ => None,
    };
    Some((found?, why))
}

/// The text of our file that a variable is.
fn text_of(name: &str) -> Option<(String, &'static str)> {
    let plain = |text: &str| Some((text.to_owned(), ""));
    match (name, name.split_once('_')) {
        ("scheme", _) => plain("scheme"),
        ("request_method", _) => plain("method"),
        ("host" | "http_host", _) => plain("host"),
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
                Some(rest) => cel::matches(value, &format!("(?i){rest}"))?,
                None => cel::matches(value, rest)?,
            },
            // nginx compares texts of a map without case.
            None if entry.name.bytes().any(|b| b.is_ascii_alphabetic()) => return None,
            None => cel::is(value, &entry.name)?,
        });
    }
    if source.is_none() {
        parts.push(Cel::one(format!("client.within({})", networks.join(", "))));
    }
    let is_on = Cel::any(parts)?;
    cel::check(&is_on, &Lists::new())?;
    values.dedup();
    let value = if values.len() == 1 { values.pop() } else { None };
    Some(Test { is_on: (is_on, source.map_or("", |(_, why)| why)), value })
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
    let [first, sign, last @ ..] = &block.words[..] else { return of_if(block, tests) };
    let case = match sign.as_str() {
        "~" => "",
        "~*" => "(?i)",
        _ => return of_if(block, tests),
    };
    let name = only(first.strip_prefix('(')?)?;
    let text = last.first()?;
    let text = if last.len() == 1 { text.strip_suffix(')')? } else { text };
    match name.as_str() {
        "request_uri" => url(&format!("{case}{text}"), true),
        _ => of_if(block, tests),
    }
}

#[cfg(test)]
mod tests;
