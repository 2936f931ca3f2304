//! What conditions may read of a request, and what texts may repeat of it.

use std::borrow::Cow;
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use conditions::{Facts, Reads, TlsNames};
use config::{Action, FieldRule};
use http1::{Fields, RequestHead, ResponseHead};
use policy::captures::Captured;
use policy::reading::Reading;
use policy::rules::{RuleSet, response_facts};
use policy::values::Values;
use runtime::time;
use transport::tls::name_text;

use crate::hit::FastPath;
use crate::listener::ListenerContext;
use crate::request::{Request, RequestedUri};
use crate::routing::ClientConnection;

/// What was drawn for a request, and what its connection says, as far as a condition or a text
/// needs it.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    random: f64,
    id: u128,
    tls: TlsNames,
}

thread_local! {
    /// Requests of this thread for which something was drawn.
    static DRAWN: Cell<u64> = const { Cell::new(0) };
}

impl Request {
    /// Notes what conditions and texts need that the head does not say.
    #[inline(never)]
    pub(crate) fn see(&mut self, connection: &ClientConnection<'_>) {
        let nth = DRAWN.get().wrapping_add(1);
        DRAWN.set(nth);
        let (now, peer) = (time::now().as_ns(), self.peer.to_string());
        let hasher = &self.worker.cache.hasher;
        let id = hasher.key(&[b"request", &now.to_le_bytes(), &nth.to_le_bytes(), peer.as_bytes()]);
        let id = id.to_u128();
        // The upper 53 bits, which are as many as a number below 1 has.
        let random = ((id >> 75) as f64) / ((1u64 << 53) as f64);
        debug_assert!((0.0..1.0).contains(&random));
        let mut tls = TlsNames::default();
        if let Some(facts) = connection.tls {
            facts.with_facts(&mut |facts| {
                tls.sni = facts.server_name.map(str::to_owned);
                let subject = facts.peer.map(|peer| name_text(peer.subject));
                tls.client_subject =
                    subject.map(|subject| String::from_utf8_lossy(&subject).into_owned());
            });
        }
        self.seen = Some(Rc::new(Seen { random, id, tls }));
    }

    /// The facts of the request, without its host and path, whose readings are judged.
    pub(crate) fn facts(&self) -> Facts<'_> {
        let uri = self.requested_uri();
        let (_, query) = split(uri.as_ref().map_or(&b""[..], |uri| uri.path));
        let scheme = uri.map_or(self.listener.scheme, |uri| uri.realm.scheme);
        let seen = self.seen.as_deref();
        let listener = &self.listener;
        Facts {
            host: b"",
            path: b"",
            query,
            method: self.method_bytes(),
            scheme: scheme.name(),
            listener: &listener.name,
            port: listener.address.port(),
            client: self.peer.ip().to_canonical(),
            user: self.user.as_deref(),
            fields: self.fields(),
            tls: seen.map(|seen| &seen.tls),
            now_s: time::wall_ms() / 1000,
            random: seen.map_or(0.0, |seen| seen.random),
            response: None,
        }
    }

    /// The same when the response has come. A response is stored for all requests of its key, so
    /// it is judged by the query as it is stored.
    fn facts_of_response(&self) -> Facts<'_> {
        let (_, query) = split(self.to().stored_path());
        Facts { query, ..self.facts() }
    }

    /// Judges the rules that read the response. The head is that of the upstream, before any
    /// change. A part and a 304 are judged as the whole response that they are of.
    pub(crate) fn judge_response(&self, head: &ResponseHead<'_>) {
        let routes = &self.snapshot.routes;
        if self.chosen.is_some() && routes.has_late() {
            let response = response_facts(head.status, head.fields);
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
        let chosen = self.chosen?;
        let facts = (self.to().reading(), &self.facts_of_response());
        let response = response_facts(status, fields);
        self.snapshot.routes.lifetime(chosen.at, rules, facts, response)
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

    /// What the request has captured, if a text repeats captures or values.
    pub(crate) fn captured(&self, reading: Reading<'_>) -> Option<Captured> {
        let routes = &self.snapshot.routes;
        let chosen = self.chosen.filter(|chosen| {
            let late = self.late.get();
            routes.expands(chosen) || routes.rules().of(&late).any(|rule| rule.expands())
        })?;
        Some(routes.captured(&chosen, reading, &self.facts()))
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
        }
    }

    /// Changes to fields with their captures and values replaced.
    pub(crate) fn expanded<'r>(
        &self,
        rules: Cow<'r, [FieldRule]>,
        reading: Reading<'_>,
    ) -> Cow<'r, [FieldRule]> {
        match (!rules.is_empty()).then(|| self.captured(reading)).flatten() {
            Some(captured) => Cow::Owned(captured.rules(&rules, &self.values(reading))),
            None => rules,
        }
    }

    /// What is done, with the captures and values of its text replaced.
    pub(crate) fn expanded_action(&self, action: &Action, reading: Reading<'_>) -> Action {
        match self.captured(reading) {
            Some(captured) => captured.action(action, &self.values(reading)),
            None => action.clone(),
        }
    }
}

/// A path and its query, without the question mark.
fn split(path_and_query: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b'?', path_and_query) {
        Some(at) => (&path_and_query[..at], &path_and_query[at + 1..]),
        None => (path_and_query, b""),
    }
}

/// The facts of a request that is answered in the turn in which it was read.
pub(crate) fn facts_of_hit<'f>(
    path: &FastPath<'f>,
    head: &RequestHead<'f>,
    uri: &RequestedUri<'f>,
) -> Facts<'f> {
    let (client, now_s) = (path.peer.to_canonical(), path.now_ms / 1000);
    let scheme = uri.realm.scheme.name();
    Facts { client, now_s, scheme, ..facts_of_head(path.listener, head, uri.path) }
}

/// What a head says by itself.
pub(crate) fn facts_of_head<'f>(
    listener: &'f ListenerContext,
    head: &RequestHead<'f>,
    path_and_query: &'f [u8],
) -> Facts<'f> {
    Facts {
        host: b"",
        path: b"",
        query: split(path_and_query).1,
        method: head.method_bytes,
        scheme: listener.scheme.name(),
        listener: &listener.name,
        port: listener.address.port(),
        client: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        user: None,
        fields: head.fields,
        tls: None,
        now_s: 0,
        random: 0.0,
        response: None,
    }
}

/// Whether a request must be looked at closely because conditions or texts need more than its head
/// says.
pub(crate) fn needs_sight(request: &Request) -> bool {
    let routes = &request.snapshot.routes;
    routes.is_conditional() || routes.has_values() || routes.reads(Reads::TLS)
}
