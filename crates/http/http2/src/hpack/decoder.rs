//! A field block into a [`Scratch`] (RFC 7541 section 6).
//!
//! What never happens: fields beyond the limits of a list are stored. They are still decoded,
//! because the table changes with every block.

use super::table::Table;
use super::{huffman, integer, static_table};
use crate::error::Reason;
use crate::scratch::{Scratch, Span};

/// The state of decompression of one direction of a connection.
#[derive(Debug)]
pub struct Decoder {
    table: Table,
    /// The size that we allow (SETTINGS_HEADER_TABLE_SIZE, acknowledged).
    allowed: usize,
    /// The next block must begin with a size update, because the allowed size fell below the
    /// table's (RFC 7541 section 4.2).
    update_due: bool,
}

impl Decoder {
    /// A decoder whose table has `table_bytes`.
    pub fn new(table_bytes: usize) -> Decoder {
        Decoder { table: Table::new(table_bytes), allowed: table_bytes, update_due: false }
    }

    /// The peer has acknowledged another size of the table.
    pub(crate) fn allow(&mut self, table_bytes: usize) {
        self.allowed = table_bytes;
        self.update_due = self.table.size_max() > table_bytes;
    }

    /// Decodes a whole block. If a list exceeds `fields_max` or `bytes_max`,
    /// [`Scratch`] is marked and the rest is not stored.
    ///
    /// # Errors
    /// The block is invalid, or its list is larger than `bytes_max` by
    /// [`LIST_EXCESS_MAX`](crate::limits::LIST_EXCESS_MAX). The connection is over, since the
    /// table is unknown from now on.
    pub fn decode(
        &mut self,
        block: &[u8],
        scratch: &mut Scratch,
        fields_max: usize,
        bytes_max: usize,
    ) -> Result<(), Reason> {
        scratch.clear();
        let mut rest = self.size_updates(block)?;
        while let Some(&first) = rest.first() {
            let (span, length, is_indexed) = match first {
                0x80.. => {
                    let (index, length) = integer::read(rest, 7)?;
                    (self.indexed(index, scratch)?, length, false)
                }
                0x40..0x80 => self.literal(rest, 6, scratch).map(|(s, l)| (s, l, true))?,
                0x20..0x40 => return Err(Reason::HpackSizeUpdate),
                _ => self.literal(rest, 4, scratch).map(|(s, l)| (s, l, false))?,
            };
            rest = &rest[length..];
            if is_indexed {
                self.table.insert(scratch.name(&span), scratch.value(&span), span.id);
            }
            scratch.keep(span, fields_max, bytes_max)?;
        }
        Ok(())
    }

    /// Size updates come before the first field only.
    fn size_updates<'b>(&mut self, block: &'b [u8]) -> Result<&'b [u8], Reason> {
        let mut rest = block;
        while let Some(0x20..0x40) = rest.first() {
            let (size, length) = integer::read(rest, 5)?;
            if size > self.allowed {
                return Err(Reason::HpackSizeUpdate);
            }
            self.table.resize(size);
            self.update_due = false;
            rest = &rest[length..];
        }
        if self.update_due { Err(Reason::HpackSizeUpdate) } else { Ok(rest) }
    }

    #[inline]
    fn field(&self, index: usize) -> Result<(&[u8], &[u8], u8), Reason> {
        match static_table::TABLE.get(index.wrapping_sub(1)) {
            Some((name, value)) => Ok((name, value, index as u8)),
            None => index
                .checked_sub(static_table::TABLE.len() + 1)
                .and_then(|index| self.table.get(index))
                .ok_or(Reason::HpackIndex),
        }
    }

    fn indexed(&self, index: usize, scratch: &mut Scratch) -> Result<Span, Reason> {
        let (name, value, id) = self.field(index)?;
        let at = scratch.arena.len() as u32;
        scratch.arena.extend_from_slice(name);
        scratch.arena.extend_from_slice(value);
        let (name_len, value_len) = (name.len() as u32, value.len() as u32);
        Ok(Span { at, name_len, value_len, id: static_table::first(id) })
    }

    fn literal(
        &self,
        rest: &[u8],
        prefix_bits: u32,
        scratch: &mut Scratch,
    ) -> Result<(Span, usize), Reason> {
        let at = scratch.arena.len();
        let (index, mut length) = integer::read(rest, prefix_bits)?;
        let id = if index == 0 {
            length += string(&rest[length..], &mut scratch.arena)?;
            static_table::name_index(&scratch.arena[at..])
        } else {
            let (name, _, id) = self.field(index)?;
            scratch.arena.extend_from_slice(name);
            static_table::first(id)
        };
        let value_at = scratch.arena.len();
        length += string(&rest[length..], &mut scratch.arena)?;
        let span = Span {
            at: at as u32,
            name_len: (value_at - at) as u32,
            value_len: (scratch.arena.len() - value_at) as u32,
            id,
        };
        Ok((span, length))
    }

    /// Gives back memory that the table does not need.
    pub(crate) fn shrink(&mut self) {
        self.table.shrink();
    }

    /// The bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.table.heap_bytes()
    }

    #[cfg(test)]
    pub(super) fn table(&self) -> &Table {
        &self.table
    }
}

/// Appends a string literal (RFC 7541 section 5.2); returns its encoded length.
fn string(bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Reason> {
    let (len, prefix) = integer::read(bytes, 7)?;
    let text = bytes.get(prefix..prefix + len).ok_or(Reason::HpackTruncated)?;
    if bytes[0] & 0x80 == 0 {
        out.extend_from_slice(text);
    } else {
        huffman::decode(text, out)?;
    }
    Ok(prefix + len)
}
