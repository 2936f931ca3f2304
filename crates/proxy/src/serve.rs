//! A client connection from its acceptance to its end.
//!
//! It enters the table of connections and is set up. Then it speaks HTTP/2 if ALPN decided so. If
//! not, it speaks HTTP/1, unless its first bytes are the preface of HTTP/2.

use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;

use transport::Transport;

use crate::{h1, h2};
use exchange::listener::ListenerContext;
use exchange::quota::Counted;
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
    let entering = worker.io.accepted();
    async move {
        let waker = std::future::poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let Some(counted) = count(&worker, &listener, &accepted) else { return };
        let client = accepted.peer.ip();
        let slot = match entering.now(waker, client) {
            Ok(slot) => slot,
            Err((entering, waker)) => Box::pin(entering.wait(waker, client)).await,
        };
        let slot = Slot::new(worker, slot);
        slot.keep(counted);
        if let Some(setup) = &listener.setup {
            match Box::pin(h1::set_up(&slot, setup, &listener, accepted)).await {
                Some(passed) => accepted = passed,
                None => return,
            }
        }
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

/// Counts the connection by the quotas of its client, if that is known. It comes before a place in
/// the table: what quotas refuse must neither close the idle connections of others nor cost a TLS
/// handshake.
fn count(
    worker: &Worker,
    listener: &ListenerContext,
    accepted: &h1::Accepted,
) -> Option<Vec<Counted>> {
    match has_header(listener) {
        true => Some(Vec::new()),
        false => worker.count_connection(listener, accepted.peer.ip()).ok(),
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

    /// A silent connection is this future: what is added to it is paid ten thousand times.
    #[test]
    fn a_silent_connection_is_small() {
        let bytes = future_bytes(serve);
        assert!(bytes <= 256, "{bytes}");
    }
}
