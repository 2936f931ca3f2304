//! The method `PURGE`.

use cache::key::StoredUri;
use cache::paths::Paths;
use cache::realm::normal_authority;
use cache::stored::Wire;
use caching::FieldSource;
use outcome::{Outcome, Refusal};
use policy::reading::Reading;
use runtime::time;

use super::Exchange;
use super::fetch::hierarchy;
use super::routing::RequestContext;
use super::step::Ending;
use crate::client::{Client, Own};
use crate::purged::{Done, Target};
use crate::request::{RequestedUri, requested_uri};
use crate::spread;

/// Purges the requested URL with all its variants, or marks it stale if `Soft-Purge` says so.
pub(crate) async fn purge<C: Client>(exchange: &mut Exchange<'_, C>) -> Result<Ending, Refusal> {
    let RequestedUri { realm, authority, path } = purged_uri(&exchange.context)?;
    // Not only on reverse listeners: a purge is of all roles.
    let stored = exchange.context.snapshot.routes.stored_path(Reading::of(authority, path));
    let fields = Wire(exchange.context.head.fields);
    let soft = ["soft-purge", "fastly-soft-purge"].iter().any(|name| is_yes(fields.first(name)));
    let cache = &exchange.context.worker.cache;
    let host = normal_authority(realm, authority);
    let paths = Paths::new(path, &stored);
    let (mark, changes) = cache.purge_url(&host, paths, soft, time::wall_ms());
    let notices = changes.notices();
    let durable = changes.durable(cache).await;
    let durable = cache.disk.is_some().then_some(durable);
    let RequestContext { worker, snapshot, .. } = &exchange.context;
    let cluster = Box::pin(spread::purge(worker, snapshot, notices)).await;
    if snapshot.peers.is_some() && !soft {
        Box::pin(hierarchy::clear_purged(worker, snapshot, &host, path)).await;
    }
    let url = StoredUri::new(realm, authority, path).url();
    let purged = Target::Url(String::from_utf8_lossy(&url).into_owned());
    let done = Done { purged, soft, generation: mark.generation, durable, cluster };
    // It fails only for maps whose keys are no strings.
    let text = serde_json::to_string(&done).unwrap_or_else(|error| error.to_string()) + "\n";
    let own = Own {
        status: done.status(),
        lines: b"Content-Type: application/json\r\n",
        content_length: Some(text.len() as u64),
        more_lines: b"Cache-Control: no-store\r\n",
    };
    Ok(exchange.answer(own, &text, Outcome::Own).await)
}

/// The URI that a request purges, or why it purges nothing.
pub(crate) fn purged_uri<'x>(context: &RequestContext<'x>) -> Result<RequestedUri<'x>, Refusal> {
    if !context.snapshot.config.purge.allows(context.peer.ip()) {
        return Err(Refusal::PurgeFrom);
    }
    requested_uri(context.listener, context.head).ok_or(Refusal::PurgeTarget)
}

fn is_yes(value: Option<&[u8]>) -> bool {
    value.is_some_and(|value| matches!(value.trim_ascii(), b"1" | b"?1" | b"true"))
}
