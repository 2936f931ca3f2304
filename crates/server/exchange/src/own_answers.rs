//! Answers that the proxy gives itself: refusals, the answers of routes, our cache digest, the
//! answers to purges and to the calls of other members of a cluster.
//!
//! Members of a cluster call each other besides sending the requests of their clients:
//!
//! | call | what it does |
//! | --- | --- |
//! | `GET /healthz` | 200, or 503 while the server drains |
//! | `PUT /purge` | makes the purges in the body; answered when no crash can undo them |
//! | `PURGE http://host/path` | a client has changed this URL elsewhere: its responses are removed |
//!
//! Only members connect to the listener for members. Each call except `GET /healthz` has a field
//! that marks it as the message of a member ([`is_of_member`]), and no other proxy passes this
//! field on. Of the requests of clients, members send each other only GET and HEAD. All other
//! requests are refused.
//!
//! What never happens: a call from a member makes this member call another member; the kept part of
//! a body exceeds its limit.

use cache::Cache;
use cache::key::StoredUri;
use cache::paths::Paths;
use cache::purge_answer::{self, Done, Target};
use cache::realm::normal_authority;
use caching::{FieldSource, date};
use config::{Action, HEALTH_PATH};
use http1;
use http1::{Method, Name, write};
use outcome::{Outcome, Refusal};
use peering::digest::{CONTENT_TYPE, SQUID_FIRST_BYTES};
use policy::fields::ResponseRules;
use policy::reading::Reading;
use runtime::time;

use crate::Exchange;
use crate::cache_status::proxy_status_line;
use crate::client::{Client, Gone, Own, RequestBody, Response};
use crate::cluster::{self, DONE, PURGED, is_of_member};
use crate::fetch::hierarchy;
use crate::limits::{DIGEST_PAUSE, PURGE_MESSAGE_BYTES_MAX};
use crate::request::{Request, RequestedUri};
use crate::shared::Made;
use crate::spread::{self, PURGE_PATH};
use crate::step::{Ending, Summary};
use policy::error_pages::Answered;
use policy::rewrites::slashes;

impl<C: Client> Exchange<'_, C> {
    /// Sends a response that the proxy generates.
    pub(crate) async fn answer(&mut self, own: Own<'_>, content: &str, outcome: Outcome) -> Ending {
        if self.has_body {
            // Nothing reads the body, so no further request can follow it.
            self.client.close_after();
        }
        self.answer_after_body(own, content, outcome).await
    }

    /// The same for a request whose body has been read, as far as it will be.
    pub(crate) async fn answer_after_body(
        &mut self,
        own: Own<'_>,
        content: &str,
        outcome: Outcome,
    ) -> Ending {
        self.client.respond(&Response::Own(own));
        if self.request.method() != Method::Head {
            self.client.offer(content.as_bytes());
        }
        if self.client.flush().await.is_err() {
            self.client.close_after();
        }
        Ending::Complete(Summary { outcome, status: own.status, upstream: None })
    }

    /// Answers with an error, unless the client has left.
    pub(crate) async fn refuse(&mut self, refusal: Refusal) -> Ending {
        let worker = &self.request.worker;
        worker.io.count_refusal(refusal);
        if refusal == Refusal::Cancelled {
            // No client reads an answer.
            self.rule = refusal.name();
            self.client.close_after();
            let (outcome, status) = (Outcome::of_refusal(refusal), refusal.status());
            return Ending::Left(Summary { outcome, status, upstream: None });
        }
        let (mut status, mut text) = (refusal.status(), format!("{}\n", refusal.body()));
        if matches!(status, 400..=499) {
            worker.io.counters.client_errors.add(1);
        }
        // A client may send on without waiting for the answer to its CONNECT: what comes then is
        // no request.
        if !refusal.keeps() || self.request.method() == Method::Connect {
            self.client.close_after();
        }
        self.rule = refusal.name();
        let mut lines = b"Cache-Control: no-store\r\n".to_vec();
        lines.extend_from_slice(&proxy_status_line(refusal));
        if matches!(refusal, Refusal::PasswordMissing | Refusal::PasswordWrong) {
            let challenge = policy::forward::challenge(&self.request.snapshot.forward);
            lines.extend_from_slice(challenge.as_bytes());
        }
        if let (Refusal::LoginMissing | Refusal::LoginWrong, Some(challenge)) =
            (refusal, self.request.challenge())
        {
            lines.extend_from_slice(challenge.as_bytes());
        }
        if let Some(answer) = self.request.refused_by_service() {
            status = answer.status;
            lines.extend_from_slice(&answer.lines);
        }
        if refusal == Refusal::Overload {
            let seconds = worker.overload.retry_after();
            lines.extend_from_slice(format!("Retry-After: {seconds}\r\n").as_bytes());
        }
        if self.request.listener.cluster {
            let name = cluster::REFUSED;
            lines.extend_from_slice(format!("Connection: {name}\r\n{name}: 1\r\n").as_bytes());
        }
        if refusal == Refusal::Quota {
            text = self.quota_refusal(&mut lines);
        }
        let page = self.request.own_page(status).unwrap_or_else(|| Answered {
            status,
            lines: b"Content-Type: text/plain\r\n".to_vec(),
            text,
        });
        let own = Own {
            status: page.status,
            lines: &page.lines,
            content_length: Some(page.text.len() as u64),
            more_lines: &lines,
        };
        self.answer(own, &page.text, Outcome::of_refusal(refusal)).await
    }
}

/// Purges the requested URL with all its variants, or marks it stale if `Soft-Purge` says so.
pub(crate) async fn purge<C: Client>(exchange: &mut Exchange<'_, C>) -> Result<Ending, Refusal> {
    let RequestedUri { realm, authority, path } = purged_uri(&exchange.request)?;
    // Not only on reverse listeners: a purge is of all roles.
    let stored = exchange.request.snapshot.routes.stored_paths(Reading::of(authority, path));
    let fields = exchange.request.wire();
    let soft = ["soft-purge", "fastly-soft-purge"].iter().any(|name| is_yes(fields.first(name)));
    let cache = &exchange.request.worker.cache;
    let host = normal_authority(realm, authority);
    let paths = Paths::new(path, &stored);
    let (mark, changes) = cache.purge_url(&host, paths, soft, time::wall_ms());
    let notices = changes.notices();
    let responses = cache.count_after(&notices, None).await;
    let durable = changes.durable(cache).await;
    let durable = cache.disk.is_some().then_some(durable);
    let Request { worker, snapshot, .. } = &exchange.request;
    let cluster = Box::pin(spread::purge(worker, snapshot, notices)).await;
    let responses = purge_answer::sum(responses, cluster.as_ref());
    if snapshot.peers.is_some() && !soft {
        Box::pin(hierarchy::clear_purged(worker, snapshot, &host, path)).await;
    }
    let url = StoredUri::new(realm, authority, path).url();
    let purged = Target::Url(String::from_utf8_lossy(&url).into_owned());
    let done = Done { purged, soft, generation: mark.generation, responses, durable, cluster };
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
pub(crate) fn purged_uri(request: &Request) -> Result<RequestedUri<'_>, Refusal> {
    if !request.snapshot.config.purge.allows(request.peer.ip()) {
        return Err(Refusal::PurgeFrom);
    }
    request.requested_uri().ok_or(Refusal::PurgeTarget)
}

fn is_yes(value: Option<&[u8]>) -> bool {
    value.is_some_and(|value| matches!(value.trim_ascii(), b"1" | b"?1" | b"true"))
}

/// The status of such an answer.
pub(crate) fn status_of(action: &Action) -> u16 {
    match action {
        Action::Redirect { status, .. } | Action::Answer { status, .. } => *status,
        // The group has no servers, so no request could come here.
        Action::Group(_) => 503,
    }
}

/// Answers as the route says.
pub(crate) async fn answer_by_route<C: Client>(
    exchange: &mut Exchange<'_, C>,
    action: &Action,
) -> Ending {
    let mut lines = Vec::new();
    let text = match action {
        Action::Redirect { location: action_location, with_path, .. } => {
            let mut location = action_location.clone().into_bytes();
            if *with_path {
                let head = exchange.request.head();
                write::origin_form(&mut location, head.method, &head.target);
                let begins = slashes(&location);
                if begins > 1 && !action_location.starts_with("//") {
                    location.drain(..begins - 1);
                    location[0] = b'/';
                }
            }
            // The configuration was checked, and a target has no byte that a field may not have.
            if !location.is_empty() {
                let _ = write::field(&mut lines, b"Location", &location);
            }
            ""
        }
        Action::Answer { body, .. } => body.as_str(),
        Action::Group(_) => "",
    };
    let status = status_of(action);
    if exchange.request.asks_for_pac() {
        lines.extend_from_slice(b"Content-Type: application/x-ns-proxy-autoconfig\r\n");
    } else if !text.is_empty() {
        lines.extend_from_slice(b"Content-Type: text/plain; charset=utf-8\r\n");
    }
    let lines = ruled(exchange, status, lines);
    let without_content = matches!(status, 204 | 304);
    let content_length = (!without_content).then_some(text.len() as u64);
    let own = Own { status, lines: &lines, content_length, more_lines: b"" };
    exchange.answer(own, if without_content { "" } else { text }, Outcome::Pass).await
}

/// The field lines of such an answer, changed by the rules of the route.
pub(crate) fn ruled<C: Client>(exchange: &Exchange<'_, C>, status: u16, lines: Vec<u8>) -> Vec<u8> {
    let request = &exchange.request;
    let (Some(chosen), Ok(uri)) = (request.chosen, request.uri()) else { return lines };
    match request.response_changes(&chosen.rules, uri.reading()) {
        Some(changes) => ResponseRules::new(&changes).changed_lines(status, lines),
        None => match request.taken_route() {
            Some(route) => route.response.changed_lines(status, lines),
            None => lines,
        },
    }
}

/// Sends the digest.
pub(crate) async fn answer_with_digest<C: Client>(
    exchange: &mut Exchange<'_, C>,
    made: &Made,
) -> Ending {
    if exchange.has_body {
        exchange.client.close_after();
    }
    let head = exchange.request.head();
    let until_ms = made.made_ms + made.lifetime.as_millis() as u64;
    let left_s = until_ms.saturating_sub(time::wall_ms()) / 1000;
    let expires = String::from_utf8_lossy(&date::format(until_ms)).into_owned();
    let tag = format!("\"{:x}\"", made.made_ms);
    let lines = format!("Cache-Control: max-age={left_s}\r\nExpires: {expires}\r\nETag: {tag}\r\n");
    let is_known = head.fields.get(Name::IfNoneMatch) == Some(tag.as_bytes());
    let (status, content_length) = match is_known {
        true => (304, None),
        false => (200, Some(made.bytes.len() as u64)),
    };
    let of_type = format!("Content-Type: {CONTENT_TYPE}\r\n");
    let lines_before = if is_known { "" } else { &of_type };
    let own = Own {
        status,
        lines: lines_before.as_bytes(),
        content_length,
        more_lines: lines.as_bytes(),
    };
    exchange.client.respond(&Response::Own(own));
    let sent = match is_known || head.method == Method::Head {
        true => exchange.client.flush().await,
        false => send_digest(exchange.client, &made.bytes).await,
    };
    Ending::of(sent, Summary { outcome: Outcome::Own, status, upstream: None })
}

async fn send_digest<C: Client>(client: &mut C, bytes: &[u8]) -> Result<(), Gone> {
    let (first, rest) = bytes.split_at(SQUID_FIRST_BYTES.min(bytes.len()));
    client.send(&[first], false).await?;
    if !rest.is_empty() {
        time::sleep(DIGEST_PAUSE).await;
        client.send(&[rest], false).await?;
    }
    Ok(())
}

/// Answers the check of a certification authority (RFC 8555, 8.3).
pub(crate) async fn answer_check<C: Client>(
    exchange: &mut Exchange<'_, C>,
    content: &str,
) -> Ending {
    let own = Own {
        status: 200,
        lines: b"Content-Type: application/octet-stream\r\n",
        content_length: Some(content.len() as u64),
        more_lines: b"Cache-Control: no-store\r\n",
    };
    exchange.answer(own, content, Outcome::Own).await
}

/// Answers a call; `None`: it is the request of a client.
pub(crate) async fn answer_call<C: Client>(
    exchange: &mut Exchange<'_, C>,
    body: &mut C::Body,
) -> Option<Ending> {
    let mut count = None;
    let head = exchange.request.head();
    let is_call = is_of_member(&head);
    let switches = head.fields.has(Name::Upgrade);
    let status = match (head.method, head.target) {
        (Method::Purge, http1::Target::Absolute { .. }) if is_call => {
            change_as_called(exchange).await
        }
        (Method::Get | Method::Head, http1::Target::Absolute { .. }) if is_call && !switches => {
            return None;
        }
        (_, http1::Target::Absolute { .. }) if is_call => 405,
        (Method::Put, http1::Target::Origin { path_and_query: PURGE_PATH }) if is_call => {
            purge_as_called(exchange, body, &mut count).await
        }
        (Method::Get, http1::Target::Origin { path_and_query })
            if path_and_query == HEALTH_PATH.as_bytes() =>
        {
            if exchange.request.worker.io.is_draining() { 503 } else { 200 }
        }
        _ => 404,
    };
    let more = match status {
        200 => {
            let (names, count) = match count {
                Some(count) => (format!(", {PURGED}"), format!("{PURGED}: {count}\r\n")),
                None => Default::default(),
            };
            format!("Connection: {DONE}{names}\r\n{DONE}: 1\r\n{count}")
        }
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
async fn purge_as_called<C: Client>(
    exchange: &mut Exchange<'_, C>,
    body: &mut C::Body,
    count: &mut Option<u64>,
) -> u16 {
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
    let cache = &exchange.request.worker.cache;
    match cache.apply_counted(&notices).await {
        Some((changes, counted)) => {
            *count = counted;
            done(cache, changes.durable(cache).await)
        }
        None => 400,
    }
}

/// Removes the responses of a URL, as it was requested and as its route stores it.
async fn change_as_called<C: Client>(exchange: &mut Exchange<'_, C>) -> u16 {
    let request = &exchange.request;
    let Some(uri) = request.requested_uri() else { return 400 };
    let RequestedUri { realm, authority, path } = uri;
    let cache = &request.worker.cache;
    let stored = request.stored_paths(uri.reading());
    let paths = Paths::new(path, &stored);
    let changes = cache.invalidate_url(realm, authority, paths, None, false);
    done(cache, changes.durable(cache).await)
}

/// The status of a change. With a store on disk it is done when no crash brings the old state back.
fn done(cache: &Cache, is_durable: bool) -> u16 {
    if is_durable || cache.disk.is_none() { 200 } else { 503 }
}
