//! The method `PURGE`: what a request purges, and its answer.

use cache::changes::Changes;
use cache::purge::url;
use cache::stored::{Connection, Wire};
use caching::FieldSource;
use http1::write;
use outcome::{Outcome, Refusal};
use runtime::time;
use store::Concerns;

use crate::client::{Gone, append_date};
use crate::ended::{Done, Ended};
use crate::exchange::Exchange;
use crate::exchange::way::Case;
use crate::request::{Asked, destination};

/// Answers the method `PURGE`: the URL it names, with all its variants, is gone, or stale if
/// `Soft-Purge` says so.
pub(crate) async fn by_method(exchange: &mut Exchange<'_>) -> Result<Done, Ended> {
    let asked = of_request(&exchange.case()).map_err(Ended::Refused)?;
    let Asked { realm, authority, path } = asked;
    let url = url(realm, authority, path);
    let fields = Wire(exchange.head.fields);
    let soft = ["soft-purge", "fastly-soft-purge"].iter().any(|name| is_yes(fields.first(name)));
    let shared = &exchange.worker.shared;
    let (mark, made) = shared.purge(Concerns::Url(&url), soft, time::wall_ms());
    Changes::of(made).durable(shared).await;
    let text = format!(
        "{{\"purged\":{{\"url\":{}}},\"soft\":{soft},\"generation\":{}}}\n",
        serde_json::Value::from(String::from_utf8_lossy(&url)),
        mark.generation
    );
    let connection = exchange.connection(exchange.body.is_none());
    exchange.client.held(|out| append_json(out, 200, &text, connection));
    let done = Done {
        outcome: Outcome::Own,
        status: 200,
        head_bytes: exchange.client.bytes - text.len() as u64,
        upstream: None,
        keep: true,
    };
    exchange.client.flush().await.map(|()| done).map_err(|Gone| Ended::Gone(done))
}

/// What a request purges, or why it purges nothing.
pub(crate) fn of_request<'x>(case: &Case<'x>) -> Result<Asked<'x>, Refusal> {
    if !case.site.config.purge.allows(case.peer.ip()) {
        return Err(Refusal::PurgeFrom);
    }
    destination(case.door, &case.head).ok_or(Refusal::PurgeTarget)
}

fn is_yes(value: Option<&[u8]>) -> bool {
    value.is_some_and(|value| matches!(value.trim_ascii(), b"1" | b"?1" | b"true"))
}

/// Appends a response of our own with a text in JSON.
pub fn append_json(out: &mut Vec<u8>, status: u16, text: &str, connection: Connection) {
    write::status_line(out, status);
    out.extend_from_slice(b"Content-Type: application/json\r\n");
    write::content_length(out, text.len() as u64);
    out.extend_from_slice(b"Cache-Control: no-store\r\n");
    append_date(out, time::wall_ms());
    connection.append(out);
    write::end(out);
    out.extend_from_slice(text.as_bytes());
}
