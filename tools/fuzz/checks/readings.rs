//! Checks of routes by the readings of a path and a host, for the fuzz target and for the tests
//! that replay its corpus.
//!
//! The oracle is a second implementation that shares nothing with the first: it takes a path apart
//! into symbols, takes all steps in all orders, and judges every result by a list of rules.

use std::collections::BTreeSet;

use config::{Action, FieldRule, Group, Host, Path, Query, Route};
use outcome::Refusal;
use policy::reading::Reading;
use policy::routes::{Choice, Routes};

/// Longer paths only take longer.
const PATH_BYTES_MAX: usize = 40;
/// With as many states, the routes may refuse a path for having too many readings.
const MANY: usize = 32;

/// Part of the target `readings`: a byte for the host, then a path.
pub(crate) fn routes(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let (authority, hosts) = HOSTS[usize::from(*first) % HOSTS.len()];
    let path = rest.split(|byte| *byte == b'?').next().unwrap_or_default();
    let path = [b"/", &path[..path.len().min(PATH_BYTES_MAX)]].concat();
    let (routes, rules) = (table(), rules());
    let states = closure(&path);
    let reading = Reading::of(authority.as_bytes(), &path);
    let found = routes.find(reading, None);
    let (expected, reaches) = expected(hosts, &path, &states, &rules);
    let shown = path.escape_ascii();
    if found == Err(Refusal::Ambiguous) && states.len() > MANY {
        return;
    }
    let got = match found {
        Err(Refusal::Ambiguous) => Judged::Ambiguous,
        Err(_) => Judged::Denied,
        Ok(chosen) => match rules[chosen.at.expect("no rule answers")].what {
            What::Denies => Judged::Denied,
            What::Answers => Judged::Answered,
            What::Passes { to, signs, .. } => Judged::Passed { to, signs, is_sole: chosen.is_sole },
        },
    };
    assert_eq!(got, expected, "{authority} {shown}");
    let may_store = matches!(expected, Judged::Passed { is_sole: true, .. });
    let is_looked_up = !matches!(routes.choose(reading, || None), Choice::Barred);
    assert!(may_store || !is_looked_up, "{authority} {shown} is looked up in the store");
    let limit = Route { path: Path::Prefix("/admin".into()), ..Route::to("") };
    let limit = Routes::new(&[limit], &[]);
    assert_eq!(limit.reach(reading, || None), reaches, "{authority} {shown} is limited");
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Denies,
    Answers,
    Passes { to: char, signs: bool, stores: bool, keyed: bool },
}

#[derive(Debug, PartialEq)]
enum Judged {
    Denied,
    Answered,
    Ambiguous,
    Passed { to: char, signs: bool, is_sole: bool },
}

struct Rule {
    host: Option<&'static str>,
    is_exact: bool,
    path: &'static str,
    what: What,
}

fn rules() -> Vec<Rule> {
    let plain = What::Passes { to: 'a', signs: false, stores: true, keyed: false };
    let other = What::Passes { to: 'b', signs: false, stores: true, keyed: false };
    let signed = What::Passes { to: 'a', signs: true, stores: true, keyed: false };
    let unstored = What::Passes { to: 'a', signs: false, stores: false, keyed: false };
    let keyed = What::Passes { to: 'a', signs: false, stores: true, keyed: true };
    let rule = |host, path, what| Rule { host, is_exact: false, path, what };
    vec![
        rule(None, "/", plain),
        rule(None, "/a", plain),
        rule(None, "/b", other),
        rule(None, "/b/a", plain),
        rule(None, "/s", signed),
        rule(None, "/u", unstored),
        rule(None, "/k", keyed),
        rule(None, "/admin", What::Denies),
        Rule { is_exact: true, ..rule(None, "/moved", What::Answers) },
        rule(Some("x.example"), "/", What::Denies),
        rule(Some("y.example"), "/a", other),
        rule(Some("10.0.0.1"), "/u", What::Denies),
    ]
}

/// The same rules, as routes.
fn table() -> Routes {
    let route = |rule: Rule| {
        let path = rule.path.to_owned();
        let mut route = Route {
            hosts: rule.host.into_iter().map(|host| Host::Exact(host.to_owned())).collect(),
            path: if rule.is_exact { Path::Exact(path) } else { Path::Prefix(path) },
            ..Route::to("a")
        };
        let answer = |status| Action::Answer { status, body: String::new() };
        match rule.what {
            What::Denies => route.action = answer(403),
            What::Answers => route.action = answer(200),
            What::Passes { to, signs, stores, keyed } => {
                route.action = Action::Group(to.to_string());
                route.store = stores;
                if signs {
                    route.request = vec![FieldRule::Set("X-Signed".into(), "1".into())];
                }
                if keyed {
                    route.key.query = Query::None;
                }
            }
        }
        route
    };
    let routes: Vec<Route> = rules().into_iter().map(route).collect();
    let groups = ["a", "b"].map(|name| Group::of(name, []));
    Routes::new(&routes, &groups)
}

/// Authorities and what they may be read as, the usual reading first.
const HOSTS: [(&str, &[&str]); 12] = [
    ("h", &["h"]),
    ("h:8080", &["h"]),
    ("x.example", &["x.example"]),
    ("X.Example.:80", &["x.example"]),
    ("x%2eexample", &["x%2eexample", "x.example"]),
    ("y.example", &["y.example"]),
    ("%79.example", &["%79.example", "y.example"]),
    ("10.0.0.1", &["10.0.0.1"]),
    ("10.1:80", &["10.1", "10.0.0.1"]),
    ("[::ffff:10.0.0.1]", &["[::ffff:10.0.0.1]", "10.0.0.1"]),
    ("[::1]", &["[::1]"]),
    ("", &[""]),
];

/// A byte of a path as it was sent, or one that was percent-encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Symbol {
    Is(u8),
    Encoded(u8),
}

use Symbol::{Encoded, Is};

const SLASH: Symbol = Is(b'/');

/// A path, and whether it was decoded.
type State = (Vec<Symbol>, bool);

fn symbols(path: &[u8]) -> Vec<Symbol> {
    let mut symbols = Vec::new();
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        let text = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let text = text.filter(|text| text.chars().all(|digit| digit.is_ascii_hexdigit()));
        match text.filter(|_| *first == b'%') {
            Some(text) => {
                symbols.push(Encoded(u8::from_str_radix(text, 16).expect("two digits")));
                rest = &after[2..];
            }
            None => {
                symbols.push(Is(*first));
                rest = after;
            }
        }
    }
    symbols
}

/// All paths that can come of one, each with whether it needs a host to be dropped.
fn closure(path: &[u8]) -> BTreeSet<(State, bool)> {
    let symbols = symbols(path);
    let is_decoded = !path.contains(&b'%');
    let mut all = BTreeSet::from([((symbols, is_decoded), false)]);
    loop {
        let before = all.len();
        for ((path, is_decoded), is_late) in all.clone() {
            let same = [without_parameters(&path), forward(&path), merged(&path), resolved(&path)];
            let mut next: Vec<(State, bool)> =
                same.into_iter().map(|path| ((path, is_decoded), is_late)).collect();
            if is_decoded {
                next.push(((with_slashes(&path), true), is_late));
                next.push(((before_nul(&path), true), is_late));
            } else {
                next.push(((decoded(&path), true), is_late));
            }
            if path.starts_with(&[SLASH, SLASH]) {
                let host = path.iter().position(|symbol| *symbol != SLASH).unwrap_or(path.len());
                let end = path[host..].iter().position(|symbol| *symbol == SLASH);
                let rest = end.map_or(vec![SLASH], |end| path[host + end..].to_vec());
                next.push(((rest, is_decoded), true));
            }
            all.extend(next);
        }
        if all.len() == before || all.len() > 40 * MANY {
            return all;
        }
    }
}

fn decoded(path: &[Symbol]) -> Vec<Symbol> {
    let decoded = |symbol: &Symbol| match symbol {
        Encoded(b'/' | 0 | b'%') => *symbol,
        Encoded(byte) => Is(*byte),
        Is(b'%') => Encoded(b'%'),
        Is(_) => *symbol,
    };
    path.iter().map(decoded).collect()
}

fn with_slashes(path: &[Symbol]) -> Vec<Symbol> {
    path.iter().map(|symbol| if *symbol == Encoded(b'/') { SLASH } else { *symbol }).collect()
}

fn before_nul(path: &[Symbol]) -> Vec<Symbol> {
    let kept: Vec<Symbol> =
        path.iter().copied().take_while(|symbol| *symbol != Encoded(0)).collect();
    if kept.is_empty() { vec![SLASH] } else { kept }
}

fn without_parameters(path: &[Symbol]) -> Vec<Symbol> {
    let cut = |segment: &[Symbol]| -> Vec<Symbol> {
        segment.iter().copied().take_while(|symbol| *symbol != Is(b';')).collect()
    };
    let segments: Vec<Vec<Symbol>> = path.split(|symbol| *symbol == SLASH).map(cut).collect();
    segments.join(&SLASH)
}

fn forward(path: &[Symbol]) -> Vec<Symbol> {
    path.iter().map(|symbol| if *symbol == Is(b'\\') { SLASH } else { *symbol }).collect()
}

fn merged(path: &[Symbol]) -> Vec<Symbol> {
    let mut path = path.to_vec();
    while let Some(at) = path.windows(2).position(|two| two == [SLASH, SLASH]) {
        path.remove(at);
    }
    path
}

/// The algorithm of RFC 3986, 5.2.4, to the letter.
fn resolved(path: &[Symbol]) -> Vec<Symbol> {
    let dot = Is(b'.');
    let (mut input, mut output) = (path.to_vec(), Vec::new());
    while !input.is_empty() {
        if input.starts_with(&[SLASH, dot, SLASH]) {
            input.drain(..2);
        } else if input == [SLASH, dot] {
            input.pop();
        } else if input.starts_with(&[SLASH, dot, dot, SLASH]) || input == [SLASH, dot, dot] {
            input.drain(1..3);
            if input.len() > 1 {
                input.remove(0);
            }
            let last = output.iter().rposition(|symbol| *symbol == SLASH).unwrap_or(0);
            output.truncate(last);
        } else {
            let end = input[1..].iter().position(|symbol| *symbol == SLASH);
            output.extend(input.drain(..end.map_or(input.len(), |end| end + 1)));
        }
    }
    output
}

/// What the rules say, and whether a limit for `/admin` and below applies.
fn expected(
    hosts: &[&str],
    path: &[u8],
    states: &BTreeSet<(State, bool)>,
    rules: &[Rule],
) -> (Judged, bool) {
    let usual = text(&resolved(&merged(&decoded(&symbols(path)))));
    let mut judged = Vec::new();
    let mut reaches = false;
    for ((path, is_decoded), is_late) in states {
        if !is_decoded {
            continue;
        }
        let is_twice = path.windows(2).any(|two| two == [SLASH, SLASH]);
        let is_also_early = states.contains(&((path.clone(), true), false));
        let is_weak = is_twice || (*is_late && !is_also_early);
        let path = text(path);
        reaches |= is_below(&path, "/admin");
        for (at, host) in hosts.iter().enumerate() {
            judged.push((at == 0 && path == usual, is_weak, rule(host, &path, rules)));
        }
    }
    let denies = judged.iter().any(|(_, _, what)| matches!(what, None | Some(What::Denies)));
    let answers = judged.iter().any(|(_, _, what)| matches!(what, Some(What::Answers)));
    if denies || answers {
        return (if denies { Judged::Denied } else { Judged::Answered }, reaches);
    }
    let (_, _, first) = judged.iter().find(|(is_usual, ..)| *is_usual).expect("it is one of them");
    let Some(What::Passes { to, signs, .. }) = *first else { unreachable!("the others are above") };
    let leads_elsewhere = |what: &Option<What>| match what {
        Some(What::Passes { to: other, signs: other_signs, .. }) => {
            (to, signs) != (*other, *other_signs)
        }
        _ => true,
    };
    if judged.iter().any(|(_, is_weak, what)| !is_weak && leads_elsewhere(what)) {
        return (Judged::Ambiguous, reaches);
    }
    let is_sole = judged.iter().all(|(_, _, what)| what == first);
    (Judged::Passed { to, signs, is_sole }, reaches)
}

fn text(path: &[Symbol]) -> String {
    let text = |symbol: &Symbol| match symbol {
        Is(byte) => char::from(*byte).to_string(),
        Encoded(byte) => format!("%{byte:02X}"),
    };
    path.iter().map(text).collect()
}

fn is_below(path: &str, prefix: &str) -> bool {
    path == prefix || prefix == "/" || path.starts_with(&format!("{prefix}/"))
}

/// The most specific rule: by host, then an exact path, then the longest prefix.
fn rule(host: &str, path: &str, rules: &[Rule]) -> Option<What> {
    let matches = |rule: &&Rule| {
        let is_path = if rule.is_exact { path == rule.path } else { is_below(path, rule.path) };
        is_path && rule.host.is_none_or(|of| of == host)
    };
    let specific = |rule: &&Rule| (rule.host.is_some(), rule.is_exact, rule.path.len());
    rules.iter().filter(matches).max_by_key(specific).map(|rule| rule.what)
}
