//! What the route and the rules of a request together say about it.

use std::borrow::Cow;

use caching::Configured;
use conditions::{Conditions, Facts, Reads, ResponseFacts};
use config::{Action, FieldRule, Files};
use outcome::Refusal;

use super::{Chosen, Routes};
use crate::captures::Captured;
use crate::guards::Guard;
use crate::reading::Reading;
use crate::reading::path::{decoded, normalised};
use crate::rules::{Rule, RuleSet, Rules, Switch, changes};
use crate::values::Values;

impl Routes {
    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// All conditions of routes and rules.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Whether requests are judged by conditions: then facts are asked for.
    #[inline]
    pub fn is_conditional(&self) -> bool {
        self.is_conditional || self.maintains()
    }

    /// Whether a text of a route or a rule repeats a value.
    #[inline]
    pub fn has_values(&self) -> bool {
        self.has_values
    }

    /// Whether maintenance is on, in words; `None`: there is no rule for it.
    pub fn maintenance(&self) -> Option<&Switch> {
        self.maintenance.as_deref()
    }

    /// The guards of these routes.
    pub fn guards<'r>(&'r self, routes: &'r [usize]) -> impl Iterator<Item = &'r Guard> {
        routes.iter().filter_map(|at| self.get(*at)?.guard.as_ref())
    }

    /// The names of the fields that services write into requests for these routes.
    pub fn copied<'r>(&'r self, routes: &'r [usize]) -> impl Iterator<Item = &'r String> {
        self.guards(routes).filter_map(Guard::auth).flat_map(|(auth, _)| &auth.copy)
    }

    /// The routes whose guards judge a request for which this choice was found: those that may be
    /// meant. `None`: a rule answers the request. A rule that reads the user answers when the user
    /// is known.
    ///
    /// # Errors
    /// There are too many readings.
    pub fn guarding(
        &self,
        (reading, chosen, facts): (Reading<'_>, &Chosen, Option<&Facts<'_>>),
        knows_user: bool,
    ) -> Result<Option<Vec<usize>>, Refusal> {
        match self.answers_by_rule(chosen) {
            Some(reads_user) if !reads_user || knows_user => Ok(None),
            _ => self.meant(reading, chosen, facts).map(Some).ok_or(Refusal::Ambiguous),
        }
    }

    /// The number of bytes of content that requests for all of these routes may have; `all` is the
    /// number where a route has none.
    pub fn body_bytes_max(&self, routes: &[usize], all: Option<u64>) -> Option<u64> {
        let of_route = |at: &usize| self.get(*at)?.config.body_bytes_max;
        let has_limit = routes.iter().any(|at| of_route(at).is_some());
        let limits = routes.iter().map(|at| of_route(at).or(all).unwrap_or(u64::MAX));
        limits.min().filter(|_| has_limit).or(all)
    }

    /// Whether a request may take this choice after the guards of these routes have let it pass: a
    /// rule answers it, or each route that may be meant was judged or has nothing to judge.
    pub fn are_judged(
        &self,
        judged: &[usize],
        (reading, chosen, facts): (Reading<'_>, &Chosen, Option<&Facts<'_>>),
    ) -> bool {
        if !self.has_guards() || self.answers_by_rule(chosen).is_some() {
            return true;
        }
        let is_open = |at: &usize| {
            let route = &self.all[*at];
            route.guard.is_none() && route.config.body_bytes_max.is_none()
        };
        let meant = self.meant(reading, chosen, facts);
        meant.is_some_and(|meant| meant.iter().all(|at| judged.contains(at) || is_open(at)))
    }

    /// Whether requests for some route go on after their client has left.
    #[inline]
    pub fn finish_abandoned(&self) -> bool {
        self.finishes_abandoned
    }

    /// Whether errors of upstreams have pages.
    #[inline]
    pub fn intercepts(&self) -> bool {
        self.intercepts
    }

    /// Whether some responses have a lifetime by the configuration.
    #[inline]
    pub fn has_lifetimes(&self) -> bool {
        self.has_lifetimes
    }

    /// Whether a condition reads something.
    #[inline]
    pub fn reads(&self, what: Reads) -> bool {
        self.reads.contains(what)
    }

    /// What is done with a request: by the first rule that leads somewhere, or by the route.
    pub fn action(&self, chosen: &Chosen) -> Option<&Action> {
        match self.rules.leading(&chosen.rules) {
            Some(rule) => rule.config.action.as_ref(),
            None => chosen.at.map(|at| &self.all[at].config.action),
        }
    }

    /// The index of the group that a request goes to; `None`: it is answered.
    pub fn group(&self, chosen: &Chosen) -> Option<usize> {
        match self.rules.leading(&chosen.rules) {
            Some(rule) => rule.group,
            None => chosen.at.and_then(|at| self.all[at].group),
        }
    }

    /// The files that a request is answered with first, unless a rule leads elsewhere.
    pub fn files(&self, chosen: &Chosen) -> Option<&Files> {
        match self.rules.leading(&chosen.rules) {
            Some(_) => None,
            None => chosen.at.and_then(|at| self.all[at].config.files.as_deref()),
        }
    }

    /// The index of the group that gets a copy of a request, if a rule says so.
    pub fn mirror(&self, chosen: &Chosen) -> Option<usize> {
        self.rules.of(&chosen.rules).find_map(Rule::mirror)
    }

    /// Whether a text of the route or of these rules repeats a capture or a value.
    pub fn expands(&self, chosen: &Chosen, rules: &RuleSet) -> bool {
        chosen.at.is_some_and(|at| self.all[at].expands) || self.rules.of(rules).any(Rule::expands)
    }

    /// What is done with a request, with the captures and values of its text replaced.
    pub fn expanded_action(&self, chosen: &Chosen, values: &Values<'_>) -> Option<Action> {
        let action = self.action(chosen)?;
        let captured = match self.rules.leading(&chosen.rules) {
            Some(rule) => self.captured_by(rule, values),
            None => self.captured_by_route(chosen, values),
        };
        Some(captured.action(action, values))
    }

    /// The changes to the fields of a request, with captures and values replaced.
    pub fn expanded_request(&self, chosen: &Chosen, values: &Values<'_>) -> Vec<FieldRule> {
        let of_route = chosen.at.map_or(&[][..], |at| &self.all[at].config.request);
        let mut all = self.captured_by_route(chosen, values).rules(of_route, values);
        for rule in self.rules.of(&chosen.rules) {
            all.extend(self.captured_by(rule, values).rules(&rule.config.request, values));
        }
        all
    }

    /// The changes to the fields of a response by the route and these rules, the same.
    pub fn expanded_response(
        &self,
        chosen: &Chosen,
        rules: &RuleSet,
        values: &Values<'_>,
    ) -> Vec<FieldRule> {
        let of_route = chosen.at.map_or(&[][..], |at| &self.all[at].config.response);
        let mut all = self.captured_by_route(chosen, values).rules(of_route, values);
        for rule in self.rules.of(rules) {
            all.extend(self.captured_by(rule, values).rules(&rule.config.response, values));
        }
        all
    }

    fn captured_by_route(&self, chosen: &Chosen, values: &Values<'_>) -> Captured {
        let (host, path) = values.reading.usual();
        let route = chosen.at.map(|at| &self.all[at]).filter(|route| route.captures);
        route.map(|route| Captured::of(&route.config, &host, &path)).unwrap_or_default()
    }

    /// What a rule has captured of a request in its usual reading.
    fn captured_by(&self, rule: &Rule, values: &Values<'_>) -> Captured {
        let (host, path) = values.reading.usual();
        let facts = Facts { host: &host, path: &path, ..values.facts };
        self.rules.captured_by(rule, &self.conditions, &facts)
    }

    /// The changes to the fields of a request.
    pub fn request_changes(&self, chosen: &Chosen) -> Cow<'_, [FieldRule]> {
        let of_route = chosen.at.map_or(&[][..], |at| &self.all[at].config.request);
        let of_rules = || self.rules.of(&chosen.rules).map(|rule| &rule.config.request[..]);
        match of_rules().all(<[FieldRule]>::is_empty) {
            true => Cow::Borrowed(of_route),
            false => Cow::Owned(changes(of_route, of_rules())),
        }
    }

    /// The changes to the fields of a response: those of the route, and of these rules. `None`:
    /// those of the route alone, ready for use in the route.
    pub fn response_changes(&self, chosen: &Chosen, rules: &RuleSet) -> Option<Vec<FieldRule>> {
        let of_rules = || self.rules.of(rules).map(|rule| &rule.config.response[..]);
        if of_rules().all(<[FieldRule]>::is_empty) {
            return None;
        }
        let of_route = chosen.at.map_or(&[][..], |at| &self.all[at].config.response);
        Some(changes(of_route, of_rules()))
    }

    /// Whether something is judged by the response.
    #[inline]
    pub fn has_late(&self) -> bool {
        self.has_late
    }

    /// Whether a condition reads the fields of the response, or its size.
    #[inline]
    pub fn reads_fields(&self) -> bool {
        self.reads_fields
    }

    /// The rules that hold when the response has come. `facts` are those of the request.
    pub fn late(
        &self,
        reading: Reading<'_>,
        facts: &Facts<'_>,
        response: ResponseFacts<'_>,
    ) -> RuleSet {
        let (host, path) = reading.usual();
        let facts = Facts { host: &host, path: &path, response: Some(response), ..*facts };
        self.rules.late(&mut self.conditions.judge(facts))
    }

    /// How long a response is fresh: by the first of these rules that says so, or by the route.
    pub fn lifetime(
        &self,
        at: Option<usize>,
        rules: &RuleSet,
        (reading, facts): (Reading<'_>, &Facts<'_>),
        response: ResponseFacts<'_>,
    ) -> Option<Configured> {
        let mut of_rules = rules.iter().map(|nth| (nth, &self.rules.all()[nth]));
        let by_rule = of_rules.find_map(|(nth, rule)| {
            let lifetime = rule.config.lifetime.as_ref()?;
            rule.covers(response.status).then_some((nth, lifetime))
        });
        if let Some((nth, lifetime)) = by_rule {
            return Some(crate::lifetimes::of_rule(nth, lifetime));
        }
        let at = at?;
        let lifetimes = &self.all[at].lifetimes;
        if !lifetimes.has_conditions() {
            return lifetimes.of(at, &response, |_| false);
        }
        let (host, path) = reading.usual();
        let facts = Facts { host: &host, path: &path, response: Some(response), ..*facts };
        let mut judge = self.conditions.judge(facts);
        lifetimes.of(at, &response, |id| judge.holds(id))
    }

    /// The path that the upstream gets, if a rule of the request rewrites it, or else its route.
    ///
    /// # Errors
    /// [`Refusal::Ambiguous`] if the path has more than one reading: no one of them is the path to
    /// rewrite.
    #[inline]
    pub fn rewritten(
        &self,
        chosen: &Chosen,
        reading: Reading<'_>,
        facts: Option<&Facts<'_>>,
    ) -> Result<Option<Vec<u8>>, Refusal> {
        let mut rewriting = self.rules.of(&chosen.rules).filter(|one| one.config.rewrite.is_some());
        let rule = rewriting.next().zip(facts);
        let of_route = chosen.at.and_then(|at| {
            let config = &self.all.get(at)?.config;
            Some((&config.path, config.upstream_path.as_deref()?))
        });
        if rule.is_none() && of_route.is_none() {
            return Ok(None);
        }
        if reading.paths().is_none_or(|paths| paths.len() > 1) {
            return Err(Refusal::Ambiguous);
        }
        let (host, path) = reading.usual();
        let rewritten = match (rule, of_route) {
            (Some((rule, facts)), _) => {
                let facts = Facts { host: &host, path: &path, ..*facts };
                rule.rewritten(&path, &self.rules.captured_by(rule, &self.conditions, &facts))
            }
            (None, Some((of, to))) => replaced(&path, of, to),
            (None, None) => None,
        };
        match rewritten {
            // A text that was captured must not lead out of the directory before it.
            Some(path) if normalised(&path) != decoded(&path) => Err(Refusal::Ambiguous),
            rewritten => Ok(rewritten),
        }
    }
}

/// A path of a route with this text in place of the route's path or prefix. `None`: the route has
/// no such path.
fn replaced(path: &[u8], of: &config::Path, to: &str) -> Option<Vec<u8>> {
    let rest = of.after(path);
    let rest = crate::captures::encoded(rest?, true);
    debug_assert!(rest.is_empty() || rest.starts_with('/'), "prefixes are of whole segments");
    // The rest begins with a slash, so one of two slashes is left out.
    let to = if rest.is_empty() { to } else { to.trim_end_matches('/') };
    Some([to, &rest].concat().into_bytes())
}
