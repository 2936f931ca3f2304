//! The memory that values are made in, kept by each thread from one request to the next.

use std::cell::Cell;

use crate::value::Value;

/// Memory for values. It takes the memory of the thread when the first value is made.
#[derive(Debug)]
pub(crate) struct Scratch {
    memory: Memory,
    is_taken: bool,
}

#[derive(Debug, Default)]
struct Memory {
    /// Values that are not in the request as they are, one after another.
    bytes: Vec<u8>,
    /// The values of slots, as ranges of the bytes.
    slots: Vec<(u32, u32)>,
}

impl Memory {
    const fn new() -> Memory {
        Memory { bytes: Vec::new(), slots: Vec::new() }
    }
}

/// No value has this start.
const UNKNOWN: (u32, u32) = (u32::MAX, 0);

/// A thread that needs more than this for a request does not keep the memory.
const KEPT_BYTES_MAX: usize = 1 << 16;

thread_local! {
    static SPARE: Cell<Memory> = const { Cell::new(Memory::new()) };
}

impl Scratch {
    pub(crate) const fn new() -> Scratch {
        Scratch { memory: Memory::new(), is_taken: false }
    }

    /// The bytes, to which a value may be appended. A second judgement at the same time on one
    /// thread gets new memory.
    #[inline]
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        if !self.is_taken {
            self.memory = SPARE.take();
            self.is_taken = true;
        }
        &mut self.memory.bytes
    }

    /// The bytes of a value.
    #[inline]
    pub(crate) fn bytes_of<'v>(&'v self, value: Value<'v, 'v>) -> &'v [u8] {
        match value {
            Value::Given(bytes) | Value::Fixed(bytes) => bytes,
            Value::Made(start, end) => &self.memory.bytes[start as usize..end as usize],
        }
    }

    /// Where the bytes from `start` are.
    pub(crate) fn made<'c, 'f>(&self, start: usize) -> Value<'c, 'f> {
        let position = |at: usize| u32::try_from(at).expect("values have less than 4 GiB");
        Value::Made(position(start), position(self.memory.bytes.len()))
    }

    /// Appends a copy of a value.
    pub(crate) fn copy<'c, 'f>(&mut self, value: Value<'c, 'f>) -> Value<'c, 'f> {
        let bytes = self.bytes();
        let start = bytes.len();
        match value {
            Value::Given(given) | Value::Fixed(given) => bytes.extend_from_slice(given),
            Value::Made(first, last) => bytes.extend_from_within(first as usize..last as usize),
        }
        self.made(start)
    }

    /// Makes a copied value lower case.
    pub(crate) fn lower(&mut self, value: Value<'_, '_>) {
        if let Value::Made(start, end) = value {
            self.memory.bytes[start as usize..end as usize].make_ascii_lowercase();
        }
    }

    /// The value of a slot, if it has been kept.
    pub(crate) fn kept<'c, 'f>(&self, slot: usize) -> Option<Value<'c, 'f>> {
        let range = self.memory.slots.get(slot).filter(|range| **range != UNKNOWN);
        range.map(|(start, end)| Value::Made(*start, *end))
    }

    /// Keeps the value of a slot.
    pub(crate) fn keep<'c, 'f>(&mut self, slot: usize, value: Value<'c, 'f>) -> Value<'c, 'f> {
        let value = match value {
            made @ Value::Made(..) => made,
            other => self.copy(other),
        };
        let Value::Made(start, end) = value else { unreachable!("a copy is made") };
        if self.memory.slots.len() <= slot {
            self.memory.slots.resize(slot + 1, UNKNOWN);
        }
        self.memory.slots[slot] = (start, end);
        value
    }
}

impl Drop for Scratch {
    #[inline]
    fn drop(&mut self) {
        if self.is_taken && self.memory.bytes.capacity() <= KEPT_BYTES_MAX {
            self.memory.bytes.clear();
            self.memory.slots.clear();
            SPARE.set(std::mem::take(&mut self.memory));
        }
    }
}
