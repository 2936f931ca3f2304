//! The simulated physical frames of the blocks.
//!
//! Why: a cache's second level is indexed by physical addresses, and a program sees virtual ones.
//! So frames are simulated: *dense*, with blocks in consecutive frames in the order of their
//! creation, as after a boot; or *random*, with blocks anywhere in a memory of a given size, as
//! after a long uptime.
//!
//! What never happens: the two pages of a block are apart, because the kernel allocated both at
//! once.

use regress::Rng;

use crate::arena::{BLOCK_BYTES, WORD_BYTES};

/// Size of the memory for random frames. The paper does not give that of its machines.
pub(super) const MEMORY_BYTES: u64 = 1 << 30;

/// The place of each block in physical memory, in blocks.
#[derive(Debug)]
pub(super) struct Frames(Vec<u64>);

impl Frames {
    pub(super) fn dense(blocks: u32) -> Frames {
        Frames((0..u64::from(blocks)).collect())
    }

    /// Drawn without replacement.
    pub(super) fn random(blocks: u32, rng: &mut Rng) -> Frames {
        let mut free: Vec<u64> = (0..MEMORY_BYTES / BLOCK_BYTES).collect();
        Frames((0..blocks).map(|_| free.swap_remove(rng.below(free.len()))).collect())
    }

    /// The physical address of a word.
    pub(super) fn address(&self, word: u32) -> u64 {
        let byte = u64::from(word) * WORD_BYTES;
        self.0[(byte / BLOCK_BYTES) as usize] * BLOCK_BYTES + byte % BLOCK_BYTES
    }

    /// The block's physical address, divided by the block size.
    pub(super) fn number(&self, block: u32) -> u64 {
        self.0[block as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn dense_frames_follow_one_another_and_random_ones_are_all_different() {
        let dense = Frames::dense(4);
        assert_eq!((dense.number(3), dense.address(2048 + 1)), (3, 8192 + 4));
        let random = Frames::random(1000, &mut Rng::new(3));
        let all: BTreeSet<u64> = (0..1000).map(|block| random.number(block)).collect();
        assert_eq!(all.len(), 1000);
        assert!(all.iter().all(|number| number * BLOCK_BYTES < MEMORY_BYTES));
        assert_eq!(random.address(2048 + 1024), random.address(2048) + 4096, "both pages");
    }
}
