//! The routes of reverse listeners: from host and path to the action of a route.
//!
//! Every reading of a path and a host is compared ([`crate::reading`]). Where readings lead to
//! different routes the strictest route decides, so that no spelling bypasses a route. The path is
//! passed on as it was received.
//!
//! A reading that leads to no route, or to a route that answers with an error, denies the request.
//! Next comes a route that gives another answer itself. If all readings are passed on, they must be
//! passed on alike: to the same upstream, with the same changes to fields. Otherwise no route is
//! stricter than the others, and the request is refused. What else such routes permit (the store,
//! early data, codings, peers) is permitted only if they agree on all of it.

use std::borrow::Cow;

use hashbrown::HashMap;

use cache::key::KeySettings;
use config::{Action, FieldRule, Group, Host, Path};
use http1::{Fields, is_one_variable};
use outcome::Refusal;

use crate::captures::{Captured, Matcher};
use crate::fields::{ResponseRules, replaces};
use crate::lifetimes::Lifetimes;
use crate::reading::path::normalised;
use crate::reading::{Reading, host};

/// All routes.
#[derive(Debug)]
pub struct Routes {
    all: Box<[Route]>,
    exact: HashMap<Vec<u8>, Paths>,
    /// Domains with their leading dot. A route captures the one label before the domain.
    labels: HashMap<Vec<u8>, Paths>,
    /// Domains with their leading dot, the longest first.
    below: Vec<(Vec<u8>, Paths)>,
    any: Paths,
    /// Whether a hit has to look for its route, because some routes do not use the store, or have
    /// settings for keys.
    concern_hits: bool,
    /// Whether some responses must not be coded.
    uncoded_any: bool,
}

/// What the route of a request says about answers from the store.
#[derive(Debug)]
pub enum Choice<'r> {
    /// The request is looked up unchanged.
    Plain,
    /// The request must not be answered from the store.
    Barred,
    /// These settings decide.
    By(&'r KeySettings),
}

/// A route.
#[derive(Debug)]
pub struct Route {
    /// As configured.
    pub config: config::Route,
    /// The index of the group in the configuration; `None` if the route gives the answer itself.
    pub group: Option<usize>,
    /// Changes to the heads of responses.
    pub response: ResponseRules,
    /// The settings for keys, if any are configured.
    pub key: Option<KeySettings>,
    /// How long responses are fresh.
    pub lifetimes: Lifetimes,
    captures: bool,
    /// Whether fields of the request repeat a captured label or segment.
    sends_captures: bool,
}

/// The route for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Its index.
    pub at: usize,
    /// Whether all readings have the settings of this route. Otherwise the request is passed on by
    /// its action and its fields, and nothing that the route permits beyond that applies: the
    /// store, early data, codings and peers.
    pub is_sole: bool,
}

/// Where one reading of a request leads.
#[derive(Debug)]
struct Landed {
    /// The index of the route; `None`: no route is for it.
    at: Option<usize>,
    /// It may deny, but refuses no request for leading to another upstream.
    is_weak: bool,
    /// What is captured and sent to the upstream.
    captured: Option<Captured>,
}

/// How strict it is where a reading leads. The order matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Strictness {
    PassedOn,
    Answered,
    Denied,
}

/// The routes for one host, by path: indices into the list of all.
#[derive(Debug, Default)]
struct Paths {
    exact: HashMap<Vec<u8>, usize>,
    /// Prefixes, the longest first.
    prefixes: Vec<(Vec<u8>, usize)>,
    /// Patterns, patterns with the most segments first.
    patterns: Vec<(Matcher, usize)>,
    /// Beginnings of paths that end in the middle of a segment, the longest first.
    starts: Vec<(Vec<u8>, usize)>,
}

impl Routes {
    /// The routes of a configuration. Without routes, everything goes to the first group.
    pub fn new(routes: &[config::Route], groups: &[Group]) -> Routes {
        let simple = || groups.first().map(|group| config::Route::to(&group.name));
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
                    let name = host::normalised(name.as_bytes());
                    self.exact.entry(name).or_default().enter(at, &route.path);
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

    /// The route at an index of [`Chosen`].
    pub fn get(&self, at: usize) -> Option<&Route> {
        self.all.get(at)
    }

    /// Whether a request may be answered from the store, and by which settings. Costs one load if
    /// no route says anything about it.
    #[inline]
    pub fn choose(&self, reading: Reading<'_>) -> Choice<'_> {
        if !self.concern_hits {
            return Choice::Plain;
        }
        self.choose_this(reading)
    }

    #[inline(never)]
    fn choose_this(&self, reading: Reading<'_>) -> Choice<'_> {
        match self.find(reading) {
            Ok(Chosen { at, is_sole: true }) => {
                let route = &self.all[at];
                if route.group.is_none() || !route.config.store {
                    return Choice::Barred;
                }
                route.key.as_ref().map_or(Choice::Plain, Choice::By)
            }
            Ok(Chosen { is_sole: false, .. }) | Err(_) => Choice::Barred,
        }
    }

    /// The path and query of a URI as it is stored, by the settings of its route.
    pub fn stored_path<'p>(&self, reading: Reading<'p>) -> Cow<'p, [u8]> {
        let route = self.find(reading).ok().and_then(|chosen| self.get(chosen.at));
        match (route.and_then(|route| route.key.as_ref()), reading.origin_form()) {
            (None, path) => path,
            (Some(settings), Cow::Borrowed(path)) => settings.path(path),
            (Some(settings), Cow::Owned(path)) => Cow::Owned(settings.path(&path).into_owned()),
        }
    }

    /// Whether the responses to a request may be coded.
    #[inline]
    pub fn codes(&self, reading: Reading<'_>) -> bool {
        !self.uncoded_any
            || self.find(reading).is_ok_and(|chosen| {
                chosen.is_sole && self.get(chosen.at).is_some_and(|route| route.config.compression)
            })
    }

    /// The route for a request: the strictest of the routes that its readings lead to.
    ///
    /// # Errors
    /// [`Refusal::NoRoute`] if a reading leads to no route, [`Refusal::Ambiguous`] if none of the
    /// routes is stricter than the others.
    pub fn find(&self, reading: Reading<'_>) -> Result<Chosen, Refusal> {
        let chosen = |at| Ok(Chosen { at, is_sole: true });
        if self.all.len() == 1 && self.any.reaches_all() {
            return chosen(0);
        }
        match self.only(reading) {
            Some((host, path)) => self.landing(host, path).map_or(Err(Refusal::NoRoute), chosen),
            None => self.find_strictest(reading),
        }
    }

    /// The host and the path, if the request has one reading as far as the routes look at it.
    #[inline]
    fn only<'r>(&self, reading: Reading<'r>) -> Option<(&'r [u8], &'r [u8])> {
        let host = if self.have_hosts() { reading.only_host()? } else { b"" };
        Some((host, reading.only_path()?))
    }

    /// Whether a reading of the request leads to a route. For limits, which apply to all routes
    /// that may be meant.
    pub fn reach(&self, reading: Reading<'_>) -> bool {
        if let Some((host, path)) = self.only(reading) {
            return self.landing(host, path).is_some();
        }
        let landed = self.all_landings(reading);
        landed.is_none_or(|landed| landed.iter().any(|one| one.at.is_some()))
    }

    /// Whether a request has a field that the route of another reading sets or removes, and that
    /// the route at `chosen` passes on. Then this request is refused because of a reading for which
    /// other requests are not refused: a server of that reading would trust the field.
    #[cold]
    pub fn evades(&self, reading: Reading<'_>, chosen: usize, fields: &Fields<'_>) -> bool {
        let Some(landed) = self.all_landings(reading) else { return true };
        let passes_on = |name: &str| {
            let rules = &self.all[chosen].config.request;
            !rules.iter().any(|rule| replaces(rule, name.as_bytes(), is_one_variable))
        };
        let rules =
            landed.iter().filter_map(|one| one.at).flat_map(|at| &self.all[at].config.request);
        let mut replaced = rules.filter_map(|rule| match rule {
            FieldRule::Set(name, _) | FieldRule::Cut(name, _) | FieldRule::Remove(name) => {
                Some(name)
            }
            FieldRule::Add(..) | FieldRule::Default(..) => None,
        });
        let has = |name: &str| fields.of_variable(name.as_bytes()).next().is_some();
        replaced.any(|name| has(name) && passes_on(name))
    }

    #[cold]
    fn find_strictest(&self, reading: Reading<'_>) -> Result<Chosen, Refusal> {
        let landed = self.all_landings(reading).ok_or(Refusal::Ambiguous)?;
        strictest(&self.all, &landed)
    }

    /// Where each reading of a request leads; `None` if there are too many.
    fn all_landings(&self, reading: Reading<'_>) -> Option<Vec<Landed>> {
        let hosts = if self.have_hosts() { reading.hosts() } else { vec![Vec::new()] };
        let paths = reading.paths()?;
        let mut landed = Vec::with_capacity(hosts.len() * paths.len());
        for host in &hosts {
            for read in &paths {
                let at = self.landing(host, &read.path);
                let sends = at.map(|at| &self.all[at]).filter(|route| route.sends_captures);
                let captured = sends.map(|route| Captured::of(&route.config, host, &read.path));
                landed.push(Landed { at, is_weak: read.is_weak, captured });
            }
        }
        Some(landed)
    }

    fn have_hosts(&self) -> bool {
        !(self.exact.is_empty() && self.below.is_empty() && self.labels.is_empty())
    }

    /// The index of the route for one reading.
    fn landing(&self, host: &[u8], path: &[u8]) -> Option<usize> {
        if !self.have_hosts() {
            return self.any.find(path);
        }
        let exact = || self.exact.get(host).and_then(|paths| paths.find(path));
        let below = || {
            let matching = self.below.iter().filter(|(suffix, _)| host.ends_with(suffix));
            matching
                .filter(|(suffix, _)| host.len() > suffix.len())
                .find_map(|(_, paths)| paths.find(path))
        };
        let label = || {
            let dot = memchr::memchr(b'.', host).filter(|dot| *dot > 0)?;
            self.labels.get(&host[dot..])?.find(path)
        };
        exact().or_else(label).or_else(below).or_else(|| self.any.find(path))
    }
}

impl Route {
    /// The values that the route captures of a request that [`Routes::find`] led to it; `None` if
    /// it captures nothing.
    pub fn captured(&self, reading: Reading<'_>) -> Option<Captured> {
        self.captures.then(|| {
            let (host, path) = reading.usual();
            Captured::of(&self.config, &host, &path)
        })
    }

    fn new(config: &config::Route, groups: &[Group]) -> Route {
        let group = match &config.action {
            Action::Group(name) => groups.iter().position(|group| group.name == *name),
            Action::Redirect { .. } | Action::Answer { .. } => None,
        };
        let response = ResponseRules::new(&config.response);
        let key = KeySettings::new(&config.key);
        let lifetimes = Lifetimes::new(config);
        let captures = !config.captures().is_empty();
        let sends_captures = Captured::are_sent(config);
        let config = config.clone();
        Route { config, group, response, key, lifetimes, captures, sends_captures }
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

/// The strictest of these, which begin with that of the most usual reading.
///
/// # Errors
/// See [`Routes::find`].
fn strictest(routes: &[Route], landed: &[Landed]) -> Result<Chosen, Refusal> {
    let strictness = |one: &Landed| one.at.map_or(Strictness::Denied, |at| of_route(&routes[at]));
    let most = landed.iter().map(strictness).max().ok_or(Refusal::NoRoute)?;
    let first = landed.iter().find(|one| strictness(one) == most).ok_or(Refusal::NoRoute)?;
    let at = first.at.ok_or(Refusal::NoRoute)?;
    if most != Strictness::PassedOn {
        return Ok(Chosen { at, is_sole: true });
    }
    let mut is_sole = true;
    for other in landed {
        let route = &routes[other.at.expect("a reading without a route denies")];
        let is_alike = passes_alike(&routes[at], route) && captures_alike(first, other);
        if !is_alike && !other.is_weak {
            return Err(Refusal::Ambiguous);
        }
        is_sole &= is_alike && permits_alike(&routes[at], route);
    }
    Ok(Chosen { at, is_sole })
}

fn of_route(route: &Route) -> Strictness {
    match &route.config.action {
        Action::Group(_) => Strictness::PassedOn,
        Action::Answer { status: 400.., .. } => Strictness::Denied,
        Action::Answer { .. } | Action::Redirect { .. } => Strictness::Answered,
    }
}

fn passes_alike(one: &Route, other: &Route) -> bool {
    let (one, other) = (&one.config, &other.config);
    one.action == other.action && one.request == other.request && one.response == other.response
}

fn captures_alike(one: &Landed, other: &Landed) -> bool {
    match (&one.captured, &other.captured) {
        (Some(one), Some(other)) => one.is_same(other),
        (None, None) => true,
        _ => false,
    }
}

fn permits_alike(one: &Route, other: &Route) -> bool {
    let permits = |route: &Route| {
        let config = &route.config;
        (config.store, config.early_data, config.compression, config.peers)
    };
    let (one_config, other_config) = (&one.config, &other.config);
    permits(one) == permits(other)
        && one_config.set_cookie == other_config.set_cookie
        && one_config.key == other_config.key
        && one_config.lifetimes == other_config.lifetimes
        && one_config.negative == other_config.negative
}

/// Whether a path is a prefix or below it, by whole segments.
fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    match path.strip_prefix(prefix) {
        None => false,
        Some(rest) => prefix.ends_with(b"/") || rest.is_empty() || rest.starts_with(b"/"),
    }
}

#[cfg(test)]
mod tests;
