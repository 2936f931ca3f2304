//! Asking another member of the cluster for a response that is not stored here.
//!
//! Each URL has one responsible member, its owner, so that the memories of the members together are
//! nearly one memory. A request that misses here goes to the owner as the client sent it, and the
//! owner's answer goes to the client as it arrives. A response is fetched for this member's own
//! store only if its URL is requested here very often ([`cache::hot`]), or if it is already stored
//! here and has become stale. A server that is not a member stores nothing.
//!
//! The owner applies the route and the settings for keys. So the request to the owner has none of
//! the changes that the route or the settings make. The owner has already applied the rules on
//! responses to its answer. If the owner does not answer, the request goes to the next member, and
//! then to the origin as if there were no cluster. The remainder of a body that breaks off is
//! requested in the same order ([`super::continued`]). All of this concerns only GET and HEAD,
//! which may be repeated.

use http1::ResponseHead;
use outcome::Fault;
use upstream::{Answer, BodyLength};

use crate::client::Client;
use crate::cluster::{Share, Used};
use crate::fetch::member::{ask, has_had_its_time, message};
use crate::fetch::{Purpose, continued, hierarchy};
use crate::request::Request;
use crate::step::{Ask, Step, What};
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

/// Whether this is a step that another member may take.
pub(crate) fn may_take(request: &Request, step: &Step) -> bool {
    let is_of_get = matches!(step, Step::Fetch(_) | Step::Pass(_, None));
    is_of_get && request.to().share.is_some()
}
