//! What the client of an exchange asks of its connection.

use std::task::{Context, Poll};

use core_io::CoreIo;
use core_io::mux::{find, others_wait};
use http1::{Version, trailer_fields};
use http3::{ErrorCode, write};
use outcome::Fault;
use quinn_proto::StreamId;
use runtime::wake;

use super::super::limits::SHARE_BYTES;
use super::{Link, State};
use crate::h2::{Shared, Stop, Streams};
use exchange::client::Gone;

impl Streams for Link {
    type Id = StreamId;
    const VERSION: Version = Version::Http3;

    fn io(&self) -> &CoreIo {
        &self.worker.io
    }

    fn own_lines(&self) -> &[u8] {
        // The client knows.
        b""
    }

    fn send_head<'f>(
        &self,
        id: StreamId,
        status: u16,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        ends: bool,
    ) -> bool {
        self.write(|State { quinn, streams, held, .. }| {
            let Some(stream) = find(streams, id) else { return false };
            stream.shared.is_answered = status >= 200;
            write::response(status, fields, &mut stream.unsent);
            if ends {
                stream.end();
            }
            stream.flush(quinn, id, held).is_ok()
        })
    }

    fn send_content(&self, id: StreamId, content: &[u8], ends: bool) -> Option<usize> {
        let held_max = self.held_max();
        self.write(|state| {
            // What waits for windows of single streams takes no room of the others.
            let held_max = held_max + state.parked();
            let State { quinn, streams, served, held, .. } = state;
            let has_others = others_wait(streams, id);
            let stream = find(streams, id)?;
            let shares = has_others && stream.priority.incremental;
            let share = if shares { SHARE_BYTES } else { content.len() };
            let part = &content[..content.len().min(share)];
            let sent = stream.send(quinn, id, (held, held_max), part).ok()?;
            if sent > 0 {
                *served += 1;
                stream.served = *served;
            }
            if ends && sent == content.len() {
                stream.end();
                stream.flush(quinn, id, held).ok()?;
            }
            Some(sent)
        })
    }

    fn send_trailers(&self, id: StreamId, lines: &[u8]) -> bool {
        self.write(|State { quinn, streams, held, .. }| {
            let Some(stream) = find(streams, id) else { return false };
            write::trailers(trailer_fields(lines), &mut stream.unsent);
            stream.end();
            stream.flush(quinn, id, held).is_ok()
        })
    }

    fn waits_for_window(&self, id: StreamId) -> bool {
        find(&mut self.state.borrow_mut().streams, id).is_some_and(|stream| stream.is_blocked)
    }

    fn poll_window(&self, id: StreamId, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        match find(&mut self.state.borrow_mut().streams, id) {
            None => Poll::Ready(Err(Gone)),
            Some(stream) if stream.is_blocked => {
                stream.shared.room_waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(stream) => {
                stream.shared.room_waker = None;
                Poll::Ready(Ok(()))
            }
        }
    }

    fn poll_room(
        &self,
        id: StreamId,
        others_first: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Gone>> {
        let state = &mut *self.state.borrow_mut();
        let is_full = state.pending() >= self.held_max();
        let State { streams, waker, .. } = state;
        let waits = std::mem::take(others_first) && others_wait(streams, id);
        let Some(stream) = find(streams, id) else { return Poll::Ready(Err(Gone)) };
        if !stream.is_blocked && !waits && !is_full {
            // A waker that is left would take the turn of a stream that waits.
            stream.shared.room_waker = None;
            return Poll::Ready(Ok(()));
        }
        stream.shared.room_waker = Some(cx.waker().clone());
        if waits {
            // Its task wakes the next stream.
            wake(waker);
        }
        Poll::Pending
    }

    fn has_unsent(&self, id: StreamId) -> bool {
        let mut state = self.state.borrow_mut();
        find(&mut state.streams, id).is_some_and(|stream| stream.has_unsent())
    }

    fn with<R>(&self, id: StreamId, f: impl FnOnce(&mut Shared) -> R) -> Option<R> {
        find(&mut self.state.borrow_mut().streams, id).map(|stream| f(&mut stream.shared))
    }

    fn poll_content(
        &self,
        id: StreamId,
        content: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, Fault>> {
        match self.write(|state| state.read_content(self, id, content, cx)) {
            Poll::Ready(Err(Some(error))) => {
                self.broken(id, error);
                Poll::Ready(Err(Fault::ClientBody))
            }
            Poll::Ready(Err(None)) => Poll::Ready(Err(Fault::ClientBody)),
            Poll::Ready(Ok(is_complete)) => Poll::Ready(Ok(is_complete)),
            Poll::Pending => Poll::Pending,
        }
    }

    fn release(&self, _id: StreamId, _bytes: usize) {
        // What was read may be sent again.
    }

    fn stop(&self, id: StreamId, why: Stop) {
        let code = match why {
            Stop::BrokenOff => ErrorCode::H3_INTERNAL_ERROR,
            Stop::TunnelOver => ErrorCode::H3_REQUEST_CANCELLED,
            Stop::TunnelBroken => ErrorCode::H3_CONNECT_ERROR,
        };
        self.write(|state| {
            // What QUIC still sends of a stream that has ended is not cut.
            if !find(&mut state.streams, id).is_some_and(|stream| stream.has_ended()) {
                state.stop(id, code);
            }
        });
    }
}
