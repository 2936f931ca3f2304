//! The steps that a request would take, described instead of taken.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use cache::disk::swap_in::swap_in;
use cache::key::Bypassed;
use cache::stored::{Entry, Stored};
use cache::{Look, Lookup, Query};
use caching::cache_status::Forward;
use caching::{Explain, Explanation, Failure};
use config::{Action, Role};
use files::Found;
use http1::OwnedRequest;
use outcome::{Outcome, Refusal};
use policy::dry;
use policy::peers::Allowed;
use policy::quota::Stage;
use policy::quota::figures::Judged;
use runtime::time;
use store::Key;
use upstream::To;
use upstream::peers::having;

use crate::cache_status::{CacheStatus, proxy_status};
use crate::cluster::Share;
use crate::coded::{self, Chosen, Wish, accepted};
use crate::connect::{tunnel_addresses, tunnel_to};
use crate::explain::model::{
    Answer, Condition, Decision, Explained, Quota, Range, Request, Response, Setting,
};
use crate::explain::stored::{self, Keyed};
use crate::explain::{Question, text};
use crate::fetch::{Purpose, hierarchy};
use crate::from_files;
use crate::hit::{FastPath, Hit, fresh_hit};
use crate::own_answers::{self, purged_uri};
use crate::plan::Form;
use crate::quota::judged;
use crate::request::{Destination, Request as Asked, body_length};
use crate::routing::ClientConnection;
use crate::rules;
use crate::snapshot::Snapshot;
use crate::step::{Ask, FromStore, Held, Step, What};
use crate::worker::Worker;

/// Explains a request.
pub(super) async fn explained(
    worker: &Rc<Worker>,
    snapshot: Rc<Snapshot>,
    question: &Question,
    head: OwnedRequest,
) -> Explained {
    let client = question.listener.client(question.peer, &head.head());
    let mut asked = Asked::new(worker, &question.listener, client, Rc::new(head));
    (asked.snapshot, asked.look, asked.id) = (snapshot, Look::Peek, None);
    let cache = &worker.cache;
    let keyed = Keyed::of(&asked);
    if let Some(key) = keyed.uri {
        // What is on the disk is read, as the request would have it read.
        swap_in(cache, key, keyed.parts(&asked), &asked.wire()).await;
    }
    let now_ms = time::wall_ms();
    let out = begun(&asked, question, &keyed, now_ms);
    if is_refused_at(Stage::Head, &asked) {
        let mut explanation = Explanator { asked: &asked, out };
        explanation.refuses(Refusal::Quota, None);
        return explanation.out;
    }
    let Asked { snapshot, listener, peer, look, .. } = &asked;
    let path = FastPath { cache, snapshot, listener, peer: peer.ip(), look: *look, now_ms };
    if let Ok(Hit { stored, key, .. }) = fresh_hit(&path, &asked.head()) {
        let mut explanation = Explanator { asked: &asked, out };
        explanation.serves(&Held::Whole(stored), key, &CacheStatus::HIT, rules::FRESH);
        return explanation.out;
    }
    let connection = ClientConnection::default();
    // From here on the user is known.
    let step = match asked.admitted(&connection).await {
        Ok(_) if is_refused_at(Stage::User, &asked) => Err(Refusal::Quota),
        Ok(class) => {
            let step = asked.route(class, &connection).await;
            asked.after_files(step)
        }
        Err(refusal) => Err(refusal),
    };
    let mut explanation = Explanator { asked: &asked, out };
    explanation.out.quotas = quotas(&asked);
    let step = match step {
        Ok(Step::LookForFile(otherwise)) => match from_files::find(&asked).await {
            Ok(Some(found)) => {
                explanation.answers_with_file(&found);
                return explanation.out;
            }
            Ok(None) => Ok(*otherwise),
            Err(refusal) => Err(refusal),
        },
        step => step,
    };
    let (step, rule) = match step {
        Err(refusal) => (Step::Refuse(refusal), None),
        Ok(Step::LookUp) => {
            let (step, rule) = asked.plan(asked.uri_key());
            (step, Some(rule))
        }
        Ok(step) => (step, None),
    };
    match step.needs_upstream() && is_refused_at(Stage::Fetch, &asked) {
        true => explanation.refuses(Refusal::Quota, None),
        false => explanation.takes(step, rule).await,
    }
    explanation.out
}

/// The quotas that apply to a request, those of its user if the user is known.
fn quotas(asked: &Asked) -> Vec<Quota> {
    let of = |judged: Judged| {
        let Judged { quota: name, remaining, wait_ms, refused } = judged;
        Quota { name, remaining, wait_ms, refused }
    };
    let stages = [Stage::Head, Stage::User, Stage::Fetch].into_iter();
    stages.flat_map(|stage| judged(asked, stage)).map(of).collect()
}

fn is_refused_at(stage: Stage, asked: &Asked) -> bool {
    judged(asked, stage).iter().any(|quota| quota.refused)
}

/// The conditions of rules and routes, and what they say of the request.
fn conditions(asked: &Asked) -> Vec<Condition> {
    let routes = &asked.snapshot.routes;
    let Some(uri) = asked.requested_uri() else { return Vec::new() };
    if !routes.is_conditional() || asked.role() == Role::Forward {
        return Vec::new();
    }
    let judged = dry::judged(routes, uri.reading(), &asked.facts());
    judged.into_iter().map(Condition::from).collect()
}

/// The setting by which a trusted proxy names the client.
fn of_front(asked: &Asked, question: &Question) -> Option<Setting> {
    let front = asked.listener.front.as_ref().filter(|_| asked.listener.is_of_front)?;
    let (client, proxy, field) = (asked.peer.ip(), question.peer.ip(), front.field.name());
    let effect = match client == proxy {
        true => format!("the client is {client}: its {field} names no other one"),
        false => format!("the client is {client}, as {proxy} says in {field}"),
    };
    Some(Setting { key: "listen.trusted_proxies".to_owned(), effect })
}

/// An explanation in the making.
struct Explanator<'t> {
    asked: &'t Asked,
    out: Explained,
}

/// The beginning of an explanation: the stored responses, whatever becomes of the request.
fn begun(asked: &Asked, question: &Question, keyed: &Keyed, now_ms: u64) -> Explained {
    let cache = &asked.worker.cache;
    let uri = keyed.uri;
    let (varies_by, keys) = match uri.and_then(|uri| cache.store.peek(&uri)) {
        Some(Entry::Varies(varies)) => {
            (varies.names().into_iter().map(str::to_owned).collect(), varies.keys())
        }
        Some(Entry::Response(_) | Entry::Part(_)) => (Vec::new(), Vec::from_iter(uri)),
        Some(Entry::Uncacheable { .. }) | None => (Vec::new(), Vec::new()),
    };
    let variants = keys.into_iter().filter_map(|key| stored::at(cache, key, now_ms));
    let role = match asked.role() {
        Role::Reverse => "reverse",
        Role::Forward => "forward",
    };
    Explained {
        method: question.method.clone(),
        url: question.url.clone(),
        role: role.to_owned(),
        listener: runtime::net::shown(asked.listener.address),
        key: uri.map(|key| key.to_string()),
        now_ms,
        decision: Decision::of("fetch", rules::URI_MISS),
        answer: Answer::default(),
        route: keyed.route_in_words(asked),
        settings: of_front(asked, question).into_iter().chain(keyed.settings(asked)).collect(),
        conditions: conditions(asked),
        selected: uri.and_then(|uri| selected(asked, uri, keyed, now_ms)),
        varies_by,
        variants: variants.collect(),
        request: None,
        on_failure: None,
        shed_ratio: asked.worker.overload.share_ppm() as f64 / 1e6,
        quotas: quotas(asked),
    }
}

impl<'t> Explanator<'t> {
    fn answers_with_file(&mut self, found: &Found) {
        self.does("answer", rules::FILE);
        let (status, what) = from_files::described(found, self.asked);
        self.own_answer(status);
        self.out.decision.text += &format!(": {what}");
    }

    /// Describes a step. `rule` is the one that the store decided by, if it did.
    async fn takes(&mut self, step: Step, rule: Option<Explanation>) {
        match step {
            Step::Purge => match purged_uri(self.asked) {
                Ok(_) => {
                    self.does("purge", rules::PURGE);
                    self.out.answer.status = Some(200);
                }
                Err(refusal) => self.refuses(refusal, None),
            },
            Step::Connect => match tunnel(self.asked).await {
                Ok(request) => {
                    self.does("tunnel", rules::TUNNEL);
                    self.out.answer.status = Some(200);
                    self.out.request = Some(request);
                }
                Err(refusal) => self.refuses(refusal, None),
            },
            Step::AnswerByRoute(action) => {
                self.does("answer", rules::ROUTE);
                self.own_answer(own_answers::status_of(&action));
                if let Action::Redirect { location, .. } = &*action {
                    self.out.decision.text += &format!(": to {location}");
                }
            }
            // It was looked for before.
            Step::LookForFile(_) => {}
            Step::AnswerWithDigest(_) => {
                self.does("answer", rules::DIGEST);
                self.own_answer(200);
            }
            Step::Refuse(refusal) => self.refuses(refusal, rule),
            Step::Upgrade(protocols) => {
                self.does("tunnel", rules::UPGRADE);
                self.sends(Purpose::Upgrade(&protocols));
            }
            Step::Pass(why, None) => {
                let rule =
                    rule.unwrap_or_else(|| rules::bypass(why, self.bypassed(), &self.asked.head()));
                self.passes("pass", why, rule);
            }
            Step::Pass(why, Some(_)) => {
                let rule = rule.unwrap_or(rules::UNSHARED);
                self.passes("fetch", why, rule);
            }
            Step::ValidateByHead(of) => {
                let rule = rule.unwrap_or(rules::URI_MISS);
                self.passes("validate", of.why, rule);
                let cache = &self.asked.worker.cache;
                let whole = stored::whole(cache, of.key, &of.stored, self.out.now_ms);
                self.out.selected = Some(whole);
            }
            Step::ServeStored(from) if self.is_unreadable(&from.held) => {
                match self.asked.wants_only_stored() {
                    true => self.refuses(Refusal::OnlyIfCached, Some(rules::ONLY_IF_CACHED)),
                    false => self.passes("pass", Forward::VaryMiss, rules::UNREADABLE),
                }
            }
            Step::ServeStored(from) => {
                let FromStore { key, held, cache_status, revalidate } = *from;
                self.serves(&held, key, &cache_status, rule.unwrap_or(rules::FRESH));
                if let Some(ask) = revalidate {
                    self.fetches(&ask, true);
                }
            }
            Step::Fetch(ask) => {
                let does = if ask.validated().is_some() { "validate" } else { "fetch" };
                self.does(does, rule.unwrap_or(rules::URI_MISS));
                self.begins(ask.why);
                self.fetches(&ask, false);
                let rule = self.asked.stale_rule(&ask, Failure::Unreachable);
                self.out.on_failure = rule.map(|rule| Decision::of("serve-stale", rule.explain()));
            }
            // An exchange comes to these from a look into the store or from a fetch, where the
            // explanation ends.
            Step::LookUp
            | Step::LookUpAlone
            | Step::LookUpAgain
            | Step::Follow(..)
            | Step::Lead { .. }
            | Step::Serve(..)
            | Step::Stream(..)
            | Step::Relay(..)
            | Step::Repair(..)
            | Step::End(_) => {}
        }
    }

    /// Why the settings of the route keep the request from the store.
    fn bypassed(&self) -> Option<Bypassed> {
        let route = self.asked.taken_route()?;
        let chosen = self.asked.chosen?;
        let stores = self.asked.snapshot.routes.stores(&chosen);
        let settings = route.key.as_ref().filter(|_| stores)?;
        settings.bypassed(self.asked.fields())
    }

    fn does(&mut self, does: &str, rule: Explanation) {
        self.out.decision = Decision::of(does, rule);
    }

    /// An answer from the store, if the client can read it.
    fn serves(&mut self, held: &Held, key: Key, cache_status: &CacheStatus, rule: Explanation) {
        let (cache, now_ms) = (&self.asked.worker.cache, self.out.now_ms);
        // The fast path names a form of the entry.
        let held = match cache.store.peek(&key) {
            Some(Entry::Response(entry)) if entry.forms().is_some() => Held::Whole(entry),
            _ => held.clone(),
        };
        let wish = self.wish();
        let answer = |wish: &Wish<'t>| wish.answer(held.head(), held.whole());
        let chosen = wish.as_ref().map_or(Chosen::AsItIs, answer);
        let meta = held.meta();
        let fresh = meta.is_fresh(now_ms);
        self.does(if fresh { "serve" } else { "serve-stale" }, rule);
        if fresh {
            let source = stored::lifetime_from(meta.freshness.lifetime_source);
            self.out.decision.text += &format!(" ({source})");
        }
        let bytes = match &held {
            Held::Whole(stored) => stored.body_bytes,
            Held::Part(partial) => partial.complete_bytes,
        };
        let whole = |status| Answer { status: Some(status), ..Answer::default() };
        let formed = match &chosen {
            Chosen::NotModified(_) => whole(304),
            Chosen::Form(_) | Chosen::Wanting(_, Some(_)) | Chosen::Decoding => {
                whole(held.head().status)
            }
            _ => formed(self.asked, &held),
        };
        self.out.answer = Answer {
            cache_status: Some(text(&cache_status.value())),
            // What is decoded first may turn out malformed.
            exact: !matches!(chosen, Chosen::Decoding),
            age_seconds: Some(meta.freshness.age_seconds(now_ms)),
            form: wish.and_then(|wish| coded::describe(&wish, &chosen, (held.head(), bytes))),
            ..formed
        };
        self.out.selected = Some(stored::held(cache, key, &held, now_ms));
    }

    /// What the request says about forms.
    fn wish(&self) -> Option<Wish<'t>> {
        let asked = self.asked;
        let (uri, fields) = (asked.requested_uri()?, (asked.method_bytes(), asked.fields()));
        let routes = &asked.snapshot.routes;
        let codes = || routes.codes(uri.reading(), || Some(asked.facts()));
        Some(Wish::of(&asked.snapshot, uri.realm.role, codes, fields))
    }

    /// Whether a stored response that may be used is in a coding that the client cannot read.
    fn is_unreadable(&self, held: &Held) -> bool {
        let answer =
            |wish: Wish<'_>| matches!(wish.answer(held.head(), held.whole()), Chosen::Unreadable);
        self.wish().is_some_and(answer)
    }

    fn refuses(&mut self, refusal: Refusal, rule: Option<Explanation>) {
        let listed = Explanation { token: refusal.name(), clause: "", text: refusal.text() };
        self.does("refuse", rule.unwrap_or(listed));
        self.own_answer(refusal.status());
        self.out.answer.proxy_status = Some(proxy_status(refusal));
    }

    /// Our own answer, which no cache takes part in.
    fn own_answer(&mut self, status: u16) {
        self.out.answer = Answer { status: Some(status), exact: true, ..Answer::default() };
    }

    /// A request that is passed on as it is.
    fn passes(&mut self, does: &str, why: Forward, rule: Explanation) {
        self.does(does, rule);
        self.begins(why);
        self.sends(Purpose::Pass(body_length(&self.asked.head())));
        let coding = self.asked.codes_passed().and_then(|rules| {
            let accept = accepted(&self.asked.fields());
            rules.ranked(accept)[0].map(|level| level.coding.name())
        });
        self.out.answer.form =
            coding.map(|name| format!("{name}, if the response may be coded while it passes"));
    }

    /// What is known of the answer before it comes.
    fn begins(&mut self, why: Forward) {
        let cache_status = CacheStatus::forwarded(Outcome::Pass, why, None);
        let cache_status = Some(text(&cache_status.value()));
        self.out.answer = Answer { cache_status, ..Answer::default() };
    }

    /// A request on behalf of the store.
    fn fetches(&mut self, ask: &Ask, background: bool) {
        self.sends(Purpose::Store(ask));
        let asked = self.asked;
        let is_followed = asked.worker.cache.flights.has(asked.flight_key(ask));
        let in_flight = is_followed && !ask.is_for_one();
        let asks = asked.to().course.as_ref().filter(|course| {
            !background && ask.what == What::Whole && hierarchy::may_ask(asked, course)
        });
        let (digest, asks) = asks.map_or_else(Default::default, |course| {
            let peers = &course.peers.asked;
            match having(peers, &hierarchy::url_for_peers(asked.to())) {
                Some(at) => (Some(peers[at].name.clone()), Vec::new()),
                None => {
                    let queried = peers.iter().filter(|peer| peer.is_asked());
                    (None, queried.map(|peer| peer.name.clone()).collect())
                }
            }
        });
        if let Some(request) = &mut self.out.request {
            *request = Request { asks, digest, in_flight, background, ..std::mem::take(request) };
        }
    }

    fn sends(&mut self, purpose: Purpose<'_>) {
        let asked = self.asked;
        let mut message = asked.message(purpose);
        if asked.to().course.as_ref().is_some_and(|course| course.to_parents) {
            message = hierarchy::for_parent(asked, &message);
        }
        let lines = message.bytes().split(|byte| *byte == b'\n');
        let lines = lines.map(|line| text(line.trim_ascii_end())).filter(|line| !line.is_empty());
        let lines = lines.collect();
        self.out.request = Some(Request { lines, ..goes_to(asked.to()) });
    }
}

/// Where a tunnel would lead.
async fn tunnel(asked: &Asked) -> Result<Request, Refusal> {
    let peers = asked.snapshot.peers.as_ref();
    let hierarchy = match tunnel_to(asked)? {
        None => None,
        Some((allowed, to)) => {
            let parents = peers.is_some_and(|peers| peers.parents.is_some());
            let hierarchy = Some(allowed.text(parents).to_owned());
            if let Some(to) = to {
                return Ok(Request { hierarchy, ..sent_to(&to) });
            }
            // No one is asked about a tunnel.
            hierarchy.filter(|_| parents || allowed == Allowed::Direct)
        }
    };
    let addresses = tunnel_addresses(asked).await?;
    Ok(Request { hierarchy, addresses: shown(&addresses), ..Request::default() })
}

fn shown(addresses: &[SocketAddr]) -> Vec<String> {
    addresses.iter().map(|at| runtime::net::shown(*at)).collect()
}

/// Where a request would go.
fn goes_to(to: &Destination) -> Request {
    let hierarchy = to.course.as_ref().map(|course| course.rule.to_owned());
    let owner = to.share.as_ref().map(Share::owner);
    Request { hierarchy, owner, ..sent_to(&to.to) }
}

fn sent_to(to: &To) -> Request {
    match to {
        To::Addresses(list, tls) => {
            Request { addresses: shown(list), tls: tls.is_some(), ..Request::default() }
        }
        To::Group(group, choice, ..) => {
            let request = Request { group: Some(group.config.name.clone()), ..Request::default() };
            match group.predicted(*choice) {
                Ok(server) => Request {
                    server: Some(server.authority),
                    addresses: shown(&server.addresses),
                    tls: server.tls,
                    session: server.session,
                    ..request
                },
                Err(blocked) => Request { fault: Some(blocked.text().to_owned()), ..request },
            }
        }
    }
}

/// The form in which a stored response is sent.
fn formed(asked: &Asked, held: &Held) -> Answer {
    let ranges = |ranges: Vec<caching::range::ByteRange>| {
        ranges.iter().map(|range| Range { first: range.first, last: range.last }).collect()
    };
    let whole = |stored: &Arc<Stored>| {
        let (status, of) = match asked.form(&stored.head, stored.body_bytes) {
            Form::NotModified => (304, Answer::default()),
            Form::Unsatisfied => (416, Answer::default()),
            Form::Parts(parts) => (206, Answer { ranges: ranges(parts), ..Answer::default() }),
            Form::Whole(why) => {
                let has_range = asked.fields().has(http1::Name::Range);
                let why_whole = has_range.then(|| why.explain().text.to_owned());
                (stored.head.status, Answer { why_whole, ..Answer::default() })
            }
        };
        Answer { status: Some(status), ..of }
    };
    match held {
        Held::Whole(stored) => whole(stored),
        Held::Part(partial) if asked.is_not_modified(&partial.head) => {
            Answer { status: Some(304), ..Answer::default() }
        }
        Held::Part(partial) => {
            let parts = asked.held_ranges(partial).unwrap_or_default();
            Answer { status: Some(206), ranges: ranges(parts), ..Answer::default() }
        }
    }
}

/// The response that a look into the store finds, even if the request does not get that far.
fn selected(asked: &Asked, uri: Key, keyed: &Keyed, now_ms: u64) -> Option<Response> {
    let (cache, wire) = (&asked.worker.cache, asked.wire());
    let (look, parts) = (Look::Peek, keyed.parts(asked));
    match cache.look_by_parts(uri, &Query { look, parts, request: &wire, now_ms }) {
        Lookup::Found(found, key) => Some(stored::whole(cache, key, &found, now_ms)),
        Lookup::Part(partial, key) => Some(stored::part(cache, key, &partial, now_ms)),
        Lookup::Absent(_) | Lookup::Unshared(_) | Lookup::Bypassed => None,
    }
}
