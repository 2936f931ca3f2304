//! The dynamic table (RFC 7541 section 2.3.2), within a bound in bytes.
//!
//! The bytes of all entries are in one buffer, the oldest first. An entry is removed by moving the
//! start; if there is no room at the end, the entries move to the front. An entry counts 32 bytes
//! more than its name and value, so the buffer, which has the size of the table, has that much
//! slack for each entry, and the moves cost a constant for each byte that is inserted.
//!
//! Invariants: the sum of the entries' sizes is `size` <= `size_max` <= `TABLE_BYTES_CEILING`. The
//! buffer has at most `size_max` bytes. Nothing is allocated before the first entry.

use std::collections::VecDeque;

use crate::limits::FIELD_OVERHEAD_BYTES;

#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    at: u16,
    name_len: u16,
    value_len: u16,
    /// The first index of the name in the static table, or 0.
    pub(super) id: u8,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    bytes: Vec<u8>,
    /// The newest entry is the last.
    entries: VecDeque<Entry>,
    size: u16,
    size_max: u16,
}

impl Table {
    /// An empty table of `size_max` bytes, at most `TABLE_BYTES_CEILING`.
    pub(super) fn new(size_max: usize) -> Table {
        Table { size_max: size_max as u16, ..Table::default() }
    }

    pub(super) fn size_max(&self) -> usize {
        self.size_max as usize
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Evicts what does not fit the new size.
    pub(super) fn resize(&mut self, size_max: usize) {
        self.evict_to(size_max);
        self.size_max = size_max as u16;
        if size_max == 0 {
            *self = Table::default();
        }
    }

    /// The entry with an index that counts from 0, the newest, as name, value and id.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Option<(&[u8], &[u8], u8)> {
        let at = self.entries.len().checked_sub(index + 1)?;
        let entry = self.entries.get(at)?;
        let name_at = entry.at as usize;
        let value_at = name_at + entry.name_len as usize;
        let value = &self.bytes[value_at..value_at + entry.value_len as usize];
        Some((&self.bytes[name_at..value_at], value, entry.id))
    }

    /// Inserts an entry. One that is larger than the table empties it (RFC 7541 section 4.4). The
    /// field must not borrow from the table.
    pub(super) fn insert(&mut self, name: &[u8], value: &[u8], id: u8) {
        let need = name.len() + value.len();
        let size = need + FIELD_OVERHEAD_BYTES;
        if size > self.size_max() {
            self.evict_to(0);
            return;
        }
        self.evict_to(self.size_max() - size);
        self.make_room(need);
        let entry = Entry {
            at: self.bytes.len() as u16,
            name_len: name.len() as u16,
            value_len: value.len() as u16,
            id,
        };
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_back(entry);
        self.size += size as u16;
    }

    fn evict_to(&mut self, size: usize) {
        while self.size as usize > size {
            let entry = self.entries.pop_front().expect("the size is that of the entries");
            self.size -= entry.name_len + entry.value_len + FIELD_OVERHEAD_BYTES as u16;
        }
        if self.entries.is_empty() {
            self.bytes.clear();
        }
    }

    /// Makes room for `need` bytes at the end of the buffer, within `size_max`.
    fn make_room(&mut self, need: usize) {
        const FIRST_BYTES: usize = 128;
        let need_end = self.bytes.len() + need;
        if need_end <= self.bytes.capacity() {
            return;
        }
        if need_end > self.size_max() {
            let start = self.entries.front().map_or(self.bytes.len(), |entry| entry.at as usize);
            self.bytes.drain(..start);
            for entry in &mut self.entries {
                entry.at -= start as u16;
            }
        }
        let need_end = self.bytes.len() + need;
        if need_end > self.bytes.capacity() {
            let doubled = (2 * self.bytes.capacity()).max(FIRST_BYTES).max(need_end);
            self.bytes.reserve_exact(doubled.min(self.size_max()) - self.bytes.len());
        }
    }

    /// Gives back memory that the entries do not need.
    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.entries.shrink_to_fit();
    }

    /// The bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        self.size as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc7541_4_4_an_entry_larger_than_the_table_empties_it() {
        let mut table = Table::new(100);
        table.insert(b"a", b"b", 0);
        assert_eq!((table.len(), table.size()), (1, 34));
        table.insert(&[b'n'; 40], &[b'v'; 40], 0);
        assert_eq!((table.len(), table.size()), (0, 0));
    }

    #[test]
    fn rfc7541_4_3_a_smaller_size_evicts_the_oldest() {
        let mut table = Table::new(4096);
        for number in 0..10u8 {
            table.insert(b"name", &[number], 3);
        }
        table.resize(37 * 2 + 36);
        assert_eq!(table.len(), 2);
        assert_eq!(table.get(0), Some((&b"name"[..], &[9][..], 3)));
        assert_eq!(table.get(1), Some((&b"name"[..], &[8][..], 3)));
        assert_eq!(table.get(2), None);
    }

    #[test]
    fn the_table_agrees_with_a_plain_list_and_stays_within_its_bound() {
        let mut table = Table::new(700);
        let mut list: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for turn in 0..5_000usize {
            let name = vec![b'a' + (turn % 26) as u8; turn * 7 % 40];
            let value = vec![b'0' + (turn % 10) as u8; turn * 13 % 90];
            table.insert(&name, &value, 0);
            list.insert(0, (name, value));
            let mut size = 0;
            list.retain(|(name, value)| {
                size += name.len() + value.len() + 32;
                size <= 700
            });
            assert_eq!(table.len(), list.len());
            for (at, (name, value)) in list.iter().enumerate() {
                assert_eq!(table.get(at), Some((&name[..], &value[..], 0)));
            }
            assert!(table.bytes.capacity() <= 700);
        }
    }
}
