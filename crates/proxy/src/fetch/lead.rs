//! Leading a flight: asking the origin on behalf of all who wait, and answering the one who leads.

use caching::{Explain, Failure};
use http1::{Method, Version};
use store::Key;

use crate::ask::Ask;
use crate::destination::Destination;
use crate::ended::{Done, Ended};
use crate::exchange::Exchange;
use crate::fetch::Purpose;
use crate::fetch::land::{Landed, land, rule};
use crate::fetch::pass::{pass, relay};
use crate::told::Told;
use cache::flight::{Lead, Settled};
use outcome::Fault;
use upstream::{self, Outgoing};

/// Asks the origin, tells the others, and answers this request. `look_again`: the URI under which
/// another core may have stored an answer between the look into the store and the joining.
pub(crate) async fn lead(
    exchange: &mut Exchange<'_>,
    destination: &Destination<'_>,
    ask: Ask,
    lead: Lead,
    look_again: Option<Key>,
) -> Result<Done, Ended> {
    if let Some(stored) = look_again.and_then(|uri| exchange.planning().look_again(uri)) {
        lead.settle(Settled::Stored(stored.clone()));
        return exchange.serve_stored(&stored, Told::HIT, true, b"").await;
    }
    exchange.forwarded = Some(ask.why);
    let asking = exchange.asking(destination);
    let bytes = asking.bytes(Purpose::Store(&ask));
    let outgoing = Outgoing { bytes: &bytes, method: Method::Get, repeatable: true };
    // Interim responses are for the one who asked; they are neither stored nor told to others.
    let wants_interim = exchange.head.version == Version::Http11;
    let client = &mut exchange.client;
    let mut interim = |bytes: &[u8]| {
        if wants_interim {
            client.offer(&[bytes]);
        }
    };
    let to = &destination.to;
    let answer = upstream::exchange(&exchange.worker.upstreams, to, outgoing, &mut interim).await;
    let answer = match answer {
        Ok(answer) => asking.ruled(answer),
        Err(fault) => {
            tracing::debug!(%fault, "no answer");
            exchange.worker.counters.upstream_errors.add(1);
            lead.settle(Settled::Failed(fault));
            return fail(exchange, destination, &ask, fault).await;
        }
    };
    let upstream = answer.body.address();
    let done = match land(&asking, &ask, lead, answer) {
        Landed::Stored { stored, told, own_lines } => {
            exchange.serve_stored(&stored, told, false, &own_lines).await?
        }
        Landed::Confirmed { held, told } => exchange.serve_held(&held, told).await?,
        Landed::Streaming { streaming, told, own_lines } => {
            let (reader, head) = (&streaming.reader, &streaming.head);
            exchange.stream_along(reader, head, told, upstream, &own_lines).await?
        }
        Landed::StandIn { told } => return exchange.serve_held(&ask.held, told).await,
        Landed::NotStored { answer, why } => {
            return relay(exchange, *answer, ask.why, Some(rule(why))).await;
        }
        Landed::Unfit => return pass(exchange, destination, ask.why).await,
        Landed::Failed(fault) => return Err(Ended::fault(fault)),
    };
    Ok(Done { upstream, ..done })
}

/// The origin gave no answer: what is held stands in if the rules allow it.
pub(crate) async fn fail(
    exchange: &mut Exchange<'_>,
    destination: &Destination<'_>,
    ask: &Ask,
    fault: Fault,
) -> Result<Done, Ended> {
    match exchange.asking(destination).stand_in(ask, Failure::Unreachable) {
        Some((rule, ttl)) => exchange.serve_held(&ask.held, Told::stale(rule, ttl)).await,
        None => Err(Ended::fault(fault)),
    }
}

/// Another's request was answered with an error: what is held stands in, or this one asks itself.
pub(crate) async fn declined(
    exchange: &mut Exchange<'_>,
    destination: &Destination<'_>,
    ask: &Ask,
    status: u16,
) -> Result<Done, Ended> {
    match exchange.asking(destination).stand_in(ask, Failure::Status(status)) {
        Some((rule, ttl)) => {
            tracing::debug!(status, rule = rule.explain().token, "a stale response stands in");
            exchange.serve_held(&ask.held, Told::stale(rule, ttl)).await
        }
        None => pass(exchange, destination, ask.why).await,
    }
}
