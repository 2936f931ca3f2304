//! Answers that a route gives by itself: a redirect, or a status with some text.

use http1::write;

use super::Exchange;
use super::step::Ending;
use crate::client::{Client, Own};
use config::Action;
use outcome::Outcome;
use policy::fields::ResponseRules;

/// The status of such an answer.
pub(crate) fn status_of(action: &Action) -> u16 {
    match action {
        Action::Redirect { status, .. } | Action::Answer { status, .. } => *status,
        // The group has no servers, so no request could come here.
        Action::Group(_) => 503,
    }
}

/// Answers as the route says.
pub(crate) async fn answer<C: Client>(exchange: &mut Exchange<'_, C>, action: &Action) -> Ending {
    let head = &exchange.context.head;
    let mut lines = Vec::new();
    let text = match action {
        Action::Redirect { location, with_path, .. } => {
            let mut location = location.clone().into_bytes();
            if *with_path {
                write::origin_form(&mut location, head.method, &head.target);
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
    if !text.is_empty() {
        lines.extend_from_slice(b"Content-Type: text/plain; charset=utf-8\r\n");
    }
    let lines = ruled(exchange, status, lines);
    let without_content = matches!(status, 204 | 304);
    let content_length = (!without_content).then_some(text.len() as u64);
    let own = Own { status, lines: &lines, content_length, more_lines: b"" };
    exchange.answer(own, if without_content { "" } else { text }, Outcome::Pass).await
}

/// The field lines of such an answer, changed by the rules of the route.
fn ruled<C: Client>(exchange: &Exchange<'_, C>, status: u16, lines: Vec<u8>) -> Vec<u8> {
    let context = &exchange.context;
    let route = exchange.routed.route.and_then(|route| context.snapshot.routes.get(route));
    let (Some(route), Ok(uri)) = (route, context.uri()) else { return lines };
    let rules = &route.config.response;
    match (!rules.is_empty())
        .then(|| route.captured(policy::reading::Reading::of(uri.authority, uri.path)))
        .flatten()
    {
        Some(captured) => ResponseRules::new(&captured.rules(rules)).changed_lines(status, lines),
        None => route.response.changed_lines(status, lines),
    }
}
