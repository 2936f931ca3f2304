//! The physical frames of the blocks.
//!
//! Why: a cache's second level is indexed by physical addresses, and a program sees virtual ones.
//! So frames are simulated: *dense*, with blocks in consecutive frames in the order of their
//! creation, as after a boot; or *random*, with blocks anywhere in a memory of a given size, as
//! after a long uptime. If the kernel reports them to this process, the real ones are used too: *as
//! here*.
//!
//! What never happens: the two pages of a block are apart in simulated frames (the kernel allocated
//! both at once); a guess about what the kernel hides.

use std::fs::File;
use std::os::unix::fs::FileExt;

use regress::Rng;
use serde::Serialize;

use crate::arena::{Arena, BLOCK_BYTES, WORD_BYTES};

const PAGE_BYTES: u64 = 4 << 10;
const PAGES_A_BLOCK: u64 = BLOCK_BYTES / PAGE_BYTES;
/// Size of the memory for random frames. The paper does not give that of its machines.
pub(super) const MEMORY_BYTES: u64 = 1 << 30;

/// How frames were allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Given {
    /// Consecutive frames.
    Dense,
    /// Random frames.
    Random,
    /// As the kernel of this machine allocated them.
    Here,
}

impl Given {
    /// Its printed form.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Given::Dense => "dense",
            Given::Random => "random",
            Given::Here => "as here",
        }
    }
}

/// The physical address of each page of the blocks.
#[derive(Debug)]
pub(super) struct Frames {
    pages: Vec<u64>,
}

impl Frames {
    pub(super) fn dense(blocks: u32) -> Frames {
        let pages = u64::from(blocks) * PAGES_A_BLOCK;
        Frames { pages: (0..pages).map(|page| page * PAGE_BYTES).collect() }
    }

    /// Drawn without replacement.
    pub(super) fn random(blocks: u32, rng: &mut Rng) -> Frames {
        let mut free: Vec<u64> = (0..MEMORY_BYTES / BLOCK_BYTES).collect();
        let mut pages = Vec::new();
        for _ in 0..blocks {
            let at = rng.below(free.len());
            let begin = free.swap_remove(at) * BLOCK_BYTES;
            pages.extend((0..PAGES_A_BLOCK).map(|page| begin + page * PAGE_BYTES));
        }
        Frames { pages }
    }

    /// As reported by the kernel, or the reason why not.
    pub(super) fn here(arena: &Arena) -> Result<Frames, String> {
        let unread = |error: std::io::Error| format!("/proc/self/pagemap cannot be read: {error}");
        let map = File::open("/proc/self/pagemap").map_err(unread)?;
        let first = arena.address() as u64 / PAGE_BYTES;
        let pages = u64::from(arena.blocks()) * PAGES_A_BLOCK;
        let mut bytes = vec![0; pages as usize * size_of::<u64>()];
        map.read_exact_at(&mut bytes, first * size_of::<u64>() as u64).map_err(unread)?;
        let (words, _) = bytes.as_chunks::<8>();
        words.iter().map(|word| frame_of(u64::from_ne_bytes(*word))).collect::<Result<_, _>>().map(
            |frames: Vec<u64>| Frames {
                pages: frames.iter().map(|frame| frame * PAGE_BYTES).collect(),
            },
        )
    }

    /// The physical address of a word.
    pub(super) fn address(&self, word: u32) -> u64 {
        let byte = u64::from(word) * WORD_BYTES;
        self.pages[(byte / PAGE_BYTES) as usize] + byte % PAGE_BYTES
    }

    /// The block's physical address, divided by the block size.
    pub(super) fn number(&self, block: u32) -> u64 {
        self.pages[(u64::from(block) * PAGES_A_BLOCK) as usize] / BLOCK_BYTES
    }

    /// The fraction of pages whose successor is also next in physical memory.
    pub(super) fn together(&self) -> f64 {
        let pairs = self.pages.len().saturating_sub(1).max(1);
        let next = |pair: &&[u64]| pair[1] == pair[0] + PAGE_BYTES;
        self.pages.windows(2).filter(next).count() as f64 / pairs as f64
    }
}

/// The frame in an entry of the page map.
fn frame_of(entry: u64) -> Result<u64, String> {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    if entry & PRESENT == 0 {
        return Err("a page of the blocks is in no frame".to_owned());
    }
    match entry & FRAME {
        0 => Err("the kernel shows frame numbers only to CAP_SYS_ADMIN (administer)".to_owned()),
        frame => Ok(frame),
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
        assert_eq!(dense.together(), 1.0);
        let random = Frames::random(1000, &mut Rng::new(3));
        let all: BTreeSet<u64> = (0..1000).map(|block| random.number(block)).collect();
        assert_eq!(all.len(), 1000);
        assert!(all.iter().all(|number| number * BLOCK_BYTES < MEMORY_BYTES));
        assert_eq!(random.address(2048 + 1024), random.address(2048) + PAGE_BYTES, "both pages");
        assert!(random.together() < 0.6, "{}", random.together());
    }

    #[test]
    fn an_entry_of_the_page_map_has_a_frame_or_a_reason() {
        assert_eq!(frame_of(1 << 63 | 0x1234), Ok(0x1234));
        assert_eq!(frame_of(1 << 63 | 1 << 61 | 7), Ok(7));
        assert!(frame_of(0x1234).unwrap_err().contains("no frame"));
        assert!(frame_of(1 << 63).unwrap_err().contains("administer"));
    }

    #[test]
    fn the_frames_of_this_process_are_known_or_there_is_a_reason() {
        let arena = Arena::new(4);
        match Frames::here(&arena) {
            Ok(frames) => {
                let all: BTreeSet<u64> = frames.pages.iter().copied().collect();
                assert_eq!(all.len(), 8, "two pages of each block, all different");
            }
            Err(why) => assert!(!why.is_empty()),
        }
    }
}
