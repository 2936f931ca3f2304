//! Asking the origin: for the store and all waiting requests, or for one request alone.
//!
//! This file writes a request as the origin is to see it. The modules have one subject each.
//! [`flight`] asks on behalf of a flight, and answers the request that leads the flight; in the
//! background there is no such request. [`response`] decides what an answer means for the store and
//! for the waiting requests. [`fill`] fetches a body. [`hierarchy`] sends a request to a parent or
//! to its origin. [`owner`] sends a request to the member of the cluster that owns its URL.
//! [`continued`] requests the remainder of a body whose beginning a client already has. [`pass`]
//! passes a request through.

use std::borrow::Cow;

use cache::key::{DeviceClass, KeySettings};
use cache::stored::Head;
use cache::variants::offered_tag;
use caching::{Explain, Failure, Policy, StaleRule};
use coding::Rules;
use coding::rules::Source;
use config::{ClientField, DEVICE_FIELD, FieldRule, ForwardedFields, Role};
use core_io::CoreIo;
use http1::{Fields, Method, Name, Target, is_one_variable, write};
use outcome::{Fault, Refusal};
use policy::fields::{Chain, Edits, ResponseRules};
use policy::rules::RuleSet;
use policy::via::ClientFields;
use runtime::time;
use upstream::{Answer, BodyLength, To};

use crate::cache_status::CacheStatus;
use crate::request::{Destination, Request, max_forwards, says_trailers};
use crate::step::{Ask, Held, Provenance, Serving, What};

pub(crate) mod continued;
mod fill;
pub(crate) mod flight;
pub(crate) mod hierarchy;
mod member;
pub(crate) mod owner;
pub(crate) mod pass;
mod response;

/// What a request to the origin is for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'s> {
    /// The store: conditions of the stored response replace those of the client.
    Store(&'s Ask),
    /// This client alone, as it asked.
    Pass(BodyLength),
    /// The same, but all of the response in place of the range that it asked for.
    Whole,
    /// The same, and it asks for one of these protocols instead of HTTP.
    Upgrade(&'s [u8]),
    /// The rest of a response, by these field lines. The beginning was for the store, or not.
    Rest { lines: &'s [u8], for_store: bool },
}

impl Purpose<'_> {
    /// Whether the method, the conditions and the range are ours and not those of the client.
    fn is_ours(&self) -> bool {
        matches!(self, Purpose::Store(_) | Purpose::Rest { .. })
    }
}

impl Request {
    /// Our kind of cache: a shared one. In reverse mode it acts for its origin, which may address
    /// it separately (RFC 9213).
    fn policy(&self) -> &'static Policy {
        const FORWARD: Policy = Policy { targeted_fields: &[], ..Policy::SHARED };
        match self.role() {
            Role::Reverse => &Policy::SHARED,
            Role::Forward => &FORWARD,
        }
    }

    /// The same, and what becomes of a response that sets a cookie.
    fn policy_for_cookies(&self) -> Policy {
        Policy { set_cookie: self.set_cookie(), ..*self.policy() }
    }

    /// The same for a response with this head, for which these rules or the route may have a
    /// lifetime.
    fn policy_for(&self, status: u16, fields: Fields<'_>, rules: &RuleSet) -> Policy {
        let configured = self.configured_lifetime(status, fields, rules);
        Policy { configured, ..self.policy_for_cookies() }
    }

    /// Changes the head of an answer as the route and the rules say.
    fn apply_rules(&self, answer: &mut Answer) {
        self.judge_response(&answer.head);
        if self.to().is_from_member() {
            // It has the same rules, and has changed the head.
            return;
        }
        let changes = self.response_changes(&self.rules_of_response(), self.to().reading());
        let changed = match changes {
            Some(changes) => {
                let rules = ResponseRules::new(&changes);
                let route = self.taken_route();
                let rewrites = route.map(|route| route.response.rewrites());
                match rewrites {
                    Some(rewrites) => rules.after(rewrites).changed(&answer.head),
                    None => rules.changed(&answer.head),
                }
            }
            None => self.taken_route().and_then(|route| route.response.changed(&answer.head)),
        };
        if let Some(head) = changed {
            **answer.head = head;
        }
    }

    /// The stale response to serve when the origin fails, if a rule allows it.
    pub(crate) fn stale_substitute(&self, ask: &Ask, failure: Failure) -> Option<Serving> {
        let held = ask.stale()?.clone();
        let rule = self.stale_rule(ask, failure)?;
        tracing::debug!(rule = rule.explain().token, "a stale response is served instead");
        let ttl_seconds = held.meta().freshness.ttl_seconds(time::wall_ms());
        let cache_status = CacheStatus::stale(rule, ttl_seconds);
        Some(Serving { held, provenance: Provenance::stored(cache_status) })
    }

    /// Whether a stale response may be served if the answer of the origin breaks off.
    pub(crate) fn may_substitute(&self, ask: &Ask) -> bool {
        matches!(ask.stale(), Some(Held::Whole(_)))
            && self.stale_rule(ask, Failure::Unreachable).is_some()
    }

    /// The rule that allows it.
    pub(crate) fn stale_rule(&self, ask: &Ask, failure: Failure) -> Option<StaleRule> {
        let wire = self.wire();
        let request = self.asked(&wire);
        let (meta, now_ms) = (ask.stale()?.meta(), time::wall_ms());
        let allowed = caching::stale_on_error(&request, meta, failure, now_ms, self.policy());
        allowed.ok().map(|(rule, _)| rule)
    }

    /// The request as the origin is to see it (RFC 9110, 7.6).
    #[inline]
    pub(crate) fn message(&self, purpose: Purpose<'_>) -> upstream::Request {
        self.message_to(self.to().host(), purpose, true)
    }

    /// The request as a peer is to see it: nothing is added that the route or the group of servers
    /// adds for the origin, such as a key.
    fn message_to_peer(&self, ask: &Ask) -> upstream::Request {
        self.message_to(self.to().authority(), Purpose::Store(ask), false)
    }

    fn message_to(&self, host: &[u8], purpose: Purpose<'_>, adds: bool) -> upstream::Request {
        let (fields, to) = (self.fields(), self.to());
        let is_ours = purpose.is_ours();
        let method = match is_ours {
            true => (Method::Get, &b"GET"[..]),
            false => (self.method(), self.method_bytes()),
        };
        let path_sent = to.path_sent();
        let target = match path_sent {
            Some(ref path_and_query) => Target::Origin { path_and_query },
            None => self.target(),
        };
        let mut message = upstream::Request::new(self.worker.io.buffer(), method, &target, host);
        let out = message.lines();
        let own = self.settings().map(|settings| OwnFields::of(settings, to, fields));
        let edits = self.edits();
        let config = &self.snapshot.config.forward;
        let client = (self.peer.ip(), self.listener.front.is_none());
        let client_fields = ClientFields::new(config, self.role(), fields, client);
        let id = self.snapshot.config.request_id.as_ref();
        let forwards = max_forwards(self.method(), &fields).filter(|forwards| *forwards > 0);
        let for_identity = self.asks_for_identity(purpose);
        write::end_to_end(out, &fields, |field| {
            let left_out = match field.id() {
                Name::Host | Name::ContentLength => true,
                // It is for the next proxy that asks for it, which is us (RFC 9110, 11.7.2).
                Name::ProxyAuthorization => true,
                Name::MaxForwards => forwards.is_some(),
                Name::Range | Name::IfRange if matches!(purpose, Purpose::Whole) => true,
                Name::AcceptEncoding if for_identity => true,
                _ if client_fields.replaces(field) => true,
                _ if id.is_some_and(|id| is_one_variable(field.name(), id.field.as_bytes())) => {
                    true
                }
                _ if own.as_ref().is_some_and(|own| own.replaces(field.name())) => true,
                _ => is_ours && caching::is_condition_or_range(field.name()),
            };
            !left_out && edits.keeps(field.name())
        });
        self.append_own(out, purpose);
        self.append_id(out);
        if for_identity && edits.keeps(b"Accept-Encoding") {
            out.extend_from_slice(b"Accept-Encoding: identity\r\n");
        }
        if let Some(forwards) = forwards {
            out.extend_from_slice(b"Max-Forwards: ");
            write::decimal(out, forwards - 1);
            out.extend_from_slice(b"\r\n");
        }
        if let Some(own) = &own {
            own.append(out, &edits);
        }
        if adds {
            edits.append(out, &fields);
        }
        self.snapshot.via.append_to_request(out, self.version());
        client_fields.append(out, to.realm.scheme.name());
        if says_trailers(&fields) && !is_ours {
            message.accept_trailers();
        }
        match purpose {
            Purpose::Store(_) | Purpose::Rest { .. } | Purpose::Whole => {
                message.end(BodyLength::None);
            }
            Purpose::Pass(length) => message.end(length),
            Purpose::Upgrade(protocols) => message.end_with_upgrade(protocols),
        }
        message
    }

    /// The changes to the request's fields that its route and its group configure.
    pub(super) fn edits(&self) -> Edits<'_> {
        let forwarded = match &self.to().to {
            To::Group(group, ..) => group.config.forwarded,
            To::Addresses(..) => ForwardedFields::None,
        };
        let rules = self.request_changes();
        let uri = (self.to().realm.scheme, self.to().authority());
        Edits::new((rules, forwarded), (self.peer, self.chain()), uri)
    }

    /// What becomes of the fields in which proxies before us have named the client.
    pub(crate) fn chain(&self) -> Chain<'_> {
        match &self.listener.front {
            None => Chain::Kept,
            Some(_) if self.listener.is_of_front => Chain::Read,
            Some(front) => Chain::Dropped(front),
        }
    }

    /// Whether trailers of the request are passed on. A server may take them for fields, which
    /// must not be around what we have written.
    pub(super) fn passes_trailers(&self) -> bool {
        self.edits().is_plain() && self.snapshot.config.request_id.is_none() && !self.has_copied()
    }

    /// Whether a response varies by a field into which the address of the client is written on the
    /// way to the origin. The field that came is not what the origin has seen, so no later request
    /// could be matched by it.
    pub(super) fn varies_by_client(&self, vary: &Fields<'_>) -> bool {
        let rules = &self.snapshot.config.forward;
        let [chain, forwarded] = match (self.role(), &self.to().to) {
            (Role::Reverse, To::Group(group, ..)) => match group.config.forwarded {
                ForwardedFields::XForwarded | ForwardedFields::XForwardedFor => [true, false],
                ForwardedFields::Forwarded => [false, true],
                ForwardedFields::None => [false; 2],
            },
            (Role::Reverse, To::Addresses(..)) => [false; 2],
            (Role::Forward, _) => {
                [rules.x_forwarded_for, rules.forwarded].map(ClientField::has_address)
            }
        };
        let varies = |name: &[u8]| vary.contains_token(Name::Vary, name);
        let by_rule = |rule: &FieldRule| {
            rule.is_of_one_client() && varies(rule.name().to_ascii_lowercase().as_bytes())
        };
        let routes = &self.snapshot.routes;
        if self.chosen.is_some_and(|chosen| routes.request_changes(&chosen).iter().any(by_rule)) {
            return true;
        }
        (chain && varies(b"x-forwarded-for")) || (forwarded && varies(b"forwarded"))
    }

    /// Appends the number of the request, if it is sent on.
    fn append_id(&self, out: &mut Vec<u8>) {
        let Some(id) = &self.snapshot.config.request_id else { return };
        // The configuration was checked.
        let _ = write::field(out, id.field.as_bytes(), self.id_text().as_bytes());
    }

    /// The number of the request: that which it came with, or ours; empty if it has none.
    pub(crate) fn id_text(&self) -> Cow<'_, str> {
        match std::str::from_utf8(self.given_id()) {
            Ok(given) if !given.is_empty() => Cow::Borrowed(given),
            _ => Cow::Owned(self.id.map(|id| format!("{id:032x}")).unwrap_or_default()),
        }
    }

    /// Appends our conditions and our range.
    fn append_own(&self, out: &mut Vec<u8>, purpose: Purpose<'_>) {
        match purpose {
            Purpose::Store(ask) => self.append_conditions(out, ask),
            Purpose::Rest { lines, .. } => out.extend_from_slice(lines),
            Purpose::Pass(_) | Purpose::Whole | Purpose::Upgrade(_) => {}
        }
    }

    /// Whether a 304 says enough about a stored response with this status. Rules that read the
    /// response cannot be judged by a 304, which has a part of its fields.
    pub(super) fn may_be_confirmed(&self, status: u16) -> bool {
        let routes = &self.snapshot.routes;
        self.chosen.is_none() || !routes.has_late() || !routes.reads_fields() && status == 200
    }

    /// The same for the store. All values were parsed from heads or are made of
    /// digits, so they can be written.
    fn append_conditions(&self, out: &mut Vec<u8>, ask: &Ask) {
        let is_confirmable =
            ask.stale().is_none_or(|held| self.may_be_confirmed(held.head().status));
        let validated = ask.validated().filter(|_| is_confirmable);
        for (name, value) in validated.into_iter().flat_map(caching::validation_fields) {
            let _ = write::field(out, name.as_bytes(), value);
        }
        let request = self.wire();
        let offered: Vec<&[u8]> = ask
            .offered
            .iter()
            .filter(|stored| self.may_be_confirmed(stored.head.status))
            .filter_map(|stored| offered_tag(&request, stored))
            .collect();
        if !offered.is_empty() {
            let _ = write::field(out, b"If-None-Match", &offered.join(&b", "[..]));
        }
        match (ask.what, &ask.held) {
            (What::Range { .. }, _) => {
                let range = self.fields().values(b"range").next().unwrap_or_default();
                let _ = write::field(out, b"Range", range);
            }
            (What::Rest(rest), Some(Held::Part(partial))) => {
                let to_the_end = rest.last + 1 == partial.complete_bytes;
                let range = match to_the_end {
                    true => format!("bytes={}-", rest.first),
                    false => format!("bytes={}-{}", rest.first, rest.last),
                };
                let _ = write::field(out, b"Range", range.as_bytes());
                if let Some(tag) = caching::if_range(&partial.head.meta.validators) {
                    let _ = write::field(out, b"If-Range", tag);
                }
            }
            (What::Whole | What::Rest(_), _) => {}
        }
    }
}

/// The fields that the settings for keys replace in a request.
struct OwnFields<'s> {
    settings: &'s KeySettings,
    cookies: Option<Vec<u8>>,
    device: Option<&'static str>,
}

impl<'s> OwnFields<'s> {
    fn of(settings: &'s KeySettings, to: &Destination, fields: Fields<'_>) -> OwnFields<'s> {
        OwnFields {
            settings,
            cookies: to.is_keyed.then(|| settings.cookies_sent(fields)).flatten(),
            device: settings.device(fields).map(DeviceClass::name),
        }
    }

    fn replaces(&self, name: &[u8]) -> bool {
        (self.cookies.is_some() && name.eq_ignore_ascii_case(b"cookie"))
            || (self.device.is_some() && name.eq_ignore_ascii_case(DEVICE_FIELD.as_bytes()))
            || self.settings.resembles(name).is_some()
    }

    /// Appends what the route does not set or remove. All values were parsed from fields, so they
    /// can be written.
    fn append(&self, out: &mut Vec<u8>, edits: &Edits<'_>) {
        let cookies = self.cookies.as_deref().filter(|cookies| !cookies.is_empty());
        let device = self.device.map(str::as_bytes);
        for (name, value) in [("Cookie", cookies), (DEVICE_FIELD, device)] {
            if let Some(value) = value.filter(|_| edits.keeps(name.as_bytes())) {
                let _ = write::field(out, name.as_bytes(), value);
            }
        }
    }
}

/// Counts and reports that an upstream gave no answer.
pub(crate) fn unanswered(io: &CoreIo, fault: Fault) -> Refusal {
    tracing::debug!(%fault, "no answer");
    if !fault.is_of_the_client() {
        io.counters.upstream_errors.add(1);
    }
    Refusal::Fault(fault)
}

impl Request {
    /// The rules by which responses to this request are coded, if they are.
    pub(crate) fn rules(&self) -> Option<&Rules> {
        let rules = self.snapshot.config.compression.as_ref()?;
        let is_coded = self.role() == Role::Reverse && self.codes();
        is_coded.then_some(rules)
    }

    /// Whether the origin is asked for the response without coding, whatever the client accepts:
    /// the store makes the coded forms. `HEAD` describes the response that a GET would get.
    pub(super) fn asks_for_identity(&self, purpose: Purpose<'_>) -> bool {
        let of_store = match purpose {
            Purpose::Store(_) | Purpose::Rest { for_store: true, .. } => true,
            Purpose::Pass(_) => self.method() == Method::Head,
            Purpose::Whole | Purpose::Upgrade(_) | Purpose::Rest { .. } => false,
        };
        of_store && self.rules().is_some()
    }

    /// How the body of a response that is about to be stored is coded, if there may be several
    /// forms of it.
    pub(super) fn source(&self, head: &Head, bytes: Option<u64>) -> Option<Source> {
        // A part has the length of the part.
        let bytes = if head.part().is_some() { None } else { bytes };
        self.rules()?.source(head.status, head, bytes)
    }

    /// The new head of a stored response of which there may be several forms. How its body is coded
    /// does not change with its fields, nor with the configuration: who cannot read it must not get
    /// it, even if it must not be decoded any more. What is not coded loses its forms if the new
    /// fields forbid them.
    pub(super) fn still_with_forms(&self, head: Head, source: Source) -> Head {
        let wire = self.wire();
        match self.rules().map(|rules| rules.source(head.status, &head, None)) {
            Some(None) if source == Source::Identity => head.not_by_coding(&wire),
            Some(_) | None => head.in_several_forms(source, &wire),
        }
    }
}
