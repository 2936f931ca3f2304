//! Fingerprints of objects evicted from the log of new objects, four bytes each.
//!
//! A set of small queues. A fingerprint belongs to one queue and enters at its front; the oldest
//! falls out at the end. The table has room for as many fingerprints as there are objects, and
//! keeps them when it grows. A collision only puts an object into the wrong log.

const QUEUE: usize = 8;
const EMPTY: u32 = 0;
const _: () = assert!(size_of::<[u32; QUEUE]>() == 32, "a look reads one cache line");

#[derive(Debug, Default)]
pub(super) struct Ghosts {
    tags: Vec<[u32; QUEUE]>,
}

/// Bits that neither select the shard nor tag an entry of the index.
fn tag(print: u64) -> u32 {
    let tag = ((print >> 12) as u32).max(1);
    debug_assert!(tag != EMPTY, "a tag differs from an empty place");
    tag
}

impl Ghosts {
    /// Remembers a fingerprint. The table is grown to the number of objects.
    pub(super) fn remember(&mut self, print: u64, objects: usize) {
        self.grow(objects);
        let tag = tag(print);
        let queue = self.queue_mut(tag).expect("it was grown to one at least");
        let at = queue.iter().position(|known| *known == tag).unwrap_or(QUEUE - 1);
        queue.copy_within(..at, 1);
        queue[0] = tag;
        debug_assert!(self.knows(print));
    }

    /// Whether this fingerprint is remembered.
    pub(super) fn knows(&self, print: u64) -> bool {
        let tag = tag(print);
        let queue = (tag as usize) & self.tags.len().wrapping_sub(1);
        self.tags.get(queue).is_some_and(|queue| queue.contains(&tag))
    }

    /// Whether this fingerprint was remembered. Forgets it.
    pub(super) fn forget(&mut self, print: u64) -> bool {
        let tag = tag(print);
        let Some(queue) = self.queue_mut(tag) else { return false };
        let Some(at) = queue.iter().position(|known| *known == tag) else { return false };
        queue.copy_within(at + 1.., at);
        queue[QUEUE - 1] = EMPTY;
        debug_assert!(!self.knows(print), "a fingerprint is in its queue once");
        true
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.tags.capacity() * size_of::<[u32; QUEUE]>()
    }

    fn queue_mut(&mut self, tag: u32) -> Option<&mut [u32; QUEUE]> {
        let queue = (tag as usize) & self.tags.len().wrapping_sub(1);
        self.tags.get_mut(queue)
    }

    fn grow(&mut self, objects: usize) {
        let wanted = objects.div_ceil(QUEUE).max(8).next_power_of_two();
        if wanted <= self.tags.len() {
            return;
        }
        let before = std::mem::replace(&mut self.tags, vec![[EMPTY; QUEUE]; wanted]);
        for queue in before {
            for tag in queue.into_iter().rev().filter(|tag| *tag != EMPTY) {
                let queue = self.queue_mut(tag).expect("there are queues");
                queue.copy_within(..QUEUE - 1, 1);
                queue[0] = tag;
            }
        }
        assert!(self.tags.len().is_power_of_two(), "a queue is chosen by bits of the tag");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_are_remembered_through_growth() {
        let mut ghosts = Ghosts::default();
        assert!(!ghosts.knows(7) && !ghosts.forget(7));
        let print = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for i in 0..4000 {
            ghosts.remember(print(i), i as usize);
            ghosts.remember(print(i), i as usize);
        }
        let known = (3000..4000).filter(|i| ghosts.knows(print(*i))).count();
        assert!(known > 950, "{known}");
        assert!(ghosts.forget(print(3999)) && !ghosts.forget(print(3999)));
        assert!(ghosts.allocated_bytes() <= 4096 * 8);
    }
}
