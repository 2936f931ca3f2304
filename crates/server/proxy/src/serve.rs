//! A client connection from its acceptance to its end.
//!
//! The connection enters the table of connections and is set up. Then it speaks HTTP/2 if ALPN
//! chose HTTP/2, or if its first bytes are the preface of HTTP/2. Otherwise it speaks HTTP/1.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use transport::Transport;

use crate::h1::{Accepted, Connection, Ended, Next};
use crate::{h1, h2};
use exchange::listener::ListenerContext;
use exchange::{Entered, Worker};

/// Serves one connection to its end.
///
/// This is no `async fn`, which would hold its arguments twice in every silent connection. A silent
/// connection is the future's [`Connection`], a reference to it, and the state of the future. So no
/// other value is held while the connection waits for a request.
pub fn serve(
    worker: Rc<Worker>,
    listener: Rc<ListenerContext>,
    stream: Transport,
    peer: SocketAddr,
) -> impl Future<Output = ()> {
    worker.io.will_enter();
    let accepted = Accepted { stream, peer, original_destination: None };
    let mut connection = Connection::new(worker, listener, accepted);
    async move {
        let waker = std::future::poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let (is_refused, waiting) = enter(&mut connection, waker);
        if is_refused {
            return;
        }
        if let Some(entered) = waiting.await {
            connection.slot.enter(entered);
        }
        if let Some(setup) = &connection.listener.setup {
            let (slot, listener) = (&connection.slot, &connection.listener);
            match Box::pin(h1::set_up(slot, setup, listener, connection.accepted)).await {
                Some(passed) => connection.accepted = passed,
                None => return,
            }
        }
        let speaks_http2 = match connection.begin() {
            true => true,
            false => loop {
                if connection.is_silent() {
                    let waited = connection.readable().await;
                    if waited.is_over() {
                        Box::pin(connection.leave(waited)).await;
                        break false;
                    }
                }
                let ended = match connection.take_turn() {
                    Next::Wait => Ended::Keep(None),
                    Next::Close => Ended::Close,
                    Next::Http2 => Ended::Http2,
                    Next::Finish(finish) => finish.await,
                    Next::Exchange(exchange) => exchange.await,
                };
                match ended {
                    Ended::Keep(rest) => connection.go_on(rest),
                    Ended::Close => break false,
                    Ended::Http2 => break true,
                }
            },
        };
        if speaks_http2 {
            over_http2(connection).await;
        } else if let Transport::Tls(_) = &connection.accepted.stream {
            connection.give_up();
            Box::pin(h1::end(connection.io(), &connection.accepted.stream)).await;
        }
    }
}

/// The rest of a connection that speaks HTTP/2.
fn over_http2(connection: Connection) -> Pin<Box<impl Future<Output = ()> + use<>>> {
    let (slot, listener, accepted, read) = connection.into_http2();
    Box::pin(h2::serve(slot, listener, accepted, read))
}

/// A future that may not be needed, in no more bytes than the future.
struct Maybe<F>(Option<F>);

impl<F: Future + Unpin> Future for Maybe<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<F::Output>> {
        match &mut self.0 {
            None => Poll::Ready(None),
            Some(future) => Pin::new(future).poll(cx).map(Some),
        }
    }
}

/// Gives the connection a place in the table, or lets it wait for a place; true if quotas refuse
/// it. If the client is known, its quotas come first: a connection that they refuse must neither
/// close the idle connections of other clients nor cost a TLS handshake.
fn enter(
    connection: &mut Connection,
    waker: Waker,
) -> (bool, Maybe<Pin<Box<impl Future<Output = Entered> + use<>>>>) {
    let Connection { slot, listener, accepted, .. } = connection;
    let entering = slot.worker.io.entering();
    let client = accepted.peer.ip();
    let counted = match has_header(listener) {
        true => Ok(Vec::new()),
        false => slot.worker.count_connection(listener, client),
    };
    let Ok(counted) = counted else { return (true, Maybe(None)) };
    match entering.now(&waker, client) {
        Ok(place) => {
            slot.enter(Entered { place, counted });
            (false, Maybe(None))
        }
        Err(entering) => {
            let waiting =
                async move { Entered { place: entering.wait(waker, client).await, counted } };
            (false, Maybe(Some(Box::pin(waiting))))
        }
    }
}

/// Whether connections begin with a PROXY header, which names the client.
fn has_header(listener: &ListenerContext) -> bool {
    listener.setup.as_ref().is_some_and(|setup| setup.proxies.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn future_bytes<A, B, C, D, F>(_: fn(A, B, C, D) -> F) -> usize {
        size_of::<F>()
    }

    /// A silent connection is this future: each byte that is added to it is paid ten thousand
    /// times. With the word of its task it fills a block of 176 bytes of the allocator.
    #[test]
    fn a_silent_connection_is_small() {
        let bytes = future_bytes(serve);
        assert!(bytes <= 160, "{bytes}");
    }
}
