//! The variables in a text, by nginx's rules, and where variables get their values.
//!
//! `$name` ends at the first character that is no letter, digit or underscore. `${name}` ends at
//! its brace, so that a letter can follow it. `$1` to `$9` are captures of one digit. Names have no
//! case.

use std::collections::{BTreeMap, BTreeSet};

use super::blocks::{Directive, named, with_inner};
use super::conditions::{self, Tests};
use imported::limits::PATTERNS_MAX;
use imported::pattern::cookies;

/// A variable, as it is written, with the text before it and the text after it.
pub(super) fn next(text: &str) -> Option<(&str, &str, &str)> {
    let (before, after) = text.split_once('$')?;
    let inner = after.strip_prefix('{');
    let has_braces = inner.is_some();
    let inner = inner.unwrap_or(after);
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_capture = !has_braces && inner.starts_with(|c| matches!(c, '1'..='9'));
    let length = inner.find(|c| !of_name(c)).unwrap_or(inner.len());
    let (name, rest) = inner.split_at(if is_capture { 1 } else { length });
    let rest = if has_braces { rest.strip_prefix('}').unwrap_or(rest) } else { rest };
    debug_assert!(rest.len() < text.len(), "a variable has at least its sign");
    Some((before, name, rest))
}

/// The variables in a text, as they are written.
pub(crate) fn names(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    let one = move || {
        let (_, name, after) = next(rest)?;
        rest = after;
        Some(name)
    };
    std::iter::from_fn(one).filter(|name| !name.is_empty())
}

/// The variables in a text, in lower case.
pub(crate) fn variables(text: &str) -> Vec<String> {
    names(text).map(str::to_ascii_lowercase).collect()
}

/// The variable in lower case, if the text is one variable and nothing else.
pub(crate) fn only(text: &str) -> Option<String> {
    let (before, name, after) = next(text)?;
    let is_only = before.is_empty() && after.is_empty() && !name.is_empty();
    is_only.then(|| name.to_ascii_lowercase())
}

/// The variables of a server with a fixed value.
#[derive(Debug, Default)]
pub(super) struct Constants {
    /// What the level of the server sets.
    of_server: BTreeMap<String, String>,
    /// What a location sets. It can lead to another location.
    in_locations: BTreeSet<String>,
    /// What has more values: conditions, captures or blocks set it.
    unfixed: BTreeSet<String>,
}

impl Constants {
    /// Of a server. `by_blocks`: the variables that `map` and similar blocks set.
    pub(super) fn of(server: &[Directive], by_blocks: &BTreeSet<String>) -> Constants {
        let set = |one: &Directive| only(one.word(0)).filter(|_| one.name == "set");
        let in_locations = named(server, "location").flat_map(|one| with_inner(one.inner()));
        let in_locations: BTreeSet<String> = in_locations.filter_map(set).collect();
        let mut unfixed = by_blocks.clone();
        for one in with_inner(server) {
            unfixed.extend(one.words.iter().flat_map(|word| captures(word)));
            match one.name.as_str() {
                "if" => unfixed.extend(one.inner().iter().filter_map(set)),
                // `auth_request_set`, `js_set` and others.
                name if name != "set" && name.contains("set") => {
                    unfixed.extend(only(one.word(0)));
                }
                _ => {}
            }
        }
        Constants { of_server: fixed(server), in_locations, unfixed }
    }

    /// The variables with a fixed value at a level inside the server, with their values.
    pub(super) fn at(&self, level: &[Directive]) -> BTreeMap<String, String> {
        let of_server =
            self.of_server.iter().filter(|(name, _)| !self.in_locations.contains(*name));
        let mut found: BTreeMap<String, String> =
            of_server.map(|(name, value)| (name.clone(), value.clone())).collect();
        found.extend(fixed(level));
        found.retain(|name, _| !self.unfixed.contains(name));
        found
    }
}

/// What the `set` lines of a level set to a fixed text.
fn fixed(level: &[Directive]) -> BTreeMap<String, String> {
    // nginx leaves out the lines behind it.
    let ends = |one: &Directive| {
        one.name == "break" || one.name == "rewrite" && matches!(one.word(2), "last" | "break")
    };
    let may_end = |one: &Directive| ends(one) || one.name == "if" && one.inner().iter().any(ends);
    let mut found = BTreeMap::new();
    for one in level.iter().take_while(|one| !may_end(one)).filter(|one| one.name == "set") {
        let Some(name) = only(one.word(0)) else { continue };
        match one.word(1).contains('$') {
            true => found.remove(&name),
            false => found.insert(name, one.word(1).to_owned()),
        };
    }
    found
}

/// The names of the groups of an expression: each is a variable.
pub(super) fn captures(expression: &str) -> impl Iterator<Item = String> {
    let of_group = |rest: &str| {
        let name = rest.strip_prefix('P').unwrap_or(rest).strip_prefix(['<', '\''])?;
        let end = name.find(['>', '\''])?;
        Some(name[..end].to_ascii_lowercase())
    };
    expression.split("(?").skip(1).filter_map(of_group)
}

/// The text with the values of its variables; `None`: one has no fixed value.
pub(super) fn filled(text: &str, constants: &BTreeMap<String, String>) -> Option<String> {
    let is_fixed = |name: &str| constants.contains_key(&name.to_ascii_lowercase());
    let is_name = |one: (&str, &str, &str)| is_fixed(one.1);
    let mut rest = text;
    while let Some(one) = next(rest) {
        rest = is_name(one).then_some(one.2)?;
    }
    Some(with_values(text, constants))
}

/// The text with the values of the variables that have a fixed value.
pub(super) fn with_values(text: &str, constants: &BTreeMap<String, String>) -> String {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, name, after)) = next(rest) {
        filled.push_str(before);
        match constants.get(&name.to_ascii_lowercase()) {
            Some(value) => filled.push_str(value),
            None => filled.push_str(&rest[before.len()..rest.len() - after.len()]),
        }
        rest = after;
    }
    filled + rest
}

/// The cookies that a `map` looks at, by its variable without `$`.
pub(crate) type Maps = BTreeMap<String, Vec<String>>;

/// Where variables get their values and where they are used.
#[derive(Debug, Default)]
struct Uses {
    /// How many places set each variable: `set`, `map` and similar blocks.
    set: BTreeMap<String, usize>,
    /// The variables of `set`.
    by_set: BTreeSet<String>,
    /// The variables of `map` and similar blocks.
    by_blocks: BTreeSet<String>,
    /// The variables that decide about the store.
    of_store: BTreeSet<String>,
    /// The variables with another use.
    others: BTreeSet<String>,
}

impl Uses {
    fn read(&mut self, all: &[Directive]) {
        for one in all {
            let found = || one.words.iter().flat_map(|word| variables(word));
            match one.name.as_str() {
                "proxy_cache_bypass" | "proxy_no_cache" => self.of_store.extend(found()),
                "log_format" | "access_log" | "add_header" => {}
                "set" => {
                    for name in variables(one.word(0)) {
                        *self.set.entry(name.clone()).or_default() += 1;
                        self.by_set.insert(name);
                    }
                    self.others.extend(one.words.iter().skip(1).flat_map(|word| variables(word)));
                }
                "map" | "geo" | "split_clients" => {
                    for name in one.words.last().map(|word| variables(word)).unwrap_or_default() {
                        *self.set.entry(name.clone()).or_default() += 1;
                        self.by_blocks.insert(name);
                    }
                    let values = one.inner().iter().flat_map(|inner| &inner.words);
                    self.others.extend(values.flat_map(|word| variables(word)));
                    let sources = &one.words[..one.words.len().saturating_sub(1)];
                    self.others.extend(sources.iter().flat_map(|word| variables(word)));
                    continue;
                }
                _ => self.others.extend(found()),
            }
            self.read(one.inner());
        }
    }
}

/// The variables that directives outside servers set by captures, or as `auth_request_set` does.
fn set_outside(http: &[Directive]) -> impl Iterator<Item = String> {
    http.iter().filter(|one| one.name != "server").flat_map(|one| {
        let all = std::iter::once(one).chain(with_inner(one.inner()));
        let texts = all.flat_map(|one| std::iter::once(&one.name).chain(&one.words));
        let is_set = one.name.ends_with("_set");
        let own = only(one.word(0)).filter(|_| is_set);
        texts.flat_map(|text| captures(text)).chain(own)
    })
}

/// What variables say.
#[derive(Debug, Default)]
pub(crate) struct Switches {
    /// The maps of cookies whose variables nothing else sets.
    pub(crate) maps: Maps,
    /// The variables that are set to decide about the store alone.
    pub(crate) of_store: BTreeSet<String>,
    pub(crate) tests: Tests,
    /// The variables of `map` and similar blocks, and of their captures.
    pub(super) by_blocks: BTreeSet<String>,
}

pub(crate) fn switches(all: &[Directive]) -> Switches {
    let mut uses = Uses::default();
    uses.read(all);
    let maps = named(all, "map").filter_map(map);
    let maps = maps.filter(|(name, _)| uses.set.get(name) == Some(&1)).collect();
    let of_store = uses.by_set.iter().filter(|name| uses.of_store.contains(*name));
    let of_store: BTreeSet<String> =
        of_store.filter(|name| !uses.others.contains(*name)).cloned().collect();
    let is_single = |name: &str| uses.set.get(name) == Some(&1);
    // A variable of one server can have another value in another server.
    let servers = named(all, "server").filter(|server| {
        let mut own = Uses::default();
        own.read(server.inner());
        !own.by_set.is_empty()
    });
    let is_alone = servers.count() <= 1;
    // How often a variable is set at the level of a server, and in the `if` blocks there.
    let mut below: BTreeMap<String, usize> = BTreeMap::new();
    let levels = named(all, "server").flat_map(|server| {
        let inner = server.inner();
        std::iter::once(inner).chain(named(inner, "if").map(Directive::inner))
    });
    for name in levels.flat_map(|level| named(level, "set")).filter_map(|one| only(one.word(0))) {
        *below.entry(name).or_default() += 1;
    }
    let is_switch =
        |name: &str| is_alone && of_store.contains(name) && uses.set.get(name) == below.get(name);
    let tests = conditions::of_blocks(all, &is_single, &is_switch);
    uses.by_blocks.extend(set_outside(all));
    Switches { maps, of_store, tests, by_blocks: uses.by_blocks }
}

/// The variable and the cookies of a `map` block. Returns `None` if our file cannot express it.
pub(crate) fn map(block: &Directive) -> Option<(String, Vec<String>)> {
    let variable = only(block.word(1))?;
    let is_off = |text: &str| matches!(text, "" | "0");
    let (default, others): (Vec<&Directive>, Vec<&Directive>) =
        block.inner().iter().partition(|one| one.name == "default");
    let default = default.first().map_or("", |one| one.word(0));
    match only(block.word(0))?.as_str() {
        "http_cookie" if is_off(default) => {
            let mut all = Vec::new();
            for one in others.iter().filter(|one| !is_off(one.word(0))) {
                if all.len() > PATTERNS_MAX {
                    return None;
                }
                all.extend(cookies(one.name.strip_prefix('~')?).filter(|(_, exact)| *exact)?.0);
            }
            Some((variable, all))
        }
        name => {
            let name = name.strip_prefix("cookie_")?;
            let exact = others.len() == 1 && is_off(others[0].word(0)) && others[0].name.is_empty();
            (exact && !is_off(default)).then(|| (variable, vec![name.to_owned()]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_ends_where_nginx_ends_it() {
        for (text, wanted) in [
            ("${host}${request_uri}${cookie_u}x", &["host", "request_uri", "cookie_u"][..]),
            ("$host${http_x_user}_1", &["host", "http_x_user"]),
            ("$cookie_u-1.$Arg_V", &["cookie_u", "arg_v"]),
            ("$12$1a", &["1", "1"]),
            ("${a", &["a"]),
            ("{$a}b{c}", &["a"]),
            ("$ $", &[]),
        ] {
            assert_eq!(variables(text), wanted, "{text}");
        }
        for (text, wanted) in [
            ("$cookie_u", Some("cookie_u")),
            ("${Cookie_u}", Some("cookie_u")),
            ("$cookie_u-1", None),
            ("${cookie_u}1", None),
            ("$cookie_u$cookie_v", None),
            ("-$cookie_u", None),
            ("$", None),
            ("u", None),
        ] {
            assert_eq!(only(text).as_deref(), wanted, "{text}");
        }
    }
}
