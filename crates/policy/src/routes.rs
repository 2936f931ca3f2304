//! The routes of reverse listeners: from host and path to the action of a route.
//!
//! Paths are compared as an origin may read them, so that no spelling of a path bypasses a route:
//! see [`normalised`]. The path is passed on as it was received.

use std::borrow::Cow;
use std::sync::Arc;

use hashbrown::HashMap;

use cache::key::KeySettings;
use config::{Action, Host, Path};
use upstream::group::Group;

use crate::captures::{Captured, Matcher};
use crate::fields::ResponseRules;
use crate::lifetimes::Lifetimes;

/// All routes.
#[derive(Debug)]
pub struct Routes {
    all: Box<[Route]>,
    exact: HashMap<Vec<u8>, Paths>,
    /// Domains with their leading dot, of which one label before is captured.
    labels: HashMap<Vec<u8>, Paths>,
    /// Domains with their leading dot, the longest first.
    below: Vec<(Vec<u8>, Paths)>,
    any: Paths,
    /// Whether a hit has to look for its route: some do not use the store, or have settings for
    /// keys.
    concern_hits: bool,
    /// Some responses must not be coded.
    uncoded_any: bool,
}

/// What the route of a request says about answers from the store.
#[derive(Debug)]
pub enum Choice<'r> {
    /// The request is looked up as it is.
    Plain,
    /// It must not be answered from the store.
    Barred,
    /// These settings decide.
    By(&'r KeySettings),
}

/// A route.
#[derive(Debug)]
pub struct Route {
    /// As configured.
    pub config: config::Route,
    /// `None` if the route gives the answer itself.
    pub group: Option<Arc<Group>>,
    /// Changes to the heads of responses.
    pub response: ResponseRules,
    /// What belongs to keys, if anything is configured.
    pub key: Option<KeySettings>,
    /// How long responses are fresh.
    pub lifetimes: Lifetimes,
    captures: bool,
}

/// The routes for one host, by path: indices into the list of all.
#[derive(Debug, Default)]
struct Paths {
    exact: HashMap<Vec<u8>, usize>,
    /// Prefixes, the longest first.
    prefixes: Vec<(Vec<u8>, usize)>,
    /// Patterns, those with the most segments first.
    patterns: Vec<(Matcher, usize)>,
    /// Starts of paths in the middle of a segment, the longest first.
    starts: Vec<(Vec<u8>, usize)>,
}

impl Routes {
    /// The routes of a configuration. Without any, everything goes to its first group.
    pub fn new(routes: &[config::Route], groups: &[Arc<Group>]) -> Routes {
        let simple = || groups.first().map(|group| config::Route::to(&group.config.name));
        let simple: Vec<_> =
            if routes.is_empty() { simple().into_iter().collect() } else { vec![] };
        let all: Box<[Route]> =
            routes.iter().chain(&simple).map(|route| Route::new(route, groups)).collect();
        let mut made = Routes {
            concern_hits: !routes.is_empty(),
            uncoded_any: routes.iter().any(|route| !route.compression),
            all: Box::new([]),
            exact: HashMap::new(),
            labels: HashMap::new(),
            below: Vec::new(),
            any: Paths::default(),
        };
        for (at, route) in all.iter().enumerate() {
            made.enter(at, &route.config);
        }
        let reaches_all = made.any.reaches_all();
        let plain =
            |route: &Route| route.group.is_some() && route.config.store && route.key.is_none();
        made.concern_hits = !(reaches_all && all.iter().all(plain));
        made.below.sort_by_key(|(suffix, _)| std::cmp::Reverse(suffix.len()));
        made.all = all;
        made
    }

    fn enter(&mut self, at: usize, route: &config::Route) {
        if route.hosts.is_empty() {
            self.any.enter(at, &route.path);
        }
        for host in &route.hosts {
            match host {
                Host::Exact(name) => {
                    self.exact.entry(name.clone().into()).or_default().enter(at, &route.path);
                }
                Host::Captured { below, .. } => {
                    let suffix = format!(".{below}").into_bytes();
                    self.labels.entry(suffix).or_default().enter(at, &route.path);
                }
                Host::Below(name) => {
                    let suffix = format!(".{name}").into_bytes();
                    let there = self.below.iter().position(|(other, _)| *other == suffix);
                    let place = there.unwrap_or_else(|| {
                        self.below.push((suffix, Paths::default()));
                        self.below.len() - 1
                    });
                    self.below[place].1.enter(at, &route.path);
                }
            }
        }
    }

    /// All routes, by index.
    pub fn all(&self) -> &[Route] {
        &self.all
    }

    /// The route at an index that [`Routes::find`] returned.
    pub fn get(&self, at: usize) -> Option<&Route> {
        self.all.get(at)
    }

    /// Whether a request may be answered from the store, and by which settings. Costs one load if
    /// no route says anything about it.
    #[inline]
    pub fn choose(&self, authority: &[u8], path_and_query: &[u8]) -> Choice<'_> {
        if !self.concern_hits {
            return Choice::Plain;
        }
        self.choose_this(authority, path_and_query)
    }

    #[inline(never)]
    fn choose_this(&self, authority: &[u8], path_and_query: &[u8]) -> Choice<'_> {
        let route = match &*self.all {
            [only] if self.any.reaches_all() => Some(only),
            _ => self.find(authority, path_and_query).and_then(|at| self.get(at)),
        };
        match route {
            Some(route) if route.group.is_some() && route.config.store => {
                route.key.as_ref().map_or(Choice::Plain, Choice::By)
            }
            _ => Choice::Barred,
        }
    }

    /// The path and query of a URI as it is stored, by the settings of its route.
    pub fn stored_path<'p>(&self, authority: &[u8], path_and_query: &'p [u8]) -> Cow<'p, [u8]> {
        let route = self.find(authority, path_and_query).and_then(|at| self.get(at));
        match route.and_then(|route| route.key.as_ref()) {
            Some(settings) => settings.path(path_and_query),
            None => Cow::Borrowed(path_and_query),
        }
    }

    /// Whether the responses to a request may be coded.
    #[inline]
    pub fn codes(&self, authority: &[u8], path_and_query: &[u8]) -> bool {
        !self.uncoded_any || {
            let route = self.find(authority, path_and_query).and_then(|at| self.get(at));
            route.is_some_and(|route| route.config.compression)
        }
    }

    /// The index of the route for a request.
    pub fn find(&self, authority: &[u8], path_and_query: &[u8]) -> Option<usize> {
        let path =
            memchr::memchr(b'?', path_and_query).map_or(path_and_query, |at| &path_and_query[..at]);
        // `*`, the server as a whole, takes the route of the root.
        let path = if path == b"*" { Cow::Borrowed(&b"/"[..]) } else { normalised(path) };
        if self.exact.is_empty() && self.below.is_empty() && self.labels.is_empty() {
            return self.any.find(&path);
        }
        let host = host(authority);
        let exact = || self.exact.get(&*host).and_then(|paths| paths.find(&path));
        let below = || {
            let matching = self.below.iter().filter(|(suffix, _)| host.ends_with(suffix));
            matching
                .filter(|(suffix, _)| host.len() > suffix.len())
                .find_map(|(_, paths)| paths.find(&path))
        };
        let label = || {
            let dot = memchr::memchr(b'.', &host).filter(|dot| *dot > 0)?;
            self.labels.get(&host[dot..])?.find(&path)
        };
        exact().or_else(label).or_else(below).or_else(|| self.any.find(&path))
    }
}

impl Route {
    /// What it captures of a request; `None` if it captures nothing.
    pub fn captured(&self, authority: &[u8], path_and_query: &[u8]) -> Option<Captured> {
        self.captures.then(|| {
            let end = memchr::memchr(b'?', path_and_query).unwrap_or(path_and_query.len());
            Captured::of(&self.config, &host(authority), &normalised(&path_and_query[..end]))
        })
    }

    fn new(config: &config::Route, groups: &[Arc<Group>]) -> Route {
        let group = match &config.action {
            Action::Group(name) => groups.iter().find(|group| group.config.name == *name).cloned(),
            Action::Redirect { .. } | Action::Answer { .. } => None,
        };
        let response = ResponseRules::new(&config.response);
        let key = KeySettings::new(&config.key);
        let lifetimes = Lifetimes::new(config);
        let captures = !config.captures().is_empty();
        Route { config: config.clone(), group, response, key, lifetimes, captures }
    }
}

impl Paths {
    fn enter(&mut self, at: usize, path: &Path) {
        match path {
            Path::Exact(path) => {
                self.exact.entry(normalised(path.as_bytes()).into_owned()).or_insert(at);
            }
            Path::Prefix(path) => {
                let prefix = normalised(path.as_bytes()).into_owned();
                if self.prefixes.iter().any(|(there, _)| *there == prefix) {
                    return;
                }
                let place = self.prefixes.partition_point(|(there, _)| there.len() >= prefix.len());
                self.prefixes.insert(place, (prefix, at));
            }
            Path::Start(path) => {
                let start = normalised(path.as_bytes()).into_owned();
                if !self.starts.iter().any(|(there, _)| *there == start) {
                    let longer = |(there, _): &(Vec<u8>, usize)| there.len() >= start.len();
                    let place = self.starts.partition_point(longer);
                    self.starts.insert(place, (start, at));
                }
            }
            Path::Pattern(pattern) => {
                let new = Matcher::new(pattern);
                let own = new.rank();
                let place = self.patterns.partition_point(|(there, _)| there.rank() >= own);
                self.patterns.insert(place, (new, at));
            }
        }
    }

    fn reaches_all(&self) -> bool {
        self.prefixes.iter().any(|(prefix, _)| prefix == b"/")
    }

    fn find(&self, path: &[u8]) -> Option<usize> {
        let exact = self.exact.get(path).copied();
        exact.or_else(|| {
            let prefix = self.prefixes.iter().find(|(prefix, _)| is_below(path, prefix));
            let start = self.starts.iter().find(|(start, _)| path.starts_with(start));
            // Of two with the same length, the prefix is asked first.
            let longer =
                |start: &&(Vec<u8>, usize)| prefix.is_none_or(|p| start.0.len() > p.0.len());
            let prefix = start.filter(longer).or(prefix);
            if self.patterns.is_empty() {
                return prefix.map(|(_, at)| *at);
            }
            let segments =
                |path: &[u8]| path.split(|b| *b == b'/').filter(|s| !s.is_empty()).count();
            let least = prefix.map_or(0, |(prefix, _)| segments(prefix) + 1);
            let pattern = self.patterns.iter().find(|(pattern, _)| pattern.matches(path));
            let pattern = pattern.filter(|(pattern, _)| pattern.len() >= least);
            pattern.map(|(_, at)| *at).or(prefix.map(|(_, at)| *at))
        })
    }
}

/// Whether a path is a prefix or below it, by whole segments.
fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    match path.strip_prefix(prefix) {
        None => false,
        Some(rest) => prefix.ends_with(b"/") || rest.is_empty() || rest.starts_with(b"/"),
    }
}

/// The host of an authority: without its port, in lower case, without the root's dot.
fn host(authority: &[u8]) -> Cow<'_, [u8]> {
    let in_brackets = authority.iter().rposition(|byte| *byte == b']').unwrap_or(0);
    let port = authority[in_brackets..].iter().position(|byte| *byte == b':');
    let host = port.map_or(authority, |at| &authority[..in_brackets + at]);
    let host = host.strip_suffix(b".").unwrap_or(host);
    if host.iter().any(u8::is_ascii_uppercase) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

/// What stays percent-encoded in a normalised path: `/` and NUL, which separate no segments
/// anywhere, and the percent sign.
pub(crate) const LEFT_ENCODED: [&[u8; 3]; 3] = [b"%2F", b"%00", b"%25"];

/// A path as an origin may read it: with percent-encoded bytes decoded, except those of
/// [`LEFT_ENCODED`]; with repeated slashes as one; and without dot segments (RFC 3986, 6.2.2).
/// Nearly every path is in this form already.
fn normalised(path: &[u8]) -> Cow<'_, [u8]> {
    let odd = |pair: &[u8]| pair[0] == b'%' || (pair[0] == b'/' && matches!(pair[1], b'/' | b'.'));
    if !path.windows(2).any(odd) && !path.ends_with(b"%") {
        return Cow::Borrowed(path);
    }
    let decoded = decoded(path);
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in decoded.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    let mut out = Vec::with_capacity(decoded.len());
    for segment in segments {
        out.push(b'/');
        out.extend_from_slice(segment);
    }
    // A path that ends in a slash, one dot or two dots names a directory.
    let of_directory = [&b"/"[..], b"/.", b"/.."].iter().any(|end| decoded.ends_with(end));
    if of_directory || out.is_empty() {
        out.push(b'/');
    }
    Cow::Owned(out)
}

/// Its bytes decoded, except those of [`LEFT_ENCODED`]. A percent sign that encodes nothing is
/// encoded, as some origins read it.
pub(crate) fn decoded(path: &[u8]) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let mut out = Vec::with_capacity(path.len());
    let mut at = 0;
    while at < path.len() {
        let pair = match path[at] {
            b'%' => digit(path.get(at + 1)).zip(digit(path.get(at + 2))),
            _ => None,
        };
        let byte = pair.map_or(path[at], |(high, low)| (high * 16 + low) as u8);
        at += if pair.is_some() { 3 } else { 1 };
        match (byte, pair) {
            (b'/', Some(_)) => out.extend_from_slice(b"%2F"),
            (0, Some(_)) => out.extend_from_slice(b"%00"),
            (b'%', _) => out.extend_from_slice(b"%25"),
            (byte, _) => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use upstream::group::Registry;

    /// Answers with a number, so that a test sees which route it was.
    fn route(hosts: &[&str], path: Path, number: u16) -> config::Route {
        let hosts = hosts.iter().map(|host| Host::parse(host).unwrap()).collect();
        let action = Action::Answer { status: number, body: String::new() };
        config::Route { hosts, path, action, ..config::Route::to("") }
    }

    fn found(routes: &Routes, authority: &str, path: &str) -> Option<u16> {
        let at = routes.find(authority.as_bytes(), path.as_bytes())?;
        match routes.get(at)?.config.action {
            Action::Answer { status, .. } => Some(status),
            _ => None,
        }
    }

    fn bars(routes: &Routes, path: &[u8]) -> bool {
        matches!(routes.choose(b"a", path), Choice::Barred)
    }

    #[test]
    fn a_pattern_is_as_specific_as_it_has_segments() {
        let path = |text: &str| Path::parse(text).unwrap();
        let prefix = |text: &str| Path::Prefix(text.to_owned());
        let routes = Routes::new(
            &[
                route(&[], prefix("/"), 1),
                route(&[], path("/{lang}/shop/*"), 2),
                route(&[], prefix("/en"), 3),
                route(&[], prefix("/en/shop"), 4),
                route(&[], path("/{lang}/{what}"), 5),
                route(&[], path("/{lang}/about"), 6),
                route(&[], path("/de/about"), 7),
                route(&["{t}.example.org"], prefix("/"), 8),
                route(&["*.example.org"], prefix("/"), 9),
                route(&["a.example.org"], prefix("/"), 10),
                route(&[], path("/acc*"), 11),
                route(&[], path("/account*"), 12),
                route(&[], prefix("/account/x"), 13),
                route(&[], path("/account"), 14),
            ],
            &[],
        );
        for (authority, path, number) in [
            ("h", "/", 1),
            ("h", "/fr/shop/x/y", 2),
            ("h", "/fr/shop", 2),
            ("h", "/en", 3),
            ("h", "/en/x/y", 3),
            ("h", "/en/shop/x", 4),
            ("h", "/en/x", 5),
            ("h", "/fr/about", 6),
            ("h", "/x/../fr/%61bout", 6),
            ("h", "/de/about", 7),
            ("h", "/fr", 1),
            ("h", "/accept", 11),
            ("h", "/accept/x", 5),
            ("h", "/account.php", 12),
            ("h", "/%61ccount/", 12),
            ("h", "/account/x/y", 13),
            ("h", "/account/xy", 5),
            ("h", "/account", 14),
            ("h", "/ac", 1),
            ("b.example.org:81", "/x", 8),
            ("c.b.example.org", "/x", 9),
            ("a.example.org", "/x", 10),
            ("example.org", "/x", 1),
        ] {
            assert_eq!(found(&routes, authority, path), Some(number), "{authority}{path}");
        }
    }

    #[test]
    fn settings_choose_how_a_request_is_looked_up() {
        let registry = Registry::default();
        let groups = registry.groups(&[config::Group::of("g", [])]);
        let mut keyed = config::Route::to("g");
        keyed.key.query = config::Query::None;
        let one = Routes::new(&[keyed.clone()], &groups);
        assert!(matches!(one.choose(b"a", b"/x"), Choice::By(_)));
        assert_eq!(&*one.stored_path(b"a", b"/x?y"), b"/x");
        keyed.path = Path::Prefix("/k".to_owned());
        let some = Routes::new(&[keyed, config::Route::to("g")], &groups);
        assert!(matches!(some.choose(b"a", b"/k?x"), Choice::By(_)));
        assert!(matches!(some.choose(b"a", b"/x"), Choice::Plain));
        assert_eq!(&*some.stored_path(b"a", b"/x?y"), b"/x?y");
    }

    #[test]
    fn the_most_specific_host_is_taken_then_the_most_specific_path() {
        let prefix = |path: &str| Path::Prefix(path.to_owned());
        let exact = |path: &str| Path::Exact(path.to_owned());
        let routes = Routes::new(
            &[
                route(&[], prefix("/"), 1),
                route(&[], prefix("/api"), 2),
                route(&["*.example.org"], prefix("/"), 3),
                route(&["*.b.example.org"], prefix("/"), 4),
                route(&["www.example.org", "example.org"], prefix("/"), 5),
                route(&["www.example.org"], prefix("/api/"), 6),
                route(&["www.example.org"], exact("/api/x"), 7),
                route(&["only.example.net"], prefix("/api"), 8),
                route(&["[::1]"], prefix("/"), 9),
                route(&[], prefix("/api"), 10),
            ],
            &[],
        );
        for (authority, path, number) in [
            ("other", "/", 1),
            ("other", "*", 1),
            ("only.example.net", "x", 0),
            ("", "/api", 2),
            ("other:81", "/api/x?y", 2),
            ("other", "/apix", 1),
            ("a.example.org", "/api", 3),
            ("A.Example.ORG:8080", "/", 3),
            ("b.example.org", "/", 3),
            ("x.y.b.example.org", "/", 4),
            ("example.org.", "/", 5),
            ("www.example.org", "/api", 5),
            ("www.example.org", "/api/", 6),
            ("www.example.org", "/api/x", 7),
            ("www.example.org", "/api/x?y", 7),
            ("www.example.org", "/api/x/y", 6),
            ("only.example.net", "/", 1),
            ("only.example.net", "/api", 8),
            ("[::1]:80", "/", 9),
            ("[::1]", "/", 9),
        ] {
            let expected = (number != 0).then_some(number);
            assert_eq!(found(&routes, authority, path), expected, "{authority} {path}");
        }
    }

    #[test]
    fn no_spelling_of_a_path_bypasses_a_route() {
        let routes =
            [route(&[], Path::Prefix("/".into()), 1), route(&[], Path::Prefix("/admin".into()), 2)];
        let routes = Routes::new(&routes, &[]);
        for path in [
            "/admin",
            "/admin/",
            "/admin?x",
            "/%61dmin",
            "/%61%64min/x",
            "//admin",
            "/./admin",
            "/x/../admin",
            "/x/%2e%2E/admin",
            "/admin/.",
            "/../admin",
            "/x//..//admin/y",
        ] {
            assert_eq!(found(&routes, "a", path), Some(2), "{path}");
        }
        let exact = |path: &str| route(&[], Path::Exact(path.into()), 3);
        let spelled = Routes::new(&[exact("/a%2Fb"), exact("/100%")], &[]);
        for path in ["/a%2fb", "/a%2Fb", "/%61%2Fb", "/100%", "/100%25", "/./100%25"] {
            assert_eq!(found(&spelled, "a", path), Some(3), "{path}");
        }
        assert_eq!(found(&spelled, "a", "/a%252Fb"), None, "no origin decodes twice");
        for path in ["/administrator", "/x/admin", "/admin/..", "/%2Fadmin", "/a%64min%00"] {
            assert_eq!(found(&routes, "a", path), Some(1), "{path}");
        }
    }

    #[test]
    fn the_simple_case_bars_nothing() {
        let group = config::Group::of("g", []);
        let groups = Registry::default().groups(&[group]);
        let plain = |routes: &Routes| matches!(routes.choose(b"a", b"/"), Choice::Plain);
        assert!(plain(&Routes::new(&[], &groups)));
        assert!(plain(&Routes::new(&[config::Route::to("g")], &groups)));
        let unstored = config::Route { store: false, ..config::Route::to("g") };
        assert!(bars(&Routes::new(&[unstored], &groups), b"/"));
        let barred = Routes::new(&[route(&[], Path::Prefix("/x".into()), 200)], &[]);
        assert!(bars(&barred, b"/x") && bars(&barred, b"/y"));
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing(path in "/[a-c./%126eEfF]{0,24}") {
            let once = normalised(path.as_bytes()).into_owned();
            prop_assert!(once.starts_with(b"/"));
            prop_assert_eq!(&*normalised(&once), &*once);
        }
    }
}
