//! The way of a request, told instead of gone.

use std::rc::Rc;
use std::sync::Arc;

use caching::{Explain, Explanation, Failure};
use http1::RequestHead;
use runtime::time;
use store::Key;

use super::model::{Answer, Decision, Explained, Range, Request, Response};
use super::question::Question;
use super::{stored, text};
use crate::ask::{Ask, Held};
use crate::connection::at_once;
use crate::destination::Destination;
use crate::ended::Ended;
use crate::exchange::because;
use crate::exchange::plan::{Form, Plan, Planning};
use crate::exchange::way::{Case, Seen, Way};
use crate::fetch::{Asking, Purpose};
use crate::fixed;
use crate::purge_method;
use crate::request::destination;
use crate::request_body::RequestBody;
use crate::site::Site;
use crate::told::{Told, refused_value};
use crate::worker::Worker;
use cache::Look;
use cache::Lookup;
use cache::disk::swap_in::swap_in;
use cache::stored::{Entry, Stored, Wire};
use config::{Action, Role};
use outcome::Outcome;
use outcome::Refusal;
use upstream::To;

/// Explains a request.
pub(super) async fn explained(
    worker: &Rc<Worker>,
    site: Rc<Site>,
    question: &Question,
    head: RequestHead<'_>,
) -> Explained {
    let case = Case {
        worker,
        site,
        door: &question.door,
        peer: question.peer,
        told_to: None,
        stream: None,
        head,
        look: Look::Peek,
    };
    let shared = &worker.shared;
    if let Some(asked) = destination(case.door, &case.head) {
        // What is on the disk is read, as the request would have it read.
        let uri = shared.uri_key(asked.realm, asked.authority, asked.path);
        swap_in(shared, uri, &Wire(head.fields)).await;
    }
    let now_ms = time::wall_ms();
    let mut telling = Telling::new(&case, question, now_ms);
    if let Some((found, key)) =
        at_once(worker, case.door, case.peer.ip(), &head, Look::Peek, now_ms)
    {
        telling.serves(&Held::Whole(found), key, &Told::HIT, because::FRESH);
        return telling.out;
    }
    let mut seen = Seen::default();
    match case.way(&mut seen).await {
        Err(ended) => telling.ends(&ended),
        Ok(Way::Purge) => telling.purges(),
        Ok(Way::Connect) => telling.tunnels().await,
        Ok(Way::Upgrade(destination, protocols)) => {
            telling.does("tunnel", because::UPGRADE);
            telling.asks(&case.asking(&destination, seen.route), Purpose::Upgrade(&protocols));
        }
        Ok(Way::Past(destination, why)) => {
            let asking = case.asking(&destination, seen.route);
            telling.passes(&asking, why, because::past(why, &head));
        }
        Ok(Way::Stored(destination)) => {
            let uri = shared.uri_key(destination.realm, destination.authority, destination.path);
            let planning = Planning { shared, head };
            let (plan, rule) = planning.plan(uri, Look::Peek);
            telling.planned(&case.asking(&destination, seen.route), plan, rule);
        }
    }
    telling.out
}

/// An explanation in the making.
struct Telling<'t> {
    case: &'t Case<'t>,
    out: Explained,
}

impl<'t> Telling<'t> {
    /// With what is stored, whatever becomes of the request.
    fn new(case: &'t Case<'t>, question: &Question, now_ms: u64) -> Telling<'t> {
        let shared = &case.worker.shared;
        let uri = destination(case.door, &case.head)
            .map(|asked| shared.uri_key(asked.realm, asked.authority, asked.path));
        let (varies_by, keys) = match uri.and_then(|uri| shared.store.peek(&uri)) {
            Some(Entry::Varies(varies)) => {
                (varies.names().into_iter().map(str::to_owned).collect(), varies.keys())
            }
            Some(Entry::Response(_) | Entry::Part(_)) => (Vec::new(), Vec::from_iter(uri)),
            Some(Entry::Uncacheable { .. }) | None => (Vec::new(), Vec::new()),
        };
        let variants = keys.into_iter().filter_map(|key| stored::at(shared, key, now_ms));
        let out = Explained {
            method: question.method.clone(),
            url: question.url.clone(),
            role: match case.door.role {
                Role::Reverse => "reverse".to_owned(),
                Role::Forward => "forward".to_owned(),
            },
            listener: case.door.address.to_string(),
            key: uri.map(|key| key.to_string()),
            now_ms,
            decision: Decision::of("fetch", because::URI_MISS),
            answer: Answer::default(),
            selected: uri.and_then(|uri| selected(case, uri, now_ms)),
            varies_by,
            variants: variants.collect(),
            request: None,
            on_failure: None,
            shed_ratio: case.worker.overload.share_ppm() as f64 / 1e6,
        };
        Telling { case, out }
    }

    fn does(&mut self, does: &str, rule: Explanation) {
        self.out.decision = Decision::of(does, rule);
    }

    /// From the store.
    fn serves(&mut self, held: &Held, key: Key, told: &Told, rule: Explanation) {
        let shared = &self.case.worker.shared;
        let planning = Planning { shared, head: self.case.head };
        let Some(meta) = held.meta() else { return };
        let fresh = meta.is_fresh(self.out.now_ms);
        self.does(if fresh { "serve" } else { "serve-stale" }, rule);
        if fresh {
            let source = meta.freshness.lifetime_source.explain().text;
            self.out.decision.text += &format!(" ({source})");
        }
        let age = meta.freshness.age_seconds(self.out.now_ms);
        self.out.answer = Answer {
            cache_status: Some(text(&told.value())),
            exact: true,
            age_seconds: Some(age),
            ..formed(&planning, held)
        };
        self.out.selected = stored::held(shared, key, held, self.out.now_ms);
    }

    /// With an answer of our own.
    fn ends(&mut self, ended: &Ended) {
        match ended {
            Ended::Refused(refusal) => self.refuses(*refusal, None),
            Ended::Fixed(action) => {
                self.does("answer", because::ROUTE);
                self.own_answer(fixed::status_of(action));
                if let Action::Redirect { location, .. } = &**action {
                    self.out.decision.text += &format!(": to {location}");
                }
            }
            // Nobody is there who could leave, and nothing was sent.
            Ended::Gone(_) | Ended::Over(_) | Ended::BodyLost | Ended::Torn(_) => {}
        }
    }

    fn refuses(&mut self, refusal: Refusal, rule: Option<Explanation>) {
        let of_list = Explanation { token: refusal.name(), clause: "", text: refusal.text() };
        self.does("refuse", rule.unwrap_or(of_list));
        self.own_answer(refusal.status());
        self.out.answer.proxy_status = Some(refused_value(refusal));
    }

    /// It comes out of no cache, and tells of none.
    fn own_answer(&mut self, status: u16) {
        self.out.answer = Answer { status: Some(status), exact: true, ..Answer::default() };
    }

    fn purges(&mut self) {
        match purge_method::of_request(self.case) {
            Ok(_) => {
                self.does("purge", because::PURGE);
                self.out.answer.status = Some(200);
            }
            Err(refusal) => self.refuses(refusal, None),
        }
    }

    async fn tunnels(&mut self) {
        match crate::connect::connect_to(self.case).await {
            Ok(addresses) => {
                self.does("tunnel", because::TUNNEL);
                self.out.answer.status = Some(200);
                let addresses = addresses.iter().map(ToString::to_string).collect();
                self.out.request = Some(Request { addresses, ..Request::nothing() });
            }
            Err(ended) => self.ends(&ended),
        }
    }

    /// To the origin, past the store.
    fn passes(
        &mut self,
        asking: &Asking<'_>,
        why: caching::cache_status::Forward,
        rule: Explanation,
    ) {
        self.does("pass", rule);
        self.begins(why);
        let body = RequestBody::new(asking.worker, asking.head.body(), Vec::new());
        self.asks(asking, Purpose::Pass(&body));
    }

    /// What is known of the answer before it comes.
    fn begins(&mut self, why: caching::cache_status::Forward) {
        let told = Told::asked(Outcome::Pass, why, None);
        self.out.answer = Answer { cache_status: Some(text(&told.value())), ..Answer::default() };
    }

    fn planned(&mut self, asking: &Asking<'_>, plan: Plan, rule: Explanation) {
        match plan {
            Plan::Serve { held, key, told, behind } => {
                self.serves(&held, key, &told, rule);
                if let Some(ask) = behind {
                    self.asks_for_store(asking, &ask);
                    if let Some(request) = &mut self.out.request {
                        request.behind = true;
                    }
                }
            }
            Plan::Pass(why) => self.passes(asking, why, rule),
            Plan::Head { why, key, stored: held } => {
                self.passes(asking, why, rule);
                self.does("validate", rule);
                let shared = &asking.worker.shared;
                self.out.selected = Some(stored::whole(shared, key, &held, self.out.now_ms));
            }
            Plan::Refuse => self.refuses(Refusal::OnlyIfCached, Some(rule)),
            Plan::Ask(ask) => {
                let does = if ask.validated().is_some() { "validate" } else { "fetch" };
                self.does(does, rule);
                self.begins(ask.why);
                self.asks_for_store(asking, &ask);
                let stand_in = asking.stand_in(&ask, Failure::Unreachable);
                self.out.on_failure =
                    stand_in.map(|(rule, _)| Decision::of("serve-stale", rule.explain()));
            }
        }
    }

    fn asks_for_store(&mut self, asking: &Asking<'_>, ask: &Ask) {
        self.asks(asking, Purpose::Store(ask));
        let key = Planning { shared: &asking.worker.shared, head: asking.head }.flight_key(ask);
        let under_way = asking.worker.shared.flights.has(key) && !ask.is_for_one();
        if let Some(request) = &mut self.out.request {
            request.under_way = under_way;
        }
    }

    fn asks(&mut self, asking: &Asking<'_>, purpose: Purpose<'_>) {
        let bytes = asking.bytes(purpose);
        let lines = bytes.split(|byte| *byte == b'\n').map(|line| text(line.trim_ascii_end()));
        let lines = lines.filter(|line| !line.is_empty()).collect();
        self.out.request = Some(Request { lines, ..goes_to(asking.destination) });
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

impl Request {
    fn nothing() -> Request {
        Request {
            behind: false,
            under_way: false,
            group: None,
            server: None,
            addresses: Vec::new(),
            tls: false,
            fault: None,
            lines: Vec::new(),
        }
    }
}

/// Whom a request would go to.
fn goes_to(destination: &Destination<'_>) -> Request {
    let addresses = |list: &[std::net::SocketAddr]| list.iter().map(ToString::to_string).collect();
    match &destination.to {
        To::Addresses(list, tls) => {
            Request { addresses: addresses(list), tls: tls.is_some(), ..Request::nothing() }
        }
        To::Group(group, key, _) => {
            let request = Request { group: Some(group.config.name.clone()), ..Request::nothing() };
            match group.foreseen(*key) {
                Ok(server) => Request {
                    server: Some(server.authority),
                    addresses: addresses(&server.addresses),
                    tls: server.tls,
                    ..request
                },
                Err(blocked) => Request { fault: Some(blocked.text().to_owned()), ..request },
            }
        }
    }
}

/// The form in which what is held is sent.
fn formed(planning: &Planning<'_>, held: &Held) -> Answer {
    let ranges = |ranges: Vec<caching::range::ByteRange>| {
        ranges.iter().map(|range| Range { first: range.first, last: range.last }).collect()
    };
    let whole = |stored: &Arc<Stored>| {
        let (status, of) = match planning.form(&stored.head, stored.body_bytes) {
            Form::NotModified => (304, Answer::default()),
            Form::Unsatisfied => (416, Answer::default()),
            Form::Parts(parts) => (206, Answer { ranges: ranges(parts), ..Answer::default() }),
            Form::Whole(why) => {
                let asked = planning.head.fields.has(http1::Name::Range);
                let why_whole = asked.then(|| why.explain().text.to_owned());
                (stored.head.status, Answer { why_whole, ..Answer::default() })
            }
        };
        Answer { status: Some(status), ..of }
    };
    match held {
        Held::Nothing => Answer::default(),
        Held::Whole(stored) => whole(stored),
        Held::Part(partial) if planning.is_not_modified(&partial.head) => {
            Answer { status: Some(304), ..Answer::default() }
        }
        Held::Part(partial) => {
            let parts = planning.held_ranges(partial).unwrap_or_default();
            Answer { status: Some(206), ranges: ranges(parts), ..Answer::default() }
        }
    }
}

/// What a look-up finds, to be told also where the request does not get so far.
fn selected(case: &Case<'_>, uri: Key, now_ms: u64) -> Option<Response> {
    let shared = &case.worker.shared;
    match shared.look(Look::Peek, uri, &Wire(case.head.fields), now_ms) {
        Lookup::Found(found, key) => Some(stored::whole(shared, key, &found, now_ms)),
        Lookup::Part(partial, key) => stored::held(shared, key, &Held::Part(partial), now_ms),
        Lookup::Absent(_) | Lookup::Uncacheable => None,
    }
}
