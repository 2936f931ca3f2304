//! How a request on a stream is served, over HTTP/2 and over HTTP/3.

use std::rc::Rc;

use core_io::spares::SharedHead;
use core_io::{CoreIo, panics};
use http1::{Expectation, FieldList, FieldNames, Method, Reject, RequestHead, Version};
use outcome::Refusal;

use super::body::RequestBody;
use super::client::{StreamClient, Streams};
use crate::h1::{refusal_text, write_refusal};
use exchange::Exchange;
use exchange::request::{Request, body_length};
use exchange::routing::ClientConnection;
use exchange::step::Ending;

/// Parses a head that was written for HTTP/1, and answers it at once if that can be done. Returns
/// the request if it is to be served by an exchange.
pub(crate) fn now_or_later(
    (io, names): (&CoreIo, FieldNames),
    text: &[u8],
    version: Version,
    answer_at_once: impl FnOnce(&RequestHead<'_>) -> bool,
) -> Result<Option<SharedHead>, Reject> {
    let named = panics::Serving::received(text);
    let limits = io.limits();
    let limits = limits.http_with(names);
    let later = io.with_scratch(|scratch| match http1::parse_request(text, scratch, limits) {
        Ok(Some(head)) => {
            let head = head.over(version);
            match answer_at_once(&head) {
                true => Ok(None),
                false => Ok(Some(io.incoming(&head))),
            }
        }
        Ok(None) => unreachable!("the head was written whole"),
        Err(reject) => Err(reject),
    });
    named.done();
    later
}

/// Serves a request by an exchange, up to the end of its stream.
pub(crate) async fn exchange<S: Streams>(
    link: &Rc<S>,
    stream: S::Id,
    head: &RequestHead<'_>,
    request: Request,
    connection: ClientConnection<'_>,
) {
    let is_awaited = head.expectation() != Expectation::None;
    let mut body = RequestBody::new(Rc::clone(link), stream, body_length(head), is_awaited);
    let mut client = StreamClient::new(Rc::clone(link), stream, head.method == Method::Head);
    let named = panics::Serving::head(head);
    let exchange = Exchange::new(request, connection, &mut client, &body);
    let ending = exchange.serve_request(&mut body).await;
    named.done();
    match ending {
        Ending::Complete(_) => {
            client.end().await;
            body.discard().await;
        }
        Ending::TunnelRefused(_) => client.end().await,
        Ending::Tunnel(_) => client.end_tunnel(),
        Ending::BrokenOff(_) | Ending::Left(_) => client.break_off(),
    }
}

/// The answer to a request that is no request over HTTP/1 either: its head and its content.
#[cold]
pub(crate) fn refusal(refusal: Refusal) -> (FieldList, String) {
    let mut head = FieldList::default();
    write_refusal(&mut head, refusal);
    head.end();
    (head, refusal_text(refusal))
}
