//! Which stream sends next (RFC 9218).
//!
//! Two queues are ordered. QUIC sends what it was given by the numbers of [`order`]. Streams that
//! wait until the connection holds less for the client go on one after the other.

use core_io::mux::{Waiting, find};
use http3::{Error, Priority, Reason};
use quinn_proto::{Connection, Dir, Side, StreamId};
use runtime::wake;

use super::super::limits::{
    EARLY_PRIORITIES_MAX, SEND_WINDOW_BYTES, SEND_WINDOW_PRESSED_BYTES, STREAMS_MAX,
};
use super::super::stream::Stream;
use super::end::Going;
use super::{Link, State};

impl Link {
    /// How much the connection may hold for its client before a stream sends more content.
    pub(super) fn held_max(&self) -> u64 {
        match self.worker.io.is_pressed() {
            true => SEND_WINDOW_PRESSED_BYTES,
            false => SEND_WINDOW_BYTES,
        }
    }

    /// Wakes the stream that may send next. What it sends wakes the connection, and so the next
    /// stream.
    pub(super) fn wake_sender(&self) {
        let state = &mut *self.state.borrow_mut();
        if state.pending() >= self.held_max() {
            return;
        }
        let waiting = state.streams.iter_mut().filter(|(_, stream)| stream.waits_for_room());
        if let Some((_, stream)) = waiting.min_by_key(|(id, stream)| stream.key(*id)) {
            wake(&mut stream.shared.room_waker);
        }
    }
}

impl State {
    /// Held bytes that wait for windows of the client. They are bounded by the number of streams.
    pub(super) fn parked(&self) -> u64 {
        self.streams.iter().map(|(_, stream)| stream.parked()).sum()
    }

    /// Held bytes that the client can acknowledge.
    pub(super) fn pending(&self) -> u64 {
        self.held.bytes().saturating_sub(self.parked())
    }

    /// The client wants this priority for a request, which may not have arrived.
    pub(super) fn reprioritize(&mut self, id: u64, priority: Priority) -> Result<(), Error> {
        let end = self.next_stream + 4 * u64::from(STREAMS_MAX);
        if id >= end && self.going != Going::Final {
            return Err(Reason::Id.into());
        }
        let State { quinn, streams, early, next_stream, .. } = self;
        let stream = StreamId::new(Side::Client, Dir::Bi, id / 4);
        match find(streams, stream) {
            Some(found) if found.has_head => found.set_priority(quinn, stream, priority),
            // QUIC may still send the end of its response.
            None if id < *next_stream => set_priority(quinn, stream, priority),
            _ => {
                take_early(early, stream);
                if early.len() < EARLY_PRIORITIES_MAX {
                    early.push((stream, priority));
                }
            }
        }
        Ok(())
    }
}

impl Waiting for Stream {
    /// Whether it waits until less is held.
    fn waits_for_room(&self) -> bool {
        self.shared.room_waker.is_some() && !self.is_blocked
    }
}

impl Stream {
    pub(super) fn set_priority(
        &mut self,
        quinn: &mut Connection,
        id: StreamId,
        priority: Priority,
    ) {
        self.priority = priority;
        set_priority(quinn, id, priority);
    }

    pub(super) fn key(&self, id: StreamId) -> impl Ord + use<> {
        self.priority.key(id.into(), self.served)
    }
}

fn set_priority(quinn: &mut Connection, id: StreamId, priority: Priority) {
    // A stream that is gone needs none.
    let _ = quinn.send_stream(id).set_priority(order(priority, id.index()));
}

/// Takes the priority out that came before the head of its request.
pub(super) fn take_early(early: &mut Vec<(StreamId, Priority)>, id: StreamId) -> Option<Priority> {
    let at = early.iter().position(|(other, _)| *other == id)?;
    Some(early.swap_remove(at).1)
}

/// The number by which QUIC sends: higher ones first, equal ones in turn. Our control stream has 0.
fn order(priority: Priority, index: u64) -> i32 {
    const INDEX_MAX: u64 = (1 << 27) - 1;
    let level = 2 * i32::from(priority.urgency) + i32::from(priority.incremental);
    let index = if priority.incremental { 0 } else { index.min(INDEX_MAX) as i32 };
    -1 - (level << 27 | index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgent_first_then_whole_responses_in_their_order_then_those_that_share() {
        let of = |urgency, incremental, index| order(Priority { urgency, incremental }, index);
        let expected = [
            of(0, false, 0),
            of(0, false, 9),
            of(0, true, 3),
            of(3, false, 1),
            of(3, false, u64::MAX),
            of(3, true, 0),
            of(7, false, 0),
            of(7, true, 0),
        ];
        assert!(expected.is_sorted_by(|first, second| first > second), "{expected:?}");
        assert!(expected[0] < 0);
        assert_eq!(of(3, true, 0), of(3, true, 99));
        assert_eq!(of(7, false, u64::MAX), of(7, false, 1 << 40));
    }
}
