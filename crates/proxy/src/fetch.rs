//! Asking the origin: for the store and all who wait, or for one request alone.
//!
//! [`lead`] asks on behalf of a flight and answers the request that leads it; [`behind`] does the
//! same with nobody to answer; [`land`] says what an answer means for the store and for those who
//! wait; [`fill`] brings a body; [`pass`] passes a request through.

pub(crate) mod behind;
mod fill;
mod land;
pub(crate) mod lead;
pub(crate) mod pass;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use caching::cache_status::Forward;
use caching::{Failure, Policy, StaleRule};
use http1::{Method, Name, RequestHead, Target, write};
use runtime::time;
use store::Key;

use crate::ask::{Ask, Held, What};
use crate::destination::Destination;
use crate::request::max_forwards;
use crate::request_body::RequestBody;
use crate::site::Site;
use crate::worker::Worker;
use cache::stored::{Stored, Wire};
use cache::variants::offered_tag;
use cache::watch::Watch;
use config::{ForwardedFields, Role};
use policy::fields::Edits;
use policy::routes::Route;
use policy::via::ClientFields;
use upstream::{Answer, To};

/// A HEAD that is passed through, and may confirm what is stored.
pub(crate) struct Confirming {
    pub(crate) why: Forward,
    pub(crate) key: Key,
    pub(crate) stored: Arc<Stored>,
    pub(crate) watch: Watch,
}

/// Who asks: a request, and where it goes.
pub(crate) struct Asking<'a> {
    pub(crate) worker: &'a Rc<Worker>,
    pub(crate) site: Rc<Site>,
    pub(crate) role: Role,
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// The place of the request's route.
    pub(crate) route: Option<usize>,
    pub(crate) head: RequestHead<'a>,
    pub(crate) destination: &'a Destination<'a>,
}

/// Whom a request to the origin is for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'s> {
    /// For the store: the client's conditions are left out, those of what is stored put in.
    Store(&'s Ask),
    /// For this client alone, as it asked.
    Pass(&'s RequestBody),
    /// The same, and it asks for one of these protocols instead of HTTP.
    Upgrade(&'s [u8]),
}

impl Asking<'_> {
    /// What kind of cache we are: a shared one; in reverse mode one that stands for its origin,
    /// which may then address it apart (RFC 9213).
    fn policy(&self) -> &'static Policy {
        const FORWARD: Policy = Policy { targeted_fields: &[], ..Policy::SHARED };
        match self.role {
            Role::Reverse => &Policy::SHARED,
            Role::Forward => &FORWARD,
        }
    }

    /// The route that the request takes.
    pub(crate) fn route(&self) -> Option<&Route> {
        self.site.routes.get(self.route?)
    }

    /// Changes the head of an answer as the route says.
    pub(crate) fn ruled(&self, mut answer: Answer) -> Answer {
        if let Some(head) = self.route().and_then(|route| route.response.changed(&answer.head)) {
            answer.head = head;
        }
        answer
    }

    /// Whether clients see the fields that carry tags.
    fn tags(&self) -> bool {
        self.site.tags_to_clients(self.role)
    }

    /// By which rule what is held stands in for an origin that fails, and how fresh it is.
    pub(crate) fn stand_in(&self, ask: &Ask, failure: Failure) -> Option<(StaleRule, i64)> {
        let meta = ask.held.meta().filter(|_| ask.may_be_answered_stale())?;
        let wire = Wire(self.head.fields);
        let request = caching::Request { method: self.head.method_bytes, fields: &wire };
        let now_ms = time::wall_ms();
        let found = caching::stale_on_error(&request, meta, failure, now_ms, self.policy());
        found.ok().map(|(rule, _)| (rule, meta.freshness.ttl_seconds(now_ms)))
    }

    /// The request as the origin is to see it (RFC 9110, 7.6).
    pub(crate) fn bytes(&self, purpose: Purpose<'_>) -> Vec<u8> {
        let head = &self.head;
        let mut out = Vec::with_capacity(512);
        let for_store = matches!(purpose, Purpose::Store(_));
        let (method, method_bytes) = match for_store {
            true => (Method::Get, &b"GET"[..]),
            false => (head.method, head.method_bytes),
        };
        out.extend_from_slice(method_bytes);
        out.push(b' ');
        match head.target {
            Target::Asterisk => out.push(b'*'),
            _ => write::origin_form(&mut out, method, &head.target),
        }
        out.extend_from_slice(b" HTTP/1.1\r\nHost: ");
        out.extend_from_slice(self.destination.host());
        out.extend_from_slice(b"\r\n");
        let edits = self.edits();
        let told =
            ClientFields::new(&self.site.config.forward, self.role, head.fields, self.peer.ip());
        let forwards = max_forwards(head).filter(|forwards| *forwards > 0);
        for field in head.fields.end_to_end() {
            let left_out = match field.id() {
                Name::Host | Name::ContentLength => true,
                // It is for the next proxy that asks for it, which is us (RFC 9110, 11.7.2).
                Name::ProxyAuthorization => true,
                Name::MaxForwards => forwards.is_some(),
                name if told.replaces(name) => true,
                _ => for_store && caching::is_condition_or_range(field.name()),
            };
            if !left_out && edits.keeps(field.name()) {
                write::parsed_field(&mut out, field);
            }
        }
        if let Purpose::Store(ask) = purpose {
            self.append_conditions(&mut out, ask);
        }
        if let Some(forwards) = forwards {
            out.extend_from_slice(b"Max-Forwards: ");
            write::decimal(&mut out, forwards - 1);
            out.extend_from_slice(b"\r\n");
        }
        edits.append(&mut out, head);
        self.site.via.append_to_request(&mut out, head.version);
        told.append(&mut out, self.destination.realm.scheme.name());
        match purpose {
            Purpose::Store(_) => {}
            Purpose::Pass(body) => body.append_framing(&mut out),
            Purpose::Upgrade(protocols) => {
                out.extend_from_slice(b"Connection: Upgrade\r\nUpgrade: ");
                out.extend_from_slice(protocols);
                out.extend_from_slice(b"\r\n");
            }
        }
        write::end(&mut out);
        out
    }

    /// The changes to the request's fields that its route and its group configure.
    fn edits(&self) -> Edits<'_> {
        let destination = self.destination;
        let forwarded = match &destination.to {
            To::Group(group, ..) => group.config.forwarded,
            To::Addresses(..) => ForwardedFields::None,
        };
        let rules = self.route().map_or(&[][..], |route| &route.config.request);
        let asked = (destination.realm.scheme, destination.authority);
        Edits::new((rules, forwarded), self.peer, asked)
    }

    /// What is asked for, and what is held of it. All values were parsed from heads, or are made of
    /// digits, so they can be written.
    fn append_conditions(&self, out: &mut Vec<u8>, ask: &Ask) {
        for (name, value) in ask.validated().into_iter().flat_map(caching::validation_fields) {
            let _ = write::field(out, name.as_bytes(), value);
        }
        let request = Wire(self.head.fields);
        let offered: Vec<&[u8]> =
            ask.offered.iter().filter_map(|stored| offered_tag(&request, stored)).collect();
        if !offered.is_empty() {
            let _ = write::field(out, b"If-None-Match", &offered.join(&b", "[..]));
        }
        match (ask.what, &ask.held) {
            (What::Range { .. }, _) => {
                let range = self.head.fields.values(b"range").next().unwrap_or_default();
                let _ = write::field(out, b"Range", range);
            }
            (What::Rest(rest), Held::Part(partial)) => {
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
