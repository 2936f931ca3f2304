//! What conditions read of a request, what they say about it, and what texts repeat of it.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use conditions::{Facts, Reads, Sent};
use config::{Action, FieldRule, Role};
use http1::{Fields, OwnedResponse, Target};
use policy::reading::Reading;
use policy::rules::{RuleSet, response_facts};
use policy::values::Values;
use runtime::time;
use transport::tls::TlsFacts;

use crate::listener::ListenerContext;
use crate::request::{Request, RequestedUri};
use crate::seen::{self, Seen};

/// What conditions read that is noted once for each request.
const DRAWN: [Reads; 3] = [Reads::TLS, Reads::RANDOM, Reads::TIME];

impl Request {
    /// Notes what conditions and texts need that the head does not say. It is drawn once, so that
    /// a request meets the guard of the route that it takes.
    pub(crate) fn see(&mut self, connection: Option<&dyn TlsFacts>) {
        let routes = &self.snapshot.routes;
        let is_needed = routes.has_values() || DRAWN.iter().any(|what| routes.reads(*what));
        if is_needed && self.seen.is_none() {
            let id = self.id.unwrap_or_else(|| seen::draw(&self.worker.cache.hasher, self.peer));
            let seen = Seen::new(id, connection);
            self.seen = Some(Rc::new(seen));
        }
    }

    /// The facts of the request, without its host and path, whose readings are judged.
    pub(crate) fn facts(&self) -> Facts<'_> {
        let url = (self.requested_uri(), self.target());
        let seen = self.seen.as_deref();
        Facts {
            client: self.peer.ip().to_canonical(),
            user: self.user.as_deref(),
            tls: seen.map(|seen| &seen.tls),
            now_s: seen.map_or_else(|| time::wall_ms() / 1000, |seen| seen.now_s),
            random: seen.map_or(0.0, |seen| seen.random),
            ..facts_of_head(&self.listener, (self.method_bytes(), self.fields()), url)
        }
    }

    /// The same when the response has come. A response is stored for all requests of its key, so
    /// it is judged by the query as it is stored.
    fn facts_of_response(&self) -> Facts<'_> {
        let path_and_query = self.to().stored_path();
        let facts = self.facts();
        let sent = Sent { path_and_query, ..facts.sent };
        Facts { query: query(path_and_query), sent, ..facts }
    }

    /// Judges the rules that read the response. The head is that of the upstream, before any
    /// change. A part and a 304 are judged as the whole response that they are of.
    pub(crate) fn judge_response(&self, head: &OwnedResponse) {
        let routes = &self.snapshot.routes;
        if self.chosen.is_some() && routes.has_late() {
            let response = response_facts(head.status(), head.fields());
            self.late.set(routes.late(self.to().reading(), &self.facts_of_response(), response));
        }
    }

    /// The rules that apply to the response.
    pub(crate) fn rules_of_response(&self) -> RuleSet {
        let early = self.chosen.map_or_else(RuleSet::default, |chosen| chosen.rules);
        early.with(&self.late.get())
    }

    /// Whether a rule that reads the response keeps it out of the store.
    pub(crate) fn is_kept_out(&self) -> bool {
        let late = self.late.get();
        !late.is_empty() && self.snapshot.routes.rules().of(&late).any(|rule| !rule.config.store)
    }

    /// Whether responses are coded, by the route and the rules.
    pub(crate) fn codes(&self) -> bool {
        let routes = &self.snapshot.routes;
        let late = self.late.get();
        self.chosen.is_some_and(|chosen| chosen.is_sole && routes.codes_for(&chosen))
            && routes.rules().of(&late).all(|rule| rule.config.compression)
    }

    /// How long a response with this head is fresh, as it is configured.
    pub(crate) fn configured_lifetime(
        &self,
        status: u16,
        fields: Fields<'_>,
        rules: &RuleSet,
    ) -> Option<caching::Configured> {
        let response = || response_facts(status, fields);
        if self.role() == Role::Forward {
            let forward = &self.snapshot.forward;
            let facts = || self.facts_of_response();
            let has = forward.has_lifetimes();
            return has.then(|| forward.lifetime(self.to().reading(), &facts(), response()))?;
        }
        let (chosen, routes) = (self.chosen?, &self.snapshot.routes);
        if !routes.has_lifetimes() {
            return None;
        }
        let facts = (self.to().reading(), &self.facts_of_response());
        routes.lifetime(chosen.at, rules, facts, response())
    }

    /// The rules that apply to a stored response with this head.
    pub(crate) fn rules_of_stored(&self, status: u16, fields: Fields<'_>) -> RuleSet {
        let routes = &self.snapshot.routes;
        let early = self.chosen.map_or_else(RuleSet::default, |chosen| chosen.rules);
        if !routes.has_late() {
            return early;
        }
        let response = response_facts(status, fields);
        early.with(&routes.late(self.to().reading(), &self.facts_of_response(), response))
    }

    /// The values that texts may repeat.
    fn values<'r>(&'r self, reading: Reading<'r>) -> Values<'r> {
        let group = self.chosen.and_then(|chosen| self.snapshot.routes.group(&chosen));
        let group = group.and_then(|at| self.snapshot.config.groups.get(at));
        Values {
            facts: self.facts(),
            reading,
            upstream: group.map(|group| group.name.as_str()),
            id: self.seen.as_deref().map(|seen| seen.id),
            given_id: self.given_id(),
        }
    }

    /// The changes to the fields of the request, with captures and values replaced.
    pub(crate) fn request_changes(&self) -> Cow<'_, [FieldRule]> {
        let Some(chosen) = self.chosen else { return Cow::Borrowed(&[]) };
        let routes = &self.snapshot.routes;
        match routes.expands(&chosen, &chosen.rules) {
            true => {
                let values = self.values(self.to().reading());
                Cow::Owned(routes.expanded_request(&chosen, &values))
            }
            false => routes.request_changes(&chosen),
        }
    }

    /// The changes to the fields of the response by these rules and the route; `None`: they are
    /// those of the route as configured.
    pub(crate) fn response_changes(
        &self,
        rules: &RuleSet,
        reading: Reading<'_>,
    ) -> Option<Vec<FieldRule>> {
        let chosen = self.chosen?;
        let routes = &self.snapshot.routes;
        match routes.expands(&chosen, rules) {
            true => Some(routes.expanded_response(&chosen, rules, &self.values(reading))),
            false => routes.response_changes(&chosen, rules),
        }
    }

    /// What is done with the request, with the captures and values of its text replaced.
    pub(crate) fn expanded_action(&self, reading: Reading<'_>) -> Option<Action> {
        self.snapshot.routes.expanded_action(&self.chosen?, &self.values(reading))
    }
}

/// The query without its question mark.
fn query(path_and_query: &[u8]) -> &[u8] {
    let at = memchr::memchr(b'?', path_and_query);
    at.map_or(b"", |at| &path_and_query[at + 1..])
}

/// What a head says by itself: its method and its fields, and the URL that it asks for.
pub(crate) fn facts_of_head<'f>(
    listener: &'f ListenerContext,
    (method, fields): (&'f [u8], Fields<'f>),
    (uri, target): (Option<RequestedUri<'f>>, Target<'f>),
) -> Facts<'f> {
    let sent = match (uri, target) {
        (Some(RequestedUri { authority, path, .. }), _) => {
            Sent { authority, path_and_query: path, tunnel_port: None }
        }
        (None, Target::Authority { host, port }) => {
            Sent { authority: host, tunnel_port: Some(port), ..Sent::default() }
        }
        // It is refused for its form.
        (None, _) => Sent::default(),
    };
    Facts {
        host: b"",
        path: b"",
        query: query(sent.path_and_query),
        sent,
        method,
        scheme: uri.map_or(listener.scheme, |uri| uri.realm.scheme).name(),
        listener: &listener.name,
        port: listener.address.port(),
        client: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        user: None,
        fields,
        tls: None,
        now_s: 0,
        random: 0.0,
        response: None,
    }
}
