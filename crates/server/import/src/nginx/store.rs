//! What locations store: keys, lifetimes and bypasses, and which responses are coded.

use std::time::Duration;

use super::blocks::Directive;
use super::conditions::{self, Tests};
use super::scope::Scope;
use super::table::{size, time};
use super::variables::{Maps, names, only};
use imported::cel::PARTS_MAX;
use imported::limits::PATTERNS_MAX;
use imported::note::{Fate, Notes};
use imported::route::{Keys, Lifetime, WITHOUT_LIFETIME, add, all_statuses};
use imported::table::Becomes::{self, Carried, Different, Left, Nothing, Text};
use imported::table::is_one;
use imported::tree::{Section, Tree, Value};

/// `proxy_cache`, if it is on.
pub(crate) fn cache<'d>(scope: &Scope<'d>) -> Option<&'d Directive> {
    // nginx does not store a response that it does not buffer.
    let is_on = |cache: &&Directive| cache.word(0) != "off" && !scope.is("proxy_buffering", "off");
    scope.get("proxy_cache").filter(is_on)
}

/// The directives that say how a location stores.
pub(crate) fn about<'s>(scope: &'s Scope<'_>) -> impl Iterator<Item = &'s Directive> {
    let single = "proxy_cache_key proxy_ignore_headers proxy_cache_use_stale \
                  proxy_cache_background_update";
    let lists = ["proxy_cache_bypass", "proxy_no_cache", "proxy_cache_valid"];
    let single = single.split(' ').filter_map(|name| scope.get(name));
    single.chain(lists.into_iter().flat_map(|name| scope.all(name).iter().copied()))
}

/// What a location stores; `None`: nothing. Writes the notes.
pub(crate) fn keys(
    scope: &Scope<'_>,
    (maps, tests): (&Maps, &Tests),
    notes: &mut Notes,
) -> Option<Keys> {
    let Some(cache) = cache(scope) else {
        if scope.get("proxy_cache").is_some() && scope.is("proxy_buffering", "off") {
            let becomes = Nothing("what is not buffered is not stored");
            about(scope).for_each(|one| notes.became(&one.at, &becomes));
        }
        return None;
    };
    if cache.word(0).contains('$') {
        let text = "a variable decides whether and where it is stored, so nothing is stored";
        notes.left(&cache.at, text);
        return None;
    }
    let ignored = scope.get("proxy_ignore_headers");
    let ignores = |name: &str| {
        ignored.is_some_and(|all| all.words.iter().any(|word| word.eq_ignore_ascii_case(name)))
    };
    let shares_cookies = ignores("set-cookie");
    let mut keys = Keys { shares_cookies, ..Keys::default() };
    let mut known = true;
    let hides = |one: &&&Directive| one.word(0).eq_ignore_ascii_case("set-cookie");
    if let Some(hidden) = scope.all("proxy_hide_header").iter().find(hides)
        && !shares_cookies
    {
        known = false;
        let text = "nginx does not store what it hides the cookie of, so nothing is stored";
        notes.left(&hidden.at, text);
    }
    if let Some(key) = scope.get("proxy_cache_key") {
        let becomes = of_key(key, &mut keys);
        known &= !matches!(becomes, Text(..));
        notes.became(&key.at, &becomes);
    }
    let lists = ["proxy_cache_bypass", "proxy_no_cache"].map(|name| scope.all(name));
    for one in lists.iter().copied().flatten() {
        let of = |word: &String| {
            let name = only(word)?;
            match name.strip_prefix("cookie_") {
                Some(cookie) => Some(vec![cookie.to_owned()]),
                None => maps.get(&name).cloned(),
            }
        };
        let is_on = |word: &String| conditions::is_on(&only(word)?, tests);
        let (of_cookies, others): (Vec<_>, Vec<_>) =
            one.words.iter().partition(|word| of(word).is_some());
        let others: Option<Vec<_>> = others.into_iter().map(is_on).collect();
        let becomes = match others {
            Some(others) => {
                let names: Vec<Vec<String>> = of_cookies.into_iter().filter_map(of).collect();
                let mut why = "";
                for (is_on, differs) in others {
                    why = if differs.is_empty() { why } else { differs };
                    keys.passes.push(is_on);
                }
                // With more names than fit, nothing is stored.
                for name in names.concat() {
                    if keys.bypass.len() <= PATTERNS_MAX {
                        add(&mut keys.bypass, name);
                    }
                }
                match lists.iter().all(|list| list.iter().any(|other| other.words == one.words)) {
                    _ if !why.is_empty() => conditions::becomes(why),
                    true => Carried,
                    false => Different("such a request does not use the store at all"),
                }
            }
            None => {
                known = false;
                Left("our conditions have no such variable, so nothing is stored there")
            }
        };
        notes.became(&one.at, &becomes);
    }
    // Without a part of the condition, too much would be stored.
    known &= keys.passes.len() <= PARTS_MAX;
    lifetimes(scope, ignores("cache-control") && ignores("expires"), &mut keys, notes);
    if let Some(ignored) = ignored {
        let names = "set-cookie cache-control expires x-accel-expires";
        let is_known = |word: &String| is_one(names, &word.to_ascii_lowercase());
        let pair = ignores("cache-control") == ignores("expires");
        let becomes = match (ignored.words.iter().all(is_known) && pair, ignores("expires")) {
            (false, _) => Left(
                "Set-Cookie is ignored, and Cache-Control with Expires, where proxy_cache_valid \
                 has another lifetime; other fields are respected",
            ),
            (true, true) => Different("no-store and private are respected"),
            (true, false) => Carried,
        };
        notes.became(&ignored.at, &becomes);
    }
    if !keys.fits() {
        notes.left(&cache.at, "its key has more, or other names, than ours can; nothing is stored");
    }
    let text = "a request with Authorization gets only stored responses that permit it (public, \
                s-maxage, must-revalidate)";
    notes.different(&cache.at, text);
    (known && keys.fits()).then_some(keys)
}

/// Reads a key.
fn of_key(key: &Directive, keys: &mut Keys) -> Becomes {
    let left = |why: &str| Text(Fate::NotCarried, format!("{why}, so nothing is stored"));
    let (mut has_path, mut has_query) = (false, false);
    for written in key.words.iter().flat_map(|word| names(word)) {
        let name = &*written.to_ascii_lowercase();
        let field = |name: &str| name.replace('_', "-");
        match (name, name.split_once('_')) {
            ("request_uri", _) => (has_path, has_query) = (true, true),
            ("uri" | "document_uri", _) => has_path = true,
            ("args" | "query_string", _) => has_query = true,
            ("scheme" | "proxy_host" | "http_host" | "host" | "server_name" | "is_args", _)
            | ("request_method" | "server_port", _) => {}
            // Our file compares names of parameters with case.
            (_, Some(("arg", name))) => add(&mut keys.keep, &written[written.len() - name.len()..]),
            (_, Some(("cookie", name))) => add(&mut keys.cookies, name),
            // Responses to other methods than GET are not stored.
            ("request_body", _) => {}
            (_, Some(("http", "authorization" | "cookie" | "range" | "te" | "connection"))) => {
                return left(&format!("${name} cannot be in our key"));
            }
            (_, Some(("http", name))) if !name.starts_with("if_") => {
                add(&mut keys.fields, field(name));
            }
            _ => {
                let text = "is in none of our keys (a class of devices is `device = true`)";
                return left(&format!("${name} {text}"));
            }
        }
    }
    if !has_path {
        return left("each of our keys has the path");
    }
    if has_query {
        keys.keep.clear();
        return Carried;
    }
    if keys.keep.is_empty() {
        keys.query = Some("none");
    }
    Different(
        "upstreams get the query of the key, without the other parameters; the names of \
         parameters have a case",
    )
}

/// For how long a stale response may be used.
const STALE: Duration = Duration::from_secs(86_400);

fn lifetimes(scope: &Scope<'_>, overrule: bool, keys: &mut Keys, notes: &mut Notes) {
    let stale = scope.get("proxy_cache_use_stale").map_or(&[][..], |one| &one.words);
    let has = |word: &str| stale.iter().any(|one| one == word);
    let fails = has("error") || has("timeout") || stale.iter().any(|one| one.starts_with("http_5"));
    let updates = has("updating") && scope.is("proxy_cache_background_update", "on");
    let usual = Lifetime {
        grace: updates.then_some(STALE),
        error_grace: fails.then_some(STALE),
        ..Lifetime::default()
    };
    for valid in scope.all("proxy_cache_valid") {
        let (statuses, last) = valid.words.split_at(valid.words.len().saturating_sub(1));
        let Some(ttl) = last.first().and_then(|last| time(last)) else {
            notes.left(&valid.at, "it has no time");
            continue;
        };
        let named: Vec<String> = match statuses {
            [] => ["200", "301", "302"].map(str::to_owned).to_vec(),
            [any] if any == "any" => all_statuses(),
            all => all.to_vec(),
        };
        let can = |status: &String| {
            let number = status.trim_end_matches("xx").parse::<u16>();
            let has_lifetime = |number: u16| {
                number < 600 && !(6..200).contains(&number) && !WITHOUT_LIFETIME.contains(&number)
            };
            status.len() == 3 && number.is_ok_and(has_lifetime)
        };
        let status: Vec<String> = named.iter().filter(|status| can(status)).cloned().collect();
        let becomes = match (status.len() == named.len(), ttl.is_zero()) {
            (false, _) => Left("a part, a 304 and what answers one client have no lifetime"),
            (true, true) => Different("it is stored, and validated at each use"),
            (true, false) => Carried,
        };
        notes.became(&valid.at, &becomes);
        if !status.is_empty() {
            keys.lifetimes.push(Lifetime { status, ttl: Some(ttl), overrule, ..usual.clone() });
        }
    }
    // nginx does not store a response without a lifetime. Ours validates it at each use.
    let (status, ttl) = (all_statuses(), Some(Duration::ZERO));
    keys.lifetimes.push(Lifetime { status, ttl, ..Lifetime::default() });
}

/// Whether some directive turns coding on.
pub(crate) fn codes(all: &[Directive]) -> bool {
    let is_on = |one: &Directive| matches!(one.name.as_str(), "gzip" | "brotli");
    all.iter().any(|one| is_on(one) && one.word(0) == "on" || codes(one.inner()))
}

/// `[compression]` from the settings of a location. Returns whether its responses are coded.
pub(crate) fn compression(scope: &Scope<'_>, tree: &mut Tree, notes: &mut Notes) -> bool {
    let mut any = false;
    for (coding, switch, level, usual) in
        [("br", "brotli", "br_level", 6), ("gzip", "gzip", "gzip_level", 1)]
    {
        let Some(on) = scope.get(switch).filter(|on| on.word(0) == "on") else { continue };
        any = true;
        notes.different(
            &on.at,
            "a stored response is coded once, and its first client gets it as it is; what is not \
             stored is coded while it passes; every response that may be coded has Vary",
        );
        let section = tree.section("compression");
        let mut codings = match section.get("codings") {
            Some(Value::Texts(codings)) => codings.clone(),
            _ => Vec::new(),
        };
        add(&mut codings, coding);
        section.set("codings", codings, &on.at);
        section.set("passed", true, &on.at);
        let of = |name: &str| scope.get(&format!("{switch}_{name}"));
        let numbers = [("comp_level", level, usual, 11), ("min_length", "bytes_min", 20, 1 << 30)];
        for (name, key, usual, max) in numbers {
            let one = of(name);
            let number = one.map_or(Some(usual), |one| size(one.word(0)));
            if let Some(number) = number.filter(|number| *number <= max) {
                let value = if max > 11 { Value::Bytes(number) } else { Value::Count(number) };
                set(section, key, value, one.unwrap_or(on), notes);
            }
        }
        let mut types = vec!["text/html".to_owned()];
        let more = of("types");
        more.into_iter().flat_map(|one| &one.words).for_each(|one| add(&mut types, one.as_str()));
        let is_type = |one: &String| one.split_once('/').is_some_and(|(_, sub)| !sub.contains('*'));
        match types.len() <= 64 && types.iter().all(is_type) {
            true => set(section, "types", Value::Texts(types), more.unwrap_or(on), notes),
            false => notes.left(&more.unwrap_or(on).at, "a type has no star; ours are the default"),
        }
    }
    any
}

/// Sets a key that our file has once, for all routes.
fn set(section: &mut Section, key: &'static str, value: Value, one: &Directive, notes: &mut Notes) {
    match section.set_once(key, value, &one.at) {
        true => notes.carried(&one.at),
        false => {
            notes.left(&one.at, format!("{key} is one for all routes, and another line has it"))
        }
    }
}
