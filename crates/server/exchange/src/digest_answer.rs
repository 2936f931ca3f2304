//! The answer to another cache that fetches our digest.
//!
//! The first bytes are sent apart from the others, because Squid reads a digest wrongly otherwise
//! ([`peering::digest`]).

use caching::date;
use http1::{Method, Name};
use outcome::Outcome;
use peering::digest::{CONTENT_TYPE, SQUID_FIRST_BYTES};
use runtime::time;

use super::Exchange;
use super::step::{Ending, Summary};
use crate::client::{Client, Gone, Own, Response};
use crate::limits::DIGEST_PAUSE;
use crate::our_digest::Made;

/// Sends the digest.
pub(crate) async fn answer<C: Client>(exchange: &mut Exchange<'_, C>, made: &Made) -> Ending {
    if exchange.has_body {
        exchange.client.close_after();
    }
    let head = exchange.context.head;
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
        false => send(exchange.client, &made.bytes).await,
    };
    Ending::of(sent, Summary { outcome: Outcome::Own, status, upstream: None })
}

async fn send<C: Client>(client: &mut C, bytes: &[u8]) -> Result<(), Gone> {
    let (first, rest) = bytes.split_at(SQUID_FIRST_BYTES.min(bytes.len()));
    client.send(&[first], false).await?;
    if !rest.is_empty() {
        time::sleep(DIGEST_PAUSE).await;
        client.send(&[rest], false).await?;
    }
    Ok(())
}
