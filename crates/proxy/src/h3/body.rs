//! The content of a request over HTTP/3.
//!
//! It waits in the stream until the exchange asks for it. What was read from there may be sent
//! again by the client: no more than a stream's window waits here.

use std::future::poll_fn;
use std::rc::Rc;

use outcome::Fault;
use quinn_proto::StreamId;
use runtime::time;
use upstream::BodyLength;

use super::link::Link;
use crate::client::{self, RequestBody as _};
use crate::h2::Streams as _;
use crate::pace::Pace;

/// The content of one request.
pub(crate) struct RequestBody {
    link: Rc<Link>,
    stream: StreamId,
    length: BodyLength,
    is_awaited: bool,
    used: u64,
    is_done: bool,
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
        RequestBody { link, stream, length, is_awaited, used: 0, is_done, pace: Pace::default() }
    }

    /// Reads on for a while after the response: some clients lose it if they are stopped while they
    /// send.
    pub(super) async fn discard(&mut self) {
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
        let (link, stream) = (Rc::clone(&self.link), self.stream);
        let mut content = Vec::new();
        let mut is_complete = false;
        let arriving = poll_fn(|cx| {
            link.poll_content(stream, &mut content, cx).map_ok(|complete| is_complete = complete)
        });
        let io = &link.worker.io;
        self.pace.wait(io, |limits| limits.body_timeout, arriving, Fault::ClientSlow).await?;
        if !content.is_empty() {
            sink(&content);
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
        // Tunnels do not come here: their requests are refused.
        Vec::new()
    }
}
