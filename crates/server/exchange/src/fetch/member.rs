//! Asking another member of the cluster for a response that is not stored here.
//!
//! Each URL has one member that is responsible for it, its owner, so that the members' memories
//! are one. A request that misses here goes to the owner as the client sent it, and its answer goes
//! to the client as it comes. Only what is requested here again and again ([`crate::hot`]), or is
//! stored here already and has become stale, is fetched on behalf of our own store. A server that
//! is none of the members stores nothing.
//!
//! The owner applies the route and the settings for keys: what it gets has nothing that they add or
//! remove. Its answer has been through the rules on responses. If it does not answer, the next
//! member is asked and then the origin, as if there were no cluster; so they are for the rest of a
//! body that breaks off ([`super::continued`]). All of this concerns GET and HEAD alone, which may
//! be repeated.

use http1::{Method, Name, ResponseHead, Target, write};
use outcome::Fault;
use upstream::members::Member;
use upstream::{Answer, BodyLength, To};

use crate::client::Client;
use crate::cluster::{CLIENT, REFUSED, Share, Used, has_for_hop};
use crate::fetch::{Purpose, continued, hierarchy};
use crate::request::{Request, says_trailers};
use crate::step::{Ask, Step, What};
use crate::worker::Worker;
use crate::{Exchange, unless_left};

/// The step that follows, if another member answers in place of the origin and nothing is stored
/// here: its answer. Otherwise the given step.
#[cold]
pub(crate) async fn passed_on<C: Client>(exchange: &mut Exchange<'_, C>, step: Step) -> Step {
    let (why, ask) = match &step {
        Step::Fetch(ask) => (ask.why, Some(ask)),
        Step::Pass(why, None) => (*why, None),
        _ => return step,
    };
    let (request, left) = (&exchange.request, exchange.left());
    let share = request.to().share.as_ref().filter(|share| share.used.get() == Used::None);
    let Some(share) = share else { return step };
    let worker = &request.worker;
    let may_keep = share.may_keep();
    let otherwise = |step| if may_keep { step } else { Step::Pass(why, None) };
    if share.asked().next().is_none() {
        return otherwise(step);
    }
    if let Some(ask) = ask.filter(|_| may_keep) {
        let is_hot = || share.is_hot(ask.uri, || worker.cache.store.len());
        let is_kept = ask.held.is_some() || (ask.what == What::Whole && is_hot());
        if is_kept {
            return step;
        }
    }
    worker.io.counters.cluster_passed.add(1);
    let client = &mut exchange.client;
    let mut interim = |head: &ResponseHead<'_>| client.interim(head);
    let purpose = Purpose::Pass(BodyLength::None);
    match unless_left(left, answer(request, share, purpose, &mut interim)).await {
        Ok(Some(answer)) => Step::Relay(Box::new(answer), why, Some(RULE)),
        Ok(None) => otherwise(step),
        Err(left) => Step::Refuse(left),
    }
}

/// The detail in `Cache-Status`.
const RULE: &str = "cluster";

/// Fetches a response for the store, from another member if one is responsible.
pub(super) async fn fetch(
    request: &Request,
    ask: &Ask,
    message: &upstream::Request,
    interim: &mut dyn FnMut(&ResponseHead<'_>),
) -> Result<Answer, Fault> {
    match for_store(request, ask, interim).await {
        Some(answer) => Ok(answer),
        None => hierarchy::fetch(request, ask, message, interim).await,
    }
}

/// The same without peers that are asked for what they have stored.
pub(super) async fn exchange(
    request: &Request,
    ask: &Ask,
    message: &upstream::Request,
    interim: &mut dyn FnMut(&ResponseHead<'_>),
) -> Result<Answer, Fault> {
    match for_store(request, ask, interim).await {
        Some(answer) => Ok(answer),
        None => hierarchy::exchange(request, message, interim).await,
    }
}

async fn for_store(
    request: &Request,
    ask: &Ask,
    interim: &mut dyn FnMut(&ResponseHead<'_>),
) -> Option<Answer> {
    let share = request.to().share.as_ref()?;
    let is_asked = share.asked().next().is_some();
    if !is_asked || share.used.get() != Used::None {
        return None;
    }
    let answered = Box::pin(answer(request, share, Purpose::Store(ask), interim)).await;
    request.worker.io.counters.cluster_kept.add(u64::from(answered.is_some()));
    answered
}

/// The answer of another member, or `None` if the origin is to be asked from here.
async fn answer(
    request: &Request,
    share: &Share,
    purpose: Purpose<'_>,
    interim: &mut dyn FnMut(&ResponseHead<'_>),
) -> Option<Answer> {
    let (worker, message) = (&request.worker, message(request, purpose));
    for member in share.asked() {
        match ask(worker, member, &message, interim).await {
            Ok(Some(mut answer)) => match continued::is_safe(worker, &mut answer).await {
                Ok(()) => {
                    share.used.set(Used::Member);
                    return Some(answer);
                }
                Err(fault) => {
                    tracing::debug!(member = %member.address, %fault, "a body broke off");
                    worker.io.counters.cluster_continued.add(1);
                    if has_had_its_time(fault) {
                        break;
                    }
                }
            },
            Ok(None) => {}
            Err(fault) if has_had_its_time(fault) => break,
            Err(_) => {}
        }
    }
    share.used.set(Used::Origin);
    None
}

/// Whether no other member is asked after this fault: the request has waited for a whole time-out,
/// or there is no descriptor for more.
pub(super) fn has_had_its_time(fault: Fault) -> bool {
    matches!(fault, Fault::Timeout | Fault::NoDescriptor)
}

/// The answer of a member; `None` if it could not, or would not, carry out the request.
pub(super) async fn ask(
    worker: &Worker,
    member: &Member,
    message: &upstream::Request,
    interim: &mut dyn FnMut(&ResponseHead<'_>),
) -> Result<Option<Answer>, Fault> {
    let to = To::Group(member.group.clone(), 0, None);
    let answered = upstream::exchange(&worker.upstreams, &to, message, interim);
    match continued::while_up(Some(&member.group), answered).await {
        Ok(mut answer) if is_refusal(&answer) => {
            tracing::debug!(member = %member.address, "a member refused a request");
            // The connection can be used again if all of the refusal is here.
            let _ = answer.body.take_ready(&worker.upstreams, &mut |_| {});
            Ok(None)
        }
        Ok(answer) => Ok(Some(answer)),
        Err(fault) => {
            tracing::debug!(member = %member.address, %fault, "a member did not answer");
            worker.io.counters.cluster_failed.add(1);
            Err(fault)
        }
    }
}

/// Whether a member could not, or would not, carry out the request itself, so that another one may:
/// it has too much to do, it stops, or it has no server for it. Its other refusals, such as that
/// its origin is too slow, are its answer. What we add to the request may have made it too long;
/// that it says without the field that every response from a store or an origin has.
fn is_refusal(answer: &Answer) -> bool {
    let head = answer.head.head();
    match head.status {
        503 => has_for_hop(&head.fields, REFUSED),
        400 | 414 | 431 => head.fields.values(b"Cache-Status").next().is_none(),
        _ => false,
    }
}

/// Whether this is a step that another member may take.
pub(crate) fn may_take(request: &Request, step: &Step) -> bool {
    let is_of_get = matches!(step, Step::Fetch(_) | Step::Pass(_, None));
    is_of_get && request.to().share.is_some()
}

/// The request as another member is to see it: with its URL, and as the client has sent it. It has
/// no `Via` from us: the cluster is one proxy, and its members may have one name.
pub(crate) fn message(request: &Request, purpose: Purpose<'_>) -> upstream::Request {
    let (worker, head, to, peer) = (&request.worker, request.head(), request.to(), request.peer);
    let is_ours = purpose.is_ours();
    let for_identity = is_ours && request.asks_for_identity(purpose);
    let method = match is_ours {
        true => (Method::Get, &b"GET"[..]),
        false => (head.method, head.method_bytes),
    };
    let target = Target::Origin { path_and_query: to.path() };
    let mut message = upstream::Request::new(worker.io.buffer(), method, &target, to.authority());
    let out = message.lines();
    write::end_to_end(out, &head.fields, |field| {
        let left_out = match field.id() {
            Name::Host | Name::ContentLength | Name::ProxyAuthorization => true,
            Name::AcceptEncoding if for_identity => true,
            // What a client writes there means nothing.
            _ if field.name().eq_ignore_ascii_case(CLIENT.as_bytes()) => true,
            _ => is_ours && caching::is_condition_or_range(field.name()),
        };
        !left_out
    });
    request.append_own(out, purpose);
    if for_identity {
        out.extend_from_slice(b"Accept-Encoding: identity\r\n");
    }
    if says_trailers(&head) && !is_ours {
        out.extend_from_slice(b"Connection: TE\r\nTE: trailers\r\n");
    }
    out.extend_from_slice(format!("Connection: {CLIENT}\r\n{CLIENT}: {peer}\r\n").as_bytes());
    message.end(BodyLength::None);
    let url = [to.realm.scheme.name().as_bytes(), b"://", to.authority(), to.path()].concat();
    message.with_lines(worker.io.buffer(), Some(&url), b"")
}
