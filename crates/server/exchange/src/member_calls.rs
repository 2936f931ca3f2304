//! What the other members of a cluster say to this one, besides the requests of their clients.
//!
//! | call | what it does |
//! | --- | --- |
//! | `GET /healthz` | 200, or 503 while the server drains |
//! | `PUT /purge` | purges what the body names; the answer comes when no crash brings it back |
//! | `PURGE http://host/path` | a client has changed this URL elsewhere: its responses are removed |
//!
//! Only members connect to this listener, and each message but the first says that it is one of a
//! member ([`is_of_member`]): so no other proxy passes one on. Of clients' requests members send
//! GET and HEAD; all others are refused. What never happens: a call makes this member call another
//! one; more of a body is kept than a limit.

use cache::Cache;
use cache::paths::Paths;
use config::HEALTH_PATH;
use http1::{Method, Name, Target};
use outcome::Outcome;

use crate::Exchange;
use crate::client::{Client, Own, RequestBody};
use crate::cluster::{DONE, is_of_member};
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
    let is_call = is_of_member(head);
    let switches = head.fields.has(Name::Upgrade);
    let status = match (head.method, head.target) {
        (Method::Purge, Target::Absolute { .. }) if is_call => changed(exchange).await,
        (Method::Get | Method::Head, Target::Absolute { .. }) if is_call && !switches => {
            return None;
        }
        (_, Target::Absolute { .. }) if is_call => 405,
        (Method::Put, Target::Origin { path_and_query: PURGE_PATH }) if is_call => {
            purged(exchange, body).await
        }
        (Method::Get, Target::Origin { path_and_query })
            if path_and_query == HEALTH_PATH.as_bytes() =>
        {
            if exchange.context.worker.io.is_draining() { 503 } else { 200 }
        }
        _ => 404,
    };
    let more = match status {
        200 => format!("Connection: {DONE}\r\n{DONE}: 1\r\n"),
        405 => "Allow: GET, HEAD\r\n".to_owned(),
        _ => String::new(),
    };
    let lines = format!("Cache-Control: no-store\r\n{more}");
    let own = Own {
        status,
        lines: b"Content-Type: text/plain\r\n",
        content_length: Some(0),
        more_lines: lines.as_bytes(),
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
        Some(changes) => done(cache, changes.durable(cache).await),
        None => 400,
    }
}

/// Removes the responses of a URL, as it was requested and as its route stores it.
async fn changed<C: Client>(exchange: &mut Exchange<'_, C>) -> u16 {
    let context = &exchange.context;
    let Some(uri) = requested_uri(context.listener, context.head) else { return 400 };
    let RequestedUri { realm, authority, path } = uri;
    let cache = &context.worker.cache;
    let stored = context.stored_path(uri.reading());
    let paths = Paths::new(path, &stored);
    let changes = cache.invalidate_url(realm, authority, paths, None, false);
    done(cache, changes.durable(cache).await)
}

/// The status of a change. With a store on disk it is done when no crash brings the old state back.
fn done(cache: &Cache, is_durable: bool) -> u16 {
    if is_durable || cache.disk.is_none() { 200 } else { 503 }
}
