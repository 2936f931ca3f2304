//! The routes of reverse listeners: from host and path to the action of a route, and the rules that
//! change what a route says ([`crate::rules`]).
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
//!
//! A route with a condition is for the requests for which the condition holds; for others it is as
//! if it were not there. The rules that hold belong to what a reading leads to, so all of this
//! applies to them too.

use std::borrow::Cow;
use std::sync::Arc;

use hashbrown::HashMap;

use cache::key::KeySettings;
use conditions::{Builder, Conditions, Facts, Id, Lists, Reads, Scope};
use config::{Action, Config, FieldRule, Group, Host, Maintenance, Path, Piece, Timeouts, pieces};
use http1::{Fields, is_one_variable};
use outcome::Refusal;

use crate::captures::{Captured, Matcher};
use crate::fields::{ResponseRules, replaces};
use crate::guards::Guard;
use crate::lifetimes::Lifetimes;
use crate::reading::path::normalised;
use crate::reading::{Reading, host};
use crate::rewrites::Rewrites;
use crate::rules::{CHECKED, Rule, RuleSet, Rules, Switch, needs_exchange};

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
    rules: Rules,
    conditions: Conditions,
    /// Whether a rule, or the condition of a route, decides about requests.
    is_conditional: bool,
    /// Whether a text of a route or a rule repeats a value.
    has_values: bool,
    /// Whether a route or a rule has lifetimes.
    has_lifetimes: bool,
    /// What all conditions read.
    reads: Reads,
    /// Whether a rule or a lifetime is judged by the response.
    has_late: bool,
    /// Whether such a condition reads the fields of the response, or its size.
    reads_fields: bool,
    /// Whether a condition needs what only an exchange knows.
    needs_exchange: bool,
    /// Whether a hit has to look for its route, because some routes do not use the store, or have
    /// settings for keys.
    concern_hits: bool,
    /// Whether some responses must not be coded.
    uncoded_any: bool,
    /// Whether a route has a guard, or a limit for bodies.
    has_guards: bool,
    /// Whether requests for a route go on after their client has left.
    finishes_abandoned: bool,
    /// Whether maintenance is on, if there is a rule for it.
    maintenance: Option<Arc<Switch>>,
    /// Whether a hit has to look for its route while maintenance is off.
    concern_hits_usually: bool,
    /// Whether errors of upstreams have pages.
    intercepts: bool,
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
    /// Who may send requests, if not everybody may.
    pub guard: Option<Guard>,
    /// Time-outs in place of those of the group.
    pub timeouts: Option<Arc<Timeouts>>,
    /// Its condition, if it has one.
    condition: Option<Id>,
    captures: bool,
    /// Whether a text of it repeats a capture or a value.
    expands: bool,
    /// Whether fields of the request repeat a captured label or segment.
    sends_captures: bool,
}

/// The route and the rules for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The index of the route; `None`: none is for the request, and a rule answers it.
    pub at: Option<usize>,
    /// The rules of the request that hold.
    pub rules: RuleSet,
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
    /// The rules of the request that hold.
    rules: RuleSet,
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
    exact: HashMap<Vec<u8>, Vec<usize>>,
    /// Prefixes, the longest first.
    prefixes: Vec<(Vec<u8>, usize)>,
    /// Patterns, patterns with the most segments first.
    patterns: Vec<(Matcher, usize)>,
    /// Beginnings of paths that end in the middle of a segment, the longest first.
    starts: Vec<(Vec<u8>, usize)>,
}

impl Routes {
    /// The routes and rules of a configuration. Without routes, everything goes to the first group.
    pub fn of(config: &Config) -> Routes {
        let rules = (&config.rules[..], config.maintenance.as_ref());
        let mut made =
            Routes::with(&config.routes, &config.groups, (rules, config.condition_lists()));
        made.intercepts = config
            .error_pages
            .iter()
            .chain(config.routes.iter().flat_map(|route| &route.error_pages))
            .any(|page| page.intercept);
        made
    }

    /// The same, with this switch for maintenance.
    #[must_use]
    pub fn switched_by(mut self, switch: &Arc<Switch>) -> Routes {
        if let Some(own) = &mut self.maintenance {
            *own = Arc::clone(switch);
        }
        self
    }

    #[inline]
    fn maintains(&self) -> bool {
        self.maintenance.as_ref().is_some_and(|switch| switch.is_on())
    }

    /// Routes without rules.
    pub fn new(routes: &[config::Route], groups: &[Group]) -> Routes {
        Routes::with(routes, groups, ((&[], None), Lists::new()))
    }

    /// Routes and rules, and the lists for their conditions.
    pub fn with(
        routes: &[config::Route],
        groups: &[Group],
        (rules, lists): ((&[config::Rule], Option<&Maintenance>), Lists),
    ) -> Routes {
        let simple = || groups.first().map(|group| config::Route::to(&group.name));
        let simple: Vec<_> =
            if routes.is_empty() { simple().into_iter().collect() } else { vec![] };
        let mut builder = Builder::new(lists.clone());
        let all: Box<[Route]> = routes
            .iter()
            .chain(&simple)
            .map(|route| Route::new(route, groups, (&mut builder, &lists)))
            .collect();
        let maintenance = rules.1.map(|_| Arc::default());
        let of_usual = rules.0;
        let rules = Rules::new(rules, groups, (&mut builder, &lists));
        let conditions = builder.build();
        let of_routes = all.iter().filter_map(|route| route.condition.as_ref());
        let of_requests = of_routes.chain(rules.early_ids());
        let reads = of_requests.fold(Reads::NONE, |all, id| all | conditions.reads(*id));
        let of_lifetimes = all.iter().flat_map(|route| route.lifetimes.conditions());
        let late: Vec<Id> = rules.late_ids().iter().chain(of_lifetimes).copied().collect();
        let reads_field = |id: &Id| conditions.reads(*id).contains(Reads::RESPONSE_FIELDS);
        let reads_fields = late.iter().any(reads_field);
        let mut made = Routes {
            concern_hits: !routes.is_empty(),
            uncoded_any: routes.iter().any(|route| !route.compression)
                || rules.all().iter().any(|rule| !rule.config.compression),
            is_conditional: !of_usual.is_empty() || all.iter().any(|one| one.condition.is_some()),
            has_guards: all
                .iter()
                .any(|one| one.guard.is_some() || one.config.body_bytes_max.is_some()),
            finishes_abandoned: all.iter().any(|one| one.config.finish_abandoned),
            needs_exchange: needs_exchange(reads),
            maintenance,
            concern_hits_usually: false,
            intercepts: false,
            has_values: all.iter().any(|route| route.expands)
                || rules.all().iter().any(Rule::expands),
            has_lifetimes: all.iter().any(|route| !route.lifetimes.are_none())
                || rules.all().iter().any(|rule| rule.config.lifetime.is_some()),
            reads,
            reads_fields,
            has_late: !late.is_empty(),
            rules,
            conditions,
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
        let plain = |route: &Route| {
            let is_open = route.guard.is_none() && route.config.files.is_none();
            route.group.is_some() && route.config.store && route.key.is_none() && is_open
        };
        made.concern_hits_usually = made.is_conditional || !(reaches_all && all.iter().all(plain));
        made.concern_hits = made.concern_hits_usually || made.maintenance.is_some();
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
    /// no route and no rule says anything about it. `facts` are those of the request without its
    /// host and path; `None`: they are not known.
    #[inline]
    pub fn choose<'f>(
        &self,
        reading: Reading<'_>,
        facts: impl FnOnce() -> Option<Facts<'f>>,
    ) -> Choice<'_> {
        if !self.concern_hits {
            return Choice::Plain;
        }
        if !self.is_conditional() {
            return match self.concern_hits_usually {
                true => self.choose_this(reading, None),
                false => Choice::Plain,
            };
        }
        match facts().filter(|_| !self.needs_exchange) {
            Some(facts) => self.choose_this(reading, Some(&facts)),
            None => Choice::Barred,
        }
    }

    #[inline(never)]
    fn choose_this(&self, reading: Reading<'_>, facts: Option<&Facts<'_>>) -> Choice<'_> {
        match self.find(reading, facts) {
            // Only an exchange sends a copy, and judges a guard.
            Ok(chosen) if self.mirror(&chosen).is_some() => Choice::Barred,
            // Only an exchange looks for a file.
            Ok(chosen) if self.files(&chosen).is_some() => Choice::Barred,
            Ok(chosen) if self.is_guarded(&chosen) => Choice::Barred,
            Ok(chosen) if chosen.is_sole && self.stores(&chosen) => {
                let route = chosen.at.map(|at| &self.all[at]);
                let key = route.and_then(|route| route.key.as_ref());
                key.map_or(Choice::Plain, Choice::By)
            }
            Ok(_) | Err(_) => Choice::Barred,
        }
    }

    /// Whether the store may answer a request.
    pub fn stores(&self, chosen: &Chosen) -> bool {
        let of_route = chosen.at.is_some_and(|at| self.all[at].config.store);
        self.group(chosen).is_some()
            && of_route
            && self.rules.of(&chosen.rules).all(|rule| rule.config.store)
    }

    /// Whether a route has a guard, or a limit for bodies.
    #[inline]
    pub fn has_guards(&self) -> bool {
        self.has_guards
    }

    fn is_guarded(&self, chosen: &Chosen) -> bool {
        chosen.at.is_some_and(|at| self.all[at].guard.is_some())
    }

    /// Whether a rule answers a request, and whether the conditions of its rules read the user.
    fn answers_by_rule(&self, chosen: &Chosen) -> Option<bool> {
        let leading = self.rules.leading(&chosen.rules)?;
        let answers = !matches!(leading.config.action, Some(Action::Group(_)));
        answers.then(|| self.conditions.reads(leading.id).contains(Reads::USER))
    }

    /// The routes that may be meant by a request for which a route was found: the guards of all of
    /// them concern it. `None`: there are too many readings.
    fn meant(
        &self,
        reading: Reading<'_>,
        chosen: &Chosen,
        facts: Option<&Facts<'_>>,
    ) -> Option<Vec<usize>> {
        if chosen.is_sole {
            return Some(Vec::from_iter(chosen.at));
        }
        let landed = self.all_landings(reading, facts)?;
        let mut routes: Vec<usize> = landed.iter().filter_map(|one| one.at).collect();
        routes.sort_unstable();
        routes.dedup();
        Some(routes)
    }

    /// The path and query of a URI as they are stored, by the settings of this route.
    pub fn stored_path_of<'p>(&self, at: Option<usize>, reading: Reading<'p>) -> Cow<'p, [u8]> {
        let route = at.and_then(|at| self.get(at));
        match (route.and_then(|route| route.key.as_ref()), reading.origin_form()) {
            (None, path) => path,
            (Some(settings), Cow::Borrowed(path)) => settings.path(path),
            (Some(settings), Cow::Owned(path)) => Cow::Owned(settings.path(&path).into_owned()),
        }
    }

    /// The path from which a file gets its name, in its most usual reading: without the prefix of
    /// its route, if the files are below it.
    pub fn path_of_file<'r>(&self, chosen: &Chosen, reading: Reading<'r>) -> Option<Cow<'r, [u8]>> {
        let (_, path) = reading.usual();
        let route = &self.all[chosen.at?].config;
        match (&route.path, route.files.as_ref().is_some_and(|files| files.alias)) {
            (Path::Prefix(prefix), true) => {
                let prefix = normalised(prefix.as_bytes());
                let below = path.strip_prefix(prefix.strip_suffix(b"/").unwrap_or(&prefix))?;
                let below = if below.is_empty() { b"/" } else { below };
                below.starts_with(b"/").then(|| Cow::Owned(below.to_vec()))
            }
            _ => Some(path),
        }
    }

    /// All paths and queries under which a URI may be stored, by the settings of each route that
    /// some request for it may take. There is at least one.
    pub fn stored_paths<'p>(&self, reading: Reading<'p>) -> Vec<Cow<'p, [u8]>> {
        let mut paths: Vec<Cow<'p, [u8]>> = Vec::new();
        let mut add = |at| {
            let path = self.stored_path_of(at, reading);
            if !paths.contains(&path) {
                paths.push(path);
            }
        };
        if !self.is_conditional() {
            add(self.find(reading, None).ok().and_then(|chosen| chosen.at));
            return paths;
        }
        let hosts = if self.have_hosts() { reading.hosts() } else { vec![Vec::new()] };
        let of_paths = reading.paths().unwrap_or_default();
        for (host, read) in hosts.iter().flat_map(|host| of_paths.iter().map(move |p| (host, p))) {
            // Each refusal leads on to the next route that could be meant.
            let mut refused = Vec::new();
            while let Some(at) = self.landing(host, &read.path, |at| !refused.contains(&at)) {
                add(Some(at));
                if self.all[at].condition.is_none() {
                    break;
                }
                refused.push(at);
            }
        }
        if paths.is_empty() {
            paths.push(reading.origin_form());
        }
        paths
    }

    /// Whether the responses to a request may be coded.
    #[inline]
    pub fn codes<'f>(
        &self,
        reading: Reading<'_>,
        facts: impl FnOnce() -> Option<Facts<'f>>,
    ) -> bool {
        if !self.uncoded_any {
            return true;
        }
        let facts = if self.is_conditional() { facts() } else { None };
        let chosen = self.find(reading, facts.as_ref());
        chosen.is_ok_and(|chosen| chosen.is_sole && self.codes_for(&chosen))
    }

    /// The same for a request that was routed.
    pub fn codes_for(&self, chosen: &Chosen) -> bool {
        chosen.at.is_some_and(|at| self.all[at].config.compression)
            && self.rules.of(&chosen.rules).all(|rule| rule.config.compression)
    }

    /// The route and the rules for a request: the strictest of those that its readings lead to.
    /// `facts` are those of the request without its host and path. Without them no condition holds.
    ///
    /// # Errors
    /// [`Refusal::NoRoute`] if a reading leads to no route, [`Refusal::Ambiguous`] if none of the
    /// routes is stricter than the others.
    pub fn find(&self, reading: Reading<'_>, facts: Option<&Facts<'_>>) -> Result<Chosen, Refusal> {
        let rules = RuleSet::default();
        let chosen = |at| Ok(Chosen { at: Some(at), rules, is_sole: true });
        if self.is_conditional() {
            return self.find_by_conditions(reading, facts);
        }
        if self.all.len() == 1 && self.any.reaches_all() {
            return chosen(0);
        }
        match self.only(reading) {
            Some((host, path)) => {
                self.landing(host, path, |_| true).map_or(Err(Refusal::NoRoute), chosen)
            }
            None => self.find_strictest(reading, None),
        }
    }

    #[inline(never)]
    fn find_by_conditions(
        &self,
        reading: Reading<'_>,
        facts: Option<&Facts<'_>>,
    ) -> Result<Chosen, Refusal> {
        let Some((_, path)) = self.only(reading) else {
            return self.find_strictest(reading, facts);
        };
        // Conditions read the host even where no route does.
        let Some(host) = reading.only_host() else {
            return self.find_strictest(reading, facts);
        };
        let (at, rules) = self.judged(host, path, facts);
        let one = [Landed { at, rules, is_weak: false, captured: None }];
        strictest(self, &one)
    }

    /// The route and the rules for one reading.
    fn judged(
        &self,
        host: &[u8],
        path: &[u8],
        facts: Option<&Facts<'_>>,
    ) -> (Option<usize>, RuleSet) {
        let Some(facts) = facts else {
            let holds = |at: usize| self.all[at].condition.is_none();
            return (self.landing(host, path, holds), RuleSet::default());
        };
        let mut judge = self.conditions.judge(Facts { host, path, ..*facts });
        // A request from a member of the cluster was judged by the member that its client has
        // asked. Only that member knows the listener, which has an empty name here.
        let answers = !facts.listener.is_empty();
        let rules = self.rules.early(&mut judge, (answers, self.maintains()));
        let holds = |at: usize| self.all[at].condition.is_none_or(|id| judge.holds(id));
        (self.landing(host, path, holds), rules)
    }

    /// The host and the path, if the request has one reading as far as the routes look at it.
    #[inline]
    fn only<'r>(&self, reading: Reading<'r>) -> Option<(&'r [u8], &'r [u8])> {
        let host = if self.have_hosts() { reading.only_host()? } else { b"" };
        Some((host, reading.only_path()?))
    }

    /// Whether a reading of the request leads to a route. For limits, which apply to all routes
    /// that may be meant.
    pub fn reach<'f>(
        &self,
        reading: Reading<'_>,
        facts: impl FnOnce() -> Option<Facts<'f>>,
    ) -> bool {
        let facts = if self.is_conditional() { facts() } else { None };
        if !self.is_conditional()
            && let Some((host, path)) = self.only(reading)
        {
            return self.landing(host, path, |_| true).is_some();
        }
        let landed = self.all_landings(reading, facts.as_ref());
        landed.is_none_or(|landed| landed.iter().any(|one| one.at.is_some()))
    }

    /// Whether a request has a field that the route or a rule of another reading sets or removes,
    /// and that the route and the rules of `chosen` pass on. Then this request is refused because
    /// of a reading for which other requests are not refused: a server of that reading would trust
    /// the field.
    #[cold]
    pub fn evades(
        &self,
        reading: Reading<'_>,
        chosen: &Chosen,
        facts: Option<&Facts<'_>>,
        fields: &Fields<'_>,
    ) -> bool {
        let Some(landed) = self.all_landings(reading, facts) else { return true };
        let own = self.request_changes(chosen);
        let passes_on =
            |name: &str| !own.iter().any(|rule| replaces(rule, name.as_bytes(), is_one_variable));
        let rules = landed.iter().flat_map(|one| {
            let of_route = one.at.iter().flat_map(|at| &self.all[*at].config.request);
            of_route.chain(self.rules.of(&one.rules).flat_map(|rule| &rule.config.request))
        });
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
    fn find_strictest(
        &self,
        reading: Reading<'_>,
        facts: Option<&Facts<'_>>,
    ) -> Result<Chosen, Refusal> {
        let landed = self.all_landings(reading, facts).ok_or(Refusal::Ambiguous)?;
        strictest(self, &landed)
    }

    /// Where each reading of a request leads; `None` if there are too many.
    fn all_landings(&self, reading: Reading<'_>, facts: Option<&Facts<'_>>) -> Option<Vec<Landed>> {
        let reads_host = self.have_hosts() || self.is_conditional();
        let hosts = if reads_host { reading.hosts() } else { vec![Vec::new()] };
        let paths = reading.paths()?;
        let mut landed = Vec::with_capacity(hosts.len() * paths.len());
        for host in &hosts {
            for read in &paths {
                let (at, rules) = self.judged(host, &read.path, facts);
                let captured = self.sent_captures(at, &rules, (host, &read.path), facts);
                landed.push(Landed { at, rules, is_weak: read.is_weak, captured });
            }
        }
        Some(landed)
    }

    /// What a reading has captured that the upstream gets.
    fn sent_captures(
        &self,
        at: Option<usize>,
        rules: &RuleSet,
        (host, path): (&[u8], &[u8]),
        facts: Option<&Facts<'_>>,
    ) -> Option<Captured> {
        let of_route = at.map(|at| &self.all[at]).filter(|route| route.sends_captures);
        let by_rules = self.rules.of(rules).any(|rule| rule.sends_captures);
        if of_route.is_none() && !by_rules {
            return None;
        }
        let mut captured =
            of_route.map(|route| Captured::of(&route.config, host, path)).unwrap_or_default();
        if let Some(facts) = facts {
            let facts = Facts { host, path, ..*facts };
            self.rules.captured(rules, &self.conditions, &facts, &mut captured);
        }
        Some(captured)
    }

    fn have_hosts(&self) -> bool {
        !(self.exact.is_empty() && self.below.is_empty() && self.labels.is_empty())
    }

    /// The index of the route for one reading, among those for which `holds` is true.
    fn landing(
        &self,
        host: &[u8],
        path: &[u8],
        mut holds: impl FnMut(usize) -> bool,
    ) -> Option<usize> {
        if !self.have_hosts() {
            return self.any.find(path, &mut holds);
        }
        let exact = self.exact.get(host).and_then(|paths| paths.find(path, &mut holds));
        if exact.is_some() {
            return exact;
        }
        let dot = memchr::memchr(b'.', host).filter(|dot| *dot > 0);
        let label = dot.and_then(|dot| self.labels.get(&host[dot..]));
        let label = label.and_then(|paths| paths.find(path, &mut holds));
        if label.is_some() {
            return label;
        }
        let matching = self.below.iter().filter(|(suffix, _)| host.ends_with(suffix));
        let below = matching
            .filter(|(suffix, _)| host.len() > suffix.len())
            .find_map(|(_, paths)| paths.find(path, &mut holds));
        below.or_else(|| self.any.find(path, &mut holds))
    }
}

impl Route {
    /// Its condition, if it has one.
    pub(crate) fn condition(&self) -> Option<Id> {
        self.condition
    }

    fn new(
        config: &config::Route,
        groups: &[Group],
        (conditions, lists): (&mut Builder, &Lists),
    ) -> Route {
        let group = match &config.action {
            Action::Group(name) => groups.iter().position(|group| group.name == *name),
            Action::Redirect { .. } | Action::Answer { .. } => None,
        };
        let to = group.and_then(|group| groups.get(group));
        let rewrites = Rewrites::new(&config.locations, &config.cookies, to);
        let response = ResponseRules::new(&config.response).after(&rewrites);
        let key = KeySettings::new(&config.key);
        let lifetimes = Lifetimes::new(config, (conditions, lists));
        let condition = config
            .when
            .as_ref()
            .map(|when| conditions.add(when.as_str(), Scope::Request).expect(CHECKED));
        let captures = !config.captures().is_empty();
        let sends_captures = Captured::are_sent(config);
        let repeats = |text: &str| {
            let is_value = |piece| match piece {
                Piece::Capture(name) => config::is_value(name),
                Piece::Text(_) => false,
            };
            pieces(text).any(is_value)
        };
        let of_action = match &config.action {
            Action::Redirect { location: text, .. } | Action::Answer { body: text, .. } => {
                repeats(text)
            }
            Action::Group(_) => false,
        };
        let of_fields = config.request.iter().chain(&config.response);
        let expands = captures || of_action || of_fields.map(FieldRule::value).any(repeats);
        let guard = Guard::new(&config.guard, lists, groups);
        let timeouts = config.timeouts.map(Arc::new);
        let config = config.clone();
        Route {
            config,
            group,
            response,
            key,
            lifetimes,
            guard,
            timeouts,
            condition,
            captures,
            expands,
            sends_captures,
        }
    }
}

impl Paths {
    fn enter(&mut self, at: usize, path: &Path) {
        match path {
            Path::Exact(path) => {
                self.exact.entry(normalised(path.as_bytes()).into_owned()).or_default().push(at);
            }
            Path::Prefix(path) => {
                let prefix = normalised(path.as_bytes()).into_owned();
                let place = self.prefixes.partition_point(|(there, _)| there.len() >= prefix.len());
                self.prefixes.insert(place, (prefix, at));
            }
            Path::Start(path) => {
                let start = normalised(path.as_bytes()).into_owned();
                let longer = |(there, _): &(Vec<u8>, usize)| there.len() >= start.len();
                let place = self.starts.partition_point(longer);
                self.starts.insert(place, (start, at));
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

    /// The route for a path, among those for which `holds` is true.
    fn find(&self, path: &[u8], holds: &mut impl FnMut(usize) -> bool) -> Option<usize> {
        let exact = self.exact.get(path);
        if let Some(at) = exact.and_then(|all| all.iter().copied().find(|at| holds(*at))) {
            return Some(at);
        }
        let prefix = self.prefixes.iter().find(|(prefix, at)| is_below(path, prefix) && holds(*at));
        let start = self.starts.iter().find(|(start, at)| path.starts_with(start) && holds(*at));
        // Of two with the same length, the prefix is asked first.
        let longer = |start: &&(Vec<u8>, usize)| prefix.is_none_or(|p| start.0.len() > p.0.len());
        let prefix = start.filter(longer).or(prefix);
        if self.patterns.is_empty() {
            return prefix.map(|(_, at)| *at);
        }
        let segments = |path: &[u8]| path.split(|b| *b == b'/').filter(|s| !s.is_empty()).count();
        let least = prefix.map_or(0, |(prefix, _)| segments(prefix) + 1);
        let of_path = |(pattern, at): &&(Matcher, usize)| pattern.matches(path) && holds(*at);
        let pattern = self.patterns.iter().find(of_path);
        let pattern = pattern.filter(|(pattern, _)| pattern.len() >= least);
        pattern.map(|(_, at)| *at).or(prefix.map(|(_, at)| *at))
    }
}

/// The strictest of these, which begin with that of the most usual reading.
///
/// # Errors
/// See [`Routes::find`].
fn strictest(routes: &Routes, landed: &[Landed]) -> Result<Chosen, Refusal> {
    let strictness = |one: &Landed| routes.strictness(one);
    let most = landed.iter().map(strictness).max().ok_or(Refusal::NoRoute)?;
    let first = landed.iter().find(|one| strictness(one) == most).ok_or(Refusal::NoRoute)?;
    let (at, rules) = (first.at, first.rules);
    if most != Strictness::PassedOn {
        let answers = at.is_some() || routes.rules.leading(&rules).is_some();
        return if answers {
            Ok(Chosen { at, rules, is_sole: true })
        } else {
            Err(Refusal::NoRoute)
        };
    }
    let of = |at: Option<usize>| &routes.all[at.expect("a reading without a route denies")];
    let mut is_sole = true;
    for other in landed {
        let (one, route) = (of(at), of(other.at));
        let is_alike = passes_alike(one, route)
            && routes.rules_pass_alike(&rules, &other.rules)
            && captures_alike(first, other);
        if !is_alike && !other.is_weak {
            return Err(Refusal::Ambiguous);
        }
        is_sole &= is_alike
            && permits_alike(one, route)
            && routes.rules_permit_alike(&rules, &other.rules);
    }
    Ok(Chosen { at, rules, is_sole })
}

impl Routes {
    fn strictness(&self, one: &Landed) -> Strictness {
        let of = |action: &Action| match action {
            Action::Group(_) => Strictness::PassedOn,
            Action::Answer { status: 400.., .. } => Strictness::Denied,
            Action::Answer { .. } | Action::Redirect { .. } => Strictness::Answered,
        };
        let has_files = one.at.is_some_and(|at| self.all[at].config.files.is_some());
        let route = one.at.map(|at| &self.all[at].config.action);
        let rule = self.rules.leading(&one.rules).and_then(|rule| rule.config.action.as_ref());
        match (rule, route) {
            // A rule sends requests elsewhere, whatever their route does with them.
            (Some(Action::Group(_)), Some(_)) => Strictness::PassedOn,
            (Some(Action::Group(_)), None) => Strictness::Denied,
            (Some(action), _) => of(action),
            // Its files are not for a reading that is denied.
            (None, Some(_)) if has_files => Strictness::PassedOn,
            (None, Some(action)) => of(action),
            (None, None) => Strictness::Denied,
        }
    }

    /// Whether two sets of rules send a request to the same upstream with the same changes.
    fn rules_pass_alike(&self, one: &RuleSet, other: &RuleSet) -> bool {
        let group = |set| self.rules.leading(set).and_then(|rule| rule.group);
        let changing = |set: &RuleSet| {
            set.iter().filter(|at| self.rules.all()[*at].changes()).collect::<Vec<_>>()
        };
        one == other || (group(one) == group(other) && changing(one) == changing(other))
    }

    /// Whether two sets of rules permit the same beyond that.
    fn rules_permit_alike(&self, one: &RuleSet, other: &RuleSet) -> bool {
        let permits = |set: &RuleSet| {
            let of_set = || self.rules.of(set).map(|rule| &rule.config);
            let lifetime = of_set().find_map(|rule| rule.lifetime.clone());
            (of_set().all(|rule| rule.store), of_set().all(|rule| rule.compression), lifetime)
        };
        one == other || permits(one) == permits(other)
    }
}

fn passes_alike(one: &Route, other: &Route) -> bool {
    let (one, other) = (&one.config, &other.config);
    one.action == other.action
        && one.files == other.files
        && one.request == other.request
        && one.response == other.response
        && one.locations == other.locations
        && one.cookies == other.cookies
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
        && one_config.guard == other_config.guard
        && one_config.upstream_path == other_config.upstream_path
        && one_config.body_bytes_max == other_config.body_bytes_max
        && one_config.timeouts == other_config.timeouts
}

/// Whether a path is a prefix or below it, by whole segments.
fn is_below(path: &[u8], prefix: &[u8]) -> bool {
    match path.strip_prefix(prefix) {
        None => false,
        Some(rest) => prefix.ends_with(b"/") || rest.is_empty() || rest.starts_with(b"/"),
    }
}

mod says;
#[cfg(test)]
mod tests;
