//! The content of a request over HTTP/2.
//!
//! It waits in the stream until the exchange asks for it. What the exchange has taken is released,
//! so that the client may send more: no more than a stream's window waits here.

use std::future::poll_fn;
use std::rc::Rc;

use http2::StreamId;
use outcome::Fault;
use runtime::time;
use upstream::BodyLength;

use super::client::Streams as _;
use super::link::Link;
use crate::client::{self, RequestBody as _};
use crate::limits::Limits;
use crate::pace::Pace;

/// The content of one request.
pub(crate) struct RequestBody {
    link: Rc<Link>,
    stream: StreamId,
    length: BodyLength,
    is_awaited: bool,
    used: u64,
    is_done: bool,
    /// It has not arrived in time, or the stream is gone.
    failed: bool,
    pace: Pace,
}

impl RequestBody {
    pub(super) fn new(
        link: Rc<Link>,
        stream: StreamId,
        length: BodyLength,
        is_awaited: bool,
    ) -> RequestBody {
        let is_done = length.is_empty();
        RequestBody {
            link,
            stream,
            length,
            is_awaited,
            used: 0,
            is_done,
            failed: false,
            pace: Pace::default(),
        }
    }

    /// Reads on for a while after the response: some clients lose it if they are stopped while they
    /// send.
    pub(super) async fn discard(&mut self) {
        if self.failed {
            return;
        }
        let in_force = self.link.worker.io.limits();
        let mut left = in_force.limits.linger_bytes_max;
        let discarding = async {
            while left > 0 {
                match self.pull(&mut |bytes| left = left.saturating_sub(bytes.len())).await {
                    Ok(false) => {}
                    Ok(true) | Err(_) => return,
                }
            }
        };
        // The time-out is the ordinary end for a client that does not stop.
        let _ = time::timeout(in_force.limits.linger_timeout, discarding).await;
    }

    /// Waits until content has come, or its end.
    async fn arrived(&mut self) -> Result<(), Fault> {
        let (link, id) = (Rc::clone(&self.link), self.stream);
        let arrived = || poll_fn(|cx| link.poll_arrived(id, cx).map_err(|_| Fault::ClientBody));
        let io = &link.worker.io;
        if !link.is_answered(id) {
            let limit = |limits: &Limits| limits.body_timeout;
            let waited = self.pace.wait(io, limit, arrived(), Fault::ClientSlow).await;
            if waited != Err(Fault::ClientSlow) || !link.is_answered(id) {
                self.failed |= waited.is_err();
                return waited;
            }
        }
        // Both sides send when they have something to say, as in a tunnel.
        let limit = io.limits().limits.tunnel_idle;
        time::timeout(limit, arrived()).await.unwrap_or(Err(Fault::ClientSlow))
    }
}

impl client::RequestBody for RequestBody {
    fn length(&self) -> BodyLength {
        self.length
    }

    fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    async fn pull(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<bool, Fault> {
        if self.is_done {
            return Ok(true);
        }
        self.arrived().await?;
        let taken = self.link.take_received(self.stream);
        let (content, is_complete) = taken.ok_or(Fault::ClientBody)?;
        if !content.is_empty() {
            sink(&content);
            self.link.release(self.stream, content.len());
        }
        self.pace.moved(content.len());
        self.used += content.len() as u64;
        self.is_done = is_complete;
        Ok(is_complete)
    }

    fn trailers(&mut self) -> Vec<u8> {
        self.link.take_trailers(self.stream)
    }

    fn bytes_used(&self) -> u64 {
        self.used
    }

    fn take_rest(&mut self) -> Vec<u8> {
        // It stays with the stream, where a tunnel finds it.
        Vec::new()
    }
}
