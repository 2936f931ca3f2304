//! Streams (RFC 9113 section 5.1), and the table that finds one by its identifier.
//!
//! Each direction of a stream goes through the steps of one message:
//!
//! ```text
//!             head                content ends, or trailers
//!   Head ----------------> Body ------------------------------> Ended
//!     \  ^ interim head |                                         ^
//!      \ `-------------`         head that ends the stream        |
//!       `---------------------------------------------------------'
//! ```
//!
//! | RFC 9113 | receiving | sending |
//! | --- | --- | --- |
//! | open | Head or Body | Head or Body |
//! | half-closed (remote) | Ended | Head or Body |
//! | half-closed (local) | Head or Body | Ended |
//! | closed | Ended | Ended |
//!
//! A stream that is closed stays in the table until its content is released. A stream that is reset
//! leaves it at once. The table keeps its memory until `shrink`, so that a connection in use
//! allocates nothing per request.

use hashbrown::HashTable;

use crate::flow::{ReceiveWindow, SendWindow};
use crate::priority::Priority;

/// The step of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Head,
    Body,
    Ended,
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) id: u32,
    pub(crate) receiving: Step,
    pub(crate) sending: Step,
    pub(crate) send_window: SendWindow,
    pub(crate) receive_window: ReceiveWindow,
    /// What must still be received if Content-Length says so.
    pub(crate) content_left: Option<u64>,
    pub(crate) priority: Priority,
    /// The caller has content to send.
    pub(crate) wants: bool,
    /// A response to HEAD has no content.
    pub(crate) is_head: bool,
    /// When it was served last, for responses that share a connection.
    pub(crate) turn: u32,
}

impl Stream {
    pub(crate) fn new(id: u32, receive_bytes: u32, send_bytes: u32) -> Stream {
        Stream {
            id,
            receiving: Step::Head,
            sending: Step::Head,
            send_window: SendWindow::new(send_bytes),
            receive_window: ReceiveWindow::new(receive_bytes),
            content_left: None,
            priority: Priority::DEFAULT,
            wants: false,
            is_head: false,
            turn: 0,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.receiving == Step::Ended && self.sending == Step::Ended
    }
}

/// The streams of a connection.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    table: HashTable<Stream>,
    /// Those that are not closed. All were opened by one side, since there is no push.
    open: u32,
}

/// Identifiers ascend, so that a multiplication spreads them well.
#[inline]
fn hash(id: u32) -> u64 {
    u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Streams {
    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&Stream> {
        self.table.find(hash(id), |stream| stream.id == id)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
        self.table.find_mut(hash(id), |stream| stream.id == id)
    }

    pub(crate) fn insert(&mut self, stream: Stream) {
        self.open += 1;
        self.table.insert_unique(hash(stream.id), stream, |stream| hash(stream.id));
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Stream> {
        let entry = self.table.find_entry(hash(id), |stream| stream.id == id).ok()?;
        let (stream, _) = entry.remove();
        if !stream.is_closed() {
            self.open -= 1;
        }
        Some(stream)
    }

    /// Moves a direction of a stream to a step. A closed stream without content leaves.
    pub(crate) fn advance(&mut self, id: u32, direction: Direction, step: Step) {
        let Some(stream) = self.get_mut(id) else { return };
        let was_closed = stream.is_closed();
        match direction {
            Direction::Receiving => stream.receiving = step,
            Direction::Sending => stream.sending = step,
        }
        if stream.is_closed() && !was_closed {
            self.open -= 1;
            self.settle(id);
        }
    }

    /// Removes a closed stream whose content is released.
    pub(crate) fn settle(&mut self, id: u32) {
        let done = |stream: &Stream| stream.is_closed() && stream.receive_window.held() == 0;
        if self.get(id).is_some_and(done) {
            self.remove(id);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.table.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.table.iter_mut()
    }

    /// Streams that are not closed.
    pub(crate) fn open(&self) -> u32 {
        self.open
    }

    /// All streams, with those that are closed and not released.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn shrink(&mut self) {
        self.table.shrink_to_fit(|stream| hash(stream.id));
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.table.allocation_size()
    }
}

/// The direction of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Receiving,
    Sending,
}
