//! Requests whose client leaves before their response is complete.
//!
//! A client *leaves* when it resets its connection or its stream. Over HTTP/1 it leaves, too, when
//! it closes its direction of the connection: nothing distinguishes a client that reads on from
//! one that is gone. (nginx, Squid and HAProxy's `abortonclose` decide the same.) Bytes of a
//! further request say that the client is there.
//!
//! The request of a client that has left ends at once, and its upstream is notified: the connection
//! closes, or the stream is reset. There are three exceptions:
//!
//! - other requests wait for its response, or read it;
//! - the response is being stored;
//! - its route, or the forward listener, says so (`finish_abandoned`).
//!
//! Before the head of the response is known, nothing is being stored. So a fetch for the store ends
//! as well, unless other requests wait for it.
//!
//! What never happens: a server is blamed for what its client has not waited for.

use outcome::Refusal;

use super::Exchange;
use crate::client::Client;

impl<C: Client> Exchange<'_, C> {
    /// Ready when the client has left, unless its request goes on without it.
    pub(crate) fn left(&self) -> impl Future<Output = ()> + use<C> {
        let goes_on = self.context.finishes_abandoned(self.routed.route);
        let gone = (!goes_on).then(|| self.client.gone());
        async move {
            match gone {
                Some(gone) => gone.await,
                None => std::future::pending().await,
            }
        }
    }
}

/// The result of work for one client, which ends when the client has `left`. Work that is done
/// counts, and whether the client has left is looked at only while the work waits.
pub(crate) async fn unless_left<T>(
    left: impl Future<Output = ()>,
    work: impl Future<Output = T>,
) -> Result<T, Refusal> {
    match runtime::race(work, left).await {
        runtime::Either::Left(done) => Ok(done),
        runtime::Either::Right(()) => Err(Refusal::Cancelled),
    }
}
