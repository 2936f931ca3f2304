//! When and how a connection ends.

use std::mem;
use std::rc::Rc;
use std::time::Duration;

use http3::{ErrorCode, write};
use outcome::Refusal;
use runtime::time::{self, Instant};

use super::super::limits::BEHIND_BYTES_MIN;
use super::super::stream::Stream;
use super::{Link, State, StreamId, number};
use crate::h2;

/// How many linger time-outs a client may be silent while the end of its last response is not
/// acknowledged, before a shutdown takes it for gone. Some probes and their answers may be lost.
const UNANSWERED_PROBES_MAX: u32 = 5;

/// How far the shutdown is (RFC 9114 section 5.2).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Going {
    No,
    /// GOAWAY was sent for no stream that exists.
    Announced,
    /// GOAWAY was sent for the streams that were not opened.
    Final,
}

impl Link {
    /// When a connection ends that does not complete its handshake, takes nothing, or has no
    /// streams.
    pub(super) fn own_deadline(&self, state: &mut State) -> Option<Instant> {
        let in_force = self.worker.io.limits();
        let limits = &in_force.limits;
        if state.is_closed {
            None
        } else if self.tls.get().is_none() {
            Some(self.began + limits.handshake_timeout)
        } else if state.streams.is_empty() && state.going != Going::No {
            // A client that has gone acknowledges nothing. One that waits says nothing either, but
            // it answers QUIC's probes while the end of a response is not acknowledged.
            let probes = if state.held.bytes() == 0 { 1 } else { UNANSWERED_PROBES_MAX };
            Some(state.heard.max(state.since) + limits.linger_timeout * probes)
        } else if let Some(due) = state.taking.due(limits) {
            Some(due)
        } else if state.streams.is_empty() {
            Some(state.since + limits.idle_keep_alive)
        } else {
            None
        }
    }

    /// Ends a connection whose time is over, and one without streams if the core ends. At last it
    /// ends the others too.
    pub(super) fn drain(self: &Rc<Link>) {
        if self.state.borrow().is_closed {
            return;
        }
        self.refuse_late_heads();
        let deadline = self.own_deadline(&mut self.state.borrow_mut());
        let is_late = deadline.is_some_and(|due| time::now() >= due);
        if is_late {
            if self.tls.get().is_none() {
                self.worker.io.counters.tls_failures_slow.add(1);
            }
            return self.close(ErrorCode::H3_NO_ERROR, "");
        }
        let gives_room = {
            let state = self.state.borrow();
            let is_idle = state.streams.is_empty();
            is_idle && self.worker.io.takes_room_of(state.since, self.peer.ip())
        };
        if gives_room {
            return self.close(ErrorCode::H3_NO_ERROR, "");
        }
        if !self.endpoint.is_closing() {
            return;
        }
        if self.tls.get().is_none() && !self.worker.io.closes_silent() {
            // The client cannot know that it should begin again elsewhere.
            return;
        }
        let is_over = self.state.borrow_mut().drain();
        if is_over || self.worker.io.cuts_tunnels() {
            self.close(ErrorCode::H3_NO_ERROR, "");
        }
    }

    /// Sees what the client has acknowledged. Ends the connection if it is too little.
    pub(super) fn look_at_held(&self) {
        let io = &self.worker.io;
        io.look_at_held_bytes();
        let is_too_slow = {
            let state = &mut *self.state.borrow_mut();
            // A stream whose window is closed is cut by itself.
            let pending = state.pending();
            let State { held, control_held, taking, freed, .. } = state;
            let before = mem::replace(freed, held.freed() + control_held.freed());
            let moved = *freed - before;
            let waits = pending + control_held.bytes() > 0;
            taking.moved(moved as usize);
            if moved > 0 && !waits {
                // The client has read all.
                state.since = time::now();
            }
            let limits = &io.limits().limits;
            // A stream of small messages always has something to acknowledge.
            let is_behind = pending >= BEHIND_BYTES_MIN;
            let is_too_slow = taking.is_too_slow(limits, moved > 0, waits, is_behind);
            let is_late = taking.due(limits).is_some_and(|due| time::now() >= due);
            (is_too_slow || is_late) && !state.is_closed
        };
        if is_too_slow {
            io.counters.timeouts.add(1);
            self.close(ErrorCode::H3_EXCESSIVE_LOAD, "too little is acknowledged");
        }
    }

    /// Refuses requests whose heads do not come.
    fn refuse_late_heads(self: &Rc<Link>) {
        let limit = self.worker.io.limits().limits.head_timeout;
        loop {
            let late = {
                let State { quinn, streams, .. } = &mut *self.state.borrow_mut();
                let is_late = |(_, stream): &&mut (StreamId, Stream)| {
                    !stream.has_head && stream.opened.elapsed() >= limit
                };
                streams.iter_mut().find(is_late).map(|(id, stream)| {
                    // What the client still sends of it is not read.
                    (stream.has_head, stream.shared.is_complete) = (true, true);
                    let _ = quinn.recv_stream(*id).stop(number(ErrorCode::H3_REQUEST_CANCELLED));
                    *id
                })
            };
            let Some(id) = late else { return };
            self.worker.io.counters.timeouts.add(1);
            h2::refuse(self, id, Refusal::HeadTimeout, 0);
        }
    }
}

impl State {
    /// When the first request is given up whose head has not come.
    pub(super) fn heads_due(&self, limit: Duration) -> Option<Instant> {
        let waiting = self.streams.iter().filter(|(_, stream)| !stream.has_head);
        waiting.map(|(_, stream)| stream.opened + limit).min()
    }

    /// Whether there is no request, and all that was sent has arrived.
    fn is_idle(&mut self) -> bool {
        // Our control stream never ends.
        let endless = usize::from(self.control.is_some());
        self.streams.is_empty() && self.quinn.streams().send_streams() <= endless
    }

    /// Takes the next step of the shutdown, once the client has acknowledged the one before. True
    /// if there is none.
    fn drain(&mut self) -> bool {
        /// The last stream that a client can open.
        const LAST: u64 = (1 << 62) - 4;
        if self.control.is_none() {
            return self.is_idle();
        }
        let (next, going) = match self.going {
            Going::No => (LAST, Going::Announced),
            _ if self.control_held.bytes() > 0 => return false,
            Going::Announced => (self.next_stream, Going::Final),
            Going::Final => return self.is_idle(),
        };
        self.going = going;
        // From now on the client has time to answer.
        self.heard = time::now();
        let mut frame = Vec::new();
        write::go_away(next, &mut frame);
        self.send_control(frame);
        false
    }
}
