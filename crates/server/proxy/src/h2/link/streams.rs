//! What the client of an exchange asks of its connection.

use std::task::{Context, Poll};

use core_io::CoreIo;
use core_io::limits::OUTPUT_BYTES_MAX;
use core_io::mux::{find, others_wait};
use http1::{Version, trailer_fields};
use http2::limits::FRAME_BYTES;
use http2::{ErrorCode, StreamId};
use outcome::Fault;
use runtime::wake;

use super::super::streams::{Shared, Stop, Streams};
use super::{Link, State};
use exchange::client::Gone;

impl Streams for Link {
    type Id = StreamId;
    const VERSION: Version = Version::Http2;

    fn io(&self) -> &CoreIo {
        &self.worker.io
    }

    fn own_lines(&self) -> &[u8] {
        self.listener.own_lines()
    }

    fn send_head<'f>(
        &self,
        stream: StreamId,
        status: u16,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        ends: bool,
    ) -> bool {
        self.write(|State { http2, out, streams, .. }| {
            if let Some(found) = find(streams, stream) {
                found.shared.is_answered = status >= 200;
            }
            http2.send_response(stream, status, fields, ends, out).is_ok()
        })
    }

    fn send_content(&self, stream: StreamId, content: &[u8], ends: bool) -> Option<usize> {
        self.write(|State { http2, out, streams, .. }| {
            find(streams, stream)?;
            let mut room = OUTPUT_BYTES_MAX.saturating_sub(out.len());
            let is_shared = || http2.priority(stream).is_some_and(|it| it.incremental);
            if others_wait(streams, stream) && is_shared() {
                room = room.min(FRAME_BYTES);
            }
            let part = &content[..content.len().min(room)];
            if part.is_empty() && !content.is_empty() {
                return Some(0);
            }
            let is_whole = part.len() == content.len();
            let ends = ends && is_whole && !planted::is(planted::Bug::Http2EndLost);
            http2.send_data(stream, part, ends, out).ok()
        })
    }

    fn send_trailers(&self, stream: StreamId, lines: &[u8]) -> bool {
        self.write(|State { http2, out, .. }| {
            http2.send_trailers(stream, trailer_fields(lines), out).is_ok()
        })
    }

    fn waits_for_window(&self, stream: StreamId) -> bool {
        self.state.borrow().http2.stream_window(stream) == 0
    }

    fn poll_window(&self, stream: StreamId, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        let State { http2, streams, .. } = &mut *self.state.borrow_mut();
        let Some(found) = find(streams, stream) else { return Poll::Ready(Err(Gone)) };
        if http2.stream_window(stream) > 0 {
            found.shared.room_waker = None;
            return Poll::Ready(Ok(()));
        }
        found.shared.room_waker = Some(cx.waker().clone());
        // So that a window that opens is reported.
        http2.want_to_send(stream);
        Poll::Pending
    }

    fn poll_room(
        &self,
        stream: StreamId,
        others_first: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Gone>> {
        let mut state = self.state.borrow_mut();
        let State { http2, out, streams, waker, .. } = &mut *state;
        let waits = std::mem::take(others_first) && others_wait(streams, stream);
        let Some(found) = find(streams, stream) else { return Poll::Ready(Err(Gone)) };
        let window = http2.send_data_capacity(stream);
        if !waits && out.len() < OUTPUT_BYTES_MAX && window > 0 {
            // A waker that is left would take the turn of a stream that waits.
            found.shared.room_waker = None;
            return Poll::Ready(Ok(()));
        }
        found.shared.room_waker = Some(cx.waker().clone());
        http2.want_to_send(stream);
        if waits || http2.connection_window() == 0 {
            // Its task wakes the next stream, and watches for how long the window is closed.
            wake(waker);
        }
        Poll::Pending
    }

    fn has_unsent(&self, _stream: StreamId) -> bool {
        // The connection's task writes it.
        false
    }

    fn with<R>(&self, stream: StreamId, f: impl FnOnce(&mut Shared) -> R) -> Option<R> {
        find(&mut self.state.borrow_mut().streams, stream).map(|found| f(&mut found.shared))
    }

    fn poll_content(
        &self,
        stream: StreamId,
        content: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<bool, Fault>> {
        if self.poll_arrived(stream, cx).map_err(|Gone| Fault::ClientBody)?.is_pending() {
            return Poll::Pending;
        }
        let state = &mut *self.state.borrow_mut();
        let found = find(&mut state.streams, stream).ok_or(Fault::ClientBody)?;
        match content.is_empty() {
            true => *content = std::mem::take(&mut found.received),
            false => content.append(&mut found.received),
        }
        Poll::Ready(Ok(found.shared.is_complete))
    }

    fn release(&self, stream: StreamId, bytes: usize) {
        if bytes > 0 {
            self.write(|State { http2, out, .. }| http2.release(stream, bytes, out));
        }
    }

    fn stop(&self, stream: StreamId, why: Stop) {
        let code = match why {
            Stop::BrokenOff => ErrorCode::INTERNAL_ERROR,
            Stop::TunnelOver => ErrorCode::CANCEL,
            Stop::TunnelBroken => ErrorCode::CONNECT_ERROR,
        };
        self.write(|State { http2, out, .. }| http2.reset(stream, code, out));
    }
}
