//! The lowest free slot, and a table built on it whose tokens become stale.
//!
//! The `ufalloc()` of 1998: a bitmap of taken slots and above it a bitmap of full words, so that
//! finding the lowest free slot reads two words however many are taken. Taking the lowest free slot
//! keeps a table dense: its length follows the number of connections, and the slots in use share
//! cache lines. [`SlotTable`] adds a generation to each slot, so that a token of an earlier owner
//! finds no value. Neither grows beyond its limit.

use std::fmt;

use crate::Token;

/// Slots per word, and words per word of the summary.
const WORD: usize = u64::BITS as usize;

/// A bitmap of taken slots and one of full words above it.
///
/// ```
/// let mut slots = readiness::slots::SlotBitmap::with_limit(1_000);
/// let taken: Vec<_> = (0..3).map(|_| slots.take_lowest()).collect();
/// assert_eq!(taken, [Some(0), Some(1), Some(2)]);
/// assert!(slots.free(1));
/// assert_eq!(slots.take_lowest(), Some(1));
/// ```
#[derive(Clone)]
pub struct SlotBitmap {
    /// Bit set: the slot is taken.
    taken: Vec<u64>,
    /// Bit set: the word of `taken` is full. Bits beyond `taken` are clear.
    full: Vec<u64>,
    /// Every word of `full` before this one is full.
    first_open: usize,
    /// <= `limit`
    count: u32,
    limit: u32,
}

impl SlotBitmap {
    /// The largest limit of any bitmap: 64 MiB of bitmap, more connections than addresses.
    pub const LIMIT_MAX: u32 = 1 << 29;

    /// Slots 0 up to `limit` (at most [`SlotBitmap::LIMIT_MAX`]), none taken. Memory grows with the
    /// highest slot taken.
    pub const fn with_limit(limit: u32) -> SlotBitmap {
        let limit = if limit < Self::LIMIT_MAX { limit } else { Self::LIMIT_MAX };
        SlotBitmap { taken: Vec::new(), full: Vec::new(), first_open: 0, count: 0, limit }
    }

    /// Takes the lowest free slot; `None` if all are taken.
    pub fn take_lowest(&mut self) -> Option<u32> {
        if self.count == self.limit {
            return None;
        }
        while self.full.get(self.first_open) == Some(&u64::MAX) {
            self.first_open += 1;
        }
        let summary = self.full.get(self.first_open).copied().unwrap_or(0);
        let at = self.first_open * WORD + summary.trailing_ones() as usize;
        debug_assert!(at <= self.taken.len(), "the bitmap is dense");
        if at == self.taken.len() {
            self.taken.push(0);
            if self.first_open == self.full.len() {
                self.full.push(0);
            }
        }
        let bit = self.taken[at].trailing_ones();
        debug_assert!(bit < u64::BITS, "a full word is in the summary");
        self.taken[at] |= 1 << bit;
        if self.taken[at] == u64::MAX {
            self.full[at / WORD] |= 1 << (at % WORD);
        }
        self.count += 1;
        let slot = (at * WORD) as u32 + bit;
        debug_assert!(self.count <= self.limit && slot < self.limit, "within its limit");
        debug_assert!(self.is_consistent(at));
        Some(slot)
    }

    /// Frees a slot. False if it was not taken.
    pub fn free(&mut self, slot: u32) -> bool {
        if !self.is_taken(slot) {
            return false;
        }
        let at = slot as usize / WORD;
        self.taken[at] &= !(1 << (slot as usize % WORD));
        self.full[at / WORD] &= !(1 << (at % WORD));
        self.first_open = self.first_open.min(at / WORD);
        self.count -= 1;
        debug_assert!(self.is_consistent(at));
        true
    }

    /// What holds for each word of `taken`.
    fn is_consistent(&self, at: usize) -> bool {
        let is_full = self.full[at / WORD] >> (at % WORD) & 1 == 1;
        is_full == (self.taken[at] == u64::MAX)
            && self.full.len() == self.taken.len().div_ceil(WORD)
            && self.first_open <= self.full.len()
    }

    /// Whether the slot is taken.
    pub fn is_taken(&self, slot: u32) -> bool {
        let word = self.taken.get(slot as usize / WORD).copied().unwrap_or(0);
        word >> (slot as usize % WORD) & 1 == 1
    }

    /// How many are taken.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether none is taken.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many can be taken.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The taken slots, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.taken.iter().enumerate().flat_map(|(at, &word)| {
            let bits = (0..WORD as u32).filter(move |bit| word >> bit & 1 == 1);
            bits.map(move |bit| (at * WORD) as u32 + bit)
        })
    }
}

impl fmt::Debug for SlotBitmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotBitmap({} of {})", self.count, self.limit)
    }
}

/// Values in the lowest free slots, found by tokens that name slot and generation.
///
/// A token is valid until its value is removed; then it stays stale (until the slot has had 2^32
/// further owners).
pub struct SlotTable<T> {
    slots: SlotBitmap,
    /// `entries[slot].value` is present exactly if `slots` has `slot` taken.
    entries: Vec<Entry<T>>,
}

struct Entry<T> {
    /// The generation of the value, or of the next value if there is none.
    generation: u32,
    value: Option<T>,
}

impl<T> SlotTable<T> {
    /// Bytes that a slot takes, for assertions on its size.
    pub const SLOT_BYTES: usize = size_of::<Entry<T>>();

    /// A table bounded only by [`SlotBitmap::LIMIT_MAX`].
    pub const fn new() -> SlotTable<T> {
        SlotTable::with_limit(SlotBitmap::LIMIT_MAX)
    }

    /// A table of at most `limit` values.
    pub const fn with_limit(limit: u32) -> SlotTable<T> {
        SlotTable { slots: SlotBitmap::with_limit(limit), entries: Vec::new() }
    }

    /// Puts a value into the lowest free slot.
    ///
    /// # Panics
    /// If the table is full. Where that can happen, ask [`SlotTable::is_full`] or use
    /// [`SlotTable::try_insert`].
    pub fn insert(&mut self, value: T) -> Token {
        self.insert_with(|_| value)
    }

    /// As [`SlotTable::insert`], for values that must know their token.
    ///
    /// # Panics
    /// If the table is full.
    pub fn insert_with(&mut self, make: impl FnOnce(Token) -> T) -> Token {
        let slot = self.slots.take_lowest().expect("a slot table stays within its limit");
        if slot as usize == self.entries.len() {
            self.entries.push(Entry { generation: 0, value: None });
        }
        let entry = &mut self.entries[slot as usize];
        debug_assert!(entry.value.is_none(), "a free slot has no value");
        let token = Token::new(slot, entry.generation);
        entry.value = Some(make(token));
        token
    }

    /// Puts a value into the lowest free slot, or returns it if the table is full.
    ///
    /// # Errors
    /// The value itself.
    pub fn try_insert(&mut self, value: T) -> Result<Token, T> {
        if self.is_full() { Err(value) } else { Ok(self.insert(value)) }
    }

    /// The value of a token; `None` if it was removed.
    #[inline]
    pub fn get(&self, token: Token) -> Option<&T> {
        let entry = self.entries.get(token.slot() as usize)?;
        if entry.generation == token.generation() { entry.value.as_ref() } else { None }
    }

    /// The value of a token; `None` if it was removed.
    #[inline]
    pub fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let entry = self.entries.get_mut(token.slot() as usize)?;
        if entry.generation == token.generation() { entry.value.as_mut() } else { None }
    }

    /// Removes the value; its token and all copies of it become stale.
    pub fn remove(&mut self, token: Token) -> Option<T> {
        let entry = self.entries.get_mut(token.slot() as usize)?;
        if entry.generation != token.generation() {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        let was_taken = self.slots.free(token.slot());
        assert!(was_taken, "a value has a slot that is taken");
        Some(value)
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether there is no room for another value.
    pub fn is_full(&self) -> bool {
        self.slots.count == self.slots.limit
    }

    /// How many values there is room for.
    pub fn limit(&self) -> u32 {
        self.slots.limit
    }

    /// All values with their tokens, by slot.
    pub fn iter(&self) -> impl Iterator<Item = (Token, &T)> {
        self.entries.iter().zip(0..).filter_map(|(entry, slot)| {
            let value = entry.value.as_ref()?;
            Some((Token::new(slot, entry.generation), value))
        })
    }

    /// All values with their tokens, by slot.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Token, &mut T)> {
        self.entries.iter_mut().zip(0..).filter_map(|(entry, slot)| {
            let value = entry.value.as_mut()?;
            Some((Token::new(slot, entry.generation), value))
        })
    }
}

impl<T> Default for SlotTable<T> {
    fn default() -> SlotTable<T> {
        SlotTable::new()
    }
}

impl<T> fmt::Debug for SlotTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotTable({} of {})", self.len(), self.limit())
    }
}
