//! Answers that a route gives by itself: a redirect, or a status with some text.

use http1::{Method, write};

use crate::client::append_date;
use crate::ended::Done;
use crate::exchange::Exchange;
use config::Action;
use outcome::Outcome;

/// The status of such an answer.
pub(crate) fn status_of(action: &Action) -> u16 {
    match action {
        Action::Redirect { status, .. } | Action::Answer { status, .. } => *status,
        // It has no servers: nobody could have come here.
        Action::Group(_) => 503,
    }
}

/// Answers a request for which a route says what.
pub(crate) async fn answer(exchange: &mut Exchange<'_>, action: &Action) -> Done {
    let status = status_of(action);
    let (location, text) = match action {
        Action::Redirect { location, with_path, .. } => {
            let mut location = location.clone().into_bytes();
            if *with_path {
                write::origin_form(&mut location, exchange.head.method, &exchange.head.target);
            }
            (location, "")
        }
        Action::Answer { body, .. } => (Vec::new(), body.as_str()),
        Action::Group(_) => (Vec::new(), ""),
    };
    let without_content = matches!(status, 204 | 304);
    let with_body = exchange.head.method != Method::Head && !without_content;
    let framed = exchange.body.is_none();
    let connection = exchange.connection(framed);
    let before = exchange.client.bytes;
    exchange.client.held(|out| {
        write::status_line(out, status);
        if !location.is_empty() {
            // It was checked, and a target has nothing that a field may not have.
            let _ = write::field(out, b"Location", &location);
        }
        if !text.is_empty() {
            out.extend_from_slice(b"Content-Type: text/plain; charset=utf-8\r\n");
        }
        if !without_content {
            write::content_length(out, text.len() as u64);
        }
        append_date(out, runtime::time::wall_ms());
        connection.append(out);
        write::end(out);
        if with_body {
            out.extend_from_slice(text.as_bytes());
        }
    });
    let sent = exchange.client.flush().await.is_ok();
    let body_bytes = if with_body { text.len() as u64 } else { 0 };
    Done {
        outcome: Outcome::Pass,
        status,
        head_bytes: exchange.client.bytes - before - body_bytes,
        upstream: None,
        keep: framed && sent,
    }
}
