//! What the other members of a cluster say to this one, besides the requests of their clients.
//!
//! | call | what it does |
//! | --- | --- |
//! | `GET /healthz` | 200, or 503 while the server drains |
//! | `PUT /purge` | purges what the body names; the answer comes when no crash brings it back |
//! | `PURGE http://host/path` | a client has changed this URL elsewhere: its responses are removed |
//!
//! Only members connect to this listener. What never happens: a call makes this member call another
//! one; more of a body is kept than a limit.

use cache::changes::Changes;
use cache::key::StoredUri;
use config::HEALTH_PATH;
use http1::{Method, Target};
use outcome::Outcome;

use crate::Exchange;
use crate::client::{Client, Own, RequestBody};
use crate::limits::PURGE_MESSAGE_BYTES_MAX;
use crate::request::{RequestedUri, requested_uri};
use crate::spread::PURGE_PATH;
use crate::step::Ending;

/// Answers a call; `None`: it is the request of a client.
pub(crate) async fn answer<C: Client>(
    exchange: &mut Exchange<'_, C>,
    body: &mut C::Body,
) -> Option<Ending> {
    let head = exchange.context.head;
    let status = match (head.method, head.target) {
        (Method::Purge, Target::Absolute { .. }) => changed(exchange).await,
        (_, Target::Absolute { .. }) => return None,
        (Method::Put, Target::Origin { path_and_query: PURGE_PATH }) => {
            purged(exchange, body).await
        }
        (Method::Get, Target::Origin { path_and_query })
            if path_and_query == HEALTH_PATH.as_bytes() =>
        {
            if exchange.context.worker.io.is_draining() { 503 } else { 200 }
        }
        _ => 404,
    };
    let own = Own {
        status,
        lines: b"Content-Type: text/plain\r\n",
        content_length: Some(0),
        more_lines: b"Cache-Control: no-store\r\n",
    };
    Some(exchange.answer(own, "", Outcome::Own).await)
}

/// Purges what the body names.
async fn purged<C: Client>(exchange: &mut Exchange<'_, C>, body: &mut C::Body) -> u16 {
    let mut notices = Vec::new();
    loop {
        let pulled = body.pull(&mut |part| notices.extend_from_slice(part)).await;
        match pulled {
            _ if notices.len() > PURGE_MESSAGE_BYTES_MAX => return 413,
            Ok(true) => break,
            Ok(false) => {}
            Err(_) => return 400,
        }
    }
    exchange.has_body = false;
    let cache = &exchange.context.worker.cache;
    match cache.apply_all(&notices) {
        Some(changes) => {
            changes.durable(cache).await;
            200
        }
        None => 400,
    }
}

/// Removes the responses of a URL, as it was requested and as its route stores it.
async fn changed<C: Client>(exchange: &mut Exchange<'_, C>) -> u16 {
    let context = &exchange.context;
    let Some(uri) = requested_uri(context.listener, context.head) else { return 400 };
    let RequestedUri { realm, authority, path } = uri;
    let cache = &context.worker.cache;
    let stored = context.stored_path(authority, path);
    let of = |path| StoredUri::new(realm, authority, path);
    let mut changes = Changes::of(cache.invalidate(of(&stored), None, false));
    if *stored != *path {
        changes.push(cache.invalidate(of(path), None, false));
    }
    changes.durable(cache).await;
    200
}
