//! The content of a request over HTTP/2 or HTTP/3.
//!
//! It waits in the stream until the exchange asks for it. What the exchange has taken is released,
//! so that the client may send more: no more than a stream's window waits here.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use outcome::Fault;
use runtime::time;
use upstream::BodyLength;

use super::streams::Streams;
use core_io::pace::Pace;
use exchange::client::{self, RequestBody as _};
use exchange::limits::Limits;

/// The content of one request.
pub(crate) struct RequestBody<S: Streams> {
    link: Rc<S>,
    stream: S::Id,
    length: BodyLength,
    is_awaited: bool,
    used: u64,
    /// Bytes of content that may come.
    most: u64,
    is_done: bool,
    /// It has not arrived in time, or the stream is gone.
    failed: bool,
    pace: Pace,
}

impl<S: Streams> RequestBody<S> {
    pub(super) fn new(
        link: Rc<S>,
        stream: S::Id,
        length: BodyLength,
        is_awaited: bool,
    ) -> RequestBody<S> {
        let is_done = length.is_empty();
        let most = link.io().limits().requests.content_bytes_max;
        RequestBody {
            link,
            stream,
            length,
            is_awaited,
            used: 0,
            most,
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
        let in_force = self.link.io().limits();
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

    /// Waits until content has come, or its end; true if it is complete.
    async fn arrive(&mut self, content: &mut Vec<u8>) -> Result<bool, Fault> {
        let (link, stream) = (Rc::clone(&self.link), self.stream);
        let mut is_complete = false;
        let mut poll = |content: &mut Vec<u8>, cx: &mut Context<'_>| -> Poll<Result<(), Fault>> {
            link.poll_content(stream, content, cx).map_ok(|complete| is_complete = complete)
        };
        let io = link.io();
        if !link.is_answered(stream) {
            let arriving = poll_fn(|cx| poll(content, cx));
            let limit = |limits: &Limits| limits.body_timeout;
            let waited = self.pace.wait(io, limit, arriving, Fault::ClientSlow).await;
            if waited != Err(Fault::ClientSlow) || !link.is_answered(stream) {
                self.failed |= waited.is_err();
                return waited.map(|()| is_complete);
            }
        }
        // Both sides send when they have something to say, as in a tunnel.
        if content.is_empty() {
            let limit = io.limits().limits.tunnel_idle;
            let arriving = poll_fn(|cx| poll(content, cx));
            time::timeout(limit, arriving).await.unwrap_or(Err(Fault::ClientSlow))?;
        }
        Ok(is_complete)
    }
}

impl<S: Streams> client::RequestBody for RequestBody<S> {
    fn length(&self) -> BodyLength {
        self.length
    }

    fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    fn limit(&mut self, bytes: u64) {
        self.most = bytes;
    }

    async fn pull(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<bool, Fault> {
        if self.is_done {
            return Ok(true);
        }
        let mut content = Vec::new();
        let is_complete = self.arrive(&mut content).await?;
        if !content.is_empty() {
            sink(&content);
            self.link.release(self.stream, content.len());
        }
        self.pace.moved(content.len());
        self.used += content.len() as u64;
        if self.used > self.most {
            self.failed = true;
            return Err(Fault::ClientBodyTooLarge);
        }
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
