//! The steps that a request would take, described instead of taken.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use cache::disk::swap_in::swap_in;
use cache::key::Bypassed;
use cache::stored::{Entry, Stored, Wire};
use cache::{Look, Lookup, Query};
use caching::cache_status::Forward;
use caching::{Explain, Explanation, Failure};
use config::{Action, Role};
use http1::RequestHead;
use outcome::{Outcome, Refusal};
use policy::peers::Allowed;
use policy::quota::Stage;
use policy::quota::figures::Judged;
use runtime::time;
use store::Key;
use upstream::{To, digests};

use crate::cache_status::{CacheStatus, proxy_status};
use crate::cluster::Share;
use crate::coded::{self, Chosen, Wish};
use crate::connect::{tunnel_addresses, tunnel_to};
use crate::destination::Destination;
use crate::explain::model::{Answer, Decision, Explained, Quota, Range, Request, Response};
use crate::explain::stored::{self, Keyed};
use crate::explain::{Question, text};
use crate::fetch::{Forwarding, Purpose, hierarchy};
use crate::hit::{FastPath, Hit, fresh_hit};
use crate::own_answers::{self, purged_uri};
use crate::plan::{Form, Planner};
use crate::quota::judged;
use crate::request::{body_length, requested_uri};
use crate::routing::{Place, RequestContext, Routed};
use crate::rules;
use crate::snapshot::Snapshot;
use crate::step::{Ask, FromStore, Held, Step, What};
use crate::worker::Worker;

/// Explains a request.
pub(super) async fn explained(
    worker: &Rc<Worker>,
    snapshot: Rc<Snapshot>,
    question: &Question,
    head: RequestHead<'_>,
) -> Explained {
    let context = RequestContext {
        worker,
        snapshot,
        listener: &question.listener,
        peer: question.peer,
        original_destination: None,
        stream: None,
        tls: None,
        is_early: false,
        head: &head,
        look: Look::Peek,
    };
    let cache = &worker.cache;
    let (listener, peer) = (context.listener, context.peer.ip());
    let keyed = Keyed::of(&context);
    if let Some(key) = keyed.uri {
        // What is on the disk is read, as the request would have it read.
        swap_in(cache, key, keyed.parts(&context), &Wire(head.fields)).await;
    }
    let now_ms = time::wall_ms();
    let mut explanation = Explanator::new(&context, question, &keyed, now_ms);
    if is_refused_at(Stage::Head, &context) {
        explanation.refuses(Refusal::Quota, None);
        return explanation.out;
    }
    let snapshot = &context.snapshot;
    let path = FastPath { cache, snapshot, listener, peer, look: Look::Peek, now_ms };
    let hit = fresh_hit(&path, &head);
    if let Some(Hit { stored, key, .. }) = hit {
        explanation.serves(&Held::Whole(stored), key, &CacheStatus::HIT, rules::FRESH);
        return explanation.out;
    }
    let (place, mut routed) = (Place::new(), Routed::default());
    let step = match context.admitted(&mut routed).await {
        Ok(class) => context.route(class, &place, &mut routed).await,
        Err(refusal) => Err(refusal),
    };
    let (step, rule) = match step {
        Err(refusal) => (Step::Refuse(refusal), None),
        Ok(Step::LookUp(to)) => {
            let (uri, parts) = (cache.uri_key(to.uri()), context.key_parts(routed.route));
            let shares_cookies = context.shares_cookies(routed.route);
            let planner = Planner { cache, head: &head, parts, shares_cookies };
            let (step, rule) = planner.plan(to, uri, Look::Peek);
            (step, Some(rule))
        }
        Ok(step) => (step, None),
    };
    match step.needs_upstream() && is_refused_at(Stage::Fetch, &context) {
        true => explanation.refuses(Refusal::Quota, None),
        false => explanation.takes(step, routed.route, rule).await,
    }
    explanation.out
}

/// The quotas that apply to a request. Its user is not known here.
fn quotas(context: &RequestContext<'_>) -> Vec<Quota> {
    let of = |judged: Judged| {
        let Judged { quota: name, remaining, wait_ms, refused } = judged;
        Quota { name, remaining, wait_ms, refused }
    };
    let stages = [Stage::Head, Stage::User, Stage::Fetch].into_iter();
    stages.flat_map(|stage| judged(context, None, stage)).map(of).collect()
}

fn is_refused_at(stage: Stage, context: &RequestContext<'_>) -> bool {
    judged(context, None, stage).iter().any(|quota| quota.refused)
}

/// An explanation in the making.
struct Explanator<'t> {
    context: &'t RequestContext<'t>,
    out: Explained,
}

impl<'t> Explanator<'t> {
    /// Begins with the stored responses, whatever becomes of the request.
    fn new(
        context: &'t RequestContext<'t>,
        question: &Question,
        keyed: &Keyed,
        now_ms: u64,
    ) -> Explanator<'t> {
        let cache = &context.worker.cache;
        let uri = keyed.uri;
        let (varies_by, keys) = match uri.and_then(|uri| cache.store.peek(&uri)) {
            Some(Entry::Varies(varies)) => {
                (varies.names().into_iter().map(str::to_owned).collect(), varies.keys())
            }
            Some(Entry::Response(_) | Entry::Part(_)) => (Vec::new(), Vec::from_iter(uri)),
            Some(Entry::Uncacheable { .. }) | None => (Vec::new(), Vec::new()),
        };
        let variants = keys.into_iter().filter_map(|key| stored::at(cache, key, now_ms));
        let role = match context.listener.role {
            Role::Reverse => "reverse",
            Role::Forward => "forward",
        };
        let out = Explained {
            method: question.method.clone(),
            url: question.url.clone(),
            role: role.to_owned(),
            listener: context.listener.address.to_string(),
            key: uri.map(|key| key.to_string()),
            now_ms,
            decision: Decision::of("fetch", rules::URI_MISS),
            answer: Answer::default(),
            settings: keyed.settings(context),
            selected: uri.and_then(|uri| selected(context, uri, keyed, now_ms)),
            varies_by,
            variants: variants.collect(),
            request: None,
            on_failure: None,
            shed_ratio: context.worker.overload.share_ppm() as f64 / 1e6,
            quotas: quotas(context),
        };
        Explanator { context, out }
    }

    /// Describes a step. `rule` is the one that the store decided by, if it did.
    async fn takes(&mut self, step: Step<'_>, route: Option<usize>, rule: Option<Explanation>) {
        let head = &self.context.head;
        match step {
            Step::Purge => match purged_uri(self.context) {
                Ok(_) => {
                    self.does("purge", rules::PURGE);
                    self.out.answer.status = Some(200);
                }
                Err(refusal) => self.refuses(refusal, None),
            },
            Step::Connect => match tunnel(self.context).await {
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
            Step::AnswerWithDigest(_) => {
                self.does("answer", rules::DIGEST);
                self.own_answer(200);
            }
            Step::Refuse(refusal) => self.refuses(refusal, rule),
            Step::Upgrade(to, protocols) => {
                self.does("tunnel", rules::UPGRADE);
                self.sends(&self.context.forwarding(to, route), Purpose::Upgrade(&protocols));
            }
            Step::Pass(to, why, None) => {
                let rule = rule.unwrap_or_else(|| rules::bypass(why, self.bypassed(route), head));
                self.passes(&self.context.forwarding(to, route), "pass", why, rule);
            }
            Step::Pass(to, why, Some(_)) => {
                let rule = rule.unwrap_or(rules::UNSHARED);
                self.passes(&self.context.forwarding(to, route), "fetch", why, rule);
            }
            Step::ValidateByHead(to, of) => {
                let rule = rule.unwrap_or(rules::URI_MISS);
                self.passes(&self.context.forwarding(to, route), "validate", of.why, rule);
                let cache = &self.context.worker.cache;
                let whole = stored::whole(cache, of.key, &of.stored, self.out.now_ms);
                self.out.selected = Some(whole);
            }
            Step::ServeStored(to, FromStore { held, .. }) if self.is_unreadable(&held) => {
                match caching::only_if_cached(&Wire(head.fields)) {
                    true => self.refuses(Refusal::OnlyIfCached, Some(rules::ONLY_IF_CACHED)),
                    false => {
                        let forwarding = self.context.forwarding(to, route);
                        self.passes(&forwarding, "pass", Forward::VaryMiss, rules::UNREADABLE);
                    }
                }
            }
            Step::ServeStored(to, FromStore { key, held, cache_status, revalidate }) => {
                self.serves(&held, key, &cache_status, rule.unwrap_or(rules::FRESH));
                if let Some(ask) = revalidate {
                    self.fetches(&self.context.forwarding(to, route), &ask, true);
                }
            }
            Step::Fetch(to, ask) => {
                let forwarding = self.context.forwarding(to, route);
                let does = if ask.validated().is_some() { "validate" } else { "fetch" };
                self.does(does, rule.unwrap_or(rules::URI_MISS));
                self.begins(ask.why);
                self.fetches(&forwarding, &ask, false);
                let rule = forwarding.stale_rule(&ask, Failure::Unreachable);
                self.out.on_failure = rule.map(|rule| Decision::of("serve-stale", rule.explain()));
            }
            // An exchange comes to these from a look into the store or from a fetch, where the
            // explanation ends.
            Step::LookUp(_)
            | Step::LookUpAlone(_)
            | Step::LookUpAgain(_)
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
    fn bypassed(&self, route: Option<usize>) -> Option<Bypassed> {
        let route = self.context.snapshot.routes.get(route?)?;
        let settings = route.key.as_ref().filter(|_| route.config.store)?;
        settings.bypassed(self.context.head.fields)
    }

    fn does(&mut self, does: &str, rule: Explanation) {
        self.out.decision = Decision::of(does, rule);
    }

    /// An answer from the store, if the client can read it.
    fn serves(&mut self, held: &Held, key: Key, cache_status: &CacheStatus, rule: Explanation) {
        let (cache, now_ms) = (&self.context.worker.cache, self.out.now_ms);
        let head = self.context.head;
        let planner = Planner { cache, head, parts: None, shares_cookies: true };
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
            _ => formed(&planner, &held),
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
        let context = self.context;
        let uri = requested_uri(context.listener, context.head)?;
        Some(Wish::of(&context.snapshot, uri.realm.role, uri.reading(), context.head))
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
    fn passes(&mut self, forwarding: &Forwarding<'_>, does: &str, why: Forward, rule: Explanation) {
        self.does(does, rule);
        self.begins(why);
        self.sends(forwarding, Purpose::Pass(body_length(forwarding.head)));
    }

    /// What is known of the answer before it comes.
    fn begins(&mut self, why: Forward) {
        let cache_status = CacheStatus::forwarded(Outcome::Pass, why, None);
        let cache_status = Some(text(&cache_status.value()));
        self.out.answer = Answer { cache_status, ..Answer::default() };
    }

    /// A request on behalf of the store.
    fn fetches(&mut self, forwarding: &Forwarding<'_>, ask: &Ask, background: bool) {
        self.sends(forwarding, Purpose::Store(ask));
        let cache = &forwarding.worker.cache;
        let head = forwarding.head;
        let planner = Planner { cache, head, parts: None, shares_cookies: true };
        let key = planner.flight_key(ask);
        let in_flight = cache.flights.has(key) && !ask.is_for_one();
        let asks = forwarding.to.course.as_ref().filter(|course| {
            !background && ask.what == What::Whole && hierarchy::may_ask(forwarding, course)
        });
        let (digest, asks) = asks.map_or_else(Default::default, |course| {
            let peers = &course.peers.asked;
            match digests::having(peers, &hierarchy::url_for_peers(forwarding.to)) {
                Some(at) => (Some(peers[at].name.clone()), Vec::new()),
                None => {
                    let asked = peers.iter().filter(|peer| peer.is_asked());
                    (None, asked.map(|peer| peer.name.clone()).collect())
                }
            }
        });
        if let Some(request) = &mut self.out.request {
            *request = Request { asks, digest, in_flight, background, ..std::mem::take(request) };
        }
    }

    fn sends(&mut self, forwarding: &Forwarding<'_>, purpose: Purpose<'_>) {
        let mut request = forwarding.request(purpose);
        let course = forwarding.to.course.as_ref();
        if course.is_some_and(|course| course.to_parents) {
            request = hierarchy::for_parent(forwarding, &request);
        }
        let lines = request.bytes().split(|byte| *byte == b'\n');
        let lines = lines.map(|line| text(line.trim_ascii_end())).filter(|line| !line.is_empty());
        let lines = lines.collect();
        self.out.request = Some(Request { lines, ..goes_to(forwarding.to) });
    }
}

impl Decision {
    fn of(does: &str, rule: Explanation) -> Decision {
        Decision {
            does: does.to_owned(),
            rule: rule.token.to_owned(),
            clause: rule.clause.to_owned(),
            text: rule.text.to_owned(),
        }
    }
}

/// Where a tunnel would lead.
async fn tunnel(context: &RequestContext<'_>) -> Result<Request, Refusal> {
    let peers = context.snapshot.peers.as_ref();
    let hierarchy = match tunnel_to(context)? {
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
    let addresses = tunnel_addresses(context).await?;
    Ok(Request { hierarchy, addresses: shown(&addresses), ..Request::default() })
}

fn shown(addresses: &[SocketAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

/// Where a request would go.
fn goes_to(to: &Destination<'_>) -> Request {
    let hierarchy = to.course.as_ref().map(|course| course.rule.to_owned());
    let owner = to.share.as_ref().map(Share::owner);
    Request { hierarchy, owner, ..sent_to(&to.to) }
}

fn sent_to(to: &To) -> Request {
    match to {
        To::Addresses(list, tls) => {
            Request { addresses: shown(list), tls: tls.is_some(), ..Request::default() }
        }
        To::Group(group, key, _) => {
            let request = Request { group: Some(group.config.name.clone()), ..Request::default() };
            match group.predicted(*key) {
                Ok(server) => Request {
                    server: Some(server.authority),
                    addresses: shown(&server.addresses),
                    tls: server.tls,
                    ..request
                },
                Err(blocked) => Request { fault: Some(blocked.text().to_owned()), ..request },
            }
        }
    }
}

/// The form in which a stored response is sent.
fn formed(planner: &Planner<'_>, held: &Held) -> Answer {
    let ranges = |ranges: Vec<caching::range::ByteRange>| {
        ranges.iter().map(|range| Range { first: range.first, last: range.last }).collect()
    };
    let whole = |stored: &Arc<Stored>| {
        let (status, of) = match planner.form(&stored.head, stored.body_bytes) {
            Form::NotModified => (304, Answer::default()),
            Form::Unsatisfied => (416, Answer::default()),
            Form::Parts(parts) => (206, Answer { ranges: ranges(parts), ..Answer::default() }),
            Form::Whole(why) => {
                let asked = planner.head.fields.has(http1::Name::Range);
                let why_whole = asked.then(|| why.explain().text.to_owned());
                (stored.head.status, Answer { why_whole, ..Answer::default() })
            }
        };
        Answer { status: Some(status), ..of }
    };
    match held {
        Held::Whole(stored) => whole(stored),
        Held::Part(partial) if planner.is_not_modified(&partial.head) => {
            Answer { status: Some(304), ..Answer::default() }
        }
        Held::Part(partial) => {
            let parts = planner.held_ranges(partial).unwrap_or_default();
            Answer { status: Some(206), ranges: ranges(parts), ..Answer::default() }
        }
    }
}

/// The response that a look into the store finds, even if the request does not get that far.
fn selected(
    context: &RequestContext<'_>,
    uri: Key,
    keyed: &Keyed,
    now_ms: u64,
) -> Option<Response> {
    let (cache, wire) = (&context.worker.cache, Wire(context.head.fields));
    let (look, parts) = (Look::Peek, keyed.parts(context));
    match cache.look_by_parts(uri, &Query { look, parts, request: &wire, now_ms }) {
        Lookup::Found(found, key) => Some(stored::whole(cache, key, &found, now_ms)),
        Lookup::Part(partial, key) => Some(stored::part(cache, key, &partial, now_ms)),
        Lookup::Absent(_) | Lookup::Unshared(_) | Lookup::Bypassed => None,
    }
}
