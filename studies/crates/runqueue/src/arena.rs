//! Task blocks as in Linux 2.4: 8 KiB each, aligned to 8 KiB, with the task structure at the lower
//! end and the task's kernel stack above it.
//!
//! What: an [`Arena`] of blocks, a [`Task`] in it, and the [`Palette`] that moves a task structure
//! inside its block. Why the alignment matters: the kernel found the current task by clearing the
//! low bits of the stack pointer, so every structure began at a multiple of 8 KiB, and the fields
//! that the scheduler's walk reads ([`HOT_LINE`]) fell into few sets of the cache.
//!
//! The offsets are those of the 32-bit kernel. A link is the index of a word of the arena, where
//! the kernel had a four-byte address. All words are atomics: as in the kernel, the words of the
//! run queue change under its lock and others without one. On this processor a relaxed load is an
//! ordinary load. What never happens: a task structure reaches into the upper half of its block.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::Layout;
use crate::cache::Machine;

/// Size and alignment of a block, bytes.
pub(super) const BLOCK_BYTES: u64 = 8 << 10;
/// The offset in a task structure that the walk reads first.
pub(super) const HOT_LINE: u64 = 0x30;
/// The upper half of a block is the task's private memory: mailbox and buffer.
const PRIVATE: u32 = 0x1000;
/// Words of a block.
const BLOCK_WORDS: u32 = (BLOCK_BYTES / WORD_BYTES) as u32;
pub(super) const WORD_BYTES: u64 = 4;
/// The end of a list.
pub(super) const NONE: u32 = u32::MAX;
/// The link of a task that is on no queue.
pub(super) const OFF: u32 = u32::MAX - 1;
/// The most colours, as in the paper.
const COLOURS_MAX: u32 = 32;

/// A field of the task structure, by its offset in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field(u32);

pub(super) const STATE: Field = Field(0x00);
pub(super) const COUNTER: Field = Field(0x20);
/// 20 minus the nice value, as in the kernel's formulas.
pub(super) const PRIORITY: Field = Field(0x24);
pub(super) const MM: Field = Field(0x2c);
pub(super) const HAS_CPU: Field = Field(HOT_LINE as u32);
pub(super) const PROCESSOR: Field = Field(0x34);
pub(super) const ALLOWED: Field = Field(0x38);
/// The last field that shares the line of [`HOT_LINE`].
pub(super) const NEXT: Field = Field(0x3c);
pub(super) const PREV: Field = Field(0x40);
const STRUCTURE_END: u32 = 0x44;

/// The task's waiting messages, and how many of these are its user's own.
pub(super) const PENDING: Private = Private(0);
pub(super) const OWN: Private = Private(4);
/// Its buffer, which extends to the end of the block.
pub(super) const BUFFER: Private = Private(0x400);
pub(super) const BUFFER_BYTES: u32 = 0x800;

const _: () = {
    assert!(PRIVATE + BUFFER.0 + BUFFER_BYTES <= BLOCK_BYTES as u32);
    assert!(COLOURS_MAX * LINE_BYTES_MAX + STRUCTURE_END <= PRIVATE);
};
/// A colour moves a structure by one line, which is at most this long.
const LINE_BYTES_MAX: u32 = 64;

/// A place in a task's private memory, by its offset in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Private(u32);

/// A task structure, identified by the index of its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task(pub(super) u32);

impl Task {
    /// The index of its block. The kernel cleared the low bits of the stack pointer to find it.
    pub(super) fn block(self) -> u32 {
        self.0 / BLOCK_WORDS
    }

    /// The word of a field.
    pub(super) fn word(self, field: Field) -> u32 {
        self.0 + field.0 / WORD_BYTES as u32
    }

    /// The word of a place in its private memory.
    pub(super) fn private(self, at: Private) -> u32 {
        self.block() * BLOCK_WORDS + (PRIVATE + at.0) / WORD_BYTES as u32
    }
}

#[repr(C, align(8192))]
struct Block([AtomicU32; BLOCK_WORDS as usize]);

/// Consecutive blocks.
pub(super) struct Arena {
    blocks: Box<[Block]>,
}

impl Arena {
    /// An arena of `blocks` blocks, each of which has been written to.
    pub(super) fn new(blocks: u32) -> Arena {
        let block = |_| Block([const { AtomicU32::new(0) }; BLOCK_WORDS as usize]);
        let arena = Arena { blocks: (0..blocks).map(block).collect() };
        // Zeroed memory may have no frame before it is written to.
        for block in &arena.blocks {
            for word in block.0.iter().step_by(64) {
                word.store(1, Ordering::Relaxed);
            }
        }
        arena
    }

    pub(super) fn blocks(&self) -> u32 {
        self.blocks.len() as u32
    }

    #[inline]
    pub(super) fn at(&self, word: u32) -> &AtomicU32 {
        &self.blocks[(word / BLOCK_WORDS) as usize].0[(word % BLOCK_WORDS) as usize]
    }

    #[inline]
    pub(super) fn get(&self, task: Task, field: Field) -> u32 {
        self.at(task.word(field)).load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn set(&self, task: Task, field: Field, value: u32) {
        self.at(task.word(field)).store(value, Ordering::Relaxed);
    }

    /// The first word of piece `number` of a block that is divided into pieces of `bytes`.
    pub(super) fn piece(block: u32, number: u32, bytes: u32) -> u32 {
        block * BLOCK_WORDS + number * bytes / WORD_BYTES as u32
    }
}

/// Chooses the place of a task structure in its block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Palette {
    layout: Layout,
    line_bytes: u32,
    blocks_a_way: u64,
}

impl Palette {
    /// The palette for the second level of this machine.
    pub(super) fn of(layout: Layout, machine: &Machine) -> Palette {
        let line = machine.l1.line.max(machine.l2.line);
        Palette {
            layout,
            line_bytes: u32::try_from(line).map_or(LINE_BYTES_MAX, |l| l.min(LINE_BYTES_MAX)),
            blocks_a_way: (machine.l2.way_bytes() / BLOCK_BYTES).max(1),
        }
    }

    /// The task in a block. `number` is the block's address divided by the block size.
    pub(super) fn task(&self, block: u32, number: u64) -> Task {
        Task(block * BLOCK_WORDS + self.colour(number) * self.line_bytes / WORD_BYTES as u32)
    }

    fn colour(&self, number: u64) -> u32 {
        let colour = match self.layout {
            Layout::Vanilla | Layout::MultiQueue => 0,
            // By address bits above those that select the set.
            Layout::Colours(colours) => {
                number / self.blocks_a_way % u64::from(colours.clamp(1, COLOURS_MAX))
            }
            // By the bits that select the set: blocks of the same set get the same colour and still
            // collide.
            Layout::ColoursBySetIndex(colours) => {
                number % u64::from(colours.clamp(1, COLOURS_MAX)).min(self.blocks_a_way)
            }
        };
        colour as u32
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn blocks_are_aligned_and_the_hot_line_is_one_line() {
        let arena = Arena::new(3);
        let first = &raw const *arena.at(0);
        assert_eq!(first.addr() % BLOCK_BYTES as usize, 0);
        let second = &raw const *arena.at(BLOCK_WORDS);
        assert_eq!(second.addr() - first.addr(), BLOCK_BYTES as usize);
        for line in [32, 64] {
            for field in [COUNTER, PRIORITY, MM, HAS_CPU, PROCESSOR, ALLOWED, NEXT] {
                assert_eq!(u64::from(field.0) / line, HOT_LINE / line, "{field:?}");
            }
        }
        assert_eq!(PREV.0, 0x40, "as in the original, it is in the next line");
    }

    #[test]
    fn a_colour_moves_the_structure_inside_its_block() {
        let palette = Palette::of(Layout::Colours(32), &Machine::of_2002(1024));
        for number in [0, 31, 32, 1023, 1024] {
            let task = palette.task(7, number);
            assert_eq!(task.block(), 7);
            assert_eq!(task.private(PENDING), 7 * BLOCK_WORDS + 1024, "private memory stays");
        }
        assert_eq!(palette.task(0, 31), Task(0));
        assert_eq!(palette.task(0, 32), Task(8), "a line of 32 bytes");
        assert_eq!(palette.task(0, 1024), Task(0), "32 colours have been used");
    }

    /// The number of second-level sets used by the hot lines of 1,024 dense blocks.
    fn sets(layout: Layout) -> usize {
        let machine = Machine::of_2002(1024);
        let palette = Palette::of(layout, &machine);
        let way = machine.l2.way_bytes();
        let set = |block: u32| {
            let task = palette.task(block, u64::from(block));
            (u64::from(task.word(HAS_CPU)) * WORD_BYTES) % way / machine.l2.line
        };
        (0..1024).map(set).collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn a_colour_by_the_set_index_reaches_no_more_sets() {
        assert_eq!(sets(Layout::Vanilla), 32);
        assert_eq!(sets(Layout::Colours(8)), 256);
        assert_eq!(sets(Layout::Colours(32)), 1024);
        assert_eq!(sets(Layout::ColoursBySetIndex(32)), 32);
    }
}
