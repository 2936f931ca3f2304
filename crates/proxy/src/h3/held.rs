//! Bytes that a connection has for its client: those that QUIC has not taken, and those that it
//! keeps until the client has acknowledged them.

use std::sync::Arc;

use bytes::Bytes;
use metrics::{Count, Counters};

/// What one connection holds.
pub(super) struct Held {
    counters: Arc<Counters>,
    bytes: Count,
    /// What it has held and does not hold any more.
    freed: Count,
}

/// A part that counts as held as long as it exists. QUIC drops it once it is acknowledged, or its
/// stream reset.
struct Part {
    content: Vec<u8>,
    held: Arc<Held>,
}

impl Held {
    pub(super) fn new(counters: &Arc<Counters>) -> Arc<Held> {
        let counters = Arc::clone(counters);
        Arc::new(Held { counters, bytes: Count::default(), freed: Count::default() })
    }

    pub(super) fn part(self: &Arc<Held>, content: Vec<u8>) -> Bytes {
        let bytes = content.capacity() as u64;
        self.bytes.add(bytes);
        self.counters.held_bytes.add(bytes);
        Bytes::from_owner(Part { content, held: Arc::clone(self) })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    pub(super) fn freed(&self) -> u64 {
        self.freed.get()
    }
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let bytes = self.content.capacity() as u64;
        self.held.bytes.sub(bytes);
        self.held.freed.add(bytes);
        self.held.counters.held_bytes.sub(bytes);
    }
}
