//! A client connection from its acceptance to its end.
//!
//! The connection enters the table of connections and is set up. Then it speaks HTTP/2 if ALPN
//! chose HTTP/2, or if its first bytes are the preface of HTTP/2. Otherwise it speaks HTTP/1.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use runtime::Either;
use transport::Transport;

use crate::{h1, h2};
use exchange::listener::ListenerContext;
use exchange::{Slot, Worker};

/// Serves one connection to its end.
///
/// This is no `async fn`, which would hold its arguments twice in every silent connection.
pub fn serve(
    worker: Rc<Worker>,
    listener: Rc<ListenerContext>,
    stream: Transport,
    peer: SocketAddr,
) -> impl Future<Output = ()> {
    let mut accepted = h1::Accepted { stream, peer, original_destination: None };
    worker.io.will_enter();
    let mut listener = listener;
    async move {
        let waker = std::future::poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let slot = match enter(worker, &listener, &accepted, waker) {
            None => return,
            Some(Either::Left(slot)) => slot,
            Some(Either::Right(waiting)) => waiting.await,
        };
        if let Some(setup) = &listener.setup {
            match Box::pin(h1::set_up(&slot, setup, &listener, accepted)).await {
                Some(passed) => accepted = passed,
                None => return,
            }
        }
        listener = listener.of_peer(accepted.peer.ip());
        let read = match accepted.stream.speaks_http2() {
            true => Some(Box::default()),
            false => h1::converse(&slot.worker, &listener, &accepted).await,
        };
        let Some(read) = read else {
            if let Transport::Tls(_) = &accepted.stream {
                Box::pin(h1::end(&slot.worker.io, &accepted.stream)).await;
            }
            return;
        };
        Box::pin(h2::serve(slot, listener, accepted, *read)).await;
    }
}

/// A connection that waits for its place.
type Waiting = Pin<Box<dyn Future<Output = Slot>>>;

/// Gives the connection a place in the table, or lets it wait for a place. If the client is known,
/// its quotas come first: a connection that they refuse must neither close the idle connections of
/// other clients nor cost a TLS handshake.
fn enter(
    worker: Rc<Worker>,
    listener: &ListenerContext,
    accepted: &h1::Accepted,
    waker: Waker,
) -> Option<Either<Slot, Waiting>> {
    let entering = worker.io.entering();
    let client = accepted.peer.ip();
    let counted = match has_header(listener) {
        true => Vec::new(),
        false => worker.count_connection(listener, client).ok()?,
    };
    let slot_of = |worker, slot| {
        let slot = Slot::new(worker, slot);
        slot.keep(counted);
        slot
    };
    Some(match entering.now(waker, client) {
        Ok(slot) => Either::Left(slot_of(worker, slot)),
        Err((entering, waker)) => Either::Right(Box::pin(async move {
            let slot = entering.wait(waker, client).await;
            slot_of(worker, slot)
        })),
    })
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
    /// times.
    #[test]
    fn a_silent_connection_is_small() {
        let bytes = future_bytes(serve);
        assert!(bytes <= 256, "{bytes}");
    }
}
