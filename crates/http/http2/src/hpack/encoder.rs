//! Fields into a field block (RFC 7541 section 6).
//!
//! Which fields enter the table: those that are sent a second time while their hash is still among
//! the last 16 that were sent. So a name or date that repeats is soon one byte, and an identifier
//! that is different in each message displaces nothing. Credentials and cookies are never indexed
//! (RFC 7541 section 7.1.3).

use super::table::Table;
use super::{huffman, integer, static_table};
use crate::limits::TABLE_BYTES_INITIAL;
use static_table::id;

/// Hashes of fields that were sent lately.
const SEEN: usize = 16;

/// A longer field is never indexed: it would displace too much.
const INDEXED_BYTES_MAX: usize = 192;

/// A name up to this length is converted to lower case on the stack, and compressed.
const NAME_BYTES: usize = 64;

/// The state of compression of one direction of a connection.
#[derive(Debug)]
pub struct Encoder {
    table: Table,
    /// The largest table that we want, whatever the peer allows.
    wanted: u16,
    /// The smallest size since the last block, if there is a size update to send.
    update: Option<u16>,
    seen: [u16; SEEN],
    seen_next: u8,
}

impl Encoder {
    /// An encoder with a table of at most `table_bytes`.
    pub fn new(table_bytes: usize) -> Encoder {
        let initial = table_bytes.min(TABLE_BYTES_INITIAL);
        Encoder {
            table: Table::new(initial),
            wanted: table_bytes as u16,
            update: (initial != TABLE_BYTES_INITIAL).then_some(initial as u16),
            seen: [0; SEEN],
            seen_next: 0,
        }
    }

    /// The peer allows another size of the table (RFC 7541 section 4.2).
    pub(crate) fn allow(&mut self, table_bytes: usize) {
        let size = table_bytes.min(self.wanted as usize);
        if size != self.table.size_max() {
            self.table.resize(size);
            self.update = Some(self.update.unwrap_or(u16::MAX).min(size as u16));
        }
    }

    /// Begins a block: writes the size updates that are due. Call it first for each block.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if let Some(smallest) = self.update.take() {
            let size = self.table.size_max();
            if (smallest as usize) < size {
                integer::write(out, 0x20, 5, smallest as usize);
            }
            integer::write(out, 0x20, 5, size);
        }
    }

    /// Appends a field. Upper case letters of the name become lower case.
    pub fn field(&mut self, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        let mut lower = [0; NAME_BYTES];
        let name = lower_case(name, &mut lower);
        let index = static_table::name_index(name);
        if write_static(index, value, out) {
            return;
        }
        if is_sensitive(index) || name.len() + value.len() > INDEXED_BYTES_MAX {
            literal(representation(index), index as usize, name, value, out);
            return;
        }
        let mut name_at = index as usize;
        for at in 0..self.table.len() {
            let Some((found_name, found_value, _)) = self.table.get(at) else { break };
            if found_name == name {
                let dynamic = static_table::TABLE.len() + 1 + at;
                if found_value == value {
                    integer::write(out, 0x80, 7, dynamic);
                    return;
                }
                if name_at == 0 {
                    name_at = dynamic;
                }
            }
        }
        if self.is_repeated(name, value) {
            literal(INDEXED, name_at, name, value, out);
            // A name beyond the stack buffer is too long to be here.
            self.table.insert(name, value, index);
        } else {
            literal(NOT_INDEXED, name_at, name, value, out);
        }
    }

    /// Whether this field was sent lately; remembers it.
    fn is_repeated(&mut self, name: &[u8], value: &[u8]) -> bool {
        if name.len() > NAME_BYTES {
            return false;
        }
        let hash = hash(name, value);
        if self.seen.contains(&hash) {
            return true;
        }
        self.seen[self.seen_next as usize] = hash;
        self.seen_next = (self.seen_next + 1) % SEEN as u8;
        false
    }

    /// Gives back memory that the table does not need.
    pub(crate) fn shrink(&mut self) {
        self.table.shrink();
    }

    /// The bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.table.heap_bytes()
    }
}

/// Appends a field that refers to no dynamic table. Such bytes are valid in every block of every
/// connection, so that the head of a stored response can be encoded once.
pub fn encode_without_table(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let mut lower = [0; NAME_BYTES];
    let name = lower_case(name, &mut lower);
    let index = static_table::name_index(name);
    if !write_static(index, value, out) {
        literal(representation(index), index as usize, name, value, out);
    }
}

#[inline]
fn write_static(index: u8, value: &[u8], out: &mut Vec<u8>) -> bool {
    let found = if index == 0 { None } else { static_table::value_index(index, value) };
    if let Some(index) = found {
        out.push(0x80 | index);
    }
    found.is_some()
}

fn is_sensitive(index: u8) -> bool {
    matches!(index, id::AUTHORIZATION | id::PROXY_AUTHORIZATION | id::COOKIE | id::SET_COOKIE)
}

/// The first bits of a literal, and the bits of its index.
type Representation = (u8, u32);
const INDEXED: Representation = (0x40, 6);
const NOT_INDEXED: Representation = (0, 4);
const NEVER_INDEXED: Representation = (0x10, 4);

fn representation(index: u8) -> Representation {
    if is_sensitive(index) { NEVER_INDEXED } else { NOT_INDEXED }
}

fn literal(first: Representation, index: usize, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    integer::write(out, first.0, first.1, index);
    if index == 0 {
        // A long name may be in upper case still, and has no Huffman code then.
        if name.len() > NAME_BYTES {
            integer::write(out, 0, 7, name.len());
            out.extend(name.iter().map(u8::to_ascii_lowercase));
        } else {
            string(name, out);
        }
    }
    string(value, out);
}

fn string(text: &[u8], out: &mut Vec<u8>) {
    let encoded = huffman::encoded_len(text);
    if encoded < text.len() {
        integer::write(out, 0x80, 7, encoded);
        huffman::encode(text, out);
    } else {
        integer::write(out, 0, 7, text.len());
        out.extend_from_slice(text);
    }
}

#[inline]
fn lower_case<'n>(name: &'n [u8], lower: &'n mut [u8; NAME_BYTES]) -> &'n [u8] {
    if name.len() > NAME_BYTES || !name.iter().any(u8::is_ascii_uppercase) {
        return name;
    }
    let lower = &mut lower[..name.len()];
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    lower
}

/// 16 bits of FNV-1a. A collision only indexes a field that is new.
fn hash(name: &[u8], value: &[u8]) -> u16 {
    const PRIME: u64 = 0x100_0000_01b3;
    let add = |hash: u64, part: u64| (hash ^ part).wrapping_mul(PRIME);
    let mut state = add(0xcbf2_9ce4_8422_2325, (name.len() as u64) << 32 | value.len() as u64);
    for text in [name, value] {
        for piece in text.chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            state = add(state, u64::from_le_bytes(word));
            state ^= state >> 29;
        }
    }
    // 0 marks an unused place.
    (state >> 40) as u16 | 1
}
