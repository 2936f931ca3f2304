//! The lanes of a run, and the requests of a link: what HTTP/2 and HTTP/3 share.
//!
//! A lane knows its request and what has come of the response. A link knows which lanes wait for a
//! stream, and which stream a lane has. So a connection reports what it has received by the number
//! of a stream alone.

use std::collections::VecDeque;

use http2::ResponseHead;

use crate::connections::Assigned;
use crate::outcome::ErrorKind;
use crate::response::{Complete, Received, source_of};

/// Content that a server may send before any of it is released: more than one read brings.
pub(super) const WINDOW_BYTES: u32 = 1 << 20;

/// Why a connection goes on. Only HTTP/3 has timers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Socket,
    Timer,
}

/// All lanes of a run.
pub(super) struct Lanes {
    pub(super) all: Vec<Lane>,
    /// Links with lanes.
    pub(super) hot: u32,
    pub(super) count_hits: bool,
    /// Lanes whose request has ended, while the events of a read are handled.
    pub(super) ended: Vec<(u32, Result<Complete, ErrorKind>)>,
}

impl Lanes {
    /// The number of a lane among those of its link.
    pub(super) fn place(&self, lane: u32) -> usize {
        (lane / self.hot) as usize
    }

    /// The lanes of a link.
    pub(super) fn of(&self, link: u32) -> impl ExactSizeIterator<Item = u32> + use<> {
        let end = if link < self.hot { self.all.len() as u32 } else { 0 };
        (link..end.max(link)).step_by(self.hot as usize)
    }

    /// Content of a response.
    pub(super) fn take(&mut self, lane: u32, bytes: &[u8]) {
        self.all[lane as usize].take(bytes);
    }
}

/// The requests of a link.
#[derive(Default)]
pub(super) struct Requests {
    /// The streams of those that were sent, with their lanes.
    pub(super) sent: Vec<(u64, u32)>,
    /// The lanes of those that wait for a stream.
    pub(super) waiting: VecDeque<u32>,
    /// The server has answered one, so that another connection will answer too.
    pub(super) has_answered: bool,
}

impl Requests {
    pub(super) fn lane_of(&self, stream: u64) -> Option<u32> {
        self.sent.iter().find(|(sent, _)| *sent == stream).map(|(_, lane)| *lane)
    }

    /// The head of a response has come.
    pub(super) fn answered(&mut self, lanes: &mut Lanes, lane: u32, head: &ResponseHead<'_>) {
        if head.status < 200 {
            return;
        }
        self.has_answered = true;
        let received = &mut lanes.all[lane as usize].received;
        received.bad_status = head.status >= 400;
        if lanes.count_hits {
            received.source = source_of(|name| field(head, name));
        }
    }

    /// A stream has ended.
    pub(super) fn ended(&mut self, lanes: &mut Lanes, stream: u64, end: Result<(), ErrorKind>) {
        if let Some(at) = self.sent.iter().position(|(sent, _)| *sent == stream) {
            let (_, lane) = self.sent.swap_remove(at);
            let place = &lanes.all[lane as usize];
            let assigned = place.request.as_ref().expect("a sent request is in its lane");
            lanes.ended.push((lane, end.and_then(|()| place.judge(assigned))));
        }
    }

    /// The server does not process streams from this one on: they are sent on the next connection.
    pub(super) fn not_processed(&mut self, first: u64) {
        self.sent.retain(|&(stream, lane)| {
            let is_processed = stream < first;
            if !is_processed {
                // It is older than those that wait.
                self.waiting.push_front(lane);
            }
            is_processed
        });
    }
}

/// A place for one request.
#[derive(Clone, Copy)]
pub(super) struct Lane {
    pub(super) request: Option<Assigned>,
    pub(super) size: u64,
    pub(super) received: Received,
    pub(super) wrong_bytes: bool,
}

/// A lane without a request.
pub(super) const FREE: Lane =
    Lane { request: None, size: 0, received: Received::NOTHING, wrong_bytes: false };

impl Lane {
    fn take(&mut self, bytes: &[u8]) {
        if let Some(assigned) = &self.request {
            self.wrong_bytes |= self.received.take(bytes, assigned.requested).is_err();
        }
    }

    fn judge(&self, assigned: &Assigned) -> Result<Complete, ErrorKind> {
        match self.wrong_bytes {
            true => Err(ErrorKind::WrongBytes),
            false => self.received.judge(assigned.requested),
        }
    }
}

fn field<'h>(head: &ResponseHead<'h>, name: http1::Name) -> Option<&'h [u8]> {
    let name = name.as_str().as_bytes();
    head.fields.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}
