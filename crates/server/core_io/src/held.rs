//! Bytes that wait for clients in the hands of another part: it frees them one by one.

use std::sync::Arc;

use metrics::{Count, Counters};

/// What one connection holds for its client.
pub struct HeldBytes {
    counters: Arc<Counters>,
    bytes: Count,
    /// What it has held and does not hold any more.
    freed: Count,
}

/// Bytes that count as held as long as they exist.
pub struct HeldPart {
    content: Vec<u8>,
    held: Arc<HeldBytes>,
}

impl HeldBytes {
    /// Nothing yet. The counters are those of the core that all of its parts stay on.
    pub fn new(counters: &Arc<Counters>) -> Arc<HeldBytes> {
        let counters = Arc::clone(counters);
        Arc::new(HeldBytes { counters, bytes: Count::default(), freed: Count::default() })
    }

    /// Holds these bytes. Call [`CoreIo::look_at_held_bytes`](crate::CoreIo::look_at_held_bytes)
    /// once per turn.
    pub fn part(self: &Arc<HeldBytes>, content: Vec<u8>) -> HeldPart {
        let bytes = content.capacity() as u64;
        self.bytes.add(bytes);
        self.counters.held_bytes.add(bytes);
        HeldPart { content, held: Arc::clone(self) }
    }

    /// The bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// The bytes of all parts that exist no longer.
    pub fn freed(&self) -> u64 {
        self.freed.get()
    }
}

impl AsRef<[u8]> for HeldPart {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

impl Drop for HeldPart {
    fn drop(&mut self) {
        let bytes = self.content.capacity() as u64;
        self.held.bytes.sub(bytes);
        self.held.freed.add(bytes);
        self.held.counters.held_bytes.sub(bytes);
    }
}

impl std::fmt::Debug for HeldBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldBytes").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for HeldPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldPart").field("bytes", &self.content.len()).finish_non_exhaustive()
    }
}
