//! How a request on a stream is served, over HTTP/2 and over HTTP/3.

use std::rc::Rc;

use cache::Look;
use cache::stored::{Connection, Stored, Use};
use core_io::panics;
use core_io::spares::SharedHead;
use http1::{Expectation, FieldList, Method, RequestHead};
use outcome::Refusal;
use runtime::time;

use super::body::RequestBody;
use super::client::StreamClient;
use super::streams::Streams;
use crate::h1::{refusal_text, write_refusal};
use exchange::hit::{FastPath, HIT, fresh_hit};
use exchange::logged::Origin;
use exchange::quota::admits_hit;
use exchange::request::{Request, body_length};
use exchange::routing::ClientConnection;
use exchange::step::Ending;
use exchange::{Exchange, Worker};

/// A client's connection with streams, as the way of a request uses it.
pub(crate) trait Server: Streams {
    fn worker(&self) -> &Rc<Worker>;

    /// The connection, for the log and the rules.
    fn origin(&self) -> Origin<'_>;

    /// Bytes of content that a response may have that is sent at once; `None` if the connection has
    /// too much to send.
    fn room_at_once(&self, stream: Self::Id) -> Option<usize>;

    /// Sends a stored response of which this many bytes of content are sent: all or none.
    fn send_stored(
        self: &Rc<Self>,
        stream: Self::Id,
        stored: &Stored,
        use_: &Use<'_>,
        body_bytes: u64,
    );

    /// Sends our own answer, and ends the stream.
    fn send_own(self: &Rc<Self>, stream: Self::Id, head: &FieldList, content: &[u8]);

    /// Serves a request in a task.
    fn start_exchange(self: &Rc<Self>, stream: Self::Id, shared: SharedHead, end_stream: bool);
}

/// Serves a request whose head was written for HTTP/1 and is parsed here. It is answered at once if
/// it may be and that can be done, and by an exchange otherwise.
pub(crate) fn serve<S: Server>(
    link: &Rc<S>,
    stream: S::Id,
    text: &[u8],
    end_stream: bool,
    may_be_at_once: bool,
) {
    let named = panics::Serving::received(text);
    let io = link.io();
    let limits = io.limits();
    let limits = limits.http_with(link.origin().listener.field_names);
    let later = io.with_scratch(|scratch| match http1::parse_request(text, scratch, limits) {
        Ok(Some(head)) => {
            let head = head.over(S::VERSION);
            match may_be_at_once && answer_at_once(link, stream, &head) {
                true => Ok(None),
                false => Ok(Some(io.incoming(&head))),
            }
        }
        Ok(None) => unreachable!("the head was written whole"),
        Err(reject) => Err(reject),
    });
    named.done();
    match later {
        Ok(None) => {}
        Ok(Some(request)) => link.start_exchange(stream, request, end_stream),
        Err(reject) => refuse(link, stream, Refusal::Malformed(reject), text.len() as u64),
    }
}

/// The fast path: answers a request with a small fresh hit.
fn answer_at_once<S: Server>(link: &Rc<S>, stream: S::Id, head: &RequestHead<'_>) -> bool {
    let (worker, origin) = (link.worker(), link.origin());
    let (cache, snapshot) = (&worker.cache, worker.snapshot());
    let listener = origin.listener;
    let peer = listener.client(origin.peer, head).ip();
    let (now_ms, look) = (time::wall_ms(), Look::Use);
    let path = FastPath { cache, snapshot: &snapshot, listener, peer, look, now_ms };
    let Ok(found) = fresh_hit(&path, head) else { return false };
    let stored = &found.stored;
    let Some(room) = link.room_at_once(stream) else { return false };
    if stored.body_bytes > room as u64 || !admits_hit(&snapshot, listener, peer, head) {
        return false;
    }
    worker.sizing.hit(found.key, found.entry());
    let use_ = Use {
        cache_status: HIT,
        now_ms: Some(now_ms),
        connection: Connection::Keep,
        own_lines: link.own_lines(),
    };
    let body_bytes = if head.method == Method::Get { stored.body_bytes } else { 0 };
    link.send_stored(stream, stored, &use_, body_bytes);
    origin.answered_at_once(worker, head, stored, &use_, body_bytes);
    true
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
    let ending = {
        let mut exchange = Exchange::new(request, connection, &mut client, &body);
        exchange.serve_request(&mut body).await
    };
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

/// Answers a request that is no request over HTTP/1 either, of so many bytes.
#[cold]
pub(crate) fn refuse<S: Server>(link: &Rc<S>, stream: S::Id, refusal: Refusal, received: u64) {
    let (mut head, content) = (FieldList::default(), refusal_text(refusal));
    write_refusal(&mut head, refusal);
    head.end();
    link.send_own(stream, &head, content.as_bytes());
    let response = [head.text(), content.as_bytes()].concat();
    link.origin().refused(link.io(), refusal, received, &response, time::wall_ms());
}
